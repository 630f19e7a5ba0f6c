"""Generated kernels with independent iterations on simulated devices, in C and as Python, against CPython."""

from __future__ import annotations

from collections import Counter

import pytest

from offload.loops.running import plan, runs
from offload.loops.running.build import Builder
from tests.conftest import checked
from tests.loops.device_kernels import check, devices_of
from tests.loops.programs import PERMUTED
from tests.profiles import few

pytestmark = [PERMUTED, pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning")]

IN_CI = 12
HALVES = [range(1, IN_CI, 2), range(0, IN_CI, 2)]


@pytest.fixture
def as_python(monkeypatch):
    """Loops run as Python."""
    for module in (plan, runs):
        monkeypatch.setattr(module, "builder", Builder({"OFFLOAD_CC": "none"}))


def run(seeds):
    """Run these, and count the modes."""
    modes = Counter()
    for n_devices in (2, 3, 4, 7):
        with checked(f"sim:{n_devices}"):
            for seed in seeds:
                if devices_of(seed) == n_devices:
                    facts = check(seed, n_devices)
                    modes["refused" if facts is None else facts["mode"]] += 1
    return modes


@pytest.mark.parametrize("seeds", few(1, HALVES), ids=str)
def test_devices_have_the_serial_values(seeds):
    """By equal and other cuts, lazily and eagerly, split or not, arrays and results are CPython's."""
    modes = run(seeds)
    assert modes["split"] > len(seeds) / 3


@pytest.mark.slow
@pytest.mark.usefixtures("as_python")
def test_python_does_the_same():
    """The same without a compiler."""
    assert run(range(IN_CI, 4 * IN_CI))["split"] > IN_CI / 3


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 4000, 50))
def test_many_more_in_c(first):
    """The same for 3,000 kernels in C."""
    run(range(first, first + 50))


@pytest.mark.soak
@pytest.mark.usefixtures("as_python")
@pytest.mark.parametrize("first", range(1000, 4000, 250))
def test_many_more_as_python(first):
    """And without a compiler."""
    run(range(first, first + 250))
