"""Two arrays that have nothing to do with each other, each on a queue of its own, and one step that needs both.

One array can be on its way to the device or back while the other is computed there. In OpenACC:

    #pragma acc data create(a[0:n], b[0:n], both[0:n])
    {
        #pragma acc update device(a[0:n]) async(1)
        for (int k = 0; k < sweeps; k++)
            #pragma acc parallel loop present(a[0:n]) async(1)
            for (int i = 0; i < n; i++)
                a[i] = 0.5 * (a[i] + 2.0 / a[i]);
        #pragma acc update self(a[0:n]) async(1)

        #pragma acc update device(b[0:n]) async(2)
        for (int k = 0; k < sweeps; k++)
            #pragma acc parallel loop present(b[0:n]) async(2)
            for (int i = 0; i < n; i++)
                b[i] = 0.5 * (b[i] + 3.0 / b[i]);
        #pragma acc update self(b[0:n]) async(2)

        #pragma acc parallel loop present(a[0:n], b[0:n], both[0:n]) async(2) wait(1)
        for (int i = 0; i < n; i++)
            both[i] = a[i] * b[i];
        #pragma acc update self(both[0:n]) async(2)

        #pragma acc wait(1, 2)
    }

Below, a region is a function, its loop is an operation on whole arrays, and the clauses that differ from call to call
are given by ``options``. The host is free from the first line of the block to ``acc.wait``.

Run it: ``python examples/acc_two_queues.py``.
"""

import numpy as np

from offload import acc

N = 200_000
SWEEPS = 6


@acc.parallel(present=["x"])
def newton(x, square):
    x[...] = 0.5 * (x + square / x)


@acc.parallel(present=["a", "b", "both"])
def multiply(a, b, both):
    both[...] = a * b


def process(a, b, both):
    """Turn starting values of the square roots of 2 and 3 into those, and multiply them."""
    with acc.data(create=[a, b, both]):
        for x, square, queue in ((a, 2.0, 1), (b, 3.0, 2)):
            acc.update(device=[x], async_=queue)
            for _ in range(SWEEPS):
                newton.options(async_=queue)(x, square)
            acc.update(self_=[x], async_=queue)

        multiply.options(async_=2, wait=1)(a, b, both)  # queue 2 goes on when queue 1 has got here
        acc.update(self_=[both], async_=2)
        acc.wait(1, 2)


def main():
    rng = np.random.default_rng(1)
    a, b = rng.uniform(1, 4, (2, N))
    both = np.zeros(N)
    process(a, b, both)

    results = ((a, 2**0.5), (b, 3**0.5), (both, 6**0.5))
    error = max(abs(array - expected).max() for array, expected in results)
    print(f"{N} square roots on two queues, largest error {error:.1e}")
    assert error < 1e-12


if __name__ == "__main__":
    main()
