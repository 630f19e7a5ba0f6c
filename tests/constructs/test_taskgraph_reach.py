"""`taskgraph`: arrays that the arguments reach through objects belong to the key of a record."""

import collections
import concurrent.futures
import dataclasses
import functools
import gc
import threading
import types
import weakref

import numpy as np
import pytest

import offload as omp
from offload import in_, inout
from tests.conftest import checked

pytestmark = pytest.mark.timeout(60)


class Plain:
    pass


class Slots:
    __slots__ = ("__weakref__", "a", "b")


@dataclasses.dataclass(eq=False)
class Data:
    a: object = None
    b: object = None


@dataclasses.dataclass
class Record:
    """It equals by its name; the arrays are no part of that."""

    name: str = ""
    a: object = dataclasses.field(default=None, compare=False)
    b: object = dataclasses.field(default=None, compare=False)


class Named:
    """It equals by its name."""

    name = "n"

    def __eq__(self, other):
        return self.name == other.name

    __hash__ = None


class Shared:
    """The arrays are attributes of the class."""

    a = b = None


class Items(list):
    """A list with attributes."""


class Names(dict):
    """A dict with attributes."""


def set_both(holder, a, b):
    holder.a, holder.b = a, b


def both(holder):
    return holder.a, holder.b


class Cells:
    """Two places for arrays somewhere under an argument; get returns them for the argument that the body gets."""

    def __init__(self, argument, put, get):
        self.argument, self.put, self.get = argument, put, get


def of_object(cls):
    thing = cls()
    return Cells(thing, functools.partial(set_both, thing), both)


def in_a_container(make, items_of=lambda argument: argument):
    """Objects with the arrays in a container."""
    thing = Plain()
    argument = make(thing)
    return Cells(argument, functools.partial(set_both, thing), lambda given: both(items_of(given)))


def of_list():
    thing = Plain()
    thing.items = [None, None]
    return Cells(thing, lambda *arrays: thing.items.__setitem__(slice(None), arrays), lambda given: tuple(given.items))


def of_tuple():
    thing = Plain()
    return Cells(thing, lambda *arrays: setattr(thing, "pair", arrays), lambda given: given.pair)


def of_dict():
    thing = Plain()
    thing.items = {}

    def put(a, b):
        thing.items.clear()  # so that the order of the names is another one each time
        for name, array in sorted({"a": a, "b": b}.items(), key=lambda item: id(item[1])):
            thing.items[name] = array

    return Cells(thing, put, lambda given: (given.items["a"], given.items["b"]))


def of_the_order_of(items):
    """A dict that the body goes through."""

    def put(*arrays):
        items.clear()
        items.update((id(array), array) for array in arrays)

    return put, lambda given: tuple(given.values())


def of_ordered_dict():
    thing = Plain()
    thing.items = {}
    put, get = of_the_order_of(thing.items)
    return Cells(thing, put, lambda given: get(given.items))


def of_ordered_argument():
    items = {}
    return Cells(items, *of_the_order_of(items))


def of_same_names():
    thing = Plain()
    thing.items = Names()

    def put(a, b):
        thing.items["a"], thing.items.a = a, b

    return Cells(thing, put, lambda given: (given.items["a"], given.items.a))


def of_futures():
    thing = Plain()
    made = {}

    def future(array):
        if id(array) not in made:
            made[id(array)] = concurrent.futures.Future()
            made[id(array)].set_result(array)
        return made[id(array)]

    return Cells(
        thing,
        lambda *arrays: set_both(thing, *map(future, arrays)),
        lambda given: tuple(held.result() for held in both(given)),
    )


def of_polynomial():
    thing = Plain()
    thing.inner = np.polynomial.Polynomial([1])

    def put(a, b):
        thing.inner.coef, thing.inner.window = a, b

    return Cells(thing, put, lambda given: (given.inner.coef, given.inner.window))


def of_object_array():
    cells = np.empty(2, object)

    def put(a, b):
        cells[0], cells[1] = a, b

    return Cells(cells, put, tuple)


def of_nested_object_array():
    thing = Plain()
    thing.cells = np.empty((1, 2), object)

    def put(a, b):
        thing.cells[0, 0], thing.cells[0, 1] = a, b

    return Cells(thing, put, lambda given: tuple(given.cells[0]))


def of_cycle():
    thing, other = Plain(), Plain()
    thing.other, other.other, thing.me = other, thing, thing
    return Cells(thing, functools.partial(set_both, other), lambda given: both(given.other.other.me.other))


def of_equal_cycle():
    thing = types.SimpleNamespace(inner=types.SimpleNamespace())
    thing.inner.outer = thing
    return Cells(thing, functools.partial(set_both, thing.inner), lambda given: both(given.inner.outer.inner))


def of_method():
    thing = Plain()

    def get(self):
        return both(self)

    return Cells(types.MethodType(get, thing), functools.partial(set_both, thing), lambda given: given())


def of_partial():
    thing = Plain()
    return Cells(functools.partial(both, thing), functools.partial(set_both, thing), lambda given: given())


def of_closure():
    a = b = None

    def get():
        return a, b

    def put(*arrays):
        nonlocal a, b
        a, b = arrays

    return Cells(get, put, lambda given: given())


def of_task():
    thing = Plain()
    task = omp.task(if_=False)(lambda: both(thing))
    return Cells(task, functools.partial(set_both, thing), lambda given: given.__wrapped__())


def of_weak_reference():
    thing = Plain()
    argument = Plain()
    argument.reference, argument.gone = weakref.ref(thing), weakref.proxy(Plain())
    return Cells(argument, functools.partial(set_both, thing), lambda given: both(given.reference()))


def of_thread_local():
    thing = threading.local()
    return Cells(thing, functools.partial(set_both, thing), both)


def of_generated():
    thing = Plain()
    argument = Plain()
    argument.made = (both(thing) for _ in range(10**6))
    return Cells(argument, functools.partial(set_both, thing), lambda given: next(given.made))


def of_attribute_of_items():
    thing = Items([1])
    return Cells(thing, functools.partial(set_both, thing), both)


def of_bytes():
    thing = Plain()

    def put(a, b):
        thing.a, thing.b = memoryview(a), memoryview(b)

    return Cells(thing, put, lambda given: tuple(np.asarray(view) for view in both(given)))


PLACES = {
    "plain": functools.partial(of_object, Plain),
    "slots": functools.partial(of_object, Slots),
    "dataclass without eq": functools.partial(of_object, Data),
    "dataclass with fields that == does not compare": functools.partial(of_object, Record),
    "object with ==": functools.partial(of_object, Named),
    "namespace": functools.partial(of_object, types.SimpleNamespace),
    "class": lambda: Cells(Shared(), functools.partial(set_both, Shared), both),
    "class itself": lambda: Cells(Shared, functools.partial(set_both, Shared), both),
    "object in a list": lambda: in_a_container(lambda thing: [thing], lambda items: items[0]),
    "object in a tuple": lambda: in_a_container(lambda thing: (1, (thing,)), lambda items: items[1][0]),
    "object in a dict": lambda: in_a_container(lambda thing: {(1, 2): thing}, lambda items: items[1, 2]),
    "object as a key": lambda: in_a_container(lambda thing: {thing: 1}, lambda items: next(iter(items))),
    "object in a set": lambda: in_a_container(lambda thing: {thing}, lambda items: next(iter(items))),
    "object in a deque": lambda: in_a_container(lambda thing: collections.deque([thing]), lambda items: items[0]),
    "object in a dataclass": lambda: in_a_container(lambda thing: Record(a=thing), lambda given: given.a),
    "object in an object": lambda: in_a_container(
        lambda thing: types.SimpleNamespace(x=Data(thing)), lambda given: given.x.a
    ),
    "list": of_list,
    "tuple": of_tuple,
    "dict": of_dict,
    "order of a dict": of_ordered_dict,
    "order of an argument": of_ordered_argument,
    "items and attributes of one name": of_same_names,
    "futures": of_futures,
    "polynomial": of_polynomial,
    "object array": of_object_array,
    "object array of an object": of_nested_object_array,
    "cycle": of_cycle,
    "cycle of objects with ==": of_equal_cycle,
    "method": of_method,
    "partial": of_partial,
    "closure": of_closure,
    "task function": of_task,
    "weak reference": of_weak_reference,
    "thread local": of_thread_local,
    "generator": of_generated,
    "list with attributes": of_attribute_of_items,
    "memory views": of_bytes,
}


def add(x, y):
    y += x


def added_by_turns(n_turns):
    """Return two numbers of which one is added to the other by turns."""
    values = [1, 10]
    for turn in range(n_turns):
        values[(turn + 1) % 2] += values[turn % 2]
    return tuple(values)


class Region:
    """A task graph that adds the first array of a place to the second; it counts its bodies."""

    def __init__(self, cells):
        self.n_bodies = 0

        @omp.taskgraph
        def region(argument):
            self.n_bodies += 1
            x, y = cells.get(argument)
            omp.task(depend=[in_(x), inout(y)])(add)(x, y)

        self.call = functools.partial(region, cells.argument)


@pytest.mark.parametrize("place", PLACES)
def test_arrays_are_swapped(place):
    """After a swap of two arrays, and with new arrays, a call uses those that are there; it replays where they were."""
    cells = PLACES[place]()
    region = Region(cells)
    x, y, z = np.ones(2), np.full(2, 10.0), np.full(2, 100.0)
    with checked("none", num_threads=1):
        for arrays in ((x, y), (y, x), (x, y), (x, z), (y, x)):
            cells.put(*arrays)
            region.call()
    wanted = [np.ones(2), np.full(2, 10.0), np.full(2, 100.0)]
    for source, target in ((0, 1), (1, 0), (0, 1), (0, 2), (1, 0)):
        wanted[target] += wanted[source]
    assert [array.tolist() for array in (x, y, z)] == [array.tolist() for array in wanted]
    if place not in ("memory views", "generator"):  # other objects each time, and one that the body changes
        assert region.n_bodies == 3


@pytest.mark.parametrize("place", [name for name in PLACES if name != "memory views"])
def test_device_arrays_are_swapped(sim, place):
    """Device arrays that an argument reaches are known by their storage."""
    cells = PLACES[place]()
    n_bodies = []

    @omp.taskgraph
    def region(argument):
        n_bodies.append(1)
        x, y = cells.get(argument)
        omp.target(nowait=True, depend=[in_(x), inout(y)])(add)(x, y)

    x, y = omp.target_alloc(2, "f8"), omp.target_alloc(2, "f8")
    omp.target_memcpy(x, np.ones(2))
    omp.target_memcpy(y, np.full(2, 10.0))
    for arrays in ((x, y), (y, x), (x, y)):
        cells.put(*arrays)
        region(cells.argument)
    assert (x.get()[0], y.get()[0]) == added_by_turns(3)
    assert len(n_bodies) == 2 + (place == "generator")
    cells.put(None, None)
    omp.target_free(x)
    omp.target_free(y)


@pytest.mark.parametrize("by", ["method", "partial", "callable", "task graph", "task"])
def test_the_function_itself_has_an_object(by):
    """A method, a partial function or a callable object that is made a task graph has arrays as arguments have."""

    class Solver:
        def step(self):
            omp.task(add)(self.a, self.b)

        def __call__(self):
            self.step()

    solver = Solver()
    function = {
        "method": solver.step,
        "partial": functools.partial(Solver.step, solver),
        "callable": solver,
        "task graph": omp.taskgraph(solver.step),
        "task": omp.task(solver.step),
    }[by]
    region = omp.taskgraph(function)
    x, y = np.ones(1), np.full(1, 10.0)
    with checked("none", num_threads=1):
        for arrays in ((x, y), (y, x), (x, y), (y, x)):
            solver.a, solver.b = arrays
            region()
        assert len(region.records) == (1 if by == "task" else 2)  # a task looks at its object when it runs
    assert (x[0], y[0]) == added_by_turns(4)


def test_a_method_of_its_class():
    """A method under the decorator replays with the arrays that its object has, and records anew with others."""

    class Solver:
        def __init__(self):
            self.a, self.b, self.n_bodies, self.log = np.ones(1), np.full(1, 10.0), 0, []

        @omp.taskgraph
        def step(self):
            self.n_bodies += 1
            omp.task(add)(self.a, self.b)

    solver = Solver()
    x, y = solver.a, solver.b
    with checked("none", num_threads=1):
        for turn in range(6):
            solver.step()
            solver.log.append(turn)  # numbers, and lists of them, do not matter
            solver.log = [*solver.log]
            solver.a, solver.b = solver.b, solver.a
    assert solver.n_bodies == 2
    assert (x[0], y[0]) == added_by_turns(6)


def test_an_object_is_exchanged_for_an_equal_one():
    """Other holders of the same arrays record anew: tasks were given the first ones, which may get others."""
    thing, seen = Plain(), []
    x, y = np.ones(1), np.full(1, 10.0)

    @omp.task
    def look(holder, items):
        seen.append((holder.a[0], items[0][0]))

    @omp.taskgraph
    def region(thing):
        look(thing.holder, thing.items)

    thing.holder, thing.items = Data(x), [x]
    old_holder, old_items = thing.holder, thing.items
    with checked("none", num_threads=1):
        region(thing)
        thing.holder, thing.items = Data(x), [x]
        old_holder.a = old_items[0] = y
        region(thing)
    assert seen == [(1, 1), (1, 1)]


def test_the_body_exchanges_arrays():
    """A region whose body gives the object other arrays is not recorded: a replay would not do that."""

    class Solver:
        n_bodies = 0

        @omp.taskgraph
        def step(self):
            self.n_bodies += 1
            omp.task(add)(self.a, self.b)
            self.a, self.b = self.b, self.a

    solver, x, y = Solver(), np.ones(1), np.full(1, 10.0)
    solver.a, solver.b = x, y
    with checked("none", num_threads=1):
        for _ in range(4):
            solver.step()
    assert solver.n_bodies == 4
    assert (x[0], y[0]) == added_by_turns(4)
    assert Solver.step.records == ()


def test_an_object_in_a_list_that_is_copied():
    """If a task gives an object in a list other arrays, that is no change of the list."""
    things = [Data(np.zeros(1))]

    @omp.task
    def renew(thing):
        thing.a = thing.a + 1

    region = omp.taskgraph(lambda things: renew(things[0]) and None)
    with checked("none", num_threads=1):
        for _ in range(4):
            region(things)
    assert things[0].a[0] == 4


def test_arguments_that_reach_too_much():
    """A call whose arguments reach very many objects is not recorded, and says so; it is right all the same."""
    thing = Data(np.ones(1), np.full(1, 10.0))
    thing.cells = [Plain() for _ in range(100_001)]
    x, y = thing.a, thing.b
    region = omp.taskgraph(lambda thing: omp.task(add)(thing.a, thing.b) and None)
    with checked("none", num_threads=1):
        for _ in range(2):
            with pytest.warns(omp.PerformanceWarning, match="more than 100,000 objects, .*; pass") as caught:
                region.options(graph_reset=True)(thing)
            assert caught[0].filename == __file__
            thing.a, thing.b = thing.b, thing.a
        assert region.records == ()
        thing.cells = list(range(1_000_000))  # of numbers there may be more
        region(thing)
        assert len(region.records) == 1
    assert (x[0], y[0]) == added_by_turns(3)


def test_long_chains():
    """Lists of nodes that are linked one by one are followed without recursion."""
    thing = Data(np.ones(1), np.full(1, 10.0))
    first, x, y = thing, thing.a, thing.b
    for make in (Data, lambda inner: types.SimpleNamespace(a=inner), lambda inner: (inner,)):
        for _ in range(50 if make((1,)) == ((1,),) else 5_000):
            thing = make(thing)

    def find(thing):
        while thing is not first:
            thing = thing[0] if isinstance(thing, tuple) else thing.a
        return thing

    region = omp.taskgraph(lambda get: omp.task(add)(*both(get())) and None)
    held = functools.partial(find, thing)
    with checked("none", num_threads=1):
        for _ in range(3):
            region(held)
            first.a, first.b = first.b, first.a
        assert len(region.records) == 2
    assert (x[0], y[0]) == added_by_turns(3)


def test_a_record_keeps_the_arrays_and_nothing_else_of_an_object():
    """A record keeps the arrays that it is known by; objects that lead to none live as long as ever."""
    thing, region = Data(np.ones(1)), omp.taskgraph(lambda thing: omp.task(lambda: None)() and None)
    thing.log = [Plain()]
    array, entry = weakref.ref(thing.a), weakref.ref(thing.log[0])
    with checked("none", num_threads=1):
        region(thing)
        thing.a, thing.log = None, None
        gc.collect()
        assert array() is not None
        assert entry() is None
    gc.collect()
    assert array() is None


def test_an_object_that_raises_when_it_is_looked_at():
    """What the attributes of a class raise is not the caller's affair."""

    class Strange:
        __slots__ = ("a",)

        def __getattr__(self, name):
            raise RuntimeError(name)

    class Proxy:
        """Its attributes are those of another place: to ask for one does something."""

        def __getattr__(self, name):
            asked.append(name)
            return lambda: None

    class Holder:
        def __init__(self):
            self.strange, self.proxy = Strange(), Proxy()

    asked = []

    region = Region(Cells(Holder(), None, lambda _: (np.ones(1), np.ones(1))))
    with checked("none", num_threads=1):
        region.call()
        region.call()
    assert region.n_bodies == 1
    assert not asked
