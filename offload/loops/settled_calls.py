"""Repeated calls on CUDA: one look-up finds everything but addresses and floats.

A call by position is named by the types of its arguments, the shapes and strides of its arrays, and its scalars other
than floats. If no decision follows from floats, this name fixes the kernel, the launch and the structure of arguments.
A `SettledCall` keeps them. Each launch checks the addresses: if arrays share memory, are unaligned or belong to another
device, nothing has been done, and the call goes the ordinary way. Decisions that follow from elements hold for arrays
at the same addresses while their contents have the same versions (`offload.data.versions`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from offload.arrays.items import SCALARS
from offload.loops.front.layouts import is_layout
from offload.loops.running.looks import change, contents_at
from offload.loops.running.memo import FLOATS, Memo, name_of
from offload.loops.speculative.verdict_memory import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload.loops.running.cuda_runs import CudaBlank
    from offload.loops.running.preparation import Steady
    from offload.loops.running.specialise import Specialisation
    from offload.loops.speculative.verdict_memory import Remembered
    from offload.runtime.launch import DeviceTask


# -- the steps that are left --------------------------------------------------------------------------


class CallPattern:
    """A quick test whether a call has the name of this one, if the types of its arrays are the same objects."""

    __slots__ = ("_parts",)

    def __init__(self, args: Sequence[Any]) -> None:
        # For each argument its class, whether it is an array, and what else has to be equal; None of a float. A dtype
        # is told by its identity, so arrays of an equal one do not fit.
        self._parts: tuple[tuple[Any, bool, Any], ...] = tuple([_part(value) for value in args])

    def fits(self, args: Sequence[Any]) -> bool:
        """Tell whether a call has the name of this one."""
        for value, (kind, is_array, fixed) in zip(args, self._parts, strict=True):
            if value.__class__ is not kind:
                return False
            if is_array:
                dtype, shape, strides = fixed
                if value.dtype is not dtype or value.shape != shape or value.strides != strides:
                    return False
            elif fixed is not None and value != fixed:
                return False
        return True


def _part(value: Any) -> tuple[type, bool, Any]:
    kind = value.__class__
    if kind in FLOATS:
        return kind, False, None
    if kind in SCALARS or is_layout(value):
        return kind, False, value
    return kind, True, (value.dtype, value.shape, value.strides)


class Filler:
    """Fills the structure of arguments with addresses and floats."""

    __slots__ = ("_arrays", "_floats", "_looked_at", "_pairs", "_pointers")

    def __init__(
        self,
        arrays: Sequence[tuple[int, int]],  # positions, and the alignment of each address in bytes
        # numbers of two arrays that must not share memory, each with its first and last byte
        pairs: Sequence[tuple[int, int, int, int, int, int]],
        pointers: Sequence[tuple[int, int]],  # slots, and numbers of arrays
        # offset in the structure, position, and the function that packs the value
        floats: Sequence[tuple[int, int, Any]],
        looked_at: Sequence[int],  # numbers of the arrays whose addresses ``holds`` is asked about
    ) -> None:
        self._arrays, self._pairs, self._pointers = tuple(arrays), tuple(pairs), tuple(pointers)
        self._floats, self._looked_at = tuple(floats), tuple(looked_at)

    def fill(
        self,
        args: Sequence[Any],
        locate: Callable[[Any], int | None],
        holds: Callable[[tuple[int, ...]], bool],
        structure: Callable[[], Any],
    ) -> Any:
        """Return the filled structure; None where arrays share memory, are not aligned, or hold something else."""
        addresses = [0] * len(self._arrays)
        for number, (position, nbytes) in enumerate(self._arrays):
            address = locate(args[position])
            if address is None or address % nbytes:
                return None
            addresses[number] = address
        for one, low, high, other, others_low, others_high in self._pairs:
            mine, others = addresses[one], addresses[other]
            if mine + low <= others + others_high and others + others_low <= mine + high:
                return None
        if self._looked_at and not holds(tuple([addresses[number] for number in self._looked_at])):
            return None
        memory = structure()
        for slot, number in self._pointers:
            memory[slot] = addresses[number]
        for offset, position, pack_into in self._floats:
            pack_into(memory, offset, args[position])
        return memory


# -- calls --------------------------------------------------------------------------------------------


# Sets of arrays with known contents that take turns in calls of one name.
_MOST_TURNS: Final = 16


class SettledCall:
    """A call of which only addresses and floats are left to be filled in, by the positions of arguments."""

    __slots__ = ("_changed", "_filler", "_looked_at", "_versions", "blank", "launcher", "pattern", "spec", "verdict")

    def __init__(
        self,
        spec: Specialisation,  # decides nothing from floats
        args: tuple[Any, ...],  # of a call of that name, by position
        blank: CudaBlank,  # of its only nest, whose runs have no memory of their own
        steady: Steady,  # what has to hold of arrays like these
        verdict: Remembered | None = None,  # why a speculative loop may run so; ``steady`` has what it follows from
    ) -> None:
        self.spec, self.verdict = spec, verdict
        self.blank = blank
        self.launcher: Any = None  # the body of tasks that are given arrays like these, if there has been one
        self.pattern = CallPattern(args)  # tells calls like this one
        apart = steady.apart
        at = {name: position for position, name in enumerate(spec.program.parameters)}
        order = {name: number for number, name in enumerate(spec.given)}
        assert [name for name, _ in apart.sizes] == list(spec.given)  # as the pairs and pointers count them
        # fills in addresses and floats
        self._filler = Filler(
            [(at[name], nbytes) for name, nbytes in apart.sizes],
            [(order[one], a, b, order[other], c, d) for one, a, b, other, c, d in apart.pairs],
            [(slot, order[name]) for slot, name in blank.pointers],
            [(offset, at[name], pack_into) for offset, name, pack_into in blank.floats],
            [order[name] for name in steady.versions],
        )
        self._changed = tuple([at[name] for name in spec.changed])  # positions of arrays that the loop writes
        self._looked_at = tuple([(name, at[name]) for name in steady.versions])  # arrays whose contents decide
        # their versions, by their addresses: several sets of arrays may take turns
        self._versions: Memo[tuple[int, ...], tuple[int, ...]] = Memo(_MOST_TURNS)

    def rely(self, steady: Steady, addresses: Mapping[str, int]) -> bool:
        """Keep the versions of arrays at these addresses; return False if other arrays have been looked at."""
        names = [name for name, _ in self._looked_at]
        if names != [*steady.versions]:
            return False
        if names:
            self._versions.keep(tuple([addresses[name] for name in names]), tuple(steady.versions.values()))
        return True

    def _holds(self, args: tuple[Any, ...], task: DeviceTask, addresses: tuple[int, ...]) -> bool:
        """Tell whether the arrays that were looked at, at these addresses, are unchanged."""
        versions = self._versions.get(addresses)
        if versions is None:
            return False
        for (_, position), version in zip(self._looked_at, versions, strict=True):
            contents = contents_at(task, args[position])
            if contents is None or contents.version != version:
                return False
        return True

    def start(self, args: tuple[Any, ...], task: DeviceTask, *, changes: bool) -> bool:
        """Enqueue a call on the lane of a device task; return False, and do nothing, if it goes the other way.

        If it ``changes`` arrays that the task maps, note that here.
        """
        device = task.place.device
        kernels = device.kernels
        if kernels is None or kernels.dialect != "cuda":
            return False
        holds = partial(self._holds, args, task)
        structure = self._filler.fill(args, device.address, holds, self.blank.structure)
        if structure is None:
            return False
        if self.verdict is not None:
            memory = self.spec.speculation
            if memory is not self.verdict.memory or memory.is_sequential:
                return False
        if changes and task.plan is not None:
            change(task, [args[position] for position in self._changed])
        self.blank.launch(structure, kernels, task.lane.stream)  # type: ignore[union-attr]  # the body has one
        if self.verdict is not None:
            tell(task, self.verdict.memory, "device", f"in parallel: {self.verdict.why}")
        return True


def keep_settled(
    spec: Specialisation,
    args: tuple[Any, ...],
    blank: CudaBlank,
    steady: Steady,
    addresses: Mapping[str, int],
    verdict: Remembered | None = None,
) -> None:
    """Keep the settled call for calls like this one, in place of the oldest if there are many.

    The arguments are those of `SettledCall`, and the addresses of the arrays by name.
    """
    name = name_of(args)
    if name is None:
        return
    known = spec.program.seen().settled
    found = known.get(name)
    if found is not None and (found.blank is not blank or _memory(found.verdict) is not _memory(verdict)):
        found = None
    if found is None or not found.rely(steady, addresses):
        found = known.keep(name, SettledCall(spec, args, blank, steady, verdict))
        found.rely(steady, addresses)
    known.latest = found


def _memory(verdict: Remembered | None) -> object:
    return None if verdict is None else verdict.memory
