"""Complex numbers in loops on the GPU: generated programs, functions at the edges, reductions, atomics, arguments."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import offload as omp
from tests.gpu.conftest import cupy
from tests.loops.complex_programs import complex_program
from tests.loops.oracle import compare, copy_of
from tests.loops.test_complex import clauses_of
from tests.loops.test_complex_meetings import agrees, beside, both_kinds, numbers, summed, turned
from tests.loops.test_complex_rules import numbers_at_the_edges, strong, weak

pytestmark = pytest.mark.gpu


def run_program(seed):
    """Run a generated loop function on the device; what it leaves is to be CPython's."""
    made = complex_program(seed)
    arguments = copy_of(made.arguments)
    clauses = {word: value for word, value in clauses_of(made).items() if value}
    made.check(omp.target_loop(**clauses)(made.function())(**arguments), arguments)


@pytest.mark.parametrize("seed", range(7_000, 7_040))
def test_programs_give_what_cpython_gives(gpu, seed):
    """Generated loop functions leave and return what CPython makes of them."""
    run_program(seed)


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(20))
def test_many_programs(gpu, hundred):
    """As above, 2,000 of them."""
    for seed in range(200_000 + 100 * hundred, 200_100 + 100 * hundred):
        run_program(seed)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_numpys_numbers_at_the_edges(gpu, dtype):
    """Infinities, NaNs, zeros of both signs and numbers that over- and underflow go where NumPy puts them."""
    arguments = numbers_at_the_edges(dtype)
    expected = copy_of(arguments)
    with np.errstate(all="ignore"):
        strong(**expected)
    omp.target_loop(strong)(**arguments)
    for name in ("y", "a"):
        compare(arguments[name][:2], expected[name][:2], name, exact=False)
        compare(arguments[name][2:], expected[name][2:], name, exact=True)


def test_pythons_numbers_are_divided_as_python_divides(gpu):
    """Quotients and powers of Python's complex numbers are CPython's."""
    given, expected = np.zeros((2, 8, 20), complex)
    weak(20, expected)
    omp.target_loop(weak)(20, given)
    compare(given[:4], expected[:4], "y", exact=True)
    compare(given[4:], expected[4:], "y", exact=False)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_reductions_and_atomics_of_many(gpu, dtype):
    """Sums and products over many blocks are exact where the numbers are; the last iteration's value comes out."""

    @omp.target_loop(reduction={"+": ["s"], "*": ["p"]}, lastprivate=["t"], atomic=["h"])
    def f(x, y, k, w, h):
        s = 0j
        p = w
        for i in range(x.size):
            t = x[i] * w
            s += x[i]
            p *= y[i]
            h[k[i]] += x[i]
        return s, p, t

    rng = np.random.default_rng(3)
    n = 300_000
    x = (rng.integers(-3, 4, n) + 1j * rng.integers(-3, 4, n)).astype(dtype)
    y = rng.choice(np.array([1, -1, 1j, -1j]), n).astype(dtype)
    k = rng.integers(0, 50, n)
    w = np.dtype(dtype).type(1 + 2j)
    h, expected = np.zeros((2, 50), dtype)
    s, p, t = f(x, y, k, w, h)
    np.add.at(expected, k, x)
    assert (h == expected).all()
    assert s == x.astype(complex).sum()
    turns = np.rint(np.angle(y) * 2 / np.pi).astype(int).sum() % 4
    assert p == w * np.array([1, 1j, -1, -1j])[turns]
    assert t == x[-1] * w


def test_loops_of_a_block_that_reduce(gpu):
    """Threads of a block share an inner loop: the sums go through shuffles and shared memory."""
    from offload import acc

    @acc.parallel_loop(copyin=["a"], copyout=["y"])
    def rows(a, y):
        for i in acc.loop(range(y.size), gang=True):
            s = 0j
            for j in acc.loop(range(a.shape[1]), vector=128, reduction={"+": ["s"]}):
                s += a[i, j] * 1j
            y[i] = s

    a = (np.arange(37 * 1000) % 11 + 1j * (np.arange(37 * 1000) % 7)).reshape(37, 1000)
    y, expected = np.zeros((2, 37), complex)
    rows(a, y)
    rows.python(a, expected)
    assert (y == expected).all()


def test_in_order_speculative_and_repeated(gpu):
    """`seq`, logs and repeated calls with other parameters take complex elements."""

    def carried(x, k, w):
        for i in range(k.size):
            x[k[i]] = x[k[i]] * w + i

    k = np.random.default_rng(4).permutation(5_000)
    for more in ({"seq": True}, {"speculate": "always"}, {}):
        loop = omp.target_loop(**more)(carried)
        for w in (1j, 0.5 - 1j, np.complex64(2j), 3):
            x = np.arange(5_000) * (1 - 1j)
            expected = x.copy()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loop(x, k, w)
            carried(expected, k, w)
            compare(x, expected, str(w), exact=True)


@pytest.mark.filterwarnings("ignore::offload.PerformanceWarning")
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_scalars_are_carried_and_come_out_of_scans(gpu, dtype):
    """In order, one thread carries them; beside a scan they are reductions and last values."""
    z = numbers(3_000, dtype)
    for function in (summed, both_kinds):
        agrees(omp.target_loop(function, reassociate=True), function, z=z, y=np.zeros_like(z))
    for s in (z.dtype.type(1 - 1j), 2j, 3):
        loop = omp.target_loop(turned, seq=True, lastprivate=["s"])
        agrees(loop, turned, z=z, y=np.zeros_like(z), s=s)
    loop = omp.target_loop(beside, reduction={"+": ["p"]}, lastprivate=["t", "s"], reassociate=True)
    for n in (1, 31, 6_145, 1_000_000):  # whole numbers: sums are exact in any order
        x, some = np.arange(n) % 3.0, (np.arange(n) % 3 - 1j).astype(dtype)
        agrees(loop, beside, x=x, z=some, y=np.zeros_like(x))


def test_unaligned_elements_are_refused(gpu):
    """Elements of 16 bytes lie at multiples of 16. Fields of packed records do on the device, which packs them."""
    record = np.zeros(6, np.dtype([("flag", "u1"), ("z", "c16")]))

    @omp.target_loop
    def f(z):
        for i in range(z.size):
            z[i] = 1j

    f(record["z"])
    assert (record["z"] == 1j).all()
    with pytest.raises(omp.ClauseError, match="aligned"):
        f(cupy.zeros(97, "u1")[1:].view("c16"))
