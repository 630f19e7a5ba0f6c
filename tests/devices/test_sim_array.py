"""The array of the simulated device: behaves as CuPy's, refuses to mix, accounts for its memory."""

import copy
import operator
import pickle
import random

import numpy as np
import pytest

from offload.devices.sim.array import SimArray
from offload.devices.sim.device import SimDevice, SimEvent
from offload.devices.streams import using
from offload.errors import DeviceLostError, DeviceMemoryError, InternalError


@pytest.fixture
def device():
    device = SimDevice(0, memory_nbytes=1 << 20)
    yield device
    device.close()


@pytest.fixture
def xp(device):
    return device.namespace()


HOST = np.arange(6.0).reshape(2, 3)


@pytest.fixture
def d(xp):
    return xp.asarray(HOST)


# -- what it is -----------------------------------------------------------------------------------
def test_copies_to_and_from_the_host(xp):
    """asarray copies in and get copies out: neither shares memory with the host."""
    host = HOST.copy()
    d = xp.asarray(host)
    host[:] = -1
    back = d.get()
    back[:] = -2
    assert np.array_equal(d.get(), HOST)


def test_get_fills_out_and_returns_it(d):
    """get(out=…) writes to the array given, of the same shape and dtype, and returns it."""
    out = np.empty((2, 3))
    assert d.get(out=out) is out
    assert np.array_equal(out, HOST)
    with pytest.raises(ValueError, match="shape"):
        d.get(out=np.empty(6))
    with pytest.raises(TypeError, match="float32"):
        d.get(out=np.empty((2, 3), np.float32))


def test_set_copies_from_the_host(d):
    """Set copies a host array of the same shape and dtype in, and refuses any other."""
    d.set(HOST + 1)
    assert np.array_equal(d.get(), HOST + 1)
    with pytest.raises(ValueError, match="shape"):
        d.set(np.zeros(6))
    with pytest.raises(TypeError, match="int64"):
        d.set(np.zeros((2, 3), np.int64))
    with pytest.raises(TypeError, match="list"):
        d.set([[0.0] * 3] * 2)


def test_attributes_are_those_of_the_storage(d, device):
    """Shape, dtype, sizes, strides and flags are NumPy's; device is the owner."""
    for name in ("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides"):
        assert getattr(d, name) == getattr(HOST, name)
    assert d.flags.c_contiguous
    assert d.device is device
    assert d.T.shape == (3, 2)
    assert len(d) == 2


def test_is_no_ndarray_and_exposes_no_memory(d):
    """No host library can reach the memory by accident."""
    assert not isinstance(d, np.ndarray)
    assert not hasattr(d, "__array_interface__")
    with pytest.raises(TypeError):
        memoryview(d)


def test_elements_and_reductions_are_0d_device_arrays(d):
    """An element, like a sum, is a 0-d device array, which Python's conversions take to the host."""
    for value in (d[1, 2], d.max(), np.max(d), d[1][2]):
        assert isinstance(value, SimArray)
        assert value.shape == ()
        assert (float(value), int(value), complex(value), bool(value)) == (5.0, 5, 5 + 0j, True)
    assert operator.index(np.argmax(d)) == 5
    assert f"{d[0, 1]:.2f}" == "1.00"
    assert d[1, 2].item() == 5.0
    with pytest.raises(TypeError):
        operator.index(d[0, 0])


def test_an_element_is_a_view(d):
    """Writing through an element writes to the array, as with CuPy."""
    d[0, 1][...] = 9
    d[np.int64(1)][0] = 7
    assert d.tolist() == [[0, 9, 2], [7, 4, 5]]


def test_conversion_of_many_elements_is_refused(d):
    """Truth and float of an array with several elements are NumPy's errors."""
    with pytest.raises(ValueError, match="ambiguous"):
        bool(d)
    with pytest.raises(ValueError, match="size 1"):
        float(d)


@pytest.mark.parametrize(
    "operation",
    [
        lambda a: a + 1,
        lambda a: 2.0 * a,
        lambda a: np.float32(2) * a,
        lambda a: a**2 @ a.T,
        lambda a: -a / np.float64(3),
        lambda a: np.array(2.0) + a,
        lambda a: np.sin(a).sum(axis=1, keepdims=True),
        lambda a: np.concatenate([a, a[:1]]),
        lambda a: np.where(a > 2, a, 0.0),
        lambda a: a[a > 2],
        lambda a: a[[1, 0]],
        lambda a: a[::-1, None, 1:],
        lambda a: a[..., -1],
        lambda a: a.astype(np.int32).view(np.uint8),
        lambda a: a.reshape(3, -1).ravel().repeat(2),
        lambda a: np.broadcast_to(a, (4, 2, 3)).sum(0),
        lambda a: np.lib.stride_tricks.sliding_window_view(a, 2, axis=1),
        lambda a: np.add.reduce(a, axis=1, where=a > 1),
        lambda a: np.multiply.outer(a, a),
        lambda a: np.einsum("ij,kj->ik", a, a),
        lambda a: np.linalg.svd(a).S,
        lambda a: np.split(a, 3, axis=1)[1],
        lambda a: np.unique(a % 2),
        np.fft.rfft,
        lambda a: (a + 1j * a).imag,
        lambda a: a.imag,
        lambda a: a.clip(1, 3).round().conj().std(ddof=1),
        lambda a: a.cumsum().take([0, 2]).swapaxes(0, 0).squeeze(),
        lambda a: np.take(a, a[0].astype(int)),
        lambda a: np.nonzero(a)[0],
    ],
)
def test_computes_what_numpy_computes(d, operation):
    """An operation on a device array gives a device array with NumPy's value, shape and dtype."""
    result, expected = operation(d), np.asarray(operation(HOST))
    assert isinstance(result, SimArray)
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_array_equal(result.get(), expected)


def test_in_place_operations_keep_the_object(d):
    """`d += …` and out=d write to d and return it."""
    same = d
    d += 1
    assert d is same
    assert np.multiply(d, 2, out=d) is same
    assert np.cumsum(d[0], out=d[1]).tolist() == [2, 6, 12]
    np.add.at(d[0], [0, 0], 10)
    np.copyto(d[1], d[0])
    d[0, 1:] = d[1, :2]
    d.real = d * 1
    assert d.tolist() == [[22, 22, 4], [22, 4, 6]]
    d.fill(3)
    d[:, 0].sort()
    assert d.sum() == 18


def test_matrix_product_in_place_makes_a_new_array(xp):
    """`d @= m` leaves the array as it was and makes a new one, as with CuPy."""
    d = old = xp.eye(2)
    d @= xp.ones((2, 2))
    assert d is not old
    assert d.tolist() == [[1, 1], [1, 1]]
    assert old.tolist() == [[1, 0], [0, 1]]


def test_bytes_are_those_of_the_memory(xp):
    """bytes(d) gives the bytes of the elements, not one byte for each."""
    assert bytes(xp.asarray(np.arange(3, dtype=np.int16))) == b"\0\0\1\0\2\0"


def test_asnumpy_takes_what_cupy_takes(xp):
    """asnumpy has CuPy's parameters: an order, an array to fill, whether to block."""
    d, out = xp.asarray(HOST), np.empty((2, 3))
    assert xp.asnumpy(d, out=out, blocking=False) is out
    assert np.array_equal(out, HOST)
    assert xp.asnumpy(d, order="F").flags.f_contiguous
    assert xp.asnumpy(HOST + 1, out=out) is out
    assert np.array_equal(out, HOST + 1)
    assert xp.asnumpy(HOST) is HOST


def test_imaginary_part_of_a_complex_array_is_a_view(xp):
    """Assigning to imag changes a complex array, and is refused for a real one."""
    z = xp.zeros(2, dtype=complex)
    z.imag = 1
    assert z.tolist() == [1j, 1j]
    with pytest.raises(TypeError, match="real"):
        z.real.imag = 1


def test_iterates_over_rows(d):
    """Iteration gives device arrays; a 0-d array has none."""
    assert [row.tolist() for row in d] == HOST.tolist()
    with pytest.raises(TypeError, match="0-d"):
        iter(d[0, 0])


def test_copies_are_independent(d):
    """copy, copy.copy and copy.deepcopy make arrays of their own."""
    for other in (d.copy(), copy.copy(d), copy.deepcopy(d)):
        other[...] = 0
    assert np.array_equal(d.get(), HOST)


def test_shows_its_device_and_values(d):
    """Repr names device, dtype and values; str is NumPy's."""
    assert repr(d[0]) == "SimArray([0., 1., 2.], dtype=float64, device='sim:0')"
    assert str(d) == str(HOST)
    assert f"{d[0]:>12}" == "  [0. 1. 2.]"


def test_structured_fields_are_views(xp):
    """A field of a structured array is a device array over the same memory."""
    s = xp.zeros(2, dtype=[("a", "i4"), ("b", "f8")])
    s["b"][...] = 2
    assert s["b"].tolist() == [2, 2]


# -- what it refuses ------------------------------------------------------------------------------
def _assign(target, index, value):
    target[index] = value


@pytest.mark.parametrize(
    "operation",
    [
        lambda d, h: d + h,
        lambda d, h: h + d,
        operator.iadd,
        lambda d, h: operator.iadd(h, d),
        lambda d, h: d @ h.T,
        lambda d, h: d == h,
        lambda d, h: np.add(d, [1, 2, 3]),
        lambda d, h: np.add(d, d, out=h),
        lambda d, h: np.add(h, h, out=d),
        lambda d, h: np.add(d, 1, out=np.array(0.0)),
        lambda d, h: np.add.reduce(d, where=h > 0),
        lambda d, h: np.add.at(h, 0, d[0]),
        lambda d, h: np.concatenate([d, h]),
        lambda d, h: np.concatenate([d, d], out=np.empty((4, 3))),
        lambda d, h: np.where(h > 0, d, 0),
        lambda d, h: np.copyto(h, d),
        lambda d, h: np.copyto(np.array(0.0), d[0, 0]),
        lambda d, h: d.dot(h),
        lambda d, h: d[h > 0],
        lambda d, h: d[[0], np.array([1])],
        lambda d, h: h[d > 0],
        lambda d, h: _assign(d, ..., h),
        lambda d, h: _assign(d, 0, [1, 2, 3]),
        lambda d, h: _assign(h, ..., d),
        lambda d, h: np.asarray(d),
        lambda d, h: np.array([d[0, 0], d[0, 1]]),
        lambda d, h: np.save("nowhere", d),
        lambda d, h: d.device.namespace().sin(h),
    ],
)
def test_refuses_host_arrays(d, operation):
    """Mixing with the host raises, says to pass the array as an argument, and changes nothing."""
    host = HOST.copy()
    with pytest.raises(TypeError, match="argument of the target function"):
        operation(d, host)
    assert np.array_equal(host, HOST)
    assert np.array_equal(d.get(), HOST)


def test_implicit_conversion_says_to_use_get(d):
    """np.asarray(d) names the explicit copy."""
    with pytest.raises(TypeError, match=r"not allowed; use \.get\(\)"):
        np.asarray(d)


def test_refuses_arrays_of_another_device(d):
    """Arrays of two devices do not mix."""
    other = SimDevice(1)
    with pytest.raises(TypeError, match="sim:0 and sim:1"):
        d + other.namespace().ones((2, 3))
    with pytest.raises(TypeError, match="sim:1 and sim:0"):
        other.namespace().sin(d)


def test_refuses_to_be_pickled(d):
    """A device array belongs to its process."""
    with pytest.raises(TypeError, match=r"\.get\(\)"):
        pickle.dumps(d)


def test_refuses_foreign_operands(d):
    """An operand that is neither a number nor an array is a TypeError, a foreign array type gets its turn."""

    class Foreign:
        def __radd__(self, other):
            return "mine"

        __array_ufunc__ = None

    assert d + Foreign() == "mine"
    with pytest.raises(TypeError):
        d + "text"


# -- memory ---------------------------------------------------------------------------------------
def test_results_are_charged_and_views_are_not(device, xp):
    """Every new array costs its bytes until it dies; a view lives on its base's."""
    d = xp.zeros(100)
    view = d[10:20].reshape(2, 5).T
    assert device.live_nbytes() == 800
    result = d + 1
    assert device.live_nbytes() == 1600
    assert device.memory_info() == ((1 << 20) - 1600, 1 << 20)
    del result, d
    assert device.live_nbytes() == 800
    del view
    assert device.live_nbytes() == 0


def test_a_view_of_a_temporary_is_charged_in_full(device, xp):
    """The result of a NumPy function that returns a view of fresh memory costs that memory."""
    d = xp.zeros((4, 8))
    window = np.broadcast_to(d, (3, 4, 8))
    turned = np.rot90(d + 0)
    assert device.live_nbytes() == 512
    assert window.shape == (3, 4, 8)
    assert turned.shape == (8, 4)


def test_memory_runs_out(device, xp):
    """A result that does not fit raises and leaves the account as it was."""
    d = xp.zeros(100_000)
    with pytest.raises(DeviceMemoryError, match="800000 bytes on sim:0") as caught:
        d + 1
    assert (caught.value.asked_nbytes, caught.value.free_nbytes) == (800_000, (1 << 20) - 800_000)
    caught.value.__traceback__ = None
    assert device.live_nbytes() == 800_000


# -- streams --------------------------------------------------------------------------------------
def test_an_operation_waits_for_the_current_stream(device, xp):
    """An array operation in a body takes effect after what the body gave to its stream."""
    d, stream = xp.zeros(4), device.new_stream()
    ready = SimEvent(device)
    helper = device.new_stream()
    with using(device, stream):
        stream.wait_event(ready)
        stream.launch(operator.setitem, d, ..., 1)
        part = d[1:]  # a view reads nothing and does not wait
        assert not stream.done
        helper.launch(ready.fire)
        part += 1
        assert d.tolist() == [1, 2, 2, 2]
    stream.launch(d.fill, 5)
    with using(device, stream):
        assert d.get().tolist() == [5] * 4


def test_get_waits_for_the_stream_given(device, xp):
    """get(stream=…) synchronises that stream."""
    d, stream = xp.zeros(2), device.new_stream()
    stream.launch(d.fill, 1)
    assert d.get(stream=stream).tolist() == [1, 1]
    stream.launch(d.fill, 2)
    d.set(np.full(2, 7.0), stream=stream)
    assert d.tolist() == [7, 7]


def test_operations_on_a_lost_device_raise(device, xp):
    """After a failure on the device its arrays cannot be used."""
    d, stream = xp.zeros(2), device.new_stream()
    stream.launch(operator.truediv, 1, 0)
    with pytest.raises(DeviceLostError):
        stream.synchronize()
    for operation in (lambda: d + 1, d.get, d.tolist):
        with pytest.raises(DeviceLostError, match="ZeroDivisionError"):
            operation()
    assert repr(d) == "<SimArray of shape (2,), float64, on sim:0, which is lost>"


# -- namespace ------------------------------------------------------------------------------------
def test_namespace_creates_on_its_device(device, xp):
    """Creation functions, submodules and grids give arrays of the device."""
    for array in (
        xp.zeros(2),
        xp.full((2,), 3, dtype=xp.float32),
        xp.arange(3) * xp.pi,
        xp.linspace(0, 1, 3),
        xp.eye(2),
        xp.array([1, 2]),
        xp.ones_like(HOST),
        xp.fft.fftfreq(4),
        xp.linalg.inv(xp.eye(2)),
        xp.random.default_rng(1).random(3),
        xp.mgrid[0:2, 0:2],
        xp.r_[0:3],
        xp.add.reduce(xp.ones(3)),
        xp.fromfunction(lambda i, j: i + j, (2, 2), dtype=int),
        xp.sin(1.0),
    ):
        assert isinstance(array, xp.ndarray)
        assert device.is_array(array)


def test_namespace_passes_types_and_constants(xp):
    """Dtypes, constants and classes are NumPy's own; asarray of a device array is that array."""
    assert xp.float32 is np.float32
    assert xp.pi == np.pi
    assert xp.newaxis is None
    assert xp.add.nin == 2
    assert xp.linalg.LinAlgError is np.linalg.LinAlgError
    d = xp.zeros(3)
    assert xp.asarray(d) is d
    assert xp.array(d) is not d
    assert xp.array([d[0], d[1]]).shape == (2,)
    assert np.array_equal(xp.asnumpy(d), np.zeros(3))
    assert "sim:0" in repr(xp)
    assert "sim:0" in repr(xp.sin)
    assert {"zeros", "asnumpy"} <= {*dir(xp), "asnumpy"}


def test_namespace_has_no_host_modules(xp):
    """Modules that would hand out host arrays, and unknown names, are attribute errors."""
    with pytest.raises(AttributeError, match="fft, linalg, random"):
        xp.testing  # noqa: B018, RUF100
    with pytest.raises(AttributeError):
        xp.no_such_function  # noqa: B018, RUF100


def test_asarray_copies_a_host_view(xp):
    """A view of a host array is copied to the device as any other."""
    host = HOST.copy()
    d = xp.asarray(host[:, 1:])
    host[:] = 0
    assert d.tolist() == HOST[:, 1:].tolist()


# -- views by the contract ------------------------------------------------------------------------
def test_view_cuts_a_buffer_in_bytes(device):
    """view() makes an array of any dtype over part of a buffer, strides of any sign, and shares its block."""
    buffer = device.alloc((64,), np.dtype("u1"), device.new_stream())
    buffer[...] = 0
    part = device.view(buffer, 40, (2, 3), (-24, 8), np.dtype("f8"))
    part.set(HOST)
    assert device.live_nbytes() == 64
    assert device.view(buffer, 16, (6,), (8,), np.dtype("f8")).tolist() == [3, 4, 5, 0, 1, 2]
    del buffer
    assert part.tolist() == HOST.tolist()
    assert device.live_nbytes() == 64


@pytest.mark.parametrize(
    ("offset", "shape", "strides"), [(0, (9,), (8,)), (8, (8,), (8,)), (0, (2,), (-8,)), (-8, (1,), (8,))]
)
def test_view_beyond_its_buffer_is_refused(device, offset, shape, strides):
    """A view that leaves its buffer at either end is an InternalError."""
    buffer = device.alloc((8,), np.dtype("f8"), device.new_stream())
    with pytest.raises(InternalError, match="beyond"):
        device.view(buffer, offset, shape, strides, np.dtype("f8"))
    with pytest.raises(InternalError, match="contiguous"):
        device.view(buffer[::2], 0, (1,), (8,), np.dtype("f8"))


def test_section_names_device_and_bytes(device, xp):
    """Arrays over the same bytes have equal sections; devices do not share an address space."""
    d = xp.zeros((4, 4))
    assert device.section(d) == device.section(d[::-1].T)
    assert device.section(d[1]).address == device.section(d).address + 32
    assert device.section(d[0]).run_nbytes == 32
    assert device.space != SimDevice(0).space


def test_seeded_devices_give_the_same_results():
    """The mode of the streams does not change what arrays compute."""
    device = SimDevice(3, rng=random.Random(1))
    xp = device.namespace()
    stream, d = device.new_stream(), xp.zeros(3)
    with using(device, stream):
        stream.launch(d.fill, 2)
        assert (d + 1).tolist() == [3, 3, 3]
    device.close()
