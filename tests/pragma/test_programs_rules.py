"""Serial elision: random programs of blocks leave memory and numbers as their text without directives does."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

import offload
from tests.conformance.pragma.spelling import CALLS_HEADER, HEADER, as_comments, import_text
from tests.conftest import checked
from tests.pragma.random_programs import SIZE, Programs
from tests.profiles import examples

pytestmark = pytest.mark.filterwarnings("ignore::offload.HostFallbackWarning")

MANY = 1_000
HOST = "host"
SPELLINGS = ("strings", "calls", "comments")


WORDS = (
    *('omp("task ', 'omp("target ', "target data", "target update", 'omp("taskloop', "taskgroup", "acc(", "nowait"),
    *("def inner", "helper_0(", "shared(s)", "map(tofrom: s)", "reduction(+: ", "for i in", "for j in"),
)
"""What the programs have to have."""


def arguments():
    """Return new arrays, and a number."""
    a, b, c = (np.arange(float(SIZE)) * step % 101 for step in (7, 11, 13))
    return a, b, c, 3


def outcome_of(program):
    """Return all that a program leaves, and gives back."""
    given = arguments()
    value = program(*given)
    offload.taskwait()
    return [array.tolist() for array in given[:3]], float(value)


def text_of(programs, spelling):
    """Return the program's text in a spelling."""
    if spelling == "comments":
        return as_comments(programs.text("strings"))
    return programs.text(spelling)


def check(folder, seed, spellings=SPELLINGS):
    """Run the program of a seed under a schedule that is drawn, too."""
    draw = random.Random(seed)
    devices = draw.choice(("sim:1", "sim:2", "sim:2", HOST))
    programs = Programs(seed, 2 if devices == "sim:2" else 1)
    serial = {}
    exec(HEADER + programs.text("serial"), serial)
    given = arguments()
    value = serial["program"](*given)
    expected = [array.tolist() for array in given[:3]], float(value)
    env = {**os.environ, "OMP_TARGET_OFFLOAD": "disabled"} if devices == HOST else None
    for spelling in spellings:
        text = text_of(programs, spelling)
        program = import_text(folder, text, CALLS_HEADER if spelling == "calls" else HEADER).program
        words = {"num_threads": draw.choice((0, 1, 3)), "seed": draw.randrange(1000), "env": env}
        with checked("sim:1" if devices == HOST else devices, **words):
            try:
                found = outcome_of(program)
            except BaseException as error:
                error.add_note(f"seed {seed} on {devices}, {spelling}, {words['num_threads']} threads\n{text}")
                raise
        assert found == expected, f"seed {seed} on {devices}, {spelling}, {words}\n{text}"


def test_the_writer(tmp_path):
    """A program has the constructs that it is to have, and its text without directives knows none of them."""
    texts = [Programs(seed).text("strings") for seed in range(200)]
    for word in WORDS:
        assert sum(word in text for text in texts) > 5, word
    for seed in range(20):
        serial = Programs(seed).text("serial")
        assert "omp" not in serial
        assert "offload" not in serial
        assert Programs(seed).text("strings") == Programs(seed).text("strings")


@pytest.mark.hypothesis
def test_programs(tmp_path):
    """Some programs, as strings, as calls and as comments."""
    for seed in range(examples(600, MANY)):
        check(tmp_path, seed, SPELLINGS if seed % 3 == 0 else SPELLINGS[:2])


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("part", range(4))
def test_many_programs(tmp_path, part):
    """A thousand programs."""
    for seed in range(part, MANY, 4):
        check(tmp_path, 10_000 + seed, SPELLINGS[:2])
