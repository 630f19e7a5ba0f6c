"""``offload demo fft3d``: the pipeline of ``examples/fft3d.py`` on a real field, timed, checked and shown."""

from __future__ import annotations

import math
import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import offload as omp
from offload.cli.demo.examples import load_benchmark, load_example
from offload.cli.demo.field import LARGE_NBYTES, SHAPE, check, load, source_of
from offload.cli.demo.link import host_slab, measure_link
from offload.cli.demo.npy import reserve_output, result_dtype
from offload.cli.demo.options import open_runtime, size_option
from offload.cli.demo.pieces import advise, cut
from offload.cli.demo.reference import N_SUMS, library, reference
from offload.cli.demo.report import Report, show
from offload.cli.output import console
from offload.errors import ClauseError, DeviceMemoryError, UnsupportedError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from types import ModuleType

    from offload.cli.demo.pieces import Pieces
    from offload.devices.base import Device

    Array = np.ndarray[Any, Any]

_REPEATS_OF_PEER = 7  # where a form by hand is timed too; the median counts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Transform a 3-D field in host memory piece by piece, on a device whose memory may be smaller than the field: "
        "first synchronously, then in asynchronous tasks. The output equals the result of numpy.fft.fftn."
    )
    add = parser.add_argument
    add(
        "--input",
        metavar="FIELD.npy",
        help="file with 3-D floats or complex numbers (default: generate a Taylor-Green vortex)",
    )
    add("--output", metavar="OUT.npy", help="file for the transform: complex64, or complex128 for 64-bit input")
    add("--shape", metavar="NZ,NY,NX", help=f"shape of the generated field (default: {','.join(map(str, SHAPE))})")
    _add_pieces(parser)
    add("--buffers", metavar="B", type=int, default=3, help="number of device buffers, used in turn (default: 3)")
    add("--device-memory", metavar="BYTES", help="limit the device's memory; suffixes K, M, G, T are powers of 1024")
    add("--devices", metavar="SPEC", help="device to use: cuda, cuda:1, sim (default: CUDA, else sim)")
    add("--graph", metavar="F", help="write the task graph to F (.svg, .html, .dot, …), or show it (-)")
    add(
        "--verify",
        action="store_true",
        help="compare with scipy.fft (or NumPy) and with direct sums; exit with status 1 if the result differs",
    )
    add("--repeat", metavar="N", type=int, help="runs of each form (default: 3; for large fields: 1)")
    add("--mpi", action="store_true", help="run on all ranks of an MPI job; each rank holds a part of the field")
    add(
        "--grid",
        metavar="R,C",
        help="with --mpi: use R x C ranks; each rank holds a pencil of the field (default: slabs)",
    )
    add(
        "--inverse",
        action="store_true",
        help="with --mpi: compute the inverse transform, divided by the number of elements",
    )
    add("--json", action="store_true", help="print one JSON object and nothing else")
    add(
        "--peer",
        action="store_true",
        help="also time a version with hand-written CUDA streams (in a checkout); with --mpi: time mpi4py-fft",
    )


def _add_pieces(parser: argparse.ArgumentParser) -> None:
    """Declare the options that cut the field into pieces, of which one at most may be given."""
    add = parser.add_mutually_exclusive_group().add_argument
    add(
        "--pencils",
        metavar="K",
        type=int,
        help="cut the pass along z into K pencils along x; with --mpi: K pieces per rank",
    )
    add(
        "--planes",
        metavar="K",
        type=int,
        help="work in groups of K planes (default: up to 32 MB); with --mpi: K pieces per rank",
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo: 0, or 1 if the result is wrong.

    Raise `ClauseError` or `DeviceError` if the options, the input or the output cannot be used. Then nothing has
    changed.
    """
    if args.mpi:
        try:
            from offload.cli.demo import fft3d_mpi
        except (ImportError, RuntimeError) as error:  # the second where there is no library of MPI
            raise UnsupportedError(f"--mpi needs mpi4py: pip install 'offload[mpi]' ({error})") from error
        return fft3d_mpi.run(args)
    check(args)
    source = source_of(args)
    env = dict(os.environ)
    limit_nbytes = size_option("--device-memory", args.device_memory)
    if limit_nbytes:
        env["OFFLOAD_SIM_MEMORY"] = str(limit_nbytes)
    with ExitStack() as stack:
        nbytes = source.size * result_dtype(source.dtype, "the field").itemsize
        output = stack.enter_context(reserve_output(args.output, nbytes)) if args.output else None
        runtime = stack.enter_context(open_runtime(args.devices, env))
        if not runtime.places:
            asked = f"--devices {args.devices}" if args.devices else "OFFLOAD_DEVICES"
            raise ClauseError(
                f"the pipeline needs a device, but {asked} gives none, or OMP_TARGET_OFFLOAD is DISABLED; use "
                "--devices sim for the simulated device"
            )
        device = omp.devices()[0]
        if limit_nbytes and device.kind == "cuda":
            pool = device.namespace().get_default_memory_pool()
            stack.callback(pool.set_limit, size=pool.get_limit())  # the process's pool outlives the demo
            pool.set_limit(size=limit_nbytes)
        job = _Job(args, source, device)
        report = job.run()
        if not report.is_right:
            show(args, report)
            return 1  # and no output: a wrong file is worse than none
        if output is not None:
            output.save(job.slab)
        show(args, report, job.graph)
    return 0


# -- the job ---------------------------------------------------------------------------------------


@dataclass
class _Job:
    """The field on its way through one device."""

    args: argparse.Namespace
    source: Any  # gives boxes of the field
    device: Device
    slab: Array = field(init=False)  # the field on the host, transformed in place
    graph: Any = None  # of one run, if it was asked for

    def run(self) -> Report:
        """Run both forms, and the peer's, in turn, and return the figures."""
        args, device = self.args, self.device
        example = load_example("fft3d")
        peer = load_benchmark("gpu/fft3d_cupy") if args.peer and device.kind == "cuda" else None
        if args.peer and peer is None:
            raise ClauseError("--peer: the hand-written version needs CUDA; use --devices cuda")
        shape = self.source.shape
        dtype = result_dtype(self.source.dtype, "the field")
        pieces = cut(shape, dtype.itemsize, device, buffers=args.buffers, planes=args.planes, pencils=args.pencils)
        self.slab = host_slab(shape, dtype)
        buffers: list[Any] = []  # on the device, used in turn
        passes: list[Any] = []  # the example's: along y and x, then along z
        try:
            buffers += (omp.target_alloc(pieces.largest, dtype) for _ in range(args.buffers))
            passes += self._plan(example, buffers, pieces)
            rate, bound = measure_link(device, self.slab, buffers)
            work_nbytes = sum(fft.work_nbytes for one in passes for fft in one.transforms)
            report = Report(
                device=device.name,
                kind=device.kind,
                source=args.input or "Taylor-Green vortex",
                input_dtype=str(self.source.dtype),
                dtype=dtype.name,
                shape=shape,
                pieces=pieces.counts,
                pencils=args.pencils,
                buffers=args.buffers,
                buffer_nbytes=pieces.largest * dtype.itemsize,
                field_nbytes=self.slab.nbytes,
                peak_device_nbytes=device.live_nbytes() + work_nbytes,
                work_nbytes=work_nbytes,
                device_memory_nbytes=device.memory_info()[1],
                link_bytes_per_s=rate,
                bound=bound,
            )
            self._time(report, example, passes, peer)
            return report
        finally:
            passes.clear()  # they hold views of the buffers
            while buffers:
                omp.target_free(buffers.pop())

    def _plan(self, example: ModuleType, buffers: list[Any], pieces: Pieces) -> list[Any]:
        try:
            return example.passes_over(  # type: ignore[no-any-return]  # an example is not typed
                self.slab, buffers, planes=pieces.planes, rows=pieces.rows, pencils=pieces.pencils
            )
        except MemoryError as error:  # CuPy's is one
            free_nbytes, total_nbytes = self.device.memory_info()
            advice = advise(
                pieces.shape,
                self.slab.itemsize,
                self.device,
                len(buffers),
                free_nbytes + sum(buffer.nbytes for buffer in buffers),
            )
            raise DeviceMemoryError(
                f"cuFFT's work areas do not fit next to {len(buffers)} x {buffers[0].nbytes:,} bytes of buffers: "
                f"{free_nbytes:,} of {total_nbytes:,} bytes are free; {advice}"
            ) from error

    def _time(self, report: Report, example: ModuleType, passes: list[Any], peer: ModuleType | None) -> None:
        """Time the forms in turn, on a field that is loaded afresh, and check their results."""
        args = self.args
        forms: dict[str, Callable[[Any], None]] = {}  # in the order of each turn
        forms["sync"] = lambda each: example.fft3d(self.slab, passes, nowait=False, each=each)
        if peer is not None:
            streams = peer.Streams(passes[0].buffers)
            forms["peer"] = lambda _: peer.fft3d(self.slab, passes, streams)
        forms["async"] = lambda each: example.fft3d(self.slab, passes, each=each)  # last: its result is the output
        repeats = args.repeat or (_REPEATS_OF_PEER if peer else 1 if self.slab.nbytes >= LARGE_NBYTES else 3)
        expected = reference(self.source, self.slab.shape, load) if args.verify else None
        load(self.slab, self.source)  # before any run: what memory happens to hold makes NumPy warn
        # Whether the field itself, or only its transform, has values that cannot be compared.
        is_finite = expected is None or all(np.isfinite(plane).all() for plane in self.slab)
        if args.graph:
            with omp.record() as self.graph:
                example.fft3d(self.slab, passes)
        elif repeats > 1 or self.device.kind == "cuda":
            example.fft3d(self.slab, passes)  # the first run loads libraries and touches memory
        with _progress(args.json) as progress:
            n_pieces = sum(report.pieces)
            bar = progress.add_task("", total=repeats * len(forms) * n_pieces)
            for turn in range(repeats):
                for number, (name, form) in enumerate(forms.items(), turn * len(forms)):
                    progress.update(bar, description=f"{name} {turn + 1}/{repeats}", completed=number * n_pieces)
                    load(self.slab, self.source)
                    began_s = time.perf_counter()
                    form(None if progress.disable else lambda _: progress.advance(bar))
                    report.times_s.setdefault(name, []).append(time.perf_counter() - began_s)
                    if expected is not None and turn in (0, repeats - 1):
                        error = expected.relative_error(self.slab)
                        report.errors[name] = float(np.max([error, report.errors.get(name, 0.0)]))
        if expected is not None:
            report.reference = f"{library()} + {N_SUMS} sums"
        if not all(map(math.isfinite, report.errors.values())):
            report.remark = (
                f"the transform contains NaN or infinite values: the field's values are too large for {report.dtype}; "
                "scale them"
                if is_finite
                else "the field contains NaN or infinite values, so its transform cannot be compared; replace them"
            )


def _progress(quiet: bool) -> Progress:
    shown_on = console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} pieces"),
        TimeElapsedColumn(),
        console=shown_on,
        transient=True,
        disable=quiet or not shown_on.is_terminal,
    )
