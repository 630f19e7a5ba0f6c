"""Calls of speculative loops that run on the host, on the program's own arrays, without mapping anything.

A loop that runs in order, or whose races the host wins, should not pay for copies to a device. `SpeculativeWork`
decides that when the call's task begins. All arrays must be the host's and absent from the device, and be mapped as the
loop uses them; otherwise the call maps as any other.

The first call is profiled here. A short loop is profiled completely, on the program's own arrays. Of a longer one, only
the beginning is, without effects (`tried`); a dependence there makes the call run in order.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from offload.constructs.target_work import TargetWork
from offload.data.maptypes import MapType
from offload.errors import DirectiveError
from offload.loops.running.ordered_runs import run_in_order
from offload.loops.running.plan import numbers_of, plans_of
from offload.loops.running.preparation import mapped_view
from offload.loops.speculative.hostside import reach
from offload.loops.speculative.profiles import is_short, memory_of, profiled, tried
from offload.loops.speculative.speculation import FIRST
from offload.loops.speculative.verdict_memory import history_of, note_time, tell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.devices.streams import Lane
    from offload.loops.running.memo import CallRecord
    from offload.loops.running.specialise import Specialisation
    from offload.loops.speculative.verdict_memory import Memory
    from offload.runtime.launch import DeviceTask
    from offload.runtime.place import DevicePlace
    from offload.runtime.works import Launch


class HostChoice(NamedTuple):
    """The side on which a call runs."""

    on_host: bool  # on the program's own arrays
    is_first: bool = False  # it has been profiled, and nothing was known before


class SpeculativeWork(TargetWork):
    """The target region of a speculative loop: it maps nothing where the loop is to run on the program's arrays."""

    __slots__ = ()

    blocks = True

    def mark(self, launch: Launch) -> None:
        launch.launches_inline = False

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        if self.plan is not None:  # its arrays are present
            super().begin(launch, place, lane, staged)
            return
        launcher: Any = launch.body
        values = launcher.program.bound(tuple(launch.args), launch.kwargs or {})
        spec = launcher.specialisation
        way = (
            way_of(spec, values)
            if spec is not None and self._may_stay(spec, values, place)
            else HostChoice(on_host=False)
        )
        launcher.is_first = way.is_first
        if not way.on_host:
            super().begin(launch, place, lane, staged)

    def _may_stay(self, spec: Specialisation, values: Mapping[str, Any], place: DevicePlace) -> bool:
        """Tell whether nobody sees if the loop works on the program's own arrays."""
        binding = self.binding
        if binding.privates or binding.copies or binding.sections:
            return False
        if not all(isinstance(values[name], np.ndarray) for name in spec.given):
            return False
        parameters = spec.program.parameters
        for slot, _, _, number in binding.arrays:
            item, name = binding.items[number], slot if isinstance(slot, str) else parameters[slot]
            if item.always or item.present or item.if_present or item.zeroes:
                return False
            kinds = (MapType.FROM, MapType.TOFROM) if name in spec.changed else (MapType.TO, MapType.TOFROM)
            if item.map_type not in kinds:
                return False
        with place.lock:
            return not any(any(place.table.search(item.section)) for item in binding.items)


def way_of(spec: Specialisation, values: Mapping[str, Any]) -> HostChoice:
    """Return where a call with host arrays that are not present runs, as far as is known before it."""
    words = spec.program.words
    try:
        numbers = numbers_of(spec, values, mapped_view)
        plans = plans_of(spec, numbers)
    except (ArithmeticError, AssertionError, DirectiveError, IndexError, ValueError):
        return HostChoice(on_host=False)  # what is wrong is said where it always is
    verdicts = {plan.verdict.verdict for plan in plans}
    if verdicts == {"parallel"} or not all(plan.is_sound for plan in plans):
        return HostChoice(on_host=False)
    if len(plans) > 1 or "sequential" in verdicts:
        return HostChoice(on_host=True)
    if words.speculate == "always":
        return HostChoice(on_host=False)
    memory = memory_of(spec)
    with spec.lock:
        if memory.is_sequential:
            return HostChoice(on_host=True)
        is_first = memory.profile is None
        history = history_of(numbers.record)
    if is_first and is_short(numbers, plans[0]):
        return HostChoice(on_host=True)  # on which all of it is profiled
    if is_first or (history.host_s is None and not history.n_races):
        found = tried(spec, values, numbers, plans[0], is_first=is_first)
        if found is None:
            return HostChoice(on_host=True, is_first=is_first)
        history = found
    return HostChoice(history.is_hosts, is_first)


def on_own_arrays(
    spec: Specialisation, values: Mapping[str, Any], task: DeviceTask, *, is_first: bool
) -> dict[str, Any]:
    """Carry out a call for which `SpeculativeWork` has mapped nothing; return the scalars that come out.

    ``is_first``: it has been profiled. Raises as the serial program does; its writes until then stay.
    """
    lane: Any = task.lane
    reach(task.place.device, lane.stream)  # what the task follows
    numbers = numbers_of(spec, values, mapped_view)
    plans = plans_of(spec, numbers)
    memory = memory_of(spec)
    is_unknown = len(plans) == 1 and plans[0].verdict.verdict == "unknown"
    if is_unknown and memory.profile is None and spec.program.words.speculate != "always":
        tell(task, memory, "host", f"in order, profiled: {FIRST}")
        return profiled(spec, numbers, plans[0], {name: values[name] for name in spec.given}, memory)
    record = numbers.record if is_unknown and not memory.is_sequential else None
    if is_first:
        tell(task, memory, "host", f"in order, profiled: {FIRST}")
    else:
        tell(task, memory, "host", f"in order, on the program's own arrays: {_why(record)}")
    numbers.record.stays = spec.program.has_stayed = True
    return stayed(spec, values, memory, record)


def _why(record: CallRecord | None) -> str:
    if record is None:
        return "its iterations depend on each other"
    return "no device is as fast" if history_of(record).winner is None else "the host keeps winning"


def stayed(
    spec: Specialisation, values: Mapping[str, Any], memory: Memory, record: CallRecord | None
) -> dict[str, Any]:
    """Run in order on the program's own arrays. Raises as above.

    Count the call among those that the host had alone, in the record of its numbers if there is one.
    """
    memory.last = "host"
    begun_s = time.perf_counter()
    found = run_in_order(spec, values)
    host_s = time.perf_counter() - begun_s
    if record is not None:
        note_time(spec, record, lambda history: history.stayed(host_s))
    return found
