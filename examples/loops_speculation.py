"""Loops that nobody has proved parallel: one is proved at the launch, one is remembered, one fails on its third input.

Each is an ordinary loop under ``target_loop(speculate=True)``. Results are the sequential ones, whatever happens; each
line says where the latest call has run.
"""

import sys
import warnings

import numpy as np

import offload as omp
from offload import to, tofrom

N = 20_000


@omp.target_loop(speculate=True)
def shift(y, distance):
    """Parallel if the distance is large enough, which the launch knows."""
    for i in range(y.size - distance):
        y[i + distance] = 0.5 * y[i]


@omp.target_loop(speculate=True)
def scatter(places, x, y):
    """Parallel if no place comes twice: a look at the places tells, once for what they hold."""
    for i in range(places.size):
        y[places[i]] = 0.5 * y[places[i]] + x[i]


@omp.target_loop(speculate=True)
def chase(places, x, links, y):
    """Parallel if no place comes twice, but the places are computed on the way: it has to be tried."""
    for i in range(places.size):
        links[i] = places[i]
        y[links[i]] += x[i]


def report(name, call, loop, arguments, expected, got):
    """Print where a call has run, and check its result."""
    np.testing.assert_array_equal(got, expected)
    where = loop.explain(*arguments).to_dict()["speculation"]["last"]
    print(f"{name}, call {call}: on the {where}")


def serial(loop, *arguments):
    """Return the arguments after the undecorated loop, in NumPy's terms: each place once, or one place twice."""
    copies = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
    loop.python(*copies)
    return copies


def main(n=N):
    """Run all three; return how many warnings there were."""
    rng = np.random.default_rng(0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", omp.SpeculationWarning)
        y = rng.random(n)
        expected = serial(shift, y, n // 2)[0]
        shift(y, n // 2)
        print(f"shift: {shift.explain(y, n // 2).to_dict()['nests'][0]['verdict']} for this distance")
        np.testing.assert_array_equal(y, expected)

        places, x = rng.permutation(n), rng.random(n)
        with omp.target_data(map=[to(places), to(x), tofrom(y)]):
            on_host = y.copy()
            for call in range(1, 4):
                on_host = serial(scatter, places, x, on_host)[2]
                scatter(places, x, y)
                omp.target_update(from_=[y])
                report("scatter", call, scatter, (places, x, y), on_host, y)

        links = np.zeros(n, np.int64)
        for call in range(1, 5):
            if call == 3:
                places[n // 2] = places[0]  # two iterations meet
            expected = serial(chase, places, x, links, y)[3]
            chase(places, x, links, y)
            report("chase", call, chase, (places, x, links, y), expected, y)
    for warning in said:
        print(f"{warning.category.__name__}: {warning.message}")
    return len(said)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
