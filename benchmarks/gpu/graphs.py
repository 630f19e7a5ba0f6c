"""The graphs of device tasks that are timed, in the forms in which users write them.

A body launches one kernel, which does next to nothing. Its arrays are on the device (*device arrays*), or on the host
and present in a ``target_data`` region (*mapped arrays*). The clauses are made before the loop, one task function for
each kind of task, or in it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from benchmarks.harness.measuring import expect
from offload import in_, inout, out, tofrom

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

N_TASKS = 1000
N_CELLS = {"chain": 1, "ping-pong": 2, "64 chains": 64}
N_ELEMENTS = 32

Times = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Bodies:
    """Target functions that launch the kernels of the hand-written form."""

    bump: Any
    carry: Any


def make_bodies(peer: ModuleType) -> Bodies:
    """Return the target functions for the kernels of ``benchmarks/gpu/tasks_cupy.py``."""
    grid, block, bump_kernel, carry_kernel = peer.GRID, peer.BLOCK, peer.bump, peer.carry

    def bump(x: Any) -> None:
        bump_kernel(grid, block, (x,))

    def carry(x: Any, y: Any) -> None:
        carry_kernel(grid, block, (x, y))

    deferred = omp.target(nowait=True)
    return Bodies(deferred(bump), deferred(carry))


def device_arrays(shape: str) -> list[Any]:
    """Return the arrays of a graph on the default device, zero."""
    return [omp.target_memset(omp.target_alloc(N_ELEMENTS, "f4"), 0) for _ in range(N_CELLS[shape])]


def host_arrays(shape: str) -> list[Any]:
    """Return the arrays of a graph on the host, zero."""
    return [np.zeros(N_ELEMENTS, "f4") for _ in range(N_CELLS[shape])]


def prepared(shape: str, bodies: Bodies, arrays: Sequence[Any]) -> Callable[[], None]:
    """Return what generates the tasks of a graph, with the clauses made here."""
    kinds: list[tuple[Any, tuple[Any, ...]]]
    if shape == "ping-pong":
        one, other = arrays
        kinds = [
            (bodies.carry.options(depend=[in_(one), out(other)]), (one, other)),
            (bodies.carry.options(depend=[in_(other), out(one)]), (other, one)),
        ]
    else:
        kinds = [(bodies.bump.options(depend=[inout(x)]), (x,)) for x in arrays]
    steps = [kinds[i % len(kinds)] for i in range(N_TASKS)]

    def generate() -> None:
        for function, arguments in steps:
            function(*arguments)

    return generate


def in_the_loop(shape: str, bodies: Bodies, arrays: Sequence[Any]) -> Callable[[], None]:
    """Return what generates the same tasks and makes the clauses of each."""
    bump, carry = bodies.bump, bodies.carry
    pairs = [(arrays[i % len(arrays)], arrays[(i + 1) % len(arrays)]) for i in range(N_TASKS)]

    def generate() -> None:
        if shape == "ping-pong":
            for one, other in pairs:
                carry.options(depend=[in_(one), out(other)])(one, other)
        else:
            for x, _ in pairs:
                bump.options(depend=[inout(x)])(x)

    return generate


FORMS = {"clauses made before": prepared, "clauses made in the loop": in_the_loop}


def timed(generate: Callable[[], None]) -> Times:
    """Generate tasks and wait for them; return the seconds until all are done, and until all are enqueued."""
    began_s = time.perf_counter()
    generate()
    enqueued_s = time.perf_counter()
    omp.taskwait()
    return time.perf_counter() - began_s, enqueued_s - began_s


def timed_on(form: Callable[..., Callable[[], None]], shape: str, bodies: Bodies, arrays: Sequence[Any]) -> Times:
    """Make and time a graph; host arrays are present meanwhile."""
    if not isinstance(arrays[0], np.ndarray):
        return timed(form(shape, bodies, arrays))
    with omp.target_data(map=[tofrom(*arrays)]):
        return timed(form(shape, bodies, arrays))


def bumps(shape: str, arrays: Sequence[Any]) -> float:
    """Return how many kernels the arrays have seen: each adds 1 to one of them, or to a copy of the other one."""
    firsts = [float(x[0]) for x in arrays]
    return max(firsts) if shape == "ping-pong" else sum(firsts)


def check(call: Callable[[], Any], shape: str, arrays: Sequence[Any], what: str) -> None:
    """Run once and raise `InternalError` if the arrays have not seen each kernel."""
    before = bumps(shape, arrays)
    call()
    expect(bumps(shape, arrays) == before + N_TASKS, what)
