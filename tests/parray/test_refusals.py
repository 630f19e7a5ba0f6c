"""What cannot mean anything is refused: every mistake in a type or a pair of types, and the limits."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload.parray import ArrayType, dim, disp, func, parse, plan, threads, tiles, wrap
from offload.parray.dimensions import MOST_LEVELS
from offload.parray.thread_arrays import thread_array

A = ArrayType(((3, 3), 2))
M = threads(3)
K = ArrayType((M, 4))

WHEN_MADE = {
    "a negative size": lambda: ArrayType(-1),
    "a negative size inside": lambda: ArrayType((2, (3, -1))),
    "a negative body": lambda: dim(-2, A),
    "a size that is no integer": lambda: ArrayType(2.0),
    "a size that is a text": lambda: ArrayType("[3]"),
    "not a size": lambda: ArrayType(None),
    "an empty tuple": lambda: ArrayType(()),
    "an empty list inside": lambda: ArrayType((2, [])),
    "an empty body": lambda: dim((), A),
    "neither body nor reference": dim,
    "a type as a body": lambda: dim(A, disp(1)),
    "a reference as a body": lambda: dim(disp(1)),
    "a dimension with references as a body": lambda: dim(dim(3, disp(1)), disp(1)),
    "a reference that is an integer": lambda: dim(3, 5),
    "a reference that is a tuple": lambda: dim(3, (2, 2)),
    "a reference that is a dimension": lambda: dim(3, dim(3)),
    "a displacement in a tree": lambda: ArrayType((3, disp(1))),
    "wrap of 0": lambda: wrap(0),
    "wrap of less": lambda: wrap(-3),
    "wrap of no integer": lambda: wrap(2.5),
    "disp of no integer": lambda: disp("1"),
    "a pure reference that begins with a function": lambda: dim(None, func(abs), A),
    "func of a text": lambda: func("12"),
    "func of a number": lambda: func(3),
    "func of a set": lambda: func({1, 2}),
    "func of a generator": lambda: func(k for k in range(3)),
    "a table of floats": lambda: func([1, 2.0]),
    "a table of two dimensions": lambda: func(np.zeros((2, 2), int)),
    "a table without a dimension": lambda: func(np.array(3)),
    "a type left by its size": lambda: ArrayType(dim(19, A)),
    "a type left by a displacement": lambda: ArrayType(dim(2, disp(17), A)),
    "a type left below 0": lambda: ArrayType(dim(2, disp(-1), A)),
    "a table left": lambda: ArrayType(dim(4, func([1, 2, 3]))),
    "a type left by a table": lambda: ArrayType(dim(2, func([17, 18]), A)),
    "a type left after a wrap": lambda: ArrayType(dim(30, wrap(19), A)),
    "a type left by a dimension inside": lambda: ArrayType(((2, dim(3, A[1])), 2)),
    "a type left by a pure reference": lambda: ArrayType(dim(None, A, disp(1), A)),
    "two thread arrays": lambda: ArrayType((threads(3), threads(2), 4)),
    "two thread arrays in one chain and another": lambda: ArrayType((dim(2, threads(2)), (M, 4))),
    "a distributed type before the end": lambda: ArrayType(dim(None, K, disp(0))),
    "a distributed type before a type": lambda: ArrayType(dim(12, K, ArrayType(100))),
    "a distributed type in a thread array": lambda: threads(dim(None, K)),
    "a distributed type deep in a thread array": lambda: threads((2, (dim(None, K), 3))),
    "thread numbers from 1": lambda: threads(dim(3, disp(1))),
    "thread numbers twice": lambda: threads((dim(2, wrap(1)), 3)),
    "thread numbers twice, of the right range": lambda: threads(dim(4, func([0, 1, 1, 3]))),
    "thread numbers with gaps": lambda: threads(dim(3, ArrayType((3, 2))[0])),
    "a thread array that is none": lambda: threads(()),
    "a thread array too deep in memory": lambda: ArrayType((M, dim(2, disp(2**200)))),
}


@pytest.mark.parametrize("make", WHEN_MADE.values(), ids=WHEN_MADE)
def test_refused_when_made(make):
    """A tree that cannot mean anything is a LayoutError when it is made, which is a ClauseError."""
    with pytest.raises(omp.LayoutError) as caught:
        make()
    assert isinstance(caught.value, omp.ClauseError)
    assert len(str(caught.value)) < 2500


def test_messages_point_at_the_dimension():
    """A message has the tree in the notation, the index, and where in the tree its dimension is."""
    S = ArrayType((6, 6))
    with pytest.raises(
        omp.LayoutError, match=r"index 6 leaves #\(\[6\]\[6\]\)_0, .* 6 elements, in dimension _1_0 of \[2\]\["
    ):
        ArrayType((2, (dim(3, disp(4), S[0]), S[1])))
    with pytest.raises(omp.LayoutError, match=r"index -1 leaves .* in the root of 3#disp\(-1\)#"):
        ArrayType(dim(3, disp(-1), S))
    T = ArrayType((2, dim(4, func(lambda i: 2 * i), S[0])))
    assert T(1, 2) == 4 + 6 * 4
    with pytest.raises(
        omp.LayoutError, match=r"index 6 leaves #\(\[6\]\[6\]\)_0, .* in dimension _1 of \[2\]\[4#func\(<lambda>\)"
    ):
        T(0, 3)
    with pytest.raises(omp.LayoutError, match=r"in dimension _1 of"):
        T(np.arange(8))
    U = ArrayType(((2, dim(4, func(lambda i: 2 * i), S[0])), 3))
    with pytest.raises(omp.LayoutError, match=r"in dimension _0_1 of"):
        U((0, 3), 0)


def test_only_what_leaves_is_refused():
    """An index that no element has is no error, and a dimension that nothing reaches none before it is asked."""
    T = ArrayType((0, dim(9, disp(1), A[0])))
    assert T.offsets().tolist() == []
    assert T[1](7) == 16
    with pytest.raises(omp.LayoutError):
        T[1](8)
    with pytest.raises(omp.LayoutError):
        T[1].offsets()
    U = ArrayType(dim(8, T[1]))  # asks for what is in range
    assert U.offsets().tolist() == list(range(2, 18, 2))
    assert U.nest == (2, ((8, 2),))
    assert ArrayType(dim(18, A)) is not None
    assert ArrayType(dim(3, disp(-5), wrap(3), A[0])).offsets().tolist() == [2, 4, 0]


def test_what_functions_return():
    """A result that is no integer, or an array of another shape or type, is a LayoutError; an error of its own
    arrives."""
    for f in (lambda i: i / 2, lambda i: None, lambda i: "1"):
        with pytest.raises(omp.LayoutError):
            ArrayType(dim(3, func(f)))(1)
    for f in (lambda i: i / 2, lambda i: i[:1], lambda i: [1, 2, 3], lambda i: 5, lambda i: None, lambda i: i > 1):
        with pytest.raises(omp.LayoutError):
            ArrayType(dim(3, func(f))).offsets()
    with pytest.raises(ZeroDivisionError):
        ArrayType(dim(3, func(lambda i: 1 // i)))(0)
    assert ArrayType(dim(3, func(np.uint8)))(2) == 2
    assert ArrayType(dim(3, func(lambda i: np.asarray(i).astype("u1")))).offsets().tolist() == [0, 1, 2]


def test_deep_trees():
    """A tree of 500 levels, however it is made, is a LayoutError that names the limit, and one at the limit works."""

    def nested(n):
        tree = 2
        for _ in range(n - 1):
            tree = (tree,)
        return tree

    def referring(n):
        made = ArrayType(2)
        for _ in range(n - 1):
            made = ArrayType(made)
        return made

    def built(n):
        made = dim(2)
        for _ in range(n - 1):
            made = dim((made,))
        return ArrayType(made)

    makers = [lambda n: ArrayType(nested(n)), referring, built, lambda n: parse("[" * (n - 1) + "2" + "]" * (n - 1))]
    makers.append(lambda n: parse("#(" * (n - 1) + "2" + ")" * (n - 1)))
    for make in makers:
        with pytest.raises(omp.LayoutError, match=str(MOST_LEVELS)):
            make(500)
        with pytest.raises(omp.LayoutError, match=str(MOST_LEVELS)):
            make(MOST_LEVELS + 1)
        made = make(MOST_LEVELS)
        assert made(1) == 1
        assert made.offsets().tolist() == [0, 1]
        assert made == make(MOST_LEVELS)
        assert parse(str(made)) == made
        assert plan(made, made).kind == "contiguous"
        assert made.unravel(1) is not None
        assert made.axes == (0, ((2, 1),))
    loop = []
    loop.append(loop)
    with pytest.raises(omp.LayoutError):
        ArrayType(loop)


def test_many_dimensions():
    """Types that refer to each other twice at each level are refused before they fill the memory."""
    made = ArrayType(1)
    with pytest.raises(omp.LayoutError, match="too large"):
        for _ in range(40):
            made = ArrayType((made, made))
    assert len(ArrayType((2,) * 1000).dims) == 1000


def test_pairs():
    """A pair that cannot be copied is a LayoutError from plan."""
    for source, target in (
        (ArrayType(3), ArrayType(4)),  # sizes that differ
        (ArrayType(3), ArrayType(dim(3, wrap(2)))),  # a target that is not injective
        (ArrayType(4), ArrayType(dim(4, func([1, 2, 1, 3])))),
        (M, ArrayType(3)),  # a thread array as a side
        (ArrayType(3), M),
        (ArrayType((M, 2)), thread_array(6, "comm")[()]),
        (K, ArrayType((thread_array(3, "comm"), 4))),  # threads on one side and ranks on the other
        (ArrayType((thread_array(3, "comm"), 4)), ArrayType((thread_array(3, "other"), 4))),
        (ArrayType((dim(3, M, disp(1)), 4)), ArrayType(12)),  # a thread that does not exist
        (ArrayType(12), ArrayType((dim(3, M, disp(-1)), 4))),
        (ArrayType(dim(4, func(lambda i: i + 1), ArrayType(4))), ArrayType(4)),  # an index that leaves
        (ArrayType(4), ArrayType(dim(4, func(lambda i: i + 1), ArrayType(4)))),
    ):
        with pytest.raises(omp.LayoutError):
            plan(source, target)
    for source, target in (((3, 3), ArrayType(9)), (ArrayType(9), None)):
        with pytest.raises(omp.ClauseError):
            plan(source, target)
    assert plan(ArrayType(dim(3, wrap(1))), ArrayType(3)).kind == "strided"  # the source may repeat


def test_pairs_of_ranks():
    """Ranks of one communicator are one thread array, and are planned as threads are."""
    sides = ArrayType((thread_array(3, "comm"), 4)), ArrayType((thread_array(3, "comm"), 4))
    assert sides[0] == sides[1]
    assert str(sides[0]) == "[#ranks(3)][4]"
    assert [box[:2] for box in plan(*sides).boxes] == [(0, 0), (1, 1), (2, 2)]


def test_tiles():
    """A shape that does not fit the type is refused at the call."""
    for of, shape in (
        (A, 3),
        (A, (1, 2, 3)),
        (A, (0, 1)),
        (A, (1, -1)),
        (A, (1.5, 1)),
        (ArrayType(7), (1, 1)),
        (ArrayType(7), 0),
        ("A", 1),
    ):
        with pytest.raises(omp.LayoutError):
            tiles(of, shape)
