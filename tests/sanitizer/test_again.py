"""Programs of a reader who tried to break the sanitizer."""

from __future__ import annotations

import sys
import weakref

import pytest

import offload as omp
from offload import acc, to
from offload.sanitizer import numpy as np


def test_a_host_loop_over_elements_is_counted_and_not_examined(monkeypatch):
    """Elements that a host thread accesses while none of its tasks is open are counted, and nothing else is done."""
    asked = []
    module = sys.modules["offload.sanitizer.tracked"]  # the package has a function of that name
    monkeypatch.setattr(module, "accesses_of_method", lambda *args: asked.append(args) or ((), ()))
    with omp.Runtime("sim", sanitize=True) as runtime:
        a = np.zeros((4, 4))
        for i in range(4):
            for j in range(4):
                a[i, j] = a[j, i] + 1
        row = a[2]
        for i in range(4):
            row[i] = row[i] + 1
    assert [args[2] for args in asked] == [(2,)]  # the view
    assert runtime.sanitized.sanitizer.accesses == 2 * 16 + 2 * 4


def test_elements_are_examined_while_a_task_is_open(check):
    """A loop over elements on the host races with a task that was generated before it, and has not been waited for."""
    check(
        """
        x = np.zeros(4)
        for i in range(4):
            x[i] = i

        @omp.task
        def fill(x):
            x[:] = 1  # first

        fill(x)
        omp.taskwait()
        for i in range(4):
            x[i] = i
        fill(x)
        for i in range(4):
            x[i] = i  # second, fix
        omp.taskwait()
        """,
        "race",
        "wait",
        "taskwait()",
    )


def test_elements_are_examined_while_work_on_a_stream_is_open(check):
    """A loop over elements on the host races with work on a stream that it has not waited for."""
    check(
        """
        x = np.zeros(4)
        stream = omp.device(0).new_stream()
        x[0] = 1

        def fill():
            x[:] = 1  # first

        stream.launch(fill)
        x[0] = 2  # second, fix
        stream.synchronize()
        x[0] = 3
        """,
        "race",
        "wait",
        "stream.synchronize()",
    )


def test_elements_that_a_device_has_changed_are_examined(check):
    """Reading an element on the host is a fault if a device has a newer one, also when no task is open."""
    check(
        """
        x = np.zeros(4)

        @omp.target(map=[to("x")])  # fix
        def fill(x):
            x[:] = 1  # first

        fill(x)
        for i in range(4):
            print(x[i])  # second
        """,
        "stale-host",
        "map",
        "map(tofrom: x)",
    )


def test_an_array_in_an_array_of_objects_is_read(check):
    """An element that is an array is read by taking it."""
    check(
        """
        x = np.empty(2, object)
        x[0] = np.zeros(3)

        @omp.task
        def put(x):
            x[0] = None  # first

        put(x)
        print(x[0] is None and 0)  # second, fix
        omp.taskwait()
        """,
        "race",
        "wait",
        "taskwait()",
        seeds=(None,),
    )


def test_a_map_on_several_devices_is_ordered_after_the_copy_of_the_item(clean):
    """A construct with ``devices`` that finds its item present follows the copies that have made it present there."""
    clean(
        """
        x = np.arange(8.0)
        omp.target_enter_data(map=[to(x)], devices=[0, 1], nowait=True)
        again = omp.target_enter_data(map=[to(x)], devices=[0, 1], nowait=True)
        again.result()
        x += 1
        omp.taskwait()
        for _ in range(2):
            omp.target_exit_data(map=[release(x)], devices=[0, 1])
        """,
        devices="sim:2",
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_region_that_copies_nothing_ends_at_once(seed):
    """The sanitizer leaves an idle queue idle, so another queue finds nothing that a region creates, as without it."""
    a = np.zeros(4)
    region = acc.parallel(create=["a"])(lambda a: a.fill(7))
    with omp.Runtime("sim:1", num_threads=0, seed=seed, sanitize=True):
        region.options(async_=1)(a)
        acc.update_device_async(a, 2)
        with pytest.raises(ExceptionGroup) as raised:
            acc.wait()
    assert [type(error) for error in raised.value.exceptions] == [omp.NotPresentError]


def test_the_search_for_names_keeps_nothing_alive():
    """A value that the program has let go of is freed, though the sanitizer has looked for a name where it was."""

    @omp.target(map=[to("a")])
    def fill(a):
        a[:] = 1

    def program():
        a, value = np.zeros(4), Thing()
        kept = weakref.ref(value)
        fill(a)
        a.sum()
        del value
        return kept() is None

    with omp.Runtime("sim", sanitize=True) as runtime:
        assert program()
    assert [finding.item for finding in runtime.findings] == ["a"]


def test_the_search_for_names_leaves_the_locals_of_the_program():
    """A program that has asked for its local variables keeps them."""

    @omp.target(map=[to("a")])
    def fill(a):
        a[:] = 1

    def program():
        a = np.zeros(4)
        names = locals()
        fill(a)
        a.sum()
        return "a" in names

    with omp.Runtime("sim", sanitize=True):
        assert program()


class Thing:
    """A value that can be freed."""
