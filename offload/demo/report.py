"""The figures of a run of the pipeline, as a table and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich.table import Table

TOLERANCE = {"complex64": 1e-5, "complex128": 1e-12}
"""Largest relative error that passes, by the dtype of the transform."""

_TIMES = "×"  # noqa: RUF001  # the sign is meant
_NAMES = {"sync": "synchronous", "async": "asynchronous", "peer": "by hand (CuPy streams)"}


@dataclass
class Report:
    """What was run, and what was measured.

    Attributes
    ----------
    pieces : tuple of int
        Pieces of the first and of the second pass.
    times_s : dict
        Seconds of each run, by form: ``"sync"``, ``"async"``, ``"peer"``.
    errors : dict
        Largest relative error of each form, with ``--verify``.
    link_bytes_per_s : float
        Bytes per second of each direction; ``bound`` says how it was measured.
    """

    device: str
    kind: str
    source: str
    input_dtype: str
    dtype: str
    shape: tuple[int, int, int]
    pieces: tuple[int, int]
    pencils: int | None
    buffers: int
    buffer_nbytes: int
    field_nbytes: int
    peak_device_nbytes: int
    device_memory_nbytes: int
    link_bytes_per_s: float
    bound: str
    times_s: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)

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
        return self.time_s("sync") / self.time_s("async")

    def as_json(self) -> dict[str, Any]:
        """Return all figures."""
        figures: dict[str, Any] = {
            "device": self.device,
            "kind": self.kind,
            "input": self.source,
            "input_dtype": self.input_dtype,
            "dtype": self.dtype,
            "shape": self.shape,
            "pieces": self.pieces,
            "pencils": self.pencils,
            "buffers": self.buffers,
            "buffer_nbytes": self.buffer_nbytes,
            "field_nbytes": self.field_nbytes,
            "nbytes_to_device": self.moved_nbytes,
            "nbytes_to_host": self.moved_nbytes,
            "peak_device_nbytes": self.peak_device_nbytes,
            "device_memory_nbytes": self.device_memory_nbytes,
            "link_bytes_per_s": self.link_bytes_per_s,
            "bound": self.bound,
            "bound_s": self.bound_s,
            "share_of_bound": self.bound_s / self.time_s("async"),
            "speedup": self.speedup,
            "times_s": self.times_s,
            **{f"{form}_s": self.time_s(form) for form in self.times_s},
        }
        if "peer" in self.times_s:
            figures["async_over_peer"] = self.time_s("async") / self.time_s("peer")
        if self.errors:
            figures["max_relative_error"] = max(self.errors.values(), key=lambda error: (error != error, error))  # noqa: PLR0124  # NaN first
            figures["errors"] = self.errors
            figures["tolerance"] = TOLERANCE[self.dtype]
            figures["verified"] = self.is_right
        return figures


def table(report: Report) -> Table:
    """Return the figures as a table for Rich."""
    shape = f" {_TIMES} ".join(map(str, report.shape))
    rows = Table(title=f"3-D FFT of {shape} {report.dtype} on {report.device}", show_header=False, title_justify="left")
    rows.add_column(style="bold")
    rows.add_column(justify="right")
    rows.add_column(style="dim")
    add = rows.add_row

    add("field", size(report.field_nbytes), f"{report.source}, {report.input_dtype}")
    second = f"{report.pieces[1]} {'pencils' if report.pencils else 'groups of rows'}"
    add("pieces", f"{report.pieces[0]} + {report.pieces[1]}", f"{report.pieces[0]} groups of planes, then {second}")
    rows.add_section()
    for form, times_s in report.times_s.items():
        spread = f"median of {len(times_s)}, {time(min(times_s))} to {time(max(times_s))}"
        add(_NAMES[form], time(report.time_s(form)), spread if len(times_s) > 1 else "one run")
    add("speed-up", f"{report.speedup:.2f} {_TIMES}", "synchronous / asynchronous")
    if "peer" in report.times_s:
        add(
            "against by hand",
            f"{report.time_s('async') / report.time_s('peer'):.3f} {_TIMES}",
            "asynchronous / by hand",
        )
    rows.add_section()
    add("moved", f"{size(report.moved_nbytes)} each way", "the whole field, once for either pass")
    rate = f"{time(report.bound_s)} at {report.link_bytes_per_s / 1e9:.1f} GB/s: {report.bound}"
    add("share of the link's bound", f"{report.bound_s / report.time_s('async'):.0%}", rate)
    held = f"{report.buffers} buffers of {size(report.buffer_nbytes)}, and work areas"
    add("peak device memory", f"{size(report.peak_device_nbytes)} of {size(report.device_memory_nbytes)}", held)
    most = TOLERANCE[report.dtype]
    for form, error in report.errors.items():
        verdict = f"[green]✓ at most {most:.0e}[/]" if error <= most else f"[bold red]✗ above {most:.0e}[/]"
        add(f"relative error, {_NAMES[form]}", f"{error:.1e}", f"{verdict} of the largest value")
    return rows


def size(nbytes: float) -> str:
    """Return a number of bytes with its unit, in powers of 1024."""
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.2f} GiB"


def time(time_s: float) -> str:
    """Return a time in seconds or milliseconds."""
    return f"{time_s:.2f} s" if time_s >= 1 else f"{time_s * 1e3:.1f} ms"
