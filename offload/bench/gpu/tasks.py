"""What a device task costs: graphs of 1,000 tasks beside their kernels with CuPy's events and waits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import offload as omp
from offload.bench.gpu import graphs, latency
from offload.bench.gpu.measuring import Section, Table, alternate, pairwise, promise

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_OVER_EVENTS = 2.0
_TASK_US = 12.0

BY_HAND, LAUNCHES = "by hand, events and waits", "by hand, launches alone"


def measure(peer: ModuleType, repeat: int) -> Section:
    """Measure the graphs, then single constructs, the latency of host successors and busy neighbours.

    Parameters
    ----------
    peer : module
        ``benchmarks/tasks_cupy.py``.
    repeat : int
        Turns.
    """
    found = Section()
    total = Table(f"{graphs.N_TASKS:,} device tasks, µs a task until the taskwait is over")
    enqueued = Table("The same, µs a task until the last call has returned")
    over: dict[str, list[float]] = {}
    ours: dict[str, list[float]] = {}
    for shape in graphs.N_CELLS:
        runs = _measure_shape(shape, peer, repeat)
        for name, times in runs.items():
            total.rows.setdefault(name, {})[shape] = [one * 1e6 / graphs.N_TASKS for one, _ in times]
            enqueued.rows.setdefault(name, {})[shape] = [one * 1e6 / graphs.N_TASKS for _, one in times]
        theirs = total.rows[BY_HAND][shape]
        for name in _forms():
            samples = total.rows[name][shape]
            if name.endswith("before"):
                over[f"{shape}, {name}"] = pairwise(samples, theirs)
                ours[f"{shape}, {name}"] = samples
    total.note = (
        "Bodies launch a kernel of 32 threads. By hand each kernel is followed by an event that the stream of the next "
        "one waits for: one stream, two, and 64."
    )
    found.tables = {"tasks": total, "enqueuing": enqueued}
    found.targets = [
        promise("a device task / by hand with events and waits", over, _OVER_EVENTS),
        promise("a device task, µs", ours, _TASK_US),
    ]
    for more in (latency.constructs(peer, repeat), latency.successors(peer, repeat), latency.neighbours(peer, repeat)):
        found.tables |= more.tables
        found.targets += more.targets
    return found


def _forms() -> list[str]:
    """Return the names of our forms."""
    return [f"{memory}, {when}" for memory in ("device arrays", "mapped arrays") for when in graphs.FORMS]


def _measure_shape(shape: str, peer: ModuleType, repeat: int) -> dict[str, list[graphs.Times]]:
    """Time a graph in each form, and by hand."""
    bodies = graphs.make_bodies(peer)
    on_device, on_host = graphs.device_arrays(shape), graphs.host_arrays(shape)
    streams = peer.new_streams(len(on_device))
    calls: dict[str, Callable[[], Any]] = {
        LAUNCHES: partial(peer.timed, peer.LAUNCHES[shape], on_device, streams, graphs.N_TASKS),
        BY_HAND: partial(peer.timed, peer.WITH_EVENTS[shape], on_device, streams, peer.new_events(graphs.N_TASKS)),
    }
    for memory, arrays in (("device arrays", on_device), ("mapped arrays", on_host)):
        for when, form in graphs.FORMS.items():
            calls[f"{memory}, {when}"] = partial(graphs.timed_on, form, shape, bodies, arrays)
    for name, call in calls.items():
        if name != LAUNCHES or shape != "ping-pong":  # two streams that do not wait for each other give anything
            graphs.check(call, shape, on_host if name.startswith("mapped") else on_device, f"{shape}, {name}")
    found = alternate(calls, repeat)
    for x in on_device:
        omp.target_free(x)
    return found
