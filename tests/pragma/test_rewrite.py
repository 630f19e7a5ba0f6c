"""Rewritten functions: what they keep of the original, how they fail, and how they go to other processes."""

import ast
import asyncio
import inspect
import linecache
import pickle
import sys
import traceback
import warnings
from itertools import count

import cloudpickle
import numpy as np
import pytest

import offload
from offload.errors import PragmaError
from offload.pragma import acc, directives, omp
from offload.pragma.rewrite import _TEMPLATES
from offload.texts import tree_of

pytestmark = pytest.mark.usefixtures("on_sim_1")

_NUMBERS = count()


@pytest.fixture
def on_sim_1():
    """Give the test a runtime with a simulated device."""
    with offload.Runtime("sim:1") as runtime:
        yield runtime


def made(text, **names):
    """Return the names that a text defines, as those of a module whose text is known."""
    file = f"<made {next(_NUMBERS)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    found = {"omp": omp, "acc": acc, "directives": directives, "np": np, "__name__": "made", **names}
    exec(compile(text, file, "exec"), found)
    return found


def add(a, b: int = 2, *rest, c=3, **more) -> list:
    """Add."""
    with omp("taskgroup"):  # noqa: SIM117  # a directive needs a `with` of its own
        with omp("task"):
            rest[0].append((a, b, c, more))
    return rest[0]


BLOCKS = """
def f(x):
    for _ in x:
        omp("taskwait")
    else:
        omp("taskwait")
    while x:
        omp("taskwait")
        break
    if x:
        omp("taskwait")
    else:
        omp("taskwait")
    with x:
        omp("taskwait")
    try:
        omp("taskwait")
    except ValueError:
        omp("taskwait")
    else:
        omp("taskwait")
    finally:
        omp("taskwait")
    match x:
        case 1:
            omp("taskwait")
    try:
        omp("taskwait")
    except* ValueError:
        with omp("task"):
            pass
"""


def test_the_tree_of_the_file_stays_as_it_is():
    """Rewriting changes a copy, in each kind of block: other functions of the file are found in the same tree."""
    before = ast.dump(ast.parse(BLOCKS), include_attributes=True)
    directives(made(BLOCKS)["f"])
    assert ast.dump(tree_of(BLOCKS), include_attributes=True) == before


def test_it_keeps_what_a_function_has():
    """Name, text, defaults, annotations, module and `__wrapped__` are the original's."""
    function = directives(add)
    assert function.__wrapped__ is add
    assert (function.__name__, function.__qualname__, function.__doc__) == ("add", "add", "Add.")
    assert function.__defaults__ is add.__defaults__
    assert function.__kwdefaults__ is add.__kwdefaults__
    assert function.__annotations__ == add.__annotations__
    assert function.__globals__ is add.__globals__
    assert inspect.signature(function) == inspect.signature(add)
    assert inspect.getsource(function) == inspect.getsource(add)
    assert function.__code__.co_firstlineno == add.__code__.co_firstlineno
    assert function.__code__.co_name == function.__code__.co_qualname == "add"
    assert function(1, 5, [], d=4) == [(1, 5, 3, {"d": 4})]


def test_a_function_without_directives_is_left_alone():
    """It is the same object."""

    def plain(x):
        return x

    assert directives(plain) is plain


def test_blocks_are_named_after_the_function_and_the_line():
    """A task is called `pipeline.<omp task, line 8>`, and its location is the line of the `with`."""
    text = "@directives\ndef pipeline(x):\n\n    with omp('task depend(out: x)'):\n        x[0] = 1\n"
    pipeline = made(text)["pipeline"]
    with offload.record(execute=False) as graph:
        pipeline(np.zeros(1))
    (task,) = graph.tasks
    assert task.name == "pipeline.<omp task, line 4>"
    assert task.location.endswith(":4")


class Base:
    """A class with a method that the tests call with `super`."""

    def name(self):
        return "base"


@directives
class Child(Base):
    """Each kind of function of a decorated class has directives."""

    __secret = 3

    def name(self):
        return "child"

    def private(self, log):
        with omp("task"):
            log += [self.__secret, super().name(), __class__.__name__]
        omp("taskwait")
        return log

    @staticmethod
    def static(log):
        with omp("task"):
            log.append("static")
        omp("taskwait")
        return log

    @classmethod
    def of_class(cls, log):
        with omp("task"):
            log.append(cls.__secret)
        omp("taskwait")
        return log

    @property
    def value(self):
        with omp("target map(from: s)"):
            s = self.__secret * 2
        return s  # noqa: RET504  # the block gives it


def test_classes():
    """Every function of a decorated class is rewritten, and private names and `super` mean the same in blocks."""
    assert Child().private([]) == [3, "base", "Child"]
    assert Child.static([]) == ["static"]
    assert Child.of_class([]) == [3]
    assert Child().value == 6


def counter(start):
    """Return functions that share a variable."""

    @directives
    def more(n):
        nonlocal start
        with omp("task shared(start)"):
            start += n
        omp("taskwait")
        return start

    return more, lambda: start


def test_closures():
    """The rewritten function shares the cells of the original; two of one text do not share theirs."""
    (one, value), (other, _) = counter(1), counter(10)
    assert [one(2), other(5), one(1), value()] == [3, 15, 4, 4]
    assert one.__code__ is other.__code__


def test_a_nested_function_is_compiled_once():
    """Each call of the enclosing function makes the nested one from the same template."""
    counter(1)
    before = {*_TEMPLATES}
    for start in range(5):
        counter(start)
    assert {*_TEMPLATES} <= before  # those of other tests' functions may go meanwhile


@directives
def fibonacci(n):
    if n < 2:
        return n
    with omp("task shared(a)"):
        a = fibonacci(n - 1)
    with omp("task shared(b)"):
        b = fibonacci(n - 2)
    omp("taskwait")
    return a + b


def test_recursion():
    """The function calls itself by its global name."""
    assert fibonacci(9) == 34


def test_pickling():
    """Functions of modules go by name; others by value, with their blocks and constructs."""
    assert pickle.loads(pickle.dumps(fibonacci)) is fibonacci
    assert pickle.loads(pickle.dumps([omp, acc])) == [omp, acc]
    names = made(
        "G = 5\n@directives\ndef f(x, n):\n    total = 0\n    with omp('target data map(tofrom: x)'):\n"
        "        with omp('target map(tofrom: x[1:n]) depend(inout: x)'):\n            x[1] += G\n"
        "    with omp('task shared(total) depend(inout: total)'):\n        total += n\n"
        "    with omp('taskloop reduction(+: total)'):\n        for i in range(n):\n            total += i\n"
        "    omp('taskwait')\n    return x.tolist(), total\n",
        __name__="__main__",
    )
    copy = cloudpickle.loads(cloudpickle.dumps(names["f"]))
    assert copy(np.zeros(3), 2) == names["f"](np.zeros(3), 2) == ([0, 5, 0], 3)


def test_tracebacks():
    """A failing line in a block is the last entry, at its line of the user's file, and no frame has a hidden name."""
    text = (
        "@directives\ndef f(x):\n    s = 0\n    with omp('target map(tofrom: s)'):\n        s = 1\n"
        "        raise ValueError(s)\n"
    )
    f = made(text)["f"]
    with pytest.raises(ValueError) as caught:
        f(np.zeros(3))
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].lineno == 6
    assert frames[-1].filename == f.__code__.co_filename
    assert frames[-1].name == "f.<omp target, line 4>"
    assert not any(frame.name.startswith(".") for frame in frames)


def test_every_line_is_traced_where_it_stands():
    """Coverage and debuggers see each line that runs, and no other."""
    text = (
        "@directives\ndef f(log, n):\n    s = 0\n    if n:\n        with omp('task shared(s)'):\n            s = n\n"
        "            log.append(n)\n    else:\n        s = 5\n    omp('taskwait')\n    with omp('taskgroup'):\n"
        "        log.append(2)\n    return s\n"
    )
    f = made(text)["f"]
    lines = set()

    def tracer(frame, event, _):
        if frame.f_code.co_filename == f.__code__.co_filename:
            lines.add(frame.f_lineno)
            return tracer
        return None

    with offload.Runtime("none", num_threads=0):
        before = sys.gettrace()
        sys.settrace(tracer)
        try:
            f([], 1)
        finally:
            sys.settrace(before)
    assert lines - {1, 2} == {3, 4, 5, 6, 7, 10, 11, 12, 13}


def test_future_statements():
    """The flags of the original's module hold."""
    text = "from __future__ import annotations\n@directives\ndef f(x: 1 / 0, log) -> nothing:\n    with omp('task'):\n"
    text += "        y: undefined = 3\n        log.append(y)\n    omp('taskwait')\n    return log\n"
    assert made(text)["f"](0, []) == [3]


def test_names_that_only_blocks_bind_stay_local():
    """A name that only blocks bind is unbound outside of them, and hides no global."""
    text = "t = 'global'\n@directives\ndef f():\n    with omp('task private(t)'):\n        t = 1\n    return t\n"
    with pytest.raises(UnboundLocalError):
        made(text)["f"]()


def test_docstrings_and_first_lines():
    """The docstring stays one though local variables are declared after it."""
    text = "@directives\ndef f():\n    '''Text.'''\n    with omp('task private(t)'):\n        t = 1\n"
    text += "    t = 3\n    return t\n"
    f = made(text)["f"]
    assert (f.__doc__, f()) == ("Text.", 3)


def test_decorators_above():
    """Any decorator may stand above; the function below is the rewritten one."""

    @offload.task
    @directives
    def body(log):
        with omp("task"):
            log.append("inner")
        omp("taskwait")
        log.append("outer")

    log = []
    body(log)
    offload.taskwait()
    assert log == ["inner", "outer"]


def test_coroutines():
    """Blocks that stay may await, and waits let the event loop run."""

    @directives
    async def program(n):
        log = []
        with omp("taskgroup"):
            for i in range(n):
                with omp("task"):
                    log.append(i)
                await asyncio.sleep(0)
        with omp("task"):
            log.append("last")
        omp("taskwait")
        async with omp("taskgroup"):
            log.append("group")
        await omp("taskwait")
        return log

    log = asyncio.run(program(3))
    assert sorted(log[:3]) == [0, 1, 2]
    assert log[3:] == ["last", "group"]


def test_generators():
    """A generator yields in blocks that stay."""

    @directives
    def program(n):
        for i in range(n):
            log = []
            with omp("taskgroup"):
                with omp("task"):
                    log.append(i)
                yield "inside"
            yield log

    assert list(program(2)) == ["inside", [0], "inside", [1]]


def test_the_tree_of_the_file_is_not_changed():
    """Rewriting works on a copy: the same text gives the same function again."""
    text = "def f(x):\n    with omp('target map(tofrom: x)'):\n        x += 1\n    return x\n"
    names = made(text)
    from offload.texts import tree_of

    before = ast.dump(tree_of(text))
    first, again = directives(names["f"]), directives(names["f"])
    assert ast.dump(tree_of(text)) == before
    assert first(np.zeros(1)).tolist() == again(np.zeros(1)).tolist() == [1]


# -- rewritten already, and generated -----------------------------------------------------------------------


def test_a_function_that_is_rewritten_stays_as_it_is():
    """A decorated class may have decorated methods, and `directives` may be applied twice."""
    names = made(
        """
def f(x):
    with omp("task"):
        x.append(1)
    omp("taskwait")
    return x

@directives
class Twice:
    @directives
    def method(self, x):
        with omp("task"):
            x.append(2)
        omp("taskwait")
        return x
"""
    )
    once = directives(names["f"])
    assert directives(once) is once
    assert names["Twice"]().method([]) == [2]


def test_functions_of_a_class_that_have_no_text():
    """`dataclass` makes methods from texts of its own, and a lambda has no statements: both are left alone."""
    names = made(
        """
import dataclasses

@directives
@dataclasses.dataclass
class Point:
    x: int = 1
    double = lambda self: 2 * self.x

    def method(self, found):
        with omp("task"):
            found.append(self.x)
        omp("taskwait")
        return found
"""
    )
    assert names["Point"](3).method([]) == [3]
    assert names["Point"](3).double() == 6
    assert names["Point"](3) == names["Point"](3)


# -- Python that a function of its own does not allow -------------------------------------------------------


def test_super_in_every_kind_of_block():
    """`super()` has the same meaning in a loop's body, in a team and in a nested block as around the block."""
    names = made(
        """
class Base:
    def name(self):
        return "base"

class Derived(Base):
    def name(self):
        return "derived"

    @directives
    def loop(self, found):
        with omp("taskloop"):
            for _ in range(2):
                found.append(super().name())
        return found

    @directives
    def team(self, found):
        with omp("parallel private(q)"):
            q = super().name()
            found.append(q)
        return found

    @directives
    def nested(self, found):
        with omp("task"):
            with omp("task"):
                found.append(super().name())
            omp("taskwait")
        omp("taskwait")
        return found

    @directives
    def shared(self, found):
        with omp("task default(shared)"):
            found.append(super().name())
        omp("taskwait")
        return found

    @directives
    def result(self, n):
        with omp("target map(from: n)"):
            n = super().name()
        return n

    @directives(default="shared")
    def with_a_function(self, found):
        with omp("task"):
            class Other(Base):
                def name(self):
                    return "other " + super().name()
            found.append(Other().name())
        omp("taskwait")
        return found
"""
    )
    derived = names["Derived"]()
    assert derived.loop([]) == ["base", "base"]
    assert derived.team([]) == derived.nested([]) == derived.shared([]) == ["base"]
    assert derived.result(0) == "base"
    assert derived.with_a_function([]) == ["other base"]


def test_annotations_of_shared_variables():
    """A block may annotate a name that is the enclosing function's variable; the annotation has no effect."""
    names = made(
        """
@directives
def f():
    x: float = 0.0
    with omp("task shared(x)"):
        x: float = 2.0
    omp("taskwait")
    return x

@directives
def g(found):
    with omp("task private(y)"):
        y: float
        z: int = 4
        y = z
        found.append(y)
    omp("taskwait")
    return found
"""
    )
    assert names["f"]() == 2.0
    assert names["g"]([]) == [4]


def test_nonlocal_of_a_private_variable():
    """`nonlocal` in a function of the block is the block's variable."""
    names = made(
        """
@directives
def f(found):
    x = 1
    with omp("task private(x)"):
        def g():
            nonlocal x
            x = 9
        g()
        found.append(x)
    omp("taskwait")
    return x, found
"""
    )
    assert names["f"]([]) == (1, [9])


def test_what_a_function_does_not_allow():
    """A comprehension that awaits cannot be in the function of a block: the error is at it."""
    text = """
@directives
async def f(co):
    with omp("task"):
        z = [await co(a) for a in (1, 2)]
"""
    with pytest.raises(PragmaError, match="asynchronous comprehension") as caught:
        made(text)
    error = caught.value
    assert error.lineno == 5
    assert error.text[error.offset - 1 : error.end_offset - 1] == "[await co(a) for a in (1, 2)]"


# -- comments at nested functions ---------------------------------------------------------------------------


def test_a_comment_above_a_nested_function():
    """It decorates the function, also if it is the only directive and no name stands for `omp`."""
    names = made(
        """
import offload

@directives
def f():
    #omp task
    def g(n):
        return n, offload.in_explicit_task()
    return g(1)

@directives
def in_a_block(found):
    with openmp("task"):
        #omp task
        def g(n):
            found.append((n, offload.in_explicit_task()))
        g(1)
        openmp("taskwait")
    openmp("taskwait")
    return found
""",
        openmp=omp,
        omp=None,
    )
    assert names["f"]().result() == (1, True)
    assert names["in_a_block"]([]) == [(1, True)]


def test_comments_in_a_nested_function():
    """A directive comment in a nested function that is not decorated is ordinary, and a warning says so."""
    text = """
import functools

@directives
def f(x):
    def g():
        #omp task
        x.append(1)
    class C:
        @functools.cache
        def m(self):
            if x:
                #omp words
                #$omp taskwait
                pass
    @directives
    def k():
        def inner():
            #omp task
            x.append(1)
        #omp task
        x.append(2)
    def late(directives):
        @directives
        def h():
            #omp task
            x.append(3)
    @omp
    class D:
        def m(self):
            #omp task
            pass
"""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made(text)
    assert [(one.category, one.lineno) for one in caught] == [
        (offload.DirectiveWarning, 7),
        (offload.DirectiveWarning, 14),
    ]
    assert "`#omp task` is in the nested g" in str(caught[0].message)
    assert "@directives above m" in str(caught[1].message)


def test_a_method_that_names_its_class():
    """The class's name is a variable of the module, or of the function around the class, as for any method."""
    text = """
class Named:
    values = [1]

    @directives
    def method(self):
        with omp("task"):
            Named.values.append(len(Named.values) + 1)
        omp("taskwait")
        return Named.values
"""
    assert made(text)["Named"]().method() == [1, 2]
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    assert made(f"def around():\n{lines}    return Named\n")["around"]()().method() == [1, 2]


# -- private names of a class -------------------------------------------------------------------------------

PRIVATE = {
    "map": ('with omp("target map(tofrom: __y)"):', "__y += 1", [1.0, 1.0]),
    "a number": ('with omp("target map(tofrom: __s)"):', "__s = __s + 1; __y[...] = __s", [3.0, 3.0]),
    "a section": ('with omp("target map(tofrom: __y[1:1])"):', "__y[1] = 1", [0.0, 1.0]),
    "firstprivate": ('with omp("target firstprivate(__s) map(from: __y)"):', "__y[...] = __s", [2.0, 2.0]),
    "private": ('with omp("target private(__z) map(from: __y)"):', "__z[...] = 4; __y[...] = __z", [4.0, 4.0]),
    "copy": ('with acc("parallel copy(__y) copyin(__z)"):', "__y += __z", [1.0, 1.0]),
    "reduction": ('with omp("taskloop reduction(+: __y)"):', "for __i in range(3): __y += __i", [3.0, 3.0]),
    "shared": ('with omp("task shared(__y) depend(out: __y)"):', "__y = __y + 1", [1.0, 1.0]),
    "a nest": ('with omp("parallel for"):', "for __i in range(__s): __y[__i] = __s", [2.0, 2.0]),
}


@pytest.mark.parametrize("name", PRIVATE)
def test_private_names(name):
    """A clause names a variable as the text of the method does, although Python puts the class in front of it."""
    head, body, expected = PRIVATE[name]
    names = made(
        f"""
class _Kind:
    @directives
    def method(self):
        __y, __z, __s = np.zeros(2), np.ones(2), 2
        {head}
            {body}
        omp("taskwait")
        return __y

    def around(self):
        __y, __z, __s = np.zeros(2), np.ones(2), 2
        @directives
        def inner():
            nonlocal __y, __z, __s
            {head}
                {body}
            omp("taskwait")
        inner()
        return __y
"""
    )
    assert names["_Kind"]().method().tolist() == expected
    assert names["_Kind"]().around().tolist() == expected


def test_private_names_of_devices_and_groups():
    """`is_device_ptr` and `in_reduction` take the text's names, too."""
    names = made(
        """
class Kind:
    @directives
    def on_device(self):
        __y = np.zeros(2)
        with omp("target data map(tofrom: __y) use_device_ptr(__y)"):
            with omp("target is_device_ptr(__y)"):
                __y += 1
        return __y

    @directives
    def in_group(self):
        __y = np.zeros(2)
        with omp("taskgroup task_reduction(+: __y)"):
            with omp("task in_reduction(+: __y)"):
                __y += 1
        return __y
"""
    )
    assert names["Kind"]().on_device().tolist() == [1.0, 1.0]
    assert names["Kind"]().in_group().tolist() == [1.0, 1.0]
