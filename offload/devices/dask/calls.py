"""The functions that a client calls on its workers.

They are carried out by `offload.runtime.dask`, a higher room, which only a worker's process imports.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.devices.dask.wire import SegmentReport


def _leases() -> Any:
    return importlib.import_module("offload.runtime.dask.leases")


def _segments() -> Any:
    return importlib.import_module("offload.runtime.dask.segments")


async def open_lease(*arguments: Any, dask_worker: Any) -> tuple[str, list[tuple[str, str, int]]]:
    """Open the devices for a runtime; return the incarnation, and the name, kind and memory of each device."""
    return await _leases().open_lease(*arguments, dask_worker)  # type: ignore[no-any-return]  # by its name


async def close_lease(runtime: str, dask_worker: Any) -> None:
    """End the lease of a runtime."""
    await _leases().close_lease(dask_worker.address, runtime)


def renew_lease(runtime: str, dask_worker: Any) -> None:
    """Keep the lease of a runtime for another while."""
    _leases().renew_lease(dask_worker.address, runtime)


def number_devices(runtime: str, numbers: Mapping[str, list[int]], n_devices: int, dask_worker: Any) -> None:
    """Give the devices the numbers that they have in the client's runtime."""
    _leases().number_devices(dask_worker.address, runtime, numbers[dask_worker.address], n_devices)


def revoke_segments(runtime: str, segments: list[tuple[int, int]], dask_worker: Any) -> list[tuple[int, int]]:
    """Keep segments from being begun; return those that have not been begun yet."""
    return _leases().revoke_segments(dask_worker.address, runtime, segments)  # type: ignore[no-any-return]  # by its name


async def take_report(runtime: str, number: int, dask_worker: Any) -> SegmentReport | None:
    """Return the result of a segment that was begun; None if it was not, or long ago."""
    return await _segments().take_report(dask_worker.address, runtime, number)  # type: ignore[no-any-return]  # by its name


async def run_segment(payload: bytes, *arguments: Any) -> SegmentReport:
    """Carry out a segment, as a Dask task. The arguments are scattered arrays, then reports of other segments."""
    return await _segments().run_segment(payload, *arguments)  # type: ignore[no-any-return]  # by its name
