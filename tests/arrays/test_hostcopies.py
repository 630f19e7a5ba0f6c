"""Copies of the host: however they are cut, they move what an assignment moves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.arrays.boxes import collapse
from offload.arrays.hostcopies import Blocks, blocks, copy_blocks, copyto


def box_of(dst, src):
    """Return the copy between two arrays, and forget how it would be cut."""
    blocks.cache_clear()
    return collapse(dst.shape, dst.strides, src.strides, dst.itemsize)


@st.composite
def pairs(draw):
    """Return two arrays of one shape, each some transposition of some part of some memory, aligned or not."""
    ndim = draw(st.integers(2, 4))
    shape = draw(st.lists(st.integers(1, 9), min_size=ndim, max_size=ndim))
    dtype = draw(st.sampled_from(["u1", "u2", "f4", "f8", "c16", "V3", "V40"]))
    arrays = []
    for seed in (1, 2):
        order = draw(st.permutations(range(ndim)))
        steps = [draw(st.sampled_from([1, 1, 2, -1, -2])) for _ in range(ndim)]
        whole = [shape[axis] * abs(step) for axis, step in zip(order, steps, strict=True)]
        nbytes = int(np.prod(whole)) * np.dtype(dtype).itemsize
        shift = draw(st.integers(0, 8))
        memory = np.random.default_rng(seed).integers(0, 256, nbytes + shift, "u1")[shift:].view(dtype).reshape(whole)
        part = memory[tuple(slice(None, None, step) for step in steps)]
        arrays.append((memory, part.transpose(np.argsort(order))))
    return arrays


@given(pairs(), st.integers(1, 5), st.integers(1, 5))
def test_blocks_move_what_an_assignment_moves(arrays, along_src, along_dst):
    """Whatever the sides of blocks, exactly the elements of the destination are written, with the source's."""
    (memory, dst), (_, src) = arrays
    wanted = memory.copy()
    np.ndarray(dst.shape, dst.dtype, wanted, dst.ctypes.data - memory.ctypes.data, dst.strides)[...] = src
    box = box_of(dst, src)
    cut = Blocks(0, len(box.dims) - 1, along_src, along_dst) if len(box.dims) > 1 else None
    if cut is None:
        copyto(dst, src)
    else:
        copy_blocks(dst, src, box, cut)
    assert memory.tobytes() == wanted.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["u1", "f4", "f8", "c16", "V3"])
@pytest.mark.parametrize("shape", [(2048, 2048), (500, 3, 1030), (3, 2048, 2050)])
def test_large_transpositions(shape, dtype):
    """A large transposition is right whether it is cut or not."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    src = np.random.default_rng(0).integers(0, 256, nbytes, "u1").view(dtype).reshape(shape).T
    dst = np.empty(src.shape, dtype)
    copyto(dst, src)
    assert dst.tobytes() == src.copy().tobytes()


@pytest.mark.parametrize(
    ("dst", "src", "cuts"),
    [
        (np.empty((4096, 4096)), np.empty((4096, 4096)).T, True),
        (np.empty((4096, 4096), "f4").T, np.empty((4096, 4096), "f4"), True),
        (np.empty((4096, 4096)), np.empty((4096, 4096)), False),
        (np.empty((4096, 4096)), np.empty((4096, 8192))[:, ::2], False),
        (np.empty((1000, 1000)), np.empty((1000, 1000)).T, False),
        (np.empty((2048, 2048, 2)), np.empty((2048, 2048, 2)).transpose(1, 0, 2), True),
        (np.empty((512, 512, 8)), np.empty((512, 512, 8)).transpose(1, 0, 2), False),
        (np.empty((4096, 16)), np.empty((16, 4096)).T, False),
    ],
)
def test_what_is_cut(dst, src, cuts):
    """What is turned round over many lines of a cache is cut; rows, narrow boxes and what fits are NumPy's."""
    assert (blocks(box_of(dst, src)) is not None) == cuts


def test_shapes_must_be_the_same():
    """What NumPy would broadcast still is."""
    dst = np.zeros((600, 600))
    copyto(dst, np.arange(600.0))
    assert (dst == np.arange(600.0)).all()
