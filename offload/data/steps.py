"""The order of a plan: the points that its lane follows, its copies, and the accesses that are open meanwhile.

Theory of operation
-------------------
`entry_steps` and `exit_steps` ask the ledger about the plan of the present table, and change only the plan.
The plan of an update may be carried out again, by several threads. So it stays as it is: its waits are asked for each
time (`DataEnvironment.update`). A data environment carries out the plans of all constructs in one order:

===============================  ============  ===============================================================
`created`                        allocate      under the lock; a failure here leaves all as it was
`waits`                          wait          under the lock; a failure here leaves all as it was
the plan, `reads`, `writes`,     commit, open  under the lock; cannot fail
`back`
`copies_kept`, `used`            copy, mark    under the lock: entries that an exit leaves present
`zeroed`                         fill
`copies_in`, `copies_out`        copy
`reads`, `writes`, `back`        mark          the end of open accesses in the ledger: one event
===============================  ============  ===============================================================

An exit may leave entries present. Another construct may end their mapping as soon as the lock is free, and the end of
a region is never put off. So the exit copies these entries and marks its place under the lock. A copy of a removed
entry concerns only constructs that map the same host storage again. The ledger puts them off while the copy is open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from offload.data.ledger import PutOffError, is_open

if TYPE_CHECKING:
    from offload.data.ledger import Ledger
    from offload.data.plans import Plan


def entry_steps(plan: Plan, ledger: Ledger) -> Plan:
    """Complete and return the plan of an entry.

    Raises
    ------
    PutOffError
        It has to follow an open access.
    """
    created, copies = plan.created, plan.copies
    if not created and not copies:
        plan.waits = ledger.acquire(plan.uses)
        return plan
    plan.copies_in = copies
    plan.writes = writes = [(entry, entry.section) for entry in created]
    # A new entry is written as a whole, be it by copies of parts of it.
    for item, entry in copies:
        if entry.generation:  # it was there before
            writes.append((entry, item.section))
    plan.waits = ledger.acquire(plan.uses, writes)
    return plan


def exit_steps(plan: Plan, ledger: Ledger, *, may_be_put_off: bool = False) -> Plan:
    """Complete and return the plan of an exit.

    Raises
    ------
    PutOffError
        An entry that it concerns is open, and it ``may_be_put_off``.
    """
    if may_be_put_off:
        for entry, *_ in plan.counts:
            if is_open(entry):
                raise PutOffError
    plan.failures = []
    # What only counts down uses its storage, and waits for nobody.
    concerned = removed = plan.removed
    plan.copies_out = plan.copies
    if plan.is_kept:
        gone = set(removed)
        plan.used = [
            (entry, item.section)
            for item, entry in zip(plan.items, plan.entries, strict=True)
            if entry is not None and entry not in gone
        ]
        plan.copies_out = [copy for copy in plan.copies if copy[1] in gone]
        plan.copies_kept = kept = [copy for copy in plan.copies if copy[1] not in gone]
        concerned = [*removed, *[entry for _, entry in kept]]
    if plan.copies_out:
        plan.back = [item.section for item, _ in plan.copies_out]
    plan.waits = ledger.acquire(ended=concerned)
    return plan


def raise_first(failures: list[Exception]) -> NoReturn:
    """Raise the first failure, with the others as notes."""
    first, *others = failures
    for other in others:
        first.add_note(f"and: {other}")
    raise first
