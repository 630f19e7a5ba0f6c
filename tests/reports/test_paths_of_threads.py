"""The critical path along threads: pauses, bodies that generate tasks, and undeferred device tasks."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import offload as omp
from offload.events.log import TaskLog
from offload.reports.paths import PARTS, Activity, Pause, critical_path, parts_of
from offload.reports.profile import profile
from offload.reports.records import RunRecord, TaskRecord, records
from offload.runtime.stamps import settle


def task(number, name, made_s, start_s, end_s, thread, maker, **kwargs):
    return TaskRecord(
        number, name, "task", "here:1", "complete", made_s, start_s, end_s, thread, maker=maker, **kwargs
    )  # fmt: skip


def steps(found):
    return [(step.kind, step.key, step.seconds) for step in found.path if step.seconds]


def test_a_wait_leads_to_the_task_that_ended_last_in_it():
    """A task that is generated after a wait has the longest of the waited tasks before it, on whichever threads."""
    tasks = [
        task(1, "short", 0.0, 0.0, 1.0, 2, 1),
        task(2, "long", 0.0, 0.0, 10.0, 3, 1),
        task(3, "next", 11.0, 12.0, 13.0, 2, 1),
    ]
    found = profile(RunRecord(tasks, [], waits=[("taskwait", 1, 0.0, 10.5)], begin_s=0.0, end_s=13.0))
    assert steps(found) == [
        ("body", "long-2", 10.0), ("wait", "next-3", 0.5), ("idle", "next-3", 0.5), ("wait", "next-3", 1.0),
        ("body", "next-3", 1.0),
    ]  # fmt: skip


def test_a_body_that_generates_is_no_idle_time():
    """The time until a body generates the last task is the body's."""
    tasks = [task(1, "parent", 0.0, 1.0, 9.0, 2, 1), task(2, "child", 6.0, 7.0, 12.0, 3, 2)]
    found = profile(RunRecord(tasks, [], begin_s=0.0, end_s=12.0))
    assert steps(found) == [
        ("wait", "parent-1", 1.0), ("body", "parent-1", 5.0), ("wait", "child-2", 1.0), ("body", "child-2", 5.0),
    ]  # fmt: skip


def test_a_body_that_waits_for_its_children_leads_to_them():
    """A pause inside of a body is the time of the tasks that it waits for, on this thread or on another one."""
    tasks = [
        task(1, "parent", 0.0, 0.0, 10.0, 1, 1),
        task(2, "here", 2.0, 2.0, 4.0, 1, 1),
        task(3, "there", 2.0, 3.0, 8.0, 2, 1),
    ]
    waits = [("taskwait", 1, 2.0, 9.0), ("taskwait", 1, -1.0, 10.5)]
    found = profile(RunRecord(tasks, [], waits=waits, begin_s=0.0, end_s=10.0))
    assert steps(found) == [
        ("body", "parent-1", 2.0), ("wait", "there-3", 1.0), ("body", "there-3", 5.0), ("wait", "parent-1", 1.0),
        ("body", "parent-1", 1.0),
    ]  # fmt: skip


def test_a_pause_without_a_task():
    """A thread that waits for something else than tasks waits."""
    tasks = [task(1, "a", 5.0, 5.0, 6.0, 1, 1)]
    found = profile(RunRecord(tasks, [], waits=[("event", 1, 1.0, 4.0)], begin_s=0.0, end_s=6.0))
    assert found.parts == {"body": 1.0, "device": 0.0, "copy": 0.0, "wait": 3.0, "idle": 2.0}


def test_an_undeferred_device_task_is_waited_for():
    """The thread that generated an undeferred device task goes on when that has ended."""
    tasks = [
        task(1, "region", 1.0, 2.0, 6.0, 1, 1, kind="device", device=0, lane=0, is_deferred=False),
        task(2, "host", 7.0, 7.0, 8.0, 1, 1),
    ]
    found = profile(RunRecord(tasks, [], begin_s=0.0, end_s=8.0))
    assert found.parts == {"body": 1.0, "device": 4.0, "copy": 0.0, "wait": 1.0, "idle": 2.0}


def test_a_real_run_of_regions():
    """Regions that the program calls one after another are all on the path, with the host task after them."""
    log = TaskLog()
    x = np.zeros(100)
    with omp.tool(log), omp.Runtime("sim:1", num_threads=2):
        for _ in range(3):
            omp.target(lambda x: x + 1, name="region")(x)
        omp.task(int, name="last", if_=False)()
    settle(log)
    found = profile(records(log))
    names = [step.name for step in found.path if step.kind in {"body", "device"}]
    assert [name for at, name in enumerate(names) if names[at - 1 : at] != [name]] == ["region", "last"]
    keys = {step.key for step in found.path if step.kind == "device"}
    assert len(keys) == 3
    assert sum(found.parts.values()) == pytest.approx(found.wall_s, rel=1e-6)


def test_a_graph_has_the_waits_of_its_block():
    """The path of a recorded graph goes through waits in its block, too."""
    x = np.zeros(100)
    with omp.Runtime("sim:1", num_threads=2):
        with omp.record() as graph:
            first = omp.target(lambda x: x + 1, name="first", nowait=True)(x)
            omp.taskwait()
            second = omp.task(int, name="second")()
            omp.taskwait()
        assert {step.key for step in graph.profile().path if step.kind in {"body", "device"}} == {first.key, second.key}


def generated(rng):
    """Return activities and pauses of a few threads at random: they may even overlap in impossible ways."""
    activities, pauses = [], []
    for at in range(rng.randint(1, 12)):
        made_s = rng.choice([rng.randrange(10), rng.uniform(0, 10)])
        start_s = made_s + rng.choice([0, 0, rng.randrange(3), rng.uniform(0, 2)])
        end_s = start_s + rng.choice([0, rng.randrange(4), rng.uniform(0, 4)])
        thread = rng.choice([None, 1, 2])
        before = tuple(rng.sample(range(at), min(at, rng.randrange(3))))
        resources = () if thread is None else (thread,)
        maker = rng.choice([None, 1, 2, 3])
        activities.append(Activity(at, "body", made_s, start_s, end_s, resources, before, thread, maker))
        if rng.random() < 0.5:
            start_s = rng.uniform(0, 10)
            pauses.append(Pause(rng.randint(1, 3), start_s, start_s + rng.uniform(0, 5), rng.choice([None, at])))
    return activities, pauses


def test_any_path_covers_the_run():
    """Whatever the records say, the walk ends, goes back in time only, and covers the run: 3,000 runs."""
    rng = Random(11)
    for _ in range(3_000):
        activities, pauses = generated(rng)
        stretches = critical_path(activities, 0.5, 20.0, pauses)
        assert stretches[0].start_s == 0.5
        assert stretches[-1].end_s == 20.0
        assert [stretch.start_s for stretch in stretches[1:]] == [stretch.end_s for stretch in stretches[:-1]]
        assert sum(parts_of(stretches).values()) == pytest.approx(19.5)
        assert all(stretch.kind in PARTS for stretch in stretches)


def test_a_task_whose_end_is_noted_twice():
    """A task whose end was cut short (by a RecursionError), and was carried out again, is one task in the records."""
    log = TaskLog()
    with omp.tool(log), omp.Runtime("none"):
        done = omp.task(int, name="done")()
        omp.taskwait()
        log.note_end(done, None, None)
    assert [one.key for one in records(log).tasks] == [done.key]
