"""Generated programs give the same on simulated devices and on workers."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from tests import cluster
from tests.dask.programs import Program

N_ALL = 1000


def ends_of(devices, seed):
    with omp.Runtime(devices, check=True):
        return Program(seed).run()


def check_seeds(client, seeds):
    for seed in seeds:
        arrays, ends = ends_of("sim:2", seed)
        on_workers, their_ends = ends_of(client, seed)
        assert ends == their_ends, seed
        for array, other in zip(arrays, on_workers, strict=True):
            assert np.array_equal(array, other), seed


def test_programs_give_the_same_on_two_workers():
    """Values, failures and memory are those of two simulated devices."""
    check_seeds(cluster.shared_client(), range(4))


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("n_workers", [2, 3])
def test_many_programs(n_workers):
    """The same of a thousand programs, on two and on three workers."""
    with cluster.local_cluster(n_workers) as client:
        check_seeds(client, range(N_ALL))
