"""OpenACC's two reference counters against a model, in programs that mix its constructs with OpenMP's.

The model is written from the standard's words: each array has a structured and a dynamic counter, and is on the device
while one of them is above zero. Blocks of the device begin with `POISON`, so that a copy that should not have been, or
one that is missing, is seen.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import offload as omp
from offload import acc
from offload.arrays.items import array_section
from offload.data.entries import Counter, Entry
from offload.data.present_table import PresentTable
from tests.conftest import checked
from tests.data.test_environment_rules import POISON, poisoned
from tests.profiles import examples

PARTS = [np.s_[0:4], np.s_[4:6], np.s_[8:12:2]]
"""Sections that share no element; the last one has gaps."""

SIZE = 12
COPIES_IN = {"copy", "copyin", "to", "tofrom"}
COPIES_OUT = {"copy", "copyout", "from_", "tofrom"}


# -- programs ----------------------------------------------------------------------------------------
class Region(NamedTuple):
    """``acc.data`` around steps."""

    items: tuple
    steps: list


class Compute(NamedTuple):
    """A compute region that adds to a part."""

    word: str
    part: int


class Enter(NamedTuple):
    construct: str
    items: tuple


class Exit(NamedTuple):
    construct: str
    items: tuple
    finalizes: bool


class Update(NamedTuple):
    word: str
    part: int
    if_present: bool


class Write(NamedTuple):
    """The host writes a part."""

    part: int


class Stop(Exception):  # noqa: N818  # no error: it leaves the regions around it
    """Raised by a program to leave its regions."""


NUMBERS = st.integers(0, len(PARTS) - 1)


def items(*words):
    """Return strategies for list items: of each part one at most, as a variable is in one data clause."""
    return st.dictionaries(NUMBERS, st.sampled_from(words), min_size=1, max_size=2).map(lambda d: tuple(d.items()))


ENTERS = st.builds(Enter, st.just("acc"), items("copyin", "create", "zero")) | st.builds(
    Enter, st.just("routine"), items("copyin", "create")
)
EXITS = st.builds(Exit, st.sampled_from(["acc", "routine"]), items("copyout", "delete"), st.booleans())
STEPS = st.one_of(
    ENTERS,
    st.builds(Enter, st.just("omp"), items("to", "alloc")),
    EXITS,
    EXITS,
    st.builds(Exit, st.just("omp"), items("from_", "release", "delete"), st.just(False)),
    st.builds(Update, st.sampled_from(["self_", "device"]), NUMBERS, st.booleans()),
    st.builds(Compute, st.sampled_from(["copy", "copyin", "copyout", "create", "present", "no_create"]), NUMBERS),
    st.builds(Write, NUMBERS),
    st.just(Stop),
)
REGION_WORDS = ["copy", "copyin", "copyout", "create", "no_create", "present", "zero", "zero copyout"]
INNER = st.builds(Region, items(*REGION_WORDS), st.lists(STEPS, max_size=2))
REGIONS = st.builds(Region, items(*REGION_WORDS), st.lists(STEPS | INNER | INNER, max_size=4))
PROGRAMS = st.lists(st.one_of(STEPS, *[REGIONS] * 5), min_size=2, max_size=6)


# -- the model ---------------------------------------------------------------------------------------
class Model:
    """What the standard says: two counters of each part, values on both sides."""

    def __init__(self):
        self.host = np.arange(SIZE, dtype=float)
        self.dynamic = [0] * len(PARTS)
        self.structured = [0] * len(PARTS)
        self.device = [None] * len(PARTS)

    def is_present(self, part):
        return self.dynamic[part] + self.structured[part] > 0

    def enter(self, listed, counters):
        """Enter items; return those that are mapped, or None where ``present`` data is absent."""
        if any(word == "present" and not self.is_present(part) for part, word in listed):
            return None
        mapped = [(part, word) for part, word in listed if word != "no_create" or self.is_present(part)]
        for part, word in mapped:
            if not self.is_present(part):
                shape = self.host[PARTS[part]].shape
                self.device[part] = np.full(shape, 0.0 if word.startswith("zero") else POISON)
                if word in COPIES_IN:
                    self.device[part][...] = self.host[PARTS[part]]
            counters[part] += 1
        return mapped

    def exit(self, mapped, counters, *, finalizes=False):
        for part, word in mapped:
            if not self.is_present(part):
                continue
            counters[part] = 0 if finalizes or word == "omp delete" else max(counters[part] - 1, 0)
            if not self.is_present(part):
                if word in COPIES_OUT or word == "zero copyout":
                    self.host[PARTS[part]] = self.device[part]
                self.device[part] = None


# -- both --------------------------------------------------------------------------------------------
class Program:
    """Does the steps to a runtime and to the model, and compares after each."""

    def __init__(self, runtime, seed):
        self.place = runtime.places[0]
        self.random = random.Random(seed)
        self.model = Model()
        self.host = self.model.host.copy()
        self.value = 100.0

    def part(self, number):
        return self.host[PARTS[number]]

    def clauses(self, listed):
        """Return items as data clauses, in one of their spellings."""
        given = {}
        for part, word in listed:
            array = self.part(part)
            if word.startswith("zero"):
                array = acc.zero(array)
            plain = word.removeprefix("zero").strip() or "create"
            spellings = [plain]
            if plain in {"copy", "copyin", "copyout", "create"}:
                spellings += [f"p{plain}", f"present_or_{plain}"]
            given.setdefault(self.random.choice(spellings), []).append(array)
        return given

    def maps(self, listed):
        return [getattr(omp, word)(self.part(part)) for part, word in listed]

    def steps(self, steps):
        for step in steps:
            if step is Stop:
                raise Stop
            getattr(self, type(step).__name__.lower())(step)
            self.agree()

    def region(self, step):
        model = self.model
        before = self.model.structured.copy()
        mapped = model.enter(step.items, model.structured)
        if mapped is None:
            assert model.structured == before
            with pytest.raises(omp.NotPresentError, match="present"), acc.data(**self.clauses(step.items)):
                pass
            return
        try:
            with acc.data(**self.clauses(step.items)):
                self.agree()
                self.steps(step.steps)
        finally:
            model.exit(mapped, model.structured)
            self.agree()

    def compute(self, step):
        model, part = self.model, step.part
        self.value += 1
        value = self.value

        def add(x):
            x += value

        # Without a device array the body would work on the host's.
        if step.word == "no_create" and not model.is_present(part):
            return
        construct = self.random.choice([acc.parallel, acc.kernels, acc.serial])(**{step.word: ["x"]})(add)
        mapped = model.enter([(part, step.word)], model.structured)
        if mapped is None:
            with pytest.raises(omp.NotPresentError, match=r"present.*x"):
                construct(self.part(part))
            return
        construct(self.part(part))
        model.device[part] += value
        model.exit(mapped, model.structured)

    def enter(self, step):
        if step.construct == "omp":
            omp.target_enter_data(map=self.maps(step.items))
        elif step.construct == "acc":
            acc.enter_data(**self.clauses(step.items))
        else:
            for part, word in step.items:
                getattr(acc, word)(self.part(part))
        self.model.enter(step.items, self.model.dynamic)

    def exit(self, step):
        if step.construct == "omp":
            omp.target_exit_data(map=self.maps(step.items))
            listed = [(part, "omp delete" if word == "delete" else word) for part, word in step.items]
        else:
            listed = step.items
            if step.construct == "acc":
                acc.exit_data(**self.clauses(listed), finalize=step.finalizes)
            else:
                for part, word in listed:
                    getattr(acc, f"{word}_finalize" if step.finalizes else word)(self.part(part))
        self.model.exit(listed, self.model.dynamic, finalizes=step.finalizes)

    def update(self, step):
        model, part = self.model, step.part
        array = self.part(part)
        if not model.is_present(part) and not step.if_present:
            with pytest.raises(omp.NotPresentError, match=r"update.*array"):
                acc.update(**{step.word: [array]})
            return
        acc.update(**{step.word: [array]}, if_present=step.if_present)
        if model.is_present(part):
            if step.word == "self_":
                model.host[PARTS[part]] = model.device[part]
            else:
                model.device[part][...] = model.host[PARTS[part]]

    def write(self, step):
        self.value += 1
        self.part(step.part)[...] = self.model.host[PARTS[step.part]] = self.value

    def agree(self):
        model = self.model
        np.testing.assert_array_equal(self.host, model.host)
        for part in range(len(PARTS)):
            array = self.part(part)
            assert acc.is_present(array) == omp.target_is_present(array) == model.is_present(part)
            entry = self.place.table.at(array_section(array))
            counts = (entry.dynamic, entry.structured) if entry is not None else (0, 0)
            assert counts == (model.dynamic[part], model.structured[part])
            d = acc.deviceptr(array)
            assert (d is None) == (not model.is_present(part))
            if d is not None:
                np.testing.assert_array_equal(d.get(), model.device[part])

    def end(self):
        """Undo what is left, by OpenACC or by OpenMP."""
        listed = [(part, "copyout") for part in range(len(PARTS))]
        self.exit(Exit("acc", tuple(listed), finalizes=True))
        self.agree()
        assert self.place.table.live() == 0


def explore(n_examples, **more):
    @settings(
        max_examples=n_examples,
        database=None,
        report_multiple_bugs=False,
        **more,
    )
    @given(PROGRAMS, st.integers(0, 2**16))
    def each(steps, seed):
        program = Program(runtime, seed)
        try:
            try:
                program.steps(steps)
            except Stop:
                program.agree()
            program.end()
        finally:
            left = [entry.host for entry in runtime.places[0].table.entries()]
            if left:
                acc.exit_data(delete=left, finalize=True)

    with checked("sim:1", num_threads=0) as runtime:
        device = runtime.places[0].device
        device.alloc, device.poisons = poisoned(device.alloc), False  # a NaN does not even equal itself
        each()


@pytest.mark.hypothesis
def test_programs():
    """Presence, counters and the contents of both sides are the model's after every step."""
    explore(examples(300, soak=5_000))


# -- mutants -----------------------------------------------------------------------------------------
ENTER, EXIT, AFTER = PresentTable.enter, PresentTable.exit, Entry.counts_after


def one_counter(patch):
    patch(PresentTable, "enter", lambda table, items, _=None: ENTER(table, items))
    patch(Entry, "counts_after", lambda entry, _, **more: AFTER(entry, Counter.DYNAMIC, **more))


def regions_end_dynamic_data(patch):
    def counts_after(entry, counter, *, deletes=False):
        dynamic, structured = AFTER(entry, counter, deletes=deletes)
        return (dynamic, structured) if counter is Counter.DYNAMIC or structured else (0, 0)

    patch(Entry, "counts_after", counts_after)


def delete_ends_regions(patch):
    def counts_after(entry, counter, *, deletes=False):
        return (0, 0) if deletes else AFTER(entry, counter)

    patch(Entry, "counts_after", counts_after)


def no_finalize(patch):
    def exit_(*given, finalizes=False, **more):
        return EXIT(*given, **more)

    patch(PresentTable, "exit", exit_)


def finalize_always(patch):
    patch(PresentTable, "exit", lambda *given, finalizes=False, **more: EXIT(*given, finalizes=True, **more))


def copies_at_each_exit(patch):
    def exit_(*given, **more):
        plan = EXIT(*given, **more)
        pairs = zip(plan.items, plan.entries, strict=True)
        plan.copies = [(item, entry) for item, entry in pairs if entry is not None and item.map_type.copies_out]
        return plan

    patch(PresentTable, "exit", exit_)


def no_zeros(patch):
    def enter(*given):
        plan = ENTER(*given)
        plan.zeroed.clear()
        return plan

    patch(PresentTable, "enter", enter)


def creates_no_create(patch):
    def enter(table, items, *counter):
        for item in items:
            item.if_present = False
        return ENTER(table, items, *counter)

    patch(PresentTable, "enter", enter)


def present_creates(patch):
    def enter(table, items, *counter):
        for item in items:
            item.present = False
        return ENTER(table, items, *counter)

    patch(PresentTable, "enter", enter)


MUTANTS = [
    one_counter,
    regions_end_dynamic_data,
    delete_ends_regions,
    no_finalize,
    finalize_always,
    copies_at_each_exit,
    no_zeros,
    creates_no_create,
    present_creates,
]


@pytest.mark.mutants
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_mutants(monkeypatch, mutant):
    """Counters that break one rule do not agree with the model."""
    with pytest.raises((AssertionError, pytest.fail.Exception)), monkeypatch.context() as patched:
        mutant(patched.setattr)
        explore(400, phases=[Phase.generate], derandomize=True)
