"""Calls on CUDA that have been made before: one look-up finds all, and what is left are addresses and floats.

Theory of operation
-------------------
A call by position is named by the types of its arguments, the shapes and strides of its arrays, and the values of
those scalars that are no floats. Where nothing is decided from floats, or from elements of arrays, a nest without
memory of its own follows from these: its kernel, the shape of its launch, the structure of arguments but for addresses
and floats. So it is kept under that name (`Ready`), beside what the function's names from outside stand for, and a call
which finds it knows neither the function's types nor its numbers. Where the arrays lie is looked at by each launch: if
they share memory, are not aligned or are of another device, nothing has been done, and the call goes the other way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from offload.loops.looks import change
from offload.loops.naming import name_of

if TYPE_CHECKING:
    from offload.loops.cuda_runs import CudaBlank
    from offload.loops.prepared import Apart
    from offload.loops.specialise import Specialisation
    from offload.runtime.launch import DeviceTask

_MOST: Final = 64
"""Calls of a function that are kept: as many as of a specialisation."""


class Ready:
    """What is to be filled in, by the positions of arguments.

    Parameters
    ----------
    spec : Specialisation
        It decides nothing from floats.
    blank : CudaBlank
        Of its only nest, whose runs have no memory of their own.
    apart : Apart
        Of arrays like these.

    Attributes
    ----------
    spec : Specialisation
    """

    __slots__ = ("_arrays", "_blank", "_changed", "_floats", "_pairs", "_pointers", "spec")

    def __init__(self, spec: Specialisation, blank: CudaBlank, apart: Apart) -> None:
        self.spec = spec
        self._blank = blank
        at = {name: position for position, name in enumerate(spec.program.parameters)}
        order = {name: number for number, name in enumerate(spec.given)}
        self._arrays = tuple([(at[name], nbytes) for name, nbytes in apart.sizes])
        assert [name for name, _ in apart.sizes] == list(spec.given)  # as the pairs and pointers count them
        self._pairs = tuple([(order[one], a, b, order[other], c, d) for one, a, b, other, c, d in apart.pairs])
        self._pointers = tuple([(slot, order[name]) for slot, name in blank.pointers])
        self._floats = tuple([(offset, at[name], pack_into) for offset, name, pack_into in blank.floats])
        self._changed = tuple([at[name] for name in spec.changed])

    def start(self, args: tuple[Any, ...], task: DeviceTask, *, changes: bool) -> bool:
        """Enqueue a call on the lane of a device task; return False, and do nothing, if it goes the other way.

        If it ``changes`` what the task maps, note of that is taken here.
        """
        device = task.place.device
        kernels = device.kernels
        if kernels is None or kernels.dialect != "cuda":
            return False
        addresses = []
        for position, nbytes in self._arrays:
            address = device.address(args[position])
            if address is None or address % nbytes:
                return False
            addresses.append(address)
        for one, low, high, other, others_low, others_high in self._pairs:
            mine, others = addresses[one], addresses[other]
            if mine + low <= others + others_high and others + others_low <= mine + high:
                return False
        if changes and task.plan is not None:
            change(task, [args[position] for position in self._changed])
        structure = self._blank.structure()
        for slot, number in self._pointers:
            structure[slot] = addresses[number]
        for offset, position, pack_into in self._floats:
            pack_into(structure, offset, args[position])
        self._blank.launch(structure, kernels, task.lane.stream)  # type: ignore[union-attr]  # the body has one
        return True


def keep_ready(known: dict[Any, Ready], args: tuple[Any, ...], ready: Ready) -> None:
    """Keep what calls like this one find, in place of the oldest if there are many."""
    name = name_of(args)
    if name is not None:
        if len(known) >= _MOST:
            known.pop(next(iter(known)), None)
        known[name] = ready
