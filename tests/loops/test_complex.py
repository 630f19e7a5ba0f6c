"""Complex numbers in loops through the public interface: constructs, layouts, scalars, and what is refused."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.loops.running import plan, runs
from offload.loops.running.build import Builder
from tests.conftest import checked
from tests.loops.complex_programs import complex_program
from tests.loops.oracle import compare, copy_of, function_of_text
from tests.profiles import few

pytestmark = pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning")


@pytest.fixture(autouse=True)
def two_devices(request):
    """A current runtime with two simulated devices, unless the test has one of CUDA's."""
    if "cuda" in request.fixturenames:
        yield
        return
    with checked("sim:2"):
        yield


def clauses_of(made):
    """Return the clauses of a program for `target_loop`."""
    reduction: dict[str, list[str]] = {}
    for operator, name in made.reductions:
        reduction.setdefault(operator, []).append(name)
    return {
        "collapse": made.collapse,
        "reduction": reduction or None,
        "lastprivate": made.lastprivate or None,
        "atomic": made.atomic or None,
    }


# -- generated programs----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", few(2, range(40)))
@pytest.mark.parametrize("has_compiler", [True, False], ids=["compiled", "python"])
def test_decorated_programs_give_what_cpython_gives(monkeypatch, seed, has_compiler):
    """A simulated device, with and without a compiler."""
    if not has_compiler:
        for module in (plan, runs):
            monkeypatch.setattr(module, "builder", Builder({"OFFLOAD_CC": "none"}))
    made = complex_program(1_000 + seed)
    arguments = copy_of(made.arguments)
    clauses = {word: value for word, value in clauses_of(made).items() if value}
    made.check(omp.target_loop(**clauses)(made.function())(**arguments), arguments)


@pytest.mark.parametrize("seed", few(2, range(20)))
@pytest.mark.parametrize("is_ordered", [False, True], ids=["parallel", "seq"])
def test_programs_on_cuda_give_what_cpython_gives(cuda, seed, is_ordered):
    """Arguments, partial results and returned values go through the memory of a CUDA run, kernels through the host."""
    made = complex_program(3_000 + seed)
    arguments = copy_of(made.arguments)
    clauses = {word: value for word, value in clauses_of(made).items() if value}
    made.check(omp.target_loop(**clauses, seq=is_ordered)(made.function())(**arguments), arguments)
    assert cuda.launches


@pytest.mark.parametrize("seed", few(2, range(20)))
def test_programs_in_order_and_on_several_devices(seed):
    """`seq`, `check`, `speculate`, all devices and the host's threads give the same."""
    made = complex_program(2_000 + seed)
    clauses = {word: value for word, value in clauses_of(made).items() if value}
    for more in ({"seq": True}, {"check": True}, {"speculate": "always"}, {"devices": "all"}, {}):
        decorate = omp.target_loop if more else omp.parallel_loop
        if "atomic" in clauses and ("speculate" in more or "check" in more):
            continue
        arguments = copy_of(made.arguments)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            returned = decorate(**clauses, **more)(made.function())(**arguments)
        made.check(returned, arguments)


# -- constructs ----------------------------------------------------------------------------------------------------


def sums(x, y, s):
    for i in range(x.size):
        s += x[i] * y[i]
    return s


def test_types_of_scalars_and_results():
    """A weak number gives Python's; a NumPy one keeps its type; real and complex parameters become complex."""
    x = np.array([1 + 1j, 2], np.complex64)
    for start, kind in ((0, np.complex64), (0.0, np.complex64), (1j, np.complex64), (np.complex128(1j), np.complex128)):
        loop = omp.target_loop(reduction={"+": ["s"]})(sums)
        got, expected = loop(x, x, start), sums(x, x, start)
        assert type(got) is type(expected) is kind
        assert got == expected

    @omp.target_loop(reduction={"+": ["s"]})
    def of_python(n):
        s = 0j
        for i in range(n):
            s += i * 1j
        return s

    assert type(of_python(4)) is complex
    assert of_python(4) == 6j


def test_parameters_that_change_give_new_results():
    """A complex parameter decides no launch, so that calls differ in it alone: also by the sign of a zero, and NaN."""

    @omp.target_loop
    def scale(x, w, y):
        for i in range(x.size):
            y[i] = x[i] * w if w != 2j else 0

    x = np.array([1 + 2j, -3j])
    for w in (1j, 2j, complex(0.0, -0.0), complex(-0.0, 1), complex(math.nan, 1), np.complex64(2 + 1j), 3, 2.5):
        y, expected = np.ones((2, 2), complex)
        scale(x, w, y)
        scale.python(x, w, expected)
        compare(y, expected, str(w), exact=True)


def test_repeated_calls_on_cuda_take_new_parameters(cuda):
    """A settled call fills in the parts of a complex number, whatever number stands for it."""

    @omp.target_loop
    def scale(x, w, v, y):
        for i in range(x.size):
            y[i] = x[i] * w - v

    x = np.array([1 + 2j, -3j], np.complex64)
    y = np.zeros(2, complex)
    with omp.target_data(map=[omp.to(x), omp.tofrom(y)]):
        for w in (1j, 2.5 - 1j, complex(-0.0, math.inf), np.complex128(3j), 0.5j):
            for v in (np.complex64(1j), np.complex64(2 + 1j)):
                scale(x, w, v, y)
                omp.target_update(from_=[y])
                expected = np.zeros(2, complex)
                with np.errstate(all="ignore"):
                    scale.python(x, w, v, expected)
                compare(y, expected, str(w), exact=True)


def test_threads_of_a_block_on_cuda(cuda):
    """A block shares an inner loop: sums of both types go through shuffles and shared memory."""

    @acc.parallel_loop(copyin=["a"], copyout=["y", "z"])
    def rows(a, y, z):
        for i in acc.loop(range(y.size), gang=True):
            s = 0j
            t = np.complex64(1)
            y[i] = 2j
            for j in acc.loop(range(a.shape[1]), vector=64, reduction={"+": ["s"], "*": ["t"]}):
                s += a[i, j] * y[i]
                t *= np.complex64(1j)
            y[i] = s
            z[i] = t

    a = (np.arange(5 * 70) % 11 + 1j * (np.arange(5 * 70) % 7)).reshape(5, 70)
    y, expected = np.zeros((2, 5), complex)
    z, expected_too = np.zeros((2, 5), np.complex64)
    rows(a, y, z)
    rows.python(a, expected, expected_too)
    assert (y == expected).all()
    assert (z == expected_too).all()


def test_checked_indices():
    """An index from data into complex elements is checked, also of an empty array."""

    @omp.target_loop
    def gather(p, x, y):
        for i in range(p.size):
            y[i] = x[p[i]] * 1j

    x, y = np.arange(5) * 1j, np.zeros(3, complex)
    gather(np.array([4, 0, -5]), x, y)
    assert y.tolist() == [-4, 0, 0]
    for p, given in ((5, x), (-6, x), (0, x[:0])):
        with pytest.raises(IndexError, match="'x'"):
            gather(np.array([p]), given, y)


def test_a_layout_of_any_strides():
    """Transposed, strided and unaligned arrays, fields of records, and rows of a private array."""
    record = np.zeros(6, np.dtype([("flag", "u1"), ("z", "c16"), ("t", "f8")]))
    record["z"] = np.arange(6) + 1j
    grid = (np.arange(24) * 1j + 2).reshape(4, 6)

    @omp.target_loop(collapse=2, private=["own"])
    def f(a, z, own, b):
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                for k in range(2):
                    own[k] = a[i, j] * z[i] + k
                b[i, j] = own[0] - own[1] * a[-1 - i, j]

    for made in (grid.T, grid.T[:, ::2], grid[:, ::-1].T, np.asfortranarray(grid).T):
        b = np.zeros(made.shape[::-1], complex).T
        expected = np.zeros(made.shape, complex)
        f(made, record["z"], np.zeros(2, complex), b)
        f.python(made, record["z"], np.zeros(2, complex), expected)
        compare(b, expected, "b", exact=True)


def test_nests_in_order():
    """`kernels_loop` with a recurrence of complex elements, a prologue and two nests."""

    @acc.kernels_loop
    def f(x, y):
        w = 0.5 + 0.5j
        for i in range(1, x.size):
            x[i] = x[i - 1] * w + x[i]
        for i in range(x.size):
            y[i] = x[i].conjugate()

    x = np.arange(9) * (1 + 0.5j)
    y, expected, given = np.zeros(9, complex), np.zeros(9, complex), x.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f(x, y)
    f.python(given, expected)
    assert (x == given).all()
    assert (y == expected).all()


def test_a_profile_sees_complex_elements():
    """Dependences are those of elements, whatever their size, and overlap of arrays of another type counts."""

    def carried(x, k):
        for i in range(k.size):
            x[k[i]] = x[k[i]] * 1j + i

    loop = omp.target_loop(speculate=True)(carried)
    x = np.zeros(4, complex)
    profile = omp.profile_dependences(loop, (x, np.array([0, 1, 2, 3])))
    assert not profile.dependences
    profile = omp.profile_dependences(loop, (x, np.array([0, 1, 1, 3])))
    assert {one.array for one in profile.dependences} == {"x"}
    expected = x.copy()
    loop(x, np.array([3, 1, 1, 0]))
    carried(expected, np.array([3, 1, 1, 0]))
    assert (x == expected).all()


def test_atomic_sums():
    """Parts are added one by one: in one copy a worker, and in the array itself."""

    @omp.target_loop(atomic=["h"])
    def spread(k, x, h):
        for i in range(k.size):
            h[k[i]] += x[i]

    rng = np.random.default_rng(2)
    k = rng.integers(0, 7, 20_000)
    for dtype in ("complex64", "complex128"):
        x = (rng.integers(-9, 9, k.size) + 1j * rng.integers(-9, 9, k.size)).astype(dtype)
        h, expected = np.zeros((2, 7), dtype)
        spread(k, x, h)
        np.add.at(expected, k, x)
        assert (h == expected).all()

    @omp.target_loop
    def alone(k, x, h):
        for i in range(k.size):
            omp.atomic.add(h, k[i], x[i])
            omp.atomic.sub(h, 0, 1j)

    h, expected = np.zeros((2, 7), complex)
    alone(k, x, h)
    np.add.at(expected, k, x)
    expected[0] -= 1j * k.size
    assert (h == expected).all()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_atomic_sums_on_cuda(cuda, dtype):
    """A block has a copy of complex64 in shared memory; complex128 goes to the array itself."""

    @omp.target_loop(atomic=["h"])
    def spread(k, x, h):
        for i in range(k.size):
            h[k[i]] -= x[i]

    rng = np.random.default_rng(5)
    k, x = rng.integers(0, 3, 600), (rng.integers(-9, 9, 600) * (1 + 2j)).astype(dtype)
    h, expected = np.zeros((2, 3), dtype)
    spread(k, x, h)
    np.subtract.at(expected, k, x)
    assert (h == expected).all()
    (launch,) = cuda.launches
    assert (launch[3] > 0) is (dtype == "complex64")


# -- what is refused -------------------------------------------------------------------------------------

REFUSED = [
    ("r[i] = z[i]", "types", "real number is needed"),
    ("r[i] = float(z[i])", "types", "real number is needed"),
    ("r[i] = int(1j)", "types", "real number is needed"),
    ("r[i] = np.float32(z[i])", "types", "real number is needed"),
    ("r[i] = math.sin(z[i])", "types", "real number is needed"),
    ("z[int(i * 1j)] = 0", "types", "real number is needed"),
    ("z[z[i]] = 0", "types", "real number is needed"),
    ("z[i] = complex(z[i], 1)", "types", "real number is needed"),
    ("for k in range(1j):\n            z[i] = 0", "types", "real number is needed"),
    ("for k in range(0, 3, 1j):\n            z[i] = 0", "types", "real number is needed"),
    ("for k in range(0, 3, z[i]):\n            z[i] = 0", "types", "real number is needed"),
    ("q = np.full(2, 1j, np.float64)\n        z[i] = q[0]", "types", "real number is needed"),
    ("q = np.zeros(1j)\n        z[i] = q[0]", "local", "constant"),
    ("z[i] = z[i] < 2", "types", "no order"),
    ("z[i] = 1 >= z[i]", "types", "no order"),
    ("z[i] = max(z[i], 1)", "types", "no order"),
    ("z[i] = round(z[i])", "types", "not rounded"),
    ("z[i] = z[i] // 2", "types", "//"),
    ("z[i] = z[i] % 2", "types", "%"),
    ("z[i] = z[i] & 2", "types", "&"),
    ("z[i] = ~z[i]", "types", "~"),
    ("z[i] = z[i] ** r[i]", "types", "integer constant"),
    ("z[i] = z[i] ** 0.5", "types", "integer constant"),
    ("z[i] = z[i] ** 100", "types", "integer constant"),
    ("z[i] = 2 ** z[i]", "types", "integer constant"),
    ("z[i] = np.sin(z[i])", "types", "exp"),
    ("z[i] = np.maximum(z[i], 1)", "types", "exp"),
    ("z[i] = np.power(z[i], 2)", "types", "exp"),
    ("z[i].real = 2", "assign", "attribute"),
    ("z.real[i] = 2", "index", "z.real"),
    ("r[i] = z.imag[i]", "index", "z.imag"),
    ("z[i] = z[i].conjugate(2)", "call", "no arguments"),
    ("z[i] = z[i].angle", "index", "angle"),
    ("z[i] = np.conj(True)", "types", "truth"),
    ("z[i] = complex('1j')", "types", "str"),
    ("omp.atomic.max(z, i, 2)", "atomic", "added to"),
    ("r[i] = omp.atomic.add(z, i, 2).real", "atomic", "added to"),
    ("omp.atomic.exchange(z, i, 2)", "atomic", "added to"),
    ("omp.atomic.add(r, i, 2j)", "types", "r holds float64"),
]


@pytest.mark.parametrize(("line", "rule", "word"), REFUSED, ids=[line for line, *_ in REFUSED])
def test_refusals_name_the_reason(line, rule, word):
    """Each line that loops refuse says why, at its place, before anything has run."""
    head = "import math\nimport numpy as np\nimport offload as omp\ndef f(z, r):\n    for i in range(z.size):\n"
    z = np.zeros(3, complex)
    with pytest.raises(omp.LoopError) as found:
        omp.target_loop(function_of_text(f"{head}        {line}\n"))(z, np.ones(3))
    assert found.value.rule == rule
    assert word in str(found.value)
    assert not z.any()


@pytest.mark.parametrize("operator", ["min", "max", "&", "|", "^", "and", "or"])
def test_reductions_without_a_meaning_are_refused(operator):
    """Of complex numbers there are sums and products only."""

    @omp.target_loop(reduction={"max": ["s"]})
    def greatest(z):
        s = 0j
        for i in range(z.size):
            s = max(s, z[i])
        return s

    @omp.target_loop(reduction={"&": ["s"]})
    def bits(z):
        s = 0j
        for i in range(z.size):
            s &= z[i]
        return s

    loop = greatest if operator in ("min", "max") else bits
    with pytest.raises(omp.LoopError) as found:
        loop(np.ones(3, complex))
    assert found.value.rule == "types"
    assert "complex128" in str(found.value)


def test_a_long_double_is_no_type_of_loops():
    """Complex numbers of other sizes are refused as arguments."""
    long = np.ones(3, np.clongdouble)
    if long.dtype == np.complex128:
        pytest.skip("no long double here")
    with pytest.raises(omp.LoopError, match=long.dtype.name) as found:
        omp.target_loop(reduction={"+": ["s"]})(sums)(long, np.ones(3), 0)
    assert found.value.rule == "types"


def test_a_note_about_sums_of_few_bits():
    """`explain` names sums in complex64, as it does those in float32."""
    loop = omp.target_loop(reduction={"+": ["s"]})(sums)
    x = np.ones(3, np.complex64)
    assert any("complex64" in note and "complex128" in note for note in loop.explain(x, x, 0).to_dict()["notes"])
    assert not any("sums in" in note for note in loop.explain(x.astype(complex), x, 0).to_dict()["notes"])
