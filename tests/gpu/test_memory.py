"""Memory of the GPU: what an allocation waits for, who else may have what is unused, limits, and running out."""

import gc
import random
import threading
from weakref import WeakValueDictionary

import numpy as np
import pytest

import offload as omp
from tests.gpu.conftest import cupy, cupyx, device_of

pytestmark = [pytest.mark.gpu, pytest.mark.measures]

MB, GB = 1 << 20, 1 << 30
U1 = np.dtype("u1")


@pytest.fixture
def device(gpu):
    """The device of a runtime on the first GPU."""
    return device_of(gpu)


def alloc(device, nbytes):
    return device.alloc((nbytes,), U1, None)


def held_nbytes():
    """Return the memory of the GPU that somebody holds."""
    free_nbytes, total_nbytes = cupy.cuda.runtime.memGetInfo()
    return total_nbytes - free_nbytes


# -- what it waits for --------------------------------------------------------------------------------------
def test_allocations_do_not_wait_for_the_device(device, latch):
    """Memory is taken, given back, taken anew and used while a kernel runs that does not end."""
    stream, other = device.new_stream(), device.new_stream()
    latch.hold(stream)
    for nbytes in (100, MB, 200 * MB, 2 * GB):
        for _ in range(3):
            array = alloc(device, nbytes)
            device.fill(array, 7, other)
            other.synchronize()
            del array
    assert not stream.done


def test_a_launch_behind_a_held_stream_finds_memory(gpu, latch):
    """Targets that map more and more are launched and done while another stream is held."""
    stream = cupy.cuda.Stream(non_blocking=True)
    latch.hold(stream)

    @omp.target(nowait=True)
    def add(x):
        x += 1

    arrays = [cupyx.zeros_pinned(k * MB, "u1") for k in range(1, 9)]
    for array in arrays:
        add(array)
    omp.taskwait()
    assert not stream.done
    assert all((array == 1).all() for array in arrays)


@pytest.mark.parametrize("nbytes", [100_000, 300 * MB])
def test_a_stream_gets_what_another_has_used(device, nbytes):
    """A block given back after use on one stream serves the next allocation for any other."""
    streams = [device.new_stream() for _ in range(4)]
    addresses = set()
    for k in range(40):
        array = alloc(device, nbytes)
        addresses.add(array.data.ptr)
        device.fill(array, k, streams[k % 4])
        streams[k % 4].synchronize()
        assert int(array[-1]) == k
        del array
    assert len(addresses) == 1


def test_blocks_do_not_overlap_whichever_thread_takes_them(device):
    """Four threads that take and give back blocks of any size find in each what they have written."""
    failures = []

    def work(seed):
        rng = random.Random(seed)
        stream = device.new_stream()
        held = []
        for k in range(600):
            value = (k * 4 + seed) % 251
            array = alloc(device, int(2 ** rng.uniform(0, 22)))
            device.fill(array, value, stream)
            held.append((array, value))
            if len(held) > 8:
                array, value = held.pop(rng.randrange(len(held)))
                stream.synchronize()
                if {int(array[0]), int(array[-1])} != {value}:
                    failures.append((seed, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert device.live_nbytes() == 0


# -- the account --------------------------------------------------------------------------------------------
def test_live_bytes_are_those_of_the_arrays(device):
    """They are exact, count a block as long as a view of it lives, and are zero in the end."""
    arrays = [alloc(device, nbytes) for nbytes in (0, 1, 1000, 5 * MB)]
    assert device.live_nbytes() == 1 + 1000 + 5 * MB
    view = device.view(arrays.pop(), 100, (10,), (4,), U1)
    assert device.live_nbytes() == 1 + 1000 + 5 * MB
    del view
    assert device.live_nbytes() == 1 + 1000
    arrays.clear()
    assert device.live_nbytes() == 0


def test_two_devices_on_one_gpu_count_for_themselves(device):
    """Two runtimes share what is unused, but not the account."""
    array = alloc(device, MB)
    with omp.Runtime("cuda:0", check=True) as other:
        more = alloc(device_of(other), 3 * MB)
        assert (device.live_nbytes(), device_of(other).live_nbytes()) == (MB, 3 * MB)
        assert more.data.ptr != array.data.ptr
        del more
    assert device.live_nbytes() == MB


def test_an_array_outlives_its_runtime():
    """It can be read after the runtime has been closed, and gives its memory back when it goes."""
    with omp.Runtime("cuda:0", check=True) as runtime:
        device = device_of(runtime)
        array = alloc(device, 64 * MB)
        array.fill(5)
    assert (array[:10].get() == 5).all()
    del array
    assert device.live_nbytes() == 0


def test_a_closed_runtime_holds_no_memory():
    """What mappings have used goes back to the system when the runtime is closed."""
    with omp.Runtime("cuda:0", check=True):
        before = held_nbytes()
        omp.target(lambda x: None)(np.zeros(GB, "u1"))
        assert held_nbytes() >= before + GB
    assert held_nbytes() < before + GB


@pytest.mark.parametrize("dtype", ["U4", "M8[s]", ">f4"])
def test_what_cupy_has_no_arrays_of(gpu, dtype):
    """Such an allocation is refused and takes nothing."""
    with pytest.raises(omp.UnsupportedError, match="u1"):
        omp.target_alloc(3, dtype)
    assert device_of(gpu).live_nbytes() == 0


# -- running out --------------------------------------------------------------------------------------------
def test_more_than_there_is(gpu):
    """An allocation that cannot be says what was asked for and what is free, and changes nothing."""
    with pytest.raises(omp.DeviceMemoryError) as caught:
        omp.target_alloc(1 << 42)
    error = caught.value
    assert error.asked_nbytes == 1 << 42
    assert 0 < error.free_nbytes <= cupy.cuda.runtime.memGetInfo()[1]
    array = omp.target_alloc(error.free_nbytes // 2)
    omp.target_free(array)


def test_cupy_and_the_runtime_do_not_starve_each_other(device):
    """Most of the memory goes to CuPy, to the runtime and to CuPy again, whoever has held it unused."""
    cupy.get_default_memory_pool().free_all_blocks()
    nbytes = cupy.cuda.runtime.memGetInfo()[0] * 7 // 10
    for _ in range(2):
        array = cupy.empty(nbytes, "u1")
        del array
        assert cupy.get_default_memory_pool().free_bytes() >= nbytes
        array = alloc(device, nbytes)
        del array
    cupy.get_default_memory_pool().free_all_blocks()


@pytest.fixture
def limit():
    """A limit on CuPy's pool of 64 MB, as users set it."""
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    pool.set_limit(size=64 * MB)
    yield 64 * MB
    pool.set_limit(size=0)


def test_cupys_limit_holds_for_the_runtime(device, limit):
    """The runtime's arrays and CuPy's together stay below it; what is given back counts no more."""
    assert device.memory_info() == (limit, limit)
    first, temporary = alloc(device, 30 * MB), cupy.empty(20 * MB, "u1")
    assert device.memory_info() == (14 * MB, limit)
    with pytest.raises(omp.DeviceMemoryError) as caught:
        alloc(device, 15 * MB)
    assert (caught.value.asked_nbytes, caught.value.free_nbytes) == (15 * MB, 14 * MB)
    del temporary  # stays in CuPy's pool, unused
    assert alloc(device, 15 * MB).nbytes == 15 * MB
    del first
    assert alloc(device, 64 * MB).nbytes == limit


def test_small_blocks_held_unused_yield_to_the_limit(device, limit):
    """What is kept of small blocks does not count against an allocation that needs the room."""
    arrays = [alloc(device, MB) for _ in range(8)]
    arrays.clear()
    assert device.memory_info() == (limit, limit)
    assert alloc(device, limit).nbytes == limit


def test_bodies_that_run_out_leave_the_runtime_as_it_was(gpu, limit):
    """A temporary that does not fit is the body's own failure, and nothing of the mapping is left."""
    x = np.zeros(MB, "u1")

    @omp.target
    def greedy(x):
        cupy.empty(2 * limit, "u1")

    with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
        greedy(x)
    assert not omp.target_is_present(x)
    gc.collect()  # the traceback refers to the body's arguments
    assert device_of(gpu).live_nbytes() == 0


def test_a_pool_that_ends_is_given_to_nobody(monkeypatch):
    """While a pool ends on one thread, another thread gets a new one."""
    from offload.devices.cuda import memory

    monkeypatch.setattr(memory, "_pools", WeakValueDictionary())
    found = []
    destroy = memory.cuda.memPoolDestroy

    def destroyed(handle):
        if not found:
            found.append(memory._pool_of("offload", 0))
        destroy(handle)

    monkeypatch.setattr(memory.cuda, "memPoolDestroy", destroyed)
    pool = memory._pool_of("offload", 0)
    address = pool.take(4096)
    pool.give_back(address, 4096)
    del pool
    (other,) = found
    assert not other.is_ending
    other.give_back(other.take(1 << 21), 1 << 21)
