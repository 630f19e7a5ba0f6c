"""Indices at a launch: their extremes, what is certain, and what is left to the kernel."""

from dataclasses import replace

import pytest

from offload.loops.proofs.affine import AffineForm
from offload.loops.proofs.bounds import bounds, wanted
from offload.loops.proofs.numbers import LaunchNumbers, Trips
from offload.loops.proofs.reach import accesses
from tests.loops.building import accesses_of, typed_nest, view


def bounds_of(text, views, array, **numbers):
    """Return the bounds of the one array's accesses, in the order of the text."""
    accesses = accesses_of(text, views, **numbers)
    found = bounds(accesses)
    return [found[access.at] for access in accesses.listed if access.array == array]


def index_of(text, *, n=8, collapse=1, dtypes=None, **scalars):
    """Return the bounds of ``a``'s last access where every array has n elements."""
    views = dict.fromkeys("abpq", (n,))
    return bounds_of(text, views, "a", collapse=collapse, dtypes=dtypes, n=n, **scalars)[-1]


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("for i in range(n): a[i] = 0", (0, 7)),
        ("for i in range(1, n-1): a[2*i+1] = 0", (3, 13)),
        ("for i in range(n-1, -1, -1): a[i] = 0", (0, 7)),
        ("for i in range(0, n, 3): a[i] = 0", (0, 6)),
        ("for i in range(n, 0, -3): a[-i] = 0", (-8, -2)),
        ("for i in range(n): a[n-1-i] = 0", (0, 7)),
        ("for i in range(n): a[(i << 1) - i] = 0", (0, 7)),
    ],
)
def test_extremes_of_an_axis(text, interval):
    """The extremes of an index are those of the trips, whatever the step's width and sign."""
    assert index_of(text).intervals == (interval,)


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("for i in range(n):\n for j in range(i + 1): a[j] = 0", (0, 7)),
        ("for i in range(n):\n for j in range(i + 1): a[i - j] = 0", (0, 7)),
        ("for i in range(n):\n for j in range(i + 1, n): a[j] = 0", (1, 7)),
        ("for i in range(n):\n for j in range(i + 1, n): a[j - i - 1] = 0", (0, 6)),
        ("for i in range(n):\n for j in range(i, -1, -1): a[j] = 0", (0, 7)),
        ("for i in range(n):\n for j in range(0, i, 2): a[j] = 0", (0, 6)),
        ("for i in range(n):\n for j in range(i):\n  for k in range(j, i): a[k] = 0", (0, 6)),
        ("for i in range(n):\n for j in range(3): a[i*3 + j] = 0", (0, 23)),
    ],
)
def test_extremes_behind_inner_bounds(text, interval):
    """Bounds of inner loops that other variables enter are followed to numbers."""
    assert index_of(text).intervals == (interval,)


def test_collapsed_axes():
    """Two axes are two variables, each with its own trips."""
    assert index_of("for i in range(n):\n for j in range(2): a[2*i + j] = 0", collapse=2).intervals == ((0, 15),)


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("for i in range(n): a[(i + 3) % n] = 0", (0, 7)),
        ("for i in range(n): a[i // 2] = 0", (0, 3)),
        ("for i in range(n): a[(2*i) // 2] = 0", (0, 7)),
        ("for i in range(n): a[max(i - 1, 0)] = 0", (0, 6)),
        ("for i in range(n): a[min(i + 1, n - 1)] = 0", (1, 7)),
        ("for i in range(n): a[abs(i - 3)] = 0", (0, 4)),
        ("for i in range(n): a[p[i] % n] = 0", (0, 7)),
        ("for i in range(n): a[p[i] & 3] = 0", (0, 3)),
        ("for i in range(n): a[i - 1 if p[i] > 0 else i + 1] = 0", (-1, 8)),
        ("for i in range(n): a[i*i] = 0", (0, 49)),
        ("for i in range(n): a[i*n % n] = 0", (0, 0)),
    ],
)
def test_what_is_not_affine_has_bounds(text, interval):
    """Remainders, quotients, least and greatest of two, masks and conditionals bound an index too."""
    assert index_of(text).intervals == (interval,)


def test_temporaries_are_seen_through():
    """A scalar that is assigned once before is its value; one that a branch changes is either value."""
    once = "for i in range(n):\n t = i + 1\n a[t - 1] = 0"
    assert index_of(once).intervals == ((0, 7),)
    branch = "for i in range(n):\n t = i\n if p[i] > 0: t = 0\n else: t = t + 0\n a[t] = 0"
    assert index_of(branch).intervals == ((0, 7),)


@pytest.mark.parametrize(
    "text",
    [
        "for i in range(n):\n t = 0\n for j in range(n):\n  a[t] = 0\n  t = t + 1",
        "for i in range(n):\n t = 0\n for j in range(n):\n  t = t + 1\n  if t > 3: break\n a[t] = 0",
        "for i in range(n):\n t = 0\n while t < n:\n  a[t] = 0\n  t = t + 1",
        "for i in range(n):\n t = 0\n while t < n:\n  t = t + 1\n a[t] = 0",
    ],
)
def test_scalars_that_a_loop_changes(text):
    """At the head of a loop that assigns a scalar, and behind it, nothing is known of the scalar."""
    found = index_of(text)
    assert (found.mode, found.category, found.intervals) == ("check", "kernel", (None,))


def test_a_branch_that_leaves_does_not_join():
    """What a branch assigned before it left the trip is not seen behind it."""
    text = "for i in range(n):\n t = i\n if p[i] > 0:\n  t = 100\n  continue\n a[t] = 0"
    assert index_of(text).intervals == ((0, 7),)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("for i in range(n): a[i] = 0", "off"),
        ("for i in range(n): a[i - 1] = 0", "wrap"),
        ("for i in range(n): a[i - n] = 0", "wrap"),
        ("for i in range(n): a[i + 1] = 0", "check"),
        ("for i in range(n): a[i - n - 1] = 0", "check"),
        ("for i in range(n): a[p[i]] = 0", "check"),
    ],
)
def test_modes(text, mode):
    """In range and not negative is plain, in range once wrapped is wrapped, anything else is checked."""
    assert index_of(text).mode == mode


@pytest.mark.parametrize(
    ("text", "outside"),
    [
        ("for i in range(n): a[i + 1] = 0", (0, 8)),
        ("for i in range(n): a[-i - 2] = 0", (0, -9)),
        ("for i in range(n):\n for j in range(i + 1): a[i + j] = 0", (0, 14)),
        ("for i in range(n):\n for j in range(0, n, 3): a[j + 5] = 0", (0, 11)),
        ("for i in range(n):\n assert i > 3\n a[i + 1] = 0", (0, 8)),
        ("for i in range(n): a[i] = 0", None),
        ("for i in range(n):\n if i > 3: a[i + 1] = 0", None),
        ("for i in range(n):\n if i > 3: continue\n a[i + 1] = 0", None),
        ("for i in range(n):\n for j in range(i): a[i + 1] = 0", None),
        ("for i in range(n):\n for j in range(n):\n  a[j + 1] = 0\n  if j > 3: break", None),
        ("for i in range(n):\n for j in range(n):\n  if j > 3: continue\n  a[j + 1] = 0", None),
        ("for i in range(n):\n while p[i] > 3: a[i + 1] = 0", None),
        ("for i in range(n): a[0] = 1 if i < 7 else a[i + 1]", None),
        ("for i in range(n):\n if i < 7 and a[i + 1] > 0: pass", None),
        ("for i in range(n): a[i//2 + 5] = 0", None),
    ],
)
def test_outside(text, outside):
    """An access is outside only if some iteration certainly has that index."""
    assert index_of(text).outside == outside


def test_behind_an_inner_loop_that_breaks():
    """What stands behind an inner loop is carried out whatever the loop did."""
    text = "for i in range(n):\n for j in range(n):\n  if p[j] > 3: break\n a[i + 1] = 0"
    assert index_of(text).outside == (0, 8)


def test_no_iteration():
    """A nest without iterations accesses nothing, nor does an inner loop without trips."""
    assert not accesses_of("for i in range(n): a[i + 9] = 0", {"a": (8,)}, n=0).listed
    inner = accesses_of("for i in range(n):\n for j in range(n, n): a[j + 9] = 0\n a[i] = 0", {"a": (8,)}, n=8)
    assert [access.at for access in inner.listed] == [1]


@pytest.mark.parametrize(
    ("index", "dtypes", "m", "interval"),
    [
        ("i + m", {"m": "int32"}, 5, (5, 12)),
        ("i + m", {"m": "int32"}, 2**31 - 3, (-(2**31), 2**31 - 1)),
        ("int32(i) * m", {"m": "int32"}, 2**30, (-(2**31), 2**31 - 1)),
        ("uint8(i) - m", {"m": "uint8"}, 1, (0, 255)),
        ("uint8(i) + m", {"m": "uint8"}, 248, (248, 255)),
        ("uint64(i) - m", {"m": "uint64"}, 1, (-1, 6)),
        ("i + m", {}, 2**63 - 3, None),
        ("i + m - m", {}, 2**63 - 3, (0, 7)),
    ],
)
def test_arithmetic_that_may_wrap(index, dtypes, m, interval):
    """A form counts where its extremes fit its type; where it may wrap the type's range is all that is known."""
    assert index_of(f"for i in range(n): a[{index}] = 0", dtypes=dtypes, m=m).intervals == (interval,)


def test_elements_are_bounded_in_rounds():
    """Rows of a sparse matrix are proved by the contents of the pointers, then by those of the columns."""
    text = "for i in range(n):\n for k in range(p[i], p[i + 1]): y[i] = y[i] + v[k] * x[c[k]]"
    views = {"y": (8,), "x": (6,), "p": (9,), "v": (20,), "c": (20,)}
    contents = {}
    wants = []
    while True:
        accesses = accesses_of(text, views, n=8, contents=dict(contents))
        found = bounds(accesses)
        arrays = {access.at: access.array for access in accesses.listed}
        new = wanted(accesses, found)
        if not new:
            break
        wants.append({arrays[at] for at in new})
        contents |= {at: {"p": (0, 20), "c": (0, 5)}[arrays[at]] for at in new}
    assert wants == [{"p"}, {"c"}]
    assert {each.mode for each in found.values()} == {"off"}


def test_elements_of_written_arrays_stay_unknown():
    """The contents of an array that shares storage with a written one are not looked up."""
    text = "for i in range(n): a[b[i]] = 0"
    apart = accesses_of(text, {"a": (8,), "b": (8,)}, n=8)
    assert wanted(apart, bounds(apart)) == {0}
    shared = accesses_of(text, {"a": (8,), "b": apart.launch.views["a"]}, n=8)
    assert shared.written == {"a", "b"}
    assert not wanted(shared, bounds(shared))


def test_steps_that_data_decide():
    """A loop whose step is not known at the launch stays between its bounds."""
    found = index_of("for i in range(n):\n for j in range(0, n, p[i]): a[j] = 0")
    assert (found.intervals, found.mode, found.category) == (((0, 7),), "off", "kernel")


def test_text_that_stands_twice():
    """An access that was copied to two places has the bounds that hold in both."""
    typed, nest = typed_nest("for i in range(8):\n a[i] = 0\n a[i - 1] = 0")
    first, second = nest.body
    nest = replace(nest, body=(first, replace(second, at=first.at)))
    (found,) = bounds(accesses(typed, nest, LaunchNumbers((Trips(0, 1, 8),), {}, {"a": view(8)}))).values()
    assert (found.intervals, found.mode) == (((-1, 7),), "wrap")


def test_scalars_that_are_not_given():
    """A scalar without a number is one unknown number."""
    views = {"a": (8,), "b": (8,)}
    one, other = bounds_of("for i in range(8):\n a[q + i] = 0\n a[(q + i) % 8] = 0", views, "a")
    assert (one.mode, one.category) == ("check", "launch")
    assert other.mode == "off"


def test_categories():
    """An index is of the launch, of elements that the nest does not write, or of the kernel."""
    text = "for i in range(n):\n x[i] = a[i % 3] + a[p[i]] + a[x[i]]"
    views = dict.fromkeys("xap", (8,))
    assert [each.category for each in bounds_of(text, views, "a", n=8)] == ["launch", "range", "kernel"]


def test_equal_structure_is_one_value():
    """The same expression on the same values is one form, however it is written; elements that change are not."""
    text = "for i in range(n):\n t = p[i]\n a[t + 1] = 0\n a[1 + p[i + 0]] = 0\n p2[0] = q[a[i]] + q[a[i]]"
    accesses = accesses_of(text, dict.fromkeys(("p", "a", "p2", "q"), (8,)), n=8)
    stores = [access for access in accesses.listed if access.kind == "store" and access.array == "a"]
    assert stores[0].indices[0].form == stores[1].indices[0].form
    loads = [access for access in accesses.listed if access.array == "q"]
    assert loads[0].indices[0].form != loads[1].indices[0].form


def test_forms():
    """Forms add, subtract and scale term by term."""
    form = AffineForm(3, ((0, 2), (4, -1)))
    assert form - form == AffineForm()
    assert form + form == form * 2
    assert form * 0 == AffineForm()
    assert form.coefficient(4) == -1
    assert form.coefficient(1) == 0
