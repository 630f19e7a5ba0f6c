"""Tasks and events as list items of ``depend``: they are followed themselves, not by way of storage.

Such an item gives a clause two keys: a location, by which siblings that name the item are ordered, and a
`FollowedItem`, which the task follows at any time. A task of another region, thread or runtime, and an event, is
followed through a `StandIn`. See docs/design/theory.md, "Tasks and events in depend".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from offload.arrays.items import Token
from offload.errors import UnsupportedError, UsageError
from offload.events.event import Event
from offload.runtime.current import here
from offload.tasks.callbacks import run_callbacks
from offload.tasks.depend import Followed
from offload.tasks.recipe import nothing
from offload.tasks.site import Site
from offload.tasks.states import TaskState
from offload.tasks.task import Task
from offload.tasks.troubles import Trouble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.runtime.current import Scope
    from offload.tasks.depend import Tracker


class FollowedItem(Followed):
    """The key of a task or an event that a clause names."""

    __slots__ = ("what",)

    def __init__(self, what: Any) -> None:
        self.what = what  # the task or event

    def __repr__(self) -> str:
        return _name_of(self.what)

    @property
    def is_over(self) -> bool:
        what = self.what
        return bool(what.finished if isinstance(what, Task) else what.is_fulfilled)

    def handles(self, tracker: Tracker) -> Sequence[Any]:
        """Return the handles that a task of the tracker's region is to follow, as the engine's trackers have them."""
        what = self.what
        if isinstance(what, Event):
            if what.is_fulfilled and what.failure is None:
                return ()
        elif what.finished or what.frame.tracker is tracker:
            return (ref(what),)
        stand_in = StandIn(here(), what)
        return (lambda: stand_in,)


class StandIn(Task):
    """Represents, in a region, a task of another region or an event; never entered, and never run."""

    __slots__ = ("_scope", "followed", "what")

    seen = True  # its failure needs no report: the tasks that follow it fail too

    def __init__(self, scope: Scope, what: Any) -> None:
        self._scope = scope  # of the region that follows
        self.what = what  # the task or event
        self.followed: Task | None = None  # the task; of an event, the task that has ended without it
        frame = scope.frame("depend")
        if isinstance(what, Event):
            super().__init__(Site("event", "event", "its source", scope.runtime), nothing, (), None, frame)
            what.follow(self._end)
        else:
            super().__init__(what.construct, nothing, (), None, frame)
            self.followed = what
            self.label = what.name
            what.add_done_callback(lambda task: self._end(task.failure, task))

    def _end(self, failure: BaseException | None, task: Task | None) -> None:
        """Complete, on the thread that has completed the original; the failure is that of ``task``."""
        if failure is not None and not (task is not None and task.state_ is TaskState.CANCELLED):
            self.failure = failure
            if task is not None and task.failure is failure:
                self.followed, self.poison = task, task.poison or task
                Trouble.of(self).behind.append(Trouble.of(task))
        self.finished = True
        self._scope.runtime.engine.pass_on(self)
        if self.callbacks:
            run_callbacks(self)

    @property
    def past(self) -> bool:
        return self.finished and (self.failure is None or (self.followed is not None and self.followed.past))

    def story(self) -> str:
        return self.followed.story() if self.followed is not None else f"{self.what!r}, which a depend clause names"


def awaited(task: Task) -> Task:
    """Return the task that a wait for a task is to wait for, and report: not a stand-in, unless it is an event's."""
    if isinstance(task, StandIn):
        if isinstance(task.what, Task):
            return task.what
        task.seen = False
    return task


def keys_of(what: Any) -> tuple[Token, FollowedItem]:
    """Return the keys of a task or event in the clause of a construct that is encountered now.

    Raise `UnsupportedError` if a graph is recorded that is to run by itself, and the item is not part of it;
    `UsageError` if the task was only recorded.
    """
    recorder = here().recorder
    task = what.task if isinstance(what, Event) else what
    is_known = recorder is not None and task is not None and recorder.knows(task)
    if recorder is not None and recorder.runs_again and not is_known:
        raise UnsupportedError(
            f"depend: {_name_of(what)} is neither a task of the graph being recorded nor an event of such a task, so "
            "the graph could not wait for it when it runs; wait for it before you record, or name storage instead"
        )
    if not is_known and isinstance(what, Task) and what.state_ is TaskState.RECORDED:
        raise UsageError(
            f"depend: {what.key} was only recorded and has not run; compute the graph first, or name the task while "
            "you record the same graph"
        )
    return Token(_Name(what)), FollowedItem(what)


class _Name(ref[Any]):
    """Names a task or an event without keeping it: clauses and trackers remember locations for long."""

    __slots__ = ()

    def __repr__(self) -> str:
        what = self()
        return "what is gone" if what is None else _name_of(what)


def _name_of(what: Any) -> str:
    return what.key if isinstance(what, Task) else repr(what)
