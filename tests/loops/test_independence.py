"""The test for independence: each rule, and the vectors of splitting and speculation that are affine."""

import pytest

from offload.loops.proofs.bounds import is_overwritten
from offload.loops.proofs.independence import independence, is_injective
from offload.loops.proofs.numbers import View
from tests.loops.building import accesses_of, view

N = 24


def verdict_of(text, *, collapse=1, views=None, dtypes=None, own=(), most_pairs=4_096, **scalars):
    """Return the verdict on a nest; arrays are apart, with N elements, with 2-D ones named in capitals."""
    given = dict.fromkeys("abcmopqrtxyz", (N,)) | dict.fromkeys("ABLR", (N, N))
    given |= {"h": (N,)} | (views or {})
    scalars = {"n": N, **scalars}
    return independence(accesses_of(text, given, collapse=collapse, dtypes=dtypes, own=own, **scalars), most_pairs)


def proved_of(text, **given):
    """Return the verdict's dependences as (kind, distance)."""
    found = verdict_of(text, **given)
    assert (found.verdict == "sequential") == bool(found.dependences)
    return {(dependence.kind, dependence.distance) for dependence in found.dependences}


@pytest.mark.parametrize(
    ("text", "collapse"),
    [
        pytest.param("for i in range(n): y[i] = y[i] + 2*x[i]", 1, id="1 axpy"),
        pytest.param("for i in range(1, n-1): b[i] = a[i-1] + a[i+1]", 1, id="2 stencil"),
        pytest.param(
            "for i in range(1, n-1):\n for j in range(1, n-1): B[i, j] = A[i-1, j] + A[i+1, j] + A[i, j-1] + A[i, j+1]",
            2,
            id="3 five points",
        ),
        pytest.param("for i in range(n): y[i] = x[p[i]]", 1, id="5 gather"),
        pytest.param("for i in range(n): atomic(h[b[i]], 1)", 1, id="7 histogram"),
        pytest.param("for i in range(n):\n for j in range(i + 1): o[i] = o[i] + L[i, j]*x[j]", 1, id="8 triangle"),
        pytest.param(
            "for i in range(n):\n for k in range(p[i], p[i+1]): y[i] = y[i] + a[k]*x[c[k]]", 1, id="9 sparse rows"
        ),
        pytest.param("for i in range(n):\n for j in range(1, n): R[i, j] = R[i, j] - R[i, j-1]", 1, id="10 along rows"),
        pytest.param("for i in range(n):\n for j in range(1, n): R[j, i] = R[j, i] - R[j-1, i]", 1, id="11 columns"),
        pytest.param("for i in range(1, 11): a[2*i] = a[2*i-1] + a[2*i+1]", 1, id="13 parity"),
        pytest.param("for i in range(n):\n a[i] = x[i]\n b[n-1-i] = a[i]*2", 1, id="14 backwards"),
        pytest.param("for i in range(12):\n t = a[2*i]\n a[2*i] = a[2*i+1]\n a[2*i+1] = t", 1, id="16 swap"),
        pytest.param("for i in range(n):\n for j in range(n): B[j, i] = A[i, j]", 1, id="17 transpose"),
        pytest.param("for i in range(n):\n b[i] = a[i] + 1\n a[i] = 2*b[i]", 1, id="20 both"),
        pytest.param("for i in range(n):\n if i % 2 == 0: y[i] = x[i]\n else: z[i] = x[i]", 1, id="21 branches"),
        pytest.param(
            "for i in range(n):\n for j in range(1, n):\n  B[i, j] = A[i, j]\n  A[i, j] = B[i, j-1]", 1, id="22 rows"
        ),
    ],
)
def test_split_vectors_that_are_parallel(text, collapse):
    """The independent loops of the vectors for splitting are proved parallel."""
    assert verdict_of(text, collapse=collapse).verdict == "parallel"


def test_in_place_sweep():
    """Vector 12: a sweep in place has a flow and an anti dependence from one trip to the next."""
    assert proved_of("for i in range(1, n-1): a[i] = a[i-1] + a[i+1]") == {("flow", (1,)), ("anti", (1,))}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("for i in range(n): y[p[i]] = x[i]", id="4 scatter"),
        pytest.param("for i in range(n):\n t = p[i]\n a[t] = c[i]\n b[(t+7) % n] = a[t]", id="6"),
        pytest.param("for i in range(n):\n a[i] = p[i]\n y[a[i]] = x[i]", id="15"),
        pytest.param("for i in range(n):\n a[i] = 2*c[i]\n b[i] = a[(i+3) % n]", id="19"),
        pytest.param("for i in range(n):\n k = atomic(c[0], 1)\n y[k] = x[i]", id="25"),
    ],
)
def test_split_vectors_that_are_unknown(text):
    """What data decides is unknown."""
    assert verdict_of(text).verdict == "unknown"


def test_a_scratch_array():
    """Vector 18: an array that all iterations use is written by all; private, it is no matter."""
    text = "for i in range(n):\n for j in range(4): t[j] = x[i]\n y[i] = t[0] + t[3]"
    assert proved_of(text) == {("output", (1,)), ("anti", (1,))}
    assert verdict_of(text, own=("t",)).verdict == "parallel"


@pytest.mark.parametrize(("h", "expected"), [(N // 2, set()), (N // 2 + 3, set()), (3, {("flow", (3,))})])
def test_one_buffer_by_two_names(h, expected):
    """Vector 23: a shifted view of the same buffer is compared by bytes."""
    views = {"m": view(2 * N, address=4096), "y": view(2 * N - h, address=4096 + 8 * h)}
    assert proved_of("for i in range(12): y[i] = 2*m[i]", views=views) == expected
    assert proved_of(f"for i in range(12): m[i + {h}] = 2*m[i]", views=views) == expected


# -- the vectors of speculation, n = 12 ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for i in range(1, 12): a[i] = a[i-1]", {("flow", (1,))}),
        ("for i in range(12): a[i] = a[i+1]", {("anti", (1,))}),
        ("for i in range(4, 12): a[i] = a[i-4]", {("flow", (4,))}),
        ("for i in range(12):\n t[0] = x[i]\n y[i] = 2*t[0]", {("anti", (1,)), ("output", (1,))}),
        ("for i in range(12): a[i] = a[i+m]", {("anti", (1,))}),
    ],
)
def test_speculation_vectors_that_are_sequential(text, expected):
    """Dependences of affine indices are proved, with their kinds and distances."""
    assert proved_of(text, m=1) == expected


@pytest.mark.parametrize(
    "text",
    [
        "for i in range(12):\n a[i] = 1\n a[i] = 2",
        "for i in range(12): a[1 + i] = a[0]",
        "for i in range(12): a[i] = a[i+m]",
    ],
)
def test_speculation_vectors_that_are_parallel(text):
    """Accesses that never meet, or in one iteration only, are independent."""
    assert verdict_of(text, m=12).verdict == "parallel"


@pytest.mark.parametrize(
    "text",
    [
        "for i in range(12): y[p[i]] = x[i]",
        "for i in range(12): a[p[i]] = a[p[i]] + 1",
        "for i in range(12): a[i // 2] = x[i]",
        "for i in range(12):\n a[i] = x[i]\n if i == 11: y[i] = a[0]",
        "for i in range(12):\n if i == 0: y[i] = a[5]\n a[i] = x[i]",
        "for i in range(12):\n if p[i] > 0: a[0] = 1",
    ],
)
def test_speculation_vectors_that_are_unknown(text):
    """What a branch or data decides is unknown."""
    assert verdict_of(text).verdict == "unknown"


# -- rules -----------------------------------------------------------------------------------------------


def test_what_is_reported():
    """A dependence names the access of the earlier and of the later iteration; unknown ones are told by number."""
    found = verdict_of("for i in range(1, n):\n t = a[i-1]\n a[i] = t")
    (proved,) = found.dependences
    assert (proved.source.kind, proved.source.place.line) == ("store", 3)
    assert (proved.sink.kind, proved.sink.place.line) == ("load", 2)
    assert verdict_of("for i in range(n): y[p[i]] = x[i]").unknown == (2,)


def test_atomics():
    """Atomic updates are independent of each other; a plain access beside them is unknown."""
    assert verdict_of("for i in range(n): atomic(h[0], 1)").verdict == "parallel"
    assert verdict_of("for i in range(n):\n atomic(h[0], 1)\n y[i] = h[0]").verdict == "unknown"
    assert verdict_of("for i in range(n):\n atomic(h[i], 1)\n y[i] = h[i]").verdict == "parallel"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for i in range(n-1, 0, -1): a[i] = a[i-1]", {("anti", (1,))}),
        ("for i in range(4, n, 4): a[i] = a[i-4]", {("flow", (1,))}),
        ("for i in range(4, n, 4): a[i] = a[i-3]", set()),
        ("for i in range(0, n, 2): a[n-1-i] = a[(n-1-i) - 2 + 4]", {("flow", (1,))}),
    ],
)
def test_distances_are_in_trips(text, expected):
    """Steps that are wide or negative count as trips."""
    views = {"a": (N + 4,)}
    assert proved_of(text, views=views) == expected


def test_two_axes():
    """Distances of two axes are those of the equations together."""
    header = "for i in range(1, 8):\n for j in range(1, 8): "
    assert proved_of(f"{header}A[i, j] = A[i-1, j+1]", collapse=2) == {("flow", (1, -1))}
    assert proved_of(f"{header}A[i, j] = A[i, j-1]", collapse=2) == {("flow", (0, 1))}
    assert proved_of(f"{header}A[i, i] = A[i-1, i]", collapse=2) == {("output", (0, 1))}
    assert proved_of(f"{header}A[i + j, j] = A[i + j, j]", collapse=2) == set()
    assert verdict_of(f"{header}a[i + j] = 0", collapse=2).verdict == "unknown"


def test_flattened_indices():
    """A row's length in one index keeps rows apart, or tells the distance."""
    header = "for i in range(1, 4):\n for j in range(1, 5): "
    assert verdict_of(f"{header}a[5*i + j] = a[5*i + j]", collapse=2).verdict == "parallel"
    assert verdict_of(f"{header}a[5*i + j] = a[5*i]", collapse=2).verdict == "parallel"
    assert proved_of(f"{header}a[4*i + j] = a[4*i + j - 4]", collapse=2) == {("flow", (1, 0))}
    assert proved_of(f"{header}a[4*i + j] = a[4*i + j - 1]", collapse=2) == set()
    assert proved_of("for i in range(5, 9):\n for j in range(3): a[2*i + j] = 0") == set()
    assert verdict_of("for i in range(4):\n for j in range(5): a[5*i + j] = a[5*i + 4 - j]").verdict == "parallel"


def test_inner_ranges_that_meet():
    """Inner variables prove a dependence where the values of their ranges meet, steps considered."""
    assert proved_of("for i in range(8):\n for j in range(4): a[j] = 0") == {("output", (1,))}
    apart = "for i in range(8):\n for j in range(0, 12, 2): a[j] = b[j]\n for k in range(1, 12, 2): y[i] = a[k]"
    assert ("flow", (1,)) not in proved_of(apart)
    late = "for i in range(8):\n for j in range(0, 12, 3): a[j] = 0\n for k in range(11, 1, -4): y[i] = a[k]"
    assert ("anti", (1,)) in proved_of(late)
    assert proved_of("for i in range(8):\n for j in range(i): a[j] = 0") == set()
    past = "for i in range(8):\n for j in range(0, 6, 3): a[j] = 0\n for k in range(1, 7, 5): y[i] = a[k]"
    assert proved_of(past) == {("output", (1,))}
    assert proved_of("for i in range(8):\n for j in range(4): A[j, j] = A[j, j+1]") == set()
    one = "for i in range(8):\n for j in range(1, 8, 2): a[j] = 0\n y[i] = a[{}]"
    assert ("anti", (1,)) in proved_of(one.format(5))
    assert proved_of(one.format(4)) == {("output", (1,))}
    assert ("flow", (1,)) in proved_of("for i in range(8):\n y[i] = a[5]\n for j in range(1, 8, 2): a[j] = 0")


def test_negative_indices_are_elements():
    """A negative index is an element from the end: dependences over the wrap are found, and none invented."""
    assert proved_of("for i in range(n): a[i] = a[i-1]") == {("flow", (1,)), ("anti", (N - 1,))}
    assert proved_of("for i in range(n-1): a[i] = a[-1]") == set()
    assert proved_of("for i in range(n): y[i] = a[-1]\n") == set()
    assert proved_of("for i in range(1, n):\n a[i - n] = a[i]") == set()
    assert verdict_of("for i in range(12): a[i] = a[-12 + i]").verdict == "parallel"
    assert proved_of("for i in range(n): a[11 - i] = a[12 - i]") == {("flow", (1,)), ("anti", (N - 1,))}
    assert proved_of("for i in range(n): a[i - 12] = a[i - 13]") == {("flow", (1,)), ("anti", (N - 1,))}
    assert proved_of("for i in range(12): a[i] = a[-n + i + 1]") == {("anti", (1,))}


def test_storage():
    """Views apart are independent, one view by two names is one array, interleaved views never meet."""
    text = "for i in range(n-1): y[i] = x[i+1]"
    assert proved_of(text) == set()
    assert proved_of(text, views={"x": view(N), "y": view(N)}) == {("anti", (1,))}
    even, odd = View((N,), (16,), 8, 0), View((N,), (16,), 8, 8)
    assert verdict_of(text, views={"x": even, "y": odd}).verdict == "parallel"
    assert proved_of(text, views={"x": View((N,), (8,), 4, 4), "y": View((N,), (8,), 8, 0)}) == {("anti", (1,))}


def test_views_that_repeat_elements():
    """Elements of a stride 0, or of windows that overlap, are one where their bytes are."""
    repeated = View((N,), (0,), 8, 0)
    assert not is_injective(repeated)
    assert proved_of("for i in range(n): a[i] = 0", views={"a": repeated}) == {("output", (1,))}
    windows = View((N, 3), (8, 8), 8, 0)
    assert not is_injective(windows)
    assert verdict_of("for i in range(n):\n for j in range(3): A[i, j] = 0", views={"A": windows}).verdict == "unknown"
    assert is_injective(View((N, 3), (-8, 8 * N), 8, 8 * N))


def test_elements_that_are_one_number():
    """An offset that the nest does not write is the same in all iterations; one that it writes is not."""
    assert verdict_of("for i in range(12): a[p[0] + i] = a[p[0] + i]").verdict == "parallel"
    assert verdict_of("for i in range(12):\n a[p[0] + i] = 0\n p[i] = 0").verdict == "unknown"
    assert verdict_of("for i in range(12): a[p[0] + 2*i] = a[p[0] + 2*i + 1]").verdict == "parallel"
    assert verdict_of("for i in range(12): a[p[0] + i] = a[p[0] + i - 1]").verdict == "unknown"


def test_arithmetic_that_wraps():
    """A form that its type cannot hold proves nothing to happen."""
    found = verdict_of("for i in range(12): a[int32(i) + m] = a[i]", dtypes={"m": "int32"}, m=2**31 - 4)
    assert found.verdict == "unknown"
    views = {"a": view(N), "b": view(N, address=8)}
    assert verdict_of("for i in range(12): a[i + m] = b[i]", views=views, m=2**63 - 4).verdict == "unknown"


def test_few_iterations():
    """A nest of one iteration, or of none, is parallel."""
    assert verdict_of("for i in range(n): a[0] = a[0] + 1", n=1).verdict == "parallel"
    assert verdict_of("for i in range(n): a[0] = a[0] + 1", n=0).verdict == "parallel"
    text = "for i in range(n):\n for j in range(n): a[0] = j"
    assert verdict_of(text, n=1, collapse=2).verdict == "parallel"


@pytest.mark.parametrize(
    ("text", "collapse", "expected"),
    [
        ("for i in range(n): a[i] = 0", 1, True),
        ("for i in range(n): a[n-1-i] = 0", 1, True),
        ("for i in range(n): a[i-1] = 0", 1, True),
        ("for i in range(n):\n a[i] = x[i]\n y[i] = a[i]", 1, True),
        ("for i in range(n):\n for j in range(n): A[j, i] = 0", 2, True),
        ("for i in range(n):\n for j in range(n): A[j, i] = 0", 1, True),
        ("for i in range(n):\n a[i] = 0\n a[i] = a[i] + 1", 1, True),
        ("for i in range(n-1): a[i] = 0", 1, False),
        ("for i in range(0, n, 2): a[i] = 0", 1, False),
        ("for i in range(n):\n if i > 3: a[i] = 0", 1, False),
        ("for i in range(n):\n for j in range(i + 1): A[j, i] = 0", 1, False),
        ("for i in range(n): A[i, i] = 0", 1, False),
        ("for i in range(n): a[i] = a[i] + 1", 1, False),
        ("for i in range(n):\n y[i] = a[i]\n a[i] = 0", 1, False),
        ("for i in range(n): atomic(a[i], 1)", 1, False),
        ("for i in range(n): a[p[i]] = 0", 1, False),
        ("for i in range(n + 1): a[i] = 0", 1, False),
    ],
)
def test_overwritten(text, collapse, expected):
    """An array is overwritten if each element is stored for certain and none is read before."""
    views = dict.fromkeys("apxy", (N,)) | {"A": (N, N)}
    accesses = accesses_of(text, views, collapse=collapse, n=N)
    assert is_overwritten(accesses, "A" if "A[" in text else "a") is expected


def test_very_many_accesses():
    """Pairs beyond a limit are not compared, and nothing is claimed of them; what is proved before stays proved."""
    text = "for i in range(2):\n" + "".join(f" a[i + {4 * k}] = a[i + {4 * k + 2}]\n" for k in range(6))
    assert verdict_of(text).verdict == "parallel"
    found = verdict_of(text, most_pairs=20)
    assert found.verdict == "unknown"
    assert 0 < len(found.unknown) < 12
    text = "for i in range(1, n):\n a[i] = a[i-1]\n b[i] = b[i-1]"
    assert verdict_of(text, most_pairs=0).verdict == "sequential"


def test_accesses_that_are_alike():
    """Of accesses that are alike each dependence is named, and all are unknown if one is."""
    found = verdict_of("for i in range(n): a[0] = i; a[0] = 2*i; a[0] = 3*i")
    assert [dependence.kind for dependence in found.dependences] == ["output"] * 6
    assert verdict_of("for i in range(n): a[p[i]] = i; a[p[i]] = 2*i").unknown == (1, 3)
