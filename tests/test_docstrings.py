"""Every public name has a docstring with an example that runs, on the simulated device."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from tests.docstrings import CONSTANTS, MEMBERS, MODULES, documented, failures, needs_mpi
from tests.mpi import launching

ROOT = Path(__file__).parents[1]
DOCUMENTED = documented()
WITH_MPI = """
from tests.docstrings import failures_with_mpi
print(failures_with_mpi() or "all of them ran")
"""


@pytest.mark.parametrize("name", sorted(name for name in DOCUMENTED if not needs_mpi(DOCUMENTED[name])))
def test_example(name):
    """The docstring has an example, which prints what it says, issues no warning and leaves nothing on the device."""
    assert ">>>" in (DOCUMENTED[name] or ""), f"{name} has no example"
    printed = failures(name, DOCUMENTED[name])
    assert not printed, printed


@launching.needs_mpi
def test_examples_with_mpi():
    """The names of `offload.mpi` have examples too, and these run; in a process of their own, where MPI begins."""
    status, printed = launching.run(1, "-W", "error", "-c", WITH_MPI, cwd=ROOT)
    assert status == 0, printed
    assert printed == "all of them ran\n"


@pytest.mark.parametrize("owner", sorted(MEMBERS))
def test_members_have_an_example(owner):
    """A public method or attribute of an object has an example, its own or one of its class's."""
    kind, names = MEMBERS[owner]
    shown = inspect.getdoc(kind) or ""
    missing = [
        name
        for name in names.split()
        if f"{owner}.{name}" not in DOCUMENTED and not re.search(rf">>> .*\.{name}\b|\.\.\. .*\.{name}\b", shown)
    ]
    assert not missing


@pytest.mark.parametrize("module", sorted(MODULES))
def test_constants_are_in_the_docstring_of_their_module(module):
    """Exports that cannot have a docstring are the constants, and the module's docstring names each of them."""
    listed, text = CONSTANTS.get(module, set()), inspect.getdoc(MODULES[module])
    exported = {name: getattr(MODULES[module], name) for name in MODULES[module].__all__}
    assert listed == {
        name for name, thing in exported.items() if not inspect.isclass(thing) and not inspect.isroutine(thing)
    }
    assert not [name for name in listed if f"`{name}`" not in text and f"omp.{name}" not in text]
