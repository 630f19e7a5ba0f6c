"""Recorded graphs and taskgraphs on a cluster: few segments, values, failures."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, tofrom


@omp.target
def add(x, value):
    x += value
    return float(x[0])


def n_segments(runtime):
    return runtime.places[0].device.cluster.planner._n_segments


def test_a_graph_is_sent_in_one_go(on_workers, client):
    """Two chains on two workers are one segment each, whatever their length."""
    x, y = np.zeros(10), np.zeros(10)
    with omp.target_data(map=[tofrom(x)], device=0), omp.target_data(map=[tofrom(y)], device=1):
        with omp.record(execute=False) as graph:
            for _ in range(50):
                add.options(nowait=True, device=0, depend=[inout(x)])(x, 1)
                add.options(nowait=True, device=1, depend=[inout(y)])(y, 2)
            omp.taskwait()
        before = n_segments(on_workers)
        values = graph.compute(client)
        assert n_segments(on_workers) - before == 2
        assert [values[node.key] for node in graph.tasks][:4] == [1.0, 2.0, 2.0, 4.0]
        graph.compute()
    assert x[0] == 100
    assert y[0] == 200


def test_host_tasks_in_a_graph(on_workers, client):
    """They run in the client, between the regions that the edges say, and pass values on."""
    x, seen = np.zeros(4), []
    with omp.record(execute=False) as graph:
        first = add.options(nowait=True, depend=[inout(x)])(x, 3)
        omp.task(depend=[inout(x)])(lambda x: seen.append(x.copy()) or x.__iadd__(1))(x)
        omp.task(seen.append)(first)
        add.options(nowait=True, device=1, depend=[inout(x)])(x, 10)
    graph.compute(client)
    assert sorted(np.ravel(one)[0] for one in seen) == [3.0, 3.0]
    assert (x == 14).all()


def test_a_failure_in_a_graph(on_workers, client):
    """The body's own exception is raised, and what depends on it has not run."""
    x = np.zeros(4)

    def breaks(x):
        raise KeyError("here")

    with omp.record(execute=False) as graph:
        omp.target(breaks).options(nowait=True, depend=[inout(x)])(x)
        add.options(nowait=True, depend=[inout(x)])(x, 1)
        add.options(nowait=True, device=1)(np.zeros(3), 1)
    with pytest.raises(KeyError, match="here"):
        graph.compute(client)
    assert [node.state for node in graph.tasks] == ["failed", "not run", "complete"]
    assert not x.any()


def test_the_threads_run_it_too(on_workers):
    """Another scheduler runs the graph node by node, on the same devices."""
    x = np.zeros(4)
    with omp.record(execute=False) as graph:
        add.options(nowait=True, depend=[inout(x)])(x, 1)
        add.options(nowait=True, device=1, depend=[inout(x)])(x, 1)
    graph.compute("threads")
    assert (x == 2).all()


def test_another_clusters_client(on_workers):
    """A graph of a cluster's runtime runs there, and an unknown argument is an error."""
    from distributed import Client

    with omp.record(execute=False) as graph:
        add.options(nowait=True)(np.zeros(3), 1)
    other = Client(processes=False, n_workers=1, dashboard_address=":0", set_as_default=False)
    with other, pytest.raises(omp.errors.UnsupportedError):
        graph.compute(other)
    with pytest.raises(omp.errors.ClauseError):
        graph.compute(num_workers=3)
    with pytest.raises(omp.errors.UsageError):
        graph.compute(retries=-1)


def test_a_taskgraph_replays(on_workers):
    """Its tasks are planned again, and see the data of the calls before."""
    x, y = np.zeros(4), np.zeros(4)

    @omp.taskgraph
    def step():
        add.options(nowait=True, device=0, depend=[inout(x)])(x, 1)
        omp.target(lambda y, x: y.__iadd__(x) is None).options(
            nowait=True, device=1, map=[tofrom("y"), omp.to("x")], depend=[inout(y), in_(x)]
        )(y, x)

    for _ in range(4):
        step()
    assert (x == 4).all()
    assert (y == 10).all()


def test_a_replay_is_sent_in_one_go(on_workers):
    """The regions of a taskgraph go to their worker as one segment."""
    x = np.zeros(4)

    @omp.taskgraph
    def steps():
        for _ in range(50):
            add.options(nowait=True, depend=[inout(x)])(x, 1)

    with omp.target_data(map=[tofrom(x)]):
        steps()
        before = n_segments(on_workers)
        steps()
        assert n_segments(on_workers) - before == 1
    assert (x == 100).all()
