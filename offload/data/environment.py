"""The data environment of one device: constructs that map and move data, carried out on its streams.

The present table plans a construct and counts, the ledger says what it has to follow, and both answer in `Steps`, which
one interpreter carries out for all constructs: `_commit` under the lock, which is held from the plan on, and
`_carry_out` outside of it, since a copy of pageable memory takes as long as the copy. Meanwhile copies are open in the
ledger, and another construct that would have to follow them is put off. A construct that finds everything present and
copies nothing only counts, and has no steps.

Copies that only threads can make (`StagedCopy`) are given to the caller, who has them carried out and then calls
`settle`.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from offload.data.entries import Counter
from offload.data.known import KnownUpdate
from offload.data.own import Own
from offload.data.released import Released
from offload.data.replicas import replicas_of
from offload.data.shared import check_writeable
from offload.data.short import are_in
from offload.data.steps import Steps, entry_steps, exit_steps, update_steps
from offload.data.storage import BYTE
from offload.errors import DeviceLostError, DeviceMemoryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offload.data.entries import Entry
    from offload.data.items import MapItem
    from offload.data.plans import CountedEnter, Entered
    from offload.devices.streams import Lane, Point


class DataEnvironment(Own):
    """The mappings of one device, and the constructs that change them."""

    # -- constructs ----------------------------------------------------------------------------------
    def enter(
        self, items: Sequence[MapItem], lane: Lane, staged: list[Any], counter: Counter = Counter.DYNAMIC
    ) -> Entered:
        """Map the items of one construct and enqueue their copies-in. What is staged goes to ``staged``, empty yet.

        The construct counts in ``counter``. The plan's ``point`` is where the copies end, unless they are staged.

        Raises
        ------
        PutOffError, MapError, DeviceMemoryError
            Nothing has changed.
        """
        with self.lock:
            known = self.table.reenter(items, counter)
            if known is not None:
                return self.follow(known, lane)
            plan = self.table.enter(items, counter)
            steps = None
            if not (self.sets and replicas_of(plan.counted)):
                steps = entry_steps(plan, self.ledger)
                self._commit(steps, lane, staged)
        if steps is None:
            plan, steps = self._enter_shared(items, lane, staged, counter)
        plan.point = self._carry_out(steps, lane, staged)
        return plan

    def enter_as_before(
        self, items: Sequence[MapItem], states: Sequence[object], lane: Lane, counter: Counter = Counter.DYNAMIC
    ) -> CountedEnter | None:
        """Do what `enter` does, for a construct that leaves the tables of its items' replica sets as they are.

        That it does where they are in these states, as the same construct has found and left them before. Else return
        None: nothing has changed.

        Raises
        ------
        PutOffError
            Nothing has changed.
        """
        with self.lock:
            known = self.table.reenter(items, counter, knows_sets=True)
            if known is None:
                return None
            if not are_in(known.entries, states):
                self.table.undo(known)
                return None
            return self.follow(known, lane)

    def enter_region(
        self,
        items: Sequence[MapItem],
        lane: Lane,
        staged: list[Any],
        counter: Counter = Counter.DYNAMIC,
        changed: Sequence[int] = (),
    ) -> Entered:
        """Do what `enter` does, for a region that this launch will end: where nothing is present by a shorter way.

        It writes to the items of the numbers ``changed``. The plan's ``point`` is None where none has been marked.
        """
        if self.table.has(items[0].section):
            with self.lock:
                known = self.table.reenter(items, counter)
                if known is not None:
                    self.follow(known, lane)
                    for number in changed:
                        known.entries[number].change(lane)
                    return known
        else:
            own = self.enter_own(items, lane, staged, counter, changed)
            if own is not None:
                return own
        plan = self.enter(items, lane, staged, counter)
        if changed:
            self.change([plan.entries[number] for number in changed], lane)
        return plan

    def exit(
        self,
        items: Sequence[MapItem],
        lane: Lane,
        staged: list[Any],
        counter: Counter = Counter.DYNAMIC,
        *,
        ends_region: bool = False,
        finalizes: bool = False,
        may_be_put_off: bool = False,
    ) -> tuple[list[object], Point | None]:
        """Unmap the items of one construct and enqueue their copies-out.

        ``staged`` and ``counter`` as for `enter`. ``ends_region``, ``finalizes``: as `PresentTable.exit` has them.

        Returns
        -------
        list
            What must live until the copies are done. What is unmapped comes first, as `Released`, if there is anything.
        Point or None
            Where they end; None if they are staged, or nothing is in use any more.

        Raises
        ------
        PutOffError
            Only if it ``may_be_put_off``; nothing has changed.
        MapError
            An array has become read-only. At the end of a region everything else has been copied and released; else
            nothing has changed.
        """
        with self.lock:
            plan = self.table.exit(items, counter, ends_region=ends_region, finalizes=finalizes)
            steps = None
            if not (self.sets and replicas_of([*plan.removed, *[entry for _, entry in plan.copies]])):
                steps = exit_steps(plan, self.ledger, may_be_put_off=may_be_put_off)
                if not ends_region:
                    for item, _ in plan.copies:
                        check_writeable(item)
                self._commit(steps, lane, staged)
        if steps is None:
            make = partial(self.table.exit, items, counter, ends_region=ends_region, finalizes=finalizes)
            plan, steps = self._exit_shared(make, lane, staged, ends_region=ends_region, may_be_put_off=may_be_put_off)
        point = self._carry_out(steps, lane, staged)
        return self._released(plan.removed) + [item.host for item in items], point

    def update(
        self, items: Sequence[MapItem], lane: Lane, staged: list[Any], key: Any = None
    ) -> tuple[list[object], Point | None]:
        """Enqueue the copies of an update; return what must live until they are done, and where they end.

        The former includes the buffers, since a task that knows nothing of this one may end their mappings meanwhile.
        The latter is None if they are staged, or if there are none. ``staged`` as for `enter`. With a ``key`` the
        update is remembered by it if all items are present.

        Raises
        ------
        PutOffError, NotPresentError
            Nothing has been copied.
        """
        if key is not None and (again := self.update_again(key, items, lane, staged)) is not None:
            return again
        with self.lock:
            copies = self.table.update(items)
            steps = None
            if not (self.sets and replicas_of([entry for _, entry in copies])):
                steps = update_steps(copies, self.ledger)
                self._commit(steps, lane, staged)
            else:
                key = None
            state = self.table.state
        if steps is None:
            copies, steps = self._update_shared(items, lane, staged)
        point = self._carry_out(steps, lane, staged)
        if key is not None and len(copies) == len(items):
            views = [self.view(entry, item.host, item.address) for item, entry in copies]
            known = KnownUpdate(items, copies, views, self.device)
            with self.lock:
                if self.table.state is state:
                    _ = self.table.remember(key, known)  # what is dropped for that goes when the lock is free
        return [entry.buffer for _, entry in copies] + [item.host for item in items], point

    def leave(self, plan: Entered, lane: Lane, key: Any = None, value: Any = None) -> Point | None:
        """Undo what `enter` has done where that only counts: nothing to copy, and all stay present.

        Remember a value by a key then, if one is given (`PresentTable.remember`).

        Returns
        -------
        Point or None
            The place on the lane up to which the entries are in use; None where there is more to do, and nothing has
            changed.
        """
        with self.lock:
            if not self.table.leave(plan):
                return None
            point = lane.mark()
            self.ledger.note(point, plan.parts())
            _ = self.table.remember(key, value) if key is not None else None  # it goes when the lock is free
            return point

    def undo(self, plan: Entered, lane: Lane) -> list[object]:
        """Release what `enter` mapped and copy nothing back; return what must live until the lane gets here.

        What is unmapped comes first, as `Released`, if there is anything.
        """
        with self.lock:
            removed = self.table.undo(plan)
            lane.wait_for(self.ledger.before_end(removed))
            used = [part for part in plan.parts() if part[0] not in removed]
            if used:
                self.ledger.note(lane.mark(), used)
        return [*self._released(removed), *(item.host for item in plan.items)]

    def settle(self, lane: Lane) -> Point | None:
        """Take note that the staged copies of the launch on the lane have been carried out; return where it is now."""
        point: Point | None = self.ledger.settle(lane)
        return point

    # -- the steps of all constructs -----------------------------------------------------------------
    def _commit(self, steps: Steps, lane: Lane, staged: list[Any]) -> None:
        """Carry out those under the lock; where allocations or waits fail nothing has changed."""
        buffers = self.allocate(steps.created, lane) if steps.created else ()
        if steps.waits:
            lane.wait_for(steps.waits)
        if steps.plan is not None:
            self.table.commit(steps.plan, buffers)
        for entry, _ in steps.writes:
            entry.change(lane)
        reads = steps.reads
        if steps.used:
            self._copy_out(steps.copies_kept, steps, lane, staged)
            point = steps.point = lane.mark()
            self.ledger.note(point, steps.used)
            if staged:
                reads = [(entry, item.section) for item, entry in steps.copies_kept]
        self.ledger.open(lane, reads, steps.writes, steps.back)

    def _carry_out(self, steps: Steps, lane: Lane, staged: list[Any]) -> Point | None:
        """Carry out those outside of the lock; return where all ends, or None if copies are staged, or there are none.

        Where one fails, an entry is undone, and an exit ends as far as it has got.
        """
        try:
            if steps.zeroed or steps.copies_in:
                self.copy_in(steps, lane, staged)
            if steps.copies_out:
                self._copy_out(steps.copies_out, steps, lane, staged)
            if steps.failures:
                raise_first(steps.failures)
            return None if staged else self.ledger.settle(lane) or steps.point
        except BaseException:
            if steps.failures is None and steps.plan is not None:
                with self.lock:  # while it is open: what has not been copied to is for nobody to find
                    self.ledger.keep(lane, [entry.buffer for entry in self.table.undo(steps.plan)])
            with suppress(DeviceLostError):
                self.ledger.settle(lane)
            if steps.failures is not None:
                self._finish_exit(steps, lane, staged)
            raise

    def copy_in(self, steps: Steps, lane: Lane, staged: list[Any]) -> None:
        """Enqueue what fills new entries, and the copies to the device."""
        for entry in steps.zeroed:
            self.device.fill(entry.buffer, 0, lane.stream)
        for item, entry in steps.copies_in:
            self.copy(self.view(entry, item.host, item.address), item.host, lane, staged, item.label)

    def _copy_out(self, copies: Iterable[tuple[MapItem, Entry]], steps: Steps, lane: Lane, staged: list[Any]) -> None:
        """Enqueue copies to the host; those of an exit each whatever becomes of the others."""
        failures = steps.failures
        for item, entry in copies:
            try:
                if failures is not None:
                    check_writeable(item)
                self.copy(item.host, self.view(entry, item.host, item.address), lane, staged, item.label)
            except Exception as error:
                if failures is None:
                    raise
                failures.append(error)  # raised when all have been tried

    def _finish_exit(self, steps: Steps, lane: Lane, staged: list[Any]) -> None:
        """Wait for the copies of an exit that fails: its task fails at once, and what they copy must be there."""
        for copy in staged:
            copy.run()
        staged.clear()
        with suppress(DeviceLostError):
            lane.stream.synchronize()
        Released(steps.plan.removed, self.device).retire()  # type: ignore[union-attr]  # an exit has one

    def allocate(self, created: Sequence[Entry], lane: Lane) -> list[Any]:
        """Return a buffer for each of these entries; raise `DeviceMemoryError` that names the one that has none."""
        buffers: list[Any] = []
        for entry in created:
            try:
                section = entry.section
                nbytes = section.nbytes if section[2] else section[3]
                buffers.append(self.device.alloc((nbytes,), BYTE, lane.stream))
            except DeviceMemoryError as error:
                buffers.clear()  # the traceback refers to this frame, and would keep them as long as the error lives
                what = f"{error}; it was to map {entry.label}; the largest mappings there: {self._largest_mappings()}"
                error.args = (what, *error.args[1:])
                raise
            if self.device.poisons:
                self.device.poison(buffers[-1], entry.host.dtype)  # type: ignore[attr-defined]  # an array
        return buffers

    def _released(self, entries: list[Entry]) -> list[object]:
        return [Released(entries, self.device)] if entries else []

    def _largest_mappings(self) -> str:
        largest = sorted(self.table.entries(), key=lambda entry: -entry.nbytes)[:3]
        return ", ".join(f"{entry.label} ({entry.nbytes:,} bytes)" for entry in largest) or "nothing"


def raise_first(failures: list[Exception]) -> NoReturn:
    """Raise the first failure, with the others as notes."""
    first, *others = failures
    for other in others:
        first.add_note(f"and: {other}")
    raise first
