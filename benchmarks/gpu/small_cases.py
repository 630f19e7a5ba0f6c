"""The small operations that `benchmarks/gpu/small.py` times: how they are issued, waited for and checked.

A case is made, of the kernels and the number of operations, for the default device of the current runtime, and is
gone from the device at the end of its block. Clauses, views and functions are made before the operations.
"""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

import offload as omp
from offload import acc, in_, inout, out, tofrom

N_CHAINS = 64
SMALL, MAPPED = 256, 8192
"""Elements of float32: 1 KB and 32 KB."""

COLUMNS = (12288, 1024)
N_BLOCKS = 32
"""Rows and columns of float32, and blocks of columns, of 1.5 MB each."""

N_ROUNDS = 5
"""Times that all columns are processed in a sample."""


class Case(NamedTuple):
    """Operations of one kind.

    ``issue()`` issues ``count`` of them, ``finish()`` waits for them. ``is_right(run)`` calls ``run`` and tells whether
    the data has seen each of them. ``by_hand`` is the same pair by hand, or None.
    """

    issue: object
    finish: object
    is_right: object
    by_hand: tuple
    count: int
    is_blocking: bool = False
    hand_is_blocking: bool = False
    n_rounds: int = 1


def simulated():
    """Return the kernels for the simulated device, by NumPy's notation, and nothing by hand."""

    def bump(x):
        x[...] += 1

    def carry(x, y):
        y[...] = x + 1

    return SimpleNamespace(bump=bump, carry=carry, pinned=lambda shape: np.zeros(shape, "f4", order="F"), BY_HAND={})


def _by_hand(peer, name, *args):
    make = peer.BY_HAND.get(name)
    return None if make is None else make(*args)


@contextmanager
def _device_arrays(count, size):
    """Give as many device arrays, zero, until the end of the block."""
    arrays = [omp.target_memset(omp.target_alloc(size, "f4"), 0) for _ in range(count)]
    try:
        yield arrays
    finally:
        for x in arrays:
            omp.target_free(x)


def _counts(arrays, count):
    """Return a check that the first elements of device arrays grow by ``count`` together."""

    def is_right(run):
        before = sum(float(x[0]) for x in arrays)
        run()
        return sum(float(x[0]) for x in arrays) == before + count

    return is_right


def _counts_present(hosts, count):
    """Return a check that the first elements of present arrays grow by ``count`` together."""

    def is_right(run):
        omp.target_update(from_=hosts)
        before = sum(float(host[0]) for host in hosts)
        run()
        omp.target_update(from_=hosts)
        return sum(float(host[0]) for host in hosts) == before + count

    return is_right


# -- tasks on device arrays and copies ---------------------------------------------------------------------------------


@contextmanager
def memcpy_async(peer, count):
    host = peer.pinned((SMALL,))
    with _device_arrays(1, SMALL) as (x,):
        clause = [out(x)]

        def issue():
            for _ in range(count):
                omp.target_memcpy_async(x, host, depend=clause)

        yield Case(issue, omp.taskwait, _arrives(x, host), _by_hand(peer, "copies", x, host, count), count)


def _arrives(x, host):
    """Return a check that what the host array holds gets to the device array."""

    def is_right(run):
        host[:] += 1
        run()
        return float(x[0]) == float(x[-1]) == host[0]

    return is_right


@contextmanager
def memcpy(peer, count):
    host = peer.pinned((SMALL,))
    with _device_arrays(1, SMALL) as (x,):

        def issue():
            for _ in range(count):
                omp.target_memcpy(x, host)

        by_hand = _by_hand(peer, "blocking_copies", x, host, count)
        yield Case(issue, _nothing, _arrives(x, host), by_hand, count, is_blocking=True)


@contextmanager
def blocking_target(peer, count):
    bump = omp.target(_bump(peer))
    with _device_arrays(1, 32) as (x,):

        def issue():
            for _ in range(count):
                bump(x)

        by_hand = _by_hand(peer, "blocking_kernels", x, count)
        yield Case(issue, _nothing, _counts([x], count), by_hand, count, is_blocking=True)


def _bump(peer):
    kernel = peer.bump

    def bump(x):
        kernel(x)

    return bump


def _nothing():
    """Do nothing."""


@contextmanager
def host_and_region(peer, count):
    with _device_arrays(1, 32) as (x,):
        clause = [inout(x)]
        on_host = omp.task(depend=clause)(_nothing)
        bump = omp.target(nowait=True, depend=clause)(_bump(peer))

        def issue():
            for _ in range(count):
                on_host()
                bump(x)

        by_hand = _by_hand(peer, "pairs", x, _nothing, count)
        yield Case(issue, omp.taskwait, _counts([x], count), by_hand, count, hand_is_blocking=True)


@contextmanager
def _chains(peer, count, n_chains):
    bump = omp.target(nowait=True)(_bump(peer))
    with _device_arrays(n_chains, 32) as arrays:
        kinds = [(bump.options(depend=[inout(x)]), x) for x in arrays]
        steps = [kinds[i % n_chains] for i in range(count)]

        def issue():
            for function, x in steps:
                function(x)

        yield Case(issue, omp.taskwait, _counts(arrays, count), _by_hand(peer, "chains", arrays, count), count)


def chain(peer, count):
    return _chains(peer, count, 1)


def chains(peer, count):
    return _chains(peer, count, N_CHAINS)


def _carries(peer, arrays):
    """Return the tasks of a ping-pong, for its even and its odd steps, with their arguments."""
    kernel = peer.carry

    def carry(x, y):
        kernel(x, y)

    deferred = omp.target(nowait=True)(carry)
    one, other = arrays
    return [(deferred.options(depend=[in_(x), out(y)]), x, y) for x, y in ((one, other), (other, one))]


def _last(values, count):
    """Return a check that the larger value grows by 1 at each of an even number of operations."""

    def is_right(run):
        before = float(values[0][0])
        run()
        return max(float(x[0]) for x in values) == before + count

    return is_right


@contextmanager
def ping_pong(peer, count):
    count -= count % 2  # so that the next turn goes on where this one ended
    with _device_arrays(2, 32) as arrays:
        kinds = _carries(peer, arrays)
        steps = [kinds[i % 2] for i in range(count)]

        def issue():
            for function, x, y in steps:
                function(x, y)

        yield Case(issue, omp.taskwait, _last(arrays, count), _by_hand(peer, "ping_pong", arrays, count), count)


@contextmanager
def ping_pong_copies(peer, count):
    count -= count % 2
    hosts = [peer.pinned((32,)) for _ in range(2)]
    with _device_arrays(2, 32) as arrays:
        copies = [(host, x, [in_(x), out(host)]) for host, x in zip(hosts, arrays, strict=True)]
        kinds = list(zip(_carries(peer, arrays), copies[::-1], strict=True))
        steps = [kinds[i % 2] for i in range(count)]

        def issue():
            for (function, x, y), (host, written, clause) in steps:
                function(x, y)
                omp.target_memcpy_async(host, written, depend=clause)

        by_hand = _by_hand(peer, "ping_pong_copies", arrays, hosts, count)
        yield Case(issue, omp.taskwait, _last(hosts, count), by_hand, count)


# -- mapped arrays -----------------------------------------------------------------------------------------------------


@contextmanager
def present(peer, count):
    host = peer.pinned((SMALL,))
    bump = omp.target(nowait=True, map=[tofrom(host)], depend=[inout(host)])(_bump(peer))

    def issue():
        for _ in range(count):
            bump(host)

    with omp.target_data(map=[tofrom(host)]):
        by_hand = _by_hand(peer, "chains", _on_device([host]), count)
        yield Case(issue, omp.taskwait, _counts_present([host], count), by_hand, count)


@contextmanager
def update(peer, count):
    host = peer.pinned((SMALL,))
    items, clause = [host], [inout(host)]

    def issue():
        for _ in range(count):
            omp.target_update(to=items, depend=clause, nowait=True)

    with omp.target_data(map=[tofrom(host)]):
        by_hand = _by_hand(peer, "copies", *_on_device([host]), host, count)
        yield Case(issue, omp.taskwait, _is_updated([host]), by_hand, count)


def _on_device(hosts):
    """Return the corresponding device arrays of present arrays."""
    return [omp.get_mapped_ptr(host) for host in hosts]


def _is_updated(hosts):
    """Return a check that what host arrays hold gets to their data on the device."""

    def is_right(run):
        for host in hosts:
            host[:] += 1
        wanted = [float(host[0]) for host in hosts]
        run()
        for host in hosts:
            host[:] = 0
        omp.target_update(from_=hosts)
        return all((host == value).all() for host, value in zip(hosts, wanted, strict=True))

    return is_right


@contextmanager
def mapped(peer, count):
    host = peer.pinned((MAPPED,))
    bump = omp.target(nowait=True, map=[tofrom(host)], depend=[inout(host)])(_bump(peer))

    def issue():
        for _ in range(count):
            bump(host)

    def is_right(run):
        before = float(host[-1])
        run()
        return (host == before + count).all()

    yield Case(issue, omp.taskwait, is_right, _by_hand(peer, "mapped", host, count), count)


# -- OpenACC -----------------------------------------------------------------------------------------------------------


@contextmanager
def acc_region(peer, count):
    host = peer.pinned((SMALL,))
    bump = acc.parallel(_bump(peer), present=["x"], async_=1)

    def issue():
        for _ in range(count):
            bump(host)

    with acc.data(create=[host]):
        acc.update(device=[host])
        by_hand = _by_hand(peer, "queue_kernels", *_on_device([host]), count)
        yield Case(issue, acc.wait, _counts_present([host], count), by_hand, count)


@contextmanager
def acc_region_waits(peer, count):
    hosts = [peer.pinned((SMALL,)) for _ in range(2)]
    bump = acc.parallel(_bump(peer), present=["x"])
    kinds = [(bump.options(async_=1, wait=2), hosts[0]), (bump.options(async_=2, wait=1), hosts[1])]
    steps = [kinds[i % 2] for i in range(count)]

    def issue():
        for function, host in steps:
            function(host)

    with acc.data(create=hosts):
        acc.update(device=hosts)
        by_hand = _by_hand(peer, "waiting_kernels", _on_device(hosts), count)
        yield Case(issue, acc.wait, _counts_present(hosts, count), by_hand, count)


@contextmanager
def acc_update(peer, count):
    host = peer.pinned((SMALL,))
    items = [host]

    def issue():
        for _ in range(count):
            acc.update(device=items, async_=1)

    with acc.data(create=items):
        by_hand = _by_hand(peer, "queue_copies", *_on_device(items), host, count)
        yield Case(issue, acc.wait, _is_updated(items), by_hand, count)


@contextmanager
def acc_update_waits(peer, count):
    hosts = [peer.pinned((SMALL,)) for _ in range(2)]
    kinds = [([hosts[0]], 1, 2), ([hosts[1]], 2, 1)]
    steps = [kinds[i % 2] for i in range(count)]

    def issue():
        for items, queue, other in steps:
            acc.update(device=items, async_=queue, wait=other)

    with acc.data(create=hosts):
        by_hand = _by_hand(peer, "waiting_copies", _on_device(hosts), hosts, count)
        yield Case(issue, acc.wait, _is_updated(hosts), by_hand, count)


@contextmanager
def acc_columns(peer, _):
    matrix = peer.pinned(COLUMNS)
    width = COLUMNS[1] // N_BLOCKS
    blocks = [matrix[:, low : low + width] for low in range(0, COLUMNS[1], width)]
    bump = acc.parallel(_bump(peer), present=["x"])
    steps = [([block], block, bump.options(async_=queue), queue) for queue, block in enumerate(blocks)]

    def issue():
        for items, block, function, queue in steps:
            acc.update(device=items, async_=queue)
            function(block)
            acc.update(self_=items, async_=queue)

    def is_right(run):
        before = float(matrix[0, 0])
        run()
        return (matrix == before + 1).all()

    with acc.data(create=[matrix]):
        by_hand = _by_hand(peer, "columns", _on_device(blocks), blocks)
        yield Case(issue, acc.wait, is_right, by_hand, N_BLOCKS, n_rounds=N_ROUNDS)


CASES = {
    "`target_memcpy_async` of 1 KB": memcpy_async,
    "`target nowait map depend`, present array": present,
    "`target_update nowait` of 1 KB": update,
    "`target nowait map depend` that maps 32 KB": mapped,
    "`acc.parallel async`, present array": acc_region,
    "`acc.parallel async wait`, two queues in turn": acc_region_waits,
    "`acc.update async` of 1 KB": acc_update,
    "`acc.update async wait` of 1 KB, two queues in turn": acc_update_waits,
    "blocking `target` with a kernel": blocking_target,
    "blocking `target_memcpy` of 1 KB": memcpy,
    "host task and `target nowait`, a pair": host_and_region,
    "`target nowait depend` on device arrays, one chain": chain,
    "`target nowait depend` on device arrays, ping-pong of two": ping_pong,
    f"`target nowait depend` on device arrays, {N_CHAINS} chains": chains,
    "ping-pong of two with a copy to the host behind each kernel, a pair": ping_pong_copies,
    f"OpenACC: a block of columns of 1.5 MB, {N_BLOCKS} queues": acc_columns,
}
