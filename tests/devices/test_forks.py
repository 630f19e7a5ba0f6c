"""Forked children of a process that has used CUDA, with a stand-in for the module that reaches CUDA.

The stand-in is a simulated device under CUDA's name: everything up to CUDA itself is as it is on a GPU, where
`tests/gpu/test_forked.py` asks the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PREAMBLE = """
import multiprocessing, os, sys, types
import numpy as np
import offload as omp
from offload import acc
from offload.devices.sim.device import SimDevice

class CudaDevice(SimDevice):
    kind = "cuda"
    def __init__(self, number, index):
        if fails: raise error()
        super().__init__(number)

class NotInitialized(RuntimeError):
    status = 3

def error():
    return NotInitialized("cudaErrorInitializationError: initialization error")

fails = False
cuda = types.ModuleType("offload.devices.cuda.device")
cuda.CudaDevice, cuda.device_count = CudaDevice, lambda: 1
sys.modules["offload.devices.cuda.device"] = cuda

def refused(call):
    try:
        call()
    except omp.UsageError as error:
        words = str(error)
        assert "forked" in words and "spawn" in words and "forkserver" in words, words
        return True
    return False

a = np.zeros(4)
calls = {
    "target": lambda: omp.target(lambda a: None)(a),
    "task": lambda: omp.target(lambda a: None, nowait=True)(a),
    "data": lambda: omp.target_data([omp.tofrom(a)]).__enter__(),
    "enter": lambda: omp.target_enter_data([omp.to(a)]),
    "update": lambda: omp.target_update(to=[a]),
    "alloc": lambda: omp.target_alloc(4),
    "present": lambda: omp.target_is_present(a, 0),
    "devices": lambda: omp.devices(),
    "memory": lambda: omp.device(0).memory_info(),
    "stream": lambda: omp.current_stream(),
    "runtime": lambda: omp.Runtime("cuda:0"),
    "all": lambda: omp.Runtime("sim:1,cuda"),
    "acc": lambda: acc.data(copy=[a]).__enter__(),
}
def every():
    return [name for name, call in calls.items() if not refused(call)]

def of_sim():
    with omp.Runtime("sim:1", check=True):
        omp.target(lambda a: a.fill(1))(a)
    return a[0]

def in_child(call):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(call)
"""


def run(program, *, devices=""):
    """Run a program and return what it has printed."""
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "OFFLOAD_DEVICES": devices},
        cwd=Path(__file__).parents[2],
    )
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("devices", ["", "cuda:0"])
def test_every_entry(devices):
    """In a child of the default runtime's process each construct and routine names the fork; simulated devices work."""
    printed = run(
        """
        omp.target(lambda a: None)(a)
        print(in_child(every), in_child(of_sim))
        """,
        devices=devices,
    )
    assert printed == "[] 1.0\n"


def test_in_a_block():
    """Where the parent's runtime is current, it is the parent's, and the error says how to start the child."""
    printed = run("""
        with omp.Runtime("cuda:0") as runtime:
            print(in_child(every), in_child(of_sim))
        """)
    assert printed == "[] 1.0\n"


def test_the_error_reaches_the_parent():
    """A pool gives the error to the process that asked."""
    printed = run("""
        omp.devices()
        try:
            in_child(omp.devices)
        except omp.UsageError as error:
            print(error)
        """)
    assert "spawn or forkserver" in printed


def test_cuda_that_the_program_used_alone():
    """Where CUDA's own error comes first, it is the cause."""
    printed = run("""
        def child():
            global fails
            fails = True
            try:
                omp.Runtime("cuda:0")
            except omp.UsageError as error:
                return type(error.__cause__).__name__, refused(lambda: omp.Runtime("cuda"))
        print(in_child(child))
        """)
    assert printed == "('NotInitialized', True)\n"


def test_who_has_not_used_it():
    """A child may be the first to use CUDA; a grandchild of who has used it may not; simulated devices fork."""
    printed = run("""
        def child():
            return omp.target(lambda: omp.get_device_num())(), omp.devices()[0].kind
        with omp.Runtime("sim:1"):
            pass
        print(in_child(child))
        omp.Runtime("sim:1").close()
        omp.devices()
        pid = os.fork()
        if not pid:
            pid = os.fork()
            if not pid:
                print(every(), flush=True)
                os._exit(0)
            os.waitpid(pid, 0)
            os._exit(0)
        os.waitpid(pid, 0)
        """)
    assert printed == "(0, 'cuda')\n[]\n"
