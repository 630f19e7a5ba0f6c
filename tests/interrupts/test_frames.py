"""Which frames are the library's, and where a program is said to have called it."""

import types

import pytest

from offload.interrupts.frames import caller, is_own
from tests.forked import python


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("offload", True),
        ("offload.target", True),
        ("offload.acc.data", True),
        ("offload.bench_of_mine", True),
        ("offload.cli", False),
        ("offload.cli.bench.tasks", False),
        ("offload.cli.demo.fft3d", False),
        ("offloading", False),
        ("fft3d", False),
        ("contextlib", False),
        ("__main__", False),
        (None, False),
    ],
)
def test_what_is_the_library(module, expected):
    """All modules of the package are, but those that use it as a program does."""
    assert is_own(module) is expected


def called_through(*modules):
    """Return where `caller` says that it was called, with functions of these modules on the way, innermost first."""
    call = caller
    for module in modules:
        call = function_of(module, call)
    return call()


def function_of(module, call):
    def inner():
        return call()

    return types.FunctionType(inner.__code__, {"__name__": module}, closure=inner.__closure__)


@pytest.mark.parametrize("modules", [(), ("offload.target",), ("offload.acc.data", "contextlib", "offload.target")])
def test_the_caller_is_the_program(modules):
    """What lies between the program and the library is stepped over, both ways."""
    assert called_through(*modules).f_code is called_through.__code__


def test_the_innermost_line_of_the_program_counts():
    """A program that the library has called calls from its own line, a benchmark too."""
    assert called_through("offload.target", "mine", "offload.tasks.task").f_globals["__name__"] == "mine"
    assert (
        called_through("offload.target", "offload.cli.bench.tasks").f_globals["__name__"] == "offload.cli.bench.tasks"
    )


def test_frames_without_a_module():
    """Code whose globals have no name is the program's."""
    call = function_of("offload.target", caller)
    nameless = types.FunctionType(call.__code__, {}, closure=function_of("mine", call).__closure__)
    assert nameless().f_globals is nameless.__globals__


def test_many_modules():
    """Modules that come and go are told apart, however many there have been."""
    for number in range(1500):
        assert called_through(f"made_{number}", "offload.target").f_globals["__name__"] == f"made_{number}"
        assert called_through(f"offload.made_{number}").f_code is called_through.__code__


LOOKS_WHILE_COLLECTING = """
import gc, threading
from offload.interrupts.frames import frames_of_threads
for k in range(30):
    done = threading.Event()
    threads = [threading.Thread(target=done.wait) for _ in range(20)]
    for thread in threads:
        thread.start()
    gc.disable()
    box = [threading.local()]
    box.append(box)
    del box
    gc.set_threshold(gc.get_count()[0] + k)
    gc.enable()
    assert len(frames_of_threads()) == 21
    assert gc.isenabled()
    done.set()
    for thread in threads:
        thread.join()
"""


def test_frames_of_threads_during_a_collection():
    """A look at the frames of all threads never hangs because the collector finds a `threading.local` meanwhile."""
    result = python("-c", LOOKS_WHILE_COLLECTING, timeout=30)
    assert (result.returncode, result.stderr) == (0, "")
