"""Device memory routines: LLVM 2.2, libgomp target-12, OpenMP_VV group H."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, out, to, tofrom

N = 64


def test_omp_target_memcpy_rect_async1(streams):
    """offload/test/api/omp_target_memcpy_rect_async1.c: a box of {1, 2, 3} between arrays of other dimensions."""
    assert omp.target_memcpy_rect(None, None) >= 3
    src, dst = np.arange(1, 25, dtype=np.int32), np.zeros(60, np.int32)
    dsrc, ddst = omp.target_alloc(24, np.int32), omp.target_alloc(60, np.int32)
    expected = [1, 2, 3, 0, 0, 5, 6, 7] + [0] * 52
    everything = ("all",)
    omp.target_memcpy_async(dsrc, src, depend=[inout(everything)])
    omp.target_memcpy_async(ddst, dst, depend=[inout(everything)])
    for target, source in ((ddst, dsrc), (dst, dsrc), (ddst, src)):
        omp.target_memcpy_rect_async(
            target,
            source,
            volume=(1, 2, 3),
            dst_offsets=(0, 0, 0),
            src_offsets=(0, 0, 0),
            dst_dimensions=(3, 4, 5),
            src_dimensions=(2, 3, 4),
            depend=[inout(everything)],
        )
    found = np.zeros(60, np.int32)
    omp.target_memcpy_async(found, ddst, depend=[inout(everything)])
    streams.go()
    omp.taskwait()
    assert found.tolist() == expected
    assert dst.tolist() == expected
    omp.target_free(dsrc)
    omp.target_free(ddst)


def test_omp_target_memcpy_async2(streams):
    """offload/test/api/omp_target_memcpy_async2.c: four overlapping writers, ordered by depend, leave four bands."""
    base = np.arange(128, dtype=np.int32)
    d = omp.target_alloc(128, np.int32)
    for number, count in enumerate((128, 64, 32, 16)):
        omp.target_memcpy_async(d, base + 4 - number, nbytes=4 * count, depend=[inout(d)])
    found = np.zeros(128, np.int32)
    omp.target_memcpy_async(found, d, depend=[in_(d), out(found)])
    streams.go()
    omp.taskwait(depend=[in_(found)])
    bands = np.repeat([1, 2, 3, 4], [16, 16, 32, 64])
    assert (found == base + bands).all()
    omp.target_free(d)


def test_target_memcpy_async_depend(streams):
    """5.1/target/test_target_memcpy_async_depobj.c: copy in, region, copy out, chained by dependences; by each kind."""
    mem, d = np.arange(N, dtype=float), omp.target_alloc(N, np.float64)

    def double(d):
        assert not omp.is_initial_device()
        d *= 2

    omp.target_memcpy_async(d, mem, depend=[inout(d), in_(mem)])
    streams.go()
    omp.taskwait(depend=[in_(d)])
    omp.target(nowait=True, depend=[inout(d)])(double)(d)
    omp.target_memcpy_async(mem, d, depend=[in_(d), out(mem)])
    omp.taskwait(depend=[in_(mem)])
    assert (mem == 2 * np.arange(N)).all()
    omp.target_free(d)


def test_target_memcpy_rect_async_depend(streams):
    """5.1/target/test_target_memcpy_rect_async_depobj.c: 5 by 10 doubles, there and back, doubled."""
    mem, d = np.arange(50.0).reshape(5, 10), omp.target_alloc((5, 10), np.float64)
    found = np.zeros((5, 10))
    omp.target_memcpy_rect_async(d, mem, (5, 10), (0, 0), (0, 0), (5, 10), (5, 10), depend=[out(d)])
    omp.target(nowait=True, depend=[inout(d)])(lambda d: d.__imul__(2) is None)(d)
    omp.target_memcpy_rect_async(found, d, depend=[in_(d)])
    streams.go()
    omp.taskwait()
    assert (found == 2 * mem).all()
    omp.target_free(d)


def test_target_12(runtime):
    """libgomp/…/target-12.c: 3-D boxes with offsets, on one device, between arrays of other shapes, and 1-D."""
    src = np.arange(10 * 8 * 6, dtype=np.int64).reshape(10, 8, 6)
    dsrc, ddst = omp.target_alloc(src.shape, np.int64), omp.target_alloc((12, 9, 7), np.int64)
    omp.target_memcpy(dsrc, src)
    blank = np.full((12, 9, 7), -1)
    omp.target_memcpy(ddst, blank)
    omp.target_memcpy_rect(ddst, dsrc, (6, 3, 2), (1, 2, 3), (3, 0, 1))
    found = np.zeros((12, 9, 7), np.int64)
    omp.target_memcpy_rect(found, ddst)
    expected = blank.copy()
    expected[1:7, 2:5, 3:5] = src[3:9, 0:3, 1:3]
    assert (found == expected).all()
    omp.target_free(dsrc)
    omp.target_free(ddst)


def test_offsets_are_bytes(runtime):
    """target_memcpy counts bytes: nbytes and offsets; without nbytes the smaller remainder is copied."""
    host, d = np.arange(16, dtype=np.int32), omp.target_alloc(16, np.int32)
    omp.target_memcpy(d, np.zeros(16, np.int32))
    omp.target_memcpy(d, host, nbytes=8, dst_offset=4, src_offset=12)
    found = np.full(16, -1, np.int32)
    omp.target_memcpy(found, d)
    assert found.tolist() == [0, 3, 4, *[0] * 13]
    omp.target_memcpy(found[:12], d, dst_offset=40, src_offset=56)
    assert found[10:12].tolist() == [0, 0]
    omp.target_memcpy(found, d, dst_offset=56, src_offset=4)
    assert found[14:].tolist() == [3, 4]
    omp.target_memcpy(found, d, nbytes=0)
    omp.target_free(d)


@pytest.mark.parametrize("copy", [omp.target_memcpy, omp.target_memcpy_async])
@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_the_smaller_remainder(runtime, copy, dtype):
    """Without nbytes as many bytes are copied as are left in the array that has less left, and no others change."""
    host, d = np.arange(1, N + 1, dtype=np.int64), omp.target_alloc(N + (dtype is np.float64), dtype)
    rng = np.random.default_rng(9)
    for dst_offset, src_offset in ((0, 0), (8, 0), (0, 8), (8, 24), (d.nbytes, 0), (0, host.nbytes), (d.nbytes - 1, 3)):
        n = min(d.nbytes - dst_offset, host.nbytes - src_offset)
        before = rng.integers(0, 256, d.nbytes, np.uint8)
        omp.target_memcpy(d, before)
        copy(d, host, dst_offset=dst_offset, src_offset=src_offset)
        omp.taskwait()
        found, expected = np.zeros(d.nbytes, np.uint8), before.copy()
        omp.target_memcpy(found, d)
        expected[dst_offset : dst_offset + n] = host.view(np.uint8)[src_offset : src_offset + n]
        assert (found == expected).all()
        back, expected = host.copy(), host.copy()
        copy(back, d, dst_offset=src_offset, src_offset=dst_offset)  # the other way round
        omp.taskwait()
        expected.view(np.uint8)[src_offset : src_offset + n] = found[dst_offset : dst_offset + n]
        assert (back == expected).all()
    omp.target_free(d)


def test_equal_lengths_of_two_dtypes(runtime):
    """Bytes are copied as they are between arrays of two dtypes that are as long, such as a buffer of target_alloc."""
    host, d, found = np.arange(N, dtype=np.float64), omp.target_alloc(8 * N), np.zeros(2 * N, np.float32)
    omp.target_memcpy(d, host)
    omp.target_memcpy(found, d)
    assert (found.view(np.float64) == host).all()
    omp.target_free(d)


@pytest.mark.parametrize("dtype", ["?", "f2", "f4", "c16", "u1", "i8"])
@pytest.mark.parametrize("copy", [omp.target_memcpy, omp.target_memcpy_rect])
def test_whole_arrays_bit_by_bit(runtime, copy, dtype):
    """Arrays of one shape and dtype are copied whole, and every bit of them: no number is looked at."""
    raw = np.random.default_rng(7).integers(0, 256, (4, 8, 16), np.uint8)
    host = raw.view(dtype)
    d, e, found = omp.target_alloc(host.shape, dtype), omp.target_alloc(host.shape, dtype), np.zeros_like(host)
    copy(d, host)
    copy(e, d)
    copy(found, e)
    assert (found.view(np.uint8) == raw).all()
    again = np.zeros_like(host)
    copy(again, host)
    assert (again.view(np.uint8) == raw).all()
    omp.target_free(d)
    omp.target_free(e)


@pytest.mark.parametrize("dtype", ["?", "f2", "f4", "c16", "u1", "i8"])
def test_whole_device_arrays_and_bytes_of_the_host(runtime, dtype):
    """A whole device array takes and gives any bytes of the host, wherever they begin, bit by bit."""
    raw = np.random.default_rng(8).integers(0, 256, 3 + 16 * 32, np.uint8)
    d = omp.target_alloc((4, 16 * 8 // np.dtype(dtype).itemsize), dtype)
    found, same = np.zeros(3 + 16 * 32, np.uint8), np.zeros((16, 4), np.int64)
    omp.target_memcpy(d, raw, nbytes=d.nbytes, src_offset=3)
    omp.target_memcpy(found, d, nbytes=d.nbytes, dst_offset=3)
    assert (found[3:] == raw[3:]).all()
    omp.target_memcpy(same, d)  # another shape and dtype, as many bytes
    assert (same.view(np.uint8).ravel() == raw[3:]).all()
    same[...] = 0
    omp.target_memcpy(same.T, d)  # in the order of the memory
    assert (same.view(np.uint8).ravel() == raw[3:]).all()
    for bad in (raw.view(), raw):
        bad.flags.writeable = False
        with pytest.raises(omp.ClauseError, match="read-only"):
            omp.target_memcpy(bad, d, nbytes=d.nbytes, dst_offset=3)
    omp.target_free(d)


def test_orders_of_memory(runtime):
    """target_memcpy goes by the order of the memory, also where shapes and dtypes are the same and orders are not."""
    c = np.arange(12, dtype=np.int32).reshape(3, 4)
    f, d, found = np.asfortranarray(c), omp.target_alloc((3, 4), np.int32), np.zeros((3, 4), np.int32)
    for host in (c, f):
        omp.target_memcpy(d, host)
        omp.target_memcpy(found, d)
        assert found.ravel().tolist() == host.ravel("K").tolist()
        omp.target_memcpy_async(found.T, d)  # from one C-ordered array to the transpose of another
        omp.taskwait()
        assert found.ravel().tolist() == host.ravel("K").tolist()
    omp.target_free(d)


def test_whole_arrays_are_checked(runtime):
    """What is copied whole is refused as what is copied in part: read-only, onto itself, freed, an offset of 0.0."""
    host, d = np.arange(8.0), omp.target_alloc(8, np.float64)
    fixed = host.copy()
    fixed.flags.writeable = False
    omp.target_memcpy(d, fixed)
    for copy in (omp.target_memcpy, omp.target_memcpy_rect, omp.target_memcpy_async, omp.target_memcpy_rect_async):
        for to_, at, message in (
            (fixed, d, "read-only"),
            (d, d, "overlap"),
            (host, host, "overlap"),
            (d[:4], d[2:6], "overlap"),
        ):
            with pytest.raises(omp.ClauseError, match=message):
                copy(to_, at)
    with pytest.raises(omp.ClauseError, match="dst_offset"):
        omp.target_memcpy(d, host, dst_offset=0.0)
    with pytest.raises(omp.ClauseError, match="Python objects"):
        omp.target_memcpy(d, host.astype(object))
    omp.target_free(d)
    for copy in (omp.target_memcpy, omp.target_memcpy_rect):
        with pytest.raises(omp.RegionClosedError):
            copy(d, host)
        with pytest.raises(omp.RegionClosedError):
            copy(host, d)


def test_between_all_pairs(runtime):
    """Any pair of host and devices can be copied between, the same device included."""
    host = np.arange(N)
    for a in range(omp.get_num_devices()):
        for b in range(omp.get_num_devices()):
            first, second = omp.target_alloc(N, host.dtype, a), omp.target_alloc(N, host.dtype, b)
            found = np.zeros_like(host)
            omp.target_memcpy(first, host, dst_device=a, src_device=-1)
            omp.target_memcpy(second, first, dst_device=b, src_device=a)
            omp.target_memcpy(found, second)
            assert (found == host).all()
            omp.target_free(first)
            omp.target_free(second)
    found = np.zeros_like(host)
    omp.target_memcpy(found, host)
    assert (found == host).all()


def test_strided_boxes(streams):
    """Rectangular copies take any strides on both sides, and touch nothing else."""
    a = np.arange(6 * 8 * 10, dtype=np.float32).reshape(6, 8, 10)
    d = omp.target_alloc((3, 8, 4), np.float32)
    found = np.zeros((6, 8, 10), np.float32)
    omp.target_memcpy_rect_async(d, a[::2, :, 3:7], depend=[out(d)])
    omp.target_memcpy_rect_async(found[::2, ::-1, 3:7], d, depend=[in_(d)])
    streams.go()
    omp.taskwait()
    expected = np.zeros_like(a)
    expected[::2, ::-1, 3:7] = a[::2, :, 3:7]
    assert (found == expected).all()
    omp.target_free(d)


def test_target_alloc_keeps_the_default_device(runtime):
    """4.5/application_kernels/omp_default_device.c: target_alloc does not change the default device."""
    last = omp.get_num_devices() - 1
    before = omp.get_default_device()
    d = omp.target_alloc(4, device=last)
    assert omp.get_default_device() == before
    omp.target_free(d)
    omp.target_free(None)


def test_arguments_are_checked(runtime):
    """What the C routines answer with a code raises here, at the call, and creates nothing."""
    host, d = np.arange(8), omp.target_alloc(8, np.int64)
    n = omp.get_num_devices()
    other = np.arange(8)
    other.flags.writeable = False
    for call in (
        lambda: omp.target_memcpy(d, host, nbytes=65),
        lambda: omp.target_memcpy(d, host, nbytes=-1),
        lambda: omp.target_memcpy(d, host, dst_offset=65),
        lambda: omp.target_memcpy(d, host[::2]),
        lambda: omp.target_memcpy(other, d),
        lambda: omp.target_memcpy(host[:4], host[2:6]),
        lambda: omp.target_memcpy(d, host, dst_device=n),
        lambda: omp.target_memcpy(d, None),
        lambda: omp.target_memcpy(d, [1, 2]),
        lambda: omp.target_memcpy_rect(d, None),
        lambda: omp.target_memcpy_rect_async(d, host, (9,)),
        lambda: omp.target_memcpy_rect_async(d, host, (4,), (6,)),
        lambda: omp.target_memcpy_rect_async(d, host, (4, 4)),
        lambda: omp.target_memcpy_rect(d, host.astype("i4")),
        lambda: omp.target_alloc(-1),
        lambda: omp.target_alloc(4, object),
        lambda: omp.target_memcpy_async(d, host, depend=[in_("host")]),
        lambda: omp.target_memcpy_async(d, host, depend=[to(host)]),
    ):
        with pytest.raises(omp.DirectiveError):
            call()
    omp.target_free(d)
    with pytest.raises(omp.UsageError):
        omp.target_free(d)
    omp.target(map=[tofrom("host")])(lambda host: None)(host)
