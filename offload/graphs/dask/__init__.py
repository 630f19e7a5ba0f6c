"""Recorded graphs under Dask: nodes and edges for its schedulers, and how to run them without holding a worker.

`nodes` makes the graph. `local` and `client` run it under `graph.compute`, on threads or under `distributed`: a node
with an open gate holds neither a thread nor a slot. `computation` waits and raises. `cluster` runs the graphs of a
cluster's runtime, and `moving` makes such a graph of one that was recorded on local devices. A node never fails in
Dask's eyes: those that depend on a failed node are skipped, the others run on. See docs/design/theory.md, "Dask".
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import dask.config

from offload.errors import UnsupportedError
from offload.graphs.dask.cluster import check_client, get_on_cluster, is_on_cluster, retries_among
from offload.graphs.dask.local import DEFAULT, get_synchronous, get_threaded, rebuild
from offload.graphs.dask.nodes import dask_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["DEFAULT", "compute", "dask_graph", "rebuild"]

_SYNCHRONOUS = frozenset({"sync", "synchronous", "single-threaded"})
_THREADS = frozenset({"threads", "threading"})
_CLIENTS = ("dask.distributed", "distributed")  # Names of the active client in Dask's configuration


def compute(graph: Any, scheduler: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Compute a recorded graph and return the values by key; everything else as `TaskGraph.compute` says."""
    if is_on_cluster(graph) and _is_its_cluster(graph, scheduler):
        values = get_on_cluster(graph, graph.__dask_keys__(), retries_among(kwargs))
        return dict(zip(graph.__dask_keys__(), values, strict=True))
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

        values = get_on_client(graph, keys, scheduler, kwargs)
    elif callable(scheduler):
        values = scheduler(dask_graph(graph), keys, **kwargs)
    else:
        raise UnsupportedError(
            f"compute: scheduler={scheduler!r:.60} runs outside this process, but the graph's memory and events are in "
            "this process; use 'threads', 'synchronous' or a distributed.Client"
        )
    return dict(zip(keys, values, strict=True))


def _is_its_cluster(graph: Any, scheduler: Any) -> bool:
    """Tell whether a graph of a cluster's runtime is to run there as a whole."""
    if isinstance(scheduler, str):
        return scheduler == "auto"
    distributed = sys.modules.get("distributed")
    if distributed is None or not isinstance(scheduler, distributed.Client):
        return False
    check_client(scheduler)
    if scheduler.scheduler.address != graph.runtime.places[0].device.cluster.address:
        raise UnsupportedError(
            f"compute: the graph's runtime has the devices of {graph.runtime.places[0].device.cluster.address}, and "
            f"the client is of {scheduler.scheduler.address}; record the graph in Runtime(client)"
        )
    return True


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
    """Return the object that Dask finds, or None."""
    try:
        return find()
    except ValueError:
        return None
