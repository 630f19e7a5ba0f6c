"""Several GPUs: a pipeline spread over them, copies between them, and dependences from one to the other."""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

import offload as omp
from benchmarks.gpu import graphs, pipeline
from benchmarks.gpu.pipeline import FORMS, LINK, Forms, make_field
from benchmarks.gpu.rect import CONTIGUOUS, OURS, copied_bytes_per_s, size, strided
from benchmarks.harness.measuring import Section, Table, alternate, best, pairwise, promise
from offload import inout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

BEST = "pipeline"

_SPEED_UPS = {2: 1.8, 4: 3.2}
_NBYTES = 512 << 20
_ROWS = (1 << 10, 4 << 10, 64 << 10)
_N_TIMES = 8
_N_HOPS = 200


def measure(programs: dict[str, ModuleType], repeat: int) -> Section:
    """Measure on two GPUs, and on four where they are.

    Parameters
    ----------
    programs : dict of modules
        ``benchmarks/`` ``tasks_cupy.py``, ``pipeline_cupy.py`` and ``copies_cupy.py``, by name.
    repeat : int
        Turns.
    """
    n_devices = omp.get_num_devices()
    if n_devices < 2:
        return Section(skipped="there is one GPU, and this takes two")
    section = _pipelines(programs["pipeline_cupy"], [n for n in (1, 2, 4) if n <= n_devices], repeat)
    section.tables["copies"] = _copies(programs["copies_cupy"], repeat)
    section.tables["hops"] = _hops(programs["tasks_cupy"], repeat)
    return section


def _pipelines(peer: ModuleType, counts: Sequence[int], repeat: int) -> Section:
    """Spread the pencils over GPUs in turn; the link is measured on as many at once."""
    layout_name = "pencils, rows of 4 KB"
    field = make_field(peer.empty_pinned, pipeline.SHAPE)
    pieces = field.pieces(pipeline.LAYOUTS[layout_name])
    forms = FORMS[:2]
    ours = {count: Forms(peer, pieces[0][0].shape, range(count)) for count in counts}
    links = {count: peer.Link(field.source, field.result, range(count)) for count in counts}
    calls: dict[str, Callable[[], float]] = {}
    for count in counts:
        for form in forms:
            calls[f"{form}/{_gpus(count)}"] = run = partial(ours[count].run, form, pieces)
            field.check(run, f"{form} on {_gpus(count)}")
        calls[f"{LINK}/{_gpus(count)}"] = partial(_better, links[count])
    runs = alternate(calls, repeat)
    for one in ours.values():
        one.close()
    table = Table(f"2 GiB each way through GPUs in turn, {layout_name}, ms")
    for name, samples in runs.items():
        form, _, gpus = name.partition("/")
        table.rows.setdefault(form, {})[gpus] = [one * 1e3 for one in samples]
    speed_up = Table("The same: one GPU's time over that of several, the best form on each", speed_ups(table, forms))
    targets = []
    for count in counts[1:]:
        gpus, plain = _gpus(count), _SPEED_UPS[count]
        of_link = median(speed_up.rows[LINK][gpus])
        name = f"speed-up on {gpus}: {plain} is wanted, the links give {of_link:.2f}"
        figures = {best(_on(table, forms, gpus), forms): speed_up.rows[BEST][gpus]}
        targets.append(promise(name, figures, within_links(plain, of_link), at_least=True))
    return Section({"pipeline": table, "speed_up": speed_up}, targets)


def speed_ups(table: Table, forms: Sequence[str]) -> dict[str, dict[str, list[float]]]:
    """Return what several GPUs gain: of the best form on one over the best on as many, and of the link."""
    found: dict[str, dict[str, list[float]]] = {BEST: {}, LINK: {}}
    alone = _on(table, forms, _gpus(1))
    for gpus, link in table.rows[LINK].items():
        several = _on(table, forms, gpus)
        found[BEST][gpus] = pairwise(alone[best(alone, forms)], several[best(several, forms)])
        found[LINK][gpus] = pairwise(table.rows[LINK][_gpus(1)], link)
    return found


def within_links(plain: float, of_link: float) -> float:
    """Return the speed-up to ask for: the one that is wanted, as far as the links give it, and no slow-down."""
    return max(1.0, min(plain, of_link))


def _on(table: Table, forms: Sequence[str], gpus: str) -> dict[str, list[float]]:
    return {form: table.rows[form][gpus] for form in forms}


def _better(link: Callable[[], float]) -> float:
    return min(link(), link())


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count > 1)}"


def _copies(peer: ModuleType, repeat: int) -> Table:
    """Copy between the first two GPUs, contiguous and strided."""
    peer.enable_access((0, 1))
    table = Table("From GPU to GPU, GB/s, 512 MB")
    far, close = omp.target_alloc(3 * _NBYTES, "u1", device=0), omp.target_alloc(_NBYTES, "u1", device=1)
    stream = peer.stream_on(far)
    boxes = {"contiguous": (close, far[:_NBYTES])}
    for row_nbytes in _ROWS:
        shape = (_NBYTES // row_nbytes, row_nbytes)
        boxes[f"rows of {size(row_nbytes)}"] = close.reshape(shape), strided(far, shape)
    for name, (dst, src) in boxes.items():
        by_hand = peer.contiguous if name == CONTIGUOUS else peer.rows
        runs = alternate(
            {
                OURS: partial(copied_bytes_per_s, dst, src, _N_TIMES),
                "by hand": partial(peer.timed, by_hand, dst, src, stream, _N_TIMES),
            },
            repeat,
        )
        table.rows[name] = {who: [rate / 1e9 for rate in rates] for who, rates in runs.items()}
    omp.target_free(far)
    omp.target_free(close)
    return table


def _hops(peer: ModuleType, repeat: int) -> Table:
    """Run kernels on two GPUs in turn, each after the one before."""
    arrays = [omp.target_memset(omp.target_alloc(graphs.N_ELEMENTS, "f4", device=i), 0) for i in (0, 1)]
    peer.load(arrays)
    bump = graphs.make_bodies(peer).bump
    kinds = [bump.options(device=i, depend=[inout(("turn",))]) for i in (0, 1)]

    def ours_s() -> float:
        began_s = time.perf_counter()
        for i in range(_N_HOPS):
            kinds[i % 2](arrays[i % 2])
        omp.taskwait()
        return time.perf_counter() - began_s

    runs: dict[str, list[float]] = alternate({OURS: ours_s, "by hand": peer.AcrossDevices(arrays, _N_HOPS)}, repeat)
    for x in arrays:
        omp.target_free(x)
    samples = {who: [float(np.float64(one) * 1e6 / _N_HOPS) for one in times] for who, times in runs.items()}
    return Table("A kernel after one on another GPU, µs", {f"chain of {_N_HOPS}": samples})
