"""The rules of trees and offsets, one by one, each with a case where another reading gives another number."""

from __future__ import annotations

import copy
import gc
import pickle

import numpy as np
import pytest

import offload as omp
from offload.parray import ArrayType, Place, dim, disp, func, parse, threads, wrap

A = ArrayType(((3, 3), 2))
B = ArrayType(((A[0, 1], A[0, 0]), A[1]))


# -- trees (§3) --------------------------------------------------------------------------------------
def test_trees():
    """Tuples and lists are sub-dimensions, integers leaves, of whatever kind these are."""
    assert ArrayType([[3, np.int64(3)], 2]) == A
    assert (A.size, A.ndim, A.shape, A.tree) == (18, 2, (9, 2), ((3, 3), 2))
    assert (ArrayType(7).ndim, ArrayType(7).tree, ArrayType((7,)).tree) == (0, 7, (7,))
    assert A.dims == (A[0], A[1])
    assert tuple(A) == A.dims
    assert A[-1] == A[1]
    assert A[0, -1] == A[0][1]
    assert A[()] == A


def test_equality_is_of_what_is_written():
    """Types written alike are equal, with equal hashes; a sub-dimension is equal to that of an equal type, and to
    nothing else."""
    again = ArrayType(((3, 3), 2))
    assert again == A
    assert hash(again) == hash(A)
    assert again[0, 1] == A[0, 1]
    assert hash(again[0, 1]) == hash(A[0, 1])
    assert ArrayType(A) != A  # a reference to it
    assert ArrayType(9) != A[0]
    assert A[0] != A[1]
    assert ArrayType(dim(3)) == ArrayType(3)
    assert ArrayType(dim(None, A)) == ArrayType(A)
    assert ArrayType(dim(3, disp(0))) != ArrayType(3)
    assert ArrayType(dim(3, func([0, 1, 2]))) == ArrayType(dim(3, func((0, 1, 2))))
    assert ArrayType(dim(3, func(abs))) == ArrayType(dim(3, func(abs)))
    assert ArrayType(dim(3, func(abs))) != ArrayType(dim(3, func(int)))
    assert A != "[[3][3]][2]"
    assert dim(3, disp(1)) == dim(3, disp(1))
    assert hash(dim(3, disp(1))) == hash(dim(3, disp(1)))
    assert dim(3, disp(1)) != 3
    shared = dim(3, disp(1))
    assert ArrayType((shared, 2))[0] != ArrayType((2, shared))[1]
    again = shared
    assert again == shared
    assert threads(3) == threads(3) != ArrayType(3)
    assert threads((3, 2))[0] == threads((3, 2))[0] != ArrayType((3, 2))[0]


def test_functions_without_a_hash():
    """A function that has no hash can be referred to; it is equal to itself alone."""

    class Doubling:
        __hash__ = None

        def __eq__(self, other):
            return self is other

        def __call__(self, i):
            return 2 * i

    f = Doubling()
    assert ArrayType(dim(3, func(f))) == ArrayType(dim(3, func(f)))
    assert hash(ArrayType(dim(3, func(f)))) == hash(ArrayType(dim(3, func(f))))
    assert ArrayType(dim(3, func(f))).offsets().tolist() == [0, 2, 4]
    assert str(ArrayType(dim(3, func(f)))) == "3#func(Doubling)"


def test_types_do_not_change():
    """No attribute can be set, and copies and pickles are equal."""
    with pytest.raises(AttributeError):
        A.size = 3
    for of in (
        A,
        B[0, 1],
        threads((2, 3)),
        threads((2, 3))[1],
        ArrayType(dim(5, disp(2), wrap(5), func([1, 0, 2, 3, 4]))),
    ):
        again = pickle.loads(pickle.dumps(of))
        assert again == of
        assert hash(again) == hash(of)
        assert again.kind == of.kind
        assert again.offsets().tolist() == of.offsets().tolist()
        assert copy.deepcopy(of) == of


def test_a_type_that_is_referred_to_is_kept():
    """A sub-dimension keeps what it needs of a type that nobody else has."""
    X = ArrayType((ArrayType(((4, 5), 6))[0, 1], 2))
    gc.collect()
    assert X[0].offsets().tolist() == [0, 6, 12, 18, 24]


def test_pure_references_take_sub_dimensions_of_the_first():
    """Sub-dimension j of dim(None, T, g) is dim(None, T[j], g): with the rest of the chain, and of the first
    reference only."""
    P = ArrayType(dim(None, A, disp(5), wrap(7)))
    assert (P.size, P.shape, P.tree) == (18, (9, 2), ((3, 3), 2))
    assert P[1].offsets().tolist() == [5, 6]
    assert P[0, 0].offsets().tolist() == [5, 4, 3]  # (6k + 5) mod 7
    assert P(2, 1) == (5 + 5) % 7
    Q = ArrayType(dim(None, disp(3), A))  # begins with no type: a leaf of size 1
    assert (Q.size, Q.ndim, Q(0)) == (1, 0, 3)
    assert ArrayType(dim(None, wrap(4))).size == 4
    assert ArrayType(dim(None, func([4, 2, 9]), disp(1))).offsets().tolist() == [5, 3, 10]


def test_a_body_has_its_own_size():
    """A dimension with a body has the body's size and sub-dimensions, whatever it refers to."""
    D = ArrayType(dim((2, 2), A[0]))
    assert (D.size, D.shape) == (4, (2, 2))
    assert ArrayType(dim(2, A)).ndim == 0


# -- offsets (§4) --------------------------------------------------------------------------------------
def test_rule_1_the_rightmost_index_is_fastest():
    """An index is split with the rightmost sub-dimension fastest."""
    T = ArrayType((dim(2, disp(100)), dim(3, wrap(3))))
    assert T.offsets().tolist() == [100, 101, 102, 101, 102, 103]


def test_rule_3_fixed_siblings_are_counted_in_weights():
    """A gap is left for a fixed sibling: 3 rows of 2 fixed columns have weight 2."""
    T = ArrayType((3, dim(2, wrap(1))))
    assert T.offsets().tolist() == [0, 0, 2, 2, 4, 4]
    assert T[0].offsets().tolist() == [0, 2, 4]


def test_rule_3_weights_begin_at_1_in_a_fixed_dimension():
    """Inside a fixed dimension weights are counted from it, not from the root."""
    X = ArrayType((dim((2, 3), disp(0)), 5))
    assert X(3, 0) == 3  # not 15
    assert X[0, 0](1) == 3
    assert X[0, 1](1) == 1


def test_rule_4_a_regular_dimension_has_both_parts():
    """The sum of a dimension's regular and fixed parts: only the regular one goes through the references above."""
    T = ArrayType(dim((3, dim(2, disp(5))), wrap(3)))
    # r = 2i, x = 5 + j: r mod 3 + x
    assert T.offsets().tolist() == [5, 6, 7, 8, 6, 7]


def test_rule_5_references_apply_from_left_to_right():
    """(i + 3) mod 4, not i mod 4 + 3."""
    assert ArrayType(dim(4, disp(3), wrap(4))).offsets().tolist() == [3, 0, 1, 2]
    assert ArrayType(dim(4, wrap(4), disp(3))).offsets().tolist() == [3, 4, 5, 6]


def test_rule_5_fixed_parts_are_left_alone():
    """A fixed dimension below another one adds its own offset after the other's references."""
    T = ArrayType(dim((2, dim(2, disp(10))), A[0]))
    # A[0](2i) + 10 + j, not A[0](2i + 10 + j)
    assert T.offsets().tolist() == [10, 11, 14, 15]


def test_rule_7_a_sub_dimension_under_references():
    """By itself a regular sub-dimension has its weight within the nearest dimension with references, and all of
    these."""
    T = ArrayType(dim(((2, 3), 4), disp(7), wrap(24), A_TABLE := func(list(range(0, 48, 2)))))
    assert T[0, 0].offsets().tolist() == [14, 38]  # weight 12
    assert T[0, 1].offsets().tolist() == [14, 22, 30]  # weight 4
    assert T[1].offsets().tolist() == [14, 16, 18, 20]
    assert func(range(0, 48, 2)) == A_TABLE


def test_rule_7_those_above_do_not_act():
    """The references above the nearest dimension that has any are not asked."""
    inner = dim((2, 3), disp(100))
    T = ArrayType(dim((inner, 4), disp(1000)))
    assert T[0, 1].offsets().tolist() == [100, 101, 102]
    assert T[0].offsets().tolist() == [100, 101, 102, 103, 104, 105]
    assert T[1].offsets().tolist() == [1000, 1001, 1002, 1003]  # this one's are the root's
    assert T(0) == 1100


def test_rule_7_without_references_above():
    """A regular sub-dimension of a plain root has its weight in the whole."""
    T = ArrayType(((2, 3), (4, 5)))
    assert [T[0, 0](1), T[0, 1](1), T[1, 0](1), T[1, 1](1)] == [60, 20, 5, 1]


def test_rule_8_several_indices():
    """Indices are counted in row-major order of the sizes, nested ones may be tuples, and arrays broadcast."""
    assert (A((1, 2), 1), A(5, 1), A(11)) == (11, 11, 11)
    assert A.ravel((1, 2), 1) == A.ravel(5, 1) == 11
    assert A.unravel(11) == ((1, 2), 1)
    assert ArrayType(7).unravel(3) == ArrayType(7).ravel(3) == 3
    assert ArrayType((7,)).unravel(3) == (3,)
    assert B(np.arange(9)[:, None], np.arange(2)).tolist() == B.offsets().reshape(9, 2).tolist()
    assert A((np.arange(3), 2), 1).tolist() == [5, 11, 17]
    found = A.unravel(np.array([11, 0]))
    assert found[0][0].tolist() == [1, 0]
    assert B(np.array([], int)).tolist() == []
    assert B(np.uint8(4)) == B(4)
    assert B(np.array([4, 5], "u2")).dtype == np.int64
    assert isinstance(B(np.int64(4)), int)


def test_table_1_of_the_manual():
    """For [[n][n]][m] the manual's table holds for every n and m."""
    for n, m in ((1, 1), (2, 3), (4, 2), (10**6, 5)):
        T = ArrayType(((n, n), m))
        i, j, k = n // 2, n - 1, m - 1
        assert T((i, j), k) == i * n * m + j * m + k
        assert T(i * n + j, k) == i * n * m + j * m + k
        assert T[0](n * n - 1) == (n * n - 1) * m
        assert (T[1](k), T[0, 0](i), T[0, 1](j)) == (k, i * n * m, j * m)


def test_regular_and_fixed_in_one_type():
    """[[3][#A_1]][2]#B: the gap in the weights counts the fixed sibling."""
    C = ArrayType(dim(((3, A[1]), 2), B))
    assert C[0, 0].offsets().tolist() == [0, 12, 8]
    assert C[0, 1].offsets().tolist() == [0, 1]
    assert C[0].offsets().tolist() == [0, 1, 12, 13, 8, 9]
    assert C.offsets().tolist() == [0, 1, 1, 2, 12, 13, 13, 14, 8, 9, 9, 10]


def test_indices_that_are_not_there():
    """An index out of range, a wrong number of them and a sub-dimension that does not exist are an IndexError."""
    for call in (
        lambda: A(18),
        lambda: A(-1),
        lambda: A(9, 0),
        lambda: A(0, 2),
        lambda: A((3, 0), 0),
        lambda: A((0, 0, 0), 0),
        lambda: A(0, 0, 0),
        A,
        lambda: A((1, 2)),
        lambda: A(0, (1,)),
        lambda: ArrayType(7)(1, 2),
        lambda: ArrayType(7)((1,)),
        lambda: A(np.array([3, 18])),
        lambda: A(np.array([-1, 3])),
        lambda: ArrayType(0)(0),
        lambda: A.unravel(18),
        lambda: A.ravel(0),
        lambda: A[2],
        lambda: A[-3],
        lambda: A[0, 1, 0],
        lambda: ArrayType(7)[0],
    ):
        with pytest.raises(IndexError):
            call()
    for call in (lambda: A(1.0), lambda: A("1"), lambda: A(np.array([1.0])), lambda: A[0.5], lambda: A([1, 2])):
        with pytest.raises(TypeError):
            call()


# -- references (§5) --------------------------------------------------------------------------------------
def test_wrap_is_of_mathematics():
    """wrap(n) is 0 to n - 1 for negative indices too, of integers and of arrays."""
    T = ArrayType(dim(4, disp(-6), wrap(4)))
    assert [T(k) for k in range(4)] == T.offsets().tolist() == [2, 3, 0, 1]


def test_functions_are_called_late_and_with_what_was_asked():
    """A function is called when an offset is asked for, with an integer or an integer array."""
    seen = []

    def f(i):
        seen.append(type(i))
        return 3 * i

    T = ArrayType((dim(4, func(f)), 2))
    assert (T.size, T.shape, T[0].kind, str(T), hash(T)) == (8, (4, 2), "memory", "[4#func(f)][2]", hash(T))
    assert seen == []
    assert T(2, 1) == 7
    assert T(np.array([0, 7])).tolist() == [0, 10]
    assert seen == [int, np.ndarray]
    U = ArrayType(dim((dim(4, disp(3)),), func(f)))  # nothing of it is regular: the function is asked for 0
    assert U(np.array([1, 2])).tolist() == [4, 5]
    assert U(1) == 4
    assert seen == [int, np.ndarray, np.ndarray, int]


def test_no_index_leaves_nothing():
    """An empty array of indices is fine with any type, also with one where each index would leave."""
    none = np.empty((2, 0), int)
    for T in (
        A,
        ArrayType(0),
        ArrayType((3, dim(2, func(lambda i: i)))),
        ArrayType(dim((dim(0, disp(1)),), ArrayType(0))),
    ):
        assert T(none).shape == (2, 0)


def test_a_table_is_copied():
    """What becomes of a list after it was given changes nothing."""
    table = [3, 1]
    T = ArrayType(dim(2, func(table)))
    table[0] = 99
    array = np.array([4, 5], "u1")
    U = ArrayType(dim(2, func(array)))
    array[:] = 0
    assert T.offsets().tolist() == [3, 1]
    assert U.offsets().tolist() == [4, 5]


@pytest.mark.slow
def test_a_table_of_ten_million_entries():
    """A long table costs a few passes over it."""
    table = np.arange(10**7)[::-1]
    T = ArrayType(dim(10**7, func(table)))
    assert T.nest == (10**7 - 1, ((10**7, -1),))
    assert T(10**7 - 1) == 0


def test_offsets_beyond_64_bits():
    """Integers have no limit; arrays of offsets that 64 bits cannot hold are a LayoutError."""
    T = ArrayType((2**40, 2**40))
    assert T.size == T.span == 2**80
    assert T(2**40 - 1, 2**40 - 1) == 2**80 - 1
    assert T[1](np.array([5, 2**40 - 1])).tolist() == [5, 2**40 - 1]
    assert T(np.array([2**62])).tolist() == [2**62]
    with pytest.raises(omp.LayoutError):
        T[0](np.array([2**39]))
    with pytest.raises(omp.LayoutError):
        T.ravel(np.array([2**39]), 5)
    with pytest.raises(omp.LayoutError):
        T(np.array([2**39, 1]), np.array([5, 0]))
    around = ArrayType((dim(2**40, wrap(7)), dim((2**20, 2**20), wrap(5))))  # offsets fit where indices do not
    assert around(np.array([[2**39], [1]]), (2, np.array([3, 4]))).tolist() == [
        [2**39 % 7 + (2**21 + k) % 5 for k in (3, 4)],
        [1 + (2**21 + k) % 5 for k in (3, 4)],
    ]
    assert [part.tolist() for part in ArrayType((3, 2**64)).unravel(np.array([5]))] == [[0], [5]]
    U = ArrayType((dim(3, disp(2**63)),))
    assert U(1) == 2**63 + 1
    with pytest.raises(omp.LayoutError):
        U.offsets()
    V = ArrayType(dim(2, func([2**70, 5])))
    assert V(0) == 2**70
    with pytest.raises(omp.LayoutError):
        V.span
    assert ArrayType(dim(3, wrap(2**70), disp(1))).offsets().tolist() == [1, 2, 3]


# -- thread arrays (§8) ------------------------------------------------------------------------------------
def test_thread_numbers():
    """A thread array gives each number once, in the order of its tree; its sub-dimensions are of it."""
    M = threads((3, 4))
    assert (M.kind, M.size, M.threads) == ("threads", 12, M)
    assert M.unravel(5) == (1, 1)
    turned = threads((M[1], M[0]))
    assert turned.offsets().tolist() == np.arange(12).reshape(3, 4).T.ravel().tolist()
    assert turned[0].threads == turned
    assert M[0].threads == M
    assert threads(dim(4, disp(1), wrap(4))).offsets().tolist() == [1, 2, 3, 0]
    assert threads(0).size == 0
    assert threads((dim(3, ArrayType((3, 2))[0]), 2)).offsets().tolist() == list(range(6))
    assert M.nest == (0, ((12, 1),))
    assert M.span == 12


def test_places():
    """Each chain counts threads if its last type is a thread array, else memory; a type may have both."""
    M = threads(3)
    K = ArrayType(((M, A[0, 1]), A[1]))
    L = ArrayType(((A[0, 1], M), A[1]))
    assert K((1, 2), 1) == Place(1, 5) == Place(thread=1, offset=5)
    assert L((1, 2), 1) == Place(2, 3)
    assert (K.kind, K[0].kind, K[0, 0].kind, K[0, 1].kind) == ("both", "both", "threads", "memory")
    assert (K.threads, K[0, 0].threads, K[0, 1].threads, A.threads) == (M, M, None, None)
    assert (K[0, 0](2), K[0, 1](2), K.span, K.is_injective) == (2, 4, 6, True)
    shifted = ArrayType((dim(2, disp(1), M), 4))
    assert shifted(1, 3) == Place(2, 3)
    after = ArrayType((dim(2, M, disp(1)), 4))
    assert after(1, 3) == Place(2, 3)
    used = ArrayType((dim(3, M, A[0]), 2))  # the last type is of memory
    assert (used.kind, used.threads, used(2, 1)) == ("memory", None, 5)
    end = ArrayType(dim((2, dim(3, disp(1))), wrap(6), K))  # K as the last of a chain; a fixed part in memory beside it
    assert end.kind == "both"
    assert end(1, 2) == Place(K(3).thread, K(3).offset + 3)
    found = K.offsets()
    assert isinstance(found, Place)
    assert found.thread.dtype == found.offset.dtype == np.int64


def test_regular_parts_of_a_distributed_type_are_memory():
    """A plain size beside a thread array counts elements, with the weight of a C array."""
    T = ArrayType((4, threads(2), 3))
    assert T(2, 1, 1) == Place(1, 2 * 6 + 1)


def test_fixed_threads_inside_of_references():
    """The chain of an outer dimension counts memory, the thread array inside of it threads."""
    T = ArrayType(dim((threads(3), 4), disp(10)))
    assert T(2, 1) == Place(2, 11)
    assert T[0].kind == "threads"
    assert T[1].offsets().tolist() == [10, 11, 12, 13]


# -- properties (§6) ------------------------------------------------------------------------------------------
def test_the_manuals_properties():
    """Steps, contiguity and nests of the manual's examples."""
    assert [T.step for T in (A, A[1], A[0], A[0, 1], A[0, 0], B, B[0], B[0, 1])] == [1, 1, 2, 2, 6, 0, 0, 6]
    assert (A.is_contiguous, B.is_contiguous, B[1].is_contiguous) == (True, False, True)
    assert (A.is_identity, B[1].is_identity, ArrayType(dim(3, disp(1))).is_identity) == (True, True, False)
    assert (A.nest, B.nest) == ((0, ((18, 1),)), (0, ((3, 2), (3, 6), (2, 1))))


def test_edges_of_properties():
    """Types of no element and of one."""
    none, one = ArrayType((0, 4)), ArrayType(dim(1, disp(7)))
    assert (none.size, none.nest, none.step, none.span, none.least) == (0, (0, ((0, 1),)), 1, 0, 0)
    assert none.is_contiguous
    assert none.is_identity
    assert none.is_injective
    assert none.offsets().tolist() == []
    assert (one.nest, one.step, one.span, one.least, one.is_identity) == ((7, ()), 1, 8, 7, False)
    assert ArrayType(1).is_identity
    assert ArrayType(dim(3, wrap(1))).nest == (0, ((3, 0),))
    assert ArrayType(dim(3, disp(-2))).least == -2


def test_properties_from_offsets():
    """Where digits do not decide, offsets do: a table, a function, references that do not divide."""
    row = ArrayType(dim(6, func(lambda i: i // 3 * 10 + i % 3)))
    assert (row.form, row.nest, row.step) == (None, (0, ((2, 10), (3, 1))), 0)
    assert (row.span, row.least, row.is_injective) == (13, 0, True)
    assert not ArrayType(dim(6, func(lambda i: i // 2))).is_injective
    assert ArrayType(dim(4, func([5, 1, 5, 2]))).nest is None
    diagonal = ArrayType(dim(3, ArrayType((3, 4))[0], ArrayType((4, 4)), disp(0)))
    assert diagonal.nest == (0, ((3, 4),))
    moved = ArrayType(dim(4, disp(1), B))  # from the middle of B's blocks
    assert moved.offsets().tolist() == B.offsets().tolist()[1:5]


def test_what_a_distributed_type_has_not():
    """step, is_contiguous, is_identity, nest and view of a distributed type are a LayoutError."""
    K = ArrayType((threads(3), 4))
    for name in ("step", "is_contiguous", "is_identity", "nest", "axes"):
        with pytest.raises(omp.LayoutError):
            getattr(K, name)


def test_axes():
    """An entry for each leaf in order, sizes of 1 too; None where a leaf has not one stride."""
    assert A.axes == (0, ((3, 6), (3, 2), (2, 1)))
    assert B.axes == (0, ((3, 2), (3, 6), (2, 1)))
    assert ArrayType((dim(3, disp(4), ArrayType((9, 5))[0]), 1, 5)).axes == (20, ((3, 5), (1, 0), (5, 1)))
    assert ArrayType((dim(5, disp(2), wrap(5)),)).axes is None
    assert ArrayType((dim(18, B),)).axes is None
    assert ArrayType((0, 4)).axes == (0, ((0, 0), (4, 0)))
    assert B.view(np.arange(18))[2, 1].tolist() == [10, 11]
    assert ArrayType((dim(2, func([0, 5])), 2)).axes == (0, ((2, 5), (2, 1)))


def test_the_oracle_of_numpy():
    """Without references below the root, types are reshape, transpose and slicing of np.arange; windows are slices."""
    for shape in ((3,), (2, 3), (4, 1, 3), (2, 3, 2, 2)):
        size = int(np.prod(shape))
        plain = ArrayType(shape)
        whole = np.arange(size).reshape(shape)
        for axes in (tuple(range(len(shape)))[::-1], tuple(np.roll(range(len(shape)), 1).tolist())):
            assert ArrayType([plain[k] for k in axes]).offsets().tolist() == whole.transpose(axes).ravel().tolist()
        starts = [n // 2 for n in shape]
        window = ArrayType(
            [dim(n - start, disp(start), plain[k]) for k, (n, start) in enumerate(zip(shape, starts, strict=True))]
        )
        assert window.offsets().tolist() == whole[tuple(slice(start, None) for start in starts)].ravel().tolist()
        backwards = [dim(n, func(range(n - 1, -1, -1)), plain[k]) for k, n in enumerate(shape)]
        assert ArrayType(backwards).offsets().tolist() == np.flip(whole).ravel().tolist()
        steps = ArrayType(
            [
                dim((n + 1) // 2, ArrayType(((n + 1) // 2, 2))[0], ArrayType(n + n % 2), wrap(n), plain[k])
                for k, n in enumerate(shape)
            ]
        )
        assert steps.offsets().tolist() == whole[tuple(slice(None, None, 2) for _ in shape)].ravel().tolist()


def test_texts():
    """repr has the notation, and a long one without its middle."""
    assert repr(A) == "<ArrayType [[3][3]][2]>"
    assert str(A[0, 1]) == "([[3][3]][2])_0_1"
    assert repr([disp(-1), wrap(3), func([1]), func(abs)]) == "[disp(-1), wrap(3), func([1]), func(abs)]"
    assert repr(dim(3, A[0])) == "<dimension 3#([[3][3]][2])_0>"
    assert str(ArrayType(dim(3, func([1, 2, 3, 4])))) == "3#func([1, 2, 3, …])"
    assert str(ArrayType(dim(2, func([1, 2])))) == "2#func([1, 2])"
    assert (str(threads(3)), str(ArrayType((threads((2, 3))[1], 2)))) == ("threads(3)", "[#threads([2][3])_1][2]")
    assert len(repr(ArrayType((3,) * 1000))) < 500
    assert parse(str(B)) == B
