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
