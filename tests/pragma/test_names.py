"""The names that code uses, and the table that says what a name is in a block: no NumPy, no thread."""

import ast
from textwrap import dedent

import pytest

from offload.pragma.names import (
    RULES,
    BindingKind,
    Meaning,
    NameFacts,
    Scanner,
    free_names,
    meaning_of,
    names_in,
)


def uses_of(text):
    """Return the uses of names in statements."""
    scanner = Scanner()
    scanner.statements(ast.parse(dedent(text)).body)
    return scanner.uses


BINDINGS = {
    "x = 1": BindingKind.PLAIN,
    "a, (x, *b) = y": BindingKind.PLAIN,
    "[*x] = y": BindingKind.PLAIN,
    "x: int = 1": BindingKind.PLAIN,
    "x: int": BindingKind.PLAIN,
    "(x := 1)": BindingKind.PLAIN,
    "del x": BindingKind.PLAIN,
    "f([(x := i) for i in y])": BindingKind.PLAIN,
    "f([[(x := i) for i in j] for j in y])": BindingKind.PLAIN,
    "f(k for k in y if (x := k))": BindingKind.PLAIN,
    "match y:\n  case [x]: pass": BindingKind.PLAIN,
    "match y:\n  case [*x]: pass": BindingKind.PLAIN,
    "match y:\n  case {**x}: pass": BindingKind.PLAIN,
    "match y:\n  case C(x): pass": BindingKind.PLAIN,
    "match y:\n  case [a] as x: pass": BindingKind.AS,
    "x += 1": BindingKind.AUGMENTED,
    "for x in y: pass": BindingKind.LOOP,
    "for a, x in y: pass": BindingKind.LOOP,
    "with y as x: pass": BindingKind.AS,
    "with y as (a, x): pass": BindingKind.AS,
    "try: pass\nexcept E as x: pass": BindingKind.AS,
    "import x": BindingKind.IMPORT,
    "import x.y": BindingKind.IMPORT,
    "import y as x": BindingKind.IMPORT,
    "from y import x": BindingKind.IMPORT,
    "from y import z as x": BindingKind.IMPORT,
    "def x(): pass": BindingKind.DEFINITION,
    "async def x(): pass": BindingKind.DEFINITION,
    "class x: pass": BindingKind.DEFINITION,
    "def f():\n  nonlocal x\n  x = 1": BindingKind.PLAIN,
}


@pytest.mark.parametrize("text", BINDINGS)
def test_bindings(text):
    """Each statement that binds a name is told by its kind."""
    assert uses_of(text)["x"].bindings == {BINDINGS[text]}


LOADS = [
    "x",
    "f(x)",
    "x.a = 1",
    "x[0] = 1",
    "x.a += 1",
    "x[0] += 1",
    "del x[0]",
    "for x.a in y: pass",
    "f'{x:{y}}'",
    "f'{y:{x}}'",
    "[x for i in y]",
    "[i for i in x]",
    "[i for i in y if x]",
    "{i: x for i in y}",
    "lambda a: x",
    "lambda a=x: 0",
    "def f(a=x): pass",
    "def f(*, a=x): pass",
    "def f(a: x): pass",
    "def f() -> x: pass",
    "def f():\n  return x",
    "def f():\n  def g():\n    return x",
    "@x\ndef f(): pass",
    "class C(x): pass",
    "class C(metaclass=x): pass",
    "class C:\n  y = x",
    "class C:\n  def f(self):\n    return x",
    "class C:\n  x = x",
    "class C:\n  x = 1\n  def f(self):\n    return x",
    "match x:\n  case _: pass",
    "match y:\n  case x.A: pass",
    "match y:\n  case x(): pass",
    "try: pass\nexcept x: pass",
    "assert x",
    "raise x",
    "print(*x, **y)",
    "y = (yield x)",
    "[x for x in x]",
    "{x for x in x if x}",
    "{x: x for x in x}",
    "f(x for x in x)",
    "[y for y in [x for x in x]]",
]


@pytest.mark.parametrize("text", LOADS)
def test_loads(text):
    """A name is found wherever it is read, in nested scopes too."""
    use = uses_of(text)["x"]
    assert use.loads
    assert not use.stores


OWN = [
    "[x for x in y]",
    "[x for a, x in y]",
    "[x for x in y for x in x]",
    "{x: x for x in y}",
    "[x for z in y for x in z if x]",
    "lambda x: x",
    "lambda *x: x",
    "lambda **x: x",
    "def f(x): return x",
    "def f(a, /, *, x): return x",
    "def f():\n  x = 1\n  return x",
    "def f():\n  for x in y: pass",
    "def f():\n  import x\n  return x",
    "def f():\n  global x\n  x = 1",
    "class C:\n  x = 1",
]


@pytest.mark.parametrize("text", OWN)
def test_names_of_nested_scopes(text):
    """A nested scope keeps its own names."""
    uses = uses_of(text)
    assert not uses.get("x") or not (uses["x"].loads or uses["x"].stores)


def test_declarations():
    """`global` and `nonlocal` are known, and the names are not the function's."""
    uses = uses_of("global g\nnonlocal n\ng = n = x = 1")
    assert (uses.declared_global, uses.declared_nonlocal) == ({"g"}, {"n"})
    assert uses.bound == {"x"}


def test_places():
    """The first place that binds a name, or that reads it, is known."""
    use = uses_of("f(x)\nx = 1\nx += 1\nx = 2")["x"]
    assert [use.first().lineno, use.loads[0].lineno] == [2, 1]
    assert uses_of("f(x)")["x"].first().lineno == 1


def test_updates():
    """The statements that change a name in place are known if no other statement binds it."""
    assert [one.lineno for one in uses_of("x += 1\nf(x)\nx -= 2")["x"].updates] == [1, 3]
    assert uses_of("x += 1\nx = 2")["x"].updates == []
    assert uses_of("f(x)")["x"].updates == []


def test_nested_uses_are_marked():
    """A name that a nested function uses is told from others."""
    uses = uses_of("def f(): return x\ny")
    assert (uses["x"].is_nested, uses["y"].is_nested) == (True, False)


def test_expressions_and_functions():
    """Names of expressions, and all names of a function."""
    assert set(names_in([ast.parse("a[i] + f(b)", mode="eval").body])) == {"a", "i", "f", "b"}
    (function,) = ast.parse("def f(a, /, b, *c, d, **e):\n  return g(a)").body
    assert free_names(function).bound == {"a", "b", "c", "d", "e"}


# -- the table -----------------------------------------------------------------------------------------
PLAIN, AUGMENTED, LOOP = (frozenset({kind}) for kind in (BindingKind.PLAIN, BindingKind.AUGMENTED, BindingKind.LOOP))

TABLE = [
    ({"clause": "shared", "bindings": PLAIN}, Meaning.SHARED),
    ({"clause": "private", "bindings": PLAIN, "is_read_elsewhere": True}, Meaning.OWN),
    ({"clause": "firstprivate", "bindings": AUGMENTED}, Meaning.COPIED),
    ({"clause": "result", "bindings": PLAIN, "is_read_elsewhere": True}, Meaning.RESULT),
    ({"clause": "result"}, Meaning.DEVICE),
    ({"clause": "data", "bindings": AUGMENTED}, Meaning.DEVICE),
    ({"clause": "reduction", "bindings": AUGMENTED}, Meaning.RESULT),
    ({"is_declared": True, "bindings": PLAIN, "is_read_elsewhere": True}, Meaning.DECLARED),
    ({}, Meaning.CAPTURED),
    ({"is_loaded": True, "is_read_elsewhere": True}, Meaning.CAPTURED),
    ({"bindings": LOOP, "is_read_elsewhere": True}, Meaning.OWN),
    ({"bindings": PLAIN | LOOP, "is_read_elsewhere": True}, Meaning.OWN),
    ({"bindings": PLAIN}, Meaning.OWN),
    ({"bindings": PLAIN, "is_bound_elsewhere": True}, Meaning.OWN),
    ({"bindings": PLAIN, "is_bound_elsewhere": True, "is_loaded": True}, Meaning.CAPTURED),
    ({"bindings": AUGMENTED, "is_loaded": True, "is_read_elsewhere": True}, Meaning.IN_PLACE),
    ({"bindings": PLAIN, "is_read_elsewhere": True}, Meaning.ASKS),
    ({"bindings": PLAIN | AUGMENTED, "is_read_elsewhere": True}, Meaning.ASKS),
    ({"default": "shared", "bindings": PLAIN, "is_read_elsewhere": True}, Meaning.SHARED),
    ({"default": "shared", "bindings": LOOP}, Meaning.OWN),
    ({"default": "shared", "clause": "private"}, Meaning.OWN),
    ({"default": "none"}, Meaning.UNLISTED),
    ({"default": "none", "bindings": LOOP}, Meaning.OWN),
    ({"default": "none", "clause": "shared"}, Meaning.SHARED),
    ({"default": "firstprivate"}, Meaning.COPIED),
    ({"default": "private"}, Meaning.OWN),
    ({"is_shared_elsewhere": True}, Meaning.SAYS_BOTH),
    ({"is_shared_elsewhere": True, "clause": "firstprivate"}, Meaning.COPIED),
]


@pytest.mark.parametrize(("facts", "meaning"), TABLE)
def test_the_first_row_that_fits_decides(facts, meaning):
    """Each row of the reference's table, and the order of rows."""
    assert meaning_of(NameFacts(**facts)) is meaning


def test_every_row_is_reached():
    """No row of the table is hidden by the rows above it."""
    reached = {next(rule.text for rule in RULES if rule.fits(NameFacts(**facts))) for facts, _ in TABLE}
    assert reached == {rule.text for rule in RULES}
