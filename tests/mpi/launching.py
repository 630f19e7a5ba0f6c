"""Starts ranks: what the tests of this folder run under ``mpiexec``, with a time limit."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.profiles import is_quick

HERE = Path(__file__).parent
LIMIT_S = 100
ROOT = dict.fromkeys(["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"], "1") if os.geteuid() == 0 else {}
"""What Open MPI's launcher asks root for."""

STRIKES = """
import os, signal, threading, time
came = threading.Event()
def strike():
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)
    came.wait()  # else two signals may be one
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)
striking = threading.Thread(target=strike)
"""
"""A part of a rank's program: the thread ``striking`` interrupts it, and once more when ``came`` has been set."""


def mpiexec():
    """Return the command that starts ranks: `OFFLOAD_TESTS_MPIEXEC`, else that of the wheel beside this Python."""
    given = os.environ.get("OFFLOAD_TESTS_MPIEXEC")
    if given:
        return shlex.split(given)
    beside = Path(sys.executable).parent
    found = shutil.which("mpiexec", path=os.pathsep.join([str(beside), os.environ.get("PATH", "")]))
    return [found] if found else []


def why_not():
    """Return why there can be no ranks here; None where there can."""
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed: pip install 'offload[mpi]'"
    if not mpiexec():
        return "there is no mpiexec: pip install mpich"
    return None


needs_mpi = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def on_ranks(*counts):
    """Run a test on so many ranks: on two always, on other numbers with ``-m slow``, where ranks share cores.

    A test that only runs a file of ``ranks/`` leaves two ranks to `test_two_ranks.py`, which starts all files at once.
    """
    return pytest.mark.parametrize(
        "n_ranks", [count if count == 2 else pytest.param(count, marks=pytest.mark.slow) for count in counts]
    )


def start(n_ranks, *args, env=None, command=None, **options):
    """Start ``python *args`` on so many ranks, in a process group of their own, by `mpiexec` or another ``command``."""
    command = [*(command or mpiexec()), "-n", str(n_ranks), sys.executable, *args]
    mark = f"OFFLOAD_TESTS_JOB={uuid.uuid4()}"
    name, _, value = mark.partition("=")
    environment = {**os.environ, **ROOT, "OFFLOAD_TESTS_RANKS": str(n_ranks), name: value, **(env or {})}
    job = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **options,
    )
    job.mark = mark.encode()
    return job


def processes_of(job):
    """Return the processes of a job that are alive, by the mark in their environment; where there is no /proc, none."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes()
        except OSError:  # it has ended meanwhile, or is not ours
            continue
        if job.mark in environment.split(b"\0"):
            found.append(int(path.parent.name))
    return found


def kill(job):
    """Kill what there is of a job; return what was alive."""
    left = processes_of(job)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)
    return left


def read_until(job, pattern, n, limit_s=LIMIT_S, printed=""):
    """Read what a job prints, after what was read before, until a pattern has come so often; return all of it."""
    end_s = time.monotonic() + limit_s
    descriptor = job.stdout.fileno()
    while len(re.findall(pattern, printed)) < n:
        is_ready, _, _ = select.select([descriptor], [], [], max(0.0, end_s - time.monotonic()))
        found = os.read(descriptor, 65_536).decode() if is_ready else ""
        if not found:
            kill(job)
            pytest.fail(f"{pattern!r} did not come {n} times:\n{printed}", pytrace=False)
        printed += found
    return printed


def finish(job, limit_s=LIMIT_S):
    """Wait for a job and return what it has printed; one that hangs or leaves ranks behind is killed, and fails."""
    try:
        printed, _ = job.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        kill(job)
        printed, _ = job.communicate()
        pytest.fail(f"the ranks were not through after {limit_s} s:\n{printed}", pytrace=False)
    end_s = time.monotonic() + 15
    while processes_of(job):
        if time.monotonic() > end_s:
            pytest.fail(f"the launcher has ended, and left {kill(job)} behind:\n{printed}", pytrace=False)
        time.sleep(0.01)
    return printed


def run(n_ranks, *args, limit_s=LIMIT_S, env=None, **options):
    """Run ``python *args`` as `start` does; return the exit status and what was printed."""
    job = start(n_ranks, *args, env=env, **options)
    printed = finish(job, limit_s)
    return job.returncode, printed


def run_tests(n_ranks, names, *args, limit_s=LIMIT_S, env=None):
    """Run the tests of one file of ``ranks/`` or of several on so many ranks, in step; fail if one of them fails.

    By default their tests of the mark ``slow`` are left out.
    """
    names = [names] if isinstance(names, str) else names
    if not is_quick():
        args = ("-m", "not soak", *args)
    status, printed = run(
        n_ranks,
        *(
            "-m",
            "pytest",
            "-q",
            "-x",
            "--no-header",
            "--durations=4",
            "-p",
            "no:cacheprovider",
            "-o",
            f"timeout={limit_s - 5}",
        ),
        *args,
        *(str(HERE / "ranks" / name) for name in names),
        limit_s=limit_s,
        env=env,
        cwd=HERE.parent.parent,
    )
    if status:
        pytest.fail(f"{', '.join(names)} on {n_ranks} ranks ended with {status}:\n{printed}", pytrace=False)
    return printed
