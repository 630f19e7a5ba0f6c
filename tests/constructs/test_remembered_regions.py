"""Works that calls with the same arrays share, while something changes around them."""

from __future__ import annotations

import threading

import numpy as np

import offload as omp
from offload import acc
from offload.data.present_table import PresentTable
from tests.conftest import checked

WAIT_S = 60


def test_regions_of_both_standards_share_no_work():
    """OpenMP and OpenACC count in two counters, so a work of the one is not repeated for the other."""
    x, b = np.zeros(4), np.zeros(1)
    gate, began, go = (threading.Event() for _ in range(3))
    is_slow = []

    def body(d):
        if is_slow:
            began.set()
            go.wait(WAIT_S)
        d += 1

    with checked("sim:1", num_threads=2):
        omp.target_enter_data(map=[omp.to(x)])
        omp.target(body)(x)
        omp.target_update(from_=[x])
        omp.task(depend=[omp.out(b)])(lambda: gate.wait(WAIT_S))()
        is_slow.append(True)
        acc.parallel(body).options(async_=1, depend=[omp.in_(b)])(x)
        omp.target_exit_data(map=[omp.delete(x)])  # before the region begins, which maps x by itself
        gate.set()
        assert began.wait(WAIT_S)
        omp.target_exit_data(map=[omp.delete(x)], nowait=True).result()
        assert omp.target_is_present(x)
        go.set()
        acc.wait()
        assert x.tolist() == [2, 2, 2, 2]


def test_a_region_in_flight_is_not_remembered_for_a_table_that_has_changed(monkeypatch):
    """Another entry has gone meanwhile: the next call plans once more, and later ones repeat that plan."""
    planned, enter = [], PresentTable.enter

    def counted(self, *args):
        planned.append(args)
        return enter(self, *args)

    monkeypatch.setattr(PresentTable, "enter", counted)
    x, y, began, go = np.zeros(4), np.zeros(4), threading.Event(), threading.Event()
    is_slow = []

    @omp.target
    def f(d):
        if is_slow:
            began.set()
            go.wait(WAIT_S)

    with checked("sim:1", num_threads=2):
        omp.target_enter_data(map=[omp.to(x, y)])
        f(x)
        is_slow.append(True)
        task = f.options(nowait=True)(x)
        assert began.wait(WAIT_S)
        omp.target_exit_data(map=[omp.release(y)])
        go.set()
        task.result()
        is_slow.clear()
        planned.clear()
        for _ in range(20):
            f(x)
        assert len(planned) <= 1
        omp.target_exit_data(map=[omp.release(x)])


def test_an_array_retyped_during_a_region_is_seen_with_its_new_type():
    """A region in flight, which has begun with the old type, is not remembered for the new one."""
    x, began, go = np.arange(6.0), threading.Event(), threading.Event()
    is_slow = []

    @omp.target
    def f(d):
        if is_slow:
            began.set()
            go.wait(WAIT_S)
        return str(d.dtype)

    @omp.target
    def put(d):
        d[...] = 7

    with checked("sim:1", num_threads=2):
        omp.target_enter_data(map=[omp.to(x)])
        f(x)
        is_slow.append(True)
        task = f.options(nowait=True)(x)
        assert began.wait(WAIT_S)
        is_slow.clear()
        x.dtype = "i8"
        assert f(x) == "int64"
        go.set()
        task.result()
        assert f(x) == "int64"
        put(x)
        omp.target_update(from_=[x])
        assert x.tolist() == [7] * 6
        omp.target_exit_data(map=[omp.release(x)])
