"""The CUDA rows of the truth table: programs of DataRaceOnAccelerator (DRACC), each with its verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.port.marked import line_of

PROGRAMS = Path(__file__).parent / "dracc"


def test_missing_data(report):
    """010: the product reads a matrix that was allocated and never written; with a copy the program is clean."""
    text = (PROGRAMS / "cuda_010_missing_data.py").read_text()
    found = report(text)
    assert found["races"] == []
    [one] = found["uninitialised"]
    assert (one["first"]["line"], one["first"]["what"]) == (line_of(text, "d_b = cp.empty"), "map")
    assert (one["second"]["line"], one["second"]["what"]) == (line_of(text, "d_b @ d_a"), "read")
    assert one["count"] == 1
    corrected = report(text.replace("d_a.set(a)\n", "d_a.set(a)\nd_b.set(b)\n"))
    assert corrected["races"] == corrected["uninitialised"] == []


def test_copy_missing_wait(report):
    """024: the host reads the result while it is copied; with the call that the fix names the program is clean."""
    text = (PROGRAMS / "cuda_024_copy_missing_wait.py").read_text()
    found = report(text)
    assert found["uninitialised"] == []
    [race] = found["races"]
    copy, read = line_of(text, "d_c.get"), line_of(text, "print")
    assert (race["first"]["line"], race["first"]["what"], race["first"]["name"]) == (copy, "copy", "null")
    assert (race["second"]["line"], race["second"]["what"]) == (read, "read")
    assert (race["item"], race["count"]) == ("c", 1)
    fix = race["fix"]
    assert (fix["kind"], fix["text"], fix["line"]) == ("synchronize", "cupy.cuda.Stream.null.synchronize()", read)
    lines = text.splitlines()
    lines.insert(fix["line"] - 1, fix["text"].replace("cupy", "cp"))
    corrected = report("\n".join(lines) + "\n")
    assert corrected["races"] == corrected["uninitialised"] == []


def test_working(report):
    """029: no finding; the device is synchronised before a copy that waits by itself."""
    found = report((PROGRAMS / "cuda_029_working.py").read_text())
    assert found["races"] == found["uninitialised"] == []
    assert [(one["call"], one["why"]) for one in found["redundant"]] == [("synchronize", "implied")]


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.py")), ids=lambda path: path.stem)
def test_the_programs_run_without_a_stream(path, report):
    """The programs use the null stream alone."""
    assert report(path.read_text())["streams"] == 0
