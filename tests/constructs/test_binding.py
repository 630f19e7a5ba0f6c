"""Bindings that are remembered: a call with the same arrays gets what it would get without."""

from __future__ import annotations

import gc
import threading
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


@pytest.mark.parametrize("construct", ["target", "parallel"])
def test_longer_since(sim, construct):
    """An array that a clause names is mapped as it is at each call, also where it has another size than before."""
    x = np.zeros(4)
    region = omp.target(add, map=[tofrom(x)]) if construct == "target" else acc.parallel(add, copy=[x])
    for _ in range(2):
        region(x, 1)
    x.resize(8, refcheck=False)
    for _ in range(3):
        region(x, 1)
    assert x.tolist() == [5, 5, 5, 5, 3, 3, 3, 3]


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
    region(x[:0], "empty")
    omp.taskwait()
    assert order[-1] == ("empty", visible)


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


def test_mapped_anew_before_the_launch(sim):
    """A region that was called while its arrays were present has those that are present when it gets its turn."""
    x, token, turn = np.zeros(4), object(), threading.Event()
    region = omp.target(add, nowait=True, depend=[omp.in_(("token", id(token)))])
    omp.target_enter_data(map=[to(x)])
    for _ in range(3):
        region(x, 1).result()
    waits = omp.task(turn.wait, depend=[omp.out(("token", id(token)))])
    waits()
    late = region(x, 1)
    omp.target_exit_data(map=[release(x)])
    x[:] = 10
    omp.target_enter_data(map=[to(x)])
    turn.set()
    late.result()
    omp.target_exit_data(map=[from_(x)])
    assert (x == 11).all()


def test_unmapped_before_the_launch(sim):
    """Where they are present no more it maps them, as at a first call."""
    x, token, turn = np.zeros(4), object(), threading.Event()
    region = omp.target(add, nowait=True, depend=[omp.in_(("token", id(token)))])
    omp.target_enter_data(map=[to(x)])
    for _ in range(3):
        region(x, 1).result()
    omp.task(turn.wait, depend=[omp.out(("token", id(token)))])()
    late = region(x, 1)
    omp.target_exit_data(map=[release(x)])
    x[:] = 10
    turn.set()
    late.result()
    assert (x == 11).all()


def test_views_in_turn(sim):
    """Sections of one mapped array are seen by their own layouts, whichever was seen before."""
    matrix = np.zeros((4, 6))
    parts = [matrix[:, :2], matrix[1], matrix[:, 3:], matrix[::2]]
    shapes = []

    def body(x, n):
        shapes.append(x.shape)
        x += n

    region = omp.target(body)
    with omp.target_data(map=[tofrom(matrix)]):
        for _ in range(3):
            for n, part in enumerate(parts):
                region(part, 10**n)
    assert shapes == [part.shape for part in parts] * 3
    wanted = np.zeros((4, 6))
    for n, at in enumerate((np.s_[:, :2], np.s_[1], np.s_[:, 3:], np.s_[::2])):
        wanted[at] += 3 * 10**n
    assert (matrix == wanted).all()


@pytest.mark.filterwarnings("ignore:Setting the dtype:DeprecationWarning")
def test_other_dtype(sim):
    """An array whose dtype has been set in place has that in the body, and is updated by it."""
    x = np.ones(4, np.float32)
    seen = []
    region = omp.target(lambda x: seen.append(x.dtype.str))
    with omp.target_data(map=[to(x)]):
        for dtype in ("<f4", "<i4", "<f4"):
            x.dtype = dtype
            for _ in range(3):
                region(x)
                omp.target_update(from_=[x])
    assert seen == ["<f4"] * 3 + ["<i4"] * 3 + ["<f4"] * 3
    assert (x == 1).all()


# -- updates -------------------------------------------------------------------------------------------


def test_updates_again(sim):
    """The same update made again copies what is there then, both ways, also of views of one array in turn."""
    matrix = np.zeros((4, 6))
    left, right = matrix[:, :3], matrix[:, 3:]
    region = omp.target(add)
    with omp.target_data(map=[to(matrix)]):
        for n in range(1, 5):
            for part in (left, right):
                part[:] = 10 * n
                omp.target_update(to=[part])
                region(part, 1)
                part[:] = 0
                omp.target_update(from_=[part])
                assert (part == 10 * n + 1).all()


def test_updates_of_what_is_mapped_anew(sim):
    """An update whose items have been unmapped and mapped again finds the new storage, and none ignores them."""
    x = np.zeros(4)
    for n in range(1, 4):
        omp.target_enter_data(map=[to(x)])
        for _ in range(3):
            x[:] = n
            omp.target_update(to=[x])
            x[:] = 0
            omp.target_update(from_=[x])
            assert (x == n).all()
        omp.target_exit_data(map=[release(x)])
        x[:] = 7
        omp.target_update(from_=[x])
        assert (x == 7).all()
        with pytest.raises(omp.NotPresentError):
            omp.target_update(from_=[x], present=True)


def test_updates_of_what_is_read_only_since(sim):
    """An array that cannot be written any more is not copied to, whatever was before."""
    x = np.zeros(4)
    with omp.target_data(map=[to(x)]):
        for _ in range(3):
            omp.target_update(from_=[x])
        x.flags.writeable = False
        with pytest.raises(MapError, match="read-only"):
            omp.target_update(from_=[x])
        omp.target_update(to=[x])


def test_memory_goes_with_the_mapping_of_updates(sim):
    """What is remembered of an update keeps no array, once its mapping or another has ended."""
    x, other = np.zeros(4), np.zeros(4)
    omp.target_enter_data(map=[to(x, other)])
    view = x[1:3]
    for _ in range(3):
        omp.target_update(to=[view])
    gone = weakref.ref(view)
    del view
    omp.target_exit_data(map=[release(other)])
    gc.collect()
    assert gone() is None
    omp.target_exit_data(map=[release(x)])


@pytest.mark.parametrize("kind", ["region", "update"])
def test_device_memory_goes_at_once(sim, kind):
    """What is remembered keeps no memory of a device from going with its mapping, and needs no collector for that."""
    x = np.zeros(1000)
    place = omp.runtime.current.current_runtime().places[0]
    before = place.device.live_nbytes()
    gc.disable()
    try:
        omp.target_enter_data(map=[to(x)])
        for _ in range(3):
            if kind == "region":
                omp.target(add)(x, 1)
            else:
                omp.target_update(to=[x])
        omp.target_exit_data(map=[release(x)])
        assert place.device.live_nbytes() == before
    finally:
        gc.enable()
