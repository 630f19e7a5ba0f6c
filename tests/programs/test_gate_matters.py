"""The pipeline is right because of the detach event, whatever the order in which things happen."""

from __future__ import annotations

import numpy as np

import offload as omp
from offload import in_, inout, out
from offload.cli.demo.examples import load_example
from offload.devices.sim.stream import SimEvent

FIELD = np.arange(24.0).reshape(2, 3, 4) ** 2 + 0j


def transform_held_by_a_latch(*, detach):
    """One piece of the pipeline, whose transform is held on its stream.

    Returns the slab as the copy back left it; without ``detach`` that was while the latch was shut.
    """
    slab = FIELD.copy()
    with omp.Runtime("sim", check=True):
        device = omp.devices()[0]
        stream = device.new_stream()  # of no other work
        latch = SimEvent(device)
        buffer = omp.target_alloc(slab.shape, slab.dtype)
        done = omp.Event()

        def run(array):
            array[...] = np.fft.fftn(array)

        @omp.task(depend=[inout(buffer)])
        def library_call():
            stream.wait_event(latch)
            stream.launch(run, buffer.unwrap())  # returns before the work is done
            done.fulfill_on(stream)

        omp.target_memcpy_rect_async(buffer, slab, depend=[out(buffer)])
        called = library_call.options(detach=done)() if detach else library_call()
        back = omp.target_memcpy_rect_async(slab, buffer, depend=[in_(buffer)])
        if detach:
            assert not called.done()
            assert not back.done()
            assert not done.is_fulfilled
        else:
            back.result()  # without waiting for the latch
        latch.fire()
        omp.taskwait()
        stream.synchronize()
        omp.target_free(buffer)
    return slab


def test_without_detach_the_result_is_wrong():
    """The task that called the library is complete too early, and the piece goes back untransformed."""
    assert (transform_held_by_a_latch(detach=False) == FIELD).all()


def test_with_detach_the_result_is_right():
    """The copy back waits for the work, not for the call."""
    assert np.allclose(transform_held_by_a_latch(detach=True), np.fft.fftn(FIELD))


def test_two_hundred_repetitions_make_the_same_bits():
    """Ready order, placement of bodies and interleaving of streams, drawn from 200 seeds, change nothing."""
    example = load_example("fft3d")
    rng = np.random.default_rng(7)
    field = rng.standard_normal((4, 6, 5)) + 1j * rng.standard_normal((4, 6, 5))
    first = None
    for seed in range(200):
        slab = field.copy()
        with omp.Runtime("sim", seed=seed, check=True):
            buffers = [omp.target_alloc(slab.size, slab.dtype) for _ in range(3)]
            example.fft3d(slab, example.passes_over(slab, buffers, planes=4, pencils=5))
            for buffer in buffers:
                omp.target_free(buffer)
        if first is None:
            first = slab
            assert np.allclose(slab, np.fft.fftn(field))
        assert (slab == first).all(), f"seed {seed} differs"
