"""Regions on the GPU that map storage of their own, one after the other: the next uses what the one before has left."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import inout, tofrom
from tests.gpu.conftest import cupyx

pytestmark = pytest.mark.gpu

N_REGIONS = 20


@pytest.fixture
def host():
    x = cupyx.empty_pinned((8192,), "f4")
    x[:] = 0
    return x


@pytest.fixture
def allocated(gpu, monkeypatch):
    """The sizes of what is allocated on the device from now on."""
    device = gpu.places[0].device
    found = []
    alloc = device.alloc

    def noted(shape, dtype, stream):
        found.append(shape)
        return alloc(shape, dtype, stream)

    monkeypatch.setattr(device, "alloc", noted)
    return found


def held_chain(host, latch, body):
    """Launch regions that map an array behind a kernel that does not end yet; return what releases that and waits."""
    latch.again()

    def first(x):
        latch.hold(omp.current_stream())
        body(x)

    clauses = {"nowait": True, "map": [tofrom(host)], "depend": [inout(host)]}
    omp.target(first, **clauses)(host)
    region = omp.target(body, **clauses)
    tasks = [region(host) for _ in range(N_REGIONS)]
    assert not tasks[0].done()

    def end():
        latch.release()
        omp.taskwait()

    return end


def bump(x):
    x += 1


def test_a_chain_of_regions_has_one_buffer(gpu, host, latch, allocated):
    """Regions that follow each other on a stream map an array 20 times with one buffer; each sees the one before."""
    omp.target(bump, map=[tofrom(host)])(host)
    allocated.clear()
    end = held_chain(host, latch, bump)
    assert len(allocated) == 1  # `first` has the same list items
    end()
    assert (host == 2 + N_REGIONS).all()
    assert gpu.places[0].device.live_nbytes() == 0


@pytest.mark.parametrize(
    "keep",
    [lambda x: x, lambda x: x[1:], lambda x: x.reshape(2, -1), lambda x: x.data, lambda x: x.data.mem, lambda x: x.T],
    ids=["array", "part", "reshaped", "pointer", "memory", "transposed"],
)
def test_what_a_body_keeps_is_not_used_again(gpu, host, latch, allocated, keep):
    """A body that keeps an array, a view of it or its memory has the regions after it use another buffer."""
    kept = []

    def keeping(x):
        x += 1
        if len(kept) < 3:
            kept.append(keep(x))

    omp.target(bump, map=[tofrom(host)])(host)
    allocated.clear()
    held_chain(host, latch, keeping)()
    assert len(allocated) >= 4
    assert (host == 2 + N_REGIONS).all()
    device = gpu.places[0].device
    arrays = [part for part in kept if hasattr(part, "shape")]
    assert None not in [device.retired(array) for array in arrays]
    kept.clear()


def test_arrays_in_turn(gpu):
    """Chains of regions on several arrays, each with its own, give what they give one after the other."""
    hosts = [cupyx.empty_pinned((n,), np.float32) for n in (1000, 1000, 4096)]
    for host in hosts:
        host[:] = 0
    regions = [omp.target(bump, nowait=True, map=[tofrom(host)], depend=[inout(host)]) for host in hosts]
    for _ in range(100):
        for region, host in zip(regions, hosts, strict=True):
            region(host)
    omp.taskwait()
    assert all((host == 100).all() for host in hosts)
