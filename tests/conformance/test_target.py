"""`target` and its map clauses: OpenMP_VV groups A, F, H, J and LLVM's offload/test/mapping."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import offload as omp
from offload import alloc, from_, section, to, tofrom

N = 100


def on_device(device=0):
    """Assert that the calling body runs on a device."""
    assert not omp.is_initial_device()
    assert omp.get_device_num() == device


def test_target_defaultmap(runtime):
    """4.5/target/test_target_defaultmap.c: with no clause the host's scalars are unchanged: they are firstprivate."""
    scalars = (np.int8(1), 2, np.float32(3), 4.0, True, 5j)

    def body(*values):
        on_device()
        return [value + 1 for value in values]

    assert omp.target(body)(*scalars) == [value + 1 for value in scalars]
    assert scalars == (np.int8(1), 2, np.float32(3), 4.0, True, 5j)


def test_target_map_global_arrays(runtime):
    """4.5/target/test_target_map_global_arrays.c: what the device writes to a tofrom array the host sees."""
    a = np.zeros(N)

    @omp.target(map=[tofrom("a")])
    def body(a):
        on_device()
        a[...] = omp.array_namespace(a).arange(N)

    body(a)
    assert a.sum() == sum(range(N))


def test_target_map_local_array(runtime):
    """4.5/target/test_target_map_local_array.c: the same for sections, and the rest of the array is untouched."""
    a = np.zeros(N)

    @omp.target(map=[tofrom("a[10:n]")])
    def body(a, n):
        on_device()
        assert a.shape == (n,)
        a += 1

    body(a, 5)
    assert a.sum() == 5
    assert (a[10:15] == 1).all()


def test_target_map_pointer(runtime):
    """4.5/target/test_target_map_pointer.c: an alias finds what an outer region maps, which alone copies."""
    a = np.zeros(N)
    alias = a[:]
    with omp.target_data(map=[tofrom(a)]):

        @omp.target(map=[to("p")])
        def body(p):
            on_device()
            p += 1

        body(alias)
        assert (a == 0).all()
    assert (a == 1).all()


def test_target_map_zero_length_pointer(runtime):
    """4.5/target/test_target_map_zero_length_pointer.c: an empty section needs no storage and makes no entry."""
    a = np.zeros(N)

    @omp.target(map=[tofrom("a"), to("b[0:0]")])
    def body(a, b):
        on_device()
        assert b.size == 0
        a += 1

    with omp.target_data(map=[tofrom(a)]):
        body(a, a)
        body(a, np.empty(0))
        assert len(runtime.places[0].table.entries()) == 1
    assert (a == 2).all()


def test_target_firstprivate(runtime):
    """4.5/target/test_target_firstprivate.c: scalars of several host threads, each with its row, do not mix."""
    rows = np.zeros((4, N))

    @omp.target(map=[tofrom("row")])
    def body(row, p):
        on_device()
        p += 1
        row += p

    def work(i):
        p = i
        body(rows[i], p)
        assert p == i

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (rows == np.arange(1, 5)[:, None]).all()


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("nowait", [True, False])
def test_target_if(runtime, condition, nowait):
    """4.5/target/test_target_if.c: true runs on the device; false on the host, whose data it changes directly."""
    c = np.ones(N)

    @omp.target(if_=condition, map=[tofrom("c")], nowait=nowait)
    def body(c):
        assert omp.is_initial_device() == (not condition)
        assert isinstance(c, np.ndarray) == (not condition)
        c -= 1

    body(c)
    omp.taskwait()
    assert (c == 0).all()


def test_target_device_array(runtime):
    """offload/test/mapping/implicit_device_ptr.c: an array of target_alloc needs no clause."""
    d, host = omp.target_alloc(N, np.int64), np.zeros(N, np.int64)

    @omp.target
    def body(d):
        on_device()
        d[...] = 2 * omp.array_namespace(d).arange(N)

    body(d)
    omp.target_memcpy(host, d)
    omp.target_free(d)
    assert (host == 2 * np.arange(N)).all()


def test_target_map_with_close_modifier(runtime):
    """5.0/target/test_target_map_with_close_modifier.c: close changes nothing that can be seen."""
    a, b = np.zeros(N), np.ones(N)

    @omp.target(map=[tofrom("a", close=True), to("b", close=True)])
    def body(a, b):
        on_device()
        a += b

    body(a, b)
    assert (a == 1).all()


@pytest.mark.parametrize("condition", [True, False])
def test_target_parallel_if_device(runtime, condition):
    """5.0/target/test_target_parallel_if_device.c: a region's if decides where it runs, also inside of target data."""
    a = np.zeros(N)
    for device in range(omp.get_num_devices()):
        a[...] = 0
        with omp.target_data(map=[tofrom(a)], device=device, if_=condition):
            assert omp.target(if_=condition, device=device)(omp.is_initial_device)() == (not condition)
            omp.target(if_=condition, device=device, map=[tofrom("a")])(lambda a: np.add(a, 1, out=a) is None)(a)
        assert (a == 1).all()


def test_target_device(runtime):
    """5.0/target/test_target_device.c: the region runs on the device that the clause names, the host among them."""
    for device in range(omp.get_num_devices()):
        assert omp.target(device=device)(omp.get_device_num)() == device
        assert not omp.target(device=device)(omp.is_initial_device)()
    for host in (omp.get_initial_device(), omp.initial_device):
        assert omp.target(device=host)(omp.get_device_num)() == omp.get_num_devices()


def test_target_map_present_ordering(runtime):
    """5.1/target/test_target_map_present_ordering.c: present is looked at before any other map of the construct."""
    x = np.zeros(N)
    region = omp.target(map=[from_("x"), to("x", present=True)])(lambda x: None)
    with pytest.raises(omp.NotPresentError):
        region(x)
    assert runtime.places[0].table.entries() == ()
    with omp.target_data(map=[alloc(x)]):
        region(x)


def test_map_ordering_tgt_alloc_present_tofrom(runtime):
    """offload/test/mapping/map_ordering_tgt_alloc_present_tofrom.c: present fails though another creates it."""
    x = np.zeros(N)
    with pytest.raises(omp.NotPresentError):
        omp.target(map=[alloc("x"), alloc("x", present=True), tofrom("x")])(lambda x: None)(x)


def test_target_implicit_partial_map(runtime):
    """offload/test/mapping/target_implicit_partial_map.c: deviating, an argument present in part is an error that says
    to pass the section; the part itself is found, and its exit counts."""
    a = np.arange(N)
    with omp.target_data(map=[tofrom(section(a, (50, 2)))]):
        with pytest.raises(omp.ExtensionError, match="pass the section"):
            omp.target(lambda a: None)(a)
        omp.target(lambda part: part.__imul__(2) is None)(a[50:52])
        assert a[50] == 50
    assert (a[50:52] == [100, 102]).all()
    assert runtime.places[0].table.entries() == ()


def test_target_present(runtime):
    """offload/test/mapping/present/target.c: present passes while the item is mapped; before and after it fails."""
    i = np.zeros(N)

    @omp.target(map=[alloc("i", present=True)])
    def region(i):
        on_device()
        i += 1

    for nowait in (False, True):
        strict = region.options(nowait=nowait)
        with pytest.raises(omp.NotPresentError):
            strict(i).result()
        with omp.target_data(map=[tofrom(i)]):
            strict(i)
        with pytest.raises(omp.NotPresentError):
            strict(i).result()
    assert (i == 2).all()
    assert runtime.places[0].table.entries() == ()


def test_map_back_race(runtime):
    """offload/test/mapping/map_back_race.cpp: regions of several host threads map one array at once; each has its own
    element there, and no addition is lost between one's copy back and another's copy in."""
    n_threads, n_times = 4, 100
    counters = np.zeros(n_threads)

    @omp.target(map=[tofrom("counters")])
    def bump(counters, k):
        on_device()
        counters[k : k + 1] += 1

    def work(k):
        for _ in range(n_times):
            bump(counters, k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.tolist() == [n_times] * n_threads
    assert runtime.places[0].table.entries() == ()


def test_target_assumed_array_size(runtime):
    """6.0/target/test_target_assumed_array_size.c: a section without bounds finds the array that is present."""
    a = np.zeros(N)

    @omp.target(map=[tofrom("p[:]", present=True)])
    def body(p):
        on_device()
        p += 1

    with pytest.raises(omp.NotPresentError):
        body(a)
    with omp.target_data(map=[tofrom(a)]):
        body(a)
        assert (a == 0).all()
    assert (a == 1).all()


def test_target_array_extension(runtime):
    """offload/test/mapping/present/target_array_extension.c: an explicit item larger than what is present fails."""
    a = np.arange(N)
    with omp.target_data(map=[alloc(a[10:20])]):
        for wrong in (a, a[15:25], a[5:15], a[9:20]):
            with pytest.raises(omp.ExtensionError):
                omp.target(map=[to("x", present=False)])(lambda x: None)(wrong)
            with pytest.raises(omp.NotPresentError):
                omp.target(map=[to("x", present=True)])(lambda x: None)(wrong)
        omp.target(map=[to("x", present=True)])(lambda x: None)(a[12:15])


def test_non_contiguous_items(runtime):
    """A strided item is packed on the device; elements between its own are untouched, transposed or reversed."""
    a = np.arange(60).reshape(6, 10)
    before = a.copy()
    for view in (a[:, :4], a[::2, 1::3], a.T[2:5], a[::-1, ::-2]):
        a[...] = before

        @omp.target(map=[tofrom("v")])
        def body(v, *, shape=view.shape):
            on_device()
            assert v.shape == shape
            v += 100

        body(view)
        expected = before.copy()
        offset = view.__array_interface__["data"][0] - a.__array_interface__["data"][0]
        np.ndarray(view.shape, a.dtype, expected, offset, view.strides)[...] += 100
        assert (a == expected).all()


def test_host_as_target(runtime):
    """offload/test/mapping/host_as_target.c: with the host as device nothing is mapped, always included."""
    a = np.zeros(N)
    host = omp.get_initial_device()
    omp.target_enter_data(map=[to(a)], device=host)
    omp.target(map=[tofrom("a", always=True)], device=host)(lambda a: a.__iadd__(1) is None)(a)
    assert (a == 1).all()
    omp.target_exit_data(map=[from_(a)], device=host)
    assert all(place.table.entries() == () for place in runtime.places)


def test_read_only_arguments(runtime):
    """An array in no clause that cannot be written is mapped to the device only; tofrom is an error at the call."""
    a = np.arange(N)
    a.flags.writeable = False
    assert omp.target(lambda a: float(a.sum()))(a) == sum(range(N))
    with pytest.raises(omp.MapError, match="read-only"):
        omp.target(map=[tofrom("a")])(lambda a: None)(a)
    repeated = np.broadcast_to(np.arange(3.0), (4, 3))
    assert omp.target(lambda a: float(a.sum()))(repeated) == 12


def test_arguments_by_every_way(runtime):
    """Arrays by position, in ``*args``, by keyword and as methods' arguments are mapped alike."""
    a, b, c = np.zeros(3), np.zeros(3), np.zeros(3)

    @omp.target
    def body(a, *rest, last):
        for x in (a, *rest, last):
            np.add(x, 1, out=x)

    body(a, b, last=c)

    class Holder:
        @omp.target
        def bump(self, a):
            assert isinstance(self, Holder)
            a += 1

    Holder().bump(a)
    assert (a == 2).all()
    assert (b == 1).all()
    assert (c == 1).all()


def test_one_array_under_two_names(runtime):
    """An array that is passed twice, and a part of it, are one storage on the device."""
    a = np.zeros(10)

    @omp.target
    def body(x, y, part):
        on_device()
        x += 1
        y += 1
        part += 1

    body(a, a, a[2:4])
    assert (a == [2, 2, 3, 3, 2, 2, 2, 2, 2, 2]).all()


def test_returned_views_are_refused(runtime):
    """A body that returns a view of storage which its construct releases is a MapError; a copy is a value."""
    a = np.arange(4.0)
    with pytest.raises(omp.MapError):
        omp.target(lambda a: a[1:])(a)
    with pytest.raises(omp.MapError):
        omp.target(lambda a: (1, a))(a)
    copied = omp.target(lambda a: a + 0)(a)
    host = np.empty(4)
    omp.target_memcpy(host, copied)
    assert (host == a).all()
    with omp.target_data(map=[to(a)]):
        omp.target(lambda a: a[1:])(a)


def test_map_always(runtime):
    """``always`` copies though the item is present; without it ``to`` on a present item copies nothing."""
    a = np.zeros(N)
    with omp.target_data(map=[to(a)]):
        a[...] = 7
        total = omp.target(map=[to("a")])(lambda a: float(a.sum()))
        assert total(a) == 0
        assert total.options(map=[to("a", always=True)])(a) == 7 * N
        omp.target(map=[from_("a", always=True)])(lambda a: a.__iadd__(1) is None)(a)
        assert (a == 8).all()
    assert (a == 8).all()


def test_failed_bodies_copy_nothing_back(runtime):
    """A region whose body fails on the device releases its mappings; the host's data is what it was."""
    a = np.arange(4.0)

    @omp.target(map=[tofrom("a")])
    def body(a):
        a += 100
        raise ArithmeticError("body")

    for region in (body, body.options(nowait=True)):
        with pytest.raises(ArithmeticError):
            result = region(a)
            result.result()
    assert (a == np.arange(4.0)).all()
    assert runtime.places[0].table.entries() == ()
