"""Reductions of compute constructs: the private arrays of a body, and how they are combined."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc

CONSTRUCTS = [acc.parallel, acc.kernels, acc.serial]


@pytest.fixture(params=CONSTRUCTS, ids=lambda construct: construct.__name__)
def construct(request):
    return request.param


@pytest.fixture(params=[None, 1], ids=["synchronous", "async"])
def queue(request):
    return request.param


def add_one_to_t(t):
    t += 1


def value_of(found):
    """Return what a region's call gives, which may be a task."""
    return found.result() if isinstance(found, omp.Task) else found


OPERATORS = [
    ("+", 10, [1, 2, 3], 16),
    ("*", 2, [1, 2, 3], 12),
    ("min", 2, [5, 1, 3], 1),
    ("max", 2, [5, 1, 3], 5),
    ("&", 0b111, [0b110, 0b011, 0b010], 0b010),
    ("|", 0b001, [0b100, 0b000, 0b100], 0b101),
    ("^", 0b001, [0b100, 0b010, 0b100], 0b011),
    ("and", 1, [1, 0, 1], 0),
    ("or", 0, [0, 0, 2], 1),
]

UFUNCS = {
    "+": "add",
    "*": "multiply",
    "min": "minimum",
    "max": "maximum",
    "&": "bitwise_and",
    "|": "bitwise_or",
    "^": "bitwise_xor",
    "and": "logical_and",
    "or": "logical_or",
}


@pytest.mark.parametrize(("operator", "start", "values", "expected"), OPERATORS)
def test_reductions(runtime, construct, queue, operator, start, values, expected):
    """The body's private array begins with the identity, and is combined with the variable at the end."""
    total, values = np.array([start]), np.array(values)

    @construct(reduction={operator: ["total"]}, copyin=["values"], async_=queue)
    def region(values, total):
        if operator in ("+", "|", "^"):
            assert int(total[0]) == 0
        combine = getattr(omp.array_namespace(total), UFUNCS[operator])
        for i in range(3):
            total[...] = combine(total, values[i : i + 1])

    value_of(region(values, total))
    assert total[0] == expected


def test_reduction_by_array_keyword_and_shape(runtime, construct, queue):
    """A reduction names an array or a parameter; it has any shape, 0-d too, and several may be given."""
    total, large = np.array(1.0), np.zeros((2, 3))
    region = construct(reduction={"+": [total], "max": ["large"]}, async_=queue)

    @region
    def body(total, *, large):
        total += 2
        large[...] = 7

    value_of(body(total, large=large))
    value_of(body(total, large=large))
    assert total == 5
    assert (large == 7).all()


def test_reductions_in_data_regions(runtime, construct):
    """In a data region the variable is combined there, and nothing is moved; other clauses may name it."""
    total = np.full(2, 1.0)
    with acc.data(copyin=[total]):
        construct(reduction={"+": ["t"]})(add_one_to_t)(total)
        construct(reduction={"+": [total]}, present=[total])(add_one_to_t)(total)
        construct(reduction={"+": ["t"]}, copy=["t"])(add_one_to_t)(total)
        assert (total == 1).all()
        acc.update(self_=[total])
        assert (total == 4).all()
    construct(reduction={"+": ["t"]}, default="none")(add_one_to_t)(total)
    assert (total == 5).all()


def test_reduction_of_a_device_array(runtime, construct):
    """A device array in deviceptr may be the variable; one that is in no clause is a ClauseError."""
    total = np.full(2, 1.0)
    with acc.data(copy=[total]):
        construct(reduction={"+": ["t"]}, deviceptr=["t"])(add_one_to_t)(acc.deviceptr(total))
        construct(reduction={"+": ["t"]}, default="none", deviceptr=["t"])(add_one_to_t)(acc.deviceptr(total))
        with pytest.raises(omp.ClauseError, match=r"reduction.*t.*deviceptr"):
            construct(reduction={"+": ["t"]})(add_one_to_t)(acc.deviceptr(total))
    assert (total == 3).all()


def test_reduction_on_the_host(runtime, construct):
    """With if(0) it is the same on the host."""
    total = np.full(2, 1.0)
    construct(reduction={"+": ["t"]}, if_=False)(add_one_to_t)(total)
    assert (total == 2).all()


def test_a_region_that_fails_combines_nothing(runtime, construct, queue):
    """A body that raises leaves the variable as it was."""
    total = np.full(2, 1.0)

    def fail(t):
        t += 1
        raise ValueError("body")

    with pytest.raises(ValueError, match="body"):
        value_of(construct(reduction={"+": ["t"]}, async_=queue)(fail)(total))
    assert (total == 1).all()


@pytest.mark.parametrize(
    "bad",
    [
        {"-": ["t"]},
        {"+": [1.0]},
        ["t"],
        {"+": ["other"]},
        {"+": [np.zeros(3)]},
        {"+": ["t"], "*": ["t"]},
        {"+": ["t", "t"]},
    ],
)
def test_bad_reductions(runtime, construct, bad):
    """Unknown operators, items that are no arrays or no arguments, and one variable twice are a ClauseError."""
    total = np.ones(2)
    with pytest.raises(omp.ClauseError):
        construct(reduction=bad)(add_one_to_t)(total)
    assert (total == 1).all()
