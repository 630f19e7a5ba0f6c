"""Types of what programs write: from the text of a loop to the types of its scalars and to CPython's own answer."""

from __future__ import annotations

import math

import numpy as np
import pytest

from offload.errors import LoopError
from offload.loops.front.calls import FUNCTIONS
from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import FunctionSource
from offload.loops.front.types import infer
from offload.loops.tree import ir
from tests.loops.forms import run, types_of
from tests.loops.oracle import compare, copy_of, function_of_text

ARRAYS = {
    "x32": np.array([0.5, 0.7], np.float32),
    "x64": np.array([0.5, 0.7]),
    "i8": np.array([100, -128], np.int8),
    "i16": np.array([3, -4], np.int16),
    "i32": np.array([3, -4], np.int32),
    "u8": np.array([3, 250], np.uint8),
    "mask": np.array([True, False]),
}
TYPES = {
    "0.5 * x32[i]": "float32",
    "i * x32[i]": "float32",
    "math.sin(x32[i]) * x32[i]": "float32",
    "np.sin(x32[i]) * x64[i]": "float64",
    "x32[i] * i16[i]": "float32",
    "x32[i] * i32[i]": "float64",
    "i8[i] / i8[0]": "float64",
    "i8[i] + i8[i]": "int8",
    "i8[i] + u8[i]": "int16",
    "i8[i] * 0.5": "float64",
    "mask[i] + 1": "int64",
    "i + 1": "int64 weak",
    "i / 2": "float64 weak",
    "round(x32[i])": "int64 weak",
    "len(x32) * 0.5": "float64 weak",
    "abs(i8[i])": "int8",
    "min(x32[0], 0.6)": "float32",
    "i < 1": "bool weak",
    "i8[i] < u8[i]": "bool",
    "i8[i] // 7 % 3": "int8",
}


def loop(*lines, end="", head=""):
    """Return a loop function over the arrays above, made of lines of its body."""
    body = "\n".join(f"        {line}" for line in lines)
    names = ", ".join([*ARRAYS, "out"])
    first = f"import cmath, math\nimport numpy as np\ndef f({names}):\n    {head}\n"
    return function_of_text(f"{first}    for i in range(2):\n{body}\n{end}\n")


def typed(function, **clauses):
    arguments = {**ARRAYS, "out": np.zeros(2)}
    parsed = parse(FunctionSource.of(function), NestClauses(**clauses))
    return infer(parsed, *types_of(parsed, arguments))


@pytest.mark.parametrize("text", TYPES)
def test_an_expression_has_the_type_that_numpy_gives_it(text):
    """A scalar that is assigned an expression has its type, and CPython's value has that dtype."""
    function = loop(f"t = {text}", "out[i] = t")
    assert str(typed(function).scalars["t"]) == TYPES[text]
    with np.errstate(all="ignore"):
        value = eval(text, {"math": math, "np": np, "i": 1, **ARRAYS})
    assert np.asarray(value).dtype == TYPES[text].split()[0]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("mask[i] + mask[0]", "types"),
        ("-mask[i]", "types"),
        ("u8[i] + 300", "types"),
        ("u8[i] - -1", "types"),
        ("np.int8(200)", "types"),
        ("np.sin(i8[i])", "types"),
        ("i8[i] ** i", "types"),
        ("x32[i] & 1", "types"),
        ("i8[x32[i]]", "types"),
        ("i8[i, 0]", "index"),
        ("i8[i < 1]", "index"),
        ("x32[i] and x64[i]", "branch"),
        ("(x32[i] and x64[i]) and i < 1", "branch"),
        ("2 ** 63", "types"),
    ],
)
def test_what_has_no_type_is_refused_at_its_line(text, rule):
    """A refusal has its rule and the line of the text."""
    with pytest.raises(LoopError) as caught:
        typed(loop(f"t = {text}", "out[i] = t"))
    assert (caught.value.rule, caught.value.line) == (rule, 6)


def test_numbers_where_arrays_are_needed_and_the_reverse_are_refused():
    """A number that is indexed is refused by rule argument; an array used as a number by rule types."""
    f = function_of_text("def f(x, n):\n    for i in range(2):\n        x[i] = n\n")
    parsed = parse(FunctionSource.of(f), NestClauses())
    for scalars, arrays, rule in (
        ({"x": ir.Type("int64")}, {}, "argument"),
        ({}, {"x": ir.LoopArrayType("int64", 1), "n": ir.LoopArrayType("int64", 1)}, "types"),
    ):
        with pytest.raises(LoopError) as caught:
            infer(parsed, scalars, arrays)
        assert caught.value.rule == rule


def test_a_narrow_accumulator_is_noted_and_an_annotation_widens_it():
    """A sum in float32 is noted with its line; ``s: np.float64`` makes it float64."""
    made = typed(loop("s = 0.0", "for k in range(2):", "    s += x32[k]", "out[i] = s"))
    assert made.scalars["s"] == ir.Type("float32")
    assert [note for note in made.notes if "line 8" in note and "float32" in note]
    made = typed(loop("s: np.float64 = 0.0", "for k in range(2):", "    s += x32[k]", "out[i] = s"))
    assert made.scalars["s"] == ir.Type("float64")
    assert made.notes == ()


def test_a_difference_is_of_its_own_type():
    """``s -= u8[i]`` from a Python number wraps in uint8, as CPython's does."""
    f = loop("s -= u8[i]", head="s = 5", end="    return s")
    parsed = parse(FunctionSource.of(f), NestClauses(reductions=(ir.LoopReduction("+", "s"),)))
    with np.errstate(all="ignore"):
        expected = f(**ARRAYS, out=np.zeros(2))
    assert run(parsed, {**ARRAYS, "out": np.zeros(2)}) == expected


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("array", ["x32", "x64"])
def test_each_function_gives_what_python_gives(name, array):
    """Every function that loops know is within 4 units of CPython's answer, of either type of floats."""
    spelled = name.replace("numpy.", "np.")
    shift = " + 1" if name.endswith(("acosh", "arccosh")) else ""
    arguments = ", ".join([f"{array}[i]{shift}", f"{array}[0]"][: FUNCTIONS[name]])
    part = ".real" if name in ("complex", "cmath.exp", "cmath.sqrt") else ""
    f = loop(f"out[i] = {spelled}({arguments}){part}")
    given = {**ARRAYS, "out": np.zeros(2)}
    expected = copy_of(given)
    with np.errstate(all="ignore"):
        if name == "math.trunc" and array == "x32":
            pytest.skip("NumPy's float32 has no __trunc__")
        f(**expected)
        run(parse(FunctionSource.of(f), NestClauses()), given)
    dtype = np.float32 if array == "x32" and name.startswith("numpy.") else np.float64
    compare(given["out"].astype(dtype), expected["out"].astype(dtype), name, exact=False)
