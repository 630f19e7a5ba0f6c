"""`use_allocator` without CUDA devices, and the choice of pools by memory that stands for open devices."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import offload as omp
from offload.devices.cuda import allocators


class Memory:
    """The memory of a device, which notes its pools."""

    def __init__(self, index, fails=()):
        self.index, self.fails = index, fails
        self.pools = []
        allocators.enter(self)
        (self.pool,), self.taken = self.pools, []

    def make_pool(self, name):
        if name != allocators.OWN:
            allocators.library(name)
        if name in self.fails:
            raise omp.UnsupportedError(name)
        return name, self.index

    def take_from(self, pool):
        assert allocators._choice.lock._is_owned()
        (self.taken if hasattr(self, "taken") else self.pools).append(pool)


@pytest.fixture(autouse=True)
def default_again(monkeypatch):
    """Leave the process's choice, and its libraries, as they are."""
    monkeypatch.setattr(allocators, "_choice", allocators._Choice())
    for name in ("torch", "rmm"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return monkeypatch


@pytest.mark.parametrize("name", ["Torch", "", "jax", 3, ("torch",), b"cupy"])
def test_a_wrong_name_is_an_error(name):
    """A name that is no allocator's is a ClauseError that lists the names."""
    with pytest.raises(omp.ClauseError, match=r"'offload', 'torch', 'cupy', 'rmm', or None"):
        omp.use_allocator(name)


@pytest.mark.parametrize("name", ["torch", "cupy", "rmm", "offload", None])
def test_without_cuda_the_name_is_enough(name, sim):
    """Where no CUDA device is open the call imports nothing, and the simulated device allocates as before."""
    imported = set(sys.modules)
    omp.use_allocator(name)
    assert not {"torch", "cupy", "rmm"} & (set(sys.modules) - imported)
    d = omp.target_alloc(10, "f4")
    assert d.nbytes == 40
    omp.target_free(d)


def test_open_devices_change_and_later_ones_follow(default_again):
    """Each open device gets a pool of its own, closed ones none; a device that is opened later has the same choice."""
    default_again.setitem(sys.modules, "rmm", SimpleNamespace())
    first, second, closed = Memory(0), Memory(1), Memory(2)
    assert first.pool == ("offload", 0)
    allocators.leave(closed)
    omp.use_allocator("rmm")
    assert (first.taken, second.taken, closed.taken) == ([("rmm", 0)], [("rmm", 1)], [])
    third = Memory(3)
    assert third.pool == ("rmm", 3)
    omp.use_allocator(None)
    assert [memory.taken[-1] for memory in (first, second, third)] == [("offload", 0), ("offload", 1), ("offload", 3)]


def test_a_library_that_is_not_imported_is_an_error():
    """With an open CUDA device the call raises; if the device is opened later, that does. Nothing is changed."""
    memory = Memory(0)
    with pytest.raises(omp.UsageError, match="import it first"):
        omp.use_allocator("torch")
    assert memory.taken == []
    assert Memory(1).pool == ("offload", 1)
    allocators.leave(memory)


def test_a_device_that_is_opened_later_needs_the_library():
    """A choice that was made before there was a device is checked when one is opened."""
    omp.use_allocator("torch")
    with pytest.raises(omp.UsageError, match="not imported torch"):
        Memory(0)
    omp.use_allocator(None)
    assert Memory(0).pool == ("offload", 0)


def test_all_devices_or_none_change(default_again):
    """If one device cannot have the allocator, the others keep theirs."""
    default_again.setitem(sys.modules, "torch", SimpleNamespace())
    first, second = Memory(0), Memory(1, fails=("torch",))
    with pytest.raises(omp.UnsupportedError):
        omp.use_allocator("torch")
    assert (first.taken, second.taken) == ([], [])
    assert Memory(2).pool == ("offload", 2)
