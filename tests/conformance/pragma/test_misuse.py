"""Directives where they are not allowed: each is refused, with nothing changed (§1 of the reference)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

import offload
from offload.errors import PragmaError
from tests.conformance.pragma.spelling import HEADER, as_comments, dedent, error_of, import_text

REFUSED = {
    "a name": "string = 'task'\n    with omp(string):\n        pass",
    "an f-string": "with omp(f'task depend(in: {x})'):\n        pass",
    "an expression": "with omp('task' + ' nowait'):\n        pass",
    "a number": "omp(3)",
    "no argument": "with omp():\n        pass",
    "two arguments": "with omp('task', 'task'):\n        pass",
    "a keyword": "with omp(string='task'):\n        pass",
    "as": "with omp('task') as t:\n        pass",
    "as of a block that stays": "with omp('target data map(x)') as t:\n        pass",
    "two directives": "with omp('target data map(x)'), omp('task'):\n        pass",
    "one of two managers": "with open(x), omp('task'):\n        pass",
    "a block as a statement": "omp('task')",
    "a region as a statement": "omp('target map(x)')",
    "a block that stays as a statement": "omp('taskgroup')",
    "a loop as a statement": "omp('taskloop')",
    "acc as a statement": "acc('parallel copy(x)')",
    "taskloop around two loops": "with omp('taskloop'):\n        for i in x: pass\n        for i in x: pass",
    "taskloop around a statement": "with omp('taskloop'):\n        x = 1",
    "taskloop around else": "with omp('taskloop'):\n        for i in x: pass\n        else: pass",
    "taskloop around while": "with omp('taskloop'):\n        while x: pass",
    "cache outside of a nest": "acc('cache(x[0:1])')",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(on_sim, name):
    """Each misuse is a PragmaError at its line when the function is decorated."""
    text = f"@directives\ndef program(x):\n    {REFUSED[name]}\n"
    error = error_of(on_sim.folder, text)
    assert error.filename.endswith(".py")
    first = HEADER.count("\n") + 3
    assert first <= error.lineno <= first + 2
    assert error.text.rstrip("\n") == (HEADER + text).splitlines()[error.lineno - 1]


def test_async_with(on_sim):
    """A directive is the head of a plain `with`."""
    text = "@directives\nasync def program(x):\n    async with omp('task'):\n        pass\n"
    assert error_of(on_sim.folder, text).lineno == HEADER.count("\n") + 3


@pytest.mark.parametrize("line", ["y = omp('taskwait depend(in: x)')", "print(omp('target update to(x)'))"])
def test_directives_in_expressions(on_sim, line):
    """A directive in an expression is refused: when the function is decorated, or at the call."""
    text = f"@directives\ndef program(x):\n    {line}\n"
    with pytest.raises((PragmaError, offload.UsageError)):
        on_sim.string(text)(np.zeros(3))


def test_a_decorator_below(on_sim):
    """A decorator below `@directives` is a PragmaError; any decorator may stand above."""
    decorators = "def twice(f):\n    def both(*args):\n        return f(*args), f(*args)\n    return both\n\n"
    function = (
        "def program(log):\n    with omp('task'):\n        log.append(1)\n    omp('taskwait')\n    return len(log)\n"
    )
    error_of(on_sim.folder, f"{decorators}@directives\n@twice\n{function}")
    assert on_sim.string(f"{decorators}@twice\n@directives\n{function}")([]) == (1, 2)
    assert on_sim.string(f"{decorators}@twice\n@twice\n@directives\n{function}")([]) == ((1, 2), (3, 4))


def test_no_source(sim):
    """A function without source text is a UsageError that says so."""
    names = {}
    exec(HEADER + "def program(x):\n    with omp('task'):\n        pass\n", names)
    from offload.pragma import directives

    with pytest.raises(offload.UsageError, match="source"):
        directives(names["program"])


@pytest.mark.parametrize("what", [len, 3, "task", None, np.add])
def test_what_directives_takes(what):
    """`directives` takes functions and classes."""
    from offload.pragma import directives

    with pytest.raises((offload.UsageError, offload.ClauseError, TypeError)):
        directives(what) if what is not None else directives(None)("task")


@pytest.mark.parametrize(
    "string",
    ["task", "target map(x)", "taskloop", "taskgroup", "parallel", "critical", "target data map(x)", "parallel for"],
)
def test_undecorated_blocks(on_sim, string):
    """Without `@directives`, a block is a UsageError at the `with`, before it begins."""
    program = on_sim.string(f"def program(x):\n    with omp('{string}'):\n        x.append(1)\n")
    x = []
    with pytest.raises(offload.UsageError) as caught:
        program(x)
    assert x == []
    frame = caught.tb
    while frame.tb_next is not None and frame.tb_frame.f_code is not program.__code__:
        frame = frame.tb_next
    assert frame.tb_lineno == HEADER.count("\n") + 2


@pytest.mark.parametrize(
    "string", ["taskwait depend(in: x)", "target update to(x)", "depobj(o) depend(in: x)", "target enter data map(x)"]
)
def test_undecorated_statements(on_sim, string):
    """Without `@directives`, a statement with list items is a UsageError at the call."""
    program = on_sim.string(f"def program(x):\n    omp('{string}')\n")
    with pytest.raises(offload.UsageError):
        program(np.zeros(3))


def test_a_nested_function_is_decorated_itself(on_sim):
    """A nested `def` with directives is rewritten by its own decorator, not by the one around it."""
    text = """
        @directives
        def program(log):
            def inner():
                with omp("task"):
                    log.append(1)

            with omp("task"):
                log.append(2)
            inner()
    """
    log = []
    with pytest.raises(offload.UsageError):
        on_sim.string(dedent(text))(log)
    offload.taskwait()
    assert log == [2]
    program = on_sim.string(dedent(text).replace("    def inner", "    @directives\n    def inner"))
    log = []
    program(log)
    offload.taskwait()
    assert sorted(log) == [1, 2]


def test_comments_of_undecorated_functions(on_sim):
    """Outside of functions under `@directives`, a sentinel comment is a comment."""
    text = """
        #pragma omp nonsense
        def helper(x):
            #pragma omp tsak
            x += 1

        @directives
        def program(x):
            #pragma omp task
            helper(x)

            def inner():
                #omp wrong
                return 1

            #omp taskwait
            return inner()
    """
    x = np.zeros(2)
    assert on_sim.string(dedent(text))(x) == 1
    assert x.tolist() == [1, 1]


def test_blocks_at_module_level(on_sim):
    """A block at module level, or in a class body, is not taken: it is a UsageError."""
    with pytest.raises(offload.UsageError):
        import_text(on_sim.folder, "with omp('task'):\n    pass\n")
    with pytest.raises(offload.UsageError):
        import_text(on_sim.folder, "class C:\n    with omp('task'):\n        pass\n")


def test_only_our_objects_are_directives(on_sim):
    """A call is a directive if it calls `offload.pragma.omp` or `acc`, under any name; other objects are left alone."""
    text = """
        from offload.pragma import omp as openmp
        import contextlib
        from offload import pragma

        class Other:
            def __init__(self):
                self.seen = []

            @contextlib.contextmanager
            def omp(self, string):
                self.seen.append(string)
                yield

        @directives
        def program(log):
            other = Other()
            with other.omp("tsak nonsense"):
                with openmp("task"):
                    log.append(1)
                with pragma.omp("task depend(out: ('log',))"):
                    log.append(2)
                pragma.acc("wait")
                with offload.pragma.omp("taskgroup"):
                    pass
            omp("taskwait")
            return other.seen, sorted(log)
    """
    assert on_sim.string(dedent(text))([]) == (["tsak nonsense"], [1, 2])


def test_a_shadowed_name_is_no_directive(on_sim):
    """A local variable called `omp` is not the object of this package."""
    text = """
        import contextlib

        @directives
        def program(omp):
            with omp("task"):
                return 1
    """
    import contextlib

    assert on_sim.string(dedent(text))(contextlib.nullcontext) == 1


@pytest.mark.parametrize("front", ["omp", "acc", "directives"])
def test_bare_decorators(on_sim, front):
    """`@omp` and `@acc` without a string are `@directives`, over functions and classes."""
    text = f"""
        @{front}
        class Steps:
            rate = 3

            def one(self, log):
                with omp("task"):
                    log.append(self.rate)
                omp("taskwait")

            @staticmethod
            def two(log):
                with omp("task"):
                    log.append(2)
                omp("taskwait")

            @classmethod
            def three(cls, log):
                with omp("task"):
                    log.append(cls.rate + 1)
                omp("taskwait")

            @property
            def four(self):
                with omp("taskgroup"):
                    return 4

        @{front}
        def program(log):
            with omp("taskgroup"):
                Steps().one(log)
                Steps.two(log)
                Steps.three(log)
            return log, Steps().four
    """
    assert on_sim.string(dedent(text))([]) == ([3, 2, 4], 4)


def test_nothing_happens_without_a_device(on_sim):
    """A function that is refused has changed nothing: not the module's names, and no task."""
    text = "before = 1\n\n@directives\ndef program(x):\n    with omp('task'):\n        return\n\nafter = 1\n"
    with offload.record() as graph, pytest.raises(PragmaError):
        import_text(on_sim.folder, text)
    assert not graph.tasks


# -- comments -------------------------------------------------------------------------------------------
WRONG_COMMENTS = {
    "not a directive": "#pragma omp nonsense\n    pass",
    "nothing": "#pragma omp\n    pass",
    "no statement follows": "x = 1\n    #pragma omp task",
    "a loop directive before a statement": "#pragma omp taskloop\n    x = 1",
    "a nest before a while": "#omp parallel for\n    while x: pass",
    "an end without a beginning": "x = 1\n    #$ omp end task",
    "another end": "#$ omp task\n    x = 1\n    y = 2\n    #$ omp end taskgroup",
    "a dedent before the statement": "if x:\n        y = 1\n        #omp task\n    x = 1",
}


@pytest.mark.parametrize("name", WRONG_COMMENTS)
def test_wrong_comments(on_sim, name):
    """A sentinel comment that is no directive, or has nothing to apply to, is a PragmaError at its line."""
    text = f"@directives\ndef program(x):\n    {WRONG_COMMENTS[name]}\n"
    error = error_of(on_sim.folder, text)
    lines = (HEADER + text).splitlines()
    assert error.text.rstrip("\n") == lines[error.lineno - 1]
    assert "#" in error.text or "while" in error.text or "x = 1" in error.text


def test_comments_go_on(on_sim):
    r"""A comment that ends in ``\`` or ``&`` goes on in the next comment with the same sentinel."""
    text = """
        @directives
        def program(x, y):
            #pragma omp target map(to: x) \\
            #pragma omp        map(tofrom: y) \\
            #pragma omp nowait
            y += x
            #$ omp taskwait
            #$omp target &
            #$omp map(tofrom: y)
            y *= 2
            return y.tolist()
    """
    assert on_sim.string(dedent(text))(np.ones(2), np.ones(2)) == [4, 4]


def test_errors_in_continued_comments(on_sim):
    """An error in a continued comment has the line of its token."""
    text = """
        @directives
        def program(x, y):
            #pragma omp target map(to: x) \\
            #pragma omp        mpa(tofrom: y)
            y += x
    """
    error = error_of(on_sim.folder, dedent(text))
    assert error.text[error.offset - 1 : error.end_offset - 1] == "mpa"
    assert error.lineno in (HEADER.count("\n") + 3, HEADER.count("\n") + 4)


def test_where_comments_are_directives(on_sim):
    """Only comments on lines of their own are directives; strings and other comments are none."""
    text = '''
        @directives
        def program(log):
            """A docstring.

            #pragma omp nonsense
            """
            x = 1  #pragma omp nonsense
            # omp nonsense, and #omp nonsense
            text = """
        #omp nonsense
        """
            #omp task
            log.append(x)

            # a comment in between

            #omp task
            # another one
            log.append(x + len(text))
            #$ omp taskwait
            return sorted(log)
    '''
    assert on_sim.string(dedent(text))([])[0] == 1


@pytest.mark.parametrize("sentinel", ["#pragma omp", "#omp", "#$omp", "#$ omp"])
def test_sentinels(on_sim, sentinel):
    """Each sentinel begins a directive, before simple and compound statements, and stand-alone ones."""
    text = f"""
        @directives
        def program(log):
            {sentinel} parallel
            {sentinel} task
            log.append(1)
            {sentinel} taskwait
            {sentinel} taskloop num_tasks(2)
            for i in range(2, 4):
                log.append(i)
            {sentinel} critical
            if log:
                {sentinel} task depend(out: ('log',))
                log.append(4)
            {sentinel} taskwait
            {sentinel} task
            {sentinel} taskgroup
            for i in range(5, 7):
                log.append(i)
            {sentinel} taskwait
    """
    log = []
    on_sim.string(dedent(text))(log)
    assert sorted(log) == [1, 2, 3, 4, 5, 6]


def test_ends(on_sim):
    """`end` closes a block of several statements; blocks nest."""
    text = """
        @directives
        def program(log):
            #$ omp parallel
            log.append("a")
            #$ omp task
            x = 1
            log.append(x)
            #$ omp end task
            #$ omp taskwait
            log.append("b")
            #$ omp end parallel
            log.append("c")
            return log
    """
    assert on_sim.string(dedent(text))([]) == ["a", 1, "b", "c"]


def test_files_with_comments_are_plain_python(on_sim, tmp_path):
    """A file of comment directives runs unchanged by CPython alone, with the same results."""
    text = """
        def program(x, n):
            total = 0.0
            #pragma omp target data map(tofrom: x)
            for k in range(n):
                #pragma omp target nowait depend(inout: x)
                x += k
            #pragma omp taskwait
            #omp parallel for reduction(+: total)
            for i in range(x.size):
                total += x[i]
            return total
    """
    plain = dedent(text)
    path = tmp_path / "plain.py"
    path.write_text("import numpy as np\n" + plain + "print(program(np.zeros(4), 5))\n")
    alone = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    assert float(alone.stdout) == on_sim.string("@directives\n" + plain)(np.zeros(4), 5) == 40


def test_functions_that_differ_in_comments_alone(on_sim):
    """Comments leave no trace in code: two functions of equal code have directives of their own."""
    text = "@directives\ndef program(log):\n    #omp {}\n    log.append(offload.current_task() is not None)\n"
    text += "    #omp taskwait\n    return log\n"
    for word, expected in (("task", True), ("taskgroup", False), ("target", True), ("task", True)):
        assert on_sim.string(text.format(word))([]) == [expected]


def test_a_file_that_has_changed_in_comments(on_sim):
    """A module that is imported again after a change of its comments has the new directives."""
    path = on_sim.folder / "changing.py"
    text = "import offload\nfrom offload.pragma import directives\n\n@directives\ndef program(log):\n    #omp {}\n"
    text += "    log.append(offload.current_task() is not None)\n    #omp taskwait\n    return log\n"
    for word, expected in (("task", True), ("taskgroup", False)):
        path.write_text(text.format(word))
        spec = importlib.util.spec_from_file_location("changing", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert module.program([]) == [expected]


def test_the_harness_says_what_it_is_to(on_sim):
    """The texts with comments have no string directives left."""
    text = "@directives\ndef program(x):\n    with omp('task'):\n        x = 1\n        y = 2\n    omp('taskwait')\n"
    written = as_comments(text)
    assert "omp(" not in written
    assert written.count("#") == 3
