"""The guide from CUDA streams on a GPU: the steps give the result of the original, and the last one costs no more."""

from __future__ import annotations

import gc
import statistics
import time

import numpy as np
import pytest

from tests.gpu.conftest import cupy
from tests.test_streams_guide import ORIGINAL, STEPS, frames, load

pytestmark = pytest.mark.gpu

TURNS = 9
SHAPE = (32, 2048, 2048)  # 256 MB of raw frames, 512 MB of results


@pytest.fixture
def gpu(gpu):
    """A current runtime on the first GPU; afterwards the pools keep none of the blocks that the originals have used."""
    yield gpu
    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()


@pytest.mark.parametrize("path", STEPS, ids=lambda path: path.stem)
@pytest.mark.parametrize("n", [1, 20])
def test_a_step_gives_the_result_of_the_original(gpu, path, n):
    """Each step gives the bytes that the original gives."""
    source, expected, dark, gain = frames(n)
    load(ORIGINAL).run(source, expected, dark, gain)
    assert expected.any()
    result = np.zeros_like(expected)
    load(path).run(source, result, dark, gain)
    np.testing.assert_array_equal(result, expected)


def took_s(run, *arguments):
    """Return how long one run took; both programs return when the last result has been written."""
    began_s = time.perf_counter()
    run(*arguments)
    return time.perf_counter() - began_s


@pytest.mark.measures
def test_the_last_step_takes_as_long_as_the_original(gpu, record_property, capsys):
    """In turns with the original, the last step takes at most 1.05 times its median time; both times are stated."""
    rng = np.random.default_rng(1)
    source = rng.integers(0, 1 << 16, SHAPE, "u2")
    dark, gain = rng.random(SHAPE[1:], "f4"), rng.random(SHAPE[1:], "f4")
    results = [np.zeros(SHAPE, "f4") for _ in range(2)]  # all pages exist before a run is timed
    runs = [load(ORIGINAL).run, load(STEPS[-1]).run]
    for run, result in zip(runs, results, strict=True):  # kernels are compiled and pools filled
        run(source, result, dark, gain)
    np.testing.assert_array_equal(*results)
    times_s = [[], []]
    for turn in range(TURNS):
        for which in (0, 1) if turn % 2 else (1, 0):
            times_s[which].append(took_s(runs[which], source, results[which], dark, gain))
    by_hand_s, in_tasks_s = map(statistics.median, times_s)
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    told = f"{name}: by hand {by_hand_s * 1e3:.1f} ms, in tasks {in_tasks_s * 1e3:.1f} ms"
    record_property("streams_guide", told)
    with capsys.disabled():
        print(f"\n{told}; medians of {TURNS}, {SHAPE[0]} frames of {SHAPE[1]} by {SHAPE[2]}")
    assert in_tasks_s <= 1.05 * by_hand_s, (told, times_s)
