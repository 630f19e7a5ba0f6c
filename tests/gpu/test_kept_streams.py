"""Streams are never destroyed: what a runtime or a capture had is used again, as other libraries may refer to it."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import offload as omp
from offload import tofrom
from tests.gpu.conftest import cupy, python

pytestmark = pytest.mark.gpu


def addresses(n=8):
    """Return the addresses of streams of a runtime of its own."""
    with omp.Runtime("cuda:0", check=True):
        return {omp.target(lambda: omp.current_stream().ptr)() for _ in range(n)}


def test_a_runtime_has_the_streams_of_an_earlier_one():
    """Streams are used again by later runtimes, except for those that somebody still has."""
    from offload.devices.cuda import kept_streams

    (ptr,) = addresses(1)
    gc.collect()
    assert ptr in kept_streams._free[0]
    n_free = len(kept_streams._free[0])
    for _ in range(3):
        addresses()
        gc.collect()
    assert len(kept_streams._free[0]) <= n_free + 8
    assert ptr in kept_streams._free[0]
    with omp.Runtime("cuda:0", check=True):
        held = omp.target(omp.current_stream)()
    gc.collect()
    assert held.ptr not in kept_streams._free[0]
    assert held.ptr not in addresses()
    assert isinstance(held, cupy.cuda.Stream)


def test_captures_use_streams_again(gpu, monkeypatch):
    """Captures, and those that fail, need no new stream each."""
    made, make = [], cupy.cuda.runtime.streamCreateWithFlags
    monkeypatch.setattr(cupy.cuda.runtime, "streamCreateWithFlags", lambda flags: made.append(flags) or make(flags))
    y = np.zeros(10)

    def replay(body):
        region = omp.taskgraph(omp.target(nowait=True)(body))
        for _ in range(3):
            region(y)
        return region.records[0].is_captured

    def waits(y):
        cupy.cuda.get_current_stream().synchronize()

    def add(y):
        y += 1

    with omp.target_data(map=[tofrom(y)]):
        for _ in range(20):
            assert replay(add)
            gc.collect()
        assert len(made) <= 10  # eight lanes
        assert not replay(waits)
        assert replay(add)
    assert (y == 63).all()


def test_memory_that_a_stream_has_used_may_go_later(torch):
    """PyTorch records an event on a stream of a runtime that is closed, when memory which was used there goes."""
    with omp.Runtime("cuda:0", check=True):
        tensors = [torch.zeros(1 << 20, device="cuda:0") for _ in range(4)]

        @omp.target
        def use(x):
            x.add_(1)
            x.record_stream(torch.cuda.current_stream())

        for tensor in tensors:
            use(tensor)
    del use, tensor
    gc.collect()
    tensors.clear()
    torch.cuda.synchronize()
    assert (torch.ones(1 << 20, device="cuda:0") == 1).all()


def test_a_stream_that_is_current_when_it_goes():
    """CuPy's current stream is then its default one, or CuPy keeps the stream, which nobody else is given."""
    from offload.devices.cuda.kept_streams import KeptStream, _free

    stream = KeptStream(0)
    stream.use()
    del stream
    gc.collect()
    current = cupy.cuda.get_current_stream()
    assert current.ptr not in _free.get(0, [])
    cupy.cuda.Stream.null.use()


def test_the_end_of_the_interpreter():
    """Streams that are alive at exit, kept or not, are no error."""
    _, stderr = python("""
        import cupy, offload as omp
        with omp.Runtime("cuda:0"):
            held = omp.target(omp.current_stream)()
            held.use()
        omp.target(lambda: None)()
    """)
    assert "Exception" not in stderr
