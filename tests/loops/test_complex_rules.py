"""Complex numbers in loops, in each form: generated programs against CPython, and functions at the edges."""

from __future__ import annotations

import cmath
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.loops.emit.python_form import python_form
from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import FunctionSource
from tests.loops.c_form import c_form
from tests.loops.complex_programs import complex_program
from tests.loops.cuda_form import GXX, cuda_form
from tests.loops.forms import run
from tests.loops.oracle import compare, copy_of
from tests.loops.test_emit_py_rules import check
from tests.profiles import few

on_host = pytest.mark.skipif(GXX is None, reason="no g++")
FORMS = [python_form, c_form, pytest.param(cuda_form(), marks=on_host)]
SPECIAL = [0.0, -0.0, 1.5, -2.25, 0.3, math.inf, -math.inf, math.nan, 3e-39, 5e-324, 1e38, -1e308, 1e3, 710.0, 89.0]


# -- generated programs ----------------------------------------------------------------------------------


@given(st.integers(0, 1 << 32))
def test_the_python_form_gives_what_cpython_gives(seed):
    """Arrays and returned values are CPython's, whatever the chunks."""
    check(complex_program(seed), chunks=1 + seed % 5)


@pytest.mark.parametrize("seed", few(2, range(40)))
def test_the_c_form_gives_what_cpython_gives(seed):
    """The same, compiled."""
    check(complex_program(seed), c_form, chunks=1 + seed % 5)


@on_host
@pytest.mark.parametrize("seed", few(2, range(30)))
def test_the_cuda_form_gives_what_cpython_gives(seed):
    """The text of CUDA, compiled for the host: reductions go through shuffles and blocks."""
    check(complex_program(seed), cuda_form(), chunks=1)


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(20))
def test_many_programs(hundred):
    """2,000 programs, in C."""
    for seed in range(100_000 + 100 * hundred, 100_100 + 100 * hundred):
        check(complex_program(seed), c_form, chunks=1 + seed % 5)


# -- functions at the edges ------------------------------------------------------------------------------


def strong(z, w, y, a):
    for i in range(z.size):
        y[0, i] = np.exp(z[i])
        y[1, i] = np.sqrt(z[i])
        y[2, i] = z[i] * w[i]
        y[3, i] = z[i] / w[i]
        y[4, i] = z[i] ** 2
        y[5, i] = z[i] ** 5
        y[6, i] = z[i] ** -3
        y[7, i] = 1.0 / z[i]
        a[0, i] = abs(z[i])
        a[1, i] = np.isnan(z[i]) + 2 * np.isinf(z[i]) + 4 * np.isfinite(z[i]) + 8 * (z[i] == w[i]) + 16 * bool(z[i])


def numbers_at_the_edges(dtype):
    """Return arguments of `strong`: pairs of special numbers."""
    with np.errstate(all="ignore"):
        z = np.array([complex(a, b) for a, b in itertools.product(SPECIAL, SPECIAL)]).astype(dtype)
    return {"z": z, "w": np.roll(z, 17), "y": np.zeros((8, z.size), dtype), "a": np.zeros((2, z.size), z.real.dtype)}


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("form", FORMS, ids=["python", "c", "cuda"])
def test_numpys_numbers_at_the_edges(dtype, form):
    """Infinities, NaNs, zeros of both signs and numbers that over- and underflow go where NumPy puts them."""
    arguments = numbers_at_the_edges(dtype)
    expected = copy_of(arguments)
    with np.errstate(all="ignore"):
        strong(**expected)
    run(parse(FunctionSource.of(strong), NestClauses()), arguments, form, 1)
    for name in ("y", "a"):
        compare(arguments[name][:2], expected[name][:2], name, exact=False)
        compare(arguments[name][2:], expected[name][2:], name, exact=True)


def weak(n, y):
    for i in range(n):
        z = complex(i - 3, 0.5 * i)
        w = 1j * i - 2.5
        y[0, i] = z / w
        y[1, i] = z**3
        y[2, i] = w**-2
        y[3, i] = z**0 + z.real - 1j * z.imag
        y[4, i] = cmath.exp(z * 0.1)
        y[5, i] = cmath.sqrt(w)
        y[6, i] = (z * w).conjugate()
        y[7, i] = abs(z)


@pytest.mark.parametrize("form", FORMS, ids=["python", "c", "cuda"])
def test_pythons_numbers_are_divided_as_python_divides(form):
    """Quotients and powers of Python's complex numbers are CPython's, whose last bits differ from NumPy's."""
    given, expected = np.zeros((2, 8, 20), complex)
    weak(20, expected)
    run(parse(FunctionSource.of(weak), NestClauses()), {"n": 20, "y": given}, form, 1)
    compare(given[:4], expected[:4], "y", exact=True)
    compare(given[4:], expected[4:], "y", exact=False)


def rounded(x, y, z):
    for i in range(x.size):
        y[i] = np.complex128(np.complex64(x[i]))
        z[2 * i] = np.float64(np.float32(x[i].real))
        z[2 * i + 1] = np.float64(np.float32(x[i].imag))


@pytest.mark.parametrize("form", FORMS, ids=["python", "c", "cuda"])
def test_numbers_that_become_narrow_and_wide_again_are_rounded(form):
    """No compiler leaves out the two conversions of a pair, and the rounding with them."""
    x = np.array([0.1 + 0.2j, 0.3 - 0.4j, 1 / 3 + 1e-3j])
    arguments = {"x": x, "y": np.zeros(6, complex)[::2], "z": np.zeros(6)}
    expected = copy_of(arguments)
    rounded(**expected)
    assert (expected["y"] != x).all()
    of = parse(FunctionSource.of(rounded), NestClauses())
    run(of, arguments, form, 1)
    for name in ("y", "z"):
        compare(arguments[name], expected[name], name, exact=True)
