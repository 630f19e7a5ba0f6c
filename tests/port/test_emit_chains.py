"""Expressions that may hold arrays: where they begin and end, what they hold, and how clauses spell them."""

import ast

import numpy as np
import pytest

from offload.arrays.sections import section_of
from offload.port.chains import ChainReader, chains_in, clause_text, is_pure


def chains(text):
    (statement,) = ast.parse(text).body
    return [ast.unparse(chain.node) for chain in chains_in(statement)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y[...] = buf[i % 2] * 2", ["y[...]", "buf[i % 2]", "i"]),
        ("d.set(h[i, 2:n])", ["d.set", "h[i, 2:n]", "i", "n"]),
        ("f(self.x.T[0])", ["f", "self.x.T[0]"]),
        ("x[f(i)] += 1", ["x", "f", "i"]),
        ("y = [b[k] for k in range(3)]", ["y", "b", "range"]),
        ("for k in items[0]:\n    z = 1", ["k", "items[0]"]),
        ("f(lambda x: x)", ["f"]),
        ("(a + b).sum()", ["a", "b"]),
    ],
)
def test_chains_end_at_calls_and_at_names_of_comprehensions(text, expected):
    """A chain is a name with attributes and subscripts without effects; only the head of a statement counts."""
    assert sorted(set(chains(text))) == sorted(expected)


@pytest.mark.parametrize(
    ("text", "is_it"),
    [("i % 2", True), ("f(i)", False), ("min(i, 3)", True), ("(i := 2)", False), ("[i]", False), ("a[1:n]", True)],
)
def test_only_expressions_without_effects_are_pure(text, is_it):
    """Calls of unknown functions and assignments have effects."""
    assert is_pure(ast.parse(text, mode="eval").body) is is_it


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", "x"),
        ("buf[i % 2]", "buf[i % 2]"),
        ("x[lo:hi]", "x[lo:hi - lo]"),
        ("x[lo:lo + n]", "x[lo:n]"),
        ("x[lo:n + lo]", "x[lo:n]"),
        ("x[:n]", "x[:n]"),
        ("x[0:n]", "x[0:n]"),
        ("x[lo:]", "x[lo:]"),
        ("x[i, a:b]", "x[i, a:b - a]"),
        ("x[i * n:(i + 1) * n]", "x[i * n:n]"),
        ("x[a + 1:b or c]", "x[a + 1:(b or c) - (a + 1)]"),
        ("self.x.T[1:3][0]", "self.x.T[1:2][0]"),
    ],
)
def test_clauses_count_lengths(text, expected):
    """A slice of Python becomes lower : length."""
    assert clause_text(ast.parse(text, mode="eval").body) == expected


@pytest.mark.parametrize(
    ("lower", "upper"), [("lo", "hi"), ("i * n", "(i + 1) * n"), ("lo", "lo + n"), ("lo + 1", "hi")]
)
def test_a_clause_covers_what_the_slice_does(lower, upper):
    """The section of a clause has the bounds of the slice."""
    names = {"lo": 4, "hi": 9, "i": 1, "n": 4}
    spelled = clause_text(ast.parse(f"x[{lower}:{upper}]", mode="eval").body)
    start, length = (eval(part, names) for part in spelled[2:-1].split(":"))
    assert (start, start + length) == (eval(lower, names), eval(upper, names))


def held(text, **variables):
    (statement,) = ast.parse(text).body
    (chain,) = (one for one in chains_in(statement) if one.root == "x")

    def section(value):
        if not isinstance(value, np.ndarray):
            return None
        address = value.__array_interface__["data"][0]
        return section_of(-1, address, value.shape, value.strides, value.itemsize)

    return ChainReader(chain).held(variables, {"__builtins__": __builtins__}, section)


def test_each_prefix_is_described():
    """A list, an array in it, and a view of it are told apart, with the bytes of the arrays."""
    array = np.zeros((3, 4))
    found = held("x[1][i, :2]", x=[None, array], i=2)
    assert [one.what for one in found] == ["object", "host", "host"]
    assert (found[2].section.address, found[2].section.nbytes) == (array[2].__array_interface__["data"][0], 16)
    assert found[2].shape == (2,)


@pytest.mark.parametrize(
    ("text", "is_plain"),
    [
        ("x[i]", True),
        ("x[-1]", False),
        ("x[2:9]", False),
        ("x[:2]", True),
        ("x[s]", False),
        ("x[::2]", False),
        ("x[3:1]", False),
    ],
)
def test_a_subscript_that_a_clause_cannot_spell_is_known(text, is_plain):
    """Indices from the end, slices beyond the end and slices in variables are not plain."""
    assert held(text, x=np.zeros(4), i=1, s=slice(0, 2))[-1].is_plain is is_plain


def test_a_chain_that_cannot_be_evaluated_holds_nothing():
    """A missing name, a missing index and a call give None from there on."""
    assert held("x[0]") == (None, None)
    assert held("x[9].y", x=[1])[1:] == (None, None)


def test_numbers_in_containers_may_change():
    """A number that a list or a host array holds is another thing than one in a variable."""
    assert held("x", x=3)[-1].what == "value"
    assert held("x[0]", x=[3])[-1].what == "changing"
    assert held("x[0]", x=np.zeros(2))[-1].what == "changing"
    assert held("x.shape", x=np.zeros(2))[-1].what == "changing"
