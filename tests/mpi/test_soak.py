"""Ranks for ten minutes: random programs, with staging, on two to four ranks, and ranks that are killed, in turn."""

from __future__ import annotations

import random
import time

import pytest

from tests.mpi.launching import needs_mpi, run_tests
from tests.mpi.test_faults import killed_at_random

pytestmark = needs_mpi


def soak(duration_s, rng):
    """Run programs that nobody has run before, and kill ranks in between; return how many rounds there were."""
    end_s, n_rounds = time.monotonic() + duration_s, 0
    while time.monotonic() < end_s:
        first = rng.randrange(10**9)
        print(f"programs from {first}")
        environment = {"OFFLOAD_TESTS_PROGRAMS": "100", "OFFLOAD_TESTS_FIRST": str(first)}
        for poll in ("", "spin") if n_rounds % 10 == 9 else ("",):
            run_tests(2 + n_rounds % 3, "test_programs_rules.py", env={**environment, "OFFLOAD_MPI_POLL": poll})
        run_tests(1 + n_rounds % 4, "test_device_arrays.py")
        killed_at_random(2, rng)
        n_rounds += 1
    return n_rounds


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("duration_s", [600])
def test_soak(duration_s):
    """No result is wrong, nothing hangs, and no rank is left behind."""
    assert soak(duration_s, random.Random()) > 0
