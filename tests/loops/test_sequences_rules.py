"""Sequences of loops and other constructs on replicated arrays: values are NumPy's, and no byte travels in vain."""

from __future__ import annotations

import pytest

from offload.loops.modes import Chooser
from tests.conftest import checked
from tests.loops.sequences import Sequence

pytestmark = pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning")

IN_CI = 60


def run(first, count):
    for seed in range(first, first + count):
        n_devices = (2, 3, 4, 7)[seed % 4]
        with checked(f"sim:{n_devices}", env={}):
            Sequence(seed, n_devices, exchange=("lazy", "lazy", "eager")[seed % 3]).run()


@pytest.mark.parametrize("first", range(0, IN_CI, 20))
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


@pytest.mark.usefixtures("one_device")
def test_values_of_calls_that_are_one_devices():
    """Loops that one device makes alone, by the short way where nothing has changed, have the same values."""
    for seed in range(IN_CI, IN_CI + 16):
        n_devices = (2, 3, 4, 7)[seed % 4]
        with checked(f"sim:{n_devices}", env={}):
            Sequence(seed, n_devices, filter="auto", steps=40).run()


@pytest.mark.soak
@pytest.mark.parametrize("first", range(IN_CI, IN_CI + 500, 50))
def test_many_more(first):
    """The same for 500 sequences."""
    run(first, 50)
