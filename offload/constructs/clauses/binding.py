"""The effect of the clauses on the arguments of a target region: a `Binding`, made by one pass over them.

`Binding.of` looks at each argument once, and keeps those that are no scalars. Clauses enter list items, sections,
objects and privates. `Binding.complete` decides about the rest for the place where the region runs. From then on
nothing changes the binding, and `offload.constructs.target_work.TargetWork` carries it out, as often as it is launched.
See docs/design/theory.md, "Bindings". OpenMP 5.2, 5.8.7 "defaultmap Clause", for arguments in no clause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from offload.arrays.containers import MOST_PARTS, leaves_of, parts_of
from offload.arrays.foreign import is_model, is_tensor, tensor_place
from offload.arrays.items import MAPPERS, SCALARS, dlpack_place, holder, is_device_array, is_foreign, label, mapper_of
from offload.arrays.sections import covers
from offload.constructs.clauses.mapping import expansion_of, implicit_item, object_items
from offload.data.maptypes import MapType
from offload.devices.retirement import refuse_retired
from offload.errors import DirectiveWarning, MapError
from offload.interrupts.frames import warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

    from offload.arrays.sections import Section
    from offload.constructs.clauses.mappers import Expansion
    from offload.data.items import MapItem
    from offload.runtime.place import DevicePlace

Slot: TypeAlias = int | str  # An argument of a call: its position, or the name that it was passed by

_NUMBERS = "biufcV"  # Kinds of dtypes that devices compute with


class Private(NamedTuple):
    """Storage of its own for an argument."""

    host: Any  # its shape and dtype; with ``is_first`` a C-ordered copy of the contents at the call
    is_first: bool  # the storage begins with the contents of ``host``

    def on_host(self) -> np.ndarray[Any, Any]:
        """Return the storage for a region that runs on the host."""
        return self.host.copy() if self.is_first else np.empty(self.host.shape, self.host.dtype)


class Binding:
    """The effect of a region's clauses on the arguments of a call.

    ``items`` come from clauses; the binding adds those that are mapped without a clause. In the fields a *slot* is the
    position or the name of an argument.
    """

    __slots__ = (
        "args", "arrays", "changed", "copies", "held", "items", "keeps_tensors", "key", "known", "kwargs", "objects",
        "others", "passed", "privates", "sections", "settled", "takes_device_arrays",
    )  # fmt: skip

    def __init__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], items: list[MapItem]) -> None:
        self.args = args  # the body's arguments in each slot that is in none of ``arrays``, ``copies`` and ``privates``
        self.kwargs = kwargs
        self.items = items  # the region maps them
        # (slot, host array or section, address, number of its item) for each array that the body gets from the device
        self.arrays: list[tuple[Slot, Any, int, int]] = []
        self.copies: list[tuple[Slot, Expansion]] = []  # (slot, Expansion) of objects of which the body gets a copy
        self.privates: dict[Slot, Private] = {}  # by slot, the arguments that get storage of their own
        # by slot, an array of which a clause names a section, or an argument in which clauses name contents
        self.sections: dict[Slot, Any] = {}
        # by the `id` of an object that a clause maps, the expansion by its mapper
        self.objects: dict[int, Expansion] = {}
        self.passed: list[tuple[Slot, Any]] = []  # (slot, value) of the arguments that are no scalars
        self.others: list[tuple[Slot, Any]] = []  # those of ``passed`` that are no plain host arrays
        # under which the work is to be remembered; None if it is not
        self.key: tuple[Any, ...] | None = None
        self.changed: list[int] | None = None  # the numbers of the items that the body writes to; None means all
        # the other results for such arguments, of a construct that remembers them with the binding
        self.known: Any = None
        self.settled: Any = None  # the results of the works of calls that share the binding; None at first
        self.keeps_tensors = False  # whether the body gets tensors on the device as they are, not as arrays of CuPy
        self.held: list[object] = []  # device arrays in containers, which the program may empty meanwhile
        self.takes_device_arrays = False  # whether there are device arrays among the arguments, or in containers

    @classmethod
    def of_nothing(cls, takes_device_arrays: bool) -> Self:
        """Return the binding of calls that map nothing."""
        binding = cls((), {}, [])
        binding.takes_device_arrays = takes_device_arrays
        return binding

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Self:
        """Return the binding of a call of which nothing is decided yet."""
        binding = cls(args, kwargs, [])
        passed, others = binding.passed, binding.others
        given: Iterable[tuple[Slot, Any]] = enumerate(args)
        for slot, value in [*given, *kwargs.items()] if kwargs else given:
            kind = value.__class__
            if kind not in SCALARS:
                passed.append((slot, value))
                if kind is not np.ndarray:
                    others.append((slot, value))
        return binding

    def with_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Self:
        """Return the binding of a call with other arguments, of which clauses say the same."""
        other = self.of(args, kwargs)
        other.items, other.objects = self.items.copy(), self.objects.copy()
        other.privates, other.sections, other.keeps_tensors = self.privates, self.sections, self.keeps_tensors
        return other

    def may_change(self) -> list[int]:
        """Return the numbers of the items that a body may write to: all, but read-only arrays that are mapped ``to``.

        OpenMP lets a body write to an array that is mapped ``to``, and if it is present the values stay.
        """
        if self.changed is not None:
            return self.changed
        items = enumerate(self.items)
        found = [n for n, item in items if item.map_type is not MapType.TO or item.host.flags.writeable]  # type: ignore[attr-defined]  # an array
        if len(found) == len(self.items):
            self.changed = found  # else an array may be made writeable before the next call
        return found

    def capture(self, slot: Slot, array: np.ndarray[Any, Any]) -> None:
        """Replace an argument by a copy of the array's present contents, or the section of it that a clause names."""
        if slot in self.sections:
            self.sections[slot] = self.sections[slot].copy()
            return
        copy = array.copy()
        self._replace(slot, copy)
        self.passed = [(other, copy if other == slot else value) for other, value in self.passed]

    # -- what no clause decides ----------------------------------------------------------------------
    def complete(self, place: DevicePlace) -> Self:
        """Decide about the arguments that are not private, for a region that runs at ``place``; return this.

        Raise `ClauseError` or `MapError` for an array that cannot be mapped, the errors of mappers, and those of
        `native_array`.
        """
        privates, sections = self.privates, self.sections
        for slot, value in self.passed:
            if privates and slot in privates:
                continue
            if isinstance(value, np.ndarray):
                self.add_array(slot, sections.get(slot, value) if sections else value)
            elif is_device_array(value) or is_foreign(value):
                self.takes_device_arrays = True
                native = native_array(sections.get(slot, value), place, keeps_tensors=self.keeps_tensors)
                if native is not value:
                    self._replace(slot, native)
            elif MAPPERS and self._add_object(slot, value):
                continue
            elif hasattr(value, "__dask_graph__") and not isinstance(value, type):
                warn(
                    f"argument {slot} is a Dask collection ({type(value).__name__}), which is not mapped, so the body "
                    "would compute on the host; pass the result of its .compute()",
                    DirectiveWarning,
                )
            elif is_model(value):
                self.takes_device_arrays = True  # its parameters
            elif parts_of(value) is not None:
                self._look_into(slot, value, is_named=slot in sections)
        return self

    def add_array(self, slot: Slot, array: np.ndarray[Any, Any]) -> None:
        """Have the body be given the device array of a host array; map it unless an item holds it."""
        items = self.items
        for number, item in enumerate(items):
            if item.host is array:
                self.arrays.append((slot, array, item.address, number))
                return
        implicit = implicit_item(array, f"argument {slot}")  # also where another holds it, for its storage
        held_by = self.find(implicit.section) if items else None
        if held_by is not None or implicit.map_type is MapType.TO:
            self.key = None  # its layout would have to be compared, or what may be written
        if held_by is None:
            held_by = len(items)
            items.append(implicit)
        self.arrays.append((slot, array, implicit.address, held_by))

    def find(self, section: Section) -> int | None:
        """Return the number of the item that holds the storage of an array."""
        for number, item in enumerate(self.items):
            if item.section == section or (section.run_nbytes and covers(item.section, section)):
                return number
        return None

    def _replace(self, slot: Slot, value: Any) -> None:
        """Replace an argument."""
        if isinstance(slot, int):
            self.args = (*self.args[:slot], value, *self.args[slot + 1 :])
        else:
            self.kwargs = {**self.kwargs, slot: value}

    def _look_into(self, slot: Slot, value: Any, *, is_named: bool) -> None:
        """Note the device arrays in a container, which the region follows and holds."""
        # Warn of what is the host's, unless a clause names what the container holds.
        on_host = None
        for part in leaves_of(value, MOST_PARTS):
            if mapper_of(part) is None and (is_device_array(part) or is_foreign(part)):
                self.held.append(part)
                self.takes_device_arrays = True
            elif on_host is None and (not isinstance(part, np.ndarray) or (part.size and part.dtype.kind in _NUMBERS)):
                on_host = part
        if on_host is not None and not is_named:
            warn(
                f"argument {slot}, a {type(value).__name__}, holds the host array {label(on_host):.60}; arrays inside "
                "other objects are not mapped, so the body would compute on the host; pass each array as an argument "
                "of its own, or give the class of the object a mapper (declare_mapper)",
                DirectiveWarning,
            )

    def _add_object(self, slot: Slot, value: Any) -> bool:
        """Note an argument that has a mapper, and map its arrays unless a clause or an argument before it does.

        Return whether it has one.
        """
        known = (expansion for _, expansion in self.copies if expansion.item is value)
        expansion = self.objects.get(id(value)) or next(known, None)
        if expansion is None and mapper_of(value) is not None:
            expansion = expansion_of(value, MapType.TOFROM, f"argument {slot}").keep()
            self.items += object_items(expansion)
        if expansion is not None:
            self.copies.append((slot, expansion))
        return expansion is not None

    def kept(self) -> Self:
        """Take objects that have a mapper as they are now, for a decision when the region runs; return this."""
        for slot, value in self.others if MAPPERS else ():
            if slot not in self.privates and id(value) not in self.objects and mapper_of(value) is not None:
                expansion = expansion_of(value, MapType.TOFROM, f"argument {slot}").keep()
                self.objects[id(value)] = expansion
                self.items += object_items(expansion)
        return self

    # -- the host as device --------------------------------------------------------------------------
    def on_host(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the body's arguments on the host: nothing is mapped, but private arguments are private.

        The errors are those that mappers would raise on a device.
        """
        copies: dict[int, Any] = {}  # an object given twice is one object in the body; the arguments keep ids valid

        def of(slot: Slot, value: Any) -> Any:
            if slot in self.privates:
                return self.privates[slot].on_host()
            if MAPPERS and (id(value) in self.objects or mapper_of(value) is not None):
                if id(value) not in copies:
                    expansion = self.objects.get(id(value)) or expansion_of(value, MapType.TOFROM, f"argument {slot}")
                    copies[id(value)] = expansion.rebuilt(lambda host: host)  # the sections and copies of a device
                return copies[id(value)]
            return self.sections.get(slot, value)

        return (
            tuple([of(slot, value) for slot, value in enumerate(self.args)]),
            {name: of(name, value) for name, value in self.kwargs.items()},
        )


def is_at(place: DevicePlace, value: Any) -> bool:
    """Tell whether a device array, of another library's too, is on the device of a place."""
    if is_tensor(value):
        return place.device.space == tensor_place(value)
    if hasattr(value, "__dlpack_device__"):  # no view is made, which may order streams
        return place.device.space == dlpack_place(value)
    return place.device.as_array(value) is not None


def native_array(value: Any, place: DevicePlace, *, keeps_tensors: bool = False) -> Any:
    """Return a device array as the array of the place's device: itself, or a view of another library's.

    A tensor is returned as it is with ``keeps_tensors``. Raise `MapError` if the array is on another device, and
    `RegionClosedError` if its storage has been freed.
    """
    device = place.device
    if keeps_tensors and is_tensor(value) and is_at(place, value):
        return value
    array = device.as_array(value)
    if array is None:
        where = holder(value)
        if where == device.name:
            where += " of another runtime"
        raise MapError(
            f"device array {label(value):.60} is on {where}, not on device {device.number} of this runtime "
            f"({device.name}); run the region where the array is, or copy it with target_memcpy"
        )
    refuse_retired(device, array)
    return array
