"""Cancellation of taskgroups: what is discarded never ran and has no effect, everything else does what it would do.

A program is a tree of operations: taskgroups, tasks of several constructs with dependences on tokens, tasks that
generate more, and cancels in any of them. `Program` generates the constructs and keeps what each task is to have done.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import CancelledError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offload as omp
from offload import in_, inout, inoutset, mutexinoutset, to, tofrom
from tests.profiles import examples, is_soak

TYPES = {"in": in_, "inout": inout, "mutex": mutexinoutset, "set": inoutset}
ON, OFF = {"OMP_CANCELLATION": "true"}, {}

depends = st.lists(st.tuples(st.sampled_from(sorted(TYPES)), st.integers(0, 2)), max_size=2, unique_by=lambda d: d[1])


# -- programs -------------------------------------------------------------------------------------
def operations(depth, *, in_group):
    """Return lists of operations; a cancel stands only where a taskgroup is around it."""
    kinds = ["task", "task", "detach", "target", "enter", "undeferred"]
    leaf = st.fixed_dictionaries({"kind": st.sampled_from(kinds), "depend": depends})
    options = [leaf, leaf, st.just({"kind": "wait"})]
    if in_group:
        ends = st.sampled_from(["cancel", "canceller", "point", "if false"])
        options.append(st.fixed_dictionaries({"kind": ends, "depend": depends}))
    if depth:
        group = st.fixed_dictionaries({"kind": st.just("group"), "body": operations(depth - 1, in_group=True)})
        inner = operations(depth - 1, in_group=in_group)
        nested = st.fixed_dictionaries({"kind": st.just("nested"), "depend": depends, "body": inner})
        options += [group, nested] if in_group else [group, group, nested]
    return st.lists(st.one_of(options), min_size=3, max_size=6)


class Block:
    """A taskgroup as the program knows it."""

    def __init__(self, outer):
        self.outer = outer
        self.was_cancelled = False

    @property
    def is_cancelled(self):
        return self.was_cancelled or (self.outer is not None and self.outer.is_cancelled)


class Program:
    """Generates constructs, and notes what is expected of them."""

    def __init__(self, *, cancels):
        self.cancels = cancels
        self.tasks = {}  # by number, where the construct returned
        self.began = set()
        self.finished = set()
        self.groups = []  # by number
        self.lock = threading.Lock()  # bodies on several threads generate
        self.doomed = set()  # generated in a group that was cancelled
        self.arrays = {}
        self.entered = {}

    def block(self, operations, group):
        """Encounter the constructs of a region."""
        siblings = []
        for op in operations:
            kind = op["kind"]
            if kind == "group":
                inner = Block(group)
                with omp.taskgroup():
                    self.block(op["body"], inner)
            elif kind == "wait":
                omp.taskwait()
            elif kind == "cancel":
                self.cancel(group)
            elif kind == "if false":
                known = group.was_cancelled
                omp.cancel("taskgroup", if_=False)
                assert not (self.cancels and known), "this is a cancellation point"
            elif kind == "point":
                known = group.is_cancelled
                omp.cancellation_point("taskgroup")
                assert not (self.cancels and known)
            else:
                self.generate(op, group, siblings)

    def cancel(self, group):
        try:
            omp.cancel("taskgroup")
        finally:
            group.was_cancelled = True  # not before: other threads go by it
        assert not self.cancels, "cancel leaves the region"

    def generate(self, op, group, siblings):
        with self.lock:
            number = len(self.groups)
            self.groups.append(group)
        depend = [TYPES[kind]((token,)) for kind, token in op["depend"]]
        before = [other for other, depends in siblings if ordered(depends, op["depend"])]
        siblings.append((number, op["depend"]))
        if self.cancels and group is not None and group.is_cancelled:
            self.doomed.add(number)

        def begin():
            self.began.add(number)
            assert all(self.tasks[other].done() for other in before if other in self.tasks)

        def body():
            begin()
            if op["kind"] == "nested":
                self.block(op["body"], group)
            elif op["kind"] == "canceller":
                self.cancel(group)
            self.finished.add(number)

        task = self.encounter(op["kind"], number, depend, body, begin)
        self.tasks[number] = task

    def encounter(self, kind, number, depend, body, begin):
        if kind == "target":
            array = self.arrays[number] = np.zeros(4)

            def region(array):
                body()
                array += 1

            return omp.target(map=[tofrom(array)], depend=depend, nowait=True)(region)(array)
        if kind == "enter":
            array = self.entered[number] = np.zeros(4)
            return omp.target_enter_data(map=[to(array)], depend=depend, nowait=True)
        if kind == "detach":
            event = omp.Event()

            def detached():
                body()
                event.fulfill()

            return omp.task(depend=depend, detach=event)(detached)()
        return omp.task(depend=depend, if_=kind != "undeferred")(body)()

    def check(self):
        """Check each task against what became of its groups."""
        for number, group in enumerate(self.groups):
            may_go = self.cancels and group is not None and group.is_cancelled
            task = self.tasks.get(number)
            if task is None:  # undeferred, and it left the region
                assert may_go
                continue
            assert task.done()
            ran = number in self.began or (number in self.entered and omp.target_is_present(self.entered[number]))
            assert task.state == ("complete" if ran else "cancelled")
            assert ran or may_go
            assert not (ran and number in self.doomed)
            if ran:
                assert task.exception() is None
            else:
                with pytest.raises(CancelledError):
                    task.result()
            if number in self.arrays:
                assert (self.arrays[number] == (number in self.finished)).all()
        for array in self.entered.values():
            if omp.target_is_present(array):
                omp.target_exit_data(map=[omp.release(array)])


def ordered(old, new):
    """Tell whether a task with the dependences ``new`` follows an earlier sibling with the dependences ``old``."""
    return any(token == other and (kind != earlier or kind == "inout") for kind, token in new for earlier, other in old)


def run(program, operations, runtime):
    """Run a program, and a task after everything in it, which nothing may have poisoned."""
    program.block(operations, None)
    last = omp.task(depend=[inout((0,), (1,), (2,))])(lambda: "ran")()
    omp.barrier()
    assert last.result() == "ran"
    program.check()
    for place in runtime.places:
        assert place.table.entries() == ()
        assert not place.in_flight


# -- properties -----------------------------------------------------------------------------------
@pytest.mark.timeout(1_800 if is_soak() else 60)
@pytest.mark.parametrize("num_threads", [0, 1, 4])
@given(operations(3, in_group=False), st.none() | st.integers(0, 2**32 - 1))
@settings(max_examples=examples(60, soak=1_000))
def test_what_is_cancelled_never_ran(num_threads, operations, seed):
    """Tasks of cancelled groups ran wholly or not at all, others all did, and nothing is poisoned, mapped or stuck."""
    with omp.Runtime("sim", num_threads=num_threads, check=True, seed=seed, env=ON) as runtime:
        run(Program(cancels=True), operations, runtime)


@pytest.mark.timeout(1_800 if is_soak() else 60)
@given(operations(3, in_group=False), st.none() | st.integers(0, 2**32 - 1))
@settings(max_examples=examples(30, soak=300))
def test_without_cancellation_nothing_is_cancelled(operations, seed):
    """Where cancellation is off, cancels and cancellation points do nothing: every body runs to its end."""
    program = Program(cancels=False)
    with omp.Runtime("sim", num_threads=2, check=True, seed=seed, env=OFF) as runtime:
        run(program, operations, runtime)
    tasks = [number for number in range(len(program.groups)) if number not in program.entered]
    assert program.finished == set(tasks)


# -- examples -------------------------------------------------------------------------------------
def cancel_and_go_on():
    """Catch what user code should let pass."""
    with contextlib.suppress(BaseException):
        omp.cancel("taskgroup")


def test_dependents_of_discarded_tasks_are_not_poisoned():
    """A task that is generated when the discarded one it depends on is complete already runs."""
    with omp.Runtime("none", num_threads=1, env=ON):
        with omp.taskgroup():
            omp.task(if_=False)(cancel_and_go_on)()
            discarded = omp.task(depend=[inout(("x",))])(lambda: None)()
        assert discarded.state == "cancelled"
        assert omp.task(depend=[in_(("x",))])(lambda: "ran")().result() == "ran"


@pytest.mark.parametrize("construct", ["task", "target", "data"])
@pytest.mark.parametrize("where", ["block", "body"])
def test_undeferred_constructs_leave_a_cancelled_group(construct, where):
    """An undeferred construct in a group that is cancelled leaves block or body; the group ends without an error."""
    array = np.zeros(4)
    went_on = []

    def encounter():
        cancel_and_go_on()
        if construct == "task":
            omp.task(if_=False)(lambda: went_on.append("body"))()
        elif construct == "target":
            omp.target(lambda array: went_on.append("body"))(array)
        else:
            omp.target_enter_data(map=[to(array)])
        went_on.append("after")

    with omp.Runtime("sim", num_threads=1, check=True, env=ON):
        with omp.taskgroup():
            encounter() if where == "block" else omp.task(encounter)()
        assert went_on == []
        assert not omp.target_is_present(array)
