"""Send batches through an inference engine with a stream of its own, by hand: three streams, three events a slot.

A batch is copied to a buffer, the engine computes, and the result is copied back, while the next batch is on its way in
and the one before on its way out. `interop_pipeline.py` is the same job in tasks. This program needs CuPy and a GPU.
"""

import sys

import cupy as cp
import numpy as np
from cupyx import empty_pinned


class Engine:
    """Two layers of a neural network, on a stream that the engine owns."""

    def __init__(self, first, second):
        self.weights = [cp.asarray(layer) for layer in (first, second)]
        cp.cuda.Device().synchronize()  # the weights are there for the stream
        self.stream = cp.cuda.Stream(non_blocking=True)

    def enqueue(self, x, y):
        """Enqueue the work on the engine's stream, and return."""
        with self.stream:
            forward(x, *self.weights, y)


def forward(x, first, second, y):
    y[...] = (x @ first).clip(0) @ second


def pipeline(engine, batches, results, n_slots=3):
    """Write the engine's output for each batch to the result of the same index."""
    inputs = [cp.empty(batches[0].shape) for _ in range(n_slots)]
    outputs = [cp.empty(results[0].shape) for _ in range(n_slots)]
    cp.cuda.Device().synchronize()  # the buffers are there for all streams
    into, back = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    arrived, computed, left = ([cp.cuda.Event(disable_timing=True) for _ in inputs] for _ in range(3))

    for number, (batch, result) in enumerate(zip(batches, results, strict=True)):
        slot = number % n_slots
        into.wait_event(computed[slot])  # the input buffer is free
        inputs[slot].set(batch, stream=into)
        arrived[slot].record(into)

        engine.stream.wait_event(arrived[slot])
        engine.stream.wait_event(left[slot])  # the output buffer is free
        engine.enqueue(inputs[slot], outputs[slot])
        computed[slot].record(engine.stream)

        back.wait_event(computed[slot])
        outputs[slot].get(stream=back, out=result, blocking=False)
        left[slot].record(back)
    back.synchronize()


def main(n_batches=8, rows=64):
    rng = np.random.default_rng(1)
    first, second = rng.standard_normal((64, 128)), rng.standard_normal((128, 10))
    batches, results = empty_pinned((n_batches, rows, 64), "f8"), empty_pinned((n_batches, rows, 10), "f8")
    batches[...] = rng.standard_normal(batches.shape)
    engine = Engine(first, second)
    pipeline(engine, batches, results)
    np.testing.assert_allclose(results, (batches @ first).clip(0) @ second, rtol=1e-9, atol=1e-9)
    print(f"{n_batches} batches of {rows} rows through an engine on a GPU: right")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
