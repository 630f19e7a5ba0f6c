"""Ordered tasks on a few streams: which stream each goes to, and what it has to wait for there.

Theory of operation
-------------------
Work on one stream is in order, so that only dependences between streams need waits. Each task has a *clock*: for each
stream the last position there that is known to be before it. A task goes to a stream whose last task is before it
anyway, if possible that of a predecessor; so a stream is shared only by tasks that follow each other, and nothing is
ordered that need not be. Where there is none, it takes a new stream; only where there are as many as allowed, the one
that came last longest ago.

Of its predecessors a task waits for those, the latest first, that its clock does not have already; each wait brings
with it all that was before. What is waited for later comes earlier in the order of generation, and so cannot make an
earlier wait superfluous: no wait can be left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Step(NamedTuple):
    """Where a task goes: the number of its stream, and the tasks on other streams whose ends it waits for."""

    stream: int
    waits: tuple[int, ...]


def branches(before: Sequence[Sequence[int]], limit: int) -> list[Step]:
    """Return the steps of tasks in an order of generation, on at most ``limit`` >= 1 streams.

    ``before`` has for each task the positions of its predecessors, each less than its own.
    """
    steps: list[Step] = []
    clocks: list[dict[int, int]] = []
    tails: list[int] = []  # the last task of each stream
    for at, found in enumerate(before):
        after = sorted(set(found), reverse=True)
        stream = _stream(after, steps, clocks, tails, limit)
        if stream == len(tails):
            tails.append(at)
            clock = {}
        else:
            clock = clocks[tails[stream]].copy()
            tails[stream] = at
        waits = []
        for other in after:
            if clock.get(steps[other].stream, -1) < other:
                waits.append(other)
                _join(clock, clocks[other])
        clock[stream] = at
        steps.append(Step(stream, tuple(waits)))
        clocks.append(clock)
    return steps


def _stream(
    after: Sequence[int], steps: Sequence[Step], clocks: Sequence[dict[int, int]], tails: Sequence[int], limit: int
) -> int:
    """Return the stream that a task goes to, which may be a new one."""
    for other in after:
        if tails[steps[other].stream] == other:
            return steps[other].stream
    known: dict[int, int] = {}
    for other in after:
        _join(known, clocks[other])
    for stream, position in known.items():
        if tails[stream] == position:
            return stream
    if len(tails) < limit:
        return len(tails)
    return min(range(len(tails)), key=tails.__getitem__)


def _join(clock: dict[int, int], other: dict[int, int]) -> None:
    """Take over what is before a task that is waited for."""
    for stream, position in other.items():
        if clock.get(stream, -1) < position:
            clock[stream] = position
