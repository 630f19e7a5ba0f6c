"""Are the iterations of a nest independent? Decided at the launch, with numbers for all but trips and elements.

Two accesses of one storage, one of them a write, depend on each other if they touch the same byte in different
iterations. A pair is *independent* (impossible), *dependent* (certain) or unknown. Because -1 is the last element, an
access is taken in *pieces* in which the sign of each index is known. `equations` solves one equation for each dimension
of an array, or one equation of strides for views that overlap in bytes.

Reductions, private arrays and pairs of atomic updates are left out. An atomic update and a plain access are never
called dependent, because their order is up to the program. docs/design/loops.md has the choice of pairs and distances.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from math import gcd
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from offload.loops.proofs.affine import AffineForm, Interval
from offload.loops.proofs.equations import Equation, Inner, is_solved, narrowed
from offload.loops.proofs.radix import equal_parts

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from offload.loops.proofs.affine import IntegerValue
    from offload.loops.proofs.numbers import View
    from offload.loops.proofs.reach import ElementAccess, NestAccesses

DependenceKind: TypeAlias = Literal["flow", "anti", "output"]

# Numbers that are equal modulo 2**64 and differ by less are equal.
_HALF = 1 << 63

_MOST_PAIRS: Final = 4_096  # of pieces, which take some 0.3 s

# Of an access whose indices may be negative; an index more that may be is none of which anything is known.
_MOST_PIECES: Final = 4


@dataclass(frozen=True, slots=True)
class LoopDependence:
    """A dependence between iterations that certainly exists."""

    # `"flow"`: a write, then a read; `"anti"`: a read, then a write; `"output"`: two writes.
    kind: DependenceKind
    # In the iteration that comes first in order, and in the later one.
    source: ElementAccess
    sink: ElementAccess  # in the later iteration
    distance: tuple[int, ...]  # from the first to the later one, in trips of each axis


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict about a nest's iterations."""

    # `"parallel"`: independent; `"sequential"`: a dependence is proved; `"unknown"`.
    verdict: Literal["parallel", "sequential", "unknown"]
    dependences: tuple[LoopDependence, ...] = ()  # those that are proved, flow first
    unknown: tuple[int, ...] = ()  # the accesses, by `at`, of pairs of which nothing is known: those that need logs
    n_left: int = 0  # pairs of accesses that were not compared, since there are too many
    carried: str = ""  # why iterations run in order: by scalars that they pass on


def independence(accesses: NestAccesses, most_pairs: int = _MOST_PAIRS) -> Verdict:
    """Return whether the iterations of a nest are independent at a launch.

    Pairs of accesses beyond ``most_pairs`` pairs of pieces are not compared.
    """
    views = accesses.launch.views
    listed = [access for access in accesses.listed if access.array not in accesses.own]
    pieces = [tuple(_pieces(accesses, access)) for access in listed]
    numbers: dict[Hashable, int] = {}
    alike = [numbers.setdefault((a.array, a.kind, a.indices, a.loops, a.is_certain), len(numbers)) for a in listed]
    is_unknown: dict[tuple[int, int], bool] = {}
    equations = _Equations(accesses)
    proved: list[LoopDependence] = []
    unknown: set[int] = set()
    n_compared = n_left = 0
    arrays = {access.array for access in listed}
    sharing = {(one, other) for one in arrays for other in arrays if views[one].may_share(views[other])}
    for n, first in enumerate(listed):
        for m, second in enumerate(listed[n:], n):
            if first.kind == second.kind != "store" or (first.array, second.array) not in sharing:
                continue
            pair = alike[n], alike[m]
            if pair not in is_unknown and n_compared > most_pairs:
                unknown |= {first.at, second.at}
                n_left += 1
                continue
            if pair not in is_unknown:
                n_compared += len(pieces[n]) * len(pieces[m])
                answers = list(_answers(equations, pieces[n], pieces[m]))
                dependences = [answer for answer in answers if isinstance(answer, LoopDependence)]
                if dependences:  # each is named
                    proved += dependences
                    continue
                is_unknown[pair] = None in answers
            if is_unknown[pair]:
                unknown |= {first.at, second.at}
    order: tuple[DependenceKind, ...] = "flow", "anti", "output"
    proved.sort(key=lambda dependence: order.index(dependence.kind))
    verdict: Literal["parallel", "sequential", "unknown"] = "unknown" if unknown else "parallel"
    return Verdict("sequential" if proved else verdict, tuple(proved), tuple(sorted(unknown)), n_left)


def may_meet(accesses: NestAccesses, one: ElementAccess, other: ElementAccess) -> bool:
    """Tell whether two iterations may touch the same element by two accesses, or nothing is known of that."""
    pieces, others = (tuple(_pieces(accesses, access)) for access in (one, other))
    return any(answer != "never" for answer in _answers(_Equations(accesses), pieces, others))


@dataclass(frozen=True, slots=True)
class _Piece:
    """An access, in trips of the axes where it is known which of its indices are negative; others are None."""

    access: ElementAccess
    elements: tuple[AffineForm | None, ...]  # of each dimension, not negative; None where the sign is not known
    trips: tuple[Interval, ...]  # of each axis, in which the signs are these
    is_certain: bool  # every iteration of these trips carries it out, and inside of the array


def _pieces(accesses: NestAccesses, access: ElementAccess) -> Iterator[_Piece]:
    extents = accesses.extents[access.array]
    box = tuple((0, axis.trips - 1) for axis in accesses.launch.axes)
    signs: list[tuple[bool | None, ...]] = []
    n_pieces = 1
    for index in access.indices:
        possible = _signs(index)
        is_known = n_pieces * len(possible) <= _MOST_PIECES
        n_pieces *= len(possible) if is_known else 1
        signs.append(possible if is_known else (None,))
    in_range = all(
        -extent <= index.low and index.high < extent and index.is_exact
        for index, extent in zip(access.indices, extents, strict=True)
    )
    for negative in product(*signs):
        trips, is_certain = list(box), access.is_certain and in_range and None not in negative
        for index, is_negative, both in zip(access.indices, negative, signs, strict=True):
            if len(both) == 1 or is_negative is None:
                continue
            if index.is_exact and len(index.form.terms) == 1 and index.form.terms[0][0] < len(box):
                axis = index.form.terms[0][0]
                trips[axis] = _meet(trips[axis], _where(index.form, is_negative=is_negative))
            else:
                is_certain = False
        if all(low <= high for low, high in trips):
            elements = tuple(
                None if is_negative is None else index.form + (extent if is_negative else 0)
                for index, extent, is_negative in zip(access.indices, extents, negative, strict=True)
            )
            yield _Piece(access, elements, tuple(trips), is_certain)


def _signs(index: IntegerValue) -> tuple[bool, ...]:
    """Return whether an index is negative; both where it can be either."""
    return (False,) * (index.high >= 0) + (True,) * (index.low < 0)


def _where(form: AffineForm, *, is_negative: bool) -> Interval:
    """Return the trips in which ``constant + coefficient * trip`` is negative, or is not."""
    ((_, coefficient),) = form.terms
    if coefficient > 0:
        first = -(form.constant // coefficient)
        return (-_HALF, first - 1) if is_negative else (first, _HALF)
    last = form.constant // -coefficient
    return (last + 1, _HALF) if is_negative else (-_HALF, last)


def _meet(one: Interval, other: Interval) -> Interval:
    return max(one[0], other[0]), min(one[1], other[1])


def _answers(
    equations: _Equations, pieces: tuple[_Piece, ...], others: tuple[_Piece, ...]
) -> Iterator[LoopDependence | Literal["never"] | None]:
    """Iterate over how the pieces of two accesses meet, as far as more can be learnt."""
    for first, second in product(pieces, others):
        yield (answer := _meeting(equations, first, second))
        if answer is None and not (first.is_certain and second.is_certain):  # nor are the others: no proof follows
            return


def _meeting(found: _Equations, first: _Piece, second: _Piece) -> LoopDependence | Literal["never"] | None:
    """Return how two pieces meet in different iterations; None if it is unknown whether they do."""
    equations = list(found.of(first, second))
    known = [equation for equation in equations if equation is not None]
    if any(equation.is_excluded for equation in known):
        return "never"
    ranges = [(s[0] - t[1], s[1] - t[0]) for t, s in zip(first.trips, second.trips, strict=True)]
    distances = narrowed(known, ranges)
    if distances is None or all(interval == (0, 0) for interval in distances):
        return "never"
    is_proof = first.is_certain and second.is_certain and len(known) == len(equations)
    if not is_proof or "atomic" in {first.access.kind, second.access.kind} or not is_solved(known, distances):
        return None
    return _dependence(first.access, second.access, distances)


def _dependence(first: ElementAccess, second: ElementAccess, distances: list[Interval]) -> LoopDependence:
    chosen = [min(max(low, 0), high) for low, high in distances]
    if not any(chosen):  # free: the second, later in the text, in the iteration before
        axis = max(axis for axis, (low, high) in enumerate(distances) if low < high)
        chosen[axis] = -1 if distances[axis][0] < 0 else 1
    if chosen > [0] * len(chosen):
        source, sink, distance = first, second, tuple(chosen)
    else:
        source, sink, distance = second, first, tuple(-trips for trips in chosen)
    if source.kind == "load":
        return LoopDependence("anti", source, sink, distance)
    return LoopDependence("flow" if sink.kind == "load" else "output", source, sink, distance)


# -- equations of a pair ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Equations:
    """The equations of pairs of pieces; long texts have many pairs, but few different indices in each dimension."""

    accesses: NestAccesses
    # by the two sides, the trips in which they hold, and the slack
    known: dict[Hashable, Equation] = field(default_factory=dict)

    def of(self, first: _Piece, second: _Piece) -> Iterator[Equation | None]:
        """Yield the equations that hold where two pieces touch the same byte; None for one not expressible in trips."""
        views = self.accesses.launch.views
        one, other = views[first.access.array], views[second.access.array]
        if one == other and is_injective(one):
            exact: list[tuple[AffineForm, AffineForm]] = []
            for mine, others, of_mine, of_others in zip(
                first.elements, second.elements, first.access.indices, second.access.indices, strict=True
            ):
                if mine is None or others is None:
                    yield None
                    continue
                if of_mine.is_exact and of_others.is_exact:
                    exact.append((mine, others))
                    continue
                equation = self._equation((first, mine), (second, others), (0, 0))
                yield equation if -_HALF < equation.whole[0] <= equation.whole[1] < _HALF else None
            parts = equal_parts(self.accesses.space, exact)
            yield from (self._equation((first, mine), (second, others), (0, 0)) for mine, others in parts.pairs)
            yield from () if parts.is_complete else (None,)
            return
        mine, others = _offset(one, first), _offset(other, second)
        if mine is None or others is None:
            yield None
        else:
            slack = 1 - one.itemsize, other.itemsize - 1
            yield self._equation((first, mine), (second, others), slack)

    def _equation(self, one: tuple[_Piece, AffineForm], other: tuple[_Piece, AffineForm], slack: Interval) -> Equation:
        (first, mine), (second, others) = one, other
        key = mine, others, first.trips, second.trips, slack
        if key not in self.known:
            self.known[key] = _equation(self.accesses, one, other, slack)
        return self.known[key]


def is_injective(view: View) -> bool:
    """Whether different elements of a view are different bytes: each stride is at least the inner extent."""
    reach = view.itemsize
    dims = ((abs(stride), extent) for stride, extent in zip(view.strides, view.extents, strict=True) if extent > 1)
    for stride, extent in sorted(dims):
        if stride < reach:
            return False
        reach += stride * (extent - 1)
    return True


def _offset(view: View, piece: _Piece) -> AffineForm | None:
    """Return the address of an element; None where it is unknown."""
    address = AffineForm(view.address)
    for stride, element, index in zip(view.strides, piece.elements, piece.access.indices, strict=True):
        if element is None or not index.is_exact:
            return None
        address += element * stride
    return address


def _equation(
    accesses: NestAccesses, one: tuple[_Piece, AffineForm], other: tuple[_Piece, AffineForm], slack: Interval
) -> Equation:
    space, axes = accesses.space, range(len(accesses.launch.axes))
    (first, mine), (second, others) = one, other
    fixed = {atom for atom, _ in (*mine.terms, *others.terms) if space.atoms[atom].is_fixed}
    common = mine.part(fixed) - others.part(fixed)  # one number in all iterations
    constant = mine.constant - others.constant
    mine, others = (form - form.part(fixed) - form.constant for form in (mine, others))
    both = [(mine.coefficient(axis), others.coefficient(axis)) for axis in axes]
    distances = tuple(one if one == other else 0 for one, other in both)
    rest = [form - form.part(axis for axis in axes if distances[axis]) for form in (mine, others)]
    of_first, of_second = dict(enumerate(first.trips)), dict(enumerate(second.trips))

    def extremes(form: AffineForm, minus: AffineForm) -> Interval:
        parts = space.extremes(form, of_first), space.extremes(-minus, of_second), space.extremes(common)
        return sum(low for low, _ in parts), sum(high for _, high in parts)

    whole = extremes(mine, others)
    return Equation(
        coefficients=distances,
        constant=constant,
        rest=extremes(*rest),
        whole=(constant + whole[0], constant + whole[1]),
        divisor=gcd(*(by for form in (mine, others, common) for _, by in form.terms)),
        slack=slack,
        inner=None if common.terms else _inner(accesses, *rest),
    )


def _inner(
    accesses: NestAccesses, one: AffineForm, other: AffineForm
) -> tuple[tuple[Inner, ...], tuple[Inner, ...]] | None:
    """Return the terms of two sides if they are at most one each, of an inner loop whose trips are one number."""
    sides = []
    n_axes = len(accesses.launch.axes)
    for form in (one, other):
        atoms = [accesses.space.atoms[number] for number, _ in form.terms]
        if len(atoms) > 1 or any(not atom.is_trip or atom.room is not None for atom in atoms):
            return None
        if any(number < n_axes for number, _ in form.terms):
            return None
        terms = zip(form.terms, atoms, strict=True)
        sides.append(tuple(Inner(number, by, atom.high + 1) for (number, by), atom in terms))
    return sides[0], sides[1]
