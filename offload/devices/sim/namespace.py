"""The simulated device's counterpart of the module `numpy`, as `cupy` is CUDA's.

The program never gets a host array from it. NumPy's results are wrapped, and so are the arguments that NumPy passes to
functions of the program. An iterator or class that would hand out host arrays has a counterpart here or is refused.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.devices.sim.array import CALLS_BACK, SimArray, apply_with_functions
from offload.devices.sim.random import SimRandom

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from offload.devices.sim.protocols import ArraysDevice

# Host arrays, and other host memory, may be passed to these: they copy to the device, or read a shape and a dtype only.
_TAKES_HOST = frozenset(
    {"array", "asarray", "asanyarray", "asarray_chkfinite", "ascontiguousarray", "asfortranarray", "frombuffer"}
    | {"require"}
    | {f"{name}_like" for name in ("empty", "zeros", "ones", "full")}
)
_SUBMODULES = frozenset({"fft", "linalg", "random"})  # whose functions are wrapped as well
_GRIDS = frozenset({"mgrid", "ogrid", "r_", "c_"})  # indexed, not called

_WHOLE = "operations on whole arrays"
_HOST_ONLY = {
    "asmatrix": "two-dimensional arrays and @",
    "bmat": "block",
    "broadcast": "broadcast_arrays or broadcast_shapes",
    "busdaycalendar": "numpy.busdaycalendar, and asarray",
    "frompyfunc": "vectorize",
    "matrix": "two-dimensional arrays and @",
    "memmap": "numpy.memmap, and asarray",
    "ndenumerate": _WHOLE,
    "nditer": _WHOLE,
    "nested_iters": _WHOLE,
    "recarray": "arrays of a structured dtype",
}
"""What works on host arrays alone, with what to use instead. CuPy has none of it, but for ``broadcast``."""


class SimNamespace:
    """A module of NumPy whose functions make and take arrays of one simulated device.

    Functions that create arrays create them there; all others take device arrays and refuse host arrays,
    except ``array``, ``asarray`` and the like, which copy to the device. Types and constants are NumPy's.
    ``asnumpy`` is CuPy's.
    """

    def __init__(self, device: ArraysDevice, target: Any = np) -> None:
        self._device = device
        self._target = target
        if target is np:
            self.ndarray = SimArray

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self._target, name)
        is_top = self._target is np
        wrapped: Any
        if is_top and name in _HOST_ONLY:
            raise AttributeError(f"{name!r} works on host arrays, not on a simulated device; use {_HOST_ONLY[name]}")
        if isinstance(value, ModuleType):
            if not is_top or name not in _SUBMODULES:
                raise AttributeError(
                    f"no module {name!r} on a simulated device; it has {', '.join(sorted(_SUBMODULES))}"
                )
            wrapped = SimRandom(self._device) if name == "random" else SimNamespace(self._device, value)
        elif name in _GRIDS and is_top:
            wrapped = _Grid(self._device, value)
        elif callable(value) and not isinstance(value, type):
            wrapped = _Function(self._device, value, host_allowed=is_top and name in _TAKES_HOST)
        else:
            return value
        # Found at once from now on, without `__getattr__`.
        self.__dict__[name] = wrapped
        return wrapped

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._target), *self.__dict__} - _HOST_ONLY.keys())

    def __repr__(self) -> str:
        return f"<namespace of {self._device.name} for {getattr(self._target, '__name__', self._target)}>"

    def asnumpy(
        self, a: Any, stream: Any = None, order: Any = "C", out: Any = None, *, blocking: bool = True
    ) -> np.ndarray[Any, Any]:
        """Copy a device array to a new host array, or to ``out``, as `SimArray.get` does."""
        if isinstance(a, SimArray):
            return a.get(stream, order, out, blocking=blocking)
        if out is None:
            return np.asarray(a, order=order)
        np.copyto(out, a)
        return out  # type: ignore[no-any-return]  # it is what was given

    def fromfunction(self, function: Any, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
        """Make an array by calling ``function`` once with the arrays of indices, which are on the device."""
        return function(*self.indices(shape, dtype=dtype), **kwargs)

    def load(self, *args: Any, **kwargs: Any) -> Any:
        """Load a file of `numpy.save` or `numpy.savez`: an array, or an archive that gives arrays."""
        loaded = np.load(*args, **kwargs)
        return self.array(loaded) if isinstance(loaded, np.ndarray) else _Archive(self, loaded)

    def poly1d(self, c_or_r: Any, r: bool = False, variable: Any = None) -> np.poly1d:
        """Make a polynomial whose coefficients are on the device."""
        given = c_or_r if isinstance(c_or_r, np.poly1d) else self.asarray(c_or_r)
        return np.poly1d(given, r, variable)  # which leaves them where they are

    def vectorize(self, pyfunc: Any, otypes: Any = None, **kwargs: Any) -> _Function:
        """Return a function of device arrays that calls ``pyfunc`` for each element."""
        return _Function(self._device, np.vectorize(pyfunc, otypes, **kwargs), host_allowed=False)


class _Function:
    """A NumPy function, or ufunc, bound to a device."""

    def __init__(self, device: ArraysDevice, function: Any, *, host_allowed: bool) -> None:
        self._device = device
        self._function = function
        self._host_allowed = host_allowed
        self.__name__ = getattr(function, "__name__", repr(function))
        self.__doc__ = getattr(function, "__doc__", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self._function
        if function in CALLS_BACK:
            return apply_with_functions(function, args, kwargs, self._device)
        return self._device.apply(function, args, kwargs, self._device, host_allowed=self._host_allowed)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._function, name)  # reduce, accumulate, outer, at, … of a ufunc; nin, types, …
        return _Function(self._device, value, host_allowed=False) if callable(value) else value

    def __repr__(self) -> str:
        return f"<function {self.__name__} of {self._device.name}>"


class _Grid:
    """``mgrid``, ``ogrid``, ``r_`` or ``c_``, bound to a device."""

    def __init__(self, device: ArraysDevice, grid: Any) -> None:
        self._device = device
        self._grid = grid

    def __getitem__(self, key: Any) -> Any:
        return self._device.apply(self._grid.__getitem__, (key,), {}, self._device)


class _Archive:
    """An opened file of `numpy.savez` that gives device arrays."""

    def __init__(self, namespace: SimNamespace, archive: Any) -> None:
        self._namespace = namespace
        self._archive = archive

    def __getitem__(self, key: str) -> Any:
        return self._namespace.array(self._archive[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._archive.files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    @property
    def files(self) -> list[str]:
        """The names of the arrays."""
        return list(self._archive.files)

    def close(self) -> None:
        """Close the file."""
        self._archive.close()
