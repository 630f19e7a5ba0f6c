"""Device storage that was freed while the program still has an array of it: the error for using such an array.

An array that the program keeps beyond `target_free`, or beyond the mapping that it belongs to, still refers to memory,
but the memory holds nobody's data any more. Once no work of the runtime needs the allocation, the device marks it as
retired, and every array over it raises (`offload.devices.base.Device.retire`). Operations that a device cannot see,
such as CuPy's own, do not raise.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any, Final, NamedTuple, Protocol

from offload.errors import RegionClosedError


class Retired(NamedTuple):
    """The end of an allocation."""

    what: object  # the name for messages: the mapped list item, or the allocated block
    routine: str = ""  # the routine that freed it; empty if its mapping has ended

    def error(self, array: Any) -> RegionClosedError:
        """Return the error for an operation on ``array``, which lies in the allocation."""
        shape = ", ".join(map(str, array.shape))
        if self.routine:
            return RegionClosedError(
                f"the device array {array.dtype}[{shape}] lies in {self.what}, which {self.routine} has freed; free it "
                "only after its last use, or allocate it again"
            )
        return RegionClosedError(
            f"the device array {array.dtype}[{shape}] belongs to the mapping of {self.what}, which has ended; use it "
            "or copy from it inside the region, or keep the array mapped with target_enter_data"
        )


class _Device(Protocol):
    def retired(self, array: Any) -> Retired | None: ...


def refuse_retired(device: _Device, array: Any) -> None:
    """Raise `RegionClosedError` if the storage of a device array of ``device`` has gone back."""
    retired = device.retired(array)
    if retired is not None:
        raise retired.error(array)


class _Array:
    """Stands for an array that shares its memory with no other."""

    def __init__(self) -> None:
        self.memory = object()


_ALONE = _Array()

# What `sys.getrefcount` says of an attribute to which one object refers: of the memory of an array that is alone.
REFERENCES_ALONE: Final = getrefcount(_ALONE.memory)
