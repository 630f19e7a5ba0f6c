"""``benchmarks/run.py rect``: what strided copies reach, beside contiguous ones and NumPy's slice assignment."""

from __future__ import annotations

import json
import os
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

import offload as omp
from offload.cli.demo.options import open_runtime, size_option
from offload.cli.output import console, write
from offload.errors import ClauseError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

_NBYTES = 64 << 20
_ROWS_NBYTES = (64, 1 << 10, 16 << 10, 256 << 10, 1 << 20)
_PLANE_ROWS = 8
"""Rows of a plane of a 3-D box: few, so that there are many planes."""

_COLUMNS = ("strided", "contiguous", "numpy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Copy boxes whose rows lie two apart, by target_memcpy_rect: from pageable and (on CUDA) pinned memory of the "
        "host to the device and back, and inside of the device. Beside each: a contiguous copy of the same bytes by "
        "target_memcpy, and NumPy's assignment of the same boxes on the host, in turn."
    )
    parser.add_argument("--devices", metavar="SPEC", help="as for Runtime; device 0 is measured")
    parser.add_argument("--nbytes", metavar="N", help="bytes a copy, with K, M or G (default: 64M)")
    parser.add_argument("--repeat", metavar="N", type=int, default=7, help="runs of each, in turn (default: 7)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the benchmark.

    Raises
    ------
    ClauseError
        A number below 1, a size below that of the longest row, or no device.
    """
    nbytes = size_option("--nbytes", args.nbytes) or _NBYTES
    if args.repeat < 1:
        raise ClauseError(f"--repeat {args.repeat}: take a number of at least 1")
    rows_nbytes = [row for row in _ROWS_NBYTES if row * _PLANE_ROWS <= nbytes]
    if not rows_nbytes:
        raise ClauseError(f"--nbytes {args.nbytes}: take at least {_ROWS_NBYTES[0] * _PLANE_ROWS} bytes")
    with open_runtime(args.devices, os.environ):
        if not omp.get_num_devices():
            raise ClauseError("rect measures a device, and there is none; name one with --devices")
        kind = omp.device(0).kind
        results = [
            {"memory": memory, "to": to, "row_nbytes": row, "shape": shape, **figures}
            for row in rows_nbytes
            for shape in _shapes(nbytes, row)
            for memory, to, figures in _cases(shape, kind, args.repeat)
        ]
        figures = {"unit": "GB/s", "device": omp.device(0).name, "repeat": args.repeat, "copies": results}
    if args.json:
        write(json.dumps(figures) + "\n")
    else:
        console().print(_table(figures))
    return 0


def _shapes(nbytes: int, row_nbytes: int) -> Iterator[tuple[int, ...]]:
    """Yield a 2-D and a 3-D box of so many bytes, with rows of this length."""
    rows = max(_PLANE_ROWS, nbytes // row_nbytes)
    yield rows, row_nbytes
    yield rows // _PLANE_ROWS, _PLANE_ROWS, row_nbytes


def _cases(shape: tuple[int, ...], kind: str, repeat: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Measure a box for each kind of memory and direction."""
    whole = (*shape[:-2], shape[-2] * 2, shape[-1])
    far, close = omp.target_memset(omp.target_alloc(whole), 1), omp.target_memset(omp.target_alloc(shape), 1)
    memories: dict[str, Callable[[tuple[int, ...]], Any]] = {"pageable": lambda shape: np.empty(shape, np.uint8)}
    if kind == "cuda":
        memories["pinned"] = lambda shape: omp.empty_pinned(shape, np.uint8)
    for memory, empty in memories.items():
        host, packed = empty(whole), empty(shape)
        host.fill(1)
        packed.fill(1)
        yield memory, "device", _compare(close, host[..., ::2, :], packed, repeat)
        yield memory, "host", _compare(host[..., ::2, :], close, packed, repeat)
    yield "device", "device", _compare(close, far[..., ::2, :], None, repeat)
    omp.target_free(far)
    omp.target_free(close)


def _compare(dst: Any, src: Any, packed: Any, repeat: int) -> dict[str, Any]:
    """Time a strided copy, a contiguous one of the same bytes, and NumPy's of the same box on the host, in turn."""
    one, other = np.ones(src.shape, np.uint8), np.ones((*src.shape[:-2], src.shape[-2] * 2, src.shape[-1]), np.uint8)
    to_host, from_host = isinstance(dst, np.ndarray), isinstance(src, np.ndarray)
    box = other[..., ::2, :]
    to, at = (box, one) if to_host else (one, box)
    spare = None
    if to_host:
        contiguous = (packed, src)
    elif from_host:
        contiguous = (dst, packed)
    else:
        spare = omp.target_memset(omp.target_alloc(dst.shape), 1)
        contiguous = (spare, dst)
    calls: dict[str, Callable[[], Any]] = {
        "strided": lambda: omp.target_memcpy_rect(dst, src),
        "contiguous": lambda: omp.target_memcpy(*contiguous),
        "numpy": lambda: np.copyto(to, at),  # what `to[...] = at` does
    }
    rates: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(-1, repeat):  # the first one touches the pages
        for name, call in calls.items():
            began_s = time.perf_counter()
            call()
            if turn >= 0:
                rates[name].append(src.nbytes / (time.perf_counter() - began_s) / 1e9)
    omp.target_free(spare)
    figures: dict[str, Any] = {
        name: {"median": median(rate), "min": min(rate), "max": max(rate)} for name, rate in rates.items()
    }
    pairs = zip(rates["strided"], rates["numpy"], strict=True)
    return {**figures, "over_numpy": median(ours / theirs for ours, theirs in pairs)}


def _table(figures: dict[str, Any]) -> Table:
    title = f"target_memcpy_rect on {figures['device']}, GB/s: median of {figures['repeat']} (lowest-highest)"
    caption = "ratio: strided / numpy, pair by pair"
    shown = Table(
        title=title, title_justify="left", caption=caption, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    shown.add_column("copy", no_wrap=True)
    for name in ("row", "box", *_COLUMNS, "ratio"):
        shown.add_column(name, justify="right")
    for copy in figures["copies"]:
        cells = (
            f"{_short(one['median'])} ({_short(one['min'])}-{_short(one['max'])})"
            for one in (copy[name] for name in _COLUMNS)
        )
        row, unit = copy["row_nbytes"], " B"
        for larger in (" KiB", " MiB"):
            row, unit = (row >> 10, larger) if row >= 1024 else (row, unit)
        names = (f"{copy['memory']}→{copy['to']}", f"{row}{unit}", f"{len(copy['shape'])}-D")
        shown.add_row(*names, *cells, f"{copy['over_numpy']:.2f}")
    return shown


def _short(rate: float) -> str:
    """Return a rate with two digits or all before the point, so that a row fits a line."""
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"
