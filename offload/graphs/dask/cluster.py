"""Recorded graphs of a runtime on a Dask cluster: everything is planned in one go, and run again after a loss.

The tasks of all nodes are generated in the order of the graph, and follow each other as the edges say. Meanwhile
segments are closed only where another worker needs them, so that a worker gets as few as the edges allow. The nodes of
waits have no tasks: a node after a wait follows the tasks before the wait. The end of a taskgroup with host tasks in it
has one, which also waits for the tasks that those generate.

*Replay.* The host arrays that the graph may write are copied before the first run. When a worker is lost, all that was
under way ends first. Then what the graph has mapped elsewhere is released, the devices are recovered, the host arrays
are restored, and the graph runs again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from offload.data.maptypes import MapType
from offload.errors import ClauseError, DeviceLostError, UsageError
from offload.graphs.replay_tasks import GroupEnd
from offload.interrupts.shields import Shield
from offload.runtime.appended import gathering
from offload.runtime.generate import begin
from offload.runtime.recipe import DeviceRecipe
from offload.tasks.failures import raise_failures, see
from offload.tasks.goals import Emptied
from offload.tasks.region import Group, Inherited, Region
from offload.tasks.site import Site
from offload.tasks.states import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from offload.runtime.place import DevicePlace
    from offload.tasks.graph import Node
    from offload.tasks.task import Task


def is_on_cluster(graph: Any) -> bool:
    """Tell whether the runtime of a graph has the devices of a Dask cluster."""
    places = graph.runtime.places
    return bool(places) and places[0].plans


def check_client(client: Any) -> None:
    """Raise `UsageError` for a client that cannot be waited for."""
    if client.asynchronous:
        raise UsageError("compute: the client is asynchronous, but compute blocks; use a client outside its loop")
    if client.status != "running":
        raise UsageError(f"compute: the client is {client.status}; use one that is open")


def retries_among(kwargs: Mapping[str, Any]) -> int:
    """Return the one keyword that a computation on a cluster has; raise `ClauseError` for another."""
    if unknown := kwargs.keys() - {"retries"}:
        raise ClauseError(f"compute: {min(unknown)!r} is not an argument on a cluster; retries= is")
    retries: int = kwargs.get("retries", 0)
    return retries


def get_on_cluster(graph: Any, keys: Sequence[str], retries: int) -> list[Any]:
    """Compute a graph on its cluster, and return the values of the keys.

    Raises
    ------
    DeviceLostError
        A worker was lost, and the graph was not to be run again, or cannot be.
    BaseException
        The failure of a node, unchanged.
    """
    if type(retries) is not int or retries < 0:
        raise UsageError(f"compute: retries={retries!r:.40} is not a number of runs; use an int of at least 0")
    saved = Saved(graph) if retries else None
    while True:
        run = GraphRun(graph)
        try:
            with graph.running():
                run.carry_out()
        except DeviceLostError as error:
            if saved is None or not retries:
                raise
            why = saved.why_not()
            if why:
                error.add_note(f"the graph is not run again: {why}")
                raise
            retries -= 1
            saved.restore()
        else:
            return [run.values.get(key) for key in keys]


class GraphRun:
    """One run of a graph."""

    def __init__(self, graph: Any) -> None:
        self.values: dict[str, Any] = {}
        self._graph = graph
        self._group = Group()
        self._tasks: dict[Node, Task] = {}
        # For each node the tasks that a node follows which comes after it: its own, or those before a wait.
        self._after: dict[Node, list[ref[Task]]] = {}
        self._groups = self._with_descendants()

    def carry_out(self) -> None:
        """Generate all tasks, wait for them, and raise the first failure."""
        graph = self._graph
        scope = graph.scope()
        with Shield(scope), gathering(graph.runtime.places):
            for node in graph.nodes:
                self._start(node, scope)
        graph.runtime.engine.wait(scope, Emptied("the computation of a graph", self._group))
        self._raise_failures()

    def _start(self, node: Node, scope: Any) -> None:
        graph = self._graph
        before = [*dict.fromkeys(one for other in graph.predecessors(node) for one in self._after[other])]
        ended = graph.group_ends.get(node)
        task: Task | None
        if ended is not None and ended in self._groups:
            task = self._end(node, ended, scope)
        else:
            task = graph.prepare(node, scope.task, self._group_for(graph.group_of(node)))
        if task is None:
            self._after[node] = before
            return
        self._tasks[node] = task
        self._after[node] = [ref(task)]
        if graph.runtime.engine.submit(task, (), (), before):
            begin(scope, task)

    def _with_descendants(self) -> dict[Group | None, Group]:
        """Return a group of this run for each recorded taskgroup that host tasks are in; None stands for no taskgroup.

        Only host tasks generate others. The end of any other taskgroup is the end of the tasks before it, which nobody
        has to wait for here.
        """
        found: dict[Group | None, Group] = {None: self._group}

        def add(recorded: Group | None) -> Group:
            if recorded not in found:
                found[recorded] = Group(add(self._outer(recorded)))
            return found[recorded]

        for node in self._graph.nodes:
            if node.spec is not None and not isinstance(node.spec.recipe, DeviceRecipe):
                add(self._graph.group_of(node))
        return found

    def _outer(self, recorded: Any) -> Group | None:
        """Return the recorded taskgroup around one; None if there is none in the graph."""
        outer: Group | None = recorded.outer
        return outer if outer in self._graph.groups else None

    def _group_for(self, recorded: Group | None) -> Group:
        """Return the group of this run for the tasks of a recorded taskgroup."""
        while recorded not in self._groups:
            recorded = self._outer(recorded)
        return self._groups[recorded]

    def _end(self, node: Node, ended: Group, scope: Any) -> Task:
        """Return the task at the end of a taskgroup, which is complete when the descendants of its tasks are."""
        runtime = self._graph.runtime
        site = Site(node.directive, node.name, str(node.location), runtime)
        inherited = Inherited(runtime.default_device, self._group_for(ended).outer)
        return GroupEnd(site, Region(scope.task, inherited), self._group_for(ended))

    def _raise_failures(self) -> None:
        failures: list[BaseException] = []
        for node, task in self._tasks.items():
            if task.failure is None or task.state_ is TaskState.CANCELLED:
                self.values[node.key] = task.value
                continue
            see(task)
            if task.state_ is not TaskState.NOT_RUN:
                failures.append(task.failure)
        self._tasks.clear()
        lost = [error for error in failures if isinstance(error, DeviceLostError)]
        first = next(iter([*[error for error in failures if error not in lost], *lost]), None)
        if first is None:
            raise_failures(self._group.failures, "the end of the computation")  # of tasks that bodies have generated
            return
        for child in [*self._group.failures]:
            see(child)
        for other in failures:
            if other is not first:
                first.add_note(f"in the same computation: {other!r}")
        failures.clear()
        try:
            raise first
        finally:
            del self, first, lost


class Saved:
    """The state before the first run of a graph, to which another run can return."""

    def __init__(self, graph: Any) -> None:
        self._runtime = graph.runtime
        self._hosts = {id(array): (array, array.copy()) for array in _written_by(graph) if array.flags.writeable}
        self._counts = {
            place: {entry: (entry.dynamic, entry.structured) for entry in place.table.entries()}
            for place in self._places
        }
        self._uses_arrays = {place for node in graph.nodes for place in _places_of_arrays(graph, node)}
        # Of each place the entries that the graph finds present, and whether it writes to them.
        self._present = {place: _present_at(graph, place) for place in self._places}

    @property
    def _places(self) -> list[DevicePlace]:
        places: list[DevicePlace] = self._runtime.places
        return places

    def why_not(self) -> str:
        """Return why the graph cannot run again; empty if it can."""
        for place in self._places:
            is_lost: bool = place.device.is_lost  # type: ignore[attr-defined]  # a cluster's
            present = [str(entry.label) for entry, writes in self._present[place].items() if writes or is_lost]
            if present:
                return (
                    f"device {place.device.number} held data that the graph did not map itself ({', '.join(present)})"
                )
            if place in self._uses_arrays:
                return f"it uses arrays of target_alloc on device {place.device.number}"
        return ""

    def restore(self) -> None:
        """Release the data that the graph has mapped, recover the devices, and restore the host arrays."""
        for place in self._places:
            device: Any = place.device
            if device.is_lost:
                device.recover()
                continue
            for entry in place.table.entries():
                if entry not in self._counts[place]:
                    place.drop(entry)
                else:
                    entry.dynamic, entry.structured = self._counts[place][entry]
        for array, contents in self._hosts.values():
            np.copyto(array, contents)


def _written_by(graph: Any) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the host arrays that a graph may write: those that it copies to, and those that host tasks are passed."""
    for node in graph.nodes:
        if node.spec is None:
            continue
        recipe = node.spec.recipe
        for item in getattr(getattr(recipe, "work", None), "items", ()):
            yield item.host
        for array in (*recipe.args, *(recipe.kwargs or {}).values()):
            if isinstance(array, np.ndarray):
                yield array


def _present_at(graph: Any, place: DevicePlace) -> dict[Any, bool]:
    """Return the entries of a place that a graph finds present, and whether it may write to them on the device."""
    found: dict[Any, bool] = {}
    for node in graph.nodes:
        recipe = node.spec.recipe if node.spec is not None else None
        if not isinstance(recipe, DeviceRecipe) or place not in (
            getattr(recipe.work, "places", None) or (recipe.place,)
        ):
            continue
        for item in getattr(recipe.work, "items", ()):
            entry, _ = place.table.search(item.section)
            if entry is not None:
                found[entry] = found.get(entry, False) or item.map_type is not MapType.TO
    return found


def _places_of_arrays(graph: Any, node: Node) -> Iterator[DevicePlace]:
    """Yield the place of a node that is passed device arrays, which no run of the graph makes."""
    recipe = node.spec.recipe if node.spec is not None else None  # type: ignore[attr-defined]  # an `Again`
    if isinstance(recipe, DeviceRecipe) and recipe.work.takes_device_arrays:
        yield recipe.place
        if recipe.work.second is not None:
            yield from (place for place in graph.runtime.places if place.device is recipe.work.second)
