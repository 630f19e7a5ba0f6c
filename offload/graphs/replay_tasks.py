"""The tasks of a replay that are not made of a recorded recipe: ends of taskgroups, and launches of pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.graphs.work import MovedError, PieceWork
from offload.runtime.launch import DeviceTask
from offload.runtime.recipe import DeviceRecipe
from offload.tasks import hooked
from offload.tasks.recipe import nothing
from offload.tasks.task import Task
from offload.tasks.troubles import Trouble, poison

if TYPE_CHECKING:
    from offload.tasks.protocols import Runner
    from offload.tasks.region import Group, Region
    from offload.tasks.scope import Scope
    from offload.tasks.site import Site


class Rest:
    """The rest of a task that is complete when no task of a group is left.

    It hands the failures on that nobody has seen, and then what comes after the task does not run.
    """

    __slots__ = ("_group", "_is_listed", "_task", "_tokens")

    def __init__(self, task: Task, group: Group) -> None:
        self._task: Any = task  # until it goes on: it refers to this
        self._group = group
        self._is_listed = False
        self._tokens = [None]  # whoever takes it goes on

    def advance(self, engine: Runner[Task]) -> Task | None:
        """Complete the task, or have it made ready again by the last task of the group."""
        group, task = self._group, self._task
        if not self._is_listed:
            self._is_listed = True
            with engine.lock:
                group.waiters = (*group.waiters, self._go_on)
            if group.live or not self._take():
                return None
        return self._complete(engine, task, group)

    def _complete(self, engine: Runner[Task], task: Task, group: Group) -> Task | None:
        """Complete the task, as no task of the group is left."""
        self._task = None
        group.waiters = ()  # they refer to this, and it to the group
        outer = task.inherited.group
        failed = list(group.failures)
        if failed and outer is not None:
            with engine.lock:
                outer.failures.update(dict.fromkeys(failed))
        for other in failed:
            poison(task, other, Trouble.of(other))
        del failed
        if (task.special or engine.can_cancel) and engine.hinders(task):
            return None
        return engine.finish(task)

    def _take(self) -> bool:
        try:
            self._tokens.pop()
        except IndexError:
            return False
        return True

    def _go_on(self) -> None:
        if self._take():
            self._task.construct.runtime.engine.make_ready(self._task)


def _noted_complete(plain: Any) -> Any:
    """Return `Rest._complete` for sanitized runtimes: what follows the end of a group follows its tasks."""

    def complete(self: Rest, engine: Runner[Task], task: Task, group: Group) -> Task | None:
        if (orders := hooked.orders.get(task.construct.runtime)) is not None:
            orders.ends_set(task, group)
        return plain(self, engine, task, group)  # type: ignore[no-any-return]

    return complete


hooked.register(Rest, "_complete", _noted_complete, "sanitize")


class GroupEnd(Task):
    """The end of a taskgroup in a replay: complete when no task of the group is left."""

    __slots__ = ("_rest",)

    def __init__(self, site: Site, frame: Region, group: Group) -> None:
        super().__init__(site, nothing, (), None, frame)
        self._rest = Rest(self, group)

    def advance(self, engine: Runner[Task], scope: Scope) -> Task | None:
        return self._rest.advance(engine)


class PieceTask(DeviceTask):
    """The launch of a piece; if storage has moved and the piece is no graph any more, its tasks run in its place."""

    __slots__ = ()

    _rest: Rest | None = None

    def advance(self, engine: Runner[Task], scope: Scope) -> Task | None:
        return super().advance(engine, scope) if self._rest is None else self._rest.advance(engine)

    def _fail_unlaunched(self, engine: Runner[Task], error: BaseException) -> None:
        work = self.work
        if not (isinstance(error, MovedError) and isinstance(work, PieceWork)):
            super()._fail_unlaunched(engine, error)
            return
        self.special = True  # its successors in stream order wait for its end
        self._rest = Rest(self, work.unfold(self))
        self.work = self.after = self.other_after = None
        self.predecessors = ()
        self.place.ended += 1
        self.place.retry(engine)
        engine.make_ready(self)


class PieceRecipe(DeviceRecipe):
    """The recipe of the launch of a piece."""

    __slots__ = ()

    kind = PieceTask
