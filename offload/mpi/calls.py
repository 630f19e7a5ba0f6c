"""Calls of MPI as tasks: each is made when its dependences and its turn allow, and complete with its request."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import ref

from mpi4py import MPI

from offload.errors import TransportError, UsageError
from offload.events.event import Event
from offload.events.requests import Requests
from offload.events.transport import check_mpi, transport_error
from offload.mpi.operations import Arrival
from offload.mpi.order import Turn
from offload.mpi.staging import Transfer
from offload.tasks.failures import note_task
from offload.tasks.recipe import Recipe
from offload.tasks.states import TaskState
from offload.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.events.gate import Gate
    from offload.events.promises import Promise
    from offload.mpi.operations import Operation
    from offload.mpi.order import Order
    from offload.tasks.protocols import Runner
    from offload.tasks.region import Region, Site


class CallRecipe(Recipe):
    """What the tasks of a call of MPI are made of: each calls once more, in its turn.

    Under Dask, which starts nodes in an order of its own, all turns are reserved before the first node is started.
    """

    __slots__ = ("_reserved", "operation")

    def __init__(self, site: Site, operation: Operation, label: str | None, priority: int) -> None:
        super().__init__(site, label=label, priority=priority)
        self.operation = operation
        self._reserved: Call | None = None

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

    def _call(self) -> Call:
        return Call(self.operation, self.site.runtime.gate)

    def give_back(self) -> None:
        call, self._reserved = self._reserved, None
        if call is not None:
            call.leave_out()


class CallTask(Task):
    """The task of a call, whose value is what the request has brought."""

    def body_ended(self, engine: Runner[Task], failure: BaseException | None) -> Task | None:
        event = self.event
        if failure is not None or event is None:
            return super().body_ended(engine, failure)
        self.state_ = TaskState.DETACHED  # before the event hears of it: it may complete the task at once
        if not event.body_finished():
            return None
        self.value = event.value
        if event.failure is not None:
            note_task(event.failure, self)
        return engine.finish(self, event.failure)

    def event_fulfilled(self, error: BaseException | None) -> None:
        self.value = self.event.value
        super().event_fulfilled(error)


class Call:
    """One call, from its construct to the end of its request: a source of the event of its task.

    It stands between the promise of that event and the request, which comes late.
    """

    __slots__ = ("_event", "_operation", "_order", "_promise", "_requests", "_task", "_transfer", "_turn", "value")

    def __init__(self, operation: Operation, gate: Gate) -> None:
        self._operation = operation
        self._transfer = Transfer(operation.staging, gate) if operation.staging is not None else None
        self._event = Event()
        self._turn = Turn(self)
        self._order: Order | None = None
        self._task: ref[Task] | None = None
        self._promise: Promise | None = None
        self._requests: Requests | None = None
        self.value: Any = None

    def __str__(self) -> str:
        if self._requests is not None:
            return str(self._requests)
        behind = next(iter(self._turn.before), None)
        return f"{self._operation}, which is to be issued after {behind.call}" if behind else str(self._operation)

    def belong_to(self, task: Task) -> None:
        self._task = ref(task)
        self._event.attach(task)
        task.event = self._event
        task.special = True

    def take_turn(self) -> None:
        """Take the turn, unless it was reserved.

        Raises
        ------
        UsageError
            As `Operation.check`.
        """
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
        """Issue the call if its turn has come; else whoever issues the one before does."""
        self._event.be_fulfilled_by(self)

    def subscribe(self, promise: Promise) -> None:
        self._promise = promise
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
            issue([self._turn])

    def go(self) -> Sequence[Turn]:
        """Issue the call, or fail if it is left out; return the turns that are due then."""
        order, operation = self._order, self._operation
        error: BaseException
        due: Sequence[Turn]
        if self._turn.left_out:
            due = order.leave_out(self._turn, "") if order is not None else []
            error = TransportError(
                f"{operation} is not issued, since {self._turn.left_out} was left out before it, and it would match "
                f"another rank's call than the program means; {operation.way_out}",
                operation=str(operation),
            )
        else:
            try:
                check_mpi(operation.name)  # it may have ended meanwhile
                arrays = self._transfer.arrays if self._transfer is not None else {}
                begun = _checked(operation.call(self._matched, arrays), operation)
                requests = Requests(begun, self._engine, operation)
            except BaseException as failure:  # noqa: BLE001  # the task's
                error = transport_error(failure, str(operation)) if isinstance(failure, MPI.Exception) else failure
                due = order.leave_out(self._turn, self._left_out()) if order is not None else []
            else:
                due = self._passed() if not operation.matches_later else []
                try:
                    requests.subscribe(self)  # type: ignore[arg-type]  # as the promise that it stands for
                except BaseException as failure:  # noqa: BLE001  # a request given before, or nobody looks after it
                    error = failure
                else:
                    self._requests = requests
                    return due
        self._end(error)
        return due

    def _matched(self) -> None:
        issue(self._passed())

    def _passed(self) -> Sequence[Turn]:
        """Note that the call is issued, and can be left out no more; return the turns that are due then."""
        task = self._task() if self._task is not None else None
        if task is not None and task.callbacks:
            with suppress(ValueError):
                task.callbacks.remove(self.leave_out)  # a task without callbacks goes on with what it makes ready
        return self._order.passed(self._turn) if self._order is not None else []

    @property
    def _engine(self) -> Any:
        task = self._task() if self._task is not None else None
        return task.construct.runtime.engine if task is not None else None

    # -- its end -------------------------------------------------------------------------------------
    def passed(self, error: BaseException | None) -> None:
        """Take what has become of the request, as the promise of its source would."""
        if error is not None or self._transfer is None:
            self._end(error)
            return
        try:
            self._transfer.bring_back(self._end)
        except Exception as failure:  # noqa: BLE001  # the device's
            self._end(failure)

    def _end(self, error: BaseException | None) -> None:
        """Tell the event of the end."""
        promise, self._promise = self._promise, None
        self._transfer = None
        if promise is not None:
            if self._operation.brings:
                promise.value = self.value
            promise.passed(error)

    def leave_out(self, _task: Task | None = None) -> None:
        """Note that the task has ended, or will not be made; where it has not begun, the call is left out."""
        order = self._order
        if order is not None and not self._turn.is_over:
            issue(order.leave_out(self._turn, self._left_out()))

    def _left_out(self) -> str:
        task = self._task() if self._task is not None else None
        return f"{self._operation} ({task.key})" if task is not None else str(self._operation)


def _checked(requests: Any, operation: Operation) -> Any:
    """Return what an operation has returned, if that is a request, or several."""
    several = requests if isinstance(requests, (list, tuple)) else [requests]
    if not all(isinstance(one, (MPI.Request, Arrival)) for one in several):
        raise UsageError(f"{operation} returned {requests!r:.60}, no request; give a method that begins an operation")
    return requests


def issue(due: Sequence[Turn]) -> None:
    """Issue calls whose turn it is, and those whose turn it is then."""
    left = deque(due)
    while left:
        left.extend(left.popleft().call.go())  # type: ignore[union-attr]  # it is not over
