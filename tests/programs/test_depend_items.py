"""List items of `depend` that are refused, warned of, or in no order, through the public interface."""

from __future__ import annotations

import copy
import ctypes
import functools
import gc
import io
import pickle
import subprocess
import sys
import threading
import warnings
import weakref
from enum import Enum
from typing import Any

import numpy as np
import pytest

import offload as omp
from offload import acc, in_, inout, inoutset, mutexinoutset, out, tofrom

KINDS = (in_, out, inout, mutexinoutset, inoutset)
A = np.arange(12.0)
GRID = np.zeros((4, 4))


@pytest.fixture
def sim() -> Any:
    """A runtime with one simulated device."""
    with omp.Runtime("sim", num_threads=1, check=True) as runtime:
        yield runtime


def follows(first: Any, second: Any, *arguments: Any) -> bool:
    """Tell whether a task with the second dependence follows one with the first."""
    event = omp.Event()
    earlier = omp.task(lambda *_: None, detach=event, depend=[first])(*arguments)
    later = omp.task(lambda *_: None, depend=[second])(*arguments)
    found = earlier in later.dependencies
    event.fulfill()
    omp.taskwait()
    return found


# -- temporaries --------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_temporaries(kind: Any) -> None:
    """An array that nothing refers to but the clause, and that owns its data, is an error in every clause."""
    calls = (
        lambda: kind(A + 1),
        lambda: kind(A[[1, 2]]),
        lambda: kind(A[A > 3]),
        lambda: kind(A, A.copy()),
        lambda: kind(GRID.T.ravel()),
        lambda: kind(np.ascontiguousarray(GRID[:, 0])),
        lambda: kind(np.array([1, 2])),
        lambda: [kind(A * n) for n in range(2)],
        lambda: kind(np.rec.array([(1, 2.0)])),
    )
    for call in calls:
        with pytest.raises(omp.ClauseError, match="temporary array"):
            call()


def test_a_temporary_of_a_property(sim: omp.Runtime) -> None:
    """A string may name a property that returns a view of an array, not one that computes an array."""

    class Field:
        def __init__(self) -> None:
            self.data = np.zeros(6)

        @property
        def doubled(self) -> Any:
            return self.data * 2

        @property
        def interior(self) -> Any:
            return self.data[1:-1]

    field = Field()
    with pytest.raises(omp.ClauseError, match=r"'field\.doubled', float64\[6\] is a temporary array"):
        omp.task(lambda field: None, depend=[out("field.doubled")])(field)
    omp.task(lambda field: None, depend=[out("field.interior")])(field)
    omp.taskwait()


def written(first: Any, *others: Any, **more: Any) -> Any:
    """Return a clause of its arguments, as a function of a program does that generates a task."""
    return out(first, *others, *more.values())


def kept_arrays() -> Any:
    """Yield clauses of arrays that other code can name, one way or another."""
    kept: list[Any] = [A + 1]
    yield out(kept[0])
    yield out(*kept)
    pair = (A + 1, A + 2)
    yield out(*pair)
    table = {"x": A + 1}
    yield out(*table.values())
    yield written(A + 1)
    yield written(A + 1, A + 2, x=A + 3)
    yield out(named := A + 1)
    view = np.zeros(4)[1:]
    yield out(view.base)
    yield out(view)

    def storing(keep: Any) -> Any:
        x = np.zeros(4)
        kept.append(keep(x))
        return x

    for keep in (lambda x: x, lambda x: x[1:], memoryview, weakref.ref, lambda x: x.ctypes, lambda x: lambda: x):
        yield out(storing(keep))
        yield out(storing(keep)[1:])
    holder = type("Holder", (), {})()
    holder.x = A + 1
    yield out(holder.x)
    yield from [out(x) for x in (A + 1, A + 2)]
    yield out(*np.array_split(A + 1, 3))
    yield from [out(piece) for piece in np.array_split(A + 1, 3)]
    yield from map(out, np.zeros((2, 3)))
    yield written((A + 1)[1:])
    yield out((A + 1)[1:])
    yield from map(out, [A + 1])
    yield functools.partial(out, A + 1)()
    yield out(np.frombuffer(bytearray(32)))
    yield out(np.ctypeslib.as_array((ctypes.c_double * 4)()))
    del named


def test_arrays_that_can_be_named() -> None:
    """An array that a name, a container, an object, a closure or a view refers to is a list item."""
    for clause in kept_arrays():
        assert len(clause.keys) == len(clause.items) > 0


IMPORTED = """
import sys
def profile(frame, event, argument):
    if frame.f_code.co_name == "<genexpr>":
        frame.f_locals  # up to Python 3.12 this keeps the variables
sys.setprofile(profile)
import offload as omp
sys.setprofile(None)
import numpy as np
a = np.zeros(3)
assert omp.out(a).keys
"""


def test_a_profiler_that_looks_at_variables() -> None:
    """A profiler that runs while the package is imported makes no array with a name a temporary one."""
    subprocess.run([sys.executable, "-c", IMPORTED], check=True, timeout=60)


def test_memory_maps(tmp_path: Any) -> None:
    """An array of a file, which another array may map as well, is a list item without a name of its own."""
    path = tmp_path / "data"
    path.write_bytes(bytes(80))
    assert out(np.memmap(path)).keys
    assert out(np.memmap(path)[8:]).keys


def test_clauses_keep_their_arrays() -> None:
    """A clause that alone keeps its array can be copied, pickled and changed as others can."""

    def clause() -> Any:
        x = np.zeros(4)
        return in_(x)

    for other in (copy.copy(clause()), copy.deepcopy(clause()), pickle.loads(pickle.dumps(clause()))):
        assert len(other.keys) == 1
    depobj = omp.depobj(clause())
    gc.collect()
    depobj.update("out")
    assert repr(depobj) == "depobj(out(float64[4]))"


# -- iterators, arrays of other libraries, objects ------------------------------------------------------
class Interfaced:
    """An array of another library, by NumPy's protocol."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.__array_interface__ = data.__array_interface__


class Exchanged:
    """An array of another library, by DLPack."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.data.__dlpack_device__()


@pytest.mark.parametrize("kind", KINDS)
def test_iterators(kind: Any) -> None:
    """What yields items is not those items: an error in every clause, with a name or without."""
    tiles = [A[:4], A[4:]]

    async def elements() -> Any:
        yield A

    named = (tile for tile in tiles)
    for wrong in (
        named,
        iter(tiles),
        map(id, tiles),
        zip(tiles),
        enumerate(tiles),
        {1: A}.values(),
        elements(),
        A.flat,
    ):
        with pytest.raises(omp.ClauseError, match=r"is an iterator.*\*tiles"):
            kind(wrong)
    assert len(kind(*(tile for tile in tiles)).keys) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_other_libraries(kind: Any) -> None:
    """An object that exposes host memory is that storage in every clause."""
    for same in (Interfaced(A), Exchanged(A), memoryview(A)):
        assert kind(same).keys == kind(A).keys
    assert kind(Interfaced(A[2:4]), Exchanged(A[2:4]), memoryview(A)[2:4]).keys == 3 * kind(A[2:4]).keys
    values = (ctypes.c_double * 3)()
    assert kind(values).keys == kind(np.asarray(values)).keys


def test_locations_of_their_own() -> None:
    """Numbers, tuples, enum members, files, locks and other objects without arrays are list items."""
    color = Enum("color", "RED")

    class Key(bytes):
        pass

    values = (3, 2.0, None, True, b"x", Key(b"y"), ("x", 3), frozenset({1}), range(3), np.int64(3), np.float32(1.5))
    objects = (color.RED, object(), threading.Lock(), io.StringIO(), int, np, follows, Key)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(in_(*values, *objects).keys) == len(values) + len(objects)


def test_objects_with_arrays(sim: omp.Runtime) -> None:
    """An object without a mapper that has arrays, in attributes, slots or containers, is a warning at the line."""

    class Plain:
        def __init__(self, data: Any) -> None:
            self.data = data

    class Slotted:
        __slots__ = ("data",)

        def __init__(self, data: Any) -> None:
            self.data = data

    for kind in (Plain, Slotted):
        for data in (A, [A], {"x": (A,)}):
            with pytest.warns(omp.DirectiveWarning, match="the arrays which it holds are not ordered") as caught:
                clause = out(kind(data))
            assert caught[0].filename == __file__
            assert len(clause.keys) == 1
    item = Plain(A)
    with pytest.warns(omp.DirectiveWarning, match=r"declare_mapper\(Plain"):
        omp.task(lambda item: None, depend=[out("item")])(item)
    omp.taskwait()


# -- no storage -----------------------------------------------------------------------------------------
EMPTY = (
    A[:0],
    A[5:5],
    np.zeros(0),
    np.zeros((3, 0)),
    GRID[:, 2:2],
    omp.section(A, (3, 0)),
    np.zeros(4, "V0"),
    A[A < 0],
)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_array_is_in_no_order(sim: omp.Runtime, kind: Any) -> None:
    """An item without elements adds no edge, not even to itself, and the other items of the clause hold."""
    for empty in EMPTY:
        assert not follows(out(empty), kind(empty))
        assert not follows(out(A), kind(empty))
        assert follows(out(omp.all_memory), kind(A, empty))
        assert follows(out(A), kind(empty, A, A[:0]))
        if kind in (out, inout):
            assert follows(out(A), kind(empty, omp.all_memory))
        assert copy.copy(kind(empty)).keys == pickle.loads(pickle.dumps(kind(empty))).keys == ()


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_section_written_as_a_string(sim: omp.Runtime, kind: Any) -> None:
    """A section that turns out to be empty at the call adds no edge."""
    gate, x = omp.Event(), np.zeros(4)
    omp.task(detach=gate, depend=[out(x)])(lambda: None)()

    def body(x: Any, n: int) -> int:
        return n

    task = omp.task(depend=[kind("x[0:n]")])(body)
    assert task(x, 0).result() == 0
    assert omp.target(nowait=True, map=[omp.alloc("x[0:n]")], depend=[kind("x[0:n]")])(body)(x, 0).result() == 0
    assert not task(x, 1).done()
    gate.fulfill()
    omp.taskwait()


def test_empty_arrays_in_other_places(sim: omp.Runtime) -> None:
    """Waits, depend objects, copies, updates, blocks, interop and graphs accept an item without elements."""
    gate, x = omp.Event(), np.zeros(4)
    held = omp.task(detach=gate, depend=[out(x)])(lambda: None)()
    empty = x[:0]
    omp.taskwait(depend=[in_(empty)])
    assert omp.taskwait(depend=[in_(empty)], nowait=True).result() is None
    depobj = omp.depobj(in_(empty))
    depobj.update("mutexinoutset")
    omp.task(depend=[depobj])(lambda: None)().result()
    device = omp.target_alloc(4, "f8")
    omp.target_memcpy_async(device, np.ones(4), depend=[out(device[:0])]).result()
    omp.target_free(device)
    y = np.ones(4)
    with omp.target_data(map=[tofrom(y)], depend=[inout(empty)]):
        omp.target_update(to=[y], depend=[in_(empty)])
    with omp.interop(depend=[inout(empty)]):
        pass
    assert not held.done()
    gate.fulfill()
    omp.taskwait()
    with omp.record(execute=False) as graph:
        omp.task(depend=[out(empty, x)])(lambda: None)()
        omp.task(depend=[in_(x, empty)])(lambda: None)()
    assert [(edge.kind, edge.item) for edge in graph.edges] == [("flow", "float64[4]")]


def test_empty_parts_of_an_array(sim: omp.Runtime) -> None:
    """A program that has more parts than elements needs no special case."""
    x = np.arange(5.0)
    for part in np.array_split(x, 8):
        omp.target(nowait=True, map=[tofrom("part")], depend=[inout("part")])(doubled)(part)
        omp.task(depend=[inout(part)])(doubled)(part)
    omp.taskwait()
    assert (x == 4 * np.arange(5.0)).all()
    with acc.data(copy=[x[:0]]):
        acc.parallel(async_=1)(doubled)(x[:0])
        acc.wait()


def doubled(part: Any) -> None:
    part *= 2
