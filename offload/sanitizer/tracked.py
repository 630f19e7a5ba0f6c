"""Tracked arrays: NumPy arrays whose accesses by the program are noted.

`sink` receives the accesses. It is None unless a runtime of the process is sanitized or a program is recorded. Set it
by `set_sink`: the name ``offload.sanitizer.tracked`` is also the function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from offload.sanitizer.accesses import accesses_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    Arrays: TypeAlias = Sequence[np.ndarray[Any, Any]]


class Sink(Protocol):
    """The receiver of accesses."""

    def note(self, reads: Arrays, writes: Arrays, device: Any) -> None:
        """Note one operation of the program, on the thread that carries it out.

        ``reads`` and ``writes`` are plain arrays over exactly the elements that the operation reads and writes. The
        reads come first. ``device`` is the device whose hidden storage the arrays lie in, or None for host arrays.
        """

    def given_away(self, storage: np.ndarray[Any, Any], device: Any) -> None:
        """Note that the program has received memory whose accesses cannot be seen from now on."""


sink: Sink | None = None


def set_sink(new: Sink | None) -> Sink | None:
    """Have another sink receive the accesses, or none; return the sink before it."""
    global sink  # one for the process, as arrays belong to no runtime
    before, sink = sink, new
    return before


class DeviceWatch:
    """Passes the operations on the arrays of simulated devices to a sink (`offload.devices.kind.ArrayWatch`).

    Parameters
    ----------
    sink : Sink
        Receives the accesses, with the device.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def called(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, device: Any
    ) -> None:
        """Note a call of a NumPy function with the hidden storage of a device's arrays."""
        reads, writes = accesses_of(function, args, kwargs, result)
        if reads or writes:
            self._sink.note(reads, writes, device)

    def accessed(self, reads: Arrays, writes: Arrays, device: Any) -> None:
        """Note an operation that reads and writes the hidden storage of a device's arrays."""
        self._sink.note(reads, writes, device)

    def given_away(self, storage: np.ndarray[Any, Any], device: Any) -> None:
        """Note that the program has received the hidden storage of an array."""
        self._sink.given_away(storage, device)
