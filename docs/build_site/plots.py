"""The plots of the performance page, drawn from the committed results of the benchmarks.

``docs/figures/NAME.json`` has the results of one run of one benchmark, with machine, date and command;
``benchmarks/figures.py`` writes it. This extension draws each file twice, for light and for dark pages, into
``docs/figures/generated/``. On a page, it puts the two pictures in front of each paragraph that is a link to such a
file. So the page also reads on GitHub, and a plot without results cannot be on it.

``python -m build_site.plots [FOLDER]`` in ``docs/`` draws all plots without a build of the site.
"""

from __future__ import annotations

import html
import io
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from sphinx.application import Sphinx

FIGURES = Path(__file__).resolve().parents[1] / "figures"
GENERATED = "generated"

MANY_SAMPLES = 20
"""From this number of samples on, a line shows the quartiles instead of the lowest and highest sample."""

LINK = re.compile(r"^\[[^\]]+\]\(figures/([\w-]+)\.json\)$", re.MULTILINE)
"""A paragraph of a page that is a link to a figure's results. The path is relative to ``docs/``."""

Row = Mapping[str, list[float]]
Panels = dict[str, dict[str, list[float]]]
"""Samples by panel, and in it by the name of the row."""


# ---------------------------------------------------------------- the figures


@dataclass(frozen=True, slots=True)
class Part:
    """A table in the results of a benchmark, from which a figure takes one panel for each column."""

    where: tuple[str | int, ...]  # the keys that lead to the table: ``table[row][column]`` is a list of samples
    rows: Mapping[str, str]  # the rows that the figure shows, and their names in it
    columns: Mapping[str, str]  # the columns, and the names of their panels; "" if a row has samples and no columns

    def read(self, results: Any) -> Panels:
        """Return the panels. A row may lack columns; a row or a column without any sample is a `KeyError`."""
        table = results
        for key in self.where:
            table = table[key]
        cells = {
            label: table[name] if isinstance(table[name], dict) else {"": table[name]}
            for name, label in self.rows.items()
        }
        panels = {
            panel: {label: row[column] for label, row in cells.items() if column in row}
            for column, panel in self.columns.items()
        }
        for panel, rows in panels.items():
            if not rows:
                raise KeyError(panel)
        return panels


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the performance page."""

    title: str
    unit: str  # of all samples
    parts: tuple[Part, ...]  # parts with the same panel add rows to it
    peers: frozenset[str] = frozenset()  # the rows that do not use offload
    is_log: bool = True  # the axis; a linear axis begins at 0

    def read(self, results: Any) -> Panels:
        """Return the samples that the figure shows; a `KeyError` names a row or column that is not there."""
        panels: Panels = {}
        for part in self.parts:
            for panel, rows in part.read(results).items():
                panels.setdefault(panel, {}).update(rows)
        return panels


def same(*names: str) -> dict[str, str]:
    """Return rows that a figure shows by the names that they have in the results."""
    return {name: name for name in names}


def of_section(name: str, table: str, rows: Mapping[str, str], columns: Mapping[str, str]) -> Part:
    """Return a part of the results of a study with sections."""
    return Part(("sections", name, "tables", table, "rows"), rows, columns)


POOL, DASK = "ThreadPoolExecutor, 2 threads", "Dask's threaded scheduler, 2 threads"
BY_EVENTS, CAPTURED = "CuPy, an event after each kernel", "CuPy, captured graph"
STREAMS, LINK_ALONE = "CuPy, three streams", "the link alone, both ways"
RAW, GPUS_BY_HAND, NUMBA = "CUDA by hand, best block shape", "all GPUs, CuPy by hand", "Numba, no checks"
SUBMIT, SUBMIT_NEXT, SCATTER = "distributed: submit", "distributed: submit after", "distributed: scatter, gather"
CALL, AGAIN = "a call of fn.options(…)", "no tool, measured again"

SHAPES = {"chain": "A chain of kernels", "ping-pong": "Two streams in turn", "64 chains": "64 chains"}
HOST_LOOPS = {
    "saxpy": "saxpy",
    "five_point": "Five-point stencil",
    "csr": "Sparse matrix times vector (CSR)",
    "matmul": "Matrix product",
    "histogram": "Histogram",
}
GPU_LOOPS = {
    "saxpy": "saxpy",
    "five-point": "Five-point stencil",
    "CSR": "Sparse matrix times vector (CSR)",
    "matmul": "Matrix product",
    "histogram of 2^20": "Histogram of 2^20 bins",
}
SPREAD_LOOPS = {
    "five-point": "Five-point stencil",
    "all pairs": "All pairs of bodies",
    "CSR power iteration": "Power iteration (CSR)",
}

SHOWN = {
    "host-tasks": Figure(
        "The cost of a host task that does nothing",
        "µs",
        (
            Part(
                ("parts", "tasks", 0, "rows"),
                {"generated": "offload, generated", "replayed by taskgraph": "offload, taskgraph", **same(POOL, DASK)},
                {"independent": "Independent tasks", "chain": "A chain of tasks"},
            ),
        ),
        frozenset({POOL, DASK}),
    ),
    "device-tasks": Figure(
        "The cost of a device task with a tiny kernel",
        "µs",
        (
            of_section(
                "tasks",
                "tasks",
                {
                    "device arrays, clauses made before": "offload, device arrays",
                    "mapped arrays, clauses made before": "offload, mapped arrays",
                    "by hand, events and waits": BY_EVENTS,
                },
                SHAPES,
            ),
            of_section(
                "graph",
                "graph",
                {"taskgraph, device arrays": "offload, taskgraph", "CuPy's captured graph": CAPTURED},
                SHAPES,
            ),
        ),
        frozenset({BY_EVENTS, CAPTURED}),
    ),
    "pipeline": Figure(
        "2 GiB through a GPU, with a transform on it",
        "ms",
        (
            of_section(
                "pipeline",
                "pipeline",
                {
                    "targets that map": "offload, tasks that map their piece",
                    "copies and targets": "offload, copy tasks and kernel tasks",
                    "synchronous targets": "offload, blocking targets",
                    "by hand": STREAMS,
                    "the link, both ways": LINK_ALONE,
                },
                {"planes": "Contiguous pieces", "pencils, rows of 4 KB": "Pieces with rows of 4 KB"},
            ),
        ),
        frozenset({STREAMS, LINK_ALONE}),
        is_log=False,
    ),
    "gpu-loops": Figure(
        "Loops on a GPU",
        "ms",
        (
            of_section(
                "kernels", "kernels", {"target_loop, present arrays": "target_loop", "RawKernel": RAW}, GPU_LOOPS
            ),
        ),
        frozenset({RAW}),
    ),
    "several-gpus": Figure(
        "A step of a loop on one GPU and on all",
        "ms",
        (
            of_section(
                "devices",
                "devices_steady",
                {"one device": "one GPU", "all devices": "all GPUs", "by hand": GPUS_BY_HAND},
                SPREAD_LOOPS,
            ),
        ),
        frozenset({GPUS_BY_HAND}),
    ),
    "host-loops": Figure(
        "Loops on two threads of the host",
        "ms",
        (
            of_section(
                "host", "host", {**same("parallel_loop", "parallel_loop, bounds=False"), "Numba": NUMBA}, HOST_LOOPS
            ),
        ),
        frozenset({NUMBA}),
    ),
    "present-table": Figure(
        "A look-up in the table of present data",
        "µs",
        (
            Part(
                ("entries",),
                {"10": "10 entries", "1000": "1,000 entries", "100000": "100,000 entries"},
                {"an entry": "A mapped array", "a part": "A part of a mapped array", "absent": "An unmapped array"},
            ),
        ),
        is_log=False,
    ),
    "cluster": Figure(
        "Regions on the worker processes of a Dask cluster",
        "ms",
        (
            of_section(
                "regions",
                "regions",
                {"data stays": "offload: target", "a bare task": SUBMIT},
                {"ms": "A region that you wait for; its data stays on the worker"},
            ),
            of_section(
                "hops",
                "hops",
                {"a region": "offload: target nowait, depend", "a bare task": SUBMIT_NEXT},
                {"ms": "A step that depends on a step on the other worker"},
            ),
            of_section(
                "data",
                "data",
                {"mapped tofrom": "offload: target, map tofrom", "scatter, gather": SCATTER},
                {"ms": "64 MB to a worker and back"},
            ),
        ),
        frozenset({SUBMIT, SUBMIT_NEXT, SCATTER}),
    ),
    "seeing-a-run": Figure(
        "The cost of a trace, a profile and the live view",
        "processor time, times a run without a tool",
        (
            Part(
                (),
                {"again": AGAIN, "trace, profile": "trace and profile", "live": "live view"},
                {"": "A thread that runs tasks of 20 µs"},
            ),
        ),
        frozenset({AGAIN}),
    ),
    "directive-strings": Figure(
        "The cost of a task with a directive string",
        "µs",
        (
            Part(
                ("parts", "pragma", 0, "rows"),
                {"a taken block": 'a block: with omp("…")', "fn.options(depend=[…])(…)": CALL},
                {"task": "task", "target, device array": "target nowait on a simulated device"},
            ),
        ),
        frozenset({CALL}),
        is_log=False,
    ),
}
"""The figures of the performance page, by the names of their files."""


# ---------------------------------------------------------------- numbers and words


@dataclass(frozen=True, slots=True)
class Range:
    """The median of samples, and the ends of the line that shows how they spread."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, samples: list[float]) -> Range:
        """Summarize samples."""
        if len(samples) >= MANY_SAMPLES:
            return cls(*quantiles(samples, n=4))
        return cls(min(samples), median(samples), max(samples))


def number(value: float) -> str:
    """Return a number with three digits, or all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread_of(panels: Panels) -> str:
    """Say what the lines of a figure show."""
    samples = [one for rows in panels.values() for one in rows.values()]
    ends = "lower and upper quartile" if len(samples[0]) >= MANY_SAMPLES else "lowest and highest"
    return f"Medians of {len(samples[0])} turns; lines show {ends}."


def source_of(recorded: Mapping[str, Any], panels: Panels) -> str:
    """Return the sentences below a figure: the spread, the machine, the date and the command."""
    return f"{spread_of(panels)} {recorded['machine']}; {recorded['date']}. Command: {recorded['command']}"


def alternative(figure: Figure, recorded: Mapping[str, Any], panels: Panels) -> str:
    """Return the text that says the same as the picture."""
    parts = []
    for name, rows in panels.items():
        found = {label: Range.of(samples) for label, samples in rows.items()}
        said = (f"{label} {number(r.middle)} ({number(r.low)} to {number(r.high)})" for label, r in found.items())
        parts.append(f"{name}: {', '.join(said)}.")
    return f"{figure.title}, {figure.unit}. {' '.join(parts)} {source_of(recorded, panels)}"


# ---------------------------------------------------------------- drawing


@dataclass(frozen=True, slots=True)
class Colours:
    """The colours of a picture; text and marks have a contrast of at least 4.5 against the page."""

    page: str
    text: str
    quiet: str  # the note, the axis and the peers
    grid: str
    ours: str


MODES = {
    "light": Colours("#ffffff", "#1c1e21", "#5a5f66", "#dcdfe3", "#0a5fb4"),
    "dark": Colours("#131416", "#e4e6e9", "#a3a9b1", "#33373c", "#5fb0ff"),
}

WIDTH_IN = 4.6  # narrow, so that a phone shows it without making it much smaller
ROW_IN, PANEL_IN, TITLE_IN, LINE_IN, AXIS_IN = 0.36, 0.34, 0.42, 0.15, 0.5
NOTE_COLUMNS = 72
TEXT_PT, NOTE_PT = 9.0, 7.5
STYLE = {"svg.hashsalt": "offload", "svg.fonttype": "path", "font.family": "DejaVu Sans", "font.size": TEXT_PT}


def draw(name: str, recorded: Mapping[str, Any], mode: str) -> str:
    """Return a figure as SVG with a text alternative.

    Parameters
    ----------
    name
        The name in `SHOWN`.
    recorded
        The file of the figure.
    mode
        The name in `MODES`.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    figure, colours = SHOWN[name], MODES[mode]
    panels = figure.read(recorded["results"])
    note = textwrap.wrap(source_of(recorded, panels), NOTE_COLUMNS, break_on_hyphens=False)
    heights = [PANEL_IN + ROW_IN * len(rows) for rows in panels.values()]
    below = AXIS_IN + LINE_IN * len(note)
    height = TITLE_IN + sum(heights) + below
    with rc_context(STYLE):
        canvas = Canvas(figsize=(WIDTH_IN, height), facecolor=colours.page)
        canvas.text(0.02, 1 - 0.22 / height, figure.title, color=colours.text, size=10.5, weight="bold", va="center")
        limits, top = limits_of(figure, panels), height - TITLE_IN
        for (panel, rows), panel_height in zip(panels.items(), heights, strict=True):
            top -= panel_height
            axes = canvas.add_axes((0.03, top / height, 0.94, (panel_height - PANEL_IN) / height))
            axes.set_xscale("log" if figure.is_log else "linear")
            axes.set_xlim(*limits)
            draw_panel(axes, figure, colours, panel, rows, is_last=panel == list(panels)[-1])
        canvas.text(0.02, 0.06 / height, "\n".join(note), color=colours.quiet, size=NOTE_PT, va="bottom")
        out = io.StringIO()
        canvas.savefig(out, format="svg", facecolor=colours.page, metadata={"Date": None, "Creator": None})
    return with_text(out.getvalue(), figure.title, alternative(figure, recorded, panels))


def limits_of(figure: Figure, panels: Panels) -> tuple[float, float]:
    """Return the ends of the axis that all panels share, with room for the numbers on the right."""
    ranges = [Range.of(samples) for rows in panels.values() for samples in rows.values()]
    low, high = min(one.low for one in ranges), max(one.high for one in ranges)
    if not figure.is_log:
        return 0.0, high * 1.2
    return low / (high / low) ** 0.05, high * (high / low) ** 0.22


def draw_panel(axes: Axes, figure: Figure, colours: Colours, panel: str, rows: Row, *, is_last: bool) -> None:
    """Draw the rows of a panel from the top: the name, then below it the median, the spread and the number."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_title(panel, loc="left", size=TEXT_PT, color=colours.text, weight="bold", pad=5)
    axes.set_facecolor(colours.page)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_yticks([])
    axes.grid(axis="x", color=colours.grid, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.minorticks_off()
    low, high = axes.get_xlim()
    if figure.is_log and high < 50 * low:  # few powers of 10, or none
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high > 3 * low else MaxNLocator(5))
    axes.xaxis.set_major_formatter(lambda value, _: number(value))
    axes.tick_params(axis="x", colors=colours.quiet, length=0, labelsize=NOTE_PT, labelbottom=is_last)
    if is_last:
        axes.set_xlabel(figure.unit, color=colours.quiet, size=NOTE_PT)
    for y, (label, samples) in enumerate(rows.items()):
        found = Range.of(samples)
        colour, marker = (colours.quiet, "s") if label in figure.peers else (colours.ours, "o")
        axes.text(0.0, y - 0.2, label, color=colours.text, size=TEXT_PT - 0.5, transform=axes.get_yaxis_transform())
        axes.plot([found.low, found.high], [y + 0.2, y + 0.2], color=colour, linewidth=1.6, solid_capstyle="round")
        axes.plot([found.middle], [y + 0.2], color=colour, marker=marker, markersize=5.5)
        axes.annotate(
            number(found.middle),
            (found.high, y + 0.2),
            xytext=(7, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            size=TEXT_PT,
            weight="bold",
        )


def with_text(svg: str, title: str, text: str) -> str:
    """Return an SVG with a title and a description, which screen readers read instead of the paths."""
    told = (
        f'<title id="title">{html.escape(title, quote=False)}</title>'
        f'<desc id="desc">{html.escape(text, quote=False)}</desc>'
    )
    svg = re.sub(r" *<metadata>.*?</metadata>\n", "", svg, count=1, flags=re.DOTALL)
    return re.sub(r"<svg ([^>]*)>", rf'<svg role="img" aria-labelledby="title desc" \1>{told}', svg, count=1)


# ---------------------------------------------------------------- files and pages


def recorded_figures(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the names and the files of the figures whose results are in a folder."""
    for name in SHOWN:
        path = folder / f"{name}.json"
        if path.exists():
            yield name, json.loads(path.read_text("utf-8"))


def draw_all(folder: Path, into: Path) -> list[Path]:
    """Draw the figures whose results are in a folder; return the pictures. Files that stay the same are not written."""
    into.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, recorded in recorded_figures(folder):
        for mode in MODES:
            path, svg = into / f"{name}-{mode}.svg", draw(name, recorded, mode)
            if not path.exists() or path.read_text("utf-8") != svg:
                path.write_text(svg, "utf-8")
            drawn.append(path)
    return drawn


def with_pictures(text: str, folder: Path) -> str:
    """Return the Markdown of a page with the two pictures in front of each link to the results of a figure."""

    def shown(link: re.Match[str]) -> str:
        name = link[1]
        recorded = json.loads((folder / f"{name}.json").read_text("utf-8"))
        alt = alternative(SHOWN[name], recorded, SHOWN[name].read(recorded["results"]))
        pictures = (
            f"```{{image}} figures/{GENERATED}/{name}-{mode}.svg\n:alt: {alt}\n:class: only-{mode}\n```\n\n"
            for mode in MODES
        )
        return f"{''.join(pictures)}{link[0]}"

    return LINK.sub(shown, text)


def at_begin(app: Sphinx) -> None:
    """Draw all figures before Sphinx reads the pages."""
    draw_all(FIGURES, FIGURES / GENERATED)


def at_read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the pictures on a page."""
    if "/" not in docname:
        source[0] = with_pictures(source[0], FIGURES)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension."""
    app.connect("builder-inited", at_begin)
    app.connect("source-read", at_read)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    for picture in draw_all(FIGURES, Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURES / GENERATED):
        sys.stdout.write(f"{picture}\n")
