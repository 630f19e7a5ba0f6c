"""Bodies, handles, values and exceptions on their way: what a worker gets is what the program has at the call."""

from __future__ import annotations

import gc
import sys
import types
import weakref

import cloudpickle
import numpy as np
import pytest

import offload as omp
from offload import inout, tofrom
from tests import cluster
from tests.patience import until, until_gone


class Pair(Exception):  # noqa: N818  # a program's
    """Its arguments are not those that it keeps."""

    def __init__(self, first, second):
        super().__init__(f"{first}-{second}")
        self.first = first


def leaves_at_the_client():
    raise SystemExit("unpickled")


class Leaves:
    """Cannot be unpickled."""

    def __reduce__(self):
        return leaves_at_the_client, ()


# -- handles ----------------------------------------------------------------------------------------
def test_handles_in_containers_and_closures(on_workers):
    """A body of the handle's device gets the array; a body of another device is refused, as with an argument."""
    held = omp.target_alloc(4, "f8", device=1)
    omp.target_memcpy(held, np.arange(4.0))
    inside = omp.target(lambda arrays: float(arrays[0].sum()))
    around = omp.target(lambda: float(held.sum()))
    assert inside.options(device=1)([held]) == around.options(device=1)() == 6
    for call in (lambda: inside.options(device=0)([held]), around.options(device=0)):
        with pytest.raises(omp.errors.MapError, match="dask:1/"):
            call()
    omp.target_free(held)


def test_a_returned_handle_in_a_container(on_workers):
    """Arrays that bodies have made on different workers are not taken for each other."""
    made = omp.target(lambda x, value: x + value)
    first, second = (made.options(device=number)(np.zeros(3), number) for number in range(2))
    take = omp.target(lambda arrays: float(arrays[0][0]))
    assert [take.options(device=n)([array]) for n, array in enumerate((first, second))] == [0, 1]
    with pytest.raises(omp.errors.MapError):
        take.options(device=0)([second])


def test_handles_of_another_runtime_and_freed_ones(client, on_workers):
    """Each is refused by its own error."""
    take = omp.target(lambda arrays: float(arrays[0].sum()))
    with omp.Runtime(client):
        old = omp.target(lambda x: x + 1)(np.zeros(3))
    with pytest.raises(omp.errors.MapError, match="another runtime"):
        take([old])
    freed = omp.target_alloc(4, "f8", device=0)
    omp.target_free(freed)
    with pytest.raises(omp.errors.RegionClosedError, match="target_free"):
        take([freed])


# -- variables --------------------------------------------------------------------------------------
def class_attribute():
    class Settings:
        k = 1

    def change():
        Settings.k = 2

    return lambda: Settings.k, change


def function_attribute():
    def helper():
        return helper.k

    helper.k = 1

    def change():
        helper.k = 2

    return lambda: helper() + 0, change


def bound_builtin():
    table = {"k": 1}
    get = table.get
    return lambda: get("k"), lambda: table.__setitem__("k", 2)


def record():
    made = np.array([(1,)], [("k", "i8")])[0]
    return lambda: int(made["k"]), lambda: made.__setitem__("k", 2)


def assigned_later():
    def change():
        nonlocal late
        late = 2

    def body():
        try:
            return late
        except NameError:
            return 1

    if len(gc.garbage) < 0:
        late = 0
    return body, change


def default():
    def body(k=1):
        return k

    return body, lambda: setattr(body, "__defaults__", (2,))


@pytest.mark.parametrize("make", [class_attribute, function_attribute, bound_builtin, record, assigned_later, default])
def test_variables_that_change(on_workers, make):
    """The second call sees the change, wherever a function keeps it."""
    body, change = make()
    region = omp.target(body)
    assert region() == 1
    change()
    assert region() == 2


def test_a_module_that_goes_by_value(on_workers, monkeypatch):
    """Dask's users register modules that the workers lack."""
    module = types.ModuleType("offload_tests_by_value")
    exec("k = 1\ndef body():\n    return k\n", module.__dict__)  # no file has it
    monkeypatch.setitem(sys.modules, module.__name__, module)
    cloudpickle.register_pickle_by_value(module)
    try:
        region = omp.target(module.body)
        assert region() == 1
        module.k = 2
        assert region() == 2
    finally:
        cloudpickle.unregister_pickle_by_value(module)


# -- values and exceptions --------------------------------------------------------------------------
def test_an_exception_with_other_arguments(on_workers):
    """Its class and attributes arrive, although it cannot be made from the arguments that it keeps."""

    def breaks():
        raise Pair("a", "b")

    with pytest.raises(Pair, match="a-b") as caught:
        omp.target(breaks)()
    assert caught.value.first == "a"


def test_a_value_that_cannot_be_unpickled(on_workers):
    """Whatever it raises in the client, the task fails and the devices go on."""
    with pytest.raises(omp.errors.DeviceError, match="SystemExit"):
        omp.target(Leaves)()
    assert omp.target(lambda: 3)() == 3


class Value:
    """Can be watched."""


def test_dropped_values_go(on_workers):
    """Neither the stream nor the segment of a task keeps its value."""
    values = [omp.target(Value).options(nowait=True)() for _ in range(5)]
    watched = [weakref.ref(task.result()) for task in values]
    del values
    until_gone(*watched)


def test_dropped_handles_give_memory_back(client, on_workers):
    """Also while nothing else is sent."""
    make = omp.target(lambda x: x + 1)
    make(np.zeros(1000))
    number = on_workers.places[0].device.cluster.number
    until(lambda: not any(leases[number]["blocks"] for leases in client.run(cluster.live_leases).values()))


def test_a_chain_of_hops_keeps_no_results(client, on_workers):
    """Segments that are over let their futures go, although each was needed by the next."""
    x = np.zeros(1000)
    add = omp.target(lambda x: x.__iadd__(1) is None)
    for k in range(40):
        add.options(nowait=True, device=k % 2, depend=[inout(x)], map=[tofrom("x")])(x)
    omp.taskwait()
    assert (x == 40).all()
    until(lambda: client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) <= 6)


def test_a_large_array_has_views(on_workers):
    """The client needs no memory for the elements of a handle."""
    array = omp.target(lambda x: x + 1)(np.zeros((4, 6)))
    assert array[1:, ::2].shape == (3, 3)
    assert array.reshape(8, 3)[-1].get().tolist() == [1, 1, 1]
    assert array.T[0].strides == (48,)
