"""Ports of CuPy programs: right on every kind of device and under a dozen seeds, and as the originals are on a GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import offload as omp
from tests.conftest import checked
from tests.profiles import few
from tests.test_examples import check_run

PORTS = Path(__file__).parents[1] / "examples" / "ports"
ORIGINALS = sorted(path.stem.removesuffix("_cupy") for path in PORTS.glob("*_cupy.py"))
SEEDS = range(12)


def load(name):
    """Return a program of the directory as a module of its own."""
    spec = importlib.util.spec_from_file_location(name, PORTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_original_has_a_port():
    """Files pair by their names, and there are three pairs at least."""
    assert len(ORIGINALS) >= 3
    assert {*ORIGINALS, "forgotten"} == {path.stem for path in PORTS.glob("*.py") if not path.stem.endswith("_cupy")}


@pytest.mark.parametrize("devices", [*few(1, ["sim", "sim:2"]), pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", ORIGINALS)
def test_port_as_a_program(name, devices, tmp_path):
    """A port ends well, checks itself, and leaves nothing behind."""
    check_run(PORTS / f"{name}.py", devices, tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ORIGINALS)
def test_original_as_a_program(name, tmp_path):
    """So does an original."""
    check_run(PORTS / f"{name}_cupy.py", "cuda", tmp_path)


# -- what they compute -----------------------------------------------------------------------------


def ring_case(n, like=np.empty):
    """Return arguments of the ring, and what has to come out."""
    source, result = like(n, "f8"), like(n, "f8")
    source[...] = np.random.default_rng(1).uniform(-2, 2, n)
    return source, result, np.sqrt(source**2 + 5)


def check_ring(n, chunk, n_slots):
    source, result, expected = ring_case(n)
    load("ring").run(source, result, chunk, 5, n_slots)
    np.testing.assert_allclose(result, expected, rtol=1e-13)


def check_pingpong(steps):
    start = np.random.default_rng(1).uniform(0, 1, (18, 20))
    field, summary = load("pingpong").run(start, steps)
    shares, u = [0.0], start
    for _ in range(steps):
        new = u.copy()
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        new[1:-1, 1:-1] += 0.2 * (around - 4 * u[1:-1, 1:-1])
        u = new
        power = abs(np.fft.rfft2(u)) ** 2
        shares.append(power[:, power.shape[1] // 4 :].sum() / power.sum())
    np.testing.assert_allclose(field, u, rtol=1e-12)
    np.testing.assert_allclose(summary, [sum(shares), max(shares)], rtol=1e-10)


def substances(shape=(14, 17)):
    u, v = np.ones(shape), np.zeros(shape)
    u[4:8, 5:9], v[4:8, 5:9] = 0.5, 0.25
    return u, v


def check_graph(calls, steps):
    program = load("graph")
    start = substances()
    u, v = program.run(*start, calls, steps)
    a, b = (field.copy() for field in start)
    for _ in range(calls * steps):
        la, lb = (f[:-2, 1:-1] + f[2:, 1:-1] + f[1:-1, :-2] + f[1:-1, 2:] - 4 * f[1:-1, 1:-1] for f in (a, b))
        ia, ib = a[1:-1, 1:-1], b[1:-1, 1:-1]
        made = ia * ib * ib
        ia += 0.16 * la - made + 0.035 * (1 - ia)
        ib += 0.08 * lb + made - 0.1 * ib
    np.testing.assert_allclose(u, a, rtol=1e-12)
    np.testing.assert_allclose(v, b, rtol=1e-12, atol=1e-15)
    return program.advance.records


@pytest.mark.parametrize(("n", "chunk"), [(1, 1), (10, 10), (100, 7), (1000, 64)])
@pytest.mark.parametrize("n_slots", [1, 2, 3])
def test_ring(runtime, n, chunk, n_slots):
    """Every element goes through the ring once, whatever the number of buffers and the length of the last chunk."""
    check_ring(n, chunk, n_slots)


@pytest.mark.parametrize("steps", [0, 1, 2, 9])
def test_pingpong(runtime, steps):
    """The field is the one that the same steps give on the host, and every share has been counted."""
    check_pingpong(steps)


@pytest.mark.parametrize(("calls", "steps"), [(0, 1), (1, 3), (5, 1), (4, 3)])
def test_graph(runtime, calls, steps):
    """Calls of the task graph, recorded and replayed, are as many steps on the host."""
    records = check_graph(calls, steps)
    assert len(records) == min(calls, 1)
    if calls > 1 and omp.device(0).kind == "cuda":
        assert records[0].is_captured, records[0].why_not


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("check", "args"),
    [(check_ring, (100, 7, 2)), (check_pingpong, (9,)), (check_graph, (4, 3))],
    ids=["ring", "pingpong", "graph"],
)
def test_under_a_seed(check, args, seed):
    """No port relies on an order that its dependences do not promise."""
    with checked("sim", seed=seed):
        check(*args)


# -- beside the originals --------------------------------------------------------------------------


@pytest.fixture
def gpu():
    """A current runtime on the CUDA devices, and CuPy's pools emptied of what the originals have used."""
    import cupy

    with checked("cuda") as runtime:
        yield runtime
    cupy.get_default_memory_pool().free_all_blocks()


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "chunk"), [(100, 7), (100_000, 4096)])
def test_ring_beside_the_original(gpu, n, chunk):
    """Both rings give the same numbers."""
    import cupyx

    source, result, expected = ring_case(n, cupyx.empty_pinned)
    load("ring_cupy").run(source, result, chunk, 5)
    np.testing.assert_allclose(result, expected, rtol=1e-13)
    original = result.copy()
    result[...] = 0
    load("ring").run(source, result, chunk, 5)
    np.testing.assert_array_equal(result, original)


@pytest.mark.gpu
def test_pingpong_beside_the_original(gpu):
    """Both give the same field and the same summary."""
    start = np.random.default_rng(1).uniform(0, 1, (48, 64))
    expected = load("pingpong_cupy").run(start, 25)
    for one, other in zip(load("pingpong").run(start, 25), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.gpu
def test_graph_beside_the_original(gpu):
    """A captured task graph gives what CUDA's graph by hand does."""
    expected = load("graph_cupy").run(*substances((48, 64)), 20, 10)
    for one, other in zip(load("graph").run(*substances((48, 64)), 20, 10), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


# -- a dependence that was forgotten ----------------------------------------------------------------


def test_a_dozen_seeds_find_a_forgotten_dependence():
    """The program that forgets one goes wrong under some of the seeds, and under none with the dependence."""
    program = load("forgotten")
    assert not all(program.is_right(seed) for seed in SEEDS)
    assert all(program.is_right(seed, forgets=False) for seed in SEEDS)


def test_the_forgotten_dependence_as_a_program(tmp_path):
    """It says how many plain runs and how many under a seed have gone wrong."""
    check_run(PORTS / "forgotten.py", "sim", tmp_path)
