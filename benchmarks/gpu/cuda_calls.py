"""Time single calls of CUDA and CuPy that an operation of the runtime makes, each beside what could stand for it.

``python benchmarks/run.py cuda_calls [--repeat 7] [--calls 400] [--only TEXT] [--busy] [--json]`` prints a Markdown
table of microseconds a call: the median and the least of the repetitions. Rows marked *today* call the package's own
methods; the rows below them are their parts, and candidates. With ``--busy`` a thread computes beside the calls: then
every call that lets go of the GIL may wait for it, up to 5 ms (`sys.getswitchinterval`).

Statements are timed as they stand here. Each is tried once before; one that raises, or returns an error of the driver,
has that in place of a time, and the others go on. Nothing is timed while the device is busy, unless the name says so.
"""

import ctypes
import gc
import json
import platform
import threading
import timeit
from contextlib import contextmanager
from statistics import median

import cupy
import numpy as np
from cupy.cuda import MemoryPointer, UnownedMemory, driver, get_current_stream, runtime  # noqa: F401  # for statements
from cupyx import empty_pinned

from offload.arrays.boxes import collapse
from offload.arrays.copies import hull, is_within_region  # noqa: F401  # same
from offload.devices.cuda import copies
from offload.devices.cuda.copies import address_of  # noqa: F401  # same
from offload.devices.cuda.device import CudaDevice
from offload.events.wakeup import SemaphoreWakeup

SIZE = 256
"""Elements of float32 of the small arrays: 1 KB."""

SPIN_S, BUSY_SPIN_S = 0.05, 0.5
"""How long the kernel runs that holds a stream; beside a thread that computes."""

SOURCE = r"""
extern "C" __global__ void touch(float* x) { x[threadIdx.x] += 1; }
extern "C" __global__ void spin(long long ns) {
    long long now, end;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    for (end = now + ns; now < end;) asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
}
"""

POINTER_ATTRIBUTES = (2, 11, 12)  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE, _RANGE_START_ADDR, _RANGE_SIZE
HELD = "held"
"""Statements of this setting are timed while ``held`` is at work, and ``late`` is an event behind it."""

CONTIGUOUS = """
if d.flags.c_contiguous and pinned.flags.c_contiguous:
    at = pinned.__array_interface__["data"][0]
    pointer_attributes(at)
    runtime.memcpyAsync(d.data.ptr, at, d.nbytes, 1, stream.ptr)
"""

# (group, [(name, statement) or (name, statement, HELD)])
GROUPS = [
    (
        "current device and stream",
        [
            ("today: CudaDevice.use and restore", "device.restore(device.use(stream))"),
            ("getDevice", "runtime.getDevice()"),
            ("get_current_stream(0)", "get_current_stream(0)"),
            ("Stream.use", "stream.use()"),
            ("without getDevice of ours", "outer = get_current_stream(0); stream.use(); outer.use()"),
            ("with stream", "with stream: pass"),
            ("__enter__ and __exit__", "stream.__enter__(); stream.__exit__()"),
            ("stream.ptr", "stream.ptr"),
        ],
    ),
    (
        "is the caller's stream idle",
        [
            ("today: caller_event, default stream", "device.caller_event()"),
            ("streamQuery, default stream", "runtime.streamQuery(0)"),
            ("streamQuery, default stream, another one busy", "runtime.streamQuery(0)", HELD),
            ("cuStreamQuery with the GIL, default stream", "py.cuStreamQuery(0)"),
            ("streamQuery, non-blocking stream", "runtime.streamQuery(stream_ptr)"),
            ("cuStreamQuery with the GIL, non-blocking", "py.cuStreamQuery(stream_ptr)"),
        ],
    ),
    (
        "mark",
        [
            ("today: CudaDevice.record, event used again", "device.reuse([device.record(stream)])"),
            ("eventRecord", "runtime.eventRecord(event_ptr, stream_ptr)"),
            ("cuEventRecord with the GIL", "py.cuEventRecord(event_ptr, stream_ptr)"),
            ("cuEventRecord by ctypes, without the GIL", "c.cuEventRecord(event_ptr, stream_ptr)"),
            (
                "cuStreamWriteValue32 to pinned memory, with the GIL",
                "py.cuStreamWriteValue32_v2(stream_ptr, flag, 1, 0)",
            ),
            ("event made and destroyed", "runtime.eventDestroy(runtime.eventCreateWithFlags(2))"),
        ],
    ),
    (
        "has it passed",
        [
            ("today: CudaDevice.passed", "device.passed(past)"),
            ("today: CudaDevice.passed, not yet", "device.passed(late)", HELD),
            ("eventQuery", "runtime.eventQuery(past_ptr)"),
            ("eventQuery, not yet", "runtime.eventQuery(late_ptr)", HELD),
            ("cuEventQuery with the GIL", "py.cuEventQuery(past_ptr)"),
            ("cuEventQuery with the GIL, not yet", "py.cuEventQuery(late_ptr)", HELD),
            ("streamQuery", "runtime.streamQuery(stream_ptr)"),
            ("a counter in pinned memory", "counter[0] >= 7"),
            ("a counter in pinned memory, by ctypes", "count.value >= 7"),
        ],
    ),
    (
        "wait for another stream",
        [
            ("today: CudaDevice.wait_event", "device.wait_event(other, past)"),
            ("today: CudaDevice.wait_event, not yet", "device.wait_event(third, late)", HELD),
            ("streamWaitEvent", "runtime.streamWaitEvent(other_ptr, past_ptr)"),
            ("cuStreamWaitEvent with the GIL", "py.cuStreamWaitEvent(other_ptr, past_ptr, 0)"),
            ("cuStreamWaitEvent with the GIL, not yet", "py.cuStreamWaitEvent(third_ptr, late_ptr, 0)", HELD),
            ("cuStreamWaitValue32, with the GIL", "py.cuStreamWaitValue32_v2(other_ptr, flag, 0, 0)"),
        ],
    ),
    (
        "wake the host",
        [
            ("today: CudaDevice.wake", "device.wake(stream, wakeup)"),
            ("cuLaunchHostFunc with the GIL", "py.cuLaunchHostFunc(stream_ptr, post, semaphore)"),
        ],
    ),
    (
        "copy of 1 KB from pinned memory",
        [
            ("today: CudaDevice.copy", "device.copy(d, pinned, stream)"),
            ("memcpyAsync", "runtime.memcpyAsync(d_ptr, pinned_ptr, nbytes, 1, stream_ptr)"),
            ("memcpyAsync, kind default", "runtime.memcpyAsync(d_ptr, pinned_ptr, nbytes, 4, stream_ptr)"),
            ("cuMemcpyAsync with the GIL", "py.cuMemcpyAsync(d_ptr, pinned_ptr, nbytes, stream_ptr)"),
            ("cuMemcpyHtoDAsync with the GIL", "py.cuMemcpyHtoDAsync_v2(d_ptr, pinned_ptr, nbytes, stream_ptr)"),
            ("ndarray.set", "d.set(pinned, stream)"),
            ("instead: contiguous, the rest by hand", CONTIGUOUS),
            ("part: collapse", "box = collapse(d.shape, d.strides, pinned.strides, d.itemsize)"),
            ("instead: both are contiguous", "d.flags.c_contiguous and pinned.flags.c_contiguous"),
            ("part: hull", "hull(box, 2)"),
            ("part: addresses", "address_of(d); address_of(pinned)"),
            ("part: host address by ctypes", "pinned.ctypes.data"),
            ("part: is it pinned", "is_within_region(pinned_ptr, pinned_ptr + nbytes, region_of)"),
            ("part: pointerGetAttributes", "runtime.pointerGetAttributes(pinned_ptr)"),
            ("part: type and range", "region_of(pinned_ptr)"),
            ("cuPointerGetAttributes for both", "pointer_attributes(pinned_ptr)"),
        ],
    ),
    (
        "copy of 1 KB to pinned memory",
        [
            ("today: CudaDevice.copy", "device.copy(pinned, d, stream)"),
            ("memcpyAsync", "runtime.memcpyAsync(pinned_ptr, d_ptr, nbytes, 2, stream_ptr)"),
            ("cuMemcpyAsync with the GIL", "py.cuMemcpyAsync(pinned_ptr, d_ptr, nbytes, stream_ptr)"),
        ],
    ),
    (
        "copy of 1 KB from pageable memory",
        [
            ("today: CudaDevice.copy", "device.copy(d, pageable, stream)"),
            ("memcpyAsync", "runtime.memcpyAsync(d_ptr, pageable_ptr, nbytes, 1, stream_ptr)"),
            ("part: pointerGetAttributes", "runtime.pointerGetAttributes(pageable_ptr)"),
            ("cuPointerGetAttributes for both", "pointer_attributes(pageable_ptr)"),
            ("part: streamIsCapturing", "runtime.streamIsCapturing(stream_ptr)"),
            (
                "part: bytes of our own",
                "ctypes.cast(ctypes.c_char_p(ctypes.string_at(pageable_ptr, nbytes)), ctypes.c_void_p).value",
            ),
            ("instead: memmove to a pinned ring", "ctypes.memmove(pinned_ptr, pageable_ptr, nbytes)"),
        ],
    ),
    (
        "copy of 1 KB inside of the device",
        [
            ("today: CudaDevice.copy", "device.copy(e, d, stream)"),
            ("today: CudaDevice.copy, every other element", "device.copy(half, sparse, stream)"),
            ("memcpyAsync, kind default", "runtime.memcpyAsync(e_ptr, d_ptr, nbytes, 4, stream_ptr)"),
            ("memcpyAsync, kind device to device", "runtime.memcpyAsync(e_ptr, d_ptr, nbytes, 3, stream_ptr)"),
            ("today: CudaDevice.fill", "device.fill(octets, 1, stream)"),
            ("memsetAsync", "runtime.memsetAsync(d_ptr, 1, nbytes, stream_ptr)"),
        ],
    ),
    (
        "memory of 1 KB",
        [
            ("today: CudaDevice.alloc, and given back", "x = device.alloc(shape, f4, stream); del x"),
            ("today: CudaDevice.view", "device.view(d, 0, shape, (4,), f4)"),
            ("part: UnownedMemory", "UnownedMemory(d_ptr, nbytes, d, 0)"),
            ("part: MemoryPointer", "MemoryPointer(memory, 0)"),
            ("part: ndarray, contiguous", "cupy.ndarray(shape, f4, pointer)"),
            ("part: ndarray, with strides", "cupy.ndarray(shape, f4, pointer, (4,))"),
            ("instead: view of an array that is kept", "d.view()"),
            ("instead: the array itself is kept", "x = arrays.pop(); arrays.append(x)"),
            ("cupy.empty, and given back", "x = cupy.empty(SIZE, f4); del x"),
            (
                "mallocFromPoolAsync and freeAsync",
                "runtime.freeAsync(runtime.mallocFromPoolAsync(1024, pool, stream_ptr), stream_ptr)",
            ),
        ],
    ),
    (
        "what an array says",
        [
            ("today: CudaDevice.is_array", "device.is_array(d)"),
            ("today: CudaDevice.section", "device.section(d)"),
            ("data.ptr", "d.data.ptr"),
            ("data.device_id", "d.data.device_id"),
            ("shape", "d.shape"),
            ("strides", "d.strides"),
        ],
    ),
    (
        "kernels and graphs",
        [
            ("RawKernel, on the current stream", "touch(grid, block, argument)"),
            ("RawKernel, on a stream", "touch(grid, block, argument, stream=stream)"),
            ("launchKernel", "driver.launchKernel(touch_ptr, 1, 1, 1, SIZE, 1, 1, 0, stream_ptr, call_ptr, 0)"),
            ("graphLaunch, one kernel", "runtime.graphLaunch(graph.graphExec, stream_ptr)"),
            ("cuGraphLaunch with the GIL", "py.cuGraphLaunch(graph_ptr, stream_ptr)"),
        ],
    ),
]

SIGNATURES = {
    "cuStreamQuery": "p",
    "cuEventRecord": "pp",
    "cuEventQuery": "p",
    "cuStreamWaitEvent": "ppu",
    "cuStreamWriteValue32_v2": "pQuu",
    "cuStreamWaitValue32_v2": "pQuu",
    "cuLaunchHostFunc": "ppp",
    "cuMemcpyAsync": "QQzp",
    "cuMemcpyHtoDAsync_v2": "Qpzp",
    "cuGraphLaunch": "pp",
    "cuPointerGetAttributes": "uppQ",
}
TYPES = {"p": ctypes.c_void_p, "Q": ctypes.c_uint64, "u": ctypes.c_uint, "z": ctypes.c_size_t}


class Library:
    """Functions of the driver, whose argument types are declared; those that it lacks raise when they are called."""

    def __init__(self, load):
        library = load("libcuda.so.1")
        for name, types in SIGNATURES.items():
            function = getattr(library, name, None)
            if function is not None:
                function.argtypes = tuple(TYPES[letter] for letter in types)
                setattr(self, name, function)


def pointer_reader(library):
    """Return a function that asks for type, begin and size of the memory around an address in one call."""
    kind, begin, size = ctypes.c_uint(), ctypes.c_uint64(), ctypes.c_size_t()
    wanted = (ctypes.c_uint * 3)(*POINTER_ATTRIBUTES)
    values = (ctypes.c_void_p * 3)(*map(ctypes.addressof, (kind, begin, size)))
    at_wanted, at_values, call = ctypes.addressof(wanted), ctypes.addressof(values), library.cuPointerGetAttributes
    keep = kind, begin, size, wanted, values

    def read(address):
        if call(3, at_wanted, at_values, address):
            return None
        return keep[0].value, begin.value, size.value

    return read


def make_names():
    """Return what the statements speak of, beside what this file imports."""
    device = CudaDevice(0, 0)
    stream, other, third, held = (device.new_stream() for _ in range(4))
    module = cupy.RawModule(code=SOURCE)
    touch, spin = module.get_function("touch"), module.get_function("spin")
    f4, shape, grid, block = np.dtype("f4"), (SIZE,), (1,), (SIZE,)
    d, e = (device.alloc(shape, f4, stream) for _ in range(2))
    octets = device.alloc((4 * SIZE,), np.dtype("u1"), stream)
    half, sparse, arrays, argument = e[: SIZE // 2], d[::2], [d], (d,)
    pinned, pageable = empty_pinned(shape, np.float32), np.zeros(shape, np.float32)
    counter, flags = empty_pinned((1,), np.uint32), empty_pinned((1,), np.uint32)
    pinned[:], counter[:], flags[:] = 0, 9, 1
    count, flag = ctypes.c_uint32.from_address(counter.ctypes.data), flags.ctypes.data
    nbytes, d_ptr, e_ptr = d.nbytes, d.data.ptr, e.data.ptr
    pinned_ptr, pageable_ptr = pinned.ctypes.data, pageable.ctypes.data
    memory = UnownedMemory(d_ptr, nbytes, d, 0)
    pointer = MemoryPointer(memory, 0)
    box = collapse(d.shape, d.strides, pinned.strides, d.itemsize)
    pool, region_of = device._memory._pool.handle, copies._driver().region_of  # noqa: SLF001
    py, c = Library(ctypes.PyDLL), Library(ctypes.CDLL)
    pointer_attributes = pointer_reader(py)
    wakeup = SemaphoreWakeup()
    post, semaphore = wakeup.post_function, wakeup.address
    touch(grid, block, argument, stream=stream)
    spin(grid, grid, (np.int64(1000),), stream=held)
    with stream:
        stream.begin_capture()
        touch(grid, block, argument)
        graph = stream.end_capture()
    graph.launch(stream)
    graph_ptr, touch_ptr = graph.graphExec, touch.kernel.ptr
    parameter = ctypes.c_uint64(d_ptr)
    call = (ctypes.c_void_p * 1)(ctypes.addressof(parameter))
    call_ptr = ctypes.addressof(call)
    stream_ptr, other_ptr, third_ptr = stream.ptr, other.ptr, third.ptr
    past, event = device.record(stream), device.record(stream)
    late, past_ptr, late_ptr, event_ptr = past, past.ptr, past.ptr, event.ptr
    device.synchronize()
    return {**globals(), **locals()}


def sample(statement, names, count, *, is_held):
    """Return the microseconds a call of a statement, with nothing enqueued before but what holds the stream."""
    names["device"].synchronize()
    if is_held:
        names["spin"]((1,), (1,), (np.int64(names["spin_s"] * 1e9),), stream=names["held"])
        names["late"] = names["device"].record(names["held"])
        names["late_ptr"] = names["late"].ptr
    took_s = timeit.Timer(statement, globals=names).timeit(count)
    if is_held and names["device"].passed(names["late"]):
        raise RuntimeError(
            f"{count} calls took longer than the kernel that was to hold the stream; take fewer (--calls)"
        )
    names["device"].synchronize()
    return took_s * 1e6 / count


def check(statement, names):
    """Try a statement; a number that a call of the driver's returns is its status."""
    if statement.startswith(("py.", "c.")):
        status = eval(statement, names)  # of this file
        if status not in (0, 600):  # CUDA_ERROR_NOT_READY
            raise RuntimeError(f"error {status} of the driver")
    else:
        exec(statement, names)
    names["device"].synchronize()


def measure(entry, names, repeat, count):
    """Return the samples of a statement in microseconds, or what is wrong with it."""
    _, statement, *held = entry
    try:
        check(statement, names)
        sample(statement, names, min(count, 20), is_held=bool(held))
        return [sample(statement, names, count, is_held=bool(held)) for _ in range(repeat)]
    except Exception as error:  # noqa: BLE001  # whatever it is stands in the table
        names["device"].synchronize()
        return f"{type(error).__name__}: {error}"[:100]


@contextmanager
def busy(*, wanted):
    """Have a thread compute meanwhile, if wanted."""
    is_over = False

    def compute():
        n = 0
        while not is_over:
            n += 1

    thread = threading.Thread(target=compute, daemon=True)
    if wanted:
        thread.start()
    try:
        yield
    finally:
        is_over = True
        if wanted:
            thread.join()


def add_arguments(parser):
    """Declare the options."""
    parser.description = __doc__
    parser.add_argument("--repeat", type=int, default=7, help="samples of each statement (default: 7)")
    parser.add_argument("--calls", type=int, default=400, help="calls of a sample (default: 400; 20 with --busy)")
    parser.add_argument("--only", default="", metavar="TEXT", help="groups and names with TEXT in them")
    parser.add_argument("--busy", action="store_true", help="have a thread of Python compute beside the calls")
    parser.add_argument("--json", action="store_true", help="print every sample as one JSON object")


def run(args):
    """Measure and print."""
    count = min(args.calls, 20) if args.busy else args.calls
    names = {**make_names(), "spin_s": BUSY_SPIN_S if args.busy else SPIN_S}
    found = []
    gc.disable()
    with busy(wanted=args.busy):
        for group, entries in GROUPS:
            wanted = [entry for entry in entries if args.only in f"{group} {entry[0]}"]
            found += [(group, entry[0], measure(entry, names, args.repeat, count)) for entry in wanted]
    facts = {
        "device": names["device"].name,
        "cuda": runtime.runtimeGetVersion(),
        "driver": runtime.driverGetVersion(),
        "cupy": cupy.__version__,
        "python": platform.python_version(),
        "is_busy": args.busy,
    }
    if args.json:
        rows = [{"group": group, "name": name, "us": samples} for group, name, samples in found]
        print(json.dumps({**facts, "calls": count, "rows": rows}))
        return
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    shown = None
    for group, name, samples in found:
        if group != shown:
            print(f"\n| {group} | median µs | least µs |\n|---|---|---|")
            shown = group
        if isinstance(samples, str):
            print(f"| {name} | {samples} | |")
        else:
            print(f"| {name} | {median(samples):.2f} | {min(samples):.2f} |")
