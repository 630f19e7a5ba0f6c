"""The kernels of copies by tables of offsets.

A thread has one element: with two or four under way scattered writes of 8 and 16 bytes took a tenth longer, as those
that belong to one line came later, and nothing was faster (H100).
"""

from __future__ import annotations

import struct
from typing import Any

from offload.arrays.copies import width_of
from offload.arrays.units import WIDTHS

THREADS = 256
_PER_THREAD = 1  # elements under way at a time
_INDICES = {4: "int", 8: "long long"}  # by the bytes of an index

_CALL = struct.Struct("PPPPP Q I I")
_WORK_AT = struct.calcsize("P")
CALL_NBYTES = _CALL.size

SOURCE = r"""
struct Indexed {
    char* dst;
    const char* src;
    const void* to;
    const void* at;
    unsigned long long count;
    unsigned words, unused;
};

// Elements are `words` of type T. A table that is missing counts 0, 1, 2, ...
template <class T, class I>
__device__ __forceinline__ void indexed(const Indexed& work) {
    const I *to = (const I*)work.to, *at = (const I*)work.at;
    const unsigned long long step = (unsigned long long)gridDim.x * (THREADS * AT_ONCE);
    unsigned long long begin = (unsigned long long)blockIdx.x * (THREADS * AT_ONCE) + threadIdx.x;
    for (; begin < work.count; begin += step) {
        long long into[AT_ONCE], from[AT_ONCE];
        #pragma unroll
        for (int k = 0; k < AT_ONCE; ++k) {
            const unsigned long long n = begin + k * THREADS;
            if (n >= work.count) continue;
            into[k] = (to ? (long long)__ldcs(to + n) : (long long)n) * work.words;
            from[k] = (at ? (long long)__ldcs(at + n) : (long long)n) * work.words;
        }
        for (unsigned word = 0; word < work.words; ++word) {
            T value[AT_ONCE];
            #pragma unroll
            for (int k = 0; k < AT_ONCE; ++k)
                if (begin + k * THREADS < work.count) value[k] = ((const T*)work.src)[from[k] + word];
            #pragma unroll
            for (int k = 0; k < AT_ONCE; ++k)
                if (begin + k * THREADS < work.count) ((T*)work.dst)[into[k] + word] = value[k];
        }
    }
}
"""


def kernels(types: dict[int, str]) -> dict[str, str]:
    """Return the declaration of each kernel's body by its name; ``types`` are those of words."""
    return {
        _name(width, index): f"indexed<{types[width]}, {_INDICES[index]}>" for width in WIDTHS for index in _INDICES
    }


def prelude() -> str:
    """Return the text before the kernels."""
    return f"#define AT_ONCE {_PER_THREAD}\n{SOURCE}"


def call_of(dst: Any, src: Any, to: Any, at: Any) -> tuple[str, int, bytearray]:
    """Return the kernel, its blocks, and the launch memory: room for an address, followed by the argument."""
    table = at if to is None else to
    itemsize = dst.itemsize
    width = width_of(itemsize, dst.data.ptr, src.data.ptr)
    addresses = [0 if array is None else array.data.ptr for array in (dst, src, to, at)]
    call = bytearray(CALL_NBYTES)
    _CALL.pack_into(call, 0, 0, *addresses, table.size, itemsize // width, 0)
    blocks = -(-table.size // (THREADS * _PER_THREAD))
    return _name(width, table.itemsize), min(blocks, (1 << 31) - 1), call


def _name(width: int, index_nbytes: int) -> str:
    return f"copy_indexed_{width}_{index_nbytes}"
