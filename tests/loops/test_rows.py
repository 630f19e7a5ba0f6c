"""Rows: what they mean at the edges, what is proved about them, and what is refused."""

from __future__ import annotations

import linecache
import warnings

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.errors import DirectiveWarning, LoopError
from tests.conftest import checked


def fill(row, value):
    for k in range(len(row)):
        row[k] = value + k


def total(row):
    s = 0.0
    for k in range(row.size):
        s += row[k]
    return s


def total_at(a, i):
    s = 0.0
    for k in range(a.shape[1]):
        s += a[i, k]
    return s


def product(m, x, y):
    """Multiply a matrix by a vector, row by row."""
    for p in range(m.shape[0]):
        y[p] = dot(m[p], x)


def dot(row, x):
    s = 0.0
    for k in range(len(row)):
        s += row[k] * x[k]
    return s


def product_at(a, x, y, i):
    for p in range(a.shape[1]):
        s = 0.0
        for k in range(a.shape[2]):
            s += a[i, p, k] * x[i, k]
        y[i, p] = s


def copy(target, source):
    for k in range(len(target)):
        target[k] = source[k]


def copy_at(b, a, i, j):
    for k in range(a.shape[1]):
        b[i, k] = a[j, k]


def bump(row, k, v):
    row[k] += v


def bump_atomically(row, k, v):
    omp.atomic.add(row, k, v)


def corners(m):
    return m[0][0] + m[-1, -1] + m.ndim + len(m[0]) + m[:, 0].size


def last(row):
    return row[-1]


def ignored(row, n):
    return n


def agree(function, *arguments, **clauses):
    """Run a loop and its plain function on copies, and compare."""
    mine, expected = ([np.copy(one) if isinstance(one, np.ndarray) else one for one in arguments] for _ in range(2))
    with checked("sim:2"):
        result = omp.target_loop(**clauses)(function)(*mine)
    assert function(*expected) == result
    for one, other in zip(mine, expected, strict=True):
        np.testing.assert_array_equal(one, other)


RNG = np.random.default_rng(3)
A, B = RNG.integers(-9, 9, (6, 5)).astype(float), RNG.integers(-9, 9, (6, 4, 3)).astype(float)


# -- meaning


def test_a_row_keeps_the_index_it_was_named_with():
    """Assigning an index, or the array that it was read from, does not move a row; nor does a call."""

    def f(a, q, y):
        for i in range(y.size):
            j = q[i]
            row = a[j]
            j = 0
            q[i] = j
            y[i] = row[0] + row[1]

    agree(f, A, np.array([5, 2, 3, 1, 0, 4]), np.zeros(6))


def test_stores_through_a_row_go_to_the_array():
    """Two rows of one array may be one row."""

    def f(a, y):
        for i in range(a.shape[0]):
            row, same = 1, 2
            first = a[i]
            second = a[i, :]
            first[1] += 1.0
            second[1] *= 2.0
            copy(first, a[i][:])
            y[i] = a[i, 1] + first[1] + row + same

    agree(f, A, np.zeros(6))


def test_negative_indices_count_from_the_end_of_their_dimension():
    """A row has the extents of its dimensions, whatever their order."""

    def f(b, y):
        for i in range(y.size):
            middle = b[i, :, -1]
            turned = b[-1 - i, -2, :]
            y[i] = last(middle) + last(turned) + corners(b[i]) + last(b[:, 0, 0]) + len(b[i, :, 0])

    agree(f, B, np.zeros(6))


def test_rows_of_arrays_of_the_iteration():
    """Local and private arrays have rows too."""

    def f(t, y):
        for i in range(y.size):
            m = np.zeros((2, 3))
            fill(m[1], i)
            fill(m[:, 0], 7)
            fill(t[0], 2 * i)
            y[i] = total(m[0]) + total(m[1]) + m[1].size + len(m[:, 1]) + m[0].ndim + corners(m) + total(t[0])
            t[0, 0] = 0.0

    with checked("sim:1"):
        y, expected = np.zeros(4), np.zeros(4)
        omp.target_loop(private=["t"])(f)(np.zeros((2, 3)), y)
        f(np.zeros((2, 3)), expected)
    np.testing.assert_array_equal(y, expected)


def test_a_row_before_the_loop():
    """Prologue rows have the index of that moment, in each nest."""

    def f(a, y, n):
        row = a[n]
        n = n + 1
        alias = row
        for i in range(y.size):
            y[i] = row[i] + alias[0]
        after = a[n]
        for i in range(y.size):
            y[i] += row[i] * after[-1 - i]

    mine, expected = np.zeros(5), np.zeros(5)
    with checked("sim:1"):
        acc.kernels_loop(f)(A.copy(), mine, 2)
    f(A.copy(), expected, 2)
    np.testing.assert_array_equal(mine, expected)


def test_a_name_may_stand_for_one_row_after_another():
    """Within a block the latest assignment counts; another block may use the name again."""

    def f(a, y):
        for i in range(y.size):
            row = a[i]
            y[i] = row[0]
            row = a[0]
            y[i] += row[1]
            for j in range(2):
                r = a[j]
                y[i] += r[j]
            if y[i] > 0:
                r = a[i]
                y[i] += r[2]

    agree(f, A, np.zeros(6))


def test_keywords_defaults_and_unused_rows():
    """A row is passed by keyword as well; an element is still a number."""

    def f(a, y):
        for i in range(y.size):
            bump(v=a[i, 1], row=y, k=i)
            y[i] += ignored(a[i, 0], 2)

    agree(f, A, np.zeros(6))


def test_empty_rows():
    """A row without elements has length 0."""

    def f(a, y):
        for i in range(y.size):
            y[i] = total(a[i]) + len(a[i])

    agree(f, np.zeros((3, 0)), np.zeros(3))


def test_shapes_taken_apart():
    """The shape of a row has the dimensions that no index takes."""

    def f(b, y):
        for i in range(y.size):
            n, m = b[i].shape
            (k,) = b[i, :, 0].shape
            y[i] = 100 * n + 10 * m + k + b[i].shape[-1] + b[:, 1].shape[0]

    agree(f, B, np.zeros(6))


def test_atomic_updates_of_rows():
    """Updates of a row of an array in `atomic` are single steps, and so are those of `omp.atomic`."""

    def by_clause(h, k):
        for i in range(k.shape[0]):
            bump(h[k[i, 0]], k[i, 1], 2)
            row = h[0]
            row[1] = max(row[1], 3)

    def by_function(h, k):
        for i in range(k.shape[0]):
            omp.atomic.add(h[k[i, 0]], k[i, 1], 1)
            bump_atomically(h[1], 0, 2)

    k = RNG.integers(0, 4, (60, 2))
    agree(by_clause, np.zeros((4, 4), int), k, atomic=["h"])
    agree(by_function, np.zeros((4, 4), int), k)


def test_a_shared_loop_over_a_row():
    """Lanes share a loop over a row."""

    def f(a, y):
        for i in acc.loop(range(y.size), gang=True):
            row = a[i]
            s = 0.0
            for j in acc.loop(range(len(row)), vector=True, reduction={"+": ["s"]}):
                s += row[j]
            y[i] = s

    mine, expected = np.zeros(6), np.zeros(6)
    with checked("sim:1"):
        acc.parallel_loop(f)(A.copy(), mine)
    f(A.copy(), expected)
    np.testing.assert_array_equal(mine, expected)


def test_declared_functions_may_take_rows():
    """The check of `declare_target` accepts what a loop would."""

    def f(m, x):
        row = m[0]
        x[0] = row[0] + len(m[1]) + corners(m)

    assert omp.declare_target(f) is f


# -- proofs


@omp.target_loop
def solve_rows(b, x, y):
    for i in range(b.shape[0]):
        product(b[i], x[i], y[i])


@omp.target_loop
def solve_at(b, x, y):
    for i in range(b.shape[0]):
        product_at(b, x, y, i)


@omp.target_loop
def sums_rows(a, q, y):
    for i in range(y.size):
        y[i] = total(a[q[i]])


@omp.target_loop
def sums_at(a, q, y):
    for i in range(y.size):
        y[i] = total_at(a, q[i])


@omp.target_loop
def pairs_rows(a):
    for i in range(a.shape[0] // 2):
        copy(a[2 * i], a[2 * i + 1])


@omp.target_loop
def pairs_at(a):
    for i in range(a.shape[0] // 2):
        copy_at(a, a, 2 * i, 2 * i + 1)


@omp.target_loop
def moved_rows(a, q, b):
    for i in range(q.size):
        copy(b[q[i]], a[i])


@omp.target_loop
def moved_at(a, q, b):
    for i in range(q.size):
        copy_at(b, a, q[i], i)


@omp.target_loop(seq=True)
def shifted_rows(a):
    for i in range(1, a.shape[0]):
        copy(a[i], a[i - 1])


@omp.target_loop(seq=True)
def shifted_at(a):
    for i in range(1, a.shape[0]):
        copy_at(a, a, i, i - 1)


Q = np.array([3, 1, 0, 2, 5, 4])
TWINS = {
    "matrices": (solve_rows, solve_at, (B, RNG.random((6, 3)), np.zeros((6, 4)))),
    "indirect": (sums_rows, sums_at, (A, Q, np.zeros(6))),
    "pairs": (pairs_rows, pairs_at, (A,)),
    "moved": (moved_rows, moved_at, (A, Q, np.zeros((6, 5)))),
    "shifted": (shifted_rows, shifted_at, (A,)),
}


@pytest.mark.parametrize(("rows", "written_out", "arguments"), TWINS.values(), ids=TWINS)
def test_proofs_are_those_of_indices_written_out(rows, written_out, arguments):
    """Verdict, distances, maps, bounds, ranges of devices and logs are those of the same loop without rows."""

    def facts(loop):
        words = loop.explain(*arguments).to_dict()
        nests = [
            (nest["verdict"], [(one["array"], one["kind"], one["distance"]) for one in nest["dependences"]])
            for nest in words["nests"]
        ]
        return nests, words["arrays"], words["filter"]["arrays"], words["speculation"]["logged"]

    with checked("sim:2"):
        for clauses in ({}, {"devices": "all"}, {"speculate": True}):
            if rows is shifted_rows and clauses:  # which is in order
                continue
            assert facts(rows.options(**clauses)) == facts(written_out.options(**clauses))


def test_rows_are_in_range_at_the_launch():
    """Affine rows cost no checks; the verdict and the mapping are those of the array."""
    with checked("sim:1"):
        words = solve_rows.explain(B, RNG.random((6, 3)), np.zeros((6, 4))).to_dict()
    assert words["nests"][0]["verdict"] == "parallel"
    assert words["arrays"]["y"] == {"access": "write", "map": "from", "bounds": "launch"}
    assert {words["arrays"][name]["bounds"] for name in "bx"} == {"launch"}


def test_a_dependence_between_rows_is_named():
    """Rows of one array as two arguments are one array."""
    loop = omp.target_loop(shifted_rows.python)
    with checked("sim:1"), pytest.raises(LoopError, match="flow dependence of distance 1") as caught:
        loop(A.copy())
    assert caught.value.rule == "dependence"


def test_lost_updates_of_rows():
    """An update of a row that a table names is warned of, unless the elements of the table differ."""

    def f(h, q):
        for i in range(q.size):
            bump(h[q[i]], 0, 1)

    with checked("sim:1"), warnings.catch_warnings():
        warnings.simplefilter("error")
        omp.target_loop(f)(np.zeros((6, 2)), Q)
        with pytest.raises(DirectiveWarning, match=r"h\[q\[i\], 0\]"):
            omp.target_loop(f)(np.zeros((6, 2)), Q // 2)


@pytest.mark.parametrize(("indices", "axis"), [((7, 0), 0), ((-7, 0), 0), ((0, 5), 1), ((0, -6), 1)])
@pytest.mark.parametrize("is_loaded", [False, True])
def test_an_index_out_of_range_names_the_array(indices, axis, is_loaded):
    """The message has the dimension of the array, and the line of the access."""

    def known(a, y, p, q):
        for i in range(y.size):
            row = a[p]
            y[i] = row[q]

    def loaded(a, y, p, q):
        for i in range(y.size):
            row = a[p[i]]
            y[i] = row[q[i]]

    values = [np.full(2, one) for one in indices] if is_loaded else indices
    with (
        checked("sim:1"),
        pytest.raises(IndexError, match=f"index {indices[axis]} is out of bounds for axis {axis} of 'a'"),
    ):
        omp.target_loop(loaded if is_loaded else known)(A, np.zeros(2), *values)


# -- refusals

IS_ROW = "a[i] is a row of a, not a number"
REFUSED = [
    ("c[i] = given(a[i])", "index", IS_ROW),
    ("c[i] = a[i]", "index", IS_ROW),
    ("c[i] = a[i] == b[i]", "index", IS_ROW),
    ("c[i] = 2 * a[i]", "index", "range(a.shape[1])"),
    ("c[i] = twice(a[i])", "index", IS_ROW),
    ("c[i] = min(a[i], b[i])", "index", IS_ROW),
    ("if a[i]:\n    c[i] = 1", "index", IS_ROW),
    ("a[i] = b[i]", "index", "is a row of"),
    ("a[i] = 0.0", "index", IS_ROW),
    ("a[i] += 1.0", "index", IS_ROW),
    ("a[i, :] = 0.0", "index", "a[i, :] is a row of a"),
    ("row = a[i]\nc[i] = row[0]\nrow += 1.0", "index", IS_ROW),
    ("row = a[i]\nc[i] = row[0]\nrow = 1.0", "index", IS_ROW),
    ("row = a[i]\nc[i] = row[0] + row", "index", IS_ROW),
    ("row = a[i]\nc[i] = row[0]\nkept = [row, row]", "index", IS_ROW),
    ("row = a[i]\nc[i] = row[:]", "index", "a[i, :] is a row of a"),
    ("kept = [a[i], b[i]]", "types", "r = a[i]"),
    ("t = np.zeros((2, 2))\nc[i] = t[0]", "index", "t[0] is a row of t"),
    ("c[i] = a[i, 0, 1]", "index", "2 dimensions but 3 indices"),
    ("row = a[i]\nc[i] = row[0, 1]", "index", "2 dimensions but 3 indices"),
    ("t = np.zeros((2, 2))\nc[i] = t[0, 0, 1]", "index", "3 indices for an array of 2 dimensions"),
    ("row = a[i, 1:3]\nc[i] = row[0]", "index", "whole axes only"),
    ("row = a[i, ::2]\nc[i] = row[0]", "index", "whole axes only"),
    ("row = a[..., i]\nc[i] = row[0]", "index", "integer"),
    ("row = a[i, None]\nc[i] = row[0]", "index", "integer"),
    ("row = a[c[i] > 0]\nc[i] = row[0]", "index", "mask"),
    ("row = a[0.5]\nc[i] = row[0]", "types", "int("),
    ("c[i] = a[i].shape[1]", "index", "1 dimensions"),
    ("c[i] = len(a[i, 0])", "index", "0 dimensions"),
    ("c[i] = a[i, 0, :].ndim", "index", "2 dimensions"),
    ("n, m = a[i].shape", "index", "1 values but 2 targets"),
    ("c[i] = a[i].T[0]", "index", "not an array"),
    ("row = a[i]\nc[i] = row[0] + row.nbytes", "index", "not .nbytes"),
    ("row = a[i] if i else b[i]\nc[i] = row[0]", "index", "branches"),
    ("c[i] = picked(a[i] if i else b[i])", "index", "branches"),
    ("c[i] = picked(a[i] + 1)", "index", "arithmetic"),
    ("if i:\n    row = a[i]\nelse:\n    row = b[i]\nc[i] = row[0]", "index", "only in the branch"),
    ("for j in range(3):\n    row = a[j]\n    c[i] = row[0]\nc[i] = row[1]", "index", "only in the branch"),
    ("row = a[0]\nfor j in range(3):\n    c[i] = row[0]\n    row = a[j]", "assign", "outside this block"),
    ("row = a[0]\nif i:\n    row = a[i]\nc[i] = row[0]", "assign", "outside this block"),
    ("c[i] = row[0]\nrow = a[i]", "unbound", "no line before"),
    ("row, other = a[i], b[i]\nc[i] = row[0]", "assign", "one name only"),
    ("row = other = a[i]\nc[i] = row[0]", "assign", "one name only"),
    ("row = 1.0\nrow = a[i]\nc[i] = row[0]", "assign", "another meaning"),
    ("b = a[i]\nc[i] = b[0]", "assign", "another meaning"),
    ("row = a[i]\nc[i] = row[0]\nfor row in range(3):\n    c[i] = row", "index", IS_ROW),
    ("row = a[i]\nc[i] = row[0]\nrow = np.zeros(3)", "local", "another meaning"),
    ("for v in a[i]:\n    c[i] += v", "loop", "range(len(a))"),
]


def given(row):
    return row


def twice(row):
    return 2 * row


def picked(row):
    return row[0]


@pytest.mark.parametrize(("body", "rule", "words"), REFUSED)
def test_refusals(body, rule, words):
    """A row where a number is needed is refused, with the loop to write instead."""
    indented = "\n".join(f"        {line}" for line in body.splitlines())
    text = f"def f(a, b, c):\n    for i in range(a.shape[0]):\n{indented}\n"
    file = f"<refused {hash(text)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = {"np": np, "given": given, "twice": twice, "picked": picked}
    exec(compile(text, file, "exec"), names)
    with checked("sim:1"), pytest.raises(LoopError) as caught:
        omp.target_loop(names["f"])(np.ones((3, 3)), np.ones((3, 3)), np.ones(3))
    assert caught.value.rule == rule, str(caught.value)
    assert words in str(caught.value), str(caught.value)


def test_an_item_of_a_reduction_has_no_rows():
    """Elements of an item are updated in whole only."""

    def f(h, a):
        for i in range(a.shape[0]):
            row = h[0]
            bump(row, 0, a[i, 0])

    with checked("sim:1"), pytest.raises(LoopError, match="one element only"):
        omp.target_loop(reduction={"+": ["h"]})(f)(np.zeros((1, 1)), A)
