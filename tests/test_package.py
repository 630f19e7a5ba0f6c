"""The package as such: what importing it costs, what it offers, which version it says it is."""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import offload

HEAVY = {"cupy", "dask", "distributed", "mpi4py", "rich"}
FOR_FILES = {
    "gzip",
    "hashlib",
    "pathlib",
    "secrets",
    "shutil",
    "tempfile",
}  # they would take a seventh of the time of the import
LIMIT_S = 0.1  # of a processor, beyond the interpreter's own start-up; NumPy is about 60 ms of it
LIMIT_IN_NUMPYS = 1.25  # for slow and busy machines, on which both take twice as long: the package, in times of NumPy

PROGRAM = """
import json, sys, time
began_s = time.thread_time()
import numpy
numpy_s = time.thread_time() - began_s
of_numpy = set(sys.modules)
import offload
print(json.dumps([time.thread_time() - began_s, numpy_s, sorted(set(sys.modules) - of_numpy)]))
"""


def import_in_a_new_process(cache: Path) -> tuple[float, float, set[str]]:
    """Import `offload` with warnings as errors: the processor's time, NumPy's part of it, the modules beyond NumPy's.

    As an installed package it is compiled; ``cache`` is where that is kept, whatever the environment says.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    output = subprocess.check_output(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        cwd=Path(offload.__file__).parents[1],
        env={**environment, "PYTHONPYCACHEPREFIX": str(cache)},
        timeout=100,
    )
    elapsed_s, numpy_s, modules = json.loads(output)
    return elapsed_s, numpy_s, set(modules)


def test_import_is_light(tmp_path):
    """Importing the package loads none of the modules that only a part of it needs."""
    *_, modules = import_in_a_new_process(tmp_path)
    assert not (HEAVY | FOR_FILES) & modules


def test_import_makes_no_loops(tmp_path):
    """Of what makes loops, importing the package loads the decorators, their clauses, profiles and the words inside."""
    *_, modules = import_in_a_new_process(tmp_path)
    loaded = {name for name in modules if name.startswith("offload.loops.")}
    expected = (
        *("common", "functions", "host_functions", "profile", "words"),
        *("proofs", "proofs.dependences", "running", "running.clauses", "tree", "tree.sizes"),
    )
    assert loaded == {f"offload.loops.{name}" for name in expected}


def test_import_is_quick(tmp_path):
    """The best of several imports takes less than 100 ms, or than NumPy on a slow machine."""
    times_s = []
    for _ in range(8):  # the first one may compile; others may meet a busy machine
        elapsed_s, numpy_s, _ = import_in_a_new_process(tmp_path)
        times_s.append(elapsed_s)
        if elapsed_s < LIMIT_S or elapsed_s - numpy_s < LIMIT_IN_NUMPYS * numpy_s:
            return
    pytest.fail(f"import offload took {min(times_s):.3f} s at best; python -X importtime -c 'import offload' shows why")


def test_public_names_are_listed_once():
    """`__all__` names each public thing once."""
    assert len(offload.__all__) == len(set(offload.__all__))


@pytest.mark.parametrize("name", sorted(set(offload.__all__)))
def test_public_name_exists_and_is_documented(name):
    """Every name in `__all__` can be had, and a class or function has a docstring that somebody wrote."""
    thing = getattr(offload, name)
    if inspect.isclass(thing):
        written = vars(thing).get("__doc__") or ""  # not the base's
        assert written.strip(), f"class {name} has no docstring"
        generated = (f"{name}(", f"{thing.__name__}(")  # what dataclass and NamedTuple make up
        assert not written.startswith(generated), f"class {name} has only a generated docstring"
    elif inspect.isroutine(thing):
        assert (thing.__doc__ or "").strip(), f"function {name} has no docstring"


def test_version_is_the_installed_one():
    """`__version__` is what the package's metadata say."""
    try:
        installed = importlib.metadata.version("offload")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("offload is not installed here, only importable")
    assert offload.__version__ == installed
