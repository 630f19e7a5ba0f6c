"""What a loop function does with its arrays."""

import offload as omp
from offload.loops.front.accesses import Access, accesses
from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import Source
from offload.loops.tree import ir


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
        reductions=(ir.Reduction("+", "total"),),
        private=("own",),
        firstprivate=("first",),
        lastprivate=("last",),
    )
    assert accesses(parse(Source.of(uses), clauses)) == {
        "a": Access(is_read=True, is_written=True),
        "b": Access(is_read=True),
        "c": Access(is_read=True, is_written=True),
        "h": Access(is_atomic=True),
        "k": Access(is_atomic=True),
        "total": Access(is_reduced=True),
        "own": Access(),
        "first": Access(is_read=True),
        "last": Access(is_written=True),
        "shape": Access(),
    }


def test_what_is_changed():
    """An array is changed by writes, atomic updates and reductions."""
    assert not Access(is_read=True).is_changed
    assert Access(is_written=True).is_changed
    assert Access(is_atomic=True).is_changed
    assert Access(is_reduced=True).is_changed
