"""The runtime: the one place that sequences tasks, data, events and devices.

A `Runtime` owns an engine, a gate and its devices; `offload.runtime.generate` gives it tasks.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from offload.data.entries import Origin
from offload.devices import kinds
from offload.devices.kind import Kind
from offload.errors import (
    ClauseError,
    CleanupWarning,
    LeakError,
    RuntimeClosedError,
    UsageError,
)
from offload.events.gate import Gate
from offload.events.wakeup import LockWakeup, SemaphoreWakeup
from offload.interrupts import arrivals
from offload.interrupts.finalizers import put_off, refuse_inside
from offload.interrupts.frames import warn
from offload.interrupts.shields import Shield, in_one_piece, late
from offload.runtime import opened
from offload.runtime.keywords import takes_clauses
from offload.runtime.opening import not_a_specification, open_devices
from offload.runtime.places import initial_device, invalid_device
from offload.runtime.queues import Queues
from offload.runtime.settings import DisplayEnv, Settings, TargetOffload, format_env, read_settings
from offload.runtime.threads import Everything, RuntimeScope, Threads
from offload.tasks.engine import Engine
from offload.tasks.scope import current_scope
from offload.tasks.site import line_of
from offload.views.lines import Notifier

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from offload.devices.base import Device
    from offload.events.observer import Observer
    from offload.runtime.place import DevicePlace

_END = "the end of the runtime"

_CLOSED = "this runtime is closed; make another, or move the construct into its `with`"

_ENDING = "the process ends, and only what tasks generate is still run; wait for the thread that came here before"


class Runtime(Threads):
    """An isolated runtime: devices, worker threads, data environments.

    As a context manager it makes itself current; on exit it waits for all tasks, checks that nothing is left
    over, and closes its devices.

    Parameters
    ----------
    devices : str, optional
        ``"cuda"`` (all), ``"cuda:0,2"``, ``"sim"``, ``"sim:4"`` (a count, at most 1,024), ``"none"``, or a list of
        those separated by commas. None: ``OFFLOAD_DEVICES``, else ``ACC_DEVICE_TYPE``, else all CUDA devices that CuPy
        sees, else ``"sim:1"``.
    num_threads : int, optional
        Host workers besides the calling thread, at least 0; by default 2 to 4, by the number of processors.
    check : bool
        Raise `LeakError` at exit for what is still mapped or allocated, instead of a `CleanupWarning`. Fill
        uninitialised memory of simulated devices, whenever it is allocated, with NaN, with true where it is for bools,
        else with bytes 0xCB.
    seed : int, optional
        Take ready tasks, interleave simulated streams and place bodies at random, from this seed, to find
        programs that rely on an order which nothing promises. None: ``OFFLOAD_SEED``, else no seed.
        A seed fills uninitialised memory as ``check`` does.
    env : mapping, optional
        Used in place of ``os.environ``: ``OMP_TARGET_OFFLOAD``, ``OMP_DEFAULT_DEVICE``, ``OMP_MAX_TASK_PRIORITY``,
        ``OMP_CANCELLATION``, ``OMP_DISPLAY_ENV``, ``ACC_DEVICE_NUM``, ``ACC_DEVICE_TYPE``, ``OFFLOAD_DEVICES``,
        ``OFFLOAD_SIM_MEMORY``, ``OFFLOAD_HANG_S``, ``OFFLOAD_LOOP_DEVICES``, ``OFFLOAD_NOTIFY``, ``OFFLOAD_SEED``,
        ``OFFLOAD_UNSEEN``.

    Raises
    ------
    ClauseError
        A parameter or variable that means nothing.
    DeviceUnavailableError
        A device that does not exist here.
    UsageError
        CUDA devices, in a process that was forked from one that has used CUDA.
    UnsupportedError
        ``devices`` is a ``distributed.Client``: the devices of a Dask cluster are none of a runtime so far.
    """

    @takes_clauses
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
        opened.refuse_at_end()
        self._is_closed = True
        try:
            with Shield():  # threads start
                self._open(devices, num_threads, read_settings(env), check=check, seed=seed)
        except BaseException:
            if not self._is_closed:  # an interruption
                self._shut_down()
            raise

    def _open(
        self, devices: str | None, num_threads: int | None, settings: Settings, *, check: bool, seed: int | None
    ) -> None:
        if num_threads is None:
            num_threads = min(4, max(2, os.cpu_count() or 1))
        if type(num_threads) is not int or num_threads < 0:
            raise ClauseError(f"num_threads={num_threads!r} is not a number of host workers; use an int of at least 0")
        if seed is not None and type(seed) is not int:
            raise ClauseError(f"seed={seed!r:.60} is not a seed; use an int")
        if devices is not None and not isinstance(devices, str):
            raise not_a_specification(devices)
        self._check = check
        self.rng = _generator(settings.seed if seed is None else seed)
        poisons = check or self.rng is not None
        found = open_devices(devices or settings.device_spec, settings, self.rng, poisons=poisons)
        super().__init__(settings, found)
        self.notify = _observer(settings.notify, self.places)
        self.default_device = self._initial_default_device()
        wakes_by_driver = any(device.wakes_by_driver for device in found)
        waits_look = any(device.waits_look for device in found)
        self.gate = Gate(SemaphoreWakeup() if wakes_by_driver else LockWakeup(), others_look=waits_look)
        self.records: WeakSet[Any] = WeakSet()  # where task graphs keep what they have recorded here
        self.queues = Queues()
        self.glances_s = 0.0
        self._tokens: list[Any] = []
        self.engine = Engine(
            num_threads,
            self.rng,
            settings.hang_s,
            self.scope,
            max_priority=settings.max_task_priority,
            can_cancel=settings.cancellation,
            completions=self.gate,
            waits_look=waits_look,
        )
        opened.note_open(self)
        self._is_closed = False
        if settings.display_env is not DisplayEnv.NOTHING:
            sys.stderr.write(self.env_text(verbose=settings.display_env is DisplayEnv.ALL))

    def _initial_default_device(self) -> int:
        """Return what default-device-var begins with; what variables say means nothing where there is no device."""
        settings = self.settings
        if not self.places:
            is_mandatory = settings.target_offload is TargetOffload.MANDATORY
            return invalid_device if is_mandatory else self.initial_device
        number = settings.default_device
        if number is None:
            number = self._first_device() if settings.acc_device_num is None else settings.acc_device_num
            return invalid_device if number == self.initial_device else number  # OpenACC does not count the host
        return self.initial_device if number == initial_device else number

    def _first_device(self) -> int:
        """Return the primary that ``OFFLOAD_LOOP_DEVICES`` names: plain constructs belong where its data is."""
        named = self.settings.loop_devices
        return named[0] if isinstance(named, tuple) and named[0] < len(self.places) else 0

    def env_text(self, *, verbose: bool) -> str:
        """Return what `display_env` prints."""
        return format_env(self.settings, self.default_device, verbose=verbose)

    # -- being current -------------------------------------------------------------------------------
    def __enter__(self) -> Self:
        self._ensure_open()
        opened.note_open(self)
        self._tokens.append(current_scope.set(self.scope()))
        return self

    @in_one_piece
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            refuse_inside("the end of a runtime")  # it stays open until the process ends
            self.close(error)
        finally:
            with Shield():
                self._leave()
            if late.is_due:
                late.deliver()

    def _leave(self) -> None:
        """Have what was current before the block be so again, unless the block of another runtime is open in it.

        Coroutines and generators take turns: what was current before may have ended meanwhile.
        """
        token = self._tokens.pop()
        scope = current_scope.get()
        if scope is None or scope.runtime is not self:
            return
        try:
            current_scope.reset(token)
        except ValueError:
            current_scope.set(None)  # left in another context than it was entered in
        outer = cast("RuntimeScope[Self] | None", current_scope.get())
        if outer is not None and outer.runtime.is_left:
            current_scope.set(None)

    @property
    def is_left(self) -> bool:
        """Whether the runtime is closed, and no ``with`` of it is open."""
        return self._is_closed and not self._tokens

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
        with Shield():
            try:
                self._refuse_own_loop()
                self._wait_for_finalizers()
                self._wait_for_all()
                self.engine.close_for(_CLOSED)
                self._wait_for_all()  # for what another thread has made in between
            except UsageError as refused:
                if not self.engine.gives_up:  # it could never end here: all is as it was, and the runtime open
                    if error is None:
                        raise
                    error.add_note(f"the runtime is open still: {refused}")
                    return
                failure = self._with_unseen(refused)
            except BaseException as caught:  # noqa: BLE001  # raised below, or noted
                failure = caught
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

    def _wait_for_all(self) -> None:
        self.wait_for(self.scope(), Everything(self, _END))

    def _wait_for_finalizers(self) -> None:
        """Carry out what finalizers have asked for; if something would be left, also those of garbage."""
        self._wait_for_all()
        if self._leftovers():
            gc.collect()  # a mapping of an object that nobody can reach is not left over
        put_off.wait(self)

    def _with_unseen(self, error: BaseException) -> BaseException:
        """Return what gave up the wait for all, with the failures that the wait would have raised."""
        try:
            goal = Everything(self, _END)
            goal.is_left()
            goal.raise_failures(self.engine.take_failures)
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
        found = [kinds.known_as(place.device.kind) for place in self.places]
        advice = next((kind.in_forks for kind in found if kind is not None), Kind.in_forks)
        self.engine.close_for(f"this runtime belongs to the parent of a forked process; {advice}")

    def devices(self) -> list[Device]:
        """Return the devices, by number.

        Raises
        ------
        RuntimeClosedError
            The runtime is closed, or belongs to the parent of this process.
        """
        if self._is_closed:
            raise RuntimeClosedError(self.engine.closed)
        return [place.device for place in self.places]

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
        opened.note_closed(self)

    def _leftovers(self) -> list[str]:
        left = []
        for place in self.places:
            left += [
                f"{entry.label} {entry.origin.value} on device {place.device.number} "
                f"({entry.nbytes:,} bytes, count {entry.count})"
                + (f" at {line_of(entry.mapped_at)}" if entry.mapped_at is not None else "")
                for entry in place.table.entries()
                if entry.origin is not Origin.DECLARED
            ]
        left += [f"{what} from target_alloc at {line_of(call)}" for _, what, call in self._allocated.values()]
        return left


def _generator(seed: float | None) -> random.Random | None:
    """Return a generator of a reproducible order; None without a seed."""
    if seed is None:
        return None
    from random import Random  # 3 ms of the time of `import offload`, for those who seed only

    return Random(seed)  # noqa: S311  # no secret


def _observer(level: int, places: list[DevicePlace]) -> Observer | None:
    """Return the observer of everything on some devices, which have it from now on; None at level 0."""
    if not level:
        return None

    def number_of(array: Any) -> int | None:
        return next((place.device.number for place in places if place.device.is_array(array)), None)

    notifier = Notifier(level, number_of)
    for place in places:
        place.notify = notifier
    return notifier


arrivals.install()
