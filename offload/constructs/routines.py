"""Routines about devices, streams and where a body is, under OpenMP's names without ``omp_``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from offload.arrays import given as given_arrays
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
    """Return the number of non-host devices of the current runtime.

    Notes
    -----
    OpenMP 5.2, 18.7 "Device Information Routines": omp_get_num_devices (section numbers unchecked).

    Examples
    --------
    >>> with omp.Runtime("sim:2"):
    ...     omp.get_num_devices()
    2
    """
    return current_runtime().initial_device


def get_initial_device() -> int:
    """Return the host's device number, which is the number of devices.

    Notes
    -----
    OpenMP 5.2, 18.7 "Device Information Routines": omp_get_initial_device (section numbers unchecked).

    Examples
    --------
    >>> with omp.Runtime("sim:2"):
    ...     omp.get_initial_device()
    2
    """
    return current_runtime().initial_device


def get_default_device() -> int:
    """Return the device number that constructs without ``device=`` use: the current task's default-device-var.

    The initial value is ``OMP_DEFAULT_DEVICE``, or 0. Without any device it is the host's number, or `invalid_device`
    under ``OMP_TARGET_OFFLOAD=MANDATORY``. A task inherits the value when it is generated.

    Notes
    -----
    OpenMP 5.2, 18.7 "Device Information Routines" (section numbers unchecked).

    Examples
    --------
    >>> omp.get_default_device()
    0
    """
    inherited = here().inherited
    return 0 if inherited is None else inherited.default_device


def set_default_device(device: int) -> None:
    """Set the default-device-var of the current task; its later children inherit it.

    Parameters
    ----------
    device : int
        A device number. -1 and the number of devices mean the host.

    Raises
    ------
    ClauseError
        No device has this number, or the argument is not an integer.
    UsageError
        The call is in a target body.

    Notes
    -----
    OpenMP 5.2, 18.7 "Device Information Routines": omp_set_default_device (section numbers unchecked).

    Examples
    --------
    >>> with omp.Runtime("sim:2"):
    ...     omp.set_default_device(1)
    ...     omp.target(omp.get_device_num)()
    1
    """
    scope = here()
    number = _checked(device, "set_default_device")
    frame = scope.frame("set_default_device")
    scope.runtime.find_place(number)
    # -1 also means the host, and `get_default_device` returns the other number.
    number = scope.runtime.initial_device if number == initial_device else number
    frame.inherit(Inherited(number, frame.inherited.group, is_final=frame.inherited.is_final))


def in_explicit_task() -> bool:
    """Tell whether the caller runs in the body of a task; a target region does not count.

    Notes
    -----
    OpenMP 5.2, 18.5 "Tasking Routines": omp_in_explicit_task (section numbers unchecked).

    Examples
    --------
    >>> omp.in_explicit_task()
    False
    >>> omp.task(omp.in_explicit_task)().result()
    True
    """
    task = here().task
    return task is not None and not task.construct.is_target


def in_final() -> bool:
    """Tell whether the caller runs in a final task, or in a task that a final task has generated.

    Notes
    -----
    OpenMP 5.2, 18.5 "Tasking Routines": omp_in_final (section numbers unchecked).

    Examples
    --------
    >>> omp.task(final=True)(omp.in_final)().result()
    True
    """
    task = here().task
    return task is not None and (task.is_final or task.inherited.is_final)


def get_max_task_priority() -> int:
    """Return the highest priority that a task can have: ``OMP_MAX_TASK_PRIORITY``, 0 unless it is set.

    Notes
    -----
    OpenMP 5.2, 18.5 "Tasking Routines": omp_get_max_task_priority (section numbers unchecked).

    Examples
    --------
    >>> with omp.Runtime("sim:1", env={"OMP_MAX_TASK_PRIORITY": "10"}):
    ...     omp.get_max_task_priority()
    10
    """
    return current_runtime().settings.max_task_priority


@takes_clauses
def display_env(verbose: bool = False) -> None:
    """Print the version of OpenMP and the initial values of the runtime's ICVs to stderr.

    Parameters
    ----------
    verbose : bool
        Also print the settings that only `offload` has.

    Notes
    -----
    With ``OMP_DISPLAY_ENV=true`` (or ``verbose``) a new runtime prints the same text. OpenMP 5.2, 18.15
    "omp_display_env" (section number unchecked).

    Examples
    --------
    >>> import contextlib
    >>> import sys
    >>> with contextlib.redirect_stderr(sys.stdout):
    ...     omp.display_env()
    OPENMP DISPLAY ENVIRONMENT BEGIN
    ...
    OPENMP DISPLAY ENVIRONMENT END
    """
    sys.stderr.write(current_runtime().env_text(verbose=verbose))


def is_initial_device() -> bool:
    """Tell whether the calling body runs on the host.

    Notes
    -----
    OpenMP 5.2, 18.7 "Device Information Routines": omp_is_initial_device (section numbers unchecked).

    Examples
    --------
    >>> omp.is_initial_device()
    True
    >>> omp.target(omp.is_initial_device)()
    False
    """
    return here().device is None


def get_device_num() -> int:
    """Return the number of the device that the calling body runs on.

    Notes
    -----
    OpenMP 5.2, 18.7 "Device Information Routines": omp_get_device_num (section numbers unchecked).

    Examples
    --------
    >>> omp.target(omp.get_device_num)()
    0
    """
    scope = here()
    return int(scope.device.number) if scope.device is not None else int(scope.runtime.initial_device)


def device(n: int) -> Device | Host:
    """Return a device: ``number``, ``kind``, ``name``, ``synchronize()``, ``memory_info()`` → (free, total) bytes.

    Parameters
    ----------
    n : int
        A device number.

    Raises
    ------
    ClauseError
        No device has this number.

    Examples
    --------
    >>> device = omp.device(0)
    >>> device.number, device.kind, device.name
    (0, 'sim', 'sim:0')
    >>> device.synchronize()  # wait for all work on the device
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

    Examples
    --------
    >>> with omp.Runtime("sim:2"):
    ...     [device.name for device in omp.devices()]
    ['sim:0', 'sim:1']
    """
    return current_runtime().devices()


# -- where a body is -------------------------------------------------------------------------------


def current_stream() -> Any:
    """Return the native stream that device work of the calling body goes to.

    In a target body, the task is complete when the work on this stream is complete. In a task body, or outside of any
    body, the stream is one of the default device, and its work is *not* part of a task. Use ``detach`` and
    `Event.fulfill_on` there.

    Returns
    -------
    stream
        A `cupy.cuda.Stream`, or a simulated stream with the same methods.

    Raises
    ------
    UsageError
        The body runs on the host and there is no device.

    Examples
    --------
    >>> @omp.target
    ... def body(x):
    ...     stream = omp.current_stream()
    ...     stream.launch(lambda: None)  # with CuPy: a kernel or a library call
    >>> body(np.ones(3))
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
    place.refuse_streams("current_stream")
    if scope.user_lane is None or scope.user_lane.device is not place.device:  # kept for the thread
        scope.user_lane = place.user_pool.next()
    return scope.user_lane.stream


@takes_clauses
def stream(queue: int = 0, device: int | None = None) -> Any:
    """Return the native stream of an async queue number: your stream from `set_stream`, or a stream of the runtime.

    Several queues may share a stream of the runtime.

    Parameters
    ----------
    queue : int
        At least 0.
    device : int, optional
        A device number; None is the default device.

    Raises
    ------
    ClauseError
        The queue is negative, or the device does not exist.

    Notes
    -----
    An extension of OpenMP, after OpenACC's ``acc_get_cuda_stream``.

    Examples
    --------
    >>> stream = omp.stream(0)
    >>> stream.launch(lambda: None)  # with CuPy: a kernel or a library call
    >>> stream.synchronize()
    """
    return _queue("stream", queue, device).stream


@takes_clauses
def set_stream(queue: int, stream: Any, device: int | None = None) -> None:
    """Make your own stream the stream of an async queue number, until the runtime ends.

    Parameters
    ----------
    queue : int
        At least 0. Other queues keep their streams.
    stream : stream or None
        A `cupy.cuda.Stream`, an object with ``__cuda_stream__`` or a simulated stream. The runtime keeps it alive. None
        returns the queue to its stream of the runtime.
    device : int, optional
        The device of the stream; None is the default device.

    Raises
    ------
    ClauseError
        The queue is negative, the device does not exist, or the stream does not belong to the device.
    EventError
        The stream is capturing a CUDA graph.

    Notes
    -----
    The call never blocks. The queue stays in order, also with the work on a stream that `stream` has returned before.
    An extension of OpenMP, after OpenACC's ``acc_set_cuda_stream``.

    Examples
    --------
    >>> own = omp.current_stream()  # with CuPy: cupy.cuda.Stream(non_blocking=True)
    >>> omp.set_stream(3, own)
    >>> omp.stream(3) is own
    True
    >>> omp.set_stream(3, None)
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
    place.refuse_streams(what)
    return scope.runtime.queues[place, queue]


def current_task() -> Task | None:
    """Return the `Task` whose body is running on this thread, or None.

    Examples
    --------
    >>> omp.task(name="load")(lambda: omp.current_task().name)().result()
    'load'
    """
    task = here().task
    return task if isinstance(task, Task) else None  # a scope knows less of it


def array_namespace(*arrays: Any) -> Any:
    """Return the module whose functions make arrays of this kind: numpy, cupy or the simulated device's namespace.

    Without arrays, it is the namespace of the calling body's device. Outside of target bodies, and in bodies that run
    on the host, it is numpy.

    Parameters
    ----------
    *arrays : array
        Host or device arrays, all on one device.

    Raises
    ------
    ClauseError
        The arrays are on different devices, or do not belong to this runtime.

    Examples
    --------
    >>> @omp.target
    ... def ramp(x):
    ...     xp = omp.array_namespace(x)
    ...     x[:] = xp.arange(x.size)
    >>> x = np.zeros(4)
    >>> ramp(x)
    >>> x
    array([0., 1., 2., 3.])
    """
    if not arrays:
        device = here().device
        return given_arrays.namespace if device is None else device.namespace()
    runtime = current_runtime()
    found: list[Any] = []  # the module of each array
    for given in arrays:
        array = given.parts.arrays[0] if isinstance(given, PartialView) else given
        if is_device_array(array):
            place = runtime.place_of(array)
            if place is None:
                raise ClauseError(f"array_namespace: {label(array)} is on no device of this runtime")
            found.append(place.device.namespace())
        else:
            found.append(given_arrays.namespace)
    if any(module is not found[0] for module in found):
        raise ClauseError("array_namespace: the arrays are on different devices; pass arrays of one device")
    return found[0]


def _checked(number: Any, what: str) -> int:
    """Return a device number; None is not one here."""
    checked = check_device(number)
    if checked is None:
        raise ClauseError(f"{what}: None is not a device number; use an int")
    return checked
