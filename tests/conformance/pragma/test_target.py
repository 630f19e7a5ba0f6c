"""`target` with each of its clauses, as a block, as a comment and over a function, against `offload.target`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import offload
from tests.conformance.pragma.spelling import dedent

N = 8


def arrays():
    return np.arange(float(N)), np.arange(10.0, 10.0 + N), 3


@dataclass(frozen=True)
class Row:
    """Clauses as a string and as keywords; the body, and lines of the program before and after it."""

    string: str
    keywords: str
    body: str = "y += x * n"
    before: str = "pass"
    after: str = "pass"
    call_body: str = ""  # where a parameter of the function is the section alone
    parameters: str = "x, y, n"
    function: bool = True


PRESENT = (
    "offload.target_enter_data(map=[to(x), to(y)])",
    "offload.target_exit_data(map=[delete(x), from_(y)])",
)
DEVICE = ("d = offload.target_alloc(8, 'f8'); offload.target_memset(d, 0)", "offload.target_free(d)")

ROWS = {
    "no clause": Row("", ""),
    "map": Row("map(to: x) map(tofrom: y)", 'map=[to("x"), tofrom("y")]'),
    "several items": Row("map(tofrom: x, y)", 'map=[tofrom("x", "y")]', "y += x; x += 1"),
    "commas": Row("map(to: x), map(tofrom: y)", 'map=[to("x"), tofrom("y")]'),
    "no map type": Row("map(x) map(y)", 'map=["x", "y"]', "y += x; x += 1"),
    "from": Row("map(to: x) map(from: y)", 'map=[to("x"), from_("y")]', "y[...] = x"),
    "alloc": Row("map(alloc: x) map(tofrom: y)", 'map=[alloc("x"), tofrom("y")]', "x[...] = 5.0; y += x"),
    "storage": Row("map(storage: x) map(y)", 'map=[alloc("x"), "y"]', "x[...] = 5.0; y += x"),
    "always": Row("map(always, to: x) map(always, tofrom: y)", 'map=[to("x", always=True), tofrom("y", always=True)]'),
    "close": Row("map(close, to: x) map(close: y)", 'map=[to("x"), "y"]'),
    "present": Row(
        "map(present, to: x) map(present, tofrom: y)",
        'map=[to("x", present=True), tofrom("y", present=True)]',
        before=PRESENT[0],
        after=PRESENT[1],
    ),
    "always present": Row(
        "map(always present, to: x) map(always, present, tofrom: y)".replace("always present", "always, present"),
        'map=[to("x", always=True, present=True), tofrom("y", always=True, present=True)]',
        before=PRESENT[0],
        after=PRESENT[1],
    ),
    "sections": Row(
        "map(to: x[0:4]) map(tofrom: y[4:4])",
        'map=[to("x[0:4]"), tofrom("y[4:4]")]',
        "y[4:8] += x[0:4] * n",
        call_body="y += x * n",
    ),
    "strides": Row("map(to: x[0:4:2]) map(y[0:4])", 'map=[to("x[0:4:2]"), "y[0:4]"]', "", call_body="y += x * n"),
    "expressions": Row(
        "map(to: x[n - 3:n + 1]) map(tofrom: y[n + 1:4])",
        'map=[to("x[n - 3:n + 1]"), tofrom("y[n + 1:4]")]',
        "y[n + 1:] += x[:n + 1] * n",
        call_body="y += x * n",
    ),
    "ellipsis": Row("map(to: x[...]) map(tofrom: y[...])", 'map=[to("x"), tofrom("y")]', function=False),
    "nowait": Row("nowait depend(inout: y)", 'nowait=True, depend=[inout("y")]', after="offload.taskwait()"),
    "nowait with a value": Row(
        "nowait(n > 2) depend(inout: y)", 'nowait=True, depend=[inout("y")]', after="offload.taskwait()"
    ),
    "nowait that is false": Row("nowait(n > 5) depend(inout: y)", 'depend=[inout("y")]'),
    "device": Row("device(offload.get_num_devices() - 1)", "device=offload.get_num_devices() - 1"),
    "device by a name": Row("device(n - 3)", "device=0"),
    "the host": Row("device(-1)", "device=-1"),
    "if": Row("if(n > 5)", "if_=False"),
    "if with the directive": Row("if(target: n > 1)", "if_=True"),
    "private": Row("private(x)", 'private=["x"]', "x[...] = 2.0; y += x"),
    "firstprivate": Row("firstprivate(x)", 'firstprivate=["x"]', "x += 1; y += x"),
    "firstprivate scalar": Row("firstprivate(n)", 'firstprivate=["n"]', "y += n * x"),
    "defaultmap": Row("defaultmap(to)", 'defaultmap="to"', "x += y"),
    "defaultmap of a category": Row(
        "defaultmap(to: aggregate) map(tofrom: y)", 'defaultmap={"aggregate": "to"}, map=[tofrom("y")]'
    ),
    "two defaultmaps": Row(
        "defaultmap(tofrom: aggregate) defaultmap(none: scalar) firstprivate(n)",
        'defaultmap={"aggregate": "tofrom", "scalar": "none"}, firstprivate=["n"]',
    ),
    "is_device_ptr": Row("is_device_ptr(d)", 'is_device_ptr=["d"]', "d += n; y += d", *DEVICE, parameters="d, y, n"),
    "has_device_addr": Row(
        "has_device_addr(d)", 'has_device_addr=["d"]', "d += n; y += d", *DEVICE, parameters="d, y, n"
    ),
    "priority": Row(
        "priority(n) nowait depend(inout: y)",
        'priority=3, nowait=True, depend=[inout("y")]',
        after="offload.taskwait()",
    ),
    "all_memory": Row(
        "nowait depend(inout: omp_all_memory)",
        "nowait=True, depend=[inout(all_memory)]",
        after="offload.taskwait()",
    ),
}


def block_of(row):
    body = row.body.split("; ")
    lines = "\n        ".join(body)
    return (
        f"@directives\ndef program(x, y, n):\n    {row.before}\n"
        f'    with omp("target {row.string}"):\n        {lines}\n    {row.after}\n'
    )


def body_of(row):
    lines = "\n    ".join((row.call_body or row.body).split("; "))
    return (
        f"def region({row.parameters}):\n    {lines}\n\n"
        f"def program(x, y, n):\n    {row.before}\n    region({row.parameters})\n    {row.after}\n"
    )


@pytest.mark.parametrize("name", ROWS)
def test_clauses(twins, name):
    """Each clause of `target` means in a string what the keyword of the decorator means."""
    row = ROWS[name]
    call = f"@offload.target({row.keywords})\n{body_of(row)}"
    function = f'@omp("target {row.string}")\n{body_of(row)}'
    if not row.body:  # a section with a stride is for functions alone
        twins.same(function, call, arrays, comments=False)
    else:
        twins.same(block_of(row), call, arrays, functions=function if row.function else None)


TYPES = ("in", "out", "inout", "mutexinoutset", "inoutset")
WORDS = {name: f"{name}_" if name == "in" else name for name in TYPES}


@pytest.mark.parametrize("first", TYPES)
@pytest.mark.parametrize("second", TYPES)
def test_depend_types(twins, first, second):
    """Two regions have the edges between them that the two dependence types have in the call."""
    strings = f"""
        @directives
        def program(x, y):
            with omp("target nowait depend({first}: x) map(to: x)"):
                x + 1
            with omp("target nowait depend({second}: x) depend(out: y) map(to: x) map(from: y)"):
                y[...] = x
    """
    calls = f"""
        def program(x, y):
            @offload.target(nowait=True, depend=[{WORDS[first]}("x")], map=[to("x")])
            def one(x):
                x + 1

            @offload.target(nowait=True, depend=[{WORDS[second]}("x"), out("y")], map=[to("x"), from_("y")])
            def two(x, y):
                y[...] = x

            one(x)
            two(x, y)
    """
    outcome = twins.same(dedent(strings), dedent(calls), lambda: arrays()[:2])
    assert [directive for directive, _ in outcome.nodes[:2]] == ["target", "target"]


def test_sections_in_depend(twins):
    """Sections in `depend` are lower : length, in brackets of one or several dimensions, and partly overlapping ones
    are ordered."""
    strings = """
        @directives
        def program(a, n):
            with omp("target nowait depend(out: a[0][0:n]) map(a[0:1, 0:n])"):
                a[0, 0:n] += 1
            with omp("target nowait depend(out: a[0, n:n]) map(a[0:1, n:n])"):
                a[0, n:2 * n] += 2
            with omp("target nowait depend(inout: a[0:1, n - 1:2]) map(tofrom: a[0:1, n - 1:2])"):
                a[0, n - 1:n + 1] *= 10
            with omp("target nowait depend(in: a[1, :]) map(tofrom: a[1:1])"):
                a[1] += 1
            omp("taskwait")
    """
    calls = """
        def program(a, n):
            @offload.target(nowait=True)
            def add(part, value):
                part += value

            @offload.target(nowait=True)
            def scale(part):
                part *= 10

            add.options(depend=[out(a[0, :n])])(a[0:1, 0:n], 1)
            add.options(depend=[out(a[0, n:])])(a[0:1, n:], 2)
            scale.options(depend=[inout(a[0:1, n - 1:n + 1])])(a[0:1, n - 1:n + 1])
            add.options(depend=[in_(a[1])])(a[1:2], 1)
            offload.taskwait()
    """
    outcome = twins.same(dedent(strings), dedent(calls), lambda: (np.zeros((2, 8)), 4))
    assert outcome.arguments[0].tolist() == [[1, 1, 1, 10, 20, 2, 2, 2], [1] * 8]
    assert {(0, 2, "output"), (1, 2, "output")} <= {edge for edge in outcome.edges if edge[2] != "wait"} | {
        (a, b, "output") for a, b, kind in outcome.edges if kind in {"flow", "anti", "output"}
    }


def test_iterator_in_depend(twins):
    """An iterator stands for the items of each value of its range."""
    strings = """
        @directives
        def program(x, n):
            for i in range(n):
                with omp("target nowait depend(out: (0, i))"):
                    x[i] = i
            with omp("target nowait depend(iterator(i=0:n), in: (0, i)) depend(out: x)"):
                x += 1
            with omp("target nowait depend(iterator(k=n-1:-1:-2), in: (0, k))"):
                x[0:2] * 2
            omp("taskwait")
    """
    calls = """
        @offload.target(nowait=True)
        def one(x, i):
            x[i] = i

        @offload.target(nowait=True)
        def two(x):
            x += 1

        @offload.target(nowait=True)
        def three(x):
            x[0:2] * 2

        def program(x, n):
            for i in range(n):
                one.options(depend=[out((0, i))])(x, i)
            two.options(depend=[in_(*[(0, i) for i in range(n)]), out(x)])(x)
            three.options(depend=[in_(*[(0, k) for k in range(n - 1, -1, -2)])])(x)
            offload.taskwait()
    """
    twins.same(dedent(strings), dedent(calls), lambda: (np.zeros(4), 4))


def test_iterator_in_map(twins):
    """An iterator in `map` stands for the items of each value of its range."""
    strings = """
        @directives
        def program(rows, n):
            omp("target enter data map(iterator(i=0:n), to: rows[i])")
            first = rows[0]
            with omp("target map(present, tofrom: first)"):
                first += 1
            omp("target exit data map(iterator(i=0:n:1), from: rows[i])")
    """
    calls = """
        @offload.target(map=[tofrom("first", present=True)])
        def region(first):
            first += 1

        def program(rows, n):
            offload.target_enter_data(map=[to(*rows[:n])])
            region(rows[0])
            offload.target_exit_data(map=[from_(*rows[:n])])
    """
    twins.same(dedent(strings), dedent(calls), lambda: ([np.zeros(4) for _ in range(3)], 3))


CLASS = """
class Pair:
    def __init__(self, x, y):
        self.x, self.y = x, y

{declare}

def make():
    return Pair(np.ones(4), np.zeros(4))
"""


@pytest.mark.parametrize(("clause", "keyword"), [("tofrom: p", 'tofrom("p")'), ("p", '"p"')])
def test_mapped_objects(twins, clause, keyword):
    """An object with a mapper is a list item, and the body has its arrays on the device."""
    declare = "offload.declare_mapper(Pair, lambda p: [to(p.x), tofrom(p.y)])"
    head = CLASS.format(declare=declare)
    strings = head + dedent(f"""
        @directives
        def program():
            p = make()
            with omp("target map({clause})"):
                assert not isinstance(p.x, np.ndarray)
                p.y += p.x
            return p.y
    """)
    calls = head + dedent(f"""
        @offload.target(map=[{keyword}])
        def region(p):
            p.y += p.x

        def program():
            p = make()
            region(p)
            return p.y
    """)
    assert twins.same(strings, calls).value.tolist() == [1] * 4


def test_named_mappers(twins):
    """`mapper(name)` chooses the declared mapper."""
    declare = 'offload.declare_mapper(Pair, lambda p: [tofrom(p.x)], "other")'
    head = CLASS.format(declare=declare)
    strings = head + dedent("""
        @directives
        def program():
            p = make()
            with omp("target map(mapper(other), tofrom: p)"):
                assert not isinstance(p.x, np.ndarray)
                p.x += 1
            return p.x
    """)
    calls = head + dedent("""
        @offload.target(map=[tofrom("p", mapper="other")])
        def region(p):
            p.x += 1

        def program():
            p = make()
            region(p)
            return p.x
    """)
    assert twins.same(strings, calls).value.tolist() == [2] * 4


def test_attributes_are_items(twins):
    """A list item may be an attribute, or a section of an attribute."""
    head = CLASS.format(declare="")
    strings = head + dedent("""
        @directives
        def program():
            p = make()
            with omp("target data map(tofrom: p.x[0:4]) map(from: p.y)"):
                x, y = p.x, p.y
                with omp("target"):
                    x += 1
                    y[...] = 2 * x
                omp("target update from(p.x[1:2])")
            return p.x, p.y
    """)
    calls = head + dedent("""
        @offload.target
        def region(x, y):
            x += 1
            y[...] = 2 * x

        def program():
            p = make()
            with offload.target_data(map=[tofrom(p.x), from_(p.y)]):
                region(p.x, p.y)
                offload.target_update(from_=[p.x[1:3]])
            return p.x, p.y
    """)
    twins.same(strings, calls)


def test_the_decorated_function_has_options(twins):
    """A string over a function gives the object of the decorator, with ``options``."""
    module = twins.string(
        dedent("""
        @omp("target map(to: x) map(tofrom: y)")
        def program(x, y, n):
            y += x * n
            return n
        """)
    )
    x, y, _ = arrays()
    expected = y + x * 2 + x * 3
    assert type(module) is type(offload.target(lambda: None))
    assert module(x, y, 2) == 2
    assert module.options(nowait=True, depend=[offload.inout(y)])(x, y, 3).result() == 3
    assert (y == expected).all()


def test_functions_see_parameters_and_globals(twins):
    """Items and expressions of a string over a function use its parameters and visible names at each call."""
    strings = """
        LIMIT = 2

        @omp("target map(tofrom: y[0:n]) if(n > LIMIT) nowait(n > 1000) device(where)")
        def region(y, n, where=0):
            y += 1
            return offload.is_initial_device()

        def program(y):
            global LIMIT
            found = [region(y, 4), region(y, 1)]
            LIMIT = 5
            return [*found, region(y, 4)]
    """
    calls = """
        @offload.target(map=[tofrom("y[0:n]")], device=0)
        def region(y, n):
            y += 1
            return offload.is_initial_device()

        def program(y):
            host = region.options(if_=False)
            return [region(y, 4), host(y, 1), host(y, 4)]
    """
    outcome = twins.same(dedent(strings), dedent(calls), lambda: (np.zeros(8),), comments=False)
    assert outcome.value == [False, True, True]


def test_strings_over_methods(twins):
    """A string over a method makes a method, whose items may be attributes of ``self``."""
    strings = """
        class Field:
            def __init__(self, a):
                self.a, self.rate = a, 3.0

            @omp("target map(tofrom: a) nowait depend(inout: self.a)")
            def scale(self, a):
                a *= 2

            @directives
            def run(self):
                a = self.a
                with omp("target map(tofrom: a) depend(inout: self.a)"):
                    a += self.rate

        def program(a):
            field = Field(a)
            field.scale(a)
            field.run()
    """
    calls = """
        class Field:
            def __init__(self, a):
                self.a, self.rate = a, 3.0

        @offload.target(map=[tofrom("a")])
        def scale(field, a):
            a *= 2

        @offload.target(map=[tofrom("a")])
        def run(a, field):
            a += field.rate

        def program(a):
            field = Field(a)
            scale.options(nowait=True, depend=[inout(a)])(field, a)
            run.options(depend=[inout(a)])(a, field)
    """
    assert twins.same(dedent(strings), dedent(calls), lambda: (np.ones(4),)).arguments[0].tolist() == [5] * 4
