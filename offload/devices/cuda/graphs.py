"""CUDA graphs: work captured from streams by the thread that enqueues it.

The capture is relaxed, so other threads' work neither breaks it nor becomes part of it. A query of an event recorded
inside ends it, and so does a synchronisation of the whole device, which also fails. Memory allocated meanwhile belongs
to the graph, and goes back when nothing refers to the graph, or to an array in it. See docs/design/theory.md, "CUDA
graphs".
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

import cupy
import numpy as np
from cupy.cuda import MemoryPointer, UnownedMemory
from cupy.cuda import runtime as cuda

from offload.devices.base import Device
from offload.devices.cuda.torch_capture import capturing, pool_nbytes
from offload.devices.streams import using
from offload.errors import DeviceError, DeviceLostError

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Sequence

_BYTE = np.dtype("u1")
_GRANULE_NBYTES = 512  # that of CuPy's pools


class CapturedDevice(Device, Protocol):
    """What a capture needs of a CUDA device besides the contract; see `offload.devices.cuda.device.CudaDevice`."""

    index: int
    capturing: threading.RLock


class CudaGraphCapture:
    """A capture whose first stream is on a CUDA device; see `offload.devices.base.GraphCapture`."""

    def __init__(self, device: CapturedDevice) -> None:
        self._device = device
        self._memory: dict[int, _GraphMemory] = {}  # by ordinal
        self._pools: list[Any] = []  # of PyTorch's
        self._streams: list[tuple[Any, Any]] = []  # each with its device
        self._entered = ExitStack()  # locks, caches and the allocator, until the end

    def begin(self, devices: Sequence[Any], reached: Sequence[object] | None = None) -> list[Any]:
        """Capture what is enqueued on new streams from now on; see the contract."""
        by_index = {device.index: device for device in devices}
        for index in sorted(by_index):
            self._entered.enter_context(by_index[index].capturing)
        self._memory = {index: _GraphMemory(device) for index, device in by_index.items()}
        with self._errors():
            self._pools = self._entered.enter_context(capturing(by_index, reached))
            self._streams = [(device, device.new_stream()) for device in devices]
            (_, origin), *others = self._streams
            with using(self._device, origin):
                cuda.streamBeginCapture(origin.ptr, cuda.streamCaptureModeRelaxed)
                fork = self.record(origin)
            for device, stream in others:
                with using(device, stream):
                    stream.wait_event(fork)
            for index in by_index:
                self._entered.enter_context(_all_plans_cached(index))
        self._entered.enter_context(cupy.cuda.using_allocator(self._alloc))
        return [stream for _, stream in self._streams]

    def record(self, stream: Any) -> Any:
        """Record and return an event inside of the capture."""
        device = next(device for device, known in self._streams if known is stream)
        with self._errors(), using(device, stream):  # an event is of the device that is current when it is made
            return stream.record(cupy.cuda.Event(disable_timing=True))

    def _alloc(self, nbytes: int) -> Any:
        """Return memory of the graph on the current device: an allocator, as CuPy asks for it."""
        return self._memory[cuda.getDevice()].alloc(nbytes)

    def alloc(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any) -> Any:
        """Return an array in the memory of the graph; see the contract."""
        device = next(device for device, known in self._streams if known is stream)
        with using(device, stream):
            return cupy.ndarray(shape, dtype)

    def end(self) -> CudaGraph:
        """End the capture and return the graph; see the contract."""
        (_, origin), *others = self._streams
        with self._errors(), using(self._device, origin):
            for _, stream in others:
                origin.wait_event(self.record(stream))
            address, self._streams = cuda.streamEndCapture(origin.ptr), []
            try:
                executable = cuda.graphInstantiate(address)
            finally:
                cuda.graphDestroy(address)
        plans = []
        for index in self._memory:
            with cupy.cuda.Device(index):
                plans += [node.plan for _, node in cupy.fft.config.get_plan_cache()]
        self._entered.close()
        return CudaGraph(self._device, executable, [*self._memory.values()], plans, self._pools)

    def cancel(self) -> None:
        """End the capture, whatever state it is in, and forget what was captured."""
        streams, self._streams = self._streams, []
        if streams:
            with suppress(RuntimeError):  # CUDA's: it was invalid, or branches of it are open
                cuda.graphDestroy(cuda.streamEndCapture(streams[0][1].ptr))
        self._entered.close()

    def was_disturbed(self, error: Exception) -> bool:
        """Tell by the first error whether what another thread did has ended the capture."""
        # What is not permitted is an error of its own; later calls only say that the capture is invalid.
        return isinstance(error, RuntimeError) and "invalidated" in str(error).lower()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # CUDA's, or CuPy's of a capture that is invalid
            raise DeviceError(f"{self._device.name}: {error}") from error


@contextmanager
def _all_plans_cached(index: int) -> Iterator[None]:
    """Let no FFT plan leave the calling thread's cache of a device, however small or disabled that is."""
    with cupy.cuda.Device(index):
        cache = cupy.fft.config.get_plan_cache()
    size, memsize = cache.get_size(), cache.get_memsize()
    cache.set_size(-1)
    cache.set_memsize(-1)
    try:
        yield
    finally:
        cache.set_size(size)
        cache.set_memsize(memsize)


class CudaGraph:
    """A CUDA graph, ready to be launched, with what it uses; see `offload.devices.base.DeviceGraph`."""

    __slots__ = ("_device", "_executable", "_memory", "_plans", "_pools")

    def __init__(
        self,
        device: CapturedDevice,
        executable: int,
        memory: list[_GraphMemory],
        plans: list[Any],
        pools: list[Any],
    ) -> None:
        self._device = device
        self._executable = executable
        self._memory = memory  # the arrays in it are the graph's
        self._plans = plans  # FFT plans whose work areas the graph uses
        self._pools = pools  # PyTorch's, whose memory is the graph's

    def __del__(self, is_finalizing: Any = sys.is_finalizing) -> None:
        if not is_finalizing():  # else the driver may be gone
            with suppress(cuda.CUDARuntimeError):  # of a lost device nothing is left
                cuda.graphExecDestroy(self._executable)

    @property
    def nbytes(self) -> int:
        """The size of the graph's own memory."""
        return sum(memory.nbytes for memory in self._memory) + pool_nbytes(self._pools)

    def launch(self, stream: Any) -> None:
        """Enqueue the graph; CUDA orders its launches among each other."""
        device = self._device
        try:
            if cuda.getDevice() == device.index:
                cuda.graphLaunch(self._executable, stream.ptr)
                return
            with cupy.cuda.Device(device.index):  # no library's current stream matters
                cuda.graphLaunch(self._executable, stream.ptr)
        except cuda.CUDARuntimeError as error:
            raise DeviceLostError(f"{device.name}: {error}") from error


class _GraphMemory:
    """The memory of one graph, in blocks of a few sizes."""

    def __init__(self, device: CapturedDevice) -> None:
        self._device = device
        self._blocks: list[Any] = []
        self._free: dict[tuple[int, int], list[Any]] = {}  # by stream and size
        self.nbytes = 0  # the total taken from the device

    def alloc(self, nbytes: int) -> Any:
        """Return memory for the calling thread's current stream: an allocator, as CuPy asks for it."""
        index = self._device.index
        if not nbytes:
            return MemoryPointer(UnownedMemory(0, 0, None, index), 0)
        rounded_nbytes = -(-nbytes // _GRANULE_NBYTES) * _GRANULE_NBYTES
        free = self._free.setdefault((cupy.cuda.get_current_stream().ptr, rounded_nbytes), [])
        if free:
            block = free.pop()
        else:
            block = self._device.alloc((rounded_nbytes,), _BYTE, None)
            self._blocks.append(block)
            self.nbytes += rounded_nbytes
        return MemoryPointer(UnownedMemory(block.data.ptr, rounded_nbytes, _Lease(block, free), index), 0)


class _Lease:
    """Owns a block while an array lies in it."""

    __slots__ = ("_block", "_free")

    def __init__(self, block: Any, free: list[Any]) -> None:
        self._block = block
        self._free = free

    def __del__(self) -> None:
        self._free.append(self._block)
