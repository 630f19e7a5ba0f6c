"""Sanitized runtimes: the moments at which the order of a program is noted.

While a runtime is sanitized, a few methods of the classes below tell its `Orders` what the program asks for. They are
replaced as those of observed runtimes are (`offload.tasks.hooked`), so a run without a sanitizer pays nothing. Classes
of rooms above this one have such methods in their own modules.

Code that calls bodies and callbacks of the program is a caller of their frames, which a failure keeps. So it lets go of
tasks when they have run. Where Python's limit of recursion is reached in the middle of a note, the engine goes on.

The program's own calls of streams and events of a simulated device are told from the library's by the caller.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from offload.data.environment import DataEnvironment
from offload.data.sets import DeviceSet
from offload.devices.sim.device import SimDevice
from offload.devices.sim.stream import SimEvent, SimStream
from offload.events.event import Event
from offload.events.sources import StreamSource
from offload.interrupts.forks import in_forked_child
from offload.interrupts.frames import is_own
from offload.runtime.everything import Everything
from offload.runtime.launch import DeviceTask
from offload.runtime.observing import CountedEngine, LoggedEngine, ObservedEngine
from offload.runtime.queues import Queue
from offload.tasks import hooked
from offload.tasks.depend import DependType, Tracker
from offload.tasks.engine import Engine
from offload.tasks.futures import TaskFuture
from offload.tasks.goals import Emptied, Goal
from offload.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from offload.sanitizer.orders import Orders

NEED = "sanitize"
"""The need of the methods that tell the order."""

_MUTEX, _SET = DependType.MUTEXINOUTSET, DependType.INOUTSET


def begin(runtime: Any) -> Orders:
    """Note the order of a runtime from now on, and return it; the runtime has generated no task yet."""
    from offload.sanitizer.orders import Orders  # nobody else needs it

    found = hooked.orders[runtime] = Orders(runtime)
    hooked.replace({NEED}, NEED)
    return found


def end(runtime: Any) -> None:
    """Note the order of a runtime no more."""
    hooked.orders.pop(runtime, None)
    if not hooked.orders:
        hooked.replace((), NEED)


@in_forked_child
def _after_fork() -> None:
    """Forget the runtimes of the parent."""
    hooked.orders.clear()
    hooked.replace((), NEED)


def _orders_of(task: Any) -> Orders | None:
    return hooked.orders.get(task.construct.runtime)


def _all() -> list[Orders]:
    return list(hooked.orders.values())


def _hook(cls: Any, name: str) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Register the decorated ``make(plain)`` for a method."""

    def register(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        hooked.register(cls, name, make, NEED)
        return make

    return register


# -- the engine ------------------------------------------------------------------------------------
@_hook(Engine, "submit")
@_hook(ObservedEngine, "submit")
@_hook(LoggedEngine, "submit")
@_hook(CountedEngine, "submit")
def _noted_submit(plain: Any) -> Any:
    def submit(self: Any, task: Task, dependences: Any, orderings: Any = (), follows: Any = ()) -> bool:
        if (orders := _orders_of(task)) is not None:
            orders.created(task, follows)
        return plain(self, task, dependences, orderings, follows)  # type: ignore[no-any-return]

    return submit


@_hook(Engine, "finish")
@_hook(ObservedEngine, "finish")
@_hook(LoggedEngine, "finish")
@_hook(CountedEngine, "finish")
def _noted_finish(plain: Any) -> Any:
    def finish(self: Any, task: Task, *args: Any, **kwargs: Any) -> Task | None:
        with suppress(RecursionError):
            if (orders := _orders_of(task)) is not None:
                orders.ends(task)
        try:
            return plain(self, task, *args, **kwargs)  # type: ignore[no-any-return]
        finally:
            del task, args, kwargs

    return finish


@_hook(Engine, "release_early")
def _noted_release(plain: Any) -> Any:
    def release_early(self: Any, task: Task) -> Task | None:
        if (orders := _orders_of(task)) is not None:
            orders.ends(task)
        return plain(self, task)  # type: ignore[no-any-return]

    return release_early


@_hook(Task, "advance")
def _noted_advance(plain: Any) -> Any:
    def advance(self: Task, engine: Any, scope: Any) -> Task | None:
        with suppress(RecursionError):
            if (orders := _orders_of(self)) is not None:
                orders.begins(self)
        try:
            return plain(self, engine, scope)  # type: ignore[no-any-return]
        finally:
            del self

    return advance


# -- trackers --------------------------------------------------------------------------------------
@_hook(Tracker, "add")
def _noted_add(plain: Any) -> Any:
    def add(self: Tracker, handle: Any, accesses: Sequence[Any], edges: Any = None) -> list[Any]:
        found: list[Any] = plain(self, handle, accesses, edges)
        task: Any = handle() if isinstance(handle, ref) else None
        if task is not None and accesses is task.dependences and (orders := _orders_of(task)) is not None:
            orders.depends(task, accesses, found, _tokens(self, accesses))
        return found

    return add


def _tokens(tracker: Any, accesses: Sequence[Any]) -> Iterator[Hashable]:
    """Yield the things of which a task that has just been entered excludes others: mutexes, sets that it is in."""
    yield from tracker.exclusive
    for access in accesses:
        if access.joins is _SET:
            for key in access.keys or ():
                cell = tracker._cells.get(key)  # noqa: SLF001  # nobody else asks for the members of a set
                for other in () if cell is None else (cell, *cell.linked):
                    if other.joins is _SET:
                        yield _SET, other.last[0] if other.last.__class__ is list else other.last


@_hook(Tracker, "latest")
def _noted_latest(plain: Any) -> Any:
    def latest(self: Tracker, accesses: Sequence[Any]) -> list[Any]:
        found: list[Any] = plain(self, accesses)
        for orders in _all():
            orders.named(accesses, found)
        return found

    return latest


@_hook(Tracker, "_prune")
@_hook(Tracker, "_sweep")
def _forgetting_nothing(plain: Any) -> Any:
    def keep(self: Any, *args: Any) -> None:
        if not hooked.orders:
            plain(self, *args)
        for cell in args:
            cell.limit = 2 * len(cell.last)

    return keep


# -- waits -----------------------------------------------------------------------------------------
@_hook(Goal, "raise_failures")
def _noted_goal(plain: Any) -> Any:
    def raise_failures(self: Any, take: Any) -> None:
        if isinstance(self, Everything):
            if (orders := hooked.orders.get(self._runtime)) is not None:
                orders.joins_all()
        elif type(self) is Goal:
            for orders in _all():
                orders.joins_named()
            _join_all(self.tasks)  # not here: a failure that is raised refers to this frame
        plain(self, take)

    return raise_failures


def _join_all(tasks: Sequence[Any]) -> None:
    for task in tasks:
        if (orders := _orders_of(task)) is not None:
            orders.joins_task(task)


@_hook(Emptied, "raise_failures")
def _noted_emptied(plain: Any) -> Any:
    def raise_failures(self: Any, take: Any) -> None:
        for orders in _all():
            orders.joins_set(self._members)
        plain(self, take)

    return raise_failures


@_hook(Task, "exception")
@_hook(TaskFuture, "result")
@_hook(TaskFuture, "exception")
def _noted_exception(plain: Any) -> Any:
    def exception(self: Any, timeout: float | None = None) -> Any:
        task = self if isinstance(self, Task) else self._task
        try:
            return plain(self, timeout)
        finally:
            if task.finished and (orders := _orders_of(task)) is not None:  # else it has not ended in time
                orders.joins_task(task)
            del self, task  # as in `Task.exception`

    return exception


@_hook(Task, "done")
def _noted_done(plain: Any) -> Any:
    def done(self: Task) -> bool:
        is_done: bool = plain(self)
        if is_done and (orders := _orders_of(self)) is not None:
            orders.joins_task(self)
        return is_done

    return done


@_hook(Task, "add_done_callback")
def _noted_callback(plain: Any) -> Any:
    def add_done_callback(self: Task, fn: Callable[[Any], Any]) -> None:
        is_own_call = is_own(sys._getframe(1).f_globals.get("__name__"))  # noqa: SLF001  # as `caller` does
        orders = None if is_own_call or getattr(fn, "__module__", None) == "asyncio.tasks" else _orders_of(self)
        plain(self, fn if orders is None else partial(orders.calls_back, fn))

    return add_done_callback


# -- events ----------------------------------------------------------------------------------------
@_hook(Event, "kept")
def _noted_kept(plain: Any) -> Any:
    def kept(self: Any, promise: Any, error: BaseException | None) -> None:
        source = promise.source
        if promise is self._promise and not self._fulfilled and not isinstance(source, StreamSource):
            for orders in _all():
                if isinstance(source, str):  # a call of `fulfill`
                    orders.fulfilled(self)
                else:
                    orders.fulfilled_by_others(self)
        plain(self, promise, error)

    return kept


@_hook(Event, "be_fulfilled_by")
def _noted_source(plain: Any) -> Any:
    def be_fulfilled_by(self: Event, source: Any) -> None:
        orders = None
        if isinstance(source, StreamSource) and not self.is_promised and not self.is_fulfilled:
            stream = source._lane.stream  # noqa: SLF001  # nobody else asks
            orders = _orders_at(stream)
            if orders is not None:
                orders.fulfilled_on(self, stream)
        try:
            plain(self, source)
        except BaseException:
            if orders is not None:
                orders.rearmed(self)
            raise

    return be_fulfilled_by


@_hook(Event, "rearm")
def _noted_rearm(plain: Any) -> Any:
    def rearm(self: Event) -> None:
        for orders in _all():
            orders.rearmed(self)
        plain(self)

    return rearm


# -- device tasks ----------------------------------------------------------------------------------
@_hook(DeviceTask, "advance")
def _noted_launch(plain: Any) -> Any:
    def advance(self: DeviceTask, engine: Any, scope: Any) -> Task | None:
        orders, outer = _orders_of(self), None
        if orders is not None:
            orders.begins(self)
            outer = orders.launches(self)
        try:
            return plain(self, engine, scope)  # type: ignore[no-any-return]
        finally:
            if orders is not None:
                orders.launches(outer)
            del self, outer

    return advance


@_hook(DeviceTask, "_mark")
def _noted_mark(plain: Any) -> Any:
    def mark(self: DeviceTask, engine: Any) -> Task | None:
        if (orders := _orders_of(self)) is not None:
            orders.ends(self)
        return plain(self, engine)  # type: ignore[no-any-return]

    return mark


@_hook(DataEnvironment, "enter")
def _noted_enter(plain: Any) -> Any:
    def enter(self: DataEnvironment, *args: Any, **kwargs: Any) -> Any:
        plan = plain(self, *args, **kwargs)
        orders = _orders_on(self.device)
        if plan is not None and orders is not None:
            orders.mapped(plan.created, [entry for entry in plan.counted if entry not in plan.created])
        return plan

    return enter


@_hook(DeviceSet, "enter")
def _noted_enter_of_set(plain: Any) -> Any:
    def enter(self: DeviceSet, *args: Any, **kwargs: Any) -> Any:
        plan = plain(self, *args, **kwargs)
        orders = _orders_on(self.places[0].device)
        if orders is not None:
            for one in (plan, *plan.others):
                orders.mapped(one.created, [entry for entry in one.counted if entry not in one.created])
        return plan

    return enter


# -- queues ----------------------------------------------------------------------------------------
def _orders_on(device: Any) -> Orders | None:
    """Return the order of the runtime that has a device."""
    for runtime, orders in list(hooked.orders.items()):
        if any(place.device is device for place in runtime.places):
            return orders  # type: ignore[no-any-return]
    return None


@_hook(Queue, "take_failed")
def _noted_complete(plain: Any) -> Any:
    def take_failed(self: Queue) -> list[Task]:
        for orders in _all() if self.place is None else [_orders_on(self.place.device)]:
            if orders is not None:
                orders.joins_queue(self)
        return plain(self)  # type: ignore[no-any-return]

    return take_failed


@_hook(Queue, "count")
def _noted_count(plain: Any) -> Any:
    def count(self: Queue, task: Task) -> None:
        if (orders := _orders_of(task)) is not None:
            orders.counted(self, task)
        plain(self, task)

    return count


@_hook(Queue, "stream")
def _noted_stream(plain: Any) -> Any:
    def stream(self: Queue) -> Any:
        found = plain.fget(self)
        _expose(self, found)
        return found

    return property(stream)


@_hook(Queue, "use")
def _noted_use(plain: Any) -> Any:
    def use(self: Queue, stream: Any) -> None:
        plain(self, stream)
        if self.is_exposed and self.lane is not None:
            _expose(self, self.lane.stream)

    return use


def _expose(queue: Queue, stream: Any) -> None:
    orders = _orders_at(stream)
    if orders is not None:
        orders.exposed(queue, stream)


# -- streams of the program ------------------------------------------------------------------------
def _orders_at(stream: Any) -> Orders | None:
    """Return the order of the runtime that a stream or an event of a simulated device belongs to."""
    return _orders_on(stream.device) if isinstance(stream, (SimStream, SimEvent)) else None


def _of_program(one: Any) -> Orders | None:
    """Return the order that a call of a method belongs to; None if the library has called it."""
    if is_own(sys._getframe(2).f_globals.get("__name__")):  # noqa: SLF001  # as `caller` does
        return None
    return _orders_on(one) if isinstance(one, SimDevice) else _orders_at(one)


@_hook(Task, "wait_on")
def _noted_wait_on(plain: Any) -> Any:
    def wait_on(self: Task, stream: Any) -> None:
        orders = _orders_of(self) if isinstance(stream, SimStream) else None
        if orders is None:
            plain(self, stream)
            return
        # The call may wait for a task that has no place on a stream yet, which the program has not asked for.
        outer = orders.waits_unasked(None if self.event is None and self.device_num is None else self)
        try:
            plain(self, stream)
        finally:
            orders.waits_unasked(outer)
        orders.waits_for_task(stream, self)

    return wait_on


@_hook(SimStream, "launch")
def _noted_stream_launch(plain: Any) -> Any:
    def launch(self: SimStream, fn: Callable[..., Any], *args: Any) -> None:
        orders = _of_program(self)
        if orders is not None:
            fn, args = partial(orders.carries_out, orders.launched(self), fn, args), ()
        plain(self, fn, *args)

    return launch


@_hook(SimStream, "launch_host_func")
def _noted_host_func(plain: Any) -> Any:
    def launch_host_func(self: SimStream, callback: Callable[[Any], Any], arg: Any) -> None:
        orders = _of_program(self)
        if orders is not None:
            stretch, function = orders.launched(self), callback

            def callback(arg: Any) -> Any:
                return orders.carries_out(stretch, function, (arg,))

        plain(self, callback, arg)

    return launch_host_func


@_hook(SimStream, "record")
def _noted_record(plain: Any) -> Any:
    def record(self: SimStream, event: SimEvent | None = None) -> SimEvent:
        orders = _of_program(self)
        found: SimEvent = plain(self, event)
        if orders is not None:
            orders.recorded(found, self)
        return found

    return record


@_hook(SimStream, "wait_event")
def _noted_wait_event(plain: Any) -> Any:
    def wait_event(self: SimStream, event: SimEvent) -> None:
        orders = _of_program(self)
        if orders is not None:
            orders.waits_in_stream(self, event)
        plain(self, event)

    return wait_event


@_hook(SimStream, "synchronize")
def _noted_synchronize(plain: Any) -> Any:
    def synchronize(self: SimStream) -> None:
        orders = _of_program(self)
        plain(self)
        if orders is not None:
            orders.joins_stream(self)

    return synchronize


@_hook(SimStream, "done")
def _noted_stream_done(plain: Any) -> Any:
    def done(self: SimStream) -> bool:
        orders = _of_program(self)
        is_done: bool = plain.fget(self)
        if is_done and orders is not None:
            orders.joins_stream(self)
        return is_done

    return property(done)


@_hook(SimEvent, "record")
def _noted_event_record(plain: Any) -> Any:
    def record(self: SimEvent, stream: SimStream | None = None) -> None:
        orders = _of_program(self)
        plain(self, stream)
        if orders is not None:
            orders.recorded(self, self.device.current_stream() if stream is None else stream)

    return record


@_hook(SimEvent, "synchronize")
def _noted_event_synchronize(plain: Any) -> Any:
    def synchronize(self: SimEvent) -> None:
        orders = _of_program(self)
        plain(self)
        if orders is not None:
            orders.joins_event(self)

    return synchronize


@_hook(SimEvent, "done")
def _noted_event_done(plain: Any) -> Any:
    def done(self: SimEvent) -> bool:
        orders = _of_program(self)
        is_done: bool = plain.fget(self)
        if is_done and orders is not None:
            orders.joins_event(self)
        return is_done

    return property(done)


@_hook(SimEvent, "fire")
def _noted_fire(plain: Any) -> Any:
    def fire(self: SimEvent, point: int | None = None, lane: Any = None) -> None:
        orders = _of_program(self)
        if orders is not None:
            orders.fired(self)
        plain(self, point, lane)

    return fire


@_hook(SimDevice, "synchronize")
def _noted_device_synchronize(plain: Any) -> Any:
    def synchronize(self: SimDevice) -> None:
        orders = _of_program(self)
        plain(self)
        if orders is not None:
            orders.joins_device(self)

    return synchronize
