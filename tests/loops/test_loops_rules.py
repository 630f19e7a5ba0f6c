"""Generated programs as a user writes them: decorated, called, on the host and on a device, against CPython."""

from __future__ import annotations

import pytest

import offload as omp
from offload.loops.running import build, plan, runs
from tests.conftest import checked
from tests.loops.oracle import copy_of
from tests.loops.programs import program
from tests.loops.test_launch_rules import clauses_of

BLOCK = 10
QUICK = {"C": 10, "Python": 10}
IN_CI = {"C": 30, "Python": 150}  # of a program in C most is the compiler: 0.3 s; as Python it takes 0.08 s


def marks_of(form, first):
    """Return the marks of a block of programs."""
    if first >= IN_CI[form]:
        return [pytest.mark.soak]
    return [pytest.mark.slow] if first >= QUICK[form] else []


BLOCKS = [pytest.param(form, first, marks=marks_of(form, first)) for form in IN_CI for first in range(0, 5_000, BLOCK)]


@pytest.fixture
def form(request, monkeypatch):
    """What loops become: C, or Python as where there is no compiler."""
    if request.param == "Python":
        for module in (plan, runs):
            monkeypatch.setattr(module, "builder", build.Builder({"OFFLOAD_CC": "none"}))
    elif build.builder.compiler is None:
        pytest.skip("no C compiler")


@pytest.mark.parametrize(("form", "first"), BLOCKS, indirect=["form"])
@pytest.mark.filterwarnings("ignore:.*there is no C compiler:offload.errors.PerformanceWarning")
def test_a_loop_leaves_what_cpython_leaves(form, first):
    """A call leaves in its arrays, and returns, what the undecorated function does, wherever, and called again."""
    with checked("sim:1", seed=first if first % (2 * BLOCK) else None):
        for seed in range(first, first + BLOCK):
            made = program(seed)
            schedule = ("dynamic", 1 + seed % 3) if seed % 4 == 0 else ("static", "dynamic", "guided")[seed % 3]
            for construct in (omp.parallel_loop, omp.target_loop):
                loop = construct(**clauses_of(made), schedule=schedule)(made.function())
                try:
                    for _ in range(2):  # a launch that has been decided is made in another way
                        arguments = copy_of(made.arguments)
                        made.check(loop(**arguments), arguments)
                except Exception as error:
                    error.add_note(f"{construct.__name__} of program({seed}):\n{made.text}")
                    raise
