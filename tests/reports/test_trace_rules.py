"""Traces of generated programs: whatever tasks do, the file is valid, and has each task once."""

from __future__ import annotations

import threading
from functools import partial
from random import Random

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.errors import OffloadError
from offload.events.log import TaskLog
from offload.reports.files import write_whole
from offload.reports.profile import profile
from offload.reports.records import records
from offload.reports.trace import trace
from offload.runtime.stamps import settle
from tests.profiles import few
from tests.reports.validator import check, read

NAMES = ["plain", 'quo"te', "new\nline", "[red]", "</script>", "ü" * 3, "x" * 10_000, "C:\\", "🙂", "\x00\x1f"]


class WrongError(Exception):
    """What bodies raise here."""


def body(x, *_, fails=False, **__):
    if fails:
        raise WrongError
    x += 1


def nested(depth, rng, x, **_):
    inner = omp.task(body, name=rng.choice(NAMES))(x)
    if depth:
        omp.task(nested)(depth - 1, rng, x)
    if rng.random() < 0.5:
        omp.taskwait()
    return inner


def generate(rng, devices):
    """Generate some tasks of any kind; return the tasks."""
    arrays = [np.zeros(rng.choice([1, 64, 5000])) for _ in range(4)]
    tasks, threads = [], []
    for _ in range(rng.randint(1, 25)):
        x = rng.choice(arrays)
        depend = [rng.choice([omp.in_, omp.out, omp.inout, omp.mutexinoutset])(x)] if rng.random() < 0.7 else []
        name = rng.choice(NAMES)
        fails = rng.random() < 0.1
        device = rng.randrange(devices) if devices else None
        match rng.randrange(9):
            case 0 | 1:
                tasks.append(omp.task(body, depend=depend, name=name)(x, fails=fails))
            case 2 if devices:
                tasks.append(omp.target(body, depend=depend, name=name, nowait=True, device=device)(x, fails=fails))
            case 3:
                event = omp.Event()
                tasks.append(omp.task(body, depend=depend, detach=event, name=name)(x))
                threads.append(threading.Thread(target=event.fulfill))
                threads[-1].start()
            case 4:
                tasks.append(omp.task(partial(nested, rng.randrange(3), rng), depend=depend)(x))
            case 5 if devices:
                acc.parallel(async_=rng.randrange(3), device=device)(body)(x)
            case 6 if devices:
                with omp.target_data(map=[omp.tofrom(x)], device=device):
                    tasks.append(omp.target_update(to=[x], nowait=True, depend=depend, device=device))
                    omp.taskwait()
            case 7:
                with omp.taskgroup():
                    tasks.append(omp.task(body)(x))
                    tasks.append(omp.task(partial(omp.cancel, "taskgroup"))())
            case _:
                omp.taskwait()
    for thread in threads:
        thread.join()
    return tasks


def run_program(seed, path):
    """Run a program under a log, and write its trace; return the keys of its tasks, and its record."""
    rng = Random(seed)
    devices = rng.choice([0, 1, 2])
    log = TaskLog()
    env = {"OMP_CANCELLATION": "true"}
    keys = []
    try:
        with (
            omp.tool(log),
            omp.Runtime(f"sim:{devices}" if devices else "none", num_threads=rng.randint(0, 3), env=env),
        ):
            try:
                keys = [task.key for task in generate(rng, devices)]
            finally:
                try:
                    omp.taskwait()
                finally:
                    acc.wait()
    except* (WrongError, OffloadError):
        pass
    settle(log)
    run = records(log)
    write_whole(path, trace(run))
    return keys, run


@pytest.mark.filterwarnings("ignore::offload.errors.OffloadWarning")
@pytest.mark.parametrize("seed", few(range(10), range(500)))
def test_traces_are_valid(seed, tmp_path):
    """Tracks nest, pairs are complete, ids are unique, times are monotone, flows lie inside of slices; parts add up."""
    path = tmp_path / ("trace.json.gz" if seed % 2 else "trace.json")
    keys, run = run_program(seed, path)
    found = check(read(path))
    assert set(keys) <= set(found)
    seen = profile(run)
    assert seen.wall_s == run.end_s - run.begin_s
    assert sum(seen.parts.values()) == pytest.approx(seen.wall_s, rel=1e-3)
    assert sum(row.count for row in seen.rows) == len(found)
