"""Rows as names and as arguments, in generated programs, against CPython: every form and every way to run a loop."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offload as omp
from offload import acc
from offload.errors import ClauseError
from offload.loops.running import build, plan, runs
from tests.conftest import checked
from tests.loops.cuda_form import cuda_form
from tests.loops.oracle import copy_of
from tests.loops.row_programs import row_program
from tests.loops.test_emit_cuda import on_host
from tests.loops.test_emit_py_rules import check
from tests.profiles import examples, few

SEEDS = st.integers(0, 2**32 - 1)

WAYS = {
    "check": omp.target_loop(check=True),
    "speculate": omp.target_loop(speculate=True),
    "always": omp.target_loop(speculate="always"),
    "devices": omp.target_loop(devices="all", filter="always"),
    "seq": acc.parallel_loop(seq=True),
    "kernels": acc.kernels_loop,
    "host": omp.parallel_loop,
}


@settings(max_examples=examples(150, 20_000))
@given(SEEDS)
def test_rows_mean_what_cpython_says(seed):
    """A program leaves what CPython leaves, as Python's text."""
    check(row_program(seed))


@on_host
@pytest.mark.parametrize("seed", few(1, range(4)))
def test_rows_in_cuda(seed):
    """A program leaves what CPython leaves, as the text for CUDA, with indices of 32 bits."""
    check(row_program(seed), cuda_form(index_bits=32), chunks=1)


@pytest.mark.parametrize("seed", few((), range(100, 130)))
def test_rows_in_c(seed):
    """A program leaves what CPython leaves, in C, on a device that shuffles iterations."""
    made = row_program(seed)
    with checked("sim:1", seed=seed):
        for construct in (omp.target_loop, omp.parallel_loop):
            arguments = copy_of(made.arguments)
            made.check(construct(made.function())(**arguments), arguments)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore::offload.errors.PerformanceWarning")
def test_rows_in_every_way(way, monkeypatch):
    """A program leaves what CPython leaves under each clause that looks at accesses, called twice."""
    for module in (plan, runs):
        monkeypatch.setattr(module, "builder", build.Builder({"OFFLOAD_CC": "none"}))
    with checked("sim:3"):
        for seed in range(examples(50, 1_000)):
            made = row_program(10_000 + seed)
            loop = WAYS[way](made.function())
            try:
                for _ in range(2):
                    arguments = copy_of(made.arguments)
                    made.check(loop(**arguments), arguments)
            except ClauseError as error:
                if way != "devices" or "cannot be split" not in str(error):  # which the clause asks for
                    raise
            except Exception as error:
                error.add_note(f"{way} of row_program({10_000 + seed}):\n{made.text}")
                raise
