"""The stand-in's ``cupy.random``: NumPy's or CuPy's functions and generators, which give device arrays."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.port.machine import ArrayMachine

_CLASSES = frozenset({"BitGenerator", "Generator", "MT19937", "RandomState", "XORWOW", "default_rng"})
_STATE = frozenset({"get_random_state", "get_state", "seed", "set_random_state", "set_state"})


class RandomNames:
    """The names of ``cupy.random``.

    Parameters
    ----------
    machine : ArrayMachine
        Carries out the calls.
    """

    def __init__(self, machine: ArrayMachine) -> None:
        self._machine = machine

    def find(self, name: str) -> Any:
        """Return what a name stands for."""
        module = self._machine.xp.random
        value = getattr(module, name, None)
        if value is None or isinstance(value, ModuleType) or name.startswith("_"):
            raise self._machine.unsupported(name, owner="cupy.random")
        if name in _CLASSES:
            return lambda *args, **kwargs: DeviceGenerator(self._machine, value(*args, **kwargs))
        return value if name in _STATE or not callable(value) else _drawing(self._machine, value)


class DeviceGenerator:
    """A generator of random numbers whose methods give device arrays."""

    def __init__(self, machine: ArrayMachine, generator: Any) -> None:
        self._machine, self._generator = machine, generator

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(self._generator, name)
        return value if name in _STATE or not callable(value) else _drawing(self._machine, value)


def _drawing(machine: ArrayMachine, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that draws numbers onto the device."""
    kinds = {"rand", "randn", "random", "random_sample", "sample", "ranf", "standard_normal", "normal", "uniform"}
    name = str(getattr(function, "__name__", "random"))

    def draw(*args: Any, **kwargs: Any) -> Any:
        dtype = None
        if not machine.is_cuda and name in kinds and isinstance(getattr(function, "__self__", None), _LEGACY):
            dtype = kwargs.pop("dtype", None)  # which CuPy's functions have, and NumPy's old ones do not

        def compute(*given: Any, **named: Any) -> Any:
            drawn = function(*given, **named)
            return drawn if dtype is None else np.asarray(drawn).astype(dtype)

        return machine.draw(compute, args, kwargs, name)

    draw.__name__ = name
    return draw


_LEGACY = (np.random.RandomState,)
