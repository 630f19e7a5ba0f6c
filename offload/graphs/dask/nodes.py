"""Recorded graphs as graphs of Dask, and nodes under a scheduler that Dask was given explicitly.

Such a scheduler gets plain functions: `run_node` blocks until the node is complete. The first node that runs, or one
that runs again, arms all events of the graph (`Round.begin`). Under the synchronous scheduler it is a `UsageError` if a
node waits for an event to which a node refers that has not run. See docs/design/theory.md, "Dask".
"""

from __future__ import annotations

import gc
import inspect
import sys
import threading
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4
from weakref import WeakValueDictionary

from dask.task_spec import Task as DaskTask
from dask.task_spec import TaskRef

from offload.errors import EventError, UnsupportedError, UsageError
from offload.graphs.dask.computation import Computation
from offload.tasks.graph import Graph, Node
from offload.tasks.states import TaskState
from offload.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterable


def dask_graph(graph: Any) -> dict[str, DaskTask]:
    """Return the Dask graph of a recorded one: a node for each directive, a reference for each dependence.

    Raises nothing; *costs* some 5 µs a node.
    """
    round_ = Round(graph)
    graph.rounds.append(round_)  # keeps it alive where Dask has it pickled only
    return {
        node.key: DaskTask(
            node.key, run_node, round_, node.key, *(TaskRef(other.key) for other in graph.predecessors(node))
        )
        for node in graph.nodes
    }


def run_node(reference: Round | str, key: str, *_predecessors: object) -> Any:
    """Run a node, block until it is complete, and return the result of its body."""
    round_ = Round.find(reference)
    if round_ is None:
        raise UnsupportedError(
            f"{key} was recorded in another process, which holds its memory and events, or its graph no longer exists; "
            "call graph.compute(client) there, or use scheduler='threads'"
        )
    return round_.run(key)


def recorded(task: object) -> tuple[Any, Node] | None:
    """Return the recorded graph and the node that a node of a Dask graph stands for; None for another's."""
    if not isinstance(task, DaskTask) or task.func is not run_node:
        return None
    reference, key, *_ = task.args
    round_ = Round.find(reference)
    return None if round_ is None else (round_.graph, round_.graph.node(key))


class InProcess:
    """An object of this process in a Dask graph: pickled, it is its name, which keeps no object alive."""

    _known: ClassVar[WeakValueDictionary[str, Any]] = WeakValueDictionary()

    def __init__(self) -> None:
        self.name = uuid4().hex
        self._known[self.name] = self

    @classmethod
    def find(cls, reference: Any) -> Any:
        """Return the object that an argument of a Dask node refers to; None in another process, and when it is gone."""
        return cls._known.get(reference) if isinstance(reference, str) else reference

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (self.name,)

    def __dask_tokenize__(self) -> object:
        return ("offload", self.name)


class Round(InProcess):
    """A graph made for Dask, which a scheduler may compute more than once but not twice at a time."""

    def __init__(self, graph: Any) -> None:
        super().__init__()
        self.graph = graph
        self._lock = threading.Lock()
        self._begun: set[Node] | None = None
        self._thread = threading.get_ident()

    def begin(self, node: Node) -> None:
        """Note that a node runs; if it is the first one of a computation, arm the graph."""
        with self._lock:
            if self._begun is None or node in self._begun:
                self.graph.arm()
                self._begun = set()
            self._begun.add(node)

    def run(self, key: str) -> Any:
        """Run a node on this thread until it is complete, and return its value or raise the failure."""
        node = self.graph.node(key)
        self.begin(node)
        computation = Computation(self.graph)
        try:
            with computation.running():
                computation.start(self.graph, node)
                if computation.started:
                    self._refuse_deadlock(node)
                    _secede()
        except BaseException:
            self.graph.give_back(self.graph.nodes)  # nobody says which nodes will not run
            raise
        return computation.values.get(key)

    def _refuse_deadlock(self, node: Node) -> None:
        """Refuse to wait for an event that a later node would have to fulfil on this same thread."""
        task: Task | None = node.run.task  # type: ignore[union-attr]  # it has just been started
        event = task.event if task is not None else None  # it has failed meanwhile
        if (
            task is None
            or event is None
            or event.is_fulfilled
            or event.is_promised
            or task.state_ is not TaskState.DETACHED
        ):
            return
        if threading.get_ident() != self._thread:
            return  # the synchronous scheduler alone runs nodes on the thread that had the graph made
        later = [other for other in self.graph.nodes if other is not node and other not in (self._begun or ())]
        culprit = next((other for other in later if _refers_to(other, event)), None)
        if culprit is None:
            return
        with suppress(EventError):  # somebody else did
            event.fulfill()
        raise UsageError(
            f"{node.key} waits for its event, which {culprit.key} would fulfil, and Dask's synchronous scheduler "
            "has one thread for both; use graph.compute(), or scheduler='threads' with more than one worker"
        )


def _refers_to(node: Node, event: object) -> bool:
    """Tell whether an event is a variable or an argument of a node's body, or is reached from one in three steps."""
    if node.spec is None:
        return False  # a wait
    level: list[Any] = node.spec.recipe.given  # type: ignore[attr-defined]  # the recorder's
    for _ in range(4):
        if any(thing is event for thing in level):
            return True
        level = [near for thing in level for near in _near(thing)]
    return False


def _near(thing: Any) -> Iterable[Any]:
    """Return the variables that a function uses, or the members of another object."""
    if isinstance(thing, FunctionType):
        with suppress(ValueError):  # a variable without a value
            used = inspect.getclosurevars(thing)
            return (*used.nonlocals.values(), *used.globals.values())
        return ()
    return () if isinstance(thing, (type, ModuleType, Task, Graph)) else gc.get_referents(thing)


def _secede() -> None:
    """Give up the slot of a `distributed` worker, if it is one of its tasks that runs on this thread."""
    distributed = sys.modules.get("distributed")  # whoever runs under it has imported it
    if distributed is not None:
        with suppress(ValueError, AttributeError, KeyError):  # no worker, none of its threads, or seceded before
            distributed.secede()
