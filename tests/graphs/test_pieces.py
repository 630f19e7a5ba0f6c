"""Pieces of a recorded region: which tasks are in one, what a graph of several devices is, and what runs between."""

from __future__ import annotations

import functools
import gc
import threading
import types
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offload as omp
from offload import acc, in_, inout, mutexinoutset, out, tofrom
from offload.graphs.branches import branches
from offload.graphs.pieces import contracted, parts_of
from offload.graphs.plan import Unit
from tests.graphs.test_capture import GraphDevice, closure, kernel, kernels, orders
from tests.patience import until

# -- which tasks are in a piece ----------------------------------------------------------------------


@st.composite
def regions(draw):
    """Return units, and for each whether it may be in a piece."""
    before = draw(orders)
    units = [Unit(f"step {at}", tuple(sorted(found)), draw(st.integers(0, 1))) for at, found in enumerate(before)]
    return units, [draw(st.booleans()) for _ in units]


@given(regions())
def test_a_contraction_keeps_every_order(drawn):
    """What stands for the parts follows all that its units followed, and never itself."""
    units, is_inside = drawn
    parts = parts_of(units, is_inside)
    assert sorted(at for part in parts for at in part) == [at for at, inside in enumerate(is_inside) if inside]
    assert all(units[at].region == units[part[0]].region for part in parts for at in part)
    found = contracted(units, parts, None)
    assert len(found) == len(units) - sum(map(len, parts)) + len(parts)
    assert all(other < at for at, unit in enumerate(found) for other in unit.before)
    where = {}
    for at, unit in enumerate(found):
        step = unit.step
        for inner in [int(step.split()[1])] if isinstance(step, str) else parts[step._number]:
            where[inner] = at
    assert where.keys() == set(range(len(units)))
    ordered = closure([set(unit.before) for unit in found])
    for at, unit in enumerate(units):
        for other in unit.before:
            assert where[other] == where[at] or where[other] in ordered[where[at]]


@given(regions())
def test_a_task_between_waits_for_no_later_work(drawn):
    """Nothing in a piece follows a unit of it that a task outside follows."""
    units, is_inside = drawn
    part_of = {at: number for number, part in enumerate(parts_of(units, is_inside)) for at in part}
    ends = {other for at, unit in enumerate(units) if not is_inside[at] for other in unit.before if is_inside[other]}
    for at, unit in enumerate(units):
        for other in unit.before:
            if other in ends and is_inside[at]:
                assert part_of[at] != part_of[other]


@given(regions())
def test_pieces_order_no_tasks_outside(drawn):
    """Two tasks outside of pieces are ordered only if they were: one may wait, on the host, for what the other does."""
    units, is_inside = drawn
    outside = [at for at, inside in enumerate(is_inside) if not inside]
    parts = parts_of(units, is_inside)
    found = contracted(units, parts, None)
    at_of = {int(unit.step.split()[1]): at for at, unit in enumerate(found) if isinstance(unit.step, str)}
    first, then = closure([set(unit.before) for unit in units]), closure([set(unit.before) for unit in found])
    for at in outside:
        assert {at_of[other] for other in first[at] if other in at_of} == then[at_of[at]] & set(at_of.values())
    for part in parts:
        assert len({frozenset(first[at] & set(outside)) for at in part}) == 1


@given(orders, st.integers(1, 4), st.data())
def test_streams_are_of_one_device_each(before, limit, data):
    """Each stream has tasks of one device, and every dependence holds."""
    kinds = [data.draw(st.integers(0, 2)) for _ in before]
    steps = branches(before, limit, kinds)
    assert [step.kind for step in steps] == kinds
    assert len({step.stream for step in steps}) == len({(step.stream, step.kind) for step in steps})
    assert len({step.stream for step in steps}) <= limit + len(set(kinds)) - 1
    tails, imposed = {}, []
    for at, step in enumerate(steps):
        imposed.append({*step.waits, *([tails[step.stream]] if step.stream in tails else [])})
        tails[step.stream] = at
    assert all(direct <= found for direct, found in zip(before, closure(imposed), strict=True))


# -- replays -----------------------------------------------------------------------------------------


@pytest.fixture
def two(monkeypatch):
    """The two devices of a current runtime, at whose end nothing may be left."""
    devices = [GraphDevice(0), GraphDevice(1)]
    monkeypatch.setattr("offload.runtime.runtime.open_devices", lambda *_, **__: devices)
    with omp.Runtime("null:2", num_threads=2, check=True):
        yield devices
    for device in devices:
        assert not device.capturing
        device.calls.clear()
    gc.collect()
    assert all(device.live_nbytes() == 0 for device in devices)


def test_a_host_task_stands_between_two_graphs(two):
    """Each replay launches a graph, runs the host task, and launches the other one."""
    first = two[0]
    y, seen = np.zeros(4), []

    @omp.taskgraph
    def region(y):
        for what in "ab":
            kernel(what, y)
        omp.task(depend=[inout(y)])(lambda: seen.append(len(first.launches)))()
        for what in "cd":
            kernel(what, y)

    with omp.target_data(map=[tofrom(y)]):
        for _ in range(4):
            region(y)
        (record,) = region.records
        assert (record.is_captured, record.why_not, record.n_captured, record.n_tasks) == (True, "", 2, 5)
    assert seen == [0, 1, 3, 5]
    graphs = [graph for _, graph, _ in first.launches]
    assert [kernels(graph.calls) for graph in graphs] == [["a", "b"], ["c", "d"]] * 3


def test_device_work_does_not_hold_a_host_task_up(two):
    """A host task follows the graph that it depends on, and not the work behind that."""
    first = two[0]
    y, z, launched = np.zeros(4), np.zeros(4), []

    @omp.taskgraph
    def region(y, z):
        for what in "ab":
            kernel(what, y)
        omp.task(depend=[in_(y)])(lambda: launched.append([kernels(call[1].calls) for call in first.launches]))()
        for what in "cd":
            kernel.options(depend=[inout(z)])(what, z)
        kernel.options(depend=[in_(z), inout(y)])("e", y)
        kernel("f", y)

    with omp.target_data(map=[tofrom(y, z)]):
        region(y, z)
        region(y, z)
    assert ["e", "f"] not in launched[-1]
    assert [kernels(call[1].calls) for call in first.launches][-1] == ["e", "f"]


def test_a_send_does_not_wait_for_a_receive(two):
    """Device work behind a task that waits for another process is no part of a graph that this process sends from."""
    y, packed, received, z = (np.zeros(4) for _ in range(4))
    sent, found = threading.Event(), []

    @omp.taskgraph
    def region(y, packed, received, z):
        kernel.options(depend=[out(y)])("compute", y)
        kernel.options(depend=[in_(y), out(packed)])("pack", packed)
        omp.task(depend=[in_(packed)])(sent.set)()
        omp.task(depend=[out(received)])(lambda: found.append(sent.wait(30)))()
        kernel.options(depend=[in_(y, received), out(z)])("use", z)

    with omp.target_data(map=[tofrom(y, packed, received, z)]):
        for n in range(1, 4):
            sent.clear()
            region(y, packed, received, z)
            assert found == [True] * n
    assert [kernels(call[1].calls) for call in two[0].launches] == [["compute", "pack"]] * 2


def test_several_devices_are_one_graph(two):
    """Work of two devices with a copy between them is one launch, on the first; its events order the devices."""
    x, y = (omp.target_alloc(8, dtype="f8", device=number) for number in (0, 1))
    for what in two:
        what.calls.clear()

    @omp.taskgraph
    def region():
        kernel.options(depend=[inout(x)], device=0)("a", x)
        kernel.options(depend=[inout(y)], device=1)("b", y)
        omp.target_memcpy_async(y, x, depend=[in_(x), inout(y)])
        kernel.options(depend=[inout(y)], device=1)("c", y)

    for _ in range(3):
        region()
    (record,) = region.records
    assert (record.is_captured, record.why_not, record.n_captured) == (True, "", 1)
    assert len(two[0].launches) == 2
    assert not two[1].launches
    omp.target_free(x)
    omp.target_free(y)


def test_a_graph_of_two_devices_orders_what_uses_its_storage(two):
    """A later use of storage on the second device waits for the graph's end on the first one's stream."""
    y, z = np.zeros(4), np.zeros(4)
    region = omp.taskgraph(lambda y, z: (kernel("a", y), kernel.options(device=1, depend=[inout(z)])("b", z)))
    with omp.target_data(map=[tofrom(y)], device=0), omp.target_data(map=[tofrom(z)], device=1):
        for _ in range(3):
            region(y, z)
        assert region.records[0].is_captured
        table = omp.current_runtime().places[1].table
        (entry,) = table.entries()
        assert 0 in {access.lane.device.number for access in entry.uses.values()}


def test_a_moved_mapping_on_the_second_device_is_captured_again(two):
    """A graph looks at the storage of each of its devices."""
    y, z = np.zeros(4), np.zeros(4)
    region = omp.taskgraph(lambda y, z: (kernel("a", y), kernel.options(device=1, depend=[inout(z)])("b", z)))
    addresses = []
    with omp.target_data(map=[tofrom(y)], device=0):
        for _ in range(2):
            with omp.target_data(map=[tofrom(z)], device=1):
                for _ in range(3):
                    region(y, z)
                addresses.append(omp.get_mapped_ptr(z, device=1).address)
    assert region.records[0].n_captured == 2
    found = [call[2] for _, graph, _ in two[0].launches for call in graph.calls if call[:2] == ("kernel", "b")]
    assert found == [addresses[0]] * 2 + [addresses[1]] * 3 or len(set(addresses)) == 2


def test_what_cannot_be_captured_is_left_out(two):
    """A task that cannot be captured stands between graphs, and the record says why."""
    first = two[0]
    y, pageable = np.zeros(4), np.zeros(4)
    first.pageable = [pageable]

    @omp.taskgraph
    def region(y):
        for what in "ab":
            kernel(what, y)
        omp.target(map=[tofrom(pageable)], nowait=True, depend=[inout(y)])(lambda p: None)(pageable)
        for what in "cd":
            kernel(what, y)

    with omp.target_data(map=[tofrom(y)]):
        for _ in range(4):
            region(y)
        (record,) = region.records
        assert record.is_captured
        assert "pageable memory" in record.why_not
    assert [kernels(call[1].calls) for call in first.launches] == [["a", "b"], ["c", "d"]] * 3


def test_an_event_between_graphs(two):
    """A detached task between pieces holds back what follows until its event is fulfilled, at each replay."""
    first = two[0]
    y, event, order = np.zeros(4), omp.Event(), []

    @omp.taskgraph
    def region(y):
        for what in "ab":
            kernel(what, y)
        omp.task(detach=event, depend=[inout(y)])(lambda: order.append(len(first.launches)))()
        omp.task(event.fulfill)()
        for what in "cd":
            kernel(what, y)

    with omp.target_data(map=[tofrom(y)]):
        for _ in range(3):
            region(y)
            assert event.is_fulfilled
    assert [kernels(call[1].calls) for call in first.launches] == [["a", "b"], ["c", "d"]] * 2


def test_a_failing_host_task_skips_the_graph_behind_it(two):
    """Work behind a task that fails does not run; the graph before it does."""
    first = two[0]
    y, fails = np.zeros(4), []

    def check():
        if fails:
            raise ZeroDivisionError("between")

    @omp.taskgraph
    def region(y):
        for what in "ab":
            kernel(what, y)
        omp.task(depend=[inout(y)])(check)()
        for what in "cd":
            kernel(what, y)

    with omp.target_data(map=[tofrom(y)]):
        for _ in range(2):
            region(y)
        before = len(first.launches)
        fails.append(True)
        with pytest.raises(ExceptionGroup) as failed:
            region(y)
        assert any(isinstance(error, ZeroDivisionError) for error in failed.value.exceptions)
    assert [kernels(call[1].calls) for call in first.launches[before:]] == [["a", "b"]]


def test_values_and_exclusions_stay_outside(two):
    """A task whose value another one receives, and tasks that exclude each other, are tasks of each replay."""
    y, got = np.zeros(4), []

    @omp.taskgraph
    def region(y):
        kernel("a", y)
        kernel("b", y)
        value = omp.target(nowait=True, depend=[inout(y)])(lambda: 7)()
        omp.task(got.append)(value)
        kernel.options(depend=[mutexinoutset(y)])("c", y)
        kernel.options(depend=[mutexinoutset(y)])("d", y)
        kernel.options(depend=[out(y)])("e", y)
        kernel("f", y)

    with omp.target_data(map=[tofrom(y)]):
        for n in range(1, 4):
            region(y)
            assert got == [7] * n
    assert [kernels(call[1].calls) for call in two[0].launches] == [["a", "b"], ["e", "f"]] * 2


def test_a_body_that_reads_what_a_host_task_writes_is_left_out(two):
    """Such a body runs at each replay: it shares an object with a host task, or a variable that this assigns."""
    y, z, state, factors, seen = np.zeros(4), np.zeros(4), {"n": 0}, {"one": 1}, []
    count = 0

    def change():
        nonlocal count
        count += 1
        state["n"] += 1

    @omp.taskgraph
    def region(y, z):
        omp.task(depend=[inout(y, z)])(change)()
        for _ in range(2):
            omp.target(nowait=True, depend=[inout(y)])(lambda y: seen.append(("dict", state["n"])))(y)
            omp.target(nowait=True, depend=[inout(y)])(lambda y: seen.append(("name", count)))(y)
            omp.target(nowait=True, depend=[inout(z)])(lambda z: factors["one"])(z)

    with omp.target_data(map=[tofrom(y, z)]):
        for n in range(1, 5):
            seen.clear()
            region(y, z)
            assert seen == [("dict", n), ("name", n)] * 2
        (record,) = region.records
        assert record.is_captured
        assert "which a host task of the region may change" in record.why_not


MODULE = types.ModuleType("a_module")
count = 0


def increment():
    global count  # noqa: PLW0603  # a host task may do so
    count += 1


class Counter:
    """A class whose attribute is a count."""

    n = 0

    @classmethod
    def increment(cls):
        cls.n += 1

    @classmethod
    def read(cls):
        return cls.n

    def __call__(self):
        increment()


def host_changes():
    """Return pairs of a host task that increments something, and of what a body reads: how often it has done that."""
    MODULE.n = Counter.n = increment.n = 0
    array, mine, other, state = np.zeros(3), 0, 0, {"n": 0}

    def by_view(view):
        view += 1

    def by_name(step):
        nonlocal mine
        mine += step

    def by_module():
        MODULE.n += 1

    def by_attribute():
        increment.n += 1

    def by_state():
        state["n"] += 1

    return {
        "view": (functools.partial(by_view, array[:2]), lambda: array[1]),
        "other view": (functools.partial(by_view, array[:2]), lambda view=array[1:]: view[0]),
        "partial": (functools.partial(by_name, 1), lambda: mine),
        "equal values": (functools.partial(by_name, 1), lambda: (other, mine, other)[1]),
        "helper": (lambda: increment(), lambda: count),  # noqa: PLW0108  # a function that calls another
        "object": (Counter(), lambda: count),
        "module": (by_module, lambda: MODULE.n),
        "function": (by_attribute, lambda: increment.n),
        "class": (Counter.increment, lambda: Counter.n),
        "class method": (lambda: Counter.increment(), lambda: Counter.read()),  # noqa: PLW0108  # which calls another
        "argument": (by_state, lambda given=None: (given or state)["n"], state),
    }


@pytest.mark.parametrize("case", host_changes())
def test_a_body_reads_what_a_host_task_changes_by_any_way(two, case):
    """Such a body runs at each replay, however the host task gets at the object or the name."""
    global count  # noqa: PLW0603  # a host task may do so
    count = 0
    change, read, *given = host_changes()[case]
    y, z, found = np.zeros(4), np.zeros(4), []

    @omp.taskgraph
    def region(y, z):
        omp.task(depend=[inout(y, z)])(change)()
        omp.target(nowait=True, depend=[inout(y)])(lambda y, *given: found.append(read(*given)))(y, *given)
        kernel("a", y)
        for what in "bc":
            kernel(what, z)

    with omp.target_data(map=[tofrom(y, z)]):
        for n in range(1, 4):
            region(y, z)
            assert found == list(range(1, n + 1))
    assert two[0].launches


@pytest.mark.parametrize("is_attribute", [True, False])
def test_a_body_assigns_what_a_host_task_reads(two, is_attribute):
    """Such a body runs at each replay: a graph would assign it once, when it is captured."""
    y, mine, found = np.zeros(4), 0, []
    MODULE.n = 0

    def by_name(y):
        nonlocal mine
        mine += 1

    def by_attribute(y):
        MODULE.n += 1

    step, read = (by_attribute, lambda: MODULE.n) if is_attribute else (by_name, lambda: mine)

    @omp.taskgraph
    def region(y):
        kernel("a", y)
        omp.target(nowait=True, depend=[inout(y)])(step)(y)
        omp.task(depend=[inout(y)])(lambda: found.append(read()))()

    with omp.target_data(map=[tofrom(y)]):
        for n in range(1, 5):
            region(y)
            assert found == list(range(1, n + 1))


def test_a_body_reads_what_a_body_outside_changes(two):
    """A body that is in no graph runs at each replay, so no graph may have read once what it changes on the host."""
    y, pageable, steps, seen = np.zeros(4), np.zeros(4), [0], []
    two[0].pageable = [pageable]

    @omp.taskgraph
    def region(y):
        def step(p):
            steps[0] += 1

        omp.target(map=[tofrom(pageable)], nowait=True, depend=[inout(y)])(step)(pageable)
        omp.target(nowait=True, depend=[inout(y)])(lambda y: seen.append(steps[0]))(y)
        kernel("a", y)

    with omp.target_data(map=[tofrom(y)]):
        for _ in range(4):
            region(y)
            assert seen[-1] == steps[0]


def test_a_host_task_that_maps_what_a_graph_uses(two):
    """A graph behind it finds other storage than at the beginning of the replay, and is captured again."""
    y, addresses = np.zeros(4), []

    def move(y):
        omp.target_exit_data([omp.release(y)])
        kept.append(omp.target_alloc(4))
        omp.target_enter_data([omp.to(y)])

    @omp.taskgraph
    def region(y):
        for what in "ab":
            kernel(what, y)
        omp.task(depend=[inout(y)])(move)(y)
        for what in "cd":
            kernel(what, y)
        omp.task(depend=[inout(y)])(lambda: addresses.append(omp.get_mapped_ptr(y).address))()

    kept = []
    omp.target_enter_data([omp.to(y)])
    for _ in range(6):
        region(y)
    first = two[0]
    called = [call for call in first.calls if call[0] == "kernel"]
    for _, graph, _ in first.launches:
        called += [call for call in graph.calls if call[0] == "kernel"]
    assert {call[2] for call in called if call[1] in "cd"} == set(addresses)
    omp.target_exit_data([omp.release(y)])
    for block in kept:
        omp.target_free(block)


def test_a_piece_that_is_no_graph_any_more_runs_one_by_one(two):
    """A host task unmaps what the next piece uses, which then cannot be captured: its tasks run in its place."""
    y, unmaps = np.zeros(4), []
    first = two[0]
    first.pageable = [y]

    def unmap():
        if unmaps:
            omp.target_exit_data([omp.release(y)])

    @omp.taskgraph
    def region(y):
        for what in "ab":
            kernel(what, y)
        omp.task(depend=[inout(y)])(unmap)()
        for what in "cd":
            kernel(what, y)
        omp.task(depend=[inout(y)])(lambda: first.calls.append(("kernel", "host")))()

    omp.target_enter_data([omp.to(y)])
    for _ in range(2):
        region(y)
    before = len(first.calls)
    unmaps.append(True)
    region(y)
    assert kernels(first.calls[before:]) == ["c", "d", "host"]
    assert "pageable memory" in region.records[0].why_not


def test_an_observer_is_told_of_tasks_in_place_of_a_piece(two):
    """Tasks that run in place of a graph are created and completed as others are."""
    y, unmaps, told = np.zeros(4), [], []
    two[0].pageable = [y]

    class Told:
        def task_created(self, task):
            told.append(("created", task.key))

        def task_completed(self, task):
            told.append(("completed", task.key))

    @omp.taskgraph
    def region(y):
        omp.task(depend=[inout(y)])(lambda: unmaps and omp.target_exit_data([omp.release(y)]))()
        for what in "ab":
            kernel(what, y)

    omp.target_enter_data([omp.to(y)])
    with omp.tool(Told()):
        for _ in range(2):
            region(y)
        unmaps.append(True)
        region(y)
    assert "pageable memory" in region.records[0].why_not
    created = [key for what, key in told if what == "created"]
    assert len(created) == len(set(created))
    assert sorted(created) == sorted(key for what, key in told if what == "completed")


def test_a_failure_in_place_of_a_piece(two):
    """A task that runs in place of a graph fails as any task, and what follows the piece does not run."""
    y, unmaps, ran = np.zeros(4), [], []
    two[0].pageable = [y]

    def fail(y):
        if unmaps:
            raise ZeroDivisionError

    @omp.taskgraph
    def region(y):
        omp.task(depend=[inout(y)])(lambda: unmaps and omp.target_exit_data([omp.release(y)]))()
        kernel("a", y)
        omp.target(nowait=True, depend=[inout(y)])(fail)(y)
        omp.task(depend=[inout(y)])(lambda: ran.append(1))()

    omp.target_enter_data([omp.to(y)])
    region(y)
    region(y)
    unmaps.append(True)
    with pytest.raises(ExceptionGroup) as failed:
        region(y)
    assert failed.group_contains(ZeroDivisionError)
    assert ran == [1, 1]


def test_mappings_that_begin_and_end_in_the_region(two):
    """Pieces between an enter and an exit find other storage than at the start of the replay."""
    y, seen = np.zeros(4), []

    @omp.taskgraph
    def region(y):
        omp.target_enter_data([omp.to(y)], nowait=True, depend=[inout(y)])
        for what in "ab":
            kernel(what, y)
        omp.task(depend=[inout(y)])(lambda: seen.append(omp.target_is_present(y, 0)))()
        for what in "cd":
            kernel(what, y)
        omp.target_exit_data([omp.from_(y)], nowait=True, depend=[inout(y)])

    for n in range(1, 25):
        region(y)
        assert seen == [True] * n
        assert not omp.target_is_present(y, 0)


@pytest.mark.parametrize("has_host_task", [False, True])
def test_graphs_go_with_their_record(two, has_host_task):
    """A graph goes with the last reference to its record, and not when the collector comes: it has device memory."""
    y = np.zeros(4)

    @omp.taskgraph
    def region(y):
        for what in "ab":
            kernel(what, y)
        if has_host_task:
            omp.task(depend=[inout(y)])(lambda: None)()
        for what in "cd":
            kernel(what, y)

    with omp.target_data(map=[tofrom(y)]):
        for _ in range(3):
            region(y)
        graphs = [weakref.ref(graph) for _, graph, _ in two[0].launches]
        assert graphs
        two[0].calls.clear()
        gc.disable()
        try:
            del region
            until(lambda: not any(graph() for graph in graphs))  # a worker may hold the last task for a moment
        finally:
            gc.enable()


def test_operations_on_a_stream_of_the_programs_own_stay_there(two):
    """Work that the program puts on the stream of a queue follows its operations, so they are in no graph."""
    y = np.zeros(4)

    @omp.taskgraph
    def region(y):
        for _ in range(3):
            acc.update(device=[y], async_=1)

    with acc.data(copy=[y]):
        own = acc.get_cuda_stream(1)
        for _ in range(3):
            region(y)
            acc.wait()
        assert not region.records[0].is_captured
        assert "the program has the stream of queue 1" in region.records[0].why_not
        assert sum(call[0] == "copy" and call[3] is own for call in two[0].calls) >= 9
