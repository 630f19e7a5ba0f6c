"""The choice of a strategy for a call of a function with several nests, some of which run in order.

``each``: nests in order run on the host, all others on the device, and arrays are copied in between.
``device``: nests in order run on the device too, in one thread. No array is copied in between.
``host``: all nests run on the host, those that are proved parallel on its threads. Arrays are copied once, or not.

Calls try each strategy that may be the quickest, and times decide. The first calls of a strategy do not count, because
they profile and compile. The others are tried again every fifty calls, or more seldom if they cost more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Strategy: TypeAlias = Literal["each", "device", "host"]

# Calls of a strategy that profile and compile, and calls after them of which the quickest counts.
_N_FIRST: Final[dict[Strategy, int]] = {"each": 2, "device": 1, "host": 1}
_N_TIMED: Final = 2

# Another strategy is tried again after so many calls, or when these have taken so many times its own time.
_AGAIN: Final = 50

# How much one call counts for in the time of the strategy that is taken, and how many times that time it may count.
_WEIGHT: Final = 0.25
_SLOWER: Final = 2.0


class Timed(NamedTuple):
    """The calls of a strategy."""

    n: int = 0  # until it was timed
    seconds: float | None = None
    n_since: int = 0  # calls of other strategies since then


@dataclass(frozen=True, slots=True)
class Strategies:
    """The times of calls with equal numbers."""

    times: Mapping[Strategy, Timed] = field(default_factory=dict)

    def best(self, candidates: Sequence[Strategy]) -> Strategy | None:
        """Return the quickest strategy; None until all have been timed."""
        if any(self._is_open(one) for one in candidates):
            return None
        return min(candidates, key=self.seconds)

    def next(self, candidates: Sequence[Strategy]) -> Strategy:
        """Return the strategy of the next call, of those that may be the quickest."""
        best = self.best(candidates)
        if best is None:
            return next(one for one in candidates if self._is_open(one))
        least = max(self.seconds(best), 1e-9)
        for one in candidates:
            of = self.times[one]
            if one != best and of.n_since >= _AGAIN * max(1.0, self.seconds(one) / least):
                return one
        return best

    def seconds(self, strategy: Strategy) -> float:
        """Return the time of a strategy that has been timed."""
        return self.times[strategy].seconds or 0.0

    def _is_open(self, strategy: Strategy) -> bool:
        return self.times.get(strategy, Timed()).n < _N_FIRST[strategy] + _N_TIMED

    def after(self, strategy: Strategy, seconds: float) -> Strategies:
        """Return the times after a call by a strategy."""
        of = self.times.get(strategy, Timed())
        known = of.seconds
        if of.n < _N_FIRST[strategy]:
            known = None
        elif known is None or of.n_since:
            known = seconds
        elif self._is_open(strategy):
            known = min(known, seconds)
        else:
            known += _WEIGHT * (min(seconds, _SLOWER * known) - known)
        times = {one: other._replace(n_since=other.n_since + 1) for one, other in self.times.items()}
        return replace(self, times={**times, strategy: Timed(of.n + 1, known)})
