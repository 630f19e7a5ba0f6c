"""Storage that the arguments of a task graph reach through objects: a part of the key of its records.

The key has every array that the arguments reach, with the path to it. Objects on a path count by identity; tuples,
frozen sets, methods, and the objects that the key copies count by contents. Only paths to arrays count. A call that
reaches more than `MOST_PARTS` objects is not recorded. See docs/design/theory.md, "Arrays that task graphs reach".
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from contextlib import suppress
from enum import Enum, IntEnum, auto
from functools import partial
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from offload.arrays.containers import MOST_PARTS, attributes_of
from offload.arrays.foreign import type_of
from offload.arrays.items import SCALARS, address_of, array_section, as_host, is_device_array, layout_of, mapper_of
from offload.constructs.clauses.maps import MapClause
from offload.interrupts.shields import pass_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    _Part = tuple[Any, Any]  # the name of a part of an object, and the part

_OPAQUE = (ModuleType, CodeType, FrameType, Enum, np.dtype, np.generic, np.ufunc, slice, range)

_METHODS = (MethodType, BuiltinFunctionType)

_FIXED = (tuple, frozenset, *_METHODS)  # Objects that have the same parts as long as they live

# Classes whose objects have items and no attributes.
_CONTAINERS = {tuple, frozenset, list, set, dict, deque, np.ndarray}

# Attributes of a class that hold no arrays themselves.
_OF_CLASSES = (FunctionType, classmethod, staticmethod, property, GetSetDescriptorType, MemberDescriptorType)

# Modules of the standard library whose objects hold objects of the program.
_OPEN = {
    *("_collections", "_functools", "_thread", "_weakrefset", "array", "builtins", "collections", "concurrent"),
    *("ctypes", "functools", "itertools", "mmap", "multiprocessing", "operator", "queue", "types", "weakref"),
}

_CLOSED = sys.stdlib_module_names - _OPEN  # Libraries into whose objects nobody looks: loggers, threads, event loops

# Libraries whose classes hold no arrays of the program
_NO_CLASSES = sys.stdlib_module_names | {"jax", "jaxlib", "numba", "numpy", "offload", "torch"}

# Attributes of arrays that are not NumPy's.
_SAYINGS = ("__offload_section__", "__cuda_array_interface__", "__array_interface__", "__dlpack__")

_NUMBERS_AS_ONE = 64  # Numbers in a list that are passed over in the time that one object takes


class TooMuchError(Exception):
    """Arguments reach more than `MOST_PARTS` objects."""


class _How(IntEnum):
    """How an object that is reached becomes a part of the key."""

    SIGNED = auto()  # By value, with the arrays in it: the key compares those itself
    COPIED = auto()  # By value: the key has a copy, which holds the arrays themselves
    SHARED = auto()  # By identity


class GraphReach:
    """The arrays that arguments reach through objects, and the paths to them, as they are now.

    The key compares ``args`` by value; ``bound`` are objects that the body has besides its arguments. Raise
    `TooMuchError` if they reach too much.
    """

    __slots__ = ("_arrays", "_classes", "_copied", "_found_in", "_kept", "_n_left", "_objects", "_todo")

    def __init__(self, args: tuple[Any, ...], bound: tuple[Any, ...]) -> None:
        self._n_left = MOST_PARTS
        # In the order in which they are found: a body may go through a dict, and a set, in its order.
        self._arrays: list[tuple[tuple[Any, ...], Any]] = []  # paths, each with the storage at its end
        self._objects: list[tuple[tuple[Any, ...], Any]] = []  # paths, each with the key of the object at its end
        self._found_in: dict[Any, list[Any]] = {}  # by the key of an object: the keys of the objects that hold it
        self._classes: set[int] = set()  # by `id`: those that have been looked at
        self._copied: dict[int, Any] = {}  # by `id`: the keys of objects that count by value
        self._kept: list[tuple[Any, Any]] = []  # with its key each: no id and no address comes to mean something else
        self._todo: list[tuple[tuple[Any, ...], Any, _How]] = []
        self._note(("args",), enumerate(args), _How.SIGNED)
        self._note(("bound",), enumerate(bound), _How.SHARED)
        while self._todo:
            with suppress(ReferenceError):  # a proxy of what is gone
                self._take(*self._todo.pop())
        self._prune()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GraphReach):
            return NotImplemented
        return self._arrays == other._arrays and self._objects == other._objects

    __hash__ = None  # type: ignore[assignment]  # it is only compared

    def _note(self, path: tuple[Any, ...], parts: Iterable[_Part], how: _How) -> None:
        """Note the parts of an object that are to be looked at."""
        n_parts = 0
        for name, part in parts:
            n_parts += 1
            if type(part) not in SCALARS:
                self._n_left -= len(path)  # a path is as long as tuples are nested
                self._todo.append(((*path, name), part, how))
        self._n_left -= n_parts // _NUMBERS_AS_ONE
        if self._n_left < 0:
            raise TooMuchError

    def _take(self, path: tuple[Any, ...], value: Any, how: _How) -> None:
        """Note an array, or an object and its parts."""
        kind: Any = type(value)
        if isinstance(value, _OPAQUE):
            return
        is_array = isinstance(value, np.ndarray)
        is_alone = is_array or kind.__eq__ is object.__eq__ or isinstance(value, _METHODS)
        inner = _How.SHARED if is_alone else how
        storage = None if kind in _CONTAINERS and not is_array else _storage_of(value, is_shared=inner is _How.SHARED)
        if storage is not None:
            if how is not _How.SIGNED or not is_array:
                self._arrays.append((path, storage))
                self._kept.append((path[0], value))
        else:
            if not isinstance(value, _FIXED):
                key = self._key_of(value, inner)
                self._objects.append((path, key))
                holders = self._found_in.setdefault(key, [])
                holders.append(path[0])
                if len(holders) > 1:
                    return
                self._kept.append((key, value))
                path = (key,)
            self._note(path, _tried(_items_of, value) or (), inner)
        if kind not in _CONTAINERS:
            self._note(path, _tried(_attributes_of, value) or (), max(inner, _How.COPIED))
            if id(kind) not in self._classes:
                self._classes.add(id(kind))
                self._note((id(kind),), _of_class(kind), _How.SHARED)

    def _key_of(self, value: Any, how: _How) -> Any:
        """Return the identity of an object; for an array of objects, of its storage."""
        if how is not _How.SHARED:
            return self._copied.setdefault(id(value), ("copy", len(self._copied)))
        return id(value) if not isinstance(value, np.ndarray) else (address_of(value), value.shape, value.strides)

    def _prune(self) -> None:
        """Forget the objects that lead to no array."""
        leading = {path[0] for path, _ in self._arrays}
        todo = [*leading]
        while todo:
            for holder in self._found_in.get(todo.pop(), ()):
                if holder not in leading:
                    leading.add(holder)
                    todo.append(holder)
        self._objects = [(path, key) for path, key in self._objects if key in leading]
        self._kept = [(key, value) for key, value in self._kept if key in leading]
        self._found_in.clear()
        self._copied.clear()
        self._classes.clear()


def _storage_of(value: Any, *, is_shared: bool) -> Any:
    """Return the identity of the storage of an array or a buffer; None for any other object."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return None
        return type(value), address_of(value), value.shape, value.strides, value.dtype, value.flags.writeable
    if isinstance(value, type):
        return None
    return _tried(_foreign_storage_of, value) or (_tried(_buffer_of, value) if is_shared else None)


def _foreign_storage_of(value: Any) -> Any:
    """Return the identity of an array of a device or of another library; None for any other object."""
    # The class says whether an object is one. To ask the object may run code of the program: ``__getattr__`` of a
    # proxy.
    kind, own = type(value), getattr(value, "__dict__", ())
    if not any(hasattr(kind, name) or name in own for name in _SAYINGS):
        return None
    if is_device_array(value):
        return kind, array_section(value), value.shape, value.strides, value.dtype
    host = as_host(value)
    return None if host is value else (kind, type_of(value, host), *layout_of(host))


def _buffer_of(value: Any) -> Any:
    """Return the identity of a buffer; arrays may be views of it. Raises TypeError for any other object."""
    view = memoryview(value)
    return id(value), view.nbytes, address_of(np.asarray(view))


def _items_of(value: Any) -> Iterable[_Part]:
    """Return the items of a container."""
    if isinstance(value, dict):
        keys = [(("key", at), key) for at, key in enumerate([*value]) if type(key) not in SCALARS]
        return [*keys, *value.items()]
    if isinstance(value, (set, frozenset)):
        return [(id(item), item) for item in value]
    if isinstance(value, (tuple, list, deque)):
        return enumerate([*value])
    if isinstance(value, np.ndarray):  # of objects
        return enumerate(value.ravel().tolist())
    return ()


def _attributes_of(value: Any) -> Iterable[_Part]:
    """Return the parts of an object that are not its items."""
    if isinstance(value, FunctionType):
        return _of_function(value)
    if isinstance(value, type):
        return _of_class(value)
    if isinstance(value, _METHODS):
        return [(name, getattr(value, name, None)) for name in ("__self__", "__func__")]
    if isinstance(value, partial):
        return [("func", value.func), ("args", value.args), *value.keywords.items(), *vars(value).items()]
    if isinstance(value, ref):
        return [("referent", value())]
    library = _library(type(value))
    if library == "offload":  # a function under a directive, or a clause
        return [(name, getattr(value, name, None)) for name in ("__wrapped__", "_clauses", "_depend", "items")]
    if library in _CLOSED or str(type(value).__module__).startswith("numpy.random"):  # its arrays are not the program's
        return ()
    found: Iterable[_Part] = attributes_of(value).items() or enumerate(gc.get_referents(value))
    mapper = mapper_of(value)
    mapped = [] if mapper is None else _tried(partial(mapped_by, mapper), value) or []
    return [*found, *((("mapper", at), item) for at, item in enumerate(mapped))]


def _of_function(function: FunctionType) -> list[_Part]:
    """Return the variables of a closure, and defaults."""
    found: list[_Part] = [*enumerate(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not bound yet
            found.append((name, cell.cell_contents))
    return [*found, *vars(function).items()]


def _of_class(kind: type) -> list[_Part]:
    """Return the members that a class has for all of its objects."""
    return [
        (name, value)
        for cls in kind.__mro__
        if _library(cls) not in _NO_CLASSES
        for name, value in [*vars(cls).items()]
        if not (name.startswith("__") or isinstance(value, _OF_CLASSES))
        if _library(type(value)) != "offload" or is_device_array(value)
    ]


def mapped_by(mapper: Callable[[Any], Any], value: Any) -> list[Any]:
    """Return the list items that a mapper yields for an object."""
    given = as_host(mapper(value))
    clauses = (given,) if isinstance(given, (MapClause, np.ndarray)) else tuple(given)
    return [item for clause in clauses for item in (clause.items if isinstance(clause, MapClause) else (clause,))]


def _library(kind: Any) -> str:
    """Return the top-level package in which a class is defined."""
    return str(kind.__module__).partition(".")[0]


def _tried(look: Callable[[Any], Any], value: Any) -> Any:
    """Return the result of ``look`` for an object; None if its class raises, as a reference to a lost object does."""
    try:
        return look(value)
    except Exception as error:  # noqa: BLE001  # whatever the attributes of a class raise
        pass_on(error)
        return None
