"""Whole programs on ranks: the examples, and the listings of the page on MPI."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mpi.launching import needs_mpi, on_ranks, run
from tests.test_docs import listings

pytestmark = needs_mpi

ROOT = Path(__file__).parents[2]


@on_ranks(1, 2, 3, 4)
def test_halo(n_ranks):
    """The halo exchange gives the same bits on any number of ranks."""
    status, printed = run(n_ranks, "-W", "error", str(ROOT / "examples" / "halo_mpi.py"), "--size", "40")
    assert (status, printed) == (0, f"40 x 40 points, 20 steps on {n_ranks} ranks: the same bits as by one\n")


@pytest.mark.slow
@on_ranks(1, 3)
def test_halo_by_hand(n_ranks):
    """The program by hand gives the same bits, too."""
    status, printed = run(n_ranks, "-W", "error", str(ROOT / "examples" / "halo_mpi_by_hand.py"), "--size", "40")
    assert (status, printed) == (0, f"40 x 40 points, 20 steps on {n_ranks} ranks: the same bits as by one\n")


@pytest.mark.slow
def test_halo_with_more_ranks_than_rows():
    """It is refused by all ranks, and ends."""
    status, printed = run(4, str(ROOT / "examples" / "halo_mpi.py"), "--size", "8")
    assert status != 0
    assert "each of the 4 ranks needs three rows" in printed


@on_ranks(1, 2, 4)
def test_page(n_ranks):
    """The listings of the page run on any number of ranks."""
    status, printed = run(n_ranks, "-W", "error", "-c", listings(ROOT / "docs" / "mpi.md"))
    assert status == 0, printed
    assert printed.count("the mean is") == n_ranks
