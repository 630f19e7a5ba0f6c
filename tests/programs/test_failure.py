"""Injected failures: no dependent starts, the others finish, nothing leaks."""

from __future__ import annotations

import gc
from concurrent.futures import Future

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offload as omp
from offload import DependError, DeviceMemoryError, depobj, in_, inout, inoutset, mutexinoutset, tofrom
from tests.profiles import examples, is_soak

N_ARRAYS = 4


class InjectedError(Exception):
    """Raised by bodies that are to fail."""


def leaves(error):
    """Return the exceptions of a group, however it nests."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


operation = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(
            ["task", "task", "target", "detach", "stream", "future", "nested", "group", "edge", "big", "enter"]
        ),
        "writes": st.integers(0, N_ARRAYS - 1),
        "type": st.sampled_from(["inout", "inout", "mutexinoutset", "inoutset"]),
        "reads": st.lists(st.integers(0, N_ARRAYS - 1), max_size=2),
        "fails": st.sampled_from([False, False, False, True]),
    }
)


def generate(op, number, arrays, ran):
    """Generate the task of one operation; return it."""
    y = arrays[op["writes"]]
    written = depobj(inout(y))
    written.update(op["type"])
    depend = [written, *(in_(arrays[k]) for k in op["reads"])]
    kind = op["kind"]
    if kind == "edge":  # cannot exclude
        depend[0] = inoutset(y) if op["type"] == "inoutset" else inout(y)
        return omp.taskwait(nowait=True, depend=depend)

    def body(*_):
        ran.append(number)
        if op["fails"]:
            raise InjectedError(number)

    if kind == "target":
        return omp.target(map=[tofrom(y)], depend=depend, nowait=True)(body)(y)
    if kind == "big":  # finds no memory, whatever is mapped
        return omp.target(depend=depend, nowait=True)(body)(np.zeros(1 << 20, "u1"))
    if kind == "enter":  # an item that overlaps what it maps in part
        size = 1 << 20 if op["fails"] else 8
        return omp.target_enter_data(map=[omp.alloc(np.zeros(size, "u1"))], depend=depend, nowait=True)
    if kind == "task":
        return omp.task(depend=depend)(body)()
    if kind in ("nested", "group"):

        def outer():
            inner = [inout(("inner",))]
            if kind == "group":
                with omp.taskgroup():
                    omp.task(depend=inner)(body)()
                    omp.task(depend=inner)(lambda: None)()
            else:
                omp.task(depend=inner)(body)()
                omp.task(depend=inner)(lambda: None)()
                omp.taskwait()

        return omp.task(depend=depend)(outer)()
    event = omp.Event()

    def begin():
        body()
        if kind == "stream":
            event.fulfill_on(omp.current_stream())
        elif kind == "future":
            future = Future()
            event.fulfill_on(future)
            future.set_result(None)
        else:
            event.fulfill()

    return omp.task(depend=depend, detach=event)(begin)()


def expectations(program):
    """Return for each task None, ``"own"`` (it fails by itself) or ``"poisoned"``."""
    earlier, expected = [], []
    for op in program:
        kind = "inout" if op["kind"] == "edge" and op["type"] == "mutexinoutset" else op["type"]
        items = [(op["writes"], kind), *((k, "in") for k in op["reads"])]
        own = (op["fails"] and op["kind"] != "edge") or op["kind"] == "big"
        is_poisoned = any(
            bad and k == other and (kind != before or kind == "inout")
            for olds, bad in zip(earlier, expected, strict=True)
            for other, before in olds
            for k, kind in items
        )
        expected.append("poisoned" if is_poisoned else "own" if own else None)
        earlier.append(items)
    return expected


def check(program, tasks, ran, caught):
    """Check what ran, what failed and how, and that the wait told of each failure once."""
    expected = expectations(program)
    for number, (op, task) in enumerate(zip(program, tasks, strict=True)):
        assert task.done()
        failure = task.exception()
        runs_body = op["kind"] not in ("big", "enter", "edge") and expected[number] != "poisoned"
        assert (number in ran) == runs_body
        if expected[number] is None:
            assert failure is None
            assert task.state == "complete"
        elif expected[number] == "poisoned":
            assert isinstance(failure, DependError)
            assert isinstance(failure.__cause__, (InjectedError, DeviceMemoryError, ExceptionGroup))
        else:
            own = DeviceMemoryError if op["kind"] in ("big", "enter") else InjectedError
            assert all(isinstance(leaf, own) for leaf in leaves(failure))
    failures = [task.exception() for number, task in enumerate(tasks) if expected[number] == "own"]
    roots = {id(leaf) for failure in failures for leaf in leaves(failure)}
    assert set(map(id, leaves(caught) if caught else [])) == roots


@pytest.mark.timeout(1_800 if is_soak() else 60)
@pytest.mark.parametrize("num_threads", [0, 2])
@pytest.mark.parametrize("seeded", [False, True])
@given(st.lists(operation, min_size=1, max_size=12), st.integers(0, 2**32 - 1))
@settings(max_examples=examples(60, soak=1_000))
def test_failures_poison_their_dependents_only(num_threads, seeded, program, seed):
    """A task fails if and only if its body does or one that it depends on did; whoever waits learns of each."""
    arrays = [np.zeros(4) for _ in range(N_ARRAYS)]
    ran = []
    seed = seed if seeded else None
    with omp.Runtime(
        "sim", num_threads=num_threads, check=True, seed=seed, env={"OFFLOAD_SIM_MEMORY": "64K"}
    ) as runtime:
        place = runtime.places[0]
        tasks = [generate(op, number, arrays, ran) for number, op in enumerate(program)]
        caught = None
        try:
            omp.taskwait()
        except BaseExceptionGroup as error:
            caught = error
        check(program, tasks, ran, caught)
        again = omp.task(depend=[mutexinoutset(*arrays), inout(("inner",))])(lambda: "ran")()
        assert again.result() == "ran"  # mutexes are free, and failures that have been seen poison nothing
        omp.target_exit_data(map=[omp.release(entry.host) for entry in place.table.entries()])
    del tasks, caught
    if place.device.live_nbytes():
        gc.collect()
    assert place.device.live_nbytes() == 0
    assert not place.in_flight


# -- what has been seen ------------------------------------------------------------------------------

step = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["task", "task", "target", "undeferred", "synchronous", "edge"]),
        "items": st.lists(
            st.tuples(
                st.integers(0, N_ARRAYS - 1), st.sampled_from(["in", "inout", "inout", "mutexinoutset", "inoutset"])
            ),
            min_size=1,
            max_size=3,
            unique_by=lambda item: item[0],
        ),
        "everything": st.sampled_from([False] * 9 + [True]),
        "fails": st.booleans(),
        "sees": st.lists(st.integers(0, 20), max_size=2),
        "drops": st.booleans(),
        "is_held": st.booleans(),
        "waits": st.sampled_from([False, False, False, True]),
    }
)

UNDEFERRED = ("undeferred", "synchronous")


class Model:
    """What is known of the tasks of a program, in a serial world."""

    def __init__(self):
        self.items, self.state, self.seen, self.behind = [], [], [], []

    def add(self, items, fails):
        """Enter a task; return its state: ``"ok"``, ``"own"`` or ``"not run"``."""
        number = len(self.items)
        behind = [old for old in range(number) if self._conflict(items, self.items[old]) and self.stands(old)]
        self.items.append(items)
        self.behind.append(behind)
        self.state.append("not run" if behind else "own" if fails else "ok")
        self.seen.append(False)
        return self.state[-1]

    def stands(self, number):
        """Tell whether a failure keeps what follows this task from running: its own, or one that it did not run for."""
        if self.state[number] == "ok":
            return False
        return not self.seen[number] or any(map(self.stands, self.behind[number]))

    @staticmethod
    def _conflict(items, others):
        return any(
            (k == other or None in (k, other)) and (kind != before or kind == "inout")
            for k, kind in items
            for other, before in others
        )


def clauses_of(op):
    """Return the items of one step for the model, and its ``depend``."""
    if op["everything"]:
        return [(None, "inout")], lambda arrays: [inout(omp.all_memory)]
    named = {"in": in_, "inout": inout, "inoutset": inoutset, "mutexinoutset": mutexinoutset}
    items = op["items"]
    if op["kind"] == "edge":  # cannot exclude
        items = [(k, "inout" if kind == "mutexinoutset" else kind) for k, kind in items]
    return items, lambda arrays: [named[kind](arrays[k]) for k, kind in items]


def run_step(op, model, arrays, number, ran):
    """Generate the task of one step, of which the model says what becomes of it; return it, None if none is left."""
    items, depend = clauses_of(op)
    fails = op["fails"] and op["kind"] != "edge"
    state = model.add(items, fails)

    def body(*_):
        ran.append(number)
        if fails:
            raise InjectedError(number)

    kind = op["kind"]
    if kind == "edge":
        return omp.taskwait(nowait=True, depend=depend(arrays))
    made = {
        "task": omp.task(depend=depend(arrays)),
        "target": omp.target(nowait=True, depend=depend(arrays)),
        "undeferred": omp.task(if_=False, depend=depend(arrays)),
        "synchronous": omp.target(depend=depend(arrays)),
    }[kind](body)
    if kind not in UNDEFERRED:
        task = made()
        return task if op["is_held"] else None
    model.seen[number] = True
    if state == "ok":
        made()
        return None
    with pytest.raises(InjectedError if state == "own" else DependError) as caught:
        made()
    if state == "not run":
        assert isinstance(caught.value.__cause__, InjectedError)
    return None


def let_end(tasks, numbers):
    """Have some tasks complete, and nobody see a failure of theirs."""
    for number in numbers:
        while tasks[number] is not None and not tasks[number].done():
            omp.taskyield()


@pytest.mark.timeout(1_800 if is_soak() else 120)
@pytest.mark.parametrize("num_threads", [0, 1, 2, 4])
@given(st.lists(step, min_size=2, max_size=14), st.none() | st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=examples(60, soak=1_000), deadline=None)
def test_what_somebody_has_seen_is_over_and_nothing_else(num_threads, program, seed, at_once):
    """A task runs unless a failure that nobody has seen is before it, whoever runs it, holds it or has ended when."""
    arrays = [np.zeros(4) for _ in range(N_ARRAYS)]
    model, tasks, ran, expected = Model(), [], [], []
    with omp.Runtime("sim", num_threads=num_threads, seed=seed) as runtime:
        for op in program:
            tasks.append(run_step(op, model, arrays, len(tasks), ran))
            expected += [len(tasks) - 1] * (model.state[-1] != "not run" and op["kind"] != "edge")
            if at_once:
                let_end(tasks, [len(tasks) - 1])
            for at in op["sees"]:
                number = at % len(tasks)
                if tasks[number] is not None:
                    failure = tasks[number].exception()
                    assert (failure is None) == (model.state[number] == "ok")
                    model.seen[number] = True
                    if op["drops"]:
                        tasks[number] = None
            if op["waits"]:
                everything_is_seen(model)
        everything_is_seen(model)
        again = omp.task(depend=[inout(omp.all_memory)])(lambda: "ran")()
        assert again.result() == "ran"
        assert not runtime.scope().region.children.failures
        assert sorted(ran) == expected


def everything_is_seen(model):
    """Wait for all, which tells of what nobody has seen."""
    unseen = [number for number, state in enumerate(model.state) if state != "ok" and not model.seen[number]]
    if unseen:
        with pytest.raises(ExceptionGroup):
            omp.taskwait()
    else:
        omp.taskwait()
    model.seen = [True] * len(model.seen)
