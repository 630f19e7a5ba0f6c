"""Mutants of the dependence tracker: each breaks one rule, and the properties of test_depend_rules.py must notice."""

from __future__ import annotations

import inspect

import pytest

import tests.tasks.test_depend_rules as model
from offload.tasks import depend, locations

pytestmark = pytest.mark.mutants

N_PROGRAMS = 500
"""Within which each is killed; most are within fifty."""

JOINS = "            joins = access.joins\n"
FOLLOWED = "return cell.before if access.joins is not None and access.joins is cell.joins else cell.last"
EXCLUDE = "for other in (cell, *cell.linked):\n                    self"
LINKED_ONE = "for other in cell.linked[:1]:\n                        found"


def as_if(name, joins):
    """Return what makes one type join sets as another does."""
    return f"            joins = {joins} if access.type is DependType.{name} else access.joins\n"


# By name: the module, what stands there, and what stands there instead.
MUTANTS = {
    # the table
    "a joiner follows the members": (depend, "followed = cell.before\n", "followed = cell.last\n"),
    "a joiner follows nothing": (depend, "followed = cell.before\n", "followed = None\n"),
    "a set is not closed": (depend, "or joins is not cell.joins:", "or cell.joins is None:"),
    "a set is never joined": (depend, "if joins is None or joins is not cell.joins:", "if True:"),
    "a task of another kind joins what it follows": (
        depend,
        "cell.last, cell.joins = handle, joins",
        "cell.last, cell.joins, cell.limit = [*_handles(last), handle], joins, 64",
    ),
    "a set is followed by way of one member": (depend, "found += followed\n", "found += followed[-1:]\n"),
    "a single task is not followed": (depend, "found.append(followed)", "pass"),
    "a writer joins the readers": (
        depend,
        "cell.last, cell.joins = handle, joins",
        "cell.last, cell.joins = handle, joins or cell.joins",
    ),
    "the set before is forgotten": (
        depend,
        "cell.before, cell.before_joins = last, cell.joins",
        "cell.before, cell.before_joins = None, cell.joins",
    ),
    "the kind of the set before is forgotten": (
        depend,
        "cell.before, cell.before_joins = last, cell.joins",
        "cell.before, cell.before_joins = last, None",
    ),
    "inoutset is like in": (depend, JOINS, as_if("INOUTSET", "DependType.IN")),
    "inoutset is like inout": (depend, JOINS, as_if("INOUTSET", "None")),
    "mutexinoutset is like in": (depend, JOINS, as_if("MUTEXINOUTSET", "DependType.IN")),
    "mutexinoutset is like inoutset": (depend, JOINS, as_if("MUTEXINOUTSET", "DependType.INOUTSET")),
    "mutexinoutset is like inout": (depend, JOINS, as_if("MUTEXINOUTSET", "None")),
    "in is like inout": (depend, JOINS, as_if("IN", "None")),
    "in is not ordered behind mutexinoutset": (
        depend,
        "followed = last\n",
        "followed = None if cell.joins is DependType.MUTEXINOUTSET and joins is DependType.IN else last\n",
    ),
    # overlaps
    "linked cells are ignored": (
        depend,
        "if cell.linked:\n                    for",
        "if False:\n                    for",
    ),
    "one linked cell is looked at": (depend, "for other in cell.linked:\n                        found", LINKED_ONE),
    "cells are linked one way": (depend, "other.linked.append(cell)", "pass"),
    "cells are linked the other way only": (
        depend,
        "        cell.linked = [self._cells[key] for key in met]\n        for other in cell.linked:",
        "        for other in [self._cells[key] for key in met]:",
    ),
    "a linked set is followed, not joined": (depend, FOLLOWED, "return cell.last"),
    "a linked set is joined by any set": (
        depend,
        FOLLOWED,
        FOLLOWED.replace("access.joins is cell", "None is not cell"),
    ),
    "a linked set is joined by a writer": (
        depend,
        FOLLOWED,
        FOLLOWED.replace("access.joins is not None and ", "").replace("cell.before", "getattr(cell, 'before', ())"),
    ),
    # mutexes
    "linked cells have no mutex": (depend, EXCLUDE, EXCLUDE.replace(", *cell.linked", ",")),
    "a cell's own mutex is left out": (depend, EXCLUDE, EXCLUDE.replace("(cell, *cell.linked)", "cell.linked")),
    "a task needs the mutex of one item": (
        depend,
        "for key in keys:\n            cell = self._cells.get(key)\n            if",
        "for key in keys[:1]:\n            cell = self._cells.get(key)\n            if",
    ),
    "every task has a mutex of its own": (depend, "if cell.mutexes is None or other not in cell.mutexes:", "if True:"),
    "the tasks of an earlier cell are not excluded": (
        depend,
        "_keep_mutex(cell, other, other.mutexes[other])",
        "_keep_mutex(cell, other, Mutex())",
    ),
    "every item has a mutex": (depend, "if joins is _MUTEX:", "if True:"),
    "a wait takes mutexes": (
        depend,
        "for other in (cell, *cell.linked):\n                    found",
        "self._exclude([key])\n                for other in (cell, *cell.linked):\n                    found",
    ),
    # all_memory
    "there is no fence": (depend, "self.clear(handle)", "self.clear()"),
    "all_memory forgets nothing": (depend, "self.clear(handle)", "self._fence = handle"),
    "a new cell is not behind the fence": (
        depend,
        "cell.last = self._fence",
        "cell.last = None",
    ),
    "all_memory follows writers only": (
        depend,
        "            found += _handles(cell.last)\n        if",
        "            found += [] if cell.joins else _handles(cell.last)\n        if",
    ),
    "all_memory is not behind the fence": (depend, "found = [*_handles(self._fence)]", "found = []"),
    "all_memory forgets what its other items follow": (
        depend,
        "found += self._everything(",
        "found = self._everything(",
    ),
    "all_memory has an edge to itself": (depend, "if old is not handle\n            ]", "            ]"),
    # forgetting
    "a sweep drops what is live": (depend, "if not all(map(may_go, _handles_in(cell)))", "if False"),
    "a sweep drops cells of which one task is past": (
        depend,
        "if not all(map(may_go, _handles_in(cell)))",
        "if not any(map(may_go, _handles_in(cell)))",
    ),
    "a sweep drops the fence": (depend, "if all(map(may_go, _handles(self._fence))):", "if True:"),
    "a sweep unlinks what it keeps": (depend, "if cell in cells else []", "if False else []"),
    "a sweep loses locations": (depend, "_locations.keep(kept.__contains__)", "_locations.keep(lambda key: False)"),
    "pruning drops what is live": (
        depend,
        "for handle in cell.last if not may_go(handle)]",
        "for handle in cell.last if may_go(handle)]",
    ),
    # locations
    "a window ends one byte early": (locations, "low % common + run", "low % common + run - 1"),
    "a window begins one byte late": (locations, "low % common - self._widest", "low % common - self._widest + 1"),
    "windows do not go on before the start": (locations, "range(-common, ", "range(0, "),
    "windows do not go on behind the end": (locations, "own + common, common)", "own, common)"),
    "runs are one byte wide": (locations, "max(self._widest, run)", "1"),
    "any period tells residues": (locations, "common = gcd(own, period)", "common = own"),
    "what begins earlier is not seen": (locations, "low - self._longest)", "low - 1)"),
    "a dense section does not see what begins earlier": (locations, "least = low - self._longest", "least = low - 1"),
    "what begins at the last byte is not seen": (
        locations,
        "self._starts, high, first",
        "self._starts, high - 1, first",
    ),
    "a strided section sees no others": (locations, "found += lattice.candidates(low, high, run, period)", "pass"),
    "a strided section sees no dense ones": (
        locations,
        "dense.look(low, high, found)\n        for lattice",
        "pass\n        for lattice",
    ),
    "a dense section sees no strided ones": (
        locations,
        "found += lattice.candidates(low, high, high - low, 0)",
        "pass",
    ),
    "a dense section sees none of another size": (locations, "end = min(end, other.look(low, high, found))", "pass"),
    "dense sections do not grow": (
        locations,
        "self._longest = high - low\n        if",
        "self._longest = 1\n        if",
    ),
    # runs
    "a run has no end": (locations, "and high <= self._free_to and", "and"),
    "a run goes on in a strided section": (locations, "            self._free_to = _NOWHERE\n", ""),
    "a run goes on among the strided": (
        locations,
        "                end = min(end, lattice.low)",
        "                pass",
    ),
    "a run is lost": (locations, "        self._spaces[self._free_in].add_run(self._run, self._nbytes)\n", ""),
}


def mutated(module, old, new, replaced):
    """Run a module's source with a change, and with some of its names as they are elsewhere; return its names."""
    source = inspect.getsource(module)
    if old is not None:
        assert source.count(old) == 1, f"{module.__name__} has {source.count(old)} of {old!r}"
        source = source.replace(old, new)
    names = {"__name__": f"mutant of {module.__name__}"}
    exec(compile(source, module.__file__, "exec", dont_inherit=True), names)
    names.update(replaced)
    return names


def tracker_of(mutant):
    """Return the class of a broken tracker, or one made the same way that is not broken."""
    module, old, new = mutant
    same = {
        name: getattr(depend, name) for name in ("DependType", "_IN", "_OUT", "_SETS", "_MUTEX")
    }  # clauses have the real ones
    if module is locations:
        same["Locations"] = mutated(locations, old, new, {})["Locations"]
        old = None
    return mutated(depend, old, new, same)["Tracker"]


def check():
    """Hold the tracker against the table: the same programs each time, up to the first failure."""
    for seed in range(N_PROGRAMS):
        program = model.program_of(seed)
        model.check_forgetful_program(program)
        model.check_program(program)


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_killed(name, monkeypatch, capsys):
    """Breaking the rule makes a property fail."""
    monkeypatch.setattr(model, "Tracker", tracker_of(MUTANTS[name]))
    with pytest.raises(AssertionError):
        check()


def test_tracker_passes(monkeypatch):
    """Made the same way without a change, the tracker passes the same programs."""
    monkeypatch.setattr(model, "Tracker", tracker_of((depend, None, None)))
    check()
