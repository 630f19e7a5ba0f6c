"""`taskgroup`, `taskgraph`, `taskwait`, `taskyield`, `barrier`, `flush` and `cancel` against the calls."""

from __future__ import annotations

import os

import numpy as np
import pytest

import offload
from tests.conformance.pragma.spelling import Twins, dedent
from tests.conftest import checked

TASKS = """
    @offload.task
    def add(x, value):
        x += value

"""


def same(twins, strings, calls, make=lambda: (np.zeros(3), np.zeros(3)), **kwargs):
    head = dedent(TASKS)
    return twins.same(head + "\n" + dedent(strings), head + "\n" + dedent(calls), make, **kwargs)


WAITS = {
    "taskwait": ("taskwait", "offload.taskwait()"),
    "taskwait depend": ("taskwait depend(in: x)", "offload.taskwait(depend=[in_(x)])"),
    "taskwait nowait": ("taskwait depend(in: x) nowait", "offload.taskwait(depend=[in_(x)], nowait=True)"),
    "taskwait nowait(e)": ("taskwait depend(in: x) nowait(n > 3)", "offload.taskwait(depend=[in_(x)])"),
    "taskwait of several": (
        "taskwait depend(inout: x) depend(in: y) nowait",
        "offload.taskwait(depend=[inout(x), in_(y)], nowait=True)",
    ),
    "taskyield": ("taskyield", "offload.taskyield()"),
    "barrier": ("barrier", "offload.barrier()"),
    "flush": ("flush", "pass"),
}


@pytest.mark.parametrize("name", WAITS)
def test_waits(twins, name):
    """Each directive that waits is the call that waits."""
    string, call = WAITS[name]
    lines = """
        {marker}
        def program(x, y):
            n = 2
            add.options(depend=[inout(x)])(x, 1)
            add.options(depend=[inout(y)])(y, 2)
            {line}
            add.options(depend=[inout(x)])(x, 3)
            offload.taskwait()
    """
    same(
        twins,
        lines.replace("{marker}", "@directives").replace("{line}", f'omp("{string}")'),
        lines.replace("{marker}", "# calls").replace("{line}", call),
    )


def test_taskgroup(twins):
    """The end of a taskgroup block waits for tasks and their descendants; it can be left."""
    strings = """
        @directives
        def program(x, y):
            for i in range(3):
                with omp("taskgroup"):
                    add(x, i)
                    if i == 1:
                        break
            with omp("taskgroup"):
                with omp("task"):
                    add(y, 1)
                return x.sum()
    """
    calls = """
        def program(x, y):
            for i in range(3):
                with offload.taskgroup():
                    add(x, i)
                    if i == 1:
                        break
            with offload.taskgroup():
                offload.task(add)(y, 1)
                return x.sum()
    """
    same(twins, strings, calls)


@pytest.mark.parametrize(
    ("operator", "combine", "result"),
    [("+", "add", 9), ("*", "multiply", 24), ("min", "minimum", 2), ("max", "maximum", 4)],
)
def test_task_reduction(twins, operator, combine, result):
    """`task_reduction` is the keyword, for each operator."""
    strings = f"""
        @directives
        def program(x, y):
            member = offload.task(in_reduction={{"{operator}": [x]}})(lambda value, x: np.{combine}(x, value, out=x))
            with omp("taskgroup task_reduction({operator}: x)"):
                member(3, x)
                member(4, x)
    """
    calls = strings.replace("@directives", "# calls").replace(
        f'omp("taskgroup task_reduction({operator}: x)")', f'offload.taskgroup(task_reduction={{"{operator}": [x]}})'
    )
    outcome = same(twins, strings, calls, lambda: (np.array([2.0]), None))
    assert outcome.arguments[0] == result


def test_in_reduction_of_a_function(twins):
    """`in_reduction` over a function is the keyword of the decorator."""
    functions = """
        @omp("task in_reduction(+: total)")
        def member(value, total):
            total += value

        @directives
        def program(total, y):
            with omp("taskgroup task_reduction(+: total)"):
                member(3, total)
                member(4, total)
    """
    calls = """
        @offload.task(in_reduction={"+": ["total"]})
        def member(value, total):
            total += value

        def program(total, y):
            with offload.taskgroup(task_reduction={"+": [total]}):
                member(3, total)
                member(4, total)
    """
    same(twins, functions, calls, lambda: (np.array([2.0]), None))


# -- taskgraph ------------------------------------------------------------------------------------------
GRAPHS = {
    "no clause": ("taskgraph", "taskgraph"),
    "graph_id": ("taskgraph graph_id(7)", "taskgraph(graph_id=7)"),
    "graph_reset": ("taskgraph graph_reset(n > 2)", "taskgraph(graph_reset=True)"),
    "if": ("taskgraph if(n > 5)", "taskgraph(if_=False)"),
    "nogroup": ("taskgraph nogroup", "taskgraph(nogroup=True)"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_taskgraph(twins, name):
    """A taskgraph block is recorded once and replayed, with the tasks and edges that the decorated function has."""
    string, call = GRAPHS[name]
    strings = f"""
        LOG = []

        @directives
        def program(x, y):
            n = 3
            for _ in range(3):
                with omp("{string}"):
                    LOG.append("body")
                    add.options(depend=[inout(x)])(x, 1)
                    add.options(depend=[inout(x)])(x, n)
                omp("taskwait")
            return len(LOG)
    """
    calls = f"""
        LOG = []

        @offload.{call}
        def graph(x, n):
            LOG.append("body")
            add.options(depend=[inout(x)])(x, 1)
            add.options(depend=[inout(x)])(x, n)

        def program(x, y):
            for _ in range(3):
                graph(x, 3)
                offload.taskwait()
            return len(LOG)
    """
    functions = f"""
        LOG = []

        @omp("{string.replace("n > 2", "True").replace("n > 5", "False")}")
        def graph(x, n):
            LOG.append("body")
            add.options(depend=[inout(x)])(x, 1)
            add.options(depend=[inout(x)])(x, n)

        def program(x, y):
            for _ in range(3):
                graph(x, 3)
                offload.taskwait()
            return len(LOG)
    """
    functions = dedent(TASKS) + "\n" + dedent(functions)
    same(twins, strings, calls, functions=functions)
    outcome = same(twins, strings, calls, functions=functions, is_recorded=False)
    assert outcome.arguments[0].tolist() == [12] * 3
    assert outcome.value == (3 if name in {"graph_reset", "if"} else 1)


def test_arguments_of_a_taskgraph(twins):
    """The names that a taskgraph block captures are its arguments: another number or array records again, and names of
    the module do not."""
    strings = """
        LOG = []
        FACTOR = 1

        @directives
        def program(x, y):
            global FACTOR
            for array, value in ((x, 1), (x, 1), (y, 1), (x, 2), (x, 1)):
                FACTOR += 1
                with omp("taskgraph"):
                    LOG.append(FACTOR)
                    add(array, value)
            return LOG
    """
    calls = """
        LOG = []
        FACTOR = 1

        @offload.taskgraph
        def graph(array, value):
            LOG.append(FACTOR)
            add(array, value)

        def program(x, y):
            global FACTOR
            for array, value in ((x, 1), (x, 1), (y, 1), (x, 2), (x, 1)):
                FACTOR += 1
                graph(array, value)
            return LOG
    """
    outcome = same(twins, strings, calls, is_recorded=False)
    assert outcome.value == [2, 4, 5]
    assert outcome.arguments[0].tolist() == [5] * 3


def test_blocks_in_a_taskgraph(twins):
    """Blocks with tasks and targets in a taskgraph block are what is recorded and replayed."""
    strings = """
        @directives
        def program(x, y):
            for _ in range(3):
                with omp("taskgraph"):
                    with omp("target nowait map(tofrom: x) depend(inout: x)"):
                        x += 1
                    with omp("task depend(in: x) depend(inout: y)"):
                        y += x
    """
    calls = """
        @offload.target(nowait=True, map=[tofrom("x")], depend=[inout("x")])
        def one(x):
            x += 1

        @offload.task(depend=[in_("x"), inout("y")])
        def two(x, y):
            y += x

        @offload.taskgraph
        def graph(x, y):
            one(x)
            two(x, y)

        def program(x, y):
            for _ in range(3):
                graph(x, y)
    """
    same(twins, strings, calls)
    outcome = same(twins, strings, calls, is_recorded=False)
    assert outcome.arguments[1].tolist() == [6] * 3


# -- cancellation ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("is_on", ["true", "false"])
@pytest.mark.parametrize(
    ("clause", "call"), [("", ""), (" if(i == 2)", "if i == 2: "), (" if(cancel: i == 2)", "if i == 2: ")]
)
def test_cancel(devices, tmp_path, is_on, clause, call):
    """`cancel taskgroup` and `cancellation point taskgroup` are the calls, also under OMP_CANCELLATION=false."""
    strings = f"""
        @directives
        def program(x, y):
            with omp("taskgroup"):
                for i in range(4):
                    with omp("task if(False)"):
                        omp("cancellation point taskgroup")
                        x[i] = 1
                        omp("cancel taskgroup{clause}")
                        y[i] = 1
    """
    calls = f"""
        def program(x, y):
            def body(x, y, i):
                offload.cancellation_point("taskgroup")
                x[i] = 1
                {call}offload.cancel("taskgroup")
                y[i] = 1

            with offload.taskgroup():
                for i in range(4):
                    offload.task(if_=False)(body)(x, y, i)
    """
    with checked(devices, env={**os.environ, "OMP_CANCELLATION": is_on}):
        outcome = same(Twins(tmp_path), strings, calls, lambda: (np.zeros(4), np.zeros(4)))
    if is_on == "false":
        assert outcome.arguments[1].tolist() == [1] * 4
    else:
        assert outcome.arguments[1].sum() < 4


def test_statements_without_directives(runtime, twins):
    """Without `@directives`, statements without clauses that need no rewriting work."""
    lines = "taskwait", "taskyield", "barrier", "cancel taskgroup", "cancellation point taskgroup"
    text = "def program(x):\n    offload.task(x.append)(1)\n    with offload.taskgroup():\n"
    text += "".join(f"        omp({line!r})\n" for line in lines) + "    omp('taskwait')\n    return list(x)\n"
    module = twins.string("def program(x):\n    offload.task(x.append)(1)\n    omp('taskwait')\n    return list(x)\n")
    assert module([]) == [1]
    assert twins.string(text)([]) == [1]


def test_taskwait_at_module_level(runtime, twins):
    """A stand-alone wait works at module level, too."""
    text = "X = []\noffload.task(X.append)(1)\nomp('taskwait')\nSEEN = list(X)\n\ndef program():\n    return SEEN\n"
    assert twins.string(text)() == [1]


def test_failures_arrive_at_the_wait(twins):
    """A failing block is in the group of exceptions that the next wait raises, with a note that names it."""
    strings = """
        @directives
        def program():
            with omp("task"):
                [][1]
            omp("taskwait")
    """
    with pytest.raises(ExceptionGroup) as caught:
        twins.string(dedent(strings))()
    (error,) = caught.value.exceptions
    assert type(error) is IndexError
    assert any("program.<omp task, line" in note for note in error.__notes__)
    assert offload.current_task() is None
