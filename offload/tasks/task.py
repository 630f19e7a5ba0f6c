"""Tasks: what a construct generates, and what the caller may ask of it.

A `Task` runs a body on the host. Whoever generates tasks is described by a `Frame`; a `TaskSet` holds
those of its tasks that are not complete, for whoever waits for them.
"""

from __future__ import annotations

import threading
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Any

from offload.errors import DependError, EventError, OffloadError
from offload.tasks.depend import Tracker

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from concurrent.futures import Future

    from offload.tasks.engine import Engine
    from offload.tasks.scope import Parker

_serial = count(1)
_adding_callback = threading.Lock()


class TaskState(StrEnum):
    """Where a task stands."""

    WAITING = "waiting"  # for predecessors, or for a worker
    RUNNING = "running"  # its body
    LAUNCHED = "launched"  # its work is on a stream, which has not finished it
    DETACHED = "detached"  # its body has finished, its event is not fulfilled
    COMPLETE = "complete"
    FAILED = "failed"
    NOT_RUN = "not run"  # since one that it depends on failed
    RECORDED = "recorded"  # only: it does not run before its graph is computed


class TaskSet:
    """The incomplete tasks that somebody may wait for, and the failures among the complete ones."""

    __slots__ = ("failures", "live", "waiters")

    def __init__(self) -> None:
        self.live: set[Task] = set()
        self.failures: list[Task] = []
        self.waiters: tuple[Parker, ...] = ()

    def leave(self, task: Task) -> None:
        """Take out a task that is complete; its failure has been noted before, so that a waiter sees both."""
        self.live.discard(task)
        if self.waiters and not self.live:
            for waiter in self.waiters:
                waiter.unpark()


class Frame:
    """A region that generates tasks: the body of one task, or a host thread outside of any body.

    Attributes
    ----------
    task : Task or None
        The generating task; None stands for a host thread.
    tracker : Tracker
        The dependences among the tasks generated here.
    children : TaskSet
        The tasks generated here and not yet complete.
    group : TaskSet or None
        The innermost enclosing taskgroup.
    default_device : int
        The default-device-var ICV.
    recorder : object or None
        Keeps the graph of what is generated here, while ``record`` is on.
    """

    __slots__ = ("children", "default_device", "group", "recorder", "task", "tracker")

    def __init__(self, task: Task | None, default_device: int, group: TaskSet | None = None) -> None:
        self.task = task
        self.tracker = Tracker()
        self.children = TaskSet()
        self.group = group
        self.default_device = default_device
        self.recorder: Any = None


class Site:
    """A construct in the program: what its tasks are called, and where it stands."""

    __slots__ = ("directive", "location", "name", "runtime")

    def __init__(self, directive: str, name: str, location: str, runtime: Any) -> None:
        self.directive = directive
        self.name = name
        self.location = location
        self.runtime = runtime


class Task:
    """A task that runs its body on the host, and the handle of every deferred construct.

    Made by constructs, never by hand. Its methods are those of `concurrent.futures.Future`; it can also be
    awaited.

    Notes
    -----
    The fields without a meaning for users are the engine's; `offload.tasks.engine` says how they are used.
    ``successors`` are released when the task is complete; ``early``, where it is a list, holds those that
    can start in stream order, released when the task's work has been launched.
    """

    __slots__ = (
        "__weakref__",
        "_serial",
        "args",
        "body",
        "callbacks",
        "construct",
        "countdown",
        "default_device",
        "dependences",
        "early",
        "event",
        "failure",
        "finished",
        "frame",
        "group",
        "is_ready",
        "kwargs",
        "label",
        "launched",
        "owner",
        "poison",
        "predecessors",
        "run",
        "seen",
        "state_",
        "successors",
        "value",
    )

    waits_in_stream_order = False
    """Whether it may start once its predecessors are launched, as device tasks may."""

    launches_inline = False
    """Whether the encountering thread may launch it: it only enqueues, and no body runs there that blocks."""

    def __init__(
        self,
        construct: Site,
        body: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        frame: Frame,
        label: str | None = None,
    ) -> None:
        self.construct = construct
        self.body: Callable[..., Any] | None = body
        self.args = args
        self.kwargs = kwargs
        self.frame = frame
        self.label = label
        self.group = frame.group
        self.default_device = frame.default_device
        self.successors: list[Task] = []
        self.early: list[Task] | None = None
        self.event: Any = None
        self.callbacks: list[Callable[[Task], Any]] | None = None
        self.owner: Parker | None = None
        self.poison: Task | None = None
        self.failure: BaseException | None = None
        self.dependences: Any = None
        self.predecessors: Any = None
        self.run: Any = None
        self.value: Any = None
        self.countdown: Callable[[], int] | None = None
        self.state_ = TaskState.WAITING
        self._serial = 0
        self.finished = self.launched = self.seen = self.is_ready = False

    # -- for users -----------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        """The name of the body's function, or of the directive, or what ``name=`` said."""
        return self.label or str(self.construct.name)

    @property
    def key(self) -> str:
        """The name with a number that is unique in this process."""
        if not self._serial:
            self._serial = next(_serial)
        return f"{self.name}-{self._serial}"

    @property
    def device_num(self) -> int | None:
        """The device that the task's work goes to; None for the host."""
        return None

    @property
    def state(self) -> TaskState:
        """Where the task stands; a string."""
        return self.state_

    @property
    def dependencies(self) -> tuple[Task, ...]:
        """The tasks that this one still waits for."""
        return tuple(task for task in self.predecessors or () if not task.finished)

    def done(self) -> bool:
        """Tell whether the task is complete: body finished, event fulfilled, device work and copies done."""
        return self.finished

    def result(self, timeout: float | None = None) -> Any:
        """Wait until the task is complete and return what its body returned.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most. With one, the waiting thread runs no other tasks.

        Raises
        ------
        TimeoutError
            The task was not complete in time.
        BaseException
            The body's own exception, or `DependError` if a task that this one depends on failed.

        Notes
        -----
        *Blocks* until the task is complete; without a timeout it may run other tasks meanwhile.
        """
        failure = self.exception(timeout)
        value = self.value
        if failure is not None:
            try:
                raise failure
            finally:
                del self, failure  # or the traceback would refer to the task, and the task to it
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait until the task is complete and return its failure, or None. Otherwise as `result`."""
        if not self.finished:
            self.construct.runtime.wait_for_task(self, timeout)
        if self.run is not None:  # recorded: a wait for it orders what follows, also one that found it complete
            self.construct.runtime.note_wait(self)
        self.seen = True
        return self.failure

    def add_done_callback(self, fn: Callable[[Task], Any]) -> None:
        """Call ``fn(task)`` when the task is complete, at once if it is; on whichever thread completes it."""
        with _adding_callback:
            if self.callbacks is None:
                self.callbacks = []
            self.callbacks.append(fn)
        self.watch()
        if self.finished:
            run_callbacks(self)

    def as_future(self) -> Future[Any]:
        """Return a `concurrent.futures.Future` that ends as this task does."""
        from concurrent.futures import Future  # 3 ms of the time of `import offload`, for those who need it only

        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()

        def end(task: Task) -> None:
            task.seen = True
            if task.failure is None:
                future.set_result(task.value)
            else:
                future.set_exception(task.failure)

        self.add_done_callback(end)
        return future

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio  # a third of the time of `import offload`, for those who await only

        return asyncio.wrap_future(self.as_future()).__await__()

    def __repr__(self) -> str:
        return f"<Task {self.key} {self.construct.directive} {self.state_}>"

    # -- for the engine ------------------------------------------------------------------------------
    def advance(self, engine: Engine, scope: Any) -> Task | None:
        """Do the next thing that the task has to do on this thread; return a task that became ready."""
        if self.poison is not None:
            return engine.finish(self, poisoned(self, self.poison), TaskState.NOT_RUN)
        outer = scope.enter(self)
        self.state_ = TaskState.RUNNING
        run = self.run
        if run is not None:
            run.start()
        failure = None
        try:
            if self.kwargs:
                self.value = self.body(*self.args, **self.kwargs)  # type: ignore[misc]  # the body goes when it has run
            else:
                self.value = self.body(*self.args)  # type: ignore[misc]
        except BaseException as error:  # noqa: BLE001  # kept for whoever waits
            failure = without_engine_frames(error)
            note_task(error, self)
        finally:
            scope.leave(outer)
        event = self.event
        if event is not None:
            if failure is not None:
                event.abandon()
            else:
                self.state_ = TaskState.DETACHED  # before the event hears of it: it may complete the task at once
                if not event.body_finished():
                    return engine.release_early(self) if event.point is not None else None
                failure = event.failure
        return engine.finish(self, failure)

    def event_fulfilled(self, error: BaseException | None) -> None:
        """Complete the task, whose body has ended; called by its event, on any thread."""
        if error is not None:
            note_task(error, self)
        self.construct.runtime.engine.finish_elsewhere(self, error)

    @property
    def past(self) -> bool:
        """Whether a later task may ignore this one: complete, and a failure of it has been seen."""
        return self.finished and (self.failure is None or self.seen)

    @property
    def point(self) -> Any:
        """Where on which stream the task's work ends, once it has been launched."""
        return self.event.point if self.event is not None else None

    def orders(self, successor: Task) -> bool:
        """Tell whether the successor can start in stream order, behind work on a stream that it can wait for."""
        return self.early is not None and not self.construct.runtime.has_mixed_kinds

    @property
    def device_kind(self) -> str:
        """The kind of device that the task's work goes to."""
        return "host"

    def watch(self) -> None:
        """Note that something on the host waits for this task; device tasks see that it is noticed soon."""

    def story(self) -> str:
        """Return one line for a person who asks why nothing moves."""
        waits = [task.key for task in self.dependencies]
        if self.event is not None and not self.event.is_fulfilled:
            waits.append(f"its event, {self.event!r}")
        elif self.state_ is TaskState.LAUNCHED:
            waits.append("its stream")
        site = self.construct
        return (
            f"{self.key} ({site.directive}, {site.location}): {self.state_}; waits for {', '.join(waits) or 'nothing'}"
        )


def poisoned(task: Task, cause: Task) -> DependError:
    """Return the error of a task that did not run since one that it depends on failed."""
    root = cause.failure
    if isinstance(root, DependError) and root.__cause__ is not None:
        root = root.__cause__  # the first failure of the chain
    error = DependError(
        f"{task.key} did not run: {cause.key}, which it depends on, failed with {type(root).__name__}: {root}"
    )
    error.__cause__ = root
    return error


def note_task(error: BaseException, task: Task) -> None:
    """Add the task, its directive, file and line to an exception."""
    where = f"in {task.construct.directive} {task.name!r} ({task.construct.location})"
    if where not in getattr(error, "__notes__", ()):
        error.add_note(where)


def without_engine_frames(error: BaseException) -> BaseException:
    """Return the exception with a traceback that begins at the user's code.

    Our frames refer to the task, and the task to its failure: such a cycle would keep what the body's frame refers to,
    device arrays for one, until the cyclic collector comes by.
    """
    trace = error.__traceback__
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith("offload."):
        trace = trace.tb_next
    if trace is not None or isinstance(error, OffloadError):
        error.__traceback__ = trace
    return error


def run_callbacks(task: Task) -> None:
    """Run the callbacks of a complete task, each once, whoever comes first."""
    callbacks = task.callbacks
    while callbacks:
        try:
            fn = callbacks.pop(0)
        except IndexError:
            return
        try:
            fn(task)
        except BaseException as error:  # noqa: BLE001  # a Future logs it likewise; the completer must go on
            threading.excepthook(
                threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
            )


def raise_failures(tasks: Iterable[Task], where: str) -> None:
    """Raise the failures that nobody has seen yet, as a group.

    Raises
    ------
    BaseExceptionGroup
        An `ExceptionGroup` where every failure is an `Exception`. Errors of tasks that did not run are left
        out where the group holds their cause.
    """
    unseen = [task for task in tasks if not task.seen]
    if not unseen:
        return
    for task in unseen:
        task.seen = True
    failures = list({id(task.failure): task.failure for task in unseen if task.failure is not None}.values())
    roots = set(map(id, failures))
    kept = [error for error in failures if not (isinstance(error, DependError) and id(error.__cause__) in roots)]
    raise BaseExceptionGroup(f"{len(kept)} task{'s' * (len(kept) != 1)} failed before {where}", kept)


def check_event(event: Any) -> Any:
    """Return the event of a ``detach=`` argument."""
    if event is not None and (isinstance(event, type) or not hasattr(event, "fulfill")):
        raise EventError(f"detach: {event!r:.60} is not an event; make one with offload.Event()")
    return event
