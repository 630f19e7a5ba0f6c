"""The place of an element as arithmetic, for loops: the rules of offsets on numbers that may be expressions.

An index is given as *parts*, numbers in a mixed radix, outermost first: one number for the whole type, or one for each
leaf. An affine type becomes a sum of products of parts; a digit that begins or ends within a part is a quotient or a
remainder of it. Any other type is taken apart by the rules of `offload.parray.rules`, dimension by dimension. The
callers have checked the index: each part is 0 or more and below its size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from offload.errors import LayoutError
from offload.parray import rules
from offload.parray.dimensions import abridged
from offload.parray.references import (
    BOTH,
    MEMORY,
    THREADS,
    WIDE,
    Displacement,
    Leaves,
    TableReference,
    Wrap,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offload.parray.digits import Form
    from offload.parray.dimensions import Body
    from offload.parray.references import Reference
    from offload.parray.types import ArrayType

Number: TypeAlias = Any  # An integer, or an object with its ``+ * // % >=``
Part: TypeAlias = tuple[int, Number]  # a size, and a number below it

# Places where an irregular table jumps: each is a comparison at each index.
MOST_JUMPS: Final = 16


def is_affine(array_type: ArrayType) -> bool:
    """Return whether nested loops give the places of a type in order; of a distributed type, both parts of a place."""
    if array_type.counts != BOTH:
        return array_type.nest is not None
    form = array_type.form
    return form is not None and not any(cuts for *_, cuts in form[1])


def check(array_type: ArrayType) -> None:
    """Raise `LayoutError` for a type that `place` cannot compute, or of which an element leaves a reference."""
    text = abridged(str(array_type))
    if array_type.has_function:
        raise LayoutError(f"{text} calls a function of the program for each offset")
    if array_type.size >= 1 << 63 or max(map(abs, (*array_type.bounds[0], *array_type.bounds[1]))) >= 1 << 63:
        raise LayoutError(f"{text} has sizes or offsets beyond 64 bits")
    if array_type.is_wide and not is_affine(array_type):
        raise LayoutError(f"{text} is not affine and has numbers of {WIDE} or more")


def place(array_type: ArrayType, parts: Sequence[Part]) -> tuple[Number, Number]:
    """Return the number of the thread and the offset in memory of an element; 0 for the part that the type lacks.

    Raises `LayoutError` if no arithmetic gives the places of the type.
    """
    if not array_type.size:
        return 0, 0  # no index is in range
    if array_type.counts != BOTH and (nest := array_type.nest) is not None:
        number = _affine((nest[0], tuple((count, step, ()) for count, step in nest[1])), parts)
        return (number, 0) if array_type.counts == THREADS else (0, number)
    try:
        return _placed(
            array_type.size,
            array_type._body,  # noqa: SLF001  # the rules take a type apart
            array_type._weight,  # noqa: SLF001
            array_type._references,  # noqa: SLF001
            array_type._chain,  # noqa: SLF001
            parts,
        )
    except Leaves as leaves:
        raise array_type.leaving(leaves) from None


def _placed(
    size: int, body: Body, weight: int, references: tuple[Reference, ...], chain: int, parts: Sequence[Part]
) -> tuple[Number, Number]:
    """Return the thread and the offset of an element of a dimension; the arguments are as for `rules.form`."""
    form = rules.form(size, body, weight, references, chain, in_units=True)
    if form is not None and not any(cuts for *_, cuts in form[1]):
        return _affine(_half(form, 0), parts), _affine(_half(form, 1), parts)
    regular, thread, memory = _by_parts(body, weight, parts)
    if not references:
        return thread, memory + regular
    first, *others = references
    # Without a body, the parts of the index are those of the first type.
    places = _reached(first, parts if body is None else [(first.length or 1, regular)])
    for reference in others:
        places = _reached(reference, [(reference.length or 1, places[0] + places[1])])
    if chain == THREADS:
        return thread + places[0] + places[1], memory
    return thread + places[0], memory + places[1]


def _by_parts(body: Body, weight: int, parts: Sequence[Part]) -> tuple[Number, Number, Number]:
    """Return the regular part of a body, and the thread and the offset of its fixed part."""
    if not isinstance(body, tuple):
        return whole(parts) * weight, 0, 0
    regular: Number = 0
    thread: Number = 0
    memory: Number = 0
    for sub, own in zip(reversed(body), reversed(divided(parts, [sub.size for sub in body])), strict=True):
        if sub.references:
            number, offset = _placed(sub.size, sub.body, 1, sub.references, sub.chain, own)
        else:
            more, number, offset = _by_parts(sub.body, weight, own)
            regular = regular + more
        thread, memory = thread + number, memory + offset
        weight *= sub.size
    return regular, thread, memory


def _reached(reference: Reference, parts: Sequence[Part]) -> tuple[Number, Number]:
    """Return the thread and the offset to which a reference takes an index."""
    match reference:
        case Displacement():
            return 0, whole(parts) + reference.by
        case Wrap():
            return 0, whole(parts) % reference.n
        case TableReference():
            return 0, _looked_up(reference, parts)
        case _:  # a type: `check` has refused functions
            return place(reference, parts)  # type: ignore[arg-type]


def _looked_up(table: TableReference, parts: Sequence[Part]) -> Number:
    """Return an entry of a table, which is a sum of digits or has few jumps."""
    if not table.values:
        return 0
    base, digits = rules.form(len(table.values), None, 1, (table,), MEMORY, in_units=False) or (0, None)
    if digits is None or sum(len(cuts) for *_, cuts in digits) > MOST_JUMPS:
        raise LayoutError(f"{table} is a table of {len(table.values)} entries in no order")
    number: Number = base
    for (_, step, cuts), own in zip(digits, divided(parts, [count for count, *_ in digits]), strict=True):
        index = whole(own)
        number = number + index * step
        for start, jump in cuts:
            number = number + (index >= start) * jump
    return number


def _half(form: Form, which: int) -> Form:
    """Return the digits of the threads of a form in units, or of its offsets."""
    base, digits = form
    return rules.halves(base)[which], tuple((count, rules.halves(step)[which], ()) for count, step, _ in digits)


def _affine(form: Form, parts: Sequence[Part]) -> Number:
    """Return the number that digits without cuts give."""
    base, digits = form
    number: Number = base
    for (_, step, _), own in zip(digits, divided(parts, [count for count, *_ in digits]), strict=True):
        for size, part in reversed(own):
            number = number + part * step
            step *= size  # noqa: PLW2901  # of the parts around it
    return number


def whole(parts: Iterable[Part]) -> Number:
    """Return the number that parts make together."""
    number: Number = 0
    for size, part in parts:
        number = number * size + part
    return number


def divided(parts: Sequence[Part], counts: Sequence[int]) -> list[list[Part]]:
    """Divide the parts of an index among digits of these counts, outermost first; both have one product.

    A part is cut where a digit begins within it, and joined to the one around it where no cut is possible.
    """
    left = [part for part in parts if part[0] != 1]
    groups: list[list[Part]] = []
    for count in reversed(counts):
        group: list[Part] = []
        missing = count
        while missing > 1:
            size, number = left.pop()
            if missing % size == 0:
                group.insert(0, (size, number))
                missing //= size
            elif size % missing == 0:
                group.insert(0, (missing, number % missing))
                left.append((size // missing, number // missing))
                missing = 1
            else:
                around, outer = left.pop()
                left.append((around * size, outer * size + number))
        groups.insert(0, group)
    return groups
