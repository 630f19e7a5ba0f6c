"""A loop in parallel on a device, with a log: its forms, and one run of it.

`LoggedLoop` is shared by all calls for the same numbers: the nest with its log (`speculate`), or the address
slice of it (`inspecting`), and the passes over the words. `LoggedRun` is one run, chunk by chunk, on the stream of a
device task. It checks nothing by itself: its driver enqueues, and asks for the findings (`LoggedRun.ask`) when it needs
them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from offload.loops.emit.emit_c import copied
from offload.loops.proofs.independence import Verdict
from offload.loops.proofs.numbers import Trips, View
from offload.loops.running.arguments import NestRun, results_of
from offload.loops.running.configurations import tell_launches
from offload.loops.running.cuda_runs import CudaRun
from offload.loops.running.looks import entry_at
from offload.loops.running.memo import CallRecord
from offload.loops.running.plan import NestPlan, Numbers, layout_of
from offload.loops.running.preparation import kernels_of, n_threads_of, where_on
from offload.loops.running.specialise import Specialisation
from offload.loops.watched.cells import cells_of
from offload.loops.watched.exchange_log import (
    FLAG_WORDS,
    ID_BITS,
    MOST_IDS,
    MOST_ITERATIONS,
    NO_SECTIONS,
    OPEN,
    WHAT_BITS,
    LogWriter,
    final_pass,
)
from offload.loops.watched.inspecting import can_be_inspected, inspector
from offload.loops.watched.needs import needed
from offload.loops.watched.sections import sections

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.data.entries import Entry
    from offload.devices.base import Device, Kernels
    from offload.loops.watched.cells import Cells
    from offload.loops.watched.exchange_log import Logged
    from offload.loops.watched.needs import Needed
    from offload.loops.watched.watching import Watched
    from offload.runtime.launch import DeviceTask


# -- the words of logs --------------------------------------------------------------------------------
#
# The words of a present storage hang on its entry (`Entry.beside`), so the next loop finds them, and they end with
# it. A run takes them away, and gives them back when its stream has passed; a concurrent run makes its own. An array
# in no entry gets words for one run. The base of a run is the greatest of the bases of its storages, so all words are
# at most that. If ids would exceed 2**32 - 1, the words are cleared and begin at 0.


_WORD: Final = np.dtype(np.uint32)
_KEY: Final = "log"

# Words of one size that are kept beside a storage: of so many parts of it, or of loops that run at a time.
_MOST: Final = 4


@dataclass(slots=True)
class Words:
    """The words of a storage."""

    # Device arrays, a word for each cell; None until one is asked for.
    writers: Any = None
    readers: Any = None  # None where reads are not logged
    base: int = 0  # what no word exceeds


class Log:
    """The words of one run, of all storages that it logs.

    Words are cleared on the stream of ``task``. Without memory it raises `DeviceMemoryError`, and takes no words.
    """

    def __init__(self, of: Logged, arrays: Mapping[str, Any], n_iterations: int, task: DeviceTask) -> None:
        self._of, self._task = of, task
        self._entries: dict[str, Entry | None] = {}  # in which the storages lie; None: in none
        self._words: dict[str, Words] = {}  # by storage
        try:
            for storage, n_cells in of.n_cells.items():
                self._take(storage, n_cells, arrays[storage])
        except BaseException:
            self.give_back()
            raise
        # As `offload.loops.watched.exchange_log` has them.
        self.base = max((words.base for words in self._words.values()), default=0)
        if self.base + 1 + n_iterations > MOST_IDS:
            self.base = 0
            for words in self._words.values():
                for array in (words.writers, words.readers):
                    if array is not None:
                        self._clear(array)
        self.many = self.base + 1 + n_iterations  # stands for several readers

    def arrays(self) -> dict[str, Any]:
        """Return the words by the names that the nest has for them."""
        found = {name: self._words[storage].writers for storage, name in self._of.writers.items()}
        return found | {name: self._words[storage].readers for storage, name in self._of.readers.items()}

    def close(self) -> None:
        """Take note that the stream has passed the run: its ids are old from now on."""
        for words in self._words.values():
            words.base = self.many
        self.give_back()

    def give_back(self) -> None:
        """Leave the words beside their storages, as they are, unless there are enough."""
        for storage, words in self._words.items():
            entry = self._entries[storage]
            if entry is not None:
                with self._task.place.lock:
                    if entry.beside is None:
                        entry.beside = {}
                    kept = entry.beside.setdefault((_KEY, self._of.n_cells[storage]), [])
                    if len(kept) < _MOST:
                        kept.append(words)
        self._words.clear()

    def _take(self, storage: str, n_cells: int, array: Any) -> None:
        plan = self._task.plan
        entry = None if plan is None else entry_at(self._task, array, plan.counted)
        self._entries[storage] = entry
        words = Words()
        if entry is not None:
            with self._task.place.lock:
                if entry.beside and (kept := entry.beside.get((_KEY, n_cells))):
                    words = kept.pop()
        self._words[storage] = words
        for field, is_wanted in (("writers", True), ("readers", storage in self._of.readers)):
            if is_wanted and getattr(words, field) is None:
                setattr(words, field, self._made(n_cells))

    def _made(self, n_cells: int) -> Any:
        """Return words that are 0."""
        stream: Any = self._task.lane.stream  # type: ignore[union-attr]  # the body has one
        made = self._task.place.device.alloc((max(n_cells, 1),), _WORD, stream)
        self._clear(made)
        return made

    def _clear(self, words: Any) -> None:
        device: Any = self._task.place.device
        stream: Any = self._task.lane.stream  # type: ignore[union-attr]  # as above
        nbytes = words.shape[0] * _WORD.itemsize
        device.fill(device.view(words, 0, (nbytes,), (1,), np.dtype(np.uint8)), 0, stream)


# -- runs ---------------------------------------------------------------------------------------------


class Violation(NamedTuple):
    """Two iterations that may not run beside each other."""

    array: str  # by the first name of its storage
    element: tuple[int, ...]  # its indices, without those of dimensions that the log does not tell apart
    # By the numbers that a serial loop gives them; None of one that is not known.
    iterations: tuple[int | None, int | None]
    what: int  # as in `offload.loops.watched.exchange_log`


class LoggedLoop:
    """The part of runs with a log that is the same for equal numbers of a call."""

    def __init__(
        self,
        spec: Specialisation,
        numbers: Numbers,  # of a call on a device
        plan: NestPlan,  # of its one nest, about which something is unknown
        of: Needed,  # what is to be logged of it
        *,
        is_inspector: bool = False,  # the address slice alone
        has_sections: bool = False,  # sections replace words where that is possible
    ) -> None:
        axes, self.numbers, self._plan = numbers.axes[0], numbers, plan
        self.is_new = True  # no run of it has ended: what it and its launches are made of is made meanwhile
        trips = [axis.trips for axis in axes]
        self._program_spec, self.needs = spec, of
        self.is_doubtful = False  # a run has found sections that are not in order
        self.cells = cells = cells_of(numbers.views, of.written, of.left_out)  # of its arrays
        is_unsafe = not spec.program.words.bounds  # no checks of indices from data; of garbage there are
        modes = {at: "check" if mode == "wrap" and is_unsafe else mode for at, mode in plan.variant.modes}
        own = {at: modes.get(before, "check") for at, before in of.originals.items()}
        parts = sections(of, cells, numbers.views, own) if has_sections else NO_SECTIONS
        # the nest with its log
        self.logged = LogWriter(spec.typed, modes, cells, of, axes, parts, checks=is_inspector).logged()
        if is_inspector:
            self.logged = inspector(self.logged, of)
        nest = self.logged.watched.nest
        # Its trips are run in one piece, since something comes out of it.
        self.is_whole = bool(nest.reductions or nest.last or "lastprivate" in nest.privates.values())
        # Of the nest, and of one trip of its outermost loop.
        self.n_iterations, self.n_inner = math.prod(trips), math.prod(trips[1:])
        log = self.logged
        words = {name: log.n_cells[storage] for names in (log.writers, log.readers) for storage, name in names.items()}
        free = (log.base, log.many, log.first)
        # The nest with its log as launchers know it; the numbers of the call.
        self.spec = _specialised(spec, log.watched, (*words, log.flag), free)
        # where its words and its flag lie
        self._words = {**{name: _view(n, 4) for name, n in words.items()}, log.flag: _view(FLAG_WORDS, 8)}
        # the plan of the nest with its log
        self._made = _made(plan, log.watched, {**numbers.views, **self._words}, plan.variant.unit_steps)
        zeros = dict.fromkeys(free, np.uint32(0))
        self._scalars = {**numbers.scalars[0], **_given(log.watched), **zeros}  # before the nest
        self._record = CallRecord()  # of the nest with its log: blanks, by trips and place
        # over the words of each storage whose reads are logged
        self._passes = [self._pass(spec, storage) for storage in log.readers]

    def exact(self) -> LoggedLoop:
        """Return its address slice with words for all that is logged."""
        self.is_doubtful = True
        made = logged_loop(self._program_spec, self.numbers, self._plan, is_inspector=True, is_exact=True)
        assert made is not None  # it has one, else there are no sections
        return made

    def blank(self, begin: int, end: int, where: Any) -> Any:
        """Return the blank for the trips ``begin`` … ``end`` - 1 of the outermost loop."""
        key = "blanks", begin, end, where
        facts = self._record.facts
        found = facts.get(key)
        if found is None:
            first, *rest = self.numbers.axes[0]
            axes = (Trips(first.start + begin * first.step, first.step, end - begin), *rest)
            views = {**self.numbers.views, **self._words}
            numbers = Numbers((self._scalars,), (axes,), views, self._record)
            found = facts.keep(key, where.blank(self.spec, 0, self._made, numbers))
        return found

    def passes(self, where: Any) -> list[Any]:
        """Return the blank for each pass over words."""
        key = "passes", where
        found = self._record.facts.get(key)
        if found is None:
            made = [where.blank(spec, 0, plan, numbers) for spec, numbers, plan in self._passes]
            found = self._record.facts.keep(key, made)
        return list(found)

    def _pass(self, spec: Specialisation, storage: str) -> tuple[Specialisation, Numbers, NestPlan]:
        log, n_cells = self.logged, self.logged.n_cells[storage]
        watched = final_pass(spec.typed, log, storage)
        names = (log.writers[storage], log.readers[storage], log.flag)
        views = {name: self._words[name] for name in names}
        scalars = {log.base: np.uint32(0), "w_n": np.int64(n_cells)}
        numbers = Numbers((scalars,), ((Trips(0, 1, n_cells),),), views, CallRecord())
        return _specialised(spec, watched, names, (log.base,)), numbers, _made(self._plan, watched, views, ((0, 1),))

    def violation(self, words: list[int], base: int) -> Violation:
        """Return the violation that a flag reports, in a run of this base."""
        found, cell, both = words[:OPEN]
        number, what = divmod(found, 1 << WHAT_BITS)
        ids = [(both >> ID_BITS) % (1 << ID_BITS) - base, both % (1 << ID_BITS) - base]
        storage = self.logged.storages[number] if number < len(self.logged.storages) else ""
        of = self.cells.get(storage)
        known = [one - 1 if 0 < one <= self.n_iterations else None for one in ids]
        cell %= max(self.logged.n_cells.get(storage, 1), 1)  # an index may count from the end
        return Violation(storage, () if of is None else _element(of, cell), (known[0], known[1]), what)


class LoggedRun:
    """One run with a log, on the stream of a device task.

    If there is no memory for the log, it raises `DeviceMemoryError`; only the clearing of words has been enqueued then.
    """

    def __init__(
        self, loop: LoggedLoop, values: Mapping[str, Any], addresses: Mapping[str, int], task: DeviceTask
    ) -> None:
        self.loop = loop
        self._task = task
        self._device: Device = task.place.device
        self._stream: Any = task.lane.stream  # type: ignore[union-attr]  # the body has one
        spec = loop.spec
        self._kernels: Kernels = kernels_of(self._device, spec.program)  # compiles and launches
        self._where: Any = where_on(self._device, spec.program)
        self.trips = loop.numbers.axes[0][0].trips  # of the outermost loop; chunks are ranges of it
        self.n_inner = loop.n_inner  # iterations of one such trip
        self.is_whole = loop.is_whole  # all trips are to be one chunk
        self._log = Log(loop.logged, values, loop.n_iterations, task)  # its words
        device, stream = self._device, self._stream
        self._flag = device.alloc((FLAG_WORDS,), np.dtype(np.int64), stream)  # on the device
        nbytes = FLAG_WORDS * 8
        device.fill(device.view(self._flag, 0, (nbytes,), (1,), np.dtype(np.uint8)), 0, stream)
        memory = device.host_memory(nbytes)
        # the flag, as the host has it
        self._seen = np.zeros(FLAG_WORDS, np.int64) if memory is None else np.frombuffer(memory, np.int64, FLAG_WORDS)
        self._seen[:] = 0
        own = {**self._log.arrays(), loop.logged.flag: self._flag}
        self._given, self._given_addresses = values, addresses
        self._arrays = {name: values[name] for name in loop.numbers.views} | own  # with those of the log
        # of all of these
        self._addresses = {**addresses, **{name: device.address(array) or 0 for name, array in own.items()}}
        log = loop.logged
        scalars = {log.base: self._log.base, log.many: self._log.many, log.first: 0}
        self._values: dict[str, Any] = {**values, **own, **scalars}  # with the log's arrays and scalars
        self._runs: list[Any] = []  # those that may have found something
        self._exact: LoggedRun | None = None  # the address slice with words for all, where sections were not in order

    @property
    def logged(self) -> tuple[str, ...]:
        """The storages that have a log."""
        return self.loop.logged.storages + self.loop.logged.sectioned

    @property
    def is_open(self) -> bool:
        """Whether the stream has passed `finish`, and nothing is known: `settle` has to come."""
        return self._exact is None and bool(self._seen[OPEN]) and self.found() is None

    def settle(self) -> None:
        """Enqueue the exact check: the address slice once more, with words. Raises as `LoggedRun`."""
        loop = self.loop.exact()
        self._exact = LoggedRun(loop, self._given, self._given_addresses, self._task)
        self._exact.launch(0, self.trips)
        self._exact.finish()

    def launch(self, begin: int, end: int) -> None:
        """Enqueue the trips from one to before another of the outermost loop, each once."""
        values = {**self._values, self.loop.logged.first: self._log.base + 1 + begin * self.n_inner}
        tell_launches(self._task, (self._enqueue(self.loop.blank(begin, end, self._where), values),))

    def finish(self) -> None:
        """Enqueue the passes over the words, and `ask`."""
        for blank in self.loop.passes(self._where):
            self._enqueue(blank, self._values)
        self.ask()

    def ask(self) -> None:
        """Enqueue the copy of the flag to the host."""
        copy = self._device.copy(self._seen, self._flag, self._stream)
        if copy is not None:
            self._stream.synchronize()
            copy.run()

    def found(self) -> Violation | Exception | None:
        """Return the findings when the stream has passed `ask`: an error of the run may come from wrong data."""
        if self._exact is not None:
            return self._exact.found()
        if self._seen[0]:
            return self.loop.violation(self._seen.tolist(), self._log.base)
        for run in self._runs:
            failure: Exception | None = run.failure()
            if failure is not None:
                return failure
        return None

    def results(self) -> dict[str, Any]:
        """Return the scalars that come out, once the stream has passed the run."""
        return results_of(self._runs)

    def close(self) -> None:
        """Let go of the words, once the stream has passed the run."""
        if self._exact is not None:
            self._exact.close()
        self._log.close()
        self._runs = []

    def _enqueue(self, blank: Any, values: Mapping[str, Any]) -> CudaRun | NestRun:
        if self._kernels.dialect == "cuda":
            run = CudaRun(blank, values, {})
            run.prepare(self._addresses, self._kernels, self._device, self._stream)
            run.enqueue(self._kernels, self._device, self._stream)
            if run.is_kept:
                self._runs.append(run)
            return run
        runtime: Any = self._task.construct.runtime
        n_threads = n_threads_of(self.loop.spec.program)
        names = blank.shapes
        arrays = {name: self._arrays[name] for name in names}
        own = NestRun(blank, arrays, self._addresses, values, n_threads, runtime.rng)
        own.form.compile()
        kernel = self._kernels.load(own.form)[own.form.names[0]]
        kernel.launch(self._stream, (own.n_chunks,), (1,), 0, own)
        self._runs.append(own)
        return own


def logged_loop(
    spec: Specialisation, numbers: Numbers, plan: NestPlan, *, is_inspector: bool = False, is_exact: bool = False
) -> LoggedLoop | None:
    """Return the logged loop of a call; None if it is too long, or has no address slice where that is asked for.

    One that `is_exact` has words for all that is logged; so has one whose sections have been out of order.
    """
    key = "logged", is_inspector, is_exact, numbers.lies, plan.variant, plan.verdict.unknown
    facts = numbers.record.facts
    kept: LoggedLoop | None = facts.use(key)
    if kept is not None:
        return logged_loop(spec, numbers, plan, is_inspector=is_inspector, is_exact=True) if kept.is_doubtful else kept
    if math.prod(axis.trips for axis in numbers.axes[0]) >= MOST_ITERATIONS:
        return None
    launch = numbers.launch()
    of = needed(spec.typed, plan.nest, launch, plan.verdict.unknown)
    has_slice = can_be_inspected(plan.nest, of.written, launch.scalars)
    if is_inspector and not has_slice:
        return None
    has_sections = has_slice and not is_exact
    made = LoggedLoop(spec, numbers, plan, of, is_inspector=is_inspector, has_sections=has_sections)
    facts.keep(key, made)
    return made


def _specialised(
    spec: Specialisation, watched: Watched, arrays: tuple[str, ...], free: tuple[str, ...]
) -> Specialisation:
    """Return a nest with a log as a specialisation, for the launchers."""
    made = Specialisation(spec.program, watched.typed)
    given = [name for name in (*spec.given, *arrays) if name in watched.typed.arrays]
    made.given = tuple(dict.fromkeys(given))
    made.free = (*[name for name in spec.free if name in watched.typed.scalars], *free)
    return made


def _made(
    plan: NestPlan, watched: Watched, views: Mapping[str, View], unit_steps: tuple[tuple[int, int], ...]
) -> NestPlan:
    """Return the plan of a nest with a log, after that of the nest."""
    left = copied(watched.nest)  # an address slice, and a pass, have no atomic steps of the program
    variant = replace(
        plan.variant,
        modes=tuple(sorted(watched.modes.items())),
        copies=tuple([name for name in plan.variant.copies if name in left]),
        layouts=tuple((name, layout_of(view)) for name, view in views.items()),
        unit_steps=unit_steps,
        is_ordered=False,
    )
    return plan._replace(
        typed=watched.typed,
        nest=watched.nest,
        bounds={},
        verdict=Verdict("parallel"),
        wanted=(),
        variant=variant,
        observed=frozenset(),
    )


def _given(watched: Watched) -> dict[str, Any]:
    return {name: np.int64(value) for name, value in watched.given.items()}


def _view(size: int, itemsize: int) -> View:
    return View((max(size, 1),), (itemsize,), itemsize, 0)


def _element(of: Cells, cell: int) -> tuple[int, ...]:
    """Return the indices of the element that a cell belongs to."""
    rest = cell - of.offset
    found = [0] * len(of.steps)
    for dimension in sorted(range(len(of.steps)), key=lambda k: -abs(of.steps[k])):
        step = of.steps[dimension]
        if step:
            found[dimension], rest = divmod(rest, step)
    return tuple([index for index, step in zip(found, of.steps, strict=True) if step])
