"""A 2-D Fourier transform of a field that no device could hold: its planes live on the workers of a Dask cluster.

The field has many planes. Each worker holds its share of them in the memory of its device from the first pass to the
last. In this process there is only one field, which is read at the beginning and written at the end. In between, every
pass works on data that stays: a pass sends functions and nothing else.

Run it: ``python examples/cluster_planes.py``, with ``--planes``, ``--edge`` and ``--workers``.
"""

import argparse

import numpy as np

import offload as omp
from offload import inout, tofrom


@omp.target(nowait=True)
def along(plane, axis):
    plane[...] = np.fft.fft(plane, axis=axis)


@omp.target(nowait=True)
def damp(plane, factor):
    plane *= factor


def transform(field, factor):
    """Transform each plane of ``field`` in place, and multiply it by a number."""
    n_devices = omp.get_num_devices()
    shares = np.array_split(field, n_devices)
    for device, share in enumerate(shares):
        omp.target_enter_data(map=[tofrom(share)], device=device, nowait=True, depend=[inout(share)])
    for work, value in ((along, 0), (along, 1), (damp, factor)):
        for device, share in enumerate(shares):
            for plane in share:
                work.options(device=device, depend=[inout(plane)])(plane, value)
    for device, share in enumerate(shares):
        omp.target_exit_data(map=[tofrom(share)], device=device, nowait=True, depend=[inout(share)])
    omp.taskwait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--planes", type=int, default=12)
    parser.add_argument("--edge", type=int, default=64, help="rows and columns of a plane")
    parser.add_argument("--workers", type=int, default=2, help="worker processes")
    options = parser.parse_args()
    from distributed import Client, LocalCluster

    shape = options.planes, options.edge, options.edge
    field = np.random.default_rng(1).standard_normal(shape).astype(complex)
    expected = np.fft.fft2(field) * 0.5
    with (
        LocalCluster(n_workers=options.workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        omp.Runtime(client, check=True),
    ):
        transform(field, 0.5)
        n_devices = omp.get_num_devices()
    np.testing.assert_allclose(field, expected, rtol=1e-10, atol=1e-10)
    print(f"{options.planes} planes of {options.edge}² elements were transformed on {n_devices} workers")


if __name__ == "__main__":
    main()
