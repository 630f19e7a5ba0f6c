"""CUDA streams, and libraries that have their own: what goes to which stream, and what waits for what.

Each order is shown by a kernel that holds a stream until the test lets it go.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, out
from tests.conftest import no_gpu
from tests.gpu.conftest import device_array, python

pytestmark = pytest.mark.gpu
if no_gpu() is None:
    import cupy
    import cupyx


class Foreign:
    """Another library's stream: an object with NVIDIA's protocol and nothing else."""

    def __init__(self, stream, version=0):
        self._stream = stream
        self._version = version

    def __cuda_stream__(self):
        return self._version, self._stream.ptr


def own_stream():
    """Return a stream that is ordered with no other."""
    return cupy.cuda.Stream(non_blocking=True)


def external(stream):
    """Return CuPy's stream over the handle of another."""
    return cupy.cuda.Stream.from_external(Foreign(stream))


def landing(d):
    """Return pinned memory for a device array; it is allocated before a stream is held, for which CUDA might wait."""
    return cupyx.zeros_pinned(d.shape, d.dtype)


def copy_out(host, d):
    """Copy a device array by a deferred task that follows its last writer."""
    return omp.target_memcpy_async(host, d, depend=[in_(d)])


# -- bodies ----------------------------------------------------------------------------------------


def test_array_operations_and_kernels_of_a_body(gpu, latch):
    """Operations, elementwise and raw kernels of a body run on its stream: after what holds that, before the next."""
    raw = cupy.RawKernel('extern "C" __global__ void twice(double* x) { x[threadIdx.x] *= 2; }', "twice")
    elementwise = cupy.ElementwiseKernel("", "float64 x", "x += 3", "three")
    d = device_array([1, 2, 3, 4])
    host = landing(d)
    spare, aside = cupy.zeros(4), cupy.cuda.Stream(non_blocking=True)
    raw((1,), (4,), (spare,))
    elementwise(spare)
    cupy.asnumpy(d, stream=aside)
    cupy.cuda.Stream.null.synchronize()

    @omp.target(nowait=True, depend=[inout("x")])
    def body(x):
        assert cupy.cuda.get_current_stream().ptr == omp.current_stream().ptr
        latch.hold(omp.current_stream())
        x += 1
        raw((1,), (4,), (x,))
        elementwise(x)

    task = body(d)
    copied = copy_out(host, d)
    assert not copied.done()
    cupy.cuda.Stream.null.synchronize()  # nothing went there: what is held would hold it, what is not would have run
    assert cupy.asnumpy(d, stream=aside).tolist() == [1, 2, 3, 4]
    latch.release()
    omp.taskwait()
    assert task.done()
    assert host.tolist() == [7, 9, 11, 13]
    omp.target_free(d)


def test_a_body_that_uses_streams_of_its_own(gpu, latch):
    """Behind a block of a body's own stream, also one that fails, its operations go to the task's stream again."""
    d, own, outer = device_array([1, 2, 3, 4]), cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream()

    @omp.target(nowait=True, depend=[inout("x")])
    def body(x):
        latch.hold(omp.current_stream())
        with own:
            pass
        assert cupy.cuda.get_current_stream() is omp.current_stream()
        with suppress(ValueError), own, cupy.cuda.Stream.null:
            raise ValueError
        assert cupy.cuda.get_current_stream() is omp.current_stream()
        own.use()
        omp.current_stream().use()
        x += 1

    for before in (cupy.cuda.Stream.null, outer):
        before.use()
        task = body(d)
        assert cupy.cuda.get_current_stream() is before
        assert cupy.asnumpy(d, stream=own)[0] == 1 + (before is outer)
        latch.release()
        omp.taskwait()
        latch.again()
        task.result()
        assert cupy.cuda.get_current_stream() is before
    cupy.cuda.Stream.null.use()
    assert cupy.asnumpy(d).tolist() == [3, 4, 5, 6]
    omp.target_free(d)


def test_libraries_of_a_body(gpu, latch):
    """cuFFT, by a plan made before, and cuBLAS take the stream of the body."""
    import cupyx.scipy.fft as gpu_fft

    x = np.random.default_rng(0).random((64, 64))
    d, spectrum, product = device_array(x, "c16"), device_array(np.zeros((64, 64)), "c16"), device_array(x, "f8")
    found, squared = landing(spectrum), landing(product)
    plan = gpu_fft.get_fft_plan(d, axes=(0, 1))
    result = cupy.zeros((64, 64))
    with plan:
        spectrum[...] = gpu_fft.fft2(d)
    cupy.matmul(product, product, out=result)  # makes the handle of this thread and loads the code
    spectrum[...] = 0
    result[...] = 0
    cupy.cuda.Device().synchronize()

    @omp.target(nowait=True, depend=[out("spectrum"), out("result")])
    def body(d, spectrum, product, result):
        latch.hold(omp.current_stream())
        with plan:
            spectrum[...] = gpu_fft.fft2(d)
        cupy.matmul(product, product, out=result)

    body(d, spectrum, product, result)
    first = copy_out(found, spectrum)
    second = copy_out(squared, result)
    assert not first.done()
    assert not second.done()
    latch.release()
    omp.taskwait()
    assert np.allclose(found, np.fft.fft2(x))
    assert np.allclose(squared, x @ x)
    for array in (d, spectrum, product):
        omp.target_free(array)


def test_a_body_hands_its_stream_on(gpu, latch):
    """What takes ``__cuda_stream__``, or a bare handle, is given the stream of the body and is part of the task."""
    d = device_array([1, 1])
    host = landing(d)
    seen = []

    @omp.target(nowait=True, depend=[inout("d")])
    def body(d):
        stream = omp.current_stream()
        version, handle = stream.__cuda_stream__()
        seen.append((version, handle == stream.ptr))
        latch.hold(stream)
        with external(stream):
            d += 4

    body(d)
    copied = copy_out(host, d)
    assert not copied.done()
    latch.release()
    copied.result()
    assert seen == [(0, True)]
    assert host.tolist() == [5, 5]
    omp.target_free(d)


def test_a_dlpack_consumer_in_a_body(gpu, latch):
    """An array that a body takes over by DLPack is read on the body's stream."""
    d = device_array([2, 2])
    host = landing(d)

    @omp.target(nowait=True, depend=[inout("d")])
    def body(d):
        latch.hold(omp.current_stream())
        d *= 3
        other = cupy.from_dlpack(d)
        other += 1

    body(d)
    copied = copy_out(host, d)
    assert not copied.done()
    latch.release()
    copied.result()
    assert host.tolist() == [7, 7]
    omp.target_free(d)


@pytest.mark.parametrize("wrap", ["array", "interface", "dlpack"])
def test_an_array_from_the_callers_stream(gpu, latch, wrap):
    """What the caller's current stream has still to write is read after that; ``del`` right after the call is safe."""
    own = own_stream()
    with own:
        assert float(cupy.full(1000, 9.0).sum()) == 9000  # loads what is used below
        d = cupy.zeros(1000)
        latch.hold(own)
        d.fill(3)
        given = {"array": d, "interface": _Interface(d), "dlpack": _DLPack(d)}[wrap]
        task = omp.target(nowait=True)(lambda x: x.sum())(given)
        del d, given
        others = [cupy.full(1000, 9.0) for _ in range(8)]  # would take its memory, had that gone back
    assert not task.done()
    latch.release()
    assert float(task.result()) == 3000
    assert all(float(other.sum()) == 9000 for other in others)


class _Interface:
    def __init__(self, array):
        self._array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, "stream": None}


class _DLPack:
    def __init__(self, array):
        self.__dlpack_device__, self.__dlpack__ = array.__dlpack_device__, array.__dlpack__


# -- streams that fulfil an event ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["stream", "blocking", "external", "foreign", "null", "per thread"])
def test_fulfill_on(gpu, latch, kind):
    """Each kind of stream fulfils an event once it has got there, for what follows on a device and on the host."""
    base = cupy.cuda.Stream() if kind == "blocking" else own_stream()
    stream = {
        "external": lambda: external(base),
        "foreign": lambda: Foreign(base),
        "null": lambda: cupy.cuda.Stream.null,
        "per thread": lambda: cupy.cuda.Stream.ptds,
    }.get(kind, lambda: base)()
    queue = base if kind == "foreign" else stream
    d, event, log = device_array([1, 1]), omp.Event(), []
    host = landing(d)

    @omp.task(detach=event, depend=[inout(d)], if_=False)  # on this thread, whose own stream may be meant
    def library():
        latch.hold(queue)
        with queue:
            d.fill(7)
        event.fulfill_on(stream)

    task = library()
    copied = copy_out(host, d)
    after = omp.task(depend=[inout(d)])(log.append)(1)
    with pytest.raises(TimeoutError):
        after.result(timeout=0.1)
    assert not task.done()
    assert not copied.done()
    latch.release()
    omp.taskwait()
    assert host.tolist() == [7, 7]
    assert log == [1]
    omp.target_free(d)


def test_threads_with_default_streams_of_their_own(gpu, latch):
    """One handle stands for a stream of each thread: what one of them holds is not taken for what another has done."""
    held, free = omp.Event(), omp.Event()
    is_named, may_end = threading.Event(), threading.Event()
    task = omp.task(detach=held)(lambda: None)()

    def other():
        latch.hold(cupy.cuda.Stream.ptds)
        held.fulfill_on(cupy.cuda.Stream.ptds)
        is_named.set()
        may_end.wait(30)

    thread = threading.Thread(target=other)
    thread.start()
    assert is_named.wait(30)
    free.fulfill_on(cupy.cuda.Stream.ptds)
    omp.task(detach=free)(lambda: None)().result(timeout=10)
    assert not held.is_fulfilled
    latch.release()
    may_end.set()
    task.result()
    thread.join()


def test_fulfill_on_errors(gpu):
    """A stream that captures, a wrong protocol and a stream of no device of the runtime are errors; the event stays."""
    event, own = omp.Event(), own_stream()
    x = cupy.zeros(4)
    x += 1
    with own:
        own.begin_capture()
        x += 1
        with pytest.raises(omp.EventError, match="capturing"):
            event.fulfill_on(own)
        graph = own.end_capture()
    for wrong in (Foreign(own, version=1), Foreign(own, version="0"), _Attribute(), _Short()):
        with pytest.raises(omp.EventError, match="__cuda_stream__"):
            event.fulfill_on(wrong)
    elsewhere = own_stream()
    elsewhere.device_id = 7
    with pytest.raises(omp.EventError, match="not a stream of a device"):
        event.fulfill_on(elsewhere)
    graph.launch(own)
    event.fulfill_on(own)
    task = omp.task(detach=event)(lambda: None)()
    task.result()
    assert event.is_fulfilled


def test_a_stream_that_captures_takes_no_task(gpu):
    """Blocks, waits and queues refuse it, and leave the capture whole; tasks and the graph run afterwards."""
    own, d = own_stream(), device_array([1, 2, 3, 4])
    task = omp.task(lambda: None)()
    left = omp.interop(depend=[inout(d)], stream=own)
    left.__enter__()
    with own:
        own.begin_capture()
        d += 1
        for call in (
            lambda: omp.interop(depend=[inout(d)], stream=own),
            lambda: omp.interop(depend=[inout(d)], stream=Foreign(own)),
            left.use,
            lambda: left.__exit__(None, None, None),
            lambda: task.wait_on(own),
            lambda: omp.set_stream(1, own),
        ):
            with pytest.raises(omp.EventError, match="capturing"):
                call()
        graph = own.end_capture()
    with omp.interop(depend=[inout(d)], stream=own):
        graph.launch(own)
    host = landing(d)
    copy_out(host, d).result()
    assert host.tolist() == [2, 3, 4, 5]
    omp.target_free(d)


def test_a_region_called_in_a_capture(gpu):
    """A device array from a stream that captures cannot be followed: the call says so, and the device is sound."""
    own, d = own_stream(), device_array([1, 2, 3, 4])
    bump = omp.target(nowait=True, depend=[inout(d)])(lambda x: x.__iadd__(1) is None)
    with own:
        own.begin_capture()
        with pytest.raises(omp.UsageError, match="taskgraph"):
            bump(d)
        with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):  # the capture was spoilt
            own.end_capture()
    bump(d)
    host = landing(d)
    copy_out(host, d).result()
    assert host.tolist() == [2, 3, 4, 5]
    omp.target_free(d)


def test_a_handle_of_another_gpu(gpu):
    """A handle does not say whose it is: a block on another GPU's stream is an error, and no device is lost."""
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    with cupy.cuda.Device(1):
        elsewhere = own_stream()
    d = device_array([1, 2, 3, 4])
    with pytest.raises(omp.EventError, match="another device"), omp.interop(stream=Foreign(elsewhere)):
        pass
    host = landing(d)
    copy_out(host, d).result()
    assert host.tolist() == [1, 2, 3, 4]
    omp.target_free(d)


class _Attribute:
    __cuda_stream__ = (0, 0)


class _Short:
    def __cuda_stream__(self):
        return (0,)


# -- interop, wait_on, queues ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["runtime", "own", "foreign", "null", "per thread"])
def test_interop_on_each_kind_of_stream(gpu, latch, kind):
    """The block's stream follows what the dependences name, on the device; what comes later follows the stream."""
    own = own_stream()
    given = {
        "own": own,
        "foreign": Foreign(own),
        "null": cupy.cuda.Stream.null,
        "per thread": cupy.cuda.Stream.ptds,
    }.get(kind)
    d = device_array([0, 0])
    host = landing(d)

    @omp.target(nowait=True, depend=[out("d")])
    def first(d):
        latch.hold(omp.current_stream())
        d.fill(1)

    task = first(d)
    with omp.interop(depend=[inout(d)], stream=given) as library:
        assert not task.done()  # the entry has not waited for the device
        stream = own if kind == "foreign" else library.stream
        with stream:
            d *= 2
            d += 1
        assert not stream.done
    copied = copy_out(host, d)
    assert not copied.done()
    latch.release()
    copied.result()
    assert host.tolist() == [3, 3]
    omp.target_free(d)


@pytest.mark.parametrize("kind", ["own", "foreign", "null", "per thread"])
def test_wait_on(gpu, latch, kind):
    """Work enqueued after ``wait_on`` follows the task; the call returns while the task is held."""
    own = own_stream()
    given = {"foreign": Foreign(own), "null": cupy.cuda.Stream.null, "per thread": cupy.cuda.Stream.ptds}.get(kind, own)
    queue = own if kind == "foreign" else given
    d = device_array([0, 0])

    @omp.target(nowait=True)
    def first(d):
        latch.hold(omp.current_stream())
        d.fill(1)

    task = first(d)
    task.wait_on(given)
    with queue:
        d += 4
    assert not task.done()
    assert not queue.done
    latch.release()
    queue.synchronize()
    assert cupy.asnumpy(d).tolist() == [5, 5]
    omp.target_free(d)


def test_wait_on_leaves_the_stream_alone_where_there_is_nothing(gpu):
    """After a task that is complete nothing is waited for."""
    own = own_stream()
    task = omp.target(nowait=True)(lambda: 3)()
    assert task.result() == 3
    task.wait_on(own)
    assert own.done


def test_set_stream(gpu, latch):
    """A queue is the program's stream, which the runtime keeps; CuPy's work there takes part in dependences."""
    own = own_stream()
    handle = own.ptr
    omp.set_stream(5, own)
    del own
    assert omp.stream(5).ptr == handle
    other = own_stream()
    omp.set_stream(6, Foreign(other))
    assert omp.stream(6).ptr == other.ptr
    d, event = device_array([1, 1]), omp.Event()
    host = landing(d)

    @omp.task(detach=event, depend=[inout(d)])
    def library():
        latch.hold(omp.stream(5))
        with omp.stream(5):
            d.fill(2)
        event.fulfill_on(omp.stream(5))

    library()
    copied = copy_out(host, d)
    omp.task(lambda: None)().result()
    assert not copied.done()
    latch.release()
    copied.result()
    assert host.tolist() == [2, 2]
    omp.set_stream(5, None)
    assert omp.stream(5).ptr != handle
    for queue in (5, 6):
        omp.set_stream(queue, None)
    omp.target_free(d)


def test_many_blocks_from_several_threads(gpu):
    """Threads with blocks on the streams of one device each get the serial result."""
    found = {}

    def program(number):
        with cupy.cuda.Device(0):
            d = device_array([float(number)])
            host = landing(d)
            for _ in range(50):
                omp.target(nowait=True, depend=[inout(d)])(lambda d: d.__iadd__(1) is None)(d)
                with omp.interop(depend=[inout(d)]) as library, library.stream:
                    d *= 0.5
            copied = copy_out(host, d)
            copied.result()
            found[number] = float(host[0])
            omp.target_free(d)

    threads = [threading.Thread(target=program, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(4):
        expected = float(number)
        for _ in range(50):
            expected = (expected + 1) * 0.5
        assert found[number] == expected


def test_a_kernel_that_fails_in_a_block(gpu):
    """The device is lost, and the failure names the block."""
    text, _ = python(
        """
        bad = cupy.RawKernel('extern "C" __global__ void bad(float* x) { x[1ull << 40] = 1; }', "bad")
        x = np.zeros(4)
        try:
            with omp.Runtime("cuda:0"):
                with omp.interop(depend=[inout(x)]) as library, library.stream:
                    bad((1,), (1,), (cupy.zeros(1, "f4"),))
                omp.task(depend=[in_(x)])(print)("never")
        except ExceptionGroup as group:
            (lost,) = group.exceptions
            print(type(lost).__name__, "interop" in "".join(lost.__notes__), flush=True)
        os._exit(0)
        """
    )
    assert text.split() == ["DeviceLostError", "True"]


def test_a_handle_of_another_library(gpu, latch):
    """A stream that the driver's own interface has made is one like any other."""
    driver = ctypes.CDLL("libcuda.so.1")
    handle = ctypes.c_void_p()
    assert driver.cuStreamCreate(ctypes.byref(handle), 1) == 0  # CU_STREAM_NON_BLOCKING

    class Bare:
        def __cuda_stream__(self):
            return 0, handle.value

    d = device_array([1, 1])
    host = landing(d)
    with omp.interop(stream=Bare(), depend=[inout(d)]) as library:
        stream = cupy.cuda.Stream.from_external(library.stream)
        latch.hold(stream)
        with stream:
            d.fill(6)
    copied = copy_out(host, d)
    assert not copied.done()
    latch.release()
    copied.result()
    assert host.tolist() == [6, 6]
    assert driver.cuStreamDestroy_v2(handle) == 0
    omp.target_free(d)


# -- the caller's stream, and what is not passed by itself -------------------------------------------
def test_interop_follows_the_callers_stream(gpu, latch):
    """interop whose dependences name a device array follows what the caller's own stream held at its entry."""
    own = own_stream()
    host = cupyx.zeros_pinned(1000)
    with own:
        d = cupy.zeros(1000)
        latch.hold(own)
        d.fill(3)
        with omp.interop(depend=[inout(d)]) as block, block.stream:
            d += 1
        task = copy_out(host, d)
    assert not task.done()
    latch.release()
    task.result()
    assert (host == 4).all()


@pytest.mark.parametrize("kind", ["list", "dict", "sparse matrix"])
def test_containers_follow_the_callers_stream(gpu, latch, kind):
    """A region that is passed device arrays in a container follows the caller's stream, and holds them."""
    own = own_stream()
    out_of = {"list": lambda x: x[0], "dict": lambda x: x["d"], "sparse matrix": lambda x: x.data}[kind]
    with own:
        d = cupy.zeros(1000)
        if kind == "sparse matrix":
            from cupyx.scipy import sparse

            d[:] = 1
            value = sparse.csr_matrix(cupy.diag(d[:10]))
            d = value.data
            cupy.cuda.Device().synchronize()
        else:
            value = [d] if kind == "list" else {"d": d}
        latch.hold(own)
        d.fill(3)
        task = omp.target(lambda x: out_of(x) + 1, nowait=True)(value)
        if kind != "sparse matrix":
            value.clear()
        del d
    assert not task.done()
    latch.release()
    assert (task.result().get() == 4).all()
