"""The first memory of a speculative loop: a profile, from the program or from the first call."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from offload.loops.speculative.attempts import Memory
from offload.loops.speculative.profiles import begun, check_types, observed, profile_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.loops.proofs.findings import Findings
    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.specialise import Specialisation


def profiled(
    spec: Specialisation, numbers: Numbers, plan: NestPlan, arrays: Mapping[str, Any], memory: Memory
) -> dict[str, Any]:
    """Run a nest in order on arrays of the host, and keep the findings; return the scalars that come out.

    Raises as the serial program does; its writes until then stay.
    """
    found = observed(spec, numbers, plan, arrays, is_quick=True)
    assert found is not None  # else it is proved
    keep_profile(spec, numbers, plan, memory, found)
    if found.failure is not None:
        raise found.failure
    return found.results


def looked(
    spec: Specialisation,
    numbers: Numbers,
    plan: NestPlan,
    arrays: Mapping[str, Any],
    memory: Memory,
    *,
    is_slice: bool = False,
) -> Findings:
    """Run the beginning of a nest in order, on copies or as a slice, and keep and return the findings."""
    found = begun(spec, numbers, plan, arrays, is_slice=is_slice)
    keep_profile(spec, numbers, plan, memory, found)
    return found


def keep_profile(
    spec: Specialisation, numbers: Numbers, plan: NestPlan, memory: Memory, found: Findings | None
) -> None:
    """Keep the findings of the first call about a nest; None: nothing is profiled."""
    n_iterations = 0 if found is None else found.n_iterations
    with spec.lock:
        memory.profile = profile_of(spec, numbers, plan, found, n_iterations)
        memory.is_sequential = memory.is_sequential or bool(found and found.found)
        memory.seen = n_iterations, math.prod(axis.trips for axis in numbers.axes[0])


def memory_of(spec: Specialisation) -> Memory:
    """Return the memory of a speculative loop. Raises `ClauseError` for a profile of other types."""
    memory: Memory | None = spec.speculation
    if memory is None:
        profile = spec.program.words.speculate
        memory = Memory()
        if profile is not None and not isinstance(profile, (bool, str)):
            check_types(spec, profile)
            memory.profile = profile
            memory.is_sequential = profile.verdict == "sequential"
        with spec.lock:
            if spec.speculation is None:
                spec.speculation = memory
            memory = spec.speculation
    return memory
