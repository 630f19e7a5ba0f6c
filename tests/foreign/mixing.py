"""Objects over the storage of the arrays of generated programs, of kinds that differ from use to use.

`tests.differential.world` carries out a program with such objects in the place of its NumPy arrays, or with NumPy
arrays of the same memory: new ones at each use, and read-only where the object is.
"""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.foreign.kinds import Exchanged, Interfaced

if TYPE_CHECKING:
    from collections.abc import Callable

    Host = np.ndarray[Any, Any]

TAKES_READING = 0.15
"""The share of uses whose object is read-only."""


def _typed_ctypes(view: Host) -> Any:
    if not view.ndim or not view.size:
        return None  # a ctypes value without dimensions is no array
    try:
        return np.ctypeslib.as_ctypes(view)
    except (TypeError, NotImplementedError):
        return None  # it is not contiguous, or complex


def _tensor(view: Host) -> Any:
    torch: Any = sys.modules["torch"]
    try:
        return torch.from_numpy(view)
    except (TypeError, ValueError):
        return None  # a negative stride


WRITTEN: tuple[Callable[[Host], Any], ...] = (
    Interfaced,
    lambda view: SimpleNamespace(__array_interface__=view.__array_interface__, memory=view),
    Exchanged,
    memoryview,
    _typed_ctypes,
)
READ: tuple[Callable[[Host], Any], ...] = (Interfaced, Exchanged, lambda view: memoryview(view).toreadonly())


class Mixture:
    """Chooses the objects.

    Attributes
    ----------
    are_objects : bool
        Else NumPy arrays of the same memory take their places.
    has_tensors : bool
        Whether tensors of PyTorch are among the objects; the program has imported it.
    """

    def __init__(self, *, are_objects: bool, has_tensors: bool = False) -> None:
        self.are_objects, self.has_tensors = are_objects, has_tensors
        self.made: dict[str, int] = {}  # how often each class has been used

    def of(self, view: Host, seed: str, *, may_be_tensor: bool = True, may_be_read_only: bool = True) -> Any:
        """Return an object over the memory of a view, or a new array."""
        draw = random.Random(seed)
        fresh = view[...] if view.ndim else view.reshape(1).reshape(())
        is_read = not view.flags.writeable or (may_be_read_only and draw.random() < TAKES_READING)
        fresh.flags.writeable = not is_read
        kinds = READ if is_read else (*WRITTEN, *[_tensor] * (2 * self.has_tensors and may_be_tensor))
        item = draw.choice(kinds)(fresh)
        if not self.are_objects or item is None:
            return fresh
        self.made[type(item).__name__] = self.made.get(type(item).__name__, 0) + 1
        return item


def in_buffers(arrays: list[Host], roots: list[Host]) -> tuple[list[Host], list[Host], dict[int, bytearray]]:
    """Return arrays as before over the memory of bytearrays, the arrays that cover each of these, and them by id."""
    buffers: dict[int, bytearray] = {}
    new_roots: dict[int, Host] = {}
    for root in roots:
        if id(root) not in new_roots:
            memory = bytearray(root.nbytes)
            made = np.ndarray(root.shape, root.dtype, memory, 0, root.strides)
            made[...] = root
            new_roots[id(root)], buffers[id(made)] = made, memory
    moved = []
    for array, root in zip(arrays, roots, strict=True):
        made = new_roots[id(root)]
        offset = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        moved.append(np.ndarray(array.shape, array.dtype, buffers[id(made)], offset, array.strides))
    return moved, [new_roots[id(root)] for root in roots], buffers
