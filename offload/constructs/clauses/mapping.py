"""List items, evaluated: the arrays that clauses name, as items of the present table."""

from __future__ import annotations

from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.foreign import read_only_reason
from offload.arrays.items import Label, LeafLabel, address_of, array_section, is_device_array, mapper_of
from offload.constructs.clauses.maps import MapClause, remedy_of
from offload.constructs.clauses.names import parse_item
from offload.constructs.clauses.variadics import members
from offload.data.items import MapItem
from offload.data.maptypes import MapConstruct, MapType, resolve
from offload.errors import MapError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from offload.constructs.clauses.mappers import Expansion


def map_item(
    array: np.ndarray[Any, Any],
    map_type: MapType,
    text: str | Label,
    *,
    always: bool = False,
    present: bool = False,
    clause: MapClause | None = None,
) -> MapItem:
    """Return the evaluated list item of a host array; raise `MapError` for a copy back to a read-only array."""
    section = array_section(array)  # refuses Python objects
    flags = array.flags
    address = section.address if flags.c_contiguous else address_of(array)  # of the first element
    item = MapItem(  # by position: by name takes twice as long
        section, address, array.shape, array.strides, array.itemsize, map_type, always, present, array, text
    )
    if clause is not None:
        item.clause, item.if_present, item.zeroes = clause.word, clause.if_present, clause.zeroes
    if map_type.copies_out and not flags.writeable:
        check_writeable((item,))
    return item


def check_writeable(items: Iterable[MapItem]) -> None:
    """Raise `MapError` if the device's values would have to be copied to an array that cannot be written."""
    for item in items:
        if item.map_type.copies_out and not item.host.flags.writeable:  # type: ignore[attr-defined]  # an array
            instead = "make it writeable, or use copyin" if item.clause else "map it `to`"
            why = read_only_reason(item.host)  # type: ignore[arg-type]  # an array
            raise MapError(f"{item.text()}: {why}, so nothing can be copied back to it; {instead}")


def map_items(
    construct: MapConstruct,
    clauses: Iterable[Any],
    names: Mapping[str, Any] | None = None,
    objects: dict[int, Expansion] | None = None,
) -> list[MapItem]:
    """Return the evaluated list items of a construct's ``map`` clauses.

    Enter the expansions of objects with mappers into ``objects``, if given, by the object's `id`; the object is kept as
    it is now. Raise `ClauseError` for a wrong map type, for a string without names to resolve it, and for no array;
    `MapError` for a copy back to a read-only array.
    """
    items: list[MapItem] = []
    for clause in clauses:
        given = clause if isinstance(clause, MapClause) else None  # None: a bare list item
        listed = given.items if given is not None else (clause,)
        for item in listed:
            name = given.names.get(id(item), "") if given is not None else ""  # in the program, for messages
            found = _named(item, names or {}) if isinstance(item, str) else ((Label(item, name), item),)
            for text, array in found:
                map_type = resolve(construct, given.map_type if given is not None else None, text)
                if not isinstance(array, np.ndarray) or (given is not None and given.mapper is not None):
                    expansion = expansion_of(array, map_type, text, given)
                    if objects is not None:
                        # The body gets a copy of the object, made of this expansion.
                        objects[id(array)] = expansion.keep()
                    items += object_items(expansion, given)
                    continue
                items.append(
                    map_item(
                        array,
                        map_type,
                        text,
                        always=given is not None and given.always,
                        present=given is not None and given.present,
                        clause=given,
                    )
                )
    return items


def _named(item: str, names: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Return the objects that a text names, with their names for messages: one, or each array of ``*`` or ``**``."""
    parsed = parse_item(item)
    found = members(parsed, names)
    if found is None:
        return ((item, parsed.resolve(names)),)
    return [(one.text, one.value) for one in found if isinstance(one.value, np.ndarray) or mapper_of(one.value)]


def expansion_of(
    value: Any, map_type: MapType, text: object, clause: MapClause | None = None, *, present: bool = False
) -> Expansion:
    """Return the expansion of a list item that is not an array, by its mapper."""
    mapper = clause.mapper if clause is not None else None  # None: the default mapper of the class
    if mapper is None and mapper_of(value) is None:
        is_worded = clause is not None and clause.word
        what = f"{clause.word}({text})" if is_worded else f"map({map_type.word}: {text})"  # type: ignore[union-attr]  # it is one
        if is_device_array(value):
            raise MapError(f"{what} is already a device array; pass it as an argument, without a map")
        if isinstance(value, Number):
            raise MapError(
                f"{what} is a number, {type(value).__name__} {value!r:.40}, which is passed by value; name it in "
                "firstprivate or in no clause, or, to get a value back, pass an array without dimensions"
            )
        raise MapError(f"{what} is of type {type(value).__name__}, not an array; {remedy_of(value)}")
    from offload.constructs.clauses.mappers import Modifiers, expand_object  # a program without mappers does without

    modifiers = Modifiers(present=present)
    if clause is not None:
        modifiers = Modifiers(clause.always, clause.present, clause.close)
    return expand_object(value, map_type, mapper, modifiers)


def object_items(expansion: Expansion, clause: MapClause | None = None) -> list[MapItem]:
    """Return the evaluated list items of an object in a clause: the arrays that its mapper maps."""
    owner = type(expansion.item).__name__  # leaves have no name of their own
    return [
        map_item(
            leaf.array,
            leaf.map_type,
            LeafLabel(leaf.array, owner, leaf.mapper),
            always=leaf.modifiers.always,
            present=leaf.modifiers.present,
            clause=clause,
        )
        for leaf in expansion.leaves()
    ]


def implicit_item(
    array: np.ndarray[Any, Any],
    name: str,
    map_type: MapType = MapType.TOFROM,
    *,
    present: bool = False,
    is_written: bool = False,
) -> MapItem:
    """Return the item of an array that is in no clause: ``tofrom`` is ``to`` if it is read-only or overlaps itself."""
    # An array that ``is_written`` is always ``tofrom``.
    section = array_section(array)
    flags = array.flags
    if (
        map_type is MapType.TOFROM
        and not is_written
        and not (flags.writeable and (flags.c_contiguous or array.size * array.itemsize <= section.nbytes))
    ):
        map_type = MapType.TO
    address = section.address if flags.c_contiguous else address_of(array)
    text = Label(array, name)
    item = MapItem(  # by position, as in `map_item`, whose call would cost as much again
        section, address, array.shape, array.strides, array.itemsize, map_type, False, present, array, text, True
    )
    if map_type.copies_out and not flags.writeable:
        check_writeable((item,))
    return item
