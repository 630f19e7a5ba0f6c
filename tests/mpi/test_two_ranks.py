"""Every file of ``ranks/`` on two ranks, which are started once for all of them."""

from __future__ import annotations

import pytest

from tests.mpi.launching import HERE, needs_mpi, run_tests
from tests.profiles import examples

ON_THEIR_OWN = {
    "test_aware_arrays.py",  # needs a GPU: tests/gpu/test_mpi.py
    "test_order_rules.py",  # runs on one rank
}


@needs_mpi
@pytest.mark.hypothesis
@pytest.mark.timeout(300)
def test_on_two_ranks():
    """Calls, requests, faults, graphs, typed copies, and random programs and views, hold on two ranks."""
    numbers = {"PROGRAMS": examples(100) // 2, "VIEWS": examples(300), "PAIRS": examples(60)}
    run_tests(
        2,
        sorted(path.name for path in (HERE / "ranks").glob("test_*.py") if path.name not in ON_THEIR_OWN),
        limit_s=280,
        env={f"OFFLOAD_TESTS_{name}": str(number) for name, number in numbers.items()},
    )
