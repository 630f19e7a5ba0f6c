"""Host memory that the driver copies without help: pinned, or managed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from cupy.cuda import runtime as cuda

_PAGEABLE = 0  # cudaMemoryTypeUnregistered
_PORTABLE = 1  # cudaHostRegisterPortable
_REFUSALS = {
    1,  # cudaErrorInvalidValue: memory that is mapped for reading only
    2,  # cudaErrorMemoryAllocation: more than the limits of the process or the system allow
    712,  # cudaErrorHostMemoryAlreadyRegistered: part of it
    801,  # cudaErrorNotSupported
}


class PinnedHost:
    """Host memory that is pinned where it lies, and its owner."""

    __slots__ = ("_owner", "address", "nbytes")

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.address = address
        self.nbytes = nbytes
        self._owner = owner


def is_pinned(host: np.ndarray[Any, Any]) -> bool:
    """Tell whether copies of a host array with elements are asynchronous: its memory is pinned or managed."""
    first, end = np.lib.array_utils.byte_bounds(host)
    return all(cuda.pointerGetAttributes(address).type != _PAGEABLE for address in (first, end - 1))


def pin(host: np.ndarray[Any, Any]) -> PinnedHost | None:
    """Pin all memory between the first and the last byte of a host array.

    Returns
    -------
    PinnedHost or None
        None where some of it is pinned already, or it cannot be: it is mapped for reading only, is more than the limits
        allow, or has less elements than half of its extent.

    Raises
    ------
    CUDARuntimeError
        The device is lost.
    """
    first, end = np.lib.array_utils.byte_bounds(host)
    nbytes = end - first
    if not host.size or nbytes > 2 * host.nbytes:
        return None
    try:
        cuda.hostRegister(first, nbytes, _PORTABLE)
    except cuda.CUDARuntimeError as error:
        if error.status in _REFUSALS:
            return None
        raise
    return PinnedHost(first, nbytes, host)


def unpin(pinned: PinnedHost) -> None:
    """Undo `pin`; the driver waits for all work of the device, also where that is held up."""
    with suppress(cuda.CUDARuntimeError):  # a lost device
        cuda.hostUnregister(pinned.address)
