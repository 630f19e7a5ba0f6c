"""A Fourier transform along y of a field in host memory by hand: CuPy streams and events, no `offload`.

`benchmarks/run.py gpu` times it in turn with tasks that do the same. The field is ``[nz][ny][nx]`` of complex64; a
piece is a box that spans all of y.
"""

import threading
import time

import cupy
import numpy as np
from cupy.cuda import cufft, runtime
from cupyx import empty_pinned

__all__ = ["AlongY", "Link", "Memory", "Pipeline", "empty_pinned"]

TO_DEVICE, TO_HOST = runtime.memcpyHostToDevice, runtime.memcpyDeviceToHost


class AlongY:
    """cuFFT's plan for the transform of a piece along y, with a work area of its own."""

    def __init__(self, piece):
        _, ny, nx = piece.shape
        with piece.device:
            self.plan = cufft.PlanNd((ny,), (ny,), nx, 1, (ny,), nx, 1, cufft.CUFFT_C2C, nx, "C", 0, None)

    def __call__(self, source, result):
        """Enqueue the transform on the current stream, plane by plane: a plan has one distance between lines."""
        for into, out in zip(source, result, strict=True):
            self.plan.fft(into, out, cufft.CUFFT_FORWARD)


def copy_box(to, to_pitch, at, at_pitch, shape, kind, stream):
    """Copy a box of rows of complex64, which lie ``pitch`` bytes apart all through the box: one call."""
    nz, ny, nx = shape
    if to_pitch == at_pitch == nx * 8:
        runtime.memcpyAsync(to, at, nz * ny * nx * 8, kind, stream.ptr)
    else:
        runtime.memcpy2DAsync(to, to_pitch, at, at_pitch, nx * 8, nz * ny, kind, stream.ptr)


class Pipeline:
    """Three streams, one for each kind of work, some buffers in turn, and three events for each."""

    def __init__(self, shape, n_buffers=3):
        self.shape = shape
        self.buffers = [cupy.empty(shape, "c8") for _ in range(n_buffers)]
        self.transforms = [AlongY(buffer) for buffer in self.buffers]
        self.into, self.fft, self.out = (cupy.cuda.Stream(non_blocking=True) for _ in range(3))
        self.arrived, self.transformed, self.left = (
            [cupy.cuda.Event(disable_timing=True) for _ in range(n_buffers)] for _ in range(3)
        )

    def __call__(self, pieces):
        """Transform pairs of source and result, all of this shape; return the seconds it took."""
        began_s = time.perf_counter()
        row_nbytes = self.shape[2] * 8
        for number, (source, result) in enumerate(pieces):
            slot = number % len(self.buffers)
            buffer = self.buffers[slot]

            self.into.wait_event(self.left[slot])
            copy_box(
                buffer.data.ptr, row_nbytes, source.ctypes.data, source.strides[1], self.shape, TO_DEVICE, self.into
            )
            self.arrived[slot].record(self.into)

            self.fft.wait_event(self.arrived[slot])
            with self.fft:
                self.transforms[slot](buffer, buffer)
            self.transformed[slot].record(self.fft)

            self.out.wait_event(self.transformed[slot])
            copy_box(result.ctypes.data, result.strides[1], buffer.data.ptr, row_nbytes, self.shape, TO_HOST, self.out)
            self.left[slot].record(self.out)
        self.out.synchronize()
        return time.perf_counter() - began_s


class Link:
    """Pinned memory of the host copied to devices, and back, both ways at once on two streams a device."""

    def __init__(self, source, result, indices, nbytes=256 << 20):
        """Let ``indices`` be the devices; they share the copies of ``source`` to them and to ``result`` from them."""
        self.source, self.result, self.nbytes = source, result, nbytes
        self.ends = []
        for index in indices:
            with cupy.cuda.Device(index):
                streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
                self.ends.append((index, streams, cupy.zeros(nbytes, "u1"), cupy.zeros(nbytes, "u1")))

    def __call__(self, kinds=(TO_DEVICE, TO_HOST)):
        """Copy all of ``source`` and all of ``result``, or one of them; return the seconds it took."""
        began_s = time.perf_counter()
        for number, low in enumerate(range(0, self.source.nbytes, self.nbytes)):
            index, streams, into, out = self.ends[number % len(self.ends)]
            nbytes = min(self.nbytes, self.source.nbytes - low)
            with cupy.cuda.Device(index):
                if TO_DEVICE in kinds:
                    at = self.source.ctypes.data + low
                    runtime.memcpyAsync(into.data.ptr, at, nbytes, TO_DEVICE, streams[0].ptr)
                if TO_HOST in kinds:
                    to = self.result.ctypes.data + low
                    runtime.memcpyAsync(to, out.data.ptr, nbytes, TO_HOST, streams[1].ptr)
        for _, streams, _, _ in self.ends:
            for stream in streams:
                stream.synchronize()
        return time.perf_counter() - began_s


class Memory:
    """Pageable memory copied to and from pinned slots by threads, while the link copies those slots both ways.

    Nothing is in any order, and no thread needs the GIL or waits, since each makes a few calls of NumPy: what is staged
    in the order of a program is not quicker.
    """

    def __init__(self, source, result, n_threads, nbytes=4 << 20):
        """Let threads, each by a slot of ``nbytes``, pack ``source`` and unpack as much to ``result``.

        All have as many bytes to copy: the first ones pack, the last ones unpack, and one in the middle does both.
        """
        self.nbytes, self.total = nbytes, source.nbytes
        share = -(-2 * self.total // (64 * n_threads)) * 64
        slots = empty_pinned((n_threads, nbytes + 64 * (share // nbytes)), "u1")
        slots[...] = 0
        self.slots = slots[: (n_threads + 1) // 2], slots[n_threads // 2 :]  # of those that pack, and that unpack
        packs, unpacks = (memory.reshape(-1).view("u1") for memory in (source, result))
        self.work = []
        for number, slot in enumerate(slots):
            low, high = number * share, (number + 1) * share
            pairs = list(by_slot(slot, packs[low:high], nbytes))
            low, high = (max(0, at - self.total) for at in (low, high))
            self.work.append(pairs + [(page, near) for near, page in by_slot(slot, unpacks[low:high], nbytes)])
        self.streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
        self.ends = [cupy.zeros(nbytes, "u1") for _ in range(2)]

    def __call__(self):
        """Copy all of it once; return the seconds it took."""
        ready = threading.Barrier(1 + len(self.work))

        def run(pairs):
            ready.wait()
            for to, at in pairs:
                np.copyto(to, at)

        threads = [threading.Thread(target=run, args=(pairs,)) for pairs in self.work]
        for thread in threads:
            thread.start()
        ready.wait()
        began_s = time.perf_counter()
        (into, out), (to_device, to_host) = (end.data.ptr for end in self.ends), self.streams
        for number, low in enumerate(range(0, self.total, self.nbytes)):
            packed, filled = (slots[number % len(slots)].ctypes.data for slots in self.slots)
            nbytes = min(self.nbytes, self.total - low)
            runtime.memcpyAsync(into, packed, nbytes, TO_DEVICE, to_device.ptr)
            runtime.memcpyAsync(filled, out, nbytes, TO_HOST, to_host.ptr)
        for stream in self.streams:
            stream.synchronize()
        for thread in threads:
            thread.join()
        return time.perf_counter() - began_s


def by_slot(slot, page, nbytes):
    """Yield pairs of a view of a slot and a part of ``page``: of whole slots, and of what is left."""
    rows = len(page) // nbytes
    whole = page[: rows * nbytes].reshape(rows, nbytes)
    # Each row of the view is the slot, but for 64 bytes, so that one call goes through it again and again.
    yield np.lib.stride_tricks.as_strided(slot, whole.shape, (64, 1)), whole
    yield slot[: len(page) - whole.size], page[whole.size :]
