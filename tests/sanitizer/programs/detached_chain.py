"""Host tasks that leave work on streams, one after the other, and a task that the host completes."""

import numpy as np

import offload as omp
from offload import in_, inout, out


def scale(d, factor):
    d *= factor


def add(d, e):
    e += d


@omp.task
def enqueue(function, d, other, done):
    stream = omp.current_stream()
    stream.launch(function, d, other)
    done.fulfill_on(stream)


@omp.task(depend=[in_("found"), out("total")])
def add_up(found, total):
    total[...] = found.sum()


d, e = omp.target_alloc(4, np.float64), omp.target_alloc(4, np.float64)
found, total = np.zeros(4), np.array(0.0)
omp.target_memcpy(d, np.arange(4.0))
omp.target_memcpy(e, np.ones(4))
scaled, added, again = omp.Event(), omp.Event(), omp.Event()
enqueue.options(detach=scaled, depend=[inout(d)])(scale, d, 3, scaled)
enqueue.options(detach=added, depend=[in_(d), inout(e)])(add, d, e, added)
enqueue.options(detach=again, depend=[inout(d)])(scale, d, 0, again)
omp.copy(found, e, depend=[in_(e), out(found)], nowait=True)
shown = omp.Event()
add_up.options(detach=shown)(found, total)
omp.taskwait(depend=[in_(found)])
print(found.tolist())
shown.fulfill()
omp.taskwait(depend=[inout(total)])
print(float(total))
omp.taskwait()
omp.target_free(d)
omp.target_free(e)
