"""A nest on a CUDA device: its two kernels, and one run of it.

`CudaForm` is a nest with the decisions of a launch about it, as CUDA's text. `CudaBlank` is shared by all runs for the
same numbers, and has the shape of the launch. `CudaRun` belongs to one run. It has the structure of arguments, partial
results on the device, and host memory to which the kernels write the report and the scalars that come out. That memory
is read only after the stream has passed, so the task keeps such a run until then (`CudaRun.is_kept`). The structure is
copied by the launch.
"""

from __future__ import annotations

import math
import weakref
from functools import cached_property, partial
from itertools import pairwise, starmap
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from offload.errors import InternalError
from offload.loops.emit.cuda_scans import emit_cuda_scan
from offload.loops.emit.emit_c import copied
from offload.loops.emit.emit_cuda import BEGIN, FINISH, FINISH_THREADS, LOOP, CudaVariant, emit_cuda
from offload.loops.emit.grids import (
    COPY_THREADS,
    REDUCED_BLOCKS,
    blocks_with_copies,
    copies_of,
    grid_of,
    index_bits,
    rows_of,
    scan_grid,
    scan_rows,
    scan_words,
    shape_of,
    team_grid,
)
from offload.loops.emit.python_form import bits, from_bits
from offload.loops.front.levels import levels_of
from offload.loops.proofs.reports import HEAD, failure_of
from offload.loops.running.arguments import Blank
from offload.loops.running.build import user_line
from offload.loops.running.looks import DeviceLooks, Looks
from offload.loops.tree.promotion import word_places

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable, Mapping, Sequence

    from offload.devices.base import Device, Kernel, Kernels
    from offload.loops.emit.c_scope import ArgumentSlot
    from offload.loops.emit.emit_c import CKernel
    from offload.loops.emit.grids import BlockCopies, Grid
    from offload.loops.proofs.numbers import Trips, View
    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.specialise import Specialisation
    from offload.loops.tree import ir
    from offload.runtime.launch import DeviceTask

_WORD: Final = np.dtype(np.uint64)


class CudaForm:
    """A nest of a typed function as CUDA; a `offload.devices.base.Program`."""

    def __init__(self, typed: ir.Typed, nest: ir.Nest, variant: CudaVariant, fastmath: str | None) -> None:
        self.typed = typed
        self.nest = nest
        self.options: Sequence[str] = (f"--fmad={'true' if fastmath else 'false'}",)  # of the compiler
        finish = (FINISH,) if nest.reductions else ()
        begin = (BEGIN,) if nest.scan is not None else ()
        self.names: Sequence[str] = (LOOP, *finish, *begin)  # of the kernels
        self._variant = variant  # what the launch has decided

    @cached_property
    def kernel(self) -> CKernel:
        """The nest as CUDA."""
        emitted = emit_cuda if self.nest.scan is None else emit_cuda_scan
        return emitted(self.typed, self.nest, self._variant)

    @property
    def source(self) -> str:
        return self.kernel.source

    def on_host(self) -> Mapping[str, Callable[[tuple[int, ...], Any], object]]:
        return {}

    def loaded(self, kernels: Kernels) -> Loaded:
        """Return the kernels on a device; raise `InternalError` if they are not compiled, with the user's line."""
        try:
            by_name = kernels.load(self)
        except InternalError as error:
            place = self.nest.place
            line = user_line(self.source, str(error), place)
            raise InternalError(f"generated CUDA for {place.file}:{line} was not compiled: {error}") from error
        return Loaded(by_name[LOOP], by_name.get(FINISH), by_name.get(BEGIN))


class Shaped(NamedTuple):
    """A nest as CUDA, and the shape of its launch, which follow from a plan."""

    form: CudaForm
    grid: Grid  # of blocks and threads
    copies: BlockCopies  # in the shared memory of a block
    tiles: int  # of a scan; blocks of other nests, each of which leaves partial results


def shaped(spec: Specialisation, number: int, plan: NestPlan, numbers: Numbers) -> Shaped:
    """Return a nest as CUDA, by its number in the function, for the numbers of a call."""
    key = "shape", number, numbers.axes[number], plan.variant, plan.narrow, plan.text
    found: Shaped | None = numbers.record.facts.get(key)
    return found or numbers.record.facts.keep(key, _shaped(spec, number, plan, numbers))


def _shaped(spec: Specialisation, number: int, plan: NestPlan, numbers: Numbers) -> Shaped:
    words, axes, views = spec.program.words, numbers.axes[number], numbers.views
    base = plan.variant
    trips = [max(axis.trips, 1) for axis in axes]
    said = plan.nest.clauses
    shape = shape_of(said.sizes, said.tile)
    levels = levels_of(plan.nest, is_ordered=base.is_ordered, is_auto=words.several)
    shape = shape._replace(n_threads=levels.n_threads or shape.n_threads)
    iterations = 1 if base.is_ordered else math.prod(trips)  # at a time
    team = rows_of(levels.team, iterations) if levels.team is not None else None
    scan = plan.nest.scan
    # Words of 8 bytes in shared memory are no place for a complex128 of 16.
    small = [name for name in copied(plan.nest) if views[name].itemsize <= _WORD.itemsize]
    elements = {name: (math.prod(views[name].extents), views[name].itemsize) for name in small}
    if plan.nest.reductions and scan is None:
        shape = shape._replace(most_blocks=min(REDUCED_BLOCKS, shape.most_blocks or REDUCED_BLOCKS))
    copies = copies_of({} if base.is_ordered or scan is not None else elements, math.prod(trips))
    if copies.places:
        shape = shape._replace(n_threads=shape.n_threads or COPY_THREADS)
        n_threads = (grid_of(trips, shape) if team is None else team_grid(iterations, team)).n_threads
        most = blocks_with_copies([elements[name][0] for name in copies.places], math.prod(trips), n_threads)
        shape = shape._replace(most_blocks=min(most, shape.most_blocks or most))
    rows = tiles = in_line = 0
    if scan is not None:
        rows = scan_rows(len(scan.items))
        grid, tiles = scan_grid(iterations, rows, shape)
        in_line = tiles * grid.n_threads * rows
    elif team is None:
        grid = grid_of(trips, shape, is_ordered=base.is_ordered)
    else:
        grid = team_grid(iterations, team, shape.most_blocks)
    n_bits = index_bits(axes, views.values(), grid, team, in_line)
    variant = CudaVariant(
        base.modes,
        base.layouts,
        base.is_restricted,
        base.unit_steps,
        tuple(copies.places),
        base.is_ordered,
        index_bits=n_bits,
        narrow=plan.narrow if n_bits == 32 else (),
        n_threads=grid.n_threads,
        is_strided=grid.is_strided,
        privates=tuple([(name, math.prod(views[name].extents)) for name in plan.nest.privates]),
        empty=tuple([name for name, view in views.items() if 0 in view.extents]),
        team=team,
        shared=levels.shared,
        scan_rows=rows,
    )
    made = partial(CudaForm, plan.typed, plan.nest, variant, words.fastmath)
    return Shaped(spec.form((number, variant, plan.text), made), grid, copies, tiles or grid.n_blocks)


def _nothing() -> None:
    return None


class Loaded(NamedTuple):
    """A nest's kernels on a device."""

    loop: Kernel
    finish: Kernel | None  # after it, if it has reductions
    begin: Kernel | None  # before it, if it is a scan


class CudaBlank(Blank[CudaForm]):
    """The part of a run's arguments that is the same for all runs of a nest on CUDA with equal numbers."""

    __slots__ = (
        "_copies",
        "_loaded",
        "_tiles",
        "blocks",
        "grid",
        "has_own",
        "is_reported",
        "left",
        "n_host_words",
        "n_partials",
        "n_reduced",
        "shared_nbytes",
    )

    def __init__(
        self,
        of: Shaped,
        scalars: Mapping[str, Any],
        free: Sequence[str],
        views: Mapping[str, View],
        axes: Sequence[Trips],
    ) -> None:
        form, self.grid, self._copies, self._tiles = of
        self.shared_nbytes = self._copies.nbytes  # of a block's copies
        # the kernels of the device that launched last, with a weak reference to it
        self._loaded: tuple[Callable[[], Kernels | None], Loaded | None] = _nothing, None
        self.blocks: list[int] = []  # slots of how many blocks leave partial results
        nest, fields = form.nest, form.kernel.fields
        super().__init__(form, fields, scalars, free, views, axes)
        kinds = {field.kind for field in fields}
        self.is_reported = "report" in kinds  # whether the kernel says what is wrong
        # Words that a block leaves of reductions, and all blocks do; and those by which tiles of a scan publish sums.
        self.n_reduced = sum(self.words[item.name].stop - self.words[item.name].start for item in nest.reductions)
        self.n_partials = max(1, self._tiles * self.n_reduced) if "partials" in kinds else 0
        if nest.scan is not None:
            self.n_partials += scan_words(self._tiles, len(nest.scan.items))
        # The scalars that come out, each with its words behind the report.
        left = [*(item.name for item in nest.reductions if item.name not in views), *nest.last]
        of_left = word_places(form.typed.scalars[name].dtype for name in left)
        places = [HEAD + len(axes) + place for place in of_left]
        self.left = dict(zip(left, starmap(slice, pairwise(places)), strict=True))
        self.n_host_words = places[-1]  # of the report, and of these scalars
        self.has_own = bool(self.own or self.left)  # whether a run has memory for itself

    def _enter(self, slot: int, field: ArgumentSlot, views: Mapping[str, View]) -> None:
        match field.kind:
            case "partials" | "report" | "result":
                self.own.append((slot, field))
            case "copies":
                self._image[slot] = self._copies.places[field.name]
            case "blocks":
                self._image[slot] = self._tiles if self.size else 0
                self.blocks.append(slot)
            case _:
                super()._enter(slot, field, views)

    def loaded(self, kernels: Kernels) -> Loaded:
        """Return the kernels on a device, compiled."""
        seen, found = self._loaded
        if found is None or seen() is not kernels:
            found = self.form.loaded(kernels)
            self._loaded = weakref.ref(kernels), found
        return found

    def launch(self, structure: ctypes.Array[ctypes.c_int64], kernels: Kernels, stream: Any) -> None:
        """Enqueue the nest."""
        if self.size:
            loaded = self.loaded(kernels)
            if loaded.begin is not None:
                loaded.begin.launch(stream, (1, 1, 1), (FINISH_THREADS, 1, 1), 0, structure)
            loaded.loop.launch(stream, self.grid.blocks, self.grid.threads, self.shared_nbytes, structure)


class OnCuda:
    """How nests are prepared for CUDA; see `offload.loops.running.preparation.Where`."""

    takes_unaligned = False
    is_in_order = False

    def looks(self, spec: Specialisation, arrays: Mapping[str, Any], task: DeviceTask | None) -> Looks:
        """Return the object that looks at elements in the call, for later calls."""
        return Looks(arrays) if task is None else DeviceLooks(arrays, task, spec)

    def on_host(self, arrays: Mapping[str, Any], task: DeviceTask | None) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return copies on the host, as the stream of the task has the arrays; wait for it."""
        assert task is not None
        device: Device = task.place.device
        stream: Any = task.lane.stream  # type: ignore[union-attr]  # the body has one
        copies = {name: np.empty(array.shape, array.dtype) for name, array in arrays.items()}
        stream.synchronize()  # what is copied by threads has nothing to wait for then
        for name, array in arrays.items():
            copy = device.copy(copies[name], array, stream)
            if copy is not None:
                copy.run()
        stream.synchronize()
        return copies

    def blank(self, spec: Specialisation, number: int, plan: NestPlan, numbers: Numbers) -> CudaBlank:
        """Return the blank of a nest."""
        of = shaped(spec, number, plan, numbers)
        return CudaBlank(of, numbers.scalars[number], spec.free, numbers.views, numbers.axes[number])


ON_CUDA: Final = OnCuda()


class CudaRun:
    """One run of a nest on a CUDA device: its arguments and its results."""

    __slots__ = ("_host", "_outputs", "_structure", "_values", "blank", "is_kept", "partials")

    _structure: ctypes.Array[ctypes.c_int64]

    def __init__(self, blank: CudaBlank, values: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        self.blank = blank
        # device arrays without dimensions that receive scalars; other scalars go to host memory
        self._values, self._outputs = values, outputs
        # the report and the scalars that come out, in memory of the host
        self._host: np.ndarray[Any, Any] | None = None
        self.partials: Any = None  # what blocks leave of reductions
        # Whether the kernels use memory of its own, so that it has to outlive them, and somebody looks at it then.
        self.is_kept = blank.has_own

    def prepare(
        self,
        addresses: Mapping[str, int],
        kernels: Kernels,
        device: Device,
        stream: Any,
        *,
        n_blocks: int | None = None,
    ) -> None:
        """Compile, and allocate all memory of the run. Without memory it raises `DeviceMemoryError`.

        ``n_blocks`` is the number of blocks that leave partial results, if blocks of other devices add theirs.
        """
        blank = self.blank
        blank.loaded(kernels)
        self._structure = structure = blank.filled(addresses, self._values)
        if self.is_kept:
            n_partials = blank.n_partials
            if n_blocks is not None and n_partials:
                n_partials = max(1, n_blocks * blank.n_reduced)
                for slot in blank.blocks:
                    structure[slot] = n_blocks
            self._allocate(device, stream, n_partials)
            for slot, field in blank.own:
                structure[slot] = self._slot(field, device)

    def _allocate(self, device: Device, stream: Any, n_partials: int) -> None:
        """Allocate the run's own memory."""
        blank = self.blank
        comes_out = any(name not in self._outputs for name in blank.left)
        untouched = self._untouched()
        if blank.is_reported or comes_out or untouched:
            n_words = blank.n_host_words
            memory = device.host_memory(n_words * _WORD.itemsize)
            self._host = np.empty(n_words, np.int64) if memory is None else np.frombuffer(memory, np.int64, n_words)
            self._host[...] = 0
            for name, value in untouched.items():
                self._host[blank.left[name]] = bits(value).view(np.int64)
        if n_partials:
            self.partials = device.alloc((n_partials,), _WORD, stream)

    def enqueue(self, kernels: Kernels, device: Device, stream: Any, *, finishes: bool = True) -> None:
        """Enqueue the kernels, and the values of scalars that no iteration assigns."""
        blank = self.blank
        blank.launch(self._structure, kernels, stream)
        for name in self._untouched():
            output = self._outputs.get(name)
            if output is not None:
                words: Any = self._host[blank.left[name]]  # type: ignore[index]  # it has their values
                device.copy(output, words.view(output.dtype)[:1].reshape(()), stream)
        if finishes:
            self.finish(kernels, stream)

    def finish(self, kernels: Kernels, stream: Any) -> None:
        """Enqueue the kernel that combines partial results, if there are reductions."""
        finish = self.blank.loaded(kernels).finish
        if finish is not None:
            finish.launch(stream, (1, 1, 1), (FINISH_THREADS, 1, 1), 0, self._structure)

    def _untouched(self) -> dict[str, Any]:
        """Return the scalars that come out as they were before the loop, which has no iteration."""
        last = self.blank.form.nest.last
        if self.blank.size or not last:
            return {}
        scalars = self.blank.scalars_of(self._values)
        return {name: scalars[name] for name in last if name in scalars}

    def _slot(self, field: ArgumentSlot, device: Device) -> int:
        """Return the address of the run's own memory for a field."""
        if field.kind == "partials":
            return device.address(self.partials)  # type: ignore[return-value]  # it is the device's
        if field.kind == "report":
            return self._host.ctypes.data  # type: ignore[union-attr]  # there is one for a report
        output = self._outputs.get(field.name)
        if output is not None:
            return device.address(output)  # type: ignore[return-value]  # as above
        return self._host[self.blank.left[field.name]].ctypes.data  # type: ignore[index]  # as above

    @property
    def results(self) -> dict[str, Any]:
        """The scalars that come out to the host, once the stream has passed the run."""
        if self._host is None:
            return {}
        blank = self.blank
        last = blank.form.nest.last
        untouched = self._untouched()
        host = self._host.view(_WORD)
        return {
            name: from_bits(host[words], blank.form.typed.scalars[name].dtype)
            for name, words in blank.left.items()
            if name not in self._outputs and (blank.size or name not in last or name in untouched)
        }

    def failure(self) -> Exception | None:
        """Return the error that the kernel has found, once the stream has passed it; reset it for the next run."""
        if self._host is None or not self._host[0]:
            return None
        blank = self.blank
        record = self._host[: HEAD + len(blank.axes)].tolist()
        self._host[0] = 0
        return failure_of(blank.form.nest, record, blank.axes, blank.shapes)
