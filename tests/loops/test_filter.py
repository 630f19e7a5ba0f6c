"""The vectors of one loop on several devices: how each is divided, who carries out what, and that values are serial."""

from __future__ import annotations

import random
import textwrap
from dataclasses import dataclass, field

import numpy as np
import pytest

from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import FunctionSource
from offload.loops.front.types import infer
from offload.loops.proofs.independence import independence
from offload.loops.proofs.numbers import LaunchNumbers, Trips
from offload.loops.proofs.reach import accesses
from offload.loops.tree import ir
from tests.loops.forms import types_of
from tests.loops.oracle import function_of_text
from tests.loops.replicas import Devices, FailedError, view_of
from tests.profiles import few

N, M = 24, 5
RNG = np.random.default_rng(3)
P, Q = RNG.permutation(N), RNG.permutation(N)
COUNTS = np.concatenate([[0], np.cumsum(RNG.integers(0, 4, N))])


def floats(*shape):
    return RNG.integers(0, 99, shape).astype(float)


@dataclass
class Row:
    """A loop, and what is expected of it on four devices.

    Attributes
    ----------
    mode : str
        "cut", "tested", "duplicate" or "single".
    dimensions : dict
        In which each array is split; those that every device computes are missing.
    terms : list
        Of each predicate, in the order of the text.
    share : float
        Writes carried out by all devices over serial ones.
    """

    body: str
    arrays: dict
    mode: str = "cut"
    dimensions: dict = field(default_factory=dict)
    terms: list = field(default_factory=list)
    share: float = 1.0
    head: str = "range(n)"
    before: str = ""
    after: str = ""
    clauses: NestClauses = field(default_factory=NestClauses)
    scalars: dict = field(default_factory=dict)

    def function(self):
        scalars = {"n": N, "m": M, **self.scalars}
        lines = [*self.before.splitlines(), f"for i in {self.head}:", textwrap.indent(self.body, "    ")]
        lines += self.after.splitlines()
        text = f"def f({', '.join([*self.arrays, *scalars])}):\n" + textwrap.indent("\n".join(lines), "    ") + "\n"
        return function_of_text("import offload as omp\n\n" + text), scalars


def own(array, index):
    return array, index


ROWS = {
    1: Row("y[i] += 2 * x[i]", {"y": floats(N), "x": floats(N)}, "cut", {"y": 0}, [[own("y", "i")]]),
    2: Row(
        "b[i] = (a[i - 1] + a[i + 1]) / 2",
        {"a": floats(N), "b": floats(N)},
        "cut",
        {"b": 0},
        [[own("b", "i")]],
        head="range(1, n - 1)",
    ),
    3: Row(
        "for j in range(1, m - 1):\n    b[i, j] = a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1]",
        {"a": floats(N, M), "b": floats(N, M)},
        "cut",
        {"b": 0},
        [[own("b", "i")]],
        head="range(1, n - 1)",
    ),
    4: Row("y[p[i]] = x[i]", {"y": floats(N), "x": floats(N), "p": P}, "tested", {"y": 0}, [[own("y", "p[i]")]]),
    5: Row("y[i] = x[p[i]]", {"y": floats(N), "x": floats(N), "p": P}, "cut", {"y": 0}, [[own("y", "i")]]),
    6: Row(
        "t = p[i]\na[t] = c[i]\nb[(t + 7) % n] = a[t]",
        {"a": floats(N), "b": floats(N), "c": floats(N), "p": P},
        "tested",
        {"a": 0, "b": 0},
        [[own("a", "t"), own("b", "(t + 7) % n")], [own("b", "(t + 7) % n")]],
        1.5,
    ),
    7: Row(
        "h[b[i]] += 1",
        {"h": floats(7), "b": RNG.integers(0, 7, N)},
        "tested",
        {"h": 0},
        [[own("h", "b[i]")]],
        clauses=NestClauses(atomic=("h",)),
    ),
    8: Row(
        "for j in range(i + 1):\n    o[i] += L[i, j] * x[j]",
        {"o": floats(N), "L": floats(N, N), "x": floats(N)},
        "cut",
        {"o": 0},
        [[own("o", "i")]],
    ),
    9: Row(
        "s = 0.0\nfor k in range(ptr[i], ptr[i + 1]):\n    s += v[k] * x[col[k]]\ny[i] = s",
        {
            "y": floats(N),
            "ptr": COUNTS,
            "v": floats(COUNTS[-1]),
            "col": RNG.integers(0, N, COUNTS[-1]),
            "x": floats(N),
        },
        "cut",
        {"y": 0},
        [[own("y", "i")], [own("y", "i")]],
    ),
    10: Row(
        "for j in range(1, m):\n    r[i, j] -= r[i, j - 1] / 2", {"r": floats(N, M)}, "cut", {"r": 0}, [[own("r", "i")]]
    ),
    11: Row(
        "for j in range(1, m):\n    r[j, i] -= r[j - 1, i] / 2", {"r": floats(M, N)}, "cut", {"r": 1}, [[own("r", "i")]]
    ),
    13: Row(
        "a[2 * i] = (a[2 * i - 1] + a[2 * i + 1]) / 2",
        {"a": floats(2 * N + 1)},
        "cut",
        {"a": 0},
        [[own("a", "2 * i")]],
        head="range(1, n)",
    ),
    14: Row(
        "a[i] = x[i]\nb[n - 1 - i] = a[i] * 2",
        {"a": floats(N), "b": floats(N), "x": floats(N)},
        "cut",
        {"a": 0, "b": 0},
        [[own("a", "i"), own("b", "n - 1 - i")], [own("b", "n - 1 - i")]],
    ),
    15: Row(
        "w[i] = p[i]\ny[w[i]] = x[i]",
        {"w": np.zeros(N, int), "y": floats(N), "x": floats(N), "p": P},
        "tested",
        {"y": 0},
        [None, [own("y", "w[i]")]],
        2.5,
    ),
    16: Row(
        "t = a[2 * i]\na[2 * i] = a[2 * i + 1]\na[2 * i + 1] = t",
        {"a": floats(2 * N)},
        "cut",
        {"a": 0},
        [[own("a", "2 * i + 1")], [own("a", "2 * i")], [own("a", "2 * i + 1")]],
    ),
    17: Row(
        "for j in range(m):\n    b[j, i] = a[i, j]",
        {"b": floats(M, N), "a": floats(N, M)},
        "cut",
        {"b": 1},
        [[own("b", "i")]],
    ),
    20: Row(
        "b[i] = a[i] + 1\na[i] = 2 * b[i]",
        {"a": floats(N), "b": floats(N)},
        "cut",
        {"a": 0, "b": 0},
        [[own("a", "i"), own("b", "i")], [own("a", "i")]],
    ),
    21: Row(
        "if i % 2 == 0:\n    y[i] = x[i]\nelse:\n    z[i] = x[i]",
        {"y": floats(N), "z": floats(N), "x": floats(N)},
        "cut",
        {"y": 0, "z": 0},
        [[own("y", "i")], [own("z", "i")]],
    ),
    22: Row(
        "for j in range(1, m):\n    b[i, j] = a[i, j]\n    a[i, j] = b[i, j - 1]",
        {"a": floats(N, M), "b": floats(N, M)},
        "cut",
        {"a": 0, "b": 0},
        [[own("a", "i"), own("b", "i")], [own("a", "i")]],
    ),
    23: Row(
        "k[i + h] = 2 * k[i]",
        {"k": floats(2 * N)},
        "cut",
        {"k": 0},
        [[own("k", "i + h")]],
        scalars={"h": N},
    ),
    24: Row(
        "s += x[i]\ny[i] = x[i]",
        {"x": floats(N), "y": floats(N)},
        "cut",
        {"y": 0},
        [[own("", "i")], [own("y", "i")]],
        before="s = 1.0",
        after="return s",
        clauses=NestClauses(reductions=(ir.LoopReduction("+", "s"),)),
    ),
    25: Row(
        "k = omp.atomic.add(c, 0, 1)\ny[k] = x[i]",
        {"c": np.zeros(1, int), "y": floats(2 * N), "x": floats(N)},
        "single",
        {},
        [None, None],
    ),
    26: Row(
        "e = p[i]\nk = q[i]\na[e] = x\nb[e] = a[e]\nz = c[j[i]]\na[k] = z\nb[k] = a[k]",
        {"a": floats(2 * N), "b": floats(2 * N), "c": floats(N), "p": P, "q": Q + N, "j": Q},
        "tested",
        {"a": 0, "b": 0},
        [
            [own("a", "e"), own("b", "e")],
            [own("b", "e")],
            [own("a", "k"), own("b", "k")],
            [own("a", "k"), own("b", "k")],
            [own("b", "k")],
        ],
        scalars={"x": 3.5},
    ),
}


def run(row, weights, n=N, calls=2):
    """Run a row on replicas, and compare whatever is current with CPython; return the replicas."""
    function, scalars = row.function()
    devices = Devices(row.arrays, weights)
    serial = {name: array.copy() for name, array in row.arrays.items()}
    arguments = {**{name: name for name in serial}, **scalars, "n": n}
    for _ in range(calls):
        expected = function(**{**serial, **scalars, "n": n})
        assert devices.run(function, row.clauses, arguments) == expected
        devices.check(serial)
    return devices


def mode_of(found):
    return found.mode if found.mode != "split" else "cut" if found.is_cut else "tested"


@pytest.mark.parametrize("number", ROWS)
def test_how_a_loop_is_divided(number):
    """On four devices: its mode, the dimensions, the predicates, and how many writes are carried out."""
    row = ROWS[number]
    devices = run(row, (1, 1, 1, 1), calls=1)
    found, n_writes = devices.last, devices.n_writes
    assert mode_of(found) == row.mode
    assert {array: split.dimension for array, split in found.splits.items()} == row.dimensions
    assert [None if one.terms is None else list(one.terms) for one in found.predicates] == row.terms
    assert n_writes == row.share * run(row, (1,), calls=1).n_writes


@pytest.mark.parametrize("n_devices", few(2, [3, 4, 1, 2, 7]))
@pytest.mark.parametrize("number", ROWS)
def test_values_are_serial(number, n_devices):
    """By equal and by random cuts, and in a second call that finds elements elsewhere, values are CPython's."""
    rng = random.Random(10 * number + n_devices)
    run(ROWS[number], (1,) * n_devices)
    run(ROWS[number], (*[rng.randint(0, 3) for _ in range(n_devices - 1)], 1), calls=1)


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("number", [1, 2, 4, 6, 7, 14, 15, 24])
def test_few_iterations(number, n):
    """With fewer iterations than devices some have nothing to do, and nothing is lost."""
    devices = run(ROWS[number], (1, 1, 1, 1), n=n)
    assert sum(begin < end for begin, end in devices.last.trips) <= (n if mode_of(devices.last) == "cut" else 4)


def test_the_lines_of_predicates():
    """A predicate has its line and its statement without the value."""
    found = run(ROWS[7], (1, 1), calls=1).last
    (one,) = found.predicates
    assert one.text == "h[b[i]] += …"
    assert [each.text for each in run(ROWS[24], (1, 1), calls=1).last.predicates] == ["s += …", "y[i] = …"]


def test_halos_travel_alone():
    """The second of two sweeps fetches one element a side from each neighbour."""
    row = Row(
        "b[i] = a[i - 1] + a[i + 1]",
        {"a": floats(N), "b": floats(N)},
        head="range(1, n - 1)",
    )
    function, scalars = row.function()
    devices = Devices(row.arrays, (1, 1, 1, 1))
    serial = {name: array.copy() for name, array in row.arrays.items()}
    for _ in range(3):
        for one, other in (("a", "b"), ("b", "a")):
            before = devices.n_copied
            function(serial[one], serial[other], **scalars)
            devices.run(function, row.clauses, {"a": one, "b": other, **scalars})
            devices.check(serial)
    assert devices.n_copied - before == 6


SEQUENTIAL = {
    "12": ("a[i] = (a[i - 1] + a[i + 1]) / 2", "range(1, n - 1)"),
    "18": ("for j in range(3):\n    t[j] = a[i]\nb[i] = t[0] + t[2]", "range(n)"),
    "23": ("a[i + 5] = 2 * a[i]", "range(n - 5)"),
}


@pytest.mark.parametrize("number", SEQUENTIAL)
def test_what_is_no_matter_of_splitting(number):
    """Dependences between iterations are proved before anything is divided."""
    body, head = SEQUENTIAL[number]
    row = Row(body, {"a": floats(N), "b": floats(N), "t": floats(3)}, head=head)
    function, scalars = row.function()
    loop = parse(FunctionSource.of(function), NestClauses())
    typed = infer(loop, *types_of(loop, {**row.arrays, **scalars}))
    views = {name: view_of(array) for name, array in row.arrays.items()}
    trips = eval(head, {**scalars})
    found = accesses(
        typed, typed.function.nests[0], LaunchNumbers((Trips(trips.start, 1, len(trips)),), scalars, views)
    )
    assert independence(found).verdict == "sequential"


def test_a_dependence_that_nobody_proves_is_seen_in_the_values():
    """Row 19: with iterations that are not independent a split leaves three elements with old values."""
    row = Row("a[i] = 2 * c[i]\nb[i] = a[(i + 3) % n]", {"a": floats(N), "b": floats(N), "c": 100 + floats(N)})
    function, scalars = row.function()
    devices = Devices(row.arrays, (1, 1, 1, 1))
    serial = {name: array.copy() for name, array in row.arrays.items()}
    function(**serial, **scalars)
    devices.run(function, row.clauses, {**{name: name for name in serial}, **scalars})
    wrong = sum(int((replica.arrays["b"] != serial["b"])[replica.current["b"]].sum()) for replica in devices.replicas)
    assert wrong == 3


def test_what_is_recomputed_too_often_is_computed_everywhere():
    """An array that two others would have computed 1.75 times over is not filtered; the others stay split."""
    row = Row(
        "a[i] = x[i]\nb[n - i] = a[i]\nb[n + 1 + i] = a[i]",
        {"a": floats(N), "b": floats(2 * N + 2), "x": floats(N)},
    )
    found = run(row, (1, 1, 1, 1)).last
    assert found.everywhere == {"a"}
    assert list(found.splits) == ["b"]


def test_flat_rows_are_cut():
    """What an iteration writes of a flat array is its own even where inner loops go over it."""
    row = Row("y[i * m] = x[i]\nfor j in range(m):\n    y[i * m + j] += x[i] * j", {"y": floats(N * M), "x": floats(N)})
    assert mode_of(run(row, (1, 2, 1)).last) == "cut"


def overlapping(kind):
    """Return two arrays that share memory."""
    base = floats(2 * N)
    return {
        "shifted": (base[N // 2 :], base[: N + N // 2]),
        "same": (base, base),
        "between": (base[::2], base[1::2]),
        "reversed": (base[:N], base[N - 1 :: -1]),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "body", "head", "mode"),
    [
        ("same", "a[i] = 2 * b[i]", "range(n)", "cut"),
        ("shifted", "a[n // 2 + i] = b[i]", "range(n // 2)", "cut"),
        ("between", "a[i] = b[i]", "range(n)", "cut"),
        ("reversed", "a[i] = 2 * b[n - 1 - i]", "range(n)", "duplicate"),
    ],
)
def test_arrays_that_share_memory(kind, body, head, mode):
    """One view twice, or shifted, is one array; between another's elements nothing is shared; else all is computed."""
    one, other = overlapping(kind)
    row = Row(body, {"a": one, "b": other}, head=head)
    function, scalars = row.function()
    devices = Devices(row.arrays, (1, 1, 1))
    devices.run(function, row.clauses, {"a": "a", "b": "b", **scalars})
    expected = Devices(row.arrays, (1,)).host.arrays
    function(expected["a"], expected["b"], **scalars)
    devices.check(expected)
    assert mode_of(devices.last) == mode


def test_an_index_out_of_range_is_reported_once():
    """An element that nobody can own belongs to the first or the last device, which finds it."""
    for wrong in (N, -N - 1):
        table = P.copy()
        table[5] = wrong
        row = Row("y[p[i]] = x[i]", {"y": floats(N), "x": floats(N), "p": table})
        function, scalars = row.function()
        with pytest.raises(FailedError) as failed:
            Devices(row.arrays, (1, 1, 1)).run(function, row.clauses, {"y": "y", "x": "x", "p": "p", **scalars})
        assert failed.value.args[0] == (2 if wrong > 0 else 0)


def test_tests_do_not_fail_where_the_loop_would_not():
    """An index that is in range under a branch only is tested at the head of the iteration, and does not fail there."""
    table, divisors = P.copy(), np.arange(N) % 3
    table[::4] = 99
    row = Row(
        "if p[i] < n and d[i] != 0:\n    y[q[p[i]]] = x[i]\n    z[q[p[i] // d[i] * d[i] % n]] += y[q[p[i]]] * 0",
        {"y": floats(N), "z": floats(N), "x": floats(N), "p": table, "q": Q, "d": divisors},
    )
    found = run(row, (1, 1, 1)).last
    assert mode_of(found) == "tested"
