"""One run in order that sees which iterations depend on each other.

A property that cannot be proved of a loop can be observed for certain arguments: the nest runs in order, compiled for
the host, and takes note of its accesses (`offload.loops.watched.profiling`). `check=True` runs it on copies; a profile
is made of such runs. The first call of a speculative loop looks at the beginning alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offload.arrays.items import address_of
from offload.loops.emit.emit_c import CVariant
from offload.loops.proofs.dependences import Example, Findings, Observed
from offload.loops.proofs.numbers import View
from offload.loops.proofs.reports import trips_at
from offload.loops.running.arguments import Blank, on_host
from offload.loops.running.clauses import LoopWords
from offload.loops.running.plan import layout_of
from offload.loops.running.runs import OrderedForm, OrderedRun
from offload.loops.tree import ir
from offload.loops.tree.nodes import walk
from offload.loops.tree.uses import numbered
from offload.loops.watched.cells import cells_of, groups_of
from offload.loops.watched.profiling import (
    COUNT,
    GREATEST,
    HEAD,
    KINDS,
    LEAST,
    NOTE,
    SINK,
    SOURCE,
    Profiled,
    ProfileWriter,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from offload.loops.proofs.independence import DependenceKind
    from offload.loops.proofs.numbers import Trips
    from offload.loops.tree.ir import Mode, Nest, Typed
    from offload.loops.watched.needs import Needed

_WORDS: Final = LoopWords()

# How often the steps that are wanted a run may take until its loops end: what a slice is to take is only estimated.
_LEEWAY: Final = 2


class NestObserver:
    """A nest that is observed, for the numbers of a call: made once, for any number of runs."""

    def __init__(
        self,
        typed: Typed,
        nest: Nest,
        modes: Mapping[int, Mode],
        observed: frozenset[int],  # the loads and stores that count, by `at`
        # where the arrays lie, or the arrays that they copy; they tell which arrays share memory
        views: Mapping[str, View],
        axes: Sequence[Trips],
        words: LoopWords = _WORDS,  # for arithmetic
        # the needs of a log: fewer accesses are noted. The run then tells only whether there is a dependence.
        of: Needed | None = None,
        most: int | None = None,  # steps of a run of which only the beginning is observed (`begin`)
        *,
        is_slice: bool = False,  # only the address slice runs; it changes nothing, and finds no error (`inspecting`)
    ) -> None:
        names = {node.array for at, node in numbered(nest).items() if at in observed}
        of_names = {name: view for name, view in views.items() if name in names}
        cells = cells_of(of_names, changed_by(nest), None if of is None else of.left_out)
        self._trips = [axis.trips for axis in axes]  # of each axis, in the whole nest
        last = None if most is None else _LEEWAY * most
        if of is None:
            writer = ProfileWriter(typed, nest, modes, cells, observed, self._trips, (), last, is_slice=is_slice)
            made = writer.profiled()
        else:
            modes = {at: modes.get(before, "check") for at, before in of.originals.items()}
            noted = of.loads | of.stores
            writer = ProfileWriter(typed, of.nest, modes, cells, noted, self._trips, of.once, last, is_slice=is_slice)
            made = writer.profiled()
            made = made._replace(numbers=tuple([of.originals[at] for at in made.numbers]))
        self._made, self._axes, self._words, self._most = made, axes, words, most
        self._is_shared = any(len(group) > 1 for group in groups_of(views))  # whether arrays share memory
        self._form: OrderedForm | None = None  # of the latest run; the next one's copies may be aligned otherwise

    def observe(self, scalars: Mapping[str, Any], arrays: Mapping[str, Any]) -> Findings:
        """Run the nest in order on host arrays, and return the findings. Its writes stay, even after a failure."""
        run, given = self._run(scalars, arrays, self._axes)
        run.run_all()
        return self._findings(given, run.finish(), run.failure(), run.trips, self._axes)

    def begin(self, scalars: Mapping[str, Any], arrays: Mapping[str, Any]) -> Findings:
        """Run the nest from its beginning until a dependence is seen, or so many steps are taken; return the same.

        How far that is follows from the arguments alone. Its writes may be of no use.
        """
        assert self._most is not None
        axes = self._bounded()
        run, given = self._run(scalars, arrays, axes)
        count, records = given[self._made.steps or ""], given[self._made.records]
        failure, done, size, is_lost = None, 0, 1, False
        seen = records[COUNT :: self._made.n_words]  # not 0 where a dependence is recorded
        while done < run.trips and failure is None and count[0] < self._most and not seen.any():
            before, end = records.copy(), min(done + size, run.trips)
            run.run(done, end)
            is_lost = bool(count[0] > _LEEWAY * self._most)
            if is_lost:  # loops of it have ended before their time
                records[:] = before
                break
            failure, done = run.failure(), end
            size = max(1, min(done, int((self._most - count[0]) * done / max(count[0], 1))))
        is_whole = failure is not None or (done == run.trips and axes == self._axes and not is_lost)
        results = run.finish() if is_whole else {}
        return self._findings(given, results, failure, done, axes, is_whole=is_whole)

    def _bounded(self) -> Sequence[Trips]:
        """Return the first iterations of the nest, so few that a trip of the outermost loop is short."""
        per_iteration = 1 + NOTE * max(len(self._made.numbers), 1)
        room, axes = (self._most or 0) // per_iteration, list(self._axes)
        for number in range(len(axes) - 1, 0, -1):
            trips = min(axes[number].trips, max(room, 1))
            is_cut = trips < axes[number].trips
            axes[number] = replace(axes[number], trips=trips)
            room = 1 if is_cut else room // max(trips, 1)
        if axes != list(self._axes):
            axes[0] = replace(axes[0], trips=min(axes[0].trips, max(room, 1)))
        return axes if axes != list(self._axes) else self._axes

    def _run(
        self, scalars: Mapping[str, Any], arrays: Mapping[str, Any], axes: Sequence[Trips]
    ) -> tuple[OrderedRun, dict[str, Any]]:
        """Return a run that has not begun, and the arrays that it is given besides."""
        made, watched = self._made, self._made.watched
        given: dict[str, Any] = {
            made.cells: np.zeros(max(made.n_cells * made.n_in_cell, 1), made.dtype),
            made.records: np.zeros(max(3 * len(made.arrays), 1) * made.n_words, np.int64),
            made.exposed: np.zeros(max(len(made.arrays), 1), np.int64),
        }
        if made.steps is not None:
            given[made.steps] = np.zeros(1, np.int64)
        numbers = {name: np.int64(value) for name, value in watched.given.items()}
        of = watched.typed, watched.nest, watched.modes, {**scalars, **numbers}, {**arrays, **given}, axes
        run = made_run(*of, self._words, is_shared=self._is_shared, known=self._form)
        self._form = run.form
        return run, given

    def _findings(
        self,
        given: Mapping[str, Any],
        results: dict[str, Any],
        failure: Exception | None,
        n_trips: int,
        axes: Sequence[Trips],
        *,
        is_whole: bool = True,
    ) -> Findings:
        made, n_iterations = self._made, n_trips * math.prod(axis.trips for axis in axes[1:])
        exposed = frozenset(name for name, mark in zip(made.arrays, given[made.exposed], strict=False) if mark)
        found = _found(made, given[made.records].tolist(), self._trips)
        n_trips = n_trips if axes[1:] == self._axes[1:] else 0
        return Findings(found, exposed, results, failure, n_trips, n_iterations, is_whole)


def observe(
    typed: Typed,
    nest: Nest,
    modes: Mapping[int, Mode],
    observed: frozenset[int],
    scalars: Mapping[str, Any],
    arrays: Mapping[str, Any],
    views: Mapping[str, View],
    axes: Sequence[Trips],
    words: LoopWords = _WORDS,
    of: Needed | None = None,
) -> Findings:
    """Run a nest in order once, and return the findings; see `NestObserver`."""
    return NestObserver(typed, nest, modes, observed, views, axes, words, of).observe(scalars, arrays)


def advance(
    typed: Typed,
    nest: Nest,
    modes: Mapping[int, Mode],
    scalars: Mapping[str, Any],
    arrays: Mapping[str, Any],
    views: Mapping[str, View],
    axes: Sequence[Trips],
) -> None:
    """Run a nest in order on arrays of the host; raise the error that it finds."""
    is_shared = any(len(group) > 1 for group in groups_of(views))
    run = made_run(typed, nest, modes, scalars, arrays, axes, _WORDS, is_shared=is_shared)
    run.run_all()
    run.finish()
    failure = run.failure()
    if failure is not None:
        raise failure


def copies_of(
    nest: Nest, arrays: Mapping[str, Any], views: Mapping[str, View], *, are_blank: bool = False
) -> dict[str, Any]:
    """Return arrays that a nest may run on: copies of those that it changes, filled with zeros if ``are_blank``.

    The copies share memory as the arrays do; ``views`` tells where those lie.
    """
    changed = changed_by(nest)
    given = {name: on_host(array) for name, array in arrays.items()}
    for names in groups_of(views):
        if changed.isdisjoint(names):
            continue
        for name, made in arrays_like(names, views, given, are_blank=are_blank).items():
            if not are_blank:
                made[...] = given[name]
            given[name] = made
    return given


def arrays_like(
    names: Iterable[str], views: Mapping[str, View], arrays: Mapping[str, Any], *, are_blank: bool = False
) -> dict[str, np.ndarray[Any, Any]]:
    """Return new host arrays, of the types of ``arrays``, that share memory as their views do."""
    spans = [span for name in names if (span := views[name].span) is not None]
    low = min((first for first, _ in spans), default=0)
    memory = (np.zeros if are_blank else np.empty)(
        max((last for _, last in spans), default=low - 1) + 1 - low, np.uint8
    )
    made = {}
    for name in names:
        view, dtype = views[name], arrays[name].dtype
        if view.span is None:  # it has no elements
            made[name] = np.empty(view.extents, dtype)
        else:
            made[name] = np.ndarray(view.extents, dtype, memory, view.address - low, view.strides)
    return made


def changed_by(nest: Nest) -> set[str]:
    """Return the arrays that a nest writes to."""
    changed = {node.array for node in walk(*nest.body) if isinstance(node, ir.Store | ir.Atomic)}
    changed |= {name for name, word in nest.privates.items() if word == "lastprivate"}
    return changed | {item.name for item in nest.reductions}


def made_run(
    typed: Typed,
    nest: Nest,
    modes: Mapping[int, Mode],
    scalars: Mapping[str, Any],
    arrays: Mapping[str, Any],
    axes: Sequence[Trips],
    words: LoopWords,
    *,
    is_shared: bool,
    known: OrderedForm | None = None,
) -> OrderedRun:
    """Return a run of a nest in order on arrays of the host, by a form that is known if that has the same variant."""
    views = {
        name: View(array.shape, array.strides, array.itemsize, address_of(array)) for name, array in arrays.items()
    }
    variant = CVariant(
        modes=tuple(sorted(modes.items())),
        layouts=tuple((name, layout_of(view)) for name, view in views.items()),
        is_restricted=not is_shared,
        unit_steps=tuple((number, axis.step) for number, axis in enumerate(axes) if abs(axis.step) == 1),
        is_ordered=True,
    )
    form = known if known is not None and known.variant == variant else OrderedForm(typed, nest, variant, words)
    fields = form.kernel.fields if form.is_compiled else ()
    blank = Blank(form, fields, scalars, (), views, axes)
    return OrderedRun(blank, arrays, {name: view.address for name, view in views.items()}, {})


def _found(made: Profiled, records: Sequence[int], trips: Sequence[int]) -> dict[tuple[str, DependenceKind], Observed]:
    """Return the dependences that the records describe."""
    found: dict[tuple[str, DependenceKind], Observed] = {}
    for number, array in enumerate(made.arrays):
        n_dimensions = made.watched.typed.arrays[array].ndim
        for k, kind in enumerate(KINDS):
            first = (3 * number + k) * made.n_words
            record = records[first : first + made.n_words]
            if not record[COUNT]:
                continue
            visits = [divmod(record[word], 1 << made.access_bits) for word in (SOURCE, SINK)]
            example = Example(
                (trips_at(visits[0][0] - 1, trips), trips_at(visits[1][0] - 1, trips)),
                (made.numbers[visits[0][1]], made.numbers[visits[1][1]]),
                tuple(record[HEAD : HEAD + n_dimensions]),
            )
            found[array, kind] = Observed(array, kind, record[COUNT], record[LEAST], record[GREATEST], example)
    return found
