"""The table of task states, and that the suite holds every task against it."""

import pytest

import offload as omp
from offload.tasks.states import ENDS, MAY_FOLLOW, TaskState
from offload.tasks.task import Task


def test_the_table_has_every_state():
    """Each state has a row, and each but the first can be reached from a new task."""
    assert set(MAY_FOLLOW) == {None, *TaskState}
    reached, front = set(), [None]
    while front:
        new = MAY_FOLLOW[front.pop()] - reached
        reached |= new
        front += new
    assert reached == set(TaskState)


@pytest.mark.parametrize("state", TaskState)
def test_ends_are_final(state):
    """Nothing follows the end of a task, nor its being recorded; from anywhere else there is a way to an end."""
    is_final = state in ENDS or state is TaskState.RECORDED
    assert is_final == (not MAY_FOLLOW[state])
    assert is_final or MAY_FOLLOW[state] & ENDS


@pytest.mark.parametrize(
    ("before", "after"),
    [(before, after) for before in TaskState for after in TaskState if after not in MAY_FOLLOW[before]],
)
def test_the_suite_sees_a_change_that_is_none(before, after):
    """A task that goes on as no task may is seen by the check that each test ends with."""
    with omp.Runtime("none", num_threads=0):
        task = omp.task(int)()
        omp.taskwait()
        Task.state_.slot.__set__(task, before)
        task.state_ = after
        wrong, Task.state_.wrong = Task.state_.wrong, []
    assert len(wrong) == 1
    assert f"{before} -> {after}" in wrong[0]
