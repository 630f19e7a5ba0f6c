"""Programs of failures that are all handled: whatever they are made of, nothing is left of them."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offload as omp
from tests.profiles import examples, is_soak
from tests.tasks import test_failures as handled

WAYS = [way for way in handled.WAYS if way.__name__ not in ("by_a_graph", "by_an_entry")]  # which take longest


@pytest.mark.timeout(1_800 if is_soak() else 120)
@pytest.mark.parametrize("num_threads", [0, 2])
@given(st.lists(st.sampled_from(WAYS), min_size=1, max_size=8), st.none() | st.integers(0, 2**32 - 1))
@settings(max_examples=examples(20, soak=500), deadline=None)
def test_handled_failures_leave_nothing(num_threads, program, seed):
    """After each failure that was handled the memory of a small device is free again, without the collector."""
    handled.HOST.clear()
    gc.disable()
    try:
        with omp.Runtime("sim", num_threads=num_threads, seed=seed, env={"OFFLOAD_SIM_MEMORY": "64M"}) as runtime:
            device = runtime.places[0].device
            a = np.zeros(8)
            for way in program:
                way(a)
                omp.barrier()
                handled.let_workers_end(lambda: device.live_nbytes() == 0)
                assert device.live_nbytes() == 0
            handled.let_workers_end(lambda: all(reference() is None for reference in handled.HOST))
            assert [reference() for reference in handled.HOST if reference() is not None] == []
            assert not runtime.scope().region.children.troubles
    finally:
        gc.enable()
