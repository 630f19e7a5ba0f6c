"""A kind of device: all that the rest of the package has to know of its devices before there is one.

A kind of one's own is one file: a class of devices that fulfils `offload.devices.base.Device`, and a `Kind` that opens
them. `offload.devices.kinds` says how it is found.
"""

from __future__ import annotations

import platform
import re
from abc import ABC, abstractmethod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from offload.errors import ClauseError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from offload.devices.base import Device

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?\s*", re.IGNORECASE)
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class ArrayWatch(Protocol):
    """Receives the operations on the arrays of a device, on the thread that carries them out.

    All arrays are the hidden storage. The methods are called after the operation, unless it fails.
    """

    def called(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, device: Any
    ) -> None:
        """Note a call of a NumPy function."""

    def accessed(self, reads: Sequence[Any], writes: Sequence[Any], device: Any) -> None:
        """Note an operation that reads and writes these arrays."""

    def given_away(self, storage: Any, device: Any) -> None:
        """Note that the program has received the storage itself, so that its accesses cannot be seen any more."""


class Opening(NamedTuple):
    """The arguments for opening a device.

    Attributes
    ----------
    number : int
        Its device number within the runtime.
    index : int
        Its number among the devices of its kind: the one that was asked for, or how many were made before it.
    values : mapping
        The values of the kind's variables, by name; None for one that is not set.
    rng : random.Random or None
        A generator of the device's own, where the program is to be run in an order that follows from a seed.
    poisons : bool
        Whether to poison uninitialised memory, if the device can (`offload.devices.base.Device.poisons`).
    watch : ArrayWatch or None
        Is told of the operations on the device's arrays, if the device can (`SimKind`); None: nobody is.
    """

    number: int
    index: int  # type: ignore[assignment]  # the tuple's method is not used
    values: Mapping[str, Any]
    rng: random.Random | None
    poisons: bool
    watch: ArrayWatch | None = None


class Kind(ABC):
    """A kind of device.

    Attributes
    ----------
    name : str
        Its name in a specification of devices, and its devices' ``kind``: letters, digits and ``_``, in lower case.
    has_indices : bool
        Whether the devices are there without us, so that ``name`` means all of them and ``name:0,2`` two; else they
        are made, and ``name:4`` means four.
    acc_type : str or None
        OpenACC's name for its type of device, in lower case; None: the devices are merely not the host.
    vendor : str
        The maker of the devices.
    in_forks : str
        Advice for a forked child of a process that has used the devices.
    reports_arrays : bool
        Whether the devices tell a watch of the operations on their arrays (`Opening`).
    variables : mapping
        The variables of the environment that the kind has for itself, named ``OFFLOAD_…``: functions of text and name,
        which return a str, int or float and raise `ClauseError`.
    """

    name: ClassVar[str]
    has_indices: ClassVar[bool] = False
    acc_type: ClassVar[str | None] = None
    vendor: ClassVar[str] = "offload"
    in_forks: ClassVar[str] = "make one in the child"
    reports_arrays: ClassVar[bool] = False
    variables: ClassVar[Mapping[str, Callable[[str, str], Any]]] = MappingProxyType({})

    def count(self) -> int:
        """Return how many devices there are, at least 1; asked only of a kind that ``has_indices``.

        Raises
        ------
        DeviceUnavailableError
            There is none, or a library for it is missing.
        """
        return 1

    @abstractmethod
    def open(self, opening: Opening) -> Device:
        """Return a new device.

        Raises
        ------
        DeviceUnavailableError
            It cannot be had.
        """

    def driver_version(self) -> str:
        """Return the version of the devices' driver, by default Python's."""
        return platform.python_version()


def parse_nbytes(text: str, name: str) -> int:
    """Return a number of bytes written as ``1000000``, ``64M`` or ``2GiB`` (powers of 1024); it must be at least 1."""
    match = _SIZE.fullmatch(text)
    number = float(match[1]) * _UNITS[match[2].lower()] if match else 0
    nbytes = int(number) if number < 2**63 else 0
    if nbytes < 1:
        raise ClauseError(f"{name}={text!r} is not a size; write bytes, or a number with K, M, G or T")
    return nbytes
