"""Time single constructs on a device, beside the bare call in the same run.

``python benchmarks/latency.py [--devices cuda] [--repeat 300]`` prints a Markdown table: microseconds, median and the
10th and 90th percentile.
"""

from __future__ import annotations

import argparse
import time
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from offload import in_, inout, out

if TYPE_CHECKING:
    from collections.abc import Callable


def timed(call: Callable[[], object], repeat: int) -> list[float]:
    """Return the microseconds of each call, after one that is not counted."""
    call()
    times = []
    for _ in range(repeat):
        began_s = time.perf_counter()
        call()
        times.append((time.perf_counter() - began_s) * 1e6)
    return times


def row(name: str, times: list[float]) -> str:
    """Return a row of the table."""
    tenths = quantiles(times, n=10)
    return f"| {name} | {median(times):.0f} | {tenths[0]:.0f} to {tenths[-1]:.0f} |"


def bare_copy(device: Any, host: Any, d: Any) -> Callable[[], object]:
    """Return the bare copy of the device's own library, with the wait for it."""
    stream = device.new_stream()

    def call() -> None:
        device.copy(d, host, stream)
        stream.synchronize()

    return call


@omp.task
def nothing() -> None:
    """Do nothing."""


@omp.target
def touch(x: Any) -> None:
    """Do nothing on the device."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="sim")
    parser.add_argument("--repeat", type=int, default=300)
    args = parser.parse_args()
    with omp.Runtime(args.devices):
        device = omp.device(0)
        if device.kind == "cuda":
            from cupyx import empty_pinned

            host = empty_pinned((256,), "f4")
        else:
            host = np.empty(256, "f4")
        host[:] = 1
        d = omp.target_alloc(256, "f4")
        many = 300
        chained = touch.options(nowait=True, depend=[inout(d)])

        def chain() -> None:
            for _ in range(many):
                chained(d)
            omp.taskwait()

        def hop() -> None:
            omp.target_memcpy_async(d, host, depend=[out(d)])
            nothing.options(depend=[in_(d)])()
            omp.taskwait()

        print("| construct | µs | 10 % to 90 % |\n|---|---|---|")
        print(row("bare copy of 1 KB and wait", timed(bare_copy(device, host, d), args.repeat)))
        print(row("`target_memcpy` of 1 KB", timed(lambda: omp.target_memcpy(d, host), args.repeat)))
        print(row("`target` with an empty body on a device array", timed(lambda: touch(d), args.repeat)))
        print(row("copy, then a host task that depends on it, and `taskwait`", timed(hop, args.repeat)))
        print(row("`task` and `taskwait`", timed(lambda: (nothing(), omp.taskwait()), args.repeat)))
        print(row(f"`target nowait depend`, one of a chain of {many}", [one / many for one in timed(chain, 10)]))
        omp.target_free(d)


if __name__ == "__main__":
    main()
