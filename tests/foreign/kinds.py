"""Kinds of objects that expose host memory: each makes an object, and a NumPy array of the same memory.

The objects of a kind that are made one after the other have memory of their own with the same contents: 1, 2, 3, ….
Kinds of a library that is not installed are left out; `test_constructs.test_libraries` says so.
"""

from __future__ import annotations

import array
import ctypes
import importlib
import importlib.util
import mmap
import warnings
from functools import cache
from multiprocessing import shared_memory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Host = np.ndarray[Any, Any]
    Made = tuple[Any, Host]

LIBRARIES = {"torch": "PyTorch", "jax": "JAX"}
HAS = {name: importlib.util.find_spec(name) is not None for name in LIBRARIES}


def needs(name: str) -> pytest.MarkDecorator:
    """Skip a test where a library is not installed."""
    return pytest.mark.skipif(not HAS[name], reason=f"{LIBRARIES[name]} is not installed")


def library(name: str) -> Any:
    """Import a library, whatever it warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


# -- classes that a program could write --------------------------------------------------------------------
class Interfaced:
    """An array that describes its memory, and has nothing else."""

    def __init__(self, memory: Host) -> None:
        self._memory = memory

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._memory.__array_interface__


class Exchanged:
    """An array that is exchanged by DLPack, in the protocol of versions since 1.0."""

    def __init__(self, memory: Host) -> None:
        self._memory = memory

    def __dlpack_device__(self) -> Any:
        return self._memory.__dlpack_device__()

    def __dlpack__(self, **how: Any) -> Any:
        return self._memory.__dlpack__(**how)


class ExchangedBefore(Exchanged):
    """An array that is exchanged by DLPack as before version 1.0, which knows neither versions nor copies."""

    def __dlpack__(self, stream: Any = None) -> Any:
        return self._memory.__dlpack__(stream=stream)


# -- kinds -------------------------------------------------------------------------------------------------
class Kind(NamedTuple):
    """A way to expose host memory.

    Attributes
    ----------
    make : callable
        Returns an object, and a NumPy array of the same memory.
    body : str
        The array that a body receives: ``"array"``, or ``"tensor"``.
    """

    make: Callable[[], Made]
    body: str = "array"


def numbers(dtype: Any = "f8", shape: tuple[int, ...] = (12,)) -> Host:
    """Return new memory with the elements 1, 2, 3, …."""
    return np.arange(1, 1 + np.prod(shape)).reshape(shape).astype(dtype)


def over(wrap: Callable[[Host], Any], *shape: int, dtype: Any = "f8") -> Callable[[], Made]:
    """Return the function of a kind whose objects wrap a NumPy array."""

    def make() -> Made:
        memory = numbers(dtype, shape or (12,))
        return wrap(memory), memory

    return make


def seen(make: Callable[[], Any], dtype: Any = "u1", shape: tuple[int, ...] = (12,)) -> Callable[[], Made]:
    """Return the function of a kind whose objects are buffers with memory of their own."""

    def made() -> Made:
        item = make()
        return item, np.frombuffer(item, dtype).reshape(shape)

    return made


def _own_column() -> Made:
    memory = numbers(shape=(4, 6))
    return Interfaced(memory[:, 1:4]), memory[:, 1:4]


def _cast(shape: tuple[int, ...]) -> Made:
    memory = bytearray(numbers(shape=shape).tobytes())
    return memoryview(memory).cast("d").cast("B").cast("d", shape), np.frombuffer(memory).reshape(shape)


def _strided() -> Made:
    memory = numbers(shape=(24,))
    return memoryview(memory)[1::2], memory[1::2]


def _ctypes() -> Made:
    item = (ctypes.c_double * 12)(*range(1, 13))
    return item, np.frombuffer(item, "f8")


def _ctypes_of_two_dimensions() -> Made:
    item = ((ctypes.c_int * 4) * 3)()
    view = np.frombuffer(item, np.intc).reshape(3, 4)
    view[...] = numbers("i4", (3, 4))
    return item, view


def _mapped() -> Made:
    item = mmap.mmap(-1, 12)
    item[:] = bytes(range(1, 13))
    return item, np.frombuffer(item, "u1")


@cache
def _segment() -> shared_memory.SharedMemory:
    """Return shared memory that all objects of the kind are parts of; it cannot be closed while they are there."""
    made = shared_memory.SharedMemory(create=True, size=1 << 20)
    made.unlink()  # the name; the pages stay while they are mapped
    made.close = lambda: None  # type: ignore[method-assign]  # at the end of the process, which has views of it
    return made


_places = iter(range(0, 1 << 20, 64))  # never twice, since a declaration lasts


def _shared() -> Made:
    begin = next(_places)
    item = _segment().buf[begin : begin + 12]
    item[:] = bytes(range(1, 13))
    return item, np.frombuffer(item, "u1")


def _read_only(wrap: Callable[[Host], Any]) -> Made:
    memory = numbers()
    memory.flags.writeable = False
    return wrap(memory), memory


def _unversioned() -> Made:
    item = ExchangedBefore(numbers())
    return item, np.from_dlpack(item)  # read-only, since the protocol did not say


KINDS: dict[str, Kind] = {
    "interface": Kind(over(Interfaced)),
    "interface of a column": Kind(_own_column),
    "interface as attribute": Kind(over(lambda a: SimpleNamespace(__array_interface__=a.__array_interface__, kept=a))),
    "DLPack": Kind(over(Exchanged, 3, 4, dtype="f4")),
    "bytearray": Kind(seen(lambda: bytearray(range(1, 13)))),
    "array.array": Kind(seen(lambda: array.array("d", range(1, 13)), "f8")),
    "memoryview": Kind(over(memoryview, 3, 4)),
    "memoryview cast": Kind(lambda: _cast((12,))),
    "memoryview of two dimensions": Kind(lambda: _cast((3, 4))),
    "memoryview strided": Kind(_strided),
    "ctypes": Kind(_ctypes),
    "ctypes of two dimensions": Kind(_ctypes_of_two_dimensions),
    "mmap": Kind(_mapped),
    "shared memory": Kind(_shared),
    "memoryview of bytes": Kind(seen(lambda: memoryview(bytes(range(1, 13))))),
    "memoryview read-only": Kind(lambda: _read_only(lambda a: memoryview(a).toreadonly())),
    "interface read-only": Kind(lambda: _read_only(Interfaced)),
    "DLPack read-only": Kind(lambda: _read_only(Exchanged)),
    "DLPack unversioned": Kind(_unversioned),
}


def _tensor(view: Callable[[Any], Any], dtype: str = "float64") -> Callable[[], Made]:
    def make() -> Made:
        torch = library("torch")
        memory = numbers(shape=(4, 6))
        tensor = view(torch.from_numpy(memory).to(getattr(torch, dtype)))
        return tensor, tensor.numpy()

    return make


def _of_jax(dtype: str = "float32") -> Made:
    jax_numpy = library("jax.numpy")
    item = jax_numpy.arange(1, 13, dtype=dtype)
    return item, np.asarray(item)


if HAS["torch"]:
    KINDS |= {
        "tensor": Kind(_tensor(lambda t: t), body="tensor"),
        "tensor non-contiguous": Kind(_tensor(lambda t: t[:, 1:5:2]), body="tensor"),
        "tensor transposed": Kind(_tensor(lambda t: t.T, "int32"), body="tensor"),
    }
if HAS["jax"]:
    KINDS |= {"JAX": Kind(_of_jax), "JAX int32": Kind(lambda: _of_jax("int32"))}
