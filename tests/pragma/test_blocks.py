"""Blocks that become functions: what they capture, whose variables they use, and the results that they give."""

import linecache
import threading
import weakref
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import count
from typing import NamedTuple

import numpy as np
import pytest

import offload
from offload.errors import ClauseError, PragmaError
from offload.pragma import acc, directives, omp
from tests.patience import until_gone

_NUMBERS = count()


@pytest.fixture(autouse=True)
def on_sim_1():
    """Give the test a runtime with a simulated device."""
    with offload.Runtime("sim:1") as runtime:
        yield runtime


def made(text, **names):
    """Return the function `f` of a text."""
    file = f"<block {next(_NUMBERS)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    found = {"omp": omp, "acc": acc, "directives": directives, "np": np, "__name__": "blocks", **names}
    exec(compile(text, file, "exec"), found)
    return found["f"]


def refused(text, **names):
    """Return the error of a text, and its token."""
    with pytest.raises(PragmaError) as caught:
        made(text, **names)
    error = caught.value
    return error, error.text[error.offset - 1 : error.end_offset - 1]


# -- module-level and enclosing names --------------------------------------------------------------------
G = np.arange(4.0)
EVENT = None


@directives
def of_module():
    with omp("target map(from: s)"):
        s = (G * 2).sum()
    with omp("target data map(to: G) use_device_addr(G)"):
        kind = type(G).__name__
        with omp("target map(from: t)"):
            t = G.sum()
    return float(s), float(t), kind, type(G).__name__


def test_arrays_of_the_module():
    """A module-level array is a device array in a target block, and in the block of `use_device_addr`."""
    assert of_module() == (12.0, 6.0, "SimArray", "ndarray")


def test_the_first_iterable_of_a_comprehension():
    """It belongs to the code around the comprehension: its name is captured, kept, and mapped like any other."""
    with pytest.raises(PragmaError, match="assigns xs"):
        made(
            """
@directives
def f():
    xs = [0]
    with omp("task"):
        xs = [1, 2]
    omp("taskwait")
    return [xs for xs in xs]
"""
        )
    early = made(
        """
def f(gate):
    x, found = [0], []
    @directives
    def inner():
        with omp("task"):
            gate.wait()
            found.append([x for x in x])
    inner()
    x = [1]
    gate.set()
    omp("taskwait")
    return found
"""
    )
    assert early(threading.Event()) == [[0]]
    local = made(
        """
@directives
def f(found):
    x = [1, 2]
    with omp("task"):
        found.append([x for x in x])
    omp("taskwait")
"""
    )
    local(found := [])
    assert found == [[1, 2]]
    kinds = made(
        """
@directives
def f(found):
    with omp("target"):
        found.extend([type(x) for x in [x] for x in [x]])
    return found
""",
        x=np.ones(2),
    )
    assert kinds([]) != [np.ndarray]


def test_arrays_of_enclosing_functions():
    """So is one of an enclosing function, whose variable keeps its value."""
    x = np.arange(3.0)

    @directives
    def inner():
        with omp("target data map(tofrom: x) use_device_addr(x)"):
            kind = type(x).__name__
            with omp("target"):
                x[0] = 7
        return kind

    assert inner() == "SimArray"
    assert x.tolist() == [7, 1, 2]


def test_a_local_array_has_its_own_value_again():
    """After the block of `use_device_addr`, and after an error in it, a local name holds the host array."""
    f = made(
        "@directives\ndef f(x, fails):\n    try:\n        with omp('target data map(tofrom: x) use_device_addr(x)'):\n"
        "            if fails:\n                raise KeyError\n    except KeyError:\n        pass\n    return x\n"
    )
    x = np.zeros(2)
    assert f(x, False) is f(x, True) is x


@directives
def detached():
    with omp("task detach(EVENT)"):
        pass
    return EVENT


def test_an_event_of_the_module():
    """`detach` of a module-level name that holds no event binds a new one to it."""
    event = detached()
    assert isinstance(event, offload.Event)
    assert EVENT is event
    event.fulfill()
    offload.taskwait()


def test_an_event_that_is_held_is_attached():
    """A name that holds an event keeps it; one that is unbound gets one."""
    f = made(
        "@directives\ndef f(event, log):\n    with omp('task detach(event)'):\n        log.append(1)\n"
        "    with omp('task detach(other)'):\n        log.append(2)\n    other.fulfill()\n    return event\n"
    )
    event = offload.Event()
    assert f(event, []) is event
    event.fulfill()
    offload.taskwait()


# -- teams -------------------------------------------------------------------------------------------------
def test_a_parallel_with_private_variables():
    """The block is a function, but all other names are the enclosing function's, loop variables too."""
    f = made(
        "@directives\ndef f(log):\n    t, n = 5, 0\n    with omp('parallel private(u) firstprivate(t)'):\n"
        "        t += 1\n        u = t\n        n += u\n        for i in range(3):\n            n += i\n"
        "    return t, n, i\n"
    )
    assert f([]) == (5, 9, 2)


def test_default_none_of_a_parallel():
    """Each name of the block is in a clause; the error is at the first that is not."""
    text = "@directives\ndef f(a, b):\n    with omp('parallel default(none) shared(a)'):\n"
    text += "        a[0] = 1\n        b[0] = a[0]\n"
    error, token = refused(text)
    assert (token, error.lineno) == ("b", 5)
    made(text.replace("shared(a)", "shared(a, b)"))([0], [0])


def test_shared_of_a_parallel_around():
    """`shared` of a parallel concerns the tasks inside, as in C."""
    f = made(
        "@directives\ndef f():\n    n = 0\n    with omp('parallel shared(n)'):\n        with omp('task'):\n"
        "            n += 1\n    return n\n"
    )
    assert f() == 1


# -- values ------------------------------------------------------------------------------------------------
def test_captured_and_unbound():
    """A name is captured with its value at the encounter; an unbound one is unbound in the block."""
    f = made(
        "@directives\ndef f(bound, log):\n    if bound:\n        v = 1\n    with omp('task'):\n        log.append(v)\n"
        "    v = 2\n    omp('taskwait')\n"
    )
    log = []
    f(True, log)
    assert log == [1]
    with pytest.raises(ExceptionGroup) as caught:
        f(False, log)
    assert isinstance(caught.value.exceptions[0], UnboundLocalError)


@pytest.mark.parametrize("value", ["3", "'a'", "(1,)", "np.float64(1)"])
def test_what_does_not_change_in_place(value):
    """`+=` on it is an error when the block is encountered, at the statement."""
    f = made(f"@directives\ndef f():\n    v = {value}\n    with omp('task'):\n        v += v\n    return v\n")
    with pytest.raises(PragmaError) as caught:
        f()
    assert caught.value.text.strip() == "v += v"


def test_variables_of_dependences_on_numbers():
    """A target reads a variable when it runs, after tasks that it depends on, and stores before others follow."""
    f = made(
        "@directives\ndef f(x):\n    t = 1\n    log = []\n    with omp('task shared(t) depend(inout: t)'):\n"
        "        t = 5\n    with omp('target map(tofrom: t) map(to: x) depend(inout: t) nowait'):\n"
        "        t += x.sum()\n"
        "    with omp('target map(tofrom: t) depend(inout: t) nowait'):\n        t *= 2\n"
        "    with omp('task shared(t) depend(in: t)'):\n        log.append(float(t))\n    omp('taskwait')\n"
        "    return log, t\n"
    )
    assert f(np.arange(3.0)) == ([16.0], 16.0)


@pytest.mark.parametrize("others", ["", "s += 0"])
def test_a_number_that_a_target_waits_for(others):
    """A target that only reads a variable in its `depend` reads it in its turn, and leaves it alone; arrays as ever."""
    f = made(
        f"""@directives
def f(x, s, gate):
    with omp("task shared(s) depend(out: s)"):
        gate.wait()
        s = s + 6
    with omp("target map(tofrom: s) map(tofrom: x) depend(in: s) nowait"):
        x += s
        {others}
    with omp("target map(tofrom: s) map(tofrom: x) nowait"):
        x += s
    gate.set()
    omp("taskwait")
    return s
"""
    )
    x, gate = np.zeros(2), threading.Event()
    assert f(x, 1, gate) == 7
    assert x.tolist() == [8, 8]
    y, s = np.zeros(2), np.ones(2)
    assert f(y, s, gate).tolist() == [7, 7]


def test_a_result_outlives_its_function():
    """A deferred block may give its result after the function has returned."""
    f = made(
        "@directives\ndef f(x, log):\n    with omp('target map(from: s) map(to: x) nowait depend(out: s)'):\n"
        "        s = x.sum()\n    with omp('task depend(in: s) shared(s)'):\n        log.append(float(s))\n"
    )
    log = []
    f(np.arange(3.0), log)
    offload.taskwait()
    assert log == [3.0]


def test_a_mapped_array_that_is_bound_to_another_object():
    """It is a ClauseError when the body has run; a changed array is not."""
    f = made("@directives\ndef f(x):\n    with omp('target map(tofrom: x)'):\n        x += 1\n        x = x * 2\n")
    with pytest.raises(ClauseError, match=r"x\[\.\.\.\]"):
        f(np.zeros(2))


# -- sections ----------------------------------------------------------------------------------------------
def test_several_sections_of_an_array():
    """Each keeps the indices of the whole array."""
    f = made(
        "@directives\ndef f(a, n):\n    with omp('target map(to: a[0:2]) map(tofrom: a[n:3])'):\n"
        "        a[n] = a[0] + a[1]\n        a[n + 1:n + 3] = a[0:2]\n        a[-1] += 100\n"
    )
    a = np.arange(10.0)
    f(a, 7)
    assert a.tolist() == [0, 1, 2, 3, 4, 5, 6, 1, 0, 101]
    outside = made("@directives\ndef f(a):\n    with omp('target map(to: a[0:2]) map(to: a[4:2])'):\n        a[3]\n")
    with pytest.raises(IndexError, match="3"):
        outside(a)


def test_a_single_element():
    """An element is a section of one element."""
    f = made("@directives\ndef f(a, i):\n    with omp('target map(tofrom: a[i, 1])'):\n        a[i, 1] += 5\n")
    a = np.zeros((3, 2))
    f(a, 2)
    assert a.tolist() == [[0, 0], [0, 0], [0, 5]]


def test_arrays_in_lists_and_attributes():
    """Elements of lists and members of objects are device arrays in the block, under the text of the item."""

    class Holder:
        def __init__(self):
            self.x = np.ones(2)
            self.rows = [np.ones(2), np.zeros(2)]

    f = made(
        "@directives\ndef f(h, rows):\n    with omp('target map(tofrom: h.x)'):\n        h.x += 1\n"
        "    with omp('target map(tofrom: rows[1]) map(to: rows[0])'):\n        rows[1][:] = rows[0] * 3\n"
        "    with omp('target map(tofrom: h.rows[0][0:1])'):\n        h.rows[0][0] = 9\n"
    )
    h, rows = Holder(), [np.ones(2), np.zeros(2)]
    f(h, rows)
    assert (h.x.tolist(), rows[1].tolist(), h.rows[0].tolist()) == ([2, 2], [3, 3], [9, 1])


# -- taskloops -----------------------------------------------------------------------------------------------
def test_numbers_combine_in_the_order_of_the_parts():
    """The result does not depend on the order in which tasks run, and arrays are reduced alongside."""
    f = made(
        "@directives\ndef f(words, total):\n    s, low = (), 9.5\n    n = 10\n"
        "    with omp('taskloop reduction(+: n, total) reduction(min: low) grainsize(2)'):\n"
        "        for w in words:\n            if w < 0:\n                continue\n            n += w\n"
        "            total += w\n            low = min(low, w)\n    return n, low\n"
    )
    total = np.zeros(())
    assert f([3, -1, 4, 1, 5], total) == (23, 1)
    assert total == 13
    assert f(iter([2.5]), total) == (12.5, 2.5)
    assert f([], total) == (10, 9.5)


@pytest.mark.parametrize("form", ["s += i", "s = s + i"])
@pytest.mark.parametrize("start", [Fraction(1, 2), Decimal("0.5"), 1, 1.5, 2j, np.int8(3), np.float32(0.5)])
def test_numbers_of_all_types_are_reduced(start, form):
    """A reduction of a taskloop sums numbers of all types, and keeps the type."""
    f = made(
        f"""@directives
def f(s):
    with omp("taskloop num_tasks(3) reduction(+: s)"):
        for i in range(6):
            {form}
    return s
"""
    )
    assert f(start) == start + 15
    assert type(f(start)) is type(start)


@pytest.mark.parametrize("value", ["ab", b"a", (1,), [1], None, timedelta(1), {1}])
def test_what_a_reduction_cannot_combine(value):
    """A reduction of a value that is neither a number nor an array is an error, and the loop does not run."""
    ran = []

    @directives
    def f(s):
        with omp("taskloop reduction(+: s)"):
            for i in range(2):
                ran.append(i)
                s += value

    with pytest.raises(ClauseError, match="a reduction combines numbers and arrays"):
        f(value)
    assert not ran


@pytest.mark.parametrize("shape", [(2,), ()])
def test_a_reduced_array_that_is_bound_to_another_object(shape):
    """A loop that binds the name of a reduced array to a new object is an error that names it."""

    @directives
    def f(s):
        with omp("taskloop num_tasks(2) reduction(+: s)"):
            for i in range(2):
                s = s + i

    with pytest.raises(ExceptionGroup) as caught:
        f(np.zeros(shape))
    assert all(isinstance(error, ClauseError) for error in caught.value.exceptions)
    assert caught.match("sub-exception")
    assert "reduction: s is an array, but the loop binds" in str(caught.value.exceptions[0])


def test_each_task_of_a_loop_has_its_copy():
    """`firstprivate` of a taskloop gives each task a copy of its own."""
    f = made(
        "@directives\ndef f(x, log):\n    with omp('taskloop firstprivate(x) num_tasks(3)'):\n"
        "        for i in range(3):\n            x += 1\n            log.append(x.tolist())\n    return x\n"
    )
    log = []
    assert f(np.zeros(1), log).tolist() == [0]
    assert log == [[1]] * 3


def test_graphs_are_not_recorded_again():
    """A taskgraph replays for equal arguments."""
    f = made(
        "@directives\ndef f(x, k):\n    with omp('taskgraph'):\n        with omp('task depend(inout: x)'):\n"
        "            x += k\n        with omp('task depend(inout: x)'):\n            x *= 2\n"
    )
    x = np.zeros(1)
    for _ in range(3):
        f(x, 1)
    assert x.tolist() == [14]
    blocks = [cell.cell_contents for cell in f.__closure__]
    (graph,) = [block.construct for block in blocks if hasattr(getattr(block, "construct", None), "records")]
    assert [record.n_tasks for record in graph.records] == [2]


def test_a_block_in_a_block_shares_its_variable():
    """A variable of a block that a block inside of it shares is the outer block's own."""
    f = made(
        """
@directives
def f(found):
    with omp("task"):
        t = 0
        with omp("task shared(t)"):
            t += 1
        omp("taskwait")
        found.append(t)
    omp("taskwait")
    return found
"""
    )
    assert f([]) == [1]


def test_where_a_variable_is_that_another_block_shares():
    """The error is at the name in the block that has it in no clause, not at a block inside."""
    error, token = refused(
        """
@directives
def f(found):
    t = 1
    with omp("task shared(t)"):
        t += 1
    with omp("task"):
        with omp("task shared(t)"):
            found.append(t)
        found.append(t)
    omp("taskwait")
    return t
"""
    )
    assert (token, error.lineno) == ("t", 10)


# -- lists, dicts and objects of which arrays are mapped ----------------------------------------------------
class Owner:
    """An object with a list, a dict and an array."""

    def __init__(self):
        self.rows = [np.zeros(2), np.zeros(2)]
        self.y = np.zeros(2)
        self.inner = {"a": np.zeros(2)}
        self.n = 0

    def add(self):
        """Add to the array, and count."""
        self.y += 1
        self.n += 1


@directives
def stores(xs, d, o):
    with omp("target map(tofrom: xs[0])"):
        xs[0] += 1
        xs.append(3)
        xs[1] = 7
        xs += [4]
        xs.insert(0, "first")
        assert isinstance(xs[1], type(xs[1])) and len(xs) == 5  # noqa: PT018  # one look at both
    with omp("target map(tofrom: d['a'])"):
        d["a"] += 1
        d["n"] = 5
        d.update(m=6)
        del d["old"]
        for name, value in d.items():
            if name == "a":
                value += 1  # noqa: PLW2901  # in place
    with omp("target map(tofrom: o.rows[0], o.inner['a'])"):
        for k in range(1):
            o.rows[k] += k + 1
        o.rows.append(o.inner.pop("a"))
        o.n = 3


def test_stores_in_lists_and_dicts_with_mapped_arrays():
    """Elements that a block stores in a list, a dict or an object reach these, next to arrays that are mapped."""
    a, b, x, y = (np.zeros(2) for _ in range(4))
    xs, d, o = [x, y], {"a": a, "old": 1}, Owner()
    held = o.inner["a"]
    stores(xs, d, o)
    assert xs == ["first", x, 7, 3, 4] or xs[1] is x
    assert [xs[0], *xs[2:]] == ["first", 7, 3, 4]
    assert x.tolist() == [1, 1]
    assert b.tolist() == [0, 0]
    assert (list(d), d["n"], d["m"]) == (["a", "n", "m"], 5, 6)
    assert d["a"] is a
    assert a.tolist() == [2, 2]
    assert o.rows[0].tolist() == [1, 1]
    assert o.rows[2] is held
    assert (o.n, o.inner) == (3, {})


@pytest.mark.parametrize(
    ("item", "line", "holder", "n"),
    [
        ("xs[0]", "xs += [4]", lambda x: [x, 5], 3),
        ("xs[0]", "xs *= 2", lambda x: [x], 2),
        ("xs[0]", "xs = xs[:1]", lambda x: [x, 5], 1),
        ("xs[0]", "xs += (4,)", lambda x: (x, 5), 3),
        ("xs['a']", "xs |= {'b': 4}", lambda x: {"a": x}, 2),
        ("xs['a']", "xs = dict(xs, b=4)", lambda x: {"a": x}, 2),
    ],
)
def test_a_name_with_mapped_elements_that_is_bound_again(item, line, holder, n):
    """The elements are device arrays before and after; the name has the arrays themselves after the block."""
    f = made(
        f"""@directives
def f(xs, kinds):
    with omp("target map(tofrom: {item})"):
        {item}[:] += 1
        {line}
        {item}[:] += 1
        kinds.append(type({item}).__name__)
    return xs
"""
    )
    x, kinds = np.zeros(2), []
    before = holder(x)
    after = f(before, kinds)
    assert (kinds, x.tolist()) == (["SimArray"], [2, 2])
    assert eval(item, {"xs": after}) is x
    assert (type(after), len(after)) == (type(before), n)
    assert (after is before) == (" = " not in line and type(before) is not tuple)


class Pair(NamedTuple):
    """An array and a number."""

    a: object
    n: int


@pytest.mark.parametrize("devices", ["sim:1", "none"])
@pytest.mark.parametrize(
    ("item", "holder", "line", "found"),
    [
        ("xs[0]", lambda x: Pair(x, 1), "xs = xs._replace(n=5)", "xs.a"),
        ("xs[0][0]", lambda x: [[x, 1], 2], "xs[0] = xs[0] + [5]", "xs[0][0]"),
        ("xs['a'][0]", lambda x: {"a": [x, 1]}, "xs['a'] = xs['a'][:1]", "xs['a'][0]"),
        ("xs[0]", lambda x: [x], "xs.append((xs[0], 1))", "xs[1][0]"),
        ("xs[0]", lambda x: [x], "xs.append(Pair(xs[0], 1))", "xs[1].a"),
        ("xs[0]", lambda x: [x], "xs.extend([{'a': xs[0]}])", "xs[1]['a']"),
    ],
)
@pytest.mark.filterwarnings("ignore::offload.errors.HostFallbackWarning")
def test_lists_that_a_block_makes_of_device_arrays(item, holder, line, found, devices):
    """What the block leaves in a name or an element has the arrays themselves."""
    f = made(
        f"""@directives
def f(xs):
    with omp("target map(tofrom: {item})"):
        {item}[:] += 1
        {line}
    return xs
""",
        Pair=Pair,
    )
    x = np.zeros(2)
    with offload.Runtime(devices):
        after = f(holder(x))
    assert eval(found, {"xs": after}) is x
    assert x.tolist() == [1, 1]


@pytest.mark.parametrize("devices", ["sim:1", "none"])
@pytest.mark.parametrize(
    ("line", "found"), [("xs = ys", "xs"), ("xs.append(ys)", "xs[1]"), ("xs[:] = *xs, ys", "xs[1]")]
)
@pytest.mark.filterwarnings("ignore::offload.errors.HostFallbackWarning", "ignore::offload.errors.DirectiveWarning")
def test_a_list_of_the_program_stays_the_same_object(line, found, devices):
    """A block that binds a name or an element to a list which has no device arrays leaves that list itself."""
    f = made(
        f"""@directives
def f(xs, ys):
    with omp("target map(tofrom: xs[0])"):
        xs[0][:] += 1
        {line}
    return xs
"""
    )
    x = np.zeros(2)
    ys = [x, 1]
    with offload.Runtime(devices):
        after = f([x], ys)
    assert eval(found, {"xs": after}) is ys
    assert ys[0] is x


@pytest.mark.parametrize(
    ("holder", "lines"),
    [
        (lambda x: [x], ("xs = xs + [1]", "xs = xs + [2]")),
        (lambda x: (x,), ("xs += (1,)", "xs += (2,)")),
        (lambda x: Pair(x, 0), ("xs = [*xs, 1]", "xs = (*xs, 2)")),
    ],
)
def test_a_list_that_an_earlier_block_has_left(holder, lines):
    """A deferred block finds the list that a name has when its task runs, with device arrays."""
    f = made(
        f"""@directives
def f(xs, order):
    with omp("target map(tofrom: xs[0]) depend(inout: order) nowait"):
        xs[0][:] += 1
        {lines[0]}
    with omp("target map(tofrom: xs[0]) depend(inout: order) nowait"):
        xs[0][:] += 1
        {lines[1]}
    omp("taskwait")
    return xs
"""
    )
    x = np.zeros(2)
    after = f(holder(x), "order")
    assert after[0] is x
    assert list(after[-2:]) == [1, 2]
    assert x.tolist() == [2, 2]


REBOUND = {
    "xs[0]": ([np.zeros(2)], "xs[0] = xs[0] + 1"),
    "xs[-0]": ([np.zeros(2)], "xs[:] = [1]"),
    "xs['a']": ({"a": np.zeros(2)}, "xs.update(a=1)"),
    "xs[0].y": ([Owner()], "xs[0].y = 3"),
    "xs.rows[1]": (Owner(), "for k in range(2):\n            xs.rows[k] = xs.rows[k] * 2"),
}


@pytest.mark.parametrize("item", REBOUND)
def test_a_mapped_element_that_is_bound_to_another_object(item):
    """It is a ClauseError that names the element, and the caller's object keeps its array."""
    holder, line = REBOUND[item]
    f = made(f'@directives\ndef f(xs):\n    with omp("target map(tofrom: {item})"):\n        {line}\n')
    before = eval(item, {"xs": holder})
    with pytest.raises(ClauseError, match=r"is mapped, but the block binds it to another object.*\[\.\.\.\] = …"):
        f(holder)
    assert eval(item, {"xs": holder}) is before


def test_arrays_of_objects_in_lists():
    """Objects on the way to an array that is mapped give the device array, also to their methods."""

    @directives
    def f(os, deep):
        with omp("target map(tofrom: os[0].y, deep[0][1])"):
            os[0].add()
            for row in deep:
                row[1][:] += 2
            os[0].y[0] += len(os)
            assert isinstance(os[0], Owner)

    o, deep = Owner(), [(np.zeros(2), np.zeros(2))]
    f([o], deep)
    assert (o.y.tolist(), o.n, deep[0][1].tolist()) == ([2, 1], 1, [2, 2])


def test_an_update_of_a_mapped_attribute_in_a_nested_function():
    """`+=` on an attribute that is mapped changes the device array, in functions inside of the block too."""

    @directives
    def f(o):
        with omp("target map(tofrom: o.y)"):

            def add(n):
                """Add."""
                o.y += n
                return o.y

            o.y *= 2
            KINDS.append(type(add(3)).__name__)

    o = Owner()
    for _ in range(2):
        f(o)
    assert o.y.tolist() == [9, 9]
    assert KINDS == ["SimArray"] * 2


KINDS = []


def test_iterators_in_map():
    """Items of a clause with iterators are device arrays in the block, as single items are."""

    @directives
    def f(xs, n, a, o):
        with omp("target map(iterator(i=0:n), tofrom: xs[i]) nowait"):
            for k in range(n):
                xs[k] += k + 1
        omp("taskwait")
        with omp("target map(iterator(i=0:2), tofrom: a[3*i:2], o.rows[i]) map(to: xs[0])"):
            a[1] += 1
            a[3:5] = 2
            o.rows[1] += xs[0]

    xs, a, o = [np.zeros(2), np.zeros(2), 3], np.zeros(6), Owner()
    f(xs, 2, a, o)
    assert [x.tolist() for x in xs[:2]] == [[1, 1], [2, 2]]
    assert a.tolist() == [0, 1, 0, 2, 2, 0]
    assert (o.rows[0].tolist(), o.rows[1].tolist()) == ([0, 0], [1, 1])


def test_iterators_without_items():
    """Without items, the block has the list itself."""

    @directives
    def f(xs, n):
        with omp("target map(iterator(i=0:n), tofrom: xs[i])"):
            xs.append(len(xs))

    xs = [7]
    f(xs, 0)
    assert xs == [7, 1]


KEPT = []


def test_views_of_blocks_are_not_kept():
    """A taskgraph replays blocks with sections, elements and attributes; no device array outlives its block."""

    @directives
    def f(y, xs, o):
        with omp("taskgraph"):  # noqa: SIM117  # a directive has a `with` of its own
            with omp("target map(tofrom: y[2:3], xs[0], o.y) map(iterator(i=0:2), tofrom: o.rows[i])"):
                y[2:5] += 1
                xs[0] += 2
                o.y += 3
                o.rows[1] += 4
                KEPT.extend(map(weakref.ref, (xs[0], o.y, o.rows[0])))

    y, xs, o = np.zeros(6), [np.zeros(2)], Owner()
    KEPT.clear()
    for k in range(1, 4):
        f(y, xs, o)
        assert (y.sum(), xs[0][0], o.y[0], o.rows[1][0]) == (3 * k, 2 * k, 3 * k, 4 * k)
    assert len(KEPT) == 9
    until_gone(*KEPT)
