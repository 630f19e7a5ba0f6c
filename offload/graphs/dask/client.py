"""Recorded graphs under a `distributed.Client`: by the workers in this process, or moved to the devices of others."""

from __future__ import annotations

import asyncio
import contextvars
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from dask.task_spec import Task as DaskTask
from dask.task_spec import TaskRef
from distributed import get_worker
from distributed.worker_state_machine import SecedeEvent

from offload.errors import UnsupportedError
from offload.graphs.dask.cluster import check_client, retries_among
from offload.graphs.dask.computation import Computation
from offload.graphs.dask.moving import get_moved
from offload.graphs.dask.nodes import InProcess
from offload.interrupts.shields import pass_on

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distributed import Client


class ClientRun(Computation, InProcess):
    """A computation by the workers of a client; values and failures stay here, Dask moves none."""

    def __init__(self, graph: Any) -> None:
        Computation.__init__(self, graph, whole=[graph])
        InProcess.__init__(self)
        self._ends: dict[str, Future[None]] = {}

    def get(self, client: Client, **kwargs: Any) -> None:
        """Run the graph, and wait until everything is complete."""
        last = f"offload-end-{self.name}"
        with self.running():
            (future,) = client.get(  # type: ignore[no-untyped-call]  # Dask has few types
                self._nodes(last), [last], sync=False, **kwargs
            )
            future.add_done_callback(self.scope.parker.unpark)
            self.wait(future.done)
            if future.status != "finished":
                raise future.exception()

    def _nodes(self, last: str) -> dict[str, DaskTask]:
        """Return the graph under keys of this computation, with a last node behind all that nothing depends on."""
        graph = self.graph
        dsk = {}
        for node in graph.nodes:
            before = [TaskRef(self._key(other.key)) for other in graph.predecessors(node)]
            dsk[self._key(node.key)] = DaskTask(self._key(node.key), _run_node, self, node.key, *before)
        sinks = [TaskRef(self._key(node.key)) for node in graph.nodes if not graph.successors(node)]
        dsk[last] = DaskTask(last, _nothing, *sinks)
        return dsk

    def _key(self, key: str) -> str:
        """Return Dask's key of a node: one that it has not seen, or it would take the node for computed."""
        return f"{key}-{self.name[:8]}"

    async def run_node(self, key: str) -> None:
        """Run a node on the worker's executor, then await the rest of it on the worker's loop."""
        node = self.graph.node(key)
        end = self._ends.get(key)
        if end is None:  # else Dask runs the node again, whose worker has gone
            if self.skips(key, (other.key for other in self.graph.predecessors(node)), self.graph, node):
                return
            end = self._ends[key] = Future()
            end.set_running_or_notify_cancel()  # Dask may cancel who awaits it, not the node
            call = contextvars.copy_context().run
            executor = get_worker().executor
            await asyncio.get_running_loop().run_in_executor(
                executor, call, self.start, self.graph, node, lambda: end.set_result(None)
            )
        if not end.done():
            _secede(self._key(key))
            await asyncio.wrap_future(end)


async def _run_node(reference: ClientRun | str, key: str, *_predecessors: object) -> None:
    """Run a node of a computation of this process; a coroutine on a worker's loop."""
    run = ClientRun.find(reference)
    if run is None:
        raise UnsupportedError(
            f"{key} belongs to a computation of another process, which holds its memory and events; compute it there"
        )
    await run.run_node(key)


def _nothing(*_predecessors: object) -> None:
    """Do nothing, when everything else is complete."""


def _secede(key: str) -> None:
    """Give up the slot of this coroutine task, as `distributed.secede` does for a task that runs in a thread."""
    now_s = time.time()
    get_worker().handle_stimulus(SecedeEvent(key=key, compute_duration=0.0, stimulus_id=f"secede-{now_s}"))


def get_on_client(graph: Any, keys: Sequence[str], client: Client, kwargs: Mapping[str, Any]) -> list[Any]:
    """Compute a graph on the workers of a client, and return the values of the keys.

    If the workers are in this process, they run the tasks on the graph's own devices, and the keywords are for
    `Client.get`. Otherwise the graph moves to the devices of the workers (`offload.graphs.dask.moving`).

    Raises
    ------
    ClauseError
        The workers are in other processes, and a keyword is not ``retries``.
    UsageError
        The client is asynchronous or closed, or the graph is being computed already.
    BaseException
        The failure of a node, unchanged, once everything that was started is complete.
    """
    check_client(client)
    run = ClientRun(graph)
    if not _has_its_workers_here(client, run):
        return get_moved(graph, keys, client, retries_among(kwargs))
    with graph.running():
        run.get(client, **kwargs)
    return [run.values.get(key) for key in keys]


def _has_its_workers_here(client: Client, run: ClientRun) -> bool:
    """Tell whether all workers of a client are in this process."""
    try:
        is_here = client.run(_is_here, run)
    except Exception as error:  # noqa: BLE001  # of a worker that cannot import offload: it is elsewhere
        pass_on(error)
        return False
    return bool(is_here) and all(is_here.values())


def _is_here(reference: ClientRun | str) -> bool:
    return ClientRun.find(reference) is not None
