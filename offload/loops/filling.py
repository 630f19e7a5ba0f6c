"""The steps that are left of a call on CUDA that was made before (`offload.loops.settled_calls`).

It differs from the call before in addresses and floats alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.arrays.items import SCALARS
from offload.loops.tree.naming import FLOATS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class CallPattern:
    """A quick test whether a call has the name of this one, if the types of its arrays are the same objects."""

    __slots__ = ("_parts",)

    def __init__(self, args: Sequence[Any]) -> None:
        # For each argument its class, whether it is an array, and what else has to be equal; None of a float. A dtype
        # is told by its identity, so arrays of an equal one do not fit.
        self._parts: tuple[tuple[Any, bool, Any], ...] = tuple([_part(value) for value in args])

    def fits(self, args: Sequence[Any]) -> bool:
        """Tell whether a call has the name of this one."""
        for value, (kind, is_array, fixed) in zip(args, self._parts, strict=True):
            if value.__class__ is not kind:
                return False
            if is_array:
                dtype, shape, strides = fixed
                if value.dtype is not dtype or value.shape != shape or value.strides != strides:
                    return False
            elif fixed is not None and value != fixed:
                return False
        return True


def _part(value: Any) -> tuple[type, bool, Any]:
    kind = value.__class__
    if kind in FLOATS:
        return kind, False, None
    if kind in SCALARS:
        return kind, False, value
    return kind, True, (value.dtype, value.shape, value.strides)


class Filler:
    """Fills the structure of arguments with addresses and floats."""

    __slots__ = ("_arrays", "_floats", "_looked_at", "_pairs", "_pointers")

    def __init__(
        self,
        arrays: Sequence[tuple[int, int]],  # positions, and the alignment of each address in bytes
        # numbers of two arrays that must not share memory, each with its first and last byte
        pairs: Sequence[tuple[int, int, int, int, int, int]],
        pointers: Sequence[tuple[int, int]],  # slots, and numbers of arrays
        # offset in the structure, position, and the function that packs the value
        floats: Sequence[tuple[int, int, Any]],
        looked_at: Sequence[int],  # numbers of the arrays whose addresses ``holds`` is asked about
    ) -> None:
        self._arrays, self._pairs, self._pointers = tuple(arrays), tuple(pairs), tuple(pointers)
        self._floats, self._looked_at = tuple(floats), tuple(looked_at)

    def fill(
        self,
        args: Sequence[Any],
        locate: Callable[[Any], int | None],
        holds: Callable[[tuple[int, ...]], bool],
        structure: Callable[[], Any],
    ) -> Any:
        """Return the filled structure; None where arrays share memory, are not aligned, or hold something else."""
        addresses = [0] * len(self._arrays)
        for number, (position, nbytes) in enumerate(self._arrays):
            address = locate(args[position])
            if address is None or address % nbytes:
                return None
            addresses[number] = address
        for one, low, high, other, others_low, others_high in self._pairs:
            mine, others = addresses[one], addresses[other]
            if mine + low <= others + others_high and others + others_low <= mine + high:
                return None
        if self._looked_at and not holds(tuple([addresses[number] for number in self._looked_at])):
            return None
        memory = structure()
        for slot, number in self._pointers:
            memory[slot] = addresses[number]
        for offset, position, pack_into in self._floats:
            pack_into(memory, offset, args[position])
        return memory
