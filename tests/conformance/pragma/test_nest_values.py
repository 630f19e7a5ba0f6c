"""Scalars that each iteration of a nest assigns: a value that the function reads afterwards must not be lost (§3.1)."""

from __future__ import annotations

import numpy as np
import pytest

import offload
from tests.conformance.pragma.spelling import error_of

FOUND = "for i in range(n):\n    if a[i] > 5:\n        found = 1"
LOST = {
    # name: lines before the nest, the nest, lines after it
    "read": ("found = 0", FOUND, "return found"),
    "printed": ("found = 0", FOUND, "print(found)"),
    "in a condition": ("found = 0", FOUND, "if found: return 1"),
    "on some path": ("found = 0", FOUND, "if n > 3: found = 2\nreturn found"),
    "in another nest": ("found = 0", FOUND, "with omp('parallel for'):\n    for i in range(n):\n        a[i] = found"),
    "in a task": ("found = 0", FOUND, "with omp('task'):\n    print(found)"),
    "in a clause": ("found = 0", FOUND, "omp('taskwait depend(in: a[found])')"),
    "in a function": ("found = 0", FOUND, "return (lambda: found)()"),
    "in a handler": ("found = 0\ntry:", FOUND, "    f()\nexcept ValueError:\n    return found"),
    "in a loop": ("found = 0\nfor _ in range(2):\n    if found: print(found)", FOUND, ""),
    "unbound before": ("", "for i in range(n):\n    found = i", "return found"),
    "a scan": ("s = 0", "for i in range(n):\n    s = s + i\n    a[i] = s", "return s"),
    "a scan in a loop": ("s = 0\nfor _ in range(2):", "for i in range(n):\n    s = s + i\n    a[i] = s", ""),
}


def nest_text(before, nest, after, head):
    """Return a program with a nest, and the line of its directive."""
    deep = "    " if before.rstrip().endswith(":") or "\n    if" in before else ""
    lines = before.split("\n") if before else []
    at = len(lines) + 3
    lines += [f"{deep}with {head}:", *(f"{deep}    {line}" for line in nest.split("\n"))]
    lines += after.split("\n") if after else []
    return "@directives\ndef program(a, n, f=None):\n" + "".join(f"    {line}\n" for line in lines), at


@pytest.mark.parametrize("head", ["omp('parallel for')", "acc('parallel loop')"])
@pytest.mark.parametrize("name", LOST)
def test_a_value_of_a_nest_that_would_be_lost(on_sim, name, head):
    """A scalar that each iteration assigns, in no clause, and that the function reads afterwards, is a PragmaError at
    the directive."""
    text, _ = nest_text(*LOST[name], head)
    error = error_of(on_sim.folder, text)
    assert "would be lost" in str(error)
    words = ("parallel for",) if "omp" in head else ("parallel loop",)
    assert error.text[error.offset - 1 : error.end_offset - 1] in words
    variable = "s" if "scan" in name else "found"
    assert variable in str(error)
    if "scan" not in name:
        on_sim.string(text.replace("')", f" private({variable})')", 1))


AGAIN = "with omp('parallel for')"
LAST = "with omp('parallel for lastprivate(found)')"
KEPT = {
    "nothing after": ("", FOUND, ""),
    "assigned before it is read": ("", FOUND, "found = 2\nreturn found"),
    "assigned on all paths": ("", FOUND, "if n: found = 2\nelse: found = 3\nreturn found"),
    "a loop variable": ("", FOUND, "for found in range(3): print(found)"),
    "a comprehension": ("", FOUND, "return [found for found in range(3)]"),
    "read before": ("found = 0\nprint(found)", FOUND, ""),
    "in another nest": ("", FOUND, f"{AGAIN}:\n    for i in range(n):\n        found = a[i]\n        a[i] = found"),
    "in a task": ("", FOUND, "with omp('task'):\n    found = 3\n    print(found)"),
    "lastprivate of another": ("", FOUND, f"{LAST}:\n    for i in range(n):\n        found = i\nfound = 1"),
    "in a loop": ("for _ in range(2):\n    if n: found = 0", FOUND, ""),
    "returns": ("", FOUND, "return 1\nprint(found)"),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_a_value_of_a_nest_that_is_not_read(on_sim, name):
    """A scalar that each iteration assigns is private if the function does not read it afterwards."""
    text, _ = nest_text(*KEPT[name], "omp('parallel for')")
    a = np.arange(8.0)
    on_sim.string(text)(a, 8)


def test_a_scan_whose_last_value_is_not_read(on_sim):
    """A prefix sum begins with the value of the variable, which is not read afterwards."""
    text, _ = nest_text(
        "s = 5", "for i in range(n):\n    s = s + i\n    a[i] = s", "s = 1\nreturn s", "omp('parallel for')"
    )
    a = np.zeros(4)
    assert on_sim.string(text)(a, 4) == 1
    assert a.tolist() == [5, 6, 8, 11]


def test_an_update_without_a_clause_is_the_loop_error(on_sim):
    """A sum in no clause is the LoopError of loops, which says to reduce it."""
    text, _ = nest_text("s = 0", "for i in range(n):\n    s += a[i]", "return s", "omp('parallel for')")
    with pytest.raises(offload.errors.LoopError, match="reduction"):
        on_sim.string(text)


def test_private_of_an_inner_loop(on_sim):
    """A scalar in `private` of a loop inside of the nest is private there, and may be read after the nest."""
    nest = "for i in range(n):\n    with acc('loop seq private(t)'):\n        for k in range(2):\n            t = k"
    text, _ = nest_text("t = 7", nest, "return t", "acc('parallel loop')")
    assert on_sim.string(text)(np.zeros(4), 4) == 7
