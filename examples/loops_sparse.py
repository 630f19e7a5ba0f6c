"""A sparse matrix times a vector, by loops: rows on gangs, the elements of a row on vector lanes.

The matrix is in compressed rows (CSR): row i has the elements from ``start[i]`` to before ``start[i + 1]`` of
``values``, in the columns ``column``. In OpenACC, in C:

    #pragma acc parallel loop gang copyin(start[0:n+1], column[0:nnz], values[0:nnz], x[0:m]) copyout(y[0:n])
    for (int i = 0; i < n; i++) {
        double sum = 0;
        #pragma acc loop vector reduction(+: sum)
        for (int k = start[i]; k < start[i+1]; k++)
            sum += values[k] * x[column[k]];
        y[i] = sum;
    }

NumPy has no such loop: it computes all products, and then sums over stretches of them, in two passes over memory.

The power method uses it. What else a step does is one function with three nests, under ``kernels loop``: each is a
kernel, that its iterations are independent is found out, and so are the two sums.

Run it: ``python examples/loops_sparse.py``.
"""

from time import perf_counter

import numpy as np

from offload import acc

ROWS = 6000
IN_A_ROW = 12
STEPS = 8


@acc.parallel_loop(copyin=["start", "column", "values", "x"], copyout=["y"])
def multiply(start, column, values, x, y):
    for i in acc.loop(range(y.size), gang=True):
        total = 0.0
        for k in acc.loop(range(start[i], start[i + 1]), vector=True, reduction={"+": ["total"]}):
            total += values[k] * x[column[k]]
        y[i] = total


@acc.kernels_loop
def advance(x, y, factor):
    """Set ``x`` to a multiple of ``y``; return the squares of both as they were."""
    of_x = 0.0
    of_y = 0.0
    for i in range(x.size):
        of_x += x[i] * x[i]
    for i in range(y.size):
        of_y += y[i] * y[i]
    for i in range(x.size):
        x[i] = factor * y[i]
    return of_x, of_y


def multiply_by_numpy(start, column, values, x, y):
    y[...] = np.add.reduceat(values * x[column], start[:-1])  # no row is empty


def random_matrix(n, in_a_row, seed=1):
    """Return a matrix with positive elements in random columns: ``start``, ``column``, ``values``."""
    rng = np.random.default_rng(seed)
    start = np.concatenate([[0], np.cumsum(rng.integers(1, 2 * in_a_row, n))])
    return start, rng.integers(0, n, start[-1]), rng.uniform(0, 1, start[-1])


def largest_eigenvalue(matrix, n, steps):
    """Return a matrix's largest eigenvalue, as the power method has it after so many steps."""
    x, y = np.ones(n), np.empty(n)
    value = 1.0
    with acc.data(copyin=[*matrix, x], create=[y]):
        for _ in range(steps):
            multiply(*matrix, x, y)
            of_x, of_y = advance(x, y, 1 / value)
            value = (of_y / of_x) ** 0.5
    return value


def best_ms(function, *args):
    """Return the shortest of the times that three calls take, in milliseconds, after one that may compile."""
    function(*args)
    times_s = []
    for _ in range(3):
        began_s = perf_counter()
        function(*args)
        times_s.append(perf_counter() - began_s)
    return min(times_s) * 1000


def main():
    matrix = random_matrix(ROWS, IN_A_ROW)
    x = np.random.default_rng(2).standard_normal(ROWS)
    y, plain, by_numpy = np.empty(ROWS), np.empty(ROWS), np.empty(ROWS)
    numpy_ms = best_ms(multiply_by_numpy, *matrix, x, by_numpy)
    with acc.data(copyin=[*matrix, x], copyout=[y]):
        loop_ms = best_ms(multiply, *matrix, x, y)
    multiply.python(*matrix, x, plain)
    error = abs(y - plain).max()
    print(f"product: as its plain form to {error:.0e}; {loop_ms:.3f} ms, NumPy's {numpy_ms:.3f} ms")
    assert error < 1e-12
    assert abs(y - by_numpy).max() < 1e-12

    value = largest_eigenvalue(matrix, ROWS, STEPS)
    v = np.ones(ROWS)
    for _ in range(STEPS):
        multiply_by_numpy(*matrix, v, by_numpy)
        expected, v = np.linalg.norm(by_numpy) / np.linalg.norm(v), by_numpy / np.linalg.norm(by_numpy)
    print(f"largest eigenvalue after {STEPS} steps: {value:.6f}, by NumPy {expected:.6f}")
    assert abs(value - expected) < 1e-9


if __name__ == "__main__":
    main()
