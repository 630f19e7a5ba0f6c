"""Bodies on their way to workers: each is pickled once, and sent once to each worker.

Theory of operation
-------------------
cloudpickle decides whether a function goes by reference or by value, as it does for Dask. A function that a directive
decorates is not the object under its name. It goes by that name, and the worker takes the decorated function.

A function that goes by value takes along the variables that it reaches. The program may assign them later, and would
then call on a worker another function than here. So each call compares the variables by identity with those that were
sent, and a function that reaches a container or an object is pickled again and compared.

Most arguments are numbers and device arrays, which a plan contains as they are.
"""

from __future__ import annotations

import io
import pickle
import sys
import threading
from contextlib import contextmanager
from functools import partial
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any
from weakref import ref

import cloudpickle
import numpy as np

from offload.arrays.items import SCALARS, is_device_array, label
from offload.devices.dask.array import RemoteArray
from offload.devices.dask.wire import Op
from offload.errors import OffloadError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_MOST_NBYTES = 1_000_000
"""Of a pickled body: as much as travels in a plan. Arrays are to be arguments, which are mapped."""

_MOST_LISTED = 3


class _Absent:
    """The value of a variable that is not assigned."""


class _Variable:
    """A variable that a function mentions, as it was when the function was pickled."""

    __slots__ = ("arguments", "name", "read", "value")

    def __init__(self, name: str, read: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.name = name
        self.read = read  # with the arguments, it returns the value of now
        self.arguments = arguments
        self.value = read(*arguments)


class SentBody:
    """A function as workers get it.

    Attributes
    ----------
    number : int
        Its number in the runtime.
    data : bytes
        The function, pickled.
    """

    __slots__ = ("__weakref__", "data", "number", "seen")

    def __init__(self, number: int, data: bytes, seen: Sequence[_Variable] | None) -> None:
        self.number = number
        self.data = data
        self.seen = seen  # the variables that it reached when it was pickled; None if they may change in place

    def is_current(self, function: Any, device: Any) -> bool:
        """Tell whether a worker that has it would call the same function as this process does now."""
        if self.seen is None:
            return _dumped(function, device) == self.data
        return all(variable.read(*variable.arguments) is variable.value for variable in self.seen)


class Bodies:
    """The bodies of one runtime."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[int, tuple[Any, SentBody]] = {}  # by the `id` of the function
        self._by_number: dict[int, ref[SentBody]] = {}
        self._n = 0

    def known(self, number: int) -> SentBody | None:
        """Return a body by its number, while somebody may call it."""
        found = self._by_number.get(number)
        return None if found is None else found()

    def gone(self, numbers: set[int]) -> list[int]:
        """Return those of the numbers that no body has any more."""
        return [number for number in numbers if self.known(number) is None]

    def call_of(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], device: Any) -> tuple[Any, ...]:
        """Return the operation that calls a function on a device.

        Raises
        ------
        UsageError
            The function or an argument cannot be pickled, or the function is larger than 1 MB.
        """
        number = self._number_of(getattr(function, "sent_as", function), device)
        plain_args, is_plain = [], True
        for value in args:
            kind = value.__class__
            if kind is RemoteArray:
                plain_args.append(value.spec)
            elif kind in SCALARS:
                plain_args.append(value)
            else:
                is_plain = False
                break
        if is_plain and not kwargs:
            return Op.CALL, number, tuple(plain_args), None, False
        with _pickling(f"an argument of {_name(function)}", "pass arrays, numbers and objects that pickle takes"):
            return Op.CALL, number, dumps_arguments((tuple(args), dict(kwargs)), device), None, True

    def _number_of(self, function: Any, device: Any) -> int:
        with self._lock:
            found = self._of.get(id(function))
            if found is not None and found[0]() is function:
                body = found[1]
                if body.is_current(function, device):
                    return body.number
            self._n += 1
            reached = [*_reached(function)]
            changes = any(_may_change(variable.value) for variable in reached)
            body = SentBody(self._n, _dumped(function, device), None if changes else reached)
            self._by_number[body.number] = ref(body, partial(self._forget_number, body.number))
            self._of[id(function)] = _reference(function, partial(self._forget, id(function))), body
            return body.number

    def _forget(self, key: int, _: Any) -> None:
        self._of.pop(key, None)

    def _forget_number(self, number: int, _: Any) -> None:
        self._by_number.pop(number, None)


def _reference(function: Any, gone: Callable[[Any], None]) -> Callable[[], Any]:
    """Return a weak reference, or a function that keeps the object if it has no weak references."""
    try:
        return ref(function, gone)
    except TypeError:
        return lambda: function


@contextmanager
def _pickling(what: str, advice: str) -> Iterator[None]:
    """Raise `UsageError` if the block cannot pickle; the library's own errors pass."""
    try:
        yield
    except OffloadError:
        raise
    except Exception as error:  # noqa: BLE001  # of the program's classes
        text = f"{type(error).__name__}: {error}"[:120]
        # The frames of the error hold the arguments.
        raise UsageError(f"{what} cannot be pickled for its worker ({text}); {advice}") from error.with_traceback(None)


def _name(function: Any) -> str:
    return repr(getattr(function, "__name__", type(function).__name__))


# -- functions -------------------------------------------------------------------------------------------


def _dumped(function: Any, device: Any) -> bytes:
    """Return a function, pickled: by the name of the construct that it belongs to if it has one, else as Dask would."""
    with _pickling(_name(function), "a body may reach modules, functions and values that pickle takes"):
        data = dumps_arguments(function, device)
    if len(data) > _MOST_NBYTES:
        sizes = [found for found in sorted(_sizes(function, device), reverse=True) if found[0] > _MOST_NBYTES // 100]
        holders = ", ".join(f"{name} ({nbytes:,} bytes)" for nbytes, name in sizes[:_MOST_LISTED]) or "its code"
        raise UsageError(
            f"{_name(function)} takes {len(data):,} bytes along to its worker, by {holders}; at most {_MOST_NBYTES:,} "
            "are allowed; pass arrays as arguments"
        )
    return data


class _Decorated:
    """Stands for the function that a directive decorates, by the name of the directive's function."""

    __slots__ = ("_module", "_name")

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def __reduce__(self) -> Any:
        return decorated, (self._module, self._name)


def decorated(module: str, name: str) -> Any:
    """Return the function that a directive of a module decorates."""
    import importlib

    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found.__wrapped__


def _named(function: Any) -> Any:
    """Return the object to pickle for a function: itself, or the name of the construct that decorates it."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module in (None, "__main__") or "<" in name or _is_by_value(module):
        return function
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return _Decorated(module, name) if getattr(found, "__wrapped__", None) is function else function


def _reached(function: Any, visited: set[int] | None = None) -> Iterator[_Variable]:
    """Yield the variables that a function which goes by value takes along, also by other functions."""
    visited = set() if visited is None else visited
    if not isinstance(function, FunctionType):
        if not isinstance(function, BuiltinFunctionType):
            yield _Variable("", lambda: function, ())  # of any state: it is pickled each time
        return
    if id(function) in visited or not _goes_by_value(function):
        return
    visited.add(id(function))
    for variable in _variables(function):
        yield variable
        if isinstance(variable.value, FunctionType):
            yield from _reached(variable.value, visited)


def _may_change(value: Any) -> bool:
    """Tell whether a variable that is still this object may stand for something else on a worker now."""
    if isinstance(value, FunctionType):  # its variables are compared one by one
        return bool(value.__dict__) and _goes_by_value(value)
    if isinstance(value, BuiltinFunctionType):
        return not (value.__self__ is None or isinstance(value.__self__, ModuleType))  # a method of a container
    if isinstance(value, type):
        return _goes_by_value(value)
    if isinstance(value, ModuleType):
        return _is_by_value(value.__name__)
    return value.__class__ not in SCALARS or isinstance(value, np.void)


def _goes_by_value(made: Any) -> bool:
    """Tell whether cloudpickle takes a function or a class along, and not its name."""
    if _named(made) is not made:
        return False
    if made.__module__ == "__main__" or "<" in made.__qualname__ or _is_by_value(made.__module__):
        return True
    found: Any = sys.modules.get(made.__module__)
    for part in made.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is not made


def _is_by_value(module: str | None) -> bool:
    """Tell whether the program has asked cloudpickle to take all of a module along."""
    registered = cloudpickle.list_registry_pickle_by_value()
    return bool(registered) and any(f"{module}.".startswith(f"{name}.") for name in registered)


def _variables(function: FunctionType) -> Iterator[_Variable]:
    """Yield the variables that a function mentions: of functions around it, globals, and its defaults."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        yield _Variable(name, _in_cell, (cell,))
    pending, known = [code], function.__globals__
    while pending:
        inner = pending.pop()
        for name in inner.co_names:
            yield _Variable(name, known.get, (name, _Absent))
        pending += [constant for constant in inner.co_consts if isinstance(constant, type(code))]
    for number in range(len(_defaults(function))):
        yield _Variable("a default", _default, (function, number))


def _in_cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _Absent


def _defaults(function: FunctionType) -> tuple[Any, ...]:
    return *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()


def _default(function: FunctionType, number: int) -> Any:
    values = _defaults(function)
    return values[number] if number < len(values) else _Absent


def _sizes(function: Any, device: Any) -> Iterator[tuple[int, str]]:
    """Yield the size of each variable that a function takes along, with its name."""
    if not isinstance(function, FunctionType):
        return
    for variable in _variables(function):
        try:
            yield len(dumps_arguments(variable.value, device)), variable.name
        except Exception:  # noqa: BLE001, S112  # it is not the one
            continue


# -- arguments -------------------------------------------------------------------------------------------


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has few types
    """Pickles arrays of one device as views, which its worker knows."""

    def __init__(self, buffer: io.BytesIO, device: Any) -> None:
        super().__init__(buffer, protocol=5)
        self._device = device

    def reducer_override(self, obj: Any) -> Any:
        if obj.__class__ is RemoteArray:
            self._device.refuse_other(obj)
            return resolve, (obj.spec,)
        if obj.__class__ is FunctionType and (named := _named(obj)) is not obj:
            return named.__reduce__()
        if is_device_array(obj) and not isinstance(obj, type):  # a copy there, which the program never sees
            raise TypeError(f"{label(obj)} is a device array of this process; pass its elements as a host array")
        return super().reducer_override(obj)


def dumps_arguments(value: Any, device: Any) -> bytes:
    """Pickle a function for a device, or arguments.

    Raise `MapError` for a handle of another device, and `RegionClosedError` for one whose memory has gone back.
    """
    buffer = io.BytesIO()
    _Pickler(buffer, device).dump(value)
    return buffer.getvalue()


_unpickling = threading.local()


def resolve(spec: Any) -> Any:
    """Return the device array of a view; called while a worker unpickles."""
    return _unpickling.resolve(spec)


def unpickled(data: bytes, resolve_with: Callable[[Any], Any]) -> Any:
    """Unpickle data of `dumps_arguments` on a worker, or of a worker in the client."""
    outer = getattr(_unpickling, "resolve", None)
    _unpickling.resolve = resolve_with
    try:
        return pickle.loads(data)  # noqa: S301  # trust is Dask's
    finally:
        _unpickling.resolve = outer
