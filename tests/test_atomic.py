"""``omp.atomic`` outside of loops: one step on an element of a host array, for all threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import offload as omp


@pytest.mark.parametrize(
    ("name", "value", "after"),
    [
        ("add", 3, 9),
        ("sub", 3, 3),
        ("min", 3, 3),
        ("min", 8, 6),
        ("max", 8, 8),
        ("max", 3, 6),
        ("and_", 3, 2),
        ("or_", 3, 7),
        ("xor", 3, 5),
        ("exchange", 3, 3),
    ],
)
def test_step_sets_the_element_and_returns_what_it_was(name, value, after):
    """Each operation leaves the combined value, and returns the element before as a scalar of the array's dtype."""
    a = np.array([0, 6], np.int32)
    old = getattr(omp.atomic, name)(a, 1, value)
    assert (old, a[1], a[0]) == (6, after, 0)
    assert type(old) is np.int32


def test_compare_and_swap_sets_only_what_was_expected():
    """`cas` stores where the element equals the expected value, and returns what it was either way."""
    a = np.array([[1, 2], [3, 4]])
    assert omp.atomic.cas(a, (1, 0), 3, 30) == 3
    assert omp.atomic.cas(a, (1, 1), 3, 30) == 4
    assert a.tolist() == [[1, 2], [30, 4]]


def test_steps_of_threads_exclude_each_other():
    """No addition is lost where several threads add to one element."""
    a = np.zeros((), np.int64)
    begins = threading.Barrier(4)

    def work():
        begins.wait()
        for _ in range(2_000):
            omp.atomic.add(a, (), 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert a == 8_000


def test_integers_wrap():
    """A sum that the dtype cannot hold wraps, without a warning."""
    a = np.array([127], np.int8)
    omp.atomic.add(a, 0, np.int8(1))
    assert a[0] == -128


def test_index_outside_is_an_error_and_changes_nothing():
    """An index out of range raises IndexError; negative ones count from the end."""
    a = np.arange(3)
    with pytest.raises(IndexError):
        omp.atomic.add(a, 3, 1)
    omp.atomic.add(a, -1, 1)
    assert a.tolist() == [0, 1, 3]


@pytest.mark.parametrize(("a", "index"), [([1, 2], 0), (np.arange(4).reshape(2, 2), 0), (np.arange(4), slice(2))])
def test_what_is_no_element_is_refused(a, index):
    """A list, and an index of more than one element, are a ClauseError."""
    with pytest.raises(omp.ClauseError):
        omp.atomic.add(a, index, 1)
