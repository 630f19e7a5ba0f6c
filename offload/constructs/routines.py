"""Routines about devices, streams and where a body is, under OpenMP's names without ``omp_``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import is_device_array, label
from offload.constructs.clauses.maps import check_device
from offload.constructs.clauses.views import PartialView
from offload.constructs.queueing import give_stream
from offload.devices.host import Host
from offload.errors import ClauseError, UsageError
from offload.runtime.current import current_runtime, here
from offload.runtime.keywords import takes_clauses
from offload.runtime.place import initial_device
from offload.tasks.region import Inherited
from offload.tasks.task import Task

if TYPE_CHECKING:
    from offload.devices.base import Device
    from offload.runtime.queues import Queue


# -- devices (OpenMP 5.2, 18.7 "Device Information Routines") ----------------------------------------


def get_num_devices() -> int:
    """Return the number of non-host devices of the current runtime."""
    return len(current_runtime().places)


def get_initial_device() -> int:
    """Return the host's device number, which is the number of devices."""
    return current_runtime().initial_device


def get_default_device() -> int:
    """Return the device number that constructs without ``device=`` use: the current task's default-device-var.

    It begins as ``OMP_DEFAULT_DEVICE`` or 0; where there is no device as the host's number, under
    ``OMP_TARGET_OFFLOAD=MANDATORY`` as `invalid_device`. A task inherits it when it is generated.

    Notes
    -----
    OpenMP 5.2, 18.7 "Device Information Routines" (section numbers unchecked).
    """
    inherited = here().inherited
    return 0 if inherited is None else inherited.default_device


def set_default_device(device: int) -> None:
    """Set the default-device-var of the current task; its later children inherit it.

    Parameters
    ----------
    device : int
        A device number; -1 and the number of devices are the host.

    Raises
    ------
    ClauseError
        No device has this number, or it is no number.
    UsageError
        In a target body.
    """
    scope = here()
    number = _checked(device, "set_default_device")
    frame = scope.frame("set_default_device")
    scope.runtime.find_place(number)
    number = scope.runtime.initial_device if number == initial_device else number
    frame.inherit(Inherited(number, frame.inherited.group, is_final=frame.inherited.is_final))


def in_explicit_task() -> bool:
    """Tell whether the caller runs in the body of a task; a target region is none.

    Notes
    -----
    OpenMP 5.2, 18.5 "Tasking Routines": omp_in_explicit_task (section numbers unchecked).
    """
    task = here().task
    return task is not None and not task.construct.is_target


def in_final() -> bool:
    """Tell whether the caller runs in a final task, or in one that such a task has generated.

    Notes
    -----
    OpenMP 5.2, 18.5 "Tasking Routines": omp_in_final (section numbers unchecked).
    """
    task = here().task
    return task is not None and (task.is_final or task.inherited.is_final)


def get_max_task_priority() -> int:
    """Return the highest priority that a task can have: ``OMP_MAX_TASK_PRIORITY``, 0 unless it is set.

    Notes
    -----
    OpenMP 5.2, 18.5 "Tasking Routines": omp_get_max_task_priority (section numbers unchecked).
    """
    return current_runtime().settings.max_task_priority


@takes_clauses
def display_env(verbose: bool = False) -> None:
    """Print the version of OpenMP and the initial values of the runtime's ICVs to stderr.

    Parameters
    ----------
    verbose : bool
        Add the settings of `offload` alone.

    Notes
    -----
    ``OMP_DISPLAY_ENV`` prints the same when a runtime is made: ``true``, or ``verbose``. OpenMP 5.2, 18.15
    "omp_display_env" (section number unchecked).
    """
    sys.stderr.write(current_runtime().env_text(verbose=verbose))


def is_initial_device() -> bool:
    """Tell whether the calling body runs on the host."""
    return here().device is None


def get_device_num() -> int:
    """Return the number of the device that the calling body runs on."""
    scope = here()
    return int(scope.device.number) if scope.device is not None else int(scope.runtime.initial_device)


def device(n: int) -> Device | Host:
    """Return a device: ``number``, ``kind``, ``name``, ``synchronize()``, ``memory_info()`` → (free, total) bytes.

    Raises
    ------
    ClauseError
        No device has this number.
    """
    runtime = current_runtime()
    place = runtime.find_place(_checked(n, "device"))
    return Host(runtime.initial_device) if place is None else place.device


def devices() -> list[Device]:
    """Return the non-host devices, by number.

    Raises
    ------
    RuntimeClosedError
        The current runtime belongs to the parent of a forked process.
    """
    return current_runtime().devices()


# -- where a body is -------------------------------------------------------------------------------


def current_stream() -> Any:
    """Return the native stream that device work of the calling body goes to.

    In a target body the task is complete when the work enqueued there is. In a task body, or outside of any, it is a
    stream of the default device whose work is *not* part of the task: use ``detach`` and `Event.fulfill_on`.

    Returns
    -------
    stream
        A `cupy.cuda.Stream`, or a simulated stream with the same methods.

    Raises
    ------
    UsageError
        The body runs on the host and there is no device.
    """
    scope = here()
    task = scope.task
    if task is not None and task.place is not None:
        return task.lane.stream
    # Not in a target body: a stream of the default device, the same one while that stays.
    place = scope.runtime.place(scope.frame("current_stream"), None)
    if place is None:
        raise UsageError(
            "current_stream: the host has no streams, and there is no device or the default device is the host; choose "
            "a device with set_default_device"
        )
    if scope.user_lane is None or scope.user_lane.device is not place.device:
        scope.user_lane = place.user_pool.next()
    return scope.user_lane.stream


@takes_clauses
def stream(queue: int = 0, device: int | None = None) -> Any:
    """Return the native stream behind an async queue number: one of `set_stream`, or of those that queues share.

    Raises
    ------
    ClauseError
        A negative queue, or a device that does not exist.
    """
    return _queue("stream", queue, device).stream


@takes_clauses
def set_stream(queue: int, stream: Any, device: int | None = None) -> None:
    """Make a stream of the program's own the one behind an async queue number, until the runtime ends.

    Parameters
    ----------
    queue : int
        At least 0. Other queues stay as they are.
    stream : stream or None
        A `cupy.cuda.Stream`, an object with ``__cuda_stream__`` or a simulated stream, which is kept alive. None gives
        the queue back its stream of the runtime.
    device : int, optional
        The device of the stream; None is the default device.

    Raises
    ------
    ClauseError
        A negative queue, a device that does not exist, or a stream that is none of the device's.
    EventError
        The stream is capturing a CUDA graph.

    Notes
    -----
    *Blocks* never. The queue stays in order; where `stream` has given its stream away, so does what that holds. An
    extension of OpenMP, after OpenACC's ``acc_set_cuda_stream``.
    """
    scope = here()
    give_stream(scope, scope.frame("set_stream"), _queue("set_stream", queue, device), stream, "set_stream")


def _queue(what: str, queue: Any, device: Any) -> Queue:
    """Return the queue of a number, on a device."""
    if type(queue) is not int or queue < 0:
        raise ClauseError(f"{what}: queue {queue!r} is not a number of at least 0")
    scope = here()
    place = scope.runtime.place(scope.frame(what), check_device(device))
    if place is None:
        raise ClauseError(f"{what}: the host has no streams; choose a device")
    return scope.runtime.queues.of(place, queue)


def current_task() -> Task | None:
    """Return the `Task` whose body is running on this thread, or None."""
    task = here().task
    return task if isinstance(task, Task) else None  # a scope knows less of it


def array_namespace(*arrays: Any) -> Any:
    """Return the module whose functions make arrays where these are: numpy, cupy or the simulated device's namespace.

    Without arrays it is that of the device which the calling body runs on: numpy outside of target bodies, and in those
    that run on the host.

    Raises
    ------
    ClauseError
        The arrays are on different devices, or none of this runtime's.
    """
    if not arrays:
        device = here().device
        return np if device is None else device.namespace()
    runtime = current_runtime()
    found: list[Any] = []
    for given in arrays:
        array = given.parts.arrays[0] if isinstance(given, PartialView) else given
        if is_device_array(array):
            place = runtime.place_of(array)
            if place is None:
                raise ClauseError(f"array_namespace: {label(array)} is on no device of this runtime")
            found.append(place.device.namespace())
        else:
            found.append(np)
    if any(module is not found[0] for module in found):
        raise ClauseError("array_namespace: the arrays are on different devices; pass arrays of one device")
    return found[0]


def _checked(number: Any, what: str) -> int:
    """Return a device number; None is not one here."""
    checked = check_device(number)
    if checked is None:
        raise ClauseError(f"{what}: None is not a device number; use an int")
    return checked
