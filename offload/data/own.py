"""Regions that map storage of their own: nothing of their items is present, and all goes with them.

The short way of a data environment for them; what is more than that `offload.data.environment` plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.data.again import Again
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
            own = self.table.own(items, counter)
            if own is None:
                return None
            entries, copied = own.entries, own.copied
            waits = ledger.before_fresh(entries)
            buffers = self.allocate(entries, lane)
            if waits:
                lane.wait_for(waits)
            self.table.commit_own(own, buffers)
            for number in changed:
                entries[number].change(lane)
            if copied:
                ledger.open_own(lane, copied)
        if not copied:
            return own
        try:
            for number, item in enumerate(items):
                if item.map_type.copies_in:
                    own.views[number] = view = self.view(entries[number], item.host, item.address)
                    self.copy(view, item.host, lane, staged, item.label)
            if self.device.bodies_block and not staged:
                own.point = lane.mark()  # a body that blocks would have its lane between the copies and a late mark
        except BaseException:
            with self.lock:
                ledger.keep(lane, [entry.buffer for entry in self.table.undo(own)])
            raise
        ledger.end_own(lane, copied, None if staged else own.point or Due(lane))
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
        lets it go now: what a launch has made is taken apart at its end by its own thread, which has it at hand, and
        not by another when the device has passed it.
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
        return [Released(entries, self.device)], point
