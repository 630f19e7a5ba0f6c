"""Particles as an array of structures, as a structure of arrays, and in padded rows: one into the other.

Element *k* is a field of a particle, in all three: particle by particle, field by field. A layout is a type that says
where that is, and a copy between two types is all there is to packing. In PARRAY:

    $parray {paged float [n][4]} AOS
    $parray {paged float [[#P_1][#P_0]]} SOA        // P is [4][n]: a row for each field
    $parray {paged float [[n#Q_1][#Q_0]]} PADDED    // Q is [4][n + pad]: rows that begin at cache lines
    $copy AOS(a) to SOA(s)

Any of the arrays may be on a device: the copy is then packed there, by one kernel.

Run it: ``python examples/parray_pack.py``.
"""

import numpy as np

import offload as omp
from offload.parray import ArrayType, copy, dim, plan

FIELDS = np.dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("mass", "f4")])
N = 1000
LINE = 16
"""Elements of a line of a cache."""


def layouts(n, n_fields=4):
    """Return the types of the three layouts of n particles."""
    rows = ArrayType((n_fields, n))
    padded = ArrayType((n_fields, -(-n // LINE) * LINE))
    return {
        "structures": ArrayType((n, n_fields)),
        "arrays": ArrayType((rows[1], rows[0])),
        "padded rows": ArrayType((dim(n, padded[1]), padded[0])),
    }


def main():
    rng = np.random.default_rng(1)
    particles = rng.random(4 * N, "f4").view(FIELDS)
    types = layouts(N)
    print(plan(types["structures"], types["padded rows"]))

    whole = particles.view("f4")  # elements are fields, so that all layouts have as many
    device = omp.target_alloc(types["padded rows"].span, "f4")
    arrays = np.zeros(types["arrays"].span, "f4")
    back = np.zeros(N, FIELDS)
    copy(types["structures"], whole, to=(types["padded rows"], device))
    copy(types["padded rows"], device, to=(types["arrays"], arrays))
    copy(types["arrays"], arrays, to=(types["structures"], back.view("f4")))
    omp.target_free(device)

    assert (arrays.reshape(4, N)[3] == particles["mass"]).all()
    assert (back == particles).all()
    print(f"{N} particles: structures, padded rows on the device, arrays, structures: the same")


if __name__ == "__main__":
    main()
