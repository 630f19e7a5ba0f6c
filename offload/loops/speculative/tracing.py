"""One run of a plain function by CPython that sees which iterations of which loops depend on each other.

The text is compiled with calls around loops, and with arrays that note each access of an element. For each element the
trace keeps its last write, and of the reads since then the latest for each loop around. Two accesses in different
iterations of a loop, one of them a write, are a dependence of the outermost such loop, as in `watched.profiling`.
"""

from __future__ import annotations

import ast
import copy
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from offload.loops.front.outlines import blocks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import FunctionType

    from offload.loops.front.outlines import LoopSite
    from offload.loops.front.source import FunctionSource
    from offload.loops.proofs.independence import DependenceKind

# The loops around, outermost first: the loop's number, the number of its entry, and the trip.
Position: TypeAlias = "tuple[tuple[int, int, int], ...]"

_LOOP: Final = "offload_loop"
_TAKEN: Final = "offload_taken"


class TracedAccess(NamedTuple):
    """An access of an element."""

    position: Position
    line: int
    array: str  # the name


@dataclass(slots=True)
class TracedDependence:
    """The dependences of one kind, by one array, of a loop."""

    count: int
    min_distance: int
    max_distance: int
    iterations: tuple[Any, Any]  # of the first: the values of the loop's variable
    element: tuple[int, ...]
    lines: tuple[int, int]


class LoopTrace:
    """The findings about one loop."""

    def __init__(self) -> None:
        self.entries = 0  # how often it has begun
        self.iterations = 0
        self.found: dict[tuple[str, DependenceKind], TracedDependence] = {}  # by array and kind
        self.exposed: set[str] = set()  # arrays of which an iteration reads an element before it writes it
        self.partial: set[str] = set()  # arrays of which the last iteration has not written all that others have
        self.read_after: set[str] = set()  # arrays of which elements are read after an entry that has written them


class Trace:
    """The findings of runs."""

    def __init__(self, n_loops: int, entered: Callable[[int, range | None, Mapping[str, Any]], None]) -> None:
        self.loops = [LoopTrace() for _ in range(n_loops)]
        self._entered = entered  # called with the variables when a loop begins
        self._now: Position = ()
        # by the address of an element: its last write, and reads since then
        self._cells: dict[int, tuple[TracedAccess | None, list[TracedAccess]]] = {}
        self._ranges: dict[int, Iterable[Any]] = {}  # of the entries
        self._written: list[set[int]] = [set()]  # addresses that the entries around have written, outermost first
        self._kept: list[Any] = []  # arrays: the memory of one that is gone would be another's

    def clear(self) -> None:
        """Forget the elements, before another run."""
        self._cells.clear()
        self._ranges.clear()
        self._kept.clear()
        self._written = [set()]
        self._now = ()

    def loop(self, number: int, iterable: Iterable[Any], variables: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the items of a loop, and note its entry and its iterations."""
        of, around = self.loops[number], self._now
        entry = len(self._ranges)
        self._ranges[entry] = iterable
        of.entries += 1
        self._entered(number, iterable if isinstance(iterable, range) else None, variables)
        self._written.append(set())
        try:
            for trip, item in enumerate(iterable):
                of.iterations += 1
                self._now = (*around, (number, entry, trip))
                yield item
        finally:
            if len(self._now) > len(around):
                self._left(of, len(around), self._now[len(around)])
            self._now = around
            written = self._written.pop()
            self._written[-1] |= written

    def _left(self, of: LoopTrace, depth: int, last: tuple[int, int, int]) -> None:
        """Note the arrays of which the last iteration of an entry has not written all elements."""
        for address in self._written[-1]:
            written = self._cells[address][0]
            assert written is not None
            if written.position[depth] != last:
                of.partial.add(written.array)

    def taken(self, name: str, value: Any) -> Any:
        """Return the value of a variable, an array as one that notes its accesses."""
        if value.__class__ is np.ndarray:
            value = value.view(TracedArray)
            value.notes, value.name = self, name
            self._kept.append(value)
        elif isinstance(value, TracedArray) and value.flags.owndata:
            value.notes, value.name = self, name
            self._kept.append(value)
        return value

    # -- accesses

    def read(self, array: TracedArray, element: tuple[int, ...], line: int) -> None:
        """Note a read of an element."""
        now, address = self._now, array.address_of(element)
        written, reads = self._cells.get(address) or (None, [])
        n_common = 0
        if written is not None:
            n_common = _common(written.position, now)
            self._note("flow", array, element, written, n_common, line)
            if n_common < len(written.position):
                before = written.position[n_common:]
                is_same = n_common < len(now) and before[0][:2] == now[n_common][:2]
                for number, _, _ in before[1:] if is_same else before:
                    self.loops[number].read_after |= {array.name, written.array}
        for number, _, _ in now[n_common:]:
            self.loops[number].exposed.add(array.name)
        if reads and reads[-1].position is now:
            return
        latest = {_common(one.position, now): one for one in reads}
        latest[len(now) + 1] = TracedAccess(now, line, array.name)
        self._cells[address] = written, list(latest.values())

    def write(self, array: TracedArray, element: tuple[int, ...], line: int) -> None:
        """Note a write of an element."""
        now, address = self._now, array.address_of(element)
        written, reads = self._cells.get(address) or (None, [])
        for one in reads:
            self._note("anti", array, element, one, _common(one.position, now), line)
            if one.array != array.name:  # what is read by another name is no iteration's own
                for number, _, _ in now:
                    self.loops[number].exposed.add(array.name)
        if written is not None:
            self._note("output", array, element, written, _common(written.position, now), line)
        self._cells[address] = TracedAccess(now, line, array.name), []
        self._written[-1].add(address)

    def _note(
        self,
        kind: DependenceKind,
        array: TracedArray,
        element: tuple[int, ...],
        source: TracedAccess,
        n_common: int,
        line: int,
    ) -> None:
        """Note a dependence, if both accesses are in iterations of one entry of a loop."""
        before, now = source.position, self._now
        if n_common >= min(len(before), len(now)) or before[n_common][:2] != now[n_common][:2]:
            return
        (number, entry, first), (_, _, second) = before[n_common], now[n_common]
        found, distance = self.loops[number].found, second - first
        known = found.get((array.name, kind))
        if known is None:
            trips = self._value(entry, first), self._value(entry, second)
            lines = source.line, line
            found[array.name, kind] = TracedDependence(1, distance, distance, trips, element, lines)
            return
        known.count += 1
        known.min_distance = min(known.min_distance, distance)
        known.max_distance = max(known.max_distance, distance)

    def _value(self, entry: int, trip: int) -> Any:
        """Return the value of a loop's variable in a trip."""
        counted = self._ranges[entry]
        return counted[trip] if isinstance(counted, range) else trip


def _common(one: Position, other: Position) -> int:
    """Return how many loops around two accesses are in the same iteration."""
    n = 0
    for mine, others in zip(one, other, strict=False):
        if mine != others:
            break
        n += 1
    return n


class TracedArray(np.ndarray[Any, Any]):
    """An array that notes the accesses of its elements."""

    notes: Trace | None  # takes note of accesses; None: nobody does
    name: str  # of the variable that got it first
    _address: int | None

    def __array_finalize__(self, made_of: Any) -> None:
        self.notes, self.name = getattr(made_of, "notes", None), getattr(made_of, "name", "")
        self._address = None

    def __getitem__(self, key: Any) -> Any:
        value = np.ndarray.__getitem__(self, key)
        if self.notes is not None and (element := self._element(key)) is not None:
            self.notes.read(self, element, sys._getframe(1).f_lineno)  # noqa: SLF001  # the program's frame
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        np.ndarray.__setitem__(self, key, value)
        if self.notes is not None and (element := self._element(key)) is not None:
            self.notes.write(self, element, sys._getframe(1).f_lineno)  # noqa: SLF001  # as above

    def _element(self, key: Any) -> tuple[int, ...] | None:
        """Return the indices of an element, none negative; None if a key stands for something else."""
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) != self.ndim or not all(isinstance(one, (int, np.integer)) for one in keys):
            return None
        return tuple([int(one) % extent for one, extent in zip(keys, self.shape, strict=True)])

    def address_of(self, element: tuple[int, ...]) -> int:
        """Return the address of an element."""
        if self._address is None:
            self._address = int(self.__array_interface__["data"][0])
        return self._address + sum([place * stride for place, stride in zip(element, self.strides, strict=True)])


# -- the text --------------------------------------------------------------------------------------------


def traced(
    source: FunctionSource, sites: Iterable[LoopSite], trace: Trace, outside: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return a function that does the same, and notes its loops and accesses in a trace."""
    definition = copy.deepcopy(source.definition)
    definition.decorator_list = []
    by_place = {(site.node.lineno, site.node.col_offset): site.number for site in sites}
    definition.body = _block(definition.body, by_place)
    ast.fix_missing_locations(definition)
    names: dict[str, Any] = {**outside, _LOOP: trace.loop, _TAKEN: trace.taken}
    code = compile(ast.Module([definition], []), source.file, "exec", dont_inherit=True)
    exec(code, names)  # noqa: S102  # the program's own text
    function: FunctionType = names[definition.name]
    function.__defaults__, function.__kwdefaults__ = source.function.__defaults__, source.function.__kwdefaults__
    return function


def _block(statements: list[ast.stmt], by_place: Mapping[tuple[int, int], int]) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for node in statements:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for block in blocks_of(node):
                block[:] = _block(block, by_place)
        if isinstance(node, ast.For):
            number = ast.Constant(by_place[node.lineno, node.col_offset])
            node.iter = _called(_LOOP, node.iter, number, node.iter, _called("locals", node.iter))
        # Variables of enclosing functions are globals here.
        found.append(ast.copy_location(ast.Global(node.names), node) if isinstance(node, ast.Nonlocal) else node)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and not isinstance(node.value, (ast.Constant, type(None))):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
            for name in dict.fromkeys(part.id for part in parts if isinstance(part.ctx, ast.Store)):
                value = _called(_TAKEN, node, ast.Constant(name), ast.Name(name, ast.Load()))
                found.append(ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), node))
    return found


def _called(name: str, place: ast.AST, *arguments: ast.expr) -> ast.Call:
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), list(arguments), []), place)
