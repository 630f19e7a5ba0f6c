"""Step 4: blocks own the memory of the device. Nothing is freed by hand."""

import numpy as np

import offload as omp
from offload import in_, out, to


@omp.task(depend=[out("buffer")])
def read(source, number, buffer):
    buffer[...] = source[number]  # stands for reading a file


@omp.target(nowait=True, depend=[in_("raw"), out("clean")])
def correct(raw, dark, gain, clean):
    np.subtract(raw, dark, out=clean)
    clean *= gain


@omp.task(depend=[in_("buffer")])
def write(result, number, buffer):
    result[number] = buffer  # stands for writing a file


def run(source, result, dark, gain, n_slots=3):
    """Correct the frames ``source[k]`` to ``result[k]``."""
    n, *shape = source.shape
    pinned_raw = [omp.empty_pinned(shape, "u2") for _ in range(n_slots)]
    pinned_clean = [omp.empty_pinned(shape, "f4") for _ in range(n_slots)]
    with (
        omp.target_data(map=[to(dark, gain)]),
        omp.buffers(n_slots, shape, "u2") as raw,
        omp.buffers(n_slots, shape, "f4") as clean,
    ):
        for number in range(n):
            slot = number % n_slots
            read(source, number, pinned_raw[slot])
            omp.copy(raw[slot], pinned_raw[slot], depend=[in_(pinned_raw[slot]), out(raw[slot])], nowait=True)
            correct(raw[slot], dark, gain, clean[slot])
            omp.copy(pinned_clean[slot], clean[slot], depend=[in_(clean[slot]), out(pinned_clean[slot])], nowait=True)
            write(result, number, pinned_clean[slot])


def main():
    source = np.arange(8 * 60 * 80, dtype="u2").reshape(8, 60, 80)
    dark, gain = np.full((60, 80), 3, "f4"), np.linspace(0.5, 2, 4800, dtype="f4").reshape(60, 80)
    result = np.zeros(source.shape, "f4")
    run(source, result, dark, gain)
    assert (result == (source - dark) * gain).all()
    print(f"{len(result)} frames, sum {result.sum(dtype='f8'):.1f}")


if __name__ == "__main__":
    main()
