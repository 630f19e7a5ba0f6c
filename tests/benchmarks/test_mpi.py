"""``benchmarks/run.py mpi``: that it measures on ranks, and that its models take the time that they say."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from offload.tasks.graph import Graph, Node
from tests.mpi.launching import needs_mpi, run

pytestmark = [pytest.mark.bench, needs_mpi]

BENCH = (str(Path(__file__).parents[2] / "benchmarks" / "run.py"), "mpi")
SHORT = ("--quick", "--repeat", "2", "--json")


def printed_json(text):
    """Return the one JSON object that a job has printed; its launcher may print other lines."""
    (line,) = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(line)


@pytest.mark.parametrize("n_ranks", [1, 2])
def test_every_section_on_ranks(n_ranks):
    """Rank 0 prints one JSON object with all sections; one rank says why it measures no overlap."""
    status, printed = run(n_ranks, *BENCH, *SHORT, limit_s=60)
    assert status == 0, printed
    figures = printed_json(printed)
    sections = figures["sections"]
    assert list(sections) == ["latency", "bandwidth", "calls", "overlap", "halo"]
    assert figures["machine"]["ranks"] == str(n_ranks)
    assert bool(sections["overlap"]["skipped"]) == (n_ranks == 1)
    assert "are unordered" in sections["halo"]["tables"]["halo"]["note"]
    if n_ranks == 2:
        rows = sections["overlap"]["tables"]["modelled"]["rows"]
        for schedule in ("planes", "pencils"):
            for form in ("bulk-synchronous", "tasks"):
                (bound,) = rows[f"{form}, bound"][schedule]
                assert len(rows[form][schedule]) == 2
                assert min(rows[form][schedule]) > bound
    assert all(target["met"] in {True, False} for target in figures["targets"])


def test_the_model_on_many_ranks():
    """``--model`` measures its constants, and alone; the field on so many ranks is the last row."""
    status, printed = run(2, *BENCH, *SHORT, "--model", "1024", limit_s=60)
    assert status == 0, printed
    sections = printed_json(printed)["sections"]
    assert list(sections) == ["model"]
    tables = sections["model"]["tables"]
    assert all(min(row[""]) > 0 for row in tables["constants"]["rows"].values())
    assert list(tables["model"]["rows"])[-1] == "1,024"
    assert "12,288³" in tables["model"]["title"]


@pytest.mark.parametrize(("argv", "told"), [(("--repeat", "0"), "--repeat 0"), (("--model", "1"), "--model 1")])
def test_a_mistake_is_told_once(argv, told):
    """A number that means nothing is an error, which rank 0 alone tells."""
    status, printed = run(2, *BENCH, *argv, limit_s=60)
    assert status != 0
    assert printed.count(told) == 1


@pytest.mark.parametrize("condition", ["rank == 1", "True"])
def test_ranks_that_fail_tell_once(condition):
    """What fails on one rank or on all of them in a section ends all, with one message."""
    program = f"""
import sys
from mpi4py import MPI
from benchmarks.mpi import calls
from benchmarks.run import main
rank, measure = MPI.COMM_WORLD.rank, calls.measure
def failing(job):
    if {condition}:
        raise OSError(5, "one is broken")
    return measure(job)
calls.measure = failing
sys.exit(main(sys.argv[1:]))
"""
    status, printed = run(2, "-c", program, "mpi", *SHORT, "--section", "calls", limit_s=60)
    assert status != 0
    assert printed.count("one is broken") == 1, printed


# -- the models -------------------------------------------------------------------------------------------


def test_the_bounds():
    """Of 8 pieces with one exchange the asynchronous form fills whichever of device and link there is more for."""
    from benchmarks.mpi.overlap import bounds_s

    assert bounds_s(8, 8, 8, 0, 64) == (192, 136)
    assert bounds_s(8, 8, 16, 8, 0) == (256, 144)
    assert bounds_s(8, 8, 1, 8, 0) == (136, 128)
    assert bounds_s(1, 2, 3, 4, 5) == (14, 14)


def test_a_link_takes_exchanges_one_after_the_other():
    """Two exchanges that begin together are complete after one time of the link, and after two."""
    from mpi4py import MPI

    from benchmarks.mpi.modelled import Link

    with Link(bytes_per_s=1000) as link:
        began_s = time.perf_counter()
        requests = [link.start(MPI.COMM_SELF.Ibarrier, 20) for _ in range(2)]
        for n_before, request in enumerate(requests):
            request.Wait()
            assert time.perf_counter() - began_s >= 0.02 * (n_before + 1)
        began_s = time.perf_counter()
        with link.busy(20):
            pass
        assert time.perf_counter() - began_s >= 0.02


def test_a_failed_exchange_fails_over_a_link():
    """What the exchange itself ends with reaches whoever waits for the request of the link."""
    from mpi4py import MPI

    from benchmarks.mpi.modelled import Link

    if "Open MPI" in MPI.Get_library_version():
        pytest.skip("Open MPI cuts off a message to oneself that is too long, and says nothing")
    comm = MPI.COMM_SELF.Dup()
    with Link(bytes_per_s=1e15) as link:
        receive = link.start(lambda: comm.Irecv(bytearray(1), 0, 1), 1)
        send = comm.Isend(b"long", 0, 1)
        with pytest.raises(MPI.Exception):
            receive.Wait()
        send.Wait()
    comm.Free()


def test_calls_hold_an_engine_one_after_the_other():
    """Calls on two threads do not overlap, and each takes its time at least."""
    from benchmarks.mpi.modelled import Engine

    engine, running, most = Engine(call_s=0.01), [], []

    def work():
        running.append(None)
        most.append(len(running))
        time.sleep(0)
        running.pop()

    threads = [threading.Thread(target=engine.run, args=(work,)) for _ in range(2)]
    began_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.perf_counter() - began_s >= 0.02
    assert most == [1, 1]


def test_unordered_is_seen_in_the_graph():
    """An exchange that the task behind it follows, also through another one, is ordered with it."""
    from benchmarks.mpi.halo import unordered

    def graph(*edges):
        found = Graph()
        nodes = [found.add_node(Node(str(n), name, "task")) for n, name in enumerate(["rows", "halo", "rest"])]
        for one, other in edges:
            found.add_edge(nodes[one], nodes[other], "RAW")
        return found

    assert unordered(graph((0, 1)), "halo")
    assert not unordered(graph((0, 1), (1, 2)), "halo")
    assert not unordered(graph(), "no such task")
