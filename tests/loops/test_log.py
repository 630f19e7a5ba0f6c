"""The exchange log on devices: every row of the table, words and their lives, what is left out."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from tests.conftest import checked
from tests.loops.speculation import VECTORS, noted

SEEDS = 50


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_every_row_under_seeded_schedules(vector):
    """A log says of each loop what the table says, in whatever order iterations run; results are the serial ones."""
    function = vector.function()
    loop = omp.target_loop(function, speculate="always")
    expected = vector.values()
    function(*expected)
    for seed in range(SEEDS):
        arguments = vector.values()
        with checked("sim:1", seed=seed), noted() as found:
            loop(*arguments)
        assert [one is None for one in found] == [vector.is_parallel]
        for got, right in zip(arguments, expected, strict=True):
            assert np.array_equal(got, right)


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_every_row_as_cuda(vector, cuda):
    """The text for a GPU, carried out on the host, says the same; words are used again."""
    function = vector.function()
    loop = omp.target_loop(function, speculate="always")
    expected = vector.values()
    function(*expected)
    with noted() as found:
        for _ in range(2):
            arguments = vector.values()
            loop(*arguments)
            for got, right in zip(arguments, expected, strict=True):
                assert np.array_equal(got, right)
    assert [one is None for one in found] == 2 * [vector.is_parallel]
