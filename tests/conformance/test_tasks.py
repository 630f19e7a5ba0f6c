"""`task`, `depend`, `nowait`, `taskwait`, `taskgroup`: OpenMP_VV groups E and G, LLVM 2.4."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import offload as omp
from offload import from_, in_, inout, out, release, to, tofrom

N = 64
X = ("x",)


def nothing(*arrays):
    pass


def on_device(device=None):
    assert not omp.is_initial_device()
    assert device is None or omp.get_device_num() == device


def test_task_if(streams):
    """4.5/task/test_task_if.c: task if(0) completes, on the same thread, before the encountering task goes on."""
    value = [1]
    streams.go()

    def add():
        assert omp.is_initial_device()
        assert threading.get_ident() == encountering
        value.append(value[-1] + 2)

    encountering = threading.get_ident()
    for _ in range(5):
        assert omp.task(if_=False)(add)().done()
        value.append(value[-1] * 2)
    assert value[-1] == 2 * (2 * (2 * (2 * (2 * 3 + 2) + 2) + 2) + 2)


def test_task_target(streams):
    """4.5/task/test_task_target.c: regions inside of tasks; two producers, taskwait, a consumer."""
    a, b, c = np.zeros(N), np.zeros(N), np.zeros(N)

    def produce(array, value):
        def body(array):
            on_device()
            array += value

        omp.target(map=[tofrom(array)])(body)(array)

    def consume(a, b, c):
        on_device()
        c += a + b

    omp.task(produce)(a, 4)
    omp.task(produce)(b, 6)
    streams.go()
    omp.taskwait()
    omp.target(map=[to("a"), to("b"), tofrom("c")])(consume)(a, b, c)
    assert (c == 10).all()


@pytest.mark.parametrize("first", [out, inout])
def test_depend_out_in(streams, gates, probe, first):
    """4.5/…/test_target_teams_distribute_depend_out_in.c: the reader follows the writer on the same item: d == 3x,
    though the writer is held up and the reader is not."""
    a, b, c, d = np.arange(N), np.arange(N), np.zeros(N), np.zeros(N)
    gate = gates()

    def produce(a, b, c):
        on_device()
        c += a + b

    def consume(c, b, d):
        on_device()
        d += c + b

    writer = omp.target(nowait=True, map=[to("a"), to("b"), tofrom("c")], depend=[first("c"), gate.after])
    reader = omp.target(nowait=True, map=[to("c"), to("b"), tofrom("d")], depend=[in_("c")])
    writer(produce)(a, b, c)
    task = reader(consume)(c, b, d)
    streams.go()
    probe()
    assert not task.done()
    gate.open()
    omp.taskwait()
    assert (d == 3 * np.arange(N)).all()


@pytest.mark.parametrize("first", [out, inout])
@pytest.mark.parametrize("second", [out, inout])
def test_depend_out_out(streams, gates, probe, first, second):
    """4.5/…_depend_out_out.c: all four pairs of out and inout are ordered."""
    c, gate = np.zeros(N), gates()
    omp.target(nowait=True, depend=[first(c), gate.after])(lambda c: on_device() or c.fill(3))(c)
    task = omp.target(nowait=True, depend=[second(c)])(lambda c: on_device() or c.__imul__(5) is None)(c)
    streams.go()
    probe()
    assert not task.done()
    gate.open()
    omp.taskwait()
    assert (c == 15).all()


def test_depend_array_section(streams, gates, probe):
    """4.5/…_depend_array_section.c: the same section twice is the same storage; one that shares an element is ordered
    after it, on the host and on a device, and one that shares none is not."""
    c, gate = np.zeros(N), gates()
    sections = [c[0:N], c[0:N], omp.section(c, (N // 2, N // 2)), c[1::2], c]
    omp.task(depend=[out(c[::2]), gate.after])(nothing)()

    def step(c, number):
        c *= 3
        c += number

    tasks = []
    for number, chosen in enumerate(sections):
        if number % 2:
            tasks.append(omp.task(depend=[out(chosen)])(step)(c, number))
        else:
            tasks.append(omp.target(nowait=True, map=[tofrom("c")], depend=[out(chosen)])(step)(c, number))
    streams.go()
    probe()
    assert not any(task.done() for task in tasks)
    gate.open()
    omp.taskwait()
    expected = 0
    for number in range(len(sections)):
        expected = 3 * expected + number
    assert (c == expected).all()
    even = gates(out(c[::2]))
    omp.task(depend=[out(c[1::2])])(nothing)().result()
    assert not even.task.done()
    even.open()


def test_depend_in_in(streams, gates):
    """4.5/…_depend_in_in.c: readers are not ordered among each other: those that can begin do, on host and device."""
    a, gate, read = np.zeros(N), gates(), []
    omp.task(depend=[out(a)])(lambda: a.fill(1))()
    first = omp.task(depend=[in_(a), gate.after])(lambda: read.append(("first", a.sum())))()
    first_region = omp.target(nowait=True, map=[to("a")], depend=[in_("a"), gate.after])(lambda a: None)(a)
    streams.go()
    omp.task(depend=[in_(a)])(lambda: read.append(("second", a.sum())))().result()
    omp.target(nowait=True, map=[to("a")], depend=[in_("a")])(lambda a: read.append(("region", float(a.sum()))))(
        a
    ).result()
    assert not first.done()
    assert not first_region.done()
    gate.open()
    omp.taskwait()
    assert read == [("second", N), ("region", N), ("first", N)]


def test_readers_run_at_the_same_time(streams):
    """Two readers that meet in the middle both run, where there are two threads to run them."""
    a = np.zeros(N)
    several = len(omp.current_runtime().engine.threads) > 1
    meeting = threading.Barrier(2, timeout=60) if several else None
    read = []

    def reader():
        if meeting:
            meeting.wait()  # it breaks if the other reader has to wait for this one
        read.append(a.sum())

    for _ in range(2):
        omp.task(depend=[in_(a)])(reader)()
    streams.go()
    omp.taskwait()
    assert read == [0, 0]


def test_nowait(streams):
    """4.5/…/test_target_teams_distribute_nowait.c: 16 nowait regions, taskwait the only synchronisation."""
    work = np.zeros((16, N))
    tickets = [omp.target(nowait=True)(lambda w: on_device() or w.__iadd__(1) is None)(row) for row in work]
    streams.go()
    omp.taskwait()
    assert all(ticket.done() for ticket in tickets)
    assert work.sum() == 16 * N


def test_map_default(streams):
    """4.5/…_map_default.c: arrays in no clause are tofrom, a scalar is firstprivate."""
    a, b, scalar = np.zeros(N), np.ones(N), 50

    def body(a, b, scalar):
        on_device()
        a += b + scalar
        scalar = 0

    task = omp.target(nowait=True)(body)(a, b, scalar)
    streams.go()
    task.result()
    assert (a == 51).all()
    assert scalar == 50


def test_scalars_are_captured_at_the_call(streams):
    """A deferred region sees the scalars of its call."""
    a = np.zeros(8)
    for i in range(8):
        omp.target(nowait=True, map=[tofrom("part")])(lambda part, i: part.fill(i))(a[i : i + 1], i)
    streams.go()
    omp.taskwait()
    assert (a == np.arange(8)).all()


def test_taskdep_if0_2(streams, gates):
    """openmp/…/taskdep_if0_2.c: an undeferred task, or region, waits for its predecessors, and successors for it."""
    log, gate, a = [], gates(out(X)), np.zeros(N)
    fulfiller = threading.Thread(target=lambda: log.append(1) or gate.open())
    omp.task(fulfiller.start)()
    streams.go()
    task = omp.task(depend=[inout(X)], if_=False)(lambda: log.append(2))()
    assert log == [1, 2]
    assert task.done()
    omp.task(depend=[in_(X)])(lambda: log.append(3))()
    omp.task(depend=[out(a)])(lambda: a.fill(1))()
    omp.target(depend=[inout(a)])(lambda a: on_device() or a.__iadd__(1) is None)(a)
    assert (a == 2).all()
    omp.taskwait()
    assert log == [1, 2, 3]
    fulfiller.join()


def test_taskwait_depend_in(streams):
    """openmp/…/kmp_taskwait_depend_in.c: taskwait depend(in) after readers does not deadlock, and waits for writers."""
    log, gate = [], omp.Event()
    omp.task(depend=[out(("x",))])(lambda: log.append("x"))()
    for _ in range(3):
        omp.task(depend=[in_(("x",))])(lambda: None)()
    omp.task(depend=[out(("y",))], detach=gate)(lambda: None)()
    streams.go()
    omp.taskwait(depend=[in_(("x",))])
    assert log == ["x"]
    omp.taskwait(depend=[in_(("z",))])
    gate.fulfill()
    omp.taskwait()


def test_taskwait_depend(streams):
    """openmp/…/omp50_taskwait_depend.c: taskwait depend waits for the tasks that its items name, those before them
    included, on a device too, and for no others."""
    gate, x, y = omp.Event(), np.zeros(N), np.zeros(N)
    other = omp.task(depend=[out(y)], detach=gate)(lambda: y.fill(1))()
    omp.task(depend=[out(x)])(lambda: x.fill(1))()
    omp.target(depend=[inout(x)], nowait=True)(lambda a: on_device() or a.__imul__(5) is None)(x)
    streams.go()
    omp.taskwait(depend=[in_(x)])
    assert (x == 5).all()
    assert not other.done()
    omp.task(depend=[in_(x)])(lambda: None)()
    omp.taskwait(depend=[inout(x)])  # follows readers too
    gate.fulfill()
    omp.taskwait(depend=[in_(x), in_(y)])
    assert (y == 1).all()
    assert other.done()


def test_multiple_edges(streams):
    """openmp/…/kmp_task_deps_multiple_edges.c: several items between two tasks are one edge."""
    items = [np.zeros(3) for _ in range(5)]
    log = []
    gate = omp.Event()
    omp.task(depend=[out(*items)], detach=gate)(lambda: log.append(1))()
    task = omp.task(depend=[in_(items[0]), inout(*items[1:]), out(items[2])])(lambda: log.append(2))()
    assert len(task.dependencies) == 1
    streams.go()
    gate.fulfill()
    omp.taskwait()
    assert log == [1, 2]
    assert task.dependencies == ()


def test_target_depend_dag(streams):
    """aomp/…/target_depend_dag.cpp: a DAG of nowait enter, compute and exit over all devices from one thread, by
    tokens; a step reads what a neighbour, on another device, computed in the step before; a barrier collects all."""
    count, steps = max(2, omp.get_num_devices()), 4
    rows = [np.full(N, float(number + 1)) for number in range(count)]
    inputs = [np.zeros(N) for _ in range(count)]
    where = [number % omp.get_num_devices() for number in range(count)]
    tasks = []

    def compute(row, from_left, device):
        on_device(device)
        row *= 2
        row += from_left

    for number, row in enumerate(rows):
        clauses = {"device": where[number], "nowait": True, "depend": [out(("row", number), ("input", number))]}
        tasks.append(omp.target_enter_data(map=[to(row), to(inputs[number])], **clauses))
    for _ in range(steps):
        for number, row in enumerate(rows):
            clauses = {"device": where[number], "nowait": True, "depend": [in_(("row", number)), out(("host", number))]}
            tasks.append(omp.target_update(from_=[row], **clauses))
        for number in range(count):
            left = (number - 1) % count
            exchange = omp.task(depend=[in_(("host", left)), out(("input", number))])
            tasks.append(exchange(np.copyto)(inputs[number], rows[left]))
        for number, row in enumerate(rows):
            clauses = {"device": where[number], "nowait": True}
            moved = [inout(("input", number))]
            tasks.append(omp.target_update(to=[inputs[number]], depend=moved, **clauses))
            depend = [in_(("input", number)), inout(("row", number))]
            tasks.append(omp.target(depend=depend, **clauses)(compute)(row, inputs[number], where[number]))
    for number, row in enumerate(rows):
        clauses = {"device": where[number], "nowait": True}
        depend = [inout(("row", number), ("host", number))]
        tasks.append(omp.target_exit_data(map=[from_(row), release(inputs[number])], depend=depend, **clauses))
    streams.go()
    omp.barrier()
    assert all(task.done() for task in tasks)
    expected = np.arange(1.0, count + 1)
    for _ in range(steps):
        expected = 2 * expected + np.roll(expected, 1)
    assert [row.tolist() for row in rows] == [[value] * N for value in expected]


def test_deep_chains(streams):
    """A chain of 2,000 tasks, alternating between host and device, neither recurses nor loses order."""
    a = np.zeros(1)
    region = omp.target(nowait=True, depend=[inout(a)])(lambda a: a.__iadd__(1) is None)
    host = omp.task(depend=[inout(a)])(lambda: np.multiply(a, 1, out=a) is None)
    for number in range(1_000):
        (host if number % 4 == 0 else region)(*(() if number % 4 == 0 else (a,)))
    streams.go()
    omp.taskwait()
    assert a[0] == 750
