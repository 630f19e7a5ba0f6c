"""Configuration of the whole suite: Hypothesis profiles, tracebacks of crashes, GPU tests, leaks, runtimes."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import importlib.util
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import settings

import offload as omp
import tests.profiles  # noqa: F401  # which has the profiles of Hypothesis
from offload.devices.sim.device import SimDevice, SimEvent
from offload.runtime import registry
from offload.tasks.states import MAY_FOLLOW
from offload.tasks.task import Task
from tests import cluster
from tests.patience import PATIENCE_S

settings.load_profile("quick")  # `pytest --hypothesis-profile=full` takes another one

if not faulthandler.is_enabled():  # pytest's own plugin may be off
    faulthandler.enable()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # inherited: a shell starts a job in the background so
    signal.signal(signal.SIGINT, signal.default_int_handler)


# -- GPU tests ------------------------------------------------------------------------------------
MAY_SKIP = {
    "PyTorch is not installed",  # its arrays are tested where it is
    "Numba is not installed",
    "Numba has no CUDA here",
    "JAX is not installed",
    "JAX has no GPU here",
    "CuPy has no structured dtypes",
    "needs two GPUs",
    "needs 12 GiB of GPU memory",
    "a tool looks on, which takes its time",
}
"""Why a GPU test may be skipped where there is a GPU."""

GPU_TESTS = "offload-gpu-tests"
DIED = pytest.StashKey[bool]()
GPUS = sorted(str(path) for path in Path("/dev").glob("nvidia[0-9]*"))


@functools.cache
def no_gpu():
    """Return why there is nothing here that GPU tests could run on; None where there is a GPU.

    A GPU that CuPy does not see, or a CuPy that cannot be imported, is an error: it would hide every GPU test.
    """
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed"
    import cupy

    if cupy.cuda.is_available():
        return None
    if GPUS:
        raise RuntimeError(f"there is {', '.join(GPUS)}, but CuPy sees no GPU; see cupy.show_config()")
    return "CuPy sees no GPU"


class GpuTests:
    """Lets a GPU test be skipped where there is no GPU, and counts them for a line at the end."""

    def __init__(self):
        self.n_run = self.n_files = self.n_left_out = 0
        self.skipped = []

    def without(self, items):
        """Return the tests without those that a GPU is missing for, and count these.

        A skip costs as much as a small test. Tests with a mark of their own remain, for the mark may be a mistake. If
        all tests need a GPU, all remain.
        """
        marks = ("skip", "skipif", "xfail")
        lacking = {i for i in items if i.get_closest_marker("gpu") and not any(map(i.get_closest_marker, marks))}
        if no_gpu() is None or len(lacking) == len(items):
            return items
        self.n_left_out = len(lacking)
        return [item for item in items if item not in lacking]

    def pytest_sessionfinish(self, session):
        """Tell the process that has started this one of pytest-xdist how many tests were left out."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["gpu tests left out"] = self.n_left_out

    @pytest.hookimpl(optionalhook=True)  # of pytest-xdist
    def pytest_testnodedown(self, node):
        """Take the number of tests that each process has left out: all have left out the same."""
        self.n_left_out = getattr(node, "workeroutput", {}).get("gpu tests left out", self.n_left_out)

    def judge(self, report):
        """Turn a skip into a failure unless it is for one of the reasons that are allowed."""
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason != no_gpu() and (no_gpu() or reason not in MAY_SKIP):
            report.outcome = "failed"
            report.longrepr = f"a GPU test is skipped because: {reason}; tests/conftest.py does not allow that"
        return reason

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        report = yield
        if report.skipped and "gpu" in Path(report.nodeid).parts:
            self.judge(report)
            self.n_files += 1  # skipped as a whole, so that there is no test to count
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        item.stash[DIED] = item.stash.get(DIED, False) or call.excinfo is not None
        if not item.get_closest_marker("gpu"):
            return report
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = self.judge(report)
            if report.skipped:
                self.skipped.append(reason)
        elif call.when == "call":
            self.n_run += 1
        return report

    def pytest_terminal_summary(self, terminalreporter):
        n_skipped = len(self.skipped) + self.n_left_out
        files = f", and {self.n_files} whole files" if self.n_files else ""
        if no_gpu() and (n_skipped or self.n_files):
            why = f"{', '.join(GPUS)} is not used" if GPUS else "no GPU here"
            terminalreporter.write_line(f"{n_skipped} GPU tests skipped{files}: {why} ({no_gpu()})")
        elif self.n_run or n_skipped:
            why = f": {', '.join(sorted(set(self.skipped)))}" if n_skipped else ""
            terminalreporter.write_line(f"GPU tests: {self.n_run} run, {n_skipped} skipped{why}")


def pytest_addoption(parser):
    """Add the option that runs the conformance tests under the sanitizer."""
    parser.addoption("--sanitize", action="store_true", help="run tests/conformance under the sanitizer")


def pytest_configure(config):
    """Have the GPU tests judged and counted, the books kept of what they take from CUDA, and the user's cache alone."""
    config.pluginmanager.register(GpuTests(), GPU_TESTS)
    if config.getoption("--sanitize"):
        from tests.sanitizer.option import SanitizedTests

        sanitized = SanitizedTests()
        config.pluginmanager.register(sanitized)
        config.add_cleanup(sanitized.stack.close)
        sanitized.begin()
    if not hasattr(config, "workerinput"):  # the processes of pytest-xdist share the cache of the one that starts them
        cache = tempfile.TemporaryDirectory(prefix="offload-tests-", ignore_cleanup_errors=True)
        config.add_cleanup(cache.cleanup)
        os.environ["OFFLOAD_CACHE_DIR"] = cache.name  # compiled loops of this run, and of the processes that it starts
        os.environ["OFFLOAD_TESTS_FOLDER"] = cache.name  # which no test changes
        # Some 400 processes import the package, which takes 1 s more where each has to compile it.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.dont_write_bytecode = False
    SimDevice.waits_look = bool(os.environ.get("OFFLOAD_TESTS_WAITS_LOOK"))
    if no_gpu() is None:
        from tests.gpu.ledger import open_ledger

        open_ledger()  # before anything of the library has CuPy's functions in its hands
        if os.environ.get("OFFLOAD_TESTS_UNPOOLED"):  # tests/gpu/sanitize.sh says why
            import cupy

            from offload.devices.cuda import memory

            cupy.cuda.set_allocator(None)
            memory.DriverPool.small_nbytes = -1  # blocks are of the size asked for, and none is kept


def pytest_itemcollected(item):
    """Leave to ``-m slow`` what repeats on one device what the test has shown on two, or the other way round.

    By default a test runs on two simulated devices. If it tries several orders, it tries the orders of four workers on
    two devices, and the others on one; one worker is left to ``-m slow`` as well.
    """
    given = getattr(item, "callspec", None)
    devices = given.params.get("devices") if given else None
    values = next((mark.args[1] for mark in item.iter_markers("parametrize") if mark.args[0] == "devices"), DEVICES)
    if devices in ("sim:1", "sim:2") and "sim:1" in values and "sim:2" in values:
        orders = {given.params.get(name) for name in ("streams", "queues")}
        runs_on_one = orders & {"no worker", "one worker", "delayed streams"}
        if devices != ("sim:1" if runs_on_one else "sim:2") or "one worker" in orders:
            item.add_marker("slow")
    if devices == "dask" and given.params.get("streams", given.params.get("queues", "four workers")) != "four workers":
        item.add_marker("slow")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Find the tests without Python's collector, which would go through all that were found again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers():
    """Return the processes of ``-n auto``: one for each processor that this one may use."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ or not hasattr(os, "sched_getaffinity"):
        return None  # pytest-xdist has its own answer
    return len(os.sched_getaffinity(0))


def pytest_cmdline_main(config):
    """With ``-n`` hand waiting tests to idle processes, and end the run with a process that a hanging test ends."""
    if not getattr(config.option, "numprocesses", None):
        return
    if config.option.dist == "load":
        config.option.dist = "worksteal"
    if config.option.maxworkerrestart is None:
        config.option.maxworkerrestart = "0"


def pytest_report_header():
    """Say how threads of this run wait for simulated devices."""
    return "waits for simulated devices: " + ("look, as on CUDA" if SimDevice.waits_look else "sleep")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leave out tests that lack a GPU, that would hang, or that are the share of another process.

    Tests that may take long begin first, so that no process is left with one at the end. The share is
    `OFFLOAD_TESTS_SHARE`, such as 0/4. `cudaMalloc`, as each unpooled array takes it, waits for kernels that hold
    streams.
    """
    chosen = config.pluginmanager.get_plugin(GPU_TESTS).without(items[:])
    if os.environ.get("OFFLOAD_TESTS_UNPOOLED"):
        chosen = [item for item in chosen if "latch" not in item.fixturenames]
    if share := os.environ.pop("OFFLOAD_TESTS_SHARE", None):  # a test that runs pytest runs all that it names
        number, n_shares = map(int, share.split("/"))
        chosen = chosen[number::n_shares]
    if len(chosen) < len(items):
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = sorted(chosen, key=lambda item: not may_take_long(item))


def may_take_long(item):
    """Tell whether a test may take longer than it takes faulthandler to print the stacks of a hanging one."""
    limit = item.get_closest_marker("timeout")
    return limit is not None and bool(limit.args) and limit.args[0] > float(item.config.getini("faulthandler_timeout"))


def pytest_runtest_setup(item):
    """Skip a GPU test where there is no GPU."""
    if item.get_closest_marker("gpu") and no_gpu():
        pytest.skip(no_gpu())
    if may_take_long(item):
        faulthandler.cancel_dump_traceback_later()  # it reads frames of threads that run, and may crash


class CheckedState:
    """Stands in the place of `Task.state_` and holds each change of it against the table."""

    def __init__(self, slot):
        self.slot = slot
        self.wrong = []

    def __get__(self, task, owner=None):
        return self if task is None else self.slot.__get__(task, owner)

    def __set__(self, task, state):
        try:
            before = self.slot.__get__(task)
        except AttributeError:
            before = None
        if state not in MAY_FOLLOW[before]:
            self.wrong.append(f"{task.construct.directive}: {before} -> {state}")  # an engine's step must not raise
        self.slot.__set__(task, state)


Task.state_ = CheckedState(Task.__dict__["state_"])


@pytest.fixture(scope="module", autouse=True)
def little_to_collect():
    """Keep the collector from what was there before a file's tests: in a long run a collection takes 0.2 s else.

    A bench freezes objects too. What it unfreezes at its end would be all.
    """
    gc.collect()
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "unfreeze", lambda: None)
        yield


@pytest.fixture(autouse=True)
def states_follow_the_table():
    """Fail a test in which a task has changed its state as none may."""
    yield
    wrong, Task.state_.wrong = Task.state_.wrong, []
    assert not wrong, wrong


@contextlib.contextmanager
def share_of_gpus(*, alone):
    """Use the GPUs beside the other processes of a run of pytest-xdist, or alone; without it all is as it is."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        yield
        return
    import fcntl

    path = Path(tempfile.gettempdir(), f"offload-tests-{run}")
    with path.with_suffix(".turn").open("w") as turn, path.with_suffix(".gpus").open("w") as gpus:
        fcntl.flock(turn, fcntl.LOCK_EX)  # nobody overtakes a test that waits for being alone
        fcntl.flock(gpus, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield


@pytest.fixture
def gpus(request):
    """Have a GPU test wait for one that measures, which waits for all others."""
    uses, measures = (request.node.get_closest_marker(name) is not None for name in ("gpu", "measures"))
    with share_of_gpus(alone=measures) if uses else contextlib.nullcontext(), pytest.MonkeyPatch.context() as patch:
        if uses:  # a run of pytest that the test starts has a part in its share
            patch.delenv("PYTEST_XDIST_TESTRUNUID", raising=False)
        yield


@pytest.fixture(autouse=True)
def nothing_leaks(request, gpus):
    """Fail a test that leaves a thread behind; a GPU test also for a stream, an event, a graph or memory."""
    ledger = mark = None
    if request.node.get_closest_marker("gpu"):
        from tests.gpu.ledger import open_ledger

        ledger = open_ledger()
        mark = ledger.mark()
    before = our_threads()
    yield
    if request.node.stash.get(DIED, False):
        return  # its traceback holds what the frames held
    request.node.funcargs.clear()  # what the fixtures gave, which have ended
    left = ledger.left_since(mark) if ledger is not None else []
    if our_threads() - before and not registry.runtimes:
        left += [f"the thread {thread.name}" for thread in that_stay(our_threads() - before)]
    if left:
        pytest.fail("leaked " + "; ".join(left), pytrace=False)


def that_stay(threads):
    """Return those of some threads that do not end, though a busy machine has time."""
    end_s = time.monotonic() + PATIENCE_S
    while threads and time.monotonic() < end_s:
        gc.collect()  # a stream's thread ends when nobody refers to the stream
        for thread in threads:
            thread.join(1)
        threads = {thread for thread in threads if thread.is_alive()}
    return threads


def our_threads():
    """Return the threads of the library that are alive."""
    threads = {thread for thread in threading.enumerate() if thread.name.startswith("offload-")}
    return {thread for thread in threads if thread.name != "offload-requests"}  # which is the process's


# -- runtimes -------------------------------------------------------------------------------------
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
    assert not our_threads()


@contextlib.contextmanager
def checked(devices, **kwargs):
    """Open a runtime with ``check=True``, and check after it that nothing is left."""
    with omp.Runtime(devices, check=True, **kwargs) as runtime:
        yield runtime
    check_nothing_left(runtime)


DEVICES = ["sim:1", "sim:2", pytest.param("cuda", marks=pytest.mark.gpu)]
"""The devices of the runtimes of `runtime`, `streams` and `alone`."""
if cluster.N_WORKERS:
    DEVICES = ["dask"]


@pytest.fixture
def cuda(monkeypatch):
    """The kernels of a current runtime's only device, CUDA for the host, which notes each launch."""
    from tests.loops.cuda_device import HostCuda  # looks for compilers

    kernels = HostCuda()
    monkeypatch.setattr(SimDevice, "kernels", kernels)
    with checked("sim:1"):
        yield kernels


@pytest.fixture(params=DEVICES)
def devices(request):
    """The devices of a runtime, as it takes them."""
    if request.param == "dask":
        cluster.shared_client(cluster.N_WORKERS)
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
