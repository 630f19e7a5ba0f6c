"""The kernels of strided copies; `offload.data.copies` describes their work."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np

from offload.data.copies import MAX_AXES, TILE, TILE_LANES, WIDTHS, Kernel, Units

if TYPE_CHECKING:
    from offload.data.copies import Axis

_THREADS = TILE_LANES
_PER_THREAD = {16: 4, 8: 4, 4: 8, 2: 8, 1: 8}
"""Elements of a thread, by width: enough bytes in flight to hide the latency of memory."""

_LANES = (32, 8)
_AXIS = struct.Struct("IIII qq")
_HEAD = struct.Struct("QQ III III")
_WORK_NBYTES = _HEAD.size + MAX_AXES * _AXIS.size
_WORK = np.dtype((np.void, _WORK_NBYTES))

_SOURCE = r"""
struct Axis { unsigned count, multiplier, shift, unused; long long dst, src; };

struct Work {
    char* dst;
    const char* src;
    unsigned units, row_nbytes, n_axes, extent_dst, extent_src, unused;
    Axis axes[MAX_AXES];
};

// Turns the number of a unit into its place on both sides, from axis `first` on.
__device__ __forceinline__ void locate(const Work& work, unsigned n, int first, long long& dst, long long& src) {
    #pragma unroll
    for (int i = 0; i < MAX_AXES; ++i) {
        if (i < first) continue;
        if (i >= work.n_axes) break;
        const Axis& axis = work.axes[i];
        unsigned quotient = (__umulhi(n, axis.multiplier) + n) >> axis.shift;
        unsigned index = n - quotient * axis.count;
        dst += (long long)index * axis.dst;
        src += (long long)index * axis.src;
        n = quotient;
    }
}

template <class T, int PER_THREAD>
__device__ __forceinline__ void flat(const Work& work) {
    unsigned begin = blockIdx.x * (THREADS * PER_THREAD) + threadIdx.x;
    unsigned stride = gridDim.x * (THREADS * PER_THREAD);
    for (; begin < work.units; begin += stride) {
        T value[PER_THREAD];
        long long to[PER_THREAD];
        #pragma unroll
        for (int k = 0; k < PER_THREAD; ++k) {
            unsigned unit = begin + k * THREADS;
            if (unit < work.units) {
                long long from = 0;
                to[k] = 0;
                locate(work, unit, 0, to[k], from);
                value[k] = *(const T*)(work.src + from);
            }
        }
        #pragma unroll
        for (int k = 0; k < PER_THREAD; ++k)
            if (begin + k * THREADS < work.units) *(T*)(work.dst + to[k]) = value[k];
    }
}

// A unit is a segment of 64 * LANES bytes of a row. Segments begin at multiples of 16 bytes of the destination, except
// for the first, which has the row's head of up to 15 bytes as well.
template <int LANES>
__device__ __forceinline__ void rows(const Work& work) {
    const unsigned SEGMENT = LANES * 64;
    const unsigned lane = threadIdx.x % LANES;
    unsigned unit = (blockIdx.x * THREADS + threadIdx.x) / LANES;
    const unsigned step = gridDim.x * (THREADS / LANES);
    for (; unit < work.units; unit += step) {
        const Axis& segments = work.axes[0];
        unsigned row = (__umulhi(unit, segments.multiplier) + unit) >> segments.shift;
        unsigned begin = (unit - row * segments.count) * SEGMENT;
        long long dst_offset = 0, src_offset = 0;
        locate(work, row, 1, dst_offset, src_offset);
        char* dst = work.dst + dst_offset;
        const char* src = work.src + src_offset;
        unsigned head = (unsigned)(-(long long)dst) & 15;
        if (head > work.row_nbytes) head = work.row_nbytes;
        if (begin == 0) {
            for (unsigned i = lane; i < head; i += LANES) dst[i] = src[i];
        }
        begin += head;
        if (begin >= work.row_nbytes) continue;
        unsigned nbytes = work.row_nbytes - begin;
        if (nbytes > SEGMENT) nbytes = SEGMENT;
        dst += begin;
        src += begin;
        unsigned words = nbytes / 16, shift = (unsigned)(long long)src & 15;
        uint4 value[4];
        if (shift == 0) {
            #pragma unroll
            for (int k = 0; k < 4; ++k)
                if (lane + k * LANES < words) value[k] = ((const uint4*)src)[lane + k * LANES];
        } else {
            // Aligned words of 4 bytes, each of which has a byte of the row in it.
            const unsigned* from = (const unsigned*)(src - (shift & 3));
            const unsigned bits = (shift & 3) * 8;
            #pragma unroll
            for (int k = 0; k < 4; ++k) {
                if (lane + k * LANES < words) {
                    const unsigned* word = from + (lane + k * LANES) * 4;
                    uint4 low = make_uint4(word[0], word[1], word[2], word[3]);
                    if (bits) {
                        unsigned last = word[4];
                        low.x = __funnelshift_r(low.x, low.y, bits);
                        low.y = __funnelshift_r(low.y, low.z, bits);
                        low.z = __funnelshift_r(low.z, low.w, bits);
                        low.w = __funnelshift_r(low.w, last, bits);
                    }
                    value[k] = low;
                }
            }
        }
        #pragma unroll
        for (int k = 0; k < 4; ++k)
            if (lane + k * LANES < words) ((uint4*)dst)[lane + k * LANES] = value[k];
        for (unsigned i = words * 16 + lane; i < nbytes; i += LANES) dst[i] = src[i];
    }
}

// A unit is a tile, for a block. It is read along the axis that is contiguous in the source, written along the other.
template <class T>
__device__ __forceinline__ void tiles(const Work& work) {
    __shared__ T tile[TILE][TILE + 1];
    const Axis &along_dst = work.axes[0], &along_src = work.axes[1];
    const long long dst_x = along_dst.dst / TILE, dst_y = along_src.dst / TILE;
    const long long src_x = along_src.src / TILE, src_y = along_dst.src / TILE;
    const unsigned x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    for (unsigned unit = blockIdx.x; unit < work.units; unit += gridDim.x) {
        unsigned rest = (__umulhi(unit, along_dst.multiplier) + unit) >> along_dst.shift;
        unsigned begin_dst = (unit - rest * along_dst.count) * TILE;
        unsigned outer = (__umulhi(rest, along_src.multiplier) + rest) >> along_src.shift;
        unsigned begin_src = (rest - outer * along_src.count) * TILE;
        long long dst_offset = begin_dst * dst_x + begin_src * dst_y;
        long long src_offset = begin_dst * src_y + begin_src * src_x;
        locate(work, outer, 2, dst_offset, src_offset);
        unsigned n_dst = work.extent_dst - begin_dst, n_src = work.extent_src - begin_src;
        #pragma unroll
        for (unsigned k = y; k < TILE; k += THREADS / TILE)
            if (x < n_src && k < n_dst) tile[k][x] = *(const T*)(work.src + src_offset + k * src_y + x * src_x);
        __syncthreads();
        #pragma unroll
        for (unsigned k = y; k < TILE; k += THREADS / TILE)
            if (x < n_dst && k < n_src) *(T*)(work.dst + dst_offset + x * dst_x + k * dst_y) = tile[x][k];
        __syncthreads();
    }
}

extern "C" {
"""

_TYPES = {16: "uint4", 8: "unsigned long long", 4: "unsigned", 2: "unsigned short", 1: "unsigned char"}


class CopyKernels:
    """The kernels of a device, loaded.

    CUDA loads code when it is first used, and waits for running kernels to do so; therefore every kernel is launched
    once, with nothing to do. Compilation is cached on disk by CuPy.
    """

    def __init__(self) -> None:
        """Compile and load for the calling thread's device."""
        module = cupy.RawModule(code=_source(), options=("-std=c++17",))
        self._flat = {width: module.get_function(f"copy_flat_{width}").kernel for width in WIDTHS}
        self._rows = {lanes: module.get_function(f"copy_rows_{lanes}").kernel for lanes in _LANES}
        self._tiles = {width: module.get_function(f"copy_tiles_{width}").kernel for width in WIDTHS}
        nothing = (np.array(b"", _WORK),)
        for kernel in (*self._flat.values(), *self._rows.values(), *self._tiles.values()):
            kernel((1,), (_THREADS,), nothing)

    def launch(self, units: Units, dst: int, src: int, stream: Any, max_blocks: int = 0) -> None:
        """Enqueue a copy on a stream of the calling thread's device.

        Parameters
        ----------
        dst, src : int
            Addresses of the box's first row.
        max_blocks : int
            A bound for the blocks, where the link is the limit and not the device's memory; 0 for none.
        """
        if units.kernel is Kernel.FLAT:
            kernel, per_block = self._flat[units.width], _THREADS * _PER_THREAD[units.width]
        elif units.kernel is Kernel.TILES:
            kernel, per_block = self._tiles[units.width], 1
        else:
            kernel, per_block = self._rows[units.lanes], _THREADS // units.lanes
        blocks = -(-units.count // per_block)
        if max_blocks and blocks > max_blocks:
            blocks = max_blocks
        kernel((blocks,), (_THREADS,), (_work(units, dst, src),), stream=stream)


def _source() -> str:
    """Return the source of all kernels."""
    lines = [f"#define MAX_AXES {MAX_AXES}", f"#define THREADS {_THREADS}", f"#define TILE {TILE}", _SOURCE]
    head = "__global__ void __launch_bounds__(THREADS)"
    work = "const __grid_constant__ Work work"
    lines += [
        f"{head} copy_flat_{width}({work}) {{ flat<{_TYPES[width]}, {_PER_THREAD[width]}>(work); }}" for width in WIDTHS
    ]
    lines += [f"{head} copy_rows_{lanes}({work}) {{ rows<{lanes}>(work); }}" for lanes in _LANES]
    lines += [f"{head} copy_tiles_{width}({work}) {{ tiles<{_TYPES[width]}>(work); }}" for width in WIDTHS]
    return "\n".join([*lines, "}"])


def _work(units: Units, dst: int, src: int) -> np.ndarray[Any, Any]:
    """Return the argument of a kernel, ``struct Work``, as CuPy passes it by value."""
    data = bytearray(_WORK_NBYTES)
    _HEAD.pack_into(data, 0, dst, src, units.count, units.row_nbytes, len(units.axes), *units.extents, 0)
    at = _HEAD.size
    for axis in units.axes:
        _AXIS.pack_into(data, at, *_numbers(axis))
        at += _AXIS.size
    return np.frombuffer(data, _WORK)


def _numbers(axis: Axis) -> tuple[int, ...]:
    return axis.count, axis.multiplier, axis.shift, 0, axis.dst_stride_nbytes, axis.src_stride_nbytes
