"""Kernels from source: which arrays a launch reads and writes."""

from __future__ import annotations

import pytest

from offload.errors import UnsupportedError, UsageError
from offload.port.kernels import AccessOption, KernelSyntaxError, access_option, parameters_of

SIGNATURES = {
    "const float* x, float* y, int n": "in out -",
    "float const *x, float *__restrict__ y": "in out",
    "const float* __restrict__ x, float* y": "in out",
    "float* const x": "out",
    "const float* const x": "in",
    "const double x[], double y[4]": "in out",
    "const thrust::complex<float>* x, thrust::pair<int, float*>* y": "in out",
    "unsigned long long n, const int a": "- -",
    "void": "",
    "": "",
    "const void* /* of , bytes */ x, // last, one\n long n": "in -",
    "int (*f)(int, float), const T* x": "out in",
}


@pytest.mark.parametrize("parameters", SIGNATURES)
def test_signatures(parameters):
    """A pointer to const is read; another pointer is read and written; a value is no array."""
    found = parameters_of(f'extern "C" __global__ void f({parameters}) {{ }}', "f")
    words = " ".join("-" if not one.is_pointer else "in" if one.is_const else "out" for one in found)
    assert words == SIGNATURES[parameters]


SOURCES = [
    "__global__ void f(const int* x) {}",
    'extern "C" { __global__ void f(const int* x) { if (x) { g(); } } }',
    "static __global__ void __launch_bounds__(256, 2) f(const int* x) {}",
    "template <typename T> __global__ void f(const T* x) {}",
    "__global__ void f(const int* x);\n__global__ void f(const int* x) {}",
    "__device__ void f(int a, int b, int c) {}\n__global__ void f(const int* x) {}",
    'const char* s = "__global__ void f(";\n__global__ void f(const int* x) { f("}"); }',
    "// __global__ void f(int a) {}\nnamespace n { __global__ void f(const int* x) {} }",
    "#define F 1\n__global__\nvoid\nf\n(const int* x)\n{\n}",
    "void __global__ f(const int* x) {}",
]


@pytest.mark.parametrize("source", SOURCES)
def test_sources(source):
    """The kernel is found in a source with other text."""
    assert [one.is_const for one in parameters_of(source, "f")] == [True]
    assert [one.is_const for one in parameters_of(source, "n::f<int>")] == [True]


BAD = [
    "",
    "this is not CUDA",
    "void f(int* x) {}",
    "__global__ void g(int* x) {}",
    "__global__ void f(int* x {}",
    "__global__ void f(int* x) { if (x) {",
    "__global__ void f(int* x)",
    "__global__ void f(int* x,, int y) {}",
]


@pytest.mark.parametrize("source", BAD)
def test_sources_that_do_not_parse(source, names_of):
    """A source without the kernel, or with brackets that do not match, is refused with the line of the program."""
    with pytest.raises(KernelSyntaxError):
        parameters_of(source, "f")
    with pytest.raises(UnsupportedError, match=r"program\.py:3: .*RawKernel 'f'.*--access f=in,out"):
        names_of(f"import cupy as cp\n\nk = cp.RawKernel({source!r}, 'f')\n")


AXPY = 'extern "C" __global__ void axpy(const float* x, float* y, float a, int n) { }'
LAUNCHES = f"""\
import numpy as np
import cupy as cp
k = cp.RawKernel({AXPY!r}, "axpy")
a, b = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
x, y, z = cp.ones(8, "f4"), cp.ones(8, "f4"), cp.ones(8, "f4")
cp.cuda.Device().synchronize()
with a: k((1,), (8,), (x, y, np.float32(2), 8))
with b: k((1,), (8,), (x, z, np.float32(2), 8))
k((1,), (8,), (y, x, np.float32(2), 8), stream=b)
"""


def pairs(report):
    """Return the lines and the accesses of the races of a report."""
    return [tuple((race[side]["line"], race[side]["what"]) for side in ("first", "second")) for race in report["races"]]


def test_a_launch(report):
    """A launch reads its const pointers, and reads and writes the others, on its stream."""
    assert pairs(report(LAUNCHES)) == [((7, "write"), (9, "read"))]


def test_access_of_a_kernel(report):
    """``--access`` replaces the signature: entries for the arrays, or for all arguments."""
    for modes in (("inout", "in"), ("inout", "in", "in", "in")):
        found = report(LAUNCHES, access=[AccessOption("axpy", modes)])
        assert pairs(found) == [((7, "write"), (8, "write")), ((7, "write"), (9, "read"))]


def test_a_module(report):
    """A kernel of a `RawModule` is launched like a `RawKernel`."""
    text = LAUNCHES.replace(f'cp.RawKernel({AXPY!r}, "axpy")', f'cp.RawModule(code={AXPY!r}).get_function("axpy")')
    assert pairs(report(text)) == [((7, "write"), (9, "read"))]


def test_a_module_without_source(names_of):
    """A module from a file has no signatures; ``--access`` has to state them."""
    with pytest.raises(UnsupportedError, match=r"program\.py:2: .*its source is not known.*--access f="):
        names_of("import cupy as cp\nk = cp.RawModule(path='a.cubin').get_function('f')\n")


def test_too_few_entries(report):
    """``--access`` with fewer entries than a launch has arrays is refused at the launch."""
    with pytest.raises(UsageError, match=r"--access axpy=in .*1 array, and a launch passes 2"):
        report(LAUNCHES, access=[AccessOption("axpy", ("in",))])


def test_the_number_of_arguments(names_of):
    """A launch with another number of arguments than the kernel has parameters is refused."""
    with pytest.raises(TypeError, match="4 parameters; the launch passes 1"):
        names_of(f"import cupy as cp\nk = cp.RawKernel({AXPY!r}, 'axpy')\nk((1,), (1,), (1,))\n")


def test_unchecked_data(record):
    """Data that a kernel writes is unchecked on ``sim``, and so is all that is computed from it."""
    log = record(
        f"import numpy as np, cupy as cp\nk = cp.RawKernel({AXPY!r}, 'axpy')\nx = cp.ones(4, 'f4')\ny = cp.ones(4, 'f4')\n"
        "w = cp.ones(4)\nk((1,), (4,), (x, y, np.float32(1), 4))\nz = y * 2\nh = z.get()\ng = h + 1\nw.get()\ny[...] = 0\n"
        "y.get()\n"
    )
    assert list(log.unchecked_kernels) == ["axpy"]
    assert sorted(place.line for place in log.unchecked_places) == [8, 9]
    names = {log.storages[number].name for number in log.unchecked}
    assert {"z", "h"} <= names
    assert "y" not in names


def test_reports_say_unchecked(report):
    """The report tells whether a kernel was not carried out."""
    assert report(LAUNCHES)["unchecked"] is True
    assert report("import cupy as cp\ncp.ones(3).sum()\n")["unchecked"] is False


def test_a_pointer_that_may_only_write_proves_no_read(report):
    """An output of a kernel that was not written before is no finding; a const pointer to such memory is one."""
    head = f"import numpy as np, cupy as cp\nk = cp.RawKernel({AXPY!r}, 'axpy')\nx = cp.ones(4, 'f4')\ny = cp.empty(4, 'f4')\n"
    launch = "k((1,), (4,), (x, y, np.float32(1), 4))\ny.get()\n"
    assert report(head + launch)["uninitialised"] == []
    found = report(head.replace("ones", "empty") + launch)["uninitialised"]
    assert [(one["first"]["line"], one["second"]["line"]) for one in found] == [(3, 5)]
    stated = report(head + launch, access=[AccessOption("axpy", ("in", "inout"))])["uninitialised"]
    assert [(one["first"]["line"], one["second"]["line"]) for one in stated] == [(4, 5)]


@pytest.mark.parametrize("text", ["", "axpy", "axpy=", "=in", "axpy=read", "axpy=in,,out", "axpy=in out"])
def test_bad_options(text):
    """A value of ``--access`` that is not KERNEL=MODE,MODE is refused."""
    with pytest.raises(ValueError, match=r"access|KERNEL"):
        access_option(text)


def test_a_good_option():
    """A value of ``--access`` names a kernel and its accesses."""
    assert access_option("a<b>= in, out,inout") == AccessOption("a<b>", ("in", "out", "inout"))


TYPED = """\
import cupy as cp
s, t = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
x, y = cp.ones((2, 3), "f4"), cp.empty((2, 3))
cp.cuda.Device().synchronize()
add = cp.ElementwiseKernel("T x, T y, raw T z", "T w, float64 v", "w = x + y; v = z[0]", "added")
scale = cp.ElementwiseKernel("T x, float64 k", "float64 y", "y = k * x", "scaled")
total = cp.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total")
"""


def test_typed_kernels_are_ordered_by_their_signature(report):
    """An `ElementwiseKernel` reads its inputs and writes its outputs: two that write one array race, readers do not."""
    text = TYPED + "with s:\n    scale(x, 2.0, y)\nwith t:\n    z = total(x)\n    scale(x, 3.0, y)\n"
    found = report(text)
    assert [(race["first"]["line"], race["second"]["line"]) for race in found["races"]] == [(9, 12)]
    assert (found["unchecked"], found["uninitialised"]) == (True, [])


def test_typed_kernels_make_arrays(names_of):
    """The new arrays have the shape of the broadcast inputs, or what the reduction leaves, and the signature's types."""
    names = names_of(TYPED + "w, v = add(x, 1, x)\nu = total(x, axis=1, keepdims=True)\nn = total(x)\n")
    found = [(names[name].shape, str(names[name].dtype)) for name in ("w", "v", "u", "n")]
    assert found == [((2, 3), "float32"), ((2, 3), "float64"), ((2, 1), "float32"), ((), "float32")]


def test_results_of_typed_kernels_are_unchecked(record):
    """The report names the kernel that was not carried out, and the line where the host received its result."""
    log = record(TYPED + "scale(x, 2.0, y)\nprint(y.get().shape)\n")
    assert [(name, place.line) for name, place in log.unchecked_kernels.items()] == [("scaled", 8)]
    assert [place.line for place in log.unchecked_places] == [9]


@pytest.mark.parametrize("decorator", ["@cp.fuse", "@cp.fuse()", "@cp.fuse(kernel_name='f')"])
def test_a_fused_function_runs_as_it_is(names_of, decorator):
    """The operations of a function under ``cupy.fuse`` are carried out one by one."""
    text = f"import cupy as cp\n{decorator}\ndef f(x, y):\n    return x * y + 1\nn = float(f(cp.ones(3), 2).sum())\n"
    assert names_of(text)["n"] == 9
