"""What a run on copies sees, against all pairs of accesses; and what passes a check, against the serial run."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offload as omp
from offload.loops.proofs.numbers import LaunchNumbers
from offload.loops.running.clauses import LoopWords
from offload.loops.running.observe import NestObserver, observe
from offload.loops.running.plan import numbers_of, plain
from offload.loops.running.preparation import view_at
from offload.loops.tree.uses import numbered
from offload.loops.watched.needs import needed
from tests.conftest import checked

TRIPS = 6


def carried_out(a, kinds, places, sums):
    """Carry out accesses of one array: ``kinds[i, k]`` says whether iteration i reads or writes ``places[i, k]``."""
    for i in range(kinds.shape[0]):
        for k in range(kinds.shape[1]):
            if kinds[i, k] == 0:
                sums[i] += a[places[i, k]]
            else:
                a[places[i, k]] = sums[i] + i + k


OBSERVED = omp.parallel_loop(carried_out)
PLANS = st.lists(
    st.lists(st.tuples(st.integers(0, 1), st.integers(-3, 2)), min_size=3, max_size=3), min_size=TRIPS, max_size=TRIPS
)


def events(plan):
    """Return kinds with the distances of their events, as the definition has them, from the list of all accesses."""
    found = {"flow": [], "anti": [], "output": []}
    before = []
    for i, accesses in enumerate(plan):
        for is_write, place in accesses:
            here = [(other, wrote) for other, wrote, at in before if at == place % 3]
            last = max((other for other, wrote in here if wrote), default=None)
            if last is not None and last != i:
                found["output" if is_write else "flow"].append(i - last)
            readers = [other for other, wrote in here if not wrote and other != i and (last is None or other >= last)]
            if is_write and readers:
                found["anti"].append(i - max(readers))
            before.append((i, is_write, place % 3))
    return {("a", kind): (len(each), min(each), max(each)) for kind, each in found.items() if each}


@given(PLANS)
def test_what_is_seen_is_what_all_pairs_say(plan):
    """Kinds, counts and distances are those of the definition; a quick run knows whether there are any."""
    kinds, places = np.array(plan).transpose(2, 0, 1)
    values = OBSERVED._program.bound((np.zeros(3), kinds, places, np.zeros(TRIPS)), {})
    spec = OBSERVED._program.specialise(values)
    numbers = numbers_of(spec, values, partial(view_at, None))
    nest = spec.typed.function.nests[0]
    arrays = {name: values[name].copy() for name in numbers.views}
    every = frozenset(numbered(nest))
    findings = observe(spec.typed, nest, {}, every, numbers.scalars[0], arrays, numbers.views, numbers.axes[0])
    seen = {key: (one.count, one.min_distance, one.max_distance) for key, one in findings.found.items()}
    assert seen == events(plan)
    launch = LaunchNumbers(numbers.axes[0], plain(numbers.scalars[0]), numbers.views)
    of = needed(spec.typed, nest, launch, every)
    again = {name: values[name].copy() for name in numbers.views}
    quick = observe(spec.typed, nest, {}, every, numbers.scalars[0], again, numbers.views, numbers.axes[0], of=of)
    assert bool(quick.found) == bool(events(plan))
    given = (spec.typed, nest, {}, every, numbers.views, numbers.axes[0], LoopWords(), of)
    again = {name: values[name].copy() for name in numbers.views}
    sliced = NestObserver(*given, is_slice=True).observe(numbers.scalars[0], again)
    assert bool(sliced.found) == bool(events(plan))
    assert all((again[name] == values[name]).all() for name in again)


@pytest.mark.slow
@given(PLANS, st.integers(1, 600), st.booleans())
def test_a_beginning_sees_what_it_has_carried_out(plan, most, is_slice):
    """So many iterations as are told were looked at, in order, and what is found is between them; as many each time."""
    kinds, places = np.array(plan).transpose(2, 0, 1)
    values = OBSERVED._program.bound((np.zeros(3), kinds, places, np.zeros(TRIPS)), {})
    spec = OBSERVED._program.specialise(values)
    numbers = numbers_of(spec, values, partial(view_at, None))
    nest = spec.typed.function.nests[0]
    every = frozenset(numbered(nest))
    of = needed(spec.typed, nest, LaunchNumbers(numbers.axes[0], plain(numbers.scalars[0]), numbers.views), every)
    seen = []
    for _ in range(2):
        arrays = {name: values[name].copy() for name in numbers.views}
        observer = NestObserver(
            spec.typed, nest, {}, every, numbers.views, numbers.axes[0], LoopWords(), of, most, is_slice=is_slice
        )
        found = observer.begin(numbers.scalars[0], arrays)
        assert found.failure is None
        assert bool(found.found) == bool(events(plan[: found.n_iterations]))
        assert found.is_whole == (found.n_iterations == TRIPS)
        if is_slice:
            assert all((arrays[name] == values[name]).all() for name in arrays)
        elif found.is_whole:
            carried_out(*(expected := [values[name].copy() for name in ("a", "kinds", "places", "sums")]))
            assert (arrays["a"] == expected[0]).all()
            assert (arrays["sums"] == expected[3]).all()
        seen.append(found.n_iterations)
    assert seen[0] == seen[1]
    assert (seen[0] == TRIPS) or most < 600 or found.found


@pytest.mark.slow
@given(PLANS, st.integers(0, 100))
def test_what_passes_a_check_is_right_in_any_order(plan, seed):
    """A checked call either raises and changes nothing, or leaves what the serial run leaves, in any order."""
    kinds, places = np.array(plan).transpose(2, 0, 1)
    a, sums = np.arange(3.0), np.zeros(TRIPS)
    expected = a.copy(), sums.copy()
    with checked("sim:1", seed=seed):
        try:
            omp.target_loop(carried_out, check=True)(a, kinds, places, sums)
        except omp.LoopError:
            assert events(plan)
        else:
            assert not events(plan)
            carried_out(expected[0], kinds, places, expected[1])
    assert (a == expected[0]).all()
    assert (sums == expected[1]).all()
