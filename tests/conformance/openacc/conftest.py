"""What holds queues in the cases of this directory."""

from __future__ import annotations

import pytest

import offload as omp
from offload import acc
from tests.conftest import Streams, checked


class QueueStreams(Streams):
    """Holds the streams of the queues of simulated devices, too, until `go`."""

    def __init__(self, runtime, *, holds):
        super().__init__(runtime, holds=holds)
        for latch in self.latches:
            place = next(place for place in runtime.places if place.device is latch.device)
            for number in range(8):
                place.stream_of_queue(number).wait_event(latch)


@pytest.fixture(params=["no worker", "one worker", "four workers", "delayed streams"])
def queues(request, devices):
    """A current runtime with no worker, one, four, or with streams that stand still until ``queues.go()``."""
    n_workers = {"no worker": 0, "one worker": 1}.get(request.param, 4)
    with checked(devices, num_threads=n_workers) as runtime:
        streams = QueueStreams(runtime, holds=request.param == "delayed streams")
        try:
            yield streams
        finally:
            streams.go()


@pytest.fixture
def hold(gates):
    """Hold a queue: ``hold(queue)`` puts an operation there that is not complete before ``open()`` of what it returns.

    A host task holds it, so that no stream stands still, and other queues go on on every device.
    """

    def make(queue, **clauses):
        gate = gates()
        gate.operation = acc.serial(lambda: None).options(async_=queue, depend=[gate.after], name="held", **clauses)()
        return gate

    return make


@pytest.fixture
def poll():
    """Ask until the answer is true."""

    def until(ask, *args, **kwargs):
        while not ask(*args, **kwargs):
            omp.taskyield()

    return until


@pytest.fixture
def host():
    """A current runtime without a device, of which it warns at the first construct."""
    with pytest.warns(omp.HostFallbackWarning), checked("none") as runtime:
        yield runtime


@pytest.fixture
def memory(runtime):
    """Allocate device memory for doubles, 32 of them if nothing is said: ``memory()``; freed at the end."""
    blocks = []

    def make(n=32):
        blocks.append(acc.malloc(8 * n))
        return blocks[-1].view("f8")

    yield make
    while blocks:
        acc.free(blocks.pop())
