"""How a call of a loop uses the results of calls with equal numbers: by filling in blanks.

Trips, plans, compiled forms and their arguments follow from the key of a call, as long as no array that is written
shares memory with another. So a call that has been made before evaluates nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from offload.arrays.items import address_of, label
from offload.errors import ClauseError, UnsupportedError, UsageError
from offload.loops.proofs.numbers import View
from offload.loops.running import pool
from offload.loops.running.arguments import Blank, on_host
from offload.loops.running.cuda_runs import ON_CUDA
from offload.loops.running.looks import Looks, contents_at
from offload.loops.running.plan import check, form_of, is_looked_at, numbers_of, plans_of, ranged, shares
from offload.runtime.current import here

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offload.devices.base import Device, Kernels
    from offload.loops.running.cuda_runs import OnCuda
    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.specialise import LoopProgram, Specialisation
    from offload.runtime.launch import DeviceTask


BlankT_co = TypeVar("BlankT_co", covariant=True)

_NO_VERSIONS: Final[Mapping[str, int]] = {}


class Where(Protocol[BlankT_co]):
    """The place where a loop is to run, and the preparation of its nests there."""

    @property
    def takes_unaligned(self) -> bool: ...  # elements may be unaligned
    @property
    def is_in_order(self) -> bool: ...  # one thread runs the iterations of each nest, in order
    def looks(self, spec: Specialisation, arrays: Mapping[str, Any], task: DeviceTask | None) -> Looks | None:
        """Return the object that looks at the elements of index arrays, in a call with these arrays, or None."""

    def on_host(self, arrays: Mapping[str, Any], task: DeviceTask | None) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return arrays on the host, for a call that is to be observed; arrays that change are copied."""

    def blank(self, spec: Specialisation, number: int, plan: NestPlan, numbers: Numbers) -> BlankT_co:
        """Return the blank of a nest, by its number in the function."""


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
    """Return the test whether the arrays of calls with these numbers share memory that is written."""
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
        """Return the blank of each nest, and how long they hold; look at elements where that is worth it.

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
    """Return the blank of each nest, the address of each array by name, and when they hold for another call.

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
    """Return the address of the element ``[0, …, 0]`` of a host array; None for another object."""
    return address_of(array) if isinstance(array, np.ndarray) else None


def _misplaced(device: Device | None, array: Any) -> UsageError | ClauseError:
    """Return the error for an array of another place."""
    what = f"{label(array):.60}"
    if device is None:
        return UsageError(f"{what} is a device array, but the loop runs on the host; pass host arrays")
    return ClauseError(
        f"{what} is not an array of device {device.number}, where the loop runs; make it present there, or map it"
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
                f"argument {name!r}: its elements, of {view.itemsize} bytes, are not aligned to their size, as a GPU "
                "requires; pass a copy"
            )


# -- the results of check=True ------------------------------------------------------------------------
#
# The accesses of iterations follow from the numbers of a call, its scalars, and the arrays that indices, conditions
# and bounds are made of (`addressing`). So a later call with equal numbers, scalars and versions of these arrays is
# not observed again. Arrays in no entry have no version: such calls are observed each time, and so is a nest that
# writes to these arrays.


def observe_each(
    spec: Specialisation,
    plans: tuple[NestPlan, ...],
    numbers: Numbers,
    arrays: Mapping[str, Any],
    task: DeviceTask | None,
    fetch: Callable[[Mapping[str, Any], DeviceTask | None], Mapping[str, np.ndarray[Any, Any]]],
) -> None:
    """Run the nests that are to be observed, on copies, unless that is known; each starts from earlier results.

    ``fetch`` returns arrays as the host has them, copies of those that change; ``task`` is the device task of the call,
    if any. Raises `LoopError` if iterations depend on each other, and as `observe` does.
    """
    last = max((number for number, plan in enumerate(plans) if plan.observed), default=-1)
    if last < 0:
        return
    keys = [_key(number, plan, numbers, arrays, task) for number, plan in enumerate(plans[: last + 1])]
    facts = numbers.record.facts
    if all(facts.use(key) for key, plan in zip(keys, plans, strict=False) if plan.observed):
        return
    from offload.loops.proofs.reports import seen_error
    from offload.loops.running.observe import advance, copies_of, observe  # few programs check
    from offload.loops.watched.needs import needed

    fetched = fetch(arrays, task)
    for number, plan in enumerate(plans[: last + 1]):
        modes, scalars, axes = dict(plan.variant.modes), numbers.scalars[number], numbers.axes[number]
        copies = copies_of(plan.nest, fetched, numbers.views)
        if plan.observed:
            of = needed(spec.typed, plan.nest, numbers.launch(number), plan.observed)
            given = numbers.views, axes
            found = observe(spec.typed, plan.nest, modes, plan.observed, scalars, copies, *given, of=of)
            if found.failure is not None:
                raise found.failure
            if found.found:  # once more, for what is to be said
                copies = copies_of(plan.nest, fetched, numbers.views)
                found = observe(spec.typed, plan.nest, modes, plan.observed, scalars, copies, *given)
                raise seen_error(spec.program.name, plan.nest, axes, found)
            if keys[number] is not None:
                facts.keep(keys[number], value=True)
        elif number < last and all(axis.trips > 0 for axis in axes):
            advance(spec.typed, plan.nest, modes, scalars, copies, numbers.views, axes)
        fetched = copies


def _key(
    number: int,
    plan: NestPlan,
    numbers: Numbers,
    arrays: Mapping[str, Any],
    task: DeviceTask | None,
) -> Any:
    """Return the key that a verdict follows from; None if it is not known."""
    versions = []
    for name in sorted(plan.addressing.arrays & arrays.keys()):
        contents = None if task is None else contents_at(task, arrays[name])
        if contents is None:
            return None
        versions.append((contents.version, numbers.views[name].address))
    scalars = tuple([(name, value.tobytes()) for name, value in numbers.scalars[number].items()])
    return "verdict", number, numbers.lies, scalars, tuple(versions)


# -- where loops run ----------------------------------------------------------------------------------


class OnHost:
    """How nests are prepared for the processor of this process; see `offload.loops.running.preparation.Where`."""

    takes_unaligned = True

    def __init__(self, *, is_in_order: bool = False) -> None:
        self.is_in_order = is_in_order  # one thread runs the iterations of each nest, in order

    def looks(self, spec: Specialisation, arrays: Mapping[str, Any], task: DeviceTask | None) -> Looks:
        """Return the object that looks at elements in the call."""
        return Looks(arrays, task)

    def on_host(self, arrays: Mapping[str, Any], task: DeviceTask | None) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return arrays as NumPy has them."""
        return {name: on_host(array) for name, array in arrays.items()}

    def form(self, spec: Specialisation, number: int, plan: NestPlan) -> Any:
        """Return the form of a nest."""
        return form_of(spec, number, plan)

    def blank(self, spec: Specialisation, number: int, plan: NestPlan, numbers: Numbers) -> Blank[Any]:
        """Return the blank of a nest."""
        form = self.form(spec, number, plan)
        fields = form.kernel.fields if form.is_compiled else ()
        return Blank(form, fields, numbers.scalars[number], spec.free, numbers.views, numbers.axes[number])


ON_HOST: Final = OnHost()
# Where the program says that one thread runs the loop.
ALONE: Final = OnHost(is_in_order=True)


def kernels_of(device: Device, program: LoopProgram) -> Kernels:
    """Return how a device is given kernels; `UnsupportedError` if it runs none that loops become."""
    kernels = device.kernels
    if kernels is None:
        why = f"loops are not compiled for devices of kind {device.kind!r}; use if_=False to run it on the host"
        if getattr(device, "plans", False):
            why = "one call runs on one device of a Dask cluster; call the loop once for each device, with device="
        raise UnsupportedError(f"{program.directive} {program.name!r}: {why}")
    return kernels


def where_on(device: Device, program: LoopProgram) -> OnCuda | OnHost:
    """Return how nests are prepared for a device; `UnsupportedError` if it runs none that loops become."""
    return ON_CUDA if kernels_of(device, program).dialect == "cuda" else ON_HOST


def n_threads_of(program: LoopProgram) -> int:
    """Return how many threads may work on a loop, the one that starts it included."""
    return min(program.words.num_threads or 1 + len(here().runtime.engine.threads), pool.n_cores())
