"""The verdict about each ``for`` of a plain function.

Each loop is outlined as a loop function (`front.outlines`). Its text says whether loops accept it, which scalars pass
from iteration to iteration, and which of these are reductions. CPython runs the function with the inputs (`tracing`).
When a loop begins, the proof of independence is tried with the numbers that the variables have then. The dependences
that the run sees decide the rest: through an array that is only updated, or that each iteration fills for itself, they
are no obstacle.
"""

from __future__ import annotations

import ast
import copy
import inspect
import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offload.arrays.items import label, with_numbers
from offload.errors import ClauseError, LoopError, UsageError
from offload.loops.front.outlines import BOUNDS, is_used_whole, outline, sites_of
from offload.loops.front.source import FunctionSource
from offload.loops.proofs.dependences import DependenceExample, ProfiledDependence
from offload.loops.proofs.reports import carried_text, is_updated, proved_text
from offload.loops.running.clauses import LoopWords
from offload.loops.running.observe import arrays_like
from offload.loops.running.plan import numbers_of, plans_of
from offload.loops.running.preparation import view_at
from offload.loops.running.specialise import LoopProgram
from offload.loops.speculative.candidate_report import CandidateReport, LoopCandidate
from offload.loops.speculative.tracing import Trace, TracedArray, traced
from offload.loops.tree import ir
from offload.loops.tree.nodes import walk
from offload.loops.tree.recurrences import scan_of
from offload.loops.watched.cells import groups_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload.loops.front.outlines import LoopSite, Outline
    from offload.loops.proofs.independence import LoopDependence, Verdict
    from offload.loops.speculative.candidate_report import CandidateVerdict
    from offload.loops.speculative.tracing import LoopTrace

# Entries of a loop with numbers of their own for which the proof is tried: each takes about a millisecond.
_MOST_PROOFS: Final = 64

_KINDS: Final = ("flow", "anti", "output")

_SCAN: Final = "target_loop computes it as a scan, for floats with reassociate=True"


def candidates(function: Any, inputs: Sequence[Any]) -> CandidateReport:
    """Return the verdict about each loop of a plain function; see `offload.loops.profile`."""
    source = FunctionSource.of(function)
    name = source.definition.name
    if not inputs:
        raise UsageError(f"profile_dependences({name}): there is no input; give the arguments of a call, as a tuple")
    sites, outside = sites_of(source.definition), _outside(source)
    loops = [_Loop(source, site, outside) for site in sites]
    trace = Trace(len(sites), lambda number, counted, variables: loops[number].enter(counted, variables))
    run, signature = traced(source, sites, trace, outside), inspect.signature(function)
    for given in inputs:
        if not isinstance(given, (tuple, list, dict)):
            raise UsageError(
                f"profile_dependences({name}): input {label(given):.60} is not a tuple; give the arguments of one call "
                "as a tuple, or as a dictionary by name"
            )
        bound = signature.bind(**given) if isinstance(given, dict) else signature.bind(*given)
        bound.apply_defaults()
        what = f"profile_dependences({name})"
        bound.arguments = {key: with_numbers(value, what) for key, value in bound.arguments.items()}
        bound.arguments = {name: trace.taken(name, value) for name, value in _copied(bound.arguments).items()}
        run(*bound.args, **bound.kwargs)
        trace.clear()
    for loop, found in zip(loops, trace.loops, strict=True):
        loop.decide(found)
    made = [loop.candidate(loops) for loop in loops]
    place = source.place
    return CandidateReport(name, place.file, place.line, len(inputs), tuple(made))


def _outside(source: FunctionSource) -> dict[str, Any]:
    """Return the values of all names that a function finds outside of itself."""
    code = source.function.__code__
    cells = zip(code.co_freevars, source.function.__closure__ or (), strict=True)
    found = dict(source.function.__globals__)
    for name, cell in cells:
        try:
            found[name] = cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    return found


def _copied(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with copies of the arrays, which share memory as the arrays do."""
    arrays = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    views = {name: view_at(None, array) for name, array in arrays.items()}
    made: dict[str, np.ndarray[Any, Any]] = {}
    for names in groups_of(views):
        made |= arrays_like(names, views, arrays)
    # Objects that hold an array of the arguments hold its copy.
    held: dict[int, Any] = {}
    for name, array in arrays.items():
        made[name][...] = array
        held[id(array)] = made[name]
    return {name: made[name] if name in made else copy.deepcopy(value, held) for name, value in arguments.items()}


class _Loop:
    """One loop: its text, the proofs at its entries, and the verdict."""

    def __init__(self, source: FunctionSource, site: LoopSite, outside: dict[str, Any]) -> None:
        self.site = site
        self._error: LoopError | None = None  # why loops do not accept it
        self._outline: Outline | None = None
        self._program: LoopProgram | None = None
        self._nest: ir.Nest | None = None  # as an entry has typed it
        self._proofs: dict[Any, Verdict] = {}  # by the numbers of entries
        self._is_unproved = False  # an entry had too many numbers, or none
        self._trace: LoopTrace | None = None
        self.verdict: CandidateVerdict = "not run"
        self.why = "no input reaches it"
        self.atomic: tuple[str, ...] = ()
        self.private: tuple[str, ...] = ()
        self.last: tuple[str, ...] = ()  # arrays in `lastprivate`
        self._takes_atomic = True  # whether the text has the form of updates that the clause takes
        self._arguments = {parameter.arg for parameter in source.parameters}  # whose arrays the caller sees
        self._definition = source.definition
        try:
            self._outline = outline(source, site, outside)
            words = LoopWords(several=True, speculate=True, lastprivate=self._outline.lastprivate)
            self._program = LoopProgram(self._outline.function, words, "profile_dependences")
        except LoopError as error:
            self._error = error
        except ClauseError as error:
            self._error = LoopError(str(error), rule="argument")

    def enter(self, counted: range | None, variables: Mapping[str, Any]) -> None:
        """Try to prove that iterations are independent, for the variables with which the loop begins."""
        program, made = self._program, self._outline
        if program is None or made is None or self._error is not None or self._is_unproved:
            return
        values = {name: variables.get(name, 0) for name in made.parameters}
        untraced = [name for name, value in values.items() if value.__class__ is np.ndarray]
        values = {
            name: np.asarray(value) if isinstance(value, TracedArray) else value for name, value in values.items()
        }
        if counted is not None and BOUNDS[0] in program.parameters:
            values |= dict(zip(BOUNDS, (counted.start, counted.stop, counted.step), strict=True))
        if untraced:
            what = f"{untraced[0]} is an array of which no statement of the function says where it comes from"
            self._error = LoopError(what, rule="argument")
            return
        try:
            self._prove(program, values)
        except LoopError as error:
            self._error = error
        except (ArithmeticError, ValueError) as error:  # a number of more than 64 bits
            self._error = LoopError(str(error), rule="types")

    def _prove(self, program: LoopProgram, values: Mapping[str, Any]) -> None:
        spec = program.specialise(values)
        numbers = numbers_of(spec, values, partial(view_at, None))
        self._nest = nest = spec.typed.function.nests[0]
        for node in walk(*nest.body):
            if isinstance(node, ir.Local) and node.name in nest.last:
                raise LoopError(f"{node.name} is an array of each iteration, but is read after the loop", rule="local")
        key = spec, spec.key(values), numbers.lies
        if key not in self._proofs:
            if len(self._proofs) < _MOST_PROOFS:
                self._proofs[key] = plans_of(spec, numbers)[0].verdict
            else:
                self._is_unproved = True

    # -- the verdict

    def decide(self, found: LoopTrace) -> None:
        """Decide, when all runs are over."""
        self._trace = found
        if self._error is not None:
            self.verdict = "sequential" if self._error.rule == "carried" else "outside the subset"
            self.why = _reason(self._error)
        elif found.entries and self._nest is not None:
            self._decide(self._nest, found)

    def _decide(self, nest: ir.Nest, found: LoopTrace) -> None:
        if nest.carried:
            self.verdict, self.why = "sequential", carried_text(nest, _SCAN if scan_of(nest) is not None else "")
            return
        proved = [one for verdict in self._proofs.values() for one in verdict.dependences]
        kinds: dict[str, set[str]] = {}
        for array, kind in found.found:
            kinds.setdefault(array, set()).add(kind)
        for one in proved:
            kinds.setdefault(one.sink.array, set()).add(one.kind)
        self.atomic = tuple([array for array in kinds if is_updated(nest, array)])
        own = [array for array, of in kinds.items() if "flow" not in of and array not in found.exposed]
        used = {
            array
            for array in own
            if array in self._arguments
            or array in found.read_after
            or is_used_whole(self._definition, self.site, array)
        }
        # Afterwards an array that is used has to hold what the last iteration has left.
        own = [array for array in own if array not in self.atomic and not (array in used and array in found.partial)]
        self.private = tuple([array for array in own if array not in used])
        self.last = tuple([array for array in own if array in used])
        obstacles = [array for array in kinds if array not in (*self.atomic, *own)]
        if not obstacles and not self._is_accepted((*self.private, *self.last)):
            obstacles = own
        if obstacles:
            self.verdict, self.why = "sequential", self._obstacle(obstacles[0], proved)
            self.atomic = self.private = self.last = ()
            return
        is_proved = not self._is_unproved and all(one.verdict == "parallel" for one in self._proofs.values())
        times = f" in {found.entries:,} runs of it" if found.entries > 1 else ""
        rest = "proved independent" if is_proved else f"no dependence in {found.iterations:,} iterations{times}"
        items = [f"{operator} of {name}" for operator, name in self.reductions]
        items += [f"updates of {name}" for name in self.atomic]
        self._takes_atomic = not self.atomic or self._is_accepted(self.atomic)
        if not self._takes_atomic:
            rest = f"{rest}; write each update as `{self.atomic[0]}[…] += value`"
        if items:
            self.verdict, self.why = "reduction", f"{', '.join(items)}; {rest}"
        elif own:
            names = ", ".join(own)
            self.why = f"if each iteration has its own {names}, which no call checks; otherwise {rest}"
            self.verdict = "probably parallel"
        else:
            self.verdict, self.why = ("parallel", rest) if is_proved else ("probably parallel", rest)

    def _is_accepted(self, named: Sequence[str]) -> bool:
        """Tell whether the loop may have clauses that name these arrays."""
        made = self._outline
        clauses = {"atomic": self.atomic, "private": self.private, "lastprivate": self.last}
        given: dict[str, Any] = {word: [one for one in names if one in named] for word, names in clauses.items()}
        given = {word: names for word, names in given.items() if names}
        if made is None or not given:
            return True
        try:
            words = LoopWords.of("profile_dependences", given, made.function.__code__.co_varnames)
            LoopProgram(made.function, words._replace(several=True), "profile_dependences")
        except (ClauseError, LoopError):
            return False
        return True

    def _obstacle(self, array: str, proved: Sequence[LoopDependence]) -> str:
        """Return the dependence by an array as text."""
        seen = [one for one in self.dependences if one.array == array]
        if not seen:
            verdict = next(one for one in self._proofs.values() if one.dependences)
            return proved_text(verdict)
        one = seen[0]
        distance = f"{one.min_distance:,}"
        if one.max_distance != one.min_distance:
            distance += f" to {one.max_distance:,}"
        first, second = one.example.iterations
        element = ", ".join(map(str, one.example.element))
        name = self.site.variable
        return (
            f"{one.kind} dependence by {array}, from line {one.example.lines[0]} to line {one.example.lines[1]}, "
            f"distance {distance}; for example by {array}[{element}], {name}={first} and {name}={second}"
        )

    @property
    def reductions(self) -> tuple[tuple[str, str], ...]:
        nest = self._nest
        return () if nest is None else tuple(sorted([(one.operator, one.name) for one in nest.reductions]))

    @property
    def dependences(self) -> tuple[ProfiledDependence, ...]:
        trace = self._trace
        if trace is None:
            return ()
        found = sorted(trace.found.items(), key=lambda item: _KINDS.index(item[0][1]))
        return tuple(
            [
                ProfiledDependence(
                    array,
                    kind,
                    one.count,
                    one.min_distance,
                    one.max_distance,
                    DependenceExample(one.iterations, one.element, one.lines),
                )
                for (array, kind), one in found
            ]
        )

    # -- the line to write

    @property
    def is_parallel(self) -> bool:
        return self.verdict in ("parallel", "probably parallel", "reduction")

    def candidate(self, loops: Sequence[_Loop]) -> LoopCandidate:
        """Return the verdict with the line to write, which depends on the loops around."""
        trace = self._trace
        assert trace is not None
        is_shown = self.is_parallel
        return LoopCandidate(
            self.site.line,
            self.site.variable,
            len(self.site.enclosing),
            self.verdict,
            self.why,
            self.reductions if is_shown else (),
            self.atomic,
            self.private,
            self._lastprivate if is_shown else (),
            self.dependences,
            trace.entries,
            trace.iterations,
            self._line(loops) if is_shown else "",
        )

    @property
    def _lastprivate(self) -> tuple[str, ...]:
        return () if self._nest is None else (*self._nest.last, *self.last)

    def _line(self, loops: Sequence[_Loop]) -> str:
        if not self._takes_atomic:
            return ""
        clauses = [f"reduction={self._reduction_text()}"] if self.reductions else []
        is_inner = any(loops[number].is_parallel for number in self.site.enclosing)
        if is_inner:
            if self.atomic or self.private or self._lastprivate:
                return ""  # a loop in an iteration has no such clauses: it stays with its thread
            words = ", ".join(["vector=True", *clauses])
            return f"for {self.site.variable} in acc.loop({ast.unparse(self.site.node.iter)}, {words}):"
        clauses += [
            f"{word}={json.dumps(names)}"
            for word, names in (("atomic", self.atomic), ("private", self.private), ("lastprivate", self._lastprivate))
            if names
        ]
        is_proved = self.why.endswith("proved independent") or not self._is_speculative()
        clauses += [] if is_proved else ["speculate=True"]
        return f"@omp.target_loop({', '.join(clauses)})" if clauses else "@omp.target_loop"

    def _is_speculative(self) -> bool:
        """Tell whether only observations speak for the loop, so that each call should check it."""
        return self.verdict in ("probably parallel", "reduction")

    def _reduction_text(self) -> str:
        items: dict[str, list[str]] = {}
        for operator, name in self.reductions:
            items.setdefault(operator, []).append(name)
        return json.dumps(items)


def _reason(error: LoopError) -> str:
    """Return the message of an error without its place, which the report has."""
    _, _, text = str(error).partition(": ") if error.line else ("", "", str(error))
    return f"line {error.line}: {text}" if error.line else text
