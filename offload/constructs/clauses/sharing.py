"""The data-sharing clauses of a target region, and the rules for arguments without one.

`ArgumentRules` has the clauses of a function; a function without any has no rules and pays nothing. `decide` looks at
the arguments by their *slot* (a position, or a keyword) and enters the result in the binding; it touches no device.

================================  ==================================================================
``firstprivate``                  storage of its own, with the contents that it has at the call
``private``                       storage of its own, uninitialised
``is_device_ptr``                 it is a device array, which passes through
``has_device_addr``               the same
in no clause, an array            ``defaultmap``'s behaviour for "aggregate"
in no clause, an object           the same, if its class has a mapper
in no clause, a scalar            captured by value; ``defaultmap`` can only ask that it be listed
in no clause, a device array      passes through
================================  ==================================================================

OpenMP 5.2, 5.4 "List Item Privatization", 5.8.7 "defaultmap Clause".
"""

from __future__ import annotations

from numbers import Number
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from offload.arrays.items import array_section, host_items, is_device_array, is_foreign, label, mapper_of
from offload.arrays.sections import covers
from offload.constructs.clauses.binding import Private
from offload.constructs.clauses.mapping import expansion_of, implicit_item, object_items
from offload.constructs.clauses.maps import MapClause, as_tuple
from offload.constructs.clauses.names import parse_item
from offload.constructs.clauses.variadics import named_by
from offload.data.maptypes import BEHAVIOURS
from offload.errors import ClauseError
from offload.runtime.keywords import meant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from offload.arrays.sections import Section
    from offload.constructs.clauses.binding import Binding, Slot
    from offload.constructs.clauses.mappers import Expansion
    from offload.constructs.clauses.names import VisibleNames

# The categories of ``defaultmap``. Here "pointer" is a device array, which always passes through.
CATEGORIES: Final = ("scalar", "aggregate", "pointer", "all")

_DEVICE_CLAUSES = ("is_device_ptr", "has_device_addr")
SHARING: Final = ("firstprivate", "private", *_DEVICE_CLAUSES)  # The data-sharing clauses


class ArgumentRules:
    """The data-sharing clauses and ``defaultmap`` of a target function, from all its checked clauses.

    Raise `ClauseError` if a string names no parameter, or if two clauses that name one contradict each other.
    """

    __slots__ = ("_behaviour", "_clauses", "_mapped", "_names", "_positional", "excused")

    words: ClassVar[Mapping[str, str]] = {}  # What messages call clauses that a construct has under other names

    def __init__(self, clauses: Mapping[str, Any], names: VisibleNames) -> None:
        # parameters that clauses of another kind name, which ``defaultmap`` leaves alone
        self.excused: frozenset[str] = frozenset()
        self._names = names
        self._positional = list(names.positions)  # the names of the parameters, by position
        # the clause and the item, one by one
        self._clauses = [(clause, item) for clause in SHARING for item in clauses.get(clause, ())]
        self._mapped = list(_listed(clauses.get("map", ())))  # the items of map clauses
        self._behaviour: dict[str, str] = clauses.get("defaultmap", {})  # by the category of variables
        of_one = names.starred.args if names.starred is not None else None  # elements are told apart at the call
        mapped = [parse_item(item) for item in self._mapped if isinstance(item, str)]
        seen = {item.name: "map" for item in mapped if item.name != of_one}
        for clause, item in self._clauses:
            if isinstance(item, str):
                name = parse_item(item).name
                if name == of_one:
                    continue
                if name not in names.parameters and not names.takes_any_keyword:
                    raise ClauseError(
                        f"{self._word(clause)}: {item!r} names no parameter{meant(name, names.parameters)}; the "
                        f"function takes {', '.join(names.parameters) or 'none'}"
                    )
                if name in seen:
                    raise ClauseError(self._contradiction(name, seen[name], clause))
                seen[name] = clause

    def decide(
        self, binding: Binding, names: Mapping[str, Any], *, on_host: bool, listed: Iterable[Section] = ()
    ) -> None:
        """Decide about the arguments of a call, and enter it in the binding, which has the items of the map clauses.

        String items may use ``names``. ``on_host`` means that the region runs on the host, where any array is a device
        array. Storage in ``listed`` need not be named, because a construct around the region names it.

        Raise `ClauseError` if an item is no argument, no device array where one is needed, or in two clauses that
        contradict each other; or if ``defaultmap`` requires a clause for an argument that is in none.
        """
        kwargs = binding.kwargs
        values: dict[Slot, Any] = dict([*enumerate(binding.args), *kwargs.items()])
        # An argument may stand in one clause only, a map clause included.
        taken: dict[Slot, str] = dict.fromkeys(self._mapped_slots(values, kwargs, names, binding.objects), "map")
        for clause, item in self._clauses:
            for slot, value in self._named(clause, item, values, kwargs, names):
                if slot in taken:
                    raise ClauseError(self._contradiction(self._label(slot), taken[slot], clause))
                taken[slot] = clause
                self._share(clause, slot, value, binding, is_whole=value is values[slot], on_host=on_host)
        if self._behaviour:
            sections = [item.section for item in binding.items]  # their storage is in a clause
            listed = tuple(listed)  # it is read for each argument
            for slot, value in values.items():
                if slot not in taken and self._parameter(slot) not in self.excused:
                    self._default(slot, value, sections, listed, binding)

    def _named(
        self, clause: str, item: Any, values: Mapping[Slot, Any], kwargs: Mapping[str, Any], names: Mapping[str, Any]
    ) -> Iterator[tuple[Slot, Any]]:
        """Yield the arguments that an item names, each with the part of it that it names."""
        if isinstance(item, str):
            for _, slot, _, rest in named_by(parse_item(item), self._names, names, kwargs):
                if slot not in values:
                    continue
                value = values[slot]
                if rest.reaches_into(value):
                    raise ClauseError(
                        f"{self._word(clause)}: {item!r} is no argument of its own, but held by {rest.name!r}, which "
                        f"the body receives unchanged; pass {item} as an argument of its own, and name its parameter"
                    )
                yield slot, value if not rest.steps else rest.resolve({**names, rest.name: value})
            return
        slots = [slot for slot, value in values.items() if _is_same(value, item)]
        if not slots:
            raise ClauseError(
                f"{self._word(clause)}: {label(item)} is no argument of this call; pass it, because on the device a "
                "body can use only its arguments"
            )
        yield from ((slot, values[slot]) for slot in slots)  # as it was passed: the same storage, maybe transposed

    def _share(self, clause: str, slot: Slot, value: Any, binding: Binding, *, is_whole: bool, on_host: bool) -> None:
        """Note the effect of a clause on an argument."""
        is_on_device = is_device_array(value) or (not isinstance(value, np.ndarray) and is_foreign(value))
        if clause in _DEVICE_CLAUSES:
            if not (is_on_device or (on_host and isinstance(value, np.ndarray))):
                raise ClauseError(
                    f"{self._word(clause)}: argument {self._label(slot)} is {type(value).__name__} {label(value):.60}, "
                    "not a device array; pass an array from target_alloc or use_device_ptr, or map it"
                )
        elif mapper_of(value) is not None:
            raise ClauseError(
                f"{clause}: {type(value).__name__} {value!r:.60} is mapped by its mapper; "
                f"put it into {self._word('map')}"
            )
        elif isinstance(value, np.ndarray):
            binding.privates[slot] = _private(value, is_first=clause == "firstprivate")
            return
        elif is_on_device and clause == "private" and hasattr(value, "dtype"):
            binding.privates[slot] = Private(value, is_first=False)
            return
        # The clause names a part of the argument: the body gets that part.
        if not is_whole:
            binding.sections[slot] = value

    def _default(self, slot: Slot, value: Any, sections: list[Any], listed: tuple[Any, ...], binding: Binding) -> None:
        """Apply ``defaultmap`` to an argument that is in no clause."""
        if isinstance(value, np.ndarray):
            section = array_section(value)
            if _is_within(section, sections):
                return
            category, behaviour = "an array", self._behaviour.get("aggregate", "default")
            remedy = f"{self._word('map')}, firstprivate or private"
            if behaviour == "none" and _is_within(section, listed):
                return
        elif mapper_of(value) is not None:
            category, behaviour = "an object with a mapper", self._behaviour.get("aggregate", "default")
            remedy = self._word("map")
        elif isinstance(value, (Number, np.generic)):
            category, behaviour = "a scalar", self._behaviour.get("scalar", "default")
            remedy = "firstprivate or private"
            # Scalars are captured by value whatever else is said.
            behaviour = behaviour if behaviour == "none" else "default"
        else:
            return
        if behaviour == "none":
            raise ClauseError(
                f"{self._word('defaultmap')}(none): argument {self._label(slot)}, {category}, is in no clause; "
                f"put it into {remedy}"
            )
        map_type, present = BEHAVIOURS[behaviour], behaviour == "present"  # None: there is nothing to map
        if map_type is not None and isinstance(value, np.ndarray):
            item = implicit_item(value, f"argument {self._label(slot)}", map_type, present=present)
            item.clause = self.words.get(behaviour, "")
            binding.items.append(item)
        elif map_type is not None:
            expansion = expansion_of(value, map_type, f"argument {slot}", present=present)
            binding.objects[id(value)] = expansion.keep()
            binding.items.extend(object_items(expansion))
        elif behaviour == "firstprivate":
            self._share("firstprivate", slot, value, binding, is_whole=True, on_host=False)

    def _mapped_slots(
        self,
        values: Mapping[Slot, Any],
        kwargs: Mapping[str, Any],
        names: Mapping[str, Any],
        mapped: Mapping[int, Expansion],
    ) -> Iterator[Slot]:
        """Yield the arguments that map clauses name, strings by parameter and arrays by storage."""
        for item in self._mapped:
            if isinstance(item, str):
                for _, slot, _, rest in named_by(parse_item(item), self._names, names, kwargs):
                    if slot not in values or not rest.reaches_into(values[slot]):
                        yield slot
            elif isinstance(item, np.ndarray):
                yield from (slot for slot, value in values.items() if _is_same(value, item))
        yield from (slot for slot, value in values.items() if id(value) in mapped)

    def _word(self, clause: str) -> str:
        return self.words.get(clause, clause)

    def _contradiction(self, name: str, first: str, second: str) -> str:
        if first == second:
            return f"{self._word(second)}: argument {name} is named twice; name it once"
        return (
            f"argument {name} is in {self._word(first)} and in {self._word(second)}, which contradict each other; "
            "leave it in one of them"
        )

    def _parameter(self, slot: Slot) -> str:
        """Return the parameter that takes an argument; empty for elements of ``*args``."""
        if isinstance(slot, str):
            return slot
        return self._positional[slot] if slot < len(self._positional) else ""

    def _label(self, slot: Slot) -> str:
        name = self._parameter(slot)
        if name or isinstance(slot, str):
            return repr(name)
        starred = self._names.starred
        return f"'{starred.args}[{slot - starred.first}]'" if starred is not None and starred.args else str(slot)


def has_rules(clauses: Mapping[str, Any]) -> bool:
    """Tell whether any clause says something about arguments that `ArgumentRules` has to carry out."""
    return any(clauses.get(clause) for clause in (*SHARING, "defaultmap"))


def check_sharing(value: Any) -> tuple[Any, ...]:
    """Return the list items of a data-sharing clause: strings and arrays."""
    items = host_items(as_tuple(value))
    for item in items:
        if isinstance(item, str):
            parse_item(item)
        elif isinstance(item, MapClause) or not (
            isinstance(item, np.ndarray) or is_device_array(item) or is_foreign(item)
        ):
            raise ClauseError(
                f"{type(item).__name__} {item!r:.60} is not a list item; name a parameter by a string, or give an array"
            )
    return items


def check_defaultmap(value: Any) -> dict[str, str]:
    """Return the behaviour of each category of a ``defaultmap=`` argument."""
    given = dict(value) if isinstance(value, dict) else {"all": value}
    for category, behaviour in given.items():
        if category not in CATEGORIES:
            raise ClauseError(f"defaultmap: there is no category {category!r}; use {', '.join(CATEGORIES)}")
        if not isinstance(behaviour, str) or behaviour not in BEHAVIOURS:
            raise ClauseError(f"defaultmap: there is no behaviour {behaviour!r:.60}; use {', '.join(BEHAVIOURS)}")
    if "all" in given and len(given) > 1:
        raise ClauseError(
            f"defaultmap: 'all' together with {', '.join(repr(key) for key in given if key != 'all')} gives a category "
            "two behaviours; name each category once"
        )
    return dict.fromkeys(CATEGORIES[:-1], given["all"]) if "all" in given else given


def _private(host: np.ndarray[Any, Any], *, is_first: bool) -> Private:
    array_section(host)  # refuses Python objects
    return Private(np.array(host, order="C", copy=True, subok=False) if is_first else host, is_first)


def _listed(clauses: Iterable[Any]) -> Iterator[Any]:
    """Yield the list items of map clauses."""
    for clause in clauses:
        if isinstance(clause, MapClause):
            yield from clause.items
        else:
            yield clause


def _is_same(value: Any, item: Any) -> bool:
    """Tell whether an argument is the storage that an item names."""
    if value is item:
        return True
    if isinstance(value, np.ndarray) != isinstance(item, np.ndarray) or not (
        isinstance(value, np.ndarray) or (is_device_array(value) and is_device_array(item))
    ):
        return False
    return array_section(value) == array_section(item)


def _is_within(section: Section, others: Iterable[Section]) -> bool:
    return any(other == section or (section.run_nbytes and covers(other, section)) for other in others)
