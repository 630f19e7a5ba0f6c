"""Looks at elements that indices are made of, and the memory of them for the contents of present storage.

A call asks for the least and the greatest element of parts of its arrays (`proofs.bounds`). For storage of the task's
entries, the answer is a fact about its contents (`offload.data.versions`), and later calls reuse it. Other arrays are
looked at by each call. So are arrays in a target body, which may write to its arrays at any time.

On the host (`Looks`) a look is a pass over the elements. On CUDA (`DeviceLooks`) two reductions on the task's stream
leave the answer in host memory. The call does not wait: it runs its checks, and later calls do without them. Only the
second call with the same contents looks, and a loop whose looks were in vain stops looking.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offload.arrays.items import address_of
from offload.data.maptypes import MapType
from offload.loops.proofs.bounds import MOST_CONTENTS
from offload.loops.running import pool
from offload.loops.running.arguments import on_host
from offload.loops.running.build import builder
from offload.loops.running.compilers import HostFailure
from offload.runtime.current import here

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from offload.data.entries import Entry
    from offload.data.versions import Contents
    from offload.devices.base import Device
    from offload.loops.proofs.affine import Interval
    from offload.loops.proofs.bounds import ArrayPart
    from offload.loops.running.specialise import Specialisation
    from offload.runtime.launch import DeviceTask


class Looks:
    """Looks of one call at arrays that the host can address."""

    def __init__(self, arrays: Mapping[str, Any], task: DeviceTask | None = None) -> None:
        self._arrays = arrays  # by name
        self._task = task  # None: a call on the host
        # What has been found is what is remembered of these versions of arrays, and nothing else has been asked for;
        # None where something else has.
        self.versions: dict[str, int] | None = {}

    def __call__(self, parts: Sequence[ArrayPart], most: int | None) -> dict[int, Interval]:
        """Return the least and greatest element of parts of arrays, by the numbers of their loads.

        Parts without elements have none, and those of which nothing is known yet; nothing is looked at if that were
        more than ``most`` elements.
        """
        known: dict[int, Interval] = {}
        unknown: list[tuple[ArrayPart, Contents | None, Any]] = []
        for part in parts:
            contents = None if self._task is None else contents_at(self._task, self._arrays[part.array])
            key = None if contents is None else self._key(part)
            fact = None if contents is None else self._fact(contents, key)
            if fact is None:
                unknown.append((part, contents, key))
                self.versions = None
            else:
                known[part.at] = fact
                self._rely(part.array, contents)
        if unknown and (most is None or sum(part.size for part, *_ in unknown) <= most):
            for part, contents, key in unknown:
                if part.size:
                    self._look(part, contents, key, known)
        return known

    def _rely(self, array: str, contents: Contents | None) -> None:
        """Note the contents in which something has been found."""
        found = self.versions
        if found is not None and (contents is None or found.setdefault(array, contents.version) != contents.version):
            self.versions = None  # it has changed in between

    def _key(self, part: ArrayPart) -> Any:
        """Return the key of a part among the facts of its storage."""
        array: Any = self._arrays[part.array]
        address = self._task.place.device.address(array)  # type: ignore[union-attr]  # there are contents
        return address, array.shape, array.strides, array.dtype.num, part.ranges

    def _fact(self, contents: Contents, key: Any) -> Interval | None:
        fact: Interval | None = contents.facts.get(key)
        return fact

    def _look(self, part: ArrayPart, contents: Contents | None, key: Any, known: dict[int, Interval]) -> None:
        view = on_host(self._arrays[part.array])[part.where]
        known[part.at] = fact = extremes(view)
        if contents is not None:
            contents.note(key, fact)


# The fact that a call has had a use for one.
_SEEN: Final = object()


class DeviceLooks(Looks):
    """Looks of one call on the stream of its task, for calls to come."""

    def __init__(self, arrays: Mapping[str, Any], task: DeviceTask, spec: Specialisation) -> None:
        super().__init__(arrays, task)
        self._spec = spec  # counts the looks that were made in vain

    def _fact(self, contents: Contents, key: Any) -> Interval | None:
        fact = contents.facts.get(key)
        if fact is _SEEN:
            return None
        if isinstance(fact, _Due):
            fact = fact.found()
            if fact is not None:
                contents.note(key, fact)
        if fact is not None:
            self._spec.n_looks = 0
        return fact

    def _look(self, part: ArrayPart, contents: Contents | None, key: Any, known: dict[int, Interval]) -> None:
        if contents is None or self._spec.n_looks >= MOST_CONTENTS:
            return
        fact = contents.facts.get(key)
        if fact is None:
            contents.note(key, _SEEN)
        if fact is not _SEEN:
            return
        self._spec.n_looks += 1
        with suppress(MemoryError):  # the loop can do without
            contents.note(key, self._enqueue(part))

    def _enqueue(self, part: ArrayPart) -> _Due:
        """Enqueue a look on the stream of the task; a body may have made another one the current one."""
        task: Any = self._task
        device, stream = task.place.device, task.lane.stream
        view, arrays = self._arrays[part.array][part.where], device.namespace()
        outer = device.use(stream)
        try:
            packed = arrays.ascontiguousarray(view)  # one block of threads alone reduces what is strided
            found = arrays.min(packed), arrays.max(packed)
        finally:
            device.restore(outer)
        given = device.host_memory(2 * view.dtype.itemsize)
        memory = np.empty(2, view.dtype) if given is None else np.frombuffer(given, view.dtype, 2)
        task.leave(partial(after, (packed, found, memory)))
        for number, one in enumerate(found):
            device.copy(memory[number : number + 1].reshape(()), one, stream)
        return _Due(device, device.record(stream), memory)


class _Due:
    """The least and greatest element of a part, which arrive in memory of the host."""

    __slots__ = ("_device", "_event", "_memory")

    def __init__(self, device: Device, event: Any, memory: np.ndarray[Any, Any]) -> None:
        self._device, self._event, self._memory = device, event, memory

    def found(self) -> Interval | None:
        """Return both, if they are there; raise `DeviceLostError` if they never will be."""
        if not self._device.passed(self._event):
            return None
        low, high = self._memory.tolist()
        return low, high


def after(_kept: object, value: Any) -> Any:
    """Return the value of a task: a finding that keeps the memory that the stream uses until it has passed the task."""
    return value


def contents_at(task: DeviceTask, array: Any) -> Contents | None:
    """Return the contents of the storage that an array lies in, of a device task; None where they are not known."""
    plan = task.plan
    entry = entry_at(task, array, plan.counted) if plan is not None else None
    return None if entry is None else task.place.contents(entry)


def change(task: DeviceTask, arrays: Iterable[Any]) -> None:
    """Take note that a loop in a device task is about to write to arrays.

    Arrays that the task maps with a type other than ``to`` have been marked as changed at its beginning.
    """
    plan = task.plan
    if plan is None:
        return
    items = zip(plan.items, plan.entries, strict=True)
    entries = [entry for item, entry in items if entry is not None and item.map_type is MapType.TO]
    if entries:
        lane: Any = task.lane
        task.place.change([entry_at(task, array, entries) for array in arrays], lane)


def entry_at(task: DeviceTask, array: Any, entries: Iterable[Entry]) -> Entry | None:
    """Return the entry in whose buffer an array of a device task lies."""
    address_of: Any = task.place.device.address
    address = address_of(array)
    if address is None:  # no array of the device, which others refuse
        return None
    for entry in entries:
        low = address_of(entry.buffer)
        if low <= address < low + entry.nbytes:
            return entry
    return None


# -- the extremes of host memory ----------------------------------------------------------------------


# Smaller arrays lie in a core's cache, where NumPy's passes take less time than it takes to start threads.
_LEAST_NBYTES: Final = 1 << 20

# As for loops: enough that threads which are late or slow even out.
_CHUNKS: Final = 64


def extremes(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Return the least and the greatest element of a non-empty array of integers or truth values.

    *Costs* one pass over memory, on as many threads as the runtime has. NumPy makes two passes on one thread if the
    array is small, if its elements are not evenly spaced, or if there is no compiler.
    """
    row = _row(array) if array.nbytes >= _LEAST_NBYTES else None
    entry = 0 if row is None or builder.compiler is None else _entry(row.dtype.name)
    if row is None or not entry:
        return int(array.min()), int(array.max())
    found = np.empty((_CHUNKS, 2), row.dtype)
    arguments = np.array((address_of(row), row.strides[0], address_of(found)), np.int64)
    n_threads = 1 + len(here().runtime.engine.threads)
    pool.run(entry, address_of(arguments), row.size, _CHUNKS, n_threads)
    return int(found[:, 0].min()), int(found[:, 1].max())


def _row(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Return the elements as one dimension of the same memory, in any order; None where they are not that."""
    flags = array.flags
    if not flags.aligned or not array.dtype.isnative:
        return None
    row = array.view(np.uint8) if array.dtype == np.bool_ else array
    if row.ndim == 1:
        return row
    return row.reshape(-1, order="A") if flags.forc else None


@cache
def _entry(dtype: str) -> int:
    """Return the address of the kernel for a type; 0 where it cannot be compiled now."""
    source = resources.files("offload.loops.running").joinpath("extremes.c").read_text(encoding="utf-8")
    try:
        return builder.load(source, f"extremes_{dtype}")
    except HostFailure:
        return 0
