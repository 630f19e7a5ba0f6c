"""The halo exchange of ``examples/halo_mpi.py`` under a modelled network, beside the same without tasks.

The link is as fast as makes an exchange take what the interior takes, where there is most to hide: then the one is
hidden behind the other, or the step takes twice as long. The bulk-synchronous form computes all rows, exchanges, waits.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

import offload as omp
from benchmarks.harness.measuring import Section, Table, pairwise, promise
from benchmarks.harness.programs import load_example
from benchmarks.mpi.modelled import Link
from offload import mpi

if TYPE_CHECKING:
    from types import ModuleType

    from benchmarks.mpi.job import Job
    from offload.tasks.graph import Graph

SPEED_UP = 1.3
BULK, ASYNCHRONOUS = "compute, exchange, wait", "tasks"
_ROWS, _COLUMNS, _STEPS = 1_500, 4_096, 6
_QUICK = 24, 32, 2
_UNHELD = 1e15
"""Bytes a second of a link that takes no time."""


def measure(job: Job) -> Section:
    """Measure Jacobi's iteration on the ranks of a job; ``rows`` are a rank's."""
    rows, columns, steps = _QUICK if job.is_quick else (_ROWS, _COLUMNS, _STEPS)
    comm, program = job.comm, load_example("halo_mpi")
    nbytes = 2 * (columns + 2) * np.dtype(float).itemsize  # what an inner rank sends; the others' link is as busy
    with Link(_UNHELD) as link, omp.Runtime("sim:1"):
        program.mpi = SimpleNamespace(start=partial(_start, link, nbytes))  # type: ignore[attr-defined]
        forms = {
            BULK: partial(bulk, program, link, nbytes),
            ASYNCHRONOUS: program.iterate,
        }
        plates = _plates(job, rows, columns)
        _check(job, program, forms, plates, steps)
        computing_s = median(job.slowest_s(partial(_compute, program, *plates, steps)) for _ in range(5)) / steps
        graph = _graph(program, plates, comm)
        unheld = job.in_turn_s({name: partial(form, *plates, comm, steps) for name, form in forms.items()})
        link.bytes_per_s = nbytes / computing_s
        held = job.in_turn_s({name: partial(form, *plates, comm, steps) for name, form in forms.items()})
    return _section(steps, computing_s, link, graph, held, unheld)


def bulk(program: ModuleType, link: Link, nbytes: int, a: Any, b: Any, comm: MPI.Comm, n_steps: int) -> Any:
    """Do what the example's ``iterate`` does, one step after the other; return the array that has the result."""
    arrays = [(a, program.halo_requests(a, comm)), (b, program.halo_requests(b, comm))]
    relax = program.relax.__wrapped__
    for k in range(n_steps):
        (u, _), (v, requests) = arrays[k % 2], arrays[1 - k % 2]
        relax(u, v[1:-1])
        with link.busy(nbytes):
            MPI.Prequest.Startall(requests)
            MPI.Request.Waitall(requests)
    for _, requests in arrays:
        for request in requests:
            request.Free()
    return arrays[n_steps % 2][0]


def unordered(graph: Graph, name: str) -> bool:
    """Tell whether each node of a name has a later one beside it that neither follows it nor goes before it.

    In the example that is the interior of the step whose rows are exchanged: the next task of the graph.
    """
    before: list[set[int]] = []
    for node in graph.nodes:
        direct = {one.index for one in graph.predecessors(node)}
        before.append(direct.union(*(before[index] for index in direct)))
    marked = [node.index for node in graph.nodes if node.name == name]
    return bool(marked) and all(index not in before[index + 1] for index in marked)


def _start(link: Link, nbytes: int, requests: list[MPI.Prequest], **clauses: Any) -> Any:
    """Stand for ``mpi.start``, over the link."""

    def begin() -> list[MPI.Prequest]:
        MPI.Prequest.Startall(requests)
        return requests

    return mpi.call(link.start, begin, nbytes, **clauses)


def _plates(job: Job, rows: int, columns: int) -> tuple[Any, Any]:
    """Return this rank's part of a plate that is hot at its upper edge, and what is written first."""
    a = np.zeros((rows + 2, columns + 2))
    if job.comm.rank == 0:
        a[0] = 1.0
    return a, a.copy()


def _check(job: Job, program: ModuleType, forms: Any, plates: tuple[Any, Any], steps: int) -> None:
    """Compare what each form gives with the iteration on one rank, bit by bit."""
    comm, (rows, columns) = job.comm, plates[0].shape
    inner = rows - 2
    u = np.zeros((inner * comm.size + 2, columns))
    u[0] = 1.0
    v = u.copy()
    for _ in range(steps):
        program.relax.__wrapped__(u, v[1:-1])
        u, v = v, u
    expected = u[1 + comm.rank * inner : 1 + (comm.rank + 1) * inner]
    for name, form in forms.items():
        mine = form(*(plate.copy() for plate in plates), comm, steps)
        job.expect((mine[1:-1] == expected).all(), f"halo, {name},")


def _compute(program: ModuleType, a: Any, b: Any, steps: int) -> None:
    """Do the work of so many steps alone."""
    for k in range(steps):
        u, v = (a, b) if k % 2 == 0 else (b, a)
        program.relax.__wrapped__(u, v[1:-1])


def _graph(program: ModuleType, plates: tuple[Any, Any], comm: MPI.Comm) -> Graph:
    """Return the tasks of two steps, which do not run."""
    with omp.record(execute=False) as graph:
        program.iterate(*plates, comm, 2)
    return graph


def _section(steps: int, computing_s: float, link: Link, graph: Graph, held: Any, unheld: Any) -> Section:
    ratio = pairwise(held[BULK], held[ASYNCHRONOUS])
    forms = Table(
        f"{steps} steps of Jacobi's iteration, ms a step",
        {
            name: {
                f"link of {link.bytes_per_s / 1e6:.3g} MB/s": [one * 1e3 / steps for one in held[name]],
                "no model": [one * 1e3 / steps for one in unheld[name]],
            }
            for name in held
        },
        f"Computing alone takes {computing_s * 1e3:.3g} ms a step, and the link is as fast as to take as long. In the "
        f"graph the exchange and the interior of a step are {'un' if unordered(graph, 'halo') else ''}ordered.",
    )
    ratios = Table("The same, turn by turn", {f"{BULK} / {ASYNCHRONOUS}": {"ratio": ratio}})
    target = promise("halo, bulk / tasks under the modelled network", {"halo": ratio}, SPEED_UP, at_least=True)
    return Section({"halo": forms, "halo_ratio": ratios}, [target])
