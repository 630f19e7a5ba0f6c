"""``benchmarks/run.py gpu``: that it measures right results, with stand-ins for CuPy; its tables and verdicts."""

from __future__ import annotations

import json
import math
import os
import runpy
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import offload as omp
from benchmarks.acc import columns
from benchmarks.gpu import acc, command, graph, graphs, latency, parray, peers, pipeline, rect, tasks, turned
from benchmarks.harness import measuring, showing
from benchmarks.harness.programs import load_peer
from benchmarks.run import main
from offload.devices.cuda.kind import CudaKind

pytestmark = pytest.mark.bench

# -- stand-ins for the programs of benchmarks/: the same kernels and copies, by NumPy or on the simulated device -----


class Stream:
    """A stream that has nothing to do when it is asked."""

    def synchronize(self):
        """Return at once."""


class Latch:
    """Holds the stream of the task that calls `hold`."""

    def __init__(self):
        self.released = threading.Event()
        self.release = self.released.set

    def hold(self):
        omp.current_stream().launch(self.released.wait)


class Mark:
    """Notes the time at which the stream of the task gets here."""

    def __init__(self):
        self.at_ns = [0]

    def __call__(self, x):
        omp.current_stream().launch(self.note)

    def note(self):
        self.at_ns[0] = time.perf_counter_ns()


def bump(grid, block, args):
    args[0][:] += 1


def carry(grid, block, args):
    args[1][:] = args[0] + 1


def enqueue(arrays, streams, events_or_count):
    """Bump the cells of a graph in turn; a graph of two cells copies from the one to the other."""
    count = events_or_count if isinstance(events_or_count, int) else len(events_or_count)
    for i in range(count):
        if len(arrays) == 2:
            carry((), (), (arrays[i % 2], arrays[1 - i % 2]))
        else:
            bump((), (), (arrays[i % len(arrays)],))


def timed(enqueue, arrays, streams, events_or_count):
    enqueue(arrays, streams, events_or_count)
    return 2e-3, 1e-3


TASKS = SimpleNamespace(
    GRID=(1,),
    BLOCK=(32,),
    bump=bump,
    carry=carry,
    chain=enqueue,
    chain_launches=enqueue,
    WITH_EVENTS=dict.fromkeys(graphs.N_CELLS, enqueue),
    LAUNCHES=dict.fromkeys(graphs.N_CELLS, enqueue),
    timed=timed,
    new_streams=lambda count: [Stream() for _ in range(count)],
    new_events=lambda count: [None] * count,
    captured=lambda shape, arrays, count: (arrays, count),
    replay=lambda captured, stream: timed(enqueue, captured[0], [], captured[1]),
    load=lambda arrays: None,
    clock_offset_ns=lambda x: 0,
    Latch=Latch,
    Mark=Mark,
    launch_and_wait=lambda x, stream: None,
    copy_and_wait=lambda x, host, stream: None,
    copy_then_call=lambda x, host, stream, call: call(),
    cupyx=SimpleNamespace(empty_pinned=np.empty),
    AcrossDevices=lambda arrays, count: lambda: 1e-3,
)


class AlongY:
    """A library's transform: enqueued on the stream of the task, done later."""

    def __init__(self, piece):
        self.shape = piece.shape

    def __call__(self, source, result):
        assert source.shape == result.shape == self.shape
        omp.current_stream().launch(self.run, source.unwrap(), result.unwrap())

    def run(self, source, result):
        result[...] = np.fft.fft(source, axis=1)


class Pipeline:
    """The pipeline by hand."""

    def __init__(self, shape, n_buffers=3):
        self.shape = shape

    def __call__(self, pieces):
        for source, result in pieces:
            result[...] = np.fft.fft(source, axis=1)
        return 1e-3


PIPELINE = SimpleNamespace(
    AlongY=AlongY,
    Pipeline=Pipeline,
    Link=lambda source, result, indices: lambda: 1e-3,
    Memory=lambda source, result, n_threads: lambda: 1e-3,
    empty_pinned=np.empty,
)
COPIES = SimpleNamespace(
    empty_pinned=np.empty,
    enable_access=lambda devices: None,
    stream_on=lambda array: None,
    contiguous=None,
    rows=None,
    timed=lambda copy, dst, src, stream, times: 1e9,
    elementwise=None,
    packed=None,
    gathered=lambda *_: None,
    scattered=lambda *_: None,
    table=lambda order, array: omp.device(0).namespace().asarray(order),
    fill=lambda array: array.fill(1),
    both_ways=lambda near, result, far, back: 1e-3,
)


class Columns:
    """The blocks of columns by hand."""

    def __init__(self, blocks):
        self.blocks = blocks

    def __call__(self, passes):
        for block in self.blocks:
            relax(block, passes)
        return 1e-3


def relax(x, passes):
    for _ in range(passes):
        x *= 1 - 2.0**-11
        x += 2.0**-11
    x += 1


COLUMNS = SimpleNamespace(
    Columns=Columns, empty_pinned=np.empty, passes_like_a_copy=lambda block: 2 * len(block.T), relax=relax
)
SMALL = load_peer("gpu.small")


def bumps(arrays, count):
    """Return what adds 1 to the arrays in turn, and a wait that has nothing to do."""

    def issue():
        for i in range(count):
            arrays[i % len(arrays)][...] += 1

    return issue, Stream().synchronize


SMALL_BY_HAND = SMALL.cases.simulated()
SMALL_BY_HAND.BY_HAND |= {"chains": bumps, "blocking_kernels": lambda x, count: bumps([x], count)}
PROGRAMS = {
    "columns_cupy": COLUMNS,
    "tasks_cupy": TASKS,
    "pipeline_cupy": PIPELINE,
    "copies_cupy": COPIES,
    "small": SMALL,
    "small_cupy": SMALL_BY_HAND,
}


@pytest.fixture
def small(monkeypatch):
    """All sections on simulated devices, with little to do."""
    monkeypatch.setattr(command, "load_peer", lambda name: PROGRAMS[name.removeprefix("gpu.")])
    monkeypatch.setattr(command, "_ALL", "sim:2")
    monkeypatch.setattr(command, "_ONE", "sim")
    monkeypatch.setattr(command, "_machine", lambda: {"GPUs": "none", "cores": "2"})
    monkeypatch.setattr(graphs, "N_TASKS", 20)
    monkeypatch.setattr(latency, "_N_HELD", 10)
    monkeypatch.setattr(latency, "_N_CALLS", 3)
    monkeypatch.setattr(latency, "_N_SUCCESSORS", 2)
    monkeypatch.setattr(latency, "_N_LAUNCHES", 2)
    monkeypatch.setattr(pipeline, "SHAPE", (8, 16, 512))
    monkeypatch.setattr(
        pipeline, "LAYOUTS", dict(zip(pipeline.LAYOUTS, (pipeline.Layout(1, 512), *_PENCILS), strict=True))
    )
    monkeypatch.setattr("benchmarks.gpu.peers._NBYTES", 1 << 18)
    monkeypatch.setattr(acc, "SHAPE", (64, 2 * acc.N_BLOCKS))
    monkeypatch.setattr(SMALL, "N_OPERATIONS", 6)
    monkeypatch.setattr(SMALL.cases, "COLUMNS", (64, 2 * SMALL.cases.N_BLOCKS))
    monkeypatch.setattr(rect, "NBYTES", 1 << 18)
    monkeypatch.setattr(turned, "SIDE", 64)
    monkeypatch.setattr(turned, "_UNDER_WAY_S", 1.3e-3)
    monkeypatch.setattr(parray, "_SIDE", 256)
    monkeypatch.setattr(parray, "_CUBE", 8)
    monkeypatch.setattr(parray, "_CALLS", 3)
    monkeypatch.setattr(parray, "_PASSES", 3)
    monkeypatch.setattr(parray, "_TABLE", 1 << 10)
    monkeypatch.setattr(rect, "_UNDER_WAY_S", 1.3e-3)
    monkeypatch.setattr(rect, "_PAGEABLE_NBYTES", 1 << 17)
    monkeypatch.setattr(rect, "_DEVICE_ROWS", (64, 4096))
    monkeypatch.setattr(rect, "_PINNED_ROWS", (64, 4096))
    monkeypatch.setattr(rect, "_PAGEABLE_ROWS", (256,))


_PENCILS = (pipeline.Layout(4, 256), pipeline.Layout(8, 128))


# -- the command -----------------------------------------------------------------------------------------------


def test_without_a_gpu_it_refuses_in_one_line():
    """Where CuPy sees no GPU, or is not installed, one line says so."""
    program = Path(__file__).parents[2] / "benchmarks" / "run.py"
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, str(program), "gpu"], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("benchmarks: error:")
    assert "CUDA" in line


def test_what_is_measured_needs_a_gpu(capsys, monkeypatch):
    """``gpu`` without a GPU says so, and does not advise a device that it cannot measure."""
    monkeypatch.setattr(CudaKind, "count", missing_cupy)
    assert main(["gpu"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("benchmarks: error: gpu measures CUDA devices, and there is none: CuPy is missing; ")
    assert "devices='sim'" not in told


def missing_cupy(kind):
    """Do what looking for CUDA devices does where there are none."""
    raise omp.DeviceUnavailableError("CuPy is missing; use devices='sim'")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--repeat", "0"], "--repeat"),
        (["--section", "tasks", "chains"], "chains"),
        (["--json", "--markdown"], "--json"),
    ],
)
def test_mistakes_in_options(capsys, argv, told):
    """What cannot be measured is an error that names the option, before a device is looked for."""
    assert main(["gpu", *argv]) == 2
    assert told in capsys.readouterr().err


def test_disabled_devices_are_told(small, monkeypatch, capsys):
    """Where the environment disables devices, there is nothing to measure."""
    monkeypatch.setenv("OMP_TARGET_OFFLOAD", "disabled")
    assert main(["gpu"]) == 2
    assert "OMP_TARGET_OFFLOAD" in capsys.readouterr().err


@pytest.mark.timeout(400)
def test_sections_have_every_sample(small, capsys):
    """Every section has its tables with a sample for each turn, and its promises; JSON has all of it."""
    assert main(["gpu", "--json", "--repeat", "2"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert list(figures["sections"]) == ["tasks", "rect", "parray", "pipeline", "graph", "acc", "small", "peers"]
    assert figures["seconds"].keys() == figures["sections"].keys()
    for section in figures["sections"].values():
        assert section["tables"]
        assert not section["skipped"]
        for key, table in section["tables"].items():
            wanted = 2 * latency._N_SUCCESSORS if key == "successors" else 2
            for row in table["rows"].values():
                assert row
                for samples in row.values():
                    assert len(samples) == wanted
                    assert all(math.isfinite(one) and one > 0 for one in samples)
    assert len(figures["targets"]) == 6 + 4 + 10 + 5 + 1 + 2 + 1
    for target in figures["targets"]:
        assert target["met"] == (
            target["figure"] >= target["limit"] if target["at_least"] else target["figure"] <= target["limit"]
        )


@pytest.mark.parametrize("option", [[], ["--markdown"]])
def test_tables_for_people(small, capsys, option):
    """Without JSON it prints the tables of the sections asked for, and the targets."""
    assert main(["gpu", "--repeat", "1", "--section", "graph", "--section", "rect", *option]) == 0
    shown = capsys.readouterr().out
    for words in ("taskgraph", "ping-pong", "Inside of the device", "cudaMemcpy2DAsync", "Targets"):
        assert words in shown
    assert "Host successor" not in shown


def test_small_operations_are_compared_turn_by_turn(small, capsys):
    """Each row has the time until it is done; ratios stand where it is done by hand too, and none where it blocks."""
    assert main(["gpu", "--json", "--repeat", "3", "--section", "small"]) == 0
    tables = json.loads(capsys.readouterr().out)["sections"]["small"]["tables"]
    assert tables["done"]["rows"].keys() == SMALL.cases.CASES.keys()
    assert tables["done"]["rows"].keys() - tables["issued"]["rows"].keys() == {
        "blocking `target` with a kernel",
        "blocking `target_memcpy` of 1 KB",
    }
    over = tables["over"]["rows"]
    assert len(over) == 4
    for row, ratios in over.items():
        for until, found in ratios.items():
            times = tables[until]["rows"][row]
            assert found == [one / other for one, other in zip(times["offload"], times["by hand"], strict=True)]
    assert list(over["blocking `target` with a kernel"]) == ["done"]


def test_one_gpu_has_no_peers(small, monkeypatch, capsys):
    """With one GPU the section that takes two says so, in every form of output."""
    monkeypatch.setattr(command, "_ALL", "sim")
    for option in ([], ["--markdown"], ["--json"]):
        assert main(["gpu", "--section", "peers", *option]) == 0
        assert "there is one GPU" in capsys.readouterr().out


# -- a wrong result is no figure -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", graphs.N_CELLS)
@pytest.mark.parametrize("form", graphs.FORMS.values())
def test_a_lost_kernel_is_noticed(shape, form, monkeypatch):
    """A graph in which one body does nothing is not timed."""
    monkeypatch.setattr(graphs, "N_TASKS", 70)
    calls = []

    def forgetful(kernel):
        def launch(grid, block, args):
            calls.append(kernel)
            if len(calls) != 35:
                kernel(grid, block, args)

        return launch

    peer = SimpleNamespace(GRID=(), BLOCK=(), bump=forgetful(bump), carry=forgetful(carry))
    with omp.Runtime("sim", check=True):
        arrays = graphs.host_arrays(shape)
        run = partial(graphs.timed_on, form, shape, graphs.make_bodies(peer), arrays)
        with pytest.raises(omp.InternalError, match="a graph"):
            graphs.check(run, shape, arrays, "a graph")


def test_a_replay_counts_every_kernel(small):
    """The graphs of the section `graph` run each kernel at each call, also where arrays are mapped."""
    with omp.Runtime("sim", check=True):
        runs = graph._measure_shape("64 chains", TASKS, 1)
    assert set(runs) == {graph.CAPTURED, graph.REPLAY, graph.MAPPED, graph.ON_STREAMS, graph.EAGER}


@pytest.mark.parametrize("form", pipeline.FORMS)
@pytest.mark.parametrize("layout", _PENCILS)
def test_forms_of_the_pipeline_transform_everything(form, layout):
    """On one and two devices each form gives NumPy's transform, and leaves nothing on the devices."""
    for devices in ((0,), (0, 1)):
        with omp.Runtime("sim:2", check=True):
            field = pipeline.make_field(np.empty, (8, 16, 512))
            pieces = field.pieces(layout)
            forms = pipeline.Forms(PIPELINE, pieces[0][0].shape, devices)
            assert forms.run(form, pieces) > 0
            forms.close()
        expected = np.fft.fft(field.source, axis=1)
        assert abs(field.result - expected).max() < 1e-4 * abs(expected).max()


def test_a_wrong_transform_is_noticed():
    """A pipeline that leaves out a piece is not timed."""
    field = pipeline.make_field(np.empty, (8, 16, 512))
    pieces = field.pieces(_PENCILS[1])
    hand = Pipeline(None)
    field.check(lambda: hand(pieces), "all")
    with pytest.raises(omp.InternalError, match="one is missing"):
        field.check(lambda: hand(pieces[:-1]), "one is missing")


@pytest.mark.parametrize("fault", ["left out", "twice"])
def test_wrong_columns_are_noticed(fault):
    """A run that leaves out a block of columns, or processes one twice, is not timed."""
    matrix = np.ones((64, 32), np.float32, order="F")
    blocks = list(columns.blocks(matrix, 16))
    acc.check(matrix, 3, lambda: Columns(blocks)(3), "all")
    wrong = blocks[:-1] if fault == "left out" else [*blocks, blocks[3]]
    with pytest.raises(omp.InternalError, match="a wrong one"):
        acc.check(matrix, 3, lambda: Columns(wrong)(3), "a wrong one")


def test_blocks_of_columns_are_contiguous():
    """Blocks cover the matrix in order, each in one piece of memory."""
    matrix = np.arange(5 * 12).reshape(12, 5).T
    blocks = list(columns.blocks(matrix, 4))
    assert all(block.flags.f_contiguous for block in blocks)
    assert (np.concatenate(blocks, axis=1) == matrix).all()


@pytest.mark.parametrize("n_threads", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("nbytes", [64 * 84, 5000, 10])
def test_the_bound_of_memory_copies_all_bytes(monkeypatch, n_threads, nbytes):
    """As many threads as it says share all bytes of both ways, and the link has as many."""
    linked, copied = [], []
    cuda = SimpleNamespace(
        cufft=None,
        runtime=SimpleNamespace(
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyAsync=lambda to, at, count, kind, stream: linked.append((kind, count)),
        ),
        Stream=lambda non_blocking: SimpleNamespace(ptr=0, synchronize=lambda: None),
    )
    fake = SimpleNamespace(cuda=cuda, zeros=lambda count, dtype: SimpleNamespace(data=SimpleNamespace(ptr=0)))
    for name, module in {"cupy": fake, "cupy.cuda": cuda, "cupyx": SimpleNamespace(empty_pinned=np.empty)}.items():
        monkeypatch.setitem(sys.modules, name, module)
    path = Path(__file__).parents[2] / "benchmarks" / "gpu" / "pipeline_cupy.py"
    program = runpy.run_path(str(path))
    source, result = np.full(nbytes, 1, "u1"), np.full(nbytes, 1, "u1")
    memory = program["Memory"](source, result, n_threads, 640)

    def copyto(to, at):
        packs = np.shares_memory(at, source)
        copied.append((at.size, packs))
        to[...] = at if packs else 7

    monkeypatch.setattr(np, "copyto", copyto)
    assert memory() > 0
    monkeypatch.undo()
    assert len(memory.work) == n_threads
    assert (result == 7).all()
    assert [sum(count for count, packs in copied if packs is way) for way in (True, False)] == [nbytes, nbytes]
    assert [sum(count for kind, count in linked if kind == way) for way in (1, 2)] == [nbytes, nbytes]
    shares = [sum(at.size for _, at in pairs) for pairs in memory.work]
    assert max(shares) - 64 * n_threads < 2 * nbytes / n_threads


# -- geometry, figures, tables -----------------------------------------------------------------------------------


def test_pieces_follow_the_addresses():
    """Pieces cover the field once, those of one group of planes before those of the next."""
    boxes = pipeline.Layout(2, 4).boxes((6, 3, 8))
    seen = np.zeros((6, 3, 8), int)
    for box in boxes:
        seen[box] += 1
    assert (seen == 1).all()
    assert [(z.start, x.start) for z, _, x in boxes] == [(z, x) for z in (0, 2, 4) for x in (0, 4)]


@pytest.mark.parametrize("shape", list(rect.shapes(1 << 12, 64)))
def test_boxes_do_not_run_together(shape):
    """Rows lie two apart, and planes further than their rows."""
    flat = np.zeros(1 << 14, np.uint8)
    box = rect.strided(flat, shape)
    assert box.shape == shape
    assert box.strides[-2:] == (128, 1)
    if len(shape) == 3:
        assert box.strides[0] > shape[1] * 128
    between = rect._between(box)
    between[...] = 1
    assert not box.any()


@pytest.mark.parametrize(("nbytes", "text"), [(64, "64 B"), (1 << 10, "1 KB"), (65536, "64 KB"), (1 << 20, "1 MB")])
def test_sizes(nbytes, text):
    """Sizes are in powers of 1024."""
    assert rect.size(nbytes) == text


def test_the_worst_median_decides():
    """A promise is judged by the median that is worst, on the side that the promise has."""
    figures = {"good": [1.0, 9.0, 1.0], "bad": [2.0, 2.0, 2.0], "none": []}
    most = measuring.promise("at most", figures, 1.5)
    assert (most["where"], most["figure"], most["met"]) == ("bad", 2.0, False)
    least = measuring.promise("at least", figures, 1.0, at_least=True)
    assert (least["where"], least["figure"], least["met"]) == ("good", 1.0, True)


def test_a_miss_of_one_form_hides_no_other():
    """Each form of a device task is judged by itself; launches alone are shown and not judged."""
    total = measuring.Table("µs", {tasks.JUDGED: {"chain": [9.0]}})
    ratios = {
        f"{name} / {hand}": {"chain": [1.5]} for name in tasks._forms() for hand in (tasks.BY_HAND, tasks.LAUNCHES)
    }
    ratios[f"mapped arrays, clauses made in the loop / {tasks.BY_HAND}"] = {"chain": [7.0]}
    ratios[f"{tasks.JUDGED} / {tasks.LAUNCHES}"] = {"chain": [8.0]}
    found = {target["name"]: target for target in tasks._targets(total, measuring.Table("over", ratios))}
    missed = [name for name, target in found.items() if not target["met"]]
    assert missed == [f"a device task, mapped arrays, clauses made in the loop / {tasks.BY_HAND}"]
    assert list(found)[:2] == [f"a device task, {tasks.JUDGED}, µs", f"a device task, {tasks.JUDGED} / {tasks.BY_HAND}"]
    assert [found[name]["limit"] for name in list(found)[:2]] == [12, 2]


def test_twice_the_driver_can_be_missed_by_itself():
    """Where the driver is below half of contiguous, twice as much is asked, also where 0.9 of contiguous is reached."""

    def case(row_nbytes, ours, by_2d):
        return row_nbytes, {rect.OURS: [ours], rect.CONTIGUOUS: [1.0], rect.BY_2D: [by_2d]}

    inside = {"slow": case(4096, 0.93, 0.48), "half": case(4096, 0.93, 0.5), "narrow": case(32, 0.1, 0.1)}
    behind = rect._falls_behind(inside)
    assert list(behind) == ["slow"]
    of_contiguous, over_2d, *_ = rect._targets(inside, behind, inside, inside)
    assert of_contiguous["met"]
    assert (over_2d["limit"], over_2d["met"], over_2d["where"]) == (2, False, "slow")


def test_as_many_copies_as_make_a_time():
    """A sample has as many copies as take 20 ms in one piece, and at least four."""
    assert rect.under_way(256 << 20, 2.08e12) == 155
    assert rect.under_way(256 << 20, 55e9) == 5
    assert rect.under_way(256 << 20, 1e9) == 4


def test_all_contestants_have_as_many_copies_under_way(small, monkeypatch, capsys):
    """The table says how many copies are under way, and ours, contiguous ones and rows by hand are as many."""
    counts = {}

    def timed(copy, dst, src, stream, times):
        counts.setdefault(copy, []).append(times)
        return 1e9

    ours = []
    monkeypatch.setattr(COPIES, "contiguous", "contiguous")
    monkeypatch.setattr(COPIES, "rows", "rows")
    monkeypatch.setattr(COPIES, "timed", timed)
    monkeypatch.setattr(rect, "copied_bytes_per_s", lambda dst, src, times: ours.append(times) or 1.0)
    monkeypatch.setattr(rect, "add_turned", lambda *_: None)
    assert main(["gpu", "--json", "--repeat", "1", "--section", "rect"]) == 0
    tables = json.loads(capsys.readouterr().out)["sections"]["rect"]["tables"]
    assert {key: table["note"][:37] for key, table in tables.items()} == {
        "device": "Copies under way until one wait: 5, b",
        "pinned": "Copies under way until one wait: 5, b",
        "pageable": "Copies under way until one wait: 1.",
    }
    probes = [rect._LEAST_UNDER_WAY] * 3
    assert sorted(counts["contiguous"]) == sorted(counts["rows"] + 2 * probes)
    assert counts["rows"] == ours
    assert set(ours) == {1, 5}


def test_no_case_in_which_the_driver_falls_behind_is_told(small, capsys):
    """Without such a case there is no such target, and the table says why."""
    assert main(["gpu", "--repeat", "1", "--section", "rect", "--markdown"]) == 0
    shown = capsys.readouterr().out
    assert "In no case" in shown
    assert "below half" not in shown


def test_several_gpus_are_compared_with_the_best_on_one():
    """The best form on one GPU over the best on several, whichever forms these are."""
    rows = {
        "a": {"1 GPU": [10.0], "2 GPUs": [9.0]},
        "b": {"1 GPU": [16.0], "2 GPUs": [8.0]},
        pipeline.LINK: {"1 GPU": [6.0], "2 GPUs": [4.0]},
    }
    found = peers.speed_ups(measuring.Table("ms", rows), ["a", "b"])
    assert found[peers.BEST] == {"1 GPU": [1.0], "2 GPUs": [1.25]}
    assert found[pipeline.LINK] == {"1 GPU": [1.0], "2 GPUs": [1.5]}


@pytest.mark.parametrize(("plain", "of_link", "limit"), [(1.8, 1.95, 1.8), (1.8, 1.2, 1.2), (3.2, 0.7, 1.0)])
def test_the_links_bound_what_is_asked(plain, of_link, limit):
    """No more than the links give is asked, and never less than the time of one GPU."""
    assert peers.within_links(plain, of_link) == limit


def test_help_says_what_the_exit_status_means(capsys):
    """A benchmark reports: a missed target is no failure of the command."""
    assert main(["gpu", "--help"]) == 0
    assert "exit status is 0 also where targets are missed" in " ".join(capsys.readouterr().out.split())


def test_turns_are_compared_with_each_other():
    """Ratios are of runs in the same turn, and the warming turn is left out."""
    turns = iter(range(10))
    runs = measuring.alternate({"one": lambda: next(turns), "other": lambda: next(turns)}, 2)
    assert runs == {"one": [2, 4], "other": [3, 5]}
    assert measuring.pairwise([2.0, 4.0], [1.0, 8.0]) == [2.0, 0.5]
    assert measuring.best({"a": [3.0, 1.0, 3.0], "b": [2.0, 2.0, 9.0]}, ["a", "b"]) == "b"


def test_markdown():
    """Cells have the median, of several samples lowest and highest, too; a column that a row lacks stays empty."""
    table = {"title": "Things, µs", "rows": {"one": {"a": [1.0, 2.0, 4.0]}, "two": {"b": [1234.0]}}, "note": "Note."}
    target = measuring.promise("things", {"one": [2.0]}, 3)
    figures = {
        "machine": {"GPUs": "1 x GPU", "cores": "2"},
        "repeat": 3,
        "sections": {"x": {"tables": {"t": table}, "skipped": ""}, "y": {"tables": {}, "skipped": "why not"}},
        "targets": [target],
    }
    assert showing.markdown(figures) == (
        "GPUs 1 x GPU, cores 2.\n\n"
        "Things, µs; medians of 3 turns (lowest to highest):\n\n"
        "|  | a | b |\n|---|---|---|\n| one | 2 (1 to 4) |  |\n| two |  | 1,234 |\n\n"
        "Note.\n\n"
        "Targets, and the worst median:\n\n"
        "|  | target | figure | where |\n|---|---|---|---|\n| things | ≤ 3 | 2 | met: one |\n\n"
        "`y`: why not.\n"
    )
