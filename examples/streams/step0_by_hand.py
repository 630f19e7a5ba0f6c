"""Correct the frames of a detector by hand: three streams, their events, and rings of pinned and device buffers.

Each frame is read into a pinned buffer, copied to the device, corrected there, copied back, and written. Three frames
are under way at a time. `step1.py` to `step5.py` turn this program into tasks.

Run it on a GPU with ``python examples/streams/step0_by_hand.py``, and anywhere with
``offload port examples/streams/step0_by_hand.py``.
"""

import cupy as cp
import numpy as np
from cupyx import empty_pinned


def correct(raw, dark, gain, clean):
    cp.subtract(raw, dark, out=clean)
    clean *= gain


def run(source, result, dark, gain, n_slots=3):
    """Correct the frames ``source[k]`` to ``result[k]``."""
    n, *shape = source.shape
    into, compute, back = (cp.cuda.Stream(non_blocking=True) for _ in range(3))
    arrived, computed, left = ([cp.cuda.Event(disable_timing=True) for _ in range(n_slots)] for _ in range(3))
    pinned_raw = [empty_pinned(shape, "u2") for _ in range(n_slots)]
    pinned_clean = [empty_pinned(shape, "f4") for _ in range(n_slots)]
    raw = [cp.empty(shape, "u2") for _ in range(n_slots)]
    clean = [cp.empty(shape, "f4") for _ in range(n_slots)]
    dark_there, gain_there = cp.empty(shape, "f4"), cp.empty(shape, "f4")
    dark_there.set(dark, stream=compute)
    gain_there.set(gain, stream=compute)

    for number in range(n):
        slot = number % n_slots
        arrived[slot].synchronize()  # the last frame of this pinned buffer has been copied
        pinned_raw[slot][...] = source[number]  # stands for reading a file

        into.wait_event(computed[slot])  # the last frame of this device buffer has been corrected
        raw[slot].set(pinned_raw[slot], stream=into)
        arrived[slot].record(into)

        if number >= n_slots:
            left[slot].synchronize()  # the last result is in the other pinned buffer
            result[number - n_slots] = pinned_clean[slot]  # stands for writing a file

        compute.wait_event(arrived[slot])
        with compute:
            correct(raw[slot], dark_there, gain_there, clean[slot])
            computed[slot].record()

        back.wait_event(computed[slot])
        clean[slot].get(stream=back, out=pinned_clean[slot], blocking=False)
        left[slot].record(back)

    for number in range(max(n - n_slots, 0), n):
        slot = number % n_slots
        left[slot].synchronize()
        result[number] = pinned_clean[slot]


def main():
    source = np.arange(8 * 60 * 80, dtype="u2").reshape(8, 60, 80)
    dark, gain = np.full((60, 80), 3, "f4"), np.linspace(0.5, 2, 4800, dtype="f4").reshape(60, 80)
    result = np.zeros(source.shape, "f4")
    run(source, result, dark, gain)
    assert (result == (source - dark) * gain).all()
    print(f"{len(result)} frames, sum {result.sum(dtype='f8'):.1f}")


if __name__ == "__main__":
    main()
