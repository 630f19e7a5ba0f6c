"""What calls of a loop lead to, kept for the numbers that it follows from: so that a call is made by filling in blanks.

Theory of operation
-------------------
All that a call has to find out, which is trips, plans, compiled forms and their arguments, follows from the shapes and
strides of its arrays and from the scalars that decisions may follow from, as long as no array that is written shares
memory with another. So it is kept for these, and a call that has been made before evaluates nothing. It looks at what
may differ all the same: where arrays lie, and the elements that indices are read from, if that is worth a look. Where
arrays share memory, or elements are not aligned, the call goes the long way, which decides, and has the words for what
is wrong.

Floats are told apart by their bits: a division tells 0.0 from -0.0, and NaN equals nothing.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from offload.loops.arguments import Blank, NestRun, on_host
from offload.loops.plan import check, form_of, is_looked_at, numbers_of, plans_of, ranged, shares

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offload.loops.numbers import View
    from offload.loops.plan import NestPlan, Numbers
    from offload.loops.specialise import Specialisation

_MOST: Final = 64
"""Sets of numbers that a specialisation keeps: more than a program has sizes that take turns."""

_bits: Final = struct.Struct("d").pack


class Prepared:
    """What calls with certain numbers lead to, where arrays share no memory.

    Parameters
    ----------
    spec : Specialisation
    numbers : Numbers
        Of one such call.

    Attributes
    ----------
    lows : dict of str to int
        By array, where its first byte is from the element ``[0, …, 0]``; at most 0.
    """

    __slots__ = ("_blanks", "_looks", "_numbers", "_pairs", "_plans", "_settled", "_sizes", "_spec", "lows")

    def __init__(self, spec: Specialisation, numbers: Numbers) -> None:
        self._spec = spec
        self._numbers = numbers
        self._plans = plans_of(spec, numbers)
        self._looks = is_looked_at(spec, numbers, self._plans)
        self._blanks: dict[Any, tuple[Blank, ...]] = {}
        self._settled: tuple[Blank, ...] | None = None
        self._sizes = tuple((name, view.itemsize) for name, view in numbers.views.items())
        spans: dict[str, tuple[int, int]] = {}
        for name, view in numbers.views.items():
            if (span := view.span) is not None:
                spans[name] = span[0] - view.address, span[1] - view.address
        self.lows = {name: spans[name][0] if name in spans else 0 for name in numbers.views}
        names = list(spans)
        self._pairs = tuple(
            (one, *spans[one], other, *spans[other])
            for number, one in enumerate(names)
            for other in names[number + 1 :]
            if spec.uses[one].is_changed or spec.uses[other].is_changed
        )

    def fits(self, addresses: Mapping[str, int]) -> bool:
        """Tell whether arrays at these addresses are aligned, and share no memory where one is written."""
        for name, nbytes in self._sizes:
            if addresses[name] % nbytes:
                return False
        for one, low, high, other, others_low, others_high in self._pairs:
            mine, others = addresses[one], addresses[other]
            if mine + low <= others + others_high and others + others_low <= mine + high:
                return False
        return True

    def blanks(self, arrays: Mapping[str, Any]) -> tuple[Blank, ...]:
        """Return what is to be filled in for each nest; look at elements where that is worth it. Raises as `check`."""
        if self._settled is not None:
            return self._settled
        plans = self._plans
        if self._looks:
            plans = ranged(self._spec, self._numbers, lambda name: on_host(arrays[name]))
        variants = tuple([plan.variant for plan in plans])
        found = self._blanks.get(variants)
        if found is None:
            found = self._blanks[variants] = blanks_of(self._spec, self._numbers, plans)
        if not self._looks:
            self._settled = found
        return found


def runs_of(
    spec: Specialisation,
    values: Mapping[str, Any],
    view_of: Callable[[Any], View],
    address_of: Callable[[Any, int], int],
    n_threads: int,
    rng: Any,
) -> list[NestRun]:
    """Return a run for each nest, in their order.

    Parameters
    ----------
    values : mapping
        The arguments, by name.
    view_of : callable
        Tells where an array lies; raises what is wrong with it.
    address_of : callable
        Returns the address of an array's element ``[0, …, 0]``, given the array and where its first byte is from there.
    n_threads, rng
        As for `NestRun`.

    Raises
    ------
    IndexError, LoopError, UnsupportedError
        As `check`.
    ValueError, ZeroDivisionError
        As the parts before nests do.
    """
    arrays = {name: values[name] for name in spec.given}
    key = _key(spec, values)
    prepared: Prepared | None = spec.prepared.get(key)
    if prepared is not None:
        lows = prepared.lows
        addresses = {name: address_of(array, lows[name]) for name, array in arrays.items()}
        if prepared.fits(addresses):
            return [NestRun(blank, arrays, addresses, values, n_threads, rng) for blank in prepared.blanks(arrays)]
    numbers = numbers_of(spec, values, view_of)
    if spec.program.words.checks or shares(spec, numbers.views):
        plans = ranged(spec, numbers, lambda name: on_host(arrays[name]))
        blanks = blanks_of(spec, numbers, plans)
        _observe_each(spec, plans, numbers, arrays)
    else:
        prepared = Prepared(spec, numbers)
        blanks = prepared.blanks(arrays)
        with spec.lock:
            if len(spec.prepared) >= _MOST:
                del spec.prepared[next(iter(spec.prepared))]
            spec.prepared[key] = prepared
    addresses = {name: view.address for name, view in numbers.views.items()}
    return [NestRun(blank, arrays, addresses, values, n_threads, rng) for blank in blanks]


def blanks_of(spec: Specialisation, numbers: Numbers, plans: tuple[NestPlan, ...]) -> tuple[Blank, ...]:
    """Return what is to be filled in for each nest. Raises as `check`."""
    check(spec, plans)
    return tuple(
        Blank(form_of(spec, number, plan), numbers.scalars[number], spec.free, numbers.views, numbers.axes[number])
        for number, plan in enumerate(plans)
    )


def _observe_each(
    spec: Specialisation, plans: tuple[NestPlan, ...], numbers: Numbers, arrays: Mapping[str, Any]
) -> None:
    """Raise `LoopError` if iterations that are to be observed depend on each other, in a run on copies."""
    for plan, scalars, axes in zip(plans, numbers.scalars, numbers.axes, strict=True):
        if plan.observed:
            from offload.loops.observe import observe  # few programs check
            from offload.loops.remedies import seen_error

            modes = dict(plan.variant.modes)
            found = observe(spec.typed, plan.nest, modes, plan.observed, scalars, arrays, numbers.views, axes)
            if found.found:
                raise seen_error(spec.program.name, plan.nest, axes, found)


def _key(spec: Specialisation, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the numbers of a call that decisions follow from, but for addresses."""
    key: list[Any] = []
    for name in spec.given:
        array = values[name]
        key.append(array.shape)
        key.append(array.strides)
    for name, is_float in spec.told:
        value = values[name]
        key.append(_bits(value) if is_float and not isinstance(value, int) else value)
    return tuple(key)
