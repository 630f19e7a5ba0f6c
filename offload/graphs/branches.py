"""Ordered tasks on a few streams: the stream of each, and its waits there.

Each task has a *clock*: for each stream the last position there that is known to be before it. A task goes to a stream
of its device whose last task is before it anyway, else to a new one, and waits for the predecessors that its clock
lacks. No wait can be left out. See docs/design/theory.md, "Branches".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Step(NamedTuple):
    """The stream of a task, by its number, and the tasks on other streams whose ends it waits for."""

    stream: int
    waits: tuple[int, ...]
    kind: int = 0  # the number of the device, as the caller numbers them


def branches(before: Sequence[Sequence[int]], limit: int, kinds: Sequence[int] | None = None) -> list[Step]:
    """Return the steps of tasks in an order of generation, on at most ``limit`` streams.

    A device without a stream gets one in any case. ``before`` has for each task the positions of its predecessors, each
    less than its own, and ``kinds`` the number of its device.
    """
    kinds = kinds or [0] * len(before)
    steps: list[Step] = []
    clocks: list[dict[int, int]] = []
    tails: list[int] = []  # the last task of each stream
    for at, found in enumerate(before):
        after = sorted(set(found), reverse=True)
        stream = _stream(after, kinds[at], steps, clocks, tails, limit)
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
        steps.append(Step(stream, tuple(waits), kinds[at]))
        clocks.append(clock)
    return steps


def _stream(
    after: Sequence[int],
    kind: int,
    steps: Sequence[Step],
    clocks: Sequence[dict[int, int]],
    tails: Sequence[int],
    limit: int,
) -> int:
    """Return the stream that a task goes to, which may be a new one."""
    for other in after:
        if tails[steps[other].stream] == other and steps[other].kind == kind:
            return steps[other].stream
    known: dict[int, int] = {}
    for other in after:
        _join(known, clocks[other])
    for stream, position in known.items():
        if tails[stream] == position and steps[position].kind == kind:
            return stream
    alike = [stream for stream, tail in enumerate(tails) if steps[tail].kind == kind]
    if len(tails) < limit or not alike:
        return len(tails)
    return min(alike, key=tails.__getitem__)


def _join(clock: dict[int, int], other: dict[int, int]) -> None:
    """Merge the clock of a task that is waited for."""
    for stream, position in other.items():
        if clock.get(stream, -1) < position:
            clock[stream] = position
