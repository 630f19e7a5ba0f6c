"""`target_loop` and `parallel_loop`: calls, mapping, deferring, results, errors, bodies, graphs (OpenMP 5.2, 11.7)."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import from_, in_, inout, out, to, tofrom

N = 1000


@omp.target_loop
def saxpy(a, x, y):
    for i in range(y.size):
        y[i] += a * x[i]


@omp.target_loop(collapse=2)
def sweep(a, b):
    """Five points."""
    w = 0.25
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = w * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])


@omp.target_loop(collapse=2, reduction={"max": ["d"]})
def distance(a, b):
    d = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            d = max(d, abs(a[i, j] - b[i, j]))
    return d


@omp.target_loop(reduction={"+": ["s"], "max": ["m"]})
def totals(x):
    s = 0
    m = -1
    for i in range(x.size):
        s += x[i]
        m = max(m, i)
    return s, m


@omp.target_loop
def scatter(p, x, y):
    for i in range(p.size):
        y[p[i]] = x[i]


@omp.target_loop
def double(x, y):
    for i in range(x.size):
        y[i] = 2 * x[i]


@omp.target_loop
def shift(x, y):
    for i in range(x.size):
        y[i] = x[i + 1]


@omp.target_loop
def divide(x, y):
    for i in range(x.size):
        x[i] = x[i] // y[i]


@omp.target_loop(reduction={"+": ["total"]})
def add_up(x, total):
    for i in range(x.size):
        total += x[i]


def five_points(a, b):
    b[1:-1, 1:-1] = 0.25 * (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:])


# -- calls -------------------------------------------------------------------------------------------------


def test_call_runs_the_loop_on_the_device_and_copies_back(runtime):
    """A call maps its arrays, runs every iteration, and leaves the result on the host."""
    x, y = np.arange(N, dtype="f8"), np.ones(N)
    assert saxpy(2.0, x, y) is None
    assert (y == 1 + 2 * x).all()


def test_present_data_stays_on_the_device(runtime):
    """Arrays that are mapped around the calls are not copied by them; the end of the region copies back."""
    a = np.random.default_rng(1).random((40, 50))
    b, host = a.copy(), (a.copy(), a.copy())
    with omp.target_data(map=[tofrom(a), tofrom(b)]):
        before = a.copy()
        for _ in range(3):
            sweep(a, b)
            sweep(b, a)
        assert (a == before).all()
        found = distance(a, b)
    for _ in range(3):
        five_points(*host)
        five_points(*host[::-1])
    assert (a == host[0]).all()
    assert found == abs(host[0] - host[1]).max()


def test_views_are_mapped_packed(runtime):
    """Non-contiguous views are mapped, and what lies between their elements is untouched."""
    a, y = np.arange(4.0 * N), np.zeros((N, 2))
    double(a[::-4], y[:, 1])
    assert (y[:, 1] == 2 * a[::-4]).all()
    assert not y[:, 0].any()


def test_methods_keywords_and_defaults(runtime):
    """Arguments are given by position, by keyword or by default; a default of None is folded."""

    @omp.target_loop
    def scale(y, x=None, factor=3):
        for i in range(y.size):
            if x is None:
                y[i] = factor
            else:
                y[i] = factor * x[i]

    y = np.zeros(N)
    scale(y)
    assert (y == 3).all()
    scale(factor=2.0, y=y, x=np.arange(N))
    assert (y == 2 * np.arange(N)).all()


def test_scalars_of_the_module_are_frozen_anew(runtime):
    """A call uses the value that a closure's scalar has then."""
    factor = 2

    @omp.target_loop
    def scale(y):
        for i in range(y.size):
            y[i] = factor

    y = np.zeros(N)
    scale(y)
    assert (y == 2).all()
    factor = 5.5
    scale(y)
    assert (y == 5.5).all()


def test_if_false_and_the_initial_device_run_on_the_host(runtime):
    """With `if_=False`, or the host's number, the host's arrays are used and nothing is mapped."""
    x = np.arange(N)
    for clauses in ({"if_": False}, {"device": omp.initial_device}):
        y = np.zeros(N, int)
        with omp.target_data(map=[to(y)]):
            double.options(**clauses)(x, y)
            assert (y == 2 * x).all()


def test_second_device(runtime):
    """`device=` names the device that runs the loop."""
    last = omp.get_num_devices() - 1
    x, y = np.arange(N), np.zeros(N, int)
    with omp.target_data(map=[from_(y)], device=last):
        double.options(device=last)(x, y)
        assert not y.any()
    assert (y == 2 * x).all()


# -- results -----------------------------------------------------------------------------------------------


def test_results_are_numpy_scalars_or_python_numbers(runtime):
    """A strong result is a NumPy scalar, a weak one a number of Python's; several are a tuple."""
    s, m = totals(np.arange(N, dtype=np.int32))
    assert (type(s), s) == (np.int32, N * (N - 1) // 2)
    assert (type(m), m) == (int, N - 1)


def test_reductions_begin_with_the_value_before_the_loop(runtime):
    """A parameter of one element is combined in place, with what it holds."""
    total = np.array(10.0)
    add_up(np.ones(N), total)
    assert total == N + 10


def test_lastprivate_returns_the_last_iteration(runtime):
    """The value of the sequentially last iteration is returned."""

    @omp.target_loop(lastprivate=["t"])
    def last(x):
        for i in range(x.size):
            t = 3 * x[i]
        return t

    assert last(np.arange(N)) == 3 * (N - 1)


def test_lastprivate_of_an_empty_loop_is_as_before(runtime):
    """Without an iteration the value before the loop is returned, as by Python; one that there is not is an error."""

    @omp.target_loop(lastprivate=["t"])
    def last(x, t=7):
        for i in range(x.size):
            t = x[i]
        return t

    @omp.target_loop(lastprivate=["t"])
    def none(x):
        for i in range(x.size):
            t = x[i]
        return t

    assert last(np.arange(0)) == 7
    with pytest.raises(UnboundLocalError):
        none(np.arange(0))


def test_an_empty_loop_leaves_what_was_there(runtime):
    """A loop without iterations returns the reductions' values before it, and changes nothing."""
    empty = np.zeros(0)
    assert totals(empty) == (0, -1)
    saxpy(1.0, empty, empty.copy())

    @omp.target_loop(lastprivate=["t"])
    def last(x):
        t = 5
        for i in range(x.size):
            t = i
        return t

    assert last(empty) == 5


# -- deferring ---------------------------------------------------------------------------------------------


def test_nowait_returns_a_task_whose_result_is_the_loops(runtime):
    """With `nowait` the call returns a task, and its result is what the function returns."""
    task = totals.options(nowait=True)(np.arange(N))
    assert isinstance(task, omp.Task)
    assert task.result() == (N * (N - 1) // 2, N - 1)


def test_dependences_order_loops(runtime):
    """Deferred loops on the same arrays run in the order of their dependences."""
    x, y, z = np.arange(N, dtype="f8"), np.zeros(N), np.zeros(N)
    with omp.target_data(map=[to(x), tofrom(y), tofrom(z)]):
        double.options(nowait=True, depend=[in_(x), out(y)])(x, y)
        double.options(nowait=True, depend=[in_(y), out(z)])(y, z)
        saxpy.options(nowait=True, depend=[in_("x"), inout("y")])(1.0, z, y)
        omp.taskwait()
    assert (y == 6 * x).all()


def test_a_task_as_argument_is_followed(runtime):
    """A task that is passed gives its value when it is complete."""
    x, y = np.arange(N), np.zeros(N)
    task = omp.task(lambda: 2.0)()
    saxpy(task, x, y)
    assert (y == 2 * x).all()


# -- mapping -----------------------------------------------------------------------------------------------


def maps_of(loop, *args):
    """Return what a call maps its arrays as."""
    return {name: found["map"] for name, found in loop.explain(*args).to_dict()["arrays"].items()}


def test_maps_follow_from_the_body(runtime):
    """What is only read is `to`, what is wholly written `from`, the rest `tofrom`."""
    x = np.arange(N)
    assert maps_of(double, x, x.copy()) == {"x": "to", "y": "from"}
    assert maps_of(double, x, np.zeros(2 * N, int)) == {"x": "to", "y": "tofrom"}
    assert maps_of(saxpy, 1, x, x.copy()) == {"x": "to", "y": "tofrom"}
    assert maps_of(scatter, x, x, x.copy()) == {"p": "to", "x": "to", "y": "tofrom"}


def test_elements_that_no_iteration_writes_stay(runtime):
    """An array that is written in part keeps the rest."""
    x, y = np.arange(10), np.full(20, 7)
    double(x, y)
    assert (y == [*(2 * x), *[7] * 10]).all()


def test_clauses_come_first(runtime):
    """A map clause decides, and `defaultmap` does where there is none."""
    x, y = np.arange(N), np.zeros(N, int)
    double.options(map=[to("y")])(x, y)
    assert not y.any()
    with pytest.raises(omp.ClauseError):
        double.options(defaultmap="none")(x, y)


def test_two_views_of_one_storage_are_one_array(runtime):
    """A loop that reads and writes one storage by two parameters sees what it has written."""
    a = np.arange(2 * N)
    double(a[:N], a[N:])
    assert (a[N:] == 2 * np.arange(N)).all()
    double(a, a)
    assert (a[:N] == 2 * np.arange(N)).all()


def test_a_written_array_that_is_read_only_is_refused(runtime):
    """A loop that writes to a read-only array is a ClauseError at the call."""
    x, y = np.arange(N), np.zeros(N, int)
    y.flags.writeable = False
    for clauses in ({}, {"if_": False}, {"nowait": True}):
        with pytest.raises(omp.ClauseError):
            double.options(**clauses)(x, y)
    double(y, x)


# -- errors ------------------------------------------------------------------------------------------------


def test_an_index_outside_raises_before_anything_has_changed(runtime):
    """An affine index that certainly leaves its array is found before the loop runs."""
    x, y = np.arange(N), np.zeros(N, int)
    for clauses in ({}, {"if_": False}):
        with pytest.raises(IndexError, match=rf"{N} .*'x'.*i={N - 1}, .*test_target_loop.py:\d+"):
            shift.options(**clauses)(x, y)
        assert not y.any()


def test_an_index_from_data_is_an_error_of_the_task(runtime):
    """An index from data that is outside names array, index, iteration and line; nothing beyond it is written."""
    p, x, y = np.arange(N), np.ones(N), np.zeros(2 * N)
    p[17] = N + 3
    for clauses in ({}, {"if_": False}):
        with pytest.raises(IndexError, match=rf"{N + 3}.*'y'.*i=17.*test_target_loop.py:\d+"):
            scatter.options(**clauses)(p, x, y[:N])
        assert not y[N:].any()
    task = scatter.options(nowait=True)(p, x, y[:N])
    assert isinstance(task.exception(), IndexError)
    p[17] = -1
    scatter(p, x, y[:N])
    assert y[:N].sum() == N - 1


def test_dependents_of_a_failed_loop_on_the_host_do_not_run(runtime):
    """A host task that depends on a loop that failed fails with DependError, whose cause is the loop's error."""
    p, x, y = np.full(N, N), np.ones(N), np.zeros(N)
    scatter.options(nowait=True, depend=[out(y)])(p, x, y)
    after = omp.task(depend=[in_(y)])(lambda: None)()
    assert isinstance(after.exception().__cause__, IndexError)
    with pytest.raises(ExceptionGroup):
        omp.taskwait()


def test_integer_division_by_zero(runtime):
    """Integer division by zero is a ZeroDivisionError that names the iteration."""
    x, y = np.arange(N), np.ones(N, int)
    y[5] = 0
    with pytest.raises(ZeroDivisionError, match="i=5"):
        divide(x, y)


def test_iterations_that_depend_on_each_other_are_refused(runtime):
    """A loop whose iterations provably depend on each other is a LoopError of rule `dependence` with both lines."""

    @omp.target_loop
    def smooth(a):
        for i in range(1, a.size):
            a[i] = a[i - 1]

    with pytest.raises(omp.LoopError, match="flow") as caught:
        smooth(np.zeros(N))
    assert caught.value.rule == "dependence"
    assert caught.value.line > 0
    a = np.arange(N)
    smooth.options(seq=True)(a)
    assert not a.any()


def test_types_are_refused_at_the_call(runtime):
    """Arguments of types that loops do not have are a LoopError at the call, also with `nowait`."""
    for wrong in (np.zeros(N, complex), {"x": 1}, "x"):
        with pytest.raises(omp.LoopError):
            double.options(nowait=True)(wrong, np.zeros(N))


def test_an_assertion_counts_where_the_call_checks(runtime):
    """With `check=True` a failed assertion is the task's error; without, it is nothing."""

    @omp.target_loop
    def positive(x):
        for i in range(x.size):
            assert x[i] >= 0, "x is negative"
            x[i] += 1

    x = np.arange(-3, N)
    positive(x.copy())
    with pytest.raises(AssertionError, match=r"x is negative.*i=[012]"):
        positive.options(check=True)(x)


# -- target bodies -----------------------------------------------------------------------------------------


def test_loops_in_a_target_body_are_in_order_with_it(runtime):
    """In a target body loops run on its stream, in order with what it does; the result is a device array."""

    @omp.target(map=[to("x"), tofrom("y")])
    def body(x, y):
        y += 1
        saxpy(2.0, x, y)
        y *= 2
        total = totals(y)[0]
        saxpy(1.0, y, y)
        return float(total), total.shape

    x, y = np.arange(N, dtype="f8"), np.zeros(N)
    total, shape = body(x, y)
    expected = 2 * (1 + 2 * x)
    assert (y == 2 * expected).all()
    assert (total, shape) == (expected.sum(), ())


def test_an_error_of_a_loop_in_a_target_body_is_the_tasks(runtime):
    """What a loop in a body finds wrong is raised when the body's task completes."""

    @omp.target
    def body(p, x, y):
        scatter(p, x, y)

    with pytest.raises(IndexError, match="'y'"):
        body(np.full(N, N), np.ones(N), np.zeros(N))


def test_host_arrays_in_a_target_body_are_refused(runtime):
    """A loop in a body on a device takes device arrays; a host array is a UsageError."""
    host = np.zeros(N)
    with pytest.raises(omp.UsageError):
        omp.target(lambda x: double(x, host))(np.zeros(N))


def test_loops_in_a_body_on_the_host(runtime):
    """In a body that runs on the host a loop runs on the host's arrays."""
    x, y = np.arange(N), np.zeros(N, int)

    @omp.target(if_=False)
    def body(x, y):
        double(x, y)

    body(x, y)
    assert (y == 2 * x).all()


# -- graphs, seeds -----------------------------------------------------------------------------------------


def test_a_taskgraph_replays_loops(runtime):
    """A recorded region runs its loops again at each replay."""
    x, y = np.ones(N), np.zeros(N)

    @omp.taskgraph
    def region(x, y):
        saxpy.options(nowait=True, depend=[in_(x), inout(y)])(2.0, x, y)
        saxpy.options(nowait=True, depend=[in_(x), inout(y)])(1.0, x, y)

    with omp.target_data(map=[to(x), tofrom(y)]):
        for _ in range(4):
            region(x, y)
    assert (y == 12).all()


def test_records_have_loops():
    """A loop is a node of a recorded graph, with its dependences."""
    with omp.Runtime("sim"):
        x, y = np.ones(N), np.zeros(N)
        with omp.record() as graph:
            double.options(nowait=True, depend=[in_(x), out(y)], name="first")(x, y)
            double.options(nowait=True, depend=[in_(y), out(x)])(y, x)
            omp.taskwait()
        assert [task.name for task in graph.tasks][:2] == ["first", "double"]
        assert any(edge.kind == "flow" for edge in graph.edges)


@pytest.mark.parametrize("seed", range(4))
def test_iterations_run_in_a_seeded_order(seed):
    """Under a seed iterations on a simulated device run in an order that follows from it, and is not the program's."""

    @omp.target_loop
    def note(order, count):
        for i in range(order.size):
            k = omp.atomic.add(count, 0, 1)
            order[k] = i

    found = []
    for _ in range(2):
        with omp.Runtime("sim", seed=seed):
            order = np.zeros(200, int)
            note(order, np.zeros(1, int))
            found.append(order)
    assert (found[0] == found[1]).all()
    assert (np.sort(found[0]) == np.arange(200)).all()
    assert (found[0] != np.arange(200)).any()


# -- parallel_loop -----------------------------------------------------------------------------------------


def test_parallel_loop_runs_on_the_host(runtime):
    """A parallel loop works on the host's arrays, mapped or not, and returns its results."""

    @omp.parallel_loop(reduction={"+": ["s"]}, num_threads=2, schedule=("static", 16))
    def fill(y):
        s = 0
        for i in range(y.size):
            y[i] = i
            s += i
        return s

    y = np.zeros(N)
    with omp.target_data(map=[to(y)]):
        assert fill(y) == N * (N - 1) // 2
        assert (y == np.arange(N)).all()
    assert fill.options(nowait=True, depend=[out(y)])(y).result() == N * (N - 1) // 2
    assert fill.options(if_=False)(y) == N * (N - 1) // 2


def test_parallel_loop_errors(runtime):
    """What is wrong in a parallel loop is raised by the call, or by its task."""
    scatters = omp.parallel_loop(scatter.python)
    p, x, y = np.full(N, N), np.ones(N), np.zeros(N)
    with pytest.raises(IndexError, match="i="):
        scatters(p, x, y)
    with pytest.raises(IndexError):
        scatters.options(nowait=True)(p, x, y).result()
    with pytest.raises(omp.UsageError):
        omp.target(lambda y: scatters(p, x, y))(y)
    y.flags.writeable = False
    for clauses in ({}, {"nowait": True}):
        with pytest.raises(omp.ClauseError, match="read-only"):
            scatters.options(**clauses)(p, x, y)
    with pytest.raises(omp.DirectiveError):
        scatters(p, np.ma.masked_array(x, x > 0), np.zeros(N))
