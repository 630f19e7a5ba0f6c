"""A loop on a device, in chunks of its outermost loop's trips, one ahead, until it has ended or nobody wants it.

A chunk takes a millisecond or more, so that the work between two of them does not count. Two are on the stream, so that
it never runs dry. Before each launch, the flag of the chunks that have passed is read: a device that was wrong launches
no further one. Then, and after a request to stop, it has ended as soon as the stream has passed the launched chunks.
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from offload.errors import DeviceLostError
from offload.loops.speculative.contest import RaceEvent

if TYPE_CHECKING:
    from offload.devices.base import Device
    from offload.loops.speculative.log_runs import LoggedRun

# What a chunk is to take: twice the least, since what is known of the last one is not what the next will take.
CHUNK_S: Final = 2e-3

_AHEAD: Final = 2
# The part of a loop of which nothing is known that the first chunk is.
_FIRST: Final = 8

_GROWTH: Final = 8


class _Flying(NamedTuple):
    event: Any  # behind the chunk
    trips: int  # in the chunk
    is_last: bool  # nothing follows it


class DeviceChunks:
    """The device's side of a race; the whole loop is expected to take ``expected_s``."""

    def __init__(self, logged: LoggedRun, device: Device, stream: Any, expected_s: float | None = None) -> None:
        self._logged, self._device, self._stream = logged, device, stream
        self._next = 0  # the first trip that is not launched
        self._flying: deque[_Flying] = deque()  # chunks on the stream, the oldest first
        self._is_stopped = False  # nothing more is launched
        self._begun_s = self._passed_s = 0.0  # when the first chunk was launched
        if logged.is_whole or not logged.trips:
            self._size = max(logged.trips, 1)
        elif expected_s:
            self._size = _rounded(logged.trips * min(1.0, CHUNK_S / expected_s))
        else:
            self._size = max(1, logged.trips // _FIRST)
        self.violation: Any = None  # what was wrong, as `LoggedRun.found` tells it, or an exception of a launch
        self.taken_s: float | None = None  # from the first launch to the end, of a device that was clean

    def start(self) -> None:
        """Launch the first chunks."""
        self._begun_s = self._passed_s = perf_counter()
        self._launch()

    def stop(self) -> None:
        """Launch nothing more."""
        self._is_stopped = True

    def poll(self) -> RaceEvent | None:
        """Look at the stream, and launch the next chunk; return how the device has ended, if it has."""
        while self._flying and self._device.passed(self._flying[0].event):
            chunk = self._flying.popleft()
            self._note(chunk)
            if self.violation is None and not self._is_stopped:
                self.violation = self._logged.found()
            if chunk.is_last and self.violation is None and not self._is_stopped and self._logged.is_open:
                self._settle()
                continue
            if chunk.is_last and self.violation is None:
                self.taken_s = perf_counter() - self._begun_s
                return RaceEvent.DEVICE_CLEAN if not self._is_stopped else RaceEvent.DEVICE_STOPPED
        if not self._is_stopped and self.violation is None:
            self._launch()
        if self._flying:
            return None
        return RaceEvent.DEVICE_STOPPED if self._is_stopped else RaceEvent.DEVICE_WRONG

    def drain(self) -> None:
        """Wait until nothing of it is in flight, be the device lost."""
        self.stop()
        with suppress(DeviceLostError):
            self._stream.synchronize()
        self._flying.clear()

    def _note(self, chunk: _Flying) -> None:
        """Take the length of the next chunks from one that has passed."""
        now_s = perf_counter()
        took_s = max(now_s - self._passed_s, 1e-6)
        self._passed_s = now_s
        if chunk.trips and not self._logged.is_whole:
            self._size = _rounded(chunk.trips * min(_GROWTH, CHUNK_S / took_s))

    def _settle(self) -> None:
        """Launch the exact check if the log is not certain; an error of it is a violation."""
        try:
            self._logged.settle()
            self._flying.append(_Flying(self._device.record(self._stream), 0, is_last=True))
        except DeviceLostError:
            raise
        except Exception as error:  # noqa: BLE001  # as below
            self.violation = error.with_traceback(None)

    def _launch(self) -> None:
        """Keep two chunks on the stream; an error of a launch is a violation."""
        try:
            while len(self._flying) < _AHEAD and not (self._flying and self._flying[-1].is_last):
                begin, end = self._next, min(self._next + self._size, self._logged.trips)
                if begin < end:
                    self._logged.launch(begin, end)
                is_last = end == self._logged.trips
                if is_last:
                    self._logged.finish()
                else:
                    self._logged.ask()
                self._next = end
                self._flying.append(_Flying(self._device.record(self._stream), end - begin, is_last))
        except DeviceLostError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the host's result is right
            self.violation = error.with_traceback(None)  # whose frames would keep arrays


def _rounded(trips: float) -> int:
    """Return a power of 2 near a number of trips, so that calls cut a loop alike and find the prepared chunks."""
    return 1 << max(0, round(math.log2(max(trips, 1))))
