"""The name of a call by position; calls of one name lead to the same, except for addresses and floats."""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

from offload.arrays.items import SCALARS

FLOATS: Final = frozenset(
    {float, *(kind for kind in SCALARS if isinstance(kind, type) and issubclass(kind, np.floating))}
)
# What tells floats apart: a division tells 0.0 from -0.0, and NaN equals nothing.
float_bits: Final = struct.Struct("d").pack


def name_of(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the key of a call by position with scalars and device arrays; None for other calls."""
    name: list[Any] = []
    for value in args:
        kind = value.__class__
        name.append(kind)
        if kind not in SCALARS:
            try:
                name += value.dtype, value.shape, value.strides
            except AttributeError:
                return None
        elif kind not in FLOATS:
            name.append(value)
    return tuple(name)
