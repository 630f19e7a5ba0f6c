"""Copies of the CUDA device: every way of moving a box moves it, and none waits where it must not."""

from __future__ import annotations

import ctypes
import gc
import itertools
import random
import subprocess
import sys
import threading
import time
from typing import Any
from unittest import mock

import numpy as np
import pytest

from offload.arrays import copies, units
from offload.arrays.boxes import collapse
from offload.devices.cuda.methods import CopyMethod
from offload.errors import DeviceError
from tests.gpu.conftest import cupy, cupyx

if cupy is not None:
    from offload.devices.cuda import copies as cuda_copies
    from offload.devices.cuda import copy_kernels, staging
    from offload.devices.cuda.copies import address_of
    from offload.devices.cuda.device import CudaDevice
    from offload.devices.cuda.staging import PageableCopy

pytestmark = pytest.mark.gpu


N_CASES = 60
DTYPES = ("u1", "u2", "u4", "u8", "c16")


class Side:
    """An array that lies anyhow in its memory, with spare bytes around it."""

    def __init__(self, rng: random.Random, shape: tuple[int, ...], dtype: str, *, may_repeat: bool = False) -> None:
        strides, step = [0] * len(shape), np.dtype(dtype).itemsize
        for axis in rng.sample(range(len(shape)), len(shape)) if rng.random() < 0.3 else reversed(range(len(shape))):
            step += rng.choice((0, 0, 0, 1, 4, 16, 48))
            strides[axis] = step
            step *= shape[axis]
        if may_repeat and shape and rng.random() < 0.1:
            strides[rng.randrange(len(shape))] = 0
        self.strides = tuple(-s if rng.random() < 0.15 else s for s in strides)
        low = sum(min(0, (n - 1) * s) for n, s in zip(shape, self.strides, strict=True))
        high = sum(max(0, (n - 1) * s) for n, s in zip(shape, self.strides, strict=True))
        self.offset = 64 + rng.choice((0, 0, 1, 4, 16)) - low
        self.shape, self.dtype = shape, dtype
        nbytes = -(-(self.offset + high + 80) // 16) * 16
        self.bytes = np.frombuffer(rng.randbytes(nbytes), "u1").copy()

    def host(self, memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.ndarray(self.shape, self.dtype, memory, self.offset, self.strides)

    def device(self, memory: Any) -> Any:
        return cupy.ndarray(self.shape, self.dtype, memory.data + self.offset, self.strides)


def cases(seed: int, most: int = 1 << 16) -> Any:
    """Yield pairs of sides of one random shape, of 1 to 8 axes, and what the destination's memory must become."""
    rng = random.Random(seed)
    for index in range(N_CASES):
        ndim = index % 8 + 1
        shape = tuple(rng.randint(1, max(2, int(most ** (1 / ndim)))) for _ in range(ndim))
        dtype = rng.choice(DTYPES)
        dst, src = Side(rng, shape, dtype), Side(rng, shape, dtype, may_repeat=True)
        wanted = dst.bytes.copy()
        dst.host(wanted)[...] = src.host(src.bytes)
        yield dst, src, wanted


def pinned(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array = cupyx.empty_pinned(data.shape, data.dtype)
    array[...] = data
    return array


def finish(copy: PageableCopy | None) -> None:
    if copy is not None:
        copy.run()


@pytest.fixture
def device():
    device = CudaDevice(0, 0)
    yield device
    device.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("offload-staging")]


@pytest.mark.parametrize("lanes", [None, 1, 8, 32])
def test_boxes_inside_of_the_device(device, lanes):
    """Each kernel moves exactly the bytes of a box, whatever its axes, strides and alignment."""
    stream = device.new_stream()
    choice = units._lanes if lanes is None else lambda *_: lanes
    plain = copy_kernels._launch_of.__wrapped__  # which remembers nothing
    with mock.patch.object(units, "_lanes", choice), mock.patch.object(copy_kernels, "_launch_of", plain):
        for dst, src, wanted in cases(1 + (lanes or 0)):
            to, at = cupy.asarray(dst.bytes), cupy.asarray(src.bytes)
            cupy.cuda.Device().synchronize()
            assert device.copy(dst.device(to), src.device(at), stream) is None
            stream.synchronize()
            assert (to.get() == wanted).all(), (dst.shape, dst.strides, src.strides, dst.dtype)


def test_a_launch_on_a_thread_without_a_context(device):
    """The first call of CUDA that a thread makes may be the launch of a copy's kernel."""
    source, target = cupy.arange(4096, dtype="u4").reshape(64, 64), cupy.zeros((64, 32), "u4")
    stream = device.new_stream()
    cupy.cuda.Device().synchronize()
    box = collapse(target.shape, target.strides, source[:, ::2].strides, 4)
    addresses = address_of(target), address_of(source)
    thread = threading.Thread(target=device._copies._launch, args=(*addresses, box, stream))
    thread.start()
    thread.join()
    stream.synchronize()
    assert (target.get() == source.get()[:, ::2]).all()


def test_kernels_outlive_what_cupy_remembers(device):
    """The kernels stay loaded when CuPy forgets all modules."""
    stream = device.new_stream()
    for seed in (3, 4):
        source, target = cupy.arange(seed, seed + 4096, dtype="u4").reshape(64, 64), cupy.zeros((64, 32), "u4")
        cupy.cuda.Device().synchronize()
        assert device.copy(target, source[:, ::2], stream) is None
        stream.synchronize()
        assert (target.get() == source.get()[:, ::2]).all()
        cupy.clear_memo()
        gc.collect()


@pytest.mark.parametrize("method", [None, *CopyMethod])
@pytest.mark.parametrize("to_host", [False, True])
def test_boxes_of_pinned_memory(device, method, to_host):
    """Each method moves exactly the bytes of a box between pinned memory and the device."""
    stream = device.new_stream()
    n_done = 0
    for dst, src, wanted in cases(10 + to_host):
        box = collapse(dst.shape, dst.strides, src.strides, np.dtype(dst.dtype).itemsize)
        if method is CopyMethod.PACKED and to_host and copies.hull(box, 1)[1] != box.nbytes:
            continue  # what lies between is not to be written
        to = pinned(dst.bytes) if to_host else cupy.asarray(dst.bytes)
        at = cupy.asarray(src.bytes) if to_host else pinned(src.bytes)
        cupy.cuda.Device().synchronize()
        target, source = (dst.host(to), src.device(at)) if to_host else (dst.device(to), src.host(at))
        if method is None:
            assert device.copy(target, source, stream) is None
        else:
            device._copies.enqueue_pinned(
                address_of(target), address_of(source), box, stream, to_host=to_host, method=method
            )
        stream.synchronize()
        found = to if to_host else to.get()
        assert (found == wanted).all(), (dst.shape, dst.strides, src.strides, dst.dtype)
        n_done += 1
    assert n_done >= 5


@pytest.mark.parametrize("to_host", [False, True])
@pytest.mark.parametrize("at_once_nbytes", [0, 64 << 10])
def test_boxes_of_pageable_memory(device, to_host, at_once_nbytes):
    """Staged in many chunks, or given to the driver at once, exactly the bytes of a box are moved."""
    stream = device.new_stream()
    n_staged = 0
    with (
        mock.patch.object(device._copies.staging, "least_chunk_nbytes", 4096),
        mock.patch.object(device._copies.staging, "at_once_nbytes", at_once_nbytes),
        mock.patch.object(device._copies, "at_call_nbytes", at_once_nbytes),
    ):
        for dst, src, wanted in cases(20 + to_host, 1 << 18):
            to = dst.bytes.copy() if to_host else cupy.asarray(dst.bytes)
            at = cupy.asarray(src.bytes) if to_host else src.bytes.copy()
            cupy.cuda.Device().synchronize()
            target, source = (dst.host(to), src.device(at)) if to_host else (dst.device(to), src.host(at))
            copy = device.copy(target, source, stream)
            n_staged += copy is not None
            finish(copy)
            stream.synchronize()
            found = to if to_host else to.get()
            assert (found == wanted).all(), (dst.shape, dst.strides, src.strides, dst.dtype)
    assert n_staged >= (10 if at_once_nbytes else N_CASES)


@pytest.mark.parametrize("row_nbytes", [5, 1000, 1025, 3000, 4096, 9 << 20])
def test_rows_of_pageable_memory(device, row_nbytes):
    """Rows of any length are moved both ways, and what lies between them is left alone."""
    stream, n_rows = device.new_stream(), max(3, (9 << 20) // row_nbytes)
    pages = np.random.default_rng(row_nbytes).integers(0, 256, (n_rows, row_nbytes + 3), "u1")
    far = cupy.zeros((n_rows, row_nbytes), "u1")
    cupy.cuda.Device().synchronize()
    finish(device.copy(far, pages[:, 1:-2], stream))
    back = np.full_like(pages, 7)
    finish(device.copy(back[:, 1:-2], far, stream))
    assert (back[:, 1:-2] == pages[:, 1:-2]).all()
    assert (back[:, 0] == 7).all()
    assert (back[:, -2:] == 7).all()


@pytest.mark.parametrize(
    ("mb", "chunk_mb", "alone_mb"),
    [(0.1, 1, 1), (4, 1, 1), (8, 2, 2), (16, 4, 4), (24, 6, 4), (32, 8, 4), (48, 8, 6), (64, 8, 8), (1000, 8, 8)],
)
def test_chunks_of_staged_copies(mb, chunk_mb, alone_mb):
    """A copy is cut into four, or into eight where it has the threads to itself and chunks stay large by that."""
    nbytes = int(mb * (1 << 20))
    assert staging.chunk_nbytes(nbytes, is_alone=False) == chunk_mb << 20
    assert staging.chunk_nbytes(nbytes, is_alone=True) == alone_mb << 20


def staged_by_one(device, monkeypatch):
    """Return a device's staging with one thread that has one slot and gets no other, and what says that it asked."""
    stage, asked = device._copies.staging, threading.Semaphore(0)
    monkeypatch.setattr(stage, "_most_threads", 1)
    finish(device.copy(cupy.zeros(1 << 20, "u1"), np.zeros(1 << 20, "u1"), device.new_stream()))
    cupy.cuda.Device().synchronize()  # then it need not ask

    def refuse(nbytes, flags):
        asked.release()
        raise cupy.cuda.runtime.CUDARuntimeError(2)  # cudaErrorMemoryAllocation

    monkeypatch.setattr(cupy.cuda.runtime, "hostAlloc", refuse)
    return stage, asked


def test_no_memory_for_a_second_slot(device, latch, monkeypatch):
    """A thread that gets no second slot waits for its first one."""
    _, asked = staged_by_one(device, monkeypatch)
    held = device.new_stream()
    page = np.random.default_rng(1).integers(0, 256, 4 << 20, "u1")
    far, said, everything = cupy.zeros(4 << 20, "u1"), [], threading.Event()
    cupy.cuda.Device().synchronize()
    latch.hold(held)
    device.copy(far, page, held).start(lambda error: (said.append(error), everything.set()))
    assert asked.acquire(timeout=20)
    assert not said
    latch.release()
    assert everything.wait(20)
    held.synchronize()
    assert said == [None]
    assert (far.get() == page).all()


def test_a_slot_of_a_chunk_that_failed_is_waited_for(device, latch, monkeypatch):
    """What a chunk enqueued before it failed still reads its slot, which nobody else gets until then."""
    stage, asked = staged_by_one(device, monkeypatch)
    held, free = device.new_stream(), device.new_stream()
    far, other = cupy.zeros((2, 1 << 20), "u1"), cupy.zeros((2, 1 << 20), "u1")
    pages = [np.full(1 << 20, value, "u1") for value in (1, 2)]
    said, ready = [], threading.Semaphore(0)

    def done(error):
        said.append(error)
        ready.release()

    def fail(device, near, part, stream, *, to_host, is_pinned):
        cupy.cuda.runtime.memcpyAsync(far.data.ptr, near, part.nbytes, 1, stream.ptr)
        raise DeviceError("half of it")

    cupy.cuda.Device().synchronize()
    latch.hold(held)
    with mock.patch.object(stage, "transfer", fail):
        device.copy(far.reshape(-1)[::2], pages[0], held).start(done)
        assert ready.acquire(timeout=20)
    device.copy(other[0], pages[1], free).start(done)
    assert asked.acquire(timeout=20)
    assert len(said) == 1
    latch.release()
    assert ready.acquire(timeout=20)
    held.synchronize()
    free.synchronize()
    assert [type(error) for error in said] == [DeviceError, type(None)]
    assert (far[0].get() == 1).all()
    assert (other[0].get() == 2).all()


def test_many_staged_copies_at_once(device):
    """Copies in both directions on many streams are all done, each says so once, and no array is kept."""
    n, nbytes = 24, 9 << 20
    streams = [device.new_stream() for _ in range(n)]
    data = [np.random.default_rng(i).integers(0, 256, nbytes, "u1") for i in range(n)]
    near, far = [np.zeros(nbytes, "u1") for _ in range(n)], [cupy.zeros(nbytes, "u1") for _ in range(n)]
    cupy.cuda.Device().synchronize()
    for phase in ("to the device", "to the host"):
        calls: list[tuple[int, Any]] = []
        everything = threading.Semaphore(0)

        def done(i: int, error: Any, calls: Any = calls, everything: Any = everything) -> None:
            calls.append((i, error))
            everything.release()

        for i in range(n):
            pair = (far[i], data[i]) if phase == "to the device" else (near[i], far[i])
            copy = device.copy(*pair, streams[i])
            copy.start(lambda error, i=i: done(i, error))
        for _ in range(n):
            assert everything.acquire(timeout=30)
        assert sorted(calls) == [(i, None) for i in range(n)]
    assert all((a == b).all() for a, b in zip(data, near, strict=True))
    time.sleep(0.05)
    del pair, copy
    references = [sys.getrefcount(array) for array in near]
    assert references == [3] * n  # the list's, the loop's and the argument's


def test_nothing_waits_behind_a_held_stream(device, latch):
    """Behind a kernel that runs for ever, a copy of any kind is enqueued, taken or handed back without waiting."""
    held, free = device.new_stream(), device.new_stream()
    far, other = cupy.zeros(8 << 20, "u1"), cupy.zeros(8 << 20, "u1")
    page, fixed = np.ones(8 << 20, "u1"), pinned(np.ones(8 << 20, "u1"))
    cupy.cuda.Device().synchronize()
    latch.hold(held)
    try:
        began_s = time.perf_counter()
        assert device.copy(far[::3], other[::3], held) is None
        assert device.copy(far[::3], fixed[::3], held) is None
        assert device.copy(fixed[::2], far[::2], held) is None
        assert device.copy(far[:4000], page[:4000], held) is None
        assert device.copy(far[:8000:2], page[:8000:2], held) is None
        staged = device.copy(far, page, held)
        back = device.copy(page, far, held)
        assert isinstance(staged, PageableCopy)
        assert isinstance(back, PageableCopy)
        taken = [device.copy(far[: 64 << 10], page[: 64 << 10], held) for _ in range(40)]
        assert sum(copy is None for copy in taken) == 16  # of 1 MB together
        assert time.perf_counter() - began_s < 0.5
        finish(device.copy(other, page, free))  # slots are no one's for long
        finish(device.copy(page, other, free))
    finally:
        latch.release()
    held.synchronize()
    assert device.copies_async(fixed[5:9])
    assert not device.copies_async(page)


def test_pinned_memory_of_cupy_is_known_without_the_driver(device, monkeypatch):
    """Arrays over memory of CuPy's pool are known by the memory that they keep, and so are their views."""
    monkeypatch.setattr(cuda_copies, "_driver", None)  # to be called
    stream, far = device.new_stream(), cupy.zeros((4, 6))
    cupy.cuda.Device().synchronize()
    for array in (
        cupyx.zeros_pinned((4, 6)),
        np.frombuffer(device.host_memory(192), "f8", 24).reshape(4, 6),
        np.ndarray((4, 6), buffer=device.host_memory(192)),
    ):
        array[...] = np.arange(24).reshape(4, 6)
        for part in (np.s_[:], np.s_[2], np.s_[1:, ::2]):
            assert device.copy(far[part], array[part], stream) is None
            stream.synchronize()
            assert (far[part].get() == array[part]).all()


@pytest.mark.parametrize("pages", [(0, 7), (0,), (3,), range(8)])
def test_copies_of_memory_that_is_pinned_in_part(device, latch, pages):
    """A few bytes are taken at the call, and all of them arrive, wherever registrations of a page begin and end."""
    page = 4096
    memory = np.zeros(9 * page, "u1")
    array = memory[-memory.ctypes.data % page :][: 8 * page]
    data = np.random.default_rng(1).integers(1, 200, array.size, "u1")
    boxes = [slice(None), slice(page - 1, page + 1), slice(3 * page - 5, 4 * page + 5), slice(1, None, 2)]
    far, held = [cupy.zeros(array[box].shape, "u1") for box in boxes], device.new_stream()
    device.copy(cupy.zeros(64, "u1")[::2], cupy.zeros(64, "u1")[::2], held)  # its kernels are loaded
    cupy.cuda.Device().synchronize()
    registered = [array.ctypes.data + number * page for number in pages]
    for address in registered:
        cupy.cuda.runtime.hostRegister(address, page, 0)
    try:
        array[...] = data
        latch.hold(held)
        for to, box in zip(far, boxes, strict=True):
            assert device.copy(to, array[box], held) is None
        array[...] = 255
        latch.release()
        held.synchronize()
        for to, box in zip(far, boxes, strict=True):
            assert (to.get() == data[box]).all()
            array[...] = 0
            finish(device.copy(array[box], to, held))
            held.synchronize()
            assert (array[box] == data[box]).all()
    finally:
        latch.release()
        held.synchronize()
        for address in registered:
            cupy.cuda.runtime.hostUnregister(address)


def test_memory_that_is_pinned_in_part(device):
    """An array is pinned if one registration has all of it, not if its ends are registered, each by itself."""
    page = 4096
    memory = np.zeros(9 * page, "u1")
    begin = -memory.ctypes.data % page
    array = memory[begin : begin + 8 * page]
    far = cupy.arange(8 * page, dtype="u1")
    cupy.cuda.Device().synchronize()
    first, last = array.ctypes.data, array.ctypes.data + 7 * page
    for address in (first, last):
        cupy.cuda.runtime.hostRegister(address, page, 0)
    try:
        assert device.copies_async(array[:page])
        assert device.copies_async(array[7 * page + 5 :: 3])
        assert not device.copies_async(array)
        assert not device.copies_async(array[page - 1 : page + 1])
    finally:
        for address in (first, last):
            cupy.cuda.runtime.hostUnregister(address)
    cupy.cuda.runtime.hostRegister(first, 8 * page, 0)
    try:
        assert device.copies_async(array)
        stream = device.new_stream()
        assert device.copy(array, far, stream) is None
        stream.synchronize()
    finally:
        cupy.cuda.runtime.hostUnregister(first)
    assert (array == far.get()).all()


def managed(nbytes):
    """Return an array of managed memory, with what keeps it."""
    memory = cupy.cuda.malloc_managed(nbytes)
    cupy.cuda.Device().synchronize()
    return np.ctypeslib.as_array((ctypes.c_ubyte * nbytes).from_address(memory.ptr)), memory


def test_regions_of_memory(device):
    """The driver tells in one call what memory an address is in, and how far it reaches, on any thread."""
    page = 4096
    memory = np.zeros(9 * page, "u1")
    registered = memory[-memory.ctypes.data % page :][: 8 * page]
    first = registered.ctypes.data
    fixed, (shared, _kept), far = pinned(np.ones(3 * page, "u1")), managed(2 * page), cupy.zeros(5 * page, "u1")
    region_of = staging.Driver().region_of
    cupy.cuda.runtime.hostRegister(first + page, 2 * page, 0)
    try:

        def look():
            assert region_of(first) is None
            assert region_of(first + page - 1) is None
            assert region_of(first + page) == region_of(first + 3 * page - 1) == (first + page, 2 * page)
            assert region_of(first + 3 * page) is None
            for array in (fixed.ctypes.data, shared.ctypes.data, far.data.ptr):
                begin, nbytes = region_of(array)
                assert begin <= array < begin + nbytes
            assert region_of(fixed.ctypes.data + fixed.nbytes - 1) == region_of(fixed.ctypes.data)

        failures = []

        def attempt():
            try:
                for _ in range(200):
                    look()
            except BaseException as error:  # raised below
                failures.append(error)

        threads = [threading.Thread(target=attempt) for _ in range(4)]  # none of which has called CUDA before
        for thread in threads:
            thread.start()
        attempt()
        for thread in threads:
            thread.join()
        assert not failures, failures
    finally:
        cupy.cuda.runtime.hostUnregister(first + page)
    assert region_of(first + page) is None


@pytest.mark.parametrize("kind", ["pinned", "managed", "pageable", "read-only"])
@pytest.mark.parametrize("shape", [(), (1,), (70, 50), (3, 1, 4099)])
def test_whole_arrays(device, kind, shape):
    """C-ordered arrays go to the device, within it and back, whatever memory of the host they are in."""
    stream = device.new_stream()
    data = np.random.default_rng(3).integers(0, 256, shape, "u1")
    kept = None
    if kind == "managed":
        (host, to), (found, at) = managed(data.size), managed(data.size)
        kept = to, at
        host, found = host.reshape(shape), found.reshape(shape)
        host[...] = data
    elif kind == "pinned":
        host, found = pinned(data), pinned(np.zeros_like(data))
    else:
        host, found = data.copy(), np.zeros_like(data)
        host.flags.writeable = kind != "read-only"
    far, other = cupy.zeros(shape, "u1"), cupy.zeros(shape, "u1")
    cupy.cuda.Device().synchronize()
    finish(device.copy(far, host, stream))
    assert device.copy(other, far, stream) is None
    copy = device.copy(found, other, stream)
    assert (copy is None) == (kind in ("pinned", "managed"))
    finish(copy)
    stream.synchronize()
    assert (found == data).all()
    del kept


@pytest.mark.parametrize("order", ["C", "F"])
def test_whole_copies_that_are_repeated(device, order):
    """What enqueues a copy of dense pinned arrays does so again and again, in both directions; others have none."""
    host, array = cupyx.empty_pinned((5, 7), np.float32, order=order), cupy.empty((5, 7), np.float32, order=order)
    stream = device.new_stream()
    to_device, to_host = device.repeat(array, host), device.repeat(host, array)
    for number in range(3):
        host[...] = np.arange(35.0).reshape(5, 7) + number
        to_device(stream)
        stream.synchronize()
        host[...] = 0
        to_host(stream)
        stream.synchronize()
        assert (host == np.arange(35.0).reshape(5, 7) + number).all()
    other = cupy.empty((5, 7), np.float32, order="F" if order == "C" else "C")
    for one, two in [(other, host), (array[:0], host[:0]), (array[::2], host[::2]), (array, np.empty_like(host))]:
        assert device.repeat(one, two) is None
        assert device.repeat(two, one) is None
    assert device.repeat(array, cupy.empty_like(array)) is None


@pytest.mark.parametrize("error", [MemoryError, None])
def test_temporaries_of_sparse_memory(device, error):
    """What lies far apart goes through temporaries of bounded size, or without where an allocator has no memory."""
    near, far = pinned(np.arange(1 << 20, dtype="u1")), cupy.zeros(1 << 14, "u1")
    cupy.cuda.Device().synchronize()
    stream = device.new_stream()
    target, source = far, near[::64]
    box = collapse(target.shape, target.strides, source.strides, 1)
    with (
        mock.patch.object(device._copies, "temporary_nbytes", 64 << 10),
        mock.patch.object(cupy.cuda, "alloc", side_effect=error, wraps=cupy.cuda.alloc) as alloc,
    ):
        device._copies.enqueue_pinned(
            address_of(target), address_of(source), box, stream, to_host=False, method=CopyMethod.PACKED
        )
    stream.synchronize()
    assert (far.get() == source).all()
    assert all(call.args[0] <= 64 << 10 for call in alloc.call_args_list)
    assert alloc.call_count == (1 if error else 16)


def test_a_copy_that_has_not_begun(device):
    """It has no chunks, and may be dropped."""
    page, far = np.ones(1 << 20, "u1"), cupy.zeros(1 << 20, "u1")
    copy = device.copy(far, page, device.new_stream())
    assert copy.ahead is None
    assert not list(copy.parts)
    copy.drop(DeviceError("none of it"))
    copy.finish()
    assert isinstance(copy.error, DeviceError)


@pytest.mark.parametrize("columns", [1, 2])
def test_small_copies_to_the_device_may_be_overwritten_at_once(device, latch, columns):
    """Bytes that were taken at the call arrive as they were then."""
    held = device.new_stream()
    far = cupy.zeros((16, 3000), "u1")
    cupy.cuda.Device().synchronize()
    page = np.zeros((3000, columns), "u1")
    latch.hold(held)
    for i in range(16):
        page[...] = i + 1
        assert device.copy(far[i], page[:, 0], held) is None
    page[...] = 99
    latch.release()
    held.synchronize()
    assert (far.get() == np.arange(1, 17, dtype="u1")[:, None]).all()


def test_closing_fails_what_is_left(device):
    """`close` ends the threads, and a copy that it finds in progress fails or is done, but says so."""
    stream = device.new_stream()
    page, far = np.ones(256 << 20, "u1"), cupy.zeros(256 << 20, "u1")
    cupy.cuda.Device().synchronize()
    said: list[Any] = []
    for pair in ((far, page), (page, far), (far, page)):
        device.copy(*pair, stream).start(said.append)
    device.close()
    assert len(said) == 3
    assert any(isinstance(error, DeviceError) for error in said)
    assert all(error is None or isinstance(error, DeviceError) for error in said)
    device.close()
    late = device.copy(far, page, stream)
    with pytest.raises(DeviceError):
        late.run()


def test_large_counts(device):
    """More than 2**31 elements of a byte are copied, in several launches."""
    if cupy.cuda.runtime.memGetInfo()[0] < 12 << 30:
        pytest.skip("needs 12 GiB of GPU memory")
    n = (1 << 31) + 1000
    src, dst = cupy.zeros(2 * n, "u1"), cupy.zeros(n, "u1")
    src[::1000] = 7
    src[-2] = 9
    cupy.cuda.Device().synchronize()
    stream = device.new_stream()
    device.copy(dst, src[::2], stream)
    stream.synchronize()
    assert int(dst[-1]) == 9
    assert bool((dst[:-1] == src[:-2:2]).all())


@pytest.mark.parametrize("reaches", [True, False])
def test_boxes_between_two_devices(reaches):
    """Strided boxes go from one GPU to another, with and without access to its memory."""
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    devices = [CudaDevice(0, 0), CudaDevice(1, 1)]
    if reaches and not devices[0]._memory.reaches(1):
        pytest.skip("needs two GPUs")  # that reach each other
    for here, (dst, src, wanted) in zip(itertools.cycle((0, 1)), cases(40, 1 << 12), strict=False):
        device = devices[here]
        with cupy.cuda.Device(here):
            to = cupy.asarray(dst.bytes)
            cupy.cuda.Device().synchronize()
        with cupy.cuda.Device(1 - here):
            at = cupy.asarray(src.bytes)
            cupy.cuda.Device().synchronize()
        stream = device.new_stream()
        with mock.patch.object(device._copies, "_reaches", lambda _, reaches=reaches: reaches):
            assert device.copy(dst.device(to), src.device(at), stream) is None
        stream.synchronize()
        assert (to.get() == wanted).all()
    for device in devices:
        device.close()


LOST = """
import threading, cupy, numpy as np
from offload.devices.cuda.device import CudaDevice
from offload.errors import DeviceLostError
bad = cupy.RawKernel('extern "C" __global__ void bad(float* x) { x[1ull << 40] = 1; }', "bad")
device = CudaDevice(0, 0)
stream = device.new_stream()
far, page = cupy.zeros(64 << 20, "u1"), np.ones(64 << 20, "u1")
device.copy(far, page, stream).run()
copies = [device.copy(far, page, stream), device.copy(page, far, stream)]
bad((1,), (1,), (far,))
try:
    cupy.cuda.Device().synchronize()
except cupy.cuda.runtime.CUDARuntimeError:
    pass
said, ready = [], threading.Semaphore(0)
for copy in copies:
    copy.start(lambda error: (said.append(error), ready.release()))
for copy in copies:
    assert ready.acquire(timeout=20)
assert [type(error) for error in said] == [DeviceLostError] * 2, said
try:
    copies[0].run()
except DeviceLostError:
    print("named")
device.close()
import os; os._exit(0)
"""


def test_a_lost_device_fails_staged_copies():
    """After an illegal address staged copies fail with `DeviceLostError`, and nothing hangs."""
    done = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.strip() == "named", done.stderr


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("odd", [0, 1])
@pytest.mark.parametrize(("ns", "nd"), [(512, 384), (200, 132), (129, 67), (8, 3000), (3000, 8), (16, 16), (24, 40)])
def test_transpositions(device, width, odd, ns, nd):
    """A batch of transpositions is right for every tile, at its edges, off the alignment of words, and backwards."""
    stream = device.new_stream()
    dtype = np.dtype(f"V{width}")
    source = np.random.default_rng(0).integers(0, 256, (nd * ns * 5 + odd) * width, "u1").view(dtype)[odd:]
    at, to = cupy.asarray(source.view("u1")), cupy.zeros(source.nbytes + odd * width, "u1")
    cupy.cuda.Device().synchronize()
    for at_step, to_step in ((1, 1), (1, -1), (-1, 1)):
        at_first, to_first = (0 if at_step > 0 else (ns - 1) * width), (0 if to_step > 0 else (nd - 1) * width)
        at_strides = (nd * ns * width, ns * width, at_step * width)
        to_strides = (nd * ns * width, to_step * width, nd * width)
        shape, to_first = (5, nd, ns), to_first + odd * width
        dst = device.view(to, to_first, shape, to_strides, dtype_of(width))
        src = device.view(at, at_first, shape, at_strides, dtype_of(width))
        to.fill(0)
        cupy.cuda.Device().synchronize()
        assert device.copy(dst, src, stream) is None
        stream.synchronize()
        wanted = np.zeros(to.nbytes, "u1")
        np.ndarray(shape, dtype, wanted, to_first, to_strides)[...] = np.ndarray(
            shape, dtype, source, at_first, at_strides
        )
        assert (to.get() == wanted).all(), (at_step, to_step)


def dtype_of(width):
    """Return what CuPy has of so many bytes."""
    return np.dtype({1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}[width])


@pytest.mark.parametrize("row", [3, 12, 24, 32, 48, 160])
@pytest.mark.parametrize("n", [4096, 8191])
@pytest.mark.parametrize("owners", [3, 8])
@pytest.mark.parametrize("is_dealt", [True, False])
def test_short_rows(device, row, n, owners, is_dealt):
    """Short rows dealt to owners, or gathered from them, are right whatever their number, on and off words."""
    stream = device.new_stream()
    source = cupy.asarray(np.random.default_rng(0).integers(0, 256, n * owners * row + 1, "u1"))
    for odd in (0, 1):
        at, to = source[odd : odd + n * owners * row], cupy.zeros(n * owners * row, "u1")
        cupy.cuda.Device().synchronize()
        src = at.reshape(n, owners, row) if is_dealt else at.reshape(owners, n, row).transpose(1, 0, 2)
        dst = to.reshape(owners, n, row).transpose(1, 0, 2) if is_dealt else to.reshape(n, owners, row)
        assert device.copy(dst, src, stream) is None
        stream.synchronize()
        assert (dst == src).all()


def test_many_axes(device):
    """27 digits of 2 are turned round, more axes than CuPy's own operations take."""
    stream, n = device.new_stream(), 27
    source, target = cupy.arange(1 << n, dtype="u4"), cupy.zeros(1 << n, "u4")
    cupy.cuda.Device().synchronize()
    strides = [4 << k for k in range(n)]
    dst = device.view(target, 0, (2,) * n, tuple(strides), source.dtype)
    src = device.view(source, 0, (2,) * n, tuple(strides[::-1]), source.dtype)
    assert device.copy(dst, src, stream) is None
    stream.synchronize()
    turned = cupy.zeros_like(source)
    for k in range(n):
        turned |= (source >> k & 1) << (n - 1 - k)
    assert (target == turned).all()
