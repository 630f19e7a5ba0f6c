"""Plain Python with comments as directives, in Pythran's (``#omp``) and Pyccel's (``#$ omp``) style.

CPython runs the functions as they are. The tests decorate them and expect the same results.
"""

# A formatter would put a blank after the "#" of a directive.
# fmt: off
# ruff: noqa: PIE808, RET505, SIM102, B007  # the style of the tools' own examples

import math

import numpy as np


def distances(points):
    """Fill the matrix of distances: private variables and a nest of three loops."""
    m = points.shape[0]
    n = points.shape[1]
    out = np.zeros((m, m))
    #omp parallel for private(i, j, k, d, delta)
    for i in range(m):
        for j in range(m):
            d = 0.0
            for k in range(n):
                delta = points[i, k] - points[j, k]
                d += delta * delta
            out[i, j] = math.sqrt(d)
    return out


def stencil(a):
    """Apply nine weights to the inner points of an array."""
    m = a.shape[0]
    n = a.shape[1]
    out = np.zeros((m, n))
    #pragma omp parallel for collapse(2)
    for i in range(1, m - 1):
        for j in range(1, n - 1):
            out[i, j] = (
                2.0 * a[i - 1, j - 1]
                - 3.0 * a[i, j - 1]
                + 4.0 * a[i + 1, j - 1]
                + 5.0 * a[i - 1, j]
                + 6.0 * a[i, j]
                + 7.0 * a[i + 1, j]
                - 8.0 * a[i - 1, j + 1]
                - 9.0 * a[i, j + 1]
                + 10.0 * a[i + 1, j + 1]
            )
    return out


def escape_times(size, limit):
    """Count iterations of z² + c for each point of a grid; the loop inside has no fixed length."""
    out = np.zeros((size, size))
    for i in range(size):
        #omp parallel for private(x, y, a, b, t, count) schedule(static,5)
        for j in range(size):
            x = 4.0 * float(i - size / 2) / size
            y = 4.0 * float(j - size / 2) / size
            a = 0.0
            b = 0.0
            count = 0
            while a * a + b * b <= 4.0 and count < limit:
                t = a * a - b * b + x
                b = 2.0 * a * b + y
                a = t
                count += 1
            out[i, j] = count
    return out


def sums(n):
    """Reduce with several operators, one loop each."""
    total = 3
    product = 1.0
    largest = -1.0
    some = False
    every = True
    #omp parallel for schedule(dynamic,1) reduction(+:total)
    for i in range(1, n + 1):
        total = total + i
    #omp parallel for reduction(*:product)
    for i in range(1, 11):
        product *= i
    #omp parallel for reduction(max:largest)
    for i in range(n):
        largest = max(largest, float((i * 7) % 13))
    #omp parallel for reduction(||:some)
    for i in range(n):
        some = some or i == 5
    #omp parallel for reduction(&&:every)
    for i in range(n):
        every = every and i < n
    return total, product, largest, some, every


def last_index(n):
    """Keep the value of the last iteration."""
    last = -1
    total = 0
    #omp parallel for reduction(+:total) lastprivate(last)
    for i in range(1, n + 1):
        total += i
        last = i
    return total, last


def permuted(data, order):
    """Read through an array of indices."""
    n = len(data)
    out = np.empty(n)
    #pragma omp simd
    for i in range(n):
        out[i] = data[order[i]] * 2
    return out


def atomic_histogram(values, bins):
    """Count into bins with an atomic statement."""
    counts = np.zeros(bins)
    #omp parallel for
    for i in range(len(values)):
        #omp atomic
        counts[values[i] % bins] += 1.0
    return counts


def product(a, x, out):
    """Multiply matrices between ``parallel`` and ``end parallel``."""
    #$ omp parallel shared(a, x, out) private(i, j, k)
    #$ omp for
    for i in range(len(a)):
        for j in range(len(x[0])):
            for k in range(len(x)):
                out[i][j] += a[i][k] * x[k][j]
    #$ omp end parallel
    return out


def two_loops(n):
    """Fill and add, two loops in one ``parallel`` block with a barrier between."""
    values = np.zeros(n)
    total = 0.0
    #$ omp parallel num_threads(3)
    #$ omp for
    for i in range(0, n):
        values[i] = i * 2
    #$ omp barrier
    #$ omp for reduction(+:total)
    for i in range(0, n):
        total = total + values[i]
    #$ omp end parallel
    return total


def in_else(x):
    """Have directives in a branch."""
    result = 0
    if x < 30:
        return x
    else:
        #$ omp parallel
        #$ omp for reduction(+:result)
        for i in range(x):
            result = result + i
        #$ omp end parallel
    return result


def three_sections(n):
    """Add in three sections; the sums are shared."""
    sum1 = 0
    sum2 = 0
    sum3 = 0
    #$ omp parallel num_threads(2) default(shared)
    #$ omp sections
    #$ omp section
    for i in range(0, int(n / 3)):
        sum1 = sum1 + i
    #$ omp end section
    #$ omp section
    for i in range(0, int(n / 2)):
        sum2 = sum2 + i
    #$ omp end section
    #$ omp section
    for i in range(0, n):
        sum3 = sum3 + i
    #$ omp end section
    #$ omp end sections
    #$ omp end parallel
    return sum1 + sum2 + sum3


def one_block(a, x, out):
    """Run one statement in ``single``."""
    #$ omp parallel
    #$ omp single
    out[:] = np.matmul(a, x)
    #$ omp end single
    #$ omp end parallel
    return out


def waited(n):
    """Wait for tasks, then start others."""
    values = [0 for _ in range(n)]
    wrong = 0
    #omp parallel
    if 1:
        #omp single
        if 1:
            for i in range(n):
                #omp task firstprivate(i)
                values[i] = 1
            #omp taskwait
            for i in range(n):
                if values[i] != 1:
                    wrong += 1
            for i in range(n):
                #omp task firstprivate(i)
                values[i] = 2
    return values, wrong


def shared_count(n):
    """Add one in each task, under ``atomic``."""
    count = 0
    #omp parallel
    #omp single
    for k in range(0, n):
        #omp task shared(count)
        if 1:
            #omp atomic
            count += 1
    return count


def long_line(first, second):
    """Continue a directive on a second comment line."""
    total = 0.0
    #$ omp parallel for shared(first, &
    #$ omp second) reduction(+:total)
    for i in range(len(first)):
        total += first[i] * second[i]
    return total
