"""Bodies over thread arrays: a task for each thread, waited for as a group is."""

from __future__ import annotations

import pytest

import offload as omp
from offload.parray import ArrayType, dim, disp, for_each, threads


def test_results_by_number(runtime):
    """Each number comes once, of a part of a thread array those of its elements; nothing comes of none."""
    P = threads((2, 3))
    assert for_each(P, lambda k, *more: (k, *more), "a", None) == [(k, "a", None) for k in range(6)]
    assert for_each(P[1], lambda k: -k) == [0, -1, -2]
    assert for_each(ArrayType(dim(2, disp(1), P)), lambda k: k) == [0, 1]
    assert for_each(threads(0), lambda k: k) == []
    assert [task.result() for task in for_each(P, hex, nowait=True)] == [hex(k) for k in range(6)]


def test_failures_are_a_group(runtime):
    """All bodies run; the failures are those of the group."""
    seen = []

    def body(k):
        seen.append(k)
        if k % 2:
            raise ValueError(k)

    with pytest.raises(ExceptionGroup) as caught:
        for_each(threads(4), body)
    assert sorted(seen) == [0, 1, 2, 3]
    assert sorted(error.args[0] for error in caught.value.exceptions) == [1, 3]


def test_only_recorded(runtime):
    """Where nothing is executed there are no results, and the graph has the tasks."""
    seen = []
    with omp.record(execute=False) as graph:
        assert for_each(threads(3), seen.append) is None
        assert len(for_each(threads(3), seen.append, nowait=True)) == 3
    assert seen == []
    graph.compute()
    assert sorted(seen) == [0, 0, 1, 1, 2, 2]
