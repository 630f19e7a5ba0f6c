"""OpenACC's loop directives as strings and comments against `acc.parallel_loop` and `acc.kernels_loop`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.pragma.spelling import dedent

CONSTRUCTS = {
    "parallel loop": "api.parallel_loop({})",
    "kernels loop": "api.kernels_loop({})",
    "serial loop": "api.parallel_loop({})",
}
CLAUSES = {
    "no clause": ("", ""),
    "copy": ("copyin(x) copy(y)", 'copyin=["x"], copy=["y"]'),
    "async": ("copyin(x) copy(y) async(1)", 'copyin=["x"], copy=["y"], async_=1'),
    "wait": ("copy(y) wait", 'copy=["y"], wait=True'),
    "if": ("copy(y) if(n > 5)", 'copy=["y"], if_=False'),
    "present_or_copy": ("pcopyin(x) present_or_copy(y)", 'copyin=["x"], copy=["y"]'),
    "gang": ("gang vector", "gang=True, vector=True"),
    "sizes": ("gang vector num_gangs(4) vector_length(32)", "gang=True, vector=True, num_gangs=4, vector_length=32"),
    "independent": ("independent", "independent=True"),
    "private": ("private(t)", 'private=["t"]'),
}


OF_PARALLEL_LOOPS = ("gang", "sizes", "independent")
"""Clauses that a sequential loop does not have."""


@pytest.mark.parametrize(
    ("construct", "name"),
    [(one, name) for one in CONSTRUCTS for name in CLAUSES if one != "serial loop" or name not in OF_PARALLEL_LOOPS],
)
def test_loops(twins, construct, name):
    """Each clause of a combined loop construct means in a string what the keyword of the decorator means."""
    string, keywords = CLAUSES[name]
    if construct == "serial loop":
        keywords = ", ".join(filter(None, [keywords, "seq=True"]))
    strings = f"""
        @directives
        def program(x, y, n):
            with acc("{construct} {string}"):
                for i in range(1, x.size):
                    t = x[i - 1]
                    y[i] += n * t
            omp("taskwait")
    """
    calls = f"""
        @{CONSTRUCTS[construct].format(keywords)}
        def loop(x, y, n):
            for i in range(1, x.size):
                t = x[i - 1]
                y[i] += n * t

        def program(x, y, n):
            loop(x, y, n)
            offload.taskwait()
    """
    outcome = twins.same(dedent(strings), dedent(calls), lambda: (np.arange(12.0), np.ones(12), 3))
    assert outcome.arguments[1].tolist() == [1, *(1 + 3 * k for k in range(11))]


@pytest.mark.parametrize("construct", ["parallel loop", "kernels loop"])
@pytest.mark.parametrize("operator", ["+", "max"])
def test_reductions(twins, construct, operator):
    """A reduction begins with the variable's value and gives it the result."""
    line = {"+": "s += x[i]", "max": "s = max(s, x[i])"}[operator]
    strings = f"""
        @directives
        def program(x):
            s = 2.5
            with acc("{construct} reduction({operator}: s)"):
                for i in range(x.size):
                    {line}
            return s
    """
    calls = f"""
        @{CONSTRUCTS[construct].format(f'reduction={{"{operator}": ["s"]}}')}
        def loop(x, s):
            for i in range(x.size):
                {line}
            return s

        def program(x):
            return loop(x, 2.5)
    """
    outcome = twins.same(dedent(strings), dedent(calls), lambda: (np.arange(9.0),))
    assert outcome.value == {"+": 38.5, "max": 8}[operator]


INNER = {
    "vector": ("gang", "loop vector", "api.loop(range(a.shape[1]), vector=True)"),
    "worker": ("gang", "loop worker", "api.loop(range(a.shape[1]), worker=True)"),
    "seq": ("gang", "loop seq", "api.loop(range(a.shape[1]), seq=True)"),
    "independent": ("gang", "loop independent", "api.loop(range(a.shape[1]), independent=True)"),
}


@pytest.mark.parametrize("construct", ["parallel loop", "kernels loop"])
@pytest.mark.parametrize("name", INNER)
def test_inner_loops(twins, construct, name):
    """`loop` around an inner `for` is the hint of `acc.loop`."""
    outer, inner, call = INNER[name]
    strings = f"""
        @directives
        def program(a, b):
            with acc("{construct} {outer}"):
                for i in range(a.shape[0]):
                    with acc("{inner}"):
                        for j in range(a.shape[1]):
                            b[i, j] = 2 * a[i, j] + j
    """
    calls = f"""
        @{CONSTRUCTS[construct].format("gang=True")}
        def loop(a, b):
            for i in range(a.shape[0]):
                for j in {call}:
                    b[i, j] = 2 * a[i, j] + j

        def program(a, b):
            loop(a, b)
    """
    calls = calls.replace("api.loop", "acc.loop")
    twins.same(dedent(strings), dedent(calls), lambda: (np.arange(12.0).reshape(3, 4), np.zeros((3, 4))))


@pytest.mark.parametrize(("clause", "keyword"), [("collapse(2)", "collapse=2"), ("tile(2, 2)", "tile=(2, 2)")])
@pytest.mark.parametrize("construct", ["parallel loop", "kernels loop"])
def test_two_loops(twins, construct, clause, keyword):
    """`collapse` and `tile` take the loops of the nest together."""
    strings = f"""
        @directives
        def program(a, b):
            with acc("{construct} {clause}"):
                for i in range(a.shape[0]):
                    for j in range(a.shape[1]):
                        b[i, j] = 2 * a[i, j] + j
    """
    calls = f"""
        @{CONSTRUCTS[construct].format(keyword)}
        def loop(a, b):
            for i in range(a.shape[0]):
                for j in range(a.shape[1]):
                    b[i, j] = 2 * a[i, j] + j

        def program(a, b):
            loop(a, b)
    """
    twins.same(dedent(strings), dedent(calls), lambda: (np.arange(12.0).reshape(3, 4), np.zeros((3, 4))))


def test_inner_reduction(twins):
    """`reduction` of an inner loop sums into a scalar of the outer iteration."""
    strings = """
        @directives
        def program(a, b):
            with acc("parallel loop gang"):
                for i in range(a.shape[0]):
                    s = 0.0
                    with acc("loop vector reduction(+: s)"):
                        for j in range(a.shape[1]):
                            s += a[i, j]
                    b[i] = s
    """
    program = twins.string(dedent(strings))
    a, b = np.arange(12.0).reshape(3, 4), np.zeros(3)
    program(a, b)
    assert (b == a.sum(1)).all()


def test_atomic(twins):
    """`atomic` around one statement inside a nest makes it atomic."""
    strings = """
        @directives
        def program(c, k):
            with acc("parallel loop copy(c)"):
                for i in range(k.size):
                    with acc("atomic update"):
                        c[k[i]] += 1
    """
    program = twins.string(dedent(strings))
    k = np.random.default_rng(35).integers(0, 4, 300)
    c = np.zeros(4, int)
    program(c, k)
    assert (c == np.bincount(k, minlength=4)).all()


def test_cache(twins):
    """`cache` inside a nest is a hint."""
    strings = """
        @directives
        def program(x, y):
            with acc("parallel loop"):
                for i in range(1, x.size - 1):
                    acc("cache(x[i - 1:3])")
                    y[i] = x[i - 1] + x[i] + x[i + 1]
    """
    program = twins.string(dedent(strings))
    x, y = np.arange(9.0), np.zeros(9)
    program(x, y)
    assert y.tolist() == [0, *(3.0 * k for k in range(1, 8)), 0]


def test_present_data(twins):
    """Loops and regions in a `data` block work on the data that is present."""
    strings = """
        @directives
        def program(a, b, n):
            with acc("data copy(a) create(b)"):
                for _ in range(n):
                    with acc("parallel loop present(a, b)"):
                        for i in range(1, a.size - 1):
                            b[i] = 0.5 * (a[i - 1] + a[i + 1])
                    with acc("parallel loop present(a, b) async(1)"):
                        for i in range(1, a.size - 1):
                            a[i] = b[i]
                    acc("wait(1)")
    """
    calls = """
        @api.parallel_loop(present=["a", "b"])
        def one(a, b):
            for i in range(1, a.size - 1):
                b[i] = 0.5 * (a[i - 1] + a[i + 1])

        @api.parallel_loop(present=["a", "b"], async_=1)
        def two(a, b):
            for i in range(1, a.size - 1):
                a[i] = b[i]

        def program(a, b, n):
            with api.data(copy=[a], create=[b]):
                for _ in range(n):
                    one(a, b)
                    two(a, b)
                    api.wait(1)
    """
    twins.same(dedent(strings), dedent(calls), lambda: (np.arange(9.0) ** 2, np.zeros(9), 4))
