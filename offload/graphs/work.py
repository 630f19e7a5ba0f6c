"""The work that launches a captured graph on a lane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from offload.errors import UsageError
from offload.runtime.works import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.arrays.sections import Section
    from offload.data.entries import Entry
    from offload.devices.base import Device, DeviceGraph
    from offload.devices.streams import Lane
    from offload.graphs.rehearsal import Noted
    from offload.runtime.place import DevicePlace
    from offload.runtime.works import Launch


class GraphWork(Work):
    """Launch a graph on a lane: a work which any number of tasks share."""

    __slots__ = (
        "_entries", "_findings", "_kept", "_place", "_place_of", "_version", "graph", "noted", "takes_device_arrays",
    )  # fmt: skip

    def __init__(
        self,
        graph: DeviceGraph,
        place: DevicePlace,
        noted: Noted,
        kept: object,
        findings: Sequence[Callable[[Any], Any]] = (),
        *,
        takes_device_arrays: bool,
    ) -> None:
        self.graph = graph
        self._place = place
        self._place_of = section_of_entry(place.device)
        self.noted = noted
        self._kept = kept  # arrays and kernels whose addresses are in the graph
        self._findings = findings  # of its tasks; they keep what its kernels write to
        self._entries: list[ref[Entry]] = []  # of its uses, whose memory is not kept by that,
        self._version = -1  # in this state of the table
        self.takes_device_arrays = takes_device_arrays

    def is_unchanged(self) -> bool:
        """Tell whether nothing has been mapped or removed since the last launch; needs no lock."""
        return self._version == self._place.table.version

    def is_current(self) -> bool:
        """Tell whether all that the graph uses is where it was."""
        with self._place.lock:
            return self._find()

    def _find(self) -> bool:
        """Find the entries that the graph uses; return whether all are where they were. Under the lock of the place."""
        table = self._place.table
        if self._version == table.version:
            return True
        if not self.noted.holds(table, self._place_of):
            return False
        at: Any = table.at  # it holds, so that there is an entry for each use
        self._entries = [ref(at(use.section)) for use in self.noted.uses]
        self._version = table.version
        return True

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        """Enqueue the graph after everything that the tasks of the region would follow.

        Raise `PutOffError` if another thread is enqueuing a copy to storage that the graph uses, on the device or the
        host, and `UsageError` if another thread has ended a mapping since the replay began.
        """
        ledger = place.ledger
        with place.lock:  # also, a graph is launched by one thread at a time
            if not self._find():
                raise UsageError(
                    "a mapping that a taskgraph uses was ended by another thread while it was being replayed; "
                    "end it after the replay"
                )
            noted = self.noted
            entries: list[Any] = [reference() for reference in self._entries]  # the table has them all
            uses = [(entry, entry.section) for entry in entries]
            pairs = list(zip(noted.uses, uses, strict=True))
            reads = [part for use, part in pairs if not use.follows_users]
            lane.wait_for(ledger.acquire(reads, [part for use, part in pairs if use.follows_users], noted.absent))
            for use, entry in zip(noted.uses, entries, strict=True):
                if use.changes:
                    entry.change(lane)
            self.graph.launch(lane.stream)
            if self._findings:
                launch.findings = [self._look]
            if uses or noted.copied_back:
                writes = [part for use, part in pairs if use.writes]
                launch.point = lane.mark()
                ledger.release((lane, uses, writes, noted.copied_back), launch.point)

    def _look(self, value: Any) -> Any:
        """Read the errors that each task's work has found, all of them, so that the next replay starts afresh."""
        failures = []
        for finding in self._findings:
            try:
                finding(None)
            except Exception as error:  # noqa: BLE001  # raised below
                failures.append(error)
        if failures:
            raise failures[0]
        return value


def section_of_entry(device: Device) -> Callable[[Entry], Section]:
    """Return a function that gives the place of an entry of a device's table in its memory."""
    return lambda entry: device.section(entry.buffer)
