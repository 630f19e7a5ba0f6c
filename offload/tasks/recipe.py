"""Recipes: the tasks of one encounter, as data.

`Recipe.make` makes the tasks: those of a construct that may be recorded, and those that a replay, a capture or Dask
makes of it later. The recorder keeps the recipe, and reads the properties of the tasks in it. A recipe has nothing that
belongs to one task: a task's own objects are made with the task. Dependences are no part of it, as tasks that are made
again follow the edges of their graph.

Device work has recipes of its own (`offload.runtime.recipe`), and so has a coroutine (`offload.tasks.aio.task`).
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Protocol

from offload.tasks.states import TaskState
from offload.tasks.task import Task
from offload.tasks.values import Receiver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from offload.tasks.protocols import AnyRuntime
    from offload.tasks.region import Region
    from offload.tasks.site import Site
    from offload.tasks.values import Values


_new = object.__new__
_WAITING = TaskState.WAITING  # to look one up costs 0.15 µs


def nothing() -> None:
    """Do nothing: the body of an empty task."""


class Recipe:
    """The recipe of the host tasks of one encounter; one without a body is that of an empty task.

    Attributes
    ----------
    site : Site
        The construct.
    body : callable
        The program's own function; None for device work without one.
    args, kwargs : tuple, dict or None
        The arguments of the body.
    label : str or None
        The value of ``name=``.
    priority : int
    queue : Queue or None
        The async queue that the tasks are operations of. The code that runs one counts it there.
    survives : bool
        Whether they run although a predecessor has failed.
    """

    __slots__ = ("args", "body", "kwargs", "label", "priority", "queue", "site", "survives")

    event: Any = None
    """Of the clause ``detach``: it serves one of the tasks at a time."""
    values: Values | None = None
    """What the tasks receive from others, or which others they have to know."""

    def __init__(
        self,
        site: Site,
        body: Callable[..., Any] = nothing,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        label: str | None = None,
        priority: int = 0,
    ) -> None:
        self.site = site
        self.body: Any = body
        self.args = args
        self.kwargs = kwargs
        self.label = label
        self.priority = priority
        self.queue: Any = None
        self.survives = False

    @property
    def name(self) -> str:
        """The name of the tasks."""
        return self.label or self.site.name

    @property
    def is_plain(self) -> bool:
        """Whether the tasks have only a body, its arguments, and perhaps a label."""
        return type(self) is Recipe and not self.priority and not self.survives and self.queue is None

    @property
    def given(self) -> list[Any]:
        """The body and its arguments, for code that checks the body."""
        return [self.body, *self.args, *(self.kwargs or {}).values()]

    def make(self, frame: Region, sources: Sequence[Task | None] = ()) -> Task:
        """Make a task.

        Parameters
        ----------
        frame : Region
            The region that generates it.
        sources : sequence of Task or None
            In a graph that runs again, the tasks of this run in place of those of ``values``; None leaves one as it is.
        """
        task = _new(Task)  # as `Task.__init__` does, in half the time
        task.construct = self.site
        task.body = self.body
        task.args = self.args
        task.kwargs = self.kwargs
        task.frame = frame
        task.inherited = frame.inherited
        task.state_ = _WAITING
        task.finished = task.special = False
        task.failure = task.successors = task.dependences = task.value = None
        if self.label is not None or self.priority or self.survives:
            self._mark(task)
        return task

    def reserve(self) -> None:
        """Reserve for the next task the things that it gets in the order of the program; here there are none.

        If Dask decides when tasks are made, this is called for all recipes before the first, in the recorded order.
        """

    def give_back(self) -> None:
        """Give back a reservation, if no task has been made since."""

    def moved(self, runtime: AnyRuntime) -> Self:
        """Return the recipe of these tasks in a graph of another runtime. The graph has the order of async queues.

        Raises
        ------
        UnsupportedError
            The tasks use something that belongs to the devices of their runtime.
        """
        other = copy(self)
        other.site = self.site.moved(runtime)
        other.queue = None
        return other

    def _mark(self, task: Task) -> None:
        """Set the fields of a task that few tasks have."""
        if self.label is not None:
            task.label = self.label
        if self.priority:
            task.priority = self.priority
        if self.survives:
            task.survives = True


class ClauseRecipe(Recipe):
    """The recipe of a call whose construct has more clauses, or which is passed tasks.

    Attributes
    ----------
    is_final : bool
        Whether the tasks are final ones.
    reductions : Participation or None
        The reductions that they take part in.
    """

    __slots__ = ("event", "is_final", "reductions", "values")

    def __init__(
        self,
        site: Site,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        label: str | None,
        priority: int,
    ) -> None:
        super().__init__(site, body, args, kwargs, label, priority)
        self.is_final = False
        self.event: Any = None
        self.reductions: Participation | None = None
        self.values: Values | None = None

    def make(self, frame: Region, sources: Sequence[Task | None] = ()) -> Task:
        task = self._new(frame)
        participant = None
        body = self.body
        if self.reductions is not None:
            task.body = body = participant = self.reductions.participant(body)
        if self.values is not None:
            task.body = Receiver(body, self.values.of(sources))
        event = self.event
        if event is not None:
            event.attach(task)
            task.event = event
            task.early = []
            task.special = True
        if participant is not None:
            participant.join(task)
        if self.is_final:
            task.is_final = True
        return task

    def _new(self, frame: Region) -> Task:
        """Make a task without what the clauses add."""
        return super().make(frame)


class Participation(Protocol):
    """A reduction that tasks take part in."""

    def participant(self, body: Callable[..., Any]) -> Participant:
        """Return the body of one task, with its steps for the reduction."""


class Participant(Protocol):
    """The body of one task that takes part in something."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def join(self, task: Task) -> None:
        """Get to know the task."""
