"""What a trace must be, whatever program made it."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path

TASK_ARGS = {"key", "directive", "location", "state", "waited_us"}
STATES = {"complete", "failed", "not run", "cancelled"}


def read(path):
    """Return the events of a trace."""
    path = Path(path)
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    document = json.loads(data)
    assert set(document) == {"traceEvents", "displayTimeUnit"}
    assert document["displayTimeUnit"] == "ns"
    return document["traceEvents"]


def ns(us):
    """Return microseconds as whole nanoseconds, which they are."""
    assert abs(us * 1000 - round(us * 1000)) < 1e-3
    return round(us * 1000)


def check(events):
    """Check all rules; return the slices of tasks, by key."""
    for event in events:
        assert event["ph"] in "MXbesfC", event
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert 0 <= event["tid"] < 2**31
        if event["ph"] != "M":
            assert event["ts"] >= 0
    _check_names(events)
    slices = _check_nesting(events)
    _check_pairs(events)
    _check_flows(events, slices)
    _check_counters(events)
    return _check_tasks(events)


def _check_names(events):
    processes = {event["pid"] for event in events if event["name"] == "process_name" and event["ph"] == "M"}
    threads = {
        (event["pid"], event["tid"]) for event in events if event["name"] == "thread_name" and event["ph"] == "M"
    }
    tracks = {(event["pid"], event["tid"]) for event in events if event["ph"] in "Xbe"}
    assert tracks <= threads
    assert {pid for pid, _ in tracks} <= processes


def _check_nesting(events):
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = ns(event["ts"])
            assert event["dur"] >= 0
            tracks[event["pid"], event["tid"]].append((start, start + ns(event["dur"])))
    for slices in tracks.values():
        slices.sort(key=lambda one: (one[0], -one[1]))
        ends = []
        for start, end in slices:
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or end <= ends[-1], "slices of one track overlap"
            ends.append(end)
    return tracks


def _check_pairs(events):
    begun, ended = {}, {}
    for event in events:
        if event["ph"] in "be":
            table = begun if event["ph"] == "b" else ended
            key = event["cat"], event["id"]
            assert key not in table, "an id of a pair comes twice"
            table[key] = event
    assert begun.keys() == ended.keys()
    for key, first in begun.items():
        assert ns(first["ts"]) <= ns(ended[key]["ts"])
        assert first["name"] == ended[key]["name"]


def _check_flows(events, tracks):
    begun, ended = {}, {}
    for event in events:
        if event["ph"] in "sf":
            table = begun if event["ph"] == "s" else ended
            assert event["id"] not in table
            table[event["id"]] = event
            at = ns(event["ts"])
            assert any(start <= at <= end for start, end in tracks[event["pid"], event["tid"]]), (
                "a flow lies in no slice"
            )
    assert begun.keys() == ended.keys()
    for number, first in begun.items():
        last = ended[number]
        assert last["bp"] == "e"
        assert ns(first["ts"]) <= ns(last["ts"])
        assert (first["pid"], first["tid"]) != (last["pid"], last["tid"])


def _check_counters(events):
    series = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            assert event["args"]["value"] >= 0
            series[event["pid"], event["name"]].append(event["ts"])
    for times in series.values():
        assert times == sorted(times)


def _check_tasks(events):
    tasks = {}
    counts = Counter()
    for event in events:
        if "args" in event and "key" in event["args"]:
            assert set(event["args"]) == TASK_ARGS
            assert event["args"]["state"] in STATES
            assert event["args"]["waited_us"] >= 0
            counts[event["args"]["key"], event["cat"]] += 1
            tasks.setdefault(event["args"]["key"], event)
    assert all(count == 1 for count in counts.values())
    return tasks
