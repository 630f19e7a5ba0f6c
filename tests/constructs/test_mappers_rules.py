"""Properties of mappers that name parts of attributes: in a body, any expression is the part that it is on the host."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import offload as omp
from offload import to, tofrom
from offload.arrays.items import MAPPERS, array_section
from offload.arrays.sections import overlaps
from offload.constructs.clauses.views import PartialView

RECORD = np.dtype([("x", "f8"), ("tag", "i4"), ("y", "f4", 2)])


class Holder:
    """An object with an array in an attribute, or deeper, and expressions for parts of it."""

    def __init__(self, array, steps, more):
        self.array = array
        self.held = {"in": [array]}
        self.steps = steps
        self.more = more

    @property
    def part(self):
        return carried_out(self.array, self.steps)

    def other(self):
        return carried_out(self.held["in"][0], self.more)


def carried_out(array, steps):
    """Return what the steps make of an array."""
    for name, argument in steps:
        if name == "index":
            array = array[argument]
        elif name == "measured":
            array = array[tuple(slice(low, array.shape[axis] - high) for axis, (low, high) in enumerate(argument))]
        elif name == "attribute":
            array = getattr(array, argument)
        elif name == "function":
            array = argument(array)
        elif name == "split":
            array = np.array_split(array, 3)[argument]
        else:
            array = getattr(array, name)(*argument)
    return array


bounds = st.none() | st.integers(-7, 7)
slices = st.builds(slice, bounds, bounds, st.none() | st.sampled_from([1, 2, 3, -1, -2]))


@st.composite
def indices(draw, array):
    """Draw an index of an array by which NumPy makes a view."""
    if array.dtype.names and draw(st.booleans()):
        return draw(st.sampled_from(array.dtype.names))
    items = [
        draw(slices) if not n or draw(st.integers(0, 3)) else draw(st.integers(-n, n - 1))
        for n in array.shape[: draw(st.integers(0, array.ndim))]
    ]
    if draw(st.integers(0, 4)) == 0:
        items.insert(draw(st.integers(0, len(items))), None)
    return items[0] if len(items) == 1 and draw(st.booleans()) else (*items, ...)


@st.composite
def expressions(draw, array):
    """Draw the steps of an expression for a view of an array."""
    steps = []
    for _ in range(draw(st.integers(1, 4))):
        kinds = ["index", "index", "index", "measured", "transpose", "reshape", "flip", "T"]
        kind = draw(st.sampled_from([*kinds, "split"] if array.ndim else kinds))
        if kind == "index":
            step = ("index", draw(indices(array)))
        elif kind == "measured":
            step = ("measured", draw(st.lists(st.tuples(*[st.integers(0, 2)] * 2), max_size=array.ndim)))
        elif kind == "transpose":
            step = ("transpose", draw(st.permutations(range(array.ndim))))
        elif kind == "reshape":
            step = ("reshape", draw(st.sampled_from([(-1,), (1, -1), (2, -1)])))
        elif kind == "split":
            step = ("split", draw(st.integers(0, 2)))
        elif kind == "flip":
            step = ("function", np.flip)
        else:
            step = ("attribute", "T")
        try:
            found = carried_out(array, [step])
        except ValueError:  # that shape is not possible
            continue
        if isinstance(found, np.ndarray) and (not found.size or np.may_share_memory(found, array)):
            array = found
            steps.append(step)
    return steps


class Maker(NamedTuple):
    """Makes objects that are alike."""

    array: np.ndarray
    order: str
    steps: list
    more: list

    def __call__(self):
        return Holder(self.array.copy(self.order), self.steps, self.more)


@st.composite
def objects(draw):
    """Draw the maker of an object with two expressions for parts of its array."""
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple))
    dtype = draw(st.sampled_from([np.dtype("f8"), np.dtype("i4"), RECORD]))
    order = draw(st.sampled_from("CF"))
    n = int(np.prod(shape))
    array = np.arange(n * dtype.itemsize, dtype="u1")[: n * dtype.itemsize].view("u1")
    array = (array % 7).view(dtype) if dtype != RECORD else filled(n)
    array = array.reshape(shape, order=order)

    return Maker(array, order, draw(expressions(array)), draw(expressions(array)))


def filled(n):
    """Return records that differ."""
    records = np.zeros(n, RECORD)
    records["x"], records["tag"], records["y"][:, 1] = np.arange(n), np.arange(n), -np.arange(n)
    return records


def change(part):
    """Write other values to a part: in each field of a record."""
    for field in part.dtype.names or (...,):
        target = part[field]
        target[...] = target * 2 + 1


def of_host(make, parts, n):
    """Return the array when its parts have been changed on the host, n times."""
    item = make()
    for _ in range(n):
        for part in parts:
            change(part(item))
    return item.array


@pytest.fixture(scope="module")
def _device():
    with omp.Runtime("sim:1", check=True):
        yield


@pytest.fixture(autouse=True)
def _forget_mappers(_device):
    """Mappers are registered for the process: forget those of a test."""
    before = dict(MAPPERS)
    yield
    MAPPERS.clear()
    MAPPERS.update(before)


def first(item):
    return item.part


def second(item):
    return item.other()


def in_data(body, item, mapped):
    with omp.target_data(map=[tofrom(mapped)]):
        omp.target(body)(item)


def updated(body, item):
    with omp.target_data(map=[to(item)]):
        omp.target(body)(item)
        omp.target_update(from_=[item])


WAYS = {
    "target": lambda body, item: omp.target(body)(item),
    "nowait": lambda body, item: omp.target(body, nowait=True)(item).result(),
    "clause": lambda body, item: omp.target(body, map=[tofrom("item")])(item),
    "host": lambda body, item: omp.target(body, if_=False)(item),
    "present": lambda body, item: in_data(body, item, item),
    "base present": lambda body, item: in_data(body, item, item.array),
    "updated": updated,
}


@given(objects(), st.sampled_from(sorted(WAYS)), st.integers(1, 2))
def test_each_expression_is_its_part(make, way, n_parts):
    """What a body does to what the mapper's expressions give is what they give on the host, in each kind of region."""
    parts = (first, second)[:n_parts]
    item = make()
    sections = [array_section(part(item)) for part in parts]
    assume(n_parts == 1 or sections[0] == sections[1] or not overlaps(*sections))
    omp.declare_mapper(Holder, lambda item: [tofrom(part(item)) for part in parts])

    def body(item):
        for part in parts:
            change(part(item))

    WAYS[way](body, item)
    assert item.array.tobytes("A") == of_host(make, parts, 1).tobytes("A")


@given(objects(), st.data())
def test_other_expressions_are_right_or_refused(make, data):
    """An expression that the mapper does not name gives the same elements as on the host, or is an error.

    If it asks an attribute for its shape that is the shape of the part, it gives the part or is an error.
    """
    item = make()
    steps = data.draw(expressions(item.array))
    omp.declare_mapper(Holder, lambda item: [to(item.part)])
    found = []

    @omp.target
    def body(item):
        if getattr(item.array, "__offload_whole__", None) is None:
            return  # the attribute is the array of the part, which the same expression is, too
        asks = not isinstance(item.array, PartialView) and any(name == "measured" for name, _ in steps)
        try:
            part = carried_out(item.array, steps)
        except omp.MapError:
            return
        except IndexError:  # the part has fewer dimensions
            assert asks
            return
        if getattr(part, "__offload_whole__", None) is None:
            found.append((part.get(), asks))

    body(item)
    same = carried_out(item.array, steps)
    for values, asks in found:
        is_same = values.shape == same.shape and values.tobytes() == same.tobytes()
        assert is_same or (asks and sorted(values.tobytes()) == sorted(item.part.tobytes()))
