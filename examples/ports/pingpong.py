"""A field that diffuses, and a watcher: four tasks a step, of which the last one runs on the host.

The port of `pingpong_cupy.py`. A cuFFT plan has one work area, so that only one transform at a time may use it: each
measurement names the plan as what it changes (``inout``). The callback of the stream is a task with two dependences; it
runs on a thread of the host, where it may do whatever Python may.

Run it: ``python examples/ports/pingpong.py``.
"""

import numpy as np

import offload as omp
from offload import in_, inout, out


@omp.target(nowait=True)
def diffuse(old, new):
    around = old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:]
    new[1:-1, 1:-1] = old[1:-1, 1:-1] + 0.2 * (around - 4 * old[1:-1, 1:-1])


@omp.target(nowait=True)
def measure(field, share, plan):
    power = abs(plan.rfft2(field)) ** 2
    share[...] = power[:, power.shape[1] // 4 :].sum() / power.sum()


@omp.task
def note(share, summary):
    summary[...] = summary[0] + share[0], max(summary[1], share[0])


class CuPlan:
    """A plan of cuFFT."""

    def __init__(self, field):
        import cupyx.scipy.fft

        self.library = cupyx.scipy.fft
        self.plan = self.library.get_fft_plan(field, axes=(0, 1), value_type="R2C")

    def rfft2(self, field):
        return self.library.rfft2(field, plan=self.plan)


class SimulatedPlan:
    """Its twin on the simulated device, whose library needs no plan."""

    def __init__(self, field):
        self.library = omp.array_namespace(field)

    def rfft2(self, field):
        return self.library.fft.rfft2(field)


def run(start, steps):
    """Return the field after ``steps``, and sum and maximum of the shares on the way there."""
    shape, dtype = start.shape, start.dtype
    found = [omp.empty_pinned(1, dtype) for _ in range(2)]
    summary, result = np.zeros(2), np.empty_like(start)
    with omp.buffers(2, shape, dtype) as fields, omp.buffers(2, 1, dtype) as shares:
        plan = (CuPlan if omp.device(0).kind == "cuda" else SimulatedPlan)(fields[0])
        for field in fields:
            omp.copy(field, start)

        # Clauses are made once. Those of slot i are about field i; the step from field i leads to the other one.
        produce = [diffuse.options(depend=[in_(fields[i]), out(fields[1 - i])]) for i in range(2)]
        consume = [measure.options(depend=[in_(fields[i]), out(shares[i]), inout(plan)]) for i in range(2)]
        copied = [[in_(shares[i]), out(found[i])] for i in range(2)]
        noted = [note.options(depend=[in_(found[i]), inout(summary)]) for i in range(2)]

        for step in range(steps):
            one, other = step % 2, 1 - step % 2
            produce[one](fields[one], fields[other])
            consume[other](fields[other], shares[other], plan)
            omp.copy(found[other], shares[other], depend=copied[other], nowait=True)
            noted[other](found[other], summary)
        omp.copy(result, fields[steps % 2], depend=[in_(fields[steps % 2])], nowait=True)
    return result, summary


def main():
    start = np.zeros((48, 64))
    start[10:30, 20:50] = 1
    field, (total, largest) = run(start, steps=25)
    print(f"heat {field.sum():.6f}, short waves: mean {total / 25:.6f}, at most {largest:.6f}")
    assert 0 < total / 25 < largest < 1


if __name__ == "__main__":
    main()
