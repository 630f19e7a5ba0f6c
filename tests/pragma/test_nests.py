"""Nests under directives: each row of the reference's table, and its clauses, on the host and on devices."""

from __future__ import annotations

import linecache
import math

import numpy as np
import pytest

import offload
from offload.loops.running import parallel_runs
from offload.pragma import acc, directives, omp
from tests.conftest import checked
from tests.pragma.programs import made_of

WEIGHT = 0.25
TABLE = np.arange(8.0)
later = None  # an array when the program runs


@pytest.fixture(params=["sim:1", "sim:2", "CUDA on the host"], autouse=True)
def runtime(request):
    """Runtimes with one device and with two, and one whose kernels are CUDA's, compiled for the host."""
    if request.param.startswith("CUDA"):
        request.getfixturevalue("cuda")
        yield
    else:
        with checked(request.param):
            yield


def doubled(value):
    return 2 * value


# -- the directives ------------------------------------------------------------------------------------

DEVICE = (
    *("target parallel for", "target parallel for simd", "target parallel loop", "target simd", "target loop"),
    *("target teams distribute", "target teams distribute simd", "target teams distribute parallel for"),
    *("target teams distribute parallel for simd", "target teams loop"),
)
HOST = (
    *("parallel for", "parallel for simd", "parallel loop", "teams distribute", "teams distribute parallel for"),
    *("teams loop", "distribute", "for", "for simd", "loop", "simd"),
)
ACC = ("parallel loop", "serial loop", "kernels loop")

NEST = """
    @directives
    def nest(x, y, n):
        s = 1.5
        with {language}("{directive}"):
            for i in range(1, n):
                t = doubled(x[i - 1]) * WEIGHT
                y[i] = t + TABLE[i]
                s += t
        return s
"""


@pytest.mark.parametrize("runtime", ["sim:2"], indirect=True)
@pytest.mark.parametrize("n", [8, 1, 0])
@pytest.mark.parametrize(
    ("language", "directive"), [*(("omp", one) for one in DEVICE + HOST), *(("acc", one) for one in ACC)]
)
def test_each_directive_runs_its_loop(language, directive, n):
    """Each directive around a nest gives the results of the loop without it, without iterations too."""
    nest = made_of(NEST.format(language=language, directive=f"{directive} reduction(+: s)"), globals())
    x, y = np.arange(8.0), np.zeros(8)
    assert nest(x, y, n) == 1.5 + sum(0.5 * k for k in range(n - 1))
    assert y.tolist() == [0 if not 0 < k < n else 0.5 * (k - 1) + k for k in range(8)]


@pytest.mark.parametrize("runtime", ["sim:1"], indirect=True)
@pytest.mark.parametrize(
    ("directive", "runs_on_device"), [*((one, True) for one in DEVICE), *((one, False) for one in HOST)]
)
def test_where_a_directive_runs(directive, runs_on_device):
    """The directives with `target` run on a device, and the others on the host's threads."""
    nest = made_of(NEST.format(language="omp", directive=f"{directive} reduction(+: s)"), globals())
    with offload.record() as graph:
        nest(np.arange(8.0), np.zeros(8), 8)
    [task] = graph.tasks
    assert (task.directive, task.device_num) == (("target_loop", 0) if runs_on_device else ("parallel_loop", None))


# -- names -----------------------------------------------------------------------------------------------


def test_arrays_of_the_module_are_found_when_the_nest_runs(monkeypatch):
    """A name of the module that the nest indexes may get its array after the decoration."""

    @directives
    def gather(y):
        with omp("target parallel for"):
            for i in range(later.size):
                y[i] = later[i]

    y = np.zeros(3)
    for values in ([1.0, 2.0], [3.0, 4.0, 5.0]):
        monkeypatch.setitem(globals(), "later", np.array(values))
        gather(y)
    assert y.tolist() == [3, 4, 5]


def test_variables_of_closures():
    """Arrays, numbers and functions of enclosing functions have their present values."""
    scale, weights = 2.0, np.ones(3)

    def third(value):
        return value / 3

    @directives
    def fill(y):
        with omp("target teams distribute parallel for"):
            for i in range(y.size):
                y[i] = third(scale * weights[i])

    y = np.zeros(3)
    fill(y)
    scale, weights = 6.0, np.array([1.0, 2.0, 3.0])
    z = np.zeros(3)
    fill(z)
    assert (y.tolist(), z.tolist()) == ([2 / 3] * 3, [2, 4, 6])


def test_helpers_of_the_function_itself():
    """A nest calls a function, or a module's function, that a variable of the enclosing function holds."""

    @directives
    def apply(y, f):
        import math as m

        def shifted(value):
            return value + 1

        with omp("target parallel for"):
            for i in range(y.size):
                y[i] = f(shifted(m.sqrt(y[i])))

    y = np.array([4.0, 9.0])
    apply(y, doubled)
    apply(y, abs)
    assert y.tolist() == [1 + math.sqrt(6), 1 + math.sqrt(8)]


def test_an_assigned_scalar_is_private_whatever_the_variable_holds():
    """A scalar that each iteration assigns does not change the enclosing variable, of whatever type that is."""

    @directives
    def fill(y):
        t = "text"
        with omp("target parallel for"):
            for i in range(y.size):
                t = 2.0 * i
                y[i] = t
        return t

    y = np.zeros(3)
    assert fill(y) == "text"
    assert y.tolist() == [0, 2, 4]


@pytest.mark.parametrize("directive", ["parallel for", "target teams distribute parallel for"])
def test_a_scan_begins_with_the_variable(directive):
    """A scalar that passes between iterations by updates begins with the enclosing variable's value."""
    scan = made_of(
        f"""
        @directives
        def scan(x, y):
            s = 10
            with omp("{directive}"):
                for i in range(x.size):
                    s += x[i]
                    y[i] = s
        """,
        globals(),
    )
    y = np.zeros(3, int)
    scan(np.array([1, 2, 3]), y)
    assert y.tolist() == [11, 13, 16]


# -- clauses ---------------------------------------------------------------------------------------------

REDUCTIONS = {
    "+": ("s += x[i]", 5, 5 + 10),
    "*": ("s *= x[i]", 2, 48),
    "min": ("s = min(s, x[i])", 9, 1),
    "max": ("if x[i] > s:\n                        s = x[i]", 3, 4),
    "&": ("s &= x[i]", 255, 0),
    "|": ("s |= x[i]", 8, 15),
    "^": ("s = s ^ x[i]", 8, 12),
    "&&": ("s = s and x[i] < 4", True, False),
    ".or.": ("s = s or x[i] > 3", False, True),
}


@pytest.mark.parametrize("directive", ["omp: target teams loop", "omp: parallel for", "acc: parallel loop"])
@pytest.mark.parametrize("operator", REDUCTIONS)
def test_reductions(directive, operator):
    """A reduction begins with the variable's value, and the variable receives the result."""
    update, first, expected = REDUCTIONS[operator]
    language, words = directive.split(": ")
    reduce = made_of(
        f"""
        @directives
        def reduce(x, s):
            with {language}("{words} reduction({operator}: s)"):
                for i in range(x.size):
                    {update}
            return s
        """,
        globals(),
    )
    assert reduce(np.array([1, 2, 3, 4]), first) == expected
    assert reduce(np.array([], int), first) == first


def test_a_reduction_over_an_array_of_one_element():
    """A reduction variable may be an array of one element, with or without a subscript, which changes in place."""

    @directives
    def add(x, total, also):
        with omp("target parallel for reduction(+: total, also)"):
            for i in range(x.size):
                total[0] += x[i]
                also += 1
        return also

    total, also = np.array([1.0]), np.array(2)
    assert add(np.arange(4.0), total, also) is also
    assert (total.tolist(), also.tolist()) == ([7.0], 6)
    assert add(np.arange(4.0), total, 5) == 9


def test_a_reduction_over_variables_of_the_module_and_of_closures():
    """A reduction variable that is `global` or `nonlocal` receives the result there."""
    inner = 1

    @directives
    def count(n):
        global counted  # noqa: PLW0603  # what is tested
        nonlocal inner
        with omp("parallel for reduction(+: counted, inner)"):
            for _ in range(n):
                counted += 1
                inner += 2

    globals()["counted"] = 5
    count(3)
    assert (globals().pop("counted"), inner) == (8, 7)


@pytest.mark.parametrize("directive", ["parallel for", "target teams distribute parallel for"])
def test_lastprivate(directive):
    """A lastprivate variable receives the value of the last iteration, also that of a loop's own variable."""
    last = made_of(
        f"""
        @directives
        def last(x, n):
            i = "before"
            with omp("{directive} lastprivate(t, i)"):
                for i in range(n):
                    t = x[i] * 2
            return (i, t) if n else i
        """,
        globals(),
    )
    assert last(np.arange(4.0), 3) == (2, 4.0)
    assert last(np.arange(4.0), 0) == "before"


def test_lastprivate_arrays():
    """A lastprivate array holds the elements that the last iteration has assigned."""

    @directives
    def last(t, y):
        with omp("target parallel for lastprivate(t)"):
            for i in range(y.size):
                t[0] = i
                y[i] = t[0] + t[0]

    t, y = np.zeros(1), np.zeros(3)
    last(t, y)
    assert (t.tolist(), y.tolist()) == ([2], [0, 2, 4])


@pytest.mark.parametrize("directive", ["parallel for", "target teams distribute parallel for"])
def test_private_and_firstprivate(directive):
    """Each iteration has its own copies; the enclosing function's variables keep their values."""
    own = made_of(
        f"""
        @directives
        def own(x, y, f, work, unused):
            with omp("{directive} private(work, t, i, unused) firstprivate(x, f)"):
                for i in range(y.size):
                    f += i
                    x[0] += f
                    work[0] = x[0]
                    t = work[0]
                    y[i] = t
            return f
        """,
        globals(),
    )
    x, y, work = np.array([100.0]), np.zeros(3), np.zeros(1)
    assert own(x, y, 1, work, None) == 1
    assert (x.tolist(), y.tolist(), work.tolist()) == ([100], [101, 102, 103], [0])


def test_collapse_and_tile():
    """With `collapse` and `tile`, several loops are one iteration space."""

    @directives
    def multiply(a, b, c):
        with omp("target teams distribute parallel for collapse(2)"):
            for i in range(a.shape[0]):
                for j in range(b.shape[1]):
                    s = 0.0
                    for k in range(a.shape[1]):
                        s += a[i, k] * b[k, j]
                    c[i, j] = s
        with acc("parallel loop tile(2, 4)"):
            for i in range(c.shape[0]):
                for j in range(c.shape[1]):
                    c[i, j] += 1

    a, b = np.random.default_rng(1).random((2, 5, 5))
    c = np.zeros((5, 5))
    multiply(a, b, c)
    np.testing.assert_allclose(c, a @ b + 1)


def test_clauses_with_values():
    """Clauses with values are evaluated at each encounter."""

    @directives
    def scale(x, n, where):
        with omp("parallel for num_threads(n) schedule(dynamic, n + 1) if(n > 1)"):
            for i in range(x.size):
                x[i] *= n
        with omp("target teams loop num_teams(n) thread_limit(32 * n) map(tofrom: x[0:]) device(where) if(n > 1)"):
            for i in range(x.size):
                x[i] += n
        with acc("parallel loop num_gangs(n) vector_length(32) gang vector copy(x) async(n)"):
            for i in range(x.size):
                x[i] -= 1
        acc("wait(n)")

    for n in (1, 2):
        x = np.ones(5)
        scale(x, n, 0)
        assert x.tolist() == [2 * n - 1] * 5


def test_a_mapped_array_that_the_nest_does_not_use():
    """A data clause may name an array that is not in the nest: it is mapped all the same."""

    @directives
    def touch(x, y):
        with omp("target parallel for map(to: x) map(from: y)"):
            for i in range(y.size):
                y[i] = i

    y = np.zeros(3)
    touch(np.ones(2), y)
    assert y.tolist() == [0, 1, 2]


# -- inside of a nest ------------------------------------------------------------------------------------


def test_inner_loops():
    """`loop`, `for` and `simd` around a loop in a nest say how its trips run, and reduce its scalars."""

    @directives
    def sums(a, y):
        with omp("target teams distribute"):
            for i in range(a.shape[0]):
                s = 0.0
                with omp("parallel for simd reduction(+: s) private(t)"):
                    for j in range(a.shape[1]):
                        t = a[i, j]
                        s += t
                with omp("loop bind(thread)"):
                    for _ in range(2):
                        s += 1
                y[i] = s
        with acc("parallel loop gang"):
            for i in range(a.shape[0]):
                s = 0
                with acc("loop vector collapse(2) reduction(max: s)"):
                    for j in range(3):
                        for k in range(3):
                            s = max(s, j * k)
                with acc("loop seq"):
                    for _ in range(2):
                        s += 1
                acc("cache(a[i:1])")
                y[i] += s

    a, y = np.arange(12.0).reshape(3, 4), np.zeros(3)
    sums(a, y)
    assert y.tolist() == (a.sum(axis=1) + 2 + 6).tolist()


def test_comments_inside_of_a_nest():
    """Comments inside of a nest are directives as strings are."""
    # A formatter would put blanks into comments.
    count = made_of("""
        @directives
        def count(x, h):
            #$ omp target teams distribute parallel for
            for i in range(x.size):
                #omp atomic
                h[x[i]] += 1
                s = 0
                #$ omp loop reduction(+: s)
                for j in range(3):
                    s += j
                #pragma omp atomic update
                h[0] += s
    """)
    h = np.zeros(3, int)
    with offload.record() as graph:
        count(np.array([1, 2, 1]), h)
    assert h.tolist() == [9, 2, 1]
    assert [task.directive for task in graph.tasks] == ["target_loop"]


UPDATES = {
    "h[x[i]] += 2": [2, 4, 2, 0],
    "h[x[i]] -= 2": [-2, -4, -2, 0],
    "h[x[i]] = 3 + h[x[i]]": [3, 6, 3, 0],
    "h[x[i]] = max(h[x[i]], i)": [0, 3, 2, 0],
    "h[x[i]] = min(-i, h[x[i]])": [0, -3, -2, 0],
    "h[x[i]] |= 1 << i": [1, 10, 4, 0],
    "h[x[i]] ^= 1": [1, 0, 1, 0],
}


@pytest.mark.parametrize("directive", ["parallel for", "target teams distribute parallel for"])
@pytest.mark.parametrize("update", UPDATES)
def test_atomic_updates(directive, update):
    """An update of an element under `atomic` loses nothing."""
    count = made_of(
        f"""
        @directives
        def count(x, h):
            with omp("{directive}"):
                for i in range(x.size):
                    with omp("atomic"):
                        {update}
        """,
        globals(),
    )
    h = np.zeros(4, int)
    count(np.array([0, 1, 2, 1]), h)
    assert h.tolist() == UPDATES[update]


def test_atomic_products_and_rows():
    """`atomic` takes products, and elements of rows."""

    @directives
    def multiply(x, h):
        with omp("target parallel for"):
            for i in range(x.size):
                with omp("atomic update"):
                    h[0][x[i]] *= 2
                with acc("atomic update"):
                    h[1, x[i]] += 0.5

    h = np.ones((2, 3))
    multiply(np.array([0, 1, 1]), h)
    assert h.tolist() == [[2, 4, 1], [1.5, 2, 1]]


def test_atomic_capture():
    """`atomic capture` gives each iteration the element before, or after, its own update."""

    @directives
    def tickets(taken, after, swapped, next_one):
        with omp("target teams distribute parallel for"):
            for i in range(taken.size):
                with omp("atomic capture"):
                    k = next_one[0]
                    next_one[0] += 1
                taken[k] = 1
                with omp("atomic capture"):
                    next_one[1] += 2
                    k = next_one[1]
                after[k // 2 - 1] = k
                with omp("atomic capture"):
                    k, next_one[2] = next_one[2], i + 1
                swapped[k] = 1

    taken, after, swapped = np.zeros(100, int), np.zeros(100, int), np.zeros(101, int)
    next_one = np.zeros(3, int)
    tickets(taken, after, swapped, next_one)
    assert taken.all()
    assert after.tolist() == [*range(2, 202, 2)]
    swapped[next_one[2]] += 1
    assert swapped.tolist() == [1] * 101


def test_atomic_read_and_write():
    """`atomic write` may store the same element in many iterations, and `atomic read` reads one."""

    @directives
    def flags(x, found, y):
        with omp("target parallel for"):
            for i in range(x.size):
                if x[i] < 0:
                    with omp("atomic write"):
                        found[0] = 1
                with omp("atomic read"):
                    v = x[i]
                y[i] = v

    found, y = np.zeros(1, int), np.zeros(4)
    flags(np.array([1.0, -1.0, -2.0, 3.0]), found, y)
    assert (found.tolist(), y.tolist()) == ([1], [1, -1, -2, 3])


def test_a_scalar_under_atomic_is_a_reduction():
    """A scalar that iterations update under `atomic` is the enclosing function's variable."""

    @directives
    def count(x):
        n, most = 0, -1.0
        with omp("target teams distribute parallel for"):
            for i in range(x.size):
                if x[i] > 0:
                    with omp("atomic"):
                        n += 1
                    with omp("atomic"):
                        most = max(most, x[i])
        return n, most

    assert count(np.array([1.0, -1.0, 4.0])) == (2, 4.0)


def test_kernels_find_reductions():
    """A `kernels loop` finds that a scalar is only updated, and gives the variable the result."""

    @directives
    def total(x, s):
        with acc("kernels loop"):
            for i in range(x.size):
                s += x[i]
        return s

    assert total(np.arange(4), 1) == 7


# -- results of deferred nests, and nests in other blocks -------------------------------------------------


@pytest.mark.parametrize(
    "directive",
    ["omp: target teams loop nowait depend(inout: x)", "omp: parallel for nowait depend(inout: x)"],
)
def test_dependents_see_the_results_of_a_deferred_nest(directive):
    """A deferred nest gives variables their values before tasks that depend on it run."""
    language, words = directive.split(": ", 1)
    deferred = made_of(
        f"""
        @directives
        def deferred(x, seen):
            s, t = 1.0, None
            with {language}("{words} reduction(+: s) lastprivate(t)"):
                for i in range(x.size):
                    t = i
                    s += x[i]
            with omp("task depend(in: x) shared(s, t)"):
                seen.append((s, t))
            omp("taskwait")
            return s, t
        """,
        globals(),
    )
    seen = []
    assert deferred(np.arange(4.0), seen) == (7.0, 3)
    assert seen == [(7.0, 3)]


def test_results_of_a_nest_in_a_queue():
    """A nest in an async queue gives its results when the queue has got there."""

    @directives
    def total(x):
        s = 0.0
        with acc("parallel loop reduction(+: s) async(1)"):
            for i in range(x.size):
                s += x[i]
        acc("wait(1)")
        return s

    assert total(np.arange(5.0)) == 10


@pytest.mark.parametrize("n", [5, 0])
def test_nests_in_a_target_region(n):
    """In a target region nests run on its device, and the next nest uses their results."""

    @directives
    def normalise(x, y, n):
        with omp("target map(tofrom: x, y)"):
            s, last = 0.0, 0
            with omp("teams distribute parallel for reduction(+: s) lastprivate(last)"):
                for i in range(n):
                    last = i
                    s += x[i]
            with omp("loop"):
                for i in range(n):
                    y[i] = x[i] / s + last
            with omp("parallel for reduction(+: s)"):
                for _ in range(n):
                    s += 1
            x[0] = s

    x, y = np.ones(5), np.zeros(5)
    normalise(x, y, n)
    assert x.tolist() == [10 if n else 0, 1, 1, 1, 1]
    assert y.tolist() == [4.2 if n else 0] * 5


def test_a_nest_in_a_task():
    """A nest in the block of a task gives the results to the block's variables."""

    @directives
    def total(x, found):
        for k in range(3):
            with omp("task"):
                s = k
                with omp("parallel for reduction(+: s)"):
                    for i in range(x.size):
                        s += x[i]
                found.append(s)
        omp("taskwait")

    found = []
    total(np.arange(4), found)
    assert sorted(found) == [6, 7, 8]


def test_a_reduction_needs_a_value_to_begin_with():
    """A reduction over a variable without a value is the error that Python would raise."""

    @directives
    def total(x):
        with omp("parallel for reduction(+: s)"):
            for i in range(x.size):
                s += x[i]  # noqa: F821  # what is tested
        return s

    with pytest.raises(UnboundLocalError):
        total(np.ones(3))


# -- errors ----------------------------------------------------------------------------------------------


def test_errors_of_loops_name_the_line():
    """The `LoopError` of a nest is raised at the decoration, at the program's line."""
    with pytest.raises(offload.LoopError) as caught:

        @directives
        def show(x):
            with omp("target parallel for"):
                for i in range(x.size):
                    print(x[i])

    line = linecache.getline(__file__, caught.value.line)
    assert (caught.value.file, line.strip()) == (__file__, "print(x[i])")


def test_a_carried_scalar_is_an_error():
    """A scalar that an iteration reads before it assigns it is the error of loops."""
    with pytest.raises(offload.LoopError) as caught:

        @directives
        def smooth(x):
            s = 0.0
            with omp("parallel for"):
                for i in range(x.size):
                    s = 0.5 * (s + x[i])
                    x[i] = s

    assert caught.value.rule == "carried"


def test_errors_of_elements_name_the_line():
    """A bad index is an IndexError that names the program's line."""

    @directives
    def out_of_bounds(x, n):
        with omp("parallel for"):
            for i in range(n):
                x[i] = 1

    with pytest.raises(IndexError, match=r"test_nests\.py:"):
        out_of_bounds(np.zeros(3), 4)


def test_threads_of_a_parallel_block(monkeypatch):
    """A worksharing loop has the threads of its own clause, or of the `parallel` block around it."""
    found = []
    host_runs = parallel_runs.host_runs

    def noted(spec, values, device, n_threads, *others, **more):
        found.append(spec.program.words.num_threads)
        return host_runs(spec, values, device, n_threads, *others, **more)

    monkeypatch.setattr(parallel_runs, "host_runs", noted)

    def orphan(x):
        with omp("for"):
            for i in range(x.size):
                x[i] += 1

    orphan = directives(orphan)

    @directives
    def team(x, n):
        with omp("parallel num_threads(n) if(n > 0)"):
            with omp("for reduction(+: n)"):
                for _ in range(x.size):
                    n += 1
            with omp("for num_threads(2)"):
                for i in range(x.size):
                    x[i] += 1
            orphan(x)
        with omp("for"):
            for i in range(x.size):
                x[i] += 1

    team(np.zeros(100), 3)
    assert found == [3, 2, 3, None]


class Grid:
    """An object with arrays and numbers."""

    def __init__(self, n):
        self.u = np.arange(float(n))
        self.spacing = 0.5
        self.inner = self

    @directives
    def scale(self, y):
        s = 0.0
        with omp("target teams loop reduction(+: s) map(tofrom: self.u)"):
            for i in range(self.inner.u.size):
                self.u[i] *= self.spacing
                s += self.u[i] + abs(y[i].real)
        return s


def test_members_of_objects():
    """A nest may use arrays and numbers that are members of an object; their present values are arguments."""
    grid = Grid(4)
    assert grid.scale(np.full(4, -1 + 2j)) == 7
    assert grid.u.tolist() == [0, 0.5, 1, 1.5]
    grid.spacing, grid.u = 4, np.ones(2)
    assert grid.scale(np.zeros(2)) == 8


def test_nested_functions_are_made_once():
    """A nested function that is decorated at each call shares its loop functions, unless it has variables around it."""

    def made(scale):
        @directives
        def alone(x):
            with omp("parallel for"):
                for i in range(x.size):
                    x[i] += 1

        @directives
        def around(x):
            with omp("parallel for"):
                for i in range(x.size):
                    x[i] *= scale

        return alone, around

    x = np.ones(3)
    for scale in (2, 3):
        for function in made(scale):
            function(x)
    assert x.tolist() == [15] * 3
