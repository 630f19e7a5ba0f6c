"""Send batches through an inference engine that has a stream of its own: ``interop`` orders the engine with tasks.

Many libraries do not know tasks: you call a function, and it enqueues work on a stream. `Engine` stands for such a
library, for example TensorRT or your own CuPy functions. In an ``interop`` block, its work runs after the tasks that
``depend`` lists, and later tasks run after it. The streams wait for each other. So the next batch is copied to the
device while the engine computes, and the host waits once, at the end.

Run it: ``python examples/interop_pipeline.py``, or with the number of batches and their rows: ``… 64 4096``.
"""

import sys

import numpy as np

import offload as omp
from offload import in_, out


class Engine:
    """Two layers of a neural network, on a stream that the engine owns."""

    def __init__(self, first, second):
        self.weights = [omp.target_alloc(layer.shape, layer.dtype) for layer in (first, second)]
        for there, layer in zip(self.weights, (first, second), strict=True):
            omp.copy(there, layer)
        self.stream = omp.stream(1)  # a cupy.cuda.Stream, or one of the simulated device

    def enqueue(self, x, y):
        """Enqueue the work on the engine's stream, and return."""
        if omp.device(0).kind == "cuda":
            with self.stream:
                forward(x, *self.weights, y)
        else:
            self.stream.launch(forward, *(array.unwrap() for array in (x, *self.weights, y)))

    def close(self):
        for there in self.weights:
            omp.target_free(there)


def forward(x, first, second, y):
    y[...] = (x @ first).clip(0) @ second


def pipeline(engine, batches, results, n_slots=3):
    """Write the engine's output for each batch to the result of the same index."""
    shapes = batches[0].shape, results[0].shape
    with omp.buffers(n_slots, shapes[0]) as inputs, omp.buffers(n_slots, shapes[1]) as outputs:
        for number, (batch, result) in enumerate(zip(batches, results, strict=True)):
            x, y = inputs[number], outputs[number]
            omp.copy(x, batch, depend=[out(x)], nowait=True)
            with omp.interop(depend=[in_(x), out(y)], stream=engine.stream):
                engine.enqueue(x, y)
            omp.copy(result, y, depend=[in_(y)], nowait=True)


def main(n_batches=8, rows=64):
    rng = np.random.default_rng(1)
    first, second = rng.standard_normal((64, 128)), rng.standard_normal((128, 10))
    batches, results = omp.empty_pinned((n_batches, rows, 64)), omp.empty_pinned((n_batches, rows, 10))
    batches[...] = rng.standard_normal(batches.shape)
    engine = Engine(first, second)
    pipeline(engine, batches, results)
    engine.close()
    np.testing.assert_allclose(results, (batches @ first).clip(0) @ second, rtol=1e-9, atol=1e-9)
    print(f"{n_batches} batches of {rows} rows through an engine on {omp.device(0).name}: right")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
