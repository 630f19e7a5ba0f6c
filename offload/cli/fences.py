"""The waits of a program, noted for the graph of its whole run: which tasks each wait waited for, and who waited.

A region's later tasks come after its waits, as in the graph that ``record`` makes. The notes say for each task in which
task sets it is (the children of its region, and the taskgroups around it), and for each wait which sets or tasks it
waited for. `offload.reports.graphs` makes nodes and edges of them. Waits are seen where they end, by methods that are
replaced while somebody wants the kinds of dependences (`offload.tasks.hooked`).
"""

from __future__ import annotations

from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import ref

from offload.constructs.groups import GroupRegion
from offload.interrupts.forks import in_forked_child
from offload.interrupts.frames import caller
from offload.reports.graphs import Fences, Made, Waited
from offload.runtime.everything import Everything
from offload.runtime.runtime import Runtime
from offload.tasks import hooked
from offload.tasks.goals import Emptied, Goal
from offload.tasks.region import Group
from offload.tasks.scope import current_scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.tasks.region import TaskSet

_logs: list[FenceLog] = []


class FenceLog:
    """An observer that notes the task sets of tasks, and the waits of regions, from now on."""

    def __init__(self) -> None:
        self._numbers: dict[TaskSet, int] = {}  # the sets are kept, so that none takes the identity of another
        self._runtimes: dict[int, ref[Any]] = {}
        self._made: list[Made] = []
        self._waited: list[Waited] = []
        _logs.append(self)

    def task_created(self, task: Any) -> None:
        """Note the sets of a task."""
        sets = [self._number(task.frame.children, task.construct.runtime)]
        group = task.inherited.group
        while group is not None:
            if not group.is_over:
                sets.append(self._number(group, task.construct.runtime))
            group = group.outer
        self._made.append(Made(task.created_s, tuple(sets), is_deferred=task.owner is None))

    def note(self, goal: Goal) -> None:
        """Note a wait that has ended, of the calling thread or coroutine."""
        if goal.__class__ is Emptied:
            (waited,) = goal.sets
            if waited in self._numbers and not isinstance(waited, Group):  # `note_group` sees those
                number = self._numbers[waited]
                self._add(str(goal.what), number, sets=(number,))
        elif isinstance(goal, Everything):
            runtime = goal._runtime  # noqa: SLF001  # a goal is read by nobody else
            sets = tuple([number for number, other in self._runtimes.copy().items() if other() is runtime])
            region = self._region_of(runtime)
            if region is not None and "barrier" in str(goal.what):
                self._add("barrier", region, sets=sets)
        elif goal.__class__ is Goal and goal.tasks:
            self._note_tasks(str(goal.what), goal.tasks)

    def note_result(self, task: Any) -> None:
        """Note that the calling thread has waited for one task."""
        self._note_tasks("result", [task])

    def note_group(self, group: Group, children: TaskSet) -> None:
        """Note the end of a taskgroup in the region with these children."""
        if group in self._numbers:
            region = self._number(children, self._runtimes[self._numbers[group]]())
            self._add("taskgroup", region, sets=(self._numbers[group],))

    def _note_tasks(self, name: str, tasks: Sequence[Any]) -> None:
        region = self._region_of(tasks[0].construct.runtime)
        if region is not None:
            times_s = [task.created_s for task in tasks if hasattr(task, "created_s")]
            self._add(name, region, tasks=tuple(times_s))

    def _region_of(self, runtime: Any) -> int | None:
        """Return the number of the region whose code the calling thread runs; None if it is unknown."""
        scope: Any = current_scope.get()
        if scope is None or scope.runtime is not runtime or scope.thread != get_ident():
            scope = getattr(runtime.local, "scope", None)
        return None if scope is None or scope.region is None else self._number(scope.region.children, runtime)

    def _add(self, name: str, region: int, sets: tuple[int, ...] = (), tasks: tuple[float, ...] = ()) -> None:
        frame = caller()
        location = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        self._waited.append(Waited(perf_counter(), name, location, region, sets, tasks))

    def _number(self, members: TaskSet, runtime: Any) -> int:
        number = self._numbers.setdefault(members, len(self._numbers))
        if number not in self._runtimes:
            self._runtimes[number] = ref(runtime)
        return number

    def fences(self) -> Fences:
        """Return everything that has been noted so far."""
        return Fences(self._made.copy(), self._waited.copy())


def _observed_let_go(plain: Any) -> Any:
    def let_go(self: Goal) -> None:
        for log in _logs:
            log.note(self)
        plain(self)

    return let_go


def _observed_wait_for_task(plain: Any) -> Any:
    def wait_for_task(self: Runtime, task: Any, timeout_s: float | None) -> None:
        plain(self, task, timeout_s)
        for log in _logs:
            log.note_result(task)

    return wait_for_task


def _observed_end_group(plain: Any) -> Any:
    def end_group(self: GroupRegion, *, combines: bool) -> None:
        for log in _logs:
            log.note_group(self.group, self._block.frame.children)  # its own
        plain(self, combines=combines)

    return end_group


hooked.register(Goal, "let_go", _observed_let_go, "kinds")
hooked.register(Runtime, "wait_for_task", _observed_wait_for_task, "kinds")
hooked.register(GroupRegion, "_end_group", _observed_end_group, "kinds")

in_forked_child(_logs.clear)
