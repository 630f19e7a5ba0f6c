"""How a call of a loop is made from what calls with equal numbers have found out: by filling in blanks.

Trips, plans, compiled forms and their arguments follow from the key of a call, as long as no array that is written
shares memory with another. So a call that has been made before evaluates nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from offload.arrays.items import address_of, label
from offload.errors import ClauseError, UsageError
from offload.loops.proofs.numbers import View
from offload.loops.running.plan import check, is_looked_at, numbers_of, plans_of, ranged, shares
from offload.loops.running.verdicts import observe_each

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.devices.base import Device
    from offload.loops.running.looks import Looks
    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.specialise import Specialisation
    from offload.runtime.launch import DeviceTask

BlankT_co = TypeVar("BlankT_co", covariant=True)

_NO_VERSIONS: Final[Mapping[str, int]] = {}


class Where(Protocol[BlankT_co]):
    """Where a loop is to run: how its nests are prepared there."""

    @property
    def takes_unaligned(self) -> bool: ...  # elements may be unaligned
    @property
    def is_in_order(self) -> bool: ...  # one thread runs the iterations of each nest, in order
    def looks(self, spec: Specialisation, arrays: Mapping[str, Any], task: DeviceTask | None) -> Looks | None:
        """Return what looks at the elements that indices are read from, in a call with these arrays; None: nothing."""

    def on_host(self, arrays: Mapping[str, Any], task: DeviceTask | None) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return arrays as the host has them, of a call that is to be observed; what is changed is copied."""

    def blank(self, spec: Specialisation, number: int, plan: NestPlan, numbers: Numbers) -> BlankT_co:
        """Return what is to be filled in for a nest, by its number in the function."""


class Apart:
    """Whether arrays of certain shapes are aligned and share no memory, wherever they lie.

    With ``is_any`` arrays may share no memory at all; otherwise only memory that is not written.
    """

    __slots__ = ("pairs", "sizes")

    def __init__(self, spec: Specialisation, numbers: Numbers, *, is_any: bool = False) -> None:
        # The sizes of elements in bytes, by array.
        self.sizes = tuple((name, view.itemsize) for name, view in numbers.views.items())
        spans: dict[str, tuple[int, int]] = {}
        for name, view in numbers.views.items():
            if (span := view.span) is not None:
                spans[name] = span[0] - view.address, span[1] - view.address
        names = list(spans)
        # Of arrays that must not share memory: each one's name, and where its first and last byte lie from its address.
        self.pairs = tuple(
            (one, *spans[one], other, *spans[other])
            for number, one in enumerate(names)
            for other in names[number + 1 :]
            if is_any or spec.uses[one].is_changed or spec.uses[other].is_changed
        )

    def holds(self, addresses: Mapping[str, int]) -> bool:
        """Tell whether it is so of arrays at these addresses."""
        for name, nbytes in self.sizes:
            if addresses[name] % nbytes:
                return False
        for one, low, high, other, others_low, others_high in self.pairs:
            mine, others = addresses[one], addresses[other]
            if mine + low <= others + others_high and others + others_low <= mine + high:
                return False
        return True


def apart_of(spec: Specialisation, numbers: Numbers) -> Apart:
    """Return what tells whether the arrays of calls with these numbers share memory that is written."""
    record = numbers.record
    if record.apart is None:
        record.apart = Apart(spec, numbers)
    found: Apart = record.apart
    return found


class Steady(NamedTuple):
    """The conditions under which another call with the same numbers leads to the same blanks."""

    apart: Apart  # arrays share no memory
    versions: Mapping[str, int]  # the contents of arrays at the same addresses still have these


class Prepared(Generic[BlankT_co]):
    """The results of preparing calls with certain numbers, for arrays that share no memory."""

    __slots__ = ("_looks", "_numbers", "_plans", "_settled", "_spec", "_where", "apart")

    def __init__(self, spec: Specialisation, numbers: Numbers, where: Where[BlankT_co]) -> None:
        self._spec = spec
        self._numbers = numbers  # of one such call
        self._where = where
        self._plans = plans_of(spec, numbers)  # without a look at elements
        self._looks = is_looked_at(spec, numbers, self._plans)  # whether calls look at elements
        self._settled: tuple[tuple[BlankT_co, ...], Steady] | None = None  # where that is not up to elements
        self.apart = apart_of(spec, numbers)  # for which arrays this holds

    def blanks(self, values: Mapping[str, Any], task: DeviceTask | None) -> tuple[tuple[BlankT_co, ...], Steady | None]:
        """Return what is to be filled in for each nest, and for how long; look at elements where that is worth it.

        Raises as `check`.
        """
        if self._settled is not None:
            return self._settled
        plans = self._plans
        versions: Mapping[str, int] | None = _NO_VERSIONS
        if self._looks:
            look = self._where.looks(self._spec, values, task)
            if look is not None:
                plans = ranged(self._spec, self._numbers, look)
                versions = look.versions
        key = "blanks", self._where, *[(plan.variant, plan.narrow) for plan in plans]  # elements may decide about both
        facts = self._numbers.record.facts
        found: tuple[BlankT_co, ...] | None = facts.get(key)
        if found is None:
            check(self._spec, plans, values, is_in_order=self._where.is_in_order)
            found = facts.keep(key, _blanks(self._where, self._spec, self._numbers, plans))
        steady = None if versions is None else Steady(self.apart, versions)
        if steady is not None and not self._looks:
            self._settled = found, steady
        return found, steady


def prepared(
    spec: Specialisation,
    values: Mapping[str, Any],
    device: Device | None,
    where: Where[BlankT_co],
    task: DeviceTask | None = None,
) -> tuple[tuple[BlankT_co, ...], dict[str, int], Steady | None]:
    """Return the blank of each nest, the address of each array by name, and what makes them hold for another call.

    The third item is None if that cannot be told. ``device`` is None for host arrays; ``task`` is the device task that
    the call is made in. Raises as `check` and the parts before nests do, `ClauseError` or `UsageError` for an array of
    another place, and `RegionClosedError` for a device array whose storage has gone back.
    """
    addresses: dict[str, int] = {}
    locate = _host_address if device is None else device.address
    for name in spec.given:
        array = values[name]
        address = locate(array)
        if address is None:
            raise _misplaced(device, array)
        addresses[name] = address
    # Addresses and elements of index arrays may differ between calls with one key. Both are asked for in each call.
    record = spec.calls.get(spec.key(values))
    found: Prepared[BlankT_co] | None = None
    if record is not None and where in record.facts:
        found = record.facts[where]
    if found is not None and found.apart.holds(addresses):
        blanks, steady = found.blanks(values, task)
        return blanks, addresses, steady
    # The long way decides, and has the words for what is wrong.
    numbers = numbers_of(spec, values, lambda array: view_at(device, array))
    is_aligned = all(view.is_aligned for view in numbers.views.values())
    if not (is_aligned or where.takes_unaligned):
        _refuse_unaligned(numbers)
    if spec.program.words.checks or not is_aligned or shares(spec, numbers.views):
        # It leads to something else at other addresses, or is observed: only its plans are kept.
        arrays = {name: values[name] for name in spec.given}
        look = where.looks(spec, arrays, task)
        plans = plans_of(spec, numbers) if look is None else ranged(spec, numbers, look)
        check(spec, plans, values, is_in_order=where.is_in_order)
        blanks = _blanks(where, spec, numbers, plans)
        observe_each(spec, plans, numbers, arrays, task, where.on_host)
        return blanks, addresses, None
    made = Prepared(spec, numbers, where)
    blanks, steady = made.blanks(values, task)
    numbers.record.facts.keep(where, made)
    return blanks, addresses, steady


def _blanks(
    where: Where[BlankT_co], spec: Specialisation, numbers: Numbers, plans: tuple[NestPlan, ...]
) -> tuple[BlankT_co, ...]:
    return tuple([where.blank(spec, number, plan, numbers) for number, plan in enumerate(plans)])


# -- where arrays lie --------------------------------------------------------------------------------


def _host_address(array: object) -> int | None:
    """Return where the element ``[0, …, 0]`` of a host array lies; None of anything else."""
    return address_of(array) if isinstance(array, np.ndarray) else None


def _misplaced(device: Device | None, array: Any) -> UsageError | ClauseError:
    """Return what is wrong with an array that is of another place."""
    what = f"{label(array):.60}"
    if device is None:
        return UsageError(f"{what} is a device array, and the loop runs on the host; pass host arrays")
    return ClauseError(
        f"{what} is no array of device {device.number}, where the loop runs; make it present there, or map it"
    )


def view_at(device: Device | None, array: Any) -> View:
    """Return how an array lies, of a device or of the host. Raises as `prepared`."""
    address = _host_address(array) if device is None else device.address(array)
    if address is None:
        raise _misplaced(device, array)
    return View(array.shape, array.strides, array.itemsize, address)


def described(device: Device | None, array: Any) -> View:
    """Return how an array lies that a loop might be called with; host arrays stand for those of a device."""
    return mapped_view(array) if device is not None and isinstance(array, np.ndarray) else view_at(device, array)


def located(device: Device, array: Any) -> int:
    """Return where the element ``[0, …, 0]`` of a device's array, or of a host array that stands for one, lies."""
    if isinstance(array, np.ndarray):
        return address_of(array)
    address = device.address(array)
    if address is None:
        raise _misplaced(device, array)
    return address


def mapped_view(array: np.ndarray[Any, Any]) -> View:
    """Return how a host array lies, of a loop that is given a device's."""
    return View(array.shape, array.strides, array.itemsize, address_of(array))


def _refuse_unaligned(numbers: Numbers) -> None:
    """Raise `ClauseError` for elements at no multiples of their size, which no GPU reads."""
    for name, view in numbers.views.items():
        if not view.is_aligned:
            raise ClauseError(
                f"argument {name!r}: its elements, of {view.itemsize} bytes, lie at no multiples of that, and a GPU"
                " reads no others; pass a copy"
            )
