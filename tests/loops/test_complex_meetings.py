"""Complex numbers where they meet scans, scalars that are carried, rows and array types: CPython's values."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.loops.emit import grids
from offload.loops.running import plan, pool, runs, scan_runs
from offload.loops.running.build import Builder
from offload.parray import ArrayType
from tests.loops.cuda_form import GXX
from tests.loops.oracle import compare, copy_of
from tests.loops.test_carrying import IN_ORDER
from tests.profiles import few

DTYPES = (np.complex128, np.complex64)


@pytest.fixture(autouse=True)
def a_runtime(request):
    """A runtime of the test's own with two devices, unless the test runs CUDA, whose fixture opens one."""
    if "form" in request.fixturenames and request.getfixturevalue("form") == "cuda":
        yield
        return
    with omp.Runtime("sim:2"):
        yield


@pytest.fixture(params=few(3, ["threads", "python", "cuda", "compiled"]))
def form(request, monkeypatch):
    """How loops run: compiled, as Python, on two threads however short they are, or as CUDA."""
    if request.param == "python":
        for module in (plan, runs):
            monkeypatch.setattr(module, "builder", Builder({"OFFLOAD_CC": "none"}))
    if request.param == "threads":
        for module in (runs, scan_runs):
            monkeypatch.setattr(module, "SHORT_NS", -1)
        monkeypatch.setattr(scan_runs, "LEAST_THREADS", 2)
        monkeypatch.setattr(pool, "n_cores", lambda: 2)
    if request.param == "cuda":
        if GXX is None:
            pytest.skip("no g++")
        request.getfixturevalue("cuda")
        monkeypatch.setattr(grids, "_SCAN_ROWS", 2)
    return request.param


def agrees(loop, function, **arguments):
    """Run a loop and its plain function on copies, and compare arrays and results bit for bit."""
    expected, got = copy_of(arguments), copy_of(arguments)
    returned = function(**expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = loop(**got)
    for name, values in expected.items():
        if isinstance(values, np.ndarray):
            compare(got[name], values, name, exact=True)
    if returned is not None:
        compare(np.asarray(found), np.asarray(returned), "returned", exact=True)


def numbers(n, dtype=np.complex128):
    """Return complex numbers without a pattern."""
    parts = np.random.default_rng(8).standard_normal((n, 2))
    return (parts[:, 0] + 1j * parts[:, 1]).astype(dtype)


# -- scalars that are carried --------------------------------------------------------------------------------


def turned(z, y, s):
    for i in range(z.size):
        s = s * 0.5j + z[i]
        y[i] = s
    return s


def started(z, y):
    s = z[1]
    n = 1
    for i in range(z.size):
        y[i] = s * n
        s = z[i] - s
        n = -n


def summed(z, y):
    s = 0j
    for i in range(z.size):
        s += z[i]
        y[i] = s


def both_kinds(z, y):
    s = 0j
    t = 0.0
    for i in range(z.size):
        s += z[i]
        t += z[i].real
        y[i] = s * t


@pytest.mark.parametrize("dtype", few(1, DTYPES))
@pytest.mark.parametrize("construct", few(("always", "kernels", "host", "several"), IN_ORDER))
def test_a_complex_scalar_is_carried_in_order(construct, dtype):
    """By each construct that runs in order: from an argument, from an element, and beside an integer."""
    z = numbers(40, dtype)
    for s in (dtype(1 - 1j), 2j):
        agrees(IN_ORDER[construct](turned, lastprivate=["s"]), turned, z=z, y=np.zeros_like(z), s=s)
    for function in (started, summed):
        agrees(IN_ORDER[construct](function), function, z=z, y=np.zeros_like(z))


@pytest.mark.parametrize("dtype", few(1, DTYPES))
def test_a_complex_scalar_is_carried_in_each_form(form, dtype):
    """A complex128 has two words among the arguments and from slice to slice."""
    z = numbers(40, dtype)
    loop = omp.target_loop(turned, seq=True, lastprivate=["s"])
    for n, s in ((40, dtype(1 - 1j)), (2, dtype(2 + 1j)), (40, -0.5j), (40, 3), (40, 0.5), (40, 1.5)):
        agrees(loop, turned, z=z[:n], y=np.zeros_like(z[:n]), s=s)
    assert loop(z[:0], z[:0], 2j) == 2j
    agrees(omp.target_loop(started, seq=True), started, z=z, y=np.zeros_like(z))
    agrees(omp.target_loop(summed, speculate="always"), summed, z=z, y=np.zeros_like(z))


def of_rows(a, y):
    s = 0j
    for i in range(a.shape[0]):
        t = 0j
        for k in acc.loop(range(a.shape[1]), vector=True, reduction={"+": ["t"]}):
            t += a[i, k]
        s = t - s
        y[i] = s
    return s


@pytest.mark.parametrize("dtype", few(1, DTYPES))
def test_threads_of_a_block_carry_a_complex_scalar(form, dtype):
    """They share the sum of a row, and all have the scalar."""
    a = (np.arange(400) % 11 - 3j * (np.arange(400) % 5)).astype(dtype).reshape(10, 40)
    agrees(acc.parallel_loop(of_rows, seq=True, lastprivate=["s"]), of_rows, a=a, y=np.zeros(10, dtype))


@pytest.mark.parametrize("dtype", few(1, DTYPES))
@pytest.mark.parametrize("function", [summed, both_kinds])
@pytest.mark.parametrize("clauses", few(1, [{"reassociate": True}, {}, {"independent": True, "reassociate": True}]))
def test_sums_of_complex_numbers_are_no_scan(function, clauses, dtype, form):
    """They run in order, bit for bit as in CPython, whatever the program allows; the warning tells."""
    z = numbers(3_000, dtype)
    loop = omp.target_loop(function, **clauses)
    with pytest.warns(omp.PerformanceWarning, match=r"from one iteration to the next.*no scans of complex numbers"):
        loop(z, np.zeros_like(z))
    agrees(loop, function, z=z, y=np.zeros_like(z))
    assert not any("parallel scan" in note for note in loop.explain(z, np.zeros_like(z)).to_dict()["notes"])


def beside(x, z, y):
    s = 0
    p = 0j
    for i in range(x.size):
        s += x[i]
        p += z[i]
        t = z[i] * s
        y[i] = s
    return p, t, s


@pytest.mark.parametrize("dtype", few(1, DTYPES))
@pytest.mark.parametrize("of", few(1, [np.float64, np.int64, np.int32]))
def test_complex_results_beside_a_scan(form, of, dtype):
    """A reduction and a last value of two words, and an item of which the last value is asked for."""
    x = np.arange(3_000).astype(of) % 7
    z = (np.arange(3_000) % 5 - 2j).astype(dtype)
    shape = {"thread_limit": 32} if form == "cuda" else {}
    loop = omp.target_loop(beside, reduction={"+": ["p"]}, lastprivate=["t", "s"], reassociate=True, **shape)
    y = np.zeros_like(x)
    assert any("parallel scan" in note for note in loop.explain(x, z, y).to_dict()["notes"])
    for n in (3_000, 1_000, 1):
        agrees(loop, beside, x=x[:n], z=z[:n], y=y[:n])
    if form != "cuda":
        with omp.Runtime("sim:1", seed=3):
            agrees(loop, beside, x=x, z=z, y=y)


# -- rows and array types ------------------------------------------------------------------------------------


def turn(row, w):
    for k in range(len(row) // 2):
        a = row[2 * k]
        b = row[2 * k + 1] * w[k]
        row[2 * k] = a + b
        row[2 * k + 1] = a - b


def energy(row):
    s = 0.0
    for k in range(row.size):
        s += (row[k] * row[k].conjugate()).real
    return s


def butterflies(a, w, y):
    for i in range(a.shape[0]):
        row = a[i]
        turn(row, w)
        y[i] = energy(row) + abs(a[i, 1]) * row[2].imag + energy(a[:, 3])


def one_part(a, w, y):
    for i in range(a.shape[0]):
        row = a[i]
        y[i] = row.real[0]


@pytest.mark.parametrize("dtype", few(1, DTYPES))
def test_rows_of_complex_arrays(form, dtype):
    """Plain functions read and write rows, the elements of which have parts."""
    a, w = numbers(20, dtype).reshape(4, 5), numbers(2, dtype)

    def rows_alone(a, w, y):
        for i in range(a.shape[0]):
            row = a[i]
            turn(row, w)
            y[i] = energy(row) + abs(a[i, 1]) * row[2].imag

    agrees(omp.target_loop(rows_alone), rows_alone, a=a, w=w, y=np.zeros(4))
    agrees(omp.target_loop(butterflies, seq=True), butterflies, a=a, w=w, y=np.zeros(4))


def test_a_part_of_a_row_is_refused():
    """It would be a view."""
    with pytest.raises(omp.LoopError, match=r"row\.real is a view") as caught:
        omp.target_loop(one_part)
    assert caught.value.rule == "index"


A = ArrayType((6, 4))
TURNED = ArrayType((A[1], A[0]))


def transposed(a, b, T):
    for i in range(T.shape[0]):
        for j in range(T.shape[1]):
            b[i * T.shape[1] + j] = a[T(i, j)].conjugate() * a[TURNED(i, j)].imag


@pytest.mark.parametrize("dtype", few(1, DTYPES))
def test_complex_arrays_through_array_types(form, dtype):
    """Indices of array types lead to complex elements."""
    agrees(omp.target_loop(transposed, collapse=2), transposed, a=numbers(24, dtype), b=np.zeros(24, dtype), T=TURNED)


def test_a_complex_index_of_an_array_type_is_refused():
    """As of an array."""

    def complex_index(a, z, T):
        for i in range(T.shape[0]):
            a[T(z[i], 0)] = 1

    with pytest.raises(omp.LoopError, match=r"T.*is complex128") as caught:
        omp.target_loop(complex_index)(np.zeros(24), np.zeros(4, complex), TURNED)
    assert caught.value.rule == "types"
    assert "int(" not in str(caught.value)
