"""The contract between the runtime and a device.

A device owns memory, streams and the arrays that live in its memory. It decides nothing: the runtime
tells it what to allocate, what to copy and what to wait for, and on which stream.

Streams and events are *native* objects, so that a body may hand ``current_stream()`` to any library:
`cupy.cuda.Stream` and `cupy.cuda.Event` on CUDA, objects with the same methods on the simulated device.

Work on a stream runs in the order in which it was enqueued; two streams know nothing of each other until
one waits for an event of the other. Every method here that takes a stream only enqueues and returns; it
never waits for the device. Errors of the device are sticky: after one, ``passed`` raises
`DeviceLostError` for every event that had not passed, and whatever was enqueued does not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    import numpy as np

    from offload.arrays.sections import Section
    from offload.devices.retirement import Retired
    from offload.events.wakeup import Wakeup


@runtime_checkable
class DeviceEvent(Protocol):
    """A point in a stream. ``done`` is true once the stream has passed it."""

    @property
    def done(self) -> bool: ...
    def synchronize(self) -> None: ...


@runtime_checkable
class Stream(Protocol):
    """The part of `cupy.cuda.Stream` that every native stream has."""

    @property
    def done(self) -> bool: ...
    def synchronize(self) -> None: ...
    def record(self, event: Any = None) -> Any: ...
    def wait_event(self, event: Any) -> None: ...
    def launch_host_func(self, callback: Any, arg: Any) -> None: ...


class DeviceGraph(Protocol):
    """Work that has been captured, to be carried out any number of times. Its memory goes with it."""

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that belong to the graph."""

    def launch(self, stream: Any) -> None:
        """Enqueue all of the work; launches of a graph, on whatever streams, follow each other.

        One thread at a time. Raises `DeviceLostError`.
        """


class GraphCapture(Protocol):
    """Makes a graph of what the calling thread enqueues on some streams, instead of carrying it out.

    Between `begin` and the end nothing may wait for, or ask about, these streams and the events recorded there.
    """

    def begin(self, devices: Sequence[Device], reached: Sequence[object] | None) -> list[Any]:
        """Return a new stream of each device, all captured from now on, as the first is, on the device of the capture.

        Memory that libraries allocate meanwhile belongs to the graph. ``reached`` has the objects that the captured
        bodies reach, which live as long as the graph; None if no body reaches PyTorch. Raises `DeviceError`.
        """

    def record(self, stream: Any) -> Any:
        """Record and return an event at the tail of one of them, for the others to wait for."""

    def alloc(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any) -> Any:
        """Return an array as `Device.alloc` does, in memory of the graph, used again in the order of ``stream``."""

    def end(self) -> DeviceGraph:
        """Return the graph; raise `DeviceError` if there is none, since something was done that cannot be captured."""

    def cancel(self) -> None:
        """End the capture without a graph. Idempotent, and allowed after `end` has raised."""

    def was_disturbed(self, error: Exception) -> bool:
        """Tell by the first error whether what another thread did has ended the capture."""


class StagedCopy(Protocol):
    """A copy that a stream alone cannot carry out, such as one of pageable memory on CUDA: threads of the device do."""

    def start(self, done: Callable[[BaseException | None], None]) -> None:
        """Begin, now that the stream has got to the copy; do not block.

        ``done`` is called once, from any thread, with the failure if there is one: when the host memory has been read
        and the rest is in the order of the stream, or when the host memory has been written.
        """

    def run(self) -> None:
        """Carry it out and wait for what ``done`` would be called for; raise the failure."""


class Program(Protocol):
    """Kernels as text, and as what the host's processor runs."""

    @property
    def source(self) -> str: ...  # in the dialect of the device
    @property
    def names(self) -> Sequence[str]: ...  # the kernels in it
    @property
    def options(self) -> Sequence[str]: ...  # of the compiler
    def on_host(self) -> Mapping[str, Callable[[tuple[int, ...], Any], object]]:
        """Return the kernels as functions of this process, each of a grid and arguments; of dialect ``"c"`` alone."""


class Kernel(Protocol):
    """A function that a device runs."""

    def launch(
        self, stream: Any, grid: tuple[int, ...], block: tuple[int, ...], shared_nbytes: int, arguments: Any
    ) -> None:
        """Enqueue it as one operation.

        Parameters
        ----------
        stream : stream
            A native one.
        grid, block : tuple of int
            Blocks and threads of a block along each dimension; of dialect ``"c"`` the number of chunks, and 1.
        shared_nbytes : int
            Bytes of memory that the threads of a block share.
        arguments : object
            The structure of arguments; of dialect ``"c"`` what the program's functions take.
        """


class Kernels(Protocol):
    """How a device is given functions to run."""

    @property
    def dialect(self) -> Literal["cuda", "c"]: ...  # the language of the sources
    @property
    def target(self) -> str: ...  # a part of keys: ``"sm_90"``, or the host's processor
    def load(self, program: Program) -> Mapping[str, Kernel]:
        """Compile a program for the device, and return its kernels by name."""

    def time(self, stream: Any) -> Any:
        """Have the stream note the time when it gets here, and return what holds it then."""

    def seconds(self, first: Any, last: Any) -> float:
        """Return how long the stream took from one such time to a later one, both of which it has passed."""


class Device(Protocol):
    """What the runtime asks of a device."""

    number: int  # within its runtime, ``0 … n-1``
    # The name of its kind (`offload.devices.kind.Kind`). Devices of one kind wait for each other's events, and copy to
    # each other.
    kind: str
    name: str  # for people: ``"sim:0"``, ``"NVIDIA H200"``
    space: object  # hashable; names the address space in a `Section`; two devices never share one
    # True where array operations in a body run on the thread of the body (the simulated device). A body must then start
    # only when its stream has reached it, and never inside a ``nowait`` call.
    bodies_block: bool
    waits_look: bool  # a thread that waits learns by ``passed`` sooner than by being woken (CUDA)
    wakes_by_driver: bool  # `wake` has C code post the wake-up, which then is a `SemaphoreWakeup` (CUDA)
    # True where uninitialised memory is filled with what shows (the simulated device, on demand). `alloc` does so.
    # Bytes that are allocated for elements of another dtype are given to `poison` before anything else.
    poisons: bool
    kernels: Kernels | None  # how it is given functions to run; None where it runs none

    # -- streams ---------------------------------------------------------------------------------
    def new_stream(self) -> Any:
        """Make a stream that is not ordered with any other."""

    def owns_stream(self, stream: object) -> bool:
        """Tell whether ``stream`` is a native stream of this device."""

    def adopt(self, stream: Any) -> Any:
        """Return the native form of a stream that `owns_stream` says is this device's.

        Raises
        ------
        EventError
            The stream is being captured into a graph.
        """

    def record(self, stream: Any) -> Any:
        """Record and return an event at the tail of ``stream``."""

    def wait_event(self, stream: Any, event: Any) -> None:
        """Hold what is enqueued on ``stream`` from now on until ``event`` has passed.

        The event may be another device's of the same kind.
        """

    def passed(self, event: Any) -> bool:
        """Tell whether the stream has passed ``event``; raise `DeviceLostError` if it never will."""

    def reuse(self, events: list[Any]) -> None:
        """Take back events that have passed: they may be recorded anew."""

    def wake(self, stream: Any, wakeup: Wakeup) -> None:
        """Post ``wakeup`` once when ``stream`` gets here. No Python runs in a thread of a driver."""

    def use(self, stream: Any) -> Any:
        """Make ``stream`` the one that array operations of this thread go to; return what `restore` takes."""

    def restore(self, outer: Any) -> None:
        """Make what was in use before `use` so again, whatever has become of it meanwhile."""

    def caller_event(self) -> Any | None:
        """Record an event on the stream that the calling thread uses by itself; None if it holds nothing.

        The event stands for several where the thread has several such streams, as one in each library. Only
        `wait_event` and ``synchronize`` take it.

        Raises
        ------
        UsageError
            The stream is being captured into a graph.
        """

    # -- memory ----------------------------------------------------------------------------------
    def memory_info(self) -> tuple[int, int]:
        """Return (free, total) memory in bytes."""

    def alloc(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any) -> Any:
        """Return an uninitialised C-ordered device array; its memory goes back when the last reference does.

        Raises
        ------
        DeviceMemoryError
            There is not enough memory.
        """

    def poison(self, buffer: Any, dtype: np.dtype[Any], stream: Any) -> None:
        """Enqueue filling a new buffer of bytes for elements of ``dtype``, if the device poisons."""

    def view(
        self, buffer: Any, offset_nbytes: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]
    ) -> Any:
        """Return a device array over part of ``buffer``.

        Element 0 lies ``offset_nbytes`` from its first byte; ``strides`` are in bytes, of any sign.
        """

    def copy(self, dst: Any, src: Any, stream: Any) -> StagedCopy | None:
        """Enqueue an element-wise copy between two arrays of the same shape and dtype, any strides.

        Each is a host array or a device array of this kind of device; at least one is on this device.
        The host array must stay alive until the copy is done; the caller sees to it.

        Returns
        -------
        StagedCopy or None
            None if it is enqueued; else nothing has been enqueued yet, and the caller starts it.
        """

    def repeat(self, dst: Any, src: Any) -> Callable[[Any], object] | None:
        """Return what enqueues the same as `copy` on a stream, for as long as both arrays are as they are.

        None where a copy of this memory is to be looked at each time, since it may be staged, or wait.
        """

    def copy_indexed(self, dst: Any, src: Any, to: Any, at: Any, stream: Any) -> None:
        """Enqueue ``dst[to[k]] = src[at[k]]`` for every k.

        Parameters
        ----------
        dst, src : array
            Flat, contiguous arrays of one dtype on this device, of which no element that is read is written.
        to, at : array or None
            Flat, contiguous arrays of ``int32`` or ``int64`` on this device, of one length, whose numbers are in range
            and in ``to`` differ; one may be None for 0, 1, 2, ….
        """

    def fill(self, array: Any, value: int, stream: Any) -> None:
        """Enqueue setting every element of a contiguous array of ``u1`` on this device to ``value``, 0 to 255."""

    def copies_async(self, host: np.ndarray[Any, Any]) -> bool:
        """Tell whether a copy to or from this host array returns before it is done (pinned memory on CUDA)."""

    def can_access(self, host: np.ndarray[Any, Any]) -> bool:
        """Tell whether code on this device may read and write the memory of a host array, which has elements."""

    def host_memory(self, nbytes: int) -> Any | None:
        """Return new memory of the host that copies of this device take as it is; None where all memory is such.

        It has ``nbytes`` > 0 bytes, uninitialised and aligned for every dtype, and the buffer protocol; it lives while
        somebody refers to it.

        Raises
        ------
        MemoryError
            There is not so much, or it cannot be locked.
        """

    def is_array(self, value: object) -> bool:
        """Tell whether ``value`` is a device array of this very device."""

    def renew(self, buffer: Any) -> bool:
        """Make a buffer as `alloc` returns one, for what its stream carries out from now on.

        Return false, and do nothing, where somebody has an array over the memory of ``buffer``, or where the device
        cannot tell: then the memory is not used again while the device needs it.
        """

    def retire(self, array: Any, retired: Retired) -> None:
        """Note what has become of the allocation of `alloc` that ``array`` lies in: it is nobody's data any more."""

    def retired(self, array: Any) -> Retired | None:
        """Return what was noted for the allocation that a device array of this device lies in; None for all others."""

    def as_array(self, value: Any) -> Any | None:
        """Return a device array of any library as an array of this device; None if it is not on this device.

        One of this device is returned as it is; another library's becomes a view of the same memory. The calling
        thread's streams, which `caller_event` marks, follow the work of that library as far as its protocol says.
        Raises `UnsupportedError` for a type that this device has no arrays of.
        """

    def section(self, array: Any) -> Section:
        """Return the storage of a device array of this device."""

    def address(self, array: object) -> int | None:
        """Return where the element ``[0, …, 0]`` of a device array of this very device lies; None of anything else.

        Raises `RegionClosedError` if its storage has gone back.
        """

    def namespace(self) -> ModuleType | Any:
        """Return the module whose functions make arrays on this device."""

    def check(self, stream: Any) -> None:
        """Raise `DeviceLostError` if work on the device is known to have failed; wait for nothing."""

    # -- graphs ----------------------------------------------------------------------------------
    def graph_capture(self) -> GraphCapture | None:
        """Return what captures work of this device, once; None if the device cannot repeat work by itself."""

    # -- life ------------------------------------------------------------------------------------
    def synchronize(self) -> None:
        """Block until every stream of the device is idle; raise `DeviceLostError` if one failed."""

    def live_nbytes(self) -> int:
        """Return the bytes allocated through `alloc` and not yet freed."""

    def close(self) -> None:
        """Drain the streams and stop the threads. Idempotent."""
