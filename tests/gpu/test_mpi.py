"""MPI beside a GPU: device arrays in calls, of ranks that share it."""

from __future__ import annotations

import pytest

from tests.gpu.conftest import cupy
from tests.mpi.launching import needs_mpi, run_tests

pytestmark = [pytest.mark.gpu, needs_mpi]


@pytest.mark.parametrize("n_ranks", [1, 2, 3])
def test_staged_through_the_host(n_ranks):
    """`tests/mpi/ranks/test_device_arrays.py` holds on CUDA too."""
    env = {"OFFLOAD_TESTS_MPI_DEVICES": "cuda:0", "OFFLOAD_MPI_GPU": "0"}
    run_tests(n_ranks, "test_device_arrays.py", "-m", "not soak", env=env)


@pytest.mark.parametrize("number", [0, 1])
def test_given_to_an_aware_library(number):
    """`tests/mpi/ranks/test_aware_arrays.py`, on a device that is the current one, and on one that is not."""
    if number >= cupy.cuda.runtime.getDeviceCount():
        pytest.skip("needs two GPUs")
    env = {"OFFLOAD_TESTS_MPI_DEVICES": f"cuda:{number}", "OFFLOAD_MPI_GPU": "1"}
    run_tests(1, "test_aware_arrays.py", "-m", "not soak", env=env)
