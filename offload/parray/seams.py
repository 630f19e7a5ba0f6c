"""Functions that the pure part borrows from the part that acts: importing the package sets them.

The offsets of many elements need the same arithmetic as the offset of one. Types therefore need NumPy only to make an
array: for all offsets of a type, and for properties that digits do not decide. Rejected: a second class of types that
acts (sub-dimensions, tiles and parsed types would have to be made by it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

namespace: Any = None  # The namespace of host arrays: NumPy

view: Callable[[Any, Any], Any]  # ``view(T, x)``: an array seen through a type, `ArrayType.view`
