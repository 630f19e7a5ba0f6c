"""Random numbers on a simulated device: the counterpart of `cupy.random`.

NumPy's generators make them, so that equal seeds give equal numbers; their results go to the device, single numbers
too, as 0-d arrays. The functions have a state of their own for each device, as CuPy's have: seeding it leaves
`numpy.random` alone.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from offload.devices.sim.protocols import ArraysDevice

_BIT_GENERATORS: dict[str, Any] = {
    "XORWOW": np.random.PCG64,  # the first three are CuPy's names
    "MRG32k3a": np.random.PCG64DXSM,
    "Philox4x3210": np.random.Philox,
    **{name: getattr(np.random, name) for name in ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")},
}


class _Source:
    """A source of random numbers on a device; a subclass for each device names it.

    Parameters
    ----------
    source : numpy.random.Generator or numpy.random.RandomState
        The generator on the host.
    """

    _device: ArraysDevice

    def __init__(self, source: Any) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        value = getattr(self._source, name)
        if isinstance(value, np.random.BitGenerator):
            return BitGenerator(value, self._device)
        return partial(self._call, value) if callable(value) else value

    def _call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = self._device.apply(function, args, kwargs, self._device)
        if isinstance(result, (int, float)):
            return self._device.apply(np.asarray, (result,), {}, self._device)
        if isinstance(result, list):  # of `spawn`
            return [type(self)(part) if isinstance(part, np.random.Generator) else part for part in result]
        return result

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._source) if not name.startswith("_")]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._device.name}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} cannot be pickled: it belongs to a device of this process; pickle a seed")


class Generator(_Source):
    """A generator on a device, over a bit generator of `numpy.random` or of the namespace."""

    def __init__(self, bit_generator: Any) -> None:
        if isinstance(bit_generator, np.random.Generator):
            super().__init__(bit_generator)
        else:
            bits = bit_generator.bits if isinstance(bit_generator, BitGenerator) else bit_generator
            super().__init__(np.random.Generator(bits))


class RandomState(_Source):
    """A generator of the older kind on a device."""

    def __init__(self, seed: Any = None) -> None:
        super().__init__(np.random.RandomState(seed))


class BitGenerator:
    """The source of bits of a `Generator`; ``bits`` is NumPy's."""

    def __init__(self, bits: np.random.BitGenerator, device: ArraysDevice) -> None:
        self.bits = bits
        self._device = device

    def random_raw(self, size: Any = None) -> Any:
        """Return integers of 64 random bits on the device."""
        return self._device.apply(np.asarray, (self.bits.random_raw(size),), {}, self._device, host_allowed=True)


class SimRandom:
    """The module of random numbers of one device: `Generator`, `RandomState`, and functions that share a state."""

    def __init__(self, device: ArraysDevice) -> None:
        self._device = device
        # Classes of this device, so that a program can test and call them as CuPy's.
        names = {"_device": device}
        self.Generator: Any = type("Generator", (Generator,), names)
        self.RandomState: Any = type("RandomState", (RandomState,), names)
        self.BitGenerator = BitGenerator
        self.SeedSequence = np.random.SeedSequence
        self._state = self.RandomState()

    def __getattr__(self, name: str) -> Any:
        if name in _BIT_GENERATORS:
            return partial(self._bits, _BIT_GENERATORS[name])
        if name.startswith("_") or not callable(getattr(np.random, name, None)):
            raise AttributeError(
                f"the random module of a simulated device has no {name!r}; it has the names of cupy.random"
            )
        return getattr(self._state, {"ranf": "random_sample", "sample": "random_sample"}.get(name, name))

    def _bits(self, kind: Any, seed: Any = None) -> BitGenerator:
        return BitGenerator(kind(seed), self._device)

    def default_rng(self, seed: Any = None) -> Any:
        """Return a new generator; one that is given is returned as it is."""
        if isinstance(seed, Generator):
            return seed
        if isinstance(seed, BitGenerator):
            return self.Generator(seed)
        return self.Generator(np.random.default_rng(seed))

    def get_random_state(self) -> Any:
        """Return the state that the functions share."""
        return self._state

    def set_random_state(self, rs: Any) -> None:
        """Have the functions share another `RandomState` of the device."""
        if not isinstance(rs, self.RandomState):
            raise TypeError(f"set_random_state takes a RandomState of {self._device.name}, not {type(rs).__name__}")
        self._state = rs

    def reset_states(self) -> None:
        """Have the functions begin anew, with a random seed."""
        self._state = self.RandomState()

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._state), *_BIT_GENERATORS, *self.__dict__, "default_rng"})

    def __repr__(self) -> str:
        return f"<random numbers of {self._device.name}>"
