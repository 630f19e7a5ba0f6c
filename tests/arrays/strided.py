"""Strided copies anyhow in memory, and what they have to come to."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from offload.arrays.boxes import collapse

SPARE = 64


@st.composite
def sides(draw, shape, itemsize, *, may_repeat=False):
    """Return (nbytes, offset, strides) of an array of ``shape`` that lies anyhow in that many bytes."""
    order = draw(st.permutations(range(len(shape))))
    strides, step = [0] * len(shape), itemsize
    for axis in order:
        step += draw(st.sampled_from([0, 0, 0, 1, 4, 16, itemsize]))
        strides[axis] = step
        step *= shape[axis]
    if may_repeat and shape and draw(st.booleans()):
        strides[draw(st.integers(0, len(shape) - 1))] = 0
    strides = [-s if draw(st.booleans()) else s for s in strides]
    low = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True)) + itemsize
    offset = SPARE + draw(st.integers(0, 17)) - low
    return offset + high + SPARE, offset, tuple(strides)


@st.composite
def cases(draw):
    """Return destination and source memory, both arrays as (offset, view), and the box of the copy."""
    ndim = draw(st.integers(0, 8))
    most = {0: 1, 1: 600, 2: 40, 3: 12, 4: 6}.get(ndim, 3)
    shape = tuple(draw(st.lists(st.integers(1, most), min_size=ndim, max_size=ndim)))
    itemsize = draw(st.sampled_from([1, 2, 3, 4, 8, 12, 16, 100]))
    arrays = []
    for may_repeat in (False, True):
        nbytes, offset, strides = draw(sides(shape, itemsize, may_repeat=may_repeat))
        memory = np.random.default_rng(nbytes).integers(0, 256, nbytes, "u1")
        arrays.append((memory, offset, np.ndarray(shape, f"V{itemsize}", memory, offset, strides)))
    box = collapse(shape, arrays[0][2].strides, arrays[1][2].strides, itemsize)
    return arrays[0], arrays[1], box


def run_call(call, dst, src, to, at):
    """Do what a 3-D copy of the driver does, under its rules."""
    if call.rows > 1:
        assert min(call.dst_pitch_nbytes, call.src_pitch_nbytes) >= call.row_nbytes
    if call.planes > 1:
        assert min(call.dst_height, call.src_height) >= call.rows
    for plane, row in itertools.product(range(call.planes), range(call.rows)):
        d = to + call.dst_offset_nbytes + (plane * call.dst_height + row) * call.dst_pitch_nbytes
        s = at + call.src_offset_nbytes + (plane * call.src_height + row) * call.src_pitch_nbytes
        dst[d : d + call.row_nbytes] = src[s : s + call.row_nbytes]


def expected(case):
    """Return the destination's memory after the copy, by NumPy."""
    (memory, offset, view), (_, _, source), _ = case
    wanted = memory.copy()
    np.ndarray(view.shape, view.dtype, wanted, offset, view.strides)[...] = source
    return wanted
