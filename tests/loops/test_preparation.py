"""Calls that have been made before: what of a call is kept, and what is looked at each time."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

import offload as omp
from offload.loops.running import plan
from tests.conftest import checked

N = 200
FACTOR = 2
chosen = math.sqrt


@pytest.fixture(params=["host", "task", "body"])
def call(request):
    """What calls a target loop: on the host, as a task of a simulated device, or in a target body there."""

    def in_body(loop, *args):
        omp.target(loop.__call__)(*args)

    host = {}

    def on_host(loop, *args):
        if loop not in host:
            host[loop] = omp.parallel_loop(loop.python)
        host[loop](*args)

    def as_task(loop, *args):
        loop(*args)

    with checked("sim:1"):
        yield {"host": on_host, "task": as_task, "body": in_body}[request.param]


@pytest.fixture
def decided(monkeypatch):
    """Return the list of nests about which something has been decided anew."""
    found = []
    decide = plan._plan
    monkeypatch.setattr(plan, "_plan", lambda spec, nest, launch: found.append(nest) or decide(spec, nest, launch))
    return found


@omp.target_loop
def scaled(a, n, x, y):
    b = 1 / a
    for i in range(n):
        y[i] = b * x[i] * FACTOR


@omp.target_loop
def shifted(x, y):
    for i in range(x.size - 1):
        y[i + 1] = x[i] + 1


@omp.target_loop
def numbered(y):
    for i in range(y.size):
        y[i] = i


def expected(loop, *args):
    """Return the arrays as CPython leaves them."""
    copies = [value.copy() if isinstance(value, np.ndarray) else value for value in args]
    with np.errstate(all="ignore"):
        loop.python(*copies)
    return [value for value in copies if isinstance(value, np.ndarray)]


def check(call, loop, *args):
    """Call a loop, and compare with CPython."""
    wanted = expected(loop, *args)
    call(loop, *args)
    for array, other in zip((value for value in args if isinstance(value, np.ndarray)), wanted, strict=True):
        assert array.tobytes() == other.tobytes()


def test_a_call_that_was_made_before_decides_nothing(call, decided):
    """Other arrays of the same shapes, and other floats that only iterations read, are calls that were made before."""

    @omp.target_loop
    def saxpy(a, x, y):
        for i in range(x.size):
            y[i] += a * x[i]

    for a in (2.0, -1.5, 0.25):
        check(call, saxpy, a, np.random.default_rng(1).random(N), np.ones(N))
    assert len(decided) == 1
    check(call, saxpy, 2.0, np.ones(N + 1), np.ones(N + 1))
    assert len(decided) == 2


def test_numbers_that_decide_are_told_apart(call):
    """Extents, bounds and what the statements before a nest read are the call's own, to the last bit."""
    x = np.arange(1.0, N + 1)
    for _ in range(2):
        for a in (np.float64(4), np.float64(0.0), np.float64(-0.0), np.float64("nan"), np.float64("nan")):
            for n in (N, 3, 0):
                check(call, scaled, a, n, x, np.zeros(N))


def test_a_name_from_outside_that_has_changed(call, monkeypatch):
    """A scalar of the module has the value that it has at the call, whatever it had before."""
    x = np.arange(float(N))
    for factor in (2, 3, 2.0, np.float32(0.5), 2):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        for _ in range(2):
            check(call, scaled, np.float64(2), N, x, np.zeros(N))


def test_a_function_from_outside_that_has_changed(call, monkeypatch):
    """A function of the module, known or plain, is the one that the name stands for at the call."""

    @omp.target_loop
    def applied(x, y):
        for i in range(x.size):
            y[i] = chosen(x[i])

    def doubled(value):
        return value * FACTOR

    x = np.array([0.25, 4.0, 9.0])
    for function in (math.sqrt, math.fabs, doubled, math.sqrt):
        monkeypatch.setitem(globals(), "chosen", function)
        for _ in range(2):
            check(call, applied, x, np.zeros(3))
    monkeypatch.setitem(globals(), "chosen", doubled)
    for factor in (2, 5):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        check(call, applied, x, np.zeros(3))


def test_another_layout(call):
    """Strides are the call's, of either sign."""
    base = np.arange(4.0 * N)
    for view in (slice(0, N), slice(0, 2 * N, 2), slice(N, 0, -1), slice(0, N), slice(3, 3 + N)):
        y = np.zeros(2 * N)
        check(call, scaled, np.float64(2), N, base[view], y[::2])
        assert not y[1::2].any()


def test_arrays_that_share_memory_after_others_that_do_not():
    """Where a call's arrays overlap it is decided anew, and refused if iterations depend on each other."""
    loop = omp.parallel_loop(shifted.python)
    memory = np.zeros(3 * N)
    with omp.Runtime("none"):
        for _ in range(2):
            loop(memory[:N], memory[N : 2 * N])
            assert (memory[N + 1 : 2 * N] == 1).all()
            for other in (memory[:N], memory[1 : N + 1]):
                before = memory.copy()
                with pytest.raises(omp.LoopError):
                    loop(memory[:N], other)
                assert (memory == before).all()
            loop(memory[:N], memory[N - 1 : 2 * N - 1])  # meets the last element, which is not read
            memory[:] = 0


def test_elements_that_are_not_aligned_after_others_that_are():
    """Calls whose elements lie at no multiple of their size are right, whatever calls there were before."""
    loop = omp.parallel_loop(shifted.python)
    memory = np.zeros(8 * N + 8, np.uint8)
    with omp.Runtime("none"):
        for first in (0, 1, 0, 1):
            x, y, expected = memory[first : 8 * N + first].view(np.float64), np.zeros(N), np.zeros(N)
            x[...] = np.arange(N)
            loop(x, y)
            shifted.python(x.copy(), expected)
            assert np.array_equal(y, expected)


def test_a_read_only_array_after_one_that_is_not():
    """A written array that has become read-only is refused."""
    loop = omp.parallel_loop(shifted.python)
    x, y = np.zeros(N), np.zeros(N)
    with omp.Runtime("none"):
        loop(x, y)
        y.flags.writeable = False
        with pytest.raises(omp.ClauseError, match="read-only"):
            loop(x, y)
        x.flags.writeable = False
        loop(x, np.zeros(N))


def test_device_arrays_whose_mapping_has_ended(sim):
    """A device array whose mapping has ended is refused, though it was passed before."""
    a = np.zeros(N)
    for _ in range(2):
        omp.target_enter_data(map=[omp.to(a)])
        d = omp.get_mapped_ptr(a)
        numbered(d)
        omp.target_exit_data(map=[omp.release(a)])
        with pytest.raises(omp.RegionClosedError):
            numbered(d)


def test_errors_belong_to_one_call(call):
    """An index that is out of range is an error of the call that has it, and of no other of the same shapes."""

    @omp.target_loop
    def gather(p, x, y):
        for i in range(p.size):
            y[i] = x[p[i]]

    p, x = np.arange(N), np.arange(N)
    for _ in range(2):
        check(call, gather, p, x, np.zeros(N, int))
        p[7] = N
        with pytest.raises(IndexError, match="i=7"):
            call(gather, p, x, np.zeros(N, int))
        p[7] = -1


def test_threads_that_call_at_once():
    """Threads with arrays and numbers of their own get their own results."""
    loop = omp.parallel_loop(scaled.python)
    begins = threading.Barrier(4)
    wrong = []

    def work(number):
        begins.wait()
        for turn in range(60):
            n = (number + turn) % 7 * 20
            x, y = np.full(N, float(number)), np.zeros(N)
            loop(np.float64(turn + 1), n, x, y)
            if not (y[:n] == 1 / (turn + 1) * number * 2).all() or y[n:].any():
                wrong.append((number, turn))

    with omp.Runtime("none", num_threads=2):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_more_sizes_than_are_kept(call):
    """Sizes that take turns, more than are kept, are each right."""
    for n in [*range(80), *range(5)]:
        check(call, shifted, np.arange(float(n + 1)), np.zeros(n + 1))


def test_seeds_shuffle_calls_that_were_made_before():
    """Under a seed the order of a simulated device's iterations is another one at each call."""

    @omp.target_loop(atomic=["next_"])
    def order(next_, y):
        for i in range(y.size):
            y[i] = omp.atomic.add(next_, 0, 1)

    found = []
    for _ in range(2):
        with omp.Runtime("sim:1", seed=4):
            orders = []
            for _ in range(3):
                y = np.zeros(N, int)
                order(np.zeros(1, int), y)
                orders.append(y.tolist())
            found.append(orders)
    assert found[0] == found[1]
    assert len(set(map(tuple, found[0]))) == 3


def test_what_is_mapped_follows_the_numbers_of_each_call():
    """A loop that writes all of an array in one call, and a part of it in the next one, keeps the rest of it."""
    with checked("sim:1"):
        for n in (8, 8, 4, 4, 8):
            x, y = np.arange(8.0), np.full(8, 7.0)
            scaled(2.0, n, x, y)
            assert (y[:n] == x[:n]).all()
            assert (y[n:] == 7).all()


def test_read_only_arrays_without_elements_are_read():
    """Nothing is copied back to an array that a loop only reads, also where it has no elements to read."""
    x = np.zeros(0)
    x.flags.writeable = False
    with checked("sim:1"):
        for source in (x, np.zeros(0), x):
            scaled(2.0, 0, source, np.zeros(0))
