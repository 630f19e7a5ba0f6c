"""Nests under directive strings on the devices of a cluster: their texts and their results travel."""

from __future__ import annotations

import cloudpickle
import numpy as np

from offload.pragma import directives, omp

FACTOR = 3


def helper(value):
    return value * FACTOR


@directives
def summed(x, n):
    s = 1.0
    with omp("target teams loop reduction(+: s) lastprivate(last) map(tofrom: x)"):
        for i in range(n):
            last = i
            s += helper(x[i])
            with omp("atomic"):
                x[n] += 1
    count = 0
    with omp("target teams loop reduction(+: count) nowait depend(inout: x)"):
        for _ in range(n):
            count += 1
    found = []
    with omp("task depend(in: x) shared(count)"):
        found.append(count)
    omp("taskwait")
    return s, last, found


@directives
def last_of(x):
    last = "none"
    with omp("target parallel for lastprivate(last)"):
        for i in range(x.size):
            last = x[i]
    return last


def test_nests_on_workers(on_workers):
    """A worker gets the text of a nest, and the client's variables get its results before dependents run."""
    x = np.array([1.0, 2.0, 0.0])
    assert summed(x, 2) == (10.0, 1, [2])
    assert x.tolist() == [1, 2, 2]
    assert (last_of(x), last_of(x[:0])) == (2, "none")


@directives
def chained(x):
    s = 1
    for _ in range(3):
        with omp("target teams loop reduction(+: s) nowait depend(inout: s)"):
            for i in range(x.size):
                s += x[i]
    omp("taskwait")
    return s


def test_chained_reductions_on_workers(on_workers):
    """A worker gets the value that the variable has when the nest begins."""
    assert chained(np.ones(4)) == 13


def test_a_function_with_a_nest_is_sent(client):
    """A function with a nest travels by value, as cloudpickle sends it, with the text of the nest."""
    made = client.submit(cloudpickle.loads(cloudpickle.dumps(_by_value(last_of))), np.arange(4.0)).result()
    assert made == 3


def _by_value(function):
    """Return a function that cloudpickle sends by value."""
    function.__module__ = "__main__"
    return function
