"""Copies of boxes by hand: the calls of CUDA's runtime on a CuPy stream, no `offload`.

`benchmarks/run.py gpu` times them in turn with the routines that copy rectangles. A box has rows of bytes that lie
together, and one distance between the rows of a plane; arrays are NumPy's and CuPy's.
"""

import time

import cupy
from cupy.cuda import runtime
from cupyx import empty_pinned

__all__ = [
    "both_ways",
    "contiguous",
    "elementwise",
    "empty_pinned",
    "enable_access",
    "fill",
    "gathered",
    "packed",
    "rows",
    "scattered",
    "stream_on",
    "table",
    "timed",
]


def stream_on(array):
    """Return a stream of the device that has the array."""
    with array.device:
        return cupy.cuda.Stream(non_blocking=True)


def enable_access(devices):
    """Let each of the devices reach the memory of the others."""
    for one in devices:
        for other in devices:
            if one != other and runtime.deviceCanAccessPeer(one, other):
                with cupy.cuda.Device(one):
                    try:
                        runtime.deviceEnablePeerAccess(other)
                    except runtime.CUDARuntimeError as error:
                        if "PeerAccessAlreadyEnabled" not in str(error):
                            raise


def address(array):
    return array.data.ptr if isinstance(array, cupy.ndarray) else array.ctypes.data


def contiguous(dst, src, stream):
    """Enqueue a copy of bytes that lie together, also from one device to another."""
    runtime.memcpyAsync(address(dst), address(src), src.nbytes, runtime.memcpyDefault, stream.ptr)


def rows(dst, src, stream):
    """Enqueue a copy of a box of rows: `cudaMemcpy2DAsync` once a plane."""
    count, nbytes = src.shape[-2:]
    planes = zip(dst, src, strict=True) if src.ndim == 3 else [(dst, src)]
    for to, at in planes:
        runtime.memcpy2DAsync(
            address(to), to.strides[-2], address(at), at.strides[-2], nbytes, count, runtime.memcpyDefault, stream.ptr
        )


def timed(copy, dst, src, stream, times):
    """Enqueue a copy so many times, wait, and return the bytes copied a second."""
    began_s = time.perf_counter()
    for _ in range(times):
        copy(dst, src, stream)
    stream.synchronize()
    return times * src.nbytes / (time.perf_counter() - began_s)


def elementwise(dst, src, stream):
    """Enqueue CuPy's assignment of views of one shape."""
    with stream:
        cupy.copyto(dst, src)


def packed(dst, src, stream):
    """Enqueue CuPy's copy of a view to a contiguous array, a new one where it makes one."""
    with stream:
        if src.flags.c_contiguous:
            cupy.copyto(dst, src)
        else:
            cupy.ascontiguousarray(src)


def gathered(numbers, dst, src, stream):
    """Enqueue CuPy's `take` by an array of numbers."""
    with stream:
        cupy.take(src, numbers, out=dst)


def scattered(numbers, dst, src, stream):
    """Enqueue CuPy's assignment to elements by an array of numbers."""
    with stream:
        dst[numbers] = src


def table(numbers, array):
    """Return an array of numbers on the device of another array."""
    with array.device:
        return cupy.asarray(numbers)


def fill(array):
    """Fill a device array with noise, and wait."""
    with array.device:
        bytes_of = array.reshape(-1).view(cupy.uint8)
        bytes_of[...] = cupy.resize(cupy.random.randint(0, 120, 1 << 20, dtype=cupy.uint8), bytes_of.size)
        cupy.cuda.Device().synchronize()


def both_ways(near, result, far, back):
    """Copy pinned arrays to a device and from it at a time, and return the seconds until both are through."""
    streams = [stream_on(far), stream_on(back)]
    began_s = time.perf_counter()
    contiguous(far, near, streams[0])
    contiguous(result, back, streams[1])
    for stream in streams:
        stream.synchronize()
    return time.perf_counter() - began_s
