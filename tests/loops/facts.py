"""What tests of remembered facts have in common: a loop with an index array, and what counts the looks at it."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import offload as omp
from offload import to
from offload.devices.sim.device import SimDevice
from offload.loops.proofs.bounds import LOOK_LIMITS
from offload.loops.running.cuda_runs import CudaBlank
from offload.loops.running.looks import DeviceLooks, Looks
from tests.conftest import checked
from tests.loops.cuda_device import HostCuda
from tests.loops.cuda_form import GXX

N = 48
AWAY = N + 3
KINDS = ["sim", pytest.param("cuda", marks=pytest.mark.skipif(GXX is None, reason="no g++"))]


def gather(p, x, y):
    for i in range(p.size):
        y[i] = x[p[i]]


class Facts:
    """A runtime in which loops look at index arrays, however short they are.

    Attributes
    ----------
    looks : list of str
        The arrays that have been looked at.
    gather : TargetLoop
        A loop of which nothing is known yet, that reads ``x`` at the indices ``p``.
    """

    def __init__(self):
        self.looks = []
        self.gather = omp.target_loop(gather)
        self.p, self.x, self.y = np.arange(N), np.arange(float(N)), np.zeros(N)

    def settle(self):
        """Call the loop, which looks at the indices, until it does so no more."""
        for _ in range(4):
            self.gather(self.p, self.x, self.y)
        return self.looks == ["p"]

    @contextlib.contextmanager
    def present(self):
        """Map the arrays around a block."""
        arrays = self.p, self.x, self.y
        omp.target_enter_data(map=[to(*arrays)])
        try:
            yield
        finally:
            omp.target_exit_data(map=[omp.release(*arrays)])


def launches(monkeypatch):
    """Return the list of launches on CUDA to come: whether each kernel has checks."""
    found = []
    launch = CudaBlank.launch

    def launched(blank, *args):
        found.append(blank.is_reported)
        launch(blank, *args)

    monkeypatch.setattr(CudaBlank, "launch", launched)
    return found


@contextlib.contextmanager
def facts(kind, monkeypatch):
    """Open a runtime on a simulated device, whose kernels are C or CUDA, or on a GPU."""
    found = Facts()
    monkeypatch.setattr(LOOK_LIMITS, "n_iterations", 1)
    for of, name in ((Looks, "_look"), (DeviceLooks, "_enqueue")):
        look = getattr(of, name)

        def counted(self, part, *args, look=look):
            found.looks.append(part.array)
            return look(self, part, *args)

        monkeypatch.setattr(of, name, counted)
    if kind == "cuda":
        monkeypatch.setattr(SimDevice, "kernels", HostCuda())
    with checked("cuda:0" if kind == "gpu" else "sim:1"):
        yield found
