"""The order in which calls of MPI are issued: the order of their constructs.

Each call has a *turn*, taken at its construct. It is issued when it has *arrived* (its task has begun) and no turn
before it is open. A waiting call holds no thread: the thread that issues a call goes on with those after it that have
arrived. After a call that is *left out*, later ones are left out too, because they would match the wrong partner. This
file knows no MPI. See docs/design/theory.md, "The order of calls".

MPI 4.1, 3.5 "Semantics of Point-to-Point Communication", 6.12 "Nonblocking Collective Operations".
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable


class Ordered(Protocol):
    """A call that has a turn."""

    @property
    def given_up(self) -> str:
        """The calls left out because the runtime of one was closed before its turn; else empty."""

    def go(self) -> Iterable[Turn]:
        """Issue the call, or fail if its turn is left out; return the turns that are due then. Never raises."""


class Turn:
    """The place of a call in an order."""

    __slots__ = ("after", "before", "call", "has_arrived", "is_over", "left_out", "places")

    def __init__(self, call: Ordered) -> None:
        self.call: Ordered | None = call  # None once it is over, because the last turns are kept
        self.places: list[tuple[dict[Hashable, Turn], Hashable]] = []  # where it is the last, or was
        self.before: dict[Turn, None] = {}  # the open turns that it follows
        self.after: list[Turn] = []  # the turns that follow it
        # has_arrived: the call itself is ready to be issued; is_over: it has been issued, or has failed
        self.has_arrived = self.is_over = False
        # the first call that was left out and keeps this one from being issued; empty if there is none
        self.left_out = ""


class Turns:
    """The turns of one communicator."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the turns and the tables
        self._last: dict[Hashable, Turn] = {}  # by key
        self._last_received: dict[Hashable, Turn] = {}  # since the last receive with a wildcard
        self._wildcard: dict[Hashable, Turn] = {}  # the last one of those, if there is one

    def enter(
        self, turn: Turn, keys: Iterable[Hashable], *, receives: Hashable = None, is_wildcard: bool = False
    ) -> None:
        """Give a call its turn, after those that have entered with one of the ``keys``.

        ``receives`` is the key among receives, if the call is one; if it ``is_wildcard``, it is in order with all
        receives.
        """
        with self._lock:
            for key in keys:
                _come_after_last(turn, self._last, key)
            if is_wildcard:
                for other in self._last_received.values():
                    _come_after(turn, other)
                self._last_received.clear()
                _come_after_last(turn, self._wildcard, None)
            elif receives is not None:
                for other in self._wildcard.values():
                    _come_after(turn, other)
                _come_after_last(turn, self._last_received, receives)

    def arrive(self, turn: Turn) -> bool:
        """Note that a call is ready to be issued; return whether it is also its turn."""
        with self._lock:
            turn.has_arrived = True
            return _is_due(turn)

    def passed(self, turn: Turn) -> list[Turn]:
        """Note that a call has been issued; return the turns that are due now."""
        with self._lock:
            turn.is_over = True
            for last, key in turn.places:
                if last.get(key) is turn:
                    del last[key]
            return _let_go(turn)

    def leave_out(self, turn: Turn, what: str) -> list[Turn]:
        """Note that a call is not issued, if it was not before; return the turns that are due now: they fail."""
        with self._lock:
            if turn.is_over:
                return []
            turn.is_over = True
            turn.left_out = turn.left_out or what
            found, unknown = [], [turn]
            while unknown:
                left = unknown.pop()
                for other in left.after:
                    if not other.left_out:
                        other.left_out = turn.left_out
                        unknown.append(other)
                        if other.has_arrived:
                            found.append(other)
            return [*found, *_let_go(turn)]


def _come_after_last(turn: Turn, last: dict[Hashable, Turn], key: Hashable) -> None:
    """Have a turn come after the last one with a key, and be the last."""
    other = last.get(key)
    if other is not None:
        _come_after(turn, other)
    last[key] = turn
    turn.places.append((last, key))


def _come_after(turn: Turn, other: Turn) -> None:
    turn.left_out = turn.left_out or other.left_out
    if not turn.left_out and other.call is not None:
        turn.left_out = other.call.given_up
    if not other.is_over and other not in turn.before:
        turn.before[other] = None
        other.after.append(turn)


def _is_due(turn: Turn) -> bool:
    return turn.has_arrived and (bool(turn.left_out) or not turn.before)


def _let_go(turn: Turn) -> list[Turn]:
    """Take a turn that is over out of the way of those behind it; return which are due by that."""
    turn.call = None
    after, turn.after = turn.after, []
    for other in after:
        other.before.pop(turn, None)
    return [other for other in after if not other.left_out and not other.is_over and _is_due(other)]
