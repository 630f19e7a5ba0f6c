"""Errors and warnings of constructs and loops, with their clauses as directives spell them."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

import offload
from offload.pragma.wording import in_directives
from tests.conftest import checked
from tests.pragma.programs import made_of


@pytest.fixture(autouse=True)
def runtime():
    with checked("sim:1"):
        yield


MESSAGES = {
    'add reduction={"+": ["s"]} to the construct': "add reduction(+: s) to the directive",
    "s is in reduction={'+': ['s', 't']}, so": "s is in reduction(+: s, t), so",
    'add reduction={"+": ["s"], "max": ["m"]} to this loop': "add reduction(+: s) reduction(max: m) to this loop",
    "add lastprivate=['k'] if you mean": "add lastprivate(k) if you mean",
    "add firstprivate=[…] if": "add firstprivate(…) if",
    'use private=["t"], or lastprivate= where': "use private(t), or lastprivate where",
    "k is in lastprivate=, but": "k is in lastprivate, but",
    "use atomic=['h'] for several": "use atomic around each update of h for several",
    "with collapse=2, bounds": "with collapse(2), bounds",
    "priority=-1 is negative": "priority(-1) is negative",
    "use if_=False to run": "use if(False) to run",
    "use depend=[in_(x)] here": "use depend(in: x) here",
    "a loop cannot raise; store a code, or use `assert` with check=True": "a loop cannot raise; store a code",
    "x == 3, and f(n=2) or a[i] += b": "x == 3, and f(n=2) or a[i] += b",
}


@pytest.mark.parametrize("message", MESSAGES)
def test_messages(message):
    """Each keyword argument in a message becomes the clause; a second time changes nothing."""
    said = in_directives(message, "parallel_loop")
    assert said == MESSAGES[message]
    assert in_directives(said, "parallel_loop") == said


@pytest.mark.parametrize(
    ("construct", "remedy"),
    [
        ("acc.parallel_loop", "write seq, or use private for"),
        ("target_loop", 'write acc("serial loop"), or use private for'),
        ("parallel_loop", "leave the directive out, or use private for"),
    ],
)
def test_loops_in_order(construct, remedy):
    """A loop that has to run in order gets the advice for its directive."""
    assert in_directives("use seq=True, or private= for an array", construct) == f"{remedy} an array"


LOOPS = {
    "a sum": ("for", "s += x[i]", "add reduction(+: s) to the directive"),
    "a recurrence": ("for", "s = s * 2 + x[i]", "add firstprivate(…) if"),
    "on a device": ("target loop", "s = s * 2 + x[i]", 'or write acc("serial loop") to run in order'),
    "a histogram": ("for reduction(+: x)", "x[n[i]] += 1", "use atomic around each update of x"),
    "an operator": ("for reduction(max: s)", "s += 1", "s is in reduction(max: s)"),
    "a use": ("for reduction(+: s)", "s += 1; x[i] = s", "s is in reduction(+: s)"),
    "a path": ("for lastprivate(s)", "s = 1 if i else s", "firstprivate"),
    "a dependence": ("for", "x[i] = x[i - 1]", "leave the directive out"),
    "fmax": ("for reduction(max: s)", "s = fmax(s, x[i])", "call `max`"),
    "a name without its module": ("for", "x[i] = cmath.fmin(1.0, x[i])", "call `min`"),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name):
    """The error of a loop, at decoration or at the encounter, has no keyword argument; class and attributes stay."""
    directive, statement, remedy = LOOPS[name]
    text = f"""
        @directives
        def f(x, n):
            s = 0.0
            with omp("{directive}"):
                for i in range(1, x.size):
                    {statement}
            return s
    """
    with pytest.raises(offload.LoopError) as caught:
        made_of(text, {"cmath": math})(np.ones(4), np.zeros(4, int))
    error = caught.value
    assert remedy in str(error)
    assert "=[" not in str(error)
    assert "={" not in str(error)
    assert "seq=" not in str(error)
    assert error.line == 6
    assert error.file in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.line, again.rule) == (str(error), error.line, error.rule)


def test_a_warning():
    """The warning of updates that may be lost names the directives, too."""
    f = made_of("""
        @directives
        def f(x, h):
            with omp("parallel for"):
                for i in range(x.size):
                    h[x[i]] += 1
    """)
    with pytest.warns(offload.DirectiveWarning, match=r"add atomic around each update of h, or reduction if it is one"):
        f(np.arange(10_000) % 7, np.zeros(7))


def test_a_warning_about_a_section():
    """The warning has no names of generated code, also where indices of a section are guarded."""
    f = made_of("""
        @directives
        def f(x, h):
            with omp("target loop map(tofrom: h[1:6])"):
                for i in range(x.size):
                    h[x[i]] += 1
    """)
    with pytest.warns(offload.DirectiveWarning, match=r"may update h\[…\] \(line 5\)"):
        f(np.arange(100) % 6 + 1, np.zeros(8))


def test_calls_keep_their_spelling():
    """The same error of a decorated function names keyword arguments."""
    with pytest.raises(offload.LoopError, match=r'add reduction=\{"\+": \["s"\]\} to the construct'):
        made_of(
            """
            def f(x):
                s = 0.0
                for i in range(x.size):
                    s += x[i]
                return s
            f = offload.parallel_loop(f)
            """,
            {"offload": offload},
        )


BLOCKS = {
    "in_reduction": (
        'with omp("task in_reduction(+: x)"):\n    x += 1',
        offload.ClauseError,
        'put the block into `with omp("taskgroup task_reduction(+: …)"):`',
    ),
    "target data of a number": (
        'with omp("target data map(tofrom: s)"):\n    pass',
        offload.ClauseError,
        "use an array of one element: s = np.zeros(1), and s[0]",
    ),
    "enter data of a number": (
        'omp("target enter data map(to: s)")',
        offload.ClauseError,
        "map the number on the target construct itself",
    ),
    "update of a number": ('omp("target update to(s)")', offload.ClauseError, "use an array of one element"),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(name):
    """The error of a block or a statement says what to write in a directive."""
    lines, kind, remedy = BLOCKS[name]
    body = lines.replace("\n", "\n    ")
    f = made_of(f"@directives\ndef f(x):\n    s = 0.0\n    {body}\n    return s\n")
    with pytest.raises(kind) as caught:
        f(np.ones(3))
    assert remedy in str(caught.value)


def test_an_event_that_is_attached():
    """A second task of one event is told how it gets a new event, and doing so helps."""
    text = """
        @directives
        def f(x):
            for i in range(3):
                {first}
                with omp("task detach(event)"):
                    x[i] = 1
                event.fulfill()
            omp("taskwait")
    """
    x = np.zeros(3)
    with pytest.raises(offload.EventError, match=r"write `event = None` before the block"):
        made_of(text.format(first="pass"))(x)
    made_of(text.format(first="event = None"))(x)
    assert x.tolist() == [1, 1, 1]


INSIDE = {
    "critical": ('with omp("critical"):\n            s += x[i]', "use reduction or atomic, or a taskloop"),
    "task": ('with omp("task"):\n            x[i] = 1', "use a taskloop"),
    "single": ('with omp("single"):\n            x[i] = 1', "do it before or after the loop"),
    "barrier": ('omp("barrier")', "end the nest, and begin another one"),
    "atomic write": (
        'with omp("atomic write"):\n            s = x[i]',
        r"put s into lastprivate or reduction, or use an array of one element: s\[0\]",
    ),
    "atomic read": ('with omp("atomic read"):\n            v = s', "leave the directive out"),
    "taskwait": ('omp("taskwait")', "it takes loop, for, simd, atomic and cache"),
}


@pytest.mark.parametrize("name", INSIDE)
def test_inside_of_a_nest(name):
    """A directive that a nest cannot have is refused with what to write, at its line."""
    lines, remedy = INSIDE[name]
    head = (
        '@directives\ndef f(x):\n    s = 0.0\n    with omp("parallel for"):\n        for i in range(4):\n            '
    )
    text = head + lines.replace("\n    ", "\n        ") + "\n    return s\n"
    with pytest.raises(offload.PragmaError, match=remedy) as caught:
        made_of(text)
    assert caught.value.lineno == 6
    assert name in str(caught.value)
