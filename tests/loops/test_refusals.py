"""What is refused, statement by statement: the rule, and the words of the remedy."""

# ruff: noqa: RET505 -- an else is what the subset asks for

import linecache
import math

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.errors import LoopError
from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import FunctionSource
from offload.loops.tree import ir


def takes(x):
    return x


def needs(x, y):
    return x + y


def has_text(x, word="text"):
    return x


def uneven(x):
    if x > 0:
        return x, x
    else:
        return x


def pair(x):
    return x, x


NAMES = {
    "np": np,
    "math": math,
    "omp": omp,
    "acc": acc,
    "takes": takes,
    "needs": needs,
    "has_text": has_text,
    "uneven": uneven,
    "pair": pair,
    "RATE": 0.5,
    "Number": type("Number", (), {}),
    "NOTHING": None,
}

IN_THE_LOOP = [
    # numbers and names
    ("a[i] = 'text'", "types", "str"),
    ("a[i] = None", "operator", "is None"),
    ("a[i] = {}", "types", "arguments"),
    ("a[i] = {1}", "types", "arguments"),
    ("a[i] = [1]", "types", "np.zeros"),
    ("a[i] = 1, 2", "assign", "one by one"),
    ("a[i] = np.float16(3)", "types", "float64"),
    ("a[i] = np.sin", "name", "call it"),
    ("a[i] = np.nothing", "name", "define it"),
    ("a[i] = Number.rate", "name", "belongs to Number, which is of type type"),
    ("a[i] = Number.rate.low", "name", "pass Number.rate.low itself"),
    ("a[i] = nothing.rate", "name", "define it"),
    ("a[i] = NOTHING is None", "operator", "=="),
    ("a[i] = i in b", "operator", "=="),
    ("a[i] = RATE[i]", "name", "pass one as an argument"),
    ("a[i] = (a + b)[i]", "index", "index a parameter"),
    ("a[i] = a.nbytes", "index", ".shape[k]"),
    ("a['x'] = i", "index", "integer"),
    ("a[True] = i", "index", "integer"),
    ("a[...] = i", "index", "integer"),
    ("a[[1]] = i", "index", "write the loop"),
    # assignments
    ("x, y = z, w = 1, 2", "assign", "an assignment for each"),
    ("[x, y] = 1, 2", "assign", "tuple"),
    ("a.x += 1", "assign", "attribute"),
    ("x: np.float64", "assign", "needs a value"),
    ("a[i] + 1", "assign", "leave it out"),
    ("t = np.zeros(3); t = 1", "assign", "assign its elements"),
    ("t = np.zeros(3); a[i] = t", "index", "one index"),
    ("t = np.zeros(3); a[i] = t.shape[1]", "index", "1 dimensions"),
    ("t = np.zeros(3); t[0] = len(t); t = np.zeros(3)", "local", "a name of its own"),
    ("t = u = np.zeros(3)", "local", "one name"),
    ("t = np.zeros(3, order='C')", "local", "order"),
    ("t = np.full(3, 1.0)", "local", "np.full(3, 1.0, dtype)"),
    ("t = np.zeros(-3)", "local", "constant"),
    # calls
    ("a[i] = RATE(i)", "call", "is a number"),
    ("a[i] = Number(i)", "call", "has no device form"),
    ("a[i] = nothing(i)", "name", "define it"),
    ("a[i] = range(3)", "loop", "for"),
    ("a[i] = acc.loop(3)", "loop", "for"),
    ("a[i] = next(b)", "loop", "range(…)"),
    ("a[i] = math.sin(1, 2)", "call", "2 arguments"),
    ("a[i] = math.sin(*b)", "call", "by position"),
    ("a[i] = omp.get_device_num()", "call", "offload.get_device_num"),
    ("a[i] = takes(1, 2)", "call", "do not match the parameters"),
    ("a[i] = takes(1, x=2)", "call", "parameter once"),
    ("a[i] = takes(**b)", "call", "leave out **"),
    ("a[i] = takes(*b)", "call", "do not match the parameters"),
    ("a[i] = takes(y=1)", "call", "do not match the parameters"),
    ("a[i] = needs(1)", "call", "pass it"),
    ("a[i] = has_text(1)", "call", "not a number"),
    ("a[i] = pair(1)", "assign", "2 values"),
    ("x, y, z = pair(1)", "assign", "2 values for 3"),
    ("a[i] = made(1)", "call", "source code"),
    ("omp.atomic.add(a, i, value=3)", "atomic", "by position"),
    ("omp.atomic.cas(a, i, 3)", "atomic", "expected"),
    # loops
    ("for j, k in range(3): pass", "loop", "one variable"),
    ("for j in range(0, 3, 0): pass", "range", "step is 0"),
    ("for j in range(stop=3): pass", "range", "by position"),
    ("for j in acc.loop(range(3), collapse=0): pass", "loop", "1 or more"),
    ("for j in acc.loop(range(3), seq=True, gang=True): pass", "loop", "seq"),
    ("for j in acc.loop(range(3), range(3)): pass", "loop", "one range"),
    ("for j in acc.loop(range(3), private=['t']): pass", "loop", "'t'"),
    ("for j in acc.loop(range(3), reduction={'+': 's'}): s = 1", "reduction", "s = 0.0"),
    ("assert a[i] > 0, i", "branch", "constant"),
]


def parsed(text, **clauses):
    file = f"<{text}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = dict(NAMES)
    exec("def made(x): return x", names)
    exec(compile(text, file, "exec"), names)
    try:
        return parse(FunctionSource.of(names["f"]), NestClauses(**clauses))
    finally:
        del linecache.cache[file]


@pytest.mark.parametrize(("statement", "rule", "word"), IN_THE_LOOP, ids=[one[0] for one in IN_THE_LOOP])
def test_statements_of_an_iteration(statement, rule, word):
    """The statement is refused by its rule, at its line, in words that say what to do."""
    with pytest.raises(LoopError) as caught:
        parsed(f"def f(a, b):\n    for i in range(3):\n        {statement}\n")
    assert (caught.value.rule, caught.value.line) == (rule, 3), str(caught.value)
    assert word in str(caught.value)


def test_branches_of_a_function_return_alike():
    """Each branch of a final ``if`` returns the same number of values."""
    with pytest.raises(LoopError) as caught:
        parsed("def f(a):\n    for i in range(3):\n        a[i] = uneven(i)\n")
    assert caught.value.rule == "call"
    assert "the same number" in str(caught.value)


OUTSIDE = [
    ("while a: pass", "range", "range(…)"),
    ("with a:\n        for i in range(3): pass", "branch", "with"),
    ("try:\n        for i in range(3): pass\n    except ValueError: pass", "branch", "if"),
    ("return 3\n    for i in range(3): pass", "range", "after the loop"),
    ("omp.atomic.add(a, 0, 1)", "atomic", "in the loop"),
    ("a[0] += 1", "assign", "in the loop"),
    ("n = [3]", "types", "np.zeros"),
    ("for b in range(3): pass", "range", "a name of its own"),
    ("for i in range(3):\n        for j in acc.loop(range(3)): pass", "collapse", "outermost"),
]


@pytest.mark.parametrize(("statement", "rule", "word"), OUTSIDE, ids=[one[0] for one in OUTSIDE])
def test_statements_around_a_nest(statement, rule, word):
    """What stands where only scalar statements and nests do is refused by its rule."""
    with pytest.raises(LoopError) as caught:
        parsed(f"def f(a, b):\n    {statement}\n", collapse=2 if "acc" in statement else 1)
    assert caught.value.rule == rule, str(caught.value)
    assert word in str(caught.value)


NO_UPDATES = [
    "s = b[i] - s",
    "s = s and b[i] or 3",
    "s = b[i] and s and 3",
    "s = s / b[i]",
    "s = s + b[i] * s",
    "s = s * 2 + b[i]",
    "s = np.minimum(s, b[i])",
    "s = min(s, s)",
    "s = b[i] if s < 3 else s",
    "s = 3 if b[i] < s else s",
    "s = s if b[i] else 3",
    "s //= b[i]",
    "s, t = b[i], s",
    "omp.atomic.add(b, s, 1)",
    "s = takes(s)",
    "if b[i] < s < 3: s = b[i]",
    "if b[i] == s: s = b[i]",
]


@pytest.mark.parametrize("statement", NO_UPDATES)
def test_what_is_no_update(statement):
    """What only looks like an update is another use of the item."""
    with pytest.raises(LoopError) as caught:
        parsed(
            f"def f(a, b):\n    s = 0\n    for i in range(3):\n        {statement}\n    return s\n",
            reductions=(ir.LoopReduction("+", "s"),),
        )
    assert (caught.value.rule, caught.value.line) == ("reduction", 4), str(caught.value)


def test_an_item_has_a_value_before():
    """A reduction starts from the value before the loop, which has to be there."""
    with pytest.raises(LoopError) as caught:
        parsed(
            "def f(a):\n    for i in range(3):\n        s += a[i]\n    return s\n",
            reductions=(ir.LoopReduction("+", "s"),),
        )
    assert (caught.value.rule, caught.value.line) == ("unbound", 2)
