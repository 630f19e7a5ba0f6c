"""Typed copies between ranks, started from here."""

from __future__ import annotations

import pytest

from tests.mpi.launching import needs_mpi, run_tests


@needs_mpi
@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_copies_between_ranks(n_ranks):
    """The patterns, random pairs and mistakes of `ranks/test_parray.py` hold on 2, 3 and 4 ranks."""
    run_tests(n_ranks, "test_parray.py")
