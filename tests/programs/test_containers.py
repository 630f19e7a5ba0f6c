"""Arrays in containers that regions are passed: those of the host are told of, those of a device followed and held."""

from __future__ import annotations

import collections
import dataclasses
import gc
import threading
import warnings

import numpy as np
import pytest

import offload as omp
from offload import acc, inout, tofrom
from offload.arrays.items import MAPPERS
from tests.patience import until


@dataclasses.dataclass
class Pair:
    """A class without a mapper."""

    left: object
    right: object = None


class Sparse:
    """What is looked at of a sparse matrix: a class with a number of non-zeros, and arrays in attributes."""

    nnz = property(lambda self: len(self.data))

    def __init__(self, data):
        self.data = data


CONTAINERS = {
    "list": lambda a: [1, a],
    "tuple": lambda a: ("x", (a,)),
    "dict": lambda a: {"a": [a]},
    "dataclass": lambda a: Pair(1, Pair(a)),
    "deque": lambda a: collections.deque([a]),
    "sparse matrix": Sparse,
}


def nothing(*args, **kwargs):
    """Do nothing: the body of a region that is passed something."""


@pytest.fixture
def runtime():
    with omp.Runtime("sim:1", num_threads=1, check=True) as runtime:
        yield runtime


@pytest.fixture(params=["target", "nowait", "acc"])
def region(request, runtime):
    directive = {"target": omp.target, "nowait": omp.target(nowait=True), "acc": acc.kernels}[request.param]
    yield directive(nothing)
    omp.taskwait()


# -- of the host ------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", CONTAINERS)
def test_host_arrays_in_containers_are_told_of(region, kind):
    """A region on a device that is passed a host array in a container warns at the call, and says what to do."""
    held = CONTAINERS[kind](np.ones(3))
    with pytest.warns(omp.DirectiveWarning, match=r"declare_mapper") as caught:
        region(held)
    with pytest.warns(omp.DirectiveWarning, match="argument held"):
        region(held=held)
    assert caught[0].filename == __file__
    assert "float64[3]" in str(caught[0].message)


def test_objects_with_a_mapper_in_containers_are_told_of(region):
    """A mapper is not applied to an object in a container, which the region says."""
    before = dict(MAPPERS)
    try:
        omp.declare_mapper(Pair, lambda pair: [tofrom(pair.left)])
        region(Pair(np.ones(3)))
        with pytest.warns(omp.DirectiveWarning, match="Pair"):
            region([Pair(np.ones(3))])
    finally:
        MAPPERS.clear()
        MAPPERS.update(before)


def test_one_warning_a_line(runtime):
    """A region in a loop warns once, as Python's warnings are shown."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            omp.target(nothing)([np.ones(3)])
    assert [one.category for one in caught].count(omp.DirectiveWarning) == 1


def test_what_is_no_cause_to_warn(region):
    """Containers without arrays of the host, empty arrays, cycles and other objects are passed as they are."""
    d = omp.target_alloc(3)
    cycle = [1, "x"]
    cycle.append(cycle)
    for value in (cycle, {"n": 3}, [d], Pair(d), [np.zeros(0)], (np.float64(1),), Pair, object(), range(5), [None]):
        region(value, key=value)
    omp.taskwait()
    omp.target_free(d)


def test_regions_on_the_host_do_not_warn(runtime):
    """Where the region runs on the host, its arrays are host arrays, wherever they are held."""
    omp.target(nothing, if_=False)([np.ones(3)])
    omp.target(nothing, device=omp.get_initial_device())([np.ones(3)])


# -- of a device ------------------------------------------------------------------------------------
class Held:
    """Stands for the calling thread's own stream, which a simulated device has not: one that a latch holds."""

    def __init__(self, monkeypatch, log):
        self.latch = threading.Event()
        device = omp.device(0)
        stream = omp.stream(0)
        stream.launch(self.latch.wait)
        stream.launch(log.append, "caller")
        monkeypatch.setattr(type(device), "caller_event", lambda _: stream.record())


@pytest.mark.parametrize("kind", CONTAINERS)
@pytest.mark.parametrize("directive", ["target", "acc"])
def test_device_arrays_in_containers_are_followed(runtime, monkeypatch, kind, directive):
    """A region that is passed a device array in a container follows what the caller's own stream held at the call."""
    log = []
    d = omp.target_alloc(3)
    deferred = {"nowait": True} if directive == "target" else {"async_": 3}
    made = {"target": omp.target, "acc": acc.parallel}[directive]
    held = Held(monkeypatch, log)
    task = made(lambda x: log.append("body"), **deferred)(CONTAINERS[kind](d))
    omp.target(nothing, nowait=True)(3).result()  # the worker had time for a body that nothing held
    held.latch.set()
    task.result()
    assert log == ["caller", "body"]
    omp.target_free(d)


def test_device_arrays_in_containers_are_held(runtime, monkeypatch):
    """A device array in a container lives until the region is complete, though the program empties the container."""
    used = omp.device(0).memory_info()[0]
    held = Held(monkeypatch, [])
    values = [omp.target(lambda a: a + 1)(np.zeros(1000))]
    task = omp.target(nothing, nowait=True)(values)
    values.clear()
    gc.collect()
    assert omp.device(0).memory_info()[0] == used - 8000
    held.latch.set()
    task.result()
    del task

    def is_free():
        gc.collect()
        return omp.device(0).memory_info()[0] == used

    until(is_free)  # whoever has told the end may have the task yet


def test_interop_follows_the_callers_stream(runtime, monkeypatch):
    """interop whose dependences name device arrays follows what the caller's own stream held at its entry."""
    log = []
    d = omp.target_alloc(3)
    held = Held(monkeypatch, log)
    with omp.interop(depend=[inout(d)]) as block:
        block.stream.launch(log.append, "block")
    held.latch.set()
    omp.taskwait()
    block.stream.synchronize()
    assert log == ["caller", "block"]
    omp.target_free(d)


def test_returned_containers_are_looked_through():
    """A view of storage that the construct releases is refused in every container that arguments are looked for in."""
    with omp.Runtime("sim:1", check=True):
        for make in CONTAINERS.values():
            with pytest.raises(omp.MapError, match="releases"):
                omp.target(lambda x, make=make: make(x[1:]))(np.ones(3))
