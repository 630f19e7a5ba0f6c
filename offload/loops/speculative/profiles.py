"""Profiles: made from runs in order, checked against a loop, and tried in a first call, without effects."""

from __future__ import annotations

import hashlib
import math
import textwrap
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from offload.arrays.items import label
from offload.errors import ClauseError, UnsupportedError, UsageError
from offload.loops.proofs.bounds import LOOK_LIMITS
from offload.loops.proofs.dependences import DependenceExample, DependenceProfile, ProfiledDependence
from offload.loops.proofs.reports import is_updated
from offload.loops.running.clauses import LoopWords
from offload.loops.running.looks import Looks
from offload.loops.running.observe import NestObserver, copies_of
from offload.loops.running.ordered_runs import ordered_runs
from offload.loops.running.plan import numbers_of, plain, plans_of, ranged
from offload.loops.running.preparation import view_at
from offload.loops.running.specialise import LoopProgram
from offload.loops.speculative.contest import History
from offload.loops.speculative.verdict_memory import Memory, note_time
from offload.loops.tree import ir
from offload.loops.tree.nodes import walk
from offload.loops.tree.uses import numbered
from offload.loops.watched.cells import groups_of
from offload.loops.watched.inspecting import can_be_inspected
from offload.loops.watched.needs import needed
from offload.loops.watched.profiling import KINDS, NOTE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from offload.loops.proofs.dependences import Findings, Observed, ProfileVerdict
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
    """Run a nest in order on arrays of the host, and return the findings, a failure as well.

    If all is proved, return None without a run. A quick run only tells whether there is a dependence, not how many, nor
    the remedies. A slice changes nothing, and does not fail.
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

    Something is unknown of the nest. The findings only tell whether the iterations that were run have a dependence. A
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
    """Return the observer of a nest, which is kept with its logged loop."""
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
    """Return one profile for the profiles of several inputs."""
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
            f"profile_dependences({program.name}): there is no input; give the arguments of a call, as a tuple"
        )
    return joined([profile_of(*_seen_in(program, one)) for one in inputs])


def _seen_in(program: LoopProgram, given: Any) -> tuple[Specialisation, Numbers, NestPlan, Findings | None]:
    """Run the loop on copies of one input."""
    if not isinstance(given, (tuple, list, dict)):
        raise UsageError(
            f"profile_dependences({program.name}): input {label(given):.60} is not a tuple; give the arguments of one "
            "call as a tuple, or as a dictionary by name"
        )
    values = program.bound((), given) if isinstance(given, dict) else program.bound(tuple(given), {})
    spec = program.specialise(values)
    numbers = numbers_of(spec, values, partial(view_at, None))
    if len(spec.typed.function.nests) > 1:
        raise UnsupportedError(
            f"profile_dependences({program.name}): the function has several nests; pass the plain function, "
            f"{program.name}.python, for a verdict about each loop"
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
            f"speculate: the profile is of {profile.function!r}, but the loop is {program.name!r}; profile this loop"
        )
    if profile.source_sha256 != source_sha256(program):
        raise ClauseError(
            f"speculate: {program.name!r} was changed after it was profiled; profile it again, with profile_dependences"
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


# -- the first call -----------------------------------------------------------------------------------


def profiled(
    spec: Specialisation, numbers: Numbers, plan: NestPlan, arrays: Mapping[str, Any], memory: Memory
) -> dict[str, Any]:
    """Run a nest in order on arrays of the host, and keep the findings; return the scalars that come out.

    Raises as the serial program does; its writes until then stay.
    """
    found = observed(spec, numbers, plan, arrays, is_quick=True)
    assert found is not None  # else it is proved
    keep_profile(spec, numbers, plan, memory, found)
    if found.failure is not None:
        raise found.failure
    return found.results


def looked(
    spec: Specialisation,
    numbers: Numbers,
    plan: NestPlan,
    arrays: Mapping[str, Any],
    memory: Memory,
    *,
    is_slice: bool = False,
) -> Findings:
    """Run the beginning of a nest in order, on copies or as a slice, and keep and return the findings."""
    found = begun(spec, numbers, plan, arrays, is_slice=is_slice)
    keep_profile(spec, numbers, plan, memory, found)
    return found


def keep_profile(
    spec: Specialisation, numbers: Numbers, plan: NestPlan, memory: Memory, found: Findings | None
) -> None:
    """Keep the findings of the first call about a nest; None: nothing is profiled."""
    n_iterations = 0 if found is None else found.n_iterations
    with spec.lock:
        memory.profile = profile_of(spec, numbers, plan, found, n_iterations)
        memory.is_sequential = memory.is_sequential or bool(found and found.found)
        memory.seen = n_iterations, math.prod(axis.trips for axis in numbers.axes[0])


def memory_of(spec: Specialisation) -> Memory:
    """Return the memory of a speculative loop. Raises `ClauseError` for a profile of other types."""
    memory: Memory | None = spec.speculation
    if memory is None:
        profile = spec.program.words.speculate
        memory = Memory(line=None if spec.whole is None else spec.typed.function.nests[0].place.line)
        if profile is not None and not isinstance(profile, (bool, str)):
            check_types(spec, profile)
            memory.profile = profile
            memory.is_sequential = profile.verdict == "sequential"
        with spec.lock:
            if spec.speculation is None:
                spec.speculation = memory
            memory = spec.speculation
    return memory


# -- trials -------------------------------------------------------------------------------------------
#
# If addresses follow from nothing that the loop writes, the profile runs the address slice on the arrays of the
# program. Otherwise it runs the loop on copies of its written arrays, and continues to estimate the time of the whole
# loop. Copies of large arrays take too long. So a loop with an address slice is tried on zeroed arrays instead,
# twice, because untouched memory is slow. A loop without one that writes to large arrays is raced, not profiled.


# How long the host is tried, of a loop of which nothing is known.
_SAMPLE_S: Final = 1e-3

# Of what is tried at a time.
_GROWTH: Final = 4

_LEAST_S: Final = 200e-6
# A call on a device that maps its arrays takes no less: on an H100 one of 10,000 iterations took a millisecond, and
# memory that is not page-locked is copied at less than half of that rate.
_MOST_BYTES_PER_S: Final = 32e9


def tried(
    spec: Specialisation, values: Mapping[str, Any], numbers: Numbers, plan: NestPlan, *, is_first: bool
) -> History | None:
    """Profile the beginning of a first call, and try the host; return the history of both sides.

    ``values`` has arrays of the host. None: the loop is to run in order, since iterations depend on each other, or
    since it is too short to be tried.
    """
    given = {name: values[name] for name in spec.given}
    written_nbytes = sum(values[name].nbytes for name in spec.changed)
    memory, is_slice = memory_of(spec), has_slice(spec, numbers, plan)
    is_large = written_nbytes > LOOK_LIMITS.copied_nbytes
    if is_large and not is_slice:
        if not is_first:
            return None if is_short(numbers, plan) else History()
        keep_profile(spec, numbers, plan, memory, None)
        return History()
    if is_large and not is_first and is_short(numbers, plan):
        return None
    done = 0
    arrays = given if is_slice else copies_of(plan.nest, given, numbers.views)
    if is_first:
        seen = looked(spec, numbers, plan, arrays, memory, is_slice=is_slice)
        if seen.found or seen.is_whole:
            return None
        done = 0 if is_slice else seen.n_trips
    if is_slice:
        arrays = copies_of(plan.nest, given, numbers.views, are_blank=is_large)
    host_s = sampled_s(spec, {**values, **arrays}, done, is_new=is_slice and is_large)
    least_s = 0.0
    if memory.seen is not None and memory.seen[0] < memory.seen[1]:  # else it is short, and the device shows itself
        least_s = _LEAST_S + (sum(array.nbytes for array in given.values()) + written_nbytes) / _MOST_BYTES_PER_S
    return note_time(spec, numbers.record, lambda history: replace(history, least_s=least_s).measured(host_s=host_s))


def sampled_s(spec: Specialisation, values: Mapping[str, Any], done: int, *, is_new: bool) -> float:
    """Return the estimated time of the loop in order on the host, by a millisecond of it after the trips done so far.

    ``is_new``: the arrays that it writes are untouched memory; the trial is then repeated.
    """
    (run,) = ordered_runs(spec, values)
    if not run.form.entry:
        return math.inf
    run.run(0, 0)  # what is compiled once
    first = done = 0 if done >= run.trips else done
    begun_s, took_s, size = time.perf_counter(), 0.0, 1
    while done < run.trips and not run.has_failed and took_s < _SAMPLE_S:
        end = min(done + size, run.trips)
        run.run(done, end)
        done, took_s = end, time.perf_counter() - begun_s
        room = (_SAMPLE_S - took_s) / max(took_s, 1e-9)
        size = max(1, min(_GROWTH * size, int((done - first) * room)))
    if is_new and not run.has_failed:
        begun_s = time.perf_counter()
        run.run(first, done)
        took_s = time.perf_counter() - begun_s
    return took_s * run.trips / max(done - first, 1)
