"""The arrays that `declare_target` has named, for every runtime of the process.

A declaration lasts as long as its array: it refers weakly to the array that owns the memory, and remembers how the
declared view lies in it. An array that is gone cannot be named, so no data is lost; a runtime that has made storage
for one keeps it alive by the entry.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator


class _View:
    """The array interface of a declared array, and its owner, which an array made from it keeps alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__ = interface
        self.owner = owner


class Declarations:
    """The declared arrays whose memory is alive."""

    __slots__ = ("_kept", "_views", "version")

    def __init__(self) -> None:
        # Differs after each `add`.
        self.version = 0
        # Views of other libraries' memory, which nobody else keeps. The declaration lasts until the end of the process:
        # other objects may share the memory when the declared one has gone.
        self._kept: list[Any] = []
        # How each declared view lies in its owner, by a weak reference to that.
        self._views: dict[weakref.ref[Any], dict[str, Any]] = {}

    def add(self, array: np.ndarray[Any, Any], item: Any) -> None:
        """Declare a host array, or the view of another library's ``item``, which is kept."""
        if item is not array:
            self._kept.append(array)
        owner: Any = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        self._views[_Owner(owner, self._forget)] = dict(array.__array_interface__)
        self.version += 1

    def arrays(self) -> Iterator[np.ndarray[Any, Any]]:
        """Yield the declared arrays."""
        for owner, interface in tuple(self._views.items()):
            alive = owner()
            if alive is not None:
                yield np.asarray(_View(interface, alive))

    def _forget(self, owner: weakref.ref[Any]) -> None:
        self._views.pop(owner, None)


class _Owner(weakref.ref):  # type: ignore[type-arg]  # not subscriptable as a base
    """A reference with an identity of its own: several views of one array are several declarations."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


declarations = Declarations()
"""The process's."""
