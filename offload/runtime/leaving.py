"""Leaving and updating replica sets: how one task of the primary unmaps items on several devices, and copies them.

Theory of operation
-------------------
As at the entry (`offload.runtime.together`) all is done while the locks of all places are held, and what can be put off
comes before what changes anything.

A set ends where one of its entries goes. Where all go, its items are copied to the host, each part from a device that
has it. Where one stays, because constructs without ``devices=`` have counted it, or a loop has given replicas to what
was present on the primary, that one is completed and is an ordinary entry from then on; nothing is copied to the host,
since it is still mapped.

*Lost devices.* Nothing that one of them holds up is waited for, and nothing is copied from it. What it alone had is a
failure, raised when the rest has been copied and released. Where the primary is lost, its lane runs nothing any more:
then nothing is copied, and all is released.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from offload.data.entries import Counter
from offload.data.environment import raise_first
from offload.data.exchanges import before
from offload.data.gathering import gather
from offload.data.ledger import PutOffError, is_open
from offload.data.membership import set_of, sort_items
from offload.data.released import Released
from offload.data.replicas import locked, replicas_of
from offload.data.shared import check_writeable
from offload.errors import DeviceLostError
from offload.runtime.forks import Fork
from offload.runtime.together import dissolve, end, note_update, settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.arrays.sections import Section
    from offload.data.entries import Entry
    from offload.data.items import MapItem
    from offload.data.ledger import Part
    from offload.data.plans import Plan
    from offload.data.replicas import ReplicaSet
    from offload.devices.streams import Lane, Point
    from offload.runtime.forks import Marks
    from offload.runtime.place import DevicePlace
    from offload.runtime.works import Launch


def leave_sets(
    launch: Launch,
    gate: Marks,
    places: tuple[DevicePlace, ...],
    items: Sequence[MapItem],
    lane: Lane,
    staged: list[Any],
    counter: Counter = Counter.DYNAMIC,
    *,
    ends_region: bool = False,
    finalizes: bool = False,
    may_be_put_off: bool = False,
    is_default: bool = False,
) -> tuple[list[object], Point | None]:
    """Unmap the items of a construct on several places, and enqueue the copies to the host.

    Parameters, returns and errors as for `DataEnvironment.exit`, and a `MapError` for an item that is in a set of other
    places, or in none; where ``is_default``, nobody having named the places, one in none is the first's alone.
    ``launch`` is that of a task of the first place, on ``lane``.
    """
    with locked(places):
        if ends_region:
            items = [item for item in items if _is_left(places, item, is_default=is_default)]
        others = sort_items(places, items, is_default=is_default).others(items)
        plans = [
            place.table.exit(its_items, counter, ends_region=ends_region, finalizes=finalizes)
            for place, its_items in zip(places, [items, *[others] * (len(places) - 1)], strict=True)
        ]
        leaving = _Leaving(places, plans, lane)
        if not ends_region:
            for item, _ in leaving.copies:
                check_writeable(item)
        if may_be_put_off:
            leaving.refuse_open()
        fork = leaving.begin(gate, staged, may_be_put_off=may_be_put_off)
        for place, plan in zip(places, plans, strict=True):
            place.table.commit(plan)
        for replicas in leaving.ending:
            replicas.leave()
        point = None
        if fork is not None:
            try:
                point = end(launch, fork, places, staged, leaving.parts())
            except DeviceLostError as error:
                fork.give_back()
                leaving.failures.append(error)
    released = Released((), places[0].device)
    for place, plan in zip(places, plans, strict=True):
        released.add(plan.removed, place.device)
    if leaving.failures:
        _finish(launch, places, lane, staged)
        released.retire()
        raise_first(leaving.failures)
    launch.spread(places[1:])
    return [released, *[item.host for item in items]], point


def update_sets(
    launch: Launch,
    gate: Marks,
    places: tuple[DevicePlace, ...],
    items: Sequence[MapItem],
    lane: Lane,
    staged: list[Any],
    *,
    is_default: bool = False,
) -> tuple[list[object], Point | None]:
    """Copy items to all devices of their sets, or to the host, as their map types say.

    Parameters, returns and errors as for `DataEnvironment.update`, and a `MapError` as for `leave_sets`.
    """
    with locked(places):
        others = sort_items(places, items, is_default=is_default, directive="target_update").others(items)
        copies = [places[0].table.update(items), *[place.table.update(others) for place in places[1:]]]
        first = copies[0]
        parts = []
        for place, its_copies in zip(places, copies, strict=True):
            writes = [(entry, item.section) for item, entry in its_copies if item.map_type.copies_in]
            uses = [(entry, item.section) for item, entry in its_copies if not item.map_type.copies_in]
            lane.wait_for(before(place, uses, writes))
            parts.append((uses, writes, ()))
        fork = Fork(gate, lane, places if replicas_of([entry for _, entry in first]) else places[:1])
        failures: list[Exception] = []
        try:
            lanes = dict(zip(places, fork.lanes, strict=False))
            for item, entry in first:
                if item.map_type.copies_in:
                    continue
                if entry.replicas is None:
                    places[0].copy(item.host, places[0].view(entry, item.host, item.address), lane, staged, item.label)
                else:
                    gather(entry.replicas, item, lanes, staged, failures, may_be_put_off=True)
            for place, its_copies, its_lane in zip(places, copies, fork.lanes, strict=False):
                for item, entry in its_copies:
                    if item.map_type.copies_in:
                        entry.change(its_lane)
                        place.copy(place.view(entry, item.host, item.address), item.host, its_lane, staged, item.label)
            for item, entry in first:
                if item.map_type.copies_in:
                    note_update(entry.replicas, item)
            point = end(launch, fork, places, staged, parts)
        except BaseException:
            staged.clear()
            fork.give_back()
            raise
    if failures:
        _finish(launch, places, lane, staged)
        raise_first(failures)
    launch.spread(places[1:])
    return [entry.buffer for its_copies in copies for _, entry in its_copies] + [item.host for item in items], point


class _Leaving:
    """What an exit on several places is about to do.

    Attributes
    ----------
    copies : list of (MapItem, Entry)
        Copies to the host, each of the same bytes once, and the entries of the primary.
    ending : list of ReplicaSet
        Those of which an entry goes.
    failures : list of Exception
    gone : set of Entry
        The entries that go.
    lost : list of DevicePlace
        Places of lost devices.
    """

    def __init__(self, places: tuple[DevicePlace, ...], plans: list[Plan], lane: Lane) -> None:
        self.failures: list[Exception] = []
        self.gone = {entry for plan in plans for entry in plan.removed}
        self.ending = replicas_of(self.gone)
        self.lost = [place for place in places if _is_lost(place)]
        self._places = places
        self._plans = plans
        self._lane = lane
        copies: dict[Any, tuple[MapItem, Entry]] = {}
        for item, entry in zip(plans[0].items, plans[0].entries, strict=True):
            if entry is not None and item.map_type.copies_out and (item.always or self._goes(entry)):
                copies.setdefault(item.section, (item, entry))
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
        """Have the lane follow all that uses what goes or is copied, and enqueue the copies; None: it runs nothing.

        Raises
        ------
        PutOffError
            Only if it ``may_be_put_off``, and nothing has changed but which device is current where.
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
        """Return for each place what is used of what stays, and the host's storage that is copied to of what goes."""
        back = [item.section for item, entry in self.copies if entry in self.gone]
        return [([part for part in plan.parts() if part[0] not in self.gone], [], back) for plan in self._plans]

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
                found += place.ledger.before_end([entry for entry, *_ in plan.counts if entry in concerned])
        return found


def _is_left(places: Sequence[DevicePlace], item: MapItem, *, is_default: bool) -> bool:
    """Tell whether an item of a region is still in a set of these places, or still the primary's alone."""
    entries = [place.table.search(item.section, item)[0] for place in places]
    first = entries[0]
    return set_of(places, entries) is not None or (is_default and first is not None and first.replicas is None)


def _is_lost(place: DevicePlace) -> bool:
    """Tell whether work on a device is known to have failed."""
    for lane in place.pool.lanes[:1]:  # any of them says so
        try:
            place.device.check(lane.stream)
        except DeviceLostError:
            return True
    return False


def _lost(place: DevicePlace, item: MapItem) -> DeviceLostError:
    return DeviceLostError(
        f"{item.label} is not copied to the host: device {place.device.number}, which would have done it, is lost"
    )


def _finish(launch: Launch, places: Sequence[DevicePlace], lane: Lane, staged: list[Any]) -> None:
    """Wait for the copies of a construct that fails: its task fails at once, and what they copy must be there."""
    for copy in staged:
        with suppress(Exception):  # the first failure is raised
            copy.run()
    staged.clear()
    with suppress(DeviceLostError):
        if launch.fork is not None:
            settle(launch, places, lane)
        lane.stream.synchronize()
