"""Warnings: that they are seen, and that they name the line of the program."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import linecache
import subprocess
import sys
import warnings

import numpy as np
import pytest

import offload as omp
from offload import acc, from_, inout, to, tofrom

A = np.zeros(4)


def add_one(x):
    x += 1


REGION = omp.target(add_one)
COMPUTE = acc.parallel(add_one)


# Each calls what warns in its one line that ends in "# here".


def a_target():
    REGION(A)  # here


def a_target_by_keyword():
    REGION(x=A)  # here


def a_deferred_target():
    REGION.options(nowait=True, depend=[inout(A)])(A)  # here


def a_data_region():
    with omp.target_data(map=[tofrom(A)]):  # here
        pass


def an_enter_data():
    omp.target_enter_data(map=[to(A)])  # here


def an_exit_data():
    omp.target_exit_data(map=[from_(A)])  # here


def an_update():
    omp.target_update(to=[A])  # here


def an_interop():
    with omp.interop():  # here
        pass


def a_current_stream():
    with contextlib.suppress(omp.OffloadError):
        omp.current_stream()  # here


def a_stream():
    with contextlib.suppress(omp.OffloadError):
        omp.stream(0)  # here


def a_look():
    omp.target_is_present(A)  # here


def an_association():
    with contextlib.suppress(omp.OffloadError):
        omp.target_associate_ptr(A, A)  # here


def an_allocation():
    omp.target_free(omp.target_alloc(4))  # here


def a_compute_region():
    COMPUTE(A)  # here


def a_queued_compute_region():
    COMPUTE.options(async_=1)(A)  # here
    acc.wait(1)


def a_data_region_of_acc():
    with acc.data(copy=A):  # here
        pass


def a_function_that_is_a_data_region():
    function = acc.declare(copy="x")(add_one)
    function(A)  # here


def a_copyin():
    acc.copyin(A)  # here


def a_malloc():
    acc.free(acc.malloc(4))  # here


def a_host_data():
    with acc.host_data(use_device=[A], if_present=True):  # here
        pass


def a_wait_for_a_queue():
    acc.wait(1)  # here


def a_recording():
    @omp.taskgraph
    def region(x):
        REGION(x)  # here

    region(A)


def a_graph():
    with omp.record():
        REGION(A)  # here


def a_nested_function():
    def inner():
        REGION(A)  # here

    inner()


def a_method():
    class Thing:
        def work(self):
            REGION(A)  # here

    Thing().work()


def a_lambda():
    call = lambda: REGION(A)  # here  # noqa: E731  # what is tried
    call()


def a_comprehension():
    assert [REGION(x) for x in [A]] == [None]  # here


def a_generator():
    assert list(REGION(x) for x in [A]) == [None]  # here  # noqa: C400  # a frame of its own


def a_map():
    assert list(map(REGION, [A])) == [None]  # here


def a_partial_method():
    class Thing:
        work = functools.partialmethod(lambda _, x: REGION(x), A)  # here

    Thing().work()


def a_stack_of_exits():
    with contextlib.ExitStack() as stack:
        stack.callback(REGION, A)
        stack.close()  # here


def a_coroutine():
    async def work():
        REGION(A)  # here

    asyncio.run(work())


def an_awaited_region():
    async def work():
        await REGION.options(nowait=True)(A)  # here

    asyncio.run(work())


def a_body_on_a_worker():
    @omp.task
    def work():
        REGION(A)  # here

    work().result(60)  # helps with nothing


def a_coroutine_of_a_task():
    @omp.task
    async def work():
        REGION(A)  # here

    work()
    omp.taskwait()


def a_part_of_a_loop():
    omp.taskloop(range(2), lambda part: REGION(A))  # here


CASES = [value for name, value in list(globals().items()) if name.startswith(("a_", "an_"))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_stand_in_of_the_host_is_told_at_the_line_of_the_program(case):
    """Where there is no device, the warning names the line that encounters the construct, wherever it is."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with omp.Runtime("none"):
            case()
    (warning,) = told
    assert warning.category is omp.HostFallbackWarning
    assert warning.filename == __file__
    assert "  # here" in linecache.getline(warning.filename, warning.lineno)


def test_a_body_without_lines_is_told_where_its_task_was_made():
    """A region that is itself the body of a task, on a worker where no line of the program runs, warns at its task."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with omp.Runtime("none"):
            omp.task(REGION)(A).result(60)
    (warning,) = told
    assert warning.category is omp.HostFallbackWarning
    assert warning.filename == __file__


def _leaks():
    omp.target_enter_data(map=[to(A)])


def test_a_leak_is_told_at_the_end_of_the_block():
    """What a runtime leaves is told at its `with`, also where a stack of exits ends it."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with omp.Runtime("sim"):  # here
            _leaks()
        with contextlib.ExitStack() as stack:
            stack.enter_context(omp.Runtime("sim"))
            _leaks()
            stack.close()  # here
    for warning in told:
        assert warning.category is omp.CleanupWarning
        assert warning.filename == __file__
        assert "  # here" in linecache.getline(warning.filename, warning.lineno)
    assert len(told) == 2


def _run(tmp_path, text):
    script = tmp_path / "script.py"
    script.write_text(text)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)
    return script, done.stderr


def test_a_leak_is_seen(tmp_path):
    """Python shows a `CleanupWarning` without being asked to, at the program's line and at the interpreter's end."""
    lines = ["import numpy as np, offload as omp", "a = np.zeros(4)", "with omp.Runtime('sim'):"]
    enter = "omp.target_enter_data(map=[omp.to(a)])"
    script, told = _run(tmp_path, "\n".join([*lines, f"    {enter}\n"]))
    assert f"{script}:3: CleanupWarning: left at the end of the runtime: float64[4]" in told
    _, told = _run(tmp_path, "\n".join([*lines[:2], f"{enter}\n"]))
    assert "CleanupWarning: left at the end of the runtime: float64[4]" in told
    assert not issubclass(omp.CleanupWarning, ResourceWarning)


def test_a_script_is_told_at_its_line(tmp_path):
    """Text that is executed, and a module's own lines, are lines of the program too."""
    text = "import offload as omp\nruntime = omp.Runtime('none')\nwith runtime:\n    exec('omp.interop()')\n"
    _, told = _run(tmp_path, text)
    assert "<string>:1: HostFallbackWarning" in told
    script, told = _run(tmp_path, text.replace("exec('omp.interop()')", "omp.interop()"))
    assert f"{script}:4: HostFallbackWarning" in told
