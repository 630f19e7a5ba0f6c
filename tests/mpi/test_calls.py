"""`offload.mpi`: what needs ranks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mpi.launching import needs_mpi, run_tests


@needs_mpi
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
def test_on_ranks(n_ranks):
    """`ranks/test_calls.py`."""
    run_tests(n_ranks, "test_calls.py")


@needs_mpi
@pytest.mark.parametrize("n_ranks", [1, 2, 3])
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
