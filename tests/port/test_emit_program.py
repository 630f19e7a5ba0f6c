"""The tree of a program: which objects of modules its names stand for, and which hold streams and events."""

import ast
import textwrap

import pytest

from offload.port.program import MIXED, NONE, OTHER, SYNC, ProgramText, SeqOf, TupleOf, join

HEAD = "import cupy as cp\nfrom cupy import cuda\nfrom cupy.cuda import Stream\n"


def program(text):
    return ProgramText("program.py", HEAD + textwrap.dedent(text))


def kind_of(text, name):
    """Return the kind of a variable of a program's module."""
    read = program(text)
    return read.variable(read.inner[read.tree], name)


@pytest.mark.parametrize(
    "text",
    [
        "x = cp.cuda.Stream()",
        "x = cuda.Event(disable_timing=True)",
        "x = Stream.null",
        "S = cp.cuda.Stream\nx = S()",
        "x, y = cp.cuda.Stream(), cp.empty(3)",
        "y, x = (cp.cuda.Stream() for _ in range(2))",
        "x = [cp.cuda.Stream() for _ in range(3)]",
        "y = [cp.cuda.Stream() for _ in range(3)]\nx = y[1]",
        "y = [Stream()]\nfor x in y: pass",
        "y = [Stream()]\nfor i, (x, z) in enumerate(zip(y, [1])): pass",
        "x = {'in': Stream(), 'out': Stream()}",
        "y = {'in': Stream()}\nx = y['in']",
        "x = []\nx.append(cp.cuda.Event())",
        "x = [None] * 3\nx[0] = Stream().record()",
        "x = None\nx = Stream().record()",
        "def make(n): return [Stream() for _ in range(n)]\nx = make(3)",
        "def make(): return cp.empty(3), Stream()\ny, x = make()",
        "from itertools import cycle\nx = next(cycle([Stream()]))",
        "from collections import deque\nx = deque()\nx.append(Stream().record())",
        "with Stream() as x: pass",
        "x = cp.cuda.Device(0)",
        "x = Stream() if cp else Stream.null",
        "y = [(cp.empty(3), Stream())]\nz, x = y[0]",
    ],
)
def test_a_variable_that_only_holds_streams_and_events_is_known(text):
    """Streams, events, and containers of nothing else are `SYNC`, however the program binds them."""
    assert kind_of(text, "x") == SYNC


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x = cp.empty(3)", OTHER),
        ("x = None", NONE),
        ("x = Stream()\nx = cp.empty(3)", MIXED),
        ("x = {'a': Stream(), 'b': 3}", MIXED),
        ("x = Stream(), 3", TupleOf((SYNC, OTHER))),
        ("x = [(Stream(), 3)]", TupleOf((TupleOf((SYNC, OTHER)),))),
        ("x = [(Stream(), k) for k in range(3)]", SeqOf(TupleOf((SYNC, OTHER)))),
        ("x = len([Stream()])", OTHER),
        ("y = x\nx = y", NONE),
    ],
)
def test_other_values_are_told_apart(text, kind):
    """A tuple is taken apart; a variable that holds a stream and something else is `MIXED`."""
    assert kind_of(text, "x") == kind


def test_parameters_have_the_kinds_of_the_arguments():
    """A parameter is `SYNC` if each call in the file passes a stream, by position or by name."""
    read = program("def f(s, n, *, e=None): pass\nf(Stream(), 3)\nf(s=Stream(), n=4, e=cp.cuda.Event())\n")
    (function,) = (node for node in read.inner if isinstance(node, ast.FunctionDef))
    kinds = {name: read.variable(read.inner[function], name) for name in ("s", "n", "e")}
    assert kinds == {"s": SYNC, "n": OTHER, "e": SYNC}


@pytest.mark.parametrize("call", ["", "f()", "f(Stream())"])
def test_a_default_counts_as_an_argument(call):
    """A parameter that is None by default and holds a stream then is `SYNC`, whether calls pass a stream or not."""
    read = program(f"def f(s=None):\n    s = s or Stream()\n{call}\n")
    (function,) = (node for node in read.inner if isinstance(node, ast.FunctionDef))
    assert read.variable(read.inner[function], "s") == SYNC


def test_attributes_and_fields_have_kinds():
    """Attributes of objects are known by their names, also those that a dataclass fills."""
    read = program(
        """
        from dataclasses import dataclass

        @dataclass
        class Slot:
            data: object
            ready: object

        class Ring:
            def __init__(self):
                self.load = Stream()

        slot = Slot(cp.empty(3), cp.cuda.Event())
        """
    )
    assert (read.attribute("load"), read.attribute("ready"), read.attribute("data")) == (SYNC, SYNC, OTHER)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cp.cuda.Stream", "cupy.cuda.Stream"),
        ("cuda.Event", "cupy.cuda.Event"),
        ("Stream.null", "cupy.cuda.Stream.null"),
        ("range", "builtins.range"),
        ("local.x", None),
    ],
)
def test_names_of_modules_are_resolved(text, name):
    """An expression that names an object of a module has that object's full name."""
    read = program(f"local = 3\n{text}\n")
    (statement,) = (node for node in read.tree.body if isinstance(node, ast.Expr))
    assert read.dotted(statement.value) == name


def test_join_keeps_containers_apart():
    """None joins with everything; tuples of one length join element by element."""
    assert join([NONE, SYNC]) == SYNC
    assert join([SYNC, OTHER]) == MIXED
    assert join([TupleOf((SYNC, NONE)), TupleOf((SYNC, OTHER))]) == TupleOf((SYNC, OTHER))
    assert join([]) == NONE


def test_segments_count_characters():
    """The text of a node after letters of several bytes is right."""
    read = ProgramText("program.py", "x = 'äöü'; y = x  # ß\n")
    assert [read.segment(node) for node in read.tree.body] == ["x = 'äöü'", "y = x"]
