"""Routines: devices, streams and memory, under OpenMP's names without ``omp_``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.clauses import Dependence, check_depend, symbolic
from offload.data.rect import resolve_rect
from offload.devices.host import Host
from offload.directives import call_site
from offload.errors import ClauseError, UsageError
from offload.items import array_section, is_device_array, label
from offload.launch import device_maker
from offload.regions import CopyWork
from offload.runtime import current_runtime, here, initial_device
from offload.storage import overlaps
from offload.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.devices.base import Device
    from offload.launch import DevicePlace
    from offload.runtime import Runtime
    from offload.tasks.task import Frame


# -- devices (OpenMP 5.2, 18.7 "Device Information Routines") ----------------------------------------


def get_num_devices() -> int:
    """Return the number of non-host devices of the current runtime."""
    return len(current_runtime().places)


def get_initial_device() -> int:
    """Return the host's device number, which is the number of devices."""
    return current_runtime().initial_device


def get_default_device() -> int:
    """Return the device number that constructs without ``device=`` use: the current task's default-device-var."""
    scope = here()
    number: int = min(scope.default_device, scope.runtime.initial_device)
    return number


def set_default_device(device: int) -> None:
    """Set the default-device-var of the current task; its later children inherit it.

    Raises
    ------
    ClauseError
        No device has this number.
    """
    scope = here()
    runtime = scope.runtime
    runtime.place(scope.frame("set_default_device"), device)
    scope.frame("set_default_device").default_device = runtime.initial_device if device == initial_device else device


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
    place = runtime.place(runtime.scope().root, n)  # type: ignore[arg-type]  # a thread has a root frame
    return Host(runtime.initial_device) if place is None else place.device


def devices() -> list[Device]:
    """Return the non-host devices, by number."""
    return [place.device for place in current_runtime().places]


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
    if scope.device is None:  # not in a target body: a stream of the default device, the same one while that stays
        place = scope.runtime.place(scope.frame("current_stream"), None)
        if place is None:
            raise UsageError(
                "current_stream: the host has no streams; there is no device, or the default device is the host"
            )
        if scope.lane is None or scope.lane.device is not place.device:
            scope.lane = place.user_pool.next()
    return scope.lane.stream


def stream(queue: int = 0, device: int | None = None) -> Any:
    """Return the native stream behind an async queue number; queues share the streams of a device.

    Raises
    ------
    ClauseError
        A negative queue, or a device that does not exist.
    """
    if type(queue) is not int or queue < 0:
        raise ClauseError(f"stream: queue {queue!r} is not a number of at least 0")
    scope = here()
    place = scope.runtime.place(scope.frame("stream"), device)
    if place is None:
        raise ClauseError("stream: the host has no streams; name a device")
    return place.user_pool.numbered(queue).stream


def current_task() -> Task | None:
    """Return the `Task` whose body is running on this thread, or None."""
    return here().task


def array_namespace(*arrays: Any) -> Any:
    """Return the module whose functions make arrays where these are: numpy, cupy or the simulated device's namespace.

    Raises
    ------
    ClauseError
        The arrays are on different devices, or none of this runtime's.
    """
    runtime = current_runtime()
    found: list[Any] = []
    for array in arrays:
        if is_device_array(array):
            place = runtime.place_of(array)
            if place is None:
                raise ClauseError(f"array_namespace: {label(array)} is on no device of this runtime")
            found.append(place.device.namespace())
        else:
            found.append(np)
    if any(module is not found[0] for module in found):
        raise ClauseError("array_namespace: the arrays are on different devices; give arrays of one")
    return found[0] if found else np


# -- memory (OpenMP 5.2, 18.8 "Device Memory Routines") ----------------------------------------------


def target_alloc(shape: int | tuple[int, ...], dtype: Any = "u1", device: int | None = None) -> Any:
    """Allocate an uninitialised device array, which lives until `target_free`.

    Parameters
    ----------
    shape : int or tuple of int
        Elements.
    dtype : dtype-like
        Without Python objects.
    device : int, optional
        A device number; the host's gives a NumPy array.

    Raises
    ------
    ClauseError
        A shape, dtype or device that means nothing.
    DeviceMemoryError
        There is not enough memory.

    Notes
    -----
    OpenMP 5.2, 18.8.1 "omp_target_alloc".
    """
    scope = here()
    dims = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    dims = tuple(int(size) for size in dims)
    kind = np.dtype(dtype)
    if any(size < 0 for size in dims) or kind.hasobject:
        raise ClauseError(
            f"target_alloc: shape {shape!r} with dtype {kind} cannot be allocated; "
            "sizes are at least 0, without Python objects"
        )
    place = scope.runtime.place(scope.frame("target_alloc"), device)
    if place is None:
        return np.empty(dims, kind)
    lane = place.user_pool.numbered(0)
    array = place.device.alloc(dims, kind, lane.stream)
    scope.runtime.note_allocation(array, f"{kind}[{', '.join(map(str, dims))}] on device {place.device.number}")
    return array


def target_free(array: Any) -> None:
    """Free a device array of `target_alloc`. The caller sees to it that no work still uses it. None is ignored.

    Raises
    ------
    UsageError
        It is not a live array of `target_alloc` of this runtime, or was freed before.
    """
    if array is None or isinstance(array, np.ndarray):
        return
    if not current_runtime().forget_allocation(array):
        raise UsageError(
            f"target_free: {label(array)} is not a live array of target_alloc of this runtime; "
            "free what it returned, once"
        )


def target_memcpy(
    dst: Any,
    src: Any,
    nbytes: int | None = None,
    dst_offset: int = 0,
    src_offset: int = 0,
    dst_device: int | None = None,
    src_device: int | None = None,
) -> None:
    """Copy bytes between two arrays, each on the host or a device.

    Parameters
    ----------
    dst, src : array
        Contiguous host or device arrays.
    nbytes : int, optional
        Bytes; by default the smaller remainder.
    dst_offset, src_offset : int
        Bytes from the first element.
    dst_device, src_device : int, optional
        May be left out; must not contradict the arrays.

    Raises
    ------
    ClauseError
        Not contiguous, outside of an array, overlapping, read-only, or a device that contradicts the array.

    Notes
    -----
    *Blocks* until the copy is done. OpenMP 5.2, 18.8.5 "omp_target_memcpy".
    """
    pair = _byte_ranges(dst, src, nbytes, dst_offset, src_offset, dst_device, src_device)
    _copy("target_memcpy", *pair, (), deferred=False)


def target_memcpy_async(
    dst: Any,
    src: Any,
    nbytes: int | None = None,
    dst_offset: int = 0,
    src_offset: int = 0,
    dst_device: int | None = None,
    src_device: int | None = None,
    *,
    depend: Any = (),
) -> Task:
    """Copy bytes as `target_memcpy` does, in a deferred task with dependences; return the task.

    *Blocks* never. OpenMP 5.2, 18.8.7 "omp_target_memcpy_async".
    """
    pair = _byte_ranges(dst, src, nbytes, dst_offset, src_offset, dst_device, src_device)
    return _copy("target_memcpy", *pair, depend, deferred=True)


def target_memcpy_rect(
    dst: Any,
    src: Any,
    volume: Sequence[int] | None = None,
    dst_offsets: Sequence[int] | None = None,
    src_offsets: Sequence[int] | None = None,
    dst_dimensions: Sequence[int] | None = None,
    src_dimensions: Sequence[int] | None = None,
    dst_device: int | None = None,
    src_device: int | None = None,
) -> int | None:
    """Copy a box between two arrays, each on the host or a device.

    Parameters
    ----------
    dst, src : array
        Host or device arrays of equal item size, any strides. Both None asks for the largest number of dimensions.
    volume : sequence of int, optional
        Elements a dimension; by default the smaller of what both leave.
    dst_offsets, src_offsets : sequence of int, optional
        First element of the box, in elements a dimension; by default 0.
    dst_dimensions, src_dimensions : sequence of int, optional
        Elements a dimension of the whole arrays; by default their shapes. Others need a contiguous array.
    dst_device, src_device : int, optional
        May be left out; must not contradict the arrays.

    Returns
    -------
    int or None
        The largest number of dimensions where both arrays are None.

    Raises
    ------
    ClauseError
        Numbers of dimensions, volumes or offsets that do not fit, arrays that overlap, differing item sizes.

    Notes
    -----
    *Blocks* until the copy is done. *Costs* one rectangular copy, no packing on the host. OpenMP 5.2, 18.8.6
    "omp_target_memcpy_rect".
    """
    if dst is None and src is None:
        return sys.maxsize
    pair = _boxes(dst, src, volume, dst_offsets, src_offsets, dst_dimensions, src_dimensions, dst_device, src_device)
    _copy("target_memcpy_rect", *pair, (), deferred=False)
    return None


def target_memcpy_rect_async(
    dst: Any,
    src: Any,
    volume: Sequence[int] | None = None,
    dst_offsets: Sequence[int] | None = None,
    src_offsets: Sequence[int] | None = None,
    dst_dimensions: Sequence[int] | None = None,
    src_dimensions: Sequence[int] | None = None,
    dst_device: int | None = None,
    src_device: int | None = None,
    *,
    depend: Any = (),
) -> Task:
    """Copy a box as `target_memcpy_rect` does, in a deferred task with dependences; return the task.

    *Blocks* never. OpenMP 5.2, 18.8.8 "omp_target_memcpy_rect_async".
    """
    pair = _boxes(dst, src, volume, dst_offsets, src_offsets, dst_dimensions, src_dimensions, dst_device, src_device)
    return _copy("target_memcpy_rect", *pair, depend, deferred=True)


def _copy(directive: str, dst: Any, src: Any, depend: Any, *, deferred: bool) -> Task:
    """Generate the task that copies between two arrays of one shape and dtype."""
    scope = here()
    runtime = scope.runtime
    frame = scope.frame(directive)
    dependences: tuple[Dependence, ...] = check_depend(depend)
    if symbolic(dependences):
        raise ClauseError(f"{directive}: list items written as strings belong to decorators; name the array itself")
    if isinstance(dst, np.ndarray) and not dst.flags.writeable:
        raise ClauseError(f"{directive}: the destination {label(dst)} is read-only")
    if isinstance(dst, np.ndarray) == isinstance(src, np.ndarray) and overlaps(array_section(dst), array_section(src)):
        raise ClauseError(f"{directive}: destination and source overlap; copy through a third array")
    site = call_site(directive, runtime)
    place = _place(runtime, dst, directive) or _place(runtime, src, directive)
    if place is None:

        def make(frame: Frame) -> Task:
            return Task(site, np.copyto, (dst, src), None, frame)
    else:
        make = device_maker(site, None, place, CopyWork(dst, src))  # type: ignore[assignment]  # a DeviceTask is a Task
    task: Task = runtime.encounter(scope, frame, make, dependences, deferred=deferred)
    return task


def _place(runtime: Runtime, array: Any, what: str) -> DevicePlace | None:
    if isinstance(array, np.ndarray):
        return None
    place = runtime.place_of(array)
    if place is None:
        raise ClauseError(
            f"{what}: {type(array).__name__} {array!r:.60} is neither a NumPy array "
            "nor an array of a device of this runtime"
        )
    return place


def _check_device(array: Any, number: int | None, side: str, what: str) -> None:
    runtime = current_runtime()
    place = _place(runtime, array, what)
    if number is not None and runtime.place(runtime.scope().root, number) is not place:  # type: ignore[arg-type]  # a thread has a root frame
        where = "the host" if place is None else f"device {place.device.number}"
        raise ClauseError(
            f"{what}: {side}_device={number}, but {label(array)} is on {where}; leave the argument out, or correct it"
        )


def _byte_ranges(
    dst: Any,
    src: Any,
    nbytes: int | None,
    dst_offset: int,
    src_offset: int,
    dst_device: int | None,
    src_device: int | None,
) -> tuple[Any, Any]:
    what = "target_memcpy"
    rest = []
    for side, array, offset, number in (("dst", dst, dst_offset, dst_device), ("src", src, src_offset, src_device)):
        _check_device(array, number, side, what)
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise ClauseError(f"{what}: {side} {label(array)} is not contiguous; use target_memcpy_rect")
        if not 0 <= offset <= array.nbytes:
            raise ClauseError(f"{what}: {side}_offset={offset} is outside of an array of {array.nbytes} bytes")
        rest.append(array.nbytes - offset)
    count = min(rest) if nbytes is None else nbytes
    if not 0 <= count <= min(rest):
        raise ClauseError(f"{what}: {count} bytes do not fit; {rest[0]} are left in dst and {rest[1]} in src")
    return _bytes_of(dst)[dst_offset : dst_offset + count], _bytes_of(src)[src_offset : src_offset + count]


def _bytes_of(array: Any) -> Any:
    """Return the bytes of a contiguous array in the order of its memory."""
    flat = array if array.flags.c_contiguous else array.T
    return flat.reshape(-1).view("u1")


def _boxes(  # the routine's own arguments
    dst: Any,
    src: Any,
    volume: Sequence[int] | None,
    dst_offsets: Sequence[int] | None,
    src_offsets: Sequence[int] | None,
    dst_dimensions: Sequence[int] | None,
    src_dimensions: Sequence[int] | None,
    dst_device: int | None,
    src_device: int | None,
) -> tuple[Any, Any]:
    what = "target_memcpy_rect"
    _check_device(dst, dst_device, "dst", what)
    _check_device(src, src_device, "src", what)
    given = (volume, dst_offsets, src_offsets, dst_dimensions, src_dimensions)
    if dst.shape == src.shape and dst.dtype == src.dtype and all(value is None for value in given):
        return dst, src  # the usual call, on views
    if dst.dtype != src.dtype:
        if dst.dtype.itemsize != src.dtype.itemsize:
            raise ClauseError(
                f"{what}: elements of {dst.dtype.itemsize} and {src.dtype.itemsize} bytes; the item sizes must be equal"
            )
        src = src.view(dst.dtype)
    box = resolve_rect(dst.shape, src.shape, volume, dst_offsets, src_offsets, dst_dimensions, src_dimensions)
    return (
        _box(dst, box.dst_dimensions, box.dst_offsets, box.volume, "dst"),
        _box(src, box.src_dimensions, box.src_offsets, box.volume, "src"),
    )


def _box(array: Any, dims: tuple[int, ...], offsets: tuple[int, ...], volume: tuple[int, ...], side: str) -> Any:
    """Return the view of the box; dimensions other than the array's own shape need it to be contiguous."""
    if tuple(dims) != tuple(array.shape):
        if not array.flags.c_contiguous:
            raise ClauseError(
                f"target_memcpy_rect: {side}_dimensions={dims} other than the shape {array.shape} "
                "need a C-ordered array"
            )
        count = 1
        for size in dims:
            count *= size
        array = array.reshape(-1)[:count].reshape(dims)
    return array[tuple(slice(low, low + size) for low, size in zip(offsets, volume, strict=True))]
