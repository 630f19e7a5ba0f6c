"""A host task leaves work on a stream, which fulfils its event."""

import numpy as np

import offload as omp
from offload import in_, inout, out


def scale(d):
    d *= 10


@omp.task(depend=[inout("d")])
def call(d, done):
    stream = omp.current_stream()
    stream.launch(scale, d)
    done.fulfill_on(stream)


@omp.target(nowait=True, depend=[inout("d")])
def shift(d):
    d += 1


d, found = omp.target_alloc(4, np.float64), np.zeros(4)
omp.target_memcpy_async(d, np.arange(4.0), depend=[out(d)])
for _ in range(2):
    done = omp.Event()
    call.options(detach=done)(d, done)
    shift(d)
omp.target_memcpy_async(found, d, depend=[in_(d)])
omp.taskwait()
print(found.tolist())
omp.target_free(d)
