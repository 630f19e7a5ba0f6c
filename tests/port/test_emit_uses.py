"""The text of statements without streams, and statements that disappear."""

import ast
import textwrap

import pytest

from offload.port.modules import module_names
from offload.port.program import ProgramText, program_text
from offload.port.uses import StatementUse, StreamUses

HEAD = """\
import cupy as cp
import cupyx
import numpy as np
from cupy.cuda import Stream, Event

streams = [Stream() for _ in range(n)]
s, d, h = Stream(), cp.empty(3), np.empty(3)
events = {}
events[0] = s.record()
"""


def read(text):
    """Return the uses of a program, and its last statement."""
    program = ProgramText("program.py", HEAD + textwrap.dedent(text))
    return StreamUses(program, module_names(program)), program.tree.body[-1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("d.set(h, stream=s)", "d.set(h)"),
        ("d.set(h, s)", "d.set(h)"),
        ("d.get(s)", "d.get()"),
        ("d.get(stream=s, out=h[1:2], blocking=False)", "d.get(out=h[1:2])"),
        ("x = cp.asnumpy(d, stream=s)", "x = cp.asnumpy(d)"),
        ("kernel((1,), (2,), (d, 3), stream=s)", "kernel((1,), (2,), (d, 3))"),
        ("a, b = Stream(), cp.zeros(3)", "b = cp.zeros(3)"),
        ("a, b, c = Stream(), cp.zeros(3), 4", "b, c = cp.zeros(3), 4"),
        ("ring = [(cp.empty(3), Event()) for _ in range(2)]", "ring = [(cp.empty(3),) for _ in range(2)]"),
        ("x = len(streams) + 1", "x = n + 1"),
        ("x = [f(d) for _ in streams]", "x = [f(d) for _ in range(n)]"),
        ("x = {k: d for k, one in enumerate(streams)}", "x = {k: d for k in range(n)}"),
        ("xp = cp.get_array_module(d)", "xp = offload.array_namespace(d)"),
        ("x = cupyx.empty_pinned(3, dtype='f4')", "x = offload.empty_pinned(3, dtype='f4')"),
        ("del s, d", "del d"),
        ("d.set(h,  # the data\n      stream=s)", "d.set(h)"),
        ("x = f'{d} {h}'", "x = f'{d} {h}'"),
    ],
)
def test_arguments_and_elements_that_are_streams_are_left_out(text, expected):
    """A simple statement keeps the rest of its text."""
    uses, statement = read(text)
    assert uses.obstacles == []
    assert uses.head(statement) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for one in streams: d.set(h, stream=one)", "for _ in range(n):"),
        ("for k, one in enumerate(streams): d.set(h, stream=one)", "for k in range(n):"),
        ("for one, x in zip(streams, h): d.set(x, stream=one)", "for x in h:"),
        ("for one, x, y in zip(streams, h, d): d.set(x, stream=one)", "for x, y in zip(h, d):"),
        ("for k, (one, x) in enumerate(zip(streams, h)): d.set(x, stream=one)", "for k, x in enumerate(h):"),
        ("for x, (a, one) in zip(h, [(1, s)]): d.set(x, stream=one)", "for x, (a,) in zip(h, [(1,)]):"),
        ("for x in h: pass", "for x in h:"),
        ("with s, open('x') as f: pass", "with open('x') as f:"),
        ("with s: pass", ""),
        ("with cp.cuda.Device(0), s: pass", ""),
        ("def f(a, one: Stream, *, two=None, b=3): pass\nf(1, s, two=s)\ndef g(): pass", "def g():"),
        ("def g() -> cp.cuda.Event:\n    d.fill(1)\n    return s.record()", "def g():"),
    ],
)
def test_heads_of_compound_statements_lose_their_streams(text, expected):
    """Loops over streams become loops over numbers, and a `with` of a stream has no head."""
    uses, statement = read(text)
    assert uses.obstacles == []
    assert uses.head(statement) == expected


def test_parameters_that_only_receive_streams_are_left_out():
    """The definition and each call lose the parameter."""
    uses, call = read(
        "def f(a, one: Stream, *, two: Event = None, b: int = 3) -> int:\n    return a\nx = f(1, s, two=Event(), b=4)\n"
    )
    (definition,) = (node for node in uses.program.tree.body if isinstance(node, ast.FunctionDef))
    assert uses.obstacles == []
    assert uses.head(definition) == "def f(a, *, b: int = 3) -> int:"
    assert uses.head(call) == "x = f(1, b=4)"


@pytest.mark.parametrize(
    ("text", "use"),
    [
        ("t = Stream()", StatementUse.REMOVED),
        ("events[0] = s.record()", StatementUse.REMOVED),
        ("done = [None] * 3\ndone[0] = Event()", StatementUse.REMOVED),
        ("s.wait_event(events[0])", StatementUse.REMOVED),
        ("streams.append(Stream())", StatementUse.REMOVED),
        ("del s", StatementUse.REMOVED),
        ("cp.get_default_memory_pool().free_all_blocks()", StatementUse.REMOVED),
        ("cp.cuda.Device(0).use()", StatementUse.REMOVED),
        ("cuda = cp.cuda", StatementUse.REMOVED),
        ("def make(n):\n    '''Make.'''\n    return [Stream() for _ in range(n)]", StatementUse.REMOVED),
        ("s.synchronize()", StatementUse.WAIT),
        ("events[1].synchronize()", StatementUse.WAIT),
        ("cp.cuda.Stream.null.synchronize()", StatementUse.WAIT),
        ("cp.cuda.get_current_stream().synchronize()", StatementUse.WAIT),
        ("cp.cuda.Device().synchronize()", StatementUse.WAIT),
        ("cp.cuda.runtime.deviceSynchronize()", StatementUse.WAIT),
        ("with s: pass", StatementUse.CONTEXT),
        ("if events.get(1) is not None: s.wait_event(events[1])", StatementUse.GUARD),
        ("while len(streams) > 2: streams.pop().synchronize()", StatementUse.GUARD),
        ("import cupy.fft", StatementUse.IMPORT),
        ("d.set(h, stream=s)", StatementUse.PLAIN),
        ("x = []", StatementUse.PLAIN),
        ("lock.synchronize()", StatementUse.PLAIN),
    ],
)
def test_what_a_statement_does_with_streams_is_known(text, use):
    """Statements that only handle streams disappear; waits, contexts and guards are told apart."""
    uses, statement = read(text)
    assert uses.use[statement] is use


def test_a_function_that_works_and_returns_an_event_stays(tmp_path):
    """Its call becomes a statement; the event is gone."""
    uses, statement = read("def step(x):\n    x += 1\n    return s.record()\nlast = step(d)\n")
    assert uses.head(statement) == "step(d)"
    assert uses.use[statement] is StatementUse.PLAIN


def test_tabs_and_declared_encodings_are_read(tmp_path):
    """Tabs that indent code become blanks; those in strings stay. The line about the encoding says UTF-8."""
    path = tmp_path / "program.py"
    path.write_bytes("# -*- coding: latin-1 -*-\nif 1:\n\tx = 'ü'\n\ty = '''\n\tz'''\n".encode("latin-1"))
    assert program_text(str(path)) == "# -*- coding: utf-8 -*-\nif 1:\n    x = 'ü'\n    y = '''\n\tz'''\n"
