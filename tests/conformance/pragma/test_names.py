"""What a block that is taken does with names: each row of the table and each rule below it (§4 of the reference)."""

from __future__ import annotations

import numpy as np
import pytest

import offload

HEADS = {
    "task": 'omp("task {}")',
    "target": 'omp("target {}")',
    "acc": 'acc("parallel {}")',
}
"""Blocks that are taken; a taskloop's body is one, too."""


# -- shared --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("is_early", [False, True])
def test_shared_is_the_variable(spelled, is_early):
    """A `shared` name of a task is read and written when the task runs."""
    program = spelled("""
        @directives
        def program(log, is_early):
            event = offload.Event()
            x = 1
            with omp("task detach(event) depend(out: x)"):
                pass
            with omp("task shared(x) depend(in: x)"):
                log.append(x)
                x = x + 10
            if is_early:
                event.fulfill()
                omp("taskwait")
            x = x if log else 5
            if not is_early:
                event.fulfill()
            omp("taskwait")
            return x
    """)
    log = []
    assert program(log, is_early) == (11 if is_early else 15)
    assert log == [1 if is_early else 5]


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


def test_deferred_results_begin_late(spelled):
    """A number in `map(tofrom:)` begins with the value that the variable has when the region runs."""
    program = spelled("""
        @directives
        def program():
            gate, s = offload.Event(), 1
            with omp("task depend(in: gate) depend(out: s) shared(s)"):
                s = 10
            with omp("target nowait depend(inout: s) map(tofrom: s)"):
                s = s + 1
            gate.fulfill()
            omp("taskwait")
            return s
    """)
    assert program() == 11


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
