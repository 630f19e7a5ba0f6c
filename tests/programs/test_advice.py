"""Messages that say what to write instead."""

from __future__ import annotations

import math

import numpy as np
import pytest

import offload as omp
from offload import to
from offload.parray import ArrayType, copy, dim, func

BODIES = {
    "adds the device's": lambda x: np.zeros(x.size) + x,
    "is added": lambda x: x + np.ones(x.size),
    "is written to": lambda x: np.add(x, x, out=np.empty(x.size)),
    "is assigned to": lambda x: np.empty(x.size).__setitem__(slice(None), x),
    "is assigned": lambda x: x.__setitem__(slice(None), np.arange(x.size)),
    "is joined": lambda x: np.concatenate([x, np.zeros(3)]),
    "a list": lambda x: x + [1.0] * x.size,
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_host_array_made_in_a_body(sim, body):
    """The error names both ways to make an array in the body, and both work there."""
    x = np.arange(4.0)
    with pytest.raises(TypeError, match=r"np\.zeros\(n, like=a\) or array_namespace\(a\)\.zeros\(n\)") as caught:
        omp.target(body, map=[to("x")])(x)
    assert "as an argument of the target function" in str(caught.value)

    @omp.target(map=[to("x")])
    def right(x):
        return float((np.zeros(4, like=x) + x + omp.array_namespace(x).zeros(4)).sum())

    assert right(x) == 6


TABLE = [3, 1, 2, 0]
OF_NUMBERS = {
    "if": lambda i: i if i < 2 else 5 - i,
    "min": lambda i: min(i, 2),
    "a chain of comparisons": lambda i: int(0 < i < 3),
    "a list": lambda i: TABLE[i],
    "a dictionary": lambda i: dict(enumerate(TABLE))[i],
    "math": math.isqrt,
    "int": lambda i: int(i) // 2,
    "a range": lambda i: range(0, 8, 2)[i] // 2,
    "bits": lambda i: i.bit_length(),
    "text": lambda i: int(f"{i:d}"),
}


def gather(there, here, function):
    """Copy the elements that a function names."""
    copy(ArrayType((dim(4, func(function)),)), here, to=(ArrayType((dim(4),)), there))


@pytest.mark.parametrize("function", OF_NUMBERS.values(), ids=OF_NUMBERS)
def test_a_function_of_numbers_in_an_array_type(sim, function):
    """`func` of a function that takes numbers is refused when it gets an array, and ``np.vectorize`` makes it one."""
    line, there = np.arange(4), np.zeros(4, int)
    with pytest.raises(omp.LayoutError, match=r"takes a number but not an array of .*np\.vectorize") as caught:
        gather(there, line, function)
    assert isinstance(caught.value.__cause__, Exception)
    gather(there, line, np.vectorize(function, otypes=[int]))
    assert there.tolist() == [line[function(i)] for i in range(4)]


def test_an_error_of_the_function_itself(sim):
    """An error that the function raises for numbers too arrives as it is."""
    with pytest.raises(ZeroDivisionError):
        gather(np.zeros(4, int), np.arange(4), lambda i: 1 // 0)
