"""Versions of present storage: no construct that may write to it leaves a fact behind that loops would still use."""

from __future__ import annotations

import contextlib
import inspect
import threading

import numpy as np
import pytest

import offload as omp
from offload import acc, alloc, from_, to, tofrom
from offload.arrays.items import array_section
from offload.data.entries import Entry
from offload.data.environment import DataEnvironment
from offload.devices.sim.device import SimDevice
from offload.loops.running.build import builder
from tests.loops.cuda_device import HostCuda
from tests.loops.facts import AWAY, KINDS, N, facts, gather
from tests.profiles import few

FALSE = np.arange(N)
FALSE[7] = AWAY


@pytest.fixture(params=few(1, KINDS))
def at(request, monkeypatch):
    """A runtime on a simulated device, whose kernels are C or CUDA."""
    with facts(request.param, monkeypatch) as found:
        yield found


def spoil(p):
    """Write an index that is out of range, in a body."""
    p[7] = AWAY


@omp.target_loop
def spoiling(q):
    for i in range(1):
        q[i + 7] = AWAY


@acc.parallel_loop
def acc_spoiling(q):
    for i in range(1):
        q[i + 7] = AWAY


@acc.kernels_loop
def kernels_spoiling(q):
    for i in range(1):
        q[i + 7] = AWAY


@omp.target
def returning(q):
    return q


class Holder:
    """An object whose array a mapper maps."""

    def __init__(self, p):
        self.p = p


def spoil_held(held):
    held.p[7] = AWAY


def updated(p):
    p[7] = AWAY
    omp.target_update(to=[p])


def twice(p):
    """Record a region that spoils, with nothing spoilt; replay it where the array is spoilt on the host."""
    omp.target_update(to=[p])

    @omp.taskgraph
    def region():
        omp.target_update(to=[p])

    region()
    gather_again(p)
    p[7] = AWAY
    region()


def replayed(p):
    far = np.array([7])

    @omp.taskgraph
    def region():
        omp.target(map=[tofrom(p), to(far)], nowait=True)(put)(p, far)

    region()
    gather_again(p)
    far[0] = AWAY
    region()


def put(p, far):
    p[7] = far[0]


def gather_again(p):
    """Have another loop look at the indices, if it may remember them."""
    loop, x, y = omp.target_loop(gather), np.arange(float(N)), np.zeros(N)
    for _ in range(3):
        loop(p, x, y)
    assert (y == p).all()


def write_at(d):
    """Write to a device array without a construct, on the program's own stream, and wait for that."""
    d[7] = AWAY
    assert int(d[7]) == AWAY


def always(p):
    p[7] = AWAY
    with omp.target_data(map=[to(p, always=True)]):
        pass


def entered_always(p):
    p[7] = AWAY
    omp.target_enter_data(map=[to(p, always=True)])
    omp.target_exit_data(map=[omp.release(p)])


def entered_anew(p):
    omp.target_exit_data(map=[omp.delete(p)])
    p[7] = AWAY
    omp.target_enter_data(map=[to(p)])


def pointed(p):
    """Keep a pointer, have the loop look once more, and write by the pointer."""
    d = omp.get_mapped_ptr(p)
    gather_again(p)
    write_at(d)


def used_pointer(p):
    with omp.target_data(use_device_ptr=[p]) as (d,):
        gather_again(p)
        write_at(d)


def used_address(p):
    with omp.target_data(use_device_addr=[p]) as (d,):
        gather_again(p)
        write_at(d)


def returned(p):
    d = returning(p)
    gather_again(p)
    write_at(d)


def through(routine):
    """Return a case that copies by a routine to the device array of the indices."""
    return lambda p: routine(omp.get_mapped_ptr(p), FALSE)


def associated(p):
    """End the mapping, and have a device array of the program's own correspond to the indices."""
    omp.target_exit_data(map=[omp.delete(p)])
    d = omp.target_alloc(p.shape, p.dtype)
    omp.target_memcpy(d, p)
    omp.target_associate_ptr(p, d)
    gather_again(p)
    omp.target_memcpy(d, FALSE)
    yield
    omp.target_disassociate_ptr(p)
    omp.target_free(d)
    omp.target_enter_data(map=[to(p)])


def acc_associated(p):
    omp.target_exit_data(map=[omp.delete(p)])
    allocated = acc.malloc(p.nbytes)
    d = allocated.view(p.dtype)
    omp.target_memcpy(d, p)
    acc.map_data(p, d)
    gather_again(p)
    omp.target_memcpy(d, FALSE)
    yield
    acc.unmap_data(p)
    acc.free(allocated)
    omp.target_enter_data(map=[to(p)])


def mapped_by_a_mapper(p):
    omp.declare_mapper(Holder, lambda held: [tofrom(held.p)])
    omp.target(spoil_held)(Holder(p))


def in_a_body(p):
    """A loop in a body writes to what the body maps ``to``."""
    omp.target(map=[to("q")])(spoiling)(p)


def received(p):
    """A loop writes to what a task returns, and maps it ``to``."""
    spoiling.options(map=[to("q")])(omp.task(lambda: p)())


def late(p):
    """A task that is deferred writes."""
    task = omp.target(map=[tofrom("p")], nowait=True)(spoil)(p)
    task.result()


def d2d(p):
    false = FALSE.copy()
    with omp.target_data(map=[to(false)]):
        acc.memcpy_d2d(p, false)


def d2d_async(p):
    false = FALSE.copy()
    with omp.target_data(map=[to(false)]):
        acc.memcpy_d2d_async(p, false, async_=1)
        acc.wait_all()


def by_device(routine):
    """Return a case that copies from one device array to the other."""

    def case(p):
        d = omp.target_alloc(p.shape, p.dtype)
        omp.target_memcpy(d, FALSE)
        routine(acc.deviceptr(p), d)
        acc.wait_all()
        omp.target_free(d)

    return case


def from_host(routine):
    def case(p):
        routine(acc.deviceptr(p), FALSE)
        acc.wait_all()

    return case


def hosted(p):
    with acc.host_data(use_device=[p]) as (d,):
        gather_again(p)
        write_at(d)


def acc_updated(update):
    def case(p):
        p[7] = AWAY
        update(p)
        acc.wait_all()

    return case


def memset(routine):
    """Return a case that fills the indices with a byte: each is then far out of range."""
    return lambda p: (routine(omp.get_mapped_ptr(p), 0x11), omp.taskwait())


WRITES = {
    "target": [
        omp.target(spoil),
        omp.target(map=[tofrom("p")])(spoil),
        omp.target(map=[alloc("p")])(spoil),
        omp.target(map=[to("p")])(spoil),
        lambda p: omp.target(map=[from_(p)])(spoil)(p),
        omp.target(map=[tofrom("p[4:20]")])(lambda p: p.__setitem__(3, AWAY)),
        omp.target(defaultmap="present")(spoil),
        late,
        returned,
    ],
    "target_data": [always, used_pointer, used_address],
    "target_enter_data": [entered_always, entered_anew],
    "target_update": [updated],
    "target_loop": [
        spoiling,
        spoiling.options(map=[to("q")]),
        spoiling.options(map=[alloc("q")]),
        in_a_body,
        received,
    ],
    "taskgraph": [replayed, twice],
    "declare_mapper": [mapped_by_a_mapper],
    "get_mapped_ptr": [pointed],
    "target_associate_ptr": [associated],
    "copy": [through(omp.copy)],
    "target_memcpy": [through(omp.target_memcpy)],
    "target_memcpy_async": [lambda p: omp.target_memcpy_async(omp.get_mapped_ptr(p), FALSE).result()],
    "target_memcpy_rect": [through(omp.target_memcpy_rect)],
    "target_memcpy_rect_async": [lambda p: omp.target_memcpy_rect_async(omp.get_mapped_ptr(p), FALSE).result()],
    "target_memset": [memset(omp.target_memset)],
    "target_memset_async": [memset(omp.target_memset_async)],
    "acc.parallel": [acc.parallel(spoil), acc.parallel(present=["p"])(spoil)],
    "acc.serial": [acc.serial(copy=["p"])(spoil)],
    "acc.kernels": [acc.kernels(create=["p"])(spoil)],
    "acc.parallel_loop": [
        acc_spoiling,
        acc_spoiling.options(present=["q"]),
        acc_spoiling.options(copyin=["q"]),
        lambda p: (acc_spoiling.options(async_=1)(p), acc.wait_all()),
    ],
    "acc.kernels_loop": [kernels_spoiling],
    "acc.update": [
        acc_updated(lambda p: acc.update(device=[p])),
        acc_updated(lambda p: acc.update(device=[p], async_=1)),
    ],
    "acc.update_device": [acc_updated(acc.update_device)],
    "acc.update_device_async": [acc_updated(acc.update_device_async)],
    "acc.host_data": [hosted],
    "acc.deviceptr": [lambda p: acc.deviceptr(p).__setitem__(7, AWAY)],
    "acc.map_data": [acc_associated],
    "acc.memcpy_d2d": [d2d],
    "acc.memcpy_d2d_async": [d2d_async],
    "acc.memcpy_device": [by_device(acc.memcpy_device)],
    "acc.memcpy_device_async": [by_device(acc.memcpy_device_async)],
    "acc.memcpy_to_device": [from_host(acc.memcpy_to_device)],
    "acc.memcpy_to_device_async": [from_host(acc.memcpy_to_device_async)],
}
"""By public name, what writes an index out of range to the device's copy of an index array that is present there."""

WRITES_NOTHING = {
    "words of clauses": """
        alloc delete from_ in_ inout inoutset mutexinoutset out release section to tofrom depobj loop
        acc.zero acc.loop acc.routine acc.launch_config
    """,
    "tasks, which write by the constructs in them": """
        task taskloop parallel_loop taskgroup taskwait taskyield barrier cancel cancellation_point
        declare_reduction fulfill_event record current_task in_explicit_task in_final
    """,
    "runtimes, devices and streams": """
        array_namespace current_runtime current_stream device devices display_env get_default_device
        get_device_num get_initial_device get_max_task_priority get_num_devices interop is_initial_device
        set_default_device set_stream stream acc.get_cuda_stream acc.get_default_async acc.get_device_num
        acc.get_device_type acc.get_num_devices acc.get_property acc.init acc.on_device acc.set_cuda_stream
        acc.set_default_async acc.set_device_num acc.set_device_type acc.shutdown acc.async_test
        acc.async_test_all acc.wait acc.wait_all acc.wait_all_async acc.wait_any acc.wait_async
    """,
    "looks": """
        target_is_accessible target_is_present acc.is_present acc.hostptr profile_dependences progress tool
    """,
    "memory of its own": """
        buffers empty_pinned target_alloc target_free use_allocator acc.malloc acc.free
    """,
    "storage that was not there, or goes": """
        declare_target target_exit_data target_disassociate_ptr acc.copyin acc.copyin_async acc.copyout
        acc.copyout_async acc.copyout_finalize acc.copyout_finalize_async acc.create acc.create_async
        acc.data acc.declare acc.delete acc.delete_async acc.delete_finalize acc.delete_finalize_async
        acc.enter_data acc.exit_data acc.unmap_data
    """,
    "copies to the host": """
        acc.memcpy_from_device acc.memcpy_from_device_async acc.update_self acc.update_self_async
    """,
}
"""The public names that write to nothing on a device that was present, by what they are."""

CASES = [
    pytest.param(case, id=f"{name}-{number}") for name, cases in WRITES.items() for number, case in enumerate(cases)
]


def public_names():
    """Return the functions of OpenMP's and OpenACC's faces."""
    for prefix, module in (("", omp), ("acc.", acc)):
        for name in module.__all__:
            found = getattr(module, name)
            if callable(found) and not isinstance(found, type):
                yield prefix + name


def test_each_public_name_has_a_case():
    """What is public writes to present storage, and is tried here, or is said not to."""
    others = [name for names in WRITES_NOTHING.values() for name in names.split()]
    assert sorted([*WRITES, *others]) == sorted(public_names())


@contextlib.contextmanager
def carried_out(at, case):
    """Have a loop remember what its index array holds, and carry out a case that spoils the array on the device."""
    with at.present():
        assert at.settle()
        if inspect.isgeneratorfunction(case):
            with contextlib.contextmanager(case)(at.p):
                yield
        else:
            case(at.p)
            yield


@pytest.mark.parametrize("case", CASES)
def test_what_writes_changes_the_version(at, case):
    """A loop that has remembered its indices finds the one that a construct has written, in each construct."""
    with carried_out(at, case), pytest.raises(IndexError, match="'x'"):
        at.gather(at.p, at.x, at.y)


def beside(at):
    """Have a loop look at the indices while a task writes one that the loop does not use."""
    begun, goes_on = threading.Event(), threading.Event()

    def body(p):
        begun.set()
        assert goes_on.wait(20)
        p[7] = AWAY

    @omp.target_loop
    def chosen(p, m, x, y):
        for i in range(p.size):
            if m[i] > 0:
                y[i] = x[p[i]]

    chosen.compile(at.p, at.p, at.x, at.y)
    task = omp.target(map=[tofrom("p")], nowait=True)(body)(at.p)
    assert begun.wait(20)
    m = np.ones(N, int)
    m[7] = 0
    for _ in range(3):
        chosen(at.p, m, at.x, at.y)
    goes_on.set()
    task.result()


def test_what_is_looked_at_beside_a_write_is_not_remembered(at):
    """A loop that is not ordered with a write, and does not use what that writes, leaves no fact for later loops."""
    with at.present():
        assert at.settle()
        beside(at)
        with pytest.raises(IndexError, match="'x'"):
            at.gather(at.p, at.x, at.y)


def never_changed(monkeypatch):
    monkeypatch.setattr(Entry, "change", lambda entry, lane: None)


def changed_at_once(monkeypatch):
    def change(entry, lane):
        entry._contents = None

    monkeypatch.setattr(Entry, "change", change)


def never_exposed(monkeypatch):
    monkeypatch.setattr(DataEnvironment, "corresponding", unexposed)


def unexposed(place, host):
    entry, _ = place.table.search(array_section(host))
    return place.view(entry, host)


@pytest.mark.mutants
@pytest.mark.parametrize(
    ("mutant", "case"),
    [
        (never_changed, lambda at: updated(at.p)),
        (never_changed, lambda at: omp.target(spoil)(at.p)),
        (never_changed, lambda at: spoiling(at.p)),
        (changed_at_once, beside),
        (never_exposed, lambda at: pointed(at.p)),
    ],
)
def test_the_cases_kill_mutants(at, monkeypatch, mutant, case):
    """With versions that are never raised, or only when a write is launched, a loop misses the index out of range."""
    if builder.compiler is None and not isinstance(SimDevice.kernels, HostCuda):
        pytest.skip("no C compiler: Python does not miss it")
    mutant(monkeypatch)
    at.x = np.arange(2.0 * N)[:N]  # what is read beyond it is memory of the test's
    with at.present():
        assert at.settle()
        case(at)
        at.gather(at.p, at.x, at.y)
