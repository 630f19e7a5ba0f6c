"""Programs in OMP4Py's style: decorated functions and classes, directives in ``with`` and as statements."""

# ruff: noqa: SIM117  # the style of the peers' programs

import threading

import numpy as np

from offload.pragma.omp4py import *  # noqa: F403  # OMP4Py's programs begin with this line
from offload.pragma.omp4py import omp, omp_get_num_threads, omp_get_thread_num, omp_set_num_threads


@omp
def quarter_circle(n):
    """Integrate a quarter circle with the midpoint rule: one loop with a reduction."""
    width = 1.0 / n
    area = 0.0
    with omp("parallel for reduction(+:area)"):
        for i in range(n):
            x = (i + 0.5) * width
            area += (1.0 - x * x) ** 0.5
    return area * width


@omp(compile=True)
def quarter_circle_typed(n: int) -> float:
    """Integrate as above, with the annotations that OMP4Py compiles."""
    width: float = 1.0 / n
    area: float = 0.0
    with omp("parallel for reduction(+:area)"):
        for i in range(n):
            x: float = (i + 0.5) * width
            area += (1.0 - x * x) ** 0.5
    return area * width


@omp(compile=False, cache=True)
def paths(rows, columns, limit):
    """Count the paths through a grid, by recursion over tasks."""
    if rows == 0 or columns == 0:
        return 1
    down = 0
    right = 0
    with omp("task if(rows + columns > limit)"):
        down = paths(rows - 1, columns, limit)
    with omp("task if(rows + columns > limit)"):
        right = paths(rows, columns - 1, limit)
    omp("taskwait")
    return down + right


@omp
def count_paths(rows, columns, limit):
    """Start the recursion in a team."""
    result = 0
    with omp("parallel"):
        with omp("single"):
            result = paths(rows, columns, limit)
    return result


def _merge(values, low, middle, high):
    values[low:high] = np.sort(values[low:high], kind="stable")
    return middle


@omp
def _sort(values, low, high, limit):
    if high - low < 2:
        return
    middle = (low + high) // 2
    with omp("task if(high - low > limit)"):
        _sort(values, low, middle, limit)
    with omp("task if(high - low > limit)"):
        _sort(values, middle, high, limit)
    with omp("taskwait"):
        pass
    _merge(values, low, middle, high)


@omp
def merge_sort(values, limit):
    """Sort in place, with a task for each half."""
    with omp("parallel"):
        with omp("single"):
            _sort(values, 0, len(values), limit)


@omp
def relax(a, b, steps):
    """Relax a linear system: loops with a reduction in one ``parallel`` block, ``single`` and ``barrier`` between."""
    n = len(b)
    x = np.zeros(n)
    new = np.zeros(n)
    norm = 0.0
    step = 0
    with omp("parallel"):
        while step < steps:
            with omp("single"):
                norm = 0.0
            with omp("for reduction(+:norm)"):
                for i in range(n):
                    total = 0.0
                    for j in range(n):
                        if i != j:
                            total += a[i, j] * x[j]
                    new[i] = (b[i] - total) / a[i, i]
                    norm += abs(new[i] - x[i])
            omp("barrier")
            with omp("single"):
                x[:] = new
                step += 1
    return x, norm


@omp
def factor(a, lower, upper):
    """Factor a matrix without pivots: two worksharing loops for each column."""
    n = len(a)
    with omp("parallel"):
        for k in range(n):
            with omp("for"):
                for j in range(k, n):
                    total = 0.0
                    for p in range(k):
                        total += lower[k, p] * upper[p, j]
                    upper[k, j] = a[k, j] - total
            with omp("for"):
                for i in range(k + 1, n):
                    total = 0.0
                    for p in range(k):
                        total += lower[i, p] * upper[p, k]
                    lower[i, k] = (a[i, k] - total) / upper[k, k]
            with omp("single"):
                lower[k, k] = 1.0


@omp(compile=True)
def row_sums_typed(a2, out2):
    """Sum rows, with declarations inside of the loop, as OMP4Py's typed examples have them."""
    a: memoryview = a2
    out: memoryview = out2
    with omp("parallel for"):
        for i in range(len(out)):
            total: float = 0.0
            j: int
            for j in range(i + 1):
                total += a[i, j]
            out[i] = total


@omp
def tally(words):
    """Count words: a dictionary under ``critical``, a number under ``atomic``."""
    counts = {}
    total = 0
    with omp("parallel"):
        for word in words:
            with omp("critical"):
                counts[word] = counts.get(word, 0) + 1
            with omp("atomic"):
                total += 1
        with omp("master"):
            counts["threads"] = omp_get_num_threads()
        omp("barrier")
    return counts, total


@omp
def halves(values):
    """Sum two halves of an array in sections."""
    low = 0.0
    high = 0.0
    middle = len(values) // 2
    with omp("parallel sections"):
        with omp("section"):
            low = float(values[:middle].sum())
        with omp("section"):
            high = float(values[middle:].sum())
    return low, high


@omp
def shared_by_default():
    """Assign the enclosing function's variable in a task without a clause."""
    x = 1
    with omp("parallel"):
        with omp("single"):
            with omp("task"):
                x = 2
    return x


@omp
def own_copies():
    """Change variables of the tasks only."""
    x = 1
    y = 1
    with omp("parallel"):
        with omp("single"):
            with omp("task private(x)"):
                x = 2
            with omp("task firstprivate(y)"):
                y += 2
    return x, y


def decorated_later(queue):
    """Put thread numbers into a list; a test decorates this function."""
    with omp("parallel num_threads(2)"):
        queue.append(omp_get_thread_num())


@omp
class Ledger:
    """A class whose methods have directives."""

    def __init__(self, size):
        self.sums = np.zeros(size)

    def add(self, values):
        """Add one value to each sum, each in a task of its own."""
        with omp("parallel"):
            with omp("single"):
                for i in range(len(values)):
                    with omp("task firstprivate(i)"):
                        self.sums[i] += values[i]

    @staticmethod
    def doubled(values):
        """Double an array in place."""
        with omp("parallel for"):
            for i in range(len(values)):
                values[i] *= 2.0
        return values

    def total(self):
        """Return the total; a method without directives."""
        return float(self.sums.sum())


@omp
def thread_in_task(seen):
    """Ask for the thread number in a task."""
    with omp("parallel"):
        with omp("single"):
            with omp("task"):
                seen.append(omp_get_thread_num())


@omp
def gather(n):
    """Fill a list from tasks, under a lock of Python's own."""
    omp_set_num_threads(4)
    out = []
    lock = threading.Lock()
    with omp("parallel"):
        with omp("single"):
            for i in range(n):
                with omp("task firstprivate(i)"):
                    with lock:
                        out.append(i * i)
    return sorted(out)
