"""Streams that are used again, and never destroyed.

Libraries refer to streams by their addresses. When PyTorch frees memory, it records an event on each stream that has
used the memory, perhaps long after the runtime is closed. On a stream that is destroyed this fails or crashes. So a
stream that nobody has any more is kept for the next runtime, pool or capture of the process.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import cupy
from cupy.cuda import runtime as cuda

from offload.devices.cuda.forks import check_fork

_free: dict[int, list[int]] = {}  # addresses, by the ordinal of the GPU


def take(index: int) -> int:
    """Return the address of a stream that nobody has, which is not ordered with any other. The GPU is current."""
    check_fork()  # those of the parent process are not there
    try:
        return _free[index].pop()  # one step: whoever takes it out has it
    except (KeyError, IndexError):
        return int(cuda.streamCreateWithFlags(cuda.streamNonBlocking))


def give_back(index: int, ptr: int) -> None:
    """Keep a stream for the next who takes one, unless it is still being captured into a graph."""
    with suppress(RuntimeError):  # CUDA's, of a lost device; or CuPy's, of a capture that is invalid
        if not cuda.streamIsCapturing(ptr):
            _free.setdefault(index, []).append(ptr)


class KeptStream(cupy.cuda.Stream):  # type: ignore[misc]  # CuPy is not typed
    """A stream of CuPy's for the GPU with this ordinal, which is current; goes back when nobody refers to it."""

    def __init__(self, index: int) -> None:
        cupy.cuda.stream._BaseStream.__init__(self, take(index), index)  # noqa: SLF001  # not `Stream`'s, which makes one

    def __del__(self, is_finalizing: Any = sys.is_finalizing) -> None:
        if is_finalizing() or not hasattr(self, "ptr"):  # or there was no stream to be had
            return
        with suppress(RuntimeError):  # a lost device
            current = cupy.cuda.get_current_stream(self.device_id)
            if current is self or current is None:  # CuPy has a weak reference
                with cupy.cuda.Device(self.device_id):
                    cupy.cuda.Stream.null.use()
        give_back(self.device_id, self.ptr)
