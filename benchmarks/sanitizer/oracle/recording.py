"""The accesses of one run, the orders that the program asked for, and the violations that follow from them.

A *node* is a stretch of code without a wait and without a construct. An edge says that one node is before another.
Everything is kept until the end, so that no address is used twice and nothing is forgotten.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np


class Bytes:
    """A set of addresses: a range, or the single bytes where elements have gaps."""

    __slots__ = ("high", "low", "single")

    def __init__(self, low, high, single=None):
        self.low, self.high, self.single = low, high, single

    @classmethod
    def of(cls, array):
        """Return the bytes of a NumPy array."""
        if array.size == 0:
            return cls(0, 0)
        low, high = bounds(array)
        if high - low == array.nbytes and array.flags.forc:
            return cls(low, high)
        return cls.at(addresses(array), array.itemsize)

    @classmethod
    def at(cls, starts, itemsize):
        """Return the bytes of elements at these addresses."""
        if np.size(starts) == 0:
            return cls(0, 0)
        single = np.unique((np.ravel(starts)[:, None] + np.arange(itemsize)).ravel())
        return cls(int(single[0]), int(single[-1]) + 1, single)

    def __len__(self):
        return self.high - self.low if self.single is None else len(self.single)

    def all(self):
        """Return the addresses."""
        return np.arange(self.low, self.high) if self.single is None else self.single

    def common(self, other):
        """Return the addresses in both, or None."""
        if self.low >= other.high or other.low >= self.high:
            return None
        if self.single is None and other.single is None:
            return np.arange(max(self.low, other.low), min(self.high, other.high))
        both = np.intersect1d(self.all(), other.all(), assume_unique=True)
        return both if len(both) else None

    def is_in(self, other):
        """Tell whether all of it is in `other`."""
        if len(self) == 0:
            return False
        both = self.common(other)
        return both is not None and len(both) == len(self)


def bounds(array):
    """Return the lowest address of an array, and the one after the highest."""
    start = array.__array_interface__["data"][0]
    steps = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    return start + sum(s for s in steps if s < 0), start + sum(s for s in steps if s > 0) + array.itemsize


def addresses(array):
    """Return the address of each element, in the shape of the array."""
    found = np.full(array.shape, array.__array_interface__["data"][0], np.int64)
    for axis, (n, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
        found += (np.arange(n) * stride).reshape([-1 if k == axis else 1 for k in range(array.ndim)])
    return found


@dataclass(eq=False)
class Access:
    """One read or write, by an actor at a node."""

    number: int
    node: int
    bytes: Bytes
    writes: bool
    actor: object
    kind: str
    """`"code"`, or `"copy"` for those of a construct."""
    line: int


@dataclass(frozen=True)
class Violation:
    """A fault of the run: its rule, the kinds of fix that are right, the lines, and which accesses take part."""

    rule: str
    kinds: frozenset[str]
    first: int | None
    second: int | None
    access: int | None = field(default=None, compare=False)


class Recorder:
    """What happened in one run."""

    def __init__(self, file):
        self.file = file
        self.before = []
        self.accesses = []
        self.faults = []
        self.kept = []
        self.lock = threading.RLock()
        self._known = {}

    def node(self, *before):
        """Return a new node after these."""
        with self.lock:
            self.before.append(list(before))
            return len(self.before) - 1

    def edge(self, before, after):
        """Put a node before another."""
        self.before[after].append(before)

    def line(self):
        """Return the line of the program that runs on this thread."""
        frame = sys._getframe(1)  # noqa: SLF001  # the quickest way, here as in `logging`
        while frame is not None:
            if frame.f_code.co_filename == self.file:
                return frame.f_lineno
            frame = frame.f_back
        return 0

    def note(self, array, *, writes, actor, kind="code", line=None, found=None):
        """Note an access to a NumPy array, or to the given `Bytes` of it."""
        found = Bytes.of(array) if found is None else found
        if len(found) == 0:
            return None
        line = self.line() if line is None else line
        self.kept.append(array)
        key = (actor.node, found.low, found.high, writes, kind, line, found.single is None)
        known = self._known.get(key)
        if known is not None and (found.single is None or np.array_equal(known.bytes.single, found.single)):
            return known
        access = Access(len(self.accesses), actor.node, found, writes, actor, kind, line)
        self.accesses.append(access)
        self._known[key] = access
        return access

    def fault(self, rule, kinds, first, second, access=None):
        """Note a fault that needs no pair of unordered accesses."""
        self.faults.append(Violation(rule, frozenset(kinds), first, second, access))

    def violations(self):
        """Return all violations; an access in a race is in no other."""
        races, racing = self.races()
        others = {fault for fault in self.faults if fault.access not in racing}
        return sorted(races | others, key=lambda v: (v.rule, v.first or 0, v.second or 0))

    def races(self):
        """Compare all pairs; return the races, and the numbers of the accesses in them."""
        earlier = self.closure()
        found, racing = set(), set()
        for one, other in combinations(self.accesses, 2):
            if not (one.writes or other.writes) or one.actor is other.actor:
                continue
            if earlier[other.node] >> one.node & 1 or earlier[one.node] >> other.node & 1:
                continue
            if one.actor.is_apart(other.actor):
                continue
            if one.bytes.common(other.bytes) is None:
                continue
            found.add(Violation("race", fixes(one, other), one.line, other.line))
            racing |= {one.number, other.number}
        return found, racing

    def closure(self):
        """Return, for each node, the nodes before it and itself, as bits."""
        earlier = [1 << node for node in range(len(self.before))]
        changed = True
        while changed:
            changed = False
            for node, before in enumerate(self.before):
                bits = earlier[node]
                for other in before:
                    bits |= earlier[other]
                if bits != earlier[node]:
                    earlier[node], changed = bits, True
        return earlier


def fixes(one, other):
    """Return the kinds of fix that the reference names for an unordered pair."""
    if any(access.actor.is_left_on_stream for access in (one, other)):
        return frozenset({"detach"})
    if any(access.actor.is_host_code and access.kind == "code" for access in (one, other)):
        return frozenset({"wait"})
    for a, b in ((one, other), (other, one)):
        if a.actor in b.actor.ancestors():
            return frozenset({"wait"})
    if any(access.actor.is_undeferred or access.actor.is_host_code for access in (one, other)):
        return frozenset({"depend", "wait"})
    return frozenset({"depend", "wait"} if one.actor.is_queued or other.actor.is_queued else {"depend"})
