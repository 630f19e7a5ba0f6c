"""Device memory of the oracle: storage, present tables, and the state of each byte.

A byte of mapped storage knows whether the host or the device has changed it since the last copy, and whether it has
ever been written. When a mapping ends, the state of its host bytes stays: they may be older than the device's were.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.sanitizer.oracle import recording
from benchmarks.sanitizer.oracle.arrays import Array

INFINITE = 1 << 30


class FaultError(Exception):
    """An error that the library would raise."""


class Storage:
    """Memory of a device, with a mark for each byte that was written."""

    def __init__(self, device, nbytes, line):
        self.device, self.line = device, line
        self.memory = np.zeros(max(nbytes, 1), np.uint8)
        self.low = self.memory.__array_interface__["data"][0]
        self.written = np.zeros(max(nbytes, 1), bool)
        self.mapping = None

    def array(self, shape, dtype, offset=0, strides=None):
        """Return an array in the storage."""
        return np.ndarray(shape, dtype, self.memory, offset, strides)

    def at(self, found):
        """Return the positions of addresses."""
        return found.all() - self.low


@dataclass(eq=False)
class Mapping:
    """Storage that corresponds to a host array."""

    host: np.ndarray
    device: int
    storage: Storage
    line: int
    made_by: str
    node: int
    offset: int = 0
    dynamic: int = 0
    structured: int = 0
    low: int = 0
    high: int = 0
    bytes: recording.Bytes = field(default=None)
    ended: int | None = None

    def __post_init__(self):
        self.low, self.high = recording.bounds(self.host)
        self.bytes = recording.Bytes.of(self.host)
        n = self.high - self.low
        self.device_newer, self.host_newer, self.carried = (np.zeros(n, bool) for _ in range(3))
        self.wrote = np.full(n, -1)
        self.copied_by = 0
        self.is_mine = np.zeros(n, bool)
        self.is_mine[self.bytes.all() - self.low] = True

    @property
    def count(self):
        return self.dynamic + self.structured

    def view(self, host):
        """Return the device array of a view of the host array."""
        start = host.__array_interface__["data"][0] - self.low + self.offset
        return self.storage.array(host.shape, host.dtype, start, host.strides)

    def positions(self, found):
        """Return the positions, in the mapping, of host bytes that it has."""
        every = found.all()
        every = every[(every >= self.low) & (every < self.high)] - self.low
        return every[self.is_mine[every]]


class Memory:
    """All devices' memory."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.live, self.ended, self.storages = [], [], []
        self.allocated = {}
        self.declared = []

    # -- presence ----------------------------------------------------------------------------

    def find(self, host, device):
        """Return the mapping that has all bytes of a host array, or None; raise if it has some."""
        wanted = recording.Bytes.of(host)
        for mapping in self.live:
            if mapping.device == device and wanted.common(mapping.bytes) is not None:
                if wanted.is_in(mapping.bytes):
                    return mapping
                raise FaultError("an array is present in part")
        return None

    def make(self, host, device, made_by, node, line=None):
        """Return a new mapping, with storage that was never written."""
        low, high = recording.bounds(host)
        line = line or self.recorder.line()
        storage = Storage(device, high - low, line)
        self.storages.append(storage)
        mapping = Mapping(host, device, storage, line, made_by, node)
        storage.mapping = mapping
        self.live.append(mapping)
        return mapping

    def remove(self, mapping):
        """End a mapping."""
        self.live.remove(mapping)
        self.ended.append(mapping)
        mapping.ended = self.recorder.line()

    def allocate(self, shape, dtype, device, world):
        """Return memory without a host array."""
        dtype = np.dtype(dtype)
        storage = Storage(device, int(np.prod(shape)) * dtype.itemsize, self.recorder.line())
        self.storages.append(storage)
        array = Array(storage.array(shape, dtype), device, world)
        self.allocated[storage.low] = storage
        return array

    def storage_of(self, access):
        """Return the storage of an access to device memory; None for what a body has made."""
        for storage in self.storages:
            if storage.low <= access.bytes.low < storage.low + len(storage.memory):
                return storage
        return None

    # -- accesses by the program -------------------------------------------------------------

    def accessed(self, access, space):
        """Compare an access with the states, and change them."""
        if space is None:
            self._on_host(access)
        elif (storage := self.storage_of(access)) is not None:
            at = storage.at(access.bytes)
            if storage.mapping is not None:
                self._on_device(access, storage, at)
            if access.writes:
                storage.written[at] = True

    def _on_host(self, access):
        for mapping in [*self.live, *self.ended]:
            if access.bytes.low >= mapping.high or mapping.low >= access.bytes.high:
                continue
            at = mapping.positions(access.bytes)
            if access.writes:
                mapping.device_newer[at], mapping.carried[at] = False, False
                mapping.host_newer[at] = True
                mapping.wrote[at] = access.number
                continue
            if (newer := at[mapping.device_newer[at]]).size:
                kinds = {"update"} if mapping.ended is None else {"map"}
                self.recorder.fault("stale-host", kinds, self._line(mapping, newer), access.line, access.number)
            if mapping.carried[at].any():
                line = mapping.copied_by
                self.recorder.fault("uninitialised", self._to(mapping), line, access.line, access.number)

    def _on_device(self, access, storage, at):
        mapping = storage.mapping
        inside = at - mapping.offset
        if access.writes:
            mapping.device_newer[inside], mapping.host_newer[inside] = True, False
            mapping.wrote[inside] = access.number
            return
        if not storage.written[at].all():
            self.recorder.fault("uninitialised", self._to(mapping), mapping.line, access.line, access.number)
        elif (newer := inside[mapping.host_newer[inside]]).size:
            self.recorder.fault("stale-device", {"update"}, self._line(mapping, newer), access.line, access.number)

    def _line(self, mapping, at):
        return self.recorder.accesses[mapping.wrote[at[0]]].line

    def _to(self, mapping):
        return {"update"} if mapping.made_by == "enter" else {"map"}

    # -- copies by constructs ----------------------------------------------------------------

    def copy_in(self, host, mapping, actor):
        """Copy a host array to the storage of a mapping that has it."""
        device = mapping.view(host)
        line = actor.line or self.recorder.line()
        self.recorder.note(host, writes=False, actor=actor, kind="copy", line=line)
        self.recorder.note(device, writes=True, actor=actor, kind="copy", line=line)
        device[...] = host
        found = recording.Bytes.of(host)
        at = mapping.positions(found)
        carried = np.zeros(mapping.high - mapping.low, bool)
        for other in [*self.live, *self.ended]:
            theirs = other.positions(found)
            carried[(theirs + other.low - mapping.low)[other.carried[theirs]]] = True
            if other.ended is not None:
                other.device_newer[theirs] = False
        mapping.device_newer[at], mapping.host_newer[at] = False, False
        mapping.storage.written[at + mapping.offset] = ~carried[at]

    def copy_out(self, host, mapping, actor):
        """Copy storage back; only bytes that the device has changed are written."""
        device = mapping.view(host)
        line = actor.line or self.recorder.line()
        self.recorder.note(device, writes=False, actor=actor, kind="copy", line=line)
        found = recording.Bytes.of(host)
        at = mapping.positions(found)
        newer = at[mapping.device_newer[at]]
        if newer.size:
            these = recording.Bytes.of(host) if len(newer) == len(found) else recording.Bytes.at(newer + mapping.low, 1)
            access = self.recorder.note(host, writes=True, actor=actor, kind="copy", line=line, found=these)
            for other in [*self.live, *self.ended]:
                if other is not mapping:
                    theirs = other.positions(these)
                    other.host_newer[theirs], other.device_newer[theirs], other.carried[theirs] = True, False, False
                    other.wrote[theirs] = access.number
        host[...] = device
        mapping.device_newer[at], mapping.host_newer[at] = False, False
        mapping.carried[at] = ~mapping.storage.written[at + mapping.offset]
        mapping.copied_by = line

    def copied(self, dst, src, actor):
        """Copy between any arrays, as a routine for device memory does."""
        line = self.recorder.line()
        for array, writes in ((src, False), (dst, True)):
            access = self.recorder.note(array.plain, writes=writes, actor=actor, kind="copy", line=line)
            if access is not None and (array.space is not None or writes):
                self.accessed(access, array.space)
        dst.plain[...] = src.plain

    def leaks(self):
        """Note the storage that is left at the end."""
        for mapping in self.live:
            if mapping.count < INFINITE:
                self.recorder.fault("leak", {"map"}, mapping.line, None)
        for storage in self.allocated.values():
            self.recorder.fault("leak", {"free"}, storage.line, None)
