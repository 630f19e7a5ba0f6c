"""Programs whose loops nobody has proved parallel: what ``benchmarks/run.py loops --section speculation`` measures.

Each is written once, as a function that calls its loops by name, so that ours, those of the serial C and the plain ones
are the same program. The loops are Python; a caller decides what they become.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Array = np.ndarray[Any, Any]
    Arrays = Mapping[str, Array]


Loops: TypeAlias = Any
"""The loops of a program, as attributes of something."""


# -- loops -----------------------------------------------------------------------------------------------


def multiply(order: Any, pointers: Any, columns: Any, values: Any, x: Any, y: Any) -> None:
    """Multiply a sparse matrix, whose rows are sorted by their length, by a vector."""
    for i in range(order.size):
        s = 0.0
        for k in range(pointers[i], pointers[i + 1]):
            s += values[k] * x[columns[k]]
        y[order[i]] = s


def add(a: Any, x: Any, y: Any) -> None:
    """Add a multiple of a vector to another one."""
    for i in range(y.size):
        y[i] += a * x[i]


def renew(a: Any, x: Any, y: Any) -> None:
    """Add a vector to a multiple of another one."""
    for i in range(y.size):
        y[i] = x[i] + a * y[i]


def dot(x: Any, y: Any) -> Any:
    """Return the product of two vectors."""
    s = 0.0
    for i in range(x.size):
        s += x[i] * y[i]
    return s


def flux(edges: Any, area: Any, u: Any, residual: Any, begin: Any, end: Any) -> None:
    """Add what flows through the edges of one colour to the cells at their sides."""
    for k in range(begin, end):
        left = edges[k, 0]
        right = edges[k, 1]
        f = 0.5 * area[k] * (u[left] * u[left] + u[right] * u[right] - abs(u[left] + u[right]) * (u[right] - u[left]))
        residual[left] -= f
        residual[right] += f


def push(slots: Any, position: Any, velocity: Any, dt: Any) -> None:
    """Move particles, each in its own slot."""
    for i in range(slots.size):
        k = slots[i]
        for c in range(3):
            velocity[k, c] = 0.999 * velocity[k, c]
            position[k, c] += dt * velocity[k, c]


def work(source: Any, goal: Any, x: Any, y: Any) -> None:
    """Gather, 200 operations, scatter."""
    for i in range(goal.size):
        t = x[source[i]]
        for _ in range(100):
            t = t * 0.999 + 0.001
        y[goal[i]] = t


def eliminate(lower: Any, diagonal: Any, upper: Any, scratch: Any, right: Any, first: Any, n: Any) -> None:
    """Solve one tridiagonal system, which begins at an offset."""
    scratch[first] = upper[first] / diagonal[first]
    right[first] = right[first] / diagonal[first]
    for k in range(first + 1, first + n):
        m = 1.0 / (diagonal[k] - lower[k] * scratch[k - 1])
        scratch[k] = upper[k] * m
        right[k] = (right[k] - lower[k] * right[k - 1]) * m
    for j in range(n - 1):
        k = first + n - 2 - j
        right[k] -= scratch[k] * right[k + 1]


def lines(offsets: Any, lengths: Any, lower: Any, diagonal: Any, upper: Any, scratch: Any, right: Any) -> None:
    """Solve a tridiagonal system for each line."""
    for i in range(offsets.size):
        eliminate(lower, diagonal, upper, scratch, right, offsets[i], lengths[i])


def scale(pointers: Any, factors: Any, values: Any) -> None:
    """Scale ragged rows."""
    for i in range(factors.size):
        for k in range(pointers[i], pointers[i + 1]):
            values[k] *= factors[i]


def recurrence(here: Any, before: Any, x: Any, y: Any) -> None:
    """Compute each element from one before it, which index arrays hide."""
    for i in range(here.size):
        y[here[i]] = 0.9 * y[before[i]] + x[i]


def update(p: Any, x: Any, y: Any) -> None:
    """Update elements by a permutation, or by what is none."""
    for i in range(p.size):
        y[p[i]] = 0.5 * y[p[i]] + x[i]


def chase(p: Any, places: Any, x: Any, y: Any) -> None:
    """Update elements by a permutation that the loop has computed, so that nobody can look at it before."""
    for i in range(p.size):
        places[p[i]] = p[i]
        y[places[p[i]]] = 0.5 * y[places[p[i]]] + x[i]


_SIZED: Final = {"add": 2, "renew": 2, "work": 1, "scale": 1}
"""Which argument has as many elements as a loop has iterations, where it is not the first."""


def n_iterations(name: str, arguments: Sequence[Any]) -> int:
    """Return how many iterations a call of a loop has, by its name."""
    if name == "flux":
        return int(arguments[5] - arguments[4])
    return len(arguments[_SIZED.get(name, 0)])


# -- programs --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """A program, its arrays, and which of its loops nobody has proved parallel.

    Attributes
    ----------
    name : str
    speculative : tuple of callables
        Its loops that may be parallel.
    plain : tuple of callables
        The others, which are.
    arrays : mapping
    run : callable
        ``run(loops, arrays, n_steps)``.
    once : callable
        ``once(loops, arrays)`` calls a speculative loop once.
    written : tuple of str
        The arrays that tell whether it was right.
    changed : tuple of str
        Those that it changes.
    n_steps : int
    reductions : frozenset of str
        Loops that return a sum ``s``.
    """

    name: str
    speculative: tuple[Callable[..., Any], ...]
    plain: tuple[Callable[..., Any], ...]
    arrays: Arrays
    run: Callable[[Loops, Arrays, int], object]
    once: Callable[[Loops, Arrays], object]
    written: tuple[str, ...]
    changed: tuple[str, ...]
    n_steps: int = 10


def programs(size: float = 1.0) -> list[Program]:
    """Return the six programs, of about 10 GB together; ``size`` shrinks them.

    At size 1 a call takes 5 ms or more on an H100. Threads make them side by side: NumPy lets go of the GIL.
    """
    makers = (_conjugate_gradient, _mesh, _particles, _work, _lines, _ragged)
    with ThreadPoolExecutor(len(makers)) as threads:
        return list(threads.map(lambda make: make(size), makers))


def arguments_of(program: Program) -> tuple[Any, ...]:
    """Return the arguments of a call of the loop that may be parallel."""
    given: list[Any] = []

    def take(*arguments: Any) -> None:
        given.extend(arguments)

    program.once(SimpleNamespace(**{program.speculative[0].__name__: take}), program.arrays)
    return tuple(given)


def _length(full: int, size: float) -> int:
    return max(64, int(full * size))


def _conjugate_gradient(size: float) -> Program:
    n, rng = _length(3 << 21, size), np.random.default_rng(1)
    widths = np.sort(rng.integers(8, 27, n))[::-1]  # rows by their length, the longest first
    pointers = np.zeros(n + 1, np.int32)
    np.cumsum(widths, out=pointers[1:])
    order = rng.permutation(n).astype(np.int32)
    rows = np.repeat(order, widths)
    columns = ((rows + rng.integers(-2000, 2001, rows.size, dtype=np.int32)) % n).astype(np.int32)
    columns[pointers[:-1]] = order  # the diagonal, which dominates
    values = np.full(rows.size, -0.02)
    values[pointers[:-1]] = 2.0
    names = "x", "r", "p", "q"
    arrays: Arrays = {"order": order, "pointers": pointers, "columns": columns, "values": values}
    arrays = {**arrays, **{name: np.zeros(n) for name in names}, "b": rng.random(n)}

    def once(loops: Loops, a: Arrays) -> None:
        loops.multiply(a["order"], a["pointers"], a["columns"], a["values"], a["p"], a["q"])

    def run(loops: Loops, a: Arrays, n_steps: int) -> None:
        loops.renew(0.0, a["b"], a["r"])
        loops.renew(0.0, a["b"], a["p"])
        rr = loops.dot(a["r"], a["r"])
        for _ in range(n_steps):
            once(loops, a)
            alpha = rr / loops.dot(a["p"], a["q"])
            loops.add(alpha, a["p"], a["x"])
            loops.add(-alpha, a["q"], a["r"])
            new = loops.dot(a["r"], a["r"])
            loops.renew(new / rr, a["r"], a["p"])
            rr = new

    return Program("conjugate gradient", (multiply,), (add, renew, dot), arrays, run, once, ("x",), names)


def _mesh(size: float) -> Program:
    side, rng = max(16, int(6144 * size**0.5)) // 2 * 2, np.random.default_rng(2)
    cells = rng.permutation(side * side).reshape(side, side).astype(np.int32)
    colours = [
        np.stack((rows[:, begin:-1:2].ravel(), rows[:, begin + 1 :: 2].ravel()), 1)
        for rows in (cells, cells.T)  # edges along both axes
        for begin in (0, 1)  # no two of a colour have a cell in common
    ]
    edges = np.concatenate(colours)
    ends = [0, *np.cumsum([len(one) for one in colours]).tolist()]
    n = side * side
    arrays: Arrays = {"edges": edges, "area": rng.random(len(edges)), "u": rng.random(n), "residual": np.zeros(n)}

    def once(loops: Loops, a: Arrays) -> None:
        loops.flux(a["edges"], a["area"], a["u"], a["residual"], ends[0], ends[1])

    def run(loops: Loops, a: Arrays, n_steps: int) -> None:
        for _ in range(n_steps):
            for begin, end in pairwise(ends):
                loops.flux(a["edges"], a["area"], a["u"], a["residual"], begin, end)
            loops.add(1e-6, a["residual"], a["u"])

    return Program("mesh", (flux,), (add,), arrays, run, once, ("u", "residual"), ("u", "residual"), 5)


def _particles(size: float) -> Program:
    n, rng = _length(9 << 20, size), np.random.default_rng(3)
    arrays: Arrays = {
        "slots": rng.permutation(n).astype(np.int32),
        "position": rng.random((n, 3)),
        "velocity": rng.random((n, 3)),
    }

    def once(loops: Loops, a: Arrays) -> None:
        loops.push(a["slots"], a["position"], a["velocity"], 1e-3)

    moved = "position", "velocity"
    return Program("particles", (push,), (), arrays, _repeated(once), once, moved, moved)


def _work(size: float) -> Program:
    n, rng = _length(3 << 24, size), np.random.default_rng(4)
    order = rng.permutation(n).astype(np.int32)
    arrays: Arrays = {"source": order, "goal": np.roll(order, 1), "x": rng.random(n), "y": np.zeros(n)}

    def once(loops: Loops, a: Arrays) -> None:
        loops.work(a["source"], a["goal"], a["x"], a["y"])

    return Program("gather, work, scatter", (work,), (), arrays, _repeated(once), once, ("y",), ("y",), 4)


def _lines(size: float) -> Program:
    n, rng = _length(1 << 20, size), np.random.default_rng(5)
    lengths = rng.integers(8, 25, n).astype(np.int32)
    offsets = np.zeros(n, np.int32)
    np.cumsum(lengths[:-1], out=offsets[1:])
    total = int(lengths.sum())
    arrays: Arrays = {
        "offsets": offsets,
        "lengths": lengths,
        "lower": rng.random(total),
        "diagonal": 4.0 + rng.random(total),
        "upper": rng.random(total),
        "scratch": np.zeros(total),
        "right": rng.random(total),
    }

    def once(loops: Loops, a: Arrays) -> None:
        loops.lines(*(a[name] for name in ("offsets", "lengths", "lower", "diagonal", "upper", "scratch", "right")))

    return Program("line solves", (lines,), (), arrays, _repeated(once), once, ("right",), ("scratch", "right"))


def _ragged(size: float) -> Program:
    n, rng = _length(1 << 24, size), np.random.default_rng(6)
    pointers = np.zeros(n + 1, np.int32)
    np.cumsum(rng.integers(0, 33, n), out=pointers[1:])
    arrays: Arrays = {
        "pointers": pointers,
        "factors": 0.9 + 0.2 * rng.random(n),
        "values": rng.random(int(pointers[-1])),
    }

    def once(loops: Loops, a: Arrays) -> None:
        loops.scale(a["pointers"], a["factors"], a["values"])

    return Program("ragged rows", (scale,), (), arrays, _repeated(once), once, ("values",), ("values",))


def _repeated(once: Callable[[Loops, Arrays], object]) -> Callable[[Loops, Arrays, int], None]:
    def run(loops: Loops, a: Arrays, n_steps: int) -> None:
        for _ in range(n_steps):
            once(loops, a)

    return run
