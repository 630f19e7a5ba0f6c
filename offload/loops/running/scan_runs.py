"""A nest as a scan, on the host and on simulated devices: chunks are gone through twice.

First each chunk gets its total, in parallel. Then the values before each chunk follow from the totals, in their order,
and the iterations of all chunks run in parallel. So results of floats follow from the chunks alone, not from the number
of threads. Integers are the same in any order: with few threads, one goes through the chunks in their order, only once.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offload.loops.emit.c_scans import TOTALS, emit_scan, of_totals
from offload.loops.emit.python_form import bits, prefixes, python_form
from offload.loops.running import pool
from offload.loops.running.build import builder
from offload.loops.running.runs import ENTRY, SHORT_NS, NestForm
from offload.loops.tree.promotion import identity, is_inexact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from offload.loops.emit.emit_c import CKernel
    from offload.loops.running.arguments import NestRun
    from offload.loops.running.clauses import LoopWords
    from offload.loops.tree import ir

# Two threads that go through all chunks twice take longer than one that goes once: 35 ms instead of 25 for 2**24 sums.
LEAST_THREADS: Final = 3


class ScanForm(NestForm):
    """A nest as a scan."""

    def __init__(self, typed: ir.Typed, nest: ir.Nest, variant: Any, words: LoopWords) -> None:
        super().__init__(typed, nest, variant, words)
        assert nest.scan is not None
        self._scan: ir.Scan = nest.scan
        # Whether its values are the same in any order, so that few threads need not compute totals.
        self._is_exact = not any(is_inexact(typed.scalars[name].dtype) for name in nest.carried)

    @cached_property
    def kernel(self) -> CKernel:
        """The nest as C."""
        return emit_scan(self.typed, self.nest, self.variant)

    @cached_property
    def _totals(self) -> int:
        """The address of the compiled function of totals."""
        return builder.load(self.kernel.source, TOTALS, self.nest.place, self.options)

    @cached_property
    def _python_totals(self) -> Callable[..., None]:
        return python_form(self.typed, of_totals(self.nest), dict(self.variant.modes))

    def compile(self) -> None:
        """Compile the functions for `run`, unless they exist, so that no stream has to wait for them."""
        _ = self._totals if self.entry else (self.python, self._python_totals)

    def run(self, grid: tuple[int, ...], run: NestRun) -> None:
        """Run all chunks, and the steps after them."""
        n_chunks = grid[0]
        if not n_chunks:
            pass
        elif not self.entry:
            self._run_as_python(run)
        elif run.order is not None:
            self._run_shuffled(run)
        else:
            self._run_on_threads(n_chunks, run)
        run.finish()

    def _run_on_threads(self, n_chunks: int, run: NestRun) -> None:
        trips, size = run.blank.trips, run.blank.size
        bounds = self._bounds(trips)
        n_threads = 1 if self._trip_ns * size < SHORT_NS else min(run.n_threads, pool.n_cores())
        if n_threads < LEAST_THREADS and self._is_exact:
            self._run_alone(run)
            return
        took_ns = pool.run(self._totals, run.address, trips, n_chunks, n_threads, bounds)
        self._start_chunks(run)
        took_ns += pool.run(self.entry, run.address, trips, n_chunks, n_threads, bounds)
        self._trip_ns = took_ns / size

    def _run_alone(self, run: NestRun) -> None:
        """Run the chunks in their order, each from the values that the one before has left."""
        partials, entry, places = self._partials(run), ENTRY(self.entry), [*self._places(run)]
        for place, value in zip(places, self._before(run), strict=True):
            partials[0, place] = bits(value)
        for chunk, (begin, end) in enumerate(self._ranges(run)):
            if chunk:
                for place in places:
                    partials[chunk, place] = partials[chunk - 1, place]
            entry(run.address, begin, end, chunk, 0)

    def _run_shuffled(self, run: NestRun) -> None:
        """Run the chunks one after another on this thread, in the order that the run says."""
        ranges, order = [*self._ranges(run)], run.order or ()
        for address in (self._totals, self.entry):
            entry = ENTRY(address)
            for chunk in order:
                entry(run.address, *ranges[chunk], chunk, 0)
            if address == self._totals:
                self._start_chunks(run)

    def _run_as_python(self, run: NestRun) -> None:
        partials, arguments, report = self._partials(run), run.arguments, run.report
        ranges = [*self._ranges(run)]
        order = range(len(ranges)) if run.order is None else run.order
        totals = np.zeros((len(ranges), len(self._scan.items)), np.uint64)
        for chunk in order:
            self._python_totals(arguments, *ranges[chunk], chunk, totals, report)
        starts = [
            prefixes(item.operator, before, totals[:, k : k + 1])
            for k, (item, before) in enumerate(zip(self._scan.items, self._before(run), strict=True))
        ]
        for chunk in order:
            values = {item.name: found[chunk] for item, found in zip(self._scan.items, starts, strict=True)}
            self.python({**arguments, **values}, *ranges[chunk], chunk, partials, report)

    def _ranges(self, run: NestRun) -> Iterator[tuple[int, int]]:
        """Yield the first trip of each chunk, and the trip after its last."""
        trips, n_chunks = run.blank.trips, run.n_chunks
        bounds = self._bounds(trips)
        for chunk in range(n_chunks):
            if bounds is not None:
                yield bounds[chunk], bounds[chunk + 1]
            else:
                yield trips * chunk // n_chunks, trips * (chunk + 1) // n_chunks

    def _start_chunks(self, run: NestRun) -> None:
        """Replace the totals of chunks by the values before them."""
        partials = self._partials(run)
        for item, place, before in zip(self._scan.items, self._places(run), self._before(run), strict=True):
            values = prefixes(item.operator, before, partials[:, place])
            partials[:, place.start] = values.view(f"u{values.itemsize}")

    def _before(self, run: NestRun) -> Iterator[Any]:
        """Yield the values of the items before the nest: nothing where the first iteration has them."""
        scalars = run.scalars
        for item in self._scan.items:
            value = scalars[item.name]
            is_started = item.name in self._scan.started
            yield value.dtype.type(identity(item.operator, value.dtype.name)) if is_started else value

    def _places(self, run: NestRun) -> Iterator[slice]:
        """Yield the word of each item in a row of partial results."""
        yield from (run.blank.words[item.name] for item in self._scan.items)

    @staticmethod
    def _partials(run: NestRun) -> np.ndarray[Any, Any]:
        assert run.partials is not None  # items have words
        return run.partials
