"""The map types: each rule that names one is here, or is taken from here.

Theory of operation
-------------------
`RULES` is the one table: a row for each type, a column for each construct that takes types, and in it the type that the
written one has there. An empty place is a type that the construct does not take. `resolve` reads it for the clauses of
a construct. Four more rules follow from the table and from the directions in which a type copies, so that they are
computed: the types of a mapper's items (`DECAY`), the behaviours of ``defaultmap`` (`BEHAVIOURS`), the constructs on
which an OpenACC clause may stand (`keeps_type`), and the types that tests go through (`types_of`).

OpenMP 5.2, 5.8.3 "map Clause"; the defaults on enter and exit are there since 5.2. 5.8.7 "defaultmap Clause", 5.8.8
"declare mapper Directive", 5.9 "Data-Motion Clauses".
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from offload.errors import ClauseError


class MapType(Enum):
    """The type in a ``map`` clause.

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


class MapConstruct(Enum):
    """A construct whose clauses map or move data; the value is its name."""

    TARGET = "target"
    TARGET_DATA = "target_data"
    TARGET_ENTER_DATA = "target_enter_data"
    TARGET_EXIT_DATA = "target_exit_data"
    TARGET_UPDATE = "target_update"
    DECLARE_MAPPER = "declare_mapper"


_ALLOC, _TO, _FROM, _TOFROM, _RELEASE, _DELETE = MapType

# fmt: off
RULES: Final[dict[MapType | None, tuple[MapType | None, ...]]] = {
    #          target    target_data  enter_data  exit_data  update  declare_mapper
    None:     (_TOFROM,  _TOFROM,     _TO,        _FROM,     None,   _TOFROM),
    _ALLOC:   (_ALLOC,   _ALLOC,      _ALLOC,     None,      None,   _ALLOC),
    _TO:      (_TO,      _TO,         _TO,        None,      _TO,    _TO),
    _FROM:    (_FROM,    _FROM,       None,       _FROM,     _FROM,  _FROM),
    _TOFROM:  (_TOFROM,  _TOFROM,     _TO,        _FROM,     None,   _TOFROM),
    _RELEASE: (None,     None,        None,       _RELEASE,  None,   None),
    _DELETE:  (None,     None,        None,       _DELETE,   None,   None),
}
# fmt: on
"""What is written (first: no type given), and the type that it has on each `MapConstruct`, in their order."""

EFFECTIVE: Final[dict[MapConstruct, dict[MapType | None, MapType]]] = {
    construct: {written: effective for written, row in RULES.items() if (effective := row[column]) is not None}
    for column, construct in enumerate(MapConstruct)
}
"""`RULES` by construct; a type that is missing is not allowed."""


def types_of(construct: MapConstruct) -> tuple[MapType, ...]:
    """Return the types that may be written on a construct, in the order of `MapType`."""
    return tuple([written for written in EFFECTIVE[construct] if written is not None])


def keeps_type(construct: MapConstruct, map_type: MapType) -> bool:
    """Tell whether a type may be written on a construct and keeps its meaning there."""
    return EFFECTIVE[construct].get(map_type) is map_type


_BY_COPIES: Final = {(one.copies_in, one.copies_out): one for one in types_of(MapConstruct.DECLARE_MAPPER)}


def _decayed(outer: MapType, inner: MapType) -> MapType:
    """Return the type that copies where both do; one that only ends a mapping holds for all."""
    if outer not in EFFECTIVE[MapConstruct.DECLARE_MAPPER]:
        return outer
    return _BY_COPIES[outer.copies_in and inner.copies_in, outer.copies_out and inner.copies_out]


DECAY: Final[dict[MapType, dict[MapType, MapType]]] = {
    outer: {inner: _decayed(outer, inner) for inner in types_of(MapConstruct.DECLARE_MAPPER)} for outer in MapType
}
"""The type that an item of a mapper has, by the type that the object is mapped with and the one in the mapper."""

BEHAVIOURS: Final[dict[str, MapType | None]] = {
    **{one.word: one for one in types_of(MapConstruct.TARGET)},
    "present": MapType.ALLOC,  # with the modifier
    "firstprivate": None,
    "none": None,
    "default": None,
}
"""The behaviours of ``defaultmap`` and the type that each maps with; None: none, or the one without the clause."""


def resolve(construct: MapConstruct, map_type: MapType | None, label: object = "…") -> MapType:
    """Return the type that ``map_type`` means on ``construct``; ``label`` names the item in an error.

    Raises
    ------
    ClauseError
        The construct does not allow the type.
    """
    effective = EFFECTIVE[construct].get(map_type)
    if effective is None:
        wrong = map_type.word if map_type else None
        allowed = ", ".join([one.word for one in types_of(construct)])
        others = " or ".join([other.value for other in _WITH_MAP if map_type in EFFECTIVE[other]])
        msg = f"map({wrong}: {label}) is not allowed on {construct.value}; allowed are {allowed}; use it on {others}"
        raise ClauseError(msg)
    return effective


_WITH_MAP: Final = [
    one for one in MapConstruct if one.value.startswith("target") and one is not MapConstruct.TARGET_UPDATE
]
"""The constructs with a ``map`` clause, which an error recommends."""
