"""`declare_mapper`: OpenMP_VV groups G and I, and what Python's objects add."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest

import offload as omp
from offload import alloc, from_, in_, inout, inoutset, mutexinoutset, out, section, to, tofrom
from offload.arrays.items import MAPPERS

N = 32


@pytest.fixture(autouse=True)
def _forget_mappers():
    """Mappers are registered for the process: forget those of a test."""
    before = dict(MAPPERS)
    yield
    MAPPERS.clear()
    MAPPERS.update(before)


class Vector:
    """A struct with a pointer: OpenMP_VV's example."""

    def __init__(self, n, name="v"):
        self.len = n
        self.data = np.zeros(n)
        self.name = name


def fill(s):
    assert not omp.is_initial_device()
    assert not isinstance(s.data, np.ndarray)
    s.data[...] = omp.array_namespace(s.data).arange(s.len)


def bump(array):
    assert not omp.is_initial_device()
    array += 1


def counts(runtime):
    return [entry.count for entry in runtime.places[0].table.entries()]


def test_declare_mapper_target_struct(runtime):
    """5.0/declare_mapper/test_declare_mapper_target_struct.c: a default mapper makes an unadorned target deep."""
    omp.declare_mapper(Vector, lambda v: [tofrom(v.data)])
    s = Vector(N)
    omp.target(fill)(s)
    assert (s.data == np.arange(N)).all()
    assert isinstance(s.data, np.ndarray)
    omp.target(fill)(s=s)
    omp.target(fill, nowait=True)(s).result()
    assert counts(runtime) == []


def test_declare_mapper_section(runtime):
    """A mapper of a section: the attribute is the array of that section in the body, indexed from 0."""
    omp.declare_mapper(Vector, lambda v: [tofrom(section(v.data, (0, v.len)))])
    s = Vector(N)
    s.len = 4

    @omp.target
    def body(s):
        assert s.data.shape == (4,)
        bump(s.data)

    body(s)
    assert s.data.sum() == 4


class Table:
    def __init__(self, *rows):
        self.rows = list(rows)
        self.len = len(rows)


def test_declare_mapper_iterator(runtime):
    """5.2/declare_mapper/test_declare_mapper_iterator.c: a mapper over the len elements of an attribute."""

    def mapper(v):
        for i in range(v.len):
            yield tofrom(v.rows[i])

    omp.declare_mapper(Table, mapper)
    s = Table(*(np.full(4, float(i)) for i in range(N)))
    s.len = N - 1

    @omp.target
    def body(s):
        assert isinstance(s.rows, list)
        for row in s.rows[: s.len]:
            bump(row)
        assert isinstance(s.rows[-1], np.ndarray)

    body(s)
    assert [row[0] for row in s.rows] == [*(i + 1.0 for i in range(N - 1)), N - 1.0]
    assert counts(runtime) == []


@pytest.mark.parametrize("outer", [to, from_, tofrom, alloc])
@pytest.mark.parametrize("inner", [to, from_, tofrom, alloc])
def test_effective_types(runtime, outer, inner):
    """The type of an item is what both the clause and the mapper say: it is copied only where both copy."""
    omp.declare_mapper(Vector, lambda v: inner(v.data))
    s = Vector(N)
    s.data += 5
    copies_in = outer in (to, tofrom) and inner in (to, tofrom)
    copies_out = outer in (from_, tofrom) and inner in (from_, tofrom)

    @omp.target(map=[outer("s")])
    def body(s):
        if copies_in:
            assert bool((s.data == 5).all())
        s.data[...] = 7

    body(s)
    assert (s.data == (7 if copies_out else 5)).all()


class Pair:
    def __init__(self):
        self.left, self.right = Vector(N), Vector(N)
        self.both = (self.left, [self.right])
        self.by_name = {"left": self.left}
        self.array = np.array([self.left, self.right, None], dtype=object)
        self.scale = np.full(N, 2.0)


def test_mappers_nest(runtime):
    """Objects in attributes, lists, dictionaries and arrays of objects are copies with device arrays, each one once."""
    omp.declare_mapper(Vector, lambda v: [tofrom(v.data)])
    omp.declare_mapper(Pair, lambda p: [to(p.scale), tofrom(p.left), p.right])
    pair = Pair()

    @omp.target
    def body(p):
        assert p.both[0] is p.left
        assert p.by_name["left"] is p.array[0] is p.left
        assert p.both[1][0] is p.array[1] is p.right
        assert p.array[2] is None
        for vector in p.array[:2]:
            assert vector.name == "v"
            vector.data += p.scale
        p.scale += 1

    body(pair)
    for vector in (pair.left, pair.right):
        assert (vector.data == 2).all()
    assert (pair.scale == 2).all()
    with omp.target_data(map=[to(pair)]):
        assert counts(runtime) == [1, 1, 1]
        body(pair)
        assert counts(runtime) == [1, 1, 1]
    assert (pair.left.data == 2).all()


@dataclasses.dataclass(frozen=True)
class Frozen:
    data: np.ndarray
    other: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    data: np.ndarray
    other: np.ndarray


class Private:
    __slots__ = ("__data", "other")

    def __init__(self, data, other):
        self.__data = data
        self.other = other

    @property
    def data(self):
        return self.__data


class Named(NamedTuple):
    data: np.ndarray
    other: np.ndarray


@pytest.mark.parametrize(
    "cls", [Frozen, Slotted, Private, Named, dataclasses.make_dataclass("Plain", ["data", "other"])]
)
def test_dataclasses_and_slots(runtime, cls):
    """Dataclasses, also frozen or with slots, and named tuples: the copy has device arrays, the object is as it was."""
    omp.declare_mapper(cls, lambda o: tofrom(o.data))
    item = cls(np.zeros(N), np.zeros(N))

    @omp.target
    def body(o):
        assert type(o) is cls
        assert o is not item
        assert isinstance(o.other, np.ndarray)
        bump(o.data)

    body(item)
    assert (item.data == 1).all()
    assert isinstance(item.data, np.ndarray)


def test_attributes_assigned_by_a_body_stay_in_its_copy(runtime):
    """What a body assigns to the object is not seen outside, on the host device as on others."""
    omp.declare_mapper(Vector, lambda v: [tofrom(v.data)])
    s = Vector(N)

    @omp.target
    def body(s):
        s.name = "changed"
        s.data += 1

    body(s)
    body.options(if_=False)(s)
    body.options(map=[tofrom(s)], device=omp.get_initial_device())(s)
    assert s.name == "v"
    assert (s.data == 3).all()


def test_data_constructs_take_objects(runtime):
    """An object is a list item of data constructs; a construct counts each of its arrays once."""
    omp.declare_mapper(Vector, lambda v: [tofrom(v.data), to(v.data[:4])])
    s = Vector(N)
    omp.target_enter_data(map=[to(s)])
    omp.target_enter_data(map=[s])
    assert counts(runtime) == [2]
    with omp.target_data(map=[s, tofrom(s)]):
        assert counts(runtime) == [3]
        omp.target(fill)(s)
        assert s.data.sum() == 0
    omp.target_exit_data(map=[omp.release(s)])
    assert counts(runtime) == [1]
    omp.target_exit_data(map=[s])
    assert (s.data == np.arange(N)).all()
    omp.target_enter_data(map=[alloc(s)])
    omp.target_exit_data(map=[omp.delete(s)])
    assert counts(runtime) == []


def test_modifiers_are_united(runtime):
    """``always`` and ``present`` of the clause or of the mapper hold for what the mapper maps."""
    s = Vector(N)
    for mapper, clause in (
        (lambda v: tofrom(v.data, always=True), tofrom("s")),
        (lambda v: tofrom(v.data), tofrom("s", always=True)),
    ):
        omp.declare_mapper(Vector, mapper)
        s.data[...] = 0
        with omp.target_data(map=[alloc(s.data)]):
            omp.target(lambda s: bump(s.data), map=[clause])(s)
            assert (s.data == 1).all()
    omp.declare_mapper(Vector, lambda v: to(v.data, present=True))
    with pytest.raises(omp.NotPresentError):
        omp.target(fill)(s)
    omp.declare_mapper(Vector, lambda v: to(v.data))
    with pytest.raises(omp.NotPresentError):
        omp.target(fill, map=[to("s", present=True)])(s)
    with pytest.raises(omp.NotPresentError):
        omp.target(fill, defaultmap="present")(s)


def test_named_mappers(runtime):
    """``mapper=`` selects one by its name, in clauses and in other mappers; without it the default one is meant."""
    omp.declare_mapper(Vector, lambda v: tofrom(v.data))
    omp.declare_mapper(Vector, lambda v: to(v.data), "input")
    omp.declare_mapper(Pair, lambda p: [tofrom(p.left, mapper="input"), tofrom(p.right)])
    s, pair = Vector(N), Pair()
    omp.target(fill, map=[tofrom("s", mapper="input")])(s)
    omp.target(fill, map=[tofrom(s, mapper="input")])(s)
    assert s.data.sum() == 0
    omp.target(fill, map=[tofrom("s", mapper="default")])(s)
    assert s.data.sum() == np.arange(N).sum()

    @omp.target
    def body(p):
        fill(p.left)
        fill(p.right)

    body(pair)
    assert pair.left.data.sum() == 0
    assert (pair.right.data == np.arange(N)).all()


def test_mappers_are_inherited_and_replaced(runtime):
    """A mapper is found along the MRO, a nearer class's first; a second declaration replaces the first."""

    class Child(Vector):
        pass

    s = Child(N)
    omp.declare_mapper(Vector, lambda v: to(v.data))
    omp.target(fill)(s)
    assert s.data.sum() == 0
    omp.declare_mapper(Vector, lambda v: tofrom(v.data))
    omp.target(fill)(s)
    assert s.data.sum()
    s.data[...] = 0
    omp.declare_mapper(Child, lambda v: to(v.data))
    omp.target(fill)(s)
    assert s.data.sum() == 0


def test_defaultmap_of_objects(runtime):
    """``defaultmap`` is the type that an object in no clause is mapped with; `none` wants it in one."""
    omp.declare_mapper(Vector, lambda v: tofrom(v.data))
    s = Vector(N)
    omp.target(fill, defaultmap="to")(s)
    assert s.data.sum() == 0
    with pytest.raises(omp.ClauseError, match="'s'"):
        omp.target(fill, defaultmap="none")(s)
    omp.target(fill, defaultmap="none", map=[from_("s")])(s)
    assert s.data.sum()
    with pytest.raises(omp.ClauseError, match="mapper"):
        omp.target(fill, firstprivate=["s"])(s)


def test_update_of_objects(runtime):
    """`target_update` moves what the mapper maps in its direction."""
    omp.declare_mapper(Vector, lambda v: tofrom(v.data))
    s = Vector(N)
    with omp.target_data(map=[to(s)]):
        s.data += 3
        omp.target_update(to=[s])
        omp.target(lambda s: bump(s.data))(s)
        omp.target_update(from_=[s])
        assert (s.data == 4).all()


def test_update_of_an_object_moves_its_own_direction(runtime):
    """OpenMP Examples target_update.3: of `to(S.x) from(S.y) alloc(S.z)`, update to moves x, update from y."""

    class S:
        def __init__(self):
            self.x, self.y, self.z = np.zeros(N), np.zeros(N), np.zeros(N)

    omp.declare_mapper(S, lambda s: [to(s.x), from_(s.y), alloc(s.z)])
    s = S()
    seen = np.zeros(3)

    @omp.target
    def body(s, seen):
        for k, array in enumerate((s.x, s.y, s.z)):
            seen[k] = array[0]
            array[...] = 9

    with omp.target_data(map=[to(s.x, s.y, s.z)]):
        for array in (s.x, s.y, s.z):
            array[...] = 1
        omp.target_update(to=[s])
        body(s, seen)
        omp.target_update(from_=[s])
    assert list(seen) == [1, 0, 0]
    assert [array[0] for array in (s.x, s.y, s.z)] == [1, 9, 1]


def test_cycles(sim):
    """Mappers that lead back to an object are an error at the call, with ``nowait`` too; a shared object is none."""
    omp.declare_mapper(Vector, lambda v: [tofrom(v.data), tofrom(v.other)] if hasattr(v, "other") else [tofrom(v.data)])
    a, b = Vector(N), Vector(N)
    a.other, b.other = b, a
    for call in (omp.target(fill), omp.target(fill, nowait=True), lambda s: omp.target_enter_data(map=[to(s)])):
        with pytest.raises(omp.MapError, match="leads back"):
            call(a)
    del b.other
    omp.target(fill)(a)
    assert a.data.sum()
    assert sim.places[0].table.entries() == ()


def test_wrong_mappers(sim):
    """Classes with a meaning of their own, functions that are none, items that are no items: an error each."""
    for wrong in (np.ndarray, int, object, "Vector", 3):
        with pytest.raises(omp.ClauseError):
            omp.declare_mapper(wrong, lambda v: [])
    with pytest.raises(omp.ClauseError):
        omp.declare_mapper(Vector, None)
    for name in ("", 3, None):
        with pytest.raises(omp.ClauseError):
            omp.declare_mapper(Vector, lambda v: [], name)
    s = Vector(N)
    with pytest.raises(omp.ClauseError, match="declare_mapper"):
        omp.target_enter_data(map=[to(s)])
    with pytest.raises(omp.ClauseError, match="nope"):
        to(s, mapper="nope")
    with pytest.raises(omp.ClauseError):
        to(s, mapper=3)
    with pytest.raises((omp.ClauseError, omp.MapError)):
        omp.target(fill, map=[to("s")])(s)
    for mapper in (
        lambda v: 3,
        lambda v: [3],
        lambda v: ["data"],
        lambda v: [omp.delete(v.data)],
        lambda v: [np.array([None])],
        lambda v: [to("data")],
    ):
        omp.declare_mapper(Vector, mapper)
        for call in (omp.target(fill), omp.target(fill, nowait=True)):
            with pytest.raises(omp.ClauseError):
                call(s)

    def broken(v):
        yield tofrom(v.data)
        raise ZeroDivisionError

    omp.declare_mapper(Vector, broken)
    with pytest.raises(ZeroDivisionError):
        omp.target(fill)(s)
    omp.declare_mapper(Vector, lambda v: [tofrom(v.data[:2]), tofrom(v.data[4:6])])
    with pytest.raises(omp.MapError, match="2 sections of data"):
        omp.target(fill)(s)
    assert sim.places[0].table.entries() == ()


def test_views_of_a_pool(runtime):
    """Attributes that are views of a larger attribute are mapped; the larger one stays the host's."""

    class Pool:
        def __init__(self):
            self.memory = np.zeros(2 * N)
            self.first, self.second = self.memory[:N], self.memory[N:]

    omp.declare_mapper(Pool, lambda p: tofrom(p.first, p.second))
    pool = Pool()

    @omp.target
    def body(p):
        assert p.memory is pool.memory
        bump(p.first)
        bump(p.second)

    body(pool)
    assert (pool.memory == 1).all()


def test_objects_in_a_recorded_graph(sim):
    """A recorded region that runs again maps the same object again."""
    omp.declare_mapper(Vector, lambda v: [tofrom(v.data)])
    s = Vector(N)
    with omp.record() as graph:
        omp.target(lambda s: bump(s.data), nowait=True)(s)
        omp.taskwait()
    graph.compute(scheduler="synchronous")
    assert (s.data == 2).all()


def test_an_object_named_twice_by_a_mapper(runtime):
    """Clauses of a mapper that name one nested object hold together: `to` and `from_` of it are `tofrom`."""
    omp.declare_mapper(Vector, lambda v: [tofrom(v.data)])
    omp.declare_mapper(Table, lambda t: [to(t.rows[0]), from_(t.rows[0])])
    table = Table(Vector(N))
    table.rows[0].data += 1

    @omp.target
    def body(t):
        bump(t.rows[0].data)

    body(table)
    assert (table.rows[0].data == 2).all()
    omp.declare_mapper(Pair, lambda p: [to(p.left), p.array[2], from_(p.array[2])])
    omp.declare_mapper(Table, lambda t: [to(t.rows[0]), from_(t.rows[0])])
    pair = Pair()
    pair.array[2] = Table(pair.right)

    @omp.target
    def deeper(p):
        bump(p.array[2].rows[0].data)

    deeper(pair)
    assert (pair.right.data == 1).all()
    assert counts(runtime) == []


def test_the_host_gives_a_body_the_same(runtime):
    """On the host a section of an attribute is the section, and nested objects are copies, as on a device."""
    omp.declare_mapper(Vector, lambda v: [tofrom(v.data[2:5])])
    omp.declare_mapper(Pair, lambda p: [p.left])
    pair = Pair()
    pair.left.data += 1

    @omp.target
    def body(p):
        assert p.both[0] is p.left
        shape = p.left.data.shape
        p.left.data[...] = 9
        p.left.name = "changed"
        return shape

    for call in (body, body.options(if_=False), body.options(if_=False, map=[tofrom(pair)])):
        pair.left.data[...] = 1
        assert call(pair) == (3,)
        assert pair.left.data.tolist() == [1, 1, 9, 9, 9] + [1] * (N - 5)
        assert pair.left.name == "v"
    omp.declare_mapper(Vector, lambda v: [3])
    for call in (body, body.options(if_=False), body.options(if_=False, nowait=True)):
        with pytest.raises(omp.ClauseError, match="no map item"):
            call(pair)


def test_one_argument_twice(runtime):
    """An object that is two arguments is mapped once."""
    calls = []
    omp.declare_mapper(Vector, lambda v: [calls.append(v), tofrom(v.data)][1:])
    s = Vector(N)

    def body(a, b):
        a.data += 1
        b.data += 1
        return a is b

    assert omp.target(body)(s, b=s)
    assert len(calls) == 1
    assert omp.target(body, if_=False)(s, b=s)
    assert len(calls) == 2
    assert (s.data == 4).all()


def test_a_named_tuple_is_one_item(runtime):
    """A named tuple with a mapper is a list item, not a list of them, also where a clause takes a single item."""
    omp.declare_mapper(Named, lambda o: tofrom(o.data))
    item = Named(np.zeros(N), np.zeros(N))
    with omp.target_data(map=item):
        assert counts(runtime) == [1]
        omp.target(lambda o: bump(o.data))(item)
        omp.target_update(from_=item)
        assert (item.data == 1).all()
    omp.target_enter_data(item)
    omp.target_exit_data([omp.release(item)])
    assert counts(runtime) == []


def test_containers_that_hold_themselves(runtime):
    """Lists, dictionaries and arrays of objects that lead back to themselves lead back to the host's."""
    omp.declare_mapper(Table, lambda t: [tofrom(t.rows[0])])
    table = Table(np.zeros(N))
    table.plain = [1]
    table.plain.append(table.plain)
    table.rows += [table.rows, {}, (table.rows,), np.array([table.rows, None], dtype=object)]
    table.rows[2]["self"] = table.rows[2]
    table.again = table.rows

    @omp.target
    def body(t):
        assert t.plain is table.plain
        assert t.rows is not table.rows
        assert t.rows[1] is table.rows
        assert all(new is old for new, old in zip(t.rows[1:], table.rows[1:], strict=True))
        assert t.again is t.rows
        bump(t.rows[0])

    body(table)
    assert (table.rows[0] == 1).all()
    table.rows.pop()[0] = None  # NumPy's arrays of objects take no part in garbage collection


@pytest.mark.parametrize("receives", [False, True])
@pytest.mark.parametrize("if_", [True, False])
def test_attributes_rebound_behind_the_call(runtime, gates, if_, receives):
    """List items are evaluated at the call: arrays that change places afterwards, as attributes or in a list, are where
    they were in the body, beside the other attributes as they were."""
    omp.declare_mapper(Vector, lambda v: [tofrom(v.old), tofrom(v.new), tofrom(*v.ring)])
    s = Vector(N)
    s.old, s.new, s.ring = np.full(N, 1.0), np.zeros(N), [np.full(N, 1.0), np.zeros(N)]
    arrays = [s.old, s.new, *s.ring]

    @omp.target(nowait=True, if_=if_)
    def step(v, one):
        v.new[...] = v.old + v.len
        v.ring[1][...] = v.ring[0] + v.len * one

    gate = gates()
    task = step.options(depend=[gate.after])(s, omp.task(lambda: 1)() if receives else 1)
    s.old, s.new = s.new, s.old
    s.ring.reverse()
    s.len = 0
    gate.open()
    task.result()
    assert [array[0] for array in arrays] == [1, 1 + N, 1, 1 + N]


def test_arrays_in_no_attribute(sim):
    """A mapper of an array that the body cannot reach through the object is an error there, and changes nothing."""

    class Derived(Vector):
        shared = np.zeros(3)

        @property
        def twice(self):
            return self.data * 2

    s = Derived(N)
    omp.declare_mapper(Table, lambda t: [tofrom(t.rows[0].data)])
    omp.declare_mapper(Derived, lambda v: [to(v.data), to(v.twice)])
    for item in (s, Table(Vector(N))):
        for call in (omp.target(lambda o: None), omp.target(lambda o: None, if_=False)):
            with pytest.raises(omp.MapError, match="no attribute"):
                call(item)
    omp.declare_mapper(Derived, lambda v: [to(v.shared)])
    with pytest.raises(omp.MapError, match="no attribute"):
        omp.target(fill)(s)
    omp.declare_mapper(Table, lambda t: [t.rows[0], to(t.rows[0].data, always=True), to(t.rows[0].data[:0])])
    omp.declare_mapper(Vector, lambda v: [tofrom(v.data)])
    omp.declare_mapper(Derived, lambda v: [tofrom(v.data)])
    table = Table(s)
    omp.target(lambda t: fill(t.rows[0]))(table)
    assert (s.data == np.arange(N)).all()
    assert sim.places[0].table.entries() == ()


# -- in depend ----------------------------------------------------------------------------------------
def is_ordered(one, other, *objects):
    """Tell whether a task with the second dependence follows one with the first."""
    event = omp.Event()
    first = omp.task(lambda *_: None, detach=event, depend=[one])(*objects)
    second = omp.task(lambda *_: None, depend=[other])(*objects)
    found = first in second.dependencies
    event.fulfill()
    omp.taskwait()
    return found


class Tile(NamedTuple):
    """A named tuple, which would be a location of its own without a mapper."""

    left: Vector
    index: np.ndarray


def test_an_object_in_depend_is_its_storage(sim):
    """An object with a mapper stands in depend for what that maps, sections, nested objects and all kinds of types."""
    omp.declare_mapper(Vector, lambda v: [tofrom(v.data[: N // 2])])
    omp.declare_mapper(Tile, lambda p: [to(p.left), alloc(p.index)])
    s, other = Vector(N), Vector(N)
    tile = Tile(s, np.zeros(3))
    assert is_ordered(inout(s.data), in_(s))
    assert is_ordered(in_(s), out(s.data[N // 4 :]))
    assert not is_ordered(inout(s.data[N // 2 :]), in_(s))
    assert not is_ordered(in_(s), in_(s.data))
    assert is_ordered(out(s), inout(tile))
    assert is_ordered(inout(tile.index[1:]), mutexinoutset(tile))
    assert not is_ordered(out(other), inoutset(tile, s))
    assert is_ordered(omp.depobj(out(s)), in_(tile))
    assert is_ordered(in_(s), out(omp.all_memory))


def test_an_object_in_depend_by_name(sim):
    """A string that names an object with a mapper is that object, at each call."""
    omp.declare_mapper(Vector, lambda v: [tofrom(v.data)])
    s, other = Vector(N), Vector(N)
    named = omp.task(lambda p: None, depend=[in_("p")])
    event = omp.Event()
    first = omp.task(lambda: None, detach=event, depend=[out(s.data)])()
    found = named(s).dependencies, named(other).dependencies
    event.fulfill()
    omp.taskwait()
    assert found == ((first,), ())


def test_an_object_in_depend_is_what_it_is_at_the_construct(sim):
    """Where a program replaces an array of the object, a clause that was made before names the new one."""
    omp.declare_mapper(Vector, lambda v: [tofrom(v.data)])
    s = Vector(N)
    before, clause = s.data, in_(s)
    s.data = np.zeros(N)
    assert is_ordered(out(s.data), clause)
    assert not is_ordered(out(before), clause)
    assert is_ordered(out(s.data), clause)


def test_an_object_in_depend_of_every_construct(streams):
    """Regions, data constructs and waits follow writers of what an object with a mapper maps."""
    omp.declare_mapper(Vector, lambda v: [tofrom(v.data)])
    s = Vector(N)
    omp.target_enter_data(map=[to(s)], depend=[out(s)], nowait=True)
    omp.target(bump, nowait=True, depend=[inout(s.data)])(s.data)
    omp.target(lambda v: bump(v.data), nowait=True, depend=[inout(s)])(s)
    omp.target_update(from_=[s], depend=[inout(s)], nowait=True)
    found = omp.task(s.data.sum, depend=[in_(s)])()
    streams.go()
    omp.taskwait(depend=[in_(s)])
    assert found.result() == 2 * N
    omp.target_exit_data(map=[omp.release(s)], depend=[inout(s)])


def test_an_object_in_depend_that_maps_nothing(sim):
    """An object whose mapper maps nothing, or no elements, is in no order; its errors are raised."""
    omp.declare_mapper(Vector, lambda v: [tofrom(v.data)] if v.len else [])
    assert not is_ordered(out(Vector(0)), inout(Vector(0)))
    empty = Vector(0)
    assert not is_ordered(out(empty), inout(empty))
    omp.declare_mapper(Vector, lambda v: [3])
    clause = in_(empty)
    with pytest.raises(omp.ClauseError, match="mapper of Vector"):
        omp.task(lambda: None, depend=[clause])()
    with pytest.raises(omp.ClauseError, match="mapper of Vector"):
        omp.taskwait(depend=[clause])


def test_objects_in_depend_of_graphs(sim):
    """In a graph, edges by way of an object with a mapper name its arrays; replays keep the order."""
    omp.declare_mapper(Vector, lambda v: [tofrom(v.data)])
    s, log = Vector(N), []
    with omp.record() as graph:
        omp.task(lambda: log.append("write"), depend=[out(s)])()
        omp.task(lambda: log.append("read"), depend=[in_(s.data)])()
    omp.taskwait()
    ((kind, item),) = [(edge.kind, edge.item) for edge in graph.edges]
    assert (kind, item) == ("flow", f"float64[{N}]")

    @omp.taskgraph
    def region():
        omp.task(lambda: log.append("write"), depend=[inout(s.data)])()
        omp.task(lambda: log.append("read"), depend=[in_(s)])()

    for _ in range(3):
        region()
    assert log == ["write", "read"] * 4


def test_objects_without_a_mapper_stay_locations_of_their_own(sim):
    """An object whose class has no mapper is one location, which a warning says if it has arrays."""
    s = Vector(N)
    with pytest.warns(omp.DirectiveWarning, match="declare_mapper"):
        assert is_ordered(out(s), in_(s))
    with pytest.warns(omp.DirectiveWarning, match="a Vector object is a location of its own"):
        assert not is_ordered(out(s.data), in_(s))
