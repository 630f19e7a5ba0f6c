"""The Python form of generated programs against CPython."""

from __future__ import annotations

import numpy as np
import pytest

from offload.loops.emit.python_form import DIVISION, INDEX, python_form
from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import FunctionSource
from offload.loops.tree import ir
from tests.loops.forms import FoundError, run
from tests.loops.oracle import copy_of, function_of_text
from tests.loops.programs import program
from tests.profiles import few


def parsed(made):
    """Return the IR of a program."""
    clauses = NestClauses(
        collapse=made.collapse,
        reductions=tuple(ir.LoopReduction(operator, name) for operator, name in made.reductions),
        private=tuple(made.private),
        lastprivate=tuple(made.lastprivate),
        atomic=tuple(made.atomic),
    )
    return parse(FunctionSource.of(made.function()), clauses)


def check(made, form=python_form, chunks=3):
    """Run a program in a form, and compare with CPython."""
    arguments = copy_of(made.arguments)
    made.check(run(parsed(made), arguments, form, chunks), arguments)


@pytest.mark.parametrize("seed", few(15, range(5_000, 5_060)))
def test_the_python_form_gives_what_cpython_gives(seed):
    """A program's arrays and returned values are CPython's, whatever the chunks."""
    check(program(seed), chunks=1 + seed % 5)


SEVERAL = """
def f(x, n, m):
    total = 0
    for i in range(n):
        total += x[i]
    if m > 2:
        first = 2 * m
    else:
        first = 3
    for i in range(first, n):
        for k in range(i):
            if k > 3:
                break
        else:
            x[i] = -x[i]
    return total
"""


@pytest.mark.parametrize(("n", "m"), [(8, 1), (8, 3), (2, 0), (0, 5)])
def test_nests_and_the_statements_between_follow_each_other(n, m):
    """Of several nests each has its kernel, and what stands between is carried out by the host."""
    f = function_of_text(SEVERAL)
    arguments = {"x": np.arange(8, dtype=np.uint8) * 40, "n": n, "m": m}
    expected = copy_of(arguments)
    with np.errstate(all="ignore"):
        returned = f(**expected)
    assert run(parse(FunctionSource.of(f), NestClauses(several=True)), arguments) == returned
    assert arguments["x"].tolist() == expected["x"].tolist()


@pytest.mark.parametrize("seed", few(10, range(40)))
def test_what_raises_in_cpython_is_reported(seed):
    """An index out of range, or a division of Python's integers by zero, is reported where CPython raises."""
    rng = np.random.default_rng(seed)
    text = (
        "def f(x, k, d, y):\n"
        "    for i in range(len(y)):\n"
        "        if k[i] % 3:\n"
        "            y[i] = x[k[i]] + int(d[i]) // int(d[k[i] % 2])\n"
    )
    f = function_of_text(text)
    arguments = {"x": rng.random(4), "k": rng.integers(-6, 6, 3), "d": rng.integers(0, 5, 3), "y": np.zeros(3)}
    loop = parse(FunctionSource.of(f), NestClauses())
    raised = kind_of(lambda: f(**copy_of(arguments)))
    assert kind_of(lambda: run(loop, arguments, chunks=1)) == raised


def kind_of(call):
    """Return what a call finds wrong, in a report's words; 0 for nothing."""
    try:
        call()
    except FoundError as found:
        return found.what
    except IndexError:
        return INDEX
    except ZeroDivisionError:
        return DIVISION
    return 0
