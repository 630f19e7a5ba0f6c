"""Count how a call walks through the package's files: the table "What was seen", made again.

``python benchmarks/walk.py [--repeat 9] [--json] [--show ROW]`` walks four calls on ``sim:1``. The package is the one
that ``import offload`` finds: ``PYTHONPATH=/another/tree python benchmarks/walk.py`` walks another tree's.

Only calls of Python functions whose code lies in the package's files count, and only those of the main thread:

* *calls*: such calls, and generators that are resumed; the cyclic collector is off meanwhile;
* *visits*: runs of calls in one file. A call into another file than the call before begins a visit, a return does not:
  a straight way down through three files and back has three visits;
* *files*: different files that are visited;
* *returns*: visits of a file that was visited before, which is *visits* - *files*;
* *turns* (in the JSON only): changes of the running file when returns are followed too.

The rows are walked one after the other in a new runtime, in a process that has made each of the calls before. *First*
walks are those of the table: the second deferred target, the first blocking target behind it, the second update.
*Settled* ones are the tenth of their kind or later: by then the streams are open. Each figure is the median walk, by
visits, of several runtimes.

The references were taken with this program at commit ae7c813, "The test of deep nesting begins at every place of the
stack again". CPython 3.11 makes a call of each comprehension, later ones do not, so that there are two references.
"""

import argparse
import gc
import json
import os
import platform
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

import offload as omp
from offload import acc, inout, tofrom

PACKAGE = str(Path(omp.__file__).parent) + os.sep
N_ELEMENTS = 1000
N_SETTLED = 10
"""Calls of a kind of which the last one is settled: a serial program opens eight streams one by one."""

VISITS_GOAL, RETURNS_GOAL = 0.6, 0.5
"""The most that visits and returns may be of the reference's, in the rows of `JUDGED`."""

INOUT = "inout(x)"
NOWAIT = "target(map, depend, nowait)(x), taskwait"
BLOCKING = "blocking target(x)"
UPDATE = "acc.update(self_=[x], async_=1)"
ROWS = INOUT, NOWAIT, BLOCKING, UPDATE
JUDGED = ROWS[1:]


class Counts(NamedTuple):
    """What a walk comes to."""

    visits: int
    calls: int
    files: int
    returns: int
    turns: int


class Event(NamedTuple):
    """A call of a function of the package, or the return from one."""

    is_call: bool
    file: str
    function: str


_REFERENCES = {
    False: {
        "first": [(7, 3, 3, 0), (184, 134, 31, 103), (302, 209, 25, 184), (165, 103, 30, 73)],
        "settled": [(7, 3, 3, 0), (174, 129, 31, 98), (292, 203, 24, 179), (165, 103, 30, 73)],
    },
    True: {
        "first": [(6, 3, 3, 0), (181, 133, 31, 102), (289, 208, 25, 183), (155, 100, 30, 70)],
        "settled": [(6, 3, 3, 0), (171, 128, 31, 97), (279, 202, 24, 178), (155, 100, 30, 70)],
    },
}
"""By whether comprehensions are inlined (taken on CPython 3.11.7 and 3.12.1), and by state, in the order of `ROWS`.

Each has calls, visits, files, returns.
"""


def reference(row, state, *, inlines=sys.version_info >= (3, 12)):
    """Return calls, visits, files and returns of the commit that the goals are set against."""
    return _REFERENCES[inlines][state][ROWS.index(row)]


def walk(call):
    """Call once, and return the events of the package's functions in this thread, in order."""
    events = []

    def note(frame, event, _):
        if event in {"call", "return"}:
            code = frame.f_code
            if code.co_filename.startswith(PACKAGE):
                events.append(Event(event == "call", code.co_filename[len(PACKAGE) :], code.co_qualname))

    gc.collect()
    gc.disable()  # what it finds belongs to other calls
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return events


def visits(events):
    """Yield the file and the functions called of each visit."""
    file, functions = "", []
    for event in events:
        if event.is_call and event.file == file:
            functions.append(event.function)
        elif event.is_call:
            if functions:
                yield file, functions
            file, functions = event.file, [event.function]
    if functions:
        yield file, functions


def count(events):
    """Return what the events of a walk come to."""
    seen = [file for file, _ in visits(events)]
    files = len(set(seen))
    return Counts(len(seen), sum(event.is_call for event in events), files, len(seen) - files, _turns(events))


def _turns(events):
    """Return how often the running file changes, along calls and returns."""
    turns, stack, running = 0, [], None
    for event in events:
        if event.is_call:
            stack.append(event.file)
        elif stack:
            stack.pop()
        if stack and stack[-1] != running:
            turns, running = turns + 1, stack[-1]
    return turns


def walks():
    """Walk each row in a new runtime on a simulated device; return the events of the first and settled walks."""
    x = np.ones(N_ELEMENTS)

    def add(x):
        x += 1

    def deferred_and_wait():
        deferred(x)
        omp.taskwait()

    def update():
        acc.update(self_=[x], async_=1)

    with omp.Runtime("sim:1"):
        deferred = omp.target(add).options(map=[tofrom(x)], depend=[inout(x)], nowait=True)
        blocking = omp.target(add)
        kinds = {
            NOWAIT: (deferred_and_wait, 1),
            BLOCKING: (lambda: blocking(x), 0),
            INOUT: (lambda: inout(x), 0),
            UPDATE: (update, 1),
        }
        found = {}
        for state in ("first", "settled"):
            for row, (call, n_before) in kinds.items():
                if row == UPDATE:
                    acc.enter_data(copyin=[x])
                for _ in range(n_before if state == "first" else N_SETTLED - 1):
                    call()
                    acc.wait()
                found[row, state] = walk(call)
                acc.wait()
                if row == UPDATE:
                    acc.exit_data(delete=[x])
    return {row: {state: found[row, state] for state in ("first", "settled")} for row in ROWS}


def measure(repeat):
    """Return the median walk of each row, first and settled, as lists of events."""
    walks()  # fills what the process keeps
    runs = [walks() for _ in range(repeat)]
    return {
        row: {
            state: sorted((run[row][state] for run in runs), key=count)[repeat // 2] for state in ("first", "settled")
        }
        for row in ROWS
    }


def compare(row, state, found):
    """Return the figures of a walk, the reference's, and the ratios to them."""
    then = dict(zip(("calls", "visits", "files", "returns"), reference(row, state), strict=True))
    ratios = {key: getattr(found, key) / then[key] if then[key] else None for key in ("visits", "returns")}
    figures = {**found._asdict(), "reference": then, "ratios": ratios}
    if row in JUDGED:
        figures["met"] = ratios["visits"] <= VISITS_GOAL and ratios["returns"] <= RETURNS_GOAL
    return figures


def show(events):
    """Print each visit: its file, and the functions called there."""
    for number, (file, functions) in enumerate(visits(events), 1):
        print(f"{number:4} {file:32} {', '.join(functions)}")


def table(rows):
    """Print the figures in Markdown."""
    print("| walked | calls | visits of files | files | returns | visits, returns / reference | goal |")
    print("|---|---|---|---|---|---|---|")
    for row, states in rows.items():
        for state, figures in states.items():
            then, ratios = figures["reference"], figures["ratios"]
            cells = [f"{figures[key]} ({then[key]})" for key in ("calls", "visits", "files", "returns")]
            over = ", ".join("" if one is None else f"{one:.2f}" for one in ratios.values())
            goal = {None: "", True: "met", False: "missed"}[figures.get("met")]
            print(f"| `{row}`, {state} | {' | '.join(cells)} | {over} | {goal} |")
    print(f"\nIn brackets the reference; the goal is {VISITS_GOAL:g} of its visits, {RETURNS_GOAL:g} of its returns.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", metavar="N", type=int, default=9, help="runtimes that are walked (default: 9)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument(
        "--show", metavar="ROW", type=int, choices=range(1, len(ROWS) + 1), help="print this row's visits"
    )
    args = parser.parse_args()
    if args.repeat < 1:
        parser.error(f"--repeat {args.repeat}: take a number of at least 1")
    found = measure(args.repeat)
    if args.show:
        show(found[ROWS[args.show - 1]]["first"])
        return
    rows = {
        row: {state: compare(row, state, count(events)) for state, events in states.items()}
        for row, states in found.items()
    }
    if args.json:
        goals = {"visits": VISITS_GOAL, "returns": RETURNS_GOAL}
        about = {"package": PACKAGE, "python": platform.python_version(), "repeat": args.repeat, "goals": goals}
        print(json.dumps({**about, "rows": rows}))
    else:
        table(rows)


if __name__ == "__main__":
    main()
