"""Calls of MPI as tasks: each is made when its dependences and its turn allow, and complete with its request."""

from __future__ import annotations

import threading
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import ref

from mpi4py import MPI

from offload.errors import TransportError, UsageError
from offload.events.requests import Requests
from offload.events.transport import check_mpi, transport_error
from offload.interrupts.shields import Shield
from offload.mpi.arguments import buffers_of
from offload.mpi.operations import Arrival
from offload.mpi.order import Turn
from offload.tasks import hooked
from offload.tasks.failures import note_task
from offload.tasks.recipe import Recipe
from offload.tasks.states import TaskState
from offload.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.events.gate import Gate
    from offload.mpi.operations import Operation
    from offload.mpi.order import Turns
    from offload.tasks.protocols import Runner
    from offload.tasks.region import Region
    from offload.tasks.site import Site


class CallRecipe(Recipe):
    """A recipe for the tasks of a call of MPI: each task makes the call once more, in its turn."""

    # Under Dask, which starts nodes in an order of its own, all turns are reserved before the first node is started.

    __slots__ = ("_reserved", "operation")

    def __init__(self, site: Site, operation: Operation, label: str | None, priority: int) -> None:
        super().__init__(site, label=label, priority=priority)
        self.operation = operation
        self._reserved: MPICall | None = None  # a call whose turn is taken before its task is made

    @property
    def is_plain(self) -> bool:
        return False

    @property
    def given(self) -> list[Any]:
        return [*self.operation.args, *self.operation.kwargs.values()]

    def make(self, frame: Region, sources: Sequence[Task | None] = ()) -> Task:
        call, self._reserved = self._reserved or self._call(), None
        task = CallTask(self.site, call.begin, (), None, frame)
        call.belong_to(task)
        recorder = frame.recorder
        if recorder is None or recorder.executes:
            call.take_turn()
            task.callbacks = [call.leave_out]
        self._mark(task)
        return task

    def reserve(self) -> None:
        self.give_back()
        self._reserved = self._call()
        self._reserved.take_turn()

    def _call(self) -> MPICall:
        return MPICall(self.operation, self.site.runtime.gate)

    def give_back(self) -> None:
        call, self._reserved = self._reserved, None
        if call is not None:
            call.leave_out()


class CallTask(Task):
    """The task of a call, whose value is the result of the request; its event is the call."""

    def body_ended(self, engine: Runner[Task], failure: BaseException | None) -> Task | None:
        call = self.event
        if failure is not None or call is None:
            return super().body_ended(engine, failure)
        if not call.body_finished(self):
            return None
        self.value, self.event = call.value, None  # the buffers are the program's alone from now on
        if call.failure is not None:
            note_task(call.failure, self, "its request failed")
        return engine.finish(self, call.failure)

    def event_fulfilled(self, error: BaseException | None) -> None:
        self.value, self.event = self.event.value, None
        super().event_fulfilled(error)


def _observed_end_of_body(plain: Any) -> Any:
    def body_ended(self: CallTask, engine: Any, failure: BaseException | None) -> Task | None:
        if self.event is not None and failure is None:
            self.left = perf_counter(), threading.get_ident(), "request"
        return plain(self, engine, failure)  # type: ignore[no-any-return]

    return body_ended


hooked.register(CallTask, "body_ended", _observed_end_of_body)


class MPICall:
    """One call, from its construct to the end of its request."""

    # It is the event of its task as well, but less than an `Event`: no one else has it, so no one can fulfil it first,
    # name it in ``depend``, or use it for several rounds of a graph.

    __slots__ = (
        "_is_awaited", "_lock", "_operation", "_order", "_requests", "_task", "_transfer", "_turn", "failure",
        "is_fulfilled", "value",
    )  # fmt: skip

    point = None  # On no stream

    is_promised = True  # By the request

    def __init__(self, operation: Operation, gate: Gate) -> None:
        self._operation = operation
        self._transfer = operation.transfer(gate)  # its copies, if arrays are staged
        self._turn = Turn(self)
        self._order: Turns | None = None  # of its communicator; None before the turn is taken
        self._task: ref[Task] | None = None
        self._requests: Requests | None = None  # what it has started
        self._lock = threading.Lock()
        self._is_awaited = False  # the body has ended, and the task waits
        self.is_fulfilled = False  # whether it has ended
        self.failure: BaseException | None = None  # the error with which it has ended
        self.value: Any = None  # the result of the request, if it is asked for

    def __str__(self) -> str:
        if self._requests is not None:
            return str(self._requests)
        behind = next(iter(self._turn.before), None)
        return f"{self._operation}, which is to be issued after {behind.call}" if behind else str(self._operation)

    def __repr__(self) -> str:
        return f"<{self}>"

    def belong_to(self, task: Task) -> None:
        self._task = ref(task)
        task.event = self
        task.special = True

    def take_turn(self) -> None:
        """Take the turn, unless it was reserved. Raise as `Operation.check` does."""
        if self._order is None:
            self._operation.check()
            self._order = self._operation.enter(self._turn)

    @property
    def given_up(self) -> str:
        if self._task is None:
            return ""  # its turn is reserved
        engine = self._engine
        return self._left_out() if engine is None or engine.is_stopped else ""

    # -- the body of the task ------------------------------------------------------------------------
    def begin(self) -> None:
        """Issue the call if its turn has come; otherwise the thread that issues the previous call will issue it."""
        with Shield():
            if self._transfer is not None:
                self._transfer.bring(self._brought)
            else:
                self._arrive()

    def _brought(self, error: BaseException | None) -> None:
        if error is not None:
            self._end(error)
        else:
            self._arrive()

    def _arrive(self) -> None:
        if self._order is None or self._order.arrive(self._turn):
            issue(self.go())

    def go(self) -> Sequence[Turn]:
        """Issue the call, or fail if it is left out; return the turns that are due then."""
        order, operation = self._order, self._operation
        error: BaseException
        due: Sequence[Turn]
        if self._turn.left_out:
            due = order.leave_out(self._turn, "") if order is not None else []
            error = TransportError(
                f"{operation} is not issued, since {self._turn.left_out} was left out before it, so it would match "
                f"the wrong call of another rank; {operation.way_out}",
                operation=str(operation),
            )
        else:
            try:
                check_mpi(operation.name)  # it may have ended meanwhile
                made = _checked(self._call(), operation)
                requests = Requests(made, self._engine, operation, brings=operation.brings)
            except BaseException as failure:  # noqa: BLE001  # the task's
                error = transport_error(failure, str(operation)) if isinstance(failure, MPI.Exception) else failure
                due = order.leave_out(self._turn, self._left_out()) if order is not None else []
            else:
                due = self._passed() if not operation.matches_later else []
                try:
                    requests.subscribe(self)
                except BaseException as failure:  # noqa: BLE001  # a request given before, or nobody looks after it
                    error = failure
                else:
                    self._requests = requests
                    return due
        self._end(error)
        return due

    def _call(self) -> Any:
        transfer, call = self._transfer, self._operation.call
        if transfer is None:
            return call(self._matched, {})
        return transfer.issue(lambda: call(self._matched, transfer.arrays))

    def _matched(self) -> None:
        issue(self._passed())

    def _passed(self) -> Sequence[Turn]:
        """Note that the call is issued, and can be left out no more; return the turns that are due then."""
        task = self._task() if self._task is not None else None
        if task is not None and task.callbacks and self.leave_out in task.callbacks:
            task.callbacks.remove(self.leave_out)  # a task without callbacks goes on with what it makes ready
        return self._order.passed(self._turn) if self._order is not None else []

    @property
    def _engine(self) -> Any:
        task = self._task() if self._task is not None else None
        return task.construct.runtime.engine if task is not None else None

    # -- its end -------------------------------------------------------------------------------------
    def body_finished(self, task: Task) -> bool:
        """Note that the body of the task has ended well; return whether the call had ended before."""
        # Only a task that waits is detached, and whoever ends the call completes it: nobody sees it so before that.
        with self._lock:
            if not self.is_fulfilled:
                self._is_awaited = True
                task.state_ = TaskState.DETACHED
            return self.is_fulfilled

    def abandon(self) -> None:
        """Note that the task has ended without: it does not wait, and so nobody is told."""

    def passed(self, error: BaseException | None) -> None:
        """Take the outcome of the request."""
        if error is not None or self._transfer is None:
            self._end(error)
            return
        try:
            self._transfer.bring_back(self.value, self._end)
        except Exception as failure:  # noqa: BLE001  # the device's
            self._end(failure)

    def _end(self, error: BaseException | None) -> None:
        """Note the end, once, and complete the task if that waits for it: then it is alive, as its region has it."""
        self._transfer = None
        with self._lock:
            if self.is_fulfilled:  # whoever was told has failed
                return
            self.is_fulfilled = True
            self.failure = error
            is_awaited, self._is_awaited = self._is_awaited, False
        task = self._task() if self._task is not None else None
        if is_awaited and task is not None:
            task.event_fulfilled(error)

    def leave_out(self, _task: Task | None = None) -> None:
        """Note that the task has ended, or will not be made; where it has not begun, the call is left out."""
        order = self._order
        if order is not None and not self._turn.is_over:
            issue(order.leave_out(self._turn, self._left_out()))

    def _left_out(self) -> str:
        task = self._task() if self._task is not None else None
        return f"{self._operation} ({task.key})" if task is not None else str(self._operation)


def _checked(requests: Any, operation: Operation) -> Any:
    """Return the result of an operation; refuse it if it is not one or several requests."""
    if isinstance(requests, (MPI.Request, Arrival)):
        return requests
    if not isinstance(requests, (list, tuple)) or not all(isinstance(one, MPI.Request) for one in requests):
        raise UsageError(
            f"{operation} returned {requests!r:.60}, not a request; pass a method that starts a nonblocking operation"
        )
    return requests


def issue(due: Sequence[Turn]) -> None:
    """Issue calls whose turn it is, and those whose turn it is then."""
    if due:
        left = deque(due)
        while left:
            left.extend(left.popleft().call.go())  # type: ignore[union-attr]  # it is not over


def _noted_begin(plain: Any) -> Any:
    """Return `MPICall.begin` for sanitized runtimes: the task accesses its buffers until it is complete."""

    def begin(self: MPICall) -> None:
        from offload.runtime.sanitized_data import note_now  # few programs are sanitized

        task = self._task() if self._task is not None else None
        reads, writes = buffers_of(self._operation)
        note_now(task, reads, writes, "")
        plain(self)

    return begin


hooked.register(MPICall, "begin", _noted_begin, "sanitize")
