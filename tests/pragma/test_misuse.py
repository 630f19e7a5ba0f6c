"""Misuses of directives: each raises the promised class at the promised token, with nothing changed."""

import linecache
from itertools import count

import numpy as np
import pytest

import offload
from offload.errors import ClauseError, PragmaError, UnsupportedError, UsageError
from offload.pragma import acc, directives, omp

_NUMBERS = count()

HEAD = "@directives\ndef f(x, n):\n"


@pytest.fixture(autouse=True)
def on_sim_1():
    """Give the test a runtime with a simulated device."""
    with offload.Runtime("sim:1") as runtime:
        yield runtime


def made(text):
    """Return the names that a text defines."""
    file = f"<misuse {next(_NUMBERS)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    names = {"omp": omp, "acc": acc, "directives": directives, "np": np, "__name__": "misuse"}
    exec(compile(text, file, "exec"), names)
    return names


def refused(text):
    """Return the error of a text, and its token."""
    with pytest.raises(PragmaError) as caught:
        made(text)
    error = caught.value
    return error, error.text[error.offset - 1 : error.end_offset - 1]


def indented(*lines):
    """Return a function with these lines."""
    return HEAD + "".join(f"    {line}\n" for line in lines)


# The lines of the function, the token, and the number of its line in the function's body, from 1.
WRONG = {
    "return": (["with omp('task'):", "    return 1"], "return 1", 2),
    "return in a branch": (["with omp('target'):", "    if n:", "        return"], "return", 3),
    "break": (["for i in x:", "    with omp('task'):", "        break"], "break", 3),
    "continue": (["while n:", "    with omp('task'):", "        continue"], "continue", 3),
    "break after a loop": (
        ["for i in x:", "    with omp('task'):", "        for j in x: pass", "        else: break"], "break", 4,
    ),
    "break of a taskloop": (["with omp('taskloop'):", "    for i in x:", "        break"], "break", 3),
    "yield": (["with omp('task'):", "    yield 1"], "yield 1", 2),
    "yield from": (["with omp('task'):", "    yield from x"], "yield from x", 2),
    "as": (["with omp('task') as t:", "    pass"], "t", 1),
    "two directives": (["with omp('task'), omp('taskgroup'):", "    pass"], "omp('taskgroup')", 1),
    "another manager": (["with omp('task'), open(x):", "    pass"], "open(x)", 1),
    "a manager before": (["with open(x), omp('task'):", "    pass"], "omp('task')", 1),
    "a block as a statement": (["omp('task')"], "task", 1),
    "a loop as a statement": (["omp('taskloop')"], "taskloop", 1),
    "a number": (["omp(3)"], "3", 1),
    "a name": (["omp(n)"], "n", 1),
    "an f-string": (["omp(f'taskwait{n}')"], "f'taskwait{n}'", 1),
    "an expression": (["omp('task' + 'wait')"], "'task' + 'wait'", 1),
    "bytes": (["omp(b'taskwait')"], "b'taskwait'", 1),
    "nothing": (["omp()"], "omp()", 1),
    "two arguments": (["omp('taskwait', n)"], "n", 1),
    "a keyword": (["omp('taskwait', n=1)"], "n=1", 1),
    "no loop": (["with omp('taskloop'):", "    n"], "taskloop", 1),
    "a loop and more": (["with omp('taskloop'):", "    for i in x: pass", "    n"], "taskloop", 1),
    "a loop with else": (["with omp('taskloop'):", "    for i in x: pass", "    else: n"], "taskloop", 1),
    "a while": (["with omp('taskloop'):", "    while n: pass"], "taskloop", 1),
    "a nest of nothing": (["with omp('target parallel for'):", "    pass"], "target parallel for", 1),
    "an inner loop outside": (["with acc('loop seq'):", "    for i in range(n): pass"], "loop", 1),
    "a hint outside": (["acc('cache(x)')"], "cache", 1),
    "a section outside": (["with omp('section'):", "    pass"], "section", 1),
    "a section in a task": (
        ["with omp('sections'):", "    with omp('task'):", "        with omp('section'):", "            pass"],
        "section", 3,
    ),
    "an assigned name": (["n = 0", "with omp('task'):", "    n = 1", "return n"], "n", 3),
    "a walrus": (["with omp('task'):", "    print(n := 1)", "return n"], "n", 2),
    "a deleted name": (["with omp('task'):", "    del n", "return n"], "n", 2),
    "a tuple": (["with omp('target'):", "    a, n = 1, 2", "return n"], "n", 2),
    "a nested function": (
        ["with omp('task'):", "    def g():", "        nonlocal n", "        n = 1", "    g()", "return n"],
        "def g():", 2,
    ),
    "default(none)": (["with omp('task default(none) shared(x)'):", "    x[0] = n"], "n", 2),
    "shared elsewhere": (
        ["with omp('task shared(n)'):", "    n += 1", "with omp('task'):", "    print(n)"], "n", 4,
    ),
    "a stride": (["with omp('target map(to: x[0:n:2])'):", "    x[0]"], "x[0:n:2]", 1),
    "a wait under a lock": (["with omp('critical'):", "    if n:", "        omp('taskwait')"], "taskwait", 3),
    "a group under a lock": (["with omp('atomic'):", "    with omp('taskgroup'):", "        pass"], "taskgroup", 2),
    "an unsupported directive": (["omp('threadprivate(x)')"], "threadprivate", 1),
    "an error after a wrong name": (["with omp('task'):", "    n = 1", "omp('tsakwait')", "return n"], "n", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_blocks(name):
    """The error is at the promised token of the file."""
    lines, token, number = WRONG[name]
    error, found = refused(indented(*lines))
    assert found == token
    assert error.lineno == number + 2
    assert error.filename.startswith("<misuse")
    assert isinstance(error, (ClauseError, SyntaxError))
    assert isinstance(error, UnsupportedError) == (name == "an unsupported directive")


ADVICE = {
    "+= on a number of a target": (
        ["with omp('target'):", "    n += 1", "return n"], "omp target: n holds", "map(tofrom: n)",
    ),
    "a target that only assigns": (["with omp('target'):", "    n = 1", "return n"], "assigns n", "map(from: n)"),
    "a target that reads what it assigns": (
        ["with omp('target'):", "    n = n + 1", "return n"], "assigns n", "map(tofrom: n)",
    ),
    "an acc region": (["with acc('parallel'):", "    n += 1", "return n"], "acc parallel: n holds", "copy(n)"),
    "a target that reads what a task shares": (
        ["with omp('task shared(n)'):", "    n = 2", "with omp('target'):", "    print(n)"], "shared",
        "write firstprivate(n) or map(to: n)",
    ),
    "an acc region that reads what a task shares": (
        ["with omp('task shared(n)'):", "    n = 2", "with acc('parallel'):", "    print(n)"], "shared",
        "write firstprivate(n) or copyin(n)",
    ),
    "an import in the function": (
        ["from offload.pragma import omp as o", "with o('task'):", "    pass"], "o is imported in line 3", "outside",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ADVICE)
def test_advice(name):
    """The message says what is wrong, and clauses that make the program right."""
    lines, problem, remedy = ADVICE[name]
    with pytest.raises(PragmaError) as caught:
        made(indented(*lines))["f"](np.zeros(3), 1)
    assert problem in str(caught.value)
    assert remedy in str(caught.value)


def test_an_interop_object_that_is_destroyed():
    """Its use, and its end, are errors that speak of directives."""
    for last in ("destroy(o)", "use(o)"):
        lines = [f"omp('interop {what}')" for what in ("init(targetsync: o)", "destroy(o)", last)]
        with pytest.raises(UsageError, match=r"has been destroyed; make another with init\(targetsync: o\)"):
            made(indented(*lines))["f"](0, 0)


def test_coroutines():
    """`await` and its like leave a block that is taken."""
    for line in ("await x", "async for i in x: pass", "async with x: pass"):
        text = f"@directives\nasync def f(x):\n    with omp('task'):\n        {line}\n"
        error, _ = refused(text)
        assert error.lineno == 4
    error, _ = refused("@directives\nasync def f(x):\n    async with omp('task'):\n        pass\n")
    assert error.lineno == 3


def test_a_nested_function_may_return():
    """Control stays in the block."""
    text = indented(
        "log = []", "with omp('task'):", "    def g(v):", "        for i in v:", "            if i: return i",
        "    for i in x:", "        if i > 1: break", "    while True:", "        break", "    log.append(g(x))",
        "omp('taskwait')", "return log",
    )  # fmt: skip
    assert made(text)["f"]([0, 5], 1) == [5]


def test_a_name_of_an_enclosing_function():
    """A name of an enclosing function that only a string mentions is an error at the name."""
    text = "def outer(n):\n    @directives\n    def f(x):\n        with omp('task if(n > 1)'):\n            x\n"
    text += "    return f\n"
    names = made(text)
    with pytest.raises(PragmaError) as caught:
        names["outer"](1)
    assert caught.value.text[caught.value.offset - 1 : caught.value.end_offset - 1] == "n"
    mentioned = text.replace("            x\n", "            x, n\n")
    made(mentioned)["outer"](1)(2)


# -- without `directives` ----------------------------------------------------------------------------------
@pytest.mark.parametrize("string", ["task", "target map(to: x)", "parallel for", "taskgroup", "critical"])
def test_blocks_of_undecorated_functions(string):
    """They are a UsageError at the `with`."""
    with pytest.raises(UsageError, match="directives"), omp(string):
        pytest.fail("the block must not run")


@pytest.mark.parametrize("string", ["taskwait depend(in: x)", "target update to(x)", "depobj(o) destroy", "flush"])
def test_statements_of_undecorated_functions(string):
    """A statement with list items is a UsageError at the call."""
    with pytest.raises(UsageError, match="directives"):
        omp(string)


def test_statements_that_simply_work():
    """Waits and cancellation need no decorator."""
    log = []
    offload.task(log.append)(1)
    omp("taskwait")
    assert log == [1]
    omp("taskyield")
    omp("barrier")
    with offload.taskgroup():
        omp("cancellation point taskgroup")
    with omp("taskwait"):
        log.append(2)
    assert log == [1, 2]


@pytest.mark.parametrize("what", [3, None, b"task", 2.5])
def test_calls_with_something_else(what):
    """`omp(3)` is a PragmaError, whose text is the value."""
    with pytest.raises(PragmaError) as caught:
        omp(what)
    assert caught.value.text == repr(what)


def test_defaults():
    """`directives` takes no default but shared."""
    with pytest.raises(ClauseError, match="shared"):
        directives(default="private")


# -- decorators and texts ------------------------------------------------------------------------------------
def test_decorators_below():
    """Each kind of decorator below is an error at that decorator."""
    wrapping = (
        "import functools\ndef wrap(f):\n    @functools.wraps(f)\n    def g(*a):\n        return f(*a)\n    return g\n"
    )
    for decorator, before in (
        ("wrap", wrapping),
        ("same", "def same(f):\n    return f\n"),
        ("offload.task", "import offload\n"),
        ("staticmethod", ""),
    ):
        text = f"{before}@directives\n@{decorator}\ndef f(x):\n    with omp('task'):\n        x\n"
        error, token = refused(text)
        assert token == decorator
        assert error.lineno == text.splitlines().index(f"@{decorator}") + 1
    made(f"{wrapping}@wrap\n@directives\ndef f(x):\n    with omp('task'):\n        x\n")


def test_no_text():
    """A function without source text is a UsageError that says so."""
    names = {"omp": omp}
    exec("def f(x):\n    with omp('task'):\n        x\n", names)
    with pytest.raises(UsageError, match="source"):
        directives(names["f"])


def test_nothing_is_generated_before_an_error_of_a_value():
    """An error of an item leaves no task and no variable changed."""
    f = made(indented("log = []", "with omp('task depend(in: x[n])'):", "    log.append(1)"))["f"]
    with pytest.raises(ClauseError):
        f(np.zeros(3), 7)
    assert offload.current_task() is None
