"""The winner of a race between a device and the serial program on the host: a machine of events and instructions.

The *device* runs the loop in parallel, with logs, on the arrays themselves; its result is good if it ends without a
violation. The *host* runs it in order on private copies; its result is always good. The last instruction comes once:

`COMMIT_DEVICE`  the device was clean; its writes stay
`COMMIT_HOST`    the host's writes replace the device's
`RAISE`          as `COMMIT_HOST`, and the call raises the serial program's error
`RESTORE`        the call was interrupted; arrays are as they were before

It waits until neither side runs, so nothing writes to an array after it. The machine has no clock: `DUE` says that it
is time for a competitor that did not start with the device. `start_of` decides who begins, from earlier races
(`History`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# Races of a loop in which both sides start at once: by then it is known what each takes.
_TOGETHER: Final = 3

# While the host keeps winning, the device is tried again after so many calls, or when these have taken so many times
# what the device takes: no more than a fiftieth of the time goes into that.
_AGAIN: Final = 50

_SLOWER: Final = 2.0
# How much a call on the host counts for, and of how many times what those before it took: others may have the core.
_WEIGHT: Final = 0.25

# Over the device's time: a host that has come to take so long wins no more.
_LOST: Final = 1.25

# Of what the device is thought to take: so long the competitor waits for it.
_PATIENCE: Final = 1.5

# Of what the serial program is thought to take: no longer, so that a call takes 1.05 of that at most.
_DELAY: Final = 0.05


class RaceEvent(Enum):
    """The events of a race."""

    DUE = auto()
    DEVICE_CLEAN = auto()
    DEVICE_WRONG = auto()  # a violation, or anything else that makes it useless
    DEVICE_STOPPED = auto()  # nothing of it is in flight, and nothing more will be
    HOST_DONE = auto()
    HOST_RAISED = auto()
    HOST_STOPPED = auto()
    GIVE_UP = auto()


class Instruction(Enum):
    """The instructions, in the order in which they are given."""

    START_DEVICE = auto()
    START_HOST = auto()
    STOP_DEVICE = auto()
    STOP_HOST = auto()
    COMMIT_DEVICE = auto()
    COMMIT_HOST = auto()
    RAISE = auto()
    RESTORE = auto()


Side = Literal["idle", "running", "stopping", "ended"]

_NOTHING: Final[tuple[Instruction, ...]] = ()
_OF_DEVICE: Final = {RaceEvent.DEVICE_CLEAN, RaceEvent.DEVICE_WRONG, RaceEvent.DEVICE_STOPPED}


@dataclass(frozen=True, slots=True)
class Contest:
    """The state of a race."""

    # `"idle"`, `"running"`, `"stopping"`: it has been told to, `"ended"`: nothing of it runs.
    device: Side = "idle"
    host: Side = "idle"
    outcome: Instruction | None = None  # the commit that is decided
    is_over: bool = False  # whether the commit has been given

    @classmethod
    def begun(cls, *, device: bool, host: bool) -> tuple[Contest, tuple[Instruction, ...]]:
        """Return a race of which one side starts, or both."""
        assert device or host
        starts = ((Instruction.START_DEVICE,) if device else ()) + ((Instruction.START_HOST,) if host else ())
        return cls("running" if device else "idle", "running" if host else "idle"), starts

    def after(self, event: RaceEvent) -> tuple[Contest, tuple[Instruction, ...]]:
        """Return the state after an event, and the instructions; `ValueError` if the event cannot come now."""
        if self.is_over:
            raise ValueError(f"{event.name}: the race is over")
        if event is RaceEvent.DUE:
            return self.with_host() if self.outcome is None and self.host == "idle" else (self, _NOTHING)
        if event is RaceEvent.GIVE_UP:
            return replace(self, outcome=Instruction.RESTORE).settled()
        state = self._ended(event)
        if event is RaceEvent.DEVICE_WRONG and state.outcome is None:
            return state.with_host() if state.host == "idle" else (state, _NOTHING)
        if state.outcome is None:
            state = replace(state, outcome=_DECIDED.get(event))
            if state.outcome is None:
                raise ValueError(f"{event.name}: nobody has told that side to stop")
        return state.settled()

    def _ended(self, event: RaceEvent) -> Contest:
        """Return the state with the side of an event ended."""
        if event in _OF_DEVICE:
            if self.device not in ("running", "stopping"):
                raise ValueError(f"{event.name}: the device is {self.device}")
            return replace(self, device="ended")
        if self.host not in ("running", "stopping"):
            raise ValueError(f"{event.name}: the host is {self.host}")
        return replace(self, host="ended")

    def with_host(self) -> tuple[Contest, tuple[Instruction, ...]]:
        return replace(self, host="running"), (Instruction.START_HOST,)

    def settled(self) -> tuple[Contest, tuple[Instruction, ...]]:
        """Return the state with instructions to stop the sides that run, or with the commit if none runs."""
        assert self.outcome is not None
        given: list[Instruction] = []
        state = self
        if state.device == "running":
            state = replace(state, device="stopping")
            given.append(Instruction.STOP_DEVICE)
        if state.host == "running":
            state = replace(state, host="stopping")
            given.append(Instruction.STOP_HOST)
        if "stopping" not in (state.device, state.host):
            state = replace(state, is_over=True)
            given.append(self.outcome)
        return state, tuple(given)


# Which commit an event decides, where none was.
_DECIDED: Final = {
    RaceEvent.DEVICE_CLEAN: Instruction.COMMIT_DEVICE,
    RaceEvent.HOST_DONE: Instruction.COMMIT_HOST,
    RaceEvent.HOST_RAISED: Instruction.RAISE,
}


# -- who starts ------------------------------------------------------------------------------------------


class RaceStart(NamedTuple):
    """Which sides begin a race."""

    device: bool
    host_after_s: float | None  # when the competitor is due; None: not before the device was wrong


@dataclass(frozen=True, slots=True)
class History:
    """The results of earlier races of a loop."""

    n_calls: int = 0  # those that came to a race, with such as the host ran alone
    n_races: int = 0  # those in which the device took part
    # What each side takes for the whole loop, as far as it is known.
    device_s: float | None = None
    host_s: float | None = None  # on one core
    winner: Literal["device", "host"] | None = None  # that of the last race in which the device took part
    n_since: int = 0  # calls that the host had alone since the device took part
    least_s: float = 0.0  # what a call on the device takes at least, with copies

    @property
    def is_hosts(self) -> bool:
        """Whether the next call is the host's alone: it keeps winning, or no device can be as quick."""
        if self.winner is None:
            return self.device_s is None and self.host_s is not None and self.host_s <= self.least_s
        return self.winner == "host" and not start_of(self).device

    def with_race(
        self, *, winner: Literal["device", "host"], raced: bool, device_s: float | None, host_s: float | None
    ) -> History:
        """Return the history after another call; a time that is None stays as it was."""
        return replace(
            self,
            n_calls=self.n_calls + 1,
            n_races=self.n_races + raced,
            device_s=self.device_s if device_s is None else device_s,
            host_s=self.host_s if host_s is None else host_s,
            winner=winner if raced else self.winner,
            n_since=0 if raced else self.n_since + 1,
        )

    def stayed(self, host_s: float) -> History:
        """Return the history after a call that the host ran alone, in ``host_s`` seconds."""
        if self.host_s is not None:
            host_s = self.host_s + _WEIGHT * (min(host_s, _SLOWER * self.host_s) - self.host_s)
        found = self.with_race(winner="host", raced=False, device_s=None, host_s=host_s)
        if self.winner == "host" and self.device_s is not None and host_s > _LOST * self.device_s:
            return replace(found, winner="device")
        return found

    def measured(self, *, device_s: float | None = None, host_s: float | None = None) -> History:
        """Return the history after a side was timed by itself; once both are known, the quicker one has won."""
        made = replace(
            self,
            n_calls=self.n_calls + (device_s is not None),
            device_s=self.device_s if device_s is None else device_s,
            host_s=self.host_s if host_s is None else host_s,
            n_since=self.n_since if device_s is None else 0,
        )
        if made.device_s is None or made.host_s is None:
            return made
        winner: Literal["device", "host"] = "host" if made.host_s < made.device_s else "device"
        return replace(made, winner=winner, n_races=max(made.n_races, _TOGETHER))


def start_of(history: History, *, can_compete: bool = True, always: bool = False) -> RaceStart:
    """Return who begins a race.

    ``can_compete``: the host has a quick form and a core for it. ``always``: nothing is remembered, and both sides
    start.
    """
    if not can_compete:
        return RaceStart(device=True, host_after_s=None)
    if always or history.n_races < _TOGETHER:
        return RaceStart(device=True, host_after_s=0.0)
    if history.winner == "host":
        return RaceStart(device=history.n_since + 1 >= _AGAIN * _costs(history), host_after_s=0.0)
    delays: Sequence[float] = [
        *([] if history.device_s is None else [_PATIENCE * history.device_s]),
        *([] if history.host_s is None else [_DELAY * history.host_s]),
    ]
    return RaceStart(device=True, host_after_s=min(delays, default=0.0))


def _costs(history: History) -> float:
    """Return how many calls of the host one of the device takes, at least 1."""
    if not history.device_s or not history.host_s:
        return 1.0
    return max(1.0, history.device_s / history.host_s)
