"""``offload demo fft3d --mpi``: the transform of ``examples/fft3d_mpi.py`` on a real field, timed, checked and shown.

What each rank checks for itself it tells the others before anybody goes on: so a mistake that only one of them can see
ends all of them, with one message by rank 0. What fails later, between exchanges for which others wait, ends the job.
"""

from __future__ import annotations

import math
import os
import time
import traceback
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

import offload as omp
from offload import mpi
from offload.cli.demo.examples import load_example
from offload.cli.demo.field import LARGE_NBYTES, check, load, source_of
from offload.cli.demo.link import measure_link
from offload.cli.demo.npy import reserve_output, result_dtype, write_box
from offload.cli.demo.options import open_runtime, size_option
from offload.cli.demo.pieces import PIECE_NBYTES
from offload.cli.demo.reference import N_SUMS, library, sums_at, transform
from offload.cli.demo.report import MPIReport, show
from offload.cli.ranks import end_all
from offload.errors import ClauseError, DeviceMemoryError, OffloadError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from offload.devices.base import Device

    Array = np.ndarray[Any, Any]

# Elements of a field that rank 0 gathers to compare all of it; beyond, each rank compares some values.
GATHERED_ELEMENTS = 1 << 24


class _RefusedError(Exception):
    """What a rank has told all others."""


@contextmanager
def _agreed(comm: MPI.Comm) -> Iterator[None]:
    """Have all ranks raise `_RefusedError` at the end of the block if one of them failed in it."""
    told = None  # what this rank tells the others; None: it has not failed
    try:
        yield
    except _RefusedError:
        raise
    except Exception as error:  # noqa: BLE001  # told by rank 0
        told = str(error) if isinstance(error, (OffloadError, OSError)) else "".join(traceback.format_exception(error))
    # Every rank gets here, so that the gather matches on all of them.
    failures = [(rank, text) for rank, text in enumerate(comm.allgather(told)) if text is not None]
    if failures:
        rank, text = failures[0]
        raise _RefusedError(text if len(failures) == comm.size else f"rank {rank}: {text}")


def run(args: argparse.Namespace) -> int:
    """Run the demo on all ranks; the status is the same on each.

    Raise `ClauseError` on rank 0 if the options, the input or the output cannot be used on one of the ranks.
    """
    comm = MPI.COMM_WORLD
    try:
        with ExitStack() as stack:
            return _run(args, comm, stack)
    except _RefusedError as refusal:
        if comm.rank == 0:
            raise ClauseError(str(refusal)) from None
        return 2


def _run(args: argparse.Namespace, comm: MPI.Comm, stack: ExitStack) -> int:
    env = dict(os.environ)  # with the demo's limits; the process keeps its own
    with _agreed(comm):
        check(args)
        grid = _grid(args, comm.size)
        if args.graph:
            raise ClauseError("--graph works with one process only; leave --mpi out")
        if args.peer and find_spec("mpi4py_fft") is None:
            raise ClauseError("--peer: mpi4py-fft is not installed; install it, or leave --peer out")
        limit_nbytes = size_option("--device-memory", args.device_memory)
        if limit_nbytes:
            env["OFFLOAD_SIM_MEMORY"] = str(limit_nbytes)
        source = source_of(args)
        dtype = result_dtype(source.dtype, "the field")
        _check_ranks(source.shape, grid, args)
    _check_field(comm, source, args)
    output = None  # of rank 0, which makes the file; all ranks write their boxes into it
    part, offset = "", 0
    with _agreed(comm):
        if args.output and comm.rank == 0:
            output = stack.enter_context(reserve_output(args.output, source.size * dtype.itemsize))
            part, offset = output.begin(source.shape, dtype)
    part, offset = comm.bcast((part, offset))
    with _agreed(comm):
        runtime = stack.enter_context(open_runtime(args.devices, env))
        if not runtime.places:
            raise ClauseError("the pipeline needs a device; use --devices sim for the simulated device")
    device = _device(comm)
    job = None
    try:
        job = _Job(args, comm, grid, source, dtype, device)
        report = job.run()
        if report.is_right and args.output:
            with _agreed(comm):
                write_box(part, offset, source.shape, job.plan.result, job.result)
            with _agreed(comm):
                if output is not None:
                    output.publish()
    except BaseException as error:
        if comm.size > 1 and not isinstance(error, _RefusedError):
            end_all(comm, error, part)  # before anything waits for the tasks that wait for others
        raise
    finally:
        if job is not None:
            job.close()
    if comm.rank == 0:
        show(args, report)
    return 0 if report.is_right else 1


def _check_field(comm: MPI.Comm, source: Any, args: argparse.Namespace) -> None:
    """Refuse a field that is another one on another rank."""
    with _agreed(comm):  # ranks may see different file systems
        fields = comm.allgather((source.shape, str(source.dtype)))
        if fields[0] != fields[comm.rank]:
            raise ClauseError(
                f"--input {args.input} is {fields[comm.rank]} here but {fields[0]} on rank 0; give the same file to "
                "all ranks"
            )


def _grid(args: argparse.Namespace, n_ranks: int) -> tuple[int, int]:
    if args.grid is None:
        return n_ranks, 1
    try:
        n_rows, n_columns = (int(part) for part in args.grid.split(","))
    except ValueError:
        n_rows = n_columns = 0
    if min(n_rows, n_columns) < 1:
        raise ClauseError(f"--grid {args.grid}: write two numbers of at least 1, as in --grid 2,3")
    if n_rows * n_columns != n_ranks:
        raise ClauseError(
            f"--grid {args.grid} needs {n_rows * n_columns} ranks, but there are {n_ranks}; give two numbers whose "
            f"product is {n_ranks}, or start more or fewer ranks"
        )
    return n_rows, n_columns


def _check_ranks(shape: tuple[int, int, int], grid: tuple[int, int], args: argparse.Namespace) -> None:
    """Check that no part of an axis is empty."""
    names = ("planes", "rows", "columns")
    for axis, count in ((0, grid[0]), (1, grid[0]), (1, grid[1]), (2, grid[1])):
        if shape[axis] < count:
            raise ClauseError(
                f"{f'--grid {args.grid}' if args.grid else f'{count} ranks'}: the field {list(shape)} has "
                f"{shape[axis]} {names[axis]}, too few for {count} parts; start fewer ranks, or give a larger field"
            )


def _device(comm: MPI.Comm) -> Device:
    """Have ranks of one machine take its devices in turn; return mine."""
    host = comm.Split_type(MPI.COMM_TYPE_SHARED)  # the ranks of this machine
    omp.set_default_device(host.rank % omp.get_num_devices())
    host.Free()
    return omp.devices()[omp.get_default_device()]


class _Job:
    """The field on its way over all ranks."""

    def __init__(
        self,
        args: argparse.Namespace,
        comm: MPI.Comm,
        grid: tuple[int, int],
        source: Any,
        dtype: np.dtype[Any],
        device: Device,
    ) -> None:
        self.args, self.comm, self.grid, self.source, self.dtype, self.device = args, comm, grid, source, dtype, device
        self.example = load_example("fft3d_mpi")  # the program that is shown, as a module
        self.ways = self.example.communicators(comm, grid)  # along the columns and the rows of the grid
        self.job: Any = None  # the example's, with its buffers; None until there is room for them
        self.plan: Any = None  # the pieces of this rank, and what it exchanges
        self.result: Any = None  # of the latest run, this rank's part

    def close(self) -> None:
        if self.job is not None:
            self.job.free()

    def run(self) -> MPIReport:
        """Run both forms, and the peer's, in turn, and return the figures."""
        args, comm = self.args, self.comm
        with _agreed(comm):
            self.plan, schedule = self._choose()
        with _agreed(comm):
            self.job = self.example.Job(self.plan, self.dtype, in_flight=args.buffers, bulk=True)
            rate, bound = measure_link(self.device, self.job.flats[0], self.job.buffers)
        with _agreed(comm):
            load(self.job.source, _Part(self.source, self.plan.mine))
        # Of cuFFT, which takes memory beside the buffers.
        work = sum(p.transform.work_nbytes for ring in self.job.rings for p in ring)
        report = MPIReport(
            device=self.device.name,
            kind=self.device.kind,
            source=args.input or "Taylor-Green vortex",
            input_dtype=str(self.source.dtype),
            dtype=self.dtype.name,
            shape=self.source.shape,
            pieces=tuple(self.plan.pieces_of(index) for index in range(len(self.plan.steps))),
            pencils=self.plan.n_pieces if schedule == "pencils" else None,
            buffers=args.buffers,
            buffer_nbytes=self.plan.n_buffer * self.dtype.itemsize,
            field_nbytes=self.source.size * self.dtype.itemsize,
            part_nbytes=comm.allreduce(self.plan.n_local, MPI.MAX) * self.dtype.itemsize,
            visits=sum(bool(step.first) + bool(step.then) for step in self.plan.steps),
            peak_device_nbytes=comm.allreduce(self.device.live_nbytes() + work, MPI.MAX),
            work_nbytes=work,
            device_memory_nbytes=self.device.memory_info()[1],
            link_bytes_per_s=comm.allreduce(rate, MPI.MIN),
            bound=bound,
            ranks=comm.size,
            grid=self.grid,
            schedule=schedule,
            inverse=args.inverse,
            exchanged_nbytes=comm.allreduce(self.plan.n_exchanged, MPI.MAX) * self.dtype.itemsize,
            library=MPI.Get_library_version().splitlines()[0].strip(" \0"),
            gpu_aware=mpi.is_gpu_aware(),
        )
        self._time(report)
        return report

    def _choose(self) -> tuple[Any, str]:
        """Return the plan that was asked for; else planes, in pieces that suit the link, or pencils if none fit."""
        args, (column, row) = self.args, self.ways
        free_nbytes, total_nbytes = self.device.memory_info()
        asked = args.planes if args.planes is not None else args.pencils
        schedules = (
            ["pencils"] if args.pencils is not None else ["planes"] if asked is not None else ["planes", "pencils"]
        )
        each = args.buffers * self.dtype.itemsize * (3 if self.device.kind == "cuda" else 1)  # cuFFT's work areas

        def plan(schedule: str, pieces: int) -> Any:
            return self.example.Plan(
                self.source.shape, column, row, pieces=pieces, in_pencils=schedule == "pencils", inverse=args.inverse
            )

        needed = math.inf  # bytes, of the plan that was tried last
        for schedule in schedules:
            one = plan(schedule, 1)
            most = self.comm.allreduce(max(int(np.diff(way.ends[way.along]).max()) for way in one.exchanges), MPI.MAX)
            if asked is not None and not 1 <= asked <= most:
                raise ClauseError(f"--{schedule} {asked}: a rank has at most {most} of them; use 1 to {most} pieces")
            n_local = self.comm.allreduce(one.n_local, MPI.MAX)  # all ranks have as many pieces
            # Pieces of the size that suits the link, but enough that copies and transforms overlap.
            suits = max(2 * args.buffers, n_local * self.dtype.itemsize // PIECE_NBYTES)
            pieces = asked or min(suits, most)
            while True:
                found = plan(schedule, pieces)
                needed = self.comm.allreduce(found.n_rings * found.n_buffer * each, MPI.MAX)
                fits = self.comm.allreduce(needed <= free_nbytes, MPI.LAND)
                if fits:
                    return found, schedule
                if asked is not None or pieces == most:
                    break
                pieces = min(2 * pieces, most)
        raise DeviceMemoryError(
            f"the buffers need {needed:,} bytes on {self.device.name}, {free_nbytes:,} of {total_nbytes:,} are free; "
            "use more pieces or ranks, fewer --buffers, or leave --planes and --pencils out",
            int(needed),
            free_nbytes,
        )

    def _time(self, report: MPIReport) -> None:
        """Time the forms in turn, each rank's until it is through, and check what they made of the field."""
        args, comm, job = self.args, self.comm, self.job
        repeats = args.repeat or (1 if self.source.size * self.dtype.itemsize >= LARGE_NBYTES else 3)
        checked = _Check(self) if args.verify else None
        forms = {"bulk": self._ours(bulk=True), "async": self._ours(bulk=False)}
        if args.peer:
            forms = {"peer": self._peer(), **forms}
        for turn in range(-1, repeats):  # the first of either form loads libraries, connects ranks and touches memory
            for name, form in forms.items():
                load(job.source, _Part(self.source, self.plan.mine))
                comm.Barrier()
                began_s = time.perf_counter()
                result = form()
                elapsed_s = time.perf_counter() - began_s
                if turn < 0:
                    continue
                report.times_s.setdefault(name, []).append(comm.allreduce(elapsed_s, MPI.MAX))
                if name != "peer":
                    self.result = result
                    if checked is not None and turn in {0, repeats - 1}:
                        report.errors[name] = float(np.max([checked.error(result), report.errors.get(name, 0.0)]))
        if checked is not None:
            report.reference = checked.name
            if not all(map(math.isfinite, report.errors.values())):
                report.remark = "the field or its transform contains NaN or infinite values, which cannot be compared"

    def _ours(self, *, bulk: bool) -> Any:
        return lambda: self.example.fft3d(self.job, bulk=bulk)

    def _peer(self) -> Any:
        """Return mpi4py-fft's transform of a field of that shape: in memory, on the CPU."""
        from mpi4py_fft import PFFT, newDistArray  # type: ignore[import-not-found]  # optional
        from mpi4py_fft.pencil import Subcomm  # type: ignore[import-not-found]  # same

        fft = PFFT(Subcomm(self.comm, [*self.grid, 1]), self.source.shape, dtype=self.dtype)
        inverse = self.args.inverse
        field = newDistArray(fft, inverse)
        field[...] = 1
        return lambda: (fft.backward if inverse else fft.forward)(field, normalize=inverse)


class _Part:
    """A rank's part of a field: a box of it."""

    def __init__(self, source: Any, box: tuple[slice, ...]) -> None:
        self._source, self._box = source, box  # the whole field, and where the part lies in it
        self.flags = getattr(source, "flags", None)  # whose order `load` follows

    def __getitem__(self, box: tuple[slice, ...]) -> Array:
        inner = tuple(
            slice(*(part.start + end for end in one.indices(part.stop - part.start)[:2]))
            for part, one in zip(self._box, box, strict=True)
        )
        found: Array = self._source[inner]
        return found


class _Check:
    """What the transform is, or some of it."""

    def __init__(self, job: _Job) -> None:
        self._comm, self._plan, self._source, self._inverse = job.comm, job.plan, job.source, job.args.inverse
        self._shape = job.source.shape
        self._gathers = job.source.size <= GATHERED_ELEMENTS  # rank 0 compares all of it
        if self._gathers:
            self.name = library()
            self._expected = self._transform() if job.comm.rank == 0 else None
        else:
            self.name = f"{N_SUMS} sums a rank"
            self._places, self._sums = self._sum()  # elements of this rank's result, and their values

    def _transform(self) -> Array:
        whole = np.empty(self._shape, np.complex128)
        load(whole, self._source)
        with np.errstate(all="ignore"):
            return transform(whole, inverse=self._inverse)

    def _sum(self) -> tuple[Array, Array]:
        """Return places in my part of the result, and the values there: each rank sums over its part of the field."""
        rng = np.random.default_rng(self._comm.rank)  # the same places in each run of the program
        mine = self._plan.result
        places = rng.integers([part.start for part in mine], [part.stop for part in mine], (N_SUMS, 3))
        everywhere = np.concatenate(self._comm.allgather(places))
        part, sums = _Part(self._source, self._plan.mine), np.zeros(len(everywhere), np.complex128)
        z, y, x = (span.start for span in self._plan.mine)
        with np.errstate(all="ignore"):
            for plane in range(self._plan.mine[0].stop - z):
                values = part[plane : plane + 1, :, :].astype(np.complex128)
                sums += sums_at(everywhere, values, (z + plane, y, x), self._shape, inverse=self._inverse)
        total = np.empty_like(sums)
        self._comm.Allreduce(sums, total)
        return places, total[N_SUMS * self._comm.rank :][:N_SUMS]

    def error(self, result: Array) -> float:
        """Return max |difference| / max |expected| over all ranks; NaN if one of the values is."""
        with np.errstate(all="ignore"):
            found = self._compared(result) if self._gathers else self._summed(result)
        return float(np.max(self._comm.allgather(found)))

    def _compared(self, result: Array) -> float:
        parts = self._comm.gather((self._plan.result, np.ascontiguousarray(result)))
        if parts is None or self._expected is None:
            return 0.0
        scale = float(np.abs(self._expected).max())
        worst = float(np.max([np.abs(part - self._expected[box]).max() for box, part in parts]))
        return worst / scale if scale else worst

    def _summed(self, result: Array) -> float:
        scale = float(np.max(self._comm.allgather(float(np.max([np.abs(plane).max() for plane in result])))))
        starts = [part.start for part in self._plan.result]
        worst = float(np.abs(result[tuple((self._places - starts).T)] - self._sums).max())
        return worst / scale if scale else worst
