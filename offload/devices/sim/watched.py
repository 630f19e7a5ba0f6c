"""A simulated device whose array operations are reported, for the sanitizer and the porter.

It is a class of its own, so that the other devices have no check on the path of an operation. The device reports an
operation after NumPy has carried it out, on the same thread. It reports no copy, and no operation that raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.devices.sim.array import apply
from offload.devices.sim.device import SimDevice
from offload.devices.sim.protocols import StorageUse

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

        return apply(reported, args, kwargs, device, **options)

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
