"""Blocks of coroutines and generators that take turns on a thread: each end waits for its own tasks only.

A program is a list of actors, each with a tree of blocks in which it generates tasks, pauses and cancels, and the order
in which they are advanced, or closed. `Actor` keeps what each block is to have waited for. Tasks are held by events,
of which those of a block are fulfilled right before it ends; a block that waits for another's would wait for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import offload as omp
from offload import acc, inout, out, tofrom
from tests.conftest import check_nothing_left
from tests.profiles import examples, is_soak

LIMIT_S = 5.0

STEPS = st.sampled_from(["pause", "pause", "held", "ready", "bump", "bump", "cancel", "called"])
KINDS = st.sampled_from(["group", "data", "managed", "stacked", "entered", "acc"])


def blocks(depth):
    """Draw the steps of an actor: those that are pairs are blocks, with the steps in them."""
    inner = STEPS if depth == 0 else STEPS | st.tuples(KINDS, st.deferred(lambda: blocks(depth - 1)))
    return st.lists(inner, max_size=5)


ACTORS = st.lists(st.lists(st.tuples(KINDS, blocks(1)), min_size=1, max_size=2), min_size=2, max_size=3)
TURNS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["go", "go", "go", "close"])), max_size=25)


@omp.target(nowait=True, map=[tofrom("x")])
def bump(x):
    x += 1


@dataclass(eq=False)
class Opened:
    """What is known of an open block, or of what no block of the actor's is around."""

    kind: str
    array: np.ndarray = field(default_factory=lambda: np.zeros(3))
    tasks: list = field(default_factory=list)
    events: list = field(default_factory=list)
    bumps: list = field(default_factory=list)
    is_cancelled: bool = False


class OverdueError(Exception):
    """A block has waited for what is none of its own."""


class Actor:
    """One coroutine or generator, and its open blocks."""

    def __init__(self, everything):
        self.open = []
        self.everything = everything  # the events of all actors
        self.turn = None

    # -- what the actor does ---------------------------------------------------------------------
    def do(self, step):
        if step == "called":  # a block of a function, which nothing can suspend
            block = self.begin("group")
            with self.checking(block), omp.taskgroup(), self.ending(block):
                self.held()
        elif step == "cancel":
            self.cancel()
        else:
            getattr(self, step)()

    def keep(self, task, event=None):
        if self.open:
            self.open[-1].tasks.append(task)
        if event is not None:
            self.everything.append(event)
            if self.open:
                self.open[-1].events.append(event)

    def held(self):
        event = omp.Event()
        self.keep(omp.task(lambda: None, detach=event)(), event)

    def ready(self):
        self.keep(omp.task(lambda: None)())

    def bump(self):
        block = self.open[-1] if self.open else None
        if block is None or block.kind == "group":
            return
        if not block.bumps:
            event = omp.Event()
            self.keep(omp.task(lambda: None, detach=event, depend=[out(block.array)])(), event)
        block.bumps.append(bump.options(depend=[inout(block.array)])(block.array))
        self.keep(block.bumps[-1])

    def cancel(self):
        group = next((block for block in reversed(self.open) if block.kind == "group"), None)
        if group is None:
            with pytest.raises(omp.UsageError, match="no taskgroup encloses"):
                omp.cancel("taskgroup")
            return
        for block in self.open[self.open.index(group) :]:
            block.is_cancelled = True
        omp.cancel("taskgroup")
        pytest.fail("a cancel has not left the block")

    # -- blocks ----------------------------------------------------------------------------------
    def begin(self, kind):
        block = Opened("data" if kind in ("data", "stacked", "entered") else "acc" if kind == "acc" else "group")
        self.open.append(block)
        return block

    def manager(self, kind, block):
        if kind == "acc":
            return acc.data(copy=[block.array])
        if kind == "managed":
            return managed()
        if kind == "stacked":
            return stacked(block.array)
        if kind == "entered":
            return Entered(block.array)
        return omp.taskgroup() if kind == "group" else omp.target_data(map=[tofrom(block.array)])

    def fulfil(self, block):
        """Let the tasks of a block end; ``acc.data`` waits for none, so they end before it does."""
        fulfil_all(block.events)
        if block.kind == "acc":
            if len(self.open) > 1:
                self.open[-2].tasks += block.tasks
            if not block.is_cancelled:
                for task in block.tasks:
                    task.exception()

    @contextlib.contextmanager
    def checking(self, block):
        """Check after the block that it has waited for its tasks, and copied back after them."""
        try:
            yield
        finally:
            assert self.open.pop() is block
            assert all(task.done() for task in block.tasks) or (block.kind == "acc" and block.is_cancelled)
            if not block.is_cancelled:
                assert {task.state for task in block.tasks} <= {"complete"}
                if block.kind != "group":
                    assert (block.array == len(block.bumps)).all()

    @contextlib.contextmanager
    def ending(self, block):
        """Fulfil what the block has to wait for right before its end."""
        try:
            yield
        finally:
            self.fulfil(block)


@contextlib.contextmanager
def managed():
    """A group of a generator that contextlib drives: it belongs to the caller."""
    with omp.taskgroup():
        yield


@contextlib.contextmanager
def stacked(array):
    with contextlib.ExitStack() as stack:
        stack.enter_context(omp.target_data(map=[tofrom(array)]))
        yield


class Entered:
    """A context manager that enters a region by hand."""

    def __init__(self, array):
        self.region = omp.target_data(map=[tofrom(array)])

    def __enter__(self):
        self.region.__enter__()

    def __exit__(self, *error):
        return self.region.__exit__(*error)


def fulfil_all(events):
    for event in events:
        with contextlib.suppress(omp.EventError):  # it has been
            event.fulfill()


@contextlib.contextmanager
def limited(events):
    """Fail, rather than wait for ever, if what happens in the block waits for what it should not."""
    is_overdue = []

    def give_up():
        is_overdue.append(True)
        fulfil_all(events)

    timer = threading.Timer(LIMIT_S, give_up)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if is_overdue:
            raise OverdueError


# -- generators ------------------------------------------------------------------------------------
def generator(actor, steps):
    for step in steps:
        if step == "pause":
            yield
        elif isinstance(step, str):
            actor.do(step)
        else:
            kind, inner = step
            block = actor.begin(kind)
            with actor.checking(block), actor.manager(kind, block), actor.ending(block):
                yield
                yield from generator(actor, inner)


def advance(one, how):
    """Let a generator take a turn; return whether it has ended."""
    try:
        if how == "go":
            next(one)
            return False
        one.close()
    except StopIteration:
        pass
    return True


def check_outside():
    """Check that what is no block's stands in none."""
    with pytest.raises(omp.UsageError, match="no taskgroup encloses"):
        omp.cancel("taskgroup")


@contextlib.contextmanager
def running(num_threads, events):
    """Have a runtime that ends though events are open, which only a failure leaves."""
    with omp.Runtime("sim", num_threads=num_threads, check=True, env={"OMP_CANCELLATION": "true"}) as runtime:
        try:
            yield
        finally:
            fulfil_all(events)
    check_nothing_left(runtime)


@pytest.mark.timeout(1_800 if is_soak() else 120)
@pytest.mark.parametrize("num_threads", [0, 2])
@given(ACTORS, TURNS)
@settings(max_examples=examples(40, soak=1_000))
@example([[("data", ["bump"])], [("data", ["bump"])]], [(0, "go"), (1, "go"), (0, "go"), (1, "go")])
@example([[("group", ["ready"])], [("group", ["held", "pause"])]], [(0, "go"), (1, "go"), (1, "go"), (0, "go")])
def test_generators(num_threads, actors, turns):
    """Each block of a generator waits for what the generator has generated in it, and for nothing else."""
    events = []
    with running(num_threads, events):
        open_ones = [generator(Actor(events), steps) for steps in actors]
        outside = Actor(events)
        for number, how in turns:
            if open_ones:
                one = open_ones[number % len(open_ones)]
                with limited(events):
                    if advance(one, how):
                        open_ones.remove(one)
                check_outside()
                outside.held()
        for one in open_ones:
            with limited(events):
                one.close()
            check_outside()


# -- coroutines ------------------------------------------------------------------------------------
async def coroutine(actor, steps):
    for step in steps:
        if step == "pause":
            await pause(actor)
        elif isinstance(step, str):
            actor.do(step)
        else:
            await in_block(actor, *step)


async def in_block(actor, kind, inner):
    """Do what is in a block; some are entered by ``async with``."""
    block = actor.begin(kind)
    manager = actor.manager(kind, block)
    with actor.checking(block):
        if kind in ("group", "data") and len(inner) % 2:
            async with manager:
                with actor.ending(block):
                    await pause(actor)
                    await coroutine(actor, inner)
        else:
            with manager, actor.ending(block):
                await pause(actor)
                await coroutine(actor, inner)


async def pause(actor):
    actor.turn = asyncio.get_running_loop().create_future()
    try:
        await actor.turn
    finally:
        actor.turn = None


async def take_turn(actor, task, how):
    """Let a coroutine go on to its next pause or to its end; cancel it to close it."""
    while actor.turn is None and not task.done():  # noqa: ASYNC110  # one turn of the loop after the other
        await asyncio.sleep(0)
    if task.done():
        return
    turn = actor.turn
    if how == "go":
        turn.set_result(None)
    else:
        task.cancel()
    while not task.done() and (actor.turn is None or actor.turn is turn):  # noqa: ASYNC110  # the same
        await asyncio.sleep(0)


@pytest.mark.timeout(1_800 if is_soak() else 120)
@pytest.mark.parametrize("num_threads", [0, 2])
@given(ACTORS, TURNS)
@settings(max_examples=examples(40, soak=1_000))
@example([[("data", ["bump", "bump"])], [("data", ["bump", "bump"])]], [(0, "go"), (1, "go"), (0, "go"), (1, "go")])
@example(
    [[("group", ["ready", "cancel"])], [("group", ["ready", "pause"])]], [(0, "go"), (1, "go"), (0, "go"), (1, "go")]
)
def test_coroutines(num_threads, actors, turns):
    """Each block of a coroutine, by ``with`` or ``async with``, waits for its own tasks, and for nothing else."""
    events = []

    async def main():
        pairs = []
        for steps in actors:
            actor = Actor(events)
            pairs.append((actor, asyncio.create_task(coroutine(actor, steps))))
        outside = Actor(events)
        for number, how in [*turns, *((number, "close") for number in range(len(pairs)))]:
            actor, task = pairs[number % len(pairs)]
            with limited(events):
                await take_turn(actor, task, how)
            check_outside()
            outside.held()
        with limited(events):
            for _, task in pairs:
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    with running(num_threads, events):
        asyncio.run(main())
