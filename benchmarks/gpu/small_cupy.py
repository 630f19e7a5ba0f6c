"""Small operations written by hand: CuPy streams, events and copies, no `offload`.

`benchmarks/run.py gpu --section small` and `benchmarks/gpu/small.py` time them in turn with constructs that do the
same. Each entry of `BY_HAND` makes, of the arrays and the number of operations, what issues the operations and what
waits for them. Where constructs order what they issue, an event is recorded behind each operation, and the next one's
stream waits for it. Arrays have as many elements as fill blocks of threads.
"""

from functools import partial

import cupy
import numpy as np
from cupy.cuda import runtime
from cupyx import empty_pinned

SOURCE = r"""
extern "C" __global__ void bump(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1; }

extern "C" __global__ void carry(const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i] + 1;
}
"""
BLOCK = 256
TO_DEVICE, TO_HOST = runtime.memcpyHostToDevice, runtime.memcpyDeviceToHost
_bump, _carry = (cupy.RawKernel(SOURCE, name) for name in ("bump", "carry"))


def bump(x):
    """Enqueue a kernel on the current stream that adds 1 to each element."""
    size = x.size
    _bump((max(1, size // BLOCK),), (min(size, BLOCK),), (x,))


def carry(x, y):
    """Enqueue a kernel on the current stream that writes x + 1 to y."""
    size = x.size
    _carry((max(1, size // BLOCK),), (min(size, BLOCK),), (x, y))


def pinned(shape):
    """Return pinned memory, zero, in Fortran order."""
    x = empty_pinned(tuple(shape)[::-1], np.float32).T
    x[...] = 0
    return x


def _stream():
    return cupy.cuda.Stream(non_blocking=True)


def _events(count):
    return [cupy.cuda.Event(disable_timing=True) for _ in range(count)]


def _to_device(x, host, stream):
    """Return what enqueues a copy; the addresses are looked up here."""
    return partial(runtime.memcpyAsync, x.data.ptr, host.ctypes.data, host.nbytes, TO_DEVICE, stream.ptr)


def _to_host(host, x, stream):
    """Return what enqueues a copy; the addresses are looked up here."""
    return partial(runtime.memcpyAsync, host.ctypes.data, x.data.ptr, host.nbytes, TO_HOST, stream.ptr)


def copies(x, host, count):
    stream, events = _stream(), _events(count)
    copy = _to_device(x, host, stream)

    def issue():
        for event in events:
            copy()
            event.record(stream)
            stream.wait_event(event)

    return issue, stream.synchronize


def mapped(host, count):
    stream, events = _stream(), _events(count)
    address, size, nbytes, copy, queue = host.ctypes.data, host.size, host.nbytes, runtime.memcpyAsync, stream.ptr

    def issue():
        with stream:
            for event in events:
                x = cupy.empty(size, "f4")
                copy(x.data.ptr, address, nbytes, TO_DEVICE, queue)
                bump(x)
                copy(address, x.data.ptr, nbytes, TO_HOST, queue)
                event.record(stream)
                stream.wait_event(event)

    return issue, stream.synchronize


def queue_kernels(x, count):
    stream = _stream()

    def issue():
        with stream:
            for _ in range(count):
                bump(x)

    return issue, stream.synchronize


def queue_copies(x, host, count):
    stream = _stream()
    copy = _to_device(x, host, stream)

    def issue():
        for _ in range(count):
            copy()

    return issue, stream.synchronize


def _in_turn(count):
    """Return two streams, and for each step the position of its own and of the other, with an event."""
    return [_stream(), _stream()], [(i % 2, 1 - i % 2, event) for i, event in enumerate(_events(count))]


def waiting_kernels(arrays, count):
    """Kernels on two streams in turn, each after all that the other stream has so far."""
    streams, steps = _in_turn(count)

    def issue():
        for one, other, event in steps:
            event.record(streams[other])
            streams[one].wait_event(event)
            streams[one].use()
            bump(arrays[one])
        cupy.cuda.Stream.null.use()

    return issue, _all(streams)


def waiting_copies(arrays, hosts, count):
    """Copies on two streams in turn, each after all that the other stream has so far."""
    streams, steps = _in_turn(count)
    copies = list(map(_to_device, arrays, hosts, streams))

    def issue():
        for one, other, event in steps:
            event.record(streams[other])
            streams[one].wait_event(event)
            copies[one]()

    return issue, _all(streams)


def blocking_kernels(x, count):
    stream = _stream()

    def issue():
        with stream:
            for _ in range(count):
                bump(x)
                stream.synchronize()

    return issue, _nothing


def blocking_copies(x, host, count):
    stream = _stream()
    copy = _to_device(x, host, stream)

    def issue():
        for _ in range(count):
            copy()
            stream.synchronize()

    return issue, _nothing


def pairs(x, call, count):
    """A call on the host, then a kernel; the next call follows the kernel."""
    stream = _stream()

    def issue():
        with stream:
            for _ in range(count):
                call()
                bump(x)
                stream.synchronize()

    return issue, _nothing


def chains(arrays, count):
    streams = [_stream() for _ in arrays]
    n = len(arrays)
    steps = [(streams[i % n], arrays[i % n], event) for i, event in enumerate(_events(count))]

    def issue():
        streams[0].use()
        for stream, x, event in steps:
            if n > 1:
                stream.use()
            bump(x)
            event.record(stream)
            stream.wait_event(event)
        cupy.cuda.Stream.null.use()

    return issue, _all(streams)


def ping_pong(arrays, count):
    streams, steps = _in_turn(count)

    def issue():
        for one, other, event in steps:
            streams[one].use()
            carry(arrays[one], arrays[other])
            event.record(streams[one])
            streams[other].wait_event(event)
        cupy.cuda.Stream.null.use()

    return issue, _all(streams)


def ping_pong_copies(arrays, hosts, count):
    """As `ping_pong`; what a kernel wrote is copied to the host, while the other stream goes on with it.

    The kernel that overwrites what is copied is enqueued behind the copy, on its stream.
    """
    streams, steps = _in_turn(count)
    copies = [_to_host(hosts[1 - one], arrays[1 - one], stream) for one, stream in enumerate(streams)]

    def issue():
        for one, other, event in steps:
            streams[one].use()
            carry(arrays[one], arrays[other])
            event.record(streams[one])
            copies[one]()
            streams[other].wait_event(event)
        cupy.cuda.Stream.null.use()

    return issue, _all(streams)


def columns(arrays, blocks):
    """Blocks to the device, a kernel, and back: a stream a block."""
    streams = [_stream() for _ in blocks]
    copies = map(_to_device, arrays, blocks, streams), map(_to_host, blocks, arrays, streams)
    steps = list(zip(streams, arrays, *copies, strict=True))

    def issue():
        for stream, x, to_device, to_host in steps:
            to_device()
            stream.use()
            bump(x)
            to_host()
        cupy.cuda.Stream.null.use()

    return issue, _all(streams)


def _all(streams):
    def finish():
        for stream in streams:
            stream.synchronize()

    return finish


def _nothing():
    pass


BY_HAND = {
    made.__name__: made
    for made in (
        copies,
        mapped,
        queue_kernels,
        queue_copies,
        waiting_kernels,
        waiting_copies,
        blocking_kernels,
        blocking_copies,
        pairs,
        chains,
        ping_pong,
        ping_pong_copies,
        columns,
    )
}
"""What makes the operations of each kind: returns what issues them, and what waits for them."""
