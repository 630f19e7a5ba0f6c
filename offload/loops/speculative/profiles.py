"""Profiles: made from runs in order, and checked against a loop."""

from __future__ import annotations

import hashlib
import math
import textwrap
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from offload.arrays.items import label
from offload.errors import ClauseError, UnsupportedError, UsageError
from offload.loops.proofs.dependences import DependenceExample, DependenceProfile, ProfiledDependence
from offload.loops.proofs.ranges import LOOK_LIMITS
from offload.loops.proofs.remedies import is_updated
from offload.loops.running.clauses import LoopWords
from offload.loops.running.looks import Looks
from offload.loops.running.observe import NestObserver, copies_of
from offload.loops.running.plan import numbers_of, plain, plans_of, ranged
from offload.loops.running.preparation import view_at
from offload.loops.running.specialise import LoopProgram
from offload.loops.tree import ir
from offload.loops.tree.nodes import walk
from offload.loops.tree.uses import numbered
from offload.loops.watched.cells import groups_of
from offload.loops.watched.inspecting import can_be_inspected
from offload.loops.watched.needs import needed
from offload.loops.watched.profiling import KINDS, NOTE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from offload.loops.proofs.dependences import ProfileVerdict
    from offload.loops.proofs.findings import Findings, Observed
    from offload.loops.proofs.independence import Verdict
    from offload.loops.proofs.numbers import Trips
    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.specialise import Specialisation


def observed(
    spec: Specialisation,
    numbers: Numbers,
    plan: NestPlan,
    arrays: Mapping[str, Any],
    *,
    is_quick: bool,
    is_slice: bool = False,
) -> Findings | None:
    """Run a nest in order on arrays of the host, and return what has been seen, a failure as well.

    Where all is proved it returns None, and nothing has run. A quick run tells whether there is a dependence; how many
    there are, and what to do about them, it does not know. A slice changes nothing, and does not fail.
    """
    watched = frozenset(_watched(plan))
    if not watched:
        return None
    observer = _observer(spec, numbers, plan, watched, is_quick=is_quick, is_slice=is_slice)
    return observer.observe(numbers.scalars[0], arrays)


def has_slice(spec: Specialisation, numbers: Numbers, plan: NestPlan) -> bool:
    """Tell whether a nest can be observed without being carried out, but for accesses that are outside of arrays."""
    changed = set(spec.changed)
    written = {name for names in groups_of(numbers.views) if not changed.isdisjoint(names) for name in names}
    return can_be_inspected(plan.nest, written, plain(numbers.scalars[0]))


def is_inside(plan: NestPlan) -> bool:
    """Tell whether each access of a nest is known to be inside of its array."""
    modes = dict(plan.variant.modes)
    return all(modes.get(at, "check") != "check" for at in numbered(plan.nest))


def begun(
    spec: Specialisation, numbers: Numbers, plan: NestPlan, arrays: Mapping[str, Any], *, is_slice: bool = False
) -> Findings:
    """Run a nest from its beginning, on copies, until a dependence is seen or for `LookLimits.steps`.

    Something is unknown of the nest. Whether there is a dependence in what was run is all that the findings tell. A
    slice changes nothing.
    """
    watched = frozenset(_watched(plan))
    observer = _observer(spec, numbers, plan, watched, is_quick=True, most=LOOK_LIMITS.steps, is_slice=is_slice)
    return observer.begin(numbers.scalars[0], arrays)


def is_short(numbers: Numbers, plan: NestPlan) -> bool:
    """Tell whether it is certain that a nest takes no more than `LookLimits.steps`."""
    if any(isinstance(node, ir.For | ir.While) for node in walk(*plan.nest.body)):
        return False
    per_iteration = 1 + NOTE * sum(1 for _ in _watched(plan))
    return math.prod(axis.trips for axis in numbers.axes[0]) * per_iteration <= LOOK_LIMITS.steps


def _observer(
    spec: Specialisation,
    numbers: Numbers,
    plan: NestPlan,
    watched: frozenset[int],
    *,
    is_quick: bool,
    most: int | None = None,
    is_slice: bool = False,
) -> NestObserver:
    """Return what observes a nest, as it is kept with what logs it."""
    key = "observer", is_quick, most, is_slice, numbers.lies, plan.variant, watched
    facts = numbers.record.facts
    kept: NestObserver | None = facts.get(key)
    if kept is not None:
        return kept
    axes = numbers.axes[0]
    of = needed(spec.typed, plan.nest, numbers.launch(), watched) if is_quick else None
    modes, words = dict(plan.variant.modes), spec.program.words
    made = NestObserver(spec.typed, plan.nest, modes, watched, numbers.views, axes, words, of, most, is_slice=is_slice)
    facts.keep(key, made)
    return made


def _watched(plan: NestPlan) -> Iterable[int]:
    """Return the accesses that are not proved independent, those among them that are proved to depend."""
    ats = {*plan.verdict.unknown}
    for one in plan.verdict.dependences:
        ats |= {one.source.at, one.sink.at}
    known = numbered(plan.nest)
    return [at for at in ats if not isinstance(known[at], ir.Atomic)]


def profile_of(
    spec: Specialisation, numbers: Numbers, plan: NestPlan, found: Findings | None, n_iterations: int | None = None
) -> DependenceProfile:
    """Return the profile of one run; `found` is None where all was proved, `n_iterations` where that is all of them."""
    axes = numbers.axes[0]
    seen = [] if found is None else sorted(found.found.values(), key=lambda one: KINDS.index(one.kind))
    verdict = _verdict(plan.verdict, seen)
    kinds = {array: {one.kind for one in seen if one.array == array} for array in dict.fromkeys(o.array for o in seen)}
    exposed = frozenset[str]() if found is None else found.exposed
    own = [array for array, of in kinds.items() if "flow" not in of and array not in exposed]
    updated = [array for array in kinds if array not in own and is_updated(plan.nest, array)]
    return DependenceProfile(
        verdict,
        tuple([_dependence(plan, axes, one) for one in seen]),
        tuple(own),
        tuple(updated),
        math.prod(axis.trips for axis in axes) if n_iterations is None else n_iterations,
        1,
        spec.program.name,
        source_sha256(spec.program),
        (types_of(spec),),
    )


def _verdict(verdict: Verdict, seen: Sequence[Observed]) -> ProfileVerdict:
    if seen or verdict.verdict == "sequential":
        return "sequential"
    return "parallel" if verdict.verdict == "parallel" else "probably parallel"


def _dependence(plan: NestPlan, axes: Sequence[Trips], seen: Observed) -> ProfiledDependence:
    accesses = numbered(plan.nest)
    first, second = (
        [axis.start + trip * axis.step for axis, trip in zip(axes, t, strict=True)] for t in seen.example.trips
    )
    values = (first[0], second[0]) if len(axes) == 1 else (tuple(first), tuple(second))
    source, sink = (accesses[at].place.line for at in seen.example.accesses)
    example = DependenceExample(values, seen.example.element, (source, sink))
    return ProfiledDependence(seen.array, seen.kind, seen.count, seen.min_distance, seen.max_distance, example)


def joined(profiles: Sequence[DependenceProfile]) -> DependenceProfile:
    """Return what profiles of several inputs say together."""
    order: tuple[ProfileVerdict, ...] = "parallel", "probably parallel", "sequential"
    by_kind: dict[tuple[str, str], ProfiledDependence] = {}
    for one in (one for profile in profiles for one in profile.dependences):
        known = by_kind.get((one.array, one.kind))
        by_kind[one.array, one.kind] = one if known is None else _both(known, one)
    arrays = dict.fromkeys(one.array for one in by_kind.values())
    touched = [{one.array for one in profile.dependences} for profile in profiles]

    def of_all(word: str) -> tuple[str, ...]:
        """Return the arrays of which each profile that has a dependence by them says this."""
        return tuple(
            [
                array
                for array in arrays
                if all(array in getattr(one, word) for one, has in zip(profiles, touched, strict=True) if array in has)
            ]
        )

    types: list[Any] = []
    for profile in profiles:
        types += [one for one in profile.types if one not in types]
    return DependenceProfile(
        max((profile.verdict for profile in profiles), key=order.index),
        tuple(by_kind.values()),
        of_all("privatise"),
        of_all("reductions"),
        sum(profile.iterations for profile in profiles),
        len(profiles),
        profiles[0].function,
        profiles[0].source_sha256,
        tuple(types),
    )


def _both(one: ProfiledDependence, other: ProfiledDependence) -> ProfiledDependence:
    return ProfiledDependence(
        one.array,
        one.kind,
        one.count + other.count,
        min(one.min_distance, other.min_distance),
        max(one.max_distance, other.max_distance),
        one.example,
    )


# -- profiles of inputs --------------------------------------------------------------------------------------


def profile_inputs(of: LoopProgram | Callable[..., Any], inputs: Sequence[Any]) -> DependenceProfile:
    """Return the profile of a loop, or of a function that could be one; see `offload.loops.profile`."""
    program = of if isinstance(of, LoopProgram) else LoopProgram(of, LoopWords(), "profile_dependences")
    if not inputs:
        raise UsageError(
            f"profile_dependences({program.name}): no input is given; give the arguments of a call, as a tuple"
        )
    return joined([profile_of(*_seen_in(program, one)) for one in inputs])


def _seen_in(program: LoopProgram, given: Any) -> tuple[Specialisation, Numbers, NestPlan, Findings | None]:
    """Run the loop on copies of one input."""
    if not isinstance(given, (tuple, list, dict)):
        raise UsageError(
            f"profile_dependences({program.name}): input {label(given):.60} is no tuple; give the arguments of one call"
            " as a tuple, or as a dictionary by name"
        )
    values = program.bound((), given) if isinstance(given, dict) else program.bound(tuple(given), {})
    spec = program.specialise(values)
    numbers = numbers_of(spec, values, partial(view_at, None))
    if len(spec.typed.function.nests) > 1:
        raise UnsupportedError(
            f"profile_dependences({program.name}): the function has several nests; profile one that has one of them"
        )
    (plan,) = plans_of(spec, numbers)
    arrays = {name: values[name] for name in numbers.views}
    (known,) = ranged(spec, numbers, Looks(arrays))
    if has_slice(spec, numbers, plan) and is_inside(known):  # so nothing can fail, and nothing need be computed
        modes = replace(plan.variant, modes=known.variant.modes)
        found = observed(spec, numbers, plan._replace(variant=modes), arrays, is_quick=True, is_slice=True)
    else:
        found = observed(spec, numbers, plan, copies_of(plan.nest, arrays, numbers.views), is_quick=True)
    if found is not None and found.found:
        found = observed(spec, numbers, plan, copies_of(plan.nest, arrays, numbers.views), is_quick=False)
    if found is not None and found.failure is not None:
        raise found.failure
    return spec, numbers, plan, found


# -- whose profile it is -----------------------------------------------------------------------------------


def source_sha256(program: LoopProgram) -> str:
    """Return the SHA-256 of a function's text, without its decorators."""
    definition, lines = program.source.definition, program.source.text.split("\n")
    text = textwrap.dedent("\n".join(lines[definition.lineno - 1 : definition.end_lineno]))
    return hashlib.sha256(text.encode()).hexdigest()


def types_of(spec: Specialisation) -> dict[str, str]:
    """Return the types of a call's arguments, by parameter."""
    typed = spec.typed
    kinds = {**typed.scalars, **typed.arrays}
    return {name: str(kinds[name]) for name in spec.program.parameters if name in kinds}


def check_profile(program: LoopProgram, profile: DependenceProfile) -> None:
    """Raise `ClauseError` if a profile is another function's."""
    if profile.function != program.name:
        raise ClauseError(
            f"speculate: the profile is of {profile.function!r}, and the loop is {program.name!r}; profile that"
        )
    if profile.source_sha256 != source_sha256(program):
        raise ClauseError(
            f"speculate: {program.name!r} has another text than when it was profiled; profile it again, with"
            " profile_dependences"
        )


def check_types(spec: Specialisation, profile: DependenceProfile) -> None:
    """Raise `ClauseError` if a loop was not profiled with arguments of such types."""
    types = types_of(spec)
    if types not in profile.types:
        known = "; ".join(", ".join(f"{name}: {kind}" for name, kind in one.items()) for one in profile.types)
        now = ", ".join(f"{name}: {kind}" for name, kind in types.items())
        raise ClauseError(
            f"speculate: {spec.program.name!r} was not profiled with arguments of the types of this call ({now}), but"
            f" with {known}; profile it with such arguments too"
        )
