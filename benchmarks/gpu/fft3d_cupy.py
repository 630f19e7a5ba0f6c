"""The pipeline of examples/fft3d.py written by hand: CuPy streams and events, `cudaMemcpy2DAsync`, no `offload`.

`offload demo fft3d --devices cuda --json --peer` times it in turn with ours, on the same slab, boxes,
buffers and plans.
"""

import cupy
from cupy.cuda import runtime

TO_DEVICE, TO_HOST = runtime.memcpyHostToDevice, runtime.memcpyDeviceToHost


class Streams:
    """Three streams, one for each kind of work, and three events for each buffer."""

    def __init__(self, buffers):
        with buffers[0].device:
            self.into, self.fft, self.out = (cupy.cuda.Stream(non_blocking=True) for _ in range(3))
            self.arrived, self.transformed, self.left = (
                [cupy.cuda.Event(disable_timing=True) for _ in buffers] for _ in range(3)
            )


def copy_box(dst, src, kind, stream):
    """One call for a box of a C-ordered array: whole planes, whole rows or pencils."""
    host, device = (src, dst) if kind == TO_DEVICE else (dst, src)
    address = {id(host): host.ctypes.data, id(device): device.data.ptr}
    to, at = address[id(dst)], address[id(src)]
    nz, ny, nx = host.shape
    item = host.itemsize
    if host.flags.c_contiguous and device.flags.c_contiguous:
        runtime.memcpyAsync(to, at, host.nbytes, kind, stream.ptr)
    elif host.strides[1] == nx * item and device.strides[1] == nx * item:  # whole rows: nz runs of ny rows
        runtime.memcpy2DAsync(to, dst.strides[0], at, src.strides[0], ny * nx * item, nz, kind, stream.ptr)
    else:  # pencils: nz * ny short rows
        runtime.memcpy2DAsync(to, dst.strides[1], at, src.strides[1], nx * item, nz * ny, kind, stream.ptr)


def fft3d(slab, passes, streams):
    """Transform the slab in place; ``passes`` as `passes_over` of the example returns them."""
    s = streams
    for one in passes:
        for number, box in enumerate(one.boxes):
            slot = number % len(one.buffers)
            piece = slab[box]
            buffer = one.buffers[slot][tuple(map(slice, piece.shape))]

            s.into.wait_event(s.left[slot])
            copy_box(buffer, piece, TO_DEVICE, s.into)
            s.arrived[slot].record(s.into)

            s.fft.wait_event(s.arrived[slot])
            one.transforms[slot](buffer, s.fft)
            s.transformed[slot].record(s.fft)

            s.out.wait_event(s.transformed[slot])
            copy_box(piece, buffer, TO_HOST, s.out)
            s.left[slot].record(s.out)
        s.out.synchronize()
