"""What each word of `acc.loop` and `omp.loop` maps to on a GPU: blocks, their rows and lanes, or a loop of one thread.

A launch's shape is the report's, which test_levels.py compares with what is launched; the text says who has which trip.
Where kernels run, they are CUDA compiled for the host, thread by thread.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import offload as omp
from offload import acc
from tests.conformance.openacc.loops import loops_of
from tests.loops.cuda_form import GXX
from tests.loops.oracle import function_of_text

pytestmark = pytest.mark.skipif(GXX is None, reason="no g++")

HEAD = "import offload as omp\nfrom offload import acc\n"

ONE = """
def f(a):
    for i in LOOP(range(a.shape[0])WORDS):
        a[i, 0] += i
"""

TWO = """
def f(a):
    for i in LOOP(range(a.shape[0])WORDS):
        for j in range(a.shape[1]):
            a[i, j] += i - j
"""

INNER = """
def f(a):
    for i in acc.loop(range(a.shape[0])OUTER):
        for j in LOOP(range(a.shape[1])WORDS):
            a[i, j] += i - j
"""


def mapped(text, words, *, loop="acc.loop", outer="", **clauses):
    """Return the launch of a loop with words in its text, its CUDA, and the report of its loops."""
    for place, said in (("LOOP", loop), ("WORDS", words), ("OUTER", outer)):
        text = text.replace(place, f", {said}" if said and place != "LOOP" else said)
    construct = omp.target_loop if loop == "omp.loop" else acc.parallel_loop
    made = construct(**clauses)(function_of_text(HEAD + text))
    a = np.zeros((100, 40), int)
    source, nest = made.source(a), made.explain(a).to_dict()["nests"][0]
    launch = tuple(nest["launch"]["grid"]), tuple(nest["launch"]["block"])
    return launch, source[source.index('extern "C"') :], nest["loops"]


@pytest.mark.parametrize(
    ("words", "blocks", "threads"),
    [
        ("", 1, 256),
        ("gang=True", 1, 256),
        ("gang=2", 1, 256),
        ("worker=True", 1, 256),
        ("worker=2", 2, 64),
        ("vector=True", 1, 256),
        ("vector=32", 4, 32),
        ("gang=2, vector=32", 2, 32),
        ("gang=True, worker=2, vector=32", 2, 64),
        ("gang=True, worker=True, vector=64", 2, 64),
        ("independent=True", 1, 256),
        ("auto=True", 1, 256),
    ],
)
def test_the_associated_loop(cuda, words, blocks, threads):
    """Iterations of the outermost loop are threads, of as many blocks as they need, or as `gang` allows."""
    launch, source, (loop,) = mapped(ONE, words)
    assert launch == ((blocks, 1, 1), (threads, 1, 1))
    assert "blockIdx.x * blockDim.x + threadIdx.x" in source
    assert loop["runs"] == "in parallel"


def test_seq(cuda):
    """A loop that is `seq` is one thread's."""
    launch, source, (loop,) = mapped(ONE, "seq=True")
    assert launch == ((1, 1, 1), (32, 1, 1))
    assert "if (thread_of_block() == 0)" in source
    assert loop["runs"] == "in order"


def test_auto_without_a_proof(cuda):
    """A loop that is `auto`, and of which nothing is proved, is one thread's."""

    @acc.parallel_loop
    def scatter(p, a):
        for i in acc.loop(range(p.size), auto=True):
            a[p[i]] = i

    with pytest.warns(omp.PerformanceWarning):
        scatter(np.arange(50), np.zeros(50))
    assert cuda.launches == [("loop", (1, 1, 1), (32, 1, 1), 0)]


@pytest.mark.parametrize(
    ("words", "launch"),
    [
        ("collapse=2", ((2, 13, 1), (32, 8, 1))),
        ("collapse=2, gang=3", ((2, 1, 1), (32, 8, 1))),
        ("collapse=2, vector=64", ((2, 50, 1), (32, 2, 1))),
        ("tile=(16, 16)", ((3, 7, 1), (16, 16, 1))),
        ("tile=(4, 8)", ((5, 25, 1), (8, 4, 1))),
        ("collapse=2, tile=(2, 32)", ((2, 50, 1), (32, 2, 1))),
    ],
)
def test_several_associated_loops(cuda, words, launch):
    """Two loops are blocks of 32 by 8, or of the tile, with the inner loop along x."""
    got, source, _ = mapped(TWO, words)
    assert got == launch
    assert re.search(r"t1 = .*threadIdx\.x", source)
    assert re.search(r"t0 = .*threadIdx\.y", source)


def test_a_tile_that_is_no_block(cuda):
    """A tile that is not of whole rows of 32 threads is left, and the report says so."""
    launch, _, loops = mapped(TWO, "tile=(3, 5)")
    assert launch[1] == (32, 8, 1)
    assert all("tile is left" in one["why"] for one in loops)
    assert not any(one["why"] for one in mapped(TWO, "tile=(8, 8)")[2])


@pytest.mark.parametrize(
    ("words", "outer", "launch", "stride"),
    [
        ("vector=True", "", ((100, 1, 1), (32, 1, 1)), "threadIdx.x; k1 < n1; k1 += 32"),
        ("vector=True", "gang=True", ((100, 1, 1), (32, 1, 1)), "threadIdx.x; k1 < n1; k1 += 32"),
        ("vector=True", "gang=7", ((7, 1, 1), (32, 1, 1)), "threadIdx.x; k1 < n1; k1 += 32"),
        ("vector=64", "gang=True", ((100, 1, 1), (64, 1, 1)), "thread_of_block(); k1 < n1; k1 += 64"),
        ("vector=True", "gang=True, worker=4", ((25, 1, 1), (32, 4, 1)), "threadIdx.x; k1 < n1; k1 += 32"),
        ("vector=True", "worker=4", ((25, 1, 1), (32, 4, 1)), "threadIdx.x; k1 < n1; k1 += 32"),
        ("worker=True", "gang=True", ((100, 1, 1), (32, 1, 1)), "threadIdx.x; k1 < n1; k1 += 32"),
        ("worker=4", "gang=True", ((100, 1, 1), (32, 4, 1)), "thread_of_block(); k1 < n1; k1 += 128"),
        ("worker=2, vector=32", "gang=True", ((100, 1, 1), (32, 2, 1)), "thread_of_block(); k1 < n1; k1 += 64"),
        ("vector=True, independent=True", "gang=True", ((100, 1, 1), (32, 1, 1)), "threadIdx.x; k1 < n1; k1 += 32"),
    ],
)
def test_inner_loops(cuda, words, outer, launch, stride):
    """Trips of an inner loop go to the threads of a gang, or of a row of it, one after another."""
    got, source, loops = mapped(INNER, words, outer=outer)
    assert got == launch
    assert f"k1 = {stride}" in source
    assert loops[1]["runs"] == "shared by threads"


@pytest.mark.parametrize(
    "words", ["", "seq=True", "independent=True", "auto=True", "gang=True", "vector=True, auto=True"]
)
def test_inner_loops_of_a_thread(cuda, words):
    """Inner loops that ask for no level of a gang's threads, or of which nothing is proved, are a thread's."""
    got, source, loops = mapped(INNER, words)
    assert got == ((1, 1, 1), (256, 1, 1))
    assert "for (int32_t k1 = b1; k1 < e1; k1++)" in source
    assert loops[1]["runs"] == "in order"


def test_bind(cuda):
    """`omp.loop(bind=…)`: teams are blocks, parallel their threads, thread is one; `thread_limit` are threads."""
    launch, _, loops = mapped(INNER, 'bind="parallel"', loop="omp.loop")
    assert launch == ((100, 1, 1), (32, 1, 1))
    assert loops[1]["runs"] == "shared by threads"
    launch, _, loops = mapped(INNER, 'bind="parallel"', loop="omp.loop", thread_limit=128, num_teams=9)
    assert launch == ((9, 1, 1), (128, 1, 1))
    launch, _, loops = mapped(INNER, 'bind="thread"', loop="omp.loop")
    assert launch == ((1, 1, 1), (256, 1, 1))
    assert loops[1]["mapping"] == "seq"
    launch, _, _ = mapped(ONE, 'bind="teams"', loop="omp.loop")
    assert launch == ((1, 1, 1), (256, 1, 1))


def test_collapse_of_inner_loops(cuda):
    """`collapse` around inner loops shares the outer one of them."""

    @acc.parallel_loop
    def shift(a):
        for i in acc.loop(range(a.shape[0]), gang=True):
            for j in acc.loop(range(a.shape[1]), vector=True, collapse=2):
                for k in range(a.shape[2]):
                    a[i, j, k] += i + j + k

    a, expected = np.zeros((4, 40, 3), int), np.zeros((4, 40, 3), int)
    shift.python(expected)
    shift(a)
    assert (a == expected).all()
    assert [one["runs"] for one in loops_of(shift, a)] == ["in parallel", "shared by threads", "in order"]


def test_reduction_of_each_level(cuda):
    """A reduction is combined by shuffles over a row, over the rows, over the block, and over blocks."""

    @acc.parallel_loop(num_workers=2)
    def sums(a, y):
        total = 0
        for i in acc.loop(range(a.shape[0]), gang=True, reduction={"+": ["total"]}):
            t = 0
            for j in acc.loop(range(a.shape[1]), worker=True, reduction={"+": ["t"]}):
                s = 0
                for k in acc.loop(range(a.shape[2]), vector=True, reduction={"+": ["s"]}):
                    s += a[i, j, k]
                t += s
            m = -1
            for j in acc.loop(range(a.shape[1]), worker=True, vector=True, reduction={"max": ["m"]}):
                m = max(m, a[i, j, 0])
            y[i] = m
            total += t
        return total

    a, y = np.random.default_rng(1).integers(0, 99, (5, 70, 40)), np.zeros(5, int)
    assert sums(a, y) == a.sum()
    assert (y == a[:, :, 0].max(axis=1)).all()
    source = sums.source(a, y)
    for call in (
        "over_row<int64_t, combine_add_int64>(v_s)",
        "over_rows<int64_t, combine_add_int64>(v_t, ",
        "over_block<int64_t, combine_max_int64>(v_m, ",
        "over_block<int64_t, combine_add_int64>(r_total, ",
    ):
        assert call in source
    assert [name for name, *_ in cuda.launches] == ["loop", "finish"]


def test_private_of_each_level(cuda):
    """`private` gives each iteration, and each trip of a shared loop, an array of its thread."""

    @acc.parallel_loop
    def swap(a, t):
        for i in acc.loop(range(a.shape[0]), gang=True):
            for k in acc.loop(range(a.shape[1] // 2), vector=True, private=["t"]):
                t[0] = a[i, 2 * k]
                a[i, 2 * k] = a[i, 2 * k + 1]
                a[i, 2 * k + 1] = t[0]

    a, t = np.arange(400).reshape(5, 80), np.full(1, 7)
    expected = a.reshape(5, 40, 2)[:, :, ::-1].reshape(5, 80)
    swap(a, t)
    assert (a == expected).all()
    assert t[0] == 7
    assert loops_of(swap, a, t)[1]["runs"] == "shared by threads"
