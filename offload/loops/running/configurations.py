"""The configuration of a launch, for `explain` and for observers (``OFFLOAD_NOTIFY``).

On CUDA it is the grid and the block. On the host, and on devices whose kernels the host runs, it is the number of
chunks of the outermost loop, and the largest number of threads that take them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.loops.emit.grids import Grid
    from offload.loops.running.arguments import NestRun
    from offload.loops.running.cuda_runs import CudaBlank, CudaRun
    from offload.loops.tree import ir
    from offload.runtime.launch import DeviceTask
    from offload.runtime.place import DevicePlace

# Plain values: lists of three numbers for ``grid`` and ``block``, or numbers for ``chunks`` and ``threads``.
Configuration: TypeAlias = "dict[str, Any]"


def on_cuda(grid: Grid) -> Configuration:
    """Return the configuration of a launch on CUDA."""
    return {"grid": list(grid.blocks), "block": list(grid.threads)}


def on_threads(n_chunks: int, n_threads: int) -> Configuration:
    """Return the configuration of a launch that threads of the host carry out."""
    return {"chunks": n_chunks, "threads": max(1, min(n_chunks, n_threads))}


def configuration_of(run: NestRun | CudaRun | CudaBlank) -> Configuration | None:
    """Return the configuration of a run; None if it has no iterations, so that nothing is launched."""
    blank: Any = getattr(run, "blank", run)
    if not blank.size:
        return None
    grid: Grid | None = getattr(blank, "grid", None)
    if grid is not None:
        return on_cuda(grid)
    host: Any = run
    is_alone = host.order is not None or not host.form.is_compiled
    return on_threads(host.n_chunks, 1 if is_alone else host.n_threads)


def words_of(found: Configuration) -> str:
    """Return a configuration as words: ``grid=4x1x1 block=256x1x1``."""
    sizes = {word: "x".join(map(str, value)) if isinstance(value, list) else value for word, value in found.items()}
    return " ".join([f"{word}={size}" for word, size in sizes.items()])


def tell_launches(task: DeviceTask, runs: Iterable[NestRun | CudaRun | CudaBlank]) -> None:
    """Tell the observer of a task's device, if there is one, of the nests that the task has enqueued."""
    if task.place.notify is not None:
        for run in runs:
            blank: Any = getattr(run, "blank", run)
            tell_launch(task, task.place, blank.form.nest, configuration_of(run))


def tell_launch(task: DeviceTask, place: DevicePlace, nest: ir.Nest, found: Configuration | None) -> None:
    """Tell the observer of a device, if there is one, of a nest that a task has enqueued there."""
    notify = place.notify
    if notify is not None and found is not None:
        queue = None if task.queue is None else task.queue.number
        location = f"{nest.place.file}:{nest.place.line}"
        notify.kernel(task.name, location, place.device.number, queue, words_of(found))
