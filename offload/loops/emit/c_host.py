"""The host's part of generated C: the entry, how trips are numbered, where results of chunks go.

A chunk of the outermost loop is one call; inner associated loops stay loops. The text relies on ``-fwrapv`` and on
``-fno-strict-aliasing``. `offload.loops.emit.emit_cuda` has the part for CUDA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from offload.loops.emit.c_complex import C_STRUCTURES
from offload.loops.emit.c_prelude import FAULT, prelude

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


ENTRY: Final = "loop"
RESTRICT: Final = "restrict "
_CHUNK: Final = "int64_t begin, int64_t end, int64_t chunk, int64_t worker"

# Before a loop of updates that go to any element: gcc leaves it as it is, which takes a sixth longer than Numba's.
UNROLLED: Final = "#pragma GCC unroll 8"

# At the beginning of a text that rounds doubles to floats and makes floats doubles: gcc 12 leaves out both where it
# makes vectors of pairs outside of loops, and the rounding with them. `offload.loops.running.compilers` forbids that.
ROUNDING: Final = "/* rounds */"

# Operators that C writes in another way.
LOGICAL: Final = {"and": "&&", "or": "||"}

HEAD: Final = rf"""
#include <math.h>
#include <stdint.h>

typedef _Bool bool; /* not the macro of stdbool.h, which would be expanded in names of functions */
enum {{ false, true }};

#define FN static inline __attribute__((always_inline, unused))

{FAULT}

static __attribute__((noinline, cold, unused)) void report(int64_t *record, Fault fault, const int64_t *trips, int n)
{{
    int64_t free = 0;
    if (!__atomic_compare_exchange_n(record, &free, 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    record[1] = fault.what;
    record[2] = fault.where;
    record[3] = fault.index;
    record[4] = fault.dimension;
    for (int k = 0; k < n; k++)
        record[5 + k] = trips[k];
}}
""".strip()

ATOMICS: Final = r"""
/* One step on an element; all return the old value. `cas` compares by value. */
#define STEP(T, name, operator, value_of) \
FN T atomic_##operator##_##name(T *at, T value) \
{ \
    T old, made; \
    __atomic_load(at, &old, __ATOMIC_RELAXED); \
    do { \
        made = (T)(value_of); \
    } while (!__atomic_compare_exchange(at, &old, &made, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)); \
    return old; \
}

#define NATIVE(T, name, operator, builtin) \
FN T atomic_##operator##_##name(T *at, T value) { return builtin(at, value, __ATOMIC_RELAXED); }

#define ATOMIC(T, name) \
STEP(T, name, mul, old * value) \
STEP(T, name, min, value < old ? value : old) \
STEP(T, name, max, value > old ? value : old) \
FN T atomic_exchange_##name(T *at, T value) \
{ \
    T old; \
    __atomic_exchange(at, &value, &old, __ATOMIC_RELAXED); \
    return old; \
} \
FN T atomic_cas_##name(T *at, T expected, T value) \
{ \
    T old; \
    __atomic_load(at, &old, __ATOMIC_RELAXED); \
    do { \
        if (old != expected) \
            break; \
    } while (!__atomic_compare_exchange(at, &old, &value, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)); \
    return old; \
}

#define ATOMIC_INTEGER(T, name) \
ATOMIC(T, name) \
NATIVE(T, name, add, __atomic_fetch_add) \
NATIVE(T, name, sub, __atomic_fetch_sub) \
NATIVE(T, name, and, __atomic_fetch_and) \
NATIVE(T, name, or, __atomic_fetch_or) \
NATIVE(T, name, xor, __atomic_fetch_xor)

#define ATOMIC_FLOAT(T, name) \
ATOMIC(T, name) \
STEP(T, name, add, old + value) \
STEP(T, name, sub, old - value)
""".strip()

_OF_TYPE: Final = {
    "bool": "ATOMIC_INTEGER(uint8_t, bool)",
    **{name: f"ATOMIC_INTEGER({name}_t, {name})" for n in (8, 16, 32, 64) for name in (f"int{n}", f"uint{n}")},
    "float32": "ATOMIC_FLOAT(float, float32)",
    "float64": "ATOMIC_FLOAT(double, float64)",
    "complex64": "ATOMIC_COMPLEX(complex64, float32, complex64)",
    "complex128": "ATOMIC_COMPLEX(complex128, float64, complex128)",
}


def text(bodies: Mapping[str, Sequence[str]], parameters: Sequence[tuple[str, str]]) -> str:
    """Return the text of a nest: a function for each body, and the entry of its name that calls it.

    Each of ``parameters`` has the declaration of a parameter that the function has in addition to the chunk and
    ``slots``, and the argument that the entry passes for it.
    """
    declared = ", ".join(["const int64_t *const slots", *(parameter for parameter, _ in parameters), _CHUNK])
    given = ", ".join(["slots", *(argument for _, argument in parameters), "begin", "end", "chunk", "worker"])
    written: list[str] = []
    for entry, lines in bodies.items():
        name = "nest" if entry == ENTRY else f"nest_{entry}"
        written += [
            f"static __attribute__((noinline)) void {name}({declared})",
            "{",
            *indented([*lines, "(void)slots, (void)chunk, (void)worker;"]),
            "}",
            "",
            f"void {entry}(const void *arguments, {_CHUNK})",
            "{",
            *indented(["const int64_t *const slots = arguments;", f"{name}({given});"]),
            "}",
        ]
    body = "\n".join(written)
    return f"{prelude(HEAD, ATOMICS, C_STRUCTURES, _OF_TYPE, body)}\n{body}\n"


def loop(number: int, trips: str, body: Iterable[str], *, is_in_tile: bool = False) -> list[str]:
    """Return the loop over trips ``t`` of an axis: of the chunk if it is the outermost, or of a tile."""
    first, last = (f"o{number}", f"e{number}") if is_in_tile else ("0" if number else "begin", trips)
    return [f"for (int64_t t{number} = {first}; t{number} < {last}; t{number}++) {{", *indented(body), "}"]


def tiles(number: int, trips: str, size: int, body: Iterable[str]) -> list[str]:
    """Return the loop over the tiles of an axis, each from trip ``o`` to before trip ``e``."""
    first = "0" if number else "begin"
    end = f"const int64_t e{number} = {trips} - o{number} < {size} ? {trips} : o{number} + {size};"
    return [
        f"for (int64_t o{number} = {first}; o{number} < {trips}; o{number} += {size}) {{",
        *indented([end, *body]),
        "}",
    ]


def in_lanes(items: Iterable[tuple[str, str]], clauses: str = "") -> str:
    """Return the line before a loop that lets reductions, operators with variables, be computed in lanes."""
    declared = " ".join(f"reduction({LOGICAL.get(operator, operator)}:{variable})" for operator, variable in items)
    return f"#pragma omp simd {declared}{clauses}"


def words_at(partials: str, ctype: str, n_words: int, first: int) -> str:
    """Return a scalar among a chunk's words, from its first word, as an lvalue; all scalars have ``n_words``."""
    return f"*({ctype} *)({partials} + chunk * {n_words} + {first})"


def indented(lines: Iterable[str]) -> list[str]:
    """Return lines one step further in."""
    return [f"    {line}" for line in lines]
