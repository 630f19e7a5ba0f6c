"""The construct ``taskgraph``: a function whose tasks are recorded once and replayed from then on."""

from __future__ import annotations

import functools
import inspect
import threading
from contextlib import contextmanager, nullcontext
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from offload.arrays.containers import MOST_PARTS
from offload.constructs.call import DirectiveFunction, decorate
from offload.constructs.clauses.maps import check_name
from offload.constructs.groups import Taskgroup
from offload.constructs.taskgraph_keys import Key
from offload.constructs.taskgraph_reach import TooMuchError
from offload.errors import ClauseError, PerformanceWarning, UsageError
from offload.graphs.plan import is_replayable, tasks_of
from offload.graphs.recording import Recorder
from offload.graphs.taskgraph import TaskGraph
from offload.interrupts.frames import warn
from offload.runtime.current import encounter, for_finalizers
from offload.runtime.keywords import shows_clauses

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from typing import Unpack

    from offload.constructs.clauses.signatures import P, TaskgraphCall, TaskgraphClauses
    from offload.graphs.replay import Replay
    from offload.runtime.current import Scope
    from offload.runtime.runtime import Runtime
    from offload.tasks.region import Region

_MOST_RECORDS = 8  # Records of one construct: as many as API.md says


def _check_graph_id(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        raise ClauseError(
            f"graph_id: {type(value).__name__} {value!r:.60} is not hashable; use a number, a string or a tuple"
        ) from None
    return value  # type: ignore[no-any-return]  # it has been hashed


class TaskgraphFunction(DirectiveFunction):
    """A function whose tasks are recorded at the first call and replayed by later calls."""

    __slots__ = ()

    _directive = "taskgraph"
    _checks = {  # noqa: RUF012  # a table, never changed
        "graph_id": _check_graph_id,
        "graph_reset": bool,
        "if_": bool,
        "nogroup": bool,
        "name": check_name,
    }

    def __init__(self, function: Callable[..., Any], clauses: dict[str, Any]) -> None:
        super().__init__(function, clauses)
        self._records = _Records()
        self._bound = _bound_to(function)
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):  # a callable of an extension module
            self._signature = None

    @for_finalizers
    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Encounter the construct: replay the record for these arguments, or run the body and record it."""
        clauses = self._clauses
        scope, frame = encounter("taskgraph")
        graph_id = clauses.get("graph_id")
        resets = clauses.get("graph_reset")
        is_kept = frame.recorder is None and clauses.get("if_", True) and not frame.inherited.is_final
        found: Replay | Key | None = None
        if is_kept and not (resets or kwargs):
            found = self._records.last(scope.runtime, graph_id, args)
        if found is None and (is_kept or resets):
            key = self._key(scope.runtime, args, kwargs)
            if resets and key is not None:
                self._records.forget(key)
            if is_kept and key is not None:
                found = self._records.find_or_claim(key)
        if found is not None and not isinstance(found, Key):
            waits = not clauses.get("nogroup")
            found.admit(scope, frame, waits=waits)
            if not found.start_graph(scope, frame, waits=waits):
                with self._group():
                    found.start(scope, frame, waits=waits)
            return
        if frame.recorder is not None:  # the outer graph has these tasks
            with self._group():
                self._function(*args, **kwargs)
            return
        if found is None:
            with self._group(), _record_boundary(frame):
                self._function(*args, **kwargs)
            return
        record = None
        try:
            record = self._record(scope, frame, found)
        finally:
            self._records.settle(found, record)

    def _key(self, runtime: Runtime, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Key | None:
        """Return the key of a call; None if its arguments reach too many objects."""
        args, kwargs = self._positional(args, kwargs)
        try:
            return Key(runtime, self._clauses.get("graph_id"), args, kwargs, self._bound)
        except TooMuchError:
            warn(
                f"taskgraph {self._name!r} is not recorded: its arguments reach more than {MOST_PARTS:,} objects, too "
                "many to search for arrays at each call; pass the arrays themselves as arguments",
                PerformanceWarning,
            )
            return None

    def _group(self) -> Any:
        """Return the construct's taskgroup, if it has one."""
        return nullcontext() if self._clauses.get("nogroup") else Taskgroup(directive=self._directive)

    @property
    def records(self) -> tuple[Record, ...]:
        """The records of the calls so far, in all runtimes; the most recently used record is last.

        Examples
        --------
        >>> @omp.taskgraph
        ... def step(x):
        ...     omp.task(lambda x: x.fill(1))(x)
        >>> step(np.zeros(3))
        >>> [record.n_tasks for record in step.records]
        [1]
        """
        return self._records.shown()

    def _record(self, scope: Scope, frame: Region, key: Key) -> Replay | None:
        """Run the body and return its record, or None if it cannot be replayed or a task has failed.

        Raise `UsageError` if the body or a task has changed an argument that is a copy of the caller's.
        """
        graph = TaskGraph(scope.runtime)
        args, kwargs = key.given
        record = None
        is_complete = False
        with self._group():
            outer = frame.inherited.group
            with _record_boundary(frame, Recorder(graph, executes=True, runs_again=True)):
                self._function(*args, **kwargs)
            is_complete = True
        if is_complete and not key.is_as_given():
            raise UsageError(
                f"taskgraph {self._name!r}: {key.what_changed()} was changed by the body or by a task; they work on a "
                "copy, so the caller does not see the change, and a replay starts from the state that the previous "
                "replay left. Store results in an array, or in an object that equals only itself; copy any argument "
                "that the body changes"
            )
        if is_complete and is_replayable(graph, outer) and key.reaches_the_same():
            from offload.graphs.replay import Replay  # for programs that replay: `import offload` is quicker without it

            record = Replay(graph, outer, self._site_in(scope.runtime), self._clauses.label)
            record.follow(tasks_of(graph))
        return record

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments as they are when each has its place, whether it was named or not."""
        if self._signature is None:
            return args, kwargs
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:
            return args, kwargs  # the call of the body says what is wrong
        bound.apply_defaults()
        return bound.args, bound.kwargs


def _bound_to(function: Any) -> tuple[Any, ...]:
    """Return the objects that a callable has besides its arguments: a method's, a partial function's."""
    # A task that is the region itself looks into its own object when it runs.
    if isinstance(function, functools.partial):
        return (*_bound_to(function.func), *function.args, *function.keywords.values())
    if hasattr(function, "__self__"):
        return () if isinstance(function.__self__, ModuleType) else (function.__self__,)
    if isinstance(function, DirectiveFunction):
        return function._bound if isinstance(function, TaskgraphFunction) else ()  # noqa: SLF001  # its own kind
    return () if isinstance(function, (FunctionType, type)) else (function,)


@contextmanager
def _record_boundary(frame: Region, recorder: Recorder | None = None) -> Iterator[None]:
    """Let tasks of the block neither follow nor precede tasks outside of it by dependences."""
    tracker, frame.tracker = frame.tracker, frame.new_tracker()
    frame.record(recorder)
    try:
        yield
    finally:
        frame.tracker = tracker
        frame.record(None)


class _Records:
    """The records of one construct, the most recently used last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: list[tuple[Key, Replay]] = []  # never changed but replaced
        self._claimed: list[Key] = []  # keys that threads are recording

    def last(self, runtime: Runtime, graph_id: Hashable, args: tuple[Any, ...]) -> Replay | None:
        """Return the record that was used last if it is plainly the one for these arguments."""
        found = self._found  # no lock: the list is never changed
        if not found:
            return None
        key, record = found[-1]
        if record.pending:
            record.look()
        return None if record.is_broken or not key.is_plainly(runtime, graph_id, args) else record

    def find_or_claim(self, key: Key) -> Replay | Key | None:
        """Return the record for a key; the key, if the caller is to record; None while another thread does."""
        with self._lock:
            for _, record in self._found:
                record.look()
            found = [(other, record) for other, record in self._found if not record.is_broken]
            # A task of a record may have changed what its tasks are given; then it is of no use either.
            self._found = found = [one for one in found if one[0] != key or one[0].is_as_given()]
            for at, (other, record) in enumerate(found):
                if other == key:
                    self._found = [*found[:at], *found[at + 1 :], found[at]]
                    return record
            if key in self._claimed:
                return None
            key.keep()
            self._claimed.append(key)
            return key

    def settle(self, key: Key, record: Replay | None) -> None:
        """Keep the record for a key that was claimed; None: there is none."""
        with self._lock:
            self._claimed.remove(key)
            if record is not None and not record.is_broken:
                self._found = [*self._found, (key, record)][-_MOST_RECORDS:]
                record.runtime.records.add(self)

    def shown(self) -> tuple[Record, ...]:
        with self._lock:
            return tuple(
                Record(
                    key.graph_id,
                    record.n_tasks,
                    record.cut.is_captured,
                    record.cut.why_not,
                    record.n_captured,
                    sum(work.graph.nbytes for capture in record.cut.captures if (work := capture.work) is not None),
                )
                for key, record in self._found
            )

    def forget(self, key: Key) -> None:
        with self._lock:
            self._found = [(other, record) for other, record in self._found if other != key]

    def leave(self, runtime: Runtime) -> None:
        """Drop the records of a runtime, which is closed: device arrays are of no use any more."""
        with self._lock:
            self._found = [(key, record) for key, record in self._found if record.runtime is not runtime]


class Record(NamedTuple):
    """The state of a task graph's record, for users."""

    graph_id: Hashable
    n_tasks: int  # tasks of a replay, if they go to streams and workers one by one
    is_captured: bool  # whether the last replay launched graphs
    why_not: str  # why device work of the last replay was in no graph; empty if all was, and before the first
    n_captured: int  # captures so far: one for each graph, and another one when its storage has moved
    nbytes: int  # device memory that belongs to the graphs


@overload
def taskgraph(function: Callable[P, Any], /, **clauses: Unpack[TaskgraphClauses]) -> TaskgraphCall[P]: ...
@overload
def taskgraph(
    function: None = None, /, **clauses: Unpack[TaskgraphClauses]
) -> Callable[[Callable[P, Any]], TaskgraphCall[P]]: ...
@shows_clauses("offload.constructs.clauses.signatures")
def taskgraph(function: Callable[..., Any] | None = None, /, **clauses: Unpack[TaskgraphClauses]) -> Any:
    """Make a function a task graph: the first call records the tasks of its body, later calls replay them.

    A replay generates the same tasks with the same arguments and dependences, and does not run the body. Put values
    that vary from call to call into arrays. The tasks of a call have no dependences on other tasks.

    Parameters
    ----------
    graph_id : hashable
        Selects one of several records of the construct.
    graph_reset : bool
        True: discard the record, and record again.
    if_ : bool
        False: run the body, without a replay or a record.
    nogroup : bool
        True: the call does not wait for the tasks and their descendants.
    name : str
        A label.

    Returns
    -------
    TaskgraphFunction
        Each call returns None. ``.options(…)`` returns a copy with clauses replaced, which shares the records.
        ``.records`` says for each record whether it is a graph of the device, and if not, why.

    Raises
    ------
    ClauseError
        The construct has no such clause, or a value is wrong.
    UnsupportedError
        The body is an ``async def`` or a generator.
    ExceptionGroup
        At a call: tasks failed, and their failures have not been retrieved.
    UsageError
        At a call: a task of the graph replays the graph, which contains an event. The body, or a task, has changed an
        argument of which it has a copy. The call is in a target body.

    Notes
    -----
    **Records.** A record belongs to a ``graph_id`` and to arguments. Arrays compare by their storage, shape, strides
    and dtype. Other arguments, and the contents of lists, tuples, dicts and dataclasses, compare by type and equality
    (0.0 differs from -0.0, and NaN equals NaN). The order of a dict counts, and the order of keywords does not. At most
    8 records are kept; the least recently used one is dropped. If the body raises or a task fails, nothing is recorded.
    If several threads make the first call together, one of them records. If the region is already being recorded, by
    `record` or another task graph, and in a final task, the body runs.

    **Arguments.** A replay uses the arguments of the recording. The recorded body gets a copy of a list, dict, set or
    dataclass, and of any object that equals its copy. The arrays in it are not copied. Later changes by the caller do
    not reach a replay. Changes by the body or a task would not reach the caller, so they are an error: copy the object
    in the body, or put results into arrays. An object that equals only itself, such as an object of a class without
    ``==``, is passed as it is, with its state at the time when a task runs. This also holds for objects that cannot be
    copied.

    **Arrays in objects.** Arrays that the arguments reach through objects belong to the record. They can be reached by
    attributes, slots, class attributes, containers, arrays of objects, methods, partial functions and closures. A call
    with other arrays there records again. If the body or a task puts another array there, the call is not recorded. A
    call whose arguments reach more than 100,000 objects is not recorded either; a `PerformanceWarning` says so. Numbers
    in such objects do not belong to the record. Neither do globals and variables of enclosing functions that the body
    uses.

    **Replays.** A wait in the body orders the tasks after it, but the code between tasks does not run. Tasks that
    depend on a failed task do not run. A graph with an event arms the event again, and first waits for a replay that is
    still in progress. Replays of a graph without events may overlap (``nogroup``). List items, device numbers and
    sections stay as they were at the recording. So do device arrays that the body looked up, and the contents of
    ``firstprivate`` arrays. Map data that varies. A task combines a reduction when it is complete.

    **CUDA graphs.** If all tasks are work of one CUDA device, the first replay captures their work as a CUDA graph.
    From then on a replay is one launch, and no body runs. Scalars, objects that a body reaches other than by arguments,
    and addresses of present storage stay as they were at the capture. If the storage has moved at a later replay, the
    region is captured again, which takes 4 to 5 ms. If that happens within 16 replays three times in a row, the region
    is replayed task by task until the storage has stayed in place for 16 replays. The graph owns the memory for data
    that the region maps, and for data that its bodies allocate. Each replay reads and writes pinned host memory. In
    errors, the region is then one task.

    The graph keeps the device arrays that a body reaches: through its closure, defaults, globals and partial arguments,
    through containers and modules there, and through the functions that it calls. A body that reaches an object of
    another class is not captured, because its attributes may be device arrays that change later. A bound method is such
    a body. CuPy's cached FFT plans are kept. An FFT plan that a body makes must outlive the record.

    **PyTorch.** A body may reach PyTorch's tensors and modules. The graph keeps their memory, and has memory of its own
    for tensors that the body makes. If a tensor has other memory or another gradient at a replay, or a module another
    mode or other parameters, the region is captured again. If a body calls something that PyTorch cannot capture, or
    gives a tensor a new gradient, the region is replayed task by task, and one `PerformanceWarning` names the call.

    offload does not capture host tasks and events, copies of pageable memory, or a region that leaves mappings or ends
    other regions' mappings. It also does not capture bodies that wait for the device, read from it, or call functions
    that CuPy cannot capture (cuBLAS, cuSOLVER, cuRAND). Such a region is replayed task by task; ``records`` of the
    function says why. A body may have run once more by then. During a capture, CUDA lets no other thread synchronise
    the whole device. Such a synchronisation fails, and offload captures at the next replay.

    Without ``nogroup``, the call blocks until its tasks are complete; the waiting thread may run some. A replay costs 1
    to 2 µs a task, a recording about 50. A record keeps the arguments of the call and of its tasks alive, including
    arrays, until it is dropped or its runtime is closed. A complete replay keeps nothing. OpenMP 6.0, 14.3 "taskgraph
    Construct".

    Examples
    --------
    >>> x = np.zeros(3)
    >>> @omp.task(depend=[omp.inout("x")])
    ... def increment(x):
    ...     x += 1
    >>> @omp.taskgraph
    ... def step(x):
    ...     increment(x)
    ...     increment(x)
    >>> for call in range(5):
    ...     step(x)  # the first call records, the others replay
    >>> x
    array([10., 10., 10.])
    """
    return decorate(TaskgraphFunction, function, clauses)
