"""List items of a compute region that are whole parameters: found among the arguments by position.

Most regions name their parameters, are passed host arrays and scalars, and have queues. Such a call needs no table of
the names that its function sees, and nothing but its own arguments decides what it maps. All other calls go the way of
`offload.constructs.target`, which this takes the rules from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.acc.clauses import check_distinct, excuse_empty
from offload.arrays.items import SCALARS
from offload.constructs.clauses.mapping import map_item
from offload.constructs.clauses.names import parse_item
from offload.data.maptypes import Construct, MapType, resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.constructs.clauses.maps import MapClause
    from offload.constructs.clauses.names import VisibleNames
    from offload.data.items import MapItem


class WholeParameters:
    """The list items of a region all of whose data clauses name whole parameters.

    Parameters
    ----------
    n_args : int or None
        How many arguments a call has to have; None: any number.
    listed : list of (int, MapType, str, MapClause)
        Of each item its position, map type, text and clause.
    """

    __slots__ = ("_listed", "_n_args")

    def __init__(self, n_args: int | None, listed: Sequence[tuple[int, MapType, str, MapClause]]) -> None:
        self._n_args = n_args
        self._listed = listed

    @classmethod
    def of(cls, clauses: Sequence[Any], visible: VisibleNames | None) -> WholeParameters | None:
        """Return those of data clauses; None where an item is anything else."""
        listed: list[tuple[int, MapType, str, MapClause]] = []
        for clause in clauses:
            for item in clause.items:
                if visible is None or not isinstance(item, str):
                    return None
                parsed = parse_item(item)
                at = visible.positions.get(parsed.name)
                if at is None or parsed.steps:
                    return None
                listed.append((at, resolve(Construct.TARGET, clause.map_type, item), item, clause))
        n_args = None if visible is None else visible.n_positional
        return None if visible is not None and n_args is None else cls(n_args, listed)

    def items(self, directive: str, args: tuple[Any, ...]) -> list[MapItem] | None:
        """Return the evaluated list items of a call; None where it passes what more has to be asked about.

        Raises
        ------
        ClauseError, MapError
            As for every region.
        """
        if self._n_args is not None and len(args) != self._n_args:
            return None
        for value in args:
            if value.__class__ is np.ndarray:
                if value.dtype.hasobject:
                    return None
            elif value.__class__ not in SCALARS:
                return None
        items: list[MapItem] = []
        for at, map_type, text, clause in self._listed:
            if args[at].__class__ is not np.ndarray:
                return None
            items.append(
                map_item(args[at], map_type, text, always=clause.always, present=clause.present, clause=clause)
            )
        if len(items) > 1:
            check_distinct(directive, items, of_function=True)
        excuse_empty(items)
        return items
