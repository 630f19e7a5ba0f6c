"""Accesses by experiment: an element is read if the outcome depends on it, and written if it gets another value."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from typing import Any

import numpy as np

from offload.sanitizer import numpy as face
from offload.sanitizer.elements import byte_bounds, covered
from offload.sanitizer.tracked import set_sink, tracked

STEPS: dict[str, tuple[Any, ...]] = {"f": (0.37, -0.77, 1e6), "b": (1,), "i": (1,)}


class Recorder:
    """A sink that keeps the accesses."""

    def __init__(self):
        self.reads, self.writes, self.away = [], [], []

    def note(self, reads, writes, device):
        assert device is None
        assert all(type(array) is not face.ndarray for array in (*reads, *writes))
        self.reads += reads
        self.writes += writes

    def ignores(self, array):
        return False

    def given_away(self, storage, device):
        self.away.append(storage)

    def lent(self, storage):
        self.away.append(storage)
        return lambda: None


def given():
    """Return the arrays that the statements use."""
    random = np.random.RandomState(1)
    mask = random.rand(4, 4) < 0.5
    floats = {name: random.rand(*shape) * 2 - 0.5 for name, shape in (("a", (4, 4)), ("b", (4,)), ("c", (4, 4)))}
    return {**floats, "m": mask, "i": np.array([3, 0, 2])}


def outcome(statement, arrays, sink=None):
    """Run a statement with arrays, tracked if there is a sink; return its value as bytes and text."""
    np.random.seed(3)  # noqa: NPY002  # for statements that use it
    names = {name: tracked(array) for name, array in arrays.items()} if sink else dict(arrays)
    modules = {"np": face if sink else np, "pickle": pickle, "copy": copy, "math": math, "operator": operator}
    names |= {**modules, "__name__": "program", "v": None}
    before = set_sink(sink)
    try:
        exec(statement, names)
    finally:
        set_sink(before)
    return described(names["v"])


def described(value):
    """Return a value in a form that can be compared."""
    if isinstance(value, np.ndarray):
        return repr(value) if value.dtype.hasobject else value.tobytes()
    if isinstance(value, list | tuple):
        return [described(part) for part in value]
    return [described(part) for part in value.values()] if isinstance(value, dict) else repr(value)


def elements_of(parts, array):
    """Return which elements of an array lie in one of some parts."""
    low, high = byte_bounds(array)
    marks = np.zeros(high - low, bool)
    for part in parts:
        if part.size and np.may_share_memory(part, array):
            marks |= covered(part, low, high)
    return marks.reshape(-1, array.itemsize).any(1).reshape(array.shape)


def differs(one, other):
    """Return which elements of two arrays have other bytes."""
    pair = [np.frombuffer(array.tobytes(), "u1").reshape(-1, array.itemsize) for array in (one, other)]
    return (pair[0] != pair[1]).any(1).reshape(one.shape)


def copies(arrays):
    """Return copies of arrays, by name."""
    return {name: array.copy() for name, array in arrays.items()}


def experiment(statement):
    """Return the reads and writes that are noted, and those that are found by changing each element in turn.

    All four are bool arrays by the name of the array.
    """
    before, after, sink = given(), given(), Recorder()
    value = outcome(statement, after, sink)
    reads = {name: elements_of(sink.reads, array) for name, array in after.items()}
    writes = {name: elements_of(sink.writes, array) for name, array in after.items()}
    plain = copies(before)
    assert outcome(statement, plain) == value, "the result is another one with tracked arrays"
    assert all(not differs(plain[name], after[name]).any() for name in plain)
    needed = {name: np.zeros(array.shape, bool) for name, array in before.items()}
    changed = {name: differs(before[name], after[name]) for name in before}
    for name, array in before.items():
        for at in np.ndindex(array.shape):
            for step in STEPS[array.dtype.kind]:
                other = copies(before)
                other[name][at] = (
                    not array[at] if name == "m" else (array[at] + step) % 4 if name == "i" else array[at] + step
                )
                start = other[name][at].copy()
                try:
                    is_same = outcome(statement, other) == value
                except (ValueError, IndexError, TypeError):
                    is_same = False
                # An element that is not written keeps its value, whatever it is.
                was_kept = not writes[name][at] and other[name][at] == start
                changed[name][at] |= other[name][at] != start and not was_kept
                found = {one: differs(other[one], after[one]) for one in other}
                found[name][at] &= not was_kept
                needed[name][at] |= not is_same or any(part.any() for part in found.values())
    return reads, writes, needed, changed
