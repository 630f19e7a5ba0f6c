"""The choice of a strategy for a loop on several devices: a model removes hopeless ways, times decide among the rest.

Ways expected to take over three times as long as the best are never tried. A way is tried in calls in a row, and the
first does not count, because it moves data. The way that the model prefers comes first, then one device alone, whose
time bounds the others. A call is timed by the longer of its host time and its device time. One device alone is timed
twice more before another way is taken. Several devices must be 5 % quicker than one.

Times arrive when the devices have passed the calls; until then the best known way is taken. There is one `Chooser` for
a loop, its types, the numbers of a call, and the set. docs/design/loops.md gives the reasons.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload.loops.sets.filter import FilterMode

# A way that the model expects to take so many times as long as the best is not tried.
MOST_TIMES: Final = 3.0

# Another way has to take less than this part of the time of one device alone.
GAIN: Final = 0.95

# What a loop takes that does nothing, of which a fork and a join are 15 µs more.
CALL_S: Final = 10e-6

FORK_S: Final = 15e-6

# What a call on several devices takes of the host, at least: several times what it takes on one.
SPREAD_S: Final = 200e-6

# Calls of one device alone of which the quickest counts, before another way is tried or taken.
N_TIMED: Final = 3

_BYTES_PER_S: Final = 3e12
_SENT_BYTES_PER_S: Final = 3e11
_STEPS_PER_S: Final = 1e13
_HOST_BYTES_PER_S: Final = 1e10
"""H200: memory; peer copies, as in five-point sweeps of which each device sends its half; steps of generated code.

Copies of the host's pageable memory are those of an H100.
"""


class Cost(NamedTuple):
    """The work of a device in a way."""

    nbytes: int  # that it reads and writes
    steps: int  # nodes of the text times iterations
    sent_nbytes: int  # that it has to be sent, in the steady state of a loop that is called again and again


def expected_s(costs: Sequence[Cost]) -> float:
    """Return the time of a way by the model, in seconds; `costs` are those of the devices that take part."""
    of_devices = [
        max(cost.nbytes / _BYTES_PER_S, cost.steps / _STEPS_PER_S) + cost.sent_nbytes / _SENT_BYTES_PER_S
        for cost in costs
    ]
    return CALL_S + FORK_S * (len(costs) > 1) + max(of_devices, default=0.0)


class Chooser:
    """Chooses a way for each call; the caller keeps threads apart.

    ``expected`` has the seconds of each way, as the model predicts them; the most divided way comes first.
    """

    def __init__(self, expected: Mapping[FilterMode, float]) -> None:
        best = min(expected.values())
        self.expected = dict(expected)  # seconds of each way, as the model has it
        # The ways that may be taken.
        self.candidates: tuple[FilterMode, ...] = tuple(
            mode for mode, seconds in expected.items() if seconds <= MOST_TIMES * best
        )
        self.times: dict[FilterMode, float] = {}  # in seconds, of those that have been timed; the least of each
        # What the time of one device says of ways that are not tried for that: the seconds that each would take at
        # least.
        self.least: dict[FilterMode, float] = {}
        # The one that is taken, as all have been timed or there is one.
        self.chosen: FilterMode | None = self.candidates[0] if len(self.candidates) == 1 else None
        # The mode of the latest call: that of the nest that was divided most. The caller notes it.
        self.latest: FilterMode | None = None
        self.sent_nbytes: int | None = None  # what it had to have copied from device to device; likewise
        self._alone_s = inf  # of one device alone: the least time of the device
        self._alone_sent_nbytes = 0  # what it had to be sent in the latest call
        self._n_awaited = 0  # timed calls that have not passed yet
        self._n_spare = N_TIMED - 1  # calls in which one device alone may be timed again
        # ways that have not been tried
        self._rest: list[FilterMode] = sorted(self.candidates, key=self.expected.__getitem__)
        self._trials: list[tuple[FilterMode, bool]] = []  # what the next calls do: the way, and whether it is timed
        if "single" in self.candidates:
            for mode in dict.fromkeys([self._rest[0], "single"]):
                self._rest.remove(mode)
                self._try(mode)
        else:
            for mode in self._rest:
                self._try(mode)

    def next(self) -> tuple[FilterMode, bool]:
        """Return the way that a call is to take, and whether it is to be timed."""
        if self.chosen is not None or not self._trials:
            return self.now, False
        return self._trials.pop(0)

    def note(self, mode: FilterMode, devices_s: float, host_s: float = 0.0, sent_nbytes: int = 0) -> None:
        """Note the time of a call on devices and host, and the bytes sent from device to device."""
        seconds = max(devices_s, host_s)
        self.times[mode] = min(seconds, self.times.get(mode, seconds))
        if mode == "single":
            self._alone_s, self._alone_sent_nbytes = min(devices_s, self._alone_s), sent_nbytes
        self._n_awaited -= 1
        if not self._n_awaited and "single" in self.candidates:
            self._weigh()
        if not self._n_awaited:
            best = min(self.candidates, key=self.times.__getitem__)
            is_gain = "single" not in self.times or self.times[best] < GAIN * self.times["single"]
            self.chosen = best if is_gain else "single"

    def _try(self, mode: FilterMode, n_timed: int = 1) -> None:
        """Have a way tried in the calls that come."""
        self._trials += [(mode, False), *[(mode, True)] * n_timed]
        self._n_awaited += n_timed

    def _weigh(self) -> None:
        """Have one device timed again where others win or may win; then strike out those that cannot, try the rest."""
        least = dict.fromkeys(self._rest, SPREAD_S)
        if "duplicate" in least and not self._alone_sent_nbytes:
            least["duplicate"] = max(SPREAD_S, FORK_S + self._alone_s)
        may_win = [mode for mode in self._rest if least[mode] < GAIN * self._alone_s]
        wins = min(self.times.values()) < GAIN * self.times["single"]
        if (may_win or wins) and self._n_spare:
            n_timed, self._n_spare = self._n_spare, 0
            self._try("single", n_timed)
            return
        self.least |= {mode: least[mode] for mode in self._rest if mode not in may_win}
        self.candidates = tuple([mode for mode in self.candidates if mode not in self.least])
        self._rest = []
        for mode in may_win:
            self._try(mode)

    @property
    def now(self) -> FilterMode:
        """The way that the next call would take."""
        if self.chosen is not None:
            return self.chosen
        if self._trials:
            return self._trials[0][0]
        known = self.times or self.expected
        return min((mode for mode in self.candidates if mode in known), key=known.__getitem__)

    @property
    def widest(self) -> FilterMode:
        """The most divided way that may be taken."""
        return self.candidates[0]

    @property
    def resting(self) -> FilterMode | None:
        """The way that calls take until more is known; None while ways are tried."""
        if self.chosen is not None:
            return self.chosen
        return None if self._trials else self.now

    def is_best_alone(self, nbytes: int) -> bool:
        """Tell whether one device is known to be best, if the host first has to send ``nbytes`` to the others."""
        resting = self.resting
        if resting == "single" or resting is None or "single" not in self.times or resting not in self.times:
            return resting == "single"
        return self.times["single"] <= self.times[resting] + nbytes / _HOST_BYTES_PER_S

    @property
    def why(self) -> str:
        """Why it is that one, in words."""
        left = [mode for mode in self.expected if mode not in self.candidates]
        words = [
            f"{mode} would take {self.least[mode] * 1e6:.0f} µs at least"
            if mode in self.least
            else f"{mode} is expected to take {self.expected[mode] * 1e6:.0f} µs"
            for mode in left
        ]
        if self.chosen is not None and self.times:
            words = [f"{mode} took {self.times[mode] * 1e6:.0f} µs" for mode in self.candidates] + words
        elif len(self.candidates) > 1:
            words = [f"{' and '.join(self.candidates)} are being tried", *words]
        if self.least and self._alone_s < self.times["single"]:
            words.append(
                f"the device took {self._alone_s * 1e6:.0f} µs of single's {self.times['single'] * 1e6:.0f} µs, and "
                "other strategies can shorten only that part"
            )
        return "; ".join(words)
