"""The arithmetic of types gives the places that the types give, for an index as one number and as one for each leaf."""

from __future__ import annotations

from collections import Counter

import pytest

import offload as omp
from offload.parray import ArrayType, dim, disp, func, reckoning, threads, wrap
from tests.parray.test_types_rules import meant_by
from tests.parray.trees import library_type


class Traced:
    """A number of a loop: it has only the operators that the arithmetic may use, and stays within 64 bits."""

    def __init__(self, value):
        assert -(1 << 63) <= value < 1 << 63
        self.value = value

    def __add__(self, other):
        return Traced(self.value + getattr(other, "value", other))

    __radd__ = __add__

    def __mul__(self, by):
        return Traced(self.value * by)

    __rmul__ = __mul__

    def __floordiv__(self, by):
        assert by > 0
        return Traced(self.value // by)

    def __mod__(self, by):
        assert by > 0
        return Traced(self.value % by)

    def __ge__(self, start):
        return Traced(int(self.value >= start))


def leaves(of, index):
    """The parts of an index: a size and a number for each leaf."""
    if not of.dims:
        return [(of.size, Traced(index))]
    found = []
    for sub in reversed(of.dims):
        found = leaves(sub, index % sub.size) + found
        index //= sub.size
    return found


def check(made):
    """Compare all elements; return whether the type can be reckoned."""
    try:
        reckoning.check(made)
    except omp.LayoutError:
        return False
    for k in range(0, made.size, 1 + made.size // 100):
        for parts in ([(made.size, Traced(k))], leaves(made, k)):
            try:
                thread, memory = reckoning.place(made, parts)
            except omp.LayoutError:  # of an irregular table, which is found out here
                return False
            found = tuple(getattr(part, "value", part) for part in (thread, memory))
            assert (found if made.kind == "both" else sum(found)) == made(k), (made, k)
    return True


def test_random_types():
    """Every type without a function and without an element that leaves is reckoned; sub-dimensions as well."""
    seen = Counter()
    for seed in range(1000):
        try:
            made = library_type(meant_by(seed))
        except omp.LayoutError:
            continue
        for each in (made, *made.dims):
            is_reckoned = check(each)
            seen[is_reckoned, each.kind, is_reckoned and reckoning.is_affine(each)] += 1
    assert seen[True, "memory", True] > 500, seen
    assert seen[True, "memory", False] > 50, seen
    assert seen[True, "both", True] > 50, seen


@pytest.mark.parametrize(
    ("made", "is_affine"),
    [
        (ArrayType((6, 4)), True),
        (ArrayType((dim(7, disp(3), wrap(7)), 2)), False),
        (ArrayType(dim(40_000, disp(5), wrap(777))), False),
        (ArrayType((dim(40_000, wrap(777)), 3)), False),
        (ArrayType(dim(6, func([9, 1, 4, 4, 0, 2]))), False),
        (ArrayType((dim(6, func(range(5, -1, -1))), 3)), True),
        (ArrayType((threads(3), dim(5, disp(1), wrap(5)))), False),
        (threads((3, 4)), True),
        (ArrayType((0, 4)), True),
    ],
    ids=str,
)
def test_chosen_types(made, is_affine):
    """Cycles, tables, distributed types, thread arrays and empty types."""
    assert reckoning.is_affine(made) == is_affine
    assert check(made)


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (ArrayType(dim(4, func(lambda i: i))), "calls a function"),
        (ArrayType((1 << 62, 4)), "beyond 64 bits"),
        (ArrayType(dim(1 << 43, disp(3), wrap(1 << 43))), "not affine"),
        (ArrayType(dim(60, func([k * k % 59 for k in range(60)]))), "in no order"),
    ],
    ids=str,
)
def test_refused_types(made, what):
    """Arithmetic of 64 bits cannot give the places of all types."""
    with pytest.raises(omp.LayoutError, match=what):
        reckoning.check(made)
        reckoning.place(made, [(made.size, Traced(1))])
