"""What is remembered of calls: a bounded memo, and records that it keeps by the numbers of calls."""

from __future__ import annotations

import numpy as np

import offload as omp
from offload.loops.running.memo import Memo
from tests.conftest import checked


def test_the_first_entry_goes_where_there_are_many():
    """A memo keeps the entries that came last; one that is used counts as the last."""
    memo = Memo(3)
    for k in range(3):
        assert memo.keep(k, str(k)) == str(k)
    assert memo.use(0) == "0"
    memo.keep(3, "3")
    assert list(memo) == [2, 0, 3]
    memo.keep(2, "two")
    assert list(memo.values()) == ["0", "3", "two"]
    assert memo.use("none") is None


def test_calls_with_equal_numbers_have_one_record():
    """Layouts and scalars that decide tell calls apart; addresses and other floats do not."""

    @omp.parallel_loop
    def scaled(x, n, by):
        for i in range(n):
            x[i] = x[i] * by

    with checked("sim:1", num_threads=1):
        scaled(np.zeros(8), 8, 2.0)
        scaled(np.zeros(8), 8, 3.0)
        (spec,) = scaled._program.specialisations()
        assert len(spec.calls) == 1
        scaled(np.zeros(8), 4, 3.0)
        scaled(np.zeros(16)[::2], 8, 3.0)
        assert len(spec.calls) == 3


def test_values_of_outside_names_that_come_back_find_what_was_made():
    """A function is typed once for each value of a scalar from outside."""
    by = 2.0

    @omp.parallel_loop
    def scaled(x):
        for i in range(x.shape[0]):
            x[i] = x[i] * by

    with checked("sim:1", num_threads=1):
        for by in (2.0, 3.0, 2.0, 3.0):  # the loop reads it
            x = np.ones(4)
            scaled(x)
            assert (x == by).all()
    assert len(scaled._program.specialisations()) == 2
