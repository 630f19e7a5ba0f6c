"""The configuration of a loop's launch, as `explain` and OFFLOAD_NOTIFY report it."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.loops.running import plan, pool, runs
from offload.loops.running.build import Builder
from offload.runtime.current import here
from tests.conftest import checked
from tests.loops.cuda_form import GXX


def scale(x):
    for i in range(x.size):
        x[i] = 2 * x[i]


def two(x, y):
    for i in range(x.size):
        x[i] = 2 * x[i]
    total = 0.0
    for i in range(3):
        total += y[i]
    return total


@contextlib.contextmanager
def told(capfd, devices="sim:1", **env):
    """Give a list that has the lines of kernels afterwards, from the place on."""
    lines = []
    with checked(devices, env={"OFFLOAD_NOTIFY": "1", **env}):
        yield lines
    for line in capfd.readouterr().err.splitlines():
        if line.startswith("kernel "):
            word, file, rest = line.partition(f" file={__file__} ")
            assert file
            lines.append(f"{word} {rest}")


def line_of(function, ahead):
    return function.__code__.co_firstlineno + ahead


def test_explain_on_a_simulated_device():
    """The report has the chunks of each nest and the threads that take them, at most."""
    with checked("sim:1"):
        report = acc.kernels_loop(num_threads=1)(two).explain(np.ones(1000), np.ones(3))
    assert [nest["launch"] for nest in report.to_dict()["nests"]] == [
        {"chunks": 64, "threads": 1},
        {"chunks": 3, "threads": 1},
    ]
    assert "    chunks 64, threads at most 1\n" in str(report)


def test_explain_in_order_is_one_chunk():
    """A loop in order is one chunk, on the host as well."""
    with checked("sim:1"):
        report = omp.parallel_loop(seq=True)(scale).explain(np.ones(100))
    assert report.to_dict()["nests"][0]["launch"] == {"chunks": 1, "threads": 1}


def test_explain_on_several_devices():
    """The report has the launch of each device that has a part of the loop."""
    x = np.ones(40)
    with checked("sim:3"):
        loop = omp.target_loop(devices="all", filter="always", num_threads=1)(scale)
        loop(x)
        report = loop.explain(x)
    line = line_of(scale, 1)
    assert report.to_dict()["filter"]["launches"] == [
        {"line": line, "device": device, "chunks": chunks, "threads": 1} for device, chunks in enumerate((13, 13, 14))
    ]
    assert f"    line {line} on device 2: chunks 14, threads at most 1\n" in str(report)


@pytest.mark.filterwarnings("ignore::offload.PerformanceWarning")
@pytest.mark.parametrize("compiler", ["", "none"])
def test_notify(capfd, compiler, monkeypatch):
    """At level 1 there is a line for each nest that is launched, with its configuration."""
    if compiler:
        for module in (pool, runs, plan):
            monkeypatch.setattr(module, "builder", Builder({"OFFLOAD_CC": compiler}))
    with told(capfd) as lines:
        acc.kernels_loop(async_=2, num_threads=1)(two)(np.ones(1000), np.ones(3))
        acc.wait(2)
        omp.target_loop(scale)(np.ones(0))  # which launches nothing
    first, second = line_of(two, 1), line_of(two, 4)
    assert lines == [
        f"kernel two line={first} device=0 queue=2 chunks=64 threads=1",
        f"kernel two line={second} device=0 queue=2 chunks=3 threads=1",
    ]


def test_notify_of_several_devices(capfd):
    """Each device that has a part has a line."""
    with told(capfd, "sim:2") as lines:
        omp.target_loop(scale, devices="all", filter="always", num_threads=1)(np.ones(40))
    at = line_of(scale, 1)
    assert lines == [f"kernel scale line={at} device={device} chunks=20 threads=1" for device in (0, 1)]


def test_notify_of_a_speculative_loop(capfd):
    """The kernel that inspects addresses has a line, and the loop after it."""

    def scatter(p, y):
        for i in range(p.size):
            y[p[i]] = i

    p, y = np.arange(100_000), np.zeros(100_000)
    with told(capfd) as lines, omp.target_data(map=[omp.to(p), omp.tofrom(y)]):
        omp.target_loop(scatter, speculate=True, num_threads=1)(p, y)
    at = line_of(scatter, 1)
    assert lines == [f"kernel scatter line={at} device=0 chunks=64 threads=1"] * 2


def test_notify_of_a_loop_in_a_body(capfd):
    """A loop in the body of a region is launched by the region's task."""
    double = omp.target_loop(scale, num_threads=1)
    with told(capfd) as lines:

        @omp.target
        def body(x):
            double(x)

        body(np.ones(10))
    assert lines == [f"kernel body line={line_of(scale, 1)} device=0 chunks=10 threads=1"]


@pytest.mark.skipif(GXX is None, reason="no g++")
def test_notify_on_cuda(cuda, monkeypatch):
    """On CUDA a line has the grid and the block, of a first call and of a settled one."""
    lines = []

    class Lines:
        def launch(self, *_):
            """Take no note."""

        copy = wait = launch

        def kernel(self, name, location, device_num, queue, configuration):
            lines.append((name, device_num, queue, configuration))

    place = here().runtime.places[0]
    monkeypatch.setattr(place, "notify", Lines())
    loop = acc.parallel_loop(vector_length=1)(scale)
    x = np.ones(100)
    with omp.target_data(map=[omp.tofrom(x)]):
        for _ in range(3):
            loop(x)
    assert lines == [("scale", 0, None, "grid=100x1x1 block=1x1x1")] * 3
