"""Sections in order on the GPU: the answer is exact, of short rows and of 10**7, in order or not."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from tests.conftest import checked
from tests.gpu.conftest import cupy
from tests.loops.speculation import noted, quiet
from tests.loops.test_sections import backwards, blocks, cases, scale, touched, truth

pytestmark = pytest.mark.gpu

N = 10**7


@pytest.mark.parametrize("seed", range(4))
def test_short_rows(seed):
    """Results are the serial ones, and the verdict is what the accesses say."""
    loops = {one: omp.target_loop(one, speculate="always") for one in (scale, blocks, backwards)}
    for function, arguments, _ in cases(seed):
        expected, given = ([one.copy() for one in arguments] for _ in range(2))
        function(*expected)
        with checked("cuda:0"), noted() as found, quiet():
            loops[function](*given)
        assert all(np.array_equal(got, right) for got, right in zip(given, expected, strict=True))
        assert (found[0] is None) == truth(touched(function, arguments))


@pytest.mark.parametrize("order", ["in order", "shuffled", "one meets"])
def test_ten_million_rows(order):
    """One pair of rows that meets is found, and none is invented where rows come in another order."""

    def doubled(begin, length, values):
        for i in range(begin.size):
            for k in range(begin[i], begin[i] + length[i]):
                values[k] *= 2.0

    length = cupy.random.randint(1, 9, N).astype(cupy.int32)
    begin = (cupy.cumsum(length) - length).astype(cupy.int32)
    values = cupy.ones(int(length.sum()), cupy.float32)
    if order == "shuffled":
        at = cupy.random.permutation(N)
        begin, length = begin[at], length[at]
    elif order == "one meets":
        length[N // 2] += 1
    with checked("cuda:0"), noted() as found, quiet():
        omp.target_loop(doubled, speculate="always")(begin, length, values)
    answers = {
        "in order": [True],
        "shuffled": [True] * 2,
        "one meets": [False] * 2,
    }  # a doubt has a second run
    assert [one is None for one in found] == answers[order]
    if order != "one meets":
        assert bool((values == 2).all())
