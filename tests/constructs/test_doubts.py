"""Warnings of what a construct does, and hardly what its words make one expect."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import offload as omp
from offload import delete, from_, in_, inout, inoutset, out, release, to, tofrom
from offload.arrays.items import MAPPERS

N = 8


@pytest.fixture
def runtime():
    with omp.Runtime("sim:1", check=True) as runtime:
        yield runtime


@pytest.mark.parametrize("nowait", [False, True])
def test_an_update_that_writes_what_it_says_it_reads(runtime, nowait):
    """target_update whose from_ is named by in_ only warns at the line of the call, and copies as it says."""
    a, b = np.zeros(N), np.zeros(N)
    with omp.target_data(map=[to(a, b)]):
        omp.target(lambda x: x.fill(3) if isinstance(x, np.ndarray) else x.__iadd__(3))(a)
        with pytest.warns(omp.DirectiveWarning, match="in_ only.*out or inout") as caught:
            omp.target_update(from_=[a], depend=[in_(a)], nowait=nowait)
        omp.taskwait()
        assert caught[0].filename == __file__
        assert (a == 3).all()
        for items, depend in (
            ([a], [in_(a[:2])]),
            ([a[::2]], [in_(b), in_(a)]),
            ([a, b], [out(a), in_(b)]),
            ([a], [omp.depobj(in_(a))]),
        ):
            with pytest.warns(omp.DirectiveWarning, match="in_ only"):
                omp.target_update(from_=items, depend=depend, nowait=nowait)
        omp.taskwait()


def test_updates_that_say_what_they_do(runtime):
    """No warning where another clause writes the storage, and where it is read, another one, or in no clause."""
    a, b = np.zeros(N), np.zeros(N)
    with warnings.catch_warnings(record=True) as said, omp.target_data(map=[to(a, b)]):
        warnings.simplefilter("always")
        omp.target_update(to=[a], depend=[in_(a)])
        omp.target_update(from_=[a])
        for depend in (
            [inout(a)],
            [out(a), in_(b)],
            [in_(a), inout(a[:3])],
            [inoutset(a)],
            [in_(b)],
            [in_(("token",))],
            [in_(a), out(omp.all_memory)],
        ):
            omp.target_update(from_=[a], depend=depend)
        omp.target_update(from_=[a[::2]], depend=[in_(a[1::2])])
    assert not said


def test_an_update_of_an_object(runtime):
    """What the mapper of an object moves counts as written, and as named."""

    class Holder:
        def __init__(self):
            self.x = np.zeros(N)

    before = dict(MAPPERS)
    try:
        omp.declare_mapper(Holder, lambda holder: [tofrom(holder.x)])
        holder = Holder()
        with pytest.warns(omp.DirectiveWarning, match="in_ only"):
            omp.target_update(from_=[holder], depend=[in_(holder)])
        omp.target_update(from_=[holder], depend=[inout(holder.x)])
    finally:
        MAPPERS.clear()
        MAPPERS.update(before)


@pytest.mark.parametrize("on_device", [False, True])
def test_copies_and_fills_that_write_what_they_say_they_read(runtime, on_device):
    """The asynchronous memory routines warn of a destination that is named by in_ only, on the host and a device."""
    a, d = np.zeros(N), omp.target_alloc(N, "f8")
    dst, src = (d, a) if on_device else (a, d)
    for call in (
        lambda depend: omp.target_memcpy_async(dst, src, depend=depend),
        lambda depend: omp.target_memcpy_rect_async(dst, src, depend=depend),
        lambda depend: omp.target_memset_async(dst, 0, depend=depend),
    ):
        with pytest.warns(omp.DirectiveWarning, match="in_ only"):
            call([in_(dst)]).result()
        call([in_(src), out(dst)]).result()
        call([in_(src)]).result()
    omp.target_free(d)


@pytest.mark.parametrize("nowait", [False, True])
def test_an_exit_that_copies_nothing(runtime, nowait):
    """target_exit_data from associated storage copies nothing without always, and warns of it."""
    a, d = np.ones(N), omp.target_alloc(N, "f8")
    omp.target_associate_ptr(a, d)
    omp.target_memset(d, 0)
    for items in ([from_(a)], [a], [from_(a[2:4])]):
        with pytest.warns(omp.DirectiveWarning, match="target_update.*always") as caught:
            omp.target_exit_data(map=items, nowait=nowait)
        omp.taskwait()
        assert caught[0].filename == __file__
    assert (a == 1).all()
    for items in ([release(a)], [delete(a)], [from_(np.ones(3))], [from_(a, always=True)]):
        omp.target_exit_data(map=items, nowait=nowait)
    omp.taskwait()
    assert (a == 0).all()
    omp.target_disassociate_ptr(a)
    omp.target_free(d)
