"""Views with random strides in calls of MPI (`ranks/test_views_rules.py`)."""

from __future__ import annotations

import pytest

from tests.mpi.launching import needs_mpi, on_ranks, run_tests
from tests.profiles import examples

pytestmark = needs_mpi


@on_ranks(1, 3)
def test_views(n_ranks):
    """Some calls on so many ranks."""
    run_tests(n_ranks, "test_views_rules.py", env={"OFFLOAD_TESTS_VIEWS": str(examples(300))})


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("n_ranks", [2, 3])
def test_many_views(n_ranks):
    """Twenty thousand on so many ranks."""
    run_tests(n_ranks, "test_views_rules.py", limit_s=1_800, env={"OFFLOAD_TESTS_VIEWS": "20000"})
