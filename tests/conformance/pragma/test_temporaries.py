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


# -- variables that deferred constructs give values to -----------------------------------------------------
WRITERS = {
    "map tofrom": "with omp('target map(tofrom: s) nowait depend(out: s)'):\n    s = a.sum()",
    "map": "with omp('target map(s) nowait depend(out: s)'):\n    s = a.sum()",
    "map from": "with omp('target map(from: s) nowait depend(out: s)'):\n    s = a.sum()",
    "copy": "with acc('parallel copy(s) async(1)'):\n    s = a.sum()",
    "copyout": "with acc('parallel copyout(s) async'):\n    s = a.sum()",
    "acc reduction": "with acc('parallel copy(a) reduction(+: s) async'):\n    s += a.sum()",
    "reduction": "with omp('target parallel for reduction(+: s) nowait depend(out: s)'):\n"
    "    for i in range(n):\n        s += a[i]",
    "lastprivate": "with omp('target parallel for lastprivate(s) nowait depend(out: s)'):\n"
    "    for i in range(n):\n        s = a[i]",
    "acc loop": "with acc('parallel loop reduction(+: s) async(1)'):\n    for i in range(n):\n        s += a[i]",
}
READER = "with omp('task depend({}: s){}'):\n    x[0] = s"


@pytest.mark.parametrize("type_", ["in", "inout", "out"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_task_that_depends_on_a_number_must_say_which(on_sim, name, type_):
    """A task that only reads a number that a deferred construct gives a value to, and names it in `depend`, is an
    error of the encounter: it would read the value from before."""
    text = program_of("a = np.ones(4)", "s = 0", WRITERS[name], READER.format(type_, ""))
    x = np.zeros(2)
    program = on_sim.string(text)
    with pytest.raises(offload.errors.PragmaError, match=r"shared\(s\)") as caught:
        program(x, 4)
    offload.taskwait()
    error = caught.value
    assert (error.text.strip(), error.text[error.offset - 1 : error.end_offset - 1]) == ("x[0] = s", "s")
    assert x[0] == 0
    right = text.replace(f"depend({type_}: s)'):\n        x[0]", f"depend({type_}: s) shared(s)'):\n        x[0]")
    if "async" not in WRITERS[name]:
        on_sim.string(right)(x, 4)
        assert x[0] == {"lastprivate": 1}.get(name, 4)
    on_sim.string(right.replace("shared(s)", "firstprivate(s)"))(x, 4)


def test_a_task_that_depends_on_an_array_reads_it(on_sim):
    """An array is captured by reference, so the task reads the result."""
    text = program_of(
        "s = np.zeros(3)",
        "with omp('target map(tofrom: s) nowait depend(out: s)'):\n    s += 5",
        "with omp('task depend(in: s)'):\n    x[0] = s[1]",
    )
    x = np.zeros(1)
    on_sim.string(text)(x, 1)
    assert x[0] == 5


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        ("map from", "with omp('task'):\n    x[0] = 7"),
        ("map from", "with omp('task depend(in: x)'):\n    x[0] = s if n < 0 else 7"),
        ("map from", "with omp('task depend(in: s)'):\n    x[0] = 7"),
        ("map from", "omp('taskwait')\nx[0] = 7 + 0 * s"),
        ("not deferred", READER.format("in", "").replace("= s", "= s + 3")),
    ],
)
def test_other_tasks_need_not_say_which(on_sim, writer, reader):
    """There is no error if the construct is not deferred, or the task does not both read and name the variable."""
    texts = {**WRITERS, "not deferred": WRITERS["map tofrom"].replace(" nowait depend(out: s)", "")}
    x = np.zeros(1)
    on_sim.string(program_of("a = np.ones(4)", "s = 0", texts[writer], reader))(x, 4)
    assert x[0] == 7


# -- the clauses that messages suggest ---------------------------------------------------------------------
SUGGESTED = {
    # lines in a taskloop, and the clause that the message names first
    "s += x[i]": "reduction(+: s)",
    "s -= x[i]": "reduction(+: s)",
    "s *= 2": "reduction(*: s)",
    "s += 1\ns += 2": "reduction(+: s)",
    "s += 1\ns *= 2": "shared(s)",
    "s += 1\nx[i] = s": "shared(s)",
    "s //= 2": "shared(s)",
    "s = s + x[i]": "reduction(+: s)",
    "s = max(s, x[i])": "reduction(max: s)",
    "if x[i] < s: s = x[i]": "reduction(min: s)",
    "s = x[i]": "private(s)",
    "s = x[i]\nx[i] = s + 1": "private(s)",
    "if n: s = 1\nelse: s = 2\nx[i] = s": "private(s)",
    "if n: s = 1\nx[i] = s": "shared(s)",
}


@pytest.mark.parametrize("lines", SUGGESTED)
def test_the_first_clause_that_a_message_suggests(on_sim, lines):
    """The message suggests a reduction for updates by one operator, and private for a name that is assigned first."""
    body = "".join(f"\n        {line}" for line in lines.split("\n"))
    text = program_of("s = 5", f"with omp('taskloop'):\n    for i in range(n):{body}", last="return s")
    with pytest.raises(offload.errors.PragmaError) as caught:
        on_sim.string(text)(np.zeros(3), 3)
    assert f"write {SUGGESTED[lines]}" in str(caught.value)
    on_sim.string(text.replace("'taskloop'", f"'taskloop {SUGGESTED[lines]}'"))(np.zeros(3), 3)


def test_a_task_suggests_private_for_a_temporary(on_sim):
    """In a task, private comes first if each read in the block comes after an assignment."""
    error = error_of(on_sim.folder, program_of(BLOCKS["task"].format(1, 0), last="return t"))
    assert "write private(t)" in str(error)


def test_a_taskgraph_suggests_an_array(on_sim):
    """A taskgraph has no clause for names, so its message says what to write instead."""
    error = error_of(on_sim.folder, program_of("with omp('taskgraph'):\n    t = 1", last="return t"))
    assert "write an array of one element, `t[0] = …`" in str(error)


# -- variables of blocks that blocks inside of them share --------------------------------------------------
def test_a_block_inside_shares_the_variable_of_a_block(on_sim):
    """`shared(t)` of a task in a task is the outer task's own variable."""
    inner = "    with omp('task shared(t)'):\n        t += 3\n    omp('taskwait')\n    x[0] = t"
    x = np.zeros(1)
    on_sim.string(program_of(f"with omp('task'):\n    t = 1\n{inner}"))(x, 1)
    assert x[0] == 4
    on_sim.string(program_of(f"with omp('task firstprivate(t)'):\n{inner}").replace("(x, n)", "(x, n, t=5)"))(x, 1)
    assert x[0] == 8


@pytest.mark.parametrize("inner", ["t = 3", "t += 3"])
def test_a_block_inside_shares_a_variable_of_the_function(on_sim, inner):
    """If the function's variable would not change, the outer task asks; with `shared` in both, it changes."""
    text = program_of(
        "t = 1",
        f"with omp('task'):\n    with omp('task shared(t)'):\n        {inner}\n    omp('taskwait')",
        last="return t",
    )
    with pytest.raises(offload.errors.PragmaError):
        on_sim.string(text)(None, 1)
    assert on_sim.string(text.replace("'task'", "'task shared(t)'"))(None, 1) in (3, 4)
