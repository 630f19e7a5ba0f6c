"""Trials of a speculative loop's first call on the host: a profile, and the speed of the host; without effects.

If addresses follow from nothing that the loop writes, the profile runs the address slice on the program's own arrays.
Otherwise it runs the loop on copies of its written arrays, and continues to estimate the time of the whole loop.

Copies of large arrays take too long. So a loop with an address slice is tried on zeroed arrays instead, twice, because
untouched memory is slow. A loop without one that writes to large arrays is not profiled: it is raced.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from offload.loops.proofs.ranges import LOOK_LIMITS
from offload.loops.running.observe import copies_of
from offload.loops.running.ordered_runs import ordered_runs
from offload.loops.speculative.attempts import note_time
from offload.loops.speculative.contest import History
from offload.loops.speculative.first_calls import keep_profile, looked, memory_of
from offload.loops.speculative.profiles import has_slice, is_short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.specialise import Specialisation

# How long the host is tried, of a loop of which nothing is known.
_SAMPLE_S: Final = 1e-3

# Of what is tried at a time.
_GROWTH: Final = 4

_LEAST_S: Final = 200e-6
# A call on a device that maps its arrays takes no less: on an H100 one of 10,000 iterations took a millisecond, and
# memory that is not page-locked is copied at less than half of that rate.
_MOST_BYTES_PER_S: Final = 32e9


def tried(
    spec: Specialisation, values: Mapping[str, Any], numbers: Numbers, plan: NestPlan, *, is_first: bool
) -> History | None:
    """Profile the beginning of a first call, and try the host; return what is known of both sides then.

    ``values`` has arrays of the host. None: the loop is to run in order, since iterations depend on each other, or
    since it is too short to be tried.
    """
    given = {name: values[name] for name in spec.given}
    written_nbytes = sum(values[name].nbytes for name in spec.changed)
    memory, is_slice = memory_of(spec), has_slice(spec, numbers, plan)
    is_large = written_nbytes > LOOK_LIMITS.copied_nbytes
    if is_large and not is_slice:
        if not is_first:
            return None if is_short(numbers, plan) else History()
        keep_profile(spec, numbers, plan, memory, None)
        return History()
    if is_large and not is_first and is_short(numbers, plan):
        return None
    done = 0
    arrays = given if is_slice else copies_of(plan.nest, given, numbers.views)
    if is_first:
        seen = looked(spec, numbers, plan, arrays, memory, is_slice=is_slice)
        if seen.found or seen.is_whole:
            return None
        done = 0 if is_slice else seen.n_trips
    if is_slice:
        arrays = copies_of(plan.nest, given, numbers.views, are_blank=is_large)
    host_s = sampled_s(spec, {**values, **arrays}, done, is_new=is_slice and is_large)
    least_s = 0.0
    if memory.seen is not None and memory.seen[0] < memory.seen[1]:  # else it is short, and the device shows itself
        least_s = _LEAST_S + (sum(array.nbytes for array in given.values()) + written_nbytes) / _MOST_BYTES_PER_S
    return note_time(spec, numbers.record, lambda history: replace(history, least_s=least_s).measured(host_s=host_s))


def sampled_s(spec: Specialisation, values: Mapping[str, Any], done: int, *, is_new: bool) -> float:
    """Return what the loop takes in order on the host, as a millisecond of it tells, behind the trips that are done.

    ``is_new``: nobody has touched what it writes. What was tried is tried again then.
    """
    (run,) = ordered_runs(spec, values)
    if not run.form.entry:
        return math.inf
    run.run(0, 0)  # what is compiled once
    first = done = 0 if done >= run.trips else done
    begun_s, took_s, size = time.perf_counter(), 0.0, 1
    while done < run.trips and not run.has_failed and took_s < _SAMPLE_S:
        end = min(done + size, run.trips)
        run.run(done, end)
        done, took_s = end, time.perf_counter() - begun_s
        room = (_SAMPLE_S - took_s) / max(took_s, 1e-9)
        size = max(1, min(_GROWTH * size, int((done - first) * room)))
    if is_new and not run.has_failed:
        begun_s = time.perf_counter()
        run.run(first, done)
        took_s = time.perf_counter() - begun_s
    return took_s * run.trips / max(done - first, 1)
