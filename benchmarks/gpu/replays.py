"""Time replays of whole programs beside the same by hand: ``python benchmarks/run.py replays``.

*jacobi*: 100 sweeps over a grid of 1024², one block of rows a device, with copies of the edges after each sweep and a
norm that a host task reads. *host tasks*: a chain of 1,000 kernels with 10 host tasks between. *new arrays*: a chain of
1,000 kernels, called with another array each time. The time of a program is that of one call, with its wait.
"""

import json
import time
from statistics import median

import numpy as np

import offload as omp
from benchmarks.harness.programs import load_peer
from offload import in_, inout

N_STEPS, N_NODES, N_HOST, N_ARRAYS, SIDE = 100, 1000, 10, 24, 1024


def jacobi(peer, n_devices):
    """Return ours and what is by hand, each of which runs the sweeps once and returns the norm."""
    shape = (SIDE // n_devices + 2, SIDE)
    start = np.zeros(shape, np.float32)
    start[:, 0] = 1

    def blocks():
        made = [[omp.target_alloc(shape, dtype="f4", device=number) for _ in "ab"] for number in range(n_devices)]
        for pair in made:
            for block in pair:
                omp.target_memcpy(block, start)
        return made

    ours = blocks()
    totals = [omp.target_alloc(1, dtype="f4", device=number) for number in range(n_devices)]
    hosts, norm = [peer.pinned(1) for _ in range(n_devices)], [0.0]
    sweep = omp.target(nowait=True)(peer.sweep)
    change = omp.target(nowait=True)(peer.change)

    @omp.task(depend=[in_(*hosts)])
    def read():
        norm[0] = float(sum(host[0] for host in hosts)) ** 0.5

    @omp.taskgraph
    def steps():
        for step in range(N_STEPS):
            old, new = step % 2, 1 - step % 2
            for number, pair in enumerate(ours):
                sweep.options(device=number, depend=[in_(pair[old]), inout(pair[new])])(pair[old], pair[new])
            for number in range(n_devices - 1):
                upper, lower = ours[number][new], ours[number + 1][new]
                order = [inout(upper), inout(lower)]
                omp.target_memcpy_async(lower[0], upper[-2], depend=order)
                omp.target_memcpy_async(upper[-1], lower[1], depend=order)
        for number, pair in enumerate(ours):
            order = [in_(*pair), inout(totals[number])]
            change.options(device=number, depend=order)(*pair, totals[number])
            omp.target_memcpy_async(hosts[number], totals[number], depend=[in_(totals[number]), inout(hosts[number])])
        read()

    by_hand = peer.Jacobi(blocks(), N_STEPS)

    def run_ours():
        steps()
        return norm[0]

    return run_ours, by_hand, steps


def host_tasks(peer):
    """Return ours and what is by hand: a chain with host tasks between."""
    x, y = (omp.target_alloc(1024, dtype="f4") for _ in "xy")
    bump, calls = omp.target(nowait=True, depend=[inout(x)])(peer.bump), []
    between = omp.task(depend=[inout(x)])(lambda: calls.append(1))

    @omp.taskgraph
    def chain(x):
        for _ in range(N_HOST):
            for _ in range(N_NODES // N_HOST):
                bump(x)
            between()

    by_hand = peer.Bumps(N_NODES, N_HOST, lambda: calls.append(1))
    return lambda: chain(x), lambda: by_hand(y), chain


def new_arrays(peer):
    """Return ours and what is by hand: a chain that is called with another array each time."""
    arrays = [omp.target_alloc(1024, dtype="f4") for _ in range(N_ARRAYS)]
    bump = omp.target(nowait=True)(peer.bump)

    @omp.taskgraph
    def chain(x):
        step = bump.options(depend=[inout(x)])
        for _ in range(N_NODES):
            step(x)

    by_hand, numbers = peer.Bumps(N_NODES), [0, 0]

    def turn(who, call):
        numbers[who] += 1
        call(arrays[numbers[who] % N_ARRAYS])

    return lambda: turn(0, chain), lambda: turn(1, by_hand), chain


def add_arguments(parser):
    """Declare the options."""
    parser.description = __doc__
    parser.add_argument("--device", default="cuda", help="as for Runtime (default: cuda)")
    parser.add_argument("--repeat", "--turns", metavar="N", type=int, default=15, help="turns (default: 15)")
    parser.add_argument("--json", action="store_true", help="print one JSON object, with every sample")


def timed_us(call, count=3):
    """Return the microseconds of a call."""
    began_s = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - began_s) * 1e6 / count


def run(args):
    """Measure and print."""
    peer, rows = load_peer("gpu.replays_cupy"), {}
    with omp.Runtime(args.device) as runtime:
        programs = {f"jacobi, {n} device(s)": jacobi(peer, n) for n in sorted({1, min(2, len(runtime.places))})}
        programs["1,000 kernels, 10 host tasks"] = host_tasks(peer)
        programs["1,000 kernels, new arrays"] = new_arrays(peer)
        for name, (ours, by_hand, graph) in programs.items():
            for _ in range(3):
                found = ours(), by_hand()
            if found[0] is not None and not np.isclose(*found, rtol=1e-3):
                raise omp.InternalError(f"{name}: {found[0]} is not {found[1]}")
            rows[name] = {"ours": [], "by hand": [], "record": str(graph.records[-1])}
            for _ in range(args.repeat):
                rows[name]["ours"].append(timed_us(ours))
                rows[name]["by hand"].append(timed_us(by_hand))
    if args.json:
        print(json.dumps(rows))
        return
    print("| ms a call | taskgraph | by hand | ratio | record |\n|---|---|---|---|---|")
    for name, row in rows.items():
        cells = [
            f"{median(row[k]) / 1e3:.3g} ({min(row[k]) / 1e3:.3g} to {max(row[k]) / 1e3:.3g})"
            for k in ("ours", "by hand")
        ]
        print(
            f"| {name} | {' | '.join(cells)} | {median(row['ours']) / median(row['by hand']):.2f} | {row['record']} |"
        )
