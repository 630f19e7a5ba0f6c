"""The 3-D Fourier transform of a field that does not fit the device, with OpenMP's directives as strings.

The program computes the same as ``fft3d.py``, with the same tasks. ``fft3d.py`` also shows the pipeline in CUDA; with
OpenMP in C it is:

    void pipeline(cufftComplex *slab, const Box *box, int n_boxes)
    {
        for (int i = 0; i < n_boxes; i++) {
            int b = i % B;                              // buffers in turn
            cufftComplex *piece = slab + (box[i].z * ny + box[i].y) * nx + box[i].x;

            #pragma omp task depend(out: buffer[b])
            omp_target_memcpy_rect(buffer[b], piece, ...);

            omp_event_handle_t done;
            #pragma omp task depend(inout: buffer[b]) detach(done)
            {
                cufftExecC2C(plan[b], buffer[b], buffer[b], CUFFT_FORWARD);
                cudaLaunchHostFunc(fft, fulfill, (void *)done);
            }

            #pragma omp task depend(in: buffer[b])
            omp_target_memcpy_rect(piece, buffer[b], ...);
        }
        #pragma omp taskwait
    }

Run it: ``python examples/pragma_fft3d.py``.
"""

from typing import Any

import numpy as np
from fft3d import Pass, passes_over

import offload
from offload.pragma import directives, omp


@directives
def pipeline(slab: Any, boxes: list[Any], buffers: list[Any], transforms: list[Any]) -> None:
    """Take every box of the slab through a buffer, and back."""
    for number, box in enumerate(boxes):
        slot = number % len(buffers)
        piece, whole, transform = slab[box], buffers[slot], transforms[slot]
        buffer = whole[tuple(map(slice, piece.shape))]  # the last pieces may be smaller than the buffer

        with omp("task depend(out: whole)"):
            offload.target_memcpy_rect(buffer, piece)
        done = offload.Event()
        with omp("task depend(inout: whole) detach(done)"):
            stream = offload.current_stream()
            transform(buffer, stream)  # returns before the work is done,
            done.fulfill_on(stream)  # so the task is complete only when the stream has got here
        with omp("task depend(in: whole)"):
            offload.target_memcpy_rect(piece, buffer)
    omp("taskwait")  # a box of z needs all planes


def fft3d(slab: Any, passes: list[Pass]) -> None:
    """Transform the slab in place."""
    for one in passes:
        pipeline(slab, one.boxes, one.buffers, one.transforms)


def main() -> None:
    rng = np.random.default_rng(1)
    slab = rng.standard_normal((60, 128, 128)) + 1j * rng.standard_normal((60, 128, 128))
    expected = np.fft.fftn(slab)

    buffers = [offload.target_alloc(10 * 128 * 128, slab.dtype) for _ in range(3)]
    passes = passes_over(slab, buffers, planes=6, rows=8)
    fft3d(slab, passes)
    error = abs(slab - expected).max() / abs(expected).max()
    print(f"{' + '.join(str(len(one.boxes)) for one in passes)} pieces, largest relative error {error:.1e}")
    assert error < 1e-12

    del passes
    for buffer in buffers:
        offload.target_free(buffer)


if __name__ == "__main__":
    main()
