"""What a wait waits for: when it is reached, who calls back, and which tasks a thread asks for."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from offload.tasks.engine import Engine
from offload.tasks.goals import _FEW, Emptied, Goal, TaskEnd, Until
from offload.tasks.region import Inherited, Region, TaskSet
from offload.tasks.scope import Scope
from offload.tasks.site import Site
from offload.tasks.task import Task

STATES = st.lists(st.sampled_from(["waiting", "launched", "finished"]), max_size=_FEW + 3)


class Fake(Task):
    """A task in a state, whose work ends at a place of a lane."""

    point = None

    def __init__(self, state, place):
        super().__init__(SITE, lambda: None, (), None, Region(None, Inherited(0)))
        self.launched = state != "waiting"
        self.finished = state == "finished"
        self.point = SimpleNamespace(sequence=place)


SITE = Site("task", "body", "here:1", None)


def made(states):
    """Return tasks in these states."""
    return [Fake(state, place) for place, state in enumerate(states)]


def members_of(tasks):
    """Return a task set with those that are not complete."""
    members = TaskSet()
    members.live.update(task for task in tasks if not task.finished)
    return members


@given(STATES)
def test_a_goal_is_reached_when_all_have_ended(states):
    """A goal of tasks is reached, and nothing of it left, when each has ended; one of a set when that is empty."""
    tasks = made(states)
    left = [task for task in tasks if not task.finished]
    for goal in (Goal("a test", tasks), Emptied("a test", members_of(tasks)), *map(TaskEnd, tasks[:1])):
        mine = left if not isinstance(goal, TaskEnd) else [task for task in tasks[:1] if not task.finished]
        assert goal.done() is not goal.is_left()
        assert goal.done() is (not mine)
        assert all(goal.concerns(task, {task}) for task in mine)
        assert not goal.concerns(Fake("waiting", 0), ())


@given(STATES)
def test_few_launched_tasks_are_asked_for_from_the_last_on(states):
    """What is left is asked for if all of it is launched and it is not much, the last launched first; else nothing."""
    tasks = made(states)
    left = [task for task in tasks if not task.finished]
    is_asked = all(task.launched for task in left) and len(left) <= _FEW
    expected = left[::-1] if is_asked else []
    assert list(Emptied("a test", members_of(tasks)).launched()) == expected
    if len(tasks) <= _FEW:
        assert list(Goal("a test", tasks).launched()) == expected
    assert not Until("a test", lambda: False, tasks).launched()


@given(STATES, st.integers(0, _FEW))
def test_whoever_waits_is_called_and_then_is_not(states, at):
    """Each end calls back, also one that has been; when the wait is over nobody is called any more."""
    tasks = made(states)
    members = members_of(tasks)
    calls, lock = [], threading.Lock()

    def wake(task=None):
        calls.append(task)

    for goal in (Goal("a test", tasks), Emptied("a test", members)):
        goal.call(wake, lock)
        n_called = len(calls)
        assert n_called >= len([task for task in goal.tasks if task.finished])
        goal.leave(wake, lock)
        assert members.waiters == ()
        assert not any(task.callbacks for task in tasks)
    if at < len(tasks) and not tasks[at].finished:
        engine = Engine(0, None, 30.0, lambda: Scope(None, None))
        goal = TaskEnd(tasks[at])
        goal.call(wake, lock)
        engine.finish_elsewhere(tasks[at])
        assert calls[-1] is tasks[at]
        goal.leave(wake, lock)
        assert goal.done()
