"""List items written as strings, through the public interface."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, out, to, tofrom


@pytest.fixture
def none() -> Any:
    """A runtime without devices."""
    with omp.Runtime("none", num_threads=2, check=True) as runtime:
        yield runtime


@pytest.fixture
def sim() -> Any:
    """A runtime with one simulated device."""
    with omp.Runtime("sim", check=True) as runtime:
        yield runtime


def test_an_element_is_its_storage_not_its_value(none: omp.Runtime) -> None:
    """A dependence on ``"b[0]"`` holds although the element's value changes, and other elements are not held."""
    b = np.zeros(3)
    release = threading.Event()

    @omp.task(depend=[out("b[0]")])
    def produce(b: Any) -> None:
        release.wait(20)
        b[0] = 42

    @omp.task(depend=[in_("b")])
    def consume(b: Any) -> float:
        return float(b[0])

    @omp.task(depend=[inout("b[1]")])
    def beside(b: Any) -> None:
        b[1] = 1

    produce(b)
    consumer, neighbour = consume(b), beside(b)
    b[0] = 7  # the value is nothing to go by
    assert neighbour.dependencies == (consumer,)
    release.set()
    assert consumer.result() == 42
    omp.taskwait()


def test_a_wavefront_of_equal_elements_has_its_own_edges(none: omp.Runtime) -> None:
    """Five by five tasks on elements of one zero matrix have the 41 edges of a wavefront, not those of a chain."""

    @omp.task(depend=[in_("a[i-1][j]", "a[i][j-1]"), out("a[i][j]")])
    def step(a: Any, i: int, j: int) -> None:
        a[i, j] = a[i - 1, j] + a[i, j - 1]

    a = np.zeros((6, 6))
    with omp.record(execute=False) as graph:
        for i in range(1, 6):
            for j in range(1, 6):
                step(a, i, j)
    assert len({(edge.source.key, edge.target.key) for edge in graph.edges}) == 2 * 5 * 4
    assert {edge.kind for edge in graph.edges} == {"flow"}


def test_an_element_can_be_mapped() -> None:
    """``to("x[2]")`` maps one element, which the body receives as a 0-d array."""
    with omp.Runtime("sim", check=True):

        @omp.target(map=[to("x[2]"), tofrom("y")])
        def set_all(x: Any, y: Any) -> int:
            y += x
            return int(x.ndim)

        y = np.zeros(3)
        assert set_all(np.arange(5.0), y) == 0
        assert (y == 2).all()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x[9]", "outside of dimension 0"),
        ("x[-1]", "outside of dimension 0"),
        ("x[2:4]", "a count of elements"),
        ("x[0:1.5]", "float"),
        ("x[0:m]", "'m'"),
        ("x[0:2,0:1]", "2 dimensions"),
        ("z", "no parameter or visible name"),
        ("x[", "never closed"),
        ("3x", "invalid"),
        ("f(x)", "is not a name with members, indices or sections"),
    ],
)
def test_a_wrong_string_says_what_is_wrong(none: omp.Runtime, text: str, words: str) -> None:
    """A string item that means nothing is a `ClauseError` with the text in it, at the decorator or at the call."""
    with pytest.raises(omp.ClauseError, match="list item") as caught:  # either line may raise

        @omp.task(depend=[in_(text)])
        def body(x: Any) -> None:
            raise AssertionError

        body(np.zeros(5))
    assert text in str(caught.value)
    assert words in str(caught.value)
    omp.taskwait()


V = np.arange(4.0)


def test_a_section_of_a_keyword_only_parameter_is_that_parameter(sim: omp.Runtime) -> None:
    """A section of ``w``, after ``*xs``, replaces ``w`` and none of ``xs``, given or by default."""

    @omp.target(map=[to("w[0:2]")])
    def sizes(*xs: Any, w: Any = V) -> list[int]:
        return [x.size for x in xs] + [w.size]

    a, b, c = np.zeros(5), np.zeros(6), np.zeros(7)
    for call in (sizes, sizes.options(if_=False)):
        assert call(a, b, c, w=V) == [5, 6, 7, 2]
        assert call(a, b, c) == [5, 6, 7, 2]
        assert call() == [2]


def test_a_positional_only_parameter_keeps_its_name(sim: omp.Runtime) -> None:
    """A keyword that ``**`` takes does not stand for the positional-only parameter of the same name."""

    @omp.target(map=[to("a[0:2]")])
    def sizes(a: Any, /, **others: Any) -> list[int]:
        return [a.size, others["a"].size]

    assert sizes(np.zeros(5), a=np.zeros(6)) == [2, 6]


def test_a_string_names_a_keyword_that_the_function_takes_by_stars(sim: omp.Runtime) -> None:
    """A string finds an argument that ``**kw`` takes: all of it, a section, a dependence."""

    @omp.target(map=[to("x[1:2]"), tofrom("y")])
    def body(**kw: Any) -> int:
        kw["y"] += kw["x"].sum()
        return int(kw["x"].size)

    y = np.zeros(3)
    assert body(x=np.arange(4.0), y=y) == 2
    assert (y == 3).all()

    @omp.task(depend=[inout("x[0:n]")])
    def add(**kw: Any) -> None:
        kw["x"][: kw["n"]] += 1

    release = threading.Event()
    writer = omp.task(lambda x: release.wait(20), depend=[out("x")])(y)
    adder = add(x=y, n=2)
    assert adder.dependencies == (writer,)
    release.set()
    omp.taskwait()
    assert y.tolist() == [4, 4, 3]


@pytest.mark.parametrize("if_", [True, False])
def test_two_sections_of_one_parameter(sim: omp.Runtime, if_: bool) -> None:
    """Two different sections of a parameter are an error; with all of it named the body receives all of it."""

    def body(x: Any) -> int:
        x += 1
        return int(x.size)

    x = np.zeros(6)
    two = omp.target(body, map=[to("x[0:2]"), tofrom("x[4:2]")], if_=if_)
    with pytest.raises(omp.ClauseError, match="different sections"):
        two(x)
    assert (x == 0).all()
    assert omp.target(body, map=[tofrom("x"), tofrom("x[4:2]")], if_=if_)(x) == 6
    assert omp.target(body, map=[tofrom("x[4:2]"), tofrom("x")], if_=if_)(x) == 6
    assert (x == 2).all()
    assert omp.target(body, map=[to("x[0:2]")], if_=if_)(x) == 2


class Field:
    """An object that holds an array."""

    def __init__(self) -> None:
        self.x = np.zeros(4)
        self.n = 2


def test_members_and_elements_are_ordered(none: omp.Runtime) -> None:
    """In depend, ``"o.x[0:o.n]"`` is a section of an object's member and ``"tiles[i]"`` an element of a list."""
    field, tiles = Field(), [np.zeros(4) for _ in range(3)]

    @omp.task(depend=[inout("o.x[0:o.n]", "tiles[i]")])
    def first(o: Any, tiles: Any, i: int) -> None:
        pass

    @omp.task(depend=[inout("x")])
    def second(x: Any) -> None:
        pass

    with omp.record(execute=False) as graph:
        first(field, tiles, 1)
        for x in (field.x[:1], field.x[2:], tiles[0], tiles[1]):
            second(x)
    assert {(edge.source.index, edge.target.index) for edge in graph.edges} == {(0, 1), (0, 4)}


def test_members_and_elements_are_mapped_for_the_argument_that_they_are(sim: omp.Runtime) -> None:
    """In map, such an item is of use where the body is passed the array, or the object has a mapper; else an error."""
    field, tiles = Field(), [np.zeros(4) for _ in range(3)]

    @omp.target(map=[to("o.x", "tiles[i]")])
    def region(o: Any, tiles: Any, i: int, *arrays: Any) -> None:
        for x in arrays:
            x[...] += 1

    region(field, tiles, 1, field.x, tiles[1])
    assert not field.x.any()  # mapped to, not tofrom: the clause was found
    assert not tiles[1].any()
    with pytest.raises(omp.ClauseError, match=r"'o\.x' is held by 'o', a Field, .* pass o\.x .*, or declare_mapper"):
        region(field, tiles, 1, tiles[1])
    with pytest.raises(omp.ClauseError, match=r"'tiles\[i\]' is held by 'tiles', a list, .* pass tiles\[i\]"):
        region(field, tiles, 1, field.x)
    with pytest.raises(omp.ClauseError, match=r"private: 'o\.x' is no argument"):
        omp.target(private=["o.x"])(lambda o: None)(field)


def test_a_mapper_reaches_members(sim: omp.Runtime) -> None:
    """A member of an object whose class has a mapper is the device array of the object that the body receives."""

    class Mapped(Field):
        pass

    omp.declare_mapper(Mapped, lambda o: [to(o.x)])
    field = Mapped()

    @omp.target(map=[tofrom("o.x")])
    def region(o: Any) -> None:
        o.x += 1

    region(field)
    assert (field.x == 1).all()


def test_a_member_that_is_reduced_is_an_argument_too(none: omp.Runtime) -> None:
    """A task that reduces ``"o.x"`` receives the private array where it is passed the member, not for the object."""
    field = Field()

    @omp.task(in_reduction={"+": ["o.x"]})
    def add(o: Any, *arrays: Any) -> None:
        assert o is field
        for x in arrays:
            x[...] += 1

    with omp.taskgroup(task_reduction={"+": [field.x]}):
        add(field, field.x)
        add(field, field.x)
        with pytest.raises(omp.ClauseError, match=r"'o\.x', which is none of the arguments"):
            add(field)
    assert (field.x == 2).all()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("o.y", r"no member 'y'"),
        ("o[0]", "an index is for an array, a list or a tuple"),
        ("o.n", "int 2, a value without storage"),
        ("tiles[7]", "index 7 is outside of the list, which goes from 0 to 0"),
        ("tiles[0:1]", "a section of a list has no storage"),
        ("f(o).x", r"does not begin with a name, but with 'f\(o\)'"),
        ("hidden", "no parameter or visible name 'hidden'; .* that the body mentions: mention it there"),
        ("tiles[hidden]", "no parameter or visible name 'hidden'"),
    ],
)
def test_what_a_string_cannot_reach_says_what_to_do(none: omp.Runtime, text: str, words: str) -> None:
    """A string that reaches nothing says what it met and what is allowed, also for a name that the body leaves out."""
    hidden = 0

    def body(o: Any, tiles: Any) -> None:
        pass

    with pytest.raises(omp.ClauseError, match=words):
        omp.task(depend=[inout(text)])(body)(Field(), [np.zeros(3)])
    assert hidden == 0


def test_an_element_that_has_a_mapper(sim: omp.Runtime) -> None:
    """``"fields[i]"`` may be an object whose class has a mapper, where the body is passed it too."""

    class Mapped(Field):
        pass

    omp.declare_mapper(Mapped, lambda o: [tofrom(o.x)])
    fields = [Mapped(), Mapped()]

    @omp.target(map=[tofrom("fields[i]")])
    def region(fields: Any, i: int, *passed: Any) -> None:
        for field in passed:
            field.x += 1

    region(fields, 1, fields[1])
    assert (fields[1].x == 1).all()
    with pytest.raises(omp.ClauseError, match=r"pass .* as an argument of its own"):
        region(fields, 1)
