"""``OFFLOAD_NOTIFY``: the actions of a runtime, line by line on stderr, like ``NVCOMPILER_ACC_NOTIFY``.

Level 1 has the launches, each loop's with its configuration, and the decisions about loops that are only probably
parallel. Level 2 adds the copies, except those inside a graph of the device. Level 3 adds the waits that the program
asks the host to make. A line is written in one call, so those of several threads do not mix. The place of a region is
that of its function; a loop has the line of its nest.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import label
from offload.interrupts.frames import caller

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Notifier:
    """Writes the lines of one runtime, for ``OFFLOAD_NOTIFY`` of 1 to 3.

    ``number_of`` returns the number of the device that an array is on; None on the host.
    """

    __slots__ = ("_level", "_number_of")

    def __init__(self, level: int, number_of: Callable[[Any], int | None]) -> None:
        self._level = level
        self._number_of = number_of  # the number of the device of an array

    def launch(self, directive: str, name: str, location: str, device_num: int, queue: int | None) -> None:
        """Tell of a body, or a graph, that a device task launches."""
        _write(f"launch {directive} {name}{_at(location)}{_on(device_num, () if queue is None else (queue,))}")

    def kernel(self, name: str, location: str, device_num: int, queue: int | None, configuration: str) -> None:
        """Report the launch of a loop's kernel on a device, and its configuration."""
        _write(f"kernel {name}{_at(location)}{_on(device_num, () if queue is None else (queue,))} {configuration}")

    def copy(self, dst: Any, src: Any, device_num: int, queue: int | None, text: object) -> None:
        """Tell of a copy that a device has been given; ``text`` is the name of its list item."""
        if self._level < 2:  # transfers
            return
        is_upload, is_download = isinstance(src, np.ndarray), isinstance(dst, np.ndarray)
        word = "upload" if is_upload else "download" if is_download else "copy"
        array = src if is_upload else dst
        what = label(array)
        if text:
            what = f"{text}: {what}" if isinstance(text, str) else str(text)
        source = "" if is_upload or is_download else f" from={self._number_of(src)}"
        at_queue = "" if queue is None else f" queue={queue}"
        _write(f"{word} {what} bytes={array.nbytes} device={device_num}{source}{at_queue}")

    def wait(self, what: str, device_num: int | None = None, queues: Sequence[int] = ()) -> None:
        """Tell that the program waits, for the tasks of these queues or as ``what`` says."""
        if self._level < 3:  # waits
            return
        what = what.removeprefix("the ").removeprefix("wait ")  # the wait clause
        _write(f"wait {what}{_at(_here())}{_on(device_num, queues)}")

    def speculate(self, name: str, location: str, device_num: int, text: str) -> None:
        """Tell how a loop that is only probably parallel runs, and why."""
        _write(f"speculate {name}{_at(location)}{_on(device_num, ())} {text}")


def _at(location: str) -> str:
    path, colon, line = location.rpartition(":")
    return f" file={path} line={line}" if colon else ""


def _on(device_num: int | None, queues: Sequence[int]) -> str:
    device = "" if device_num is None else f" device={device_num}"
    return device + (f" queue={','.join(map(str, queues))}" if queues else "")


def _here() -> str:
    """Return the line of the program that is being run."""
    frame = caller()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _write(line: str) -> None:
    stream = sys.stderr
    if stream is not None:
        with suppress(OSError, ValueError):  # a stream that is closed: the program goes on
            stream.write(f"{line}\n")
