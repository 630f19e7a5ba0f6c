"""Tasks: the result of a construct, and the caller's questions about it."""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex

from offload.errors import UsageError
from offload.interrupts.forks import in_forked_child
from offload.interrupts.frames import calls_program
from offload.interrupts.shields import Shield, ends_body
from offload.tasks.callbacks import run_callbacks
from offload.tasks.depend import Followed
from offload.tasks.failures import note_task, see, without_engine_frames
from offload.tasks.goals import Launches
from offload.tasks.site import line_of
from offload.tasks.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from concurrent.futures import CancelledError, Future
    from types import CodeType

    from typing_extensions import TypeVar

    from offload.tasks.depend import Mutex
    from offload.tasks.parker import Parker
    from offload.tasks.protocols import Runner
    from offload.tasks.region import Group, Inherited, Region
    from offload.tasks.scope import Scope
    from offload.tasks.site import Call, Site
    from offload.tasks.troubles import Trouble, Troubled

    Result_co = TypeVar("Result_co", covariant=True, default=Any)  # a default is for type checkers until Python 3.13
else:
    from typing import TypeVar

    Result_co = TypeVar("Result_co", covariant=True)

_next_serial = count(1).__next__

numbers: dict[float, int] = {}
"""The numbers of tasks that have been observed, by the time at which they were generated, which no two share."""


def number_at(created_s: float) -> int:
    """Return the number of the task that was generated at a time."""
    number = numbers.get(created_s)
    return numbers.setdefault(created_s, _next_serial()) if number is None else number


_adding_callback = threading.RLock()  # a finalizer that comes inside of it may ask for a callback too

_RUNNING = TaskState.RUNNING

_EVENT_FAILED = "its body returned, then its event failed"


class LeaveRegion(BaseException):
    """Leaves the region of a taskgroup that has been cancelled, or a body in it; user code should let it pass."""

    def __init__(self, group: Group) -> None:
        super().__init__("a taskgroup was cancelled; let this exception pass")
        self.group = group


TASK_TYPES: set[type] = set()
"""`Task` and its subclasses."""


class Task(Generic[Result_co]):
    """A host task, and the handle of every deferred construct.

    Constructs make tasks; do not make one yourself. The methods have the meaning that they have in
    `concurrent.futures.Future`. You can also ``await`` a task.

    Notes
    -----
    Fields that every task has are slots. A field that few tasks have is a class attribute until it is set, and
    ``special`` then says that the engine has to check such fields.

    Examples
    --------
    >>> @omp.task
    ... def square(x):
    ...     return x * x
    >>> task = square(4)
    >>> task.result()
    16
    >>> task.done(), task.name
    (True, 'square')
    """

    # Written without a lock: each field by one thread at a time, and one assignment is one step under the GIL.
    __slots__ = (
        "__dict__",  # for the fields that few tasks have
        "__weakref__",  # the tracker, a replay and the records of graphs do not keep a task
        "args",  # what the body is given; () once it has run, so that nothing is kept
        "body",  # what is run; None once it has run, and for device work without a body
        "caller_at",  # where the program has called the function whose task it is: an instruction,
        "caller_code",  # and its code; both are unset if that is not known
        "construct",  # the site that has generated it
        "counters",  # one for each predecessor that is left, and one for the producer; set when it follows something
        "created_s",  # when it was generated, by `perf_counter`; set only while somebody observes the runtime
        "dependences",  # its clauses; they keep the addresses of list items from naming something new
        "end_s",  # when its body or launch was seen to end, by `perf_counter`; unset before
        "failure",  # the exception that it ended with; set before `finished`
        "finished",  # it is complete, one way or another; whoever sees this sees `failure` and `state_`
        "frame",  # the region that has generated it
        "inherited",  # the default device, the taskgroup and whether it is final, as they were then
        "kwargs",  # as `args`; None where there are none
        "maker",  # the thread that generated it; set along with `created_s`
        "serial",  # for `key`: a number, from the first time that somebody asks; unset before
        "special",  # whether there is something to look at in `__dict__`
        "start_s",  # when its body or launch began; unset before, as a default costs 10 ns
        "state_",  # where it stands; `offload.tasks.states` says how this changes
        "successors",  # the tasks that wait for its end; emptied by `pop`, from both sides
        "value",  # what the body has returned
    )

    waits_in_stream_order = False
    """Whether it may start once its predecessors are launched, as device tasks may."""

    callbacks: list[Callable[[Task], Any]] | None = None  # each is called once, when the task is complete
    cut_short: BaseException | None = None
    """What ended the engine's own steps for the task, which is to end all the same."""
    early: list[Task] | None = None
    """Successors that can start in stream order; None where none can. ``successors`` has the others."""
    ends_region = False
    """Whether it undoes what the beginning of a region did, so that no cancellation may discard it."""
    event: Any = None  # of the clause ``detach``: its fulfilment completes the task
    is_coroutine = False  # its body takes turns with others on the thread of a loop
    is_final = False  # what its body generates is included
    is_asked = False
    """Whether its owner asks for the end of its launch, of which the gate then knows nothing."""
    is_ready = False  # its owner may go on with it; changed under the lock of the engine
    left: tuple[float, int, str] | None = None
    """When and where its body has ended, and what it waits for then (``"detached"``, or ``"request"`` if MPI requests
    fulfil its event); set only if it has an event, and only while the runtime is observed."""
    lane: Any = None  # where on its place the work of a device task goes, from its launch on
    label: str | None = None  # what ``name=`` said
    launch_calls: Sequence[Callable[[], object]] = ()  # each wakes a thread that waits for the launch
    launched = False  # all its work is on a stream, and no more comes
    launches_inline = False
    """Whether the encountering thread may launch it: it only enqueues, and no body runs there that blocks."""
    mutexes: tuple[Mutex, ...] = ()  # it has all of these or none (`offload.tasks.exclusion`)
    orderings: Sequence[Any] = ()
    """Dependences that order, and along which no failure goes."""
    follows: Sequence[Any] = ()
    """Weak references to siblings that it follows by itself, not by way of storage: the one before it in a queue."""
    ordered_after: Sequence[Any] = ()
    """Weak references to what the task follows because of those alone."""
    owner: Parker | None = None  # of the thread that encountered it and waits, if it is undeferred
    poison: Troubled | None = None
    """The task where a failure began that keeps this one from running, or has kept it."""
    place: Any = None  # where a device task goes
    predecessors: Sequence[Task] = ()
    """What a device task follows, for where on which streams; others are known to those they follow only."""
    priority = 0  # the engine takes tasks of higher priority first
    run: Any = None  # the record of it in a graph, if it has been recorded
    seen = False
    """Whether somebody has been told of its failure."""
    trouble: Trouble | None = None
    """What is wrong with it for those that follow it."""
    survives = False
    """Whether it runs though a task that it depends on has failed: it releases what an earlier one has taken."""

    def __init__(
        self,
        construct: Site,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        frame: Region,
    ) -> None:
        self.construct = construct
        self.body: Callable[..., Any] | None = body
        self.args = args
        self.kwargs = kwargs
        self.frame = frame
        self.inherited: Inherited = frame.inherited
        self.state_ = TaskState.WAITING
        self.finished = self.special = False
        self.failure: BaseException | None = None
        self.successors: list[Task] | None = None
        self.dependences: Any = None
        self.value: Any = None

    caller_at: int
    caller_code: CodeType
    counters: bytearray
    created_s: float
    maker: int
    start_s: float
    end_s: float
    serial: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        TASK_TYPES.add(cls)

    # -- for users -----------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        """The value of ``name=``, or else the name of the body's function or of the directive.

        Examples
        --------
        >>> task = omp.task(name="sum of x")(lambda: 3)()
        >>> task.name
        'sum of x'
        """
        return self.label or str(self.construct.name)

    @property
    def key(self) -> str:
        """The name with a number that is unique in this process.

        Examples
        --------
        >>> omp.task(name="load")(lambda: 3)().key
        'load-...'
        """
        return f"{self.name}-{self.number}"

    @property
    def device_num(self) -> int | None:
        """The device number of the task's work; None for the host.

        Examples
        --------
        >>> omp.target(nowait=True)(lambda x: None)(np.ones(3)).device_num
        0
        >>> print(omp.task(lambda: 3)().device_num)
        None
        """
        return None

    @property
    def state(self) -> TaskState:
        """The state of the task, as a string.

        It is ``"waiting"``, ``"running"``, ``"launched"``, ``"detached"``, ``"complete"``, ``"failed"``, ``"not run"``,
        ``"cancelled"`` or ``"recorded"``.

        Examples
        --------
        >>> task = omp.task(lambda: 3)()
        >>> omp.taskwait()
        >>> print(task.state)
        complete
        """
        return self.state_

    @property
    def elapsed(self) -> float | None:
        """The seconds that the task's own work took, by the host's clock.

        It is None until the task is complete, and for a task that did not begin. For a failed task it is the time until
        the failure.

        For a host task, it is the wall time from the beginning of the body to its end, including waits in the body.
        With ``detach`` it ends at the fulfilment of the event. For an ``async def`` body it is the time from the first
        step to the return. Time spent waiting for dependences or for a worker does not count.

        For device work, the time begins at the launch, or when preceding work on the stream and elsewhere has ended if
        that is later. It ends when the host notices that the stream has passed the work: within about 0.1 ms while a
        thread waits, otherwise within 4 ms. Copies and enqueuing count. Measure short kernels with CUDA events in the
        body instead.

        Examples
        --------
        >>> task = omp.task(sum)(range(1000))
        >>> task.result()
        499500
        >>> task.elapsed > 0
        True
        """
        with suppress(AttributeError):  # it did not begin
            return self.end_s - self.start_s if self.finished else None
        return None

    @property
    def dependencies(self) -> tuple[Task, ...]:
        """The tasks that this task still waits for.

        Examples
        --------
        >>> event = omp.Event()
        >>> first = omp.task(detach=event)(lambda: 1)()
        >>> second = omp.task(lambda x: x + 1)(first)
        >>> [task.key == first.key for task in second.dependencies]
        [True]
        >>> event.fulfill()
        >>> second.result()
        2
        """
        live = self.frame.children.live.copy()
        found = [
            task
            for task in live
            if isinstance(task, Task) and not task.finished and self in (*(task.successors or ()), *(task.early or ()))
        ]
        named = [key.what for key in self._followed() if isinstance(key.what, Task)]  # perhaps of other regions
        return tuple(dict.fromkeys((*found, *named)))

    def _followed(self) -> list[Followed]:
        """Return the objects that the task still waits for directly, not by way of storage."""
        clauses = self.dependences or () if self.state_ is TaskState.WAITING else ()
        keys = [key for clause in clauses for key in clause.keys or ()]
        return [key for key in keys if isinstance(key, Followed) and not key.is_over]

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(f"{self.key} is a task of this process, and cannot be pickled; pickle its result()")

    def done(self) -> bool:
        """Tell whether the task is complete: body finished, event fulfilled, device work and copies done.

        Examples
        --------
        >>> task = omp.task(lambda: 3)()
        >>> omp.taskwait()
        >>> task.done()
        True
        """
        return self.finished

    def result(self, timeout: float | None = None) -> Result_co:
        """Wait until the task is complete and return the result of its body.

        Parameters
        ----------
        timeout : float, optional
            The longest time to wait, in seconds. With a timeout, the waiting thread runs no other tasks.

        Raises
        ------
        TimeoutError
            The task did not complete in time.
        concurrent.futures.CancelledError
            Its taskgroup was cancelled before the task began.
        BaseException
            The body's own exception, or `DependError` if a task that this one depends on has failed.

        Notes
        -----
        The call blocks until the task is complete. Without a timeout, the waiting thread may run other tasks.

        Examples
        --------
        >>> add = omp.task(lambda x, y: x + y)
        >>> add(1, add(2, 3)).result()
        6
        """
        failure = self.exception(timeout)
        value: Result_co = self.value
        if failure is not None:
            try:
                raise failure
            finally:
                del self, failure  # or the traceback would refer to the task, and the task to it
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait until the task is complete and return its failure, or None.

        It takes the parameter of `result`, and waits in the same way. The failure then counts as retrieved, so no later
        wait raises it.

        Examples
        --------
        >>> task = omp.task(lambda: 1 / 0)()
        >>> task.exception()
        ZeroDivisionError('division by zero')
        """
        if not self.finished:
            self.construct.runtime.wait_for_task(self, timeout)
        if self.run is not None:  # recorded: a wait for it orders what follows, also one that found it complete
            self.construct.runtime.note_wait(self)
        if self.failure is None:
            return None
        try:
            see(self)
            if self.state_ is TaskState.CANCELLED:
                raise self.failure
            return self.failure
        finally:
            del self  # as in `result`: the body may have run in the wait above

    def add_done_callback(self, fn: Callable[[Task[Result_co]], Any]) -> None:
        """Call ``fn(task)`` when the task is complete, or at once if it already is.

        The thread that completes the task calls ``fn``.

        Parameters
        ----------
        fn : callable
            A function of one argument, the task.

        Raises
        ------
        UsageError
            ``fn`` belongs to `asyncio.wait`, and the caller is not the loop's thread.

        Examples
        --------
        >>> task = omp.task(lambda: 3)()
        >>> omp.taskwait()
        >>> task.add_done_callback(lambda task: print("done:", task.result()))
        done: 3
        """
        if getattr(fn, "__module__", None) == "asyncio.tasks":
            raise UsageError(
                f"asyncio.wait of {self.key}, which is not an asyncio future, because its callbacks run on any thread; "
                "write asyncio.wait([asyncio.ensure_future(task), …])"
            )
        with _adding_callback:
            if self.callbacks is None:
                self.callbacks = []
            self.callbacks.append(fn)
            self.special = True
        self.watch()
        if self.finished:
            with Shield():
                run_callbacks(self)

    def as_future(self) -> Future[Result_co]:
        """Return a `concurrent.futures.Future` that completes with the task.

        Examples
        --------
        >>> from concurrent.futures import wait
        >>> futures = [omp.task(pow)(2, n).as_future() for n in range(3)]
        >>> done, pending = wait(futures)
        >>> [future.result() for future in futures]
        [1, 2, 4]
        """
        from offload.tasks.futures import future_of  # 10 ms of the time of `import offload`

        return future_of(self)

    def wait_on(self, stream: Any) -> None:
        """Make later work on a stream wait until the task's work is done.

        Parameters
        ----------
        stream : stream
            A `cupy.cuda.Stream`, an object with ``__cuda_stream__`` or a simulated stream, of a device of the task's
            runtime.

        Raises
        ------
        EventError
            The argument is not such a stream, or a graph is being captured from it.
        BaseException
            The task's failure, as `result` raises it, if the task has already failed. The method cannot report a device
            that is lost later.

        Notes
        -----
        The call blocks until the task's work is on its stream, and then enqueues one event wait on ``stream``. For host
        tasks, and for a stream of another kind of device, it blocks until the task is complete. Meanwhile it may run
        other tasks, as `result` does. Copies back to the host are part of the task.

        Examples
        --------
        >>> x = np.ones(3)
        >>> with omp.target_data(map=[omp.tofrom(x)]):
        ...     task = omp.target_update(to=[x], nowait=True)
        ...     stream = omp.current_stream()
        ...     task.wait_on(stream)  # what you now enqueue on the stream sees x
        """
        runtime = self.construct.runtime
        lane = runtime.lane_of(stream)
        if (self.waits_in_stream_order or self.event is not None) and not (self.launched or self.finished):
            goal = Launches(f"the wait for the launch of {self.key}", (self,))
            runtime.engine.wait(runtime.check_wait(self), goal)
        point = self.point if self.launched and self.failure is None else None
        if point is None or point.lane.device.kind != lane.device.kind:
            self.result()
            return
        event = point.event
        if event is not None:  # else it has passed
            lane.device.wait_event(lane.stream, event)

    def __await__(self) -> Generator[Any, None, Result_co]:
        from offload.tasks.aio.wait import outcome  # asyncio is a third of the time of `import offload`

        return outcome(self).__await__()

    def __repr__(self) -> str:
        return f"<Task {self.key} {self.construct.directive} {self.state_}>"

    # -- for the engine ------------------------------------------------------------------------------
    @property
    def number(self) -> int:
        """The number in `key`."""
        with suppress(AttributeError):
            return self.serial
        try:
            self.serial = number_at(self.created_s)
        except AttributeError:  # nobody observes it
            self.serial = _next_serial()
        return self.serial

    def note_number(self) -> None:
        """Note the number of an observed task that had one before it was entered, as a recorder has asked for it."""
        with suppress(AttributeError):
            numbers[self.created_s] = self.serial

    @calls_program
    def advance(self, engine: Runner[Task], scope: Scope) -> Task | None:
        """Do the task's next step on this thread; return a task that became ready."""
        if (self.special or engine.can_cancel) and engine.hinders(self):
            return None
        outer_task, outer_region = scope.task, scope.region
        scope.task, scope.region = self, None
        failure = None
        try:
            scope.in_body = True
            self.state_ = _RUNNING
            kwargs = self.kwargs
            self.start_s = perf_counter()
            self.value = self.body(*self.args, **kwargs) if kwargs else self.body(*self.args)  # type: ignore[misc]  # the body goes when it has run
            self.end_s = perf_counter()  # a call: CPython raises what was sent to the thread no later than here
            scope.in_body = False
        except BaseException as error:  # noqa: BLE001  # kept for whoever waits
            scope.in_body = False
            self.end_s = perf_counter()
            failure = self.failed(error)
        frame: Any = scope.region  # the body may have made one
        if frame is not None and (frame.children.live or frame.children.failures):
            engine.adopt(frame)
        scope.task, scope.region = outer_task, outer_region
        if failure is not None:
            try:
                return self.body_ended(engine, failure)
            finally:
                del self, failure, frame  # it has the frame of the body, whose caller this is: no cycle by way of that
        if self.special:
            return self.body_ended(engine, None)
        return engine.finish(self)

    def hand_over(self) -> bool:
        """Have something other than the engine's threads begin the ready task; return whether that is possible."""
        return False

    def failed(self, error: BaseException) -> BaseException | None:
        """Return the failure for an exception of the body; None if the exception leaves a cancelled taskgroup."""
        if isinstance(error, LeaveRegion):
            if self.event is not None:  # the body may have left before it promised anything
                self.event.abandon()
                self.event = None
            return None
        if self.owner is None and ends_body(error):  # else the owner raises the failure
            self.seen = True  # the wait that runs the body raises it
        note_task(error, self, "its body raised")
        return without_engine_frames(error)

    def body_ended(self, engine: Runner[Task], failure: BaseException | None) -> Task | None:
        """Complete the task, or let its event do so."""
        event = self.event
        if event is not None:
            if failure is not None:
                event.abandon()
            else:
                self.state_ = TaskState.DETACHED  # before the event hears of it: it may complete the task at once
                if not event.body_finished():
                    return engine.release_early(self) if event.point is not None else None
                failure = event.failure
                if failure is not None:
                    note_task(failure, self, _EVENT_FAILED)
        return engine.finish(self, failure)

    def event_fulfilled(self, error: BaseException | None) -> None:
        """Complete the task, whose body has ended; called by its event, on any thread."""
        self.end_s = perf_counter()
        if error is not None:
            note_task(error, self, _EVENT_FAILED)
        self.construct.runtime.engine.finish_elsewhere(self, error)

    @property
    def past(self) -> bool:
        """Whether a later task may ignore this one, which is complete and has no failure that must still be raised."""
        return self.finished and (self.trouble is None or self.trouble.unseen() is None)

    @property
    def point(self) -> Any:
        """Position of the end of the task's work in its stream; None before the launch."""
        event = self.event
        return event.point if event is not None else None

    def orders(self, successor: Task) -> bool:
        """Tell whether the successor can start in stream order, because a stream can wait for this task's work."""
        return self.early is not None and not self.construct.runtime.has_mixed_kinds

    @property
    def caller(self) -> Call | None:
        """Place in the program that called the task's function, if it is known."""
        with suppress(AttributeError):
            return self.caller_code, self.caller_at
        return self.construct.caller

    def watch(self) -> None:
        """Note that a host thread waits for this task, to notice the end of device tasks early."""

    def steps(self, last: str) -> str:
        """Return the steps of the task for the note on its failure; the ``last`` one failed just now."""
        steps = []
        if self.caller is not None:  # else the construct stands there, or the traceback shows the call, which waits
            steps.append(f"generated at {line_of(self.caller)}")
        if self.device_num is not None:
            steps.append(f"on device {self.device_num}")
        elif self.state_ is _RUNNING:
            steps.append(f"began on {threading.current_thread().name}")
        with suppress(AttributeError):  # it did not begin
            last += f" after {perf_counter() - self.start_s:.6f} s"
        return "; ".join([*steps, last])

    def story(self) -> str:
        """Return one line about the task for the hang report."""
        waits = [task.key for task in self.dependencies]
        event = self.event
        if event is not None and not event.is_fulfilled:
            waits.append(f"its event, {event!r}")
        elif self.state_ is TaskState.LAUNCHED:
            waits.append("its stream")
        waits += [repr(key) for key in self._followed() if not isinstance(key.what, Task)]
        waits += [
            f"{holder.key}, which excludes it"
            for mutex in self.mutexes
            if (holder := mutex.holder) is not None and holder is not self
        ]
        site = self.construct
        return (
            f"{self.key} ({site.directive}, {site.location}): {self.state_}; waits for {', '.join(waits) or 'nothing'}"
        )


TASK_TYPES.add(Task)


def discarded(task: Task) -> CancelledError:
    """Return the error of ``result()`` for a task whose taskgroup was cancelled before it began."""
    from concurrent.futures import CancelledError  # as above

    return CancelledError(f"{task.key} was discarded: its taskgroup was cancelled before it began")


@in_forked_child
def _after_fork() -> None:
    global _adding_callback  # noqa: PLW0603  # another thread of the parent may have it
    _adding_callback = threading.RLock()
