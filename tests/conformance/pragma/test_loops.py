"""OpenMP's loop directives as strings and comments against `target_loop` and `parallel_loop`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import offload
from tests.conformance.pragma.spelling import HEADER, dedent


def arrays():
    return np.arange(12.0), np.ones(12), 3


ON_DEVICE = (
    "target teams distribute parallel for",
    "target teams distribute parallel for simd",
    "target teams distribute",
    "target teams loop",
    "target parallel for",
    "target parallel for simd",
    "target parallel loop",
    "target simd",
    "target teams distribute simd",
)
ON_HOST = (
    "parallel for",
    "parallel for simd",
    "parallel loop",
    "teams distribute parallel for",
    "teams loop",
    "for",
    "for simd",
    "loop",
)


def loop_program(directive, clauses=""):
    return dedent(f"""
        @directives
        def program(x, y, n):
            with omp("{directive} {clauses}"):
                for i in range(1, x.size):
                    y[i] += n * x[i - 1]
    """)


def call_program(decorator):
    return dedent(f"""
        @{decorator}
        def loop(x, y, n):
            for i in range(1, x.size):
                y[i] += n * x[i - 1]

        def program(x, y, n):
            loop(x, y, n)
    """)


@pytest.mark.parametrize("directive", ON_DEVICE)
def test_device_loops(twins, directive):
    """Each combination with `target` is a `target_loop`."""
    outcome = twins.same(loop_program(directive), call_program("offload.target_loop"), arrays)
    assert outcome.arguments[1].tolist() == [1, *(1 + 3 * k for k in range(11))]


@pytest.mark.parametrize("directive", ON_HOST)
def test_host_loops(twins, directive):
    """Each combination without `target` is a `parallel_loop`."""
    twins.same(loop_program(directive), call_program("offload.parallel_loop"), arrays)


def test_simd(twins):
    """`simd` is a `parallel_loop` on one thread."""
    twins.same(loop_program("simd"), call_program("offload.parallel_loop(num_threads=1)"), arrays)


DEVICE_CLAUSES = {
    "map": ("map(to: x) map(tofrom: y)", 'map=[to("x"), tofrom("y")]'),
    "nowait": ("nowait depend(inout: y)", 'nowait=True, depend=[inout("y")]'),
    "device": ("device(0)", "device=0"),
    "if": ("if(n > 5)", "if_=False"),
    "if with the directive": ("if(target: n > 5)", "if_=False"),
    "num_teams": ("num_teams(4) thread_limit(64)", "num_teams=4, thread_limit=64"),
    "num_threads": ("num_threads(n)", "num_threads=3"),
    "shared": ("shared(x, y)", ""),
    "default": ("default(shared)", ""),
    "schedule": ("schedule(static)", 'schedule="static"'),
    "dist_schedule": ("dist_schedule(static, 4) proc_bind(close)", ""),
}
ONLY_OPENMP_WITHOUT_EFFECT = "safelen(8) simdlen(4) aligned(x: 64) nontemporal(y)"


@pytest.mark.parametrize("name", DEVICE_CLAUSES)
def test_clauses_on_a_device(twins, name):
    """Each clause of a loop on a device means in a string what the keyword of `target_loop` means."""
    string, keywords = DEVICE_CLAUSES[name]
    strings = loop_program("target teams distribute parallel for", string) + "    omp('taskwait')\n"
    calls = call_program(f"offload.target_loop({keywords})") + "    offload.taskwait()\n"
    twins.same(strings, calls, arrays)


HOST_CLAUSES = {
    "num_threads": ("num_threads(2)", "num_threads=2"),
    "num_threads of an expression": ("num_threads(n - 1)", "num_threads=2"),
    "if": ("if(n > 1)", ""),
    "schedule": ("schedule(static)", 'schedule="static"'),
    "a chunk": ("schedule(dynamic, 4)", 'schedule=("dynamic", 4)'),
    "shared": ("shared(x, y, n)", ""),
    "default": ("default(shared)", ""),
    "proc_bind": ("proc_bind(spread)", ""),
    "firstprivate": ("firstprivate(n)", 'firstprivate=["n"]'),
}


@pytest.mark.parametrize("name", HOST_CLAUSES)
def test_clauses_on_the_host(twins, name):
    """Each clause of a loop on the host means in a string what the keyword of `parallel_loop` means."""
    string, keywords = HOST_CLAUSES[name]
    twins.same(loop_program("parallel for", string), call_program(f"offload.parallel_loop({keywords})"), arrays)


@pytest.mark.parametrize("string", [ONLY_OPENMP_WITHOUT_EFFECT, "order(concurrent)"])
def test_clauses_without_effect(twins, string):
    """Clauses that speak of vectors and caches change nothing."""
    strings = loop_program("parallel for simd", string)
    twins.same(strings, call_program("offload.parallel_loop"), arrays)


def test_num_threads_of_the_block(twins):
    """A `for` in a `parallel` block has the block's number of threads."""
    strings = """
        @directives
        def program(x, y, n):
            with omp("parallel num_threads(2)"):
                with omp("for"):
                    for i in range(1, x.size):
                        y[i] += n * x[i - 1]
                with omp("for nowait"):
                    for i in range(x.size):
                        y[i] += 1
    """
    calls = """
        @offload.parallel_loop(num_threads=2)
        def one(x, y, n):
            for i in range(1, x.size):
                y[i] += n * x[i - 1]

        @offload.parallel_loop(num_threads=2, nowait=True)
        def two(x, y):
            for i in range(x.size):
                y[i] += 1

        def program(x, y, n):
            with offload.taskgroup():
                one(x, y, n)
                two(x, y)
    """
    twins.same(dedent(strings), dedent(calls), arrays)


HEADS = ("target teams distribute parallel for", "parallel for")
DECORATORS = dict(zip(HEADS, ("offload.target_loop", "offload.parallel_loop"), strict=True))

OPERATORS = {
    "+": ("s += x[i]", 1.5),
    "*": ("s *= x[i] + 1", 1.0),
    "min": ("s = min(s, x[i])", 5.0),
    "max": ("s = max(s, x[i])", -1.0),
    "&": ("s &= k[i]", 255),
    "|": ("s |= k[i]", 1),
    "^": ("s ^= k[i]", 3),
    "and": ("s = s and k[i] < 99", True),
    "or": ("s = s or k[i] > 8", False),
}
SPELLINGS = {"&&": "and", "||": "or", ".and.": "and", ".or.": "or", "iand": "&", "ior": "|", "ieor": "^"}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("operator", [*OPERATORS, *SPELLINGS])
def test_reductions(twins, head, operator):
    """A reduction begins with the variable's value, and the variable receives the result, in each spelling."""
    meaning = SPELLINGS.get(operator, operator)
    line, begin = OPERATORS[meaning]
    strings = f"""
        @directives
        def program(x, k, n):
            s = {begin!r}
            with omp("{head} reduction({operator}: s)"):
                for i in range(n):
                    {line}
            return s
    """
    calls = f"""
        @{DECORATORS[head]}(reduction={{"{meaning}": ["s"]}})
        def loop(x, k, n, s):
            for i in range(n):
                {line}
            return s

        def program(x, k, n):
            return loop(x, k, n, {begin!r})
    """
    outcome = twins.same(dedent(strings), dedent(calls), lambda: (np.arange(1.0, 7.0), np.arange(4, 10), 6))
    scope = {"s": begin, "x": np.arange(1.0, 7.0), "k": np.arange(4, 10)}
    for i in range(6):
        exec(line, {"i": i}, scope)
    assert outcome.value == scope["s"]


@pytest.mark.parametrize("head", HEADS)
def test_several_reductions(twins, head):
    """Several reductions give several variables their results."""
    strings = f"""
        @directives
        def program(x, n):
            s, m = 0.0, -1.0
            with omp("{head} reduction(+: s) reduction(max: m)"):
                for i in range(n):
                    s += x[i]
                    m = max(m, x[i])
            return s, m
    """
    calls = f"""
        @{DECORATORS[head]}(reduction={{"+": ["s"], "max": ["m"]}})
        def loop(x, n, s, m):
            for i in range(n):
                s += x[i]
                m = max(m, x[i])
            return s, m

        def program(x, n):
            return loop(x, n, 0.0, -1.0)
    """
    assert twins.same(dedent(strings), dedent(calls), lambda: (np.arange(9.0), 9)).value == (36, 8)


@pytest.mark.parametrize("head", HEADS)
def test_collapse(twins, head):
    """`collapse(2)` holds two perfectly nested loops."""
    strings = f"""
        @directives
        def program(a, b):
            with omp("{head} collapse(2)"):
                for i in range(a.shape[0]):
                    for j in range(a.shape[1]):
                        b[i, j] = a[i, j] * 10 + i
    """
    calls = f"""
        @{DECORATORS[head]}(collapse=2)
        def loop(a, b):
            for i in range(a.shape[0]):
                for j in range(a.shape[1]):
                    b[i, j] = a[i, j] * 10 + i

        def program(a, b):
            loop(a, b)
    """
    twins.same(dedent(strings), dedent(calls), lambda: (np.arange(12.0).reshape(3, 4), np.zeros((3, 4))))


@pytest.mark.parametrize("head", HEADS)
def test_lastprivate(twins, head):
    """The variable of `lastprivate` has the last iteration's value after the loop, though it was unbound before."""
    strings = f"""
        @directives
        def program(x, n):
            with omp("{head} lastprivate(last)"):
                for i in range(n):
                    last = x[i] * 2
                    x[i] = last
            return last
    """
    calls = f"""
        @{DECORATORS[head]}(lastprivate=["last"])
        def loop(x, n):
            for i in range(n):
                last = x[i] * 2
                x[i] = last
            return last

        def program(x, n):
            return loop(x, n)
    """
    assert twins.same(dedent(strings), dedent(calls), lambda: (np.arange(5.0), 5)).value == 8


@pytest.mark.parametrize("head", HEADS)
def test_private_scalars(twins, head):
    """A scalar that the nest assigns, in no clause or in `private`, is private: the enclosing variable keeps its
    value."""
    strings = f"""
        @directives
        def program(x, n):
            t = u = 100.0
            with omp("{head} private(u)"):
                for i in range(n):
                    t = x[i] + 1
                    u = 2 * t
                    x[i] = t + u
            return max(t, u)
    """
    calls = f"""
        @{DECORATORS[head]}(private=["u"])
        def loop(x, n):
            for i in range(n):
                t = x[i] + 1
                u = 2 * t
                x[i] = t + u

        def program(x, n):
            loop(x, n)
            return 100.0
    """
    twins.same(dedent(strings), dedent(calls), lambda: (np.arange(5.0), 5))


def test_firstprivate(twins):
    """A `firstprivate` scalar begins each iteration with its value."""
    strings = """
        @directives
        def program(x, n):
            k = 2.0
            with omp("target teams distribute parallel for firstprivate(k)"):
                for i in range(n):
                    x[i] *= k
            return k
    """
    calls = """
        @offload.target_loop(firstprivate=["k"])
        def loop(x, n, k):
            for i in range(n):
                x[i] *= k

        def program(x, n):
            loop(x, n, 2.0)
            return 2.0
    """
    twins.same(dedent(strings), dedent(calls), lambda: (np.arange(5.0), 5))


def test_a_carried_scalar(twins):
    """A scalar that is read before it is assigned is a LoopError at the user's line, when the function is decorated."""
    text = """
        @directives
        def program(x, n):
            s = 0.0
            with omp("parallel for"):
                for i in range(n):
                    s = s + x[i]
            return s
    """
    with pytest.raises(offload.LoopError) as caught:
        twins.string(dedent(text))
    assert caught.value.rule == "carried"
    lines = Path(caught.value.file).read_text().splitlines()
    assert "s = s + x[i]" in lines[caught.value.line - 1]


@pytest.mark.parametrize("directive", ["loop", "loop bind(thread)", "simd", "for"])
def test_inner_loops(twins, directive):
    """A loop directive around a `for` inside a nest speaks of that loop."""
    strings = f"""
        @directives
        def program(a, b):
            with omp("target teams distribute"):
                for i in range(a.shape[0]):
                    with omp("{directive}"):
                        for j in range(a.shape[1]):
                            b[i, j] = a[i, j] + 1
    """
    calls = """
        @offload.target_loop
        def loop(a, b):
            for i in range(a.shape[0]):
                for j in range(a.shape[1]):
                    b[i, j] = a[i, j] + 1

        def program(a, b):
            loop(a, b)
    """
    twins.same(dedent(strings), dedent(calls), lambda: (np.arange(12.0).reshape(3, 4), np.zeros((3, 4))))


ATOMICS = {
    "atomic": "c[k[i]] += 1",
    "atomic update": "c[k[i]] += x[i]",
    "atomic  update": "c[k[i]] = max(c[k[i]], x[i])",
    "atomic write": "c[0] = 5",
    "atomic read": "v = c[k[i]]",
    "atomic capture": "v = omp_atomic",
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("string", ["atomic", "atomic update", "atomic write", "atomic  update"])
def test_atomic_statements(twins, head, string):
    """`atomic` around one statement inside a nest makes it atomic."""
    line = ATOMICS[string]
    strings = f"""
        @directives
        def program(c, k, x):
            with omp("{head}"):
                for i in range(k.size):
                    with omp("{string}"):
                        {line}
    """
    program = twins.string(dedent(strings))
    rng = np.random.default_rng(35)
    c, k, x = np.zeros(4), rng.integers(0, 4, 300), rng.integers(0, 9, 300).astype(float)
    expected = c.copy()
    for i in range(k.size):
        exec(line, {"i": i, "c": expected, "k": k, "x": x})
    program(c, k, x)
    assert (c == expected).all()


def test_helpers(twins):
    """A nest may call helper functions of the module and of the enclosing function's file."""
    strings = """
        def square(v):
            return v * v

        @directives
        def program(x, n):
            with omp("target teams distribute parallel for"):
                for i in range(n):
                    x[i] = square(x[i]) + np.sqrt(4.0)
    """
    calls = """
        def square(v):
            return v * v

        @offload.target_loop
        def loop(x, n):
            for i in range(n):
                x[i] = square(x[i]) + np.sqrt(4.0)

        def program(x, n):
            loop(x, n)
    """
    twins.same(dedent(strings), dedent(calls), lambda: (np.arange(5.0), 5))


def test_loops_in_data_regions(twins):
    """Loop directives, blocks and data constructs of one function work on the same device data."""
    strings = """
        @directives
        def program(x, y, n):
            total = 0.0
            with omp("target data map(tofrom: x) map(to: y)"):
                for step in range(3):
                    with omp("target teams distribute parallel for nowait depend(inout: x)"):
                        for i in range(x.size):
                            x[i] += y[i] * (step + 1)
                    with omp("target nowait depend(inout: x)"):
                        x *= 2
                omp("taskwait")
                with omp("target teams distribute parallel for reduction(+: total)"):
                    for i in range(x.size):
                        total += x[i]
            return total
    """
    calls = """
        @offload.target_loop(nowait=True, depend=[inout("x")])
        def one(x, y, step):
            for i in range(x.size):
                x[i] += y[i] * (step + 1)

        @offload.target(nowait=True, depend=[inout("x")])
        def two(x):
            x *= 2

        @offload.target_loop(reduction={"+": ["total"]})
        def three(x, total):
            for i in range(x.size):
                total += x[i]
            return total

        def program(x, y, n):
            with offload.target_data(map=[tofrom(x), to(y)]):
                for step in range(3):
                    one(x, y, step)
                    two(x)
                offload.taskwait()
                total = three(x, 0.0)
            return total
    """
    twins.same(dedent(strings), dedent(calls), arrays)


def test_a_deferred_result(twins):
    """With `nowait`, the variable of a reduction has its result after the wait."""
    strings = """
        @directives
        def program(x, n):
            s = 0.0
            with omp("target teams distribute parallel for reduction(+: s) nowait"):
                for i in range(n):
                    s += x[i]
            omp("taskwait")
            return s
    """
    calls = """
        @offload.target_loop(reduction={"+": ["s"]}, nowait=True)
        def loop(x, n, s):
            for i in range(n):
                s += x[i]
            return s

        def program(x, n):
            task = loop(x, n, 0.0)
            offload.taskwait()
            return task.result()
    """
    assert twins.same(dedent(strings), dedent(calls), lambda: (np.arange(5.0), 5)).value == 10


NOT_A_NEST = {
    "two statements": ("for i in range(3):\n            x[i] = 1\n        x[0] = 2", "with"),
    "while": ("while x[0] < 3:\n            x[0] += 1", "with"),
    "else": ("for i in range(3):\n            x[i] = 1\n        else:\n            x[0] = 1", "with"),
    "not a range": ("for v in x:\n            v + 1", "with"),
    "nothing": ("pass", "with"),
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", NOT_A_NEST)
def test_no_nest(twins, head, name):
    """A loop directive around anything but one `for … in range(…)` is an error when the function is decorated."""
    lines, _ = NOT_A_NEST[name]
    text = f"@directives\ndef program(x):\n    with omp('{head}'):\n        {lines}\n"
    with pytest.raises((offload.errors.PragmaError, offload.LoopError)):
        twins.string(text)


def test_profile_dependences(twins):
    """`profile_dependences` takes a plain function, and names for each `for` what it found, by line."""
    text = """
        def program(x, y):
            s = 0.0
            for i in range(x.size):
                y[i] = 2 * x[i]
            for i in range(x.size):
                s += y[i]
            for i in range(1, x.size):
                x[i] += x[i - 1]
            return s
    """
    program = twins.string(dedent(text))
    profile = offload.profile_dependences(program, (np.arange(30.0), np.zeros(30)))
    text = str(profile)
    assert all(str(line) in text for line in (HEADER.count("\n") + 3, HEADER.count("\n") + 5, HEADER.count("\n") + 7))
