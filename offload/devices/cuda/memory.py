"""Device memory of one GPU: by default blocks of a pool of the driver's, which never wait for the device.

The runtime gives a block back only when no work uses it any more. So one stream, with nothing else on it, carries all
allocations and frees, and any stream may use a block at once. Small blocks are kept here for the next mapping of their
size. See docs/design/theory.md, "Memory of CUDA".
"""

from __future__ import annotations

import ctypes
import sys
import threading
from contextlib import suppress
from sys import getrefcount
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

import cupy
from cupy.cuda import MemoryPointer, UnownedMemory
from cupy.cuda import runtime as cuda
from cupy.cuda.memory import PooledMemory

from offload.devices.cuda import allocators
from offload.devices.cuda.library_pools import LIBRARY_POOLS
from offload.devices.retirement import REFERENCES_ALONE
from offload.errors import DeviceUnavailableError

if TYPE_CHECKING:
    from offload.devices.cuda.library_pools import LibraryPool
    from offload.devices.retirement import Retired

_NO_MEMORY = 2  # cudaErrorMemoryAllocation
_PEER_ENABLED, _TOO_MANY_PEERS = 704, 711  # cudaErrorPeerAccessAlreadyEnabled, cudaErrorTooManyPeers
_POOLS_SUPPORTED = 115  # cudaDevAttrMemoryPoolsSupported
_PINNED, _NO_HANDLE, _ON_DEVICE = 1, 0, 1  # cudaMemAllocationType, cudaMemAllocationHandleType, cudaMemLocationType
_READ_WRITE = 3  # cudaMemAccessFlagsProtReadWrite

_WORD_NBYTES = 4  # What a block is a multiple of: an atomic step on a byte takes the word that it lies in

_GRANULE_NBYTES = 512  # Blocks that are kept are of multiples of this size; the driver's are aligned to it, too

# Kept of one size, at most; of all sizes `_SIZES` times as much, which no other allocator of the process gets.
_KEPT_NBYTES = 4 << 20

_SIZES = 32  # Sizes of which blocks are kept; one more, and all go


class DeviceMemory:
    """The allocations of one `CudaDevice`.

    Raise `DeviceUnavailableError` if the driver has no memory pools for this GPU, and `UsageError` if the program has
    chosen the allocator of a library that it has not imported.
    """

    __slots__ = ("__weakref__", "_live", "_pool", "index")

    def __init__(self, index: int) -> None:
        self.index = index
        # bytes and pool by address; a single store or removal needs no lock
        self._live: dict[int, tuple[int, DriverPool | LibraryPool]] = {}
        self._pool: DriverPool | LibraryPool  # of new blocks
        allocators.enter(self)

    def alloc(self, nbytes: int) -> MemoryPointer:
        """Return memory for any stream, which goes back when the last reference does. No device need be current.

        Raise `MemoryError` if there is not enough, even with all memory that this pool and CuPy's hold unused.
        """
        if not nbytes:
            return MemoryPointer(UnownedMemory(0, 0, None, self.index), 0)
        pool = self._pool
        address = pool.take(nbytes)
        self._live[address] = nbytes, pool
        return MemoryPointer(UnownedMemory(address, nbytes, CudaBlock(self, address), self.index), 0)

    def give_back(self, address: int) -> None:
        """Take back a block that no work uses any more."""
        nbytes, pool = self._live.pop(address)  # before another thread may be given the address
        pool.give_back(address, nbytes)

    def is_of_driver_pool(self, address: int) -> bool:
        """Tell whether a block is from a pool of the driver's."""
        return isinstance(self._live[address][1], DriverPool)

    def live_nbytes(self) -> int:
        """Return the bytes allocated and not yet given back."""
        return sum(nbytes for nbytes, _ in list(self._live.values()))

    def info(self) -> tuple[int, int]:
        """Return (free, total) bytes, as the pool of new blocks has them."""
        return self._pool.info()

    def reaches(self, index: int) -> bool:
        """Tell whether kernels here may use memory of another GPU for which `is_open` holds."""
        return index in self._pool.reaches

    def make_pool(self, name: str) -> DriverPool | LibraryPool:
        """Return the pool of an allocator for this GPU; raises as `__init__`."""
        return _pool_of(name, self.index)

    def take_from(self, pool: DriverPool | LibraryPool) -> None:
        """Take new blocks from another pool. Those of the pool before go back to it, and keep it."""
        before = getattr(self, "_pool", pool)  # none while the device is being opened
        self._pool = pool
        if before is not pool:
            before.trim()

    def close(self) -> None:
        """Give unused memory back to the driver, and drop the pool, which the arrays that are left keep. Idempotent."""
        allocators.leave(self)
        if hasattr(self, "_pool"):
            self._pool.trim()
            del self._pool


class CudaBlock:
    """Owns one allocation; the memory goes back when it dies, on whichever thread."""

    # With ``retired`` its arrays are not to be used any more.

    __slots__ = ("_address", "_memory", "retired")

    def __init__(self, memory: DeviceMemory, address: int) -> None:
        self._memory = memory
        self._address = address
        self.retired: Retired | None = None

    def __del__(self, is_finalizing: Any = sys.is_finalizing) -> None:
        if not is_finalizing():  # else the driver may be gone
            self._memory.give_back(self._address)

    @property
    def is_of_driver_pool(self) -> bool:
        """Whether it is from a pool of the driver's, and not from a library."""
        return self._memory.is_of_driver_pool(self._address)


def block_of(array: Any) -> CudaBlock | None:
    """Return the owner of the memory of a CuPy array; None for memory that is not from here."""
    owner = getattr(array.data.mem, "_owner", None)  # which an `UnownedMemory` keeps alive
    return owner if type(owner) is CudaBlock else None


def is_open(array: Any) -> bool:
    """Tell whether GPUs with access to this array's GPU may use its memory: it is a driver's pool's, or CuPy's.

    Other libraries may have allocated memory that only its own GPU can use.
    """
    block = block_of(array)
    return type(array.data.mem) is PooledMemory if block is None else block.is_of_driver_pool


def is_alone(buffer: Any) -> bool:
    """Tell whether no other CuPy array has the memory of a buffer."""
    # A view has the same pointer as its array, or one of its own to the same memory; anything else has an array.
    return getrefcount(buffer.data) <= REFERENCES_ALONE and getrefcount(buffer.data.mem) <= REFERENCES_ALONE


class DriverPool:
    """The default pool of one GPU for all runtimes of the process; it ends with the last of them and their arrays."""

    # larger blocks are not kept: copying one takes ten times as long as allocating it
    small_nbytes: ClassVar[int] = 1 << 20

    is_ending = False
    """Whether nobody may be given this pool any more."""

    def __init__(self, index: int) -> None:
        if not cuda.deviceGetAttribute(_POOLS_SUPPORTED, index):
            raise DeviceUnavailableError(f"CUDA device {index} has no memory pools (cudaMallocAsync); use another one")
        self.index = index  # CUDA's device ordinal
        self.reaches = {index}  # ordinals of the GPUs whose memory kernels on this one may use
        self._device = cupy.cuda.Device(index)
        self._neighbour = cupy.get_default_memory_pool()
        with self._device:
            self._stream = cupy.cuda.Stream(non_blocking=True)
            # the ``cudaMemPool_t``
            self.handle = cuda.memPoolCreate(cuda.MemPoolProps(_PINNED, _NO_HANDLE, _ON_DEVICE, index))
        cuda.memPoolSetAttribute(self.handle, cuda.cudaMemPoolAttrReleaseThreshold, (1 << 64) - 1)
        self._stream_ptr = self._stream.ptr
        self._is_gone = False
        self._kept: dict[int, list[int]] = {}  # addresses by size

    def take(self, nbytes: int) -> int:
        """Return the address of a block for any stream.

        Raise `MemoryError` if there is not enough memory, or CuPy's limit forbids it.
        """
        if nbytes <= self.small_nbytes:
            nbytes = -(-nbytes // _GRANULE_NBYTES) * _GRANULE_NBYTES
            kept = self._kept.get(nbytes)
            if kept:
                try:
                    return kept.pop()
                except IndexError:  # another thread has taken the last
                    pass
        address = self._from_driver(nbytes)
        if address is None and self._make_room(nbytes):
            address = self._from_driver(nbytes)
        if address is None:
            raise MemoryError
        return address

    def give_back(self, address: int, nbytes: int) -> None:
        """Take back a block that no work uses any more."""
        if nbytes <= self.small_nbytes:
            nbytes = -(-nbytes // _GRANULE_NBYTES) * _GRANULE_NBYTES
            kept = self._kept.get(nbytes)
            if kept is None:
                if len(self._kept) >= _SIZES:
                    self._free_kept()
                kept = self._kept.setdefault(nbytes, [])
            if len(kept) * nbytes < _KEPT_NBYTES and not self._is_gone:
                kept.append(address)
                if self._kept.get(nbytes) is kept:
                    return
                try:
                    address = kept.pop()  # all lists were emptied meanwhile
                except IndexError:
                    return
        self._free(address)

    def info(self) -> tuple[int, int]:
        """Return (free, total) bytes under CuPy's limit; unused memory here and in CuPy's pool is free."""
        used_nbytes = self._used_nbytes() - self._kept_nbytes()
        held_nbytes = cuda.memPoolGetAttribute(self.handle, cuda.cudaMemPoolAttrReservedMemCurrent)
        neighbour = self._neighbour
        with self._device:
            free_nbytes, total_nbytes = cuda.memGetInfo()
            free_nbytes += held_nbytes - used_nbytes + neighbour.free_bytes()
            limit_nbytes = neighbour.get_limit()
            if limit_nbytes:
                room_nbytes = max(limit_nbytes - neighbour.used_bytes() - used_nbytes, 0)
                return min(free_nbytes, room_nbytes), min(total_nbytes, limit_nbytes)
        return free_nbytes, total_nbytes

    def trim(self) -> None:
        """Give memory known to be unused back to the driver."""
        self._free_kept()
        with suppress(cuda.CUDARuntimeError):  # a lost device
            cuda.memPoolTrimTo(self.handle, 0)

    def __del__(self, is_finalizing: Any = sys.is_finalizing) -> None:
        # First: weak references lead here until this returns, and each call of CUDA lets other threads run.
        self.is_ending = True
        if not is_finalizing() and hasattr(self, "_kept"):
            self._free_kept()
            self._is_gone = True  # arrays that die with it may come later
            with suppress(cuda.CUDARuntimeError):  # a lost device
                cuda.memPoolDestroy(self.handle)

    def _from_driver(self, nbytes: int) -> int | None:
        """Return the address of a new block; None if there is no memory, or CuPy's limit is reached."""
        if cuda.getDevice() == self.index:
            limit_nbytes = self._neighbour.get_limit()
        else:
            with self._device:
                limit_nbytes = self._neighbour.get_limit()
        if limit_nbytes and not self._is_within(limit_nbytes, nbytes):
            return None
        try:
            whole_nbytes = -(-nbytes // _WORD_NBYTES) * _WORD_NBYTES
            address = int(cuda.mallocFromPoolAsync(whole_nbytes, self.handle, self._stream_ptr))
        except cuda.CUDARuntimeError as error:
            if error.status != _NO_MEMORY:
                raise
            return None
        if cuda.streamQuery(self._stream_ptr):
            cuda.streamSynchronize(self._stream_ptr)
        return address

    def _is_within(self, limit_nbytes: int, nbytes: int) -> bool:
        with self._device:
            return bool(self._neighbour.total_bytes() + self._used_nbytes() + nbytes <= limit_nbytes)

    def _make_room(self, nbytes: int) -> bool:
        """Give back unused memory, here and in CuPy's pool; return whether there may be room then."""
        # CuPy's pool waits for the device, so that it is asked only where that helps.
        self._free_kept()
        if self.info()[0] < nbytes:
            return False
        with self._device:
            self._neighbour.free_all_blocks()
        return True

    def _free(self, address: int) -> None:
        with suppress(cuda.CUDARuntimeError):  # a lost device, whose memory goes with the process
            if self._is_gone:  # and perhaps the stream with it
                cuda.free(address)
                return
            cuda.freeAsync(address, self._stream_ptr)
            cuda.streamSynchronize(self._stream_ptr)  # nothing is there; before, `cudaMalloc` would not get the memory

    def _free_kept(self) -> None:
        kept, self._kept = self._kept, {}
        for addresses in kept.values():
            while addresses:
                try:
                    address = addresses.pop()
                except IndexError:  # another thread still had the list, and has taken the last
                    break
                self._free(address)

    def _kept_nbytes(self) -> int:
        return sum(nbytes * len(addresses) for nbytes, addresses in list(self._kept.items()))

    def _used_nbytes(self) -> int:
        """Return the bytes that the driver has given, those that are kept included."""
        return int(cuda.memPoolGetAttribute(self.handle, cuda.cudaMemPoolAttrUsedMemCurrent))


# -- the GPUs of the process -----------------------------------------------------------------------------

_pools: WeakValueDictionary[tuple[str, int], DriverPool | LibraryPool] = WeakValueDictionary()  # by name and ordinal
_pools_lock = threading.Lock()


def _pool_of(name: str, index: int) -> DriverPool | LibraryPool:
    """Return the pool of an allocator for a GPU; a driver's pool and those before it are made to reach each other."""
    with _pools_lock:
        pool = _pools.get((name, index))
        if pool is None or pool.is_ending:
            pool = DriverPool(index) if name == allocators.OWN else LIBRARY_POOLS[name](allocators.library(name), index)
            if isinstance(pool, DriverPool):
                for other in list(_pools.values()):
                    if isinstance(other, DriverPool) and not other.is_ending:
                        _open(pool, other)
                        _open(other, pool)
            _pools[name, index] = pool
        return pool


def _open(pool: DriverPool, peer: DriverPool) -> None:
    """Let a GPU use the memory of another, CuPy's and the pool's, if the hardware can."""
    if not cuda.deviceCanAccessPeer(peer.index, pool.index):
        return
    with cupy.cuda.Device(peer.index):
        try:
            cuda.deviceEnablePeerAccess(pool.index)
        except cuda.CUDARuntimeError as error:
            if error.status == _TOO_MANY_PEERS:  # copies between them go through the host, by the driver
                return
            if error.status != _PEER_ENABLED:
                raise
    access = _Access(_ON_DEVICE, peer.index, _READ_WRITE)
    set_access = ctypes.CDLL("libcuda.so.1").cuMemPoolSetAccess
    status = set_access(ctypes.c_void_p(pool.handle), ctypes.byref(access), ctypes.c_size_t(1))
    if status:
        raise DeviceUnavailableError(
            f"cuMemPoolSetAccess: CUDA device {peer.index} cannot use the pool of device {pool.index} (error {status})"
        )
    peer.reaches.add(pool.index)


class _Access(ctypes.Structure):  # CUmemAccessDesc
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int), ("flags", ctypes.c_int))
