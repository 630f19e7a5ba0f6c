"""Runtimes on the run's cluster of two worker processes."""

from __future__ import annotations

import pytest

import offload as omp
from tests import cluster
from tests.conftest import check_nothing_left


@pytest.fixture
def client():
    """A client of two workers, which a test does not harm."""
    return cluster.shared_client()


@pytest.fixture
def on_workers(client):
    """A current runtime on the devices of the two workers; afterwards nothing may be left of it, there neither."""
    with omp.Runtime(client, check=True) as runtime:
        yield runtime
    check_nothing_left(runtime)
    cluster.until_no_lease(client)
