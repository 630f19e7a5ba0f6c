"""The loops that the documentation names: the first look, the vectors of splitting and of speculation."""

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import FunctionSource
from offload.loops.tree import ir


def sweep(a, b):
    w = 0.25
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = w * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])


def distance(a, b):
    d = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            d = max(d, abs(a[i, j] - b[i, j]))
    return d


def update(p, x, y):
    for i in range(p.size):
        y[p[i]] = 0.5 * y[p[i]] + x[i]


def spmv(ptr, col, val, x, y):
    for i in acc.loop(range(y.size), gang=True):
        s = 0.0
        for k in acc.loop(range(ptr[i], ptr[i + 1]), vector=True, reduction={"+": ["s"]}):
            s += val[k] * x[col[k]]
        y[i] = s


def test_the_first_look():
    """The examples become nests of so many axes, with their reductions and levels."""
    max_d = (ir.LoopReduction("max", "d"),)
    assert len(parse(FunctionSource.of(sweep), NestClauses(collapse=2)).nests[0].axes) == 2
    parsed = parse(FunctionSource.of(distance), NestClauses(collapse=2, reductions=max_d))
    assert (parsed.nests[0].reductions, parsed.returns) == (max_d, ("d",))
    assert parse(FunctionSource.of(update), NestClauses()).arrays == ("p", "x", "y")
    nest = parse(FunctionSource.of(spmv), NestClauses()).nests[0]
    assert nest.clauses.level == "gang"
    assert [node.clauses.level for node in nest.body if isinstance(node, ir.For)] == ["vector"]


def doubled(x):
    return 2 * x


VECTORS = {
    "saxpy": "y[i] += 2*x[i]",
    "three points": "b[i] = (a[i-1]+a[i+1])/2",
    "scatter": "y[p[i]] = x[i]",
    "gather": "y[i] = x[p[i]]",
    "by value": "t=p[i]; a[t]=c[i]; b[(t+7)%n]=a[t]",
    "histogram": "h[b[i]] += 1",
    "triangle": "for j in range(i + 1): o[i] += L[i,j]*x[j]",
    "inside": "for j in range(1, n): r[i,j] -= r[i,j-1]/2",
    "in place": "a[2*i] = (a[2*i-1]+a[2*i+1])/2",
    "backwards": "a[i]=x[i]; b[n-1-i]=a[i]*2",
    "an index that is written": "w[i]=p[i]; y[w[i]]=x[i]",
    "swap": "a[2*i], a[2*i+1] = a[2*i+1], a[2*i]",
    "transposed": "for j in range(n): b[j,i] = a[i,j]",
    "rotated": "a[i]=2*c[i]; b[i]=a[(i+3)%n]",
    "there and back": "b[i]=a[i]+1; a[i]=2*b[i]",
    "halves": "m[i+n//2] = 2*m[i]",
    "draws": "k = omp.atomic.add(c, 0, 1); y[k] = x[i]",
    "five predicates": "t=x[i]; a[i]=t; b[i]=a[i]; t=c[i]; a[p[i]]=t; b[p[i]]=a[p[i]]",
    "scratch": "t[0] = x[i]; y[i] = 2*t[0]",
    "twice": "a[i] = 1; a[i] = 2",
    "far": "a[i] = doubled(a[i+n])",
}


@pytest.mark.parametrize("text", VECTORS.values(), ids=VECTORS.keys())
def test_vectors(text, tmp_path):
    """The vectors that splitting and speculation are judged by are in the subset, with the stores that they name."""
    parameters = [name for name in ("a", "b", "c", "h", "L", "m", "n", "o", "p", "r", "w", "x", "y") if name in text]
    parameters += ["t"] if "t[0]" in text else []
    file = tmp_path / "vector.py"
    file.write_text(f"def f({', '.join(parameters)}, trips):\n    for i in range(trips):\n        {text}\n")
    names = {"omp": omp, "doubled": doubled, "np": np}
    exec(compile(file.read_text(), str(file), "exec"), names)
    parsed = parse(FunctionSource.of(names["f"]), NestClauses(atomic=("h",) if "h[" in text else ()))
    assert len(parsed.nests[0].axes) == 1
    assert parsed.nests[0].body


def branches(y, z, x):
    for i in range(x.size):
        if i % 2 == 0:
            y[i] = x[i]
        else:
            z[i] = x[i]


def sums_and_copies(x, y):
    s = 0.0
    for i in range(x.size):
        s += x[i]
        y[i] = x[i]
    return s


def test_vectors_of_several_lines():
    """Branches, and a sum beside a copy, are in the subset."""
    assert isinstance(parse(FunctionSource.of(branches), NestClauses()).nests[0].body[0], ir.If)
    reductions = (ir.LoopReduction("+", "s"),)
    kinds = [
        type(node)
        for node in parse(FunctionSource.of(sums_and_copies), NestClauses(reductions=reductions)).nests[0].body
    ]
    assert kinds == [ir.Reduce, ir.Store]
