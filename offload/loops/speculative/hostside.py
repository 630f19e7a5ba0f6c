"""The arrays of a loop's call for a run in order on the host, and their way back.

A wrong speculative run is undone from a *safe state*: the program's own array, if the call itself has mapped it, or
else a copy on the device (`HostSide.save`). A run in order gets private copies of the arrays that the loop writes,
which share memory as the arrays do. Arrays that it only reads are the program's own, or are fetched on a lane of their
own.

The host's results go to the device's arrays, and the construct copies them back. A failed call copies nothing back, so
`HostSide.leave` copies the writes of the serial program to the program's arrays.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offload.constructs.target_work import TargetWork, put
from offload.loops.running import pool
from offload.loops.running.looks import entry_at
from offload.loops.running.observe import arrays_like
from offload.loops.running.preparation import view_at
from offload.loops.watched.cells import groups_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from offload.data.items import MapItem
    from offload.data.plans import Plan
    from offload.devices.base import Device
    from offload.loops.proofs.numbers import View
    from offload.loops.running.specialise import Specialisation
    from offload.runtime.launch import DeviceTask

# Of a copy: between two pieces a race looks at the device.
_PIECE_NBYTES: Final = 32 << 20

# Between two looks at what the device or a thread does; in a sandbox a pause takes a millisecond.
_PAUSE_S: Final = 50e-6

_FEW_CORES: Final = 4
_LOOKS: Final = 2000
# Without a pause, of some microseconds each: where there are few cores, others need them.
_LOOKS_ON_FEW_CORES: Final = 50


class HostSide:
    """The arrays of a call, for a run on the host."""

    def __init__(self, task: DeviceTask, spec: Specialisation, values: Mapping[str, Any]) -> None:
        self._task = task  # the call's task, on its lane
        self._device = task.place.device
        self._lane: Any = task.lane
        self._place = task.place  # the device, with its data environment
        self._values = values  # the arguments by name: device arrays and scalars
        self._changed = frozenset(spec.changed)  # arrays that the loop writes
        # where arrays lie on the device
        self._views: dict[str, View] = {name: view_at(self._device, values[name]) for name in spec.given}
        # the program's arrays that the call itself has mapped, with their list items
        self._mapped = _mapped(task, spec, values)
        self._saved: dict[str, Any] = {}  # copies on the device, by name
        self._event: Any = None  # behind these copies

    def wait(self) -> None:
        """Wait until the lane is idle: until the task's predecessors and its copies are complete."""
        self._reach(self._lane.stream)

    def save(self) -> None:
        """Enqueue copies of the arrays that the loop may change, if the program has no copy."""
        stream = self._lane.stream
        for name in self._changed - self._mapped.keys():
            array = self._values[name]
            self._saved[name] = copy = self._device.alloc(array.shape, array.dtype, stream)
            self._device.copy(copy, array, stream)
        self._event = self._device.record(stream) if self._saved else None

    def own(self) -> dict[str, np.ndarray[Any, Any]] | None:
        """Return the program's arrays, if the call alone has mapped them and nothing has been done on the device yet.

        A run on the host may work on them then; `keep` ends the mappings. None where somebody else would see it.
        """
        plan, mapped = self._task.plan, self._mapped
        if plan is None or not mapped.keys() >= self._views.keys() or not self._is_own(plan):
            return None
        if not all(mapped[name][1].map_type.copies_out for name in self._changed):
            return None
        return {name: mapped[name][0] for name in self._views}

    def keep(self) -> None:
        """End the call's mappings: the program's arrays already hold the result."""
        plan = self._task.plan
        assert plan is not None
        self._task.held, self._task.plan = self._place.undo(plan, self._lane), None

    def private(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays for a run on the host. Those that it changes are nobody else's."""
        given: dict[str, np.ndarray[Any, Any]] = {}
        for _ in self.filling(given):
            pass
        return given

    def filling(self, given: dict[str, np.ndarray[Any, Any]]) -> Generator[None, None, None]:
        """Do the same piece by piece, of some milliseconds each; enter the arrays in ``given``."""
        copied: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        fetched: list[tuple[np.ndarray[Any, Any], Any]] = []
        for names in groups_of(self._views):
            if self._changed.isdisjoint(names):
                for name in names:
                    given[name] = self._shared(name, fetched)
                continue
            memory = arrays_like(names, self._views, self._values)  # they share memory as the device's do
            for name in sorted(names, key=self._changed.__contains__):  # those last that say what may be damaged
                given[name] = memory[name]
                source = self._source(name)
                (copied if isinstance(source, np.ndarray) else fetched).append((given[name], source))
        for to, of in _pieces(copied):
            to[...] = of
            yield
        yield from self._fetch(fetched)

    def _shared(self, name: str, fetched: list[tuple[np.ndarray[Any, Any], Any]]) -> np.ndarray[Any, Any]:
        """Return an array that the loop only reads."""
        original = self._mapped.get(name)
        if original is not None and original[1].map_type.copies_in:
            return original[0]
        array = self._values[name]
        made = np.empty(array.shape, array.dtype)
        fetched.append((made, array))
        return made

    def _source(self, name: str) -> Any:
        """Return the safe state of an array, a host or a device array."""
        if name in self._mapped:
            return self._mapped[name][0]
        return self._saved.get(name, self._values[name])

    # -- copies ------------------------------------------------------------------------------------------

    def _fetch(self, copies: list[tuple[np.ndarray[Any, Any], Any]]) -> Iterator[None]:
        """Copy device arrays to the host, by a lane of their own, piece by piece, and wait for each."""
        if not copies:
            return
        lane = self._place.pool.acquire(())
        stream = self._lane.stream if lane is None else lane.stream
        try:
            if self._event is not None:
                self._device.wait_event(stream, self._event)
            for to, array in _pieces(copies):
                self._copy(to, array, stream)
                self._reach(stream)
                yield
        finally:
            if lane is not None:
                lane.release()

    def _copy(self, to: Any, of: Any, stream: Any) -> None:
        """Carry out a copy, or enqueue it."""
        staged = self._device.copy(to, of, stream)
        if staged is not None:
            self._reach(stream)
            staged.run()

    def _reach(self, stream: Any) -> None:
        reach(self._device, stream)

    # -- what comes of it --------------------------------------------------------------------------------

    def commit(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Make the changes of a run on the host the result of the call; no work on the arrays may be under way.

        If only this call maps the arrays that are copied back, its mappings end here, and nothing goes to the device.
        """
        plan = self._task.plan
        if plan is None or not self._is_own(plan):
            self.send(arrays)
            return
        for name in self._changed:
            if self._mapped[name][1].map_type.copies_out:
                self._mapped[name][0][...] = arrays[name]
        self.keep()

    def _is_own(self, plan: Plan) -> bool:
        """Tell whether only this call maps the arrays that it copies back and that the loop changes."""
        with self._place.lock:
            alone = {id(entry) for entry in plan.created if entry.count == 1}
        items = zip(plan.items, plan.entries, strict=True)
        returned = [(item, entry) for item, entry in items if entry is not None and item.map_type.copies_out]
        are_own = all(id(entry) in alone and not item.always for item, entry in returned)
        return are_own and self._changed <= self._mapped.keys()

    def send(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Copy the changes of a run on the host to the device's arrays."""
        for name in self._changed:
            self._copy(self._values[name], arrays[name], self._lane.stream)
        self._reach(self._lane.stream)  # the host's arrays may go

    def leave(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Leave the changes of a failed run where the program finds them after a failed call."""
        for name in self._changed:
            if name not in self._mapped:
                self._copy(self._values[name], arrays[name], self._lane.stream)
            elif self._mapped[name][1].map_type.copies_out:
                self._mapped[name][0][...] = arrays[name]
        self._reach(self._lane.stream)

    def restore(self) -> None:
        """Restore the values of the device's arrays that the call has not made."""
        for name, copy in self._saved.items():
            self._device.copy(self._values[name], copy, self._lane.stream)
        self._reach(self._lane.stream)

    def close(self) -> None:
        """Let the copies go."""
        self._saved.clear()


def _pieces(copies: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Yield copies in pieces of some megabytes."""
    for to, of in copies:
        n = len(to) if to.ndim else 1
        rows = max(1, n * _PIECE_NBYTES // max(to.nbytes, 1))
        if rows >= n:
            yield to, of
        else:
            yield from ((to[begin : begin + rows], of[begin : begin + rows]) for begin in range(0, n, rows))


def reach(device: Device, stream: Any) -> None:
    """Wait until a stream has nothing left to do; raise `DeviceLostError` if it never gets there."""
    event, n_looks = device.record(stream), 0
    while not device.passed(event):
        pause(n_looks)
        n_looks += 1


def pause(n_looks: int) -> None:
    """Let others go on, after so many looks in vain."""
    has_cores = pool.n_cores() >= _FEW_CORES
    time.sleep(0 if n_looks < (_LOOKS if has_cores else _LOOKS_ON_FEW_CORES) else _PAUSE_S)


def _mapped(
    task: DeviceTask, spec: Specialisation, values: Mapping[str, Any]
) -> dict[str, tuple[np.ndarray[Any, Any], MapItem]]:
    """Return the program's arrays, with their list items, for which the task itself has made storage, by name."""
    plan, work = task.plan, task.work
    if plan is None or not isinstance(work, TargetWork) or not plan.created:
        return {}
    args, kwargs = list(task.args), dict(task.kwargs or {})
    for slot, host, *_ in work.binding.arrays:
        put(args, kwargs, slot, host)
    original = spec.program.bound(tuple(args), kwargs)
    items = {id(entry): item for item, entry in zip(plan.items, plan.entries, strict=True)}
    found = {}
    for name in spec.given:
        host = original.get(name)
        if not isinstance(host, np.ndarray) or host.shape != values[name].shape:
            continue
        entry = entry_at(task, values[name], plan.created)
        if entry is not None and host.dtype == values[name].dtype:
            found[name] = host, items[id(entry)]
    return found
