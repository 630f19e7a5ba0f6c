"""The decisions about a nest from the numbers of a call: trips, checks of indices, layouts, dependences.

The host carries out the scalar statements before a nest. So at a launch everything is a number, except the iterators
and the elements of arrays. From these numbers follow the trips of each loop, the accesses that cannot leave their
arrays, and whether iterations depend on each other.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from offload.errors import DirectiveWarning, PerformanceWarning
from offload.interrupts.frames import warn
from offload.loops.emit.c_statements import can_fail
from offload.loops.emit.emit_c import CVariant, copied
from offload.loops.emit.python_form import held
from offload.loops.proofs.affine import NOTHING, AffineForm
from offload.loops.proofs.bounds import (
    MOST_CONTENTS,
    MOST_ELEMENTS,
    ROUNDS,
    bounds,
    is_overwritten,
    is_worth_a_look,
    parts_wanted,
)
from offload.loops.proofs.independence import independence
from offload.loops.proofs.lost_updates import LostUpdate, lost_updates
from offload.loops.proofs.numbers import LaunchNumbers, Trips, View
from offload.loops.proofs.reach import accesses
from offload.loops.proofs.reports import (
    carried_text,
    index_error,
    iteration,
    lost_text,
    proved_error,
    proved_text,
    require,
)
from offload.loops.proofs.scans import scan_at
from offload.loops.running import pool
from offload.loops.running.build import builder, of_obstacle
from offload.loops.running.runs import NestForm
from offload.loops.running.scan_runs import ScanForm
from offload.loops.tree import ir
from offload.loops.tree.nodes import without_checks
from offload.loops.tree.uses import Addressing, addressing, numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from offload.loops.emit.c_scope import Layout
    from offload.loops.proofs.affine import Interval
    from offload.loops.proofs.bounds import ArrayPart, Bounds
    from offload.loops.proofs.independence import Verdict
    from offload.loops.proofs.reach import ElementAccess, NestAccesses
    from offload.loops.running.memo import CallRecord
    from offload.loops.running.specialise import LoopProgram, Specialisation

# What the workers' copies of an array of atomics may have.
_COPIES_NBYTES: Final = 64 << 20


# Elements of a table of indices that the calls of a loop look at for a warning: to sort them takes 0.3 s.
_MOST_LOOKED_AT: Final = 1 << 22

_NO_ADDRESSING: Final = Addressing(frozenset(), frozenset())


class Numbers(NamedTuple):
    """The numbers of a call."""

    scalars: tuple[dict[str, Any], ...]  # for each nest, by name, NumPy scalars as they are before it
    axes: tuple[tuple[Trips, ...], ...]  # of each nest
    views: dict[str, View]  # where arrays lie
    record: CallRecord  # what is known of the calls with these layouts and scalars
    # What else decisions follow from, of arrays that share memory or are not aligned: how they lie to each other.
    lies: Hashable = None

    def launch(self, number: int = 0, contents: Mapping[int, Interval] = NOTHING) -> LaunchNumbers:
        """Return the numbers of the launch of a nest, with the known ranges of elements of its index arrays."""
        return LaunchNumbers(self.axes[number], plain(self.scalars[number]), self.views, contents)


class Outside(NamedTuple):
    """An access that leaves its array in an iteration which is certainly carried out."""

    access: ElementAccess
    # The array's extent in a dimension, and the index there.
    extent: int
    dimension: int  # of the array
    reached: int  # the index
    iteration: str  # `"i=3, j=0"`


class NestPlan(NamedTuple):
    """The decisions about a nest."""

    typed: ir.Typed  # the function, or one that has the nest as another text
    nest: ir.Nest  # in this text
    text: Hashable  # tells the texts of a nest apart; None is its own
    bounds: Mapping[int, Bounds]  # by access
    verdict: Verdict  # whether its iterations are independent
    overwritten: frozenset[str]  # arrays of which it writes every element, and reads none
    wanted: tuple[ArrayPart, ...]  # what would say more about accesses that are checked
    outside: Outside | None  # an access that certainly leaves its array
    variant: CVariant  # what the emitters are told
    narrow: tuple[str, ...]  # variables of inner loops that 32 bits hold
    # Loads and stores, by `at`, of which the call has to see whether iterations depend on each other by them.
    observed: frozenset[int]
    addressing: Addressing  # of what it follows which elements iterations access; of calls that have to know that
    # Updates that may be lost, of a loop whose iterations nobody has said, proved or seen to be independent.
    lost: tuple[LostUpdate, ...]
    is_sound: bool  # whether `check` has nothing against it


def numbers_of(spec: Specialisation, values: Mapping[str, Any], view_of: Callable[[Any], View]) -> Numbers:
    """Return the numbers of a call, from its arguments by name; carry out the parts before its nests.

    Raises `OverflowError` for an int of more than 64 bits, and `ValueError` or `ZeroDivisionError` as the parts do.
    """
    typed = spec.typed
    arrays = {name: values[name] for name in typed.arrays if name in values}
    scalars = {name: _held(name, values[name], kind) for name, kind in typed.scalars.items() if name in values}
    before: list[dict[str, Any]] = []
    axes: list[tuple[Trips, ...]] = []
    for part in spec.parts:
        found = part(scalars, arrays)
        if found is not None:
            before.append(scalars.copy())
            axes.append(tuple(Trips(*axis) for axis in found))
    views = {name: view_of(array) for name, array in arrays.items()}
    return Numbers(tuple(before), tuple(axes), views, spec.record(spec.key(values)), _lies(spec, views))


def plans_of(spec: Specialisation, numbers: Numbers) -> tuple[NestPlan, ...]:
    """Return the plans for these numbers; raise `LoopError` if too much memory is private."""
    key = "plans", numbers.lies
    facts = numbers.record.facts
    found: tuple[NestPlan, ...] | None = facts.get(key)
    if found is None:
        made = tuple(_plan(spec, nest, numbers.launch(number)) for number, nest in enumerate(spec.typed.function.nests))
        found = facts.keep(key, made)
    return found


def ranged(
    spec: Specialisation,
    numbers: Numbers,
    look: Callable[[tuple[ArrayPart, ...], int | None], dict[int, Interval]],
    *,
    always: bool = False,
) -> tuple[NestPlan, ...]:
    """Return the plans for these numbers and for the elements that indices are made of, if these are worth a look.

    ``look`` returns the least and the greatest element of parts, as `offload.loops.running.looks.Looks` does. With
    ``always`` it looks in any case.
    """
    plans = plans_of(spec, numbers)
    if not is_looked_at(spec, numbers, plans, always=always):
        return plans
    known: dict[int, Interval] = {}
    facts = numbers.record.facts
    for _ in range(ROUNDS):
        most = None if always else MOST_ELEMENTS * math.prod(axis.trips for axis in numbers.axes[0])
        seen = look(plans[0].wanted, most)
        if not seen:
            break
        known |= seen
        key = "plans", numbers.lies, tuple(known.items())
        found = facts.get(key)
        if found is None:
            is_kept = spec.n_contents < ROUNDS * MOST_CONTENTS
            if not (is_kept or always):
                break
            found = (_plan(spec, spec.typed.function.nests[0], numbers.launch(0, dict(known))),)
            if is_kept:
                spec.n_contents += 1
                facts.keep(key, found)
        plans = found
    return plans


def is_looked_at(spec: Specialisation, numbers: Numbers, plans: tuple[NestPlan, ...], *, always: bool = False) -> bool:
    """Tell whether `ranged` looks at elements: never where another nest, which may be running, may write to them."""
    is_one = len(plans) == 1 and spec.whole is None
    if not is_one or not plans[0].wanted or not plans[0].is_sound or not spec.program.words.bounds:
        return False
    return always or is_worth_a_look(tuple(axis.trips for axis in numbers.axes[0]))


def form_of(spec: Specialisation, number: int, plan: NestPlan) -> NestForm:
    """Return the compiled form of a nest, by its number in the function, under a plan."""

    def made() -> NestForm:
        warn_of_python(spec)
        kind = NestForm if plan.nest.scan is None else ScanForm
        return kind(plan.typed, plan.nest, plan.variant, spec.program.words)

    return spec.form((number, plan.variant, plan.text), made)


def warn_of_python(spec: Specialisation) -> None:
    """Give a `PerformanceWarning`, once a loop, where there is no compiler for the host, or none that works now."""
    if builder.compiler is not None:
        return
    if builder.obstacle is None:
        what = (
            "there is no C compiler, so the loop runs as Python, some hundred times slower; install gcc or clang, or "
            'pip install "offload[loops]", or name a compiler in OFFLOAD_CC'
        )
    else:
        what = f"it {of_obstacle(builder.obstacle)}"
    warn_once(spec, what)


def check(
    spec: Specialisation,
    plans: tuple[NestPlan, ...],
    values: Mapping[str, Any] = MappingProxyType({}),
    *,
    is_in_order: bool = False,
) -> None:
    """Refuse a call that must not run, before anything has changed; warn of updates that may be lost.

    With ``is_in_order`` one thread runs the iterations of each nest in order, so no update is lost. Raises `IndexError`
    if an iteration certainly leaves an array, and `LoopError` if iterations provably depend on each other.
    """
    for plan in plans:
        if not plan.is_sound:
            _refuse(spec, plan)
        if plan.lost and not is_in_order:
            _warn_of_lost(spec, plan, values)


def _warn_of_lost(spec: Specialisation, plan: NestPlan, values: Mapping[str, Any]) -> None:
    """Give a `DirectiveWarning`, once a nest, at the first update that may be lost."""
    program, subject = spec.program, f"updates at line {plan.nest.place.line}"
    if subject in program.warned:
        return
    lost = [
        update
        for update in plan.lost
        if not (update.tables and all(_all_differ(program, table, values.get(table)) for table in update.tables))
    ]
    if lost:
        place = lost[0].store.place
        module = program.function.__globals__.get("__name__") or place.file  # without one, Python gives no warning
        text = program.words.worded(f"{program.directive} {program.name!r}: {lost_text(lost)}")
        program.warned.add(subject)
        try:
            warnings.warn_explicit(text, DirectiveWarning, place.file, place.line, module)
        except BaseException:  # the program makes an error of it, and the call has not run
            program.warned.discard(subject)
            raise


def _all_differ(program: LoopProgram, name: str, table: Any) -> bool:
    """Tell whether a table of a loop is known to hold no index twice; a negative one may be another's element.

    All that calls look at has a bound. A device array, and a table after the bound, count as the tables before it.
    """
    n_looked = program.n_looked.get(name, 0)
    if not isinstance(table, np.ndarray):
        return n_looked > 0
    if not 0 < table.size <= _MOST_LOOKED_AT:
        return False
    if n_looked >= _MOST_LOOKED_AT:
        return True
    ordered = np.sort(table, axis=None)
    differ = bool(ordered[0] >= 0 or ordered[-1] < 0) and bool((ordered[1:] != ordered[:-1]).all())
    program.n_looked[name] = n_looked + table.size if differ else 0
    return differ


def _plan(spec: Specialisation, nest: ir.Nest, launch: LaunchNumbers) -> NestPlan:
    """Decide about a nest."""
    require(spec.typed.function.name, nest, launch)
    words = spec.program.words
    found = accesses(spec.typed, nest, launch)
    limits = bounds(found)
    verdict = independence(found)
    order = nest.clauses.order
    speculates = spec.program.is_speculative and order != "seq"
    is_asserted = not (order or speculates or words.checks)  # by the construct alone
    is_in_order = order == "seq"
    if nest.carried and not is_in_order:
        is_said = is_asserted or (order == "independent" and not speculates)
        found_scan = scan_at(
            spec.typed, nest, launch, verdict, reassociates=words.reassociate, is_asserted=is_said and not words.checks
        )
        if isinstance(found_scan, ir.Scan):
            nest = replace(nest, scan=found_scan)
        else:
            is_in_order = True
            verdict = replace(verdict, verdict="sequential", carried=carried_text(nest, found_scan))
    elif nest.carried:
        verdict = replace(verdict, verdict="sequential", carried=carried_text(nest, ""))
    is_in_order = is_in_order or (order == "auto" and verdict.verdict != "parallel" and not speculates)
    if order != "seq" and is_in_order and not speculates:
        line = nest.place.line
        warn_once(spec, f"the loop at line {line} runs in order: {proved_text(verdict)}", f"line {line}")
    modes: dict[int, ir.Mode] = {at: limit.mode for at, limit in limits.items()}
    if not words.bounds:
        modes = {at: "wrap" if mode == "check" else mode for at, mode in modes.items()}
    nest = without_checks(nest, modes)
    variant = CVariant(
        modes=tuple(sorted(modes.items())),
        layouts=tuple((name, layout_of(view)) for name, view in launch.views.items()),
        is_restricted=not shares(spec, launch.views),
        unit_steps=tuple((number, axis.step) for number, axis in enumerate(launch.axes) if abs(axis.step) == 1),
        copies=() if is_in_order or nest.scan is not None else _copied(nest, launch),
        is_ordered=is_in_order,
    )
    is_independent = is_in_order or speculates or verdict.verdict != "sequential"
    outside = _outside(found, limits)
    observed = _observed(nest, verdict) if words.checks and not is_in_order else frozenset()
    overwritten = frozenset(name for name in launch.views if is_overwritten(found, name))
    if overwritten and can_fail(nest, modes):
        overwritten = frozenset()  # an iteration ends where it fails, before it has written its elements
    return NestPlan(
        spec.typed,
        nest,
        None,
        limits,
        verdict,
        overwritten,
        parts_wanted(found, limits),
        outside,
        variant,
        tuple(sorted(found.narrow)),
        observed,
        addressing(nest) if observed or speculates else _NO_ADDRESSING,
        lost_updates(found) if is_asserted and verdict.verdict == "unknown" else (),
        is_independent and outside is None,
    )


def _observed(nest: ir.Nest, verdict: Verdict) -> frozenset[int]:
    """Return the loads and stores about which nothing is proved."""
    accesses_of = numbered(nest)
    return frozenset(at for at in verdict.unknown if not isinstance(accesses_of[at], ir.Atomic))


def _refuse(spec: Specialisation, plan: NestPlan) -> None:
    """Raise the error of a nest; see `check`."""
    found = plan.outside
    if found is not None:
        raise index_error(found.access, found.reached, found.dimension, found.extent, found.iteration)
    raise proved_error(spec.program.name, plan.nest, plan.verdict)


def _outside(found: NestAccesses, limits: Mapping[int, Bounds]) -> Outside | None:
    """Return the first access, in the order of the text, that certainly leaves its array."""
    for access in found.listed:
        outside = limits[access.at].outside
        if outside is not None:
            dimension, index = outside
            value = access.indices[dimension]
            if index in value.interval:
                corner = _corner(found, value.form if index == value.high else -value.form)
                where = iteration(found.nest, found.launch.axes, corner)
                return Outside(access, found.extents[access.array][dimension], dimension, index, where)
    return None


def _corner(found: NestAccesses, form: AffineForm) -> list[int]:
    """Return the trips of the axes at which a form has its greatest value."""
    trips = [0] * len(found.launch.axes)
    while form.terms:
        number, coefficient = form.terms[-1]
        atom = found.space.atoms[number]
        form = AffineForm(form.constant, form.terms[:-1])
        if number < len(trips):
            trips[number] = atom.high if coefficient > 0 else atom.low
        elif coefficient > 0 and atom.room is not None:
            form += atom.room * (coefficient // atom.step)
    return trips


def _copied(nest: ir.Nest, launch: LaunchNumbers) -> tuple[str, ...]:
    """Return the arrays of atomics of which each worker is to have a copy: the loop is long enough to merge them."""
    size = math.prod(axis.trips for axis in launch.axes)
    sizes = {name: math.prod(view.extents) for name, view in launch.views.items()}
    return tuple(
        sorted(
            name
            for name in copied(nest)
            if sizes[name] <= size and sizes[name] * launch.views[name].itemsize * pool.n_cores() <= _COPIES_NBYTES
        )
    )


def layout_of(view: View) -> Layout:
    """Return how an array lies: ``"C"``, ``"inner"`` where rows are contiguous, ``"strided"``, or ``"packed"``."""
    if not view.is_aligned:
        return "packed"
    expected = view.itemsize
    is_c = True
    for extent, stride in zip(reversed(view.extents), reversed(view.strides), strict=True):
        if extent != 1:
            is_c = is_c and stride == expected
        expected *= extent
    if is_c:
        return "C"
    return "inner" if view.strides[-1] == view.itemsize else "strided"


def shares(spec: Specialisation, views: Mapping[str, View]) -> bool:
    """Tell whether a nest writes to an array that shares memory with another."""
    names = list(views)
    return any(
        views[one].may_share(views[other])
        for number, one in enumerate(names)
        for other in names[number + 1 :]
        if spec.uses[one].is_changed or spec.uses[other].is_changed
    )


def _lies(spec: Specialisation, views: Mapping[str, View]) -> Hashable:
    """Return the key of decisions besides layouts and scalars; None if arrays are aligned and share nothing."""
    # Addresses decide nothing, but their distances do where arrays share memory: which iterations meet.
    is_shared, are_aligned = shares(spec, views), tuple([view.is_aligned for view in views.values()])
    if not is_shared and all(are_aligned):
        return None
    base = min(view.address for view in views.values())
    return are_aligned, tuple([view.address - base for view in views.values()]) if is_shared else None


def plain(scalars: Mapping[str, Any]) -> dict[str, bool | int | float]:
    """Return scalars as Python's numbers."""
    return {name: value.item() for name, value in scalars.items()}


def _held(name: str, value: Any, kind: ir.Type) -> Any:
    """Return an argument as a NumPy scalar of a type; raise `OverflowError` of an int that 64 bits do not hold."""
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        what = str(value) if value.bit_length() < 256 else f"an int of {value.bit_length():,} bits"
        raise OverflowError(
            f"argument {name!r} is {what}, but ints in loops have 64 bits; pass np.uint64({name}) if the value fits, "
            f"or float({name})"
        )
    return held(value, kind)


def warn_once(spec: Specialisation, what: str, subject: str = "") -> None:
    """Give a `PerformanceWarning` the first time that there is one of a subject of this loop function."""
    program = spec.program
    if subject not in program.warned:
        program.warned.add(subject)
        place = program.source.place
        warn(f"{program.directive} {program.name!r}: {what}", PerformanceWarning, f"{place.file}:{place.line}")
