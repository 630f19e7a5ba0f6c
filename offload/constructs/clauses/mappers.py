"""Mappers: how an object of a class is mapped, and the copy of it that a body receives.

`expand_object` calls the mapper of an object and returns an `Expansion`: the arrays to map and their objects.
`Expansion.keep` copies the object when the construct is encountered, because the program may rebind attributes
afterwards. `Expansion.rebuilt` gives a body a shallow copy of that copy with device arrays in the mapped attributes,
which it finds by their storage. See docs/design/theory.md, "Mappers". OpenMP 5.2, 5.8.8 "declare mapper Directive".
"""

from __future__ import annotations

import copy
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from offload.arrays.containers import attributes_of
from offload.arrays.foreign import TensorForm, check_numbers, is_tensor
from offload.arrays.items import (
    MAPPERS,
    address_of,
    array_section,
    as_host,
    held_host,
    host_items,
    is_device_array,
    label,
    mapper_of,
)
from offload.arrays.sections import covers
from offload.constructs.clauses.maps import MapClause
from offload.constructs.clauses.views import PartialView, Parts, partial_array
from offload.data.maptypes import DECAY, MapConstruct, MapType, types_of
from offload.errors import ClauseError, MapError
from offload.interrupts.shields import pass_on
from offload.runtime.keywords import takes_clauses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from offload.arrays.sections import Section

    Host: TypeAlias = np.ndarray[Any, Any]


class Modifiers(NamedTuple):
    """The modifiers of a list item; those of the object's clause and of its mapper's are united."""

    always: bool = False  # copy although the array is present
    present: bool = False  # it is an error if the array is absent
    close: bool = False  # a hint, without effect

    def __or__(self, other: Modifiers) -> Modifiers:
        return Modifiers(*(mine or theirs for mine, theirs in zip(self, other, strict=True)))


PLAIN: Final = Modifiers()  # No modifiers


class Leaf(NamedTuple):
    """An array that a mapper maps, with the type and modifiers that it has in the end."""

    array: np.ndarray[Any, Any]
    map_type: MapType  # as it is in the end
    modifiers: Modifiers
    mapper: Callable[[Any], Any] | None = None


@takes_clauses
def declare_mapper(cls: type, fn: Callable[[Any], Any], name: str = "default") -> None:
    """Declare how objects of a class are mapped.

    Parameters
    ----------
    cls : type
        The class. Subclasses use the same mapper, unless they have a mapper of this name.
    fn : callable
        ``fn(obj)`` returns or yields map items, such as ``tofrom(obj.x)`` and ``to(obj.index)``. A bare array means
        ``tofrom``. Items may also be objects that have mappers.
    name : str
        Map clauses select the mapper by ``mapper=``. Clauses without it, and arguments, use the mapper ``"default"``.

    Raises
    ------
    ClauseError
        ``cls`` is not a class, or it is a class with a meaning of its own (arrays, numbers, strings). ``fn`` is not
        callable.

    Notes
    -----
    The declaration holds for the process, and a second one replaces it. Each construct that maps such an object calls
    ``fn`` at the call, also with ``nowait``. OpenMP 5.2, 5.8.8 "declare mapper Directive". Deviation: the body receives
    a copy of the object. Attributes that the body assigns stay on the copy.

    Examples
    --------
    >>> class Particles:
    ...     def __init__(self):
    ...         self.x, self.v = np.zeros(3), np.ones(3)
    >>> omp.declare_mapper(Particles, lambda p: [omp.tofrom(p.x), omp.to(p.v)])
    >>> @omp.target
    ... def move(particles, dt):
    ...     particles.x += dt * particles.v
    >>> particles = Particles()
    >>> move(particles, 0.5)
    >>> particles.x
    array([0.5, 0.5, 0.5])
    """
    given: Any = cls
    if not isinstance(given, type) or given is object or issubclass(given, _OWN_MEANING):
        raise ClauseError(
            f"declare_mapper: {cls!r:.60} cannot have a mapper, because arrays, numbers and strings already have a "
            "meaning; use a class of your own"
        )
    if not callable(fn):
        raise ClauseError(
            f"declare_mapper: {fn!r:.60} is not callable; pass a function that takes an object and yields map clauses"
        )
    if type(name) is not str or not name:
        raise ClauseError(f"declare_mapper: name={name!r:.60} is not a name; use a string, or leave it out")
    MAPPERS[cls, name] = fn


_OWN_MEANING = (np.ndarray, np.generic, int, float, complex, str, bytes, type(None), MapClause)


def expand(item: Any, map_type: MapType, mapper: str | None = None) -> list[Leaf]:
    """Return the arrays of a list item: itself, or those that its mapper maps. Raise as `expand_object` does."""
    # For ``target update`` the ``map_type`` is `MapType.TO` or `MapType.FROM`; then only leaves of that type move.
    if isinstance(item, np.ndarray):
        return [Leaf(item, map_type, PLAIN)]
    return list(expand_object(item, map_type, mapper).leaves())


def expand_object(
    item: Any,
    map_type: MapType,
    mapper: str | None = None,
    modifiers: Modifiers = PLAIN,
    _outer: tuple[Any, ...] = (),
) -> Expansion:
    """Return everything that the mapper of an object maps, nested mappers included.

    Raise `ClauseError` if the object has no such mapper, or the mapper returned something that is no map item;
    `MapError` if mappers lead back to an object that is being expanded.
    """
    if any(item is outer for outer in _outer):
        path = " → ".join(type(part).__name__ for part in (*_outer, item))
        raise MapError(
            f"the mapper of {type(item).__name__} leads back to the same object ({path}); "
            "map each object once, from the one that owns it"
        )
    function = mapper_of(item, mapper)
    if function is None:
        raise ClauseError(
            f"{type(item).__name__} {item!r:.60} has no mapper {mapper or 'default'!r}; declare one with declare_mapper"
        )
    expansion = Expansion(item, function)
    for clause in _given(function, item):
        inner = clause if isinstance(clause, MapClause) else None
        inner_type = inner.map_type if inner is not None else MapType.TOFROM
        effective = DECAY[map_type].get(inner_type)
        if effective is None:
            raise ClauseError(
                f"the mapper of {type(item).__name__} gives map({inner_type.word}: …); in a mapper, use "
                f"{', '.join(one.word for one in types_of(MapConstruct.DECLARE_MAPPER))}"
            )
        united = modifiers
        if inner is not None:
            united |= Modifiers(inner.always, inner.present, inner.close)
        for part in inner.items if inner is not None else host_items((clause,)):
            if isinstance(part, np.ndarray):
                array_section(part)  # refuses Python objects
                expansion.own.append(Leaf(part, effective, united, function))
            elif mapper_of(part, inner.mapper if inner is not None else None) is not None:
                nested = inner.mapper if inner is not None else None
                expansion.add_part(expand_object(part, effective, nested, united, (*_outer, item)))
            else:
                raise ClauseError(_no_item(part, item))
    return expansion


def _given(function: Callable[[Any], Any], item: Any) -> Iterable[Any]:
    """Return a mapper's result for an object: clauses and list items."""
    given = as_host(function(item))
    if isinstance(given, (MapClause, np.ndarray)):
        return (given,)
    try:
        return iter(given)  # type: ignore[no-any-return]  # of anything
    except TypeError:
        raise ClauseError(_no_item(given, item)) from None


def _no_item(part: Any, item: Any) -> str:
    what = "device array" if is_device_array(part) else type(part).__name__
    return (
        f"the mapper of {type(item).__name__} gives {what} {label(part):.60}, which is no map item; use to(…), "
        "from_(…), tofrom(…) or alloc(…) of host arrays and of objects that have a mapper"
    )


class Expansion:
    """The result of a mapper for one object."""

    __slots__ = ("functions", "has_tensors", "item", "kept", "own", "parts", "places")

    def __init__(self, item: Any, function: Callable[[Any], Any]) -> None:
        self.item = item  # the object
        self.functions = [function]  # the mappers that have named ``own``, in the same order
        self.has_tensors = False  # whether an attribute that is mapped is a tensor
        self.kept: Any = None  # a copy of the object as it was at `keep`
        # by the attributes' names, those that are, or hold, mapped arrays; None before `keep`
        self.places: dict[str, _Place] | None = None
        self.own: list[Leaf] = []  # arrays that its own mapper named
        # by `id`, expansions of objects that its own mapper named; each keeps its object alive
        self.parts: dict[int, Expansion] = {}

    def add_part(self, part: Expansion) -> None:
        """Add the expansion of a nested object, or merge it with the one that another clause made of it."""
        known = self.parts.setdefault(id(part.item), part)
        if known is not part:
            known.own += part.own
            known.functions += part.functions
            for nested in part.parts.values():
                known.add_part(nested)

    def leaves(self) -> Iterator[Leaf]:
        """Yield the arrays of this object and of those nested in it."""
        yield from self.own
        for part in self.parts.values():
            yield from part.leaves()

    def holds_tensors(self) -> bool:
        """Tell whether mapped attributes, of nested objects too, are tensors; known after `keep`."""
        return self.has_tensors or any(part.holds_tensors() for part in self.parts.values())

    def keep(self) -> Expansion:
        """Have `rebuilt` copy the present object, even if the program changes it later; return this.

        Raise `MapError` if no attribute holds a mapped array, because the body could not reach it; or if the mapper
        yields other elements of the copy than of the object.
        """
        attributes = attributes_of(self.item)
        partly: list[str] = []
        self.kept = _duplicate(self.item, {})
        for form in _FORMS:
            finder = _Finder(self, attributes, form)
            self.places = {}
            for name, value in attributes.items():
                place = finder.find(value, name)
                if place is not None:
                    self.places[name] = place
            partly = finder.partly
            if not partly or (finder.is_possible and self._is_named_alike()):
                return self
        raise MapError(
            f"the mapper of {type(self.item).__name__} maps parts of {', '.join(partly)}, but its expressions do not "
            "give the same elements in the body; write slices of the attribute, as in tofrom(o.data[1:-1]), or keep "
            "each part in an attribute of its own"
        )

    def _is_named_alike(self) -> bool:
        """Tell whether the mapper yields the same parts of a copy, as a body receives it, as of the object."""
        try:
            body = self.made(lambda host: host.view(_Corresponding), {})
            found = [
                part
                for function in self.functions
                for clause in _given(function, body)
                for part in (clause.items if isinstance(clause, MapClause) else host_items((clause,)))
                if isinstance(part, np.ndarray)
            ]
        except Exception as error:  # noqa: BLE001  # whatever it is, the expression does not give the part in the body
            pass_on(error)
            return False
        return len(found) == len(self.own) and all(
            isinstance(part, _Corresponding) and _is_same(part, leaf.array)
            for part, leaf in zip(found, self.own, strict=True)
        )

    def rebuilt(self, corresponding: Callable[[np.ndarray[Any, Any]], Any]) -> Any:
        """Return a shallow copy whose mapped attributes are ``corresponding`` of the host's arrays.

        Call `keep` first if nothing was kept; raise as it does.
        """
        if self.places is None:
            self.keep()
        return self.made(corresponding, {})

    def made(self, corresponding: Callable[[np.ndarray[Any, Any]], Any], copies: dict[int, Any]) -> Any:
        """Return the copy of the object for a body; ``copies`` has those already made, by the `id` of the place."""
        if id(self) not in copies:
            places = (self.places or {}).items()
            changed = {name: place.made(corresponding, copies) for name, place in places}
            copies[id(self)] = _duplicate(self.kept, changed)
        return copies[id(self)]


def _duplicate(item: Any, changed: dict[str, Any]) -> Any:
    """Return a shallow copy of an object with other values of attributes."""
    if isinstance(item, tuple) and hasattr(item, "_replace"):
        return item._replace(**changed)
    duplicate = copy.copy(item)
    in_dict: dict[str, Any] = getattr(duplicate, "__dict__", {})
    for name, value in changed.items():
        if name in in_dict:
            in_dict[name] = value
        else:
            object.__setattr__(duplicate, name, value)  # a frozen class refuses its own __setattr__
    return duplicate


class _MappedArray:
    """The place of an array that was mapped."""

    __slots__ = ("_host",)

    def __init__(self, host: np.ndarray[Any, Any]) -> None:
        self._host = host

    def made(self, corresponding: Callable[[np.ndarray[Any, Any]], Any], copies: dict[int, Any]) -> Any:
        return corresponding(self._host)


class _TensorPlace:
    """The place of a tensor that was mapped, which is a tensor in the copy, too."""

    __slots__ = ("_form", "_place")

    def __init__(self, place: _Place, tensor: Any, host: Host) -> None:
        self._place = place
        self._form = TensorForm(tensor, host)

    def made(self, corresponding: Callable[[Host], Any], copies: dict[int, Any]) -> Any:
        array = self._place.made(corresponding, copies)
        return array if isinstance(array, _Corresponding) else self._form(array)


class _PartialPlace:
    """The place of an array of which parts were mapped: of a `PartialArray` if ``is_array``, else a `PartialView`."""

    __slots__ = ("_hosts", "_is_array", "_name", "_owner", "_whole")

    def __init__(self, whole: Host, hosts: list[Host], name: str, owner: str, *, is_array: bool) -> None:
        self._whole = whole  # the attribute's array
        self._hosts = hosts  # its mapped parts
        self._name = name  # of the attribute, for messages
        self._owner = owner  # of the object's class, for messages
        self._is_array = is_array

    def made(self, corresponding: Callable[[Host], Any], copies: dict[int, Any]) -> Any:
        parts = Parts(self._whole, self._hosts, self._name, self._owner, corresponding)
        if self._is_array:
            return partial_array(parts.arrays[0], self._whole, parts)
        return PartialView(self._whole, parts)


class _Container:
    """The place of a container, and the places in it that are, or hold, mapped arrays."""

    __slots__ = ("_is_tuple", "_kept", "_places")

    def __init__(self, container: Any, places: dict[Any, _Place]) -> None:
        self._is_tuple = type(container) is tuple
        # the contents when the construct was encountered
        self._kept = list(container) if self._is_tuple else container.copy()
        self._places = places  # by index or key

    def made(self, corresponding: Callable[[np.ndarray[Any, Any]], Any], copies: dict[int, Any]) -> Any:
        if id(self) not in copies:
            own = self._kept.copy()
            for key, place in self._places.items():
                own[key] = place.made(corresponding, copies)
            copies[id(self)] = tuple(own) if self._is_tuple else own
        return copies[id(self)]


_Place: TypeAlias = "_MappedArray | _TensorPlace | _PartialPlace | _Container | Expansion"


class _Corresponding(np.ndarray[Any, Any]):
    """Stands for a device array in the copy that the mapper is called with; its views are of this class, too."""


def _is_same(one: Host, other: Host) -> bool:
    """Tell whether two arrays are the same elements in the same order."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return not one.size or (address_of(one) == address_of(other) and one.strides == other.strides)


class _Form(Enum):
    """The form in the copy of an attribute of which a part was mapped; in the order in which they are tried."""

    SECTION = "section"  # The array of the part
    ARRAY = "array"  # A `PartialArray`; if several parts were mapped, a `PartialView`
    VIEW = "view"  # A `PartialView`


_FORMS = tuple(_Form)  # to go through an enum takes three calls


class _Finder:
    """Finds the mapped arrays of one object in its attributes."""

    __slots__ = ("_containers", "_expansion", "_form", "_sections", "_unnamed", "is_possible", "partly")

    def __init__(self, expansion: Expansion, attributes: dict[str, Any], form: _Form) -> None:
        self._expansion = expansion
        self._form = form
        # attributes of which a part was mapped, and texts of mapped arrays in nested objects
        self.partly: list[str] = []
        self.is_possible = True  # whether all those attributes can have the form
        self._containers: dict[int, _Place | None] = {}  # by `id`
        # of the mapped arrays, in the order of `Expansion.own`
        self._sections = [array_section(leaf.array) for leaf in expansion.own]
        held = [array_section(array) for array in _arrays(list(attributes.values()))]
        # A mapped section that neither is an attribute nor holds one: it is a part of one.
        self._unnamed = {section for section in self._sections if not any(_holds(section, other) for other in held)}
        if self._unnamed:
            self._check_reachable(held)

    def _check_reachable(self, held: list[Section]) -> None:
        """Refuse an array that is in no attribute, nor mapped by a nested object: the body would see the host's."""
        nested = [array_section(leaf.array) for part in self._expansion.parts.values() for leaf in part.leaves()]
        for section, leaf in zip(self._sections, self._expansion.own, strict=True):
            if section not in self._unnamed or not section.run_nbytes or any(covers(other, section) for other in held):
                continue
            self.partly.append(label(leaf.array))
            if not any(_holds(section, other) or _holds(other, section) for other in nested):
                owner = type(self._expansion.item).__name__
                raise MapError(
                    f"the mapper of {owner} maps {label(leaf.array)}, but no attribute of the {owner} holds it, so the "
                    "body cannot reach it; map arrays of attributes, or of lists, tuples and dictionaries in them, and "
                    "give a nested object's class a mapper of its own"
                )

    def find(self, value: Any, name: str) -> _Place | None:
        """Return the place of the form of an attribute on the device; None if no part of it was mapped."""
        if isinstance(value, np.ndarray):
            if not value.dtype.hasobject:
                return self._find_array(value, name)
            return self._look_into(value, np.ndenumerate(value), name) if value.dtype == object else None
        part = self._expansion.parts.get(id(value))
        if part is not None:
            return part if part.places is not None else part.keep()
        host = held_host(value)
        if host is not value:
            place = self._find_array(host, name)
            if isinstance(place, _PartialPlace):
                # The body gets an array for a part of a tensor, which would compute with the integers.
                check_numbers(value, host, f"the mapper of {type(self._expansion.item).__name__}: a part of {name}")
            elif place is not None and is_tensor(value):
                self._expansion.has_tensors = True
                return _TensorPlace(place, value, host)
            return place
        if type(value) in (list, tuple):
            return self._look_into(value, enumerate(value), name)
        if type(value) is dict:
            return self._look_into(value, value.items(), name)
        return None

    def _look_into(self, container: Any, elements: Iterable[tuple[Any, Any]], name: str) -> _Place | None:
        """Return the place of a container; None where nothing in it was mapped."""
        # In a cycle, what leads back leads to the host's: a cycle of copies would keep device memory until the garbage
        # collector finds it, and it never finds one through an array of objects.
        if id(container) in self._containers:
            return self._containers[id(container)]
        self._containers[id(container)] = None
        places = {}
        for key, element in elements:
            place = self.find(element, name)
            if place is not None:
                places[key] = place
        if places:
            self._containers[id(container)] = _Container(container, places)
        return self._containers[id(container)]

    def _find_array(self, array: np.ndarray[Any, Any], name: str) -> _Place | None:
        section = array_section(array)
        if any(_holds(mapped, section) for mapped in self._sections):
            return _MappedArray(array)
        start, end = section[1], section.end if section[2] else section[1] + section[3]
        inside = {
            part: leaf.array
            for part, leaf in zip(self._sections, self._expansion.own, strict=True)
            if start <= part[1] <= end and _lies_in(part, leaf.array, section, array)
        }
        if not inside:
            return None
        self.partly.append(name)
        hosts = list(inside.values())
        if self._form is not _Form.SECTION:
            is_array = self._form is _Form.ARRAY and len(hosts) == 1
            return _PartialPlace(array, hosts, name, type(self._expansion.item).__name__, is_array=is_array)
        unnamed = [view for part, view in inside.items() if part in self._unnamed]
        self.is_possible = self.is_possible and len(unnamed) < 2
        return _MappedArray(unnamed[0]) if unnamed else None  # None: another attribute is the part


def _lies_in(part: Section, view: Host, section: Section, array: Host) -> bool:
    """Tell whether a mapped part lies in an array; one without elements does if it is a view of the same memory."""
    return covers(section, part) if part.run_nbytes else _owner(view) is _owner(array)


def _owner(array: Host) -> object:
    return array if array.base is None else array.base


def _holds(outer: Section, inner: Section) -> bool:
    return outer == inner or bool(inner.run_nbytes and covers(outer, inner))


def _arrays(values: list[Any], seen: set[int] | None = None) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the arrays among values, and in the lists, tuples and dictionaries among them, each of those once."""
    seen = set() if seen is None else seen
    for held in values:
        value = held_host(held)  # a view of its own for each
        if isinstance(value, np.ndarray) or type(value) in (list, tuple, dict):
            if id(held) in seen:
                continue
            seen.add(id(held))
        if isinstance(value, np.ndarray):
            if not value.dtype.hasobject:
                yield value
            elif value.dtype == object:
                yield from _arrays(value.ravel().tolist(), seen)
        elif type(value) in (list, tuple):
            yield from _arrays(list(value), seen)
        elif type(value) is dict:
            yield from _arrays(list(value.values()), seen)
