"""``offload port --on cuda``: the report of ``sim``, with the results of CuPy; and CuPy's rules themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from offload.port.analysis import analyse
from offload.port.running import recorded
from tests.gpu.conftest import cupy, cupyx
from tests.port import brute
from tests.port.rings import Ring

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
DRACC = ROOT / "tests/port/dracc"

HEAD = """\
import numpy as np
import cupy as cp
import cupyx
a = cp.cuda.Stream(non_blocking=True)
b = cp.cuda.Stream(non_blocking=True)
c = cp.cuda.Stream()
e = cp.cuda.Event()
n = 1 << 12
p = cupyx.empty_pinned((8, n))
p[...] = np.arange(8 * n).reshape(8, n)
q = cupyx.zeros_pinned((8, n))
h = np.arange(n, dtype=float)
x = cp.zeros((8, n))
cp.cuda.Device().synchronize()
"""

KERNEL = """
extern "C" __global__ void axpy(const double* x, double* y, double a, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""

CLEAN = {
    "a ring of two slots": Ring(2, 3).text + "results = [h_out]\n",
    "a ring of three slots and four stages": Ring(3, 4).text + "results = [h_out]\n",
    "029": (DRACC / "cuda_029_working.py").read_text() + "results = [c]\n",
    "a kernel": HEAD
    + f"k = cp.RawKernel({KERNEL!r}, 'axpy')\ny = cp.ones(n)\na.wait_event(cp.cuda.Stream.null.record())\n"
    + "with a:\n    x.set(p)\n    k((16,), (256,), (x[1], y, 2.0, np.int32(n)))\n    r = y.get()\nresults = [r]\n",
    "views": HEAD
    + "with a:\n    x.set(p)\n    x[:, ::2] *= 2\n    x[::-1, 1] = -1\n    a.record(e)\nb.wait_event(e)\n"
    + "with b:\n    t = x.T[3]\n    r = x[2, 100:200].get()\n    u = x[:, ::2].get()\n"
    + "    v = cp.asnumpy(x.T, order='F')\n    w = t.get()\nresults = [r, u, v, w]\n",
    "the null stream": HEAD
    + "with c: x.set(p)\nx += 1\nwith c: x *= 2\nc.record(e)\nc.record(e)\na.wait_event(e)\n"
    + "with a: x.get(out=q, blocking=False)\ncp.cuda.runtime.deviceSynchronize()\nresults = [q]\n",
    "pageable copies": HEAD
    + "for i in range(8):\n    with a: x[i].set(h)\n    h += 1\nr = x.get(stream=a)\ng = np.empty((8, n))\n"
    + "x.get(stream=a, out=g)\nresults = [r, g]\n",
    "functions": HEAD
    + "with a:\n    x.set(p)\n    f = cp.fft.ifft(cp.fft.fft(x[1])).real\n    s = cp.sort(x[2] % 7)\n"
    + "    m = cp.linalg.norm(x[:, :8])\n    w = cp.clip(x[3], 1, 9)\n    d = cp.einsum('ij,kj->ik', x, x)\n"
    + "    z = cp.concatenate([f, s])\nresults = [one.get(stream=a) for one in (f, s, m, w, d, z)]\n",
    "numbers and sizes": HEAD
    + "with a:\n    x.set(p)\n    if x[1, 1] > 3: x += float(x[0, 1])\n    k = int(cp.count_nonzero(x))\n"
    + "    i = cp.nonzero(x[0] < 4)[0]\n    r = x[0][x[0] < 9]\n"
    + "results = [np.array(k), i.get(stream=a), r.get(stream=a)]\n",
    "a callback": HEAD
    + "seen = []\nwith a:\n    x.set(p)\n    x.get(out=q, blocking=False)\n"
    + "a.launch_host_func(lambda given: seen.append(float(given[7].sum())), q)\na.synchronize()\n"
    + "results = [np.array(seen)]\n",
    "asarray": HEAD
    + "with a:\n    y = cp.asarray(p)\n    z = cp.array([1.5, 2.5])\n    o = cp.asarray(h[::2])\n    y[0, :2] += z\n"
    + "    y[1, ::2] += o\nresults = [y.get(stream=a), o.get(stream=a)]\n",
}

FAULTY = {
    "010": (DRACC / "cuda_010_missing_data.py").read_text(),
    "024": (DRACC / "cuda_024_copy_missing_wait.py").read_text(),
    **{f"a ring without line {wait.line}": Ring(2, 3, wait.line).text for wait in Ring(2, 3).waits},
    "a pinned source": HEAD + "x.set(p, stream=a)\np[0] = 1\n",
    "two streams": HEAD + "with a: x[:, 0] += 1\nwith b: x[1] += 1\n",
}


def run(text, tmp_path, on, **options):
    """Record a program; return its report without the word ``on``, its log, and its names."""
    path = tmp_path / "program.py"
    path.write_text(text)
    names = {"__name__": "__main__", "__file__": str(path)}
    with recorded(str(path), on=on, **options) as past:
        exec(compile(text, str(path), "exec"), names)
    found = analyse(past.log, str(path), on).as_dict()
    assert found.pop("on") == on
    return found, past.log, names


@pytest.mark.parametrize("name", CLEAN)
def test_clean_programs(name, tmp_path):
    """A clean program has the report of ``sim`` and the results of CuPy, which are NumPy's up to rounding."""
    sim, _, expected = run(CLEAN[name], tmp_path, "sim")
    cuda, _, found = run(CLEAN[name], tmp_path, "cuda")
    assert sim["races"] == []
    assert cuda.pop("unchecked") is False
    is_unchecked = sim.pop("unchecked")
    if name == "numbers and sizes":  # on CUDA the elements that a mask selects are not known
        del sim["edges"], cuda["edges"]
    assert sim == cuda
    if is_unchecked:
        values = np.arange(1 << 12) + (1 << 12)
        np.testing.assert_allclose(np.asarray(found["results"][0]), 1 + 2.0 * values)
        return
    for one, other in zip(found["results"], expected["results"], strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("name", FAULTY)
def test_faulty_programs(name, tmp_path):
    """A faulty program has the findings of ``sim``: all races and all reads of unwritten memory."""
    sim, _, _ = run(FAULTY[name], tmp_path, "sim")
    cuda, _, _ = run(FAULTY[name], tmp_path, "cuda")
    assert sim["races"] or sim["uninitialised"]
    assert sim == cuda


def test_generated_programs(tmp_path):
    """Generated programs have the report of ``sim``."""
    for seed in range(300, 320):
        text = brute.Program(seed).text
        sim, _, _ = run(text, tmp_path, "sim")
        cuda, _, _ = run(text, tmp_path, "cuda")
        assert sim == cuda, text


def test_the_arrays_are_of_cupy(tmp_path):
    """The proxies hold arrays of CuPy, on the streams that the program says."""
    _, _, names = run(HEAD + "with a: y = x + 1\ns = y.array_data\n", tmp_path, "cuda")
    assert isinstance(names["s"], cupy.ndarray)
    assert names["a"].native.is_non_blocking


def test_digests(tmp_path):
    """The bytes that copies bring to the host have the same digests as on ``sim``, also of copies that do not wait."""
    text = Ring(2, 3).text
    _, sim, _ = run(text, tmp_path, "sim", wants_digests=True)
    _, cuda, _ = run(text, tmp_path, "cuda", wants_digests=True)
    assert len(sim.arrived) == 9
    assert sim.arrived == cuda.arrived


def test_elementwise_and_reduction_kernels(tmp_path):
    """Elementwise and reduction kernels run, and are ordered by their arguments."""
    text = HEAD + (
        "k = cp.ElementwiseKernel('T x, T y', 'T z', 'z = x + y', 'added')\n"
        "t = cp.ReductionKernel('T x', 'T y', 'x', 'a + b', 'y = a', '0', 'total')\n"
        "u, z = cp.ones(8), cp.empty(8)\ncp.cuda.Device().synchronize()\n"
        "with a: k(u, u, z)\nwith b: s = t(z)\nw = k(u, u, stream=a)\na.synchronize()\nb.synchronize()\n"
        "r, v = s.get(), w.get(stream=a)\n"
    )
    found, _, names = run(text, tmp_path, "cuda")
    first = HEAD.count("\n")
    lines = [(race["first"]["line"] - first, race["second"]["line"] - first) for race in found["races"]]
    assert lines == [(5, 6)]
    assert names["v"].tolist() == [2.0] * 8


def test_the_command(tmp_path):
    """``offload port --on cuda`` prints the program's output, and writes the report."""
    path = tmp_path / "program.py"
    path.write_text(Ring(2, 3).text + "print('total', total)\n")
    command = [sys.executable, "-m", "offload", "port", "--on", "cuda", "--report", "r.json", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"total {float(sum(range(72)) * 2)}\n")
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["on"], report["races"], report["streams"]) == ("cuda", [], 3)


# -- the rules that the porter takes from CUDA and CuPy -------------------------------------------------
def test_null_follows_blocking_streams(latch):
    """An event on the null stream, and the null stream itself, wait for blocking streams, not for others."""
    null, event = cupy.cuda.Stream.null, cupy.cuda.Event()
    blocking, other = cupy.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)
    latch.hold(blocking)
    assert not null.done  # so that `null.synchronize()` waits for the blocking stream
    null.record(event)
    assert not event.done
    latch.release()
    event.synchronize()
    assert blocking.done
    latch.again()
    latch.hold(other)
    null.record(event)
    event.synchronize()
    null.synchronize()
    assert not other.done


def test_blocking_streams_follow_null(latch):
    """Work on a blocking stream waits for the null stream; work on a non-blocking stream does not."""
    null, event, free = cupy.cuda.Stream.null, cupy.cuda.Event(), cupy.cuda.Event()
    blocking, other = cupy.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)
    latch.hold(null)
    other.record(free)
    free.synchronize()
    blocking.record(event)
    assert not event.done


def test_a_wait_on_the_null_stream_is_work(latch):
    """A wait for an event on the null stream holds later work of blocking streams."""
    null, held = cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)
    blocking, event, after = cupy.cuda.Stream(), cupy.cuda.Event(), cupy.cuda.Event()
    latch.hold(held)
    held.record(event)
    null.wait_event(event)
    blocking.record(after)
    assert not after.done


def test_when_copies_read_the_host(latch):
    """A copy reads pinned memory when the stream gets there, and pageable or strided memory at once."""
    held = cupy.cuda.Stream(non_blocking=True)
    pinned, pageable = cupyx.zeros_pinned(8), np.zeros(8)
    arrays = [cupy.zeros(8) for _ in range(3)]
    half = cupy.zeros(4)
    for array in arrays:
        array.set(pageable, stream=held)
    half.set(np.zeros(4), stream=held)
    held.synchronize()
    latch.hold(held)
    arrays[0].set(pinned, stream=held)
    arrays[1].set(pageable, stream=held)
    half.set(pinned[::2], stream=held)
    pinned[...] = 1
    pageable[...] = 1
    latch.release()
    held.synchronize()
    assert [float(array.sum()) for array in (arrays[0], arrays[1], half)] == [8, 0, 0]


def test_waits_for_events_name_a_position(latch):
    """A wait takes the position that the event has at the time; a wait for a new event waits for nothing."""
    held, free = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    event, never, after = cupy.cuda.Event(), cupy.cuda.Event(), cupy.cuda.Event()
    free.record(event)
    latch.hold(held)
    free.wait_event(event)  # recorded before the stream was held
    held.record(event)
    free.wait_event(never)
    free.record(after)
    after.synchronize()
    free.wait_event(event)
    free.record(after)
    assert not after.done
