"""When to look at open requests again: at once while something moves, else after a nap.

A nap is 2 % of the time since something last moved, and grows until it costs less than 2 % of a core. A poll that is
slow compared with an idle one has probably moved data, so the next one follows at once; the bytes of the open requests
bound the time spent so. The caller gives the times. See docs/design/theory.md, "Naps".
"""

from __future__ import annotations

from math import inf

_SHORTEST_NAP_S = 20e-6
_NAP_SHARE = 0.02  # Of the time since something last moved

_LONG_NAP_S = 2e-3
_NAP_OVER_COST = 64  # The longest nap is the longer one of these: 2 ms, or so many times what a nap costs

_COST_WEIGHT = 1 / 16  # Of the latest nap's cost in what is known of it

# A poll seems to have moved data that takes more than so many times as long as the shortest one of a list as long.
_SLOW = 1.4

_SLOWEST_BYTES_PER_S = 0.5e9  # At which slow polls are believed to move what is open

_REGAINED_SHARE = 0.01  # Of the time of a nap: what slow polls have spent no more after it

# So many slow polls in a row mean that something has moved: on a core that was idle, some are slow by themselves.
_MOVING_POLLS = 10

# How long to poll before the next judgement, while data moves: Python's part of one is as long as some polls.
_AT_ONCE_S = 2e-4

_FORGETTING = 1 + 1 / 16384  # By how much the shortest poll of a list as long counts longer at each judgement

_LENGTHS = 1_000  # Of how many lengths of the list the shortest poll is remembered


class Pace:
    """Decides after each poll whether the next one follows at once."""

    # A poll without progress takes at most ``idle_s`` of processor time and ``idle_each_s`` for each request. Two
    # readings of the clock of polls may differ by ``grain_s``: no poll counts as shorter.

    __slots__ = (
        "_cpu_s", "_grain_s", "_idle_each_s", "_idle_s", "_is_rested", "_n_open_bytes", "_n_slow", "_shortest_s",
        "_spent_s", "moved_s", "n_polls", "nap_cost_s",
    )  # fmt: skip

    def __init__(self, idle_s: float = inf, idle_each_s: float = 0.0, grain_s: float = 0.0) -> None:
        self._grain_s = grain_s
        self._idle_s = idle_s
        self._idle_each_s = idle_each_s
        self.n_polls = 1  # polls before the next judgement: many while data moves, which takes a thousand polls
        self.moved_s = 0.0  # when something last was new, was completed, or moved data, by the caller's clock
        self.nap_cost_s = 0.0  # processor time of a nap, with the polls after it
        self._shortest_s: dict[int, float] = {}
        self._n_slow = 0
        self._n_open_bytes = 0
        self._spent_s = 0.0  # by slow polls
        self._is_rested = False
        self._cpu_s: float | None = None  # of the thread, when it last began a nap

    @property
    def is_moving(self) -> bool:
        """Whether data moves, as the latest polls look."""
        return self._n_slow >= _MOVING_POLLS

    def opened(self, n_bytes: int) -> None:
        """Note that so many bytes are to be moved."""
        self._n_open_bytes += n_bytes

    def closed(self, n_bytes: int) -> None:
        """Note that so many of them have been, and that no poll will have been slow for them."""
        self._n_open_bytes -= n_bytes
        self._spent_s = min(self._spent_s, self._credit_s)

    @property
    def _credit_s(self) -> float:
        """The time that slow polls may take for the open requests, in seconds."""
        return self._n_open_bytes / _SLOWEST_BYTES_PER_S

    def begin(self) -> None:
        """Note that something new is open, or something complete: the next poll follows at once."""
        self._n_slow, self.n_polls, self._is_rested, self._cpu_s = 0, 1, False, None

    def nap_s(self, took_s: float, n_open: int, now_s: float, cpu_s: float) -> float:
        """Return how long to nap after a poll that completed nothing; 0 means to poll again.

        ``took_s`` is the processor time of the poll, or of one of ``n_polls``; ``n_open`` the number of requests;
        ``now_s`` the time by the clock of ``moved_s``; ``cpu_s`` the processor time of the thread so far.
        """
        if self._is_rested:
            self._is_rested = False
            return 0.0
        if len(self._shortest_s) > _LENGTHS:
            self._shortest_s.clear()
        usual_s = self._shortest_s.get(n_open)
        if usual_s is None:
            usual_s = self._idle_s + n_open * self._idle_each_s
        usual_s = max(min(usual_s * _FORGETTING, took_s), self._grain_s)
        self._shortest_s[n_open] = usual_s
        if took_s > _SLOW * usual_s and self._spent_s < self._credit_s:
            self._spent_s += took_s * self.n_polls
            self._n_slow += 1
            if self.is_moving:
                self.moved_s, self._cpu_s = now_s, None
                self.n_polls = max(1, int(_AT_ONCE_S / took_s))
            return 0.0
        if self._cpu_s is not None:  # a nap, and the polls after it
            self.nap_cost_s += (cpu_s - self._cpu_s - self.nap_cost_s) * _COST_WEIGHT
        self._n_slow, self.n_polls, self._is_rested, self._cpu_s = 0, 1, True, cpu_s
        longest_s = max(_LONG_NAP_S, _NAP_OVER_COST * self.nap_cost_s)
        nap_s = max(_SHORTEST_NAP_S, min(_NAP_SHARE * (now_s - self.moved_s), longest_s))
        self._spent_s = max(0.0, self._spent_s - _REGAINED_SHARE * nap_s)
        return nap_s
