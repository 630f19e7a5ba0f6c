"""Arrays in containers: in an argument of a region, or in the result of a body.

Looked into are dictionaries, lists, tuples, sets, deques, dataclasses and sparse matrices, at any depth. Arrays held by
closures, generators and objects of other classes are not seen.
"""

from __future__ import annotations

from collections import deque
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offload.arrays.foreign import is_tensor
from offload.arrays.items import SCALARS, is_device_array, is_foreign, mapper_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_PARTS: Final = 100_000  # Parts of an argument that are looked at: a list of so many numbers takes 2 ms


def parts_of(value: Any) -> Iterable[Any] | None:
    """Return the items of a container; None for anything else."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return value
    kind = type(value)
    if isinstance(value, type):
        return None
    if is_dataclass(kind):
        return [getattr(value, field.name, None) for field in fields(kind)]
    if hasattr(kind, "nnz"):  # the sparse matrices of SciPy and CuPy: arrays in attributes
        return getattr(value, "__dict__", {}).values()
    return None


def leaves_of(value: Any, most: int | None = None) -> Iterator[Any]:
    """Yield a value's arrays and objects whose class has a mapper: itself, or its parts if it is a container.

    ``most`` limits the number of parts to look at; None is no limit.
    """
    seen: dict[int, object] = {}  # with the containers, whose ids stay theirs
    todo = [value]
    n_left = most
    while todo:
        part = todo.pop()
        if isinstance(part, np.ndarray):
            if not part.dtype.hasobject:
                yield part
            continue
        if isinstance(part, type):
            continue
        if is_device_array(part) or is_tensor(part) or mapper_of(part) is not None:
            yield part
            continue
        held = parts_of(part)
        if held is None:
            if is_foreign(part):
                yield part
            continue
        if id(part) in seen:
            continue
        seen[id(part)] = part
        found = list(held if n_left is None else islice(held, n_left))
        if n_left is not None:
            n_left -= len(found)
        todo += [inner for inner in reversed(found) if inner.__class__ not in SCALARS]


def attributes_of(item: Any) -> dict[str, Any]:
    """Return the attributes that an object has itself, in its dict and in slots."""
    if isinstance(item, tuple) and hasattr(item, "_asdict"):
        return dict(item._asdict())
    found: dict[str, Any] = {}
    for cls in type(item).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            private = slot.startswith("__") and not slot.endswith("__")
            name = f"_{cls.__name__.lstrip('_')}{slot}" if private else slot
            if name not in ("__dict__", "__weakref__") and hasattr(item, name):
                found[name] = getattr(item, name)
    found.update(getattr(item, "__dict__", {}))
    return found
