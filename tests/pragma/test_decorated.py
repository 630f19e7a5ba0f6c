"""Directive strings over functions: the API's objects, and clauses that are evaluated at each call."""

from __future__ import annotations

import inspect
import pickle

import cloudpickle
import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.errors import PragmaError
from offload.pragma import directives
from offload.pragma import omp as directive
from offload.pragma.decorated import EvaluatedFunction
from tests.pragma import decorated_functions
from tests.pragma.decorated_functions import Field, double, saxpy, under


def clauses_of(function):
    """Return the texts of a construct's clauses."""
    return {word: repr(value) for word, value in function._given().items()}


SAME = [
    # string, decorator
    ("target map(to: x) map(tofrom: y) nowait", omp.target(map=[omp.to("x"), omp.tofrom("y")], nowait=True)),
    ("target map(to: x[0:n]) map(y[n][1:2:3])", omp.target(map=[omp.to("x[0:n]"), "y[n][1:2:3]"])),
    ("target depend(in: x) depend(out: y[0:n])", omp.target(depend=[omp.in_("x"), omp.out("y[0:n]")])),
    ("target private(x) firstprivate(y) device(0) if(1)", omp.target(private="x", firstprivate="y", device=0, if_=1)),
    ("target defaultmap(none) map(always, to: x)", omp.target(defaultmap="none", map=[omp.to("x", always=True)])),
    ("task depend(inout: x) final(False) priority(3) untied", omp.task(depend=omp.inout("x"), final=False, priority=3)),
    ("task in_reduction(+: x) if(0)", omp.task(in_reduction={"+": ["x"]}, if_=0)),
    ("taskloop grainsize(strict: 4) nogroup", omp.taskloop(grainsize=4, strict=True, nogroup=True)),
    ("taskgraph graph_id(3) nogroup", omp.taskgraph(graph_id=3, nogroup=True)),
]
ACC_SAME = [
    (
        "parallel copyin(x) pcopy(y[0:n]) async(1) wait(1, 2)",
        acc.parallel(copyin=["x"], copy=["y[0:n]"], async_=1, wait=[1, 2]),
    ),
    ("kernels default(present) num_gangs(4)", acc.kernels(default="present", num_gangs=4)),
    (
        "serial create(zero: x) reduction(+: y) self",
        acc.serial(create=[acc.zero("x")], reduction={"+": ["y"]}, self_=True),
    ),
]


@pytest.mark.parametrize(
    ("language", "text", "decorator"),
    [("omp", *row) for row in SAME] + [("acc", *row) for row in ACC_SAME],
)
def test_constants_and_names_give_the_apis_object(language, text, decorator):
    """A string without other expressions gives the object of the decorator, with equal clauses."""

    def f(n, x, y):
        pass

    found, expected = under(text, language)(f), decorator(f)
    assert type(found) is type(expected)
    given, wanted = clauses_of(found), clauses_of(expected)
    assert {word: text.replace("[0:n::]", "[0:n]") for word, text in given.items()} == wanted
    assert found.__wrapped__ is f


def test_loops_give_the_apis_object(runtime):
    """A loop directive over a function gives the loop function of the decorator."""

    def dot(x, n):
        s = 0.0
        for i in range(n):
            s += x[i]
        return s

    x = np.arange(10.0)
    found = under("target teams distribute parallel for reduction(+: s) map(to: x[0:n])")(dot)
    assert type(found) is type(omp.target_loop(reduction={"+": ["s"]})(dot))
    assert float(found(x, 10)) == 45
    threads = under("parallel for reduction(+: s) num_threads(n - 8)")(dot)
    assert float(threads(x, 10)) == 45
    assert threads.python is dot
    assert "reduction" in str(threads.explain(x, 10))
    gangs = under("parallel loop gang num_gangs(n) reduction(+: s)", "acc")(dot)
    assert float(gangs(x, 10)) == 45


def test_expressions_are_evaluated_at_each_call(runtime):
    """Expressions use the parameters, defaults and globals as they are at the call."""

    @under("target map(tofrom: y[0:max(n, 1)]) if(n > 1) nowait(n > 2)")
    def add(y, n=2):
        y += 1
        return y.shape

    y = np.zeros(4)
    assert add(y) == (2,)
    assert add(y, 0) == (1,)
    assert add(n=3, y=y).result() == (3,)
    assert y.tolist() == [3, 2, 1, 0]


def test_sections_with_calls_are_the_same_storage(runtime):
    """An index that the API cannot evaluate itself, such as ``len(x)``, is evaluated at the call."""

    @under("target map(tofrom: x[len(y):min(n, 3)]) map(to: y)")
    def add(x, y, n):
        x += y.sum()

    x, y = np.zeros(8), np.ones(2)
    add(x, y, 5)
    assert x.tolist() == [0, 0, 2, 2, 2, 0, 0, 0]


def test_dependences_are_evaluated_at_each_call(runtime):
    """Elements of lists, tuples and visible variables order the calls as blocks would be ordered."""
    total = 3

    @under("task depend(out: tiles[i % 2], ('row', i))")
    def write(tiles, i):
        tiles[i % 2][i] = i

    @under("task depend(in: tiles[0], tiles[-1], total) depend(in: ('row', 3))")
    def read(tiles):
        return sum(tile.sum() for tile in tiles) + total

    tiles = [np.zeros(4), np.zeros(4)]
    with omp.record() as graph:
        for i in range(4):
            write(tiles, i)
        found = read(tiles)
        omp.taskwait()
    assert found.result() == 9
    edges = {(edge.source.name, edge.target.name, edge.kind) for edge in graph.edges if edge.kind != "wait"}
    assert edges == {("write", "write", "output"), ("write", "read", "flow")}


@pytest.mark.parametrize("item", ["o.n", "o.all[0]"])
def test_a_number_in_an_object_is_a_place(runtime, item):
    """Calls that name the same attribute or element are ordered, although its number changes in between."""

    class Holder:
        n = 0
        all = [0]  # noqa: RUF012  # of this test alone

    call = under(f"task depend(inout: {item})")(lambda o: None)
    o = Holder()
    with omp.record() as graph:
        for n in range(3):
            call(o)
            o.n = o.all[0] = n + 1
        omp.taskwait()
    edges = {(edge.source.index, edge.target.index) for edge in graph.edges if edge.kind != "wait"}
    assert {(0, 1), (1, 2)} <= edges


def test_a_visible_number_in_depend_is_its_variable(runtime):
    """A closure variable, or a global, that holds a number is one location, whatever its value is."""
    total = 3

    @under("task depend(out: total)")
    def write():
        return total

    with omp.record() as graph:
        write()
        total = 5
        write()
        omp.taskwait()
    assert [edge.item for edge in graph.edges if edge.kind == "output"] == ["total"]


@directives
def blocks_and_functions():
    """Return the graph of blocks and functions that name a variable of the function, and a global."""
    total = 3

    @under("task depend(in: total, LIMIT)")
    def read():
        return total, LIMIT

    with omp.record() as graph:
        with directive("task depend(out: total)"):
            pass
        with directive("task depend(out: LIMIT)"):
            pass
        read()
        total = 4
        omp.taskwait()
    return graph


def test_functions_and_blocks_name_the_same_variables(runtime):
    """A variable is the same location in a block and in a function's clauses."""
    edges = [(edge.kind, edge.item) for edge in blocks_and_functions().edges if edge.kind != "wait"]
    assert sorted(edges) == [("flow", "LIMIT"), ("flow", "total")]


def test_a_parameter_in_depend_is_its_value(runtime):
    """A parameter stands for the value that the call gives, as with the API's decorator."""
    write = under("task depend(out: key)")(lambda key: key)
    expected = omp.task(depend=omp.out("key"))(lambda key: key)
    kinds = []
    for function in (write, expected):
        with omp.record() as graph:
            for key in (1, 1, 2):
                function(key)
            omp.taskwait()
        kinds.append([edge.kind for edge in graph.edges])
    assert kinds[0] == kinds[1]
    assert kinds[0].count("output") == 1


def test_methods(runtime):
    """A method's clauses may name attributes of ``self``, private ones too."""
    field = Field(np.ones(4))
    with omp.record() as graph:
        field.scale(2)
        field.scale(factor=3)
        omp.taskwait()
    assert (field.a == 6).all()
    assert [edge.kind for edge in graph.edges if edge.kind != "wait"] == ["flow"]
    field.count(range(10))
    assert field.a[0] == 16
    Field.scale(field, 0.5).result()
    assert field.a[0] == 8


def test_options_replace_clauses(runtime):
    """`options` replaces clauses, also those that the string evaluates; the others are still evaluated."""

    @under("target map(tofrom: x) nowait(n > 1) device(n - n)")
    def add(x, n):
        x += n
        return n

    x = np.zeros(3)
    assert add.options(nowait=False)(x, 3) == 3
    assert add.options(name="named")(x, 2).name == "named"
    assert add(x, 1) == 1
    omp.taskwait()
    assert (x == 6).all()
    with pytest.raises(omp.ClauseError):
        add.options(wrong=3)


def test_a_task_copies_firstprivate_defaults(runtime):
    """``firstprivate`` of a task's parameter copies the array that is its default."""
    zeros = np.zeros(2)

    @under("task firstprivate(a, b, c)")
    def function(a=zeros, /, b=zeros, *, c=zeros):
        a += 1
        b += 1
        c += 1
        return [*a, *b, *c]

    class Holder:
        @under("task firstprivate(b)")
        def method(self, a, b=zeros):
            b += a
            return b[0]

    assert function().result() == [1] * 6
    assert function(zeros).result() == function(b=zeros).result() == [1] * 6
    assert Holder().method(3).result() == Holder().method(3).result() == 3
    assert zeros.tolist() == [0, 0]


def test_a_task_copies_firstprivate_arrays(runtime):
    """``firstprivate`` of a task's parameter copies an array at the call."""
    release = omp.Event()
    gate = omp.task(detach=release)(lambda: None)()

    @under("task firstprivate(x, n) depend(in: gate)")
    def total(x, n, gate):
        x += 1
        return float(x.sum()) + n

    x = np.zeros(3)
    task, named = total(x, 1, gate), total(n=1, x=x, gate=gate)
    x[:] = 100
    release.fulfill()
    assert (task.result(), named.result()) == (4, 4)
    assert (x == 100).all()


def test_detach(runtime):
    """``detach(ev)`` attaches the event that the call passes."""

    @under("task detach(ev)")
    def body(ev):
        return 3

    event = omp.Event()
    task = body(event)
    assert not task.done()
    event.fulfill()
    assert task.result() == 3


def test_taskloops(runtime):
    """A taskloop over a function splits the range that the call passes, and reduces arrays."""

    @under("taskloop grainsize(size) reduction(+: total)")
    def add(part, size, total):
        total += sum(part)

    total = np.zeros(())
    add(range(10), 2, total)
    assert total == 45


def test_taskgraphs(runtime):
    """A taskgraph over a function records, and replays for equal arguments."""
    calls = []

    @under("taskgraph graph_id(len(key))")
    def body(x, key):
        calls.append(key)
        omp.task(x.fill)(7)

    x = np.zeros(3)
    body(x, "a")
    x[:] = 0
    body(x, "a")
    assert (x == 7).all()
    assert calls == ["a"]


def test_compute_regions(runtime):
    """OpenACC's regions over functions run in queues."""

    @under("parallel copyin(x) copy(y[0:n]) async(n)", "acc")
    def add(x, y, n):
        y += x[:n]

    x, y = np.arange(4.0), np.zeros(4)
    add(x, y, 2)
    acc.wait(2)
    assert y.tolist() == [0, 1, 0, 0]


def test_unbound_variables(runtime):
    """A closure variable without a value is a location in ``depend``, and a NameError in an expression."""

    def outer():
        @under("task depend(in: later)")
        def named():
            return later

        @under("task priority(later)")
        def needs():
            return later

        assert isinstance(named().exception(), NameError)
        with pytest.raises(NameError, match="later"):
            needs()
        later = 3
        return named().result()

    assert outer() == 3


# -- pickling ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [saxpy, double])
def test_functions_of_a_module_are_pickled_by_name(function):
    """A function under a string is pickled as the API's: by its name."""
    assert pickle.loads(pickle.dumps(function)) is function
    assert len(pickle.dumps(saxpy)) <= len(pickle.dumps(decorated_functions.called)) + 5


def test_copies_are_pickled_with_their_options(sim):
    """A copy that `options` has made is pickled with the clauses that it replaces."""
    copy = pickle.loads(pickle.dumps(double.options(name="renamed")))
    assert isinstance(copy, EvaluatedFunction)
    task = copy(4)
    assert (task.name, task.result()) == ("renamed", 8)


def test_methods_are_pickled(sim):
    """A method under a string is pickled with its object."""
    scale = pickle.loads(pickle.dumps(Field(np.ones(2)).scale))
    scale(2).result()


def test_functions_are_pickled_by_value(sim):
    """cloudpickle takes a function by value, with the globals that its clauses name."""
    source = (
        "from offload.pragma import omp\nTOP = 3\n@omp('task priority(TOP) if(n > TOP)')\ndef f(n):\n    return n + 1\n"
    )
    names = {"__name__": "__main__"}
    exec(source, names)
    found = pickle.loads(cloudpickle.dumps(names["f"]))
    assert found is not names["f"]
    assert found(4).result() == 5


def test_signature_and_names():
    """A function under a string keeps the name, signature and documentation of the function."""

    @under("task priority(n)")
    def body(n: int, *, k: int = 3) -> int:
        """Add."""
        return n + k

    assert (body.__name__, body.__doc__) == ("body", "Add.")
    assert list(inspect.signature(body).parameters) == ["n", "k"]
    assert "body" in repr(body)
    with pytest.raises(AttributeError):
        body.explain()


# -- errors at the decoration ------------------------------------------------------------------------

REFUSED = [
    # directive, token
    ("task depend(in: missing)", "missing"),
    ("task depend(in: x[missing])", "missing"),
    ("task if(x.missing > n) priority(missing)", "missing"),
    ("target map(to: missing.a)", "missing"),
    ("target map(to: x[0:missing])", "missing"),
    ("target private(missing)", "missing"),
    ("task shared(missing)", "missing"),
    ("task firstprivate(missing)", "missing"),
    ("task private(x)", "x"),
    ("task private(LIMIT)", "LIMIT"),
    ("task firstprivate(LIMIT)", "LIMIT"),
    ("taskloop firstprivate(n)", "n"),
    ("task default(none)", "default(none)"),
    ("target data map(to: x)", "target data"),
    ("taskgroup", "taskgroup"),
    ("parallel", "parallel"),
    ("task\n  depend(in: missing)", "missing"),
]
LIMIT = 3


@pytest.mark.parametrize(("text", "token"), REFUSED)
def test_errors_point_at_the_token(text, token):
    """A clause that the function cannot have is a PragmaError at the token, at decoration."""
    outer = 3

    def f(x, n):
        return outer + LIMIT

    with pytest.raises(PragmaError) as caught:
        under(text)(f)
    error = caught.value
    assert error.text[error.offset - 1 : error.end_offset - 1] == token
    assert error.filename == "<directive>"


def test_names_that_are_fine():
    """Parameters, closure variables, globals, builtins, later globals and names of comprehensions are visible."""
    outer = 3

    @under(
        "task depend(iterator(i=0:outer), in: x[i]) if(any(n > k for k in range(later))) priority(LIMIT) shared(outer)"
    )
    def f(x, n):
        return outer + later  # noqa: F821  # a global that is set later

    @under("task private(t) default(shared) shared(x)")
    def g(x):
        t = x
        t += 1
        return t

    assert callable(f)
    assert callable(g)


def test_names_of_loops_are_the_functions_own():
    """Clauses of a loop name the function's variables; an unknown one is an error at the token."""

    def dot(x):
        s = 0.0
        for i in range(x.size):
            t = x[i]
            s += t
        return s

    assert callable(under("parallel for reduction(+: s) private(t)")(dot))
    with pytest.raises(PragmaError) as caught:
        under("parallel for reduction(+: q)")(dot)
    assert caught.value.text[caught.value.offset - 1] == "q"


def test_an_object_that_cannot_be_called():
    """A string decorates callables only."""
    with pytest.raises(omp.ClauseError):
        under("task")(3)


def test_a_call_without_an_argument(runtime):
    """A clause that uses a missing argument raises the API's `TypeError`, which names the argument."""

    def f(p, q=2):
        return p

    with pytest.raises(TypeError) as said:
        omp.task(depend=[omp.in_("p")])(f)()
    for string in ("task priority(p)", "task depend(in: p + q)"):
        for arguments in ({}, {"q": 3}):
            with pytest.raises(TypeError) as caught:
                under(string)(f)(**arguments)
            assert str(caught.value) == str(said.value) == "f(p, q=2): missing a required argument: 'p'"
