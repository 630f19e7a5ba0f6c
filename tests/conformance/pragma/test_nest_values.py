"""Scalars that each iteration of a nest assigns: a value that the function reads afterwards must not be lost (§3.1)."""

from __future__ import annotations

from linecache import getline

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
}

SCANS = {
    "a scan": ("s = 0", "for i in range(n):\n    s = s + i\n    a[i] = s", "return s"),
    "a scan in a loop": ("s = 0\nfor _ in range(2):", "for i in range(n):\n    s = s + i\n    a[i] = s", ""),
}


def nest_text(before, nest, after, head):
    """Return a program with a nest."""
    deep = "    " if before.rstrip().endswith(":") or "\n    if" in before else ""
    lines = before.split("\n") if before else []
    lines += [f"{deep}with {head}:", *(f"{deep}    {line}" for line in nest.split("\n"))]
    lines += after.split("\n") if after else []
    return "@directives\ndef program(a, n, f=None):\n" + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize("head", ["omp('parallel for')", "acc('parallel loop')"])
@pytest.mark.parametrize("name", LOST)
def test_a_value_of_a_nest_that_would_be_lost(on_sim, name, head):
    """A scalar that each iteration assigns, and nothing in the nest reads, is private to it. If the function reads the
    variable afterwards, a warning at the line of the directive says which clause gives it the value."""
    text = nest_text(*LOST[name], head)
    with pytest.warns(offload.DirectiveWarning, match="found is private to each iteration") as caught:
        on_sim.string(text)
    assert head in getline(caught[0].filename, caught[0].lineno)
    on_sim.string(text.replace("')", " private(found)')", 1))


@pytest.mark.parametrize("head", ["omp('parallel for')", "acc('parallel loop')"])
@pytest.mark.parametrize("name", SCANS)
def test_a_scan_whose_last_value_is_read(on_sim, name, head):
    """A prefix sum of a variable that the function reads afterwards is a PragmaError at the directive."""
    text = nest_text(*SCANS[name], head)
    error = error_of(on_sim.folder, text)
    assert "s passes a value" in str(error)
    assert error.text[error.offset - 1 : error.end_offset - 1] in ("parallel for", "parallel loop")


def test_a_temporary_keeps_the_value_from_before(on_sim):
    """A scalar that an iteration assigns and reads is private, without a warning: the variable keeps its value."""
    text = nest_text("t = 5", "for i in range(n):\n    t = 2 * i\n    a[i] = t", "return t", "omp('parallel for')")
    a = np.zeros(4)
    assert on_sim.string(text)(a, 4) == 5
    assert a.tolist() == [0, 2, 4, 6]


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
    text = nest_text(*KEPT[name], "omp('parallel for')")
    a = np.arange(8.0)
    on_sim.string(text)(a, 8)


def test_a_scan_whose_last_value_is_not_read(on_sim):
    """A prefix sum begins with the value of the variable, which is not read afterwards."""
    text = nest_text(
        "s = 5", "for i in range(n):\n    s = s + i\n    a[i] = s", "s = 1\nreturn s", "omp('parallel for')"
    )
    a = np.zeros(4)
    assert on_sim.string(text)(a, 4) == 1
    assert a.tolist() == [5, 6, 8, 11]


def test_an_update_without_a_clause_is_the_loop_error(on_sim):
    """A sum in no clause is the LoopError of loops, which says to reduce it."""
    text = nest_text("s = 0", "for i in range(n):\n    s += a[i]", "return s", "omp('parallel for')")
    with pytest.raises(offload.errors.LoopError, match="reduction"):
        on_sim.string(text)


def test_private_of_an_inner_loop(on_sim):
    """A scalar in `private` of a loop inside of the nest is private there, and may be read after the nest."""
    nest = "for i in range(n):\n    with acc('loop seq private(t)'):\n        for k in range(2):\n            t = k"
    text = nest_text("t = 7", nest, "return t", "acc('parallel loop')")
    assert on_sim.string(text)(np.zeros(4), 4) == 7
