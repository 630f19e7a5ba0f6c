"""A nest on a CUDA device: its two kernels, and one run of it.

`CudaForm` is a nest with what a launch has decided about it, as CUDA's text. `CudaRun` is what one run has for itself:
the structure of arguments, partial results on the device, and memory of the host that the kernels write to, for the
report and for scalars that come out, which nobody reads before the stream has passed. All of that lives as long as the
run, and the task keeps the run until then; nothing else is allocated.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from offload.loops.emit_c import copied
from offload.loops.emit_cuda import FINISH, FINISH_THREADS, LOOP, CudaVariant, emit_cuda
from offload.loops.grids import blocks_with_copies, copies_of, grid_of, index_bits, shape_of
from offload.loops.python_form import bits, from_bits
from offload.loops.reports import HEAD, failure_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload.devices.base import Device, Kernels
    from offload.loops import ir
    from offload.loops.c_expressions import Field
    from offload.loops.emit_c import CKernel
    from offload.loops.grids import Copies, Grid
    from offload.loops.numbers import Trips, View
    from offload.loops.plan import NestPlan, Numbers
    from offload.loops.specialise import Specialisation

_WORD: Final = np.dtype(np.uint64)


class CudaForm:
    """A nest of a typed function as CUDA; a `offload.devices.base.Program`.

    Parameters
    ----------
    typed : Typed
    nest : Nest
    variant : CudaVariant
    fastmath : str or None
        As in `offload.loops.clauses.LoopWords`.
    """

    def __init__(self, typed: ir.Typed, nest: ir.Nest, variant: CudaVariant, fastmath: str | None) -> None:
        self.typed = typed
        self.nest = nest
        self.options: Sequence[str] = (f"--fmad={'true' if fastmath else 'false'}",)
        self.names: Sequence[str] = (LOOP, FINISH) if nest.reductions else (LOOP,)
        self._variant = variant

    @cached_property
    def kernel(self) -> CKernel:
        """The nest as CUDA."""
        return emit_cuda(self.typed, self.nest, self._variant)

    @property
    def source(self) -> str:
        return self.kernel.source

    def on_host(self) -> Mapping[str, Callable[[tuple[int, ...], Any], object]]:
        return {}


_SHAPES: Final = 64
"""Shapes of launches that a specialisation keeps: as many as plans, from which they follow."""


class Shaped(NamedTuple):
    """A nest as CUDA, and the shape of its launch, which follow from a plan."""

    plan: NestPlan
    form: CudaForm
    grid: Grid
    copies: Copies


def shaped(spec: Specialisation, number: int, plan: NestPlan, numbers: Numbers) -> Shaped:
    """Return a nest as CUDA, by its number in the function, for the numbers of a call."""
    found: Shaped | None = spec.shapes.get(id(plan))
    if found is None:
        if len(spec.shapes) >= _SHAPES:
            spec.shapes.clear()
        found = spec.shapes[id(plan)] = _shaped(spec, number, plan, numbers)  # which keeps the plan, and so its id
    return found


def _shaped(spec: Specialisation, number: int, plan: NestPlan, numbers: Numbers) -> Shaped:
    words, axes, views = spec.program.words, numbers.axes[number], numbers.views
    base = plan.variant
    trips = [max(axis.trips, 1) for axis in axes]
    shape = shape_of(words.sizes, words.tile)
    elements = {name: (math.prod(views[name].extents), views[name].itemsize) for name in copied(plan.nest)}
    copies = copies_of({} if base.is_ordered else elements, math.prod(trips))
    if copies.places:
        most = blocks_with_copies([elements[name][0] for name in copies.places], math.prod(trips))
        shape = shape._replace(most_blocks=min(most, shape.most_blocks or most))
    grid = grid_of(trips, shape, is_ordered=base.is_ordered)
    variant = CudaVariant(
        base.modes,
        base.layouts,
        base.is_restricted,
        base.unit_steps,
        tuple(copies.places),
        base.is_ordered,
        index_bits=index_bits(axes, views.values(), grid),
        n_threads=grid.n_threads,
        is_strided=grid.is_strided,
        privates=tuple([(name, math.prod(views[name].extents)) for name in plan.nest.privates]),
        empty=tuple([name for name, view in views.items() if 0 in view.extents]),
    )
    key = number, variant
    form: CudaForm | None = spec.forms.get(key)
    if form is None:
        form = spec.forms.setdefault(key, CudaForm(spec.typed, plan.nest, variant, words.fastmath))
    return Shaped(plan, form, grid, copies)


class CudaRun:
    """One run of a nest on a CUDA device: what it is given, and what it leaves.

    Parameters
    ----------
    of : Shaped
    scalars : mapping
        By name, NumPy scalars of the types that the function has for them.
    arrays : mapping
        Device arrays by name. They are kept.
    views : mapping of str to View
        Where they lie.
    axes : sequence of Trips
    outputs : mapping
        By name, device arrays without dimensions to which scalars are written that come out; of others the host's
        memory has the value.
    """

    __slots__ = (
        "_arrays",
        "_axes",
        "_copies",
        "_grid",
        "_host",
        "_loaded",
        "_outputs",
        "_partials",
        "_scalars",
        "_structure",
        "_views",
        "form",
        "size",
    )

    def __init__(
        self,
        of: Shaped,
        scalars: Mapping[str, Any],
        arrays: Mapping[str, Any],
        views: Mapping[str, View],
        axes: Sequence[Trips],
        outputs: Mapping[str, Any],
    ) -> None:
        _, self.form, self._grid, self._copies = of
        self._scalars, self._arrays = scalars, arrays
        self._views, self._axes, self._outputs = views, axes, outputs
        self.size = math.prod(axis.trips for axis in axes)
        self._host: np.ndarray[Any, Any] | None = None
        self._partials: Any = None
        self._structure: np.ndarray[Any, Any] | None = None
        self._loaded: Mapping[str, Any] = {}

    @property
    def _left(self) -> list[str]:
        """The scalars that come out, in the order of their slots behind the report."""
        nest = self.form.nest
        return [*(item.name for item in nest.reductions if item.name not in self._arrays), *nest.last]

    def prepare(self, kernels: Kernels, device: Device, stream: Any) -> None:
        """Compile, and allocate all that the run needs.

        Raises
        ------
        DeviceMemoryError
        """
        self._loaded = kernels.load(self.form)
        fields = self.form.kernel.fields
        kinds = {field.kind for field in fields}
        comes_out = any(field.kind == "result" and field.name not in self._outputs for field in fields)
        if "report" in kinds or comes_out or (self.form.nest.last and not self.size):
            n_words = HEAD + len(self._axes) + len(self._left)
            memory = device.host_memory(n_words * _WORD.itemsize)
            self._host = np.empty(n_words, np.int64) if memory is None else np.frombuffer(memory, np.int64, n_words)
            self._host[...] = 0
            for name in self._untouched():
                self._host[self._place(name)] = bits(self._scalars[name]).view(np.int64)
        if "partials" in kinds:
            n_words = max(1, self._grid.n_blocks * len(self.form.nest.reductions))
            self._partials = device.alloc((n_words,), _WORD, stream)
        self._structure = np.array([self._slot(field, device) for field in fields], np.int64)

    def enqueue(self, device: Device, stream: Any) -> None:
        """Enqueue the kernels, and what scalars are that no iteration has given a value."""
        for name in self._untouched():
            output = self._outputs.get(name)
            if output is not None:
                slot = self._place(name)
                device.copy(output, self._host[slot : slot + 1].view(output.dtype)[:1].reshape(()), stream)  # type: ignore[index]  # it has their values
        if self.size:
            grid = self._grid
            self._loaded[LOOP].launch(stream, grid.blocks, grid.threads, self._copies.nbytes, self._structure)
        if self.form.nest.reductions:
            self._loaded[FINISH].launch(stream, (1, 1, 1), (FINISH_THREADS, 1, 1), 0, self._structure)

    def _place(self, name: str) -> int:
        """Return the slot of the host's memory for a scalar that comes out."""
        return HEAD + len(self._axes) + self._left.index(name)

    def _untouched(self) -> list[str]:
        """Return the scalars that come out as they were before the loop, which has no iteration."""
        return [] if self.size else [name for name in self.form.nest.last if name in self._scalars]

    def _slot(self, field: Field, device: Device) -> int:
        """Return the slot of the structure of arguments that a field says."""
        kind, name, number = field.kind, field.name, field.number
        match kind:
            case "pointer":
                return self._views[name].address
            case "copies":
                return self._copies.places[name]
            case "extent":
                return self._views[name].extents[number]
            case "stride":
                return self._views[name].strides[number]
            case "scalar":
                return int(bits(self._scalars[name]).view(np.int64))
            case "partials":
                return device.section(self._partials).address
            case "blocks":
                return self._grid.n_blocks if self.size else 0
            case "report":
                return self._host.ctypes.data  # type: ignore[union-attr]  # there is one for a report
            case "result":
                output = self._outputs.get(name)
                if output is not None:
                    return device.section(output).address
                return self._host[self._place(name) :].ctypes.data  # type: ignore[index]  # as above
            case _:
                return int(getattr(self._axes[number], kind))

    @property
    def results(self) -> dict[str, Any]:
        """The scalars that come out to the host, once the stream has passed the run."""
        if self._host is None:
            return {}
        first = HEAD + len(self._axes)
        last = self.form.nest.last
        return {
            name: from_bits(word, self.form.typed.scalars[name].dtype)
            for name, word in zip(self._left, self._host[first:].view(_WORD), strict=True)
            if name not in self._outputs and (self.size or name not in last or name in self._scalars)
        }

    def failure(self) -> Exception | None:
        """Return what the kernel has found wrong, once the stream has passed it; a graph's next run starts anew."""
        if self._host is None or not self._host[0]:
            return None
        shapes = {name: view.extents for name, view in self._views.items()}
        record = self._host[: HEAD + len(self._axes)].tolist()
        self._host[0] = 0
        return failure_of(self.form.nest, record, self._axes, shapes)
