"""The devices of a Dask cluster: which there are, what bodies, values and handles are there, and what is refused."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading

import numpy as np
import pytest

import offload as omp
from offload import acc, in_, inout, out, to, tofrom
from tests import cluster
from tests.patience import until


class NotSentError(Exception):
    """Cannot be pickled."""

    def __init__(self):
        super().__init__("as it is")
        self.lock = threading.Lock()


def test_the_devices_of_the_workers(on_workers, client):
    """Devices are numbered by the workers' names, and say where they are."""
    devices = on_workers.devices()
    assert [(device.number, device.kind, device.name) for device in devices] == [
        (0, "dask", "dask:0/sim:0"),
        (1, "dask", "dask:1/sim:0"),
    ]
    assert {device.worker for device in devices} == set(client.scheduler_info(n_workers=-1)["workers"])
    assert not any(device.is_lost for device in devices)
    assert omp.get_num_devices() == omp.get_initial_device() == 2


def test_a_body_is_told_the_numbers_of_the_program(on_workers):
    """A body sees the device numbers of the client's runtime, and the name of its task."""
    where = omp.target(lambda: (omp.get_device_num(), omp.get_num_devices(), omp.is_initial_device(), os.getpid()))
    found = [where.options(device=number)() for number in range(2)]
    assert [one[:3] for one in found] == [(0, 2, False), (1, 2, False)]
    assert len({os.getpid(), *[one[3] for one in found]}) == 3
    named = omp.target(name="mine")(lambda: omp.current_task().name)
    assert named() == "mine"


@pytest.mark.parametrize("spec", ["dask", "address"])
def test_specifications(client, spec):
    """``dask`` is the default client, and an address is a scheduler's."""
    spec = spec if spec == "dask" else f"dask:{client.scheduler.address}"
    with client.as_current(), omp.Runtime(spec, check=True), omp.Runtime(None, env={"OFFLOAD_DEVICES": spec}):
        assert omp.device(1).kind == "dask"


@pytest.mark.parametrize("spec", ["dask,sim", "sim:2,dask", "dask:"])
def test_wrong_specifications(spec):
    """The devices of a cluster do not mix with others, and an address is not empty."""
    with pytest.raises(omp.errors.ClauseError):
        omp.Runtime(spec)


def test_clients_that_cannot_be_used():
    """A closed and an asynchronous client are refused, and a cluster without workers."""
    from distributed import Client, LocalCluster

    empty = LocalCluster(n_workers=0, processes=False, dashboard_address=":0")
    with empty, Client(empty) as client, pytest.raises(omp.errors.DeviceUnavailableError):
        omp.Runtime(client)
    with pytest.raises(omp.errors.UsageError):
        omp.Runtime(client)

    async def asynchronous():
        async with Client(processes=False, asynchronous=True, dashboard_address=":0") as client:
            with pytest.raises(omp.errors.UsageError):
                omp.Runtime(client)

    asyncio.run(asynchronous())


def test_a_worker_with_another_version(client, monkeypatch):
    """The message names the worker, the version that it has, and the one that it needs."""
    monkeypatch.setattr(omp, "__version__", "99.0")
    with pytest.raises(omp.errors.DeviceUnavailableError, match=r"tcp://.*99\.0"):
        omp.Runtime(client)


def test_disabled_wins(client):
    """With OMP_TARGET_OFFLOAD=DISABLED there is no device."""
    with omp.Runtime(client, env={"OMP_TARGET_OFFLOAD": "DISABLED"}) as runtime:
        assert runtime.devices() == []


def test_exceptions_arrive_unchanged(on_workers):
    """A body's exception has its class, the remote traceback as a note, and notes of the task."""
    with pytest.raises(ZeroDivisionError) as caught:
        omp.target(lambda x: 1 // 0)(np.ones(3))
    notes = "\n".join(caught.value.__notes__)
    assert "on worker 0 (tcp://" in notes
    assert "Traceback" in notes
    assert "in target '<lambda>'" in notes
    with pytest.raises(SystemExit):
        omp.target(sys.exit)(3)


def test_what_cannot_be_pickled(on_workers):
    """Bodies, arguments, values and exceptions that cannot be pickled fail their task alone."""
    x, lock = np.zeros(3), threading.Lock()

    def raises(x):
        raise NotSentError

    with pytest.raises(omp.errors.UsageError):
        omp.target(lambda x: lock)(x)
    with pytest.raises(omp.errors.UsageError):
        omp.target(lambda x, lock: None)(x, lock)
    with pytest.raises(omp.errors.UsageError):
        omp.target(lambda x: threading.Lock())(x)
    with pytest.raises(omp.errors.DeviceError, match="NotSentError"):
        omp.target(raises)(x)
    omp.target(lambda x: x.fill(1))(x)
    assert (x == 1).all()


def test_a_body_that_drags_arrays_along(on_workers):
    """The message names the variable that holds the bytes."""
    large = np.zeros(1 << 18)
    with pytest.raises(omp.errors.UsageError, match="large"):
        omp.target(lambda: float(large.sum()))()


def test_a_body_sees_variables_as_they_are_at_the_call(on_workers):
    """A variable that the program assigns between two calls has its new value in the second."""
    step, steps = 1, [1]
    body = omp.target(lambda: (step, steps[0]))
    assert body() == (1, 1)
    step, steps[0] = 2, 2
    assert body() == (2, 2)


def test_a_failed_body_copies_nothing_back(on_workers):
    """The host's data is as before, and the dependent task does not run."""
    x, y = np.zeros(3), np.zeros(3)

    def breaks(x):
        x += 1
        raise ValueError

    failed = omp.target(breaks).options(nowait=True, depend=[inout(x)])(x)
    follows = omp.target(lambda x, y: y.fill(1)).options(nowait=True, device=1, depend=[in_(x), out(y)])(x, y)
    other = omp.target(lambda y: y.__iadd__(5) is None).options(nowait=True)(y.copy())
    assert isinstance(follows.exception().__cause__, ValueError)
    assert follows.state == "not run"
    assert isinstance(failed.exception(), ValueError)
    assert other.exception() is None
    assert not x.any()
    assert not y.any()
    omp.target(lambda x: x.fill(2)).options(depend=[inout(x)])(x)  # the failure is over
    assert (x == 2).all()


@pytest.mark.parametrize("kind", ["enter", "exit"])
def test_counts_after_a_construct_that_did_not_run(on_workers, kind):
    """A data construct that did not run has not counted, in the table neither."""
    x = np.arange(3.0)
    if kind == "exit":
        omp.target_enter_data(map=[to(x)])

    def breaks(x):
        raise ValueError

    failed = omp.target(breaks).options(nowait=True, depend=[inout(x)])(x)
    if kind == "enter":
        task = omp.target_enter_data(map=[to(x)], depend=[inout(x)], nowait=True)
        uses = omp.target(lambda x: float(x.sum())).options(nowait=True, map=[to("x", present=True)])(x)
        assert isinstance(uses.exception(), omp.errors.NotPresentError)
    else:
        task = omp.target_exit_data(map=[omp.release(x)], depend=[inout(x)], nowait=True)
    assert isinstance(task.exception(), omp.errors.DependError)
    assert isinstance(failed.exception(), ValueError)
    assert omp.target_is_present(x) == (kind == "exit")
    if kind == "exit":
        assert omp.target(lambda x: float(x.sum()))(x) == 3.0
        omp.target_exit_data(map=[omp.delete(x)])


def test_handles(on_workers):
    """A handle makes views and copies its elements; everything else belongs into a body."""
    array = omp.target_alloc((3, 4), "f8", device=1)
    host = np.arange(12.0).reshape(3, 4)
    array.set(host)
    assert (array.shape, array.strides, array.dtype, array.size) == (host.shape, host.strides, host.dtype, 12)
    for view in (
        lambda a: a[1:],
        lambda a: a[:, ::2],
        lambda a: a[::-1].T,
        lambda a: a.reshape(4, 3),
        lambda a: a[2, 1],
    ):
        assert np.array_equal(view(array).get(), view(host))
    assert np.array_equal(array.view("i8").get(), host.view("i8"))
    assert float(array[1, 2]) == 6.0
    array[0].set(np.ones(4))
    assert array.get()[0].tolist() == [1.0] * 4
    for operation in (lambda a: a + 1, np.sin, lambda a: a == 1, lambda a: a.sum(), lambda a: a[[0, 1]]):
        with pytest.raises(omp.errors.UnsupportedError):
            operation(array)
    with pytest.raises(omp.errors.UnsupportedError):
        array[0] = 1
    with pytest.raises(TypeError):
        np.asarray(array)
    omp.target_free(array)
    with pytest.raises(omp.errors.RegionClosedError):
        array.get()


def blocks_of(client):
    """Return how many blocks each lease on a worker has."""
    return [lease["blocks"] for leases in client.run(cluster.live_leases).values() for lease in leases.values()]


def test_values_that_stay(client, on_workers):
    """A device array that a body returns stays on its worker until the last handle goes."""
    doubled = omp.target(lambda x: {"twice": x * 2, "n": 3})(np.arange(4.0))
    assert doubled["n"] == 3
    assert doubled["twice"].get().tolist() == [0.0, 2.0, 4.0, 6.0]
    again = omp.target(lambda x, y: float((x + y).sum()))(doubled["twice"], np.ones(4))
    assert again == 16.0
    assert any(blocks_of(client))
    del doubled
    gc.collect()
    omp.target(lambda: None)()
    until(lambda: blocks_of(client) == [0, 0])  # a thread that has told of a task may hold its handle for a moment


def test_a_view_of_what_the_construct_releases_is_refused(on_workers):
    """As on local devices."""
    with pytest.raises(omp.errors.MapError):
        omp.target(lambda x: x[1:])(np.ones(3))


def test_a_handle_after_its_runtime(client):
    """It says that the runtime is closed."""
    with omp.Runtime(client):
        value = omp.target(lambda x: x + 1)(np.ones(3))
    with pytest.raises(omp.errors.RuntimeClosedError):
        value.get()


def test_streams_are_refused_in_the_client(on_workers):
    """They are in the workers' processes; in a body the current stream is the worker's."""
    for refused in (omp.current_stream, omp.stream, omp.interop, lambda: acc.get_cuda_stream(1)):
        with pytest.raises(omp.errors.UnsupportedError):
            refused()
    with omp.buffers(1, 3) as ring, pytest.raises(omp.errors.UnsupportedError):
        omp.array_namespace(ring[0])
    assert omp.target(lambda: type(omp.current_stream()).__name__)() == "SimStream"


def test_parts_of_attributes_are_refused(on_workers):
    """A mapper may map all of an attribute, and not a part of it."""

    class Field:
        def __init__(self):
            self.values = np.arange(8.0)

    omp.declare_mapper(Field, lambda field: [field.values[2:4]], name="part")
    omp.declare_mapper(Field, lambda field: [field.values])
    field = Field()
    omp.target(lambda field: field.values.__iadd__(1) is None)(field)
    assert field.values[0] == 1
    with pytest.raises(omp.errors.UnsupportedError):
        omp.target(lambda field: float(field.values[2:4].sum())).options(map=[tofrom(field, mapper="part")])(field)


def test_copies_between_workers(on_workers):
    """Rectangles, bytes and whole arrays go from worker to worker, in the order of the dependences."""
    a, b = (omp.target_alloc((4, 5), "f8", device=number) for number in range(2))
    host, back = np.arange(20.0).reshape(4, 5), np.zeros((4, 5))
    for _ in range(5):
        omp.copy(a, host, depend=[out(a)], nowait=True)
        omp.copy(b, a, depend=[in_(a), out(b)], nowait=True)
        omp.target(lambda b: b.__iadd__(1) is None).options(nowait=True, depend=[inout(b)])(b)
        omp.target_memcpy_rect_async(
            a, b, volume=(2, 2), dst_offsets=(0, 0), src_offsets=(2, 3), depend=[in_(b), inout(a)]
        )
        omp.copy(back, a, depend=[in_(a), out(back)], nowait=True)
        omp.taskwait()
        expected = host.copy()
        expected[:2, :2] = host[2:, 3:] + 1
        assert np.array_equal(back, expected)
        host += 1
    for array in (a, b):
        omp.target_free(array)


@pytest.mark.parametrize("nbytes", [8, 999_992, 1_000_000, 3_000_000])
def test_sizes(on_workers, nbytes):
    """Data in the plan and scattered data arrive alike, of arrays with gaps too."""
    x = np.arange(nbytes / 8)
    wide = np.zeros((x.size, 2))
    add = omp.target(lambda x, wide: wide.__iadd__(x) is None)
    add.options(map=[to("x"), tofrom("wide")])(x, wide[:, 1])
    assert np.array_equal(wide[:, 1], x)
    assert not wide[:, 0].any()


def test_a_chain_through_the_host(on_workers):
    """Regions that map one array in turn, on two workers, see what the one before has copied back."""
    x = np.zeros(1000)
    for k in range(20):
        omp.target(lambda x, k: (x.__imul__(2), x.__iadd__(k), None)[2]).options(
            nowait=True, device=k % 2, depend=[inout(x)]
        )(x, k)
    omp.taskwait()
    expected = 0
    for k in range(20):
        expected = 2 * expected + k
    assert (x == expected).all()


@pytest.mark.slow
def test_many_regions_in_flight(on_workers):
    """Ten thousand regions are planned, sent in few segments, and carried out."""
    x = np.zeros(1)
    add = omp.target(lambda x: x.__iadd__(1) is None)
    with omp.target_data(map=[tofrom(x)]):
        bound = add.options(nowait=True, depend=[inout(x)])
        for _ in range(10_000):
            bound(x)
        omp.taskwait()
    assert x[0] == 10_000


def test_loops_and_openacc(on_workers):
    """A loop function and an OpenACC region run on a worker, and a loop on several workers is refused."""

    @omp.target_loop(reduction={"+": ["s"]})
    def dot(x, y):
        s = 0.0
        for i in range(x.size):
            s += x[i] * y[i]
        return s

    x = np.arange(100.0)
    assert dot.options(device=1)(x, x) == x @ x
    with pytest.raises(omp.errors.UnsupportedError):
        dot.options(devices="all")(x, x)
    with acc.data(copy=[x]):
        acc.parallel(async_=1)(lambda x: x.__iadd__(1) is None)(x)
        acc.wait(1)
    assert x[0] == 1


def test_tls():
    """A cluster with certificates is reached with the client's `Security`, and not without it."""
    pytest.importorskip("cryptography")
    from distributed import Client, LocalCluster, Security

    security = Security.temporary()
    with (
        LocalCluster(n_workers=1, processes=True, security=security, dashboard_address=":0") as secured,
        Client(secured) as client,
    ):
        assert client.scheduler.address.startswith("tls://")
        x = np.zeros(3)
        with omp.Runtime(client, check=True):
            omp.target(lambda x: x.fill(1))(x)
        assert (x == 1).all()
        with pytest.raises(omp.errors.DeviceUnavailableError):
            omp.Runtime(f"dask:{client.scheduler.address}")
