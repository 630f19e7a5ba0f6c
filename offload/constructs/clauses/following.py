"""Tasks and events as list items of ``depend``: what is followed by itself, and not by way of storage.

Theory of operation
-------------------
A task is a location of its own that the task has written, and an event one that its fulfilment writes. So such an item
gives a clause two keys. One is a location like any other, by which siblings that name the item are ordered among
themselves. The other, a `FollowedItem`, is in no table: whoever names it follows the item, whenever that is.

A task of the same region is followed as every sibling is, also in stream order. Only the thread of a region adds to the
successors of its tasks; so a task of another region, thread or runtime is followed by way of a *stand-in*: a task that
is in no region and never runs, is complete when the other calls back, and fails as that does. An event has one, too. It
is fulfilled, or the task that it belongs to ends without, as one does whose body fails; then nobody may fulfil the
event, and what follows it fails as what follows that task.

The keys of a clause with such an item are made anew for each construct (`Dependence.resolved`), so that the others need
not ask.

Rejected: an empty task with an event beside the others, as a bridge between queues is (``taskwait`` would wait for it,
and its failure would be told twice).
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
    """The key of a task or an event that a clause names.

    Attributes
    ----------
    what : Task or Event
        The item.
    """

    __slots__ = ("what",)

    def __init__(self, what: Any) -> None:
        self.what = what

    def __repr__(self) -> str:
        return _name_of(self.what)

    @property
    def is_over(self) -> bool:
        what = self.what
        return bool(what.finished if isinstance(what, Task) else what.is_fulfilled)

    def handles(self, tracker: Tracker) -> Sequence[Any]:
        """Return what a task of the tracker's region is to follow, as the engine's trackers have it."""
        what = self.what
        if isinstance(what, Event):
            if what.is_fulfilled and what.failure is None:
                return ()
        elif what.finished or what.frame.tracker is tracker:
            return (ref(what),)
        stand_in = StandIn(here(), what)
        return (lambda: stand_in,)


class StandIn(Task):
    """Stands in a region for a task that is in another one, or for an event; never entered, and never run.

    Attributes
    ----------
    followed : Task or None
        What it stands for; of an event the task that has ended without it.
    seen : bool
        Whether nobody is to be told of its failure, as is the rule: what follows it fails, too.
    """

    __slots__ = ("_scope", "followed", "what")

    seen = True

    def __init__(self, scope: Scope, what: Any) -> None:
        self._scope = scope
        self.what = what
        self.followed: Task | None = None
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
        """Complete, on whichever thread has completed what it stands for; ``task`` is whose failure it is."""
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
    """Return what a wait for a task is to wait for, and tell of: not a stand-in, unless it is an event's."""
    if isinstance(task, StandIn):
        if isinstance(task.what, Task):
            return task.what
        task.seen = False
    return task


def keys_of(what: Any) -> tuple[Token, FollowedItem]:
    """Return the keys of a task or event in the clause of a construct that is encountered now.

    Raises
    ------
    UnsupportedError
        A graph is recorded that is to run by itself, and the item is no task of it, or an event of none.
    UsageError
        The task was only recorded.
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
