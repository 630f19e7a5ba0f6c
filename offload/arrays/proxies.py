"""The attributes that device arrays over a hidden NumPy array share: they need no look at the elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.lib.mixins import NDArrayOperatorsMixin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    import numpy as np


class ArrayProxy(NDArrayOperatorsMixin):
    """An array that behaves as CuPy's, with the layout of a hidden NumPy array."""

    __slots__ = ("__weakref__", "_storage")
    __array_priority__ = 100.0
    _storage: np.ndarray[Any, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension."""
        return self._storage.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self._storage.dtype  # type: ignore[no-any-return]

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, along each dimension."""
        return self._storage.strides

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._storage.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._storage.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._storage.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._storage.nbytes

    @property
    def flags(self) -> Any:
        """Layout of the array: ``c_contiguous``, ``f_contiguous``, …."""
        return self._storage.flags

    def __len__(self) -> int:
        return len(self._storage)

    def __iter__(self) -> Iterator[Self]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d device array")
        return (self[i] for i in range(len(self)))  # type: ignore[index]  # of each subclass

    def __imatmul__(self, other: Any) -> Any:
        return NotImplemented  # as CuPy's: ``d @= m`` makes a new array

    def __copy__(self) -> Self:
        return self.copy()  # type: ignore[attr-defined,no-any-return]  # of each subclass

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()  # type: ignore[attr-defined,no-any-return]  # of each subclass
