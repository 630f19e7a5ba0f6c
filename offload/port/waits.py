"""The waits of the host in a task form, and the synchronisations of the device after its default stream.

Theory of operation
-------------------
The tasks of a form order themselves by their clauses. Only the host's own accesses need a `taskwait`. The record is
replayed as the task form will run: a task's accesses are *pending* from its encounter until the host waits. If the host
accesses bytes of a pending access, and one of the two writes, a wait has to stand between. The candidates are the
program's own calls of ``synchronize`` that ran in between, and copies for which CuPy made the host wait. The last one
becomes a wait, and the replay begins again. The host waits for the task of such a copy only. If there is none, since
CuPy had read the host's memory at once, the wait stands before the host's statement. A ``synchronize`` that is never
chosen orders nothing, and disappears, unless compiled code may use the bytes that it waits for
(`offload.port.unseen`).

*Overlap.* A `taskwait` waits for all tasks. If the program's own wait left other work unfinished, such as the next
buffers of a ring, the form would lose that overlap. Then a `taskwait` with `depend` stands directly before the host's
statement, and names the arrays of that statement whose bytes the host accesses. It takes the place of the program's
call only if expressions of the statement name these arrays.

*The default stream.* In a task form, work outside of all tasks goes to the device's default stream. It is allowed
before the streams' work begins and after it has ended, seen from the innermost call that contains both. Tasks do not
wait for that stream. So one ``synchronize()`` of the device follows the last such statement before a task. An
allocation alone is no work, and needs none.

*Values.* A statement that copies to the host and uses the value at once stays, after a wait. A loop whose condition
depends on such a value is refused, unless the program synchronises before.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from offload.port.chains import names_in
from offload.port.extents import covers
from offload.port.log import NULL
from offload.port.pieces import Role
from offload.port.races import leaves_work, waits_for_unseen
from offload.port.statements import bindings_in
from offload.port.under_way import TasksUnderWay
from offload.port.unseen import unseen_uses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from offload.port.extents import AccessPart
    from offload.port.log import StreamOperation
    from offload.port.parts import FormParts
    from offload.port.pieces import BlockPart

_WORK: Final = frozenset({"kernel", "to device", "to host"})


class Encounter(NamedTuple):
    """A moment of the task form: a task, a wait or work of the host."""

    time: int  # the last mark before it
    owner: int  # the mark of the statement that it belongs to
    operation: StreamOperation | None  # None: a wait
    task: int  # the time at which its task was encountered; -1 for the host


class _Need(NamedTuple):
    """An access of the host that a task's access conflicts with."""

    since: int  # when the task was encountered
    at: int  # when the host accesses
    owner: int  # the mark of the host's statement
    part: AccessPart
    writes: bool
    operation: int  # the host's


@dataclass(slots=True)
class HostWait:
    """A wait of the form for which the program has no call of its own at that place."""

    line: int  # of the program's call that it stands for
    items: dict[str, set[str]] = field(default_factory=dict)  # "in" and "out" by expressions; none: it waits for all
    places: dict[str, tuple[int, int]] = field(default_factory=dict)  # of the expressions: chain and prefix


class WaitPlan:
    """The waits of a task form.

    Attributes
    ----------
    needed : set of ast.stmt
        The program's calls of ``synchronize`` that become waits.
    before : dict
        Further waits, by the statements before which they stand.
    blocking : set of ast.stmt
        Copies for whose task the host waits.
    device_before, device_after : set of ast.stmt
        Statements before or after which the device is synchronised.
    """

    def __init__(self, parts: FormParts, redundant: Callable[[], set[int]] = set) -> None:
        self.parts = parts
        self._redundant = redundant  # returns the lines of calls that the original does not need
        self.recorded = parts.recorded
        self.uses = parts.uses
        self.needed: set[ast.stmt] = set()
        self.before: dict[ast.stmt, HostWait] = {}
        self.blocking: set[ast.stmt] = set()
        self.device_before: set[ast.stmt] = set()
        self.device_after: set[ast.stmt] = set()
        self._blocks = {member: block for block in parts.blocks.values() for member in _inside(block)}
        self.encounters = list(self._encounters())
        self.tasks = sorted({one.task for one in self.encounters if one.task >= 0})
        self._leaves_work = leaves_work(self.recorded.log)
        self._check_default_stream()
        while (need := self._replay()) is not None:
            self._answer(need)
        self._keep_unknown()
        self._keep_unseen()

    # -- the order of the task form ----------------------------------------------------------------
    def _encounters(self) -> Iterator[Encounter]:
        recorded, roles = self.recorded, self.parts.roles
        operations = recorded.log.operations
        marks = recorded.marks
        for time, mark in enumerate(marks):
            if roles.get(recorded.statement_at(time)) is Role.WAIT:
                yield Encounter(time, time, None, -1)
            stop = marks[time + 1].first if time + 1 < len(marks) else len(operations)
            for operation in operations[mark.first : stop]:
                owner = recorded.owners[operation.number]
                if owner >= 0:
                    task = self._task_of(owner, operation)
                    yield Encounter(
                        time, owner if task >= 0 else recorded.raw_owners[operation.number], operation, task
                    )

    def _task_of(self, owner: int, operation: StreamOperation) -> int:
        statement = self.recorded.statement_at(owner)
        role = self.parts.roles.get(statement)
        if role is Role.COPY:
            return owner if operation.kind != "host" or self._has_copied(owner, operation) else -1
        if role is Role.BLOCK and operation.kind == "kernel":
            begin = self._blocks[statement].executions.begin_of(owner)
            return -1 if begin is None else begin
        return -1

    def _has_copied(self, owner: int, operation: StreamOperation) -> bool:
        """Tell whether a host's access belongs to the assignment of a copy's result, as in ``h[...] = d.get()``."""
        operations = self.recorded.log.operations
        first = self.recorded.marks[owner].first
        return any(earlier.kind == "to host" for earlier in operations[first : operation.number])

    # -- the replay --------------------------------------------------------------------------------
    def _replay(self) -> _Need | None:
        """Return the first access of the host that must wait and does not."""
        tasks = TasksUnderWay()
        ending = -1  # a copy for which the host waits
        for encounter in self.encounters:
            if ending >= 0 and encounter.task != ending:
                tasks.end(ending)
                ending = -1
            statement = self.recorded.statement_at(encounter.owner)
            operation = encounter.operation
            if operation is None:
                if statement in self.needed:
                    tasks.end_all(encounter.time)
                continue
            if encounter.task < 0:
                tasks.end_all(max([-1, *self._waits_before(encounter)]))
            elif statement in self.blocking:
                ending = encounter.task
            for part, writes in accesses_of(operation):
                if encounter.task >= 0:
                    tasks.add(encounter.task, part, writes=writes)
                    continue
                found = tasks.conflicts(part, writes=writes)
                limit = self._named_before(encounter, part, writes=writes) if found else -1
                for task in found:
                    if task < limit:
                        tasks.end(task)
                late = [task for task in found if task >= limit]
                if late:  # a wait for the last one waits for all
                    return _Need(max(late), encounter.time, encounter.owner, part, writes, operation.number)
        return None

    def _waits_before(self, encounter: Encounter) -> Iterator[int]:
        """Yield the times of the waits for all tasks before the statements that led to an access."""
        for time in self.recorded.callers(encounter.owner):
            wait = self.before.get(self.recorded.statement_at(time))
            if wait is not None and not wait.items:
                yield time

    def _named_before(self, encounter: Encounter, part: AccessPart, *, writes: bool) -> int:
        """Return the time of the last wait before an access whose items cover the access; -1 for none."""
        for time in self.recorded.callers(encounter.owner):
            wait = self.before.get(self.recorded.statement_at(time))
            for text, modes in wait.items.items() if wait is not None else ():
                section = self._section_at(time, *wait.places[text])  # type: ignore[union-attr]  # it has items
                if (not writes or "out" in modes) and section is not None and covers(section, part):
                    return time
        return -1

    def _section_at(self, time: int, chain: int, length: int) -> AccessPart | None:
        """Return the bytes of the host array that an expression held when a statement ran; None if it held none."""
        held = self.recorded.marks[time].held[chain][length]
        return held.section if held is not None and held.what == "host" else None

    def _answer(self, need: _Need) -> None:
        """Add the wait that an access of the host needs."""
        recorded = self.recorded
        candidates = {
            recorded.statement_at(time): time
            for time in range(need.since + 1, need.at + 1)
            if self.parts.roles.get(recorded.statement_at(time)) is Role.WAIT
        }
        if candidates:
            redundant = self._redundant() if len(candidates) > 1 else set()
            wanted = [one for one in candidates if one.lineno not in redundant] or [*candidates]
            chosen = max(wanted, key=lambda one: candidates[one])
            if not (self._leaves_work_at(candidates[chosen]) and self._name(need, chosen.lineno)):
                self.needed.add(chosen)
            return
        for time in range(need.at, need.since - 1, -1):
            statement = recorded.statement_at(time)
            role = self.parts.roles.get(statement)
            if role is Role.COPY and statement not in self.blocking and self._blocks_host(time) and time < need.at:
                self.blocking.add(statement)
                self._note_implicit(need)
                return
        self._note_implicit(need)
        owner = self._moment(need)
        statement = recorded.statement_at(owner)
        if need.operation in self._leaves_work and self._name(need, statement.lineno):
            return
        is_whole = statement in self.before and not self.before[statement].items
        if owner <= need.since or is_whole or isinstance(statement, ast.While):
            text = _DEPENDS if isinstance(statement, ast.While) else _WITHIN
            self.uses.refuse(statement, text.format(recorded.statement_at(need.since).lineno))
            self.encounters = []
            return
        self.before[statement] = HostWait(statement.lineno)

    def _leaves_work_at(self, time: int) -> bool:
        """Tell whether the host waited at a mark, and work of streams was unfinished then."""
        marks, operations = self.recorded.marks, self.recorded.log.operations
        stop = marks[time + 1].first if time + 1 < len(marks) else len(operations)
        return any(number in self._leaves_work for number in range(marks[time].first, stop))

    def _name(self, need: _Need, line: int) -> bool:
        """Have the host wait for an array by its name, directly before the statement; tell whether that is possible."""
        time = self._moment(need)
        statement = self.recorded.statement_at(time)
        is_kept = self.parts.roles.get(statement, Role.KEEP) is Role.KEEP and statement not in self._blocks
        if (
            time <= need.since
            or not is_kept
            or isinstance(statement, ast.While)
            or self.parts.program.is_elif(statement)
        ):
            return False
        found: dict[str, tuple[int, tuple[int, int]]] = {}
        for index, chain in enumerate(self.recorded.chains_of(statement)):
            for length in range(len(chain.steps) + 1):
                section = self._section_at(time, index, length)
                if section is not None and covers(section, need.part):
                    text = self.uses.text(chain.prefix(length))
                    found.setdefault(text, (section.run_nbytes, (index, length)))
        wait = self.before.get(statement, HostWait(line))
        mode = "out" if need.writes else "in"
        text = min(found, key=lambda text: (found[text][0], len(text)), default="")
        is_whole = statement in self.before and not wait.items
        if not text or is_whole or mode in wait.items.get(text, ()):
            return False
        wait.items.setdefault(text, set()).add(mode)
        wait.places.setdefault(text, found[text][1])
        self.before[statement] = wait
        return True

    def _moment(self, need: _Need) -> int:
        """Return the mark of the statement before which the host waits: of the converted function, if it can."""
        climbed = self.recorded.climbed(need.owner)
        return climbed if climbed > need.since else need.owner

    def _blocks_host(self, time: int) -> bool:
        facts = self.recorded.facts.get(self.recorded.statement_at(time))
        operations = self.recorded.log.operations
        return facts is not None and any(operations[k].blocks for k in facts.operations)

    def _note_implicit(self, need: _Need) -> None:
        """Refuse control flow of a loop that depends on device data which only a copy has waited for."""
        statement = self.recorded.statement_at(self._moment(need))
        program = self.recorded.program
        function = program.function_of(statement)
        tests = [
            node
            for node in ast.walk(function)
            if isinstance(node, (ast.While, ast.If))
            and self._steers_loop(node)
            and program.function_of(node) is function
        ]
        if statement in tests:
            self.uses.refuse(statement, _DEPENDS)
            return
        tainted = {name for name, _ in bindings_in(statement)}
        for _ in range(3):
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and not tainted.isdisjoint(names_in(node.value)):
                    tainted |= {name for name, _ in bindings_in(node)}
        for test in tests:
            if not tainted.isdisjoint(names_in(test.test)):
                self.uses.refuse(test, _DEPENDS)

    def _steers_loop(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.While):
            return True
        return any(isinstance(parent, (ast.For, ast.While)) for parent in self.recorded.program.ancestors(node))

    def _keep_unknown(self) -> None:
        """Keep each ``synchronize`` that the run did not come to: nothing is known about it."""
        for statement, role in self.parts.roles.items():
            if role is Role.WAIT and not self.recorded.has_run(statement):
                self.needed.add(statement)

    def _keep_unseen(self) -> None:
        """Keep the waits for copies whose arrays the host may access unseen."""
        for number, part in unseen_uses(self.recorded.log, at_once=True).items():
            owner, copy = self.recorded.owners[number], self.recorded.log.operations[number]
            if part is not None and owner >= 0 and (copy.blocks or copy.host_reads):
                statement = self.recorded.statement_at(owner)
                if self.parts.roles.get(statement) is Role.COPY:
                    self.blocking.add(statement)
        for number in waits_for_unseen(self.recorded.log):
            owner = self.recorded.owners[number]
            statement = self.recorded.statement_at(owner)
            if owner >= 0 and self.parts.roles.get(statement) is Role.WAIT:
                self.needed.add(statement)

    # -- the default stream ------------------------------------------------------------------------
    def _check_default_stream(self) -> None:
        """Refuse work on the default stream among the streams' work; synchronise the device after earlier work."""
        dirty: int | None = None
        for encounter in self.encounters:
            if encounter.task >= 0 and dirty is not None:
                self._synchronise(dirty, encounter.task)
                dirty = None
            if encounter.operation is None or not self._is_default_work(encounter):
                continue
            owner = self.recorded.raw_owners[encounter.operation.number]
            if self._is_between(owner, encounter.time):
                self.uses.refuse(
                    self.recorded.statement_at(encounter.owner),
                    f"`{encounter.operation.call}` works on the default stream between the streams' work; "
                    "put it into a `with stream:`",
                )
            dirty = owner if dirty is None else max(dirty, owner)

    def _is_default_work(self, encounter: Encounter) -> bool:
        operation = encounter.operation
        if encounter.task >= 0 or operation is None or operation.kind not in _WORK or operation.stream != NULL:
            return False
        if operation.kind == "to host":
            return not operation.blocks
        owner = self.recorded.owners[operation.number]
        facts = self.recorded.facts[self.recorded.statement_at(owner)]
        first = self.recorded.marks[owner].storages
        is_value = "to host" in facts.kinds and all(part.space >= first for part in operation.writes)  # type: ignore[operator]
        return not is_value

    def _is_between(self, owner: int, time: int) -> bool:
        """Tell whether the innermost call that contains tasks has some before and some after."""
        while owner >= 0:
            mark = self.recorded.marks[owner]
            begin, end = self.recorded.span_of(mark.activation)
            first = bisect_left(self.tasks, begin)
            if first < len(self.tasks) and self.tasks[first] < end:
                after = bisect_left(self.tasks, time + 1)
                has_after = after < len(self.tasks) and self.tasks[after] < end
                return self.tasks[first] < time and has_after
            owner = mark.caller
        return False

    def _synchronise(self, work: int, task: int) -> None:
        """Synchronise the device between a statement of the default stream and a task."""
        recorded = self.recorded
        ways = [list(recorded.callers(work)), list(recorded.callers(task))]
        shared = {recorded.marks[time].activation for time in ways[0]} & {
            recorded.marks[time].activation for time in ways[1]
        }
        at_work = next(time for time in ways[0] if recorded.marks[time].activation in shared)
        index = next(k for k, time in enumerate(ways[1]) if recorded.marks[time].activation in shared)
        one, other = recorded.statement_at(at_work), recorded.statement_at(ways[1][index])
        if one is not other and one not in set(recorded.program.ancestors(other)):
            self.device_after.add(self._outermost(one, other))
        elif one is not other:
            self.device_before.add(self._outermost(other, None, inside=one))
        elif index:
            inner = recorded.statement_at(ways[1][index - 1])
            self.device_before.add(self._outermost(inner, None))
        else:
            self.device_before.add(other)

    def _outermost(self, node: ast.stmt, other: ast.stmt | None, inside: ast.stmt | None = None) -> ast.stmt:
        """Return the outermost statement around a node, in its function, that does not contain another one."""
        program = self.recorded.program
        function = program.function_of(node)
        kept = set() if other is None else {other, *program.ancestors(other)}
        found = node
        for parent in program.ancestors(node):
            if parent is function or parent is inside or parent in kept:
                break
            if isinstance(parent, ast.stmt):
                found = parent
        return found


_DEPENDS: Final = "this loop depends on device data without a synchronize; synchronize, then look at a host array"
_WITHIN: Final = "this statement uses the result of work that it starts itself (line {}); synchronize in between"


def accesses_of(operation: StreamOperation) -> Iterator[tuple[AccessPart, bool]]:
    """Yield the parts that an operation accesses, and whether it writes them."""
    for part in (*operation.reads, *operation.host_reads):
        yield part, False
    for part in operation.writes:
        yield part, True


def _inside(block: BlockPart) -> Iterator[ast.stmt]:
    for member in block.members:
        for part in ast.walk(member):
            if isinstance(part, ast.stmt):
                yield part
