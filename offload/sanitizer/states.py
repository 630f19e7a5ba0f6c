"""The state of each mapped byte: whether host and device agree, and which of the two is newer.

Theory of operation
-------------------
All addresses are those of host memory, so that the same byte has one name on the host and on every device. Bytes are
kept in merged intervals (`Spans`): an interval ends where the state changes, not where an access ended.

Each mapping knows a `Condition` for each of its bytes:

=============  ===========================================================  =========================================
condition      it comes from                                                and is a fault for
=============  ===========================================================  =========================================
``SAME``       a copy between host and device, or a fill with zeros         nobody
``DEVICE``     a write on the device                                        a host read (``stale-host``)
``HOST``       a write on the host, or a copy from another device           a device read (``stale-device``)
``UNWRITTEN``  a new mapping                                                a device read (``uninitialised``)
=============  ===========================================================  =========================================

A write on the host does not make an unwritten byte of the device a written one.

The host's memory has a state of its own, which survives mappings. Bytes may have been copied back from storage that
nobody had written: a host read is ``uninitialised``. A device may have changed bytes whose mapping ended without a copy
back: a host read is ``stale-host``. A write on the host ends either state. So does a copy to a device, which makes the
two agree, but bytes that nobody has written stay unwritten there.

A copy to the host leaves alone the bytes that the device has not changed. Bytes that it does change are newer than
those of other devices, except of devices that have the same write, by a copy or because a loop on several devices has
written the same everywhere.

Who wrote a byte, and which construct made or ended a mapping, are opaque values here (``by``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from enum import Enum
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeAlias

    from offload.arrays.sections import Section

    Run: TypeAlias = tuple[int, int]
    """The bytes from one address up to another one, which is not included."""

    Runs: TypeAlias = Sequence[Run]
    """Sorted runs, none of which touches the next one."""

_Value = TypeVar("_Value")


class FindingRule(Enum):
    """The rules of the sanitizer, by their names in reports."""

    STALE_HOST = "stale-host"
    STALE_DEVICE = "stale-device"
    UNINITIALISED = "uninitialised"
    RACE = "race"
    LEAK = "leak"


class Newer(Enum):
    """Which side of a mapping has the newer value of a byte."""

    SAME = "same"
    DEVICE = "device"
    HOST = "host"
    UNWRITTEN = "unwritten"


class Condition(NamedTuple):
    """The condition of mapped bytes: which side is newer, and the write or the construct that made it so.

    ``origin`` is the mapping whose unwritten bytes copies have carried here; None for the bytes' own mapping.
    ``hidden`` is a write on the device that a later one on the host hides; None for none.
    """

    newer: Newer
    by: Any
    origin: Any = None
    hidden: Any = None


class Remains(NamedTuple):
    """The state that host memory has left from a mapping.

    ``by`` is the write on the device that was not copied back, and ``ended`` the construct that ended its mapping.
    Where ``ended`` is None, ``by`` is the construct that copied back bytes that nobody had written.
    """

    by: Any
    ended: Any
    mapping: Any


class Fault(NamedTuple):
    """Bytes that an access reads although another side is newer, or nobody has written them.

    ``first`` is the write, or the construct that made or copied back the storage. ``ended`` is the construct that ended
    the mapping without a copy back; None while the mapping is present.
    """

    rule: FindingRule
    runs: Runs
    first: Any
    mapping: Any
    ended: Any


class Spans(Generic[_Value]):
    """A value for each address, in merged intervals; `None` where nothing has been set."""

    __slots__ = ("_cuts", "_values")

    def __init__(self) -> None:
        # The value at ``_values[k]`` holds from ``_cuts[k]`` up to the next cut. The last value is None.
        self._cuts: list[int] = []
        self._values: list[_Value | None] = []

    def __bool__(self) -> bool:
        return bool(self._cuts)

    def __len__(self) -> int:
        return len(self._cuts)

    def is_free(self, lo: int, hi: int) -> bool:
        """Tell whether no address from ``lo`` up to ``hi`` has a value."""
        k = bisect_right(self._cuts, lo)
        return (not k or self._values[k - 1] is None) and (k == len(self._cuts) or self._cuts[k] >= hi)

    def pieces(self, runs: Runs) -> Iterator[tuple[int, int, _Value]]:
        """Yield the intervals within these runs that have a value, with it."""
        cuts, values = self._cuts, self._values
        for lo, hi in runs:
            k = bisect_right(cuts, lo)
            at = lo
            while at < hi:
                end = cuts[k] if k < len(cuts) else hi
                value = values[k - 1] if k else None
                if value is not None:
                    yield at, min(end, hi), value
                at = end
                k += 1

    def change(self, runs: Runs, become: Callable[[_Value | None], _Value | None]) -> None:
        """Give each interval within these runs another value, which ``become`` makes of the present one."""
        if not runs:
            return
        cuts, values = self._cuts, self._values
        first, stop = bisect_left(cuts, runs[0][0]), bisect_right(cuts, runs[-1][1])
        last = current = values[first - 1] if first else None
        new_cuts: list[int] = []
        new_values: list[_Value | None] = []

        def put(at: int, value: _Value | None) -> None:
            nonlocal last
            if value != last:
                new_cuts.append(at)
                new_values.append(value)
                last = value

        k = first
        for lo, hi in runs:
            while k < stop and cuts[k] < lo:
                current = values[k]
                put(cuts[k], current)
                k += 1
            if k < stop and cuts[k] == lo:
                current = values[k]
                k += 1
            put(lo, become(current))
            while k < stop and cuts[k] < hi:
                current = values[k]
                put(cuts[k], become(current))
                k += 1
            if k < stop and cuts[k] == hi:
                current = values[k]
                k += 1
            put(hi, current)
        cuts[first:stop], values[first:stop] = new_cuts, new_values

    def set(self, runs: Runs, value: _Value | None) -> None:
        """Give all addresses of these runs a value."""
        self.change(runs, lambda _: value)


class MappedBytes:
    """Corresponding storage of host memory on one device.

    Parameters
    ----------
    runs : Runs
        The host memory that is mapped.
    made : object
        The construct that has made the storage.

    Attributes
    ----------
    owner : object
        Anything that whoever maps the bytes wants to find here.
    """

    __slots__ = ("conditions", "owner", "runs")

    def __init__(self, runs: Runs, made: Any) -> None:
        self.runs = runs
        self.owner: Any = None
        self.conditions: Spans[Condition] = Spans()
        self.conditions.set(runs, Condition(Newer.UNWRITTEN, made))


_SAME = Condition(Newer.SAME, None)


class States:
    """The states of all mapped bytes of a runtime, and of host memory whose mappings have ended.

    Not locked: the caller lets one thread in at a time, in an order in which the events can have happened.
    """

    __slots__ = ("_host", "_present")

    def __init__(self) -> None:
        self._host: Spans[Remains] = Spans()
        self._present: Spans[tuple[MappedBytes, ...]] = Spans()

    # -- mappings ------------------------------------------------------------------------------------
    def mapped(self, runs: Runs, made: Any) -> MappedBytes:
        """Note new storage for host memory, made by a construct; nobody has written it yet."""
        mapping = MappedBytes(runs, made)
        self._present.change(runs, lambda found: (*(found or ()), mapping))
        return mapping

    def unmapped(self, mapping: MappedBytes, ended: Any, *, discards: bool = False) -> None:
        """Note the end of a mapping by a construct.

        If it ``discards``, the mapping was never complete or its body has failed: nobody misses the device's bytes.
        """

        def left(found: tuple[MappedBytes, ...] | None) -> tuple[MappedBytes, ...] | None:
            return tuple(other for other in found or () if other is not mapping) or None

        self._present.change(mapping.runs, left)
        if discards:
            return
        for lo, hi, condition in mapping.conditions.pieces(mapping.runs):
            if condition.newer is Newer.DEVICE:
                self._host.set(((lo, hi),), Remains(condition.by, ended, mapping))

    def freed(self, lo: int, hi: int) -> None:
        """Forget the state of host memory that was freed: others may get these addresses."""
        if not self._host.is_free(lo, hi):
            self._host.set(((lo, hi),), None)

    # -- copies --------------------------------------------------------------------------------------
    def zeroed(self, mapping: MappedBytes) -> None:
        """Note that new storage has been filled with zeros."""
        mapping.conditions.set(mapping.runs, _SAME)

    def copied_in(self, mapping: MappedBytes, runs: Runs, by: Any) -> None:
        """Note a copy from the host to the device."""
        mapping.conditions.set(runs, _SAME)
        if self.is_quiet(runs[0][0], runs[-1][1]):
            return
        for lo, hi, remains in [*self._host.pieces(runs)]:
            piece = ((lo, hi),)
            if remains.ended is None:  # nobody has written these bytes, here or there
                mapping.conditions.set(piece, Condition(Newer.UNWRITTEN, remains.by, remains.mapping))
            else:
                self._host.set(piece, None)

    def changed(self, mapping: MappedBytes, runs: Runs, counts: Callable[[Any], bool] = lambda _: True) -> Runs:
        """Return the bytes that a copy to the host would change: those that differ on the device.

        ``counts`` says of a write that has made them different whether it is to be considered.
        """

        def differs(now: Condition) -> bool:
            if now.newer not in (Newer.DEVICE, Newer.HOST):
                return False
            return counts(now.by) or (now.hidden is not None and counts(now.hidden))

        return _joined((lo, hi) for lo, hi, condition in mapping.conditions.pieces(runs) if differs(condition))

    def copied_out(self, mapping: MappedBytes, runs: Runs, by: Any) -> None:
        """Note a copy from the device to the host."""
        for lo, hi, condition in [*mapping.conditions.pieces(runs)]:
            piece = ((lo, hi),)
            if condition.newer is Newer.UNWRITTEN:
                self._host.set(piece, Remains(by, None, condition.origin or mapping))
            elif condition.newer is not Newer.SAME:
                self._written_host(piece, by, condition)
                mapping.conditions.set(piece, _SAME)

    def copied_across(self, source: MappedBytes, target: MappedBytes, runs: Runs) -> None:
        """Note a copy between the storage of the same host memory on two devices."""
        for lo, hi, condition in [*source.conditions.pieces(runs)]:
            target.conditions.set(((lo, hi),), condition)

    # -- accesses ------------------------------------------------------------------------------------
    def written_device(self, mapping: MappedBytes, runs: Runs, by: Any) -> None:
        """Note a write on the device."""
        mapping.conditions.set(runs, Condition(Newer.DEVICE, by))

    def read_device(self, mapping: MappedBytes, runs: Runs) -> list[Fault]:
        """Note a read on the device; return its faults."""
        found: dict[tuple[FindingRule, Any, Any], list[Run]] = {}
        for lo, hi, condition in mapping.conditions.pieces(runs):
            rule = _DEVICE_RULES.get(condition.newer)
            if rule is not None:
                found.setdefault((rule, condition.by, condition.origin or mapping), []).append((lo, hi))
        return [Fault(rule, _joined(pieces), by, of, None) for (rule, by, of), pieces in found.items()]

    def written_host(self, runs: Runs, by: Any) -> None:
        """Note a write on the host."""
        if not self.is_quiet(runs[0][0], runs[-1][1]):
            self._written_host(runs, by, None)

    def _written_host(self, runs: Runs, by: Any, copied: Condition | None) -> None:
        """Note a write on the host; with ``copied`` it is a copy from a device where the bytes have this condition.

        A device that has the same write is not older than the host then.
        """
        self._host.set(runs, None)

        def become(now: Condition | None) -> Condition | None:
            if now is None or now.newer is Newer.UNWRITTEN:
                return now
            if now.newer is Newer.DEVICE:
                return _SAME if now == copied else Condition(Newer.HOST, by, hidden=now.by)
            return Condition(Newer.HOST, by, hidden=now.hidden)

        for lo, hi, mappings in self._present.pieces(runs):
            for mapping in mappings:
                mapping.conditions.change(((lo, hi),), become)

    def read_host(self, runs: Runs) -> list[Fault]:
        """Note a read on the host; return its faults, no byte twice."""
        if self.is_quiet(runs[0][0], runs[-1][1]):
            return []
        found: dict[tuple[FindingRule, Any, Any, Any], list[Run]] = {}
        newer: list[Run] = []
        for lo, hi, mappings in self._present.pieces(runs):
            for mapping in mappings:
                for start, end, condition in mapping.conditions.pieces(((lo, hi),)):
                    if condition.newer is Newer.DEVICE:
                        key = FindingRule.STALE_HOST, condition.by, mapping, None
                        found.setdefault(key, []).extend(_without(start, end, newer))
                        newer.append((start, end))
        for lo, hi, remains in self._host.pieces(runs):
            rule = FindingRule.UNINITIALISED if remains.ended is None else FindingRule.STALE_HOST
            key = rule, remains.by, remains.mapping, remains.ended
            found.setdefault(key, []).extend(_without(lo, hi, newer))
        return [
            Fault(rule, _joined(pieces), by, mapping, ended)
            for (rule, by, mapping, ended), pieces in found.items()
            if pieces
        ]

    def is_quiet(self, lo: int, hi: int) -> bool:
        """Tell whether no byte from ``lo`` up to ``hi`` is mapped, or has been and is not as the host has left it."""
        return self._present.is_free(lo, hi) and self._host.is_free(lo, hi)


_DEVICE_RULES = {Newer.UNWRITTEN: FindingRule.UNINITIALISED, Newer.HOST: FindingRule.STALE_DEVICE}


def _without(lo: int, hi: int, others: Iterable[Run]) -> list[Run]:
    """Return the parts of a run that are in none of the others."""
    left = [(lo, hi)]
    for start, end in others:
        parts = []
        for a, b in left:
            if end <= a or b <= start:
                parts.append((a, b))
                continue
            if a < start:
                parts.append((a, start))
            if end < b:
                parts.append((end, b))
        left = parts
    return left


def _joined(runs: Iterable[Run]) -> Runs:
    """Return runs in order, with those joined that touch or overlap."""
    joined: list[Run] = []
    for lo, hi in sorted(runs):
        if joined and lo <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(hi, joined[-1][1])
        else:
            joined.append((lo, hi))
    return joined


@lru_cache(maxsize=64)  # an array is mostly accessed as it was before
def runs_of(section: Section) -> Runs:
    """Return the bytes of a section."""
    address, run = section.address, section.run_nbytes
    if not run:
        return ()
    if not section.dims:
        return ((address, address + run),)
    offsets = (map(stride.__mul__, range(count)) for count, stride in section.dims)
    return _joined([(address + sum(at), address + sum(at) + run) for at in product(*offsets)])


class PackedRows:
    """The addresses on the host of the bytes of a packed device buffer: row by row, the lowest address first.

    Parameters
    ----------
    section : Section
        The host memory, with gaps that the buffer does not have.
    """

    __slots__ = ("_run", "_starts")

    def __init__(self, section: Section) -> None:
        self._run = section.run_nbytes
        offsets = (map(stride.__mul__, range(count)) for count, stride in section.dims)
        self._starts = [section.address + sum(at) for at in product(*offsets)]

    def host_runs(self, runs: Runs) -> Runs:
        """Return the host memory of bytes of the buffer, counted from its beginning."""
        run, starts = self._run, self._starts
        found: list[Run] = []
        for lo, hi in runs:
            for row in range(lo // run, -(-hi // run)):
                start = starts[row] - row * run
                found.append((start + max(lo, row * run), start + min(hi, (row + 1) * run)))
        return _joined(found)
