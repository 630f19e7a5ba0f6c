"""The waits of a task form: what they name, and what stays under way."""

from pathlib import Path

import pytest

from offload.sanitizer.buffers import ARE_SEEN
from tests.port.emitting import HEAD, body_of, emitted_of, run_text

EXAMPLE = Path(__file__).parents[2] / "examples" / "streams" / "step0_by_hand.py"


def test_a_wait_for_an_event_keeps_the_overlap(tmp_path):
    """A wait that leaves other frames under way becomes a wait for the array that the host uses next."""
    emitted = emitted_of(tmp_path, EXAMPLE.read_text(encoding="utf-8"))
    assert emitted.reasons == []
    lines = [line.strip() for line in emitted.text.splitlines()]
    assert [(lines[k - 1], line.partition("  #")[0]) for k, line in enumerate(lines) if line.startswith(USES)] == [
        ("offload.taskwait(depend=[offload.out(pinned_raw[slot])])  # line 35", f"{USES[0]} = source[number]"),
        ("offload.taskwait(depend=[offload.in_(pinned_clean[slot])])  # line 43", f"{USES[1]} = pinned_clean[slot]"),
        ("offload.taskwait(depend=[offload.in_(pinned_clean[slot])])  # line 57", f"{USES[2]} = pinned_clean[slot]"),
    ]
    assert 'omp("taskwait")' not in emitted.text
    assert run_text(tmp_path, emitted.text) == "8 frames, sum 944476799.9\n"


USES = ("pinned_raw[slot][...]", "result[number - n_slots]", "result[number]")

FILES = """\
import io
import cupy as cp
import cupyx
import numpy as np
s = cp.cuda.Stream(non_blocking=True)
source, target = io.BytesIO(np.arange(48.0).tobytes()), io.BytesIO()
x = [cp.empty(8) for _ in range(2)]
h = [MAKE for _ in range(2)]
out = [MAKE for _ in range(2)]
came = [cp.cuda.Event() for _ in range(2)]
for i in range(6):
    k = i % 2
    WAIT
    source.readinto(h[k])
    x[k].set(h[k], stream=s)
    with s:
        x[k] += 1
    x[k].get(out=out[k], stream=s, blocking=BLOCKING)
    came[k].record(s)
    READY
    target.write(out[k])
print(np.frombuffer(target.getvalue()).sum())
"""


@pytest.mark.parametrize(
    ("words", "waits", "results"),
    [
        (("cupyx.empty_pinned(8)", "False", "came[k].synchronize()", "s.synchronize()"), 1, 0),  # the second orders all
        (("np.empty(8)", "True", "pass", "pass"), 0, 1 if ARE_SEEN else 2),
    ],
    ids=["waits", "copies"],
)
def test_memory_that_compiled_code_uses_is_waited_for(tmp_path, words, waits, results):
    """The form waits for memory that files are read into or written from, even if these accesses are not seen."""
    text = FILES
    for old, new in zip(("MAKE", "BLOCKING", "WAIT", "READY"), words, strict=True):
        text = text.replace(old, new)
    emitted = emitted_of(tmp_path, text)
    assert emitted.reasons == []
    assert emitted.text.count('omp("taskwait")') == waits
    assert emitted.text.count(".result()") == results
    assert run_text(tmp_path, emitted.text) == "1176.0\n"


AHEAD = """\
import cupy as cp
import cupyx
streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
h = [cupyx.zeros_pinned(4) for _ in range(2)]
d = [cp.empty(4) for _ in range(2)]
for i in range(6):
    k = i % 2
    if i > 1:
        streams[k].synchronize()
        USE
    d[k].set(h[k], stream=streams[k])
    with streams[k]: d[k] += 1
    d[k].get(out=h[k], stream=streams[k], blocking=False)
for stream in streams: stream.synchronize()
print(h)
"""


@pytest.mark.parametrize(
    ("use", "wait"),
    [
        ("h[k] *= 2", "offload.taskwait(depend=[offload.in_(h[k])])  # line 9"),  # what has read h[k] is over by then
        ("h[k][1:] = 3", "offload.taskwait(depend=[offload.out(h[k][1:])])  # line 9"),
        ("print(h[k].sum())", "offload.taskwait(depend=[offload.in_(h[k])])  # line 9"),
        ("[a.sum() for a in h[k:k + 1]]", 'omp("taskwait")  # line 9'),
    ],
)
def test_the_arrays_that_a_wait_names(tmp_path, use, wait):
    """A wait names the arrays of the host's statement; it waits for all tasks if no expression there names them."""
    emitted = emitted_of(tmp_path, AHEAD.replace("USE", use))
    assert emitted.reasons == []
    lines = body_of(emitted.text)
    assert lines[lines.index(use) - 1] == wait


def test_memory_that_cupy_reads_at_once_is_waited_for(tmp_path):
    """CuPy copies pageable memory at once, so the host may write there; the form waits before."""
    text = (
        HEAD
        + "for i in range(3):\n    h[0] = i\n    d.set(h[0], stream=s)\nd.get(out=out[0], stream=s)\nprint(out[0])\n"
    )
    emitted = emitted_of(tmp_path, text)
    assert emitted.reasons == []
    lines = body_of(emitted.text)
    assert lines[lines.index("h[0] = i") - 1] == "offload.taskwait(depend=[offload.out(h[0])])  # line 11"
