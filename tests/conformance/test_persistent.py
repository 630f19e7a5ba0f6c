"""`declare_target`, `target_associate_ptr`, `target_disassociate_ptr`: OpenMP_VV group D and LLVM 2.1, 2.2."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref

import numpy as np
import pytest

import offload as omp
from offload import alloc, delete, from_, release, to, tofrom
from offload.arrays.sections import covers
from offload.data.declarations import declarations
from offload.devices.sim.device import SimEvent

N = 64


def add(a, value):
    """Add on the device; assert that it is one."""
    assert not omp.is_initial_device()
    a += value


def total(a):
    assert not omp.is_initial_device()
    return float(a.sum())


def entry_of(runtime, a, device=0):
    address = a.__array_interface__["data"][0]
    return next((e for e in runtime.places[device].table.entries() if e.section.address == address), None)


@pytest.fixture(autouse=True)
def forget_declarations():
    """Declarations last as long as their arrays; see that each test's are gone."""
    yield
    gc.collect()
    assert not list(declarations.arrays())


# -- declare target ---------------------------------------------------------------------------------
def test_declare_target_link_extended_list(runtime):
    """4.5/declare_target/test_declare_target_link_extended_list.c: a linked array changed to 12 before it is mapped is
    12 in the region: nothing was copied before."""
    aint = np.zeros(N)
    omp.declare_target(aint, link=True)
    omp.target(lambda a: None)(np.zeros(1))
    aint[...] = 12
    assert entry_of(runtime, aint) is None
    assert omp.target(map=[to("a")])(total)(aint) == 12 * N
    assert entry_of(runtime, aint) is None


def test_delete_inf_refcount(runtime):
    """offload/test/mapping/delete_inf_refcount.c: enter data to and exit data delete neither fail nor remove it."""
    g = np.ones(N)
    omp.declare_target(g)
    omp.target_enter_data(map=[to(g)])
    for clause in (delete(g), release(g), from_(g), delete(g[3:5])):
        omp.target_exit_data(map=[clause])
        assert entry_of(runtime, g).count == float("inf")
    assert omp.target(total)(g) == N


def test_declare_target_values(runtime):
    """A declared array has the host's value of the device's first use; later maps copy only with always."""
    g = np.zeros(N)
    omp.declare_target(g)
    g[...] = 1
    assert omp.target(total)(g) == N
    g[...] = 5
    assert omp.target(map=[to("a")])(total)(g) == N, "to does not copy"
    omp.target(map=[tofrom("a")])(add)(g, 1)
    assert (g == 5).all(), "nor does tofrom"
    assert omp.target(map=[to("a", always=True)])(total)(g) == 5 * N
    omp.target(map=[tofrom("a", always=True)])(add)(g, 1)
    assert (g == 6).all()
    with omp.target_data(map=[from_(g)]):
        omp.target(add)(g, 1)
    assert (g == 6).all()
    omp.target_update(from_=[g])
    assert (g == 7).all()
    g[:2] = 0
    omp.target_update(to=[g[:1]])
    assert omp.target(total)(g) == 7 * (N - 1)
    assert omp.target(total)(g[2:5]) == 21, "a part of it is present"


def test_declare_target_each_device(runtime):
    """Each device has storage of its own, made at its own first use."""
    g = np.zeros(N)
    omp.declare_target(g)
    for d in range(omp.get_num_devices()):
        g[...] = d + 1
        assert entry_of(runtime, g, d) is None
        omp.target(add, device=d)(g, 10)
        assert (g == d + 1).all()
    for d in range(omp.get_num_devices()):
        omp.target_update(from_=[g], device=d)
        assert (g == d + 11).all()


def test_declared_before_the_runtime():
    """A declaration holds for runtimes made later, each with the host's values of its own first use."""
    g = np.full(N, 2.0)
    view = g[::2]
    omp.declare_target(view)
    for value in (3, 4):
        g[...] = value
        with omp.Runtime("sim:1", check=True):
            g[...] = value + 1
            assert omp.target(total)(view) == (value + 1) * N / 2
            omp.target(add)(view, 1)
            omp.target_update(from_=[view])
        assert (g[::2] == value + 2).all()
        assert (g[1::2] == value + 1).all()


def test_declared_while_streams_stand_still(sim):
    """A declaration after the first use takes hold at the next one, whatever the streams are doing."""
    a, g = np.zeros(N), np.full(N, 3.0)
    omp.target(add)(a, 1)
    omp.declare_target(g)
    assert omp.target(total)(g) == 3 * N
    assert entry_of(sim, g).count == float("inf")


def test_declared_while_mapped(sim):
    """Where the array is mapped already, persistent storage begins when that mapping ends."""
    g = np.zeros(N)
    omp.target_enter_data(map=[to(g)])
    omp.declare_target(g)
    omp.target(add)(g, 1)
    assert entry_of(sim, g).count == 1
    omp.target_exit_data(map=[from_(g)])
    assert (g == 1).all()
    assert omp.target(total)(g) == N
    assert entry_of(sim, g).count == float("inf")


@pytest.mark.parametrize("device_type", ["any", "nohost", "host"])
def test_declare_target_device_type(runtime, device_type):
    """host: an array as any other; any and nohost: storage on devices."""
    g = np.zeros(N)
    omp.declare_target(g, device_type=device_type)
    omp.target(add)(g, 1)
    assert (entry_of(runtime, g) is None) == (device_type == "host")
    assert (g == (device_type == "host")).all()


def test_declare_target_is_not_a_leak():
    """What is declared lives until the runtime closes, and is not reported."""
    g = np.zeros(N)
    omp.declare_target(g)
    with warnings.catch_warnings(), omp.Runtime("sim:2", check=True) as runtime:
        warnings.simplefilter("error")
        omp.target(add)(g, 1)
    assert runtime.places[0].device.live_nbytes() == 0


def test_declaration_lasts_as_long_as_the_array(sim):
    """The process keeps no array alive; a runtime that has storage for it does."""
    g = np.zeros(N)
    omp.declare_target(g[3:])
    gone = weakref.ref(g)
    del g
    assert gone() is None
    assert not list(declarations.arrays())
    g = np.zeros(N)
    omp.declare_target(g[3:])
    omp.target(add)(np.zeros(3), 1)
    kept = weakref.ref(g)
    del g
    assert kept() is not None
    (entry,) = sim.places[0].table.entries()
    assert entry.count == float("inf")


def test_declared_again(sim):
    """The same array, or a part of it, may be declared again; one that overlaps it in part may not."""
    g = np.zeros(N)
    omp.declare_target(g[:10])
    version = declarations.version
    omp.declare_target(g[:10])
    omp.declare_target(g[3:5])
    assert declarations.version == version
    with pytest.raises(omp.MapError):
        omp.declare_target(g)
    omp.declare_target(g[10:])
    omp.target(add)(g[:10], 1)
    assert len(sim.places[0].table.entries()) == 2
    assert all(covers(entry.section, entry.section) for entry in sim.places[0].table.entries())
    with pytest.raises(omp.ExtensionError):
        omp.target_enter_data(map=[to(g)])


def test_declared_without_memory():
    """Where a declared array does not fit, the construct says so, and nothing is left of it."""
    g = np.zeros(1 << 16)
    omp.declare_target(g)
    with omp.Runtime("sim:1", check=True, env={"OFFLOAD_SIM_MEMORY": "1000"}) as runtime:
        with pytest.raises(omp.DeviceMemoryError):
            omp.target(add)(np.zeros(3), 1)
        assert runtime.places[0].table.entries() == ()
        assert runtime.places[0].device.live_nbytes() == 0
        del g
        gc.collect()
        omp.target(add)(np.zeros(3), 1)


def test_declare_target_bad_input(sim):
    """Wrong arrays and device types are errors at the call; an empty array is nothing."""
    for wrong in (3, "g", None, [1], np.array([object()]), np.float64(1)):
        with pytest.raises(omp.ClauseError):
            omp.declare_target(wrong)
    with pytest.raises(omp.ClauseError):
        omp.declare_target(np.zeros(3), device_type="gpu")
    with pytest.raises(omp.MapError):
        omp.declare_target(np.lib.stride_tricks.as_strided(np.zeros(N), (3, 2), (16, 24)))
    omp.declare_target(np.zeros(0))


# -- association ------------------------------------------------------------------------------------
def test_target_12(runtime):
    """libgomp/…/target-12.c: associate at an offset; the same pair again is fine; disassociate."""
    q, d, found = np.arange(N, dtype=np.int32), omp.target_alloc(N + 1, np.int32), np.zeros(N + 1, np.int32)
    omp.target_associate_ptr(q, d, offset=4)
    omp.target_associate_ptr(q, d, offset=4)
    omp.target_update(to=[q], present=True)
    omp.target(add)(q, 1)
    assert (q == np.arange(N)).all()
    omp.target_memcpy(found, d)
    assert (found[1:] == np.arange(N) + 1).all()
    omp.target_update(from_=[q[3:5]])
    assert list(q[2:6]) == [2, 4, 5, 5]
    omp.target_disassociate_ptr(q)
    assert runtime.places[0].table.entries() == ()
    omp.target_memcpy(found, d)
    assert (found[1:] == np.arange(N) + 1).all(), "the array was not freed"
    omp.target_free(d)


def test_association_counts(runtime):
    """No construct ends an association or copies without always; one that was to copy back warns."""
    a, d = np.ones(N), omp.target_alloc(N, np.float64)
    omp.target_associate_ptr(a, d)
    omp.target_enter_data(map=[to(a, always=True)])
    with pytest.warns(omp.DirectiveWarning, match="copies nothing"):
        omp.target_exit_data(map=[from_(a)])
    assert entry_of(runtime, a).count == float("inf")
    for clause in (delete(a), release(a)):
        omp.target_exit_data(map=[clause])
        assert entry_of(runtime, a).count == float("inf")
    omp.target(map=[tofrom("a")])(add)(a, 1)
    assert (a == 1).all()
    omp.target_exit_data(map=[from_(a, always=True)])
    assert (a == 2).all()
    omp.target_disassociate_ptr(a)
    omp.target_free(d)


def test_association_of_a_view(runtime):
    """A view with gaps corresponds to its rows without gaps."""
    a, d, found = np.arange(24.0).reshape(4, 6), omp.target_alloc((4, 3), np.float64), np.zeros((4, 3))
    omp.target_associate_ptr(a[:, :3], d)
    omp.target_update(to=[a[:, :3]])
    omp.target_memcpy(found, d)
    assert (found == a[:, :3]).all()
    omp.target_disassociate_ptr(a[:, :3])
    omp.target_free(d)


def test_two_halves(runtime):
    """Two host arrays on the halves of one allocation (the case acc_map_data.c of OpenACCV-V)."""
    a, b, d, found = np.full(N, 1.0), np.full(N, 2.0), omp.target_alloc(2 * N, np.float64), np.zeros(2 * N)
    omp.target_associate_ptr(a, d)
    omp.target_associate_ptr(b, d, offset=a.nbytes)
    omp.target_update(to=[a, b])
    omp.target_memcpy(found, d)
    assert (found == np.repeat([1, 2], N)).all()
    omp.target_disassociate_ptr(a)
    omp.target_disassociate_ptr(b)
    omp.target_free(d)


def test_conflicting_associations(runtime):
    """Another association, or one of a host range that is mapped or overlaps one, is an error and changes nothing."""
    a, d, e = np.zeros(N), omp.target_alloc(2 * N, np.float64), omp.target_alloc(N, np.float64)
    omp.target_associate_ptr(a[:10], d)
    for host, array, offset in ((a[:10], e, 0), (a[:10], d, 8), (a[:5], d, 0), (a, d, 0), (a[5:15], e, 0)):
        with pytest.raises(omp.MapError):
            omp.target_associate_ptr(host, array, offset=offset)
    omp.target_enter_data(map=[alloc(a[20:30])])
    for host in (a[20:30], a[20:22], a[15:25], a[::2]):
        with pytest.raises(omp.MapError):
            omp.target_associate_ptr(host, e)
    assert len(runtime.places[0].table.entries()) == 2
    omp.target_exit_data(map=[delete(a[20:30])])
    omp.target_disassociate_ptr(a[:10])
    omp.target_free(d)
    omp.target_free(e)


def test_disassociate_something_else(runtime):
    """What was not associated cannot be disassociated: absent, mapped, declared, or a part."""
    a, g, d = np.zeros(N), np.zeros(N), omp.target_alloc(N, np.float64)
    omp.declare_target(g)
    with pytest.raises(omp.MapError):
        omp.target_disassociate_ptr(a)
    with pytest.raises(omp.MapError):
        omp.target_disassociate_ptr(g)
    with omp.target_data(map=[to(a)]), pytest.raises(omp.MapError):
        omp.target_disassociate_ptr(a)
    omp.target_associate_ptr(a, d)
    for wrong in (a[:3], a[::2], g):
        with pytest.raises(omp.MapError):
            omp.target_disassociate_ptr(wrong)
    omp.target_disassociate_ptr(a)
    with pytest.raises(omp.MapError):
        omp.target_disassociate_ptr(a)
    omp.target_free(d)


def test_omp_target_disassociate_ptr(runtime):
    """offload/test/mapping/ompx_hold/omp_target_disassociate_ptr.c: it fails while a structured region holds it."""
    a, d = np.zeros(N), omp.target_alloc(N, np.float64)
    omp.target_associate_ptr(a, d)
    entry = entry_of(runtime, a)
    entry.structured += 1  # as an OpenACC region counts
    with pytest.raises(omp.MapError, match="held by 1"):
        omp.target_disassociate_ptr(a)
    entry.structured -= 1
    omp.target_disassociate_ptr(a)
    omp.target_free(d)


def test_ompx_hold_target_data(runtime):
    """offload/test/mapping/ompx_hold/target-data.c: the structured count survives exit data delete."""
    a = np.zeros(N)
    omp.target_enter_data(map=[to(a)])
    entry = entry_of(runtime, a)
    entry.structured += 1
    omp.target_exit_data(map=[delete(a)])
    assert (entry.dynamic, entry.structured) == (0, 1)
    omp.target_exit_data(map=[from_(a), delete(a)])
    assert entry_of(runtime, a) is entry
    omp.target(add)(a, 1)
    assert (a == 0).all()
    entry.structured -= 1
    entry.dynamic += 1
    omp.target_exit_data(map=[from_(a)])
    assert (a == 1).all()


def test_association_is_reported():
    """An association left at the runtime's end is reported; the array is kept alive by it, then freed."""
    a = np.zeros(N)

    def associate():
        d = omp.target_alloc(N, np.float64)
        omp.target_associate_ptr(a, d)
        omp.target_free(d)

    with pytest.raises(omp.LeakError, match="associated"), omp.Runtime("sim:1", check=True) as runtime:
        associate()
        assert runtime.places[0].device.live_nbytes() == a.nbytes
        omp.target_update(to=[a])
    assert runtime.places[0].device.live_nbytes() == 0


def test_disassociate_waits():
    """It returns when what has been enqueued with the storage is done, and not before."""
    with omp.Runtime("sim", check=True) as runtime:
        a, d = np.ones(N), omp.target_alloc(N, np.float64)
        omp.target_associate_ptr(a, d)
        latch = SimEvent(runtime.places[0].device)
        omp.target(nowait=True)(lambda x: omp.current_stream().wait_event(latch))(a)
        while entry_of(runtime, a) is not None and not entry_of(runtime, a).uses:
            threading.Event().wait(0.001)  # until the region is on its stream, which the latch holds
        thread = threading.Thread(target=omp.target_disassociate_ptr, args=(a,))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        latch.fire()
        thread.join(20)
        assert not thread.is_alive()
        assert not omp.target_is_present(a)
        omp.taskwait()
        omp.target_free(d)


def test_association_bad_input(runtime):
    """The host, wrong arrays, other devices and offsets outside are errors at the call."""
    a, d = np.zeros(N), omp.target_alloc((N, 2), np.float64)
    for arguments in (
        (a, a),
        (a, None),
        (d, d),
        (3, d),
        (np.array([object()]), d),
        (a[:0], d),
        (a, d[:, 0]),
        (a, d[::-1]),
        (a, d, -1),
        (a, d, 99),
        (a, d, None, -8),
        (a, d, None, d.nbytes - a.nbytes + 1),
        (a, d, None, 1.5),
        (np.zeros((N, 3)), d),
    ):
        with pytest.raises(omp.ClauseError):
            omp.target_associate_ptr(*arguments)
    for wrong in (3, d, a[:0]):
        with pytest.raises(omp.ClauseError):
            omp.target_disassociate_ptr(wrong)
    with pytest.raises(omp.ClauseError):
        omp.target_disassociate_ptr(a, device=-1)
    with pytest.raises(omp.MapError):
        omp.target_associate_ptr(np.lib.stride_tricks.as_strided(np.zeros(N), (3, 2), (16, 24)), d)
    if omp.get_num_devices() > 1:
        with pytest.raises(omp.ClauseError, match="not on device 1"):
            omp.target_associate_ptr(a, d, device=1)
    with pytest.raises(omp.UsageError):
        omp.target(lambda a: omp.target_disassociate_ptr(np.zeros(3)))(a)
    omp.target_free(d)


def test_associate_at_an_offset_that_the_type_cannot_lie_at(runtime):
    """Elements that a kernel could not read are refused when they are associated, and nothing has changed."""
    a = np.zeros(4)
    d = omp.target_alloc(64)
    with pytest.raises(omp.ClauseError, match="offset 1"):
        omp.target_associate_ptr(a, d, offset=1)
    assert not omp.target_is_present(a)
    omp.target_associate_ptr(a, d, offset=8)
    omp.target_disassociate_ptr(a)
    omp.target_free(d)
