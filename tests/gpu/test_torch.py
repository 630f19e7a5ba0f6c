"""PyTorch: bodies on the task's stream, work of the caller before a construct, its allocator, two devices."""

from __future__ import annotations

import gc
import random
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, to, tofrom
from tests.conftest import checked
from tests.gpu.conftest import cupy, device_of, python, tensor

pytestmark = pytest.mark.gpu

N = 1000
MB = 1 << 20


@pytest.fixture
def side(torch, latch):
    """A stream of PyTorch that the latch holds, with memory of its own, so that nothing allocates meanwhile."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        kept = [torch.zeros(N, dtype=torch.float64, device="cuda") for _ in range(4)]
        del kept
    torch.cuda.synchronize()
    latch.hold(cupy.cuda.Stream.from_external(stream))
    return stream


# -- streams ---------------------------------------------------------------------------------------


def test_a_body_is_on_the_tasks_stream(gpu, torch):
    """In a body PyTorch's current stream is the task's; afterwards the thread has its stream from before."""
    seen = []

    @omp.target
    def body(y):
        mine = omp.current_stream().ptr
        seen.append((torch.cuda.current_stream().cuda_stream, torch.cuda.ExternalStream(mine).stream_id, mine))
        with torch.cuda.stream(torch.cuda.Stream()):
            pass
        seen.append((torch.cuda.current_stream().cuda_stream, mine, mine))
        torch.cuda.set_stream(torch.cuda.Stream())  # a body that leaves its own behind

    mine = torch.cuda.Stream()
    for stream in (torch.cuda.default_stream(), mine):
        with torch.cuda.stream(stream):
            body(np.zeros(3))
            assert torch.cuda.current_stream() == stream
        assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert len(seen) == 4
    for found in seen:
        assert len(set(found)) == 1
        assert found[0]


def test_workers_have_streams_of_their_own(gpu, torch):
    """Bodies on several threads each have the stream of their own task, and no thread keeps it."""
    wrong = []

    @omp.target(nowait=True)
    def body(y):
        mine = omp.current_stream().ptr
        found = [torch.cuda.current_stream().cuda_stream for _ in range(20)]
        if set(found) != {mine}:
            wrong.append(found)
        tensor(y).add_(1)

    arrays = [np.zeros(N) for _ in range(40)]

    def call(part):
        for y in part:
            body(y)
        omp.taskwait()
        if torch.cuda.current_stream() != torch.cuda.default_stream():
            wrong.append("after")

    threads = [threading.Thread(target=call, args=(arrays[k::4],)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert all((y == 1).all() for y in arrays)


def test_copies_and_bodies_are_in_order(gpu, torch):
    """Work of PyTorch follows the copy to the device, and the copy back follows it, for arrays of many sizes."""

    @omp.target(nowait=True, map=[tofrom("y"), to("x")])
    def body(x, y):
        y = tensor(y)
        for _ in range(10):
            y += tensor(x)

    rng = np.random.default_rng(0)
    for size in (1, 1000, 1 << 20, 1 << 22):
        x, y = rng.integers(0, 9, size).astype("f8"), np.zeros(size)
        expected = 10 * x
        body(x, y)
        omp.taskwait()
        assert (y == expected).all()


@pytest.mark.parametrize("seed", range(200))
def test_chains_of_torch_and_cupy_equal_eager_torch(gpu, torch, seed):
    """Chains of bodies that use PyTorch or CuPy, on several streams, give the results of eager PyTorch."""
    rng = random.Random(seed)
    arrays = [np.arange(N, dtype="f8") + k for k in range(4)]
    eager = [torch.from_numpy(a.copy()).cuda() for a in arrays]

    @omp.target(nowait=True, depend=[in_("x"), inout("y")])
    def by_torch(a, x, y):
        x, y = tensor(x), tensor(y)
        y.copy_((y + a * x) % 97)

    @omp.target(nowait=True, depend=[in_("x"), inout("y")])
    def by_cupy(a, x, y):
        x, y = cupy.asarray(x), cupy.asarray(y)
        y[...] = (y + a * x) % 97

    with omp.target_data(map=[tofrom(a) for a in arrays]):
        for _ in range(12):
            i, j = rng.sample(range(4), 2)
            a = rng.randrange(1, 5)
            rng.choice([by_torch, by_cupy])(a, arrays[i], arrays[j])
            eager[j] = (eager[j] + a * eager[i]) % 97
        omp.taskwait()
    for found, expected in zip(arrays, eager, strict=True):
        assert (found == expected.cpu().numpy()).all()


def test_a_construct_follows_torchs_current_stream(gpu, torch, latch, side):
    """A construct that is passed a tensor starts after the work of the calling thread's current stream of PyTorch."""
    t = torch.zeros(N, dtype=torch.float64, device="cuda")
    torch.cuda.current_stream().synchronize()

    @omp.target(nowait=True)
    def double(t):
        tensor(t).mul_(2)

    with torch.cuda.stream(side):
        t.add_(3)
        task = double(t)
    with pytest.raises(TimeoutError):
        task.result(0.05)
    latch.release()
    task.result()
    assert (t == 6).all().item()


def test_a_construct_without_tensors_follows_nothing(gpu, torch, latch, side):
    """A construct that is passed no device array does not wait for PyTorch's stream."""
    y = np.zeros(N)

    @omp.target
    def add(y):
        tensor(y).add_(1)

    with torch.cuda.stream(side):
        add(y)
    assert (y == 1).all()


def test_an_event_that_a_stream_of_torch_fulfils(gpu, torch, latch, side):
    """Work that a host task leaves on PyTorch's stream belongs to the task, by fulfill_on."""
    done = omp.Event()
    t = torch.zeros(N, dtype=torch.float64, device="cuda")
    torch.cuda.current_stream().synchronize()

    @omp.task(detach=done, depend=[inout("t")])
    def work(t):
        with torch.cuda.stream(side):
            t.add_(1)
            done.fulfill_on(torch.cuda.current_stream())

    task = work(t)
    after = omp.task(depend=[in_(t)])(lambda t: float(t[0]))(t)
    with pytest.raises(TimeoutError):
        task.result(0.05)
    latch.release()
    assert after.result() == 1.0


def test_a_stream_that_captures_is_an_error():
    """A construct inside of a capture of PyTorch's is a UsageError that names PyTorch."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    out, _ = python("""
        import torch
        t = torch.zeros(8, device="cuda")
        double = omp.target(lambda t: None)
        double(t)
        told = ""
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="relaxed"):
                try:
                    double(t)
                except omp.UsageError as error:
                    told = str(error)
        except RuntimeError:
            pass  # the question has ended the capture
        print(told, flush=True)
        os._exit(0)
    """)
    assert "of PyTorch of cuda:0" in out
    assert "is capturing a CUDA graph" in out


# -- what is imported ------------------------------------------------------------------------------


def test_nothing_is_imported():
    """Tasks, graphs and allocators of a program without other libraries import none of them."""
    python("""
        @omp.target(nowait=True)
        def body(y):
            y += 1
        y = np.zeros(10)
        region = omp.taskgraph(body)
        omp.use_allocator("cupy")
        with omp.target_data(map=[tofrom(y)]):
            for _ in range(3):
                region(y)
        assert region.records[0].is_captured
        d = cupy.zeros(3)
        omp.target(lambda d: None)(d)
        omp.use_allocator(None)
        for name in ("torch", "rmm"):
            try:
                omp.use_allocator(name)
            except omp.UsageError:
                pass
            else:
                raise SystemExit(f"{name} is not imported")
        assert (y == 3).all()
        assert not {"torch", "warp", "rmm", "jax", "numba"} & sys.modules.keys()
    """)


def test_torch_that_has_not_used_cuda_yet():
    """A body may be the first of the program that uses PyTorch's CUDA: its work goes to the task's stream."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    python(
        """
        import torch
        seen = []
        def body(y):
            is_used = torch.cuda.is_initialized()
            seen.append((is_used, torch.cuda.current_stream().cuda_stream, omp.current_stream().ptr))
            t = torch.as_tensor(y, device="cuda")
            for _ in range(50):
                t += 1
        for size in (1 << 22, 1000):
            y = np.zeros(size)
            omp.target(body)(y)
            assert (y == 50).all()
        assert seen[0][0] is False, seen
        assert all(torchs == ours for _, torchs, ours in seen), seen
        assert torch.cuda.current_stream() == torch.cuda.default_stream()
    """,
        hang_s=60,
    )


def test_a_body_that_imports_torch_is_warned_of():
    """A body that imports PyTorch ran on another stream than the task's: a DirectiveWarning says what to do."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    python(
        """
        import warnings
        def body(y):
            import torch
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            omp.target(body)(np.zeros(3))
            omp.target(body)(np.zeros(3))
        told = [str(one.message) for one in caught if one.category is omp.DirectiveWarning]
        assert len(told) == 1 and "import torch before" in told[0], told
    """,
        hang_s=60,
    )


@pytest.mark.measures
def test_a_library_that_cannot_go_back(gpu, torch, monkeypatch):
    """If PyTorch's stream cannot be restored, CuPy's is; if CuPy's cannot be set, PyTorch's is as before."""
    device = device_of(gpu)
    stream, before = device.new_stream(), torch.cuda.current_stream().cuda_stream
    leave = device._libraries.leave

    def broken(entered):
        leave(entered)
        raise ZeroDivisionError

    outer = device.use(stream)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(device._libraries), "leave", lambda _, entered: broken(entered))
        with pytest.raises(ZeroDivisionError):
            device.restore(outer)
    assert cupy.cuda.get_current_stream().ptr == 0
    with pytest.raises(AttributeError):
        device.use(SimpleNamespace(ptr=stream.ptr))  # no stream of CuPy's
    assert torch.cuda.current_stream().cuda_stream == before


def test_setting_the_stream_is_cheap(gpu, torch, monkeypatch):
    """Making the task's stream PyTorch's takes 3 µs at most, there and back; without PyTorch it takes nothing."""
    device = device_of(gpu)
    stream = device.new_stream()

    def seconds():
        best = float("inf")
        for _ in range(500):  # short ones, some of which nothing interrupts
            start_s = time.perf_counter()
            for _ in range(50):
                device.restore(device.use(stream))
            best = min(best, time.perf_counter() - start_s)
        return best / 50

    with_torch_s = seconds()
    monkeypatch.delitem(sys.modules, "torch")
    without_s = seconds()
    monkeypatch.undo()
    print(f"use and restore: {1e6 * with_torch_s:.2f} µs with PyTorch, {1e6 * without_s:.2f} µs without")
    assert with_torch_s - without_s < 3e-6


# -- memory ----------------------------------------------------------------------------------------


def test_memory_of_a_tensor_is_not_reused_before_the_task(gpu, torch, latch, side):
    """A tensor that is deleted after the call keeps its memory until the task is complete."""
    y = cupy.zeros(N)
    t = torch.full((N,), 5.0, dtype=torch.float64, device="cuda")
    torch.cuda.current_stream().synchronize()
    ptr = t.data_ptr()

    @omp.target(nowait=True)
    def add(t, y):
        tensor(y).add_(tensor(t))

    with torch.cuda.stream(side):
        task = add(t, y)
    del t
    others = [torch.full((N,), float("nan"), dtype=torch.float64, device="cuda") for _ in range(64)]
    assert ptr not in [other.data_ptr() for other in others]
    torch.cuda.current_stream().synchronize()
    latch.release()
    task.result()
    assert (y.get() == 5).all()


class _Buffer:
    """RMM's `DeviceBuffer`, as far as it is used."""

    n_alive = 0

    def __init__(self, *, size, stream):
        assert isinstance(stream.of, cupy.cuda.Stream)
        self.ptr = cupy.cuda.runtime.malloc(size)
        self.size = size
        _Buffer.n_alive += size

    def __del__(self):
        _Buffer.n_alive -= self.size
        cupy.cuda.runtime.free(self.ptr)


@pytest.fixture(params=["torch", "cupy", "rmm"])
def allocator(request, monkeypatch):
    """The name of an allocator, and a function that returns the bytes that it has given out."""
    gc.collect()  # what earlier tests have left may not go meanwhile
    if request.param == "torch":
        torch = request.getfixturevalue("torch")
        yield SimpleNamespace(name="torch", used=lambda: torch.cuda.memory_allocated(0))
    elif request.param == "cupy":
        yield SimpleNamespace(name="cupy", used=cupy.get_default_memory_pool().used_bytes)
    else:
        stream = SimpleNamespace(Stream=lambda of: SimpleNamespace(of=of))
        rmm = SimpleNamespace(DeviceBuffer=_Buffer, pylibrmm=SimpleNamespace(stream=stream))
        monkeypatch.setitem(sys.modules, "rmm", rmm)
        yield SimpleNamespace(name="rmm", used=lambda: _Buffer.n_alive)
    omp.use_allocator(None)


def test_blocks_come_from_the_allocator(gpu, allocator):
    """After the call blocks are the library's; earlier blocks keep their contents and go back where they are from."""
    x = np.arange(MB, dtype="f8")

    @omp.target
    def double(x):
        x *= 2

    early = omp.target_alloc(MB, "f8")
    omp.target_memcpy(early, x)
    before = allocator.used()
    omp.use_allocator(allocator.name)
    late = omp.target_alloc(MB, "f8")
    assert allocator.used() - before >= 8 * MB
    omp.target_memcpy(late, early)
    assert (late.get() == x).all()
    with omp.target_data(map=[tofrom(x)]):
        assert allocator.used() - before >= 16 * MB
        double(x)
    assert (x == 2 * np.arange(MB)).all()
    assert allocator.used() - before < 16 * MB
    omp.target_free(early)
    omp.use_allocator(None)
    again = omp.target_alloc(MB, "f8")
    assert allocator.used() - before < 16 * MB
    omp.target_free(late)
    omp.target_free(again)
    del early, late, again
    assert allocator.used() == before
    assert device_of(gpu).live_nbytes() == 0


def test_a_runtime_that_is_opened_later_has_the_allocator(allocator):
    """The choice is the process's, also before there is a device."""
    omp.use_allocator(allocator.name)
    for _ in range(2):
        with checked("cuda:0"):
            before = allocator.used()
            d = omp.target_alloc(4 * MB)
            assert allocator.used() - before >= 4 * MB
            omp.target_free(d)
            del d
            assert allocator.used() == before


def test_random_programs_on_the_allocator(gpu, allocator):
    """Regions that map arrays of many sizes, from several threads, with switches in between, give the right results."""
    failures = []

    @omp.target(nowait=True)
    def add(a, y):
        y += a

    def run(seed):
        rng = random.Random(seed)
        try:
            for _ in range(40):
                ys = [np.zeros(rng.choice([1, 10, 1000, 50_000, 300_000])) for _ in range(4)]
                for y in ys:
                    add(rng.randrange(1, 4), y)
                if rng.random() < 0.1:
                    omp.use_allocator(rng.choice([None, allocator.name]))
                omp.taskwait()
                for y in ys:
                    assert y[0] in (1, 2, 3)
                    assert (y == y[0]).all()
        except BaseException as error:
            failures.append(error)

    omp.use_allocator(allocator.name)
    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        raise failure


def test_a_graph_on_the_allocator(gpu, allocator):
    """A captured region has its memory from the allocator, and is right after others have used the allocator."""
    y = np.zeros(N)

    @omp.target(nowait=True)
    def body(y):
        y += cupy.ones(N) * 2

    omp.use_allocator(allocator.name)
    region = omp.taskgraph(body)
    with omp.target_data(map=[tofrom(y)]):
        for _ in range(4):
            region(y)
            others = [omp.target_alloc(N, "f8") for _ in range(8)]
            for other in others:
                other.fill(np.nan)
                omp.target_free(other)
            del other, others
        assert region.records[0].is_captured
    assert (y == 8).all()


@pytest.mark.measures
def test_unused_memory_of_torch_is_free(gpu, torch):
    """With PyTorch's allocator, memory that PyTorch holds unused counts as free, and can be had."""
    device = omp.device(0)
    gc.collect()
    omp.use_allocator("torch")
    try:
        torch.cuda.empty_cache()
        free_nbytes, total_nbytes = device.memory_info()
        nbytes = int(0.6 * free_nbytes)
        t = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        assert device.memory_info()[0] < free_nbytes - nbytes + 64 * MB
        del t
        assert torch.cuda.memory_reserved(0) >= nbytes
        assert abs(device.memory_info()[0] - free_nbytes) < 64 * MB
        assert device.memory_info()[1] == total_nbytes
        d = omp.target_alloc(nbytes)  # PyTorch has to give its cached block back first
        omp.target_free(d)
        del d
    finally:
        omp.use_allocator(None)
        torch.cuda.empty_cache()


def test_a_limit_of_torch_holds(gpu, torch):
    """An allocation beyond the limit that the program has set for PyTorch is a DeviceMemoryError."""
    omp.use_allocator("torch")
    try:
        torch.cuda.empty_cache()
        total_nbytes = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((256 << 20) / total_nbytes, 0)
        with pytest.raises(omp.DeviceMemoryError) as caught:
            omp.target_alloc(512 * MB)
        assert caught.value.asked_nbytes == 512 * MB
        if hasattr(torch.cuda, "get_per_process_memory_fraction"):
            assert omp.device(0).memory_info()[1] <= 257 * MB
        d = omp.target_alloc(64 * MB)
        omp.target_free(d)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, 0)
        omp.use_allocator(None)


# -- several devices -------------------------------------------------------------------------------


@pytest.fixture
def two(torch):
    """A runtime with two GPUs."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    with checked("cuda:0,1") as runtime:
        yield runtime


def test_the_device_of_a_body_is_torchs_current_one(two, torch):
    """In a body PyTorch's current device is the body's, and so is the stream; afterwards all is as before."""
    seen = []

    @omp.target
    def body(y):
        number = omp.get_device_num()
        ptr = torch.cuda.current_stream().cuda_stream
        seen.append((torch.cuda.current_device(), cupy.cuda.runtime.getDevice(), number))
        assert ptr == omp.current_stream().ptr
        assert torch.zeros(3, device="cuda").device.index == number
        tensor(y).add_(1 + number)

    streams = [torch.cuda.Stream(device=k) for k in range(2)]
    for current in range(2):
        with torch.cuda.device(current), torch.cuda.stream(streams[0]), torch.cuda.stream(streams[1]):
            torch.cuda.set_device(current)
            for number in (0, 1, 0):
                y = np.zeros(N)
                body.options(device=number)(y)
                assert (y == 1 + number).all()
                assert torch.cuda.current_device() == cupy.cuda.runtime.getDevice() == current
                assert [torch.cuda.current_stream(k) for k in range(2)] == streams
    assert all(len(set(one)) == 1 for one in seen)
    torch.cuda.set_device(0)


@pytest.mark.parametrize("current", [0, 1])
def test_a_tensor_follows_the_stream_of_its_device(two, torch, latch, current):
    """A construct with a tensor of the second GPU waits for PyTorch's stream of that GPU, whichever is current."""
    with torch.cuda.device(1):
        side = torch.cuda.Stream(device=1)
        t = torch.zeros(N, dtype=torch.float64, device="cuda:1")
        t.add_(1).mul_(2).zero_()
        with torch.cuda.stream(side):
            torch.zeros(N, dtype=torch.float64, device="cuda:1").add_(1)
        torch.cuda.synchronize()

    @omp.target(nowait=True, device=1)
    def double(t):
        tensor(t).mul_(2)

    double(t).result()  # which loads what it needs: nothing can be loaded while a stream is held
    event = torch.cuda.Event()
    first = torch.cuda.Stream(device=0)
    latch.hold(cupy.cuda.Stream.from_external(first))
    event.record(first)
    side.wait_event(event)
    with torch.cuda.device(1), torch.cuda.stream(side):
        t.add_(3)
        torch.cuda.set_device(current)
        task = double(t)
        torch.cuda.set_device(1)
    with pytest.raises(TimeoutError):
        task.result(0.05)
    latch.release()
    task.result()
    assert (t == 6).all().item()
    torch.cuda.set_device(0)


def test_a_stream_of_a_device_that_is_not_there(torch):
    """fulfill_on with a stream of a GPU that the runtime does not have is an EventError that shows the stream."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    stream = torch.cuda.Stream(device=1)
    with checked("cuda:0"):
        done = omp.Event()
        task = omp.task(detach=done)(lambda: done.fulfill_on(stream))()
        with pytest.raises(omp.EventError, match=r"cuda:1.*not a stream of a device of this runtime"):
            task.result()
    with checked("cuda:0,1"):
        done = omp.Event()
        task = omp.task(detach=done)(lambda: done.fulfill_on(stream))()
        assert task.result() is None
