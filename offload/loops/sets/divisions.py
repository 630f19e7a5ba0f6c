"""The ways to carry out a call on the devices of a set, and their results, kept for the numbers that they follow from.

A `Divided` belongs to a specialisation, the numbers of a call (with the distances of arrays that share memory) and the
number of devices. For each nest it has the ways, their blanks, and the chooser among them. Needs and writes are known
in an argument's own indices. `Taken.asked` translates them to the replica sets of the arguments, and keeps the result,
so that arrays which take turns find it. If boxes do not tell which device has written which elements, the next way is
taken.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import numpy as np

from offload.data.boxes import Needs, Writes, meet
from offload.data.replicas import Spread
from offload.loops.running.plan import check, is_looked_at, plans_of, ranged
from offload.loops.running.preparation import Apart
from offload.loops.sets.filter import filtered
from offload.loops.sets.footprints import duplicate, footprints, single, within
from offload.loops.sets.modes import Chooser, Cost, expected_s
from offload.loops.tree.nodes import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload.data.boxes import Box
    from offload.data.parts import ArrayLayout
    from offload.loops.proofs.numbers import Trips
    from offload.loops.running.looks import Looks
    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.preparation import Where
    from offload.loops.running.specialise import Specialisation
    from offload.loops.sets.cutting import Span
    from offload.loops.sets.filter import Filtering, FilterMode
    from offload.loops.sets.footprints import Division, Footprint


# -- the ways of a nest -------------------------------------------------------------------------------
#
# There are up to three ways: the nest is split, each device does everything, or the first device does. The piece of a
# device is a plan with the numbers of a launch, as for one device, so the same code compiles and launches it. Its
# trips are an axis that begins elsewhere and is shorter; an empty piece has 0 trips. Partial results come from the
# `summed` devices, in their order.


_IN_ORDER: Final = "its iterations run in order"
_SCAN: Final = "it is a scan, which one device runs"


class NestPiece(NamedTuple):
    """The part of a nest that a device carries out."""

    plan: NestPlan  # of its own, by its identity
    scalars: Mapping[str, Any]  # before the nest
    axes: tuple[Trips, ...]


class Way(NamedTuple):
    """A way to carry out a nest."""

    mode: FilterMode  # which of the three it is
    pieces: tuple[NestPiece, ...]  # one a device
    prints: Mapping[str, Footprint]  # of the arrays that devices need or write
    last: int  # the device with the last iteration
    summed: int  # how many devices, from the first on, leave partial results that count
    devices: tuple[int, ...]  # those that go through iterations


class Ways(NamedTuple):
    """The ways to carry out a nest."""

    filtering: Filtering  # how the nest is divided
    why: str  # why these are the ways
    by_mode: Mapping[FilterMode, Way]  # the most divided first
    is_written: bool  # whether the nest leaves anything


def ways_of(plan: NestPlan, number: int, numbers: Numbers, weights: Sequence[int], before: Ways | None = None) -> Ways:
    """Return the ways to carry out a nest, by its number in the function.

    ``plan`` is that of one device for these numbers. ``weights`` are the devices' shares of the iterations, in
    proportion. ``before`` has the ways of another plan for this nest and these numbers: its findings about the text are
    reused.
    """
    scalars, axes = numbers.scalars[number], numbers.axes[number]
    if (
        before is not None
        and (of := before.by_mode["single"].pieces[0].plan).typed is plan.typed
        and of.nest is plan.nest
    ):
        found = before.filtering
    else:
        found, before = filtered(plan.typed, plan.nest, numbers.launch(number), weights), None
    why = _IN_ORDER if plan.variant.is_ordered else _SCAN if plan.nest.scan is not None else found.why
    mode: FilterMode = "single" if why in (_IN_ORDER, _SCAN) else found.mode
    whole, n_devices = NestPiece(plan, scalars, axes), len(weights)
    everything = axes[0].trips
    by_mode: dict[FilterMode, Way] = {}
    if mode == "split":
        by_mode[mode] = _way(mode, _split(found, whole), found, found.division, n_devices, before)
    if mode != "single":
        both = [whole] * n_devices
        by_mode["duplicate"] = _way("duplicate", both, found, duplicate(found.accesses, n_devices), 1, before)
    alone = [whole, *[_of_trips(whole, (0, 0)) for _ in range(n_devices - 1)]] if everything else [whole] * n_devices
    by_mode["single"] = _way("single", alone, found, single(found.accesses, n_devices), 1, before)
    leaves = [*plan.nest.reductions, *plan.nest.last, *plan.nest.privates]
    writes = [access for access in found.accesses.listed if access.kind not in ("load", "check")]
    return Ways(found, why, by_mode, bool(leaves or writes))


def _way(
    mode: FilterMode,
    pieces: Sequence[NestPiece],
    found: Filtering,
    division: Division,
    summed: int,
    before: Ways | None,
) -> Way:
    devices = tuple(device for device, piece in enumerate(pieces) if all(axis.trips for axis in piece.axes))
    known = None if before is None else before.by_mode.get(mode)
    prints = footprints(found.accesses, division) if known is None else known.prints
    return Way(mode, tuple(pieces), prints, division.last, summed, devices)


def _split(found: Filtering, whole: NestPiece) -> list[NestPiece]:
    """Return the pieces of a nest that is split."""
    if found.is_cut:
        return [_of_trips(whole, span) for span in found.trips]
    plan = whole.plan
    typed, nest, given = found.guarded(plan.typed)
    plan = plan._replace(typed=typed, nest=nest, text=found.key)
    pieces = []
    for device, span in enumerate(found.trips):
        bounds = {name: np.int64(value) for name, value in found.fields(given, device).items()}
        pieces.append(_of_trips(NestPiece(plan, {**whole.scalars, **bounds}, whole.axes), span))
    return pieces


def _of_trips(piece: NestPiece, span: Span) -> NestPiece:
    """Return the part of a piece in some trips of its outermost axis; its plan is its own, by its identity."""
    begin, end = span
    outer = piece.axes[0]
    axis = replace(outer, start=outer.start + begin * outer.step, trips=max(end - begin, 0))
    return piece._replace(plan=piece.plan._replace(), axes=(axis, *piece.axes[1:]))


# -- what calls with equal numbers have found out -----------------------------------------------------


# From the most divided on.
MODES: Final[tuple[FilterMode, ...]] = ("split", "duplicate", "single")

# Places of arguments in sets that a way remembers: programs have a few arrays that take turns.
_LIES: Final = 32

BlankT = TypeVar("BlankT")


class Asked(NamedTuple):
    """The boxes of a replica set that devices need and write, in its indices; None for nothing."""

    group: int  # the number of the set in the call
    needs: Needs | None  # where devices have to be current
    writes: Writes | None  # what they leave


class Lie(NamedTuple):
    """The place of an argument in a replica set."""

    group: int  # of arguments in one set; a number of the set in the call
    whole: ArrayLayout  # of the set
    address: int  # of the argument's element `[0, …, 0]`, where the set's layout is
    host: Any  # has its shape and strides
    order: tuple[int, ...]  # the number in the set of each device of the loop

    @property
    def key(self) -> tuple[object, ...]:
        whole, host = self.whole, self.host
        apart = self.address - whole.address
        return self.group, apart, whole.shape, whole.strides, whole.itemsize, host.strides, self.order

    @property
    def part(self) -> ArrayLayout:
        host = self.host
        return Spread(self.address, host.shape, host.strides, host.itemsize)


class Taken(Generic[BlankT]):
    """A way, and the blank of each device for it."""

    __slots__ = ("_asked", "_blanks", "_make", "way")

    def __init__(self, way: Way, make: Callable[[NestPiece], BlankT]) -> None:
        self.way = way  # what each device does
        self._make = make  # returns the blank of a device for a piece
        self._blanks: tuple[BlankT, ...] = ()  # one a device, once they are made
        self._asked: dict[Any, tuple[Asked, ...] | None] = {}  # what was asked for arguments that lay so

    @property
    def blanks(self) -> tuple[BlankT, ...]:
        """The blanks, one for each device; devices with one piece share one."""
        if not self._blanks:
            made: dict[int, BlankT] = {}
            for piece in self.way.pieces:
                if id(piece) not in made:
                    made[id(piece)] = self._make(piece)
            self._blanks = tuple([made[id(piece)] for piece in self.way.pieces])
        return self._blanks

    def asked(self, lies: Mapping[str, Lie], key: Any) -> tuple[Asked, ...] | None:
        """Return the needs of each device in the sets of the arguments; None if boxes do not tell all writers.

        ``key`` stands for all of ``lies``.
        """
        try:
            return self._asked[key]
        except KeyError:
            if len(self._asked) >= _LIES:
                self._asked.clear()
            found = self._asked[key] = _asked(self.way, lies)
            return found


def _asked(way: Way, lies: Mapping[str, Lie]) -> tuple[Asked, ...] | None:
    n_devices = len(way.pieces)
    needs: dict[int, list[list[Box]]] = {}
    alone: dict[int, list[list[Box]]] = {}
    everywhere: dict[int, list[Box]] = {}
    for array, prints in way.prints.items():
        lie = lies.get(array)
        if lie is None:  # it has no elements
            continue
        moved = within(prints, lie.part, lie.whole)
        if moved is None:
            return None
        mine = needs.setdefault(lie.group, [[] for _ in range(n_devices)])
        written = alone.setdefault(lie.group, [[] for _ in range(n_devices)])
        shared = everywhere.setdefault(lie.group, [])
        for device, of_set in enumerate(lie.order):
            if moved.needs is not None:
                mine[of_set] += moved.needs.boxes[device]
            if moved.writes is not None:
                written[of_set] += moved.writes.alone[device]
        if moved.writes is not None:
            shared += moved.writes.everywhere
    found = []
    for group, boxes in needs.items():
        written, shared = alone[group], everywhere[group]
        if not _are_apart([*written, shared]):
            return None
        asks = Needs(tuple(map(tuple, boxes))) if any(boxes) else None
        marks = Writes(tuple(map(tuple, written)), tuple(shared)) if shared or any(written) else None
        found.append(Asked(group, asks, marks))
    return tuple(found)


def _are_apart(written: Sequence[Sequence[Box]]) -> bool:
    """Tell whether no two devices write in one box."""
    return not any(
        meet(box, other) is not None
        for number, boxes in enumerate(written)
        for others in written[:number]
        for box in boxes
        for other in others
    )


class DividedNest(Generic[BlankT]):
    """A nest on the devices of a set."""

    __slots__ = ("_blanks", "_taken", "ways")

    def __init__(self, ways: Ways, blanks: Callable[[NestPiece], BlankT]) -> None:
        self.ways = ways
        self._blanks = blanks  # returns the blank of a device for a piece
        self._taken: dict[FilterMode, Taken[BlankT]] = {}  # by mode

    def mode_of(self, mode: FilterMode) -> FilterMode:
        """Return a mode, or the next one that there is a way for."""
        return next(one for one in MODES[MODES.index(mode) :] if one in self.ways.by_mode)

    def taken(self, mode: FilterMode) -> Taken[BlankT]:
        """Return the way of a mode, or of the next one that there is."""
        of = self.mode_of(mode)
        found = self._taken.get(of)
        if found is None:
            found = self._taken[of] = Taken(self.ways.by_mode[of], self._blanks)
        return found


class Divided(Generic[BlankT]):
    """The results of calls with certain numbers on a number of devices."""

    def __init__(
        self,
        spec: Specialisation,
        numbers: Numbers,
        weights: Sequence[int],  # as `offload.loops.sets.divisions.ways_of` takes them
        where: Where[BlankT],  # how nests are prepared on these devices
    ) -> None:
        self.numbers = numbers  # of one such call
        self.apart = Apart(spec, numbers, is_any=True)  # whether arrays share no memory
        self._spec, self._weights, self._where = spec, tuple(weights), where
        self._plans = plans_of(spec, numbers)  # of one device, without a look at elements
        self._nests: dict[Any, tuple[DividedNest[BlankT], ...]] = {}  # by what elements have decided
        self._choosers: dict[tuple[str, tuple[object, ...]], Chooser] = {}  # by the ``filter`` clause and the devices

    def plans(self, looks: Looks | None) -> tuple[NestPlan, ...]:
        """Return the plans of one device; look at elements where that is worth it."""
        if looks is None or not is_looked_at(self._spec, self.numbers, self._plans):
            return self._plans
        return ranged(self._spec, self.numbers, looks)

    def nests(self, looks: Looks | None) -> tuple[DividedNest[BlankT], ...]:
        """Return the nests. Raises as `offload.loops.running.plan.check`."""
        plans = self.plans(looks)
        key = tuple([(plan.variant, plan.narrow) for plan in plans])
        found = self._nests.get(key)
        if found is None:
            check(self._spec, plans)
            others = next(iter(self._nests.values()), None)
            found = self._nests[key] = tuple(
                self._nest(number, plan, None if others is None else others[number].ways)
                for number, plan in enumerate(plans)
            )
        return found

    def _nest(self, number: int, plan: NestPlan, before: Ways | None) -> DividedNest[BlankT]:
        ways = ways_of(plan, number, self.numbers, self._weights, before)

        def blank(piece: NestPiece) -> BlankT:
            return self._where.blank(self._spec, number, piece.plan, of_piece(self.numbers, number, piece))

        return DividedNest(ways, blank)

    def chooser(self, words: str, spaces: tuple[object, ...]) -> Chooser:
        """Return the chooser among the ways, for all calls with arrays of such shapes.

        ``words`` is the ``filter`` clause; ``spaces`` are the address spaces of the devices, which tell sets apart.
        """
        found = self._choosers.get((words, spaces))
        if found is None:
            nests = self.nests(None)
            modes = [mode for mode in MODES if any(mode in nest.ways.by_mode for nest in nests)]
            if words == "always":
                modes = modes[:1]
            elif words == "never" and len(modes) > 1:
                modes = [mode for mode in modes if mode != "split"]
            sizes: list[object] = [view.extents for view in self.numbers.views.values()]
            if not sizes:  # no array says how long it takes: powers of 2 of the trips do
                sizes = [axis.trips.bit_length() for axes in self.numbers.axes for axis in axes]
            facts = self._spec.record((tuple(sizes), ())).facts  # of all calls with arrays of such shapes
            key = "chooser", words, spaces, *modes
            found = facts.get(key)
            if found is None:
                found = facts.keep(key, Chooser({mode: _expected_s(nests, mode) for mode in modes}))
            self._choosers[words, spaces] = found
        return found


def of_piece(numbers: Numbers, number: int, piece: NestPiece) -> Numbers:
    """Return the numbers of a call with those of a piece for one of its nests."""
    axes, scalars = list(numbers.axes), list(numbers.scalars)
    axes[number], scalars[number] = piece.axes, dict(piece.scalars)
    return numbers._replace(axes=tuple(axes), scalars=tuple(scalars))


def _expected_s(nests: Sequence[DividedNest[Any]], mode: FilterMode) -> float:
    """Return the expected time of a way, in seconds."""
    total = 0.0
    for nest in nests:
        way = nest.ways.by_mode[nest.mode_of(mode)]
        sizes = {name: view.itemsize for name, view in nest.ways.filtering.accesses.launch.views.items()}
        costs = []
        for device in way.devices:
            piece = way.pieces[device]
            trips = prod(axis.trips for axis in piece.axes)
            nbytes = sent = 0
            for name, prints in way.prints.items():
                read = () if prints.needs is None else prints.needs.boxes[device]
                wrote = () if prints.writes is None else (*prints.writes.alone[device], *prints.writes.everywhere)
                nbytes += sizes[name] * (_n_elements(read) + _n_elements(wrote))
                if prints.writes is not None:
                    others = [box for d, boxes in enumerate(prints.writes.alone) if d != device for box in boxes]
                    shared = [part for box in read for other in others if (part := meet(box, other)) is not None]
                    sent += sizes[name] * _n_elements(shared)
            costs.append(Cost(nbytes, trips * sum(1 for _ in walk(*piece.plan.nest.body)), sent))
        total += expected_s(costs)
    return total


def _n_elements(boxes: Sequence[Box]) -> int:
    return sum(prod(high - low for low, high in box) for box in boxes)
