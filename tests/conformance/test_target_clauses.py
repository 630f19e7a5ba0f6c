"""Clauses of `target` that say what its arguments are: OpenMP_VV groups A, F, H and LLVM's offload/test/mapping."""

from __future__ import annotations

import gc
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import offload as omp
from offload import alloc, from_, section, to, tofrom
from offload.arrays.items import MAPPERS
from tests.patience import until

N = 64


def on_device(device=0):
    """Assert that the calling body runs on a device."""
    assert not omp.is_initial_device()
    assert omp.get_device_num() == device


def bump(*arrays):
    """Add 1 to arrays on the device."""
    on_device()
    for array in arrays:
        array[...] += 1


def mapped(runtime):
    return [entry for place in runtime.places for entry in place.table.entries()]


# -- defaultmap ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("rule", ["tofrom", {"scalar": "tofrom"}, {"scalar": "firstprivate"}, {"scalar": "default"}])
def test_target_defaultmap(runtime, rule):
    """4.5/target/test_target_defaultmap.c: deviating, scalars are values: no rule changes the host's."""
    scalars = (np.int8(1), 2, np.float32(3), 4.0, True, 5j)

    def body(*values):
        on_device()
        return [value + 1 for value in values]

    assert omp.target(body, defaultmap=rule)(*scalars) == [value + 1 for value in scalars]
    assert scalars == (np.int8(1), 2, np.float32(3), 4.0, True, 5j)


@pytest.mark.parametrize("rule", ["firstprivate", {"aggregate": "firstprivate", "scalar": "firstprivate"}])
def test_target_defaultmap_firstprivate(runtime, rule):
    """5.0/target/test_target_defaultmap_firstprivate.c: nothing reaches the host, from arrays of 0 to 3 dimensions."""
    arrays = [np.full((2,) * ndim, 7.0) for ndim in range(4)]

    @omp.target(defaultmap=rule)
    def body(scalar, *arrays):
        bump(*arrays)
        assert not mapped(runtime)
        return [float(array.sum()) for array in arrays]

    assert body(3, *arrays) == [8.0 * array.size for array in arrays]
    assert all((array == 7).all() for array in arrays)
    body.options(nowait=True)(3, *arrays).result()
    assert all((array == 7).all() for array in arrays)


@pytest.mark.parametrize(
    ("rule", "sees", "returns"), [("to", 5, 5), ("from", None, 9), ("tofrom", 5, 9), ("alloc", None, 5)]
)
def test_target_defaultmap_to_from_tofrom(runtime, rule, sees, returns):
    """5.0/target/test_target_defaultmap_to_from_tofrom.c: `to` and `alloc` never return, the others do."""
    a, scalar = np.full(N, 5.0), np.array(5.0)

    @omp.target(defaultmap={"aggregate": rule})
    def body(a, scalar):
        on_device()
        if sees is not None:
            assert bool((a == sees).all())
            assert float(scalar) == sees
        a[...] = 9
        scalar[...] = 9

    body(a, scalar)
    assert (a == returns).all()
    assert scalar == returns


def test_target_defaultmap_none(runtime):
    """``none``: an argument of the category in no clause is an error at the call that names it."""
    a, b = np.zeros(N), np.zeros(N)
    body = omp.target(lambda a, b, n: bump(a), defaultmap="none")
    for nowait in (False, True):
        strict = body.options(nowait=nowait)
        for clauses, name in (
            ({"map": [tofrom("a")]}, "'b'"),
            ({"map": [tofrom("a"), to("b")]}, "'n'"),
            ({"map": [tofrom("b")], "firstprivate": ["n"]}, "'a'"),
        ):
            with pytest.raises(omp.ClauseError, match=name):
                strict.options(**clauses)(a, b, 3)
    body.options(map=[tofrom("a")], private=["b"], firstprivate=["n"])(a, b, 3)
    body.options(map=[tofrom(a)], private=[b], firstprivate=["n"])(a, b, n=3)
    omp.target(lambda a, b, n: bump(a), defaultmap={"scalar": "none"}, firstprivate=["n"])(a, b, 3)
    assert (a == 3).all()
    assert (b == 0).all()


def test_target_defaultmap_present(runtime):
    """``present`` is map(present, alloc): absent arguments fail, present ones are found and not copied."""
    a = np.zeros(N)
    body = omp.target(bump, defaultmap="present")
    with pytest.raises(omp.NotPresentError):
        body(a)
    with pytest.raises(omp.NotPresentError):
        body.options(nowait=True)(a).result()
    with omp.target_data(map=[tofrom(a)]):
        body(a)
        assert (a == 0).all()
    assert (a == 1).all()


def test_target_defaultmap_leaves_explicit_items_and_device_arrays(runtime):
    """A clause wins over ``defaultmap``, also one that names a larger array; device arrays pass through."""
    a, b, d = np.zeros(N), np.zeros(N), omp.target_alloc(N, np.float64)
    body = omp.target(bump, defaultmap="firstprivate")
    body.options(map=[tofrom(a)])(a[:8], b, d)
    assert a.sum() == 8
    assert b.sum() == 0
    body.options(defaultmap={"pointer": "none"})(d)
    body.options(defaultmap="to")(b)
    assert b.sum() == 0
    omp.target_free(d)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("copy", "tofrom"),
        ({"aggregate": "privat"}, "firstprivate"),
        ({"arrays": "to"}, "aggregate"),
        ({"all": "to", "scalar": "none"}, "once"),
        (3, "tofrom"),
    ],
)
def test_target_defaultmap_unknown_words(sim, value, says):
    """What ``defaultmap`` does not know, or says twice of a category, is an error that lists what is allowed."""
    with pytest.raises(omp.ClauseError, match=says):
        omp.target(lambda a: None, defaultmap=value)


# -- firstprivate and private ---------------------------------------------------------------------------
def test_target_firstprivate(runtime):
    """4.5/target/test_target_firstprivate.c: the host's array keeps its values, from several host threads at once."""
    rows, totals = np.arange(4.0 * N).reshape(4, N), [0.0] * 4
    expected = (rows + 1).sum(axis=1)

    def work(k):
        @omp.target(firstprivate=["p"])
        def body(p):
            bump(p)
            return float(p.sum())

        totals[k] = body(rows[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == list(expected)
    assert (rows == np.arange(4.0 * N).reshape(4, N)).all()


def test_target_firstprivate_is_captured_at_the_call(streams):
    """Contents are those at the call, also where the region runs later, and of items given as arrays."""
    a, found = np.zeros(N), np.zeros(N)

    @omp.target(nowait=True, firstprivate=["a"])
    def body(a, found):
        found += a

    for clauses in ({}, {"firstprivate": [a]}):
        task = body.options(**clauses)(a, found)
        a += 100
        streams.go()
        task.result()
        a -= 100
    assert (found == 0).all()


def test_target_firstprivate_views(runtime):
    """A strided argument is captured packed; a section that the clause names is what the body receives."""
    a = np.arange(60.0).reshape(6, 10)
    before = a.copy()

    @omp.target(firstprivate=["a"])
    def body(a):
        bump(a)
        return float(a.sum())

    assert body(a[::2, ::-3]) == (before[::2, ::-3] + 1).sum()
    part = body.options(firstprivate=["a[2:3][0:5:2]"])
    assert part(a) == (section(before, (2, 3), (0, 5, 2)) + 1).sum()
    assert (a == before).all()
    assert omp.target(lambda z: z.size, firstprivate=["z"])(np.empty(0)) == 0


def test_target_private(runtime):
    """``private`` is uninitialised storage of the same shape and dtype; nothing is copied and nothing mapped."""
    a = np.full((3, 4), 5, np.int32)

    @omp.target(private=["work"])
    def body(work):
        on_device()
        assert work.shape == (3, 4)
        assert work.dtype == np.int32
        assert not mapped(runtime)
        work[...] = 2
        return int(work.sum())

    assert body(a) == 24
    assert body(work=a) == 24
    assert (a == 5).all()


def test_private_storage_beside_the_mapped_one(runtime):
    """A private argument is not the present storage of the same array, and does not count there."""
    a = np.zeros(N)
    with omp.target_data(map=[tofrom(a)]):
        omp.target(bump, defaultmap="firstprivate")(a)
        omp.target(lambda p: p.fill(3), private=["p"])(a)
        (entry,) = mapped(runtime)
        assert entry.count == 1
    assert (a == 0).all()


def test_private_on_the_host(runtime):
    """With the host as device the same holds: private arguments are not the caller's arrays."""
    a = np.zeros(N)

    @omp.target(if_=False)
    def body(p):
        assert omp.is_initial_device()
        p[...] = 1

    body.options(firstprivate=["p"])(a)
    body.options(private=["p"])(a)
    body.options(firstprivate=["p"], nowait=True)(a).result()
    assert (a == 0).all()
    body(a)
    assert (a == 1).all()


def test_private_storage_is_released(runtime):
    """Private storage is gone when the task is complete, also after a failure; without room nothing is mapped."""
    a = np.zeros(N)

    def fail(p):
        raise ArithmeticError("body")

    with pytest.raises(ArithmeticError):
        omp.target(fail, firstprivate=["p"])(a)
    omp.target(lambda p: None, private=["p"])(a)

    def is_free():
        gc.collect()  # the failure refers to the frame of its body
        return not any(place.device.live_nbytes() for place in runtime.places)

    until(is_free)  # the thread that has told of the failure lets go of it in its time
    huge = np.broadcast_to(np.zeros(1, "u1"), (1 << 50,))
    with pytest.raises(omp.DeviceMemoryError):
        omp.target(lambda p, a: None, private=["p"])(huge, a)
    assert not mapped(runtime)


# -- device arrays -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("clause", ["is_device_ptr", "has_device_addr"])
def test_target_is_device_ptr(runtime, clause):
    """4.5/target/test_target_is_device_ptr.c: an array of target_alloc is itself in the region; 2*i after."""
    d, host = omp.target_alloc(N, np.float64), np.zeros(N)

    @omp.target(**{clause: ["d"]})
    def fill(d, host):
        on_device()
        d[...] = omp.array_namespace(d).arange(N) * 2
        host[...] = d

    fill(d, host)
    assert (host == 2 * np.arange(N)).all()
    fill.options(**{clause: [d]}, nowait=True)(d, host).result()
    part = omp.target(lambda d: d.size, **{clause: ["d[8:4]"]})
    assert part(d) == 4
    omp.target_free(d)


@pytest.mark.parametrize("clause", ["is_device_ptr", "has_device_addr"])
def test_target_is_device_ptr_of_no_device_array(runtime, clause):
    """What is no device array is a ClauseError at the call; with the host as device a host array is one."""
    for wrong in (np.zeros(N), 3, None, [1.0]):
        for nowait in (False, True):
            with pytest.raises(omp.ClauseError, match="not a device array"):
                omp.target(lambda d: None, nowait=nowait, **{clause: ["d"]})(wrong)
    omp.target(lambda d: d.fill(1), if_=False, **{clause: ["d"]})(np.zeros(N))


def test_implicit_device_ptr(runtime):
    """offload/test/mapping/implicit_device_ptr.c: an array of target_alloc in no clause keeps its value and works."""
    d, host = omp.target_alloc(N, np.float64), np.zeros(N)

    @omp.target
    def body(d, host):
        d[...] = 3
        host[...] = d

    body(d, host)
    assert (host == 3).all()
    omp.target_free(d)


def test_requires_unified_address(runtime):
    """5.0/requires/test_requires_unified_address.c: a device array, or a part of one, may be firstprivate."""
    d, host = omp.target_alloc(N, np.float64), np.zeros(N)

    @omp.target(firstprivate=["p"])
    def body(p):
        on_device()
        p[...] = 4

    body(d)
    body(d[N // 2 :])
    omp.target_memcpy(host, d)
    assert (host == 4).all()
    omp.target_free(d)


def test_device_arrays_of_elsewhere():
    """A device array of another device, or of another runtime, is an error at the call that names both devices."""
    with omp.Runtime("sim:2", check=True), omp.Runtime("sim:2", check=True):
        pass
    with omp.Runtime("sim:2", check=True):
        d = omp.target_alloc(N, device=1)
        for clauses in ({}, {"is_device_ptr": ["d"]}, {"nowait": True}):
            with pytest.raises(omp.MapError, match=r"sim:1.*sim:0"):
                omp.target(lambda d: None, device=0, **clauses)(d)
        omp.target(lambda d: None, device=1)(d)
        with omp.Runtime("sim:2", check=True), pytest.raises(omp.MapError, match=r"sim:1 of another runtime"):
            omp.target(lambda d: None, device=1)(d)
        omp.target_free(d)


class Foreign:
    """An array of a library that has memory on a device, as DLPack describes it."""

    def __init__(self, kind, index=0):
        self.place = (kind, index)

    def __dlpack_device__(self):
        return self.place

    def __dlpack__(self, **kwargs):
        raise AssertionError("nobody needs the memory")


def test_arrays_of_other_libraries(sim):
    """On a device that the region does not run on they are an error that names both."""
    for kind, name in ((2, "cuda:3"), (10, "rocm:3"), (99, "99")):
        with pytest.raises(omp.MapError, match=rf"{name}.*sim:0"):
            omp.target(lambda x: None)(Foreign(kind, 3))
        with pytest.raises(omp.MapError, match="sim:0"):
            omp.target(lambda x: None, is_device_ptr=["x"])(Foreign(kind, 3))
    described = SimpleNamespace(__cuda_array_interface__={"shape": (1,), "typestr": "<f8", "data": (64, False)})
    with pytest.raises(omp.MapError, match=r"cuda.*sim:0"):
        omp.target(lambda x: None)(described)


def test_host_objects_with_an_array_interface(runtime):
    """Objects that describe host memory are mapped, as arrays of the same memory are."""
    memory = np.zeros(3)
    holder = SimpleNamespace(__array_interface__=memory.__array_interface__)
    omp.target(lambda x: x.fill(2))(holder)
    assert (memory == 2).all()


# -- modifiers and what is present ------------------------------------------------------------------------
def test_target_map_with_close_modifier(runtime):
    """5.0/target/test_target_map_with_close_modifier.c: ``close`` changes nothing that can be seen."""
    a, b = np.zeros(N), np.ones(N)

    @omp.target(map=[tofrom("a", close=True), to("b", close=True)])
    def body(a, b):
        on_device()
        a += b

    body(a, b)
    assert (a == 1).all()
    with omp.target_data(map=[alloc(b, close=True), from_(a, close=True)]):
        omp.target(lambda a: a.fill(5))(a)
    assert (a == 5).all()


def test_target_map_present_ordering(runtime):
    """5.1/target/test_target_map_present_ordering.c: present is looked at before the other items of the construct."""
    x = np.full(N, 2.0)
    body = omp.target(bump, map=[to(x, present=True), from_(x)])
    with pytest.raises(omp.NotPresentError):
        body(x)
    assert not mapped(runtime)
    with omp.target_data(map=[tofrom(x)]):
        body(x)
    assert (x == 3).all()


def test_target_map_zero_length_pointer(runtime):
    """4.5/target/test_target_map_zero_length_pointer.c: in no clause, a present array is found and written to."""
    a = np.zeros(N)
    with omp.target_data(map=[tofrom(a)]):
        omp.target(bump)(a)
        omp.target(bump)(a[:5])
        assert omp.target(lambda e: e.size)(a[5:5]) == 0
        assert (a == 0).all()
    assert a.sum() == N + 5


def test_target_implicit_partial_map(runtime):
    """offload/test/mapping/target_implicit_partial_map.c: deviating, an argument present in part is an error, under
    ``defaultmap`` too, unless it is private; the exit of what is present counts rightly."""
    a = np.zeros(N)
    with omp.target_data(map=[tofrom(section(a, (50, 2)))]):
        for rule in ("tofrom", "to", "default", "alloc"):
            with pytest.raises(omp.ExtensionError, match="pass the section"):
                omp.target(bump, defaultmap=rule)(a)
        omp.target(bump, defaultmap="firstprivate")(a)
        omp.target(bump, defaultmap="to")(a[50:52])
    assert a.sum() == 2
    assert not mapped(runtime)


# -- arguments by default, and what a body returns -----------------------------------------------------------
@pytest.fixture
def _forget_mappers():
    """Mappers are registered for the process: forget those of a test."""
    before = dict(MAPPERS)
    yield
    MAPPERS.clear()
    MAPPERS.update(before)


class Pair:
    """A class with a mapper."""

    def __init__(self, data):
        self.data = data


@pytest.mark.usefixtures("_forget_mappers")
def test_defaults_are_mapped(runtime):
    """Arrays, device arrays and mapped objects that are defaults of parameters are mapped as arguments are."""
    host, named, last, pair = np.zeros(N), np.zeros(N), np.zeros(N), Pair(np.zeros(N))
    pointer = omp.target_alloc((N,), np.float64)

    def body(a, k=2, b=host, /, c=named, d=pointer, *, e=last, f=pair, g=None):
        bump(a, b, c, e, f.data)
        d[...] = 1
        assert not any(isinstance(array, np.ndarray) for array in (a, b, c, d, e, f.data))
        return k, g

    late = omp.target(body)
    omp.declare_mapper(Pair, lambda p: [tofrom(p.data)])
    a = np.zeros(N)
    assert late(a) == (2, None)
    assert late(a, 3, c=np.zeros(N), g=4) == (3, 4)
    assert late(a, 3, np.zeros(N), np.zeros(N), pointer, e=np.zeros(N)) == (3, None)
    late.options(nowait=True, map=[tofrom("a"), to("e")])(a).result()
    assert [int(array[0]) for array in (a, host, named, last, pair.data)] == [4, 3, 2, 2, 4]
    with pytest.raises(TypeError):
        late()
    with pytest.raises(omp.ClauseError, match="'e'"):
        late.options(defaultmap="none", map=[tofrom("a"), tofrom("b"), tofrom("c")], firstprivate=["k"])(a)
    omp.target_free(pointer)


@dataclass
class Result:
    """What a body may return."""

    value: object


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: x[1:],
        lambda x: [1, (x,)],
        lambda x: {"x": {"y": [x]}},
        lambda x: Result({1: Result((x[2:3],))}),
        lambda x: (frozenset(), {1, (2, 3)}, x[0:1]),
    ],
)
def test_views_of_released_storage_inside_of_containers(runtime, wrap):
    """A view of storage that the construct releases is refused in a container too; around a mapping it is none."""
    a = np.zeros(N)
    with pytest.raises(omp.MapError, match="releases"):
        omp.target(wrap)(a)
    omp.target(lambda x: wrap(x.copy()))(a)
    with omp.target_data(map=[to(a)]):
        omp.target(wrap)(a)


def test_a_body_may_return_what_contains_itself(runtime):
    """The search for released storage ends in a cycle, and looks behind it."""

    def body(x, keeps):
        cycle = []
        cycle += [cycle, {"again": cycle}, x if keeps else 1]
        return cycle

    assert omp.target(body)(np.zeros(N), keeps=False)[2] == 1
    with pytest.raises(omp.MapError, match="releases"):
        omp.target(body)(np.zeros(N), keeps=True)


# -- bad input -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("clause", ["firstprivate", "private", "is_device_ptr", "has_device_addr", "map"])
def test_unknown_names(sim, clause):
    """A string that names no parameter (in map: nor any visible name) is an error where the function is decorated."""
    value = [to("nope")] if clause == "map" else ["nope"]
    with pytest.raises(omp.ClauseError, match="nope"):
        omp.target(lambda x: None, **{clause: value})
    body = omp.target(lambda x: None)
    with pytest.raises(omp.ClauseError, match="nope"):
        body.options(**{clause: value})


def test_names_that_come_later(sim):
    """A global that the body names may be defined after the decoration; keyword arguments are known at the call."""
    scope = {"omp": omp, "to": to, "np": np}
    exec("@omp.target(map=[to('table')])\ndef body(): return table.size\ntable = np.zeros(3)", scope)
    assert scope["body"]() == 3

    @omp.target(firstprivate=["p"])
    def bump_keywords(**arrays):
        bump(*arrays.values())

    a = np.zeros(N)
    bump_keywords(p=a)
    assert (a == 0).all()
    bump_keywords(q=a)
    assert (a == 1).all()


def test_contradictory_clauses(sim):
    """An item in two clauses that contradict each other is an error: by name at once, by storage at the call."""
    x = np.zeros(N)
    for clauses in (
        {"map": [to("x")], "private": ["x"]},
        {"map": [to("x[0:2]")], "firstprivate": ["x"]},
        {"map": ["x"], "is_device_ptr": ["x"]},
        {"private": ["x"], "firstprivate": ["x"]},
        {"is_device_ptr": ["x"], "has_device_addr": ["x"]},
        {"private": ["x", "x"]},
    ):
        with pytest.raises(omp.ClauseError, match="x"):
            omp.target(lambda x: None, **clauses)
    for clauses in (
        {"map": [to(x)], "private": [x]},
        {"map": [to(x)], "private": ["x"]},
        {"map": [to("x")], "firstprivate": [x]},
        {"firstprivate": ["x"], "private": [x]},
    ):
        with pytest.raises(omp.ClauseError, match="'x'"):
            omp.target(lambda x: None, **clauses)(x)
        with pytest.raises(omp.ClauseError, match="'x'"):
            omp.target(lambda x: None, nowait=True, **clauses)(x=x)
    assert not mapped(sim)


def test_wrong_items(sim):
    """Items that are no arrays, arrays of Python objects, and arrays that are no argument are errors."""
    objects = np.array([None, 1], dtype=object)
    for wrong in (3, {"a": 1}, [[1]], to(np.zeros(1))):
        with pytest.raises(omp.ClauseError):
            omp.target(lambda x: None, private=wrong)
    for clauses in ({}, {"firstprivate": ["x"]}, {"private": ["x"]}, {"map": [to("x")]}, {"defaultmap": "to"}):
        with pytest.raises(omp.ClauseError, match="object"):
            omp.target(lambda x: None, **clauses)(objects)
    with pytest.raises(omp.ClauseError, match="no argument"):
        omp.target(lambda x: None, firstprivate=[np.zeros(2)])(np.zeros(2))
    with pytest.raises(omp.ClauseError, match="target_exit_data"):
        omp.target_enter_data(map=[to(np.zeros(1)), omp.delete(np.zeros(1))])
    with pytest.raises(omp.ClauseError):
        omp.target(lambda x: None, map=[to(objects)])


def test_rules_in_a_recorded_graph(sim):
    """A recorded region that runs again has its private storage again, with the contents captured at its call."""
    a, found = np.ones(N), np.zeros(N)

    @omp.target(nowait=True, firstprivate=["a"], depend=[omp.inout("found")])
    def body(a, found):
        a += 1
        found += a

    with omp.record() as graph:
        body(a, found)
        omp.taskwait()
    assert (found == 2).all()
    graph.compute(scheduler="synchronous")
    assert (found == 4).all()
    assert (a == 1).all()
