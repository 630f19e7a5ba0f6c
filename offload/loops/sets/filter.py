"""One nest on several devices: the statements, reads and elements of each device, for the numbers of a launch.

Every device has a replica of every array. Not the work is divided but the *writes*: a device owns a range of each
array, and carries out its writes and everything that they need (`demand`). So every owned element gets its serial
value, and a bad split can be wasteful but never wrong. Elements that a device changes without owning them are stale
there.

Every device computes an array whose writes would be repeated more than 1.5 times, or that indices, branches or bounds
follow from. Without anything divided, every device does everything. If a statement uses the old value of an atomic
update, one device does everything.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from offload.loops.proofs.affine import AffineForm
from offload.loops.proofs.bounds import bounds
from offload.loops.proofs.demand import DemandTerm, demands, own_term
from offload.loops.proofs.feeding import feeding, points_of
from offload.loops.proofs.integers import IntegerValue
from offload.loops.proofs.reach import accesses
from offload.loops.proofs.storages import LoopStorage, storages
from offload.loops.sets.cutting import Cutter, Image, Split, blocks, hull, image_of, split_of
from offload.loops.sets.nest_division import Filtering
from offload.loops.tree import ir
from offload.loops.tree.nodes import names_in, walk
from offload.loops.tree.slices import INT, Slice
from offload.loops.tree.text import text_of
from offload.loops.tree.uses import numbered_apart

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from offload.loops.proofs.demand import Demand
    from offload.loops.proofs.numbers import LaunchNumbers
    from offload.loops.proofs.reach import NestAccesses
    from offload.loops.sets.nest_division import FilterMode

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
