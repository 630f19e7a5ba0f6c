"""Parts of a tracked array that NumPy has compiled types for: ``flat`` and ``flags``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class TrackedFlat:
    """The elements of a tracked array in C order, as `numpy.flatiter` gives them.

    Parameters
    ----------
    array : TrackedArray
        The array.
    flat : numpy.flatiter
        The iterator of its plain view.
    note : callable
        Notes an access, given an index of the array, and the values that are set if it is a write.
    wrap : callable
        Makes a result tracked.
    """

    __slots__ = ("_array", "_flat", "_note", "_wrap")

    def __init__(self, array: Any, flat: Any, note: Callable[..., None], wrap: Callable[..., Any]) -> None:
        self._array = array
        self._flat = flat
        self._note = note
        self._wrap = wrap

    @property  # type: ignore[misc]  # it cannot be set
    def __class__(self) -> Any:
        return np.flatiter

    @property
    def base(self) -> Any:
        """The array."""
        return self._array

    def __getattr__(self, name: str) -> Any:
        return getattr(self._flat, name)  # coords, index

    def _places(self, index: Any) -> tuple[Any, ...]:
        """Return the index in the array of the elements that an index takes in the row."""
        size = self._array.size
        if not self._array.ndim:
            return (...,)
        at = index % size if isinstance(index, int) and size else np.arange(size)[index]
        return np.unravel_index(np.asarray(at).reshape(-1), self._array.shape)

    def __getitem__(self, index: Any) -> Any:
        result = self._flat[index]
        self._note(self._places(index))
        return self._wrap(result, [])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._flat[index] = value
        self._note(self._places(index), value)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        at = self._flat.coords
        value = next(self._flat)
        self._note(at)
        return value

    def __len__(self) -> int:
        return len(self._flat)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.array(self.copy(), *args, **kwargs)

    def copy(self) -> Any:
        """Return the elements as an array."""
        return self._array.flatten()

    def __eq__(self, other: object) -> Any:
        return self.copy() == other

    def __ne__(self, other: object) -> Any:
        return self.copy() != other

    def __lt__(self, other: Any) -> Any:
        return self.copy() < other

    def __le__(self, other: Any) -> Any:
        return self.copy() <= other

    def __gt__(self, other: Any) -> Any:
        return self.copy() > other

    def __ge__(self, other: Any) -> Any:
        return self.copy() >= other

    __hash__ = None  # type: ignore[assignment]  # as that of `numpy.flatiter`


class TrackedFlags:
    """The flags of a tracked array that stands for the array which owns its memory.

    Parameters
    ----------
    flags : numpy.flagsobj
        The flags of the array; ``owndata`` is false there.
    """

    __slots__ = ("_flags",)

    def __init__(self, flags: Any) -> None:
        object.__setattr__(self, "_flags", flags)

    @property  # type: ignore[misc]  # it cannot be set
    def __class__(self) -> Any:
        return type(self._flags)

    @property
    def owndata(self) -> bool:
        """Whether the array owns its memory."""
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._flags, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._flags, name, value)

    def __getitem__(self, name: str) -> Any:
        return name in {"OWNDATA", "O"} or self._flags[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._flags[name] = value

    def __eq__(self, other: object) -> Any:
        return repr(self) == repr(other)

    def __repr__(self) -> str:
        return repr(self._flags).replace("OWNDATA : False", "OWNDATA : True")

    __hash__ = None  # type: ignore[assignment]  # as that of NumPy's flags
