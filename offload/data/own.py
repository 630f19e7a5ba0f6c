"""Regions that map storage of their own: nothing of their items is present, and all goes with them.

The short way of a data environment for them; what is more than that `offload.data.environment` plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.data.again import Again
from offload.data.items import are_alike
from offload.data.ledger import Due
from offload.data.plans import OwnEnter
from offload.data.released import Released
from offload.data.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.data.entries import Counter, Entry
    from offload.data.items import MapItem
    from offload.data.plans import Entered
    from offload.devices.streams import Lane, Point


class Own(Again):
    """What `DataEnvironment` does about them at their beginning and at their end."""

    def allocate(self, created: Sequence[Entry], lane: Lane) -> list[Any]:
        """Return a buffer for each of these entries."""
        raise NotImplementedError

    def _carry_out(self, steps: Steps, lane: Lane, staged: list[Any]) -> Point | None:
        raise NotImplementedError

    def enter_own(
        self, items: Sequence[MapItem], lane: Lane, staged: list[Any], counter: Counter, changed: Sequence[int] = ()
    ) -> OwnEnter | None:
        """Do what `DataEnvironment.enter_region` does; None where it is more than that: then nothing has changed."""
        ledger = self.ledger
        with self.lock:
            own = None if lane.left is None else self._take_left(items, lane, counter)
            if own is None:
                own = self.table.own(items, counter)
                if own is None:
                    return None
                waits = ledger.before_fresh(own.entries)
                buffers = self.allocate(own.entries, lane)
                if waits:
                    lane.wait_for(waits)
                self.table.commit_own(own, buffers)
            for number in changed:
                own.entries[number].change(lane)
            copied = own.copied
            if copied:
                ledger.open_own(lane, copied)
        if not copied:
            return own
        buffers = []  # who else has the arrays is to be told
        try:
            self._copy_in_own(own, lane, staged)
            if self.device.bodies_block and not staged:
                own.point = lane.mark()  # a body that blocks would have its lane between the copies and a late mark
        except BaseException:
            with self.lock:
                ledger.keep(lane, [entry.buffer for entry in self.table.undo(own)])
            raise
        ledger.end_own(lane, copied, None if staged else own.point or Due(lane))
        return own

    def _copy_in_own(self, own: OwnEnter, lane: Lane, staged: list[Any]) -> None:
        """Enqueue the copies to the device; note who has the arrays, before others are given them.

        Where bodies block nothing is left to others: the stream has passed a launch before the next one's body.
        """
        views = own.views
        for number, item in enumerate(own.items):
            if item.map_type.copies_in:
                views[number] = self.view(own.entries[number], item.host, item.address)
                self.copy(views[number], item.host, lane, staged, item.label)
        is_whole = len(views) == len(own.entries) and not staged  # a staged copy has arrays, for a while
        if own.references is None and is_whole and not self.device.bodies_block:
            references = self.device.references
            known = [references(entry.buffer, views[number]) for number, entry in enumerate(own.entries)]
            own.references = None if None in known else known

    def _take_left(self, items: Sequence[MapItem], lane: Lane, counter: Counter) -> OwnEnter | None:
        """Carry out once more the entry of the last region that this lane has carried out, if that had the same items.

        Its entries and their buffers are used again. The stream has them in its own order: what the region before has
        enqueued comes first. None where they have gone back meanwhile, or somebody has kept an array: nothing has
        changed. Under the lock.

        Raises
        ------
        PutOffError
            Nothing has changed.
        """
        left: Released = lane.left
        known: Any = left.plan
        if known is None or known.counter is not counter or not are_alike(known.items, items):
            return None
        references, views = self.device.references, known.views
        for number, entry in enumerate(known.entries):
            if references(entry.buffer, views[number]) != known.references[number]:
                return None
        if not self.table.are_absent(items):
            return None
        waits = self.ledger.before_fresh(known.entries)
        if waits:
            lane.wait_for(waits)
        own = left.take()
        if own is not None:
            lane.left = None
            for entry in own.entries:
                entry.renew()
            self.table.commit_own(own, [entry.buffer for entry in own.entries])
        return own

    def exit_region(self, plan: Entered, lane: Lane, staged: list[Any]) -> tuple[list[object], Point | None] | None:
        """Do what `DataEnvironment.exit` does where a region has made all of its entries, and nobody else uses them.

        Returns
        -------
        list
            What must live until the copies are done, besides the items: what is unmapped, as `Released`.
        Point or None
            Where they end, as `DataEnvironment.exit` has it.

        None where it is more than that: then nothing has changed. Else the plan has done its part, and whoever has it
        lets it go now: the next launch on the lane may use it.
        """
        if plan.__class__ is not OwnEnter:
            return None
        own: Any = plan
        entries = own.entries
        with self.lock:
            if not self.table.holds_alone(own):
                return None
            waits = self.ledger.before_end(entries)
            if waits:
                lane.wait_for(waits)
            self.table.remove_own(own)
            copies = [copy for copy in zip(own.items, entries, strict=True) if copy[0].map_type.copies_out]
            if copies:
                self.ledger.open_back(lane, copies)
        point = None
        if copies:
            steps = Steps()
            steps.plan, steps.copies_out, steps.failures = own, copies, []
            point = self._carry_out(steps, lane, staged)
        if own.references is None or staged:
            return [Released(entries, self.device)], point
        for entry in entries:
            entry.outlived = None  # it goes when nobody holds a lock
            if entry.uses or entry.is_exposed or entry.beside is not None:  # others have had to do with it
                return [Released(entries, self.device)], point
        lane.left = released = Released((), self.device, own)
        return [released], point
