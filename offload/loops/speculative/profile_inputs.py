"""Runs of a loop in order, on copies of inputs, for its profile."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from offload.arrays.items import label
from offload.errors import UnsupportedError, UsageError
from offload.loops.running.clauses import LoopWords
from offload.loops.running.looks import Looks
from offload.loops.running.observe import copies_of
from offload.loops.running.plan import numbers_of, plans_of, ranged
from offload.loops.running.preparation import view_at
from offload.loops.running.specialise import LoopProgram
from offload.loops.speculative.profiles import has_slice, is_inside, joined, observed, profile_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.loops.proofs.dependences import DependenceProfile
    from offload.loops.proofs.findings import Findings
    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.specialise import Specialisation


def profile_inputs(of: LoopProgram | Callable[..., Any], inputs: Sequence[Any]) -> DependenceProfile:
    """Return the profile of a loop, or of a function that could be one; see `offload.loops.profile`."""
    program = of if isinstance(of, LoopProgram) else LoopProgram(of, LoopWords(), "profile_dependences")
    if not inputs:
        raise UsageError(
            f"profile_dependences({program.name}): there is no input; give the arguments of a call, as a tuple"
        )
    return joined([profile_of(*_seen(program, one)) for one in inputs])


def _seen(program: LoopProgram, given: Any) -> tuple[Specialisation, Numbers, NestPlan, Findings | None]:
    """Run the loop on copies of one input."""
    if not isinstance(given, (tuple, list, dict)):
        raise UsageError(
            f"profile_dependences({program.name}): input {label(given):.60} is not a tuple; give the arguments of one "
            "call as a tuple, or as a dictionary by name"
        )
    values = program.bound((), given) if isinstance(given, dict) else program.bound(tuple(given), {})
    spec = program.specialise(values)
    numbers = numbers_of(spec, values, partial(view_at, None))
    if len(spec.typed.function.nests) > 1:
        raise UnsupportedError(
            f"profile_dependences({program.name}): the function has several nests; profile a function with one nest"
        )
    (plan,) = plans_of(spec, numbers)
    arrays = {name: values[name] for name in numbers.views}
    (known,) = ranged(spec, numbers, Looks(arrays))
    if has_slice(spec, numbers, plan) and is_inside(known):  # so nothing can fail, and nothing need be computed
        modes = replace(plan.variant, modes=known.variant.modes)
        found = observed(spec, numbers, plan._replace(variant=modes), arrays, is_quick=True, is_slice=True)
    else:
        found = observed(spec, numbers, plan, copies_of(plan.nest, arrays, numbers.views), is_quick=True)
    if found is not None and found.found:
        found = observed(spec, numbers, plan, copies_of(plan.nest, arrays, numbers.views), is_quick=False)
    if found is not None and found.failure is not None:
        raise found.failure
    return spec, numbers, plan, found
