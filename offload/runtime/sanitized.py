"""The sanitizer of a runtime, from ``Runtime(sanitize=True)`` to the report at the end."""

from __future__ import annotations

import sys
from contextlib import suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any

from offload.data.entries import Origin
from offload.errors import SanitizerError
from offload.interrupts.frames import caller
from offload.runtime import sanitized_data, sanitizing
from offload.sanitizer.authors import place_of
from offload.sanitizer.elements import byte_bounds
from offload.sanitizer.findings import ItemPart, Side
from offload.sanitizer.names import assigned_at, plain_name, variable_at
from offload.sanitizer.sanitizer import Sanitizer
from offload.sanitizer.tracked import DeviceWatch, set_sink
from offload.tasks.scope import current_scope
from offload.tasks.site import line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np

    from offload.sanitizer.findings import Summary
    from offload.sanitizer.tracked import Arrays, Sink

summaries: list[Summary] = []
"""What the runtimes that have ended were found to do, for the report of a process; kept while `keeps_summaries`."""

keeps_summaries = False


class SanitizedRun:
    """A runtime that is sanitized.

    Parameters
    ----------
    runtime : Runtime
        The runtime, whose devices are not open yet.
    raises : bool
        Whether its end raises the findings.
    """

    def __init__(self, runtime: Any, *, raises: bool) -> None:
        self._runtime = runtime
        self._raises = raises
        self._summary: Summary | None = None
        self.sanitizer = Sanitizer(sanitizing.begin(runtime), self._scope)
        self.watch = DeviceWatch(self.sanitizer)

    def _scope(self) -> Any:
        """Return the scope of the calling thread; None on a thread that the runtime does not know."""
        scope = current_scope.get()
        if scope is not None and scope.runtime is self._runtime and scope.thread == get_ident():
            return scope
        return getattr(self._runtime.local, "scope", None)

    def start(self) -> None:
        """Begin when the devices are open."""
        sanitized_data.watch(self._runtime, self.sanitizer)
        _sinks.add(self.sanitizer)

    @property
    def summary(self) -> Summary:
        """The findings so far; those of the whole run after its end."""
        return self.sanitizer.summary() if self._summary is None else self._summary

    def end(self, allocated: Iterable[tuple[Any, str, Any]], in_flight: BaseException | None) -> BaseException | None:
        """Print the report when all tasks are complete and the devices still open, or return it as an error.

        ``allocated`` has the blocks of ``target_alloc`` that are left. An exception that is in flight is returned: the
        runtime's end cannot raise another one.
        """
        for place in self._runtime.places:
            place.device.drain()  # work that is in no task, on a stream, has accesses too
            for entry in place.table.entries():
                mapped = sanitized_data.mapping_of(place, entry)
                if entry.origin is Origin.MAPPED and mapped is not None:
                    part = _part_of(mapped.host, mapped.label, mapped.made.author.side)
                    self.sanitizer.leak_of(mapped, part)
        for array, what, call in allocated:
            file, line = place_of(line_of(call))
            storage = array._storage if hasattr(array, "_storage") else array  # noqa: SLF001  # of a simulated device
            name, _, where = what.partition(" on ")
            side = Side(file, line, "map", "target_alloc", f"allocated on {where}" if where else "")
            self.sanitizer.leak(side, ((call[0], line),), storage, _part_of(storage, name, side))
        summary = self._summary = self.sanitizer.summary()
        if keeps_summaries:
            summaries.append(summary)
        if self._raises and (summary.findings or summary.failure) and in_flight is None:
            in_flight = SanitizerError(f"the sanitizer has findings\n{summary.text}", findings=summary.findings)
        else:
            with suppress(OSError, ValueError):  # nobody reads it
                from offload.sanitizer.report import show

                show(summary, sys.stderr)
        return in_flight

    def leave(self) -> None:
        """Take back all that observes the runtime, which is closed, or has never been open."""
        _sinks.remove(self.sanitizer)
        sanitizing.end(self._runtime)
        sanitized_data.leave(self.sanitizer)


def _part_of(array: Any, label: str, made: Side) -> ItemPart:
    """Return all of an array of storage that is left, by the name that the program has for it."""
    lo, hi = byte_bounds(array)
    found = variable_at(caller(), (lo, hi))
    name = found.name if found is not None else assigned_at(made) or plain_name(label)
    return ItemPart(name, tuple((0, n) for n in array.shape), lo)


class _Sinks:
    """The sink of tracked arrays: it passes the accesses of the host on to each sanitizer of the process."""

    def __init__(self) -> None:
        self._sanitizers: tuple[Sanitizer, ...] = ()
        self._before: Sink | None = None

    def add(self, sanitizer: Sanitizer) -> None:
        if not self._sanitizers:
            self._before = set_sink(self)
        self._sanitizers = (*self._sanitizers, sanitizer)

    def remove(self, sanitizer: Sanitizer) -> None:
        had_some = bool(self._sanitizers)
        self._sanitizers = tuple(other for other in self._sanitizers if other is not sanitizer)
        if had_some and not self._sanitizers:
            set_sink(self._before)

    def note(self, reads: Arrays, writes: Arrays, device: Any) -> None:
        for sanitizer in self._sanitizers:
            sanitizer.note(reads, writes, device)

    def ignores(self, array: np.ndarray[Any, Any]) -> bool:
        return len(self._sanitizers) == 1 and self._sanitizers[0].ignores(array)

    def given_away(self, storage: np.ndarray[Any, Any], device: Any) -> None:
        for sanitizer in self._sanitizers:
            sanitizer.given_away(storage, device)

    def lent(self, storage: np.ndarray[Any, Any]) -> Callable[[], None]:
        ends = [sanitizer.lent(storage) for sanitizer in self._sanitizers]

        def take_back() -> None:
            for end in ends:
                end()

        return take_back


_sinks = _Sinks()
