"""Measure what Python takes for small operations on present arrays: on a device that does nothing, without a driver.

``python benchmarks/run.py null [--repeat 9] [--operations 2000] [--json]`` prints microseconds of CPU an operation, of
all threads together: the median of several runs and the lowest. ``--instructions`` prints bytecode instructions an
operation until it is issued, of all threads, which are nearly the same in each run, also on a machine that others
share; ``--by NAME`` adds the functions that rows of that name execute them in. Both need CPython 3.12.

The package is the one that ``import offload`` finds, the device is `tests.null_device`:
``PYTHONPATH=/another/tree python benchmarks/run.py null`` measures another tree's package.

Rows with ``nowait`` alone are issued and then waited for with `taskwait`; the figure has both. ``mapped`` maps 32 KB at
each call, which the device forgets. *Columns* are a block of columns of a matrix that is present, updated, changed by a
region and updated back, in a queue; a *ping-pong* is a region and a copy to the host behind it, of two device arrays in
turn. The row ``sim`` is the blocking ``mapped`` on ``sim:1``, with its copies. With
``--look`` threads that wait look for completions, as on CUDA, where they else sleep.
"""

import gc
import itertools
import json
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median
from unittest import mock

import numpy as np

import offload as omp
from benchmarks.harness.programs import ROOT
from offload import acc, in_, inout, out, tofrom

sys.path.insert(0, str(ROOT))

from tests.null_device import NullDevice

N_ELEMENTS, N_MAPPED = 1000, 8192
"""Elements of float32."""

N_CHAINS = 64

COLUMNS, N_WIDE = (64, 64), 8
LOWS = range(0, COLUMNS[1], N_WIDE)
"""Rows and columns of the matrix, columns of a block, and where blocks begin."""

N_COUNTED, N_FUNCTIONS = 50, 40
"""Operations whose instructions are counted, and functions that are shown."""


class Silent(list):
    """Calls of a device that nobody reads."""

    def append(self, call):
        """Forget the call."""


def nothing(*args):
    """Do nothing: the body."""


def nothing_with(x):
    """Do nothing: the body whose parameter a clause names."""


def present_cases(x):
    """Return what is timed on a present array, by name: one operation, and whether it is deferred."""
    nowait = omp.target(nothing, map=[tofrom(x)], nowait=True)
    chained = omp.target(nothing, map=[tofrom(x)], nowait=True, depend=[inout(x)])
    plain = omp.target(nothing, nowait=True)
    blocking = omp.target(nothing, map=[tofrom(x)])
    host = omp.task(nothing)
    return {
        "target nowait, map": (lambda: nowait(x), True),
        "target nowait, map, depend": (lambda: chained(x), True),
        "target nowait": (lambda: plain(x), True),
        "target, map": (lambda: blocking(x), False),
        "target_update to": (lambda: omp.target_update(to=x), False),
        "target_update from_, nowait": (lambda: omp.target_update(from_=x, nowait=True), True),
        "target nowait, result()": (lambda: plain(x).result(), False),
        "target nowait, taskwait": (lambda: (plain(x), omp.taskwait()), False),
        "target nowait, depend, taskwait(depend)": (lambda: (chained(x), omp.taskwait(depend=[inout(x)])), False),
        "task, taskwait": (lambda: (host(), omp.taskwait()), False),
        "acc.update async_": (lambda: acc.update(self_=[x], async_=1), True),
        "acc.update async_ wait": (lambda: acc.update(self_=[x], async_=1, wait=2), True),
    }


def device_cases(arrays):
    """Return what is timed on device arrays, by name: deferred tasks in a loop, on one, on two in turn, on each."""
    plain = omp.target(nothing, nowait=True)

    def in_turn(steps):
        steps = itertools.cycle(steps)

        def step():
            function, arrays = next(steps)
            function(*arrays)

        return step, True

    one, other = arrays[:2]
    chains = [(plain.options(depend=[inout(x)]), (x,)) for x in arrays]
    swaps = [(plain.options(depend=[in_(x), out(y)]), (x, y)) for x, y in ((one, other), (other, one))]
    return {
        "device array, chain": in_turn(chains[:1]),
        "device arrays, ping-pong": in_turn(swaps),
        f"device arrays, {N_CHAINS} chains": in_turn(chains),
        "device array, chain, depend in the loop": in_turn([(lambda x: plain.options(depend=[inout(x)])(x), (one,))]),
    }


def queue_cases(x, matrix):
    """Return what is timed of OpenACC's regions on present arrays, by name."""
    region = acc.parallel(nothing_with, present=["x"], async_=1)
    waits = acc.parallel(nothing_with, present=["x"], async_=1, wait=2)
    blocks = [(matrix[:, low : low + N_WIDE], acc.parallel(nothing_with, present=["x"], async_=low)) for low in LOWS]
    turns = itertools.cycle(enumerate(blocks))

    def columns():
        queue, (block, change) = next(turns)
        acc.update(device=[block], async_=queue)
        change(block)
        acc.update(self_=[block], async_=queue)

    return {
        "acc.parallel async_": (lambda: region(x), True),
        "acc.parallel async_ wait": (lambda: waits(x), True),
        "acc: columns": (columns, True),
    }


def copy_cases(hosts):
    """Return what is timed of copies to and from device arrays, by name."""
    a, b = (omp.target_alloc(N_ELEMENTS, "f4") for _ in range(2))
    clause = [out(a)]
    pairs = []
    for source, target, other in ((a, b, hosts[0]), (b, a, hosts[1])):
        carry = omp.target(nothing, nowait=True, depend=[in_(source), out(target)])
        pairs.append((carry, source, target, other, [in_(target), out(other)]))
    turns = itertools.cycle(pairs)

    def step():
        carry, source, target, other, depend = next(turns)
        carry(source, target)
        omp.target_memcpy_async(other, target, depend=depend)

    cases = {
        "target_memcpy_async": (lambda: omp.target_memcpy_async(a, hosts[2], depend=clause), True),
        "target_memcpy": (lambda: omp.target_memcpy(a, hosts[2]), False),
        "ping-pong with copies": (step, True),
    }
    return cases, (a, b)


def mapping_cases(y, z):
    """Return what is timed on arrays that are mapped each time, by name."""
    maps = omp.target(nothing, map=[tofrom(z)])
    deferred = omp.target(nothing, map=[tofrom(z)], nowait=True, depend=[inout(z)])

    def pair():
        omp.target_enter_data(map=omp.to(y))
        omp.target_exit_data(map=omp.from_(y))

    return {
        "target_enter_data, target_exit_data": (pair, False),
        "target, mapped": (lambda: maps(z), False),
        "target nowait, mapped, depend": (lambda: deferred(z), True),
    }


def timed(operation, n_operations):
    """Return the microseconds of CPU of an operation, the wait for all included."""
    gc.collect()
    began_s = time.process_time()
    for _ in range(n_operations):
        operation()
    omp.taskwait()
    acc.wait()
    return (time.process_time() - began_s) * 1e6 / n_operations


def measure(cases, repeat, n_operations):
    """Return the runs of each case, in turn, after one that warms up."""
    runs = {name: [] for name in cases}
    for turn in range(-1, repeat):
        for name, (operation, _) in cases.items():
            took_us = timed(operation, n_operations)
            if turn >= 0:
                runs[name].append(took_us)
    return runs


def counted(operation, n_operations):
    """Return the instructions of so many operations, by code object."""
    monitoring, found = sys.monitoring, Counter()
    timed(operation, 30)
    monitoring.use_tool_id(monitoring.PROFILER_ID, "null.py")
    try:
        monitoring.register_callback(
            monitoring.PROFILER_ID, monitoring.events.INSTRUCTION, lambda code, _: found.update((code,))
        )
        monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.INSTRUCTION)
        for _ in range(n_operations):
            operation()
        monitoring.set_events(monitoring.PROFILER_ID, 0)
    finally:
        monitoring.free_tool_id(monitoring.PROFILER_ID)
    omp.taskwait()
    acc.wait()
    return found


def count(cases, by):
    """Print the instructions of each case, and the functions of those in whose name ``by`` is."""
    for name, (operation, _) in cases.items():
        found = counted(operation, N_COUNTED)
        print(f"{name:40s} {found.total() / N_COUNTED:7.0f}")
        if by is not None and by in name:
            for code, n in found.most_common(N_FUNCTIONS):
                print(f"{n / N_COUNTED:12.0f} {code.co_qualname}, {Path(code.co_filename).name}:{code.co_firstlineno}")


def null_device(*, waits_look):
    """Return a device that forgets what it is asked, and says whether threads that wait look for completions."""
    device = NullDevice(0)
    device.waits_look = waits_look
    device.calls = Silent()
    return device


def add_arguments(parser):
    """Declare the options."""
    parser.description = __doc__
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--operations", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--look", action="store_true", help="have waits look for completions, as on CUDA")
    parser.add_argument("--instructions", action="store_true")
    parser.add_argument("--by", metavar="NAME")


def run(args):
    """Measure and print."""
    x, y, z = (np.zeros(n, np.float32) for n in (N_ELEMENTS, N_ELEMENTS, N_MAPPED))
    matrix = np.zeros(COLUMNS, np.float32, order="F")
    hosts = [np.zeros(N_ELEMENTS, np.float32) for _ in range(3)]
    runs = {}
    device = null_device(waits_look=args.look)
    with mock.patch("offload.runtime.runtime.open_devices", return_value=[device]), omp.Runtime():
        omp.target_enter_data(map=[omp.to(x), omp.to(matrix)])
        copies, copied = copy_cases(hosts)
        arrays = [omp.target_alloc(N_ELEMENTS, "f4") for _ in range(N_CHAINS)]
        for cases in (device_cases(arrays), present_cases(x), mapping_cases(y, z), queue_cases(x, matrix), copies):
            if args.instructions or args.by:
                count(cases, args.by)
            else:
                runs |= measure(cases, args.repeat, args.operations)
        for array in (*arrays, *copied):
            omp.target_free(array)
        omp.target_exit_data(map=[omp.release(x), omp.release(matrix)])
    if not runs:
        return
    with omp.Runtime("sim:1"):
        maps = omp.target(nothing, map=[tofrom(z)])
        runs |= measure({"sim: target, mapped": (lambda: maps(z), False)}, args.repeat, args.operations // 4)
    if args.json:
        print(json.dumps(runs))
        return
    print(f"{'µs of CPU an operation':40s}  median  lowest")
    for name, times in runs.items():
        print(f"{name:40s} {median(times):7.2f} {min(times):7.2f}")
