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

IS_SOAK = settings.default.max_examples > 1_000  # the soak profile, tests/conftest.py
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


@pytest.mark.timeout(1_800 if IS_SOAK else 60)
@pytest.mark.parametrize("num_threads", [0, 2])
@pytest.mark.parametrize("seeded", [False, True])
@given(st.lists(operation, min_size=1, max_size=12), st.integers(0, 2**32 - 1))
@settings(max_examples=1_000 if IS_SOAK else 60)
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
