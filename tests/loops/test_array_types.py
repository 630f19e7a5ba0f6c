"""Array types in loops: offsets, checks, keys, proofs and messages, beside CPython."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offload as omp
from offload import acc
from offload.devices.sim.device import SimDevice
from offload.loops.front.source import FunctionSource
from offload.loops.running import plan, runs
from offload.loops.running.build import Builder
from offload.parray import ArrayType, dim, disp, func, threads, tiles, wrap
from tests.conftest import checked
from tests.loops.cuda_form import GXX
from tests.loops.on_devices import cut_by, present
from tests.parray.test_types_rules import meant_by
from tests.parray.trees import library_type
from tests.profiles import examples, few

pytestmark = pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning")

WHERE = ("sim", "threads", "python", "cuda")
N, M = 6, 4
A = ArrayType((N, M))
TURNED = ArrayType((A[1], A[0]))
TILED = ArrayType(((2, 3), (2, 2)))
BLOCKS = ArrayType((TILED[0, 0], TILED[1, 0], TILED[0, 1], TILED[1, 1]))
CYCLE = ArrayType((dim(N, disp(2), wrap(N), A[0]), A[1]))
LOCAL = ArrayType((N * M // 2 // 3, 3))
CYCLIC = ArrayType((LOCAL[0], threads(2), LOCAL[1]))  # blocks of 3 in turn on two threads


@pytest.fixture(params=few(("sim", "python", "cuda"), WHERE))
def loop(request, monkeypatch):
    """Makes a loop function: on a simulated device, the host's threads, without a compiler, or as CUDA for the host."""
    if request.param == "python":
        for module in (plan, runs):
            monkeypatch.setattr(module, "builder", Builder({"OFFLOAD_CC": "none"}))
    if request.param == "cuda":
        if GXX is None:
            pytest.skip("no C++ compiler")
        from tests.loops.cuda_device import HostCuda

        monkeypatch.setattr(SimDevice, "kernels", HostCuda())
    with checked("sim:1"):
        yield omp.parallel_loop if request.param == "threads" else omp.target_loop


def both(made, *arguments):
    """Run a loop function, and CPython, on copies; compare all arrays, and return the loop's."""
    mine, serial = ([one.copy() if isinstance(one, np.ndarray) else one for one in arguments] for _ in range(2))
    expected = made.python(*serial)
    found = made(*mine)
    assert (found is None and expected is None) or found == expected
    for one, other in zip(mine, serial, strict=True):
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other)
    return mine


def numbers(n):
    return np.arange(float(n)) + 100


# -- listings: one text for each, whatever the layout ---------------------------------------------------


def through(a, b, S, T):
    """b[T(k)] = a[S(k)] for every k."""
    for k in range(S.size):
        b[T(k)] = a[S(k)]


def transposed(a, b, S, T):
    for i in range(S.shape[0]):
        for j in range(S.shape[1]):
            b[T(i, j)] = 2 * a[S(i, j)]


def blocked(a, b, T):
    """A tiled walk: the layout has a leaf for each of block row, block column, row and column."""
    for p in range(T.shape[0]):
        for q in range(T.shape[1]):
            for i in range(T.shape[2]):
                for j in range(T.shape[3]):
                    b[T(p, q, i, j)] = a[T(p, q, i, j)] + p - q


def dealt(a, b, T):
    """A cyclic distribution: the row of b is the thread."""
    for k in range(T.size):
        b[T(k)] = a[k]


PAIRS = [(A, TURNED), (TURNED, A), (A, A), (CYCLE, A), (A, CYCLE), (TILED, BLOCKS), (BLOCKS, ArrayType(N * M))]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_change_of_layout(loop, pair):
    """The same loop with other types: each element goes where the types say."""
    both(loop(through), numbers(N * M), np.zeros(N * M), *pair)


@pytest.mark.parametrize("pair", [(A, ArrayType((A[0], A[1]))), (TURNED, ArrayType((M, N)))], ids=str)
def test_transposition(loop, pair):
    """A matrix through types that refer to another one's dimensions."""
    both(loop(transposed, collapse=2), numbers(N * M), np.zeros(N * M), *pair)


def test_tiles(loop):
    """A nest over blocks and their elements; a tile's type is an argument like any other."""
    both(loop(blocked, collapse=4), numbers(N * M), np.zeros(N * M), BLOCKS)
    b = np.zeros(N * M)
    for tile in tiles(A, (4, 3)):
        a = numbers(N * M)
        loop(transposed, collapse=2)(a, b, tile.type, tile.type)
    np.testing.assert_array_equal(b, 2 * numbers(N * M))


def test_cyclic_distribution(loop):
    """The place of a distributed type is an index of two numbers."""
    both(loop(dealt), numbers(CYCLIC.size), np.zeros((2, CYCLIC.span)), CYCLIC)


def parts(b, T):
    for k in range(T.size):
        p, at = T(k)
        b[p, at] = b[T(k)] + 10 * T(k).thread + T(k).offset


def test_parts_of_a_place(loop):
    """`.thread`, `.offset`, and both at once."""
    both(loop(parts), np.zeros((2, CYCLIC.span)), CYCLIC)


def properties(b, T):
    n, m = T.shape
    for i in range(T[0, 0].size):
        for j in range(T[0].shape[1]):
            for k in range(m):
                b[T((i, j), k)] = T[0](i, j) + T[0][1](j) * T[-1](k) + T.size + T.ndim + n + T.span
                b[T((i, j), k)] += T.ravel((i, j), k) + T[0].ravel(i, j)


def test_properties_and_sub_dimensions(loop):
    """Sub-dimensions by themselves, sizes, shapes, element numbers."""
    both(loop(properties, collapse=3), np.zeros(24), ArrayType(((2, 3), 4)))


def unravelled(b, T):
    for k in range(T.size):
        i, j = T.unravel(k)
        b[T(i, j)] = 10 * i + j + k


def test_unravel(loop):
    """The indices of an element."""
    both(loop(unravelled), np.zeros(24), TURNED)


def helped(b, k, T, U=TURNED):
    b[T(k)] += U(k)


def indirectly(b, T):
    for k in range(T[0].size):
        helped(b, k, U=T[0], T=T[0])


def test_type_that_only_a_called_function_calls(loop):
    """The decorator leaves the text to the first call."""
    both(loop(indirectly), np.zeros(24), A)


def outside(b, x):
    for k in range(x.size):
        helped(b, k, A[0])
        helped(b, k, TURNED[1], U=A)
        if k < 3 and b[A(k, 1)] < 50 and x[A[1](k)] > 0:
            b[A(2 * k, 0)] = TURNED(x[k], 0)


def test_globals_helpers_and_branches(loop):
    """Types of the module, as arguments and defaults of called functions, in conditions, with indices from arrays."""
    words = {"seq": True} if loop is omp.target_loop else {"num_threads": 1}
    both(loop(outside, **words), np.zeros(24), np.array([1, 0, 3, 2]))


# -- all types ------------------------------------------------------------------------------------------


def four(o, n, P, Q, R, S):
    for k in range(n):
        if k < P.size:
            o[0, k] = P(k)
        if k < Q.size:
            o[1, k] = Q(k)
        if k < R.size:
            o[2, k] = R(k)
        if k < S.size:
            o[3, k] = S(k)


def types_from(seed, n):
    """Return n random types whose offsets loops can compute."""
    found = []
    while len(found) < n:
        seed += 1
        try:
            made = library_type(meant_by(seed))
            source = FunctionSource.of(one)
            parse_of(source, made)
        except (omp.LayoutError, omp.LoopError):
            continue
        found += [each for each in (made, *made.dims) if each.kind == "memory" and can_be_called(each)]
    return found[:n]


def one(o, T):
    for k in range(T.size):
        o[k] = T(k)


def parse_of(source, made):
    from offload.loops.front.parse import NestClauses, parse

    return parse(source, NestClauses(), frozenset(), {"T": made})


def can_be_called(made):
    try:
        parse_of(FunctionSource.of(one), made)
    except omp.LoopError:
        return False
    return True


@settings(max_examples=examples(10, soak=500))
@given(seed=st.integers(0, 2**20))
def test_random_types(seed):
    """The offsets of random types: trees, references, cycles, tables; in C, as Python and as CUDA."""
    types = types_from(seed, 4)
    n = max(each.size for each in types)
    expected = np.full((4, max(n, 1)), -1)
    four(expected, n, *types)
    found = np.full((4, max(n, 1)), -1)
    with checked("sim:1"):
        omp.target_loop(four)(found, n, *types)
    np.testing.assert_array_equal(found, expected)


# -- checks ---------------------------------------------------------------------------------------------


def picked(x, b, T):
    for k in range(x.size):
        b[k] = T(x[k])


def counted(b, n, T):
    for k in range(n):
        b[k] = T(k)


def by_two(x, b, T):
    for k in range(x.size):
        b[k] = T(1, x[k])


@pytest.mark.parametrize("index", [-1, N * M, 1 << 40, -(1 << 62)])
def test_index_from_data_is_out_of_range(loop, index):
    """As in CPython an index is checked, and a negative one does not count from the end."""
    x, b = np.array([0, 3, index, 2]), np.zeros(4)
    with pytest.raises(IndexError):
        picked(x, b.copy(), A)
    with pytest.raises(IndexError, match=rf"index {index} is out of bounds for axis 0 of 'T\(x\[k\]\)' with size 24"):
        loop(picked)(x, b, A)
    with pytest.raises(IndexError, match=r"index 4 is out of bounds for axis 1 of 'T\(1, x\[k\]\)' with size 4"):
        loop(by_two)(np.array([0, 4]), b, A)
    assert b[2] == 0


def test_unsigned_index_is_out_of_range(loop):
    """An index that int64 does not hold is not -1."""
    with pytest.raises(IndexError, match="out of bounds"):
        loop(picked)(np.array([2**64 - 1], np.uint64), np.zeros(1), A)
    both(loop(picked), np.array([3, 5], np.uint64), np.zeros(2), A)


def test_certain_index_is_refused_at_the_call(loop):
    """An index that certainly leaves raises before anything has changed."""
    b = np.zeros(30)
    with pytest.raises(IndexError, match="index 24 is out of bounds"):
        loop(counted)(b, 25, A)
    assert not b.any()
    both(loop(counted), b, 24, A)


def on_host(b, n, T):
    first = T(n)
    for k in range(first, T(n, 1)):
        b[k] = first


def test_calls_before_the_nest(loop):
    """A call outside of nests is carried out, and checked, by the host."""
    both(loop(on_host), np.zeros(24), 1, A)
    with pytest.raises(IndexError, match="out of bounds for axis 0 of 'T"):
        loop(on_host)(np.zeros(24), 24, A)


def guarded(x, b, T):
    for k in range(x.size):
        i = x[k]
        b[k] = T(i) if 0 <= i < T.size else -1
        if i > 1000:
            b[k] = T(i)


def test_check_follows_the_branch(loop):
    """An index is checked where Python would call the type."""
    both(loop(guarded), np.array([5, -3, 99]), np.zeros(3), A)


def hits(x, h, T):
    for k in range(x.size):
        h[T(x[k])] += 1


def test_atomic_updates(loop):
    """A type names the element of an atomic update."""
    both(loop(hits, atomic=["h"]), np.array([5, 3, 5, 5, 0]), np.zeros(24), TURNED)


def summed(a, T):
    s = 0.0
    for i in range(T.shape[0]):
        for j in range(T.shape[1]):
            s += a[T(i, j)] * T(j, 0)
    return s


def test_reductions(loop):
    """Calls in a reduction's value."""
    both(loop(summed, collapse=2, reduction={"+": ["s"]}), numbers(24), ArrayType((M, M)))


def shared(x, a, b, T):
    for i in acc.loop(range(b.size), gang=True):
        s = 0.0
        for k in acc.loop(range(x.size), vector=True, reduction={"+": ["s"]}):
            s += a[T(x[k], i)]
        b[i] = s + a[T(i, 0)]


def test_loops_that_threads_share():
    """Threads of a block check their own indices; one of them out of range fails the call, and nothing hangs."""
    if GXX is None:
        pytest.skip("no C++ compiler")
    from tests.loops.cuda_device import HostCuda

    with pytest.MonkeyPatch.context() as patch, checked("sim:1"):
        patch.setattr(SimDevice, "kernels", HostCuda())
        made = acc.parallel_loop(shared)
        both(made, np.arange(200) % N, numbers(24), np.zeros(M), A)
        with pytest.raises(IndexError, match=r"index 7 is out of bounds for axis 0 of 'T\(x\[k\], i\)' with size 6"):
            made(np.arange(200) % 8 // 7 * 7, numbers(24), np.zeros(M), A)


# -- proofs ---------------------------------------------------------------------------------------------


def facts_of(function, *arguments, **words):
    with checked("sim:1"):
        return omp.target_loop(function, **words).explain(*arguments).to_dict()


@pytest.mark.parametrize("pair", [*PAIRS, (A, ArrayType(((2, 3), (N * M // 6))))], ids=str)
def test_one_to_one_types_are_independent(pair):
    """Writes through a type that gives each place once are proved independent, by number and by leaf."""
    facts = facts_of(through, np.zeros(24), np.zeros(24), *pair)
    assert facts["nests"][0]["verdict"] == "parallel"
    assert {facts["arrays"][name]["bounds"] for name in "ab"} == {"launch"}


def test_explain_says_what_is_affine():
    """`explain` has each type that is called, and whether it is affine; affine indices are checked at the launch."""
    facts = facts_of(transposed, np.zeros(24), np.zeros(24), TURNED, ArrayType((M, N)), collapse=2)
    assert facts["types"]["S"].endswith(", affine")
    assert facts["nests"][0]["verdict"] == "parallel"
    assert facts["arrays"]["b"] == {"access": "write", "map": "tofrom", "bounds": "launch"}
    facts = facts_of(through, np.zeros(24), np.zeros(24), CYCLE, A)
    assert facts["types"]["S"].endswith(", not affine")
    assert facts["types"]["T"].endswith(", affine")


def test_several_elements_in_one_place():
    """A type that repeats its places is no proof; in a plain update the usual warning follows."""
    twice = ArrayType((dim(2, wrap(1)), 12))
    assert facts_of(through, np.zeros(24), np.zeros(24), A, twice)["nests"][0]["verdict"] == "unknown"
    shifted = ArrayType((dim(3, disp(1)), M))
    facts = facts_of(carried, np.zeros(24), ArrayType((A[0], M)), ArrayType((dim(N - 1, disp(1), A[0]), M)))
    assert facts["nests"][0]["verdict"] == "sequential"
    assert shifted.size == 12


def carried(a, S, T):
    for i in range(T.shape[0]):
        for j in range(T.shape[1]):
            a[T(i, j)] = a[S(i, j)] + 1


def test_dependence_through_types_is_proved():
    """Rows that depend on the row before: with `seq` they are right, without it the call is refused."""
    S, T = A, ArrayType((dim(N - 1, disp(1), A[0]), A[1]))
    with checked("sim:1"):
        with pytest.raises(omp.LoopError, match="depend on each other"):
            omp.target_loop(carried)(np.zeros(24), S, T)
        both(omp.target_loop(carried, seq=True), numbers(24), S, T)


@pytest.mark.parametrize(
    "words", [{"check": True}, {"speculate": True}, {"seq": True}, {"speculate": "always"}], ids=str
)
def test_words_about_order(words):
    """Types that digits do not decide about, under each way to run a loop."""
    table = ArrayType(dim(24, func([*range(12, 24), *range(12)])))
    with checked("sim:1"):
        for layout in (TURNED, table):
            both(omp.target_loop(through, **words), numbers(24), np.zeros(24), layout, layout)
        both(omp.target_loop(picked, **words), np.array([5, 3, 5]), np.zeros(3), A)


@pytest.mark.parametrize("weights", few([(1, 1), (1, 0, 3)], [(1, 1), (1, 2, 1), (1, 0, 3)]), ids=str)
@pytest.mark.parametrize("pair", [(A, ArrayType((A[0], A[1]))), (TURNED, ArrayType((M, N))), (A, A)], ids=str)
def test_several_devices(weights, pair):
    """Affine types divide a loop as indices by hand do."""
    a, b = numbers(24), np.zeros(24)
    expected = np.zeros(24)
    transposed(a, expected, *pair)
    with checked(f"sim:{len(weights)}"), cut_by(weights), present({"a": a, "b": b}):
        loop = omp.target_loop(transposed, collapse=2, devices="all", filter="always")
        for _ in range(2):
            loop(a, b, *pair)
        assert loop.explain(a, b, *pair).to_dict()["filter"]["mode"] == "split"
    np.testing.assert_array_equal(b, expected)


def test_several_devices_by_number():
    """Flat numbers through a type divide as well."""
    a, b, expected = numbers(24), np.zeros(24), np.zeros(24)
    through(a, expected, A, TURNED)
    with checked("sim:3"), present({"a": a, "b": b}):
        omp.target_loop(through, devices="all", filter="always")(a, b, A, TURNED)
    np.testing.assert_array_equal(b, expected)


def several(a, b, T):
    for k in range(T.size):
        a[T(k)] += 1
    for k in range(T.size):
        b[T(k)] = a[k]


def test_kernels_loop():
    """Several nests, each of which is proved."""
    with checked("sim:1"):
        made = acc.kernels_loop(several)
        facts = made.explain(numbers(24), np.zeros(24), TURNED).to_dict()
        assert [nest["verdict"] for nest in facts["nests"]] == ["parallel", "parallel"]
        both(made, numbers(24), np.zeros(24), TURNED)


# -- keys -----------------------------------------------------------------------------------------------


def test_type_is_part_of_the_key(loop):
    """Other types at the next call, of equal shapes: other constants; equal types need not be one object."""
    made = loop(through)
    for layout in (A, TURNED, CYCLE, A, ArrayType((N, M)), TURNED):
        both(made, numbers(24), np.zeros(24), layout, A)


def test_closure_changes(loop):
    """A closure's type is frozen for a call, and looked at in each."""
    T = A

    def inner(a, b):
        for k in range(T.size):
            b[T(k)] = a[k]

    made = loop(inner)
    both(made, numbers(24), np.zeros(24))
    T = TURNED
    both(made, numbers(24), np.zeros(24))


# -- refusals -------------------------------------------------------------------------------------------


def as_number(b, T):
    for k in range(b.size):
        b[k] = T + T(k)


def too_many(b, T):
    for k in range(b.size):
        b[k] = T(k, k, k)


def by_keyword(b, T):
    for k in range(b.size):
        b[k] = T(k=k)


def of_element(b, T):
    for k in range(b.size):
        b[k] = T[k](0)


def no_such(b, T):
    for k in range(b.size):
        b[k] = T[2](k)


def other_method(b, T):
    for k in range(b.size):
        b[k] = T.step + T(k)


def by_float(b, T):
    for k in range(b.size):
        b[k] = T(b[k])


def by_truth(b, T):
    for k in range(b.size):
        b[k] = T(b[k] > 0)


def assigned(b, T):
    for k in range(b.size):
        T = T(k)
        b[k] = T


def indexed(b, T):
    for k in range(b.size):
        b[k] = T[0] + T(k)


def distributed(b, T):
    for k in range(b.size):
        b[k] = T(k)


@pytest.mark.parametrize(
    ("function", "layout", "rule", "what"),
    [
        (as_number, A, "types", "T is an array type; call it for an offset"),
        (too_many, A, "index", "takes 2 indices, one for each sub-dimension; these are 3"),
        (by_keyword, A, "call", "by position"),
        (of_element, A, "index", "must be a constant"),
        (no_such, A, "index", "has 2 sub-dimensions"),
        (other_method, A, "index", "but not .step"),
        (by_float, A, "types", r"an index of T\(b\[k\]\) is float64; write int"),
        (by_truth, A, "index", "a truth value cannot be an index"),
        (assigned, A, "assign", "T is an array type"),
        (indexed, A, "index", "array type"),
        (distributed, CYCLIC, "assign", "returns 2 values"),
        (distributed, ArrayType(dim(24, func(lambda i: i))), "call", r"calls a function .* T.offsets\(\)"),
        (distributed, ArrayType(dim(60, func([k * k % 59 for k in range(60)]))), "call", "in no order"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_refusals(function, layout, rule, what):
    """Each mistake has a message with its remedy, at the first call."""
    with checked("sim:1"), pytest.raises(omp.LoopError, match=what) as caught:
        omp.target_loop(function)(np.zeros(4), layout)
    assert caught.value.rule == rule


@pytest.mark.parametrize("value", [3, 2.5, np.zeros(4)], ids=str)
def test_argument_is_no_type(value):
    """A parameter that is called and is given a number or an array."""
    with checked("sim:1"), pytest.raises(omp.LoopError, match="T is called, but is not an array type") as caught:
        omp.target_loop(distributed)(np.zeros(4), value)
    assert caught.value.rule == "call"


def leaving(b, T):
    for k in range(b.size):
        b[k] = T[1](k)


def test_type_that_leaves_its_reference():
    """A sub-dimension that no element of the whole type reaches may leave: as CPython's call, the loop is refused."""
    small = ArrayType(3)
    layout = ArrayType((0, dim(5, small)))
    with pytest.raises(omp.LayoutError):
        layout[1](4)
    with checked("sim:1"), pytest.raises(omp.LoopError, match="leaves"):
        omp.target_loop(leaving)(np.zeros(5), layout)
