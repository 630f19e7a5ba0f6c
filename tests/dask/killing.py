"""Workers that are killed at a random moment of a program, and what must hold afterwards."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import numpy as np

import offload as omp
from offload import in_, inout, tofrom
from tests.cluster import until_gone, until_no_lease, wait_for_workers
from tests.dask.programs import Program

N_ARRAYS = 6


@omp.target
def step(x, token, folder, seconds):
    """Note that the body runs, once: a second run finds the file."""
    Path(folder, token).touch(exist_ok=False)
    time.sleep(seconds)
    x += 1


@omp.target
def join(x, y, token, folder):
    Path(folder, token).touch(exist_ok=False)
    x += y


def run_and_kill(client, seed, folder, *, n_workers=2):
    """Run a program of a seed and kill a worker meanwhile; return how many tasks ended by the loss.

    Every task ends: it is complete, or has failed because of the loss. No body runs twice. Arrays of complete tasks
    have the values of a run without a loss. Nothing is left on the workers.
    """
    rng = random.Random(seed)
    folder = Path(folder, str(seed))
    folder.mkdir()
    wait_for_workers(client, n_workers)
    pids = client.run(os.getpid)
    n_lost = 0
    with omp.Runtime(client) as runtime:
        victim = rng.choice(runtime.devices()).worker
        delay_s = rng.random() * 0.25
        killer = threading.Timer(delay_s, lambda: os.kill(pids[victim], signal.SIGKILL))
        arrays = [np.zeros(rng.choice([8, 200_000])) for _ in range(N_ARRAYS)]
        values = [0.0] * N_ARRAYS
        planned, tasks = [], []
        killer.start()
        for k in range(rng.randrange(5, 40)):
            i, j, device = rng.randrange(N_ARRAYS), rng.randrange(N_ARRAYS), rng.randrange(n_workers)
            if i != j and rng.random() < 0.4 and arrays[i].size == arrays[j].size:
                task = join.options(
                    device=device,
                    nowait=True,
                    map=[tofrom("x"), omp.to("y")],
                    depend=[inout(arrays[i]), in_(arrays[j])],
                )(arrays[i], arrays[j], f"t{k}", str(folder))
                planned.append((i, j))
            else:
                task = step.options(device=device, nowait=True, depend=[inout(arrays[i])])(
                    arrays[i], f"t{k}", str(folder), rng.choice([0.0, 0.0, 0.02])
                )
                planned.append((i, None))
            tasks.append(task)
        for (i, j), task in zip(planned, tasks, strict=True):
            error = task.exception(timeout=40)
            if error is None:
                values[i] += 1 if j is None else values[j]
            else:
                cause = error.__cause__ if isinstance(error, omp.errors.DependError) else error
                assert isinstance(cause, omp.errors.DeviceLostError), repr(error)
                assert cause.worker == victim
                n_lost += 1
                values[i] = float("nan")  # what the loss has left there
        killer.join()
        for array, value in zip(arrays, values, strict=True):
            assert np.isnan(value) or (array == value).all(), (array, value)
    until_gone(client, victim)
    until_no_lease(client, on_error="ignore")
    return n_lost


def replay_and_kill(client, seed):
    """Compute the graph of a generated program and kill a worker meanwhile; replayed, it gives what it would have.

    Return whether the loss came before the end.
    """
    rng = random.Random(seed)
    with omp.Runtime("sim:2", check=True):
        expected, graph = Program(seed, fails=False).record()
        graph.compute("threads")
    wait_for_workers(client)
    pids = client.run(os.getpid)
    with omp.Runtime(client, check=True) as runtime:
        arrays, graph = Program(seed, fails=False).record()
        device = rng.choice(runtime.devices())
        victim = device.worker
        killer = threading.Timer(rng.random() * 0.15, lambda: os.kill(pids[victim], signal.SIGKILL))
        killer.start()
        graph.compute(client, retries=3)
        has_lost = device.worker != victim or device.is_lost
        killer.join()
        for array, other in zip(arrays, expected, strict=True):
            assert np.array_equal(array, other), seed
    until_gone(client, victim)
    until_no_lease(client, on_error="ignore")
    return has_lost
