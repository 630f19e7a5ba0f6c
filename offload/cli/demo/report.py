"""The figures of a run of the pipeline, on one device or over ranks, as a table and as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from math import isfinite
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

from rich.markup import escape
from rich.table import Table

from offload.cli.output import console, write
from offload.views.words import duration_label

if TYPE_CHECKING:
    import argparse

# Largest relative error that passes, by the dtype of the transform.
TOLERANCE = {"complex64": 1e-5, "complex128": 1e-12}

_TIMES = "×"  # noqa: RUF001  # the sign is meant


@dataclass
class Report:
    """The run and its measurements."""

    device: str  # the name of the device
    kind: str  # its kind: ``cuda``, ``sim``
    source: str  # the file of the field, or what it is
    input_dtype: str
    dtype: str  # of the transform
    shape: tuple[int, int, int]
    pieces: tuple[int, int]  # of the first and of the second pass
    pencils: int | None  # along x, of the second pass; None: it has rows
    buffers: int
    buffer_nbytes: int
    field_nbytes: int
    peak_device_nbytes: int
    device_memory_nbytes: int
    link_bytes_per_s: float  # of each direction; ``bound`` says how it was measured
    bound: str  # the copies that set the rate, in words
    work_nbytes: int = 0  # the library's work areas on the device
    baseline: ClassVar[str] = "sync"
    names: ClassVar[dict[str, str]] = {"sync": "synchronous", "async": "asynchronous", "peer": "by hand"}
    reference: str | None = None  # the errors are measured against it
    remark: str | None = None  # why an error is not a number, as a sentence
    # of each run, by form: ``"sync"``, ``"async"``, ``"peer"``
    times_s: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)  # largest relative error of each form, with ``--verify``

    @property
    def moved_nbytes(self) -> int:
        """Bytes that each form moves to the device, and back: the field twice."""
        return 2 * self.field_nbytes

    @property
    def bound_s(self) -> float:
        """The time of the bytes of one direction at the rate of the link."""
        return self.moved_nbytes / self.link_bytes_per_s

    @property
    def is_right(self) -> bool:
        """Whether no error is above the tolerance; a NaN is."""
        return all(error <= TOLERANCE[self.dtype] for error in self.errors.values())

    def time_s(self, form: str) -> float:
        """Return the median time of a form in seconds."""
        return median(self.times_s[form])

    @property
    def speedup(self) -> float:
        """How many times as fast the asynchronous form is."""
        return self.time_s(self.baseline) / self.time_s("async")

    def as_json(self) -> dict[str, Any]:
        """Return all figures."""
        cut = ["input_dtype", "dtype", "shape", "pieces", "pencils", "buffers", "buffer_nbytes", "field_nbytes"]
        limits = ["peak_device_nbytes", "device_memory_nbytes", "link_bytes_per_s", "bound", "bound_s"]
        figures: dict[str, Any] = {
            "device": self.device,
            "kind": self.kind,
            "input": self.source,
            **{name: getattr(self, name) for name in cut},
            "nbytes_to_device": self.moved_nbytes,
            "nbytes_to_host": self.moved_nbytes,
            **{name: getattr(self, name) for name in limits},
            "share_of_bound": self.bound_s / self.time_s("async"),
            "speedup": self.speedup,
            "times_s": self.times_s,
            **{f"{form}_s": self.time_s(form) for form in self.times_s},
        }
        if "peer" in self.times_s:
            figures["async_over_peer"] = self.time_s("async") / self.time_s("peer")
        if self.errors:
            # JSON has no NaN.
            errors = {form: error if isfinite(error) else None for form, error in self.errors.items()}
            known = [error for error in errors.values() if error is not None]
            figures["max_relative_error"] = max(known) if len(known) == len(errors) else None
            figures["errors"] = errors
            figures["reference"] = self.reference
            figures["tolerance"] = TOLERANCE[self.dtype]
            figures["verified"] = self.is_right
            figures["remark"] = self.remark
        return figures


@dataclass(kw_only=True)
class MPIReport(Report):
    """The run and its measurements on all ranks: times and bytes are those of the rank that has most."""

    baseline: ClassVar[str] = "bulk"
    names: ClassVar[dict[str, str]] = {"bulk": "bulk-synchronous", "async": "asynchronous", "peer": "mpi4py-fft"}
    ranks: int
    grid: tuple[int, int]
    schedule: str
    inverse: bool
    part_nbytes: int
    visits: int  # how many times a rank's part goes to the device
    exchanged_nbytes: int  # that a rank sends to others
    library: str
    gpu_aware: bool

    @property
    def decomposition(self) -> str:
        """Whether ranks have slabs or pencils of the field."""
        return "slab" if self.grid[1] == 1 else "pencil"

    @property
    def moved_nbytes(self) -> int:
        """Bytes that a rank moves to the device, and back."""
        return self.visits * self.part_nbytes

    def as_json(self) -> dict[str, Any]:
        """Return all figures."""
        names = ["ranks", "decomposition", "grid", "schedule", "inverse", "exchanged_nbytes", "library", "gpu_aware"]
        return super().as_json() | {name: getattr(self, name) for name in names}


def table(report: Report) -> Table:
    """Return the figures as a table for Rich, whose rows take one line each on 80 columns."""
    if isinstance(report, MPIReport):
        return _table_over_ranks(report)
    rows = _begun(report, "3-D FFT")
    add = rows.add_row
    second = "pencils" if report.pencils else "groups of rows"
    add("pieces", f"{report.pieces[0]} + {report.pieces[1]}", f"groups of planes, then {second}")
    _add_times(rows, report)
    if "peer" in report.times_s:
        against = report.time_s("async") / report.time_s("peer")
        add("against by hand", f"{against:.3f} {_TIMES}", "asynchronous / by hand (CuPy streams)")
    rows.add_section()
    add("moved each way", size(report.moved_nbytes), "the field, once for either pass")
    rate = f"{report.link_bytes_per_s / 1e9:.1f} GB/s"
    add("bound by the link", duration_label(report.bound_s), f"{rate}, {report.bound}")
    add("share of the bound", share(report.bound_s / report.time_s("async")), of_bound(report))
    held = f"{report.buffers} buffer{'s' * (report.buffers != 1)} of {size(report.buffer_nbytes)}"
    if report.work_nbytes:
        held += f", work {size(report.work_nbytes)}"
    add("peak device memory", size(report.peak_device_nbytes), f"of {size(report.device_memory_nbytes)}: {held}")
    most = f"{TOLERANCE[report.dtype]:.0e}".replace("e-0", "e-")
    for form, error in report.errors.items():
        ok = f"[green]✓ at most {most}[/], against {report.reference}"
        bad = f"[bold red]✗ above {most}[/], against {report.reference}"
        verdict = ok if error <= TOLERANCE[report.dtype] else bad if isfinite(error) else "[bold red]✗ no number[/]"
        add(f"error, {form}", f"{error:.1e}", verdict)
    return rows


def _table_over_ranks(report: MPIReport) -> Table:
    rows = _begun(report, "inverse 3-D FFT" if report.inverse else "3-D FFT")
    add = rows.add_row
    grid = f" {_TIMES} ".join(map(str, report.grid))
    add("ranks", str(report.ranks), f"{report.decomposition}s, {grid}, in {report.schedule}")
    add("pieces", " + ".join(map(str, report.pieces)), "of a rank, in each pass")
    _add_times(rows, report)
    rows.add_section()
    add("exchanged", size(report.exchanged_nbytes), "a rank's, sent to others")
    add("moved each way", size(report.moved_nbytes), f"a rank's part, {report.visits} times")
    add(
        "bound by the link", duration_label(report.bound_s), f"{report.link_bytes_per_s / 1e9:.1f} GB/s, {report.bound}"
    )
    add("share of the bound", share(report.bound_s / report.time_s("async")), of_bound(report))
    add("peak device memory", size(report.peak_device_nbytes), f"of {size(report.device_memory_nbytes)}")
    most = f"{TOLERANCE[report.dtype]:.0e}".replace("e-0", "e-")
    for form, error in report.errors.items():
        verdict = "[green]✓ at most[/]" if error <= TOLERANCE[report.dtype] else "[bold red]✗ not at most[/]"
        add(f"error, {report.names[form]}", f"{error:.1e}", f"{verdict} {most}, against {report.reference}")
    return rows


def _begun(report: Report, what: str) -> Table:
    """Return a table with its title and the row of the field."""
    shape = f" {_TIMES} ".join(map(str, report.shape))
    title = escape(f"{what} of {shape} {report.dtype} on {report.device}")
    rows = Table(title=title, show_header=False, title_justify="left")
    rows.add_column(style="bold")
    rows.add_column(justify="right")
    rows.add_column(style="dim")
    rows.add_row("field", size(report.field_nbytes), escape(f"{report.source}, {report.input_dtype}"))
    return rows


def _add_times(rows: Table, report: Report) -> None:
    rows.add_section()
    for form, times_s in report.times_s.items():
        spread = f"median of {len(times_s)}: {duration_label(min(times_s))} to {duration_label(max(times_s))}"
        rows.add_row(report.names[form], duration_label(report.time_s(form)), spread if len(times_s) > 1 else "one run")
    rows.add_row("speed-up", f"{report.speedup:.2f} {_TIMES}", f"{report.names[report.baseline]} / asynchronous")


def show(args: argparse.Namespace, report: Report, graph: Any = None) -> None:
    """Print the figures, and the graph if there is one."""
    if report.remark is not None:
        sys.stderr.write(f"offload: not verified: {report.remark}\n")
    if graph is not None and args.graph != "-":
        graph.visualize(args.graph)
    if args.json:
        write(json.dumps(report.as_json(), allow_nan=False) + "\n")
        return
    shows = console()
    if graph is not None and args.graph == "-":
        shows.print(graph)
    shows.print(table(report))
    if args.output and report.is_right:
        line = f"{report.dtype} {report.shape} written to {args.output}"
        shows.print(line, highlight=False, markup=False, soft_wrap=True)


def of_bound(report: Report) -> str:
    """Return the remark on the share of the bound, which says little where the CPU computes."""
    return "a simulated device is bound by the CPU" if report.kind == "sim" else "bound / asynchronous"


def share(part: float) -> str:
    """Return a share in per cent; one that is not 0 does not look like it."""
    return "< 1%" if 0 < part < 0.01 else f"{part:.0%}"


def size(nbytes: float) -> str:
    """Return a number of bytes with its unit, in powers of 1024."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.2f} GiB"
