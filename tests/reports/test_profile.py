"""The profile and the critical path: pure, against brute force, and that the parts cover the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from random import Random

import pytest
from rich.console import Console

import offload as omp
from offload.events.log import TaskLog
from offload.reports.paths import PARTS, Activity, critical_path, parts_of
from offload.reports.profile import profile
from offload.reports.records import RunRecord, SpanRecord, TaskRecord, records
from offload.runtime.stamps import settle
from tests.profiles import few
from tests.strict import STRICT
from tests.test_examples import QUICK, SMALL

ROOT = Path(__file__).parents[2]


def generated(rng):
    """Return activities that some schedule could have had; no two of them end at the same time."""
    free = {}
    found = []
    for _ in range(rng.randint(1, 9)):
        before = tuple(sorted(rng.sample(range(len(found)), min(len(found), rng.randrange(3)))))
        resources = tuple(rng.sample("ABC", rng.randrange(3)))
        made_s = rng.uniform(0, 10)
        start_s = max(
            [made_s, *(found[one].end_s for one in before), *(free.get(resource, 0.0) for resource in resources)]
        ) + rng.choice([0, 0, rng.uniform(0, 2)])
        end_s = start_s + rng.uniform(0.1, 4)
        for resource in resources:
            free[resource] = end_s
        found.append(Activity(len(found), rng.choice(PARTS[:4]), made_s, start_s, end_s, resources, before))
    return found


def by_brute_force(activities):
    """Return the chain to the last end that has the latest ends, of all chains there are."""

    def held(at):
        """Return what may have held an activity: its dependences, and what was on its resources before."""
        one = activities[at]
        found = set(one.before)
        for resource in one.resources:
            earlier = [
                other for other, two in enumerate(activities)
                if other != at and resource in two.resources and (two.end_s, two.start_s) <= (one.start_s, one.start_s)
            ]  # fmt: skip
            found.update(earlier)
        return found

    def chains(at, seen):
        following = [other for other in held(at) if other not in seen]
        if not following:
            yield [at]
        for other in following:
            for chain in chains(other, seen | {other}):
                yield [at, *chain]

    last = max(range(len(activities)), key=lambda at: (activities[at].end_s, -at))
    return max(chains(last, {last}), key=lambda chain: [activities[at].end_s for at in chain[1:]])


def test_the_path_is_that_of_brute_force():
    """The path's ends are those of the chain that, of all chains, was held up last at each step: 500 graphs."""
    rng = Random(7)
    for _ in range(500):
        activities = generated(rng)
        end_s = max(one.end_s for one in activities) + rng.randrange(2)
        stretches = critical_path(activities, 0.0, end_s)
        path = [stretch.activity for stretch in stretches if stretch.activity is not None][::-1]
        expected = by_brute_force(activities)
        assert [activities[at].end_s for at in path] == [activities[at].end_s for at in expected]
        assert sum(parts_of(stretches).values()) == pytest.approx(end_s)
        assert [stretch.start_s for stretch in stretches[1:]] == [stretch.end_s for stretch in stretches[:-1]]


def task(number, name, start_s, end_s, thread=1, made_s=None, **kwargs):
    return TaskRecord(
        number,
        name,
        "task",
        "here:1",
        "complete",
        start_s if made_s is None else made_s,
        start_s,
        end_s,
        thread,
        **kwargs,
    )


def test_a_chain():
    """Two tasks in a row on one thread: the first was late, the second ready when it ended."""
    run = RunRecord(
        [task(1, "a", 1.0, 3.0, made_s=0.5), task(2, "b", 3.5, 6.0, made_s=0.6)], [(1, 2)], begin_s=0.0, end_s=7.0
    )
    found = profile(run)
    assert found.parts == {"body": 4.5, "device": 0.0, "copy": 0.0, "wait": 1.0, "idle": 1.5}
    assert [(step.kind, step.key, step.seconds) for step in found.path] == [
        ("idle", "a-1", 0.5), ("wait", "a-1", 0.5), ("body", "a-1", 2.0), ("wait", "b-2", 0.5), ("body", "b-2", 2.5),
        ("idle", "", 1.0),
    ]  # fmt: skip
    assert {row.name: row.waited_s for row in found.rows} == {"a": 0.5, "b": 0.5}


def test_a_resource_is_an_edge():
    """A task that waited for its thread has the task before it there on its path, without a dependence."""
    run = RunRecord([task(1, "a", 0.0, 4.0), task(2, "b", 4.0, 5.0, made_s=0.0)], [], begin_s=0.0, end_s=5.0)
    assert [step.key for step in profile(run).path] == ["a-1", "b-2"]
    other = RunRecord(
        [task(1, "a", 0.0, 4.0, thread=2), task(2, "b", 4.0, 5.0, made_s=0.0)], [], begin_s=0.0, end_s=5.0
    )
    assert profile(other).parts["wait"] == 4.0


def test_device_work_and_copies():
    """A task on a device is its copies and its body, in the order of its stream."""
    tasks = [task(1, "region", 1.0, 9.0, kind="device", device=0, lane=0)]
    spans = [
        SpanRecord("copy", 1, 0, 0, 1.0, 3.0, "to", 4000, "x"),
        SpanRecord("body", 1, 0, 0, 3.0, 6.0),
        SpanRecord("copy", 1, 0, 0, 6.5, 8.5, "from", 2000, "x"),
    ]
    found = profile(RunRecord(tasks, [], spans, begin_s=0.0, end_s=9.0))
    assert found.parts == {"body": 0.0, "device": 3.0, "copy": 4.0, "wait": 0.5, "idle": 1.5}
    assert [(row.direction, row.nbytes, row.rate) for row in found.copies] == [
        ("from", 2000, 1000.0),
        ("to", 4000, 2000.0),
    ]
    assert found.rows[0].total_s == 7.5


def test_rows():
    """Each name has a row with count, total, mean, longest time, share and failures, the longest total first."""
    tasks = [task(1, "a", 0.0, 1.0), task(2, "b", 1.0, 4.0), task(3, "a", 4.0, 5.0)._replace(state="failed")]
    rows = profile(RunRecord(tasks, [], begin_s=0.0, end_s=10.0)).rows
    assert [(row.name, row.count, row.total_s, row.mean_s, row.longest_s, row.share, row.failed) for row in rows] == [
        ("b", 1, 3.0, 3.0, 3.0, 0.3, 0), ("a", 2, 2.0, 1.0, 1.0, 0.2, 1),
    ]  # fmt: skip


def test_an_empty_run():
    """A run without a task is idle."""
    found = profile(RunRecord([], [], begin_s=1.0, end_s=3.0))
    assert found.parts["idle"] == found.wall_s == 2.0
    assert found.rows == found.copies == ()


def shown(found, width=100):
    console = Console(file=StringIO(), width=width)
    console.print(found)
    return console.file.getvalue()


@pytest.mark.parametrize("name", ["[red]", "</script>", "new\nline", "x" * 10_000, 'quo"te', "ü"])
@pytest.mark.parametrize("width", [20, 100])
def test_names_are_text(name, width):
    """A name is shown as it is, on one line and not too long, and no markup of Rich or HTML."""
    found = profile(RunRecord([task(1, name, 0.0, 1.0)], [], begin_s=0.0, end_s=1.0))
    text = shown(found, width)
    assert "MarkupError" not in text
    if width == 100 and len(name) < 20:
        assert " ".join(name.split()) in text
    bundle = found._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    assert "<script" not in bundle["text/html"]
    assert "</script>" not in bundle["text/html"]
    assert json.loads(found.to_json())["rows"][0]["name"] == name


def test_many_names_are_totalled():
    """More names than a screen has lines are counted together."""
    tasks = [task(at + 1, f"name {at}", float(at), at + 1.0) for at in range(100)]
    text = shown(profile(RunRecord(tasks, [], begin_s=0.0, end_s=100.0)))
    assert "70 more names" in text
    assert len(text.splitlines()) < 70


def test_100_000_tasks():
    """A profile of many tasks is made in seconds."""
    tasks = [task(at + 1, f"name {at % 5}", at * 1.0, at + 0.5, thread=at % 3) for at in range(100_000)]
    found = profile(RunRecord(tasks, [(at, at + 1) for at in range(1, 100_000)], begin_s=0.0, end_s=100_000.0))
    assert sum(found.parts.values()) == pytest.approx(100_000, rel=1e-6)
    assert sum(row.count for row in found.rows) == 100_000


def test_a_real_run():
    """The parts of a program's profile sum to its wall time, and its rows have all tasks."""
    log = TaskLog()
    with omp.tool(log), omp.Runtime("sim:1", num_threads=2):
        for _ in range(20):
            omp.task(lambda: sum(range(1000)), name="work")()
        omp.taskwait()
    settle(log)
    found = profile(records(log))
    assert sum(found.parts.values()) == pytest.approx(found.wall_s, rel=1e-3)
    assert [(row.name, row.count) for row in found.rows] == [("work", 20)]


@pytest.mark.parametrize("path", few(2, QUICK), ids=lambda path: path.stem)
def test_every_example_adds_up(path, tmp_path):
    """The parts of each example's profile sum to its wall time within 0.1 %."""
    code = (
        "import os, runpy, sys\n"
        "from offload.reports.profile import profile\n"
        "from offload.reports.records import records\n"
        "from offload.runtime import reporting\n"
        "def write(log):\n"
        "    with open(os.environ['WRITE_TO'], 'w') as file:\n"
        "        file.write(profile(records(log)).to_json())\n"
        "reporting.add('p', write)\n"
        "sys.argv = sys.argv[1:]\n"
        "sys.path.insert(0, os.path.dirname(sys.argv[0]))\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    env = {**os.environ, "OFFLOAD_DEVICES": "sim:2", "PYTHONPATH": str(ROOT), "WRITE_TO": str(tmp_path / "p.json")}
    done = subprocess.run(
        [sys.executable, *STRICT, "-c", code, path, *SMALL.get(path.stem, [])],
        env=env, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "p.json").read_text())
    assert sum(found["parts"].values()) == pytest.approx(found["wall_s"], rel=1e-3)
    assert found["rows"]
