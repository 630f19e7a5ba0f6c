"""The model of the transform over ranks: pure numbers."""

from __future__ import annotations

import pytest

from benchmarks.mpi.prediction import Machine, exchange_s, pass_s, predict

LARGE = Machine(transform_s=1 / 50e9, link_s=1 / 50e9, network_s=1 / 20e9, message_s=1e-6)
NBYTES = 12288**3 * 8 / 1024


def test_the_worked_example():
    """12288³ complex64 on 1,024 ranks takes what the arithmetic by hand says, in seconds."""
    assert pass_s(LARGE, NBYTES, 30) == pytest.approx(0.30, abs=0.005)
    assert exchange_s(LARGE, NBYTES, 30, 1024) == pytest.approx(0.755, abs=0.005)
    times = predict(LARGE, NBYTES, 30, 1024)
    assert times.planes_s == pytest.approx(1.09, abs=0.01)
    assert times.pencils_s == pytest.approx(1.10, abs=0.01)
    assert times.bulk_planes_s == pytest.approx(1.35, abs=0.01)
    assert times.bulk_pencils_s == pytest.approx(1.65, abs=0.01)


def test_the_slower_of_link_and_transform_counts():
    """A device that transforms at half the rate of its link takes twice as long for a pass, and so the reverse."""
    for machine in (Machine(2e-9, 1e-9, 0, 0), Machine(1e-9, 2e-9, 0, 0)):
        assert pass_s(machine, 1e9, 4) == pytest.approx(2)


@pytest.mark.parametrize("network", [0, 0.5, 1, 2, 4, 100])
@pytest.mark.parametrize("pieces", [1, 3, 1000])
def test_planes_are_never_longer(network, pieces):
    """Whatever the network, the pass that pencils take more is not made up for by what they hide."""
    times = predict(Machine(1e-9, 1e-9, network * 1e-9), 1e9, pieces, 8)
    assert times.planes_s <= times.pencils_s


def test_one_rank_sends_nothing():
    """Alone there is but the call."""
    assert exchange_s(LARGE, 1e9, 5, 1) == pytest.approx(5e-6)
