"""List items at run time: subscripts of arrays and of other objects, and variables in ``depend``."""

from __future__ import annotations

import pickle
from enum import IntEnum
from fractions import Fraction

import numpy as np
import pytest

import offload as omp
from offload.arrays.items import Token
from offload.pragma import items
from tests.pragma.directive_calls import ACTIVATION, keywords


def dependence(text, **names):
    """Return the list items of ``depend(in: …)``."""
    (found,) = keywords(f"taskwait depend(in: {text})", **names)["depend"]
    return found.items


def item(text, **names):
    (found,) = dependence(text, **names)
    return found


@pytest.fixture
def a():
    return np.arange(24.0).reshape(4, 6)


# -- sections of arrays ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a[1:2]", np.s_[1:3]),
        ("a[:2]", np.s_[:2]),
        ("a[1:]", np.s_[1:]),
        ("a[:]", np.s_[:]),
        ("a[...]", np.s_[...]),
        ("a[0:2:2]", np.s_[0:3:2]),
        ("a[i]", np.s_[2]),
        ("a[i][1:3]", np.s_[2, 1:4]),
        ("a[i, 1:3]", np.s_[2, 1:4]),
        ("a[i, 1:2:3]", np.s_[2, 1:5:3]),
        ("a[..., i]", np.s_[..., 2]),
        ("a[1:n][i:1]", np.s_[1:4, 2:3]),
        ("a.T[1:2]", None),
    ],
)
def test_subscripts_of_an_array_are_sections(a, text, expected):
    """A subscript of an array is lower : length : stride, and the item is a view of the array."""
    found = item(text, a=a, i=2, n=3)
    want = a.T[1:3] if expected is None else a[expected]
    assert found.tolist() == want.tolist()
    assert np.shares_memory(found, a)
    assert found.strides == want.strides


@pytest.mark.parametrize("text", ["a[1][i]", "a[1, i]", "a[1, i, ...]"])
def test_a_single_element_is_its_storage(a, text):
    """An item that names one element is a view of that element, not a copy."""
    found = item(text, a=a, i=2)
    assert found.shape == ()
    assert np.shares_memory(found, a)
    assert found == a[1, 2]


def test_an_element_of_one_dimension_is_its_storage():
    """``x[i]`` of an array is a view of the element."""
    x = np.arange(5.0)
    assert np.shares_memory(item("x[i]", x=x, i=3), x)
    assert item("x[i]", x=x, i=np.int64(3)) == 3


@pytest.mark.parametrize(
    "text",
    [
        "a[4]",
        "a[-1]",
        "a[1][6]",
        "a[0:5]",
        "a[2:3]",
        "a[-1:2]",
        "a[0:-1]",
        "a[0:2:0]",
        "a[0, 0, 0]",
        "a[1.5]",
        "a['x']",
    ],
)
def test_sections_outside_of_their_array_are_errors(a, text):
    """An index or a section outside of the array, or an index that is no integer, is a ClauseError with the item."""
    with pytest.raises(omp.ClauseError) as caught:
        dependence(text, a=a)
    assert repr(text) in str(caught.value)


def test_two_ellipses_are_an_error(a):
    """``...`` may stand in an item once."""
    with pytest.raises(omp.ClauseError, match="twice"):
        dependence("a[..., ...]", a=a)


def test_a_section_of_a_device_array_is_a_view_of_it(sim):
    """A section of a device array, and a single element, name the device's storage."""
    d = omp.target_alloc(10, float)
    found = item("d[2:3]", d=d)
    assert found.__offload_section__() == d[2:5].__offload_section__()
    assert item("d[4]", d=d).__offload_section__() == d[4:5].__offload_section__()
    omp.target_free(d)


def test_memory_of_another_library_is_an_array():
    """A section of an object that exposes memory is a view of this memory."""
    buffer = bytearray(range(10))
    found = item("b[2:3]", b=buffer)
    assert found.tolist() == [2, 3, 4]
    buffer[2] = 99
    assert found[0] == 99


# -- subscripts of other objects ---------------------------------------------------------------------


def test_subscripts_of_other_objects_are_pythons():
    """A subscript of a list, a tuple, a dict or another object is Python's own, negative indices too."""
    x, y = np.zeros(3), np.ones(4)
    assert item("tiles[1]", tiles=[x, y]) is y
    assert item("tiles[-1]", tiles=(x, y)) is y
    assert item("tiles['k']", tiles={"k": x}) is x
    assert item("tiles[0, 1]", tiles={(0, 1): x}) is x
    assert item("tiles[0][1][2:2]", tiles=[[x, y]]).tolist() == [1, 1]
    assert np.shares_memory(item("o.parts[1][2:2]", o=type("O", (), {"parts": [x, y]})), y)


def test_errors_of_other_objects_are_pythons():
    """A missing element or member raises Python's own error."""
    with pytest.raises(IndexError):
        dependence("tiles[2]", tiles=[1, 2])
    with pytest.raises(KeyError):
        dependence("tiles['q']", tiles={})
    with pytest.raises(AttributeError):
        dependence("o.q", o=object())


def test_brackets_of_a_call_are_pythons(a):
    """Inside of a call, a slice is Python's."""
    assert item("f(a[1:3])[0:1]", a=a, f=lambda part: part).shape == (1, 6)


# -- variables ---------------------------------------------------------------------------------------


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize("value", [3, 3.5, True, "text", None, np.float32(1), Fraction(1, 2), 2j])
def test_a_bare_name_with_a_number_is_the_variable(value):
    """A bare name that holds a number, a string or None names the variable, whatever its value is."""
    found = item("total", total=value)
    assert found == items.variable(ACTIVATION, "total")
    assert omp.in_(found).__repr__() == "in(total)"


def test_a_bare_name_without_a_value_is_the_variable():
    """A bare name that is unbound names the variable."""
    assert item("total") == item("total", total=5)


def test_variables_differ_by_name_and_activation():
    """Variables of other names, or of other calls of the function, are other locations."""
    one, other = object(), object()
    assert items.variable(one, "x") == items.variable(one, "x")
    assert items.variable(one, "x") != items.variable(one, "y")
    assert items.variable(one, "x") != items.variable(other, "x")
    assert len({items.variable(one, "x"), items.variable(one, "x"), items.variable(other, "x")}) == 2


@pytest.mark.parametrize("value", [(3,), Colour.RED, b"bytes", frozenset([1])])
def test_a_bare_name_with_another_hashable_value_is_the_value(value):
    """Any other hashable value stands for itself, an enum member too."""
    assert item("key", key=value) is value


def test_expressions_are_values():
    """An expression that is no bare name is a value: a number in a tuple, a string, a sum."""
    assert item("(n,)", n=3) == (3,)
    assert item("n + 1", n=3) == 4
    assert item("'HtoD'") == Token("HtoD")
    assert dependence("names[0]", names=["HtoD"])[0] == Token("HtoD")
    assert dependence("o.name", o=type("O", (), {"name": "HtoD"}))[0] == Token("HtoD")
    assert item("('HtoD', ip)", ip=2) == ("HtoD", 2)


class Holder:
    """An object with attributes, and with elements for any subscript."""

    def __init__(self, x):
        self.x = x
        self.counts = [x, x]

    def __getitem__(self, key):
        return self.x


PLACES = ["c[0]", "c[i]", "d['k']", "d[0, 1]", "o.x", "o.counts[1]", "o[1:2, 0]", "o[i, 1]"]


@pytest.mark.parametrize("text", PLACES)
def test_a_number_in_an_object_is_a_place_and_a_value(text):
    """An element or an attribute that holds a number is the same location after it has changed, and is its value."""
    c, d, o = [1, 2], {"k": 1, (0, 1): 1}, Holder(1)
    value, place = dependence(text, c=c, d=d, o=o, i=0)
    assert value == 1
    c[0] = d["k"] = d[0, 1] = o.x = o.counts[1] = 5
    assert dependence(text, c=c, d=d, o=o, i=0) == (5, place)
    assert hash(dependence(text, c=c, d=d, o=o, i=0)[1]) == hash(place)
    assert omp.in_(place).__repr__() == f"in({text})"


def test_places_differ_by_object_and_key():
    """Elements of other objects, other elements, and an attribute of the name of an element are other places."""
    c, o = [1, 1], Holder(1)
    o.counts = c
    found = [dependence(text, c=c, e=[1, 1], o=o, d={"x": 1}) for text in ("c[0]", "c[1]", "e[0]", "o.x", "o['x']")]
    assert len({place for _, place in found}) == len(found)
    assert dependence("c[-1]", c=c) == dependence("c[1]", c=c) == dependence("o.counts[1]", o=o)
    assert dependence("c[i]", c=c, i=np.int64(1)) == dependence("c[1]", c=c)


def test_none_in_an_object_is_a_place():
    """An element that holds None is its place alone: other elements without a value are other locations."""
    c = [None, None]
    (first,), (second,) = dependence("c[0]", c=c), dependence("c[1]", c=c)
    assert first != second
    c[0] = 7
    assert dependence("c[0]", c=c) == (7, first)


def test_places_of_iterators():
    """With an iterator, each element has a place and a value."""
    c = [4, 5]
    (found,) = keywords("taskwait depend(iterator(i=0:2), in: c[i])", c=c)["depend"]
    assert found.items == (*dependence("c[0]", c=c), *dependence("c[1]", c=c))


def test_all_memory():
    """``omp_all_memory`` is `all_memory`."""
    (found,) = keywords("taskwait depend(out: omp_all_memory)")["depend"]
    assert found.items == (omp.all_memory,)


def test_a_temporary_array_is_refused():
    """An array that nothing else can name is the ClauseError of the API."""
    with pytest.raises(omp.ClauseError, match="temporary"):
        dependence("x + 1", x=np.zeros(3))


def test_iterators_give_an_item_for_each_value():
    """An iterator stands for the items of each value, and its name is a value in them."""
    tiles = [np.zeros(2) for _ in range(4)]
    (found,) = keywords("taskwait depend(iterator(i=0:4:2), in: tiles[i], i)", tiles=tiles)["depend"]
    assert [one for one in found.items if isinstance(one, np.ndarray)] == [tiles[0], tiles[2]]
    assert [one for one in found.items if not isinstance(one, np.ndarray)] == [0, 2]


def test_iterators_nest():
    """A later iterator runs inside of an earlier one."""
    (found,) = keywords("taskwait depend(iterator(i=0:2, j=0:2), in: (i, j))")["depend"]
    assert found.items == ((0, 0), (0, 1), (1, 0), (1, 1))


def test_an_iterator_without_values_gives_no_dependence():
    """An iterator over nothing leaves the clause out."""
    assert keywords("taskwait depend(iterator(i=0:0), in: (i,))") == {}


# -- other values ------------------------------------------------------------------------------------


def test_unbound_is_one_object():
    """`UNBOUND` is the same object after pickling, and shows its name."""
    assert pickle.loads(pickle.dumps(items.UNBOUND)) is items.UNBOUND
    assert repr(items.UNBOUND) == "UNBOUND"


def test_an_event_is_kept_and_anything_else_replaced():
    """``detach(ev)`` takes the event that the name holds, or makes one."""
    event = omp.Event()
    assert items.event_for(event) is event
    assert isinstance(items.event_for(items.UNBOUND), omp.Event)
    assert isinstance(items.event_for(3), omp.Event)


def test_mappable_values():
    """Arrays of any library can be mapped; numbers, strings and lists cannot."""
    assert items.is_mappable(np.zeros(2))
    assert items.is_mappable(bytearray(4))
    assert not any(map(items.is_mappable, (3, "x", None, items.UNBOUND, [np.zeros(2)], np.float64(1))))
