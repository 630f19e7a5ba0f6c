"""Several GPUs in one process: copies between them, dependences across them, runtimes side by side."""

import threading

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, out
from tests.conftest import checked
from tests.gpu.conftest import Latch, cupy, cupyx, warm

pytestmark = pytest.mark.gpu

N = 1 << 16
DOUBLE = """
extern "C" __global__ void step(const double* x, double* y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2 * x[i];
}
"""


@pytest.fixture
def two():
    """A runtime on two GPUs; afterwards nothing may be left of it."""
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    with checked("cuda:0,cuda:1") as runtime:
        for index in range(2):
            with cupy.cuda.Device(index):
                warm()
        yield runtime


@pytest.fixture(params=[0, 1])
def current(two, request):
    """The calling thread's current device, which no construct may depend on or change."""
    with cupy.cuda.Device(request.param):
        yield request.param
        assert cupy.cuda.runtime.getDevice() == request.param


def block(values, device):
    """Return a block of `target_alloc` on a device that holds these values."""
    array = omp.target_alloc(values.shape, values.dtype, device=device)
    omp.target_memcpy(array, values)
    return array


def on_host(array):
    """Return the contents of a device array."""
    host = np.empty(array.shape, array.dtype)
    omp.target_memcpy(host, array)
    return host


@omp.target(nowait=True)
def add(x):
    x += 1


# -- memory -------------------------------------------------------------------------------------------------
def test_arrays_are_where_they_were_asked_for(current):
    """Allocation, fill and copies of each device work from a thread whose current device is either."""
    for device in range(2):
        array = omp.target_alloc(N, "u1", device=device)
        assert array.device.id == device
        omp.target_memset(array, 9)
        assert (on_host(array) == 9).all()
        omp.target_free(array)


@pytest.mark.parametrize("source", [0, 1])
def test_whole_arrays_are_copied_from_gpu_to_gpu(current, source):
    """A copy between the memories of two GPUs moves every byte, in both directions."""
    host = np.random.default_rng(source).random((300, 700))
    a, b = block(host, source), omp.target_alloc(host.shape, host.dtype, device=1 - source)
    omp.target_memcpy(b, a)
    assert (on_host(b) == host).all()
    for array in (a, b):
        omp.target_free(array)


@pytest.mark.parametrize("source", [0, 1])
@pytest.mark.parametrize(
    "box", [np.s_[2:9, 3:20, 4:16], np.s_[::2, ::3, ::4], np.s_[::-1, :, 5:9], np.s_[:, 7, :], np.s_[3:3]]
)
def test_boxes_are_copied_from_gpu_to_gpu(current, source, box):
    """A rectangular copy moves what a NumPy slice assignment moves, and nothing beside it."""
    host = np.arange(20 * 30 * 40, dtype="f4").reshape(20, 30, 40)
    a, b = block(host, source), block(np.zeros_like(host), 1 - source)
    omp.target_memcpy_rect(b[box], a[box])
    expected = np.zeros_like(host)
    expected[box] = host[box]
    assert (on_host(b) == expected).all()
    for array in (a, b):
        omp.target_free(array)


def test_a_body_reads_the_other_gpus_memory(two):
    """Peer access is enabled: a kernel on one GPU uses an array on the other that its body refers to."""
    if not cupy.cuda.runtime.deviceCanAccessPeer(0, 1):
        assert not two.places[0].device._memory.reaches(1)
        return
    far, near = block(np.arange(N, dtype="f8"), 1), block(np.zeros(N), 0)
    step = cupy.RawKernel(DOUBLE, "step")  # one of CuPy's own would warn that it enables peer access

    @omp.target(device=0)
    def body(y):
        step((N // 256,), (256,), (far, y))

    body(near)
    assert (on_host(near) == 2 * np.arange(N)).all()
    assert two.places[0].device._memory.reaches(1)
    for array in (far, near):
        omp.target_free(array)


def test_memory_of_libraries_on_the_other_gpu_is_copied_by_the_driver(two):
    """Kernels use another GPU's memory only if it is a pool's of the driver or CuPy's; results are the same."""
    near, far = (place.device for place in two.places)
    host = np.arange(64, dtype="f8").reshape(8, 8)
    ours = block(host, 1)
    with cupy.cuda.Device(1):
        cupys = cupy.asarray(host)
        cupy.cuda.Device().synchronize()
    memory = cupy.cuda.UnownedMemory(ours.data.ptr, ours.nbytes, object(), 1)  # as DLPack's
    theirs = cupy.ndarray(host.shape, host.dtype, cupy.cuda.MemoryPointer(memory, 0))
    reaches = near._memory.reaches(1)
    for array, is_reached in ((ours, reaches), (cupys, reaches), (theirs, False)):
        assert near._copies._is_reached(array) is is_reached
        assert far._copies._is_reached(array)
        to, stream = block(np.zeros((8, 8)), 0), near.new_stream()
        near.copy(to[::2, 1:5], array[1::2, 2:6], stream)
        stream.synchronize()
        assert (on_host(to)[::2, 1:5] == host[1::2, 2:6]).all()
        omp.target_free(to)
    omp.target_free(ours)


@pytest.mark.parametrize("clauses", [{}, {"is_device_ptr": ["x"]}, {"nowait": True}])
def test_an_array_of_another_gpu_is_refused(current, clauses):
    """A device array that a target on another GPU is given is a `MapError` that names both."""
    array = omp.target_alloc(8, device=1)
    with pytest.raises(omp.MapError, match=r"cuda:1.*cuda:0|cuda:0.*cuda:1"):
        omp.target(lambda x: None, device=0, **clauses)(array)
    omp.target_free(array)


# -- order --------------------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:The device where the array resides")  # CuPy's own
@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("held", ["current", "own", "both"])
def test_a_region_follows_the_callers_streams(two, device, held):
    """A region that is given an array waits for the caller's streams of its device and of the current device."""
    other = 1 - device
    if not cupy.cuda.runtime.deviceCanAccessPeer(other, device):
        return  # CuPy refuses to compute there
    array = block(np.zeros(N), device)
    begin, end = array[: N // 2], array[N // 2 :]
    parts = {"current": [(other, array)], "own": [(device, array)], "both": [(other, begin), (device, end)]}[held]
    latches = {}
    for index in (other, device):  # code is loaded, and memory allocated, before a stream is held
        with cupy.cuda.Device(index):
            array += 0
            cupy.cuda.get_current_stream().synchronize()
            latches[index] = Latch()
    omp.target(double, device=device)(array)
    for index, part in parts:
        with cupy.cuda.Device(index):
            latches[index].hold(cupy.cuda.get_current_stream())
            cupy.add(part, 1, part)
    with cupy.cuda.Device(other):
        task = omp.target(double, device=device, nowait=True)(array)
    assert not task.done()
    for latch in latches.values():
        latch.release()
    task.result()
    assert (on_host(array) == 2).all()
    for index in (other, device):
        with cupy.cuda.Device(index):
            cupy.cuda.get_current_stream().synchronize()
    omp.target_free(array)


def double(x):
    x *= 2


def test_dependences_alternate_between_gpus(current):
    """A thousand steps, each on the other GPU than the one before and fed by a copy, count to a thousand."""
    arrays = [block(np.zeros(64), device) for device in range(2)]
    for k in range(1000):
        here, there = arrays[k % 2], arrays[1 - k % 2]
        add.options(device=k % 2, depend=[inout(here)])(here)
        omp.target_memcpy_rect_async(there, here, depend=[in_(here), out(there)])
    omp.taskwait()
    for array in arrays:
        assert (on_host(array) == 1000).all()
        omp.target_free(array)


@pytest.mark.parametrize("memory", ["pinned", "pageable"])
def test_a_mapped_array_goes_from_gpu_to_gpu(current, memory):
    """Targets on alternating GPUs that map one array follow each other through its ``depend`` clauses."""
    x = cupyx.zeros_pinned(1000, "f8") if memory == "pinned" else np.zeros(1000)
    for k in range(200):
        add.options(device=k % 2, depend=[inout(x)])(x)
    omp.taskwait()
    assert (x == 200).all()


@pytest.mark.parametrize("holder", [0, 1])
def test_a_held_stream_holds_the_other_gpu(current, latch, holder):
    """A task on one GPU waits in stream order for one on the other that cannot go on."""
    arrays = [block(np.zeros(64), device) for device in range(2)]

    @omp.target(nowait=True)
    def hold(x):
        latch.hold(omp.current_stream())
        x += 1

    hold.options(device=holder, depend=[inout(("turn",))])(arrays[holder])
    after = add.options(device=1 - holder, depend=[inout(("turn",))])(arrays[1 - holder])
    with pytest.raises(TimeoutError):
        after.result(timeout=0.1)
    latch.release()
    omp.taskwait()
    for array in arrays:
        assert (on_host(array) == 1).all()
        omp.target_free(array)


# -- runtimes -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("specs", [("cuda:0", "cuda:1"), ("cuda:0,cuda:1", "cuda:1,cuda:0")])
def test_two_runtimes_side_by_side(two, specs):
    """Two threads, each with a runtime of its own, compute each what it would alone."""
    results = {}

    def work(spec):
        with omp.Runtime(spec, check=True) as runtime:
            x = np.zeros(N)
            for k in range(100):
                add.options(device=k % len(runtime.places), depend=[inout(x)])(x)
            omp.taskwait()
            results[spec] = x

    threads = [threading.Thread(target=work, args=(spec,)) for spec in specs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted(specs)
    assert all((x == 100).all() for x in results.values())
