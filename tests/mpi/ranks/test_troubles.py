"""What goes wrong where requests are looked after, on any number of ranks."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from tests.mpi.ranks.test_requests import completed
from tests.patience import until


class Refusing:
    """An object that raises where it is received."""

    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        return refuse, (self.error,)


def refuse(error):
    raise error


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_an_object_that_raises(runtime, comm, left, right, error):
    """Whatever it raises is the failure of its task alone: the thread that looks goes on."""
    received = np.zeros(1)
    other = completed(comm.Irecv(received, left, 6))[0]
    task = completed(comm.irecv(None, left, 5))[0]
    sent = comm.isend(Refusing(error), right, 5)
    until(task.done)
    with pytest.raises(error):
        task.result()
    sent.wait()
    comm.Send(np.ones(1), right, 6)
    other.result()
    assert received[0] == 1


def test_a_callback_that_would_wait(runtime, comm, left, right):
    """It is refused on the thread that looks, which would look no more."""
    told, received = [], np.zeros(1)
    other = completed(comm.Irecv(received, left, 6))[0]
    task = completed(comm.Irecv(np.zeros(1), left, 5))[0]

    def wait(_):
        try:
            other.result()
        except omp.UsageError as error:
            told.append(str(error))

    task.add_done_callback(wait)
    until(lambda: {task.state, other.state} == {"detached"})  # else the worker completes it, which may wait
    comm.Barrier()
    comm.Send(np.ones(1), right, 5)
    until(lambda: told)
    comm.Barrier()  # or the other message may come with the first one
    comm.Send(np.ones(1), right, 6)
    other.result()
    assert "must not wait" in told[0]
