"""``benchmarks/run.py small`` and the operations by hand: that each does what it is timed for."""

from __future__ import annotations

import ctypes
import json
import math
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import offload as omp
from benchmarks.harness.programs import load_peer

pytestmark = pytest.mark.bench

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "run.py"
SMALL = load_peer("gpu.small")
ROWS = SMALL.cases.CASES
BLOCKING = {"blocking `target` with a kernel", "blocking `target_memcpy` of 1 KB"}


class Stream:
    """A stream whose work is done when it is asked."""

    null = SimpleNamespace(use=lambda: None)

    ptr = 0

    def __init__(self, **_):
        """Take what CuPy's take."""

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        """Change nothing."""

    def synchronize(self):
        """Return at once."""

    def use(self):
        """Change nothing: there are no current streams."""

    def wait_event(self, event):
        """Return at once; the event has been recorded."""
        assert event.is_recorded


class Event:
    """An event that knows whether it was recorded."""

    def __init__(self, **_):
        self.is_recorded = False

    def record(self, stream):
        self.is_recorded = True


def _kernel(source, name):
    assert f"void {name}(" in source

    def launch(grid, block, args):
        assert grid[0] * block[0] == args[0].size
        if name == "bump":
            args[0][...] += 1
        else:
            args[1][...] = args[0] + 1

    return launch


class Array(np.ndarray):
    """Memory that `mapped` gets by hand: the host's, with an address where CuPy's arrays have one."""

    data = property(lambda self: SimpleNamespace(ptr=self.ctypes.data))


def _copy(to, at, _):
    return partial(omp.target_memcpy, to, at)


@pytest.fixture
def by_hand(monkeypatch):
    """The program by hand, on the simulated device: what it enqueues is done there and then."""
    cuda = SimpleNamespace(
        Stream=Stream,
        Event=Event,
        Device=lambda: SimpleNamespace(synchronize=lambda: None),
        runtime=SimpleNamespace(
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyAsync=lambda to, at, nbytes, kind, stream: ctypes.memmove(to, at, nbytes),
        ),
    )
    fake = SimpleNamespace(cuda=cuda, RawKernel=_kernel, empty=Array)
    for name, module in {"cupy": fake, "cupy.cuda": cuda, "cupyx": SimpleNamespace(empty_pinned=np.empty)}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "benchmarks.gpu.small_cupy", raising=False)
    program = load_peer("gpu.small_cupy")
    monkeypatch.delitem(sys.modules, "benchmarks.gpu.small_cupy")  # it stands on the CuPy above
    monkeypatch.setattr(program, "_to_device", _copy)
    monkeypatch.setattr(program, "_to_host", _copy)
    return program


@pytest.fixture
def few_columns(monkeypatch):
    """Blocks of 1 KB in place of 1.5 MB."""
    monkeypatch.setattr(SMALL.cases, "COLUMNS", (128, 2 * SMALL.cases.N_BLOCKS))


@pytest.mark.parametrize("name", ROWS)
def test_each_operation_is_done_by_hand_too(by_hand, few_columns, name):
    """Constructs and what is written by hand change the data alike, and leave nothing on the device."""
    with omp.Runtime("sim", check=True):
        (samples,) = SMALL.measure(by_hand, 2, 8, name).values()
    untils = {"done"} if name in BLOCKING else {"issued", "done"}
    theirs = untils - ({"issued"} if "host task" in name else set())
    assert set(samples) == {f"offload, {until}" for until in untils} | {f"by hand, {until}" for until in theirs}
    assert all(len(found) == 2 and min(found) > 0 for found in samples.values())


@pytest.mark.parametrize("name", [name for name in ROWS if "OpenACC" not in name])
@pytest.mark.parametrize("side", ["offload", "by hand"])
def test_a_lost_operation_is_noticed(by_hand, monkeypatch, name, side):
    """Where one kernel, or the last copies, do not happen, nothing is timed."""
    make = ROWS[name]

    def forgetful(peer, count):
        issue_none = (lambda: None, lambda: None)
        with make(peer, count) as case:
            faulty = {"issue": issue_none[0]} if side == "offload" else {"by_hand": issue_none}
            yield case._replace(**faulty)

    monkeypatch.setitem(ROWS, name, SMALL.cases.contextmanager(forgetful))
    with omp.Runtime("sim", check=True), pytest.raises(omp.InternalError, match=side):
        SMALL.measure(by_hand, 1, 8, name)


def test_a_lost_kernel_of_many_is_noticed(few_columns):
    """One kernel that does nothing, of eight, is enough."""
    peer, launched = SMALL.cases.simulated(), []
    bump = peer.bump

    def forgetful(x):
        launched.append(x)
        if len(launched) != 5:
            bump(x)

    peer.bump = forgetful
    with omp.Runtime("sim", check=True), pytest.raises(omp.InternalError, match="every operation"):
        SMALL.measure(peer, 1, 8, "one chain")


def _run(*options):
    argv = [sys.executable, str(PROGRAM), "small", "--device", "sim", *options]
    env = {**os.environ, "PYTHONPATH": str(Path(omp.__file__).parents[1])}
    return subprocess.run(argv, capture_output=True, text=True, env=env, check=False)


def test_the_program_runs_on_a_simulated_device():
    """All rows are there, each with as many samples as turns, and says which package it has measured."""
    done = _run("--repeat", "2", "--operations", "4", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["package"] == str(Path(omp.__file__).parent)
    assert figures["rows"].keys() == ROWS.keys()
    for samples in figures["rows"].values():
        for found in samples.values():
            assert len(found) == 2
            assert all(math.isfinite(one) and one > 0 for one in found)


def test_the_program_prints_a_table():
    """Without ``--json`` it prints Markdown, of the rows asked for."""
    shown = _run("--repeat", "1", "--operations", "4", "--only", "memcpy").stdout
    assert "µs an operation" in shown
    assert sum(line.startswith(("| `", "| blocking")) for line in shown.splitlines()) == 2


@pytest.mark.parametrize("options", [("--repeat", "0"), ("--operations", "1"), ("--only", "zork")])
def test_mistakes_in_options(options):
    """What cannot be measured is an error that names the option and its value."""
    done = _run(*options)
    assert done.returncode == 2
    assert " ".join(options) in done.stderr


@pytest.mark.gpu
def test_on_a_gpu():
    """On CUDA each operation is right, by constructs and by hand."""
    with omp.Runtime("cuda:0", check=True):
        rows = SMALL.measure(load_peer("gpu.small_cupy"), 1, 20)
    assert all("by hand, done" in samples for samples in rows.values())
