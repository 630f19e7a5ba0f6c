"""Entering replica sets: how one task of the primary maps items on several devices.

Theory of operation
-------------------
All is done while the locks of all places are held, taken in the order of device numbers. Plans are made, checked
against each other and followed up in the ledgers; lanes are taken and buffers allocated; then all plans are committed,
which cannot fail; then copies are enqueued. So a construct that raises has changed nothing, on no device. The exception
is a copy that fails when all has been committed, as on a lost device: then the entry is undone.

The lanes of the other devices are a `Fork` of the task's own, which has joined them when the launch ends. What is only
counted needs no fork: the task's own lane follows what the ledgers of all places name, and its end is their end.

Copies that threads make (`StagedCopy`) begin when the primary's lane has got to where all lanes meet. They go on in the
order of their own lanes, so that the fork lasts until `settle`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from offload.data.entries import Counter
from offload.data.exchanges import before, receive
from offload.data.ledger import PutOffError
from offload.data.maptypes import MapType
from offload.data.membership import mirror_of, sort_items, without_copies
from offload.data.plans import CountedEnter
from offload.data.released import Released
from offload.data.replicas import ReplicaSet, locked, numbers_of, replicas_of
from offload.data.steps import entry_steps
from offload.errors import DeviceLostError, DeviceMemoryError
from offload.runtime.forks import Fork

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from offload.arrays.sections import Section
    from offload.data.entries import Entry
    from offload.data.items import MapItem
    from offload.data.ledger import Part
    from offload.data.membership import Sorted
    from offload.data.plans import Entered, Plan
    from offload.data.steps import Steps
    from offload.devices.streams import Lane, Point
    from offload.runtime.forks import Marks
    from offload.runtime.place import DevicePlace
    from offload.runtime.works import Launch


class Together:
    """What a construct has entered on several places.

    Attributes
    ----------
    places : tuple of DevicePlace
        The primary first.
    items : sequence of MapItem
    entries : list of Entry or None
        Of each item, on the primary.
    counted : sequence of Entry
        The same, each once.
    sets : list of ReplicaSet or None
        Of each item; None for one without elements, or that is absent and need not be present.
    plans : list of Entered
        Of each place; the items' entries come first.
    point : Point or None
        Where the copies end; None where there are none, or they are staged.
    only_counts : bool
        All items were in sets, and were only counted.
    """

    __slots__ = ("counted", "entries", "gate", "items", "only_counts", "places", "plans", "point", "sets")

    def __init__(
        self, gate: Marks, places: tuple[DevicePlace, ...], items: Sequence[MapItem], plans: Sequence[Entered]
    ) -> None:
        self.gate = gate
        self.places = places
        self.items = items
        self.plans = plans
        self.entries: Sequence[Entry | None] = plans[0].entries
        self.counted = plans[0].counted
        self.sets: list[ReplicaSet | None] = [None if entry is None else entry.replicas for entry in self.entries]
        self.only_counts = False
        self.point: Point | None = None


def enter(
    launch: Launch,
    gate: Marks,
    places: tuple[DevicePlace, ...],
    items: Sequence[MapItem],
    lane: Lane,
    staged: list[Any],
    counter: Counter = Counter.DYNAMIC,
    *,
    adopts: bool = False,
    is_default: bool = False,
) -> Together:
    """Map the items of a construct on several places, and enqueue their copies to all of them.

    Parameters
    ----------
    launch : Launch
        Of a task of the first place, on ``lane``; staged copies go to ``staged``, and are over at `settle`.
    adopts : bool
        What is present on the primary alone gets replicas, which end with this construct's exit.
    is_default : bool
        Nobody has named these devices: what cannot be in a set is the primary's alone.

    Raises
    ------
    PutOffError, MapError, DeviceMemoryError
        Nothing has changed.
    """
    with locked(places):
        counted = _count(gate, places, items, lane, counter)
        if counted is not None:
            launch.spread(places[1:])
            return counted
        found = sort_items(places, items, adopts=adopts, is_default=is_default)
        plans = _plans(places, items, found, counter)
        steps = [_steps_of(place, plan) for place, plan in zip(places, plans, strict=True)]
        is_forked = any(step.created or step.copies_in for step in steps[1:])
        fork = Fork(gate, lane, places if is_forked else places[:1])
        lanes = [*fork.lanes] if is_forked else [lane] * len(places)
        try:
            buffers = _allocated(places, steps, lanes)
            for step, its_lane in zip(steps, lanes, strict=True):
                its_lane.wait_for(step.waits)
        except BaseException:
            fork.give_back()
            raise
        for place, plan, step, its_lane, its_buffers in zip(places, plans, steps, lanes, buffers, strict=True):
            place.table.commit(plan, its_buffers)
            for entry, _ in step.writes:
                entry.change(its_lane)
        _make_sets(places, items, plans, found.joining)
        together = Together(gate, places, items, plans)
        try:
            for place, step, its_lane in zip(places, steps, lanes, strict=True):
                place.copy_in(step, its_lane, staged)
            for item, entry in steps[0].copies_in:
                note_update(entry.replicas, item)
            together.point = end(launch, fork, places, staged, [((), step.writes, ()) for step in steps])
        except BaseException:
            staged.clear()
            fork.give_back()
            with suppress(DeviceLostError):
                places[0].ledger.keep(lane, _undo(together, lane))
            raise
        launch.spread(places[1:])
        return together


def leave(together: Together, lane: Lane) -> Point | None:
    """Undo what `enter` has done where both only count; return where, or None, having done nothing, if there is more.

    The place on the lane is that up to which the entries are in use, on all places.
    """
    if not together.only_counts:
        return None
    places, plans = together.places, together.plans
    with locked(places):
        if not all(place.table.stays(plan) for place, plan in zip(places, plans, strict=True)):
            return None
        for place, plan in zip(places, plans, strict=True):
            place.table.leave(plan)
        point = lane.mark()
        for place, plan in zip(places, plans, strict=True):
            place.ledger.note(point, plan.parts())
        return point


def undo(together: Together, lane: Lane) -> list[object]:
    """Release what `enter` mapped, and copy nothing to the host; return what must live until the lane gets here."""
    with locked(together.places):
        return _undo(together, lane)


def settle(launch: Launch, places: Sequence[DevicePlace], lane: Lane) -> Point:
    """Take note that the staged copies of a launch have been carried out, or have failed; return where it is now."""
    fork, launch.fork = launch.fork, None
    if fork is not None:
        fork.join()
    point = lane.mark()
    for place in places:
        place.ledger.settle(lane, point)
    return point


def end(
    launch: Launch,
    fork: Fork,
    places: Sequence[DevicePlace],
    staged: list[Any],
    parts: Iterable[tuple[Sequence[Part], Sequence[Part], Sequence[Section]]],
) -> Point | None:
    """Join a fork, and enter what each place uses, writes, and copies back of what is mapped no more.

    Return where it ends; None where copies are staged: then all is open until `settle`. Under the locks of all places.
    """
    lane = fork.lanes[0]
    if staged:
        fork.meet()
        launch.fork = fork
        for place, (uses, writes, back) in zip(places, parts, strict=True):
            place.ledger.open(lane, uses, writes, back)
        return None
    fork.join()
    point = lane.mark()
    for place, (uses, writes, back) in zip(places, parts, strict=True):
        place.ledger.note(point, uses, writes, back)
    return point


def note_update(replicas: ReplicaSet | None, item: MapItem) -> None:
    """Note that an item was copied from the host to all devices; of one with gaps in its box it tells nothing new."""
    if replicas is not None:
        box = replicas.box(item)
        if replicas.is_all(item, box):
            replicas.table.mark_written(box)


def dissolve(
    replicas: ReplicaSet, gone: Collection[Entry], lanes: Mapping[Any, Lane], *, may_be_put_off: bool = False
) -> None:
    """Complete those entries of a set that stay where others go, on lanes of theirs; under the locks of all places.

    Raises
    ------
    PutOffError
        Only if it ``may_be_put_off``.
    """
    for device, (place, entry) in enumerate(zip(replicas.places, replicas.entries, strict=True)):
        if entry not in gone and place in lanes:
            receive(replicas, device, replicas.table.space, lanes[place], may_be_put_off=may_be_put_off)


# -- entering ----------------------------------------------------------------------------------------


def _count(
    gate: Marks, places: tuple[DevicePlace, ...], items: Sequence[MapItem], lane: Lane, counter: Counter
) -> Together | None:
    """Count a construct whose items all are in sets of these places, and copy nothing; else do nothing: None."""
    search = places[0].table.search
    sets: list[ReplicaSet] = []
    for item in items:
        entry = search(item.section, item)[0]
        if entry is None or item.always or item.map_type is MapType.DELETE or not item.section.run_nbytes:
            return None
        replicas = entry.replicas
        if replicas is None or replicas.places != places:
            return None
        sets.append(replicas)
    if not sets:
        return None
    plans = [
        CountedEnter(items, counter, [replicas.entries[device] for replicas in sets]) for device in range(len(places))
    ]
    waits: list[Any] = []
    for place, plan in zip(places, plans, strict=True):
        waits += before(place, plan.parts())
    lane.wait_for(waits)
    for place, plan in zip(places, plans, strict=True):
        place.table.count(plan)
    together = Together(gate, places, items, plans)
    together.only_counts = True
    return together


def _plans(places: Sequence[DevicePlace], items: Sequence[MapItem], found: Sorted, counter: Counter) -> list[Plan]:
    """Plan the entry on each place; what joins on the primary is mirrored on the others."""
    first, *rest = places
    plan = first.table.enter(items, counter)
    mirrors = [mirror_of(entry) for entry in found.joining]
    others = [
        without_copies(item) if entry in found.joining else item
        for number, (item, entry) in enumerate(zip(items, plan.entries, strict=True))
        if number not in found.alone
    ]
    return [plan, *[place.table.enter([*others, *mirrors], counter) for place in rest]]


def _steps_of(place: DevicePlace, plan: Plan) -> Steps:
    try:
        return entry_steps(plan, place.ledger)
    except PutOffError:
        raise PutOffError(place) from None


def _allocated(places: Sequence[DevicePlace], steps: Sequence[Steps], lanes: Sequence[Lane]) -> list[list[Any]]:
    """Return the buffers of new entries on each place.

    Raises
    ------
    PutOffError
        There is no memory, and something is in flight that may free some.
    DeviceMemoryError
    """
    buffers: list[list[Any]] = []
    for place, step, lane in zip(places, steps, lanes, strict=True):
        try:
            buffers.append(place.allocate(step.created, lane))
        except DeviceMemoryError as error:
            buffers.clear()  # the traceback refers to this frame
            if place is not places[0] and place.in_flight:
                raise PutOffError(place) from None
            error.args = (f"{error}; devices=[{numbers_of(places)}] needs a replica on each of them", *error.args[1:])
            raise
    return buffers


def _make_sets(
    places: Sequence[DevicePlace], items: Sequence[MapItem], plans: Sequence[Plan], joining: Sequence[Entry]
) -> None:
    """Make sets of entries that are new on all places, and of those that join."""
    made = {item.section: item for item in reversed(items)}
    everywhere = {entry.section for entry in plans[-1].created}
    for entry in plans[0].created:
        if entry.section in everywhere:
            _set_at(places, made[entry.section]).join()
    for entry in joining:
        replicas = _set_at(places, mirror_of(entry))
        replicas.table.mark_written(replicas.table.space, 0)
        replicas.join()


def _set_at(places: Sequence[DevicePlace], item: MapItem) -> ReplicaSet:
    entries = [place.table.at(item.section) for place in places]
    return ReplicaSet(item, places, entries)  # type: ignore[arg-type]  # all have it


def _undo(together: Together, lane: Lane) -> list[object]:
    places, plans = together.places, together.plans
    removed = [place.table.undo(plan) for place, plan in zip(places, plans, strict=True)]
    gone = {entry for entries in removed for entry in entries}
    for replicas in replicas_of(gone):
        with suppress(DeviceLostError):
            dissolve(replicas, gone, {places[0]: lane})
        replicas.leave()
    released = Released((), places[0].device)
    for place, plan, entries in zip(places, plans, removed, strict=True):
        released.add(entries, place.device)
        lane.wait_for(place.ledger.before_end(entries))
        used = [part for part in plan.parts() if part[0] not in gone]
        if used:
            place.ledger.note(lane.mark(), used)
    return [released, *(item.host for item in together.items)]
