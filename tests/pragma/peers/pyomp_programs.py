"""Programs in PyOMP's style: ``@njit`` functions with ``openmp`` blocks, targets, and sections as Python slices."""

# ruff: noqa: SIM117, RET504  # the style of the peers' programs

import numpy as np

from offload.pragma.pyomp import (
    njit,
    omp_get_num_teams,
    omp_get_num_threads,
    omp_get_team_num,
    omp_get_thread_num,
    omp_get_wtime,
    omp_set_num_threads,
)
from offload.pragma.pyomp import openmp_context as openmp


@njit
def smooth(a, b):
    """Average neighbours: the plainest worksharing loop."""
    n = len(a)
    with openmp("parallel for"):
        for i in range(1, n):
            b[i] = (a[i] + a[i - 1]) / 2.0


@njit(fastmath=True, cache=True)
def log_two(terms):
    """Sum a series, with ``for`` in a ``parallel`` block that has a private variable."""
    omp_set_num_threads(3)
    total = 0.0
    start = omp_get_wtime()
    with openmp("parallel private(x)"):
        with openmp("for reduction(+:total) schedule(static) private(x)"):
            for i in range(terms):
                x = 1.0 / (i + 0.5 + 0.5)
                total += x if i % 2 == 0 else -x
    assert omp_get_wtime() >= start
    return total


@njit()
def log_two_on_device(terms):
    """Sum the series with a combined construct on the device."""
    total = 0.0
    with openmp("target teams distribute parallel for private(x) reduction(+:total)"):
        for i in range(terms):
            x = 1.0 / (i + 1.0)
            total += x if i % 2 == 0 else -x
    return total


@njit
def product(a, b, c):
    """Multiply matrices on the device, with an initialisation on the host."""
    n = len(a)
    with openmp("parallel for schedule(static)"):
        for i in range(n):
            for j in range(n):
                c[i, j] = 0.0
    with openmp("target teams distribute parallel for private(j, k)"):
        for i in range(n):
            for k in range(n):
                for j in range(n):
                    c[i][j] += a[i][k] * b[k][j]


@njit
def diffuse(u, v, steps):
    """Diffuse heat: unstructured data around loops that swap the two arrays."""
    n = u.shape[0]
    with openmp("target enter data map(to: u, v)"):
        pass
    for _ in range(steps):
        step(n, u, v)
        u, v = v, u
    with openmp("target exit data map(from: u) map(release: v)"):
        pass
    return u


@njit
def step(n, u, v):
    """Compute one step, a nest of two loops on the device."""
    with openmp("target loop collapse(2)"):
        for i in range(n):
            for j in range(n):
                v[i, j] = 0.5 * u[i, j] + 0.125 * (
                    (u[i, j + 1] if j < n - 1 else 0.0)
                    + (u[i, j - 1] if j > 0 else 0.0)
                    + (u[i + 1, j] if i < n - 1 else 0.0)
                    + (u[i - 1, j] if i > 0 else 0.0)
                )


@njit
def tree_sum(values, low, high):
    """Add by halves, in tasks with shared results."""
    total = 0.0
    if high - low < 8:
        for i in range(low, high):
            total += values[i]
    else:
        left = 0.0
        right = 0.0
        middle = (low + high) // 2
        with openmp("task shared(left)"):
            left = tree_sum(values, low, middle)
        with openmp("task shared(right)"):
            right = tree_sum(values, middle, high)
        with openmp("taskwait"):
            total = left + right
    return total


@njit
def add_by_tasks(values):
    """Start the recursion in a team."""
    total = 0.0
    with openmp("parallel"):
        with openmp("single"):
            total = tree_sum(values, 0, len(values))
    return total


@njit
def fill(tasks):
    """Write an element in each task; the index is the loop's."""
    a = np.zeros(tasks)
    with openmp("parallel"):
        with openmp("single"):
            for i in range(tasks):
                with openmp("task firstprivate(i)"):
                    a[i] = i + 1
    return a


@njit
def move(n, low, high):
    """Copy through sections that are Python slices: start and stop."""
    a = np.zeros(n)
    b = np.arange(float(n))
    with openmp("target map(tofrom: a[low:high]) map(to: b[high : high + 4])"):
        for i in range(4):
            a[i + low] = b[i + high]
    return a


@njit
def refresh(n):
    """Update parts of a mapped array in both directions."""
    a = np.ones(n)
    with openmp("target data map(to: a)"):
        with openmp("target"):
            a += 1.0
        with openmp("target update from(a[2:4])"):
            pass
        seen = a.copy()
        a[4:6] = 10.0
        with openmp("target update to(a[4:6])"):
            pass
        with openmp("target"):
            a *= 2.0
        with openmp("target update from(a)"):
            pass
    return seen, a


@njit
def chain(n):
    """Order tasks by dependences on one variable."""
    x = 0
    with openmp("parallel"):
        with openmp("single"):
            for i in range(n):
                with openmp("task firstprivate(i) shared(x) depend(inout: x)"):
                    x = 2 * x + i
    return x


@njit
def team():
    """Ask the routines in a ``parallel`` block, with a critical section."""
    count = 0
    numbers = (0, 0, 0, 0)
    with openmp("parallel num_threads(4) shared(count)"):
        with openmp("critical"):
            count += 1
        numbers = (omp_get_thread_num(), omp_get_num_threads(), omp_get_team_num(), omp_get_num_teams())
    return count, numbers


@njit
def scalar_from_device(x):
    """Get a number back from a region."""
    with openmp("target map(tofrom: x)"):
        x += 1
    return x


@njit
def number_in_target():
    """Ask for the thread number in a region of the device."""
    number = -1
    with openmp("target map(from: number)"):
        number = omp_get_thread_num()
    return number
