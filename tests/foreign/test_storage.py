"""An object is its storage: one with its NumPy view, kept alive while it is used, and let go afterwards."""

from __future__ import annotations

import array
import ctypes
import gc
import sys
import weakref
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offload as omp
from offload import acc, in_, inout, inoutset, mutexinoutset, out, release, to, tofrom
from tests.conftest import checked
from tests.differential.world import attempted
from tests.foreign.cases import CASES, follows, inc
from tests.foreign.kinds import HAS, KINDS, Exchanged, ExchangedBefore, Interfaced, library
from tests.patience import until, until_gone

if TYPE_CHECKING:
    from collections.abc import Callable

N_BYTES = 24


# -- identity ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_an_object_is_its_view(kind: str) -> None:
    """In depend, an object is the location of the NumPy array over its memory, and of another object like it."""
    item, memory = KINDS[kind].make()
    for clause in (in_, out, inout, mutexinoutset, inoutset):
        assert clause(item).keys == clause(memory).keys == clause(Interfaced(memory)).keys


def test_objects_of_several_kinds_are_one_storage(sim: omp.Runtime) -> None:
    """What is mapped by one object is present by all others over the memory, and its references count together."""
    memory = bytearray(range(N_BYTES))
    numbers = np.frombuffer(memory, "u1")
    objects = [memory, memoryview(memory), Interfaced(numbers), Exchanged(numbers), numbers]
    objects += [(ctypes.c_ubyte * N_BYTES).from_buffer(memory), (ctypes.c_double * 3).from_buffer(memory)]
    if HAS["torch"]:
        objects.append(library("torch").frombuffer(memory, dtype=library("torch").uint8))
    for item in objects:
        omp.target_enter_data(map=[to(item)])
    omp.target(inc)(objects[0])
    for item in objects:
        assert all(map(omp.target_is_present, objects))
        omp.target_update(from_=[item])
        assert memory == bytes(range(1, N_BYTES + 1))
        omp.target_exit_data(map=[release(item)])
    assert not any(map(omp.target_is_present, objects))


_slices = st.builds(slice, st.integers(0, N_BYTES - 1), st.integers(1, N_BYTES), st.integers(1, 4))


def _tensor(view: Any) -> Any:
    return library("torch").from_numpy(view)


WRAPS: list[Callable[[Any], Any]] = [memoryview, Interfaced, Exchanged, ExchangedBefore, *[_tensor] * HAS["torch"]]


@given(st.data())
def test_slices_conflict_if_they_share_a_byte(data: st.DataObject) -> None:
    """Two slices, of objects of any kinds, are ordered exactly if they have a byte in common."""
    memory = np.zeros(N_BYTES, "u1")
    with checked("sim:1"):
        for _ in range(4):
            first, second = data.draw(_slices), data.draw(_slices)
            shared = set(range(N_BYTES)[first]) & set(range(N_BYTES)[second])
            wraps = data.draw(st.sampled_from(WRAPS)), data.draw(st.sampled_from(WRAPS))
            items = [wrap(memory[part]) for wrap, part in zip(wraps, (first, second), strict=True)]
            assert follows(out(items[0]), in_(items[1])) == bool(shared), (items, first, second)


@pytest.mark.usefixtures("torch")
def test_slices_of_tensors(sim: omp.Runtime) -> None:
    """Slices of one tensor are storage of the same array, which a whole tensor covers."""
    tensor = library("torch").zeros(4, 6)
    assert follows(out(tensor), in_(tensor[:2]))
    assert follows(out(tensor[:, ::2]), in_(tensor[1]))
    assert not follows(out(tensor[:, ::2]), in_(tensor[:, 1::2]))
    assert not follows(out(tensor[:2]), in_(tensor[2:].T))
    assert follows(out(tensor.T), in_(tensor.numpy()[3:, 5:]))
    assert not follows(out(tensor), in_(tensor.clone()))


def test_buffers_are_elements(sim: omp.Runtime) -> None:
    """Sections of a buffer count its elements, whose type the buffer says."""
    doubles = array.array("d", range(8))
    ints = (ctypes.c_int * 4 * 3)()
    assert omp.section(doubles, (2, 3)).tolist() == [2, 3, 4]
    assert omp.section(ints, (1, 1), (0, 2)).shape == (1, 2)
    omp.target(map=[tofrom("x[2:3]")])(inc)(doubles)  # where a section begins at index 0
    assert doubles.tolist() == [0, 1, 3, 4, 5, 5, 6, 7]
    with pytest.raises(omp.ClauseError, match="8 elements"):
        omp.section(doubles, (6, 3))


# -- the array that a body gets ----------------------------------------------------------------------------
def name_of(x: Any) -> str:
    return type(x).__name__


@pytest.mark.parametrize("kind", KINDS)
def test_bodies(sim: omp.Runtime, kind: str) -> None:
    """A region gets a tensor for a tensor, and the device's array for anything else; a task what was passed."""
    item, memory = KINDS[kind].make()
    device, host = ("Tensor", "Tensor") if KINDS[kind].body == "tensor" else ("SimArray", "ndarray")
    assert omp.target(map=[to("x")])(name_of)(item) == device
    assert omp.target(map=[to("x")])(name_of)(x=item) == device
    assert omp.target(firstprivate=["x"])(name_of)(item) == device
    assert omp.target(private=["x"])(name_of)(item) == device
    assert omp.target(map=[to("x")], nowait=True)(name_of)(omp.task(lambda: item)()).result() == device
    assert acc.parallel(copyin=["x"])(name_of)(item) == device
    assert omp.target(map=[to("x")], arrays="cupy")(name_of)(item) == "SimArray"
    assert omp.target(if_=False)(name_of)(item) == host
    assert omp.task(lambda x: x is item)(item).result()
    del memory


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("kind", KINDS)
def test_bodies_with_tensors(sim: omp.Runtime, kind: str) -> None:
    """With ``arrays="torch"`` each array is a tensor over the device's own storage."""
    library("torch")
    item, memory = KINDS[kind].make()
    before = memory.copy()
    region = omp.target(map=[to("x")], arrays="torch")(lambda x: (name_of(x), str(x.numpy().dtype), x.tolist()))
    assert region(item) == ("Tensor", str(memory.dtype), memory.tolist())
    with omp.target_data(map=[to(item)]):
        omp.target(map=[to("x")], arrays="torch")(lambda x: x.add_(1) is None)(item)
        assert (omp.get_mapped_ptr(item).get() == before + 1).all()
    assert (memory == before).all()


# -- life --------------------------------------------------------------------------------------------------
class Memory(np.ndarray[Any, Any]):
    """Memory that can be watched."""


def watched(wrap: Callable[[Any], Any]) -> tuple[Any, weakref.ref[Any]]:
    """Return an object, and a reference to its memory, that nothing else has."""
    memory = np.zeros(4).view(Memory)
    return wrap(memory), weakref.ref(memory)


@pytest.mark.parametrize("wrap", WRAPS[:3])
def test_an_object_is_kept_until_its_region_ends(sim: omp.Runtime, wrap: Any) -> None:
    """A region keeps the memory of objects that the program lets go, and frees it when it has ended."""
    found, event = [], omp.Event()
    item, alive = watched(wrap)
    omp.task(detach=event, depend=[out(("held", 2))])(lambda: None)()
    region = omp.target(nowait=True, depend=[in_(("held", 2)), inout(item)])(lambda x: found.append(inc(x)))(item)
    del item
    gc.collect()
    assert alive() is not None
    event.fulfill()
    region.result()
    omp.taskwait()
    del region
    assert found == [4]
    until_gone(alive)


@pytest.mark.parametrize("wrap", WRAPS[:3])
def test_an_object_is_kept_while_it_is_present(sim: omp.Runtime, wrap: Any) -> None:
    """The data environment keeps the memory, to which the exit copies."""
    item, alive = watched(wrap)
    omp.target_enter_data(map=[to(item)])
    copy = np.asarray(alive())[...]
    del item
    gc.collect()
    omp.target(inc)(copy)
    omp.target_exit_data(map=[omp.from_(copy)])
    assert copy.tolist() == [1] * 4
    del copy
    until_gone(alive)


KEEPING = {"declare_target"}
"""A declaration lasts until the end of the process."""


def is_free(item: bytearray) -> bool:
    """Tell whether nothing holds a buffer: neither a cycle nor the thread that has just completed a task with it."""
    try:
        item.append(1)
    except BufferError:
        gc.collect()  # a graph that was not run is in a cycle
        return False
    return True


@pytest.mark.filterwarnings("ignore:.*wrote no element:offload.DirectiveWarning")
@pytest.mark.parametrize("name", sorted(CASES.keys() - KEEPING))
def test_nothing_is_kept(sim: omp.Runtime, name: str) -> None:
    """After a case, nothing holds the buffer, which could not be resized else."""
    item = bytearray(range(1, 13))

    def use() -> None:
        memory = np.frombuffer(item, "u1")
        attempted(lambda: CASES[name](item, memory))
        attempted(omp.taskwait)
        for _ in range(3 * omp.target_is_present(memory)):
            omp.target_exit_data(map=[omp.delete(memory)])

    use()
    until(lambda: is_free(item))


def _bump(x: Any) -> None:
    for i in range(x.shape[0]):
        x[i] += 1


@pytest.mark.parametrize("is_present", [False, True])
def test_functions_that_are_kept_keep_nothing(sim: omp.Runtime, is_present: bool) -> None:
    """What a function remembers of its calls does not hold buffers."""
    functions = [
        omp.target(inc),
        omp.target(map=[tofrom("x")])(inc),
        omp.target(nowait=True, depend=[inout("x")])(inc),
        omp.task(depend=[inout("x")])(lambda x: None),
        acc.parallel(inc),
        omp.target_loop(_bump),
        acc.parallel_loop(_bump),
    ]
    for function in functions:
        item = bytearray(12)
        for _ in range(2):
            if is_present:
                with omp.target_data(map=[tofrom(item)]):
                    for _ in range(4):
                        function(item)
                    omp.taskwait()
            else:
                for _ in range(4):
                    function(item)
                omp.taskwait()
        until(lambda item=item: is_free(item))


def test_a_graph_is_replayed_for_new_objects_over_the_same_memory(sim: omp.Runtime) -> None:
    """A graph of calls with new objects each time is recorded once; other memory, and another kind, is recorded."""
    memory, other, recorded = np.zeros(6), np.zeros(6), []

    @omp.taskgraph
    def graph(x: Any) -> None:
        recorded.append(1)
        omp.target(nowait=True, depend=[inout(x)])(inc)(x)

    for _ in range(3):
        graph(Interfaced(memory))
    assert (len(recorded), memory[0]) == (1, 3)
    graph(Interfaced(memory[:3]))
    graph(Interfaced(other))
    assert (len(recorded), memory[0], memory[5], other[0]) == (3, 4, 3, 1)
    graph(Exchanged(memory))
    assert (len(recorded), memory[0]) == (4, 5)


@pytest.mark.usefixtures("sim")
def test_objects_that_hide_their_class() -> None:
    """A proxy, or an object that says to be of another class, does not decide for that class."""

    class Interfaced:
        def __init__(self) -> None:
            self.memory = np.zeros(4)

        @property
        def __array_interface__(self) -> dict[str, Any]:
            return self.memory.__array_interface__

    item = Interfaced()
    omp.target(lambda x: 0)(weakref.proxy(item))
    assert in_(item).keys == in_(item.memory).keys
    omp.target(lambda x: 0)(mock.Mock(spec=array.array))
    numbers = array.array("d", [1, 2])
    omp.target(lambda x: x.fill(3))(numbers)
    assert numbers.tolist() == [3, 3]


@pytest.mark.usefixtures("sim")
def test_arrays_of_ctypes() -> None:
    """Arrays of pointers and of wide characters are passed as they are; those of characters are bytes."""
    kept = [(ctypes.c_void_p * 3)(), (ctypes.c_char_p * 2)(), (ctypes.POINTER(ctypes.c_double) * 3)()]
    for item in kept:
        assert omp.target(lambda x, item=item: x is item)(item)
    text = ctypes.create_string_buffer(b"ab")
    omp.target(lambda x: x.__iadd__(1) is None)(text)
    assert text.raw == b"bc\x01"


@pytest.mark.usefixtures("sim")
def test_no_protocol() -> None:
    """A class that opts out of a protocol exposes nothing."""

    class Closed:
        __dlpack__ = None
        __array_interface__ = None

    item = Closed()
    assert omp.target(lambda x: x is item)(item)


@pytest.mark.usefixtures("sim")
def test_something_that_stands_for_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for PyTorch without classes has no tensors."""
    monkeypatch.setitem(sys.modules, "torch", mock.MagicMock())
    item = object()
    assert omp.target(lambda x: x is item)(item)
