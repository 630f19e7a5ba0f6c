"""Device routines and memory: OpenMP_VV B 21, F 81, 83, 91, H 111 to 117; LLVM 2.2 25 to 35."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offload as omp
from offload import from_, in_, inout, out, to, tofrom
from tests.profiles import examples

N = 32
RECORD = np.dtype([("key", "i1"), ("value", "f8")], align=True)


def fetch(d):
    """Return what a device array holds."""
    found = np.empty(d.shape, d.dtype)
    omp.target_memcpy_rect(found, d)
    return found


# -- devices ----------------------------------------------------------------------------------------
def test_target_data_map_devices(runtime):
    """4.5/target_data/test_target_data_map_devices.c: the default device and device= lead to the same device."""
    n = omp.get_num_devices()
    by_default, by_clause = np.zeros(n * N), np.zeros(n * N)

    def body(h):
        assert not omp.is_initial_device()
        h += omp.get_device_num()

    for d in range(n):
        part = slice(d * N, (d + 1) * N)
        omp.set_default_device(d)
        with omp.target_data(map=[tofrom(by_default[part])]):
            omp.target(body)(by_default[part])
        omp.set_default_device(0)
        with omp.target_data(map=[tofrom(by_clause[part])], device=d):
            omp.target(device=d)(body)(by_clause[part])
    assert (by_default == np.repeat(np.arange(n), N)).all()
    assert (by_clause == by_default).all()


@pytest.mark.parametrize("condition", [True, False])
def test_target_parallel_if_device(runtime, condition):
    """5.0/target/test_target_parallel_if_device.c: the region is on the device exactly if if_ is true."""
    a = np.arange(N, dtype=float)
    seen = []
    for d in range(omp.get_num_devices()):
        with omp.target_data(map=[tofrom(a)], device=d, if_=condition):

            def body(a):
                seen.append(omp.is_initial_device())
                a += 1

            omp.target(device=d, if_=condition)(body)(a)
    assert seen == [not condition] * omp.get_num_devices()
    assert (a == np.arange(N) + len(seen)).all()


def test_target_device(runtime):
    """5.0/target/test_target_device.c: device=n runs there; the host's numbers run on the host."""
    host = omp.get_initial_device()
    assert host == omp.get_num_devices()
    for n in range(host):
        assert omp.target(device=n)(omp.get_device_num)() == n
    for n in (host, omp.initial_device):
        assert omp.target(device=n)(omp.get_device_num)() == host
        assert omp.target(device=n)(omp.is_initial_device)()


# -- presence ---------------------------------------------------------------------------------------
def test_get_mapped_ptr(runtime):
    """5.1/memory_routines/test_get_mapped_ptr.c: an array where mapped, the argument itself on the host."""
    a = np.arange(float(N))
    for d in range(omp.get_num_devices()):
        assert omp.get_mapped_ptr(a, d) is None
        omp.target_enter_data([to(a)], device=d)
        there = omp.get_mapped_ptr(a, d)
        assert there.shape == a.shape
        assert there.dtype == a.dtype
        assert (fetch(there) == a).all()
        assert (fetch(omp.get_mapped_ptr(a[4:20:3][::-1], d)) == a[4:20:3][::-1]).all()
        del there
        omp.target_exit_data([omp.release(a)], device=d)
        assert omp.get_mapped_ptr(a, d) is None
    for host in (omp.get_initial_device(), omp.initial_device):
        assert omp.get_mapped_ptr(a, host) is a


def test_omp_get_mapped_ptr(runtime):
    """offload/test/api/omp_get_mapped_ptr.c: nothing where unmapped and for numbers that no device has."""
    a = np.arange(4.0)
    n = omp.get_num_devices()
    with omp.target_data([to(a[:2])]):
        for number in (-5, omp.invalid_device, n + 1, 1000):
            assert omp.get_mapped_ptr(a[:2], number) is None
        assert omp.get_mapped_ptr(a) is None  # present in part
        assert omp.get_mapped_ptr(a[2:]) is None
        assert omp.get_mapped_ptr(a[:0]) is None
        assert omp.get_mapped_ptr(None) is None
        assert omp.get_mapped_ptr(a[:2]) is not None
        assert omp.get_mapped_ptr(omp.get_mapped_ptr(a[:2])) is None


def test_get_mapped_ptr_is_the_storage(runtime):
    """What a body writes to the array of get_mapped_ptr is what the mapping copies back."""
    a = np.zeros((4, 6))
    with omp.target_data([from_(a[:, 1:3])]):
        omp.target_memcpy_rect(omp.get_mapped_ptr(a[:, 1:3]), np.arange(8.0).reshape(4, 2))
        omp.target(lambda d: d.__imul__(2) is None)(omp.get_mapped_ptr(a[2:, 1:3]))
    expected = np.zeros((4, 6))
    expected[:, 1:3] = np.arange(8.0).reshape(4, 2)
    expected[2:, 1:3] *= 2
    assert (a == expected).all()


def test_target_is_present(runtime):
    """An array is present where all of it is mapped; one past the end is not; each device has its own table."""
    a = np.arange(100)
    last = omp.get_num_devices() - 1
    assert not omp.target_is_present(a, last)
    with omp.target_data([to(a[50:60])], device=last):
        for part, expected in (
            (a[50:60], True),
            (a[59:49:-2], True),
            (a[50:51], True),
            (a[49:51], False),
            (a[59:61], False),
            (a, False),
            (a[60:61], False),
            (a[55:55], False),
            (np.empty(0), False),
        ):
            assert omp.target_is_present(part, last) is expected
        if last:
            assert not omp.target_is_present(a[50:60], 0)
        assert omp.target_is_present(a, omp.get_initial_device())
        assert omp.target_is_present(a, omp.initial_device)
        assert not omp.target_is_present(None, omp.initial_device)
        assert not omp.target_is_present(omp.get_mapped_ptr(a[50:60], last), last)
    assert not omp.target_is_present(a[50:60], last)


def test_packed_items_are_present_without_their_gaps(runtime):
    """A view with an element in a gap of a strided item is not present; one that has none is."""
    a = np.zeros((6, 8))
    with omp.target_data([to(a[:, :4])]):
        assert omp.target_is_present(a[1:3, 2:4])
        assert not omp.target_is_present(a[1:3, 2:5])
        assert not omp.target_is_present(a[0])


def test_target_is_accessible_with_usm(runtime):
    """5.1/requires/test_target_is_accessible_with_usm.c: what is said to be accessible can be used without a copy."""
    host = omp.get_initial_device()
    a = np.arange(4.0)
    arrays = [omp.target_alloc(4, device=n) for n in range(host)]
    for n, d in itertools.product(range(host), range(host)):
        assert omp.target_is_accessible(arrays[d], n) is (d == n)
    for number in (host, omp.initial_device):
        assert omp.target_is_accessible(a, number)
        assert omp.target_is_accessible(a[:0], number)
        assert not omp.target_is_accessible(arrays[0], number)
    assert not omp.target_is_accessible(a[:0])
    assert not omp.target_is_accessible(None)
    if omp.device(0).kind == "sim":
        assert not omp.target_is_accessible(a)
    else:
        cupy = omp.array_namespace(arrays[0])
        pinned = np.frombuffer(cupy.cuda.alloc_pinned_memory(256), np.uint8, 256)
        assert omp.target_is_accessible(pinned)
        assert omp.target_is_accessible(pinned[::-2])
        reaches_all = bool(cupy.cuda.runtime.deviceGetAttribute(88, 0))
        assert omp.target_is_accessible(a) is reaches_all
    for d in arrays:
        omp.target_free(d)


def test_requires_unified_shared_memory_heap(runtime):
    """5.0/requires/test_requires_unified_shared_memory_heap.c: without unified memory each side has its own storage."""
    a = np.arange(float(N))
    with omp.target_data([tofrom(a)]):
        a += 10  # the device does not see it
        omp.target(lambda a: a.__iadd__(20) is None)(a)
        assert (a == np.arange(N) + 10).all()
    assert (a == np.arange(N) + 20).all()


def test_memcpy_in_the_order_of_memory(runtime):
    """Bytes are counted in the order of an array's memory, also where that is Fortran's, and also on the device."""
    host = np.asfortranarray(np.arange(24, dtype=np.int32).reshape(4, 6))
    d = omp.target_alloc((6, 4), np.int32)
    omp.target_memcpy(d.T, host)
    omp.target_memcpy_async(d.T, host, nbytes=8, dst_offset=80, src_offset=4, depend=[inout(d)]).result()
    omp.target_memcpy(d, host, 0, d.nbytes)
    found = np.zeros(24, np.int32)
    omp.target_memcpy(found, d.T)
    wanted = host.ravel(order="F")
    wanted[20:22] = wanted[1:3]
    assert found.tolist() == wanted.tolist()
    omp.target_free(d)


# -- memset -----------------------------------------------------------------------------------------
def test_omp_target_memset(runtime):
    """offload/test/api/omp_target_memset.c: it returns its argument; a byte offset reads what was set."""
    d = omp.target_alloc(130, np.int32)
    omp.target_memcpy(d, np.arange(130, dtype=np.int32))
    assert omp.target_memset(d, 0, nbytes=129 * 4, device=d_number(d)) is d
    found = np.full(129, -1, np.int32)
    omp.target_memcpy_async(found, d, nbytes=129 * 4, src_offset=4, depend=[out(found)])
    omp.taskwait(depend=[in_(found)])
    assert found.tolist() == [0] * 128 + [129]
    omp.target_free(d)


def d_number(d):
    """Return the number of the device that an array is on."""
    return next(place.device.number for place in omp.current_runtime().places if place.device.is_array(d))


@pytest.mark.parametrize(("value", "byte"), [(0, 0), (1, 1), (255, 255), (-1, 255), (-128, 128), (np.uint8(7), 7)])
def test_memset_values(runtime, value, byte):
    """Each byte gets the value; None sets all; the host's arrays are set alike."""
    for device in (*range(omp.get_num_devices()), omp.initial_device):
        d = omp.target_alloc((3, 5), np.uint16, device)
        omp.target_memset(d, value)
        assert (fetch(d).view("u1") == byte).all()
        omp.target_memset(d, value ^ 1 if value == 1 else 3, nbytes=7)
        assert (fetch(d).reshape(-1).view("u1")[7:] == byte).all()
        omp.target_memset(d, 9, nbytes=0)
        assert (fetch(d).reshape(-1).view("u1")[7:] == byte).all()
        omp.target_free(d)
    assert omp.target_memset(None, 0) is None


def test_memset_of_views_and_orders(runtime):
    """A view is never exceeded, and Fortran order is contiguous too."""
    d = omp.target_memset(omp.target_alloc((4, 6)), 1)
    omp.target_memset(d[1:3], 2)
    omp.target_memset(d[3:].T, 3)
    assert fetch(d).tolist() == [[1] * 6, [2] * 6, [2] * 6, [3] * 6]
    omp.target_free(d)
    records = np.zeros(3, RECORD)
    omp.target_memset(records, 255)
    assert records["key"].tolist() == [-1, -1, -1]
    omp.target_memset(np.zeros(0), 4)


def test_memset_async(streams):
    """It is deferred, and ordered by depend with copies and regions."""
    d, found, host = omp.target_alloc(8), np.zeros(8, np.uint8), np.zeros(4, np.uint8)
    omp.target_memset_async(d, 3, depend=[out(d)])
    omp.target(nowait=True, depend=[inout(d)])(lambda d: d.__iadd__(1) is None)(d)
    omp.target_memset_async(d, 9, nbytes=2, depend=[inout(d)])
    omp.target_memcpy_async(found, d, depend=[in_(d), out(found)])
    task = omp.target_memset_async(host, 5, depend=[in_(found)])
    streams.go()
    omp.taskwait()
    assert found.tolist() == [9, 9, 4, 4, 4, 4, 4, 4]
    assert host.tolist() == [5] * 4
    assert task.done()
    assert omp.target_memset_async(None, 0).result() is None
    omp.target_free(d)


# -- copies -----------------------------------------------------------------------------------------
def test_memcpy_rect_query(runtime):
    """offload/test/api/omp_target_memcpy_rect_async1.c: two Nones return the largest number of dimensions,
    others being ignored."""
    assert omp.target_memcpy_rect(None, None, "x", dst_device=99) >= 8
    assert omp.target_memcpy_rect_async(None, None) >= 8
    most = omp.target_memcpy_rect(None, None)
    host = np.arange(3.0)
    with pytest.raises(omp.ClauseError, match="dimensions"):
        omp.target_memcpy_rect(np.zeros(3), host, (1,) * (most + 1), None, None, (1,) * (most + 1), (1,) * (most + 1))


def test_target_12_trailing_entries(runtime):
    """libgomp/…/target-12.c: a volume of one dimension ignores trailing entries; boxes of one block may not meet."""
    host, d = np.arange(128, dtype=np.int32), omp.target_alloc(256, np.int32)
    omp.target_memcpy_rect(d, host, (128,), (64, 0, 0), (0, 0, 0), (256, 7, 7), (128, 5, 5))
    omp.target_memcpy_rect(d, d, (10,), (0,), (70,))  # the same block, apart
    assert fetch(d[:10]).tolist() == list(range(6, 16))
    with pytest.raises(omp.ClauseError, match="overlap"):
        omp.target_memcpy_rect(d, d, (10,), (0,), (9,))
    with pytest.raises(omp.ClauseError, match="overlap"):
        omp.target_memcpy(d, d)
    with pytest.raises(omp.ClauseError, match="overlap"):
        omp.target_memcpy_rect(host[::-1], host)
    omp.target_memcpy_rect(host[::2], host[1::2])  # interleaved, without a common byte
    assert (host[::2] == host[1::2]).all()
    omp.target_free(d)


def pairs():
    """Return the devices between which a copy goes."""
    numbers = [*range(omp.get_num_devices()), omp.get_initial_device()]
    return itertools.product(numbers, numbers)


@pytest.mark.parametrize("ndim", range(1, 9))
def test_memcpy_rect_dimensions(runtime, ndim):
    """Boxes of one to eight dimensions, between all pairs of devices and the host, with offsets on both sides."""
    shape, other = (4, *[3] * (ndim - 1)), (*[4] * (ndim - 1), 5)
    volume, to_offsets, at_offsets = (2,) * ndim, (1,) * ndim, (1, *[0] * (ndim - 1))
    source = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    expected = np.full(other, -1, np.int32)
    expected[tuple([slice(1, 3)] * ndim)] = source[(slice(1, 3), *[slice(0, 2)] * (ndim - 1))]
    for there, here in pairs():
        dst, src = omp.target_alloc(other, np.int32, there), omp.target_alloc(shape, np.int32, here)
        omp.target_memset(dst, 255)
        omp.target_memcpy(src, source)
        omp.target_memcpy_rect(dst, src, volume, to_offsets, at_offsets, other, shape, there, here)
        assert (fetch(dst) == expected).all()
        for empty in ((0, *volume[1:]), (*volume[:-1], 0)):
            omp.target_memcpy_rect(dst, src, empty, to_offsets, at_offsets)
        assert (fetch(dst) == expected).all()
        omp.target_free(dst)
        omp.target_free(src)


@pytest.mark.parametrize("kind", ["i1", "f2", "f4", "f8", "c16", "?", "<i8", ">i4", "V3", "S5", "M8[s]", RECORD])
def test_memcpy_rect_item_sizes(sim, kind):
    """Elements of any size, records with padding among them, arrive byte for byte, with any strides."""
    dtype = np.dtype(kind)
    raw = np.random.default_rng(1).integers(0, 2, 48 * dtype.itemsize, dtype=np.uint8)
    source = raw.view(dtype).reshape(6, 8)
    d, found = omp.target_alloc((3, 8), dtype), np.zeros((3, 8), dtype)
    omp.target_memcpy_rect(d, source[::-2, ::-1])
    omp.target_memcpy_rect(found[:, ::-1], d)
    assert found.tobytes() == np.ascontiguousarray(raw.reshape(6, 8, -1)[::-2]).tobytes()
    omp.target_free(d)


def test_item_sizes_decide(runtime):
    """Differing dtypes of one item size are copied bit for bit; differing item sizes are refused; 0-d is a box too."""
    a = np.array([1.0, -2.0], np.float32)
    d = omp.target_alloc(2, np.int32)
    omp.target_memcpy_rect(d, a)
    assert (fetch(d) == a.view(np.int32)).all()
    omp.target_memcpy_rect(d[0], a[1, ...])
    assert (fetch(d) == a.view(np.int32)[1]).all()
    with pytest.raises(omp.ClauseError, match="item sizes"):
        omp.target_memcpy_rect(d, a.astype("f8"))
    omp.target_free(d)


def test_memcpy_of_nothing(runtime):
    """nbytes=0 and arrays without elements copy nothing and succeed, without arrays too; there are no ends to miss."""
    d, a = omp.target_alloc(4), np.arange(4, dtype=np.uint8)
    omp.target_memset(d, 7)
    omp.target_memcpy(d, a, nbytes=0, dst_offset=4, src_offset=4)
    omp.target_memcpy(d, a[:0])
    omp.target_memcpy(None, None, nbytes=0)
    assert omp.target_memcpy_async(d, None, nbytes=0).result() is None
    omp.target_memcpy_rect(d[:0], a[:0])
    omp.target_memcpy(np.zeros(2, "V0"), np.zeros(2, "V0"))
    assert fetch(d).tolist() == [7] * 4
    omp.target_free(d)


def test_memcpy_takes_special_arrays(sim, tmp_path):
    """Subclasses of ndarray are copied as the memory that they are: a matrix, a memmap."""
    d = omp.target_alloc((2, 3), np.float64)
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix([[1.0, 2, 3], [4, 5, 6]])
    omp.target_memcpy(d, matrix)
    mapped = np.memmap(tmp_path / "file", np.float64, "w+", shape=(2, 3))
    omp.target_memcpy_rect(mapped, d)
    assert mapped.tolist() == matrix.tolist()
    omp.target_memcpy(mapped.T, np.zeros(6))
    assert not mapped.any()
    omp.target_free(d)


def test_device_sources_may_repeat(sim):
    """A source whose elements share memory is read as often; such a destination is refused."""
    a, d = np.arange(3.0), omp.target_alloc((4, 3), np.float64)
    omp.target_memcpy_rect(d, np.broadcast_to(a, (4, 3)))
    assert (fetch(d) == a).all()
    windows = np.lib.stride_tricks.sliding_window_view(np.zeros(6), 3, writeable=True)
    with pytest.raises(omp.ClauseError, match="share memory"):
        omp.target_memcpy_rect(windows, d)
    with pytest.raises(omp.ClauseError, match="read-only"):
        omp.target_memcpy_rect(np.broadcast_to(d[0], (4, 3)), np.zeros((4, 3)))
    omp.target_free(d)


@settings(max_examples=examples(60))
@given(data=st.data())
def test_memcpy_rect_is_slice_assignment(data):
    """Whatever box is copied between whatever strides, the destination is as after NumPy's assignment of the slices."""
    ndim = data.draw(st.integers(1, 4))
    sizes = st.tuples(*[st.integers(1, 5)] * ndim)
    to_shape, at_shape = data.draw(sizes), data.draw(sizes)
    steps = [data.draw(st.tuples(*[st.sampled_from([-2, -1, 1, 2, 3])] * ndim)) for _ in range(2)]
    dtype = data.draw(st.sampled_from(["u1", "f4", "c16", "V3"]))
    arrays, views = [], []
    for shape, step in zip((to_shape, at_shape), steps, strict=True):
        base = np.arange(np.prod([n * abs(k) for n, k in zip(shape, step, strict=True)]) * np.dtype(dtype).itemsize)
        base = base.astype("u1").view(dtype).reshape([n * abs(k) for n, k in zip(shape, step, strict=True)])
        arrays.append(base)
        views.append(base[tuple(slice(None, None, k) for k in step)])
    low_to = tuple(data.draw(st.integers(0, n)) for n in to_shape)
    low_at = tuple(data.draw(st.integers(0, n)) for n in at_shape)
    left = [min(t - a, s - b) for t, a, s, b in zip(to_shape, low_to, at_shape, low_at, strict=True)]
    volume = tuple(data.draw(st.integers(0, n)) for n in left)
    expected = arrays[0].copy()
    box = tuple(slice(a, a + v) for a, v in zip(low_to, volume, strict=True))
    expected_view = expected[tuple(slice(None, None, k) for k in steps[0])]
    expected_view[box] = views[1][tuple(slice(b, b + v) for b, v in zip(low_at, volume, strict=True))]
    with omp.Runtime("sim:1", check=True, num_threads=0):
        d = omp.target_alloc(at_shape, dtype)
        omp.target_memcpy_rect(d, views[1])
        omp.target_memcpy_rect(views[0], d, volume, low_to, low_at)
        omp.target_free(d)
    assert arrays[0].tobytes() == expected.tobytes()


# -- bad input --------------------------------------------------------------------------------------
def calls_that_mean_nothing(host, d, frozen, objects):
    """Return calls with bad input, by a word for each."""
    n = omp.get_num_devices()
    return {
        "memset: value above a byte": lambda: omp.target_memset(d, 256),
        "memset: value below a byte": lambda: omp.target_memset(d, -129),
        "memset: value no integer": lambda: omp.target_memset(d, 1.0),
        "memset: more than the array": lambda: omp.target_memset(d, 0, nbytes=65),
        "memset: more than the view": lambda: omp.target_memset(d[:4], 0, nbytes=33),
        "memset: negative": lambda: omp.target_memset(d, 0, nbytes=-1),
        "memset: no number of bytes": lambda: omp.target_memset(d, 0, nbytes="4"),
        "memset: other device": lambda: omp.target_memset(d, 0, device=n),
        "memset: no such device": lambda: omp.target_memset(d, 0, device=n + 1),
        "memset: host array on a device": lambda: omp.target_memset(host, 0, device=0),
        "memset: not contiguous": lambda: omp.target_memset(d[::2], 0),
        "memset: read-only": lambda: omp.target_memset(frozen, 0),
        "memset: objects": lambda: omp.target_memset(objects, 0),
        "memset: a list": lambda: omp.target_memset([1, 2], 0),
        "memset: depend": lambda: omp.target_memset_async(d, 0, depend=[to(host)]),
        "memset: symbolic depend": lambda: omp.target_memset_async(d, 0, depend=[in_("d")]),
        "memcpy: bytes no integer": lambda: omp.target_memcpy(d, host, nbytes=8.0),
        "memcpy: offset no integer": lambda: omp.target_memcpy(d, host, dst_offset=None),
        "memcpy: negative offset": lambda: omp.target_memcpy(d, host, src_offset=-8),
        "memcpy: offset beyond": lambda: omp.target_memcpy(d, host, src_offset=65),
        "memcpy: bytes beyond": lambda: omp.target_memcpy(d, host, nbytes=60, dst_offset=8),
        "memcpy: objects": lambda: omp.target_memcpy(d, objects),
        "memcpy: to objects": lambda: omp.target_memcpy(objects, d),
        "memcpy: device is a word": lambda: omp.target_memcpy(d, host, dst_device="0"),
        "memcpy: device is a bool": lambda: omp.target_memcpy(d, host, src_device=True),
        "memcpy: other device": lambda: omp.target_memcpy(d, host, dst_device=n),
        "memcpy: read-only": lambda: omp.target_memcpy(frozen, d),
        "memcpy: one None": lambda: omp.target_memcpy(None, d),
        "memcpy: a scalar": lambda: omp.target_memcpy(d, np.float64(1)),
        "rect: one None": lambda: omp.target_memcpy_rect(None, d),
        "rect: objects": lambda: omp.target_memcpy_rect(objects, d),
        "rect: read-only": lambda: omp.target_memcpy_rect(frozen, d),
        "rect: volume beyond": lambda: omp.target_memcpy_rect(d, host, (9,)),
        "rect: volume negative": lambda: omp.target_memcpy_rect(d, host, (-1,)),
        "rect: volume no integers": lambda: omp.target_memcpy_rect(d, host, (1.5,)),
        "rect: volume a number": lambda: omp.target_memcpy_rect(d, host, 4),
        "rect: no dimensions": lambda: omp.target_memcpy_rect(d, host, ()),
        "rect: offset and volume beyond": lambda: omp.target_memcpy_rect(d, host, (4,), (5,)),
        "rect: offset alone beyond": lambda: omp.target_memcpy_rect(d, host, None, (9,)),
        "rect: innermost beyond": lambda: omp.target_memcpy_rect(d, host, (2, 3), (0, 2), (0, 0), (2, 4), (2, 4)),
        "rect: dimensions beyond": lambda: omp.target_memcpy_rect(d, host, (2,), None, None, (9,)),
        "rect: too few offsets": lambda: omp.target_memcpy_rect(d, host, (2, 2), (0,), None, (4, 2), (4, 2)),
        "rect: differing dimensions": lambda: omp.target_memcpy_rect(d, host.reshape(2, 4)),
        "rect: reshaped strides": lambda: omp.target_memcpy_rect(d[::2], host, (2, 2), None, None, (2, 2), (4, 2)),
        "rect: device": lambda: omp.target_memcpy_rect(d, host, src_device=0),
        "present: a list": lambda: omp.target_is_present([1]),
        "present: no such device": lambda: omp.target_is_present(host, n + 1),
        "present: invalid device": lambda: omp.target_is_present(host, omp.invalid_device),
        "present: objects": lambda: omp.target_is_present(objects),
        "accessible: a word": lambda: omp.target_is_accessible("host"),
        "accessible: no such device": lambda: omp.target_is_accessible(host, n + 1),
        "mapped: a number": lambda: omp.get_mapped_ptr(3),
        "mapped: device is a word": lambda: omp.get_mapped_ptr(host, "0"),
        "alloc: negative": lambda: omp.target_alloc((2, -1)),
        "alloc: no shape": lambda: omp.target_alloc(None),
        "alloc: no integer": lambda: omp.target_alloc(2.5),
        "alloc: no dtype": lambda: omp.target_alloc(2, "nonsense"),
        "alloc: objects": lambda: omp.target_alloc(2, "O"),
        "alloc: no such device": lambda: omp.target_alloc(2, device=n + 1),
        "alloc: device is a word": lambda: omp.target_alloc(2, device="0"),
        "default device: no number": lambda: omp.set_default_device(None),
        "default device: a word": lambda: omp.set_default_device("1"),
        "device: a float": lambda: omp.device(0.0),
        "stream: a word": lambda: omp.stream(0, "0"),
    }


def test_bad_input(runtime):
    """What the routines of C answer with a code, or not at all, is an error at the call, and creates nothing."""
    host, d = np.arange(8), omp.target_alloc(8, np.int64)
    omp.target_memset(d, 3)
    frozen = np.arange(8)
    frozen.flags.writeable = False
    for what, call in calls_that_mean_nothing(host, d, frozen, np.array([None] * 8)).items():
        with pytest.raises(omp.DirectiveError):
            pytest.fail(f"{what}: {call()!r} was returned")
    assert (fetch(d).view("u1") == 3).all()
    assert host.tolist() == list(range(8))
    omp.target_free(d)


def test_devices_of_two_kinds_do_not_copy_to_each_other(sim):
    """An array of another runtime is refused, as is one of no runtime."""
    d = omp.target_alloc(4)
    with omp.Runtime("sim:1"):
        other = omp.target_alloc(4)
        with pytest.raises(omp.ClauseError, match="device of this runtime"):
            omp.target_memcpy(other, d)
        with pytest.raises(omp.UsageError):
            omp.target_free(d)
        assert not omp.target_is_accessible(d)
        omp.target_free(other)
    omp.target_free(d)


def test_memory_that_there_is_not(runtime):
    """More bytes than the device, or any machine, has are a DeviceMemoryError that says how many."""
    for asked, device in ((1 << 50, 0), (1 << 70, 0), (1 << 60, omp.initial_device), (1 << 70, omp.initial_device)):
        with pytest.raises(omp.DeviceMemoryError) as caught:
            omp.target_alloc(asked, device=device)
        assert caught.value.asked_nbytes == asked


def test_free(runtime):
    """What target_alloc returned is freed once, the host's as well; nothing else is; None is ignored."""
    for number in (0, omp.initial_device):
        d = omp.target_alloc(4, device=number)
        with pytest.raises(omp.UsageError):
            omp.target_free(d[:2])
        omp.target_free(d)
        with pytest.raises(omp.UsageError):
            omp.target_free(d)
    for thing in (np.zeros(3), [1], "d"):
        with pytest.raises(omp.UsageError):
            omp.target_free(thing)
    omp.target_free(None)


def test_routines_in_target_bodies(sim):
    """A routine inside of a target body is a UsageError."""
    a = np.zeros(3)
    for call in (
        lambda: omp.target_memset(a, 0),
        lambda: omp.target_memcpy(a, np.ones(3)),
        lambda: omp.target_is_present(a),
        lambda: omp.get_mapped_ptr(a),
        lambda: omp.target_is_accessible(a),
        lambda: omp.target_alloc(3),
        lambda: omp.set_default_device(0),
    ):
        with pytest.raises(omp.UsageError, match="inside"):
            omp.target(lambda call=call: call())()
    assert not a.any()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["S5", "M8[s]", ">i4"])
def test_dtypes_that_cupy_has_not(kind):
    """They are an UnsupportedError at the allocation; their bytes can be copied."""
    pytest.importorskip("cupy")
    with omp.Runtime("cuda", check=True):
        with pytest.raises(omp.UnsupportedError, match="CuPy"):
            omp.target_alloc(4, kind)
        host = np.arange(32, dtype=np.uint8)[: 4 * np.dtype(kind).itemsize].view(kind)
        d = omp.target_alloc(host.nbytes)
        omp.target_memcpy(d, host)
        assert fetch(d).tobytes() == host.tobytes()
        omp.target_free(d)
