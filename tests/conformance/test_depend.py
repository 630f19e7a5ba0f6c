"""`depend` by type: OpenMP_VV groups G and H, LLVM 2.4."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

import offload as omp
from offload import all_memory, in_, inout, inoutset, mutexinoutset, out, to, tofrom

N = 64
X, Y, Z = ("x",), ("y",), ("z",)


def nothing(*arrays):
    pass


def on_device():
    assert not omp.is_initial_device()


# -- mutexinoutset ------------------------------------------------------------------------------------
def test_task_depend_mutexinoutset(streams, gates, exclusion):
    """5.0/task/test_task_depend_mutexinoutset.c: a writer, two adders one at a time, a reader that sees both."""
    gate, c, read = gates(), np.zeros(1), []

    def add(value):
        exclusion.begin()
        c[0] += value

    omp.task(depend=[gate.after, out(c)])(lambda: c.fill(1))()
    for value in (2, 3):
        omp.task(depend=[mutexinoutset(c)])(add)(value)
    omp.task(depend=[in_(c)])(lambda: read.append(c[0]))()
    streams.go()
    gate.open()
    omp.taskwait()
    assert read == [6]
    assert len(exclusion.begun) == 2


def test_target_task_depend_mutexinoutset(streams, gates, exclusion):
    """5.0/target/test_target_task_depend_mutexinoutset.c: the same with regions: the second begins when the first is
    complete, copies back included, and the reader sees both."""
    gate, c, read = gates(), np.zeros(N), []

    def add(c, value):
        on_device()
        exclusion.begin()
        c += value

    omp.target(nowait=True, map=[tofrom("c")], depend=[gate.after, out("c")])(lambda c: on_device() or c.fill(1))(c)
    for value in (2, 3):
        omp.target(nowait=True, map=[tofrom("c")], depend=[mutexinoutset("c")])(add)(c, value)
    omp.target(nowait=True, map=[to("c")], depend=[in_("c")])(lambda c: on_device() or read.append(float(c.sum())))(c)
    gate.open()
    streams.go()
    omp.taskwait()
    assert read == [6 * N]
    assert (c == 6).all()
    assert len(exclusion.begun) == 2


def test_mutexinoutset_is_unordered(streams, gates):
    """A member that cannot begin yet does not hold up the others, though it was generated first."""
    gate = gates()
    late = omp.task(depend=[mutexinoutset(X), gate.after])(nothing)()
    late_region = omp.target(nowait=True, depend=[mutexinoutset(X), gate.after])(nothing)()
    streams.go()
    omp.task(depend=[mutexinoutset(X)])(nothing)().result()
    omp.target(nowait=True, depend=[mutexinoutset(X)])(nothing)().result()
    assert not late.done()
    assert not late_region.done()
    gate.open()
    omp.taskwait()


def test_mutexinoutset_excludes_until_the_event(streams, gates, probe):
    """A member whose event is open still excludes the others; they hold no worker meanwhile."""
    log = []
    holder = gates(mutexinoutset(X)).shut()
    host = omp.task(depend=[mutexinoutset(X)])(lambda: log.append("host"))()
    region = omp.target(nowait=True, depend=[mutexinoutset(X)])(lambda: log.append("region"))()
    streams.go()
    probe()
    assert log == []
    assert (host.state, region.state) == ("waiting", "waiting")
    holder.open()
    omp.taskwait()
    assert sorted(log) == ["host", "region"]


@pytest.mark.parametrize("closes", [in_, out, inout, inoutset])
def test_mutexinoutset_sets_are_closed(streams, gates, probe, closes):
    """A task of another type follows all members, and members after it follow that task, not the set."""
    log = []
    member = gates(mutexinoutset(X)).shut()
    omp.task(depend=[mutexinoutset(X)])(lambda: log.append("member"))()
    other = gates(closes(X), body=lambda: log.append("other"))
    later = omp.task(depend=[mutexinoutset(X)])(lambda: log.append("later"))()
    streams.go()
    probe()
    assert log == []
    member.open()
    other.shut()  # so both members have run
    assert log == ["member", "other"]
    assert not later.done()
    other.open()
    omp.taskwait()
    assert log == ["member", "other", "later"]


def test_two_mutexinoutset_objects(streams, gates, probe):
    """A task that needs two objects waits for the second with nothing in hand: who needs the first only goes on."""
    log = []
    holder = gates(mutexinoutset(X)).shut()
    both = omp.task(depend=[mutexinoutset(Y, X)])(lambda: log.append("both"))()
    streams.go()
    omp.task(depend=[mutexinoutset(Y)])(lambda: log.append("one"))().result()
    probe()
    assert log == ["one"]
    assert not both.done()
    holder.open()
    omp.taskwait()
    assert log == ["one", "both"]


def test_mutexinoutset_objects_do_not_deadlock(streams):
    """Tasks that name several objects, in every order, all run, and no two that share one overlap."""
    objects = {name: [] for name in "abcd"}
    failures = []

    def use(*names):
        task = omp.current_task()
        for name in names:
            failures.extend(other for other in objects[name] if not other.done())
            objects[name].append(task)

    combinations = [names for count in (1, 2, 3) for names in itertools.permutations("abcd", count)]
    for number, names in enumerate(combinations * 2):
        clauses = [mutexinoutset(("object", name)) for name in names]
        if number % 4:
            omp.task(depend=clauses)(use)(*names)
        else:
            omp.target(nowait=True, depend=clauses)(use)(*names)
    streams.go()
    omp.taskwait()
    assert not failures
    assert sum(map(len, objects.values())) == 2 * sum(map(len, combinations))


def test_mutexinoutset_of_overlapping_sections(streams, gates, probe):
    """Sections that share an element exclude each other as if they were one; those that do not, do not."""
    a, log = np.zeros(10), []
    holder = gates(mutexinoutset(a[:6])).shut()
    omp.task(depend=[mutexinoutset(a[4:8])])(lambda: log.append("shares"))()
    streams.go()
    omp.task(depend=[mutexinoutset(a[6:])])(lambda: log.append("apart"))().result()
    probe()
    assert log == ["apart"]
    holder.open()
    omp.taskwait()
    assert log == ["apart", "shares"]


def test_mutexinoutset_after_a_failure(streams, gates):
    """A member that fails gives back what it has; the others are no dependents of it and run."""
    gate, log = gates(), []
    failing = omp.task(depend=[mutexinoutset(X), gate.after])(lambda: 1 / 0)()
    omp.task(depend=[mutexinoutset(X), gate.after])(lambda: log.append("peer"))()
    streams.go()
    gate.open()
    assert isinstance(failing.exception(), ZeroDivisionError)
    omp.taskwait()
    assert log == ["peer"]


def test_undeferred_mutexinoutset(alone, gates):
    """Undeferred members exclude the others too: the call waits for the one that has begun."""
    released = []
    holder = gates(mutexinoutset(X)).shut()
    omp.task(lambda: released.append(1) or holder.open())()  # runs while the call below waits
    alone.go()
    omp.task(depend=[mutexinoutset(X)], if_=False)(lambda: released.append(2))()
    assert released == [1, 2]
    other = gates(mutexinoutset(X)).shut()
    omp.task(lambda: released.append(3) or other.open())()
    omp.target(depend=[mutexinoutset(X)])(lambda: released.append(4))()
    assert released == [1, 2, 3, 4]


# -- inoutset -----------------------------------------------------------------------------------------
def test_depend_inoutset(streams, gates, probe):
    """5.1/depend/test_depend_inoutset.c: two sets of adders after a writer, not ordered among themselves; the reader
    sees the additions of both."""
    arr, adding, gate = np.zeros(8), threading.Lock(), gates()
    rows = range(8)

    def add(i, value):
        with adding:
            arr[i] += value

    held = omp.task(depend=[gate.after, out(*(arr[i : i + 1] for i in rows))])(lambda: np.copyto(arr, np.arange(8)))()
    open_ = [gates(inoutset(arr[i : i + 1])) for i in rows]  # members that are not complete
    tasks = [omp.task(depend=[inoutset(arr[i : i + 1])])(add)(i, value) for value in (2, 4) for i in rows]
    read = []
    omp.task(depend=[in_(arr)])(lambda: read.append(arr.copy()))()
    streams.go()
    probe()
    assert not any(task.done() for task in (held, *tasks))
    gate.open()
    omp.taskwait(depend=[in_(gate.item)])
    for task in tasks:
        task.result()  # though other members of their sets are open
    probe()
    assert read == []
    for member in open_:
        member.open()
    omp.taskwait()
    assert (read[0] == np.arange(8) + 6).all()


@pytest.mark.parametrize("closes", [in_, out, inout, mutexinoutset])
def test_inoutset_sets_are_closed(streams, gates, probe, closes):
    """A task of another type follows every member, and members after it follow that task: not one of the set's."""
    log = []
    member = gates(inoutset(X))
    beside = omp.target(nowait=True, depend=[inoutset(X)])(lambda: log.append("member"))()
    other = gates(closes(X), body=lambda: log.append("other"))
    omp.target(nowait=True, depend=[inoutset(X)])(lambda: log.append("later"))()
    streams.go()
    beside.result()
    probe()
    assert log == ["member"]
    member.open()
    other.shut()
    probe()
    assert log == ["member", "other"]
    other.open()
    omp.taskwait()
    assert log == ["member", "other", "later"]


def test_multiple_edges_inoutset(streams, gates):
    """openmp/…/kmp_task_deps_multiple_edges_inoutset.c: sets over several items are one edge to each member, and the
    task after them runs once, when all members are complete."""
    log = []
    items = [("item", number) for number in range(4)]
    members = [gates(inoutset(*items)) for _ in range(3)]
    task = omp.task(depend=[inout(*items), in_(items[0])])(lambda: log.append(1))()
    assert sorted(map(id, task.dependencies)) == sorted(id(member.task) for member in members)
    streams.go()
    for member in members:
        assert log == []
        member.open()
    omp.taskwait()
    assert log == [1]
    assert task.dependencies == ()


# -- all_memory ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [out, inout])
def test_depend_inout_omp_all_memory(streams, gates, probe, kind):
    """5.1/depend/test_depend_inout_omp_all_memory.c: a task on all memory sees what the writers of x and of y wrote,
    and the writers after it write after it."""
    x, y, seen = np.zeros(1), np.zeros(1), []
    gate = gates()
    omp.task(depend=[out(x), gate.after])(lambda: x.fill(1))()
    omp.target(nowait=True, map=[tofrom("y")], depend=[out("y"), gate.after])(lambda y: on_device() or y.fill(2))(y)
    everything = gates(kind(all_memory), body=lambda: seen.append((x[0], y[0])))
    omp.task(depend=[out(x)])(lambda: x.fill(3))()
    omp.target(nowait=True, map=[tofrom("y")], depend=[out("y")])(lambda y: on_device() or y.fill(4))(y)
    streams.go()
    probe()
    assert seen == []
    gate.open()
    everything.shut()
    probe()
    assert seen == [(1, 2)]
    assert (x[0], y[0]) == (1, 2)
    everything.open()
    omp.taskwait()
    assert (x[0], y[0]) == (3, 4)


def test_task_depend_all(streams, gates, probe):
    """openmp/…/kmp_task_depend_all.c: tasks on all memory run alone among those with dependences, and one after the
    other; other items on them say nothing more; tasks without dependences are not ordered by them."""
    log = []
    before = gates(in_(X))
    first = gates(out(all_memory), in_(X), body=lambda: log.append("first"))
    second = gates(in_(Y), inout(all_memory), body=lambda: log.append("second"))
    omp.task(depend=[in_(Z)])(lambda: log.append("reader"))()  # of what nobody has named before
    streams.go()
    probe()  # has no dependences and so runs
    assert log == []
    before.open()
    first.shut()
    probe()
    assert log == ["first"]
    first.open()
    second.shut()
    probe()
    assert log == ["first", "second"]
    second.open()
    omp.taskwait()
    assert log == ["first", "second", "reader"]


def test_all_memory_does_not_follow_tasks_without_depend(streams, gates):
    """A task on all memory runs while one without dependences is open."""
    event = omp.Event()
    held = omp.task(detach=event)(nothing)()
    streams.go()
    try:
        omp.task(depend=[inout(all_memory)])(nothing)().result()
        omp.task(depend=[in_(X)])(nothing)().result()
        assert not held.done()
    finally:
        event.fulfill()
    omp.taskwait()


def test_all_memory_is_written_only():
    """`all_memory` in a dependence that does not write is a DependError."""
    for kind in (in_, mutexinoutset, inoutset):
        with pytest.raises(omp.DependError):
            kind(all_memory)


# -- dependences of taskwait ----------------------------------------------------------------------------
def test_taskwait_depend_all(streams, gates):
    """openmp/…/kmp_taskwait_depend_all.c: taskwait on all memory waits for all siblings with dependences, and for none
    without."""
    event, log = omp.Event(), []
    open_ = omp.task(detach=event)(nothing)()
    for number in range(4):
        omp.task(depend=[out(("item", number))])(lambda number=number: log.append(number))()
    omp.target(nowait=True, depend=[in_(Z)])(lambda: log.append(4))()
    streams.go()
    try:
        omp.taskwait(depend=[inout(all_memory)])
        assert sorted(log) == [0, 1, 2, 3, 4]
        assert not open_.done()
    finally:
        event.fulfill()
    omp.taskwait()


def test_taskwait_depend_waits_for_the_last_set(streams, gates):
    """taskwait depend(in) does not wait for readers, nor for what other items name; inout waits for readers."""
    x = np.zeros(4)
    omp.task(depend=[out(x)])(lambda: x.fill(1))()
    reader, other = gates(in_(x)), gates(out(Y))
    streams.go()
    omp.taskwait(depend=[in_(x)])
    assert (x == 1).all()
    assert not reader.task.done()
    reader.open()
    omp.taskwait(depend=[inout(x[1:2])])  # shares bytes
    assert reader.task.done()
    assert not other.task.done()
    other.open()
    omp.taskwait()


def test_taskwait_nowait_is_edges(streams, gates, probe):
    """`taskwait nowait` blocks nobody and is a task of several dependences (llvm#59941, #219247): what follows it
    follows what it follows."""
    log = []
    first, second = gates(out(X)).shut(), gates(inout(Y))  # a body that has not run would hold the first one up
    edges = omp.taskwait(depend=[in_(X), inout(Y), out(Z)], nowait=True)
    omp.task(depend=[in_(Z)])(lambda: log.append("after"))()
    omp.target(nowait=True, depend=[in_(Z)])(lambda: log.append("device"))()
    streams.go()
    probe()
    assert log == []
    assert not edges.done()
    first.open()
    probe()
    assert log == []
    assert edges.dependencies == (second.task,)
    second.open()
    omp.taskwait()
    assert sorted(log) == ["after", "device"]
    assert edges.result() is None


def test_taskwait_nowait_does_not_block(alone, gates):
    """The edges are there although nothing can run: no worker, streams that stand still, a gate that is closed."""
    a = np.zeros(N)
    gate = gates()
    region = omp.target(nowait=True, depend=[inout(a), gate.after])(lambda a: a.fill(1))(a)
    edges = omp.taskwait(depend=[in_(a), out(X)], nowait=True)
    after = omp.task(depend=[in_(X)])(a.sum)()
    assert not any(task.done() for task in (region, edges, after))
    gate.open()
    alone.go()
    omp.taskwait()
    assert after.result() == N


def test_taskwait_clauses(runtime):
    """taskwait refuses mutexinoutset, nowait without dependences, and names that are strings."""
    for nowait in (False, True):
        with pytest.raises(omp.DependError):
            omp.taskwait(depend=[mutexinoutset(X)], nowait=nowait)
        with pytest.raises(omp.DependError):
            omp.taskwait(depend=[omp.depobj(mutexinoutset(X))], nowait=nowait)
        with pytest.raises(omp.ClauseError):
            omp.taskwait(depend=[in_("x")], nowait=nowait)
    with pytest.raises(omp.ClauseError):
        omp.taskwait(nowait=True)
    omp.taskwait()


def test_siblings_only_for_every_type(streams, gates):
    """Tasks of different generating tasks are neither ordered nor exclude each other, whatever they name."""
    held = [gates(kind((kind.__name__,))) for kind in (out, mutexinoutset, inoutset)]
    held.append(gates(out(all_memory)))

    def outer():
        for kind in (in_, out, inout, mutexinoutset, inoutset):
            for name in ("out", "mutexinoutset", "inoutset"):
                omp.task(depend=[kind((name,))])(nothing)()
        omp.task(depend=[inout(all_memory)])(nothing)()
        omp.taskwait()

    streams.go()
    omp.task(outer)().result()
    assert not any(gate.task.done() for gate in held)
    for gate in held:
        gate.open()
    omp.taskwait()
