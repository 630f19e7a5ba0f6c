"""Traces: what is in the file, how large it is, and how long it takes to write."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from time import process_time

import numpy as np
import pytest

import offload as omp
from offload.errors import ClauseError
from offload.events.log import TaskLog
from offload.reports.files import check_writable, write_whole
from offload.reports.records import RunRecord, TaskRecord, records
from offload.reports.trace import trace
from offload.runtime.stamps import settle
from tests.reports.validator import check, ns, read
from tests.strict import STRICT

ROOT = Path(__file__).parents[2]


def traced(program, path, devices="sim:1", **kwargs):
    """Run a function in a runtime of its own under a log; return the events of its trace."""
    log = TaskLog()
    with omp.tool(log), omp.Runtime(devices, **kwargs):
        program()
        omp.taskwait()
    settle(log)
    write_whole(path, trace(records(log)))
    return read(path)


def test_an_empty_run_is_a_valid_trace(tmp_path):
    """A program without a task has a file with no slices."""
    events = traced(lambda: None, tmp_path / "t.json")
    assert check(events) == {}


def test_the_arguments_of_a_task(tmp_path):
    """A task's slice has key, directive, place, state and waiting time; a copy's has its bytes."""
    x, tasks = np.zeros(1000), []

    def program():
        tasks.append(omp.target(lambda x: None, name="region", nowait=True)(x))

    events = traced(program, tmp_path / "t.json")
    found = check(events)[tasks[0].key]
    line = sys._getframe().f_lineno - 4
    assert found["args"]["directive"] == "target"
    assert found["args"]["location"] == f"{__file__}:{line}"
    assert found["args"]["state"] == "complete"
    assert found["pid"] == 1
    copies = [event for event in events if event.get("cat") == "copy"]
    assert [event["args"]["nbytes"] for event in copies] == [8000, 8000]
    assert [event["name"] for event in copies] == ["copy to device", "copy to host"]
    for copy in copies:  # within the slice of the task
        assert ns(found["ts"]) <= ns(copy["ts"])
        assert ns(copy["ts"]) + ns(copy["dur"]) <= ns(found["ts"]) + ns(found["dur"])


def test_failures_and_what_follows_them(tmp_path):
    """The state of a task that failed, did not run or was discarded is in its slice."""

    def program():
        failed = omp.task(lambda: 1 / 0, name="bad")()
        behind = omp.task(lambda _: None, name="behind")(failed)
        assert failed.exception()
        assert behind.exception()

    states = {event["name"]: event["args"]["state"] for event in check(traced(program, tmp_path / "t.json")).values()}
    assert states == {"bad": "failed", "behind": "not run"}


def test_a_detached_task_is_a_body_and_a_pair(tmp_path):
    """The body is a slice; the time until the event is fulfilled is a pair with an id, as others overlap it."""

    def program():
        event = omp.Event()
        omp.task(lambda: None, detach=event, name="request")()
        omp.task(lambda: None)().result()
        event.fulfill()

    events = traced(program, tmp_path / "t.json", num_threads=1)
    check(events)
    mine = [event for event in events if event["name"] == "request"]
    assert [event["ph"] for event in mine] == ["X", "b", "e"]
    assert mine[1]["id"] == mine[2]["id"]


def test_flows_join_tracks(tmp_path):
    """A host task that a device task follows is joined with it by an arrow."""
    x = np.zeros(10)

    def program():
        first = omp.task(lambda x: None, depend=[omp.out(x)])
        second = omp.target(lambda x: None, depend=[omp.in_(x)], nowait=True)
        first(x)
        second(x)

    events = traced(program, tmp_path / "t.json")
    check(events)
    (start,) = [event for event in events if event["ph"] == "s"]
    (end,) = [event for event in events if event["ph"] == "f"]
    assert start["pid"] == 0
    assert end["pid"] == 1


def test_the_pipeline_of_the_transform_overlaps(tmp_path):
    """In the trace of the FFT example, copies of one piece overlap the transforms of another."""
    path = tmp_path / "fft.json"
    for _ in range(5):  # on a busy machine, no two threads may have run at the same time
        command = [sys.executable, *STRICT, "-m", "offload", "run", "--trace", path, "--devices", "sim:1"]
        subprocess.run([*command, "examples/fft3d.py"], cwd=ROOT, check=True, capture_output=True, timeout=100)
        events = read(path)
        check(events)
        copies = times_of(event for event in events if event.get("cat") == "copy")
        bodies = times_of(event for event in events if event.get("cat") == "task" and event["name"].startswith("fft"))
        assert len(copies) > 10
        assert len(bodies) > 10
        if any(min(end, last) > max(start, first) for start, end in copies for first, last in bodies):
            return
    pytest.fail("no copy overlaps a transform")


def times_of(events):
    """Return the beginnings and ends of slices."""
    return [(event["ts"], event["ts"] + event["dur"]) for event in events if event["ph"] == "X"]


@pytest.mark.bench
def test_many_tasks_are_written_in_a_second(tmp_path):
    """100,000 tasks with as many dependences take about a second of CPU time (twice that fails), and 40 MB."""
    n = 100_000
    tasks = [
        TaskRecord(at + 1, f"work {at % 7}", "task", f"/home/me/program.py:{at % 9}", "complete", at * 2e-6,
                   at * 2e-6 + 1e-6, at * 2e-6 + 2.5e-6, at % 4)
        for at in range(n)
    ]  # fmt: skip
    run = RunRecord(tasks, [(at, at + 1) for at in range(1, n)])
    start_s = process_time()
    write_whole(tmp_path / "t.json", trace(run))
    assert process_time() - start_s < 2
    assert (tmp_path / "t.json").stat().st_size < 40e6


def test_many_tasks_stay_small(tmp_path):
    """10,000 tasks with as many dependences take at most 4 MB."""
    tasks = [
        TaskRecord(at + 1, f"work {at % 7}", "task", f"/home/me/program.py:{at % 9}", "complete", at * 2e-5,
                   at * 2e-5 + 1e-6, at * 2e-5 + 2e-5, at % 4)
        for at in range(10_000)
    ]  # fmt: skip
    write_whole(tmp_path / "t.json", trace(RunRecord(tasks, [(at, at + 1) for at in range(1, 10_000)])))
    assert (tmp_path / "t.json").stat().st_size < 4e6
    check(read(tmp_path / "t.json"))


# -- files ------------------------------------------------------------------------------------------
def test_a_file_is_whole_or_as_it_was(tmp_path):
    """Writing that fails leaves the former file, and nothing else."""
    path = tmp_path / "t.json"
    path.write_text("before")

    def parts():
        yield "half"
        raise ValueError

    with pytest.raises(ValueError):
        write_whole(path, parts())
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_compressed_file(tmp_path):
    """A name that ends with ``.gz`` is compressed."""
    write_whole(tmp_path / "t.json.gz", ["[1,", "2]"])
    assert json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes())) == [1, 2]


@pytest.mark.parametrize("name", ["missing/t.json", "."])
def test_a_path_that_cannot_be_written(name, tmp_path):
    """A folder, and a file in a folder that does not exist, are refused before anything is written."""
    with pytest.raises(OSError, match="folder"):
        check_writable(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_device_file_is_not_replaced():
    """``/dev/null`` is written to and stays."""
    check_writable(os.devnull)
    write_whole(os.devnull, ["text"])
    assert not Path(os.devnull).is_file()


# -- the variable -----------------------------------------------------------------------------------
PROGRAM = """
import offload as omp
for number in range({runtimes}):
    with omp.Runtime("none", num_threads=1):
        omp.task(int, name=f"task {{number}}")().result()
"""


def run_with(tmp_path, value, runtimes=1, code=PROGRAM):
    return subprocess.run(
        [sys.executable, *STRICT, "-c", code.format(runtimes=runtimes)],
        env={**os.environ, "OFFLOAD_TRACE": value, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("runtimes", [1, 10])
def test_the_variable(tmp_path, runtimes):
    """``OFFLOAD_TRACE`` writes the tasks of all runtimes of the process into one file."""
    done = run_with(tmp_path, "t.json", runtimes)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found = check(read(tmp_path / "t.json"))
    assert sorted(event["name"] for event in found.values()) == sorted(f"task {n}" for n in range(runtimes))


def test_the_program_changes_its_folder(tmp_path):
    """The one file is where the variable has named it when the first runtime opened."""
    (tmp_path / "other").mkdir()
    code = PROGRAM + "    __import__('os').chdir('.' if number else 'other')\n"
    done = run_with(tmp_path, "t.json", 2, code=code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(check(read(tmp_path / "t.json"))) == 2
    assert not list((tmp_path / "other").iterdir())


@pytest.mark.parametrize("value", ["t.txt", "missing/t.json"])
def test_a_wrong_value_of_the_variable(tmp_path, value, monkeypatch):
    """A suffix that nobody writes, or a folder that does not exist, is an error of the first runtime."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ClauseError, match="OFFLOAD_TRACE"):
        omp.Runtime("none", env={"OFFLOAD_TRACE": value})


def test_a_forked_child_writes_nothing(tmp_path):
    """The trace has the tasks of the parent; the child, which may open a runtime of its own, leaves the file alone."""
    code = (
        PROGRAM
        + """
import os
if os.fork() == 0:
    os.environ.pop("OFFLOAD_TRACE")
    with omp.Runtime("none", num_threads=0):
        omp.task(int, name="of the child")().result()
else:
    os.wait()
"""
    )
    done = run_with(tmp_path, "t.json", code=code)
    assert (done.returncode, done.stderr) == (0, "")
    assert [event["name"] for event in check(read(tmp_path / "t.json")).values()] == ["task 0"]


def test_two_traces_at_once(tmp_path):
    """``--trace`` and the variable write the same tasks to two files; so do two logs in a program."""
    code = PROGRAM.format(runtimes=2)
    done = subprocess.run(
        [sys.executable, *STRICT, "-m", "offload", "run", "--trace", "a.json", "-c", code],
        env={**os.environ, "OFFLOAD_TRACE": "b.json.gz", "PYTHONPATH": str(ROOT)},
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    first, second = check(read(tmp_path / "a.json")), check(read(tmp_path / "b.json.gz"))
    assert list(first) == list(second) != []


def test_two_logs_at_once(tmp_path):
    """Two logs that overlap each have the tasks of their time."""
    first, second = TaskLog(), TaskLog()
    with omp.Runtime("sim:1"), omp.tool(first):
        omp.task(int, name="one")().result()
        with omp.tool(second):
            omp.target(lambda x: None, name="two")(np.zeros(3))
        omp.task(int, name="three")().result()
    for log, names in ((first, ["one", "two", "three"]), (second, ["two"])):
        settle(log)
        write_whole(tmp_path / "t.json", trace(records(log)))
        assert [event["name"] for event in check(read(tmp_path / "t.json")).values()] == names
