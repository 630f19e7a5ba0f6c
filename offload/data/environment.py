"""The data environment of one device: its mappings, and the constructs that change them on its streams.

Theory of operation
-------------------
The present table plans a construct, and the ledger has the points that it must follow (`offload.data.steps`). One
interpreter carries out all plans: `_commit` under the lock, which is held from the plan on, and `_carry_out` outside of
it, since a copy of pageable memory takes as long as the copy. Meanwhile the copies are open in the ledger, and another
construct that would have to follow them is put off.

The plan of an update may be carried out by several launches (`KnownWork`), so it stays as it is: `_begin_update` takes
the place of `_commit`. If stored calls enqueue all copies, it does that too, and no access is open.

Copies that only threads can make (`StagedCopy`) are given to the caller, who has them carried out and then calls
`DataEnvironment.settle`.

*Buffers used again.* The buffers of unmapped entries go back to the device when the task of the exit is complete. Until
then the next entry on the same lane takes those of its size (`Released.take`): the stream keeps the order. An entry
that another lane has used, or whose storage the program has been given, is excluded, and the device says
whether somebody still has an array over the memory.

*Replicas.* A construct on one device that finds an entry of a replica set plans again, under the locks of all places of
the set. The items that it uses are made current here first, by copies on its own lane. The items that it writes are
current here alone from then on: that is every item except one mapped ``to`` without ``always``, since a body is not
analysed. No construct on one device ends an entry of a set: the others would be left behind.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import array_section
from offload.data.entries import Counter, correspond
from offload.data.exchanges import complete, mark_written
from offload.data.items import check_writeable
from offload.data.ledger import OPEN, DuePoint, Ledger, is_over
from offload.data.maptypes import MapType
from offload.data.memo import Layouts
from offload.data.present_table import PresentTable, are_in
from offload.data.release import Released
from offload.data.replicas import asked, locked_for, replicas_of
from offload.data.steps import entry_steps, exit_steps, raise_first
from offload.errors import DeviceLostError, DeviceMemoryError, MapError
from offload.events.observer import NO_CALLS, Calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from offload.data.entries import Entry
    from offload.data.forks import Fork
    from offload.data.items import MapItem
    from offload.data.ledger import Claim
    from offload.data.plans import Enqueuers, ItemCopy, KnownWork, Plan
    from offload.data.protocols import AnyEnvironment
    from offload.data.replicas import ReplicaSet
    from offload.data.versions import Contents
    from offload.devices.base import Device
    from offload.devices.streams import Lane, Point

BYTE = np.dtype("u1")
"""The dtype of buffers."""

# Device arrays that an entry keeps: those of the tiles and edges of one array, mostly.
_MOST_VIEWS = 64

_host_of = attrgetter("host")


class DataEnvironment:
    """The mappings of one device, and the constructs that change them."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.table = PresentTable(device.number)
        # Whether the device carries out its work later, perhaps in another process, and may then not have done it.
        self.plans: bool = getattr(device, "plans", False)
        # Held from the plan of a construct to its commit.
        self.lock = threading.Lock()
        self.ledger = Ledger()
        # The replica sets that entries of the table are in.
        self.sets: list[Any] = []
        # The state of the process's declarations that the device has taken in.
        self.declared = 0
        # The calls of observers, and the same if they are told of launches; else None (`offload.runtime.observing`).
        self.calls: Calls = NO_CALLS
        self.notify: Calls | None = None
        # By lanes: the accesses of the construct there that are open; the lanes and places that it has besides; what a
        # construct that has failed has left in use.
        self._open: dict[Lane, Claim] = {}
        self._held: dict[Lane, tuple[Fork, Sequence[AnyEnvironment]]] = {}
        self._kept: dict[Lane, list[Any]] = {}

    # -- constructs ----------------------------------------------------------------------------------
    def enter(
        self,
        items: Sequence[MapItem],
        lane: Lane,
        staged: list[Any],
        counter: Counter = Counter.DYNAMIC,
        before: Plan | None = None,
        changed: Callable[[], Sequence[int]] | None = None,
        is_region: bool = False,
        *,
        states: Sequence[object] | None = None,
    ) -> Plan | None:
        """Map the items of one construct and enqueue their copies-in. Staged copies go to ``staged``, empty yet.

        The plan's ``point`` is the end of the copies, unless they are staged, or there are none. If it ``is_region``,
        which this launch will end, and its body only enqueues, the end is marked on demand (`DuePoint`).

        Parameters
        ----------
        before : Plan, optional
            The plan of an earlier entry of the same items, which only counted. It is carried out once more, and
            returned, unless the entry would do more now.
        states : sequence, optional
            The items are in replica sets whose tables are to be in these states, and the region leaves them so. If they
            are not, or if the entry would do more than count, nothing changes, and None is returned.
        changed : callable, optional
            Returns the numbers of the items that the construct writes to.

        Raises
        ------
        PutOffError, MapError, DeviceMemoryError
            Nothing has changed.
        """
        sets: Sequence[ReplicaSet] = ()
        while True:
            with locked_for(self, sets) if sets else self.lock:
                may_share = states is None and self.sets
                plan = before
                if plan is None or plan.state is not self.table.state or (may_share and replicas_of(plan.counted)):
                    plan = self.table.enter(items, counter)
                if states is not None and not (plan.only_counts and are_in(plan.entries, states)):
                    return None
                if plan is before:
                    for entry in plan.counted:
                        if entry.writes:
                            self._follow(plan, lane, prunes=states is not None)
                            break
                    self.table.commit(plan)
                    self._note_changed(plan, changed, lane)
                    return plan
                found = replicas_of(plan.counted) if may_share else ()
                if not found or all(one in sets for one in found):
                    used: list[ItemCopy] = []
                    if found:
                        pairs = zip(items, plan.entries, strict=True)
                        used = [(item, entry) for item, entry in pairs if entry is not None]
                        complete(self, used, lane)
                        plan.only_counts = False  # its end makes them current again
                    self._commit(entry_steps(plan, self.ledger), lane, staged)
                    if found:
                        mark_written(self, [one for one in used if one[0].always or one[0].map_type is not MapType.TO])
                    if plan.created != plan.counted:  # else it has what it makes, and nothing else
                        self._note_changed(plan, changed, lane)
                    break
            sets = found
        if plan.writes:
            plan.point = self._carry_out(plan, lane, staged, is_region=is_region)
        return plan

    def exit(
        self,
        items: Sequence[MapItem],
        lane: Lane,
        staged: list[Any],
        counter: Counter = Counter.DYNAMIC,
        region: Plan | None = None,
        ends_region: bool = False,
        known: KnownWork | None = None,
        *,
        finalizes: bool = False,
        may_be_put_off: bool = False,
    ) -> tuple[list[object], Point | None]:
        """Unmap the items of one construct and enqueue their copies-out.

        ``staged`` and ``counter`` are as for `enter`, ``ends_region`` and ``finalizes`` as for `PresentTable.exit`.
        ``region`` is the entry of a region, if it is known. If that has only counted, and no entry goes, the exit only
        counts, and remembers a work that is ``known`` (`PresentTable.remember`).

        Returns
        -------
        list
            Objects that must live until the copies are done. Unmapped entries come first, as `Released`.
        Point or None
            The end of the copies, or of the use of entries that stay; None if copies are staged, or no entry is in use.

        Raises
        ------
        PutOffError
            Only if it ``may_be_put_off``; nothing has changed.
        MapError
            An array has become read-only. At the end of a region everything else has been copied and released; else
            nothing has changed.
        """
        sets: Sequence[ReplicaSet] = ()
        while True:
            with locked_for(self, sets) if sets else self.lock:
                if region is not None and region.only_counts and self.table.leave(region):
                    # It has used what it found present up to here; nothing is copied, so that nothing has been open.
                    point = lane.mark()
                    self.ledger.release((lane, region.uses, (), ()), point)
                    if known is not None and region.state is self.table.state:
                        known.layouts = region.layouts
                        _ = self.table.remember(known)  # what is forgotten for that goes when the lock is free
                        known.plan = region
                    return [], point
                plan = self.table.exit(items, counter, ends_region=ends_region, finalizes=finalizes)
                found = replicas_of([*plan.removed, *[entry for _, entry in plan.copies]]) if self.sets else ()
                if not found or all(one in sets for one in found):
                    if found:
                        _refuse_to_remove(plan.removed)
                    if not ends_region:
                        for item, _ in plan.copies:
                            check_writeable(item)
                    if found:
                        complete(self, plan.copies, lane, may_be_put_off=may_be_put_off)
                    if self.plans:
                        plan.before = [(entry, entry.dynamic, entry.structured) for entry, *_ in plan.counts]
                    self._commit(exit_steps(plan, self.ledger, may_be_put_off=may_be_put_off), lane, staged)
                    break
            sets = found
        end = self._carry_out(plan, lane, staged) if plan.copies_out or staged or plan.failures else plan.point
        held = self._released(plan.removed, lane, staged)
        held += map(_host_of, items)
        if self.plans:
            held.append(plan)  # for `restore`
        return held, end

    def update(
        self, items: Sequence[MapItem], lane: Lane, staged: list[Any], known: KnownWork | None = None
    ) -> tuple[list[object], Point | None]:
        """Enqueue the copies of an update; return objects that must live until they are done, and their end.

        The latter is None if they are staged, or if there are none. ``staged`` is as for `enter`. An update that is
        ``known`` has a plan of an earlier launch, which is carried out again while the table is in the same state. It
        is remembered by its key, if it has one and all items are present.

        Raises
        ------
        PutOffError, NotPresentError
            No copy has been made.
        """
        plan = None if known is None else known.plan
        point: Point | None = None
        sets: Sequence[ReplicaSet] = ()
        while True:
            with locked_for(self, sets) if sets else self.lock:
                is_new = plan is None or plan.state is not self.table.state
                if plan is None or is_new:
                    plan = self.table.update(items)
                found = replicas_of([entry for _, entry in plan.copies]) if self.sets else ()
                if not found or all(one in sets for one in found):
                    if found:
                        complete(self, [copy for copy in plan.copies if not _is_overwritten(*copy)], lane)
                    point = self._begin_update(plan, lane, plan.enqueuers)
                    if found:
                        mark_written(self, plan.copies_in)
                    break
            sets = found
        if point is None:
            point = self._carry_out(plan, lane, staged)
        if is_new and known is not None and known.key is not None and len(plan.copies) == len(items) and not found:
            self.remember(plan, known)
        return plan.held, point

    def undo(self, plan: Plan, lane: Lane) -> list[object]:
        """Release the items of `enter` and copy nothing back; return objects that must live until the lane gets here.

        Unmapped entries come first, as `Released`, if there are any.
        """
        with self.lock:
            removed = self.table.undo(plan)
            lane.wait_for(self.ledger.acquire(ended=removed))
            used = [part for part in plan.uses if part[0] not in removed]
            if used:
                self.ledger.release((lane, used, (), ()), lane.mark())
        released = [Released(removed, self.device)] if removed else []
        return [*released, *(item.host for item in plan.items)]

    def take_back(self, plan: Plan) -> None:
        """Release the items of `enter`, which the device has not carried out."""
        with self.lock:
            removed = self.table.undo(plan, owes=True)
        # An entry that was there before may come back: perhaps an exit that came later does not run either. Its plan
        # keeps the memory until that is known.
        Released([entry for entry in removed if entry in plan.created], self.device).retire()

    def drop(self, entry: Entry) -> None:
        """Take out an entry whatever its counts, and give its memory back."""
        with self.lock:
            self.table.discard(entry)
        Released([entry], self.device).retire()

    def restore(self, plan: Plan, held: Sequence[object]) -> None:
        """Make the items of `exit` present again, which the device has not carried out.

        ``held`` is what the exit has returned: buffers that are present again do not go back.
        """
        released = held[0] if held and held[0].__class__ is Released else None
        with self.lock:
            for entry, generation in self.table.restore(plan):
                if released is not None:
                    released.buffers.pop(generation, None)
                entry.views = {}

    def settle(self, lane: Lane, point: Point | None = None) -> Point | None:
        """Note that the copies of the construct on the lane are all enqueued, or carried out.

        Returns
        -------
        Point or None
            The end of the accesses that were open: ``point`` if it is given, else the lane's present end. None if none
            was open. If the end cannot be marked, no access is left open.
        """
        claim = self._open.pop(lane, None)
        if claim is None:
            return None
        fork, others = self._held.pop(lane) if lane in self._held else (None, ())
        try:
            if fork is not None:
                fork.join()
            point = point or lane.mark()
        finally:
            with self.lock:
                self.ledger.release(claim, point)
            for place in others:
                place.settle(lane, point)
        return point

    def hold(self, fork: Fork, places: Sequence[AnyEnvironment]) -> None:
        """Keep the lanes of a construct on several places, and its open accesses, until `settle` on the primary's."""
        self._held[fork.lanes[0]] = fork, places

    def open(self, claim: Claim) -> None:
        """Enter accesses whose copies are about to be enqueued, until `settle`; under the lock."""
        self.ledger.release(claim, OPEN)
        self._open[claim[0]] = claim

    def keep(self, lane: Lane, things: Iterable[Any]) -> None:
        """Keep objects that a failing construct leaves in use on a lane, for `take_kept`."""
        self._kept.setdefault(lane, []).extend(things)

    def take_kept(self, lane: Lane) -> list[Any] | None:
        """Return objects that must live until the lane gets to its present end, although its construct has failed."""
        return self._kept.pop(lane, None)

    # -- the steps of all plans ----------------------------------------------------------------------
    def _commit(self, plan: Plan, lane: Lane, staged: list[Any]) -> None:
        """Carry out the part of a plan under the lock; if allocations or waits fail, nothing has changed."""
        # Until the table commits everything may raise, and has changed nothing.
        buffers = self.allocate(plan.created, lane, lane.spare) if plan.created else ()
        if plan.waits:
            try:
                lane.wait_for(plan.waits)
            except BaseException:
                self.keep(lane, buffers)  # the stream may still be using some of them
                raise
        if plan.counter is not None:
            self.table.commit(plan, buffers)
        writes, reads = plan.writes, plan.reads
        for entry, _ in writes:
            entry.change(lane)
        if plan.used:
            # Others may end the mapping of what stays as soon as the lock is free: so it is copied and marked here.
            self._copy_out(plan.copies_kept, plan, lane, staged)
            point = plan.point = lane.mark()
            self.ledger.release((lane, plan.used, (), ()), point)
            if staged:
                reads = [(entry, item.section) for item, entry in plan.copies_kept]
        if writes or reads or plan.back:
            claim = self._open[lane] = lane, reads, writes, plan.back
            self.ledger.release(claim, OPEN)

    def _carry_out(self, plan: Plan, lane: Lane, staged: list[Any], *, is_region: bool = False) -> Point | None:
        """Carry out the part of a plan outside of the lock; return its end, or None if copies are staged.

        If a copy fails, an entry is undone, and an exit ends as far as it has got.
        """
        try:
            if plan.copies_in or plan.zeroed:
                self.copy_in(plan, lane, staged)
            if plan.copies_out:
                self._copy_out(plan.copies_out, plan, lane, staged)
            if plan.failures:
                raise_first(plan.failures)
            if staged:
                return None
            if is_region and not self.device.bodies_block:
                self.settle(lane, DuePoint(lane))  # type: ignore[arg-type]  # a point too
                return None
            # A body that blocks may put work on the lane before others ask: they follow the copies only.
            point = self.settle(lane) or plan.point
        except BaseException:
            if plan.failures is None and plan.counter is not None:
                with self.lock:  # while it is open: what has not been copied to is for nobody to find
                    self.keep(lane, [entry.buffer for entry in self.table.undo(plan)])
            with suppress(DeviceLostError):
                self.settle(lane)
            if plan.failures is not None:
                self._finish_exit(plan, lane, staged)
            raise
        return point if plan.copies_in or plan.zeroed or not is_region else None

    def copy_in(self, plan: Plan, lane: Lane, staged: list[Any]) -> None:
        """Enqueue the fills of new entries, and the copies to the device."""
        for entry in plan.zeroed:
            self.device.fill(entry.buffer, 0, lane.stream)
        for item, entry in plan.copies_in:
            self.copy(self.view(entry, item.host, item.address), item.host, lane, staged, item.label)

    def _copy_out(self, copies: Iterable[ItemCopy], plan: Plan, lane: Lane, staged: list[Any]) -> None:
        """Enqueue copies to the host; each copy of an exit is tried, also after another has failed."""
        failures = plan.failures
        for item, entry in copies:
            try:
                if not item.host.flags.writeable:  # type: ignore[attr-defined]  # an array
                    check_writeable(item)
                self.copy(item.host, self.view(entry, item.host, item.address), lane, staged, item.label)
            except Exception as error:
                if failures is None:
                    raise
                failures.append(error)  # raised when all have been tried

    def _finish_exit(self, plan: Plan, lane: Lane, staged: list[Any]) -> None:
        """Wait for the copies of an exit that fails: its task fails at once, and the copied data must be there."""
        for copy in staged:
            copy.run()
        staged.clear()
        with suppress(DeviceLostError):
            lane.stream.synchronize()
        Released(plan.removed, self.device).retire()

    def _follow(self, plan: Plan, lane: Lane, *, prunes: bool) -> None:
        """Have a lane follow the writers of entries that a plan which only counts uses, under the lock."""
        lane.wait_for(self.ledger.acquire(plan.uses))
        if prunes and self.ledger.may_query:
            for entry in plan.counted:
                if entry.writes:
                    entry.writes.prune(is_over)  # the gate is not told where copies from other devices end

    def _note_changed(self, plan: Plan, changed: Callable[[], Sequence[int]] | None, lane: Lane) -> None:
        """Note that the launch in progress may write to items that were present, under the lock."""
        for number in changed() if changed is not None else ():
            entry = plan.entries[number]
            if entry is not None and entry not in plan.created:  # which the copies to it change
                entry.change(lane)

    def allocate(self, created: Sequence[Entry], lane: Lane, spare: Released | None = None) -> list[Any]:
        """Return a buffer for each of these entries; raise `DeviceMemoryError` that names the one that has none.

        A buffer that the construct before has left on the lane, its ``spare`` ones, is used again, in the lane's order.
        """
        buffers: list[Any] = []
        taken: dict[Any, Any] = {}
        for entry in created:
            section = entry.section
            nbytes = section.nbytes if section[2] else section[3]
            buffer = spare.take(nbytes, taken) if spare is not None and spare.buffers else None
            if buffer is None:
                try:
                    buffer = self.device.alloc((nbytes,), BYTE, lane.stream)
                except BaseException as error:
                    if spare is not None:
                        # The task that has left them says when they are free; this one is tried again after that.
                        spare.give_back(taken)
                    taken.clear()
                    buffers.clear()  # the traceback refers to this frame, and lives as long as the error
                    if isinstance(error, DeviceMemoryError):
                        what = (
                            f"{error}; the allocation was for {entry.label}; the largest mappings there: "
                            f"{self._largest_mappings()}"
                        )
                        error.args = (what, *error.args[1:])
                    raise
            if self.device.poisons:
                self.device.poison(buffer, entry.host.dtype, lane.stream)  # type: ignore[attr-defined]  # an array
            buffers.append(buffer)
        return buffers

    def _released(self, removed: Sequence[Entry], lane: Lane, staged: list[Any]) -> list[object]:
        """Return the entries unmapped on a lane; the next construct there may take those that only it has used."""
        if not removed:
            return []
        released = Released(removed, self.device)
        if staged:  # threads have the arrays, in an order of their own
            return [released]
        for entry in removed:
            entry.views = {}
            # Another construct may still have something open there, or the program an address.
            if entry.uses or entry.is_exposed:
                return [released]
            for of_lane, _ in entry.writes:
                if of_lane is not lane:
                    return [released]
        # What is taken from it is used behind all that this construct has enqueued.
        lane.spare = released
        return [released]

    def _largest_mappings(self) -> str:
        largest = sorted(self.table.entries(), key=lambda entry: -entry.nbytes)[:3]
        return ", ".join(f"{entry.label} ({entry.nbytes:,} bytes)" for entry in largest) or "nothing"

    # -- updates -------------------------------------------------------------------------------------
    def _begin_update(self, plan: Plan, lane: Lane, enqueuers: Enqueuers) -> Point | None:
        """Order the copies of an update, under the lock, and open their accesses.

        Copies that stored calls enqueue are enqueued here, which takes no longer than to open them: then their accesses
        have a point when others find them, and it is returned.
        """
        reads, writes = plan.reads, plan.writes
        waits = self.ledger.acquire(reads, writes)
        if waits:
            lane.wait_for(waits)
        for entry, _ in writes:
            entry.change(lane)
        claim = lane, reads, writes, ()
        if enqueuers is None:
            if plan.copies:
                self.open(claim)
            return None
        for item, _ in plan.copies_out:
            if not item.host.flags.writeable:  # type: ignore[attr-defined]  # an array
                check_writeable(item)
        try:
            for enqueue in enqueuers:
                enqueue(lane.stream)
        except BaseException:
            with suppress(DeviceLostError):
                self.ledger.release(claim, lane.mark())
            raise
        point: Point = lane.mark()
        self.ledger.release(claim, point)
        return point

    def remember(self, plan: Plan, known: KnownWork) -> None:
        """Keep the plan of an update that has found all items present, for launches while no entry goes."""
        enqueuers = []
        for item, entry in plan.copies:  # not under the lock: to make views takes as long as to copy
            host: Any = item.host
            array = self.view(entry, host, item.address)
            enqueuers.append(self.device.repeat(*((array, host) if item.map_type.copies_in else (host, array))))
        plan.enqueuers = None if None in enqueuers else enqueuers  # type: ignore[assignment]  # none is None
        layouts = Layouts(plan.items)
        with self.lock:
            if self.table.state is plan.state:
                known.layouts = layouts
                _ = self.table.remember(known)  # what is forgotten for that goes when the lock is free
                known.plan = plan

    # -- entries of replica sets ---------------------------------------------------------------------
    def expose(self, item: MapItem, lane: Lane) -> None:
        """Make the device current in an item that the program is given, and may write to from now on.

        Raises
        ------
        PutOffError
            Nothing has changed.
        """

        def act(copies: list[ItemCopy]) -> None:
            complete(self, copies, lane)
            mark_written(self, copies)

        def make() -> list[ItemCopy]:
            entry, _ = self.table.search(item.section)
            return [] if entry is None else [(item, entry)]

        asked(self, make, lambda copies: [entry for _, entry in copies], act)

    # -- what is there -------------------------------------------------------------------------------
    def is_present(self, host: Any) -> bool:
        """Tell whether every byte of a host array is present."""
        with self.lock:
            return bool(host.size) and self.table.search(array_section(host))[0] is not None

    def corresponding(self, host: Any) -> Any:
        """Return the device array that corresponds to a host array; None unless all of it is present.

        The program has it, and may write to it from now on.
        """
        with self.lock:
            entry, _ = self.table.search(array_section(host))
        if entry is None or not host.size:
            return None
        entry.is_exposed = True
        return self.view(entry, host)

    def view(self, entry: Entry, host: Any, address: int | None = None) -> Any:
        """Return the device array that corresponds to a host array inside an entry.

        ``address`` is that of its element ``(0, …, 0)``, where it is known: NumPy takes as long to say it as the rest.
        """
        if address is None:
            address = host.__array_interface__["data"][0]
        shape, dtype = host.shape, host.dtype
        layout, views = (address, shape, host.strides, dtype.num, dtype), entry.views
        if layout in views and (array := views[layout]).shape == shape:  # which a body may have set
            return array
        offset, strides = correspond(entry, address, shape, layout[2], host.itemsize)
        array = self.device.view(entry.buffer, offset, shape, strides, dtype)
        if views and len(views) >= _MOST_VIEWS:
            entry.views = views = {}
        views[layout] = array
        return array

    def copy(self, dst: Any, src: Any, lane: Lane, staged: list[Any], text: object = None) -> None:
        """Enqueue a copy between two arrays, or add it to those that are staged; ``text`` names its list item."""
        copy = self.device.copy(dst, src, lane.stream)
        if copy is not None:
            staged.append(copy)

    def change(self, entries: Iterable[Entry | None], lane: Lane) -> None:
        """Note that the launch in progress on a lane may write to entries; None has no storage."""
        with self.lock:
            for entry in entries:
                if entry is not None:
                    entry.change(lane)

    def contents(self, entry: Entry) -> Contents | None:
        """Return the contents of an entry until a construct may change it, if they are known (`Entry.contents`)."""
        with self.lock:
            return entry.contents

    def forget(self) -> None:
        """Drop all mappings, as the device is closed."""
        for replicas in [*self.sets]:
            replicas.leave()
        self.table, self.ledger = PresentTable(self.device.number), Ledger()  # a point holds an event of the device


def _is_overwritten(item: MapItem, entry: Entry) -> bool:
    """Tell whether a copy of an item to the device writes all of its box."""
    replicas = entry.replicas
    return item.map_type.copies_in and replicas is not None and replicas.is_all(item, replicas.box(item))


def _refuse_to_remove(entries: Iterable[Entry]) -> None:
    """Raise `MapError` if a construct on one device is about to remove an entry of a replica set."""
    for replicas in replicas_of(entries):
        raise MapError(
            f"{replicas.label} has a replica on each of devices {replicas.devices}, and this construct would take away "
            f"one of them; end the mapping with devices=[{replicas.devices}]"
        )
