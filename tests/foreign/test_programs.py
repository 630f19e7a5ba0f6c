"""Generated programs that mix kinds of objects over the same storage come to what the NumPy program comes to."""

from __future__ import annotations

import numpy as np
import pytest

from tests.differential import acc_steps, compare, data_steps, memory_steps, task_steps
from tests.differential.functions import Table
from tests.differential.programs import program
from tests.differential.uncompiled import uncompiled
from tests.differential.world import Mode, carried_out
from tests.foreign.kinds import HAS, library
from tests.foreign.mixing import Mixture
from tests.profiles import examples

assert all(steps.operation for steps in (acc_steps, data_steps, memory_steps, task_steps)), "they register operations"

FIRST = 20_000


def mixtures(*, has_tensors: bool) -> tuple[Mixture, Mixture]:
    """Return the mixtures of a program with NumPy arrays, and of the same program with objects."""
    if has_tensors:
        library("torch")
    return tuple(Mixture(are_objects=given, has_tensors=has_tensors) for given in (False, True))


@pytest.mark.hypothesis
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("has_tensors", [False, *[True] * HAS["torch"]])
def test_programs(has_tensors: bool) -> None:
    """Results, errors, warnings, the elements, presence and references are those of the program with NumPy arrays."""
    numpy_mixture, mixture = mixtures(has_tensors=has_tensors)
    theirs, ours = Table(), Table()
    count = examples(100, soak=1000)
    for seed in range(FIRST + has_tensors * count, FIRST + (1 + has_tensors) * count):
        with np.errstate(all="ignore"), uncompiled():
            wanted = carried_out(program(seed), Mode(mixture=numpy_mixture), theirs)
            found = carried_out(program(seed), Mode(mixture=mixture), ours)
        assert found == wanted, compare.report(program(seed), found, wanted, ("mixed", "NumPy"))
    assert len(mixture.made) >= 4 + has_tensors, "the programs had too few kinds"
    assert not numpy_mixture.made
