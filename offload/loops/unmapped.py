"""Calls of speculative loops that run on the host, on the program's own arrays: nothing is mapped for them.

Theory of operation
-------------------
A loop that runs in order, because it has to or because the host keeps winning its races, is not to pay for copies to a
device and back. Whether that is so follows from what is remembered of the loop and from the numbers of the call, so it
is decided when the call's task begins, before anything is mapped (`SpeculativeWork`). It must not be seen: all arrays
are the host's, none of them is present, and each is mapped as the loop uses it. Where that is not so the call maps as
any other does, and works on copies of what the device has.

The first call of a loop, which is profiled, runs so as well.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offload.constructs.target_work import TargetWork
from offload.data.maptypes import MapType
from offload.errors import DirectiveError
from offload.loops.contest import History, start_of
from offload.loops.hostside import reach
from offload.loops.observe import copies_of
from offload.loops.ordered import ordered_runs, run_in_order
from offload.loops.plan import numbers_of, plans_of
from offload.loops.prepared import mapped_view
from offload.loops.race import race_key
from offload.loops.speculation import FIRST, memory_of, numbers_in, profiled, tell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.devices.streams import Lane
    from offload.loops.attempts import Memory
    from offload.loops.plan import NestPlan, Numbers
    from offload.loops.specialise import Specialisation
    from offload.runtime.launch import DeviceTask
    from offload.runtime.place import DevicePlace
    from offload.runtime.works import Launch


_SAMPLE_S: Final = 1e-3
"""How long the host is tried, of a loop of which nothing is known."""

_MOST: Final = 64
"""Calls that are known to stay on the host."""


class SpeculativeWork(TargetWork):
    """The target region of a speculative loop: it maps nothing where the loop is to run on the program's arrays."""

    __slots__ = ()

    blocks = True

    def begin(self, launch: Launch, place: DevicePlace, lane: Lane, staged: list[Any]) -> None:
        if self._known is not None and self._known.plan is not None:  # its arrays are present
            super().begin(launch, place, lane, staged)
            return
        launcher: Any = self.body
        values = launcher.program.bound(tuple(self.args), self.kwargs or {})
        spec = launcher.specialisation
        if spec is None or not self._may_stay(spec, values, place) or not goes_to_host(spec, values):
            super().begin(launch, place, lane, staged)

    def _may_stay(self, spec: Specialisation, values: Mapping[str, Any], place: DevicePlace) -> bool:
        """Tell whether nobody sees if the loop works on the program's own arrays."""
        binding = self._binding
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


def goes_to_host(spec: Specialisation, values: Mapping[str, Any]) -> bool:
    """Tell whether a call with host arrays that are not present runs on the host, as far as is known before it."""
    words = spec.program.words
    try:
        numbers = numbers_of(spec, values, mapped_view)
        plans = plans_of(spec, numbers)
    except (ArithmeticError, AssertionError, DirectiveError, IndexError, ValueError):
        return False  # what is wrong is said where it always is
    verdicts = {plan.verdict.verdict for plan in plans}
    if verdicts == {"parallel"} or not all(plan.is_sound for plan in plans):
        return False
    if len(plans) > 1 or "sequential" in verdicts:
        return True
    if words.speculate == "always":
        return False
    memory = memory_of(spec)
    key = race_key(spec, numbers)
    with spec.lock:
        if memory.is_sequential or memory.profile is None:
            return True
        history: History = memory.races.get(key, History())
    if history.host_s is None and not history.n_races:
        sampled_s = _sampled_s(spec, values, numbers, plans[0])
        with spec.lock:
            history = memory.time(key, host_s=sampled_s)
    return history.winner == "host" and not start_of(history).device


def _sampled_s(spec: Specialisation, values: Mapping[str, Any], numbers: Numbers, plan: NestPlan) -> float:
    """Return what the loop takes in order on the host, as a millisecond of it tells, on copies of what it writes."""
    arrays = copies_of(plan.nest, {name: values[name] for name in spec.given}, numbers.views)
    (run,) = ordered_runs(spec, {**values, **arrays})
    if not run.form.is_compiled:
        return math.inf
    run.run(0, 0)  # what is compiled once
    begun_s, done, size = time.perf_counter(), 0, 1
    while done < run.trips and not run.has_failed and time.perf_counter() - begun_s < _SAMPLE_S:
        end = min(done + size, run.trips)
        run.run(done, end)
        done, size = end, 4 * size
    return (time.perf_counter() - begun_s) * run.trips / max(done, 1)


def on_own_arrays(spec: Specialisation, values: Mapping[str, Any], task: DeviceTask) -> dict[str, Any]:
    """Carry out a call for which `SpeculativeWork` has mapped nothing; return the scalars that come out.

    Raises
    ------
    IndexError, ZeroDivisionError, AssertionError, ValueError
        As the serial program does; arrays hold what that has written.
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
    race = race_key(spec, numbers) if is_unknown and not memory.is_sequential else None
    why = "its iterations depend on each other" if race is None else "the host keeps winning"
    tell(task, memory, "host", f"in order, on the program's own arrays: {why}")
    with spec.lock:
        if len(memory.stays) >= _MOST:
            memory.stays.clear()
        memory.stays[numbers_in(spec, values)] = race_key(spec, numbers)
    return stayed(spec, values, memory, race)


def stayed(spec: Specialisation, values: Mapping[str, Any], memory: Memory, race: Any) -> dict[str, Any]:
    """Run in order on the program's own arrays; count the call among those that the host had alone. Raises as above."""
    memory.last = "host"
    begun_s = time.perf_counter()
    found = run_in_order(spec, values)
    host_s = time.perf_counter() - begun_s
    if race is not None:
        with spec.lock:
            history = memory.races.get(race)
            if history is not None:
                memory.races[race] = history.with_race(winner="host", raced=False, device_s=None, host_s=host_s)
    return found
