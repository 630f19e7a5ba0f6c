"""The map types, and what each may be on each construct.

Theory of operation
-------------------
Three rules of the standard are one table: which types a construct allows, what the composite type ``tofrom`` decays to
where only half of it has a meaning, and what holds when no type is given. `resolve` reads it.

OpenMP 5.2, 5.8.3 "map Clause"; the defaults on enter and exit are there since 5.2.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from offload.errors import ClauseError


class MapType(Enum):
    """What a ``map`` clause asks for.

    Attributes
    ----------
    word : str
        As it is written in a clause.
    copies_in, copies_out : bool
        Whether it copies host to device at the entry, device to host at the exit.
    """

    ALLOC = ("alloc", False, False)
    TO = ("to", True, False)
    FROM = ("from", False, True)
    TOFROM = ("tofrom", True, True)
    RELEASE = ("release", False, False)
    DELETE = ("delete", False, False)

    word: str
    copies_in: bool
    copies_out: bool

    def __init__(self, word: str, copies_in: bool, copies_out: bool) -> None:
        self.word = word
        self.copies_in = copies_in
        self.copies_out = copies_out


class Construct(Enum):
    """A construct with a ``map`` clause; the value is its name."""

    TARGET = "target"
    TARGET_DATA = "target_data"
    TARGET_ENTER_DATA = "target_enter_data"
    TARGET_EXIT_DATA = "target_exit_data"


_REGION: Final = {
    None: MapType.TOFROM,
    MapType.ALLOC: MapType.ALLOC,
    MapType.TO: MapType.TO,
    MapType.FROM: MapType.FROM,
    MapType.TOFROM: MapType.TOFROM,
}

EFFECTIVE: Final[dict[Construct, dict[MapType | None, MapType]]] = {
    Construct.TARGET: _REGION,
    Construct.TARGET_DATA: _REGION,
    Construct.TARGET_ENTER_DATA: {
        None: MapType.TO,
        MapType.ALLOC: MapType.ALLOC,
        MapType.TO: MapType.TO,
        MapType.TOFROM: MapType.TO,
    },
    Construct.TARGET_EXIT_DATA: {
        None: MapType.FROM,
        MapType.FROM: MapType.FROM,
        MapType.TOFROM: MapType.FROM,
        MapType.RELEASE: MapType.RELEASE,
        MapType.DELETE: MapType.DELETE,
    },
}
"""For each construct, what is written (None: no type given) and what it means there. What is missing is not allowed."""


def resolve(construct: Construct, map_type: MapType | None, label: object = "…") -> MapType:
    """Return the type that ``map_type`` means on ``construct``; ``label`` names the item in an error.

    Raises
    ------
    ClauseError
        The construct does not allow the type.
    """
    row = EFFECTIVE[construct]
    effective = row.get(map_type)
    if effective is None:
        wrong = map_type.word if map_type else None
        allowed = ", ".join([key.word for key in row if key is not None])
        others = " or ".join([other.value for other in Construct if map_type in EFFECTIVE[other]])
        msg = f"map({wrong}: {label}) is not allowed on {construct.value}; allowed are {allowed}; use it on {others}"
        raise ClauseError(msg)
    return effective
