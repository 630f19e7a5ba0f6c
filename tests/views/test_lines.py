"""OFFLOAD_NOTIFY: what a runtime tells on stderr of launches, transfers and waits."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import threading

import numpy as np
import pytest

import offload as omp
from offload import acc, to

LINE = re.compile(r"(launch|upload|download|wait) [^=]+ (bytes=\d+|file=\S+ line=\d+) device=[01] queue=[0-3]")


def place_of(function):
    """Return where a function stands, as the lines say it."""
    return f"file={__file__} line={function.__code__.co_firstlineno}"


def line_here():
    """Return where the caller's own line stands, as the lines say it."""
    return f"file={__file__} line={sys._getframe(1).f_lineno}"


@pytest.fixture
def told(capfd):
    """Open a runtime at a level, for a ``with``; the list that it gives has the lines afterwards."""

    @contextlib.contextmanager
    def told(level, devices, **kwargs):
        lines = []
        with omp.Runtime(devices, check=True, env={"OFFLOAD_NOTIFY": level}, **kwargs):
            yield lines
        lines += capfd.readouterr().err.splitlines()

    return told


def axpy(x, y):
    x += y


# -- launches ---------------------------------------------------------------------------------------
def test_launches(told, devices):
    """Level 1 is one line for each region that is launched, with its directive, name, place, device and queue."""
    x, y = np.zeros(4), np.ones(4)
    with told("1", devices) as lines, acc.data(copyin=[y]):
        acc.parallel(async_=3)(axpy)(x, y)
        acc.wait(3)
        acc.update(self_=[y])
        omp.target(name="again")(axpy)(x, y)
        omp.target(nowait=True)(axpy)(x, y)
        omp.taskwait()
    at = place_of(axpy)
    assert lines == [
        f"launch acc parallel axpy {at} device=0 queue=3",
        f"launch target again {at} device=0",
        f"launch target axpy {at} device=0",
    ]


def test_device_arrays_are_launched_alike(told, devices):
    """A region that takes device arrays alone, which maps nothing, has its line."""
    with told("1", devices) as lines:
        d = omp.target_alloc(8)
        omp.target(nowait=True)(axpy)(d, 1)
        omp.taskwait()
        omp.target_free(d)
    assert lines == [f"launch target axpy {place_of(axpy)} device=0"]


def test_the_device_is_told(told):
    """The line names the device that the region runs on."""
    with told("1", "sim:2") as lines:
        for number in (1, 0):
            acc.serial(device=number)(axpy)(np.zeros(3), 1)
    assert [line.split()[-1] for line in lines] == ["device=1", "device=0"]


def test_the_host_launches_nothing(told):
    """Regions on the host, host tasks and data constructs have no line at level 1."""
    x = np.zeros(4)
    with told("1", "sim:1") as lines:
        acc.parallel(if_=False)(axpy)(x, 1)
        omp.target(device=omp.initial_device)(axpy)(x, 1)
        omp.task(axpy)(x, 1).result()
        with acc.data(copy=[x]), omp.target_data(map=[to(x)]):
            acc.wait()
    assert lines == []


def test_a_launch_that_is_refused_is_not_told(told):
    """A region whose data is not present is not launched."""
    with told("3", "sim:1") as lines, pytest.raises(omp.NotPresentError):
        acc.parallel(present="x")(axpy)(np.zeros(4), 1)
    assert lines == []


def test_replays(told, devices):
    """A replay that is one graph of the device is one launch; on streams each region is one."""

    @omp.taskgraph
    def step(d):
        omp.target(nowait=True)(axpy)(d, 1)
        omp.target(nowait=True)(axpy)(d, 1)

    with told("1", devices) as lines:
        d = omp.target_alloc(8)
        for _ in range(3):
            step(d)
        omp.target_free(d)
    each = f"launch target axpy {place_of(axpy)} device=0"
    graph = f"launch taskgraph step {place_of(step._function)} device=0"
    assert lines == ([each] * 2 + [graph] * 2 if devices == "cuda" else [each] * 6)


# -- transfers --------------------------------------------------------------------------------------
def test_transfers(told, devices):
    """Level 2 adds each copy with what is copied, its bytes, device and queue: up before the launch, down after it."""
    x, y = np.zeros(100), np.ones(50, np.float32)

    @acc.parallel(copy="x", copyin="y[0:10]", async_=1)
    def body(x, y):
        x += y[0]

    with told("2", devices) as lines:
        body(x, y)
        acc.wait()
    assert lines == [
        "upload x: float64[100] bytes=800 device=0 queue=1",
        "upload y[0:10]: float32[10] bytes=40 device=0 queue=1",
        f"launch acc parallel body {place_of(body._function)} device=0 queue=1",
        "download x: float64[100] bytes=800 device=0 queue=1",
    ]
    assert (x == 1).all()


def test_data_constructs_and_updates(told, devices):
    """Each construct that copies has a line for each copy; what is present is not copied again."""
    x, y = np.zeros(4), np.zeros(8)
    with told("2", devices) as lines:
        acc.enter_data(copyin=[x], create=[y])
        with acc.data(copy=[x, y]):
            acc.update(device=[y])
        acc.exit_data(copyout=[x], delete=[y])
    assert lines == [
        "upload x: float64[4] bytes=32 device=0",
        "upload y: float64[8] bytes=64 device=0",
        "download x: float64[4] bytes=32 device=0",
    ]


def test_private_copies_and_routines(told, devices):
    """Copies without a list item are told as well: firstprivate arrays, and those of the memory routines."""
    x = np.arange(4.0)
    with told("2", devices) as lines:
        d = omp.target_alloc(32)
        omp.target_memcpy(d, x)
        omp.target_memcpy(x, d)
        omp.target(firstprivate=["x"])(axpy_private)(x)
        omp.target_free(d)
    assert [line for line in lines if not line.startswith("launch")] == [
        "upload uint8[32] bytes=32 device=0",
        "download uint8[32] bytes=32 device=0",
        "upload float64[4] bytes=32 device=0",
    ]


def axpy_private(x):
    x += 1


def test_declared_arrays(told, devices):
    """The initialisation of a declared array is a transfer, at the first use of the device."""
    x = np.zeros(6)
    omp.declare_target(x)
    with told("2", devices) as lines:
        for _ in range(2):
            omp.target(lambda: None, device=0)()
    assert [line for line in lines if not line.startswith("launch")] == ["upload float64[6] bytes=48 device=0"]


def test_between_devices(told):
    """A copy from one device to another names both."""
    with told("2", "sim:2") as lines:
        a, b = omp.target_alloc(16, device=0), omp.target_alloc(16, device=1)
        omp.target_memcpy(b, a)
        omp.target_memcpy(a, a[:0])
        omp.target_free(a)
        omp.target_free(b)
    assert lines[0] == "copy uint8[16] bytes=16 device=1 from=0"


# -- waits ------------------------------------------------------------------------------------------
def test_waits(told, devices):
    """Level 3 adds the waits that the program asks for, each with its line, and for queues the queues."""
    x = np.zeros(4)
    at = []
    with told("3", devices) as lines, acc.data(copy=[x]):
        body = acc.parallel(async_=2)(axpy)
        body(x, 1)
        at.append(line_here())
        acc.wait(2)
        acc.parallel(wait=[2])(axpy)(x, 1)
        omp.taskwait()
        omp.barrier()
        with omp.taskgroup():
            body(x, 1)
        acc.wait()
    path, first = at[0].rsplit("=", 1)
    waits = [line for line in lines if line.startswith("wait")]
    assert waits == [
        f"wait acc.wait {path}={int(first) + 1} device=0 queue=2",
        f"wait clause {path}={int(first) + 2} device=0 queue=2",
        f"wait taskwait {path}={int(first) + 3}",
        f"wait barrier {path}={int(first) + 4}",
        f"wait end of the taskgroup {path}={int(first) + 5}",
        f"wait acc.wait {path}={int(first) + 7} device=0 queue=2",
    ]
    assert (x == 3).all()


def test_what_is_no_wait(told, devices):
    """Constructs that wait for themselves, and what one queue waits for, have no line of a wait."""
    x = np.zeros(4)
    with told("3", devices) as lines:
        acc.parallel(copy="x")(axpy)(x, 1)
        acc.parallel(copy="x", async_=1)(axpy)(x, 1)
        acc.wait(1, async_=2)
        acc.parallel(copy="x", async_=2, wait=[1])(axpy)(x, 1)
        omp.taskloop(lambda i: None)(range(4))
        acc.wait(2, if_=False)
        omp.task(lambda: None)().result()
    assert [line.split()[0] for line in lines] == ["upload", "launch", "download"] * 3
    assert (x == 3).all()


def test_waits_of_coroutines(told):
    """In a coroutine the waits are told as elsewhere, where they stand."""

    async def program():
        async with omp.taskgroup():
            omp.task(lambda: None)()
        await omp.taskwait()
        await omp.barrier()

    with told("3", "sim:1") as lines:
        asyncio.run(program())
    first = program.__code__.co_firstlineno
    assert [line.rpartition("line=")[0].split()[1] for line in lines] == ["end", "taskwait", "barrier"]
    assert [int(line.rpartition("=")[2]) for line in lines[1:]] == [first + 3, first + 4]


def test_what_is_only_recorded_is_no_wait(told):
    """While a region is recorded and nothing runs, nothing is told."""
    with told("3", "sim:1") as lines, omp.record(execute=False):
        with omp.taskgroup():
            omp.target(nowait=True)(axpy_private)(np.zeros(2))
        omp.taskwait()
        acc.wait()
    assert lines == []


# -- the switch -------------------------------------------------------------------------------------
@pytest.mark.parametrize("env", [{}, {"OFFLOAD_NOTIFY": "0"}, {"OFFLOAD_NOTIFY": " "}])
def test_off(env, devices, capfd):
    """Without the variable, or with 0, nothing is written, and no device has anything to write with."""
    with omp.Runtime(devices, check=True, env=env) as runtime:
        acc.parallel(async_=1)(axpy)(np.zeros(4), 1)
        acc.wait()
        assert [runtime.notify, *(place.notify for place in runtime.places)] == [None] * (1 + len(runtime.places))
    assert capfd.readouterr() == ("", "")


def test_runtimes_have_their_own(told):
    """The switch is a runtime's: one beside it stays silent."""
    with told("1", "sim:1") as lines, omp.Runtime("sim:1", check=True, env={}):
        omp.target(axpy)(np.zeros(2), 1)
    assert lines == []


def test_lines_of_threads_are_whole(told):
    """What several threads launch at the same time is told in whole lines."""
    with told("3", "sim:2", num_threads=2) as lines:

        def work(number):
            x = np.zeros(8)
            for _ in range(20):
                acc.parallel(copy="x", async_=number, device=number % 2)(axpy)(x, 1)
                acc.wait(number, device=number % 2)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(lines) == 4 * 20 * 4
    assert all(LINE.fullmatch(line) for line in lines)


class Refusing:
    """A stream that is closed."""

    def write(self, text):
        raise ValueError("I/O operation on closed file")


@pytest.mark.parametrize("stderr", [None, Refusing()])
def test_without_a_stderr(stderr, monkeypatch):
    """Where there is no stderr, or it is closed, the program goes on as without the switch."""
    x = np.zeros(4)
    monkeypatch.setattr(sys, "stderr", stderr)
    with omp.Runtime("sim:1", check=True, env={"OFFLOAD_NOTIFY": "3"}):
        acc.parallel(async_=1)(axpy)(x, 1)
        acc.wait()
    assert (x == 1).all()
