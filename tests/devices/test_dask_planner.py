"""Plans of the devices of a Dask cluster: segments never wait for each other, and streams pass in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.arrays.items import array_section
from offload.devices.dask.planner import Planner, WorkLine
from offload.devices.dask.wire import Ended

OK = (Ended.OK, None)


class Workers:
    """Carries out the segments that a planner hands out, in any order that their needs allow."""

    def __init__(self, n):
        self.planner = Planner(lambda: None)
        self.planner.lock.acquire()  # all calls are made under it
        self.lines = [WorkLine(f"w{i}", f"tcp://{i}") for i in range(n)]
        self.under_way = []
        self.order = []

    def add(self, line, *, depends=(), follows=(), reads=(), outs=()):
        node = self.planner.new_node(self.lines[line], 0)
        node.depends, node.follows, node.outs = list(depends), list(follows), list(outs)
        self.planner.add(node, reads)
        return node

    def send(self):
        for line in self.lines:
            while (segment := self.planner.next_segment(line)) is not None:
                assert all(node.end is not None for node in segment.awaits)
                self.under_way.append(segment)

    def runnable(self):
        return [segment for segment in self.under_way if all(other.is_over for other in segment.needs)]

    def carry_out(self, segment, failing=frozenset()):
        for node in segment.nodes:
            if node.end is not None:
                continue
            for other in (*node.depends, *node.follows):
                assert other.end is not None
            root = next((other for other in node.depends if other.end[0] != Ended.OK), None)
            self.order.append(node)
            if root is not None:
                self.planner.resolve(node, (Ended.NOT_RUN, root.end[1] if root.end[0] == Ended.NOT_RUN else root))
            else:
                self.planner.resolve(node, (Ended.FAILED, "") if node in failing else OK)
        self.under_way.remove(segment)
        segment.line.n_under_way -= 1


@given(st.data())
def test_every_program_ends_in_any_order(data):
    """Whatever the edges, some segment that was sent can run until all nodes are over; needs are closed earlier."""
    workers = Workers(data.draw(st.integers(1, 4)))
    host = np.zeros(64)
    nodes, edges = [], {}
    for _ in range(data.draw(st.integers(1, 25))):
        line = data.draw(st.integers(0, len(workers.lines) - 1))
        earlier = st.lists(st.sampled_from(nodes), max_size=3) if nodes else st.just([])
        depends, follows = data.draw(earlier), data.draw(earlier)
        low = data.draw(st.integers(0, 60))
        reads = [array_section(host[low : low + 3])] if data.draw(st.booleans()) else []
        outs = [(array_section(host[low : low + 2]), host)] if data.draw(st.booleans()) else []
        node = workers.add(line, depends=depends, follows=follows, reads=reads, outs=outs)
        nodes.append(node)
        edges[node] = set(depends) | set(follows)
        if data.draw(st.booleans()):
            workers.send()
            if (ready := workers.runnable()) and data.draw(st.booleans()):
                workers.carry_out(data.draw(st.sampled_from(ready)))
    while any(node.end is None for node in nodes):
        workers.send()
        for segment in workers.under_way:
            assert segment.closed
            assert all(0 < other.closed < segment.closed for other in segment.needs)
        ready = workers.runnable()
        assert ready, "segments wait for each other"
        workers.carry_out(data.draw(st.sampled_from(ready)))
    place = {node: at for at, node in enumerate(workers.order)}
    assert all(place[other] < place[node] for node in nodes for other in edges[node])


@given(st.data())
def test_a_failure_goes_along_depends_alone(data):
    """A node runs unless a node that it depends on, perhaps by way of others, has failed; following does not matter."""
    workers = Workers(2)
    nodes, failing, spoilt = [], set(), set()
    for _ in range(data.draw(st.integers(1, 15))):
        earlier = st.lists(st.sampled_from(nodes), max_size=2) if nodes else st.just([])
        depends, follows = data.draw(earlier), data.draw(earlier)
        node = workers.add(data.draw(st.integers(0, 1)), depends=depends, follows=follows)
        nodes.append(node)
        if data.draw(st.integers(0, 3)) == 0:
            failing.add(node)
        if spoilt.intersection(depends) or node in failing:
            spoilt.add(node)
        workers.send()
        if (ready := workers.runnable()) and data.draw(st.booleans()):
            workers.carry_out(ready[0], failing)
    while any(node.end is None for node in nodes):
        workers.send()
        workers.carry_out(workers.runnable()[0], failing)
    assert {node for node in nodes if node.end[0] != Ended.OK} == spoilt


def test_a_stream_passes_in_order():
    """A node whose end is known early counts as passed only after the nodes before it on its stream."""
    workers = Workers(1)
    first, second = workers.add(0), workers.add(0)
    second.previous, first.next = first, second
    workers.planner.resolve(second, OK)
    assert not second.done
    workers.planner.resolve(first, OK)
    assert first.done
    assert second.done


def test_a_read_awaits_the_copies_to_the_same_bytes():
    """A node that reads host memory is sent when the copy to it has arrived; nodes before it do not wait."""
    workers = Workers(1)
    host = np.zeros(8)
    writer = workers.add(0, outs=[(array_section(host[:4]), host[:4])])
    before = workers.add(0)
    reader = workers.add(0, reads=[array_section(host[3:5])])
    other = workers.add(0, reads=[array_section(host[6:])])
    workers.send()
    assert [segment.nodes for segment in workers.under_way] == [[writer, before]]
    workers.carry_out(workers.under_way[0])
    workers.send()
    assert [segment.nodes for segment in workers.under_way] == [[reader, other]]


def test_at_most_two_segments_are_under_way():
    """A worker that is busy gets the nodes that have gathered meanwhile as one segment."""
    workers = Workers(1)
    for _ in range(2):
        workers.add(0)
        workers.send()
    for _ in range(10):
        workers.add(0)
        workers.send()
    assert [len(segment.nodes) for segment in workers.under_way] == [1, 1]
    workers.carry_out(workers.under_way[0])
    workers.send()
    assert [len(segment.nodes) for segment in workers.under_way] == [1, 10]


@pytest.mark.parametrize("kind", [Ended.FAILED, Ended.LOST, Ended.MISSING])
def test_a_node_that_depends_on_a_known_failure_is_over_at_once(kind):
    """Such a node is never sent."""
    workers = Workers(1)
    first = workers.add(0)
    workers.send()
    workers.planner.resolve(first, (kind, ()))
    second = workers.add(0, depends=[first])
    assert second.end == (Ended.NOT_RUN, first)
    assert workers.lines[0].open is None


@pytest.mark.parametrize("edge", ["depends", "follows"])
def test_ends_are_noted_in_order(edge):
    """A worker's report that comes early waits for the reports of nodes before: their copies are on their way."""
    workers = Workers(2)
    host = np.zeros(8)
    first = workers.add(0, outs=[(array_section(host), host)])
    second = workers.add(1, **{edge: [first]})
    third = workers.add(1, depends=[second])
    workers.planner.resolve(third, (Ended.NOT_RUN, second))
    workers.planner.resolve(second, (Ended.FAILED, ValueError()))
    assert second.end is None
    assert third.end is None
    workers.planner.resolve(first, OK)
    assert second.end[0] == Ended.FAILED
    assert third.end == (Ended.NOT_RUN, second)


def test_a_loss_is_noted_at_once():
    """What a lost node was to follow does not hold it."""
    workers = Workers(2)
    first = workers.add(0)
    second = workers.add(1, depends=[first])
    workers.planner.resolve(second, (Ended.LOST, ()))
    assert second.end[0] == Ended.LOST


def test_a_node_after_one_that_cannot_run():
    """It does not run either, although the end of the first one is not noted yet."""
    workers = Workers(2)
    failed, running = workers.add(0), workers.add(1)
    workers.planner.resolve(failed, (Ended.FAILED, ValueError()))
    second = workers.add(0, depends=[failed, running])
    third = workers.add(1, depends=[second])
    assert second.end is third.end is third.segment is None
    workers.planner.resolve(running, OK)
    assert second.end == third.end == (Ended.NOT_RUN, failed)


def test_a_long_chain_whose_ends_come_early():
    """The report of the first node settles all others, however many they are."""
    workers = Workers(1)
    nodes = [workers.add(0)]
    for _ in range(5000):
        nodes.append(workers.add(0, depends=[nodes[-1]]))
    for node in nodes[1:]:
        workers.planner.resolve(node, OK)
    assert nodes[-1].end is None
    workers.planner.resolve(nodes[0], OK)
    assert all(node.end == OK for node in nodes)
