"""The notes on failures and the report on what is left: which task, which line, which step."""

from __future__ import annotations

import inspect
import re
import warnings
from concurrent.futures import Future

import numpy as np
import pytest

import offload as omp
from offload import acc, inout, to

FAILS = "on purpose"


def line_here() -> int:
    """Return the line of the caller."""
    return inspect.currentframe().f_back.f_lineno


def failing(*_args, **_kwargs):
    """Fail."""
    raise ValueError(FAILS)


async def failing_later():
    """Fail on the loop."""
    raise ValueError(FAILS)


def of_task():
    """A plain task."""
    omp.task(failing)()
    return line_here() - 1


def of_dependent_task():
    """A task with a dependence, among others that do not fail."""
    tiles = np.zeros(6)
    work = omp.task(lambda *, fails: failing() if fails else None)
    for number in range(6):
        work.options(depend=[inout(tiles[number : number + 1])])(fails=number == 4)
    return line_here() - 1


def of_labelled_task():
    """A task with more clauses."""
    omp.task(failing, name="labelled", priority=1)()
    return line_here() - 1


def of_method():
    """A method under a directive."""

    class Owner:
        @omp.task
        def work(self):
            failing()

    Owner().work()
    return line_here() - 1


def of_task_with_an_event():
    """A task whose event fails."""
    event, future = omp.Event(), Future()
    event.fulfill_on(future)
    omp.task(lambda: None, detach=event)()
    line = line_here() - 1
    future.set_exception(ValueError(FAILS))
    return line


def of_coroutine():
    """A task of an ``async def``."""
    omp.task(failing_later)()
    return line_here() - 1


def of_nested_task():
    """A task that a task generates."""
    lines = []

    @omp.task
    def outer():
        omp.task(failing)()
        lines.append(line_here() - 1)

    outer().result()
    return lines[0]


def of_target():
    """A deferred target region."""
    omp.target(failing, nowait=True)(np.zeros(4))
    return line_here() - 1


def of_target_of_scalars():
    """A deferred target region without arrays, with a dependence."""
    tile = np.zeros(4)
    omp.target(failing, nowait=True, depend=[inout(tile)])(3)
    return line_here() - 1


def of_host_target():
    """A deferred target region on the host."""
    omp.target(failing, nowait=True, if_=False)(np.zeros(4))
    return line_here() - 1


def of_queued_region():
    """A region in a queue."""
    acc.parallel(failing).options(async_=1)(np.zeros(4))
    return line_here() - 1


def of_taskloop():
    """The tasks of a taskloop."""
    omp.taskloop(failing, num_tasks=1, nogroup=True)(range(4))
    return line_here() - 1


def of_recorded_task():
    """A task of a graph that is computed later: the call that was recorded."""
    with omp.record(execute=False) as graph:
        omp.task(failing)()
        line = line_here() - 1
    with pytest.raises(ValueError, match=FAILS) as caught:
        graph.compute(scheduler="synchronous")
    raise_later(caught.value)
    return line


def of_replayed_task():
    """A task of a graph that is replayed: the call that was recorded."""
    lines, fails = [], []

    @omp.taskgraph
    def graph():
        omp.task(lambda: failing() if fails else None)()
        lines.append(line_here() - 1)

    graph()
    fails.append(True)
    try:
        graph()
    except ExceptionGroup as group:
        raise_later(group.exceptions[0])
    (line,) = lines  # the second call was a replay
    return line


def raise_later(error):
    """Have the next wait raise an error with the notes that it has."""

    def again():
        raise error

    omp.task(again, name="again")()


KINDS = [value for name, value in list(globals().items()) if name.startswith("of_")]


@pytest.mark.parametrize("generate", KINDS)
def test_the_call_is_named(generate, runtime):
    """The notes on a failure name the task with its number, the line of the call that generated it, and its end."""
    line = generate()
    with pytest.raises(ExceptionGroup) as caught:
        omp.barrier()
    (error,) = caught.value.exceptions
    where, told = error.__notes__[:2]
    assert re.match(r"in [a-z ]+ '", where)
    assert f"generated at {__file__}:{line}; " in told
    assert re.match(r"[\w<>]+-\d+: ", told)
    step = "its body returned, then its event failed" if generate is of_task_with_an_event else "its body raised"
    assert re.search(rf"; {step} after \d+\.\d{{6}} s$", told)


def test_the_number_is_that_of_the_task(sim):
    """The note has the task's key; the note of a device task has its device, and that of another one its thread."""
    work = omp.task(failing)
    tasks = [work(number) for number in range(4)]
    tasks.append(omp.target(failing, nowait=True)(np.zeros(4)))
    for task in tasks:
        told = task.exception().__notes__[1]
        assert told.startswith(f"{task.key}: ")
        assert ("; on device 0; " if task.device_num == 0 else "; began on ") in told
    assert len({task.exception().__notes__[1] for task in tasks}) == len(tasks)


def test_an_error_that_passes_through_tasks_has_the_notes_of_the_first(sim):
    """A failure that other tasks raise again says where it was raised, once for each construct."""
    first = omp.task(failing)()
    passing = omp.task(lambda task: task[0].result())
    one = passing([first])
    another = passing([one])
    notes = another.exception().__notes__
    assert [note.partition(":")[0] for note in notes[1::2]] == [first.key, one.key]


def entered():
    """Map an array, and leave it."""
    omp.target_enter_data(map=[to(np.zeros(4))])
    return line_here() - 1


def entered_later():
    """Map an array by a task, and leave it."""
    omp.target_enter_data(map=[to(np.zeros(4))], nowait=True)
    line = line_here() - 1
    omp.taskwait()
    return line


def entered_in_a_region():
    """Map what a region around it has mapped: the region ends its own mapping."""
    array = np.zeros(4)
    with omp.target_data(map=[to(array)]):
        omp.target_enter_data(map=[to(array)])
        line = line_here() - 1
        with omp.target_data(map=[to(array)]):
            pass
    return line


def copied_in():
    """Map an array by OpenACC's routine."""
    acc.copyin(np.zeros(4))
    return line_here() - 1


def allocated():
    """Allocate an array."""
    kept.append(omp.target_alloc(4))
    return line_here() - 1


def associated():
    """Associate an array."""
    array, there = np.zeros(4), omp.target_alloc(4, "f8")
    omp.target_associate_ptr(array, there)
    line = line_here() - 1
    omp.target_free(there)
    return line


def held_by_a_generator():
    """Leave a region open."""

    def region():
        with omp.target_data(map=[to(np.zeros(4))]):
            yield line_here() - 1

    kept.append(region())
    return next(kept[-1])


kept = []
"""What the programs leave."""


@pytest.mark.parametrize(
    "leave", [entered, entered_later, entered_in_a_region, copied_in, allocated, associated, held_by_a_generator]
)
@pytest.mark.parametrize("devices", [{}, {"OFFLOAD_LOOP_DEVICES": "all"}])
def test_what_is_left_is_named_by_its_line(leave, devices):
    """The report on what is left at the end of a runtime names the line that mapped or allocated it."""
    with warnings.catch_warnings(), pytest.raises(omp.LeakError) as caught:
        warnings.simplefilter("ignore", omp.CleanupWarning)
        with omp.Runtime("sim:2", check=True, env=devices):
            line = leave()
    kept.clear()
    assert str(caught.value).startswith("left at the end of the runtime: ")
    assert set(re.findall(r" at (\S+:\d+)", str(caught.value))) == {f"{__file__}:{line}"}
