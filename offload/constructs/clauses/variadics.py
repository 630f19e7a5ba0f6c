"""Strings that name arguments of a ``*`` or ``**`` parameter: ``"tiles"``, all of them, and ``"tiles[i]"``.

A clause that names all of them applies to each array of the call there, and to each object with a mapper; other
arguments are passed as they are without the clause. Names of a call have a `Starred` under the key "*", which no text
can name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from offload.arrays.items import held_host, is_device_array, is_foreign, mapper_of
from offload.constructs.clauses.names import STARRED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.constructs.clauses.names import Starred, SymbolicItem, VisibleNames


class Named(NamedTuple):
    """An argument that a text names."""

    text: str  # the name in messages
    # its position, or the name that it was passed by; the parameter's name if it is not among the arguments
    slot: int | str
    value: Any  # None if it is not among the arguments
    rest: SymbolicItem  # how the text goes on from the argument


def members(item: SymbolicItem, names: Mapping[str, Any]) -> list[Named] | None:
    """Return all arguments of the ``*`` or ``**`` parameter that a text names; None for any other text."""
    starred: Starred | None = names.get(STARRED)
    if starred is None or item.steps:
        return None
    if item.name == starred.args:
        passed = names[item.name]
        return [Named(f"{item.name}[{at}]", starred.first + at, value, item) for at, value in enumerate(passed)]
    if item.name == starred.kwargs:
        return [Named(name, name, value, item) for name, value in names[item.name].items()]
    return None


def arrays_among(found: list[Named]) -> list[Named]:
    """Return those that a clause applies to which names all arguments of a parameter."""
    return [one for one in found if is_listable(one.value)]


def is_listable(value: Any) -> bool:
    """Tell whether a value is an array of the host or of a device, or has a mapper."""
    if isinstance(value, np.ndarray) or is_device_array(value) or mapper_of(value) is not None or is_foreign(value):
        return True
    return held_host(value) is not value


def named_by(
    item: SymbolicItem, visible: VisibleNames, names: Mapping[str, Any], kwargs: Mapping[str, Any]
) -> list[Named]:
    """Return the arguments that a text names; of a ``*`` or ``**`` parameter, those to which the text applies.

    Raise `ClauseError` if the text names an element of those, and no argument has its index.
    """
    found = members(item, names)
    if found is not None:
        return arrays_among(found)
    starred: Starred | None = names.get(STARRED)
    if starred is not None and item.name == starred.args and not isinstance(item.steps[0], (str, tuple)):
        at = item.element_of(names[item.name], names)
        return [Named(item.text, starred.first + at, names[item.name][at], item._replace(steps=item.steps[1:]))]
    return [Named(item.text, visible.slot(item.name, kwargs), names.get(item.name), item)]
