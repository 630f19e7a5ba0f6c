"""Configuration of the whole suite: Hypothesis profiles, tracebacks of crashes, the count of GPU tests, runtimes."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import threading
from pathlib import Path

import pytest
from hypothesis import settings

import offload as omp
from offload.devices.sim import SimEvent

# `pytest --hypothesis-profile=soak` takes the other one.
settings.register_profile("ci", deadline=None, print_blob=True)  # a deadline measures the machine, not the code
settings.register_profile("soak", parent=settings.get_profile("ci"), max_examples=5_000)
settings.load_profile("ci")

if not faulthandler.is_enabled():  # pytest's own plugin may be off
    faulthandler.enable()


class GpuCount:
    """Counts the GPU tests that ran and those that were skipped, for a line at the end."""

    def __init__(self) -> None:
        self.selected: set[str] = set()
        self.n_skipped = 0
        self.n_files_skipped = 0

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        # A module-level importorskip("cupy") leaves no test to count.
        if report.skipped and "gpu" in Path(report.nodeid).parts:
            self.n_files_skipped += 1

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.selected = {item.nodeid for item in session.items if item.get_closest_marker("gpu")}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and report.nodeid in self.selected and not hasattr(report, "wasxfail"):
            self.n_skipped += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.selected or self.n_files_skipped:
            n_run = len(self.selected) - self.n_skipped
            files = f", {self.n_files_skipped} whole file(s) skipped" if self.n_files_skipped else ""
            why = "" if n_run or not (self.n_skipped or files) else " (no GPU here)"
            terminalreporter.write_line(f"GPU tests: {n_run} run, {self.n_skipped} skipped{files}{why}")


def pytest_configure(config: pytest.Config) -> None:
    """Attach the count to this run."""
    config.pluginmanager.register(GpuCount(), "offload-gpu-count")


# -- runtimes -------------------------------------------------------------------------------------
def count_gpus():
    """Return how many GPUs CuPy sees; 0 without CuPy."""
    try:
        from offload.devices.cuda import device_count
    except ImportError:
        return 0
    return device_count()


def check_nothing_left(runtime):
    """Check a closed runtime: counts zero, no device memory, no task unfinished, no thread."""
    if any(place.device.live_nbytes() for place in runtime.places):
        gc.collect()  # 0.1 s in a process of this size: only where something is in a cycle
    for place in runtime.places:
        assert place.table.entries() == ()
        assert place.device.live_nbytes() == 0, f"{place.device.name} has {place.device.live_nbytes()} bytes allocated"
        assert not place.in_flight
    unfinished = [task for frame in (*runtime._roots, *runtime.engine.frames) for task in frame.children.live]
    assert not unfinished, unfinished
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("offload-")]


@contextlib.contextmanager
def checked(devices, **kwargs):
    """Open a runtime with ``check=True``, and check after it that nothing is left."""
    with omp.Runtime(devices, check=True, **kwargs) as runtime:
        yield runtime
    check_nothing_left(runtime)


@pytest.fixture(params=["sim:1", "sim:2", pytest.param("cuda", marks=pytest.mark.gpu)])
def devices(request):
    """The devices of a runtime, as it takes them."""
    if request.param == "cuda" and not count_gpus():
        pytest.skip("CuPy sees no GPU")
    return request.param


@pytest.fixture
def runtime(devices):
    """A current runtime on each kind of device; afterwards nothing may be left of it."""
    with checked(devices) as runtime:
        yield runtime


@pytest.fixture
def sim():
    """A current runtime with one simulated device; afterwards nothing may be left of it."""
    with checked("sim:1") as runtime:
        yield runtime


class Streams:
    """Holds the streams of the simulated devices until `go`, if it is to."""

    def __init__(self, runtime, *, holds):
        self.latches = []
        for place in runtime.places if holds else ():
            if place.device.kind != "sim":
                continue
            latch = SimEvent(place.device)
            self.latches.append(latch)
            for number in range(8):
                place.pool.numbered(number).stream.wait_event(latch)

    def go(self):
        for latch in self.latches:
            latch.fire()


@pytest.fixture
def env():
    """What the runtimes of `streams` and `alone` have for an environment; a file of tests may have its own."""


@contextlib.contextmanager
def streaming(runtime, *, holds):
    """Hold the streams of a runtime, if they are to be, until ``go`` or the end."""
    streams = Streams(runtime, holds=holds)
    try:
        yield streams
    finally:
        streams.go()


@pytest.fixture(params=["one worker", "four workers", "delayed streams"])
def streams(request, devices, env):
    """A current runtime with one worker, with four, or with streams that stand still until ``streams.go()``."""
    n_workers = 1 if request.param == "one worker" else 4
    with (
        checked(devices, num_threads=n_workers, env=env) as runtime,
        streaming(runtime, holds=request.param == "delayed streams") as streams,
    ):
        yield streams


@pytest.fixture
def alone(devices, env):
    """A current runtime without workers, whose streams stand still until ``alone.go()``."""
    with checked(devices, num_threads=0, env=env) as runtime, streaming(runtime, holds=True) as streams:
        yield streams


@pytest.fixture(params=["before", "during", "after"])
def moment(request):
    """When an event is fulfilled: before the body begins, in it, or after it."""
    return request.param
