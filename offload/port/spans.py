"""Values that are looked up by the bytes that they touch.

There is a grid for each size: a span of up to 2^k bytes lies in one or two cells of that size. So the values that may
meet a span are in few cells of each grid, whatever the sizes are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload.port.extents import AccessPart

Value = TypeVar("Value")


class SpanGrid(Generic[Value]):
    """The values of one storage, in cells; a cell has its values as keys, in an order that its user decides.

    Examples
    --------
    >>> from offload.arrays.sections import Section
    >>> from offload.port.spans import SpanGrid
    >>> grid = SpanGrid()
    >>> for row in range(3):
    ...     for cell in grid.cells_of(Section(0, 64 * row, (), 64)):
    ...         cell[f"row {row}"] = None
    >>> [value for cell in grid.near(Section(0, 100, (), 8)) for value in cell]
    ['row 1']
    """

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        # By the logarithm of a span, then by the number of the cell.
        self._levels: dict[int, dict[int, dict[Value, None]]] = {}

    def cells_of(self, part: AccessPart) -> list[dict[Value, None]]:
        """Return the cells in which a value with this span stands."""
        level = (part.end - part.address - 1).bit_length()
        cells = self._levels.setdefault(level, {})
        return [cells.setdefault(number, {}) for number in range(part.address >> level, (part.end - 1 >> level) + 1)]

    def near(self, part: AccessPart) -> Iterator[dict[Value, None]]:
        """Yield the cells whose values may meet a span."""
        for level, cells in self._levels.items():
            first, last = part.address >> level, (part.end - 1) >> level
            if last - first >= len(cells):
                yield from (cell for number, cell in cells.items() if first <= number <= last)
            else:
                yield from (cells[number] for number in range(first, last + 1) if number in cells)
