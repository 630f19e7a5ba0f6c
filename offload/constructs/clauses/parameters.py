"""List items that are whole parameters: found among the arguments by position.

Most regions name their parameters, and are passed host arrays by position. Such a call needs no table of the names that
its function sees, and its items follow from its own arguments. All other calls go the way of
`offload.constructs.target.TargetFunction`, which has the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.constructs.clauses.dependences import Dependence
from offload.constructs.clauses.mapping import map_item
from offload.constructs.clauses.maps import MapClause
from offload.constructs.clauses.names import parse_item
from offload.data.maptypes import EFFECTIVE, MapConstruct, MapType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offload.constructs.clauses.names import VisibleNames
    from offload.data.items import MapItem


def are_parameters(depend: Iterable[Any], visible: VisibleNames) -> bool:
    """Tell whether all that ``depend`` clauses wait for at a call are whole parameters, each found by position."""
    for clause in depend:
        if clause.is_late:
            for item in clause.items if isinstance(clause, Dependence) else (clause,):
                if not isinstance(item, str):
                    return False
                parsed = parse_item(item)
                if parsed.steps or parsed.name not in visible.positions:
                    return False
    return True


class WholeParameters:
    """The list items of a region all of whose map clauses name whole parameters."""

    __slots__ = ("_listed", "_n_args")

    def __init__(self, n_args: int | None, listed: Sequence[tuple[int, MapType, str, MapClause | None]]) -> None:
        self._n_args = n_args  # the necessary number of arguments; None for any
        self._listed = listed  # position, map type, text and clause of each item

    @classmethod
    def of(cls, clauses: Sequence[Any], visible: VisibleNames | None) -> WholeParameters | None:
        """Return those of map clauses; None where an item is anything else, or refused at the call."""
        listed: list[tuple[int, MapType, str, MapClause | None]] = []
        for given in clauses:
            clause = given if isinstance(given, MapClause) else None
            if clause is not None and clause.mapper is not None:
                return None
            map_type = EFFECTIVE[MapConstruct.TARGET].get(clause.map_type if clause is not None else None)
            for item in clause.items if clause is not None else (given,):
                if visible is None or map_type is None or not isinstance(item, str):
                    return None
                parsed = parse_item(item)
                at = visible.positions.get(parsed.name)
                if at is None or parsed.steps:
                    return None
                listed.append((at, map_type, item, clause))
        n_args = None if visible is None else visible.n_positional
        return None if visible is not None and n_args is None else cls(n_args, listed)

    def items(self, args: tuple[Any, ...]) -> list[MapItem] | None:
        """Return the evaluated list items of a call; None if it passes other objects than plain arrays for them."""
        if self._n_args is not None and len(args) != self._n_args:
            return None
        items: list[MapItem] = []
        for at, map_type, text, clause in self._listed:
            value = args[at]
            if value.__class__ is not np.ndarray or value.dtype.hasobject:
                return None
            if clause is None:
                items.append(map_item(value, map_type, text))
            else:
                items.append(
                    map_item(value, map_type, text, always=clause.always, present=clause.present, clause=clause)
                )
        return items
