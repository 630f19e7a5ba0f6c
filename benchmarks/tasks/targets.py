"""What the project promises of a task on a machine of two processors, and whether figures keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness.measuring import Target

_EAGER_US = 4.0
_OVER_DASK = 12.0
_REPLAY_US = 2.0
_VIEWS_US = 10.0
_METG_US = {"chain": 8.0, "stencil": 25.0}
_LIVE_NBYTES = 1024.0
_FOLLOWS_US, _FOLLOWS_CUDA_US = 500.0, 300.0

_Figures = dict[str, float | None]


def targets(figures: dict[str, Any]) -> list[Target]:
    """Return the promises about what was measured."""
    found: list[Target] = []
    if "shapes" in figures:
        eager_us = dict(_medians(figures["shapes"], "eager"))
        dask_us = {name: result["runs"]["dask_threaded"]["median"] for name, result in figures["shapes"].items()}
        over_dask: _Figures = {where: dask_us[where.partition(",")[0]] / us for where, us in eager_us.items()}
        found += [
            _target("eager, µs a task", dict(eager_us), _EAGER_US),
            _target("Dask threaded / eager", over_dask, _OVER_DASK, at_least=True),
            _target("replay, µs a task", dict(_medians(figures["shapes"], "replay")), _REPLAY_US),
        ]
    if "views" in figures:
        found.append(_target("views, µs a task", dict(_medians(figures["views"], "eager")), _VIEWS_US))
    for shape, result in figures.get("metg", {}).get("shapes", {}).items():
        ours: _Figures = {name: result[name]["metg_us"] for name in ("offload_1", "offload_2")}
        found.append(_target(f"METG of the {shape}, µs", ours, _METG_US[shape]))
    if "memory" in figures:
        live: _Figures = {name: result["live_nbytes"] for name, result in figures["memory"]["live"].items()}
        found.append(_target("bytes a live task", live, _LIVE_NBYTES))
    if "followers" in figures:
        runs, device = figures["followers"]["runs"], figures["followers"]["device"]
        late_us: _Figures = {name: runs[name]["median"] for name in ("compute_synchronous", "compute_threads")}
        limit_us = _FOLLOWS_CUDA_US if device.startswith("cuda") else _FOLLOWS_US
        found.append(_target("host task after device work under Dask, µs", late_us, limit_us))
    return found


def _medians(results: dict[str, Any], run: str) -> Iterator[tuple[str, float]]:
    for name, result in results.items():
        for workers in (1, 2):
            yield f"{name}, {run}_{workers}", result["runs"][f"{run}_{workers}"]["median"]


def _target(name: str, figures: _Figures, limit: float, *, at_least: bool = False) -> Target:
    sign = -1 if at_least else 1
    where = max(figures, key=lambda name: float("inf") if (one := figures[name]) is None else sign * one)
    worst = figures[where]
    met = worst is not None and sign * worst <= sign * limit
    return {"name": name, "where": where, "figure": worst, "at_least": at_least, "limit": limit, "met": met}
