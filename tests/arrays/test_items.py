"""List items: what they cover, sections, strings."""

from types import SimpleNamespace

import numpy as np
import pytest

from offload.arrays.items import Label, Token, array_section, label, locator, section
from offload.arrays.sections import HOST
from offload.constructs.clauses.names import VisibleNames, parse_item
from offload.devices.sim.array import SimArray
from offload.errors import ClauseError

A = np.arange(60).reshape(6, 10)
TILES = [A[0], A[1]]
NAMES = {"a": A, "n": 2, "tiles": TILES, "o": SimpleNamespace(x=A[3], tiles=tuple(TILES), i=0), "d": {0: A}}
REACHING = [
    "tiles[2]",
    "tiles[-1]",
    "tiles[0:1]",
    "tiles[0][0][0]",
    "o.y",
    "o[0]",
    "d[0]",
    "m.x",
    "tiles[m]",
    "o.x.x",
    "o.i",
]


def test_views_of_the_same_memory_are_the_same_item():
    """What counts is the storage, not the Python object."""
    assert array_section(A) == array_section(A[:]) == array_section(A.T) == array_section(A[::-1])
    assert array_section(A).space == HOST
    assert array_section(A[1]) != array_section(A[2])
    assert array_section(A[:, 0]) == array_section(A.T[0])
    assert array_section(A[2:2]).run_nbytes == 0


def test_tokens():
    """Any other hashable value is a location of its own."""
    assert locator(("HtoD", 3)) == Token(("HtoD", 3))
    assert locator(None) == Token(None)
    assert locator(SimArray) == Token(SimArray)  # the class, of which each array has storage
    assert locator(A) == array_section(A)
    with pytest.raises(ClauseError):
        locator([1])
    with pytest.raises(ClauseError):
        locator(np.array([object()]))
    with pytest.raises(ClauseError):
        array_section("x")


def test_section_counts_elements():
    """The second number is a count, the third a stride; None takes the default; missing dimensions are whole."""
    assert (section(A, (1, 2)) == A[1:3]).all()
    assert (section(A, (0, 3, 2), (1, 2, 4)) == A[0:5:2, 1:6:4]).all()
    assert (section(A, (None, None, None), (4, None)) == A[:, 4:]).all()
    assert section(A, (5, None, 3)).shape == (1, 10)
    assert section(A, (6, 0)).shape == (0, 10)
    assert section(A).shape == A.shape
    assert section(A, (1, 2)).base is not None


@pytest.mark.parametrize(
    "dims",
    [
        [(0, 7)],
        [(0, 4, 2)],
        [(6, 1)],
        [(7, 0)],
        [(-1, 2)],
        [(0, -1)],
        [(0, 2, 0)],
        [(0, 2, -1)],
        [(0, 1)] * 3,
        [0],
        [(1,)],
        [slice(0, 2)],
        [(1, 2, 3, 4)],
        [(1.5, 2)],
        [(0, 2.0)],
        [(0, 2, "1")],
    ],
)
def test_sections_that_are_none(dims):
    """What reaches outside, has no positive stride, too many dimensions or numbers that are no ints is an error."""
    with pytest.raises(ClauseError):
        section(A, *dims)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", A),
        (" a ", A),
        ("a[1]", A[1]),
        ("a[0:n]", A[0:2]),
        ("a[n][0:5:2]", A[2, 0:10:2]),
        ("a[n, 1:3]", A[2, 1:4]),
        ("a[:]", A),
        ("a[n*2-1:]", A[3:]),
        ("a[:][n:n]", A[:, 2:4]),
        ("tiles[n - 1]", A[1]),
        ("tiles[1][0:n]", A[1, 0:2]),
        ("o.x", A[3]),
        ("o.x[n:]", A[3, 2:]),
        ("o.tiles[o.i][1:2]", A[0, 1:3]),
        ("a[1:2].T[0]", A[1:3, 0]),
    ],
)
def test_strings(text, expected):
    """OpenMP's notation: lower : length : stride, indices, in terms of visible names."""
    assert array_section(parse_item(text).resolve(NAMES)) == array_section(expected)


@pytest.mark.parametrize("text", ["", "1", "a b", "f(a)", "f(a).b", "1[0]", "a[", "(a, b)", "a + 1", "a[0:1][", "'a'"])
def test_strings_that_are_no_items(text):
    """Anything else is an error when it is parsed."""
    with pytest.raises(ClauseError):
        parse_item(text)


@pytest.mark.parametrize(
    "text", ["b", "a[6]", "a[-1]", "a[0:7]", "a[0][0][0]", "a[m]", "a[n/0]", "n[0]", "a[0:2:0]", *REACHING]
)
def test_strings_that_cannot_be_resolved(text):
    """A name that is not visible, or a section outside of the array, is an error that shows the text."""
    with pytest.raises(ClauseError):
        parse_item(text).resolve(NAMES)


def test_visible_names():
    """A function's parameters with defaults, its closure and its globals are visible at the call; calls are checked."""
    closed = np.zeros(3)

    def function(x, n=4, *rest, k=5):
        return closed

    names = VisibleNames(function)
    seen = names.at_call((1,), {"k": 7})
    assert (seen["x"], seen["n"], seen["k"], seen["closed"] is closed, seen["A"] is A) == (1, 4, 7, True, True)
    assert list(names.parameters) == ["x", "n", "rest", "k"]
    with pytest.raises(TypeError):
        names.at_call((), {})


def test_the_nearest_name_is_meant():
    """A parameter hides a keyword that ``**`` takes, that hides what encloses the function, and that a global."""
    A, n = np.zeros(1), 1

    def function(x, **rest):
        return A, n

    seen = VisibleNames(function).at_call((5,), {"n": 2, "rest": 3})
    assert seen["A"] is A
    assert (seen["x"], seen["n"], seen["rest"]) == (5, 2, {"n": 2, "rest": 3})


def test_labels_of_arrays_are_compared_by_what_they_say():
    """Labels are equal where they have the same name, dtype and shape, and have the same hash then."""
    same = Label(np.zeros((2, 3)), "x"), Label(np.ones((2, 3)), "x")
    assert same[0] == same[1]
    assert len(set(same)) == 1
    others = [Label(np.zeros(of), name) for of, name in (((2, 3), ""), ((3, 2), "x"), (6, "x"))]
    assert same[0] not in [*others, Label(np.zeros((2, 3), "f4"), "x"), "x: float64[2, 3]"]


def test_labels():
    """Labels say shape and dtype, or the value."""
    assert label(A) == "int64[6, 10]"
    assert label("x[0:2]") == "x[0:2]"
    assert label(Token(("t", 1))) == label(("t", 1)) == "('t', 1)"
