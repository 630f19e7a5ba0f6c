"""The kernels of strided copies; `offload.arrays.units` describes their work."""

from __future__ import annotations

import ctypes
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import cupy
from cupy.cuda import driver
from cupy.cuda import runtime as cuda

from offload.arrays.units import ALIGNMENT, MAX_AXES, TILE_LANES, TILES, WIDTHS, TurnedTile, UnitKind, Units, units
from offload.devices.cuda.indexed_kernels import call_of, kernels, prelude

if TYPE_CHECKING:
    from offload.arrays.boxes import Box

_THREADS = TILE_LANES  # of a block, in each kernel
# Elements of a thread, by width: enough bytes in flight to hide the latency of memory.
_PER_THREAD = {16: 4, 8: 4, 4: 8, 2: 8, 1: 8}

_LANES = (32, 8)
_NO_CONTEXT = 201  # CUDA_ERROR_INVALID_CONTEXT

# Launches that are remembered: a program makes copies of few shapes, and a plan takes longer than a launch.
_PLANS = 1024

# What a launch hands over: the address of the kernel's argument, and that argument itself, ``struct Work``.
_ADDRESS = struct.Struct("P")
_ADDRESSES = struct.Struct("PPP")
_HEAD = struct.Struct("PPP III II II I")
_AXIS = struct.Struct("IIII qq")
_CALL_NBYTES = _HEAD.size + MAX_AXES * _AXIS.size
_WORK_AT = struct.calcsize("P")
_Call = ctypes.c_char * _CALL_NBYTES

_SOURCE = r"""
struct Axis { unsigned count, multiplier, shift, unused; long long dst, src; };

struct Work {
    char* dst;
    const char* src;
    unsigned units, row_nbytes, n_axes, extent_dst, extent_src, axis_dst, axis_src, unused;
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

// Turns a square of items round, which is as many words as a word has items.
template <class T, class W>
__device__ __forceinline__ void turn(const W (&in)[sizeof(W) / sizeof(T)], W (&out)[sizeof(W) / sizeof(T)]) {
    if constexpr (sizeof(W) == sizeof(T)) {
        out[0] = in[0];
    } else if constexpr (sizeof(T) == 2) {
        out[0] = __byte_perm(in[0], in[1], 0x5410);
        out[1] = __byte_perm(in[0], in[1], 0x7632);
    } else {
        unsigned a = __byte_perm(in[0], in[1], 0x5140), b = __byte_perm(in[2], in[3], 0x5140);
        unsigned c = __byte_perm(in[0], in[1], 0x7362), d = __byte_perm(in[2], in[3], 0x7362);
        out[0] = __byte_perm(a, b, 0x5410);
        out[1] = __byte_perm(a, b, 0x7632);
        out[2] = __byte_perm(c, d, 0x5410);
        out[3] = __byte_perm(c, d, 0x7632);
    }
}

// Moves a tile of X x Y squares: lanes read along the source and write along the destination. Every load of a thread is
// under way before its first store. Of an EDGE there are `nx` x `ny` squares.
template <class T, class W, int X, int Y, bool EDGE>
__device__ __forceinline__ void tile(char* dst, const char* src, long long dst_x, long long dst_y, long long src_x,
                                     long long src_y, unsigned nx, unsigned ny, W* turned) {
    constexpr int SQUARE = sizeof(W) / sizeof(T), N = X * Y / THREADS, PITCH = Y + 1;
    constexpr int ROWS = THREADS / X, COLUMNS = THREADS / Y;  // of squares, that all threads have at a time
    W value[N][SQUARE];
    {
        const unsigned x = threadIdx.x % X, y = threadIdx.x / X;
        const char* from = src + (long long)(y * SQUARE) * src_y + (long long)(x * SQUARE) * src_x;
        #pragma unroll
        for (int n = 0; n < N; ++n) {
            if (!EDGE || (x < nx && y + n * ROWS < ny)) {
                #pragma unroll
                for (int j = 0; j < SQUARE; ++j) value[n][j] = *(const W*)(from + j * src_y);
            }
            from += ROWS * SQUARE * src_y;
        }
        #pragma unroll
        for (int n = 0; n < N; ++n) {
            W out[SQUARE];
            turn<T, W>(value[n], out);
            #pragma unroll
            for (int i = 0; i < SQUARE; ++i) turned[(i * X + x) * PITCH + y + n * ROWS] = out[i];
        }
    }
    __syncthreads();
    const unsigned y = threadIdx.x % Y, x = threadIdx.x / Y;
    char* to = dst + (long long)(x * SQUARE) * dst_y + (long long)(y * SQUARE) * dst_x;
    #pragma unroll
    for (int n = 0; n < N; ++n) {
        if (!EDGE || (x + n * COLUMNS < nx && y < ny)) {
            #pragma unroll
            for (int i = 0; i < SQUARE; ++i)
                *(W*)(to + i * dst_y) = turned[(i * X + x + n * COLUMNS) * PITCH + y];
        }
        to += COLUMNS * SQUARE * dst_y;
    }
    __syncthreads();
}

// A unit is a tile, for a block; units follow each other in the order of the axes.
template <class T, class W, int X, int Y>
__device__ __forceinline__ void tiles(const Work& work) {
    constexpr unsigned SQUARE = sizeof(W) / sizeof(T), SIDE_DST = Y * SQUARE, SIDE_SRC = X * SQUARE;
    __shared__ W turned[SQUARE * X * (Y + 1)];
    const Axis &along_dst = work.axes[work.axis_dst], &along_src = work.axes[work.axis_src];
    const long long dst_x = along_dst.dst / SIDE_DST, dst_y = along_src.dst / SIDE_SRC;
    const long long src_x = along_src.src / SIDE_SRC, src_y = along_dst.src / SIDE_DST;
    for (unsigned unit = blockIdx.x; unit < work.units; unit += gridDim.x) {
        char* dst = work.dst;
        const char* src = work.src;
        unsigned rest = unit, nx = 0, ny = 0;
        for (unsigned i = 0; i < work.n_axes; ++i) {
            const Axis& axis = work.axes[i];
            unsigned quotient = (__umulhi(rest, axis.multiplier) + rest) >> axis.shift;
            unsigned index = rest - quotient * axis.count;
            dst += (long long)index * axis.dst;
            src += (long long)index * axis.src;
            if (i == work.axis_dst) ny = (work.extent_dst - index * SIDE_DST) / SQUARE;
            if (i == work.axis_src) nx = (work.extent_src - index * SIDE_SRC) / SQUARE;
            rest = quotient;
        }
        if (nx >= X && ny >= Y)
            tile<T, W, X, Y, false>(dst, src, dst_x, dst_y, src_x, src_y, nx, ny, turned);
        else
            tile<T, W, X, Y, true>(dst, src, dst_x, dst_y, src_x, src_y, nx, ny, turned);
    }
}

extern "C" {
"""

_TYPES = {16: "uint4", 8: "unsigned long long", 4: "unsigned", 2: "unsigned short", 1: "unsigned char"}


class KernelLaunch(NamedTuple):
    """A launch without its addresses."""

    name: str  # the kernel's
    blocks: int  # the number that suits the device's memory
    call: bytes  # the arguments, with space for the addresses
    dst_offset_nbytes: int  # where the first row begins, from the address
    src_offset_nbytes: int


class CopyKernels:
    """The kernels of a device, loaded."""

    # CUDA loads code when it is first used, and waits for running kernels to do so; therefore every kernel is launched
    # once, with nothing to do. Compilation is cached on disk by CuPy.

    def __init__(self, index: int) -> None:
        """Compile and load for the calling thread's device, whose ordinal is ``index``."""
        self._index = index
        module = cupy.RawModule(code=_source(), options=("-std=c++17",))
        # They keep their code loaded, which `cupy.clear_memo` lets go of; addresses alone do not.
        self._functions = {name: module.get_function(name).kernel for name in (*_kernels(), *kernels(_TYPES))}
        self._addresses = {name: function.ptr for name, function in self._functions.items()}
        stream = cupy.cuda.Stream(non_blocking=True)
        for name in self._functions:
            self.launch(KernelLaunch(name, 1, bytes(_CALL_NBYTES), 0, 0), 0, 0, stream)

    def launch(self, launch: KernelLaunch, dst: int, src: int, stream: Any, max_blocks: int = 0) -> None:
        """Enqueue a copy on a stream of the calling thread's device.

        ``dst`` and ``src`` are the addresses of element ``(0, …, 0)``. ``max_blocks`` limits the blocks if the link,
        and not the device's memory, is the bottleneck; 0 is no limit.
        """
        name, blocks, template, dst_offset, src_offset = launch
        if max_blocks and blocks > max_blocks:
            blocks = max_blocks
        call = _Call.from_buffer_copy(template)  # the driver copies it in its turn
        at = ctypes.addressof(call)
        _ADDRESSES.pack_into(call, 0, at + _WORK_AT, dst + dst_offset, src + src_offset)
        self._enqueue(name, blocks, at, stream)

    def launch_indexed(self, dst: Any, src: Any, to: Any, at: Any, stream: Any) -> None:
        """Enqueue ``dst[to[k]] = src[at[k]]``; see `offload.devices.base.Device.copy_indexed`."""
        if not (at if to is None else to).size:
            return
        name, blocks, template = call_of(dst, src, to, at)
        call = (ctypes.c_char * len(template)).from_buffer(template)
        first = ctypes.addressof(call)
        _ADDRESS.pack_into(call, 0, first + _WORK_AT)
        self._enqueue(name, blocks, first, stream)

    def _enqueue(self, name: str, blocks: int, at: int, stream: Any) -> None:
        """Launch a kernel with the memory at an address: the address of its argument, and the argument."""
        function = self._addresses[name]  # by the driver's call: CuPy's own would look at the argument again
        try:
            driver.launchKernel(function, blocks, 1, 1, _THREADS, 1, 1, 0, stream.ptr, at, 0)
        except driver.CUDADriverError as error:
            if error.status != _NO_CONTEXT:
                raise
            cuda.setDevice(self._index)  # the first call of CUDA on this thread
            driver.launchKernel(function, blocks, 1, 1, _THREADS, 1, 1, 0, stream.ptr, at, 0)


def launch_of(box: Box, dst: int, src: int, *, keeps_order: bool = False) -> KernelLaunch | None:
    """Return the launch that copies a box, or None if the box needs several.

    ``dst`` and ``src`` are the addresses of element ``(0, …, 0)``; `units` explains ``keeps_order``.
    """
    return _launch_of(box, dst % ALIGNMENT, src % ALIGNMENT, keeps_order)


@lru_cache(_PLANS)
def _launch_of(box: Box, dst: int, src: int, keeps_order: bool) -> KernelLaunch | None:
    work = units(box, dst, src, keeps_order=keeps_order)
    return None if work is None else prepare(box, work)


def prepare(box: Box, work: Units) -> KernelLaunch:
    """Return the launch of a box with its work."""
    kind = work.kernel  # which of the three kernels copies units of this form
    if kind is UnitKind.FLAT:
        variant, per_block = str(work.width), _THREADS * _PER_THREAD[work.width]
    elif work.turned is not None:
        variant, per_block = _variant(work.width, work.turned.tile), 1
    else:
        variant, per_block = str(work.lanes), _THREADS // work.lanes
    call = bytearray(_CALL_NBYTES)  # unused axes stay zero
    extents, places = work.turned[1:] if work.turned else ((0, 0), (0, 0))
    _HEAD.pack_into(call, 0, 0, 0, 0, work.count, work.row_nbytes, len(work.axes), *extents, *places, 0)
    at = _HEAD.size
    for axis in work.axes:
        _AXIS.pack_into(call, at, *axis[:3], 0, *axis[3:])
        at += _AXIS.size
    blocks = -(-work.count // per_block)  # rounded up: a block may have less to do
    return KernelLaunch(_name(kind, variant), blocks, bytes(call), box.dst_offset_nbytes, box.src_offset_nbytes)


def _variant(width: int, tile: TurnedTile) -> str:
    """Return the end of the name of the kernel of such tiles."""
    return f"{width}_{'_'.join(map(str, tile[:3]))}"


def _name(kind: UnitKind, variant: str) -> str:
    """Return the name of the kernel for elements of so many bytes, so many lanes, or a tile."""
    return f"copy_{kind.value}_{variant}"


def _kernels() -> dict[str, str]:
    """Return the function that each kernel calls, by the kernel's name."""
    calls = {_name(UnitKind.FLAT, f"{width}"): f"flat<{_TYPES[width]}, {_PER_THREAD[width]}>" for width in WIDTHS}
    calls |= {_name(UnitKind.ROWS, f"{lanes}"): f"rows<{lanes}>" for lanes in _LANES}
    return calls | {
        _name(UnitKind.TILES, _variant(width, tile)): f"tiles<{_TYPES[width]}, {_TYPES[tile.word]}, {x}, {y}>"
        for width, tiles in TILES.items()
        for tile in tiles
        for _, x, y, _ in [tile]
    }


def _source() -> str:
    """Return the source of all kernels."""
    lines = [f"#define MAX_AXES {MAX_AXES}", f"#define THREADS {_THREADS}", prelude(), _SOURCE]
    head = "__global__ void __launch_bounds__(THREADS)"
    work = "const __grid_constant__ Work work"
    lines += [f"{head} {name}({work}) {{ {body}(work); }}" for name, body in _kernels().items()]
    work = "const __grid_constant__ Indexed work"
    lines += [f"{head} {name}({work}) {{ {body}(work); }}" for name, body in kernels(_TYPES).items()]
    return "\n".join([*lines, "}"])
