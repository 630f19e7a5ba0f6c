"""Whether bounded integers have a given weighted sum, by a reduced lattice.

The solutions of the equation are one of them plus a lattice. A basis that is reduced in integers allows to enumerate
those within the bounds, coordinate by coordinate. See docs/design/theory.md, "Injective types".
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Vector = list[int]


class Unknown(NamedTuple):
    """An integer to be found, ``low`` to ``high``, and the positive ``step`` that it is multiplied by."""

    step: int  # at least 1
    low: int  # at most ``high``
    high: int


def has_solution(unknowns: Sequence[Unknown], target: int) -> bool:
    """Return whether unknowns can be chosen so that their sum, each by its step, is ``target``."""
    target -= sum(unknown.step * unknown.low for unknown in unknowns if unknown.low == unknown.high)
    unknowns = [unknown for unknown in unknowns if unknown.low < unknown.high]
    if not unknowns:
        return not target
    # One solution whatever the bounds, and the differences between solutions.
    start, kernel = _solutions([unknown.step for unknown in unknowns], target)
    if start is None:
        return False
    # Coordinates are scaled so that all bounds are about as wide: the points within lie in one ball.
    bits = max(unknown.high - unknown.low for unknown in unknowns).bit_length() + 8
    scales = [(1 << bits) // (unknown.high - unknown.low) for unknown in unknowns]
    # From the middle of the bounds, twice, so that it is an integer.
    offset = [
        scale * (2 * x - unknown.low - unknown.high) for scale, x, unknown in zip(scales, start, unknowns, strict=True)
    ]
    basis = [[2 * scale * x for scale, x in zip(scales, vector, strict=True)] for vector in kernel]
    limits = [scale * (unknown.high - unknown.low) for scale, unknown in zip(scales, unknowns, strict=True)]
    return any(
        all(abs(x) <= limit for x, limit in zip(point, limits, strict=True))
        for point in _Reduced(basis).points(offset, len(unknowns) << (2 * bits))
    )


def _solutions(steps: Sequence[int], target: int) -> tuple[Vector | None, list[Vector]]:
    """Return one solution without bounds, None where there is none, and a basis of the solutions for 0."""
    n = len(steps)
    common, made = steps[0], [1] + [0] * (n - 1)  # the greatest common divisor so far, and what makes it
    kernel = []
    for k in range(1, n):
        divisor, p, q = _bezout(common, steps[k])
        vector = [steps[k] // divisor * x for x in made]
        vector[k] = -(common // divisor)
        kernel.append(vector)
        made = [p * x for x in made]
        made[k] = q
        common = divisor
    if target % common:
        return None, kernel
    return [target // common * x for x in made], kernel


def _bezout(a: int, b: int) -> tuple[int, int, int]:
    """Return ``(g, p, q)`` with ``p * a + q * b == g``, the greatest common divisor of positive numbers."""
    p, q, r, s = 1, 0, 0, 1
    while b:
        quotient = a // b
        a, b = b, a - quotient * b
        p, q, r, s = r, s, p - quotient * r, q - quotient * s
    return a, p, q


class _Reduced:
    """A reduced basis, with its orthogonal one in integers: ``d`` are products of squares of lengths."""

    def __init__(self, basis: list[Vector]) -> None:
        self.basis = basis  # its vectors, short and nearly orthogonal
        self.d = [1]  # d[k + 1] belongs to vector k
        self.parts: list[Vector] = []  # parts[k][j] / d[j + 1] is what vector k has of the orthogonal vector j
        k = 0
        while k < len(basis):
            if k == len(self.parts):
                self._add(basis[k])
            if k and self._is_swapped(k):
                k -= 1
                continue
            for j in range(k - 2, -1, -1):
                self._shorten(k, j)
            k += 1

    def _add(self, vector: Vector) -> None:
        *row, last = self.row(vector)
        self.parts.append(row)
        self.d.append(last)

    def row(self, vector: Vector) -> Vector:
        """Return the parts of a vector, and last the product of the squares of lengths with its own."""
        row: Vector = []
        for j, other in enumerate([*self.basis[: len(self.parts)], vector]):
            part = sum(x * y for x, y in zip(vector, other, strict=True))
            theirs = self.parts[j] if j < len(self.parts) else row
            for i in range(j):
                part = (self.d[i + 1] * part - row[i] * theirs[i]) // self.d[i]
            row.append(part)
        return row

    def _shorten(self, k: int, j: int) -> None:
        """Take a multiple of an earlier vector off, so that at most half of its orthogonal one is left."""
        d = self.d[j + 1]
        q = (2 * self.parts[k][j] + d) // (2 * d)
        if q:
            self.basis[k] = [x - q * y for x, y in zip(self.basis[k], self.basis[j], strict=True)]
            self.parts[k][j] -= q * d
            for i in range(j):
                self.parts[k][i] -= q * self.parts[j][i]

    def _is_swapped(self, k: int) -> bool:
        """Exchange a vector with the one before where that is too long; return whether."""
        self._shorten(k, k - 1)
        basis, d, parts = self.basis, self.d, self.parts
        part = parts[k][k - 1]
        if 4 * (d[k + 1] * d[k - 1] + part * part) >= 3 * d[k] * d[k]:
            return False
        basis[k], basis[k - 1] = basis[k - 1], basis[k]
        parts[k][: k - 1], parts[k - 1][: k - 1] = parts[k - 1][: k - 1], parts[k][: k - 1]
        new = (d[k - 1] * d[k + 1] + part * part) // d[k]
        for row in parts[k + 1 :]:
            mine, its = row[k], row[k - 1]
            row[k] = (d[k + 1] * its - part * mine) // d[k]
            row[k - 1] = (new * mine + part * row[k]) // d[k + 1]
        d[k] = new
        return True

    def points(self, offset: Vector, square: int) -> Iterator[Vector]:
        """Yield the points of the lattice, moved by ``offset``, whose squared distance from 0 is at most ``square``."""
        n = len(self.basis)
        *parts, last = self.row(offset)
        places = [Fraction(part, d) for part, d in zip(parts, self.d[1:], strict=True)]
        yield from self._points(n - 1, offset, places, square - Fraction(last, self.d[n]))

    def _points(self, k: int, point: Vector, places: list[Fraction], left: Fraction) -> Iterator[Vector]:
        """Choose the multiple of vector ``k`` and of those before; ``places`` is where the point is along them."""
        if left < 0:
            return
        if k < 0:
            yield point
            return
        square = Fraction(self.d[k + 1], self.d[k])  # the squared length of the orthogonal vector k
        limit = left / square
        reach = isqrt(limit.numerator // limit.denominator) + 1
        middle = round(-places[k])
        for z in sorted(range(middle - reach, middle + reach + 1), key=lambda z: abs(z - middle)):
            place = places[k] + z
            if place * place <= limit:
                moved = [x + z * y for x, y in zip(point, self.basis[k], strict=True)]
                along = [places[j] + z * Fraction(self.parts[k][j], self.d[j + 1]) for j in range(k)]
                yield from self._points(k - 1, moved, along, left - place * place * square)
