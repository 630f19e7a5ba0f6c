"""Exclusion: members of a ``mutexinoutset`` that share storage never overlap in time, and hold up nobody else.

A task counts as inside from the beginning of its body until it is about to be complete: for a detached one until just
before its event is fulfilled, which another thread does.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from queue import SimpleQueue

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offload as omp
from offload import in_, inout, mutexinoutset, tofrom
from tests.profiles import examples, is_soak

X, Y = slice(0, 8), slice(8, 16)
VIEWS = (slice(0, 4), slice(2, 6), slice(4, 8), slice(0, 8, 2), slice(1, 8, 2), X, slice(8, 12), slice(10, 14), Y)

members = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["task", "task", "detach", "target", "undeferred", "fails"]),
        "items": st.lists(st.sampled_from(VIEWS), min_size=1, max_size=3),
        "tokens": st.lists(st.integers(0, 1), max_size=1),
    }
)
programs = st.lists(members | st.sampled_from([*VIEWS[:3], Y]), min_size=2, max_size=16)


class InjectedError(Exception):
    """Raised by bodies that are to fail."""


@pytest.fixture(autouse=True)
def threads_take_turns():
    """Have threads change so often that what may overlap does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Inside:
    """The tasks that are inside, and a thread that fulfils events in an order of its own."""

    def __init__(self, memory, seed):
        self.memory = memory
        self.lock = threading.Lock()
        self.inside = {}
        self.n_ran = 0
        self.rng = random.Random(seed)
        self.queue = SimpleQueue()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        held = []
        while True:
            if held and (self.queue.empty() or self.rng.random() < 0.5):
                leave, event = held.pop(self.rng.randrange(len(held)))
                leave()
                event.fulfill()
                continue
            job = self.queue.get()
            if job is None:
                return
            held.append(job)

    def end(self):
        self.queue.put(None)
        self.thread.join()

    def enter(self, number, op):
        with self.lock:
            for other in self.inside.values():
                assert not share(other, op), (other, op)
            self.inside[number] = op
            self.n_ran += 1

    def add(self, op):
        """Add 1 to every byte of each item, in two steps that another thread may come between."""
        for item in op["items"]:
            found = self.memory[item].copy()
            threading.get_ident()  # a moment
            self.memory[item] = found + 1

    def leave(self, number):
        with self.lock:
            del self.inside[number]


def share(one, other):
    """Tell whether two tasks name storage in common."""
    cells = set(range(16))
    bytes_of = [{cell for item in op["items"] for cell in list(cells)[item]} for op in (one, other)]
    return bool(bytes_of[0] & bytes_of[1]) or bool(set(one["tokens"]) & set(other["tokens"]))


def generate(number, op, inside):
    """Generate one member of a set, or a task of another type that closes it."""
    memory = inside.memory
    if isinstance(op, slice):
        view = memory[op]

        def reads():
            with inside.lock:
                assert not any(share({"items": [op], "tokens": []}, other) for other in inside.inside.values())

        return omp.task(depend=[in_(view) if number % 2 else inout(view)])(reads)()
    kind = op["kind"]
    items = [memory[item] for item in op["items"]] + [("token", token) for token in op["tokens"]]
    depend = [mutexinoutset(*items[:1]), *([mutexinoutset(*items[1:])] if items[1:] else [])]

    def begin():
        inside.enter(number, op)
        inside.add(op)

    def body(*_):
        begin()
        inside.leave(number)

    def fails():
        body()
        raise InjectedError(number)

    if kind == "target":
        return omp.target(map=[tofrom("own")], depend=depend, nowait=True)(lambda own: body())(np.zeros(2))
    if kind == "detach":
        event = omp.Event()

        def detached():
            begin()
            inside.queue.put((lambda: inside.leave(number), event))

        return omp.task(depend=depend, detach=event)(detached)()
    if kind == "fails":
        return omp.task(depend=depend)(fails)()
    return omp.task(depend=depend, if_=kind != "undeferred")(body)()


@pytest.mark.timeout(1_800 if is_soak() else 60)
@pytest.mark.parametrize("num_threads", [0, 1, 4])
@given(programs, st.none() | st.integers(0, 2**32 - 1))
@settings(max_examples=examples(60, soak=1_000))
def test_peers_never_overlap(num_threads, program, seed):
    """Tasks that exclude each other take turns, each runs once, and those that fail give back what they had."""
    # After a failure what depends on it does not run: here the set is all there is.
    fails = any(not isinstance(op, slice) and op["kind"] == "fails" for op in program)
    if fails:
        program = [op for op in program if not isinstance(op, slice)]
    inside = Inside(np.zeros(16), seed)
    expected = np.zeros(16)
    with omp.Runtime("sim", num_threads=num_threads, check=True, seed=seed):
        try:
            tasks = [generate(number, op, inside) for number, op in enumerate(program)]
            with contextlib.suppress(*[ExceptionGroup] * fails):
                omp.taskwait()
            assert all(isinstance(task.exception(), (InjectedError, type(None))) for task in tasks)
        finally:
            inside.end()
        later = omp.task(depend=[mutexinoutset(inside.memory)])(lambda: "free")()
        assert later.result() == "free"
    sets = [op for op in program if not isinstance(op, slice)]
    for op in sets:
        for item in op["items"]:
            expected[item] += 1
    assert inside.n_ran == len(sets)
    np.testing.assert_array_equal(inside.memory, expected)


@pytest.mark.parametrize("num_threads", [0, 1, 4])
def test_an_excluded_task_holds_no_worker(num_threads):
    """While a detached task has what many need, other tasks run; then each of the many does."""
    x, y = np.zeros(4), np.zeros(4)
    event = omp.Event()
    ran = []
    with omp.Runtime("none", num_threads=num_threads):
        holder = omp.task(depend=[mutexinoutset(x)], detach=event)(lambda: ran.append("holder"))()
        if num_threads:
            while holder.state != "detached":
                omp.task(lambda: None)().result(timeout=60)
        excluded = [omp.task(depend=[mutexinoutset(x), mutexinoutset(y)])(ran.append)(number) for number in range(20)]
        other = omp.task(depend=[inout(("another",))])(lambda: "ran")()
        assert other.result(timeout=60 if num_threads else None) == "ran"
        if num_threads:  # nobody has y while x is taken
            assert omp.task(depend=[mutexinoutset(y)])(lambda: "ran")().result(timeout=60) == "ran"
            assert ran == ["holder"]
            assert not any(task.done() for task in excluded)
        event.fulfill()
        omp.taskwait()
    assert sorted(map(str, ran)) == sorted([*map(str, range(20)), "holder"])


def test_philosophers():
    """Tasks that need two of five in any order take turns without deadlock."""
    forks = [np.zeros(1) for _ in range(5)]
    with omp.Runtime("none", num_threads=4):
        for number in range(500):
            left, right = forks[number % 5], forks[(number + 1) % 5]
            pair = [mutexinoutset(left, right)] if number % 2 else [mutexinoutset(right), mutexinoutset(left)]
            omp.task(depend=pair)(lambda *pair: [np.add(fork, 1, out=fork) for fork in pair])(left, right)
        omp.taskwait()
    assert [fork[0] for fork in forks] == [200] * 5


def test_disjoint_parts_do_not_exclude_each_other():
    """Tasks that share no byte run at the same time, also if a third has named storage that overlaps both."""
    x = np.zeros(8)
    event = omp.Event()
    with omp.Runtime("none", num_threads=2):
        omp.task(depend=[inout(x)])(lambda: None)()
        omp.task(depend=[mutexinoutset(x[:4])], detach=event)(lambda: None)()
        other = omp.task(depend=[mutexinoutset(x[4:])])(lambda: "ran")()
        try:
            assert other.result(timeout=30) == "ran"
        finally:
            event.fulfill()
