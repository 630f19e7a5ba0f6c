"""Mutants of the rules of types and plans: each breaks one, and the random trees and pairs must notice."""

from __future__ import annotations

import inspect
import textwrap

import pytest

from offload.parray import (
    composition,
    digits,
    dimensions,
    injective,
    lattice,
    plans,
    references,
    rules,
    types,
)
from tests.parray import test_digits, test_lattice, test_plans, test_plans_rules, test_refusals, test_types_rules

pytestmark = pytest.mark.mutants

N_TYPES = 400
N_PAIRS = 250
"""Within which each is killed; most are within fifty."""

# By name: where it stands, the function or method, what stands there, and what stands there instead.
RULES = {
    "fixed siblings are left out of weights": (
        rules,
        "parts",
        "weight *= size",
        "weight *= 1 if sub.references else size",
    ),
    "the leftmost index is fastest": (rules, "parts", "range(len(body) - 1, -1, -1)", "range(len(body))"),
    "weights are taken to the root": (rules, "parts", "place(sub.body, 1,", "place(sub.body, weight,"),
    "digits' weights are taken to the root": (
        rules,
        "_walk",
        "form(sub.size, sub.body, 1,",
        "form(sub.size, sub.body, weight,",
    ),
    "references apply from right to left": (
        rules,
        "place",
        "for reference in references:",
        "for reference in references[::-1]:",
    ),
    "digits go through references from right to left": (rules, "_composed", "in references:", "in references[::-1]:"),
    "fixed parts are sent through the parent": (
        rules,
        "place",
        "    if not references:",
        "    regular, memory = (regular + memory, 0) if references else (regular, memory)\n    if not references:",
    ),
    "fixed digits are sent through the parent": (rules, "_walk", "(False, digit) for", "(True, digit) for"),
    "fixed bases are left out": (rules, "_walk", "base += found[0]", "base += 0"),
    "threads are counted as memory": (rules, "place", "if chain == THREADS:", "if False:"),
    "all references above are applied": (
        types.ArrayType,
        "_of_body",
        "sub.body, 1, sub.references, sub.chain,",
        "sub.body, 1, (*sub.references, *self._references), sub.chain,",
    ),
    "a regular sub-dimension has no references": (
        types.ArrayType,
        "_of_body",
        "sub.body, weight, self._references, self._chain,",
        "sub.body, weight, (), 0,",
    ),
    "a sub-dimension has its weight in itself": (types.ArrayType, "_of_body", "weight *= sub.size", "pass"),
    "sub-dimensions of a chain are without its rest": (
        types.ArrayType,
        "_of_first",
        "(sub, *self._references[1:])",
        "(sub,)",
    ),
    "the last reference sizes": (dimensions, "_length", "references[0]", "references[-1]"),
    "the kind is that of the first type": (
        dimensions,
        "chain_of",
        "found = reference.counts or found",
        "found = next(first.counts for first in references if first.counts) if reference.counts else found",
    ),
    "wrap is C's": (
        references.Wrap,
        "reach",
        "index % self.n",
        "index - self.n * (abs(index) // self.n) * (1 - 2 * (index < 0))",
    ),
    "an index below 0 is not refused": (references, "check_range", "low < 0 or high >= size", "high >= size"),
    "an index that leaves is taken round": (references, "check_range", "low < 0 or high >= size", "False"),
    "what leaves by one is not refused": (references, "check_extremes", "high >= size", "high > size"),
    "everything near the end is refused": (references, "check_extremes", "high >= size", "high >= size - 1"),
    "a table is taken round": (
        references.TableReference,
        "reach",
        "check_range(index, self, len(self.values))",
        "pass",
    ),
    "span is the greatest offset": (types.ArrayType, "span", "[1] + 1", "[1]"),
    "a step is that of the innermost loop": (
        types.ArrayType,
        "step",
        "len(nest[1]) == 1",
        "len(nest[1]) >= 1",
    ),
}
DIGITS = {
    "cuts are not seen by extremes": (digits, "extremes", "if cuts:", "if False:"),
    "levels carry": (composition._Levels, "compose", "low < 0 or high >= count", "False"),
    "what is carried does not jump": (composition._Levels, "carried", "here - before - move * level_step", "0"),
    "levels that carry may be moved by others": (composition._Levels, "carried", "any(self.moved[: k + 1])", "False"),
    "a digit with cuts may leave its level": (
        composition._Levels,
        "on_one_level",
        "self.high[k] += high - self.at[k]",
        "pass",
    ),
    "levels are cut at their own places": (composition._Levels, "move", "self.at[k] - start", "-start"),
    "offsets that are listed are one run": (rules, "listed", "if jump)", "if False)"),
    "digits are merged whatever their steps": (digits, "merged", "outer_step == count * step", "outer_step"),
    "cuts are made at the first place": (
        digits,
        "_cut",
        "jumps.get(start, 0) - (after - before) * n",
        "jumps.get(start, 0) - n",
    ),
    "a wrap is cut where the least passes": (digits, "_cut", "if place != -(", "if False and place != -("),
    "digits that meet are nested": (injective, "_are_nested", "if gap <= reach:", "if gap < reach:"),
    "pieces do not meet": (injective, "_meet", "return _is_solved(", "return False and _is_solved("),
}
LATTICE = {
    "one solution is none": (lattice, "_solutions", "target % common", "target"),
    "divisors are not divided out": (lattice, "_solutions", "steps[k] // divisor * x", "steps[k] * x"),
    "the ball is too small": (lattice._Reduced, "points", "square - ", "square / 4 - "),
    "only the nearest points are looked at": (lattice._Reduced, "_points", "// limit.denominator) + 1", "* 0)"),
    "a multiple is forgotten in what is left": (lattice._Reduced, "_points", "place * place * square", "square"),
}
PLANS = {
    "a target is not checked": (plans, "_what_is_wrong", "if not target.is_injective:", "if False:"),
    "threads that do not exist are not refused": (
        plans,
        "_what_is_wrong",
        "if low < 0 or high >= side.threads.size:",
        "if False:",
    ),
    "a longer digit is cut short": (plans, "refined", "sides[k].append(halves_of_it[0])", "pass"),
    "digits are merged by the source alone": (plans, "_merged", "and out[-1][2] == count * target_step", ""),
    "digits are not merged": (plans, "_merged", "if out and", "if False and"),
    "pieces begin with the first": (plans, "_pieces", "part_of(source, start)", "0"),
    "the target's cuts are forgotten": (plans, "_starts", ", *(start for start, _ in loop[1][2])", ""),
    "joined digits do not jump": (plans, "_joined", "part_of(outer, k) - part_of(outer, k - 1) - ends", "0"),
    "threads of the target are not unrolled": (plans, "_unrolled", "or (is_both[1] and halves(steps[1])[0])", ""),
}


def mutate(patch, where, name, old, new):
    """Replace a part of the text of a function, a method or a property."""
    function = inspect.getattr_static(where, name)
    is_property = isinstance(function, property)
    text = textwrap.dedent(inspect.getsource(function.fget if is_property else function))
    assert text.count(old) >= 1, f"{old!r} does not stand in {name}"
    namespace = vars(inspect.getmodule(function.fget if is_property else function))
    made = {}
    exec(compile("from __future__ import annotations\n" + text.replace(old, new), f"<{name}>", "exec"), namespace, made)
    patch.setattr(where, name, made[name])
    for module in (rules, references, digits, composition, dimensions, injective, lattice, plans, types):
        if not isinstance(where, type) and vars(module).get(name) is function:
            patch.setattr(module, name, made[name])


def is_killed(*checks):
    """Whether one of the checks fails, in whatever way."""
    plans._planned.cache_clear()
    for check in checks:
        try:
            check()
        except (Exception, pytest.fail.Exception):
            return True
        finally:
            plans._planned.cache_clear()
    return False


def types_are_right():
    test_types_rules.check_seeds(range(N_TYPES))


def pairs_are_right():
    test_plans_rules.check_pairs(range(N_PAIRS))


def promises_are_kept():
    test_plans_rules.test_a_shift_is_two_boxes()
    test_plans_rules.test_one_box_where_boundaries_divide(1)
    test_plans_rules.test_one_box_for_each_combination_of_threads()
    test_plans.test_digits_that_become_neighbours_are_merged()


def digits_are_right():
    test_digits.test_random_digits()
    test_digits.test_random_wraps()
    test_digits.test_random_compositions()


@pytest.mark.parametrize("mutant", RULES)
def test_a_wrong_rule_is_found(mutant, monkeypatch):
    """Among the random trees there is one that a wrong rule makes differ from the oracle."""
    mutate(monkeypatch, *RULES[mutant])
    assert is_killed(types_are_right)


@pytest.mark.parametrize("mutant", DIGITS)
def test_wrong_digits_are_found(mutant, monkeypatch):
    """Among the random digits there are some that a mistake makes differ from their numbers."""
    mutate(monkeypatch, *DIGITS[mutant])
    assert is_killed(digits_are_right, types_are_right)


@pytest.mark.parametrize("mutant", LATTICE)
def test_a_wrong_lattice_is_found(mutant, monkeypatch):
    """Among the random equations there are some that a mistake decides wrongly, or for good."""
    mutate(monkeypatch, *LATTICE[mutant])
    assert is_killed(test_lattice.test_random_unknowns, lambda: [test_lattice.test_remainders(n) for n in (3, 4, 5)])


@pytest.mark.parametrize("mutant", PLANS)
def test_a_wrong_plan_is_found(mutant, monkeypatch):
    """Among the random pairs there is one that a mistake makes differ, or that has more boxes than are promised."""
    mutate(monkeypatch, *PLANS[mutant])
    assert is_killed(pairs_are_right, promises_are_kept, test_refusals.test_pairs)


def test_without_a_mutant_all_is_well():
    """What kills the mutants finds nothing wrong with what is mutated."""
    assert not is_killed(types_are_right, pairs_are_right, promises_are_kept, digits_are_right)
