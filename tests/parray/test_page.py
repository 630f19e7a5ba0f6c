"""The listings of docs/array-types.md are doctests, in order and in one namespace, on two simulated devices."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.strict import STRICT

PAGE = Path(__file__).parents[2] / "docs" / "array-types.md"
FENCE = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAM = """
import doctest, sys
test = doctest.DocTestParser().get_doctest({text!r}, {{}}, "the page", {page!r}, 0)
results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
sys.exit(results.failed or not results.attempted)
"""


def listings():
    """The listings of the page as one text, in the lines that they have there."""
    text = PAGE.read_text(encoding="utf-8")
    lines = [""] * len(text.splitlines())
    for found in FENCE.finditer(text):
        first = text.count("\n", 0, found.start(1))
        block = found[1].splitlines()
        lines[first : first + len(block)] = block
    return "\n".join(lines) + "\n"


def test_listings(tmp_path):
    """Every listing gives what stands below it, without a warning."""
    assert listings().count(">>>") > 100
    done = subprocess.run(
        [sys.executable, *STRICT, "-c", PROGRAM.format(text=listings(), page=str(PAGE))],
        env={**os.environ, "OFFLOAD_DEVICES": "sim:2"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""


def test_sections_that_are_referred_to():
    """Each §n of the page is one of its sections."""
    text = PAGE.read_text(encoding="utf-8")
    sections = {int(number) for number in re.findall(r"^## (\d+)\. ", text, re.MULTILINE)}
    assert sections == set(range(1, max(sections) + 1))
    assert {int(number) for number in re.findall(r"§(\d+)", text)} <= sections
