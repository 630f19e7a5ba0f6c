"""One run in order, on copies, that sees which iterations depend on each other.

Theory of operation
-------------------
What cannot be proved of a loop can be seen for certain arguments. The nest runs in order in its Python form, whose
loads and stores ask an `Observer`. Arrays that the nest changes are copies, and so is what shares memory with them: in
the copies it shares it again. For each element, that is for each of its bytes, the observer knows the last writer, the
last reader, and the last reader other than that one. From these follow, for each access, the events between iterations:
a read whose last writer is another iteration (flow), a write of what another has read since its last write (anti, to
the latest of them), a write whose last writer is another (output). The second reader is needed where an iteration
reads, then writes, what one before it has read. "Since" is a matter of iterations: the one that wrote last may have
read before or after.

Bytes are counted in cells: as many as divide the sizes, strides and distances of all views of one memory, which is an
element where they have one type. Cells that nobody touches cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from offload.loops import ir
from offload.loops.arguments import arguments_of, on_host
from offload.loops.nodes import walk
from offload.loops.python_form import combine, places, python_form
from offload.loops.reports import HEAD, failure_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from offload.loops.independence import DependenceKind
    from offload.loops.ir import Mode
    from offload.loops.numbers import Trips, View

    Trip = tuple[int, ...]
    Visit = tuple[Trip, int]  # an iteration, by its trips, and the access that it carries out


class Example(NamedTuple):
    """Two iterations that depend on each other, the one that comes first first.

    Attributes
    ----------
    trips : tuple of tuple of int
        Of the axes.
    accesses : tuple of int
        By `at`.
    element : tuple of int
        Its indices, as the later access has them; none is negative.
    """

    trips: tuple[Trip, Trip]
    accesses: tuple[int, int]
    element: tuple[int, ...]


@dataclass(slots=True)
class Observed:
    """What has been seen of one kind of dependence, by one array.

    Attributes
    ----------
    count : int
        Accesses that depend on another iteration so.
    min_distance, max_distance : int
        Between the two iterations, as a serial loop counts them.
    example : Example
        The first.
    """

    array: str
    kind: DependenceKind
    count: int
    min_distance: int
    max_distance: int
    example: Example


class Observer:
    """What the observed accesses of a nest do, in the order in which they do it.

    Parameters
    ----------
    arrays : mapping of str to array
        What the nest is given.
    grains : mapping of str to int
        Bytes of a cell of each.
    trips : sequence of int
        Of each axis.

    Attributes
    ----------
    found : dict of (str, str) to Observed
        By array and kind.
    exposed : set of str
        Arrays of which an iteration reads an element that it has not written before.
    """

    def __init__(self, arrays: Mapping[str, Any], grains: Mapping[str, int], trips: Sequence[int]) -> None:
        self._arrays = arrays
        self._layouts = {
            name: (array.__array_interface__["data"][0], array.strides, array.itemsize, grains[name])
            for name, array in arrays.items()
        }
        self._trips = tuple(trips)
        self._cells: dict[int, _Cell] = {}
        self.found: dict[tuple[str, DependenceKind], Observed] = {}
        self.exposed: set[str] = set()

    def load(self, name: str, indices: tuple[Any, ...], at: int, trips: Trip, report: Any) -> Any:
        """Return an element, for the nest's text."""
        array = self._arrays[name]
        element = _wrapped(array, places(array, indices, at, trips, report))
        me, writers = (trips, at), []
        for cell in self._cells_of(name, element):
            if cell.writer is None or cell.writer[0] != trips:
                self.exposed.add(name)
            if cell.writer is not None and cell.writer[0] != trips:
                writers.append(cell.writer)
            if cell.reader is not None and cell.reader[0] != trips:
                cell.other = cell.reader
            cell.reader = me
        self._met("flow", name, writers, me, element)
        return array[element]

    def store(self, name: str, indices: tuple[Any, ...], value: Any, at: int, trips: Trip, report: Any) -> None:
        """Write an element, for the nest's text."""
        array = self._arrays[name]
        element = _wrapped(array, places(array, indices, at, trips, report))
        me, readers, writers = (trips, at), [], []
        for cell in self._cells_of(name, element):
            reader = cell.other if cell.reader is not None and cell.reader[0] == trips else cell.reader
            if reader is not None and (cell.writer is None or cell.writer[0] <= reader[0]):
                readers.append(reader)
            if cell.writer is not None and cell.writer[0] != trips:
                writers.append(cell.writer)
            cell.writer = me
        self._met("anti", name, readers, me, element)
        self._met("output", name, writers, me, element)
        array[element] = value

    def _cells_of(self, name: str, element: tuple[int, ...]) -> Iterator[_Cell]:
        address, strides, itemsize, grain = self._layouts[name]
        for index, stride in zip(element, strides, strict=True):
            address += index * stride
        for place in range(address, address + itemsize, grain):
            cell = self._cells.get(place)
            if cell is None:
                cell = self._cells[place] = _Cell()
            yield cell

    def _met(
        self, kind: DependenceKind, name: str, sources: Sequence[Visit], sink: Visit, element: tuple[int, ...]
    ) -> None:
        """Count an access that depends on those which other iterations have carried out; on the latest of them."""
        if not sources:
            return
        source = max(sources)
        distance = self._number(sink[0]) - self._number(source[0])
        seen = self.found.get((name, kind))
        if seen is None:
            example = Example((source[0], sink[0]), (source[1], sink[1]), element)
            self.found[name, kind] = Observed(name, kind, 1, distance, distance, example)
            return
        seen.count += 1
        seen.min_distance = min(seen.min_distance, distance)
        seen.max_distance = max(seen.max_distance, distance)

    def _number(self, trips: Trip) -> int:
        """Return which iteration of a serial loop it is."""
        number = 0
        for trip, extent in zip(trips, self._trips, strict=True):
            number = number * extent + trip
        return number


@dataclass(slots=True)
class _Cell:
    """Who has written some bytes last, who has read them last, and who before that, of other iterations."""

    writer: Visit | None = None
    reader: Visit | None = None
    other: Visit | None = None


def observe(
    typed: ir.Typed,
    nest: ir.Nest,
    modes: Mapping[int, Mode],
    observed: frozenset[int],
    scalars: Mapping[str, Any],
    arrays: Mapping[str, Any],
    views: Mapping[str, View],
    axes: Sequence[Trips],
) -> Observer:
    """Run a nest in order, on copies, and return what has been seen.

    Parameters
    ----------
    typed : Typed
    nest : Nest
        One of its nests.
    modes : mapping of int to str
        How accesses are checked, by their number.
    observed : frozenset of int
        The loads and stores, by `at`, that count.
    scalars, arrays, views, axes
        As a run is given them.

    Raises
    ------
    IndexError, ZeroDivisionError, AssertionError, ValueError
        What the run, as far as it came, has found wrong. Nothing has changed.
    """
    copies, grains = _copies(nest, arrays, views)
    observer = Observer(copies, grains, [axis.trips for axis in axes])
    report = np.zeros(HEAD + len(axes), np.int64)
    partials = np.zeros((1, len(nest.reductions) + len(nest.last)), np.uint64)
    arguments = {**arguments_of(scalars, copies, axes), "observer": observer}
    python_form(typed, nest, modes, observed)(arguments, 0, axes[0].trips, 0, partials, report)
    failure = failure_of(nest, report.tolist(), axes, {name: view.extents for name, view in views.items()})
    if failure is not None:
        raise failure
    return observer


def advanced(
    typed: ir.Typed,
    nest: ir.Nest,
    modes: Mapping[int, Mode],
    scalars: Mapping[str, Any],
    arrays: Mapping[str, Any],
    views: Mapping[str, View],
    axes: Sequence[Trips],
) -> dict[str, Any]:
    """Run a nest in order, on copies, and return the arrays as the next nest finds them. Raises as `observe`."""
    copies, _ = _copies(nest, arrays, views)
    report = np.zeros(HEAD + len(axes), np.int64)
    partials = np.zeros((1, len(nest.reductions) + len(nest.last)), np.uint64)
    python_form(typed, nest, modes)(arguments_of(scalars, copies, axes), 0, axes[0].trips, 0, partials, report)
    failure = failure_of(nest, report.tolist(), axes, {name: view.extents for name, view in views.items()})
    if failure is not None:
        raise failure
    for slot, item in enumerate(nest.reductions):
        if item.name in copies:
            element = copies[item.name].reshape(())
            element[...] = combine(item.operator, element[()], partials[:, slot])
    return copies


def _copies(
    nest: ir.Nest, arrays: Mapping[str, Any], views: Mapping[str, View]
) -> tuple[dict[str, Any], dict[str, int]]:
    """Return what a nest may run on, arrays that it does not change as they are; and how many bytes each's cells have.

    Copies share memory as the arrays do.
    """
    changed = {node.array for node in walk(*nest.body) if isinstance(node, ir.Store | ir.Atomic)}
    changed |= {name for name, word in nest.privates.items() if word == "lastprivate"}
    changed |= {item.name for item in nest.reductions}
    given = {name: on_host(array) for name, array in arrays.items()}
    grains = {name: view.itemsize for name, view in views.items()}
    for names in _groups(views):
        spans = [span for name in names if (span := views[name].span) is not None]
        if not spans or changed.isdisjoint(names):
            continue
        low = min(first for first, _ in spans)
        memory = np.empty(max(last for _, last in spans) + 1 - low, np.uint8)
        sizes = [size for name in names for size in (views[name].itemsize, *views[name].strides)]
        grain = gcd(*sizes, *[views[name].address - low for name in names])
        for name in names:
            view, array = views[name], given[name]
            given[name] = np.ndarray(view.extents, array.dtype, memory, view.address - low, view.strides)
            given[name][...] = array
            grains[name] = grain
    return given, grains


def _groups(views: Mapping[str, View]) -> list[list[str]]:
    """Return the names of arrays, those together that share memory, be it by way of others."""
    groups: list[list[str]] = []
    for name, view in views.items():
        together = [group for group in groups if any(view.may_share(views[other]) for other in group)]
        groups = [group for group in groups if group not in together]
        groups.append([*[other for group in together for other in group], name])
    return groups


def _wrapped(array: Any, indices: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple([int(index) % extent for index, extent in zip(indices, array.shape, strict=True)])
