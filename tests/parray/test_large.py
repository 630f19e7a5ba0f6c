"""Properties of types of 10**12 elements and more: from digits alone, the same as of small ones of the same form."""

from __future__ import annotations

import random
import time
from math import prod

import numpy as np
import pytest

from offload.parray import ArrayType, dim, disp, elements, func, plan, threads, wrap
from offload.parray.digits import part_of
from tests.parray.test_plans_rules import permuted

N = 10**6


@pytest.fixture(autouse=True)
def _quickly():
    """Nothing here looks at elements: they would take hours of a processor."""
    began_s = time.thread_time()
    yield
    assert time.thread_time() - began_s < 20


def test_plain():
    """A square of 10**12 elements, its transpose, a window in it."""
    S = ArrayType((N, N))
    assert (S.size, S.nest, S.step, S.span, S.is_injective, S.is_identity) == (
        N * N,
        (0, ((N * N, 1),)),
        1,
        N * N,
        True,
        True,
    )
    T = ArrayType((S[1], S[0]))
    assert (T.nest, T.step, T.is_injective, T(5, 7)) == ((0, ((N, 1), (N, N))), 0, True, 5 + 7 * N)
    W = ArrayType((dim(N - 5, disp(3), S[0]), dim(N - 7, disp(2), S[1])))
    assert (W.nest, W.span) == ((3 * N + 2, ((N - 5, N), (N - 7, 1))), (N - 3) * N + N - 5)
    assert plan(T, S).boxes[0].digits == ((N, 1, N), (N, N, 1))
    assert plan(W, ArrayType((N - 5, N - 7))).kind == "strided"


def test_blocks():
    """Block-cyclic and blocked types divide without a look at elements."""
    L = ArrayType((N // 64, 64))
    cyclic = ArrayType((L[1], L[0], N))
    assert cyclic.is_injective is False  # rows overlap: the last sub-dimension counts from 0 too
    X = ArrayType(((N // 64, 64), N))
    turned = ArrayType((X[0, 1], X[0, 0], X[1]))
    assert turned.nest == (0, ((64, N), (N // 64, 64 * N), (N, 1)))
    assert plan(turned, X).kind == "strided"
    deep = ArrayType(dim((64, N // 64, N), turned))
    assert deep.nest == turned.nest
    again = ArrayType((deep[1], deep[0], deep[2]))
    assert again.is_identity


def test_shifts():
    """A cyclic shift, of rows and of elements, is no nest, keeps each place once, and is two boxes."""
    S = ArrayType((N, N))
    for T in (
        ArrayType((dim(N, disp(12345), wrap(N), S[0]), S[1])),
        ArrayType((S[0], dim(N, disp(-1), wrap(N)))),
        ArrayType(dim(N * N, disp(7), wrap(N * N))),
    ):
        assert (T.size, T.nest, T.step, T.is_injective, T.span) == (N * N, None, 0, True, N * N)
        assert len(plan(T, S).boxes) == 2
        assert len(plan(S, T).boxes) == 2
    assert ArrayType(dim(N * N, wrap(N))).nest == (0, ((N, 0), (N, 1)))
    assert not ArrayType(dim(N * N, wrap(N))).is_injective


def test_injective():
    """Steps that are not nested are decided by what they can add up to."""

    def stepped(*digits):
        return ArrayType([dim(count, ArrayType((count, step))[0]) for count, step in digits])

    assert stepped((7, 11), (11, 7)).is_injective  # 7 * 11 apart is what would meet
    assert not stepped((8, 11), (12, 7)).is_injective
    assert stepped((N, N + 1), (N, N)).is_injective
    assert not stepped((N + 1, N + 1), (N + 2, N)).is_injective
    assert not stepped((N, 1), (N, N - 1)).is_injective
    assert stepped((3, 5), (N, 15), (5, 3)).is_injective
    assert not stepped((3, 5), (N, 15), (6, 3)).is_injective
    assert stepped((2, 6), (2, 10), (2, 15)).is_injective
    assert not stepped((2, 6), (2, 10), (2, 16)).is_injective


def test_injective_by_the_sums():
    """Where to search takes longer than to look at the elements, these are looked at."""
    chosen = random.Random(1)
    steps = [chosen.randrange(2**24, 2**26) for _ in range(20)]  # 3**20 differences, 2**20 sums
    sums = np.zeros(1, int)
    for step in steps:
        sums = np.concatenate([sums, sums + step])
    T = ArrayType([dim(2, ArrayType((2, step))[0]) for step in steps])
    assert T.is_injective == (len(np.unique(sums)) == len(sums))


def test_numbers_that_come_twice():
    """Dense numbers and sparse ones, in one array or two, are told apart wherever they lie."""
    draw = np.random.default_rng(1)
    for scale in (1, 7, 1 << 40):
        values = draw.permutation(3000) * scale - 10**15
        twice = values.copy()
        twice[-1] = twice[7]
        assert elements.all_different(values)
        assert not elements.all_different(twice)
        assert not elements.all_different(twice, twice)
        assert elements.all_different(twice, np.arange(3000))


@pytest.mark.parametrize("length", [1023, 1024, 1025, 1026, 1 << 14, 5 << 14])
def test_nests_of_long_runs(length):
    """A run is found wherever it ends."""
    rows = np.arange(3)[:, None] * 10**6 + np.arange(length) * 5 + 11
    assert elements.nest_of(rows.reshape(-1)) == (11, ((3, 10**6), (length, 5)))
    assert elements.nest_of(rows[0]) == (11, ((length, 5),))
    assert elements.nest_of(np.append(rows.reshape(-1), 0)) is None


def test_distributed():
    """10**12 elements over threads: places, spans and pairs of threads."""
    M = threads(8)
    Z = ArrayType((M, (N // 8, N)))
    Y = ArrayType((ArrayType((N, N // 8))[0], M, ArrayType((N, N // 8))[1]))
    assert (Z.size, Z.span, Y.span, Z.is_injective, Y.is_injective) == (N * N, N * N // 8, N * N // 8, True, True)
    made = plan(Z, Y)
    assert len(made.boxes) == 64
    assert sum(box.size for box in made.boxes) == N * N


def test_a_table_in_a_large_type():
    """A table costs by its own length; a table of a nest is digits."""
    rows = ArrayType((dim(4, func([3, 2, 1, 0]), ArrayType((4, N**2))[0]), N**2))
    assert rows.nest == (3 * N**2, ((4, -(N**2)), (N**2, 1)))
    assert rows.is_injective


def test_many_pieces_that_interleave():
    """Shifts whose steps are not nested are compared piece by piece where there are too many elements to look at."""

    def around(count, step):
        return dim(count, disp(1), wrap(count), ArrayType((count, step))[0])

    odd = ArrayType([around(5, 3 * 2**k) for k in range(7)] + [dim(200, ArrayType((200, 10**6))[0])])
    assert odd.size > 2**22
    assert not odd.is_injective
    coprime = ArrayType([around(3, 5), around(5, 3), around(7, 120), dim(10**6, ArrayType((10**6, 1000))[0])])
    assert coprime.is_injective


def test_rows_by_a_table():
    """Rows in any order cost by their number: whether one comes twice, and the plan, a box for each run of them."""
    rows = [k * 77 % 100 for k in range(100)]
    S = ArrayType((100, N))
    gathered = ArrayType((dim(100, func(rows), S[0]), S[1]))
    assert (gathered.is_injective, gathered.span, gathered.nest, gathered.least) == (True, 100 * N, None, 0)
    assert len(plan(gathered, S).boxes) == len(plan(S, gathered).boxes) == 77  # runs of equal steps
    assert not ArrayType((dim(100, func([*rows[:99], 0]), S[0]), S[1])).is_injective
    window = ArrayType((dim(70, disp(5), ArrayType(((10, 10), N))[0]), dim(N, ArrayType((20, N))[1])))
    assert window.nest == (5 * N, ((70 * N, 1),))
    blocks = ArrayType(((10, 10), N))
    turned = ArrayType(((blocks[0, 1], blocks[0, 0]), blocks[1]))
    middle = ArrayType((dim(70, disp(3), turned[0]), turned[1]))  # begins and ends in the middle of a block
    assert (middle.nest, middle.is_injective) == (None, True)
    made = plan(middle, ArrayType((70, N)))
    assert made.kind == "boxes"
    assert len(made.boxes) == 8


def test_a_window_that_begins_inside_of_a_block():
    """A window of rows kept block by block, which begins and ends inside of blocks: a piece for each, at any size."""
    blocks = ArrayType(((10**4, 100), N))
    turned = ArrayType(((blocks[0, 1], blocks[0, 0]), blocks[1]))
    window = ArrayType((dim(N - 10**4, disp(3000), turned[0]), turned[1]))
    assert window.nest is None
    assert window.is_injective
    made = plan(window, ArrayType((N - 10**4, N)))
    assert made.kind == "boxes"
    assert len(made.boxes) == 100
    assert sum(box.size for box in made.boxes) == window.size


def number_at(form, k):
    """What digits say of element k."""
    base, digits = form
    for digit in reversed(digits):
        base += part_of(digit, k % digit[0])
        k //= digit[0]
    return base


def large_type(draw, depth=3):
    """A random type of many elements: permutations, windows, shifts, repetitions of dimensions of another one."""
    if not depth:
        return ArrayType([draw.choice([2, 3, 64, 1000, 12345]) for _ in range(draw.randint(2, 4))])
    inner = large_type(draw, depth - 1)
    dims = list(inner.dims)
    draw.shuffle(dims)
    tree = []
    for sub in dims:
        n, way = sub.size, draw.randrange(6)
        if way == 0 and n > 2:
            start = draw.randrange(1, n)
            tree.append(dim(n - start, disp(start), sub))
        elif way == 1:
            tree.append(dim(n, disp(draw.randint(-n, 2 * n)), wrap(n), sub))
        elif way == 2:
            tree.append(dim((2, n), wrap(n), sub))
        elif way == 3 and n % 2 == 0:
            tree.append((ArrayType(dim((2, n // 2), sub))[0], ArrayType(dim((2, n // 2), sub))[1]))
        elif way == 4:
            tree.append(dim(n, func([5, 3]) if n <= 2 else disp(0), ArrayType(n + 6)))
        else:
            tree.append(sub)
    return ArrayType(tree)


def test_digits_say_what_the_rules_say():
    """For random types of up to 4 * 10**13 elements digits and rules give the same offsets, wherever one looks."""
    largest, n_cut = 0, 0
    for seed in range(200):
        draw = random.Random(seed)
        made = large_type(draw)
        assert made.form is not None
        largest = max(largest, made.size)
        n_cut += any(cuts for *_, cuts in made.form[1])
        for k in [0, made.size - 1, *(draw.randrange(made.size) for _ in range(50))]:
            assert made(k) == number_at(made.form, k)
        assert made.span > max(made(draw.randrange(made.size)) for _ in range(20))
        assert isinstance(made.is_injective, bool)
    assert largest > 10**13
    assert n_cut > 50


def test_random_types_are_what_small_ones_are():
    """The same tree with sizes of 10**3 and of 10**15 has nests of one form, and plans of the same number of boxes."""
    for seed in range(100):
        forms = []
        for scale in (10, 10**5):
            draw = random.Random(seed)
            counts = [draw.choice([2, 3, scale]) for _ in range(4)]
            draw_types = random.Random(seed)
            source, target = (permuted(draw_types, counts, gaps=False) for _ in range(2))
            assert source.size == prod(counts)
            assert source.is_injective
            assert source.span == prod(counts)
            forms.append((len(source.nest[1]), len(target.nest[1]), len(plan(source, target).boxes[0].digits)))
        assert forms[0] == forms[1]
