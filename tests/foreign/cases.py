"""Every construct and routine that takes a NumPy array, each in a short program.

A case is a function of an object, of which the suite has many kinds, and of a NumPy array over the same memory. It uses
the object wherever the construct takes an array, and the array only to look, or where another view of the same storage
is to meet the object. It returns text, numbers, booleans, None, lists of those, or device arrays.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import offload as omp
from offload import acc, alloc, delete, from_, in_, inout, inoutset, mutexinoutset, out, parray, release, to, tofrom

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Host = np.ndarray[Any, Any]
    Case = Callable[[Any, Host], Any]

CASES: dict[str, Case] = {}
WRONG: set[str] = set()
"""The cases that raise an error whichever array they get."""

OTHER = np.zeros(12)


def case(function: Case) -> Case:
    """Have the suite run a case."""
    CASES[function.__name__] = function
    return function


def wrong(function: Case) -> Case:
    """Have the suite run a case that raises an error."""
    WRONG.add(function.__name__)
    return case(function)


def each(values: Iterable[Any], *, are_wrong: bool = False) -> Any:
    """Make a case of each value, which the function gets first."""

    def made(function: Any) -> Any:
        for value in values:
            name = f"{function.__name__} {getattr(value, '__name__', value)}"
            CASES[name] = partial(function, value)
            if are_wrong:
                WRONG.add(name)
        return function

    return made


def inc(x: Any) -> float:
    x += 1
    return float(x.sum())


def total(x: Any) -> float:
    return float(x.sum())


def nothing(x: Any = None) -> None:
    """Do nothing: a body that is there for its clauses."""


class Filled:
    """Device storage with the elements of an array, until the end of a block."""

    def __init__(self, a: Host) -> None:
        self._array = omp.target_alloc(a.shape, a.dtype)
        omp.target_memcpy(self._array, np.ascontiguousarray(a))

    def __enter__(self) -> Any:
        return self._array

    def __exit__(self, *_: object) -> None:
        omp.taskwait()
        omp.target_free(self._array)


def present(x: Any, a: Host) -> list[bool]:
    """Return whether an object is present, and an array over its memory."""
    return [omp.target_is_present(x), omp.target_is_present(a)]


# -- target ------------------------------------------------------------------------------------------------
@case
def target(x: Any, a: Host) -> Any:
    return omp.target(inc)(x)


@case
def target_keyword(x: Any, a: Host) -> Any:
    return omp.target(lambda *, x: inc(x))(x=x)


@case
def target_on_host(x: Any, a: Host) -> Any:
    return omp.target(if_=False)(inc)(x), omp.target(device=omp.initial_device)(inc)(x)


def three(x: Any) -> None:
    x[...] = 3


_MAPS = (to, from_, tofrom, alloc)
_BODIES = {to: total, from_: three, tofrom: inc, alloc: nothing}


@each(_MAPS)
def target_map(clause: Any, x: Any, a: Host) -> Any:
    return omp.target(map=[clause(x)])(_BODIES[clause])(x)


@each(_MAPS)
def target_map_of_a_parameter(clause: Any, x: Any, a: Host) -> Any:
    return omp.target(map=[clause("x")])(_BODIES[clause])(x)


@case
def target_map_without_an_argument(x: Any, a: Host) -> Any:
    return omp.target(map=[tofrom(x)])(lambda: omp.target_is_present is not None)()


@case
def target_map_bare(x: Any, a: Host) -> Any:
    return omp.target(map=[x])(inc)(x), omp.target(map=x)(inc)(x)


@case
def target_map_of_a_part(x: Any, a: Host) -> Any:
    return omp.target(map=[tofrom("x[1:2]")])(inc)(x)


@case
def target_map_of_a_section(x: Any, a: Host) -> Any:
    with omp.target_data(map=[tofrom(omp.section(x, (1, 2)))]):
        return [*present(omp.section(x, (1, 2)), a[1:3]), *present(x, a)]


@wrong
def target_present_is_missing(x: Any, a: Host) -> Any:
    return omp.target(map=[to(x, present=True)])(nothing)(x)


@case
def target_is_present(x: Any, a: Host) -> Any:
    omp.target_enter_data(map=[to(x)])
    found = [omp.target(map=[to(x, present=True)])(inc)(x), omp.target(inc)(a), present(x, a), total(a)]
    omp.target_exit_data(map=[from_(x)])
    return found


@case
def target_always(x: Any, a: Host) -> Any:
    with omp.target_data(map=[to(a)]):
        return omp.target(map=[tofrom(x, always=True)])(inc)(x), total(a)


@each(("firstprivate", "private"))
def target_sharing(word: Any, x: Any, a: Host) -> Any:
    body = total if word == "firstprivate" else shape
    return omp.target(**{word: [x]})(body)(x), omp.target(**{word: ["x"]})(body)(x)


def shape(x: Any) -> list[int]:
    return list(x.shape)


@each(("is_device_ptr", "has_device_addr"), are_wrong=True)
def target_sharing_of_a_host_array(word: Any, x: Any, a: Host) -> Any:
    return omp.target(**{word: ["x"]})(total)(x)


@each(("is_device_ptr", "has_device_addr"))
def target_sharing_on_host(word: Any, x: Any, a: Host) -> Any:
    return omp.target(if_=False, **{word: ["x"]})(total)(x)


@each(("none", "present"), are_wrong=True)
@each(("to", "from", "tofrom", "alloc", "firstprivate", "default"))
def target_defaultmap(rule: Any, x: Any, a: Host) -> Any:
    body = nothing if rule in {"alloc", "from"} else total
    return omp.target(defaultmap=rule)(body)(x)


@case
def target_nowait(x: Any, a: Host) -> Any:
    tasks = [omp.target(nowait=True, depend=[inout(item)])(inc)(item) for item in (x, a, x)]
    omp.taskwait()
    return [task.result() for task in tasks]


@case
def target_nowait_of_strings(x: Any, a: Host) -> Any:
    region = omp.target(nowait=True, depend=[inout("x")], map=[tofrom("x")])(inc)
    tasks = [region(item) for item in (x, a, x)]
    omp.taskwait()
    return [task.result() for task in tasks]


@case
def target_twice_the_same(x: Any, a: Host) -> Any:
    def body(x: Any, y: Any) -> Any:
        x += 1
        return total(y)

    return omp.target(body)(x, x), omp.target(body)(x, a)


@case
def target_variadic(x: Any, a: Host) -> Any:
    def body(*arrays: Any, **named: Any) -> Any:
        return [inc(array) for array in (*arrays, *named.values())]

    return omp.target(map=[tofrom("arrays", "named")], depend=[inout("arrays")])(body)(x, k=a)


@case
def target_many_calls(x: Any, a: Host) -> Any:
    region = omp.target(inc)
    return [region(x if k % 3 else a) for k in range(8)]


@case
def target_returns_a_part(x: Any, a: Host) -> Any:
    with omp.target_data(map=[to(x)]):
        return omp.target(map=[to("x")])(lambda x: float(x[1:2].sum()))(x)


@wrong
def target_fails(x: Any, a: Host) -> Any:
    def body(x: Any) -> None:
        x += 1
        raise ValueError("a body fails")

    return omp.target(body)(x)


@case
def target_values_of_tasks(x: Any, a: Host) -> Any:
    made = omp.task(depend=[out("value")])(lambda value: x)("value")
    return omp.target(nowait=True)(inc)(made).result(), omp.task(lambda value: value is x)(made).result()


@case
def target_values_of_tasks_in_clauses(x: Any, a: Host) -> Any:
    made = omp.task(lambda: x)()
    return omp.target(map=[to("x")], nowait=True)(total)(made).result()


# -- data --------------------------------------------------------------------------------------------------
@each(_MAPS)
def target_data(clause: Any, x: Any, a: Host) -> Any:
    with omp.target_data(map=[clause(x)]):
        found = present(x, a)
        omp.target(map=[alloc(x)])(nothing)(x)
    return found, present(x, a)


@each(("use_device_ptr", "use_device_addr"))
def target_data_uses(word: Any, x: Any, a: Host) -> Any:
    with omp.target_data(map=[to(x)], **{word: [x]}) as (d,):
        return list(d.shape), str(d.dtype), float(d.sum()), type(d).__name__, d.unwrap().ctypes.data != a.ctypes.data


@case
def target_data_uses_what_is_missing(x: Any, a: Host) -> Any:
    with omp.target_data(map=[to(np.zeros(3))], use_device_ptr=[x]) as (d,):
        return d is x


@case
def target_data_uses_addresses_on_host(x: Any, a: Host) -> Any:
    with omp.target_data(map=[to(x)], use_device_addr=[x], if_=False) as (d,):
        return d is x


@each((from_, release, delete))
def target_enter_and_exit_data(clause: Any, x: Any, a: Host) -> Any:
    found = []
    omp.target_enter_data(map=[to(x)])
    omp.target_enter_data(map=[alloc(a)])
    found.append(present(x, a))
    if a.flags.writeable:
        a.fill(0)  # so that it is seen what is copied back
    for item in (x, a):
        omp.target_exit_data(map=[clause(item)])
        found.append(present(x, a))
    return found


@wrong
def target_exit_data_of_what_is_missing(x: Any, a: Host) -> Any:
    omp.target_exit_data(map=[from_(x, present=True)])


@case
def target_enter_data_nowait(x: Any, a: Host) -> Any:
    omp.target_enter_data(map=[to(x)], nowait=True, depend=[out(x)])
    omp.target(nowait=True, depend=[inout(a)])(inc)(x)
    omp.target_exit_data(map=[from_(x)], nowait=True, depend=[in_(x)])
    omp.taskwait()
    return present(x, a)


@wrong
def target_partly_present(x: Any, a: Host) -> Any:
    with omp.target_data(map=[to(a[1:])]):
        omp.target_enter_data(map=[to(x)])


@case
def target_update(x: Any, a: Host) -> Any:
    with omp.target_data(map=[to(x)]):
        a += 3
        omp.target_update(to=[x])
        found = [omp.target(inc)(x)]
        omp.target_update(from_=[x], nowait=True, depend=[out(x)]).result()
        return [*found, total(a)]


@case
def target_update_to(x: Any, a: Host) -> Any:
    with omp.target_data(map=[alloc(x)]):
        omp.target_update(to=[x])
        omp.target_update(to=x)
        return omp.target(total)(a) if a.flags.writeable else omp.target(map=[to(a)])(total)(a)


@wrong
def target_update_of_what_is_missing(x: Any, a: Host) -> Any:
    omp.target_update(to=[x])
    omp.target_update(to=[x], present=True)


@case
def target_update_of_a_part(x: Any, a: Host) -> Any:
    with omp.target_data(map=[to(x)]):
        omp.target(inc)(x)
        omp.target_update(from_=[omp.section(x, (1, 2))])


# -- depend ------------------------------------------------------------------------------------------------
_DEPENDENCES = (in_, out, inout, mutexinoutset, inoutset)


@contextmanager
def held(dependence: Any) -> Iterator[Any]:
    """Have a task with a dependence that is complete after the block."""
    event = omp.Event()
    try:
        yield omp.task(detach=event, depend=[dependence])(nothing)()
    finally:
        event.fulfill()
        omp.taskwait()


def follows(first: Any, second: Any) -> bool:
    """Tell whether a task with the second dependence follows one with the first."""
    with held(first) as earlier:
        return earlier in omp.task(depend=[second])(nothing)().dependencies


@each(_DEPENDENCES)
def depend(clause: Any, x: Any, a: Host) -> Any:
    orders = [follows(clause(x), other(x)) for other in _DEPENDENCES]
    orders += [follows(clause(x), other(a)) for other in _DEPENDENCES]
    orders += [follows(other(a), clause(x)) for other in _DEPENDENCES]
    return orders, follows(clause(x), out(a[1:])), follows(clause(x), out(OTHER)), follows(out(("other", 1)), clause(x))


@each(_DEPENDENCES)
def depend_of_strings(clause: Any, x: Any, a: Host) -> Any:
    with held(out(a[:2])) as earlier:
        tasks = [omp.task(depend=[clause(text)])(nothing)(x) for text in ("x", "x[0:1]", "x[2:1]")]
        return [earlier in task.dependencies for task in tasks]


@case
def depend_of_parts(x: Any, a: Host) -> Any:
    first, second = omp.section(x, (0, 1)), omp.section(x, (1, 2))
    return [follows(out(first), in_(item)) for item in (x, a, a[:1], a[1:], first, second)]


@case
def depend_with_targets(x: Any, a: Host) -> Any:
    with held(out(x)) as earlier:
        region = omp.target(nowait=True, depend=[in_(a)], map=[to(x)])(total)(x)
        found = earlier in region.dependencies
    return found, region.result()


@case
def taskwait(x: Any, a: Host) -> Any:
    with held(out(a)):
        waits = omp.taskwait(depend=[in_(x)], nowait=True)
        found = waits.done()
    omp.taskwait(depend=[inout(x)])
    return found, waits.done()


@case
def interop(x: Any, a: Host) -> Any:
    omp.task(depend=[out(a)])(lambda: a.__iadd__(1) is None)()
    with omp.interop(depend=[inout(x)]) as used:
        found = [used.stream is not None, total(a)]
    omp.taskwait(depend=[in_(x)])
    return found


@case
def depobj(x: Any, a: Host) -> Any:
    ordered = omp.depobj(out(x))
    found = [follows(ordered, in_(a)), follows(in_(a), ordered)]
    ordered.update("in")
    found.append(follows(ordered, in_(a)))
    ordered.destroy()
    return found


# -- reductions --------------------------------------------------------------------------------------------
@case
def taskgroup_reduction(x: Any, a: Host) -> Any:
    with omp.taskgroup(task_reduction={"+": [x]}):
        tasks = [omp.task(in_reduction={"+": [item]})(add)(item, k) for k, item in enumerate((x, a, x))]
    return [task.result() for task in tasks]


@case
def taskgroup_reduction_of_strings(x: Any, a: Host) -> Any:
    with omp.taskgroup(task_reduction={"max": [x]}):
        omp.task(in_reduction={"max": ["x"]})(highest)(x, 9)


def add(x: Any, k: int) -> list[int]:
    x += k
    return list(x.shape)


def highest(x: Any, k: int) -> None:
    x[...] = k


@case
def taskloop_reduction(x: Any, a: Host) -> Any:
    body = omp.taskloop(num_tasks=3, reduction={"+": [x]})(lambda part, x: add(x, len(part)))
    body(range(12), x)
    body(range(12), a)


@case
def taskloop_reduction_of_strings(x: Any, a: Host) -> Any:
    @omp.taskloop(num_tasks=3, reduction={"+": ["x"]})
    def body(part: Any, x: Any) -> None:
        add(x, len(part))

    body(range(12), x)


@wrong
def reduction_of_what_overlaps(x: Any, a: Host) -> Any:
    with omp.taskgroup(task_reduction={"+": [x, a]}):
        pass


# -- graphs ------------------------------------------------------------------------------------------------
@case
def taskgraph(x: Any, a: Host) -> Any:
    runs = []

    @omp.taskgraph
    def body(x: Any) -> None:
        runs.append(1)
        omp.target(nowait=True, depend=[inout(x)])(inc)(x)
        omp.task(depend=[inout(x)])(nothing)(x)
        omp.target(nowait=True, depend=[inout(x)])(inc)(x)

    found = []
    for item in (x, x, OTHER, x):
        body(item)
        omp.taskwait()
        found.append(len(runs))
    return found, total(a)


@case
def record(x: Any, a: Host) -> Any:
    with omp.record() as graph:
        omp.task(depend=[out(x)])(nothing)()
        omp.target(nowait=True, depend=[in_(a)], map=[to(x)])(total)(x)
        omp.target_enter_data(map=[to(x)], nowait=True, depend=[inout(x)])
        omp.target_exit_data(map=[release(x)], nowait=True, depend=[inout(x)])
    omp.taskwait()
    edges = sorted((edge.kind, str(edge.item)) for edge in graph.edges)
    return [task.name for task in graph.tasks], edges


@case
def record_without_running(x: Any, a: Host) -> Any:
    with omp.record(execute=False) as graph:
        omp.target(nowait=True, depend=[inout(x)])(inc)(x)
        omp.target_update(to=[x], nowait=True, depend=[in_(a)])
    before = total(a)
    graph.compute("synchronous")
    return before, total(a), len(graph.edges)


# -- what else has storage ---------------------------------------------------------------------------------
class Holder:
    """An object whose class has a mapper."""

    def __init__(self, x: Any, y: Any = None) -> None:
        self.x, self.y = x, y


class Reader(Holder):
    """An object whose mapper only copies to the device."""


class Nested(Holder):
    """An object that holds one with a mapper."""


class Bare(Holder):
    """An object whose mapper returns the array itself."""


omp.declare_mapper(Holder, lambda held: [tofrom(held.x)])
omp.declare_mapper(Reader, lambda held: [to(held.x)])
omp.declare_mapper(Nested, lambda held: [tofrom(held.y)])
omp.declare_mapper(Bare, lambda held: held.x)


@case
def mapper(x: Any, a: Host) -> Any:
    return omp.target(lambda held: inc(held.x))(Holder(x))


@case
def mapper_of_nested_objects(x: Any, a: Host) -> Any:
    return omp.target(lambda held: inc(held.y.x))(Nested(None, Holder(x)))


@case
def mapper_that_returns_the_array(x: Any, a: Host) -> Any:
    return omp.target(lambda held: inc(held.x))(Bare(x))


@case
def mapper_that_reads(x: Any, a: Host) -> Any:
    held = Reader(x)
    found = [omp.target(lambda held: total(held.x))(held)]
    omp.target_enter_data(map=[to(held)])
    found += [present(x, a), follows(out(held), in_(a)), follows(out(a), in_(held))]
    omp.target_update(to=[held])
    omp.target_exit_data(map=[release(held)])
    return [*found, present(x, a)]


@case
def mapper_with_update(x: Any, a: Host) -> Any:
    held = Holder(x)
    with omp.target_data(map=[to(a)]):
        omp.target(lambda held: inc(held.x))(held)
        omp.target_update(from_=[held])


@case
def section(x: Any, a: Host) -> Any:
    found = omp.section(x, (1, 2))
    return [list(found.shape), float(found.sum())]


@wrong
def section_outside(x: Any, a: Host) -> Any:
    return omp.section(x, (0, 99))


@case
def declare_target(x: Any, a: Host) -> Any:
    omp.declare_target(x)
    found = [present(x, a), omp.target(inc)(x), total(a)]
    omp.target_update(from_=[x])
    return found


# -- memory routines ---------------------------------------------------------------------------------------
@case
def target_memcpy(x: Any, a: Host) -> Any:
    with Filled(a) as d:
        omp.target(inc)(d)
        omp.target_memcpy(x, d)
        a *= 2
        omp.target_memcpy(d, x)
        return float(d.sum())


@case
def target_memcpy_to_a_device(x: Any, a: Host) -> Any:
    with Filled(np.zeros_like(a)) as d:
        omp.target_memcpy(d, x, a.itemsize, a.itemsize, 2 * a.itemsize)
        first = float(d.sum())
        omp.target_memcpy_async(d, x, depend=[out(d), in_(x)]).result()
        return first, float(d.sum())


@case
def target_memcpy_on_host(x: Any, a: Host) -> Any:
    other = np.full(a.shape, 5, a.dtype)
    omp.target_memcpy(x, other)
    omp.target_memcpy(other, x, a.itemsize)


@wrong
def target_memcpy_of_parts_that_overlap(x: Any, a: Host) -> Any:
    omp.target_memcpy(x, a, a.nbytes - a.itemsize, a.itemsize, 0)


@case
def target_memcpy_rect(x: Any, a: Host) -> Any:
    with Filled(np.zeros_like(a)) as d:
        omp.target_memcpy_rect(d, x)
        omp.target(inc)(d)
        omp.target_memcpy_rect_async(x, d, [1] * a.ndim, depend=[out(x)]).result()
        return float(d.sum())


@case
def copy(x: Any, a: Host) -> Any:
    with Filled(a) as d:
        omp.target(inc)(d)
        omp.copy(x, d)
        omp.copy(d, x)
        return float(d.sum())


@case
def buffers(x: Any, a: Host) -> Any:
    with omp.buffers(2, a.shape, a.dtype) as ring:
        for k in range(3):
            ordered = [inout(x, ring[k])]
            omp.target_memcpy_rect_async(ring[k], x, depend=ordered)
            omp.target(nowait=True, depend=ordered)(inc)(ring[k])
            omp.target_memcpy_rect_async(x, ring[k], depend=ordered)


@case
def looking(x: Any, a: Host) -> Any:
    found = [present(x, a), omp.target_is_accessible(x), omp.get_mapped_ptr(x) is None]
    with omp.target_data(map=[to(x)]):
        mapped = omp.get_mapped_ptr(x)
        found += [present(x, a), list(mapped.shape), float(mapped.sum()), type(mapped).__name__]
        found.append(omp.get_mapped_ptr(x, omp.initial_device) is not None)
    return found


@case
def target_associate_ptr(x: Any, a: Host) -> Any:
    with Filled(a) as d:
        omp.target_associate_ptr(x, d)
        found = [present(x, a), omp.target(map=[to(x)])(total)(x)]
        omp.target_disassociate_ptr(x)
        return [*found, present(x, a)]


@wrong
def target_disassociate_ptr_of_what_is_missing(x: Any, a: Host) -> Any:
    omp.target_disassociate_ptr(x)


@case
def array_namespace(x: Any, a: Host) -> Any:
    return omp.array_namespace(x).__name__


# -- OpenACC -----------------------------------------------------------------------------------------------
_DATA = ("copy", "copyin", "copyout", "create", "no_create")


@each(_DATA)
def acc_data(word: Any, x: Any, a: Host) -> Any:
    with acc.data(**{word: [x]}):
        return [acc.is_present(x), acc.is_present(a), acc.is_present(omp.section(x, (1, 2)))]


@each(("copyin", "create"))
def acc_enter_data(word: Any, x: Any, a: Host) -> Any:
    acc.enter_data(**{word: [x]})
    found = [acc.is_present(x), acc.is_present(a)]
    acc.exit_data(delete=[x])
    return [*found, acc.is_present(x)]


@case
def acc_exit_data_copyout(x: Any, a: Host) -> Any:
    acc.enter_data(copyin=[x], async_=1)
    acc.parallel(async_=1)(inc)(x)
    acc.exit_data(copyout=[x], async_=1)
    acc.wait(1)
    return acc.is_present(a)


@each((acc.parallel, acc.serial, acc.kernels))
def acc_region(construct: Any, x: Any, a: Host) -> Any:
    return construct(inc)(x), construct(copy=["x"])(inc)(x), construct(copy=[x])(inc)(x)


@each(_DATA)
def acc_region_with_data(word: Any, x: Any, a: Host) -> Any:
    return acc.parallel(**{word: [x]})(nothing)(x)


@each(("firstprivate", "private"))
def acc_region_with_sharing(word: Any, x: Any, a: Host) -> Any:
    return acc.parallel(**{word: ["x"]})(shape)(x)


@wrong
def acc_present_is_missing(x: Any, a: Host) -> Any:
    return acc.parallel(present=[x])(nothing)(x)


@wrong
def acc_deviceptr_of_a_host_array(x: Any, a: Host) -> Any:
    return acc.parallel(deviceptr=["x"])(nothing)(x)


@case
def acc_reduction(x: Any, a: Host) -> Any:
    return acc.parallel(reduction={"+": ["x"]})(lambda x: add(x, 2))(x)


@case
def acc_region_on_host(x: Any, a: Host) -> Any:
    return acc.parallel(if_=False)(inc)(x)


@case
def acc_region_in_a_queue(x: Any, a: Host) -> Any:
    tasks = [acc.parallel(async_=1)(inc)(item) for item in (x, a, x)]
    acc.wait()
    return [task.result() for task in tasks]


@case
def acc_update(x: Any, a: Host) -> Any:
    with acc.data(copyin=[x]):
        a += 2
        acc.update(device=[x])
        found = acc.parallel(inc)(x)
        acc.update(host=[x], async_=1)
        acc.wait()
        acc.update(self_=[x])
        return found


@wrong
def acc_update_of_what_is_missing(x: Any, a: Host) -> Any:
    acc.update(device=[x], if_present=True)
    acc.update(device=[x])


@case
def acc_host_data(x: Any, a: Host) -> Any:
    with acc.host_data([x], if_present=True) as (same,):
        found = [same is x]
    with acc.data(copyin=[x]), acc.host_data([x]) as (d,):
        return [*found, type(d).__name__, list(d.shape), float(d.sum())]


@wrong
def acc_host_data_of_what_is_missing(x: Any, a: Host) -> Any:
    with acc.host_data([x]) as (d,):
        return d is x


@case
def acc_routines(x: Any, a: Host) -> Any:
    d = acc.copyin(x)
    found = [type(d).__name__, list(d.shape), acc.is_present(x), acc.is_present(a), float(acc.deviceptr(x).sum())]
    acc.create(a)
    acc.update_device(x)
    acc.update_device_async(x, 1)
    acc.wait()
    acc.delete(x)
    found.append(acc.is_present(x))
    acc.delete_finalize(x)
    return [*found, acc.is_present(x)]


@case
def acc_routines_that_copy_out(x: Any, a: Host) -> Any:
    acc.create_async(x, 1)
    acc.copyin_async(x, 1)
    acc.wait()
    found = [acc.is_present(x), acc.parallel(present=["x"])(inc)(x) is not None]
    acc.update_device(x)
    acc.parallel(inc)(x)
    acc.update_self(x)
    acc.parallel(inc)(x)
    acc.copyout(x)
    acc.copyout_finalize(x)
    return [*found, acc.is_present(x)]


@case
def acc_routines_of_what_is_missing(x: Any, a: Host) -> Any:
    return [acc.deviceptr(x), acc.copyout(x)]


@case
def acc_map_data(x: Any, a: Host) -> Any:
    with Filled(a) as d:
        acc.map_data(x, d)
        found = [acc.is_present(x), acc.is_present(a), acc.hostptr(d) is not None]
        acc.unmap_data(x)
        return [*found, acc.is_present(x)]


@case
def acc_memcpy(x: Any, a: Host) -> Any:
    d = acc.malloc(a.nbytes)
    try:
        acc.memcpy_to_device(d, x, a.nbytes)
        a += 1
        acc.memcpy_from_device_async(x, d, a.itemsize, 1)
        acc.wait()
    finally:
        acc.free(d)


@case
def acc_memcpy_d2d(x: Any, a: Host) -> Any:
    other = np.zeros_like(a)
    with acc.data(copyin=[x], copyout=[other]):
        acc.memcpy_d2d(other, x)
    return total(other)


@wrong
def acc_memcpy_d2d_of_what_is_missing(x: Any, a: Host) -> Any:
    acc.memcpy_d2d(x, a)


@wrong
def acc_map_data_of_what_is_present(x: Any, a: Host) -> Any:
    with Filled(a) as d, acc.data(copyin=[x]):
        acc.map_data(x, d)


@wrong
def acc_unmap_data_of_what_is_not_mapped(x: Any, a: Host) -> Any:
    acc.unmap_data(x)


@wrong
def target_associate_ptr_of_what_is_too_small(x: Any, a: Host) -> Any:
    with Filled(a) as d:
        omp.target_associate_ptr(x, d[:1])


@case
def acc_memcpy_to_a_device(x: Any, a: Host) -> Any:
    with Filled(np.zeros_like(a)) as d:
        acc.memcpy_to_device(d, x)
        return float(d.sum())


@wrong
def acc_memcpy_the_wrong_way(x: Any, a: Host) -> Any:
    acc.memcpy_to_device(x, a)


@case
def acc_declare(x: Any, a: Host) -> Any:
    @acc.declare(copyin=["x"])
    def body(x: Any) -> Any:
        return [acc.is_present(x), acc.is_present(a)]

    return body(x), acc.is_present(x)


# -- loops -------------------------------------------------------------------------------------------------
def _bump(x: Any) -> None:
    for i in range(x.shape[0]):
        x[i] += 1


def _bump_rows(x: Any) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[i, j] += 1


def _sum(x: Any) -> Any:
    s = 0.0
    for i in range(x.shape[0]):
        s += x[i]
    return s


def _loop(a: Host) -> Any:
    return _bump if a.ndim == 1 else _bump_rows


@each((omp.target_loop, omp.parallel_loop))
def loop(construct: Any, x: Any, a: Host) -> Any:
    function = construct(_loop(a))
    return [function(item) for item in (x, a, x)]


@each((acc.parallel_loop, acc.kernels_loop))
def acc_loop(construct: Any, x: Any, a: Host) -> Any:
    return loop(construct, x, a)


@each((omp.target_loop, omp.parallel_loop))
def loop_that_reduces(construct: Any, x: Any, a: Host) -> Any:
    return construct(reduction={"+": ["s"]})(_sum)(x)


@case
def loop_nowait(x: Any, a: Host) -> Any:
    function = omp.target_loop(nowait=True, depend=[inout("x")])(_loop(a))
    for item in (x, a, x):
        function(item)
    omp.taskwait()


@case
def loop_on_present_storage(x: Any, a: Host) -> Any:
    with omp.target_data(map=[to(x)]):
        omp.target_loop(_loop(a))(x)
        found = total(a)
        omp.target_update(from_=[x])
        return found


# -- PARRAY ------------------------------------------------------------------------------------------------
@case
def parray_copy(x: Any, a: Host) -> Any:
    kind = parray.ArrayType(a.shape)
    other = np.zeros(a.shape, a.dtype)
    parray.copy(kind, x, to=(kind, other))
    other += 1
    parray.copy(kind, other, to=(kind, x), nowait=True).result()
    return total(other)


@case
def parray_view(x: Any, a: Host) -> Any:
    found = parray.ArrayType((2, 3)).view(x)
    return list(found.shape), float(found.sum())
