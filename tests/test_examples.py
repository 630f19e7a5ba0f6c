"""Every example runs, with warnings as errors; those of OpenACC on every kind of device, and with other sizes too."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.cli.demo.examples import load_example
from tests.profiles import few
from tests.strict import IS_COMPILED, STRICT

FOLDER = Path(__file__).parents[1] / "examples"
BY_HAND = sorted(FOLDER.glob("*_by_hand.py"))
FOUND = [path for path in sorted(FOLDER.glob("*.py")) if path not in BY_HAND]
OF_TORCH = FOLDER / "torch_pipeline.py"
EXAMPLES = [path for path in FOUND if "__main__" in path.read_text(encoding="utf-8") and path != OF_TORCH]
"""All but PyTorch's; files without a main program are a part of another one."""
SMALL = {
    "loops_bodies": ["48"],
    "loops_devices": ["24"],
    "loops_heat": ["24"],
    "loops_histogram": ["20000"],
    "nas_cg": ["tiny"],
    "nas_ep": ["12"],
    "nas_mg": ["tiny"],
}
"""The sizes that loops are run with as Python."""
OF_PARRAY = [path for path in EXAMPLES if path.stem.startswith("parray_")]
OF_LOOPS = [path for path in EXAMPLES if path.stem in {"loops_heat", "loops_histogram", "loops_sparse"}]
OF_OPENACC = [path for path in EXAMPLES if path.stem.startswith("acc_")]
WITH_HAND = [path for path in EXAMPLES if path.with_name(f"{path.stem}_by_hand.py") in BY_HAND]
ELSEWHERE = {
    "cluster_cholesky",
    "cluster_halo",
    "cluster_pipeline",
    "cluster_planes",
    "fft3d_mpi",
    "image_pipeline",
    "loops_devices",
    "loops_speculation",
    "out_of_core_sort",
}
"""Tests of clusters, MPI, loops on several devices, speculation and the gallery run these by default."""
QUICK = [path for path in EXAMPLES if path not in [*OF_OPENACC[1:], *OF_PARRAY[1:]] and path.stem not in ELSEWHERE]


def test_there_are_examples():
    """A glob that finds nothing would pass."""
    assert len(OF_OPENACC) >= 5
    assert len(EXAMPLES) > len(OF_OPENACC)


def check_run(path, devices, tmp_path, **env):
    """Run an example as a program: it ends well, has printed something, and leaves nothing behind."""
    sizes = [] if IS_COMPILED else SMALL.get(path.stem, [])
    done = subprocess.run(
        [sys.executable, *STRICT, path, *sizes],
        env={**os.environ, "OFFLOAD_DEVICES": devices, **env},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert done.stderr == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", few(QUICK, EXAMPLES), ids=lambda path: path.stem)
def test_example(path, tmp_path):
    """An example ends well, checks itself, and leaves nothing behind."""
    check_run(path, "sim", tmp_path)


@pytest.mark.parametrize("devices", ["sim:3", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_loops_on_several_devices(devices, tmp_path):
    """The example of one loop on several devices does so on three, and on those that are there."""
    check_run(next(path for path in EXAMPLES if path.stem == "loops_devices"), devices, tmp_path)


@pytest.mark.parametrize("devices", ["sim:2", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("path", few(1, OF_OPENACC), ids=lambda path: path.stem)
def test_example_of_openacc(path, devices, tmp_path):
    """An example of OpenACC's does so on two devices, and on a real one."""
    check_run(path, devices, tmp_path)


@pytest.mark.parametrize("path", few(1, [*OF_LOOPS, *OF_OPENACC]), ids=lambda path: path.stem)
def test_example_on_all_devices(path, tmp_path):
    """An example of OpenACC's, and one of loops, does the same on all devices, by the variable alone."""
    check_run(path, "sim:3", tmp_path, OFFLOAD_LOOP_DEVICES="all")


@pytest.mark.parametrize("devices", ["sim:3", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("path", few(1, OF_PARRAY), ids=lambda path: path.stem)
def test_example_of_typed_copies(path, devices, tmp_path):
    """An example of typed copies does so on several devices, and on a real one."""
    check_run(path, devices, tmp_path)


@pytest.fixture
def torch():
    """PyTorch, where it is installed."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    return importlib.import_module("torch")


@pytest.mark.parametrize("devices", ["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_example_of_torch(torch, devices, tmp_path):
    """The example ends well; on a GPU it runs and times the program by hand, too."""
    check_run(OF_TORCH, devices, tmp_path)


def test_example_without_torch():
    """Without PyTorch, the example ends with status 1 and says so."""
    text = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    command = [sys.executable, *STRICT, "-c", text, str(OF_TORCH)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("this example needs PyTorch")


# -- examples with a form by hand ------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", few(1, [path for path in WITH_HAND if "cluster" not in path.stem]), ids=lambda path: path.stem
)
def test_example_is_clean(path, tmp_path):
    """The sanitizer finds nothing in an example; a cluster's devices it refuses."""
    command = [sys.executable, "-m", "offload", "run", "--sanitize", "--devices", "sim:2", path]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "offload sanitizer: 0 findings" in done.stderr


def test_examples_with_a_form_by_hand_are_short():
    """Each has at most 80 lines, but the older one of MPI."""
    assert len(WITH_HAND) >= 7
    for path in WITH_HAND:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= (80 if path.stem != "halo_mpi" else 103), path.stem


def imports(path, name):
    return re.search(rf"^(import|from) {name}\b", path.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.gpu
@pytest.mark.parametrize("path", [path for path in BY_HAND if imports(path, "cupy")], ids=lambda path: path.stem)
def test_by_hand_with_cupy(path, tmp_path):
    """A program by hand ends well, checks itself, and leaves nothing behind."""
    check_run(path, "cuda", tmp_path)


@pytest.mark.slow
def test_by_hand_with_dask(tmp_path):
    """The program by hand of Dask ends well and checks itself."""
    command = [sys.executable, FOLDER / "cluster_halo_by_hand.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr  # Dask may complain of a slow machine
    assert done.stdout.endswith(": the same bits\n")


@pytest.mark.parametrize("path", OF_PARRAY, ids=lambda path: path.stem)
def test_examples_of_typed_copies_are_short(path):
    """Each is at most 50 lines of code, without its docstrings and comments."""
    text = path.read_text(encoding="utf-8")
    prose = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(node):
            prose.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    lines = enumerate(text.splitlines(), 1)
    code = [line for number, line in lines if number not in prose and line.strip() and line.strip()[0] != "#"]
    assert len(code) <= 50


# -- what the examples' functions do, with other sizes than their own --------------------------------


@pytest.mark.parametrize("n", [1, 1000])
def test_two_queues(runtime, n):
    """Both arrays hold square roots and the third one their product, on the host and on no device."""
    example = load_example("acc_two_queues")
    a, b, both = np.full(n, 1.5), np.linspace(1, 3, n), np.zeros(n)
    example.process(a, b, both)
    for array, square in ((a, 2), (b, 3), (both, 6)):
        np.testing.assert_allclose(array, square**0.5, rtol=1e-12)
        assert not acc.is_present(array)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("n_blocks", [1, 3, 20])
@pytest.mark.parametrize("order", ["C", "F"])
def test_columns(runtime, asynchronous, n_blocks, order):
    """Each block of columns is taken through the device once, whatever their number and the order in memory."""
    example = load_example("acc_columns")
    start = np.random.default_rng(1).uniform(-1, 1, (30, 31))
    matrix = start.copy(order=order)
    example.process(matrix, n_blocks, asynchronous=asynchronous)
    np.testing.assert_allclose(matrix, 1 + start + start**2 / 2 + start**3 / 6, rtol=1e-13)


def test_columns_with_a_step_of_the_callers(runtime):
    """The step is any compute construct of one argument."""
    example = load_example("acc_columns")

    @acc.kernels
    def negate(block):
        block *= -1

    matrix = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    example.process(matrix, 4, asynchronous=True, step=negate)
    assert matrix.tolist() == (-np.arange(12.0).reshape(3, 4)).tolist()


def jacobi(plate, sweeps):
    for _ in range(sweeps):
        u = plate
        plate = u.copy()
        plate[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return plate


@pytest.mark.parametrize("sweeps", [0, 1, 2, 11])
@pytest.mark.parametrize("rows", [4, 9])
def test_halo(runtime, rows, sweeps):
    """Halves of a plate with halos between them become what the whole plate would, on each choice of devices."""
    example = load_example("acc_halo")
    plate = np.random.default_rng(1).uniform(0, 1, (rows, 7))
    last = omp.get_num_devices() - 1
    for devices in {(0, 0), (0, last), (last, 0)}:
        np.testing.assert_allclose(example.iterate(plate, sweeps, devices), jacobi(plate, sweeps), rtol=1e-12)


def test_halo_moves_rows_only(runtime):
    """Between the sweeps nothing but the edges and halos is copied: what the host has elsewhere is not seen."""
    example = load_example("acc_halo")

    class Spoiled(example.Half):
        def wait(self):
            super().wait()
            self.old[2:-2] = self.new[2:-2] = np.nan

    example.Half = Spoiled
    plate = np.random.default_rng(1).uniform(0, 1, (20, 7))
    last = omp.get_num_devices() - 1
    np.testing.assert_allclose(example.iterate(plate, 5, (0, last)), jacobi(plate, 5), rtol=1e-12)


def poisson(n):
    """Return a solution and a right-hand side."""
    x = np.random.default_rng(1).standard_normal((n, n))
    around = np.pad(x, 1)
    return x, 4 * x - around[:-2, 1:-1] - around[2:, 1:-1] - around[1:-1, :-2] - around[1:-1, 2:]


def test_present(runtime):
    """The solver begins from the guess that it is given, and stops at once where that is the solution."""
    example = load_example("acc_present")
    expected, b = poisson(9)
    x = np.zeros_like(b)
    assert example.solve(x, b, 1e-12) > 0
    np.testing.assert_allclose(x, expected, atol=1e-10)
    assert example.solve(x, b, 1e-9) == 0


def test_present_in_a_region(runtime):
    """Called where its data is present, the solver leaves the result on the device, until that region ends."""
    example = load_example("acc_present")
    expected, b = poisson(9)
    x = np.zeros_like(b)
    with acc.data(copy=[x]):
        example.solve(x, b, 1e-12)
        assert not x.any()
    np.testing.assert_allclose(x, expected, atol=1e-10)


def test_present_without_a_region(runtime):
    """A function that has its data ``present`` is an error where it is not, which names clause and variable."""
    example = load_example("acc_present")
    x = np.ones((3, 3))
    with pytest.raises(omp.NotPresentError, match=r"present.*x"):
        example.dot(x, np.ones((3, 3)))


def test_host_data(runtime):
    """Both transforms take their turn in the queue: a field of which nothing is taken out comes back as it was."""
    example = load_example("acc_host_data")
    field = np.random.default_rng(1).standard_normal((12, 10)) + 2j
    result = field.copy()
    example.smooth(result, np.ones((12, 10)))
    np.testing.assert_allclose(result, field, atol=1e-12)
    example.smooth(result, np.zeros((12, 10)))
    assert not result.any()


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (40, 17), (17, 70)])
def test_loops(runtime, shape):
    """Each of the five ways gives what the plain nest gives, bit for bit, also where there is nothing to do."""
    example = load_example("acc_loops")
    a = np.random.default_rng(1).uniform(0, 1, shape)
    expected = a.copy()
    example.smooth(a, expected, 0.2)
    assert len(example.WAYS) == 5
    for way in example.WAYS.values():
        b = a.copy()
        way(a, b, 0.2)
        assert (b == expected).all()


@pytest.mark.parametrize("n", [1, 50])
def test_sparse(runtime, n):
    """The product is the dense one's, and the power method finds the largest eigenvalue."""
    example = load_example("loops_sparse")
    start, column, values = example.random_matrix(n, 4)
    dense = np.zeros((n, n))
    np.add.at(dense, (np.repeat(np.arange(n), np.diff(start)), column), values)
    x, y = np.random.default_rng(2).standard_normal(n), np.zeros(n)
    example.multiply(start, column, values, x, y)
    np.testing.assert_allclose(y, dense @ x, rtol=1e-10, atol=1e-12)
    value = example.largest_eigenvalue((start, column, values), n, 60)
    np.testing.assert_allclose(value, abs(np.linalg.eigvals(dense)).max(), rtol=1e-8)


@pytest.mark.parametrize(
    ("shape", "n_tiles", "n_buffers"), [((96, 5), 12, 3), ((7, 4), 3, 2), ((5, 3), 5, 5), ((8, 2), 1, 1)]
)
def test_tiles(runtime, shape, n_tiles, n_buffers):
    """A field is scaled whole through fewer buffers than it has tiles, in place or into another array."""
    example = load_example("parray_tiles")
    field, result = np.random.default_rng(0).random(shape), np.zeros(shape)
    before = field.copy()
    example.process(field, example.scale, 2.0, n_tiles=n_tiles, n_buffers=n_buffers, result=result)
    assert (field == before).all()
    assert (result == 2 * before).all()
    example.process(field, example.scale, 3.0, n_tiles=n_tiles, n_buffers=n_buffers)
    assert (field == 3 * before).all()


@pytest.mark.parametrize("n_blocks", [1, 2, 5])
def test_halo_of_types(runtime, n_blocks):
    """Blocks with halos give the same bits as one plate."""
    example = load_example("parray_halo")
    plate = np.random.default_rng(0).random((n_blocks * 4 + 2, 9))
    u, v = plate.copy(), plate.copy()
    for _ in range(5):
        example.relax(u, v)
        u, v = v, u
    assert (example.iterate(plate, n_blocks, 5) == u).all()


@pytest.mark.parametrize(("n_batches", "n_slots"), [(0, 3), (1, 3), (10, 1), (10, 3), (10, 20)])
def test_torch_pipeline(torch, runtime, n_batches, n_slots):
    """Each result is the model's, whatever the number of batches on the device; the check sees a wrong one."""
    example = load_example("torch_pipeline")
    model, batches, results = example.make(omp.device(0), n_batches, 7, 16)
    run = example.pipeline(model, batches, results, n_slots)
    for _ in range(3):
        run()
        assert example.is_right(model, batches, results)
    assert example.is_right(model, batches, results) == (n_batches == 0)  # the results were forgotten
