"""Boxes of views against the elements that NumPy finds in them."""

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.data.parts import box_of
from tests.data.test_boxes_rules import elements
from tests.profiles import examples

BATCH = 20
"""Views of one example."""


class Laid:
    """An array as a list item describes it."""

    def __init__(self, array):
        self.address = array.__array_interface__["data"][0]
        self.shape, self.strides, self.itemsize = array.shape, array.strides, array.itemsize


def a_view(rng, array):
    """Return a view by slices of any step, at times with dimensions in another order, or an index."""
    index = []
    for extent in array.shape:
        low, high = rng.randint(0, extent), rng.randint(0, extent)
        match rng.randrange(4):
            case 0:
                index.append(slice(None))
            case 1 if extent:
                index.append(rng.randrange(extent))
            case 2:
                index.append(slice(high, low, -rng.randint(1, 3)) if high > low else slice(low, high + 1))
            case _:
                index.append(slice(low, max(low + 1, high), rng.randint(1, 3)))
    view = array[(..., *index)]
    return view.transpose(rng.sample(range(view.ndim), view.ndim)) if rng.random() < 0.5 else view


def an_array(rng):
    """Return an array, at times in Fortran's order, with gaps, or turned round; its elements are their places."""
    shape = tuple(rng.randint(1, 5) for _ in range(rng.randint(0, 3)))
    whole = np.zeros([2 * n for n in shape], np.int64, order=rng.choice("CF"))
    array = whole[(..., *(slice(n) for n in shape))] if rng.random() < 0.5 else np.zeros(shape, np.int64)
    if rng.random() < 0.3:
        array = array[(..., *(slice(None, None, -1) for _ in shape))]
    array[...] = np.arange(array.size).reshape(shape)
    return array


def check(rng):
    array = an_array(rng)
    view = a_view(rng, array)
    is_sliced = True
    if array.flags.c_contiguous and rng.random() < 0.3:
        flat, is_sliced = array.reshape(-1), False
        view = a_view(rng, flat.view(np.int32) if rng.random() < 0.5 and flat.size else flat)
    box = box_of(Laid(array), Laid(view))
    if view.dtype == array.dtype:
        touched = {tuple(map(int, np.unravel_index(place, array.shape))) for place in view.ravel()}
    else:
        first = Laid(array).address
        line = np.atleast_1d(view)
        offsets = {Laid(line[n : n + 1]).address - first for n in range(view.size)}
        touched = {tuple(map(int, np.unravel_index(offset // 8, array.shape))) for offset in offsets}
    assert touched <= elements(box)
    assert elements(box) <= elements(tuple((0, n) for n in array.shape))
    if is_sliced and touched:
        low, high = (tuple(of(index) for index in zip(*touched, strict=True)) for of in (min, max))
        assert box == tuple((a, b + 1) for a, b in zip(low, high, strict=True)), "the smallest"
    elif not touched:
        assert not elements(box) or not array.ndim


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_views(seed):
    """A box has all that a view touches, and is the smallest one of what slicing makes."""
    rng = random.Random(seed)
    for _ in range(BATCH):
        check(rng)


def test_rows_that_interleave():
    """Of an array whose elements are one another's a view may touch all."""
    windows = np.lib.stride_tricks.sliding_window_view(np.zeros(6), 3)
    assert box_of(Laid(windows), Laid(windows[1:2])) == ((0, 4), (0, 3))


def test_flat_views_are_slabs():
    """Of a flat view the rows count that it touches, of one row its columns."""
    array = np.zeros((4, 8))
    flat = array.reshape(-1)
    assert box_of(Laid(array), Laid(flat[4:20])) == ((0, 3), (0, 8))
    assert box_of(Laid(array), Laid(flat[10:14])) == ((1, 2), (2, 6))
