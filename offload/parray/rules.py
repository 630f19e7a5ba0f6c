"""The place of an element: the rules of offsets, for an index, for arrays of indices, and for all indices at once.

A dimension is a *body*, a *weight* and a chain of *references*. The body has a regular part, counted by weights, on
which the references act from left to right, and a fixed part, the sum of the offsets of fixed dimensions in it. `place`
is these rules with numbers, `form` with digits. See docs/design/theory.md, "Rules of offsets".
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

from offload.parray import elements, seams
from offload.parray.digits import merged, scaled
from offload.parray.references import MEMORY, THREADS, Index, Leaves

if TYPE_CHECKING:
    from offload.parray.digits import Digit, Form
    from offload.parray.dimensions import Body, Dimension
    from offload.parray.references import Reference

UNIT: Final = 1 << 256  # What a thread counts in the digits of a distributed type

MOST_MEMORY: Final = 1 << 200  # Offsets in memory of a distributed type stay below this, far from `UNIT`


# Elements of a dimension whose offsets are looked at one by one where digits do not decide.
MOST_LISTED: Final = 1 << 14


def halves(number: int) -> tuple[int, int]:
    """Return the threads and the offset in memory that a number of a distributed type's digits stands for."""
    threads = (number + UNIT // 2) // UNIT
    return threads, number - threads * UNIT


def parts(body: Body, weight: int, index: Index) -> tuple[Index, Index, Index]:
    """Return the regular part, the fixed part in memory, and the fixed part that counts threads."""
    if not isinstance(body, tuple):
        return index * weight, 0, 0
    regular: Any = 0
    memory: Any = 0
    thread: Any = 0
    for j in range(len(body) - 1, -1, -1):  # from the innermost on: the rest of the index belongs to those around
        sub = body[j]
        size = sub.size
        if j:
            index, at = index // size, index % size
        else:
            at = index
        try:
            if sub.references:
                offset, number = place(sub.body, 1, sub.references, sub.chain, at)
            else:
                more, offset, number = parts(sub.body, weight, at)
                regular = regular + more
        except Leaves as leaves:
            leaves.path.append(j)  # the path is made on the way out, for the message
            raise
        memory, thread = memory + offset, thread + number
        weight *= size
    return regular, memory, thread


def place(body: Body, weight: int, references: tuple[Reference, ...], chain: int, index: Index) -> tuple[Index, Index]:
    """Return the own offset in memory, and the number of the thread.

    Body, weight and references are those of a root, of a fixed dimension, or of a regular one by itself, whose
    references are those of the nearest dimension above it that has any. ``chain`` is the unit of the references;
    ``index`` is in range. Raise `Leaves` if an index is outside the range of a reference.
    """
    regular, memory, thread = parts(body, weight, index)
    if not references:
        return regular + memory, thread
    if isinstance(regular, int) and not isinstance(index, int):  # nothing in it is regular
        regular = 0 * index
    if chain == MEMORY | THREADS:  # the last reference is a distributed type, and gives both parts
        for reference in references[:-1]:
            regular = reference.reach(regular)
        offset, number = references[-1].places(regular)  # type: ignore[attr-defined]  # a distributed type
        return memory + offset, thread + number
    for reference in references:
        regular = reference.reach(regular)
    if chain == THREADS:
        return memory, thread + regular
    return memory + regular, thread


def form(
    size: int, body: Body, weight: int, references: tuple[Reference, ...], chain: int, *, in_units: bool
) -> Form | None:
    """Return the digits of `place` for all indices, none of which exists if a size is 0; None if digits do not decide.

    ``size`` is that of the body, or of the pure reference. ``in_units`` tells whether threads are counted in `UNIT`;
    the other arguments and errors are as for `place`.
    """
    found = _composed(size, body, weight, references, chain, in_units=in_units)
    if found is None and references and size <= MOST_LISTED and not _is_hidden(body, references):
        index = seams.namespace.arange(size)
        memory, thread = (part + 0 * index for part in place(body, weight, references, chain, index))
        return listed(memory, thread, UNIT if in_units else 1)
    return found


def _composed(
    size: int, body: Body, weight: int, references: tuple[Reference, ...], chain: int, *, in_units: bool
) -> Form | None:
    """Return the form as references make it of the body's, one after the other."""
    items: list[tuple[bool, Digit]] = []  # whether the digit is regular, and the digit, outermost first
    base = _walk(size, body, weight, items, in_units=in_units)
    if base is None:
        return None
    regular = 0
    for reference in references:
        items = _joined(items)
        found = reference.through(regular, [digit for is_regular, digit in items if is_regular])
        if found is None:
            return None
        regular, groups = found
        new = iter(groups)
        items = [(is_regular, part) for is_regular, digit in items for part in (next(new) if is_regular else (digit,))]
    if chain == THREADS and in_units:
        regular *= UNIT
        items = [
            (is_regular, (digit[0], digit[1] * UNIT, scaled(digit[2], UNIT)) if is_regular else digit)
            for is_regular, digit in items
        ]
    return base + regular, merged([digit for _, digit in items])


def _is_hidden(body: Body, references: tuple[Reference, ...]) -> bool:
    """Return whether offsets are not to be asked for before they are needed, or are beyond 64 bits."""
    inside: tuple[Dimension | Reference, ...] = (*references, *(body if isinstance(body, tuple) else ()))
    return any(each.has_function or each.is_wide for each in inside)


def listed(memory: Any, thread: Any, unit: int) -> Form | None:
    """Return a form from the offsets themselves, each one int64 or more; ``unit`` is the weight of a thread."""
    # The form is a nest, or one digit that is cut wherever the offsets jump; None if the offsets are no nest and large.
    apart = 2 * int(memory.max() - memory.min()) + 1  # farther than any two offsets: the sum tells both parts
    nest = elements.nest_of(memory + apart * thread)
    if nest is None and len(memory) > MOST_LISTED:
        return None
    if nest is not None:
        base, loops, stride = _number(memory, thread, 0, unit), [], 1
        for count, _ in reversed(nest[1]):
            loops.append((count, _number(memory, thread, stride, unit) - base, ()))
            stride *= count
        return base, tuple(reversed(loops))
    offsets = [offset + unit * number for offset, number in zip(memory.tolist(), thread.tolist(), strict=True)]
    step = offsets[1] - offsets[0]
    jumps = [(at, after - before - step) for at, (before, after) in enumerate(itertools.pairwise(offsets), 1)]
    return offsets[0], ((len(offsets), step, tuple((at, jump) for at, jump in jumps if jump)),)


def _number(memory: Any, thread: Any, at: int, unit: int) -> int:
    return int(memory[at]) + unit * int(thread[at])


def _walk(size: int, body: Body, weight: int, items: list[tuple[bool, Digit]], *, in_units: bool) -> int | None:
    """Append the digits of a body, regular or not, outermost first; return the sum of the fixed bases."""
    if not isinstance(body, tuple):
        items.append((True, (size, weight, ())))
        return 0
    base, weight = 0, weight * size
    for j, sub in enumerate(body):
        weight //= sub.size
        try:
            if not sub.references:
                more = _walk(sub.size, sub.body, weight, items, in_units=in_units)
                if more is None:
                    return None
                base += more
                continue
            found = form(sub.size, sub.body, 1, sub.references, sub.chain, in_units=in_units)
        except Leaves as leaves:
            leaves.path.append(j)
            raise
        if found is None:
            return None
        base += found[0]
        items += [(False, digit) for digit in found[1]]
    return base


def _joined(items: list[tuple[bool, Digit]]) -> list[tuple[bool, Digit]]:
    """Return the items with regular digits that continue each other made one, and without digits of one value."""
    if len(items) == 1:
        return items if items[0][1][0] != 1 else []
    joined: list[tuple[bool, Digit]] = []
    for is_regular, run in itertools.groupby(items, key=lambda item: item[0]):
        digits = [digit for _, digit in run]
        joined += [(is_regular, digit) for digit in (merged(digits) if is_regular else digits)]
    return joined
