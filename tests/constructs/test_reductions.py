"""`task_reduction`, `in_reduction`, `declare_reduction`: private arrays for tasks, combined when the group ends."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

import offload as omp
from offload.constructs.clauses import operators
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


@pytest.fixture
def operator(monkeypatch):
    """Forget what a test declares."""
    monkeypatch.setattr(operators, "_declared", {})


@omp.task(in_reduction={"+": ["total"]})
def add(value, total):
    total += value


def summed(total, values):
    with omp.taskgroup(task_reduction={"+": [total]}):
        for value in values:
            add(value, total)


# -- values ----------------------------------------------------------------------------------------
def test_tasks_add_to_private_arrays_and_the_group_combines_them(workers):
    """After the group, the item is what it was plus what the tasks have added; before, it is untouched."""
    total = np.array(5.0)
    seen = []

    @omp.task(in_reduction={"+": [total]})
    def body(value, part):
        assert part is not total
        assert (part.shape, part.dtype) == (total.shape, total.dtype)
        part += value
        seen.append(float(total))

    with omp.taskgroup(task_reduction={"+": [total]}):
        for value in range(100):
            body(value, total)
    assert total == 5 + sum(range(100))
    assert set(seen) == {5.0}


OPERATIONS = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "min": np.minimum,
    "max": np.maximum,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "and": np.logical_and,
    "or": np.logical_or,
}
ORDERED = ("min", "max")
BITS = ("&", "|", "^")
DTYPES = ["?", "i1", "u2", "i8", "u8", ">i4", "f2", "f4", "f8", ">f8", "g", "c8", "c16"]


def combinations():
    for name in OPERATIONS:
        for code in DTYPES:
            kind = np.dtype(code).kind
            if not (kind == "c" and name in ORDERED) and not (kind in "fc" and name in BITS):
                yield name, code


@pytest.mark.parametrize(("name", "code"), list(combinations()))
def test_operators_on_each_dtype_equal_the_sequential_result(alone, name, code):
    """Every operator gives, on every dtype that it has a meaning for, what it gives without tasks."""
    dtype = np.dtype(code)
    rng = np.random.default_rng(11)
    values = rng.integers(0, 3, (6, 2, 3)).astype(dtype)
    operation = OPERATIONS[name]
    item = rng.integers(1, 3, (2, 3)).astype(dtype)
    expected = item.copy()
    for value in values:
        expected = operation(expected, value).astype(dtype)

    @omp.task(in_reduction={name: [item]})
    def body(value, part):
        part[...] = operation(part, value).astype(dtype)

    with omp.taskgroup(task_reduction={name: [item]}):
        for value in values:
            body(value, item)
    assert (item == expected).all()
    assert item.dtype == dtype


@pytest.mark.parametrize(
    ("name", "dtype", "identity"),
    [
        ("+", "i4", 0),
        ("*", "f8", 1),
        ("min", "i2", 2**15 - 1),
        ("min", "u4", 2**32 - 1),
        ("min", "f4", np.inf),
        ("min", "?", True),
        ("max", "i2", -(2**15)),
        ("max", "u4", 0),
        ("max", "f8", -np.inf),
        ("max", "?", False),
        ("&", "u1", 255),
        ("&", "i8", -1),
        ("&", "?", True),
        ("|", "i4", 0),
        ("^", "i4", 0),
        ("and", "f8", 1),
        ("or", "c8", 0),
    ],
)
def test_private_arrays_begin_as_the_identity(alone, name, dtype, identity):
    """The first task finds the operator's identity, so that a task which does nothing changes nothing."""
    item = np.array([1, 0], dtype)
    found = []
    with omp.taskgroup(task_reduction={name: [item]}):
        omp.task(in_reduction={name: [item]})(lambda part: found.append(part.copy()))(item)
    assert (found[0] == identity).all()
    assert item.tolist() == np.array([1, 0], dtype).tolist()


def test_nan_is_the_minimum(alone):
    """min and max pass NaN on, as NumPy's do."""
    item = np.array(1.0)
    with omp.taskgroup(task_reduction={"min": [item]}):
        omp.task(in_reduction={"min": [item]})(lambda part: part.fill(np.nan))(item)
    assert np.isnan(item)


def test_two_items_and_two_operators(workers):
    """A task may take part in several reductions; each argument gets its own private array."""
    total, largest, count = np.zeros((2, 3)), np.full((), -1), np.zeros(1, int)

    @omp.task(in_reduction={"+": [total, count], "max": [largest]})
    def body(value, total, *, count, largest):
        total += value
        count += 1
        largest[...] = max(largest, value)

    with omp.taskgroup(task_reduction={"max": [largest], "+": [count, total]}):
        for value in range(50):
            body(value, total, count=count, largest=largest)
    assert (total == sum(range(50))).all()
    assert (count[0], largest) == (50, 49)


@pytest.mark.parametrize("take", [np.s_[:, ::2], np.s_[::-1], np.s_[1], np.s_[1, 2], np.s_[1:1]])
def test_items_may_be_views_of_any_kind(workers, take):
    """Strided, reversed, 0-d and empty views are items, and what lies between their elements is untouched."""
    whole = np.arange(12.0).reshape(3, 4)
    expected = whole.copy()
    view = whole[(*np.index_exp[take], ...)]
    expected[(*np.index_exp[take], ...)] += np.arange(view.size).reshape(view.shape) * 10
    with omp.taskgroup(task_reduction={"+": [view]}):
        for _ in range(10):
            add(np.arange(view.size).reshape(view.shape), whole[(*np.index_exp[take], ...)])
    assert (whole == expected).all()


def test_the_item_is_found_wherever_it_is_passed(workers):
    """An item is replaced at every position, by keyword and in `*args`; another view of its storage is not."""
    total = np.zeros(4)

    @omp.task(in_reduction={"+": [total]})
    def body(a, *rest, key):
        assert a is rest[1] is key
        assert a is not total
        assert rest[0] == "other"
        assert rest[2].base is total
        a += 1

    with omp.taskgroup(task_reduction={"+": [total]}):
        for _ in range(8):
            body(total, "other", total[:], total[::-1], key=total)
    assert (total == 8).all()


# -- naming ----------------------------------------------------------------------------------------
def test_a_string_may_name_a_section_of_an_argument(workers):
    """`total[0:2]` means the section of what is passed; the body receives the private array of that section."""
    total = np.zeros(4)

    @omp.task(in_reduction={"+": ["total[first:2]"]})
    def body(first, total):
        assert total.shape == (2,)
        total += 1

    with omp.taskgroup(task_reduction={"+": [total[:2], total[2:]]}):
        for _ in range(6):
            body(0, total)
            body(2, total=total)
    assert (total == 6).all()


def test_options_replace_the_clause(workers):
    """`.options(in_reduction=…)` replaces the clause wholly, and None leaves it out."""
    total, product = np.zeros(()), np.ones(())
    times = omp.task(lambda value, x: x.__imul__(value) is None)
    with omp.taskgroup(task_reduction={"+": [total], "*": [product]}):
        times.options(in_reduction={"*": [product]})(7, product)
        add.options(in_reduction={"+": [total]})(3, total)
        plain = add.options(in_reduction=None)(4, total)  # to the item itself
        plain.result()
        assert total == 4
    assert (total, product) == (7, 7)


def test_methods_take_part(workers):
    """A method's parameter is an item like any."""

    class Counter:
        @omp.task(in_reduction={"+": ["total"]})
        def add(self, total):
            total += 1

    total = np.zeros((), int)
    with omp.taskgroup(task_reduction={"+": [total]}):
        for _ in range(5):
            Counter().add(total)
    assert total == 5


def test_the_innermost_group_that_has_the_item_is_meant(workers):
    """Nested groups with the same item combine what their own tasks have added; groups without it are looked past."""
    total = np.zeros(())
    with omp.taskgroup(task_reduction={"+": [total]}):
        add(1, total)
        with omp.taskgroup(task_reduction={"+": [total]}):
            add(10, total)
        assert total == 10
        with omp.taskgroup():
            add(100, total)
        assert total == 10
    assert total == 111


def test_nested_tasks_take_part_by_the_name_that_the_body_knows(workers):
    """In a body the item is its private array: a task generated there, which outlives it, names the reduction by it."""
    total = np.zeros(2)

    def descend(depth, part):
        assert part is not total
        part += 1
        for _ in range(2 if depth else 0):
            tree.options(in_reduction={"+": [part]})(depth - 1, part)

    tree = omp.task(descend, in_reduction={"+": ["part"]})
    with omp.taskgroup(task_reduction={"+": [total]}):
        tree(4, total)
    assert (total == 2**5 - 1).all()


def test_a_group_in_a_body_reduces_into_the_private_array(workers):
    """A body may reduce over its private array: that group combines into it, and the outer one into the item."""
    total = np.zeros(())

    @omp.task(in_reduction={"+": ["part"]})
    def body(part):
        summed(part, range(5))

    with omp.taskgroup(task_reduction={"+": [total]}):
        for _ in range(6):
            body(total)
    assert total == 60


# -- how tasks end ---------------------------------------------------------------------------------
@pytest.mark.parametrize("clauses", [{"if_": False}, {"final": True}, {"priority": 3}, {"depend": [omp.inout(("x",))]}])
def test_other_clauses_change_nothing(workers, clauses):
    """Undeferred, final, dependent tasks take part as others do."""
    total = np.zeros(())
    with omp.taskgroup(task_reduction={"+": [total]}):
        for value in range(20):
            add.options(**clauses)(value, total)
        if "if_" in clauses:
            assert total == 0
    assert total == sum(range(20))


def test_tasks_of_a_final_task_take_part(workers):
    """Included tasks have a private array of their own while that of the task around them is in use."""
    total = np.zeros(())

    @omp.task(in_reduction={"+": ["part"]}, final=True)
    def outer(part):
        part += 1
        add(10, part)
        part += 1

    with omp.taskgroup(task_reduction={"+": [total]}):
        outer(total)
    assert total == 12


def test_a_detached_task_has_its_array_until_it_is_complete(workers):
    """Nobody else gets the private array of a task whose event is open, although its body has ended."""
    total = np.zeros(())
    event = omp.Event()
    held = []

    with omp.taskgroup(task_reduction={"+": [total]}):
        task = omp.task(in_reduction={"+": [total]}, detach=event)(held.append)(total)
        while task.state != "detached":
            omp.taskyield()
        others = [omp.task(in_reduction={"+": [total]})(lambda part: part)(total) for _ in range(4)]
        assert all(other.result() is not held[0] for other in others)
        held[0][...] += 7  # as what the event stands for may
        event.fulfill()
    assert total == 7


def test_coroutines_that_await_have_different_arrays(workers):
    """A coroutine has its private array until it ends; the end of `async with` combines them."""
    total = np.zeros(())
    found = []

    async def main():
        all_begun = asyncio.Event()

        @omp.task(in_reduction={"+": [total]})
        async def body(part):
            found.append(part)
            part += 1
            if len(found) == 4:
                all_begun.set()
            await all_begun.wait()
            part += 10

        async with omp.taskgroup(task_reduction={"+": [total]}):
            for _ in range(4):
                body(total)

    asyncio.run(main())
    assert len({id(part) for part in found}) == 4
    assert total == 44


def test_a_graph_of_detached_and_asynchronous_tasks_adds_again(workers):
    """Run again, a task adds what it has when it is complete, also where that is later than its body's end."""
    total = np.zeros(())
    event = omp.Event()

    async def asynchronous(part):
        await asyncio.sleep(0)
        part += 10

    with omp.record() as graph, omp.taskgroup(task_reduction={"+": [total]}):
        omp.task(in_reduction={"+": [total]}, detach=event)(lambda part: part.__iadd__(1) is None)(total)
        omp.task(in_reduction={"+": [total]})(asynchronous)(total)
        omp.task(event.fulfill)()
    assert total == 11
    graph.compute()
    assert total == 22


def test_a_task_that_fails_when_it_is_run_again_adds_nothing(workers):
    """In a graph there is no group to fail as a whole: the failing task's share is left out."""
    total, fails = np.zeros(()), []

    @omp.task(in_reduction={"+": [total]})
    def body(part):
        part += 1
        if fails:
            raise ValueError

    with omp.record() as graph, omp.taskgroup(task_reduction={"+": [total]}):
        body(total)
    fails.append(1)
    with pytest.raises(ValueError):
        graph.compute()
    assert total == 1


def test_there_are_as_many_private_arrays_as_tasks_at_a_time(alone):
    """Tasks that run one after the other share one private array."""
    total = np.zeros(())
    found = []
    with omp.taskgroup(task_reduction={"+": [total]}):
        for _ in range(10):
            omp.task(in_reduction={"+": [total]})(found.append)(total)
    assert len({id(part) for part in found}) == 1


def test_a_group_that_fails_leaves_the_item(workers):
    """Where the end of the group raises, the item is what it was, whatever other tasks have added."""
    total = np.array(3.0)

    def fail(part):
        part += 1
        raise ValueError

    with pytest.raises(ExceptionGroup) as caught, omp.taskgroup(task_reduction={"+": [total]}):
        add(1, total)
        omp.task(in_reduction={"+": [total]})(fail)(total)
        add(1, total)
    assert [type(error) for error in caught.value.exceptions] == [ValueError]
    assert total == 3
    summed(total, [1])  # and it can be reduced again
    assert total == 4


def test_a_failure_that_has_been_seen_does_not_hold_up_the_others(workers):
    """A failure that somebody has seen does not make the group fail; what the task had added is in."""
    total = np.zeros(())

    def fail(part):
        part += 1
        raise ValueError

    with omp.taskgroup(task_reduction={"+": [total]}):
        add(10, total)
        assert isinstance(omp.task(in_reduction={"+": [total]})(fail)(total).exception(), ValueError)
    assert total == 11


def test_a_block_that_raises_leaves_the_item(workers):
    """The block's own exception goes on, its tasks have ended, and the item is what it was."""
    total = np.zeros(())
    with pytest.raises(KeyError), omp.taskgroup(task_reduction={"+": [total]}):
        task = add(1, total)
        raise KeyError
    assert task.done()
    assert total == 0


def test_a_cancelled_group_combines_what_there_is(cancelling):
    """The tasks that have run before the cancellation have counted; those that were discarded have not."""
    total = np.zeros((), int)

    def body(value, part):
        part += 1
        if value == 3:
            omp.cancel("taskgroup")

    with omp.taskgroup(task_reduction={"+": [total]}):
        tasks = [omp.task(in_reduction={"+": [total]})(body)(value, total) for value in range(10)]
    assert total == sum(task.state == "complete" for task in tasks) == 4


def test_a_cancelled_block_combines_what_there_is(cancelling):
    """A block that leaves by cancelling has not failed."""
    total = np.zeros((), int)
    with omp.taskgroup(task_reduction={"+": [total]}):
        add(1, total).result()
        add(1, total)
        omp.cancel("taskgroup")
    assert total == 1


def test_several_producers(workers):
    """Groups of several threads, each with its own item, do not meet."""
    totals = [np.zeros(3) for _ in range(4)]
    errors = []

    def produce(total):
        try:
            for _ in range(10):
                summed(total, range(20))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=produce, args=(total,)) for total in totals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert all((total == 10 * sum(range(20))).all() for total in totals)


def test_a_recorded_graph_adds_again(workers):
    """A graph that is computed again adds to the item once more, tasks of its tasks included; recording runs once."""
    total = np.zeros(())

    @omp.task(in_reduction={"+": ["part"]})
    def body(part):
        part += 1
        add(10, part)

    with omp.record() as graph, omp.taskgroup(task_reduction={"+": [total]}):
        for _ in range(3):
            body(total)
    assert total == 33
    graph.compute()
    assert total == 66
    graph.compute()
    assert total == 99


def test_a_graph_that_was_only_recorded_adds_when_it_is_computed(workers):
    """Without execution nothing is added before the graph is computed."""
    total = np.zeros(())
    with omp.record(execute=False) as graph, omp.taskgroup(task_reduction={"+": [total]}):
        for _ in range(3):
            add(1, total)
    assert total == 0
    graph.compute()
    assert total == 3


def test_a_replay_in_another_group(workers):
    """Tasks of a taskgraph that reduce for a group around it add to the item at each call."""
    total = np.zeros(())

    @omp.taskgraph
    def region(total):
        for value in range(5):
            add(value, total)

    for turn in range(3):
        with omp.taskgroup(task_reduction={"+": [total]}):
            region(total)
            add(1, total)
        assert total == (turn + 1) * 11
    with omp.taskgroup(task_reduction={"+": [total]}):
        region(total)
        region(total)
    assert total == 53


# -- declare_reduction -----------------------------------------------------------------------------
def test_a_declared_operator_with_a_value(workers, operator):
    """A ufunc and the value to begin with are an operator."""
    omp.declare_reduction("gcd", np.gcd, 0)
    item = np.array([0, 36])
    with omp.taskgroup(task_reduction={"gcd": [item]}):
        for value in (24, 60, 18):

            @omp.task(in_reduction={"gcd": ["part"]})
            def body(value, part):
                part[...] = np.gcd(part, value)

            body(value, item)
    assert item.tolist() == [6, 6]


@pytest.mark.parametrize(
    "initializer",
    [lambda part: part.__setitem__("at", -1), lambda part: np.array((0, -1), part.dtype), np.array((0, -1), "f8, i8")],
    ids=["fills", "returns", "value"],
)
def test_a_declared_operator_on_a_structured_dtype(workers, operator, initializer):
    """The initializer fills the array, or returns what fills it, or is that; the combiner may work in place."""

    def largest(a, b):
        if b["value"] > a["value"]:
            a[...] = b

    omp.declare_reduction("largest", largest, initializer)
    item = np.zeros((), [("value", "f8"), ("at", "i8")])
    begun = []

    @omp.task(in_reduction={"largest": ["part"]})
    def body(value, at, part):
        begun.append(int(part["at"]))
        if value > part["value"]:
            part[...] = (value, at)

    values = np.random.default_rng(3).random(40)
    with omp.taskgroup(task_reduction={"largest": [item]}):
        for at, value in enumerate(values):
            body(value, at, item)
    assert item["at"] == values.argmax()
    assert -1 in begun


def test_without_an_initializer_private_arrays_are_zeros(alone, operator):
    """As default initialisation does."""
    omp.declare_reduction("plus", lambda a, b: a + b)
    item = np.ones((), [("x", "f8")])
    found = []
    with pytest.raises(TypeError), omp.taskgroup(task_reduction={"plus": [item]}):  # a structured dtype has no sum
        omp.task(in_reduction={"plus": [item]})(lambda part: found.append(part["x"] + 0))(item)
    assert found == [0]


def test_redeclaring_replaces(alone, operator):
    """Constructs that are encountered later use the later declaration."""
    omp.declare_reduction("mine", np.add, 0)
    item = np.array(5)
    group = omp.taskgroup(task_reduction={"mine": [item]})
    omp.declare_reduction("mine", np.multiply, 1)
    task = omp.task(in_reduction={"mine": ["part"]})(lambda part: part.__iadd__(2) is None)
    with group:
        task(item)
    assert item == 7
    with omp.taskgroup(task_reduction={"mine": [item]}):
        task(item)
    assert item == 21


def test_a_combiner_that_fails_leaves_all_items(alone, operator):
    """What a combiner raises comes out of the end of the group, with a note, and no item has changed."""

    def fail(a, b):
        a += 1
        raise ZeroDivisionError

    omp.declare_reduction("bad", fail)
    total, other = np.zeros(()), np.zeros(())
    with pytest.raises(ZeroDivisionError) as caught, omp.taskgroup(task_reduction={"+": [total], "bad": [other]}):
        omp.task(in_reduction={"+": [total], "bad": [other]})(lambda a, b: a.__iadd__(1) is None)(total, other)
    assert "bad" in caught.value.__notes__[0]
    assert (total, other) == (0, 0)


def test_an_initializer_that_fails_fails_the_task(alone, operator):
    """The task that would have received the array fails with what the initializer raised."""

    def fail(part):
        raise ZeroDivisionError

    omp.declare_reduction("bad", np.add, fail)
    item = np.zeros(())
    with pytest.raises(ExceptionGroup) as caught, omp.taskgroup(task_reduction={"bad": [item]}):
        omp.task(in_reduction={"bad": [item]})(lambda part: None)(item)
    assert isinstance(caught.value.exceptions[0], ZeroDivisionError)


@pytest.mark.parametrize("name", ["+", "min", "and", "or", "", "two words", "1st", 3, None, []])
def test_names_that_cannot_be_declared(name):
    """A built-in operator stays what it is, and a name is an identifier."""
    with pytest.raises(omp.ClauseError):
        omp.declare_reduction(name, np.add, 0)


def test_a_combiner_is_a_function():
    """Something that cannot be called combines nothing."""
    with pytest.raises(omp.ClauseError):
        omp.declare_reduction("mine", 3, 0)


# -- what is refused -------------------------------------------------------------------------------
A = np.zeros(4)
READ_ONLY = np.zeros(4)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    "clause",
    [
        [A],
        "A",
        A,
        {},
        0,
        {"+": []},
        {"plus": [A]},
        {"&&": [A]},
        {1: [A]},
        {"+": [1.0]},
        {"+": [np.float64(1)]},
        {"+": [[1, 2]]},
        {"+": [np.array(["x"])]},
        {"+": [np.array([None])]},
        {"min": [np.zeros(2, complex)]},
        {"max": [np.zeros(2, "M8[s]")]},
        {"&": [A]},
        {"|": [A]},
        {"^": [A]},
        {"+": [np.zeros(2, [("x", "f8")])]},
    ],
    ids=str,
)
@pytest.mark.parametrize("construct", ["task_reduction", "in_reduction", "options"])
def test_clauses_that_are_refused(construct, clause):
    """Both clauses refuse what is no dict of known operators and arrays that they can reduce."""
    with pytest.raises(omp.ClauseError):
        if construct == "task_reduction":
            omp.taskgroup(task_reduction=clause)
        elif construct == "in_reduction":
            omp.task(in_reduction=clause)
        else:
            add.options(in_reduction=clause)


@pytest.mark.parametrize(
    "clause",
    [
        {"+": ["A"]},
        {"+": [READ_ONLY]},
        {"+": [np.broadcast_to(A, (2, 4))]},
        {"+": [np.lib.stride_tricks.as_strided(A, (3, 2), (8, 8))]},
        {"+": [A, A]},
        {"+": [A], "*": [A]},
        {"+": [A[:3], A[2:]]},
        {"+": [np.ma.zeros(3)]},
    ],
    ids=["string", "read-only", "broadcast", "windows", "twice", "two operators", "overlap", "masked"],
)
def test_items_that_a_group_cannot_reduce(clause):
    """A group needs arrays of which each element can be stored once."""
    with pytest.raises(omp.ClauseError):
        omp.taskgroup(task_reduction=clause)


def test_one_array_needs_no_list(alone):
    """As in other clauses, one item stands for a list of one."""
    total = np.zeros(())
    with omp.taskgroup(task_reduction={"+": total}):
        add.options(in_reduction={"+": total})(2, total)
    assert total == 2


def test_none_is_no_clause(alone):
    """None stands for a construct without the clause."""
    with omp.taskgroup(task_reduction=None):
        task = omp.task(in_reduction=None)(int)()
    assert task.result() == 0


def test_a_task_outside_of_a_group_with_the_item_is_refused(alone):
    """No group, a group without the item, or with another operator, or that has ended: an error at the call."""
    total, other = np.zeros(2), np.zeros(2)
    with pytest.raises(omp.ClauseError):
        add(1, total)
    with omp.taskgroup(task_reduction={"+": [other], "max": [total]}):
        with pytest.raises(omp.ClauseError, match="max"):
            add(1, total)
        with pytest.raises(omp.ClauseError):
            add(1, other[:1])  # a part of an item is not the item
        with pytest.raises(omp.ClauseError):
            add(1, other[::-1])
        with pytest.raises(omp.ClauseError):
            add(1, other.view("i8"))
    with pytest.raises(omp.ClauseError):
        add(1, other)
    assert not total.any()
    assert not other.any()


def test_an_item_has_to_be_passed(alone):
    """A body that is not passed the item could not receive its private array."""
    total = np.zeros(())
    task = omp.task(in_reduction={"+": [total]})(lambda *args: None)
    with omp.taskgroup(task_reduction={"+": [total]}):
        with pytest.raises(omp.ClauseError):
            task()
        with pytest.raises(omp.ClauseError):
            task(np.zeros(()))


def test_strings_that_mean_nothing_are_refused(alone):
    """A string names an array by a name that the call gives a meaning."""
    total = np.zeros(())
    with omp.taskgroup(task_reduction={"+": [total]}):
        with pytest.raises(omp.ClauseError):
            omp.task(in_reduction={"+": ["nowhere"]})(lambda x: None)(total)
        with pytest.raises(omp.ClauseError):
            omp.task(in_reduction={"+": ["x"]})(lambda x: None)(3)
    with pytest.raises(omp.ClauseError):
        omp.task(in_reduction={"+": ["x +"]})


def test_items_that_contradict_each_other_are_refused(alone):
    """One item is named once, and one argument gets one private array."""
    total = np.zeros(4)
    with omp.taskgroup(task_reduction={"+": [total[:2], total[2:]]}):
        with pytest.raises(omp.ClauseError):
            omp.task(in_reduction={"+": ["x[0:2]", "x[2:2]"]})(lambda x: None)(total)
        with pytest.raises(omp.ClauseError):
            omp.task(in_reduction={"+": ["x", total[:2]]})(lambda x: None)(total[:2])


def test_target_has_no_such_clause():
    """Only tasks on the host take part."""
    with pytest.raises(omp.ClauseError):
        omp.target(in_reduction={"+": [A]})
