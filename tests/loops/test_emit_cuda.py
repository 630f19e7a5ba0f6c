"""The CUDA form of nests: on the host, where each thread of a block has its turn, and as nvcc has it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from offload.loops.emit.emit_cuda import CudaVariant, emit_cuda
from offload.loops.emit.grids import Shape
from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import FunctionSource
from offload.loops.front.types import infer
from offload.loops.tree import ir
from tests.loops.cuda_form import GXX, NVCC, assembled, compiled, cuda_form
from tests.loops.forms import FoundError, run, types_of
from tests.loops.nodes import I, axis, binary, constant, function_of, load, store
from tests.loops.programs import program
from tests.loops.test_emit_py_rules import check, parsed
from tests.profiles import few

on_host = pytest.mark.skipif(GXX is None, reason="no g++")
by_nvcc = pytest.mark.skipif(NVCC is None, reason="no nvcc")

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SMALL = Shape(most_blocks=2, n_threads=32)


def five_point(a, b):
    w = 0.25
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = w * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])


def histogram(k, h):
    for i in range(k.size):
        h[k[i]] += 1


def lexicographic(a, order, n):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                for m in range(a.shape[3]):
                    a[i, j, k, m] = n
                    order[()] += 1


def matmul(a, b, c):
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            c[i, j] = s


def limits(p, q, u, y, z):
    for i in range(y.shape[0]):
        last = 0
        for a in range(p[i, 0], p[i, 1]):
            y[i, 0] += a * 65536 + (a - 1)
            last = a
        for b in range(p[i, 1], p[i, 0], -1):
            y[i, 1] += b * 65536
        for c in range(p[i, 0], p[i, 1], 2):
            y[i, 2] += c
        for d in range(q[i, 0], q[i, 1]):
            y[i, 3] += d
        for e in range(u[i, 0], u[i, 1]):
            y[i, 4] += e
        for f in range(p[i, 0], p[i, 1]):
            f = f * 3  # noqa: PLW2901  # which CPython allows
            y[i, 5] += f
        for g in range(3):
            for h in range(g, -g - 1, -1):
                z[g + 1, g - h] = g * h + 1
                z[g, -1 - h] += z[3 - g, h + 2] + (g < h)
        y[i, 6] = last


def function(python, **clauses):
    return parse(FunctionSource.of(python), NestClauses(**clauses), frozenset())


def text(python, arguments, clauses, **variant):
    """Return what the emitter writes after the prelude, and all of it."""
    of = function(python, **clauses)
    typed = infer(of, *types_of(of, arguments))
    source = emit_cuda(typed, typed.function.nests[0], CudaVariant(**variant)).source
    return source[source.index('extern "C"') :], source


OFF = tuple((at, "off") for at in range(10))
SQUARES = {"a": np.ones((4, 4)), "b": np.ones((4, 4))}
ROWS = {"layouts": (("a", "inner"), ("b", "inner")), "unit_steps": ((0, 1), (1, 1))}

# -- the text --------------------------------------------------------------------------------------------


def test_threads_side_by_side_have_the_innermost_loop():
    """The innermost loop's trip comes from x, the next one's from y, and those of the others from z."""
    short, _ = text(five_point, SQUARES, {"collapse": 2}, modes=OFF)
    assert re.search(r"t1 = \(int64_t\)blockIdx\.x \* blockDim\.x \+ threadIdx\.x;", short)
    assert re.search(r"t0 = \(int64_t\)blockIdx\.y \* blockDim\.y \+ threadIdx\.y;", short)
    arguments = {"a": np.ones((1, 1, 1, 1)), "order": np.zeros((), int), "n": 1.0}
    short, _ = text(lexicographic, arguments, {"collapse": 4, "atomic": ("order",)}, modes=OFF)
    assert re.search(r" z = \(int64_t\)blockIdx\.z;", short)
    assert "t1 = z % trips1;" in short
    assert "t0 = z / trips1;" in short


def test_accesses_in_range_have_no_branch():
    """Where all accesses are known to be in range, the only branches are those at the end of the grid."""
    short, _ = text(five_point, SQUARES, {"collapse": 2}, modes=OFF, **ROWS)
    assert not re.search(r"inside|clamped|wrapped|fault|report|\?", short)
    assert short.count("if (") == 2
    assert "for (" not in short


def test_a_smaller_grid_strides():
    """Where there are fewer threads than iterations, each goes on by the threads of the grid."""
    short, _ = text(five_point, SQUARES, {"collapse": 2}, modes=OFF, is_strided=True)
    assert "t1 += (int64_t)gridDim.x * blockDim.x" in short
    assert "t0 += (int64_t)gridDim.y * blockDim.y" in short


def test_32_bits_leave_no_wide_index():
    """With 32-bit indices every number that has to do with a place has 32 bits."""
    short, _ = text(five_point, SQUARES, {"collapse": 2}, modes=OFF, index_bits=32, **ROWS)
    assert not re.search(r"int64_t [nstb]\d|int64_t (start|step|trips)", short)
    assert "int32_t trips0" in short


def test_what_is_only_read_is_restricted_and_const():
    """Where arrays share no memory all pointers are restricted, those of arrays that are only read are to constants."""
    short, _ = text(five_point, SQUARES, {"collapse": 2}, modes=OFF, is_restricted=True)
    assert "const double *__restrict__ const p_a" in short
    assert "double *__restrict__ const p_b" in short
    short, _ = text(five_point, SQUARES, {"collapse": 2}, modes=OFF)
    assert "__restrict__" not in short


def test_nothing_is_included():
    """NVRTC gets a text without headers, templates of the standard library, or names of it."""
    _, whole = text(histogram, {"k": np.zeros(3, int), "h": np.zeros(3)}, {"atomic": ("h",)}, copies=("h",))
    assert "#include" not in whole
    assert "std::" not in whole


# -- values, on the host ---------------------------------------------------------------------------------


@on_host
@pytest.mark.parametrize("seed", few(2, range(3000, 3012)))
def test_the_cuda_form_gives_what_cpython_gives(seed):
    """A program's arrays and returned values are CPython's."""
    check(program(seed), cuda_form(), chunks=1)


@on_host
@pytest.mark.parametrize("seed", few(1, range(3100, 3108)))
def test_indices_of_32_bits_give_the_same(seed):
    """With 32-bit indices and restricted pointers the results are CPython's."""
    check(program(seed), cuda_form(index_bits=32, is_restricted=True), chunks=1)


@on_host
def test_loops_at_the_ends_of_32_bits():
    """Loops whose bounds are the ends of int32, beyond them, or loaded as another type give what CPython gives."""
    low, high = -(2**31), 2**31 - 1
    ends = [(high - 3, high), (low, low + 3), (high, high - 2), (-2, 2), (5, 5), (high, high)]
    wide = [(2**31 - 2, 2**31 + 2), (-(2**33), 2 - 2**33), (2**40, 2**40 + 1), (0, 2), (1, 0), (0, 0)]
    p, q = np.array(ends, "i4"), np.array(wide, "i8")
    u = np.array([(2**32 - 3, 2**32 - 1), (2**31 - 1, 2**31 + 1), (0, 2), (4, 1), (0, 0), (9, 9)], "u4")
    given = {"p": p, "q": q, "u": u, "y": np.zeros((6, 7), "i8"), "z": np.zeros((4, 5), "i8")}
    expected = {name: array.copy() for name, array in given.items()}
    limits(**{name: array.astype(object) if name in "pqu" else array for name, array in expected.items()})
    for bits in (32, 64):
        arrays = {name: array.copy() for name, array in given.items()}
        run(function(limits), arrays, cuda_form(index_bits=bits, is_ordered=True), 1)
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, expected[name])


@on_host
@pytest.mark.parametrize("seed", few(1, range(3200, 3208)))
def test_a_small_grid_gives_the_same(seed):
    """With fewer threads than iterations the results are CPython's."""
    check(program(seed), cuda_form(shape=SMALL), chunks=1)


@on_host
@pytest.mark.parametrize("seed", few(1, range(3300, 3304)))
def test_one_thread_in_order_gives_the_same(seed):
    """Iterations in order, all of one thread, give what CPython gives."""
    check(program(seed), cuda_form(is_ordered=True), chunks=1)


@on_host
@pytest.mark.parametrize("dtype", few(("int8", "uint64"), INTEGERS))
def test_integers_wrap(dtype):
    """Every operator gives what NumPy gives for all pairs of edges."""
    limits = np.iinfo(dtype)
    edges = np.array([limits.min, limits.min + 1, limits.max - 1, limits.max, 0, 1, 2, 7, 31], dtype)
    x, y = (np.ascontiguousarray(side.ravel()) for side in np.meshgrid(edges, edges))
    outs = {f"o{k}": np.zeros(len(x), dtype) for k in range(6)}
    made = [binary(operator, load("x", at=0), load("y", at=1)) for operator in ("+", "-", "*", "<<", ">>")]
    made.append(ir.Unary(place=constant(0).place, operator="-", operand=load("x", at=0)))
    stores = [store(name, value, at=10 + k) for k, (name, value) in enumerate(zip(outs, made, strict=True))]
    run(function_of(*stores, arrays=("x", "y", *outs)), {"x": x, "y": y, **outs}, cuda_form(), 1)
    with np.errstate(all="ignore"):
        expected = [x + y, x - y, x * y, np.left_shift(x, y), np.right_shift(x, y), -x]
    for got, value in zip(outs.values(), expected, strict=True):
        np.testing.assert_array_equal(got, value)


def reduced(x, y):
    s = 1.0
    p = 1
    least = 0
    both = True
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            s += x[i, j]
            p ^= y[i, j]
            least = min(least, y[i, j])
            both = both and x[i, j] > 0
    return s, p, least, both


ITEMS = (
    ir.LoopReduction("+", "s"),
    ir.LoopReduction("^", "p"),
    ir.LoopReduction("min", "least"),
    ir.LoopReduction("and", "both"),
)


@on_host
@pytest.mark.parametrize("shape", [(1, 1), (8, 32), (9, 33), (40, 70), (0, 5)])
@pytest.mark.parametrize("given", few(1, [None, SMALL, Shape(n_threads=1024)]))
def test_reductions_of_many_blocks(shape, given):
    """Several items, of several types, over one block, many, and none at all, are CPython's."""
    rng = np.random.default_rng(1)
    arguments = {"x": rng.integers(1, 100, shape).astype(float), "y": rng.integers(-(2**31), 2**31, shape)}
    got = run(function(reduced, collapse=2, reductions=ITEMS), arguments, cuda_form(shape=given), 1)
    assert got == reduced(**arguments)


@on_host
def test_reductions_are_the_same_from_run_to_run():
    """A sum that rounds has the same bits each time, and those of the grid's own order."""
    arguments = {"x": np.random.default_rng(2).random((40, 70)), "y": np.ones((40, 70), int)}
    of = function(reduced, collapse=2, reductions=ITEMS)
    first, second = (run(of, arguments, cuda_form(), 1)[0] for _ in range(2))
    assert first == second
    assert np.isclose(first, 1 + arguments["x"].sum(), rtol=1e-14)


@on_host
@pytest.mark.parametrize("dtype", few(1, ["int8", "uint64", "float64"]))
@pytest.mark.parametrize("operator", few(3, ["+", "&", "max", "-", "*", "|", "^", "min"]))
def test_atomics_and_copies_in_shared_memory_do_the_same(operator, dtype):
    """Each operator gives what NumPy gives, on the array itself and by copies of blocks, whatever its strides."""
    if operator in "&|^" and dtype.startswith("float"):
        pytest.skip("no floats")
    k = np.random.default_rng(3).integers(-2, 5, 300)
    values = np.random.default_rng(4).integers(1, 3, 300).astype(dtype)
    at = {"array": "h", "indices": (load("k"), constant(1)), "at": 3, "place": I.place}
    step = ir.Atomic(**at, operator=operator, value=load("x", at=2))
    of = function_of(step, arrays=("x", "k", "h"))
    functions = {"+": np.add, "-": np.subtract, "*": np.multiply, "&": np.bitwise_and, "|": np.bitwise_or}
    functions |= {"^": np.bitwise_xor, "min": np.minimum, "max": np.maximum}
    for order, words in (("C", {}), ("C", {"copies": ("h",)}), ("F", {"copies": ("h",), "shape": SMALL})):
        h = np.asarray(np.arange(10).reshape(5, 2).astype(dtype), order=order)
        expected = h.copy()
        with np.errstate(over="ignore"):
            functions[operator].at(expected[:, 1], k, values)
        layouts = (("h", "C" if order == "C" else "strided"),)
        run(of, {"x": values, "k": k, "h": h}, cuda_form(layouts=layouts, **words), 1)
        np.testing.assert_array_equal(h, expected)


@on_host
@pytest.mark.parametrize("dtype", few(("int32", "float64"), [*INTEGERS, "float32", "float64"]))
def test_atomics_give_the_old_value(dtype):
    """`exchange` and `cas` return what was there, also of elements narrower than a word."""
    old = {"result": "old", "place": I.place, "array": "h", "indices": (I,)}
    swap = ir.Atomic(**old, operator="exchange", value=constant(4), at=0)
    compare = ir.Atomic(**old, operator="cas", expected=constant(3), value=constant(9), at=0)
    for step, expected in ((swap, [4] * 7), (compare, [0, 1, 2, 9, 4, 5, 6])):
        h, was = np.arange(7).astype(dtype), np.zeros(7, dtype)
        keep = store("was", ir.Name(place=I.place, name="old"))
        of = function_of(step, keep, arrays=("h", "was"), axes=(axis("i", 7),))
        run(of, {"h": h, "was": was}, cuda_form(), 1)
        assert was.tolist() == list(range(7))
        assert h.tolist() == expected


@on_host
def test_one_iteration_reports():
    """Of many indices out of range one is reported, the store does not happen, and the others are carried out."""
    k, h = np.arange(600) % 300, np.zeros(200)
    with pytest.raises(FoundError) as found:
        run(function(histogram, atomic=("h",)), {"k": k, "h": h}, cuda_form(), 1)
    assert found.value.what == 1
    assert found.value.index >= 200
    assert (h == 2).all()


@on_host
@pytest.mark.parametrize("bits", [32, 64])
def test_what_is_read_of_an_empty_array_is_reported(bits):
    """An index into an array without elements is reported, and no memory of it is read."""
    of = function_of(store("y", load("x")), axes=(axis("i", 3),))
    with pytest.raises(FoundError):
        run(of, {"x": np.zeros(0), "y": np.zeros(3)}, cuda_form(index_bits=bits), 1)


# -- nvcc ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@by_nvcc
@pytest.mark.parametrize("seed", few(1, range(4000, 4004)))
def test_nvcc_takes_what_is_generated(seed):
    """nvcc compiles programs without an error, in both widths of indices."""
    made = program(seed)
    of = parsed(made)
    typed = infer(of, *types_of(of, made.arguments))
    for nest in typed.function.nests:
        sizes = tuple((name, 8) for name in nest.privates)
        source = emit_cuda(typed, nest, CudaVariant(privates=sizes, index_bits=32 if seed % 2 else 64)).source
        assert ".entry loop(" in compiled(source)
        assert assembled(source)


@by_nvcc
def test_nvcc_compiles_a_stencil_as_by_hand():
    """A stencil has two branches, loads by the read-only path, 32-bit products for its rows, and no contraction."""
    _, source = text(five_point, SQUARES, {"collapse": 2}, modes=OFF, index_bits=32, is_restricted=True, **ROWS)
    ptx = compiled(source)
    assert len(re.findall(r"\bbra\b", ptx)) == 2
    assert ptx.count("ld.global.nc.f64") == 4
    assert not re.search(r"mul\.lo\.s64|shr\.s64|fma\.|st\.local|ld\.local", ptx)


BY_HAND = """
extern "C" __global__ void loop(
    const double *__restrict__ a, const double *__restrict__ b, double *__restrict__ c, int n, int m, int inner)
{
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < n && j < m) {
        double s = 0;
        for (int k = 0; k < inner; k++) s += a[i * inner + k] * b[k * m + j];
        c[i * m + j] = s;
    }
}
"""


@pytest.mark.slow
@by_nvcc
def test_nvcc_compiles_an_inner_loop_as_by_hand():
    """The inner loop of a product of matrices is unrolled as that of a kernel by hand, of the same instructions."""
    squares = {name: np.ones((4, 4)) for name in "abc"}
    variant = {"modes": OFF, "layouts": tuple((name, "C") for name in "abc"), "unit_steps": ((0, 1), (1, 1))}
    _, source = text(matmul, squares, {"collapse": 2}, index_bits=32, narrow=("k",), is_restricted=True, **variant)
    made, by_hand = loops_of(compiled(source)), loops_of(compiled(BY_HAND))
    assert made == by_hand
    assert max(map(len, made)) > 20


def sparse(p, c, v, x, y):
    for i in range(y.size):
        s = 0.0
        for k in range(p[i], p[i + 1]):
            s += v[k] * x[c[k]]
        y[i] = s


@pytest.mark.slow
@by_nvcc
def test_nvcc_compiles_rows_that_are_checked_without_branches():
    """The first form of sparse rows is unrolled: a comparison and a selection for each column, and no branch."""
    arguments = {"p": np.zeros(4, "i4"), "c": np.zeros(9, "i4"), "v": np.zeros(9), "x": np.zeros(9), "y": np.zeros(3)}
    rows = {"layouts": tuple((name, "C") for name in arguments), "unit_steps": ((0, 1),), "is_restricted": True}
    _, source = text(sparse, arguments, {}, index_bits=32, narrow=("k",), **rows)
    unrolled = next(loop for loop in loops_of(compiled(source)) if loop.count("mul.rn.f64") == 4)
    assert "bra" not in unrolled
    assert not [one for one in unrolled if re.match(r"selp\.b64|shr|st\.", one)]
    assert sum(one.startswith("ld.global") for one in unrolled) == 12
    assert len(unrolled) < 60


def loops_of(ptx):
    """Return the instructions of each loop, sorted, without their operands."""
    lines = [line.strip() for line in ptx.splitlines()]
    loops = []
    for number, line in enumerate(lines):
        jump = re.search(r"bra\s+(\S+);", line)
        if jump and f"{jump[1]}:" in lines[:number]:
            inner = lines[lines.index(f"{jump[1]}:") : number]
            loops.append(sorted(one.split()[0] for one in inner if one.endswith(";")))
    return loops


@pytest.mark.slow
@by_nvcc
def test_nvcc_lets_integers_wrap():
    """``x + 1 > x`` is not folded, since the sum may have wrapped."""
    _, source = text(greater, {"x": np.zeros(3, "i8"), "y": np.zeros(3, "i8")}, {}, modes=OFF)
    assert "9223372036854775807" in compiled(source)  # the one number whose sum is less


def greater(x, y):
    for i in range(x.size):
        y[i] = 1 if x[i] + 1 > x[i] else 0


@pytest.mark.slow
@by_nvcc
def test_nvcc_has_the_hardwares_atomics():
    """A histogram of doubles by copies is a native step in shared memory, and one in global memory a merged element."""
    arguments = {"k": np.zeros(3, int), "h": np.zeros(3)}
    _, source = text(histogram, arguments, {"atomic": ("h",)}, modes=OFF, copies=("h",), layouts=(("h", "C"),))
    ptx = compiled(source)
    assert "atom.shared.add.f64" in ptx or "red.shared.add.f64" in ptx
    assert "red.global.add.f64" in ptx or "atom.global.add.f64" in ptx
