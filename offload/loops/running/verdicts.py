"""The results of ``check=True``, remembered for the arguments that they follow from.

The accesses of iterations follow from the numbers of a call, its scalars, and the arrays that indices, conditions and
bounds are made of (`offload.loops.tree.uses.addressing`). So a later call with equal numbers, scalars and versions of
these arrays (`offload.data.versions`) is not observed again. Arrays in no entry have no version: such calls are
observed each time, and so is a nest that writes to these arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.loops.running.looks import contents_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.specialise import Specialisation
    from offload.runtime.launch import DeviceTask


def observe_each(
    spec: Specialisation,
    plans: tuple[NestPlan, ...],
    numbers: Numbers,
    arrays: Mapping[str, Any],
    task: DeviceTask | None,
    fetch: Callable[[Mapping[str, Any], DeviceTask | None], Mapping[str, np.ndarray[Any, Any]]],
) -> None:
    """Run the nests that are to be observed, on copies, unless that is known; each finds what those before it leave.

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
    from offload.loops.proofs.remedies import seen_error
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
    """Return what a verdict follows from; None where that is not known."""
    versions = []
    for name in sorted(plan.addressing.arrays & arrays.keys()):
        contents = None if task is None else contents_at(task, arrays[name])
        if contents is None:
            return None
        versions.append((contents.version, numbers.views[name].address))
    scalars = tuple([(name, value.tobytes()) for name, value in numbers.scalars[number].items()])
    return "verdict", number, numbers.lies, scalars, tuple(versions)
