"""Properties of lowering: generated iterations, carried out as IR and by Python, leave the same in memory.

The programs have what makes the order of effects show: functions that change elements and return one, in every place
where an expression stands, tuples, chains, conditions, loops that are left in the midst.
"""

import itertools
import linecache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import FunctionSource
from tests.loops.serial import carried_out
from tests.profiles import examples

PREFIX = """
def takes(m, k):
    m[k % 4] += 1
    return m[k % 4] % 5

def picks(m, k, d=2):
    if m[k % 4] % 2:
        t = d + k
        m[0] += t
        return t, k
    else:
        return k, m[(k + 1) % 4] % 5

def touches(m, k):
    m[k % 4] -= 2

"""
NUMBERS = itertools.count()

VARIABLES = ("x", "y", "z")


def binary(left, operator, right):
    return f"({left} {operator} {right})"


ATOMS = st.sampled_from(["i", "1", "2", *VARIABLES]) | st.sampled_from(VARIABLES).map(lambda name: f"m[{name} % 4]")
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds(binary, inner, st.sampled_from(["+", "-", "*", "//(1 + 2*2) +"]), inner),
        inner.map(lambda k: f"takes(m, {k})"),
        inner.map(lambda k: f"m[{k} % 4]"),
        st.builds(lambda c, a, b: f"({a} if {c} > 1 else {b})", inner, inner, inner),
        st.builds(lambda a, b, c, d: f"(1 if {a} < {b} <= {c} != {d} else 0)", inner, inner, inner, inner),
        st.builds(lambda a, b, c: f"(1 if {a} > 1 and {b} > 2 or not {c} > 0 else 0)", inner, inner, inner),
        st.builds(lambda a, b: f"min({a}, {b})", inner, inner),
    ),
    max_leaves=6,
)
TARGETS = st.sampled_from(VARIABLES) | EXPRESSIONS.map(lambda k: f"m[{k} % 4]")


def indented(lines):
    return ["    " + line for line in lines]


def block(statements):
    return indented([line for statement in statements for line in statement]) or ["    pass"]


def simple():
    return st.one_of(
        st.builds(lambda t, e: [f"{t} = {e} % 50"], TARGETS, EXPRESSIONS),
        st.builds(lambda t, o, e: [f"{t} {o}= {e} % 7"], TARGETS, st.sampled_from("+-"), EXPRESSIONS),
        st.builds(lambda s, t, a, b: [f"{s}, {t} = {a} % 50, {b} % 50"], TARGETS, TARGETS, EXPRESSIONS, EXPRESSIONS),
        st.builds(lambda s, t, e: [f"{s}, {t} = picks(m, {e} % 50)"], TARGETS, TARGETS, EXPRESSIONS),
        st.builds(lambda s, t, a: [f"{s}, {t} = divmod({a} % 50, 7)"], TARGETS, TARGETS, EXPRESSIONS),
        st.builds(lambda s, t, e: [f"{s} = {t} = {e} % 50"], TARGETS, TARGETS, EXPRESSIONS),
        EXPRESSIONS.map(lambda e: [f"touches(m, {e} % 50)"]),
    )


def compound(inner):
    bodies = st.lists(inner, min_size=1, max_size=3)
    leaving = st.sampled_from([[], ["if x > 20: break"], ["if m[1] % 3 == 0: continue"]])
    return st.one_of(
        st.builds(
            lambda c, a, b: [f"if {c} > 1:", *block(a), "else:", *block(b)],
            EXPRESSIONS,
            bodies,
            st.lists(inner, max_size=2),
        ),
        st.builds(
            lambda n, head, body, other: [
                f"for k{len(body)} in range({n} % 4):",
                *indented(head),
                *block(body),
                *(["else:", *block(other)] if other else []),
            ],
            EXPRESSIONS,
            leaving,
            bodies,
            st.lists(inner, max_size=2),
        ),
        st.builds(
            lambda e, body, other: [
                "fuel = 0",
                f"while fuel < 3 and {e} % 3 > 0:",
                "    fuel = fuel + 1",
                "    if m[2] % 5 == 0: break",
                *block(body),
                *(["else:", *block(other)] if other else []),
            ],
            EXPRESSIONS,
            st.lists(simple(), min_size=1, max_size=2),
            st.lists(inner, max_size=2),
        ),
    )


STATEMENTS = st.lists(st.recursive(simple(), compound, max_leaves=6), min_size=1, max_size=5)


@settings(max_examples=examples(60), deadline=None)
@given(STATEMENTS)
def test_lowering_keeps_the_order_of_effects(statements):
    """A generated iteration leaves what Python leaves."""
    body = [line for statement in statements for line in statement]
    text = PREFIX + "\n".join(
        ["def f(m, out):", "    for i in range(3):", *indented(indented(["x = i", "y = 3", "z = 5", *body]))]
    )
    text += "\n        out[i] = x + 100 * y + 10000 * z\n"
    file = f"<program {next(NUMBERS)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict = {}
    exec(compile(text, file, "exec"), names)
    ours, theirs = ({"m": np.arange(1, 5), "out": np.zeros(3, int)} for _ in range(2))
    carried_out(parse(FunctionSource.of(names["f"]), NestClauses()), ours)
    names["f"](**theirs)
    assert {name: array.tolist() for name, array in ours.items()} == {name: a.tolist() for name, a in theirs.items()}
    del linecache.cache[file]
