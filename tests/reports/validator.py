"""What a trace must be, whatever program made it.

The rules are those of the Trace Event Format, and those of the parsers of JSON in Perfetto's trace processor. (They are
``src/trace_processor/importers/json`` and ``util/json_parser.h`` in google/perfetto, versions of 2022 to 2025. Where
versions differ, a trace must do for all of them.)
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

TASK_ARGS = {"key", "directive", "location", "state", "waited_us"}
STATES = {"complete", "failed", "not run", "cancelled"}


def read(path):
    """Return the events of a trace."""
    path = Path(path)
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    _check_text(data.decode())
    document = json.loads(data)
    assert set(document) == {"traceEvents", "displayTimeUnit"}
    assert document["displayTimeUnit"] == "ns"
    return document["traceEvents"]


def _check_text(text):
    """Check what parsers that are less general than JSON need."""
    assert text.startswith('{"displayTimeUnit"'), "the unit is looked for at the beginning only"
    assert not re.search(r"\\u[dD][89a-fA-F]", text), "surrogates are refused"
    assert "\\\\" not in text, "a quote after a backslash does not end a string"
    for line in text.splitlines():
        if line.startswith("{") and '"ph":"M"' not in line and '"ph"' in line:
            assert line.index('"ts":') < line.index('"name":'), "the time is looked for before other strings are parsed"


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
    _check_numbers(events)
    slices = _check_nesting(events)
    _check_pairs(events)
    _check_flows(events, slices)
    _check_binding(events)
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


def _check_numbers(events):
    """Check that a number names one track: parsers name threads by it alone, and the main thread has the process's."""
    processes = {event["pid"] for event in events}
    of = {}
    for event in events:
        if event["ph"] in "Xbesf":
            assert event["tid"] not in processes
            assert of.setdefault(event["tid"], event["pid"]) == event["pid"]
        elif event["ph"] == "C":
            assert event["tid"] == event["pid"], "counters belong to processes"
    named = [event["tid"] for event in events if event["name"] == "thread_name"]
    assert len(named) == len(set(named))
    assert all(
        isinstance(event["args"]["name"], str) and event["args"]["name"] for event in events if event["ph"] == "M"
    )


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
        assert [first[what] for what in ("name", "pid", "tid")] == [ended[key][what] for what in ("name", "pid", "tid")]


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


def _check_binding(events):
    """Check that each flow is bound to a slice, as the trace processor does it: the innermost that is open then."""
    open_slices = defaultdict(list)
    in_time = sorted((event for event in events if event["ph"] in "Xsf"), key=lambda event: ns(event["ts"]))
    bound = {}
    for event in in_time:
        stack, at = open_slices[event["tid"]], ns(event["ts"])
        while stack and stack[-1][0] < at:
            stack.pop()
        if event["ph"] == "X":
            while stack and stack[-1][0] <= at:
                stack.pop()
            stack.append((at + ns(event["dur"]), event))
            continue
        assert stack, "a flow is bound to no slice"
        if event["ph"] == "s":
            bound[event["id"]] = stack[-1][1]
        else:
            assert event["id"] in bound, "a flow ends before it begins"
            assert bound[event["id"]] is not stack[-1][1]


def _check_counters(events):
    series = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            assert set(event["args"]) == {"value"}
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
