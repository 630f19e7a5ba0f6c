"""Affine forms of an iteration's integers, and the extremes they take in a nest.

A form is ``constant + sum(coefficient * atom)`` on Python's integers. An *atom* is the number of a loop's trip, or a
value that is not affine. Loops count in trips, so steps are in coefficients. Equal operations on equal forms are one
atom.

An extreme is found by replacing the youngest atom by its bound, ``step * trip <= room``, until a number is left. It is
a bound in every nest, and *attained* if every loop on the way is never empty and has step one or a number of trips. A
form ignores wrapping; `integers` keeps it only if it fits its type, or modulo 2**64. docs/design/loops.md has more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias, get_args

from offload.loops.tree.ir import Dtype
from offload.loops.tree.promotion import is_float, limits

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

# Least and greatest value, both included.
Interval: TypeAlias = tuple[int, int]

NOTHING: Final[Mapping[int, Interval]] = {}


# What an integer type can hold.
LIMITS: Final[dict[Dtype, Interval]] = {dtype: limits(dtype) for dtype in get_args(Dtype) if not is_float(dtype)}


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
