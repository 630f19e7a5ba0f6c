"""Faces of NumPy's modules: the same names, whose functions and generators give tracked arrays.

A `Face` stands for a module. Its functions, its ufuncs and a few classes become `FaceFunction`s, which carry a call out
on plain views and return tracked arrays. Each compares equal to the function that it stands for, and is an instance of
its class. All else is NumPy's own: types, constants, and modules that only combine NumPy's functions (`numpy.ma`,
`numpy.polynomial`, `numpy.testing`), since the functions that these call are noted.
"""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from offload.sanitizer import buffers
from offload.sanitizer.accesses import is_known, is_native
from offload.sanitizer.tracked import TrackedArray, carry_out, frame_at, wrapped

_MODULES = frozenset(
    f"numpy.{name}"
    for name in (
        *("char", "emath", "fft", "lib", "lib.array_utils", "lib.scimath", "lib.stride_tricks", "linalg", "random"),
        *("strings", "random.mtrand"),
    )
)
"""Modules of NumPy that have a face of their own."""

_CALLED_CLASSES: tuple[type, ...] = (np.nditer, np.ndenumerate, np.vectorize)
"""Classes that look at arrays when, or after, they are called."""

_GRIDS = frozenset({"c_", "mgrid", "ogrid", "r_"})


class FaceFunction:
    """A function, a ufunc or a class of NumPy that gives tracked arrays.

    Parameters
    ----------
    function : callable
        NumPy's.
    """

    __slots__ = ("__weakref__", "_function")

    def __init__(self, function: Any) -> None:
        self._function = function

    @property  # type: ignore[misc]  # it cannot be set
    def __class__(self) -> Any:
        return type(self._function)

    @property
    def __doc__(self) -> Any:  # type: ignore[override]  # of each its own
        return self._function.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self._function
        if function is np.frombuffer:  # a view, whose accesses are seen
            with buffers.quiet():
                return wrapped(function(*args, **kwargs), [])
        if is_native(function) or not is_known(function):
            return _shown(wrapped(function(*args, **kwargs), []))
        return _shown(carry_out(function, args, kwargs, frame_at(1)))

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._function, name)
        # The methods of a ufunc work on arrays; those of a class are its own.
        is_method = isinstance(self._function, np.ufunc) and callable(value)
        return FaceFunction(value) if is_method else value

    def __eq__(self, other: object) -> bool:
        if type(other) is FaceFunction:
            other = other._function
        return bool(self._function == other)

    def __hash__(self) -> int:
        return hash(self._function)

    def __repr__(self) -> str:
        return repr(self._function)

    def __reduce__(self) -> Any:
        return FaceFunction, (self._function,)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._function)

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, self._function)

    def __mro_entries__(self, bases: Any) -> tuple[Any, ...]:
        return (self._function,)


class FaceGrid:
    """``r_``, ``c_``, ``mgrid`` or ``ogrid``, which are indexed and give tracked arrays."""

    __slots__ = ("_grid",)

    def __init__(self, grid: Any) -> None:
        self._grid = grid

    def __getitem__(self, key: Any) -> Any:
        return carry_out(self._grid.__getitem__, (key,), {}, frame_at(1))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)


class Face(ModuleType):
    """The face of a module of NumPy.

    Parameters
    ----------
    module : module
        NumPy's.
    """

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__, module.__doc__)
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = shown(self.__dict__["_module"], name)
        return value

    def __dir__(self) -> list[str]:
        return dir(self.__dict__["_module"])


def shown(module: ModuleType, name: str) -> Any:
    """Return the form that a name of a module of NumPy has in the module's face."""
    value = getattr(module, name)
    if name.startswith("__"):
        return value
    if name in _GRIDS and module is np:
        return FaceGrid(value)
    if isinstance(value, ModuleType):
        return face_of(value)
    if isinstance(value, type):
        return FaceFunction(value) if value in _CALLED_CLASSES else _CLASSES.get(value, value)
    return FaceFunction(value) if callable(value) else value


def shown_of_numpy(name: str) -> Any:
    """Return the form that a name of NumPy itself has in its face."""
    return shown(np, name)


def names_of_numpy() -> list[str]:
    """Return the names that NumPy has."""
    return dir(np)


@lru_cache(None)
def face_of(module: ModuleType) -> ModuleType:
    """Return the face of a module of NumPy; the module itself if it has none."""
    return Face(module) if module.__name__ in _MODULES else module


def _shown(result: Any) -> Any:
    """Return the face of a result that is a ufunc, a vectorized function or a generator."""
    if isinstance(result, np.ufunc | np.vectorize):
        return FaceFunction(result)
    if type(result) is np.random.Generator:
        return FaceGenerator(result.bit_generator)
    return result


class FaceGenerator(np.random.Generator):
    """A generator of random numbers that gives tracked arrays; the numbers are those of `numpy.random.Generator`."""


class FaceRandomState(np.random.RandomState):
    """A generator of the older kind that gives tracked arrays."""


_GENERATORS: dict[Any, Any] = {np.random.Generator: FaceGenerator, np.random.RandomState: FaceRandomState}
_CLASSES: dict[Any, Any] = {np.ndarray: TrackedArray, **_GENERATORS}


def _drawn(kind: type, name: str) -> Any:
    function = getattr(kind, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = carry_out(function.__get__(self), args, kwargs, frame_at(1))
        return [_shown(part) for part in result] if type(result) is list else result

    method.__name__, method.__doc__ = name, function.__doc__
    return method


for _kind, _face in _GENERATORS.items():
    for _name in dir(_kind):
        if not _name.startswith("_") and callable(getattr(_kind, _name)):
            setattr(_face, _name, _drawn(_kind, _name))
    _face.__name__ = _face.__qualname__ = _kind.__name__
    _face.__module__ = _kind.__module__
