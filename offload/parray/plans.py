"""How a typed copy is done: two types refined to one nest of loops, or to few.

Element *k* has digits in both types. `refined` splits them at each other's boundaries into one nest with two steps for
each loop, a box; cut digits make several boxes. If there would be many, or a type has no digits, offsets are compared:
few long runs are boxes, the rest are tables, made by the caller. See docs/design/theory.md, "Plans of typed copies".
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import lru_cache
from math import lcm, prod
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from offload.errors import ClauseError, LayoutError
from offload.parray import elements
from offload.parray.digits import Digit, part_of, split
from offload.parray.dimensions import abridged
from offload.parray.references import BOTH, THREADS
from offload.parray.rules import UNIT, halves, listed
from offload.parray.types import ArrayType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.parray.digits import Form

MOST_BOXES: Final = 1024  # Boxes that are better than tables; those of pairs of threads are not counted

# Elements of a box, on average, from which boxes are better than tables: copying a box takes as long as so many by a
# table.
LEAST_BOX: Final = 4096

ALWAYS_BOXES: Final = 4  # So few boxes are better than tables, whatever their size

MOST_LOOKED_AT: Final = 1 << 22  # Elements of a pair with digits, but none in common, whose offsets are compared

KEPT_PLANS: Final = 1024  # Plans that are kept, the last ones asked for

# Boxes of the plans that are kept, of some 250 bytes each; with more all plans go but the last.
KEPT_BOXES: Final = 1 << 19

_n_boxes = [0]  # Boxes that have been made since plans last went; one number, since no two are ever needed to agree

PlanKind: TypeAlias = Literal["empty", "contiguous", "strided", "boxes", "indexed"]

Loop: TypeAlias = tuple[Digit, Digit]  # A digit of the source and one of the target, of one count


class Box(NamedTuple):
    """A nest of loops that copies elements of one memory to one memory.

    Attributes
    ----------
    source_thread, target_thread : int or None
        The threads of the source and the target, if these are distributed.
    source_offset, target_offset : int
        The offsets of the first element.
    digits : tuple of (int, int, int)
        ``(count, source_step, target_step)``, outermost first, in elements.

    Examples
    --------
    >>> A = parray.ArrayType((2, 3))
    >>> box = parray.plan(A, parray.ArrayType((A[1], A[0]))).boxes[0]
    >>> box.digits, box.size
    (((3, 2, 1), (2, 1, 3)), 6)
    """

    source_thread: int | None  # None: the source is not distributed
    target_thread: int | None
    source_offset: int  # in elements, in the memory of the thread
    target_offset: int
    digits: tuple[tuple[int, int, int], ...]  # no count is 1, and no loop continues the next one on both sides

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for count, _, _ in self.digits:
            size *= count
        return size


@dataclass(frozen=True)
class Plan:
    """A description of how offload makes a typed copy.

    Attributes
    ----------
    kind : str
        ``"empty"``, ``"contiguous"`` (one run), ``"strided"`` (one box), ``"boxes"`` (several) or ``"indexed"`` (by
        tables).
    size : int
        Number of elements.
    boxes : tuple of Box
        The boxes contain every element once. The tuple is empty if the copy is indexed.

    Examples
    --------
    >>> A = parray.ArrayType((2, 3))
    >>> plan = parray.plan(A, parray.ArrayType((A[1], A[0])))
    >>> plan.kind, plan.size, len(plan.boxes)
    ('strided', 6, 1)
    """

    kind: PlanKind
    size: int
    boxes: tuple[Box, ...]  # disjoint on the target's side, since targets are injective

    def __str__(self) -> str:
        if self.kind == "empty":
            return "nothing to copy: the types have no elements"
        start = f"{self.kind}: {self.size} element{'s' * (self.size > 1)}"
        if self.kind == "indexed":
            return f"{start} by tables of offsets, one number for each element and side"
        if len(self.boxes) == 1:
            return f"{start} in one {'run' if self.kind == 'contiguous' else 'box'}\n  {_words(self.boxes[0])}"
        shown = [f"  {_words(box)}" for box in self.boxes[:8]]
        more = [f"  … and {len(self.boxes) - 8} more"] if len(self.boxes) > 8 else []
        return "\n".join([f"{start} in {len(self.boxes)} boxes", *shown, *more])


def plan(source_type: ArrayType, target_type: ArrayType) -> Plan:
    """Return the plan of a copy from one type to another.

    Parameters
    ----------
    source_type, target_type : ArrayType
        Two types of the same size.

    Returns
    -------
    Plan
        Equal pairs give the same object, as long as it is in the cache.

    Raises
    ------
    LayoutError
        The sizes differ, the target is not injective, or an index leaves a type. A side is a thread array. One side
        uses threads and the other ranks, or the sides have two communicators.
    ClauseError
        A side is not an `ArrayType`.

    Notes
    -----
    For affine types, the cost depends on the number of dimensions, not of elements. A pair in the cache costs nothing.

    Examples
    --------
    >>> A = parray.ArrayType((2, 3))
    >>> parray.plan(A, A).kind, parray.plan(A, parray.ArrayType((A[1], A[0]))).kind
    ('contiguous', 'strided')
    """
    for side, word in ((source_type, "source"), (target_type, "target")):
        if not isinstance(side, ArrayType):
            raise ClauseError(
                f"the {word} type is {side!r}, {type(side).__name__}; it must be an ArrayType: write "
                f"ArrayType({side!r})"
            )
    return _planned(source_type, target_type)


@lru_cache(maxsize=KEPT_PLANS)
def _planned(source: ArrayType, target: ArrayType) -> Plan:
    _check(source, target)
    size = source.size
    if not size:
        return Plan("empty", 0, ())
    boxes = _boxes(source, target)
    if boxes is None:
        return Plan("indexed", size, ())
    if len(boxes) > 1:
        _n_boxes[0] += len(boxes)
        if _n_boxes[0] > KEPT_BOXES:
            _planned.cache_clear()  # this plan enters behind it
            _n_boxes[0] = len(boxes)
        return Plan("boxes", size, boxes)
    is_run = boxes[0].digits in ((), ((size, 1, 1),))
    return Plan("contiguous" if is_run else "strided", size, boxes)


def _check(source: ArrayType, target: ArrayType) -> None:
    """Raise `LayoutError` for a pair that cannot be copied."""
    wrong = _what_is_wrong(source, target)
    if wrong is not None:
        raise LayoutError(f"copy from {abridged(str(source))} to {abridged(str(target))}: {wrong}")


def _what_is_wrong(source: ArrayType, target: ArrayType) -> str | None:
    if source.size != target.size:
        return f"the source has {source.size} elements, the target {target.size}; the sizes must be equal"
    sides = (source, "source"), (target, "target")
    for side, word in sides:
        if side.counts == THREADS:
            return f"the {word} is a thread array, which has no memory; add a dimension of memory to it"
    if source.threads is not None and target.threads is not None:
        comms = source.threads.comm, target.threads.comm
        if (comms[0] is None) != (comms[1] is None):
            return "one side has threads and the other ranks; use threads on both sides, or ranks on both"
        if comms[0] != comms[1]:
            return "the ranks of the two sides belong to different communicators; use one for both"
    if not target.is_injective:
        return "the target has two elements in the same place; each needs a place of its own"
    for side, word in sides:
        if side.threads is not None and side.size:
            low, high = side.bounds[0]
            if low < 0 or high >= side.threads.size:
                return (
                    f"the {word} has elements in thread {low if low < 0 else high}; "
                    f"{abridged(str(side.threads))} has threads 0 to {side.threads.size - 1}"
                )
    return None


def _boxes(source: ArrayType, target: ArrayType) -> tuple[Box, ...] | None:
    """Return the boxes of a pair, or None where tables are better."""
    source_form, target_form = _form(source), _form(target)
    if source_form is not None and target_form is not None:
        loops = refined(source_form[1], target_form[1])
        if loops is not None and _is_worth_it(prod(map(_n_pieces, loops)), source.size):
            return _unrolled(source, target, loops, source_form[0], target_form[0])
        if source.size > MOST_LOOKED_AT:
            return None
    return None if BOTH in {source.counts, target.counts} else _runs(source, target)


def _form(side: ArrayType) -> Form | None:
    """Return the form of a side, found from its offsets if it has none."""
    if side.form is not None:
        return side.form
    if side.counts == BOTH:
        thread, memory = side.offsets()
        return listed(memory, thread, UNIT)
    nest = side.nest
    return None if nest is None else (nest[0], tuple((count, step, ()) for count, step in nest[1]))


def refined(source: Sequence[Digit], target: Sequence[Digit]) -> list[Loop] | None:
    """Return one list of digits for both sides, outermost first; None if there is none, or with too many pieces."""
    # Both sides are canonical and have as many elements.
    sides = list(source), list(target)
    loops: list[Loop] = []  # from the innermost on
    while sides[0]:  # both sides end together
        digits = sides[0].pop(), sides[1].pop()
        if digits[0][0] != digits[1][0]:
            k = int(digits[0][0] < digits[1][0])  # the side of the longer digit
            # The longer digit is split where the shorter one ends; what is left of it goes on with the next one.
            halves_of_it = split(digits[k], digits[1 - k][0])
            if halves_of_it is None:
                joint = _joint(sides, digits)
                if joint is None:
                    return None
                digits = joint
            else:
                sides[k].append(halves_of_it[0])
                digits = (halves_of_it[1], digits[1]) if k == 0 else (digits[0], halves_of_it[1])
        loops.append(digits)
    loops.reverse()
    return loops


def _joint(sides: tuple[list[Digit], list[Digit]], digits: Loop) -> Loop | None:
    """Return the innermost digits of both sides as one each, up to where they repeat together, or to the end."""
    whole = prod(count for count, *_ in (*sides[0], digits[0]))
    for count in (lcm(digits[0][0], digits[1][0]), whole):
        left = list(sides[0]), list(sides[1])
        joint = _joined(left[0], digits[0], count), _joined(left[1], digits[1], count)
        if joint[0] is not None and joint[1] is not None:
            sides[0][:], sides[1][:] = left
            return joint[0], joint[1]
    return None


def _joined(left: list[Digit], digit: Digit, count: int) -> Digit | None:
    """Return a digit of ``count`` values made of this one and those around it, cut wherever one ends."""
    while digit[0] < count:
        inner, step, cuts = digit
        wanted = count // inner
        if count % inner or not left:
            return None
        outer = left.pop()
        if outer[0] > wanted:
            both = split(outer, wanted)
            if both is None:
                return None
            left.append(both[0])
            outer = both[1]
        if (len(cuts) + 1) * outer[0] > MOST_BOXES:
            return None
        ends = inner * step + sum(jump for _, jump in cuts)
        joined = list(cuts)
        for k in range(1, outer[0]):
            joined.append((k * inner, part_of(outer, k) - part_of(outer, k - 1) - ends))
            joined += [(start + k * inner, jump) for start, jump in cuts]
        digit = (inner * outer[0], step, tuple(joined))
    return digit if digit[0] == count else None


def _is_worth_it(n_boxes: int, size: int) -> bool:
    """Return whether so many boxes are better than tables."""
    return n_boxes <= ALWAYS_BOXES or (n_boxes <= MOST_BOXES and size >= LEAST_BOX * n_boxes)


def _n_pieces(loop: Loop) -> int:
    """Return how many boxes a loop makes of one, those of different threads not counted."""
    changes = [digit[1] for digit in loop] + [jump for digit in loop for _, jump in digit[2]]
    return 1 if any(abs(change) >= UNIT // 2 for change in changes) else len(_starts(loop))


def _starts(loop: Loop) -> list[int]:
    """Return where the pieces of a loop begin."""
    return sorted({0, *(start for start, _ in loop[0][2]), *(start for start, _ in loop[1][2])})


def _unrolled(
    source: ArrayType, target: ArrayType, loops: list[Loop], source_base: int, target_base: int
) -> tuple[Box, ...]:
    """Return the boxes of loops: a box for each combination of pieces, and of values that change a thread's number."""
    is_both = source.counts == BOTH, target.counts == BOTH
    plain = [(digit[0], digit[1], other[1]) for digit, other in loops if not (digit[2] or other[2])]
    if len(plain) == len(loops) and not any(is_both):
        return (Box(None, None, source_base, target_base, _merged(plain)),)
    # Starts count threads in units of `UNIT` until `halves` tells both parts.
    boxes = []
    for pieces in itertools.product(*map(_pieces, loops)):
        starts, kept = [(source_base, target_base)], []
        for count, steps, parts in pieces:
            starts = [(a + parts[0], b + parts[1]) for a, b in starts]
            if (is_both[0] and halves(steps[0])[0]) or (is_both[1] and halves(steps[1])[0]):
                starts = [(a + k * steps[0], b + k * steps[1]) for a, b in starts for k in range(count)]
            else:
                kept.append((count, *steps))
        digits = _merged(kept)
        for a, b in starts:
            source_thread, source_offset = halves(a) if is_both[0] else (None, a)
            target_thread, target_offset = halves(b) if is_both[1] else (None, b)
            boxes.append(Box(source_thread, target_thread, source_offset, target_offset, digits))
    # The order is that of elements: pieces of outer loops come first.
    return tuple(boxes)


def _pieces(loop: Loop) -> list[tuple[int, tuple[int, int], tuple[int, int]]]:
    """Return the pieces of a loop: count, steps, and the first offsets of source and target."""
    source, target = loop
    starts = _starts(loop)
    return [
        (end - start, (source[1], target[1]), (part_of(source, start), part_of(target, start)))
        for start, end in itertools.pairwise([*starts, source[0]])
    ]


def _merged(digits: list[tuple[int, int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Return loops without those of one trip, and with those that continue each other on both sides made one."""
    out: list[tuple[int, int, int]] = []
    for count, source_step, target_step in digits:
        if count == 1:
            continue
        if out and out[-1][1] == count * source_step and out[-1][2] == count * target_step:
            out[-1] = out[-1][0] * count, source_step, target_step
        else:
            out.append((count, source_step, target_step))
    return tuple(out)


def _runs(source: ArrayType, target: ArrayType) -> tuple[Box, ...] | None:
    """Return the runs of the offsets as boxes, if they are few and long."""
    offsets = source.offsets(), target.offsets()
    starts = elements.runs(list(offsets), MOST_BOXES)
    if starts is None or not _is_worth_it(len(starts), source.size):
        return None
    boxes = []
    for start, end in itertools.pairwise([*starts, source.size]):
        first = [int(side[start]) for side in offsets]
        steps = [int(side[start + 1]) - int(side[start]) for side in offsets] if end - start > 1 else [0, 0]
        boxes.append(Box(None, None, first[0], first[1], _merged([(end - start, steps[0], steps[1])])))
    return tuple(boxes)


def _words(box: Box) -> str:
    """Return a box in words: where it begins, and its loops as count x (source step, target step)."""
    source = "" if box.source_thread is None else f"thread {box.source_thread}, "
    target = "" if box.target_thread is None else f"thread {box.target_thread}, "
    loops = ", ".join(f"{count} x (+{a}, +{b})" for count, a, b in box.digits).replace("+-", "-") or "1 element"
    return f"from {source}offset {box.source_offset} to {target}offset {box.target_offset}: {loops}"
