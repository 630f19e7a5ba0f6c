"""The oracle of the study of mutants: its sets of bytes, the programs, and small programs with one fault each."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import benchmarks.run  # noqa: F401  # has `import benchmarks` find the studies
from benchmarks.sanitizer.catalogue import programs
from benchmarks.sanitizer.oracle.judge import judge
from benchmarks.sanitizer.oracle.recording import Bytes
from benchmarks.sanitizer.running import outcomes, written
from tests.profiles import few

PROGRAMS = programs()
QUICK = ["saxpy", "chain", "queues", "detached_stream", "graph", "readme"]
LATE = {"event"}
"""Programs whose tasks run in another order than that of their text, so that the oracle's output is another one."""

START = """
import numpy as np
import offload as omp
from offload import acc, alloc, from_, in_, inout, inoutset, mutexinoutset, out, to, tofrom
"""


@pytest.mark.parametrize("name", few(QUICK, PROGRAMS))
def test_programs_are_correct(name, tmp_path):
    """The oracle finds nothing in a program, and every schedule gives the result that the oracle has."""
    text = PROGRAMS[name].text
    file = written(text, name, tmp_path)
    verdict = judge(text, file)
    assert (verdict.violations, verdict.error) == ((), None)
    (only,) = outcomes(text, file, 8)
    assert only["error"] is None
    assert only["output"] == verdict.output or name in LATE


VIEWS = st.tuples(*[st.slices(12)] * 2)


@given(VIEWS, VIEWS)
def test_common_bytes(one, other):
    """Two views have the bytes in common that a mask of each has."""
    masks, found = [], []
    array = np.zeros((12, 12), np.int16)
    for index in (one, other):
        mask = np.zeros_like(array, bool)
        mask[index] = True
        masks.append(mask)
        found.append(Bytes.of(array[index]))
    both = found[0].common(found[1])
    assert (0 if both is None else len(both)) == 2 * (masks[0] & masks[1]).sum()
    assert len(found[0]) == 2 * masks[0].sum()


FAULTS = {
    "no depend": (
        """
        x = np.zeros(3)
        omp.task(depend=[out(x)])(x.fill)(1)
        omp.task(lambda: x.sum())()
        omp.taskwait()
        """,
        ("race", {"depend"}, 7, 8),
    ),
    "no wait": (
        """
        x = np.zeros(3)
        omp.task(depend=[out(x)])(x.fill)(1)
        print(x.sum())
        omp.taskwait()
        """,
        ("race", {"wait"}, 7, 8),
    ),
    "no detach": (
        """
        d = omp.target_alloc(3, "f8")
        omp.target_memset(d, 0)
        omp.task(depend=[inout(d)])(lambda: omp.current_stream().launch(lambda: d.fill(2)))()
        omp.target(nowait=True, depend=[inout(d)])(lambda d: d.fill(1))(d)
        omp.taskwait()
        omp.target_free(d)
        """,
        ("race", {"detach"}, 8, 9),
        ("race", {"detach"}, 8, 11),
    ),
    "no wait before a free": (
        """
        d = omp.target_alloc(3, "f8")
        omp.target(nowait=True, depend=[out(d)])(lambda d: d.fill(1))(d)
        omp.target_free(d)
        """,
        ("race", {"wait"}, 7, 8),
    ),
    "no wait of a queue": (
        """
        x = np.zeros(3)
        with acc.data(copyin=[x]):
            acc.parallel(present=["x"], async_=1)(lambda x: x.fill(1))(x)
            acc.update(self_=[x], async_=2)
            acc.wait()
        """,
        ("race", {"depend", "wait"}, 8, 9),
    ),
    "the end of a mapping in another task": (
        """
        x = np.zeros(3)
        acc.enter_data(copyin=[x])
        fill = acc.parallel(present=["x"])(lambda x: x.fill(1))
        omp.task(lambda: fill(x))()
        omp.task(lambda: acc.exit_data(copyout=[x]))()
        omp.taskwait()
        """,
        ("race", {"depend", "wait"}, 8, 10),
    ),
    "no from": (
        """
        x = np.zeros(3)
        omp.target(map=[to("x")])(lambda x: x.fill(1))(x)
        print(x.sum())
        """,
        ("stale-host", {"map"}, 7, 8),
    ),
    "no update from": (
        """
        x = np.zeros(3)
        with omp.target_data(map=[to(x)]):
            omp.target(lambda x: x.fill(1))(x)
            print(x.sum())
        """,
        ("stale-host", {"update"}, 8, 9),
    ),
    "no update to": (
        """
        x = np.zeros(3)
        with omp.target_data(map=[to(x)]):
            x[1:] = 1
            omp.target(lambda x: float(x.sum()))(x)
        """,
        ("stale-device", {"update"}, 8, 9),
    ),
    "no to": (
        """
        x = np.zeros(3)
        omp.target(map=[alloc("x")])(lambda x: float(x.sum()))(x)
        """,
        ("uninitialised", {"map"}, 7, 7),
    ),
    "no to at enter": (
        """
        x = np.zeros(3)
        omp.target_enter_data(map=[alloc(x)])
        omp.target(lambda x: float(x.sum()))(x)
        omp.target_exit_data(map=[omp.release(x)])
        """,
        ("uninitialised", {"update"}, 7, 8),
    ),
    "copied back unwritten": (
        """
        x = np.zeros(3)
        omp.target(map=[from_("x")])(lambda x: x[1:].fill(1))(x)
        print(x.sum())
        """,
        ("uninitialised", {"map"}, 7, 8),
    ),
    "no exit": (
        """
        x = np.zeros(3)
        omp.target_enter_data(map=[to(x)])
        """,
        ("leak", {"map"}, 7, None),
    ),
    "no free": (
        """
        d = omp.target_alloc(3, "f8")
        """,
        ("leak", {"free"}, 6, None),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name):
    """A program with a fault has exactly these violations: the rule, the kind of fix and both lines."""
    text, *expected = FAULTS[name]
    verdict = judge(START + dedent(text), "program.py")
    assert verdict.error is None
    assert [(v.rule, set(v.kinds), v.first, v.second) for v in verdict.violations] == expected


ORDERED = {
    "parts that share no byte": """
        x = np.zeros(6)
        omp.task(depend=[out(x[::2])])(x[::2].fill)(1)
        omp.task(depend=[out(x[1::2])])(x[1::2].fill)(1)
        omp.taskwait()
    """,
    "members of sets": """
        x, y = np.zeros(3), np.zeros(3)
        for k in range(2):
            omp.task(depend=[mutexinoutset(x)])(x.fill)(k)
            omp.task(depend=[inoutset(y)])(y.fill)(1)
        omp.taskwait()
    """,
    "operands that nobody changes": """
        x = np.zeros(3)
        for _ in range(2):
            omp.target(nowait=True)(lambda x: float(x.sum()))(x)
        omp.taskwait()
    """,
    "a map that finds its item present": """
        x = np.zeros(3)
        omp.target_enter_data(map=[to(x)], nowait=True)
        omp.target(lambda x: float(x.sum()))(x)
        omp.target_exit_data(map=[omp.release(x)])
        omp.taskwait()
    """,
    "zero-filled storage": """
        x = np.zeros(3)
        with acc.data(create=[acc.zero(x)]):
            acc.parallel(present=["x"])(lambda x: float(x.sum()))(x)
    """,
    "two queues and the end of a data region": """
        x = np.zeros(3)
        with acc.data(copy=[x]):
            acc.parallel(present=["x"], async_=1)(lambda x: x.fill(1))(x)
        print(x.sum())
    """,
}


@pytest.mark.parametrize("name", ORDERED)
def test_orders(name):
    """The oracle knows each order that a program can ask for."""
    verdict = judge(START + dedent(ORDERED[name]), "program.py")
    assert (verdict.violations, verdict.error) == ((), None)
