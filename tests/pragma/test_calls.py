"""Directives as calls of the API: the keywords of each clause, and directives carried out without rewriting."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.pragma.calls import DirectiveCall
from offload.pragma.items import UNBOUND
from offload.pragma.parser import parse
from offload.pragma.tables import DIRECTIVES, Form
from offload.pragma.translations import OF_CONSTRUCTS, TRANSLATIONS
from tests.pragma.directive_calls import encounter, evaluated, keywords, manage, run


def shown(given):
    """Return keywords with clauses as their texts, which tell type, items and order, and arrays as lists."""
    if isinstance(given, dict):
        return {word: shown(value) for word, value in given.items()}
    if isinstance(given, (list, tuple)):
        return [shown(value) for value in given]
    if isinstance(given, np.ndarray):
        return ["array", given.tolist()]
    return repr(given)


X, Y = np.arange(3.0), np.arange(20.0).reshape(4, 5)
NAMES = {"x": X, "y": Y, "n": 3, "tiles": [X, Y], "o": omp.depobj(omp.in_(X))}

OMP = {
    # text: keywords
    "task depend(in: x) depend(out: y[0], tiles[1])": {"depend": [omp.in_(X), omp.out(Y[0], Y)]},
    "task depend(mutexinoutset: x) if(n > 2) depend(depobj: o)": {
        "depend": [omp.mutexinoutset(X), NAMES["o"]],
        "if_": True,
    },
    "task if(task: n) final(n > 5) priority(n) untied mergeable affinity(x) shared(n) default(none)": {
        "if_": 3,
        "final": False,
        "priority": 3,
    },
    "task in_reduction(+: x) in_reduction(max: y)": {"in_reduction": {"+": ["x"], "max": ["y"]}},
    "target map(to: x) map(y) nowait device(n)": {"map": [omp.to("x"), "y"], "nowait": True, "device": 3},
    "target map(always, close, from: x) nowait(n > 5)": {
        "map": [omp.from_("x", always=True, close=True)],
        "nowait": False,
    },
    "target map(present, storage: x) map(close: y)": {
        "map": [omp.alloc("x", present=True), omp.tofrom("y", close=True)]
    },
    "target map(to: x, n) map(tofrom: y[0:2], z)": {"map": [omp.to("x"), omp.tofrom(Y[:2])]},
    "target map(tofrom: n)": {},
    "target private(x, n) firstprivate(y, m) is_device_ptr(d) has_device_addr(e)": {
        "private": ["x"],
        "firstprivate": ["y", "m"],
        "is_device_ptr": ["d"],
        "has_device_addr": ["e"],
    },
    "target defaultmap(none)": {"defaultmap": "none"},
    "target defaultmap(to: aggregate) defaultmap(none: scalar)": {"defaultmap": {"aggregate": "to", "scalar": "none"}},
    "target data map(to: x) map(y[1:2]) use_device_ptr(x) use_device_addr(y) if(n) nogroup": {
        "map": [omp.to(X), Y[1:3]],
        "use_device_ptr": [X],
        "use_device_addr": [Y],
        "if_": 3,
        "nogroup": True,
    },
    "target enter data map(to: x) map(alloc: y) nowait depend(out: x)": {
        "map": [omp.to(X), omp.alloc(Y)],
        "nowait": True,
        "depend": [omp.out(X)],
    },
    "target exit data map(release: x) map(delete: y) map(from: tiles[0])": {
        "map": [omp.release(X), omp.delete(Y), omp.from_(X)]
    },
    "target data map(iterator(i=0:2), to: tiles[i])": {"map": [omp.to(X, Y)]},
    "target update to(x) from(iterator(i=0:2): y[i]) device(n)": {"to": [X], "from_": [Y[0], Y[1]], "device": 3},
    "taskloop grainsize(strict: n) if(n)": {"grainsize": 3, "strict": True, "if_": 3},
    "taskloop num_tasks(n) nogroup": {"num_tasks": 3, "nogroup": True},
    "taskloop reduction(+: x, n) reduction(max: y)": {"reduction": {"+": ["x"], "max": ["y"]}},
    "taskgroup task_reduction(+: x) task_reduction(*: y)": {"task_reduction": {"+": [X], "*": [Y]}},
    "taskgraph graph_id(n) graph_reset nogroup if(n)": {
        "graph_id": 3,
        "graph_reset": True,
        "nogroup": True,
        "if_": 3,
    },
    "taskwait depend(inout: x) nowait": {"depend": [omp.inout(X)], "nowait": True},
    "parallel num_threads(n) if(n) shared(x) proc_bind(close)": {"num_threads": 3, "if_": 3},
    "single nowait": {"nowait": True},
    "target teams distribute parallel for collapse(2) reduction(+: s, t) map(to: x) num_teams(n) thread_limit(32)": {
        "collapse": 2,
        "reduction": {"+": ["s", "t"]},
        "map": [omp.to("x")],
        "num_teams": 3,
        "thread_limit": 32,
    },
    "parallel for private(p) firstprivate(f) lastprivate(l) schedule(dynamic, 4) num_threads(n) order(concurrent)": {
        "private": ["p"],
        "firstprivate": ["f"],
        "lastprivate": ["l"],
        "schedule": ("dynamic", 4),
        "num_threads": 3,
    },
    "for schedule(guided) reduction(&&: b)": {"schedule": "guided", "reduction": {"and": ["b"]}},
    "for schedule(auto) safelen(4) simdlen(2)": None,
    "simd": {"num_threads": 1},
}

ACC = {
    "parallel copyin(x) copy(y[0:2]) async(n) wait(1, n) if(n)": {
        "copyin": ["x"],
        "copy": [Y[:2]],
        "async_": 3,
        "wait": [1, 3],
        "if_": 3,
    },
    "parallel pcopyin(readonly: x) present_or_create(zero: y) copy(n)": {"copyin": ["x"], "create": [acc.zero("y")]},
    "parallel private(x) firstprivate(y) reduction(+: x2) num_gangs(n) num_workers(2) vector_length(4)": {
        "private": ["x"],
        "firstprivate": ["y"],
        "num_gangs": 3,
        "num_workers": 2,
        "vector_length": 4,
    },
    "kernels default(present) self async": {"default": "present", "self_": True, "async_": True},
    "serial self(n > 5) wait deviceptr(d) no_create(x) present(y)": {
        "self_": False,
        "wait": True,
        "deviceptr": ["d"],
        "no_create": ["x"],
        "present": ["y"],
    },
    "data copyin(x) copyout(zero: y) attach(n)": {"copyin": [X], "copyout": [acc.zero(Y)]},
    "host_data use_device(x) if_present if(n)": {"use_device": [X], "if_present": True, "if_": 3},
    "enter data copyin(x) create(y) async": {"copyin": [X], "create": [Y], "async_": True},
    "exit data copyout(x) delete(y) finalize": {"copyout": [X], "delete": [Y], "finalize": True},
    "update self(x) host(y[0:1]) if_present": {"self_": [X, Y[:1]], "if_present": True},
    "update device(x) wait(1)": {"device": [X], "wait": [1]},
    "wait(1, n) async(2) if(n)": {"queues": [1, 3], "async_": 2, "if_": 3},
    "wait(devnum: 0: queues: n)": {"device": 0, "queues": [3]},
    "parallel loop gang worker(4) vector(length: n) collapse(2) copy(x) reduction(+: s)": {
        "gang": True,
        "worker": 4,
        "vector": 3,
        "collapse": 2,
        "copy": ["x"],
        "reduction": {"+": ["s"]},
    },
    "serial loop tile(2, n)": {"tile": (2, 3), "seq": True},
    "kernels loop independent private(p)": {"independent": True, "private": ["p"]},
}


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [(language, text, expected) for language, rows in (("omp", OMP), ("acc", ACC)) for text, expected in rows.items()],
)
def test_keywords_of_clauses(language, text, expected):
    """The keywords that a directive stands for are those that a program would write."""
    names = {**NAMES, "d": 0, "e": 0, "m": 1}
    assert shown(keywords(text, language, **names)) == shown(expected or {})


@pytest.mark.parametrize("row", DIRECTIVES.values(), ids=lambda row: f"{row.language} {row.name}")
def test_every_clause_has_a_translation(row):
    """Every clause of every directive in the tables becomes arguments, or is known to become none."""
    assert set(row.clauses) <= {*TRANSLATIONS, *(word for words in OF_CONSTRUCTS.values() for word in words)}


# -- what rewriting asks -----------------------------------------------------------------------------


def test_values_are_in_the_order_of_the_string():
    """Clauses are evaluated in the order of the string, adjacent dependences as one list."""
    seen = []

    def f(value):
        seen.append(value)
        return value

    _, values = evaluated("task priority(f(1)) depend(in: (f(2),)) if(f(3)) depend(out: (f(4),))", f=f)
    assert seen == [1, 2, 3, 4]
    assert [type(value) for value in values] == [int, list, int, list]


def test_names_with_arrays_need_no_value():
    """If all names in data clauses hold NumPy arrays, the first value says so, and the clauses are fixed."""
    call, values = evaluated("target map(to: x) map(tofrom: y) depend(in: x)", x=X, y=Y)
    assert values[0] is None
    assert call.named == ("x", "y")
    assert call.left_out(values) == frozenset()


@pytest.mark.parametrize("value", [3, 2.5, "text", None, UNBOUND, np.float32(2)])
def test_numbers_are_left_out(value):
    """A name in a data clause that holds a number, or nothing, is left out of the call."""
    call, values = evaluated("target map(to: x) map(tofrom: s) private(p)", x=X, s=value, p=value)
    assert call.left_out(values) == {"s", "p"}
    assert shown(call.keywords(values)) == shown({"map": [omp.to("x")]})


def test_other_objects_are_left_out_of_from_alone():
    """A list in `from` is a variable that receives a value; in `to` it stays, and the construct refuses it."""
    call, values = evaluated("target map(to: x) map(from: s)", x=[1], s=[1])
    assert call.left_out(values) == {"s"}


def test_parts_tell_the_array_and_the_index():
    """A section in a data clause tells the array, the section and its index."""
    call, values = evaluated("target map(to: y[1:2][0:3], o.x) map(tofrom: o.x[1:])", y=Y, o=type("O", (), {"x": X}))
    section, member, tail = call.parts(values)
    assert (section.path, section.whole, section.where) == ("y", Y, (slice(1, 3, 1), slice(0, 3, 1)))
    assert section.view.tolist() == Y[1:3, :3].tolist()
    assert (member.path, member.view, member.where) == ("o.x", X, ())
    assert (tail.path, tail.where) == ("o.x", (slice(1, 3, 1),))


@pytest.mark.parametrize(
    ("text", "language", "names"),
    [
        ("depobj(o) depend(in: x)", "omp", ("o",)),
        ("depobj(o) update(in)", "omp", ()),
        ("interop init(targetsync: o)", "omp", ("o",)),
        ("interop use(o)", "omp", ()),
        ("target data use_device_addr(b) use_device_ptr(a)", "omp", ("a", "b")),
        ("host_data use_device(a, b)", "acc", ("a", "b")),
        ("taskwait", "omp", ()),
    ],
)
def test_names_that_receive_results(text, language, names):
    """A directive tells the names that it binds, in the order of the results."""
    assert DirectiveCall(parse(text, language)).binds == names


def test_events_and_reductions():
    """The names in ``detach`` and ``reduction`` are told."""
    assert DirectiveCall(parse("task detach(ev)", "omp")).events == ("ev",)
    assert DirectiveCall(parse("exit data delete(x) detach(y)", "acc")).events == ()
    assert DirectiveCall(parse("taskloop reduction(+: a, b) reduction(max: c)", "omp")).reductions == (
        ("+", "a"),
        ("+", "b"),
        ("max", "c"),
    )


def test_the_parsers_trees_stay_as_they_are():
    """Making a call's expression twice gives equal trees: the parser's own nodes are copied."""
    import ast

    class Names:
        @property
        def library(self):
            return ast.Name("lib", ast.Load())

        def read(self, name):
            return ast.Name(name, ast.Load())

        def location(self, name):
            return ast.Constant(name)

    call = DirectiveCall(parse("task depend(in: a[i+1][0:n], f(b)) if(n > 2)", "omp"))
    first = call.values(Names())
    text = ast.unparse(first)
    for node in ast.walk(first):
        if isinstance(node, ast.Name):
            node.id = "changed"
    assert ast.unparse(call.values(Names())) == text


# -- encounters --------------------------------------------------------------------------------------


def test_an_encounter_is_the_call_of_the_api(runtime):
    """A target with maps and dependences gives the graph and the values of the API's call."""

    def body(x, y):
        y += x

    x, y = np.ones(8), np.zeros(8)
    with omp.record() as graph:
        for _ in range(2):
            encounter("target map(to: x) map(tofrom: y) depend(inout: y) nowait", body, (x, y), x=x, y=y)
        omp.taskwait()
    with omp.record() as expected:
        fn = omp.target(map=[omp.to("x"), omp.tofrom("y")], nowait=True)(body)
        for _ in range(2):
            fn.options(depend=[omp.inout(y)])(x, y)
        omp.taskwait()
    assert (y == 4).all()
    assert [edge.kind for edge in graph.edges] == [edge.kind for edge in expected.edges]
    assert len(graph.tasks) == len(expected.tasks)


def test_an_encounter_with_a_number_in_a_map(runtime):
    """A number in a data clause is an ordinary argument of the call."""

    def body(x, s):
        x += s
        return s

    x = np.zeros(3)
    assert encounter("target map(tofrom: x) map(tofrom: s)", body, (x, 3), x=x, s=3) == 3
    assert (x == 3).all()
    assert encounter("target map(tofrom: s)", body, (np.zeros(2), 3), s=3) == 3


def test_an_encounter_of_a_section(runtime):
    """A section in a map is the argument that the rewriting passes."""
    a = np.zeros(10)

    def body(part):
        part += 1

    call, values = evaluated("target map(tofrom: a[2:3])", a=a)
    (part,) = call.parts(values)
    call.encounter(call.decorate(body), values)(part.view)
    assert a.tolist() == [0, 0, 1, 1, 1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("text", "language"),
    [("task priority(-1)", "omp"), ("target device(1.5) depend(in: x)", "omp"), ("parallel async(-7)", "acc")],
)
def test_constants_that_the_construct_refuses(runtime, text, language):
    """A wrong constant is the construct's error at the encounter, each time, not when the block is made."""
    call, values = evaluated(text, language, x=X)
    construct = call.decorate(lambda: None)
    for _ in range(2):
        with pytest.raises(omp.ClauseError):
            call.encounter(construct, values)()


def test_detach_attaches_the_event(runtime):
    """The event of ``detach`` completes the task."""
    event = omp.Event()
    task = encounter("task detach(ev)", lambda: 3, (), ev=event)
    assert not task.done()
    event.fulfill()
    assert task.result() == 3


def test_a_wait_on_queues_of_another_device():
    """``wait(devnum: d: queues: q)`` on a region waits for these queues before the region."""
    with omp.Runtime("sim:2"):
        acc.set_device_num(1, acc.device_sim)
        x, y = np.zeros(3), np.zeros(3)
        fill = acc.parallel(async_=1)(lambda x: x.fill(2))
        fill(x)
        acc.set_device_num(0, acc.device_sim)
        encounter("parallel copy(y) wait(devnum: 1: queues: 1)", lambda y: y.fill(1), (y,), "acc", y=y)
        assert (x == 2).all()
        assert (y == 1).all()


# -- directives that stand alone ---------------------------------------------------------------------


def test_data_directives(runtime):
    """``target enter data``, ``update`` and ``exit data`` move data as the API's calls do."""
    x = np.arange(4.0)
    run("target enter data map(to: x)", x=x)
    assert omp.target_is_present(x) or omp.get_num_devices() == 0
    omp.target(lambda x: x.fill(7))(x)
    run("target update from(x[0:2])", x=x)
    assert x[:2].tolist() == [7, 7]
    assert run("target exit data map(from: x) nowait", x=x).result() is None
    assert (x == 7).all()
    assert not omp.target_is_present(x)


def test_update_with_present_and_without(sim):
    """In an update, ``present`` concerns the items of its own clause."""
    x, y = np.zeros(3), np.zeros(3)
    with omp.target_data(map=[omp.to(x)]):
        omp.target(lambda x: x.fill(1))(x)
        run("target update from(present: x) to(y)", x=x, y=y)
        assert (x == 1).all()
        with pytest.raises(omp.NotPresentError):
            run("target update from(x) to(present: y)", x=x, y=y)


def test_waits(runtime):
    """``taskwait``, ``taskyield``, ``barrier`` and ``flush`` stand for the routines."""
    x = np.zeros(3)
    task = omp.task(depend=[omp.out(x)])(lambda: x.fill(2))()
    run("taskwait depend(in: x)", x=x)
    assert (x == 2).all()
    assert run("taskwait depend(in: x) nowait", x=x).result() is None
    run("taskyield")
    run("flush(x)", x=x)
    run("barrier")
    run("taskwait")
    assert task.done()


def test_cancel():
    """``cancel taskgroup`` cancels the group unless its condition is false."""
    with omp.Runtime("sim:1", env={"OMP_CANCELLATION": "true"}):
        with omp.taskgroup():
            run("cancel taskgroup if(n > 3)", n=3)
            run("cancellation point taskgroup")
            reached = True
            run("cancel taskgroup")
            reached = False
        assert reached


def test_depend_objects(runtime):
    """``depobj`` makes, changes and destroys a depend object."""
    x = np.zeros(3)
    held = run("depobj(o) depend(out: x)", x=x)
    omp.task(depend=[held])(lambda: x.fill(2))()
    run("depobj(o) update(in)", o=held)
    assert repr(held).startswith("depobj(in(")
    total = encounter("task depend(depobj: o)", x.sum, (), o=held)
    assert total.result() == 6
    run("depobj(o) destroy", o=held)
    assert repr(held) == "depobj(destroyed)"
    with pytest.raises(omp.DependError, match="no depend object"):
        run("depobj(o) update(in)", o=3)


def test_interop(sim):
    """``interop`` gives a stream, orders it with tasks, and ends its use."""
    x, seen = np.zeros(3), []
    first = omp.target(nowait=True, depend=[omp.out(x)])(lambda x: x.fill(2))(x)
    held = run("interop init(targetsync: o) depend(inout: x)", x=x)
    held.stream.launch(lambda: seen.append(x.sum()))
    assert run("interop use(o)", o=held) is held
    run("interop destroy(o)", o=held)
    after = omp.task(depend=[omp.in_(x)])(lambda: seen.append("after"))()
    after.result()
    assert first.done()
    assert seen == [6, "after"]
    with pytest.raises(omp.UsageError):
        run("interop use(o)", o=held)
    with pytest.raises(omp.UsageError, match="no interop object"):
        run("interop destroy(o)", o=3)


def test_acc_directives(runtime):
    """OpenACC's stand-alone directives act as the API's calls do."""
    x = np.arange(4.0)
    run("enter data copyin(x) async(1)", "acc", x=x)
    run("wait(1)", "acc")
    acc.parallel(present=["x"] if omp.get_num_devices() else [])(lambda x: x.fill(5))(x)
    run("update self(x[0:2])", "acc", x=x)
    assert x[:2].tolist() == [5, 5]
    run("exit data copyout(x)", "acc", x=x)
    assert (x == 5).all()
    run("enter data attach(x)", "acc", x=x)
    run("exit data detach(x)", "acc", x=x)
    run("wait if(n > 3)", "acc", n=3)


def test_acc_devices_and_queues():
    """``init``, ``set`` and ``shutdown`` choose devices and queues."""
    with omp.Runtime("sim:2"):
        run("init device_type(sim) device_num(n)", "acc", n=1)
        assert acc.get_device_num(acc.device_sim) == 1
        run("set device_num(0) default_async(5)", "acc")
        assert (acc.get_device_num(acc.device_sim), acc.get_default_async()) == (0, 5)
        run("set device_type(host) if(n)", "acc", n=0)
        assert acc.get_device_type() == acc.device_sim
        run("set device_type(host)", "acc")
        assert acc.get_device_type() == acc.device_host
        run("shutdown device_type(*)", "acc")
        acc.set_default_async(acc.async_default)


# -- blocks that stay --------------------------------------------------------------------------------


def test_target_data_gives_device_arrays(runtime):
    """A ``target data`` block gives the device arrays of ``use_device_ptr``, then of ``use_device_addr``."""
    x, y = np.zeros(3), np.ones(4)
    with manage("target data map(x, y) use_device_addr(y) use_device_ptr(x)", x=x, y=y) as (first, second):
        assert (first.shape, second.shape) == ((3,), (4,))


def test_acc_data_and_host_data(runtime):
    """OpenACC's data blocks map, and give device arrays."""
    x = np.zeros(3)
    with manage("data copy(x)", "acc", x=x):
        with manage("host_data use_device(x)", "acc", x=x) as (d,):
            assert d.shape == (3,)
        acc.parallel(lambda x: x.fill(2))(x)
    assert (x == 2).all()
    with manage("data default(none)", "acc"):
        pass


def test_a_taskgroup_waits(runtime):
    """A ``taskgroup`` block waits, and reduces."""
    total = np.zeros(())
    add = omp.task(in_reduction={"+": ["total"]})(lambda value, total: np.add(total, value, out=total))
    with manage("taskgroup task_reduction(+: total)", total=total):
        for value in range(4):
            add(value, total)
    assert total == 6


def test_every_directive_has_its_call():
    """Every directive in the tables is carried out by a decorator, a manager or a call."""
    from offload.pragma.calls import runs_of

    tables = {Form.STAYS: "MANAGERS", Form.ALONE: "RUNS"}
    for (language, name), row in DIRECTIVES.items():
        if row.form is Form.INNER:
            continue
        key = DirectiveCall(parse(_shortest(row), language)).key
        assert key in getattr(runs_of(key), tables.get(row.form, "DECORATORS")), (language, name)


_SHORTEST = {
    "map": "map(tofrom: x)",
    "to": "to(x)",
    "depend": "depend(in: x)",
    "init": "init(targetsync: o)",
    "use_device": "use_device(x)",
    "copy": "copy(x)",
    "copyin": "copyin(x)",
    "copyout": "copyout(x)",
    "self": "self(x)",
    "default_async": "default_async(1)",
}


def _shortest(row):
    """Return a string of a directive that has the clauses it needs."""
    arguments = "(o)" if row.name in ("depobj", "cache") else ""
    return f"{row.name}{arguments} {_SHORTEST[row.needs[0]] if row.needs else ''}"
