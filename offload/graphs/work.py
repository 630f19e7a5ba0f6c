"""The work that launches a captured graph on a lane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from offload.data.replicas import locked
from offload.errors import UsageError
from offload.runtime.works import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.arrays.sections import Section
    from offload.data.entries import Entry
    from offload.devices.base import Device, DeviceGraph
    from offload.devices.streams import Lane, Point
    from offload.graphs.rehearsal import Noted
    from offload.graphs.tensors import TensorState
    from offload.runtime.launch import DeviceTask
    from offload.runtime.place import DevicePlace
    from offload.runtime.works import Launch
    from offload.tasks.region import Group
    from offload.tasks.site import Site


class GraphStorage:
    """The storage of one place that a graph uses."""

    __slots__ = ("_entries", "_noted", "_section_of", "_version", "place")

    def __init__(self, place: DevicePlace, noted: Noted) -> None:
        self.place = place
        self._section_of = section_of_entry(place.device)
        self._noted = noted
        self._entries: list[
            ref[Entry]
        ] = []  # of its uses, found in the state `_version` of the table; they keep no memory
        self._version = -1

    @property
    def is_unchanged(self) -> bool:
        """Whether nothing has been mapped or removed there since the last launch; needs no lock."""
        return self._version == self.place.table.version

    def find(self) -> bool:
        """Find the entries of what the graph uses; return whether all is where it was. Under the lock of the place."""
        table = self.place.table
        if self._version == table.version:
            return True
        if not self._noted.holds(table, self._section_of):
            return False
        at: Any = table.at  # it holds, so that there is an entry for each use
        self._entries = [ref(at(use.section)) for use in self._noted.uses]
        self._version = table.version
        return True

    def places(self) -> tuple[object, ...]:
        """Return the present places of the storage that was looked up; see `Noted.places`."""
        with self.place.lock:
            return self._noted.places(self.place.table, self._section_of)

    def acquire(self, lane: Lane) -> tuple[list[Any], list[Any]]:
        """Order a lane after the accesses that the graph follows; return its uses and its writes. Under the lock."""
        noted = self._noted
        entries: list[Any] = [reference() for reference in self._entries]  # the table has them all
        uses = [(entry, entry.section) for entry in entries]
        pairs = list(zip(noted.uses, uses, strict=True))
        reads = [part for use, part in pairs if not use.follows_users]
        writes = [part for use, part in pairs if use.follows_users]
        lane.wait_for(self.place.ledger.acquire(reads, writes, noted.absent))
        for use, entry in zip(noted.uses, entries, strict=True):
            if use.changes:
                entry.change(lane)
        return uses, [part for use, part in pairs if use.writes]

    def release(self, lane: Lane, uses: list[Any], writes: list[Any], point: Point | None) -> Point | None:
        """Enter the accesses of a graph that has been launched; return where they end, if there are any."""
        copied_back = self._noted.copied_back
        if uses or copied_back:
            point = point or lane.mark()
            self.place.ledger.release((lane, uses, writes, copied_back), point)
        return point


class MovedError(UsageError):
    """Storage that a graph uses is not where it was, or the state of a PyTorch tensor is another one."""


class _Others:
    """The devices of a graph besides the first, as far as a task that is launched later follows the calling thread."""

    __slots__ = ("_devices",)

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = devices

    def caller_event(self) -> list[Any]:
        """Return an event for each; None for one whose current stream is idle."""
        return [device.caller_event() for device in self._devices]


class GraphWork(Work):
    """Launch a graph on a lane of its first place: a work which any number of tasks share."""

    __slots__ = (
        "_findings", "_kept", "graph", "others", "place", "second", "site", "state", "storage", "takes_device_arrays",
    )  # fmt: skip

    def __init__(
        self,
        graph: DeviceGraph,
        site: Site,
        storage: Sequence[GraphStorage],
        state: TensorState,
        kept: object,
        findings: Sequence[Callable[[Any], Any]] = (),
        *,
        takes_device_arrays: bool,
    ) -> None:
        self.graph = graph
        self.site = site
        self.place = storage[0].place
        self.others = tuple(one.place for one in storage[1:])
        self.storage = storage  # at each place
        self.state = state  # of PyTorch's tensors and modules
        self._kept = kept  # arrays and kernels whose addresses are in the graph
        self._findings = findings  # of its tasks; they keep what its kernels write to
        self.takes_device_arrays = takes_device_arrays
        self.second = _Others([place.device for place in self.others]) if self.others else None

    def mark(self, launch: Launch) -> None:
        if self.second is not None:
            launch.other_after = self.second.caller_event()

    def is_unchanged(self) -> bool:
        """Tell whether nothing has been mapped or removed since the last launch; needs no lock."""
        return all(storage.is_unchanged for storage in self.storage) and self.state.holds()

    def is_current(self) -> bool:
        """Tell whether all that the graph uses is where it was."""
        if not self.state.holds():
            return False
        for storage in self.storage:
            with storage.place.lock:
                if not storage.find():
                    return False
        return True

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        """Enqueue the graph after everything that the tasks of the region would follow.

        Raise `PutOffError` if another thread is enqueuing a copy to storage that the graph uses, on the device or the
        host, and `MovedError` if a mapping has been ended, or a tensor of PyTorch changed, since the replay began.
        """
        with locked([storage.place for storage in self.storage]):  # also, one thread at a time launches a graph
            if not all(storage.find() for storage in self.storage):
                raise MovedError(
                    "a mapping that a taskgraph uses was ended by another thread while it was being replayed; "
                    "end it after the replay"
                )
            if not self.state.holds():
                raise MovedError(
                    "a PyTorch tensor or module that a taskgraph uses was changed while it was being replayed; change "
                    "it before the replay, or after its end"
                )
            accesses = [storage.acquire(lane) for storage in self.storage]
            for event in launch.other_after or ():
                if event is not None:
                    place.device.wait_event(lane.stream, event)
            self.graph.launch(lane.stream)
            if self._findings:
                launch.findings = [self._look]
            point = None
            for storage, (uses, writes) in zip(self.storage, accesses, strict=True):
                point = storage.release(lane, uses, writes, point)
            if point is not None:
                launch.point = point
        if self.others:
            launch.spread(self.others)

    def _look(self, value: Any) -> Any:
        """Look at what each task's work has found wrong, all of it, so that the next replay starts again."""
        failures = []
        for finding in self._findings:
            try:
                finding(None)
            except Exception as error:  # noqa: BLE001  # raised below
                failures.append(error)
        if failures:
            raise failures[0]
        return value


class PieceWork(Work):
    """Launch the graph of a piece between other tasks, which may have mapped or unmapped what it uses.

    ``renew`` returns the work for the storage as it is now, or None, given the launch. ``unfold`` starts the tasks of
    the piece in place of the launch, and returns their group.
    """

    __slots__ = ("_renew", "_work", "others", "second", "takes_device_arrays", "unfold")

    def __init__(
        self, work: GraphWork, renew: Callable[[Launch], GraphWork | None], unfold: Callable[[DeviceTask], Group]
    ) -> None:
        self._work = work
        self._renew = renew
        self.unfold = unfold
        self.others = work.others
        self.second = work.second
        self.takes_device_arrays = work.takes_device_arrays

    def mark(self, launch: Launch) -> None:
        self._work.mark(launch)

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        """Enqueue the graph, captured again if storage has moved; raise `MovedError` if that cannot be captured."""
        work = self._work
        while True:
            try:
                work.begin(launch, place, lane, staged)
            except MovedError:
                renewed = self._renew(launch)
                if renewed is None or renewed is work:
                    raise
                work = renewed
                launch.held = [work]  # the task has the first one
            else:
                return


def section_of_entry(device: Device) -> Callable[[Entry], Section]:
    """Return what tells where an entry of a device's table is in its memory."""
    return lambda entry: device.section(entry.buffer)
