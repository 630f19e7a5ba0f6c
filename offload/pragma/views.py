"""Sections of arrays that keep the indices of the whole array, for blocks whose clauses name sections."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


class SectionView:
    """A section of an array, indexed as the whole array is.

    Parameters
    ----------
    array : array
        The section's storage; axes of which the section has one index are left out.
    name : str
        The array's name, for messages.
    shape : tuple of int
        The shape of the whole array.
    index : tuple of int and slice
        The section: an index or a slice of step 1 for each leading axis.
    """

    __slots__ = ("_array", "_bounds", "_name", "_shape")

    def __init__(self, array: Any, name: str, shape: tuple[int, ...], index: tuple[int | slice, ...]) -> None:
        self._name = name
        self._shape = shape
        axes: list[Any] = [None if isinstance(entry, int) else slice(None) for entry in index]
        self._array = array[(*axes, ...)] if None in axes else array  # every axis of the whole array
        bounds = [(entry, entry + 1) if isinstance(entry, int) else (entry.start, entry.stop) for entry in index]
        self._bounds = [*bounds, *[(0, size) for size in shape[len(index) :]]]

    def __getitem__(self, key: Any) -> Any:
        return self._array[self.shifted(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._array[self.shifted(key)] = value

    def __repr__(self) -> str:
        return f"<{self._section()} of an array of shape {self._shape}>"

    def _section(self) -> str:
        return f"{self._name}[{', '.join(f'{begin}:{end - begin}' for begin, end in self._bounds)}]"

    def shifted(self, key: Any) -> Any:
        """Return a key of the whole array as a key of the section; raise `IndexError` for one outside."""
        entries = list(key) if isinstance(key, tuple) else [key]
        n_given = sum(entry is not None and entry is not ... for entry in entries)
        if n_given > len(self._shape):
            raise IndexError(f"{self._name}: {n_given} indices for an array of {len(self._shape)} dimensions")
        missing = [slice(None)] * (len(self._shape) - n_given)
        if any(entry is ... for entry in entries):
            at = next(at for at, entry in enumerate(entries) if entry is ...)
            entries[at : at + 1] = missing
        else:
            entries += missing
        found: list[Any] = []
        axis = 0
        for entry in entries:
            if entry is None:
                found.append(None)
                continue
            found.append(self._shift(entry, axis))
            axis += 1
        return tuple(found)

    def _shift(self, entry: Any, axis: int) -> Any:
        size, (begin, end) = self._shape[axis], self._bounds[axis]
        if begin == 0 and end == size:
            return entry
        if isinstance(entry, slice):
            return self._shift_slice(entry, axis)
        if isinstance(entry, (list, np.ndarray)):
            return self._shift_indices(np.asarray(entry), axis)
        try:
            at = operator.index(entry)
        except TypeError:
            if getattr(entry, "dtype", None) is not None and entry.dtype.kind in "iu":
                return entry - begin  # on the device, where nobody can look at the indices
            raise IndexError(
                f"{self._name}: an index of type {type(entry).__name__} cannot be used with the section "
                f"{self._section()}; bind the view before the block, and map that"
            ) from None
        wanted = at + size if at < 0 else at
        if not begin <= wanted < end:
            raise self._outside(str(at), axis)
        return wanted - begin

    def _shift_slice(self, entry: slice, axis: int) -> slice:
        size, (begin, end) = self._shape[axis], self._bounds[axis]
        indices = range(*entry.indices(size))
        if not indices:
            return slice(0, 0)
        if not (begin <= min(indices[0], indices[-1]) and max(indices[0], indices[-1]) < end):
            parts = ["" if part is None else str(part) for part in (entry.start, entry.stop)]
            raise self._outside(":".join(parts), axis)
        stop = indices.stop - begin
        return slice(indices.start - begin, stop if stop >= 0 else None, indices.step)

    def _shift_indices(self, entry: Any, axis: int) -> Any:
        size, (begin, end) = self._shape[axis], self._bounds[axis]
        if entry.dtype.kind not in "iu":
            raise IndexError(
                f"{self._name}: a mask cannot be used with the section {self._section()}; bind the view before the "
                "block, and map that"
            )
        wanted = np.where(entry < 0, entry + size, entry)
        bad = wanted[(wanted < begin) | (wanted >= end)]
        if bad.size:
            raise self._outside(str(bad.flat[0]), axis)
        return wanted - begin

    def _outside(self, index: str, axis: int) -> IndexError:
        begin, end = self._bounds[axis]
        return IndexError(
            f"index {index} of dimension {axis} is outside of the section {self._section()} that the clause maps; it "
            f"has the indices {begin} to {end - 1}"
        )


class SectionViews:
    """Several sections of one array, indexed as the whole array is; a key has to be in one of them."""

    __slots__ = ("_views",)

    def __init__(self, *views: Any) -> None:
        self._views = views

    def __getitem__(self, key: Any) -> Any:
        return self._view_of(key)[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._view_of(key)[key] = value

    def _view_of(self, key: Any) -> SectionView:
        """Return the section that has a key; raise the `IndexError` of the last one."""
        *others, last = self._views
        for view in others:
            try:
                view.shifted(key)
            except IndexError:
                continue
            return view  # type: ignore[no-any-return]  # a view
        return last  # type: ignore[no-any-return]  # a view


def joined(views: list[Any]) -> Any:
    """Return the object that stands for an array of which there are sections, or the whole array."""
    wholes = [view for view in views if not isinstance(view, SectionView)]
    if wholes:
        return wholes[-1]
    return views[0] if len(views) == 1 else SectionViews(*views)
