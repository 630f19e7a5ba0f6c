"""A nest in order on arrays of the host, with exactly CPython's results, also after an error.

`OrderedRun` is one run of it, carried out in slices of trips of its outermost loop, one after another: on the calling
thread, or a thread of its own (`offload.loops.speculative.competitor`). Scalars that come out go from slice to slice in
the run's slots, which hold their values before the loop at first.
"""

from __future__ import annotations

import ctypes
from functools import cached_property
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offload.arrays.items import address_of
from offload.loops.emit.python_form import bits, from_bits
from offload.loops.proofs.reports import failure_of
from offload.loops.running.arguments import Blank, arguments_of, on_host
from offload.loops.running.runs import ENTRY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offload.loops.running.runs import OrderedForm

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
        self.form = form = blank.form
        self._blank, self._arrays = blank, arrays
        self._scalars = blank.scalars_of(values)  # before the nest
        self.trips = blank.trips if blank.size else 0  # of the outermost loop; 0 where there is no iteration at all
        self._slots = np.zeros((1, max(blank.n_slots, 1)), np.uint64)  # of scalars that come out: from slice to slice
        self._items = [item.name for item in form.nest.reductions]  # of reductions
        for slot, name in enumerate((*self._items, *form.nest.last)):
            before = self._element(name)[()] if name in arrays else self._scalars.get(name)
            if before is not None:
                self._slots[0, slot] = bits(before)
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
        for slot, name in enumerate((*self._items, *self.form.nest.last)):
            kind = self.form.typed.arrays.get(name) or self.form.typed.scalars[name]
            value = from_bits(self._slots[0, slot], kind.dtype)
            if name in self._arrays:
                self._element(name)[...] = value
            elif self.trips or name in self._scalars:
                found[name] = value
        return found
