"""Speculative functions with several nests on the GPU, and the launches of one lane: values, and what is reported."""

from __future__ import annotations

import numpy as np
import pytest

from offload import acc
from tests.loops.test_several_nests import NESTS, agree, function_of, mixed, mixed_arguments, said, same_mixed

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("strategy", [None, "each", "device", "host"])
@pytest.mark.parametrize("is_present", [False, True])
def test_neighbours_of_each_kind(gpu, strategy, is_present):
    """Each kind of nest next to each other kind leaves CPython's arrays, whatever strategy the calls use."""
    for kind in NESTS:
        nests = [("proved", "x", "y"), (kind, "y", "x"), ("dependent", "z", "y"), (kind, "z", "x")]
        if kind == "sum":
            nests.pop()
        agree(function_of(nests), n_calls=4, is_present=is_present, strategy=strategy)


def test_calls_settle(gpu):
    """Calls try the strategies, and then stay with one; results are right all the time."""
    loop = acc.kernels_loop(speculate=True)(mixed)
    for _ in range(20):
        given, expected = mixed_arguments(), mixed_arguments()
        loop(*given)
        mixed(*expected)
        same_mixed(given, expected)
    assert all(one["last"] for one in said(loop, *given))
    nests = [("proved", "x", "y"), ("dependent", "y", "z"), ("scatter", "z", "x")]
    agree(function_of(nests), n_calls=14, is_present=True)


def test_one_lane(gpu):
    """With ``vector_length=1`` and ``num_gangs=1`` one thread runs all iterations, reductions and atomics included."""

    @acc.parallel_loop(vector_length=1, num_gangs=1, reduction={"+": ["s"]}, atomic=["h"])
    def totals(x, h):
        s = 0
        for i in range(x.size):
            s += x[i]
            h[x[i] % 4] += 1
        return s

    x, h = np.arange(10_000), np.zeros(4, int)
    assert totals(x, h) == x.sum()
    assert (h == 2500).all()
    launch = totals.explain(x, h).to_dict()["nests"][0]["launch"]
    assert launch == {"grid": [1, 1, 1], "block": [1, 1, 1]}
