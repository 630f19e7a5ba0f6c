"""What loops tell a user who has written something wrong: through the decorators and their calls."""

from __future__ import annotations

import pickle
import re
import traceback
import warnings

import numpy as np
import pytest

import offload as omp
from offload import acc
from tests.conftest import checked

CONSTRUCTS = [omp.target_loop, omp.parallel_loop, acc.parallel_loop, acc.kernels_loop]
OUTSIDE, OTHER = np.ones(3), np.ones(3)


def refused(construct, function, *args, **clauses):
    """Return the error of a decorator, or of a call if there are arguments."""
    with checked("sim:1"), pytest.raises(omp.LoopError) as caught:
        loop = construct(**clauses)(function) if clauses else construct(function)
        if args:
            loop(*args)
    return caught.value


def scaled(a, b, n, by=2.0):
    for i in range(n):
        b[i] = by * a[i]


@pytest.mark.parametrize("construct", CONSTRUCTS)
@pytest.mark.parametrize(
    ("args", "kwargs", "what"),
    [
        ((1,), {}, "missing a required argument: 'b'"),
        ((1, 2, 3, 4, 5), {}, "too many positional arguments"),
        ((1, 2), {"m": 3}, "missing a required argument: 'n'"),
        ((1, 2, 3), {"a": 3}, "multiple values for argument 'a'"),
    ],
)
def test_a_call_with_wrong_arguments_names_the_function(construct, args, kwargs, what):
    """The error of each way to give a loop arguments has the function with its parameters."""
    loop, text = construct(scaled), re.escape(f"scaled(a, b, n, by=2.0): {what}")
    with checked("sim:1"):
        for call in (loop, loop.options(if_=False), loop.explain, loop.source, loop.compile):
            with pytest.raises(TypeError, match=text):
                call(*args, **kwargs)


def test_strings_in_clauses_and_bodies_name_the_function_too():
    """A call that looks names up, or stands in a body, says as much."""
    with checked("sim:1"):
        for loop in (
            omp.target_loop(map=[omp.to("a[0:n]")])(scaled),
            omp.parallel_loop(depend=[omp.out("b")], nowait=True)(scaled),
        ):
            with pytest.raises(TypeError, match=r"scaled\(a, b, n, by=2.0\): missing"):
                loop(np.ones(3))
        inner = omp.target_loop(scaled)
        with pytest.raises(TypeError, match=r"scaled\(a, b, n, by=2.0\): missing"):
            omp.target(lambda a: [inner(a)])(np.ones(3))


def unfit(a, b):
    for i in range(a.size):
        b[i] = 1 + np.linalg.norm(a[i])  # café


@pytest.mark.parametrize("construct", CONSTRUCTS)
@pytest.mark.parametrize("clauses", [{}, {"collapse": 1}])
def test_an_error_of_the_decorator_shows_the_line(construct, clauses):
    """The traceback is the program's and a few steps; the line stands below, with carets under what is wrong."""
    error = refused(construct, unfit, **clauses)
    steps = [step for step in traceback.extract_tb(error.__traceback__) if "/offload/" in step.filename]
    assert len(steps) <= 4
    text = "".join(traceback.format_exception(error))
    first, line, carets = error.__notes__[0].splitlines()
    assert error.__notes__[0] in text
    assert first == f'  File "{__file__}", line {error.line}'
    assert line == "    b[i] = 1 + np.linalg.norm(a[i])  # café"
    assert line[carets.index("^") : carets.rindex("^") + 1] == "np.linalg.norm(a[i])"
    assert pickle.loads(pickle.dumps(error)).__notes__ == error.__notes__


def test_carets_count_characters():
    """Letters that take several bytes are one place wide."""

    def f(b):
        for i in range(b.size):
            b[i] = np.linalg.norm("äö") + i

    _, line, carets = refused(omp.target_loop, f).__notes__[0].splitlines()
    assert line[carets.index("^") : carets.rindex("^") + 1] == 'np.linalg.norm("äö")'


def rows(A, x, y):
    for i in range(y.size):
        for k in range(A.indptr[i], A.indptr[i + 1]):
            y[i] += A.data[k] * x[k]


def sizes(A, y):
    for i in range(A.indptr.size):
        y[i] = 1


def shapes(A, y):
    for i in range(A.indptr.shape[0] + len(A.indptr)):
        y[i] = 1


def numbers(A, y):
    for i in range(y.size):
        y[i] = A.indptr


def stores(A, y):
    for i in range(y.size):
        A.indptr[i] = y[i]


def deeper(self, y):
    for i in range(y.size):
        y[i] = self.A.indptr[i]


@pytest.mark.parametrize("function", [rows, sizes, shapes, numbers, stores, deeper])
def test_an_attribute_of_an_argument_is_to_be_passed(function):
    """Wherever it stands, the error says what it is, and what to pass."""
    error = refused(omp.target_loop, function)
    name, argument = ("self.A.indptr", "self") if function is deeper else ("A.indptr", "A")
    assert f"{name} is an attribute of the argument {argument}" in str(error)
    assert f"pass {name} as an argument of its own" in str(error)


def fields(A, y):
    for i in range(y.size):
        y[i] = A[i].value + UNKNOWN_A  # noqa: F821


def members(y):
    for i in range(y.size):
        y[i] = np.unknown + UNKNOWN_A  # noqa: F821


def test_an_attribute_of_an_element_is_to_be_passed_as_an_array():
    """The error is about what it points at, not about a name that is undefined elsewhere."""
    error = refused(omp.target_loop, fields)
    assert "A[i].value is an attribute of an element" in str(error)
    assert "pass an array of these values as an argument" in str(error)
    assert "np.unknown is not defined" in str(refused(omp.target_loop, members))


def elements(v, x):
    for i in range(x.size):
        v[i % 3] += x[i]


def first(v, x):
    for i in range(x.size):
        v[0] += x[i]


@pytest.mark.parametrize("args", [(), (np.zeros(3), np.ones(6))])
@pytest.mark.parametrize("construct", CONSTRUCTS[:3])
def test_a_reduction_is_of_one_element(construct, args):
    """Of an array with several elements the error says so, and names atomic=."""
    error = refused(construct, first if args else elements, *args, reduction={"+": ["v"]})
    assert error.rule == "reduction"
    assert "one element only" in str(error)
    assert "atomic=['v']" in str(error)


def three(x):
    s, m, t = 0.0, 0.0, 0.0
    for i in range(x.size):
        s += x[i]
        m = max(m, x[i])
        t = x[i] - t
    return s, m


def two(x):
    s, m = 0.0, 0.0
    for i in range(x.size):
        s += x[i]
        m = max(m, x[i])
    return s, m


def returned(x):
    s, m = 0.0, 0.0
    for i in range(x.size):
        s = x[i]
        m = s
    return s, m


def lost(x):
    s, t = 0.0, 0.0
    for i in range(x.size):
        s += x[i]
        t += x[i]


def unset(x):
    for i in range(x.size):
        s += x[i]  # noqa: F821
        t += x[i]  # noqa: F821
    return s, t


def never(x):
    for i in range(x.size):
        s += x[i]  # noqa: F821
        m = max(m, x[i])  # noqa: F821
    return s, m


def on_one_path(x, y):
    for i in range(x.size):
        if x[i] > 0:
            s, m = 1.0, 2.0
        y[i] = s + m


def undefined(x):
    for i in range(x.size):
        x[i] = UNKNOWN_A * UNKNOWN_B  # noqa: F821


def closed(x):
    for i in range(x.size):
        x[i] = OUTSIDE[i] + OTHER[i]


def shared(x, y):
    for i in acc.loop(range(y.size), gang=True):
        s, m = 0.0, 0.0
        for k in acc.loop(range(x.size), vector=True):
            s += x[k]
            m = max(m, x[k])
        y[i] = s + m


SUMS = {"reduction": {"+": ["s", "t"]}}
SEVERAL = [
    (two, {}, ["s and m", 'reduction={"+": ["s"], "max": ["m"]}']),
    (three, {}, ["s, m and t", 'reduction={"+": ["s"], "max": ["m"]}', "no clause says what t is"]),
    (returned, {}, ["s and m are in no reduction=", "lastprivate=['s', 'm']"]),
    (lost, SUMS, ["s and t are in reduction=", "return s, t"]),
    (unset, SUMS, ["s and t are read here", "leaves them unassigned"]),
    (never, {}, ["s and m are read here", "leaves them unassigned"]),
    (on_one_path, {}, ["s and m are read here", "leaves them unassigned"]),
    (undefined, {}, ["UNKNOWN_A and UNKNOWN_B are not defined"]),
    (closed, {}, ["OTHER and OUTSIDE are of type ndarray", "pass them as arguments"]),
    (shared, {}, ["s and m", 'reduction={"+": ["s"], "max": ["m"]} to this loop']),
]


@pytest.mark.parametrize(("function", "clauses", "words"), SEVERAL, ids=[one[0].__name__ for one in SEVERAL])
def test_an_error_names_all_scalars(function, clauses, words):
    """What is missing of several scalars is said at once."""
    text = str(refused(acc.parallel_loop, function, **clauses))
    assert all(word in text for word in words), text


# -- updates that may be lost ------------------------------------------------------------------------


def histogram(h, col):
    for i in range(col.size):
        h[col[i]] += 1


def both(h, g, col):
    for i in range(col.size):
        h[col[i]] += 1
        g[col[i]] -= 1


def warned(loop, *args):
    """Return the `DirectiveWarning` of two calls; None if there is none."""
    with checked("sim:2"), warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for _ in range(2):
            loop(*args)
    found = [one for one in given if issubclass(one.category, omp.DirectiveWarning)]
    assert len(found) < 2
    return found[0] if found else None


COL = np.arange(40) % 8


@pytest.mark.parametrize("clauses", [{}, {"devices": "all"}, {"if_": False}, {"nowait": True}])
def test_the_warning_is_given_once_at_the_line(clauses):
    """It names array, index and remedies, and stands at the update, wherever the loop runs."""
    found = warned(omp.target_loop(**clauses)(histogram), np.zeros(8), COL)
    assert (found.filename, found.lineno) == (__file__, histogram.__code__.co_firstlineno + 2)
    for word in (
        "target_loop 'histogram'",
        "h[col[i]]",
        'atomic=["h"]',
        "reduction=",
        "check=True",
        "independent=True",
    ):
        assert word in str(found.message)


def test_the_warning_names_all_arrays():
    """Two arrays of one loop are one warning."""
    text = str(warned(omp.target_loop(both), np.zeros(8), np.zeros(8), COL).message)
    assert "h[col[i]] (line" in text
    assert "g[col[i]] (line" in text
    assert 'atomic=["h", "g"]' in text


@pytest.mark.parametrize("clauses", [{}, {"devices": "all"}, {"if_": False}, {"nowait": True}])
def test_updates_by_a_permutation_do_not_warn(clauses):
    """The first call looks at the table: where all its elements differ nothing can be lost."""
    loop = omp.target_loop(**clauses)
    order = np.random.default_rng(1).permutation(40)
    assert warned(loop(histogram), np.zeros(40), order) is None
    assert warned(loop(histogram), np.zeros(40), order.astype("i4")[::-1]) is None
    assert warned(loop(histogram), np.zeros(40), order - 40) is None
    order[3] -= 40  # which may be the element of another one
    assert warned(loop(histogram), np.zeros(40), order) is not None


def test_a_table_that_iterations_share_is_not_looked_at():
    """Where two iterations read one element of the table, or write to it, it may not differ from itself."""

    def shared(h, col):
        for i in range(col.size):
            h[col[i // 2]] += 1

    def written(h, col):
        for i in range(col.size - 1):
            col[i] = 0
            h[col[i]] += 1

    assert warned(omp.target_loop(shared), np.zeros(40), np.arange(40)) is not None
    assert warned(omp.target_loop(written), np.zeros(40), np.arange(40)) is not None


def test_tables_that_all_differ_may_name_one_element_twice():
    """Numbers that are made of a table's may be equal; so may elements of two tables, or of one at two places."""

    def whole(h, x):
        for i in range(x.size):
            h[int(x[i])] += 1

    def narrow(h, col):
        for i in range(col.size):
            k = np.uint8(col[i])
            h[k] += 1

    def shifted(h, col):
        for i in range(col.size - 1):
            h[col[i]] += 1
            h[col[i + 1]] += 1

    def ends(h, u, v):
        for i in range(u.size):
            h[u[i]] += 1
            h[v[i]] -= 1

    def columns(h, e):
        for i in range(e.shape[0]):
            h[e[i, 0]] += 1
            h[e[i, 1]] -= 1

    def never(h, col):
        for i in range(col.size):
            h[col[i]] += 1
            for _ in range(3, 3):
                h[0] += 1

    order = np.arange(300)
    assert warned(omp.target_loop(never), np.zeros(300), order) is None
    assert warned(omp.target_loop(whole), np.zeros(300), order / 10) is not None
    assert warned(omp.target_loop(narrow), np.zeros(300), order) is not None
    assert warned(omp.target_loop(shifted), np.zeros(300), order) is not None
    assert warned(omp.target_loop(ends), np.zeros(300), order, np.roll(order, 1)) is not None
    assert warned(omp.target_loop(columns), np.zeros(300), order.reshape(-1, 2)) is None


@pytest.mark.parametrize("construct", [omp.target_loop, omp.parallel_loop])
def test_a_small_first_call_does_not_speak_for_larger_ones(construct):
    """A program that tries a loop on a few elements is warned in the call in which they are not all different."""
    loop = construct(histogram)
    assert warned(loop, np.zeros(40), np.arange(5)) is None
    assert warned(loop, np.zeros(40), COL) is not None
    assert warned(loop, np.zeros(40), COL[:20]) is None


@pytest.mark.parametrize("dtype", ["i4", "u4", "u8"])
def test_the_warning_shows_the_index_as_it_was_written(dtype):
    """It shows nothing of the integer that is made of it, and tables of all types are looked at."""
    loop = omp.target_loop(histogram)
    assert warned(loop, np.zeros(40), np.arange(40, dtype=dtype)) is None
    assert "h[col[i]] (line" in str(warned(loop, np.zeros(40), COL[:39].astype(dtype)).message)


def test_a_warning_that_is_an_error_is_raised_by_each_call():
    """A call that has raised it has changed nothing, and has not warned of the next one."""
    loop, h = omp.target_loop(histogram), np.zeros(8)
    with checked("sim:2"), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(omp.DirectiveWarning):
                loop(h, COL)
    assert not h.any()
    assert warned(loop, h, COL) is not None


def test_two_names_of_one_array_are_one():
    """What is read by one name and written by another is an update too."""

    def f(h, g, col):
        for i in range(col.size):
            h[col[i]] = g[col[i]] + 1

    h = np.zeros(8)
    assert warned(omp.target_loop(f), h, np.zeros(8), COL) is None
    assert warned(omp.target_loop(f), h, h, COL) is not None


def test_a_loop_in_a_body_warns():
    """A call in a target body is no construct, and loses updates all the same."""
    loop = omp.target_loop(histogram)
    assert warned(omp.target(lambda h, col: [loop(h, col)]), np.zeros(8), COL) is not None


def test_a_loop_in_one_thread_does_not_warn_of_those_in_several():
    """A call that runs in order warns of nothing; a later one of the same loop that does not run in order does."""
    loop = omp.parallel_loop(histogram)
    h = np.zeros(8)
    assert warned(loop.options(if_=False), h, COL) is None
    assert (h == 10).all()
    assert warned(loop, h, COL) is not None


@pytest.mark.parametrize("way", ["explain", "source", "compile"])
def test_looking_at_a_loop_warns_of_nothing(way):
    """Only calls update something."""
    assert warned(getattr(omp.target_loop(histogram), way), np.zeros(8), COL) is None
