"""More loops on replicas: clauses, collapsed loops, downward steps, negative indices, indices that come late."""

from __future__ import annotations

import numpy as np
import pytest

from offload.loops.front.parse import NestClauses
from offload.loops.tree import ir
from tests.loops.cuda_form import GXX, cuda_form
from tests.loops.replicas import Devices
from tests.loops.test_filter import ROWS, M, N, P, Row, floats, mode_of

MORE = {
    "collapsed": (
        Row("for j in range(m):\n    b[j, i] = 2 * a[i, j]", {"a": floats(N, M), "b": floats(M, N)}),
        NestClauses(collapse=2),
        "cut",
    ),
    "collapsed, permuted": (
        Row("for j in range(m):\n    b[j, p[i]] += a[i, j]", {"a": floats(N, M), "b": floats(M, N), "p": P}),
        NestClauses(collapse=2),
        "tested",
    ),
    "private": (
        Row("for j in range(3):\n    t[j] = x[i] + j\ny[p[i]] = t[int(x[i]) % 3] + t[2]", {"t": floats(3), "p": P}),
        NestClauses(private=("t",)),
        "tested",
    ),
    "firstprivate": (
        Row("t[1] = x[i]\ny[p[i]] = t[0] + t[1]", {"t": floats(3), "p": P}),
        NestClauses(firstprivate=("t",)),
        "tested",
    ),
    "lastprivate array": (
        Row("t[0] = x[i]\nt[1] = x[p[i]]\nt[2] = 7\ny[p[i]] = t[1]", {"t": floats(3), "p": P}),
        NestClauses(lastprivate=("t",)),
        "tested",
    ),
    "lastprivate scalar": (
        Row("last = x[i] + 1\ny[i] = last", {}, before="last = 0.0", after="return last"),
        NestClauses(lastprivate=("last",)),
        "cut",
    ),
    "lastprivate alone": (
        Row("z = x[i]\nlast = z + 1", {}, before="last = 0.0", after="return last"),
        NestClauses(lastprivate=("last",)),
        "cut",
    ),
    "reduced to an array": (
        Row("s += x[i]\ny[p[i]] = x[i]", {"s": np.array([3.0]), "p": P}),
        NestClauses(reductions=(ir.LoopReduction("+", "s"),)),
        "tested",
    ),
    "downwards": (Row("y[n - i] = x[n - i]", {}, head="range(n, 0, -1)"), NestClauses(), "cut"),
    "backwards by threes": (Row("y[i] += x[n - 1 - i]", {}, head="range(n - 1, -1, -3)"), NestClauses(), "cut"),
    "sometimes negative": (Row("y[p[i] - 1] += x[i]", {"p": P.astype("int32")}), NestClauses(), "tested"),
    "wraps on the way": (Row("y[i - 1] += x[i]", {}), NestClauses(), "tested"),
    "loaded before the loop": (Row("y[(i + k) % n] = x[i]", {"p": P}, before="k = p[0]"), NestClauses(), "tested"),
    "steps from data": (
        Row("for j in range(0, m, 1 + p[i] % 2):\n    b[p[i], j] = b[p[i], 0] + j", {"b": floats(N, M), "p": P}),
        NestClauses(),
        "tested",
    ),
    "an array of an index that the loop writes": (
        Row("k[i] = p[i]\nif k[i] > 5:\n    y[p[i]] = x[i]", {"k": P * 0, "p": P}),
        NestClauses(),
        "tested",
    ),
    "what nobody needs is read all the same": (
        Row("z = y[n - 1 - i]\ny[i] = 8", {}, head="range(n // 2)"),
        NestClauses(),
        "cut",
    ),
    "an atomic update of what others own": (
        Row(
            "h[p[i] % 6] += y[i]\nh[(p[i] + 3) % 6] += 2",
            {"h": floats(6), "p": P},
        ),
        NestClauses(atomic=("h",)),
        "tested",
    ),
    "nothing is written": (Row("z = x[i]", {}), NestClauses(), "single"),
    "no dimension": (Row("c[()] += 1\ny[i] = x[i]", {"c": np.array(0)}), NestClauses(atomic=("c",)), "tested"),
}


@pytest.mark.parametrize("name", MORE)
@pytest.mark.parametrize("weights", [(1, 1), (2, 0, 1, 3, 1)])
def test_more_loops(name, weights):
    """Clauses, collapsed loops, negative indices: whatever is current is serial, by equal and by other cuts."""
    row, clauses, mode = MORE[name]
    row.arrays = {"x": floats(N), "y": floats(N), **row.arrays}
    row.clauses = clauses
    function, scalars = row.function()
    devices = Devices(row.arrays, weights)
    serial = {array: values.copy() for array, values in row.arrays.items()}
    for _ in range(2):
        before = serial["t"].copy() if name in ("private", "firstprivate") else None
        expected = function(**serial, **scalars)
        if before is not None:
            serial["t"] = before  # each iteration has its own
        assert devices.run(function, clauses, {**{array: array for array in serial}, **scalars}) == expected
        devices.check(serial)
    assert mode_of(devices.last) == mode


@pytest.mark.skipif(GXX is None, reason="no g++")
def test_cuda_does_the_same():
    """The text of a tested nest for CUDA, on the host, changes what the Python form changes."""
    row = ROWS[6]
    function, scalars = row.function()
    devices = Devices(row.arrays, (1, 2, 1), also=cuda_form())
    devices.run(function, row.clauses, {**{name: name for name in row.arrays}, **scalars})
    assert mode_of(devices.last) == "tested"


def test_the_key_of_a_tested_nest():
    """What the text follows from is the same for other weights: nothing is compiled anew."""
    row = ROWS[6]
    function, scalars = row.function()
    arguments = {**{name: name for name in row.arrays}, **scalars}
    keys = []
    for weights in ((1, 1), (1, 3)):
        devices = Devices(row.arrays, weights)
        devices.run(function, row.clauses, arguments)
        keys.append(devices.last.key)
    assert keys[0] == keys[1]
    assert hash(keys[0]) == hash(keys[1])


def test_what_explain_is_told():
    """A report has plain values: the ranges inside of the arrays, the predicates with their terms."""
    row = ROWS[4]
    function, scalars = row.function()
    devices = Devices(row.arrays, (1, 1))
    devices.run(function, row.clauses, {**{name: name for name in row.arrays}, **scalars})
    assert devices.last.report([0, 2]) == {
        "mode": "split",
        "why": "each device tests what it owns",
        "devices": [0, 2],
        "arrays": {"y": {"dimension": 0, "ranges": [[0, 12], [12, 24]]}},
        "predicates": [{"line": 5, "text": "y[p[i]] = …", "terms": [["y", "p[i]"]]}],
    }
