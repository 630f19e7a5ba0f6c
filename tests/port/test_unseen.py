"""Accesses of the host by the buffer protocol, callbacks and times of events, and the waits that they need."""

from __future__ import annotations

import pytest

from offload.port.analysis import analyse
from offload.sanitizer.buffers import ARE_SEEN
from tests.port.emitting import emitted_of
from tests.port.marked import line_of

HEAD = """\
import io, sys
import cupy as cp, cupyx
s = cp.cuda.Stream(non_blocking=True)
h, g = cupyx.zeros_pinned(1000), cupyx.empty_pinned(1000)
d = cp.empty(1000)
file = io.BytesIO(bytes(24000))
"""

FILL = """\
for _ in range(3):
    file.readinto(h)  # write
    d.set(h, stream=s)  # copy
s.synchronize()
"""


@pytest.mark.skipif(not ARE_SEEN, reason="Python shows these accesses since 3.12")
def test_a_buffer_that_is_filled_again_is_a_race(report):
    """A file that is read into a pinned array during a copy from it is a race with the copy."""
    [race] = report(HEAD + FILL)["races"]
    lines = line_of(HEAD + FILL, "# copy"), line_of(HEAD + FILL, "# write")
    assert (race["first"]["line"], race["second"]["line"]) == lines
    assert (race["second"]["what"], race["count"]) == ("write", 3)


DUMP = """\
d.set(h, stream=s)
d.get(stream=s, out=g, blocking=False)
s.synchronize()
USE
"""


@pytest.mark.parametrize("use", ["file.write(g)", "bytes(g)", "v = memoryview(g); v[0]", "g.ctypes.data"])
def test_a_wait_for_data_that_compiled_code_reads_is_needed(report, use):
    """A wait before an access by the buffer protocol, or by memory that was given away, is not needless."""
    assert report(HEAD + DUMP.replace("USE", use))["redundant"] == []


@pytest.mark.skipif(ARE_SEEN, reason="Python shows these accesses")
def test_the_report_says_why_a_wait_may_be_needed(record, tmp_path):
    """Before Python 3.12, the report names the copy for which a wait without a reason may be needed."""
    found = analyse(record(HEAD + DUMP.replace("USE", "file.write(g)")), str(tmp_path / "program.py"), "sim")
    [sentence] = found.not_seen
    assert sentence.startswith("Line 9 may be needed for the copy of g at line 8: before Python 3.12, ")


def test_a_second_wait_is_needless(report):
    """A wait is needless if another one has waited for all work whose result the host may use unseen."""
    text = HEAD + DUMP.replace("USE", "s.synchronize()\nv = memoryview(g)")
    assert [(one["line"], one["why"]) for one in report(text)["redundant"]] == [(10, "implied")]


@pytest.mark.parametrize("use", ["print(g.sum())", "g[...] = 0"])
def test_seen_accesses_decide_about_a_wait(report, use):
    """A wait that orders no copy of an array of the host, and no data, is needless on each Python."""
    text = HEAD + DUMP.replace("USE", use) + "with s:\n    d += 1\ns.synchronize()  # last\n"
    assert [one["line"] for one in report(text)["redundant"]] == [line_of(text, "# last")]


EVENTS = """\
a, b = cp.cuda.Event(), cp.cuda.Event()
a.record(s)
with s:
    d += 1
b.record(s)
b.synchronize()
"""
CALLBACK = """\
log = []
s.launch_host_func(log.append, 1)
s.synchronize()
"""


@pytest.mark.parametrize(
    ("text", "n"),
    [
        (EVENTS + "cp.cuda.get_elapsed_time(a, b)\n", 0),
        (EVENTS, 1),
        (CALLBACK, 0),
        (CALLBACK + "cp.cuda.Device().synchronize()\n", 1),
    ],
)
def test_a_time_and_a_callback_need_the_wait(report, text, n):
    """The host has to wait before it asks for the time of an event, or uses what a callback has done."""
    assert len(report(HEAD + text)["redundant"]) == n


RING = """\
for k in range(4):
    with s:
        d.set(h)
        d.get(out=g, blocking=False)
    s.synchronize()
    sys.stdout.write(str(len(bytes(g))))
print()
"""


def test_the_task_form_keeps_the_wait(tmp_path):
    """A task form waits before compiled code reads the array that a copy has filled."""
    emitted = emitted_of(tmp_path, HEAD.replace("file = io.BytesIO(bytes(24000))\n", "") + RING)
    assert emitted.reasons == []
    before = emitted.text.partition("sys.stdout.write")[0].splitlines()[-2:]
    assert "taskwait" in before[0]


REPLACED = """\
def k(grid, block, args):
    x, y = args
    y[...] = x + 1
e = cp.empty(1000)
d.set(h, stream=s)
with s:
    k((1,), (1000,), (d, e))
e.get(stream=s, out=g, blocking=False)
s.synchronize()
assert (g == 1).all()
"""


def test_a_kernel_that_is_replaced_for_the_run(tmp_path):
    """A function with a kernel's arguments that does the same with array operations makes a task form possible."""
    assert emitted_of(tmp_path, HEAD + REPLACED).reasons == []
