"""`taskgraph`: OpenMP_VV group J, LLVM 2.4."""

from __future__ import annotations

import numpy as np

import offload as omp
from offload import in_, inout, out

N_ENCOUNTERS = 6
N_TASKS = 5


def test_taskgraph(streams):
    """6.0/taskgraph/test_taskgraph.c: however often the region itself runs, its tasks run once for each encounter."""
    streams.go()
    ran, blocks = np.zeros(N_TASKS), []

    def body(array):
        assert not omp.is_initial_device()
        array += 1

    @omp.taskgraph
    def generate():
        blocks.append(1)
        for i in range(N_TASKS):
            if i % 2:
                omp.target(nowait=True)(body)(ran[i : i + 1])
            else:
                omp.task(lambda i=i: ran.__setitem__(i, ran[i] + 1))()

    for n in range(1, N_ENCOUNTERS + 1):
        generate()
        assert (ran == n).all()
    assert len(blocks) == 1  # the standard allows any number; ours is this


def test_taskgraph_if(streams):
    """6.0/taskgraph/test_taskgraph_if.c: with if(false) the block is executed, neither replayed nor recorded."""
    streams.go()
    x, ran = 0, []

    @omp.taskgraph
    def generate():
        nonlocal x
        x += 1
        omp.task(ran.append)(omp.is_initial_device())

    generate()
    x = 0
    generate.options(if_=False)()
    assert x == 1
    generate()
    assert x == 1
    assert ran == [True] * 3


def test_taskgraph_nogroup(streams):
    """6.0/taskgraph/test_taskgraph_nogroup.c: without the implicit taskgroup all tasks are done at the barrier."""
    a = np.zeros(N_ENCOUNTERS)

    def body(part):
        assert not omp.is_initial_device()
        part += 1

    @omp.taskgraph(nogroup=True)
    def generate():
        for i in range(N_ENCOUNTERS):
            omp.target(nowait=True, depend=[inout(a[i : i + 1])])(body)(a[i : i + 1])

    generate()
    streams.go()
    omp.barrier()
    assert (a == 1).all()
    generate()
    omp.barrier()
    assert (a == 2).all()


def test_omp_taskgraph_deps(streams):
    """openmp/runtime/test/tasking/omp_taskgraph_deps.cpp: 100 replays keep the order of add, sub and mult."""
    streams.go()
    x, y = np.zeros(1), np.zeros(1)
    log = []

    def add():
        y[0] += 1
        log.append("add")

    def sub():
        x[0] -= 1
        log.append("sub")

    def mult():
        log.append("mult")
        assert (x[0], y[0]) == (-len(log) // 3, len(log) // 3)

    @omp.taskgraph
    def generate():
        omp.task(depend=[out(y)])(add)()
        omp.task(depend=[out(x)])(sub)()
        omp.task(depend=[in_(x), in_(y)])(mult)()

    for _ in range(100):
        generate()
    assert x + y == 0
    assert log[2::3] == ["mult"] * 100


def test_omp_taskgraph_deps_on_devices(streams):
    """openmp/runtime/test/tasking/omp_taskgraph_deps.cpp: the same by regions on a device."""
    x, y = np.zeros(1), np.zeros(1)
    nowait = {"nowait": True}

    def there():
        assert not omp.is_initial_device()

    @omp.taskgraph(nogroup=True)
    def generate():
        omp.target(depend=[inout(y)], **nowait)(lambda y: there() or y.__iadd__(1) is None)(y)
        omp.target(depend=[inout(x)], **nowait)(lambda x: there() or x.__isub__(1) is None)(x)
        omp.target(depend=[inout(x), in_(y)], **nowait)(lambda x, y: there() or x.__iadd__(y) is None)(x, y)

    generate()
    streams.go()
    omp.taskwait()
    for _ in range(99):
        generate()
        omp.taskwait()
    assert (x, y) == (sum(range(100)), 100)
