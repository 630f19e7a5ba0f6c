"""Measure what a trace, a profile and the live view cost while a program runs.

``python benchmarks/run.py observed [--repeat 31] [--tasks 20000] [--json]`` runs batches of tasks of 20 µs in one
thread, without workers: in turn without a tool, without a tool once more, and with each tool. The figure is the median
of the ratios of process CPU time, with a tool to without in the same turn. *again* is the second batch without a tool:
the noise. What is written when the program ends is no part of it.
"""

import json
import os
import time
from contextlib import contextmanager
from statistics import median

from rich.console import Console

import offload as omp
from offload.events.log import TaskLog

TASK_NS = 20_000
LIMIT = 1.03


def add_arguments(parser):
    """Declare the options."""
    parser.description = "Measure what a trace, a profile and the live view cost tasks of 20 µs in one thread."
    parser.add_argument("--repeat", type=int, default=31, help="turns (default: 31)")
    parser.add_argument("--tasks", type=int, default=20_000, help="tasks of a batch (default: 20000)")
    parser.add_argument("--json", action="store_true", help="print all ratios as JSON")


@contextmanager
def off():
    """Use no tool."""
    yield


@contextmanager
def live():
    """Draw the live view on a terminal that is nowhere."""
    from offload.runtime.live import LiveView

    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123
        view = LiveView(Console(file=nowhere, force_terminal=True, width=100, height=40))
        try:
            yield
        finally:
            view.end()


TOOLS = {
    "off": off,
    "again": off,
    "trace, profile": lambda: omp.tool(TaskLog()),  # the same log serves both
    "live": live,
}


@omp.task
def work(n):
    """Take about 20 µs."""
    for _ in range(n):
        pass


def steps_of_a_task():
    """Return how many steps `work` needs for 20 µs of CPU."""
    n = 1000
    for _ in range(20):
        start_ns = time.process_time_ns()
        for _ in range(200):
            work._function(n)  # noqa: SLF001
        n = max(1, round(n * TASK_NS / ((time.process_time_ns() - start_ns) / 200)))
    return n


def batch(n_tasks, n_steps):
    """Return the process CPU time of a batch, in nanoseconds."""
    start_ns = time.process_time_ns()
    for _ in range(n_tasks):
        work(n_steps)
    omp.taskwait()
    return time.process_time_ns() - start_ns


def run(args):
    """Print the table; 0."""
    found = {name: [] for name in TOOLS}
    with omp.Runtime("none", num_threads=0):
        n_steps = steps_of_a_task()
        batch(args.tasks, n_steps)
        for turn in range(args.repeat):
            names = list(TOOLS)
            order = names[turn % len(names) :] + names[: turn % len(names)]
            times = {}
            for name in order:
                with TOOLS[name]():
                    times[name] = batch(args.tasks, n_steps)
            for name, time_ns in times.items():
                found[name].append(time_ns / times["off"])
            found["off"][-1] = times["off"] / args.tasks / 1000
    if args.json:
        print(json.dumps(found))
        return 0
    print(f"a task takes {median(found['off']):.1f} µs; load {os.getloadavg()[0]:.1f}")
    for name in list(TOOLS)[1:]:
        ratios = sorted(found[name])
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        told = "" if name == "again" else f"   at most {LIMIT}: {'yes' if median(ratios) <= LIMIT else 'no'}"
        print(f"{name:16} {median(ratios):.4f}   quartiles {low:.4f} … {high:.4f}{told}")
    return 0
