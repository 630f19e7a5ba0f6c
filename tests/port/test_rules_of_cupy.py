"""CuPy's rules, one small program each: which lines race, and which do not."""

from __future__ import annotations

import pytest

HEAD = """\
import numpy as np
import cupy as cp
import cupyx
a = cp.cuda.Stream(non_blocking=True)
b = cp.cuda.Stream(non_blocking=True)
c = cp.cuda.Stream()
d = cp.cuda.Stream()
null = cp.cuda.Stream.null
e = cp.cuda.Event()
x = cp.zeros(8)
y = cp.zeros((4, 4))
p = cupyx.zeros_pinned(8)
h = np.zeros(8)
cp.cuda.Device().synchronize()
"""
FIRST = HEAD.count("\n")

CASES = {
    "two streams": ("with a: x += 1\nwith b: x += 1", [(1, 2)]),
    "reads alone": ("with a: x.sum()\nwith b: x.max()", []),
    "one stream": ("with a: x += 1\nwith a: x += 1", []),
    "other elements": ("with a: x[:4] += 1\nwith b: x[4:] += 1", []),
    "interleaved elements": ("with a: x[::2] += 1\nwith b: x[1::2] += 1", []),
    "a shared element": ("with a: x[::2] += 1\nwith b: x[::3] += 1", [(1, 2)]),
    "columns": ("with a: y[:, 0] += 1\nwith b: y[:, 1] += 1", []),
    "a column and a row": ("with a: y[:, 0] += 1\nwith b: y[1] += 1", [(1, 2)]),
    "a transposed view": ("with a: y.T[0] += 1\nwith b: y[1, 0] += 1", [(1, 2)]),
    "reshaped": ("z = y.reshape(16)\nwith a: z[4:8] += 1\nwith b: y[1] += 1", [(2, 3)]),
    "a mask": ("m = x == 1\ncp.cuda.Device().synchronize()\nwith a: x[m] = 2\nwith b: x += 1", []),
    "a mask that selects": ("m = x == 0\ncp.cuda.Device().synchronize()\nwith a: x[m] = 2\nwith b: x += 1", [(3, 4)]),
    "an event": ("with a: x += 1\na.record(e)\nb.wait_event(e)\nwith b: x += 1", []),
    "a method of the event": ("with a:\n    x += 1\n    e.record()\nb.wait_event(e)\nwith b: x += 1", []),
    "a new event": ("with a: x += 1\nb.wait_event(a.record())\nwith b: x += 1", []),
    "an event too early": ("a.record(e)\nwith a: x += 1\nb.wait_event(e)\nwith b: x += 1", [(2, 4)]),
    "a wait too late": ("with a: x += 1\na.record(e)\nwith b: x += 1\nb.wait_event(e)", [(1, 3)]),
    "never recorded": ("with a: x += 1\nb.wait_event(e)\nwith b: x += 1", [(1, 3)]),
    "recorded again": ("with a: x += 1\na.record(e)\nc.record(e)\nb.wait_event(e)\nwith b: x += 1", [(1, 5)]),
    "recorded after the wait": ("with a: x += 1\na.record(e)\nb.wait_event(e)\nc.record(e)\nwith b: x += 1", []),
    "a chain of events": (
        "with a: x += 1\nb.wait_event(a.record())\nc.wait_event(b.record())\nwith c: x += 1",
        [],
    ),
    "the host between": ("with a: x += 1\na.synchronize()\nwith b: x += 1", []),
    "the host waits for another": ("with a: x += 1\nc.synchronize()\nwith b: x += 1", [(1, 3)]),
    "an event on the host": ("with a: x += 1\na.record(e)\ne.synchronize()\nwith b: x += 1", []),
    "an event that is done": ("with a: x += 1\na.record(e)\nassert e.done\nwith b: x += 1", []),
    "a stream that is done": ("with a: x += 1\nassert a.done\nwith b: x += 1", []),
    "the device": ("with a: x += 1\ncp.cuda.runtime.deviceSynchronize()\nwith b: x += 1", []),
    # -- the null stream
    "null after blocking": ("with c: x += 1\nx += 1", []),
    "blocking after null": ("x += 1\nwith c: x += 1", []),
    "null after non-blocking": ("with a: x += 1\nx += 1", [(1, 2)]),
    "non-blocking after null": ("x += 1\nwith a: x += 1", [(1, 2)]),
    "two blocking streams": ("with c: x += 1\nwith d: x += 1", [(1, 2)]),
    "null between blocking streams": ("with c: x += 1\ny += 1\nwith d: x += 1", []),
    "null is no barrier for others": ("with a: x += 1\ny += 1\nwith d: x += 1", [(1, 3)]),
    "an event on null": ("with c: x += 1\nnull.record(e)\na.wait_event(e)\nwith a: x += 1", []),
    "null waits": ("with a: x += 1\nnull.wait_event(a.record())\nwith c: x += 1", []),
    "null is synchronised": ("with c: x += 1\nnull.synchronize()\nwith a: x += 1", []),
    "Stream(null=True)": ("with c: x += 1\nwith cp.cuda.Stream(null=True): x += 1", []),
    # -- copies
    "a pinned source": ("x.set(p, stream=a)\np[0] = 1", [(1, 2)]),
    "a pageable source": ("x.set(h, stream=a)\nh[0] = 1", []),
    "a pinned source is awaited": ("x.set(p, stream=a)\na.synchronize()\np[0] = 1", []),
    "a strided pinned source": ("x[:4].set(p[::2], stream=a)\np[0] = 1", []),
    "a pinned part": ("x[:4].set(p[:4], stream=a)\np[4] = 1", []),
    "the host writes before": ("p[0] = 1\nx.set(p, stream=a)", []),
    "asarray of pinned memory": ("with a: z = cp.asarray(p)\np[0] = 1", [(1, 2)]),
    "asarray of another type": ("with a: z = cp.asarray(p, dtype='f4')\np[0] = 1", []),
    "asarray of pageable memory": ("with a: z = cp.asarray(h)\nh[0] = 1", []),
    "asarray of a list": ("with a: z = cp.asarray([p, p])\np[0] = 1", []),
    "asarray that blocks": ("with a: z = cp.asarray(p, blocking=True)\np[0] = 1", []),
    "an array that asarray made": ("with a: z = cp.asarray(h)\nwith b: z += 1", [(1, 2)]),
    "get": ("with a:\n    x += 1\n    r = x.get()\nwith b: x += 1", []),
    "get on another stream": ("with a: x += 1\nr = x.get(stream=b)", [(1, 2)]),
    "get that does not block": ("with a: r = x.get(blocking=False)\nr.sum()", [(1, 2)]),
    "get that blocks": ("with a: r = x.get()\nr.sum()", []),
    "get into pinned memory": ("x.get(stream=a, out=p, blocking=False)\np.sum()", [(1, 2)]),
    "get into a part": ("x[:4].get(stream=a, out=p[:4], blocking=False)\np[4:].sum()", []),
    "get, and the host waits": ("x.get(stream=a, out=p, blocking=False)\na.synchronize()\np.sum()", []),
    "get and set by two streams": ("x.get(stream=a, out=p, blocking=False)\nx.set(p, stream=b)", [(1, 2)]),
    "get, and the host reads at once": ("x.get(stream=a, out=h, blocking=False)\nx.set(h, stream=b)", [(1, 2)]),
    "asnumpy": ("with a: x += 1\nr = cp.asnumpy(x, stream=a)\nwith b: x += 1", []),
    "asnumpy that does not block": ("r = cp.asnumpy(x, stream=a, blocking=False)\nr.sum()", [(1, 2)]),
    "float": ("with a:\n    x += 1\n    v = float(x[0])\nwith b: x += 1", []),
    "bool": ("with a:\n    x += 1\n    v = bool(x[0] > 0)\nwith b: x += 1", []),
    "float on another stream": ("with a: x += 1\nv = float(x[0])", [(1, 2)]),
    "a size that depends on data": ("with a:\n    x += 1\n    v = cp.nonzero(x)\nwith b: x += 1", []),
    # -- the current stream
    "use": ("a.use()\nx += 1\nnull.use()\nwith b: x += 1", [(2, 4)]),
    "nested blocks": ("with a:\n    with b: x += 1\n    x += 1", [(2, 3)]),
    "after a block": ("with a: pass\nx += 1\nwith a: x += 1", [(2, 3)]),
    "get_current_stream": ("with a: s = cp.cuda.get_current_stream()\nwith s: x += 1\nwith b: x += 1", [(2, 3)]),
    # -- callbacks
    "a callback": (
        "x.get(stream=a, out=p, blocking=False)\na.launch_host_func(lambda q: q.sum(), p)\np.sum()",
        [(1, 3)],
    ),
    "a callback that writes": ("a.launch_host_func(lambda q: q.fill(1), p)\np.sum()", [(1, 2)]),
    "a callback is awaited": ("a.launch_host_func(lambda q: q.fill(1), p)\na.synchronize()\np.sum()", []),
    # -- arrays
    "a new array": ("with a: z = x + 1\nwith b: z += 1", [(1, 2)]),
    "an array that is made": ("with a: z = cp.ones(4)\nwith b: z += 1", [(1, 2)]),
    "an array that is not written": ("with a: z = cp.empty(4)\nwith b: z[...] = 1", []),
    "memory is used again": ("with a: z = x + 1\ndel z\nwith b: z = x + 1", []),
    "astype without a copy": ("with a: z = x.astype(x.dtype, copy=False)\nwith a: z += 1\nwith b: x += 1", [(2, 3)]),
    "copyto": ("with a: cp.copyto(x, y[0, 0])\nwith b: x.sum()", [(1, 2)]),
    "out": ("with a: cp.add(x, 1, out=x)\nwith b: x.sum()", [(1, 2)]),
    "a matrix product": ("with a: y @ y\nwith b: y += 1", [(1, 2)]),
    "a NumPy function": ("with a: np.sin(x)\nwith b: x += 1", [(1, 2)]),
    "fft": ("with a: z = cp.fft.fft(x)\nwith b: z += 1", [(1, 2)]),
    "linalg": ("with a: z = cp.linalg.norm(y)\nwith b: y += 1", [(1, 2)]),
    "random": ("with a: z = cp.random.rand(4)\nwith b: z += 1", [(1, 2)]),
    "a generator has no storage": ("g = cp.random.default_rng(1)\nwith a: g.random(4)\nwith b: g.random(4)", []),
    "a field": (
        "z = cp.zeros(4, 'f4,i4')\ncp.cuda.Device().synchronize()\nwith a: z['f0'] += 1\nwith b: z['f1'] += 1",
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_races(name, report):
    """A program has the races that CuPy's rules give it, at these lines."""
    text, expected = CASES[name]
    found = report(HEAD + text + "\n")
    lines = [(race["first"]["line"] - FIRST, race["second"]["line"] - FIRST) for race in found["races"]]
    assert lines == expected
