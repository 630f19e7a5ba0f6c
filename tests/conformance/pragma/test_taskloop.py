"""`taskloop` with each of its clauses, as a block, as a comment and over a function, against `offload.taskloop`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.pragma.spelling import dedent


def arrays():
    return np.zeros(12), np.arange(12.0), 12


CLAUSES = {
    "no clause": ("", ""),
    "grainsize": ("grainsize(4)", "grainsize=4"),
    "grainsize of an expression": ("grainsize(n // 4)", "grainsize=3"),
    "strict grainsize": ("grainsize(strict: 5)", "grainsize=5, strict=True"),
    "num_tasks": ("num_tasks(n - 9)", "num_tasks=3"),
    "nogroup": ("num_tasks(3) nogroup", "num_tasks=3, nogroup=True"),
    "nogroup with a value": ("num_tasks(3) nogroup(n > 20)", "num_tasks=3"),
    "if": ("num_tasks(3) if(n > 20)", "num_tasks=3, if_=False"),
    "if with the directive": ("num_tasks(3) if(taskloop: n)", "num_tasks=3"),
    "final": ("num_tasks(3) final(n > 2)", "num_tasks=3, final=True"),
    "priority": ("num_tasks(3) priority(2)", "num_tasks=3, priority=2"),
    "untied": ("num_tasks(3) untied mergeable", "num_tasks=3"),
    "shared": ("num_tasks(3) shared(x, y)", "num_tasks=3"),
    "firstprivate": ("num_tasks(3) firstprivate(y)", "num_tasks=3"),
    "default": ("num_tasks(3) default(shared)", "num_tasks=3"),
}


@pytest.mark.parametrize("name", CLAUSES)
def test_clauses(twins, name):
    """Each clause of `taskloop` means in a string what the keyword of the call means."""
    string, keywords = CLAUSES[name]
    body = "        x[i] = y[i] ** 2\n"
    block = (
        f"@directives\ndef program(x, y, n):\n    with omp('taskloop {string}'):\n"
        f"        for i in range(n):\n    {body}    omp('taskwait')\n"
    )
    call = (
        f"def program(x, y, n):\n    @offload.taskloop(range(n), {keywords})\n    def body(part):\n"
        f"        for i in part:\n    {body}\n    offload.taskwait()\n"
    )
    outcome = twins.same(block, call, arrays)
    assert (outcome.arguments[0] == np.arange(12.0) ** 2).all()


FUNCTION_CLAUSES = {
    name: CLAUSES[name] for name in ("no clause", "grainsize", "strict grainsize", "nogroup", "if", "final", "priority")
}


@pytest.mark.parametrize("name", FUNCTION_CLAUSES)
def test_functions(twins, name):
    """A string over a function makes the object that the decorator makes: it takes a range and arguments."""
    string, keywords = CLAUSES[name]
    body = """
        def loop(part, x, y, n=12):
            for i in part:
                x[i] = y[i] ** 2

        def program(x, y, n):
            loop(range(n), x, y)
            offload.taskwait()
    """
    function = f'@omp("taskloop {string}")\n{dedent(body)}'
    call = f"@offload.taskloop({keywords.replace('n //', '12 //')})\n{dedent(body)}"
    twins.same(function, call, arrays, comments=False)


def test_reduction_of_an_array(twins):
    """An array in `reduction` is reduced as in the call, by each operator."""
    strings = """
        @directives
        def program(total, low, y, n):
            with omp("taskloop num_tasks(4) reduction(+: total) reduction(min: low)"):
                for i in range(n):
                    total += y[i]
                    low[...] = min(low, y[i])
    """
    calls = """
        def program(total, low, y, n):
            @offload.taskloop(range(n), num_tasks=4, reduction={"+": [total], "min": [low]})
            def body(part, total, low):
                for i in part:
                    total += y[i]
                    low[...] = min(low, y[i])
    """
    outcome = twins.same(
        dedent(strings), dedent(calls), lambda: (np.array(1.0), np.array(4.5), np.arange(12.0) + 3, 12)
    )
    assert outcome.arguments[0] == 1 + sum(range(3, 15))
    assert outcome.arguments[1] == 3


NUMBERS = {
    "+": ("s += y[i]", 5, 5 + 66),
    "*": ("s *= y[i] + 1", 1, 479001600),
    "min": ("s = min(s, y[i])", 3, 0),
    "max": ("s = max(s, y[i])", 3, 11),
    "and": ("s = s and y[i] < 20", True, True),
    "or": ("s = s or y[i] > 10", False, True),
    "&&": ("s = s and y[i] > 3", True, False),
    "||": ("s = s or y[i] > 20", False, False),
    "&": ("s &= int(y[i]) | 12", 15, 12),
    "|": ("s |= int(y[i])", 0, 15),
    "^": ("s ^= int(y[i])", 1, 1 ^ 0 ^ 1 ^ 2 ^ 3 ^ 4 ^ 5 ^ 6 ^ 7 ^ 8 ^ 9 ^ 10 ^ 11),
}


@pytest.mark.parametrize("operator", NUMBERS)
def test_reduction_of_a_number(twins, operator):
    """A number in `reduction` begins with its value, and receives the parts' copies in order."""
    line, begin, expected = NUMBERS[operator]
    strings = f"""
        @directives
        def program(y, n):
            s = {begin!r}
            with omp("taskloop num_tasks(5) reduction({operator}: s)"):
                for i in range(n):
                    {line}
            return s
    """
    calls = f"""
        def program(y, n):
            offload.taskloop(range(n), lambda part: None, num_tasks=5)
            s = {begin!r}
            for i in range(n):
                {line}
            return s
    """
    outcome = twins.same(dedent(strings), dedent(calls), lambda: (np.arange(12.0), 12))
    assert outcome.value == expected


def test_declared_operators(twins):
    """An operator that `declare_reduction` has declared is that of the call."""
    strings = """
        offload.declare_reduction("gcd", np.gcd)

        @directives
        def program(divisor, n):
            with omp("taskloop num_tasks(5) reduction(gcd: divisor)"):
                for i in range(n):
                    divisor[...] = np.gcd(divisor, 6 * i)
    """
    calls = """
        offload.declare_reduction("gcd", np.gcd)

        def program(divisor, n):
            @offload.taskloop(range(n), num_tasks=5, reduction={"gcd": [divisor]})
            def body(part, divisor):
                for i in part:
                    divisor[...] = np.gcd(divisor, 6 * i)
    """
    outcome = twins.same(dedent(strings), dedent(calls), lambda: (np.array(900), 12))
    assert outcome.arguments[0] == 6


@pytest.mark.parametrize(
    ("iterable", "target"),
    [
        ("range(2, n, 3)", "i"),
        ("list(range(n))", "i"),
        ("y", "i"),
        ("itertools.product(range(3), range(4))", "i, j"),
        ("enumerate(range(n))", "i, j"),
    ],
)
def test_iterables(twins, iterable, target):
    """Each task has a part of the iterable of the `for`, whatever that is."""
    value = "i + 10 * j" if "j" in target else "i"
    strings = f"""
        @directives
        def program(y, n):
            seen = []
            with omp("taskloop num_tasks(3)"):
                for {target} in {iterable}:
                    seen.append(float({value}))
            return sorted(seen)
    """
    calls = f"""
        def program(y, n):
            seen = []
            offload.taskloop({iterable}, lambda part: seen.extend(float({value}) for {target} in part), num_tasks=3)
            return sorted(seen)
    """
    twins.same(dedent(strings), dedent(calls), lambda: (np.arange(5.0), 12))


def test_loops_inside(twins):
    """`break` and `continue` of a loop inside, and a taskloop in a taskloop, are as everywhere."""
    strings = """
        @directives
        def program(a, n):
            with omp("taskloop grainsize(1)"):
                for i in range(n):
                    for j in range(n):
                        if j > i:
                            break
                        if j == 1:
                            continue
                        a[i, j] += 1
                    with omp("taskloop num_tasks(2)"):
                        for j in range(n):
                            a[i, j] *= 2
                    continue
    """
    calls = """
        def program(a, n):
            @offload.taskloop(range(n), grainsize=1)
            def outer(part):
                for i in part:
                    for j in range(i + 1):
                        if j != 1:
                            a[i, j] += 1

                    @offload.taskloop(range(n), num_tasks=2)
                    def inner(part):
                        for j in part:
                            a[i, j] *= 2
    """
    outcome = twins.string(dedent(strings)), twins.string(dedent(calls))
    first, second = np.ones((4, 4)), np.ones((4, 4))
    outcome[0](first, 4)
    outcome[1](second, 4)
    assert (first == second).all()


def test_failures(twins):
    """A failing iteration ends the taskloop with a group of exceptions, as the call does."""
    strings = """
        @directives
        def program(n):
            with omp("taskloop grainsize(1)"):
                for i in range(n):
                    1 / (i - 2)
    """
    with pytest.raises(ExceptionGroup) as caught:
        twins.string(dedent(strings))(4)
    (error,) = caught.value.exceptions
    assert type(error) is ZeroDivisionError
