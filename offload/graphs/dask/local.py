"""Recorded graphs under Dask's local scheduler: on threads, or on the calling one alone."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dask.config
import dask.threaded
from dask.delayed import Delayed
from dask.local import get_async, get_sync
from dask.system import CPU_COUNT
from dask.task_spec import List, TaskRef
from dask.task_spec import Task as DaskTask
from dask.threaded import pack_exception

from offload.errors import UnsupportedError
from offload.graphs.dask.computation import Computation
from offload.graphs.dask.nodes import recorded
from offload.interrupts.shields import Shield

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from offload.tasks.graph import Node


class LocalRun(Computation):
    """A computation by `dask.local.get_async`: bodies run in a pool, or without one on this thread."""

    # Dask's loop calls ``submit`` for a node that is ready, and asks what it gets for ``add_done_callback`` and
    # ``result``. It gets a `_Ticket`, which calls back at once: so the loop always asks for a result, and waits for it
    # here instead of in a queue. As many nodes may be in flight as the graph has, so that open gates do not count.

    def __init__(self, dsk: Mapping[Hashable, Any], nodes: Mapping[Hashable, tuple[Any, Node]], pool: Any) -> None:
        graphs = list({id(graph): graph for graph, _ in nodes.values()}.values())
        super().__init__(graphs[0], is_synchronous=pool is None, whole=graphs)
        self._dsk = dsk
        self._nodes = nodes
        self._pool: Executor | None = pool
        self._foreign: dict[Hashable, Callable[[], Any]] = {}
        self._complete: deque[Hashable] = deque()

    def get(self, keys: Any, **kwargs: Any) -> Any:
        """Run the graph and return the values of the keys, nested as they are."""
        with self.running():
            return get_async(  # type: ignore[no-untyped-call]  # Dask has few types
                self._submit,
                len(self._dsk),  # nodes in flight; the pool has the threads
                self._dsk,
                keys,
                get_id=threading.get_ident,
                pack_exception=pack_exception,
                chunksize=1,
                **kwargs,
            )

    def _submit(self, function: Callable[[Any], Any], batch: Any) -> _Ticket:
        key = batch[0][0]  # Dask's batches are lists of one job here, which begins with its key
        if self.skips(key, self._dsk[key].dependencies, *self._nodes.get(key, ())):
            self._complete.append(key)
        elif key not in self._nodes:
            self._foreign[key] = partial(function, batch)
            self._complete.append(key)
        elif self._pool is None:
            self.start(*self._nodes[key], partial(self._complete.append, key))
        else:
            with Shield():  # else an interruption in between would leave a node that nobody starts
                self.started.add(key)
                try:
                    self._pool.submit(self.start, *self._nodes[key], partial(self._complete.append, key))
                except BaseException:
                    self.started.discard(key)
                    raise
        return _Ticket(self)

    def next(self) -> Any:
        """Return the result of the next node that is complete, in the form that Dask gives its own."""
        self.wait(lambda: self._complete)
        key = self._complete.popleft()
        if key in self._foreign:
            return self._foreign.pop(key)()
        return [(key, (self.values.get(key), threading.get_ident()), False)]


class _Ticket:
    """Dask's future for a node that it submitted: its result is the next node that is complete, any one."""

    __slots__ = ("_run",)

    def __init__(self, run: LocalRun) -> None:
        self._run = run

    def add_done_callback(self, fn: Callable[[_Ticket], Any]) -> None:
        fn(self)

    def result(self) -> Any:
        return self._run.next()


def _run(dsk: Any, keys: Any, pool: Any, kwargs: Mapping[str, Any]) -> Any:
    if not hasattr(dsk, "keys"):
        dsk = dsk.__dask_graph__()
    nodes = {key: found for key, task in dsk.items() if (found := recorded(task)) is not None}
    if not nodes:  # values that were persisted
        return get_sync(dsk, keys, **kwargs)
    with ExitStack() as held:
        for graph in {id(graph): graph for graph, _ in nodes.values()}.values():
            held.enter_context(graph.running())
        return LocalRun(dsk, nodes, pool).get(keys, **kwargs)


def get_synchronous(dsk: Any, keys: Any, **kwargs: Any) -> Any:
    """Compute as `get_threaded`, every body on the calling thread; ``num_workers`` has no meaning."""
    kwargs.pop("num_workers", None)
    return _run(dsk, keys, None, kwargs)


def get_threaded(dsk: Any, keys: Any, **kwargs: Any) -> Any:
    """Compute a Dask graph with nodes of recorded graphs in it, on threads; a node that waits for its event holds none.

    This is the default scheduler of a `TaskGraph` (see `DEFAULT`), so `dask.compute` calls it. Nodes of other
    collections run on the calling thread. ``keys`` is a key or a nested list, the result a value or nested tuple. The
    keywords are ``num_workers`` (threads, not nodes in flight), ``pool`` (an executor of threads), ``cache`` and
    ``callbacks``. Raise `UsageError` if a graph is being computed already, and the failure of a node unchanged.
    """
    pool = kwargs.pop("pool", None) or dask.config.get("pool", None)
    num_workers = kwargs.pop("num_workers", None) or dask.config.get("num_workers", None) or CPU_COUNT
    if isinstance(pool, Executor):
        return _run(dsk, keys, pool, kwargs)
    with ThreadPoolExecutor(num_workers, thread_name_prefix="offload-dask") as own:
        return _run(dsk, keys, own, kwargs)


class _Default:
    """`get_threaded` as the default scheduler of collections."""

    # Dask computes collections together if their default schedulers are equal. This one equals Dask's own for threads,
    # which can compute recorded graphs too.

    __slots__ = ()

    def __call__(self, dsk: Any, keys: Any, **kwargs: Any) -> Any:
        return get_threaded(dsk, keys, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other is dask.threaded.get

    def __hash__(self) -> int:
        return hash(dask.threaded.get)


DEFAULT = _Default()


class GraphValues(Delayed):
    """The values of a graph by key: the result of `dask.persist` and `dask.optimize` for a `TaskGraph`."""

    __slots__ = ()
    __dask_scheduler__ = DEFAULT


def rebuild(dsk: Mapping[str, Any], finish: Any, extra: tuple[Any, ...], *, rename: object = None) -> GraphValues:
    """Return the collection ``finish(values, *extra)`` of a graph's values.

    ``dsk`` has values, futures or nodes by key; ``finish`` and ``extra`` come from `TaskGraph.__dask_postcompute__`.
    Raise `UnsupportedError` for ``rename``.
    """
    if rename:
        raise UnsupportedError("a recorded graph cannot be renamed, because its events and memory belong to it alone")
    key = f"offload-values-{uuid4().hex}"
    values = DaskTask(key, finish, List(*map(TaskRef, dsk)), *extra)
    return GraphValues(key, {**dsk, key: values})  # type: ignore[no-untyped-call]  # Dask has few types
