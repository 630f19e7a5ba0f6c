"""Loops where nothing can be compiled now: a folder is full or of no use, or the system ends the compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

import offload as omp
from offload.errors import PerformanceWarning
from offload.loops.running import build, compilers, looks, plan, runs
from offload.loops.running.build import Builder
from tests.conftest import checked
from tests.loops.test_build import environ, script, working_only_for_the_pool
from tests.profiles import few

pytestmark = [
    pytest.mark.skipif(build.builder.compiler is None, reason="no C compiler"),
    pytest.mark.filterwarnings("ignore:.*runs in order:offload.PerformanceWarning"),
]

FAILURES = {
    "full": "echo 'loop.c:9:1: fatal error: error writing to ./x.s: No space left on device'; exit 1",
    "quota": "echo 'ld: final link failed: Disk quota exceeded'; exit 1",
    "killed": "kill -9 $$",
    "killed within": "echo 'gcc: fatal error: Killed signal terminated program cc1'; exit 1",
}


def double(x, y):
    for i in range(x.size):
        y[i] += 2 * x[i]


def scatter(p, x, y):
    for i in range(p.size):
        y[p[i]] = x[i]


def histogram(p, y):
    for i in range(p.size):
        omp.atomic.add(y, p[i], 1.0)


def total(x):
    s = 0.0
    for i in range(x.size):
        s += x[i]
    return s


def use(builder, monkeypatch):
    for module in (plan, runs, looks):
        monkeypatch.setattr(module, "builder", builder)


@pytest.mark.parametrize("construct", few(1, ["target_loop", "parallel_loop"]))
@pytest.mark.parametrize("failure", FAILURES)
def test_a_loop_that_cannot_be_compiled_now_runs_as_python(tmp_path, monkeypatch, construct, failure):
    """The results are right, also of reductions and atomics; a warning names the folder, once a loop."""
    use(Builder(environ(tmp_path, OFFLOAD_CC=working_only_for_the_pool(tmp_path, FAILURES[failure]))), monkeypatch)
    construct = getattr(omp, construct)
    x, p = np.arange(5.0), np.array([1, 1, 0])
    with checked("sim:1"):
        for function, clauses, arguments, expected in (
            (double, {}, (x, np.ones(5)), 2 * x + 1),
            (scatter, {"speculate": True}, (np.array([2, 0, 1, 4, 3]), x, np.ones(5)), np.array([1.0, 2, 0, 4, 3])),
            (double, {"check": True}, (x, np.ones(5)), 2 * x + 1),
            (histogram, {"atomic": ["y"]}, (p, np.array([-0.0, 0.0])), np.array([1.0, 2.0])),
            (total, {"reduction": {"+": ["s"]}}, (x,), None),
        ):
            if "speculate" in clauses and construct is omp.parallel_loop:
                continue
            loop = construct(**clauses)(function)
            with pytest.warns(PerformanceWarning, match=r"(?s)as Python, .*nothing can be compiled in .* TMPDIR"):
                found = loop(*arguments)
            assert found == 10 if expected is None else np.array_equal(arguments[-1], expected)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert expected is not None or loop(*arguments) == 10


@pytest.mark.parametrize("failure", FAILURES)
def test_where_nothing_could_ever_be_compiled_the_warning_says_why(tmp_path, monkeypatch, failure):
    """It does not say that there is no compiler."""
    bad = script(tmp_path / "bad", f'case "$*" in *--version*) exit 0 ;; esac\n{FAILURES[failure]}')
    monkeypatch.setattr(compilers, "_commands", lambda environ: iter([(bad,)]))
    use(Builder(environ(tmp_path)), monkeypatch)
    x, y = np.arange(5.0), np.zeros(5)
    with checked("sim:1"), pytest.warns(PerformanceWarning, match="nothing can be compiled in") as caught:
        omp.parallel_loop(double)(x, y)
    assert not any("no C compiler" in str(one.message) for one in caught)
    assert np.array_equal(y, 2 * x)


def test_the_extremes_of_an_index_array_are_found_all_the_same(tmp_path, monkeypatch):
    """NumPy finds them."""
    use(Builder(environ(tmp_path, OFFLOAD_CC=working_only_for_the_pool(tmp_path, FAILURES["full"]))), monkeypatch)
    monkeypatch.setattr(looks, "_entry", looks._entry.__wrapped__)
    with checked("sim:1"):
        assert looks.extremes(np.arange(1 << 18)) == (0, (1 << 18) - 1)


PROGRAM = """
import resource, sys, warnings
import numpy as np
import offload as omp

@omp.parallel_loop
def first(x):
    for i in range(x.size):
        x[i] += 1

@omp.parallel_loop
def second(x):
    for i in range(x.size):
        x[i] += 2

x = np.zeros(3)
if sys.argv[1] == "warm":
    first(x)
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    first(x)
    n_before = len(caught)
    second(x)
    second(x)
assert x.tolist() == [6 if sys.argv[1] == "warm" else 5] * 3, x
assert n_before == (sys.argv[1] == "cold")
assert len(caught) == n_before + 1
assert all("nothing can be compiled in" in str(one.message) for one in caught), caught[0].message
"""


@pytest.mark.parametrize("state", ["warm", "cold"])
def test_a_program_that_may_write_no_more(tmp_path, state):
    """A real compiler that may write no file of some size: what is in the cache runs compiled, the rest as Python."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    subprocess.run([sys.executable, file, state], env=environ(tmp_path), check=True, timeout=100)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root mounts")
def test_a_folder_that_is_full(tmp_path):
    """A real folder that is full: the program says so, and goes on."""
    full = tmp_path / "full"
    full.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", full], check=False, capture_output=True)
    if mount.returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        file = tmp_path / "program.py"
        limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))"
        filled = f"import tempfile; tempfile.tempdir = {str(full)!r}"
        file.write_text(PROGRAM.replace(limit, filled))
        for state in ("warm", "cold"):
            variables = environ(tmp_path, OFFLOAD_CACHE_DIR=str(tmp_path / state), TMPDIR=str(tmp_path))
            subprocess.run([sys.executable, file, state], env=variables, check=True, timeout=100)
    finally:
        subprocess.run(["umount", full], check=True)
