"""The simulated device's counterpart of the module `numpy`, as `cupy` is CUDA's."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.devices.sim_array import SimArray, apply

if TYPE_CHECKING:
    from offload.devices.sim import SimDevice

# Host arrays may be passed to these: they copy to the device, or read a shape and a dtype only.
_TAKES_HOST = frozenset({"array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray"} | {
    f"{name}_like" for name in ("empty", "zeros", "ones", "full")
})  # fmt: skip
_SUBMODULES = frozenset({"fft", "linalg", "random"})
_GRIDS = frozenset({"mgrid", "ogrid", "r_", "c_"})


class SimNamespace:
    """A module of NumPy whose functions make and take arrays of one simulated device.

    Functions that create arrays create them there; all others take device arrays and refuse host arrays,
    except ``array``, ``asarray`` and the like, which copy to the device. Types and constants are NumPy's.
    ``asnumpy`` is CuPy's.
    """

    def __init__(self, device: SimDevice, target: Any = np) -> None:
        self._device = device
        self._target = target
        if target is np:
            self.ndarray = SimArray

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self._target, name)
        wrapped: Any
        if isinstance(value, ModuleType):
            if name not in _SUBMODULES:
                raise AttributeError(
                    f"no module {name!r} on a simulated device; it has {', '.join(sorted(_SUBMODULES))}"
                )
            wrapped = SimNamespace(self._device, value)
        elif name in _GRIDS and self._target is np:
            wrapped = _Grid(self._device, value)
        elif callable(value) and not isinstance(value, type):
            wrapped = _Function(self._device, value, host_allowed=self._target is np and name in _TAKES_HOST)
        else:
            return value
        self.__dict__[name] = wrapped
        return wrapped

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._target), *self.__dict__})

    def __repr__(self) -> str:
        return f"<namespace of {self._device.name} for {getattr(self._target, '__name__', self._target)}>"

    def asnumpy(self, a: Any) -> np.ndarray[Any, Any]:
        """Copy a device array to a new host array."""
        return a.get() if isinstance(a, SimArray) else np.asarray(a)

    def fromfunction(self, function: Any, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
        """Make an array by calling ``function`` once with the arrays of indices, which are on the device."""
        return function(*self.indices(shape, dtype=dtype), **kwargs)


class _Function:
    """A NumPy function, or ufunc, bound to a device."""

    def __init__(self, device: SimDevice, function: Any, *, host_allowed: bool) -> None:
        self._device = device
        self._function = function
        self._host_allowed = host_allowed
        self.__name__ = getattr(function, "__name__", repr(function))
        self.__doc__ = getattr(function, "__doc__", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = apply(self._function, args, kwargs, self._device, host_allowed=self._host_allowed)
        if isinstance(result, (np.random.Generator, np.random.RandomState)):
            return SimNamespace(self._device, result)
        return result

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._function, name)  # reduce, accumulate, outer, at, … of a ufunc; nin, types, …
        return _Function(self._device, value, host_allowed=False) if callable(value) else value

    def __repr__(self) -> str:
        return f"<function {self.__name__} of {self._device.name}>"


class _Grid:
    """``mgrid``, ``ogrid``, ``r_`` or ``c_``, bound to a device."""

    def __init__(self, device: SimDevice, grid: Any) -> None:
        self._device = device
        self._grid = grid

    def __getitem__(self, key: Any) -> Any:
        return apply(self._grid.__getitem__, (key,), {}, self._device)
