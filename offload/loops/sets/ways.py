"""The ways to carry out a nest on the devices of a set: the piece, the reads and the writes of each device.

There are up to three *ways*: the nest is split, each device does everything, or the first device does. A device's
*piece* is a plan with the numbers of a launch, as for one device, so the same code compiles and launches it. Its trips
are an axis that begins elsewhere and is shorter; an empty piece has 0 trips. The scalars of the last iteration come
from the device ``last``, and partial results from the ``summed`` devices, in their order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from offload.loops.sets.filter import filtered
from offload.loops.sets.footprints import duplicate, footprints, single

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload.loops.proofs.numbers import Trips
    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.sets.cutting import Span
    from offload.loops.sets.footprints import Division, Footprint
    from offload.loops.sets.nest_division import Filtering, FilterMode

_IN_ORDER: Final = "its iterations run in order"


class NestPiece(NamedTuple):
    """The part of a nest that a device carries out."""

    plan: NestPlan  # of its own, by its identity
    scalars: Mapping[str, Any]  # before the nest
    axes: tuple[Trips, ...]


class Way(NamedTuple):
    """A way to carry out a nest."""

    mode: FilterMode  # which of the three it is
    pieces: tuple[NestPiece, ...]  # one a device
    prints: Mapping[str, Footprint]  # of the arrays that devices need or write
    last: int  # the device with the last iteration
    summed: int  # how many devices, from the first on, leave partial results that count
    devices: tuple[int, ...]  # those that go through iterations


class Ways(NamedTuple):
    """The ways to carry out a nest."""

    filtering: Filtering  # how the nest is divided
    why: str  # why these are the ways
    by_mode: Mapping[FilterMode, Way]  # the most divided first
    is_written: bool  # whether the nest leaves anything


def ways_of(plan: NestPlan, number: int, numbers: Numbers, weights: Sequence[int], before: Ways | None = None) -> Ways:
    """Return the ways to carry out a nest, by its number in the function.

    ``plan`` is that of one device for these numbers. ``weights`` are the devices' shares of the iterations, in
    proportion. ``before`` has the ways of another plan for this nest and these numbers: its findings about the text are
    reused.
    """
    scalars, axes = numbers.scalars[number], numbers.axes[number]
    if (
        before is not None
        and (of := before.by_mode["single"].pieces[0].plan).typed is plan.typed
        and of.nest is plan.nest
    ):
        found = before.filtering
    else:
        found, before = filtered(plan.typed, plan.nest, numbers.launch(number), weights), None
    why = _IN_ORDER if plan.variant.is_ordered else found.why
    mode: FilterMode = "single" if plan.variant.is_ordered else found.mode
    whole, n_devices = NestPiece(plan, scalars, axes), len(weights)
    everything = axes[0].trips
    by_mode: dict[FilterMode, Way] = {}
    if mode == "split":
        by_mode[mode] = _way(mode, _split(found, whole), found, found.division, n_devices, before)
    if mode != "single":
        both = [whole] * n_devices
        by_mode["duplicate"] = _way("duplicate", both, found, duplicate(found.accesses, n_devices), 1, before)
    alone = [whole, *[_of_trips(whole, (0, 0)) for _ in range(n_devices - 1)]] if everything else [whole] * n_devices
    by_mode["single"] = _way("single", alone, found, single(found.accesses, n_devices), 1, before)
    leaves = [*plan.nest.reductions, *plan.nest.last, *plan.nest.privates]
    writes = [access for access in found.accesses.listed if access.kind != "load"]
    return Ways(found, why, by_mode, bool(leaves or writes))


def _way(
    mode: FilterMode,
    pieces: Sequence[NestPiece],
    found: Filtering,
    division: Division,
    summed: int,
    before: Ways | None,
) -> Way:
    devices = tuple(device for device, piece in enumerate(pieces) if all(axis.trips for axis in piece.axes))
    known = None if before is None else before.by_mode.get(mode)
    prints = footprints(found.accesses, division) if known is None else known.prints
    return Way(mode, tuple(pieces), prints, division.last, summed, devices)


def _split(found: Filtering, whole: NestPiece) -> list[NestPiece]:
    """Return the pieces of a nest that is split."""
    if found.is_cut:
        return [_of_trips(whole, span) for span in found.trips]
    plan = whole.plan
    typed, nest, given = found.guarded(plan.typed)
    plan = plan._replace(typed=typed, nest=nest, text=found.key)
    pieces = []
    for device, span in enumerate(found.trips):
        bounds = {name: np.int64(value) for name, value in found.fields(given, device).items()}
        pieces.append(_of_trips(NestPiece(plan, {**whole.scalars, **bounds}, whole.axes), span))
    return pieces


def _of_trips(piece: NestPiece, span: Span) -> NestPiece:
    """Return the part of a piece in some trips of its outermost axis; its plan is its own, by its identity."""
    begin, end = span
    outer = piece.axes[0]
    axis = replace(outer, start=outer.start + begin * outer.step, trips=max(end - begin, 0))
    return piece._replace(plan=piece.plan._replace(), axes=(axis, *piece.axes[1:]))
