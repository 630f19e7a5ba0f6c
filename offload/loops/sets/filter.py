"""One nest on several devices: the statements, reads and elements of each device, for the numbers of a launch.

Every device has a replica of every array. Not the work is divided but the *writes*: a device owns a range of each
array, and carries out its writes and everything that they need (`feeding`). So every owned element gets its serial
value, and a bad split can be wasteful but never wrong. Elements that a device changes without owning them are stale
there.

Every device computes an array whose writes would be repeated more than 1.5 times, or that indices, branches or bounds
follow from. Without anything divided, every device does everything. If a statement uses the old value of an atomic
update, one device does everything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from offload.loops.proofs.affine import AffineForm, IntegerValue
from offload.loops.proofs.bounds import bounds
from offload.loops.proofs.feeding import DemandTerm, demands, feeding, own_term, points_of
from offload.loops.proofs.meetings import LoopStorage, element_of, number_of, storages
from offload.loops.proofs.reach import accesses
from offload.loops.sets.cutting import LEAST, MOST, Cutter, Image, Split, blocks, hull, image_of, split_of
from offload.loops.sets.footprints import Division, duplicate, owned_along, single
from offload.loops.sets.guards import guarded_body, is_guarded, is_tested
from offload.loops.tree import ir
from offload.loops.tree.nodes import names_in, walk
from offload.loops.tree.slices import INT, Slice
from offload.loops.tree.text import text_of
from offload.loops.tree.uses import numbered_apart, numbered_back

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence

    from offload.data.boxes import Box
    from offload.loops.proofs.feeding import Demand, Feeding, FlowPoint
    from offload.loops.proofs.numbers import LaunchNumbers, Trips
    from offload.loops.proofs.reach import NestAccesses
    from offload.loops.sets.cutting import Span
    from offload.loops.sets.guards import Bound


# -- the decision -------------------------------------------------------------------------------------
#
# The launcher asks for little: which trips a device goes through, whether the nest runs as it is or with tests
# (`guarded`), the numbers of these tests on a device (`fields`), and what footprints have to know (`division`). The
# text of the tested nest is one for all devices, and for all launches of one `key`.


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


# -- how it is reached --------------------------------------------------------------------------------


# How often the writes of an array may be carried out in all; beyond, to exchange nothing is cheaper.
MOST_REPEATED: Final = 1.5


def filtered(typed: ir.Typed, nest: ir.Nest, launch: LaunchNumbers, weights: Sequence[int]) -> Filtering:
    """Return how a nest with independent iterations is divided.

    ``weights`` are the devices' shares of the iterations, in proportion; some are not 0.
    """
    nest, originals = numbered_apart(nest)
    contents = {at: launch.contents[origin] for at, origin in originals.items() if origin in launch.contents}
    found = accesses(typed, nest, replace(launch, contents=contents))
    return _Filter(found, originals, tuple(weights)).found()


class _Filter:
    """The state while a nest is divided."""

    def __init__(self, found: NestAccesses, originals: Mapping[int, int], weights: tuple[int, ...]) -> None:
        self.accesses = found  # of the nest, each with a number of its own
        self.originals = originals  # the accesses' numbers in the program, by their own
        self.weights = weights  # shares of the iterations
        # trips of the outermost loop; 0 if there is no iteration
        self.count = found.launch.axes[0].trips if all(axis.trips for axis in found.launch.axes) else 0
        self.blocks = blocks(self.count, weights)  # of the trips, one a device
        # accesses, by `at`, that may leave their array
        self.checked = frozenset(at for at, limit in bounds(found).items() if limit.mode == "check")
        nest = found.nest
        # without those to arrays of the iteration's own
        self.writes = [access for access in found.listed if access.kind != "load" and access.array not in found.own]
        # without private arrays
        self.views = {name: view for name, view in found.launch.views.items() if name not in nest.privates}
        items = {reduction.name for reduction in nest.reductions} & self.views.keys()
        # None where views overlap so that nobody knows what changes
        self.storages = storages(self.views, {access.array for access in self.writes} | items)
        self.points = points_of(nest.body)  # the outermost statements
        self.feeding = feeding(self.points, found, self.storages or {})
        self.block = self._block()  # the term of blocks of iterations

    def found(self) -> Filtering:
        why = self._single()
        if why is not None:
            return self._whole("single", why)
        if self.storages is None:
            return self._whole("duplicate", "arrays overlap by parts of elements, and one of them is written")
        splits = self._splits(self.storages)
        ranges = {name: one.ranges for name, one in splits.items()} | {"": self.blocks}
        everywhere = {access.array for access in self.writes}
        everywhere = {self.storages[array].name for array in everywhere} - splits.keys()
        while True:
            own = self._own(splits.keys() - everywhere, splits)
            demand = demands(self.feeding, own, self.block, self.checked)
            cutter = Cutter(self.count, self._images(demand), ranges)
            repeated = self._repeated(demand, cutter, splits.keys() - everywhere)
            if repeated is None:
                break
            everywhere.add(repeated)
        by_storage = self._by_storage(demand)
        everywhere |= {name for name, all_of in by_storage.items() if all(one is None for one in all_of)}
        wanted = [one for all_of in by_storage.values() for one in all_of]
        wanted += [demand[point.number] for point in self.feeding.points if isinstance(point.statement, ir.Reduce)]
        if self.accesses.nest.last or "lastprivate" in self.accesses.nest.privates.values():
            wanted.append(frozenset({self.block}))
        if self.count and all(one is None for one in wanted):
            return self._whole("duplicate", "every device needs all written elements")
        devices = range(len(self.weights))
        exact = [{cutter.exactly(one, device) for one in wanted} for device in devices]
        is_cut = all(len(spans) == 1 and None not in spans for spans in exact) or not self.count
        if not is_cut:  # also what nobody needs and may fail
            wanted += [demand[point.number] for point in self.feeding.points if demand[point.number]]
        trips = tuple([hull(cutter.needed(one, device) for one in wanted) for device in devices])
        return self._made(
            "split",
            "each device runs its own iterations" if is_cut else "each device tests what it owns",
            demand=demand,
            splits={name: one for name, one in splits.items() if name not in everywhere},
            everywhere=frozenset(everywhere),
            cutter=cutter,
            trips=trips,
            is_cut=is_cut,
        )

    def _made(self, mode: FilterMode, why: str, **known: Any) -> Filtering:
        return Filtering(
            mode=mode,
            why=why,
            accesses=self.accesses,
            feeding=self.feeding,
            storages=self.storages
            or {n: LoopStorage(n, v.extents, (0,) * len(v.extents)) for n, v in self.views.items()},
            blocks=self.blocks,
            points=self.points,
            originals=self.originals,
            checked=self.checked,
            **known,
        )

    def _whole(self, mode: FilterMode, why: str) -> Filtering:
        """Return that devices do all or nothing."""
        everything = (0, self.count)
        names = {name if self.storages is None else self.storages[name].name for name in self._written()}
        n_devices = len(self.weights)
        trips = (everything,) * n_devices if mode == "duplicate" else (everything, *((0, 0),) * (n_devices - 1))
        return self._made(
            mode,
            why,
            demand={point.number: None for point in self.feeding.points},
            splits={},
            everywhere=frozenset(names),
            cutter=Cutter(self.count, {}, {}),
            trips=trips,
            is_cut=True,
        )

    def _written(self) -> set[str]:
        return {access.array for access in self.writes}

    def _single(self) -> str | None:
        """Return why one device has to do all, if it has."""
        body = self.accesses.nest.body
        read = names_in(*body) | {*self.accesses.nest.last}
        for node in walk(*body):
            if isinstance(node, ir.Atomic) and node.result is not None and node.result in read:
                text = text_of(replace(node, result=None))
                return f"the old value of {text}, line {node.place.line}, is used {_use_of(node.result, body)}"
        nest = self.accesses.nest
        loaded = {access.array: access for access in reversed(self.accesses.listed) if access.kind == "load"}
        for access in self.writes:
            if access.kind == "atomic" and access.array in loaded:
                lines_of = f"line {access.place.line}, and read, line {loaded[access.array].place.line}"
                return f"{access.array} is updated by atomic steps, {lines_of}"
        if len(self.weights) == 1:
            return "one device"
        if self.count and not (self.writes or nest.reductions or nest.last or "lastprivate" in nest.privates.values()):
            return "nothing is written"
        return None

    def _block(self) -> DemandTerm:
        """Return the term of blocks of iterations: the outermost iterator's variable is in the device's block."""
        axis = self.accesses.nest.axes[0]
        variable = ir.Name(place=axis.place, name=axis.variable, type=INT)
        value = IntegerValue(AffineForm(), 0, 0)
        slice_ = Slice(variable, frozenset())
        return DemandTerm("", AffineForm(0, ((0, 1),)), (0,), -1, "", -1, value, variable, slice_, is_aligned=True)

    def _splits(self, known: Mapping[str, LoopStorage]) -> dict[str, Split]:
        """Return how each storage is divided that is written, and has a dimension."""
        found = {}
        for name in dict.fromkeys(known[access.array].name for access in self.writes):
            writes = [access for access in self.writes if known[access.array].name == name]
            storage = next(one for one in known.values() if one.name == name)
            if storage.extents:
                found[name] = split_of(self.accesses, storage, writes, known, self.weights)
        return found

    def _own(self, divided: Collection[str], splits: Mapping[str, Split]) -> dict[int, DemandTerm | None]:
        """Return the terms of writes, by the numbers of points."""
        assert self.storages is not None
        listed = {access.at: access for access in self.writes}
        found: dict[int, DemandTerm | None] = {}
        for point in self.feeding.points:
            node = point.statement
            if not isinstance(node, (ir.Store, ir.Atomic)) or node.at not in listed:
                continue
            storage = self.storages[node.array].name
            found[point.number] = None
            if storage in divided:
                access = listed[node.at]
                of = splits[storage]
                found[point.number] = own_term(
                    self.accesses, self.storages, self.feeding, access, node, of.dimension, is_aligned=of.is_aligned
                )
        return found

    def _images(self, demand: Mapping[int, Demand]) -> dict[DemandTerm, Image | None]:
        terms = {term for one in demand.values() for term in one or ()}
        return {
            term: Image(1, 0, 0, is_one=True)
            if term.is_block
            else image_of(self.accesses, replace(term.value, form=term.index), term.shifts)
            for term in terms
        }

    def _by_storage(self, demand: Mapping[int, Demand]) -> dict[str, list[Demand]]:
        """Return the demands of all writes of each storage."""
        assert self.storages is not None
        listed = {access.at for access in self.writes}
        found: dict[str, list[Demand]] = {}
        for point in self.feeding.points:
            node = point.statement
            if isinstance(node, (ir.Store, ir.Atomic)) and node.at in listed:
                found.setdefault(self.storages[node.array].name, []).append(demand[point.number])
        return found

    def _repeated(self, demand: Mapping[int, Demand], cutter: Cutter, divided: Collection[str]) -> str | None:
        """Return a storage whose writes would be carried out too often, if it is known of one."""
        for name, all_of in self._by_storage(demand).items():
            devices = range(len(self.weights))
            counts = [cutter.carried_out(one, device) for one in all_of for device in devices]
            known = [count for count in counts if count is not None]
            if name in divided and len(known) == len(counts) and sum(known) > MOST_REPEATED * len(all_of) * self.count:
                return name
        return None


def _use_of(name: str, body: Sequence[ir.Statement]) -> str:
    """Return where a scalar is used, or one that it is only passed on to, in words."""
    passed_on = [node for node in walk(*body) if isinstance(node, ir.Assign) and isinstance(node.value, ir.Name)]
    names = {name}
    for node in passed_on:  # in the order of the text, in which values go
        if node.value.name in names:  # type: ignore[attr-defined]  # it is a name
            names.add(node.name)
    values = {id(node.value) for node in passed_on}
    lines = [
        node.place.line
        for node in walk(*body)
        if isinstance(node, ir.Name) and node.name in names and id(node) not in values
    ]
    return f"in line {lines[0]}" if lines else "after the loop"
