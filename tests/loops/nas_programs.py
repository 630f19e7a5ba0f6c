"""EP, CG, IS and FT of the NAS benchmarks, and a k-means, as plain Python of small sizes.

A line that ends in ``# omp`` has a loop that the published OpenMP version annotates. A line that ends in ``# order``
has a loop whose iterations depend on each other.
"""

from __future__ import annotations

import math

import numpy as np

R23, T23, R46, T46 = 0.5**23, 2.0**23, 0.5**46, 2.0**46


def randlc(x, a):
    """Return the number after x of the sequence with the multiplier a, as NAS has it."""
    a1 = float(int(R23 * a))
    a2 = a - T23 * a1
    x1 = float(int(R23 * x))
    x2 = x - T23 * x1
    t1 = a1 * x2 + a2 * x1
    z = t1 - T23 * float(int(R23 * t1))
    t3 = T23 * z + a2 * x2
    return t3 - T46 * float(int(R46 * t3))


def ep(x, q, seeds, nn, nk):
    for i in range(q.size):
        q[i] = 0.0
    for i in range(x.size):  # omp
        x[i] = -1.0
    sx = 0.0
    sy = 0.0
    for k in range(nn):  # omp
        t = seeds[k]
        for i in range(2 * nk):  # order
            t = randlc(t, 1220703125.0)
            x[i] = R46 * t
        for i in range(nk):
            x1 = 2.0 * x[2 * i] - 1.0
            x2 = 2.0 * x[2 * i + 1] - 1.0
            t1 = x1 * x1 + x2 * x2
            if t1 <= 1.0:
                t2 = math.sqrt(-2.0 * math.log(t1) / t1)
                t3 = abs(x1 * t2)
                t4 = abs(x2 * t2)
                q[int(max(t3, t4))] += 1.0
                sx += t3
                sy += t4
    gc = 0.0
    for i in range(q.size):
        gc += q[i]
    return sx, sy, gc


def ep_arguments():
    seeds = [271828183.0]
    for _ in range(5):
        seeds.append(randlc(seeds[-1], 1220703125.0))
    return np.zeros(16), np.zeros(10), np.array(seeds), 6, 8


def cg(rowstr, colidx, a, x, z, p, q, r, n_outer, n_inner):
    n = x.size
    zeta = 0.0
    for i in range(n):  # omp
        x[i] = 1.0
    for _ in range(n_outer):  # order
        rho = 0.0
        for j in range(n):  # omp
            q[j] = 0.0
            z[j] = 0.0
            r[j] = x[j]
            p[j] = r[j]
        for j in range(n):  # omp
            rho += r[j] * r[j]
        for _ in range(n_inner):  # order
            for j in range(n):  # omp
                suml = 0.0
                for k in range(rowstr[j], rowstr[j + 1]):
                    suml += a[k] * p[colidx[k]]
                q[j] = suml
            d = 0.0
            for j in range(n):  # omp
                d += p[j] * q[j]
            alpha = rho / d
            rho0 = rho
            rho = 0.0
            for j in range(n):  # omp
                z[j] = z[j] + alpha * p[j]
                r[j] = r[j] - alpha * q[j]
                rho += r[j] * r[j]
            beta = rho / rho0
            for j in range(n):  # omp
                p[j] = r[j] + beta * p[j]
        total = 0.0
        for j in range(n):  # omp
            suml = 0.0
            for k in range(rowstr[j], rowstr[j + 1]):
                suml += a[k] * z[colidx[k]]
            r[j] = suml
        for j in range(n):  # omp
            suml = x[j] - r[j]
            total += suml * suml
        norm1 = 0.0
        norm2 = 0.0
        for j in range(n):  # omp
            norm1 += x[j] * z[j]
            norm2 += z[j] * z[j]
        norm2 = 1.0 / math.sqrt(norm2)
        zeta = 10.0 + 1.0 / norm1
        for j in range(n):  # omp
            x[j] = norm2 * z[j]
    return zeta


def cg_arguments():
    rng = np.random.default_rng(1)
    n = 8
    dense = np.eye(n) * 9 + (rng.random((n, n)) < 0.3)
    dense = dense + dense.T
    rows = [np.flatnonzero(row) for row in dense]
    rowstr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    a = np.concatenate([dense[i, row] for i, row in enumerate(rows)])
    return (rowstr, np.concatenate(rows), a, *(np.zeros(n) for _ in range(5)), 2, 3)


def rank(keys, counts, ranks, ordered, n_keys, n_values):
    for it in range(2):  # order
        keys[it] = it
        keys[it + 2] = n_values - it - 1
        for i in range(n_values):  # omp
            counts[i] = 0
        for i in range(n_keys):  # omp
            counts[keys[i]] += 1
        for i in range(1, n_values):  # order
            counts[i] = counts[i] + counts[i - 1]
        for i in range(n_keys):
            ranks[i] = counts[keys[i]]
    for i in range(n_keys):  # order
        k = keys[i]
        counts[k] -= 1
        ordered[counts[k]] = k
    wrong = 0
    for i in range(1, n_keys):  # omp
        if ordered[i - 1] > ordered[i]:
            wrong += 1
    return wrong


def rank_arguments():
    keys = np.random.default_rng(2).integers(0, 6, 20)
    return keys, np.zeros(6, int), np.zeros(20, int), np.zeros(20, int), 20, 6


def fft_row(xr, xi, ur, ui, rev, n, sign):
    """Transform a row in place."""
    for i in range(n):
        j = rev[i]
        if i < j:
            xr[i], xr[j] = xr[j], xr[i]
            xi[i], xi[j] = xi[j], xi[i]
    size = 2
    while size <= n:
        half = size // 2
        for first in range(0, n, size):
            for k in range(half):
                wr = ur[k * (n // size)]
                wi = sign * ui[k * (n // size)]
                tr = wr * xr[first + k + half] - wi * xi[first + k + half]
                ti = wr * xi[first + k + half] + wi * xr[first + k + half]
                xr[first + k + half] = xr[first + k] - tr
                xi[first + k + half] = xi[first + k] - ti
                xr[first + k] = xr[first + k] + tr
                xi[first + k] = xi[first + k] + ti
        size *= 2


def ft(ur0, ui0, vr, vi, twiddle, wr, wi, rev, sums, n, n_iter):
    yr = np.zeros(n)
    yi = np.zeros(n)
    for k in range(n):  # omp
        for j in range(n):
            for i in range(n):
                kk = (k + n // 2) % n - n // 2
                jj = (j + n // 2) % n - n // 2
                ii = (i + n // 2) % n - n // 2
                twiddle[k, j, i] = math.exp(-1e-3 * (ii * ii + jj * jj + kk * kk))
    for it in range(n_iter):  # order
        for k in range(n):  # omp
            for j in range(n):
                for i in range(n):
                    ur0[k, j, i] = ur0[k, j, i] * twiddle[k, j, i]
                    ui0[k, j, i] = ui0[k, j, i] * twiddle[k, j, i]
                    vr[k, j, i] = ur0[k, j, i]
                    vi[k, j, i] = ui0[k, j, i]
        for k in range(n):  # omp
            for j in range(n):
                for i in range(n):
                    yr[i] = vr[k, j, i]
                    yi[i] = vi[k, j, i]
                fft_row(yr, yi, wr, wi, rev, n, -1.0)
                for i in range(n):
                    vr[k, j, i] = yr[i]
                    vi[k, j, i] = yi[i]
        for k in range(n):  # omp
            for i in range(n):
                for j in range(n):
                    yr[j] = vr[k, j, i]
                    yi[j] = vi[k, j, i]
                fft_row(yr, yi, wr, wi, rev, n, -1.0)
                for j in range(n):
                    vr[k, j, i] = yr[j]
                    vi[k, j, i] = yi[j]
        sr = 0.0
        si = 0.0
        for j in range(1, 20):  # omp
            q = j % n
            r = (3 * j) % n
            s = (5 * j) % n
            sr += vr[s, r, q]
            si += vi[s, r, q]
        sums[it, 0] = sr
        sums[it, 1] = si


def ft_arguments():
    n = 4
    rng = np.random.default_rng(3)
    cube = [rng.random((n, n, n)) for _ in range(2)]
    angles = 2 * np.pi * np.arange(n // 2) / n
    rev = np.array([0, 2, 1, 3])
    scratch = [np.zeros((n, n, n)) for _ in range(3)]
    return (*cube, *scratch, np.cos(angles), np.sin(angles), rev, np.zeros((2, 2)), n, 2)


def kmeans(points, centres, label, sums, counts, n_iter):
    n, k, d = points.shape[0], centres.shape[0], points.shape[1]
    changed = 0
    for _ in range(n_iter):  # order
        for c in range(k):
            counts[c] = 0
            for j in range(d):
                sums[c, j] = 0.0
        changed = 0
        for i in range(n):  # omp
            best = 1e300
            which = 0
            for c in range(k):  # order
                dist = 0.0
                for j in range(d):
                    t = points[i, j] - centres[c, j]
                    dist += t * t
                if dist < best:
                    best = dist
                    which = c
            if label[i] != which:
                changed += 1
            label[i] = which
        for i in range(n):  # omp
            m = label[i]
            counts[m] += 1
            for j in range(d):
                sums[m, j] += points[i, j]
        for c in range(k):
            if counts[c] > 0:
                for j in range(d):
                    centres[c, j] = sums[c, j] / counts[c]
    return changed


def kmeans_arguments():
    rng = np.random.default_rng(0)
    return rng.random((16, 2)), rng.random((3, 2)), np.zeros(16, int), np.zeros((3, 2)), np.zeros(3, int), 3


PROGRAMS = {
    "ep": (ep, ep_arguments),
    "cg": (cg, cg_arguments),
    "is": (rank, rank_arguments),
    "ft": (ft, ft_arguments),
    "kmeans": (kmeans, kmeans_arguments),
}
