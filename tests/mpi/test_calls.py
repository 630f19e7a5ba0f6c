"""`offload.mpi`: what needs ranks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mpi.launching import needs_mpi, on_ranks, run, run_tests
from tests.profiles import few


@needs_mpi
@on_ranks(1, 3, 4)
def test_on_ranks(n_ranks):
    """`ranks/test_calls.py`."""
    run_tests(n_ranks, "test_calls.py")


@needs_mpi
@on_ranks(1, 3)
def test_graphs_on_ranks(n_ranks):
    """`ranks/test_graphs.py`."""
    run_tests(n_ranks, "test_graphs.py")


def test_without_mpi4py():
    """`from offload import mpi` names the extra that it needs."""
    program = """
import sys
sys.modules["mpi4py"] = None
try:
    from offload import mpi
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout == "offload.mpi needs mpi4py: pip install 'offload[mpi]'\n"


@needs_mpi
def test_the_order_of_calls():
    """`ranks/test_order_rules.py`, on one rank, so that MPI does not begin in the process of all tests."""
    run_tests(1, "test_order_rules.py")


@needs_mpi
@on_ranks(1, 2)
def test_arrays_of_other_libraries_on_ranks(n_ranks):
    """`ranks/test_foreign.py`."""
    run_tests(n_ranks, "test_foreign.py")


@needs_mpi
@on_ranks(1, 3)
def test_device_arrays_on_ranks(n_ranks):
    """`ranks/test_device_arrays.py`."""
    run_tests(n_ranks, "test_device_arrays.py")


@needs_mpi
@pytest.mark.parametrize(
    ("value", "told"),
    few(1, [("1", "True"), ("yes", "OFFLOAD_MPI_GPU='yes': give 0 or 1"), ("0", "False")], are_rows=True),
)
def test_awareness_that_is_given(value, told):
    """`OFFLOAD_MPI_GPU` decides, and other values are refused."""
    program = """
from offload import mpi, UsageError
try:
    print(mpi.is_gpu_aware())
except UsageError as error:
    print(error)
"""
    status, printed = run(1, "-c", program, env={"OFFLOAD_MPI_GPU": value})
    assert status == 0
    assert printed.startswith(told)
