"""Numba's kernels on the task's stream, JAX's arrays as arguments, and Warp's current stream.

JAX runs in a process of its own, where it does not take most of the GPU's memory at once. Warp need not be installed:
an object with its functions stands for it.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, to, tofrom
from tests.gpu.conftest import cupy, python

pytestmark = pytest.mark.gpu

N = 10_000


# -- Numba -----------------------------------------------------------------------------------------


@pytest.fixture
def axpy():
    """A kernel of Numba, compiled and loaded."""
    pytest.importorskip("numba", reason="Numba is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, about code of Numba
        from numba import cuda
    if not cuda.is_available():
        pytest.skip("Numba has no CUDA here")

    @cuda.jit
    def axpy(a, x, y):
        k = cuda.grid(1)
        if k < y.size:
            y[k] += a * x[k]

    x = cupy.zeros(N)
    try:
        axpy[(N + 127) // 128, 128](1.0, x, x)
    except Exception as error:  # it is there, and cannot compile for this driver
        print(f"Numba: {error!r}")
        pytest.skip("Numba has no CUDA here")
    cupy.cuda.Device().synchronize()
    return axpy


def launch(axpy, a, x, y):
    from numba import cuda

    axpy[(N + 127) // 128, 128, cuda.external_stream(omp.current_stream().ptr)](a, x, y)


def test_a_kernel_of_numba_is_on_the_tasks_stream(gpu, axpy):
    """A kernel that is launched on external_stream(current_stream().ptr) is between the copies of its task."""

    @omp.target(nowait=True, map=[to("x"), tofrom("y")], depend=[in_("x"), inout("y")])
    def body(a, x, y):
        launch(axpy, a, x, y)

    x, ys = np.arange(N, dtype="f8"), [np.zeros(N) for _ in range(6)]
    for a in range(1, 5):
        for y in ys:
            body(a, x, y)
    omp.taskwait()
    assert all((y == 10 * x).all() for y in ys)


def test_a_kernel_of_numba_waits_for_what_the_stream_holds(gpu, latch, axpy):
    """A kernel on the task's stream runs after the caller's work that the task follows, and not before."""
    y, x = cupy.zeros(N), cupy.ones(N)
    stream = cupy.cuda.Stream(non_blocking=True)

    @omp.target(nowait=True)
    def body(x, y):
        # the addresses alone: Numba would wait on the host for the stream that an array names
        launch(axpy, 1.0, Bare(x), Bare(y))

    body(x, y).result()  # whatever is loaded at the first launch
    y.fill(0)
    cupy.cuda.Device().synchronize()
    latch.hold(stream)
    with stream:
        y *= 0
        y += 5
        task = body(x, y)
    with pytest.raises(TimeoutError):
        task.result(0.05)
    latch.release()
    task.result()
    assert (y.get() == 6).all()


class Bare:
    """A device array that names no stream."""

    def __init__(self, array):
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, "stream": None}


# -- JAX -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jax():
    """Whether JAX uses the GPU, in another process."""
    pytest.importorskip("jax", reason="JAX is not installed")
    program = "import jax; print(jax.default_backend())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    if done.stdout.strip() not in {"gpu", "cuda"}:
        pytest.skip("JAX has no GPU here")


ENV = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def test_arrays_of_jax_as_arguments_and_depend_items(jax):
    """A body gets the memory of JAX's array, after JAX has computed it; the same array orders tasks."""
    python(
        """
        import jax, jax.numpy as jnp
        @jax.jit
        def slow(x):
            for _ in range(30):
                x = jnp.tanh(x @ x)
            return x * 0 + 3
        log = []
        @omp.target(nowait=True, depend=[in_("x"), inout("y")])
        def add(x, y):
            x = cupy.asarray(x)
            y += x.sum(axis=0)
        slow(jnp.ones((2048, 2048), jnp.float32)).block_until_ready()
        for _ in range(3):
            y = np.zeros(2048, "f4")
            x = slow(jnp.ones((2048, 2048), jnp.float32))
            ptr = x.unsafe_buffer_pointer()
            task = add(x, y)
            del x
            others = [jnp.full((2048, 2048), jnp.nan, jnp.float32) for _ in range(4)]
            task.result()
            assert (y == 3 * 2048).all(), y[:4]
        x = jnp.arange(8.0)
        first = omp.task(depend=[inout(x)])(lambda: log.append(1))()
        second = omp.task(depend=[in_(x)])(lambda: log.append(2))()
        assert first in second.dependencies or first.done()
        omp.taskwait()
        assert log == [1, 2]
        """,
        hang_s=100,
        **ENV,
    )


def test_results_reach_jax(jax):
    """What a body has written to device memory, JAX reads after the task."""
    python(
        """
        import jax, jax.numpy as jnp
        d = omp.target_alloc((1 << 20,), "f4")
        @omp.target(nowait=True)
        def fill(d):
            for value in range(50):
                d[...] = value
        fill(d).result()
        x = jnp.from_dlpack(d)
        assert float(jnp.sum(x)) == 49.0 * (1 << 20)
        del x
        omp.target_free(d)
        """,
        hang_s=100,
        **ENV,
    )


# -- Warp ------------------------------------------------------------------------------------------


@pytest.fixture
def warp(monkeypatch):
    """An object that stands for Warp, with one current stream of the device for all threads."""

    class Warp:
        current = SimpleNamespace(cuda_stream=None)

        def get_device(self, name):
            assert name == "cuda:0"
            return name

        def get_stream(self, device):
            return self.current

        def set_stream(self, stream, device, sync=False):
            self.current = stream

        def Stream(self, device, cuda_stream):
            return SimpleNamespace(cuda_stream=cuda_stream)

    warp = Warp()
    monkeypatch.setitem(sys.modules, "warp", warp)
    return warp


def test_warps_stream_is_the_tasks(gpu, warp):
    """In each body Warp's current stream is the task's, also with several workers; afterwards it is the one before."""
    wrong = []

    @omp.target(nowait=True)
    def body(y):
        if warp.get_stream("cuda:0").cuda_stream != omp.current_stream().ptr:
            wrong.append(y)
        y += 1

    arrays = [np.zeros(N) for _ in range(30)]
    for y in arrays:
        body(y)
    omp.taskwait()
    assert not wrong
    assert warp.get_stream("cuda:0").cuda_stream is None
    assert all((y == 1).all() for y in arrays)


def test_a_construct_follows_warps_current_stream(gpu, latch, warp):
    """A construct that is passed a device array starts after the work of Warp's current stream."""
    d = cupy.zeros(N)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    warp.set_stream(SimpleNamespace(cuda_stream=stream.ptr), "cuda:0")
    latch.hold(stream)
    with stream:
        d += 3

    @omp.target(nowait=True)
    def double(d):
        d *= 2

    task = double(d)
    with pytest.raises(TimeoutError):
        task.result(0.05)
    latch.release()
    task.result()
    assert (d.get() == 6).all()
