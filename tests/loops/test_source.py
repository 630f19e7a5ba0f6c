"""The text of a function, and what the names in it stand for."""

import importlib.util
import linecache
import math as mathematics
import sys
from functools import partial
from math import sin as sine
from types import FunctionType

import numpy as np
import pytest

import offload as omp
from offload import acc as openacc
from offload.errors import LoopError
from offload.loops.front.source import Frozen, FunctionSource, KnownName, Plain, Unfit, attribute, received

COUNT = 3
FLAG = True
RATIO = 0.5
NUMPY = np.float32(0.5)
ARRAY = np.zeros(())
ROOT = np.sqrt


def plain(a):
    return a + COUNT


def decorated(function):
    return function


@decorated
@decorated
def with_decorators(a):
    """Have a docstring with lines
    at the margin.
    """
    return plain(a)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes a module and imports it."""

    def imported(text, name="program"):
        file = tmp_path / f"{name}.py"
        file.write_text(text)
        linecache.checkcache(str(file))
        spec = importlib.util.spec_from_file_location(name, file)
        made = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, made)
        spec.loader.exec_module(made)
        return made, file

    return imported


def test_the_definition_has_the_lines_of_the_file():
    """The line is that of ``def``, below the decorators, and a nested function needs no dedenting."""

    def nested(a):
        return a

    for function, offset in ((with_decorators, 2), (nested, 0), (plain, 0)):
        source = FunctionSource.of(function)
        assert source.place.line == function.__code__.co_firstlineno + offset
        assert source.file == __file__
        assert source.definition.name == function.__name__


def test_names_of_the_text():
    """Names are told apart: parameters, what is assigned, what comes from outside."""

    def f(a, b=1, *, c):
        for i in range(a):
            x = COUNT + b + i + c
        return x

    source = FunctionSource.of(f)
    assert [one.arg for one in source.parameters] == ["a", "b", "c"]
    assert source.assigned == {"i", "x"}
    assert source.free == ("COUNT", "range")
    assert source.identifiers == {"a", "b", "c", "i", "x", "COUNT", "range"}


def test_meanings():
    """Scalars are frozen, NumPy's with their type; libraries' functions are known; the rest is unfit."""
    inner = 7

    def f():
        return inner, COUNT, FLAG, RATIO, NUMPY, ARRAY, np, mathematics, sine, omp, openacc, plain, sys, range, ROOT

    meaning = FunctionSource.of(f).meaning
    assert meaning("inner") == Frozen(7)
    assert meaning("COUNT") == Frozen(3)
    assert meaning("FLAG") == Frozen(value=True)
    assert meaning("RATIO") == Frozen(0.5)
    assert meaning("NUMPY") == Frozen(0.5, "float32")
    assert meaning("ARRAY") == Unfit("of type ndarray")
    assert meaning("np") == KnownName("numpy")
    assert meaning("mathematics") == KnownName("math")
    assert meaning("sine") == KnownName("math.sin")
    assert meaning("ROOT") == KnownName("numpy.sqrt")
    assert meaning("omp") == KnownName("offload")
    assert meaning("openacc") == KnownName("offload.acc")
    assert meaning("plain") == Plain(plain)
    assert meaning("sys") == Unfit("the module sys")
    assert meaning("range") == KnownName("range")
    assert meaning("nothing") is None


def test_names_of_modules():
    """A module's scalars are frozen, its functions and types known by their own names."""
    assert attribute(KnownName("math"), "pi") == Frozen(mathematics.pi)
    assert attribute(KnownName("numpy"), "asin") == KnownName("numpy.arcsin")
    assert attribute(KnownName("numpy"), "float32") == KnownName("numpy.float32")
    assert attribute(KnownName("numpy"), "bool_") == KnownName("numpy.bool")
    assert attribute(KnownName("numpy"), "nothing") is None
    assert attribute(KnownName("offload"), "atomic") == KnownName("offload.atomic")
    assert attribute(KnownName("offload.atomic"), "add") == KnownName("offload.atomic.add")


def test_the_key_follows_what_is_frozen(module):
    """The key changes with a scalar's value or type, with a function that is called, and with what that freezes."""
    made, _ = module(
        "import numpy as np\nA = 1\nB = 0.0\ndef g(x): return x + B\ndef h(x): return x\n"
        "def f(x):\n    return g(x) + A + r(x)\ndef r(x): return f(x)\n"
    )
    key = FunctionSource.of(made.f).key
    keys = [key()]
    assert key() == keys[0]
    for name, value in (("A", 2), ("A", True), ("A", 1.0), ("A", np.int64(1)), ("B", -0.0), ("g", made.h)):
        setattr(made, name, value)
        keys.append(key())
    assert len(set(keys)) == len(keys)
    made.A, made.B = float("nan"), float("nan")
    assert key() == key()


def test_the_key_follows_defaults_and_known_functions(module):
    """The key changes with the default of a function that is called, and where a name stands for another function."""
    made, _ = module(
        "import math\ndef maker(c):\n    def g(x, y=c): return x + y\n    return g\n"
        "g = maker(1)\nroot = math.sqrt\ndef f(x):\n    return root(g(x))\n"
    )
    key = FunctionSource.of(made.f).key
    keys = [key()]
    for name, value in (("g", made.maker(2)), ("root", mathematics.sin)):
        setattr(made, name, value)
        keys.append(key())
    assert len(set(keys)) == len(keys)


def test_closures_are_read_when_they_are_asked_for():
    """A variable of a closure counts as it is now, and is undefined before it has a value."""

    def f():
        return late

    source = FunctionSource.of(f)
    assert source.meaning("late") is None
    late = 4
    assert source.meaning("late") == Frozen(4)


def test_a_file_that_has_changed(module):
    """A function whose file was changed after its import is refused, whatever was changed."""
    text = "import math\nC = 3\ndef f(x):\n    y = math.sin(x) + 0.25\n    return y\n"
    for number, (old, new) in enumerate(
        (("0.25", "0.5"), ("+", "-"), ("sin", "cos"), ("import", "\nimport"), ("f(", "g("))
    ):
        made, file = module(text, f"program{number}")
        file.write_text(text.replace(old, new))
        with pytest.raises(LoopError) as caught:
            FunctionSource.of(made.f)
        assert (caught.value.rule, caught.value.file) == ("source", str(file))
        assert "restart the program" in str(caught.value)


def test_a_file_that_has_changed_elsewhere(module):
    """A change of another function does no harm, as long as the lines stay."""
    text = "def f(x):\n    return x\ndef g(x):\n    return 1\n"
    made, file = module(text)
    file.write_text(text.replace("1", "2"))
    assert FunctionSource.of(made.f).definition.name == "f"
    with pytest.raises(LoopError):
        FunctionSource.of(made.g)


def test_a_message_shows_the_line_after_a_page_break(module):
    """Characters that end lines elsewhere end none of a program."""
    made, _ = module('A = "é\u2028"\n\x0c\ndef f(x):\n    # é\n    return x\n')
    source = FunctionSource.of(made.f)
    error = source.refusal(source.definition.body[0], "return", "no")
    assert error.__notes__[0].endswith("return x\n    ^^^^^^^^")


def test_a_text_that_was_read_stays(module):
    """What was read once is not read again: it was the text of this function."""
    text = "def f(x):\n    return x\n"
    made, file = module(text)
    first = FunctionSource.of(made.f)
    file.write_text("")
    assert FunctionSource.of(made.f).definition is first.definition


def test_a_text_that_was_sent(module):
    """A function of another process, whose file is not here, has the text that came with it, and messages its lines."""
    made, file = module(
        "class Some:\n    def g(x):\n        return x\n\n"
        "def maker(c):\n    # before\n    @staticmethod\n    def f(x):\n"
        "        y = g(x)\n        return y + c\n    return f\ng = Some.g\n"
    )
    function = made.maker(2).__func__
    closure = function.__closure__
    for here in ("<dynamic-code>", "/nowhere/program.py"):  # as cloudpickle names it, since 3.1.3 and before
        names, texts = FunctionSource.of(function).texts()
        assert set(names) == {"g"}
        assert [(text.file, text.lines.count("\n")) for text in texts] == [(str(file), 4), (str(file), 2)]
        codes = [text.code.replace(co_filename=here) for text in texts]
        received(tuple(text._replace(code=code) for text, code in zip(texts, codes, strict=True)))
        function = FunctionType(codes[0], {"g": FunctionType(codes[1], {})}, closure=closure)
        source = FunctionSource.of(function)
        assert (source.file, source.place.line, source.free) == (str(file), 8, ("c", "g"))
        assert source.line_of(source.definition.body[0]) == "y = g(x)"
        assert FunctionSource.of(source.meaning("g").function).place.line == 2


def test_a_code_without_a_file(module):
    """A code that cloudpickle made without a file's name is sought in its module's file, and compared with the text."""
    made, file = module("def maker():\n    def f(x):\n        return x\n    return f\n")
    code = made.maker().__code__.replace(co_filename="<dynamic-code>", co_qualname="sent")
    source = FunctionSource.of(FunctionType(code, {"__file__": str(file)}))
    assert (source.file, source.place.line) == (str(file), 2)
    other = code.replace(co_name="h")
    for names in ({"__file__": str(file)}, {"__file__": None}, {}):
        with pytest.raises(LoopError, match="needs the source code of this function"):
            FunctionSource.of(FunctionType(other, names))


def test_functions_without_text():
    """What `exec` makes, a lambda and what is no function have no text."""
    names: dict = {}
    exec("def f(x): return x", names)
    for function, word in (
        (names["f"], "exec"),
        (lambda x: x, "def"),
        (partial(plain), "def"),
        (len, "def"),
        (3, "def"),
    ):
        with pytest.raises(LoopError) as caught:
            FunctionSource.of(function)
        assert caught.value.rule == "source"
        assert word in str(caught.value)
