"""Lists, dicts and objects of which a data clause names parts: what a block may do with them (§4)."""

from __future__ import annotations

import numpy as np
import pytest

import offload
from tests.conformance.pragma.spelling import assert_at, dedent, error_of, marked

PROGRAM = """
@directives
def program(xs, n=0):
    with omp("target map(tofrom: {item})"):
        {lines}
    return xs
"""


class Pair:
    """An object with two elements and an attribute."""

    def __init__(self):
        self.all = [np.zeros(2), np.zeros(2)]
        self.y = np.zeros(2)


MADE = {
    "list": (lambda: [np.zeros(2), 7], "xs[0]", lambda xs: xs[0]),
    "dict": (lambda: {"a": np.zeros(2), "n": 7}, "xs['a']", lambda xs: xs["a"]),
    "list of an object": (Pair, "xs.all[0]", lambda xs: xs.all[0]),
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("line", ["{} += 1", "{}[...] = {} + 1", "{}[0:2] = 1", "part = {}\n        part += 1"])
def test_an_array_in_a_container_changes(on_sim, name, line):
    """The array of a list, a dict or an object changes in place."""
    make, item, part = MADE[name]
    program = on_sim.string(PROGRAM.format(item=item, lines=line.format(item, item)))
    assert part(program(make())).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("list", "xs[0] = xs[0] + 1"),
        ("list", "xs[:] = [1, 2]"),
        ("dict", "xs['a'] = xs['a'] + 1"),
        ("dict", "xs.update(a=5)"),
        ("list of an object", "xs.all[0] = xs.all[0] + 1"),
    ],
)
def test_a_mapped_element_must_not_be_bound_to_another_object(on_sim, name, line):
    """Such a change is a ClauseError; the container keeps its array."""
    make, item, part = MADE[name]
    program, made = on_sim.string(PROGRAM.format(item=item, lines=line)), make()
    before = part(made)
    with pytest.raises(offload.ClauseError, match=r"write `.*\[\.\.\.\] = …`"):
        program(made)
    assert part(made) is before


@pytest.mark.parametrize(
    ("name", "line", "seen"),
    [
        ("list", "xs[1] = 5", lambda xs: xs[1] == 5),
        ("list", "xs.append(3)", lambda xs: xs[1:] == [7, 3]),
        ("list", "xs.pop()", lambda xs: len(xs) == 1),
        ("list", "xs += [3, 4]", lambda xs: xs[1:] == [7, 3, 4]),
        ("list", "del xs[1:]", lambda xs: len(xs) == 1),
        ("list", "xs.reverse()", lambda xs: xs[0] == 7),
        ("dict", "xs['n'] += 1", lambda xs: xs["n"] == 8),
        ("dict", "xs['m'] = 1", lambda xs: xs["m"] == 1),
        ("dict", "del xs['n']", lambda xs: list(xs) == ["a"]),
        ("dict", "xs.setdefault('m', []).append(1)", lambda xs: xs["m"] == [1]),
        ("list of an object", "xs.all.append(1)", lambda xs: xs.all[2] == 1),
        ("list of an object", "xs.n = len(xs.all)", lambda xs: xs.n == 2),
    ],
)
def test_other_changes_of_a_container(on_sim, name, line, seen):
    """Other changes of a list, a dict or an object with mapped arrays reach it: it is captured by reference."""
    make, item, _ = MADE[name]
    assert seen(on_sim.string(PROGRAM.format(item=item, lines=line))(make()))


def test_binding_a_mapped_attribute(on_sim):
    """An assignment to an attribute that a clause maps is an error at its place."""
    text = dedent("""
        @directives
        def program(o):
            with omp("target map(tofrom: o.y)"):
                «o.y» = o.y + 1
    """)
    plain, place = marked(text)
    error = error_of(on_sim.folder, plain)
    assert_at(error, place, plain)
    assert "o.y[...] = …" in str(error)
    for line in ("o.y += 1", "o.y[...] = o.y + 1", "o.y[0:2] = 1"):
        o = Pair()
        on_sim.string(plain.replace("o.y = o.y + 1", line))(o)
        assert o.y.tolist() == [1, 1]


@pytest.mark.parametrize("item", ["xs[2:3]", "xs[0:2], xs[3:2]"])
def test_a_taskgraph_replays_sections(on_sim, item):
    """A block with sections runs in each replay of a taskgraph."""
    text = f"""
        @directives
        def program(xs):
            with omp("taskgraph"):
                with omp("target map(tofrom: {item})"):
                    xs[3] += 1
    """
    program, x = on_sim.string(dedent(text)), np.zeros(6)
    for _ in range(3):
        program(x)
    assert x.tolist() == [0, 0, 0, 3, 0, 0]


def test_a_taskgraph_replays_arrays_in_lists(on_sim):
    """So does one with an array in a list."""
    text = """
        @directives
        def program(x, y):
            with omp("taskgraph"):
                xs = (x, y)
                with omp("target map(tofrom: xs[0], xs[1])"):
                    part, other = xs
                    part += 1
                    other += 2
    """
    program, x, y = on_sim.string(dedent(text)), np.zeros(2), np.zeros(2)
    for _ in range(3):
        program(x, y)
    assert (x.tolist(), y.tolist()) == ([3, 3], [6, 6])
