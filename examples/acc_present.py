"""Conjugate gradients: one data region in the caller, and functions that find their data there.

The vectors of the method stay on the device from the first iteration to the last; what the functions are passed are the
host's arrays, and ``present`` says that their data has to be on the device. In OpenACC:

    double dot(int n, const double x[n][n], const double y[n][n])
    {
        double sum = 0;
        #pragma acc parallel loop collapse(2) present(x[0:n][0:n], y[0:n][0:n]) reduction(+: sum)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                sum += x[i][j] * y[i][j];
        return sum;
    }

    int solve(int n, double x[n][n], const double b[n][n])
    {
        #pragma acc data copy(x[0:n][0:n]) copyin(b[0:n][0:n]) create(r[0:n][0:n], p[0:n][0:n], q[0:n][0:n])
        {
            ...
            while (error > tolerance) {
                laplace(n, p, q);                   // q = A p
                double alpha = error / dot(n, p, q);
                add(n, x, alpha, p);                // x += alpha p
                add(n, r, -alpha, q);
                ...
            }
        }
    }

A function with ``copy`` in place of ``present`` could also be called on its own: data that is there already is only
counted, and what is not is copied in and out. With ``present`` that is an error, in place of a copy at each call that
nobody sees.

Run it: ``python examples/acc_present.py``.
"""

import numpy as np

from offload import NotPresentError, acc

N = 48
TOLERANCE = 1e-10


@acc.parallel(present=["x", "y"])
def dot(x, y):
    return float((x * y).sum())


@acc.parallel(present=["x", "y"])
def add(x, factor, y):
    x += factor * y


@acc.parallel(present=["x", "y"])
def scale_and_add(x, factor, y):
    x *= factor
    x += y


@acc.parallel(present=["x", "y"])
def laplace(x, y):
    """Set ``y`` to the five-point Laplacian of ``x``, which is zero beyond its border."""
    y[...] = 4 * x
    y[1:] -= x[:-1]
    y[:-1] -= x[1:]
    y[:, 1:] -= x[:, :-1]
    y[:, :-1] -= x[:, 1:]


def solve(x, b, tolerance):
    """Solve for ``x``, which holds a first guess, until the residual is that small; return the number of iterations."""
    r, p, q = (np.empty_like(x) for _ in range(3))
    iterations = 0
    with acc.data(copy=[x], copyin=[b], create=[acc.zero(r, p), q]):
        laplace(x, q)
        add(r, 1.0, b)
        add(r, -1.0, q)
        add(p, 1.0, r)
        error = dot(r, r)
        while error > tolerance**2:
            iterations += 1
            laplace(p, q)
            alpha = error / dot(p, q)
            add(x, alpha, p)
            add(r, -alpha, q)
            last, error = error, dot(r, r)
            scale_and_add(p, error / last, r)
    return iterations


def main():
    rng = np.random.default_rng(1)
    expected = rng.standard_normal((N, N))
    around = np.pad(expected, 1)
    b = 4 * expected - around[:-2, 1:-1] - around[2:, 1:-1] - around[1:-1, :-2] - around[1:-1, 2:]

    x = np.zeros_like(b)
    iterations = solve(x, b, TOLERANCE)
    error = abs(x - expected).max()
    print(f"{iterations} iterations, largest error {error:.1e}")
    assert error < 1e-8

    try:
        dot(x, b)  # outside of the region
    except NotPresentError:
        pass
    else:
        raise AssertionError("x and b are still on the device")


if __name__ == "__main__":
    main()
