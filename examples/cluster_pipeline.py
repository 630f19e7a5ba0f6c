"""A pipeline on the workers of a Dask cluster that survives a worker's death.

Blocks of data go through two stages, each on another worker. The pipeline is recorded once. ``retries=`` says that it
may run again as a whole: when a worker dies, its device is recovered, the arrays of this process are as at the
beginning, and the graph is sent once more. The example kills a worker by itself, to show that.

Run it: ``python examples/cluster_pipeline.py``, with ``--blocks``, or ``--calm`` to kill nobody.
"""

import argparse
import logging
import os
import signal
import threading
import time

import numpy as np

import offload as omp
from offload import in_, inout, out, to, tofrom


@omp.target(nowait=True, device=0, map=[to("block"), omp.from_("cleaned")])
def clean(block, cleaned):
    time.sleep(0.05)  # as if it were work
    cleaned[...] = np.maximum(block, 0)


@omp.target(nowait=True, device=1, map=[to("cleaned"), tofrom("total")])
def add(cleaned, total):
    total += cleaned.sum(axis=0)


def record(blocks, cleaned, total):
    """Return the graph of the pipeline: the stages of different blocks overlap."""
    with omp.record(execute=False) as graph:
        for block, one in zip(blocks, cleaned, strict=True):
            clean.options(depend=[in_(block), out(one)])(block, one)
            add.options(depend=[in_(one), inout(total)])(one, total)
    return graph


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--calm", action="store_true", help="kill no worker")
    options = parser.parse_args()
    from distributed import Client, LocalCluster

    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # which tells of the death at length
    blocks = np.random.default_rng(1).standard_normal((options.blocks, 200, 50))
    cleaned, total = np.empty_like(blocks), np.zeros(50)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.CRITICAL
        ) as cluster,
        Client(cluster) as client,
        omp.Runtime(client) as runtime,
    ):
        graph = record(blocks, cleaned, total)
        victim = client.run(os.getpid)[runtime.devices()[0].worker]
        killer = threading.Timer(0.2, os.kill, (victim, signal.SIGKILL))
        if not options.calm:
            killer.start()
        graph.compute(client, retries=3)
        killer.cancel()
    np.testing.assert_allclose(total, np.maximum(blocks, 0).sum(axis=(0, 1)))
    print(f"{options.blocks} blocks went through two workers" + ("" if options.calm else ", one of which was killed"))


if __name__ == "__main__":
    main()
