"""The kernels of ``examples/nas_ep.py``, ``nas_cg.py`` and ``nas_mg.py``, with each nest as a loop function."""

from __future__ import annotations

import math

import numpy as np

import offload
from offload import alloc, to

PAIRS, SEED, FACTOR, MASK = 1024, 271828183, 5**13, 2**46 - 1
STEPS = 25


def skip(x, n):
    """Return the number that stands n places after x in the sequence."""
    factor = FACTOR
    while n > 0:
        if n & 1:
            x = x * factor & MASK
        factor = factor * factor & MASK
        n >>= 1
    return x


@offload.target_loop(reduction={"+": ["sx", "sy"]})
def gaussian_pairs(n_batches, counts):
    sx = 0.0
    sy = 0.0
    for batch in range(n_batches):
        in_batch = np.zeros(10)
        x = skip(SEED, 2 * PAIRS * batch)
        for _ in range(PAIRS):
            x = x * FACTOR & MASK
            a = 2.0 * (x * 0.5**46) - 1.0
            x = x * FACTOR & MASK
            b = 2.0 * (x * 0.5**46) - 1.0
            t = a * a + b * b
            if t <= 1.0:
                t = math.sqrt(-2.0 * math.log(t) / t)
                a = a * t
                b = b * t
                in_batch[int(max(abs(a), abs(b)))] += 1.0
                sx += a
                sy += b
        for i in range(10):
            offload.atomic.add(counts, i, in_batch[i])
    return sx, sy


def ep(n_batches):
    counts = np.zeros(10)
    sx, sy = gaussian_pairs(n_batches, counts)
    return sx, sy, counts


# -- CG --------------------------------------------------------------------------------------------------------


@offload.target_loop(reduction={"+": ["rho"]})
def begin(x, z, p, r):
    rho = 0.0
    for i in range(x.size):
        z[i] = 0.0
        r[i] = x[i]
        p[i] = x[i]
        rho += x[i] * x[i]
    return rho


@offload.target_loop(reduction={"+": ["d"]})
def multiply(start, column, value, p, q):
    d = 0.0
    for i in range(q.size):
        total = 0.0
        for k in range(start[i], start[i + 1]):
            total += value[k] * p[column[k]]
        q[i] = total
        d += p[i] * total
    return d


@offload.target_loop(reduction={"+": ["rho"]})
def advance(alpha, z, p, q, r):
    rho = 0.0
    for i in range(z.size):
        z[i] = z[i] + alpha * p[i]
        r[i] = r[i] - alpha * q[i]
        rho += r[i] * r[i]
    return rho


@offload.target_loop
def direct(beta, p, r):
    for i in range(p.size):
        p[i] = r[i] + beta * p[i]


@offload.target_loop(reduction={"+": ["xz", "zz"]})
def products(x, z):
    xz = 0.0
    zz = 0.0
    for i in range(x.size):
        xz += x[i] * z[i]
        zz += z[i] * z[i]
    return xz, zz


@offload.target_loop
def scaled(scale, x, z):
    for i in range(x.size):
        x[i] = scale * z[i]


def cg(start, column, value, shift, n_outer):
    x = np.ones(start.size - 1)
    z, p, q, r = (np.zeros(x.size) for _ in range(4))
    zeta = 0.0
    with offload.target_data(map=[to(start, column, value, x), alloc(z, p, q, r)]):
        for _ in range(n_outer):
            rho = begin(x, z, p, r)
            for _ in range(STEPS):
                alpha = rho / multiply(start, column, value, p, q)
                before = rho
                rho = advance(alpha, z, p, q, r)
                direct(rho / before, p, r)
            xz, zz = products(x, z)
            zeta = shift + 1.0 / xz
            scaled(1.0 / math.sqrt(zz), x, z)
    return zeta


# -- MG --------------------------------------------------------------------------------------------------------


@offload.target_loop(collapse=2)
def exchange_k(a):
    n = a.shape[0]
    for i in range(1, n - 1):
        for j in range(1, n - 1):
            a[i, j, 0] = a[i, j, n - 2]
            a[i, j, n - 1] = a[i, j, 1]


@offload.target_loop(collapse=2)
def exchange_j(a):
    n = a.shape[0]
    for i in range(1, n - 1):
        for k in range(n):
            a[i, 0, k] = a[i, n - 2, k]
            a[i, n - 1, k] = a[i, 1, k]


@offload.target_loop(collapse=2)
def exchange_i(a):
    n = a.shape[0]
    for j in range(n):
        for k in range(n):
            a[0, j, k] = a[n - 2, j, k]
            a[n - 1, j, k] = a[1, j, k]


def exchange(a):
    exchange_k(a)
    exchange_j(a)
    exchange_i(a)


@offload.target_loop(collapse=3)
def clear(a):
    n = a.shape[0]
    for i in range(n):
        for j in range(n):
            for k in range(n):
                a[i, j, k] = 0.0


@offload.target_loop(collapse=3)
def subtract(u, v, r):
    n = u.shape[0]
    for i in range(1, n - 1):
        for j in range(1, n - 1):
            for k in range(1, n - 1):
                edges = u[i, j - 1, k - 1] + u[i, j - 1, k + 1] + u[i, j + 1, k - 1] + u[i, j + 1, k + 1]
                edges += u[i - 1, j, k - 1] + u[i - 1, j, k + 1] + u[i + 1, j, k - 1] + u[i + 1, j, k + 1]
                edges += u[i - 1, j - 1, k] + u[i - 1, j + 1, k] + u[i + 1, j - 1, k] + u[i + 1, j + 1, k]
                corners = u[i - 1, j - 1, k - 1] + u[i - 1, j - 1, k + 1]
                corners += u[i - 1, j + 1, k - 1] + u[i - 1, j + 1, k + 1]
                corners += u[i + 1, j - 1, k - 1] + u[i + 1, j - 1, k + 1]
                corners += u[i + 1, j + 1, k - 1] + u[i + 1, j + 1, k + 1]
                r[i, j, k] = v[i, j, k] + 8.0 / 3.0 * u[i, j, k] - edges / 6.0 - corners / 12.0


def residual(u, v, r):
    subtract(u, v, r)
    exchange(r)


@offload.target_loop(collapse=3)
def add_smoothed(r, u):
    n = u.shape[0]
    for i in range(1, n - 1):
        for j in range(1, n - 1):
            for k in range(1, n - 1):
                faces = r[i, j, k - 1] + r[i, j, k + 1] + r[i, j - 1, k] + r[i, j + 1, k]
                faces += r[i - 1, j, k] + r[i + 1, j, k]
                edges = r[i, j - 1, k - 1] + r[i, j - 1, k + 1] + r[i, j + 1, k - 1] + r[i, j + 1, k + 1]
                edges += r[i - 1, j, k - 1] + r[i - 1, j, k + 1] + r[i + 1, j, k - 1] + r[i + 1, j, k + 1]
                edges += r[i - 1, j - 1, k] + r[i - 1, j + 1, k] + r[i + 1, j - 1, k] + r[i + 1, j + 1, k]
                u[i, j, k] = u[i, j, k] - 3.0 / 8.0 * r[i, j, k] + faces / 32.0 - edges / 64.0


def smooth(r, u):
    add_smoothed(r, u)
    exchange(u)


@offload.target_loop(collapse=3)
def means(fine, coarse):
    n = coarse.shape[0]
    for i in range(1, n - 1):
        for j in range(1, n - 1):
            for k in range(1, n - 1):
                total = 0.0
                for di in range(-1, 2):
                    for dj in range(-1, 2):
                        for dk in range(-1, 2):
                            weight = 0.5 ** (1 + abs(di) + abs(dj) + abs(dk))
                            total += weight * fine[2 * i + di, 2 * j + dj, 2 * k + dk]
                coarse[i, j, k] = total


def restrict(fine, coarse):
    means(fine, coarse)
    exchange(coarse)


@offload.target_loop(collapse=3)
def interpolate(coarse, fine):
    n = fine.shape[0]
    for i in range(n):
        for j in range(n):
            for k in range(n):
                total = 0.0
                for a in range(i // 2, (i + 1) // 2 + 1):
                    for b in range(j // 2, (j + 1) // 2 + 1):
                        for c in range(k // 2, (k + 1) // 2 + 1):
                            total += coarse[a, b, c]
                fine[i, j, k] += 0.5 ** (i % 2 + j % 2 + k % 2) * total


@offload.target_loop(collapse=3, reduction={"+": ["total"]})
def squares(r):
    n = r.shape[0]
    total = 0.0
    for i in range(1, n - 1):
        for j in range(1, n - 1):
            for k in range(1, n - 1):
                total += r[i, j, k] * r[i, j, k]
    return total


def mg(v, n_levels, n_cycles):
    u = [np.zeros((2**level + 2,) * 3) for level in range(n_levels + 1)]
    r = [np.zeros((2**level + 2,) * 3) for level in range(n_levels + 1)]
    top = n_levels
    with offload.target_data(map=[to(v, *u[1:], *r[1:])]):
        residual(u[top], v, r[top])
        for _ in range(n_cycles):
            for level in range(top, 1, -1):
                restrict(r[level], r[level - 1])
            clear(u[1])
            smooth(r[1], u[1])
            for level in range(2, top):
                clear(u[level])
                interpolate(u[level - 1], u[level])
                residual(u[level], r[level], r[level])
                smooth(r[level], u[level])
            interpolate(u[top - 1], u[top])
            residual(u[top], v, r[top])
            smooth(r[top], u[top])
            residual(u[top], v, r[top])
        return math.sqrt(squares(r[top]) / (2**top) ** 3)
