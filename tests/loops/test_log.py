"""The exchange log on devices: every row of the table, words and their lives, what is left out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import offload as omp
from offload import acc, tofrom
from offload.loops.speculative.log_runs import LoggedRun
from tests.conftest import checked
from tests.loops.speculation import VECTORS, made, noted
from tests.profiles import examples, few

SEEDS = examples(50)


@pytest.mark.hypothesis
@pytest.mark.parametrize("vector", few(8, VECTORS), ids=str)
def test_every_row_under_seeded_schedules(vector):
    """A log says of each loop what the table says, in whatever order iterations run; results are the serial ones."""
    function = vector.function()
    loop = omp.target_loop(function, speculate="always")
    expected = vector.values()
    function(*expected)
    for seed in range(SEEDS):
        arguments = vector.values()
        with checked("sim:1", seed=seed), noted() as found:
            loop(*arguments)
        assert [one is None for one in found] == [vector.is_parallel]
        for got, right in zip(arguments, expected, strict=True):
            assert np.array_equal(got, right)


@pytest.mark.parametrize("vector", few(7, VECTORS), ids=str)
def test_every_row_as_cuda(vector, cuda):
    """The text for a GPU, carried out on the host, says the same; words are used again."""
    function = vector.function()
    loop = omp.target_loop(function, speculate="always")
    expected = vector.values()
    function(*expected)
    with noted() as found:
        for _ in range(2):
            arguments = vector.values()
            loop(*arguments)
            for got, right in zip(arguments, expected, strict=True):
                assert np.array_equal(got, right)
    assert [one is None for one in found] == 2 * [vector.is_parallel]


def test_chunks_of_any_size_as_cuda(cuda, monkeypatch):
    """Chunks of a loop carry out each iteration once, whatever their sizes are and in which order they come."""
    counted = made("y[p[i]] += 1", "p", "y")
    sizes = []

    def launch(run, begin, end, of=LoggedRun.launch):
        cuts = [begin, *[cut for cut in (3, 700, 701, 1500, 1900) if begin < cut < end], end]
        for first, last in itertools.pairwise(cuts):
            of(run, first, last)
            sizes.append(last - first)

    monkeypatch.setattr(LoggedRun, "launch", launch)
    p, y = np.random.default_rng(1).permutation(2000), np.zeros(2000)
    with noted() as found:
        omp.target_loop(counted, speculate="always")(p, y, 2000)
    assert found == [None]
    assert (y == 1).all()
    assert len(set(sizes)) > 3


@pytest.mark.parametrize("collides", [False, True])
def test_shared_inner_loops(cuda, collides):
    """Loops that the threads of a block share, and what stands around them, are logged once and by whom it is."""

    @acc.parallel_loop(speculate="always")
    def spread(ptr, q, val, p, y, z):
        for i in acc.loop(range(p.size), gang=True):
            s = 0.0
            for k in acc.loop(range(ptr[i], ptr[i + 1]), vector=True, reduction={"+": ["s"]}):
                s += val[k]
            y[p[i]] = y[p[i]] + s
            for k in acc.loop(range(ptr[i], ptr[i + 1]), vector=True):
                z[q[k]] = val[k] * 2

    rng = np.random.default_rng(3)
    n = 40
    ptr = np.arange(0, 5 * n + 1, 5)
    q, val, p = rng.permutation(5 * n), rng.integers(0, 9, 5 * n).astype(float), rng.permutation(n)
    if collides:
        q[17] = q[150]
    y, z = np.zeros(n), np.zeros(5 * n)
    expected = y.copy(), z.copy()
    spread.python(ptr, q, val, p, *expected)
    with noted() as found:
        spread(ptr, q, val, p, y, z)
    assert [one is None for one in found] == [not collides]
    assert (y == expected[0]).all()
    assert (z == expected[1]).all()


@pytest.mark.parametrize("device", ["cuda", "sim"])
def test_atomic_array_beside_what_is_logged(device, request):
    """An array of atomics, of which workers have copies, is no part of passes, nor of an address slice."""
    request.getfixturevalue(device)
    n = 2000

    def counted(p, q, h, y):
        for i in range(p.size):
            h[q[i] % 16] += 1
            y[p[i]] = y[q[i]] + 1

    p, h, y = np.random.default_rng(1).permutation(2 * n), np.zeros(16, int), np.arange(2 * n)
    p, q = p[:n].copy(), p[n:].copy()
    loop = omp.target_loop(counted, atomic=["h"])
    loop = loop.options(speculate=omp.profile_dependences(loop, (p, q, h, y)))
    expected = h.copy(), y.copy()
    counted(p, q, *expected)
    with noted() as found, omp.target_data(map=[tofrom(one) for one in (p, q, h, y)]):
        loop(p, q, h, y)
    assert found == [None]
    assert (h == expected[0]).all()
    assert (y == expected[1]).all()


@pytest.mark.parametrize("strides", [(1, 1), (1, 2), (2, 1)])
@pytest.mark.parametrize("speculate", ["always", True])
def test_rows_of_an_array_that_overlaps_itself(sim, speculate, strides):
    """Rows that are written as a whole have elements in common where the array overlaps itself."""

    def filled(w):
        for i in range(w.shape[0]):
            for j in range(w.shape[1]):
                w[i, j] = i + 10 * j

    def windows(memory):
        return as_strided(memory, (11, 4), tuple(8 * stride for stride in strides))

    memory, expected = np.zeros(40, int), np.zeros(40, int)
    filled(windows(expected))
    loop = omp.target_loop(filled, speculate=speculate)
    for _ in range(2):
        memory[:] = 0
        loop(windows(memory))
        assert (memory == expected).all()
    assert loop.explain(windows(memory)).to_dict()["speculation"]["last"] == "host"
