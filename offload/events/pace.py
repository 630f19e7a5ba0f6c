"""When what is open is looked at again: at once while something moves, else after a nap.

Theory of operation
-------------------
Whoever naps is late, and whoever does not takes a core from others. So a nap is 2 % of the time since something last
moved, and what is late is late by that much of its wait. A nap costs processor time by itself: the timer, the way into
the thread and back, and two polls with cold caches, 10 to 80 µs on one machine from one minute to the next. So naps
grow until they are 64 times as long as one costs, and 2 ms at least: whatever is open takes less than 2 % of a core, on
every machine. The first naps, of 20 µs, are beyond that: they are over in milliseconds.

Some transfers move 8 KB a poll (MPICH's in shared memory), and naps make seconds of their milliseconds. A poll that has
taken `_SLOW` times as long as the shortest one of a list as long has moved data, it seems, and the next one follows at
once. The first poll after a nap is slow by itself, and is not judged; the one right after it is. Where every poll of a
list has moved data, as in the first transfer of a program, the shortest one says nothing, and all would pass for idle
(the transfer took 50 times as long). So what an idle poll takes is measured before, on requests that nobody completes.

No such threshold is right everywhere: a poll that moves 8 KB takes 1.3 µs on one machine where an idle one takes 0.65,
and idle ones that seem as slow are common where ranks share cores, or where the clock has its own grain. So what slow
polls may take without a nap is bounded by what is open: by the time that its buffers take at 0.5 GB/s, ten times what
they need. What is complete takes its part with it: one that stays open among many that come and go has no more than its
own. Who waits for a message of some bytes naps, whatever polls look like; who waits for 16 MB spins for 32 ms of
processor time at worst. Without that bound, twice the shortest poll made 400 ms of a transfer of 6, and 1.5 times took
a core from ranks that had nothing but small messages open. What was spent in vain comes back with naps, at 1 % of their
time: where the other side is late by hours, its data is to move as quickly then.

No poll counts as shorter than the clock's grain, and the shortest one is forgotten by and by: it counts twice as long
after 11,000 judgements.

Times are given by the caller, so that the rule knows no clock.

Rejected: naps of a fixed length (20 µs: 36 % of a core; 2 ms: late by as much, and 1 to 4 % of a core); naps that go on
growing (a transfer of several steps is late at each of them); another way to nap (``time.sleep``, a lock, a semaphore,
``poll`` and the C library's ``nanosleep`` cost the same, within 3 µs of 15 to 60: it is the system's part of it).
"""

from __future__ import annotations

from math import inf

_SHORTEST_NAP_S = 20e-6
_NAP_SHARE = 0.02
"""Of the time since something last moved."""

_LONG_NAP_S = 2e-3
_NAP_OVER_COST = 64
"""The longest nap is the longer one of these: 2 ms, or so many times what a nap costs."""

_COST_WEIGHT = 1 / 16
"""Of the latest nap's cost in what is known of it."""

_SLOW = 1.4
"""A poll seems to have moved data that takes more than so many times as long as the shortest one of a list as long."""

_SLOWEST_BYTES_PER_S = 0.5e9
"""At which slow polls are believed to move what is open."""

_REGAINED_SHARE = 0.01
"""Of the time of a nap: what slow polls have spent no more after it."""

_MOVING_POLLS = 10
"""So many slow polls in a row mean that something has moved: on a core that was idle, some are slow by themselves."""

_AT_ONCE_S = 2e-4
"""How long to poll before the next judgement, while data moves: Python's part of one is as long as some polls."""

_FORGETTING = 1 + 1 / 16384
"""By how much the shortest poll of a list as long counts longer at each judgement."""

_LENGTHS = 1_000
"""Of how many lengths of the list the shortest poll is remembered."""


class Pace:
    """Decides after each poll whether the next one follows at once.

    A poll without progress takes at most ``idle_s`` of processor time and ``idle_each_s`` for each request. Two
    readings of the clock of polls may differ by ``grain_s``: no poll counts as shorter.
    """

    __slots__ = (
        "_cpu_s",
        "_grain_s",
        "_idle_each_s",
        "_idle_s",
        "_is_rested",
        "_n_open_bytes",
        "_n_slow",
        "_shortest_s",
        "_spent_s",
        "moved_s",
        "n_polls",
        "nap_cost_s",
    )

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
        """What slow polls may take for what is open."""
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
