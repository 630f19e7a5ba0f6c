"""Several copies that are one: their order, temporaries, and the one task that makes them.

A typed copy acts as if every element had been read before any is written. So a source that shares memory with a target
is read into a temporary in a first phase. The task is a function on the host, device work on one lane, or a host task
that generates copies, a device at a time, and waits for them. See docs/design/theory.md, "Moves".
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from offload.arrays.hostcopies import copyto
from offload.arrays.sections import overlaps
from offload.constructs.copying import copy_recipe, second_place, section_at
from offload.constructs.groups import taskgroup
from offload.data.arguments import touch
from offload.devices.retirement import refuse_retired
from offload.errors import ClauseError
from offload.parray.storage import COPY
from offload.runtime.current import here
from offload.runtime.generate import generate
from offload.runtime.recipe import DeviceRecipe
from offload.runtime.works import Work
from offload.tasks import hooked
from offload.tasks.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from offload.devices.streams import Lane
    from offload.parray.storage import Storage
    from offload.runtime.place import DevicePlace
    from offload.runtime.works import Launch
    from offload.tasks.site import Site


class Move(NamedTuple):
    """A copy between two views of one shape and dtype; places are None for the host."""

    dst: Any  # a view
    src: Any  # a view of the same shape and dtype
    place: DevicePlace | None  # of ``dst``
    other: DevicePlace | None  # of ``src``


def clashing(targets: Iterable[Storage], sources: Iterable[Storage]) -> set[int]:
    """Return the ids of arrays whose memory is both a target and a source: their pieces may overlap.

    Raise `ClauseError` if two targets share memory.
    """
    spans = []  # space, first and last address, whether it is a target, id of the array
    for is_target, side in ((True, targets), (False, sources)):
        for storage in side:
            low, high = storage.extent
            space = None if storage.place is None else storage.place.device.number
            spans.append((-1 if space is None else space, low, high, is_target, id(storage.array)))
    spans.sort()
    found: set[int] = set()
    # Sorted by space and address, so a span meets those alone that begin before it ends.
    for i, (space, _, high, is_target, key) in enumerate(spans):
        for other_space, other_low, _, other_is_target, other_key in spans[i + 1 :]:
            if other_space != space or other_low >= high:
                break
            if is_target and other_is_target:
                raise ClauseError(
                    f"{COPY}: the arrays of two threads of the target share memory; each needs elements of its own"
                )
            if is_target != other_is_target:
                found |= {key, other_key}
    return found


def read_first(moves: Sequence[Move]) -> frozenset[int]:
    """Return which of some moves have a source that shares memory with the target of any of them."""
    targets = [(move.place, section_at(move.place, move.dst)) for move in moves]
    found = set()
    for i, move in enumerate(moves):
        section = section_at(move.other, move.src)
        if any(place is move.other and overlaps(target, section) for place, target in targets):
            found.add(i)
    return frozenset(found)


def recipe_of(site: Site, moves: Sequence[Move], first: frozenset[int] = frozenset()) -> Recipe:
    """Return the recipe of the task that makes some moves, ``first`` of which go through temporaries."""
    if len(moves) == 1 and not first:
        return copy_recipe(site, *moves[0], is_checked=True)
    # One device's work is one device task, host copies are one host task; others need a task for each device.
    places = {place for move in moves for place in (move.place, move.other)}
    if places <= {None}:
        return Recipe(site, copy_on_host, (moves, first))
    groups = grouped(site, moves)
    place = moves[0].place or moves[0].other
    if len(groups) == 1 and place is not None and all(moves[i].other is place for i in first):
        return DeviceRecipe(site, place, MovesWork(groups[0], first))
    return Recipe(site, copy_in_groups, (site, moves, first))


def copy_on_host(moves: Sequence[Move], first: frozenset[int]) -> None:
    """Make moves of the host."""
    read = {i: moves[i].src.copy() for i in first}  # temporaries, all made before anything is written
    for i, move in enumerate(moves):
        copyto(move.dst, read.get(i, move.src))


def grouped(site: Site, moves: Sequence[Move]) -> list[list[Move]]:
    """Return moves by the device that makes them, and the other device if there is one.

    Raise `UnsupportedError` if arrays are on devices of two kinds.
    """
    groups: dict[Any, list[Move]] = {}  # by the device, or the pair of devices
    for move in moves:
        if move.place is None or move.other is None or move.place is move.other:
            key: Any = move.place or move.other
        else:
            second_place(site.directive, move.place, move.other)
            key = move.place, move.other
        groups.setdefault(key, []).append(move)
    return list(groups.values())


def copy_in_groups(site: Site, moves: Sequence[Move], first: frozenset[int]) -> None:
    """Make moves between any places: generate copies, a device at a time, and wait for them."""
    if first:
        moves, early = list(moves), []
        for i in sorted(first):
            move = moves[i]
            spare = scratch(move.other, move.src.shape, move.src.dtype)
            early.append(Move(spare, move.src, move.other, move.other))
            moves[i] = Move(move.dst, spare, move.place, move.other)
        make_all(site, early)
    make_all(site, moves)


def make_all(site: Site, moves: Sequence[Move]) -> None:
    """Make moves that do not touch each other, and wait for them; for the body of a task."""
    scope = here()
    with one_failure():
        for group in grouped(site, moves):
            place = group[0].place or group[0].other
            if place is not None:
                recipe = DeviceRecipe(site, place, MovesWork(group))
                generate(scope, scope.frame(site.directive), recipe, (), wait=False)
        for move in moves:
            if move.place is None and move.other is None:
                copyto(move.dst, move.src)


@contextmanager
def one_failure() -> Iterator[None]:
    """Wait for the tasks of a block, as a group; the first failure is that of the copy, the rest are notes on it."""
    try:
        with taskgroup():
            yield
    except BaseExceptionGroup as failures:
        first, *others = sorted(failures.exceptions, key=lambda failure: isinstance(failure, Exception))
        for other in others:
            first.add_note(f"then {type(other).__name__}: {other}")
        raise first from None


def scratch(place: DevicePlace | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return new memory at a place, which goes back with the last reference."""
    return np.empty(shape, dtype) if place is None else place.device.alloc(shape, dtype, None)


class MovesWork(Work):
    """Copy between views of which one each is on the device; ``second`` is the other device, if the others are on one.

    The sources of those moves that are ``first`` are on the device, and read into temporaries before all else.
    """

    __slots__ = ("_first", "_moves", "second")

    takes_device_arrays = True

    def __init__(self, moves: Sequence[Move], first: frozenset[int] = frozenset()) -> None:
        self._moves = moves  # in the order of the boxes
        self._first = first  # those that read into temporaries
        place, other = moves[0].place, moves[0].other
        self.second = other.device if place is not None and other is not None and other is not place else None

    def mark(self, launch: Launch) -> None:
        if self.second is not None:
            launch.other_after = self.second.caller_event()

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        device = place.device
        for move in self._moves:
            for array, at in ((move.dst, move.place), (move.src, move.other)):
                if at is place and device.retired(array) is not None:  # freed since the call
                    refuse_retired(device, array)
        if (
            self.second is not None and launch.other_after is not None
        ):  # what the caller has enqueued on the other device
            device.wait_event(lane.stream, launch.other_after)
        self._touch(launch, place, lane)
        read = {}  # temporaries on the device, by the number of the move
        for i in self._first:
            src = self._moves[i].src
            read[i] = device.alloc(src.shape, src.dtype, lane.stream)
            place.copy(read[i], src, lane, staged)
        for i, move in enumerate(self._moves):
            place.copy(move.dst, read.get(i, move.src), lane, staged)
        if read:  # the stream still uses them when this returns
            launch.held = [*read.values()]

    def _touch(self, launch: Launch, place: DevicePlace, lane: Lane) -> None:
        """Order the moves with the work that is under way on replicated storage."""
        reads = [(move.other, move.src) for move in self._moves if move.other is not None]
        writes = [(move.place, move.dst) for move in self._moves if move.place is not None]
        if any(at.sets for at, _ in (*reads, *writes)):
            touch(launch.gate, place, lane, reads, writes)


# -- sanitized runtimes ------------------------------------------------------------------------------
def _noted_on_host(plain: Any) -> Any:
    """Return `copy_on_host` for sanitized runtimes."""

    def copy(moves: Sequence[Move], first: frozenset[int]) -> None:
        from offload.runtime.sanitized_data import note_now  # few programs are sanitized

        note_now(here().task, [move.src for move in moves], [move.dst for move in moves])
        plain(moves, first)

    return copy


def _noted_all(plain: Any) -> Any:
    """Return `make_all` for sanitized runtimes; the moves on devices are copies of their tasks."""

    def make(site: Site, moves: Sequence[Move]) -> None:
        from offload.runtime.sanitized_data import note_now  # the same

        hosts = [move for move in moves if move.place is None and move.other is None]
        if hosts:
            note_now(here().task, [move.src for move in hosts], [move.dst for move in hosts])
        plain(site, moves)

    return make


hooked.register(sys.modules[__name__], "copy_on_host", _noted_on_host, "sanitize")
hooked.register(sys.modules[__name__], "make_all", _noted_all, "sanitize")
