"""Arguments of which strings in ``map`` clauses name a part: a section, a member or an element."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import array_section, mapper_of
from offload.constructs.clauses.maps import string_items
from offload.constructs.clauses.names import parse_item
from offload.constructs.clauses.variadics import members, named_by
from offload.errors import ClauseError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from offload.constructs.clauses.binding import Binding, Slot
    from offload.constructs.clauses.names import SymbolicItem, VisibleNames


def enter_parts(binding: Binding, clauses: Iterable[Any], visible: VisibleNames, names: Mapping[str, Any]) -> None:
    """Enter the arguments of which a string names a section: the body receives the array of that section.

    Enter those of which a string names a member or an element unchanged: the program knows their contents. Raise
    `ClauseError` if strings name two sections of one argument, and none names all of it: the body can receive one array
    only.
    """
    args, kwargs = binding.args, binding.kwargs
    evaluated = {item.label: item.host for item in binding.items if item.label.__class__ is str}
    found: dict[Slot, Any] = {}  # the part of each argument
    texts: dict[Slot, list[str]] = {}  # the different parts, for the error
    whole: set[Slot] = set()  # arguments that an item names as a whole
    for item in string_items(clauses):
        parsed = parse_item(item)
        if members(parsed, names) is not None:
            continue  # each argument as it is
        ((_, slot, value, rest),) = named_by(parsed, visible, names, kwargs)
        if not (slot in kwargs if isinstance(slot, str) else slot < len(args)):
            continue  # a visible name, or a parameter that has its default
        if not rest.steps:
            whole.add(slot)
            continue
        part = evaluated[item] if item in evaluated else parsed.resolve(names)
        if rest.reaches_into(value):
            _check_held(parsed, value, part, (*args, *kwargs.values()))
            binding.sections[slot] = value
            continue
        if slot not in found:
            found[slot] = part
            texts[slot] = [item]
        elif array_section(part) != array_section(found[slot]):
            texts[slot].append(item)
    for slot in whole:
        found.pop(slot, None)
    for slot in found:
        if len(texts[slot]) > 1:
            raise ClauseError(
                f"map: {' and '.join(map(repr, texts[slot]))} are different sections of one argument, but the body "
                "receives one array; name one section, or also name the whole array"
            )
    binding.sections.update(found)


def _check_held(item: SymbolicItem, holder: Any, array: Any, passed: Iterable[Any]) -> None:
    """Raise `ClauseError` if the body does not receive an array that is mapped as a member of an argument."""
    if mapper_of(holder) is not None:
        return
    if any(value is array or (isinstance(value, np.ndarray) and np.may_share_memory(value, array)) for value in passed):
        return
    kind = type(holder).__name__
    raise ClauseError(
        f"map: list item {item.text!r} is held by {item.name!r}, a {kind}, which the body receives unchanged, with the "
        f"host array in it; pass {item.text} as an argument of its own"
        + ("" if isinstance(holder, (list, tuple)) else f", or declare_mapper({kind}, …)")
    )
