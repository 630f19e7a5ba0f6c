"""`taskloop` with `in_reduction`: its tasks take part in the reduction of a taskgroup around it."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp


def add_all(part, total):
    total += sum(part)


@pytest.mark.parametrize("clauses", [{}, {"nogroup": True}, {"if_": False}, {"final": True}, {"num_tasks": 1}])
@pytest.mark.parametrize("form", ["string", "array", "appended", "section", "keyword"])
def test_in_reduction(runtime, form, clauses):
    """The tasks take part in the reduction of a taskgroup around the loop, which combines at its own end."""
    total = np.zeros(3)
    item = total[1:2]

    @omp.task(in_reduction={"+": ["total"]})
    def other(total):
        total += 1000

    with omp.taskgroup(task_reduction={"+": [item]}):
        other(item)
        if form == "string":
            omp.taskloop(in_reduction={"+": ["total"]}, **clauses)(add_all)(range(100), item)
        elif form == "array":
            omp.taskloop(in_reduction={"+": [item]}, **clauses)(add_all)(range(100), total[1:2])
        elif form == "appended":
            omp.taskloop(range(100), add_all, in_reduction={"+": [item]}, **clauses)
        elif form == "section":
            omp.taskloop(in_reduction={"+": ["total[1:1]"]}, **clauses)(add_all)(range(100), total)
        else:
            omp.taskloop(in_reduction={"+": ["total"]}, **clauses)(add_all)(range(100), total=item)
        assert (total == 0).all()
    assert (total == [0, 1000 + 4950, 0]).all()


def test_in_reduction_of_a_body_that_takes_its_part_only(runtime):
    """The body works on the item itself, one task at a time, and others of the group on private arrays."""
    total = np.zeros(())

    @omp.task(in_reduction={"+": ["total"]})
    def other(total):
        total += 1000

    with omp.taskgroup(task_reduction={"+": [total]}):
        other(total)

        @omp.taskloop(range(100), in_reduction={"+": [total]}, num_tasks=10)
        def body(part):
            value = float(total)
            total[...] = value + sum(part)

    assert total == 1000 + 4950


def test_in_reduction_in_a_task_that_takes_part(runtime):
    """In a body that takes part, the loop's item is the body's private array, which means the same reduction."""
    total = np.zeros(())
    loop = omp.taskloop(in_reduction={"+": ["total"]}, num_tasks=5)(add_all)

    @omp.task(in_reduction={"+": ["total"]})
    def outer(total):
        loop(range(10), total)
        omp.taskloop(range(10), add_all, in_reduction={"+": [total]})

        @omp.taskloop(range(10), in_reduction={"+": [total]})
        def body(part):
            total[...] += sum(part)

    with omp.taskgroup(task_reduction={"+": [total]}):
        for _ in range(3):
            outer(total)
    assert total == 9 * 45


def test_in_reduction_beside_reduction(runtime):
    """Items of the loop's own reduction come first, and are complete when it ends."""
    total, low = np.zeros(()), np.full((), 99)

    def body(part, low, total):
        low[...] = min(int(low), part[0])
        total += sum(part)

    with omp.taskgroup(task_reduction={"+": [total]}):
        omp.taskloop(range(5, 100), body, in_reduction={"+": [total]}, reduction={"min": [low]})
        assert (low, total) == (5, 0)
    assert total == sum(range(5, 100))


def test_in_reduction_of_a_loop_in_a_loop(runtime):
    """The taskgroup of a taskloop with reduction is one that a loop in its body can take part in."""
    total = np.zeros(())

    def body(part, total):
        omp.taskloop(part, add_all, in_reduction={"+": [total]})

    omp.taskloop(range(100), body, reduction={"+": [total]}, num_tasks=7)
    assert total == 4950


def test_in_reduction_in_graphs(runtime):
    """Recorded and replayed, the tasks add to the item."""
    total = np.zeros(())
    loop = omp.taskloop(in_reduction={"+": ["total"]}, num_tasks=5)(add_all)

    @omp.taskgraph
    def graph(total):
        with omp.taskgroup(task_reduction={"+": [total]}):
            loop(range(10), total)

    for _ in range(3):
        graph(total)
    assert total == 3 * 45


def test_in_reduction_errors(runtime):
    """No group that reduces the item by that operator, also for no elements, and an item named twice, are errors."""
    total = np.zeros(())
    loop = omp.taskloop(in_reduction={"+": ["total"]})(add_all)
    for call in (
        lambda: loop(range(10), total),
        lambda: loop(range(0), total),
        lambda: omp.taskloop(range(10), len, in_reduction={"+": [total]}),
    ):
        with pytest.raises(omp.ClauseError, match="no taskgroup around it reduces"):
            call()
    with omp.taskgroup(task_reduction={"+": [total]}):
        with pytest.raises(omp.ClauseError, match=r"reduces it with '\+'"):
            omp.taskloop(range(10), len, in_reduction={"*": [total]})
        with pytest.raises(omp.ClauseError, match="in reduction and in in_reduction"):
            omp.taskloop(range(10), len, in_reduction={"+": [total]}, reduction={"+": [total]})
        with pytest.raises(omp.ClauseError, match=r"in_reduction: list .* is not a dict"):
            omp.taskloop(range(10), len, in_reduction=[total])
    assert total == 0
