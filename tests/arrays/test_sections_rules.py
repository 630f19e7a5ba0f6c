"""Sections, places and copies against NumPy, over random strided views of one buffer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from offload.arrays.boxes import collapse
from offload.arrays.sections import HOST, c_strides, covers, locate, locate_nbytes, overlaps, section_of

BUFFER = np.arange(512, dtype="u2").view("u1")
BASE = BUFFER.ctypes.data


@st.composite
def strided(draw, itemsizes=(1, 2, 4), *, max_ndim=4):
    """Return any strided view, made by hand: overlapping, interleaving, repeated, reversed."""
    itemsize = draw(st.sampled_from(itemsizes))
    ndim = draw(st.integers(0, max_ndim))
    shape = tuple(draw(st.lists(st.integers(0 if draw(st.booleans()) else 1, 5), min_size=ndim, max_size=ndim)))
    strides = tuple(draw(st.lists(st.integers(-40, 40), min_size=ndim, max_size=ndim)))
    low = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True) if n)
    high = sum(max(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True) if n) + itemsize
    offset = draw(st.integers(-low, len(BUFFER) - high))
    return np.ndarray(shape, f"V{itemsize}", BUFFER, offset, strides)


@st.composite
def sliced(draw, array=None):
    """Return a view that slicing, transposing and repeating make: rows never interleave."""
    if array is None:
        itemsize = draw(st.sampled_from([1, 2, 4]))
        shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
        assume(np.prod(shape) * itemsize <= len(BUFFER) // 2)
        first = draw(st.integers(0, 3)) * itemsize
        array = np.ndarray(shape, f"V{itemsize}", BUFFER, first)
    cuts = []
    for n in array.shape:
        step = draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        low = draw(st.integers(0, n - 1))
        high = draw(st.integers(low + 1, n))
        cuts.append(slice(low, high, step) if step > 0 else slice(high - 1, low - 1 if low else None, step))
    view = array[tuple(cuts)]
    view = view.transpose(draw(st.permutations(range(view.ndim))))
    if draw(st.booleans()):
        view = np.broadcast_to(view, (draw(st.integers(1, 3)), *view.shape))
    return view


def address(array):
    return array.__array_interface__["data"][0]


def section(array):
    return section_of(HOST, address(array), array.shape, array.strides, array.itemsize)


def elements(array):
    """Return the address of each element, in C order of the array."""
    addresses = np.full(array.shape, address(array), dtype=np.int64)
    for axis, stride in enumerate(array.strides):
        index = np.arange(array.shape[axis]).reshape([-1 if k == axis else 1 for k in range(array.ndim)])
        addresses = addresses + index * stride
    return addresses


def bytes_of(array):
    return {int(first) + k for first in elements(array).ravel() for k in range(array.itemsize)}


views = st.one_of(strided(), sliced())


@given(views)
def test_section_covers_exactly_its_bytes(view):
    """A section, expanded, is the set of the view's bytes, in canonical form."""
    s = section(view)
    box = np.ndarray(
        (*[n for n, _ in s.dims], s.run_nbytes),
        "u1",
        BUFFER,
        s.address - BASE if view.size else 0,
        (*[stride for _, stride in s.dims], 1),
    )
    expected = bytes_of(view)
    assert bytes_of(box) == expected
    assert all(n > 1 for n, _ in s.dims)
    assert all(stride > s.run_nbytes for _, stride in s.dims)
    assert [stride for _, stride in s.dims] == sorted({stride for _, stride in s.dims}, reverse=True)
    if expected:
        assert (s.address, s.end) == (min(expected), max(expected) + 1)
    if s.is_nested:
        assert s.nbytes == len(expected)


@given(sliced(), sliced())
def test_equal_sections_are_equal_bytes(a, b):
    """Two sections without interleaving rows are equal if and only if their bytes are."""
    assert section(a).is_nested
    assert (section(a) == section(b)) == (bytes_of(a) == bytes_of(b))


@given(strided(), strided())
def test_nested_sections_are_unique(a, b):
    """What was made by hand has one form too, as long as its rows do not interleave."""
    sa, sb = section(a), section(b)
    assume(a.size and b.size and sa.is_nested and sb.is_nested)
    shifted = sb._replace(address=sa.address)
    same = {byte - sa.address for byte in bytes_of(a)} == {byte - sb.address for byte in bytes_of(b)}
    assert (sa == shifted) == same


@given(views, views)
def test_overlaps_is_numpy_shares_memory(a, b):
    """Two sections overlap if and only if NumPy's exact search says that the arrays share memory."""
    expected = np.shares_memory(a, b)
    assert overlaps(section(a), section(b)) == expected
    assert overlaps(section(b), section(a)) == expected


@given(views, views)
def test_covers(outer, inner):
    """Covers is never wrong, and exact where the outer rows do not interleave."""
    expected = bytes_of(inner) <= bytes_of(outer)
    actual = covers(section(outer), section(inner))
    assert actual <= expected
    if section(outer).is_nested:
        assert actual == expected


@given(st.data())
def test_covers_slices_of_slices(data):
    """A slice of a slice is covered by it."""
    outer = data.draw(sliced())
    assert covers(section(outer), section(data.draw(sliced(outer))))


@given(st.data())
def test_covers_where_inner_axes_merge(data):
    """Covers is exact where steps of the inner view divide the pitch of the outer rows, so that its axes merge."""
    shape = tuple(data.draw(st.lists(st.sampled_from([2, 3, 4, 6]), min_size=2, max_size=3)))
    array = np.ndarray(shape, f"V{data.draw(st.sampled_from([1, 2]))}", BUFFER)
    pitch = array.strides[-2]
    outer = array[..., : data.draw(st.integers(1, shape[-1]))]
    step = data.draw(st.sampled_from([n for n in range(1, 2 * pitch + 1) if pitch % n == 0 or n % pitch == 0]))
    first = data.draw(st.integers(0, array.nbytes - 1))
    itemsize = data.draw(st.integers(1, min(2, array.nbytes - first)))
    count = data.draw(st.integers(1, (array.nbytes - first - itemsize) // step + 1))
    flat = np.ndarray((count,), f"V{itemsize}", BUFFER, first, (step,))
    for inner in (flat, data.draw(sliced(outer)), data.draw(sliced(array))):
        assert covers(section(outer), section(inner)) == (bytes_of(inner) <= bytes_of(outer))


@given(views, st.data())
def test_locate_is_never_wrong(outer, data):
    """Whatever place is returned has every element of the view."""
    inner = data.draw(strided((outer.itemsize,), max_ndim=3))
    place = locate(outer.shape, outer.strides, address(outer), address(inner), inner.shape, inner.strides)
    if place is not None:
        check_place(outer, inner, place)


@given(sliced(), st.data())
def test_locate_is_complete_for_slices(outer, data):
    """A slice of an array has a place; a slice of the buffer has one if and only if its elements are in the array."""
    inner = data.draw(sliced(outer))
    place = locate(outer.shape, outer.strides, address(outer), address(inner), inner.shape, inner.strides)
    assert place is not None
    check_place(outer, inner, place)


@given(sliced(), st.data())
def test_locate_refuses_only_what_has_no_place(outer, data):
    """A view is refused only if an element is missing, or no strides lead through its places."""
    inner = data.draw(strided((outer.itemsize,), max_ndim=2))
    if locate(outer.shape, outer.strides, address(outer), address(inner), inner.shape, inner.strides) is not None:
        return
    slots = {}
    for slot, element in enumerate(elements(outer).ravel()):
        slots.setdefault(int(element), slot)
    wanted = [int(element) for element in elements(inner).ravel()]
    if not wanted or not slots.keys() >= set(wanted):
        return
    places = np.array([slots[element] for element in wanted]).reshape(inner.shape)
    steps = [np.unique(np.diff(places, axis=axis)) for axis in range(inner.ndim)]
    assert any(len(step) > 1 for step in steps)


def check_place(outer, inner, place):
    """Hold a place against the addresses of the elements."""
    offset, strides = place
    packed = elements(outer).ravel()
    index = np.full(inner.shape, offset)
    for axis, stride in enumerate(strides):
        steps = np.arange(inner.shape[axis]).reshape([-1 if k == axis else 1 for k in range(inner.ndim)])
        index = index + steps * stride
    assert index.min() >= 0
    assert (packed[index] == elements(inner)).all()


@given(sliced(), st.data())
def test_locate_nbytes(outer, data):
    """The place in a packed section has the bytes of the view, whatever its element size."""
    inner = data.draw(st.one_of(sliced(outer), strided((1, 2))))
    s = section(outer)
    place = locate_nbytes(s, address(inner), inner.shape, inner.strides, inner.itemsize)
    if place is None:
        assert not covers(s, section(inner)) or not inner.size
        return
    rows = np.ndarray(
        (*[n for n, _ in s.dims], s.run_nbytes), "u1", BUFFER, s.address - BASE, (*[stride for _, stride in s.dims], 1)
    )
    packed = np.ascontiguousarray(rows).ravel()
    copy = np.ndarray(inner.shape, inner.dtype, packed, place[0], place[1])
    assert copy.tobytes() == inner.tobytes()


@given(st.lists(st.integers(0, 5), max_size=4), st.integers(1, 8))
def test_c_strides(shape, itemsize):
    """The strides are NumPy's own, for arrays with elements."""
    assume(0 not in shape)
    assert c_strides(shape, itemsize) == np.empty(shape, f"V{itemsize}").strides


@st.composite
def layouts(draw, shape, itemsize):
    """Return (buffer size, offset, strides) of an array whose elements do not overlap."""
    strides = [0] * len(shape)
    extent = itemsize
    for axis in draw(st.permutations(range(len(shape)))):
        stride = extent + draw(st.sampled_from([0, 0, itemsize, 3 * itemsize]))
        strides[axis] = stride * draw(st.sampled_from([1, 1, -1]))
        extent = stride * max(shape[axis], 1)
    offset = sum((1 - n) * s for n, s in zip(shape, strides, strict=True) if s < 0 and n)
    return extent, offset, tuple(strides)


@given(st.lists(st.integers(0, 4), max_size=4), st.sampled_from([1, 2, 4]), st.booleans(), st.data())
def test_collapse_copies_what_numpy_copies(shape, itemsize, is_repeated, data):
    """Carried out row by row, a box changes the destination exactly as NumPy's assignment does."""
    size, offset, strides = data.draw(layouts(shape, itemsize))
    src_size, src_offset, src_strides = data.draw(layouts(shape, itemsize))
    if is_repeated and shape and src_strides[0] > 0:
        src_strides = (0, *src_strides[1:])
    src_bytes = (np.arange(src_size) % 251 + 1).astype("u1")
    src = np.ndarray(shape, f"V{itemsize}", src_bytes, src_offset, src_strides)
    expected, actual = np.zeros(size, "u1"), np.zeros(size, "u1")
    np.ndarray(shape, f"V{itemsize}", expected, offset, strides)[...] = src
    box = collapse(shape, strides, src_strides, itemsize)
    dims = [n for n, _, _ in box.dims]
    for index in np.ndindex(*dims) if box.row_nbytes else ():
        to = offset + box.dst_offset_nbytes + sum(i * s for i, (_, s, _) in zip(index, box.dims, strict=True))
        at = src_offset + box.src_offset_nbytes + sum(i * s for i, (_, _, s) in zip(index, box.dims, strict=True))
        actual[to : to + box.row_nbytes] = src_bytes[at : at + box.row_nbytes]
    assert (actual == expected).all()
    assert box.nbytes == src.nbytes
    assert [abs(s) for _, s, _ in box.dims] == sorted([abs(s) for _, s, _ in box.dims], reverse=True)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_tiles_tell_each_other_apart(n):
    """Of all tiles of one matrix, two overlap if and only if they are the same one."""
    matrix = np.ndarray((n * 4, n * 4), "u1", np.empty(n * n * 16, "u1"))
    tiles = [section(matrix[i : i + 4, j : j + 4]) for i in range(0, n * 4, 4) for j in range(0, n * 4, 4)]
    assert all(overlaps(p, q) == (p is q) for p in tiles for q in tiles)
