"""Blocks with directives in the midst of Python: language features around and inside, layouts of source text."""

# ruff: noqa: E501  # a layout is a line of its own

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import pickle

import numpy as np
import pytest

import offload
from tests.conformance.pragma.spelling import as_comments, dedent, import_text


@pytest.fixture(params=["strings", "comments"])
def spelled(request, sim, tmp_path):
    """Import a program in either spelling, for one simulated device."""

    def program(text, comments=True):
        text = dedent(text)
        if request.param == "comments":
            if not comments:
                pytest.skip("the program has no comments")
            text = as_comments(text)
        return import_text(tmp_path, text).program

    return program


# -- features inside of blocks -------------------------------------------------------------------------
INSIDE = {
    "comprehension": ("log.extend(k * i for i in range(3))", [0, 5, 10]),
    "list comprehension": ("log += [i for i in range(3) if i != 1]", [0, 2]),
    "nested comprehension": ("log.append([[i * j * k for i in range(2)] for j in range(2)])", [[[0, 0], [0, 5]]]),
    "dictionary": ("log.append({i: k for i in range(2)})", [{0: 5, 1: 5}]),
    "lambda": ("log.append((lambda a, b=k: a + b)(1))", [6]),
    "walrus in a comprehension": ("log.append([last := i for i in range(3)])\nlog.append(last)", [[0, 1, 2], 2]),
    "walrus": ("if (w := k + 1) > 5:\n    log.append(w)", [6]),
    "match": (
        "match {'a': k, 'b': [1, 2, 3]}:\n    case {'a': v, 'b': [first, *rest]}:\n        log.append((v, first, rest))",
        [(5, 1, [2, 3])],
    ),
    "match of a class": ("match k:\n    case int() as number if number > 3:\n        log.append(number)", [5]),
    "try": (
        (
            "try:\n    [][k]\nexcept (IndexError, KeyError) as error:\n    log.append(type(error))\n"
            "else:\n    log.append(0)\nfinally:\n    log.append(1)"
        ),
        [IndexError, 1],
    ),
    "except star": (
        "try:\n    raise ExceptionGroup('', [KeyError()])\nexcept* KeyError as g:\n    log.append(len(g.exceptions))",
        [1],
    ),
    "with": (
        "import io\nwith io.StringIO('a') as f, io.StringIO('b') as g:\n    log.append(f.read() + g.read())",
        ["ab"],
    ),
    "for else": ("for i in range(2):\n    pass\nelse:\n    log.append(i)", [1]),
    "while": ("n = 0\nwhile True:\n    n += 1\n    if n == 3:\n        break\nlog.append(n)", [3]),
    "starred": ("first, *rest = range(k)\nlog.append((first, rest))", [(0, [1, 2, 3, 4])]),
    "closures": ("def f(a):\n    def g():\n        return a + k\n    return g\nlog.append(f(1)())", [6]),
    "recursion": ("def f(a):\n    return 1 if a < 2 else a * f(a - 1)\nlog.append(f(k))", [120]),
    "generator": ("def f():\n    yield from range(2)\n    yield k\nlog.extend(f())", [0, 1, 5]),
    "class": ("class C:\n    v = k\n    def m(self):\n        return self.v\nlog.append(C().m())", [5]),
    "decorated function": ("import functools\n@functools.cache\ndef f(a):\n    return a + k\nlog.append(f(1))", [6]),
    "f-string": ("log.append(f'{k!r:>3}{k=}')", ["  5k=5"]),
    "conditional": ("log.append(1 if k else 2)", [1]),
    "global in a function": ("def f():\n    global LAST\n    LAST = k\nf()\nlog.append(LAST)", [5]),
    "nonlocal in a function": ("c = 1\ndef f():\n    nonlocal c\n    c += k\nf()\nlog.append(c)", [6]),
    "del": ("t = k\ndel t\nlog.append('t' in dir())", [False]),
    "assert": ("assert k == 5, log\nlog.append(1)", [1]),
    "async function": (
        "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return k\nlog.append(asyncio.run(f()))",
        [5],
    ),
    "docstring": ("'a string'\nlog.append(__doc__ is None)", None),
    "many lines": ("log.append(k +\n           1)\nlog.append('a' \\\n           'b')", [6, "ab"]),
    "semicolons": ("a = 1; b = 2; log.append(a + b)", [3]),
    "type alias": ("x: list[int] = [k]\nlog.append(x)", [[5]]),
    "locals": ("t = 1\nlog.append(locals()['t'])", [1]),
    "slices": ("log.append([1, 2, 3, 4][1:k:2])", [[2, 4]]),
    "ellipsis": ("t = np.zeros((2, 2))\nt[..., 0] = k\nlog.append(t.tolist())", [[[5, 0], [5, 0]]]),
}


@pytest.mark.parametrize("name", INSIDE)
def test_inside_of_a_block(spelled, name):
    """Each feature of the language means in a block what it means in a function."""
    lines, expected = INSIDE[name]
    indented = lines.replace("\n", "\n" + " " * 16)
    program = spelled(f"""
        LAST = 0

        @directives
        def program(k):
            log = []
            with omp("task"):
                {indented}
            omp("taskwait")
            return log
    """)
    found = program(5)
    assert found == expected or expected is None


AROUND = {
    "if": "if k:\n    {block}",
    "else": "if not k:\n    pass\nelse:\n    {block}",
    "try": "try:\n    {block}\nfinally:\n    pass",
    "except": "try:\n    [][0]\nexcept IndexError as error:\n    {block}",
    "finally": "try:\n    pass\nfinally:\n    {block}",
    "for": "for k in [k]:\n    {block}",
    "while": "n = 1\nwhile n:\n    n -= 1\n    {block}",
    "with": "import contextlib\nwith contextlib.nullcontext(k) as k:\n    {block}",
    "match": "match k:\n    case 5:\n        {block}",
    "match value": "match [k]:\n    case [int() as k]:\n        {block}",
    "walrus": "if (k := k + 0):\n    {block}",
    "two": "{block}\nlog.pop() if log else None\nomp('taskwait')\nlog.clear()\n{block}",
}


@pytest.mark.parametrize("name", AROUND)
def test_around_a_block(spelled, name):
    """A block may stand in each compound statement, and captures the names of the moment."""
    block = 'with omp("task"):\n{indent}    log.append(k)'
    lines = AROUND[name]
    indent = " " * (lines.split("{block}")[0].rsplit("\n", 1)[-1].count(" "))
    text = lines.replace("{block}", block.replace("{indent}", indent)).replace("\n", "\n" + " " * 12)
    program = spelled(f"""
        @directives
        def program(k):
            log = []
            {text}
            omp("taskwait")
            return log
    """)
    assert program(5) == [5]


# -- kinds of functions --------------------------------------------------------------------------------
def test_generators(spelled):
    """In a generator, tasks are generated as it goes on, and blocks that stay may yield."""
    program = spelled("""
        @directives
        def numbers(log, n):
            for i in range(n):
                with omp("task depend(inout: ('log',))"):
                    log.append(i)
                with omp("taskgroup"):
                    received = yield i
                if received:
                    return "end"

        def program(log):
            found = []
            made = numbers(log, 5)
            found.append(next(made))
            found.append(next(made))
            try:
                made.send(True)
            except StopIteration as stop:
                found.append(stop.value)
            offload.taskwait()
            return found
    """)
    log = []
    assert program(log) == [0, 1, "end"]
    assert log == [0, 1]


def test_coroutines(spelled):
    """In an `async def`, blocks are taken, and blocks that stay may await."""
    program = spelled("""
        import asyncio

        @directives
        async def program(x, log):
            with omp("target data map(tofrom: x)"):
                with omp("target nowait depend(inout: x)"):
                    x += 1
                await asyncio.sleep(0)
                with omp("task depend(in: x)"):
                    log.append("task")
                await offload.taskwait()
            return log
    """)
    x, log = np.zeros(2), []
    assert asyncio.run(program(x, log)) == ["task"]
    assert x.tolist() == [1, 1]
    assert inspect.iscoroutinefunction(program)


def test_asynchronous_generators(spelled):
    """So it is in an asynchronous generator."""
    program = spelled("""
        @directives
        async def program(log):
            for i in range(2):
                with omp("task depend(inout: ('log',))"):
                    log.append(i)
                yield i
    """)

    async def main():
        log = []
        found = [i async for i in program(log)]
        await offload.taskwait()
        return found, log

    assert asyncio.run(main()) == ([0, 1], [0, 1])


def test_signatures(spelled):
    """Defaults, annotations, docstring, names and `__wrapped__` are those of the original."""
    program = spelled('''
        def decorate(**words):
            return directives

        @directives
        def program(a, /, b: "int" = 2, *args: float, c=[3], **more) -> "str":
            """Say what it does."""
            with omp("task"):
                c.append((a, b, args, more))
            omp("taskwait")
            return c
    ''')
    assert str(inspect.signature(program)) == "(a, /, b: 'int' = 2, *args: float, c=[3], **more) -> 'str'"
    assert program.__doc__ == "Say what it does."
    assert (program.__name__, program.__qualname__) == ("program", "program")
    assert program.__wrapped__.__code__.co_name == "program"
    assert program.__wrapped__.__defaults__ is program.__defaults__
    assert program.__kwdefaults__ == program.__wrapped__.__kwdefaults__
    assert program.__globals__ is program.__wrapped__.__globals__
    assert list(inspect.signature(program).parameters) == ["a", "b", "args", "c", "more"]
    assert program(1, 3, 4.0, d=5) == [3, (1, 3, (4.0,), {"d": 5})]
    assert pickle.loads(pickle.dumps(program)) is program


def test_closures(spelled):
    """The function keeps the cells of the original, also those that it writes."""
    program = spelled("""
        def program():
            count, log = 0, []

            def note():
                log.append(count)

            @directives
            def step(by):
                nonlocal count
                count += by
                with omp("task if(False)"):
                    note()
                omp("taskwait")

            step(1)
            count += 10
            step(2)
            return log, step.__closure__ is not None
    """)
    assert program() == ([1, 13], True)


def test_methods_of_all_kinds(spelled):
    """Static methods, class methods and properties with blocks work, with `@directives` lowest."""
    program = spelled("""
        class Thing:
            rate = 2

            @staticmethod
            @directives
            def static(log):
                with omp("task depend(inout: ('log',))"):
                    log.append(1)

            @classmethod
            @directives
            def of_class(cls, log):
                with omp("task depend(inout: ('log',))"):
                    log.append(cls.rate)

            @property
            @directives
            def prop(self):
                with omp("task shared(found)"):
                    found = self.rate + 1
                omp("taskwait")
                return found

            @directives
            def __call__(self, log):
                with omp("task depend(inout: ('log',))"):
                    log.append(4)

        def program():
            log = []
            Thing.static(log)
            Thing.of_class(log)
            Thing()(log)
            offload.taskwait()
            return log, Thing().prop
    """)
    assert program() == ([1, 2, 4], 3)


def test_future_annotations(tmp_path, sim):
    """`from __future__ import annotations` of the module holds in the rewritten function."""
    path = tmp_path / "future_annotations.py"
    text = "from __future__ import annotations\nfrom offload.pragma import directives, omp\n\n"
    text += "@directives\ndef program(x: Unknown) -> Missing:\n    with omp('task'):\n"
    text += "        y: Unknown2 = 1\n        x.append(y)\n"
    text += "        def inner(a: Unknown3): return a\n    omp('taskwait')\n    return x\n"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("future_annotations", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.program([]) == [1]
    assert module.program.__annotations__ == {"x": "Unknown", "return": "Missing"}


def test_threads_and_reentrance(spelled):
    """Several threads may run one rewritten function, each with variables of its own."""
    program = spelled("""
        import threading

        @directives
        def step(k, found):
            with omp("task shared(s) depend(out: s)"):
                s = k
            with omp("task shared(s) depend(inout: s)"):
                s *= 2
            omp("taskwait")
            found.append(s)

        def program():
            found = []
            threads = [threading.Thread(target=step, args=(k, found)) for k in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return sorted(found)
    """)
    assert program() == [2 * k for k in range(8)]


def test_values_outlive_their_activation(spelled):
    """A task may run when the function that shared a variable with it has returned."""
    program = spelled("""
        @directives
        def start(gate, log):
            value = 1
            with omp("task shared(value) depend(in: gate)"):
                value += 1
                log.append(value)
            value = 10

        def program():
            gate, log = offload.Event(), []
            start(gate, log)
            gate.fulfill()
            offload.taskwait()
            return log
    """)
    assert program() == [11]


# -- layouts of source text ----------------------------------------------------------------------------
LAYOUTS = {
    "in if": "if True:\n    @directives\n    def program(log):\n        with omp('task'):\n            log.append(1)\n        omp('taskwait')\n        return log\n",
    "in a function": "def make():\n    @directives\n    def program(log):\n        with omp('task'):\n            log.append(1)\n        omp('taskwait')\n        return log\n    return program\nprogram = make()\n",
    "tabs": "@directives\ndef program(log):\n\twith omp('task'):\n\t\tlog.append(1)\n\tomp('taskwait')\n\treturn log\n",
    "one line": "@directives\ndef program(log):\n    with omp('task'): log.append(1)\n    omp('taskwait'); return log\n",
    "backslash": "@directives\ndef program(log):\n    with \\\n            omp('task'):\n        log.append(1)\n    omp(\n        'taskwait'\n    )\n    return log\n",
    "many lines": '@directives\ndef program(log):\n    with omp("""task\n      depend(inout: (1,))\n   if(True)"""):\n        log.append(1)\n    omp("taskwait")\n    return log\n',
    "a raw string": "@directives\ndef program(log):\n    with omp(r'task depend(inout: (1,))'):\n        log.append(1)\n    omp('taskwait')\n    return log\n",
    "a comment behind": "@directives  # rewrites\ndef program(log):  # noqa\n    with omp('task'):  # a task\n        log.append(1)\n    omp('taskwait')\n    return log\n",
    "a call": "def program(log):\n    with omp('task'):\n        log.append(1)\n    omp('taskwait')\n    return log\nprogram = directives(program)\n",
    "with brackets": "@(directives)\ndef program(log):\n    with (omp('task')):\n        log.append(1)\n    omp('taskwait')\n    return log\n",
    "empty brackets": "@directives()\ndef program(log):\n    with omp('task'):\n        log.append(1)\n    omp('taskwait')\n    return log\n",
    "decorators above": "def same(f):\n    return f\n\n@same\n@(lambda f: f)\n@directives\ndef program(log):\n    with omp('task'):\n        log.append(1)\n    omp('taskwait')\n    return log\n",
    "windows": "@directives\r\ndef program(log):\r\n    with omp('task'):\r\n        log.append(1)\r\n    omp('taskwait')\r\n    return log\r\n",
    "a form feed": "\x0c\n@directives\ndef program(log):\n    with omp('task'):\n        log.append(1)\n    omp('taskwait')\n    return log\n",
    "no last line break": "@directives\ndef program(log):\n    with omp('task'):\n        log.append(1)\n    omp('taskwait')\n    return log",
    "letters": "@directives\ndef program(lög):\n    ä = 'ö'; é = 1\n    with omp('task depend(inout: ä)'):\n        lög.append(é)\n    omp('taskwait')\n    return lög\n",
    "two of one name": "@directives\ndef program(log):\n    with omp('task'):\n        log.append(2)\n    return log\n\n@directives\ndef program(log):\n    with omp('task'):\n        log.append(1)\n    omp('taskwait')\n    return log\n",
    "through a module": "from offload import pragma\n\n@pragma.directives\ndef program(log):\n    with pragma.omp('task'):\n        log.append(1)\n    pragma.omp('taskwait')\n    return log\n",
    "another name": "from offload.pragma import directives as d, omp as o\n\n@d\ndef program(log):\n    with o('task'):\n        log.append(1)\n    o('taskwait')\n    return log\n",
    "a lambda beside it": "f = lambda x: x; program = None\n\n@directives\ndef program(log):\n    with omp('task'):\n        (lambda: log.append(1))()\n    omp('taskwait')\n    return log\n",
    "a docstring of sentinels": "@directives\ndef program(log):\n    '''#pragma omp nonsense\n    #omp nonsense'''\n    with omp('task'):\n        log.append(1)\n    omp('taskwait')\n    return log\n",
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(sim, tmp_path, name):
    """The function is found and rewritten in each layout of its text."""
    text = LAYOUTS[name]
    if "\r" in text:
        path = tmp_path / "windows.py"
        path.write_bytes(b"from offload.pragma import directives, omp\r\n" + text.encode())
        spec = importlib.util.spec_from_file_location("windows", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = import_text(tmp_path, text)
    assert module.program([]) == [1]


def test_functions_without_directives(spelled):
    """A function without directives works as it is."""
    program = spelled("""
        @directives
        def program(a, b=2):
            return a + b
    """)
    assert program(1) == 3


def test_other_encodings(sim, tmp_path):
    """A file with a coding cookie is read as it says."""
    path = tmp_path / "latin.py"
    text = "# -*- coding: latin-1 -*-\nfrom offload.pragma import directives, omp\n\n@directives\ndef program(log):\n"
    text += "    with omp('task'):\n        log.append('ä')\n    omp('taskwait')\n    return log\n"
    path.write_bytes(text.encode("latin-1"))
    spec = importlib.util.spec_from_file_location("latin", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.program([]) == ["ä"]
