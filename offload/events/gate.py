"""The gate: finds out which device work has passed, and informs the host.

The points of a lane pass in order. A stream callback posts one wake-up; the completer thread then asks the events how
far each stream has got. A lane has at most one callback, at its tail, and only if a thread waits for one of its points
(*watched*) or for everything (*hurry*). Otherwise the completer polls. A launch adds its point without the lock: it
owns the lane until then. All else happens under the lock. A thread that waits for its own launch alone asks for the
point before it adds it (`Gate.arrives`, `Gate.tell`): most have passed by then. See docs/design/theory.md, "The gate".
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from offload.errors import DeviceError
from offload.interrupts.shields import Shield, make_room

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.events.wakeup import Wakeup

_WATCH_S, _LONG_WATCH_S = 100e-6, 1e-3
_LONG = 200  # Looks in vain from which on a wait is a long one

_IDLE_S = 4e-3  # Between two looks when nobody waits: rare enough to leave the GIL to whoever launches

_FRAMES = 16  # Python's frames that telling an item takes, with some to spare

_IDLE_LOOKS = 25  # Looks that find nothing before the completer sleeps until it is called


class GateItem(Protocol):
    """Something that is to be told when a point in a stream has passed."""

    @property
    def is_quiet(self) -> bool:
        """Whether `passed` runs no code of the user's, so that any thread may call it."""

    def passed(self, error: BaseException | None) -> None:
        """Take note; ``error`` says that the point will never pass."""


class GatePoint(Protocol):
    """A place on a lane."""

    event: Any  # recorded there; None once it has passed
    item: Any  # the one to inform when it has passed; None before and after
    lane: Any
    sequence: int  # the order of the points of a lane


class Gate:
    """One completer thread and its items."""

    def __init__(self, wakeup: Wakeup, *, others_look: bool = False) -> None:
        self.close_s = 5.0  # how long closing waits for events that no task waits for: every task is complete by then
        self._wakeup = wakeup  # callbacks post it
        self._others_look = others_look  # whether waiting threads look themselves
        self._lanes: dict[Any, deque[GatePoint]] = {}
        self._armed: dict[Any, GatePoint] = {}
        self.watched: dict[GatePoint, None] = {}  # points that somebody on the host waits for, the oldest first
        self.has_told = False  # one of them has passed; for a thread that launches, which takes it back
        self._told: deque[tuple[GateItem, BaseException | None]] = deque()  # what has passed, and is being told
        self._hurried = 0
        self._looks_in_vain = 0
        self._sleeps = False  # until it is called
        self._dozes = True  # between two looks that are rare
        self._is_sorting = False  # the points of a lane; who adds one waits for the lock then
        self._n_looks = self._n_looks_before = 0
        self._lock = threading.Lock()
        self._closed = False
        self._thread: threading.Thread | None = None

    def add(self, point: GatePoint, item: GateItem, *, watched: bool = False) -> None:
        """Tell ``item`` when the point, just marked on its lane, has passed."""
        point.item = item
        lane = point.lane
        lanes = self._lanes
        if not watched and lane in lanes:
            points = lanes.get(lane)
            try:
                is_last = points is not None and points[-1].sequence < point.sequence
            except IndexError:
                is_last = False  # it has just been emptied, and may be taken away
            if is_last and not (self._hurried or self._sleeps or self._is_sorting):
                points.append(point)  # type: ignore[union-attr]  # there are some
                if lanes.get(lane) is points or point.item is None:
                    return
        with self._lock:
            if lane in lanes:
                points = lanes[lane]
            else:
                points = lanes[lane] = deque()
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=Shield.around(self._complete), name="offload-completer", daemon=True
                    )
                    self._thread.start()
            if points and points[-1].sequence > point.sequence:
                self._insert(points, point)
            else:
                points.append(point)
            if not (watched or self._hurried or self._sleeps):
                return
            if watched:
                self.watched[point] = None
                self._looks_in_vain = 0
            if self._others_look:
                calls = self._is_called()
            else:
                is_armed = lane in self._armed
                if not is_armed and (watched or self._hurried):
                    self._arm(point)
                calls = (watched and is_armed) or self._sleeps
                self._sleeps = False
        if calls:
            self._wakeup.post()

    def _insert(self, points: deque[GatePoint], point: GatePoint) -> None:
        """Put a point among those of its lane: another thread has marked that later, and was quicker."""
        self._is_sorting = True
        try:
            later = []
            while points and points[-1].sequence > point.sequence:
                later.append(points.pop())
            points.append(point)
            points.extend(reversed(later))
        finally:
            self._is_sorting = False

    def watch(self, point: GatePoint) -> None:
        """Notice soon when the point passes: somebody on the host waits for it."""
        with self._lock:
            if point.item is None:
                return  # it has passed
            self.watched[point] = None
            self._looks_in_vain = 0
            calls = self._is_called() or not self._others_look
        if calls:
            self._wakeup.post()

    def _is_called(self) -> bool:
        """Tell whether the completer has to be woken to look more often, which it is once."""
        called, self._dozes, self._sleeps = self._dozes, False, False
        return called

    def glance(self) -> bool:
        """Tell the oldest item that somebody waits for, if its point has passed and it is quiet; return whether."""
        # A thread that launches calls this, because the completer would have to get the GIL from it.
        item: GateItem | None = None
        try:
            with self._lock:
                for point in self.watched:
                    if point.item is None or point.item.is_quiet:
                        break
                else:
                    return False
                try:
                    if point.item is None or point.event is None or not point.lane.device.passed(point.event):
                        return False
                except DeviceError:
                    return False  # the completer will find it
                make_room(_FRAMES)
                item, point.item = point.item, None
                del self.watched[point]
                self.has_told = True
            item.passed(None)
        except BaseException:
            if item is not None:
                self._leave(item, None)
            raise
        return True

    def hurry(self) -> None:
        """Notice everything soon, until `relax`: somebody on the host waits for all that there is."""
        with self._lock:
            self._hurried += 1
            self._looks_in_vain = 0
            calls = self._others_look and bool(self._lanes) and self._is_called()
            if not self._others_look:
                for lane, points in self._lanes.items():
                    if points and lane not in self._armed:
                        self._arm(points[-1])
        if calls:
            self._wakeup.post()

    def relax(self) -> None:
        """Take back one `hurry`."""
        with self._lock:
            self._hurried -= 1

    def _arm(self, last: GatePoint) -> None:
        lane = last.lane
        self._armed[lane] = last
        try:
            lane.device.wake(lane.stream, self._wakeup)
        except Exception:  # noqa: BLE001  # a failed device: its events say so, at the next look
            self._wakeup.post()

    def _complete(self) -> None:
        self._wakeup.sharpen()
        while True:
            self._wakeup.wait(self._patience_s())
            if self.look():
                return

    def look(self) -> bool:
        """Tell every item that has passed; return whether the gate is closed and nothing is left."""
        # The completer does so; so may a thread that waits, which then need not be woken. Whoever tells items runs what
        # they have to run, callbacks of tasks for one. One that waits in a callback tells those that are left.
        with self._lock:
            self._n_looks += 1
            for lane, points in list(self._lanes.items()):
                self._advance(lane, points)
            if self._told:
                self._looks_in_vain = 0
            finished = self._closed and not self._lanes
        if self._told:
            self._tell()
        return finished

    def arrives(self, point: GatePoint) -> bool:
        """Tell the items of a lane up to a point, if it has passed; return whether it has."""
        # For a thread that waits for that point alone, and as `look`: the lane is asked once, and the others not at
        # all. The item of a point that has not been added is left to the caller (`tell`).
        event, lane = point.event, point.lane
        try:
            # Where the event has been recorded anew meanwhile, and has passed again, the point has passed too.
            if event is not None and not lane.device.passed(event):
                return False
        except DeviceError:
            is_added = point.item is not None
            self.look()
            return is_added
        if lane in self._lanes:
            with self._lock:
                points = self._lanes.get(lane)
                if points:
                    n_passed = 0
                    while n_passed < len(points) and points[n_passed].sequence <= point.sequence:
                        n_passed += 1  # no iterator: others may be added meanwhile
                    self._take(lane, points, n_passed)
                self._looks_in_vain = 0
            self._tell()
        return True

    def tell(self, point: GatePoint, item: GateItem) -> None:
        """Tell an item whose point has passed and has not been added: the caller has asked (`arrives`) instead."""
        event, point.event = point.event, None  # nobody has to wait for it
        if event is not None:
            point.lane.device.reuse([event])
        try:
            item.passed(None)
        except BaseException:
            self._leave(item, None)
            raise

    def _tell(self) -> None:
        """Notify the items that have passed."""
        told = self._told
        try:
            for item, error in iter(told.popleft, None):  # no signal handler runs in between
                try:
                    item.passed(error)
                except BaseException as unexpected:
                    if threading.current_thread() is not self._thread:
                        self._leave(item, error)
                        raise
                    threading.excepthook(  # the other items must hear of theirs
                        threading.ExceptHookArgs((type(unexpected), unexpected, unexpected.__traceback__, self._thread))
                    )
        except IndexError as end:
            if end.__traceback__.tb_next is not None:  # type: ignore[union-attr]  # a handler's, which has a frame
                raise

    def _leave(self, item: GateItem, error: BaseException | None) -> None:
        """Have the completer tell an item again: a signal handler has cut that short, and most of it may be left."""
        self._told.append((item, error))
        self._wakeup.post()

    def _advance(self, lane: Any, points: deque[GatePoint]) -> None:
        """Take the passed points from the lane, and make sure that a callback is outstanding for the rest."""
        error: BaseException | None = None
        try:
            n_passed = _count_passed(lane.device.passed, points) if points else 0
        except Exception as failure:
            if not isinstance(failure, DeviceError) and threading.current_thread() is not self._thread:
                raise  # a signal handler's, on a thread that waits
            error, n_passed = failure, len(points)
        self._take(lane, points, n_passed, error)

    def _take(self, lane: Any, points: deque[GatePoint], n_passed: int, error: BaseException | None = None) -> None:
        """Take the first points from a lane; some of them have not passed where there is an error."""
        armed, watched, told = self._armed.get(lane), self.watched, self._told
        events = []
        for _ in range(n_passed):  # a signal handler may end it anywhere; the next look then goes on
            point = points[0]
            fate = None if error is None or _had_passed(lane.device.passed, point) else error
            if watched and point in watched:
                del watched[point]
                self.has_told = True
            if point is armed:
                armed = None
                del self._armed[lane]
            item = point.item
            if item is not None:  # else a thread that launches has been quicker
                point.item = None
                told.append((item, fate))
            points.popleft()
            if fate is None:
                events.append(point.event)
                point.event = None  # nobody has to wait for it
        if events:
            lane.device.reuse(events)
        if not points:
            del self._lanes[lane]
            self._armed.pop(lane, None)
        elif (
            armed is None
            and (not self._others_look or self._looks_in_vain >= _LONG)
            and (self._hurried or any(point.lane is lane for point in watched))
        ):
            self._arm(points[-1])

    def _patience_s(self) -> float | None:
        with self._lock:
            self._looks_in_vain += 1
            n_by_others = self._n_looks - self._n_looks_before - 1
            self._n_looks_before = self._n_looks
            if self._lanes and (self._hurried or self.watched):
                is_long = self._dozes = self._looks_in_vain >= _LONG
                return _LONG_WATCH_S if is_long or (n_by_others > 0 and self._others_look) else _WATCH_S
            self._dozes = True
            self._sleeps = not self._lanes and self._looks_in_vain > _IDLE_LOOKS
            return None if self._sleeps else _IDLE_S

    def close(self) -> list[str]:
        """Let the completer end once every item has passed, and wait for it, but not for ever.

        Return the streams that made no progress; their items are forgotten.
        """
        with self._lock:
            self._closed = True
            thread = self._thread
        self._wakeup.post()
        if thread is None or thread is threading.current_thread():
            return []
        thread.join(self.close_s)
        with self._lock:
            stuck = [f"stream {lane.number} of {lane.device.name}" for lane in self._lanes]
            self._lanes.clear()
        self._wakeup.post()
        thread.join()
        return stuck


def _count_passed(has_passed: Callable[[Any], bool], points: deque[GatePoint]) -> int:
    """Return how many of the first points have passed, by few questions: all, or else by doubling and halving."""
    # Others may be added meanwhile.
    n_points = len(points)
    if has_passed(points[n_points - 1].event):
        return n_points
    step, passed = 1, 0
    while passed + step < n_points and has_passed(points[passed + step - 1].event):
        passed += step
        step *= 2
    behind = min(passed + step, n_points)  # that many have not all passed
    while passed + 1 < behind:
        middle = (passed + behind) // 2
        if has_passed(points[middle - 1].event):
            passed = middle
        else:
            behind = middle
    return passed


def _had_passed(has_passed: Callable[[Any], bool], point: GatePoint) -> bool:
    """Tell whether a point had passed before its device failed."""
    try:
        return has_passed(point.event)
    except Exception:  # noqa: BLE001  # the failure
        return False
