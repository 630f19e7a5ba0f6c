"""A nest with a log, iteration beside iteration: every step on a word where a schedule wants it."""

from __future__ import annotations

from functools import partial

import numpy as np

import offload as omp
from offload.loops.running.plan import numbers_of, plans_of
from offload.loops.running.preparation import view_at
from offload.loops.speculative.log_runs import logged_loop
from offload.loops.tree import ir
from offload.loops.tree.nodes import walk
from offload.loops.watched.exchange_log import FLAG_WORDS, OPEN, final_pass
from tests.loops.serial import _Break, _Continue, _Iteration


class Stepped(_Iteration):
    """An iteration that stops before each step on a word, and before each look at one."""

    def __init__(self, names, words, trips):
        super().__init__(names, {})
        self.words, self.trips = words, trips

    def value(self, node):
        return np.int64(self.trips[node.axis]) if isinstance(node, ir.Trip) else super().value(node)

    def steps(self, statements):
        for node in statements:
            match node:
                case ir.If():
                    if any(isinstance(one, ir.Load) and one.array in self.words for one in walk(node.condition)):
                        yield
                    yield from self.steps(node.then if self.value(node.condition) else node.otherwise)
                case ir.For():
                    for trip in range(self.value(node.start), self.value(node.stop), self.value(node.step)):
                        self.names[node.variable] = trip
                        try:
                            yield from self.steps(node.body)
                        except _Break:
                            break
                        except _Continue:
                            pass
                case ir.Atomic() | ir.Store():
                    yield
                    self.statement(node)
                case _:
                    self.statement(node)


def loop_of(function, arguments):
    """Return the logged loop of a call on the host, with its arguments by name."""
    program = omp.target_loop(function, speculate="always")._program
    values = program.bound(arguments, {})
    spec = program.specialise(values)
    numbers = numbers_of(spec, values, partial(view_at, None))
    (plan,) = plans_of(spec, numbers)
    loop = logged_loop(spec, numbers, plan)
    assert loop is not None
    return loop, values


class Words:
    """The words of a loop, from call to call."""

    def __init__(self):
        self.arrays = {}
        self.base = 0


def verdict(loop, values, rng, words=None):
    """Run a logged loop of one axis in the order that `rng` draws; return whether its flag stays down."""
    words = Words() if words is None else words
    of, log = loop.logged.watched, loop.logged
    axis = loop.numbers.axes[0][0]
    for names in (log.writers, log.readers):
        for storage, name in names.items():
            words.arrays.setdefault(name, np.zeros(max(log.n_cells[storage], 1), np.uint32))
    given = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in values.items()}
    given |= words.arrays
    given[log.flag] = np.zeros(FLAG_WORDS, np.int64)
    given |= {name: np.int64(value) for name, value in of.given.items()}
    many = words.base + 1 + loop.n_iterations
    given |= {log.base: np.uint32(words.base), log.many: np.uint32(many), log.first: np.uint32(words.base + 1)}
    known = {log.flag, *words.arrays}
    running = []
    for trip in range(axis.trips):
        own = {**given, of.nest.axes[0].variable: np.int64(axis.start + trip * axis.step)}
        running.append(Stepped(own, known, [trip]).steps(of.nest.body))
    while running:
        one = rng.choice(running)
        try:
            next(one)
        except (StopIteration, _Continue):
            running.remove(one)
    for storage in log.readers:
        passing = final_pass(loop.spec.typed, log, storage)
        for cell in range(log.n_cells[storage]):
            _Iteration({**given, "w_e": np.int64(cell)}, {}).block(passing.nest.body)
    words.base = many
    if given[log.flag][OPEN] and not given[log.flag][0]:
        return verdict(loop.exact(), values, rng)
    return not given[log.flag][0]


def truth(accesses):
    """Tell whether no element has two writers, or a writer and another reader: of (iteration, kind, element)."""
    writers, readers = {}, {}
    for iteration, kind, element in accesses:
        (writers if kind == "store" else readers).setdefault(element, set()).add(iteration)
    return not any(len(of) > 1 or readers.get(element, set()) - of for element, of in writers.items())
