"""Async queues for constructs: put an operation into one, wait for some, test whether they are complete.

`offload.runtime.queues` describes how queues work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from offload.constructs.clauses.dependences import Dependence
from offload.errors import ClauseError
from offload.events.event import Event
from offload.runtime.generate import Ordering, generate
from offload.runtime.queues import Mark
from offload.runtime.recipe import recipe_at
from offload.runtime.sites import call_site
from offload.runtime.works import EmptyWork
from offload.tasks import hooked
from offload.tasks.depend import DependType, Tracker
from offload.tasks.failures import raise_failures
from offload.tasks.goals import Goal, Until
from offload.tasks.links import holds_up, order
from offload.tasks.recipe import ClauseRecipe, nothing
from offload.tasks.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from offload.devices.streams import Point
    from offload.events.observer import Observer
    from offload.runtime.current import Scope
    from offload.runtime.queues import Queue
    from offload.tasks.recipe import Recipe
    from offload.tasks.region import AnyTask, Region, TaskSet
    from offload.tasks.task import Task


class QueueEntry(Ordering):
    """How a task becomes the next operation of a queue, which follows the last ones of other queues, too.

    ``orderings`` returns dependences along which no failure goes. Most operations have been launched when `generate`
    returns, and so have all before them. Then it is not called, since later tasks find their effects.
    """

    __slots__ = ("_mark", "_orderings", "_recorded", "after", "queue")

    def __init__(
        self,
        queue: Queue | None,
        after: Sequence[Queue] = (),
        orderings: Callable[[], Sequence[Dependence]] | None = None,
    ) -> None:
        self.task = None  # as `Ordering.__init__` does
        self.queue = queue  # None: the task is in no queue, and has its ``orderings`` only
        self.after = after  # other queues to follow
        self._orderings = orderings  # None once they have been asked for, too
        self._mark: Mark | None = None  # the operation's place in the queue
        self._recorded: Sequence[Dependence] = ()  # what a recorder is to add

    def enter(self, scope: Scope, region: Region, recipe: Recipe, task: Task) -> None:
        queue, tracker, recorder = self.queue, region.tracker, region.recorder
        if self._orderings is not None and (queue is None or region.mode or (tracker.ordered and holds_up(tracker))):
            task.orderings = self._orderings()
            self._orderings = None
        is_real = recorder is None or recorder.executes  # else the graph makes the task, when it runs
        if is_real:
            self.task = task
        if queue is None:
            return
        recipe.queue = queue  # also for tasks that a replay makes
        others = [other for other in self.after if other is not queue] if self.after else ()
        marks = [mark for other in others if (mark := last_mark(scope, region, other)) is not None] if others else []
        # `append` takes the place in the queue, and returns the mark before it.
        own = self._mark = Mark(queue, tracker, task if is_real else None)
        before = queue.append(own, region)
        if before is not None:
            if not marks and recorder is None and before.tracker is tracker and before.task and not before.is_void:
                task.follows = (before.task,)  # as most do
            else:
                marks = [*marks, before]
        if marks:
            task.follows = _followed(scope, region, marks)
        task.dependences = ()  # also where there are none: what comes later follows it
        if recorder is not None:
            self._recorded = _recorded(region, own, marks)
        if is_real and queue.place is not None and task.waits_in_stream_order:
            task.queue = queue  # type: ignore[attr-defined]  # a DeviceTask: its work goes to the queue's stream

    def recorded(self) -> Sequence[Dependence]:
        return self._recorded

    def entered(self, scope: Scope, task: Task) -> None:
        if self._mark is not None:
            # The chain of marks would keep all earlier operations.
            self._mark.before = None
        if self._orderings is not None and not (task.launched or task.finished):
            order(task, self._orderings())

    def failed(self, task: Task, error: BaseException) -> None:
        super().failed(task, error)
        if self._mark is not None and not _is_entered(task):
            self._mark.void()
            task.finished = True  # nobody is to wait for it


def _noted_enter(plain: Any) -> Any:
    """Return `QueueEntry.enter` for sanitized runtimes: a queue has an order of its own, and so has each array.

    A data construct, which maps or unmaps an array, follows all operations of its region that need the array, also
    those that have been launched, which nobody has to wait for otherwise. They follow it likewise. A compute region
    does not order others, although it may map an array for itself.
    """

    def enter(self: QueueEntry, scope: Scope, region: Region, recipe: Recipe, task: Task) -> None:
        orders = hooked.orders.get(scope.runtime)
        needs = self._orderings() if orders is not None and self._orderings is not None else ()
        plain(self, scope, region, recipe, task)
        if orders is None or self.task is None:
            return
        if needs:
            trackers = _presences.setdefault(orders, {})
            tracker = trackers.setdefault(region, Tracker())
            orders.depends(task, needs, tracker.add(ref(task), needs), ())
        if self.queue is not None:
            orders.queued(self.queue, task, [other for other in self.after if other is not self.queue])

    return enter


_presences: WeakKeyDictionary[Any, dict[Region, Tracker]] = WeakKeyDictionary()
"""For sanitized runtimes, the operations of each region with the presence of the arrays that they need."""


def _noted_failed(plain: Any) -> Any:
    def failed(self: QueueEntry, task: Task, error: BaseException) -> None:
        plain(self, task, error)
        orders = hooked.orders.get(task.construct.runtime)
        if orders is not None and task.finished:
            orders.ends(task)  # what comes later follows those before it

    return failed


hooked.register(QueueEntry, "enter", _noted_enter, "sanitize")
hooked.register(QueueEntry, "failed", _noted_failed, "sanitize")


def _recorded(frame: Region, own: Mark, marks: Sequence[Mark]) -> tuple[Dependence, ...]:
    """Return the dependences that a recorder has of an operation; also on complete ones, since the graph runs again."""
    reals = [real for mark in marks if (real := mark.real()) is not None and real.tracker is frame.tracker]
    written = Dependence(DependType.OUT, (own,))
    return (Dependence(DependType.IN, tuple(reals)), written) if reals else (written,)


def _is_entered(task: Task) -> bool:
    """Tell whether a task whose generation has raised will run all the same, or has run."""
    return task in task.frame.children.live or task.state_ is not TaskState.WAITING


def enqueue_marker(
    scope: Scope, frame: Region, queue: Queue, after: Sequence[Queue] = (), before: Point | None = None
) -> Task:
    """Generate an operation that does nothing but follow: the queue, other queues, a place on a stream."""
    site = call_site("acc wait", scope.runtime)
    recipe = recipe_at(site, queue.place, EmptyWork(before))
    return generate(scope, frame, recipe, (), wait=False, order=QueueEntry(queue, after))


def last_mark(scope: Scope, frame: Region, queue: Queue) -> Mark | None:
    """Return the mark of all operations of a queue, with the program's own work on its stream."""
    if _is_busy(queue) and frame.recorder is None:
        enqueue_marker(scope, frame, queue)
    return queue.tail_for(frame)


def _is_busy(queue: Queue) -> bool:
    """Tell whether the program has the queue's stream and that has not got to its end."""
    return queue.is_exposed and queue.lane is not None and not queue.lane.stream.done


def give_stream(scope: Scope, frame: Region, queue: Queue, stream: Any, what: str) -> None:
    """Put later operations of a queue on a stream of the program's, or for None on one of the runtime's.

    The program's earlier work on the stream stays part of the queue. ``what`` is for errors.

    Raises
    ------
    ClauseError
        It is no stream of the device.
    """
    place: Any = queue.place
    if stream is not None and not place.device.owns_stream(stream):
        raise ClauseError(
            f"{what}: {type(stream).__name__} {stream!r:.60} is not a stream of device {place.device.number} "
            f"({place.device.name}); name the device of the stream, or pass a cupy.cuda.Stream created there"
        )
    lane: Any = queue.lane
    end = lane.mark() if _is_busy(queue) and frame.recorder is None else None
    queue.use(stream)
    if end is not None:
        enqueue_marker(scope, frame, queue, (), end)


def wait_for(scope: Scope, frame: Region, queues: Sequence[Queue], where: str) -> None:
    """Block until the present operations of the queues are complete, and raise their failures as a group."""
    runtime = scope.runtime
    marks = [mark for queue in queues if (mark := last_mark(scope, frame, queue)) is not None]
    recorder = frame.recorder
    if recorder is not None:
        here = [mark for mark in marks if mark.tracker is frame.tracker]  # a graph orders its own operations only
        if here:
            recorder.add_wait(call_site("acc wait", runtime), (Dependence(DependType.IN, tuple(here)),))
        if not recorder.executes:
            return
    notify = runtime.notify
    if notify is not None:
        _tell(notify, where, queues)
    runtime.wait_for(scope, _Ends(where, queues))


def wait_for_any(scope: Scope, frame: Region, queues: Sequence[Queue | None], where: str) -> int:
    """Block until the present operations of one of the queues are complete; return which; raise its failures.

    None in place of a queue is always complete.
    """
    if frame.recorder is not None and not frame.recorder.executes:
        return 0
    # Work of the program on a stream counts as an operation, so each gets its mark before the wait.
    for queue in queues:
        if queue is not None:
            last_mark(scope, frame, queue)
    notify = scope.runtime.notify
    if notify is not None:
        _tell(notify, where, [queue for queue in queues if queue is not None])
    goal = _FirstEnd(where, queues)
    scope.runtime.wait_for(scope, goal)
    return goal.at


def _tell(observer: Observer, where: str, queues: Sequence[Queue]) -> None:
    place = queues[0].place if queues else None
    observer.wait(where, None if place is None else place.device.number, [queue.number for queue in queues])


def are_complete(scope: Scope, frame: Region, queues: Sequence[Queue]) -> bool:
    """Tell whether all operations of the queues are complete; repeated calls get there without a wait.

    Raises
    ------
    BaseExceptionGroup
        All are complete, and a failure has not been seen.
    """
    engine = scope.runtime.engine
    held = [queue.unfinished() for queue in queues]  # oldest first
    unfinished = [task for operations in held if (task := _last(operations)) is not None]
    if unfinished:
        for task in unfinished:
            task.watch()  # the end of device work is noticed soon
        if (look := engine.look) is not None:
            look()
        if not engine.threads or scope.task is not None:  # else nobody may be left to run what is ready
            engine.help(scope, frame)
        if any(_last(operations) is not None for operations in held):
            return False
    if any(map(_is_busy, queues)):  # the program's own work on a stream
        return False
    raise_failures([task for queue in queues for task in queue.take_failed()], "async_test")
    return True


def _last(operations: list[Task]) -> Task | None:
    """Return the last operation that is not complete, and drop those after it."""
    while operations and operations[-1].finished:
        operations.pop()
    return operations[-1] if operations else None


class _Ends(Goal):
    """The ends of all that some queues hold now."""

    __slots__ = ("_held", "_queues")

    def __init__(self, where: str, queues: Sequence[Queue | None]) -> None:
        super().__init__(where)
        self._queues = queues
        self._held = [queue.unfinished() if queue is not None else [] for queue in queues]

    def is_left(self) -> bool:
        self.tasks = [task for operations in self._held if (task := _last(operations)) is not None]
        return bool(self.tasks)

    def failures(self, take: Callable[[TaskSet], Iterable[AnyTask]]) -> Iterable[AnyTask]:
        return [task for queue in self._queues if queue is not None for task in queue.take_failed()]


class _FirstEnd(_Ends):
    """The end of all that one of some queues holds now; ``at`` says then which it is."""

    __slots__ = ("at",)

    def done(self) -> bool:
        return any(task.finished for task in self.tasks)

    def is_left(self) -> bool:
        super().is_left()
        self.at = next((at for at, operations in enumerate(self._held) if not operations), -1)
        return self.at < 0

    def concerns(self, task: AnyTask, held: Collection[AnyTask]) -> bool:
        return task in self.tasks and all(other in held for other in self.tasks)

    def launched(self) -> Sequence[AnyTask]:
        return ()  # it would look for the end of one after the other

    def failures(self, take: Callable[[TaskSet], Iterable[AnyTask]]) -> Iterable[AnyTask]:
        queue = self._queues[self.at]
        return () if queue is None else queue.take_failed()


def _followed(scope: Scope, frame: Region, marks: Sequence[Mark]) -> list[ref[Task]]:
    """Return the siblings that an operation behind these marks follows; in place of those of other regions bridges."""
    recorder, tracker = frame.recorder, frame.tracker
    found: list[ref[Task]] = []
    for mark in marks:
        real = mark.real() if mark.is_void else mark
        if real is None:
            continue
        if real.tracker is tracker:
            if real.task is not None:  # else it is only recorded
                found.append(real.task)
            continue
        standing = real.standing()
        if standing is None:
            continue
        if recorder is None:
            found.append(ref(_bridge(scope, frame, standing)))
        elif recorder.executes:
            _wait_at(scope, standing)  # a bridge would be part of the graph, and wait for ever when that runs again
    return found


def _bridge(scope: Scope, frame: Region, mark: Mark) -> Task:
    """Generate the sibling that is complete when an operation elsewhere is.

    It needs no thread: its body is nothing, and is run here.
    """
    engine = scope.runtime.engine
    event = Event()
    mark.when_complete(lambda _: event.fulfill())
    recipe = ClauseRecipe(call_site("acc wait", scope.runtime), nothing, (), None, f"{mark!r} elsewhere", 0)
    recipe.event = event
    task = recipe.make(frame)
    if engine.submit(task, ()):
        engine.execute(task, scope)
    return task


def _wait_at(scope: Scope, mark: Mark) -> None:
    """Block until the operation of a mark is complete."""
    complete: list[object] = []

    def tell(task: object) -> None:
        complete.append(task)
        scope.parker.unpark()

    mark.when_complete(tell)
    scope.runtime.engine.wait(scope, Until(f"an earlier operation of {mark!r}", lambda: bool(complete)))
