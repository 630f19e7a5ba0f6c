"""Programs in several spellings for the cases of this directory."""

from __future__ import annotations

import pytest

from tests.conformance.pragma.spelling import Twins


@pytest.fixture
def twins(runtime, tmp_path):
    """Run programs in several spellings on the devices of the runtime."""
    return Twins(tmp_path)


@pytest.fixture
def on_sim(sim, tmp_path):
    """Run programs in several spellings on one simulated device."""
    return Twins(tmp_path)
