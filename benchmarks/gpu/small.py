"""Time small operations: what it takes to issue one, and what one takes until all are done, beside the same by hand.

``python benchmarks/run.py small [--device cuda:0] [--repeat 7] [--operations 500] [--only TEXT] [--json]`` prints a
Markdown table of microseconds an operation, or every sample as JSON; ``benchmarks/run.py gpu --section small`` measures
the same. The operations are those of `small_cases.py`, and by hand those of `small_cupy.py`. It takes nothing but
public names of `offload`, so that ``PYTHONPATH=/another/tree python benchmarks/run.py small`` measures another tree's
package on the same machine. With ``--device sim`` nothing is done by hand: it shows that all runs.

Clauses, views and functions are made before. *Issued* is the time until the last call has returned, *done* the time
until the wait behind it is over, both divided by the number of operations; a blocking operation has the latter only.
Each operation is checked before it is timed.
"""

import gc
import json
import platform
import time
from functools import partial
from pathlib import Path
from statistics import median

import offload as omp
from benchmarks.gpu import small_cases as cases
from benchmarks.harness.programs import load_peer

N_OPERATIONS = 500
OURS, BY_HAND = "offload", "by hand"


def timed(issue, finish, count, n_rounds):
    """Return the microseconds an operation until all are issued, and until all are done."""
    issued_s = done_s = 0.0
    for _ in range(n_rounds):
        began_s = time.perf_counter()
        issue()
        called_s = time.perf_counter()
        finish()
        done_s += time.perf_counter() - began_s
        issued_s += called_s - began_s
    return issued_s * 1e6 / (count * n_rounds), done_s * 1e6 / (count * n_rounds)


def measure_case(make, peer, repeat, count):
    """Measure ours and what is by hand in turn; return the samples by ``"offload, issued"`` and the like."""
    with make(peer, count) as case:
        calls = {OURS: ((case.issue, case.finish), case.is_blocking)}
        if case.by_hand is not None:
            calls[BY_HAND] = (case.by_hand, case.is_blocking or case.hand_is_blocking)
        for name, (pair, _) in calls.items():
            if not case.is_right(partial(_run, *pair)):
                raise omp.InternalError(f"{make.__name__}, {name}: the data has not seen every operation")
        samples = {}
        gc.collect()
        gc.freeze()  # what was there before is no part of the programs
        try:
            for turn in range(-1, repeat):  # the first one warms up
                for name, (pair, is_blocking) in calls.items():
                    gc.collect()
                    issued_us, done_us = timed(*pair, case.count, case.n_rounds)
                    if turn >= 0 and not is_blocking:
                        samples.setdefault(f"{name}, issued", []).append(issued_us)
                    if turn >= 0:
                        samples.setdefault(f"{name}, done", []).append(done_us)
        finally:
            gc.unfreeze()
    return samples


def _run(issue, finish):
    issue()
    finish()


def measure(peer, repeat, count=None, only=""):
    """Return the samples of the rows whose names contain ``only``; the current runtime's default device is measured."""
    count = count or N_OPERATIONS
    return {name: measure_case(make, peer, repeat, count) for name, make in cases.CASES.items() if only in name}


def _cell(samples):
    if not samples:
        return ""
    return f"{median(samples):.3g} ({min(samples):.3g} to {max(samples):.3g})"


def table(rows):
    """Print medians with their spread, and the ratios of the medians."""
    columns = [f"{name}, {until}" for until in ("issued", "done") for name in (OURS, BY_HAND)]
    print(f"| µs an operation | {' | '.join(columns)} | issued, ratio | done, ratio |")
    print("|" + "---|" * (len(columns) + 3))
    for name, samples in rows.items():
        cells = [_cell(samples.get(column)) for column in columns]
        for until in ("issued", "done"):
            ours, theirs = (samples.get(f"{who}, {until}") for who in (OURS, BY_HAND))
            cells.append(f"{median(ours) / median(theirs):.2f}" if ours and theirs else "")
        print(f"| {name} | {' | '.join(cells)} |")


def add_arguments(parser):
    """Declare the options."""
    parser.description = __doc__
    parser.add_argument("--device", default="cuda:0", help="as for Runtime (default: cuda:0)")
    parser.add_argument("--repeat", "--turns", metavar="N", type=int, default=7, help="turns (default: 7)")
    parser.add_argument(
        "--operations", metavar="N", type=int, default=N_OPERATIONS, help=f"of a sample (default: {N_OPERATIONS})"
    )
    parser.add_argument("--only", metavar="TEXT", default="", help="the rows whose names contain this")
    parser.add_argument("--json", action="store_true", help="print one JSON object, with every sample")


def run(args):
    """Measure and print."""
    for name, number, least in (("repeat", args.repeat, 1), ("operations", args.operations, 2)):
        if number < least:
            raise omp.ClauseError(f"--{name} {number}: take a number of at least {least}")
    if not any(args.only in name for name in cases.CASES):
        raise omp.ClauseError(f"--only {args.only}: no row has this in its name; there are {'; '.join(cases.CASES)}")
    with omp.Runtime(args.device):
        about = {
            "package": str(Path(omp.__file__).parent),
            "device": omp.device(0).name,
            "python": platform.python_version(),
            "repeat": args.repeat,
            "operations": args.operations,
        }
        rows = measure(
            cases.simulated() if args.device.startswith("sim") else load_peer("gpu.small_cupy"),
            args.repeat,
            args.operations,
            args.only,
        )
    if args.json:
        print(json.dumps({**about, "rows": rows}))
    else:
        print(", ".join(f"{name} {value}" for name, value in about.items()) + ".\n")
        table(rows)
