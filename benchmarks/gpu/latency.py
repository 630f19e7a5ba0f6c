"""What single constructs take, how soon a host task follows a kernel, and launches beside busy Python threads."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import offload as omp
from benchmarks.gpu import graphs
from benchmarks.harness.measuring import Section, Table, alternate, expect, promise
from offload import in_, inout, out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

_N_CALLS = 40
"""Calls of a construct in a turn; the sample is their median."""

_SUCCESSOR_MS = 0.2
_LATCHED = 0.9
"""How far down the kernel is that holds the stream: what is behind it still fits into the queue of the driver."""

_N_HELD = 200
_N_SUCCESSORS = 5
"""Host successors in a turn."""

_N_LAUNCHES = 20
"""Launches beside a busy thread, each of which may wait for 5 ms several times."""

_SHORT_S = 1e-4


@omp.task
def nothing() -> None:
    """Do nothing on the host."""


@omp.target
def touch(x: Any) -> None:
    """Do nothing on the device."""


# -- single constructs ---------------------------------------------------------------------------------


def constructs(peer: ModuleType, repeat: int) -> Section:
    """Time single constructs, each until it is done, and what they stand for by hand."""
    x = omp.target_memset(omp.target_alloc(256, "f4"), 0)
    host = peer.cupyx.empty_pinned((256,), "f4")
    host[:] = 1
    bump = graphs.make_bodies(peer).bump
    synchronous, deferred = bump.options(nowait=False), bump.options(depend=[inout(x)])
    after = nothing.options(depend=[in_(x)])
    (stream,) = peer.new_streams(1)

    def kernel_and_wait() -> None:
        deferred(x)
        omp.taskwait()

    def task_and_wait() -> None:
        nothing()
        omp.taskwait()

    def copy_then_task() -> None:
        omp.target_memcpy_async(x, host, depend=[out(x)])
        after()
        omp.taskwait()

    launch = partial(peer.launch_and_wait, x, stream)
    copy = partial(peer.copy_and_wait, x, host, stream)
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any] | None]] = {
        "`target` with an empty body": (partial(touch, x), None),
        "`target` with a kernel": (partial(synchronous, x), launch),
        "`target nowait` with a kernel, `taskwait`": (kernel_and_wait, launch),
        "`target_memcpy` of 1 KB, pinned": (partial(omp.target_memcpy, x, host), copy),
        "copy, then a host task that depends on it, `taskwait`": (
            copy_then_task,
            partial(peer.copy_then_call, x, host, stream, _nothing),
        ),
        "`task`, `taskwait`": (task_and_wait, None),
    }
    calls: dict[str, Callable[[], float]] = {}
    for name, (ours, theirs) in pairs.items():
        calls[f"{name}/offload"] = partial(_call_us, ours)
        if theirs is not None:
            calls[f"{name}/by hand"] = partial(_call_us, theirs)
    table = Table(f"Single constructs, µs (a sample is the median of {_N_CALLS} calls)")
    for name, samples in alternate(calls, repeat).items():
        row, _, column = name.rpartition("/")
        table.rows.setdefault(row, {})[column] = samples
    omp.target_free(x)
    return Section({"constructs": table})


def _nothing() -> None:
    """Do nothing."""


def _call_us(call: Callable[[], object]) -> float:
    """Return the median of the microseconds that calls take."""
    times_s = []
    for _ in range(_N_CALLS):
        began_s = time.perf_counter()
        call()
        times_s.append(time.perf_counter() - began_s)
    return median(times_s) * 1e6


# -- host successors -----------------------------------------------------------------------------------


def successors(peer: ModuleType, repeat: int) -> Section:
    """Measure how long after kernel 2 of a stream its host successor starts, while a kernel behind holds the stream.

    Kernel 2 notes the device's clock, which is set against the host's before.
    """
    x = omp.target_memset(omp.target_alloc(graphs.N_ELEMENTS, "f4"), 0)
    calls = {
        f"while {graphs.N_TASKS:,} are being launched": partial(_successors_us, peer, x, graphs.N_TASKS, False),
        f"{_N_HELD} launched before": partial(_successors_us, peer, x, _N_HELD, True),
    }
    runs = alternate(calls, repeat)
    samples = {name: [one for turn in turns for one in turn] for name, turns in runs.items()}
    omp.target_free(x)
    table = Table(
        "Host successor of kernel 2, µs from the end of the kernel to the first line of the task",
        {name: {"latency": found} for name, found in samples.items()},
        "A latch kernel further down holds the stream until the successor has run. In the second row another one holds "
        "it until all are launched.",
    )
    limits = {name: [one / 1e3 for one in found] for name, found in samples.items()}
    return Section({"successors": table}, [promise("host successor of kernel 2, ms", limits, _SUCCESSOR_MS)])


def _successors_us(peer: ModuleType, x: Any, n_tasks: int, is_held: bool) -> list[float]:
    return [_successor_us(peer, x, n_tasks, is_held=is_held) for _ in range(_N_SUCCESSORS)]


def _successor_us(peer: ModuleType, x: Any, n_tasks: int, *, is_held: bool) -> float:
    """Launch a chain and return the microseconds between its second kernel and the start of that one's successor."""
    first, last, mark = peer.Latch(), peer.Latch(), peer.Mark()
    bump = graphs.make_bodies(peer).bump.options(depend=[inout(x)])
    started_ns: list[int] = []

    @omp.target
    def hold(_: Any, latch: Any) -> None:
        latch.hold()

    @omp.target
    def second(x: Any) -> None:
        mark(x)

    @omp.task
    def successor() -> None:
        started_ns.append(time.perf_counter_ns())

    offset_ns = peer.clock_offset_ns(x)
    held = hold.options(nowait=True, depend=[inout(x)])
    try:
        if is_held:
            held(x, first)
        else:
            bump(x)
        second.options(nowait=True, depend=[inout(x), out(("second", id(mark)))])(x)
        after = successor.options(depend=[in_(("second", id(mark)))])()
        for number in range(3, n_tasks + 1):
            if number == int(_LATCHED * n_tasks):
                held(x, last)
            else:
                bump(x)
        first.release()
        after.result(timeout=20)
    finally:
        first.release()
        last.release()
        omp.taskwait()
    ended_ns: int = int(mark.at_ns[0]) + offset_ns
    expect(started_ns[0] > ended_ns - 10_000, "the clock of the device")
    return (started_ns[0] - ended_ns) / 1e3


# -- busy neighbours -----------------------------------------------------------------------------------


def neighbours(peer: ModuleType, repeat: int) -> Section:
    """Time launches while another Python thread never gives up the GIL by itself: a user's, and a worker of ours."""
    x = omp.target_memset(omp.target_alloc(graphs.N_ELEMENTS, "f4"), 0)
    bump = graphs.make_bodies(peer).bump.options(depend=[inout(x)])
    streams, events = peer.new_streams(1), peer.new_events(_N_LAUNCHES)

    def ours_us() -> float:
        began_s = time.perf_counter()
        for _ in range(_N_LAUNCHES - 1):
            bump(x)
        bump(x).result()
        return (time.perf_counter() - began_s) * 1e6 / _N_LAUNCHES

    def by_hand_us(enqueue: Any, argument: Any) -> float:
        done_s, _ = peer.timed(enqueue, [x], streams, argument)
        return float(done_s) * 1e6 / _N_LAUNCHES

    contestants: dict[str, Callable[[], float]] = {
        "device task": ours_us,
        "by hand, events and waits": partial(by_hand_us, peer.chain, events),
        "by hand, launches alone": partial(by_hand_us, peer.chain_launches, _N_LAUNCHES),
    }
    table = Table(
        f"A launch beside a Python thread that never stops, µs (chains of {_N_LAUNCHES})",
        note="5 ms is CPython's switch interval, 0.1 ms what sys.setswitchinterval(1e-4) makes of it.",
    )
    default_s = sys.getswitchinterval()
    situations: dict[str, tuple[Callable[[], Any], float]] = {
        "no other thread": (_alone, default_s),
        "a user's thread, 5 ms": (_busy_thread, default_s),
        "a user's thread, 0.1 ms": (_busy_thread, _SHORT_S),
        "a worker in a task, 5 ms": (_busy_worker, default_s),
        "a worker in a task, 0.1 ms": (_busy_worker, _SHORT_S),
    }
    for name, (neighbour, interval_s) in situations.items():
        calls = {one: partial(_beside, neighbour, interval_s, call) for one, call in contestants.items()}
        table.rows[name] = alternate(calls, repeat)
    omp.taskwait()
    omp.target_free(x)
    return Section({"neighbours": table})


def _beside(neighbour: Callable[[], Any], interval_s: float, call: Callable[[], float]) -> float:
    former_s = sys.getswitchinterval()
    sys.setswitchinterval(interval_s)
    try:
        with neighbour():
            return call()
    finally:
        sys.setswitchinterval(former_s)


@contextmanager
def _alone() -> Iterator[None]:
    yield


class _Loop:
    """A loop in Python that runs until it is stopped."""

    def __init__(self) -> None:
        self.has_begun, self.is_over = threading.Event(), False

    def run(self) -> None:
        self.has_begun.set()
        while not self.is_over:
            pass


@contextmanager
def _busy_thread() -> Iterator[None]:
    loop = _Loop()
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        loop.has_begun.wait()
        yield
    finally:
        loop.is_over = True
        thread.join()


@contextmanager
def _busy_worker() -> Iterator[None]:
    loop = _Loop()
    task = omp.task(loop.run)()
    try:
        loop.has_begun.wait()
        yield
    finally:
        loop.is_over = True
        task.result()
