"""The type of a number: NumPy 2's promotion, where Python's numbers are weak and all others strong.

Weak types are ordered ``bool < int64 < float64 < complex128``. A weak and a strong type give the strong one, unless
the weak one is of a greater kind: then the result is ``int64``, ``float64`` or ``complex128``, or ``complex64`` if the
strong type is ``float32``, as in NumPy. Two strong types give the least type that holds both, as
`numpy.promote_types`; it is computed here, since no deciding module imports NumPy. The functions return None where
NumPy would refuse, or would give a type that loops lack (``float16``).
"""

from __future__ import annotations

import struct
from functools import reduce
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias

from offload.loops.tree.ir import Type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.loops.tree.ir import Dtype, ReductionOperator

WEAK_BOOL: Final = Type("bool", is_weak=True)
WEAK_INT: Final = Type("int64", is_weak=True)
WEAK_FLOAT: Final = Type("float64", is_weak=True)
WEAK_COMPLEX: Final = Type("complex128", is_weak=True)
BOOL: Final = Type("bool")

# Spelled out: to mypy `float` alone would be a float where an int is asked for.
Number: TypeAlias = bool | int | float | complex

_NBYTES: Final[dict[Dtype, int]] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
_SIGNED: Final[dict[int, Dtype]] = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}
_KINDS: Final = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}

# Of the structure of arguments, and of partial results.
WORD_NBYTES: Final = 8


def nbytes_of(dtype: Dtype) -> int:
    """Return how many bytes an element has."""
    return _NBYTES[dtype]


def is_float(dtype: Dtype) -> bool:
    """Tell whether it is ``float32`` or ``float64``."""
    return dtype[0] == "f"


def is_complex(dtype: Dtype) -> bool:
    """Tell whether it is ``complex64`` or ``complex128``."""
    return dtype[0] == "c"


def is_inexact(dtype: Dtype) -> bool:
    """Tell whether values are rounded: of floats and of complex numbers."""
    return is_float(dtype) or is_complex(dtype)


def part_of(dtype: Dtype) -> Dtype:
    """Return the type of the parts of a complex type; return other types as they are."""
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)  # type: ignore[return-value]


def words_of(dtype: Dtype) -> int:
    """Return how many words of 8 bytes a value takes among arguments and partial results."""
    return -(-_NBYTES[dtype] // WORD_NBYTES)


def word_places(dtypes: Iterable[Dtype]) -> tuple[int, ...]:
    """Return the first word of each of several values that lie side by side, and the number of their words."""
    return tuple(accumulate(map(words_of, dtypes), initial=0))


def is_integer(dtype: Dtype) -> bool:
    """Tell whether it is an integer; bool is none."""
    return dtype[0] in "iu"


def is_signed(dtype: Dtype) -> bool:
    """Tell whether it is an integer with negative values."""
    return dtype[0] == "i"


def promote(a: Type, b: Type) -> Type:
    """Return the type that two numbers have in common."""
    if a.is_weak and b.is_weak:
        return a if _KINDS[a.dtype[0]] >= _KINDS[b.dtype[0]] else b
    if a.is_weak or b.is_weak:
        weak, strong = (a, b) if a.is_weak else (b, a)
        if _KINDS[weak.dtype[0]] <= _KINDS[strong.dtype[0]]:
            return strong
        return Type("complex64") if is_complex(weak.dtype) and strong.dtype == "float32" else Type(weak.dtype)
    return Type(_promote_strong(a.dtype, b.dtype))


def join(types: Iterable[Type]) -> Type:
    """Return the type of a scalar that is assigned values of these types; their order has no influence."""
    return reduce(promote, sorted(types, key=lambda t: (t.is_weak, -_KINDS[t.dtype[0]], -_NBYTES[t.dtype], t.dtype)))


def _promote_strong(a: Dtype, b: Dtype) -> Dtype:
    if b in (a, "bool"):
        return a
    if a == "bool":
        return b
    if is_complex(a) or is_complex(b):
        return "complex64" if _promote_strong(part_of(a), part_of(b)) == "float32" else "complex128"
    if is_float(a) or is_float(b):
        whole = b if is_float(a) else a
        widest = max(_NBYTES[a], _NBYTES[b])
        # A float32 holds integers of 16 bits and no wider ones.
        return "float64" if widest == 8 or (is_integer(whole) and _NBYTES[whole] > 2) else "float32"
    if is_signed(a) == is_signed(b):
        return a if _NBYTES[a] >= _NBYTES[b] else b
    signed, unsigned = (a, b) if is_signed(a) else (b, a)
    return _SIGNED.get(max(_NBYTES[signed], 2 * _NBYTES[unsigned]), "float64")


# -- operators -------------------------------------------------------------------------------------------

_OF_COMPLEX: Final = frozenset({"+", "-", "*", "/", "**"})


def binary_type(operator: str, a: Type, b: Type) -> Type | None:
    """Return the type of both operands and of the result, or None where there is none."""
    common = promote(a, b)
    if is_complex(common.dtype):
        return common if operator in _OF_COMPLEX else None
    if operator == "/":
        return common if is_float(common.dtype) else Type("float64", is_weak=common.is_weak)
    if operator in ("&", "|", "^"):
        return None if is_float(common.dtype) else common
    if operator in ("<<", ">>") and is_float(common.dtype):
        return None
    if common.dtype != "bool":
        return common
    if common.is_weak:
        return WEAK_INT
    return None if operator in ("+", "-", "*") else Type("int8")


def unary_type(operator: str, a: Type) -> Type | None:
    """Return the type of ``-a``, ``+a`` or ``~a``, and of its operand, or None."""
    if a.dtype == "bool" and a.is_weak:
        return WEAK_INT
    if operator == "~":
        return None if is_inexact(a.dtype) else a
    return None if a.dtype == "bool" else a


def comparison_types(a: Type, b: Type) -> tuple[Type, Type]:
    """Return the types that the sides of a comparison are converted to: two integers keep theirs."""
    if is_integer(a.dtype) and is_integer(b.dtype):
        return a, b
    common = promote(a, b)
    return common, common


def ufunc_float_type(arguments: tuple[Type, ...]) -> Type | None:
    """Return the type of NumPy's function of floats for such arguments, or None where it is ``float16``.

    It is complex if an argument is.
    """
    if any(is_complex(argument.dtype) for argument in arguments):
        return Type(join(arguments).dtype)
    if all(argument.is_weak for argument in arguments):
        return None if all(argument.dtype == "bool" for argument in arguments) else Type("float64")
    strong = [argument for argument in arguments if not argument.is_weak]
    # A weak argument counts as what it becomes beside the strong ones.
    held = [*strong, *(promote(argument, join(strong)) for argument in arguments if argument.is_weak)]
    widest = max(_float_nbytes(argument.dtype) for argument in held)
    return None if widest == 2 else Type("float32" if widest == 4 else "float64")


def _float_nbytes(dtype: Dtype) -> int:
    return _NBYTES[dtype] if is_float(dtype) else min(8, 2 * _NBYTES[dtype])


# -- values ----------------------------------------------------------------------------------------------


def limits(dtype: Dtype) -> tuple[int, int]:
    """Return the least and the greatest value of an integer or bool type."""
    if dtype == "bool":
        return 0, 1
    bits = 8 * _NBYTES[dtype]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed(dtype) else (0, (1 << bits) - 1)


def holds(dtype: Dtype, value: Number) -> bool:
    """Tell whether a constant can be given this type: floats hold any, integers only those in their range."""
    if is_inexact(dtype) or isinstance(value, float | complex):
        return True
    least, greatest = limits("int64" if dtype == "bool" else dtype)
    return least <= value <= greatest


def cast(dtype: Dtype, value: Number) -> Number:
    """Return a constant as C casts it; an undefined result is 0."""
    if dtype == "bool":
        return bool(value)
    if is_complex(dtype):
        exact = complex(value)
        return exact if dtype == "complex128" else complex(_to_float32(exact.real), _to_float32(exact.imag))
    assert not isinstance(value, complex)  # `convert` has refused it
    if is_float(dtype):
        return float(value) if dtype == "float64" else _to_float32(float(value))
    if isinstance(value, float) and not -(2.0**63) <= value < 2.0**64:
        return 0
    bits = 8 * _NBYTES[dtype]
    low = int(value) & ((1 << bits) - 1)
    return low - (1 << bits) if is_signed(dtype) and low >> bits - 1 else low


def _to_float32(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return inf if value > 0 else -inf


def identity(operator: ReductionOperator, dtype: Dtype) -> Number:
    """Return the value that a chunk's partial result starts from: combined with x it gives x, bit for bit."""
    if operator in ("min", "max"):
        if is_float(dtype):
            return inf if operator == "min" else -inf
        least, greatest = limits(dtype)
        return cast(dtype, greatest if operator == "min" else least)
    # Minus zero: zero would make minus zero positive.
    zero = complex(-0.0, -0.0) if is_complex(dtype) else -0.0 if is_float(dtype) else 0
    values = {"+": zero, "*": 1, "&": -1, "|": 0, "^": 0, "and": 1, "or": 0}
    return cast(dtype, values[operator])
