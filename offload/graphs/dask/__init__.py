"""Recorded graphs under Dask: nodes and edges for its schedulers, and how to run them without holding a worker.

Theory of operation
-------------------
*The graph* (`nodes`). Every directive becomes one `dask.task_spec.Task` under the node's key, every dependence a
`TaskRef` among its arguments; the values of predecessors order it and are not looked at.

*Completing.* A node is complete when its task is: body, detach event, device work. Dask's schedulers know only
functions that return, so a gate that is open would hold whoever runs the node. Under `graph.compute` it holds nobody:

* `local`: the loop of `dask.local.get_async` asks for the next result, and gets that of *whichever* node is complete
  next. So the thread that computes waits in the engine, where a hang is told (``OFFLOAD_HANG_S``) and where it can run
  what is ready, as it must in a runtime without workers.
* `client`: under `distributed` a node is a coroutine. Its body runs in the worker's own executor; if the node is not
  complete then, it gives up its slot and awaits the rest on the worker's loop: neither thread nor slot is held.
* Under a scheduler that Dask was given explicitly a node is a function that blocks until the node is complete.

*Waiting and failing* are the same for all three (`computation`). The thread that computes waits in the engine. A node
never fails in Dask's eyes: what depends on a failed node is skipped, what does not runs on, as in the engine, since an
open gate may be fulfilled by a node that has not run yet. When everything that was started is complete, descendants
included, the first failure is raised as it was.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import dask.config

from offload.errors import UnsupportedError
from offload.graphs.dask.local import DEFAULT, get_synchronous, get_threaded, rebuild
from offload.graphs.dask.nodes import dask_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["DEFAULT", "compute", "dask_graph", "rebuild"]

_SYNCHRONOUS = frozenset({"sync", "synchronous", "single-threaded"})
_THREADS = frozenset({"threads", "threading"})
_CLIENTS = ("dask.distributed", "distributed")
"""Names of the active client in Dask's configuration."""


def compute(graph: Any, scheduler: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Compute a recorded graph and return the values by key; everything else as `TaskGraph.compute` says."""
    if isinstance(scheduler, str) and scheduler == "auto":
        scheduler = _active()
    name = scheduler.lower() if isinstance(scheduler, str) else ""
    keys = graph.__dask_keys__()
    if name in _SYNCHRONOUS:
        values = get_synchronous(dask_graph(graph), keys, **kwargs)
    elif name in _THREADS:
        values = get_threaded(dask_graph(graph), keys, **kwargs)
    elif isinstance(scheduler, ThreadPoolExecutor):
        values = get_threaded(dask_graph(graph), keys, **{**kwargs, "pool": scheduler})
    elif "distributed" in sys.modules and isinstance(scheduler, sys.modules["distributed"].Client):
        from offload.graphs.dask.client import get_on_client  # imports distributed

        values = get_on_client(graph, keys, scheduler, **kwargs)
    elif callable(scheduler):
        values = scheduler(dask_graph(graph), keys, **kwargs)
    else:
        raise UnsupportedError(
            f"compute: scheduler={scheduler!r:.60} runs outside this process, but the graph's memory and events are in "
            "this process; use 'threads', 'synchronous' or a distributed.Client(processes=False)"
        )
    return dict(zip(keys, values, strict=True))


def _active() -> Any:
    """Return the scheduler that Dask's own collections would take: the configured one, the active client, or threads.

    A task of a client holds a slot of its worker, in which it computes by threads: the client may have no other slot.
    """
    configured = dask.config.get("scheduler", None)
    distributed = sys.modules.get("distributed")
    if configured is not None and configured not in _CLIENTS:
        return configured
    if distributed is None or _finds(distributed.get_worker) is not None:
        return "threads"
    return _finds(distributed.Client.current) or "threads"


def _finds(find: Callable[[], Any]) -> Any:
    """Return what Dask finds; None if it finds nothing."""
    try:
        return find()
    except ValueError:
        return None
