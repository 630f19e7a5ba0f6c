"""`task` with each of its clauses, as a block, as a comment and over a function, against `offload.task`."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import offload
from tests.conformance.pragma.spelling import dedent


def arrays():
    return np.arange(4.0), np.zeros(4), 3


CLAUSES = {
    "no clause": ("", ""),
    "depend": ("depend(in: x) depend(inout: y)", 'depend=[in_("x"), inout("y")]'),
    "several items": ("depend(inout: x, y)", 'depend=[inout("x", "y")]'),
    "all_memory": ("depend(inout: omp_all_memory)", "depend=[inout(all_memory)]"),
    "if": ("if(n > 5)", "if_=False"),
    "if with the directive": ("if(task: n)", "if_=True"),
    "final": ("final(n > 2)", "final=True"),
    "final that is false": ("final(n > 5)", "final=False"),
    "priority": ("priority(n + 1)", "priority=4"),
    "untied": ("untied mergeable", ""),
    "untied with values": ("untied(True) mergeable(n > 1)", ""),
    "affinity": ("affinity(x, y[0:2])", ""),
    "affinity with an iterator": ("affinity(iterator(i=0:n): x[i])", ""),
}


@pytest.mark.parametrize("name", CLAUSES)
def test_clauses(twins, name):
    """Each clause of `task` means in a string what the keyword of the decorator means."""
    string, keywords = CLAUSES[name]
    body = "    y[...] = 2 * x + n\n"
    program = "def program(x, y, n):\n    task(x, y, n)\n    offload.taskwait()\n"
    function = f"def task(x, y, n):\n{body}\n\n{program}"
    block = f"@directives\ndef program(x, y, n):\n    with omp('task {string}'):\n    {body}    omp('taskwait')\n"
    call = f"@offload.task({keywords})\n{function}"
    outcome = twins.same(block, call, arrays, functions=f"@omp('task {string}')\n{function}")
    assert outcome.nodes[0] == ("task", None)
    assert outcome.arguments[1].tolist() == [3, 5, 7, 9]


TYPES = ("in", "out", "inout", "mutexinoutset", "inoutset")
WORDS = {name: f"{name}_" if name == "in" else name for name in TYPES}


@pytest.mark.parametrize("first", TYPES)
@pytest.mark.parametrize("second", TYPES)
def test_depend_types(twins, first, second):
    """Tasks have the edges between them that the two dependence types have in the call, also through a name."""
    strings = f"""
        @directives
        def program(x):
            total = 3
            with omp("task depend({first}: x[0:2], total)"):
                pass
            with omp("task depend({second}: x[1:2], total)"):
                pass
            omp("taskwait")
    """
    calls = f"""
        def program(x):
            task = offload.task(lambda: None)
            task.options(depend=[{WORDS[first]}(x[0:2], ("total", 0))])()
            task.options(depend=[{WORDS[second]}(x[1:3], ("total", 0))])()
            offload.taskwait()
    """
    twins.same(dedent(strings), dedent(calls), lambda: (np.zeros(4),))


def test_names_in_depend(twins):
    """A bare name that holds a number, a string, None or nothing yet stands for the variable of this activation;
    other values and ``(n,)`` stand for themselves."""
    strings = """
        @directives
        def step(order, key):
            total = 3
            with omp("task depend(out: total) depend(out: key)"):
                order.append(1)
            total = "five"
            with omp("task depend(in: total)"):
                order.append(2)
            total = None
            with omp("task depend(inout: total)"):
                order.append(3)
            with omp("task depend(in: later) depend(in: (3,))"):
                pass
            later = 1
            with omp("task depend(out: later) depend(out: (total,))"):
                pass
            with omp("task depend(in: ('HtoD', later))"):
                pass

        def program(order):
            with offload.taskgroup():
                step(order, ("HtoD", 1))
                step(order, ("HtoD", 2))
            order.sort()
    """
    calls = """
        def step(order, key, number):
            task = offload.task(order.append)
            nothing = offload.task(lambda: None)
            task.options(depend=[out(("total", number)), out(key)])(1)
            task.options(depend=[in_(("total", number))])(2)
            task.options(depend=[inout(("total", number))])(3)
            nothing.options(depend=[in_(("later", number)), in_((3,))])()
            nothing.options(depend=[out(("later", number)), out((None,))])()
            nothing.options(depend=[in_(("HtoD", 1))])()

        def program(order):
            with offload.taskgroup():
                step(order, ("HtoD", 1), 0)
                step(order, ("HtoD", 2), 1)
            order.sort()
    """
    outcome = twins.same(dedent(strings), dedent(calls), lambda: ([],))
    assert outcome.arguments[0] == [1, 1, 2, 2, 3, 3]


def test_recursion_has_variables_of_its_own(twins):
    """Each activation has its own locations, and the rewritten function calls itself by its name."""
    strings = """
        @directives
        def fib(n):
            if n < 2:
                return n
            with omp("task shared(a)"):
                a = fib(n - 1)
            with omp("task shared(b) depend(out: b)"):
                b = fib(n - 2)
            omp("taskwait")
            return a + b

        def program():
            return fib(7)
    """
    calls = """
        def fib(n):
            if n < 2:
                return n
            task = offload.task(fib)
            first, second = task(n - 1), task.options(depend=[out(("b", object()))])(n - 2)
            offload.taskwait()
            return first.result() + second.result()

        def program():
            return fib(7)
    """
    assert twins.same(dedent(strings), dedent(calls)).value == 13


def test_detach(twins):
    """`detach` attaches the Event that the name holds when the block is met."""
    strings = """
        @directives
        def program(x):
            event = offload.Event()
            with omp("task detach(event) depend(out: x)"):
                x += 1
            with omp("task depend(in: x)"):
                event2 = 3
            event.fulfill()
            omp("taskwait")
            return event.is_fulfilled
    """
    calls = """
        def program(x):
            event = offload.Event()

            @offload.task(detach=event, depend=[out("x")])
            def one(x):
                x += 1

            one(x)
            offload.task(depend=[in_(x)])(lambda: None)()
            event.fulfill()
            offload.taskwait()
            return event.is_fulfilled
    """
    assert twins.same(dedent(strings), dedent(calls), lambda: (np.zeros(4),)).value is True


@pytest.mark.parametrize("before", ["pass", "event = None", "event = 3"])
def test_detach_makes_an_event(twins, before):
    """If the name of `detach` holds no Event, a new one is bound to it, and the body has that one."""
    strings = f"""
        @directives
        def program(log):
            {before}
            with omp("task detach(event)"):
                log.append(isinstance(event, offload.Event))
            event.fulfill()
            omp("taskwait")
            return isinstance(event, offload.Event)
    """
    calls = """
        def program(log):
            event = offload.Event()
            offload.task(detach=event)(lambda: log.append(True))()
            event.fulfill()
            offload.taskwait()
            return True
    """
    outcome = twins.same(dedent(strings), dedent(calls), lambda: ([],))
    assert outcome.value is True
    assert outcome.arguments[0] == [True]


def test_detach_in_the_body(twins):
    """The body may fulfil the event of its own task."""
    strings = """
        @directives
        def program():
            for _ in range(2):
                event = None
                with omp("task detach(event)"):
                    offload.fulfill_event(event)
            omp("taskwait")
    """
    calls = """
        def program():
            for _ in range(2):
                event = offload.Event()
                offload.task(detach=event)(offload.fulfill_event)(event)
            offload.taskwait()
    """
    twins.same(dedent(strings), dedent(calls))


def test_in_reduction(twins):
    """`in_reduction` takes part in the taskgroup's reduction: the body has a private array under the name."""
    strings = """
        @directives
        def program(total, n):
            with omp("taskgroup task_reduction(+: total)"):
                for i in range(n):
                    with omp("task in_reduction(+: total)"):
                        total += i
    """
    calls = """
        def program(total, n):
            task = offload.task(lambda i, total: total.__iadd__(i) and None, in_reduction={"+": [total]})
            with offload.taskgroup(task_reduction={"+": [total]}):
                for i in range(n):
                    task(i, total)
    """
    outcome = twins.same(dedent(strings), dedent(calls), lambda: (np.array([7.0]), 10))
    assert outcome.arguments[0].tolist() == [52]


def test_depobj_in_depend(twins):
    """`depend(depobj: o)` is the dependence that the object holds."""
    strings = """
        @directives
        def program(x):
            o = offload.depobj(offload.inout(x))
            with omp("task depend(depobj: o)"):
                x += 1
            with omp("task depend(depobj: o) depend(in: (1,))"):
                x *= 2
            omp("taskwait")
    """
    calls = """
        @offload.task
        def add(x):
            x += 1

        @offload.task
        def double(x):
            x *= 2

        def program(x):
            o = offload.depobj(offload.inout(x))
            add.options(depend=[o])(x)
            double.options(depend=[o, in_((1,))])(x)
            offload.taskwait()
    """
    assert twins.same(dedent(strings), dedent(calls), lambda: (np.ones(3),)).arguments[0].tolist() == [4] * 3


def test_tasks_and_events_in_depend(twins):
    """A name that holds a Task or an Event is that item: the block runs after it."""
    strings = """
        @directives
        def program(x):
            event = offload.Event()
            first = offload.task(lambda x: x.__iadd__(1) and None, depend=[])(x)
            with omp("task depend(in: first, event)"):
                x *= 2
            event.fulfill()
            omp("taskwait")
    """
    calls = """
        def program(x):
            event = offload.Event()
            first = offload.task(lambda x: x.__iadd__(1) and None, depend=[])(x)

            @offload.task(depend=[in_(first, event)])
            def double(x):
                x *= 2

            double(x)
            event.fulfill()
            offload.taskwait()
    """
    add = "def add(x):\n    x += 1\n\n"
    strings, calls = (
        add + dedent(text).replace("lambda x: x.__iadd__(1) and None, depend=[]", "add") for text in (strings, calls)
    )
    assert twins.same(strings, calls, lambda: (np.ones(2),)).arguments[0].tolist() == [4, 4]


def test_async_functions(twins):
    """A string over an `async def` makes a task whose body runs on the event loop."""
    program = twins.string(
        dedent("""
        @omp("task depend(inout: x)")
        async def program(x):
            x += 1
            return float(x[0])
        """)
    )

    async def main():
        x = np.zeros(2)
        return await program(x), await program(x)

    assert asyncio.run(main()) == (1, 2)


def test_names_of_tasks(twins, tmp_path):
    """A block's task is called after the function, the directive and the line, and its location is that line."""
    strings = """
        @directives
        def program(x):
            with omp("task depend(inout: x)"):
                x += 1
            with omp("target depend(inout: x)"):
                x += 1
            with omp("taskwait"):
                pass
    """
    program = twins.string(dedent(strings))
    with offload.record() as graph:
        program(np.zeros(2))
    line = program.__code__.co_firstlineno + 2
    first, second = graph.tasks[:2]
    assert first.name == f"program.<omp task, line {line}>"
    assert second.name == f"program.<omp target, line {line + 2}>"
    assert first.location.endswith(f".py:{line}")
    assert second.location.endswith(f".py:{line + 2}")
