"""Forked children of a process that has used CUDA: an error of ours, for every entry."""

from __future__ import annotations

import pytest

import offload as omp
from tests.gpu.conftest import python

pytestmark = pytest.mark.gpu


@omp.target_loop
def loop(a):
    for i in range(len(a)):
        a[i] += 1


CHILD = """
import multiprocessing
a = np.zeros(4)
calls = {
    "target": lambda: omp.target(lambda a: None)(a),
    "data": lambda: omp.target_data([omp.tofrom(a)]).__enter__(),
    "alloc": lambda: omp.target_alloc(4),
    "devices": lambda: omp.devices()[0].memory_info(),
    "memory": lambda: omp.device(0).memory_info(),
    "pinned": lambda: omp.empty_pinned(4),
    "stream": lambda: omp.current_stream(),
    "loop": lambda: loop(a),
    "runtime": lambda: omp.Runtime("cuda:0"),
}
from tests.gpu.test_forked import loop
def every():
    told = []
    for name, call in calls.items():
        try:
            call()
        except omp.UsageError as error:
            if "forked" not in str(error) or "spawn or forkserver" not in str(error):
                told.append(f"{name}: {error}")
        except BaseException as error:
            told.append(f"{name}: {error!r}")
        else:
            told.append(name)
    with omp.Runtime("sim:1", check=True):
        omp.target(lambda a: a.fill(1))(a)
    return told
def in_child(call):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(call)
"""

PROGRAMS = {
    "default": "omp.target(lambda a: a.fill(1))(a); print(in_child(every))",
    "block": "with omp.Runtime('cuda:0'):\n    omp.target(lambda a: a.fill(1))(a)\n    print(in_child(every))",
    "devices alone": "omp.devices(); print(in_child(every))",
    "of CuPy alone": "cupy.zeros(4).sum().get(); print(in_child(every))",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_entry(name):
    """Constructs and routines raise a `UsageError` that names the fork, and the simulated device works."""
    stdout, _ = python(CHILD + PROGRAMS[name], hang_s=60)
    assert stdout == "[]\n"
