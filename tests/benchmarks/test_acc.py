"""``benchmarks/run.py acc``: blocks of columns in OpenACC's queues, and what these gain on the simulated device."""

from __future__ import annotations

import json
import threading
from functools import partial
from statistics import median

import numpy as np
import pytest

import offload as omp
from benchmarks.acc import columns
from benchmarks.acc import command as bench
from benchmarks.harness.measuring import alternate, pairwise
from benchmarks.run import main
from offload import acc

pytestmark = pytest.mark.bench

_TRIES = 6


@pytest.fixture
def small(monkeypatch):
    """Small blocks, each with one pass over it."""
    monkeypatch.setattr(bench, "SHAPE", (64, 2 * bench.N_BLOCKS))
    monkeypatch.setattr(bench, "CHUNK_S", 0.0)


def test_every_sample_is_in_json(small, capsys):
    """JSON has a sample of both forms and of their ratio for each turn, and one target."""
    assert main(["acc", "--repeat", "3", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    tables = figures["sections"]["acc"]["tables"]
    blocking, asynchronous = (
        tables["columns"]["rows"][name]["all"] for name in (columns.BLOCKING, columns.ASYNCHRONOUS)
    )
    assert len(blocking) == len(asynchronous) == 3
    (ratios,) = (row["ratio"] for row in tables["speed_up"]["rows"].values())
    assert ratios == pytest.approx(pairwise(blocking, asynchronous))
    (target,) = figures["targets"]
    assert target["met"] == (median(ratios) >= target["limit"])


def test_a_table_for_people(small, capsys):
    """Without JSON it prints both forms and the target, and a missed one is no failure."""
    assert main(["acc", "--devices", "sim:2", "--repeat", "1"]) == 0
    shown = capsys.readouterr().out
    for words in ("asynchronous", "blocking", "Targets"):
        assert words in shown


@pytest.mark.parametrize(("argv", "told"), [(["--repeat", "0"], "--repeat"), (["--devices", "none"], "--devices")])
def test_what_cannot_be_measured(capsys, argv, told):
    """A mistake in an option is an error that names it."""
    assert main(["acc", *argv]) == 2
    assert told in capsys.readouterr().err


def test_a_wrong_result_is_no_figure(small, monkeypatch):
    """A form that leaves out the copies back is not timed."""
    update = acc.update
    monkeypatch.setattr(acc, "update", lambda *, self_=(), **clauses: None if self_ else update(**clauses))
    with omp.Runtime("sim"), pytest.raises(omp.InternalError, match="columns"):
        bench.measure(1)


def test_each_block_has_its_queue(runtime):
    """Asynchronously each block of columns is in a queue of its own; the result is that of the blocking form."""
    results, queues = [], []
    record = acc.update

    def update(**clauses):
        queues.append(clauses["async_"])
        return record(**clauses)

    for asynchronous in (False, True):
        matrix = np.asfortranarray(np.arange(5 * 12.0).reshape(5, 12))
        with acc.data(create=[matrix]), pytest.MonkeyPatch.context() as patch:
            patch.setattr(acc, "update", update)
            columns.process(matrix, 4, bench.work, 2, asynchronous=asynchronous)
        results.append(matrix)
    assert (results[0] == results[1]).all()
    assert queues == [None] * 8 + [0, 0, 1, 1, 2, 2, 3, 3]


def test_queues_overlap():
    """Blocks of at least 5 ms take at most 1 / 1.3 of the blocking time in queues, in the median of 7 turns.

    What bounds it are two cores, which give 2 at most: NumPy's loops release the GIL, so that two blocks are computed
    at once. Others on the machine take the second core. So the best of several tries counts, and where two threads
    without a runtime gain less than 1.6 in the same turns, 0.8 of what they gain is asked for.
    """
    found = []
    matrix = np.ones(bench.SHAPE, order="F")
    spare = matrix.copy(order="F")
    with omp.Runtime("sim:1", num_threads=4, check=True), acc.data(create=[matrix]):
        for _ in range(_TRIES):
            passes = bench.calibrated(matrix)
            forms = {asynchronous: _run(matrix, passes, asynchronous) for asynchronous in (False, True)}
            forms["threads"] = partial(columns.timed, partial(_with_two_threads, spare, passes))
            runs = alternate(forms, 7)
            gain, bound = (median(pairwise(runs[False], runs[other])) for other in (True, "threads"))
            chunk_s = median(runs[False]) / bench.N_BLOCKS
            found.append(f"{gain:.2f}, two threads {bound:.2f}, blocks of {chunk_s * 1e3:.1f} ms")
            if chunk_s >= 5e-3 and gain >= min(bench.SPEED_UP, 0.8 * bound):
                return
    pytest.fail("blocking / asynchronous: " + "; ".join(found))


def _run(matrix, passes, asynchronous):
    return partial(
        columns.timed,
        partial(columns.process, matrix, bench.N_BLOCKS, bench.work, passes, asynchronous=asynchronous),
    )


def _with_two_threads(matrix, passes):
    """Do the work on all blocks by plain threads, each on every other block."""

    def run(blocks):
        for block in blocks:
            bench.compute(block, passes)

    blocks = list(columns.blocks(matrix, bench.N_BLOCKS))
    thread = threading.Thread(target=run, args=(blocks[::2],))
    thread.start()
    run(blocks[1::2])
    thread.join()
