"""Typed copies between ranks, started from here."""

from __future__ import annotations

from pathlib import Path

from tests.mpi.launching import needs_mpi, on_ranks, run, run_tests
from tests.profiles import examples


@needs_mpi
@on_ranks(3, 4)
def test_copies_between_ranks(n_ranks):
    """The patterns, random pairs and mistakes of `ranks/test_parray.py` hold on 3 and 4 ranks."""
    run_tests(n_ranks, "test_parray.py", env={"OFFLOAD_TESTS_PAIRS": str(examples(60))})


@needs_mpi
@on_ranks(2, 3, 4)
def test_the_example_on_ranks(n_ranks):
    """The example's redistributions hold on every rank."""
    example = Path(__file__).parents[2] / "examples" / "parray_redistribute.py"
    status, printed = run(n_ranks, str(example))
    assert not status, printed
    assert printed.count("72 x 72") == n_ranks
