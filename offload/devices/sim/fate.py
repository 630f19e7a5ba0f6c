"""The fate of a simulated device: whether it is sound, lost or closed.

The first operation that raises seals it. Every lane then drops its operations, and the signals registered here release
all waits (of a host thread, or of a lane for an event). Lanes and threads hold the fate, never the device.
"""

from __future__ import annotations

import threading
import traceback
from typing import TYPE_CHECKING

from offload.errors import DeviceLostError

if TYPE_CHECKING:
    from queue import SimpleQueue


class Fate:
    """Whether a device is sound, lost or closed. Shared by everything of the device, and refers to none of it."""

    __slots__ = ("closed", "error", "lock", "name", "signals")

    def __init__(self, name: str) -> None:
        self.name = name
        self.error: BaseException | None = None
        self.closed = False
        self.signals: set[SimpleQueue[None]] = set()
        self.lock = threading.RLock()

    def lose(self, error: BaseException) -> None:
        """Seal the fate with the first error, and release all waits."""
        # The frames of the failed operation would keep its arrays, and their device memory, alive.
        failure: BaseException | None = error
        while failure is not None:
            traceback.clear_frames(failure.__traceback__)
            failure = failure.__cause__ or failure.__context__
        with self.lock:
            if self.error is None:
                self.error = error
        for signal in list(self.signals):
            signal.put(None)

    def lost(self) -> DeviceLostError:
        """Return the error to raise for a lost device."""
        cause = self.error
        error = DeviceLostError(
            f"device {self.name} is lost: work on it failed with {type(cause).__name__}: {cause}; later work there "
            "will not run; correct the failing work and open a new runtime"
        )
        error.__cause__ = cause
        return error

    def check(self) -> None:
        """Raise `DeviceLostError` if the device is lost."""
        if self.error is not None:
            raise self.lost()
