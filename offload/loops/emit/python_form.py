"""The Python form of a nest: the text of `emit_py`, compiled, and the few functions that it calls."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import reduce
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import numpy as np

from offload.loops.emit.emit_py import emit_kernel, emit_parts
from offload.loops.proofs.reports import ASSERTION, BOUND, DIVISION, INDEX, STEP
from offload.loops.tree.promotion import WORD_NBYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from offload.loops.tree.ir import Dtype, Mode, Nest, ReductionOperator, Type, Typed


class AxisRange(NamedTuple):
    """The values of an axis: ``start + t * step`` for t below `trips`."""

    start: int  # of trip 0
    step: int  # from trip to trip
    trips: int  # how many


class _ReportedError(Exception):
    """The report has the error: the rest of the chunk is not carried out."""


def python_form(
    typed: Typed,
    nest: Nest,
    modes: Mapping[int, Mode],
    observed: frozenset[int] = frozenset(),
    *,
    goes_on: bool = False,
) -> Callable[..., None]:
    """Return the kernel of a nest: ``kernel(arguments, begin, end, chunk, partials, report)``.

    The kernel carries out the trips from ``begin`` to before ``end`` of the outermost axis. ``arguments`` has arrays
    and NumPy scalars by name, and Python integers ``"start 0"``, ``"step 0"``, ``"trips 0"`` and so on for the axes.
    ``partials`` is a uint64 array, chunks by words, as `result_words` places them. ``report`` is an int64 array. It
    keeps the first finding, and the rest of the chunk is not carried out after it.

    Accesses without an entry in ``modes`` are checked. ``arguments["observer"]``, which has `load` and `store`, carries
    out the accesses in ``observed``. With ``goes_on``, scalars continue from the words of chunk 0, and are left there
    even after a failure.
    """
    function = typed.function
    compiled = _compile(emit_kernel(typed, nest, modes, observed, goes_on=goes_on), function.name)["kernel"]

    def kernel(
        arguments: Mapping[str, Any],
        begin: int,
        end: int,
        chunk: int,
        partials: NDArray[np.uint64] | None,
        report: NDArray[np.int64],
    ) -> None:
        with np.errstate(all="ignore"), suppress(_ReportedError):
            compiled(arguments, begin, end, chunk, partials, report)

    return kernel


def host_parts(typed: Typed) -> tuple[Callable[[dict[str, Any], Mapping[str, Any]], tuple[AxisRange, ...] | None], ...]:
    """Return a function for each part of a loop function, to be called in their order.

    Each takes the scalars, a dictionary of values as `held` makes them, and the arrays. That of a statement carries it
    out on the dictionary; that of a nest returns its axes. A function may raise: `ValueError` for a step of zero,
    `OverflowError` for a bound that int64 does not hold, `ZeroDivisionError`, `AssertionError`.
    """
    count = len(typed.function.parts)
    compiled = _compile(emit_parts(typed), typed.function.name)
    return tuple(_silent(compiled[f"part_{number}"]) for number in range(count))


def held(value: Any, of: Type) -> Any:
    """Return a number as a NumPy scalar of a type, as C casts."""
    if value.__class__ is float and of.dtype == "float64":
        return np.float64(value)
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(of.dtype)[()]


def combine(operator: ReductionOperator, before: Any, partials: NDArray[np.uint64]) -> Any:
    """Return a reduction's item after a loop, from its value before and its words, a row for each chunk in order."""
    values = np.empty(1 + len(partials), before.dtype)
    values[0], values[1:] = before, _elements(partials, before.dtype)
    with np.errstate(all="ignore"):
        if operator == "*" and before.dtype.kind == "c":  # NumPy may round products of arrays in another way
            return reduce(mul, values)
        if operator in _ACCUMULATED:  # one by one, in their order
            return _ACCUMULATED[operator].accumulate(values, dtype=before.dtype)[-1]
        return before.dtype.type(reduce(_COMBINED[operator], values.tolist()))


def prefixes(operator: ReductionOperator, before: Any, partials: NDArray[np.uint64]) -> NDArray[Any]:
    """Return a scan's item before each chunk, from its value before the loop and its words, of the chunks' totals."""
    values = np.empty(1 + len(partials), before.dtype)
    values[0], values[1:] = before, _elements(partials, before.dtype)
    with np.errstate(all="ignore"):
        if operator in _ACCUMULATED:
            return _ACCUMULATED[operator].accumulate(values, dtype=before.dtype)[:-1]
        return np.array([*accumulate(values.tolist(), _COMBINED[operator])][:-1], before.dtype)


def bits(value: Any) -> NDArray[np.uint64]:
    """Return the bits of a NumPy scalar in the low bytes of its words: two of a complex128, one of others."""
    return np.frombuffer(value.tobytes().ljust(WORD_NBYTES, b"\0"), np.uint64)


def from_bits(words: NDArray[np.uint64], dtype: Dtype) -> Any:
    """Return the value that words hold."""
    return _elements(words.reshape(1, -1), np.dtype(dtype))[0]


def _elements(rows: NDArray[np.uint64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the values whose words are rows, in their low bytes."""
    if dtype.itemsize < WORD_NBYTES:
        return rows[:, 0].astype(f"u{dtype.itemsize}").view(dtype)
    return np.ascontiguousarray(rows).view(dtype)[:, 0]


def _compile(text: str, name: str) -> dict[str, Any]:
    namespace = dict(_NAMESPACE)
    exec(compile(text, f"<loop {name}>", "exec"), namespace)  # noqa: S102  # text of emit_py, nothing of the user's
    return namespace


def _silent(part: Callable[..., Any]) -> Callable[[dict[str, Any], Mapping[str, Any]], Any]:
    def silent(scalars: dict[str, Any], arrays: Mapping[str, Any]) -> Any:
        with np.errstate(all="ignore"):
            return part(scalars, arrays)

    return silent


# -- what the text calls ---------------------------------------------------------------------------------


def _fail(
    report: NDArray[np.int64], what: int, place: int, index: int, dimension: int, trips: tuple[int, ...]
) -> NoReturn:
    if report[0] == 0:
        report[: 5 + len(trips)] = (1, what, place, index, dimension, *trips)
    raise _ReportedError


def places(
    array: Any, indices: tuple[Any, ...], at: int, trips: tuple[int, ...], report: NDArray[np.int64]
) -> tuple[Any, ...]:
    """Return the indices, or report the first that is out of range."""
    for dimension, (index, extent) in enumerate(zip(indices, array.shape, strict=True)):
        if not -extent <= index < extent:
            _fail(report, INDEX, at, int(index), dimension, trips)
    return indices


def _load(array: Any, indices: tuple[Any, ...], at: int, trips: tuple[int, ...], report: NDArray[np.int64]) -> Any:
    return array[places(array, indices, at, trips, report)]


def _store(
    array: Any, indices: tuple[Any, ...], value: Any, at: int, trips: tuple[int, ...], report: NDArray[np.int64]
) -> None:
    array[places(array, indices, at, trips, report)] = value


def _floor_divide(left: Any, right: Any, line: int, trips: tuple[int, ...], report: NDArray[np.int64] | None) -> Any:
    _check_divisor(right, line, trips, report)
    return left // right


def _remainder(left: Any, right: Any, line: int, trips: tuple[int, ...], report: NDArray[np.int64] | None) -> Any:
    _check_divisor(right, line, trips, report)
    return left % right


def _check_divisor(right: Any, line: int, trips: tuple[int, ...], report: NDArray[np.int64] | None) -> None:
    if right == 0:
        if report is None:
            raise ZeroDivisionError(f"line {line}: an integer is divided by zero")
        _fail(report, DIVISION, line, 0, 0, trips)


def _check_indices(
    indices: tuple[Any, ...],
    sizes: tuple[int, ...],
    call: str,
    at: int,
    trips: tuple[int, ...],
    report: NDArray[np.int64] | None,
) -> None:
    """Report the first index of an array type's call that is out of range; on the host, raise."""
    for dimension, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        if not 0 <= index < size:
            if report is None:
                raise IndexError(f"index {index} is out of bounds for axis {dimension} of {call!r} with size {size}")
            _fail(report, INDEX, at, int(index), dimension, trips)


def _fail_assertion(line: int, trips: tuple[int, ...], report: NDArray[np.int64] | None) -> NoReturn:
    if report is None:
        raise AssertionError(f"line {line}: the assertion does not hold")
    _fail(report, ASSERTION, line, 0, 0, trips)


def _values_of(
    start: Any, stop: Any, step: Any, line: int, trips: tuple[int, ...], report: NDArray[np.int64] | None
) -> Iterator[np.int64]:
    """Return the values of an inner loop's variable."""
    if step == 0 and report is not None:
        _fail(report, STEP, line, 0, 0, trips)
    _check_step(step, line)
    values = range(int(start), int(stop), int(step))
    if _beyond_int64(values) is not None and report is not None:
        _fail(report, BOUND, line, 0, 0, trips)
    _check_held(values, line)
    return map(np.int64, values)


def _axis(start: Any, stop: Any, step: Any, line: int) -> AxisRange:
    _check_step(step, line)
    values = range(int(start), int(stop), int(step))
    _check_held(values, line)
    return AxisRange(values.start, values.step, len(values))


def _beyond_int64(values: range) -> int | None:
    """Return a bound, or the step, that int64 does not hold: that of a uint64."""
    return next((one for one in (values.start, values.stop, values.step) if one >= 1 << 63), None)


def _check_held(values: range, line: int) -> None:
    beyond = _beyond_int64(values)
    if beyond is not None:
        raise OverflowError(
            f"line {line}: range() has a bound or step of {beyond}, and ints in loops have 64 bits; use one below 2**63"
        )


def _check_step(step: Any, line: int) -> None:
    if step == 0:
        raise ValueError(f"line {line}: the step of range is 0; give one that is not")


def _least(first: Any, second: Any) -> Any:
    """Return Python's min, which keeps the first of two that do not compare."""
    return min(first, second)


def _greatest(first: Any, second: Any) -> Any:
    return max(first, second)


def _total(function: Callable[[float], float], at_pole: float) -> Callable[[np.float64], np.float64]:
    """Return a function of `math` that answers as C does where Python raises."""

    def total(value: np.float64) -> np.float64:
        try:
            return np.float64(function(float(value)))
        except OverflowError:
            return np.float64(math.inf)
        except ValueError:
            return np.float64(at_pole)

    return total


def _complex(real: Any, imag: Any) -> np.complex128:
    return np.complex128(complex(real, imag))


def _quotient(left: np.complex128, right: np.complex128) -> np.complex128:
    """Return CPython's quotient of complex numbers; by zero, that of their parts."""
    if right == 0:
        zero = np.abs(right.real)
        return _complex(left.real / zero, left.imag / zero)
    return np.complex128(complex(left) / complex(right))


def _powi(base: np.complex128, exponent: np.complex128) -> np.complex128:
    """Return CPython's power of a complex number by an integer of the text, as products; it may be infinite."""
    n = int(exponent.real)
    power, square, left = np.complex128(1), base, abs(n)
    while left:
        if left & 1:
            power = power * square
        square, left = square * square, left >> 1
    return power if n > 0 else _quotient(np.complex128(1), power)


def _gamma(value: np.float64) -> np.float64:
    return np.copysign(np.float64(math.inf), value) if value == 0 else _total(math.gamma, math.nan)(value)


_ACCUMULATED: Final[dict[str, np.ufunc]] = {
    "+": np.add,
    "*": np.multiply,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
}
_COMBINED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "min": _least,
    "max": _greatest,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
}
_NAMESPACE: Final[dict[str, Any]] = {
    "numpy": np,
    "bool_": np.bool_,
    **{name: getattr(np, name) for size in (8, 16, 32, 64) for name in (f"int{size}", f"uint{size}")},
    "float32": np.float32,
    "float64": np.float64,
    "complex64": np.complex64,
    "complex128": np.complex128,
    "complex_of": _complex,
    "quotient": _quotient,
    "powi": _powi,
    "bits": bits,
    "from_bits": from_bits,
    "load": _load,
    "store": _store,
    "floor_divide": _floor_divide,
    "remainder": _remainder,
    "fail_assertion": _fail_assertion,
    "check_indices": _check_indices,
    "values_of": _values_of,
    "axis": _axis,
    "check_step": _check_step,
    "least": _least,
    "greatest": _greatest,
    "erf": _total(math.erf, math.nan),
    "erfc": _total(math.erfc, math.nan),
    "gamma": _gamma,
    "lgamma": _total(math.lgamma, math.inf),
}
