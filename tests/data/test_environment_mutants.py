"""Mutants of the map table: each breaks one rule, and the model of test_environment_rules.py must notice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

import offload.data.environment
from offload.data.entries import Entry
from offload.data.maptypes import MapType
from offload.data.present_table import PresentTable
from offload.errors import ExtensionError
from tests.data import test_environment_rules
from tests.data.test_environment_rules import DataEnvironmentMachine

pytestmark = [pytest.mark.mutants, test_environment_rules.pytestmark]  # the latter for the machine's warnings

ENTER, EXIT, UPDATE = PresentTable.enter, PresentTable.exit, PresentTable.update
EXAMPLES, MANY = 60, 2_000
"""Within the latter each is killed; most are within ten."""


def enter_with(change):
    """Return a mutant that plans entries of changed items."""

    def enter(table, items, *counter):
        return ENTER(table, [replace(item, **change(item)) for item in items], *counter)

    return [(PresentTable, "enter", enter)]


def exit_with(change):
    """Return a mutant that plans exits of changed items."""

    def exit_(table, items, *counter, **more):
        return EXIT(table, [replace(item, **change(item)) for item in items], *counter, **more)

    return [(PresentTable, "exit", exit_)]


def after_enter(spoil):
    """Return a mutant that spoils the plans of entries."""

    def enter(table, *args):
        plan = ENTER(table, *args)
        spoil(plan)
        return plan

    return [(PresentTable, "enter", enter)]


def after_exit(spoil):
    """Return a mutant that spoils the plans of exits."""

    def exit_(table, *args, **more):
        plan = EXIT(table, *args, **more)
        spoil(plan)
        return plan

    return [(PresentTable, "exit", exit_)]


def count_each_item(plan):
    plan.counted = [entry for entry in plan.entries if entry is not None]


def copy_what_is_present(plan):
    plan.copies = [
        (item, entry)
        for item, entry in zip(plan.items, plan.entries, strict=True)
        if entry is not None and item.map_type.copies_in
    ]


def copy_whole_entries(plan):
    plan.copies = [(replace(item, host=entry.host), entry) for item, entry in plan.copies]


def copy_nothing_new(plan):
    plan.copies = [(item, entry) for item, entry in plan.copies if entry not in plan.created]


def uncount_each_item(plan):
    hits = [entry for entry in plan.entries if entry is not None]
    plan.counts = [
        (e, d if e.origin.value != "mapped" else max(d - hits.count(e) + 1, 0), s) for e, d, s in plan.counts
    ]
    plan.removed = [entry for entry, dynamic, structured in plan.counts if not dynamic and not structured]


def copy_back_always(plan):
    plan.copies = [
        (item, entry)
        for item, entry in zip(plan.items, plan.entries, strict=True)
        if entry is not None and item.map_type.copies_out
    ]


def delete_without_copy(plan):
    gone = {e for item, e in zip(plan.items, plan.entries, strict=True) if item.map_type is MapType.DELETE}
    plan.copies = [(item, entry) for item, entry in plan.copies if entry not in gone]


def decrement_infinite(entry, counter, *, deletes=False):
    return (0 if deletes or entry.origin.value != "mapped" else max(entry.dynamic - 1, 0)), entry.structured


def delete_infinite(entry, counter, *, deletes=False):
    return (0 if deletes else max(entry.dynamic - 1, 0)), entry.structured


def delete_decrements(entry, counter, *, deletes=False):
    return max(entry.dynamic - 1, 0), entry.structured


def present_last(table, items, *counter):
    items = list(items)
    ENTER(table, [replace(item, present=False) for item in items], *counter)
    return ENTER(table, items, *counter)


def partial_is_present(table, items, *counter, **more):
    widened = []
    for item in items:
        entry, other = table.search(item.section)
        widened.append(replace(item, section=other.section) if entry is None and other is not None else item)
    return EXIT(table, widened, *counter, **more)


def extend(table, items, *counter):
    try:
        return ENTER(table, items, *counter)
    except ExtensionError:
        return ENTER(table, [], *counter)


def counting_update(table, items):
    plan = UPDATE(table, items)
    for _, entry in plan.copies:
        entry.dynamic += 1
    return plan


def lenient_update(table, items):
    return UPDATE(table, [replace(item, present=False) for item in items])


def strict_update(table, items):
    return UPDATE(table, [replace(item, present=True) for item in items])


def turned_update(table, items):
    other = {MapType.TO: MapType.FROM, MapType.FROM: MapType.TO}
    return UPDATE(table, [replace(item, map_type=other[item.map_type]) for item in items])


def at_the_start(entry, address, shape, strides, itemsize, plain=offload.data.environment.correspond):
    return (0, *plain(entry, address, shape, strides, itemsize)[1:])


MUTANTS = {
    "an entry counts each item": after_enter(count_each_item),
    "to copies what is present": after_enter(copy_what_is_present),
    "to copies the whole entry": after_enter(copy_whole_entries),
    "to copies nothing new": after_enter(copy_nothing_new),
    "alloc copies": [(MapType.ALLOC, "copies_in", True)],
    "always is ignored at the entry": enter_with(lambda _: {"always": False}),
    "always holds at every entry": enter_with(lambda _: {"always": True}),
    "present is ignored at the entry": enter_with(lambda _: {"present": False}),
    "present comes last": [(PresentTable, "enter", present_last)],
    "an extension is passed over": [(PresentTable, "enter", extend)],
    "an exit counts each item": after_exit(uncount_each_item),
    "from copies while others hold it": after_exit(copy_back_always),
    "from is lost beside delete": after_exit(delete_without_copy),
    "release copies": [(MapType.RELEASE, "copies_out", True)],
    "always is ignored at the exit": exit_with(lambda _: {"always": False}),
    "present is ignored at the exit": exit_with(lambda _: {"present": False}),
    "present holds at the end of a region": [(PresentTable, "exit", lambda table, items, *_, **__: EXIT(table, items))],
    "present in part is present at the exit": [(PresentTable, "exit", partial_is_present)],
    "delete decrements": [(Entry, "counts_after", delete_decrements)],
    "delete ends what is infinite": [(Entry, "counts_after", delete_infinite)],
    "what is infinite is decremented": [(Entry, "counts_after", decrement_infinite)],
    "an update counts": [(PresentTable, "update", counting_update)],
    "an update ignores present": [(PresentTable, "update", lenient_update)],
    "an update needs presence": [(PresentTable, "update", strict_update)],
    "an update goes the other way": [(PresentTable, "update", turned_update)],
    "a part lies at the start": [(offload.data.environment, "correspond", at_the_start)],
}


SEEDS = {"from is lost beside delete": 2}
"""Where the examples of this seed kill the mutant sooner: this one within 20, where the usual ones take 1,500."""


def run_machine(n_examples, seed_=None):
    """Run the machine as it stands: the same examples each time, up to the first failure, which nobody reads."""

    class Seeded(DataEnvironmentMachine):
        """The machine with a seed."""

    run_state_machine_as_test(
        DataEnvironmentMachine if seed_ is None else seed(seed_)(Seeded),
        settings=settings(
            max_examples=n_examples,
            stateful_step_count=20,
            derandomize=True,
            database=None,
            report_multiple_bugs=False,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.filterwarnings("ignore")  # of what a broken runtime leaves over
def test_mutant_is_killed(name, monkeypatch, capsys):
    """Breaking the rule makes the machine fail."""
    for where, what, mutant in MUTANTS[name]:
        monkeypatch.setattr(where, what, mutant)
    with pytest.raises(BaseException) as caught:  # in whatever way
        run_machine(MANY, SEEDS.get(name))
    assert not isinstance(caught.value, (KeyboardInterrupt, TypeError, AttributeError, NameError)), caught.value


def test_machine_passes(monkeypatch):
    """Without a mutant the first of the same examples pass: all of them are run, and none raises."""
    ended = []
    teardown = DataEnvironmentMachine.teardown
    monkeypatch.setattr(DataEnvironmentMachine, "teardown", lambda machine: ended.append(teardown(machine)))
    run_machine(EXAMPLES)
    assert len(ended) >= EXAMPLES
