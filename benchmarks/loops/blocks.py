"""The block-tridiagonal solve along x of NAS BT, as two texts: helpers that take rows, and indices written out.

Each line of the grid has a system of 5 x 5 blocks. ``lhs[k, j, i]`` has the blocks below, on and above the diagonal of
point i. The factorisation and its helpers are those of BT, written as Python runs them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import offload as omp

BELOW, ON, ABOVE = 0, 1, 2
C1, C2, C34, CON43, C1345 = 1.4, 0.4, 0.1, 4.0 / 3.0, 0.1 * 1.4 * 1.4
TX1, TX2, DX = 0.0008, 0.0126, 0.75


# -- helpers that take rows


def jacobians(f: Any, n: Any, v: Any) -> None:
    """Compute the two Jacobians of a point from its five variables."""
    t1 = 1.0 / v[0]
    t2 = t1 * t1
    square = 0.5 * t1 * (v[1] * v[1] + v[2] * v[2] + v[3] * v[3])
    qs = square * t1
    f[0, 1] = 1.0
    f[1, 0] = -(v[1] * t2 * v[1]) + C2 * qs
    f[1, 1] = (2.0 - C2) * (v[1] * t1)
    f[1, 2] = -C2 * (v[2] * t1)
    f[1, 3] = -C2 * (v[3] * t1)
    f[1, 4] = C2
    f[2, 0] = -(v[1] * v[2]) * t2
    f[2, 1] = v[2] * t1
    f[2, 2] = v[1] * t1
    f[3, 0] = -(v[1] * v[3]) * t2
    f[3, 1] = v[3] * t1
    f[3, 3] = v[1] * t1
    f[4, 0] = (C2 * 2.0 * square - C1 * v[4]) * (v[1] * t2)
    f[4, 1] = C1 * v[4] * t1 - C2 * (v[1] * v[1] * t2 + qs)
    f[4, 2] = -C2 * (v[2] * v[1]) * t2
    f[4, 3] = -C2 * (v[3] * v[1]) * t2
    f[4, 4] = C1 * (v[1] * t1)
    n[1, 0] = -CON43 * C34 * t2 * v[1]
    n[1, 1] = CON43 * C34 * t1
    n[2, 0] = -C34 * t2 * v[2]
    n[2, 2] = C34 * t1
    n[3, 0] = -C34 * t2 * v[3]
    n[3, 3] = C34 * t1
    n[4, 0] = (C1345 - CON43 * C34) * t2 * t1 * v[1] * v[1] - C1345 * t2 * v[4]
    n[4, 1] = (CON43 * C34 - C1345) * t2 * v[1]
    n[4, 2] = (C34 - C1345) * t2 * v[2]
    n[4, 3] = (C34 - C1345) * t2 * v[3]
    n[4, 4] = C1345 * t1


def combine(m: Any, f: Any, n: Any, by_f: Any, by_n: Any, diagonal: Any) -> None:
    """Set a block to a combination of two Jacobians and the identity."""
    for p in range(5):
        for q in range(5):
            m[p, q] = by_f * f[p, q] + by_n * n[p, q]
        m[p, p] += diagonal


def lhsinit(m: Any) -> None:
    """Let a point at the boundary keep its values."""
    for p in range(5):
        for q in range(5):
            m[BELOW, p, q] = 0.0
            m[ON, p, q] = 0.0
            m[ABOVE, p, q] = 0.0
        m[ON, p, p] = 1.0


def binvcrhs(m: Any, c: Any, r: Any) -> None:
    """Multiply a block and a right side by the inverse of a block."""
    for p in range(5):
        pivot = 1.0 / m[p, p]
        for q in range(p + 1, 5):
            m[p, q] *= pivot
        for q in range(5):
            c[p, q] *= pivot
        r[p] *= pivot
        for s in range(5):
            if s != p:
                factor = m[s, p]
                for q in range(p + 1, 5):
                    m[s, q] -= factor * m[p, q]
                for q in range(5):
                    c[s, q] -= factor * c[p, q]
                r[s] -= factor * r[p]


def binvrhs(m: Any, r: Any) -> None:
    """Multiply a right side by the inverse of a block."""
    for p in range(5):
        pivot = 1.0 / m[p, p]
        for q in range(p + 1, 5):
            m[p, q] *= pivot
        r[p] *= pivot
        for s in range(5):
            if s != p:
                factor = m[s, p]
                for q in range(p + 1, 5):
                    m[s, q] -= factor * m[p, q]
                r[s] -= factor * r[p]


def matvec_sub(m: Any, x: Any, y: Any) -> None:
    """Subtract a block times a vector from a vector."""
    for p in range(5):
        for q in range(5):
            y[p] -= m[p, q] * x[q]


def matmul_sub(a: Any, b: Any, c: Any) -> None:
    """Subtract the product of two blocks from a block."""
    for q in range(5):
        for p in range(5):
            for s in range(5):
                c[p, q] -= a[p, s] * b[s, q]


@omp.target_loop(collapse=2)
def by_rows(u: Any, lhs: Any, rhs: Any) -> None:
    """Solve along x."""
    last = u.shape[2] - 1
    for k in range(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            f = np.zeros((5, 5))
            n = np.zeros((5, 5))
            lhsinit(lhs[k, j, 0])
            lhsinit(lhs[k, j, last])
            for i in range(1, last):
                jacobians(f, n, u[k, j, i - 1])
                combine(lhs[k, j, i, BELOW], f, n, -TX2, -TX1, -TX1 * DX)
                jacobians(f, n, u[k, j, i])
                combine(lhs[k, j, i, ON], f, n, 0.0, 2.0 * TX1, 1.0 + 2.0 * TX1 * DX)
                jacobians(f, n, u[k, j, i + 1])
                combine(lhs[k, j, i, ABOVE], f, n, TX2, -TX1, -TX1 * DX)
            binvcrhs(lhs[k, j, 0, ON], lhs[k, j, 0, ABOVE], rhs[k, j, 0])
            for i in range(1, last):
                matvec_sub(lhs[k, j, i, BELOW], rhs[k, j, i - 1], rhs[k, j, i])
                matmul_sub(lhs[k, j, i, BELOW], lhs[k, j, i - 1, ABOVE], lhs[k, j, i, ON])
                binvcrhs(lhs[k, j, i, ON], lhs[k, j, i, ABOVE], rhs[k, j, i])
            matvec_sub(lhs[k, j, last, BELOW], rhs[k, j, last - 1], rhs[k, j, last])
            matmul_sub(lhs[k, j, last, BELOW], lhs[k, j, last - 1, ABOVE], lhs[k, j, last, ON])
            binvrhs(lhs[k, j, last, ON], rhs[k, j, last])
            for i in range(last - 1, -1, -1):
                matvec_sub(lhs[k, j, i, ABOVE], rhs[k, j, i + 1], rhs[k, j, i])


# -- the same with indices written out


def jacobians_at(f: Any, n: Any, u: Any, k: Any, j: Any, i: Any) -> None:
    """Compute the two Jacobians of a point from its five variables."""
    t1 = 1.0 / u[k, j, i, 0]
    t2 = t1 * t1
    square = 0.5 * t1 * (u[k, j, i, 1] * u[k, j, i, 1] + u[k, j, i, 2] * u[k, j, i, 2] + u[k, j, i, 3] * u[k, j, i, 3])
    qs = square * t1
    f[0, 1] = 1.0
    f[1, 0] = -(u[k, j, i, 1] * t2 * u[k, j, i, 1]) + C2 * qs
    f[1, 1] = (2.0 - C2) * (u[k, j, i, 1] * t1)
    f[1, 2] = -C2 * (u[k, j, i, 2] * t1)
    f[1, 3] = -C2 * (u[k, j, i, 3] * t1)
    f[1, 4] = C2
    f[2, 0] = -(u[k, j, i, 1] * u[k, j, i, 2]) * t2
    f[2, 1] = u[k, j, i, 2] * t1
    f[2, 2] = u[k, j, i, 1] * t1
    f[3, 0] = -(u[k, j, i, 1] * u[k, j, i, 3]) * t2
    f[3, 1] = u[k, j, i, 3] * t1
    f[3, 3] = u[k, j, i, 1] * t1
    f[4, 0] = (C2 * 2.0 * square - C1 * u[k, j, i, 4]) * (u[k, j, i, 1] * t2)
    f[4, 1] = C1 * u[k, j, i, 4] * t1 - C2 * (u[k, j, i, 1] * u[k, j, i, 1] * t2 + qs)
    f[4, 2] = -C2 * (u[k, j, i, 2] * u[k, j, i, 1]) * t2
    f[4, 3] = -C2 * (u[k, j, i, 3] * u[k, j, i, 1]) * t2
    f[4, 4] = C1 * (u[k, j, i, 1] * t1)
    n[1, 0] = -CON43 * C34 * t2 * u[k, j, i, 1]
    n[1, 1] = CON43 * C34 * t1
    n[2, 0] = -C34 * t2 * u[k, j, i, 2]
    n[2, 2] = C34 * t1
    n[3, 0] = -C34 * t2 * u[k, j, i, 3]
    n[3, 3] = C34 * t1
    n[4, 0] = (C1345 - CON43 * C34) * t2 * t1 * u[k, j, i, 1] * u[k, j, i, 1] - C1345 * t2 * u[k, j, i, 4]
    n[4, 1] = (CON43 * C34 - C1345) * t2 * u[k, j, i, 1]
    n[4, 2] = (C34 - C1345) * t2 * u[k, j, i, 2]
    n[4, 3] = (C34 - C1345) * t2 * u[k, j, i, 3]
    n[4, 4] = C1345 * t1


def combine_at(lhs: Any, k: Any, j: Any, i: Any, b: Any, f: Any, n: Any, by_f: Any, by_n: Any, diagonal: Any) -> None:
    """Set a block to a combination of two Jacobians and the identity."""
    for p in range(5):
        for q in range(5):
            lhs[k, j, i, b, p, q] = by_f * f[p, q] + by_n * n[p, q]
        lhs[k, j, i, b, p, p] += diagonal


def lhsinit_at(lhs: Any, k: Any, j: Any, i: Any) -> None:
    """Let a point at the boundary keep its values."""
    for p in range(5):
        for q in range(5):
            lhs[k, j, i, BELOW, p, q] = 0.0
            lhs[k, j, i, ON, p, q] = 0.0
            lhs[k, j, i, ABOVE, p, q] = 0.0
        lhs[k, j, i, ON, p, p] = 1.0


def binvcrhs_at(lhs: Any, rhs: Any, k: Any, j: Any, i: Any) -> None:
    """Multiply a block and a right side by the inverse of a block."""
    for p in range(5):
        pivot = 1.0 / lhs[k, j, i, ON, p, p]
        for q in range(p + 1, 5):
            lhs[k, j, i, ON, p, q] *= pivot
        for q in range(5):
            lhs[k, j, i, ABOVE, p, q] *= pivot
        rhs[k, j, i, p] *= pivot
        for s in range(5):
            if s != p:
                factor = lhs[k, j, i, ON, s, p]
                for q in range(p + 1, 5):
                    lhs[k, j, i, ON, s, q] -= factor * lhs[k, j, i, ON, p, q]
                for q in range(5):
                    lhs[k, j, i, ABOVE, s, q] -= factor * lhs[k, j, i, ABOVE, p, q]
                rhs[k, j, i, s] -= factor * rhs[k, j, i, p]


def binvrhs_at(lhs: Any, rhs: Any, k: Any, j: Any, i: Any) -> None:
    """Multiply a right side by the inverse of a block."""
    for p in range(5):
        pivot = 1.0 / lhs[k, j, i, ON, p, p]
        for q in range(p + 1, 5):
            lhs[k, j, i, ON, p, q] *= pivot
        rhs[k, j, i, p] *= pivot
        for s in range(5):
            if s != p:
                factor = lhs[k, j, i, ON, s, p]
                for q in range(p + 1, 5):
                    lhs[k, j, i, ON, s, q] -= factor * lhs[k, j, i, ON, p, q]
                rhs[k, j, i, s] -= factor * rhs[k, j, i, p]


def matvec_sub_at(lhs: Any, rhs: Any, k: Any, j: Any, i: Any, b: Any, i_x: Any) -> None:
    """Subtract a block times a vector from a vector."""
    for p in range(5):
        for q in range(5):
            rhs[k, j, i, p] -= lhs[k, j, i, b, p, q] * rhs[k, j, i_x, q]


def matmul_sub_at(lhs: Any, k: Any, j: Any, i: Any) -> None:
    """Subtract the product of two blocks from a block."""
    for q in range(5):
        for p in range(5):
            for s in range(5):
                lhs[k, j, i, ON, p, q] -= lhs[k, j, i, BELOW, p, s] * lhs[k, j, i - 1, ABOVE, s, q]


@omp.target_loop(collapse=2)
def written_out(u: Any, lhs: Any, rhs: Any) -> None:
    """Solve along x."""
    last = u.shape[2] - 1
    for k in range(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            f = np.zeros((5, 5))
            n = np.zeros((5, 5))
            lhsinit_at(lhs, k, j, 0)
            lhsinit_at(lhs, k, j, last)
            for i in range(1, last):
                jacobians_at(f, n, u, k, j, i - 1)
                combine_at(lhs, k, j, i, BELOW, f, n, -TX2, -TX1, -TX1 * DX)
                jacobians_at(f, n, u, k, j, i)
                combine_at(lhs, k, j, i, ON, f, n, 0.0, 2.0 * TX1, 1.0 + 2.0 * TX1 * DX)
                jacobians_at(f, n, u, k, j, i + 1)
                combine_at(lhs, k, j, i, ABOVE, f, n, TX2, -TX1, -TX1 * DX)
            binvcrhs_at(lhs, rhs, k, j, 0)
            for i in range(1, last):
                matvec_sub_at(lhs, rhs, k, j, i, BELOW, i - 1)
                matmul_sub_at(lhs, k, j, i)
                binvcrhs_at(lhs, rhs, k, j, i)
            matvec_sub_at(lhs, rhs, k, j, last, BELOW, last - 1)
            matmul_sub_at(lhs, k, j, last)
            binvrhs_at(lhs, rhs, k, j, last)
            for i in range(last - 1, -1, -1):
                matvec_sub_at(lhs, rhs, k, j, i, ABOVE, i + 1)
