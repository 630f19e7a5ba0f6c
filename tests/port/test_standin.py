"""The stand-in's names: the values are NumPy's, arrays stay on the device, and other names are refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from offload.errors import UnsupportedError

VALUES = [
    "cp.arange(6).reshape(2, 3).sum(axis=0)",
    "cp.linspace(0, 1, 5)",
    "cp.ones((2, 3)) @ cp.ones((3, 2))",
    "cp.where(cp.arange(4) > 1, 1, cp.arange(4))",
    "cp.concatenate([cp.zeros(2), cp.ones(3)])",
    "cp.stack([cp.arange(3), cp.arange(3)]).T",
    "cp.add.reduce(cp.arange(5))",
    "cp.maximum.accumulate(cp.array([1, 3, 2]))",
    "cp.fft.ifft(cp.fft.fft(cp.arange(4.0))).real",
    "cp.fft.fftn(cp.ones((2, 2)))",
    "cp.linalg.solve(cp.eye(3) * 2, cp.ones(3))",
    "cp.einsum('ij,jk->ik', cp.ones((2, 2)), cp.eye(2))",
    "cp.sort(cp.array([3, 1, 2]))[::-1]",
    "cp.array([3, 1, 2]).argsort()",
    "cp.unique(cp.array([3, 1, 3]))",
    "cp.nonzero(cp.array([0, 1, 1]))[0]",
    "cp.arange(6)[cp.array([1, 3])]",
    "cp.arange(6)[np.array([1, 3])]",
    "cp.arange(6)[[1, 3]]",
    "cp.arange(6)[cp.arange(6) > 2]",
    "cp.arange(6).astype('f4') / 4",
    "cp.arange(3, dtype='c16').imag + cp.arange(3.0).imag",
    "cp.asarray(np.arange(4)[::2])",
    "cp.array([[1, 2], [3, 4]], dtype='f4', order='F')",
    "cp.full((2, 2), 7)",
    "cp.full_like(np.arange(3), 2)",
    "cp.zeros_like(cp.arange(3))",
    "cp.clip(cp.arange(5), 1, 3)",
    "cp.cumsum(cp.arange(5))",
    "cp.mean(cp.arange(5))",
    "cp.count_nonzero(cp.arange(5))",
    "cp.allclose(cp.ones(3), 1)",
    "cp.array_equal(cp.ones(3), cp.ones(3))",
    "cp.median(cp.arange(5))",
    "cp.meshgrid(cp.arange(2), cp.arange(3))[0]",
    "cp.mgrid[0:2, 0:2]",
    "cp.r_[cp.arange(2), cp.arange(2)]",
    "cp.fromfunction(lambda i, j: i + j, (2, 2))",
    "cp.pad(cp.arange(3), 1)",
    "cp.roll(cp.arange(4), 1)",
    "cp.take(cp.arange(4), cp.array([1, 1]))",
    "cp.diag(cp.arange(3))",
    "cp.tril(cp.ones((3, 3)))",
    "cp.bincount(cp.array([0, 1, 1]))",
    "cp.histogram(cp.arange(5), bins=2)[0]",
    "cp.interp(cp.array([0.5]), cp.arange(3), cp.arange(3))",
    "cp.outer(cp.arange(2), cp.arange(2))",
    "cp.vdot(cp.arange(3), cp.arange(3))",
    "cp.kron(cp.eye(2), cp.ones(2))",
    "np.sin(cp.arange(3.0))",
    "np.concatenate([cp.arange(2), cp.arange(2)])",
    "cp.load(saved)",
]


def as_numpy(value):
    """Return what an expression gives under NumPy."""
    return np.asarray(value)


@pytest.mark.parametrize("expression", VALUES)
def test_values(expression, names_of, tmp_path):
    """An expression gives a device array with NumPy's values."""
    saved = str(tmp_path / "saved.npy")
    np.save(saved, np.arange(3))
    found = names_of(f"import numpy as np, cupy as cp\nsaved = {saved!r}\nr = {expression}\nv = cp.asnumpy(r)\n")
    assert type(found["r"]).__name__ == "ndarray"
    assert isinstance(found["r"], found["cp"].ndarray)
    with np.errstate(all="ignore"):
        expected = eval(expression, {"np": np, "cp": np, "saved": saved})
    assert found["v"].dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(np.asarray(found["v"]), as_numpy(expected))


STATEMENTS = {
    "x[1:3] = 5": [0, 5, 5, 3],
    "x[x > 1] = 9": [0, 1, 9, 9],
    "x[[0, 3]] = 7": [7, 1, 2, 7],
    "x += 1": [1, 2, 3, 4],
    "x[::2] *= 3": [0, 1, 6, 3],
    "x.fill(4)": [4, 4, 4, 4],
    "x.sort()": [0, 1, 2, 3],
    "x.set(np.full(4, 2))": [2, 2, 2, 2],
    "cp.multiply(x, 2, out=x)": [0, 2, 4, 6],
    "cp.copyto(x, 8)": [8, 8, 8, 8],
    "cp.add.at(x, cp.array([0, 0]), 1)": [2, 1, 2, 3],
    "x[...] = x[::-1].copy()": [3, 2, 1, 0],
    "for row in x.reshape(2, 2): row += 1": [1, 2, 3, 4],
    "x.shape = (2, 2); x[0] = 0; x = x.ravel()": [0, 0, 2, 3],
    "x = x.view('u8')": [0, 1, 2, 3],
    "import copy; x = copy.deepcopy(x)": [0, 1, 2, 3],
    "cp.random.shuffle(x); x.sort()": [0, 1, 2, 3],
    "y = x.reshape(2, 2); y @= cp.ones((2, 2), int)": [0, 1, 2, 3],  # as in CuPy, y is a new array then
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements(statement, names_of):
    """A statement changes the array as CuPy would."""
    found = names_of(f"import numpy as np, cupy as cp\nx = cp.arange(4)\n{statement}\nv = x.get()\n")
    np.testing.assert_array_equal(np.asarray(found["v"]), STATEMENTS[statement])


def test_fields(names_of):
    """Fields of a structured array are views."""
    found = names_of(
        "import cupy as cp\ns = cp.zeros(2, [('a', 'f4'), ('b', 'i4', (2,))])\ns['a'] = 1\ns['b'][:, 1] = 2\nv = s.get()\n"
    )
    assert found["v"]["a"].tolist() == [1, 1]
    assert found["v"]["b"].tolist() == [[0, 2], [0, 2]]


def test_other_ways_to_import(names_of):
    """``__import__`` takes its arguments by name too, and gives a package or a module as Python does."""
    found = names_of(
        "a = __import__('cupy', globals(), fromlist=('cuda',), level=0)\nb = __import__(name='cupy.cuda', globals=globals())\n"
        "import cupy.cuda as c\nfrom cupy import cuda as d\nimport cupy.cuda.runtime\nfrom cupy.cuda import Stream as s\n"
        "import encodings.cp437\nimport numpy.linalg\n"
    )
    assert found["a"] is found["b"] is found["cupy"]
    assert found["c"] is found["d"] is found["cupy"].cuda
    assert found["s"] is found["cupy"].cuda.Stream


def test_saved_files(names_of, tmp_path):
    """Arrays are saved and loaded as NumPy's, after a copy to the host."""
    path = str(tmp_path / "a")
    found = names_of(
        f"import cupy as cp\nx = cp.arange(3)\ncp.save({path!r}, x)\ncp.savez({path!r}, y=x)\n"
        f"v = cp.load({path + '.npy'!r}).get().tolist(), cp.load({path + '.npz'!r})['y'].get().tolist()\n"
    )
    assert found["v"] == ([0, 1, 2], [0, 1, 2])


SCALARS = {
    "float(x[1])": 1.0,
    "int(x[1])": 1,
    "bool(x[1])": True,
    "complex(x[1])": 1 + 0j,
    "x[1].item()": 1,
    "x.tolist()": [0, 1, 2],
    "[0, 1, 2][x[1]]": 1,
    "str(x)": "[0 1 2]",
    "repr(x)": "array([0, 1, 2])",
    "f'{x[1]:03d}'": "001",
    "2 in x": True,
    "len(x)": 3,
    "cp.array2string(x)": "[0 1 2]",
    "x.tobytes() == np.arange(3).tobytes()": True,
    "cp.ndim(x), cp.size(x), cp.shape(x)": (1, 3, (3,)),
    "cp.result_type(x, 'f8') == np.float64": True,
    "cp.get_array_module(x) is cp": True,
    "cp.get_array_module(np.zeros(1)) is np": True,
    "cp.float32 is np.float32, cp.pi == np.pi, cp.newaxis is None": (True, True, True),
    "isinstance(x, cp.ndarray), isinstance(np.zeros(1), cp.ndarray)": (True, False),
    "cp.asarray(x) is x": True,
    "cp.get_default_memory_pool().used_bytes(), cp.get_default_pinned_memory_pool().free_all_blocks()": (0, 0),
    "cp.cuda.runtime.getDeviceCount(), cp.cuda.Device().id, int(x.device)": (1, 0, 0),
    "cp.cuda.Stream.null == cp.cuda.Stream(null=True)": True,
    "cp.cuda.get_current_stream() == cp.cuda.Stream.null": True,
}


@pytest.mark.parametrize("expression", SCALARS)
def test_scalars(expression, names_of):
    """An expression gives an object of the host."""
    found = names_of(f"import numpy as np, cupy as cp\nx = cp.arange(3)\nr = ({expression})\n")
    assert found["r"] == SCALARS[expression]


def test_pinned_arrays(names_of):
    """Pinned arrays have the shape, type and order that CuPy gives them."""
    found = names_of(
        "import numpy as np, cupyx\n"
        "a = cupyx.zeros_pinned((2, 3), 'f4', 'F')\n"
        "b = cupyx.empty_like_pinned(a)\n"
        "c = cupyx.zeros_like_pinned(a, dtype=int, order='C', shape=(4,))\n"
        "d = cupyx.empty_pinned(5)\n"
    )
    a, b, c, d = (found[name] for name in "abcd")
    assert (a.shape, a.dtype, a.flags.f_contiguous, a.sum()) == ((2, 3), "f4", True, 0)
    assert (b.shape, b.dtype, b.flags.f_contiguous) == ((2, 3), "f4", True)
    assert (c.tolist(), c.dtype, d.shape, d.dtype) == ([0] * 4, int, (5,), float)


def test_time_between_events(names_of):
    """The time between two events is a number of milliseconds."""
    found = names_of(
        "import cupy as cp\ns, e = cp.cuda.Event(), cp.cuda.Event()\ns.record()\ncp.ones(3)\ne.record()\n"
        "e.synchronize()\nt = cp.cuda.get_elapsed_time(s, e)\n"
    )
    assert 0 <= found["t"] < 10_000


REFUSED = {
    "cp.no_such_function(x)": "cupy.no_such_function",
    "cp.cuda.nccl": "cupy.cuda.nccl",
    "cp.cuda.runtime.memcpy(0, 0, 0, 0)": "cupy.cuda.runtime.memcpy",
    "cp.linalg.nothing": "cupy.linalg.nothing",
    "cp.fft.nothing": "cupy.fft.nothing",
    "cp.random.nothing": "cupy.random.nothing",
    "cupyx.scatter_add(x, 0, 1)": "cupyx.scatter_add",
    "import cupyx.scipy.signal": "cupyx.scipy",
    "from cupy import sparse_thing": "cupy.sparse_thing",
    "from cupy.cuda import cudnn": "cupy.cuda.cudnn",
    "cp.cuda.Stream(ptds=True)": "cupy.cuda.Stream(ptds=True)",
    "cp.cuda.Stream().begin_capture()": "cupy.cuda.Stream.begin_capture",
    "cp.cuda.Event().ipc()": "cupy.cuda.Event.ipc",
    "cp.cuda.Device(1)": "cupy.cuda.Device(1)",
    "cp.cuda.runtime.setDevice(1)": "cupy.cuda.Device(1)",
    "x.__cuda_array_interface__": "cupy.ndarray.__cuda_array_interface__",
    "cp.ndarray(3, memptr=x.data)": "cupy.ndarray(memptr=…, strides=…)",
    "cp.vectorize(abs)": "cupy.vectorize",
    "cp.apply_along_axis(abs, 0, x)": "cupy.apply_along_axis",
    "cp.ma": "cupy.ma",
    "import pickle; pickle.dumps(x)": "cupy.pickle of an array",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_refused_names(statement, names_of):
    """A name that the stand-in does not have raises `UnsupportedError`, which names it and its line."""
    text = f"import numpy as np, cupy as cp, cupyx\nx = cp.arange(3)\n\n{statement}\n"
    with pytest.raises(UnsupportedError, match=re.escape(REFUSED[statement])) as caught:
        names_of(text)
    assert "program.py:4: " in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "remedy"),
    [
        ("cp.cuda.alloc_pinned_memory(8)", "use cupyx.empty_pinned"),
        ("cp.cuda.Stream().begin_capture()", "without the capture"),
        ("cp.cuda.Graph()", "without the capture"),
        ("cp.zeros(3).data.copy_from_host_async(0, 24, cp.cuda.Stream())", "MemoryPointer.copy_from_host_async: write"),
        ("from cupyx.profiler import time_range", "leave the profiler's calls out"),
        ("from cupy.cuda import nvtx", "leave the profiler's calls out"),
    ],
)
def test_remedies(statement, remedy, names_of):
    """The error says what to write instead of names that programs with streams often use."""
    with pytest.raises(UnsupportedError, match=remedy):
        names_of(f"import cupy as cp\n{statement}\n")


ERRORS = {
    "x + np.ones(3)": TypeError,
    "np.ones(3) + x": TypeError,
    "cp.add(x, np.ones(3))": TypeError,
    "cp.concatenate([x, np.ones(3)])": TypeError,
    "np.asarray(x)": TypeError,
    "np.ones(3)[...] = x": TypeError,
    "x[...] = np.ones(3)": ValueError,
    "x[...] = [1, 2, 3]": TypeError,
    "x.set([1, 2, 3])": TypeError,
    "x.set(np.ones(3, 'f4'))": TypeError,
    "x.set(np.arange(4))": ValueError,
    "x[::2].set(np.arange(2))": RuntimeError,
    "x.get(out=np.ones(3, 'f4'))": TypeError,
    "x.get(out=np.arange(4))": ValueError,
    "x.get(out=np.arange(6)[::2])": RuntimeError,
    "x.get(out=x)": TypeError,
    "bool(x)": ValueError,
    "x[5]": IndexError,
    "hash(x)": TypeError,
    "iter(x[0])": TypeError,
    "setattr(x, 'imag', 1)": TypeError,
    "cp.cuda.get_elapsed_time(cp.cuda.Event(), cp.cuda.Event())": RuntimeError,
}


@pytest.mark.parametrize("statement", ERRORS)
def test_errors_of_cupy(statement, names_of):
    """A call that CuPy refuses is refused with the same kind of error."""
    assignment = statement if "] = " in statement else f"r = ({statement})"
    with pytest.raises(ERRORS[statement]):
        names_of(f"import numpy as np, cupy as cp\nx = cp.arange(3)\n{assignment}\n")


def test_no_cupy_is_installed():
    """The tests of this room run without CuPy."""
    with pytest.raises(ImportError):
        import cupy  # noqa: F401
