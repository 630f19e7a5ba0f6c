"""Every construct and routine takes each kind of object as it takes a NumPy array of the same memory."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

import offload as omp
from tests.conftest import checked
from tests.differential.world import attempted, checksum, described
from tests.foreign.cases import CASES, WRONG
from tests.foreign.kinds import KINDS, LIBRARIES
from tests.profiles import is_quick

if TYPE_CHECKING:
    from tests.foreign.cases import Case
    from tests.foreign.kinds import Host, Kind

HOST_LOOPS = set()
"""Loops on the host do not take other libraries' arrays yet."""

N_STEPS = 3
"""A case is tried with each of so many kinds by default."""

MOST_REFERENCES = 3
"""How often what a case has left is released; the references of a declared array have no end."""


def outcome(case: Case, item: Any, memory: Host) -> list[str]:
    """Return what a case returns or raises, the warnings, the elements afterwards, and whether they are present."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = [described(attempted(lambda: case(item, memory))), described(attempted(omp.taskwait))]
    found += [f"{warning.category.__name__}: {warning.message}" for warning in caught]
    found += [checksum(memory), str(omp.target_is_present(memory)), str(omp.target_is_present(item))]
    for _ in range(MOST_REFERENCES * omp.target_is_present(memory)):
        omp.target_exit_data(map=[omp.delete(memory)])
    return found


def outcomes(case: Case, kind: Kind) -> tuple[list[str], list[str]]:
    """Return the outcome of a case with a NumPy array of a kind's memory, and with an object of the kind."""
    (kept, memory), (item, its_memory) = kind.make(), kind.make()
    with checked("sim:1"):
        wanted, found = outcome(case, memory[...], memory), outcome(case, item, its_memory)
    del kept
    if kind.body == "tensor":  # a device does not see what is written to a tensor
        wanted = [line for line in wanted if "the body wrote no element" not in line]
    return wanted, found


def kinds_for(name: str) -> list[str]:
    """Return the kinds that a case is tried with: by default some, which are others for the next case."""
    kinds = list(KINDS)
    at = list(CASES).index(name)
    return kinds[at % N_STEPS :: N_STEPS] if is_quick() else kinds


@pytest.mark.parametrize("name", sorted(CASES.keys() - HOST_LOOPS))
def test_constructs(name: str) -> None:
    """The results, the errors and their text, and what is present are those with a NumPy array of such memory."""
    differences = {}
    for kind in kinds_for(name):
        wanted, found = outcomes(CASES[name], KINDS[kind])
        if found != wanted:
            differences[kind] = found, wanted
    assert not differences


@pytest.mark.parametrize("name", CASES)
def test_cases_do_something(name: str) -> None:
    """A case raises an error only if it is to, so that the suite does not compare errors with errors."""
    wanted, _ = outcomes(CASES[name], KINDS["interface"])
    assert ("Error(" in wanted[0]) == (name in WRONG), wanted[0]


@pytest.mark.parametrize("module", LIBRARIES)
def test_libraries(request: pytest.FixtureRequest, module: str) -> None:
    """The arrays of a library are among the kinds if it is installed."""
    request.getfixturevalue(module)
    assert any(type(kind.make()[0]).__module__.startswith(module) for kind in KINDS.values())
