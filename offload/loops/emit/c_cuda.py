"""The beginning of generated CUDA: its types, its atomics, and results of the threads of a block.

NVRTC compiles it without any header, nvcc after its own. So the names of types are macros, which hide the definitions
of headers, and `int64_t` is the type that CUDA's functions take.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from offload.loops.emit.c_complex import CUDA_STRUCTURES, SHUFFLES
from offload.loops.emit.c_prelude import C_TYPES, FAULT, prelude
from offload.loops.emit.c_statements import combined

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.loops.tree.ir import Dtype

HEAD: Final = rf"""
#define int8_t signed char
#define int16_t short
#define int32_t int
#define int64_t long long
#define uint8_t unsigned char
#define uint16_t unsigned short
#define uint32_t unsigned int
#define uint64_t unsigned long long
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fc00000)
#endif

#define FN static __device__ __forceinline__

{FAULT}

/* The record is in memory of the host; the first thread that comes has it. */
static __device__ __noinline__ void report(int64_t *record, Fault fault, const int64_t *trips, int n)
{{
    if (atomicCAS((uint64_t *)record, 0ull, 1ull) != 0)
        return;
    record[1] = fault.what;
    record[2] = fault.where;
    record[3] = fault.index;
    record[4] = fault.dimension;
    for (int k = 0; k < n; k++)
        record[5 + k] = trips[k];
}}

/* Values of other threads of a row. */
template <class T> FN T shuffled(T value, int lane) {{ return (T)__shfl_sync(0xffffffffu, value, lane); }}
template <class T> FN T shuffled_down(T value, int distance)
{{
    return (T)__shfl_down_sync(0xffffffffu, value, distance);
}}

FN int thread_of_block() {{ return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }}
FN int threads_of_block() {{ return blockDim.x * blockDim.y * blockDim.z; }}
FN int64_t block_of_grid()
{{
    return blockIdx.x + (int64_t)gridDim.x * (blockIdx.y + (int64_t)gridDim.y * blockIdx.z);
}}
""".strip()

ATOMICS: Final = r"""
template <class To, class From> FN To same_bits(From value)
{
    static_assert(sizeof(To) == sizeof(From), "");
    union { From from; To to; } bits;
    bits.from = value;
    return bits.to;
}

FN uint32_t swapped(uint32_t *at, uint32_t expected, uint32_t made) { return atomicCAS(at, expected, made); }
FN uint64_t swapped(uint64_t *at, uint64_t expected, uint64_t made) { return atomicCAS(at, expected, made); }

/* Of what is narrower, the word that it lies in. */
template <class U> FN U swapped(U *at, U expected, U made)
{
    uint32_t *const word = (uint32_t *)((uint64_t)at & ~3ull);
    const uint32_t shift = 8 * (uint32_t)((uint64_t)at & 3), mask = (uint32_t)(U)~(U)0 << shift;
    uint32_t seen = *(volatile uint32_t *)word;
    while ((U)(seen >> shift) == expected) {
        const uint32_t before = atomicCAS(word, seen, (seen & ~mask) | (uint32_t)made << shift);
        if (before == seen)
            break;
        seen = before;
    }
    return (U)(seen >> shift);
}

/* One step on an element; all return the old value. `cas` compares by value. */
#define STEP(T, U, name, operator, value_of) \
FN T atomic_##operator##_##name(T *at, T value) \
{ \
    U seen = *(volatile U *)at, before; \
    T old; \
    do { \
        before = seen; \
        old = same_bits<T>(before); \
        seen = swapped((U *)at, before, same_bits<U>((T)(value_of))); \
    } while (seen != before); \
    return old; \
}

#define NATIVE(T, V, name, operator, builtin, value_of) \
FN T atomic_##operator##_##name(T *at, T value) { return (T)builtin((V *)at, (V)(value_of)); }

#define CAS(T, U, name) \
FN T atomic_cas_##name(T *at, T expected, T value) \
{ \
    U seen = *(volatile U *)at, before; \
    do { \
        before = seen; \
        if (!(same_bits<T>(before) == expected)) \
            break; \
        seen = swapped((U *)at, before, same_bits<U>(value)); \
    } while (seen != before); \
    return same_bits<T>(before); \
}

#define NARROW(T, U, name) \
STEP(T, U, name, add, old + value) \
STEP(T, U, name, sub, old - value) \
STEP(T, U, name, mul, (uint32_t)old * (uint32_t)value) \
STEP(T, U, name, min, value < old ? value : old) \
STEP(T, U, name, max, value > old ? value : old) \
STEP(T, U, name, and, old & value) \
STEP(T, U, name, or, old | value) \
STEP(T, U, name, xor, old ^ value) \
STEP(T, U, name, exchange, value) \
CAS(T, U, name)

#define WIDE(T, U, name) \
NATIVE(T, U, name, add, atomicAdd, value) \
NATIVE(T, U, name, sub, atomicAdd, 0 - (U)value) \
STEP(T, U, name, mul, (U)old * (U)value) \
NATIVE(T, T, name, min, atomicMin, value) \
NATIVE(T, T, name, max, atomicMax, value) \
NATIVE(T, U, name, and, atomicAnd, value) \
NATIVE(T, U, name, or, atomicOr, value) \
NATIVE(T, U, name, xor, atomicXor, value) \
NATIVE(T, U, name, exchange, atomicExch, value) \
CAS(T, U, name)

#define ATOMIC_FLOAT(T, U, name) \
NATIVE(T, T, name, add, atomicAdd, value) \
NATIVE(T, T, name, sub, atomicAdd, -value) \
STEP(T, U, name, mul, old * value) \
STEP(T, U, name, min, value < old ? value : old) \
STEP(T, U, name, max, value > old ? value : old) \
STEP(T, U, name, exchange, value) \
CAS(T, U, name)

/* Integers wrap: what nvcc would not let overflow is computed without a sign. */
#define WRAPPING(T, W, name) \
FN T add_##name(T a, T b) { return (T)((W)a + (W)b); } \
FN T sub_##name(T a, T b) { return (T)((W)a - (W)b); } \
FN T mul_##name(T a, T b) { return (T)((W)a * (W)b); }
""".strip()

TEAMS: Final = r"""
/* Results of threads together: those of a row are the 32 of a warp, and all of them, or of the block, come here. */
FN void row_barrier() { __syncwarp(); }
FN void block_barrier() { __syncthreads(); }
FN bool any_of_row(bool here) { return __any_sync(0xffffffffu, here); }
FN bool any_of_block(bool here) { return __syncthreads_or(here); }

/* What the first thread has. */
template <class T> FN T from_row(T value) { return shuffled(value, 0); }

template <class T> FN T from_block(T value)
{
    __shared__ T of_first;
    __syncthreads(); /* what was there has been read */
    if (thread_of_block() == 0)
        of_first = value;
    __syncthreads();
    return of_first;
}

/* The values of a row's threads, combined in an order that is always the same. */
template <class T, T (*combine)(T, T)> FN T over_row(T value)
{
    for (int distance = 16; distance; distance >>= 1)
        value = combine(value, shuffled_down(value, distance));
    return from_row(value);
}

/* The values of a block's rows, which all threads of a row have. */
template <class T, T (*combine)(T, T)> FN T over_rows(T value, T none)
{
    __shared__ T of_rows[32];
    const int thread = thread_of_block(), lane = thread & 31, row = thread >> 5;
    __syncthreads(); /* what another reduction has left there has been read */
    if (lane == 0)
        of_rows[row] = value;
    __syncthreads();
    return over_row<T, combine>(lane < threads_of_block() >> 5 ? of_rows[lane] : none);
}

template <class T, T (*combine)(T, T)> FN T over_block(T value, T none)
{
    return over_rows<T, combine>(over_row<T, combine>(value), none);
}

/* The same of a block with fewer threads than a warp: a shuffle would ask threads that are not there. */
template <class T, T (*combine)(T, T)> FN T over_few(T value)
{
    __shared__ T of_threads[32];
    __syncthreads(); /* what another reduction has left there has been read */
    of_threads[thread_of_block()] = value;
    __syncthreads();
    value = of_threads[0];
    for (int thread = 1; thread < threads_of_block(); thread++)
        value = combine(value, of_threads[thread]);
    return value;
}
""".strip()

SCANS: Final = r"""
/* The values of the threads of a row up to each one's own, combined. */
template <class T, T (*combine)(T, T)> FN T up_to(T value)
{
    const int lane = thread_of_block() & 31;
    for (int distance = 1; distance < 32; distance <<= 1) {
        const T before = (T)__shfl_up_sync(0xffffffffu, value, distance);
        if (lane >= distance)
            value = combine(before, value);
    }
    return value;
}

/* What the rows of a block before a thread's own have, and what all have, which all threads know. */
template <class T, T (*combine)(T, T), int rows> FN T before_row(T value, T none, T *all)
{
    __shared__ T of_rows[rows];
    const int thread = thread_of_block();
    T before = none, whole = none;
    __syncthreads(); /* what another item has left there has been read */
    if ((thread & 31) == 0)
        of_rows[thread >> 5] = value;
    __syncthreads();
    #pragma unroll
    for (int row = 0; row < rows; row++) {
        if (row == thread >> 5)
            before = whole;
        whole = combine(whole, of_rows[row]);
    }
    *all = whole;
    return before;
}

/* A block gives others a sum as one or two words. Each has 32 of its bits and a mark above them, so a word that is not
   0 is valid by itself. A fence would wait for other stores, and empty the cache. */
template <class T> FN void publish(uint64_t *words, T value)
{
    union { uint64_t bits; T value; } sum;
    sum.bits = 0;
    sum.value = value;
    *(volatile uint64_t *)words = 1ull << 32 | (uint32_t)sum.bits;
    if (sizeof(T) > 4)
        *(volatile uint64_t *)(words + 1) = 1ull << 32 | sum.bits >> 32;
}

/* What a lane's block, or group of them, has published, of those from first to end; waits for it. */
template <class T> FN T published(const uint64_t *sums, int stride, int64_t first, int64_t end, T none)
{
    const int64_t at = first + (thread_of_block() & 31);
    const volatile uint64_t *const words = sums + at * stride;
    uint64_t low, high = 1;
    if (at >= end)
        return none;
    do {
        low = words[0];
        if (sizeof(T) > 4)
            high = words[1];
    } while (low == 0 || high == 0);
    union { uint64_t bits; T value; } sum;
    sum.bits = high << 32 | (uint32_t)low;
    return sum.value;
}
""".strip()

_COMBINE: Final = {"+": "add", "*": "mul", "&": "and", "|": "or", "^": "xor", "and": "all", "or": "any"}


def combining(operator: str, dtype: Dtype) -> str:
    """Return the name of the function that combines two values of a reduction."""
    return f"combine_{_COMBINE.get(operator, operator)}_{dtype}"


def combine(operator: str, dtype: Dtype) -> str:
    """Return the function that combines two values of a reduction."""
    ctype, value = C_TYPES[dtype], combined("cuda", operator, "a", "b", dtype)
    return f"FN {ctype} {combining(operator, dtype)}({ctype} a, {ctype} b) {{ return ({ctype})({value}); }}"


def _of_integer(name: str, n_bits: int) -> str:
    ctype, unsigned = f"{name}_t", f"uint{n_bits}_t"
    wide = f"uint{max(n_bits, 32)}_t"  # narrower ones would be ints, which must not overflow
    kind = "WIDE" if n_bits >= 32 else "NARROW"
    return f"{kind}({ctype}, {unsigned}, {name})\nWRAPPING({ctype}, {wide}, {name})"


_OF_TYPE: Final = {
    "bool": "NARROW(uint8_t, uint8_t, bool)",
    **{name: _of_integer(name, n) for n in (8, 16, 32, 64) for name in (f"int{n}", f"uint{n}")},
    "float32": "ATOMIC_FLOAT(float, uint32_t, float32)",
    "float64": "ATOMIC_FLOAT(double, uint64_t, float64)",
    "complex64": "ATOMIC_COMPLEX(complex64, float32, complex64)\nSHUFFLED(complex64, complex64)",
    "complex128": "ATOMIC_COMPLEX(complex128, float64, complex128)\nSHUFFLED(complex128, complex128)",
}


def text(lines: Iterable[str]) -> str:
    """Return the whole text of these lines."""
    body = "\n".join(lines)
    teams = (TEAMS,) if re.search(r"\b(over|from|any)_(row|rows|block|few)\b|_barrier\(", body) else ()
    scans = (SCANS,) if "published<" in body else ()
    before = prelude(HEAD, ATOMICS, f"{CUDA_STRUCTURES}\n{SHUFFLES}", _OF_TYPE, body)
    return "\n".join((before, *teams, *scans, body, ""))
