"""Constructs that a data environment has carried out before with the same items: what it does in place of planning.

What is remembered of them, and for how long, is said in `offload.data.known`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from offload.data.replicas import replicas_of
from offload.data.shared import Shared, check_writeable
from offload.errors import DeviceLostError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.data.items import MapItem
    from offload.data.known import KnownCopy, KnownUpdate
    from offload.data.plans import CountedEnter
    from offload.devices.streams import Lane, Point


class Again(Shared):
    """What `DataEnvironment` does once more."""

    def enter_again(
        self, known: CountedEnter, changed: Sequence[int], lane: Lane, states: Sequence[object] | None = None
    ) -> bool:
        """Carry out once more the entry of a region that has only counted, and that writes to some of its items.

        With ``states`` they are in replica sets, whose tables are to be in these, as the region then leaves them.

        Returns
        -------
        bool
            False where it would do more now; then nothing has changed.

        Raises
        ------
        PutOffError
            Nothing has changed.
        """
        with self.lock:
            if not self.table.again(known, states):
                return False
            for entry in known.counted:
                if entry.writes:
                    self.follow(known, lane)
                    if states is not None:  # copies from other devices end within a task, whose end alone is told
                        self.ledger.prune(known.counted)
                    break
            entries = known.entries
            for number in changed:
                entries[number].change(lane)
        return True

    def follow(self, known: CountedEnter, lane: Lane) -> CountedEnter:
        """Have a lane follow who writes what an entry has found present, under the lock; return the entry."""
        try:
            lane.wait_for(self.ledger.before(known.parts()))
        except BaseException:
            self.table.undo(known)
            raise
        return known

    def update_again(
        self, key: Any, items: Sequence[MapItem], lane: Lane, staged: list[Any]
    ) -> tuple[list[object], Point | None] | None:
        """Carry out once more an update of these items that is remembered; return what `DataEnvironment.update` does.

        None where none is remembered, or others have to know; it may be forgotten as soon as the lock is free. Copies
        that only have to be enqueued are so under the lock: their accesses have a place when others find them.

        Raises
        ------
        PutOffError
            Nothing has been copied.
        """
        ledger = self.ledger
        with self.lock:
            known: KnownUpdate | None = self.table.remembered.get(key)
            if known is None or known.items is not items:
                return None
            copies, reads, writes, held = known.copies, known.reads, known.writes, known.held
            if self.sets and replicas_of([entry for _, entry, *_ in copies]):
                return None
            waits = ledger.before(reads, writes)
            if waits:
                lane.wait_for(waits)
            for entry, _ in writes:
                entry.change(lane)
            if known.repeats is not None and self.notify is None:  # what is told goes to the program's own stream
                return held, self._repeat(known, lane)
            ledger.open(lane, reads, writes)
        try:
            self._copy_again(copies, lane, staged)
            return held, None if staged else ledger.settle(lane)
        except BaseException:
            with suppress(DeviceLostError):
                ledger.settle(lane)
            raise

    def _repeat(self, known: KnownUpdate, lane: Lane) -> Point:
        """Enqueue the copies of an update, under the lock; return where they end."""
        for item in known.outgoing:
            if not item.host.flags.writeable:  # type: ignore[attr-defined]  # an array
                check_writeable(item)
        try:
            for enqueue in known.repeats:  # type: ignore[union-attr]  # there are some
                enqueue(lane.stream)
        except BaseException:
            with suppress(DeviceLostError):
                self.ledger.note(lane.mark(), known.reads, known.writes)
            raise
        point = lane.mark()
        self.ledger.note(point, known.reads, known.writes)
        return point

    def _copy_again(self, copies: Sequence[KnownCopy], lane: Lane, staged: list[Any]) -> None:
        """Make the copies of an update once more."""
        for item, entry, array, dtype, shape in copies:
            host: Any = item.host
            view = array if array.shape == shape and host.dtype is dtype else self.view(entry, host, item.address)
            if item.map_type.copies_in:
                self.copy(view, host, lane, staged, item.label)
            else:
                if not host.flags.writeable:
                    check_writeable(item)
                self.copy(host, view, lane, staged, item.label)
