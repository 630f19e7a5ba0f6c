"""Plans by hand: kinds, boxes, words, pieces of pairs that do not divide each other, what is kept, what they cost."""

from __future__ import annotations

import gc
import sys
import time
import weakref

import pytest

from offload.parray import ArrayType, Box, Plan, dim, disp, func, plan, plans, threads, wrap
from offload.parray.plans import KEPT_PLANS, MOST_BOXES, refined
from tests.parray.test_digits import numbers
from tests.parray.test_plans_rules import check_plan, pairs_of

A = ArrayType(((3, 3), 2))
B = ArrayType(((A[0, 1], A[0, 0]), A[1]))


def places(T):
    found = T.offsets()
    if T.kind == "both":
        return list(zip(found.thread.tolist(), found.offset.tolist(), strict=True))
    return [(None, offset) for offset in found.tolist()]


def checked(source, target):
    """The plan of a pair, which has each pair of places once."""
    made = plan(source, target)
    check_plan(made, places(source), places(target))
    return made


def test_kinds():
    """One run, one box, several, tables, nothing."""
    assert checked(A, A) == Plan("contiguous", 18, (Box(None, None, 0, 0, ((18, 1, 1),)),))
    assert checked(A, B) == Plan("strided", 18, (Box(None, None, 0, 0, ((3, 6, 2), (3, 2, 6), (2, 1, 1))),))
    assert checked(ArrayType((0, 3)), ArrayType(0)) == Plan("empty", 0, ())
    assert checked(ArrayType(1), ArrayType(dim(1, disp(5)))) == Plan("contiguous", 1, (Box(None, None, 0, 5, ()),))
    assert checked(ArrayType(dim(4, wrap(1))), ArrayType(4)).boxes == (Box(None, None, 0, 0, ((4, 0, 1),)),)
    scrambled = ArrayType(dim(200, func([k * 77 % 200 for k in range(200)])))
    assert checked(scrambled, ArrayType(200)) == Plan("indexed", 200, ())
    assert checked(ArrayType(dim(6, func([0, 2, 4, 1, 3, 5]))), ArrayType(6)).kind == "strided"  # a table of a nest


def test_windows():
    """A window into a plain array is one box from its first element."""
    whole = ArrayType((100, 100))
    window = ArrayType((dim(80, disp(10), whole[0]), dim(80, disp(10), whole[1])))
    assert checked(window, ArrayType((80, 80))).boxes == (Box(None, None, 1010, 0, ((80, 100, 80), (80, 1, 1))),)


def test_shifts():
    """A dimension shifted around is two boxes; by half, or by nothing, it is one."""
    for n, e in ((5, 2), (5, -1), (7, 20), (6, 1)):
        shifted = ArrayType((3, dim(n, disp(e), wrap(n)), 2))
        assert len(checked(shifted, ArrayType(shifted.size)).boxes) == 2
        assert (
            len(checked(ArrayType((n, 2)), ArrayType((dim(n, disp(e), wrap(n), ArrayType((n, 2))[0]), 2))).boxes) == 2
        )
    assert len(checked(ArrayType((3, dim(6, disp(3), wrap(6)))), ArrayType(18)).boxes) == 1
    assert len(checked(ArrayType((3, dim(6, disp(12), wrap(6)))), ArrayType(18)).boxes) == 1
    both = ArrayType((dim(5, disp(2), wrap(5)), dim(4, disp(1), wrap(4))))
    assert len(checked(both, ArrayType((5, 4))).boxes) == 4


def test_a_shift_of_rows_cut_by_the_other_type():
    """The other type may have boundaries inside of the rows that are shifted."""
    S = ArrayType((5, 6))
    around = ArrayType((dim(5, disp(2), wrap(5), S[0]), S[1]))
    other = ArrayType((dim(5, ArrayType((5, 6))[0]), ArrayType((2, 3))[1], dim(2, ArrayType((2, 3))[0])))
    assert len(checked(around, other).boxes) == 2


def test_pairs_that_do_not_divide():
    """Nests of 6 and of 4 repeat together after 12: boxes from there, or tables if these were many."""

    def apart(rows, length):
        return ArrayType((dim(rows, ArrayType((rows, length + 1))[0]), length))

    made = checked(apart(4, 6), apart(6, 4))
    assert made.kind == "boxes"
    assert len(made.boxes) == 4
    assert len(checked(apart(400, 6), apart(600, 4)).boxes) == 4
    assert checked(apart(4, 10), apart(10, 4)).kind in {"boxes", "indexed"}
    assert checked(apart(35, 36), apart(36, 35)).kind == "indexed"
    made = plan(apart(20, 21000), apart(21, 20000))
    assert (made.kind, len(made.boxes), sum(box.size for box in made.boxes)) == ("boxes", 40, 420_000)
    assert plan(apart(10**6, 10**6 + 1), apart(10**6 + 1, 10**6)).kind == "indexed"  # and costs no element


def test_refined():
    """Digits of both sides become one list of as many, whose numbers are those of either side in order."""
    for source, target in (
        ([(5, 1000, ()), (9, 50, ()), (4, 7, ())], [(18, 31, ()), (10, 2, ())]),  # together after 180, not after 20
        ([(9, 50, ()), (4, 7, ())], [(6, 100, ()), (6, 1, ())]),
        ([(3, 500, ()), (2, 60, ()), (4, 7, ())], [(4, 100, ()), (6, 1, ())]),  # not after 12, since 8 are together
        ([(3, 50, ()), (12, 7, ((5, 3),))], [(6, 100, ()), (6, 1, ())]),
        ([(6, 7, ((4, 9),)), (2, 1, ())], [(3, 20, ()), (4, 1, ())]),
    ):
        loops = refined(source, target)
        assert all(a[0] == b[0] for a, b in loops)
        assert numbers([a for a, _ in loops]) == numbers(source)
        assert numbers([b for _, b in loops]) == numbers(target)
    assert refined([(3000, 10, ()), (7, 1, ())], [(7, 4000, ()), (3000, 1, ())]) is None  # thousands of pieces


def test_few_long_runs_of_a_table_are_boxes():
    """Offsets of a table that are few long runs are copied as boxes; what is many short ones, by tables."""
    runs = ArrayType(dim(400, func([*range(100, 400), *range(100)])))
    made = checked(runs, ArrayType(400))
    assert [box.digits for box in made.boxes] == [((300, 1, 1),), ((100, 1, 1),)]
    halves = ArrayType(dim(300, func([*range(0, 300, 2), *range(299, 0, -2)])))
    assert len(checked(halves, ArrayType(300)).boxes) == 2
    assert checked(ArrayType(dim(3, func([0, 5, 1]))), ArrayType(3)).kind == "boxes"
    called = ArrayType(dim(400, func(lambda i: (i + 100) % 400)))  # no digits before it is called
    assert len(checked(called, ArrayType(400)).boxes) == 2
    assert checked(ArrayType(dim(20_000, func(lambda i: i * 7919 % 20_000))), ArrayType(20_000)).kind == "indexed"
    short = ArrayType(dim(300, func([k * 77 % 300 for k in range(300)])))
    assert checked(short, ArrayType(300)).kind == "indexed"


def test_threads():
    """A box for each pair of threads, with the numbers of the side that is distributed."""
    M = threads(3)
    D = ArrayType((3, 3))
    made = checked(ArrayType((M, D[0], D[1])), ArrayType((D[0], M, D[1])))
    assert [box[:2] for box in made.boxes] == [(i, j) for i in range(3) for j in range(3)]
    assert {box.digits for box in made.boxes} == {((3, 1, 1),)}
    scatter = checked(ArrayType((3, 4)), ArrayType((M, 4)))
    assert scatter.boxes[1] == Box(None, 1, 4, 0, ((4, 1, 1),))
    gather = checked(ArrayType((M, 4)), ArrayType((3, 4)))
    assert gather.boxes[2] == Box(2, None, 0, 8, ((4, 1, 1),))
    send = checked(ArrayType((dim(1, disp(1), M), 4)), ArrayType((dim(1, disp(2), M), 4)))
    assert send == Plan("contiguous", 4, (Box(1, 2, 0, 0, ((4, 1, 1),)),))
    broadcast = checked(ArrayType((dim(3, wrap(1)), 4)), ArrayType((M, 4)))
    assert {box[1:3] for box in broadcast.boxes} == {(0, 0), (1, 0), (2, 0)}
    periodic = checked(ArrayType((dim(3, disp(1), wrap(3), M), 4)), ArrayType((M, 4)))
    assert sorted(box[:2] for box in periodic.boxes) == [(0, 2), (1, 0), (2, 1)]
    called = ArrayType((dim(3, func(lambda i: (2 * i) % 3), M), 4))  # no digits before it is called
    assert [box[:2] for box in checked(called, ArrayType((M, 4))).boxes] == [(0, 0), (2, 1), (1, 2)]
    called = ArrayType((dim(3, func(lambda i: 2 - i), M), 10**4))
    assert len(checked(called, ArrayType((M, 10**4))).boxes) == 3
    M2, size = threads(2), 20_000
    scrambled = ArrayType((M2, dim(size, func(lambda i: i * 7919 % size))))
    assert plan(scrambled, ArrayType((M2, size))).kind == "indexed"


def test_digits_that_become_neighbours_are_merged():
    """Where a thread's digit has gone, those around it are one if they continue each other."""
    M = threads(2)
    local = ArrayType((3, 4))
    made = checked(ArrayType((local[0], M, local[1])), ArrayType((local[0], M, local[1])))
    assert {box.digits for box in made.boxes} == {((12, 1, 1),)}


def test_words():
    """A plan's words have the kind, the number of elements and boxes, offsets and loops."""
    assert str(plan(A, A)).splitlines() == [
        "contiguous: 18 elements in one run",
        "  from offset 0 to offset 0: 18 x (+1, +1)",
    ]
    assert "one box" in str(plan(A, B))
    assert "3 x (+6, +2), 3 x (+2, +6), 2 x (+1, +1)" in str(plan(A, B))
    assert "tables" in str(plan(ArrayType(dim(99, func([k * 7 % 99 for k in range(99)]))), ArrayType(99)))
    assert str(plan(ArrayType(1), ArrayType(1))).startswith("contiguous: 1 element in one run")
    assert "nothing" in str(plan(ArrayType(0), ArrayType(0)))
    assert "x (-1, +1)" in str(plan(ArrayType(dim(4, func([3, 2, 1, 0]))), ArrayType(4)))
    M = threads(3)
    turned = plan(ArrayType((M, 3, 4)), ArrayType((ArrayType((3, 4))[0], M, ArrayType((3, 4))[1])))
    assert "from thread 0, offset 0 to thread 0, offset 0" in str(turned)
    assert "and 1 more" in str(turned)


def test_plans_are_kept_within_a_bound():
    """A pair that was asked for has the same plan, of equal types too; old ones are forgotten."""
    first = plan(ArrayType((3, 4)), ArrayType(12))
    assert plan(ArrayType((3, 4)), ArrayType(12)) is first
    gone = weakref.ref(plan(ArrayType((97, 4)), ArrayType(388)))
    for k in range(KEPT_PLANS):
        plan(ArrayType(k), ArrayType((k,)))
    gc.collect()
    assert gone() is None


def test_boxes_are_kept_within_a_bound(monkeypatch):
    """Plans of many boxes are let go before so many are kept, the last one not."""
    monkeypatch.setattr(plans, "KEPT_BOXES", 100)
    monkeypatch.setattr(plans, "_n_boxes", [0])
    plans._planned.cache_clear()  # a plan that another test has made would not count
    pairs = [(ArrayType((threads(p), p, 3)), ArrayType((ArrayType((p, 3))[0], threads(p), 3))) for p in (6, 7, 5)]
    gone = [weakref.ref(plan(*pair)) for pair in pairs[:2]]  # 36 and 49 boxes
    assert all(one() is plan(*pair) for one, pair in zip(gone, pairs, strict=False))
    last = plan(*pairs[2])
    gc.collect()
    assert [one() for one in gone] == [None, None]
    assert plan(*pairs[2]) is last


def test_many_boxes_of_threads():
    """Pairs of threads are not limited as pieces are."""
    M = threads(40)
    made = plan(ArrayType((M, 40, 2)), ArrayType((ArrayType((40, 2))[0], M, ArrayType((40, 2))[1])))
    assert len(made.boxes) == 1600 > MOST_BOXES
    assert sum(pairs_of(made.boxes).values()) == 3200
    order = func([k * 7 % 40 for k in range(40)])
    made = checked(ArrayType((dim(40, order, M), 2)), ArrayType((M, 2)))
    assert made.kind == "boxes"
    assert len(made.boxes) == 40


# -- what it costs ------------------------------------------------------------------------------------
def eight_leaves(n):
    """Two types of 8 leaves each, made from nothing: one turned round, one a window in a larger one."""
    plain = ArrayType((n, 2, 3, 2, 5, 2, 2, 2))
    larger = ArrayType((n, 3, 3, 4, 5, 2, 3, 2))
    turned = ArrayType([plain[k] for k in (3, 0, 2, 1, 7, 5, 6, 4)])
    window = ArrayType(
        [
            dim(sub.size, disp(of.size - sub.size), of)
            for sub, of in zip(turned, [larger[k] for k in (3, 0, 2, 1, 7, 5, 6, 4)], strict=True)
        ]
    )
    return turned, window


TRACED = 10 if sys.gettrace() or "coverage" in sys.modules else 1
"""What is traced line by line takes longer."""


def best_s(call, n=20):
    times = []
    for k in range(n):
        began_s = time.perf_counter()
        call(k)
        times.append(time.perf_counter() - began_s)
    return min(times)


def slowness():
    """Return how many times as long as usual this machine takes, at least 1, for something that it does in 50 us."""
    return max(1.0, best_s(lambda k: {i: (i, k) for i in range(1000)}, 100) / 50e-6)


@pytest.mark.parametrize("n", [2, 10**9])
def test_a_cold_pair_costs_by_its_dimensions(n):
    """Two types of 8 leaves made from nothing, and their plan: at most 2 ms, at any size."""
    assert best_s(lambda k: plan(*eight_leaves(n + k))) < 2e-3 * TRACED * slowness()
    assert plan(*eight_leaves(n)).kind == "strided"


def test_a_sliding_window_costs_little():
    """Types that differ in a displacement alone: at most 200 us each with their plan, cold."""
    whole, part = ArrayType((10**4, 10**4)), ArrayType((80, 80))
    assert (
        best_s(lambda k: plan(ArrayType((dim(80, disp(k), whole[0]), dim(80, disp(7), whole[1]))), part), 100)
        < 200e-6 * TRACED * slowness()
    )
