"""What the decorators take besides plain functions: ufuncs, builtins, partials, classes, bound methods."""

from __future__ import annotations

import functools
import operator

import numpy as np
import pytest

import offload as omp
from offload import acc, in_, to, tofrom


@pytest.fixture(autouse=True)
def _runtime():
    with omp.Runtime("sim:1", check=True):
        yield


A, B = np.arange(9.0).reshape(3, 3), np.full((3, 3), 2.0)


class Scale:
    """A class whose attributes have names that a construct's function has, too."""

    options = _clauses = None

    def __init__(self, array=B, *, factor=3.0):
        self.total = (array * factor).sum()

    def __float__(self):
        return float(self.total)

    def times(self, array, *, factor=2.0):
        return (array * factor).sum()


CALLS = {
    "ufunc": (np.add, (A, B), {}),
    "ufunc with a keyword": (np.add, (A, B), {"dtype": "f4"}),
    "generalised ufunc": (np.matmul, (A, B), {}),
    "generalised ufunc, axes": (np.matmul, (A, B), {"axes": [(1, 0), (0, 1), (0, 1)]}),
    "generalised ufunc, axis": (np.vecdot if hasattr(np, "vecdot") else np.matmul, (A, B), {}),
    "method of a ufunc": (np.multiply.reduce, (A,), {"axis": 1}),
    "function of NumPy": (np.sum, (A,), {"initial": 10.0}),
    "function of NumPy in C": (np.dot, (A, B), {}),
    "builtin": (operator.matmul, (A, B), {}),
    "builtin without a signature": (max, (3, 4), {}),
    "partial of a ufunc": (functools.partial(np.matmul), (A, B), {}),
    "partial with an array by keyword": (functools.partial(lambda a, b: a * b, b=B), (A,), {}),
    "partial with a number": (functools.partial(np.multiply, 2.0), (A,), {}),
    "class": (Scale, (A,), {"factor": 2.0}),
    "class, its defaults": (Scale, (), {}),
    "bound method": (Scale().times, (A,), {"factor": 4.0}),
}


def _same(found, expected):
    if hasattr(found, "get"):
        found = found.get()
    if isinstance(expected, Scale):
        found, expected = float(found), float(expected)
    return np.array_equal(found, expected)


@pytest.mark.parametrize("directive", ["target", "nowait", "acc", "task"])
@pytest.mark.parametrize("name", CALLS)
def test_arguments_go_as_they_are_given(name, directive):
    """A callable of any kind gets the arguments of the call, in their places, and nothing that the call leaves out."""
    function, args, kwargs = CALLS[name]
    expected = function(*args, **kwargs)
    made = {"target": omp.target, "nowait": omp.target(nowait=True), "acc": acc.parallel, "task": omp.task}[directive]
    result = made(function)(*args, **kwargs)
    assert _same(result.result() if isinstance(result, omp.Task) else result, expected)


class Silent:
    """A callable that does not tell its parameters, as some of C do not."""

    __signature__ = "none"

    def __call__(self, a, b):
        return (a + b).sum()


@pytest.mark.parametrize("clauses", [{"depend": [in_(A)]}, {"map": [to(A)]}, {"firstprivate": [A]}, {"private": [B]}])
@pytest.mark.parametrize("function", [np.matmul, Silent()], ids=["ufunc", "silent"])
def test_clauses_of_callables_that_do_not_tell_their_parameters(function, clauses):
    """Clauses with arrays need no names of parameters, so that any callable can have them."""
    found = omp.target(function, **clauses)(A, B)
    assert "private" in clauses or _same(found, function(A, B))


def test_strings_for_callables_that_do_not_tell_their_parameters():
    """A string cannot name a parameter that nobody knows: a ClauseError, at the call at the latest."""
    for clauses in ({"map": [tofrom("a")]}, {"depend": [in_("a")]}, {"firstprivate": ["a"]}):
        with pytest.raises(omp.ClauseError, match="'a'"):
            omp.target(max, **clauses)(1, 2)


def test_defaults_that_are_arrays_are_mapped():
    """An array default of a parameter is mapped, one between others that have plain defaults too."""
    total = np.zeros(3)

    def add(a, b=2.0, c=total, /, d=None, *, e=B):
        c += a[0] * b + e[0]
        return d is None

    assert omp.target(add)(A)
    assert total.tolist() == [2.0, 4.0, 6.0]
    assert not omp.target(add)(A, 1.0, d=1)
    assert total.tolist() == [4.0, 7.0, 10.0]
