"""Sequences of loops and other constructs on replicated arrays: values are NumPy's, and no byte travels in vain."""

from __future__ import annotations

import random

import pytest

from offload.loops.sets.modes import Chooser
from tests.conftest import checked
from tests.loops.sequences import Sequence
from tests.profiles import few

pytestmark = pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning")

IN_CI = 60


def run(first, count):
    for seed in range(first, first + count):
        n_devices = (2, 3, 4, 7)[seed % 4]
        with checked(f"sim:{n_devices}", env={}):
            Sequence(seed, n_devices, exchange=("lazy", "lazy", "eager")[seed % 3]).run()


@pytest.mark.parametrize("first", few(1, range(0, IN_CI, 20)))
def test_values_and_bytes(first):
    """What the program sees is NumPy's; copies between devices have the bytes that uses need and their devices lack."""
    run(first, 20)


@pytest.fixture
def one_device(monkeypatch):
    """Ways are chosen without a measurement: one device."""
    right = Chooser.__init__

    def init(self, expected):
        right(self, expected)
        self.chosen = "single"

    monkeypatch.setattr(Chooser, "__init__", init)


@pytest.mark.slow
@pytest.mark.usefixtures("one_device")
@pytest.mark.parametrize("first", few(1, range(IN_CI, IN_CI + 16, 8)))
def test_values_of_calls_that_are_one_devices(first):
    """Loops that one device makes alone, by the short way where nothing has changed, have the same values."""
    for seed in range(first, first + 8):
        n_devices = (2, 3, 4, 7)[seed % 4]
        with checked(f"sim:{n_devices}", env={}):
            Sequence(seed, n_devices, filter="auto", steps=40).run()


def run_by_any_times(monkeypatch, first, count):
    """Run sequences whose loops are measured, by times that say anything."""
    rng, right = random.Random(first), Chooser.note
    times = 1e-6, 50e-6, 1e-3, 2e-3
    monkeypatch.setattr(Chooser, "note", lambda self, mode, *_: right(self, mode, rng.choice(times)))
    for seed in range(first, first + count):
        n_devices = (2, 3, 4, 7)[seed % 4]
        with checked(f"sim:{n_devices}", env={}):
            Sequence(seed, n_devices, filter="auto", steps=40).run()


@pytest.mark.parametrize("first", few(1, [1000, 1008]))
def test_values_whatever_ways_take(monkeypatch, first):
    """Ways that are tried, chosen and left change no value."""
    run_by_any_times(monkeypatch, first, 8)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(IN_CI, IN_CI + 500, 50))
def test_many_more(first):
    """The same for 500 sequences."""
    run(first, 50)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(2000, 2400, 50))
def test_many_more_whatever_ways_take(monkeypatch, first):
    """And for 400 of which ways are measured."""
    run_by_any_times(monkeypatch, first, 50)
