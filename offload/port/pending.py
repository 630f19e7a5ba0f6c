"""Accesses that wait for something, looked up by the bytes that they may share with another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from offload.port.spans import SpanGrid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from offload.port.extents import AccessPart

Value = TypeVar("Value")


class _PendingAccess(Generic[Value]):
    """An access and its value."""

    __slots__ = ("part", "value")

    def __init__(self, part: AccessPart, value: Value) -> None:
        self.part = part
        self.value = value


class PendingAccesses(Generic[Value]):
    """Accesses with a value each.

    Examples
    --------
    >>> from offload.arrays.sections import Section
    >>> from offload.port.pending import PendingAccesses
    >>> pending = PendingAccesses()
    >>> for row in range(3):
    ...     pending.add(Section(0, 80 * row, (), 80), f"row {row}")
    >>> [value for part, value in pending.near(Section(0, 100, (), 70))]
    ['row 1', 'row 2']
    """

    __slots__ = ("_grids",)

    def __init__(self) -> None:
        self._grids: dict[object, SpanGrid[_PendingAccess[Value]]] = {}

    def add(self, part: AccessPart, value: Value) -> None:
        """Add an access."""
        access = _PendingAccess(part, value)
        for cell in self._grids.setdefault(part.space, SpanGrid()).cells_of(part):
            cell[access] = None

    def near(self, part: AccessPart) -> Iterator[tuple[AccessPart, Value]]:
        """Yield the accesses whose spans meet a part's, with their values."""
        for access in self._near(part):
            yield access.part, access.value

    def drop(self, part: AccessPart, is_over: Callable[[AccessPart, Value], bool]) -> None:
        """Drop the accesses whose spans meet a part's, and for which a function returns true."""
        for access in self._near(part):
            if is_over(access.part, access.value):
                for cell in self._grids[part.space].cells_of(access.part):
                    del cell[access]

    def _near(self, part: AccessPart) -> dict[_PendingAccess[Value], None]:
        grid = self._grids.get(part.space)
        return {
            access: None
            for cell in (grid.near(part) if grid is not None else ())
            for access in cell
            if access.part.address < part.end and part.address < access.part.end
        }
