"""Programs in strings, run under the sanitizer."""

from __future__ import annotations

import textwrap

import pytest

from tests.sanitizer.runs import findings_of, marked

HEAD = """\
import numpy as np
import offload as omp
from offload import acc, alloc, from_, in_, inout, out, release, to, tofrom
"""


@pytest.fixture
def findings(tmp_path):
    """Return a function that runs a program and returns its findings; lines of the program have the usual imports."""

    def run(text, **options):
        path = tmp_path / "program.py"
        path.write_text(HEAD + textwrap.dedent(text))
        return findings_of(path, **options)

    return run


@pytest.fixture
def check(tmp_path, findings):
    """Return a function that runs a program with one finding, whose lines its comments mark, and returns that.

    The marks are ``# first``, ``# second`` and ``# fix``, of which a line may have several.
    """

    def run(text, rule, kind, fix, *, seeds=(None, 0, 1), **options):
        found = [findings(text, seed=seed, **options) for seed in seeds]
        written = (tmp_path / "program.py").read_text()
        for those in found:
            (one,) = those
            second = one.second.line if one.second is not None else None
            assert (one.rule, one.fix.kind, one.fix.text) == (rule, kind, fix)
            assert (one.first.line, second) == (marked(written, "first"), marked(written, "second"))
            assert one.fix.line == marked(written, "fix")
        return found[0][0]

    return run


@pytest.fixture
def clean(findings):
    """Return a function that runs a program under several schedules, and requires that it has no findings."""

    def run(text, *, seeds=(None, 0, 1), **options):
        for seed in seeds:
            assert findings(text, seed=seed, **options) == ()

    return run
