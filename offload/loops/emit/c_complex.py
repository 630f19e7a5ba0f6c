"""The arithmetic of complex numbers, for C and for CUDA's C++.

A number is a structure of two parts. C's own complex types cannot be used: their products recover infinities from NaNs,
and NumPy's do not. ``div`` and ``pow`` round as NumPy does, ``quotient`` and ``powi`` as CPython does. Exponentials and
roots follow the GNU C library, which NumPy calls; CUDA has no such functions.
"""

from __future__ import annotations

from typing import Final

# CUDA loads or stores a number by one instruction only if it lies at a multiple of its size.
C_STRUCTURES: Final = """
typedef struct { float re, im; } complex64;
typedef struct { double re, im; } complex128;
""".strip()

CUDA_STRUCTURES: Final = """
struct __align__(8) complex64 { float re, im; };
struct __align__(16) complex128 { double re, im; };

/* A complex128 at any multiple of 8 bytes: among arguments and partial results. */
struct complex128_slot {
    double re, im;
    __device__ __forceinline__ operator complex128() const { complex128 z; z.re = re; z.im = im; return z; }
    __device__ __forceinline__ complex128_slot &operator=(complex128 z) { re = z.re; im = z.im; return *this; }
};
""".strip()

COMPLEX: Final = r"""
/* `exp` of HIGH is near the greatest value, MOST; LEAST is the least normal one. Before the root of tiny numbers is
   computed, they are multiplied by TINY, and the root by ROOT, 1 over the root of TINY. */
#define COMPLEX(T, R, name, f, HIGH, MOST, LEAST, TINY, ROOT) \
FN T made_##name(R re, R im) \
{ \
    T z; \
    z.re = re; \
    z.im = im; \
    return z; \
} \
FN T cast_to_##name(OTHER_##name z) { return made_##name((R)z.re, (R)z.im); } \
FN T neg_##name(T a) { return made_##name(-a.re, -a.im); } \
FN T conjugate_##name(T a) { return made_##name(a.re, -a.im); } \
FN T add_##name(T a, T b) { return made_##name(a.re + b.re, a.im + b.im); } \
FN T sub_##name(T a, T b) { return made_##name(a.re - b.re, a.im - b.im); } \
FN T mul_##name(T a, T b) { return made_##name(a.re * b.re - a.im * b.im, a.im * b.re + a.re * b.im); } \
FN bool equal_##name(T a, T b) { return a.re == b.re && a.im == b.im; } \
FN bool truth_##name(T a) { return a.re != 0 || a.im != 0; } \
FN bool isnan_##name(T a) { return a.re != a.re || a.im != a.im; } \
FN bool isinf_##name(T a) { return fabs##f(a.re) == (R)INFINITY || fabs##f(a.im) == (R)INFINITY; } \
FN bool isfinite_##name(T a) { return fabs##f(a.re) < (R)INFINITY && fabs##f(a.im) < (R)INFINITY; } \
FN R abs_##name(T a) { return hypot##f(a.re, a.im); } \
/* Smith's algorithm; the greater part of the divisor decides. */ \
FN T div_##name(T a, T b) \
{ \
    const R re = fabs##f(b.re), im = fabs##f(b.im); \
    if (re >= im) { \
        if (re == 0 && im == 0) \
            return made_##name(a.re / re, a.im / re); \
        const R ratio = b.im / b.re, scale = 1 / (b.re + b.im * ratio); \
        return made_##name((a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale); \
    } \
    const R ratio = b.re / b.im, scale = 1 / (b.im + b.re * ratio); \
    return made_##name((a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale); \
} \
FN T quotient_##name(T a, T b) \
{ \
    const R re = fabs##f(b.re), im = fabs##f(b.im); \
    if (re >= im) { \
        if (re == 0) \
            return made_##name(a.re / re, a.im / re); \
        const R ratio = b.im / b.re, divisor = b.re + b.im * ratio; \
        return made_##name((a.re + a.im * ratio) / divisor, (a.im - a.re * ratio) / divisor); \
    } \
    if (!(im >= re)) \
        return made_##name((R)NAN, (R)NAN); \
    const R ratio = b.re / b.im, divisor = b.re * ratio + b.im; \
    return made_##name((a.re * ratio + a.im) / divisor, (a.im * ratio - a.re) / divisor); \
} \
FN T product_##name(T a, int64_t n) \
{ \
    T power = made_##name(1, 0); \
    for (;; a = mul_##name(a, a)) { \
        if (n & 1) \
            power = mul_##name(power, a); \
        n >>= 1; \
        if (n == 0) \
            return power; \
    } \
} \
FN T pow_##name(T a, int64_t n) \
{ \
    if (n == 0) \
        return made_##name(1, 0); \
    if (!truth_##name(a)) \
        return n > 0 ? made_##name(0, 0) : made_##name((R)NAN, (R)NAN); \
    if (n == 1) \
        return a; \
    if (n == 2 || n == 3) \
        return n == 2 ? mul_##name(a, a) : mul_##name(a, mul_##name(a, a)); \
    const T power = product_##name(a, n < 0 ? -n : n); \
    return n < 0 ? div_##name(made_##name(1, 0), power) : power; \
} \
FN T powi_##name(T a, int64_t n) \
{ \
    return n > 0 ? product_##name(a, n) : quotient_##name(made_##name(1, 0), product_##name(a, -n)); \
} \
FN T exp_##name(T z) \
{ \
    const bool is_finite = fabs##f(z.im) < (R)INFINITY; \
    if (z.re != z.re) \
        return made_##name(z.re, z.im == 0 ? z.im : (R)NAN); \
    if (!is_finite) { \
        if (z.re == (R)INFINITY) \
            return made_##name(z.re, (R)NAN); \
        return z.re == (R)-INFINITY ? made_##name(0, copysign##f((R)0, z.im)) : made_##name((R)NAN, (R)NAN); \
    } \
    R c = cos##f(z.im), s = sin##f(z.im); \
    if (fabs##f(z.re) == (R)INFINITY) { \
        const R size = z.re > 0 ? (R)INFINITY : (R)0; \
        return made_##name(copysign##f(size, c), z.im == 0 ? z.im : copysign##f(size, s)); \
    } \
    R left = z.re; \
    for (int k = 0; k < 2 && left > (R)HIGH; k++) { \
        const R part = exp##f((R)HIGH); \
        left -= (R)HIGH; \
        c *= part; \
        s *= part; \
    } \
    const R size = left > (R)HIGH ? (R)MOST : exp##f(left); \
    return made_##name(size * c, size * s); \
} \
FN T sqrt_##name(T z) \
{ \
    R re = z.re, im = z.im, after = 1; \
    if (fabs##f(im) == (R)INFINITY) \
        return made_##name((R)INFINITY, im); \
    if (fabs##f(re) == (R)INFINITY) { \
        const R other = im != im ? im : re < 0 ? (R)0 : copysign##f((R)0, im); \
        return re < 0 ? made_##name(other, copysign##f((R)INFINITY, im)) : made_##name(re, other); \
    } \
    if (re != re || im != im) \
        return made_##name((R)NAN, (R)NAN); \
    if (im == 0) \
        return re < 0 ? made_##name(0, copysign##f(sqrt##f(-re), im)) : made_##name(fabs##f(sqrt##f(re)), im); \
    if (re == 0) { \
        const R size = fabs##f(im); \
        const R half = size >= 2 * (R)LEAST ? sqrt##f((R)0.5 * size) : (R)0.5 * sqrt##f(2 * size); \
        return made_##name(half, copysign##f(half, im)); \
    } \
    if (fabs##f(re) > (R)MOST / 4 || fabs##f(im) > (R)MOST / 4) { \
        after = 2; \
        re = fabs##f(im) > (R)MOST / 4 && fabs##f(re) < 4 * (R)LEAST ? (R)0 : re / 4; \
        im /= 4; \
    } else if (fabs##f(re) < 2 * (R)LEAST && fabs##f(im) < 2 * (R)LEAST) { \
        after = (R)ROOT; \
        re *= (R)TINY; \
        im *= (R)TINY; \
    } \
    const R size = hypot##f(re, im); \
    R root, other; \
    if (re > 0) { \
        root = sqrt##f((R)0.5 * (size + re)); \
        other = (R)0.5 * (im / root); \
    } else { \
        other = sqrt##f((R)0.5 * (size - re)); \
        root = fabs##f((R)0.5 * (im / other)); \
    } \
    return made_##name(root * after, copysign##f(other * after, im)); \
}

#define OTHER_complex64 complex128
#define OTHER_complex128 complex64
""".strip()

# The types, with those of their parts.
PARTS: Final = {"complex64": "float32", "complex128": "float64"}

OF_TYPE: Final = {
    "complex64": "COMPLEX(complex64, float, complex64, f, 88, 3.40282347e+38f, 1.17549435e-38f, 0x1p24f, 0x1p-12f)",
    "complex128": (
        "COMPLEX(complex128, double, complex128, , 709, 1.7976931348623157e308, 2.2250738585072014e-308, 0x1p54, "
        "0x1p-27)"
    ),
}

# Of the parts, one after the other: a sum is right, but another thread may see one part of it.
ATOMIC: Final = r"""
#define ATOMIC_COMPLEX(T, part, name) \
FN void atomic_add_##name(T *at, T value) \
{ \
    atomic_add_##part(&at->re, value.re); \
    atomic_add_##part(&at->im, value.im); \
} \
FN void atomic_sub_##name(T *at, T value) \
{ \
    atomic_sub_##part(&at->re, value.re); \
    atomic_sub_##part(&at->im, value.im); \
}
""".strip()

# What shuffles do with one word, they do with two.
SHUFFLES: Final = r"""
#define SHUFFLED(T, name) \
FN T shuffled(T z, int lane) { return made_##name(shuffled(z.re, lane), shuffled(z.im, lane)); } \
FN T shuffled_down(T z, int distance) \
{ \
    return made_##name(shuffled_down(z.re, distance), shuffled_down(z.im, distance)); \
}
""".strip()
