"""Device memory of one GPU from another library's allocator, where the program has chosen one.

Such allocators hand a block out in the order of one stream: work of its last user there may still run. A pool
therefore has a stream of its own. No work is enqueued there, so any stream may use a block as soon as this stream is
idle. The runtime gives a block back when no work uses it any more, so the allocator need not wait.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

import cupy
from cupy.cuda import runtime as cuda

from offload.devices.cuda.kept_streams import KeptStream
from offload.errors import UnsupportedError


class LibraryPool(ABC):
    """Blocks of a library's allocator on one GPU; has the methods of `offload.devices.cuda.memory.DriverPool`.

    Raise `UnsupportedError` if the library cannot use the GPU.
    """

    is_ending = False  # as of a pool of the driver's

    def __init__(self, library: Any, index: int) -> None:
        self.index = index  # CUDA's device ordinal
        # GPUs whose memory kernels on this one may use. Nobody knows how a library has allocated its memory, so copies
        # between GPUs go by the driver.
        self.reaches = {index}
        self._library = library
        self._device = cupy.cuda.Device(index)
        self._neighbour = cupy.get_default_memory_pool()
        with self._device:
            self._stream = KeptStream(index)

    def take(self, nbytes: int) -> int:
        """Return the address of a block for any stream; raise `MemoryError` if there is not enough memory."""
        with self._device:
            address = self._alloc(nbytes)
            if address is None and self.info()[0] >= nbytes:
                self._neighbour.free_all_blocks()
                address = self._alloc(nbytes)
            if address is None:
                raise MemoryError
            if cuda.streamQuery(self._stream.ptr):  # an allocator may have the stream wait for other streams
                cuda.streamSynchronize(self._stream.ptr)
        return address

    @abstractmethod
    def give_back(self, address: int, nbytes: int) -> None:
        """Take back a block that no work uses any more."""

    def info(self) -> tuple[int, int]:
        """Return (free, total) bytes; memory that the library and CuPy's pool hold unused is free."""
        with self._device:
            free_nbytes, total_nbytes = cuda.memGetInfo()
            free_nbytes += self._neighbour.free_bytes()
            return self._within_limit(free_nbytes + self._unused_nbytes(), total_nbytes)

    def trim(self) -> None:  # noqa: B027  # a pool has nothing to do here
        """Do nothing: unused memory is the library's."""

    @abstractmethod
    def _alloc(self, nbytes: int) -> int | None:
        """Return the address of a block that the pool's stream may use; None if there is not enough memory.

        The GPU is the current one.
        """

    def _unused_nbytes(self) -> int:
        """Return the bytes that the library holds unused, besides those of CuPy's pool."""
        return 0

    def _within_limit(self, free_nbytes: int, total_nbytes: int) -> tuple[int, int]:
        """Return free and total bytes under the limit that the program has set for the library, if there is one."""
        return free_nbytes, total_nbytes


class TorchPool(LibraryPool):
    """Blocks of PyTorch's caching allocator, which frees its unused blocks by itself when memory is short."""

    def __init__(self, library: Any, index: int) -> None:
        super().__init__(library, index)
        self._cuda = library.cuda
        try:
            self._cuda.init()
            self._cuda.memory_reserved(index)
        except Exception as error:
            raise UnsupportedError(f"use_allocator('torch'): PyTorch cannot use cuda:{index} ({error})") from error
        self._delete = self._cuda.caching_allocator_delete

    def give_back(self, address: int, nbytes: int) -> None:
        with suppress(RuntimeError):  # a lost device, whose memory goes with the process
            self._delete(address)

    def _alloc(self, nbytes: int) -> int | None:
        try:
            return int(self._cuda.caching_allocator_alloc(nbytes, self.index, self._stream.ptr))
        except self._cuda.OutOfMemoryError:
            return None

    def _unused_nbytes(self) -> int:
        return int(self._cuda.memory_reserved(self.index) - self._cuda.memory_allocated(self.index))

    def _within_limit(self, free_nbytes: int, total_nbytes: int) -> tuple[int, int]:
        fraction = getattr(self._cuda, "get_per_process_memory_fraction", None)  # of PyTorch 2.7
        limit_nbytes = total_nbytes if fraction is None else int(fraction(self.index) * total_nbytes)
        if limit_nbytes >= total_nbytes:
            return free_nbytes, total_nbytes
        room_nbytes = max(limit_nbytes - int(self._cuda.memory_allocated(self.index)), 0)
        return min(free_nbytes, room_nbytes), limit_nbytes


class _HoldingPool(LibraryPool):
    """Blocks that are objects of a library, which go back when nobody refers to the object."""

    def __init__(self, library: Any, index: int) -> None:
        super().__init__(library, index)
        self._held: dict[int, Any] = {}  # by address; a single store or removal needs no lock

    def give_back(self, address: int, nbytes: int) -> None:
        self._held.pop(address)


class CupyPool(_HoldingPool):
    """Blocks of CuPy's default memory pool, which frees its unused blocks by itself when memory is short."""

    def _alloc(self, nbytes: int) -> int | None:
        try:
            with self._stream:
                block = self._neighbour.malloc(nbytes)
        except MemoryError:  # CuPy's is a subclass
            return None
        self._held[block.ptr] = block
        return int(block.ptr)

    def _within_limit(self, free_nbytes: int, total_nbytes: int) -> tuple[int, int]:
        limit_nbytes = self._neighbour.get_limit()
        if not limit_nbytes:
            return free_nbytes, total_nbytes
        room_nbytes = max(limit_nbytes - self._neighbour.used_bytes(), 0)
        return min(free_nbytes, room_nbytes), min(total_nbytes, limit_nbytes)


class RmmPool(_HoldingPool):
    """Blocks of RMM's current memory resource of the GPU. RMM does not tell its unused memory."""

    def __init__(self, library: Any, index: int) -> None:
        super().__init__(library, index)
        self._order = library.pylibrmm.stream.Stream(self._stream)

    def _alloc(self, nbytes: int) -> int | None:
        try:
            block = self._library.DeviceBuffer(size=nbytes, stream=self._order)
        except MemoryError:
            return None
        self._held[block.ptr] = block
        return int(block.ptr)


LIBRARY_POOLS: dict[str, type[LibraryPool]] = {"torch": TorchPool, "cupy": CupyPool, "rmm": RmmPool}
