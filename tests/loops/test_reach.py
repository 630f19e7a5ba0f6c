"""What functions reach at a launch, from the text that a program has."""

import numpy as np

import offload as omp
from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import FunctionSource
from offload.loops.front.types import infer
from offload.loops.proofs.bounds import bounds, is_overwritten, wanted
from offload.loops.proofs.independence import independence
from offload.loops.proofs.numbers import LaunchNumbers, Trips
from offload.loops.proofs.reach import accesses
from offload.loops.tree import ir
from tests.loops.building import view

WEAK_INT = ir.Type("int64", is_weak=True)


def reached(function, arrays, axes, *, private=(), reductions=(), **scalars):
    """Return the accesses of a function's nest; arrays are (dtype, extents), apart from each other."""
    clauses = NestClauses(private=private, reductions=reductions, checks=True)
    types = {name: ir.LoopArrayType(dtype, len(extents)) for name, (dtype, extents) in arrays.items()}
    typed = infer(parse(FunctionSource.of(function), clauses), dict.fromkeys(scalars, WEAK_INT), types)
    (nest,) = typed.function.nests
    views = {name: view(*extents, address=place << 30) for place, (name, (_, extents)) in enumerate(arrays.items(), 1)}
    return accesses(typed, nest, LaunchNumbers(axes, scalars, views))


def rows(y, v, c, p, x):
    for i in range(len(y)):
        s = 0.0
        for k in range(p[i], p[i + 1]):
            s += v[k] * x[c[k]]
        y[i] = s


def test_sparse_rows():
    """Rows of a sparse matrix are independent; what the pointers hold is asked for first, the product is all new."""
    arrays = {"y": ("float64", (8,)), "v": ("float64", (20,)), "c": ("int32", (20,)), "p": ("int64", (9,))}
    found = reached(rows, arrays | {"x": ("float32", (6,))}, (Trips(0, 1, 8),))
    assert independence(found).verdict == "parallel"
    assert is_overwritten(found, "y")
    asked = wanted(found, bounds(found))
    assert {access.array for access in found.listed if access.at in asked} == {"p"}


def bounded(p, q, u, y, n, far):
    for i in range(len(y)):
        for a in range(p[i], p[i + 1]):
            y[i] += a
        for b in range(p[i + 1], p[i], -1):
            y[i] -= b
        for c in range(p[i], p[i + 1], 2):
            y[i] += c
        for d in range(i, n, 3):
            y[i] += d
        for e in range(q[i], q[i + 1]):
            y[i] += e
        for g in range(u[i]):
            y[i] += g
        for h in range(n, far):
            y[i] += h
        for k in range(far, n):
            y[i] += k
        for m in range(n):
            m += 1  # noqa: PLW2901  # which CPython allows
            y[i] += m
        for r in range(n):
            y[i] += r
        for r in range(q[i]):
            y[i] += r
        for s in range(q[i] % 100):
            for t in range(s, 2 * s):
                y[i] += t
        for v in range(p[i], p[i + 1], n):
            y[i] += v
        for w in range(-1, -n, -n):
            y[i] += w


def test_variables_that_32_bits_hold():
    """Bounds decide, and steps: elements of int32 by steps of one, numbers of the launch."""
    arrays = {"p": ("int32", (9,)), "q": ("int64", (9,)), "u": ("uint32", (8,)), "y": ("int64", (8,))}
    found = reached(bounded, arrays, (Trips(0, 1, 8),), n=9, far=2**31)
    assert found.narrow == {"a", "b", "d", "m_1", "s", "t", "w"}
    found = reached(bounded, arrays, (Trips(0, 1, 8),), n=9, far=2**31 - 1)
    assert found.narrow == {"a", "b", "d", "h", "k", "m_1", "s", "t", "w"}


def at(a, i, j):
    t = 2 * i
    return a[t // 2 + j]


def inlined(y, x, n):
    for i in range(1, n):
        y[i] = at(x, i, 1) - at(x, i, -1)


def test_inlined_functions():
    """Arguments of inlined functions and their temporaries are seen through."""
    found = reached(inlined, {"y": ("float64", (9,)), "x": ("float64", (9,))}, (Trips(1, 1, 7),), n=8)
    intervals = [each.intervals for each in bounds(found).values()]
    assert intervals == [((2, 8),), ((0, 6),), ((1, 7),)]


def sweep(a, n):
    for i in range(1, n):
        a[i] += 0.5 * a[i - 1]


def test_a_sweep_in_place():
    """An update in place is a load, an operation and a store: the sweep is found out with the line of both."""
    verdict = independence(reached(sweep, {"a": ("float32", (8,))}, (Trips(1, 1, 7),), n=8))
    assert verdict.verdict == "sequential"
    (proved,) = verdict.dependences
    assert (proved.kind, proved.distance) == ("flow", (1,))
    line = sweep.__code__.co_firstlineno + 2
    assert proved.source.place.line == proved.sink.place.line == line


def scratch(y, t, n):
    for i in range(n):
        for j in range(3):
            t[j] = i + j
        y[i] = t[0] * t[2]


def test_private_arrays():
    """A scratch array is a dependence, and none once each iteration has its own."""
    arrays = {"y": ("float64", (8,)), "t": ("float64", (3,))}
    shared = reached(scratch, arrays, (Trips(0, 1, 8),), n=8)
    assert {each.kind for each in independence(shared).dependences} == {"anti", "output"}
    own = reached(scratch, arrays, (Trips(0, 1, 8),), private=("t",), n=8)
    assert independence(own).verdict == "parallel"
    assert not is_overwritten(own, "t")


def summed(x, n):
    s = 0.0
    for i in range(n):
        t = np.zeros(4)
        assert x.ndim == 1, "one row"
        t[i % len(t)] = -x[i] if not x[i] > 0.0 else +x[i]
        s += t[i % 4] * x.size
    return s


def test_reductions_and_local_arrays():
    """Updates of a reduction's item and elements of local arrays are no dependences; local ones have bounds too."""
    reductions = (ir.LoopReduction("+", "s"),)
    found = reached(summed, {"x": ("float64", (8,))}, (Trips(0, 1, 8),), reductions=reductions, n=8)
    assert independence(found).verdict == "parallel"
    local = [bounds(found)[access.at] for access in found.listed if access.array == "t"]
    assert [(each.intervals, each.mode) for each in local] == [(((0, 3),), "off")] * 2


def claimed(h, y, m):
    for i in range(m):
        k = omp.atomic.cas(h, i, 0, 1)
        y[k] = i


def test_old_values_of_atomics():
    """The old value of an atomic update is unknown, and differs from iteration to iteration."""
    found = reached(claimed, {"h": ("int32", (8,)), "y": ("float64", (8,))}, (Trips(0, 1, 8),), m=8)
    assert independence(found).verdict == "unknown"
    (store,) = (access for access in found.listed if access.array == "y")
    assert bounds(found)[store.at].intervals == ((-(2**31), 2**31 - 1),)


def squares(a):
    for i in range(a.size):
        k = 7
        k = k * k * k * k * k * k * k * k
        k = k * k * k * k * k * k * k * k
        k = k * k * k * k * k * k * k * k
        k = k * k * k * k * k * k * k * k
        k = k * k * k * k * k * k * k * k
        k = k * k * k * k * k * k * k * k
        k = k * k * k * k * k * k * k * k
        k = k * k * k * k * k * k * k * k
        k = k * k * k * k * k * k * k * k
        k = k * k * k * k * k * k * k * k
        a[k % 9] = i


def test_numbers_that_are_known_wrap():
    """A number that is raised to a power of many digits is the one that 64 bits hold, and is had at once."""
    found = reached(squares, {"a": ("int64", (9,))}, (Trips(0, 1, 9),))
    power = pow(7, 8**10, 1 << 64)
    power -= (power >> 63) << 64
    (index,) = found.listed[-1].indices
    assert index.interval == (power % 9, power % 9)
