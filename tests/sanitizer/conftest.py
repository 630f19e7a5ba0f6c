"""Programs in strings, run under the sanitizer; tracked arrays, and a sink for their accesses."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from offload.sanitizer import tracked as make_tracked
from offload.sanitizer.tracked import set_sink
from tests.sanitizer.runs import findings_of, marked

HEAD = """\
import numpy as np
import offload as omp
from offload import acc, alloc, from_, in_, inout, out, release, to, tofrom
"""


class Noted:
    """A sink that keeps the shapes of the arrays that are read and written."""

    def __init__(self):
        self.accesses, self.away = [], []

    def note(self, reads, writes, device):
        self.accesses.append(([array.shape for array in reads], [array.shape for array in writes], device))

    def ignores(self, array):
        return False

    def given_away(self, storage, device):
        self.away.append(storage.shape)

    def lent(self, storage):
        self.away.append(storage.shape)
        return self.away.pop

    def taken(self):
        found, self.accesses = self.accesses, []
        return found


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


@pytest.fixture
def sink():
    """A sink that notes the accesses to tracked arrays."""
    noted = Noted()
    before = set_sink(noted)
    yield noted
    set_sink(before)


@pytest.fixture
def x():
    """A tracked array of six numbers."""
    return make_tracked(np.arange(6.0))
