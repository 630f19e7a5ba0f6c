"""Which way a loop is carried out on several devices: a model strikes out what cannot win, times decide about the rest.

Theory of operation
-------------------
Ways that the model expects to take more than three times as long as the best are never tried. A way that is tried is
taken in two calls in a row, of which the second counts: the first one finds data where the way before has left them.
First comes the one that the model takes for the best, then that of one device alone. What this takes is known then, and
bounds the others: a call on several devices takes so much of the host that calls which follow each other are no quicker
than that, and where each device does everything it takes as long as one of them, unless that had to be sent something.
What is no gain by these is not tried either, so that the first calls of a short loop are like any other.

Times come in when the devices have passed the calls, which may be many calls later; until then the way that is best as
far as is known is taken. It stays until another one is 5 % faster. Whoever asks has a `Chooser` for each loop, its
types, the numbers of a call, and the set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload.loops.sets.divided import FilterMode

MOST_TIMES: Final = 3.0
"""A way that the model expects to take so many times as long as the best is not tried."""

KEPT: Final = 0.95
"""Another way has to take less than this part of the time of the one that is taken."""

CALL_S: Final = 10e-6
"""What a loop takes that does nothing, of which a fork and a join are 15 µs more."""

FORK_S: Final = 15e-6

SPREAD_S: Final = 100e-6
"""What a call on several devices takes of the host, at least: several times what it takes on one."""

_BYTES_PER_S: Final = 3e12
_SENT_BYTES_PER_S: Final = 3e11
_STEPS_PER_S: Final = 1e13
_HOST_BYTES_PER_S: Final = 1e10
"""H200: memory; peer copies, as in five-point sweeps of which each device sends its half; steps of generated code.

Copies of the host's pageable memory are those of an H100.
"""


class Cost(NamedTuple):
    """What a device has to do in a way.

    Attributes
    ----------
    nbytes : int
        That it reads and writes.
    steps : int
        Nodes of the text times iterations.
    sent_nbytes : int
        That it has to be sent, in the steady state of a loop that is called again and again.
    """

    nbytes: int
    steps: int
    sent_nbytes: int


def expected_s(costs: Sequence[Cost]) -> float:
    """Return what a way takes, in seconds, as the model has it; `costs` are those of the devices that take part."""
    of_devices = [
        max(cost.nbytes / _BYTES_PER_S, cost.steps / _STEPS_PER_S) + cost.sent_nbytes / _SENT_BYTES_PER_S
        for cost in costs
    ]
    return CALL_S + FORK_S * (len(costs) > 1) + max(of_devices, default=0.0)


class Chooser:
    """Chooses a way for each call; the caller keeps threads apart.

    Parameters
    ----------
    expected : mapping of str to float
        What each way takes, in seconds, as the model has it; the most divided first.

    Attributes
    ----------
    candidates : tuple of str
        The ways that may be taken.
    times : dict of str to float
        In seconds, of those that have been timed.
    least : dict of str to float
        What the time of one device says of ways that are not tried for that: the seconds that each would take at least.
    chosen : str or None
        The one that is taken now that all have been timed, or there is one.
    latest : str or None
        The mode of the latest call: that of the nest that was divided most. The caller notes it.
    sent_nbytes : int or None
        What it had to have copied from device to device; likewise.
    """

    __slots__ = (
        "_is_second",
        "_rest",
        "_trials",
        "candidates",
        "chosen",
        "expected",
        "latest",
        "least",
        "sent_nbytes",
        "times",
    )

    def __init__(self, expected: Mapping[FilterMode, float]) -> None:
        best = min(expected.values())
        self.expected = dict(expected)
        self.candidates: tuple[FilterMode, ...] = tuple(
            mode for mode, seconds in expected.items() if seconds <= MOST_TIMES * best
        )
        self.times: dict[FilterMode, float] = {}
        self.least: dict[FilterMode, float] = {}
        self.chosen: FilterMode | None = self.candidates[0] if len(self.candidates) == 1 else None
        self.latest: FilterMode | None = None
        self.sent_nbytes: int | None = None
        self._is_second = False
        self._trials: list[FilterMode] = sorted(self.candidates, key=self.expected.__getitem__)
        self._rest: list[FilterMode] = []
        if "single" in self.candidates:
            first = list(dict.fromkeys([self._trials[0], "single"]))
            self._rest = [mode for mode in self._trials if mode not in first]
            self._trials = first

    def next(self) -> tuple[FilterMode, bool]:
        """Return the way that a call is to take, and whether it is to be timed."""
        if self.chosen is not None or not self._trials:
            return self.now, False
        is_second = self._is_second
        self._is_second = not is_second
        return self._trials.pop(0) if is_second else self._trials[0], is_second

    def note(self, mode: FilterMode, seconds: float, sent_nbytes: int = 0) -> None:
        """Take note of the time of a call, which had so much sent from device to device."""
        self.times[mode] = seconds
        if mode == "single":
            self._bound(seconds, sent_nbytes)
        if len(self.times) < len(self.candidates):
            return
        best = min(self.candidates, key=self.times.__getitem__)
        if self.chosen is None or self.times[best] < KEPT * self.times[self.chosen]:
            self.chosen = best

    def _bound(self, seconds: float, sent_nbytes: int) -> None:
        """Strike out ways that cannot be quicker than one device is; try the others."""
        rest, self._rest = self._rest, []
        for mode in rest:
            does_as_much = mode == "duplicate" and not sent_nbytes
            least = max(SPREAD_S, FORK_S + seconds) if does_as_much else SPREAD_S
            if least < KEPT * seconds:
                self._trials.append(mode)
            else:
                self.least[mode] = least
        self.candidates = tuple([mode for mode in self.candidates if mode not in self.least])

    @property
    def now(self) -> FilterMode:
        """The way that the next call would take."""
        if self.chosen is not None:
            return self.chosen
        if self._trials:
            return self._trials[0]
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
        """Tell whether one device is best of what is known, where others have to be sent so much by the host first."""
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
        return "; ".join(words)
