"""Dependent kernels written by hand: CuPy streams, events and graphs, no `offload`.

`benchmarks/run.py gpu` times them in turn with tasks that launch the same kernels. Times are those of
`time.perf_counter`, in seconds: until everything is done, and until everything is enqueued.
"""

import time

import cupy
import cupyx
import numpy as np

SOURCE = r"""
extern "C" __global__ void bump(float* x) { x[threadIdx.x] += 1; }

extern "C" __global__ void carry(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] + 1; }

__device__ unsigned long long now_ns() {
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

extern "C" __global__ void mark(float* x, volatile unsigned long long* at_ns) {
    x[threadIdx.x] += 1;
    if (threadIdx.x == 0) *at_ns = now_ns();
}

extern "C" __global__ void hold(volatile unsigned long long* released) {
    while (!*released) __nanosleep(200);
}
"""
GRID, BLOCK = (1,), (32,)

bump, carry, mark, hold = (cupy.RawKernel(SOURCE, name) for name in ("bump", "carry", "mark", "hold"))


def pinned_words(count):
    """Return words of pinned memory, zero, and the address under which kernels find them."""
    words = cupyx.empty_pinned((count,), np.uint64)
    words[:] = 0
    return words, np.uint64(words.ctypes.data)


def load(arrays):
    """Load the kernels on the devices of the arrays: at its first use CUDA would wait for the kernels that run."""
    words, address = pinned_words(1)
    words[0] = 1
    for x in arrays:
        with x.device:
            bump(GRID, BLOCK, (x,))
            carry(GRID, BLOCK, (x, x))
            mark(GRID, BLOCK, (x, address))
            hold((1,), (1,), (address,))
            cupy.cuda.Device().synchronize()


def new_streams(count):
    return [cupy.cuda.Stream(non_blocking=True) for _ in range(count)]


def new_events(count):
    return [cupy.cuda.Event(disable_timing=True) for _ in range(count)]


# Each of these enqueues the kernels of a graph; with events, each is followed by an event that the stream of the
# next kernel waits for.


def chain(arrays, streams, events):
    (x,), (stream,) = arrays, streams
    with stream:
        for event in events:
            bump(GRID, BLOCK, (x,))
            event.record(stream)
            stream.wait_event(event)


def chain_launches(arrays, streams, n):
    (x,), (stream,) = arrays, streams
    with stream:
        for _ in range(n):
            bump(GRID, BLOCK, (x,))


def ping_pong(arrays, streams, events):
    for i, event in enumerate(events):
        one, other = i % 2, 1 - i % 2
        streams[one].use()
        carry(GRID, BLOCK, (arrays[one], arrays[other]))
        event.record(streams[one])
        streams[other].wait_event(event)
    cupy.cuda.Stream.null.use()


def ping_pong_launches(arrays, streams, n):
    for i in range(n):
        streams[i % 2].use()
        carry(GRID, BLOCK, (arrays[i % 2], arrays[1 - i % 2]))
    cupy.cuda.Stream.null.use()


def chains(arrays, streams, events):
    for i, event in enumerate(events):
        stream = streams[i % len(arrays)]
        stream.use()
        bump(GRID, BLOCK, (arrays[i % len(arrays)],))
        event.record(stream)
        stream.wait_event(event)
    cupy.cuda.Stream.null.use()


def chains_launches(arrays, streams, n):
    for i in range(n):
        streams[i % len(arrays)].use()
        bump(GRID, BLOCK, (arrays[i % len(arrays)],))
    cupy.cuda.Stream.null.use()


WITH_EVENTS = {"chain": chain, "ping-pong": ping_pong, "64 chains": chains}
LAUNCHES = {"chain": chain_launches, "ping-pong": ping_pong_launches, "64 chains": chains_launches}


def timed(enqueue, arrays, streams, events_or_count):
    """Return the seconds until all is done, and until all is enqueued."""
    began_s = time.perf_counter()
    enqueue(arrays, streams, events_or_count)
    enqueued_s = time.perf_counter()
    for stream in streams:
        stream.synchronize()
    return time.perf_counter() - began_s, enqueued_s - began_s


def captured(name, arrays, n):
    """Return CUDA's graph of the same kernels, captured from streams that fork from the first and join it."""
    streams = new_streams(len(arrays))
    first, *others = streams
    fork, *joins = new_events(len(streams))
    with first:
        first.begin_capture()
        fork.record(first)
        for stream in others:
            stream.wait_event(fork)
        enqueue, argument = (ping_pong, new_events(n)) if name == "ping-pong" else (LAUNCHES[name], n)
        enqueue(arrays, streams, argument)
        for stream, join in zip(others, joins, strict=True):
            join.record(stream)
            first.wait_event(join)
        return first.end_capture()


def replay(graph, stream):
    """Launch a captured graph, wait for it, and return the seconds until it is done and until it is enqueued."""
    began_s = time.perf_counter()
    graph.launch(stream)
    enqueued_s = time.perf_counter()
    stream.synchronize()
    return time.perf_counter() - began_s, enqueued_s - began_s


def clock_offset_ns(x, turns=100):
    """Return what to add to the device's %globaltimer for the host's `time.perf_counter_ns`.

    The host sees a time stamp of a kernel only after it was taken, so that the least difference is nearest.
    """
    words, address = pinned_words(1)
    stream = cupy.cuda.Stream(non_blocking=True)
    offsets = []
    with stream:
        for _ in range(turns):
            words[0] = 0
            mark(GRID, BLOCK, (x, address))
            while not words[0]:
                pass
            offsets.append(time.perf_counter_ns() - int(words[0]))
            stream.synchronize()
    return min(offsets)


class Latch:
    """A kernel that holds a stream until the host releases it, by a flag in pinned memory."""

    def __init__(self):
        self.flag, self.address = pinned_words(1)

    def hold(self):
        hold((1,), (1,), (self.address,))

    def release(self):
        self.flag[0] = 1


class Mark:
    """A kernel that bumps an array and notes the device's time in pinned memory."""

    def __init__(self):
        self.at_ns, self.address = pinned_words(1)

    def __call__(self, x):
        mark(GRID, BLOCK, (x, self.address))


# Single calls, each until it is done.


def launch_and_wait(x, stream):
    with stream:
        bump(GRID, BLOCK, (x,))
    stream.synchronize()


def copy_and_wait(x, host, stream):
    cupy.cuda.runtime.memcpyAsync(
        x.data.ptr, host.ctypes.data, host.nbytes, cupy.cuda.runtime.memcpyHostToDevice, stream.ptr
    )
    stream.synchronize()


def copy_then_call(x, host, stream, call):
    copy_and_wait(x, host, stream)
    call()


class AcrossDevices:
    """Kernels in turn on two devices, each after the one before on the other device, by an event."""

    def __init__(self, arrays, n):
        self.arrays, self.streams, self.events = arrays, [], []
        for i, x in enumerate(arrays):
            with x.device:
                self.streams.append(cupy.cuda.Stream(non_blocking=True))
                self.events.append(new_events((n + 1 - i) // 2))
        self.n = n

    def __call__(self):
        began_s = time.perf_counter()
        for i in range(self.n):
            one, other = i % 2, 1 - i % 2
            event, stream = self.events[one][i // 2], self.streams[one]
            with self.arrays[one].device, stream:
                bump(GRID, BLOCK, (self.arrays[one],))
                event.record(stream)
            self.streams[other].wait_event(event)
        for stream in self.streams:
            stream.synchronize()
        return time.perf_counter() - began_s
