"""NAS EP, CG and MG as plain loops with directive strings: the published results, and the text without directives."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import offload as omp
from benchmarks.pragma import nas_functions
from benchmarks.pragma.command import kernels
from offload.cli.demo.examples import load_example
from tests.conftest import checked
from tests.strict import IS_COMPILED

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("EP", "CG", "MG")
DEVICES = ["none", "sim:1", pytest.param("cuda:0", marks=pytest.mark.gpu)]


class Plain(ast.NodeTransformer):
    """Takes the directives out of a text."""

    def visit_With(self, node: ast.With) -> list[ast.stmt]:
        """Put the block in the place of a directive."""
        self.generic_visit(node)
        return node.body

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Take the decorator away."""
        self.generic_visit(node)
        node.decorator_list = []
        return node


@pytest.fixture
def plain(tmp_path):
    """Return a function that loads a kernel's text without directives."""

    def load(name):
        tree = Plain().visit(ast.parse((EXAMPLES / f"{name}.py").read_text(encoding="utf-8")))
        tree.body = [one for one in tree.body if getattr(one, "module", "") != "offload.pragma"]
        path = tmp_path / f"plain_{name}.py"
        path.write_text(ast.unparse(tree), encoding="utf-8")
        assert "omp(" not in path.read_text(encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.mark.skipif(not IS_COMPILED, reason="there is no C compiler")
@pytest.mark.filterwarnings("ignore::offload.HostFallbackWarning")
@pytest.mark.parametrize("program", [None, nas_functions], ids=["strings", "functions"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("devices", DEVICES)
def test_class_s_is_verified(devices, name, program):
    """At class S the result is the published one: on the host, on the simulated device, and on a GPU."""
    kernel, is_right = kernels("S")[name]
    with checked(devices):
        assert is_right(kernel(program))


@pytest.mark.parametrize("name", NAMES)
def test_strings_and_functions_agree(sim, name):
    """A small run with directive strings gives the bits of the run with loop functions."""
    kernel, _ = kernels("tiny")[name]
    ours, theirs = kernel(None), kernel(nas_functions)
    if name != "EP":
        ours, theirs = (ours,), (theirs,)
    assert [np.asarray(one).tobytes() for one in ours] == [np.asarray(one).tobytes() for one in theirs]


def test_cpython_runs_the_text_without_directives(sim, plain):
    """Without directives, CPython gives the same result up to the order of sums."""
    cg, mg = plain("nas_cg"), plain("nas_mg")
    size = cg.SIZES["tiny"]
    matrix = cg.matrix_of(size)
    expected = cg.cg(*matrix, size.shift, size.n_outer)
    assert load_example("nas_cg").cg(*matrix, size.shift, size.n_outer) == pytest.approx(expected, rel=1e-12)
    charges = mg.charges(2)
    assert load_example("nas_mg").mg(charges, 2, 1) == pytest.approx(mg.mg(charges, 2, 1), rel=1e-12)


def loops_of(report):
    """Return variable, verdict, reductions and atomic updates of the loops of a report that are parallel."""
    return [(one.variable, one.reductions, one.atomic) for one in report.loops if one.is_parallel]


def test_the_profile_of_ep(plain):
    """The loop over batches is parallel; its sums are reductions, and its counts need atomic updates."""
    found = loops_of(omp.profile_dependences(plain("nas_ep").ep, (3,)))
    assert found[0] == ("batch", (("+", "sx"), ("+", "sy")), ("counts",))


def test_the_profile_of_cg(plain):
    """All loops over rows are parallel, four of them with sums; the two loops over steps are not."""
    cg = plain("nas_cg")
    size = cg.SIZES["tiny"]
    report = omp.profile_dependences(cg.cg, (*cg.matrix_of(size), size.shift, 2))
    found = [(variable, reductions) for variable, reductions, _ in loops_of(report)]
    assert found == [
        ("i", (("+", "rho"),)),
        ("i", (("+", "d"),)),
        ("k", (("+", "total"),)),
        ("i", (("+", "rho"),)),
        ("i", ()),
        ("i", (("+", "xz"), ("+", "zz"))),
        ("i", ()),
    ]
    assert [one.variable for one in report.loops if not one.is_parallel] == ["_outer", "_inner"]


def parallel_loops(function, *arguments):
    """Return variables and reductions of the outermost parallel loops of a function."""
    report = omp.profile_dependences(function, arguments)
    if isinstance(report, omp.DependenceProfile):
        return report.verdict
    return [(variable, reductions) for variable, reductions, _ in loops_of(report)]


def test_the_profile_of_mg(plain):
    """Every sweep over a grid is parallel, and the norm is a sum."""
    mg = plain("nas_mg")
    rng = np.random.default_rng(1)
    fine, coarse = rng.random((10, 10, 10)), rng.random((6, 6, 6))
    other = fine.copy()
    assert [variable for variable, _ in parallel_loops(mg.exchange, fine)] == ["i", "j", "i", "k", "j", "k"]
    for function, arguments in (
        (mg.residual, (fine, other, np.zeros_like(fine))),
        (mg.smooth, (fine, other)),
        (mg.restrict, (fine, coarse)),
        (mg.interpolate, (coarse, fine)),
        (mg.clear, (coarse,)),
    ):
        found = parallel_loops(function, *arguments)
        assert found == "parallel" or found[0][0] == "i"
    assert omp.profile_dependences(mg.norm, (fine,)).loops[0].reductions == (("+", "total"),)
