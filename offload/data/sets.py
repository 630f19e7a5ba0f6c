"""Constructs on several devices: how one task of the primary maps, unmaps and updates items on all of them.

Theory of operation
-------------------
A construct on one place (`offload.data.environment.DataEnvironment`) and one on several take the same steps by the same
plans: each place plans, asks its ledger, allocates and commits. On several all is done while the locks of all places
are held, taken in the order of device numbers, so that a construct that raises has changed nothing on any device. The
exception is a copy that fails when all has been committed, as on a lost device: then the entry is undone.

The lanes of the other devices are a `Fork` of the task's own, which has joined them when the launch ends. An entry that
only counts needs no fork: the task's own lane follows the points that the ledgers of all places name, and its end is
their end. Copies that threads make (`StagedCopy`) begin when the primary's lane has got to where all lanes meet. They
go on in the order of their own lanes, so that the fork lasts until `DataEnvironment.settle`.

A set ends when one of its entries goes. If all go, its items are copied to the host, each part from a device that has
it. One may stay, because constructs without ``devices=`` have counted it, or a loop has given replicas to an entry of
the primary. That one is completed and is an ordinary entry from then on. It is not copied to the host, since it is
still mapped.

*Lost devices.* A construct does not wait for a lost device, nor for work that it holds up, and copies nothing from it.
Data that only a lost device had is a failure, raised when the rest has been copied and released. If the primary is
lost, its lane runs nothing any more: then nothing is copied, and all is released.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from offload.data.exchanges import before, receive
from offload.data.forks import Fork
from offload.data.gathering import gather
from offload.data.items import check_writeable
from offload.data.ledger import OPEN, PutOffError, is_open
from offload.data.maptypes import MapType
from offload.data.membership import mirror_of, set_of, sort_items, without_copies
from offload.data.release import Released
from offload.data.replicas import ReplicaSet, locked, numbers_of, replicas_of
from offload.data.steps import entry_steps, raise_first
from offload.errors import DeviceLostError, DeviceMemoryError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from offload.arrays.sections import Section
    from offload.data.entries import Counter, Entry
    from offload.data.forks import Marks
    from offload.data.items import MapItem
    from offload.data.membership import Sorted
    from offload.data.plans import Part, Plan
    from offload.data.protocols import AnyPlace
    from offload.devices.streams import Lane, Point


class DeviceSet(NamedTuple):
    """The data environment of several devices, as a construct names them: a `DataEnvironment` for all of them."""

    # The primary first.
    places: tuple[AnyPlace, ...]
    gate: Marks
    # Nobody has named these devices: what cannot be in a set is the primary's alone.
    is_default: bool = False

    def enter(
        self, items: Sequence[MapItem], lane: Lane, staged: list[Any], counter: Counter, *, adopts: bool = False
    ) -> Plan:
        """Map the items of a construct on several places; return the primary's plan, which has those of the others.

        ``lane`` is the primary's; otherwise as `DataEnvironment.enter`. With ``adopts`` entries present on the primary
        alone get replicas, which end with this construct's exit.

        Raises
        ------
        PutOffError, MapError, DeviceMemoryError
            Nothing has changed.
        """
        places = self.places
        with locked(places):
            counted = self._count(items, lane, counter)
            if counted is not None:
                return counted
            # Nothing has changed up to the commits: each step until then may raise.
            found = sort_items(places, items, adopts=adopts, is_default=self.is_default)
            plans = _plans(places, items, found, counter)
            for place, plan in zip(places, plans, strict=True):
                _complete_plan(place, plan)
            # Without work on the other devices their lanes would only be marked and followed.
            is_forked = any(plan.created or plan.copies_in for plan in plans[1:])
            fork = Fork(self.gate, lane, places if is_forked else places[:1])
            lanes = [*fork.lanes] if is_forked else [lane] * len(places)
            buffers: list[list[Any]] = []
            try:
                _allocate(places, plans, lanes, buffers)
                for plan, its_lane in zip(plans, lanes, strict=True):
                    its_lane.wait_for(plan.waits)
            except BaseException:
                buffers.clear()  # the traceback refers to this frame
                fork.give_back()
                raise
            # From here on nothing raises but a copy, on a lost device.
            for place, plan, its_lane, its_buffers in zip(places, plans, lanes, buffers, strict=True):
                place.table.commit(plan, its_buffers)
                for entry, _ in plan.writes:
                    entry.change(its_lane)
            _make_sets(places, items, plans, found.joining)
            together = self._together(plans)
            try:
                for place, plan, its_lane in zip(places, plans, lanes, strict=True):
                    place.copy_in(plan, its_lane, staged)
                for item, entry in together.copies_in:
                    _note_update(entry.replicas, item)
                together.point = _end(fork, places, staged, [((), plan.writes, ()) for plan in plans])
            except BaseException:
                staged.clear()
                fork.give_back()
                with suppress(DeviceLostError):
                    places[0].keep(lane, _undo(places, together, lane))
                raise
            return together

    def undo(self, plan: Plan, lane: Lane) -> list[object]:
        """Undo an entry as `DataEnvironment.undo` does, on several places."""
        with locked(self.places):
            return _undo(self.places, plan, lane)

    def exit(
        self,
        items: Sequence[MapItem],
        lane: Lane,
        staged: list[Any],
        counter: Counter,
        *,
        region: Plan | None = None,
        ends_region: bool = False,
        finalizes: bool = False,
        may_be_put_off: bool = False,
    ) -> tuple[list[object], Point | None]:
        """Unmap the items of a construct on several places, and enqueue the copies to the host.

        Parameters, returns and errors as for `DataEnvironment.exit`, and a `MapError` for an item that is in a set of
        other places, or in none; where the devices are the default, one in none is the primary's alone.
        """
        places = self.places
        with locked(places):
            if region is not None and (used := self._count_down(region, lane)) is not None:
                return [], used
            if ends_region:
                # An item that was deleted inside of the region, or whose set has ended, is over.
                items = [item for item in items if _is_left(places, item, is_default=self.is_default)]
            others = sort_items(places, items, is_default=self.is_default).others(items)
            plans = [
                place.table.exit(its_items, counter, ends_region=ends_region, finalizes=finalizes)
                for place, its_items in zip(places, [items, *[others] * (len(places) - 1)], strict=True)
            ]
            # An item is copied once, by the devices that have its parts. The plan of the primary says which items are.
            leaving = _Leaving(places, plans, lane)
            if not ends_region:
                for item, _ in leaving.copies:
                    check_writeable(item)
            if may_be_put_off:
                leaving.refuse_open()
            fork = leaving.begin(self.gate, staged, may_be_put_off=may_be_put_off)
            for place, plan in zip(places, plans, strict=True):
                place.table.commit(plan)
            # The entries that stay have been completed, and are ordinary ones from now on.
            for replicas in leaving.ending:
                replicas.leave()
            point = None
            if fork is not None:
                try:
                    point = _end(fork, places, staged, leaving.parts())
                except DeviceLostError as error:
                    fork.give_back()
                    leaving.failures.append(error)
        # One object for all devices: the task looks for it in the first place of what it holds.
        released = Released((), places[0].device)
        for place, plan in zip(places, plans, strict=True):
            released.add(plan.removed, place.device)
        if leaving.failures:
            _finish(places[0], lane, staged)
            released.retire()
            raise_first(leaving.failures)
        return [released, *[item.host for item in items]], point

    def update(
        self, items: Sequence[MapItem], lane: Lane, staged: list[Any], known: object = None
    ) -> tuple[list[object], Point | None]:
        """Copy items to all devices of their sets, or to the host, as their map types say.

        Parameters, returns and errors as for `DataEnvironment.update`, and a `MapError` as for `exit`. Nothing is
        remembered.
        """
        places = self.places
        with locked(places):
            others = sort_items(places, items, is_default=self.is_default, directive="target_update").others(items)
            plans = [places[0].table.update(items), *[place.table.update(others) for place in places[1:]]]
            first = plans[0].copies
            for place, plan in zip(places, plans, strict=True):
                lane.wait_for(before(place, plan.reads, plan.writes))
            fork = Fork(self.gate, lane, places if replicas_of([entry for _, entry in first]) else places[:1])
            failures: list[Exception] = []
            try:
                lanes = dict(zip(places, fork.lanes, strict=False))
                for item, entry in plans[0].copies_out:
                    if entry.replicas is None:
                        places[0].copy(
                            item.host, places[0].view(entry, item.host, item.address), lane, staged, item.label
                        )
                    else:
                        gather(entry.replicas, item, lanes, staged, failures, may_be_put_off=True)
                for place, plan, its_lane in zip(places, plans, fork.lanes, strict=False):
                    for entry, _ in plan.writes:
                        entry.change(its_lane)
                    place.copy_in(plan, its_lane, staged)
                for item, entry in plans[0].copies_in:
                    _note_update(entry.replicas, item)
                point = _end(fork, places, staged, [(plan.reads, plan.writes, ()) for plan in plans])
            except BaseException:
                staged.clear()
                fork.give_back()
                raise
        if failures:
            _finish(places[0], lane, staged)
            raise_first(failures)
        return [thing for plan in plans for thing in plan.held], point

    def _count_down(self, region: Plan, lane: Lane) -> Point | None:
        """End a region that has only counted, if nothing goes: return up to where it has used all; None: do nothing."""
        places, plans = self.places, region.plans
        if not all(at.table.stays(its_plan) for at, its_plan in zip(places, plans, strict=True)):
            return None
        for at, its_plan in zip(places, plans, strict=True):
            at.table.leave(its_plan)
        point = lane.mark()
        for at, its_plan in zip(places, plans, strict=True):
            at.ledger.release((lane, its_plan.uses, (), ()), point)
        return point

    def _count(self, items: Sequence[MapItem], lane: Lane, counter: Counter) -> Plan | None:
        """Count a construct whose items all are in sets of these places, and copy nothing; else do nothing: None."""
        places = self.places
        search = places[0].table.search
        for item in items:
            entry = search(item.section, item)[0]
            if entry is None or item.always or item.map_type is MapType.DELETE or not item.section.run_nbytes:
                return None
            replicas = entry.replicas
            if replicas is None or replicas.places != places:
                return None
        if not items:
            return None
        # Each table has these entries, so that each plan only counts.
        plans = [place.table.enter(items, counter) for place in places]
        waits: list[Any] = []
        for place, plan in zip(places, plans, strict=True):
            waits += before(place, plan.uses)
        lane.wait_for(waits)
        for place, plan in zip(places, plans, strict=True):
            place.table.commit(plan)
        together = self._together(plans)
        together.only_counts = True
        return together

    def _together(self, plans: Sequence[Plan]) -> Plan:
        """Return the plan of the primary, with those of the other places, and the sets that the items are in."""
        first, *others = plans
        first.on, first.others = self, others
        first.sets = [None if entry is None else entry.replicas for entry in first.entries]
        first.only_counts = False
        return first


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
            # What the entries that go have alone would be lost.
            receive(replicas, device, replicas.table.space, lanes[place], may_be_put_off=may_be_put_off)


# -- entering ----------------------------------------------------------------------------------------


def _plans(places: Sequence[AnyPlace], items: Sequence[MapItem], found: Sorted, counter: Counter) -> list[Plan]:
    """Plan the entry on each place; entries that join on the primary are mirrored on the others."""
    first, *rest = places
    plan = first.table.enter(items, counter)
    mirrors = [mirror_of(entry) for entry in found.joining]
    others = [
        without_copies(item) if entry in found.joining else item
        for number, (item, entry) in enumerate(zip(items, plan.entries, strict=True))
        if number not in found.alone
    ]
    return [plan, *[place.table.enter([*others, *mirrors], counter) for place in rest]]


def _complete_plan(place: AnyPlace, plan: Plan) -> None:
    try:
        entry_steps(plan, place.ledger)
    except PutOffError:
        raise PutOffError(place) from None


def _allocate(
    places: Sequence[AnyPlace], plans: Sequence[Plan], lanes: Sequence[Lane], buffers: list[list[Any]]
) -> None:
    """Add the buffers of new entries on each place.

    Raises
    ------
    PutOffError
        There is no memory, and something is in flight that may free some.
    DeviceMemoryError
    """
    for place, plan, lane in zip(places, plans, lanes, strict=True):
        try:
            buffers.append(place.allocate(plan.created, lane))
        except DeviceMemoryError as error:
            if place is not places[0] and place.in_flight:
                raise PutOffError(place) from None
            error.args = (f"{error}; devices=[{numbers_of(places)}] needs a replica on each of them", *error.args[1:])
            raise


def _make_sets(
    places: Sequence[AnyPlace], items: Sequence[MapItem], plans: Sequence[Plan], joining: Sequence[Entry]
) -> None:
    """Make sets of entries that are new on all places, and of those that join."""
    made = {item.section: item for item in reversed(items)}
    # An entry that the primary has alone is in no set. Any of the other plans tells.
    everywhere = {entry.section for entry in plans[-1].created}
    for entry in plans[0].created:
        if entry.section in everywhere:
            _set_at(places, made[entry.section]).join()
    for entry in joining:
        replicas = _set_at(places, mirror_of(entry))
        replicas.table.mark_written(replicas.table.space, 0)
        replicas.join()


def _set_at(places: Sequence[AnyPlace], item: MapItem) -> ReplicaSet:
    entries = [place.table.at(item.section) for place in places]
    return ReplicaSet(item, places, entries)  # type: ignore[arg-type]  # all have it


def _note_update(replicas: ReplicaSet | None, item: MapItem) -> None:
    """Note that an item was copied from the host to all devices; of one with gaps in its box it tells nothing new."""
    if replicas is not None:
        box = replicas.box(item)
        if replicas.is_all(item, box):
            replicas.table.mark_written(box)


def _undo(places: Sequence[AnyPlace], plan: Plan, lane: Lane) -> list[object]:
    plans = plan.plans
    removed = [at.table.undo(its_plan) for at, its_plan in zip(places, plans, strict=True)]
    gone = {entry for entries in removed for entry in entries}
    for replicas in replicas_of(gone):
        with suppress(DeviceLostError):
            dissolve(replicas, gone, {places[0]: lane})
        replicas.leave()
    released = Released((), places[0].device)
    for at, its_plan, entries in zip(places, plans, removed, strict=True):
        released.add(entries, at.device)
        lane.wait_for(at.ledger.acquire(ended=entries))
        used = [part for part in its_plan.uses if part[0] not in gone]
        if used:
            at.ledger.release((lane, used, (), ()), lane.mark())
    return [released, *(item.host for item in plan.items)]


# -- leaving -----------------------------------------------------------------------------------------


class _Leaving:
    """The plans of an exit on several places."""

    def __init__(self, places: tuple[AnyPlace, ...], plans: list[Plan], lane: Lane) -> None:
        self.failures: list[Exception] = []
        # The entries that go, and the sets of which an entry goes.
        self.gone = {entry for plan in plans for entry in plan.removed}
        self.ending = replicas_of(self.gone)
        # Places of lost devices.
        self.lost = [place for place in places if _is_lost(place)]
        self._places = places
        self._plans = plans
        self._lane = lane
        copies: dict[Any, tuple[MapItem, Entry]] = {}
        for item, entry in zip(plans[0].items, plans[0].entries, strict=True):
            if entry is not None and item.map_type.copies_out and (item.always or self._goes(entry)):
                copies.setdefault(item.section, (item, entry))
        # Copies to the host, each of the same bytes once, and the entries of the primary.
        self.copies = [*copies.values()]

    def _goes(self, entry: Entry) -> bool:
        """Tell whether an entry of the primary goes, and so do all others of its set."""
        return all(each in self.gone for each in (entry.replicas.entries if entry.replicas else (entry,)))

    def refuse_open(self) -> None:
        """Raise `PutOffError` where an entry that is concerned is open."""
        for place, plan in zip(self._places, self._plans, strict=True):
            for entry, *_ in plan.counts:
                if is_open(entry):
                    raise PutOffError(place)

    def begin(self, gate: Marks, staged: list[Any], *, may_be_put_off: bool) -> Fork | None:
        """Have the lane follow all uses of entries that go or are copied; enqueue the copies. None: it runs nothing.

        Raises
        ------
        PutOffError
            Only if it ``may_be_put_off``; only the parts in which devices are current may have changed.
        """
        if self._places[0] in self.lost:
            self.failures += [_lost(self._places[0], item) for item, _ in self.copies]
            return None
        devices = {place.device for place in self.lost}
        self._lane.wait_for([point for point in self._before() if point.lane.device not in devices])
        sound = [place for place in self._places if place not in self.lost]
        fork = Fork(gate, self._lane, sound if self._is_forked() else sound[:1], may_be_put_off=may_be_put_off)
        lanes = dict(zip(sound, fork.lanes, strict=False))
        try:
            for replicas in self._sets():
                if self.lost:
                    replicas.table.lose([n for n, place in enumerate(replicas.places) if place in self.lost])
            for replicas in self.ending:
                dissolve(replicas, self.gone, lanes, may_be_put_off=may_be_put_off)
            for item, entry in self.copies:
                if entry.replicas is None:
                    self._copy_alone(item, entry, staged)
                else:
                    gather(entry.replicas, item, lanes, staged, self.failures, may_be_put_off=may_be_put_off)
        except PutOffError:
            staged.clear()
            fork.give_back()
            raise
        except DeviceLostError as error:
            self.failures.append(error)
        return fork

    def parts(self) -> list[tuple[list[Part], list[Part], list[Section]]]:
        """Return for each place the uses of entries that stay, and the host storage that entries that go copy to."""
        back = [item.section for item, entry in self.copies if entry in self.gone]
        return [(_used(plan, self.gone), [], back) for plan in self._plans]

    def _sets(self) -> list[ReplicaSet]:
        return [*dict.fromkeys([*self.ending, *replicas_of([entry for _, entry in self.copies])])]

    def _copy_alone(self, item: MapItem, entry: Entry, staged: list[Any]) -> None:
        """Enqueue the copy of an item that is the primary's alone."""
        place, host = self._places[0], item.host
        try:
            check_writeable(item)
            place.copy(host, place.view(entry, host, item.address), self._lane, staged, item.label)
        except Exception as error:  # noqa: BLE001  # raised when all have been tried
            self.failures.append(error)

    def _is_forked(self) -> bool:
        """Tell whether other devices have something to do than the primary."""
        first = self._plans[0].entries
        stays = [entry for replicas in self.ending for entry in replicas.entries if entry not in self.gone]
        return bool(replicas_of([entry for _, entry in self.copies])) or any(entry not in first for entry in stays)

    def _before(self) -> list[Any]:
        """Return the places that have to be followed."""
        concerned = {*self.gone, *[entry for _, entry in self.copies]}
        concerned.update(entry for replicas in self._sets() for entry in replicas.entries)
        found: list[Any] = []
        for place, plan in zip(self._places, self._plans, strict=True):
            if place not in self.lost:
                found += place.ledger.acquire(ended=[entry for entry, *_ in plan.counts if entry in concerned])
        return found


def _used(plan: Plan, gone: Collection[Entry]) -> list[Part]:
    """Return the parts that an exit leaves present."""
    pairs = zip(plan.items, plan.entries, strict=True)
    return [(entry, item.section) for item, entry in pairs if entry is not None and entry not in gone]


def _is_left(places: Sequence[AnyPlace], item: MapItem, *, is_default: bool) -> bool:
    """Tell whether an item of a region is still in a set of these places, or still the primary's alone."""
    entries = [place.table.search(item.section, item)[0] for place in places]
    first = entries[0]
    return set_of(places, entries) is not None or (is_default and first is not None and first.replicas is None)


def _is_lost(place: AnyPlace) -> bool:
    """Tell whether work on a device is known to have failed."""
    for lane in place.pool.lanes[:1]:  # any of them says so
        try:
            place.device.check(lane.stream)
        except DeviceLostError:
            return True
    return False


def _lost(place: AnyPlace, item: MapItem) -> DeviceLostError:
    return DeviceLostError(
        f"{item.label} is not copied to the host, because device {place.device.number}, which should have copied it, "
        "is lost"
    )


def _end(
    fork: Fork,
    places: Sequence[AnyPlace],
    staged: list[Any],
    parts: Iterable[tuple[Sequence[Part], Sequence[Part], Sequence[Section]]],
) -> Point | None:
    """Join a fork, and enter the uses and writes of each place, and the copies back of entries that have gone.

    Return where it ends; None where copies are staged: then all is open until the primary settles. Under the locks of
    all places.
    """
    lane = fork.lanes[0]
    point = OPEN
    if staged:
        fork.meet()
        places[0].hold(fork, places[1:])
    else:
        fork.join()
        point = lane.mark()
    for place, (uses, writes, back) in zip(places, parts, strict=True):
        claim = lane, uses, writes, back
        if staged:
            place.open(claim)
        else:
            place.ledger.release(claim, point)
    return None if staged else point


def _finish(place: AnyPlace, lane: Lane, staged: list[Any]) -> None:
    """Wait for the copies of a construct that fails: its task fails at once, and the copied data must be there."""
    for copy in staged:
        with suppress(Exception):  # the first failure is raised
            copy.run()
    staged.clear()
    with suppress(DeviceLostError):
        place.settle(lane)
        lane.stream.synchronize()
