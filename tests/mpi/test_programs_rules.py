"""Random programs of tasks and calls on ranks (`ranks/test_programs_rules.py`)."""

from __future__ import annotations

import pytest

from tests.mpi.launching import needs_mpi, on_ranks, run_tests
from tests.profiles import examples

pytestmark = needs_mpi


@on_ranks(1, 3, 4)
def test_programs(n_ranks):
    """Some programs on so many ranks."""
    run_tests(n_ranks, "test_programs_rules.py", env={"OFFLOAD_TESTS_PROGRAMS": str(examples(100) // n_ranks)})


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_many_programs(n_ranks):
    """Two thousand on so many ranks."""
    run_tests(n_ranks, "test_programs_rules.py", limit_s=1_800, env={"OFFLOAD_TESTS_PROGRAMS": "2000"})
