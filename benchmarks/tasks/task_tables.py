"""The figures of ``benchmarks/run.py tasks`` as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LABELS = {
    "eager": "eager",
    "eager_with_clauses": "eager, clauses in the loop",
    "replay": "replay",
    "dask_threaded": "Dask threaded",
    "dask_synchronous": "Dask synchronous",
    "distributed": "distributed",
    "offload": "offload",
    "compute_synchronous": 'graph.compute("synchronous")',
    "compute_threads": 'graph.compute("threads")',
    "compute_distributed": "graph.compute(client)",
    "distributed_alone": "between two functions of distributed's own",
}


def tables(figures: dict[str, Any]) -> Iterator[Table]:
    """Yield a table for each section that was measured, and one of the targets."""
    sections: dict[str, Callable[[dict[str, Any]], Table]] = {
        "shapes": _shapes,
        "views": _views,
        "metg": _metg,
        "memory": _memory,
        "followers": _followers,
    }
    for name, make in sections.items():
        if name in figures:
            yield make(figures)
            if name == "memory":
                yield _programs(figures)
    if figures["targets"]:
        yield _targets(figures)


def _shapes(figures: dict[str, Any]) -> Table:
    versions = figures["versions"]
    missing = "".join(f"; no {name}: {why}" for name, why in figures["missing"].items())
    compilers = "".join(f"; {name}: {said}" for name, said in figures["compilers"].items())
    shown = _table(
        f"null tasks, µs a task: median of {figures['repeat']} (lowest-highest)",
        f"Python {versions['python']}, Dask {versions['dask']}{compilers}{missing}",
    )
    shown.add_column("")
    for name in figures["shapes"]:
        shown.add_column(name, justify="right")
    results = list(figures["shapes"].values())
    shown.add_row("tasks", *(f"{result['tasks']['offload']:,}" for result in results))
    for run in results[0]["runs"]:
        shown.add_row(_label(run), *(_spread(result["runs"][run]) for result in results))
    ratios = (result["runs"]["dask_threaded"]["median"] / result["runs"]["eager_1"]["median"] for result in results)
    shown.add_row("Dask threaded / eager, 1", *(f"{ratio:.0f}" for ratio in ratios))
    return shown


def _views(figures: dict[str, Any]) -> Table:
    shown = _table(f"null tasks on views of one array, µs a task: median of {figures['repeat']} (lowest-highest)")
    shown.add_column("")
    for name, result in figures["views"].items():
        shown.add_column(f"{name}, {result['tasks']:,} tasks", justify="right")
    results = list(figures["views"].values())
    for run in results[0]["runs"]:
        shown.add_row(_label(run), *(_spread(result["runs"][run]) for result in results))
    return shown


def _metg(figures: dict[str, Any]) -> Table:
    found = figures["metg"]
    shown = _table(
        "METG(50 %), µs: the length of task at which two processors are half busy",
        f"two threads did {_spread(found['two_threads'])} times what one did",
    )
    shown.add_column("")
    for name in found["shapes"]:
        shown.add_column(name, justify="right")
    results = list(found["shapes"].values())
    for name in results[0]:
        shown.add_row(_label(name), *(_metg_cell(result[name]) for result in results))
    return shown


def _metg_cell(result: dict[str, Any]) -> str:
    if result["metg_us"] is None:
        return f"> {result['points'][0]['length_us']:.0f}"
    return f"{result['metg_us']:.1f}"


def _memory(figures: dict[str, Any]) -> Table:
    shown = _table("bytes a task: live, with one dependence more than its graph says; finished")
    shown.add_column("")
    for name in ("tasks", "live", "finished"):
        shown.add_column(name, justify="right")
    for name, result in figures["memory"]["live"].items():
        cells = (f"{result[key]:,.0f}" for key in ("tasks", "live_nbytes", "finished_nbytes"))
        shown.add_row(name, *cells)
    return shown


def _programs(figures: dict[str, Any]) -> Table:
    shown = _table("growth of the process after the first tenth of very many tasks")
    shown.add_column("")
    for name in ("tasks", "µs a task", "KiB"):
        shown.add_column(name, justify="right")
    for name, result in figures["memory"]["long"].items():
        growth = result["growth_nbytes"]
        shown.add_row(
            name,
            f"{result['tasks']:,}",
            f"{result['us']:.1f}",
            "unknown" if growth is None else f"{growth / 1024:,.0f}",
        )
    return shown


def _followers(figures: dict[str, Any]) -> Table:
    found = figures["followers"]
    shown = _table(
        f"a host task after device work, µs from its end: median of {figures['repeat']} (lowest-highest)",
        f"each the median of {found['pairs']}",
    )
    shown.add_column("")
    shown.add_column(found["device"], justify="right")
    for run, spread in found["runs"].items():
        shown.add_row(_label(run), _spread(spread))
    return shown


def _targets(figures: dict[str, Any]) -> Table:
    shown = _table("targets on 2 processors, and the worst figure")
    for name in ("", "target", "figure", ""):
        shown.add_column(name, justify="right" if name else "left")
    for target in figures["targets"]:
        figure = "none" if target["figure"] is None else _short(target["figure"])
        limit = f"{'≥' if target['at_least'] else '≤'} {target['limit']:g}"
        shown.add_row(target["name"], limit, figure, f"{'met' if target['met'] else 'missed'}: {target['where']}")
    return shown


def _table(title: str, caption: str | None = None) -> Table:
    return Table(
        title=title, title_justify="left", caption=caption, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )


def _label(run: str) -> str:
    """Return what a contestant is called, with the number of its workers or threads."""
    name, _, number = run.rpartition("_")
    return f"{_LABELS.get(name, name)}, {number}" if number.isdecimal() else _LABELS[run]


def _spread(spread: dict[str, float] | None) -> str:
    if spread is None:
        return "none"
    return f"{_short(spread['median'])} ({_short(spread['min'])}-{_short(spread['max'])})"


def _short(figure: float) -> str:
    """Return a figure with two digits, or all before the point, so that a row fits a line."""
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.1f}" if figure >= 1 else f"{figure:.2f}"
