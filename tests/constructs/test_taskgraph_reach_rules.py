"""Properties of `taskgraph`: it uses the arrays that objects hold at the call, whatever objects these are."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import types

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import offload as omp
from offload import in_, inout
from tests.conftest import checked

N_CELLS = 4


class Plain:
    """An object with attributes."""

    def __init__(self):
        self.x = None


class Slots:
    """An object with slots."""

    __slots__ = ("x",)

    def __init__(self):
        self.x = None


@dataclasses.dataclass(eq=False)
class Data:
    x: object = None


@dataclasses.dataclass
class Record:
    x: object = None
    name: str = dataclasses.field(default="", compare=False)


def put_item(holder, value):
    holder[0] = value


def put_attribute(holder, value):
    holder.x = value


def of_objects():
    cells = np.empty(1, object)
    cells[0] = None
    return cells


def of_closure():
    cell = [None]
    return (lambda: cell[0]), cell


HOLDERS = {
    **{cls.__name__: (cls, put_attribute, lambda holder: holder.x) for cls in (Plain, Slots, Data, Record)},
    "namespace": (lambda: types.SimpleNamespace(x=None), put_attribute, lambda holder: holder.x),
    "list": (lambda: [None], put_item, lambda holder: holder[0]),
    "dict": (lambda: {0: None}, put_item, lambda holder: holder[0]),
    "object array": (of_objects, put_item, lambda holder: holder[0]),
    "closure": (
        of_closure,
        lambda holder, value: put_item(holder[1], value),
        lambda holder: holder[0](),
    ),
    "partial": (
        lambda: functools.partial(lambda cell: cell[0], [None]),
        lambda holder, value: put_item(holder.args[0], value),
        lambda holder: holder(),
    ),
}

kinds = st.sampled_from(sorted(HOLDERS))
numbers = st.integers(0, N_CELLS - 1)
steps = st.one_of(
    st.tuples(st.just("call")),
    st.tuples(st.just("swap"), numbers, numbers),
    st.tuples(st.just("swap inner"), numbers, numbers),
    st.tuples(st.just("exchange"), numbers, kinds),
    st.tuples(st.just("new"), numbers),
    st.tuples(st.just("view"), numbers, st.integers(1, 3)),
    st.tuples(st.just("same"), numbers, numbers),
    st.tuples(st.just("count"), numbers),
)


class World:
    """Arrays that cells hold: each in an object, which another object holds, which an argument holds."""

    def __init__(self, outer, inner, is_argument_plain):
        self.n_calls = 0
        self.outer, self.inner = [*outer], [*inner]
        self.made = []
        self.argument = Plain() if is_argument_plain else []
        self.holders = [HOLDERS[kind][0]() for kind in outer]
        if is_argument_plain:
            self.argument.x = self.holders
        else:
            self.argument += self.holders
        for number in range(N_CELLS):
            self.exchange(number, inner[number])
            self.set(number, self.array(number + 1))

    def array(self, value):
        """Return a new array, which is looked at in the end."""
        self.made.append(np.full(4, float(value)))
        return self.made[-1]

    def inner_of(self, number, holders=None):
        return HOLDERS[self.outer[number]][2]((holders or self.holders)[number])

    def get(self, number, holders=None):
        return HOLDERS[self.inner[number]][2](self.inner_of(number, holders))

    def set(self, number, value):
        HOLDERS[self.inner[number]][1](self.inner_of(number), value)

    def exchange(self, number, kind):
        """Have another object hold a cell's array."""
        held = self.get(number) if self.inner_of(number) is not None else None
        self.inner[number] = kind
        HOLDERS[self.outer[number]][1](self.holders[number], HOLDERS[kind][0]())
        self.set(number, held)

    def body(self, argument):
        """Generate tasks that mix each cell's array into the next one's."""
        holders = argument.x if isinstance(argument, Plain) else argument
        arrays = [self.get(number, holders) for number in range(N_CELLS)]
        for number, (x, y) in enumerate(itertools.pairwise(arrays)):
            n = min(x.size, y.size)
            omp.task(depend=[in_(x), inout(y)])(mix)(x[:n], y[:n], number)

    def do(self, call, what, first=0, other=None):
        """Take a step of the program."""
        if what == "call":
            call(self.argument)
        elif what == "swap":
            x, y = self.get(first), self.get(other)
            self.set(first, y)
            self.set(other, x)
        elif what == "swap inner":
            x, y = self.inner_of(first), self.inner_of(other)
            self.inner[first], self.inner[other] = self.inner[other], self.inner[first]
            HOLDERS[self.outer[first]][1](self.holders[first], y)
            HOLDERS[self.outer[other]][1](self.holders[other], x)
        elif what == "exchange":
            self.exchange(first, other)
        elif what == "new":
            self.set(first, self.array(first + 5))
        elif what == "view":
            self.set(first, self.made[first][:other])
        elif what == "same":
            self.set(first, self.get(other))
        elif isinstance(self.argument, Plain):
            self.argument.count = first


def mix(x, y, number):
    y *= 3
    y += x + number
    y %= 1009


@settings(deadline=None)
@given(
    st.lists(kinds, min_size=N_CELLS, max_size=N_CELLS),
    st.lists(kinds, min_size=N_CELLS, max_size=N_CELLS),
    st.booleans(),
    st.lists(steps, max_size=12),
)
def test_a_program_without_a_graph(outer, inner, is_argument_plain, program):
    """Swaps and new arrays between calls lead to what the same program computes without a graph."""
    found = []
    for is_graph in (False, True):
        world = World(outer, inner, is_argument_plain)
        call = omp.taskgraph(if_=is_graph)(lambda argument, world=world: world.body(argument))
        with checked("none", num_threads=1):
            for step in [*program, ("call",), ("swap", 0, 1), ("call",), ("swap", 1, 0), ("call",)]:
                world.do(call, *step)
        found.append([array.tolist() for array in world.made])
    assert found[0] == found[1]
