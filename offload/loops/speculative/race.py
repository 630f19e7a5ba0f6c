"""A race: a loop in parallel on a device, with logs, against the serial program on the host.

`race` runs in the body of a device task, and blocks until the race is over. `contest` decides; this module acts. The
device works on its arrays chunk by chunk (`chunks`), the competitor on copies, on a thread of C (`competitor`); a safe
state undoes either (`hostside`). The body's thread only polls. Ctrl-C and a cancelled taskgroup stop both sides,
restore the arrays, and raise. When `race` ends, no thread and no work in flight is left. Without a compiler or a free
core there is no competitor: the serial program runs on this thread, if the device was wrong, or at once without a core.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from offload.errors import DeviceLostError, DeviceMemoryError
from offload.interrupts.shields import Shield
from offload.loops.running import pool
from offload.loops.running.build import builder
from offload.loops.running.ordered_runs import ordered_runs
from offload.loops.speculative.chunks import DeviceChunks
from offload.loops.speculative.competitor import Competitor, running
from offload.loops.speculative.contest import Contest, Instruction, RaceEvent, start_of
from offload.loops.speculative.hostside import HostSide, pause
from offload.loops.speculative.log_runs import LoggedRun
from offload.loops.speculative.verdict_memory import Outcome, history_of
from offload.runtime.current import here
from offload.tasks.task import LeaveRegion, discarded

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from offload.loops.running.runs import OrderedRun
    from offload.loops.speculative.verdict_memory import Attempt


def race(attempt: Attempt) -> Outcome:
    """Carry out a loop of which nobody knows whether it is parallel; arrays then hold the serial program's results.

    The outcome's error is the one that the serial program raises; its writes until then stay. An interruption or a
    cancelled taskgroup (LeaveRegion, CancelledError) raises, with the arrays as they were.

    *Blocks* until the race is over. *Costs* a copy of each array that the loop writes, and of those that it reads
    and the call has not mapped if the competitor starts.
    """
    with Shield(here()) as shield:
        _looking.add(get_ident())
        try:
            return _Race(attempt, shield).run()
        finally:
            _looking.discard(get_ident())


class _Race:
    """One race, carried out."""

    def __init__(self, attempt: Attempt, shield: Shield) -> None:
        self._attempt, self._shield = attempt, shield
        self._task = attempt.task
        self._side = HostSide(attempt.task, attempt.spec, attempt.values)  # the arrays, for the host
        self._logged: LoggedRun | None = None  # the run on the device, if it takes part
        self._chunks: DeviceChunks | None = None  # launches it
        self._host: _HostRun | None = None  # the run on the host, once it has started
        self._contest = Contest()  # decides
        self._is_committed = False  # whether the commit has been carried out
        self._cancelled: Any = None  # by whom the taskgroup was cancelled
        self._interruption: BaseException | None = None  # what is to be raised
        self._always = attempt.spec.program.words.speculate == "always"  # without memory of earlier calls
        self._history = history_of(attempt.numbers.record)  # of earlier races

    def run(self) -> Outcome:
        """Carry it out."""
        self._side.wait()
        has_core = _has_core(here().runtime.engine)
        can_compete = has_core and builder.compiler is not None and not _alone
        start = start_of(self._history, can_compete=can_compete, always=self._always)
        if not has_core:
            start = start._replace(device=False)
        try:
            has_device = start.device and self._has_memory()
            self._begin(device=has_device, host=start.host_after_s == 0.0 or not has_device)
            due_s = None if start.host_after_s is None else perf_counter() + start.host_after_s
            n_looks = 0
            while not self._contest.is_over:
                event = self._event(due_s)
                if event is None:
                    pause(n_looks)
                    n_looks += 1
                    continue
                n_looks = 0
                if event is RaceEvent.DUE:
                    due_s = None
                self._after(event)
            return self._outcome()
        finally:
            self._clear()

    # -- events ------------------------------------------------------------------------------------------

    def _event(self, due_s: float | None) -> RaceEvent | None:
        """Return the next event, the device's first."""
        contest = self._contest
        if contest.outcome is not Instruction.RESTORE and self._is_given_up():
            return RaceEvent.GIVE_UP
        if self._chunks is not None and contest.device in ("running", "stopping"):
            event = self._chunks.poll()
            if event is not None:
                return event
        if self._host is not None and contest.host in ("running", "stopping"):
            event = self._host.poll(self._is_given_up)
            if event is not None:
                return event
        if due_s is not None and contest.host == "idle" and contest.outcome is None and perf_counter() >= due_s:
            return RaceEvent.DUE
        return None

    def _is_given_up(self) -> bool:
        """Tell whether nobody wants a result: an interruption has raised, or the taskgroup was cancelled."""
        if self._interruption is None:
            self._interruption = self._shield.thread.caught()
        if self._interruption is not None:
            return True
        if self._cancelled is None and here().runtime.engine.can_cancel:
            group = self._task.inherited.group
            self._cancelled = None if group is None else group.cancelled_by
        return self._cancelled is not None

    def _leave(self) -> NoReturn:
        """Raise why nobody wants a result."""
        interruption, self._interruption = self._interruption, None
        if interruption is not None:
            try:
                raise interruption
            finally:
                del interruption
        task = self._task
        if task.owner is not None:  # an undeferred construct is a cancellation point
            raise LeaveRegion(self._cancelled)
        task.seen = True  # nobody needs to be told, and nothing that follows is poisoned
        raise discarded(task)

    # -- instructions ------------------------------------------------------------------------------------

    def _begin(self, *, device: bool, host: bool) -> None:
        self._contest, given = Contest.begun(device=device, host=host)
        self._carry_out(given)

    def _after(self, event: RaceEvent) -> None:
        self._contest, given = self._contest.after(event)
        self._carry_out(given)

    def _carry_out(self, given: tuple[Instruction, ...]) -> None:
        for instruction in given:
            match instruction:
                case Instruction.START_DEVICE:
                    self._start_device()
                case Instruction.START_HOST:
                    self._start_host()
                case Instruction.STOP_DEVICE if self._chunks is not None:
                    self._chunks.stop()
                case Instruction.STOP_HOST if self._host is not None:
                    self._host.stop()
                case Instruction.COMMIT_HOST if self._host is not None:
                    self._side.commit(self._host.arrays)
                case Instruction.RAISE if self._host is not None:
                    self._side.leave(self._host.arrays)
                case Instruction.RESTORE if self._chunks is not None:
                    self._side.restore()
                case _:  # what the device has written stays where it is
                    pass
        self._is_committed = self._contest.is_over

    def _has_memory(self) -> bool:
        """Allocate the memory that the device needs to take part; tell whether there was enough."""
        try:
            self._side.save()
            attempt = self._attempt
            self._logged = LoggedRun(attempt.loop, attempt.values, attempt.addresses, attempt.task)
        except DeviceMemoryError:
            self._side.close()
        return self._logged is not None

    def _start_device(self) -> None:
        assert self._logged is not None
        lane: Any = self._task.lane
        self._chunks = DeviceChunks(self._logged, self._task.place.device, lane.stream, self._history.device_s)
        self._chunks.start()

    def _start_host(self) -> None:
        self._host = _HostRun(self._attempt, self._side, is_beside=self._chunks is not None)

    # -- the end -----------------------------------------------------------------------------------------

    def _outcome(self) -> Outcome:
        outcome, chunks, host = self._contest.outcome, self._chunks, self._host
        if outcome is Instruction.RESTORE:
            self._leave()
        winner: Literal["device", "host"] = "device" if outcome is Instruction.COMMIT_DEVICE else "host"
        if not self._always:
            self._remember(winner)
        if winner == "device":
            assert self._logged is not None
            return Outcome("device", None, self._logged.results())
        assert host is not None
        violation = None if chunks is None else chunks.violation
        return Outcome("host", violation, host.results, host.failure(), raced=chunks is not None)

    def _remember(self, winner: Literal["device", "host"]) -> None:
        """Remember the times; a side that lost gives the time until it was stopped."""
        chunks, host = self._chunks, self._host
        history = self._history.with_race(
            winner=winner,
            raced=chunks is not None,
            device_s=None if chunks is None else chunks.taken_s,
            host_s=None if host is None else host.whole_s,
        )
        self._attempt.numbers.record.history = history

    def _clear(self) -> None:
        """Leave nothing behind, however it has ended."""
        host, chunks = self._host, self._chunks
        if host is not None:
            host.stop()
        if chunks is not None and self._contest.device != "ended":
            chunks.drain()
        if host is not None:
            host.join()
        if not self._is_committed and chunks is not None:  # something has failed on the way
            with suppress(DeviceLostError):
                self._side.restore()
        if self._logged is not None:
            self._logged.close()
        self._side.close()


class _HostRun:
    """The host's side of a race: a run in order, on a thread of its own or, if there is none, on this one.

    First its arrays are filled, piece by piece, since the device may have won before that is done.
    """

    def __init__(self, attempt: Attempt, side: HostSide, *, is_beside: bool) -> None:
        self._attempt, self._is_beside = (
            attempt,
            is_beside,
        )  # without a device no thread is needed
        self.arrays: dict[str, Any] = {}  # those that it works on
        self.results: Mapping[str, Any] = {}  # the scalars that come out, once it is done
        self.whole_s: float | None = None  # what all trips take
        # fills the arrays, piece by piece; None when it is done
        self._filling: Generator[None, None, None] | None = side.filling(self.arrays)
        self._run: OrderedRun | None = None  # once the arrays are filled
        self._competitor: Competitor | None = None  # None: it runs on this thread
        self._is_wanted = True  # False: it was told to stop
        self._has_ended = False  # nothing of it runs

    def _start(self) -> OrderedRun:
        """Begin, now that the arrays are there."""
        (run,) = ordered_runs(self._attempt.spec, {**self._attempt.values, **self.arrays})
        if self._is_beside and run.form.entry:
            competitor = Competitor(run)
            self._competitor = competitor if competitor.start() else None
        self._run = run
        return run

    def poll(self, is_given_up: Callable[[], bool]) -> RaceEvent | None:
        """Return how it has ended, if it has; without a thread, run it now."""
        if self._filling is not None:
            if self._is_wanted and next(self._filling, True) is None:
                return None
            self._filling.close()
            self._filling = None
            if not self._is_wanted:
                return RaceEvent.HOST_STOPPED
        run = self._run or self._start()
        competitor = self._competitor
        if competitor is None:
            begun_s = perf_counter()
            is_complete = run.run_all(lambda: self._is_wanted and not is_given_up())
            if is_complete:
                self.whole_s = perf_counter() - begun_s
        elif not competitor.has_ended:
            return None
        else:
            competitor.join()
            self.whole_s = competitor.whole_s
            is_complete = competitor.is_complete
        self._has_ended = True
        if not is_complete:
            return RaceEvent.HOST_STOPPED if not self._is_wanted else RaceEvent.GIVE_UP
        self.results = run.finish()
        return RaceEvent.HOST_RAISED if run.has_failed else RaceEvent.HOST_DONE

    def failure(self) -> Exception | None:
        """Return the exception of the serial program."""
        return None if self._run is None else self._run.failure()

    def stop(self) -> None:
        """Have it end soon."""
        self._is_wanted = False
        if self._competitor is not None and not self._has_ended:
            self._competitor.give_up()

    def join(self) -> None:
        """Wait until its thread is gone."""
        if self._filling is not None:
            self._filling.close()
        if self._competitor is not None:
            self._competitor.join()


_alone = False


@contextmanager
def alone(is_so: bool = True) -> Iterator[None]:
    """Have no competitor start meanwhile, in the whole process, but where the device was wrong: to measure logs."""
    global _alone  # noqa: PLW0603  # a switch of benchmarks
    before, _alone = _alone, is_so
    try:
        yield
    finally:
        _alone = before


# Threads that look on at a race: they need no core.
_looking: set[int] = set()


def _has_core(engine: Any) -> bool:
    """Tell whether there is a core for a competitor, as far as the runtime knows."""
    n_working = sum(thread.ident not in _looking for thread in engine.threads) - len(engine.parked)
    return max(n_working, 0) + len(running) < pool.n_cores()
