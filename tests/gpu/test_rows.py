"""Rows of arrays as arguments of functions, in kernels."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from tests.loops.oracle import copy_of
from tests.loops.row_programs import row_program
from tests.loops.test_rows import TWINS

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("seed", range(6000, 6030))
def test_programs_with_rows_give_what_cpython_gives(gpu, seed):
    """Generated loop functions leave what CPython makes of them."""
    made = row_program(seed)
    for clauses in ({}, {"check": True}, {"speculate": True}, {"seq": True}):
        arguments = copy_of(made.arguments)
        made.check(omp.target_loop(**clauses)(made.function())(**arguments), arguments)


@pytest.mark.parametrize("name", TWINS)
def test_rows_and_indices_written_out_give_the_same(gpu, name):
    """Both texts leave what CPython leaves, and their accesses have the same checks."""
    rows, written_out, given = TWINS[name]
    expected = [one.copy() for one in given]
    rows.python(*expected)
    for loop in (rows, written_out):
        found = [one.copy() for one in given]
        loop(*found)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    assert rows.explain(*given).to_dict()["arrays"] == written_out.explain(*given).to_dict()["arrays"]


def test_an_index_of_a_row_out_of_range_fails_the_task(gpu):
    """The error names the array, and the device stays usable."""

    def last(row):
        return row[3]

    @omp.target_loop
    def read(a, q, y):
        for i in range(y.size):
            y[i] = last(a[q[i]])

    q, y = np.array([0, 1, 2]), np.zeros(3)
    with pytest.raises(IndexError, match="axis 1 of 'a'"):
        read(np.ones((3, 3)), q, y)
    with pytest.raises(IndexError, match="index 7 is out of bounds for axis 0 of 'a'"):
        read(np.ones((3, 4)), np.array([0, 7, 1]), y)
    read(np.ones((3, 4)), q, y)
    assert (y == 1).all()
