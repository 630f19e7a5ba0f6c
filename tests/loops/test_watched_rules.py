"""Generated loops with a log and with a profile of all that they touch: they do what they did, and nothing is found."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import offload as omp
from offload.loops.proofs.independence import Verdict
from offload.loops.running import plan
from offload.loops.running.observe import copies_of, observe
from offload.loops.running.plan import numbers_of, plans_of
from offload.loops.running.preparation import view_at
from offload.loops.tree.uses import numbered
from tests.conftest import checked
from tests.loops.oracle import copy_of
from tests.loops.programs import program
from tests.loops.speculation import noted
from tests.loops.test_launch_rules import clauses_of
from tests.profiles import few


@pytest.fixture
def nothing_is_known(monkeypatch):
    """The test for independence leaves everything open that is plainly accessed and written to somewhere."""

    def unknown(found):
        written = {access.array for access in found.listed if access.kind == "store"} - found.own
        plainly = {access.at for access in found.listed if access.array in written}
        return Verdict("unknown", (), tuple(sorted(plainly))) if plainly else Verdict("parallel")

    monkeypatch.setattr(plan, "independence", unknown)


@pytest.mark.parametrize("seed", few(2, range(5000, 5012)))
def test_a_log_of_everything(seed, nothing_is_known):
    """Independent iterations with all accesses logged give what CPython gives, and a clean log, in any order."""
    made = program(seed)
    arguments = copy_of(made.arguments)
    with checked("sim:1", seed=seed), noted() as found:
        returned = omp.target_loop(speculate="always", **clauses_of(made))(made.function())(**arguments)
    made.check(returned, arguments)
    assert found in ([None], [])  # nothing is written plainly


@pytest.mark.slow
@pytest.mark.parametrize("seed", few(2, range(5100, 5106)))
def test_a_log_of_everything_as_cuda(seed, nothing_is_known, cuda):
    """So do the kernels of a GPU."""
    made = program(seed)
    arguments = copy_of(made.arguments)
    try:
        with noted() as found:
            returned = omp.target_loop(speculate="always", **clauses_of(made))(made.function())(**arguments)
    except omp.ClauseError as error:
        assert "not aligned" in str(error)  # noqa: PT017  # no GPU has them
        return
    made.check(returned, arguments)
    assert found in ([None], [])


@pytest.mark.parametrize("seed", few(2, range(5200, 5208)))
def test_a_profile_of_everything(seed):
    """A profiled run gives what CPython gives, and sees no dependence between independent iterations."""
    made = program(seed)
    arguments = copy_of(made.arguments)
    of = omp.target_loop(**clauses_of(made))(made.function())._program
    values = of.bound((), arguments)
    spec = of.specialise(values)
    numbers = numbers_of(spec, values, partial(view_at, None))
    (one,) = plans_of(spec, numbers)
    own = set(one.nest.privates) | {node for node in spec.typed.arrays if node not in numbers.views}
    every = {at for at, node in numbered(one.nest).items() if node.array not in own and not hasattr(node, "operator")}
    arrays = {name: values[name] for name in numbers.views}
    copies = copies_of(one.nest, arrays, numbers.views)
    modes = dict(one.variant.modes)
    found = observe(
        spec.typed, one.nest, modes, frozenset(every), numbers.scalars[0], copies, numbers.views, numbers.axes[0]
    )
    assert found.failure is None
    assert not found.found
    _, left = made.expected()
    for name in arrays:
        if name not in made.private and name not in made.inexact:
            assert np.array_equal(copies[name], left[name], equal_nan=left[name].dtype.kind == "f"), name
