"""Device arrays whose storage has gone back: freed, or of a mapping that has ended (OpenMP 5.2, 18.8.2, 5.4.8, 5.8.3).

In C to use them is undefined. Here it is a `RegionClosedError`: on a simulated device for every operation, on CUDA for
every construct and routine, since CuPy's own operations do not ask.
"""

from __future__ import annotations

import copy
import operator

import numpy as np
import pytest

import offload as omp
from offload import acc, alloc, from_, in_, inout, release, to, tofrom

N = 8


def freed():
    """An array of `target_alloc`, after `target_free`."""
    d = omp.target_alloc(N, "f8")
    omp.target_memset(d, 0)
    omp.target_free(d)
    return d


def part_of_freed():
    """A view of such an array, made before."""
    d = omp.target_alloc((2, N), "f8")
    part = d[1]
    omp.target_free(d)
    return part


def freed_by_acc():
    """An array of `acc.malloc`, after `acc.free`."""
    d = acc.malloc(8 * N)
    view = d.view("f8")
    acc.free(d)
    return view


def of_target_data():
    """What `use_device_ptr` gave, after the region."""
    a = np.zeros(N)
    with omp.target_data(map=[tofrom(a)], use_device_ptr=[a]) as (d,):
        pass
    return d


def of_host_data():
    """What `acc.host_data` gave, after the end of the data region."""
    a = np.zeros(N)
    with acc.data(copy=[a]), acc.host_data(use_device=[a]) as (d,):
        pass
    return d


def of_enter_data():
    """What `get_mapped_ptr` gave, after `target_exit_data`."""
    a = np.zeros(N)
    omp.target_enter_data(map=[to(a)])
    d = omp.get_mapped_ptr(a)
    omp.target_exit_data(map=[release(a)])
    return d


def kept_by_a_body():
    """The array that a body has received and left somewhere."""
    kept = []
    omp.target(kept.append)(np.zeros(N))
    return kept[0]


def kept_by_a_body_that_fails():
    """The same, of a body that fails."""
    kept = []

    @omp.target
    def body(x):
        kept.append(x)
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        body(np.zeros(N))
    return kept[0]


WAYS = [
    freed,
    part_of_freed,
    freed_by_acc,
    of_target_data,
    of_host_data,
    of_enter_data,
    kept_by_a_body,
    kept_by_a_body_that_fails,
]

OURS = {
    "target_memcpy from it": lambda d: omp.target_memcpy(np.zeros(N), d),
    "target_memcpy to it": lambda d: omp.target_memcpy(d, np.zeros(N)),
    "target_memcpy_async": lambda d: omp.target_memcpy_async(d, np.zeros(N)),
    "target_memcpy_rect": lambda d: omp.target_memcpy_rect(d[:4], np.zeros(4)),
    "target_memset": lambda d: omp.target_memset(d, 0),
    "acc.memcpy_from_device": lambda d: acc.memcpy_from_device(np.zeros(N), d),
    "target": omp.target(lambda d: None),
    "target with nowait": omp.target(nowait=True)(lambda d: None),
    "target with is_device_ptr": omp.target(is_device_ptr=["d"])(lambda d: None),
    "acc.parallel": acc.parallel(lambda d: None),
    "acc.data(deviceptr)": lambda d: acc.data(deviceptr=[d]).__enter__(),
    "target_associate_ptr": lambda d: omp.target_associate_ptr(np.zeros(N), d),
}

OPERATIONS = {
    "operator": lambda d: d + 1,
    "in-place operator": lambda d: operator.iadd(d, 1),
    "ufunc": np.sin,
    "output": lambda d: np.add(1.0, 2.0, out=d),
    "function": np.sum,
    "in a list": lambda d: np.concatenate([d, d]),
    "element": lambda d: d[0],
    "slice": lambda d: d[1:],
    "mask": lambda d: d[[True] * N],
    "assignment": lambda d: d.__setitem__(0, 1.0),
    "iteration": list,
    "method": lambda d: d.max(),
    "view": lambda d: d.view("u1"),
    "transpose": lambda d: d.T,
    "real part": lambda d: d.real,
    "get": lambda d: d.get(),
    "set": lambda d: d.set(np.zeros(N)),
    "unwrap": lambda d: d.unwrap(),
    "text": str,
    "copy": copy.copy,
    "namespace": lambda d: d.device.namespace().asarray(d),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("use", OURS.values(), ids=OURS)
def test_constructs_and_routines_refuse_it(runtime, way, use):
    """A construct or routine that is given an array whose storage has gone back is a RegionClosedError at the call."""
    d = way()
    with pytest.raises(omp.RegionClosedError):
        use(d)
    omp.taskwait()


@pytest.mark.parametrize("way", WAYS)
def test_operations_refuse_it(sim, way):
    """On a simulated device every operation on such an array is a RegionClosedError; what it was can still be shown."""
    d = way()
    for name, operation in OPERATIONS.items():
        with pytest.raises(omp.RegionClosedError):
            operation(d)
            pytest.fail(name)
    assert (d.shape, d.dtype) == ((N,), np.float64)
    assert "gone back" in repr(d)


def test_the_message_names_what_went(sim):
    """The error names the mapping or the block and the routine, and says what to do."""
    pressure = np.zeros(N)
    omp.target_enter_data(map=[to(pressure)])
    d = omp.get_mapped_ptr(pressure)
    omp.target_exit_data(map=[from_(pressure)])
    with pytest.raises(omp.RegionClosedError, match=r"mapping of .*float64\[8\].*ended.*target_enter_data"):
        d.get()
    with pytest.raises(omp.RegionClosedError, match=r"float64\[8\] on device 0, which target_free has freed.*allocate"):
        freed().get()
    with pytest.raises(omp.RegionClosedError, match="acc free has freed"):
        freed_by_acc().get()


def test_freeing_twice_is_the_error_that_it_was(runtime):
    """A second target_free is a UsageError that says to free once."""
    with pytest.raises(omp.UsageError, match="once"):
        omp.target_free(freed())


def test_storage_that_something_else_maps_stays(runtime):
    """The end of an inner mapping, or an association, closes nothing; the end of the last one does."""
    a, b = np.zeros(N), np.zeros(N)
    with omp.target_data(map=[tofrom(a)]):
        with omp.target_data(map=[tofrom(a)], use_device_addr=[a]) as (d,):
            pass
        omp.target(lambda d: operator.iadd(d, 1))(d)
    assert (a == 1).all()
    with pytest.raises(omp.RegionClosedError):
        omp.target(lambda d: None)(d)
    own = omp.target_alloc(N, "f8")
    omp.target_memcpy(own, b)
    omp.target_associate_ptr(b, own)
    omp.target(lambda b: operator.iadd(b, 2))(b)
    omp.target_disassociate_ptr(b)
    omp.target_memcpy(b, own)
    assert (b == 2).all()
    omp.target_free(own)


def test_a_deferred_exit_closes_when_it_is_complete(streams):
    """Until a deferred exit is complete, tasks generated before it use the storage; after it nobody does."""
    a = np.zeros(N)
    omp.target_enter_data(map=[to(a)], nowait=True, depend=[inout(a)])
    streams.go()
    omp.taskwait()
    d = omp.get_mapped_ptr(a)
    for _ in range(4):
        omp.target(nowait=True, depend=[inout(a)])(lambda d: operator.iadd(d, 1))(d)
    exit_ = omp.target_exit_data(map=[from_(a)], nowait=True, depend=[inout(a)])
    exit_.result()
    assert (a == 4).all()
    with pytest.raises(omp.RegionClosedError):
        omp.target_memset(d, 0)


def test_the_storage_is_open_while_an_exit_waits(runtime):
    """An exit that has not begun has closed nothing."""
    a, go = np.zeros(N), omp.Event()
    omp.target_enter_data(map=[to(a)])
    d = omp.get_mapped_ptr(a)
    omp.task(depend=[inout(("gate",))], detach=go)(lambda: None)()
    omp.target_exit_data(map=[from_(a)], nowait=True, depend=[in_(("gate",))])
    omp.target_memset(d, 0)
    omp.target(lambda d: operator.iadd(d, 3))(d)
    go.fulfill()
    omp.taskwait()
    assert (a == 3).all()


def test_temporaries_of_bodies_live_on(runtime):
    """What a body has made, or copied, lives by reference: the end of the region does not close it."""
    made = omp.target(map=[tofrom("x")])(lambda x: (x + 1, x.copy(), omp.array_namespace(x).ones(N)))(np.zeros(N))
    total = np.zeros(N)
    omp.target(lambda total, *parts: total.__setitem__(..., sum(parts)))(total, *made)
    assert (total == 2).all()


def test_the_same_array_mapped_again_is_open(runtime):
    """Storage that went back is closed for good, and a new mapping of the same array has its own."""
    a = np.zeros(N)
    old = []
    for _ in range(3):
        with omp.target_data(map=[tofrom(a)], use_device_ptr=[a]) as (d,):
            omp.target(lambda d: operator.iadd(d, 1))(d)
        old.append(d)
    assert (a == 3).all()
    for d in old:
        with pytest.raises(omp.RegionClosedError):
            omp.target(lambda d: None)(d)


def test_a_task_that_comes_too_late_fails(runtime):
    """A deferred copy whose array is freed before the copy has begun fails with the error, and touches nothing."""
    go, d, host = omp.Event(), omp.target_alloc(N, "f8"), np.ones(N)
    omp.task(depend=[inout(("gate",))], detach=go)(lambda: None)()
    copies = [
        omp.target_memcpy_async(d, host, depend=[in_(("gate",))]),
        omp.target_memcpy_async(host, d, depend=[in_(("gate",))]),
        omp.target_memset_async(d, 1, depend=[in_(("gate",))]),
    ]
    omp.target_free(d)
    go.fulfill()
    for task in copies:
        with pytest.raises(omp.RegionClosedError):
            task.result()
    assert (host == 1).all()


def test_alloc_only_maps_close_too(runtime):
    """Storage that was mapped without a copy is closed as any other."""
    a = np.zeros(N)
    with omp.target_data(map=[alloc(a)], use_device_ptr=[a]) as (d,):
        pass
    with pytest.raises(omp.RegionClosedError):
        omp.target_memcpy(a, d)
