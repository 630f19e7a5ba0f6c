"""How one thread sleeps until somebody has something for it."""

from __future__ import annotations

import threading


class Parker:
    """Lets one thread sleep until somebody has something for it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def park(self, timeout_s: float = -1) -> bool:
        """Block until `unpark`, which may have come before; return false at a timeout."""
        return self._lock.acquire(timeout=timeout_s)

    def unpark(self, _: object = None) -> None:
        """Wake the thread, or keep it from the next sleep; may be the callback of a task."""
        if not self._lock.locked():
            return  # awake already
        try:
            self._lock.release()
        except RecursionError:
            raise  # which is a RuntimeError as well
        except RuntimeError:
            return  # awake already
