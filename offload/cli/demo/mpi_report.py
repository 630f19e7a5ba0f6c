"""The figures of the transform over ranks, as a table and as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rich.markup import escape
from rich.table import Table

from offload.cli.demo.report import TOLERANCE, Report, of_bound, share, size
from offload.cli.output import console, write
from offload.views.words import duration_label

if TYPE_CHECKING:
    import argparse

_TIMES = "×"  # noqa: RUF001  # the sign is meant
_NAMES = {"bulk": "bulk-synchronous", "async": "asynchronous", "peer": "mpi4py-fft"}


@dataclass(kw_only=True)
class MPIReport(Report):
    """The run and its measurements on all ranks: times and bytes are those of the rank that has most."""

    baseline: ClassVar[str] = "bulk"
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
        return super().as_json() | {
            "ranks": self.ranks,
            "decomposition": self.decomposition,
            "grid": self.grid,
            "schedule": self.schedule,
            "inverse": self.inverse,
            "exchanged_nbytes": self.exchanged_nbytes,
            "library": self.library,
            "gpu_aware": self.gpu_aware,
        }


def table(report: MPIReport) -> Table:
    """Return the figures as a table for Rich."""
    shape = f" {_TIMES} ".join(map(str, report.shape))
    kind = "inverse 3-D FFT" if report.inverse else "3-D FFT"
    rows = Table(
        title=escape(f"{kind} of {shape} {report.dtype} on {report.device}"), show_header=False, title_justify="left"
    )
    rows.add_column(style="bold")
    rows.add_column(justify="right")
    rows.add_column(style="dim")
    add = rows.add_row
    grid = f" {_TIMES} ".join(map(str, report.grid))
    add("field", size(report.field_nbytes), escape(f"{report.source}, {report.input_dtype}"))
    add("ranks", str(report.ranks), f"{report.decomposition}s, {grid}, in {report.schedule}")
    add("pieces", " + ".join(map(str, report.pieces)), "of a rank, in each pass")
    rows.add_section()
    for form, times_s in report.times_s.items():
        spread = f"median of {len(times_s)}: {duration_label(min(times_s))} to {duration_label(max(times_s))}"
        add(_NAMES[form], duration_label(report.time_s(form)), spread if len(times_s) > 1 else "one run")
    add("speed-up", f"{report.speedup:.2f} {_TIMES}", "bulk-synchronous / asynchronous")
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
        add(f"error, {_NAMES[form]}", f"{error:.1e}", f"{verdict} {most}, against {report.reference}")
    return rows


def show(args: argparse.Namespace, report: MPIReport) -> None:
    """Print the figures, by one rank."""
    if report.remark is not None:
        sys.stderr.write(f"offload: not verified: {report.remark}\n")
    if args.json:
        write(json.dumps(report.as_json(), allow_nan=False) + "\n")
        return
    shows = console()
    shows.print(table(report))
    if args.output and report.is_right:
        line = f"{report.dtype} {report.shape} written to {args.output}"
        shows.print(line, highlight=False, markup=False, soft_wrap=True)
