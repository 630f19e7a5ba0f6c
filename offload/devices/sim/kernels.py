"""Kernels of a simulated device: functions of this process, each launch one operation of a stream.

The device's processor is the host's. A program has its own functions for the host (`offload.devices.base.Program`),
compiled or interpreted, so nothing is compiled here. A function that raises loses the device, as every operation does.
A kernel therefore has to report wrong data in another way.
"""

from __future__ import annotations

import platform
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offload.devices.base import Kernel, Program


class SimKernels:
    """How a simulated device is given functions to run; see `offload.devices.base.Kernels`."""

    dialect: Literal["c"] = "c"
    target = platform.machine()

    def load(self, program: Program) -> Mapping[str, Kernel]:
        """Return the kernels of a program by name, as the host runs them."""
        return {name: SimKernel(function) for name, function in program.on_host().items()}

    def time(self, stream: Any) -> list[float]:
        """Return an object that holds the time, in seconds, once the stream has got here."""
        times: list[float] = []
        stream.launch(_note_time, times)
        return times

    def seconds(self, first: list[float], last: list[float]) -> float:
        """Return the seconds between two times."""
        return last[0] - first[0]


def _note_time(times: list[float]) -> None:
    times.append(perf_counter())


class SimKernel:
    """A function that a simulated device runs; see `offload.devices.base.Kernel`."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[tuple[int, ...], Any], object]) -> None:
        self._function = function

    def launch(
        self, stream: Any, grid: tuple[int, ...], block: tuple[int, ...], shared_nbytes: int, arguments: Any
    ) -> None:
        """Enqueue ``function(grid, arguments)``."""
        stream.launch(self._function, grid, arguments)
