"""What the pure part is handed of what acts: the package sets these when it is imported.

Offsets of many elements are the same arithmetic as of one, so that types need no NumPy but where an array has to be
made: all offsets of a type, and what digits do not decide. Rejected: a second class of types that acts
(sub-dimensions, tiles and parsed types would have to be made by it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

namespace: Any = None  # The namespace of host arrays: NumPy

view: Callable[[Any, Any], Any]  # ``view(T, x)``: an array seen through a type, `ArrayType.view`
