"""Tracks of a trace: copy engines, requests of MPI, and the workers of a cluster, and that what runs there is there."""

from __future__ import annotations

import json
import threading
from time import perf_counter
from types import SimpleNamespace

import numpy as np
import pytest

import offload as omp
from offload.events.log import TaskLog
from offload.reports.files import write_whole
from offload.reports.profile import profile
from offload.reports.records import RunRecord, SpanRecord, TaskRecord, records
from offload.reports.trace import quote, trace
from offload.runtime.stamps import settle
from tests.mpi.launching import needs_mpi, run
from tests.reports.validator import check, read


def written(run, tmp_path):
    """Return the events of a run's trace, which is valid."""
    write_whole(tmp_path / "t.json", trace(run))
    events = read(tmp_path / "t.json")
    check(events)
    return events


def tracks_of(events):
    """Return the names of tracks by process and number."""
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}


def on_tracks(events, category):
    """Return the tracks of the slices and pairs of a category, in the order of the file."""
    names = tracks_of(events)
    return [names[event["pid"], event["tid"]] for event in events if event.get("cat") == category]


# -- copy engines -----------------------------------------------------------------------------------
def device_task(number, lane, start_s, end_s):
    return TaskRecord(
        number, f"region {number}", "target", "here:1", "complete", 0.0, start_s, end_s, 1, 0, lane, "device"
    )


def test_copies_have_the_track_of_their_engine(tmp_path):
    """The copies of one direction that overlap are slices on several tracks; those that do not share one."""
    tasks = [device_task(1, 0, 1.0, 9.0), device_task(2, 1, 1.0, 9.0)]
    spans = [
        SpanRecord("copy", 1, 0, 0, 1.0, 3.0, "to", 8),
        SpanRecord("staged", 2, 0, 1, 2.0, 4.0, "to", 16),
        SpanRecord("copy", 1, 0, 0, 3.0, 5.0, "to", 24),
        SpanRecord("body", 2, 0, 1, 4.0, 6.0),
        SpanRecord("copy", 1, 0, 0, 5.0, 7.0, "from", 32),
        SpanRecord("copy", 1, 0, 0, 7.0, 9.0, "device", 40),
    ]
    events = written(RunRecord(tasks, [], spans), tmp_path)
    copies = [event for event in events if event.get("cat") == "copy"]
    assert [event["ph"] for event in copies] == ["X"] * 5
    assert [
        (event["args"]["nbytes"], track) for event, track in zip(copies, on_tracks(events, "copy"), strict=True)
    ] == [
        (8, "copies to device"),
        (16, "copies to device (2)"),
        (24, "copies to device"),
        (32, "copies to host"),
        (40, "copies within devices"),
    ]
    assert on_tracks(events, "body") == ["stream 1"]


def test_copies_of_a_run_overlap_bodies(tmp_path):
    """A copy that goes on while another stream computes is on a track of its own, and overlaps that body."""
    is_computing, has_copied = threading.Event(), threading.Event()

    def compute():
        omp.current_stream().synchronize()  # which has then noted when the body began
        is_computing.set()
        assert has_copied.wait(30)

    log, x = TaskLog(), np.zeros(100_000)
    with omp.tool(log), omp.Runtime("sim:1", num_threads=1):
        body = omp.target(nowait=True, name="body")(compute)()
        assert is_computing.wait(30)
        omp.target_enter_data(map=[omp.to(x)])
        has_copied.set()
        body.result()
        omp.target_exit_data(map=[omp.delete(x)])
    settle(log)
    events = written(records(log), tmp_path)
    (copy,) = [event for event in events if event.get("cat") == "copy"]
    (work,) = [event for event in events if event.get("cat") == "body"]
    assert (copy["pid"], copy["tid"]) != (work["pid"], work["tid"])
    assert work["ts"] < copy["ts"]
    assert copy["ts"] + copy["dur"] < work["ts"] + work["dur"]
    assert on_tracks(events, "copy") == ["copies to device"]


# -- requests of MPI --------------------------------------------------------------------------------
PROGRAM = """
import sys
import numpy as np
import offload as omp
from mpi4py import MPI
from offload import mpi

comm = MPI.COMM_WORLD
x, y, z = np.arange(4.0), np.zeros(4), np.zeros(4)

def exchange(z):
    mpi.detach(comm.Irecv(z, 0, 9))

with omp.Runtime("none", num_threads=1):
    receive = mpi.call(comm.Irecv, y, 0, 1)
    task = omp.task(detach=omp.Event(), name="exchange")(exchange)(z)
    while str(receive.state) != "detached" or str(task.state) != "detached":
        omp.taskyield()
    mpi.call(comm.Isend, x, 0, 1)
    mpi.call(comm.Isend, x, 0, 9)
    omp.taskwait()
assert (y == x).all() and (z == x).all()
"""


@needs_mpi
def test_requests_have_a_track(tmp_path):
    """The body of a call is a slice on its thread; the request that it starts is a pair on the track of MPI."""
    path = tmp_path / "t.json"
    status, printed = run(1, "-m", "offload", "run", "--trace", str(path), "-c", PROGRAM)
    assert status == 0, printed
    events = read(path)
    found = check(events)
    assert {event["name"] for event in found.values()} == {"MPI Irecv", "MPI Isend", "exchange"}
    pairs = [event for event in events if event.get("cat") == "MPI"]
    assert set(on_tracks(events, "MPI")) == {"MPI requests"}
    assert [event["name"] for event in pairs if event["ph"] == "b"].count("MPI Isend") == 2
    ends = {event["name"]: event["ts"] for event in pairs if event["ph"] == "e"}
    bodies = {event["name"]: event for event in events if event.get("cat") == "task"}
    sent = min(event["ts"] for event in events if event.get("cat") == "task" and event["name"] == "MPI Isend")
    for name in ("MPI Irecv", "exchange"):  # open while the main thread generated the sends
        assert bodies[name]["ph"] == "X"
        assert bodies[name]["ts"] + bodies[name]["dur"] < sent < ends[name]


def test_requests_are_waits_of_a_profile():
    """What a task waits for after its call is no time of its thread."""
    task = TaskRecord(1, "MPI Irecv", "MPI Irecv", "here:1", "complete", 0.0, 1.0, 5.0, 1, None, None, "request", 2.0)
    parts = profile(RunRecord([task], [], begin_s=0.0, end_s=5.0)).parts
    assert parts == {"body": 1.0, "device": 0.0, "copy": 0.0, "wait": 4.0, "idle": 0.0}


# -- workers of a cluster ---------------------------------------------------------------------------
def pause(x, seconds):
    """Take some time on a worker."""
    end_s = perf_counter() + seconds
    x += 1
    while perf_counter() < end_s:
        pass


def test_workers_have_tracks(tmp_path):
    """Bodies and copies on a cluster's workers have the times of the workers, in the process of their device."""
    from tests import cluster  # starts workers

    log, x, y = TaskLog(), np.zeros(100), np.zeros(100)
    with omp.tool(log), omp.Runtime(cluster.shared_client(), check=True):
        begun_s = perf_counter()
        for array, device in ((x, 0), (y, 1), (x, 0)):
            omp.target(nowait=True, device=device, depend=[omp.inout(array)])(pause)(array, 0.02)
        omp.taskwait()
        ended_s = perf_counter()
    assert (x == 2).all()
    settle(log)
    run = records(log)
    bodies = [span for span in run.spans if span.kind == "body"]
    assert sorted(span.device for span in bodies) == [0, 0, 1]
    for span in bodies:
        assert begun_s < span.start_s < span.end_s < ended_s
        assert span.end_s - span.start_s + 1e-4 >= 0.02
    assert len([span for span in run.spans if span.kind == "copy"]) == 6
    events = written(run, tmp_path)
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert [processes[pid] for pid in (1, 2)] == ["device 0 (dask:0/sim:0)", "device 1 (dask:1/sim:0)"]
    tasks = [event for event in events if event.get("cat") == "target"]
    assert [event["ph"] for event in tasks] == ["X"] * 3
    assert sorted(event["pid"] for event in tasks) == [1, 1, 2]


@pytest.mark.parametrize("apart_s", [0.0, 1000.0, -1000.0])
def test_clocks_of_workers_may_differ(apart_s):
    """Times of a worker whose clock is wrong lie between the sending of its plan and the report, and as far apart."""
    from offload.devices.dask.receiving import note_times
    from offload.devices.dask.wire import Op, common_clock_s

    held = [[], [], []]
    sent_s = perf_counter() - 1.0
    node = SimpleNamespace(
        operations=[(Op.TIME, held[0]), (Op.ALLOC, 1, 8, True), (Op.TIME, held[1]), (Op.TIME, held[2])],
        segment=SimpleNamespace(sent_s=sent_s),
    )
    offset_s = common_clock_s() + apart_s
    note_times(node, [sent_s + 0.25 + offset_s, None, sent_s + 0.75 + offset_s])
    (first_s,), middle, (last_s,) = held
    assert middle == []
    assert last_s - first_s == pytest.approx(0.5, abs=1e-4)
    assert sent_s <= first_s + 1e-6
    assert last_s <= perf_counter()
    if not apart_s:
        assert first_s - sent_s == pytest.approx(0.25, abs=1e-2)


def test_a_program_on_workers_writes_no_times_without_a_log():
    """Without a log, workers note no times."""
    from offload.devices.dask import wire
    from tests import cluster

    sent, plain = [], wire.WireNode.__new__

    def make(cls, *args):
        sent.extend(operation[0] for operation in args[4])
        return plain(cls, *args)

    x = np.zeros(10)
    with pytest.MonkeyPatch.context() as patch, omp.Runtime(cluster.shared_client(), check=True):
        patch.setattr(wire.WireNode, "__new__", make)
        omp.target(pause)(x, 0.0)
        with omp.tool(TaskLog()):
            assert wire.Op.TIME not in sent
            omp.target(pause)(x, 0.0)
    assert sent.count(wire.Op.TIME) == 6


# -- text -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("text", ["C:\\", "\\\\", '\\"', "🙂", "ü", "\n\t\x00\x1f", "</script>", "\\u00fc"])
def test_text_is_kept(text):
    """Text is what it was, in a form that all parsers read."""
    assert json.loads(quote(text)) == text
    assert "\\\\" not in quote(text)


def test_names_end_up_in_the_file(tmp_path):
    """Names that some parsers do not take are in the file as they are."""
    names = ["C:\\", "🙂", 'a\\"b', "\x1b[31m"]
    log = TaskLog()
    with omp.tool(log), omp.Runtime("none", num_threads=0):
        for name in names:
            omp.task(int, name=name)()
        omp.taskwait()
    settle(log)
    write_whole(tmp_path / "t.json", trace(records(log)))
    assert [event["name"] for event in check(read(tmp_path / "t.json")).values()] == names
