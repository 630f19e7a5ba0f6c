"""The arguments and results of a run of a nest.

A `Blank` is shared by all runs for the same numbers. It has the structure of arguments with all values that follow from
those numbers, and a list of the fields to fill in: addresses, and floats that decide nothing. So a call that has been
made before, on any arrays, copies one block of memory and writes a few words. The report is the end of that block.
Partial results of chunks are combined in their order.
"""

from __future__ import annotations

import ctypes
import math
import struct
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import numpy as np

from offload.devices.base import Program
from offload.loops.emit.python_form import bits, combine, from_bits, held
from offload.loops.proofs.reports import HEAD, failure_of
from offload.loops.tree.promotion import identity
from offload.loops.tree.uses import result_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from offload.loops.emit.c_scope import ArgumentSlot
    from offload.loops.emit.emit_c import CKernel
    from offload.loops.proofs.numbers import Trips, View
    from offload.loops.tree import ir

# How a worker's copy of an array of atomics is merged into the array.
_MERGE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": np.add,
    "*": np.multiply,
    "min": lambda a, b: np.where(b < a, b, a),  # as Python's, also of NaN
    "max": lambda a, b: np.where(b > a, b, a),
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
}


def _packs_parts(layout: str) -> Callable[..., None]:
    """Return the function that packs a complex number; a parameter that the loop makes complex may be real."""
    pack_into = struct.Struct(layout).pack_into
    return lambda memory, offset, value: pack_into(memory, offset, value.real, value.imag)


# What packs a scalar into memory, at an offset in bytes.
_PACKED: Final[Mapping[str, Callable[..., None]]] = {
    "float64": struct.Struct("d").pack_into,
    "float32": struct.Struct("f").pack_into,
    "uint32": struct.Struct("I").pack_into,
    "complex64": _packs_parts("ff"),
    "complex128": _packs_parts("dd"),
}


class NestRun:
    """One run of a nest."""

    is_part = False  # whether partial results stay as they are, because other runs add theirs

    __slots__ = (
        "_arrays",
        "_copies",
        "_memory",
        "_values",
        "address",
        "blank",
        "form",
        "n_chunks",
        "n_threads",
        "order",
        "partials",
        "results",
    )

    def __init__(
        self,
        blank: Blank[HostForm],
        arrays: Mapping[str, Any],  # host arrays, or device arrays that the host can address; kept during the run
        addresses: Mapping[str, int],  # of the elements ``[0, …, 0]``
        values: Mapping[str, Any],  # the arguments of the call, for the scalars that each run has for itself
        n_threads: int,
        rng: Any = None,  # decides the order of chunks, on one thread; None: the loop threads take chunks in any order
    ) -> None:
        form = blank.form
        self.blank, self.form, self._arrays, self.n_threads = blank, form, arrays, n_threads
        self.n_chunks = n_chunks = form.n_chunks(blank.trips, shuffles=rng is not None) if blank.size else 0
        self.order: Sequence[int] | None = None  # that of the chunks, if it matters
        if rng is not None and n_chunks > 1:
            self.order = rng.sample(range(n_chunks), n_chunks)
        # What each chunk leaves of scalars that the nest passes on; None where there are none.
        self.partials = np.zeros((n_chunks, blank.n_words), np.uint64) if blank.n_words else None
        self.results: dict[str, Any] = {}  # the scalars that come out, once `finish` has run
        self._values = values  # the call's
        # one for each worker, of arrays of atomics
        self._copies = {name: self._copies_of(name, operator) for name, operator in form.copies}
        # the structure of arguments, with the report at its end
        self._memory = memory = blank.filled(addresses, values)
        self.address = ctypes.addressof(memory)  # of the structure of arguments
        for slot, field in blank.own:
            memory[slot] = self._slot(field)

    def _copies_of(self, name: str, operator: Any) -> np.ndarray[Any, Any]:
        """Return a copy of an array of atomics for each worker, that holds the operator's identity."""
        dtype = self.form.typed.arrays[name].dtype
        return np.full((self.n_threads, *self.blank.shapes[name]), identity(operator, dtype), dtype)

    def _slot(self, field: ArgumentSlot) -> int:
        """Return the address of the run's own memory for a field."""
        if field.kind == "report":
            return self.address + 8 * self.blank.n_fields
        own = self._copies[field.name] if field.kind == "copies" else self.partials
        assert own is not None  # there is a slot for each field of partial results
        return int(own.ctypes.data)

    @property
    def scalars(self) -> dict[str, Any]:
        """The scalars before the nest, as NumPy has them."""
        return self.blank.scalars_of(self._values)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the Python form."""
        arrays = {name: on_host(array) for name, array in self._arrays.items()}
        return arguments_of(self.scalars, arrays, self.blank.axes)

    @property
    def report(self) -> np.ndarray[Any, Any]:
        """The record of the failure, as `offload.loops.proofs.reports` reads it: int64."""
        return np.frombuffer(memoryview(self._memory), np.int64)[self.blank.n_fields :]

    def finish(self) -> None:
        """Combine the partial results of chunks: into ``results``, and into arrays of one element; merge copies."""
        if self.partials is not None and not self.is_part:
            self.combine(self.partials)
            self.take_last()
        for name, operator in self.form.copies:
            whole = on_host(self._arrays[name])
            for copy in self._copies[name]:
                whole[...] = _MERGE[operator](whole, copy)

    def combine(self, partials: np.ndarray[Any, Any]) -> None:
        """Combine partial results of reductions, in their order, with the items' values before the loop."""
        nest, scalars, words = self.form.nest, self.scalars, self.blank.words
        for item in nest.reductions:
            array = self._arrays.get(item.name)
            if array is None:
                self.results[item.name] = combine(item.operator, scalars[item.name], partials[:, words[item.name]])
            else:
                element = on_host(array).reshape(())
                element[...] = combine(item.operator, element[()], partials[:, words[item.name]])

    def take_last(self) -> None:
        """Take the scalars of which the last iteration's values are asked for."""
        nest, scalars, partials = self.form.nest, self.scalars, self.partials
        for name in nest.last:
            if self.n_chunks and partials is not None:
                words = partials[-1, self.blank.words[name]]
                self.results[name] = from_bits(words, self.form.typed.scalars[name].dtype)
            elif name in scalars:  # what it was before the loop
                self.results[name] = scalars[name]

    def failure(self) -> Exception | None:
        """Return the error that the kernel has found, when it has run."""
        blank, memory = self.blank, self._memory
        if not memory[blank.n_fields]:
            return None
        return failure_of(self.form.nest, memory[blank.n_fields :], blank.axes, blank.shapes)


class CompiledForm(Program, Protocol):
    """A nest in the form that a launch has decided on."""

    nest: ir.Nest  # as it is compiled
    typed: ir.Typed

    @property
    def kernel(self) -> CKernel: ...


class HostForm(CompiledForm, Protocol):
    """A nest as a function of this process; `offload.loops.running.runs.NestForm` describes the members."""

    is_compiled: bool  # False: the nest runs as Python
    copies: tuple[tuple[str, str], ...]  # arrays of which each worker has a copy, with the operator that merges them

    def n_chunks(self, trips: int, *, shuffles: bool) -> int: ...
    def compile(self) -> None: ...
    def run(self, grid: tuple[int, ...], run: NestRun) -> None: ...


FormT_co = TypeVar("FormT_co", bound=CompiledForm, covariant=True)


class Blank(Generic[FormT_co]):
    """The part of a run's arguments that is the same for all runs of a nest with equal numbers."""

    __slots__ = (
        "_image",
        "_kinds",
        "axes",
        "floats",
        "form",
        "n_fields",
        "n_words",
        "own",
        "pointers",
        "scalars",
        "shapes",
        "size",
        "trips",
        "words",
    )

    def __init__(
        self,
        form: FormT_co,
        fields: Sequence[ArgumentSlot],  # of the structure of arguments
        scalars: Mapping[str, Any],  # NumPy scalars of the function's types, as they are before the nest
        free: Sequence[str],  # floats that each run has for itself
        views: Mapping[str, View],
        axes: Sequence[Trips],
    ) -> None:
        self.form, self.axes, self.trips = form, tuple(axes), axes[0].trips
        # those that decisions follow from
        self.scalars = {name: value for name, value in scalars.items() if name not in free}
        self.shapes = {name: view.extents for name, view in views.items()}  # of arrays
        self.size = math.prod(axis.trips for axis in axes)  # iterations
        # The scalars that pass from chunk to chunk or come out: the words of each in a row of partial results, of all.
        self.words, self.n_words = result_words(form.typed, form.nest)
        # scalars that each run has for itself, with their types
        self._kinds = tuple((name, form.typed.scalars[name]) for name in free if name in scalars)
        # Words before the report; partial results of a chunk.
        self.n_fields = len(fields)
        self.pointers: list[tuple[int, str]] = []  # slots of addresses, with the names of arrays
        # Where scalars go that each run has for itself: the offset in bytes, the name, and what puts it there.
        self.floats: list[tuple[int, str, Callable[..., None]]] = []
        self.own: list[tuple[int, ArgumentSlot]] = []  # slots of the addresses of what the run makes for itself
        # the structure of arguments, with all that runs have in common
        self._image = (ctypes.c_int64 * (self.n_fields + HEAD + len(axes)))()
        for slot, field in enumerate(fields):
            self._enter(slot, field, views)

    def _enter(self, slot: int, field: ArgumentSlot, views: Mapping[str, View]) -> None:
        """Enter a field in the image, or where it is filled in."""
        name, number = field.name, field.number
        match field.kind:
            case "pointer":
                self.pointers.append((slot, name))
            case "copies" | "partials" | "report" | "cancel":
                self.own.append((slot, field))
            case "scalar" if name not in self.scalars:
                if number == 0:  # the second word is packed with the first
                    self.floats.append((8 * slot, name, _PACKED[self.form.typed.scalars[name].dtype]))
            case "scalar":
                self._image[slot] = int(bits(self.scalars[name]).view(np.int64)[number])
            case "extent":
                self._image[slot] = views[name].extents[number]
            case "stride":
                self._image[slot] = views[name].strides[number]
            case _:
                self._image[slot] = getattr(self.axes[number], field.kind)

    def is_given(self, name: str) -> bool:
        """Tell whether a scalar has a value before the nest."""
        return name in self.scalars or any(name == one for one, _ in self._kinds)

    def structure(self) -> ctypes.Array[ctypes.c_int64]:
        """Return the memory of a run, with all in it that runs have in common."""
        return type(self._image).from_buffer_copy(self._image)

    def filled(self, addresses: Mapping[str, int], values: Mapping[str, Any]) -> ctypes.Array[ctypes.c_int64]:
        """Return the memory of a run, with all fields but the run's own."""
        memory = self.structure()
        for slot, name in self.pointers:
            memory[slot] = addresses[name]
        for offset, name, pack_into in self.floats:
            pack_into(memory, offset, values[name])
        return memory

    def scalars_of(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the scalars before the nest, of the types that the function has for them, of such a call."""
        return {**self.scalars, **{name: held(values[name], kind) for name, kind in self._kinds}}


def arguments_of(scalars: Mapping[str, Any], arrays: Mapping[str, Any], axes: Sequence[Trips]) -> dict[str, Any]:
    """Return the arguments of the Python form of a nest; arrays are NumPy's."""
    bounds: dict[str, int] = {}
    for number, axis in enumerate(axes):
        bounds[f"start {number}"], bounds[f"step {number}"] = axis.start, axis.step
        bounds[f"trips {number}"] = axis.trips
    return {**scalars, **arrays, **bounds}


def results_of(runs: Iterable[Any]) -> dict[str, Any]:
    """Return the scalars that come out of the runs of nests, the later ones' in place of the earlier ones'."""
    return {name: value for run in runs for name, value in run.results.items()}


def on_host(array: Any) -> np.ndarray[Any, Any]:
    """Return an array of the host, or of a device whose memory the host can address, as the host has it."""
    return array if isinstance(array, np.ndarray) else array.unwrap()
