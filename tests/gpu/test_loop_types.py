"""Array types in loops on the GPU: values, errors, keys of repeated calls, several devices."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload.parray import ArrayType, dim, disp, threads, wrap
from tests.conftest import checked
from tests.gpu.conftest import cupy
from tests.loops.on_devices import present
from tests.loops.test_array_types import (
    PAIRS,
    blocked,
    both,
    by_two,
    dealt,
    four,
    guarded,
    hits,
    numbers,
    outside,
    parts,
    picked,
    properties,
    summed,
    through,
    transposed,
    types_from,
    unravelled,
)

pytestmark = pytest.mark.gpu

if cupy is not None:
    import tests.gpu.twins  # noqa: F401  # registers the kind

ROWS, COLUMNS = 320, 192
SIZE = ROWS * COLUMNS
PLAIN = ArrayType((ROWS, COLUMNS))
TURNED = ArrayType((PLAIN[1], PLAIN[0]))
CYCLE = ArrayType((dim(ROWS, disp(7), wrap(ROWS), PLAIN[0]), PLAIN[1]))
TILED = ArrayType(((ROWS // 32, 32), (COLUMNS // 32, 32)))
BLOCKS = ArrayType((TILED[0, 0], TILED[1, 0], TILED[0, 1], TILED[1, 1]))
LOCAL = ArrayType((SIZE // 4 // 16, 16))
CYCLIC = ArrayType((LOCAL[0], threads(4), LOCAL[1]))


@pytest.mark.parametrize("pair", [*PAIRS, (PLAIN, TURNED), (TURNED, CYCLE), (CYCLE, BLOCKS)], ids=str)
def test_layouts(gpu, pair):
    """One loop, any layouts."""
    n = pair[0].size
    both(omp.target_loop(through), numbers(n), np.zeros(n), *pair)


def test_listings(gpu):
    """Transposition by rows and columns, a walk over tiles, a cyclic distribution."""
    both(omp.target_loop(transposed, collapse=2), numbers(SIZE), np.zeros(SIZE), TURNED, ArrayType((COLUMNS, ROWS)))
    both(omp.target_loop(blocked, collapse=4), numbers(SIZE), np.zeros(SIZE), BLOCKS)
    both(omp.target_loop(blocked, collapse=2), numbers(SIZE), np.zeros(SIZE), BLOCKS)
    both(omp.target_loop(dealt), numbers(SIZE), np.zeros((4, CYCLIC.span)), CYCLIC)
    both(omp.target_loop(parts), np.zeros((4, CYCLIC.span)), CYCLIC)
    both(omp.target_loop(unravelled), np.zeros(SIZE), PLAIN)
    both(omp.target_loop(properties, collapse=3), np.zeros(24), ArrayType(((2, 3), 4)))
    both(omp.target_loop(outside, seq=True), np.zeros(24), np.array([1, 0, 3, 2]))
    both(omp.target_loop(hits, atomic=["h"]), np.array([5, 3, 5, 5, 0]), np.zeros(SIZE), TURNED)
    both(omp.target_loop(summed, collapse=2, reduction={"+": ["s"]}), numbers(64), ArrayType((8, 8)))


@pytest.mark.parametrize("seed", range(0, 40_000, 1000))
def test_random_types(gpu, seed):
    """The offsets of random types."""
    types = types_from(seed, 4)
    n = max(each.size for each in types)
    expected, found = (np.full((4, max(n, 1)), -1) for _ in range(2))
    four(expected, n, *types)
    omp.target_loop(four)(found, n, *types)
    np.testing.assert_array_equal(found, expected)


def test_checks(gpu):
    """An index out of range fails the call, and the context lives on."""
    x, b = np.array([0, 3, -1, 2]), np.zeros(4)
    with pytest.raises(IndexError, match=r"index -1 is out of bounds for axis 0 of 'T\(x\[k\]\)'"):
        omp.target_loop(picked)(x, b, PLAIN)
    with pytest.raises(IndexError, match=r"index 192 is out of bounds for axis 1 of 'T\(1, x\[k\]\)'"):
        omp.target_loop(by_two)(np.array([0, 192]), b, PLAIN)
    both(omp.target_loop(guarded), np.array([5, -3, 999]), np.zeros(3), ArrayType((8, 8)))
    both(omp.target_loop(picked), np.array([5, 3], np.uint64), np.zeros(2), TURNED)


def test_repeated_calls_with_device_arrays(gpu):
    """Calls that are settled tell types apart, and equal types are one."""
    loop = omp.target_loop(through)
    a = cupy.arange(float(SIZE))
    for _ in range(3):
        for layout in (PLAIN, TURNED, CYCLE, ArrayType((ROWS, COLUMNS))):
            b, expected = cupy.zeros(SIZE), np.zeros(SIZE)
            loop(a, b, layout, PLAIN)
            through(np.arange(float(SIZE)), expected, layout, PLAIN)
            np.testing.assert_array_equal(b.get(), expected)


@pytest.mark.parametrize("devices", ["twin:2", "twin:3"])
def test_several_devices(devices):
    """Affine types divide a loop; others run on all devices with tests of ownership."""
    a, b, expected = numbers(SIZE), np.zeros(SIZE), np.zeros(SIZE)
    with checked(devices), present({"a": a, "b": b}):
        loop = omp.target_loop(transposed, collapse=2, devices="all", filter="always")
        loop(a, b, PLAIN, ArrayType((PLAIN[0], PLAIN[1])))
        assert loop.explain(a, b, PLAIN, PLAIN).to_dict()["filter"]["mode"] == "split"
    transposed(a, expected, PLAIN, PLAIN)
    np.testing.assert_array_equal(b, expected)
    with checked(devices), present({"a": a, "b": b}):
        omp.target_loop(through, devices="all", filter="always")(a, b, PLAIN, TURNED)
    through(a, expected, PLAIN, TURNED)
    np.testing.assert_array_equal(b, expected)
