"""Recorded graphs of local devices on the workers of a client: the same tasks, in a runtime of the computation's own.

`TaskGraph.moved` makes the tasks for the devices with the same numbers on the cluster, and `get_on_cluster` runs them
like the graph of any cluster's runtime. Host arrays stay the program's. This file refuses a graph that cannot move,
before its first task runs. See docs/design/clusters.md, "Graphs that move".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.arrays.items import is_device_array, label
from offload.errors import DeviceUnavailableError, UnsupportedError, UsageError
from offload.graphs.dask.cluster import get_on_cluster
from offload.runtime import registry
from offload.runtime.recipe import DeviceRecipe
from offload.runtime.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from offload.tasks.graph import Node


def get_moved(graph: Any, keys: Sequence[str], client: Any, retries: int) -> list[Any]:
    """Compute a graph of local devices on the workers of a client, and return the values of the keys.

    Raises
    ------
    UnsupportedError
        A task of the graph cannot move; nothing has run.
    DeviceUnavailableError
        The graph uses more devices than the workers have, or a worker does not fit; nothing has run.
    LeakError
        The graph has run, and has left data on the workers.
    BaseException
        As `get_on_cluster`.
    """
    with graph.held():  # the recorded tasks, which may map data, are complete then
        _refuse_arrays(graph)
        _refuse_present(graph)
    used = [(place.device.number, node) for node, recipe in _device_recipes(graph) for place in recipe.places]
    # The settings are those of the recording. With ``check``, data that the graph leaves there is an error.
    with Runtime(client, check=True, env=graph.runtime.settings.env) as runtime:
        registry.set_aside(runtime)  # other threads of the program are not to find it
        if used:
            number, node = max(used, key=lambda use: use[0])
            if number >= len(runtime.places):
                raise DeviceUnavailableError(
                    f"compute: {node.key} is for device {number}, but the client's workers have devices 0 to "
                    f"{len(runtime.places) - 1}; start more workers, or wait for them with client.wait_for_workers(n)"
                )
        moved = graph.moved(runtime)
        _check_pickles(moved)
        return get_on_cluster(moved, keys, retries)


def _immovable(node: Node, why: object) -> UnsupportedError:
    return UnsupportedError(f"compute: {node.key} cannot run on the client's workers: {why}")


def _device_recipes(graph: Any) -> Iterator[tuple[Node, DeviceRecipe]]:
    for node in graph.nodes:
        recipe = node.spec and node.spec.recipe
        if isinstance(recipe, DeviceRecipe):
            yield node, recipe


def _refuse_arrays(graph: Any) -> None:
    """Raise `UnsupportedError` if a task is passed a device array, whose memory is in this process."""
    for node in graph.nodes:
        recipe = node.spec and node.spec.recipe
        passed = (*recipe.args, *(recipe.kwargs or {}).values()) if recipe else ()
        found = next((value for value in passed if is_device_array(value)), None)
        if found is not None:
            raise _immovable(node, f"{label(found)} is a device array of this process; map a host array instead")


def _refuse_present(graph: Any) -> None:
    """Raise `UnsupportedError` if data of a task is present on a local device, where it would stay."""
    for node, recipe in _device_recipes(graph):
        for place in recipe.places:
            with place.lock:
                found = next((item for item in recipe.work.items if any(place.table.search(item.section))), None)
            if found is not None:
                raise _immovable(
                    node,
                    f"{found.label} is present on device {place.device.number} of this process, and that data would "
                    "not move; unmap it first, or record the graph in Runtime(client)",
                )


def _check_pickles(moved: Any) -> None:
    """Raise `UnsupportedError` if a body or an argument cannot be pickled for its worker."""
    for node, recipe in _device_recipes(moved):
        if recipe.body is not None:
            device: Any = recipe.place.device
            args, kwargs = recipe.work.sent(recipe.args, recipe.kwargs or {})
            try:
                device.cluster.bodies.call_of(recipe.body, args, kwargs, device)
            except (UsageError, UnsupportedError) as error:
                raise _immovable(node, error) from error
