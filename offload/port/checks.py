"""The three checks before a task form is written: the same bytes, the same text, and the same order.

Theory of operation
-------------------
*Units.* Each execution of a block or copy of the form is a unit. The marks of the original's run give the units in the
order in which the program came to them, with the bytes that each of them accessed. The recorded graph of the form gives
its tasks in the same order. So the k-th unit is the k-th task.

* The digests of the bytes of each copy to the host are compared, copy by copy.
* The printed text is compared.
* For each pair of conflicting accesses of the original, the graph must have a path, or a wait of the host must stand
  between. Of the accesses before a write that covers them only the write is kept: a path through it orders them too.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from offload.port.extents import covers, shares
from offload.port.pending import PendingAccesses
from offload.port.pieces import Role
from offload.port.waits import accesses_of
from offload.sanitizer.clocks import Order

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from offload.port.extents import AccessPart
    from offload.port.trial import Observation, Rehearsal
    from offload.port.waits import Encounter, WaitPlan
    from offload.port.writing import TaskForm

_VALUES: Final = frozenset({"get", "asnumpy", "float", "int", "bool", "complex", "item", "index"})


class FormCheck:
    """Compares the run of a task form with the run of the original.

    Attributes
    ----------
    reasons : list of str
        The differences; empty if the form may be written.
    """

    def __init__(self, form: TaskForm, waits: WaitPlan, observed: Observation, rehearsed: Rehearsal) -> None:
        self.form = form
        self.waits = waits
        self.recorded = waits.recorded
        self.observed = observed
        self.rehearsed = rehearsed
        self.reasons: list[str] = []
        if rehearsed.error:
            at = form.origin_of(rehearsed.line)
            self.reasons.append(f"{at_line(at)}the task form fails: {rehearsed.error}")
            return
        self._compare_text()
        self._compare_units()
        if not self.reasons:
            self._compare_bytes()
            self._compare_order()
        for rule, first, second in rehearsed.findings:
            lines = " and ".join(f"line {form.origin_of(line)}" for line in (first, second) if line)
            self.reasons.append(f"{lines}: the sanitizer finds `{rule}` in the task form")

    # -- text --------------------------------------------------------------------------------------
    def _compare_text(self) -> None:
        one, other = self.observed.printed, self.rehearsed.printed
        if one == other:
            return
        old, new = one.splitlines(), other.splitlines()
        at = next(
            (k for k, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), min(len(old), len(new))
        )
        was = old[at].decode(errors="replace") if at < len(old) else ""
        now = new[at].decode(errors="replace") if at < len(new) else ""
        mark = self.observed.mark_of_line(at)
        line = self.recorded.statement_at(mark).lineno if mark >= 0 else len(self.recorded.program.lines)
        text = f"the task form prints {now!r:.80} instead of {was!r:.80} (line {at + 1} of the output)"
        self.reasons.append(at_line(line) + text)

    # -- units -------------------------------------------------------------------------------------
    def _units(self) -> Iterator[tuple[int, ast.stmt]]:
        """Yield the time and the statement of each unit of the original's run."""
        roles, blocks = self.waits.parts.roles, self.waits.parts.blocks
        for time in range(len(self.recorded.marks)):
            statement = self.recorded.statement_at(time)
            if roles.get(statement) is Role.COPY or statement in blocks:
                yield time, statement

    def _compare_units(self) -> None:
        parts = {k + 1: line.part for k, line in enumerate(self.form.lines) if line.part is not None}
        roles, blocks = self.waits.parts.roles, self.waits.parts.blocks
        self.node_of: dict[int, int] = {}  # tasks of the graph by the times of their units
        tasks = []
        for index, (line, directive) in enumerate(self.rehearsed.nodes):
            part = parts.get(line)
            if directive != "taskwait" and part is not None and (roles.get(part) is Role.COPY or part in blocks):
                tasks.append((index, part))
        units = list(self._units())
        for (time, statement), (index, part) in zip(units, tasks, strict=False):
            if statement is not part:
                self.reasons.append(f"{at_line(statement.lineno)}the task form runs its parts in another order")
                return
            self.node_of[time] = index
        if len(units) != len(tasks):
            extra = units[len(tasks) :] or [(0, part) for _, part in tasks[len(units) :]]
            text = f"the task form has {len(tasks)} tasks, and the program {len(units)} blocks and copies"
            self.reasons.append(at_line(extra[0][1].lineno) + text)

    # -- bytes -------------------------------------------------------------------------------------
    def _compare_bytes(self) -> None:
        log = self.recorded.log
        parts = {k + 1: line.part for k, line in enumerate(self.form.lines)}
        old: dict[ast.stmt, list[bytes]] = {}
        values: list[tuple[ast.stmt, bytes]] = []
        for encounter in self.waits.encounters:
            operation = encounter.operation
            if operation is None or operation.kind != "to host":
                continue
            statement = self.recorded.statement_at(encounter.owner)
            found = log.arrived.get(operation.number, b"")
            if encounter.task >= 0:
                old.setdefault(statement, []).append(found)
            elif operation.call in _VALUES:
                values.append((statement, found))
        new: dict[ast.stmt, list[bytes]] = {}
        for line, found in self.rehearsed.arrived:
            part = parts.get(line)
            if part is not None:
                new.setdefault(part, []).append(found)
        for statement in dict.fromkeys([*old, *new]):
            if old.get(statement) != new.get(statement):
                self.reasons.append(
                    f"{at_line(statement.lineno)}this copy brings other bytes to the host in the task form"
                )
        for (statement, one), other in zip(values, self.rehearsed.values, strict=False):
            if one != other:
                self.reasons.append(f"{at_line(statement.lineno)}the host receives another value in the task form")
                return

    # -- order -------------------------------------------------------------------------------------
    def _compare_order(self) -> None:
        order = Order()
        stretches: list[int] = []
        before: list[list[int]] = [[] for _ in self.rehearsed.nodes]
        for source, target in self.rehearsed.edges:
            before[target].append(source)
        waits = []
        for index, sources in enumerate(before):
            stretches.append(order.stretch(*(stretches[source] for source in sources)))
            line, directive = self.rehearsed.nodes[index]
            if directive == "taskwait" and line:  # not the wait at the end of the rehearsal
                waits.append(index)
        statements = dict(self._units())
        waits += [node for time, node in self.node_of.items() if statements[time] in self.waits.blocking]
        begins = self._begins()
        places = {one.operation.number: k for k, one in enumerate(self.waits.encounters) if one.operation is not None}
        missing: set[tuple[int, int]] = set()
        for one, other in self._conflicts():
            assert other.operation is not None
            if one.task < 0:
                continue  # the host's own order
            first = self.node_of[one.task]
            if other.task >= 0:
                is_ordered = order.is_before(stretches[first], stretches[self.node_of[other.task]])
            else:
                at = bisect_left(begins, (places[other.operation.number], -1))
                stop = begins[at][1] if at < len(begins) else len(before)
                is_ordered = any(
                    first == wait or order.is_before(stretches[first], stretches[wait]) for wait in waits if wait < stop
                )
            if not is_ordered:
                missing.add((self._line(one), self._line(other)))
        for first_line, second_line in sorted(missing):
            self.reasons.append(f"lines {first_line} and {second_line}: nothing orders their accesses in the task form")

    def _begins(self) -> list[tuple[int, int]]:
        """Return for each task, in their order, the index of its first encounter and its node."""
        found: dict[int, int] = {}
        for place, encounter in enumerate(self.waits.encounters):
            if encounter.task >= 0:
                found.setdefault(encounter.task, place)
        return sorted((place, self.node_of[task]) for task, place in found.items())

    def _line(self, encounter: Encounter) -> int:
        assert encounter.operation is not None
        return encounter.operation.place.line

    def _conflicts(self) -> Iterator[tuple[Encounter, Encounter]]:
        """Yield pairs of conflicting accesses of different units, the earlier one first."""
        pending: PendingAccesses[tuple[bool, Encounter]] = PendingAccesses()
        known: set[tuple[AccessPart, bool, int]] = set()
        for encounter in self.waits.encounters:
            task = encounter.task
            for part, writes in () if encounter.operation is None else accesses_of(encounter.operation):
                if task >= 0 and (part, writes, task) in known:
                    continue
                known.add((part, writes, task))
                for other, (other_writes, earlier) in pending.near(part):
                    is_same = earlier.task == task and task >= 0
                    if (writes or other_writes) and not is_same and shares(part, other):
                        yield earlier, encounter
                if writes:
                    _drop_covered(pending, part, task)
                pending.add(part, (writes, encounter))


def _drop_covered(pending: PendingAccesses[tuple[bool, Encounter]], part: AccessPart, task: int) -> None:
    """Drop the accesses of other tasks that a write covers: an order after the write is an order after them."""

    def is_over(other: AccessPart, value: tuple[bool, Encounter]) -> bool:
        return value[1].task != task and covers(part, other)

    pending.drop(part, is_over)


def at_line(number: int) -> str:
    """Return the beginning of a reason."""
    return f"line {number}: " if number else ""
