"""`use_device_ptr` and `use_device_addr` of `target_data`: OpenMP_VV groups B, F, H and LLVM's offload/test/mapping."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import alloc, section, to, tofrom

N = 64


def address(array):
    """The device address of element 0."""
    described = getattr(array, "__cuda_array_interface__", None)
    return described["data"][0] if described else array.__offload_section__().address


def bump(*arrays):
    assert not omp.is_initial_device()
    for array in arrays:
        array[...] += 1


@pytest.mark.parametrize("clause", ["use_device_ptr", "use_device_addr"])
def test_target_data_use_device_ptr(runtime, clause):
    """4.5/target_data/test_target_data_use_device_ptr.c: the device array of what an outer region maps works in a
    region that names it in is_device_ptr."""
    a = np.zeros(N)
    with omp.target_data(map=[tofrom(a)]):
        with omp.target_data(map=[], **{clause: [a]}) as (d,):
            assert not isinstance(d, np.ndarray)
            assert (d.shape, d.dtype) == (a.shape, a.dtype)
            omp.target(bump, is_device_ptr=[d])(d)
        assert (a == 0).all()
    assert (a == 1).all()


def test_target_data_map_and_use_device_ptr(runtime):
    """5.0/target_data/test_target_data_use_device_ptr.c: the translation follows the map of the same directive;
    pointers come first, and nothing is counted."""
    a, b, c = np.zeros(N), np.zeros((4, 8)), np.zeros(3)
    with omp.target_data(
        map=[tofrom(a), tofrom(b), to(c)], use_device_addr=(b, section(a, (8, 4))), use_device_ptr=[c]
    ) as (dc, db, part):
        assert [x.shape for x in (dc, db, part)] == [(3,), (4, 8), (4,)]
        omp.target(bump, has_device_addr=[db, part])(db, part)
        assert all(entry.count == 1 for place in runtime.places for entry in place.table.entries())
    assert (b == 1).all()
    assert a.sum() == 4
    assert (a[8:12] == 1).all()


def test_target_teams_is_device_ptr(runtime):
    """5.0/target/test_target_teams_is_device_ptr.c: what use_device_addr gives is usable in a later is_device_ptr."""
    a = np.arange(float(N))

    @omp.target(is_device_ptr=["p"])
    def body(p, total):
        bump(p)
        total += p.sum()

    total = np.zeros(1)
    with omp.target_data(map=[tofrom(a)], use_device_addr=[a]) as (d,):
        body(d, total)
        body.options(nowait=True)(d, total).result()
    assert (a == np.arange(N) + 2).all()
    assert total[0] == 2 * np.arange(N).sum() + 3 * N


def test_target_has_device_addr(runtime):
    """5.1/target/test_target_has_device_addr.c: the address under has_device_addr is the one an ordinary map shows."""
    x, arr = np.array(10.0), np.arange(float(N))
    with omp.target_data(map=[tofrom(x), tofrom(arr)], use_device_addr=[x, arr]) as (dx, darr):
        given = omp.target(lambda x, arr: (address(x), address(arr)), has_device_addr=["x", "arr"])(dx, darr)
        seen = omp.target(lambda x, arr: (address(x), address(arr)), map=[to("x"), to("arr")])(x, arr)
        assert given == seen == (address(dx), address(darr))


@pytest.mark.parametrize("clause", ["use_device_ptr", "use_device_addr"])
@pytest.mark.parametrize("part", [slice(None), slice(8, 20), slice(None, None, 3)])
def test_target_data_use_device_addr(runtime, clause, part):
    """offload/test/mapping/use_device_addr/target_data_use_device_addr_{var,arrsec}_{existing,not_existing}.cpp:
    present data is translated, sections too; absent data keeps its value."""
    a = np.zeros(N)
    view = a[part]
    with omp.target_data(map=[], **{clause: [view]}) as (same,):
        assert same is view
    with omp.target_data(map=[tofrom(a)]), omp.target_data(**{clause: [view]}) as (d,):
        omp.target(bump)(d)
    assert (view == 1).all()
    assert a.sum() == view.size
    with omp.target_data(map=[alloc(a[:30])], **{clause: [a]}) as (same,):
        assert same is a
    assert all(place.table.entries() == () for place in runtime.places)


def test_use_device_without_a_device(runtime):
    """With ``if_=False``, and on the host device, the block is given the arrays themselves."""
    a, b = np.zeros(N), np.zeros(N)
    for clauses in ({"if_": False}, {"device": omp.get_initial_device()}):
        with omp.target_data(map=[tofrom(a)], use_device_ptr=[a], use_device_addr=[b], **clauses) as given:
            assert given[0] is a
            assert given[1] is b
            omp.target(lambda p: p.fill(1), is_device_ptr=["p"], if_=False)(given[0])
    assert (a == 1).all()
    with omp.target_data(map=[tofrom(a)]) as given:
        assert given == ()


def test_use_device_of_a_deferred_construct(streams):
    """With ``nowait`` the block begins when what it asks for is mapped."""
    a = np.ones(N)
    streams.go()
    with omp.target_data(map=[tofrom(a)], use_device_ptr=[a], nowait=True) as (d,):
        omp.target(bump, is_device_ptr=[d])(d)
    omp.taskwait()
    assert (a == 2).all()


def test_use_device_wrong_items(sim):
    """Strings, non-arrays and arrays of Python objects are errors, and nothing is mapped."""
    a = np.zeros(N)
    for wrong in (["a"], [3], [None], [np.array([None])]):
        for clause in ("use_device_ptr", "use_device_addr"):
            with pytest.raises(omp.ClauseError), omp.target_data(map=[to(a)], **{clause: wrong}):
                pytest.fail("the block must not begin")
    assert sim.places[0].table.entries() == ()
    d = omp.target_alloc(N)
    with omp.target_data(use_device_ptr=[d]) as (same,):
        assert same is d
    omp.target_free(d)
