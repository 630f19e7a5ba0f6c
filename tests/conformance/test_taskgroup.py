"""`taskwait`, `taskgroup`, `barrier`: what each waits for (OpenMP 5.2, 15.3 to 15.5; semantics, section 13)."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import offload as omp
from offload import from_, in_, inout, out, to

N = 64
X = ("x",)


def nothing(*arrays):
    pass


def fill(a, value):
    assert not omp.is_initial_device()
    a.fill(value)


class LateFulfil:
    """Fulfils an event from a thread of its own, once told to; ``log`` shows what came first."""

    def __init__(self, log):
        self.log = log
        self.event = omp.Event()
        self.may = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        self.may.wait()
        self.log.append("fulfilled")
        self.event.fulfill()

    def end(self):
        self.may.set()
        self.thread.join()


@pytest.fixture
def late():
    """Make what fulfils events late; nothing of it is left open."""
    made = []

    def make(log):
        made.append(LateFulfil(log))
        return made[-1]

    yield make
    for one in made:
        one.end()


# -- taskwait -----------------------------------------------------------------------------------------
def test_taskwait_waits_for_children_only(streams, gates):
    """taskwait returns when the children are complete although a child of theirs is not."""
    event, inner = omp.Event(), []
    streams.go()

    def outer():
        inner.append(omp.task(detach=event)(nothing)())

    child = omp.task(outer)()
    try:
        omp.taskwait()
        assert child.done()
        assert not inner[0].done()
    finally:
        event.fulfill()


def test_taskwait_inside_a_task(streams, gates):
    """A body's taskwait waits for the body's children: not for siblings of the task."""
    sibling, log = gates(), []
    streams.go()

    def outer():
        omp.task(lambda: log.append("child"))()
        omp.target(nowait=True)(lambda: log.append("region"))()
        omp.taskwait()
        log.append("waited")

    omp.task(outer)().result()
    assert sorted(log[:2]) == ["child", "region"]
    assert log[2:] == ["waited"]
    assert not sibling.task.done()
    sibling.open()


def test_taskwait_waits_for_every_deferred_construct(streams):
    """taskwait waits for regions, entries, exits, updates, copies and fills with nowait, copies back included
    (llvm#49160, #65237)."""
    a, b, c = np.zeros(N), np.ones(N), np.zeros(N)
    d = omp.target_alloc(N, np.float64)
    found, filled = np.zeros(N), np.zeros(N, "u1")
    bytes_ = omp.target_alloc(N, "u1")
    tasks = [
        omp.target(nowait=True)(fill)(a, 1),
        omp.target_enter_data(map=[to(b)], nowait=True, depend=[out(b)]),
        omp.target(nowait=True, depend=[inout(b)])(fill)(b, 3),
        omp.target_update(from_=[b], nowait=True, depend=[inout(b)]),
        omp.target_memcpy_async(d, np.full(N, 4.0), depend=[out(d)]),
        omp.target_memcpy_async(found, d, depend=[in_(d)]),
        omp.target_memset_async(bytes_, 5, depend=[out(bytes_)]),
        omp.target_memcpy_rect_async(filled, bytes_, depend=[in_(bytes_)]),
        omp.target_enter_data(map=[to(c)], nowait=True, depend=[out(c)]),
        omp.target(nowait=True, depend=[inout(c)])(fill)(c, 6),
        omp.target_exit_data(map=[from_(c)], nowait=True, depend=[inout(c)]),
    ]
    streams.go()
    omp.taskwait()
    assert all(task.done() for task in tasks)
    for array, value in ((a, 1), (b, 3), (found, 4), (filled, 5), (c, 6)):
        assert (array == value).all()
    assert omp.target_is_present(b)
    assert not omp.target_is_present(c)
    omp.target_exit_data(map=[omp.release(b)])
    omp.target_free(d)
    omp.target_free(bytes_)


def test_taskwait_is_for_the_thread_s_own_tasks(streams, gates):
    """Each host thread generates for itself: its taskwait does not wait for another's tasks."""
    gate = gates()
    streams.go()
    found = []

    def other():
        omp.task(lambda: found.append(1))()
        omp.taskwait()
        found.append(gate.task.done())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [1, False]
    gate.open()


# -- taskgroup ----------------------------------------------------------------------------------------
def test_taskgroup_waits_for_descendants(streams, late):
    """The end of a taskgroup waits for grandchildren: one with an open event, and one on a device."""
    log, a = [], np.zeros(N)
    fulfil = late(log)

    def inner():
        omp.task(detach=fulfil.event)(nothing)()
        omp.target(nowait=True)(fill)(a, 1)

    def outer():
        omp.task(inner)()
        omp.task(fulfil.may.set)()

    streams.go()
    with omp.taskgroup():
        omp.task(outer)()
    log.append("end")
    assert log == ["fulfilled", "end"]
    assert (a == 1).all()


def test_taskgroup_without_workers(alone):
    """The end of a taskgroup runs what nobody else will, to the last descendant, and waits for the device."""
    log, a = [], np.zeros(N)

    def deep(level):
        if level:
            omp.task(deep)(level - 1)
        else:
            omp.target(nowait=True)(fill)(a, 1)
        log.append(level)

    with omp.taskgroup():
        omp.task(deep)(20)
        assert log == []
        alone.go()
    assert sorted(log) == list(range(21))
    assert (a == 1).all()


def test_taskgroup_does_not_wait_for_others(streams, gates):
    """Tasks generated before the group, by other threads, or after an inner group, are not those of the group."""
    before = gates()
    made = []

    def other():
        made.append(gates())

    thread = threading.Thread(target=other)
    streams.go()
    with omp.taskgroup():
        inside = omp.target(nowait=True)(nothing)()
        thread.start()
        thread.join()
    assert inside.done()
    assert not before.task.done()
    assert not made[0].task.done()
    before.open()
    made[0].open()


def test_nested_taskgroups(streams, gates):
    """An inner group waits for its own tasks only; the outer one for what was generated around it as well."""
    log = []
    streams.go()
    with omp.taskgroup():
        gate = gates()
        omp.task(depend=[gate.after])(lambda: log.append("outer"))()
        with omp.taskgroup():
            omp.task(lambda: log.append("inner"))()
        log.append("between")
        gate.open()
    assert log == ["inner", "between", "outer"]


def test_taskgroup_inside_a_task(streams):
    """A taskgroup in a body waits there, also on the only worker."""
    log = []

    def child(number):
        log.append(number)

    def outer():
        with omp.taskgroup():
            for number in range(10):
                omp.task(child)(number)
        log.append("end")

    streams.go()
    omp.task(outer)().result()
    assert sorted(log[:-1]) == list(range(10))
    assert log[-1] == "end"


def test_taskgroup_raises_what_failed_in_it(streams):
    """The end of the group raises the failures of its tasks, of descendants too, and of no others; once."""
    streams.go()
    other = omp.task([].pop)()

    def fails_below():
        omp.task(lambda: 1 / 0)()

    with pytest.raises(ExceptionGroup) as caught, omp.taskgroup():
        omp.task(fails_below)()
        omp.target(nowait=True)(lambda: {}[0])()
    assert sorted(type(error).__name__ for error in caught.value.exceptions) == ["KeyError", "ZeroDivisionError"]
    assert isinstance(other.exception(), IndexError)
    omp.taskwait()


# -- barrier ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("whose", ["thread", "descendant", "device"])
def test_barrier_waits_for_every_task(streams, late, whose):
    """A barrier waits for the tasks of other host threads, for descendants, and for regions: data is back."""
    log, a = [], np.zeros(N)
    fulfil = late(log)

    def generate():
        omp.task(detach=fulfil.event, depend=[out(X)])(nothing)()
        if whose == "device":
            omp.target(nowait=True, depend=[in_(X)])(fill)(a, 1)

    streams.go()
    if whose == "descendant":
        omp.task(generate)()
        omp.taskwait()  # for the child only
    else:
        thread = threading.Thread(target=generate)
        thread.start()
        thread.join()
    omp.taskwait()
    omp.task(fulfil.may.set)()
    omp.barrier()
    log.append("barrier")
    assert log == ["fulfilled", "barrier"]
    assert (a == (1 if whose == "device" else 0)).all()


def test_barrier_in_a_task(streams):
    """A barrier inside of a task, which it would wait for, is a UsageError."""
    streams.go()
    with pytest.raises(omp.UsageError):
        omp.task(omp.barrier)().result()


# -- nothing waits without being asked ------------------------------------------------------------------
def test_nothing_is_synchronous_without_workers(alone):
    """Without any worker, and with streams that stand still, every deferred construct returns before it has run
    (llvm#63394, #60755)."""
    a, b = np.zeros(N), np.zeros(N)
    d = omp.target_alloc(N, np.float64)
    ran = []
    tasks = [
        omp.task(lambda: ran.append("task"))(),
        omp.target(nowait=True, depend=[inout(a)])(fill)(a, 1),
        omp.target_enter_data(map=[to(b)], nowait=True, depend=[inout(b)]),
        omp.target_update(to=[b], nowait=True, depend=[inout(b)]),
        omp.target_update(from_=[b], nowait=True, depend=[inout(b)]),
        omp.target_memcpy_async(d, a, depend=[in_(a)]),
        omp.target_memset_async(d, 0, depend=[inout(d)]),
        omp.taskwait(depend=[in_(a), inout(b)], nowait=True),
        omp.target_exit_data(map=[from_(b)], nowait=True, depend=[inout(b)]),
        omp.target(nowait=True, if_=False, depend=[in_(b)])(lambda: ran.append("host"))(),
    ]
    if omp.device(0).kind == "sim":
        assert not any(task.done() for task in tasks)
        assert ran == []
    alone.go()
    omp.taskwait()
    assert all(task.done() for task in tasks)
    assert ran == ["task", "host"]
    assert (a == 1).all()
    omp.target_free(d)


def test_synchronous_constructs_follow_without_workers(alone):
    """A construct without nowait runs its predecessors first where nobody else does, and so do undeferred tasks."""
    x, a, log = ("chain",), np.zeros(N), []
    alone.go()
    omp.task(depend=[out(x)])(lambda: log.append(0))()
    omp.task(if_=False, depend=[inout(x)])(lambda: log.append(1))()
    assert log == [0, 1]
    omp.task(depend=[inout(x)])(lambda: a.fill(2))()
    omp.target_enter_data(map=[to(a)], depend=[inout(x)])
    omp.task(depend=[inout(x)])(lambda: log.append(2))()
    omp.target(depend=[inout(x)])(lambda a: a.__iadd__(len(log)) is None)(a)
    assert log == [0, 1, 2]
    omp.task(depend=[inout(x)])(lambda: log.append(3))()
    omp.target_update(from_=[a], depend=[inout(x)])
    assert log == [0, 1, 2, 3]
    assert (a == 5).all()
    omp.target(nowait=True, depend=[inout(x)])(fill)(a, 7)
    omp.target_exit_data(map=[from_(a)], depend=[inout(x)])
    assert (a == 7).all()
    omp.task(depend=[inout(x)])(lambda: log.append(4))()
    omp.target(if_=False, depend=[inout(x)])(lambda: log.append(5))()
    omp.task(depend=[inout(x)])(lambda: log.append(6))()
    omp.taskwait(depend=[in_(x)])
    assert log == [0, 1, 2, 3, 4, 5, 6]


def test_target_update_both_ways(streams, gates):
    """`target update nowait` with depend moves data in both directions, each after its predecessors; a `taskwait` on
    the same item waits for it (CoreNeuron#725)."""
    x, s = np.zeros(N), ("stream", 1)
    gate = gates()
    omp.target_enter_data(map=[to(x)], nowait=True, depend=[out(s)])
    omp.task(depend=[inout(s), gate.after])(lambda: x.fill(3))()
    omp.target_update(to=[x], nowait=True, depend=[inout(s)])
    omp.target(nowait=True, depend=[inout(s)])(lambda x: x.__imul__(2) is None)(x)
    omp.target_update(from_=[x], nowait=True, depend=[inout(s)])
    gate.open()
    streams.go()
    omp.taskwait(depend=[inout(s)])
    assert (x == 6).all()
    omp.target_exit_data(map=[omp.release(x)])
