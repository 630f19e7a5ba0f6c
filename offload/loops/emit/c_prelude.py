"""The arithmetic of loops where C's own differs, or leaves something open, for C and for CUDA's C++.

Names end in the type that they are of: ``floordiv_int64``. The text relies on a conversion of a float that does not fit
giving any integer, as gcc and nvcc have it, and on arrays of two types being allowed to share memory. The text before
it (`HEAD` of `c_host` and of `c_cuda`) has types, ``FN`` and ``report``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from offload.loops.emit import c_complex
from offload.loops.tree.promotion import is_complex

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.loops.tree.ir import Dtype

# Of scalars.
C_TYPES: Final = {
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float32": "float",
    "float64": "double",
    "complex64": "complex64",
    "complex128": "complex128",
}

# Of elements: the byte of a truth value may hold anything.
MEMORY_TYPES: Final = {**C_TYPES, "bool": "uint8_t"}


def zero(dtype: Dtype) -> str:
    """Return the initial value of a variable that has none yet."""
    return "{0}" if is_complex(dtype) else "0"


FAULT: Final = r"""
/* What an iteration has found wrong first: 1 an index, 2 a division by zero, 3 an assertion, 4 a step of zero,
   5 a bound or a step that int64 does not hold. */
typedef struct { int64_t what, where, index, dimension; } Fault;
""".strip()

ARITHMETIC: Final = r"""
FN void note(Fault *fault, int64_t what, int64_t where, int64_t index, int64_t dimension)
{
    if (fault->what)
        return;
    fault->what = what;
    fault->where = where;
    fault->index = index;
    fault->dimension = dimension;
}

FN int64_t wrapped(int64_t index, int64_t extent) { return index < 0 ? index + extent : index; }

FN bool inside(Fault *fault, int64_t index, int64_t extent, int64_t where, int64_t dimension)
{
    if (__builtin_expect((uint64_t)wrapped(index, extent) < (uint64_t)extent, 1))
        return true;
    note(fault, 1, where, index, dimension);
    return false;
}

/* Of an array type: negative indices do not count from the end. */
FN bool within(Fault *fault, int64_t index, int64_t size, int64_t where, int64_t dimension)
{
    if (__builtin_expect((uint64_t)index < (uint64_t)size, 1))
        return true;
    note(fault, 1, where, index, dimension);
    return false;
}

FN int64_t clamped(Fault *fault, int64_t index, int64_t extent, int64_t where, int64_t dimension)
{
    return inside(fault, index, extent, where, dimension) ? wrapped(index, extent) : 0;
}

/* Of a loop that is carried out again if an index was missed: negative ones are. */
FN int64_t tried(bool *is_missed, int64_t index, int64_t extent)
{
    const bool is_inside = (uint64_t)index < (uint64_t)extent;
    *is_missed |= !is_inside;
    return is_inside ? index : 0;
}

/* Whether `more` indices behind a first one are in range with it. */
FN bool all_inside(int64_t first, uint64_t more, int64_t extent)
{
    return (uint64_t)first < (uint64_t)extent && more < (uint64_t)extent - (uint64_t)first;
}

/* In 32 bits. */
FN bool all_inside32(int32_t first, uint32_t more, int32_t extent)
{
    return (uint32_t)first < (uint32_t)extent && more < (uint32_t)extent - (uint32_t)first;
}

FN int32_t tried32(bool *is_missed, int32_t index, int32_t extent)
{
    const bool is_inside = (uint32_t)index < (uint32_t)extent;
    *is_missed |= !is_inside;
    return is_inside ? index : 0;
}

FN int32_t wrapped32(int32_t index, int32_t extent) { return index < 0 ? index + extent : index; }

FN int32_t clamped32(Fault *fault, int32_t index, int32_t extent, int64_t where, int64_t dimension)
{
    const int32_t place = wrapped32(index, extent);
    if (__builtin_expect((uint32_t)place < (uint32_t)extent, 1))
        return place;
    note(fault, 1, where, index, dimension);
    return 0;
}

FN int64_t trips_of(int64_t start, int64_t stop, int64_t step)
{
    if (step > 0)
        return start < stop ? (int64_t)(((uint64_t)stop - (uint64_t)start - 1) / (uint64_t)step) + 1 : 0;
    if (step < 0)
        return start > stop ? (int64_t)(((uint64_t)start - (uint64_t)stop - 1) / (0 - (uint64_t)step)) + 1 : 0;
    return 0;
}

FN int64_t nonzero_step(Fault *fault, int64_t step, int64_t where)
{
    if (step == 0)
        note(fault, 4, where, 0, 0);
    return step;
}

FN int64_t held_bound(Fault *fault, uint64_t bound, int64_t where)
{
    if (bound >> 63)
        note(fault, 5, where, 0, 0);
    return (int64_t)bound;
}

/* a < b and a == b of integers of which one may be negative and the other above what int64 holds */
FN bool less_su(int64_t a, uint64_t b) { return a < 0 || (uint64_t)a < b; }
FN bool less_us(uint64_t a, int64_t b) { return b >= 0 && a < (uint64_t)b; }
FN bool equal_su(int64_t a, uint64_t b) { return a >= 0 && (uint64_t)a == b; }

FN uint64_t uint64_of(double x) { return x < 0 ? (uint64_t)(int64_t)x : (uint64_t)x; }

#define EACH(T, name) \
FN T min_##name(T a, T b) { return b < a ? b : a; } \
FN T max_##name(T a, T b) { return b > a ? b : a; }

#define INTEGER(T, U, name) \
EACH(T, name) \
FN T divide_##name(Fault *fault, int64_t where, T a, T b) \
{ \
    if (b != 0) \
        return floordiv_##name(a, b); \
    note(fault, 2, where, 0, 0); \
    return 0; \
} \
FN T modulo_##name(Fault *fault, int64_t where, T a, T b) \
{ \
    if (b != 0) \
        return mod_##name(a, b); \
    note(fault, 2, where, 0, 0); \
    return 0; \
} \
FN T shl_##name(T a, T b) { return (U)b < 8 * sizeof(T) ? (T)((U)a << b) : 0; } \
FN T shr_##name(T a, T b) { return (U)b < 8 * sizeof(T) ? (T)(a >> b) : (T)(a < 0 ? -1 : 0); } \
FN T abs_##name(T a) { return a < 0 ? (T)(0 - (U)a) : a; } \
FN T pow_##name(T a, T n) \
{ \
    uint64_t power = 1, base = (uint64_t)a; \
    for (uint64_t left = (uint64_t)n; left; left >>= 1, base *= base) \
        if (left & 1) \
            power *= base; \
    return (T)power; \
}

/* The least value divided by -1 wraps; a processor may trap on it. */
#define SIGNED(T, U, name) \
FN T floordiv_##name(T a, T b) \
{ \
    if (b == -1) \
        return (T)(0 - (U)a); \
    return (T)(a / b - ((a % b != 0) & ((a < 0) != (b < 0)))); \
} \
FN T mod_##name(T a, T b) \
{ \
    if (b == -1) \
        return 0; \
    T rest = (T)(a % b); \
    return (T)(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest); \
} \
INTEGER(T, U, name)

#define UNSIGNED(T, name) \
FN T floordiv_##name(T a, T b) { return (T)(a / b); } \
FN T mod_##name(T a, T b) { return (T)(a % b); } \
INTEGER(T, T, name)

/* `//` and `%` as CPython and NumPy have them, which is not floor(a / b) */
/* `positive_zero` of an integer that was a float: gcc makes both conversions one trunc, which keeps the sign of a zero,
   since it is told that floats do not trap. The sum is one of a variable: gcc leaves out that of a conversion and 0. */
#define FLOAT(T, name, f) \
EACH(T, name) \
FN T positive_zero_##name(T a) { return a + (T)0; } \
FN T floordiv_##name(T a, T b) \
{ \
    if (b == 0) \
        return a / b; \
    T rest = fmod##f(a, b), quotient = (a - rest) / b; \
    if (rest != 0 && (b < 0) != (rest < 0)) \
        quotient -= 1; \
    if (quotient == 0) \
        return copysign##f((T)0, a / b); \
    T whole = floor##f(quotient); \
    return quotient - whole > (T)0.5 ? whole + 1 : whole; \
} \
FN T mod_##name(T a, T b) \
{ \
    T rest = fmod##f(a, b); \
    if (b == 0) \
        return rest; \
    if (rest == 0) \
        return copysign##f((T)0, b); \
    return (b < 0) != (rest < 0) ? rest + b : rest; \
} \
FN T minimum_##name(T a, T b) { return a < b || a != a ? a : b; } \
FN T maximum_##name(T a, T b) { return a > b || a != a ? a : b; } \
FN bool isnan_##name(T a) { return a != a; } \
FN bool isinf_##name(T a) { return fabs##f(a) == (T)INFINITY; } \
FN bool isfinite_##name(T a) { return fabs##f(a) < (T)INFINITY; }
""".strip()

_OF_TYPE: Final = {
    "bool": "EACH(bool, bool)",
    **{f"int{n}": f"SIGNED(int{n}_t, uint{n}_t, int{n})" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"UNSIGNED(uint{n}_t, uint{n})" for n in (8, 16, 32, 64)},
    "float32": "FLOAT(float, float32, f)",
    "float64": "FLOAT(double, float64, )",
    **c_complex.OF_TYPE,
}


def prelude(head: str, atomics: str, structures: str, of_type: Mapping[str, str], body: str) -> str:
    """Return the functions that a text calls, which stand before it.

    ``head`` and ``atomics`` are a dialect's own texts, before and after the arithmetic; ``structures`` has its complex
    types. ``of_type`` has a dialect's functions for each type; only types whose functions the body calls get them.
    """
    # The body may use a complex type without calling any of its functions, which call those of its parts.
    numbers = {dtype for dtype in c_complex.PARTS if dtype in body}
    used = {dtype for dtype in _OF_TYPE if f"_{dtype}(" in body} | numbers
    used |= {c_complex.PARTS[dtype] for dtype in numbers}
    texts = [f"{text}\n{of_type[dtype]}" for dtype, text in _OF_TYPE.items() if dtype in used]
    before = (structures, c_complex.COMPLEX, c_complex.ATOMIC) if numbers else ()
    return "\n".join((head, ARITHMETIC, atomics, *before, *texts))
