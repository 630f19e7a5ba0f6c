"""Sequences of loops and other constructs on replicated arrays: values are NumPy's, and no byte travels in vain."""

from __future__ import annotations

import pytest

from tests.conftest import checked
from tests.loops.sequences import Sequence

pytestmark = pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning")

IN_CI = 60


def run(first, count):
    for seed in range(first, first + count):
        n_devices = (2, 3, 4, 7)[seed % 4]
        with checked(f"sim:{n_devices}", env={}):
            Sequence(seed, n_devices, exchange=("lazy", "lazy", "eager")[seed % 3]).run()


@pytest.mark.parametrize("first", range(0, IN_CI, 20))
def test_values_and_bytes(first):
    """What the program sees is NumPy's; copies between devices have the bytes that uses need and their devices lack."""
    run(first, 20)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(IN_CI, IN_CI + 500, 50))
def test_many_more(first):
    """The same for 500 sequences."""
    run(first, 50)
