"""The runtime: the one place that sequences tasks, data, events and devices.

A `Runtime` owns an engine, a gate and its devices. Constructs find the runtime and the region that they are
encountered in with `here`, make a task, and give it to `Runtime.encounter`.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from contextlib import suppress
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from offload import current, icv
from offload.data.declared import declarations
from offload.data.entries import Origin
from offload.devices.opening import open_devices
from offload.errors import (
    ClauseError,
    CleanupWarning,
    DeviceUnavailableError,
    EventError,
    HostFallbackWarning,
    LeakError,
    RuntimeClosedError,
    UsageError,
)
from offload.events.gate import Gate
from offload.events.wakeup import LockWakeup, SemaphoreWakeup
from offload.finalizers import put_off
from offload.frames import warn
from offload.interrupts import Shield, lower_shield, raise_shield
from offload.launch import DevicePlace
from offload.notify import notifier
from offload.queues import Queues
from offload.tasks.depend import Followed
from offload.tasks.engine import MANY_LIVE, Engine
from offload.tasks.failures import raise_failures, see
from offload.tasks.region import Frame, Inherited
from offload.tasks.scope import Parker, Scope, current_scope
from offload.tasks.task import Task, TaskState

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence
    from contextvars import Token
    from types import TracebackType
    from typing import Self

    from offload.devices.streams import Lane

initial_device = -1
"""The host's device number, besides ``get_initial_device()``."""

invalid_device = -2
"""A device number that never exists."""


_GLANCE_S = 30e-6
"""How often a thread that launches looks whether somebody can go on who waits for device work."""

_MOMENT_S, _MOMENTS = 10e-6, 4
"""What it leaves to them then: a sleep is some 60 µs long at least, as long as a thread takes to wake up."""

_CLOSED = "this runtime is closed; make another, or move the construct into its `with`"

_ENDING = "the process ends, and only what tasks generate is still run; wait for the thread that came here before"


class Runtime:
    """An isolated runtime: devices, worker threads, data environments.

    As a context manager it makes itself current; on exit it waits for all tasks, checks that nothing is left
    over, and closes its devices.

    Parameters
    ----------
    devices : str, optional
        ``"cuda"`` (all), ``"cuda:0,2"``, ``"sim"``, ``"sim:4"`` (a count), ``"none"``, or a list of those separated by
        commas. None: ``OFFLOAD_DEVICES``, else ``ACC_DEVICE_TYPE``, else all CUDA devices that CuPy sees, else
        ``"sim:1"``.
    num_threads : int, optional
        Host workers besides the calling thread, at least 0; by default 2 to 4, by the number of processors.
    check : bool
        Raise `LeakError` at exit for what is still mapped or allocated, instead of a `CleanupWarning`.
    seed : int, optional
        Take ready tasks, interleave simulated streams and place bodies at random, from this seed, to find
        programs that rely on an order which nothing promises.
    env : mapping, optional
        Used in place of ``os.environ``: ``OMP_TARGET_OFFLOAD``, ``OMP_DEFAULT_DEVICE``, ``OMP_MAX_TASK_PRIORITY``,
        ``OMP_CANCELLATION``, ``OMP_DISPLAY_ENV``, ``ACC_DEVICE_NUM``, ``ACC_DEVICE_TYPE``, ``OFFLOAD_DEVICES``,
        ``OFFLOAD_SIM_MEMORY``, ``OFFLOAD_HANG_S``, ``OFFLOAD_NOTIFY``.

    Raises
    ------
    ClauseError
        A parameter or variable that means nothing.
    DeviceUnavailableError
        A device that does not exist here.
    """

    def __init__(
        self,
        devices: str | None = None,
        *,
        num_threads: int | None = None,
        check: bool = False,
        seed: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        if env is not None and not hasattr(env, "get"):
            raise ClauseError(f"env={env!r:.60} is not a mapping; use a dict of variables, or None for os.environ")
        current.refuse_at_end()
        settings = self.settings = icv.read_settings(env)
        if num_threads is None:
            num_threads = min(4, max(2, os.cpu_count() or 1))
        if type(num_threads) is not int or num_threads < 0:
            raise ClauseError(f"num_threads={num_threads!r} is not a number of host workers; use an int of at least 0")
        if seed is not None and type(seed) is not int:
            raise ClauseError(f"seed={seed!r:.60} is not a seed; use an int")
        if devices is not None and not isinstance(devices, str):
            raise ClauseError(f"devices={devices!r} is not a string; write for example 'cuda', 'sim:2' or 'none'")
        self._check = check
        self._rng = _generator(seed)
        opened = open_devices(devices or settings.device_spec, settings, self._rng)
        self.places = [DevicePlace(device) for device in opened]
        self.notify = notifier(settings.notify, self.places)
        self.initial_device = len(self.places)
        self.default_device = self._initial_default_device()
        self.has_mixed_kinds = len({place.device.kind for place in self.places}) > 1
        uses_driver = any(place.device.kind == "cuda" for place in self.places)
        self.gate = Gate(SemaphoreWakeup() if uses_driver else LockWakeup())
        self._local = threading.local()
        self._roots: dict[Frame, threading.Thread] = {}
        self._allocated: dict[int, tuple[Any, str]] = {}
        self.records: WeakSet[Any] = WeakSet()  # where task graphs keep what they have recorded here
        self.queues = Queues()
        self._glances_s = 0.0
        self._tokens: list[Any] = []
        self._warned_host = False
        self._is_closed = False
        self.engine = Engine(
            num_threads,
            self._rng,
            settings.hang_s,
            self.scope,
            max_priority=settings.max_task_priority,
            can_cancel=settings.cancellation,
        )
        self.engine.hurry, self.engine.relax = self.gate.hurry, self.gate.relax
        if uses_driver:
            self.engine.look = self.gate.look
        current.note_open(self)
        if settings.display_env is not icv.DisplayEnv.NOTHING:
            sys.stderr.write(self.env_text(verbose=settings.display_env is icv.DisplayEnv.ALL))

    def _initial_default_device(self) -> int:
        """Return what default-device-var begins with; what variables say means nothing where there is no device."""
        settings = self.settings
        if not self.places:
            is_mandatory = settings.target_offload is icv.TargetOffload.MANDATORY
            return invalid_device if is_mandatory else self.initial_device
        number = settings.default_device
        if number is None:
            number = settings.acc_device_num or 0
            return invalid_device if number == self.initial_device else number  # OpenACC does not count the host
        return self.initial_device if number == initial_device else number

    def env_text(self, *, verbose: bool) -> str:
        """Return what `display_env` prints."""
        return icv.format_env(self.settings, self.default_device, verbose=verbose)

    # -- being current -------------------------------------------------------------------------------
    def __enter__(self) -> Self:
        self._ensure_open()
        current.note_open(self)
        self._tokens.append(current_scope.set(self.scope()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            current.refuse_inside("the end of a runtime")  # it stays open until the process ends
            self.close(error)
        finally:
            self._leave(self._tokens.pop())

    def _leave(self, token: Token[Scope | None]) -> None:
        """Have what was current before the block be so again, unless the block of another runtime is open in it.

        Coroutines and generators take turns: what was current before may have ended meanwhile.
        """
        scope = current_scope.get()
        if scope is None or scope.runtime is not self:
            return
        try:
            current_scope.reset(token)
        except ValueError:
            current_scope.set(None)  # left in another context than it was entered in
        scope = current_scope.get()
        if scope is not None and scope.runtime.is_left:
            current_scope.set(None)

    @property
    def is_left(self) -> bool:
        """Whether the runtime is closed, and no ``with`` of it is open."""
        return self._is_closed and not self._tokens

    def scope(self) -> Scope:
        """Return what the calling thread is doing for this runtime."""
        scope: Scope | None = getattr(self._local, "scope", None)
        if scope is None:
            frame = Frame(None, Inherited(self.default_device))
            scope = Scope(self, frame)
            self._roots[frame] = threading.current_thread()  # first: the end of the runtime waits for these
            self._local.scope = scope
            if len(self._roots) & 63 == 0:
                self._forget_threads()
        return scope

    def _forget_threads(self) -> None:
        """Drop the regions of threads that have ended and left nothing."""
        for frame, thread in list(self._roots.items()):
            if not (thread.is_alive() or frame.children.live or frame.children.failures):
                self._roots.pop(frame, None)

    def close(self, error: BaseException | None = None) -> None:
        """Wait for all tasks, close the devices and report what is left.

        Parameters
        ----------
        error : BaseException, optional
            One in flight: what is found here is added to it as notes.

        Raises
        ------
        BaseExceptionGroup
            Failures of tasks that nobody has seen.
        LeakError
            With ``check=True``: something is still mapped or allocated.
        KeyboardInterrupt
            The wait was interrupted. The runtime is closed: what has not begun does not run.
        """
        if self._is_closed:
            return
        failure: BaseException | None = None
        running = self.scope().task
        if running is not None:
            raise UsageError(f"close in the task {running.name!r}, which it would wait for; close where it was opened")
        try:
            self._refuse_own_loop()
            self._wait_for_finalizers()
            self.wait_for_all("the end of the runtime")
            self.engine.close_for(_CLOSED)
            self.wait_for_all("the end of the runtime")  # for what another thread has made in between
        except UsageError as refused:
            if not self.engine.gives_up:  # it could never end here: all is as it was, and the runtime open
                if error is None:
                    raise
                error.add_note(f"the runtime is open still: {refused}")
                return
            failure = self._with_unseen(refused)
        except BaseException as caught:  # noqa: BLE001  # raised below, or noted
            failure = caught
        with Shield():
            left = self._leftovers()
            self._shut_down()
        if left:
            message = "left at the end of the runtime: " + "; ".join(left)
            if error is not None:
                error.add_note(message)
            elif failure is not None:
                failure.add_note(message)
            elif self._check:
                failure = LeakError(message)
            else:
                warn(message, CleanupWarning)
        if failure is not None and failure is not error:
            if error is None:
                try:
                    raise failure
                finally:
                    del failure  # or the traceback would refer to this frame, and that to the failure
            error.add_note(f"then, at the end of the runtime: {failure!r}")

    def close_at_end(self, *, waits_for_bodies: bool) -> None:
        """Close the runtime as the process ends: host threads that go on generating tasks do not keep it open.

        What tasks generate still runs. A wait in which no task began or ended for ``OFFLOAD_HANG_S`` is given up, where
        the end ``waits_for_bodies`` only if none runs.
        """
        self.engine.gives_up = True
        self.engine.gives_up_bodies = not waits_for_bodies
        self.engine.close_for(_ENDING, self.scope().region)
        self.close()

    def _wait_for_finalizers(self) -> None:
        """Carry out what finalizers have asked for; if something would be left, also those of garbage."""
        self.wait_for_all("the end of the runtime")
        if self._leftovers():
            gc.collect()  # a mapping of an object that nobody can reach is not left over
        put_off.wait(self)

    def _with_unseen(self, error: BaseException) -> BaseException:
        """Return what gave up the wait for all, with the failures that the wait would have raised."""
        try:
            self._raise_unseen(self.regions(), "the end of the runtime")
        except BaseExceptionGroup as group:
            return BaseExceptionGroup("the runtime was given up, and tasks failed", [error, *group.exceptions])
        return error

    def _refuse_own_loop(self) -> None:
        coroutines = self.engine.coroutines
        if coroutines is not None and coroutines.is_own_thread():
            raise UsageError(
                "the end of the runtime, on the thread of its own event loop, which it would wait for; "
                "close it where it was made"
            )

    def disown(self) -> None:
        """Become unusable in a forked child."""
        self._is_closed = True
        self.engine.close_for("this runtime belongs to the parent of a forked process; make one in the child")

    def _shut_down(self) -> None:
        self._is_closed = True
        self.engine.close_for(_CLOSED)
        for records in self.records:
            records.leave(self)
        if any(frame.children.live for frame in self.regions()):  # the wait was interrupted, or given up
            self.engine.abandon(self.engine.closed)
        else:
            for stream in self.gate.close():
                warn(f"{stream} never got to an event that was to be fulfilled there", CleanupWarning)
            self.engine.close(self.engine.closed)
            for place in self.places:
                place.close()
            self.queues.close()
        self._allocated.clear()
        self.engine.frames.clear()  # each refers to the task whose body it was
        for frame in list(self._roots):
            frame.tracker.clear()  # clauses may outlive it
        current.note_closed(self)

    def _leftovers(self) -> list[str]:
        left = []
        for place in self.places:
            left += [
                f"{entry.label} {entry.origin.value} on device {place.device.number} "
                f"({entry.nbytes:,} bytes, count {entry.count})"
                for entry in place.table.entries()
                if entry.origin is not Origin.DECLARED
            ]
        left += [f"{what} from target_alloc" for _, what in self._allocated.values()]
        return left

    def _ensure_open(self) -> None:
        if self.engine.is_closed:
            raise RuntimeClosedError(self.engine.closed)

    # -- tasks ---------------------------------------------------------------------------------------
    def encounter(
        self, scope: Scope, frame: Frame, make: Callable[[Frame], Task], dependences: Sequence[Any], *, deferred: bool
    ) -> Task:
        """Generate a task: deferred, or run now by this thread, which waits until it is complete.

        In a final task nothing is deferred. An undeferred task that fails raises its exception here.
        """
        if self.engine.closed and self.engine.refuses(frame):  # before the task takes its event
            raise RuntimeClosedError(self.engine.closed)
        deferred = deferred and not frame.inherited.is_final
        if self.engine.coroutines is not None and not deferred and dependences:
            self._refuse_to_block(scope, frame, dependences)
        if not deferred:
            for dependence in dependences:
                for item in dependence.items:
                    if isinstance(item, Followed) and isinstance(item.what, Task):
                        self.check_wait(item.what)
        with Shield(scope):
            recorder = frame.recorder
            task = make(frame)
            if recorder is not None:
                recorder.add(task, make, (*dependences, *task.orderings), deferred=deferred)
                if not recorder.executes:
                    task.state_ = TaskState.RECORDED
                    return task
            if not deferred:
                failure = self.run_undeferred(scope, task, dependences)
                if failure is not None:
                    see(task)
                    try:
                        raise failure
                    finally:
                        del task, make, recorder, failure  # the traceback must not refer to what refers to the failure
                return task
            self.submit(scope, frame, task, dependences)
            return task

    def defer(self, scope: Scope, frame: Frame, task: Task, dependences: Sequence[Any]) -> None:
        """Generate a deferred task in a region where nothing but its own clauses matters."""
        saved = raise_shield(scope)  # as `Shield` does, at half the price
        try:
            self.submit(scope, frame, task, dependences)
        except BaseException as error:
            self.engine.mend(task)
            lower_shield(scope, saved, error)
            raise
        lower_shield(scope, saved)

    def submit(self, scope: Scope, frame: Frame, task: Task, dependences: Sequence[Any]) -> None:
        """Enter a deferred task, and launch or hand it over if it is ready."""
        if self.engine.submit(task, dependences):
            self.begin(scope, task)
        if task.launched:  # else it may be many others that it waits for, and not its stream
            if self.gate.watched or self.gate.has_told:
                self._step_aside()
        elif len(frame.children.live) > MANY_LIVE:
            self.engine.throttle(scope, frame)

    def _step_aside(self) -> None:
        """Complete a task that somebody waits for, if its device work has passed, and leave the GIL to who follows it.

        A launch lets go of the GIL for less time than a thread needs to wake up, be it the completer or a worker.
        """
        gate, engine = self.gate, self.engine
        if engine.look is None:
            return
        now_s = perf_counter()
        if gate.watched and now_s >= self._glances_s:
            self._glances_s = now_s + _GLANCE_S
            gate.glance()
        if gate.has_told:
            gate.has_told = False
            for _ in range(_MOMENTS):
                if not engine.woken:
                    return
                sleep(_MOMENT_S)

    def _refuse_to_block(self, scope: Scope, frame: Frame, dependences: Sequence[Any]) -> None:
        """Raise `UsageError` before a task is made that this thread would wait for, and keep from beginning."""
        if frame.recorder is None or frame.recorder.executes:
            before = [task for handle in frame.tracker.latest(dependences) if (task := handle()) is not None]
            self.engine.coroutines.refuse("a construct that is not deferred", (), before)

    def begin(self, scope: Scope, task: Task) -> None:
        """Launch a deferred task that is ready on this thread, if it only enqueues, or hand it to another."""
        inline = task.launches_inline
        if self._rng is not None:  # a body may run inside of the call or later: let nobody rely on either
            inline = task.waits_in_stream_order and self._rng.random() < 0.5
        if inline:
            self.engine.launch(task, scope)
        else:
            self.engine.make_ready(task)

    def run_undeferred(self, scope: Scope, task: Task, dependences: Sequence[Any]) -> BaseException | None:
        """Run a task on this thread once its predecessors allow, wait until it is complete, and return its failure.

        Whoever calls this raises the failure, and says that it has been seen.
        """
        engine = self.engine
        task.owner = scope.parker
        task.special = True
        if engine.submit(task, dependences):
            task.is_ready = True
        try:
            while not (task.finished or task.state_ is TaskState.DETACHED):
                if task.is_ready:
                    if put_off.calls:
                        put_off.carry_out()  # it may be what a launch without memory is to be tried again for
                    task.is_ready = False
                    engine.begin_undeferred(task, scope)
                    continue
                engine.wait(
                    scope,
                    lambda: task.is_ready or task.finished or task.state_ is TaskState.DETACHED,
                    (),
                    _Encounter(task),
                    awaited=(task,),
                    helps=scope.task is not None,  # else a worker will: a user may hold a lock across the construct
                )
        except BaseException:
            engine.disown(task)
            raise
        return task.failure

    def check_wait(self, task: Task) -> Scope:
        """Return what the caller is doing, who may wait for the task.

        Raises
        ------
        UsageError
            The task has not run and does not, or it would wait for itself.
        """
        if task.state_ is TaskState.RECORDED:
            raise UsageError(f"{task.key} was only recorded, it has not run; compute the graph")
        current.refuse_inside(f"the wait for {task.key}")
        scope = current.current_scope_of(self)
        scope.frame("a wait for a task")  # refuses one where nobody may wait
        running = scope.task
        while running is not None:
            if running is task:
                raise UsageError(
                    f"{task.key} waits for itself; a task cannot wait for its own end, nor for its ancestors'"
                )
            running = running.frame.task
        return scope

    def wait_for_task(self, task: Task, timeout_s: float | None) -> None:
        """Block until a task is complete; `Task.result` says how."""
        scope = self.check_wait(task)
        task.watch()
        if timeout_s is not None:
            if self.engine.coroutines is not None:
                self.engine.coroutines.refuse(f"the wait for {task.key}", (), (task,))
            parker = Parker()  # an interrupt leaves it usable, which it does not a `threading.Event`

            def tell(_: Task) -> None:
                parker.unpark()

            task.add_done_callback(tell)
            try:
                if not parker.park(max(0.0, timeout_s)) and not task.finished:
                    raise TimeoutError(f"{task.key} is not complete after {timeout_s:g} s; it is {task.state_}")
            finally:
                with suppress(ValueError):  # it is complete, or is so at this very moment
                    (task.callbacks or []).remove(tell)
            return
        task.add_done_callback(lambda _: scope.parker.unpark())
        self.engine.wait(scope, lambda: task.finished, (), f"the wait for {task.key}", awaited=(task,))

    def note_wait(self, task: Task) -> None:
        """Tell the recorder of the calling region, if there is one, that the region has waited for a task."""
        scope = current_scope.get()  # a coroutine has its own
        if scope is None or scope.runtime is not self or scope.thread != threading.get_ident():
            scope = getattr(self._local, "scope", None)
        recorder = scope.recorder if scope is not None else None
        if recorder is not None:
            recorder.note_wait(task)

    def wait_for_children(self, scope: Scope, frame: Frame, where: str) -> None:
        """Wait for the tasks that a region has generated, and raise what failed among them."""
        children = frame.children
        with Shield(scope):  # also for failures that nobody else will raise
            while children.live or put_off.is_due:
                if children.live:
                    self.engine.wait(scope, lambda: not children.live, (children,), where)
                put_off.carry_out()  # what the last task held, and what that asked for
            raise_failures(self.engine.take_failures(children), where)

    def wait_for_all(self, where: str) -> None:
        """Wait for every task of the runtime, and raise what failed among them."""
        scope = self.scope()
        with Shield(scope):  # also for failures that nobody else will raise
            while True:
                put_off.carry_out()
                regions = self.regions()
                busy = [frame.children for frame in regions if frame.children.live]
                if busy:
                    self.engine.wait(scope, lambda: not any(tasks.live for tasks in busy), busy, where)  # noqa: B023  # used in this turn only
                elif not (set(self.regions()) - set(regions) or put_off.is_due):
                    break  # no body that ended meanwhile has left a region with tasks
            self._raise_unseen(regions, where)

    def _raise_unseen(self, regions: Sequence[Frame], where: str) -> None:
        raise_failures([task for frame in regions for task in self.engine.take_failures(frame.children)], where)

    def regions(self) -> list[Frame]:
        """Return every region that may have generated tasks: host threads, and bodies that ended before their tasks."""
        return [*self._roots, *self.engine.frames]

    # -- devices -------------------------------------------------------------------------------------
    def place(self, frame: Frame, device_num: int | None, *, if_: bool = True) -> DevicePlace | None:
        """Return the place that a construct with this device number goes to; None for the host.

        With ``if_`` false that is the host, as asked for; a number that was given must exist all the same.

        Raises
        ------
        ClauseError
            No device has this number.
        DeviceUnavailableError
            There is no device at all, and ``OMP_TARGET_OFFLOAD`` is MANDATORY.
        """
        if device_num is not None:
            place = self.find_place(device_num)
            if not self.places:
                self._require_devices()
            return place if if_ else None
        self._ensure_open()
        if self.places and if_:
            try:
                return self.find_place(frame.inherited.default_device)
            except ClauseError as error:
                number = self.settings.acc_device_num
                if number is not None and frame.inherited.default_device in (invalid_device, number):
                    raise ClauseError(
                        f"ACC_DEVICE_NUM={number}: device {number} does not exist; this runtime has devices 0 to "
                        f"{len(self.places) - 1}, and OpenACC does not count the host"
                    ) from None
                error.add_note("it is the default device: see OMP_DEFAULT_DEVICE")
                raise
        if not self.places:
            self._require_devices()
        if if_ and not self._warned_host:
            self._warned_host = True
            running = frame.task  # whose construct stands for a body without lines of the program
            warn(
                "there is no device: target regions run on the host",
                HostFallbackWarning,
                running.construct.location if running is not None else "",
            )
        return None

    def default_place(self, frame: Frame) -> DevicePlace | None:
        """Return the place of the region's default device if it can be used as it is; else `place` says why not."""
        number = frame.inherited.default_device
        if self.engine.closed or not 0 <= number < len(self.places):
            return None
        place = self.places[number]
        return place if place.declared == declarations.version else None

    def find_place(self, number: int) -> DevicePlace | None:
        """Return the place of a device number; None for the host's numbers, whatever ``OMP_TARGET_OFFLOAD`` says.

        Raises
        ------
        ClauseError
            No device has this number.
        """
        self._ensure_open()
        if 0 <= number < len(self.places):
            place = self.places[number]
            if place.declared != declarations.version:
                place.take_declared()
            return place
        if number in (self.initial_device, initial_device):
            return None
        raise ClauseError(
            f"device {number} does not exist; this runtime has "
            + (f"devices 0 to {len(self.places) - 1}, and" if self.places else "no device, only")
            + f" the host, {self.initial_device} or -1"
        )

    def _require_devices(self) -> None:
        if self.settings.target_offload is icv.TargetOffload.MANDATORY:
            raise DeviceUnavailableError(
                "OMP_TARGET_OFFLOAD=MANDATORY, but this runtime has no device; "
                "give it one (devices=, OFFLOAD_DEVICES), or set OMP_TARGET_OFFLOAD=DEFAULT"
            )

    def place_of(self, array: Any) -> DevicePlace | None:
        """Return the place whose device holds ``array``; None if it is none of this runtime's device arrays."""
        for place in self.places:  # a generator takes three times as long, at each copy
            if place.device.is_array(array):
                return place
        return None

    def lane_of(self, stream: Any) -> Lane:
        """Return the lane of a native stream, the pool's or a foreign one.

        Raises
        ------
        EventError
            It is not a stream of a device of this runtime.
        """
        for place in self.places:
            if place.device.owns_stream(stream):
                return place.lane_of(stream)
        raise EventError(
            f"{type(stream).__name__} {stream!r:.60} is not a stream of a device of this runtime; "
            "use current_stream(), stream(n) or a cupy.cuda.Stream of the device"
        )

    def note_allocation(self, array: Any, what: str) -> None:
        """Remember a block of ``target_alloc`` until it is freed."""
        self._allocated[id(array)] = (array, what)

    def forget_allocation(self, array: Any) -> str | None:
        """Forget a live block of ``target_alloc`` and return what was noted of it; None if ``array`` is none."""
        found = self._allocated.pop(id(array), None)
        return None if found is None else found[1]


class _Encounter:
    """What messages call the construct of an undeferred task: to look up its line takes as long as to wait for it."""

    __slots__ = ("_task",)

    def __init__(self, task: Task) -> None:
        self._task = task

    def __str__(self) -> str:
        construct = self._task.construct
        return f"{construct.directive} {self._task.name!r} at {construct.location}"


def _generator(seed: float | None) -> random.Random | None:
    """Return a generator of a reproducible order; None without a seed."""
    if seed is None:
        return None
    from random import Random  # 3 ms of the time of `import offload`, for those who seed only

    return Random(seed)  # noqa: S311  # no secret
