"""Tests that all ranks run in step: one that fails ends the whole job, since the others would wait for it."""

from __future__ import annotations

import gc
import os
import sys
import time

import pytest
from mpi4py import MPI

import offload as omp
from offload.events.progress import progress
from tests.conftest import check_nothing_left
from tests.patience import PATIENCE_S


def pytest_runtest_logreport(report):
    """End the job with the report of the first failure."""
    if report.failed:
        text = f"rank {MPI.COMM_WORLD.rank}: {report.nodeid} failed in its {report.when}\n{report.longreprtext}\n"
        sys.__stderr__.write(text)
        sys.__stderr__.flush()
        MPI.COMM_WORLD.Abort(1)


@pytest.fixture
def comm():
    """A communicator of all ranks, of this test alone."""
    comm = MPI.COMM_WORLD.Dup()
    yield comm
    comm.Barrier()
    comm.Free()


@pytest.fixture
def left(comm):
    return (comm.rank - 1) % comm.size


@pytest.fixture
def right(comm):
    return (comm.rank + 1) % comm.size


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.slow), 4])
def runtime(request, comm):
    """A current runtime with four workers, or one; afterwards nothing may be left of it, and no request open."""
    devices = os.environ.get("OFFLOAD_TESTS_MPI_DEVICES", "sim:1")
    with omp.Runtime(devices, num_threads=request.param, check=True) as runtime:
        yield runtime
    gc.collect()  # a call's failure holds the frames in which it was raised
    ended_s = time.monotonic() + PATIENCE_S
    while any(place.device.live_nbytes() for place in runtime.places) and time.monotonic() < ended_s:
        time.sleep(0.001)  # the thread that has told of the last request may be about to let go of its arrays
    check_nothing_left(runtime)
    assert progress.n_open == 0
