"""Step 1: the operations are tasks. Each stream and each event has become a token that the tasks list in ``depend``.

The streams and events of `step0_by_hand.py` are translated call by call, in the order of the program.
"""

import numpy as np

import offload as omp
from offload import in_, inout, out

INTO, COMPUTE, BACK = ("into",), ("compute",), ("back",)  # a stream: the tasks with inout of its token run in order


@omp.target(nowait=True)
def correct(raw, dark, gain, clean):
    np.subtract(raw, dark, out=clean)
    clean *= gain


def run(source, result, dark, gain, n_slots=3):
    """Correct the frames ``source[k]`` to ``result[k]``."""
    n, *shape = source.shape
    pinned_raw = [omp.empty_pinned(shape, "u2") for _ in range(n_slots)]
    pinned_clean = [omp.empty_pinned(shape, "f4") for _ in range(n_slots)]
    raw = [omp.target_alloc(shape, "u2") for _ in range(n_slots)]
    clean = [omp.target_alloc(shape, "f4") for _ in range(n_slots)]
    dark_there, gain_there = omp.target_alloc(shape, "f4"), omp.target_alloc(shape, "f4")
    omp.copy(dark_there, dark, depend=[inout(COMPUTE)], nowait=True)
    omp.copy(gain_there, gain, depend=[inout(COMPUTE)], nowait=True)

    for number in range(n):
        slot = number % n_slots
        arrived, computed, left = ("arrived", slot), ("computed", slot), ("left", slot)
        omp.taskwait(depend=[in_(arrived)])
        pinned_raw[slot][...] = source[number]  # stands for reading a file

        fill = [inout(INTO), in_(computed), out(arrived)]
        omp.copy(raw[slot], pinned_raw[slot], depend=fill, nowait=True)

        if number >= n_slots:
            omp.taskwait(depend=[in_(left)])
            result[number - n_slots] = pinned_clean[slot]  # stands for writing a file

        step = [inout(COMPUTE), in_(arrived), out(computed)]
        correct.options(depend=step)(raw[slot], dark_there, gain_there, clean[slot])

        drain = [inout(BACK), in_(computed), out(left)]
        omp.copy(pinned_clean[slot], clean[slot], depend=drain, nowait=True)

    for number in range(max(n - n_slots, 0), n):
        slot = number % n_slots
        omp.taskwait(depend=[in_(("left", slot))])
        result[number] = pinned_clean[slot]
    omp.taskwait()
    for buffer in (*raw, *clean, dark_there, gain_there):
        omp.target_free(buffer)


def main():
    source = np.arange(8 * 60 * 80, dtype="u2").reshape(8, 60, 80)
    dark, gain = np.full((60, 80), 3, "f4"), np.linspace(0.5, 2, 4800, dtype="f4").reshape(60, 80)
    result = np.zeros(source.shape, "f4")
    run(source, result, dark, gain)
    assert (result == (source - dark) * gain).all()
    print(f"{len(result)} frames, sum {result.sum(dtype='f8'):.1f}")


if __name__ == "__main__":
    main()
