"""One run in order that sees which iterations depend on each other.

What cannot be proved of a loop can be seen for certain arguments: the nest runs in order, compiled for the host, and
takes note of its accesses (`offload.loops.profiling`). `check=True` runs it on copies; a profile is made of such runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offload.arrays.items import address_of
from offload.loops import ir
from offload.loops.arguments import Blank, on_host
from offload.loops.cells import cells_of, groups_of
from offload.loops.clauses import LoopWords
from offload.loops.emit_c import CVariant
from offload.loops.findings import Example, Findings, Observed
from offload.loops.nodes import walk
from offload.loops.numbers import View
from offload.loops.ordered_form import OrderedForm, OrderedRun
from offload.loops.plan import layout_of
from offload.loops.profiling import (
    COUNT,
    GREATEST,
    HEAD,
    KINDS,
    LEAST,
    SINK,
    SOURCE,
    WORDS,
    Profiled,
    profiled,
)
from offload.loops.runs import options_of
from offload.loops.uses import numbered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload.loops.findings import Trip
    from offload.loops.independence import DependenceKind
    from offload.loops.ir import Mode, Nest, Typed
    from offload.loops.needed import Needed
    from offload.loops.numbers import Trips

_WORDS: Final = LoopWords()


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
    """Run a nest in order, and return what has been seen. What it writes has been written, be there a failure or not.

    Parameters
    ----------
    typed : Typed
    nest : Nest
        One of its nests.
    modes : mapping of int to str
        How accesses are checked, by their number.
    observed : frozenset of int
        The loads and stores, by `at`, that count.
    scalars, axes
        As a run is given them.
    arrays : mapping of str to array
        As the host has them.
    views : mapping of str to View
        Where they lie, or those that they are copies of: by these it is known which share memory.
    words : LoopWords
        For arithmetic.
    of : Needed, optional
        What a log needs of these accesses: no more is noted, in less time. Whether anything is found is the same; how
        much, and who reads what it has not written, is not to be asked for.
    """
    written = _changed(nest)
    names = {node.array for at, node in numbered(nest).items() if at in observed}
    of_names = {name: view for name, view in views.items() if name in names}
    cells = cells_of(of_names, written, None if of is None else of.left_out)
    trips = [axis.trips for axis in axes]
    if of is None:
        made = profiled(typed, nest, modes, cells, observed, trips)
    else:
        modes = {at: modes.get(before, "check") for at, before in of.originals.items()}
        made = profiled(typed, of.nest, modes, cells, of.loads | of.stores, trips, of.once)
        made = made._replace(numbers=tuple([of.originals[at] for at in made.numbers]))
    given = {
        made.cells: np.zeros(max(made.n_cells, 1) * WORDS, made.dtype),
        made.records: np.zeros(max(3 * len(made.arrays), 1) * made.n_words, np.int64),
        made.exposed: np.zeros(max(len(made.arrays), 1), np.int64),
    }
    watched = made.watched
    numbers = {name: np.int64(value) for name, value in watched.given.items()}
    is_shared = any(len(group) > 1 for group in groups_of(views))
    results, failure = _run(
        watched.typed,
        watched.nest,
        watched.modes,
        {**scalars, **numbers},
        {**arrays, **given},
        axes,
        words,
        is_shared=is_shared,
    )
    exposed = frozenset(name for name, mark in zip(made.arrays, given[made.exposed], strict=False) if mark)
    return Findings(_found(made, given[made.records].tolist(), trips), exposed, results, failure)


def advance(
    typed: Typed,
    nest: Nest,
    modes: Mapping[int, Mode],
    scalars: Mapping[str, Any],
    arrays: Mapping[str, Any],
    views: Mapping[str, View],
    axes: Sequence[Trips],
) -> None:
    """Run a nest in order on arrays of the host; raise what it finds wrong."""
    is_shared = any(len(group) > 1 for group in groups_of(views))
    _, failure = _run(typed, nest, modes, scalars, arrays, axes, _WORDS, is_shared=is_shared)
    if failure is not None:
        raise failure


def copies_of(nest: Nest, arrays: Mapping[str, Any], views: Mapping[str, View]) -> dict[str, Any]:
    """Return what a nest may run on, arrays that it does not change as they are; copies share memory as the arrays do.

    Parameters
    ----------
    arrays : mapping of str to array
    views : mapping of str to View
        Where they lie, or those that they are copies of.
    """
    changed = _changed(nest)
    given = {name: on_host(array) for name, array in arrays.items()}
    for names in groups_of(views):
        spans = [span for name in names if (span := views[name].span) is not None]
        if not spans or changed.isdisjoint(names):
            continue
        low = min(first for first, _ in spans)
        memory = np.empty(max(last for _, last in spans) + 1 - low, np.uint8)
        for name in names:
            view, array = views[name], given[name]
            given[name] = np.ndarray(view.extents, array.dtype, memory, view.address - low, view.strides)
            given[name][...] = array
    return given


def _changed(nest: Nest) -> set[str]:
    """Return the arrays that a nest writes to."""
    changed = {node.array for node in walk(*nest.body) if isinstance(node, ir.Store | ir.Atomic)}
    changed |= {name for name, word in nest.privates.items() if word == "lastprivate"}
    return changed | {item.name for item in nest.reductions}


def _run(
    typed: Typed,
    nest: Nest,
    modes: Mapping[int, Mode],
    scalars: Mapping[str, Any],
    arrays: Mapping[str, Any],
    axes: Sequence[Trips],
    words: LoopWords,
    *,
    is_shared: bool,
) -> tuple[dict[str, Any], Exception | None]:
    """Run a nest in order on arrays of the host; return the scalars that come out, and what was wrong."""
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
    form = OrderedForm(typed, nest, variant, options_of(words))
    fields = form.kernel.fields if form.is_compiled else ()
    blank = Blank(form, fields, scalars, (), views, axes)
    run = OrderedRun(blank, arrays, {name: view.address for name, view in views.items()}, {})
    run.run_all()
    return run.finish(), run.failure()


def _found(made: Profiled, records: Sequence[int], trips: Sequence[int]) -> dict[tuple[str, DependenceKind], Observed]:
    """Return what the records say."""
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
                (_trips(visits[0][0] - 1, trips), _trips(visits[1][0] - 1, trips)),
                (made.numbers[visits[0][1]], made.numbers[visits[1][1]]),
                tuple(record[HEAD : HEAD + n_dimensions]),
            )
            found[array, kind] = Observed(array, kind, record[COUNT], record[LEAST], record[GREATEST], example)
    return found


def _trips(number: int, trips: Sequence[int]) -> Trip:
    """Return the trips of the axes in an iteration of a serial loop."""
    found: list[int] = []
    for extent in reversed(trips):
        number, trip = divmod(number, extent)
        found.insert(0, trip)
    return tuple(found)
