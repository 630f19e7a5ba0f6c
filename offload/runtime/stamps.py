"""Times on streams, on the host's clock: of bodies and copies, only while a log collects them."""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.events.log import TaskLog


def stamp(place: Any, lane: Any) -> Any:
    """Have a stream note the time when it gets here; None where the device cannot."""
    kernels = place.device.kernels
    if place.plans and lane is not None:
        return place.device.note_time(lane.stream)
    if kernels is None or lane is None or lane.stream is None:
        return None
    with suppress(Exception):  # a device that is lost, or closed
        return kernels.time(lane.stream)
    return None


def noter(
    log: TaskLog, at: tuple[int, Any, int], direction: str, nbytes: int, label: str
) -> Callable[[float, float], None]:
    """Return a function that notes the times of a copy that threads carry out."""

    def note(start_s: float, end_s: float) -> None:
        log.spans.append(("staged", *at, start_s, end_s, direction, nbytes, label))

    return note


class TimedCopy:
    """A copy that threads carry out, and its times."""

    __slots__ = ("_copy", "_note")

    def __init__(self, copy: Any, note: Callable[[float, float], None]) -> None:
        self._copy = copy
        self._note = note

    def start(self, done: Callable[[BaseException | None], None]) -> None:
        start_s = perf_counter()

        def timed(error: BaseException | None) -> None:
            self._note(start_s, perf_counter())
            done(error)

        self._copy.start(timed)

    def run(self) -> None:
        start_s = perf_counter()
        self._copy.run()
        self._note(start_s, perf_counter())


class DeviceClock:
    """The clock of a device, compared with the host's at the beginning and at the end.

    A simulated device notes the host's time. A CUDA event knows only how long it came after another one; so one is
    recorded at each end of the time that is observed, while the host reads its own clock.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self._first = self._anchor()
        self._last: tuple[Any, float] | None = None

    def end(self) -> None:
        """Compare the clocks once more: times between are interpolated."""
        self._last = self._anchor()

    def _anchor(self) -> tuple[Any, float] | None:
        kernels = self.device.kernels
        if kernels is None or kernels.dialect != "cuda":
            return None  # its times are the host's
        with suppress(Exception):  # a device that is lost, or closed
            stream = self.device.new_stream()
            stream.synchronize()
            held = kernels.time(stream)
            before_s = perf_counter()
            stream.synchronize()
            return held, (before_s + perf_counter()) / 2
        return None

    def seconds_of(self, held: Any) -> float | None:
        """Return the time that a stream has noted, on the host's clock; None if it has not got there."""
        times: Any = held
        if isinstance(held, list):
            times = held[0] if held else None
        if times is None or isinstance(times, float):
            return None if times is None else float(times)
        if self._first is None:
            return None
        base, base_s = self._first
        with suppress(Exception):  # not passed, or the device is lost
            kernels = self.device.kernels
            at_s = float(kernels.seconds(base, held))
            if self._last is not None and (whole_s := float(kernels.seconds(base, self._last[0]))) > 0:
                at_s *= (self._last[1] - base_s) / whole_s
            return float(base_s + at_s)
        return None


def set_up(log: TaskLog, runtime: Any) -> None:
    """Note the threads and devices of a runtime that a log is about to observe."""
    log.name_threads()
    for place in runtime.places:
        device = place.device
        log.names[device.number] = device.name
        if device not in log.clocks:
            log.clocks[device] = DeviceClock(device)


def settle(log: TaskLog, devices: Sequence[Any] = ()) -> None:
    """Give the spans of a log times of the host's clock; of devices that are given, which end, also the last ones."""
    for device in devices:
        if device in log.clocks:
            log.clocks[device].end()
    spans = log.spans
    for at, span in enumerate(spans.copy()):
        what, number, device, lane, first, last, *rest = span
        if isinstance(first, float) and isinstance(last, float):
            continue
        clock = log.clocks.get(device)
        start_s, end_s = (None, None) if clock is None else (clock.seconds_of(first), clock.seconds_of(last))
        if start_s is not None and end_s is not None:
            spans[at] = (what, number, device, lane, start_s, max(start_s, end_s), *rest)
