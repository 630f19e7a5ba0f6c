"""A nest as a function of this process.

`NestForm` is a nest with the decisions of a launch about it, compiled for the host or, where there is no compiler, as
Python. It is a `offload.devices.base.Program`, so that a simulated device runs it as well. Chunks follow from the
number of trips alone, so that results do not depend on how many threads there are. `offload.loops.running.arguments`
has the memory of one run, and the results of its chunks.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cached_property
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offload.arrays.items import address_of
from offload.loops.emit.c_serial_nests import emit_exact
from offload.loops.emit.emit_c import copied, emit
from offload.loops.emit.python_form import bits, from_bits, python_form
from offload.loops.proofs.reports import failure_of
from offload.loops.running import pool
from offload.loops.running.arguments import Blank, arguments_of, on_host
from offload.loops.running.build import builder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload.loops.emit.emit_c import CKernel, CVariant
    from offload.loops.running.arguments import NestRun
    from offload.loops.running.clauses import LoopWords
    from offload.loops.tree import ir


# A shorter loop runs on one thread: to wake a helper that sleeps takes some 5 µs, and it has caches to fill.
SHORT_NS: Final = 30_000

# What an iteration is thought to take before one has been timed.
_TRIP_NS: Final = 2.0

_CONTRACT: Final = ("-ffp-contract=fast",)
# What compilers are told beside `compilers`' own options, which have `-fno-trapping-math` already.
_FASTMATH: Final[dict[str | None, tuple[str, ...]]] = {
    None: (),
    "contract": _CONTRACT,
    "fast": (*_CONTRACT, "-fassociative-math", "-fno-signed-zeros"),  # gcc reassociates nothing without the latter
}

ENTRY: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 4)  # of a compiled nest


class NestForm:
    """A nest of a typed function, in the form that a launch has decided on."""

    def __init__(self, typed: ir.Typed, nest: ir.Nest, variant: CVariant, words: LoopWords) -> None:
        is_in_order = variant.is_ordered or nest.scan is not None
        if is_in_order and nest.clauses.tile:  # whose iterations would be in another order
            nest = replace(nest, clauses=replace(nest.clauses, tile=()))
        self.nest = nest  # without tiles where iterations run in order
        self.typed = typed
        self.is_compiled = builder.compiler is not None  # False: it runs as Python
        self.options: Sequence[str] = _FASTMATH[words.fastmath]  # of the compiler
        self.variant = variant  # what the launch has decided
        self._words = words  # for the size of chunks, and what the compiler may do to arithmetic
        self._trip_ns = _TRIP_NS  # of an iteration, on one thread
        self._guided: tuple[int, Any] = (-1, None)  # the bounds of chunks of so many trips
        operators = copied(nest) if self.is_compiled else {}
        # Arrays of which each worker has a copy, with the operator that merges them.
        self.copies = tuple((name, operators[name]) for name in variant.copies if name in operators)

    @cached_property
    def kernel(self) -> CKernel:
        """The nest as C."""
        return emit(self.typed, self.nest, self.variant)

    @cached_property
    def entry(self) -> int:
        """The address of the compiled function; 0 where there is none, and the nest runs as Python."""
        entry = builder.address(self.kernel, self.nest, self.options) if self.is_compiled else 0
        if not entry:
            self.is_compiled, self.copies = False, ()
        return entry

    @cached_property
    def python(self) -> Callable[..., None]:
        """The nest as Python."""
        return python_form(self.typed, self.nest, dict(self.variant.modes))

    def compile(self) -> None:
        """Compile the function for `run`, unless it exists, so that no stream has to wait for it."""
        _ = self.entry or self.python

    @property
    def source(self) -> str:
        return self.kernel.source

    @property
    def names(self) -> Sequence[str]:
        return (self.kernel.entry if self.is_compiled else self.typed.function.name,)

    def on_host(self) -> Mapping[str, Callable[[tuple[int, ...], Any], object]]:
        return {self.names[0]: self.run}

    def n_chunks(self, trips: int, *, shuffles: bool) -> int:
        """Return how many chunks a number of trips is cut into: one that is in order, many that are shuffled."""
        if self.variant.is_ordered:
            return min(trips, 1)
        return pool.n_chunks(trips, self._rows(trips), self._words.schedule, shuffles=shuffles)

    def _rows(self, trips: int) -> int:
        return -(-trips // self.nest.clauses.tile[0]) if self.nest.clauses.tile else trips

    def _bounds(self, trips: int) -> Any:
        """Return where chunks begin, and the last one ends; None where they are of equal length."""
        kind, size = self._words.schedule or ("", None)
        if kind != "guided" or self.variant.is_ordered or self._rows(trips) != trips:
            return None
        known, bounds = self._guided
        if known != trips:
            found = pool.guided(trips, size or 1)
            bounds = (ctypes.c_int64 * len(found))(*found)
            self._guided = trips, bounds
        return bounds

    def run(self, grid: tuple[int, ...], run: NestRun) -> None:
        """Run all chunks, and the steps after them."""
        n_chunks = grid[0]
        if n_chunks and (run.order is not None or not self.entry):
            self._run_in_order(n_chunks, run)
        elif n_chunks:
            size = run.blank.size
            n_threads = 1 if self._trip_ns * size < SHORT_NS else min(run.n_threads, n_chunks)
            trips = run.blank.trips
            took_ns = pool.run(self.entry, run.address, trips, n_chunks, n_threads, self._bounds(trips))
            self._trip_ns = took_ns / size
        run.finish()

    def _run_in_order(self, n_chunks: int, run: NestRun) -> None:
        """Run the chunks one after another on this thread, in the order that the run says."""
        trips = run.blank.trips
        entry = ENTRY(self.entry) if self.entry else None
        arguments, report = (run.arguments, run.report) if entry is None else (None, None)
        bounds = self._bounds(trips)
        for chunk in range(n_chunks) if run.order is None else run.order:
            begin, end = trips * chunk // n_chunks, trips * (chunk + 1) // n_chunks
            if bounds is not None:
                begin, end = bounds[chunk], bounds[chunk + 1]
            if entry is not None:
                entry(run.address, begin, end, chunk, 0)
            else:
                self.python(arguments, begin, end, chunk, run.partials, report)


# -- a nest in order -----------------------------------------------------------------------------------
#
# It leaves exactly what CPython leaves, also where something is wrong. Whoever likes carries it out, slice by slice of
# trips of its outermost loop: on the calling thread, or on one of its own (`offload.loops.speculative.competitor`).
# Scalars that come out go from slice to slice in the slots of the run, which hold their values before the loop first.


class OrderedForm(NestForm):
    """A nest in order, as `OrderedRun` runs it, slice by slice; no device does."""

    trip_ns: float | None = None  # as a run has found it

    @cached_property
    def kernel(self) -> CKernel:
        """The nest as C."""
        return emit_exact(self.typed, self.nest, self.variant)

    @cached_property
    def python(self) -> Callable[..., None]:
        """The nest as Python."""
        return python_form(self.typed, self.nest, dict(self.variant.modes), goes_on=True)


# Between two looks at signals, on the calling thread.
_SLICE_NS: Final = 20_000_000

# Of that the first slice of a run takes a part, by what trips of the run before took: these may take longer.
_CAUTION: Final = 64

# The first slice of a run without a compiler: an iteration takes some microseconds.
_PYTHON_TRIPS: Final = 64


class OrderedRun:
    """One run of a nest in order."""

    def __init__(
        self,
        blank: Blank[OrderedForm],
        arrays: Mapping[str, Any],  # host arrays by name; the run changes and keeps them
        addresses: Mapping[str, int],  # of the elements ``[0, …, 0]``
        values: Mapping[str, Any],  # the arguments of the call, for the scalars that each run has for itself
    ) -> None:
        self.form = blank.form
        self._blank, self._arrays = blank, arrays
        self._scalars = blank.scalars_of(values)  # before the nest
        self.trips = blank.trips if blank.size else 0  # of the outermost loop; 0 where there is no iteration at all
        self._slots = np.zeros((1, max(blank.n_words, 1)), np.uint64)  # of scalars that pass from slice to slice
        for name, words in blank.words.items():
            before = self._element(name)[()] if name in arrays else self._scalars.get(name)
            if before is not None:
                self._slots[0, words] = bits(before)
        # the structure of arguments, with the record at its end
        self._memory = memory = blank.filled(addresses, values)
        self._cancel = np.zeros(1, np.int64)  # not 0: nobody wants the results
        # Of the structure of arguments, and in it of the record of what is wrong.
        self.address = ctypes.addressof(memory)
        self.record = self.address + 8 * blank.n_fields  # its address
        own = {"report": self.record, "partials": address_of(self._slots), "cancel": address_of(self._cancel)}
        for slot, field in blank.own:
            memory[slot] = own[field.kind]

    def _element(self, name: str) -> np.ndarray[Any, Any]:
        return on_host(self._arrays[name]).reshape(())

    @cached_property
    def _entry(self) -> Callable[[int, int], None]:
        """The function that carries out the trips from one to before another."""
        form, address = self.form, self.address
        if form.entry:
            entry = ENTRY(form.entry)
            return lambda begin, end: entry(address, begin, end, 0, 0)
        arguments = arguments_of(self._scalars, self._arrays, self._blank.axes)
        report = np.frombuffer(memoryview(self._memory), np.int64)[self._blank.n_fields :]
        return lambda begin, end: form.python(arguments, begin, end, 0, self._slots, report)

    def run(self, begin: int, end: int) -> None:
        """Carry out the trips from one to before another, of which the last slice has ended at the first."""
        self._entry(begin, end)

    def run_all(self, is_wanted: Callable[[], bool] = lambda: True) -> bool:
        """Carry out all trips on this thread, in slices, while somebody wants them; return whether that is the end.

        It is where all are done, or something was wrong.
        """
        form, done, all_ns = self.form, 0, 0
        size = 1 if form.is_compiled else _PYTHON_TRIPS
        if form.trip_ns is not None:
            size = max(size, int(_SLICE_NS / (_CAUTION * form.trip_ns)))
        while done < self.trips and not self.has_failed and is_wanted():
            end, begun_ns = min(done + size, self.trips), perf_counter_ns()
            self._entry(done, end)
            done, took_ns = end, max(perf_counter_ns() - begun_ns, 1)
            all_ns += took_ns
            size = max(1, min(64 * size, size * _SLICE_NS // took_ns))
        if done:
            form.trip_ns = all_ns / done
        return self.has_failed or done >= self.trips

    def give_up(self) -> None:
        """Have long trips end early; their results are of no use."""
        self._cancel[0] = 1

    @property
    def has_failed(self) -> bool:
        """Whether something was wrong."""
        return bool(self._memory[self._blank.n_fields])

    def failure(self) -> Exception | None:
        """Return the exception of the serial program."""
        blank = self._blank
        return failure_of(self.form.nest, self._memory[blank.n_fields :], blank.axes, blank.shapes)

    def finish(self) -> dict[str, Any]:
        """Write reductions to arrays of one element, and return the scalars that come out, after the last slice."""
        found: dict[str, Any] = {}
        for name in (*(item.name for item in self.form.nest.reductions), *self.form.nest.last):
            words = self._blank.words[name]
            kind = self.form.typed.arrays.get(name) or self.form.typed.scalars[name]
            value = from_bits(self._slots[0, words], kind.dtype)
            if name in self._arrays:
                self._element(name)[...] = value
            elif self.trips or name in self._scalars:
                found[name] = value
        return found
