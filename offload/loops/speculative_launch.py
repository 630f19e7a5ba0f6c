"""Calls of loops that speculate: bodies of tasks that decide where the loop runs, and how.

A loop that runs in order, or whose races the host keeps winning, may be cheap. A device task, with a lane, waits and a
pass over its list items, would cost more than the loop. So a call that stays on the program's own arrays, as one before
it has, is a task of the host (`HostCall`). It has no clauses that map or order, waits, and finds its arrays absent.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import SCALARS, array_section
from offload.loops.launch import (
    Launcher,
    check_writeable,
    enqueue,
    noted_on_device,
    noted_on_host,
    outcome,
    outcome_of,
    run_on_host,
    with_first_values,
)
from offload.loops.running.ordered_runs import run_in_order
from offload.loops.running.plan import check, numbers_of, plans_of
from offload.loops.running.preparation import described
from offload.loops.speculative import several
from offload.loops.speculative.host_work import SpeculativeWork, on_own_arrays, stayed
from offload.loops.speculative.speculation import PLAIN, decided
from offload.loops.speculative.verdict_memory import Remembered, history_of
from offload.tasks import hooked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload.loops.launch import FinishedRun
    from offload.loops.running.memo import CallRecord
    from offload.loops.running.specialise import LoopProgram, Specialisation
    from offload.loops.speculative.strategies import Strategy
    from offload.loops.speculative.verdict_memory import Memory
    from offload.runtime.launch import DeviceTask
    from offload.runtime.place import DevicePlace


__all__ = ["HostCall", "SpeculativeLauncher", "SpeculativeWork", "host_call"]


class SpeculativeLauncher(Launcher):
    """The body of a speculative loop's task."""

    __slots__ = ("is_first", "strategy")

    why_not_captured = "may race, and is decided at each replay"

    def __init__(self, program: LoopProgram, *, is_alone: bool = False) -> None:
        super().__init__(program, is_alone=is_alone)
        self.is_first = False  # it was profiled when its task began
        self.strategy: Strategy | None = None  # of a call with several nests, if it was chosen when its task began

    def _on_host(self, spec: Specialisation, values: Mapping[str, Any]) -> Any:
        """Run the loop on the host's arrays, in parallel if that is proved, and return the function's result."""
        check_writeable(spec, values)
        given = with_first_values(spec, values)
        plans = plans_of(spec, numbers_of(spec, given, partial(described, None)))
        if all(plan.verdict.verdict == "parallel" for plan in plans):
            return run_on_host(spec, values)
        if several.is_several(spec):
            check(spec, plans)
            results = several.run_all_on_host(spec, given, several.proved_parallel(plans))
        else:
            results = run_in_order(spec, given)
        return outcome(spec, results) if spec.typed.function.returns else None

    def _on_device(
        self, spec: Specialisation, values: Mapping[str, Any], task: DeviceTask, args: tuple[Any, ...]
    ) -> None:
        """Decide about the loop, and carry it out or enqueue it."""
        is_own = any(isinstance(values[name], np.ndarray) for name in spec.given)
        if several.is_several(spec) and not is_own:
            self._each_nest(spec, values, task)
            return
        carry_out = on_own_arrays if is_own else decided
        found = carry_out(spec, values, task, is_first=self.is_first)
        if found == PLAIN or isinstance(found, Remembered):
            verdict = found if isinstance(found, Remembered) else None
            settles = verdict is not None and verdict.contents is not None
            runs = enqueue(spec, values, task, args, verdict=verdict, settles=settles)
            if runs or spec.typed.function.returns:
                task.leave(lambda _: outcome_of(spec, runs))
        elif spec.typed.function.returns:
            task.leave(lambda _: outcome(spec, found))

    def _each_nest(self, spec: Specialisation, values: Mapping[str, Any], task: DeviceTask) -> None:
        """Decide about each nest of several, and carry it out or enqueue it."""
        together = several.at_once(spec, values, task) if self.strategy is None else None
        if together is not None:
            runs = enqueue(together, values, task, (), settles=False)
            if runs or spec.typed.function.returns:
                task.leave(lambda _: outcome_of(spec, runs))
            return
        values = with_first_values(spec, values, task)

        def enqueued(nest: Specialisation, given: Mapping[str, Any]) -> Sequence[FinishedRun]:
            return enqueue(nest, given, task, (), settles=False)

        call = several.SeveralCall(spec, values, task, enqueued)
        call.carry_out(self.strategy)
        if call.runs or spec.typed.function.returns:
            task.leave(lambda _: outcome_of(spec, call.runs, call.results))


def host_call(program: LoopProgram, args: tuple[Any, ...], place: DevicePlace) -> HostCall | None:
    """Return the body of a call that stays on the program's own arrays, as one before it has; None where that is open.

    The call waits, follows nothing, and has no clauses that map.
    """
    if not all(value.__class__ is np.ndarray or value.__class__ in SCALARS for value in args):
        return None
    values = program.bound(args, {})
    spec = program.specialise(values)
    memory: Memory | None = spec.speculation
    record = spec.calls.get(spec.key(values))
    if memory is None or record is None or not record.stays:
        return None
    if several.is_several(spec):
        if not several.keeps_on_host(record):
            return None
    elif not memory.is_sequential and not history_of(record).is_hosts:
        return None
    arrays = [values[name] for name in spec.given]
    search = place.table.search
    with place.lock:
        if any(any(search(array_section(array))) for array in arrays):
            return None
    check_writeable(spec, values)
    is_noted = several.is_several(spec) or not memory.is_sequential
    return HostCall(spec, values, memory, record if is_noted else None)


class HostCall:
    """The body of such a call."""

    __slots__ = ("__wrapped__", "_memory", "_record", "_spec", "_values")

    def __init__(
        self, spec: Specialisation, values: Mapping[str, Any], memory: Memory, record: CallRecord | None
    ) -> None:
        self.__wrapped__ = spec.program.function
        self._spec, self._values, self._memory, self._record = spec, values, memory, record

    def __call__(self, *_args: Any) -> Any:
        if self._record is not None and several.is_several(self._spec):
            found = several.timed_on_host(self._spec, self._values, self._record)
        else:
            found = stayed(self._spec, self._values, self._memory, self._record)
        return outcome(self._spec, found) if self._spec.typed.function.returns else None


hooked.register(SpeculativeLauncher, "_on_device", noted_on_device, "sanitize")
hooked.register(SpeculativeLauncher, "_on_host", noted_on_host, "sanitize")
