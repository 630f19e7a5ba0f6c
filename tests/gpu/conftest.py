"""What the GPU tests share: CuPy where it is installed, kernels that hold a stream, programs of their own process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import offload as omp
from tests.conftest import checked

try:
    import cupy
    import cupyx
except ModuleNotFoundError:  # then every test with the marker is skipped
    cupy = cupyx = None

HOLD = """
extern "C" __global__ void hold(volatile int* released) { while (!*released) { } }
"""


class Latch:
    """A kernel that holds a stream until `release`: a flag in pinned host memory that it polls.

    CUDA loads code when it is first used, and waits for the kernels that run to do so. What is to be launched while
    a stream is held must have run before; `warm` has the array operations of these tests run. CUDA may also wait for
    kernels where pinned memory is allocated, and where modules are unloaded. So the latch leaves free blocks in CuPy's
    pool, and no garbage is collected while it holds.
    """

    def __init__(self):
        self._was_enabled = gc.isenabled()
        blocks = [cupy.cuda.alloc_pinned_memory(nbytes) for nbytes in (512, 1024, 4096) for _ in range(64)]
        del blocks
        self._flag = cupyx.empty_pinned((1,), "i4")
        self._address = np.uint64(self._flag.ctypes.data)  # under unified addressing also the device's
        self._kernel = cupy.RawKernel(HOLD, "hold")
        self._flag[0] = 1
        self._kernel((1,), (1,), (self._address,))
        cupy.cuda.Device().synchronize()
        self._flag[0] = 0

    def hold(self, stream):
        gc.disable()
        with stream:
            self._kernel((1,), (1,), (self._address,))

    def release(self):
        self._flag[0] = 1
        if self._was_enabled:
            gc.enable()

    def again(self):
        """Hold what is launched from now on; nothing may be held at the time."""
        self._flag[0] = 0


def warm():
    """Load the code of the array operations that these tests use while a stream is held."""
    for dtype in ("f8", "f4", "i8", "u1"):
        array, other = cupy.zeros(8, dtype), cupy.ones(8, dtype)
        array += 1
        array += other
        array[...] = other
        array[::2] = other[::2]
        array.fill(2)
        array *= 2
        (array + other).sum().get()
    cupy.cuda.Device().synchronize()


@pytest.fixture
def gpu():
    """A current runtime on the first GPU; afterwards nothing may be left of it."""
    with checked("cuda:0") as runtime:
        warm()
        with cupy.cuda.Device(0):  # what the first stream of the device loads
            runtime.places[0].device._copies.load()
        yield runtime


@pytest.fixture
def latch():
    """A latch, which is released at the end whatever happens."""
    latch = Latch()
    yield latch
    latch.release()
    cupy.cuda.Device().synchronize()


@pytest.fixture
def torch():
    """PyTorch, whose operations of these tests have run once: CUDA loads code when it is first used, and then waits."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for dtype in (torch.float32, torch.float64):
                x = torch.full((1000,), 2.0, dtype=dtype, device="cuda")
                x.add_(1).mul_(2).add_(x)
                (x + x).sum().item()
    yield torch
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def tensor(x):
    """Return a tensor over the memory of an argument, which is one or a CuPy array."""
    import torch

    return x if isinstance(x, torch.Tensor) else torch.as_tensor(x, device="cuda")


PREAMBLE = """
import atexit, faulthandler, os, sys, threading, time
faulthandler.dump_traceback_later({hang_s}, exit=True)
import cupy, cupyx, numpy as np
{first}
import offload as omp
from offload import *
from tests.gpu.conftest import Latch, warm
"""


def python(program, *, status=0, hang_s=20, first="", **env):
    """Run a program that uses the GPU in a process of its own and return what it wrote to stdout and stderr.

    One that hangs prints the stacks of its threads after ``hang_s`` seconds and fails. ``first`` runs after CuPy is
    imported, and before the library is.
    """
    start_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE.format(hang_s=hang_s, first=first) + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=hang_s + 20,
        check=False,
        env={**os.environ, "OFFLOAD_DEVICES": "cuda:0", **env},
        cwd=Path(__file__).parents[2],
    )
    took_s = time.monotonic() - start_s
    if done.returncode != status:
        what = f"status {done.returncode} instead of {status} after {took_s:.0f} s"
        pytest.fail(f"{what}\n{done.stdout}\n{done.stderr}", pytrace=False)
    return done.stdout, done.stderr


def complaints(stderr):
    """Return the lines by which finalisers and the interpreter complain, but for what CuPy does on a lost device."""
    found = []
    for line in stderr.splitlines():
        if line.startswith(("Exception ignored", "Fatal Python error", "terminate called", "Segmentation fault")):
            of_cupy = ("cupy.cuda.function.Module", "Stream.__del__", "PinnedMemory.__del__")
            found += [] if any(name in line for name in of_cupy) else [line]
    return found


def device_of(runtime):
    """Return the first device of a runtime, behind the public interface: for spies."""
    return runtime.places[0].device


def device_array(values, dtype="f8"):
    """Return a block of `target_alloc` that holds these values."""
    host = np.asarray(values, dtype)
    array = omp.target_alloc(host.shape, host.dtype)
    omp.target_memcpy(array, host)
    return array
