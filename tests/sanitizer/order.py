"""A sanitized runtime whose accesses are noted by hand: programs say what they read and write by names."""

from contextlib import contextmanager

import numpy as np

import offload as omp
from offload.runtime import sanitizing
from offload.sanitizer.live import LiveAccesses


class Noted:
    """The accesses of a program, and the pairs of them that nothing orders."""

    def __init__(self, runtime, orders):
        self.runtime = runtime
        self.orders = orders
        self.races = set()
        self._live = LiveAccesses(orders.order, compares=orders.compares)
        self._memory = {}

    def read(self, name, side=None):
        self._note(name, side, self.orders.here(), writes=False)

    def write(self, name, side=None):
        self._note(name, side, self.orders.here(), writes=True)

    def copy(self, name, side, *, writes):
        """Note a copy that the calling thread enqueues for the task that it launches."""
        self._note(name, side, self.orders.of_copy(), writes=writes)

    def _note(self, name, side, stretch, *, writes):
        with self.orders.lock:
            memory = self._memory.setdefault(name, np.zeros(8))
            side = side or self.orders.course_of(stretch).name
            for other in self._live.note(stretch, memory, writes, side):
                self.races.add((name, *sorted((other, side))))

    @property
    def names(self):
        """The names on which there was a race."""
        return {name for name, *_ in self.races}


@contextmanager
def sanitized(devices="sim:2", **kwargs):
    """Open a runtime whose order is noted, and give the accesses."""
    with omp.Runtime(devices, **kwargs) as runtime:
        try:
            yield Noted(runtime, sanitizing.begin(runtime))
            omp.barrier()
        finally:
            sanitizing.end(runtime)
