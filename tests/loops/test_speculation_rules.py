"""Speculative loops on random index arrays, call after call: they leave what CPython leaves, errors included."""

from __future__ import annotations

import contextlib
import random
import time

import numpy as np
import pytest

import offload as omp
from offload import tofrom
from tests.conftest import checked
from tests.loops.speculation import made, quiet, slow_host
from tests.profiles import few

TEXTS = [
    "a[p[i]] = x[i]",
    "a[p[i]] += x[i]",
    "b[i] = a[q[i]]; a[p[i]] = b[i] + 1",
    "if x[i] > 3:\n            a[p[i]] = x[i]",
    "t = a[p[i]]; a[p[i]] = a[q[i]]; a[q[i]] = t",
    "for k in range(3):\n            a[p[i]] += k",
    "a[p[i]] = a[q[i]] if x[i] > 4 else a[p[i]]",
    "b[p[i]] = a[q[i]]; a[q[i]] = i",
    "k = p[i]; a[k] = a[k - 1] + 1",
]


def indices(rng, m, size):
    """Return indices of `m` of `size` elements: different ones mostly, some negative, one of them outside at times."""
    found = rng.permutation(size)[:m] if rng.random() < 0.6 else rng.integers(0, size, m)
    if rng.random() < 0.3:
        found = found - size
    if rng.random() < 0.1:
        found[rng.integers(m)] = size + 3
    return found


def run(seed, loops):
    """Make some calls with the arrays of a seed, of one of the loops."""
    rng, rng_of_text = np.random.default_rng(seed), random.Random(seed)
    key = rng_of_text.choice(TEXTS), rng_of_text.choice([True, "always"])
    names = [name for name in "abpqx" if f"{name}[" in key[0]]
    if key not in loops:
        function = made(key[0], *names)
        loops[key] = function, omp.target_loop(function, speculate=key[1])
    function, loop = loops[key]
    m = int(rng.choice([5, 40, 300]))
    arrays = {"a": np.arange(2.0 * m), "b": np.zeros(2 * m), "x": rng.integers(0, 10, 2 * m).astype(float)}
    arrays |= {name: indices(rng, m, 2 * m) for name in "pq"}
    given = [arrays[name] for name in names]
    expected = [array.copy() for array in given]
    is_present = rng.random() < 0.5
    with checked("sim:1", seed=seed if rng.random() < 0.5 else None), quiet():
        around = omp.target_data(map=[tofrom(array) for array in given]) if is_present else contextlib.nullcontext()
        with around, slow_host() if rng.random() < 0.5 else contextlib.nullcontext():
            for call in range(rng.choice([1, 4])):
                if call > 1:  # with other indices than those that were looked at
                    given[names.index("p")][...] = expected[names.index("p")][...] = indices(rng, m, 2 * m)
                    if is_present:
                        omp.target_update(to=[given[names.index("p")]])
                wanted = got = None
                try:
                    function(*expected, m)
                except IndexError as error:
                    wanted = type(error)
                try:
                    loop(*given, m)
                except IndexError as error:
                    got = type(error)
                assert got is wanted, (seed, key)
                if wanted is not None:
                    break
    for array, right in zip(given, expected, strict=True):
        assert np.array_equal(array, right), (seed, key)


@pytest.mark.parametrize("first", few(1, range(0, 125, 25)))
def test_what_is_left_is_what_cpython_leaves(first):
    """Arrays, and the exception, are those of the loop in order, for 25 sets of arrays."""
    loops = {}
    for seed in range(first, first + 25):
        run(seed, loops)


@pytest.mark.soak
def test_what_is_left_is_what_cpython_leaves_for_minutes():
    """The same for ten minutes."""
    loops, until, seed = {}, time.monotonic() + 600, 1000
    while time.monotonic() < until:
        run(seed, loops)
        seed += 1
