"""What OpenACC's loops refuse, where, and how they fail."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc
from tests.conformance.openacc.loops import CONSTRUCTS, double
from tests.conftest import checked


@pytest.fixture(params=CONSTRUCTS, ids=lambda construct: construct.__name__)
def construct(request):
    return request.param


def test_errors_of_a_loop(runtime, construct):
    """An index out of range is an IndexError of the call, with `async_` of the next wait, that names the iteration."""

    def gather(p, x, y):
        for i in range(p.size):
            y[i] = x[p[i]]

    loop = construct(gather)
    p, x, y = np.array([0, 1, 99]), np.arange(3), np.zeros(3, int)
    with pytest.raises(IndexError, match=r"'x'.*i=2"):
        loop(p, x, y)
    loop.options(async_=1)(p, x, y)
    with pytest.raises(ExceptionGroup) as caught:
        acc.wait(1)
    assert [type(error) for error in caught.value.exceptions] == [IndexError]


WRONG = [
    {"gang": 0},
    {"worker": "many"},
    {"vector": -1},
    {"seq": 1},
    {"independent": "yes"},
    {"auto": 2},
    {"seq": True, "independent": True},
    {"seq": True, "gang": True},
    {"auto": True, "independent": True},
    {"collapse": 0},
    {"tile": 8},
    {"tile": ()},
    {"tile": (0, 4)},
    {"tile": (4, 4), "collapse": 3},
    {"num_gangs": 0},
    {"num_workers": "x"},
    {"vector_length": 1.5},
    {"private": ["nobody"]},
    {"private": ["x"], "firstprivate": ["x"]},
    {"lastprivate": [3]},
    {"async_": -9},
    {"wait": "x"},
    {"default": "some"},
    {"copy": ["x"], "copyin": ["x"]},
    {"copyin": ["nobody"]},
    {"map": ["x"]},
    {"nowait": True},
    {"priority": 1},
    {"devices": [0, 0]},
    {"no_such_clause": 1},
]


@pytest.mark.parametrize("clauses", WRONG, ids=str)
def test_wrong_clauses(construct, clauses):
    """A wrong value, name or combination is a ClauseError of the decorator, and of `options`."""
    with checked("sim:1"):
        for make in (lambda: construct(**clauses)(double), lambda: construct(double).options(**clauses)):
            with pytest.raises(omp.ClauseError):
                make()(np.zeros(3), np.zeros(3))


@pytest.mark.parametrize(
    "clauses",
    [
        {"gang": 0},
        {"vector": "wide"},
        {"seq": 1},
        {"seq": True, "auto": True},
        {"seq": True, "worker": True},
        {"collapse": 0},
        {"tile": 3},
        {"tile": (2, 2), "collapse": 3},
        {"reduction": {"?": ["s"]}},
        {"reduction": {"+": 3}},
        {"private": 3},
    ],
    ids=str,
)
def test_wrong_clauses_of_loop(clauses):
    """`acc.loop` gives its range back, or raises a ClauseError, where Python runs it."""
    given = range(3, 9)
    assert acc.loop(given, gang=True, vector=64, collapse=2, private=["t"], reduction={"+": ["s"]}) is given
    with pytest.raises(omp.ClauseError):
        acc.loop(given, **clauses)


def test_loop_takes_a_range():
    """What is no range is a ClauseError; clauses are given by keyword."""
    with pytest.raises(omp.ClauseError, match="range"):
        acc.loop([1, 2])
    with pytest.raises(TypeError):
        acc.loop(range(3), True)


def test_wrong_clauses_in_the_text(construct):
    """Where a loop is compiled, a wrong clause of `acc.loop` is a LoopError of rule `loop`, at the decorator."""

    def zero(x):
        for i in acc.loop(range(x.size), gang=0):
            x[i] = 0

    def wide(x):
        for i in acc.loop(range(x.size), vector="wide"):
            x[i] = 0

    def flag(x):
        for i in acc.loop(range(x.size), seq=1):
            x[i] = 0

    def both(x):
        for i in acc.loop(range(x.size), seq=True, gang=True):
            x[i] = 0

    def tile(x):
        for i in acc.loop(range(x.size), tile=3):
            x[i] = 0

    def unequal(x):
        for i in acc.loop(range(x.size), tile=(2, 2), collapse=3):
            x[i] = 0

    def nobody(x):
        for i in acc.loop(range(x.size), private=["nobody"]):
            x[i] = 0

    def names(x):
        for i in acc.loop(range(x.size), reduction={"+": 3}):
            x[i] = 0

    def unknown(x):
        for i in acc.loop(range(x.size), bind="teams"):
            x[i] = 0

    def not_constant(x, n):
        for i in acc.loop(range(x.size), vector=n):
            x[i] = 0

    for function in (zero, wide, flag, both, tile, unequal, nobody, names, unknown, not_constant):
        with pytest.raises(omp.LoopError) as caught:
            construct(function)
        assert (caught.value.rule, caught.value.line) == ("loop", function.__code__.co_firstlineno + 1)
