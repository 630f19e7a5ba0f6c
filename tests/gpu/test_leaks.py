"""Nothing of CUDA outlives what it was made for, and a test that leaves something behind fails."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import offload as omp
from offload import alloc, in_, inout, release, to, tofrom
from tests.gpu.conftest import cupy, cupyx, warm

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]


@pytest.fixture
def ledger():
    from tests.gpu.ledger import open_ledger

    return open_ledger()


@omp.target(nowait=True)
def add(x, k=1):
    x += k


def everything():
    """Use each kind of construct that puts something on a stream, or takes memory."""
    pinned, pageable = cupyx.zeros_pinned(1000), np.zeros(1000)
    own = cupy.cuda.Stream(non_blocking=True)
    with omp.target_data(map=[tofrom(pinned), tofrom(pageable)]):
        for x in (pinned, pageable):
            for _ in range(20):
                add.options(map=[tofrom(x)], depend=[inout(x)])(x)
        omp.target_update(from_=[pinned[::2], pageable[10:20]])
        omp.task(depend=[in_(pinned)])(lambda: None)()
    omp.target_enter_data(map=[to(pinned), alloc(pageable)], nowait=True)
    omp.taskwait()
    omp.target_exit_data(map=[release(pinned), release(pageable)])
    d = omp.target_alloc(1000, "f8")
    omp.target_memcpy_async(d, pinned)
    omp.target_memcpy_rect_async(pageable, d)
    omp.target_memset_async(d, 1)
    with own:
        add(cupy.zeros(100))
    event = omp.Event()
    with omp.taskgroup():  # which waits for the region in the task too
        omp.task(detach=event)(lambda: add(d))()
        event.fulfill_on(own)
    assert (omp.target(map=[])(lambda d: d + 1)(d) == d + 1).all()
    omp.target_free(d)


# -- runtimes ---------------------------------------------------------------------------------------
def test_a_closed_runtime_keeps_nothing(ledger):
    """Streams and events go when the runtime is closed, even while somebody still refers to it and to its tasks."""
    warm()
    mark = ledger.mark()
    with omp.Runtime("cuda:0", check=True) as runtime:
        everything()
        task = add(cupy.zeros(100))
        assert ledger.alive("stream", mark)  # else there is nothing to prove
    assert ledger.left_since(mark) == []
    assert runtime.close() is None
    assert task.done()


def test_a_runtime_closed_by_an_error_keeps_nothing(ledger):
    """The same where the block raises, and where tasks have failed."""
    warm()
    mark = ledger.mark()

    def fail(x):
        raise ValueError(x.shape)

    def run():
        with omp.Runtime("cuda:0", check=True):
            everything()
            first = omp.target(nowait=True)(fail)(cupy.zeros(10))
            assert isinstance(first.exception(timeout=20), ValueError)
            raise KeyError("mine")

    with pytest.raises(KeyError):
        run()
    assert ledger.left_since(mark) == []


def test_tasks_that_are_kept_keep_no_events(gpu, ledger):
    """A thousand tasks that somebody refers to after they are complete hold no events, buffers or arguments."""
    mark = ledger.mark()
    x, host = cupy.zeros(1000), cupyx.zeros_pinned(1000)
    tasks = [add.options(depend=[inout(host)])(host) for _ in range(500)]
    tasks += [add(x + 1) for _ in range(500)]
    omp.taskwait()
    cupy.cuda.Device().synchronize()
    gc.collect()
    n_bytes = x.nbytes
    assert len(ledger.alive("event", mark)) < 1000  # a runtime keeps as many for use again as were in flight
    more = [add.options(depend=[inout(host)])(host) for _ in range(500)]
    omp.taskwait()
    n_before = len(ledger.alive("event", mark))
    for _ in range(3):
        more += [add.options(depend=[inout(host)])(host) for _ in range(500)]
        omp.taskwait()
    assert len(ledger.alive("event", mark)) <= n_before + 100
    del x
    gc.collect()
    assert all(task.done() for task in tasks + more)
    assert cupy.get_default_memory_pool().used_bytes() < mark.used_nbytes + n_bytes


def test_arrays_in_one_cycle_with_their_runtime(ledger):
    """Memory goes back in whichever order the garbage collector finalises arrays, runtime and what allocates."""
    mark = ledger.mark()

    def run():
        with omp.Runtime("cuda:0", check=True) as runtime:
            blocks = [omp.target_alloc(1000 * k) for k in range(1, 9)]
            for block in blocks:
                omp.target_free(block)
        cycle = [runtime, blocks]
        cycle.append(cycle)

    run()
    assert ledger.left_since(mark) == []


def test_streams_that_come_and_go(gpu, ledger):
    """A runtime forgets a caller's stream that nobody else refers to, though tasks have waited for what it held."""
    mark = ledger.mark()
    d = omp.target_alloc(100, "f8")
    for _ in range(30):
        own = cupy.cuda.Stream(non_blocking=True)
        event = omp.Event()
        with own:
            add(cupy.zeros(100)).result()
        omp.task(depend=[inout(d)], detach=event)(lambda own=own, event=event: event.fulfill_on(own))()
        add.options(depend=[inout(d)])(d)
        omp.taskwait()
        del own, event
    omp.target_free(d)
    del d
    gc.collect()
    own_streams = [maker for maker in ledger.alive("stream", mark) if "test_leaks" in str(maker[0])]
    assert len(own_streams) < 5


@pytest.mark.measures
def test_runtimes_one_after_the_other(ledger):
    """Memory that the driver holds for streams, events and blocks does not grow with the number of runtimes."""
    warm()
    mark = ledger.mark()

    def free_nbytes():
        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()
        return cupy.cuda.runtime.memGetInfo()[0]

    for turn in range(12):
        with omp.Runtime("cuda:0", check=True):
            everything()
        if turn == 3:
            before_nbytes = free_nbytes()
    after_nbytes = free_nbytes()
    assert ledger.left_since(mark) == []
    assert before_nbytes - after_nbytes < 4 << 20


# -- the fixture ------------------------------------------------------------------------------------
def leak_stream():
    return cupy.cuda.Stream(non_blocking=True)


def leak_event():
    return cupy.cuda.Stream.null.record()


def leak_raw_event():
    return cupy.cuda.runtime.eventCreateWithFlags(2)


def leak_block():
    return cupy.zeros((4, 256), "f4")


def leak_pinned():
    return cupyx.zeros_pinned(100)


def leak_runtime():
    runtime = omp.Runtime("cuda:0")
    runtime.__enter__()
    omp.target_enter_data(map=[to(np.zeros(128))])
    return runtime


LEAKS = [
    (leak_stream, "1 stream: 1 made at test_leaks.py:"),
    (leak_event, "1 event: 1 made at test_leaks.py:"),
    (leak_raw_event, "1 event: 1 made at test_leaks.py:"),
    (leak_block, "4,096 bytes of device memory, in 1 block(s): float32[4, 256]"),
    (leak_pinned, "1 pinned block: 1 made at test_leaks.py:"),
]


@pytest.mark.parametrize(("leak", "expected"), LEAKS, ids=[leak.__name__ for leak, _ in LEAKS])
def test_a_leak_is_named(ledger, leak, expected):
    """The books name what is left, how many, and where it was made; when it goes they are even."""
    mark = ledger.mark()
    leaked = leak()
    (line,) = ledger.left_since(mark)
    assert line.startswith(expected)
    if isinstance(leaked, int):
        cupy.cuda.runtime.eventDestroy(leaked)
    del leaked
    assert ledger.left_since(mark) == []


def test_a_leaky_test_fails(tmp_path):
    """The fixture fails each test that leaves something behind, by name, and none of those that do not."""
    path = tmp_path / "test_leaky.py"
    path.write_text(
        textwrap.dedent("""
            import gc
            import pytest
            from tests.gpu import test_leaks

            pytestmark = pytest.mark.gpu
            kept = []

            @pytest.mark.parametrize("leak", [*(leak for leak, _ in test_leaks.LEAKS), test_leaks.leak_runtime])
            def test_leak(leak):
                kept.append(leak())

            def test_garbage():
                cycle = [test_leaks.leak_stream(), test_leaks.leak_block()]
                cycle.append(cycle)

            def test_clean():
                test_leaks.warm()
        """),
        "utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--rootdir", str(ROOT), str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "OFFLOAD_HANG_S": "2"},
    )
    assert done.returncode == 1, done.stdout + done.stderr
    for name, line in LEAKS:
        assert f"leaked {line}" in done.stdout, (name, done.stdout)
        assert f"test_leak[{name.__name__}]" in done.stdout
    assert re.search(r"test_leak\[leak_runtime\] - Failed: leaked \d+ stream", done.stdout), done.stdout
    assert "8 passed, 6 errors" in done.stdout, done.stdout
