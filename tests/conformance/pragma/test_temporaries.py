"""Variables that several blocks use for themselves, and variables that deferred constructs give values to (§4)."""

from __future__ import annotations

import numpy as np
import pytest

import offload
from tests.conformance.pragma.spelling import error_of

BLOCKS = {
    # a block that gives x[k] the double of a number, through t
    "task": "with omp('task'):\n    t = {} * 2\n    x[{}] = t",
    "branches": "with omp('task'):\n    if n: t = {} * 2\n    else: t = 0\n    x[{}] = t",
    "target": "with omp('target map(tofrom: x)'):\n    t = {} * 2\n    x[{}] = t",
    "acc": "with acc('parallel copy(x)'):\n    t = {} * 2\n    x[{}] = t",
    "taskloop": "with omp('taskloop'):\n    for i in range(1):\n        t = {} * 2\n        x[{}] = t",
    "nest": "with omp('parallel for'):\n    for i in range(1):\n        t = {} * 2\n        x[{}] = t",
    "inner": "with omp('task'):\n    t = {} * 2\n    with omp('task'):\n        x[{}] = t\n    omp('taskwait')",
}


def program_of(*texts, last=""):
    """Return a program of blocks."""
    lines = [line for text in texts for line in text.split("\n")]
    body = "".join(f"    {line}\n" for line in [*lines, "omp('taskwait')", *last.split("\n")])
    return f"@directives\ndef program(x, n):\n{body}"


@pytest.mark.parametrize("other", BLOCKS)
@pytest.mark.parametrize("one", BLOCKS)
def test_two_blocks_have_a_temporary_each(on_sim, one, other):
    """A name that two blocks assign before they read it is a variable of each block."""
    x = np.zeros(2)
    first, second = BLOCKS[one].format(3, 0), BLOCKS[other].format(4, 1)
    on_sim.string(program_of(first, "omp('taskwait')", second))(x, 1)
    offload.taskwait()
    assert x.tolist() == [6, 8]


@pytest.mark.parametrize("kind", ["task", "target", "acc", "taskloop", "inner"])
@pytest.mark.parametrize(
    "reader",
    [
        "with omp('task'):\n    x[1] = t",
        "with omp('task'):\n    x[1] = t\n    t = 3",
        "with omp('task'):\n    if n: t = 3\n    x[1] = t",
        "with omp('task'):\n    t += 3\n    x[1] = t",
        "with omp('task'):\n    with omp('task'):\n        x[1] = t",
        "with omp('task firstprivate(t)'):\n    t = t + 1",
        "with omp('parallel for'):\n    for i in range(1):\n        x[i] = t",
        "x[1] = t",
        "with omp('taskgroup'):\n    x[1] = t",
        "for _ in range(n):\n    print(t)",
    ],
)
def test_a_value_that_other_code_reads_is_not_lost(on_sim, kind, reader):
    """A name that a block assigns, and that other code may read before assigning it, is an error."""
    error = error_of(on_sim.folder, program_of("t = 1", BLOCKS[kind].format(3, 0), reader))
    assert "t" in str(error)


@pytest.mark.parametrize(("kinds", "is_right"), [("task task", True), ("target target", True), ("task target", False)])
def test_temporaries_under_default_shared(on_sim, kinds, is_right):
    """Under `default(shared)`, a task's temporary is the function's variable; a target's is its own all the same."""
    text = program_of(*[f"{BLOCKS[kind].format(3, 0)}\nomp('taskwait')" for kind in kinds.split()])
    text = text.replace("@directives", "@directives(default='shared')")
    if not is_right:
        error_of(on_sim.folder, text)
        return
    x = np.zeros(1)
    on_sim.string(text)(x, 1)
    assert x[0] == 6


def test_the_value_before_a_block_is_its_own(on_sim):
    """A temporary of a block does not change the variable of that name that the function assigns before and after."""
    text = program_of("t = 1", BLOCKS["task"].format(3, 0), BLOCKS["taskloop"].format(4, 1), last="t = 5\nx[0] += 1")
    x = np.zeros(2)
    on_sim.string(text)(x, 1)
    assert x.tolist() == [7, 8]
