"""Lanes: the order of their marks."""

from __future__ import annotations

from offload.devices.streams import Lane


class Recorder:
    """A device whose events are numbers, in the order in which they were recorded; something may happen meanwhile."""

    def __init__(self):
        self.n_recorded = 0
        self.meanwhile = None

    def record(self, stream):
        self.n_recorded += 1
        event = self.n_recorded
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()
        return event


def test_marks_are_in_the_order_of_their_events():
    """Where another thread marks a lane between the event of a mark and its number, both have one order."""
    device = Recorder()
    lane = Lane(device, None, 0)
    others = []
    marks = [lane.mark()]
    for _ in range(3):
        device.meanwhile = lambda: others.append(lane.mark())
        marks.append(lane.mark())
    every = sorted(marks + others, key=lambda point: point.sequence)
    assert [point.sequence for point in every] == list(range(1, 8))
    assert [point.event for point in every] == sorted(point.event for point in every)
