"""A Dask cluster for tests: worker processes of this machine, started at the first use and shared by a run."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import time
from pathlib import Path

from tests.patience import until

N_WORKERS = int(os.environ.get("OFFLOAD_TESTS_CLUSTER", "0"))
"""Workers on which the tests run that take devices; 0: they run on devices of this process."""

WORKER_DEVICES = os.environ.get("OFFLOAD_TESTS_CLUSTER_DEVICES", "sim:1")
"""The devices of those workers."""


@contextlib.contextmanager
def local_cluster(n_workers=2, *, env=None, **kwargs):
    """Start worker processes, with nannies; yield a client of theirs.

    It is the default client only for a run of tests on workers: any other test computes graphs without a client.
    """
    import dask.config
    from distributed import Client, LocalCluster

    settings = {
        "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1},
        "distributed.worker.memory.terminate": False,
    }
    logging.getLogger("distributed").setLevel(logging.ERROR)
    with dask.config.set(settings):
        environment = {"PYTHONPATH": os.pathsep.join(["."]), **(env or {})}
        with (
            LocalCluster(
                n_workers=n_workers,
                threads_per_worker=1,
                processes=True,
                dashboard_address=":0",
                env=environment,
                silence_logs=logging.ERROR,
                **kwargs,
            ) as cluster,
            Client(cluster, set_as_default=bool(N_WORKERS)) as client,
        ):
            client.run(_take_own_gpu, sorted(client.scheduler_info(n_workers=-1)["workers"]))
            yield client


def _take_own_gpu(addresses, dask_worker):
    """Have a worker that sees several GPUs begin with the one of its number; it has not imported CuPy yet."""
    n = len([*Path("/dev").glob("nvidia[0-9]*")])
    if n:
        at = addresses.index(dask_worker.address) % n
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, [*range(at, n), *range(at)]))


@functools.cache
def shared_client(n_workers=2):
    """Return the client of the run's cluster."""
    stack = contextlib.ExitStack()
    client = stack.enter_context(local_cluster(n_workers, env={"OFFLOAD_DEVICES": WORKER_DEVICES}))
    atexit.register(stack.close)
    return client


def _addresses(dask_scheduler):
    return sorted(dask_scheduler.workers)


def wait_for_workers(client, n_workers=2, *, timeout_s=60, known=()):
    """Wait until the scheduler has so many workers, none of them ``known``; return their addresses."""
    until_s = time.monotonic() + timeout_s
    while True:
        found = client.run_on_scheduler(_addresses)
        if len(found) >= n_workers and not set(known) & set(found):
            return found
        if time.monotonic() > until_s:
            raise TimeoutError(f"{len(found)} of {n_workers} workers after {timeout_s} s")
        time.sleep(0.02)


def until_no_lease(client, *, on_error="raise"):
    """Wait until no worker has a lease: the end of a runtime waits for a busy worker for some seconds only."""
    until(lambda: not any(client.run(live_leases, on_error=on_error).values()))


def until_gone(client, worker):
    """Wait until the scheduler knows that a worker has been killed."""
    until(lambda: worker not in client.run_on_scheduler(_addresses))


def live_leases():
    """Return the leases of a worker; it calls this."""
    from offload.runtime.dask.leases import live_leases

    return live_leases()
