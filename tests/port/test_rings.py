"""Ring pipelines with each wait left out in turn."""

from __future__ import annotations

import pytest

from tests.port.rings import Ring

SHAPES = [(slots, stages) for slots in (1, 2, 3) for stages in (1, 2, 3, 4)]


@pytest.mark.parametrize(("slots", "stages"), SHAPES)
def test_each_wait_left_out(slots, stages, report):
    """A ring is clean; a wait that is left out is reported at its two lines, or was listed as redundant."""
    ring = Ring(slots, stages)
    whole = report(ring.text)
    assert whole["races"] == whole["uninitialised"] == []
    needless = {entry["line"] for entry in whole["redundant"]}
    assert len(ring.waits) - len(needless) >= stages  # most waits of a ring are needed
    for wait in ring.waits:
        found = report(Ring(slots, stages, wait.line).text)
        lines = {(race["first"]["line"], race["second"]["line"]) for race in found["races"]}
        if wait.line in needless:
            assert lines == set()
        else:
            assert (wait.first, wait.second) in lines
            fixes = {(race["fix"]["kind"], race["fix"]["line"]) for race in found["races"]}
            assert ("synchronize" if wait is ring.waits[-1] else "wait_event", wait.second) in fixes


@pytest.mark.parametrize(("slots", "stages"), SHAPES)
def test_the_results_of_a_ring(slots, stages, tmp_path):
    """The recorded run computes what CuPy would."""
    from offload.port.running import recorded

    path = tmp_path / "ring.py"
    path.write_text(Ring(slots, stages).text)
    names = {"__name__": "__main__", "__file__": str(path)}
    with recorded(str(path)):
        exec(compile(path.read_text(), str(path), "exec"), names)
    factor = 2 ** max(stages - 2, 0) if stages > 1 else 2
    assert names["total"] == sum(range(72)) * factor
