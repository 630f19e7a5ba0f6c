"""The loops that are measured, and what they are given: the same for us and for the peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]


@omp.parallel_loop
def saxpy(a: Any, x: Any, y: Any) -> None:
    """Add a multiple of a vector to another one."""
    for i in range(x.size):
        y[i] += a * x[i]


@omp.parallel_loop
def five_point(a: Any, b: Any) -> None:
    """Take the mean of four neighbours."""
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])


@omp.parallel_loop
def csr(pointers: Any, columns: Any, values: Any, x: Any, y: Any) -> None:
    """Multiply a sparse matrix by a vector, row by row."""
    for i in range(y.size):
        s = 0.0
        for k in range(pointers[i], pointers[i + 1]):
            s += values[k] * x[columns[k]]
        y[i] = s


@omp.parallel_loop
def matmul(a: Any, b: Any, c: Any) -> None:
    """Multiply two matrices as the formula has it."""
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            c[i, j] = s


@omp.parallel_loop(atomic=["counts"])  # type: ignore[untyped-decorator]  # with clauses it may be anything
def histogram(values: Any, counts: Any) -> None:
    """Count how often each value occurs."""
    for i in range(values.size):
        counts[values[i]] += 1


@omp.parallel_loop
def short(x: Any) -> None:
    """Write to each element its number: a loop whose call is all that it takes."""
    for i in range(x.size):
        x[i] = i


@dataclass(frozen=True)
class Case:
    """A loop and its arguments.

    Attributes
    ----------
    function : callable
        Of ours; the peer's has the same name.
    arguments : tuple
        The last one is the array that is written.
    expected : array
        What it holds after one call, when it was all zeros.
    """

    function: Any
    arguments: tuple[Any, ...]
    expected: Array

    @property
    def name(self) -> str:
        """The name of the loop, and of the peer's."""
        return str(self.function.__name__)

    def is_right(self, call: Callable[..., object]) -> bool:
        """Call on zeros, and compare with what is expected."""
        written = self.arguments[-1]
        written[...] = 0
        call(*self.arguments)
        return bool(np.allclose(written, self.expected, rtol=1e-12, atol=0))


def cases(scale: float = 1.0) -> list[Case]:
    """Return the five loops with arguments; ``scale`` shrinks them, for a quick look."""
    rng = np.random.default_rng(1)
    n = int(4_000_000 * scale)
    x, y = rng.random(n), np.zeros(n)
    side = int(2000 * scale**0.5)
    field = rng.random((side, side))
    inner = np.zeros_like(field)
    inner[1:-1, 1:-1] = 0.25 * (field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:])
    rows, width = int(200_000 * scale), 27
    pointers = np.arange(rows + 1) * width
    near = np.arange(rows)[:, None] + rng.integers(-20_000, 20_001, (rows, width))
    columns = np.clip(near, 0, rows - 1).astype(np.int32).ravel()
    values, vector = rng.random(rows * width), rng.random(rows)
    products = (values * vector[columns]).reshape(rows, width).sum(axis=1)
    edge = int(400 * scale ** (1 / 3))
    a, b = rng.random((edge, edge)), rng.random((edge, edge))
    numbers = rng.integers(0, 256, n, dtype=np.int32)
    return [
        Case(saxpy, (2.0, x, y), 2.0 * x),
        Case(five_point, (field, np.zeros_like(field)), inner),
        Case(csr, (pointers, columns, values, vector, np.zeros(rows)), products),
        Case(matmul, (a, b, np.zeros_like(a)), a @ b),
        Case(histogram, (numbers, np.zeros(256, np.int64)), np.bincount(numbers, minlength=256)),
    ]
