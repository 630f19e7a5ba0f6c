"""The elements that each device of a replica set has: a table of boxes of index space.

Theory of operation
-------------------
The rows of a table are boxes that are disjoint and cover the array, each with the devices whose copy is *current*
there, as the bits of an integer that is never 0. All that happens to a replicated array is one of two changes: inside
of a box one more device becomes current (a copy), or others than some become stale (a write). A row that is met in part
is cut into slabs, along the slowest dimension first, so that later copies have long rows of bytes.

*Copies.* `exchange` takes the needs of each device and returns the copies. A source is current before the
exchange, never by a copy of the same exchange, so that copies need no order among themselves. If several devices could
send, the one that has least to send so far does, and of those the next in number. Pieces that make up a box and share a
device are one copy. A device receives from its successors first, in a ring: if each needs the parts of all others, no
two begin with the same source.

*Undoing.* A state is a value. It stays true after any copies of a later `exchange`, since they write only where the
receiver was stale. A caller that could not make the copies puts the earlier state back.

*Growth.* Rows of the same devices that make up a box are joined. Beyond `most` rows, neighbours with different devices
are joined as well, as long as one device is current in both: less is claimed then, nothing wrong. Is that not enough,
one row is left for the devices that are current everywhere. If there is none, as in a chessboard of two owners, no
claim can be given up. Then the next exchange completes all devices: some copies too many, once.

*Time loops* come by the same states again and again. So a state remembers its successors, by the identity of the
`Needs` or `Writes` that it was asked with. A caller that keeps these with its preparations for a loop pays for one
dictionary lookup.

Rejected: a set of devices for each element or row of elements (its cost is that of the array); one table for each
device (a write would change all of them).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from math import prod
from operator import and_, or_
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Box: TypeAlias = tuple[tuple[int, int], ...]
"""A range of indices in each dimension: the first, and the first that is not in it. Without dimensions: one element."""

Row: TypeAlias = tuple[Box, int]
"""A box and the devices that are current in it, device d by the bit ``1 << d``."""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_MOST_ROWS_A_DEVICE: Final = 16
"""A sweep over blocks leaves up to 3 rows a device and a border; loops that alternate in dimensions cross two such."""

_MOST_STATES: Final = 32
"""States of a table, and outcomes of a state, that are remembered: a time loop has a few."""


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """The boxes in which each device has to be current."""

    # By device; the boxes of one device may overlap, and reach beyond the array.
    boxes: tuple[tuple[Box, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Writes:
    """The boxes that have been written."""

    # For each device the boxes that are current there and nowhere else; those of two devices are disjoint.
    alone: tuple[tuple[Box, ...], ...]
    # The boxes that all devices have written alike.
    everywhere: tuple[Box, ...] = ()


class Copy(NamedTuple):
    """A box that one device of the set sends to another."""

    source: int
    target: int
    box: Box


@dataclass(frozen=True, slots=True)
class Exchange:
    """Copies that may be made in any order, or at once."""

    copies: tuple[Copy, ...]
    # The copies again, by the device that receives, and by the one that sends. A device may write what it has sent once
    # its copies in both are done.
    into: tuple[tuple[Copy, ...], ...]
    out_of: tuple[tuple[Copy, ...], ...]


class State:
    """The rows of a table: a value, which can be put back."""

    __slots__ = ("exchanges", "rows", "writes")

    def __init__(self, rows: tuple[Row, ...]) -> None:
        self.rows = rows  # nobody changes them
        # The states that have followed from this one, by what was asked for or written.
        self.exchanges: dict[object, tuple[Exchange, State]] = {}
        self.writes: dict[object, State] = {}


@dataclass(slots=True)
class BoxTable:
    """The box table of one array on devices ``0 … n_devices - 1`` of a set, at first current on all.

    Parameters
    ----------
    space : Box
        The indices of the array's elements, or of the part of it that is replicated.
    n_devices : int
    most : int, optional
        Rows beyond which the table becomes coarser; 0 for 16 a device.
    """

    space: Box
    n_devices: int
    most: int = 0
    # May be put back, to undo exchanges.
    state: State = field(init=False)
    # States by their rows, so that a time loop comes by the same objects.
    _states: dict[tuple[Row, ...], State] = field(default_factory=dict)
    # The mask of all devices, the need of all devices everywhere, and an exchange of nothing.
    _all: int = field(init=False)
    _whole: Needs = field(init=False)
    _none: Exchange = field(init=False)

    def __post_init__(self) -> None:
        n = self.n_devices
        self.most = self.most or _MOST_ROWS_A_DEVICE * n
        self._all = (1 << n) - 1
        self.state = State(() if is_empty(self.space) else ((self.space, self._all),))
        self._whole = Needs(((self.space,),) * n)
        self._none = Exchange((), ((),) * n, ((),) * n)

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.state.rows

    # -- questions ---------------------------------------------------------------------------------------

    def is_current(self, device: int, box: Box) -> bool:
        """Return whether a device has every element of a box."""
        return all(mask >> device & 1 or meet(row, box) is None for row, mask in self.rows)

    def gather(self, box: Box, lost: frozenset[int] = frozenset()) -> tuple[tuple[int | None, Box], ...]:
        """Return boxes that make up a box, each with a device that is current there: the one with least to send so far.

        A device that is ``lost`` cannot send: a part that no other device has comes with None.
        """
        able = self._all - sum(1 << device for device in lost)
        pieces = [(part, mask & able) for row, mask in self.rows if (part := meet(row, box)) is not None]
        sent = [0] * self.n_devices
        parts = [(part, mask) for part, mask in pieces if not mask], _joined([each for each in pieces if each[1]], 0)
        return tuple(
            (self._source(mask, part, 0, sent) if mask else None, part) for each in parts for part, mask in each
        )

    # -- changes -----------------------------------------------------------------------------------------

    def exchange(self, needs: Needs) -> Exchange:
        """Make devices current where they need to be, all where rows are too many, and return the copies that do it."""
        return self._exchanged(needs, self._whole if len(self.rows) > self.most else needs)

    def receive(self, device: int, box: Box) -> Exchange:
        """Make one device current in a box, and return the copies that do it.

        If rows are too many, the box is the whole array: then they can be one row, though no other device receives.
        """
        # A plain construct has one lane, so that one device alone can receive.
        asked = self.space if len(self.rows) > self.most else box
        needs = Needs(tuple((asked,) if d == device else () for d in range(self.n_devices)))
        return self._exchanged((device, box), needs)

    def complete(self, device: int) -> Exchange:
        """Make a device current everywhere, and return the copies that do it."""
        return self.receive(device, self.space)

    def complete_all(self) -> Exchange:
        """Make all devices current everywhere, and return the copies that do it."""
        return self.exchange(self._whole)

    def wrote(self, writes: Writes) -> None:
        """Note the boxes that a loop has written."""
        known = self.state.writes.get(writes)
        if known is None:
            rows: Sequence[Row] = self.rows
            for device, boxes in enumerate(writes.alone):
                for box in boxes:
                    rows = self._written(rows, box, 1 << device)
            for box in writes.everywhere:
                rows = self._written(rows, box, self._all)
            known = self._state(rows)
            _remember(self.state.writes, writes, known)
        self.state = known

    def mark_written(self, box: Box, device: int | None = None) -> None:
        """Note that a box was written on one device, and is stale on the others; or on all."""
        known = self.state.writes.get((device, box))
        if known is None:
            known = self._state(self._written(self.rows, box, self._all if device is None else 1 << device))
            _remember(self.state.writes, (device, box), known)
        self.state = known

    def lose(self, devices: Iterable[int]) -> None:
        """Give up the claims of devices, but where nobody else has any."""
        able = self._all - sum(1 << device for device in devices)
        self.state = self._state([(box, mask & able or mask) for box, mask in self.rows])

    # -- rows --------------------------------------------------------------------------------------------

    def _exchanged(self, key: object, needs: Needs) -> Exchange:
        state = self.state
        known = state.exchanges.get(key)
        if known is None:
            known = self._exchange(state.rows, needs)
            _remember(state.exchanges, key, known)
        exchange, self.state = known
        return exchange

    def _exchange(self, rows: tuple[Row, ...], needs: Needs) -> tuple[Exchange, State]:
        missing: list[list[Row]] = [[] for _ in needs.boxes]
        marked: list[Row] = []
        for row, mask in rows:
            here = [(row, mask)]
            if mask != self._all:
                for target, boxes in enumerate(needs.boxes):
                    if boxes and not mask >> target & 1:
                        for part in _apart([part for box in boxes if (part := meet(row, box)) is not None]):
                            missing[target].append((part, mask))
                            here = _added(here, part, 1 << target)
            marked += here
        # The device that has least to send so far sends, so that a broadcast is spread over all.
        sent = [0] * self.n_devices
        copies = [
            Copy(self._source(mask, box, target, sent), target, box)
            for target, pieces in enumerate(missing)
            for box, mask in _joined(pieces, 0)
        ]
        if not copies:
            return self._none, self.state
        # A ring: where each device needs what all others have, no two begin with the same source.
        copies.sort(key=lambda copy: (copy.target, (copy.source - copy.target) % self.n_devices, copy.box))
        devices = range(self.n_devices)
        into = tuple(tuple(copy for copy in copies if copy.target == device) for device in devices)
        out_of = tuple(tuple(copy for copy in copies if copy.source == device) for device in devices)
        return Exchange(tuple(copies), into, out_of), self._state(marked)

    def _source(self, mask: int, box: Box, target: int, sent: list[int]) -> int:
        """Choose the device that sends a box, and add the box to its load."""
        able = [device for device in range(self.n_devices) if mask >> device & 1]
        source = min(able, key=lambda device: (sent[device], abs(device - target), device))
        sent[source] += prod(high - low for low, high in box)
        return source

    def _written(self, rows: Sequence[Row], box: Box, mask: int) -> list[Row]:
        inside = meet(box, self.space)
        if inside is None:
            return list(rows)
        kept: list[Row] = [(part, before) for row, before in rows for part in cut(row, inside)]
        return [*kept, (inside, mask)]

    def _state(self, rows: Sequence[Row]) -> State:
        """Return the state of these rows, joined: the one that there is, or a new one."""
        rows = _joined(rows)
        if len(rows) > self.most:
            # Less is claimed then, and nothing wrong.
            rows = _joined(rows, self.most)
        if len(rows) > 1:
            masks = [mask for _, mask in rows]
            in_all = reduce(and_, masks)
            if in_all == reduce(or_, masks) or (in_all and len(rows) > self.most):
                # The devices that are current everywhere are claimed, and nobody else.
                rows = [(self.space, in_all)]  # also where no two of them make up a box
        key = tuple(sorted(rows))
        if self.state.rows == key:
            return self.state
        state = self._states.get(key)
        if state is None:
            state = State(key)
            _remember(self._states, key, state)
        return state


def whole_of(extents: Sequence[int]) -> Box:
    """Return the box of all indices of an array."""
    return tuple((0, extent) for extent in extents)


def is_empty(box: Box) -> bool:
    """Return whether a box has no element."""
    return any(low >= high for low, high in box)


def meet(one: Box, other: Box) -> Box | None:
    """Return the intersection of two boxes; None if it is empty."""
    shared = []
    for (low, high), (low_too, high_too) in zip(one, other, strict=True):
        first = low if low > low_too else low_too  # noqa: FURB136 - this is most of the time that a table takes
        end = high if high < high_too else high_too  # noqa: FURB136
        if first >= end:
            return None
        shared.append((first, end))
    return tuple(shared)


def cut(box: Box, hole: Box) -> list[Box]:
    """Return disjoint boxes that make up a box without another: slabs, along the slowest dimension first."""
    inner = meet(box, hole)
    if inner is None:
        return [box]
    parts: list[Box] = []
    for k, ((low, high), (first, end)) in enumerate(zip(box, inner, strict=True)):
        edges = (low, first), (end, high)
        parts += [(*inner[:k], edge, *box[k + 1 :]) for edge in edges if edge[0] < edge[1]]
    return parts


def _apart(boxes: list[Box]) -> list[Box]:
    """Return disjoint boxes that make up the same elements."""
    found = boxes[:1]
    for box in boxes[1:]:
        parts = [box]
        for other in found:
            parts = [piece for part in parts for piece in cut(part, other)]
        found += parts
    return found


def _added(rows: Sequence[Row], box: Box, bit: int) -> list[Row]:
    """Return rows with one more device in a box."""
    found: list[Row] = []
    for row, mask in rows:
        inside = None if mask & bit else meet(row, box)
        if inside is None:
            found.append((row, mask))
        else:
            found += [(part, mask) for part in cut(row, inside)]
            found.append((inside, mask | bit))
    return found


def _joined(rows: Sequence[Row], most: int | None = None) -> Sequence[Row]:
    """Join rows that make up a box and have the same devices; as long as there are more than `most`, or share one."""
    n_before = len(rows) + 1
    while 1 < len(rows) < n_before:
        n_before = len(rows)
        for dimension in reversed(range(len(rows[0][0]))):
            spare = 0 if most is None else max(len(rows) - most, 0)
            rows = _joined_along(rows, dimension, spare)
    return rows


def _joined_along(rows: Sequence[Row], dimension: int, spare: int) -> Sequence[Row]:
    """Join neighbours in a dimension: with the same devices all of them, `spare` times such as share one."""
    lines: dict[tuple[Box, Box], list[tuple[int, int, int]]] = {}
    for box, mask in rows:
        low, high = box[dimension]
        lines.setdefault((box[:dimension], box[dimension + 1 :]), []).append((low, high, mask))
    if len(lines) == len(rows):
        return rows
    found: list[Row] = []
    for (slower, faster), line in lines.items():
        line.sort()
        low, high, mask = line[0]
        for first, end, other in line[1:]:
            if first == high and (mask == other or (spare and mask & other)):
                spare -= mask != other
                high, mask = end, mask & other
            else:
                found.append(((*slower, (low, high), *faster), mask))
                low, high, mask = first, end, other
        found.append(((*slower, (low, high), *faster), mask))
    return found


def _remember(known: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    if len(known) >= _MOST_STATES:
        known.clear()
    known[key] = value
