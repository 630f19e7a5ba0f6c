"""The implicit maps of a loop's target task: the loop's use of an array decides its map type.

An array that the loop only reads is ``to``, one of which it provably writes every element and reads none is ``from``,
others are ``tofrom``. Views of one storage are mapped alike. No construct may map views that overlap in part, so the
device allocates the rows, or the run of bytes, that hold them. If they are runs themselves, as ``x[1:]`` and ``x[:-1]``
are, that run is mapped. Others, as ``x[::2]`` and ``x[::3]`` are, are copied one by one: the call does not touch the
bytes between their elements.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from offload.arrays.items import address_of, array_section, is_device_array
from offload.arrays.sections import Section, locate_nbytes, overlaps
from offload.constructs.clauses.mapping import implicit_item
from offload.data.maptypes import MapType
from offload.errors import DirectiveError
from offload.loops.launch import check_writeable
from offload.loops.running.plan import check, numbers_of, plans_of
from offload.loops.running.preparation import Apart, mapped_view

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload.constructs.clauses.binding import Binding
    from offload.loops.running.plan import Numbers
    from offload.loops.running.specialise import LoopProgram, Specialisation


def map_found(program: LoopProgram, binding: Binding) -> Specialisation:
    """Enter in a call's binding how arrays in no clause are mapped; return the loop with its types.

    Raises `LoopError` for arguments of wrong types, and `ClauseError` if the loop writes to a read-only array.
    """
    given = list(binding.args)
    named = dict(binding.kwargs)
    for slot, section in binding.sections.items():
        if isinstance(slot, int):
            given[slot] = section
        else:
            named[slot] = section
    values = program.bound(tuple(given), named)
    spec = program.specialise(values)
    check_writeable(spec, values)
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    are_said = bool(binding.items)
    record = spec.calls.get(spec.key(values)) if len(arrays) == len(spec.given) else None
    kept: _Kept | None = None if record is None else record.map_types
    if kept is not None and kept.apart.holds({name: address_of(array) for name, array in arrays.items()}):
        for name, array in arrays.items():
            if not are_said or binding.find(array_section(array)) is None:
                is_written = spec.uses[name].is_changed
                kind = kept.types[name]
                binding.items.append(implicit_item(array, f"argument {name!r}", kind, is_written=is_written))
    else:
        _map_together(binding, spec, arrays, map_types(spec, values, is_call=True))
    if not are_said:  # then the types say it
        items = enumerate(binding.items)
        binding.changed = [n for n, item in items if item.map_type is not MapType.TO and not item.is_room]
    else:
        changed = [array_section(values[name]) for name in spec.changed if isinstance(values[name], np.ndarray)]
        binding.changed = [
            number
            for number, item in enumerate(binding.items)
            if any(overlaps(item.section, section) for section in changed)
        ]
    return spec


def _map_together(
    binding: Binding, spec: Specialisation, arrays: Mapping[str, np.ndarray[Any, Any]], types: Mapping[str, MapType]
) -> None:
    """Map arrays in no clause, those together that are parts of one run of bytes."""
    unmapped = {name: array for name, array in arrays.items() if binding.find(array_section(array)) is None}
    for group in _groups(unmapped):
        names = group.names
        text = f"argument{'s' * (len(names) > 1)} {', '.join(map(repr, names))}"
        is_written = any(spec.uses[name].is_changed for name in names)
        if all(not array_section(unmapped[name]).dims for name in names):
            kinds = {types[name] for name in names}
            kind = MapType.TOFROM if len(kinds) > 1 else kinds.pop()
            run = _run([unmapped[name] for name in names], group.held, is_written=is_written)
            binding.items.append(implicit_item(run, text, kind, is_written=is_written))
            continue
        if all(array_section(unmapped[name]) != group.held for name in names):
            room = implicit_item(_memory(group.held), text, MapType.ALLOC)
            room.is_room = True
            binding.items.append(room)
        for name in names:
            is_changed = spec.uses[name].is_changed
            one = implicit_item(unmapped[name], f"argument {name!r}", types[name], is_written=is_changed)
            binding.items.append(one)


class _Group(NamedTuple):
    """Arrays that overlap, be it by way of others, and the section in which each of them has a place."""

    names: list[str]
    held: Section  # contains all of them


def _groups(arrays: Mapping[str, np.ndarray[Any, Any]]) -> list[_Group]:
    """Return arrays in groups of which no two overlap."""
    groups: list[_Group] = []
    for name, array in arrays.items():
        group = _Group([name], array_section(array))
        while met := [other for other in groups if overlaps(other.held, group.held)]:
            names = [*[one for other in met for one in other.names], *group.names]
            groups = [other for other in groups if other not in met]
            group = _Group(names, _held([arrays[one] for one in names]))
        groups.append(group)
    return groups


def _held(arrays: Sequence[np.ndarray[Any, Any]]) -> Section:
    """Return the section of that array which holds all others, of rows that do, or of the run of bytes that does."""
    sections = [array_section(array) for array in arrays]
    space, low, end = sections[0].space, min(one.address for one in sections), max(one.end for one in sections)
    candidates = dict.fromkeys(sections)
    if len({section.dims for section in sections}) == 1 and (dims := sections[0].dims):
        run_nbytes = max(section.address + section.run_nbytes for section in sections) - low
        if run_nbytes < dims[-1][1]:  # else rows meet
            candidates[Section(space, low, dims, run_nbytes)] = None
    for section in candidates:
        if all(locate_nbytes(section, address_of(one), one.shape, one.strides, one.itemsize) for one in arrays):
            return section
    return Section(space, low, (), end - low)


def _run(arrays: Sequence[np.ndarray[Any, Any]], held: Section, *, is_written: bool) -> np.ndarray[Any, Any]:
    """Return the array of which all are parts: one of them, or that of the bytes.

    One of them is written to, if anything is, so that the memory can be.
    """
    for array in arrays:
        if array_section(array) == held and (array.flags.writeable or not is_written):
            return array
    return _memory(held)


def _memory(section: Section) -> np.ndarray[Any, Any]:
    """Return bytes, which the call's arguments keep, as an array."""
    memory = (ctypes.c_uint8 * (section.end - section.address)).from_address(section.address)
    span = np.frombuffer(memoryview(memory), np.uint8)
    if not section.dims:
        return span
    counts, strides = zip(*section.dims, strict=True)
    return np.lib.stride_tricks.as_strided(span, (*counts, section.run_nbytes), (*strides, 1))


def map_types(spec: Specialisation, values: Mapping[str, Any], *, is_call: bool = False) -> dict[str, MapType]:
    """Return the map type of each argument that is a host array.

    For a call refuse loops that must not run, and keep the types if they hold for all calls with such numbers.
    """
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    own = spec.own
    types = {}
    for name in arrays:
        if name in own:
            types[name] = {"private": MapType.ALLOC, "firstprivate": MapType.TO}.get(own[name], MapType.TOFROM)
        else:
            types[name] = MapType.TOFROM if spec.uses[name].is_changed else MapType.TO
    numbers, overwritten = _overwritten(spec, values, checks=is_call)
    for name in overwritten:
        if types[name] is MapType.TOFROM:  # else it has no elements
            types[name] = MapType.FROM
    if is_call and numbers is not None:
        kept = _Kept(Apart(spec, numbers, is_any=True), types.copy())
        if kept.apart.holds({name: view.address for name, view in numbers.views.items()}):
            numbers.record.map_types = kept
            return types
    sections = {name: array_section(array) for name, array in arrays.items()}
    for name, section in sections.items():  # views of one storage are mapped alike
        for other, holder in sections.items():
            if types[name] is not types[other] and overlaps(section, holder):
                types[name] = types[other] = MapType.TOFROM
    return types


def _overwritten(
    spec: Specialisation, values: Mapping[str, Any], *, checks: bool
) -> tuple[Numbers | None, frozenset[str]]:
    """Return the numbers, and the arrays of which the loop provably writes every element and reads none.

    Raises `LoopError` if iterations provably depend on each other.
    """
    nothing: tuple[None, frozenset[str]] = None, frozenset()
    if any(is_device_array(value) for value in values.values()):
        return nothing
    try:
        numbers = numbers_of(spec, values, mapped_view)
        plans = plans_of(spec, numbers)
        if checks:
            check(spec, plans, values)
    except DirectiveError:
        raise
    except (ArithmeticError, AssertionError, IndexError, ValueError):  # the task will raise it
        return nothing
    return numbers, plans[0].overwritten if len(plans) == 1 else frozenset()


class _Kept(NamedTuple):
    """Map types, for arrays that share no memory."""

    apart: Apart  # the types hold while arrays share no memory
    types: dict[str, MapType]  # of arrays in no clause, by name
