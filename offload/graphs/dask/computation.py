"""One computation of a recorded graph: its tasks, their results, and the thread that waits for it.

Imports no Dask: each scheduler decides when a node is started, and this file defines starting, waiting and failing.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from offload.interrupts.shields import Shield
from offload.tasks import hooked
from offload.tasks.failures import clear_own_frames, raise_failures, see
from offload.tasks.goals import Until
from offload.tasks.region import Group
from offload.tasks.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from offload.runtime.current import Scope
    from offload.tasks.graph import Node
    from offload.tasks.task import Task


class Computation:
    """The nodes that were started for one computation, until all of them are complete.

    ``graph`` may be any of several. ``is_synchronous`` tells whether all bodies run on the thread that makes this
    object. At the end of the computation the graphs of ``whole`` are over: they get back the reservations of nodes that
    it has not started.
    """

    def __init__(self, graph: Any, *, is_synchronous: bool = False, whole: Iterable[Any] = ()) -> None:
        self.scope: Scope = graph.scope()
        self.values: dict[Hashable, Any] = {}  # of the complete nodes, by key
        # by key; a skipped node has the failure because of which it was skipped
        self.failures: dict[Hashable, BaseException] = {}
        # nodes that are started, or that a thread was told to start, and not complete
        self.started: set[Hashable] = set()
        self.graph = graph
        self._is_synchronous = is_synchronous
        self._whole = tuple(whole)
        self._is_over = False
        self._group = Group()  # the nodes' tasks with their descendants
        self._inner: dict[Group, Group] = {}  # the same for each taskgroup that was recorded
        self._own: set[Task] = set()  # tasks whose every step is for this thread

    course: Any = None
    """Of the code that computes, while its runtime is sanitized (`offload.sanitizer.orders`)."""

    def start(self, graph: Any, node: Node, then: Callable[[], Any] | None = None) -> None:
        """Start a node on the calling thread; ``then()`` is called when it is complete, on whichever thread that is.

        Raises nothing: a node that cannot be started has failed.
        """
        key = node.key

        def over() -> None:
            self.started.discard(key)
            if then is not None:
                then()
            self.scope.parker.unpark()

        def end(task: Task) -> None:
            self._own.discard(task)
            if task.failure is not None:
                see(task)
            if task.failure is None or task.state_ is TaskState.CANCELLED:
                self.values[key] = task.value
            else:
                self.failures[key] = task.failure
            over()

        with Shield(self.scope):
            self.started.add(key)
            try:
                group = self._group_for(graph, graph.group_of(node))
                task = None if self._is_over else graph.prepare(node, self.scope.task, group)
                if task is not None:
                    if self._is_synchronous:
                        task.owner = self.scope.parker
                        task.special = True
                        self._own.add(task)
                    graph.submit(task)
            except BaseException as error:  # noqa: BLE001  # kept for whoever computes
                self.failures[key] = error
                task = None
            if task is None:
                graph.give_back([node])
            if task is not None:
                task.add_done_callback(end)
            elif node in graph.group_ends and key not in self.failures:
                self._end_group(self._group_for(graph, graph.group_ends[node]), key, over)
            else:
                over()

    def _group_for(self, graph: Any, recorded: Group | None) -> Group:
        """Return the group that replaces a recorded taskgroup in this computation."""
        if recorded is None or recorded not in graph.groups:
            return self._group
        group = self._inner.get(recorded)
        if group is None:
            group = Group(self._group_for(graph, recorded.outer))
            group.waiters = (self.scope.parker.unpark,)
            group = self._inner.setdefault(recorded, group)  # another thread may have been quicker
        return group

    def _end_group(self, group: Group, key: Hashable, over: Callable[[], None]) -> None:
        """Complete the node at which a taskgroup ends, when the descendants of its tasks are complete as well."""
        tokens = [None]  # whoever takes it completes the node

        def left() -> None:
            try:
                tokens.pop()
            except IndexError:
                return
            try:
                raise_failures(group.failures, "the end of the taskgroup")
            except BaseException as error:  # noqa: BLE001  # kept for whoever computes
                self.failures[key] = error
            over()

        with self.graph.runtime.engine.lock:
            group.waiters = (*group.waiters, left)
        if not group.live:
            left()

    def _is_left(self) -> bool:
        return not (self._group.live or any(group.live for group in [*self._inner.values()]))

    def skips(self, key: Hashable, before: Iterable[Hashable], graph: Any = None, node: Node | None = None) -> bool:
        """Tell whether something that the node depends on failed; then the node counts as failed too."""
        error = next((self.failures[other] for other in before if other in self.failures), None)
        if error is not None:
            self.failures[key] = error
            if node is not None:
                graph.give_back([node])
        return error is not None

    def wait(self, done: Callable[[], Any]) -> None:
        """Wait until ``done()``, on the thread that computes; code that makes it true unparks that thread."""
        while not done():
            steps = [task for task in self._own.copy() if task.is_ready]
            for task in steps:
                with Shield(self.scope):
                    task.is_ready = False
                    self.graph.advance(task)
            if not steps:
                self.graph.runtime.engine.wait(
                    self.scope,
                    Until(
                        "the computation of a graph",
                        lambda: done() or any(task.is_ready for task in self._own.copy()),
                        [task for group in [*self._inner.values()] for task in group.live.copy()],  # type: ignore[misc]  # tasks
                        (self._group,),  # the inner groups unpark this thread by themselves
                    ),
                    helps=self._is_synchronous,
                )

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the block, wait until everything that it started is complete, and raise the failures."""
        # An exception of the block comes first, else the first failure of a node, unchanged; the others are notes on
        # it. A `BaseExceptionGroup` has failures of tasks that bodies generated and that nobody has retrieved.
        errors: list[BaseException] = []
        engine = self.graph.runtime.engine
        engine.hurry()  # whoever computes waits, also while it runs Dask's loop or a body
        try:
            try:
                yield
            except BaseException as error:  # noqa: BLE001  # raised below
                errors.append(error)
            with Shield(self.scope):
                self._is_over = True
                for graph in self._whole:  # what has been started may wait for the turns of what will not be
                    graph.give_back(graph.nodes)
                self.wait(lambda: not self.started and self._is_left())
        finally:
            engine.relax()
            for task in self._own.copy():  # none, unless the wait was interrupted
                engine.disown(task)
        try:
            self._raise_failures([*errors, *self.failures.values()])
        finally:
            errors.clear()  # as there

    def _raise_failures(self, errors: Iterable[BaseException]) -> None:
        errors = {id(error): error for error in errors}.values()
        for error in errors:
            clear_own_frames(error)
        failed = [task for group in (self._group, *self._inner.values()) for task in group.failures]
        if not errors:
            raise_failures(failed, "the end of the computation")
            return
        for task in failed:
            see(task)
        first, *others = errors
        for other in others:
            note = f"in the same computation: {other!r}"
            if note not in getattr(first, "__notes__", ()):
                first.add_note(note)
        self.failures.clear()
        try:
            raise first
        finally:
            del self, errors, error, failed, first, others  # or the traceback would refer to what refers to the failure


def _noted_init(plain: Any) -> Any:
    """Return `Computation.__init__` for sanitized runtimes: all its tasks are generated by the code that computes."""

    def init(self: Computation, graph: Any, **kwargs: Any) -> None:
        plain(self, graph, **kwargs)
        orders = hooked.orders.get(graph.runtime)
        self.course = None if orders is None else orders.code()

    return init


def _noted_start(plain: Any) -> Any:
    def start(self: Computation, graph: Any, *args: Any) -> None:
        orders = hooked.orders.get(graph.runtime)
        outer = None if orders is None else orders.acts_for(self.course)
        try:
            plain(self, graph, *args)
        finally:
            if orders is not None:
                orders.acts_no_more(outer)
            del self, graph, args, outer  # a failure keeps this frame

    return start


def _noted_group_end(plain: Any) -> Any:
    def end_group(self: Computation, group: Group, key: str, over: Callable[[], None]) -> None:
        if (orders := hooked.orders.get(self.graph.runtime)) is not None:
            orders.ends_group(key, group)
        plain(self, group, key, over)

    return end_group


def _noted_end(plain: Any) -> Any:
    def raise_failures(self: Computation, errors: Iterable[BaseException]) -> None:
        group = None
        if (orders := hooked.orders.get(self.graph.runtime)) is not None:
            for group in (self._group, *self._inner.values()):
                orders.joins_set(group)
        try:
            plain(self, errors)
        finally:
            del self, errors, group  # a failure keeps this frame

    return raise_failures


hooked.register(Computation, "__init__", _noted_init, "sanitize")
hooked.register(Computation, "start", _noted_start, "sanitize")
hooked.register(Computation, "_end_group", _noted_group_end, "sanitize")
hooked.register(Computation, "_raise_failures", _noted_end, "sanitize")
