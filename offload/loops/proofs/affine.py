"""Affine forms of an iteration's integers, and the extremes they take in a nest.

A form is ``constant + sum(coefficient * atom)`` on Python's integers. An *atom* is the number of a loop's trip, or a
value that is not affine. Loops count in trips, so steps are in coefficients. Equal operations on equal forms are one
atom.

An extreme is found by replacing the youngest atom by its bound, ``step * trip <= room``, until a number is left. It is
a bound in every nest, and *attained* if every loop on the way is never empty and has step one or a number of trips. A
form ignores wrapping; `settle` keeps it only if it fits its type, or modulo 2**64. docs/design/loops.md has more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, get_args

from offload.loops.tree.ir import Dtype
from offload.loops.tree.promotion import is_integer, limits

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from offload.loops.tree.ir import Operator


# Least and greatest value, both included.
Interval: TypeAlias = tuple[int, int]

NOTHING: Final[Mapping[int, Interval]] = {}


# What an integer type can hold.
LIMITS: Final[dict[Dtype, Interval]] = {
    dtype: limits(dtype) for dtype in get_args(Dtype) if dtype == "bool" or is_integer(dtype)
}


@dataclass(frozen=True, slots=True)
class AffineForm:
    """``constant + sum(coefficient * atom)``; terms by the number of the atom, no coefficient is 0."""

    constant: int = 0
    terms: tuple[tuple[int, int], ...] = ()  # (atom, coefficient), sorted; no coefficient is 0

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def __add__(self, other: AffineForm | int) -> AffineForm:
        if isinstance(other, int):
            return AffineForm(self.constant + other, self.terms)
        if not other.terms:
            return AffineForm(self.constant + other.constant, self.terms)
        merged = dict(self.terms)
        for atom, coefficient in other.terms:
            merged[atom] = merged.get(atom, 0) + coefficient
        terms = tuple(sorted((atom, coefficient) for atom, coefficient in merged.items() if coefficient))
        return AffineForm(self.constant + other.constant, terms)

    def __mul__(self, factor: int) -> AffineForm:
        if not factor:
            return AffineForm()
        return AffineForm(
            self.constant * factor, tuple((atom, coefficient * factor) for atom, coefficient in self.terms)
        )

    def __neg__(self) -> AffineForm:
        return self * -1

    def __sub__(self, other: AffineForm | int) -> AffineForm:
        return self + -other

    def coefficient(self, atom: int) -> int:
        return dict(self.terms).get(atom, 0)

    def part(self, atoms: Iterable[int]) -> AffineForm:
        """Return the terms of these atoms alone, without the constant."""
        wanted = frozenset(atoms)
        return AffineForm(0, tuple(term for term in self.terms if term[0] in wanted))


@dataclass(frozen=True, slots=True)
class Atom:
    """A trip's number, or a value that is not affine."""

    # Bounds over the nest; of a trip 0 and the last one that any iteration can have.
    low: int
    high: int  # included
    step: int = 0  # of a loop, without its sign; 0 for a value
    room: AffineForm | None = None  # of a loop whose number of trips varies: `step * trip <= room`
    loops: frozenset[int] = frozenset()  # the atoms of the loops in whose trips it can change
    loads: frozenset[int] = frozenset()  # the accesses, by `at`, whose elements it is made of
    # Made of trips, numbers of the launch and elements that the nest does not write, so that it can be had wherever its
    # trips are known.
    is_pure: bool = True

    @property
    def is_trip(self) -> bool:
        return self.step != 0

    @property
    def is_fixed(self) -> bool:
        """Whether it is one number in the whole nest."""
        return self.is_pure and not self.loops


@dataclass(slots=True)
class Space:
    """The atoms of a nest, and the properties of forms of them."""

    atoms: list[Atom] = field(default_factory=list)  # the axes' trips come first
    # Of atoms that are quotients or remainders: the operator, the form, and the positive divisor.
    digits: dict[int, tuple[Operator, AffineForm, int]] = field(default_factory=dict)
    _numbers: dict[Hashable, int] = field(default_factory=dict)  # of atoms, by their structure

    def trip(self, room: AffineForm, step: int) -> AffineForm | None:
        """Return a new loop's trip number, or None if the loop has no trip in any iteration.

        ``room`` is ``stop - start - 1``, or ``start - stop - 1`` if the loop counts down; ``step`` has no sign.
        """
        _, greatest = self.extremes(room)
        if greatest < 0:
            return None
        number = len(self.atoms)
        self.atoms.append(
            Atom(
                0,
                greatest // step,
                step,
                None if room.is_constant else room,
                frozenset({number}) | self.loops(room),
                self.loads(room),
                self.is_pure(room),
            )
        )
        return AffineForm(0, ((number, 1),))

    def value(
        self, key: Hashable, interval: Interval, parts: Iterable[AffineForm] = (), loads: frozenset[int] = frozenset()
    ) -> AffineForm:
        """Return the atom of a value that is not affine: the one of this key, or a new one.

        ``key`` has the operation and the forms of its operands. The bounds in ``interval`` hold wherever it is
        evaluated. It is computed from ``parts``; ``loads`` has the load that it is, by `at`.
        """
        number = self._numbers.get(key)
        if number is None:
            parts = tuple(parts)
            loops = frozenset[int]().union(*map(self.loops, parts))
            loads = loads.union(*map(self.loads, parts))
            number = self._add(Atom(*interval, 0, None, loops, loads, all(map(self.is_pure, parts))))
            self._numbers[key] = number
        return AffineForm(0, ((number, 1),))

    def unknown(self, interval: Interval, loops: frozenset[int]) -> AffineForm:
        """Return a new atom of which nothing is known but bounds and the loops in whose trips it can change."""
        return AffineForm(0, ((self._add(Atom(*interval, 0, None, loops, is_pure=False)), 1),))

    def extremes(self, form: AffineForm, narrowed: Mapping[int, Interval] = NOTHING) -> Interval:
        """Return bounds of a form over the nest, or over the part of it where trips of axes are `narrowed`."""
        return -self._greatest(-form, narrowed), self._greatest(form, narrowed)

    def is_attained(self, form: AffineForm) -> bool:
        """Whether each of the extremes is a value of the form, if no loop whose trips are in it is ever empty."""
        atoms = [self.atoms[number] for number, _ in form.terms]
        return all(
            atom.is_trip and (atom.room is None or (atom.step == 1 and self.is_attained(atom.room))) for atom in atoms
        )

    def loops(self, form: AffineForm) -> frozenset[int]:
        """Return the atoms of the loops in whose trips it can change."""
        return frozenset[int]().union(*(self.atoms[number].loops for number, _ in form.terms))

    def loads(self, form: AffineForm) -> frozenset[int]:
        """Return the loads, by `at`, that it is made of."""
        return frozenset[int]().union(*(self.atoms[number].loads for number, _ in form.terms))

    def is_pure(self, form: AffineForm) -> bool:
        return all(self.atoms[number].is_pure for number, _ in form.terms)

    def _add(self, atom: Atom) -> int:
        self.atoms.append(atom)
        return len(self.atoms) - 1

    def _greatest(self, form: AffineForm, narrowed: Mapping[int, Interval]) -> int:
        while form.terms:
            number, coefficient = form.terms[-1]
            atom = self.atoms[number]
            form = AffineForm(form.constant, form.terms[:-1])
            low, high = narrowed.get(number, (atom.low, atom.high))
            if coefficient < 0:
                form += coefficient * low
            elif atom.room is None or coefficient % atom.step:
                form += coefficient * high
            else:
                form += atom.room * (coefficient // atom.step)
        return form.constant


# -- integers of an iteration -------------------------------------------------------------------------
#
# An `IntegerValue` is a form with an interval. `settle` takes the form that Python would give. If its type holds all
# its values, the result of the machine is that form. Otherwise it may have wrapped: with 64 bits the form is right
# modulo 2**64 and keeps the interval of the type; with fewer bits the result is a new atom. Operations that are not
# linear are atoms, unless intervals decide them: `i % n` with `0 <= i < n` is `i`.


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
        multiples = tuple((atom, by // divisor) for atom, by in form.terms if by % divisor == 0)
        rest = AffineForm(form.constant % divisor, tuple(term for term in form.terms if term[1] % divisor))
        low, high = (end // divisor for end in self.space.extremes(rest))
        if low == high:  # the other terms are multiples, and what they leave has one quotient
            quotient = AffineForm(form.constant // divisor + low, multiples)
            return self.settle(quotient if operator == "//" else rest - low * divisor, dtype)
        remainders = (0, divisor - 1) if divisor > 0 else (divisor + 1, 0)
        interval = (ends[0], ends[1]) if operator == "//" else remainders
        value = self.opaque((operator, form, divisor), dtype, (form,), interval)
        if divisor > 0 and value.interval == interval:
            self.space.digits[value.form.terms[0][0]] = operator, form, divisor
        return value

    def _structural(
        self, operator: Operator, left: IntegerValue, right: IntegerValue, dtype: Dtype, interval: Interval | None
    ) -> IntegerValue:
        return self.opaque((operator, left.form, right.form), dtype, (left.form, right.form), interval)
