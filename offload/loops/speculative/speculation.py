"""Calls of loops that are only probably parallel: the decisions.

All of this is the body of the task: it waits for its stream. A loop that runs in order does so on the host, on copies
of the device's arrays, which are sent back. Only a loop that a verdict has let through is ordinary device work.
`_SpeculativeCall.decided` has the order in which a call is decided.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal

from offload.errors import DeviceMemoryError, SpeculationWarning
from offload.interrupts.frames import warn
from offload.loops.proofs.bounds import LOOK_LIMITS
from offload.loops.proofs.reports import iteration, trips_at
from offload.loops.running.ordered_runs import run_in_order
from offload.loops.running.plan import check, numbers_of, ranged
from offload.loops.running.preparation import apart_of, view_at, where_on
from offload.loops.speculative.hostside import HostSide
from offload.loops.speculative.log_runs import LoggedRun, Violation, logged_loop
from offload.loops.speculative.profiles import keep_profile, looked, memory_of
from offload.loops.speculative.race import race
from offload.loops.speculative.verdict_memory import (
    PROVED,
    REMEMBERED,
    Attempt,
    Remembered,
    VerdictBasis,
    contents_of,
    key_from,
    note_time,
    remembered,
    tell,
)
from offload.loops.watched.exchange_log import FUEL, OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offload.loops.running.memo import CallRecord
    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.specialise import Specialisation
    from offload.runtime.launch import DeviceTask

Results = dict[str, Any]

FIRST: Final = "it is the first call with arguments of such types"
DEPENDENT: Final = "its iterations are proved to depend on each other"
SEEN: Final = "its iterations were seen to depend on each other"
# What `decided` returns where the loop is to run as any other does.
PLAIN: Final = "plain"

_NO_MEMORY: Final = "there is no memory for its log"


def decided(
    spec: Specialisation, values: Mapping[str, Any], task: DeviceTask, *, is_first: bool
) -> Results | Literal["plain"] | Remembered:
    """Decide about a call in a device task, and carry it out unless it may run as any other loop.

    Return the scalars that come out; or, for a loop that is to run as any other, `PLAIN` or the record that allows it.
    ``is_first``: it was profiled when its task began, and nothing was known before. Raises as the serial program does;
    its writes until then stay.
    """
    return remembered(spec, values, task) or _SpeculativeCall(spec, values, task, is_first=is_first).decided()


class _SpeculativeCall:
    """A call of a speculative loop in a device task."""

    def __init__(self, spec: Specialisation, values: Mapping[str, Any], task: DeviceTask, *, is_first: bool) -> None:
        self.spec, self.values, self.task, self.is_first = spec, values, task, is_first
        self.device: Any = task.place.device  # whose stream the task is on
        self.stream: Any = task.lane.stream  # type: ignore[union-attr]  # the body has one
        where = where_on(self.device, spec.program)
        self.numbers: Numbers = numbers_of(spec, values, partial(view_at, self.device))  # of the call
        arrays = {name: values[name] for name in spec.given}
        # for these numbers, and for elements where that is worth a look
        self.plans = ranged(spec, self.numbers, where.looks(spec, arrays, task))
        check(spec, self.plans)
        self.plan: NestPlan = self.plans[0]  # of the one nest of a loop that may speculate
        self.addresses = {name: view.address for name, view in self.numbers.views.items()}  # of arrays on the device
        self.memory = memory_of(spec)  # of all calls of the loop
        self.key = self._key()  # what a verdict follows from; None: nothing is remembered

    def decided(self) -> Results | Literal["plain"]:
        """Decide about the call, and carry it out unless it may run as any other loop; see `decided`."""
        mode = self.spec.program.words.speculate
        verdicts = {plan.verdict.verdict for plan in self.plans}
        # A proof decides, whichever way it goes.
        if verdicts == {"parallel"}:
            return self._plain(PROVED)
        if "sequential" in verdicts:
            return self._in_order(DEPENDENT)
        # Without memory each call is raced with its log.
        if mode == "always":
            return self._attempt()
        # What earlier calls have found comes next: of such a call, then of any call.
        if self.numbers.record.facts.use(self.key):
            return self._plain(REMEMBERED)
        if self.memory.is_sequential:
            return self._in_order(SEEN)
        # The first call is profiled: it runs in order and sees what depends. A short loop is done with that.
        if self.memory.profile is None:
            self.is_first = True
            found = self._profiled()
            if found is not None:
                return found
        # A kernel of the address slice fills the log, and the loop runs after the verdict, in parallel or in order. A
        # loop that computes its addresses has no slice, and is raced: it runs with its log, while what it writes is
        # kept out of reach.
        inspected = self._inspected()
        return self._attempt() if inspected is None else inspected

    # -- what becomes of it ------------------------------------------------------------------------------

    def _plain(self, why: str) -> Literal["plain"]:
        self._note("device", f"in parallel: {why}")
        return "plain"

    def _in_order(self, why: str) -> Results:
        self._note("host", f"in order: {why}")
        spec, values = self.spec, self.values
        return on_host(self.task, spec, values, lambda arrays: run_in_order(spec, {**values, **arrays}))

    def _profiled(self) -> Results | None:
        """Run the loop in order, and keep the findings; None if profiling is to stop, with nothing changed."""
        spec, numbers, plan, memory = self.spec, self.numbers, self.plan, self.memory
        if sum(self.values[name].nbytes for name in spec.given) > LOOK_LIMITS.fetched_nbytes:
            keep_profile(spec, numbers, plan, memory, None)
            return None
        side = HostSide(self.task, spec, self.values)
        side.wait()
        arrays = side.private()
        seen = looked(spec, numbers, plan, arrays, memory)
        if seen.found:
            return self._in_order(f"profiled, {FIRST}, and its iterations depend on each other")
        if not seen.is_whole:
            return None
        self._note("host", f"in order, profiled: {FIRST}")
        if seen.failure is not None:
            side.leave(arrays)
            raise seen.failure
        side.commit(arrays)
        with spec.lock:
            if not memory.is_sequential:
                self._keep()
        return seen.results

    def _inspected(self) -> Results | Literal["plain"] | None:
        """Look at the addresses, and run the loop in parallel or in order; None if that cannot be done."""
        loop = logged_loop(self.spec, self.numbers, self.plan, is_inspector=True)
        if loop is None:
            return None
        try:
            run = LoggedRun(loop, self.values, self.addresses, self.task)
        except DeviceMemoryError:
            return self._in_order(_NO_MEMORY)
        try:
            run.launch(0, run.trips)
            run.finish()
            self._reach()
            if run.is_open:
                run.settle()
                self._reach()
            found = run.found()  # before it is closed: runs are let go of then
        except DeviceMemoryError:
            return self._in_order(_NO_MEMORY)
        finally:
            run.close()
        if found is None:
            self._keep()
            plan, is_new, loop.is_new = self.task.plan, loop.is_new, False
            is_timed = plan is not None and plan.created and self.spec.whole is None
            if is_timed and not (self.task.predecessors or is_new):
                self.task.leave(partial(_timed, self.spec, self.numbers.record, self.task.start_s))
            return self._plain("its iterations are independent, as its addresses say")
        results = self._in_order("its iterations depend on each other, or fail, as its addresses say")
        self._met(found)  # unless the serial program fails as well: that is no dependence
        return results

    def _reach(self) -> None:
        self.stream.synchronize()
        self.device.check(self.stream)

    def _attempt(self) -> Results:
        """Run the loop with its log."""
        loop = logged_loop(self.spec, self.numbers, self.plan)
        if loop is None:
            return self._in_order("it has too many iterations for a log")
        attempt = Attempt(self.spec, self.numbers, self.plan, loop, self.values, self.addresses, self.task)
        outcome = race(attempt)
        raced = f"raced: the {outcome.winner} has won"
        self._note(outcome.winner, raced if outcome.raced else "in order: the device takes no part in a race now")
        if isinstance(outcome.violation, Violation) or (outcome.violation is not None and outcome.error is None):
            self._met(outcome.violation)
        elif outcome.winner == "device" and self.spec.program.words.speculate != "always":
            self._keep()
        if outcome.error is not None:
            raise outcome.error
        return dict(outcome.results)

    # -- memory ------------------------------------------------------------------------------------------

    def _key(self) -> Any:
        """Return the key that a verdict follows from; None if it is not known."""
        # A verdict follows from the versions of the arrays that addresses are made of, from the scalars that reach
        # them, and from the numbers of the call. A loop that writes to such an array changes its version, and arrays in
        # no entry of the task have none: nothing is remembered of them.
        spec, (arrays, scalars) = self.spec, self.plan.addressing
        names = tuple(sorted(arrays & self.numbers.views.keys()))
        is_parallel = all(plan.verdict.verdict == "parallel" for plan in self.plans)
        known = VerdictBasis(
            is_parallel, names, tuple(sorted(scalars.intersection(spec.free))), apart_of(spec, self.numbers)
        )
        uses = spec.uses if spec.whole is None else spec.whole.uses
        if any(uses[name].is_changed for name in names) and not is_parallel:
            return None
        if known.apart.holds(self.addresses):
            self.numbers.record.known = known
        contents = contents_of(known, self.values, self.task)
        return key_from(self.numbers.lies, known, self.values, self.addresses, contents)

    def _keep(self) -> None:
        """Remember that iterations are independent, if the key of this verdict is known."""
        if self.key is not None:
            self.numbers.record.facts.keep(self.key, value=True)

    def _met(self, found: Violation | Exception) -> None:
        """Take note that iterations depend on each other."""
        if self.spec.program.words.speculate == "always":
            return
        with self.spec.lock:
            self.memory.is_sequential = True
        program = self.spec.program
        if not self.is_first and "speculation" not in program.warned:
            program.warned.add("speculation")
            place = program.source.place
            text = (
                f"{program.directive} {program.name!r}: {self._text(found)}; the results are correct, and it runs in "
                "order"
            )
            warn(f"{text} from now on", SpeculationWarning, f"{place.file}:{place.line}")

    def _text(self, found: Violation | Exception) -> str:
        """Return the finding as text, for a message."""
        if isinstance(found, Exception):
            return f"in parallel, it would fail with {type(found).__name__}"
        if found.what == OUTSIDE:
            return "an access would be outside its array"
        if found.what == FUEL:
            return "a loop of an iteration did not end"
        element = ", ".join(map(str, found.element)) or "()"
        places = [None if one is None else self._iteration(one) for one in found.iterations]
        known = [one for one in places if one is not None]
        where = f", iterations {' and '.join(known)}" if known else ""
        return f"its iterations depend on each other by {found.array}[{element}]{where}"

    def _iteration(self, number: int) -> str:
        """Return an iteration by its variables, of its number in a serial loop."""
        axes = self.numbers.axes[0]
        return iteration(self.plan.nest, axes, trips_at(number, [axis.trips for axis in axes]))

    def _note(self, where: Literal["device", "host"], text: str) -> None:
        tell(self.task, self.memory, where, text)


def on_host(
    task: DeviceTask,
    spec: Specialisation,
    values: Mapping[str, Any],
    work: Callable[[Mapping[str, Any]], Results],
) -> Results:
    """Call ``work`` with the arrays on the host, and send back those that the loop changes."""
    side = HostSide(task, spec, values)
    side.wait()
    own = side.own()
    arrays = side.private() if own is None else own
    try:
        found = work(arrays)
    except (ArithmeticError, AssertionError, IndexError, ValueError):
        if own is None:
            side.leave(arrays)
        raise
    if own is None:
        side.commit(arrays)
    else:
        side.keep()
    return found


def _timed(spec: Specialisation, record: CallRecord, start_s: float, value: Any) -> Any:
    """Note the time of a call on the device, with its copies, when it has passed; return the task's value."""
    device_s = perf_counter() - start_s
    note_time(spec, record, lambda history: history.measured(device_s=device_s))
    return value


def forget(loop: Any) -> None:
    """Have a loop function remember nothing of its calls, as one that is new but compiled: for measurements."""
    for whole in loop._program.specialisations():  # noqa: SLF001  # what a loop function is made of
        for spec in (whole, *whole.parts_made()):
            with spec.lock:
                spec.speculation = None
                spec.calls.clear()
