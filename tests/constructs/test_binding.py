"""Bindings that are remembered: a call with the same arrays gets what it would get without."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import offload as omp
from offload import MapError, acc, from_, release, to, tofrom


def add(x, n):
    x += n


def test_other_scalars(sim):
    """Scalars are those of the call, also behind arrays that are the same."""
    x = np.zeros(4)
    with omp.target_data(map=[tofrom(x)]):
        for n in range(4):
            omp.target(add)(x, n)
            omp.target(add, map=[tofrom("x")])(x, 10 * n)
            acc.parallel(add, present=["x"], async_=1)(x, 100 * n)
            acc.wait()
    assert (x == 666).all()


def test_other_slots(sim):
    """The same arrays in other slots are other arguments."""
    x, y = np.ones(4), np.full(4, 2.0)
    seen = []

    def body(a, b):
        seen.append((float(a[0]), b if isinstance(b, int) else float(b[0])))

    region = omp.target(body)
    with omp.target_data(map=[to(x, y)]):
        for args in ((x, y), (y, x), (x, x), (x, 3)) * 2:
            region(*args)
    assert seen == [(1, 2), (2, 1), (1, 1), (1, 3)] * 2


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")
@pytest.mark.parametrize("clauses", [{}, {"map": [tofrom("x")]}])
def test_other_layout(sim, clauses):
    """An array whose shape has changed has the new one in the body."""
    x = np.arange(12.0)
    shapes = []

    def body(x):
        shapes.append((x.shape, float(x[-1].sum())))

    region = omp.target(body, **clauses)
    with omp.target_data(map=[to(x)]):
        for _ in range(2):
            region(x)
        x.shape = (3, 4)
        for _ in range(2):
            region(x)
    assert shapes == [((12,), 11.0)] * 2 + [((3, 4), 38.0)] * 2


def test_read_only_since(sim):
    """An array that cannot be written any more is refused as at a first call, and without a clause it is `to`."""
    x = np.zeros(4)
    named, implicit = omp.target(add, map=[tofrom("x")]), omp.target(add)
    with omp.target_data(map=[to(x)]):
        for _ in range(2):
            named(x, 1)
            implicit(x, 1)
        x.flags.writeable = False
        with pytest.raises(MapError, match="read-only"):
            named(x, 1)
        implicit(x, 1)
    implicit(x, 1)
    assert (x == 0).all()


def test_other_clauses(sim):
    """What one function remembers of an array says nothing about another's clauses."""
    x = np.zeros(4)
    regions = [omp.target(add, map=[kind("x")]) for kind in (to, from_, tofrom)] + [omp.target(add)]
    omp.target_enter_data(map=[to(x)])
    for region in regions * 2:
        region(x, 1)
    omp.target_exit_data(map=[release(x)])
    assert (x == 0).all()
    for region, seen in zip(regions, (0, None, 1, 2), strict=True):
        region(x, 1)
        if seen is None:
            x[:] = 0  # it has come back uninitialised
        else:
            assert (x == seen).all()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_memory_goes_with_the_mapping(sim, asynchronous):
    """No array is kept when its mapping, or any other, has ended."""
    x, other = np.zeros(4), np.zeros(4)
    view = x[1:3]
    region = acc.parallel(add, present=["x"], async_=1) if asynchronous else omp.target(add)
    omp.target_enter_data(map=[to(x, other)])
    for _ in range(3):
        region(view, 1)
        acc.wait()
    gone = weakref.ref(view)
    del view
    omp.target_exit_data(map=[release(other)])
    gc.collect()
    assert gone() is None
    region(x, 1)
    acc.wait()
    omp.target_exit_data(map=[release(x)])
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_mapped_anew(sim):
    """An array that is mapped again after its mapping has ended gets its values there, and they come back."""
    x = np.zeros(4)
    region = omp.target(add)
    for n in range(1, 4):
        with omp.target_data(map=[tofrom(x)]):
            region(x, 1)
            region(x, 1)
        region(x, 1)
        assert (x == 3 * n).all()


def test_views_of_the_moment(sim):
    """Any number of arrays that exist for one call only is no reason to remember all."""
    x = np.zeros(4)
    region = omp.target(add)
    with omp.target_data(map=[tofrom(x)]):
        for _ in range(600):
            region(x[1:3], 1)
    assert x.tolist() == [0, 600, 600, 0]


def test_wrong_arguments(sim):
    """A call that lacks an argument is refused at the call, whatever is remembered of the others."""
    x = np.zeros(4)
    region = omp.target(add, map=[tofrom("x")], depend=[omp.inout("x")], nowait=True)
    with omp.target_data(map=[tofrom(x)]):
        for args in ((x, 1), (x, 1), (x,), (), (x, 1, 2), (x, 1)):
            if len(args) == 2:
                region(*args).result()
            else:
                with pytest.raises(TypeError, match="argument"):
                    region(*args)
    assert (x == 3).all()


@pytest.mark.parametrize("depend", [["x"], ["x", "n"], ["x", "visible"]])
def test_named_dependences(sim, depend):
    """Dependences on parameters and on names that a function sees are those of the call."""
    visible = "a location"
    x, order = np.zeros(4), []

    def body(x, n):
        order.append((n, visible))

    region = omp.target(body, map=[tofrom("x")], depend=[omp.inout(*depend)], nowait=True)
    for n in range(20):
        region(x, n)
    omp.taskwait()
    assert order == [(n, visible) for n in range(20)]
    with pytest.raises(omp.DependError, match="no elements"):
        region(x[:0], 1)


def test_named_dependences_of_a_blocking_region(sim):
    """A blocking region with dependences on parameters follows the task that its argument's storage is written by."""
    x = np.zeros(4)
    region = omp.target(add, map=[tofrom("x")], depend=[omp.inout("x")])

    @omp.task(depend=[omp.out(x)])
    def fill():
        x[:] = 7

    for _ in range(3):
        fill()
        region(x, 1)
        assert (x == 8).all()
