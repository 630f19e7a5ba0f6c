"""Generated loop functions through the constructs, against CPython: on a device, shuffled there, and on the host."""

from __future__ import annotations

import pytest

import offload as omp
from tests.conftest import checked
from tests.loops.oracle import copy_of
from tests.loops.programs import program
from tests.profiles import few


def clauses_of(made):
    """Return what a construct has to say of a program's loop."""
    clauses = {name: getattr(made, name) for name in ("collapse", "atomic", "lastprivate", "private")}
    reduction = {}
    for operator, name in made.reductions:
        reduction.setdefault(operator, []).append(name)
    return {**clauses, "reduction": reduction}


@pytest.mark.parametrize("seed", few(4, range(3000, 3009)))
def test_a_target_loop_gives_what_cpython_gives(seed):
    """Arrays and returned values are CPython's, wherever the loop runs and in whichever order."""
    made = program(seed)
    clauses = {
        **clauses_of(made),
        "schedule": ("dynamic", 1 + seed % 3) if seed % 4 == 0 else "static",
        "if_": seed % 3 > 0,
    }
    arguments = copy_of(made.arguments)
    with checked("sim:1", seed=seed if seed % 3 == 1 else None):
        returned = omp.target_loop(**clauses)(made.function())(**arguments)
    made.check(returned, arguments)
