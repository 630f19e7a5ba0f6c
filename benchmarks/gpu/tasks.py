"""What a device task costs: graphs of 1,000 tasks beside their kernels with CuPy's events and waits."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import offload as omp
from benchmarks.gpu import graphs, latency
from benchmarks.harness.measuring import Section, Table, alternate, pairwise, promise

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from benchmarks.harness.measuring import Target

_OVER_EVENTS = 2.0
_TASK_US = 12.0

BY_HAND, LAUNCHES = "by hand, events and waits", "by hand, launches alone"
JUDGED = "device arrays, clauses made before"
"""The form that a user writes for speed, of which the time is promised as well."""


def measure(peer: ModuleType, repeat: int) -> Section:
    """Measure the graphs, then single constructs, the latency of host successors and busy neighbours.

    Parameters
    ----------
    peer : module
        ``benchmarks/gpu/tasks_cupy.py``.
    repeat : int
        Turns.
    """
    found = Section()
    total = Table(f"{graphs.N_TASKS:,} device tasks, µs a task until the taskwait is over")
    enqueued = Table("The same, µs a task until the last call has returned")
    over = Table("The same, over the kernels by hand")
    for shape in graphs.N_CELLS:
        runs = _measure_shape(shape, peer, repeat)
        for name, times in runs.items():
            total.rows.setdefault(name, {})[shape] = [one * 1e6 / graphs.N_TASKS for one, _ in times]
            enqueued.rows.setdefault(name, {})[shape] = [one * 1e6 / graphs.N_TASKS for _, one in times]
        for name, theirs in product(_forms(), (BY_HAND, LAUNCHES)):
            ratios = pairwise(total.rows[name][shape], total.rows[theirs][shape])
            over.rows.setdefault(f"{name} / {theirs}", {})[shape] = ratios
    total.note = (
        "Bodies launch a kernel of 32 threads. By hand each kernel is followed by an event that the stream of the next "
        "one waits for: one stream, two, and 64."
    )
    over.note = "What is judged is the ratio to events and waits: launches alone order nothing between streams."
    found.tables = {"tasks": total, "enqueuing": enqueued, "over": over}
    found.targets = _targets(total, over)
    for more in (latency.constructs(peer, repeat), latency.successors(peer, repeat), latency.neighbours(peer, repeat)):
        found.tables |= more.tables
        found.targets += more.targets
    return found


def _targets(total: Table, over: Table) -> list[Target]:
    """Return the promises, first those of `JUDGED`; each form has its own, so that no miss hides another."""
    ratios = [f"{name} / {BY_HAND}" for name in _forms()]
    return [
        promise(f"a device task, {JUDGED}, µs", total.rows[JUDGED], _TASK_US),
        *(promise(f"a device task, {name}", over.rows[name], _OVER_EVENTS) for name in ratios),
    ]


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
