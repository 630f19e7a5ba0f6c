"""The simulated device's namespace: what CuPy documents and NumPy has, and that none of it gives host arrays away."""

from __future__ import annotations

import dataclasses
import io
import pickle
import warnings

import numpy as np
import pytest

from offload.devices.sim.array import SimArray
from offload.devices.sim.device import SimDevice


def words(text):
    """Return the names in a text."""
    return text.split()


# Names that CuPy 14 documents ("NumPy-CuPy APIs" of its comparison table) and NumPy 2 has, by how they are called.
VECTOR = words(
    """
    abs absolute all amax amin angle any arccos arccosh arcsin arcsinh arctan arctanh acos acosh asin asinh
    atan atanh argmax argmin argsort argwhere around array array_repr array_str array2string asanyarray
    asarray asarray_chkfinite ascontiguousarray asfortranarray atleast_1d atleast_2d atleast_3d average cbrt
    ceil conj conjugate copy corrcoef cos cosh count_nonzero cov cumprod cumsum cumulative_prod cumulative_sum
    deg2rad degrees diag diagflat diff ediff1d empty_like exp exp2 expm1 fabs fix flatnonzero flip floor frexp
    gradient histogram i0 imag iscomplex iscomplexobj isfinite isfortran isinf isnan isneginf isposinf isreal
    isrealobj isscalar iterable ix_ log log10 log1p log2 logical_not max mean median min modf nan_to_num
    nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar ndim
    negative nonzero ones_like positive prod ptp rad2deg radians ravel real real_if_close reciprocal require
    rint roots round shape sign signbit sin sinc sinh size sort sort_complex sqrt square squeeze std
    sum tan tanh trim_zeros trunc unique unique_all unique_counts unique_inverse unique_values unwrap vander
    var zeros_like transpose
    """
)
MATRIX = words(
    """
    fliplr flipud rot90 tril triu trace diagonal matrix_transpose permute_dims triu_indices_from
    tril_indices_from diag_indices_from
    """
)
PAIR = words(
    """
    add allclose arctan2 array_equal array_equiv atan2 append broadcast_arrays convolve copysign correlate
    cross digitize divide divmod dot equal float_power floor_divide fmax fmin fmod greater greater_equal
    heaviside hypot inner intersect1d isclose isin kron less less_equal logaddexp logaddexp2 logical_and
    logical_or logical_xor matmul may_share_memory maximum meshgrid minimum mod multiply nextafter not_equal
    outer polyadd polymul polysub polyval pow power remainder searchsorted setdiff1d setxor1d shares_memory
    subtract trapezoid true_divide union1d vdot
    """
)
INTEGERS = words(
    """
    bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor gcd lcm ldexp left_shift
    right_shift
    """
)
INTEGER = words("bincount bitwise_count bitwise_invert bitwise_not invert")
LIST = words("column_stack concat concatenate dstack hstack stack vstack common_type result_type lexsort")
WINDOW = words("bartlett blackman hamming hanning identity eye tri")

CALLS = {
    "apply_along_axis": lambda f, a: f(lambda row: row * a.v[0], 0, a.m),
    "apply_over_axes": lambda f, a: f(lambda x, axis: x.sum(axis), a.m, [0]),
    "arange": lambda f, a: f(3),
    "argpartition": lambda f, a: f(a.v, 1),
    "array_split": lambda f, a: f(a.v, 2),
    "astype": lambda f, a: f(a.v, "i4"),
    "base_repr": lambda f, a: f(5),
    "binary_repr": lambda f, a: f(5),
    "broadcast_shapes": lambda f, a: f((2, 1), (3,)),
    "broadcast_to": lambda f, a: f(a.v, (2, 4)),
    "can_cast": lambda f, a: f("i4", "f8"),
    "choose": lambda f, a: f(a.i % 2, [a.i, a.i]),
    "clip": lambda f, a: f(a.v, 0, 1),
    "compress": lambda f, a: f(a.b, a.v),
    "copyto": lambda f, a: f(a.v, a.w),
    "delete": lambda f, a: f(a.v, 1),
    "diag_indices": lambda f, a: f(3),
    "dsplit": lambda f, a: f(a.v.reshape(1, 1, 4), 2),
    "einsum": lambda f, a: f("i,i->", a.v, a.w),
    "empty": lambda f, a: f(3),
    "expand_dims": lambda f, a: f(a.v, 0),
    "extract": lambda f, a: f(a.b, a.v),
    "fill_diagonal": lambda f, a: f(a.m, 0),
    "format_float_positional": lambda f, a: f(1.5),
    "format_float_scientific": lambda f, a: f(1.5),
    "frombuffer": lambda f, a: f(b"12345678"),
    "fromfile": lambda f, a: f(a.path),
    "fromfunction": lambda f, a: f(lambda i, j: i + j, (2, 2)),
    "fromiter": lambda f, a: f(iter(range(3)), "f8"),
    "fromstring": lambda f, a: f("1 2", sep=" "),
    "full": lambda f, a: f(3, 1.0),
    "full_like": lambda f, a: f(a.v, 1.0),
    "genfromtxt": lambda f, a: f(io.StringIO("1 2")),
    "get_printoptions": lambda f, a: f(),
    "histogram2d": lambda f, a: f(a.v, a.w),
    "histogramdd": lambda f, a: f(a.m),
    "hsplit": lambda f, a: f(a.v, 2),
    "indices": lambda f, a: f((2, 3)),
    "interp": lambda f, a: f(a.v, a.w, a.v),
    "isdtype": lambda f, a: f(np.dtype("f8"), "real floating"),
    "issubdtype": lambda f, a: f("f8", np.floating),
    "kaiser": lambda f, a: f(4, 1.0),
    "linspace": lambda f, a: f(0, 1, 3),
    "load": lambda f, a: f(a.npy),
    "loadtxt": lambda f, a: f(io.StringIO("1 2")),
    "logspace": lambda f, a: f(0, 1, 3),
    "mask_indices": lambda f, a: f(3, a.xp.triu),
    "min_scalar_type": lambda f, a: f(3),
    "mintypecode": lambda f, a: f(["f"]),
    "moveaxis": lambda f, a: f(a.m, 0, 1),
    "ones": lambda f, a: f(3),
    "packbits": lambda f, a: f(a.b),
    "pad": lambda f, a: f(a.v, 1),
    "partition": lambda f, a: f(a.v, 1),
    "percentile": lambda f, a: f(a.v, 50),
    "piecewise": lambda f, a: f(a.v, [a.v < 1, a.v >= 1], [lambda x: x * a.w[0], 1.0]),
    "place": lambda f, a: f(a.v, a.b, a.w),
    "poly": lambda f, a: f(a.v),
    "polyfit": lambda f, a: f(a.v, a.w, 1),
    "printoptions": lambda f, a: f(precision=3),
    "promote_types": lambda f, a: f("i4", "f8"),
    "put": lambda f, a: f(a.v, a.i, a.w),
    "put_along_axis": lambda f, a: f(a.v, a.i, a.w, 0),
    "putmask": lambda f, a: f(a.v, a.b, a.w),
    "quantile": lambda f, a: f(a.v, 0.5),
    "ravel_multi_index": lambda f, a: f((a.i % 2, a.i % 2), (2, 2)),
    "repeat": lambda f, a: f(a.v, 2),
    "reshape": lambda f, a: f(a.v, (2, 2)),
    "resize": lambda f, a: f(a.v, (2, 2)),
    "roll": lambda f, a: f(a.v, 1),
    "rollaxis": lambda f, a: f(a.m, 1),
    "save": lambda f, a: f(a.npy, a.v),
    "savetxt": lambda f, a: f(a.path, a.v),
    "savez": lambda f, a: f(a.npy, a.v),
    "savez_compressed": lambda f, a: f(a.npy, a.v),
    "select": lambda f, a: f([a.b], [a.v]),
    "set_printoptions": lambda f, a: f(),
    "split": lambda f, a: f(a.v, 2),
    "swapaxes": lambda f, a: f(a.m, 0, 1),
    "take": lambda f, a: f(a.v, a.i),
    "take_along_axis": lambda f, a: f(a.v, a.i, 0),
    "tensordot": lambda f, a: f(a.m, a.m),
    "tile": lambda f, a: f(a.v, 2),
    "tril_indices": lambda f, a: f(3),
    "triu_indices": lambda f, a: f(3),
    "typename": lambda f, a: f("f"),
    "unpackbits": lambda f, a: f(a.i.astype("u1")),
    "unravel_index": lambda f, a: f(a.i, (2, 2)),
    "vsplit": lambda f, a: f(a.m, 2),
    "where": lambda f, a: f(a.b, a.v, a.w),
    "zeros": lambda f, a: f(3),
    "poly1d": lambda f, a: [f(a.v)(a.w), f(a.v).coeffs, f(a.v).roots, f(a.v)[0]],
    "vectorize": lambda f, a: f(lambda x: x + 1)(a.v),
    "ndindex": lambda f, a: next(f(2, 2)),
    "finfo": lambda f, a: f("f4").bits,
    "iinfo": lambda f, a: f("i4").bits,
}
CALLS |= dict.fromkeys(VECTOR, lambda f, a: f(a.v))
CALLS |= dict.fromkeys(MATRIX, lambda f, a: f(a.m))
CALLS |= dict.fromkeys(PAIR, lambda f, a: f(a.v, a.w))
CALLS |= dict.fromkeys(INTEGERS, lambda f, a: f(a.i, a.i))
CALLS |= dict.fromkeys(INTEGER, lambda f, a: f(a.i))
CALLS |= dict.fromkeys(LIST, lambda f, a: f([a.v, a.w]))
CALLS |= dict.fromkeys(WINDOW, lambda f, a: f(3))
CALLS["cross"] = lambda f, a: f(a.v[:3], a.w[:3])
CALLS["common_type"] = CALLS["result_type"] = lambda f, a: f(a.v, a.w)

FFT = dict.fromkeys(
    words("fft fft2 fftn fftshift hfft ifft ifft2 ifftn ifftshift ihfft irfft irfft2 irfftn rfft rfft2 rfftn"),
    lambda f, a: f(a.m),
) | dict.fromkeys(["fftfreq", "rfftfreq"], lambda f, a: f(4))

LINALG = dict.fromkeys(
    words("cholesky cond det eig eigh eigvals eigvalsh inv matrix_rank matrix_transpose norm pinv qr slogdet svd"),
    lambda f, a: f(a.m),
) | {
    "cross": lambda f, a: f(a.v[:3], a.w[:3]),
    "lstsq": lambda f, a: f(a.m, a.v[:2]),
    "matmul": lambda f, a: f(a.m, a.m),
    "matrix_power": lambda f, a: f(a.m, 2),
    "solve": lambda f, a: f(a.m, a.v[:2]),
    "tensorinv": lambda f, a: f(a.m.reshape(2, 2), ind=1),
    "tensorsolve": lambda f, a: f(a.m, a.v[:2]),
}

RANDOM = (
    {
        "beta": (1, 1),
        "binomial": (3, 0.5),
        "chisquare": (2,),
        "dirichlet": ([1.0, 1.0],),
        "exponential": (),
        "f": (1, 1),
        "gamma": (1,),
        "geometric": (0.5,),
        "hypergeometric": (3, 3, 2),
        "logseries": (0.5,),
        "poisson": (),
        "power": (1,),
        "standard_exponential": (),
        "standard_gamma": (1,),
        "standard_normal": (),
        "uniform": (),
    },
    {
        "choice": (5,),
        "gumbel": (),
        "laplace": (),
        "logistic": (),
        "lognormal": (),
        "multivariate_normal": ([0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]]),
        "negative_binomial": (3, 0.5),
        "noncentral_chisquare": (1, 1),
        "noncentral_f": (1, 1, 1),
        "normal": (),
        "pareto": (1,),
        "rayleigh": (),
        "standard_cauchy": (),
        "standard_t": (1,),
        "triangular": (0, 1, 2),
        "vonmises": (0, 1),
        "wald": (1, 1),
        "weibull": (1,),
        "zipf": (2,),
        "randint": (5,),
        "random_sample": (),
    },
    {"random": (), "ranf": (), "sample": (), "multinomial": (3, [0.5, 0.5])},
)
"""Arguments without ``size``: of Generators, also of RandomStates, also of the functions; each has those before."""


@pytest.fixture
def device():
    device = SimDevice(0)
    yield device
    device.close()


@pytest.fixture
def xp(device):
    return device.namespace()


class Arguments:
    """Device arrays to call functions with: two vectors, integers, a mask and a matrix."""

    def __init__(self, xp, path):
        self.xp = xp
        self.v, self.w = xp.asarray([0.25, 0.5, 0.75, 1.0]), xp.asarray([1.0, 2.0, 3.0, 4.0])
        self.i, self.b = xp.asarray([0, 1, 2, 3]), xp.asarray([True, False, True, False])
        self.m = xp.asarray([[2.0, 0.5], [0.5, 2.0]])
        self.path, self.npy = path / "bytes", path / "array.npy"
        np.zeros(3).tofile(self.path)
        np.save(self.npy, np.zeros(3))


def host_parts(value):
    """Yield the host arrays and NumPy scalars in a value."""
    if isinstance(value, (np.ndarray, np.generic)):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from host_parts(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from host_parts(part)
    elif dataclasses.is_dataclass(value):
        yield from host_parts(vars(value))


def check(function, call, arguments):
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy lets go of names that CuPy still documents
        result = call(function, arguments)
    assert not [*host_parts(result)], result


@pytest.mark.parametrize("name", sorted(CALLS))
def test_functions(xp, tmp_path, name):
    """No function of the namespace gives a host array or a NumPy scalar."""
    check(getattr(xp, name), CALLS[name], Arguments(xp, tmp_path))


@pytest.mark.parametrize(("module", "name"), [("fft", name) for name in FFT] + [("linalg", name) for name in LINALG])
def test_submodules(xp, tmp_path, module, name):
    """Nor does one of fft and linalg."""
    table = FFT if module == "fft" else LINALG
    check(getattr(getattr(xp, module), name), table[name], Arguments(xp, tmp_path))


GENERATORS = {
    "default_rng": (lambda xp: xp.random.default_rng(3), RANDOM[0] | {"random": (), "integers": (5,)}),
    "Generator": (lambda xp: xp.random.Generator(xp.random.XORWOW(3)), RANDOM[0] | {"random": (), "integers": (5,)}),
    "RandomState": (lambda xp: xp.random.RandomState(3), RANDOM[0] | RANDOM[1] | {"tomaxint": ()}),
    "random": (lambda xp: xp.random, RANDOM[0] | RANDOM[1] | RANDOM[2]),
}


@pytest.mark.parametrize(
    ("source", "name"), [(source, name) for source, (_, table) in GENERATORS.items() for name in table]
)
def test_random(xp, source, name):
    """Random numbers are on the device, wherever the generator comes from, one of them too."""
    make, table = GENERATORS[source]
    function = getattr(make(xp), name)
    for size in (3, (2, 2), None):
        numbers = function(*table[name], size=size)
        assert isinstance(numbers, SimArray)
        assert size is None or numbers.shape[: np.ndim(np.empty(size))] == np.empty(size).shape


def test_random_without_size(xp):
    """Shuffles and permutations work on device arrays, and rand and randn give them."""
    d = xp.arange(8)
    for source in (xp.random, xp.random.RandomState(1)):
        source.shuffle(d)
        assert sorted(d.tolist()) == list(range(8))
        assert isinstance(source.permutation(d), SimArray)
        assert isinstance(source.permutation(4), SimArray)
        assert isinstance(source.rand(2, 2), SimArray)
        assert isinstance(source.randn(2), SimArray)
        source.seed(3)
    with pytest.raises(TypeError, match="host"):
        xp.random.shuffle(np.arange(3))


def test_seeds_give_the_same_numbers(xp):
    """Equal seeds give equal numbers, of a generator and of the functions; a generator is taken as it is."""
    for make in (xp.random.default_rng, xp.random.RandomState):
        assert make(7).uniform(size=3).tolist() == make(7).uniform(size=3).tolist()
    generator = xp.random.default_rng(1)
    assert xp.random.default_rng(generator) is generator
    xp.random.seed(5)
    first = xp.random.random(2).tolist()
    xp.random.seed(5)
    assert xp.random.random(2).tolist() == first
    assert isinstance(generator, xp.random.Generator)
    assert isinstance(xp.random.RandomState(), xp.random.RandomState)
    with pytest.raises(TypeError, match="seed"):
        pickle.dumps(generator)


def test_bit_generators_of_cupy_exist(xp):
    """The bit generators that CuPy has make generators here too, as NumPy's do, and give bits on the device."""
    for name in ("XORWOW", "MRG32k3a", "Philox4x3210", "PCG64"):
        bits = getattr(xp.random, name)(1)
        assert isinstance(bits, xp.random.BitGenerator)
        assert isinstance(bits.random_raw(3), SimArray)
        assert isinstance(bits.random_raw(), SimArray)
        for generator in (xp.random.Generator(bits), xp.random.default_rng(bits)):
            assert isinstance(generator.random(2), SimArray)
            assert isinstance(generator.bit_generator, xp.random.BitGenerator)
            assert isinstance(generator.spawn(1)[0].random(), SimArray)
    state = xp.random.RandomState(1)
    xp.random.set_random_state(state)
    assert xp.random.get_random_state() is state
    xp.random.reset_states()
    assert xp.random.get_random_state() is not state
    with pytest.raises(TypeError, match="RandomState of sim:0"):
        xp.random.set_random_state(np.random.RandomState(1))
    with pytest.raises(AttributeError, match=r"cupy\.random"):
        xp.random.mtrand  # noqa: B018, RUF100


@pytest.mark.parametrize("name", ["matrix", "recarray", "memmap", "nditer", "ndenumerate", "frompyfunc", "broadcast"])
def test_what_would_give_host_arrays_is_refused(xp, name):
    """What makes or hands out host arrays, and CuPy has not, is refused and says what to do."""
    with pytest.raises(AttributeError, match="host"):
        getattr(xp, name)


def test_foreign_memory_is_copied(xp, tmp_path):
    """What is made from a buffer or a mapped file is a copy of it on the device; from_dlpack takes no host array."""
    memory = bytearray(b"abc")
    d = xp.frombuffer(memory, "u1")
    memory[0] = 0
    d[1] = 7
    assert d.tolist() == [97, 7, 99]
    np.save(tmp_path / "a.npy", np.zeros(3))
    loaded = xp.load(tmp_path / "a.npy", mmap_mode="r")
    loaded[...] = 1
    assert not np.load(tmp_path / "a.npy").any()
    with pytest.raises(TypeError, match="host"):
        xp.from_dlpack(np.zeros(3))


def test_archives_give_device_arrays(xp, tmp_path):
    """Load of a file of savez gives device arrays by name."""
    np.savez(tmp_path / "a.npz", x=np.ones(2), y=np.zeros(3))
    with xp.load(tmp_path / "a.npz") as archive:
        assert archive.files == [*archive] == ["x", "y"]
        assert isinstance(archive["x"], SimArray)
        assert archive["x"].tolist() == [1, 1]


def test_functions_of_the_program_get_device_arrays(xp):
    """A function given to a function of NumPy or of the namespace is called with device arrays."""
    d, seen = xp.asarray([[1.0, 2.0], [3.0, 4.0]]), []

    def look(x, *_):
        seen.append(type(x))
        return x.sum()

    for module in (xp, np):
        assert module.apply_along_axis(look, 1, d).tolist() == [3, 7]
        assert module.apply_over_axes(lambda x, axis: look(x) + x.sum(axis, keepdims=True), d, [0]).shape == (1, 2)
        assert module.piecewise(d, [d > 2], [look, 0]).tolist() == [[0, 0], [7, 7]]
        assert module.pad(d[0], 1, lambda vector, *_: vector.__setitem__(0, look(vector))).tolist() == [3, 1, 2, 0]
    assert {*seen} == {SimArray}
    assert [part.tolist() for part in xp.mask_indices(2, xp.tril)] == [[0, 1, 1], [0, 0, 1]]


def test_seeding_leaves_numpy_alone(xp):
    """The functions have a state of their own."""
    before = np.random.get_state()[1].copy()  # noqa: NPY002  # that of NumPy's functions
    xp.random.seed(2)
    xp.random.random(100)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002  # the same


def test_polynomials_are_on_the_device(xp):
    """poly1d of numbers has its coefficients on the device."""
    p = xp.poly1d([1.0, 2.0])
    assert isinstance(p.coeffs, SimArray)
    assert p(xp.asarray([1.0, 2.0])).tolist() == [3, 4]


# -- like= ----------------------------------------------------------------------------------------
LIKE = {
    "arange": (3,),
    "array": ([1, 2],),
    "asanyarray": ([1, 2],),
    "asarray": (np.arange(3),),
    "ascontiguousarray": (np.arange(3),),
    "asfortranarray": (np.eye(2),),
    "empty": (3,),
    "eye": (2,),
    "frombuffer": (b"12345678",),
    "fromfunction": (lambda i, j: i + j, (2, 2)),
    "fromiter": ([1, 2], "f8"),
    "full": (3, 1.5),
    "genfromtxt": (["1 2"],),
    "identity": (2,),
    "loadtxt": (["1 2"],),
    "ones": ((2, 2), "f4"),
    "require": (np.eye(2), "f4", "F"),
    "tri": (3,),
    "zeros": (3,),
}


@pytest.mark.parametrize("name", LIKE)
def test_like_makes_device_arrays(xp, name):
    """NumPy's functions with like= a device array make an array of NumPy's shape, dtype and values there."""
    function, arguments, d = getattr(np, name), LIKE[name], xp.zeros(2)
    result = function(*arguments, like=d)  # by a name: NumPy 2.4 lets go of the last reference before it uses it
    expected = function(*arguments)
    assert isinstance(result, SimArray)
    assert (result.shape, result.dtype, result.strides) == (expected.shape, expected.dtype, expected.strides)
    if name != "empty":
        assert np.array_equal(result.get(), expected)


def test_like_reads_files_and_text(xp, tmp_path):
    """fromfile and fromstring make device arrays, too; what lies on the device already stays there."""
    d = xp.zeros(2)
    np.ones(3).tofile(tmp_path / "a")
    assert np.fromfile(tmp_path / "a", like=d).tolist() == [1, 1, 1]
    assert np.fromstring("1 2", sep=" ", like=d).tolist() == [1, 2]
    assert np.asarray(d, like=d) is d
    assert np.array([d[0], d[1]], like=d).tolist() == [0, 0]
    assert np.full(2, d[0], like=d).tolist() == [0, 0]


def test_like_takes_every_function_of_numpy(xp):
    """Every function of NumPy that has like= is known here."""
    from inspect import signature

    d = xp.zeros(2)
    for name in dir(np):
        function = getattr(np, name)
        if callable(function) and not isinstance(function, type):
            try:
                has_like = "like" in signature(function).parameters
            except ValueError:
                has_like = "like=" in (function.__doc__ or "")
            assert not has_like or name in {*LIKE, "fromfile", "fromstring"}
    for function in (np.empty_like, np.zeros_like, np.ones_like):
        assert isinstance(function(d), SimArray)
    assert isinstance(np.full_like(d, 2), SimArray)
