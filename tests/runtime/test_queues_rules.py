"""A thousand async queues over eight streams against a model of FIFO queues.

The model is a graph of operations: each follows the last one of its queue and what its wait clause, or a `wait` that
is asynchronous, names. An operation is held by an event until the program releases it; so the model tells exactly which
are complete, which values `async_test` is True of, and which bodies may have run. Values that have a stream in common
are as likely as others.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offload as omp
from offload import acc
from offload.devices.streams import POOL_SIZE
from tests.conftest import checked
from tests.profiles import examples

N_VALUES = 1000
EXAMPLES = 1000
LIMIT_S = 10
MAIN, OTHER = "main", "other"
DEFAULTS = [True, acc.async_noval, acc.async_default]


# -- programs ----------------------------------------------------------------------------------------
class Run(NamedTuple):
    """Enqueue an operation: a compute region, or one without a body."""

    queue: object
    wait: object
    is_held: bool
    has_body: bool
    thread: str


class WaitAsync(NamedTuple):
    """Have a queue follow others, or all others."""

    queues: list | None
    target: object
    thread: str


class Wait(NamedTuple):
    """Wait on the host for queues, or all; what holds them is released meanwhile."""

    queues: list | None
    thread: str


class Release(NamedTuple):
    number: int


class Default(NamedTuple):
    queue: object
    thread: str


class Nth(NamedTuple):
    """One of the numbers that a program uses."""

    number: int


FEW = 4
THREADS = st.sampled_from([MAIN, MAIN, MAIN, OTHER])
VALUES = st.sampled_from([*map(Nth, range(FEW)), *map(Nth, range(FEW)), *DEFAULTS])
VALUES_OR_SYNC = st.sampled_from([*map(Nth, range(FEW)), *map(Nth, range(FEW)), *DEFAULTS, acc.async_sync])
VALUES_IN_LISTS = VALUES.filter(lambda value: value is not True)  # `wait(True)` is for all
SEVERAL = st.lists(VALUES_IN_LISTS, min_size=1, max_size=2)
USUALLY = st.sampled_from([True, True, False])
RUNS = st.builds(Run, VALUES_OR_SYNC, st.just(()) | st.just(()) | SEVERAL | st.just(True), USUALLY, USUALLY, THREADS)
STEPS = st.one_of(
    RUNS,
    RUNS,
    RUNS,
    st.builds(WaitAsync, SEVERAL | st.none(), VALUES, THREADS),
    st.builds(WaitAsync, st.lists(VALUES_IN_LISTS, min_size=2, max_size=3), VALUES, THREADS),
    st.builds(Release, st.integers(0, 9)),
    st.builds(Wait, SEVERAL | st.none(), THREADS),
    st.builds(Default, VALUES_OR_SYNC, THREADS),
)
NUMBERS = st.integers(0, N_VALUES - 1)


@st.composite
def programs(draw):
    """Return a list of steps over a few of the numbers, some of which have a stream in common, and a seed."""
    numbers = [draw(NUMBERS)]
    for _ in range(FEW - 1):
        other = draw(NUMBERS)
        shared = other - other % POOL_SIZE + numbers[0] % POOL_SIZE
        numbers.append(shared if draw(st.booleans()) else other)

    def meant(value):
        if isinstance(value, list):
            return [meant(item) for item in value]
        return numbers[value.number] if isinstance(value, Nth) else value

    steps = draw(st.lists(STEPS, min_size=2, max_size=9))
    return [step._make(map(meant, step)) for step in steps], draw(st.integers(0, 2**16))


# -- the model ---------------------------------------------------------------------------------------
class Operation:
    """One operation: what it follows, whether it is held, and its task, if the program has that."""

    def __init__(self, before, *, is_held=False):
        self.before = before
        self.is_held = is_held
        self.event = self.task = self.body = None
        self.ancestors = set(before).union(*[other.ancestors for other in before])

    @property
    def is_complete(self):
        return not self.is_held and not any(other.is_held for other in self.ancestors)

    def open(self):
        """Fulfil the event, if there is one and nobody has; a rescue may come in between."""
        with contextlib.suppress(omp.EventError):
            if self.event is not None:
                self.event.fulfill()


class Program:
    """Does steps to a runtime and to the model, and compares."""

    def __init__(self, threads, seed, limit_s):
        self.threads = threads
        self.random = random.Random(seed)
        self.limit_s = limit_s
        self.queues = {}  # by number: the operations, in order
        self.operations = []
        self.defaults = {MAIN: 0, OTHER: 0}
        self.lock = threading.Lock()
        self.ran = []

    def on(self, thread, function, *args, **clauses):
        """Call a function in a thread of the program."""
        if thread == MAIN:
            return function(*args, **clauses)
        return self.threads.submit(function, *args, **clauses).result()

    # .. what values mean
    def number(self, value, thread):
        """Return the number of a queue; None where the value is synchronous."""
        if value is True or value == acc.async_noval:
            value = self.defaults[thread]
        return {acc.async_sync: None, acc.async_default: 0}.get(value, value)

    def numbers(self, values, thread):
        if values is None or values is True:
            return list(self.queues)
        found = [self.number(value, thread) for value in values]
        return list(dict.fromkeys([number for number in found if number is not None]))

    def last(self, numbers):
        return [self.queues[number][-1] for number in numbers if self.queues.get(number)]

    def is_complete(self, number):
        return all(operation.is_complete for operation in self.last([number]))

    # .. steps
    def run(self, step):
        number = self.number(step.queue, step.thread)
        after = self.numbers(step.wait, step.thread)
        before = self.last(dict.fromkeys([number, *after]))
        if number is None:
            awaited = self.released_meanwhile(before, step.thread)
            before = []
        operation = Operation(before, is_held=step.is_held and number is not None)
        self.operations.append(operation)
        clauses = {"async_": step.queue, "wait": step.wait}

        def body():
            with self.lock:
                self.ran.append(operation)

        def enqueue():
            if operation.is_held:
                operation.event = omp.Event()
                token = ("holds", id(operation))
                omp.task(detach=operation.event, depend=[omp.out(token)])(nothing)()
                clauses["depend"] = [omp.in_(token)]
            if step.has_body:
                return acc.parallel(**clauses)(body)()
            return acc.update(device=[ABSENT], if_present=True, **clauses)

        if step.has_body:
            operation.body = body
        with self.rescued(is_needed=number is None):
            operation.task = self.on(step.thread, enqueue)
        if number is None:
            assert operation.task is None
            assert not step.has_body or operation in self.ran
            self.all_done(awaited)
        else:
            self.queues.setdefault(number, []).append(operation)

    def wait_async(self, step):
        target = self.number(step.target, step.thread)
        numbers = self.numbers(step.queues, step.thread)
        if target is None:
            self.wait(Wait(step.queues, step.thread))
            return
        others = [number for number in numbers if number != target]
        if step.queues is None:
            self.on(step.thread, acc.wait_all_async, step.target)
        elif len(step.queues) == 1 and self.random.random() < 0.5:
            value = True if step.queues == [acc.async_noval] else step.queues[0]
            self.on(step.thread, acc.wait_async, value, step.target)
        else:
            self.on(step.thread, acc.wait, *step.queues, async_=step.target)
        if others or step.queues is None:  # programs before this one have used other queues
            operation = Operation(self.last([target, *others]))
            self.queues.setdefault(target, []).append(operation)
            self.operations.append(operation)

    def wait(self, step):
        awaited = self.released_meanwhile(self.last(self.numbers(step.queues, step.thread)), step.thread)
        with self.rescued():
            self.on(step.thread, acc.wait, *(() if step.queues is None else step.queues))
        self.all_done(awaited)

    def default(self, step):
        self.on(step.thread, acc.set_default_async, step.queue)
        if step.queue is not True and step.queue != acc.async_noval:
            self.defaults[step.thread] = 0 if step.queue == acc.async_default else step.queue
        assert self.on(step.thread, acc.get_default_async) == self.defaults[step.thread]

    def release(self, step=None):
        held = [operation for operation in self.operations if operation.is_held]
        if held:
            operation = held[step.number % len(held)] if step is not None else self.random.choice(held)
            operation.is_held = False
            operation.open()

    def released_meanwhile(self, operations, thread):
        """Have tasks release what holds operations, in a random order; return all that will be complete."""
        awaited = set(operations).union(*[operation.ancestors for operation in operations])
        held = [operation for operation in self.operations if operation in awaited and operation.is_held]
        self.random.shuffle(held)

        def generate():
            for operation in held:
                operation.is_held = False
                omp.task(operation.open)()

        self.on(thread, generate)
        return awaited

    # .. comparisons
    def all_done(self, operations):
        """Check what a wait has waited for: it has run now, not some time.

        That it is over is told a moment later, at times: the gate asks the streams one after the other, and one that it
        has asked before the wait's own may have got there in between.
        """
        assert all(operation.body is None or operation in self.ran for operation in operations), "waits too short"
        end_s = time.monotonic() + self.limit_s
        while not all(operation.task is None or operation.task.done() for operation in operations):
            assert time.monotonic() < end_s, "what has run is not told"
            time.sleep(0.0001)

    def agree(self):
        """Check that what is complete in the model gets complete, and that nothing else is."""
        for number in self.queues:
            if self.is_complete(number):
                self.until(lambda number=number: acc.async_test(number))
        for operation in self.operations:
            if operation.task is not None and operation.is_complete:
                self.until(lambda task=operation.task: task.done() or acc.async_test_all())
        for number in self.queues:
            assert acc.async_test(number) == self.is_complete(number)
        for thread, default in self.defaults.items():
            is_complete = default == acc.async_sync or self.is_complete(default)
            assert self.on(thread, acc.async_test) == self.on(thread, acc.async_test, acc.async_noval) == is_complete
        assert acc.async_test(acc.async_default) == self.is_complete(0)
        assert acc.async_test_all() == all(map(self.is_complete, self.queues))
        for operation in self.operations:
            if operation.task is not None:
                assert operation.task.done() == operation.is_complete
        with self.lock:
            ran = list(self.ran)
        expected = {operation for operation in self.operations if operation.body and operation.is_complete}
        assert set(ran) == expected
        assert len(ran) == len(expected), "a body has run twice"
        for k, operation in enumerate(ran):
            assert operation.ancestors.isdisjoint(ran[k:]), "a body has run before what it follows"

    def until(self, is_true):
        """Ask until it is so, which it has to be some time."""
        end_s = time.monotonic() + self.limit_s
        pause = threading.Event()
        while not is_true():
            assert time.monotonic() < end_s, "what nothing holds does not get complete"
            pause.wait(1e-4)  # gives the interpreter to others

    def end(self):
        """Release everything, one by one, and leave no queue with anything."""
        while any(operation.is_held for operation in self.operations):
            self.release()
            self.agree()

    @contextlib.contextmanager
    def rescued(self, *, is_needed=True):
        """Release everything if a wait takes too long, which is an error."""
        timer = threading.Timer(self.limit_s, self.free)
        if is_needed:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()
        assert not self.is_freed, "a wait for what nothing holds does not end"

    is_freed = False

    def free(self):
        self.is_freed = True
        for operation in self.operations:
            operation.open()

    def clean(self):
        """Have the next program find nothing of this one."""
        self.free()
        self.threads.submit(acc.set_default_async, acc.async_default).result()
        acc.set_default_async(acc.async_default)
        self.threads.submit(omp.taskwait).result()
        omp.taskwait()
        acc.wait_all()


def nothing():
    pass


ABSENT = np.zeros(1)
METHODS = {Run: "run", WaitAsync: "wait_async", Wait: "wait", Release: "release", Default: "default"}


def play(threads, steps, seed, limit_s=LIMIT_S):
    """Do a program, and compare after some of the steps and at the end."""
    program = Program(threads, seed, limit_s)
    try:
        for step in steps:
            getattr(program, METHODS[type(step)])(step)
            if isinstance(step, Release):
                program.agree()
        program.agree()
        program.end()
    finally:
        program.clean()


def explore(n_examples, n_threads, seed, *, limit_s=LIMIT_S, **more):
    """Play so many programs in one runtime."""

    @settings(
        max_examples=n_examples,
        database=None,
        report_multiple_bugs=False,
        **more,
    )
    @given(programs())
    def each(program):
        play(threads, *program, limit_s=limit_s)

    with ThreadPoolExecutor(1) as threads, checked("sim:1", num_threads=n_threads, seed=seed):
        each()


@pytest.mark.hypothesis
@pytest.mark.parametrize(("n_threads", "seed"), [(0, None), (0, 1), (2, None), (2, 2)])
def test_programs(n_threads, seed):
    """Each value is a FIFO queue of its own, and tests, waits and marks are of that alone."""
    explore(examples(EXAMPLES // 4), n_threads, seed)


@pytest.mark.parametrize("seed", range(3))
def test_all_values(seed):
    """With one held operation in each of 1,000 queues, each value answers for its own, in whatever order they end."""
    rng = random.Random(seed)
    with checked("sim:1", num_threads=0, seed=seed) as runtime:
        events = []
        for value in range(N_VALUES):
            event = omp.Event()
            omp.task(detach=event, depend=[omp.out(("value", value))])(nothing)()
            acc.update(device=[ABSENT], if_present=True, async_=value, depend=[omp.in_(("value", value))])
            events.append(event)
        assert len({queue.lane.stream for queue in runtime.queues.known(runtime.places[0])}) == POOL_SIZE
        order = rng.sample(range(N_VALUES), N_VALUES)
        for at in range(0, N_VALUES, 250):
            chosen = order[at : at + 250]
            for value in chosen:
                events[value].fulfill()
            acc.wait(*chosen)
            assert [value for value in range(N_VALUES) if acc.async_test(value)] == sorted(order[: at + 250])
        assert acc.async_test_all()
