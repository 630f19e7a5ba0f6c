"""The cell of a storage that an access touches, for logs and profiles.

A log keeps its words by *cell*. The cells of an array that shares memory with no other are its elements in C order,
with any strides. Views of one storage have cells of bytes, as large as divides all their sizes, strides and distances.
Trailing dimensions may be left out: then a row is one cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import TYPE_CHECKING

from offload.loops.proofs.independence import is_injective

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from offload.loops.proofs.numbers import View


@dataclass(frozen=True, slots=True)
class Cells:
    """The places of an array's elements among the cells of its storage."""

    storage: str  # by the first array that is a part of it
    n_cells: int  # of the whole storage
    offset: int  # the first cell of the element `[0, …, 0]`
    steps: tuple[int, ...]  # from an element to the next, in cells, of each dimension; 0 of one that is left out
    width: int = 1  # cells of an element

    @property
    def are_elements(self) -> bool:
        """Whether they are the elements of an array of one dimension."""
        return self.steps == (1,) and not self.offset and self.width == 1


def cells_of(
    views: Mapping[str, View], written: Collection[str], left_out: Mapping[str, int] | None = None
) -> dict[str, Cells]:
    """Return the cells of arrays.

    ``written`` are the arrays that are written; memory that is only read is shared by nobody. ``left_out`` is the
    number of last dimensions to leave out of an array; an array that shares memory leaves out none.
    """
    found: dict[str, Cells] = {}
    for names in groups_of(views):
        first = views[names[0]]
        if len(names) == 1 and is_injective(first):
            found[names[0]] = _own(names[0], first, (left_out or {}).get(names[0], 0))
        elif set(written).isdisjoint(names):
            found |= {name: _own(name, views[name], 0) for name in names}
        else:
            found |= _shared(names, views)
    return found


def groups_of(views: Mapping[str, View]) -> list[list[str]]:
    """Return the names of arrays, those together that share memory, be it by way of others."""
    groups: list[list[str]] = []
    for name, view in views.items():
        together = [group for group in groups if any(view.may_share(views[other]) for other in group)]
        groups = [group for group in groups if group not in together]
        groups.append([*[other for group in together for other in group], name])
    return groups


def _own(name: str, view: View, n_left_out: int) -> Cells:
    kept = view.extents[: len(view.extents) - n_left_out]
    steps = [prod(kept[k + 1 :]) for k in range(len(kept))] + [0] * n_left_out
    return Cells(name, prod(kept), 0, tuple(steps))


def _shared(names: Sequence[str], views: Mapping[str, View]) -> dict[str, Cells]:
    spans = [span for name in names if (span := views[name].span) is not None]
    if not spans:
        return {name: Cells(names[0], 0, 0, (0,) * len(views[name].extents)) for name in names}
    low = min(first for first, _ in spans)
    nbytes = max(last for _, last in spans) + 1 - low
    sizes = [size for name in names for size in (views[name].itemsize, *views[name].strides)]
    grain = gcd(*sizes, *[views[name].address - low for name in names])
    return {
        name: Cells(
            names[0],
            nbytes // grain,
            (views[name].address - low) // grain,
            tuple(stride // grain for stride in views[name].strides),
            views[name].itemsize // grain,
        )
        for name in names
    }
