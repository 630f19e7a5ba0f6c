"""What is alive of the handles and memory that a process has taken from CUDA.

CuPy's classes are Python's, so that their ``__init__`` and ``__del__`` can be made to keep the books, and so can the
functions of ``cupy.cuda.runtime`` that return and take bare handles. Both go by the handle: what one has made the other
may destroy. A stream that the library keeps for the next who takes one is not alive; it is when it is taken again.
Device memory is what CuPy's pools say is in use. A handle made through ctypes alone is not seen.
"""

from __future__ import annotations

import functools
import gc
import itertools
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import cupy
from cupy.cuda import pinned_memory, runtime

from offload.devices.cuda import kept_streams

_RETURNED = {  # what functions return, and others take
    "stream": (("streamCreate", "streamCreateWithFlags", "streamCreateWithPriority"), ("streamDestroy",)),
    "event": (("eventCreate", "eventCreateWithFlags"), ("eventDestroy",)),
    "graph": (("streamEndCapture",), ("graphDestroy",)),
    "executable graph": (("graphInstantiate",), ("graphExecDestroy",)),
    "pinned block": (("hostAlloc",), ("freeHost",)),
    "device block": (("malloc", "mallocAsync", "mallocFromPoolAsync"), ("free", "freeAsync")),
    "memory pool": (("memPoolCreate",), ("memPoolDestroy",)),
}
_TAKEN = {"pinned range": (("hostRegister",), ("hostUnregister",))}  # what both take
_NOT_OWNED = {0, runtime.streamLegacy, runtime.streamPerThread}
_TESTS = str(Path(__file__).parents[1])


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment: what was made before it is not asked for."""

    serial: int
    used_nbytes: int
    blocks: frozenset[int]


class Ledger:
    """The books, by kind and handle."""

    def __init__(self):
        self._serials = itertools.count(1)
        self._alive: dict[tuple[str, int], tuple[int, tuple[tuple[str, int], ...]]] = {}

    # -- keeping them --------------------------------------------------------------------------------
    def take(self, kind, handle):
        if handle not in _NOT_OWNED:
            self._alive[kind, handle] = next(self._serials), _maker()

    def drop(self, kind, handle):
        self._alive.pop((kind, handle), None)

    # -- asking --------------------------------------------------------------------------------------
    def mark(self):
        return Mark(next(self._serials), used_nbytes(), frozenset(blocks()))

    def alive(self, kind, mark):
        """Return where each handle of a kind that was made since the mark, and is alive, was made."""
        return [maker for (of, _), (serial, maker) in self._alive.copy().items() if of == kind and serial > mark.serial]

    def left_since(self, mark):
        """Return a line for each kind of thing that was made since the mark and is alive; garbage is collected."""
        left = self._left_since(mark)
        if left:
            settle()
            left = self._left_since(mark)
        return left

    def _left_since(self, mark):
        left = []
        for kind in (*_RETURNED, *_TAKEN):
            makers = Counter(self.alive(kind, mark))
            if makers:
                where = ", ".join(f"{count} made at {_where(maker)}" for maker, count in makers.most_common(5))
                left.append(f"{makers.total()} {kind}{'s' if makers.total() > 1 else ''}: {where}")
        more_nbytes = used_nbytes() - mark.used_nbytes
        if more_nbytes > 0:
            arrays = [array for address, array in blocks().items() if address not in mark.blocks]
            what = ", ".join(f"{array.dtype}[{', '.join(map(str, array.shape))}]" for array in arrays[:5])
            left.append(f"{more_nbytes:,} bytes of device memory, in {len(arrays)} block(s): {what or 'no array'}")
        return left


def settle():
    """Have everything that is garbage go, also what CuPy keeps until work is done or as a cache."""
    cupy.cuda.Device().synchronize()
    cupy.fft.config.get_plan_cache().clear()
    cupy.cuda.alloc_pinned_memory(0)  # looks at what CuPy holds until a copy is done
    gc.collect()


def used_nbytes():
    """Return the bytes in use of the pools of all devices."""
    pool = cupy.get_default_memory_pool()
    total_nbytes = 0
    for index in range(runtime.getDeviceCount()):
        with cupy.cuda.Device(index):
            total_nbytes += pool.used_bytes()
    return total_nbytes


def blocks():
    """Return an array over each block of device memory, by the block's address."""
    if not used_nbytes():
        return {}  # most tests begin so, and to look for arrays costs milliseconds
    arrays = (value for value in gc.get_objects() if issubclass(type(value), cupy.ndarray))  # `isinstance` asks proxies
    return {array.data.mem.ptr: array for array in arrays if array.data.mem.ptr}


def _maker():
    """Return code and line of the innermost frames, of the library and of the tests, that are making something."""
    frame = sys._getframe(2)
    found = []
    while frame is not None and len(found) < 3:
        name = frame.f_code.co_filename
        if ("/offload/" in name or name.startswith(_TESTS)) and name != __file__:
            found.append((name, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


def _where(maker):
    return " < ".join(f"{Path(name).name}:{line}" for name, line in maker) or "places unknown"


@functools.cache
def open_ledger():
    """Return the ledger of this process, whose books are kept from the first call on."""
    ledger = Ledger()
    _keep_class(ledger, "stream", cupy.cuda.Stream, ("__del__",))
    _keep_class(ledger, "event", cupy.cuda.Event, ("__del__",))
    _keep_class(ledger, "pinned block", pinned_memory.PooledPinnedMemory, ("__del__", "free"))
    kept_streams.take = functools.partial(_take, ledger, "stream", kept_streams.take)
    kept_streams.give_back = functools.partial(_give_back, ledger, kept_streams.give_back)
    for kind, (makers, destroyers) in (_RETURNED | _TAKEN).items():
        for name in makers:
            _wrap(name, functools.partial(_take, ledger, kind))
        for name in destroyers:
            _wrap(name, functools.partial(_drop, ledger, kind))
    return ledger


def _keep_class(ledger, kind, cls, destroyers):
    initialise = cls.__init__

    @functools.wraps(initialise)
    def init(self, *args, **kwargs):
        initialise(self, *args, **kwargs)
        ledger.take(kind, self.ptr)

    cls.__init__ = init
    for name in destroyers:
        destroy = getattr(cls, name)

        def destroyed(self, destroy=destroy):
            ledger.drop(kind, getattr(self, "ptr", 0))
            destroy(self)

        setattr(cls, name, destroyed)


def _take(ledger, kind, function, *args):
    result = function(*args)
    ledger.take(kind, args[0] if kind in _TAKEN else result)
    return result


def _give_back(ledger, function, index, ptr):
    function(index, ptr)
    if ptr in kept_streams._free.get(index, ()):
        ledger.drop("stream", ptr)


def _drop(ledger, kind, function, handle, *args):
    ledger.drop(kind, handle)
    return function(handle, *args)


def _wrap(name, around):
    function = getattr(runtime, name, None)  # not every CuPy has each
    if function is not None:
        setattr(runtime, name, functools.partial(around, function))
