"""The steps of a construct: what the present table and the ledger answer, in lists, for one interpreter to carry out.

Theory of operation
-------------------
`entry_steps`, `exit_steps` and `update_steps` are given what the table has planned, ask the ledger, and change nothing.
Their answer is `Steps`. A data environment carries out those of every construct in one order:

===============================  ============  ===============================================================
`created`                        allocate      under the lock; a failure here leaves all as it was
`waits`                          wait          under the lock; a failure here leaves all as it was
`plan`, `reads`, `writes`,       commit, open  under the lock; cannot fail
`back`
`copies_kept`, `used`            copy, mark    under the lock: what an exit has used and leaves present
`zeroed`                         fill
`copies_in`, `copies_out`        copy
`reads`, `writes`, `back`        mark          where what is open in the ledger ends: one event
===============================  ============  ===============================================================

Others may end the mapping of what an exit leaves present as soon as the lock is free, and the end of a region is never
put off: so the exit marks its place under the lock, behind its copies of that. A copy of what it removes concerns only
those who map the same host storage anew. The ledger puts them off while that is open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.data.ledger import PutOffError, is_open

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from offload.arrays.sections import Section
    from offload.data.entries import Entry
    from offload.data.items import MapItem
    from offload.data.ledger import Ledger, Part
    from offload.data.plans import Plan

    Copy: TypeAlias = tuple[MapItem, Entry]


class Steps:
    """What one construct does on its lane; what it does not do is left as the class has it: empty.

    Attributes
    ----------
    created : sequence of Entry
        What needs a buffer.
    waits : sequence of Point
        What the lane follows.
    plan : Plan or None
        What changes in the table; None: nothing.
    reads, writes : sequence of (Entry, Section)
        The parts that are open in the ledger until all copies are made: those that are copied from, and copied to.
    back : sequence of Section
        The host storage that is mapped no more, and open until it has been copied to.
    copies_kept : sequence of (MapItem, Entry)
        Copies of an exit to the host, of what stays present.
    used : sequence of (Entry, Section)
        The parts that an exit leaves present, in use up to where these copies end.
    zeroed : sequence of Entry
        What is filled with zeros.
    copies_in, copies_out : sequence of (MapItem, Entry)
        Copies to the device, and to the host.
    failures : list of Exception or None
        Those of an exit, which makes each copy to the host whatever becomes of the others, and is never undone. Else
        None, and the first failure ends the construct.
    point : Point or None
        Where that of ``used`` is, when it has been marked.
    """

    created: Sequence[Entry] = ()
    waits: Sequence[Any] = ()
    plan: Plan | None = None
    reads: Sequence[Part] = ()
    writes: Sequence[Part] = ()
    back: Sequence[Section] = ()
    copies_kept: Sequence[Copy] = ()
    used: Sequence[Part] = ()
    zeroed: Sequence[Entry] = ()
    copies_in: Sequence[Copy] = ()
    copies_out: Sequence[Copy] = ()
    failures: list[Exception] | None = None
    point: Any = None


def entry_steps(plan: Plan, ledger: Ledger) -> Steps:
    """Return the steps of an entry that `PresentTable.enter` has planned.

    Raises
    ------
    PutOffError
        It has to follow what is open.
    """
    steps = Steps()
    steps.plan = plan
    steps.created = created = plan.created
    steps.zeroed = plan.zeroed
    steps.copies_in = plan.copies
    fresh = [entry.section for entry in created]
    steps.writes = writes = [*zip(created, fresh, strict=True)]
    for item, entry in plan.copies:
        if entry.generation:  # it was there before
            writes.append((entry, item.section))
    steps.waits = ledger.before(plan.parts() if len(created) < len(plan.counted) else (), writes, fresh)
    return steps


def exit_steps(plan: Plan, ledger: Ledger, *, may_be_put_off: bool = False) -> Steps:
    """Return the steps of an exit that `PresentTable.exit` has planned.

    Raises
    ------
    PutOffError
        An entry that it concerns is open, and it ``may_be_put_off``.
    """
    if may_be_put_off:
        for entry, *_ in plan.counts:
            if is_open(entry):
                raise PutOffError
    steps = Steps()
    steps.failures = []
    steps.plan = plan
    concerned = plan.removed
    steps.copies_out = plan.copies
    if len(plan.removed) < len(plan.counts):  # not all goes
        removed = set(plan.removed)
        steps.used = [part for part in plan.parts() if part[0] not in removed]
        steps.copies_out = [copy for copy in plan.copies if copy[1] in removed]
        steps.copies_kept = kept = [copy for copy in plan.copies if copy[1] not in removed]
        concerned = [*removed, *[entry for _, entry in kept]]
    steps.back = [item.section for item, _ in steps.copies_out]
    steps.waits = ledger.before_end(concerned)
    return steps


def update_steps(copies: Sequence[Copy], ledger: Ledger) -> Steps:
    """Return the steps of an update that makes some copies, each of what its item's map type says.

    Raises
    ------
    PutOffError
        It has to follow what is open.
    """
    steps = Steps()
    steps.copies_in, steps.writes = copies_in, writes = [], []
    steps.copies_out, steps.reads = copies_out, reads = [], []
    for copy in copies:
        item, entry = copy
        if item.map_type.copies_in:
            copies_in.append(copy)
            writes.append((entry, item.section))
        else:
            copies_out.append(copy)
            reads.append((entry, item.section))
    steps.waits = ledger.before(reads, writes)
    return steps
