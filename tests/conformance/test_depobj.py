"""`depobj`: OpenMP_VV groups G and H, LLVM 2.2 and 2.4."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import from_, in_, inout, out, to

N = 64
X, Y = ("x",), ("y",)


def nothing(*arrays):
    pass


def on_device():
    assert not omp.is_initial_device()


def test_depobj_depend_update_destroy(streams, gates, probe):
    """5.0/depobj/test_depobj_depend_update_destroy.cpp: a depobj orders two tasks; updated to `in` it no longer does;
    destroyed it is of no use."""
    log, x = [], np.zeros(4)
    obj = omp.depobj(inout(x))
    gate = gates(obj)
    omp.task(depend=[obj])(lambda: log.append("ordered"))()
    streams.go()
    probe()
    assert log == []
    gate.open()
    omp.taskwait()
    assert log == ["ordered"]
    obj.update("in")
    reader = gates(obj)
    omp.task(depend=[obj])(lambda: log.append("unordered"))().result()
    assert not reader.task.done()
    late = omp.task(depend=[obj, in_(reader.item)])(lambda: log.append("late"))()
    obj.destroy()  # what was generated before is as it was
    for use in (omp.task(depend=[obj])(nothing), obj.destroy, lambda: obj.update("out")):
        with pytest.raises(omp.DependError):
            use()
    with pytest.raises(omp.DependError):
        omp.taskwait(depend=[obj])
    assert not late.done()
    reader.open()
    omp.taskwait()
    assert log == ["ordered", "unordered", "late"]


def test_taskdep_depobj(streams, gates):
    """openmp/…/omp50_taskdep_depobj.c: depend objects of several types, in one clause with others, order as the
    dependences that they are; the type counts when the task is generated."""
    log, x = [], np.zeros(4)
    writes, reads, plain = omp.depobj(out(x)), omp.depobj(in_(x[:2])), omp.depobj(inout(Y))
    gate = gates()
    omp.task(depend=[writes, gate.after])(lambda: log.append(1))()
    omp.task(depend=[reads, plain])(lambda: log.append(2))()
    omp.target(nowait=True, depend=[plain])(lambda: log.append(3))()
    writes.update("in")  # the writer above stays one
    omp.target(nowait=True, depend=[plain, writes])(lambda: log.append(4))()
    plain.update("out")
    omp.task(depend=[plain])(lambda: log.append(5))()
    streams.go()
    gate.open()
    omp.taskwait()
    assert log == [1, 2, 3, 4, 5]


def test_depobj_in_decorators_counts_at_the_call(streams, gates):
    """A depobj in the clauses of a decorator is what it is when the function is called."""
    obj = omp.depobj(inout(X))
    function = omp.task(depend=[obj])(nothing)
    region = omp.target(nowait=True, depend=[obj])(nothing)
    obj.update("in")
    reader = gates(in_(X))
    streams.go()
    function().result()
    region().result()
    assert not reader.task.done()
    obj.update("out")
    writers = function(), region()
    assert writers[0].dependencies == (reader.task,)
    reader.open()
    omp.taskwait()


def test_memcpy_async_depobj(streams):
    """5.1/target/test_target_memcpy_async_depobj.c: one depobj through copy in, wait, region, copy out, wait."""
    mem, d = np.arange(N, dtype=float), omp.target_alloc(N, np.float64)
    obj = omp.depobj(inout(mem))
    omp.target_memcpy_async(d, mem, depend=[obj])
    streams.go()
    omp.taskwait(depend=[obj])
    mem.fill(0)  # it has been copied
    omp.target(nowait=True, depend=[obj])(lambda d: on_device() or d.__imul__(2) is None)(d)
    omp.target_memcpy_async(mem, d, depend=[obj])
    omp.taskwait(depend=[obj])
    assert (mem == 2 * np.arange(N)).all()
    obj.destroy()
    omp.target_free(d)


def test_memcpy_rect_async_depobj(streams):
    """5.1/target/test_target_memcpy_rect_async_depobj.c: a rectangular copy there and back by one depobj."""
    mem, d = np.arange(50.0).reshape(5, 10), omp.target_alloc((5, 10), np.float64)
    obj = omp.depobj(inout(mem))
    box = {"volume": (5, 10), "dst_offsets": (0, 0), "src_offsets": (0, 0)}
    omp.target_memcpy_rect_async(d, mem, depend=[obj], **box)
    omp.target(nowait=True, depend=[obj])(lambda d: on_device() or d.__imul__(2) is None)(d)
    omp.target_memcpy_rect_async(mem, d, depend=[obj], **box)
    streams.go()
    omp.taskwait(depend=[obj])
    assert (mem == 2 * np.arange(50.0).reshape(5, 10)).all()
    omp.target_free(d)


def test_omp_target_memcpy_async2_depobj(streams, gates):
    """offload/test/api/omp_target_memcpy_async2.c: with a list of two depend objects each copy follows both chains."""
    base, d = np.arange(128, dtype=np.int32), omp.target_alloc(128, np.int32)
    gate = gates()
    objects = [omp.depobj(inout(d)), omp.depobj(inout(gate.item))]
    for number, count in enumerate((128, 64, 32, 16)):
        omp.target_memcpy_async(d, base + 4 - number, nbytes=4 * count, depend=objects)
    found = np.zeros(128, np.int32)
    last = omp.target_memcpy_async(found, d, depend=[objects[0], omp.depobj(out(found))])
    streams.go()
    assert not last.done()
    gate.open()
    omp.taskwait(depend=[in_(found)])
    assert (found == base + np.repeat([1, 2, 3, 4], [16, 16, 32, 64])).all()
    omp.target_free(d)


def test_depobj_on_every_construct(streams, gates):
    """Data constructs, updates, fills, target data and edges take depend objects too."""
    x, obj = np.ones(N), omp.depobj(inout(X))
    d = omp.target_alloc(N, np.float64)
    gate = gates(obj)
    tasks = [
        omp.target_enter_data(map=[to(x)], nowait=True, depend=[obj]),
        omp.target_update(to=[x], nowait=True, depend=[obj]),
        omp.target_memset_async(d, 0, depend=[obj]),
        omp.taskwait(depend=[obj], nowait=True),
        omp.target_exit_data(map=[from_(x)], nowait=True, depend=[obj]),
    ]
    with omp.target_data(map=[to(x)], nowait=True, depend=[obj], nogroup=True):
        pass
    streams.go()
    assert not any(task.done() for task in tasks)
    gate.open()
    omp.taskwait()
    assert all(task.done() for task in tasks)
    omp.target_free(d)
