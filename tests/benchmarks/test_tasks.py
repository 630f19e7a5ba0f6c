"""The studies of tasks, rectangles and look-ups: what they print, and that they compare like with like."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import offload
from benchmarks.data import present
from benchmarks.run import main
from benchmarks.tasks import generating, metg, native, shapes

pytestmark = pytest.mark.bench

_RUNS = {f"{form}_{n}" for form in ("eager", "eager_with_clauses", "replay", "libgomp", "libomp") for n in (1, 2)}
_RUNS |= {"dask_threaded", "dask_synchronous", "distributed"}


def _bench_tasks(capsys, *options):
    """Run ``tasks`` small and return what it prints as JSON."""
    assert main(["tasks", "--tasks", "40", "--repeat", "1", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def _is_spread(figures):
    return 0 < figures["min"] <= figures["median"] <= figures["max"]


def _closure(before):
    """Return, for each task, all that it comes after."""
    after = []
    for numbers in before:
        after.append(set(numbers).union(*(after[number] for number in numbers)))
    return after


@pytest.mark.parametrize("name", shapes.SHAPES)
def test_shapes_are_the_graphs_of_their_clauses(name):
    """The predecessor lists that Dask is given order the tasks as their clauses do."""
    steps = shapes.make_steps(name, 60)
    items = [np.zeros(8) for _ in range(shapes.n_cells(steps))]
    with offload.Runtime("none"), offload.record(execute=False) as graph:
        for depend in generating.make_clauses(steps, items):
            generating.null.options(depend=depend)()
    recorded = [[node.index for node in graph.predecessors(task)] for task in graph.tasks]
    assert _closure(shapes.predecessors(steps)) == _closure(recorded)


@pytest.mark.parametrize(
    ("name", "n_tasks", "length"),
    [("independent", 60, 1), ("chain", 60, 60), ("stencil", 60, 8), ("wavefront", 49, 13), ("cholesky", 56, 16)],
)
def test_shapes(name, n_tasks, length):
    """A shape has as many tasks as fit into 60, and its longest path is what its name says."""
    steps = shapes.make_steps(name, 60)
    assert (len(steps), shapes.longest_path(shapes.predecessors(steps))) == (n_tasks, length)
    assert len(shapes.make_steps(name, 1)) == 1


def test_bench_tasks_shapes(capsys):
    """``tasks`` has the time of a task in each form and under each peer; None for a compiler that is missing."""
    figures = _bench_tasks(capsys, "--sections", "shapes", "--shapes", "cholesky, stencil")
    assert list(figures["shapes"]) == ["stencil", "cholesky"]
    for result in figures["shapes"].values():
        assert set(result["runs"]) == _RUNS
        for name, run in result["runs"].items():
            assert (run is None) == (name.rpartition("_")[0] in figures["missing"])
            assert run is None or _is_spread(run)
    assert {"metg", "views", "memory"}.isdisjoint(figures)
    assert [target["limit"] for target in figures["targets"]] == [4, 12, 2]


def test_bench_tasks_views(capsys):
    """``tasks`` has the time of tasks on the tiles of a matrix and on the columns of an array."""
    figures = _bench_tasks(capsys, "--sections", "views")["views"]
    assert {name: result["tasks"] for name, result in figures.items()} == {"cholesky": 35, "columns": 40}
    assert all(_is_spread(run) for result in figures.values() for run in result["runs"].values())


def test_bench_tasks_followers(capsys):
    """``tasks`` has how long after device work a host task begins, eager and under each of Dask's schedulers."""
    figures = _bench_tasks(capsys, "--sections", "followers")
    runs = figures["followers"]["runs"]
    schedulers = {f"compute_{name}" for name in ("synchronous", "threads", "distributed")}
    assert set(runs) == {"eager", "distributed_alone"} | schedulers
    assert all(_is_spread(run) for run in runs.values())
    assert [target["limit"] for target in figures["targets"]] == [500]


def test_bench_tasks_metg(capsys, monkeypatch):
    """``tasks`` has the shortest task that is worth it, with the efficiency of each length that was tried."""
    shorter = {name: one._replace(longest_us=8, shortest_us=4) for name, one in metg._contestants().items()}
    monkeypatch.setattr(metg, "_contestants", lambda: shorter)
    figures = _bench_tasks(capsys, "--sections", "metg")["metg"]
    assert _is_spread(figures["two_threads"])
    assert set(figures["shapes"]) == {"chain", "stencil"}
    for result in figures["shapes"].values():
        assert set(result) == {"offload_1", "offload_2", "dask_threaded", "distributed"}
        for one in result.values():
            assert one["metg_us"] is None or one["metg_us"] > 0
            assert all(point["length_us"] > 0 and _is_spread(point["efficiency"]) for point in one["points"])


@pytest.mark.parametrize(("cost_us", "expected_us"), [(0.5, 2), (10, 10), (50, 50), (1_000, None)])
def test_metg_is_where_the_efficiency_is_one_half(cost_us, expected_us):
    """METG is found between the lengths tried for a scheduler that costs so much a task, or said to be beyond them."""
    points = [
        {"length_us": length_us, "efficiency": {"median": length_us / (length_us + cost_us)}}
        for length_us in (256, 128, 64, 32, 16, 8, 4, 2)
    ]
    assert metg._found(points)["metg_us"] == (expected_us and pytest.approx(expected_us, rel=0.02))


def test_bench_tasks_memory(capsys):
    """``tasks`` has the memory of live and of finished tasks, and how programs of many tasks grow."""
    figures = _bench_tasks(capsys, "--sections", "memory", "--shapes", "stencil,chain", "--memory-tasks", "300")
    live = figures["memory"]["live"]
    assert list(live) == ["chain", "stencil"]
    assert all(0 <= one["finished_nbytes"] < one["live_nbytes"] for one in live.values())
    assert len(figures["memory"]["long"]) == 3
    for one in figures["memory"]["long"].values():
        assert one["tasks"] == 300
        assert one["us"] > 0
        assert one["growth_nbytes"] is None or one["growth_nbytes"] >= 0


def test_bench_tasks_shows_tables(capsys, monkeypatch):
    """``tasks`` prints a table for each section, and what was promised."""
    shorter = {"offload_1": metg._contestants()["offload_1"]._replace(longest_us=2)}
    monkeypatch.setattr(metg, "_contestants", lambda: {**shorter, "offload_2": shorter["offload_1"]})
    assert main(["tasks", "--tasks", "8", "--repeat", "1", "--memory-tasks", "8", "--shapes", "chain"]) == 0
    shown = capsys.readouterr().out
    for words in (
        "null tasks, µs",
        "distributed",
        "views of one array",
        "METG",
        "bytes a task",
        "fresh token",
        "targets",
    ):
        assert words in shown


def test_a_missing_compiler_is_told(tmp_path, monkeypatch):
    """Neither an absent compiler nor one that fails nor an absent source is more than a reason."""
    with pytest.raises(native.NotBuiltError, match="no such-compiler"):
        native.build("such-compiler", tmp_path)
    with pytest.raises(native.NotBuiltError, match="false failed"):
        native.build("false", tmp_path)
    monkeypatch.setattr(native, "_SOURCE", tmp_path / "tasks.c")
    with pytest.raises(native.NotBuiltError, match="there is no"):
        native.build("false", tmp_path)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_the_c_program_refuses_what_is_no_graph(tmp_path):
    """The C program reads the graphs that we write, with up to three cells read, and nothing else."""
    program, graph = native.build("gcc", tmp_path), tmp_path / "graph"
    native.write_graph(shapes.make_steps("stencil", 30), 16, graph)
    assert native.native_us(program, graph, 2) > 0
    native.write_graph([shapes.Step((0, 0, 0, 0), 0)], 1, graph)
    with pytest.raises(native.subprocess.CalledProcessError):
        native.native_us(program, graph, 1)


@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_bench_rect(capsys, json_option):
    """``rect`` prints the rates of strided and contiguous copies and of NumPy, for rows that fit."""
    assert main(["rect", "--devices", "sim", "--nbytes", "64K", "--repeat", "2", *json_option]) == 0
    shown = capsys.readouterr().out
    if not json_option:
        assert "strided" in shown
        assert "device→device" in shown
        return
    copies = json.loads(shown)["copies"]
    assert {copy["row_nbytes"] for copy in copies} == {64, 1024}
    assert {len(copy["shape"]) for copy in copies} == {2, 3}
    assert {(copy["memory"], copy["to"]) for copy in copies} == {
        ("pageable", "device"),
        ("pageable", "host"),
        ("device", "device"),
    }
    for copy in copies:
        assert copy["over_numpy"] > 0
        for name in ("strided", "contiguous", "numpy"):
            assert 0 < copy[name]["min"] <= copy[name]["median"] <= copy[name]["max"]


@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_bench_present(capsys, monkeypatch, json_option):
    """``present`` prints what look-ups cost, and ends with 1 where that is more than promised."""
    monkeypatch.setattr(present, "_ENTRIES", (10, 100))
    monkeypatch.setattr(present, "_LOOKUPS", 50)
    monkeypatch.setattr(present, "_LIMITS_US", {10: 1e6})
    assert main(["present", "--repeat", "2", *json_option]) == 0
    shown = capsys.readouterr().out
    if json_option:
        assert set(json.loads(shown)["entries"]) == {"10", "100"}
    else:
        assert "a part" in shown
    monkeypatch.setattr(present, "_LIMITS_US", {10: 0.0})
    assert main(["present", "--repeat", "2", *json_option]) == 1


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["rect", "--devices", "sim", "--repeat", "0"], "--repeat"),
        (["rect", "--devices", "sim", "--nbytes", "some"], "--nbytes"),
        (["rect", "--devices", "sim", "--nbytes", "100"], "--nbytes"),
        (["rect", "--devices", "none"], "--devices"),
        (["present", "--repeat", "-1"], "--repeat"),
        (["tasks", "--tasks", "0"], "--tasks"),
        (["tasks", "--repeat", "0"], "--repeat"),
        (["tasks", "--memory-tasks", "0"], "--memory-tasks"),
        (["tasks", "--shapes", "chain,ring"], "ring"),
        (["tasks", "--sections", "shape"], "--sections"),
    ],
)
def test_numbers_out_of_range(capsys, argv, told):
    """What cannot be measured is an error that names the option."""
    assert main([*argv]) == 2
    assert told in capsys.readouterr().err
