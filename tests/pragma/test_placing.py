"""Errors of directive strings point at the characters of the file, or of the string where these are not the same."""

from __future__ import annotations

import ast
import pickle
import traceback

import pytest

from offload.errors import PragmaError, UnsupportedPragmaError
from offload.pragma.placing import at_node, of_literal, of_string
from offload.pragma.syntax import Span
from offload.texts import FunctionText


def text_of(source):
    """Return the text of the first function of a source."""
    found = next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef))
    return FunctionText("program.py", source, found)


def literal_of(source, language="omp"):
    """Return the directive of the first call of `omp` or `acc` in a source."""
    text = text_of(source)
    calls = [node for node in ast.walk(text.definition) if isinstance(node, ast.Call)]
    call = next(node for node in calls if isinstance(node.func, ast.Name) and node.func.id == language)
    return of_literal(call, language, text)


def error_of(source, language="omp"):
    with pytest.raises(PragmaError) as caught:
        literal_of(source, language).parsed()
    return caught.value


def token_of(error):
    return error.text[error.offset - 1 : error.end_offset - 1]


IN_FILE = [
    ('def f():\n    omp("taskwait dpend(in: x)")\n', 2, 19, "dpend"),
    ("def f():\n    omp('taskwait dpend(in: x)')\n", 2, 19, "dpend"),
    ('def f():\n    omp(r"taskwait dpend(in: x)")\n', 2, 20, "dpend"),
    ('def f():\n    omp(u"taskwait dpend(in: x)")\n', 2, 20, "dpend"),
    ('def f():\n    omp(R"""taskwait dpend(in: x)""")\n', 2, 22, "dpend"),
    ("def f():\n    omp(r\"taskwait depend(in: x[r'\\d']) dpend(in: x)\")\n", 2, 41, "dpend"),
    ('def f():\n    omp("""taskwait\n  dpend(in: x)\n""")\n', 3, 3, "dpend"),
    ("def f():\n    omp('''\n\n\ttaskwait\n\tdpend(in: x)\"\"''')\n", 5, 2, "dpend"),
    ('def f():\n    omp(\n        "taskwait dpend(in: x)"\n    )\n', 3, 19, "dpend"),
    ('def f():\n    omp(("taskwait dpend(in: x)"))\n', 2, 20, "dpend"),
    ('def f():\n\tä = "é"; omp("taskwait dpend(in: x)")\n', 2, 25, "dpend"),
    ('def f():\n    omp("task depend(in: ü, é) dpend(in: x)")\n', 2, 32, "dpend"),
    ('def f():\n    x = "\u2028\x1c"; omp("""\n\x0c taskwait dpend(in: x)""")\n', 3, 12, "dpend"),
    ('class A:\n  if B:\n    def f(self):\n      with omp("tsk"): pass\n', 4, 17, "tsk"),
    ('def f():\n    omp("")\n', 2, 10, ""),
    ('def f():\n    omp("""\n""")\n', 3, 1, ""),
    ('def f():\n    omp("(x)")\n', 2, 10, "("),
]


@pytest.mark.parametrize(("source", "line", "offset", "token"), IN_FILE)
def test_a_plain_literal(source, line, offset, token):
    """An error in a literal without escapes has the file, and the line, column and text of the token there."""
    error = error_of(source)
    assert (error.filename, error.lineno, error.end_lineno) == ("program.py", line, line)
    assert error.text == source.split("\n")[line - 1]
    assert token_of(error) == token
    if token:
        assert error.offset == offset


@pytest.mark.parametrize(
    ("literal", "line", "offset", "text"),
    [
        (r'"taskwait\tdpend(in: x)"', 1, 10, "taskwait\tdpend(in: x)"),
        (r'"taskwait\n dpend(in: x)"', 2, 2, " dpend(in: x)"),
        (r'"taskwait \u0064pend(in: x)"', 1, 10, "taskwait dpend(in: x)"),
        ('"taskwait \\\n dpend(in: x)"', 1, 11, "taskwait  dpend(in: x)"),
        ('"taskwait" " dpend(in: x)"', 1, 10, "taskwait dpend(in: x)"),
        ('"taskwait"\n        r" dpend(in: x)"', 1, 10, "taskwait dpend(in: x)"),
        ('"" "taskwait dpend(in: x)"', 1, 10, "taskwait dpend(in: x)"),
        ('"""taskwait\ndpend(in: x)\\n"""', 2, 1, "dpend(in: x)"),
    ],
)
def test_a_literal_whose_characters_are_not_those_of_the_file(literal, line, offset, text):
    """With escapes, or with several literals, positions count in the string."""
    error = error_of(f"def f():\n    omp({literal})\n")
    assert (error.filename, error.lineno, error.text) == ("<directive>", line, text)
    assert (error.offset, error.end_lineno, token_of(error)) == (offset, line, "dpend")


def test_a_string_of_a_call():
    """A string that `omp` received has positions in the string."""
    with pytest.raises(PragmaError) as caught:
        of_string("task\n depend(int: x)", "omp").parsed()
    error = caught.value
    assert (error.filename, error.lineno, error.offset, token_of(error)) == ("<directive>", 2, 9, "int")


def test_a_right_literal_is_parsed():
    """A right string gives the directive."""
    where = literal_of('def f():\n\n    acc("""parallel\n  copy(x)""")\n', "acc")
    assert (where.language, where.file, where.line) == ("acc", "program.py", 3)
    directive = where.parsed()
    assert (directive.name, [clause.name for clause in directive.clauses]) == ("parallel", ["copy"])


@pytest.mark.parametrize(("string", "kind"), [("threadprivate(x)", UnsupportedPragmaError), ("tsk", PragmaError)])
def test_the_error_is_of_the_same_class(string, kind):
    """The class is kept; the error has neither cause nor context, can be pickled, and its traceback is short."""
    error = error_of(f'def f():\n    omp("{string}")\n')
    assert type(error) is kind
    assert error.__cause__ is error.__context__ is None
    assert len(traceback.extract_tb(error.__traceback__)) == 2
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.args, vars(again)) == (kind, error.args, vars(error))
    assert (again.lineno, again.offset, again.end_offset, again.text) == (2, 10, error.end_offset, error.text)


def test_python_shows_the_line_with_carets():
    """`traceback` prints the file's line with carets under the token."""
    error = error_of('def f():\n    with omp("task depend(int: ä)"): pass\n')
    shown = traceback.format_exception_only(error)
    assert shown[0] == '  File "program.py", line 2\n'
    assert shown[1:3] == ['    with omp("task depend(int: ä)"): pass\n', "                          ^^^\n"]


SOURCE = 'def f():\n    with omp("""target\n  enter data\n  map(to: x)"""): pass\n'


def test_a_refusal():
    """A refusal is at some characters, or at the words of the directive; of several lines, the first counts."""
    where = literal_of(SOURCE)
    error = where.refusal("it is wrong")
    assert (error.msg, error.filename, error.lineno, error.end_lineno) == ("it is wrong", "program.py", 2, 2)
    assert token_of(error) == "target"
    begin = where.text.index("map")
    error = where.refusal("no", Span(begin, begin + 3), is_unsupported=True)
    assert type(error) is UnsupportedPragmaError
    assert (error.lineno, error.offset, token_of(error)) == (4, 3, "map")


@pytest.mark.parametrize(
    ("string", "token"), [("  tsk nowait ", "tsk nowait"), (" ", ""), ("task nowai", "task nowai")]
)
def test_a_refusal_of_a_wrong_string(string, token):
    """A string that is no directive is refused as a whole."""
    assert token_of(literal_of(f'def f():\n    omp("{string}")\n').refusal("no")) == token


@pytest.mark.parametrize(
    ("call", "token"),
    [
        ('omp(f"task {x}")', 'f"task {x}"'),
        ("omp(text)", "text"),
        ("omp(3)", "3"),
        ('omp(b"task")', 'b"task"'),
        ('omp("task" + x)', '"task" + x'),
        ("omp(*x)", "*x"),
        ("omp()", "omp()"),
        ('omp("task", x)', "x"),
        ('omp("task", ü=1)', "ü=1"),
        ('omp(text="task")', 'text="task"'),
        ('omp("é" if ä else "b")', '"é" if ä else "b"'),
    ],
)
def test_a_call_without_a_literal(call, token):
    """A call that does not have one literal string is refused at its argument."""
    source = f"def f():\n    é = {call}\n"
    with pytest.raises(PragmaError, match="literal string") as caught:
        literal_of(source)
    error = caught.value
    assert (error.filename, error.lineno, error.offset) == ("program.py", 2, source.split("\n")[1].rindex(token) + 1)
    assert token_of(error) == token


def test_an_error_at_a_node():
    """An error at Python code marks the node; of several lines, the first one to its end."""
    text = text_of("def f():\n    for ä in b: return ä, (  # é\n        2)   \n    while c:  \n        pass\n")
    loop, other = text.definition.body
    for node, line, token in (
        (loop.body[0], 2, "return ä, (  # é"),
        (loop.body[0].value.elts[0], 2, "ä"),
        (other, 4, "while c:"),
        (other.test, 4, "c"),
    ):
        error = at_node(node, "no", text)
        assert (type(error), error.filename, error.lineno, token_of(error)) == (PragmaError, "program.py", line, token)
    error = at_node(other, "no", text, is_unsupported=True)
    assert type(error) is UnsupportedPragmaError
