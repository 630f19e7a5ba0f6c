"""A ring of device buffers by hand: chunks go to the device, are changed there and come back, on three streams.

``offload port --emit FILE.py benchmarks/gpu/ring_cupy.py`` records it and writes its task form.
"""

from __future__ import annotations

import sys
import time

import cupy as cp
import cupyx
import numpy as np

chunks, elements = (int(argument) for argument in sys.argv[1:] or ("8", "64"))
slots = 3

source = cupyx.empty_pinned((chunks, elements), dtype="f4")
result = cupyx.empty_pinned((chunks, elements), dtype="f4")
source[...] = np.arange(chunks, dtype="f4")[:, None]
buffers = [cp.empty(elements, "f4") for _ in range(slots)]
down, work, up = (cp.cuda.Stream(non_blocking=True) for _ in range(3))
filled = [cp.cuda.Event() for _ in range(slots)]
changed = [cp.cuda.Event() for _ in range(slots)]
emptied = [cp.cuda.Event() for _ in range(slots)]


def pipeline():
    for i in range(chunks):
        k = i % slots
        down.wait_event(emptied[k])
        with down:
            buffers[k].set(source[i])
            filled[k].record()
        work.wait_event(filled[k])
        with work:
            cp.multiply(buffers[k], 2, out=buffers[k])
            cp.add(buffers[k], 1, out=buffers[k])
            changed[k].record()
        up.wait_event(changed[k])
        with up:
            buffers[k].get(out=result[i], blocking=False)
            emptied[k].record()
    up.synchronize()


def timed():
    """Return the seconds that the pipeline takes, and whether its result is right."""
    result[...] = -1
    began_s = time.perf_counter()
    pipeline()
    return time.perf_counter() - began_s, bool((result == 2 * source + 1).all())


print(timed()[1])
