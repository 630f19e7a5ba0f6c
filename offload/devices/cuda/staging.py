"""Copies between pageable memory and a CUDA device, through pinned slots, by threads of the library.

Threads pack chunks of the host's memory into pinned slots, from which the driver copies them, or the other way round.
Chunks are few and large, because getting the GIL back costs each some 80 µs. A thread does one after the other, and
chunks of all copies are taken in turn. A copy starts when its stream has reached it, so every slot comes back. See
docs/design/theory.md, "Staging".
"""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
from cupy.cuda import runtime as cuda

from offload.arrays.copies import chunks, ordered_by
from offload.arrays.hostcopies import HostMemory
from offload.devices.cuda.staging_worker import SLOT_NBYTES, Driver, Worker
from offload.errors import DeviceError, DeviceLostError, DeviceMemoryError
from offload.interrupts.shields import Shield

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from offload.arrays.boxes import Box
    from offload.devices.cuda.staging_worker import PartTransfer

# More of them wait for the GIL, and for the memory, rather than pack: measured on an H200 with 16 cores.
_MOST_THREADS = 10

# Chunks of a copy, if they get large enough by that: several threads share one copy, and each chunk costs the GIL.
_CHUNKS = 4

_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation


class PageableCopy:
    """A copy between pageable memory and a device that has not begun.

    ``dst`` and ``src`` are the addresses of element ``(0, …, 0)``. The copy keeps ``keep``, the owners of the memory of
    both sides, until it is done.
    """

    __slots__ = (
        "_done", "_keep", "_staging", "ahead", "box", "device", "error", "host", "n_out", "parts", "stream", "to_host",
    )  # fmt: skip

    def __init__(
        self, staging: StagingThreads, dst: int, src: int, box: Box, stream: Any, *, to_host: bool, keep: object
    ) -> None:
        self._staging = staging
        self._keep = keep
        side = 1 if to_host else 2
        self.box = ordered_by(box, side)  # in the order of the host's memory
        self.host = HostMemory(dst if to_host else src, box, side)
        self.device = src if to_host else dst  # the address on the device
        self.stream = stream
        self.to_host = to_host
        self.error: BaseException | None = None  # the first one
        self.parts: Iterator[Box] = iter(())  # the chunks after ``ahead``
        self.ahead: Box | None = None  # the next chunk; None where there is no more
        self.n_out = 0  # chunks that threads are at
        self._done: Callable[[BaseException | None], None] | None = None

    def start(self, done: Callable[[BaseException | None], None]) -> None:
        """Hand the copy to the staging threads; its stream must have reached the copy's place.

        Does not block, except that a few bytes to the host are copied at once, because waking a thread would take
        longer. ``done`` is called once with None or the error, on a staging thread or on this one; it must neither
        block nor raise. To the device, it is called when the host's memory has been read and everything is on the
        stream. To the host, it is called when the host's memory has been written.
        """
        self._done = done
        if self.to_host and self.box.nbytes <= self._staging.at_once_nbytes:
            try:
                self._staging.fetch(self)
            except DeviceError as error:
                self.error = error
            self.finish()
        else:
            self._staging.start(self)

    def run(self) -> None:
        """Copy, and block until `start` would call ``done``; the stream need not have got there.

        Raise `DeviceError` if the device failed, or the staging was closed.
        """
        self._staging.reach(self.stream)
        finished = threading.Event()
        self.start(lambda _: finished.set())
        finished.wait()
        if self.error is not None:
            raise self.error

    def cut(self, limit_nbytes: int) -> None:
        """Begin to cut the copy into chunks; ``ahead`` is the next one, None where there is no more."""
        self.parts = chunks(self.box, limit_nbytes)
        self.ahead = next(self.parts)

    def drop(self, error: BaseException) -> None:
        """Let the chunks that no thread has taken be."""
        self.error = self.error or error
        self.ahead = None

    def finish(self) -> None:
        """Say that the copy is done, and let go of its memory."""
        done, self._done, self._keep = self._done, None, None
        if done is not None:
            done(self.error)


class StagingThreads:
    """The threads that stage the copies of a device; they start when they are needed."""

    def __init__(self, index: int, name: str, transfer: PartTransfer) -> None:
        self.least_chunk_nbytes = 1 << 20  # of a chunk: for less, waking another thread takes longer than packing
        self.at_once_nbytes = 64 << 10  # up to here, the thread that starts a copy to the host makes it
        self.index = index
        self.driver = Driver()
        self.transfer = transfer  # the device's part of a chunk
        self._name = name
        self._pid = os.getpid()  # a forked child has none of the threads
        self._most_threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition(threading.Lock())
        self._n_idle = 0  # threads that wait for a chunk
        self._copies: deque[PageableCopy] = deque()  # those with chunks that no thread has taken
        self._is_closed = False

    def start(self, copy: PageableCopy) -> None:
        """Have a copy done; see `PageableCopy.start`."""
        # A copy alone may have smaller chunks, which more threads pack at the same time.
        nbytes = copy.box.nbytes
        is_alone = self._n_idle == len(self._threads) and not self._copies
        limit_nbytes = chunk_nbytes(nbytes, is_alone=is_alone, least_nbytes=self.least_chunk_nbytes)
        copy.cut(limit_nbytes)
        n_wanted = -(-nbytes // limit_nbytes)
        with self._changed:
            is_closed = self._is_closed
            if is_closed:
                copy.drop(self._closed())
            else:
                self._copies.append(copy)
                self._changed.notify(n_wanted)
                n_new = min(n_wanted - self._n_idle, self._most_threads - len(self._threads))
                try:
                    self._add_threads(n_new)
                except RuntimeError:
                    self._copies.remove(copy)
                    raise
        if is_closed:
            copy.finish()

    def fetch(self, copy: PageableCopy) -> None:
        """Copy to the host on the calling thread."""
        buffer = np.empty(copy.box.nbytes, np.uint8)
        try:
            with cupy.cuda.Device(self.index):
                self.transfer(copy.device, buffer.ctypes.data, copy.box, copy.stream, to_host=True, is_pinned=False)
        except cuda.CUDARuntimeError as error:
            raise self.failure(error) from error
        copy.host.unpack(buffer, copy.box)

    def reach(self, stream: Any) -> None:
        """Block until a stream is idle."""
        try:
            stream.synchronize()
        except cuda.CUDARuntimeError as error:
            raise self.failure(error) from error

    def take(self) -> tuple[PageableCopy, Box] | None:
        """Wait for a chunk, of each copy in turn, and return it; None after `close`."""
        with self._changed:
            while not self._copies:
                if self._is_closed:
                    return None
                self._n_idle += 1
                self._changed.wait()
                self._n_idle -= 1
            copy = self._copies.popleft()
            part = copy.ahead
            assert part is not None
            copy.ahead = next(copy.parts, None)
            copy.n_out += 1
            if copy.ahead is not None:
                self._copies.append(copy)
            return copy, part

    def give_back(self, copy: PageableCopy, error: BaseException | None) -> None:
        """Note that a chunk is done, or has failed and its copy with it."""
        with self._changed:
            if error is not None:
                copy.drop(error)
                with suppress(ValueError):
                    self._copies.remove(copy)
            copy.n_out -= 1
            is_done = not copy.n_out and copy.ahead is None  # decided under the lock: one thread alone ends it
        if is_done:
            copy.finish()

    def failure(self, error: BaseException) -> BaseException:
        """Return the error of this library for one of CUDA."""
        if not isinstance(error, cuda.CUDARuntimeError):
            return error
        if error.status == _OUT_OF_MEMORY:
            return DeviceMemoryError(f"{self._name}: no pinned memory to stage a copy: {error}")
        return DeviceLostError(f"{self._name}: {error}")

    def close(self) -> None:
        """Fail the copies that are left, and end the threads. Idempotent."""
        if os.getpid() != self._pid:
            return  # a fork has no threads
        with self._changed:
            self._is_closed = True
            left = list(self._copies)
            self._copies.clear()
            for copy in left:
                copy.drop(self._closed())
            idle = [copy for copy in left if not copy.n_out]  # of the others the last chunk's thread says so
            self._changed.notify_all()
        for copy in idle:
            copy.finish()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _closed(self) -> DeviceError:
        return DeviceError(f"{self._name} was closed during a copy")

    def _add_threads(self, n_new: int) -> None:
        for _ in range(n_new):
            worker = Worker(self)
            run = Shield.around(worker.run)
            thread = threading.Thread(target=run, name=f"offload-staging-{self.index}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more are to be had
                if not self._threads:
                    raise
                return
            self._threads.append(thread)


def chunk_nbytes(nbytes: int, *, is_alone: bool, least_nbytes: int = 1 << 20) -> int:
    """Return how many bytes of a copy are staged at a time: a quarter of it, but the least and a slot at most."""
    # While nothing else is staged, half a slot is enough if that makes no more than twice as many chunks: 32 MB take
    # 1.6 ms in eight, 2.0 in four.
    chunk = nbytes // _CHUNKS
    if is_alone and chunk > SLOT_NBYTES // 2:
        chunk = max(chunk // 2, SLOT_NBYTES // 2)
    return min(max(chunk, least_nbytes), SLOT_NBYTES)
