"""Blocks of ``parallel``, ``masked``, ``single``, ``sections``, ``critical`` and ``atomic``."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

import offload as omp
from tests.pragma.directive_calls import manage
from tests.pragma.programs import made_of

WAITING = ["parallel", "parallel masked", "single", "sections", "parallel sections"]


@pytest.mark.parametrize("text", WAITING)
def test_the_end_waits_for_tasks_and_descendants(runtime, text):
    """The end of such a block waits for the tasks generated in it, and for their descendants."""
    release, seen = threading.Event(), []

    @omp.task
    def inner():
        release.wait()
        seen.append("inner")

    @omp.task
    def outer():
        inner()

    with manage(text):
        outer()
        release.set()
    assert seen == ["inner"]


@pytest.mark.parametrize("text", ["single nowait", "sections nowait", "parallel sections nowait", "masked"])
def test_the_end_of_others_does_not_wait(runtime, text):
    """With ``nowait``, and of ``masked``, the end waits for no task."""
    release = threading.Event()
    with manage(text):
        task = omp.task(release.wait)()
    assert not task.done()
    release.set()
    omp.taskwait()


def test_parallel_does_not_wait_for_earlier_tasks(runtime):
    """The end of a ``parallel`` waits for the tasks of its own block alone."""
    event = omp.Event()
    before = omp.task(detach=event)(lambda: None)()
    with manage("parallel"):
        own = omp.task(lambda: 3)()
    assert own.done()
    assert not before.done()
    event.fulfill()
    omp.taskwait()


def test_failures_are_raised_at_the_end(runtime):
    """The end raises the failures of its tasks, as a taskgroup does."""
    with pytest.raises(ExceptionGroup) as caught, manage("parallel"):
        omp.task(lambda: 1 / 0)()
    assert isinstance(caught.value.exceptions[0], ZeroDivisionError)


def test_a_blocks_own_exception_goes_on(runtime):
    """If the block raises, its exception goes on after the wait, with later failures as a note."""
    with pytest.raises(KeyError) as caught, manage("parallel"):
        task = omp.task(lambda: 1 / 0)()
        raise KeyError
    assert task.done()
    assert "ZeroDivisionError" in caught.value.__notes__[-1]


def test_cancel_taskgroup_passes_a_parallel_by():
    """``cancel taskgroup`` in a ``parallel`` cancels the taskgroup around it, and is an error without one."""
    with omp.Runtime("sim:1", env={"OMP_CANCELLATION": "true"}):
        seen = []
        with omp.taskgroup():
            with manage("parallel"):
                omp.cancel("taskgroup")
            seen.append("left")
        assert seen == []
        with pytest.raises(omp.UsageError), manage("parallel"):
            omp.cancel("taskgroup")


def test_blocks_nest(runtime):
    """``single`` in ``parallel`` is the usual way to generate tasks."""
    x = np.zeros(4)
    with manage("parallel num_threads(4)"), manage("single"):
        for i in range(4):
            omp.task(x.__setitem__)(i, i)
    assert x.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("text", "value", "error"),
    [
        ("parallel num_threads(n)", 0, omp.ClauseError),
        ("parallel num_threads(n)", 1.5, omp.ClauseError),
        ("parallel masked num_threads(n)", "x", omp.ClauseError),
        ("parallel sections num_threads(n)", -1, omp.ClauseError),
        ("masked filter(n)", 1.5, omp.ClauseError),
        ("masked filter(n)", True, omp.ClauseError),
        ("masked filter(n)", 1, omp.UnsupportedError),
        ("parallel masked filter(n)", 2, omp.UnsupportedError),
    ],
)
def test_clauses_are_checked(text, value, error):
    """The values of ``num_threads`` and ``filter`` are checked where the block begins."""
    with pytest.raises(error):
        manage(text, n=value)


def test_the_number_of_threads_for_loops():
    """A ``parallel`` tells the number of threads for worksharing loops in its block."""
    assert manage("parallel num_threads(n)", n=3).num_threads == 3
    assert manage("parallel num_threads(3) if(n)", n=0).num_threads == 1
    assert manage("parallel").num_threads is None


def test_asynchronous_blocks(runtime):
    """In a coroutine, the end of a block lets the event loop run."""

    async def program():
        seen = []

        async def other():
            seen.append("other")

        async with manage("parallel"):
            omp.task(other)()
        return seen

    assert asyncio.run(program()) == ["other"]


def test_a_block_in_a_generator(runtime):
    """A block in a generator that is suspended concerns the generator's tasks alone."""
    event = omp.Event()

    def program():
        with manage("parallel"):
            yield omp.task(lambda: 3)()

    running = program()
    own = next(running)
    outside = omp.task(detach=event)(lambda: None)()
    assert next(running, None) is None
    assert own.done()
    assert not outside.done()
    event.fulfill()
    omp.taskwait()


# -- critical and atomic -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["critical", "critical(name)", "atomic", "atomic update seq_cst"])
def test_blocks_exclude_each_other(runtime, text):
    """One thread at a time is in such a block, of all threads of the process."""
    inside, most = [], []

    def body():
        for _ in range(50):
            with manage(text):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=body) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}


def test_names_are_separate_locks():
    """Blocks of other names, and of ``atomic``, do not exclude each other."""
    with manage("critical(a)"), manage("critical(b)"), manage("critical"), manage("atomic"):
        pass


@pytest.mark.parametrize("text", ["critical", "critical(a)", "atomic"])
def test_a_block_in_itself_is_an_error(text):
    """A thread that is in a block of a name cannot enter another one: it would wait for itself."""
    with manage(text):
        with pytest.raises(omp.UsageError, match="already in a block"), manage(text):
            pass
        with pytest.raises(omp.UsageError), manage(text):
            pass
    with manage(text):
        pass


def test_an_exception_leaves_the_block():
    """A block that raises gives its lock back."""
    for _ in range(2):
        with pytest.raises(KeyError), manage("critical(raises)"):
            raise KeyError


WAITS = [
    "omp('taskwait')",
    "omp('barrier')",
    "omp('taskyield')",
    "with omp('taskgroup'): pass",
    "with omp('parallel'): pass",
    "with omp('single'): pass",
    "with omp('target data map(to: x)'): pass",
    "omp('taskwait depend(in: x)')",
    "with omp('target data map(to: x) nowait'): pass",
    "with omp('task if(0) depend(in: x)'): pass",
    "with omp('task if(n) depend(in: x)'): pass",
    "with omp('target depend(in: x)'): x += 1",
    "acc('wait')",
    "acc('wait(1)')",
    "with acc('parallel wait(1)'): x += 1",
    "omp('target update to(x) depend(in: x)')",
    "omp('target enter data map(to: x) depend(in: x)')",
    "with omp('target depend(in: x) nowait(n)'): x += 1",
    "with omp('parallel for depend(in: x)'):\n            for i in range(n): x[i] += 1",
    "with omp('taskloop'):\n            for i in range(n): x[i] += 1",
]


@pytest.mark.parametrize("statement", WAITS)
@pytest.mark.parametrize("lock", ["critical", "critical(a)", "atomic"])
def test_no_waits_under_a_lock(lock, statement):
    """A directive that may wait for other tasks is an error at its line under a lock."""
    around = f"with omp('{lock}'):\n        {statement}"
    with pytest.raises(omp.PragmaError, match="waits, and is inside of") as caught:
        made_of(f"@directives\ndef f(x, n):\n    {around}\n")
    assert caught.value.lineno == 4


@pytest.mark.parametrize(
    "statement",
    [
        "with omp('task depend(in: x)'): pass",
        "with omp('task if(0)'): pass",
        "with omp('task if(1) depend(in: x)'): pass",
        "with omp('target map(tofrom: x)'): x += 1",
        "with omp('target nowait depend(inout: x)'): x += 1",
        "with omp('target data map(to: x) nogroup'): pass",
        "omp('target update to(x)')",
        "omp('taskwait depend(in: x) nowait')",
        "acc('wait async(1)')",
        "with acc('parallel copy(x) wait(1) async(2)'): x += 1",
        "with omp('taskloop nogroup'):\n            for i in range(n): x[i] += 1",
    ],
)
def test_what_a_lock_allows(statement):
    """Directives that wait for no other task are allowed under a lock."""
    made_of(f"@directives\ndef f(x, n):\n    with omp('critical'):\n        {statement}\n")


@pytest.mark.parametrize(
    "text",
    [
        "await x",
        "async for i in x: pass",
        "async with x: pass",
        "y = [await x]",
        "[await y for y in x]",
        "{y async for y in x}",
    ],
)
def test_no_await_under_a_lock(text):
    """A coroutine that awaits under a lock is an error at the await."""
    with pytest.raises(omp.PragmaError, match="waits, and is inside of critical") as caught:
        made_of(f"@directives\nasync def f(x):\n    with omp('critical'):\n        {text}\n")
    assert caught.value.lineno == 4
