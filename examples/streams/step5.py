"""Step 5: the region maps its arrays. The copies and the buffers on the device follow from its ``map`` clause.

The rings of pinned buffers are left. Their length says how many frames are under way.
"""

import numpy as np

import offload as omp
from offload import from_, in_, out, to


@omp.task(depend=[out("buffer")])
def read(source, number, buffer):
    buffer[...] = source[number]  # stands for reading a file


@omp.target(nowait=True, map=[to("raw", "dark", "gain"), from_("clean")], depend=[in_("raw"), out("clean")])
def correct(raw, dark, gain, clean):
    np.subtract(raw, dark, out=clean)
    clean *= gain


@omp.task(depend=[in_("buffer")])
def write(result, number, buffer):
    result[number] = buffer  # stands for writing a file


def run(source, result, dark, gain, n_slots=3):
    """Correct the frames ``source[k]`` to ``result[k]``."""
    n, *shape = source.shape
    raw = [omp.empty_pinned(shape, "u2") for _ in range(n_slots)]
    clean = [omp.empty_pinned(shape, "f4") for _ in range(n_slots)]
    with omp.target_data(map=[to(dark, gain)]):
        for number in range(n):
            slot = number % n_slots
            read(source, number, raw[slot])
            correct(raw[slot], dark, gain, clean[slot])
            write(result, number, clean[slot])


def main():
    source = np.arange(8 * 60 * 80, dtype="u2").reshape(8, 60, 80)
    dark, gain = np.full((60, 80), 3, "f4"), np.linspace(0.5, 2, 4800, dtype="f4").reshape(60, 80)
    result = np.zeros(source.shape, "f4")
    run(source, result, dark, gain)
    assert (result == (source - dark) * gain).all()
    print(f"{len(result)} frames, sum {result.sum(dtype='f8'):.1f}")


if __name__ == "__main__":
    main()
