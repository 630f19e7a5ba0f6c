"""How one nest is divided over devices at a launch: the decision of `filter`, and its consequences.

The launcher asks for little: which trips a device goes through, whether the nest runs as it is or with tests
(`guarded`), the numbers of these tests on a device (`fields`), and the data for `footprints` (`division`). The text
of the tested nest is one for all devices, and for all launches of one `key`. `report` is for `explain`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from offload.loops.proofs.meetings import element_of, number_of
from offload.loops.sets.cutting import LEAST, MOST
from offload.loops.sets.footprints import Division, duplicate, owned_along, single
from offload.loops.sets.guards import guarded_body, is_guarded, is_tested
from offload.loops.tree import ir
from offload.loops.tree.text import text_of
from offload.loops.tree.uses import numbered_back

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from offload.data.boxes import Box
    from offload.loops.proofs.demand import Demand, DemandTerm
    from offload.loops.proofs.feeding import Feeding, FlowPoint
    from offload.loops.proofs.numbers import Trips
    from offload.loops.proofs.reach import NestAccesses
    from offload.loops.proofs.storages import LoopStorage
    from offload.loops.sets.cutting import Cutter, Span, Split
    from offload.loops.sets.guards import Bound

FilterMode: TypeAlias = Literal["split", "duplicate", "single"]


@dataclass(frozen=True, slots=True)
class Predicate:
    """The devices that carry out a statement."""

    line: int
    text: str  # `"b[i, j] = …"`
    # An array and the index that a device has to own, of each term; an iteration's block has the name "". None: on
    # every device.
    terms: tuple[tuple[str, str], ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtering:
    """How a nest is divided at a launch."""

    mode: FilterMode  # `"split"`; `"duplicate"`: every device does everything; `"single"`: one device does
    why: str  # in words
    accesses: NestAccesses  # of the nest, each by a number of its own
    feeding: Feeding  # which statement feeds which
    demand: Mapping[int, Demand]  # by the numbers of `feeding`'s points
    storages: Mapping[str, LoopStorage]  # what each array is a part of
    splits: Mapping[str, Split]  # of each storage that is written, and not computed everywhere
    everywhere: frozenset[str]  # the storages that every device computes
    cutter: Cutter  # tells in which trips a device needs what
    # Of trips of the outermost iterator, for each device: in whose order partial results are combined. The device that
    # has the last trip has what it leaves.
    blocks: tuple[Span, ...]
    trips: tuple[Span, ...]  # what each device goes through
    # Whether these trips are all that a device needs, so that the nest runs as it is; else `guarded` does.
    is_cut: bool
    points: tuple[FlowPoint, ...]  # the outermost statements
    originals: Mapping[int, int]  # the numbers, `at`, that the program's accesses have, by those that `accesses` has
    checked: frozenset[int]  # the accesses, by `at`, that may leave their array

    @property
    def predicates(self) -> tuple[Predicate, ...]:
        """The devices that carry out statements, in text order: all writes, and other values that are tested."""
        found: list[Predicate] = []
        for point in self.feeding.points if self.cutter.count else ():
            node, demand = point.statement, self.demand[point.number]
            if is_guarded(node, self.accesses.own) or (demand is not None and is_tested(node)):
                terms = None if demand is None else tuple(sorted(_shown(term) for term in demand))
                found.append(Predicate(node.place.line, _head(node), terms))
        return tuple(found)

    @property
    def division(self) -> Division:
        """The division as `footprints` takes it, with `accesses`."""
        n_devices = len(self.blocks)
        if self.mode == "single":
            return single(self.accesses, n_devices)
        if self.mode == "duplicate":
            return duplicate(self.accesses, n_devices)
        views = self.accesses.launch.views
        owned: dict[str, tuple[Box | None, ...]] = {}
        for array in filter(self._is_divided, self.storages):
            dimension, ranges = self._ranges(array)
            boxes = owned_along(views[array].extents, dimension, ranges)
            owned[array] = tuple([box if box[dimension][0] < box[dimension][1] else None for box in boxes])
        last = [device for device, (begin, end) in enumerate(self.blocks) if begin < end == self.cutter.count]
        return Division(self.trips, owned, not self.is_cut, frozenset(self._own_loads()), last[0] if last else 0)

    def _own_loads(self) -> Iterator[int]:
        """Yield the loads that are needed where a device owns their element, and nowhere else."""
        for access in self.accesses.listed:
            if access.kind != "load" or not self._is_divided(access.array):
                continue
            element = element_of(self.accesses, self.storages, access)
            index, shifts = number_of(*element.dimensions[self.splits[element.storage].dimension])
            demands = [self.demand[user] for user in self.feeding.users.get(access.at, ())]
            if all(
                one and all((t.storage, t.index, t.shifts) == (element.storage, index, shifts) for t in one)
                for one in demands
            ):
                yield access.at

    @property
    def key(self) -> Hashable:
        """The facts that the text of the tested nest follows from, besides the nest itself."""
        tests = [
            None
            if (demand := self.demand[point.number]) is None
            else frozenset((one.array, one.dimension, one.at, one.slice, one.value.low < 0) for one in demand)
            for point in self.feeding.points
        ]
        return self.is_cut, None if self.is_cut else (tuple(tests), self.checked)

    def report(self, devices: Sequence[int]) -> dict[str, Any]:
        """Return the report of it for `explain`; `devices` are their numbers."""
        return {
            "mode": self.mode,
            "why": self.why,
            "devices": list(devices),
            "arrays": {array: self._shown(array) for array in sorted(self.storages) if self._is_divided(array)},
            "predicates": [
                {
                    "line": one.line,
                    "text": one.text,
                    "terms": None if one.terms is None else [list(term) for term in one.terms],
                }
                for one in self.predicates
            ],
        }

    def _is_divided(self, array: str) -> bool:
        written = any(access.array == array and access.kind != "load" for access in self.accesses.listed)
        return written and array in self.storages and self.storages[array].name in self.splits

    def _ranges(self, array: str) -> tuple[int, list[Span]]:
        """Return the dimension in which an array is split, and the range of each device inside of it."""
        dimension = self.splits[self.storages[array].name].dimension
        extent = self.accesses.extents[array][dimension]
        ranges = [self.range_of(array, device) for device in range(len(self.blocks))]
        return dimension, [(min(max(begin, 0), extent), min(max(end, 0), extent)) for begin, end in ranges]

    def _shown(self, array: str) -> dict[str, Any]:
        dimension, ranges = self._ranges(array)
        return {"dimension": dimension, "ranges": [list(span) for span in ranges]}

    def guarded(self, typed: ir.Typed) -> tuple[ir.Typed, ir.Nest, tuple[Bound, ...]]:
        """Return the function and the nest with tests, and the scalars which that nest is given besides."""
        nest = self.accesses.nest
        taken = {*typed.scalars, *typed.arrays, *typed.function.parameters}
        made = guarded_body(self.points, self.demand, self.accesses.own, taken, self.checked)
        tested = replace(nest, body=numbered_back(made.body, self.originals))
        return replace(typed, scalars={**typed.scalars, **made.scalars}), tested, made.bounds

    def fields(self, given: Sequence[Bound], device: int) -> dict[str, int]:
        """Return the values of these scalars on a device, in the indices of each array."""
        return {one.name: self.range_of(one.array, device)[one.is_upper] for one in given}

    def range_of(self, array: str, device: int) -> Span:
        """Return the range that a device owns, in an array's own indices; of the loop's variable if it is ""."""
        if not array:
            return _values_of(self.accesses.launch.axes[0], self.blocks[device])
        storage = self.storages[array]
        found = self.splits[storage.name]
        begin, end = found.ranges[device]
        offset = storage.offsets[found.dimension]
        return max(begin - offset, LEAST), end if end == MOST else end - offset


def _values_of(axis: Trips, block: Span) -> Span:
    """Return the values of a loop's variable in a block of its trips, half-open."""
    begin, end = block
    if begin >= end:
        return 0, 0
    first, last = axis.start + axis.step * begin, axis.start + axis.step * (end - 1)
    return min(first, last), max(first, last) + 1


def _head(node: ir.Statement) -> str:
    """Return a statement as text, without its value."""
    rest = ir.Name(place=node.place, name="…")
    if isinstance(node, ir.Local):
        return f"{node.name} = …"
    assert isinstance(node, (ir.Assign, ir.Store, ir.Atomic, ir.Reduce))
    return text_of(replace(node, value=rest))


def _shown(term: DemandTerm) -> tuple[str, str]:
    return term.array, text_of(term.text)
