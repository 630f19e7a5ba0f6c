"""Traces on CUDA: times agree with CUDA events, copies and kernels overlap, and captured graphs are one slice."""

from __future__ import annotations

import threading
from time import perf_counter

import numpy as np
import pytest

import offload as omp
from offload.events.log import TaskLog
from offload.reports.files import write_whole
from offload.reports.profile import profile
from offload.reports.records import records
from offload.reports.trace import trace
from offload.runtime.stamps import settle
from tests.gpu.conftest import cupy, cupyx, warm
from tests.reports.validator import check, read

pytestmark = pytest.mark.gpu

AGREE_S = 20e-6


def logged(program):
    """Run a function in a runtime on the first CUDA device, under a log; return the record of the run."""
    log = TaskLog()
    with omp.tool(log), omp.Runtime("cuda:0"):
        program()
        omp.taskwait()
    settle(log)
    return records(log)


def busy(x, times):
    """Enqueue work of some hundred microseconds to milliseconds."""
    for _ in range(times):
        cupy.sin(x, out=x)


def add_one(x):
    x += 1


@pytest.mark.measures
def test_times_agree_with_events(latch):
    """The span of a body is that between CUDA events around the same work, and lies between the host's times.

    An earlier task holds the stream until the body has enqueued everything. So the device takes both pairs of events
    and the work between them without a gap in which it would wait for the host.
    """
    taken, seen, was_held = [], [], []
    is_launched = threading.Event()
    warm()

    @omp.target(nowait=True)
    def hold(x):
        latch.hold(omp.current_stream())

    @omp.target(nowait=True)
    def body(x):
        events = cupy.cuda.Event(), cupy.cuda.Event()
        events[0].record()
        busy(x, 20)
        events[1].record()
        was_held.append(not events[0].done)
        taken.append(events)
        is_launched.set()

    def turn(x):
        is_launched.clear()
        start_s = perf_counter()
        hold.options(depend=[omp.inout(x)])(x)
        task = body.options(depend=[omp.inout(x)])(x)
        try:
            assert is_launched.wait(10)
        finally:
            latch.release()
        task.result()
        seen.append((start_s, perf_counter()))

    def program():
        x = omp.target_alloc(1 << 22, dtype="f8")
        latch.release()
        turn(x)  # compiles, which would wait for a kernel that runs
        for _ in range(10):
            omp.taskwait()
            latch.again()
            turn(x)
        omp.target_free(x)

    run = logged(program)
    spans = [span for span in run.spans if span.kind == "body" and span.name == "body"]
    assert len(spans) == len(taken) == 11
    assert all(was_held[1:])
    for span, (first, last), (start_s, end_s) in list(zip(spans, taken, seen, strict=True))[1:]:
        measured_s = cupy.cuda.get_elapsed_time(first, last) * 1e-3
        assert abs((span.end_s - span.start_s) - measured_s) < AGREE_S, (span.end_s - span.start_s, measured_s)
        assert start_s - AGREE_S < span.start_s < span.end_s < end_s + AGREE_S


def test_a_trace_is_valid_and_copies_overlap(tmp_path):
    """Copies of pinned memory overlap bodies on other streams, and the file is valid."""
    hosts = [cupyx.zeros_pinned(1 << 22) for _ in range(4)]

    @omp.target(nowait=True)
    def body(x):
        busy(x, 10)

    def program():
        for _ in range(3):
            for host in hosts:
                body(host)

    run = logged(program)
    write_whole(tmp_path / "t.json", trace(run))
    events = read(tmp_path / "t.json")
    assert len(check(events)) == 12
    copies = [span for span in run.spans if span.kind == "copy"]
    bodies = [span for span in run.spans if span.kind == "body"]
    assert len(copies) == 24
    assert any(min(a.end_s, b.end_s) > max(a.start_s, b.start_s) for a in copies for b in bodies if a.lane != b.lane)
    found = profile(run)
    assert sum(found.parts.values()) == pytest.approx(found.wall_s, rel=1e-3)


def test_pageable_copies_are_timed():
    """Copies that threads stage have a span each."""
    host = np.zeros(1 << 20)
    run = logged(lambda: omp.target(lambda x: None, nowait=True)(host))
    assert sorted((span.direction, span.nbytes) for span in run.spans if span.kind in {"copy", "staged"}) == [
        ("from", host.nbytes),
        ("to", host.nbytes),
    ]


def test_captured_graphs(tmp_path):
    """A replay that is one CUDA graph is one task; a log changes no result."""
    x = cupyx.zeros_pinned(1000)

    @omp.taskgraph
    def step(x):
        for _ in range(3):
            omp.target(add_one, nowait=True, depend=[omp.inout(x)])(x)

    def program():
        with omp.target_data(map=[omp.tofrom(x)]):
            for _ in range(4):
                step(x)
            omp.taskwait()

    run = logged(program)
    write_whole(tmp_path / "t.json", trace(run))
    assert check(read(tmp_path / "t.json"))
    assert (x == 12).all()
