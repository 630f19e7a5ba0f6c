"""Nests as loop functions: their trees, the names that they take, and the errors of their directives."""

from __future__ import annotations

import ast
import textwrap

import pytest

from offload.errors import PragmaError, UnsupportedError
from offload.pragma import placing
from offload.pragma.loops import PLAIN, Case, NestScope, loop_in, nest_of
from offload.texts import FunctionText


def nest_in(text, known="x y n s t work", free="", fixed="doubled math range max min abs", line=None):
    """Return the nest under the first directive of a function's text."""
    text = textwrap.dedent(text).lstrip("\n")
    definition = ast.parse(text).body[0]
    whole = FunctionText("program.py", text, definition)

    def met(call):
        if isinstance(call.func, ast.Name) and call.func.id in ("omp", "acc"):
            return placing.of_literal(call, call.func.id, whole)
        return None

    block = next(node for node in definition.body if isinstance(node, ast.With))
    where = met(block.items[0].context_expr)
    scope = NestScope(frozenset(known.split()), frozenset(free.split()), fixed.split().__contains__, met)
    return nest_of(loop_in(block, where), where.parsed(), where, whole, scope)


def nest_of_body(directive, body, **more):
    """Return the nest of a directive around ``for i in range(n)`` with these statements."""
    lines = textwrap.indent(textwrap.dedent(body).strip(), " " * 12)
    language, words = directive.split(": ", 1)
    return nest_in(f'def f(x, y, n):\n    with {language}("{words}"):\n        for i in range(n):\n{lines}\n', **more)


def token(error):
    """Return the characters that an error points at."""
    return error.text[error.offset - 1 : error.end_offset - 1]


# -- names -----------------------------------------------------------------------------------------------


def test_parameters_are_the_variables_that_iterations_read():
    """Names of the module that loops know stay free; variables that an iteration assigns first are its own."""
    nest = nest_of_body("omp: parallel for", "t = doubled(x[i])\ny[i] = math.sqrt(t) * n")
    assert nest.parameters == ("n", "x", "y")
    assert nest.results == ()
    assert (nest.kind, nest.name) == ("parallel_loop", "f.<omp parallel for, line 2>")


@pytest.mark.parametrize(
    ("body", "is_read_first"),
    [
        ("t = x[i]\ny[i] = t", False),
        ("if x[i] > 0:\n    t = 1\nelse:\n    t = 2\ny[i] = t", False),
        ("if x[i] > 0:\n    t = 1\ny[i] = t", True),
        ("for j in range(3):\n    t = j\ny[i] = t", True),
        ("for j in range(3):\n    t = j\n    y[j] = t", False),
        ("t += x[i]", True),
        ("y[i] = t\nt = x[i]", True),
        ("(t, s) = x[i], 1\ny[i] = t + s", False),
        ("if x[i] > 0:\n    continue\nelse:\n    t = 1\ny[i] = t", False),
        ("t: float = x[i]\ny[i] = t", False),
        ("while x[i] > 0:\n    t = 1\ny[i] = t", True),
        ("x[t] = 1\nt = 2", True),
    ],
)
def test_a_scalar_that_may_be_read_first_is_a_parameter(body, is_read_first):
    """The flow through an iteration tells whether a scalar is the iteration's own."""
    assert ("t" in nest_of_body("omp: parallel for", body).parameters) is is_read_first


def test_arrays_of_the_module_are_parameters():
    """A name from outside the function is a parameter if the nest indexes it, or if loops do not know its value."""
    nest = nest_of_body(
        "omp: target loop",
        "y[i] = table[i] * WEIGHT + doubled(other, i) + len(third) + fourth.shape[0]",
        fixed="WEIGHT doubled range len fourth",
    )
    assert nest.parameters == ("n", "y", "table", "other", "third", "fourth")


def test_closures():
    """Numbers of enclosing functions stay free, and arrays are parameters."""
    nest = nest_of_body("omp: target loop", "y[i] = scale * weights[i] + helper(i)", known="y n scale weights helper",
                        free="scale weights helper", fixed="scale helper range")  # fmt: skip
    assert nest.parameters == ("n", "y", "weights")


def test_results():
    """Reduction and lastprivate variables are results; a lastprivate variable is no argument of the loop."""
    nest = nest_of_body("omp: target loop reduction(+: s) lastprivate(t, i) private(j)", "t = x[i]\ns += t")
    assert nest.results == ("s", "t", "i")
    assert nest.arguments == ("n", "x", "s")
    assert nest.parameters == ("n", "x", "s", "t", "i")
    assert nest.words == {"reduction": {"+": ["s"]}, "lastprivate": ["t", "last_i"]}
    assert ast.unparse(nest.definition) == (
        "def f(n, x, s):\n    for i in range(n):\n        last_i = i\n        t = x[i]\n        s += t\n"
        "    return (s, t, last_i)"
    )


def test_forms():
    """An array among the results is not returned, and one without dimensions is indexed where it is a number."""
    nest = nest_of_body("omp: target loop reduction(max: s)", "s = max(s, n * helper(x[i]))", known="s n x helper")
    case = Case(frozenset({"s"}), frozenset({"s", "n"}), frozenset({"helper"}))
    assert ast.unparse(nest.form(case)) == (
        "def f(n, s, x):\n    for i in range(n[()]):\n        s[()] = max(s[()], n[()] * helper(x[i]))"
    )
    assert ast.unparse(nest.form(PLAIN)) == ast.unparse(nest.definition)


def test_lines():
    """The nodes of the loop function have the lines of the program."""
    nest = nest_of_body("omp: parallel for", 'with omp("atomic"):\n    y[0] += x[i]\nt = y[i]')
    lines = {
        ast.unparse(node).split("(")[0]: node.lineno for node in ast.walk(nest.definition) if hasattr(node, "lineno")
    }
    assert lines["def f"] == 2
    assert lines["<offload>.atomic.add"] == 5
    assert lines["t = y[i]"] == 6


# -- directives inside -------------------------------------------------------------------------------------

INSIDE = {
    "omp: loop": "range(3)",
    "omp: loop bind(parallel) reduction(+: s)": "<offload>.acc.loop(range(3), reduction={'+': ('s',)}, vector=True)",
    "omp: for": "<offload>.acc.loop(range(3), vector=True)",
    "omp: parallel for simd collapse(1)": "<offload>.acc.loop(range(3), collapse=1, vector=True)",
    "omp: simd private(t)": "<offload>.acc.loop(range(3), private=('t',))",
    "omp: loop bind(teams)": "<offload>.acc.loop(range(3), gang=True)",
    "omp: loop bind(thread)": "<offload>.acc.loop(range(3), seq=True)",
    "acc: loop gang worker(4) vector(length: 64)": "<offload>.acc.loop(range(3), gang=True, worker=4, vector=64)",
    "acc: loop independent tile(2)": "<offload>.acc.loop(range(3), tile=(2,), independent=True)",
    "acc: loop seq": "<offload>.acc.loop(range(3), seq=True)",
}


@pytest.mark.parametrize("directive", INSIDE)
def test_inner_loops(directive):
    """A directive around a loop in a nest becomes clauses of the range."""
    language, words = directive.split(": ", 1)
    nest = nest_of_body("acc: parallel loop", f'with {language}("{words}"):\n    for j in range(3):\n        x[i] = j')
    assert ast.unparse(nest.loop.body[0].iter) == INSIDE[directive]


ATOMIC = {
    ("", "h[i] += 1"): "<offload>.atomic.add(h, i, 1)",
    ("update", "h[i] = h[i] - n"): "<offload>.atomic.sub(h, i, n)",
    ("", "h[i, 2] ^= n"): "<offload>.atomic.xor(h, (i, 2), n)",
    ("", "h[i][2] *= n"): "<offload>.atomic.*(h[i], 2, n)",
    ("", "if x[i] < h[0]:\n        h[0] = x[i]"): "<offload>.atomic.min(h, 0, x[i])",
    ("write", "h[i] = n"): "<offload>.atomic.exchange(h, i, n)",
    ("read", "t = h[i]"): "t = h[i]",
    ("capture", "t = h[0]\n    h[0] |= n"): "t = <offload>.atomic.or_(h, 0, n)",
    ("capture", "h[0] += n\n    t = h[0]"): "t = <offload>.atomic.add(h, 0, n) + n",
    ("capture", "h[0] = max(h[0], n)\n    t = h[0]"): "t = max(<offload>.atomic.max(h, 0, n), n)",
    ("capture", "t, h[0] = h[0], n"): "t = <offload>.atomic.exchange(h, 0, n)",
    ("capture seq_cst", "t, h[0] = h[0], h[0] + 1"): "t = <offload>.atomic.add(h, 0, 1)",
}


@pytest.mark.parametrize(("clauses", "body"), ATOMIC)
def test_atomic_statements(clauses, body):
    """A statement under `atomic` becomes one atomic operation."""
    nest = nest_of_body("omp: parallel for", f'with omp("atomic {clauses}"):\n    {body}', known="h x n t")
    assert ast.unparse(nest.loop.body[0]) == ATOMIC[clauses, body]


def test_a_cache_hint():
    """`cache` in a nest is a clause of its construct."""
    nest = nest_of_body("acc: parallel loop", 'acc("cache(x[i:2], y)")\nx[i] = y[i]')
    assert nest.words == {"cache": ["x[i:2]", "y"]}


# -- errors ------------------------------------------------------------------------------------------------

LOOPS = {
    "while n:\n            n -= 1": "`while`",
    "for i in range(n):\n            pass\n        n = 1": "2 statements",
    "for i in x:\n            pass": "another `for`",
    "for i, j in range(n):\n            pass": "another `for`",
    "for i in range(n):\n            pass\n        else:\n            pass": "`else`",
    "n = 1": "another statement",
}


@pytest.mark.parametrize("body", LOOPS)
def test_the_block_of_a_directive_is_one_loop(body):
    """Around anything but one ``for … in range`` a loop directive is an error at its words."""
    with pytest.raises(PragmaError, match="one `for … in range") as caught:
        nest_in(f'def f(x, n):\n    with omp("target teams loop"):\n        {body}\n')
    assert LOOPS[body] in caught.value.msg
    assert (token(caught.value), caught.value.lineno) == ("target teams loop", 2)


WRONG = {
    ("omp: parallel for collapse(2)", "x[i] = 0"): "parallel for",
    ("omp: parallel for collapse(2)", "for j in range(3):\n    x[i] = 0\ny[i] = 0"): "parallel for",
    ("omp: parallel for collapse(n)", "x[i] = 0"): "n",
    ("acc: parallel loop tile(2, 2)", "x[i] = 0"): "parallel loop",
    ("omp: parallel for", 'with omp("loop collapse(2)"):\n    for j in range(2):\n        x[i] = 0'): "loop",
    ("omp: parallel for", 'with omp("loop"):\n    x[i] = 0'): "loop",
    ("omp: parallel for", 'with omp("task"):\n    x[i] = 0'): "task",
    ("omp: parallel for", 'with omp("critical"):\n    x[i] += 0'): "critical",
    ("omp: parallel for", 'omp("taskwait")'): "taskwait",
    ("omp: parallel for", 'omp("atomic")'): "atomic",
    ("omp: parallel for", 'with omp("atomic"):\n    x[i] = 0'): "atomic",
    ("omp: parallel for", 'with omp("atomic"):\n    x[i] /= 2'): "atomic",
    ("omp: parallel for", 'with omp("atomic"):\n    x[i] += 2\n    y[i] += 1'): "atomic",
    ("omp: parallel for", 'with omp("atomic write"):\n    t = 0'): "atomic",
    ("omp: parallel for", 'with omp("atomic capture"):\n    t = x[i]'): "atomic",
    ("omp: parallel for", 'with omp("atomic capture"):\n    t = x[i]\n    x[0] += 1'): "atomic",
    ("omp: parallel for", 'with omp("atomic"):\n    s += 2\nwith omp("atomic"):\n    s *= 2'): "atomic",
    ("omp: target loop map(tofrom: x, t)", "t = x[i]"): "t",
    ("omp: parallel for shared(t)", "t = x[i]"): "t",
    ("acc: parallel loop copyout(t)", "t = x[i]"): "t",
    ("omp: parallel for default(none) shared(n)", "x[i] = n"): "default(none)",
}


@pytest.mark.parametrize(("directive", "body"), WRONG)
def test_misuse(directive, body):
    """Misuse of a nest, or of a directive in it, is an error at the directive or the token."""
    with pytest.raises(PragmaError) as caught:
        nest_of_body(directive, body)
    assert token(caught.value) == WRONG[directive, body]


def test_a_variable_of_outside_needs_a_clause():
    """A global variable that each iteration assigns must be in a clause."""
    text = 'def f(n):\n    global last\n    with omp("for{}"):\n        for i in range(n):\n            last = i\n'
    with pytest.raises(PragmaError, match="last"):
        nest_in(text.format(""), known="n last")
    assert nest_in(text.format(" lastprivate(last)"), known="n last").results == ("last",)


def test_declared_reductions_are_not_supported():
    """A reduction by a declared operator is an `UnsupportedError` at the operator."""
    with pytest.raises(UnsupportedError) as caught:
        nest_of_body("omp: parallel for reduction(mine: s)", "s = mine(s, x[i])")
    assert token(caught.value) == "mine"


def test_defaults():
    """`default(firstprivate)` and `default(private)` add the names in no clause."""
    nest = nest_of_body("omp: parallel for default(firstprivate) shared(y)", "y[i] = n * x[i]")
    assert nest.words == {"firstprivate": ["n", "x"]}
    assert nest_of_body("omp: parallel for default(none) shared(n, x, y)", "t = x[i]\ny[i] = t + n").words == {}


def test_members_are_arguments_under_names_of_their_own():
    """Members of variables become parameters; attributes of arrays and numbers, methods and modules do not."""
    nest = nest_of_body(
        "omp: parallel for",
        "y[i] = p.x[i] * p.q.size + n.real + math.pi + t.conjugate() + p_x",
        known="y p n t p_x",
    )
    assert nest.members == {"p_x_": ("p", "x"), "p_q": ("p", "q")}
    assert nest.parameters == ("n", "y", "p", "t", "p_x")
    assert nest.arguments == ("n", "y", "p_x_", "p_q", "t", "p_x")
