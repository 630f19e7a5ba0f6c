"""Every kind of function under a directive, from a script, a notebook and closures, in a cluster of processes."""

from __future__ import annotations

import importlib
import linecache
import sys
import types
from itertools import count
from textwrap import indent

import pytest
from distributed import Client, LocalCluster
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.profiles import examples

pytestmark = pytest.mark.timeout(300)

HEAD = '''
import numpy as np
import offload as omp
from offload import acc

n = 3


def other(a):
    """Have a docstring with lines
at the margin, and a form feed: "\f".
    """
    return 2 * a


@omp.declare_target
def plain(a):
    return other(a) + n


'''

LOOP = "for i in range(len(x)):\n    x[i] = plain(x[i]) + c\n"
BODY = "x += 3 + c\n"
KINDS = {
    "omp.task": ("", "x", BODY),
    "omp.target": ("map=[omp.tofrom('x[0:n]')]", "x", BODY),
    "omp.taskgraph": ("", "x", BODY),
    "omp.taskloop": ("grainsize=1", "part, x", "for i in part:\n    x[i] = plain(x[i]) + c\n"),
    "acc.parallel": ("copy=['x[0:n]']", "x", BODY),
    "acc.kernels": ("", "x", BODY),
    "acc.serial": ("", "x", BODY),
    "omp.target_loop": ("", "x", LOOP),
    "omp.parallel_loop": ("", "x", LOOP),
    "acc.parallel_loop": ("", "x", LOOP),
    "acc.kernels_loop": ("", "x", LOOP),
    "omp.target_loop of a sum": (
        "reduction={'+': ['s']}",
        "x",
        "s = 0.0\nfor i in range(len(x)):\n    s += plain(x[i]) * c\nreturn s\n",
    ),
    "omp.target_loop that speculates": (
        "speculate=True",
        "x",
        "for i in range(len(x)):\n    x[int(x[i]) % 1 + i] = plain(x[i]) + c\n",
    ),
    "omp.parallel_loop that checks": ("check=True", "x", LOOP),
}
"""By name: clauses, parameters and body, which reads ``c`` from outside."""

CALLERS = {
    "as it is": "call = f",
    "from a plain function": "def call(*a):\n    return f(*a)",
    "from a task": "@omp.task\ndef region(*a):\n    return f(*a)\n\n\ndef call(*a):\n    return region(*a).result()",
    "from a target body": "@omp.target\ndef call(*a):\n    return f(*a)",
    "from a class": "class Holder:\n    held = staticmethod(f)\n\n\ncall = Holder().held",
    "with options": "call = f.options(name='q')",
}
TAIL = '''

def use(*a):
    """Call it, wait, and return what there is now."""
    x = np.arange(5.0)
    found = call(*a, x)
    found = found.result() if isinstance(found, omp.Task) else found
    omp.taskwait()
    return x.tolist(), found if isinstance(found, float) else None
'''

numbers = count()


@st.composite
def programs(draw):
    """Return a program, where it stands, and the leading arguments of its function."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    decorator = kind.partition(" ")[0]
    clauses, parameters, body = KINDS[kind]
    is_on_device = kind == "omp.target_loop"
    caller = draw(st.sampled_from([one for one in CALLERS if one != "from a target body" or is_on_device]))
    place = draw(st.sampled_from(["script", "notebook", "closure", "closure of a module"]))
    lines = draw(st.integers(0, 3))  # before it, in each of which the text might be cut wrongly
    text = f"@{decorator}({clauses})\ndef f({parameters}):\n{indent(body, '    ')}"
    if "closure" in place:
        text = f"def make(c):\n{indent(text, '    ')}\n    return f\n\n\nf = make(2)\n"
    else:
        text = f"c = 2\n{text}"
    text = HEAD + "\n" * lines + text + f"\n\n{CALLERS[caller]}\n" + TAIL
    return text, place, (range(5),) if decorator == "omp.taskloop" else ()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of modules, which workers find as well."""
    made = tmp_path_factory.mktemp("modules")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(made)
        yield made


@pytest.fixture(scope="module")
def client(folder):
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def run(text, place, folder):
    """Return the namespace of a program that has run, as a script whose file is gone, a notebook, or a module."""
    name = f"program{next(numbers)}"
    if place == "closure of a module":
        (folder / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        return vars(importlib.import_module(name))
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    file = folder / f"{name}.py" if place != "notebook" else f"<ipython-input-{name}>"
    if place == "notebook":
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    else:
        file.write_text(text)
    exec(compile(text, file, "exec"), vars(main))
    if place != "notebook":
        file.unlink()
        linecache.checkcache(str(file))
    return vars(main)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(made=programs(), is_used=st.booleans())
def test_a_function_gives_elsewhere_what_it_gives_here(sim, folder, client, monkeypatch, made, is_used):
    """A function that cloudpickle takes by value computes in a process of a cluster what it computes here."""
    text, place, leading = made
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "__main__", None)
        found = run(text, place, folder)
        expected = found["use"](*leading) if is_used else None
        assert client.submit(found["use"], *leading, pure=False).result() == (expected or found["use"](*leading))
