"""Replica sets on CUDA devices: data constructs on several, plain ones on one of them, copies between."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

import offload as omp
from offload import acc
from tests.conftest import check_nothing_left, checked
from tests.constructs.test_replicas_rules import Program
from tests.gpu.conftest import cupy, cupyx

pytestmark = pytest.mark.gpu

if cupy is not None:
    import tests.gpu.twins  # noqa: F401  # registers the kind

SHAPES = [(70_000,), (300, 401), (5, 8), (30, 40, 50), ()]
"""Some are staged: pageable, and more than the driver takes at a call."""


@pytest.fixture(params=["twin:2", "twin:3", "cuda:0,cuda:1"])
def several(request):
    """What a runtime takes for several devices: on one GPU, and on two."""
    if request.param.startswith("cuda") and cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    return request.param


class OnGpus(Program):
    """Computes on the device of an array."""

    def add_one(self, array):
        with array.device:
            array += 1
            cupy.cuda.get_current_stream().synchronize()


class OneGpu(OnGpus):
    """Without what names a device by the address of an array, which twins share."""

    by_address = ()


@pytest.mark.parametrize("seed", range(12))
def test_constructs_see_what_the_ones_before_have_left(several, seed):
    """Random constructs on replicated and plain data have NumPy's values."""
    rng = random.Random(seed)
    program = OnGpus if several.startswith("cuda") else OneGpu
    with omp.Runtime(several, check=True, num_threads=rng.randint(0, 2)) as runtime:
        program(rng, len(runtime.places), Counter(), SHAPES).run()
        assert not any(place.sets for place in runtime.places)
    check_nothing_left(runtime)


@pytest.mark.parametrize("is_pinned", [False, True])
@pytest.mark.parametrize("of_openacc", [False, True])
def test_a_region_on_all_devices(several, is_pinned, of_openacc):
    """Host memory of both kinds is copied to all devices, and back from those that have the parts."""
    n = 1 << 20
    a = cupyx.empty_pinned(n) if is_pinned else np.empty(n)
    a[:] = np.arange(n)
    with checked(several) as runtime:
        devices = len(runtime.places)
        region = acc.data(copy=[a], devices="all") if of_openacc else omp.target_data([omp.tofrom(a)], devices="all")
        with region:
            for device in range(devices):

                @omp.target(device=device)
                def body(x, device=device):
                    x += device + 1

                body(a[n * device // devices : n * (device + 1) // devices])
            assert [replicas.sent_nbytes for replicas in runtime.places[0].sets] == [0]
    want = np.arange(n) + 1.0
    for device in range(devices):
        want[n * device // devices : n * (device + 1) // devices] += device
    assert np.array_equal(a, want)


def one(x):
    x += 1


def test_one_device_of_a_list():
    """``devices=[0]`` is ``device=0``: no set, the short ways, the same values."""
    a = np.arange(100_000.0)
    with checked("cuda:0") as runtime:
        with omp.target_data([omp.tofrom(a)], devices=[0]):
            assert not runtime.places[0].sets
            omp.target(one)(a)
            acc.update(host=[a], devices="all")
            omp.target_update(to=[a], devices=[0])
        with acc.data(copyin=[a], devices=[0]):
            pass
    assert np.array_equal(a, np.arange(100_000.0) + 1)


def test_what_has_replicas_is_in_no_graph(several):
    """A region of work on replicated data is replayed on streams, and the record says why."""
    a = cupyx.empty_pinned(1000)
    a[:] = 0

    @omp.taskgraph
    def steps():
        for _ in range(3):
            omp.target(one, nowait=True, depend=omp.inout(a))(a)

    with checked(several), omp.target_data([omp.tofrom(a)], devices="all"):
        for _ in range(4):
            steps()
        assert "has replicas on several devices" in steps.records[0].why_not
    assert (a == 12).all()


@pytest.mark.measures
def test_a_replica_that_does_not_fit(several):
    """No memory for a replica leaves nothing mapped, and the message names the clause."""
    free, _ = cupy.cuda.runtime.memGetInfo()
    n = free // 8 * 7 // 10  # two do not fit into one GPU
    if several.startswith("cuda"):
        n = free // 8 * 2
    a = np.empty(n)  # never touched
    with checked(several) as runtime:
        with pytest.raises(omp.DeviceMemoryError, match="needs a replica on each"):
            omp.target_enter_data([omp.alloc(a)], devices="all")
        assert all(place.table.entries() == () for place in runtime.places)
