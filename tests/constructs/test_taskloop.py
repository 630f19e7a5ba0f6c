"""`taskloop`: how a range is split, what the body receives, and what waits for what."""

from __future__ import annotations

import collections
import threading
from concurrent.futures import CancelledError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offload as omp
from offload.constructs.clauses import operators
from offload.constructs.taskloop import part_sizes
from tests.conftest import checked

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(params=[(0, None), (1, None), (4, None), (4, 7)], ids=["alone", "one", "four", "seeded"])
def workers(request):
    """A current runtime with no worker, one, four, and four with ready tasks in a seeded order."""
    num_threads, seed = request.param
    with checked("none", num_threads=num_threads, seed=seed) as runtime:
        yield runtime


@pytest.fixture
def alone():
    """A current runtime without workers: tasks run where somebody waits, the oldest first."""
    with checked("none", num_threads=0) as runtime:
        yield runtime


@pytest.fixture
def cancelling():
    with checked("none", num_threads=0, env={"OMP_CANCELLATION": "true"}) as runtime:
        yield runtime


def parts_of(iterable, **clauses):
    """The parts that the bodies receive, in order."""
    found = []
    omp.taskloop(iterable, found.append, nogroup=True, **clauses)
    omp.taskwait()
    return found


def sizes(n, **clauses):
    return [len(part) for part in parts_of(range(n), **clauses)]


# -- splitting -------------------------------------------------------------------------------------
@given(
    n=st.integers(0, 300),
    grainsize=st.none() | st.integers(1, 40),
    num_tasks=st.none() | st.integers(1, 400),
    is_strict=st.booleans(),
    n_threads=st.integers(1, 9),
)
def test_sizes(n, grainsize, num_tasks, is_strict, n_threads):
    """The sizes add up, none is 0, and each rule of grainsize and num_tasks holds."""
    if grainsize is not None and num_tasks is not None:
        num_tasks = None
    found = part_sizes(n, grainsize=grainsize, num_tasks=num_tasks, is_strict=is_strict, n_threads=n_threads)
    assert sum(found) == n
    assert all(size > 0 for size in found)
    if grainsize is not None and is_strict:
        assert all(size == grainsize for size in found[:-1])
        assert all(size <= grainsize for size in found)
    elif grainsize is not None:
        assert all(min(grainsize, n) <= size < 2 * grainsize for size in found)
    else:
        assert len(found) == min(n, num_tasks or 4 * n_threads)
        assert max(found, default=0) - min(found, default=0) <= 1
        assert found == sorted(found, reverse=True)


@given(data=st.data(), begin=st.integers(-20, 20), n=st.integers(0, 60), step=st.sampled_from([1, 2, 7, -1, -3]))
def test_parts_cover_the_range_once(data, begin, n, step):
    """Whatever the clauses, the parts of a range are ranges which in order are the whole."""
    whole = range(begin, begin + n * step, step)
    how = data.draw(st.sampled_from(["grainsize", "num_tasks", "neither"]))
    clauses = {} if how == "neither" else {how: data.draw(st.integers(1, 70)), "strict": data.draw(st.booleans())}
    with omp.Runtime("none", num_threads=0):
        parts = parts_of(whole, **clauses)
    assert all(type(part) is range and len(part) for part in parts)
    assert [value for part in parts for value in part] == list(whole)


def test_examples_of_sizes(alone):
    """What the clauses say, in numbers."""
    assert sizes(10, grainsize=4) == [5, 5]
    assert sizes(10, grainsize=4, strict=True) == [4, 4, 2]
    assert sizes(10, grainsize=40) == sizes(10, grainsize=40, strict=True) == [10]
    assert sizes(10, num_tasks=4) == sizes(10, num_tasks=4, strict=True) == [3, 3, 2, 2]
    assert sizes(3, num_tasks=np.int64(8)) == [1, 1, 1]
    assert sizes(0) == sizes(0, grainsize=3) == sizes(0, num_tasks=3) == []


@pytest.mark.parametrize("num_threads", [0, 1, 4])
def test_without_a_clause_the_workers_decide(num_threads):
    """Four tasks for each worker and the calling thread."""
    with checked("none", num_threads=num_threads):
        assert len(parts_of(range(1000))) == 4 * (num_threads + 1)


def test_sequences_arrays_and_iterables(alone):
    """Sequences are sliced, arrays along their first axis as views, other iterables become lists."""
    a = np.arange(12).reshape(6, 2)
    parts = parts_of(a, num_tasks=3)
    assert [part.shape for part in parts] == [(2, 2)] * 3
    assert all(part.base is a.base for part in parts)
    assert parts_of([1, 2, 3], num_tasks=2) == [[1, 2], [3]]
    assert parts_of((1, 2, 3), num_tasks=2) == [(1, 2), (3,)]
    assert parts_of("abc", num_tasks=2) == ["ab", "c"]
    assert parts_of((i * i for i in range(3)), num_tasks=2) == [[0, 1], [4]]
    assert parts_of({"x": 1, "y": 2}, num_tasks=1) == [["x", "y"]]
    assert parts_of(collections.deque("abc"), num_tasks=2) == [["a", "b"], ["c"]]
    assert parts_of(collections.defaultdict(int), num_tasks=2) == []


def test_a_body_may_write_to_its_part_of_an_array(workers):
    """A part of an array is a view."""
    a = np.zeros(100)
    omp.taskloop(a, lambda part: part.fill(1), grainsize=7)
    assert (a == 1).all()


# -- forms -----------------------------------------------------------------------------------------
def test_the_call_returns_when_all_is_done(workers):
    """`taskloop(range, body)` runs it, descendants included, and returns None."""
    done = []

    def body(part):
        for i in part:
            omp.task(done.append)(i)

    assert omp.taskloop(range(100), body, grainsize=3) is None
    assert sorted(done) == list(range(100))


def test_a_decorator_with_a_range_runs_the_body_below(workers):
    """`@taskloop(range)` is encountered where it stands; the name is bound to what it returns."""
    done = []

    @omp.taskloop(range(20), num_tasks=3)
    def loop(part):
        done.extend(part)

    assert loop is None
    assert sorted(done) == list(range(20))

    @omp.taskloop(range(20), num_tasks=3, nogroup=True)
    def tasks(part):
        return sum(part)

    assert sum(task.result() for task in tasks) == sum(range(20))


def test_a_decorator_without_a_range_makes_a_function(workers):
    """`@taskloop`, bare or with clauses, makes a function of a range, which passes its other arguments on."""

    @omp.taskloop
    def scale(part, x, factor=1, *, offset=0):
        x[part.start : part.stop] = x[part.start : part.stop] * factor + offset

    @omp.taskloop(grainsize=4)
    def fill(part, x):
        x[part.start : part.stop] = 1

    x = np.zeros(30)
    assert fill(range(30), x) is None
    scale(range(30), x, 3, offset=2)
    assert (x == 5).all()
    assert (scale.__name__, repr(scale)) == ("scale", "<taskloop function scale>")


def test_options_replace_clauses(alone):
    """`.options` returns a copy with clauses replaced; None leaves one out; contradictions are refused."""
    found = []
    loop = omp.taskloop(grainsize=4)(found.append)
    loop.options(grainsize=None, num_tasks=2)(range(10))
    loop.options(strict=True)(range(10))
    loop(range(10))
    assert [len(part) for part in found] == [5, 5, 4, 4, 2, 5, 5]
    with pytest.raises(omp.ClauseError):
        loop.options(num_tasks=3)
    with pytest.raises(omp.ClauseError):
        loop.options(depend=[omp.in_(("x",))])


def test_methods_are_bodies(workers):
    """A bound method is a body, and a method can be decorated."""

    class Sum:
        def __init__(self):
            self.parts = []

        def add(self, part):
            self.parts.append(sum(part))

        @omp.taskloop(grainsize=3, reduction={"+": ["total"]})
        def reduce(self, part, total):
            total += sum(part)

    found = Sum()
    omp.taskloop(range(10), found.add)
    assert sum(found.parts) == 45
    total = np.zeros(())
    found.reduce(range(10), total)
    assert total == 45


def test_nogroup_returns_the_tasks(workers):
    """With nogroup nothing waits: the list of the tasks comes back, in the order of the range."""
    gate = threading.Event()

    def body(part):
        gate.wait()
        return list(part)

    if workers.engine.threads:
        tasks = omp.taskloop(range(10), body, num_tasks=3, nogroup=True)
        assert not any(task.done() for task in tasks)
    gate.set()
    tasks = omp.taskloop(range(10), body, num_tasks=3, nogroup=True)
    assert [i for task in tasks for i in task.result()] == list(range(10))
    assert omp.taskloop(range(0), body, nogroup=True) == []


def test_a_group_around_waits_for_a_loop_with_nogroup(workers):
    """The tasks of a loop with nogroup belong to the taskgroup around it."""
    done = []
    with omp.taskgroup():
        omp.taskloop(range(50), done.extend, nogroup=True)
    assert sorted(done) == list(range(50))


def test_tasks_are_named(alone):
    """Tasks have the name of the body or the one given, and their directive is taskloop."""
    seen = []

    def body(part):
        seen.append(omp.current_task())

    omp.taskloop(range(2), body, num_tasks=1)
    omp.taskloop(range(2), body, num_tasks=1, name="mine")
    assert [task.name for task in seen] == ["body", "mine"]
    assert "taskloop" in repr(seen[0])


def test_priority():
    """Tasks of a loop with a higher priority begin first."""
    order = []
    with checked("none", num_threads=0, env={"OMP_MAX_TASK_PRIORITY": "5"}):
        omp.taskloop(range(2), lambda part: order.append("low"), nogroup=True)
        omp.taskloop(range(2), lambda part: order.append("high"), nogroup=True, priority=5)
        omp.taskwait()
    assert order == ["high", "high", "low", "low"]


@pytest.mark.parametrize("clauses", [{"if_": False}, {"final": True}])
def test_undeferred_and_final(workers, clauses):
    """With if_=False and with final=True each task has run, in order on this thread, before the next is generated."""
    seen = []

    def body(part):
        seen.append((part.start, threading.current_thread(), omp.in_final()))

    tasks = omp.taskloop(range(6), body, grainsize=1, nogroup=True, **clauses)
    assert all(task.done() for task in tasks)
    assert [start for start, _, _ in seen] == list(range(6))
    assert {thread for _, thread, _ in seen} == {threading.current_thread()}
    assert {is_final for _, _, is_final in seen} == {"final" in clauses}


def test_in_a_task_and_in_a_loop(workers):
    """Loops nest, and tasks have loops."""
    done = []

    @omp.task
    def outer():
        omp.taskloop(range(4), lambda rows: [omp.taskloop(range(5), done.extend) for _ in rows])
        return len(done)

    assert outer().result() == 20
    omp.task(final=True)(lambda: omp.taskloop(range(5), done.extend))()
    omp.taskwait()
    assert len(done) == 25


def test_target_functions_are_bodies():
    """A target function is a body like any: a region for each part of an array."""
    with checked("sim:1", num_threads=2):
        a = np.zeros(40)

        @omp.target
        def fill(part):
            assert not omp.is_initial_device()
            part += 1

        omp.taskloop(a, fill, num_tasks=4)
    assert (a == 1).all()


# -- failures and cancelling -----------------------------------------------------------------------
def test_failures(workers):
    """The loop ends when all tasks have, and raises a group of what failed."""
    done = []

    def body(part):
        done.append(part)
        if part.start in (2, 5):
            raise ValueError(part.start)

    with pytest.raises(ExceptionGroup) as caught:
        omp.taskloop(range(8), body, grainsize=1)
    assert sorted(error.args[0] for error in caught.value.exceptions) == [2, 5]
    assert len(done) == 8
    omp.taskwait()  # nobody hears of them twice


@pytest.mark.parametrize("clauses", [{"if_": False}, {"final": True}])
def test_undeferred_failures(workers, clauses):
    """An undeferred task raises its own exception at once, and no further one is generated."""
    done = []

    def body(part):
        done.append(part.start)
        if part.start == 2:
            raise ValueError

    with pytest.raises(ValueError):
        omp.taskloop(range(8), body, grainsize=1, **clauses)
    assert done == [0, 1, 2]


@pytest.mark.parametrize("clauses", [{}, {"if_": False}, {"final": True}, {"reduction": {"+": [np.zeros(())]}}])
def test_cancel_in_a_body_ends_the_loop(cancelling, clauses):
    """`cancel("taskgroup")` discards the rest of the loop, which returns as usual; a group around it goes on."""
    done = []

    def body(part, *_):
        done.append(part.start)
        if part.start == 3:
            omp.cancel("taskgroup")
        done.append(part.start)

    with omp.taskgroup():
        assert omp.taskloop(range(8), body, grainsize=1, **clauses) is None
        omp.task(done.append)("after")
    assert done == [0, 0, 1, 1, 2, 2, 3, "after"]


@pytest.mark.parametrize("if_", [True, False])
def test_a_cancelled_group_around_a_loop_with_nogroup(cancelling, if_):
    """Tasks of a loop with nogroup in a cancelled group are discarded; undeferred ones are not generated."""
    tasks = []
    with omp.taskgroup():
        omp.task(lambda: omp.cancel("taskgroup"))().result()
        tasks += omp.taskloop(range(3), print, grainsize=1, nogroup=True, if_=if_)
    assert len(tasks) == (3 if if_ else 0)
    for task in tasks:
        with pytest.raises(CancelledError):
            task.result()


# -- reductions ------------------------------------------------------------------------------------
def test_a_body_receives_private_arrays_after_its_part(workers):
    """A body with parameters for them receives a private array for each list item, in their order."""
    total, largest = np.zeros((2, 2)), np.array(-1)

    def body(part, total_, largest_):
        assert total_ is not total
        total_ += sum(part)
        largest_[...] = max(largest_, *part)

    for n in (100, 50):
        omp.taskloop(range(n), body, grainsize=3, reduction={"+": [total], "max": [largest]})
    assert (total == sum(range(100)) + sum(range(50))).all()
    assert largest == 99


def test_a_body_with_any_number_of_parameters_receives_them(workers):
    """`*totals` takes them too."""
    a, b = np.zeros(()), np.zeros(())

    def body(part, *totals):
        totals[0][...] += sum(part)
        totals[1][...] += 2 * sum(part)

    omp.taskloop(range(10), body, reduction={"+": [a, b]})
    assert (a, b) == (45, 90)


def test_a_body_that_takes_the_part_only_works_on_the_items(workers):
    """Without a parameter the body uses the item by its own name; its tasks exclude each other."""
    total = np.zeros(3)
    inside = []

    def body(part, total=total, scale=1):  # a default is no parameter for an item
        inside.append(1)
        assert len(inside) == 1
        before = total.copy()
        total[...] = before + scale * sum(part)
        inside.pop()

    omp.taskloop(range(100), body, grainsize=2, reduction={"+": [total]})
    assert (total == sum(range(100))).all()


def test_a_builtin_takes_the_part_only(alone):
    """A builtin that does not say what it takes is given the part."""
    total, rows = np.zeros(3), {}
    omp.taskloop([("a", 1), ("b", 2)], rows.update, num_tasks=2, reduction={"+": [total]})
    assert rows == {"a": 1, "b": 2}


def test_an_item_that_is_passed_is_replaced(workers):
    """Items among the arguments of the call are private arrays there, strings name them, and others are passed on."""
    total, weights, count = np.zeros(()), np.arange(10.0), np.zeros(4)

    @omp.taskloop(reduction={"+": ["total", "count[1:1]"]}, num_tasks=4)
    def dot(part, total, w, *, count):
        assert w is weights
        assert total is not globals().get("total")
        assert count.shape == (1,)
        total += sum(w[part.start : part.stop])
        count += 1

    dot(range(10), total, weights, count=count)
    assert total == 45
    assert count.tolist() == [0, 4, 0, 0]


def test_some_items_are_passed_and_the_others_follow(workers):
    """Items that are not among the arguments follow them."""
    total, product = np.zeros(()), np.ones(())

    @omp.taskloop(reduction={"*": [product], "+": [total]})
    def body(part, total, product):
        for i in part:
            total += i
            product *= i

    body(range(1, 6), total)
    assert (total, product) == (15, 120)


def test_declared_operators(workers, monkeypatch):
    """A name given to declare_reduction is an operator of a loop too."""
    monkeypatch.setattr(operators, "_declared", {})
    omp.declare_reduction("gcd", np.gcd)
    item = np.array(0)

    def body(part, result):
        for value in part:
            result[...] = np.gcd(result, value)

    omp.taskloop([24, 36, 60], body, num_tasks=3, reduction={"gcd": [item]})
    assert item == 12


def test_an_inner_loop_reduces_into_the_private_array(workers):
    """A loop in a body reduces over what the body received."""
    total = np.zeros(())

    def rows(part, total):
        for _ in part:
            omp.taskloop(
                range(10), lambda columns, total: total.__iadd__(sum(columns)) is None, reduction={"+": [total]}
            )

    omp.taskloop(range(6), rows, num_tasks=3, reduction={"+": [total]})
    assert total == 6 * 45


def test_a_loop_that_fails_leaves_the_items(workers):
    """Where a task fails, the items are what they were."""
    total = np.array(2.0)

    def body(part, total):
        total += 1
        if part.start == 3:
            raise ValueError

    with pytest.raises(ExceptionGroup):
        omp.taskloop(range(8), body, grainsize=1, reduction={"+": [total]})
    with pytest.raises(ValueError):
        omp.taskloop(range(8), body, grainsize=1, reduction={"+": [total]}, if_=False)
    assert total == 2


def test_several_producers(workers):
    """Loops of several threads do not meet."""
    totals = [np.zeros(()) for _ in range(4)]
    errors = []

    def produce(total):
        try:
            for _ in range(10):
                omp.taskloop(range(40), lambda part, x: x.__iadd__(sum(part)) is None, reduction={"+": [total]})
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=produce, args=(total,)) for total in totals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert [float(total) for total in totals] == [10 * sum(range(40))] * 4


# -- graphs ----------------------------------------------------------------------------------------
def test_a_recorded_loop_has_a_node_for_each_task(workers):
    """A loop is as many nodes as tasks, and the wait at its end; computing the graph runs it again."""
    total = np.zeros(())

    def body(part, total):
        total += sum(part)

    with omp.record() as graph:
        omp.taskloop(range(10), body, num_tasks=3, reduction={"+": [total]})
        omp.task(lambda: None)()
    assert total == 45
    assert [node.directive for node in graph.tasks] == ["taskloop"] * 3 + ["taskwait", "task"]
    assert all(__file__ in node.location for node in graph.tasks)
    assert {(edge.source.index, edge.target.index) for edge in graph.edges} == {(0, 3), (1, 3), (2, 3), (3, 4)}
    graph.compute()
    assert total == 90


def test_a_loop_that_is_only_recorded(workers):
    """Without execution, nothing runs before the graph is computed; then bodies that share an item take turns."""
    total = np.zeros(())

    def body(part):
        total[...] += sum(part)

    with omp.record(execute=False) as graph:
        assert omp.taskloop(range(10), body, num_tasks=3, reduction={"+": [total]}) is None
        assert len(omp.taskloop(range(4), body, num_tasks=2, nogroup=True)) == 2
    assert total == 0
    graph.compute()
    assert total == 45 + 6


def test_a_replayed_loop_reduces_again(workers):
    """A loop in a taskgraph adds to the item at each call, of which only the first runs the region's own lines."""
    total, again = np.zeros(()), np.zeros(())
    runs = []

    def body(part, total):
        total += sum(part)

    @omp.taskgraph
    def region(total, again):
        runs.append(1)
        omp.taskloop(range(10), body, num_tasks=3, reduction={"+": [total]})
        omp.task(lambda: again.__iadd__(total) is None)()  # after the loop

    for _ in range(3):
        region(total, again)
    assert len(runs) == 1
    assert total == 3 * 45
    assert again == (1 + 2 + 3) * 45


# -- what is refused -------------------------------------------------------------------------------
TOTAL = np.zeros(())


@pytest.mark.parametrize(
    "clauses",
    [
        {"grainsize": 0},
        {"grainsize": -1},
        {"grainsize": 2.0},
        {"grainsize": True},
        {"grainsize": "4"},
        {"num_tasks": 0},
        {"num_tasks": 1.5},
        {"num_tasks": np.float64(3)},
        {"grainsize": 2, "num_tasks": 2},
        {"strict": True},
        {"priority": -1},
        {"name": 3},
        {"nogroup": True, "reduction": {"+": [TOTAL]}},
        {"reduction": [TOTAL]},
        {"reduction": {"plus": [TOTAL]}},
        {"reduction": {"+": [0]}},
        {"collapse": 2},
        {"depend": [omp.in_(TOTAL)]},
        {"detach": omp.Event()},
    ],
    ids=str,
)
def test_clauses_that_are_refused(clauses):
    """Wrong values, clauses that contradict each other and those that the construct has not are errors at once."""
    with pytest.raises(omp.ClauseError):
        omp.taskloop(range(3), print, **clauses)
    with pytest.raises(omp.ClauseError):
        omp.taskloop(**clauses)(print)


@pytest.mark.parametrize("thing", [3, None, np.zeros(()), ..., 1.5], ids=repr)
def test_what_cannot_be_iterated_over(alone, thing):
    """A number is not a range."""
    with pytest.raises(omp.ClauseError):
        omp.taskloop(thing, print)


@pytest.mark.parametrize("body", [3, "body", [print]])
def test_a_body_is_a_function(alone, body):
    """Something that cannot be called is no body."""
    with pytest.raises(omp.ClauseError):
        omp.taskloop(range(3), body)


def test_there_has_to_be_a_range(alone):
    """A body without a range runs nothing."""
    with pytest.raises(omp.ClauseError):
        omp.taskloop(body=print)


def test_bodies_that_run_nothing_are_refused(alone):
    """The call of a generator or of an async def runs nothing."""

    def generator(part):
        yield part

    async def asynchronous(part):
        pass

    for body in (generator, asynchronous):
        with pytest.raises(omp.UnsupportedError):
            omp.taskloop(range(3), body)


def test_a_body_takes_the_part_or_the_part_and_all_items(alone):
    """With two items, a body with one parameter more than the part is an error at the call."""
    ran = []
    with pytest.raises(omp.ClauseError):
        omp.taskloop(range(3), lambda part, a: ran.append(part), reduction={"+": [np.zeros(2), np.zeros(3)]})
    assert ran == []


def test_items_that_cannot_be_reduced(alone):
    """Items are checked at the call: overlapping ones, and strings that name nothing."""
    a = np.zeros(4)
    with pytest.raises(omp.ClauseError):
        omp.taskloop(range(3), print, reduction={"+": [a, a[1:]]})
    loop = omp.taskloop(reduction={"+": ["total"]})(lambda part, total: None)
    with pytest.raises(omp.ClauseError):
        loop(range(3))
    with pytest.raises(omp.ClauseError):
        loop(range(3), 5)
    with pytest.raises(omp.ClauseError):
        loop.options(reduction={"+": ["nowhere"]})(range(3), a)


def test_in_a_target_body():
    """A target body only enqueues device work."""
    with checked("sim:1"), pytest.raises(omp.UsageError):
        omp.target(lambda: omp.taskloop(range(3), print))()
