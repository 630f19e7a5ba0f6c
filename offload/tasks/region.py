"""Regions that generate tasks, groups of tasks, and the protocol of a construct.

A `Region` is a region that generates tasks; a `TaskSet` holds those of its tasks that are not complete, for threads
that wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from offload.tasks.depend import Tracker
from offload.tasks.troubles import Trouble, Troubled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from threading import Lock
    from weakref import ReferenceType

    from offload.tasks.depend import Mutex
    from offload.tasks.states import TaskState


class Construct(Protocol):
    """A construct in the program, as messages name it; `offload.tasks.site.Site` has the documentation."""

    directive: str
    name: str
    is_target: bool

    @property
    def location(self) -> str: ...


class AnyTask(Troubled, Protocol):
    """A task as it is known to its region, to scopes and to those who wait; `offload.tasks.task.Task` says more.

    Attributes
    ----------
    construct : Construct
        Its construct.
    frame : Region
        The region that has generated it.
    inherited : Inherited
        The values that it inherits.
    is_final : bool
        Whether it is a final task.
    lane, place : object or None
        The stream and device of a device task whose launch has begun.
    launched : bool
        Whether all its work is on a stream.
    run : weak reference or None
        The record of it in a graph, if it has been recorded.
    state_ : TaskState
        Its state.
    """

    frame: Region
    inherited: Inherited
    is_final: bool
    lane: Any
    launched: bool
    place: Any
    run: Any
    state_: TaskState

    @property
    def construct(self) -> Construct: ...

    def steps(self, last: str) -> str: ...

    @property
    def name(self) -> str:
        """The name of its construct."""

    @property
    def past(self) -> bool:
        """Whether a later task may ignore it."""

    @property
    def point(self) -> Any:
        """The point on a stream at which its work ends, once it has been launched."""

    @property
    def successors(self) -> Sequence[AnyTask] | None:
        """Those that follow its end."""

    @property
    def early(self) -> Sequence[AnyTask] | None:
        """Those that follow it in stream order."""

    @property
    def mutexes(self) -> Sequence[Mutex]:
        """The mutexes that it may have in turn with others."""

    def story(self) -> str:
        """Return one line for a person who asks why nothing moves."""


RECORDS, FINAL, OVER = 1, 2, 4
"""The bits of `Region.mode`."""

_NONE: dict[Any, Any] = {}
"""The troubles where there have been none; never changed."""


class TaskSet:
    """The incomplete tasks that somebody may wait for, and the failures among the complete ones.

    Attributes
    ----------
    troubles : dict
        The troubles of tasks that a region has generated, by the ``id`` of the weak reference that its tracker has of
        them, which may have died.
    n_stuck : int
        How many were live when their producer was last throttled in vain.
    """

    __slots__ = ("failures", "live", "n_stuck", "troubles", "waiters")

    def __init__(self) -> None:
        self.live: set[AnyTask] = set()
        self.failures: dict[AnyTask, None] = {}  # that nobody has seen, in order
        self.troubles: dict[int, Trouble] = _NONE  # one of its own with the first
        self.n_stuck = 0
        self.waiters: tuple[Callable[[], None], ...] = ()

    @property
    def is_of_interest(self) -> bool:
        """Whether something is to be waited for, or a failure to be told of."""
        return bool(self.live) or bool(self.failures)

    def leave(self, task: AnyTask) -> None:
        """Take out a task that is complete; its failure has been noted before, so that a waiter sees both."""
        self.live.discard(task)
        if self.waiters and not self.live:
            for wake in self.waiters:
                wake()

    def note_failure(self, task: AnyTask, lock: Lock) -> None:
        """Keep a failure for the waiting threads, unless it has been seen meanwhile."""
        with lock:
            self.failures[task] = None
        if task.seen:  # perhaps before it was in there
            self.failures.pop(task, None)

    def note_trouble(self, task: AnyTask, lock: Lock) -> None:
        """Note the trouble of a task that others may follow, before any thread sees its end."""
        trouble = Trouble.of(task)
        if task.dependences is None:
            return
        trouble.storage = task.dependences
        with lock:
            if not self.troubles:
                self.troubles = {}
            trouble.home = self.troubles
            trouble.home[id(trouble.reference)] = trouble


class Group(TaskSet):
    """A taskgroup: tasks generated in it, with their descendants.

    Attributes
    ----------
    outer : Group or None
        The taskgroup around it.
    is_implicit : bool
        Whether no ``taskgroup`` stands in the program, so that ``cancel`` means the one around it.
    is_cancelled : bool
        Whether `cancel` has been called.
    is_over : bool
        Whether its end has been reached and all its tasks are complete: nothing belongs to it any more.
    cancelled_by : Group or None
        Itself or the nearest one around it that is cancelled: tasks that have not begun are discarded.
    reductions : tuple of Reduction
        One for each list item of ``task_reduction``.
    num_threads : int or None
        How many threads a ``parallel`` block gives to the worksharing loops in it.
    """

    __slots__ = ("is_cancelled", "is_implicit", "is_over", "num_threads", "outer", "reductions")

    def __init__(self, outer: Group | None = None, *, is_implicit: bool = False) -> None:
        super().__init__()
        self.outer = outer
        self.is_implicit = is_implicit
        self.reductions: tuple[Any, ...] = ()
        self.num_threads: int | None = None
        self.is_cancelled = self.is_over = False

    @property
    def cancelled_by(self) -> Group | None:
        group: Group | None = self
        while group is not None and not group.is_cancelled:
            group = group.outer
        return group

    def cancel(self) -> None:
        """Discard the tasks that have not begun, and those that will be generated."""
        self.is_cancelled = True


class Inherited:
    """The values that the tasks of a region inherit; never changed, but replaced.

    Attributes
    ----------
    default_device : int
        The default-device-var ICV.
    group : Group or None
        The innermost enclosing taskgroup.
    is_final : bool
        Whether the region is that of a final task, so that tasks that it generates are included.
    """

    __slots__ = ("default_device", "group", "is_final")

    def __init__(self, default_device: int, group: Group | None = None, *, is_final: bool = False) -> None:
        self.default_device = default_device
        self.group = group
        self.is_final = is_final

    def within(self, group: Group | None) -> Inherited:
        """Return the same with another group."""
        return Inherited(self.default_device, group, is_final=self.is_final)


class Region:
    """A region that generates tasks: the body of one task, or a host thread outside of any body.

    Attributes
    ----------
    task : Task or None
        The generating task; None stands for a host thread.
    inherited : Inherited
        The values that its tasks inherit; `inherit` replaces them.
    tracker : Tracker
        The dependences among the tasks generated here.
    children : TaskSet
        The tasks generated here and not yet complete.
    recorder : object or None
        Keeps the graph of tasks generated here, while ``record`` is on; `record` sets it.
    mode : int
        0 where nothing but the clauses of a construct decides how its task is generated. Else the sum of ``RECORDS``
        (there is a recorder), ``FINAL`` (tasks are included) and ``OVER`` (``is_over``).
    listed : tuple of Section
        The storage in the data clauses of OpenACC's regions around the code that runs: ``default(none)`` does not
        require clauses for it.
    is_over : bool
        Whether it stands for ``whole`` only: a part whose block has ended.
    """

    __slots__ = ("children", "inherited", "listed", "mode", "recorder", "task", "tracker")

    is_over = False
    whole: Region

    def __init__(self, task: AnyTask | None, inherited: Inherited) -> None:
        self.task = task
        self.inherited = inherited
        self.children = TaskSet()
        self.tracker = Tracker(_is_past, keeper=self.children)
        self.recorder: Any = None
        self.mode = FINAL if inherited.is_final else 0
        self.listed: tuple[Any, ...] = ()

    def record(self, recorder: Any) -> None:
        """Have a recorder keep tasks generated here from now on; None for no recorder."""
        self.recorder = recorder
        self._set_mode()

    def inherit(self, inherited: Inherited) -> None:
        """Have the tasks that are generated here from now on get this."""
        self.inherited = inherited
        self._set_mode()

    def _set_mode(self) -> None:
        self.mode = (
            (RECORDS if self.recorder is not None else 0)
            | (FINAL if self.inherited.is_final else 0)
            | (OVER if self.is_over else 0)
        )

    def is_within(self, mark: object) -> bool:
        """Tell whether this is a part of the part that another block, known by its mark, has made of a region."""
        return False

    def has_generated(self, task: AnyTask) -> bool:
        """Tell whether the region has generated a task, or one of its descendants has."""
        ancestor: Region | None = task.frame
        while ancestor is not None and ancestor.children is not self.children:
            ancestor = ancestor.task.frame if ancestor.task is not None else None
        return ancestor is not None

    def new_tracker(self) -> Tracker:
        """Return a tracker for tasks that have no dependences on those generated so far."""
        return Tracker(_is_past, keeper=self.children)

    def orphan(self) -> Region:
        """Return the same region without the generating task, which has ended and would keep its objects alive."""
        orphan = self.part(self.inherited)
        orphan.task = None
        return orphan

    def part(self, inherited: Inherited) -> Region:
        """Return the same region with other things to inherit."""
        part = object.__new__(Region)
        part.task, part.tracker, part.children, part.recorder = self.task, self.tracker, self.children, self.recorder
        part.listed = self.listed
        part.inherit(inherited)
        return part


class Part(Region):
    """A region as one of several coroutines or generators sees it, in a block that it has entered.

    Attributes
    ----------
    whole : Region
        The region that it is a part of.
    mark : object
        The object that identifies the block.
    """

    __slots__ = ("first_default_device", "is_over", "mark", "whole")

    def __init__(self, whole: Region, mark: object) -> None:
        self.task, self.tracker, self.children, self.recorder = (
            whole.task,
            whole.tracker,
            whole.children,
            whole.recorder,
        )
        self.listed = whole.listed
        self.whole = whole
        self.mark = mark
        self.is_over = False
        self.inherit(whole.inherited)
        self.first_default_device = whole.inherited.default_device

    def is_within(self, mark: object) -> bool:
        return self.mark is mark or self.whole.is_within(mark)

    def end(self) -> None:
        """Stand for the whole from now on, for code that has begun in the block and goes on."""
        self.is_over = True
        self.inherit(self.inherited.within(None))


def _is_past(reference: ReferenceType[AnyTask]) -> bool:
    """Tell whether the dependences may forget a task: it is gone, or complete and no trouble."""
    task = reference()
    return task is None or task.past
