"""`profile_dependences` of functions under `directives`: the program without its directives, by the program's lines."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

import offload
from offload.pragma import directives, omp
from tests.conftest import checked
from tests.pragma.programs import made_of


@pytest.fixture(autouse=True)
def runtime():
    """A runtime with a device."""
    with checked("sim:1") as runtime:
        yield runtime


PROGRAM = """
    @directives
    def legacy(n, steps):
        a, b, h = np.zeros(n), np.zeros(n), np.zeros(3)
        total = 0.0
        with omp("parallel for"):
            for i in range(n):
                a[i] = math.sin(i)
        with omp("target data map(tofrom: a, b)"):
            step = 0
            while step < steps:
                with omp("target parallel for depend(inout: a)"):
                    for i in range(1, n - 1):
                        b[i] = 0.5 * (a[i - 1] + a[i + 1])
                        with omp("atomic"):
                            h[i % 3] += 1
                omp("taskwait")
                step += 1
        for i in range(n):
            total += b[i]
        #omp parallel for
        for i in range(1, n):
            a[i] = a[i - 1] + b[i]
        return total
"""


def test_verdicts_of_a_function_under_directives():
    """Each `for` has a verdict at its line; directives, strings or comments, change nothing."""
    report = offload.profile_dependences(made_of(PROGRAM, globals()), (20, 2))
    assert [(loop.line, loop.verdict) for loop in report.loops] == [
        (6, "parallel"),
        (12, "reduction"),
        (18, "reduction"),
        (21, "sequential"),
    ]
    assert (report.loops[1].atomic, report.loops[2].reductions) == (("h",), (("+", "total"),))
    assert "line 22" in report.loops[3].why


def test_a_single_loop_with_a_sum():
    """A function that is one loop has a report too, and the report names the reduction."""

    def plain(x, s):
        for i in range(x.size):
            s += x[i]
        return s

    for function in (plain, directives(plain)):
        [loop] = offload.profile_dependences(function, (np.ones(4), 0.0)).loops
        assert (loop.verdict, loop.reductions) == ("reduction", (("+", "s"),))

    @directives
    def summed(x, s):
        with omp("parallel for reduction(+: s)"):
            for i in range(x.size):
                s += x[i]
        return s

    [loop] = offload.profile_dependences(summed, (np.ones(4), 0.0)).loops
    assert (loop.verdict, loop.reductions) == ("reduction", (("+", "s"),))
    assert summed(np.ones(4), 0.0) == 4


def test_a_function_around_is_another_function():
    """The text of a function under directives is not taken for that of a function that wraps it."""

    @directives
    def inner(x):
        with omp("parallel for"):
            for i in range(x.size):
                x[i] = math.sqrt(i)

    @functools.wraps(inner)
    def outer(x):
        for i in range(1, x.size):
            x[i] = x[i - 1]

    assert offload.profile_dependences(outer, (np.ones(4),)).loops[0].verdict == "sequential"
    assert offload.profile_dependences(inner, (np.ones(4),)).loops[0].verdict == "parallel"
