"""What keeps a task from running: every failure before it that nobody has seen, whoever runs, holds or reads what."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import offload as omp
from offload import DependError, acc, in_, inout, inoutset, out

WORKERS = [0, 1, 2, 4]


@pytest.fixture(params=WORKERS)
def host(request):
    with omp.Runtime("sim", num_threads=request.param) as runtime:
        yield runtime


def fails():
    raise ArithmeticError("too hot")


def nothing():
    return "ran"


def end(task):
    """Have a task complete, and its failure not seen."""
    while not task.done():
        omp.taskyield()


@pytest.mark.parametrize("has_ended", [False, True])
def test_an_undeferred_task_hides_no_failure(host, has_ended):
    """What raised `DependError` at its call is seen, and its cause is not: that keeps later tasks from running."""
    a = np.zeros(4)
    root = omp.task(depend=[inout(a)])(fails)()
    if has_ended:
        end(root)
    del root
    with pytest.raises(DependError):
        omp.task(if_=False, depend=[inout(a)])(nothing)()
    gc.collect()
    later = omp.task(depend=[inout(a)])(nothing)()
    assert isinstance(later.exception().__cause__, ArithmeticError)
    with pytest.raises(ExceptionGroup):
        omp.taskwait()
    assert omp.task(depend=[inout(a)])(nothing)().result() == "ran"


@pytest.mark.parametrize("reads", [in_, inoutset, inout])
@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("device", [False, True])
def test_a_reader_that_was_seen_hides_no_failure(host, reads, is_held, device):
    """A task that did not run keeps others from running until it has been seen, whatever has been seen behind it."""
    a, b = np.zeros(4), np.zeros(4)
    construct = omp.target(nowait=True) if device else omp.task
    root = construct(fails).options(depend=[out(a)])()
    producer = construct(nothing).options(depend=[in_(a), out(b)])()
    with pytest.raises(ArithmeticError):
        root.result()
    reader = construct(nothing).options(depend=[reads(b)])()
    assert isinstance(reader.exception(), DependError)
    if not is_held:
        del root, reader
    assert construct(nothing).options(depend=[inout(b)])().exception() is not None
    assert producer.exception() is not None
    assert construct(nothing).options(depend=[inout(b)])().exception() is None


def test_a_seen_failure_hides_no_other(host):
    """Of two failures before a task each counts for itself, and so does each behind a task that did not run."""
    a, b, c = np.zeros(4), np.zeros(4), np.zeros(4)
    one, two = (omp.task(depend=[inout(x)])(fails)() for x in (a, b))
    both = omp.task(depend=[in_(a), in_(b), out(c)])(nothing)()
    for task in (one, both):
        assert task.exception() is not None
    assert omp.task(depend=[in_(c)])(nothing)().exception() is not None
    assert omp.task(depend=[inout(omp.all_memory)])(nothing)().exception() is not None
    assert two.exception() is not None
    omp.taskwait()  # all has been seen
    assert omp.task(depend=[inout(c)])(nothing)().result() == "ran"


def test_the_end_of_a_data_region_hides_no_failure(host):
    """A failure stays in its queue, also behind the end of a region, which runs all the same."""
    a = np.zeros(4)
    with acc.data(copy=[a], async_=1):
        acc.parallel(async_=1)(lambda a: fails())(a)
    behind = acc.parallel(async_=1)(lambda: "ran")()
    assert isinstance(behind.exception(), DependError)
    with pytest.raises(ExceptionGroup):
        acc.wait(1)
    assert acc.parallel(async_=1)(lambda: "ran")().result() == "ran"
    acc.wait()


def test_the_storage_of_one_that_did_not_run_names_nothing_new(host):
    """The address of an array of a task that did not run is no other's while that keeps others from running."""
    a = np.zeros(4)

    def new():
        b = np.zeros(4)
        return inout(b)

    omp.task(depend=[inout(a)])(fails)()
    for _ in range(200):
        with pytest.raises(DependError):
            omp.task(if_=False, depend=[in_(a), new()])(nothing)()
        assert omp.task(depend=[new()])(nothing)().exception() is None
    with pytest.raises(ExceptionGroup):
        omp.taskwait()
    assert not host.scope().region.children.troubles
