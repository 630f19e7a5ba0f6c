"""A field that diffuses, and a watcher, by hand: two streams, two buffers, two events each, and a host callback.

One stream makes the next field from the one before, in the other buffer. A second stream follows it: of each field it
takes the share of the spectrum's power in short waves, by a cuFFT plan that is used again and again, copies that number
to the host, and has a callback add it up. `pingpong.py` is the same in tasks.
"""

import cupy
import cupyx.scipy.fft
import numpy as np
from cupyx import empty_pinned


def diffuse(old, new):
    around = old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:]
    new[1:-1, 1:-1] = old[1:-1, 1:-1] + 0.2 * (around - 4 * old[1:-1, 1:-1])


def measure(field, share, plan):
    power = abs(cupyx.scipy.fft.rfft2(field, plan=plan)) ** 2
    share[...] = power[:, power.shape[1] // 4 :].sum() / power.sum()


def run(start, steps):
    """Return the field after ``steps``, and sum and maximum of the shares on the way there."""
    fields = [cupy.asarray(start), cupy.asarray(start)]
    shares, found = cupy.empty((2, 1)), empty_pinned((2, 1), "f8")
    plan = cupyx.scipy.fft.get_fft_plan(fields[0], axes=(0, 1), value_type="R2C")
    produce, consume = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    produced, consumed = ([cupy.cuda.Event(disable_timing=True) for _ in fields] for _ in range(2))
    summary = np.zeros(2)

    def note(slot):
        share = found[slot, 0]
        summary[...] = summary[0] + share, max(summary[1], share)

    cupy.cuda.Stream.null.synchronize()  # the fields have arrived
    for step in range(steps):
        one, other = step % 2, 1 - step % 2

        produce.wait_event(consumed[other])  # the watcher has read what is there
        with produce:
            diffuse(fields[one], fields[other])
        produced[other].record(produce)

        consume.wait_event(produced[other])
        with consume:
            measure(fields[other], shares[other], plan)
            consumed[other].record(consume)
            shares[other].get(out=found[other], blocking=False)
        consume.launch_host_func(note, other)
    produce.synchronize()
    consume.synchronize()
    return fields[steps % 2].get(), summary


def main():
    start = np.zeros((48, 64))
    start[10:30, 20:50] = 1
    field, (total, largest) = run(start, steps=25)
    print(f"heat {field.sum():.6f}, short waves: mean {total / 25:.6f}, at most {largest:.6f}")


if __name__ == "__main__":
    main()
