"""Copies by tables of offsets: for elements that a few boxes cannot describe.

A table has an offset for each element that goes from one array to one array. On the host NumPy copies by it; a device
copies by a table of its own, of 32 bits where that is enough (`offload.devices.base.Device.copy_indexed`). Between
places elements are packed where they are read, moved in one piece, and unpacked where they are written.

Tables are made once for a pair of types, and brought to a device once. Both are kept, the last ones used, up to a
bound of bytes; a device's are let go with its runtime.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from offload.constructs.copying import second_place
from offload.data.arguments import touch
from offload.devices.retirement import refuse_retired
from offload.parray.indexing import Place
from offload.parray.moves import Move, make_all, one_failure, scratch
from offload.runtime.current import here
from offload.runtime.generate import generate
from offload.runtime.recipe import DeviceRecipe
from offload.runtime.works import Work
from offload.tasks import hooked
from offload.tasks.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.devices.streams import Lane
    from offload.parray.types import ArrayType
    from offload.runtime.place import DevicePlace
    from offload.runtime.works import Launch
    from offload.tasks.site import Site

KEPT_NBYTES = 256 << 20  # Bytes of tables that are kept on the host, and on each device

_FEW = 1 << 31  # Offsets below fit into 32 bits

Offsets = np.ndarray[Any, np.dtype[np.int64]]


class CopyTable(NamedTuple):
    """The elements that go from one array to one array."""

    source_thread: int | None  # None for a side that is not distributed
    target_thread: int | None
    size: int  # number of elements
    at: Offsets | int  # offsets in the source; one side has only its first offset if its elements follow each other
    to: Offsets | int  # offsets in the target


class BoundedCache:
    """Things by key, the last ones used, up to a bound of bytes."""

    def __init__(self, limit_nbytes: int = KEPT_NBYTES) -> None:
        self._limit_nbytes = limit_nbytes
        self._lock = threading.Lock()
        self._found: OrderedDict[Any, tuple[Any, int]] = OrderedDict()  # value and size, the one used last at the end
        self.nbytes = 0  # of all values

    def get(self, key: Any) -> Any:
        """Return the value kept under a key, or None."""
        with self._lock:
            found = self._found.get(key)
            if found is None:
                return None
            self._found.move_to_end(key)
            return found[0]

    def put(self, key: Any, value: Any, nbytes: int) -> None:
        """Keep a value and drop the least recently used ones; do not keep a value larger than the bound."""
        if nbytes > self._limit_nbytes:
            return
        with self._lock:
            if key in self._found:
                return
            self._found[key] = value, nbytes
            self.nbytes += nbytes
            while self.nbytes > self._limit_nbytes:
                _, (_, freed) = self._found.popitem(last=False)
                self.nbytes -= freed


_tables = BoundedCache()


def tables_of(source: ArrayType, target: ArrayType) -> tuple[CopyTable, ...]:
    """Return the tables of a pair of types: one for each pair of threads that elements go between."""
    key = source, target
    found: tuple[CopyTable, ...] | None = _tables.get(key)
    if found is None:
        found = _made(source, target)
        nbytes = sum(side.nbytes for table in found for side in (table.at, table.to) if isinstance(side, np.ndarray))
        _tables.put(key, found, nbytes)
    return found


def _made(source: ArrayType, target: ArrayType) -> tuple[CopyTable, ...]:
    (at_thread, at), (to_thread, to) = _sides(source), _sides(target)
    if at_thread is None and to_thread is None:
        return (_table(None, None, at, to),)
    n_targets = 1 if to_thread is None else int(to_thread.max()) + 1
    pairs = np.zeros(at.size, np.int64)
    if at_thread is not None:
        pairs += at_thread * n_targets
    if to_thread is not None:
        pairs += to_thread
    order = np.argsort(pairs, kind="stable")
    numbers, begins = np.unique(pairs[order], return_index=True)
    made = []
    for number, part in zip(numbers.tolist(), np.split(order, begins[1:]), strict=True):
        threads = divmod(number, n_targets)
        source_thread = None if at_thread is None else threads[0]
        made.append(_table(source_thread, None if to_thread is None else threads[1], at[part], to[part]))
    return tuple(made)


def _table(source_thread: int | None, target_thread: int | None, at: Offsets, to: Offsets) -> CopyTable:
    if _is_run(to):
        return CopyTable(source_thread, target_thread, at.size, at, int(to[0]))
    return CopyTable(source_thread, target_thread, at.size, int(at[0]) if _is_run(at) else at, to)


def _is_run(offsets: Offsets) -> bool:
    return bool(offsets[-1] - offsets[0] == offsets.size - 1 and (np.diff(offsets) == 1).all())


def _sides(side: ArrayType) -> tuple[Offsets | None, Offsets]:
    offsets = side.offsets()
    return (offsets.thread, offsets.offset) if isinstance(offsets, Place) else (None, offsets)


# -- tasks -----------------------------------------------------------------------------------------------


class IndexedMove(NamedTuple):
    """A copy between two flat arrays, ``dst[to[k]] = src[at[k]]``; where a table is None the array is the elements.

    ``key`` names the tables where devices keep them.
    """

    dst: Any
    src: Any
    place: DevicePlace | None  # of ``dst``; None for the host
    other: DevicePlace | None  # of ``src``; None for the host
    size: int  # number of elements
    to: Offsets | None
    at: Offsets | None
    key: Any


def recipe_of(site: Site, moves: Sequence[IndexedMove], *, shares: bool) -> Recipe:
    """Return the recipe of the task that makes some moves; ``shares``: some sources may share memory with targets.

    The call copies the tables to the devices, and blocks for that the first time. Raise `UnsupportedError` if arrays
    are on devices of two kinds.
    """
    for move in moves:
        second_place(site.directive, move.place, move.other)
        _tables_on(move.other, move, ("at",))
        _tables_on(move.place, move, ("to",))
    if len(moves) == 1 and not shares and moves[0].place is moves[0].other and moves[0].place is not None:
        move, place = moves[0], moves[0].place
        return DeviceRecipe(site, place, IndexedWork(move.dst, move.src, *_tables_on(place, move, ("to", "at"))))
    if all(move.place is None and move.other is None for move in moves):
        return Recipe(site, copy_on_host, (moves,))
    return Recipe(site, copy_through_packed, (site, moves))


def copy_on_host(moves: Sequence[IndexedMove]) -> None:
    """Make moves of the host: all is read before anything is written."""
    read = [move.src.copy() if move.at is None else move.src[move.at] for move in moves]
    for move, values in zip(moves, read, strict=True):
        move.dst[_index(move.to)] = values


def copy_through_packed(site: Site, moves: Sequence[IndexedMove]) -> None:
    """Make moves between any places: pack all, bring the packed to where they are written, and unpack."""
    packed = [scratch(move.other, (move.size,), move.src.dtype) for move in moves]
    _make(site, moves, packed, is_gather=True)
    crossing = [i for i, move in enumerate(moves) if move.place is not move.other]
    arrived = [scratch(moves[i].place, packed[i].shape, packed[i].dtype) for i in crossing]
    sides = zip(crossing, arrived, strict=True)
    make_all(site, [Move(spare, packed[i], moves[i].place, moves[i].other) for i, spare in sides])
    for i, spare in zip(crossing, arrived, strict=True):
        packed[i] = spare
    _make(site, moves, packed, is_gather=False)


def _make(site: Site, moves: Sequence[IndexedMove], packed: Sequence[Any], *, is_gather: bool) -> None:
    """Gather into packed arrays, or scatter from them, and wait."""
    scope = here()
    plain = []
    with one_failure():
        for move, spare in zip(moves, packed, strict=True):
            place, table = (move.other, move.at) if is_gather else (move.place, move.to)
            dst, src = (spare, move.src) if is_gather else (move.dst, spare)
            if table is None:
                plain.append(Move(dst, src, place, place))
            elif place is not None:
                (found,) = _tables_on(place, move, ("at" if is_gather else "to",))
                work = IndexedWork(dst, src, *((None, found) if is_gather else (found, None)))
                generate(scope, scope.frame(site.directive), DeviceRecipe(site, place, work), (), wait=False)
            else:
                into, out_of = (slice(None), table) if is_gather else (table, slice(None))
                dst[into] = src[out_of]
    make_all(site, plain)


def _index(table: Offsets | None) -> Any:
    return slice(None) if table is None else table


def _tables_on(place: DevicePlace | None, move: IndexedMove, sides: Sequence[str]) -> list[Any]:
    """Return tables of a move on a device."""
    found = []
    for side in sides:
        offsets = getattr(move, side)
        found.append(None if place is None or offsets is None else device_table(place, (move.key, side), offsets))
    return found


def device_table(place: DevicePlace, key: Any, offsets: Offsets) -> Any:
    """Return a table on a device, brought there if it is not kept."""
    kept = place.kept.setdefault("parray tables", BoundedCache())
    found = kept.get(key)
    if found is None:
        narrow = int(offsets.max()) < _FEW
        table = np.ascontiguousarray(offsets, np.int32 if narrow else np.int64)
        device = place.device
        stream = device.new_stream()  # of its own: what others wait for must not hold up the call
        found = device.alloc(table.shape, table.dtype, stream)
        copy = device.copy(found, table, stream)
        if copy is not None:
            copy.run()
        stream.synchronize()
        kept.put(key, found, table.nbytes)
    return found


class IndexedWork(Work):
    """Copy between two flat arrays of the device by tables that are there, one at least."""

    __slots__ = ("_at", "_dst", "_src", "_to")

    takes_device_arrays = True

    def __init__(self, dst: Any, src: Any, to: Any, at: Any) -> None:
        self._dst = dst
        self._src = src
        self._to = to  # None if the elements of ``dst`` follow each other
        self._at = at  # None if the elements of ``src`` follow each other

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        device = place.device
        for array in (self._dst, self._src):
            if device.retired(array) is not None:
                refuse_retired(device, array)
        if place.sets:
            touch(launch.gate, place, lane, [(place, self._src)], [(place, self._dst)])
        device.copy_indexed(self._dst, self._src, self._to, self._at, lane.stream)


# -- sanitized runtimes ------------------------------------------------------------------------------
def _noted_on_host(plain: Any) -> Any:
    """Return `copy_on_host` for sanitized runtimes."""

    def copy(moves: Sequence[IndexedMove]) -> None:
        from offload.runtime.sanitized_data import note_now, part_of  # few programs are sanitized

        reads = [part for move in moves for part in part_of(move.src, move.at)]
        note_now(here().task, reads, [part for move in moves for part in part_of(move.dst, move.to)])
        plain(moves)

    return copy


def _noted_begin(plain: Any) -> Any:
    """Return `IndexedWork.begin` for sanitized runtimes."""

    def begin(self: IndexedWork, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        from offload.runtime.sanitized_data import note_on_lane, part_of  # the same

        dst, src, to, at = self._dst, self._src, self._to, self._at
        reads = part_of(src if at is not None else src[: to.size], at)
        note_on_lane(launch, lane, reads, part_of(dst if to is not None else dst[: at.size], to))
        plain(self, launch, place, lane, staged)

    return begin


hooked.register(sys.modules[__name__], "copy_on_host", _noted_on_host, "sanitize")
hooked.register(IndexedWork, "begin", _noted_begin, "sanitize")
