"""The gate: finds out which device work has passed, and says so to the host.

Theory of operation
-------------------
Whoever wants to know about a point in a stream adds an item with the event recorded there. Items of one
*lane* (a stream and what the runtime knows of it) pass in order. A stream callback posts one wake-up, with
no Python in it, and the one completer thread then asks the events how far each stream has got. At most one
callback is outstanding on a lane: it is enqueued at the tail and covers every item before it; when it has
fired and there are more items, the next is enqueued at what is then the tail. A stream that is kept busy so
pays for one callback per wake-up, not for one per task (a callback after every kernel costs 21 µs a kernel,
one after every tenth costs nothing that can be seen).

While nobody on the host waits, there is no callback at all: the completer asks a few hundred times a second, so that
tasks are let go. It is not woken for that: when nothing is left it goes on looking for a while before it sleeps until
it is called, since a wake-up in the middle of a series of launches costs those a change of threads. Somebody who waits
for everything makes the gate *hurry*: then each busy lane has its callback. An item that somebody waits for is
*watched*; a callback at the tail comes late for one far ahead of it, so while one is not the item right before its
lane's callback, the completer asks every 100 µs.

CUDA makes no callback after an error. With any callback outstanding the completer's wait ends after 50 ms
at the latest; the events of a failed device then raise, and every item of it fails.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from offload.events.wakeup import Wakeup

_ERROR_CHECK_S = 0.05
_WATCH_S = 100e-6
_CLOSE_S = 5.0
"""How long closing waits for events that no task waits for: every task is complete by then."""

_IDLE_S = 4e-3
"""Between two looks when nobody waits: rare enough to leave the GIL to whoever launches."""

_IDLE_LOOKS = 25
"""Looks that find nothing before the completer sleeps until it is called."""


class Item(Protocol):
    """Something that is to be told when a point in a stream has passed."""

    def passed(self, error: BaseException | None) -> None:
        """Take note; ``error`` says that the point will never pass."""


class Ticket:
    """An item at its point in a lane."""

    __slots__ = ("event", "item")

    def __init__(self, event: Any, item: Item) -> None:
        self.event = event
        self.item = item


class Gate:
    """One completer thread and the items that it looks after."""

    def __init__(self, wakeup: Wakeup) -> None:
        self._wakeup = wakeup
        self._lanes: dict[Any, deque[Ticket]] = {}
        self._armed: dict[Any, Ticket] = {}
        self._waiting: set[Item] = set()
        self._watched: set[Item] = set()
        self._hurried = 0
        self._idle_looks = 0
        self._sleeps = False  # until it is called
        self._lock = threading.Lock()
        self._closed = False
        self._thread: threading.Thread | None = None

    def add(self, lane: Any, event: Any, item: Item, *, watched: bool = False) -> None:
        """Tell ``item`` when ``event``, just recorded on the lane, has passed."""
        ticket = Ticket(event, item)
        with self._lock:
            tickets = self._lanes.get(lane)
            if tickets is None:
                tickets = self._lanes[lane] = deque()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._complete, name="offload-completer", daemon=True)
                    self._thread.start()
            tickets.append(ticket)
            self._waiting.add(item)
            armed = True
            if watched or self._hurried:
                if watched:
                    self._watched.add(item)
                armed = lane in self._armed
                if not armed:
                    self._arm(lane, ticket)
            calls = (watched and armed) or self._sleeps
            self._sleeps = False
        if calls:
            self._wakeup.post()

    def watch(self, item: Item) -> None:
        """Notice soon when the item passes: somebody on the host waits for it."""
        with self._lock:
            if item not in self._waiting:
                return  # it has passed
            self._watched.add(item)
        self._wakeup.post()

    def hurry(self) -> None:
        """Notice everything soon, until `relax`: somebody on the host waits for all that there is."""
        with self._lock:
            self._hurried += 1
            for lane, tickets in self._lanes.items():
                if lane not in self._armed:
                    self._arm(lane, tickets[-1])

    def relax(self) -> None:
        """Take back one `hurry`."""
        with self._lock:
            self._hurried -= 1

    def _arm(self, lane: Any, last: Ticket) -> None:
        self._armed[lane] = last
        try:
            lane.device.wake(lane.stream, self._wakeup)
        except Exception:  # noqa: BLE001  # a failed device: its events say so, at the next look
            self._wakeup.post()

    def _complete(self) -> None:
        while True:
            self._wakeup.wait(self._patience_s())
            if self._look():
                return

    def _look(self) -> bool:
        """Tell every item that has passed; return whether the gate is closed and nothing is left.

        A method of its own, so that the thread keeps nothing alive while it waits.
        """
        passed: list[tuple[Item, BaseException | None]] = []
        with self._lock:
            for lane, tickets in list(self._lanes.items()):
                self._advance(lane, tickets, passed)
            for item, _ in passed:
                self._waiting.discard(item)
                self._watched.discard(item)
            finished = self._closed and not self._lanes
        for item, error in passed:
            try:
                item.passed(error)
            except BaseException as unexpected:  # noqa: BLE001  # shown; the other items must hear of theirs
                threading.excepthook(
                    threading.ExceptHookArgs((type(unexpected), unexpected, unexpected.__traceback__, self._thread))
                )
        return finished

    def _advance(self, lane: Any, tickets: deque[Ticket], passed: list[tuple[Item, BaseException | None]]) -> None:
        """Take from the lane what has passed, and see that a callback is outstanding for the rest."""
        armed = self._armed.get(lane)
        has_passed = lane.device.passed
        error: BaseException | None = None
        n_passed = 0
        with suppress(Exception):  # a failed device: what had passed before is found below
            if len(tickets) > 1 and has_passed(tickets[-1].event):
                n_passed = len(tickets)  # nobody else takes from the lane, or adds to it meanwhile
        while tickets:
            ticket = tickets[0]
            if n_passed:
                n_passed -= 1
            else:
                try:
                    if error is None and not has_passed(ticket.event):
                        break
                except Exception as failure:  # noqa: BLE001  # goes to the item
                    error = failure
            passed.append((ticket.item, error))
            tickets.popleft()
            if ticket is armed:
                armed = None
                del self._armed[lane]
        if not tickets:
            del self._lanes[lane]
            self._armed.pop(lane, None)
        elif armed is None and (self._hurried or any(ticket.item in self._watched for ticket in tickets)):
            self._arm(lane, tickets[-1])

    def _patience_s(self) -> float | None:
        with self._lock:
            if self._watched:
                covered = {ticket.item for ticket in self._armed.values()}
                if not self._watched <= covered:
                    return _WATCH_S
            if not self._lanes:
                self._idle_looks += 1
                self._sleeps = self._idle_looks > _IDLE_LOOKS
                return None if self._sleeps else _IDLE_S
            self._idle_looks = 0
            return _ERROR_CHECK_S if self._hurried or self._watched else _IDLE_S

    def close(self) -> list[str]:
        """Let the completer end once every item has passed, and wait for it, but not for ever.

        Returns
        -------
        list of str
            The streams that did not get on; their items are forgotten.
        """
        with self._lock:
            self._closed = True
            thread = self._thread
        self._wakeup.post()
        if thread is None or thread is threading.current_thread():
            return []
        thread.join(_CLOSE_S)
        with self._lock:
            stuck = [f"stream {lane.number} of {lane.device.name}" for lane in self._lanes]
            self._lanes.clear()
        self._wakeup.post()
        thread.join()
        return stuck
