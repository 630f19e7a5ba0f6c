"""The bodies that programs call, and the tables of them decorated."""

from __future__ import annotations

import numpy as np

import offload as omp
from offload import acc, alloc, from_, to, tofrom
from tests.differential.world import BodyError


class Pair:
    """An object with a mapper: ``x`` is mapped ``tofrom``, ``y`` is mapped ``to``."""

    def __init__(self, x, y):
        self.x, self.y = x, y


class Part(Pair):
    """An object of which a mapper maps parts."""


omp.declare_mapper(Part, lambda part: [tofrom(part.x[1:2]), to(part.y[:1])])
omp.declare_mapper(Pair, lambda pair: [tofrom(pair.x), to(pair.y)])
HOST = np.ones(12)


# -- bodies --------------------------------------------------------------------------------------------
def inc(x, k=1):
    x += k


def twice(x):
    x *= 2
    x %= 4096


def total(x):
    return float(abs(x).sum() % 4096)


def fill(x):
    x[...] = 7


def fails(x):
    x += 1
    raise BodyError("a body fails")


def view(x):
    return x[...]


def keyword(*, x):
    x += 3


def add(x, y):
    x += abs(y.sum() % 1024).astype(x.dtype)


def named(x, y):
    x += y[:1].sum().astype(x.dtype) if y.ndim else 1


def private(x, y):
    y[...] = 5
    x += y.sum().astype(x.dtype) % 64


def closure(x, y):
    x += HOST


def all_of(*arrays):
    for number, array in enumerate(arrays):
        inc(array, number)
    return len(arrays)


def of_pair(pair):
    pair.x += 1
    pair.y += 1
    return float(pair.y.real.sum() % 4096)


def of_part(part):
    part.x[1:2] += 1
    return float(part.y[:1].real.sum() % 4096)


def nothing(*_):
    return None


def bump(x):
    x += 1
    return "bumped"


def summed(x):
    return float(abs(x).sum() % 4096)


def nested(x):
    inner = omp.task(depend=[omp.inout(x)])(bump)
    inner(x)
    inner(x)
    omp.taskwait()
    return summed(x)


def final(x):
    return omp.in_final(), omp.task(final=True)(omp.in_final)().result()


def returns_number(x):
    return int(x.size)


def returns_tuple(x):
    return 1, "two", x.shape


# -- loops ---------------------------------------------------------------------------------------------
def saxpy(x, y):
    for i in range(x.size):
        y[i] += 2 * x[i]


def double(x, y):
    for i in range(x.size):
        y[i] = 2 * x[i]


def sweep(x, y):
    w = 0.25
    for i in range(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            y[i, j] = w * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])


def dot(x, y):
    s = 0.0
    for i in range(x.size):
        s += x[i]
    return s


def scatter(p, x):
    for i in range(p.size):
        x[p[i]] = i


def count(p, x):
    for i in range(p.size):
        x[p[i] % 4] += 1


def outside(x, y):
    for i in range(x.size):
        y[i] = x[i + 1]


def wrong(x, y):
    for i in range(1, x.size):
        x[i] = x[i - 1] + y[0]


def search(p, x):
    for i in range(p.size):
        x[p[i]] += x[i]


def host(x, y):
    for i in range(x.size):
        y[i] = x[i] + 1


TARGETS = {
    "inc": (inc, {}),
    "twice": (twice, {}),
    "total": (total, {}),
    "fill": (fill, {"map": [from_("x")]}),
    "part": (inc, {"map": [tofrom("x[1:2]")]}),
    "gap": (inc, {"map": [tofrom("x[0:3:2]")]}),
    "present": (inc, {"map": [tofrom("x", present=True)]}),
    "kept": (inc, {"map": [tofrom("x", always=True)]}),
    "fails": (fails, {}),
    "view": (view, {}),
    "keyword": (keyword, {}),
    "add": (add, {}),
    "named": (named, {"map": [tofrom("x"), to("y")]}),
    "to_only": (add, {"map": [to("x", "y")]}),
    "private": (private, {"private": ["y"]}),
    "captured": (add, {"firstprivate": ["y"]}),
    "closure": (closure, {}),
    "all_of": (all_of, {}),
    "pair": (of_pair, {}),
    "part_of": (of_part, {}),
    "alloc": (fill, {"map": [alloc("x")]}),
}
ACCS = {
    "inc": (acc.parallel, inc, {}),
    "serial": (acc.serial, twice, {}),
    "kernels": (acc.kernels, total, {}),
    "copyin": (acc.parallel, inc, {"copyin": ["x"]}),
    "create": (acc.parallel, fill, {"create": ["x"]}),
    "present": (acc.parallel, inc, {"present": ["x"]}),
    "no_create": (acc.parallel, nothing, {"no_create": ["x"]}),
    "fails": (acc.parallel, fails, {}),
    "reduced": (acc.parallel, inc, {"reduction": {"+": ["x"]}}),
}
TASKS = {
    "bump": bump,
    "sum": summed,
    "nested": nested,
    "fails": fails,
    "returns": view,
    "final": final,
    "tuple": returns_tuple,
    "nothing": nothing,
}
LOOPS = {
    "saxpy": (omp.target_loop, saxpy, {}),
    "double": (omp.target_loop, double, {}),
    "sweep": (omp.target_loop, sweep, {"collapse": 2}),
    "dot": (omp.target_loop, dot, {"reduction": {"+": ["s"]}}),
    "scatter": (omp.target_loop, scatter, {"independent": True}),
    "count": (omp.target_loop, count, {"atomic": ["x"]}),
    "outside": (omp.target_loop, outside, {}),
    "wrong": (omp.target_loop, wrong, {}),
    "host": (omp.parallel_loop, host, {}),
    "acc": (acc.parallel_loop, saxpy, {}),
    "deferred": (omp.target_loop, double, {"nowait": True}),
    "search": (omp.target_loop, search, {"speculate": True}),
}


class Table:
    """Decorated functions, made when they are first asked for."""

    def __init__(self):
        self._made = {}

    def kept(self, kind, name):
        """Return the function, the same each time."""
        if (kind, name) not in self._made:
            self._made[kind, name] = self.made(kind, name)
        return self._made[kind, name]

    @staticmethod
    def made(kind, name):
        """Return the function, decorated now."""
        match kind:
            case "target":
                body, clauses = TARGETS[name]
                return omp.target(**clauses)(body)
            case "task":
                return omp.task(TASKS[name])
            case "acc":
                construct, body, clauses = ACCS[name]
                return construct(**clauses)(body)
        construct, body, clauses = LOOPS[name]
        return construct(**clauses)(body)
