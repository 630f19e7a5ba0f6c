"""Loops on several devices that are deferred: whatever runs beside whatever, values are those of calls in order."""

from __future__ import annotations

import random

import numpy as np
import pytest

import offload as omp
from tests.conftest import checked
from tests.loops.sequences import LOOPS, M, N, advance
from tests.profiles import few

pytestmark = pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning")

IN_CI = 20
WRITTEN = {
    "rows": "b",
    "columns": "a",
    "lower_rows": "a",
    "scatter": "y",
    "gather": "y",
    "edge": "x",
    "fill": "x",
    "total": "",
}
"""What each loop writes; what it only reads others may read beside it."""


def run(seed):
    """Generate loops and regions on one device with dependences by arrays, then wait, and compare."""
    rng, values = random.Random(seed), np.random.default_rng(seed)
    serial = {name: values.integers(0, 97, (N, M)) for name in "AB"} | {
        name: values.integers(0, 97, N) for name in "xyz"
    }
    serial |= {name: values.permutation(N) for name in "pq"}
    mine = {name: array.copy() for name, array in serial.items()}
    words = {"filter": rng.choice(["always", "auto", "never"]), "exchange": rng.choice(["lazy", "lazy", "eager"])}
    loops = [
        (one, omp.target_loop(devices="all", nowait=True, **words, **(one.clauses or {}))(one.function))
        for one in LOOPS
    ]
    n_devices = rng.choice([2, 3, 4])
    results = []
    with checked(f"sim:{n_devices}", num_threads=rng.choice([0, 1, 4]), env={}):
        with omp.target_data(map=[omp.tofrom(array) for array in mine.values()], devices="all"):
            for _ in range(rng.randint(5, 25)):
                if rng.random() < 0.2:
                    name = rng.choice("ABxyz")
                    serial[name][...] = (serial[name] * 2 + 1) % 97
                    depend = [omp.inout(mine[name])]
                    advance.options(device=rng.randrange(n_devices), nowait=True, depend=depend)(mine[name])
                    continue
                one, loop = rng.choice(loops)
                kinds = {"a": ["A", "B"], "x": ["x", "y", "z"], "p": ["p", "q"]}
                for names in kinds.values():
                    rng.shuffle(names)
                given = [kinds[kind].pop() if kind != "k" else rng.randint(0, N) for kind in one.kinds]
                depend = [
                    (omp.inout if parameter in WRITTEN[one.function.__name__] else omp.in_)(mine[name])
                    for parameter, name in zip(one.parameters, given, strict=True)
                    if name in mine
                ]
                found = loop.options(depend=depend)(*[mine.get(name, name) for name in given])
                results.append((found, one.function(*[serial.get(name, name) for name in given])))
            omp.taskwait()
        assert [task.result() for task, _ in results] == [value for _, value in results]
    for name, array in serial.items():
        np.testing.assert_array_equal(mine[name], array, err_msg=f"{name}, seed {seed}")


@pytest.mark.parametrize("first", few(1, range(0, IN_CI, 10)))
def test_values_of_deferred_loops(first):
    """What the arrays hold in the end, and what loops return, is what the same calls in order give."""
    for seed in range(first, first + 10):
        run(seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(IN_CI, IN_CI + 300, 50))
def test_many_more(first):
    """The same for 300 programs."""
    for seed in range(first, first + 50):
        run(seed)
