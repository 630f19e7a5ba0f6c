"""The text of a function: where it is found, which definition it is, and the decorators around it."""

from __future__ import annotations

import ast
import copy
import doctest
import importlib.util
import linecache
import re
import subprocess
import sys
from functools import partial, wraps
from types import FunctionType

import pytest

from offload.texts import (
    Decorators,
    TextError,
    columns_of,
    copied,
    decorators_around,
    functions_of,
    marked,
    segment_of,
    text_of,
)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes a module, in an encoding, and imports it."""

    def imported(text, name="program", encoding="utf-8"):
        file = tmp_path / f"{name}.py"
        file.write_bytes(text.encode(encoding))
        spec = importlib.util.spec_from_file_location(name, file)
        made = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, made)
        spec.loader.exec_module(made)
        return made, file

    return imported


def keep(function):
    return function


def logged(function):
    @wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


def line_of(function):
    """Return the text's line that has the definition."""
    found = text_of(function)
    return found.lines[found.definition.lineno - 1]


def test_functions_of_this_file():
    """Methods, coroutines, nested and conditional functions are found, each by its own line."""
    if True:

        def conditional():
            return 1

    async def coroutine():
        return 2

    class Some:
        def method(self):
            def nested():
                return 3

            return nested

    for function, line in (
        (conditional, "        def conditional():"),
        (coroutine, "    async def coroutine():"),
        (Some.method, "        def method(self):"),
        (Some().method(), "            def nested():"),
        (Some.method.__get__(Some()).__func__, "        def method(self):"),
    ):
        found = text_of(function)
        assert found.file == __file__
        assert line_of(function) == line
        assert found.definition.name == function.__name__
    assert isinstance(text_of(coroutine).definition, ast.AsyncFunctionDef)


def test_definitions_of_one_name():
    """Functions of the same name are told apart by their lines."""

    def f():
        return 1

    first = f

    def f():
        return 2

    assert text_of(f).definition.lineno - text_of(first).definition.lineno == 5


def test_a_decorated_function_is_found_while_its_decorators_are_applied():
    """The definition shows all decorators, whether they have been applied or not."""
    seen = []

    def look(function):
        seen.append(text_of(function))
        return function

    @keep
    @look
    @partial(lambda word, function: function, "word")
    def f():
        return 1

    assert [ast.unparse(one)[:7] for one in seen[0].definition.decorator_list] == ["keep", "look", "partial"]
    assert text_of(f).definition is seen[0].definition


@pytest.mark.parametrize(
    ("kind", "reason"), [("lambda", "lambda"), ("partial", "kind"), ("class", "kind"), ("number", "kind")]
)
def test_other_objects(kind, reason):
    """An object that ``def`` did not make is refused."""
    value = {"lambda": lambda: 0, "partial": partial(keep), "class": ast.AST, "number": 3}[kind]
    with pytest.raises(TextError) as caught:
        text_of(value)
    assert caught.value.reason == reason
    assert "`def`" in str(caught.value)


def test_no_text():
    """A function that `exec` made has no text."""
    names: dict = {}
    exec("def f(): return 0", names)
    with pytest.raises(TextError, match="cannot find it") as caught:
        text_of(names["f"])
    assert (caught.value.reason, caught.value.file, caught.value.line) == ("absent", "<string>", 1)


@pytest.mark.parametrize(
    ("old", "new"), [("0.25", "0.5"), ("+", "-"), ("sin", "cos"), ("import", "\nimport"), ("f(", "g("), ("return", "(")]
)
def test_a_text_that_has_changed(module, old, new):
    """A file that does not hold the compiled text any more is refused."""
    text = "import math\nC = 3\ndef f(x):\n    y = math.sin(x) + 0.25\n    return y\n"
    made, file = module(text)
    assert text_of(made.f).text == text
    file.write_text(text.replace(old, new) + "# longer\n")
    with pytest.raises(TextError) as caught:
        text_of(made.f)
    assert (caught.value.reason, caught.value.file, caught.value.line) == ("changed", str(file), 3)


def test_a_file_that_nests_too_deeply(module):
    """A file with an expression that Python's parser cannot make a tree of is refused, with the reason."""
    made, file = module("def f():\n    return 1\n")
    file.write_text(f"def f():\n    return 1{' + 1' * 50_000}\n")
    with pytest.raises(TextError, match="split it into parts") as caught:
        text_of(made.f)
    assert caught.value.reason == "deep"


@pytest.mark.parametrize("text", [f"x = {'-' * 100_000}1\n", "x = '\0'\n", "def f(:\n", ""])
def test_a_file_that_python_cannot_read(module, text):
    """A file that holds no program any more has changed."""
    made, file = module("def f():\n    return 1\n")
    file.write_text(text)
    with pytest.raises(TextError) as caught:
        text_of(made.f)
    assert caught.value.reason in (["absent"] if not text else ["changed", "deep"])


def test_a_file_of_the_module(module):
    """A code that cloudpickle made has no file; the module's file is compared with it."""
    made, file = module("def maker():\n    def f(x):\n        return x\n    return f\n")
    code = made.maker().__code__.replace(co_filename="<dynamic-code>")
    found = text_of(FunctionType(code, {"__file__": str(file)}))
    assert (found.file, found.definition.lineno) == (str(file), 2)
    with pytest.raises(TextError):
        text_of(FunctionType(code.replace(co_name="g"), {"__file__": str(file)}))


@pytest.mark.parametrize(
    ("encoding", "end"),
    [("utf-8", "\n"), ("utf-8", "\r\n"), ("utf-8", "\r"), ("utf-8-sig", "\n"), ("latin-1", "\n"), ("latin-1", "\r\n")],
)
def test_encodings_and_ends_of_lines(module, encoding, end):
    """The text is decoded as Python decodes it, and its lines end at a line feed alone."""
    text = '# coding: latin-1\nÄ = "é"\ndef f(x):\n\treturn "ü", x\n'
    if encoding != "latin-1":
        text = text.replace("# coding: latin-1", "# no word")
    made, _ = module(text.replace("\n", end), encoding=encoding)
    found = text_of(made.f)
    assert found.text == text
    assert found.lines[3] == '\treturn "ü", x'
    assert columns_of(found.definition.body[0].value.elts[1], found.lines[3]) == (13, 14)


def test_page_breaks_and_other_separators(module):
    """Form feeds and characters that end lines elsewhere end none of a program."""
    made, _ = module('A = "é\u2028\x1c"\n\x0c\ndef f(x):\n    # \x0c\n    return "\u2028", x\n')
    found = text_of(made.f)
    statement = found.definition.body[0]
    assert found.lines[statement.lineno - 1] == '    return "\u2028", x'
    assert segment_of(statement.value, found.lines) == '"\u2028", x'


def test_segments_of_several_lines(module):
    """The text of an expression is the file's, also over lines, with non-ASCII before and in it."""
    made, _ = module('def f(x):\n    ä = "é"; y = ("ü",\n  "b\\\n  c"); return y\n')
    value = text_of(made.f).definition.body[1].value
    assert segment_of(value, text_of(made.f).lines) == '("ü",\n  "b\\\n  c")'
    assert columns_of(value, text_of(made.f).lines[1]) == (17, 22)


def test_futures_count(module):
    """A module with `from __future__ import annotations` compiles to other code."""
    made, _ = module(
        "from __future__ import annotations\ndef f(x: int) -> str:\n    def g(y: x): return y\n    return g\n"
    )
    assert text_of(made.f).definition.name == "f"
    assert text_of(made.f(1)).definition.name == "g"


def test_rewritten_assertions():
    """pytest changes the code of a function with asserts; its text is found all the same."""

    def f(x):
        assert x > 0
        return x

    assert line_of(f) == "    def f(x):"
    assert line_of(test_rewritten_assertions) == "def test_rewritten_assertions():"


def test_doctest():
    """An example of doctest has its text."""
    text = ">>> def f():\n...     return 1\n>>> text_of(f).text\n'def f():\\n    return 1\\n'\n"
    test = doctest.DocTestParser().get_doctest(text, {"text_of": text_of}, "d", "d", 0)
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


def test_cells_of_ipython(monkeypatch, tmp_path):
    """A cell of IPython has its text, also one with magics."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))  # else the processes of a run share a file of the history
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    cell = "x = !true\ndef f():\n    return x\n"
    made = shell()
    try:
        made.run_cell(cell, store_history=False)
        assert line_of(made.user_ns["f"]) == "def f():"
    finally:
        made.history_manager.end_session()
        shell.clear_instance()


def run(*arguments, given=None):
    program = [sys.executable, *arguments]
    return subprocess.run(program, input=given, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("way", ["-c", "-i"])
def test_programs_without_a_file(way):
    """`python -c` and the REPL have texts where `inspect.getsource` works."""
    text = (
        "import inspect\nfrom offload.texts import text_of\ndef f():\n    return 1\n\n"
        "try:\n    print(len(inspect.getsource(f)))\nexcept OSError:\n    print('none')\n\n"
        "try:\n    print(text_of(f).definition.name)\nexcept Exception as error:\n    print(error.reason)\n\n"
    )
    done = run("-c", text) if way == "-c" else run("-i", "-q", given=text)
    words = [line for line in re.split(r"[\s>.]+", done.stdout) if line]
    assert words in (["none", "absent"], ["22", "f"], ["23", "f"]), done


def test_decorators_around_the_one_that_is_applied():
    """The line of the calling frame tells which decorator is being applied, also one of several lines."""
    seen = []

    def ours(*_):
        def applied(function):
            line = sys._getframe(1).f_lineno
            seen.append(decorators_around(text_of(function).definition, line))
            return function

        return applied

    @keep
    @ours(
        1,
        2,
    )
    @keep
    @ours()
    def f():
        return 1

    names = [[[ast.unparse(one) for one in part] for part in (found.above, found.below)] for found in seen]
    assert names == [[["keep", "ours(1, 2)", "keep"], []], [["keep"], ["keep", "ours()"]]]
    assert [ast.unparse(found.own) for found in seen] == ["ours()", "ours(1, 2)"]


def test_a_decorator_that_is_called():
    """A call of the decorator elsewhere is above all that are written."""

    @keep
    def f():
        return 1

    node = text_of(f).definition
    assert decorators_around(node, 1) == Decorators(tuple(node.decorator_list), None, ())


def test_functions_of_a_class():
    """A class's own functions are given, also those of static methods, class methods and properties."""

    class Base:
        def inherited(self):
            return 0

    class Some(Base):
        borrowed = keep
        made = logged(keep)

        def method(self):
            return 1

        @staticmethod
        def static():
            return 2

        @classmethod
        def of_class(cls):
            return cls

        @property
        def value(self):
            """Have a text."""
            return 4

        @value.setter
        def value(self, new):
            self.new = new

    found = list(functions_of(Some))
    assert [(name, function.__name__) for name, function, _ in found] == [
        ("method", "method"),
        ("static", "static"),
        ("of_class", "of_class"),
        ("value", "value"),
        ("value", "value"),
    ]

    def replaced(function):
        other = FunctionType(function.__code__, function.__globals__, function.__name__, closure=function.__closure__)
        other.is_new = True
        return other

    for name, function, wrapped in found:
        setattr(Some, name, wrapped(replaced(function)))
    some = Some()
    some.value = 3
    assert (some.method(), Some.static(), Some.of_class(), some.value, some.new) == (1, 2, Some, 4, 3)
    assert all(one.is_new for one in (Some.value.fget, Some.value.fset, vars(Some)["static"].__func__))
    assert Some.value.__doc__ == "Have a text."


def test_a_copy_is_equal_and_shares_no_node():
    """A copy has every node and attribute, and shares no node that has any."""
    node = text_of(test_functions_of_a_class).definition
    made = copied(node)
    assert ast.dump(made, include_attributes=True) == ast.dump(copy.deepcopy(node), include_attributes=True)
    assert not {id(one) for one in ast.walk(node) if vars(one)} & {id(one) for one in ast.walk(made)}


def test_marks():
    """Carets stand under the characters of a line."""
    assert marked("f.py", 3, "    return x", 11, 12) == '  File "f.py", line 3\n    return x\n           ^'
    linecache.clearcache()
