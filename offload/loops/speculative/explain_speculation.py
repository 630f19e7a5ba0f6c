"""What `explain` says of a loop that is only probably parallel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.loops.proofs.numbers import LaunchNumbers
from offload.loops.running.plan import plain
from offload.loops.speculative.attempts import Memory
from offload.loops.tree.uses import numbered
from offload.loops.watched.inspecting import can_be_inspected
from offload.loops.watched.needs import needed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.specialise import Specialisation


def speculation_of(
    spec: Specialisation, numbers: Numbers, plans: tuple[NestPlan, ...], *, is_on_host: bool
) -> dict[str, Any]:
    """Return what is tried first in a call: how, with which arrays logged; and where the latest one has run."""
    words = spec.program.words
    memory: Memory = spec.speculation or Memory()
    mode, logged = "off", list[str]()
    verdicts = {plan.verdict.verdict for plan in plans}
    if words.speculate is not None and verdicts != {"parallel"}:
        mode = "sequential"
        is_known = memory.is_sequential and words.speculate != "always"
        if len(plans) == 1 and "sequential" not in verdicts and not is_known and not is_on_host:
            (plan,) = plans
            launch = LaunchNumbers(numbers.axes[0], plain(numbers.scalars[0]), numbers.views)
            of = needed(spec.typed, plan.nest, launch, plan.verdict.unknown)
            is_inspected = words.speculate != "always" and can_be_inspected(plan.nest, of.written, launch.scalars)
            mode = "inspector" if is_inspected else "log"
            at = numbered(of.nest)
            logged = list(dict.fromkeys(at[one].array for one in sorted(of.loads | of.stores)))
    return {"mode": mode, "logged": logged, "last": memory.last}


def seen_by(spec: Specialisation) -> Iterator[str]:
    """Yield a note of how much of a loop its first call has profiled."""
    memory: Memory | None = spec.speculation
    if memory is not None and memory.seen is not None:
        n, n_in_all = memory.seen
        yield f"the first call profiled {n:,} of {n_in_all:,} iterations"
