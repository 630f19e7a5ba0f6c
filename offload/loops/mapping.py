"""What a loop's target task maps for arrays in no clause: what the loop does with them says it.

An array that the loop only reads is ``to``, one of which it provably writes every element and reads none is ``from``,
others are ``tofrom``. Views of one storage are mapped alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import array_section, is_device_array
from offload.arrays.sections import overlaps
from offload.constructs.clauses.mapping import implicit_item
from offload.data.maptypes import MapType
from offload.errors import DirectiveError
from offload.loops.launch import check_writeable, mapped_view
from offload.loops.plan import check, numbers_of, plans_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.constructs.clauses.binding import Binding
    from offload.loops.specialise import LoopProgram, Specialisation


def map_found(program: LoopProgram, binding: Binding) -> Specialisation:
    """Enter in the binding of a call how arrays in no clause are mapped; return the loop with its types.

    Raises
    ------
    LoopError
        What is wrong with arguments of such types.
    ClauseError
        The loop writes to an array that cannot be written.
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
    types = map_types(spec, values, checks=True)
    for name, value in values.items():
        if isinstance(value, np.ndarray) and binding.find(array_section(value)) is None:
            binding.items.append(implicit_item(value, f"argument {name!r}", types[name]))
    return spec


def map_types(spec: Specialisation, values: Mapping[str, Any], *, checks: bool = False) -> dict[str, MapType]:
    """Return the map type of each argument that is a host array; if it ``checks``, refuse loops as a call does."""
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    own = spec.own
    types = {}
    for name in arrays:
        if name in own:
            types[name] = {"private": MapType.ALLOC, "firstprivate": MapType.TO}.get(own[name], MapType.TOFROM)
        else:
            types[name] = MapType.TOFROM if spec.uses[name].is_changed else MapType.TO
    for name in _overwritten(spec, values, checks=checks):
        types[name] = MapType.FROM
    sections = {name: array_section(array) for name, array in arrays.items()}
    for name, section in sections.items():  # views of one storage are mapped alike
        for other, holder in sections.items():
            if types[name] is not types[other] and overlaps(section, holder):
                types[name] = types[other] = MapType.TOFROM
    return types


def _overwritten(spec: Specialisation, values: Mapping[str, Any], *, checks: bool) -> frozenset[str]:
    """Return the arrays of which the loop provably writes every element and reads none.

    Raises
    ------
    LoopError
        Iterations provably depend on each other.
    """
    if any(is_device_array(value) for value in values.values()):
        return frozenset()
    try:
        plans = plans_of(spec, numbers_of(spec, values, mapped_view))
        if checks:
            check(spec, plans)
    except DirectiveError:
        raise
    except (ArithmeticError, AssertionError, IndexError, ValueError):  # the task will raise it
        return frozenset()
    return plans[0].overwritten if len(plans) == 1 else frozenset()
