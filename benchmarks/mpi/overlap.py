"""What tasks hide of the exchanges of the transform over ranks: bulk-synchronous beside asynchronous, in turn.

Under the models of `benchmarks.mpi.modelled` a library call holds the device for `CALL_S`, and the link is as
fast as makes all exchanges take as long as the passes that they can be hidden behind: one for planes, two for pencils.
So there is most to be gained. No schedule is shorter than the bound, which says what part of it is. Then both forms as
they are, without models, where the ranks' own cores copy and transform and there is nothing to be hidden.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import offload as omp
from benchmarks.harness.measuring import Section, Table, alternate, pairwise, promise
from benchmarks.mpi.modelled import Engine, Link, over_link
from benchmarks.mpi.transform import DTYPE, SCHEDULES, Transform, random_field

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.mpi.job import Job

CALL_S = 8e-3
PIECES = 8
BULK, ASYNCHRONOUS = "bulk-synchronous", "tasks"
SHARE_OF_BOUND = {2: 0.8, 4: 0.85}
"""Of the bound's ratio, at so many ranks and more."""

PLAIN_MOST = 1.05
_EDGE, _PLAIN_EDGE = 64, 128
_QUICK_CALL_S, _QUICK_EDGE = 1e-3, 16

Samples = list[float]


def measure(job: Job) -> Section:
    """Measure both forms and schedules."""
    if job.comm.size == 1:
        return Section(skipped="one rank exchanges nothing; start it with mpiexec -n 2 or more")
    call_s, edge, plain_edge = (
        (_QUICK_CALL_S, _QUICK_EDGE, _QUICK_EDGE) if job.is_quick else (CALL_S, _EDGE, _PLAIN_EDGE)
    )
    with omp.Runtime("sim:1"):
        modelled = {schedule: _modelled(job, schedule, edge, call_s) for schedule in SCHEDULES}
        plain = {schedule: _plain(job, schedule, plain_edge) for schedule in SCHEDULES}
    section = Section()
    _tell_modelled(section, job, modelled, call_s)
    _tell_plain(section, plain, plain_edge)
    return section


def bounds_s(pieces: int, before_s: float, exchange_s: float, after_s: float, apart_s: float) -> tuple[float, float]:
    """Return below what the bulk-synchronous and the asynchronous form cannot be.

    Parameters
    ----------
    pieces : int
    before_s, exchange_s, after_s : float
        Of a piece: on the device before its exchange, on the link, and on the device after, in the same pass.
    apart_s : float
        All passes without an exchange.
    """
    bulk_s = pieces * (before_s + exchange_s + after_s) + apart_s
    asynchronous_s = max(
        pieces * (before_s + after_s),  # the device is always busy
        pieces * before_s + exchange_s + after_s,
        before_s + pieces * exchange_s + after_s,  # the link is
    )
    return bulk_s, asynchronous_s + apart_s


def _modelled(job: Job, schedule: str, edge: int, call_s: float) -> dict[str, Samples]:
    """Measure under the models; return seconds by form, and the bounds of both."""
    engine, hidden_behind = Engine(call_s), 2 if schedule == "pencils" else 1
    exchange_s = call_s * hidden_behind
    nbytes = _exchanged_nbytes(edge, job.comm.size) / PIECES
    with Link(nbytes / exchange_s) as link:
        comm, library = over_link(job.comm, link), partial(_held, engine)
        with Transform(job, (edge,) * 3, schedule, PIECES, comm, library) as transform:
            transform.check()
            runs = _in_turn(transform, job.repeat)
            apart = [transform.plan.boxes(at) for at, step in enumerate(transform.plan.steps) if not step.way]
    bounds = bounds_s(
        PIECES, call_s, exchange_s, call_s if schedule == "pencils" else 0.0, call_s * sum(map(len, apart))
    )
    return runs | {f"{name}, bound": [bound] for name, bound in zip((BULK, ASYNCHRONOUS), bounds, strict=True)}


def _held(engine: Engine, buffer: Any, axes: tuple[int, ...], *, inverse: bool = False) -> Callable[[Any, Any], None]:
    """Return the transform of a device buffer that holds the engine."""
    from benchmarks.harness.programs import load_example

    transform = load_example("fft3d").SimulatedFFT(buffer, axes, inverse=inverse)
    return lambda buffer, stream: stream.launch(engine.run, transform.run, buffer.unwrap())


def _exchanged_nbytes(edge: int, n_ranks: int) -> float:
    """Return what a rank sends to others of a cubic field."""
    return edge**3 * DTYPE.itemsize / n_ranks * (n_ranks - 1) / n_ranks


def _plain(job: Job, schedule: str, edge: int) -> dict[str, Samples]:
    """Measure without models; return seconds by form."""
    with Transform(job, (edge,) * 3, schedule, PIECES) as transform:
        transform.check()
        return _in_turn(transform, job.repeat, _peer(job, edge) if schedule == SCHEDULES[0] else {})


def _in_turn(
    transform: Transform, repeat: int, others: dict[str, Callable[[], float]] | None = None
) -> dict[str, Samples]:
    calls = {BULK: partial(transform.slowest_s, bulk=True), ASYNCHRONOUS: partial(transform.slowest_s, bulk=False)}
    return alternate(calls | (others or {}), repeat)


def _peer(job: Job, edge: int) -> dict[str, Callable[[], float]]:
    """Return what measures mpi4py-fft on the same field: in memory, on the host; nothing where it is not installed."""
    if find_spec("mpi4py_fft") is None:
        return {}
    from mpi4py_fft import PFFT, newDistArray  # type: ignore[import-not-found]  # optional

    plan = PFFT(job.comm, (edge,) * 3, dtype=DTYPE.char, slab=True)
    field, result = newDistArray(plan, False), newDistArray(plan, True)
    part = random_field((edge,) * 3)[field.local_slice()]

    def run_s() -> float:
        field[...] = part
        return job.slowest_s(lambda: plan.forward(field, result, normalize=False))

    return {"mpi4py-fft, in memory": run_s}


def _tell_modelled(section: Section, job: Job, runs: dict[str, dict[str, Samples]], call_s: float) -> None:
    times = {
        f"{form}{which}": {schedule: _ms(found[f"{form}{which}"]) for schedule, found in runs.items()}
        for form in (BULK, ASYNCHRONOUS)
        for which in ("", ", bound")
    }
    ratios = {schedule: pairwise(found[BULK], found[ASYNCHRONOUS]) for schedule, found in runs.items()}
    bounds = {
        schedule: found[f"{BULK}, bound"][0] / found[f"{ASYNCHRONOUS}, bound"][0] for schedule, found in runs.items()
    }
    shares = {schedule: [ratio / bounds[schedule] for ratio in found] for schedule, found in ratios.items()}
    section.tables["modelled"] = Table(
        f"The transform over ranks under a modelled device and network, {PIECES} pieces, ms",
        times,
        f"A library call holds the device for {call_s * 1e3:g} ms, an exchange the link for as long in planes and for "
        "twice as long in pencils.",
    )
    section.tables["modelled_ratio"] = Table(
        f"{BULK} / {ASYNCHRONOUS} of the same, turn by turn",
        {
            "ratio": ratios,
            "bound": {schedule: [bound] for schedule, bound in bounds.items()},
            "share of the bound": shares,
        },
    )
    limit = max((limit for ranks, limit in SHARE_OF_BOUND.items() if ranks <= job.comm.size), default=0.0)
    section.targets.append(promise("overlap, share of the bound's ratio", shares, limit, at_least=True))


def _tell_plain(section: Section, runs: dict[str, dict[str, Samples]], edge: int) -> None:
    forms = dict.fromkeys(form for found in runs.values() for form in found)
    peer = "" if find_spec("mpi4py_fft") else "mpi4py-fft, the peer, cannot be imported here and is left out."
    section.tables["plain"] = Table(
        f"The same without models, {edge}³ complex128, ms",
        {form: {schedule: _ms(found[form]) for schedule, found in runs.items() if form in found} for form in forms},
        peer,
    )
    ratios = {schedule: pairwise(found[ASYNCHRONOUS], found[BULK]) for schedule, found in runs.items()}
    section.tables["plain_ratio"] = Table(f"{ASYNCHRONOUS} / {BULK} of the same, turn by turn", {"ratio": ratios})
    section.targets.append(promise(f"overlap, {ASYNCHRONOUS} / {BULK} without models", ratios, PLAIN_MOST))


def _ms(samples: Samples) -> Samples:
    return [one * 1e3 for one in samples]
