"""The construct ``taskgraph``: a function whose tasks are recorded once and replayed from then on."""

from __future__ import annotations

import functools
import inspect
import threading
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

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
from offload.runtime.current import for_finalizers, here

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from offload.graphs.replay import Replay
    from offload.runtime.current import Scope
    from offload.runtime.runtime import Runtime
    from offload.tasks.region import Region

_MOST_RECORDS = 8
"""Records of one construct: as many as API.md says."""


def _check_graph_id(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        raise ClauseError(
            f"graph_id: {type(value).__name__} {value!r:.60} is not hashable; use a number, a string or a tuple"
        ) from None
    return value  # type: ignore[no-any-return]  # it has been hashed


class TaskgraphFunction(DirectiveFunction):
    """A function whose tasks are recorded at the first call and replayed by later ones."""

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
        scope = here()
        frame = scope.frame("taskgraph")
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
        """What is kept of the calls so far, in all runtimes; the most recently used last."""
        return self._records.shown()

    def _record(self, scope: Scope, frame: Region, key: Key) -> Replay | None:
        """Run the body and return its record; None if it cannot be replayed, or a task has failed.

        Raises
        ------
        UsageError
            The body, or a task, has changed an argument that is a copy of the caller's.
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
    """Return the objects that a callable has besides its arguments: a method's, a partial function's.

    A task that is the region itself looks into its own object when it runs.
    """
    if isinstance(function, functools.partial):
        return (*_bound_to(function.func), *function.args, *function.keywords.values())
    if hasattr(function, "__self__"):
        return () if isinstance(function.__self__, ModuleType) else (function.__self__,)
    if isinstance(function, DirectiveFunction):
        return function._bound if isinstance(function, TaskgraphFunction) else ()  # noqa: SLF001  # its own kind
    return () if isinstance(function, (FunctionType, type)) else (function,)


@contextmanager
def _record_boundary(frame: Region, recorder: Recorder | None = None) -> Iterator[None]:
    """Let what the block generates neither follow nor precede, by dependences, what is outside of it."""
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
        self._claimed: list[Key] = []  # what some thread is recording

    def last(self, runtime: Runtime, graph_id: Hashable, args: tuple[Any, ...]) -> Replay | None:
        """Return the record that was used last if it is plainly the one for these arguments."""
        found = self._found  # no lock: the list is never changed
        if not found:
            return None
        key, record = found[-1]
        return None if record.is_broken or not key.is_plainly(runtime, graph_id, args) else record

    def find_or_claim(self, key: Key) -> Replay | Key | None:
        """Return the record for a key; the key, if the caller is to record; None while another thread does."""
        with self._lock:
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
        """Keep what has been recorded for a key that was claimed; None: nothing."""
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
                    (work := record.capture.work) is not None,
                    record.capture.why_not,
                    record.capture.n_captured,
                    work.graph.nbytes if work is not None else 0,
                )
                for key, record in self._found
            )

    def forget(self, key: Key) -> None:
        with self._lock:
            self._found = [(other, record) for other, record in self._found if other != key]

    def leave(self, runtime: Runtime) -> None:
        """Let go of what was recorded in a runtime, which is closed: device arrays are no use any more."""
        with self._lock:
            self._found = [(key, record) for key, record in self._found if record.runtime is not runtime]


@dataclass(frozen=True, slots=True)
class Record:
    """What a task graph keeps of a call.

    Attributes
    ----------
    graph_id : hashable
    n_tasks : int
        Tasks of a replay, where they go to streams and workers one by one.
    is_captured : bool
        Whether the last replay was one graph of the device.
    why_not : str
        Why the last replay was none; empty where it was, and before the first.
    n_captured : int
        How often the region has been captured: once, and again when what it uses was elsewhere.
    nbytes : int
        Bytes of device memory that belong to the graph.
    """

    graph_id: Hashable
    n_tasks: int
    is_captured: bool
    why_not: str
    n_captured: int
    nbytes: int


def taskgraph(function: Callable[..., Any] | None = None, /, **clauses: Any) -> Any:
    """Make a function a task graph: the first call records the tasks of its body, later calls replay them.

    A replay makes the same tasks with the same arguments and dependences, and runs no line of the body. What has to
    vary from call to call goes into arrays. The tasks of a call, replayed or not, have no dependences on other tasks.

    Parameters
    ----------
    graph_id : hashable
        Which of several records of the construct is meant.
    graph_reset : bool
        True: the record is discarded, and made anew.
    if_ : bool
        False: the body is run, neither replayed nor recorded.
    nogroup : bool
        True: the call does not wait for the tasks and their descendants, as it does otherwise.
    name : str
        A label.

    Returns
    -------
    TaskgraphFunction
        Calling it returns None; ``.options(…)`` returns a copy with clauses replaced, which shares the records;
        ``.records`` tells of each whether it is a graph of the device, and why not.

    Raises
    ------
    ClauseError
        A clause that the construct does not have, or a wrong value.
    UnsupportedError
        The body is an ``async def`` or a generator.
    ExceptionGroup
        At a call: tasks failed, and nobody has seen it.
    UsageError
        At a call: a task of the graph replays it, and an event is in it; the body, or a task, has changed an argument
        of which it has a copy; or the call is in a target body.

    Notes
    -----
    A record is kept for a ``graph_id`` and arguments: arrays by their storage, shape, strides and dtype; others, and
    what lists, tuples, dicts and dataclasses hold, by type and equality (0.0 is not -0.0 there, and NaN is NaN). The
    order of a dict counts, the order of keywords does not. At most 8 are kept, the least recently used one goes. Not
    recorded is a body that raises or one of whose tasks fails; of threads that come first at the same time one records.
    Where the region is recorded already, by `record` or another task graph, and in a final task, the body is run.

    Arguments by equality are those of the recording: the body that is recorded gets a copy of a list, dict, set or
    dataclass, or of any object that its copy equals, with the arrays themselves in it. What the caller changes later
    reaches no replay. What the body or a task changes there would not reach the caller, so that it is an error; copy it
    in the body, or put results into arrays. An object that equals itself alone, as one of a class without ``==``, is
    passed as it is, and has the state that it has when a task runs; so has what cannot be copied.

    Arrays that the arguments reach through objects belong to the record: by attributes, slots, class attributes,
    containers, arrays of objects, methods, partial functions and closures. A call with other arrays there records
    again. If the body or a task puts another array there, the call is not recorded. Neither is a call whose arguments
    reach more than 100,000 objects; a `PerformanceWarning` says so. Numbers in such objects do not belong to the
    record, nor do globals and the variables of enclosing functions that the body uses.

    In a replay, a wait in the body orders what follows it; code between tasks is not run. What depends on a task that
    failed does not run. An event in the graph is armed again, for which a replay first waits for one that is under way;
    others may be in flight at the same time (``nogroup``). List items, device numbers and sections are those that were
    recorded, as are device arrays that the body looked up, and the contents of ``firstprivate`` arrays: what varies has
    to be mapped. A task combines a reduction when it is complete.

    Where all tasks are work of one CUDA device, the first replay captures what they enqueue as a CUDA graph, and from
    then on a replay is one launch: no body is run again. Scalars, what a body reaches besides its arguments, and the
    addresses of storage that is present are those of the capture; storage that is elsewhere at a later replay has the
    region captured again. Where that was so within 16 replays three times in a row, it is replayed task by task until
    the storage has been in the same place for 16: a capture takes 4 to 5 ms. What the region maps and what its bodies
    allocate is memory of the graph. Pinned host memory is read and written by each replay. In errors the region is one
    task then.

    What a body reaches is looked through for device arrays, which the graph keeps: its closure, defaults, globals and
    partial arguments, containers and modules there, and the functions that it calls. A body that reaches an object of
    another class, as a bound method does its own, is not captured: its attributes may be device arrays, and others
    later. FFT plans of CuPy's cache are kept; one that a body makes by itself has to outlive the record.

    Not captured are, besides, host tasks and events, copies of pageable memory, a region that leaves mappings or ends
    those of others, and bodies that wait for the device, read from it, or call what CuPy does not capture (cuBLAS,
    cuSOLVER, cuRAND). Such a region is replayed task by task; ``records`` of the function says why. A body may have run
    once more by then. While a region is captured, CUDA lets no other thread synchronise the whole device: that fails
    there, and the capture is made at the next replay.

    *Blocks*, without ``nogroup``, until the tasks of the call are complete; the waiting thread may run some.
    *Costs* a replay 1 to 2 µs a task, a recording some 50. A record keeps the arguments of the call and of its tasks
    alive, arrays too, until it goes or its runtime is closed; a replay that is complete keeps nothing.
    OpenMP 6.0, 14.3 "taskgraph Construct".
    """
    return decorate(TaskgraphFunction, function, clauses)
