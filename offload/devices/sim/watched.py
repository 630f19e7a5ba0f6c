"""A simulated device whose array operations are reported, for the sanitizer and the porter.

It is a class of its own, so that the other devices have no check on the path of an operation. The device reports an
operation after NumPy has carried it out, on the same thread. It reports no copy, and no operation that raises, unless
that is because the storage of an array has gone back: under another schedule it may have been there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.devices.sim.array import SimArray, apply
from offload.devices.sim.device import SimDevice
from offload.devices.sim.protocols import StorageUse
from offload.errors import RegionClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload.devices.kind import ArrayWatch


class WatchedSimDevice(SimDevice):
    """A simulated device that reports the operations on its arrays.

    Parameters
    ----------
    watch : ArrayWatch
        Receives the operations.
    number, **options
        See `SimDevice`.
    """

    def __init__(self, watch: ArrayWatch, number: int, **options: Any) -> None:
        self._watch = watch
        super().__init__(number, **options)

    def apply(  # type: ignore[override]  # a static method there, which costs no call more
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        device: SimDevice | None = None,
        **options: Any,
    ) -> Any:
        """Carry out an operation on arrays as `offload.devices.sim.array.apply` does, and report it."""
        if function is np.empty or function is np.empty_like:  # `apply` has to see these, to poison the result
            return apply(function, args, kwargs, device, **options)

        def reported(*storages: Any, **named: Any) -> Any:
            result = function(*storages, **named)
            self._watch.called(function, storages, named, result, self)
            return result

        try:
            return apply(reported, args, kwargs, device, **options)
        except RegionClosedError:
            with suppress(Exception):  # the program gets its own error
                self._watch.called(function, _storages(args), _storages(dict(kwargs)), None, self)
            raise

    def settle(self, storage: Any = None, use: StorageUse = StorageUse.READ, index: tuple[Any, ...] = ()) -> None:
        """Wait as `SimDevice.settle` does, and report how the storage of an array is used, if one is given."""
        super().settle()
        if storage is None:
            return
        if index:
            self._watch.called(np.ndarray.item, (storage, *index), {}, None, self)
        elif use is StorageUse.READ:
            self._watch.accessed([storage], [], self)
        elif use is StorageUse.WRITE:
            self._watch.accessed([], [storage], self)
        else:
            self._watch.given_away(storage, self)


def _storages(value: Any) -> Any:
    """Return the arguments of an operation with the hidden storage of arrays, also of those that have gone back."""
    if isinstance(value, SimArray):
        return value._storage  # noqa: SLF001  # of its device
    if type(value) in (list, tuple):
        return type(value)([_storages(part) for part in value])
    return {name: _storages(part) for name, part in value.items()} if type(value) is dict else value
