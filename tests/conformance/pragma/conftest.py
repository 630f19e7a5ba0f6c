"""Programs in several spellings for the cases of this directory."""

from __future__ import annotations

import pytest

from tests.conformance.pragma.spelling import Twins, as_comments, dedent


@pytest.fixture
def twins(runtime, tmp_path):
    """Run programs in several spellings on the devices of the runtime."""
    return Twins(tmp_path)


@pytest.fixture
def on_sim(sim, tmp_path):
    """Run programs in several spellings on one simulated device."""
    return Twins(tmp_path)


@pytest.fixture(params=["strings", "comments"])
def spelled(request, twins):
    """Import a program in either spelling."""
    return lambda text: twins.string(dedent(text) if request.param == "strings" else as_comments(dedent(text)))
