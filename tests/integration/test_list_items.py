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
        ("f(x)", "does not begin with a name"),
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
