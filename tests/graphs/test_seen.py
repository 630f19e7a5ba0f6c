"""Traces and profiles of recorded graphs: of all tasks that have run, also after the block."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload.errors import UnsupportedError
from offload.tasks.engine import Engine
from tests.patience import until
from tests.reports.validator import check, read


def axpy(x, y):
    x += y


def test_a_trace_has_the_tasks_of_the_graph(tmp_path):
    """The trace has the recorded tasks with their copies and arrows, and no other task."""
    x = np.zeros(100)
    with omp.Runtime("sim:1"):
        omp.task(int, name="before")().result()
        with omp.record() as graph:
            first = omp.task(axpy, depend=[omp.inout(x)], name="host")(x, 1)
            second = omp.target(axpy, depend=[omp.inout(x)], nowait=True, name="device")(x, 1)
        omp.taskwait()
        omp.task(int, name="after")().result()
    graph.trace(tmp_path / "t.json")
    events = read(tmp_path / "t.json")
    assert set(check(events)) == {first.key, second.key}
    assert len([event for event in events if event.get("cat") == "copy"]) == 2
    assert len([event for event in events if event["ph"] == "s"]) == 1


def test_nothing_is_observed_once_the_tasks_have_ended():
    """The runtime is observed while tasks of the graph run, and no longer."""
    with omp.Runtime("none", num_threads=1) as runtime:
        event = omp.Event()
        with omp.record():
            omp.task(int, detach=event)()
        assert runtime.engine.__class__ is not Engine
        event.fulfill()
        omp.taskwait()
        until(lambda: runtime.engine.__class__ is Engine)  # who has completed the task calls back after the wait
        with omp.record():
            omp.task(int)().result()
        assert runtime.engine.__class__ is Engine
        with omp.record(execute=False):
            omp.task(int)()
            assert runtime.engine.__class__ is Engine


def test_a_profile():
    """The profile has the tasks by name, and its parts sum to the wall time."""
    x = np.zeros(100)
    with omp.Runtime("sim:1"):
        with omp.record() as graph:
            for _ in range(3):
                omp.target(axpy, nowait=True, depend=[omp.inout(x)])(x, 1)
        omp.taskwait()
    found = graph.profile()
    assert [(row.name, row.count) for row in found.rows] == [("axpy", 3)]
    assert [(row.direction, row.count, row.nbytes) for row in found.copies] == [("from", 3, 2400), ("to", 3, 2400)]
    assert sum(found.parts.values()) == pytest.approx(found.wall_s, rel=1e-3)
    assert [step.kind for step in found.path if step.kind != "wait"][:3] == ["copy", "device", "copy"]


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_a_computed_graph(tmp_path, scheduler):
    """A graph that was only recorded has a trace of its last computation."""
    with omp.Runtime("sim:1"):
        add = omp.task(lambda x, y: x + y, name="add")
        with omp.record(execute=False) as graph:
            add(1, add(2, 3))
        graph.trace(tmp_path / "t.json")
        assert check(read(tmp_path / "t.json")) == {}
        for _ in range(2):
            graph.compute(scheduler)
            graph.trace(tmp_path / "t.json")
            assert len(check(read(tmp_path / "t.json"))) == 2
            assert graph.profile().rows[0].count == 2


def test_failures(tmp_path):
    """Failures that have been seen are in the trace all the same."""
    with omp.Runtime("none"):
        with omp.record() as graph:
            failed = omp.task(lambda: 1 / 0, name="bad")()
            behind = omp.task(lambda _: 0, name="behind")(failed)
            assert failed.exception()
            assert behind.exception()
        graph.trace(tmp_path / "t.json.gz")
    states = {event["name"]: event["args"]["state"] for event in check(read(tmp_path / "t.json.gz")).values()}
    assert states == {"bad": "failed", "behind": "not run"}


def test_an_empty_graph(tmp_path):
    """A graph without tasks has a trace and a profile."""
    with omp.Runtime("none"), omp.record() as graph:
        pass
    graph.trace(tmp_path / "t.json")
    assert check(read(tmp_path / "t.json")) == {}
    assert graph.profile().wall_s == 0


@pytest.mark.parametrize("name", ["t.txt", "t", "t.svg"])
def test_a_suffix_that_no_writer_has(tmp_path, name):
    """The message names the allowed suffixes, and nothing is written."""
    with omp.Runtime("none"), omp.record() as graph:
        pass
    with pytest.raises(UnsupportedError, match=r"\.json\.gz"):
        graph.trace(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
