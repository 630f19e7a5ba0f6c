"""The 3-D Fourier transform of a field that does not fit the device, through three buffers in turn.

The field ``slab[nz][ny][nx]`` lies in host memory. It is transformed in two passes over it: along y and x in groups of
whole planes, then along z in boxes that span all of z. Both passes are the same pipeline: each piece is copied to a
device buffer, transformed there by a library call that returns before the work is done, and copied back, while the
next piece is on its way in and the one before on its way out. In CUDA that is streams and events:

    enum { B = 3 };                                     // buffers in turn
    cudaStream_t in, fft, out;                          // one for each kind of work
    cudaEvent_t arrived[B], transformed[B], left[B];
    cufftComplex *buffer[B];
    cufftHandle plan[B];                                // one a buffer: a plan has one work area

    void pipeline(cufftComplex *slab, const Box *box, int n_boxes)
    {
        for (int i = 0; i < n_boxes; i++) {
            int b = i % B;
            cufftComplex *piece = slab + (box[i].z * ny + box[i].y) * nx + box[i].x;
            cudaMemcpy3DParms p = {0};
            p.srcPtr = make_cudaPitchedPtr(piece, nx * sizeof *slab, nx, ny);
            p.dstPtr = make_cudaPitchedPtr(buffer[b], box[0].nx * sizeof *slab, box[0].nx, box[0].ny);
            p.extent = make_cudaExtent(box[i].nx * sizeof *slab, box[i].ny, box[i].nz);
            p.kind = cudaMemcpyHostToDevice;

            cudaStreamWaitEvent(in, left[b], 0);        // the buffer is free
            cudaMemcpy3DAsync(&p, in);
            cudaEventRecord(arrived[b], in);

            cudaStreamWaitEvent(fft, arrived[b], 0);
            cufftSetStream(plan[b], fft);
            cufftExecC2C(plan[b], buffer[b], buffer[b], CUFFT_FORWARD);
            cudaEventRecord(transformed[b], fft);

            cudaStreamWaitEvent(out, transformed[b], 0);
            cudaPitchedPtr back = p.srcPtr; p.srcPtr = p.dstPtr; p.dstPtr = back;
            p.kind = cudaMemcpyDeviceToHost;
            cudaMemcpy3DAsync(&p, out);
            cudaEventRecord(left[b], out);
        }
        cudaStreamSynchronize(out);
    }

Below there are no streams to choose and no events to place: each step says what it reads and writes. The one event
there is belongs to OpenMP: the task that calls the library is not complete when its body returns, but when the
stream that it gave the work to has got there (``detach``).

Run it: ``python examples/fft3d.py``, or on a field of your own ``offload demo fft3d --input FIELD.npy``.
"""

import math
from typing import Any, NamedTuple

import numpy as np

import offload as omp
from offload import in_, inout, out

try:
    from scipy.fft import fftn, ifftn
except ImportError:
    from numpy.fft import fftn, ifftn


def pipeline(slab, boxes, buffers, transforms, *, into=None, nowait=True, each=None):
    """Take every box of the slab through a buffer, and back. ``each(task)`` is called as soon as one is there."""
    for number, box in enumerate(boxes):
        slot = number % len(buffers)
        piece, whole, transform = slab[box], buffers[slot], transforms[slot]
        result = piece if into is None else into[box]
        buffer = whole[tuple(map(slice, piece.shape))]  # the last pieces may be smaller than the buffer

        if nowait:
            done = omp.Event()
            omp.target_memcpy_rect_async(buffer, piece, depend=[out(whole)])
            library_call.options(depend=[inout(whole)], detach=done, name=f"fft {number}")(transform, buffer, done)
            back = omp.target_memcpy_rect_async(result, buffer, depend=[in_(whole)])
            if each:
                back.add_done_callback(each)
        else:
            stream = omp.current_stream()
            omp.target_memcpy_rect(buffer, piece)
            transform(buffer, stream)
            stream.synchronize()
            omp.target_memcpy_rect(result, buffer)
            if each:
                each(None)


@omp.task
def library_call(transform, buffer, done):
    stream = omp.current_stream()
    transform(buffer, stream)  # returns before the work is done,
    done.fulfill_on(stream)  # so the task is complete only when the stream has got here


def fft3d(slab, passes, *, nowait=True, each=None):
    """Transform the slab in place, in tasks or (``nowait=False``) one step after the other."""
    for one in passes:
        pipeline(slab, one.boxes, one.buffers, one.transforms, nowait=nowait, each=each)
        omp.taskwait()  # a box of z needs all planes


class CuFFT:
    """A cuFFT plan for one buffer, with a work area of its own, so that plans run side by side."""

    def __init__(self, buffer, axes, *, inverse=False):
        from cupy.cuda import cufft

        lengths = tuple(buffer.shape[axis] for axis in axes)
        kind = cufft.CUFFT_C2C if buffer.dtype == "complex64" else cufft.CUFFT_Z2Z
        count = buffer.size // math.prod(lengths)
        if buffer.strides[axes[-1]] == buffer.itemsize:  # lines or planes, one after the other
            between, apart = 1, math.prod(lengths)
        else:  # lines next to each other
            between, apart = count, 1
        layout = (lengths, lengths, between, apart, lengths, between, apart, kind, count)
        with buffer.device:
            self.plan = cufft.PlanNd(*layout, "C", len(axes) - 1, None)
        self.work_nbytes = self.plan.work_area.mem.size
        self.direction = cufft.CUFFT_INVERSE if inverse else cufft.CUFFT_FORWARD
        self.scale = 1 / math.prod(lengths) if inverse else None

    def __call__(self, buffer, stream):
        with buffer.device, stream:  # all of the buffer, whatever the piece in it: the rest does not go back
            self.plan.fft(buffer, buffer, self.direction)
            if self.scale:
                buffer *= buffer.dtype.type(self.scale)


class SimulatedFFT:
    """What stands for that library on the simulated device."""

    work_nbytes = 0

    def __init__(self, buffer, axes, *, inverse=False):
        self.axes = axes
        self.transform = ifftn if inverse else fftn

    def __call__(self, buffer, stream):
        stream.launch(self.run, buffer.unwrap())

    def run(self, array):
        array[...] = self.transform(array, axes=self.axes)


def library():
    """Return what makes the plans for the default device."""
    return CuFFT if omp.device(omp.get_default_device()).kind == "cuda" else SimulatedFFT


class Pass(NamedTuple):
    """One pass over the slab: the boxes, the buffers in the shape of the largest, and a plan for each buffer."""

    boxes: list[Any]
    buffers: list[Any]
    transforms: list[Any]


def passes_over(slab: Any, buffers: list[Any], *, planes: int, rows: int = 1, pencils: int = 1) -> list[Pass]:
    """Plan both passes: groups of ``planes`` cuts along z, then ``rows`` cuts along y and ``pencils`` along x."""
    every = slice(None)
    groups = [(z, every, every) for z in cuts(slab.shape[0], planes)]
    columns = [(every, y, x) for y in cuts(slab.shape[1], rows) for x in cuts(slab.shape[2], pencils)]
    return [one_pass(slab, groups, buffers, axes=(1, 2)), one_pass(slab, columns, buffers, axes=(0,))]


def one_pass(slab, boxes, buffers, axes):
    shape = tuple(map(max, zip(*(slab[box].shape for box in boxes), strict=True)))
    shaped = [flat[: math.prod(shape)].reshape(shape) for flat in buffers]
    return Pass(boxes, shaped, [library()(buffer, axes) for buffer in shaped])


def cuts(length, count):
    """Cut ``length`` into ``count`` slices in a row, equal but for one element."""
    return [slice(length * i // count, length * (i + 1) // count) for i in range(count)]


def main():
    rng = np.random.default_rng(1)
    slab = rng.standard_normal((60, 128, 128)) + 1j * rng.standard_normal((60, 128, 128))
    expected = np.fft.fftn(slab)

    buffers = [omp.target_alloc(10 * 128 * 128, slab.dtype) for _ in range(3)]
    passes = passes_over(slab, buffers, planes=6, rows=8)
    fft3d(slab, passes)
    error = abs(slab - expected).max() / abs(expected).max()
    print(f"{' + '.join(str(len(one.boxes)) for one in passes)} pieces, largest relative error {error:.1e}")
    assert error < 1e-12

    del passes
    for buffer in buffers:
        omp.target_free(buffer)


if __name__ == "__main__":
    main()
