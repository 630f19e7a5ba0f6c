"""The arithmetic of values of an iteration: affine if possible, by structure otherwise, always with bounds.

An `IntegerValue` is a form with an interval. `settle` takes the form that Python's integers would give. If its type
holds all its values, the machine's result is that form. Otherwise it may have wrapped: with 64 bits the form is right
modulo 2**64 and keeps the type's interval; with fewer bits the result is a new atom. Operations that are not linear are
atoms, unless intervals decide them: ``i % n`` with ``0 <= i < n`` is ``i``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from offload.loops.proofs.affine import LIMITS, AffineForm, Interval, Space

if TYPE_CHECKING:
    from collections.abc import Hashable

    from offload.loops.tree.ir import Dtype, Operator


@dataclass(frozen=True, slots=True)
class IntegerValue:
    """The value of an expression."""

    form: AffineForm  # equal to the value, or equal modulo 2**64 where not `is_exact`
    # The least and greatest it can be.
    low: int
    high: int  # included
    is_exact: bool = True  # False: only modulo 2**64

    @property
    def interval(self) -> Interval:
        return self.low, self.high


def limits_of(dtype: Dtype) -> Interval:
    """Return the range of a type; for a floating type, whose values are no indices, the range of all indices."""
    return LIMITS.get(dtype, LIMITS["int64"])


@dataclass(slots=True)
class IntegerValues:
    """Operations on values of one nest."""

    space: Space  # its atoms

    def settle(self, form: AffineForm, dtype: Dtype) -> IntegerValue:
        """Return the value that the type makes of the value in Python's integers."""
        low, high = limits_of(dtype)
        if form.is_constant:  # wrapped here: squared again and again it would have no end
            form = AffineForm((form.constant - low) % (high - low + 1) + low)
        least, greatest = self.space.extremes(form)
        if low <= least and greatest <= high:
            return IntegerValue(form, least, greatest)
        if dtype.endswith("64"):
            return IntegerValue(form, low, high, is_exact=False)
        return self.opaque(("wrapped", form), dtype, (form,))

    def opaque(
        self, key: Hashable, dtype: Dtype, parts: tuple[AffineForm, ...], interval: Interval | None = None
    ) -> IntegerValue:
        """Return the atom of an operation that is not affine; bounds that its type does not hold are dropped."""
        low, high = limits_of(dtype)
        if interval is not None and low <= interval[0] and interval[1] <= high:
            low, high = interval
        return IntegerValue(self.space.value((dtype, key), (low, high), parts), low, high)

    def exact(self, value: IntegerValue) -> AffineForm:
        """Return a form that is equal to the value: its own, or an atom for it."""
        if value.is_exact:
            return value.form
        return self.space.value(("exact", value.form, value.interval), value.interval, (value.form,))

    def convert(self, value: IntegerValue, to: Dtype, origin: Dtype) -> IntegerValue:
        """Return ``to(value)``."""
        if to == origin:
            return value
        if to in LIMITS and to != "bool" and origin in LIMITS:
            return self.settle(value.form, to)
        return self.opaque(("convert", origin, value.form), to, (value.form,))

    def binary(self, operator: Operator, left: IntegerValue, right: IntegerValue, dtype: Dtype) -> IntegerValue:
        """Return ``left operator right`` in a type."""
        if dtype in LIMITS and dtype != "bool":
            match operator:
                case "+":
                    return self.settle(left.form + right.form, dtype)
                case "-":
                    return self.settle(left.form - right.form, dtype)
                case "*":
                    return self._times(left, right, dtype)
                case "//" | "%" if right.low == right.high != 0:
                    return self._divided(operator, left, right.low, dtype)
                case "<<" if 0 <= right.low == right.high < 63:
                    return self._times(
                        left, IntegerValue(AffineForm(1 << right.low), 1 << right.low, 1 << right.low), dtype
                    )
                case ">>" if 0 <= right.low == right.high < 63:
                    return self._divided("//", left, 1 << right.low, dtype)
                case "&" if right.low >= 0 or left.low >= 0:
                    highs = [value.high for value in (left, right) if value.low >= 0]
                    return self._structural(operator, left, right, dtype, (0, min(highs)))
                case "**" if left.low == left.high and 0 <= right.low == right.high <= 64:
                    return self.settle(AffineForm(left.low**right.low), dtype)
                case _:
                    pass
        return self._structural(operator, left, right, dtype, None)

    def choose(self, function: str, left: IntegerValue, right: IntegerValue, dtype: Dtype) -> IntegerValue:
        """Return ``min`` or ``max`` of two integers."""
        smaller = function == "min"
        if left.high <= right.low:
            return left if smaller else right
        if right.high <= left.low:
            return right if smaller else left
        of_two = min if smaller else max
        interval = of_two(left.low, right.low), of_two(left.high, right.high)
        return self.opaque((function, left.form, right.form), dtype, (left.form, right.form), interval)

    def absolute(self, value: IntegerValue, dtype: Dtype) -> IntegerValue:
        """Return ``abs`` of an integer."""
        if value.low >= 0:
            return value
        if value.high <= 0:
            return self.settle(-value.form, dtype)
        return self.opaque(("abs", value.form), dtype, (value.form,), (0, max(-value.low, value.high)))

    def _times(self, left: IntegerValue, right: IntegerValue, dtype: Dtype) -> IntegerValue:
        if right.form.is_constant:
            return self.settle(left.form * right.form.constant, dtype)
        if left.form.is_constant:
            return self.settle(right.form * left.form.constant, dtype)
        corners = [first * second for first in left.interval for second in right.interval]
        return self._structural("*", left, right, dtype, (min(corners), max(corners)))

    def _divided(self, operator: Operator, left: IntegerValue, divisor: int, dtype: Dtype) -> IntegerValue:
        form = self.exact(left)
        ends = sorted((left.low // divisor, left.high // divisor))
        if ends[0] == ends[1]:  # one quotient for all
            return self.settle(AffineForm(ends[0]) if operator == "//" else form - ends[0] * divisor, dtype)
        multiples = all(coefficient % divisor == 0 for _, coefficient in form.terms)
        if multiples and operator == "%":
            return self.settle(AffineForm(form.constant % divisor), dtype)
        if multiples:
            terms = tuple((atom, coefficient // divisor) for atom, coefficient in form.terms)
            return self.settle(AffineForm(form.constant // divisor, terms), dtype)
        remainders = (0, divisor - 1) if divisor > 0 else (divisor + 1, 0)
        interval = (ends[0], ends[1]) if operator == "//" else remainders
        return self.opaque((operator, form, divisor), dtype, (form,), interval)

    def _structural(
        self, operator: Operator, left: IntegerValue, right: IntegerValue, dtype: Dtype, interval: Interval | None
    ) -> IntegerValue:
        return self.opaque((operator, left.form, right.form), dtype, (left.form, right.form), interval)
