"""Recorded graphs under Dask: nodes and edges for its schedulers, and how to run them without holding a worker.

Theory of operation
-------------------
*The graph.* Every directive becomes one `dask.task_spec.Task` under the node's key, every dependence a `TaskRef`
among its arguments; the values of predecessors order it and are not looked at.

*Completing.* A node is complete when its task is: body, detach event, device work. Dask's schedulers know only
functions that return, so a gate that is open would hold whoever runs the node. Here it holds nobody:

* `dask.local.get_async` takes a ``submit`` and asks it for futures, from which it wants ``add_done_callback`` and
  ``result``. What our ``submit`` returns is a *ticket*: it calls back at once, and its ``result`` gives the batch of
  *whichever* node is complete next, which is what the scheduler's loop asks for. So the thread that computes waits in
  the engine, where it can run what is ready (the synchronous scheduler runs every body there; a runtime without
  workers needs it) and where a hang is told (``OFFLOAD_HANG_S``). As many nodes may be in flight as the graph has, so
  that open gates do not count; the threads that run bodies are counted apart, by the pool.
* Under `distributed` a node is an ``async def`` task. Its body runs in the worker's own executor, under the worker's
  slot; if the node is not complete then, it *secedes*, as `distributed.secede` would do for a thread (which is all
  that that function knows), and awaits the rest on the worker's loop: neither a thread nor a slot is held. Nothing
  has to be configured.

*Failing.* A node never fails in Dask's eyes: what depends on a failed node is skipped, what does not runs on, as in the
engine, since a node that is open may be fulfilled by one that has not run yet. When everything that was started is
complete, descendants included, the first failure is raised as it was.

Rejected: futures completed by the event, as Dask asks for (its loop then blocks in a queue, where the one thread of the
synchronous scheduler can run nothing); stopping at the first failure (gates would stay open); under `distributed`, many
slots and a small executor (the user's cluster is as it is), `client.submit` of each node when its predecessors are
complete (210 µs a node, and Dask sees no edges), a second key for a gate, fulfilled from outside (a key without a task
is lost to the scheduler, and one that waits for a `distributed.Event` holds a slot again).

Under a scheduler that Dask was given explicitly, a node is a function that blocks until the node is complete, and
under `distributed` again a coroutine.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import threading
import time
import types
import weakref
from collections import deque
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_futures
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dask.config
from dask.local import SynchronousExecutor, get_async
from dask.system import CPU_COUNT
from dask.task_spec import Task as DaskTask
from dask.task_spec import TaskRef
from dask.threaded import get, pack_exception

from offload.errors import EventError, UnsupportedError, UsageError
from offload.tasks.engine import Scope
from offload.tasks.task import Task, TaskSet, TaskState, raise_failures

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from offload.tasks.graph import Node

_SYNCHRONOUS = frozenset({"sync", "synchronous", "single-threaded"})
_THREADS = frozenset({"threads", "threading"})
_PROCESS = uuid4().hex
"""Tells this process from every other one, forks excepted."""

_round_numbers = count()
_graphs: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_client_runs: dict[str, _ClientRun] = {}
_current: contextvars.ContextVar[_LocalRun | None] = contextvars.ContextVar("offload_dask_run", default=None)


# -- the graph ---------------------------------------------------------------------------------------


def dask_graph(graph: Any) -> dict[str, DaskTask]:
    """Return the Dask graph of a recorded one: a node for each directive, a reference for each dependence.

    Raises nothing; *costs* some 5 µs a node.
    """
    _graphs[id(graph)] = graph
    round_ = _Round(graph)
    graph.rounds.append(round_)
    return {
        node.key: DaskTask(
            node.key, NodeCall(graph, node, round_), *(TaskRef(other.key) for other in graph.predecessors(node))
        )
        for node in graph.nodes
    }


class _Round:
    """One computation by a scheduler that does not say when it begins: by the first node that runs, or runs again."""

    def __init__(self, graph: Any) -> None:
        self.number = next(_round_numbers)
        self._graph = graph
        self._lock = threading.Lock()
        self._begun: set[Node] | None = None

    def begin(self, node: Node) -> None:
        with self._lock:
            if self._begun is None or node in self._begun:
                self._graph.arm()
                self._begun = set()
            self._begun.add(node)

    def unfinished(self, node: Node) -> list[Node]:
        """Return the nodes that have not begun, `node` excepted."""
        begun = self._begun or ()
        return [other for other in self._graph.nodes if other not in begun and other is not node]


class NodeCall:
    """What Dask calls for a node: it blocks until the node is complete and returns what the body returned.

    Under `graph.compute` and `get_threaded` it only hands over the value, since the node is complete by then.
    """

    __slots__ = ("graph", "node", "round")

    def __init__(self, graph: Any, node: Node, round_: _Round) -> None:
        self.graph = graph
        self.node = node
        self.round = round_

    @property
    def __name__(self) -> str:
        return self.node.name

    def __call__(self, *_predecessors: object) -> Any:
        run = _current.get()
        if run is not None:
            return run.values.get(self.node.key)
        self.round.begin(self.node)
        computation = _Computation(self.graph)
        ended: list[bool] = []

        def end() -> None:
            ended.append(True)
            computation.scope.parker.unpark()

        computation.start(self, end)
        if not ended:
            self._check_single_thread()
        computation.wait(lambda: bool(ended) and not computation.group.live)
        computation.raise_failures()
        return computation.values.get(self.node.key)

    def _check_single_thread(self) -> None:
        """Refuse to wait for an event that another node would have to fulfil on this same thread."""
        task = self.node.run.task  # type: ignore[union-attr]  # it has just been started
        event = task.event
        if event is None or event.is_fulfilled or event.point is not None or task.state_ is not TaskState.DETACHED:
            return
        if not _is_synchronous():
            return
        later = next((node for node in self.round.unfinished(self.node) if _reaches(node, event)), None)
        if later is None:
            return
        try:
            event.fulfill()
        except EventError:
            return  # somebody else did
        raise UsageError(
            f"{self.node.key} waits for its event, which {later.key} would fulfil, and Dask's synchronous scheduler "
            "has one thread for both; use graph.compute(), or scheduler='threads' with more than one worker"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (_PROCESS, id(self.graph), self.round.number, self.node.key)

    def __dask_tokenize__(self) -> object:
        return ("offload.NodeCall", _PROCESS, id(self.graph), self.node.key)


def _is_synchronous() -> bool:
    """Tell whether a function runs under Dask's synchronous scheduler, on the thread that computes."""
    code = SynchronousExecutor.submit.__code__
    frame: types.FrameType | None = sys._getframe(1)  # noqa: SLF001  # what `inspect` uses
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


_REACH_LIMIT = 2_000
"""Objects to look at: a body's arguments and closure, not all that hangs on them."""

_OPAQUE = (type, types.ModuleType, types.CodeType, types.FrameType, Scope, Task, str, bytes, int, float)


def _reaches(node: Node, event: object) -> bool:
    """Tell whether a node's body or arguments refer to an event: it may be the one to fulfil it."""
    seen: set[int] = set()
    queue: deque[Any] = deque([node.spec])
    while queue and len(seen) < _REACH_LIMIT:
        found = queue.popleft()
        if found is event:
            return True
        if id(found) in seen or isinstance(found, _OPAQUE):
            continue
        seen.add(id(found))
        if isinstance(found, types.FunctionType):
            names = found.__code__.co_names
            queue.extend(found.__globals__[name] for name in names if name in found.__globals__)
            queue.extend(found.__defaults__ or ())
            queue.extend(found.__closure__ or ())
        elif type(found).__name__ not in {"Runtime", "TaskGraph", "Site", "Event"}:
            queue.extend(gc.get_referents(found))
    return False


class Rebuilt:
    """A Dask collection of a graph's values: what `dask.persist` and `dask.optimize` make of a `TaskGraph`.

    Parameters
    ----------
    dsk : mapping
        Values, futures or nodes by key.
    graph : TaskGraph
        Where they come from; kept alive.
    """

    def __init__(self, dsk: Mapping[str, Any], graph: Any, *, rename: Mapping[str, str] | None = None) -> None:
        if rename:
            raise UnsupportedError("a recorded graph cannot be renamed: its events and its memory are its own")
        self._dsk = dsk
        self._graph = graph

    def __dask_graph__(self) -> Mapping[str, Any]:
        return self._dsk

    def __dask_keys__(self) -> list[str]:
        return self._graph.__dask_keys__()  # type: ignore[no-any-return]

    def __dask_tokenize__(self) -> object:
        return ("offload.Rebuilt", id(self))

    def __dask_postcompute__(self) -> Any:
        return self._graph.__dask_postcompute__()

    def __dask_postpersist__(self) -> Any:
        return Rebuilt, (self._graph,)

    @staticmethod
    def __dask_optimize__(dsk: Any, keys: Any, **_: Any) -> Any:
        """Return the graph as it is."""
        return dsk

    @property
    def __dask_scheduler__(self) -> Callable[..., Any]:
        return get_threaded


# -- a computation -----------------------------------------------------------------------------------


class _Computation:
    """What one computation has started, what came of it, and the thread that waits for it."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph  # one of them, where there are several
        self.scope: Scope = graph.scope()
        self.group = TaskSet()
        self.values: dict[Hashable, Any] = {}
        self.failures: dict[Hashable, BaseException] = {}
        self.bad: set[Hashable] = set()  # failed, or skipped
        self.is_abandoned = False

    def start(self, call: NodeCall, then: Callable[[], Any], owner: Callable[[Task], Any] | None = None) -> None:
        """Start a node on this thread and call ``then()`` when it is complete, on whichever thread completes it.

        With ``owner``, what there is to do later for the task is not for the engine's workers: ``owner(task)`` is told.
        """
        key, graph = call.node.key, call.graph

        def end(task: Task) -> None:
            task.seen = True
            if task.failure is None:
                self.values[key] = task.value
            else:
                self.fail(key, task.failure)
            then()

        try:
            task = None if self.is_abandoned else graph.prepare(call.node, self.scope.task, self.group)
            if task is not None:
                if owner is not None:
                    task.owner = _Owner(task, owner)
                graph.submit(task)
        except BaseException as error:  # noqa: BLE001  # kept for whoever computes
            self.fail(key, error)
            task = None
        if task is None:
            then()
        else:
            task.add_done_callback(end)

    def fail(self, key: Hashable, error: BaseException) -> None:
        self.bad.add(key)
        self.failures[key] = error

    def skips(self, key: Hashable, before: Iterable[Hashable]) -> bool:
        """Tell whether something that the node depends on failed; then the node counts as failed too."""
        if self.bad.isdisjoint(before):
            return False
        self.bad.add(key)
        return True

    def wait(self, done: Callable[[], bool], *, helps: bool = False) -> None:
        """Wait on the computing thread until ``done()``; whatever makes it true unparks the thread."""
        what = "the computation of a graph"
        self.graph.runtime.engine.wait(self.graph.scope(), done, (self.group,), what, helps=helps)

    def settle(self) -> None:
        """Start nothing more and wait until what was started, descendants included, is complete."""
        self.is_abandoned = True
        if self.group.live:
            self.wait(lambda: not self.group.live)

    def raise_failures(self) -> None:
        """Raise the first failure, the others as notes; or those of descendants, as a group."""
        errors = list({id(error): error for error in self.failures.values()}.values())
        if not errors:
            raise_failures(self.group.failures, "the end of the computation")
            return
        for task in self.group.failures:
            task.seen = True
        first, *others = errors
        for other in others:
            note = f"in the same computation: {other!r}"
            if note not in getattr(first, "__notes__", ()):
                first.add_note(note)
        raise first


class _Owner:
    """Stands for the thread that a task belongs to."""

    __slots__ = ("_task", "_tell")

    def __init__(self, task: Task, tell: Callable[[Task], Any]) -> None:
        self._task = task
        self._tell = tell

    def unpark(self) -> None:
        self._tell(self._task)


# -- Dask's local scheduler ---------------------------------------------------------------------------


class _Ticket:
    """What Dask gets for a node that it submitted: it is worth the next node that is complete, whichever that is."""

    __slots__ = ("_run",)

    def __init__(self, run: _LocalRun) -> None:
        self._run = run

    def add_done_callback(self, fn: Callable[[_Ticket], Any]) -> None:
        fn(self)

    def result(self) -> Any:
        return self._run.next()


class _LocalRun(_Computation):
    """A computation by `dask.local.get_async`, on this thread alone where there is no pool."""

    def __init__(self, graph: Any, dsk: Mapping[Hashable, Any], pool: Executor | None) -> None:
        super().__init__(graph)
        self._dsk = dsk
        self._pool = pool
        self._jobs: dict[Hashable, Callable[[], Any]] = {}
        self._on_pool: set[Future[Any]] = set()
        self._here: deque[Callable[[], Any]] = deque()  # to be done by this thread
        self._complete: deque[Hashable] = deque()

    def get(self, keys: Any, **kwargs: Any) -> Any:
        """Run the graph and return the values of the keys, nested as they are."""
        failure: BaseException | None = None
        values = None
        try:
            values = get_async(  # type: ignore[no-untyped-call]  # Dask has few types
                self._submit,
                max(len(self._dsk), 1),  # nodes in flight; `_pool` has the threads
                self._dsk,
                keys,
                get_id=threading.get_ident,
                pack_exception=pack_exception,
                chunksize=1,
                **kwargs,
            )
        except BaseException as error:  # noqa: BLE001  # raised below, when nothing runs any more
            failure = error
        self._settle_all()
        if failure is not None and failure not in self.failures.values():
            raise failure
        self.raise_failures()
        return values

    def _submit(self, function: Callable[[Any], Any], batch: Any) -> _Ticket:
        key = batch[0][0]  # Dask's batches are lists of one job here, which begins with its key
        node = self._dsk[key]
        call = node.func if isinstance(node, DaskTask) and isinstance(node.func, NodeCall) else None
        if self.skips(key, node.dependencies):
            self._jobs[key] = (lambda: function(batch)) if call is not None else self.raise_failures
            self._end(key)
        elif call is None:
            self._submit_foreign(key, function, batch)
        else:
            self._jobs[key] = lambda: function(batch)
            if self._pool is None:
                self._here.append(lambda: self.start(call, lambda: self._end(key), partial(self._tell, call.graph)))
            else:
                self._give(self.start, call, lambda: self._end(key))
        return _Ticket(self)

    def _submit_foreign(self, key: Hashable, function: Callable[[Any], Any], batch: Any) -> None:
        """Take a node of another collection: it is complete when its function has returned."""
        if self._pool is None:
            self._jobs[key] = lambda: function(batch)
            self._end(key)
            return
        future = self._give(contextvars.copy_context().run, function, batch)
        self._jobs[key] = future.result
        future.add_done_callback(lambda _: self._end(key))

    def _give(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        future = self._pool.submit(function, *args)  # type: ignore[union-attr]  # the caller has looked
        self._on_pool.add(future)
        future.add_done_callback(self._on_pool.discard)
        return future

    def _end(self, key: Hashable) -> None:
        self._complete.append(key)
        self.scope.parker.unpark()

    def _tell(self, graph: Any, task: Task) -> None:
        """Take a task whose next step is this thread's: its stream has been waited for, or there is memory again."""
        if not task.finished:
            self._here.append(lambda: self._advance(graph, task))
        self.scope.parker.unpark()

    @staticmethod
    def _advance(graph: Any, task: Task) -> None:
        if task.is_ready:
            task.is_ready = False
            graph.advance(task)

    def next(self) -> Any:
        """Return Dask's batch of results of the next node that is complete; meanwhile do what is this thread's."""
        complete, here = self._complete, self._here
        while not complete:
            if here:
                here.popleft()()
            else:
                self.wait(lambda: bool(complete or here), helps=self._pool is None)
        job = self._jobs.pop(complete.popleft())
        token = _current.set(self)
        try:
            return job()
        finally:
            _current.reset(token)

    def _settle_all(self) -> None:
        self.is_abandoned = True
        wait_for_futures(tuple(self._on_pool))
        while self.group.live:
            if self._here:
                self._here.popleft()()
            else:
                self.wait(lambda: bool(self._here) or not self.group.live, helps=self._pool is None)


def _run_locally(dsk: Any, keys: Any, pool: Executor | None, kwargs: dict[str, Any]) -> Any:
    if not hasattr(dsk, "keys"):
        dsk = dsk.__dask_graph__()
    graphs = {
        id(node.func.graph): node.func.graph
        for node in dsk.values()
        if isinstance(node, DaskTask) and isinstance(node.func, NodeCall)
    }
    if not graphs:
        return get(dsk, keys, pool=pool, **kwargs)  # values that were persisted
    with ExitStack() as held:
        for graph in graphs.values():
            held.enter_context(graph.running())
        return _LocalRun(next(iter(graphs.values())), dsk, pool).get(keys, **kwargs)


@contextmanager
def _threads(kwargs: dict[str, Any]) -> Iterator[Executor]:
    """Give the pool that ``pool=`` or ``num_workers=``, or Dask's configuration, ask for; end it if it is ours."""
    pool = kwargs.pop("pool", None) or dask.config.get("pool", None)
    num_workers = kwargs.pop("num_workers", None) or dask.config.get("num_workers", None) or CPU_COUNT
    if isinstance(pool, Executor):
        yield pool
        return
    with ThreadPoolExecutor(num_workers, thread_name_prefix="offload-dask") as own:
        yield own


def get_threaded(dsk: Any, keys: Any, **kwargs: Any) -> Any:
    """Compute a Dask graph with nodes of recorded graphs in it, on threads; a node that waits for its event holds none.

    The default scheduler of a `TaskGraph`, so what `dask.compute` calls.

    Parameters
    ----------
    dsk : mapping or Dask expression
        Nodes by key; those of other collections run in the same pool.
    keys : key or nested list of keys
        What to return.
    **kwargs
        ``num_workers`` (threads, not nodes in flight), ``pool`` (an executor of threads), ``cache``, ``callbacks``.

    Returns
    -------
    value or nested tuple of values
        As ``keys``.

    Raises
    ------
    UsageError
        A graph is being computed already.
    BaseException
        The failure of a node, as it was raised, once everything that was started is complete.
    """
    with _threads(kwargs) as pool:
        return _run_locally(dsk, keys, pool, kwargs)


# -- distributed -------------------------------------------------------------------------------------


class _ClientRun(_Computation):
    """A computation by a `distributed.Client` whose workers are in this process."""

    def __init__(self, graph: Any) -> None:
        super().__init__(graph)
        round_ = _Round(graph)
        self.suffix = uuid4().hex[:8]  # Dask would take a key that it has seen for computed
        self._graph = graph
        self._calls = {node.key: NodeCall(graph, node, round_) for node in graph.nodes}
        self._ends: dict[str, Future[None]] = {}

    def nodes(self) -> dict[str, DaskTask]:
        """Return the graph under keys of this computation, with a last node behind all that nothing depends on."""
        graph, suffix = self._graph, self.suffix
        dsk = {}
        sinks = []
        for node in graph.nodes:
            before = graph.predecessors(node)
            key = f"{node.key}-{suffix}"
            dsk[key] = DaskTask(
                key, _run_node, suffix, node.key, *(TaskRef(f"{other.key}-{suffix}") for other in before)
            )
            if not graph.successors(node):
                sinks.append(TaskRef(key))
        dsk[self.last] = DaskTask(self.last, _nothing, *sinks)
        return dsk

    @property
    def last(self) -> str:
        return f"offload-end-{self.suffix}"

    async def run_node(self, key: str) -> None:
        call = self._calls[key]
        if self.skips(key, (other.key for other in self._graph.predecessors(call.node))):
            return
        end = self._ends.get(key)
        if end is None:  # else Dask runs the node again, whose worker has gone
            end = self._ends[key] = Future()
            await _off_the_loop(self.start, call, lambda: end.set_result(None))
        if not end.done():
            _secede(f"{key}-{self.suffix}")
            await asyncio.wrap_future(end)

    def get(self, client: Any, **kwargs: Any) -> None:
        """Run the graph and wait until everything is complete."""
        _client_runs[self.suffix] = self
        failure: BaseException | None = None
        ended: list[bool] = []

        def end(_: Any) -> None:
            ended.append(True)
            self.scope.parker.unpark()

        try:
            (future,) = client.get(self.nodes(), [self.last], sync=False, **kwargs)
            future.add_done_callback(end)
            self.wait(lambda: bool(ended))
            if future.status != "finished":
                failure = future.exception()
        except BaseException as error:  # noqa: BLE001  # raised below, when nothing runs any more
            failure = error
        try:
            self.settle()
        finally:
            del _client_runs[self.suffix]
        if failure is not None and not self.failures:
            raise failure
        self.raise_failures()


async def _run_node(run: str, key: str, *_predecessors: object) -> None:
    """Run a node of a computation of this process; a coroutine on a worker's loop."""
    if run not in _client_runs:
        raise UnsupportedError(
            f"{key} belongs to a computation of another process, where its memory and its events are"
        )
    await _client_runs[run].run_node(key)


def _nothing(*_predecessors: object) -> None:
    """Do nothing, when everything else is complete."""


async def _off_the_loop(function: Callable[..., Any], *args: Any) -> Any:
    """Run a function in the executor of the Dask worker whose task this is, in a copy of its context."""
    from distributed import get_worker  # half a second, for those who have a client only

    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(get_worker().executor, lambda: context.run(function, *args))


def _secede(key: str) -> None:
    """Give up the slot of this coroutine task, as `distributed.secede` does for a task that runs in a thread."""
    from distributed import get_worker
    from distributed.worker_state_machine import SecedeEvent

    now_s = time.time()
    get_worker().handle_stimulus(SecedeEvent(key=key, compute_duration=0.0, stimulus_id=f"secede-{now_s}"))


def _restore(process: str, graph_id: int, round_number: int, key: str) -> Callable[..., Any]:
    """Unpickle a node: under `distributed`, which alone keeps to this process, it becomes a coroutine function."""
    if process != _PROCESS:
        return partial(_refuse, key)
    return partial(_run_restored, process, graph_id, round_number, key)


def _refuse(key: str, *_predecessors: object) -> None:
    raise UnsupportedError(
        f"{key} was recorded in another process, where its memory and its events are; use a scheduler in that process"
    )


async def _run_restored(process: str, graph_id: int, round_number: int, key: str, *_predecessors: object) -> Any:
    """Run a node that Dask's scheduler got explicitly, on a worker's loop."""
    if process != _PROCESS:
        _refuse(key)
    graph = _graphs.get(graph_id)
    if graph is None:
        raise UsageError(f"{key}: its graph is gone; keep the graph while Dask computes it")
    round_ = next((known for known in graph.rounds if known.number == round_number), None) or _Round(graph)
    call = NodeCall(graph, graph.node(key), round_)
    end: Future[None] = Future()

    def run() -> _Computation:
        round_.begin(call.node)
        computation = _Computation(graph)
        computation.start(call, lambda: end.set_result(None))
        return computation

    computation = await _off_the_loop(run)
    if not end.done():
        _secede(key)
        await asyncio.wrap_future(end)
    if computation.group.live:
        await _off_the_loop(_Computation.settle, computation)
    computation.raise_failures()
    return computation.values.get(key)


def _token() -> str:
    return _PROCESS


def _check_client(client: Any) -> None:
    """Refuse a client that has no workers, or one in another process."""
    if client.asynchronous:
        raise UsageError(
            "compute: the client is asynchronous, and compute blocks; use a Client(processes=False) outside of its loop"
        )
    try:
        processes = client.run(_token)
    except Exception as error:
        raise UnsupportedError(
            f"compute: the client's workers cannot import offload, so they are in other processes: {error!r}"
        ) from error
    others = [address for address, process in processes.items() if process != _PROCESS]
    if others or not processes:
        where = f"{others[0]} is in another process" if others else "it has none"
        raise UnsupportedError(
            f"compute: the client's workers must be in this process, and {where}; use Client(processes=False)"
        )


# -- for TaskGraph -----------------------------------------------------------------------------------


def choose(scheduler: Any) -> Callable[[Any, dict[str, Any]], dict[str, Any]]:
    """Return what computes a graph under a scheduler.

    Raises
    ------
    UnsupportedError
        None of this process.
    """
    if isinstance(scheduler, str):
        name = scheduler.lower()
        if name in _SYNCHRONOUS:
            return _compute_synchronous
        if name in _THREADS:
            return _compute_threaded
    elif isinstance(scheduler, ThreadPoolExecutor):
        return lambda graph, kwargs: _compute_threaded(graph, {**kwargs, "pool": scheduler})
    elif "distributed" in sys.modules and isinstance(scheduler, sys.modules["distributed"].Client):
        return lambda graph, kwargs: _compute_on_client(graph, scheduler, kwargs)
    raise UnsupportedError(
        f"compute: scheduler={scheduler!r:.60} is not in this process, where the graph's memory and events are; "
        "use 'threads', 'synchronous' or a distributed.Client(processes=False)"
    )


def _compute_synchronous(graph: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    kwargs.pop("num_workers", None)
    keys = graph.__dask_keys__()
    return dict(zip(keys, _run_locally(dask_graph(graph), keys, None, kwargs), strict=True)) if keys else {}


def _compute_threaded(graph: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    keys = graph.__dask_keys__()
    return dict(zip(keys, get_threaded(dask_graph(graph), keys, **kwargs), strict=True)) if keys else {}


def _compute_on_client(graph: Any, client: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    _check_client(client)
    with graph.running():
        run = _ClientRun(graph)
        if graph.nodes:
            run.get(client, **kwargs)
        return {node.key: run.values.get(node.key) for node in graph.nodes}


def compute(graph: Any, scheduler: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Compute a recorded graph and return the values by key; everything else as `TaskGraph.compute` says."""
    return choose(scheduler)(graph, dict(kwargs))
