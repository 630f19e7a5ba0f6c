"""The hidden storage of an array of a simulated device, and what can be said of it without a look at the elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from offload.devices.sim.memory import Block
    from offload.devices.sim.protocols import ArraysDevice

Storage: TypeAlias = np.ndarray[Any, Any]


class Stored:
    """An array by its storage.

    Parameters
    ----------
    storage : numpy.ndarray
        The hidden storage, any shape and dtype.
    device : ArraysDevice
        The device that it belongs to.
    block : Block
        The allocation that ``storage`` lies in.
    """

    __slots__ = ("_block", "_device", "_storage")

    def __init__(self, storage: Storage, device: ArraysDevice, block: Block) -> None:
        self._storage = storage
        self._device = device
        self._block = block

    @property
    def device(self) -> ArraysDevice:
        """The device whose memory this is in."""
        return self._device

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return self._storage.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self._storage.dtype  # type: ignore[no-any-return]

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, along each dimension."""
        return self._storage.strides

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._storage.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._storage.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._storage.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._storage.nbytes

    @property
    def flags(self) -> Any:
        """Layout of the array: ``c_contiguous``, ``f_contiguous``, …."""
        return self._storage.flags
