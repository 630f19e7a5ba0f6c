"""The vectors of one loop on several devices, as programs run them: values, modes, ranges, predicates."""

from __future__ import annotations

import random

import pytest

import offload as omp
from tests.conftest import checked
from tests.loops.on_devices import cut_by, present, same, words_of
from tests.loops.test_filter import ROWS, N
from tests.loops.test_filter_loops import MORE

pytestmark = pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning")

LOOPS = {str(number): (row, row.clauses) for number, row in ROWS.items()}
LOOPS |= {name: (row, clauses) for name, (row, clauses, *_) in MORE.items()}


def loop_of(row, clauses, **words):
    """Return a row's loop function, the plain function, its scalars, and which of its arrays both are given."""
    function, scalars = row.function()
    loop = omp.target_loop(devices="all", **words_of(clauses), **words)(function)
    return loop, function, scalars


def run(row, clauses, weights, n=N, calls=2, **words):
    """Run a row twice on devices that hold its arrays, and compare with CPython; return what `explain` says."""
    loop, function, scalars = loop_of(row, clauses, **words)
    serial = {name: array.copy() for name, array in row.arrays.items()}
    mine = {name: array.copy() for name, array in row.arrays.items()}
    scalars = {**scalars, "n": n}
    with cut_by(weights), present(mine):
        for _ in range(calls):
            expected = function(**serial, **scalars)
            assert loop(**mine, **scalars) == expected
        facts = loop.explain(**mine, **scalars).to_dict()["filter"]
    private = {*clauses.private, *clauses.firstprivate}
    same(mine, {name: array for name, array in serial.items() if name not in private})
    return facts


def is_split(row):
    return row.mode != "single"


@pytest.mark.parametrize("exchange", ["lazy", "eager"])
@pytest.mark.parametrize("n_devices", [2, 3, 4, 7])
def test_values_are_serial(n_devices, exchange):
    """Every row, by equal and by random cuts, in two calls, lazily and eagerly: values are CPython's, mode is split."""
    with checked(f"sim:{n_devices}"):
        for number, row in ROWS.items():
            rng = random.Random(10 * number + n_devices)
            for weights in ((1,) * n_devices, (*[rng.randint(0, 3) for _ in range(n_devices - 1)], 1)):
                filter_ = "always" if is_split(row) else "auto"
                facts = run(row, row.clauses, weights, exchange=exchange, filter=filter_)
                expected = "split" if sum(map(bool, weights)) and is_split(row) else "single"
                assert facts["mode"] == expected, number


def test_how_loops_are_divided():
    """On four devices `explain` tells the rows' dimensions and predicates."""
    with checked("sim:4"):
        for number, row in ROWS.items():
            facts = run(row, row.clauses, (1, 1, 1, 1), filter="always" if is_split(row) else "auto")
            assert {name: one["dimension"] for name, one in facts["arrays"].items()} == row.dimensions, number
            terms = [one["terms"] for one in facts["predicates"]]
            assert terms == [None if one is None else [list(term) for term in one] for one in row.terms], number
            assert facts["devices"] == [0, 1, 2, 3]
