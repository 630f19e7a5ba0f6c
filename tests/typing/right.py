"""Typed programs: mypy and pyright accept each line, and each program runs.

`typing.assert_type` is for the type checkers: it states the type of an expression.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import offload as omp
from offload import (
    Event,
    Task,
    acc,
    all_memory,
    alloc,
    delete,
    depobj,
    from_,
    in_,
    inout,
    inoutset,
    mutexinoutset,
    out,
    release,
    section,
    to,
    tofrom,
)

Array = NDArray[np.float64]


# -- target regions --------------------------------------------------------------------------------


@omp.target(map=[to("x"), tofrom("y")])
def saxpy(a: float, x: Array, y: Array) -> None:
    """Have clauses, with strings."""
    y += a * x


@omp.target
def total(x: Array) -> float:
    """Have none."""
    return float(x.sum())


@omp.target(nowait=True, depend=in_("x"))
def total_later(x: Array, scale: float = 1.0) -> float:
    """Be deferred."""
    return float(x.sum()) * scale


@omp.target(
    map="x",
    private=["z"],
    firstprivate=("w",),
    defaultmap={"aggregate": "tofrom", "scalar": "default"},
    device=0,
    if_=np.bool_(True),
    priority=np.int64(0),
    name="many",
    nowait=False,
)
def many(x: Array, z: Array, w: Array, *, n: int = 3) -> int:
    """Have many clauses."""
    return n


class Solver:
    """Have methods under directives."""

    @omp.target
    def step(self, x: Array, n: int = 3) -> int:
        """Be bound like a function."""
        return n

    @omp.target(nowait=True)
    def begin(self, x: Array) -> int:
        """Be deferred."""
        return 1

    @omp.task
    def count(self, n: int) -> int:
        """Be a task."""
        return n

    @omp.taskloop
    def part(self, part: range, scale: float) -> float:
        """Take a part of a range."""
        return len(part) * scale

    @omp.taskgraph
    def all(self, x: Array) -> None:
        """Be recorded."""
        self.step(x)

    @acc.parallel(async_=1)
    def region(self, x: Array) -> int:
        """Be a compute region."""
        return 2


def targets() -> None:
    """Call target functions, with arguments by position and by keyword, and with tasks as arguments."""
    x, y, z = np.ones(4), np.zeros(4), np.zeros(4)
    saxpy(2.0, x, y)
    saxpy(a=2.0, x=x, y=y)
    assert_type(total(x), float)
    assert_type(total_later(x), Task[float])
    assert_type(total_later(x).result(), float)
    assert_type(total_later(x, scale=2.0).result(timeout=100), float)
    assert_type(many(x, y, z, n=2), int)

    deferred = total.options(nowait=True, depend=[in_(x), inout(y)])
    assert_type(deferred(x), Task[float])
    assert_type(deferred.options(name="again", map=[to("x")])(x), Task[float])
    assert_type(deferred.options(nowait=False)(x), float)
    task = deferred(x)
    task.add_done_callback(lambda task: task.exception())
    assert_type(task.as_future(), Future[float])
    assert_type(task.exception(), BaseException | None)
    saxpy(task, x, y)  # a task in place of the value that it gives
    saxpy(2.0, x, y=y)

    @omp.target(nowait=x.size > 2)
    def perhaps_later(x: Array) -> int:
        return x.size

    perhaps_later(x)
    for nowait in (False, True):
        omp.target(nowait=nowait)(total.__wrapped__)(x)
        total.options(nowait=nowait)(x)
    assert_type(omp.target(total.__wrapped__, map=tofrom("x"))(x), float)
    assert_type(omp.target(total.__wrapped__, nowait=True)(x), Task[float])

    solver = Solver()
    assert_type(solver.step(x), int)
    assert_type(solver.step(x, n=4), int)
    assert_type(solver.begin(x), Task[int])
    assert_type(solver.step.options(nowait=True)(x).result(), int)
    omp.barrier()


# -- data ------------------------------------------------------------------------------------------


def data() -> None:
    """Map data: lists, tuples and single items, with dependences of every kind."""
    x, y = np.ones(8), np.zeros(8)
    with omp.target_data(map=[to(x), tofrom(y, always=True)], use_device_ptr=[x], nogroup=False) as (device_x,):
        total(device_x)
    with omp.target_data(map=x), omp.target_data([x, section(y, (0, 4))]):
        pass
    assert_type(omp.target_enter_data(map=[to(x), alloc(y)], depend=out(x), nowait=True), Task[None])
    omp.target_enter_data(x)
    omp.target_update(to=x, from_=(y[::2],), present=True, depend=[inout(y), inoutset(x)], device=0, if_=x.size > 4)
    assert_type(omp.target_update(from_=[y], nowait=True), Task[None])
    omp.target_exit_data(map=(release(x), from_(y)), devices=None, depend=[mutexinoutset("any value", 3)][:0])
    omp.target_exit_data(map=delete(x), nowait=False)
    waited = omp.target_exit_data(x, nowait=bool(x.size))
    assert_type(waited, Task[None] | None)
    assert_type(omp.taskwait([inout(x)], nowait=True), Task[None])
    omp.taskwait(depend=in_(x))
    omp.taskwait()
    assert_type(omp.copy(y, x, nowait=True, depend=None), Task[None])
    omp.copy(y, x, depend=[in_(x), depobj(inout(y))])
    with omp.buffers(2, (4, 4), np.float32) as ring:
        omp.target_memcpy_async(ring[0], np.zeros((4, 4), np.float32), depend=[out(ring[0])]).result()
    with omp.interop(depend=inout(x)) as foreign:
        foreign.use([inout(x)])
    assert_type(omp.declare_target(y), None)
    omp.declare_target(np.zeros(3), link=True, device_type="nohost")


# -- tasks -----------------------------------------------------------------------------------------


@omp.task
def double(n: int) -> int:
    """Be a task."""
    return 2 * n


@omp.task(depend=[in_("x"), out(all_memory)], priority=1, final=False, name="half")
def half(x: Array) -> float:
    """Have clauses."""
    return float(x[0]) / 2


@omp.task
async def answer(n: int) -> str:
    """Be a coroutine."""
    return str(n)


@omp.task(if_=True)
async def answer_again(n: int) -> str:
    """Be a coroutine, with clauses."""
    return await answer(n)


@omp.task(in_reduction={"+": ["s"]})
def add(s: NDArray[Any], n: int) -> None:
    """Take part in a reduction."""
    s += n


def tasks() -> None:
    """Generate tasks, and use their values."""
    x = np.ones(4)
    assert_type(double(2), Task[int])
    assert_type(double(double(2)).result(), int)
    assert_type(half.options(priority=0)(x).result(), float)
    assert_type(answer(3).result(), str)
    assert_type(answer_again(3), Task[str])
    event = Event()
    waiting = double.options(detach=event, depend=[])(2)
    event.fulfill()
    assert_type(waiting.result(), int)
    s = np.zeros(())
    with omp.taskgroup(task_reduction={"+": [s]}):
        add(s, 3)
    with omp.taskgroup():
        assert_type(Solver().count(2), Task[int])
    found: list[Any] = []
    omp.task(found.append)(1)
    omp.task(np.multiply)(x, 2.0, x).result()
    run_later: Task = double(1)  # any task
    run_later.result()


@omp.taskgraph
def pipeline(x: Array, n: int = 1) -> None:
    """Be recorded."""
    half(x)


def graphs() -> None:
    """Record and replay."""
    x = np.ones(4)
    pipeline(x)
    pipeline.options(graph_id=("a", 1), graph_reset=True, nogroup=True)(x, n=1)
    assert_type(pipeline(x, n=2), None)
    Solver().all(x)
    named = omp.taskgraph(graph_id=3, if_=True)(pipeline.__wrapped__)
    named(x)
    with omp.record(execute=False) as graph:
        half(x)
    assert_type(graph, omp.TaskGraph)


@omp.taskloop(grainsize=2)
def work(part: range, scale: float) -> float:
    """Take a part of a range."""
    return len(part) * scale


@omp.taskloop(reduction={"+": ["s"]}, num_tasks=2)
def reduce(part: range, s: NDArray[Any]) -> None:
    """Receive a private array."""
    s += len(part)


def length(part: range) -> int:
    """Be the body of a taskloop without a decorator."""
    return len(part)


def taskloops() -> None:
    """Split ranges."""
    work(range(8), 2.0)
    work(range(8), scale=2.0)
    assert_type(work.options(nogroup=True)(range(4), 1.0), list[Task[float]])
    assert_type(work.options(num_tasks=2, grainsize=None).options(name="w")(range(4), 1.0), None)
    Solver().part(range(4), 1.0)
    s = np.zeros(())
    reduce(range(8), s)
    assert_type(omp.taskloop(range(8), length, nogroup=True), list[Task[int]])
    omp.taskloop(np.ones(4), lambda part: None, grainsize=np.int32(2), strict=True)

    @omp.taskloop(range(4), priority=0)
    def run(part: range) -> None:
        pass

    @omp.taskloop(range(4), nogroup=True)
    def started(part: range) -> int:
        return len(part)

    assert_type(started, list[Task[int]])
    omp.taskwait()


# -- loops -----------------------------------------------------------------------------------------


@omp.target_loop(
    collapse=2, schedule=("static", 4), tile=None, bounds="auto", fastmath=False, gang=True, speculate=False
)
def fill(x: Array, n: int) -> None:
    """Be a nest on a device."""
    for i in range(n):
        for j in range(n):
            x[i, j] = i + j


@omp.target_loop(reduction={"+": ["s"]})
def sum_of(x: Array) -> float:
    """Be a reduction."""
    s = 0.0
    for i in range(4):
        s += x[i]
    return s


@omp.parallel_loop(schedule="dynamic", num_threads=2)
def shift(x: Array) -> None:
    """Be a loop on the host."""
    for i in range(4):
        x[i] += 1.0


@omp.declare_target
def square(v: float) -> float:
    """Be called by loops."""
    return v * v


@omp.parallel_loop
def squares(x: Array) -> None:
    """Call a function."""
    for i in omp.loop(range(4), bind="parallel", collapse=1):
        x[i] = square(x[i])


def loops() -> None:
    """Run loops on a device and on the host."""
    x = np.zeros((4, 4))
    fill(x, 4)
    assert_type(sum_of(x[0]), float)
    assert_type(sum_of.options(nowait=True, depend=[in_(x)])(x[0]).result(), float)
    assert_type(sum_of.options(devices="all", filter="never", exchange="lazy")(x[0]), float)
    assert_type(sum_of.python(x[0]), float)
    assert_type(sum_of.source(x[0]), str)
    sum_of.compile(x[0], device=0)
    print(sum_of.explain(x[0]))
    shift(x[0])
    assert_type(shift.options(nowait=True)(x[0]), Task[None])
    squares(x[0])
    assert_type(square(2.0), float)


# -- OpenACC ---------------------------------------------------------------------------------------


@acc.parallel(copyin=["x"], copy="y", async_=1, wait=[2], num_gangs=4, default="present")
def axpy(a: float, x: Array, y: Array) -> float:
    """Be an operation of a queue."""
    y += a * x
    return a


@acc.kernels
def scaled(y: Array) -> float:
    """Be synchronous."""
    y *= 2
    return 1.0


@acc.serial(present_or_copy=["y"], self_=False, reduction=None, async_=None)
def once(y: Array) -> float:
    """Be synchronous, with clauses."""
    return 1.0


@acc.parallel_loop(copy=["x"], gang=True, vector_length=32, independent=True)
def grown(x: Array) -> None:
    """Be a loop."""
    for i in acc.loop(range(4), vector=True):
        x[i] += 1.0


@acc.kernels_loop(async_=True)
def grown_later(x: Array) -> None:
    """Be loops, in a queue."""
    for i in range(4):
        x[i] += 1.0


@acc.routine
def cube(v: float) -> float:
    """Be called by loops."""
    return v * v * v


@acc.declare(create=["x"])
def with_data(x: Array) -> int:
    """Have data for each call."""
    return 3


def openacc() -> None:
    """Use OpenACC's constructs, with and without queues."""
    x, y, z = np.ones(4), np.ones(4), np.ones(4)
    with acc.data(copyin=[x], copy=(y,), create=acc.zero(z), async_=1, wait=True, if_=True, devices=None):
        assert_type(axpy(2.0, x, y), Task[float])
        assert_type(axpy.options(async_=acc.async_sync)(2.0, x, y), float)
        assert_type(axpy.options(async_=None, wait=[])(2.0, x, y), float)
        acc.wait(1, 2)
        acc.wait([1], async_=2)
        acc.wait()
        assert_type(scaled(y), float)
        assert_type(scaled.options(async_=True)(y), Task[float])
        assert_type(scaled.options(copy="y")(y), float)
        assert_type(once(y), float)
        with acc.host_data(use_device=[x, y], if_present=True) as arrays:
            assert len(arrays) == 2
    acc.enter_data(copyin=x, create=[z])
    assert_type(acc.enter_data(copyin=[y], async_=3, wait=1, depend=out(y)), Task[None])
    acc.update(self_=[x], device=z, if_present=False)
    assert_type(acc.update(host=x, async_=acc.async_noval, device_num=0), Task[None])
    assert_type(acc.exit_data(copyout=[x, y], delete=z, finalize=True, async_=3), Task[None])
    acc.wait_all()
    assert_type(acc.wait_any([1, 2]), int)
    grown(x)
    assert_type(grown.options(async_=1)(x), Task[None])
    assert_type(grown_later(x), Task[None])
    assert_type(cube(2.0), float)
    assert_type(with_data(x), int)
    assert_type(with_data.options(create="x")(x), int)
    assert_type(acc.declare(copyin=[z]), None)
    assert_type(Solver().region(x), Task[int])
    acc.wait()


# -- coroutines ------------------------------------------------------------------------------------


async def coroutine() -> None:
    """Await tasks and blocks."""
    x = np.ones(4)
    assert_type(await total_later(x), float)
    assert_type(await answer(2), str)
    async with omp.taskgroup():
        double(2)
    async with omp.target_data(map=tofrom(x)):
        pass
    await omp.taskwait()


PROGRAMS = (targets, data, tasks, graphs, taskloops, loops, openacc)
