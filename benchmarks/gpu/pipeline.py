"""A transform along y of 2 GiB, piece by piece through the device, beside CuPy by hand and what the link gives.

The field does not stay on the device: each piece comes from one array of the host and goes to another one. Pieces are
single planes of 32 MB, or boxes of 32 MB whose rows are a part of the field's, in the order of their planes.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import offload as omp
from benchmarks.harness.measuring import Section, Table, alternate, best, expect, pairwise, promise
from offload import alloc, from_, in_, inout, out, release, to

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    Array = np.ndarray[Any, Any]

SHAPE = (64, 2048, 2048)
_N_SLOTS = 3
_N_SLOTS_PAGEABLE = 8
"""To stage a piece takes several times as long as the link does, and threads of several pieces share that work."""

_OVER_BY_HAND = 1.03
_OF_BOUND = {"planes": 0.94, "pencils, rows of 4 KB": 0.88, "pencils, rows of 2 KB": 0.88}
_PAGEABLE_OF_BOUND = 0.6

BY_HAND, LINK, MEMORY = "by hand", "the link, both ways", "the host's memory"
FORMS = ("targets that map", "copies and targets", "enter, target, exit")


class Layout(NamedTuple):
    """How the field is cut: planes and columns of a piece."""

    planes: int
    columns: int

    def boxes(self, shape: tuple[int, int, int]) -> list[tuple[slice, slice, slice]]:
        """Return the pieces in the order of their planes, then of their columns."""
        lows = product(range(0, shape[0], self.planes), range(0, shape[2], self.columns))
        return [(slice(z, z + self.planes), slice(None), slice(x, x + self.columns)) for z, x in lows]


LAYOUTS = {
    "planes": Layout(1, 2048),
    "pencils, rows of 4 KB": Layout(4, 512),
    "pencils, rows of 2 KB": Layout(8, 256),
}

Pieces = list[tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Field:
    """The source, the result, and the columns of the source's transform with which a result is compared."""

    source: Array
    result: Array
    columns: slice
    expected: Array

    def pieces(self, layout: Layout) -> Pieces:
        """Return pairs of a piece of the source and one of the result."""
        return [(self.source[box], self.result[box]) for box in layout.boxes(self.source.shape)]

    def check(self, run: Callable[[], object], what: str) -> None:
        """Run once and raise `InternalError` if a column of the result is wrong."""
        columns = self.result[:, :, self.columns]
        columns[...] = np.nan
        run()
        error = abs(columns - self.expected).max() / abs(self.expected).max()
        expect(error < 1e-5, what)


def make_field(empty: Callable[..., Array], shape: tuple[int, int, int]) -> Field:
    """Return a field of noise in memory that ``empty(shape, dtype)`` gives."""
    rng = np.random.default_rng(1)
    source, result = empty(shape, np.complex64), empty(shape, np.complex64)
    plane = (rng.standard_normal(shape[1:], "f4") + 1j * rng.standard_normal(shape[1:], "f4")).astype(np.complex64)
    for z in range(shape[0]):
        np.multiply(plane, np.float32(1 + z / shape[0]), out=source[z])
    result[...] = 0
    columns = slice(3, None, 128)
    return Field(source, result, columns, np.fft.fft(source[:, :, columns].astype(complex), axis=1))


class Forms:
    """The pipeline in the forms that a program may have, with plans made beforehand."""

    def __init__(
        self, peer: ModuleType, shape: tuple[int, int, int], devices: Sequence[int] = (0,), n_slots: int = _N_SLOTS
    ) -> None:
        """Make plans and buffers for pieces of ``shape``, ``n_slots`` of each a device."""
        self.devices = devices
        self.slots = [(device, slot) for slot in range(n_slots) for device in devices]
        self._buffers: dict[tuple[int, int], Any] = {}
        self._transforms: dict[tuple[int, int], Any] = {}
        for slot in self.slots:
            buffer = omp.target_alloc(shape, np.complex64, device=slot[0])
            self._transforms[slot] = peer.AlongY(buffer)
            self._buffers[slot] = buffer
        transforms = self._transforms

        @omp.target
        def transform(source: Any, result: Any, slot: tuple[int, int]) -> None:
            transforms[slot](source, result)

        @omp.target
        def in_place(buffer: Any, slot: tuple[int, int]) -> None:
            transforms[slot](buffer, buffer)

        self._map = transform.options(map=[to("source"), from_("result")])
        self._mapping = [
            self._map.options(nowait=True, device=slot[0], depend=[inout(("slot", *slot))]) for slot in self.slots
        ]
        self._present = [
            transform.options(nowait=True, device=slot[0], depend=[inout(("slot", *slot))]) for slot in self.slots
        ]
        self._in_place = [
            in_place.options(nowait=True, device=slot[0], depend=[inout(self._buffers[slot])]) for slot in self.slots
        ]

    def close(self) -> None:
        """Free the buffers."""
        for buffer in self._buffers.values():
            omp.target_free(buffer)

    def synchronous(self, pieces: Pieces) -> float:
        """Run one target after the other."""
        return _timed(self._synchronous, pieces)

    def run(self, form: str, pieces: Pieces) -> float:
        """Run a form of `FORMS` and return the seconds it took."""
        return _timed({FORMS[0]: self._maps, FORMS[1]: self._stages, FORMS[2]: self._enters}[form], pieces)

    def _synchronous(self, pieces: Pieces) -> None:
        for source, result in pieces:
            self._map(source, result, self.slots[0])

    def _maps(self, pieces: Pieces) -> None:
        for number, (source, result) in enumerate(pieces):
            which = number % len(self.slots)
            self._mapping[which](source, result, self.slots[which])
        omp.taskwait()

    def _stages(self, pieces: Pieces) -> None:
        for number, (source, result) in enumerate(pieces):
            which = number % len(self.slots)
            buffer = self._buffers[self.slots[which]]
            omp.target_memcpy_rect_async(buffer, source, depend=[out(buffer)])
            self._in_place[which](buffer, self.slots[which])
            omp.target_memcpy_rect_async(result, buffer, depend=[in_(buffer)])
        omp.taskwait()

    def _enters(self, pieces: Pieces) -> None:
        for number, (source, result) in enumerate(pieces):
            which = number % len(self.slots)
            device, _ = slot = self.slots[which]
            depend = [inout(("slot", *slot))]
            omp.target_enter_data(map=[to(source), alloc(result)], nowait=True, device=device, depend=depend)
            self._present[which](source, result, slot)
            omp.target_exit_data(map=[from_(result), release(source)], nowait=True, device=device, depend=depend)
        omp.taskwait()


def _timed(run: Callable[[Pieces], None], pieces: Pieces) -> float:
    began_s = time.perf_counter()
    run(pieces)
    return time.perf_counter() - began_s


def measure(peer: ModuleType, empty_pinned: Callable[..., Array], repeat: int) -> Section:
    """Measure the pipeline from pinned and from pageable memory.

    Parameters
    ----------
    peer : module
        ``benchmarks/gpu/pipeline_cupy.py``.
    empty_pinned : callable
        Returns an array in pinned memory for a shape and a dtype.
    repeat : int
        Turns.
    """
    shape = " x ".join(map(str, SHAPE))
    table = Table(
        f"Transform along y of {shape} complex64, ms; host memory is pinned unless it says pageable",
        note=f"Pieces of 32 MB, {_N_SLOTS} at a time, {_N_SLOTS_PAGEABLE} where memory is pageable. The link: as many "
        "bytes copied both ways at once, 256 MB a copy; the better of two in each turn. The host's memory: threads, "
        "one a core, copy as many bytes between pageable memory and pinned slots, half of them each way, while the "
        "link copies those slots; nothing waits for anything else, and no thread needs the GIL; the better of two.",
    )
    share = Table("The same as a share of what the link gives, turn by turn")
    field = make_field(empty_pinned, SHAPE)
    link = peer.Link(field.source, field.result, (0,))
    seconds: dict[str, dict[str, list[float]]] = {}
    for name, layout in LAYOUTS.items():
        seconds[name] = _measure_layout(peer, field, layout, link, repeat, name)
    pageable = make_field(np.empty, SHAPE)
    memory = peer.Memory(pageable.source, pageable.result, len(os.sched_getaffinity(0)))
    seconds["planes, pageable"] = _measure_layout(
        peer,
        pageable,
        LAYOUTS["planes"],
        link,
        repeat,
        "planes, pageable",
        FORMS[:2],
        [(MEMORY, memory)],
        _N_SLOTS_PAGEABLE,
    )
    for name, runs in seconds.items():
        for form, samples in runs.items():
            table.rows.setdefault(form, {})[name] = [one * 1e3 for one in samples]
            if form != LINK:
                share.rows.setdefault(form, {})[name] = pairwise(runs[LINK], samples)
    return Section({"pipeline": table, "share": share}, _targets(seconds))


def _measure_layout(
    peer: ModuleType,
    field: Field,
    layout: Layout,
    link: Any,
    repeat: int,
    what: str,
    forms: Sequence[str] = FORMS,
    bounds: Sequence[tuple[str, Callable[[], float]]] = (),
    n_slots: int = _N_SLOTS,
) -> dict[str, list[float]]:
    """Check and time every form on the pieces of one layout, and what bounds them beside the link; return seconds."""
    pieces = field.pieces(layout)
    shape = pieces[0][0].shape
    ours, by_hand = Forms(peer, shape, n_slots=n_slots), peer.Pipeline(shape, n_slots)
    calls: dict[str, Callable[[], float]] = {form: partial(ours.run, form, pieces) for form in forms}
    calls["synchronous targets"] = partial(ours.synchronous, pieces)
    calls[BY_HAND] = partial(by_hand, pieces)
    for name, call in calls.items():
        field.check(call, f"{what}, {name}")
    for name, bound in ((LINK, link), *bounds):
        calls[name] = partial(_better, bound)
    found = alternate(calls, repeat)
    ours.close()
    return found


def _better(bound: Callable[[], float]) -> float:
    return min(bound(), bound())


def _targets(seconds: dict[str, dict[str, list[float]]]) -> list[Any]:
    """Judge the best of our forms in each layout."""
    ours: dict[str, tuple[str, dict[str, list[float]]]] = {}
    for name, runs in seconds.items():
        form = best(runs, [form for form in FORMS if form in runs])
        ours[name] = form, runs
    form, runs = ours["planes"]
    over = {f"planes, {form}": pairwise(runs[form], runs[BY_HAND])}
    found = [promise("pipeline / by hand", over, _OVER_BY_HAND)]
    limits = {**_OF_BOUND, "planes, pageable": _PAGEABLE_OF_BOUND}
    for name, (form, runs) in ours.items():
        share = {form: pairwise(runs[LINK], runs[form])}
        found.append(promise(f"pipeline, {name}: share of the link", share, limits[name], at_least=True))
    return found
