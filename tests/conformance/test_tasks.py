"""`task`, `depend`, `nowait`, `taskwait`, `taskgroup`: OpenMP_VV groups E and G, LLVM 2.4."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import offload as omp
from offload import from_, in_, inout, out, to, tofrom

N = 64


def on_device(device=None):
    assert not omp.is_initial_device()
    assert device is None or omp.get_device_num() == device


def test_task_if(streams):
    """4.5/task/test_task_if.c: task if(0) completes before the encountering task goes on."""
    value = [1]
    streams.go()
    for _ in range(5):
        omp.task(if_=False)(lambda: value.append(value[-1] + 2))()
        value.append(value[-1] * 2)
    assert value[-1] == 2 * (2 * (2 * (2 * (2 * 3 + 2) + 2) + 2) + 2)
    assert omp.task(if_=False)(omp.is_initial_device)().result()


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
def test_depend_out_in(streams, first):
    """4.5/…/test_target_teams_distribute_depend_out_in.c: the reader follows the writer on the same item."""
    a, b, c, d = np.arange(N), np.arange(N), np.zeros(N), np.zeros(N)

    def produce(a, b, c):
        on_device()
        c += a + b

    def consume(c, b, d):
        on_device()
        d += c + b

    omp.target(nowait=True, map=[to("a"), to("b"), tofrom("c")], depend=[first("c")])(produce)(a, b, c)
    omp.target(nowait=True, map=[to("c"), to("b"), tofrom("d")], depend=[in_("c")])(consume)(c, b, d)
    streams.go()
    omp.taskwait()
    assert (d == 3 * np.arange(N)).all()


@pytest.mark.parametrize("first", [out, inout])
@pytest.mark.parametrize("second", [out, inout])
def test_depend_out_out(streams, first, second):
    """4.5/…_depend_out_out.c: all four pairs of out and inout are ordered."""
    c = np.zeros(N)
    omp.target(nowait=True, depend=[first(c)])(lambda c: on_device() or c.fill(3))(c)
    omp.target(nowait=True, depend=[second(c)])(lambda c: on_device() or c.__imul__(5) is None)(c)
    streams.go()
    omp.taskwait()
    assert (c == 15).all()


def test_depend_array_section(streams):
    """4.5/…_depend_array_section.c: the same section twice is the same storage; one that shares a byte is ordered."""
    c = np.zeros(N)
    for chosen in (c[0:N], c[0:N], c[N // 2 :], c[1::2], c):
        omp.task(depend=[out(chosen)])(lambda: c.__setitem__(slice(None), 2 * c + 1))()
    streams.go()
    omp.taskwait()
    assert (c == 31).all()


def test_depend_in_in(streams):
    """4.5/…_depend_in_in.c: readers are not ordered among each other: two that meet in the middle both run."""
    a = np.zeros(N)
    several = len(omp.current_runtime().engine.threads) > 1
    meeting = threading.Barrier(2, timeout=60) if several else None
    omp.task(depend=[out(a)])(lambda: a.fill(1))()
    read = []

    def reader():
        if meeting:
            meeting.wait()  # it breaks if the other reader has to wait for this one
        read.append(a.sum())

    for _ in range(2):
        omp.task(depend=[in_(a)])(reader)()
    streams.go()
    omp.taskwait()
    assert read == [N, N]


def test_nowait(streams):
    """4.5/…/test_target_teams_distribute_nowait.c: 16 nowait regions, taskwait the only synchronisation."""
    work = np.zeros((16, N))
    for row in range(16):
        omp.target(nowait=True)(lambda w: on_device() or w.__iadd__(1) is None)(work[row])
    streams.go()
    omp.taskwait()
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


def test_taskdep_if0_2(streams):
    """openmp/…/taskdep_if0_2.c: an undeferred task waits for its predecessors, and successors wait for it."""
    log = []
    omp.task(depend=[out(("x",))])(lambda: log.append(1))()
    omp.task(depend=[inout(("x",))], if_=False)(lambda: log.append(2))()
    assert log == [1, 2]
    omp.task(depend=[in_(("x",))])(lambda: log.append(3))()
    streams.go()
    omp.taskwait()
    assert log == [1, 2, 3]


def test_undeferred_regions_follow(streams):
    """A synchronous region with depend first waits for its predecessors."""
    a = np.zeros(N)
    streams.go()
    omp.task(depend=[out(a)])(lambda: a.fill(1))()
    omp.target(depend=[inout(a)])(lambda a: on_device() or a.__iadd__(1) is None)(a)
    assert (a == 2).all()


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


def test_taskwait_is_not_for_descendants(streams):
    """taskwait waits for children, not for their children; a taskgroup waits for both."""
    gate, log = omp.Event(), []
    streams.go()

    def outer(event):
        omp.task(detach=event)(lambda: None)()

    omp.task(outer)(gate)
    omp.taskwait()
    log.append("waited")
    gate.fulfill()

    late, entered = omp.Event(), threading.Event()

    def fulfil():
        entered.wait()
        log.append("fulfilled")
        late.fulfill()

    thread = threading.Thread(target=fulfil)
    thread.start()
    with omp.taskgroup():
        omp.task(outer)(late)
        omp.task(entered.set)()
    log.append("group")
    thread.join()
    assert log == ["waited", "fulfilled", "group"]


def test_taskgroup_is_not_for_earlier_tasks(streams):
    """A taskgroup does not wait for tasks generated before it."""
    gate = omp.Event()
    before = omp.task(detach=gate)(lambda: None)()
    streams.go()
    with omp.taskgroup():
        inner = omp.target(nowait=True)(on_device)()
    assert inner.done()
    assert not before.done()
    gate.fulfill()
    omp.taskwait()


def test_dependences_are_between_siblings(streams):
    """Tasks of different generating tasks are not ordered, whatever items they name."""
    gate = omp.Event()
    held = omp.task(depend=[out(("x",))], detach=gate)(lambda: None)()

    def outer():
        omp.task(depend=[inout(("x",))])(lambda: None)().result()

    streams.go()
    assert omp.task(outer)().result() is None
    assert not held.done()  # the inner task has run although it names the same item
    gate.fulfill()
    omp.taskwait()


def test_target_depend_dag(streams):
    """aomp/…/target_depend_dag.cpp: a DAG of nowait enter, compute and exit over all devices, by tokens."""
    count = omp.get_num_devices()
    arrays = [np.zeros(N) for _ in range(count)]
    for device, a in enumerate(arrays):
        token = ("device", device)
        omp.target_enter_data(map=[to(a)], device=device, nowait=True, depend=[out(token)])
        for step in range(4):
            depend = [inout(token), in_(("step", step - 1)), out(("step", step, device))]

            def compute(a, device=device):
                on_device(device)
                a += 1

            omp.target(device=device, nowait=True, depend=depend)(compute)(a)
        omp.target_exit_data(map=[from_(a)], device=device, nowait=True, depend=[inout(token)])
    streams.go()
    omp.taskwait()
    assert all((a == 4).all() for a in arrays)


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
