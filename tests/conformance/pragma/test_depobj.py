"""`depobj` and `interop` as directives against the calls."""

from __future__ import annotations

import numpy as np
import pytest

import offload
from tests.conformance.pragma.spelling import dedent

TASK = """
    @offload.task
    def add(x, value):
        x += value

"""


def same(twins, strings, calls, make=lambda: (np.zeros(3), np.zeros(3)), **kwargs):
    head = dedent(TASK)
    return twins.same(head + "\n" + dedent(strings), head + "\n" + dedent(calls), make, **kwargs)


@pytest.mark.parametrize("kind", ["in", "out", "inout", "mutexinoutset", "inoutset"])
@pytest.mark.parametrize("later", ["in", "out", "inout", "mutexinoutset", "inoutset"])
def test_depobj(twins, kind, later):
    """`depobj(o) depend(…)` binds the name, `update` changes the type, `destroy` ends it, as the methods do."""
    strings = f"""
        @directives
        def program(x, y):
            omp("depobj(o) depend({kind}: x)")
            add.options(depend=[o])(x, 1)
            with omp("task depend(depobj: o) depend(inout: y)"):
                y += 1
            omp("depobj(o) update({later})")
            with omp("task depend(depobj: o) depend(inout: y)"):
                y *= 2
            omp("depobj(o) destroy")
            omp("taskwait")
    """
    word = {"in": "in_"}.get(kind, kind)
    calls = f"""
        def program(x, y):
            o = offload.depobj({word}(x))
            add.options(depend=[o])(x, 1)
            add.options(depend=[o, inout(y)])(y, 1)
            o.update("{later}")
            offload.task(lambda y: y.__imul__(2) is None, depend=[o, inout(y)])(y)
            o.destroy()
            offload.taskwait()
    """
    same(twins, strings, calls)


def test_depobj_of_a_section(twins):
    """The item of a depobj is evaluated when it is met."""
    strings = """
        @directives
        def program(x, y):
            objects = []
            for i in range(2):
                omp("depobj(o) depend(inout: x[i:1])")
                objects.append(o)
            add.options(depend=[objects[0]])(x[0:1], 1)
            add.options(depend=[objects[1]])(x[1:2], 2)
            add.options(depend=[objects[1]])(x[1:2], 2)
            omp("taskwait")
    """
    calls = """
        def program(x, y):
            objects = [offload.depobj(inout(x[i:i + 1])) for i in range(2)]
            add.options(depend=[objects[0]])(x[0:1], 1)
            add.options(depend=[objects[1]])(x[1:2], 2)
            add.options(depend=[objects[1]])(x[1:2], 2)
            offload.taskwait()
    """
    same(twins, strings, calls)


def test_destroyed(twins):
    """A destroyed depobj is a DependError at the block that uses it."""
    strings = """
        @directives
        def program(x):
            omp("depobj(o) depend(in: x)")
            omp("depobj(o) destroy")
            with omp("task depend(depobj: o)"):
                pass
    """
    with pytest.raises(offload.DependError):
        twins.string(dedent(strings))(np.zeros(3))


@pytest.mark.parametrize(
    ("clauses", "keywords"),
    [
        ("", ""),
        (" depend(inout: x)", "depend=[inout(x)]"),
        (" device(0) depend(inout: x)", "device=0, depend=[inout(x)]"),
    ],
)
def test_interop(twins, clauses, keywords):
    """`interop init` binds an object with a stream and a device, `use` orders its work, `destroy` releases it."""
    strings = f"""
        @directives
        def program(x, y):
            region = offload.target(nowait=True, depend=[inout(x)])(body)
            region(x, 1)
            omp("interop init(targetsync: o){clauses}")
            found = o.device.number, o.stream is not None
            omp("interop use(o)")
            omp("interop destroy(o)")
            region(x, 2)
            omp("taskwait")
            return found
    """
    calls = f"""
        def program(x, y):
            region = offload.target(nowait=True, depend=[inout(x)])(body)
            region(x, 1)
            o = offload.interop({keywords})
            o.__enter__()
            found = o.device.number, o.stream is not None
            o.use()
            o.__exit__(None, None, None)
            region(x, 2)
            offload.taskwait()
            return found
    """
    body = "def body(x, value):\n    x += value\n\n"
    strings, calls = (body + dedent(text) for text in (strings, calls))
    outcome = twins.same(strings, calls, lambda: (np.zeros(3), None), is_recorded=False)
    assert outcome.value == (0, True)
    assert outcome.arguments[0].tolist() == [3] * 3
