"""`target_update`: OpenMP_VV group D and LLVM 2.1, 2.3."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import alloc, delete, in_, inout, out, release, section, to, tofrom
from tests.conftest import streaming

N = 64


def add(a, value):
    """Add on the device; assert that it is one."""
    assert not omp.is_initial_device()
    a += value


def counts(runtime, device=0):
    return [entry.count for entry in runtime.places[device].table.entries()]


# -- OpenMP_VV --------------------------------------------------------------------------------------
def test_target_update_to(runtime):
    """4.5/target_update/test_target_update_to.c: host b doubled in a region is used by the device after update to."""
    a, b, c = np.full(N, 10.0), np.full(N, 2.0), np.zeros(N)

    def body(a, b, c):
        assert not omp.is_initial_device()
        c[...] = a + b

    with omp.target_data(map=[to(a, b), tofrom(c)]):
        b *= 2
        omp.target(body)(a, b, c)
        omp.target_update(from_=[c])
        assert (c == 12).all()
        omp.target_update(to=[b])
        omp.target(body)(a, b, c)
    assert (c == 14).all()
    assert omp.get_num_devices() == len(runtime.places)


def test_update_again(runtime):
    """What is updated again is copied as the array is then: in its present shape, mapped anew, refused if read-only."""
    a = np.zeros((4, N))
    items = [a]

    def body(a):
        assert not omp.is_initial_device()
        a += 1

    for round_ in range(2):
        with omp.target_data(map=[tofrom(a)]):
            for step in range(2):
                omp.target(body)(a)
                omp.target_update(from_=items)
                assert (a == 10 * round_ + step + 1).all()
            a.resize((N, 4), refcheck=False)  # in place, as NumPy takes no shape any more
            omp.target(body)(a)
            omp.target_update(from_=items)
            assert (a == 10 * round_ + 3).all()
            a.resize((4, N), refcheck=False)
            a[...] = 10 * (round_ + 1)
            omp.target_update(to=items)
    assert (a == 20).all()
    with omp.target_data(map=[to(a)]):
        omp.target_update(from_=items)
        a.flags.writeable = False
        with pytest.raises(omp.MapError, match="read-only"):
            omp.target_update(from_=items)
        omp.target_update(to=items)
        a.flags.writeable = True
    omp.target_update(from_=items)  # it is absent
    with pytest.raises(omp.NotPresentError):
        omp.target_update(from_=items, present=True)


def test_updates_at_two_lines(runtime):
    """Calls with the same arrays share what is remembered, and each task has the line of its own call."""
    a = np.zeros(N)
    with omp.target_data(map=[tofrom(a)]):
        for _ in range(3):
            first = omp.target_update(to=[a], nowait=True)
            second = omp.target_update(to=[a], nowait=True)
            lines = [int(task.construct.location.rpartition(":")[2]) for task in (first, second)]
            assert lines[1] == lines[0] + 1
            omp.taskwait()


@pytest.mark.parametrize(("condition", "expected"), [(False, 14), (True, 16)])
def test_target_update_if(runtime, condition, expected):
    """4.5/target_update/test_target_update_if.c: if(0) transfers nothing (14), if(1) does (16)."""
    a, b, c = np.full(N, 10.0), np.full(N, 2.0), np.zeros(N)

    def body(a, b, c):
        c[...] = a + 2 * b

    with omp.target_data(map=[to(a, b), tofrom(c)]):
        b += 1
        omp.target_update(to=[b], if_=condition)
        omp.target(body)(a, b, c)
    assert (c == expected).all()


def test_target_update_devices(runtime):
    """4.5/target_update/test_target_update_devices.c: an array goes from device to device; each adds 1."""
    a = np.zeros(N)
    count = omp.get_num_devices()
    for d in range(count):
        omp.target_enter_data(map=[alloc(a)], device=d)
    for d in range(count):
        omp.target_update(to=[a], device=d)
        omp.target(add, device=d)(a, 1)
        omp.target_update(from_=[a], device=d)
    assert a.sum() == count * N
    for d in range(count):
        omp.target_exit_data(map=[release(a)], device=d)


@pytest.mark.parametrize("spelling", ["section", "slice"])
def test_target_update_to_discontiguous(runtime, spelling):
    """5.0/target_update/test_target_update_to_discontiguous.c: r[0:N/2:2] updated: even elements 2i, odd ones i."""
    r = np.zeros(N)
    i = np.arange(N, dtype=float)
    item = section(r, (0, N // 2, 2)) if spelling == "section" else r[::2]
    with omp.target_data(map=[tofrom(r), to(i)]):
        r[...] = i
        omp.target_update(to=[item])
        omp.target(add)(r, i)
    assert (r[::2] == 2 * i[::2]).all()
    assert (r[1::2] == i[1::2]).all()


def test_target_update_mapper_to_discontiguous(runtime):
    """5.0/target_update/test_target_update_mapper_to_discontiguous.c: the same through a default mapper."""

    class Vector:
        def __init__(self):
            self.data = np.zeros(N)

    omp.declare_mapper(Vector, lambda v: [tofrom(v.data[::2])])
    v, i = Vector(), np.arange(N, dtype=float)
    with omp.target_data(map=[tofrom(v.data), to(i)]):
        v.data[...] = i
        omp.target_update(to=[v])
        omp.target(add)(v.data, i)
    assert (v.data[::2] == 2 * i[::2]).all()
    assert (v.data[1::2] == i[1::2]).all()


def test_target_update_to_present(runtime):
    """5.1/target_update/test_target_update_to_present.c: absent items are ignored and not mapped; present ones pass."""
    x = np.zeros(N)
    omp.target_update(to=[x])
    omp.target_update(from_=[x])
    assert counts(runtime) == []
    omp.target_enter_data(map=[to(x)])
    omp.target_update(to=[x], present=True)
    assert counts(runtime) == [1]
    omp.target_exit_data(map=[delete(x)])


# -- LLVM -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("direction", ["to", "from_"])
def test_target_update_present(runtime, direction):
    """offload/test/mapping/present/target_update.c: fine after enter data, an error after delete."""
    i = np.zeros(N)
    omp.target_enter_data(map=[alloc(i)])
    omp.target_update(**{direction: [i]}, present=True)
    omp.target_exit_data(map=[delete(i)])
    with pytest.raises(omp.NotPresentError):
        omp.target_update(**{direction: [i]}, present=True)
    task = omp.target_update(**{direction: [i]}, present=True, nowait=True)
    assert isinstance(task.exception(), omp.NotPresentError)


@pytest.mark.parametrize("direction", ["to", "from_"])
def test_target_update_array_extension(runtime, direction):
    """offload/test/mapping/present/target_update_array_extension.c: present in part is an error with present, else
    nothing."""
    a = np.zeros(N)
    with omp.target_data(map=[to(a[: N // 2])]):
        omp.target(add)(a[: N // 2], 1)
        with pytest.raises(omp.NotPresentError):
            omp.target_update(**{direction: [a]}, present=True)
        omp.target_update(**{direction: [a]})
    assert (a == 0).all()


def test_strided_offset_multidim_update(runtime):
    """offload/test/offloading/strided_offset_multidim_update.c: darr[1:2:2][2:3] moves rows 1 and 3, columns 2 to 4."""
    chosen = np.zeros((6, 6), bool)
    chosen[1:4:2, 2:5] = True
    a = np.arange(36.0).reshape(6, 6)
    item = section(a, (1, 2, 2), (2, 3))
    with omp.target_data(map=[to(a)]):
        omp.target(add)(a, 100)
        omp.target_update(from_=[item])
        assert (a == np.arange(36.0).reshape(6, 6) + 100 * chosen).all()
        a[...] = 0
        omp.target_update(to=[item])
        a[...] = -1
        omp.target_update(from_=[a])
    assert (a == np.where(chosen, 0, np.arange(36).reshape(6, 6) + 100)).all()


@pytest.mark.parametrize("direction", ["to", "from_"])
@pytest.mark.parametrize(
    "views",
    [
        pytest.param([(slice(0, 12, 3),)], id="strided_partial_update"),
        pytest.param([(slice(0, 20, 2),), (slice(1, 30, 4),)], id="strided_multiple_update"),
        pytest.param([(slice(40, 4, -5),)], id="strided_ptr_partial_update, backwards"),
    ],
)
def test_strided_partial_update(runtime, direction, views):
    """offload/test/offloading/strided_{partial,multiple,ptr_partial}_update_{from,to}.c: what was named moves, nothing
    else does."""
    a = np.arange(N, dtype=float)
    chosen = np.zeros(N, bool)
    for view in views:
        chosen[view] = True
    with omp.target_data(map=[to(a)]):
        omp.target(add)(a, 100)
        a += 1000
        omp.target_update(**{direction: [a[view] for view in views]})
        if direction == "to":
            a[...] = 0
            omp.target_update(from_=[a])
    i = np.arange(N)
    assert (a == (np.where(chosen, i + 1000, i + 100) if direction == "to" else i + 100 + 900 * ~chosen)).all()


def test_strided_update_struct(runtime):
    """offload/test/offloading/strided_update_struct_*.c: one member of an array of structures moves."""
    records = np.zeros(N, np.dtype([("a", np.int32), ("x", np.float64)], align=True))
    with omp.target_data(map=[to(records.view("u1"))]):  # CuPy has no structured dtypes
        records["a"] = 3
        records["x"] = 5
        omp.target_update(to=[records["x"]])
        records[...] = 0
        omp.target_update(from_=[records.view("u1")])
    assert (records["x"] == 5).all()
    assert (records["a"] == 0).all()


# -- the rest of the rules --------------------------------------------------------------------------
def test_counts_do_not_change(runtime):
    """An update counts nothing, also of an entry that two constructs hold."""
    a = np.zeros(N)
    omp.target_enter_data(map=[to(a)])
    omp.target_enter_data(map=[to(a)])
    omp.target_update(to=[a[:3]], from_=[a[5:]])
    assert counts(runtime) == [2]
    omp.target_exit_data(map=[delete(a)])


def test_packed_entries(runtime):
    """An item of a packed mapping, and one turned round, are updated in place; its neighbours on the host stay."""
    a = np.zeros((6, 8))
    tile = a[1:5, 2:6]
    with omp.target_data(map=[to(tile)]):
        omp.target(add)(tile, np.float64(7))
        omp.target_update(from_=[tile[::-2, 1:].T])
    expected = np.zeros((6, 8))
    expected[[2, 4], 3:6] = 7
    assert (a == expected).all()


def test_both_directions_at_once(runtime):
    """One update may move some items to the device and others from it."""
    a, b = np.zeros(N), np.zeros(N)
    with omp.target_data(map=[to(a, b)]):
        omp.target(add)(b, 2)
        a[...] = 3
        omp.target_update(to=[a], from_=[b])
        a[...] = 0
        omp.target_update(from_=[a])
    assert (a == 3).all()
    assert (b == 2).all()


def test_zero_size(runtime):
    """An item without elements is ignored; with present its address must be present."""
    a, b = np.zeros(N), np.zeros(N)
    with omp.target_data(map=[to(a)]):
        omp.target_update(to=[a[3:3]], from_=[b[3:3]])
        omp.target_update(to=[a[3:3]], present=True)
        with pytest.raises(omp.NotPresentError):
            omp.target_update(to=[b[3:3]], present=True)
    assert counts(runtime) == []


def test_read_only(runtime):
    """A read-only array is updated to the device; from it is refused at the call."""
    a = np.ones(N)
    a.flags.writeable = False
    with omp.target_data(map=[to(a)]):
        omp.target_update(to=[a])
        with pytest.raises(omp.MapError, match=r"^target_update\(from: .*read-only"):
            omp.target_update(from_=[a], nowait=True)


def test_update_depend(streams):
    """An update with nowait follows its dependences and is followed by them, whatever the streams do."""
    a, b = np.zeros(N), np.zeros(N)
    omp.target_enter_data(map=[to(a)], depend=[out(a)], nowait=True)
    omp.target(depend=[inout(a)], nowait=True)(add)(a, 1)
    omp.target_update(from_=[a], depend=[inout(a)], nowait=True)
    omp.task(depend=[inout(a)])(lambda: np.multiply(a, 10, out=a))()
    omp.target_update(to=[a], depend=[inout(a)], nowait=True)
    omp.target(depend=[inout(a)], nowait=True)(add)(a, 1)
    omp.target_update(from_=[a], depend=[inout(a)], nowait=True)
    omp.task(depend=[in_(a), out(b)])(lambda: np.copyto(b, a))()
    omp.target_exit_data(map=[release(a)], depend=[inout(a)], nowait=True)
    streams.go()
    omp.taskwait()
    assert (b == 11).all()


@pytest.mark.parametrize("how", [{"if_": False}, {"device": -1}])
def test_dependences_hold_without_transfer(streams, how):
    """With if_=False, or on the host, nothing is copied, but the dependences hold."""
    a = np.zeros(N)
    seen = []
    omp.target_enter_data(map=[to(a)], depend=[out(a)], nowait=True)
    omp.target(depend=[inout(a)], nowait=True)(add)(a, 1)
    omp.task(depend=[out(a)])(lambda: seen.append("before"))()
    task = omp.target_update(from_=[a], depend=[inout(a)], nowait=True, **how)
    omp.task(depend=[in_(a)])(lambda: seen.append(task.done()))()
    streams.go()
    omp.taskwait()
    assert seen == ["before", True]
    assert (a == 0).all()
    omp.target_exit_data(map=[release(a)])


def test_update_waits_for_the_last_write(sim, monkeypatch):
    """An update follows a copy-in of the same storage on another stream; a mapping that ends follows the update."""
    place = sim.places[0]
    a = np.ones(N)
    started = []
    plain = place.device.copy
    monkeypatch.setattr(
        place.device, "copy", lambda dst, src, stream: started.append(stream) or plain(dst, src, stream)
    )
    own = place.device.new_stream()
    with streaming(sim, holds=True):
        first = omp.target_enter_data(map=[to(a)], nowait=True)
        first.wait_on(own)  # on its stream, before the next one may be
        update = omp.target_update(to=[a], nowait=True)
        update.wait_on(own)
        (entry,) = place.table.entries()
        (written,) = entry.writes.values()
        assert written.lane is update.lane
        leaving = omp.target_exit_data(map=[omp.from_(a)], nowait=True)
        leaving.wait_on(own)
    omp.taskwait()
    assert first.lane is not update.lane
    assert update.lane._waited[first.lane] >= 1
    assert leaving.lane._waited[update.lane] >= written.sequence
    assert len(started) == 3


def test_record(runtime):
    """A recorded update runs again with the graph."""
    a = np.zeros(N)
    omp.target_enter_data(map=[to(a)])
    with omp.record() as graph:
        omp.target(depend=[inout(a)], nowait=True)(add)(a, 1)
        omp.target_update(from_=[a], depend=[inout(a)], nowait=True)
        omp.taskwait()
    assert (a == 1).all()
    graph.compute(scheduler="threads")
    assert (a == 2).all()
    omp.target_exit_data(map=[release(a)])


@pytest.mark.parametrize(
    ("clauses", "error"),
    [
        ({}, omp.ClauseError),
        ({"to": []}, omp.ClauseError),
        ({"to": ["x"]}, omp.ClauseError),
        ({"from_": "x[0:3]"}, omp.ClauseError),
        ({"to": [3]}, omp.ClauseError),
        ({"to": [None]}, omp.ClauseError),
        ({"to": [[1, 2]]}, omp.ClauseError),
        ({"to": [np.float64(1)]}, omp.ClauseError),
        ({"to": [np.array([object()])]}, omp.ClauseError),
        ({"to": [to(np.zeros(3))]}, omp.ClauseError),
        ({"to": [np.zeros(3)], "device": 99}, omp.ClauseError),
        ({"to": [np.zeros(3)], "device": "0"}, omp.ClauseError),
        ({"to": [np.zeros(3)], "depend": [3]}, omp.DependError),
        ({"to": [np.zeros(3)], "depend": [in_("x")]}, omp.ClauseError),
        ({"from_": [np.broadcast_to(np.zeros(1), (4,))]}, omp.MapError),
    ],
)
def test_bad_input(sim, clauses, error):
    """What an update cannot mean is an error at the call, with nowait too."""
    for nowait in (False, True):
        with pytest.raises(error):
            omp.target_update(**clauses, nowait=nowait)


def test_bad_items(sim):
    """Device arrays, and items that share storage between the clauses, are refused; disjoint ones are not."""
    d = omp.target_alloc(3, np.float64)
    with pytest.raises(omp.ClauseError, match="device array"):
        omp.target_update(to=[d])
    omp.target_free(d)
    a = np.zeros(N)
    for first, second in ((a, a), (a, a[3:4]), (a[:10], a[9:]), (a[::2], a[2:3])):
        with pytest.raises(omp.ClauseError, match="share storage"):
            omp.target_update(to=[first], from_=[second])
    omp.target_update(to=[a[::2]], from_=[a[1::2]])


def test_part_of_packed_storage_whose_axes_merge(runtime):
    """Every other column of packed rows is present, though its steps run on evenly from one row to the next."""
    a = np.zeros((3, 4))
    rows, part = a[:, :3], a[:, 0:3:2]
    with omp.target_data(map=[to(rows)]):
        assert omp.target_is_present(part)
        part[...] = 7
        omp.target_update(to=[part])
        rows[...] = -1
        omp.target_update(from_=[rows])
        assert rows.tolist() == [[7, 0, 7]] * 3
        omp.target_exit_data(map=[release(part)])
        assert counts(runtime) == []
    a[...] = 0
    both = omp.target(lambda v, s: add(s, 1), map=[tofrom("v")])
    both(rows, part)
    assert a.tolist() == [[1, 0, 1, 0]] * 3


def test_view_without_strides_in_packed_storage(runtime):
    """A view that steps over some gaps and not over others is refused as a MapError, and nothing changes."""
    a = np.arange(12.0).reshape(3, 4)
    rows, flat = a[:, :3], a.ravel()[::2]
    with omp.target_data(map=[to(rows)]):
        for construct in (omp.target_enter_data, omp.target_exit_data):
            with pytest.raises(omp.MapError, match="no strides"):
                construct(map=[flat])
        for clause in ("to", "from_"):
            with pytest.raises(omp.MapError, match="no strides"):
                omp.target_update(**{clause: [flat]})
        with pytest.raises(omp.MapError, match="no strides"):
            omp.target(add)(flat, 1)
        with pytest.raises(omp.MapError, match="no strides"):
            omp.target(lambda v, s: None, map=[tofrom("v")])(rows, flat)
        assert counts(runtime) == [1]
    with pytest.raises(omp.MapError, match="no strides"):
        omp.target(lambda v, s: None)(rows, flat)
    assert a.tolist() == np.arange(12.0).reshape(3, 4).tolist()


def test_update_in_a_body(sim):
    """A construct in a target body is a UsageError."""
    a = np.zeros(N)
    with pytest.raises(omp.UsageError):
        omp.target(lambda a: omp.target_update(to=[np.zeros(3)]))(a)


def test_failing_copy(sim, monkeypatch):
    """An update whose copy fails leaves counts as they were, and the storage usable."""
    a = np.ones(N)
    device = sim.places[0].device
    with omp.target_data(map=[to(a)]):
        with monkeypatch.context() as patch:
            patch.setattr(device, "copy", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                omp.target_update(to=[a])
        assert counts(sim) == [1]
        omp.target(add)(a, 1)
        omp.target_update(from_=[a])
    assert (a == 2).all()
