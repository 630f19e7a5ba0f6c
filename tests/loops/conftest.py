"""What tests of speculative loops have in common."""

from __future__ import annotations

import time

import pytest

from offload.loops.running import pool
from offload.loops.speculative import race as racing


@pytest.fixture
def free_core():
    """Have each race wait until there is a core for it.

    Without one there is no race, and a worker counts as busy from the runtime's beginning until it first sleeps.
    """
    has_core = racing._has_core

    def waited_for(engine):
        until_s = time.monotonic() + 20
        while not (found := has_core(engine)) and pool.n_cores() and time.monotonic() < until_s:
            time.sleep(0.001)
        return found

    with pytest.MonkeyPatch.context() as patch:  # of its own, which is undone after the test's runtimes have ended
        patch.setattr(racing, "_has_core", waited_for)
        yield
