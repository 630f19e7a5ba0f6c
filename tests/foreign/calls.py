"""Prints, as JSON, how many calls operations on present objects of some kinds make: a program of `test_cost`."""

from __future__ import annotations

import array
import ctypes
import gc
import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from offload import inout, out, tofrom
from tests.foreign.kinds import HAS, Exchanged, Interfaced, library

if TYPE_CHECKING:
    from collections.abc import Callable

N_ELEMENTS = 1000
N_SETTLED = 12
N_REPEATS = 9

WRAPS: dict[str, Callable[[Any], Any]] = {
    "NumPy": lambda memory: memory,
    "interface": Interfaced,
    "DLPack": Exchanged,
    "memoryview": memoryview,
    "array.array": lambda memory: array.array("d", memory),
    "ctypes": lambda memory: (ctypes.c_double * N_ELEMENTS)(*memory),
}
ROWS = (
    "target nowait, present, depend",
    "target, present, blocking",
    "target_update nowait",
    "target_update",
    "out(x)",
)


def count(operation: Callable[[], Any]) -> int:
    """Return the calls of Python and C functions that the encountering thread makes for one settled operation."""
    for _ in range(N_SETTLED):
        operation()
    omp.taskwait()
    least = sys.maxsize
    for _ in range(N_REPEATS):
        found = [0]

        def profile(_frame: Any, event: str, _argument: Any, found: list[int] = found) -> None:
            if event in {"call", "c_call"}:
                found[0] += 1

        gc.disable()
        sys.setprofile(profile)
        operation()
        sys.setprofile(None)
        gc.enable()
        omp.taskwait()
        least = min(least, found[0])
    return least - 1  # without that of `sys.setprofile`


def rows(x: Any) -> dict[str, int]:
    """Return the calls of each operation on an array that is present."""
    deferred = omp.target(nowait=True, depend=[inout(x)])(lambda x: None)
    blocking = omp.target(lambda x: None)
    depend = [inout(x)]
    operations: tuple[Callable[[], Any], ...] = (
        lambda: deferred(x),
        lambda: blocking(x),
        lambda: omp.target_update(to=[x], nowait=True, depend=depend),
        lambda: omp.target_update(to=[x]),
        lambda: out(x),
    )
    with omp.target_data(map=[tofrom(x)]):
        return dict(zip(ROWS, map(count, operations), strict=True))


def main() -> None:
    """Count, with NumPy arrays and with each kind."""
    if HAS["torch"]:
        WRAPS["tensor"] = library("torch").from_numpy
    sys.setswitchinterval(60)  # the device's thread goes on once the call waits: an event that has passed saves calls
    with omp.Runtime("sim:1", num_threads=0):  # no worker takes a task before the call has returned
        print(json.dumps({kind: rows(wrap(np.zeros(N_ELEMENTS))) for kind, wrap in WRAPS.items()}))


if __name__ == "__main__":
    main()
