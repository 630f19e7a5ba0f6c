"""What a block that is taken does with names: each row of the table and each rule below it (§4 of the reference)."""

from __future__ import annotations

import numpy as np
import pytest

import offload
from tests.conformance.pragma.spelling import as_comments, assert_at, dedent, error_of, marked

HEADS = {
    "task": 'omp("task {}")',
    "target": 'omp("target {}")',
    "acc": 'acc("parallel {}")',
}
"""Blocks that are taken; a taskloop's body is one, too."""

FIRST = {"task": "task", "target": "target", "acc": "acc parallel"}


@pytest.fixture(params=["strings", "comments"])
def spelled(request, twins):
    """Import a program in either spelling."""
    return lambda text: twins.string(dedent(text) if request.param == "strings" else as_comments(dedent(text)))


def number(value):
    """Return a number, or an array's elements, as Python has them."""
    return value.tolist() if isinstance(value, np.ndarray) else value


# -- shared --------------------------------------------------------------------------------------------
def test_shared_is_the_variable(spelled):
    """A `shared` name of a task is read and written when the task runs."""
    program = spelled("""
        @directives
        def program(log):
            event = offload.Event()
            x = 1
            with omp("task detach(event)"):
                pass
            with omp("task shared(x) depend(in: x)"):
                log.append(x)
                x = x + 10
            x = x if log else 5
            event.fulfill()
            omp("taskwait")
            return x
    """)
    log = []
    assert program(log) in (11, 15)
    assert log in ([1], [5])


def test_shared_is_read_late(spelled):
    """A `shared` name has the value that it has when the task runs, not when the block is met."""
    program = spelled("""
        @directives
        def program():
            gate = offload.Event()
            x, found = 1, []
            with omp("task shared(x, found) depend(in: gate)"):
                found.append(x)
                x += 1
            x = 5
            gate.fulfill()
            omp("taskwait")
            return x, found
    """)
    assert program() == (6, [5])


def test_shared_may_be_unbound_before(spelled):
    """A `shared` name that only the block assigns is a variable of the function, which has the value afterwards."""
    program = spelled("""
        @directives
        def program():
            with omp("task shared(x)"):
                x = 7
            omp("taskwait")
            return x
    """)
    assert program() == 7


def test_shared_in_a_taskloop(spelled):
    """A `shared` name of a taskloop is the enclosing function's variable."""
    program = spelled("""
        @directives
        def program(n):
            last, lock = None, 0
            with omp("taskloop shared(last) num_tasks(1)"):
                for i in range(n):
                    last = i
            return last
    """)
    assert program(5) == 4


def test_shared_of_nested_blocks(spelled):
    """A name that a task in a task shares is the function's variable in all of them."""
    program = spelled("""
        @directives
        def program():
            x = 0
            with omp("task shared(x)"):
                x = 1
                with omp("task shared(x)"):
                    x += 1
                omp("taskwait")
                x *= 10
            omp("taskwait")
            return x
    """)
    assert program() == 20


# -- private -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["task", "target", "acc"])
def test_private_is_unbound_at_first(spelled, kind):
    """A `private` name is the block's own variable: reading it first is an UnboundLocalError, and the enclosing one
    keeps its value."""
    clause = HEADS[kind].format("private(x)")
    program = spelled(f"""
        @directives
        def program(reads):
            x = 5
            with {clause}:
                if reads:
                    x + 1
                x = 3
            omp("taskwait")
            return x
    """)
    assert program(False) == 5
    with pytest.raises((ExceptionGroup, UnboundLocalError)) as caught:
        program(True)
    error = caught.value.exceptions[0] if isinstance(caught.value, ExceptionGroup) else caught.value
    assert type(error) is UnboundLocalError


def test_private_in_a_taskloop(spelled):
    """A `private` name of a taskloop is each task's own."""
    program = spelled("""
        @directives
        def program(x, n):
            t = -1
            with omp("taskloop private(t) num_tasks(3)"):
                for i in range(n):
                    t = 2 * i
                    x[i] = t
            return t
    """)
    x = np.zeros(6)
    assert program(x, 6) == -1
    assert x.tolist() == [0, 2, 4, 6, 8, 10]


@pytest.mark.parametrize("kind", ["target", "acc"])
def test_private_arrays_have_storage(spelled, kind):
    """A `private` array of a target is storage of its own, of the same shape and type."""
    clause = HEADS[kind].format("private(x)")
    program = spelled(f"""
        @directives
        def program(x, y):
            with {clause}:
                x[...] = 4
                y[...] = x
    """)
    x, y = np.ones(5), np.zeros(5)
    program(x, y)
    assert x.tolist() == [1] * 5
    assert y.tolist() == [4] * 5


# -- firstprivate --------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["task", "target", "acc"])
def test_firstprivate_numbers(spelled, kind):
    """A `firstprivate` number has its value of the encounter, and its assignment stays in the block."""
    clause = HEADS[kind].format("firstprivate(k)")
    program = spelled(f"""
        @directives
        def program(y):
            for k in range(3):
                with {clause}:
                    k += 10
                    y[0] += k
            omp("taskwait")
            return k
    """)
    y = np.zeros(1)
    if kind == "task":
        program = spelled(f"""
            @directives
            def program(y):
                for k in range(3):
                    with {HEADS[kind].format("firstprivate(k) depend(inout: y)")}:
                        k += 10
                        y[0] += k
                omp("taskwait")
                return k
        """)
    assert program(y) == 2
    assert y[0] == 33


@pytest.mark.parametrize("kind", ["task", "target", "acc"])
def test_firstprivate_arrays_are_copied(spelled, kind):
    """A `firstprivate` array has the elements that it had when the block was met."""
    wait = {"task": "depend(in: gate)", "target": "nowait depend(in: gate)", "acc": "async(1)"}[kind]
    clause = HEADS[kind].format(f"firstprivate(x) {wait}")
    program = spelled(f"""
        @directives
        def program(x, y):
            gate = offload.Event()
            if {kind == "acc"}:
                offload.acc.serial(lambda: None).options(async_=1, depend=[in_(gate)])()
            with {clause}:
                x += 1
                y[...] = x
            x[...] = 50
            gate.fulfill()
            omp("taskwait")
    """)
    x, y = np.arange(4.0), np.zeros(4)
    program(x, y)
    assert y.tolist() == [1, 2, 3, 4]
    assert x.tolist() == [50] * 4


def test_firstprivate_in_a_taskloop(spelled):
    """A `firstprivate` name of a taskloop has the encounter's value in each task, and arrays are copied."""
    program = spelled("""
        @directives
        def program(x, n):
            k, a = 100, np.ones(n)
            with omp("taskloop firstprivate(k, a) num_tasks(3)"):
                for i in range(n):
                    a += 1
                    x[i] = k
                    k = 100
            return k, a.tolist()
    """)
    x = np.zeros(6)
    assert program(x, 6) == (100, [1] * 6)
    assert x.tolist() == [100] * 6


# -- results -------------------------------------------------------------------------------------------
RESULTS = {
    "from": 'omp("target map(to: x) map(from: s)")',
    "tofrom": 'omp("target map(to: x) map(tofrom: s)")',
    "copyout": 'acc("parallel copyin(x) copyout(s)")',
    "copy": 'acc("parallel copyin(x) copy(s)")',
}


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("value", ["x.sum()", "float(x.sum())", "3", "x.size"])
def test_results(spelled, name, value):
    """A number in `map(from:)` receives its last value when the body has run, a 0-d device array as its number; the
    variable may be unbound before."""
    program = spelled(f"""
        @directives
        def program(x):
            with {RESULTS[name]}:
                s = 1
                s = {value}
            return s
    """)
    found = program(np.arange(4.0))
    assert found == {"x.sum()": 6, "float(x.sum())": 6, "3": 3, "x.size": 4}[value]
    assert isinstance(found, (int, float, np.number))


@pytest.mark.parametrize("head", ['omp("target map(to: x) map(tofrom: s)")', 'acc("parallel copyin(x) copy(s)")'])
def test_results_begin_with_the_value(spelled, head):
    """`tofrom` and `copy` numbers begin with their value in the block, also for `+=`."""
    program = spelled(f"""
        @directives
        def program(x):
            s = 10
            for _ in range(2):
                with {head}:
                    s += float(x.sum())
            return s
    """)
    assert program(np.arange(4.0)) == 22


def test_deferred_results(spelled):
    """With `nowait`, the variable receives the value before the task is complete: dependent tasks see it."""
    program = spelled("""
        @directives
        def program(x, log):
            with omp("target map(to: x) map(from: s) nowait depend(out: s)"):
                s = x.sum()
            with omp("task depend(in: s) shared(s)"):
                log.append(float(s))
            omp("taskwait")
            return s
    """)
    log = []
    assert program(np.arange(4.0), log) == 6
    assert log == [6]


def test_results_of_globals(spelled):
    """A `global` name in `map(from:)` is the module's variable."""
    program = spelled("""
        TOTAL = 0

        @directives
        def step(x):
            global TOTAL
            with omp("target map(to: x) map(from: TOTAL)"):
                TOTAL = float(x.sum())

        def program(x):
            step(x)
            return TOTAL
    """)
    assert program(np.arange(4.0)) == 6


def test_a_failing_body_gives_nothing(spelled):
    """If the body fails, the variable keeps its value."""
    program = spelled("""
        @directives
        def program(x, seen):
            s = 1
            try:
                with omp("target map(to: x) map(tofrom: s)"):
                    s = 5
                    raise KeyError("as it should")
            except KeyError:
                seen.append("caught")
            return s
    """)
    seen = []
    assert program(np.arange(4.0), seen) == 1
    assert seen == ["caught"]


def test_data_clauses_give_device_arrays(spelled):
    """A name in any other data clause is the device array in the block."""
    for head in ('omp("target map(to: x)")', 'omp("target map(alloc: x)")', 'acc("parallel copyin(x)")'):
        program = spelled(f"""
            @directives
            def program(x):
                with {head}:
                    assert not isinstance(x, np.ndarray)
                    assert x.shape == (4,)
        """)
        program(np.arange(4.0))


# -- global and nonlocal -------------------------------------------------------------------------------
@pytest.mark.parametrize("place", ["function", "block"])
def test_global_names(spelled, place):
    """A name that is `global` in the function or in the block is the module's variable."""
    in_function, in_block = ("global COUNT", "pass") if place == "function" else ("pass", "global COUNT")
    program = spelled(f"""
        COUNT = 0

        @directives
        def step():
            {in_function}
            with omp("task"):
                {in_block}
                COUNT = COUNT + 1
            omp("taskwait")

        def program():
            step()
            step()
            return COUNT
    """)
    assert program() == 2


def test_nonlocal_names(spelled):
    """A `nonlocal` name is the enclosing function's variable, in the function and in its blocks."""
    program = spelled("""
        def program():
            count = 0

            @directives
            def step():
                nonlocal count
                with omp("task"):
                    count += 1
                omp("taskwait")

            step()
            step()
            return count
    """)
    assert program() == 2


def test_enclosing_names_are_read(spelled):
    """Names of enclosing functions that a block reads keep their meaning, with the value at the encounter."""
    program = spelled("""
        def program(log):
            base = 10

            @directives
            def step(i):
                with omp("task depend(out: ('log',))"):
                    log.append(base + i)

            step(1)
            base = 20
            step(2)
            offload.taskwait()
            return log
    """)
    assert program([]) in ([11, 22], [21, 22])


# -- names that are only read --------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["task", "target", "acc"])
def test_numbers_are_captured_by_value(spelled, kind):
    """A number that a block only reads has the value of the encounter, also of a loop variable."""
    deferred = {"task": "depend(inout: y)", "target": "nowait depend(inout: y)", "acc": "async(1)"}[kind]
    program = spelled(f"""
        @directives
        def program(y):
            for i in range(4):
                with {HEADS[kind].format(deferred)}:
                    y[i] = 10 * i
            i = 50
            omp("taskwait")
    """)
    y = np.zeros(4)
    program(y)
    assert y.tolist() == [0, 10, 20, 30]


def test_objects_are_captured_by_reference(spelled):
    """Arrays and other objects are captured by reference: later changes of the object count, rebinding does not."""
    program = spelled("""
        @directives
        def program():
            gate, a, log = offload.Event(), np.zeros(2), []
            first = log
            with omp("task depend(in: gate)"):
                log.append(a[0])
            a[0] = 5
            a, log = np.full(2, 9.0), ["other"]
            gate.fulfill()
            omp("taskwait")
            return first, log
    """)
    assert program() == ([5], ["other"])


MODULE_ARRAYS = """
    TABLE = np.arange(4.0)

    @directives
    def program(y):
        with {head}:
            assert not isinstance(TABLE, np.ndarray)
            y += TABLE
            TABLE[0] = 7
        return TABLE[0]
"""


@pytest.mark.parametrize("head", ['omp("target")', 'omp("target map(tofrom: TABLE)")', 'acc("parallel copy(TABLE)")'])
def test_arrays_of_the_module(spelled, head):
    """In target and acc regions, arrays under module-level names become device arrays, too."""
    y = np.zeros(4)
    assert spelled(MODULE_ARRAYS.format(head=head))(y) == 7
    assert y.tolist() == [0, 1, 2, 3]


def test_names_of_the_module_are_looked_up_when_the_block_runs(spelled):
    """Functions and modules that a block reads are the module's."""
    program = spelled("""
        def helper(v):
            return 2 * v

        @directives
        def program(log):
            with omp("task"):
                log.append(helper(len([1, 2])))
            omp("taskwait")
            return log
    """)
    assert program([]) == [4]


# -- the block's own names -----------------------------------------------------------------------------
LINE = "\n" + " " * 16  # where the block of `test_own_names` stands
OWN = {
    "loop variable": "for j in range(3): y[j] = j",
    "as name": "with contextlib.nullcontext(4) as j: y[0] = j",
    "except name": f"try:{LINE}    [][0]{LINE}except IndexError as j:{LINE}    y[0] = len(j.args)",
    "import": "import math as j; y[0] = j.sqrt(4)",
    "from import": "from math import sqrt as j; y[0] = j(4)",
    "def": f"def j(): return 5{LINE}y[0] = j()",
    "class": f"class j: value = 5{LINE}y[0] = j.value",
}


@pytest.mark.parametrize("name", OWN)
def test_own_names(spelled, name):
    """A loop variable, `as` name, import or `def` of a block is its own: the function's variable keeps its value."""
    program = spelled(f"""
        import contextlib

        @directives
        def program(y):
            j = "before"
            with omp("task"):
                {OWN[name]}
            omp("taskwait")
            return j
    """)
    y = np.zeros(4)
    assert program(y) == "before"
    assert y.any()


def test_own_names_in_a_taskloop(spelled):
    """The variable of a taskloop's `for`, and loops inside, are the tasks' own."""
    program = spelled("""
        @directives
        def program(y, n):
            i = j = "before"
            with omp("taskloop"):
                for i in range(n):
                    for j in range(2):
                        y[i] += j + 1
            return i, j
    """)
    y = np.zeros(4)
    assert program(y, 4) == ("before", "before")
    assert y.tolist() == [3] * 4


@pytest.mark.parametrize("kind", ["task", "target", "acc"])
def test_assigned_and_read_nowhere_else(spelled, kind):
    """A name that only the block assigns and reads is its own; each encounter has another one."""
    program = spelled(f"""
        @directives
        def program(y):
            for i in range(3):
                with {HEADS[kind].format("")}:
                    t = 10 * i
                    u: int = t + 1
                    y[i] = u
            omp("taskwait")
            return "t" in locals()
    """)
    y = np.zeros(3)
    program(y)
    assert y.tolist() == [1, 11, 21]


# -- augmented -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["task", "target", "acc"])
def test_augmented_arrays(spelled, kind):
    """An array that a block changes by `+=` only is captured, and changed in place."""
    program = spelled(f"""
        @directives
        def program(x, y):
            same = x
            with {HEADS[kind].format("")}:
                x += y
                x *= 2
            omp("taskwait")
            return same is x
    """)
    x, y = np.ones(3), np.ones(3)
    assert program(x, y) is True
    assert x.tolist() == [4] * 3


def test_augmented_lists(spelled):
    """So is a list."""
    program = spelled("""
        @directives
        def program(log):
            with omp("task"):
                log += [1, 2]
            omp("taskwait")
            return log
    """)
    assert program([0]) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["task", "target", "acc"])
@pytest.mark.parametrize("value", ["3", "2.5", "True", "np.float64(2)", "'text'", "(1, 2)", "None"])
def test_augmented_numbers(spelled, kind, value):
    """`+=` on a number, or anything else that cannot change in place, is a PragmaError when the block is met."""
    program = spelled(f"""
        @directives
        def program(run):
            s = {value}
            if run:
                with {HEADS[kind].format("")}:
                    s += s
                omp("taskwait")
            return s
    """)
    program(False)
    with pytest.raises(offload.errors.PragmaError) as caught:
        program(True)
    words = ("shared", "private", "firstprivate") if kind == "task" else ("map(" if kind == "target" else "copy",)
    assert any(word in str(caught.value) for word in words)


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
        assert "map(from: s)" in str(error)
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
    text = f"@directives\ndef program(missing, given):\n    with omp('{kind} default(none) shared(given)'):\n        {lines}\n"
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
    text = "@directives\ndef program(x):\n    with omp('taskloop'):\n        for i in range(3):\n            if i:\n                {}\n"
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
    text = f"@directives\ndef program():\n    s = 0\n    with omp('{construct}'):\n        for i in range(3):\n            s += i\n"
    error_of(on_sim.folder, text)


@pytest.mark.parametrize("construct", ["taskgroup task_reduction(+: s)"])
def test_numbers_in_task_reduction(on_sim, construct):
    """`task_reduction` takes arrays, and no numbers."""
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
