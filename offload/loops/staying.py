"""The short way of a call that stays on the program's own arrays, as one before it has: a task of the host.

A loop that runs in order, or whose races the host keeps winning, may be cheap; a task of a device, with a lane, waits
and a pass over its list items, would cost more than the loop. Such a call has no clauses that map or order, waits, and
finds its arrays absent; what tells it from others is known (`offload.loops.speculative.unmapped`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import SCALARS, array_section
from offload.loops.launch import check_writeable, outcome
from offload.loops.speculative.remembered import numbers_in
from offload.loops.speculative.unmapped import stayed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.loops.running.specialise import LoopProgram, Specialisation
    from offload.loops.speculative.attempts import Memory
    from offload.runtime.place import DevicePlace


def staying(program: LoopProgram, args: tuple[Any, ...], place: DevicePlace) -> Staying | None:
    """Return the body of a call that stays on the program's own arrays, as one before it has; None where that is open.

    The call waits, follows nothing, and has no clauses that map.
    """
    if not all(value.__class__ is np.ndarray or value.__class__ in SCALARS for value in args):
        return None
    values = program.bound(args, {})
    spec = program.specialise(values)
    memory: Memory | None = spec.speculation
    if memory is None or not memory.stays:
        return None
    arrays = [values[name] for name in spec.given]
    race = memory.stays.get(numbers_in(spec, values))
    if race is None:
        return None
    if not memory.is_sequential:
        history = memory.races.get(race)
        if history is None or not history.is_hosts:
            return None
    search = place.table.search
    with place.lock:
        if any(any(search(array_section(array))) for array in arrays):
            return None
    check_writeable(spec, values)
    return Staying(spec, values, memory, None if memory.is_sequential else race)


class Staying:
    """The body of such a call."""

    __slots__ = ("__wrapped__", "_memory", "_race", "_spec", "_values")

    def __init__(self, spec: Specialisation, values: Mapping[str, Any], memory: Memory, race: Any) -> None:
        self.__wrapped__ = spec.program.function
        self._spec, self._values, self._memory, self._race = spec, values, memory, race

    def __call__(self, *_args: Any) -> Any:
        found = stayed(self._spec, self._values, self._memory, self._race)
        return outcome(self._spec, found) if self._spec.typed.function.returns else None
