"""`taskgraph`: what is recorded and when, what a replay keeps of it, and what it costs."""

import contextlib
import dataclasses
import functools
import gc
import random
import threading
import types
import weakref
from collections import defaultdict, deque

import numpy as np
import pytest

import offload as omp
from offload import alloc, from_, in_, inout, inoutset, mutexinoutset, out, release, to, tofrom
from offload.tasks import engine
from tests.conftest import checked
from tests.patience import until_gone

PATIENCE_S = 20


def wait_for(event):
    assert event.wait(PATIENCE_S)


class Counted:
    """A task graph with a task that counts, which counts how often its body has run."""

    def __init__(self, body=None, **clauses):
        self.n_bodies = self.n_tasks = 0

        def generate(*args, **kwargs):
            self.n_bodies += 1
            omp.task(self.count)()
            if body is not None:
                body(*args, **kwargs)

        self.call = omp.taskgraph(**clauses)(generate)

    def count(self):
        self.n_tasks += 1

    @property
    def n(self):
        """Bodies and tasks that have run."""
        return self.n_bodies, self.n_tasks


@pytest.fixture(params=[0, 1, 4])
def host(request):
    """A runtime without devices, with that many workers."""
    with omp.Runtime("none", num_threads=request.param, check=True) as runtime:
        yield runtime


# -- when the body runs ----------------------------------------------------------------------------


def test_the_body_runs_once_and_the_tasks_each_time(host):
    """The first call records, later ones replay; every call returns None."""
    graph = Counted()
    assert [graph.call() for _ in range(5)] == [None] * 5
    assert graph.n == (1, 5)


def test_bare_and_with_clauses(host):
    """The decorator works without parentheses and with clauses; options share the records of the function."""
    ran = []

    @omp.taskgraph
    def bare():
        ran.append("bare")

    @omp.taskgraph(graph_id=1, name="n")
    def named():
        ran.append("named")

    for _ in range(2):
        bare()
        bare.options(graph_id=None, if_=True)()
        named()
    assert ran == ["bare", "named"]
    assert bare.__name__ == "bare"


def test_records_by_graph_id(host):
    """Each graph_id has a record of its own."""
    graph = Counted()
    for graph_id in (None, 1, "a", ("x", 2)) * 2:
        graph.call.options(graph_id=graph_id)()
    assert graph.n == (4, 8)


def test_if_false_neither_replays_nor_records(host):
    """With if_=False the body runs and is not recorded; a record that is there stays."""
    graph = Counted()
    graph.call.options(if_=False)()
    assert graph.n == (1, 1)
    graph.call()
    graph.call.options(if_=False)()
    graph.call()
    assert graph.n == (3, 4)


def test_graph_reset_records_anew(host):
    """graph_reset discards the record of this graph_id and these arguments only."""
    graph = Counted(lambda n: None)
    for _ in range(2):
        graph.call(1)
        graph.call(2)
    graph.call.options(graph_reset=True)(1)
    graph.call(1)
    graph.call(2)
    assert graph.n == (3, 7)


def test_methods(host):
    """A task graph in a class is called with its instance, by which records are kept."""

    class Solver:
        def __init__(self):
            self.log = []

        @omp.taskgraph
        def step(self):
            self.log.append("body")
            omp.task(self.log.append)("task")

    one, other = Solver(), Solver()
    for solver in (one, other, one):
        solver.step()
    assert one.log == ["body", "task", "task"]
    assert other.log == ["body", "task"]


# -- arguments -------------------------------------------------------------------------------------


def test_arrays_are_the_same_by_storage(host):
    """Another view of the same storage replays; another array, shape, stride, dtype or place records anew."""
    seen = []

    @omp.taskgraph
    def touch(x):
        seen.append(x)
        omp.task(lambda: x.__iadd__(1) is None)()

    x = np.zeros(8)
    for other in (x, x[:], x.view()):
        touch(other)
    assert len(seen) == 1
    assert (x == 3).all()
    for other in (x.copy(), x[:4], x[4:], x[::2], x.reshape(2, 4), x.view("i8")):
        touch(other)
        touch(other)
    assert len(seen) == 7


def test_device_arrays_are_the_same_by_storage(sim):
    """A device array is known by its device storage."""
    graph = Counted(lambda d: None)
    d, e = omp.target_alloc(8, "f8"), omp.target_alloc(8, "f8")
    for array in (d, d[:], e, d[:4]):
        graph.call(array)
    assert graph.n == (3, 4)
    omp.target_free(d)
    omp.target_free(e)


def test_other_arguments_are_the_same_by_equality(host):
    """Equal values replay, unhashable ones too; what a list holds is compared as it was."""
    graph = Counted(lambda *args, **kwargs: None)
    changed = [1, [2, 3]]
    for args in ((1, "a"), (1, "a"), (2, "a"), ([1, [2, 3]],), (changed,), ({"k": {1}},), ({"k": {1}},)):
        graph.call(*args)
    assert graph.n == (4, 7)
    changed[1].append(4)
    graph.call(changed)
    assert graph.n == (5, 8)
    graph.call([1, [2, 3]])
    assert graph.n == (5, 9)


def test_arguments_of_another_type_record_anew(host):
    """1, 1.0 and True are other arguments, for which a body may do something else."""
    graph = Counted(lambda value: None)
    for value in (1, 1.0, True, 1):
        graph.call(value)
    assert graph.n == (3, 4)


def test_arrays_in_containers_are_the_same_by_storage(host):
    """Lists, tuples and dicts of arrays are compared by the storage of those."""
    graph = Counted(lambda arrays: None)
    x, y = np.zeros(2), np.zeros(2)
    for arrays in ([x, y], [x[:], y], (x, y), {"x": x}, {"x": x}, [y, x]):
        graph.call(arrays)
    assert graph.n == (4, 6)


def test_a_value_that_cannot_be_compared_equals_itself(host):
    """An argument whose == gives no truth value is the same only as itself."""

    class Odd:
        def __eq__(self, other):
            return np.zeros(2)

        __hash__ = None

    graph = Counted(lambda odd: None)
    odd = Odd()
    for value in (odd, odd, Odd()):
        graph.call(value)
    assert graph.n == (2, 3)


class Equal:
    """An object that equals others by what is in it."""

    __slots__ = ("__inner", "items")

    def __init__(self, *items):
        self.items = list(items)
        self.__inner = [*items]

    def __eq__(self, other):
        return type(other) is type(self) and str(self) == str(other)

    __hash__ = None

    def add(self, item):
        self.items.append(item)
        self.__inner.append(item)

    def __repr__(self):
        return f"Equal({self.items}, {self.__inner})"


@dataclasses.dataclass
class Settings:
    n: int
    parts: list
    note: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True)
class Frozen:
    parts: dict


def record_of(value):
    return np.array([(value, 2.5)], dtype=[("n", "i8"), ("x", "f8")])[0]


MUTABLE = {
    "list": (lambda: [1], lambda value: value.append(100)),
    "dict": (lambda: {"a": 1}, lambda value: value.update(a=100)),
    "set": (lambda: {1}, lambda value: value.add(100)),
    "deque": (lambda: deque([1]), lambda value: value.append(100)),
    "defaultdict": (lambda: defaultdict(list, a=[1]), lambda value: value["a"].append(100)),
    "namespace": (lambda: types.SimpleNamespace(a=[1]), lambda value: value.a.append(100)),
    "dataclass": (lambda: Settings(1, [2]), lambda value: setattr(value, "n", 100)),
    "what a dataclass has": (lambda: Settings(1, [2]), lambda value: value.parts.append(100)),
    "frozen dataclass": (lambda: Frozen({"a": [1]}), lambda value: value.parts["a"].append(100)),
    "object": (lambda: Equal(1), lambda value: value.add(100)),
    "element of a structured array": (lambda: record_of(1), lambda value: value.__setitem__("n", 100)),
    "nested": (lambda: ([{"a": (1, Equal(2))}],), lambda value: value[0][0]["a"][1].add(100)),
    "the same twice": (lambda: [[1]] * 2, lambda value: value[0].append(100)),
}


@pytest.mark.parametrize("keeps", [False, True], ids=["replay", "first call with nogroup"])
@pytest.mark.parametrize("name", MUTABLE)
def test_an_argument_that_is_changed_afterwards(host, name, keeps):
    """A task is given what was recorded, whatever the caller has made of the recorded object since."""
    make, change = MUTABLE[name]
    seen = []
    graph = Counted(lambda value: omp.task(depend=[in_(("gate",))])(lambda: seen.append(repr(value)))())
    call = graph.call.options(nogroup=keeps)
    original = make()
    call(original)
    change(original)
    call(make())
    call(original)
    change(original)
    call(make())
    omp.barrier()
    first, second = repr(make()), make()
    change(second)
    assert sorted(seen) == sorted([first, first, repr(second), first])
    assert graph.n == (2, 4)


def test_a_first_call_that_is_still_running(sim):
    """With nogroup a change by the caller reaches no task of the recording that has not begun."""
    event, seen, values = omp.Event(), [], [1]

    @omp.taskgraph(nogroup=True)
    def region(values):
        omp.task(detach=event, depend=[out(("gate",))])(lambda: None)()
        omp.task(depend=[in_(("gate",))])(lambda: seen.append([*values]))()

    region(values)
    values.append(100)
    event.fulfill()
    omp.taskwait()
    assert seen == [[1]]


def test_arrays_in_arguments_are_those_of_the_caller(sim):
    """What is copied refers to the caller's arrays, on the host and on a device, by whose storage it is known."""
    x, other, d = np.zeros(1), np.zeros(1), omp.target_alloc(1, "f8")
    graph = Counted(lambda value: omp.task(lambda: value.parts[0].__iadd__(1))())
    for parts in ([x, d], [x, d], [other, d], [x, x]):  # of one element, so that == of the arrays has a truth value
        graph.call(Settings(1, parts))
        graph.call(Settings(1, parts))
    assert (x[0], other[0]) == (6, 2)
    assert graph.n == (3, 8)
    omp.target_free(d)


def test_an_object_with_a_mapper(sim):
    """An object with a mapper is known by its value and by what it maps; a region gets the arrays that it had."""

    @dataclasses.dataclass
    class Mapped:
        x: np.ndarray
        scale: int

    omp.declare_mapper(Mapped, lambda mapped: tofrom(mapped.x))

    @omp.target(nowait=True)
    def add(mapped):
        mapped.x += mapped.scale

    graph = Counted(add)
    mapped, x = Mapped(np.zeros(4), 1), np.zeros(4)
    graph.call(mapped)
    mapped.scale = 10
    graph.call(Mapped(mapped.x, 1))
    assert mapped.x.tolist() == [2] * 4
    graph.call(mapped)
    assert mapped.x.tolist() == [12] * 4
    mapped.x, first = x, mapped.x
    graph.call(mapped)
    assert (first.tolist(), x.tolist()) == ([12] * 4, [10] * 4)
    assert graph.n == (3, 4)


class Plain:
    """An object that equals itself alone."""

    def __init__(self):
        self.values = [1]


class NeverCopied(Equal):
    def __copy__(self):
        raise RuntimeError


class Comparing:
    """An object of which == raises."""

    values = [1]  # noqa: RUF012  # a test's

    def __eq__(self, other):
        raise RuntimeError

    __hash__ = None


@pytest.mark.parametrize(
    "make",
    [
        Plain,
        NeverCopied,
        Comparing,
        lambda: iter([1, 2]),
        lambda: (number for number in (1, 2)),
        lambda: functools.partial(print, []),
        lambda: lambda: None,
        threading.Lock,
        lambda: memoryview(bytearray(2)),
    ],
)
def test_an_object_that_equals_itself_alone_is_passed_as_it_is(host, make):
    """Where values cannot be told apart or copied, the object itself is passed and compared, in containers too."""
    seen = []
    graph = Counted(lambda values: seen.append(values[0]))
    thing, other = make(), make()
    for value in (thing, thing, other):
        graph.call([value])
    assert graph.n == (2, 3)
    assert seen[0] is thing


@pytest.mark.parametrize("by", ["body", "task"])
@pytest.mark.parametrize("name", MUTABLE)
def test_a_copy_that_is_changed_is_an_error(host, name, by):
    """What the body or a task changes of a copied argument is told each time, and the caller's object is as it was."""
    make, change = MUTABLE[name]
    graph = Counted(lambda value: change(value) if by == "body" else omp.task(lambda: change(value) and None)())
    value = make()
    for _ in range(2):
        with pytest.raises(omp.UsageError, match="was changed by the body or by a task"):
            graph.call(value)
    assert repr(value) == repr(make())
    graph.call.options(if_=False)(value)
    assert repr(value) != repr(make())


def test_a_record_whose_task_changes_a_copy_goes(host):
    """With nogroup, where the change comes after the call, the next call records anew."""
    event, seen = omp.Event(), []

    @omp.task
    def add(values):
        seen.append([*values])
        values.append(100)

    @omp.taskgraph(nogroup=True)
    def region(values):
        add.options(depend=[in_(("gate",))])(values)

    gate = omp.task(detach=event)(lambda: None)()
    for _ in range(3):
        with contextlib.suppress(omp.UsageError):  # where the task was quicker than the call
            region([1])
        omp.barrier() if gate.done() else event.fulfill()
        omp.taskwait()
    assert seen == [[1]] * 3


def test_keywords(host):
    """An argument is the same by its place and by its name; the order of keywords does not matter."""
    calls = []

    @omp.taskgraph
    def generate(a, b=0, **others):
        calls.append((a, b, others))

    generate(1, 2)
    generate(1, b=2)
    generate(b=2, a=1)
    generate(1, 2, c=3, d=4)
    generate(1, 2, d=4, c=3)
    assert calls == [(1, 2, {}), (1, 2, {"c": 3, "d": 4})]
    with pytest.raises(TypeError):
        generate(b=2)


def test_the_least_recently_used_of_nine_goes(host):
    """At most 8 records are kept; the one that has not been used for longest is recorded anew."""
    graph = Counted(lambda number: None)
    for number in range(8):
        graph.call(number)
    graph.call(0)
    graph.call(8)  # 1 goes
    assert graph.n_bodies == 9
    for number in (0, *range(2, 9)):
        graph.call(number)
    assert graph.n_bodies == 9
    graph.call(1)
    assert graph.n_bodies == 10


def test_a_record_keeps_what_it_needs_and_a_replay_nothing(host):
    """Arguments live as long as their record; tasks and values of a replay are gone when it is complete."""

    class Value:
        pass

    made = []

    @omp.task
    def make():
        value = Value()
        made.append(weakref.ref(value))
        return value

    @omp.taskgraph
    def generate(x):
        make()

    x = np.zeros(4)
    kept = weakref.ref(x)
    for _ in range(3):
        generate(x)
    del x
    assert len(made) == 3
    until_gone(*made)  # a worker that has completed a task holds it for a moment
    assert kept() is not None
    generate.options(graph_reset=True, if_=False)(kept())
    until_gone(kept)


def test_another_runtime_records_anew():
    """A record belongs to the runtime that it was made in."""
    graph = Counted()
    for _ in range(2):
        with omp.Runtime("none", num_threads=1):
            graph.call()
            graph.call()
    assert graph.n == (2, 4)


def test_records_go_with_their_runtime():
    """A runtime that is closed keeps no arguments alive, whatever task graphs there are."""
    graph = Counted(lambda x: None)
    x = np.zeros(4)
    kept = weakref.ref(x)
    with omp.Runtime("none"):
        graph.call(x)
        del x
        gc.collect()
        assert kept() is not None
    until_gone(kept)  # one collection does nothing where another thread is in one


# -- order -----------------------------------------------------------------------------------------


def test_dependences_hold_in_a_replay(host):
    """Flow, anti and output dependences order a replay as they ordered the recording."""
    log = []

    @omp.taskgraph
    def generate():
        for number in range(30):
            omp.task(depend=[(in_, inout, out)[number % 3](("x",))])(log.append)(number)

    for _ in range(4):
        log.clear()
        generate()
        assert log == list(range(30))


def test_a_stencil_is_computed_as_serially(host):
    """A 1-d stencil in tiles gives the serial result in each replay."""
    n, n_steps = 16, 12
    rows = np.zeros((2, n, 8))
    rows[0] = np.random.default_rng(0).random((n, 8))
    expected = rows.copy()

    def update(rows, step, i):
        old, new = rows[step % 2], rows[(step + 1) % 2]
        new[i] = (old[i - 1] + 2 * old[i] + old[(i + 1) % n]) / 4

    @omp.taskgraph
    def generate(rows):
        for step in range(n_steps):
            old, new = rows[step % 2], rows[(step + 1) % 2]
            for i in range(n):
                reads = [in_(old[j]) for j in (i - 1, i, (i + 1) % n)]
                omp.task(depend=[*reads, out(new[i])])(update)(rows, step, i)

    for _ in range(4):
        generate(rows)
        for step in range(n_steps):
            for i in range(n):
                update(expected, step, i)
        assert (rows == expected).all()


def test_waits_of_the_body_order_a_replay(host):
    """taskwait, taskwait(depend), the end of a taskgroup, an undeferred task and result() are fences."""
    log = []

    def step(number, depend=()):
        return omp.task(depend=list(depend))(log.append)(number)

    @omp.taskgraph
    def generate():
        for _ in range(3):
            step(0)
        omp.taskwait()
        for _ in range(3):
            step(1)
        with omp.taskgroup():
            step(1)
        step(2, [out(("x",))]).result()
        omp.task(if_=False)(log.append)(3)
        step(4, [inout(("x",))])
        omp.taskwait(depend=[in_(("x",))])
        step(5)

    for _ in range(6):
        log.clear()
        generate()
        assert len(log) == 11
        assert [n for n in log if n in (0, 2, 3, 4, 5)] == [0, 0, 0, 2, 3, 4, 5]
        assert log.index(1) > 2


def test_the_end_of_a_group_waits_for_descendants(host):
    """What follows a taskgroup in the body follows in a replay what its tasks have generated, too."""
    log = []

    @omp.task
    def inner():
        log.append("inner")

    @omp.task
    def outer():
        omp.task(inner)()
        log.append("outer")

    @omp.taskgraph
    def generate():
        with omp.taskgroup():
            outer()
            with omp.taskgroup():
                outer()
            log_between()
        omp.task(log.append)("after")

    @omp.task
    def log_between():
        log.append("between")

    for _ in range(4):
        log.clear()
        generate()
        assert log[-1] == "after"
        assert sorted(log) == ["after", "between", *["inner"] * 2, *["outer"] * 2]
        assert log.index("between") >= log.index("outer")


def test_no_dependences_across_the_boundary(host):
    """Neither the recording nor a replay follows what was generated outside, nor is it followed."""
    gate, log = omp.Event(), []

    @omp.taskgraph
    def generate():
        omp.task(depend=[inout(("x",))])(log.append)("in")

    held = omp.task(depend=[inout(("x",))], detach=gate)(lambda: None)()
    for _ in range(3):
        generate()
    assert log == ["in"] * 3
    assert not held.done()
    follower = omp.task(depend=[inout(("x",))])(log.append)("follower")
    gate.fulfill()
    follower.result()
    assert log[-1] == "follower"


def test_exclusion_holds_in_a_replay():
    """Tasks with mutexinoutset of one item never overlap in a replay; those with inoutset do."""
    inside, most = [], []

    def enter():
        inside.append(1)
        most.append(len(inside))
        inside.pop()

    meeting = threading.Barrier(2, timeout=PATIENCE_S)

    @omp.taskgraph
    def generate():
        omp.task(depend=[out(("x",))])(most.clear)()
        for _ in range(20):
            omp.task(depend=[mutexinoutset(("x",))])(enter)()
        for _ in range(2):
            omp.task(depend=[inoutset(("y",))])(meeting.wait)()

    with omp.Runtime("none", num_threads=4):
        for _ in range(5):
            generate()
            assert set(most) == {1}
            assert len(most) == 20


def test_priorities_and_final_tasks():
    """A replay keeps priorities, and a final task's tasks are run at once."""
    order = []

    @omp.task(final=True, depend=[inout(("x",))])
    def last():
        order.append(omp.in_final())
        omp.task(order.append)("included")
        order.append("end")

    @omp.taskgraph
    def generate():
        omp.task(depend=[out(("x",))])(order.clear)()
        for priority in (0, 2, 1):
            omp.task(depend=[in_(("x",))], priority=priority)(order.append)(priority)
        last()

    with omp.Runtime("none", num_threads=0, env={"OMP_MAX_TASK_PRIORITY": "3"}):
        for _ in range(3):
            generate()
            assert [entry for entry in order if entry in (0, 1, 2) and entry is not True] == [2, 1, 0]
            at = order.index("included")
            assert order[at - 1 : at + 2] == [True, "included", "end"]


def test_edge_only_tasks_and_depend_objects(host):
    """taskwait(nowait=True) and depobj are kept as they were when the region was recorded."""
    log = []
    item = omp.depobj(out(("x",)))

    @omp.taskgraph
    def generate():
        omp.task(depend=[item])(log.append)(0)
        omp.taskwait(depend=[inout(("x",)), out(("y",))], nowait=True)
        omp.task(depend=[in_(("y",))])(log.append)(1)

    generate()
    item.update("in")
    for _ in range(3):
        generate()
    assert log == [0, 1] * 4


# -- what is in a graph ----------------------------------------------------------------------------


def test_nested_tasks_are_awaited(host):
    """A call waits for what the bodies of its tasks generate, replayed or not."""
    log = []

    def outer():
        omp.task(lambda: omp.task(log.append)(1))()

    graph = omp.taskgraph(omp.task(outer))
    for n in range(1, 5):
        graph()
        assert len(log) == n


def test_taskloops(host):
    """The tasks of a taskloop are replayed."""
    x = np.zeros(100)

    @omp.taskgraph
    def generate():
        omp.taskloop(
            range(100), lambda part: x.__setitem__(slice(part.start, part.stop), x[part.start : part.stop] + 1)
        )

    for n in range(1, 5):
        generate()
        assert (x == n).all()


def test_reductions(host):
    """A reduction in the region is combined before what follows its group, in each replay."""
    total, seen = np.zeros(()), []

    @omp.task(in_reduction={"+": ["total"]})
    def add(total, value):
        total += value

    @omp.taskgraph
    def generate(total):
        with omp.taskgroup(task_reduction={"+": [total]}):
            for value in range(4):
                add(total, value)
        omp.task(lambda: seen.append(float(total)))()

    for _ in range(4):
        generate(total)
    assert seen == [6, 12, 18, 24]


def test_device_work(runtime):
    """Data constructs, regions, updates and copies on every device are replayed, in order with host tasks."""
    n = omp.get_num_devices()
    xs = [np.arange(8.0) for _ in range(n)]
    ys = [np.zeros(8) for _ in range(n)]
    ds = [omp.target_alloc(8, "f8", device=number) for number in range(n)]
    sums = []

    @omp.target(nowait=True, map=[to("x"), tofrom("y")])
    def axpy(x, y):
        y += 2 * x

    @omp.taskgraph
    def generate():
        for number, (x, y, d) in enumerate(zip(xs, ys, ds, strict=True)):
            omp.target_enter_data(map=[to(x), alloc(y)], device=number, nowait=True, depend=[in_(x), out(y)])
            omp.target_update(to=[y], device=number, nowait=True, depend=[inout(y)])
            axpy.options(depend=[in_(x), inout(y)], device=number)(x, y)
            axpy.options(depend=[in_(x), inout(y)], device=number)(x, y)
            omp.target_exit_data(
                map=[from_(y), omp.release(x)], device=number, nowait=True, depend=[inout(x), inout(y)]
            )
            omp.target_memcpy_async(d, y, depend=[in_(y), out(d)])
            omp.target_memcpy_async(x, d, depend=[in_(d), inout(x)])
            omp.task(depend=[in_(x)])(lambda x=x: sums.append(x.sum()))()
            axpy.options(depend=[in_(x), inout(y)], if_=False, nowait=False)(x, y)

    want = np.arange(8.0)
    wanted = np.zeros(8)
    for turn in range(4):
        generate()
        wanted = wanted + 4 * want
        want = wanted.copy()
        assert all((x == want).all() for x in xs), turn
        assert sums[-n:] == [want.sum()] * n
        wanted = wanted + 2 * want
        assert all((y == wanted).all() for y in ys), turn
    for d in ds:
        omp.target_free(d)


def test_a_data_region_in_the_body(runtime):
    """A target data region, entry, tasks, end, is replayed, and nothing stays mapped."""
    x = np.ones(4)

    @omp.taskgraph
    def generate(x):
        with omp.target_data(map=[tofrom(x)]):
            for _ in range(2):
                omp.target(nowait=True, depend=[inout(x)])(lambda x: x.__imul__(2) is None)(x)
        omp.task(lambda: x.__iadd__(1) is None)()

    want = 1
    for _ in range(4):
        generate(x)
        want = 4 * want + 1
        assert (x == want).all()
        assert not omp.target_is_present(x)


@pytest.mark.parametrize("nowait", [False, True])
def test_a_data_region_ends_where_a_replay_fails_in_it(nowait):
    """The end of `target_data` releases what its entry has mapped though a region in the block has failed."""
    x = np.zeros(4)
    fails = []

    def increment(x):
        if fails:
            raise ValueError("later")
        x += 1

    @omp.taskgraph
    def region():
        with omp.target_data(map=[tofrom(x)], nowait=nowait, depend=[inout(x)]):
            omp.target(nowait=True, depend=[inout(x)])(increment)(x)

    with checked("sim:1"):
        region()
        fails.append(True)
        for _ in range(2):
            with pytest.raises(ExceptionGroup):
                region()
            assert not omp.target_is_present(x)
        fails.clear()
        region()
        omp.target_enter_data(map=[to(x[:2])])
        with pytest.raises(ExceptionGroup):
            region()
        omp.target_exit_data(map=[release(x[:2])])
        assert not omp.target_is_present(x)
        region()
    assert x.tolist() == [3, 3, 3, 3]


def test_the_default_device_is_the_recorded_one():
    """A replay goes to the device that was the default one when the region was recorded."""
    where = []

    @omp.taskgraph
    def generate():
        omp.target(nowait=True)(lambda: where.append(omp.get_device_num()))()
        omp.task(lambda: where.append(omp.get_default_device()))()

    with checked("sim:2"):
        omp.set_default_device(1)
        generate()
        omp.set_default_device(0)
        generate()
        assert omp.get_default_device() == 0
    assert where == [1, 1, 1, 1]


def test_the_body_may_set_the_default_device():
    """What the body sets stays set after the call."""
    with checked("sim:2"):
        omp.taskgraph(lambda: omp.set_default_device(1))()
        assert omp.get_default_device() == 1
        omp.set_default_device(0)


def test_names_stay(host):
    """A task of a replay has the name that it was recorded with."""
    names = []

    @omp.taskgraph
    def generate():
        omp.task(name="mine", depend=[out(("x",))])(lambda: names.append(omp.current_task().name))()

    for _ in range(3):
        generate()
    assert names == ["mine"] * 3


# -- events ----------------------------------------------------------------------------------------


def test_events_are_armed_again(host):
    """An event in the graph serves every replay, whether a task of the graph fulfils it before or after its body."""
    log = []

    @omp.taskgraph
    def generate():
        first, second = omp.Event(), omp.Event()
        omp.task(detach=first, depend=[out(("x",))])(log.append)("gate")
        omp.task(first.fulfill)()
        omp.task(depend=[inout(("x",))])(second.fulfill)()
        omp.task(detach=second, depend=[inout(("x",))])(log.append)("open")
        omp.task(depend=[in_(("x",))])(log.append)("after")

    for _ in range(4):
        generate()
    assert log == ["gate", "open", "after"] * 4


def test_an_event_on_a_stream(runtime):
    """An event that is fulfilled on a stream is armed again; device work follows it, and host work."""
    log = []
    d, host = omp.target_alloc(8, "f8"), np.zeros(8)

    @omp.taskgraph
    def generate():
        event = omp.Event()

        @omp.task(detach=event, depend=[out(("d",))])
        def body():
            event.fulfill_on(omp.current_stream())

        body()
        omp.target_memcpy_async(d, host, depend=[inout(("d",))])
        omp.task(depend=[in_(("d",))])(log.append)("after")

    for _ in range(4):
        generate()
    assert log == ["after"] * 4
    omp.target_free(d)


def test_replays_in_flight_at_once():
    """With nogroup, replays without an event overlap."""
    started, go = threading.Semaphore(0), threading.Event()

    @omp.task
    def hold():
        started.release()
        wait_for(go)

    graph = omp.taskgraph(nogroup=True)(hold)
    with omp.Runtime("none", num_threads=3):
        for _ in range(3):
            graph()
        assert all(started.acquire(timeout=PATIENCE_S) for _ in range(3))
        go.set()
        omp.taskwait()


def test_a_replay_with_an_event_waits_for_the_one_before():
    """An event serves one replay at a time: the next one begins when the one before is complete."""
    log, opened = [], threading.Semaphore(0)
    event = omp.Event()

    @omp.taskgraph(nogroup=True)
    def generate():
        omp.task(detach=event, depend=[out(("x",))])(lambda: log.append("gate") or opened.release())()
        omp.task(depend=[in_(("x",))])(log.append)("after")

    def fulfill():
        for _ in range(3):
            assert opened.acquire(timeout=PATIENCE_S)
            log.append("fulfil")
            event.fulfill()

    thread = threading.Thread(target=fulfill)
    with omp.Runtime("none", num_threads=1):
        thread.start()
        for _ in range(3):
            generate()
        omp.taskwait()
    thread.join()
    assert [entry for entry in log if entry != "after"] == ["gate", "fulfil"] * 3
    assert log.count("after") == 3
    assert log[-1] == "after"


def test_a_graph_with_an_event_cannot_be_replayed_by_itself(host):
    """A task that replays the graph which it is part of, and which has an event, would wait for itself."""
    depth = []

    @omp.taskgraph(nogroup=True)
    def generate():
        event = omp.Event()
        omp.task(detach=event)(event.fulfill)()
        omp.task(again)()

    def again():
        if depth:
            with pytest.raises(omp.UsageError):
                generate()
            depth.append("refused")

    generate()
    omp.taskwait()
    depth.append("replayed")
    generate()
    omp.taskwait()
    assert depth == ["replayed", "refused"]


# -- groups ----------------------------------------------------------------------------------------


def test_nogroup_does_not_wait():
    """With nogroup a call returns before its tasks are complete, recorded or replayed; taskwait waits for them."""
    go, ran = threading.Event(), []

    @omp.taskgraph(nogroup=True)
    def generate():
        omp.task(lambda: wait_for(go) or ran.append(1))()

    with omp.Runtime("none", num_threads=1):
        generate()
        generate()
        assert not ran
        go.set()
        omp.taskwait()
        assert len(ran) == 2


def test_in_a_taskgroup(host):
    """Tasks of a call with nogroup belong to the taskgroup around it."""
    graph = Counted(nogroup=True)
    for n in range(1, 4):
        with omp.taskgroup():
            graph.call()
        assert graph.n == (1, n)


def test_in_a_task(host):
    """A task may record and replay; it waits for the tasks of its call."""
    graph = Counted()
    counts = []

    @omp.task
    def outer():
        graph.call()
        counts.append(graph.n_tasks)

    for _ in range(4):
        outer().result()
    assert counts == [1, 2, 3, 4]
    assert graph.n == (1, 4)


def test_in_a_final_task(host):
    """In a final task everything is run at once, so that the body is."""
    graph = Counted()
    graph.call()
    omp.task(final=True)(graph.call)().result()
    graph.call()
    assert graph.n == (2, 3)


def test_in_a_target_body_it_is_refused(sim):
    """A target body generates no tasks, by no construct."""
    with pytest.raises(omp.UsageError):
        omp.target(Counted().call)()


def test_in_a_recorded_region(host):
    """Inside of record() the body runs and its tasks are nodes; nothing is recorded besides."""
    graph = Counted()
    with omp.record() as seen:
        graph.call()
        graph.call()
    assert graph.n == (2, 2)
    assert [node.directive for node in seen.tasks] == ["task", "taskwait"] * 2
    graph.call()
    assert graph.n == (3, 3)
    with omp.record(execute=False) as seen:
        graph.call()
    assert graph.n == (4, 3)
    seen.compute("synchronous")
    assert graph.n == (4, 4)


def test_in_another_taskgraph(host):
    """The tasks of an inner call belong to the outer graph, and are replayed with it."""
    inner = Counted()

    @omp.taskgraph
    def outer():
        inner.call()
        omp.task(inner.count)()

    for _ in range(3):
        outer()
    assert inner.n == (1, 6)
    inner.call()
    assert inner.n == (2, 7)


def test_threads_at_once():
    """Of threads that make the first call at the same time one records, the others run the body; then all replay."""
    n_threads = 4
    meeting = threading.Barrier(n_threads, timeout=PATIENCE_S)
    lock, bodies, tasks = threading.Lock(), [], []

    @omp.taskgraph
    def generate():
        with lock:
            bodies.append(1)
        meeting.wait()
        for _ in range(20):
            omp.task(depend=[inout(("x",))])(tasks.append)(1)

    def work():
        generate()
        meeting.wait()
        for _ in range(4):
            generate()

    with omp.Runtime("none", num_threads=2):
        threads = [threading.Thread(target=work) for _ in range(n_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(bodies) == n_threads
    assert len(tasks) == n_threads * 5 * 20


# -- failures --------------------------------------------------------------------------------------


def test_a_body_that_raises_is_not_recorded(host):
    """The body's exception is raised as it is, after its tasks, and the next call runs the body again."""
    graph = Counted(lambda fails: 1 / 0 if fails[0] else None)
    fails = np.ones(1)
    with pytest.raises(ZeroDivisionError):
        graph.call(fails)
    assert graph.n == (1, 1)
    fails[0] = 0
    graph.call(fails)
    graph.call(fails)
    assert graph.n == (2, 3)


@pytest.mark.parametrize("nogroup", [False, True])
@pytest.mark.parametrize("is_seen", [False, True])
def test_a_recording_whose_task_fails_is_discarded(host, nogroup, is_seen):
    """A failure while recording is raised as ever, and the next call records anew."""
    fails, bodies = [True], []

    @omp.taskgraph(nogroup=nogroup)
    def generate():
        bodies.append(1)
        task = omp.task(lambda: 1 / 0 if fails[0] else None)()
        if is_seen:
            task.exception()

    if is_seen:
        generate()
    else:
        with pytest.raises(ExceptionGroup):
            generate()
            omp.taskwait()
    fails[0] = False
    for _ in range(2):
        generate()
    omp.taskwait()
    assert len(bodies) == 2


def test_a_failure_is_known_before_the_callbacks_of_its_task(monkeypatch):
    """A recording is discarded once a wait has told of the failure, however late the callbacks of its task come."""
    has_begun, begin, release, plain = *(threading.Event() for _ in range(3)), engine.run_callbacks
    bodies = []

    def late(task):
        release.wait(20)
        plain(task)

    def fail_at_first():
        has_begun.set()
        begin.wait(20)
        if len(bodies) == 1:
            raise ValueError

    @omp.taskgraph(nogroup=True)
    def generate():
        bodies.append(1)
        omp.task(fail_at_first)()

    monkeypatch.setattr(engine, "run_callbacks", late)
    with omp.Runtime("none", num_threads=1):
        try:
            generate()
            wait_for(has_begun)  # on the worker: who waits would run it, and its callbacks
            threading.Timer(0.01, begin.set).start()
            with pytest.raises(ExceptionGroup):
                omp.taskwait()
            generate()
            assert len(bodies) == 2
        finally:
            release.set()
        omp.taskwait()


def test_a_replay_that_fails(host):
    """A failure in a replay is in the group that the call raises; what depends on it does not run; the record stays."""
    fails, log = [False], []

    @omp.taskgraph
    def generate():
        def maybe():
            if fails[0]:
                raise ValueError("mine")

        omp.task(depend=[out(("x",))])(maybe)()
        omp.task(depend=[inout(("x",))])(log.append)("dependent")
        omp.task(log.append)("independent")
        omp.taskwait()
        omp.task(log.append)("after")

    generate()
    log.clear()
    fails[0] = True
    with pytest.raises(ExceptionGroup) as caught:
        generate()
    (error,) = caught.value.exceptions
    assert isinstance(error, ValueError)
    assert any("maybe" in note for note in error.__notes__)
    assert log == ["independent"]
    omp.taskwait()  # everybody has been told
    log.clear()
    fails[0] = False
    generate()
    assert sorted(log) == ["after", "dependent", "independent"]


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_failure_in_an_inner_group(host, is_nested):
    """What fails in a taskgroup of a replay, or under it, is raised by the call, and what follows does not run."""
    fails, log = [False], []

    def maybe():
        if fails[0]:
            raise ValueError("mine")

    @omp.taskgraph
    def generate():
        with omp.taskgroup():
            omp.task((lambda: omp.task(maybe)() and None) if is_nested else maybe)()
        omp.task(log.append)("after")

    generate()
    fails[0] = True
    with pytest.raises(ExceptionGroup) as caught:
        generate()
    assert [type(error) for error in caught.value.exceptions] == [ValueError]
    assert log == ["after"]
    omp.taskwait()


def test_a_failing_device_task(runtime):
    """A target whose body fails in a replay leaves nothing mapped, and its dependents do not run."""
    x, fails, log = np.ones(4), [False], []

    @omp.taskgraph
    def generate(x):
        def body(x):
            x += 1
            if fails[0]:
                raise ValueError("mine")

        omp.target(nowait=True, depend=[inout(x)])(body)(x)
        omp.task(depend=[in_(x)])(log.append)(1)

    generate(x)
    fails[0] = True
    with pytest.raises(ExceptionGroup):
        generate(x)
    assert (x == 2).all()
    assert log == [1]


def test_cancelling():
    """A task that cancels the group of its call discards those that have not begun, and the next replay is whole."""
    log, cancels = [], [False]

    @omp.taskgraph
    def generate():
        def first():
            log.append("first")
            if cancels[0]:
                omp.cancel("taskgroup")

        omp.task(depend=[out(("x",))])(first)()
        omp.task(depend=[in_(("x",))])(log.append)("second")

    with omp.Runtime("none", num_threads=1, env={"OMP_CANCELLATION": "true"}):
        generate()
        cancels[0] = True
        generate()
        cancels[0] = False
        generate()
        assert log == ["first", "second", "first", "first", "second"]
        left = []
        cancelled = omp.taskgraph(lambda: left.append(1) or omp.cancel("taskgroup"))
        cancelled()
        cancelled()
        assert left == [1, 1]  # a body that was left is not recorded


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "clauses", [{"graph_id": []}, {"depend": []}, {"nowait": True}, {"name": 1}, {"if": True}], ids=str
)
def test_wrong_clauses(clauses):
    """A clause that the construct has not, or a graph_id that cannot be hashed, is a ClauseError."""
    with pytest.raises(omp.ClauseError):
        omp.taskgraph(**clauses)(lambda: None)
    with pytest.raises(omp.ClauseError):
        omp.taskgraph(lambda: None).options(**clauses)


def test_bodies_that_are_refused():
    """An async def, a generator and what cannot be called are refused at once."""

    async def coroutine():
        pass

    def generator():
        yield

    for function in (coroutine, generator):
        with pytest.raises(omp.UnsupportedError):
            omp.taskgraph(function)
    with pytest.raises(omp.ClauseError):
        omp.taskgraph(3)


# -- size ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["chain", "independent", "waits", "devices"])
def test_long_records(shape):
    """Records of many tasks are compiled, replayed and let go without recursion."""
    n = 2_000 if shape == "devices" else 20_000
    count = np.zeros(1)

    @omp.task
    def add():
        count[0] += 1

    @omp.target(nowait=True, depend=[inout(count)])
    def add_there(count):
        count += 1

    @omp.taskgraph
    def generate():
        for number in range(n):
            if shape == "devices":
                add_there(count)
            else:
                add.options(depend=[inout(count)] if shape == "chain" else [])()
            if shape == "waits" and number % 4 == 3:
                omp.taskwait()

    with omp.Runtime("sim:1", num_threads=0, check=True):
        for turn in range(1, 4):
            generate()
            assert count[0] == turn * n


def test_under_a_seed():
    """Whatever the order of ready tasks, a replay's result is the recording's."""
    for seed in range(20):
        x, y = np.ones(4), np.zeros(4)

        @omp.taskgraph
        def generate(x, y):
            omp.target(nowait=True, depend=[inout(x)])(lambda x: x.__imul__(3) is None)(x)
            omp.task(depend=[inout(x)])(lambda x: x.__isub__(1) is None)(x)
            omp.target(nowait=True, depend=[in_(x), inout(y)])(lambda x, y: y.__iadd__(x) is None)(x, y)
            omp.task(depend=[inout(y)])(lambda y: y.__imul__(2) is None)(y)

        want_x, want_y = 1, 0
        with checked("sim:2", num_threads=2, seed=seed):
            for _ in range(4):
                generate(x, y)
                want_x = want_x * 3 - 1
                want_y = (want_y + want_x) * 2
                assert (x == want_x).all()
                assert (y == want_y).all()


class Region:
    """A random region over a few arrays, for tasks and serially: each step mixes one array into another one."""

    def __init__(self, seed, n_arrays=4, n_steps=40):
        rng = random.Random(seed)
        self.arrays = [np.arange(4.0) + number for number in range(n_arrays)]
        self.serial = [array.copy() for array in self.arrays]
        kinds = ["task", "task", "task", "target", "undeferred", "named", "detached", "nested", "wait", "begin", "end"]
        self.steps = [(rng.choice(kinds), *rng.sample(range(n_arrays), 2), rng.randrange(7)) for _ in range(n_steps)]
        self.events = [omp.Event() for _ in self.steps]

    @staticmethod
    def mix(x, y, value):
        y *= 3
        y += x + value
        y %= 1009

    def run_serially(self):
        for kind, source, target, value in self.steps:
            if kind not in ("wait", "begin", "end"):
                self.mix(self.serial[source], self.serial[target], value)

    def generate(self):
        with contextlib.ExitStack() as groups:
            for number, (kind, source, target, value) in enumerate(self.steps):
                if kind == "wait":
                    omp.taskwait()
                elif kind == "begin":
                    groups.enter_context(omp.taskgroup())
                elif kind == "end":
                    groups.pop_all().close()
                else:
                    self.step(kind, self.arrays[source], self.arrays[target], value, self.events[number])

    def step(self, kind, x, y, value, event):
        clauses = {"depend": [in_(x), inout(y)]}
        if kind == "target":
            omp.target(nowait=True, map=[to("x"), tofrom("y")], **clauses)(lambda x, y: self.mix(x, y, value))(x, y)
        elif kind == "nested":
            omp.task(**clauses)(lambda: omp.task(if_=False)(self.mix)(x, y, value) and None)()
        elif kind == "detached":
            omp.task(detach=event, **clauses)(self.mix)(x, y, value)
            omp.task(event.fulfill)()
        else:
            extra = {"undeferred": {"if_": False}, "named": {"name": "n"}}.get(kind, {})
            omp.task(**clauses, **extra)(self.mix)(x, y, value)


@pytest.mark.parametrize("seed", range(24))
def test_random_regions(seed):
    """Whatever a region is made of, and in whatever order tasks run, a replay computes what a serial run does."""
    region = Region(seed)
    replayed = omp.taskgraph(region.generate)
    with checked("sim:1", num_threads=seed % 4, seed=seed if seed % 2 else None):
        for _ in range(5):
            replayed()
            region.run_serially()
            assert all((a == b).all() for a, b in zip(region.arrays, region.serial, strict=True))


def test_objects_with_a_mapper_are_known_by_their_arrays(sim):
    """An object whose mapper gives another array than when it was recorded records anew."""

    class Holder:
        x = None

    omp.declare_mapper(Holder, lambda holder: [omp.tofrom(holder.x)])
    bodies = []

    @omp.taskgraph
    def graph(holder):
        bodies.append(1)
        omp.target(nowait=True)(lambda inner: inner.x.__iadd__(1) is None)(holder)

    holder = Holder()
    first, second = np.zeros(3), np.zeros(3)
    for array in (first, second, first, second):
        holder.x = array
        graph(holder)
    assert (first == 2).all()
    assert (second == 2).all()
    assert len(bodies) == 2


def test_what_has_a_finalizer_is_not_copied(runtime):
    """An object whose class has a finalizer is the body's own: a copy would run that as well."""
    ended = []

    @dataclasses.dataclass
    class Ends:
        number: int

        def __del__(self):
            ended.append(self.number)

    seen = []
    region = omp.taskgraph(seen.append)
    one = Ends(1)
    region(one)
    assert seen == [one]
    assert seen[0] is one
    gc.collect()
    assert not ended


def test_a_change_that_equality_does_not_see(runtime):
    """A change to the body's copy is an error also where ``==`` does not look at it."""

    @dataclasses.dataclass
    class Logs:
        name: str
        lines: list = dataclasses.field(default_factory=list, compare=False)

    class Steps:
        def __init__(self, name):
            self.name, self.n = name, 0

        def __eq__(self, other):
            return self.name == other.name

        __hash__ = None

    with pytest.raises(omp.UsageError, match="was changed by the body"):
        omp.taskgraph(lambda log: log.lines.append(1))(Logs("a"))
    with pytest.raises(omp.UsageError, match="was changed by the body"):
        omp.taskgraph(lambda steps: setattr(steps, "n", 1))(Steps("a"))
