"""Count the files of the package that a call visits, and the calls that it makes there.

``python benchmarks/walk.py [--repeat 9] [--json] [--show ROW]`` walks some operations on ``sim:1``. The package is the
one that ``import offload`` finds: ``PYTHONPATH=/another/tree python benchmarks/walk.py`` walks another tree's.

Only calls of Python functions whose code lies in the package's files count, and only those of the encountering thread:

* *files*: different files that are visited, which is how many a reader has to open;
* *calls*: such calls, and generators that are resumed; the cyclic collector is off meanwhile.

The rows are walked one after the other in a new runtime, in a process that has made each of the calls before. *First*
walks are the second of their kind for a deferred operation, else the first: what is opened once is open. *Settled* ones
are the tenth of their kind: by then the streams are open. Each figure is the median walk, by files, of several
runtimes. They have no workers, so that an operation with its wait includes all that the library does for it. CPython
3.11 makes a call of each comprehension, later ones do not.
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
from offload import acc, inout, out, release, to

PACKAGE = str(Path(omp.__file__).parent) + os.sep
N_ELEMENTS = 1000
N_SETTLED = 10
"""Calls of a kind of which the last one is settled: a serial program opens eight streams one by one."""


class Counts(NamedTuple):
    """What a walk comes to."""

    files: int
    calls: int


class Call(NamedTuple):
    """A call of a function of the package."""

    file: str
    function: str


class Row(NamedTuple):
    """An operation that is walked.

    Attributes
    ----------
    call : callable
        The operation.
    n_before : int
        How many of its kind come before a first walk.
    """

    call: object
    n_before: int = 0


def walk(call):
    """Call once, and return the calls of the package's functions in this thread, in order."""
    calls = []

    def note(frame, event, _):
        if event == "call":
            code = frame.f_code
            if code.co_filename.startswith(PACKAGE):
                calls.append(Call(code.co_filename[len(PACKAGE) :], code.co_qualname))

    gc.collect()
    gc.disable()  # what it finds belongs to other calls
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


def count(calls):
    """Return what the calls of a walk come to."""
    return Counts(len({call.file for call in calls}), len(calls))


def rows():
    """Yield the name and the operation of each row, while the data that it needs is there."""
    x, y = np.ones(N_ELEMENTS), np.ones(N_ELEMENTS)
    ordered = [inout(x)]

    def add(x):
        x += 1

    deferred = omp.target(add).options(nowait=True, depend=ordered)
    blocking = omp.target(add)
    task = omp.task(add)
    yield "inout(x)", Row(lambda: inout(x))
    yield "task", Row(lambda: task(x), 1)
    yield "task, depend", Row(lambda: task.options(depend=ordered)(x), 1)
    yield "target nowait that maps, depend", Row(lambda: deferred(x), 1)
    yield "target nowait that maps, taskwait", Row(lambda: (deferred(x), omp.taskwait()), 1)
    yield "target that maps, blocking", Row(lambda: blocking(y))
    omp.target_enter_data(map=[to(x)])  # no block: that would belong to this generator
    yield "target nowait, present, depend", Row(lambda: deferred(x), 1)
    yield "target, present, blocking", Row(lambda: blocking(x))
    yield "target_update nowait, depend", Row(lambda: omp.target_update(to=[x], nowait=True, depend=ordered), 1)
    yield "target_update, blocking", Row(lambda: omp.target_update(to=[x]))
    region = acc.parallel(add).options(async_=1)
    yield "acc.parallel async_, present", Row(lambda: region(x), 1)
    yield "acc.update async_", Row(lambda: acc.update(self_=[x], async_=1), 1)
    omp.target_exit_data(map=[release(x)])
    array = omp.target_alloc(N_ELEMENTS, dtype="f8")
    copied = [out(array)]
    yield "target_memcpy_async, depend", Row(lambda: omp.target_memcpy_async(array, x, depend=copied), 1)
    yield "target_memcpy, blocking", Row(lambda: omp.target_memcpy(array, x))
    omp.target_free(array)


def walks():
    """Walk each row in a new runtime on a simulated device; return the calls of the first and settled walks."""
    found = {}
    for state in ("first", "settled"):
        with omp.Runtime("sim:1", num_threads=0):  # all of it is done by the encountering thread
            for name, row in rows():
                for _ in range(row.n_before if state == "first" else N_SETTLED - 1):
                    row.call()
                    settle()
                found.setdefault(name, {})[state] = walk(row.call)
                settle()
    return found


def settle():
    """Wait for everything."""
    acc.wait()
    omp.taskwait()


def measure(repeat):
    """Return the median walk of each row, first and settled, as lists of calls."""
    walks()  # fills what the process keeps
    runs = [walks() for _ in range(repeat)]
    return {
        name: {state: sorted((run[name][state] for run in runs), key=count)[repeat // 2] for state in states}
        for name, states in runs[0].items()
    }


def show(calls):
    """Print the functions called in each file, files in the order in which they are reached."""
    files = {}
    for call in calls:
        files.setdefault(call.file, []).append(call.function)
    for number, (file, functions) in enumerate(files.items(), 1):
        print(f"{number:4} {file:32} {', '.join(functions)}")


def table(figures):
    """Print the figures in Markdown."""
    print("| walked | files, first | calls | files, settled | calls |")
    print("|---|---|---|---|---|")
    for name, states in figures.items():
        cells = [str(states[state][key]) for state in ("first", "settled") for key in ("files", "calls")]
        print(f"| {name} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", metavar="N", type=int, default=9, help="runtimes that are walked (default: 9)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--show", metavar="ROW", type=int, help="print the files and functions of this row, from 1 on")
    args = parser.parse_args()
    if args.repeat < 1:
        parser.error(f"--repeat {args.repeat}: take a number of at least 1")
    found = measure(args.repeat)
    if args.show is not None:
        if not 1 <= args.show <= len(found):
            parser.error(f"--show {args.show}: there are rows 1 to {len(found)}")
        show(list(found.values())[args.show - 1]["settled"])
        return
    figures = {
        name: {state: count(calls)._asdict() for state, calls in states.items()} for name, states in found.items()
    }
    if args.json:
        about = {"package": PACKAGE, "python": platform.python_version(), "repeat": args.repeat}
        print(json.dumps({**about, "rows": figures}))
    else:
        table(figures)


if __name__ == "__main__":
    main()
