"""The runtime: the one place that sequences tasks, data, events and devices.

A `Runtime` owns an engine, a gate and its devices. It knows the place of each construct, and the scope of each host
thread. `offload.runtime.generate` gives it tasks.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast
from weakref import WeakSet

from offload.data.associations import take_declared
from offload.data.declarations import declarations
from offload.devices import kinds
from offload.devices.kind import Kind
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
from offload.interrupts import arrivals
from offload.interrupts.finalizers import put_off, refuse_inside
from offload.interrupts.frames import caller, warn
from offload.interrupts.shields import Shield, in_one_piece, late
from offload.runtime import observing, registry, reporting
from offload.runtime.everything import Everything
from offload.runtime.keywords import takes_clauses
from offload.runtime.leftovers import labels_at, leftovers
from offload.runtime.opening import DaskClient, generator, is_client, not_a_specification, open_devices
from offload.runtime.place import DevicePlace, initial_device, invalid_device
from offload.runtime.queues import Queues
from offload.runtime.settings import DisplayEnv, Settings, TargetOffload, format_env, read_settings, sanitize_mode
from offload.tasks.engine import Engine
from offload.tasks.goals import TaskEnd
from offload.tasks.parker import Parker
from offload.tasks.presence import Entered
from offload.tasks.region import Inherited, Region
from offload.tasks.scope import Scope, current_scope
from offload.tasks.states import TaskState
from offload.tasks.waiting import wait_within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from offload.devices.base import Device
    from offload.devices.streams import Lane
    from offload.events.observer import Calls
    from offload.sanitizer.findings import Finding
    from offload.tasks.goals import Goal
    from offload.tasks.site import Call
    from offload.tasks.task import Task

_END = "the end of the runtime"

_CLOSED = "this runtime is closed; create another, or move the construct into its `with` block"

_ENDING = "the process ends, and only constructs of its tasks still run; join this thread before the end of the program"


class RuntimeScope(Scope):
    """A scope of a `Runtime`; `offload.tasks.scope.Scope` knows only the members of the runtime that tasks need.

    Every scope is one: a runtime makes the first of each thread, and `Scope.beside` the others.
    """

    __slots__ = ()

    runtime: Runtime


class Runtime:
    """An isolated runtime: devices, worker threads, data environments.

    Use it as a context manager: it is the current runtime inside of the block. At the end it waits for all tasks,
    checks that no data is left over, and closes its devices.

    Parameters
    ----------
    devices : str or distributed.Client, optional
        ``"cuda"`` (all), ``"cuda:0,2"``, ``"sim"``, ``"sim:4"`` (a count, at most 1,024), ``"none"``, or a list of
        these separated by commas. A client, ``"dask"`` (the default client) or ``"dask:ADDRESS"``: the devices of the
        workers that the cluster has now. None: ``OFFLOAD_DEVICES``, else ``ACC_DEVICE_TYPE``, else all CUDA devices
        that CuPy sees, else ``"sim:1"``.
    num_threads : int, optional
        Host workers in addition to the calling thread, at least 0; by default 2 to 4, by the number of processors.
    check : bool
        Raise `LeakError` at the end if data is still mapped or allocated, instead of issuing a `CleanupWarning`. Fill
        uninitialised memory of simulated devices with NaN, True for bools, and otherwise bytes 0xCB.
    sanitize : bool or "error", optional
        Find missing clauses and waits on simulated devices, and print them at the end (`findings`), or raise them
        there as an ``"error"`` (`SanitizerError`). None: ``OFFLOAD_SANITIZE``, else False.
    seed : int, optional
        Choose ready tasks, interleave simulated streams and place bodies at random, from this seed. This finds programs
        that rely on an accidental order. A seed also fills memory as ``check`` does. None: ``OFFLOAD_SEED``, else no
        seed.
    env : mapping, optional
        Variables that replace ``os.environ``: ``OMP_TARGET_OFFLOAD``, ``OMP_DEFAULT_DEVICE``,
        ``OMP_MAX_TASK_PRIORITY``, ``OMP_CANCELLATION``, ``OMP_DISPLAY_ENV``, ``ACC_DEVICE_NUM``, ``ACC_DEVICE_TYPE``,
        ``OFFLOAD_DEVICES``, ``OFFLOAD_SIM_MEMORY``, ``OFFLOAD_HANG_S``, ``OFFLOAD_LEASE_S``, ``OFFLOAD_LOOP_DEVICES``,
        ``OFFLOAD_NOTIFY``, ``OFFLOAD_SANITIZE``, ``OFFLOAD_SEED``, ``OFFLOAD_TRACE``, ``OFFLOAD_UNSEEN``.

    Raises
    ------
    ClauseError
        A parameter or variable has a wrong value.
    DeviceUnavailableError
        A device does not exist on this machine. A cluster has no workers, or a worker has another version of `offload`
        or of Python.
    UnsupportedError
        A device is not simulated, and the runtime is to be sanitized.
    UsageError
        The process was forked from one that has used CUDA, and ``devices`` names CUDA devices. The client is
        asynchronous or closed.

    Examples
    --------
    >>> with omp.Runtime("sim:2", check=True) as runtime:
    ...     print([device.name for device in runtime.devices()], omp.get_num_devices())
    ['sim:0', 'sim:1'] 2
    """

    sanitized: Any = None  # its `SanitizedRun`
    calls: Calls | None  # of observers; None while there is none
    notify: Calls | None  # the same, if they are told of waits and launches

    checks_always = False
    """Whether every runtime checks, as ``offload run --check`` says."""

    sanitizes_always = False  # the same of ``--sanitize``

    defers = True
    """Whether host threads defer tasks outside of bodies; where nobody would wait for those they run at once."""

    @takes_clauses
    def __init__(
        self,
        devices: str | DaskClient | None = None,
        *,
        num_threads: int | None = None,
        check: bool = False,
        sanitize: bool | Literal["error"] | None = None,
        seed: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        if env is not None and not hasattr(env, "get"):
            raise ClauseError(f"env={env!r:.60} is not a mapping; use a dict of variables, or None for os.environ")
        registry.refuse_at_end()
        self._is_closed = True
        try:
            with Shield():  # threads start
                settings = read_settings(env)
                if mode := sanitize_mode(sanitize, settings, always=self.sanitizes_always):
                    from offload.runtime.sanitized import SanitizedRun  # nobody else needs it

                    self.sanitized = SanitizedRun(self, raises=mode == "error")
                self._open(devices, num_threads, settings, check=check or self.checks_always, seed=seed)
        except BaseException:
            if not self._is_closed:  # an interruption
                self._shut_down()
            elif self.sanitized is not None:
                self.sanitized.leave()
            raise

    def _open(
        self, devices: Any, num_threads: int | None, settings: Settings, *, check: bool, seed: int | None
    ) -> None:
        if num_threads is None:
            num_threads = min(4, max(2, os.cpu_count() or 1))
        if type(num_threads) is not int or num_threads < 0:
            raise ClauseError(f"num_threads={num_threads!r} is not a number of host workers; use an int of at least 0")
        if seed is not None and type(seed) is not int:
            raise ClauseError(f"seed={seed!r:.60} is not a seed; use an int")
        if devices is not None and not isinstance(devices, str) and not is_client(devices):
            raise not_a_specification(devices)
        if settings.trace:
            reporting.trace_as_told(settings.trace)
        self.rng = generator(settings.seed if seed is None else seed)
        poisons = check or self.rng is not None
        watch = getattr(self.sanitized, "watch", None)
        found = open_devices(devices or settings.device_spec, settings, self.rng, poisons, watch)
        self._set_up(settings, found, num_threads, check=check)
        if self.sanitized is not None:
            self.sanitized.start()
        registry.note_open(self)
        self._is_closed = False
        observing.equip(self, settings.notify)
        if settings.display_env is not DisplayEnv.NOTHING:
            sys.stderr.write(self.env_text(verbose=settings.display_env is DisplayEnv.ALL))

    def _set_up(self, settings: Settings, devices: Sequence[Device], num_threads: int, *, check: bool) -> None:
        # What the environment says.
        self.settings = settings
        # Those of the devices, by their numbers; the host's number follows.
        self.places = [DevicePlace(device) for device in devices]
        self.initial_device = len(self.places)
        for place in self.places:
            place.attend(partial(self.labels_at, place))
        # Whether devices are of different kinds, which cannot wait for each other's events.
        self.has_mixed_kinds = len({device.kind for device in devices}) > 1
        # The blocks of `target_alloc` that have not been freed, by the `id` of the array, with what each is and where.
        self._allocated: dict[int, tuple[Any, str, Call]] = {}
        self._check = check
        self._warned_host = False
        self.calls = self.notify = None
        # The default-device-var ICV that a thread begins with.
        self.default_device = self._initial_default_device()
        # The scope of each thread; and the regions of all threads that have one, as long as there is something in them.
        self.local = threading.local()
        self._roots: dict[Region, threading.Thread] = {}
        wakes_by_driver = any(device.wakes_by_driver for device in devices)
        waits_look = any(device.waits_look for device in devices)
        # Finds out which device work has passed.
        self.gate = Gate(SemaphoreWakeup() if wakes_by_driver else LockWakeup(), others_look=waits_look)
        # When a thread that launches last looked, for others, whether device work has passed.
        self.glances_s = 0.0
        # Where task graphs keep what they have recorded here.
        self.records: WeakSet[Any] = WeakSet()
        self.queues = Queues()
        # What was current before each open ``with`` of this runtime.
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

    def _initial_default_device(self) -> int:
        """Return the initial default-device-var; the variables have no effect if there is no device."""
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
        """Return the text that `display_env` prints."""
        return format_env(self.settings, self.default_device, verbose=verbose)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the sanitizer so far; empty if the runtime is not sanitized.

        Examples
        --------
        >>> with omp.Runtime("sim:1") as runtime:
        ...     print(runtime.findings)
        ()
        """
        return () if self.sanitized is None else self.sanitized.summary.findings

    # -- devices and their places --------------------------------------------------------------------
    def place(self, frame: Region, device_num: int | None, *, if_: bool = True) -> DevicePlace | None:
        """Return the place that a construct with this device number goes to; None for the host.

        With a false ``if_`` that is the host. A given number must exist in any case.

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
                "there is no device, so target regions run on the host; for a simulated device, set "
                "OFFLOAD_DEVICES=sim",
                HostFallbackWarning,
                running.construct.location if running is not None else "",
            )
        return None

    def default_place(self, frame: Region) -> DevicePlace | None:
        """Return the place of the region's default device; None if the caller has to ask `place`."""
        number = frame.inherited.default_device
        if self.engine.closed or number < 0:
            return None
        try:
            place = self.places[number]
        except IndexError:
            return None
        return place if place.declared == declarations.version else None

    def find_place(self, number: int) -> DevicePlace | None:
        """Return the place of a device number; None for the host's numbers, with any ``OMP_TARGET_OFFLOAD``.

        Raises
        ------
        ClauseError
            No device has this number.
        """
        self._ensure_open()
        if 0 <= number < len(self.places):
            place = self.places[number]
            if place.declared != declarations.version:
                take_declared(place)
            return place
        if number in (self.initial_device, initial_device):
            return None
        raise ClauseError(
            f"device {number} does not exist; this runtime has "
            + (f"devices 0 to {len(self.places) - 1}, and" if self.places else "no device, only")
            + f" the host, {self.initial_device} or -1"
        )

    def _ensure_open(self) -> None:
        if self.engine.is_closed:
            raise RuntimeClosedError(self.engine.closed)

    def _require_devices(self) -> None:
        if self.settings.target_offload is TargetOffload.MANDATORY:
            raise DeviceUnavailableError(
                "OMP_TARGET_OFFLOAD=MANDATORY, but this runtime has no device; "
                "give it one (devices=, OFFLOAD_DEVICES), or set OMP_TARGET_OFFLOAD=DEFAULT"
            )

    def place_of(self, array: Any) -> DevicePlace | None:
        """Return the place whose device holds ``array``; None if it is not a device array of this runtime."""
        for place in self.places:  # a generator takes three times as long, at each copy
            if place.device.is_array(array):
                return place
        return None

    def lane_of(self, stream: Any) -> Lane:
        """Return the lane of a native stream, the pool's or a foreign one.

        Raises
        ------
        EventError
            The argument is not a stream of a device of this runtime.
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
        where = caller()
        self._allocated[id(array)] = (array, what, (where.f_code, where.f_lasti))

    def forget_allocation(self, array: Any) -> str | None:
        """Forget a live block of ``target_alloc`` and return its record; None if ``array`` is not such a block."""
        found = self._allocated.pop(id(array), None)
        return None if found is None else found[1]

    def labels_at(self, place: DevicePlace) -> list[str]:
        """Return the data that the runtime has at a place, for the error about its loss."""
        return labels_at(place, [*self._allocated.values()])

    # -- threads, and their waits ----------------------------------------------------------------------
    def scope(self) -> RuntimeScope:
        """Return the scope of the calling thread for this runtime."""
        try:
            scope: RuntimeScope = self.local.scope
        except AttributeError:  # the thread has not used this runtime
            frame = Region(None, Inherited(self.default_device, is_final=not self.defers))
            self._roots[frame] = threading.current_thread()  # first: the end of the runtime waits for these
            observing.name_thread(self, self._roots[frame])
            self.local.scope = scope = RuntimeScope(self, frame)
            if len(self._roots) & 63 == 0:
                self._forget_threads()
        return scope

    def here(self) -> RuntimeScope:
        """Return the scope of the running code for this runtime, which need not be the current one."""
        scope = current_scope.get()
        if scope is not None and scope.runtime is self and scope.thread == threading.get_ident():
            return scope  # type: ignore[return-value]  # its runtime is this one
        return self.scope()

    def _forget_threads(self) -> None:
        """Drop the regions of threads that have ended and left nothing."""
        for frame, thread in list(self._roots.items()):
            if not (thread.is_alive() or frame.children.live or frame.children.failures):
                self._roots.pop(frame, None)

    def check_wait(self, task: Task) -> RuntimeScope:
        """Return the scope of the caller, which may wait for the task.

        Raises
        ------
        UsageError
            The task was only recorded, or it would wait for itself.
        """
        if task.state_ is TaskState.RECORDED:
            raise UsageError(
                f"{task.key} was only recorded and has not run; compute the graph: that returns the values by task.key"
            )
        refuse_inside(TaskEnd(task))
        scope = self.here()
        scope.frame("a wait for a task")  # refuses one where nobody may wait
        running = scope.task
        while running is not None:
            if running is task:
                raise UsageError(
                    f"{task.key} waits for itself; a task can wait neither for its own end nor for its ancestors"
                )
            running = running.frame.task
        return scope

    def wait_for_task(self, task: Task, timeout_s: float | None) -> None:
        """Block until a task is complete; `Task.result` says how."""
        scope = self.check_wait(task)
        goal = TaskEnd(task)
        if timeout_s is None:
            self.engine.wait(scope, goal)
            return
        if self.engine.coroutines is not None:
            self.engine.coroutines.refuse(goal)
        parker = Parker()  # an interrupt leaves it usable, which it does not a `threading.Event`
        goal.call(parker.unpark, self.engine.lock)
        try:
            if not parker.park(max(0.0, timeout_s)) and not task.finished:
                raise TimeoutError(f"{task.key} is not complete after {timeout_s:g} s; it is {task.state_}")
        finally:
            goal.leave(parker.unpark, self.engine.lock)

    def note_wait(self, task: Task) -> None:
        """Tell the recorder of the calling region, if there is one, that the region has waited for a task."""
        scope = current_scope.get()  # a coroutine has its own
        if scope is None or scope.runtime is not self or scope.thread != threading.get_ident():
            scope = getattr(self.local, "scope", None)
        recorder = scope.recorder if scope is not None else None
        if recorder is not None:
            recorder.note_wait(task)

    def wait_for(self, scope: Scope, goal: Goal) -> None:
        """Wait for tasks, and raise their failures as a group."""
        with Shield(scope) as shield:  # also for failures that nobody else will raise
            try:
                while goal.is_left() or (put_off.calls and put_off.is_due):
                    with Entered(scope):
                        wait_within(shield.thread, self.engine, scope, goal)
                    if put_off.calls:
                        put_off.carry_out()  # what the last task held, and what that asked for
                shield.thread.check()  # before the failures count as seen
                goal.raise_failures(self.engine.take_failures)
            finally:
                goal.let_go()

    def regions(self) -> list[Region]:
        """Return every region that may have generated tasks: host threads, and bodies that ended before their tasks."""
        return [*self._roots, *self.engine.frames]

    # -- being current -------------------------------------------------------------------------------
    def __enter__(self) -> Self:
        self._ensure_open()
        registry.note_open(self)
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
        """Make the scope before the block current again, unless the block of another runtime is open in it.

        Coroutines and generators take turns: the scope before may have ended meanwhile.
        """
        token = self._tokens.pop()
        scope = current_scope.get()
        if scope is None or scope.runtime is not self:
            return
        try:
            current_scope.reset(token)
        except ValueError:
            current_scope.set(None)  # left in another context than it was entered in
        outer = cast("RuntimeScope | None", current_scope.get())
        if outer is not None and outer.runtime.is_left:
            current_scope.set(None)

    @property
    def is_left(self) -> bool:
        """Whether the runtime is closed, and no ``with`` of it is open."""
        return self._is_closed and not self._tokens

    def close(self, error: BaseException | None = None) -> None:
        """Wait for all tasks, close the devices and report data that is left over.

        Parameters
        ----------
        error : BaseException, optional
            An exception in flight; later failures are added to it as notes.

        Raises
        ------
        BaseExceptionGroup
            Tasks have failed, and their failures have not been retrieved.
        LeakError
            With ``check=True``: data is still mapped or allocated.
        KeyboardInterrupt
            The wait was interrupted. The runtime is closed, and tasks that have not begun do not run.

        Examples
        --------
        >>> runtime = omp.Runtime("sim:1")
        >>> runtime.close()
        """
        if self._is_closed:
            return
        failure: BaseException | None = None
        running = self.scope().task
        if running is not None:
            raise UsageError(
                f"close in the task {running.name!r} would wait for that task itself; close the runtime where it was "
                "opened"
            )
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
                    error.add_note(f"the runtime is still open: {refused}")
                    return
                failure = self._with_unseen(refused)
            except BaseException as caught:  # noqa: BLE001  # raised below, or noted
                failure = caught
            left = leftovers(self.places, self._allocated.values())
            if self.sanitized is not None:
                failure = self.sanitized.end(self._allocated.values(), failure or error)
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

    def drop(self) -> None:
        """Close the runtime without a wait or a report: nobody is left who would want its results."""
        if not self._is_closed:
            with Shield():
                self._shut_down()

    def close_at_end(self, *, waits_for_bodies: bool) -> None:
        """Close the runtime as the process ends: host threads that go on generating tasks do not keep it open.

        Tasks that other tasks generate still run. The runtime abandons a wait in which no task began or ended for
        ``OFFLOAD_HANG_S`` seconds. If the end ``waits_for_bodies``, it does so only while no body runs.
        """
        self.engine.gives_up = True
        self.engine.gives_up_bodies = not waits_for_bodies
        self.engine.close_for(_ENDING, self.scope().region)
        self.close()

    def _wait_for_all(self) -> None:
        self.wait_for(self.scope(), Everything(self, _END))

    def _wait_for_finalizers(self) -> None:
        """Carry out requests of finalizers; if mappings would be left, also collect garbage and run its finalizers."""
        self._wait_for_all()
        if leftovers(self.places, self._allocated.values()):
            gc.collect()  # a mapping of an object that nobody can reach is not left over
        put_off.wait(self)

    def _with_unseen(self, error: BaseException) -> BaseException:
        """Return the error that ended the wait for all, with the failures that the wait would have raised."""
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
                "the end of the runtime would wait for its own event loop, which runs on this thread; close the "
                "runtime where it was created"
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
        observing.leave(self)
        if self.sanitized is not None:
            self.sanitized.leave()
        self.engine.close_for(_CLOSED)
        for records in self.records:
            records.leave(self)
        if any(frame.children.live for frame in self.regions()):  # the wait was interrupted, or given up
            self.engine.abandon(self.engine.closed)
            for place in self.places:
                place.abandon()
        else:
            for stream in self.gate.close():
                warn(f"{stream} never reached the point where it should fulfil an event", CleanupWarning)
            self.engine.close(self.engine.closed)
            for place in self.places:
                place.close()
            self.queues.close()
        self._allocated.clear()
        self.engine.frames.clear()  # each refers to the task whose body it was
        for frame in list(self._roots):
            frame.tracker.clear()  # clauses may outlive it
        registry.note_closed(self)


arrivals.install()
