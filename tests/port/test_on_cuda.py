"""``--on cuda`` over a likeness of CuPy: the same report as on ``sim``; tests/gpu/test_port.py has CuPy itself."""

from __future__ import annotations

import numpy as np
import pytest

from offload.port import running
from tests.port import brute, likeness
from tests.port.rings import Ring
from tests.port.test_kernels import AXPY, LAUNCHES
from tests.port.test_report import BLOCKING, UNWRITTEN
from tests.port.test_report import HEAD as REPORT_HEAD
from tests.port.test_rules_of_cupy import CASES, HEAD

BY_VALUE = {"a mask that selects", "a mask"}
"""Programs with elements that a mask on the device selects: on ``cuda`` these are not known."""


@pytest.fixture(autouse=True)
def cuda(monkeypatch):
    """Have ``on="cuda"`` find the likeness of CuPy."""
    monkeypatch.setattr(running, "_cuda_modules", lambda: (likeness.cupy, likeness.cupyx))


def both(report, text):
    """Return the reports of a program on ``sim`` and on ``cuda``, which may differ in the word ``on`` alone."""
    sim, cuda = report(text), report(text, on="cuda")
    assert (sim.pop("on"), cuda.pop("on")) == ("sim", "cuda")
    return sim, cuda


@pytest.mark.parametrize("name", CASES)
def test_rules(name, report):
    """Each program on CuPy's rules has the same report."""
    sim, cuda = both(report, HEAD + CASES[name][0] + "\n")
    if name in BY_VALUE:
        assert cuda["races"] == []
    else:
        assert sim == cuda


@pytest.mark.parametrize("text", [*BLOCKING, *UNWRITTEN])
def test_other_entries(text, report):
    """Each program on copies and on unwritten memory has the same report."""
    sim, cuda = both(report, REPORT_HEAD + text + "\n")
    if "[[" in text:  # elements that an index selects: a write of unknown ones may write all
        assert cuda["uninitialised"] == []
    elif "x > 1" in text:  # the elements that a mask selects are not known
        assert sim["blocking"] == cuda["blocking"]
    else:
        assert sim == cuda


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_rings(slots, report):
    """Ring pipelines have the same report."""
    ring = Ring(slots, 3)
    for left_out in (None, *(wait.line for wait in ring.waits)):
        sim, cuda = both(report, Ring(slots, 3, left_out).text)
        assert sim == cuda


def test_generated_programs(report):
    """Generated programs have the same report."""
    for seed in range(200, 230):
        sim, cuda = both(report, brute.Program(seed).text)
        assert sim == cuda


def test_kernels(report):
    """A kernel from source is carried out, so nothing is unchecked; otherwise the report is the same."""
    sim, cuda = both(report, LAUNCHES)
    assert (sim.pop("unchecked"), cuda.pop("unchecked")) == (True, False)
    assert sim == cuda
    assert "axpy" in AXPY


def test_elementwise_kernels(report):
    """An elementwise kernel reads its inputs, and writes its outputs or a new array, on the stream."""
    text = HEAD + (
        "k = cp.ElementwiseKernel('T x, T y', 'T z', 'z = x + y', 'added')\n"
        "z = cp.empty(8)\ncp.cuda.Device().synchronize()\nwith a: k(x, x, z)\nwith b: z.sum()\nk(x, x, stream=a)\n"
        "with a: x += 1\nwith b: w = k(x, z)\n"
    )
    found = report(text, on="cuda")
    first = HEAD.count("\n")
    lines = [(race["first"]["line"] - first, race["second"]["line"] - first) for race in found["races"]]
    assert lines == [(4, 5), (4, 8), (7, 8)]
    assert found["uninitialised"] == []


def test_values_and_shadows(record, tmp_path):
    """Views of all forms lie at the same bytes as on ``sim``."""
    text = (
        "import numpy as np, cupy as cp\nx = cp.arange(24.0).reshape(2, 3, 4)\n"
        "for v in (x[1], x[:, 1], x[..., ::-2], x.T, x[::-1, 1:, 2], x.ravel()[3:7], x.transpose(1, 0, 2), x[0, 0, 0],\n"
        "          x.view('i8'), x.swapaxes(0, 2)[1], x.reshape(6, 4)[::2], x[:0], x[0].diagonal()):\n"
        "    v.sum()\n"
    )
    parts = [[(op.call, op.reads, op.writes) for op in record(text, on=on).operations] for on in ("sim", "cuda")]
    assert parts[0] == parts[1]


def test_results(tmp_path):
    """A program on ``cuda`` computes with CuPy's arrays, and gets NumPy's."""
    text = (
        "import numpy as np, cupy as cp, cupyx\nh = cupyx.zeros_pinned((3, 4))\nh[...] = np.arange(12).reshape(3, 4)\n"
        "x = cp.asarray(h)\nx[1:] *= 2\nx += cp.ones((3, 4))\ny = cp.empty_like(x)\ny.set(h)\nr = (x @ y.T).get()\n"
        "s = float(x.sum())\nm = x[x > 10].get()\nx[[0, 2]] = 0\nt = cp.asnumpy(x)\n"
    )
    path = tmp_path / "program.py"
    path.write_text(text)
    found = []
    for on in ("sim", "cuda"):
        names = {"__name__": "__main__", "__file__": str(path)}
        with running.recorded(str(path), on=on):
            exec(compile(text, str(path), "exec"), names)
        found.append([np.asarray(names[name]) for name in "rsmt"])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
