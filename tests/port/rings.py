"""Ring pipelines: stages on streams of their own, with rings of buffers between them."""

from __future__ import annotations

from typing import NamedTuple


class Wait(NamedTuple):
    """A wait of a ring: its line, and the lines of the two accesses that it orders, the earlier execution first."""

    line: int
    first: int
    second: int


class Ring:
    """The text of a pipeline.

    Parameters
    ----------
    slots : int
        Buffers of each ring.
    stages : int
        Stages, each on a stream: the first one copies to the device, the last one copies back; a stage between
        computes. A single stage does all on one stream.
    left_out : int or None
        The line of a wait that is replaced by ``pass``.
    """

    def __init__(self, slots, stages, left_out=None):
        self.waits = []
        rings = max(stages - 1, 1)
        self.lines = [
            "import numpy as np",
            "import cupy as cp",
            "import cupyx",
            "h_in = cupyx.empty_pinned((9, 8))",
            "h_out = cupyx.empty_pinned((9, 8))",
            "h_in[...] = np.arange(72).reshape(9, 8)",
            *(f"s{k} = cp.cuda.Stream(non_blocking=True)" for k in range(stages)),
            *(f"b{k} = [cp.empty(8) for _ in range({slots})]" for k in range(rings)),
            *(f"ready{k} = [cp.cuda.Event() for _ in range({slots})]" for k in range(rings)),
            *(f"free{k} = [cp.cuda.Event() for _ in range({slots})]" for k in range(rings)),
            "for i in range(9):",
            f"    k = i % {slots}",
        ]
        self._add_stages(stages)
        self._add_wait(f"s{stages - 1}.synchronize()", "back", "sum")
        self.lines.append("total = h_out.sum()")
        marks = {"sum": len(self.lines), **self._marks}
        self.waits = [Wait(line, marks[first], marks[second]) for line, first, second in self._pending]
        if left_out is not None:
            text = self.lines[left_out - 1]
            self.lines[left_out - 1] = text[: len(text) - len(text.lstrip())] + "pass"
        self.text = "\n".join(self.lines) + "\n"

    def _add_wait(self, text, first, second):
        self.lines.append(text)
        self._pending.append((len(self.lines), first, second))

    def _add(self, text, mark):
        self.lines.append(text)
        self._marks[mark] = len(self.lines)

    def _add_stages(self, stages):
        self._pending, self._marks = [], {}
        if stages == 1:
            self.lines.append("    with s0:")
            self._add("        b0[k].set(h_in[i])", "in")
            self._add("        b0[k] *= 2", "work")
            self._add("        b0[k].get(out=h_out[i], blocking=False)", "back")
            return
        self._add_wait("    s0.wait_event(free0[k])", "back" if stages == 2 else "work1", "in")
        self.lines.append("    with s0:")
        self._add("        b0[k].set(h_in[i])", "in")
        self.lines.append("        ready0[k].record()")
        for j in range(1, stages - 1):
            self._add_wait(f"    s{j}.wait_event(ready{j - 1}[k])", "in" if j == 1 else f"work{j - 1}", f"work{j}")
            self._add_wait(
                f"    s{j}.wait_event(free{j}[k])", "back" if j == stages - 2 else f"work{j + 1}", f"work{j}"
            )
            self.lines.append(f"    with s{j}:")
            self._add(f"        cp.multiply(b{j - 1}[k], 2, out=b{j}[k])", f"work{j}")
            self.lines += [f"        free{j - 1}[k].record()", f"        ready{j}[k].record()"]
        j = stages - 1
        self._add_wait(f"    s{j}.wait_event(ready{j - 1}[k])", "in" if j == 1 else f"work{j - 1}", "back")
        self.lines.append(f"    with s{j}:")
        self._add(f"        b{j - 1}[k].get(out=h_out[i], blocking=False)", "back")
        self.lines.append(f"        free{j - 1}[k].record()")
