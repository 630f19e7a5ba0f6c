"""Names that a block must not have, what `default` says of them, sections, and how control stays in a block (§4)."""

from __future__ import annotations

import numpy as np
import pytest

import offload
from tests.conformance.pragma.spelling import as_comments, assert_at, dedent, error_of, marked, shape_of
from tests.conformance.pragma.test_names import HEADS

# -- everything else -----------------------------------------------------------------------------------
ASSIGNED = {
    "assignment": "s = 1",
    "tuple": "s, t = 1, 2",
    "starred": "*s, t = [1, 2]",
    "walrus": "(s := 1)",
    "annotated": "s: int = 1",
    "deleted": "del s",
}


@pytest.mark.parametrize("spelling", ["strings", "comments"])
@pytest.mark.parametrize("kind", ["task", "target", "acc", "taskloop"])
@pytest.mark.parametrize("name", ASSIGNED)
def test_assigned_names_ask(on_sim, spelling, kind, name):
    """A name that a block assigns and the function reads elsewhere is a PragmaError at decoration, which asks."""
    head = {**HEADS, "taskloop": 'omp("taskloop {}")'}[kind].format("")
    inside = [ASSIGNED[name]] if kind != "taskloop" else ["for i in range(3):", "    " + ASSIGNED[name]]
    lines = "\n        ".join(inside)
    text = f"@directives\ndef program():\n    s = 0\n    with {head}:\n        {lines}\n    return s\n"
    if spelling == "comments":
        text = as_comments(text)
    error = error_of(on_sim.folder, text)
    assert "s" in str(error)
    if kind in ("task", "taskloop"):
        assert all(word in str(error) for word in ("shared", "private", "firstprivate"))
    elif kind == "target":
        assert "map(from: s)" in str(error) or "map(tofrom: s)" in str(error)
    assert error.filename.endswith(".py")


def test_default_shared(spelled):
    """`default(shared)` on the construct, on a `parallel` around it or on `@directives` shares every other name."""
    for decorator, around, clause in (
        ("@directives", "contextlib.nullcontext()", "default(shared)"),
        ("@directives", 'omp("parallel default(shared)")', ""),
        ('@directives(default="shared")', "contextlib.nullcontext()", ""),
        ("@directives", 'omp("parallel default(shared)")', "default(shared) firstprivate(k)"),
    ):
        program = spelled(f"""
            import contextlib

            {decorator}
            def program():
                s, k, i = 1, 2, "before"
                with {around}:
                    with omp("task {clause}"):
                        s = s + 1
                        for i in range(3):
                            pass
                    omp("taskwait")
                return s, i
        """)
        assert program() == (2, "before"), (decorator, around, clause)


def test_default_shared_has_exceptions(spelled):
    """Under `default(shared)`, a name in a clause is what the clause says."""
    program = spelled("""
        @directives(default="shared")
        def program():
            s = k = 1
            with omp("task firstprivate(k)"):
                s, k = 5, 6
            omp("taskwait")
            return s, k
    """)
    assert program() == (5, 1)


@pytest.mark.parametrize("kind", ["task", "taskloop"])
def test_default_none(on_sim, kind):
    """With `default(none)`, a name of the function in no clause is an error that names it."""
    lines = "print(missing)" if kind == "task" else "for i in range(3):\n            print(missing)"
    head = f"with omp('{kind} default(none) shared(given)'):"
    text = f"@directives\ndef program(missing, given):\n    {head}\n        {lines}\n"
    error = error_of(on_sim.folder, text)
    assert "missing" in str(error)
    text = text.replace("shared(given)", "shared(given) firstprivate(missing)")
    on_sim.string(text)(1, 2)
    offload.taskwait()


@pytest.mark.parametrize(("default", "expected"), [("firstprivate", ([1, 1], 3)), ("private", "unbound")])
def test_default_private(spelled, default, expected):
    """`default(firstprivate)` copies names in no clause; `default(private)` leaves them unbound."""
    program = spelled(f"""
        @directives
        def program(a):
            s = 3
            with omp("task default({default})"):
                a[0] = s
                s = 4
            omp("taskwait")
            return a.tolist(), s
    """)
    if expected == "unbound":
        with pytest.raises(ExceptionGroup) as caught:
            program(np.ones(2))
        assert isinstance(caught.value.exceptions[0], UnboundLocalError)
    else:
        assert program(np.ones(2)) == expected


def test_shared_in_another_block(on_sim):
    """A name that one block shares and another reads in no clause is a PragmaError, which asks."""
    text = dedent("""
        @directives
        def program():
            s = 0
            with omp("task shared(s)"):
                s = 1
            with omp("task"):
                print(s)
            return s
    """)
    assert "s" in str(error_of(on_sim.folder, text))
    on_sim.string(text.replace('omp("task")', 'omp("task firstprivate(s)")'))


@pytest.mark.parametrize("kind", ["task", "target", "acc"])
def test_unbound_names(spelled, kind):
    """A captured name that is unbound at the encounter is unbound in the block: reading it fails the task."""
    program = spelled(f"""
        @directives
        def program(binds, reads, y):
            if binds:
                s = 4
            with {HEADS[kind].format("")}:
                if reads:
                    y[0] = s
            omp("taskwait")
    """)
    y = np.zeros(1)
    program(False, False, y)
    program(True, True, y)
    assert y[0] == 4
    with pytest.raises((ExceptionGroup, UnboundLocalError)) as caught:
        program(False, True, y)
    error = caught.value.exceptions[0] if isinstance(caught.value, ExceptionGroup) else caught.value
    assert type(error) is UnboundLocalError


def test_names_in_strings_count(on_sim):
    """A name that only a string mentions is the function's or the module's; an enclosing function's is an error that
    says to mention it."""
    on_sim.string(
        dedent("""
        N = 3

        @directives
        def program(x):
            lo = 1
            with omp("task depend(inout: x[lo:N])"):
                pass
            omp("taskwait")
        """)
    )(np.zeros(5))
    text = dedent("""
        def outer(x):
            lo = 1

            @directives
            def program():
                with omp("task depend(inout: x[«lo»:2])"):
                    x[0] = 1

            return program

        program = outer(np.zeros(4))
    """)
    plain, place = marked(text)
    error = error_of(on_sim.folder, plain)
    assert_at(error, place, plain)
    assert "mention" in str(error)
    on_sim.string(plain.replace("x[0] = 1", "x[0] = lo"))()
    offload.taskwait()


def test_super_and_mangled_names(spelled):
    """`self.__x`, `super()` and `__class__` mean in a block what they mean around it."""
    program = spelled("""
        class Base:
            def name(self):
                return "base"

        class Child(Base):
            def __init__(self):
                self.__x = 3

            def name(self):
                return "child"

            @directives
            def run(self, log):
                with omp("task depend(inout: self.__x, ('log',))"):
                    log.append(self.__x)
                    self.__x = 4
                    log.append(super().name())
                    log.append(__class__.__name__)
                omp("taskwait")
                log.append(self.__x)
                return log

        def program():
            return Child().run([])
    """)
    assert program() == [3, "base", "Child", 4]


# -- sections ------------------------------------------------------------------------------------------
SECTIONS = {
    "map": 'omp("target map(tofrom: a[lo:n])")',
    "copy": 'acc("parallel copy(a[lo:n])")',
    "nowait": 'omp("target nowait depend(inout: a[lo:n]) map(tofrom: a[lo:n])")',
}


@pytest.mark.parametrize("name", SECTIONS)
@pytest.mark.parametrize(
    "line",
    [
        "a[lo] = 50",
        "a[lo + 1] += 50",
        "a[lo:lo + n] *= 2",
        "a[lo:lo + n:2] = 1",
        "a[-len0 + lo] = 5",
        "a[lo - 8:lo + n - 8] = 3",
        "a[lo + n - 1] = a[lo] + 1",
    ],
)
def test_indices_of_a_section(spelled, name, line):
    """An array keeps its indices if a clause names a section of it, also negative ones."""
    program = spelled(f"""
        @directives
        def program(a, lo, n, len0):
            with {SECTIONS[name]}:
                {line}
            omp("taskwait")
    """)
    a, expected = np.arange(8.0), np.arange(8.0)
    program(a, 2, 4, 8)
    exec(line, {"a": expected, "lo": 2, "n": 4, "len0": 8})
    assert a.tolist() == expected.tolist()


@pytest.mark.parametrize("index", ["lo - 1", "lo + n", "0", "-1", "slice(0, 3)", "slice(lo, lo + n + 1)", "..."])
def test_indices_outside_of_a_section(spelled, index):
    """An index outside of the section is an IndexError that names index and section."""
    program = spelled(f"""
        @directives
        def program(a, lo, n):
            with omp("target map(tofrom: a[lo:n])"):
                a[{index}] = 1
    """)
    a = np.arange(8.0)
    with pytest.raises(IndexError, match="a"):
        program(a, 2, 4)
    assert a.tolist() == list(range(8))


def test_sections_of_several_dimensions(spelled):
    """Rows and columns keep their indices, and views of the section can be bound."""
    program = spelled("""
        @directives
        def program(a, i, j):
            with omp("target map(tofrom: a[i:2, j:3])"):
                a[i, j] = 50
                a[i + 1, j:j + 3] += 1
                part = a[i:i + 2, j:j + 3]
                part *= 2
    """)
    a, expected = np.arange(20.0).reshape(4, 5), np.arange(20.0).reshape(4, 5)
    program(a, 1, 1)
    expected[1, 1] = 50
    expected[2, 1:4] += 1
    expected[1:3, 1:4] *= 2
    assert a.tolist() == expected.tolist()


@pytest.mark.parametrize("use", ["a + 1", "f(a)", "a += 1", "b = a", "a.sum()"])
def test_a_section_without_a_subscript(on_sim, use):
    """Using the array of a section without a subscript is a PragmaError that says to bind the view."""
    text = f"""
        def f(a):
            pass

        @directives
        def program(a, n):
            with omp("target map(tofrom: a[0:n])"):
                {use}
    """
    with pytest.raises(offload.errors.PragmaError) as caught:
        on_sim.string(dedent(text))(np.zeros(5), 3)
    assert "a[" in str(caught.value)


def test_the_whole_array_as_a_section(spelled):
    """If the section is the whole array, the block may use it without a subscript."""
    program = spelled("""
        @directives
        def program(a, n):
            with omp("target map(tofrom: a[0:n])"):
                a += 1
                a[0] = a.sum()
    """)
    a = np.ones(4)
    program(a, 4)
    assert a.tolist() == [8, 2, 2, 2]


def test_strided_sections(on_sim):
    """A section with a stride in a data clause of a block is a PragmaError."""
    for head in ('omp("target map(tofrom: a[0:2:2])")', 'acc("parallel copy(a[0:2:2])")'):
        text = f"@directives\ndef program(a):\n    with {head}:\n        a[0] = 1\n"
        with pytest.raises(offload.errors.PragmaError):
            on_sim.string(text)(np.zeros(5))


def test_rebinding_a_mapped_array(spelled):
    """If the block rebinds an array in `map(from: y)`, that is a ClauseError when the body has run."""
    for clause in ("from", "tofrom"):
        program = spelled(f"""
            @directives
            def program(x, y):
                with omp("target map(to: x) map({clause}: y)"):
                    y = 2 * x
        """)
        y = np.zeros(3)
        with pytest.raises(offload.ClauseError, match="y"):
            program(np.ones(3), y)
        assert y.tolist() == [0] * 3


LEAVING = {
    "return": "return 1",
    "bare return": "return",
    "yield": "yield 1",
    "yield from": "yield from [1]",
    "break": "break",
    "continue": "continue",
    "break in if": "if x: break",
}


@pytest.mark.parametrize("spelling", ["strings", "comments"])
@pytest.mark.parametrize("kind", ["task", "target", "acc"])
@pytest.mark.parametrize("name", LEAVING)
def test_control_must_not_leave(on_sim, spelling, kind, name):
    """`return`, `yield`, and `break` or `continue` of a loop outside are a PragmaError at their line."""
    head = HEADS[kind].format("")
    text = f"@directives\ndef program(x):\n    for i in range(3):\n        with {head}:\n            {LEAVING[name]}\n"
    if spelling == "comments":
        text = as_comments(text)
    error = error_of(on_sim.folder, text)
    word = name.split()[0] if name != "bare return" else "return"
    assert error.text[error.offset - 1 :].startswith(word)
    assert error.text.strip() == LEAVING[name]


def test_control_must_not_leave_a_taskloop(on_sim):
    """`break` of a taskloop's own `for` is a PragmaError; `continue` of it is none."""
    loop = "for i in range(3):\n            if i:\n                {}\n"
    text = f"@directives\ndef program(x):\n    with omp('taskloop'):\n        {loop}"
    for word in ("break", "return"):
        error = error_of(on_sim.folder, text.format(word))
        assert error.text.strip() == word
    on_sim.string(text.format("continue"))(1)


def test_await_in_a_block(on_sim):
    """`await` in a taken block is a PragmaError; blocks that stay may await."""
    text = "@directives\nasync def program(x):\n    with omp('task'):\n        await x\n"
    assert error_of(on_sim.folder, text).text.strip() == "await x"
    for more in ("async for _ in x: pass", "async with x: pass"):
        assert error_of(on_sim.folder, text.replace("await x", more)).lineno


def test_control_inside(spelled):
    """Loops, functions and generators inside of the block have their own `break`, `return` and `yield`."""
    program = spelled("""
        @directives
        def program(log):
            with omp("task"):
                for i in range(5):
                    if i == 2:
                        break
                    if i == 0:
                        continue
                    log.append(i)

                def inner():
                    for k in range(2):
                        yield k
                    return 1

                log.extend(inner())
                log.append((lambda: 7)())
            omp("taskwait")
            return log
    """)
    assert program([]) == [1, 0, 1, 7]


# -- reductions ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("construct", ["taskloop nogroup reduction(+: s)"])
def test_numbers_in_reductions_with_nogroup(on_sim, construct):
    """`nogroup` contradicts `reduction`."""
    loop = "for i in range(3):\n            s += i\n"
    text = f"@directives\ndef program():\n    s = 0\n    with omp('{construct}'):\n        {loop}"
    error_of(on_sim.folder, text)


@pytest.mark.parametrize("construct", ["taskgroup task_reduction(+: s)", "task in_reduction(+: s)"])
def test_numbers_in_task_reduction(on_sim, construct):
    """`task_reduction` and `in_reduction` take arrays, and no numbers."""
    text = f"@directives\ndef program():\n    s = 0\n    with omp('{construct}'):\n        pass\n"
    with pytest.raises(offload.ClauseError):
        on_sim.string(text)()


def test_lists_in_a_taskgraph(on_sim):
    """A list that a taskgraph block captures is an argument: if the block changes it, that is the call's error."""
    text = """
        @directives
        def program(log):
            with omp("taskgraph"):
                log.append(1)
    """
    with pytest.raises(offload.UsageError, match="list"):
        on_sim.string(dedent(text))([])
    with pytest.raises(offload.UsageError, match="list"):
        offload.taskgraph(lambda log: log.append(1))([])


# -- numbers in ``depend`` -------------------------------------------------------------------------------
PLACES = {"list": ("[0]", "c[0]"), "dict": ("{'k': 0}", "c['k']"), "attribute": ("Counter()", "c.n")}


@pytest.mark.parametrize("name", PLACES)
def test_a_number_in_an_object_orders_tasks(spelled, name):
    """Tasks that name the same element or attribute are ordered, although its number changes in between."""
    made, item = PLACES[name]
    program = spelled(f"""
        class Counter:
            n = 0

        @directives
        def program():
            a = np.zeros(1)
            c = {made}
            with omp("task depend(out: {item})"):
                pass
            {item} = 7
            with omp("task depend(in: {item})"):
                pass
            {item} = 8
            omp("target update to(a) nowait depend(inout: {item})")
            omp("taskwait")
    """)
    with offload.record() as graph:
        program()
    edges = {(edge.source.index, edge.target.index) for edge in graph.edges if edge.kind != "wait"}
    assert edges == {(0, 1), (1, 2)}


def test_a_number_in_a_list_has_the_edges_of_the_call(on_sim):
    """A number in a list is also the value that it is for the call: one edge for each pair of tasks."""
    program = on_sim.string(
        dedent("""
        @directives
        def program(keys):
            with omp("task depend(out: keys[0], keys[1])"):
                pass
            with omp("task depend(in: keys[1], keys[0])"):
                pass
            keys[0] = 3
            with omp("task depend(inout: keys[1], keys[0])"):
                pass
            omp("taskwait depend(in: (5,))")
        """)
    )

    def call(keys):
        offload.task(depend=[offload.out(keys[0], keys[1])])(lambda: None)()
        offload.task(depend=[offload.in_(keys[1], keys[0])])(lambda: None)()
        keys[0] = 3
        offload.task(depend=[offload.inout(keys[1], keys[0])])(lambda: None)()
        offload.taskwait(depend=[offload.in_((5,))])

    graphs = []
    for run in (program, call):
        with offload.record() as graph:
            run([1, 2])
            offload.taskwait()
        graphs.append((shape_of(graph), len(graph.edges)))
    assert graphs[0] == graphs[1]


# -- blocks in blocks ------------------------------------------------------------------------------------
INNER = {
    "task": ["with omp('task'):", "    a += 1"],
    "target": ["with omp('target map(tofrom: a)'):", "    a += 1"],
    "target without clauses": ["with omp('target'):", "    a += 1"],
    "acc": ["with acc('parallel copy(a)'):", "    a += 1"],
    "taskloop": ["with omp('taskloop'):", "    for i in range(1):", "        a += 1"],
    "taskloop reduction": ["with omp('taskloop reduction(+: a)'):", "    for i in range(1):", "        a += 1"],
}


@pytest.mark.parametrize("outer", ["task", "taskloop", "two tasks"])
@pytest.mark.parametrize("inner", INNER)
def test_a_block_in_a_block_changes_an_array_in_place(on_sim, outer, inner):
    """`a += 1` in an inner block changes an array in place for the outer one, too; a number is an error of an
    encounter, which may be in a task."""
    if inner == "taskloop reduction" and outer == "taskloop":
        outer = "task"
    heads = {
        "task": ["with omp('task'):"],
        "taskloop": ["with omp('taskloop'):", "    for k in range(1):"],
        "two tasks": ["with omp('task'):", "    with omp('task'):"],
    }[outer]
    depth = "    " * len(heads)
    lines = "\n    ".join([*heads, *(depth + line for line in INNER[inner]), f"{depth}omp('taskwait')"])
    text = f"@directives\ndef program(a):\n    {lines}\n    omp('taskwait')\n    return a\n"
    program = on_sim.string(text)
    a = np.zeros(2)
    assert program(a) is a
    offload.barrier()
    assert a.tolist() == [1, 1]
    with pytest.raises((offload.errors.PragmaError, ExceptionGroup)) as caught:
        program(1)
        offload.barrier()
    error = caught.value
    while isinstance(error, ExceptionGroup):
        (error,) = error.exceptions
    assert "a holds a value that does not change in place" in str(error)
    assert error.text[error.offset - 1 : error.end_offset - 1] == "a"
