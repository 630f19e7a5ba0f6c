"""`target_data`, `target_enter_data`, `target_exit_data`: OpenMP_VV groups B, C, I, J and LLVM 2.1."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import alloc, delete, from_, in_, inout, out, release, section, to, tofrom

N = 64


def add(a, value):
    """Add on the device; assert that it is one."""
    assert not omp.is_initial_device()
    a += value


def total(a):
    assert not omp.is_initial_device()
    return float(a.sum())


# -- target data ------------------------------------------------------------------------------------
def test_target_data_map_to(runtime):
    """4.5/target_data/test_target_data_map_to.c: an inner region without a clause finds the values of the entry."""
    a = np.arange(N, dtype=float)
    with omp.target_data(map=[to(a)]):
        a[...] = -1
        assert omp.target(total)(a) == sum(range(N))
    assert (a == -1).all()


def test_target_data_map_from(runtime):
    """4.5/target_data/test_target_data_map_from.c: what the device writes is seen after the region, not before."""
    a = np.zeros(N)
    with omp.target_data(map=[from_(a)]):
        omp.target(lambda a: a.fill(0) or add(a, 3))(a)
        assert (a == 0).all()
    assert (a == 3).all()


def test_target_data_map_tofrom(runtime):
    """4.5/target_data/test_target_data_map_tofrom.c: += 1 on the device is seen after the region; bare arrays too."""
    a, b = np.ones(N), np.ones(N)
    with omp.target_data(map=[tofrom(a), b]):
        omp.target(add)(a, 1)
        omp.target(add)(b, 1)
        assert (a == 1).all()
    assert (a == 2).all()
    assert (b == 2).all()


def test_target_data_map_alloc(runtime):
    """4.5/target_data/test_target_data_map_alloc.c: alloc gives storage that can be written, and moves nothing."""
    a, d, found = np.zeros(N), omp.target_alloc(1, np.float64), np.zeros(1)

    def body(a, d):
        a[...] = 1
        d[0] = a.sum()

    with omp.target_data(map=[alloc(a)]):
        omp.target(body)(a, d)
        omp.target_memcpy(found, d)
    omp.target_free(d)
    assert found[0] == N
    assert (a == 0).all()


def test_target_data_map_devices(runtime):
    """4.5/target_data/test_target_data_map_devices.c: by the default device and by the clause alike."""
    count = omp.get_num_devices()
    h = np.full((count, N), -1.0)
    for d in range(count):
        omp.set_default_device(d)
        with omp.target_data(map=[tofrom(h[d])]):
            omp.target(lambda row, d: add(row, d + 1) or omp.get_device_num())(h[d], d)
    assert (h == np.arange(count)[:, None]).all()
    omp.set_default_device(0)
    for d in range(count):
        with omp.target_data(map=[tofrom(h[d])], device=d):
            omp.target(add, device=d)(h[d], 1)
    assert (h == np.arange(count)[:, None] + 1).all()


def test_target_data_pointer_swap(runtime):
    """4.5/target_data/test_target_data_pointer_swap.c: swapping names inside does not redirect the copy at the exit."""
    a, b = np.zeros(N), np.zeros(N)
    first, second = a, b
    with omp.target_data(map=[tofrom(a), to(b)]):
        omp.target(add)(a, 1)
        omp.target(add)(b, 2)
        a, b = b, a
        omp.target_update(from_=[a[: N // 2]])  # an update takes what the name means now
        assert (first == 0).all()
    assert (first == 1).all()
    assert (second == np.repeat([2, 0], N // 2)).all()


def test_target_data_implicit_taskgroup(streams):
    """6.0/target/test_target_data.c: inner nowait regions, and what tasks generate, are done when the block ends."""
    a, b = np.zeros(N), np.zeros(N)

    def nested():
        for _ in range(3):
            omp.target(nowait=True, depend=[inout(b)])(add)(b, 1)

    streams.go()
    with omp.target_data(map=[tofrom(a, b)]):
        omp.target(nowait=True, depend=[inout(a)])(add)(a, 1)
        omp.task(nested)()
    assert (a == 1).all()
    assert (b == 3).all()


def test_target_data_depend(streams):
    """6.0/target/test_target_data.c: with nowait and depend entry and exit are tasks like others."""
    a = np.zeros(N)
    omp.task(depend=[out(a)])(lambda: a.fill(5))()
    with omp.target_data(map=[tofrom(a)], nowait=True, depend=[inout(a)], nogroup=True):
        omp.target(nowait=True, depend=[inout(a)])(add)(a, 1)
        streams.go()
    omp.task(depend=[inout(a)])(lambda: np.add(a, 1, out=a))()
    omp.taskwait()
    assert (a == 7).all()


def test_target_data_that_raises(runtime):
    """If the block raises, data is copied back and released all the same, and the exception goes on."""
    a = np.zeros(N)
    with pytest.raises(KeyError), omp.target_data(map=[tofrom(a)]):
        omp.target(add)(a, 1)
        raise KeyError
    assert (a == 1).all()
    with pytest.raises(KeyError) as caught, omp.target_data(map=[tofrom(a)]):
        omp.target(nowait=True)(lambda a: 1 / 0)(a)
        raise KeyError
    assert "ZeroDivisionError" in "".join(caught.value.__notes__)
    with pytest.raises(ExceptionGroup), omp.target_data(map=[tofrom(a)]):
        omp.target(nowait=True)(lambda a: 1 / 0)(a)


def test_data_absent_at_exit(runtime):
    """offload/test/mapping/data_absent_at_exit.c: what was deleted inside is ignored at the end; exits of what was
    never mapped change nothing."""
    f, af = np.full(N, 5.0), np.full(N, 8.0)
    with omp.target_data(map=[from_(f), from_(af, always=True)]):
        omp.target(lambda f, af: add(f, 100) or add(af, 100))(f, af)
        omp.target_exit_data(map=[delete(f, af)])
        assert runtime.places[0].table.entries() == ()
    for clause in (from_(f), release(f), delete(f), from_(f, always=True)):
        omp.target_exit_data(map=[clause])
    assert (f == 5).all()
    assert (af == 8).all()


def test_target_data_array_extension(runtime):
    """offload/test/mapping/present/target_data_array_extension.c: an item larger than what is present fails."""
    a = np.zeros(N)
    with omp.target_data(map=[alloc(a[:10])]):
        for construct in (omp.target_data, omp.target_enter_data):
            for clause, error in ((alloc(a), omp.ExtensionError), (alloc(a, present=True), omp.NotPresentError)):
                with pytest.raises(error):
                    construct(map=[clause]).__enter__()


def test_target_data_present(runtime):
    """offload/test/mapping/present/target_data.c, offload/test/mapping/present/target_enter_data.c: present passes
    while the item is mapped; before and after it fails, with nowait too, and maps nothing."""
    i = np.arange(N, dtype=float)

    def enter(**clauses):
        omp.target_enter_data(map=[alloc(i, present=True)], **clauses)
        omp.target_exit_data(map=[release(i)])

    def region():
        with omp.target_data(map=[tofrom(i, present=True)]):
            assert omp.target(total)(i) == sum(range(N))

    for absent in (True, False, True):
        if absent:
            for attempt in (enter, region):
                with pytest.raises(omp.NotPresentError):
                    attempt()
            with pytest.raises(omp.NotPresentError):
                omp.target_enter_data(map=[alloc(i, present=True)], nowait=True).result()
            assert runtime.places[0].table.entries() == ()
        else:
            with omp.target_data(map=[to(i)]):
                enter()
                region()
                assert [entry.count for entry in runtime.places[0].table.entries()] == [1]


def test_zero_length_array_section(runtime):
    """offload/test/mapping/present/zero_length_array_section_exit.c: empty items make no entry; with present their
    address must be present."""
    a, b = np.zeros(N), np.zeros(N)
    empty = a[3:3]
    omp.target_enter_data(map=[to(empty)])
    omp.target_exit_data(map=[from_(empty)])
    assert runtime.places[0].table.entries() == ()
    with omp.target_data(map=[alloc(a)]):
        omp.target_enter_data(map=[to(empty, present=True)])
        omp.target_exit_data(map=[release(empty, present=True)])
        with pytest.raises(omp.NotPresentError):
            omp.target_enter_data(map=[to(b[3:3], present=True)])
        with pytest.raises(omp.NotPresentError):
            omp.target_exit_data(map=[release(b[3:3], present=True)])


# -- enter and exit ---------------------------------------------------------------------------------
@pytest.mark.parametrize("condition", [True, False])
def test_target_enter_data_if(runtime, condition):
    """4.5/target_enter_data/test_target_enter_data_if.c: entered data is not refreshed by a later tofrom; without the
    entry the region copies by itself."""
    a = np.ones(N)
    omp.target_enter_data(map=[to(a)], if_=condition)
    a[...] = 10
    found = omp.target(map=[tofrom("a")])(total)(a)
    assert found == (N if condition else 10 * N)
    omp.target_exit_data(map=[release(a)], if_=condition)
    assert (a == 10).all()


def test_target_enter_data_global_array(runtime):
    """4.5/target_enter_data/test_target_enter_data_global_array.c: entered data survives until a later region."""
    a, b = np.full(N, 10.0), np.zeros(N)
    omp.target_enter_data(map=[to(a)])
    a[...] = 0

    @omp.target(map=[from_("b")])
    def body(a, b):
        b[...] = a

    body(a, b)
    omp.target_exit_data(map=[release(a)])
    assert (b == 10).all()
    assert (a == 0).all()


def test_target_enter_data_struct(runtime):
    """4.5/target_enter_data/test_target_enter_data_struct.c: arrays of structures are mapped as they are."""
    if runtime.places[0].device.kind != "sim":
        pytest.skip("CuPy has no structured dtypes")
    kind = np.dtype([("a", np.int32), ("p", np.float64, 3)])
    records, copies = np.zeros(N, kind), np.zeros(N, kind)
    records["a"] = np.arange(N)
    omp.target_enter_data(map=[to(records)])
    d = omp.target_alloc(N, kind)
    omp.target(lambda r, d: omp.current_stream().launch(np.copyto, d.unwrap(), r.unwrap()))(records, d)
    omp.target_memcpy(copies, d)
    omp.target_free(d)
    omp.target_exit_data(map=[release(records)])
    assert (copies == records).all()


def test_target_enter_exit_data_map_malloced_array(runtime):
    """4.5/target_enter_exit_data/test_target_enter_exit_data_map_malloced_array.c: the same through a view."""
    heap = np.arange(2 * N, dtype=float)[N:]
    expected = heap.sum()
    omp.target_enter_data(map=[to(heap)])
    assert omp.target(total)(heap) == expected
    omp.target(add)(heap, 1)
    assert heap.sum() == expected
    omp.target_exit_data(map=[from_(heap)])
    assert heap.sum() == expected + N


@pytest.mark.parametrize("last", [in_, inout])
def test_target_enter_exit_data_depend(streams, last):
    """4.5/target_enter_exit_data/test_target_enter_exit_data_depend.c: enter(out), target(inout), exit, task(in)."""
    a = np.ones(N)
    sums = []
    omp.target_enter_data(map=[to(a)], depend=[out(a)], nowait=True)
    omp.target(map=[alloc(a)], depend=[inout(a)], nowait=True)(add)(a, 1)
    omp.target_exit_data(map=[from_(a)], depend=[inout(a)], nowait=True)
    omp.task(depend=[last(a)])(lambda: sums.append(a.sum()))()
    streams.go()
    omp.taskwait()
    assert sums == [2 * N]


@pytest.mark.parametrize("condition", [True, False])
def test_target_enter_exit_data_if(runtime, condition):
    """4.5/target_enter_exit_data/test_target_enter_exit_data_if.c: all three directives, or none."""
    a = np.arange(N, dtype=float)
    omp.target_enter_data(map=[to(a)], if_=condition)
    omp.target(if_=condition, map=[alloc("a")])(lambda a: None if omp.is_initial_device() else add(a, 1))(a)
    omp.target_exit_data(map=[from_(a)], if_=condition)
    assert (a == np.arange(N) + condition).all()


def test_target_enter_data_map(runtime):
    """5.2/target_enter_data/test_target_enter_data_map.c: without a type enter copies to, exit copies from."""
    a = np.ones(N)
    omp.target_enter_data(map=[a])
    omp.target(add)(a, 4)
    assert (a == 1).all()
    omp.target_exit_data(map=[a])
    assert (a == 5).all()
    omp.target_enter_data(map=[tofrom(a)])
    omp.target(add)(a, 4)
    omp.target_exit_data(map=[tofrom(a)])
    assert (a == 9).all()


def test_counts(runtime):
    """A mapping ends when it was exited as often as entered; delete ends it at once; always copies in between."""
    a = np.zeros(N)
    entries = runtime.places[0].table.entries
    omp.target_enter_data(map=[to(a)])
    omp.target_enter_data(map=[to(a), alloc(a[:3])])
    assert [entry.count for entry in entries()] == [2]
    omp.target(add)(a, 1)
    omp.target_exit_data(map=[from_(a)])
    assert (a == 0).all()
    assert [entry.count for entry in entries()] == [1]
    omp.target_enter_data(map=[to(a)])
    omp.target_exit_data(map=[from_(a, always=True)])
    assert (a == 1).all()
    omp.target_enter_data(map=[to(a)])
    omp.target_exit_data(map=[delete(a)])
    assert entries() == ()


def test_map_ordering_tgt_exit_data_always_always(runtime, monkeypatch):
    """offload/test/mapping/map_ordering_tgt_exit_data_always_always.c: a duplicate item is copied and counted once;
    entering what is present copies nothing."""
    a = np.zeros(N)
    device = runtime.places[0].device
    copies = []
    plain = device.copy
    monkeypatch.setattr(device, "copy", lambda dst, src, stream: copies.append(dst is a) or plain(dst, src, stream))
    omp.target_enter_data(map=[to(a)])
    omp.target_enter_data(map=[alloc(a), to(a)])
    assert copies == [False]
    omp.target_exit_data(map=[from_(a, always=True), from_(a, always=True)])
    assert copies == [False, True]
    assert [entry.count for entry in runtime.places[0].table.entries()] == [1]
    omp.target_exit_data(map=[from_(a), delete(a)])
    assert copies == [False, True, True]


def test_map_types_of_each_construct(runtime):
    """Types that a construct does not take are errors at the call, also with nowait, and name those that it does."""
    a = np.zeros(N)
    for wrong in (from_(a), release(a), delete(a)):
        with pytest.raises(omp.ClauseError, match="allowed are"):
            omp.target_enter_data(map=[wrong], nowait=True)
    for wrong in (to(a), alloc(a)):
        with pytest.raises(omp.ClauseError, match="allowed are"):
            omp.target_exit_data(map=[wrong], nowait=True)
    for wrong in (release(a), delete(a)):
        with pytest.raises(omp.ClauseError, match="allowed are"), omp.target_data(map=[wrong]):
            pass
        with pytest.raises(omp.ClauseError, match="allowed are"):
            omp.target(map=[wrong], nowait=True)(lambda a: None)(a)


def test_sections(runtime):
    """Length is a number of elements, also with a stride; missing dimensions are whole."""
    a = np.zeros((6, 6))
    chosen = section(a, (1, 2, 2), (2, 3))
    with omp.target_data(map=[tofrom(chosen)]):
        omp.target(add)(chosen, 1)
    expected = np.zeros((6, 6))
    expected[1:4:2, 2:5] = 1
    assert (a == expected).all()
    with omp.target_data(map=[tofrom(section(a, (5, None)))]):
        omp.target(add)(a[5:], 1)
    assert a.sum() == 12


def test_an_array_that_became_read_only_loses_nothing_else(runtime):
    """At the end of a region the copy back that fails is an error, all others are made, and every count is right."""
    x, y = np.zeros(4), np.zeros(4)

    @omp.target
    def add(x, y):
        x += 1
        y += 1

    with pytest.raises(omp.MapError, match="read-only"), omp.target_data(map=[tofrom(x), tofrom(y)]):
        add(x, y)
        x.flags.writeable = False
    assert (y == 1).all()
    assert (x == 0).all()
    x.flags.writeable = True
    omp.target_enter_data(map=[to(x), to(y)])
    x.flags.writeable = False
    with pytest.raises(omp.MapError, match="read-only"):
        omp.target_exit_data(map=[from_(x), from_(y)])
    x.flags.writeable = True
    omp.target_exit_data(map=[from_(x), from_(y)])  # the one before had changed nothing


def test_masked_arrays_and_matrices_are_refused(runtime):
    """An array whose class changes what operations mean is no list item, as a device would not keep that meaning."""

    @omp.target
    def add(x):
        x += 1

    masked = np.ma.array([1.0, 2.0], mask=[0, 1])
    for call in (lambda: add(masked), lambda: omp.target_enter_data(map=[to(masked)])):
        with pytest.raises(omp.ClauseError, match="MaskedArray"):
            call()
    assert masked.data.tolist() == [1.0, 2.0]


def test_no_memory_says_what_takes_it():
    """A construct that does not fit names the bytes asked and free, and the largest mappings; nothing has changed."""
    a, b = np.zeros(80, "u1"), np.zeros(60, "u1")
    with omp.Runtime("sim", env={"OFFLOAD_SIM_MEMORY": "100"}, check=True), omp.target_data(map=[to(a)]):
        with pytest.raises(omp.DeviceMemoryError) as caught:
            omp.target_enter_data(map=[to(b)])
        assert (caught.value.asked_nbytes, caught.value.free_nbytes) == (60, 20)
        for words in ("60 bytes", "20 of 100", "[80] (80 bytes)"):
            assert words in str(caught.value)
        assert not omp.target_is_present(b)
