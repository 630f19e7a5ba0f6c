"""What a loop function does with its arrays."""

import offload as omp
from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import FunctionSource
from offload.loops.tree import ir
from offload.loops.tree.uses import ArrayUse, accesses


def uses(a, b, c, h, k, total, own, first, last, shape):
    for i in range(shape.size):
        a[i] = b[i]
        c[i] += 1
        h[i % 3] += 1
        omp.atomic.add(k, 0, 1)
        total[()] += a[i]
        own[0] = a[i]
        first[0] += own[0]
        last[0] = first[0]


def test_accesses():
    """Each array is read, written, updated or none of it; private ones as their contents come and go."""
    clauses = NestClauses(
        atomic=("h",),
        reductions=(ir.LoopReduction("+", "total"),),
        private=("own",),
        firstprivate=("first",),
        lastprivate=("last",),
    )
    assert accesses(parse(FunctionSource.of(uses), clauses)) == {
        "a": ArrayUse(is_read=True, is_written=True),
        "b": ArrayUse(is_read=True),
        "c": ArrayUse(is_read=True, is_written=True),
        "h": ArrayUse(is_atomic=True),
        "k": ArrayUse(is_atomic=True),
        "total": ArrayUse(is_reduced=True),
        "own": ArrayUse(),
        "first": ArrayUse(is_read=True),
        "last": ArrayUse(is_written=True),
        "shape": ArrayUse(),
    }


def test_what_is_changed():
    """An array is changed by writes, atomic updates and reductions."""
    assert not ArrayUse(is_read=True).is_changed
    assert ArrayUse(is_written=True).is_changed
    assert ArrayUse(is_atomic=True).is_changed
    assert ArrayUse(is_reduced=True).is_changed
