"""The IR as text: expressions and statements as they were written."""

from __future__ import annotations

import pytest

from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import FunctionSource
from offload.loops.tree import ir
from offload.loops.tree.text import range_text, text_of
from tests.loops.oracle import function_of_text

EXPRESSIONS = [
    "x[i] + 2 * y[i]",
    "(x[i] + 2) * y[i]",
    "x[i] - (y[i] - 1)",
    "x[i] - y[i] - 1",
    "-x[i] ** 2",
    "(-x[i]) ** 2",
    "2 ** -x[i]",
    "(x[i] ** 2) ** 3",
    "x[i] // 2 % 3",
    "x[i] << 1 | y[i] & 3 ^ 1",
    "not x[i] < 2 and (y[i] > 1 or x[i] == y[i])",
    "(not x[i] < 2) == (y[i] > 1)",
    "x[i] if y[i] > 0 else y[i] if x[i] > 0 else 1.5",
    "(x[i] if y[i] > 0 else 1) + 1",
    "math.sin(x[i + 1])",
    "min(x[i], x.shape[0])",
    "int(x[i]) + float(y[i])",
    "float32(x[i])",
    "~x[i] + x.size",
]


def body_of(*lines):
    text = "\n".join(f"        {line}" for line in lines)
    f = function_of_text(f"import math\nfrom numpy import float32\ndef f(x, y):\n    for i in range(9):\n{text}\n")
    return parse(FunctionSource.of(f), NestClauses()).nests[0].body


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions_are_shown_as_they_were_written(text):
    """An expression has the brackets that it needs, and no others."""
    assert text_of(body_of(f"y[i] = {text}")[0].value) == text


@pytest.mark.parametrize(
    "lines",
    [
        ["x[i] = 1"],
        ["t = x[i]"],
        ["if x[i] > 1:", "    y[i] = 1"],
        ["while x[i] > 1:", "    x[i] = 1"],
        ["for k in range(3):", "    x[i] = k"],
        ["for k in range(i, 3):", "    x[i] = k"],
        ["for k in range(i, 3, -1):", "    x[i] = k"],
    ],
)
def test_statements_show_their_first_line(lines):
    """A statement is shown as its first line."""
    assert text_of(body_of(*lines)[0]) == lines[0]


def test_updates_are_shown_as_python_writes_them():
    """Updates of a reduction's item and of elements say their operator."""
    place = ir.SourceLine("here.py", 1)
    one, x = ir.Constant(place=place, value=1), ir.Name(place=place, name="x")
    assert text_of(ir.Reduce(place=place, name="s", operator="+", value=x)) == "s += x"
    assert text_of(ir.Reduce(place=place, name="s", operator="+", value=x, is_taken_away=True)) == "s -= x"
    assert text_of(ir.Reduce(place=place, name="s", operator="max", value=x)) == "s = max(s, x)"
    assert text_of(ir.Reduce(place=place, name="s", operator="and", value=x)) == "s = s and x"
    add = ir.Atomic(place=place, array="h", indices=(x,), operator="-", value=one, at=0)
    assert text_of(add) == "h[x] -= 1"


def test_ranges_leave_out_what_is_usual():
    """A start of 0 and a step of 1 are not shown."""
    axes = (
        parse(
            FunctionSource.of(function_of_text("def f(x, n):\n    for i in range(0, n, 1):\n        x[i] = 0\n")),
            NestClauses(),
        )
        .nests[0]
        .axes
    )
    assert range_text(axes[0]) == "range(n)"
