"""Objects that a body reaches besides its arguments: those that a graph has to keep, and those that no graph can.

A graph holds addresses. So the device arrays that a body gets at by names have to be found and kept: in its closure,
defaults and globals, in containers and modules there, and likewise for the functions that it calls. An object of any
other class may hold device arrays that nobody finds, or that it replaces one day; a body that reaches one is refused.
Libraries that keep no arrays of a program between calls are not looked into.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from collections import deque
from enum import Enum
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ReferenceType

import numpy as np

from offload.arrays.foreign import TensorForm, is_model, is_tensor, with_tensors
from offload.arrays.items import SCALARS, as_host, is_device_array
from offload.errors import ClauseError
from offload.graphs.rehearsal import NotCapturableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_MOST = 10_000  # Objects to look at: more than the closure of a body has, less than a replay saves in time

LIBRARIES = sys.stdlib_module_names | {"cupy", "cupy_backends", "cupyx", "numba", "numpy", "offload", "scipy", "torch"}

_KERNELS = {
    "ElementwiseKernel",
    "Function",
    "Fusion",
    "RawKernel",
    "RawModule",
    "ReductionKernel",
    "ufunc",
    "vectorize",
}

# Classes, by their library, whose objects are compiled code.
_CODE = {
    "cupy": _KERNELS,
    "cupyx": {"_JitRawKernel"},
    "numba": {"CUDADispatcher"},
    "numpy": {"_ArrayFunctionDispatcher", "ufunc"},
}

_PLANS = {"cupy": {"Plan1d", "PlanNd", "XtPlanNd"}}  # Likewise, whose objects have device memory that stays theirs


# Likewise, whose objects hold no array
_CONSTANTS = {
    "torch": {
        *("device", "dtype", "layout", "memory_format"),
        *("autocast", "enable_grad", "inference_mode", "no_grad", "set_grad_enabled"),
    }
}

_VALUES = (int, float, complex, str, bytes, Enum, np.dtype, np.generic, slice, range)

_MUTABLE = (bytearray, deque, dict, list, np.ndarray, set)  # what a host task may change in place

_CONTAINERS = (tuple, list, set, frozenset, deque)

_CONTAINERS_OF_MODULES = (dict, set)  # of which a module has a dozen, mostly empty

_OF_CLASSES = (*_VALUES, *_MUTABLE, *_CONTAINERS, FunctionType, type(None))  # what is looked for in classes

_AN_ARGUMENT = "an argument"

# A name, its value, and the names of attributes that the code which uses it mentions.
_Found = tuple[str, Any, frozenset[str]]


class HostChanges(NamedTuple):
    """The host objects and names that tasks between the graphs of a region may change, and the names that they read."""

    names: frozenset[str]  # globals, and variables of functions around them, that they assign
    attributes: frozenset[str]  # attributes that they assign, of any object
    objects: Mapping[int, object]  # host arrays and containers that they reach, by id
    is_known: bool  # whether these are all that host tasks reach
    read: frozenset[str]  # names of variables, and of attributes with a dot, that they reach

    def read_one_of(self, value: object, parts: object) -> str:
        """Return a name that they read and that a function assigns, or the methods of an object; empty if none is."""
        names: set[str] = set()
        attributes: set[str] = set()
        for code in _codes_run_by(value, parts):
            _add_assigned(code, names, attributes)
        for name in self.read if names or attributes else ():
            owner, _, attribute = name.rpartition(".")
            if attribute in names or (owner and attribute in attributes):
                return name
        return ""

    def may_change(self, name: str, value: object) -> bool:
        """Tell whether they may change an object that a body reaches by a name."""
        owner, _, attribute = name.rpartition(".")
        if attribute in self.names or (owner and attribute in self.attributes):
            return True
        if not _is_mutable(value) or _is_mapped(name, value):
            return False
        if not self.is_known or id(value) in self.objects:
            return True
        return any(_may_share_memory(value, other) for other in self.objects.values())


def _may_share_memory(one: object, other: object) -> bool:
    """Tell whether two objects, such as an array and a tensor, may have memory of the host in common."""
    try:
        arrays = as_host(one), as_host(other)
    except ClauseError:  # of a tensor that NumPy cannot look at
        return True
    return all(isinstance(array, np.ndarray) for array in arrays) and np.may_share_memory(*arrays)


def _is_mutable(value: Any) -> bool:
    """Tell whether a host task may change an object in place."""
    return isinstance(value, _MUTABLE) or (is_tensor(value) and value.device.type == "cpu")


def _is_mapped(name: str, value: object) -> bool:
    """Tell whether a body gets an object as device memory."""
    return name == _AN_ARGUMENT and (isinstance(value, np.ndarray) or is_tensor(value))


class Call(NamedTuple):
    """The function and arguments of a task between the graphs of a region."""

    function: Any
    args: Iterable[object]
    is_on_host: bool  # whether it is a host task, which may change host memory in ways that nobody finds


def changes_of(calls: Iterable[Call]) -> HostChanges:
    """Return the changes that tasks may make on the host."""
    names: set[str] = set()
    attributes: set[str] = set()
    read: set[str] = set()
    objects: dict[int, object] = {}
    is_known = True
    for function, args, is_on_host in calls:
        try:
            for name, value, parts in _walk(_beginning(function, args)):
                read.add(name)
                for code in _codes_run_by(value, parts):
                    _add_assigned(code, names, attributes)
                if _is_mutable(value) and (is_on_host or not _is_mapped(name, value)):
                    objects[id(value)] = value
                is_known = is_known and (not is_on_host or parts is not None or _is_kept(value))
        except NotCapturableError:
            is_known = is_known and not is_on_host
    return HostChanges(frozenset(names), frozenset(attributes), objects, is_known, frozenset(read))


def _beginning(function: object, args: Iterable[object]) -> list[_Found]:
    """Return the objects from which a walk begins."""
    return [("the body", function, frozenset()), *((_AN_ARGUMENT, value, frozenset()) for value in args)]


def reached(function: object, args: Iterable[object], changes: HostChanges | None = None) -> list[object]:
    """Return the objects that must live as long as a body's enqueued addresses: arrays, kernels, FFT plans, modules.

    ``changes`` has what host tasks of the region may change; None if there are none. Raise `NotCapturableError` if an
    object may hold device arrays and cannot be looked into, or if the body reads what a host task may change.
    """
    kept: dict[int, object] = {}
    for name, value, parts in _walk(_beginning(function, args)):
        if changes is not None and changes.may_change(name, value):
            raise NotCapturableError(
                f"it reaches {name}, which a host task of the region may change, and a graph would read it once; "
                "map it, or let the body read something else"
            )
        if changes is not None and (assigned := changes.read_one_of(value, parts)):
            raise NotCapturableError(
                f"it assigns {assigned}, which a host task of the region may read, and a graph would assign it once"
            )
        if _is_kept(value) or is_model(value):
            kept[id(value)] = value
        elif parts is None:
            raise NotCapturableError(
                f"it reaches {name}, a {type(value).__name__}, whose device arrays offload cannot find; pass the parts "
                "that it uses as arguments"
            )
    return list(kept.values())


def reaches_library(function: object, args: Iterable[object], library: str) -> bool:
    """Tell whether a body reaches a library: its modules, its functions, or objects of its classes.

    A body that is given tensors reaches PyTorch. If nobody can tell, the answer is true.
    """
    try:
        return any(
            library in (_library(value), *map(_library, type(value).__mro__))
            or (library == "torch" and (value is with_tensors or isinstance(value, TensorForm)))
            or (isinstance(value, ModuleType) and value.__name__.partition(".")[0] == library)
            for _, value, _ in _walk(_beginning(function, args))
        )
    except NotCapturableError:
        return True


def _walk(todo: list[_Found]) -> Iterator[tuple[str, Any, Iterable[_Found] | None]]:
    """Yield what can be reached, each object with its name and its parts, which are None if nobody knows them.

    An object that is found again, by another name perhaps, has no parts then.
    """
    seen: dict[Any, object] = {}  # with the objects, whose ids stay theirs
    while todo:
        name, value, mentioned = todo.pop()
        key = (id(value), mentioned) if isinstance(value, (type, ModuleType)) else id(value)
        if key in seen:
            yield name, value, ()
            continue
        seen[key] = value
        if len(seen) > _MOST:
            raise NotCapturableError(
                f"it reaches more than {_MOST:,} objects; pass the objects that it uses as arguments"
            )
        parts = [] if value.__class__ in SCALARS else None if _is_kept(value) else _parts(value, mentioned)
        yield name, value, parts
        todo += parts or ()


def _is_kept(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    if isinstance(value, type):
        return False
    # in this order: PyTorch raises if a tensor that requires grad is asked for the interface of device arrays
    return is_tensor(value) or is_device_array(value) or _is_one_of(value, _CODE) or _is_one_of(value, _PLANS)


def _is_one_of(value: Any, classes: dict[str, set[str]]) -> bool:
    return any(cls.__name__ in classes.get(_library(cls), ()) for cls in type(value).__mro__)


def _library(value: Any) -> str:
    """Return the top-level package in which a function or class is defined."""
    return str(getattr(value, "__module__", None) or "").partition(".")[0]


def _parts(value: Any, mentioned: frozenset[str]) -> Iterable[_Found] | None:
    """Return the objects that can be reached through an object; None if they are not known."""
    if isinstance(value, FunctionType):
        return [] if _library(value) in LIBRARIES else list(_of_function(value))
    if isinstance(value, ModuleType):
        if value.__name__.partition(".")[0] in LIBRARIES:
            return []
        return [(f"{value.__name__}.{name}", vars(value)[name], mentioned) for name in mentioned & vars(value).keys()]
    if isinstance(value, type):
        return list(_of_class(value, mentioned))
    parts: list[tuple[str, Any]] | None = None
    if value is Ellipsis or isinstance(value, (*_VALUES, TensorForm)) or _is_one_of(value, _CONSTANTS):
        parts = []
    elif is_model(value):
        parts = list(_of_module(value))
    elif isinstance(value, ReferenceType):
        parts = [("a referent", value())]
    elif isinstance(value, MethodType):
        mentioned = frozenset(_mentioned(value.__func__))
        parts = [("__func__", value.__func__), (f"the object of {value.__name__}", value.__self__)]
    elif isinstance(value, functools.partial):
        parts = [("func", value.func), *(("a partial argument", item) for item in value.args), *value.keywords.items()]
    elif isinstance(value, BuiltinFunctionType) or type(value).__name__ == "cython_function_or_method":
        owner = getattr(value, "__self__", None)
        if owner is not None and not isinstance(owner, ModuleType):
            parts = [(f"the object of {value.__name__}", owner)]
        elif _library(value) in LIBRARIES:
            parts = []
    elif _library(type(value)) == "offload" and hasattr(value, "__wrapped__"):  # under a directive; a loop's launcher
        parts = [("__wrapped__", value.__wrapped__)]
    elif getattr(value, "__dict__", None):
        return None
    elif isinstance(value, dict):
        parts = [(f"an item {key!r:.20}", item) for key, item in value.items()]
    elif isinstance(value, _CONTAINERS):
        parts = [("an item", item) for item in value]
    return None if parts is None else [(name, item, mentioned) for name, item in parts]


def _of_module(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a module of PyTorch, its parameters and submodules among them, and its own methods."""
    for name, value in vars(module).items():
        if value.__class__ not in SCALARS and not (isinstance(value, _CONTAINERS_OF_MODULES) and not value):
            yield f"{type(module).__name__}.{name}", value
    for cls in type(module).__mro__:
        if _library(cls) not in LIBRARIES:
            for name, item in vars(cls).items():
                found = getattr(item, "__func__", getattr(item, "fget", item))  # of static methods and properties
                if name != "__init__" and (isinstance(found, _OF_CLASSES) or is_tensor(found)):
                    yield f"{cls.__name__}.{name}", found


def _of_class(cls: type, mentioned: frozenset[str]) -> Iterator[_Found]:
    """Yield the functions and the data of a class that code mentions; other attributes hold no arrays."""
    for name in mentioned:
        item = inspect.getattr_static(cls, name, None)
        if isinstance(item, classmethod):
            yield cls.__name__, cls, frozenset(_mentioned(item.__func__))
        if isinstance(item, (classmethod, staticmethod)):
            item = item.__func__
        if isinstance(item, _OF_CLASSES) or is_tensor(item) or is_device_array(item):
            yield f"{cls.__name__}.{name}", item, mentioned


def _of_function(function: FunctionType) -> Iterator[_Found]:
    """Yield objects that a function reaches by its closure, defaults, attributes, globals and imports."""
    attributes = frozenset(_mentioned(function))
    names = set()
    imported = set()
    for code in _codes(function.__code__):
        for step in dis.get_instructions(code):
            if step.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
                names.add(step.argval)
            elif step.opname == "IMPORT_NAME":
                imported.add(step.argval)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents, attributes
        except ValueError:  # not bound yet
            continue
    for value in function.__defaults__ or ():
        yield "a default", value, attributes
    for name, value in (function.__kwdefaults__ or {}).items():
        yield name, value, attributes
    for name, value in function.__dict__.items():
        yield f"{function.__name__}.{name}", value, attributes
    for name in names & function.__globals__.keys():
        yield name, function.__globals__[name], attributes
    package = function.__globals__.get("__package__") or ""
    for name in {*imported, *(f"{package}.{name}".rstrip(".") for name in imported)} & sys.modules.keys():
        yield name, sys.modules[name], attributes


def _codes_run_by(value: Any, parts: object) -> Iterator[CodeType]:
    """Yield the code of a function, or that of the methods of an object of which nothing else is known."""
    found = [value] if parts is not None else [item for cls in type(value).__mro__ for item in vars(cls).values()]
    for function in found:
        if isinstance(function, FunctionType) and _library(function) not in LIBRARIES:
            yield from _codes(function.__code__)


def _add_assigned(code: CodeType, names: set[str], attributes: set[str]) -> None:
    """Add the names outside of it that code assigns: globals, variables of functions around it, and attributes."""
    for step in dis.get_instructions(code):
        if step.opname == "STORE_GLOBAL" or (step.opname == "STORE_DEREF" and step.argval in code.co_freevars):
            names.add(step.argval)
        elif step.opname == "STORE_ATTR":
            attributes.add(step.argval)


def _mentioned(function: object) -> Iterator[str]:
    """Yield the names that a function mentions, those of attributes among them."""
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        for part in _codes(code):
            yield from part.co_names


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield code, and that of the functions and comprehensions in it."""
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes(const)
