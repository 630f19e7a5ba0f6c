"""Calls of speculative functions with several nests: each nest is decided, and carried out, by itself.

A nest is a function of its own here (`Specialisation.of_nests`), with its own memory of calls. The decisions about it
are those of `speculation`. Nests follow each other on one lane. The device's arrays hold the state between two nests,
so a nest in order on the host fetches arrays and sends back those that it changes. Neighbours in order are one such
run. By `strategies`, nests in order may stay on the device instead, or all nests run on the host.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from offload.arrays.items import address_of
from offload.loops.emit.c_statements import can_fail
from offload.loops.running.arguments import results_of
from offload.loops.running.ordered_runs import run_in_order
from offload.loops.running.parallel_runs import run_in_parallel
from offload.loops.running.plan import check, numbers_of, plans_of
from offload.loops.running.preparation import apart_of, mapped_view, view_at
from offload.loops.speculative.hostside import HostSide, reach
from offload.loops.speculative.profiles import memory_of
from offload.loops.speculative.speculation import DEPENDENT, PLAIN, SEEN, decided, on_host
from offload.loops.speculative.strategies import Strategies
from offload.loops.speculative.verdict_memory import PROVED, Remembered, recalled, tell
from offload.loops.tree import ir
from offload.loops.tree.nodes import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from offload.devices.base import Device
    from offload.loops.proofs.numbers import Trips
    from offload.loops.running.memo import CallRecord
    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.preparation import Apart
    from offload.loops.running.specialise import Specialisation
    from offload.loops.speculative.strategies import Strategy
    from offload.runtime.launch import DeviceTask

    Results: TypeAlias = "dict[str, Any]"
    # Enqueues a nest, and returns those of its runs that are to be looked at.
    Enqueue: TypeAlias = "Callable[[Specialisation, Mapping[str, Any]], Sequence[Any]]"

# One thread of a GPU takes so long for a node, which may wait for memory.
_STEP_S: Final = 0.2e-6

# The kinds of records: of calls that map their arrays, and of calls that find them on the device.
_MAPPED: Final = ("strategies", "mapped")
_PRESENT: Final = ("strategies", "present")
# Of the arrays of such calls: whether they share memory, and if they do not, which nests are proved parallel.
_ON_HOST: Final = ("nests", "host")
# Of calls with arrays that are present: the same test, and which nests run in order on the device.
_ON_DEVICE: Final = ("nests", "device")


def is_several(spec: Specialisation) -> bool:
    """Tell whether a function has several nests."""
    return len(spec.typed.function.nests) > 1


def _nests(spec: Specialisation) -> list[Specialisation]:
    return [spec.of_nests(number, number + 1) for number in range(len(spec.typed.function.nests))]


def why_in_order(spec: Specialisation, plan: NestPlan) -> str:
    """Return why a nest certainly runs in order; empty if it may run in parallel. ``spec`` has this nest alone."""
    if plan.verdict.verdict == "sequential":
        return DEPENDENT
    is_remembered = spec.program.words.speculate != "always" and plan.verdict.verdict == "unknown"
    return SEEN if is_remembered and memory_of(spec).is_sequential else ""


# -- all nests on the host -------------------------------------------------------------------------------


def run_all_on_host(spec: Specialisation, values: Mapping[str, Any], are_parallel: Sequence[bool]) -> Results:
    """Run the nests on host arrays: on the host's threads if they are proved parallel, otherwise in order.

    Return the scalars that come out. Raises as the serial program does; its writes until then stay.
    """
    results: Results = {}
    for nest, is_parallel in zip(_nests(spec), are_parallel, strict=True):
        results |= results_of(run_in_parallel(nest, values)) if is_parallel else run_in_order(nest, values)
    return results


def proved_parallel(plans: Sequence[NestPlan]) -> tuple[bool, ...]:
    """Return for each nest whether its iterations are proved independent."""
    return tuple([plan.verdict.verdict == "parallel" for plan in plans])


def _tell_host(spec: Specialisation, plans: Sequence[NestPlan], task: DeviceTask) -> None:
    """Note that all nests run on the host, and how each of them does; tell the observers."""
    for nest, plan in zip(_nests(spec), plans, strict=True):
        is_parallel = plan.verdict.verdict == "parallel"
        why = PROVED if is_parallel else why_in_order(nest, plan) or "nothing is proved about its iterations"
        tell(task, memory_of(nest), "host", f"in {'parallel' if is_parallel else 'order'}, as all nests: {why}")


# -- calls that find no array on the device --------------------------------------------------------------


def strategy_of(spec: Specialisation, numbers: Numbers, plans: Sequence[NestPlan], device: Device) -> Strategy:
    """Return the strategy of a call with host arrays that are not present."""
    if all(map(why_in_order, _nests(spec), plans)):
        return "host"
    if spec.program.words.speculate == "always":
        return "each"
    known = strategies_of(numbers.record, _MAPPED)
    return known.next([*_candidates(spec, numbers, plans, known, device), "host"])


def keeps_on_host(record: CallRecord) -> bool:
    """Tell whether the next call with the numbers of a record is the host's, as the calls before it."""
    known = strategies_of(record, _MAPPED)
    tried = list(known.times)
    return "host" in tried and known.best(tried) == known.next(tried) == "host"


def on_own_arrays(spec: Specialisation, values: Mapping[str, Any], task: DeviceTask) -> Results:
    """Run all nests on the program's own arrays, and return the scalars that come out. Raises as `run_all_on_host`."""
    lane: Any = task.lane
    reach(task.place.device, lane.stream)  # what the task follows
    numbers = numbers_of(spec, values, mapped_view)
    plans = plans_of(spec, numbers)
    memory_of(spec)  # by which a later call is found to stay on the host
    numbers.record.stays = spec.program.has_stayed = True
    numbers.record.facts.keep(_ON_HOST, (apart_of(spec, numbers), proved_parallel(plans)))
    _tell_host(spec, plans, task)
    return timed_on_host(spec, values, numbers.record)


def timed_on_host(spec: Specialisation, values: Mapping[str, Any], record: CallRecord) -> Results:
    """Run all nests on host arrays, and note the time in the record of the call's numbers."""
    begun_s = time.perf_counter()
    known: tuple[Apart, tuple[bool, ...]] | None = record.facts.use(_ON_HOST)
    if known is not None and known[0].holds({name: address_of(values[name]) for name in spec.given}):
        are_parallel = known[1]
    else:  # arrays share memory, which the proofs follow from
        are_parallel = proved_parallel(plans_of(spec, numbers_of(spec, values, mapped_view)))
    found = run_all_on_host(spec, values, are_parallel)
    _note(spec, record, _MAPPED, "host", time.perf_counter() - begun_s)
    return found


# -- calls in a device task ------------------------------------------------------------------------------


def at_once(spec: Specialisation, values: Mapping[str, Any], task: DeviceTask) -> Specialisation | None:
    """Return the nests as they may be enqueued together, for a call whose arrays are on the device; None if not.

    Earlier calls have found each nest parallel, or have settled for running it in order on the device.
    """
    record = spec.calls.use(spec.key(values))
    kept: tuple[Apart, frozenset[int]] | None = None if record is None else record.facts.use(_ON_DEVICE)
    in_order = frozenset[int]()
    if record is not None and kept is not None:
        known, locate = strategies_of(record, _PRESENT), task.place.device.address
        tried = list(known.times)
        is_settled = known.best(tried) == known.next(tried) == "device"
        if is_settled and kept[0].holds({name: locate(values[name]) or 0 for name in spec.given}):
            in_order = kept[1]
    nests = _nests(spec)
    found = {number: recalled(nest, values, task) for number, nest in enumerate(nests) if number not in in_order}
    if None in found.values():
        return None
    for number, nest in enumerate(nests):
        one = found.get(number)
        if one is None:
            memory = memory_of(nest)
            tell(task, memory, "device", f"in order, in one thread: {SEEN if memory.is_sequential else DEPENDENT}")
        else:
            tell(task, one.memory, "device", f"in parallel: {one.why}")
    if record is None or not in_order:
        return spec
    _note(spec, record, _PRESENT, "device", strategies_of(record, _PRESENT).seconds("device"))
    return spec.of_nests(0, len(nests), in_order)


class SeveralCall:
    """A call in a device task, whose arrays are on the device."""

    def __init__(self, spec: Specialisation, values: Mapping[str, Any], task: DeviceTask, enqueue: Enqueue) -> None:
        self._spec, self._values, self._task, self._enqueue = spec, values, task, enqueue
        self.runs: list[Any] = []  # of nests on the device, which may not have passed yet
        self.results: Results = {}  # the scalars of nests that ran on the host
        self._numbers = numbers_of(spec, values, partial(view_at, task.place.device))
        self._plans = plans_of(spec, self._numbers)
        self._strategy: Strategy = "each"
        self._may_fail = False  # whether a nest on the device may find something wrong
        check(spec, self._plans)

    def carry_out(self, strategy: Strategy | None) -> None:
        """Carry out the nests, or enqueue them. Raises as the serial program does; its writes until then stay.

        The ``strategy`` was chosen before the call has mapped its arrays; None if it has not been.
        """
        spec, task, record = self._spec, self._task, self._numbers.record
        if strategy is not None:
            self._strategy = strategy
            self._each()
            if not task.predecessors:
                task.leave(partial(_noted, spec, record, strategy, task.start_s))
            return
        known = strategies_of(record, _PRESENT)
        candidates = _candidates(spec, self._numbers, self._plans, known, task.place.device)
        if any(map(why_in_order, _nests(spec), self._plans)):  # else nothing is quicker than the device
            candidates.append("host")
        if len(candidates) == 1 or spec.program.words.speculate == "always":
            self._each()
            return
        self._strategy = chosen = known.next(candidates)
        if chosen == "device" and not any(can_fail(plan.nest, dict(plan.variant.modes)) for plan in self._plans):
            in_order = [number for number, nest in enumerate(_nests(spec)) if why_in_order(nest, self._plans[number])]
            record.facts.keep(_ON_DEVICE, (apart_of(spec, self._numbers), frozenset(in_order)))
        is_timed = chosen != known.best(candidates)
        if is_timed:
            self._reach()
        begun_s = time.perf_counter()
        if chosen == "host":
            self.results |= on_host(task, spec, self._values, self._all_on_host)
        else:
            self._each()
        if is_timed:
            self._reach()
        _note(spec, record, _PRESENT, chosen, time.perf_counter() - begun_s if is_timed else known.seconds(chosen))

    def _all_on_host(self, arrays: Mapping[str, Any]) -> Results:
        _tell_host(self._spec, self._plans, self._task)
        return run_all_on_host(self._spec, {**self._values, **arrays}, proved_parallel(self._plans))

    def _each(self) -> None:
        """Run each nest by itself."""
        try:
            for first, end, why in self._stretches():
                if why:
                    self._carry_out_in_order(first, end)
                else:
                    self._carry_out(self._spec.of_nests(first, end), self._plans[first])
        except (ArithmeticError, AssertionError, IndexError, ValueError):
            # the task fails, and copies nothing back
            HostSide(self._task, self._spec, self._values).take_back()
            raise

    def _stretches(self) -> Iterator[tuple[int, int, str]]:
        """Yield nests, from one to before another, with why they run in order: neighbours are one stretch.

        The reason is empty for a nest, alone, that may run in parallel. Nests before it have been carried out.
        """
        first, last_why, where = 0, "", self._strategy
        for number, (nest, plan) in enumerate(zip(_nests(self._spec), self._plans, strict=True)):
            why = why_in_order(nest, plan)
            if why:
                memory, on_device = memory_of(nest), where == "device"
                text = f"in order, in one thread: {why}" if on_device else f"in order: {why}"
                tell(self._task, memory, "device" if on_device else "host", text)
                last_why = why
                continue
            if last_why:
                yield first, number, last_why
                last_why = ""
            yield number, number + 1, ""
            first = number + 1
        if last_why:
            yield first, len(self._plans), last_why

    def _carry_out_in_order(self, first: int, end: int) -> None:
        task, values = self._task, self._values
        self._finish()
        if self._strategy == "device":
            for number in range(first, end):
                self._launch(self._spec.of_nests(number, number + 1, frozenset({number})), (self._plans[number],))
                self._finish()  # else a nest would run after one that has failed
            return
        spec = self._spec.of_nests(first, end)
        self.results |= on_host(task, spec, values, lambda arrays: run_in_order(spec, {**values, **arrays}))

    def _carry_out(self, nest: Specialisation, plan: NestPlan) -> None:
        task, values = self._task, self._values
        if plan.variant.is_ordered:  # the program says so
            self._launch(nest, (plan,))
            return
        if plan.verdict.verdict != "parallel":
            self._finish()
        found = decided(nest, values, task, is_first=False)
        if found == PLAIN or isinstance(found, Remembered):
            self._launch(nest, (plan,))
        else:
            self.results |= found

    def _launch(self, nests: Specialisation, plans: Iterable[NestPlan]) -> None:
        """Enqueue nests on the device."""
        self._may_fail = self._may_fail or any(can_fail(plan.nest, dict(plan.variant.modes)) for plan in plans)
        self.runs += self._enqueue(nests, self._values)

    def _finish(self) -> None:
        """Wait for the nests on the device, and raise their error: the serial program ends there."""
        if self._may_fail:
            self._reach()
            for run in self.runs:
                failure = run.failure()
                if failure is not None:
                    raise failure

    def _reach(self) -> None:
        lane: Any = self._task.lane
        reach(self._task.place.device, lane.stream)


# -- times -----------------------------------------------------------------------------------------------


def _candidates(
    spec: Specialisation, numbers: Numbers, plans: Sequence[NestPlan], known: Strategies, device: Device
) -> list[Strategy]:
    """Return the strategies with the device that may be the quickest; ``known`` has the times so far."""
    whys = list(map(why_in_order, _nests(spec), plans))
    if not any(whys) or known.best(["each"]) is None:
        return ["each"]
    kernels = device.kernels
    if kernels is None or kernels.dialect != "c":  # whose thread is as quick as the host's
        steps = [_steps(plan.nest, axes) for plan, axes, why in zip(plans, numbers.axes, whys, strict=True) if why]
        if sum(steps) * _STEP_S > known.seconds("each"):
            return ["each"]
    return ["each", "device"]


def _steps(nest: ir.Nest, axes: Sequence[Trips]) -> float:
    """Return how many nodes the iterations of a nest evaluate; infinity if inner loops decide that."""
    nodes = list(walk(*nest.body))
    if any(isinstance(node, ir.For | ir.While) for node in nodes):
        return math.inf
    return math.prod(axis.trips for axis in axes) * len(nodes)


def strategies_of(record: CallRecord, key: tuple[str, str]) -> Strategies:
    """Return the times of calls with the numbers of a record."""
    found: Strategies | None = record.facts.use(key)
    return found or Strategies()


def _note(spec: Specialisation, record: CallRecord, key: tuple[str, str], strategy: Strategy, seconds: float) -> None:
    with spec.lock:
        record.facts.keep(key, strategies_of(record, key).after(strategy, seconds))


def _noted(spec: Specialisation, record: CallRecord, strategy: Strategy, start_s: float, value: Any) -> Any:
    """Note the time of a call that has mapped its arrays, when it has passed; return the task's value."""
    _note(spec, record, _MAPPED, strategy, time.perf_counter() - start_s)
    return value
