"""Generated loops that are only probably parallel: whatever happens, what is left is what the serial program leaves."""

from __future__ import annotations

import contextlib
import random
import threading
import warnings
from unittest import mock

import numpy as np
import pytest

import offload as omp
from offload import tofrom
from offload.loops.proofs.bounds import LOOK_LIMITS
from offload.loops.speculative import race as racing
from offload.loops.speculative.chunks import DeviceChunks
from offload.loops.speculative.competitor import running
from tests.conftest import checked
from tests.loops.oracle import function_of_text
from tests.loops.speculative_programs import Program
from tests.loops.test_competitor import n_threads
from tests.loops.test_race import Held, opens
from tests.profiles import few

FAULTS = ["none", "none", "none", "device", "thread", "commit", "slow device", "slow host"]


def serial(function, arguments):
    """Run the undecorated function on copies; return them, and the class of what it raises."""
    copies = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
    try:
        function(*copies)
    except IndexError as error:
        return copies, type(error)
    return copies, None


@contextlib.contextmanager
def fault(kind):
    """Inject a fault, or slow a side down."""
    gate = threading.Event()

    class Fails(DeviceChunks):
        def _launch(self):
            self._logged.launch = mock.Mock(side_effect=RuntimeError("no launch"))
            super()._launch()

    class Slow(DeviceChunks):
        def start(self):
            self._stream.launch_host_func(lambda _: gate.wait(20), None)
            super().start()

    with contextlib.ExitStack() as stack:
        patch = lambda name, value: stack.enter_context(mock.patch.object(racing, name, value))  # noqa: E731
        if kind == "device":
            patch("DeviceChunks", Fails)
        if kind == "thread":
            stack.enter_context(mock.patch.object(racing.Competitor, "start", return_value=False))
        if kind == "commit":
            stack.enter_context(mock.patch.object(racing.HostSide, "commit", no_copy))
        if kind == "slow device":
            patch("DeviceChunks", Slow)
            patch("Competitor", lambda run: opens(gate, run))
        if kind == "slow host":
            patch("Competitor", Held)
        yield


def first_calls_of(seed):
    """Return a context in which less is profiled, fetched and copied before a call than usual, or as much."""
    steps, nbytes = [LOOK_LIMITS.steps, 300, 60][seed % 3], [LOOK_LIMITS.copied_nbytes, 0][seed // 3 % 2]
    stack = contextlib.ExitStack()
    for name, value in (("steps", steps), ("copied_nbytes", nbytes), ("fetched_nbytes", nbytes)):
        stack.enter_context(mock.patch.object(LOOK_LIMITS, name, value))
    return stack


def no_copy(self, arrays):
    raise RuntimeError("no copy")


def check(loop, function, arguments, *, is_present, kind):
    """Call a loop; compare what is left, and what it raises, with the serial program's."""
    before = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
    wanted, error = serial(function, arguments)
    got = None
    arrays = [one for one in arguments if isinstance(one, np.ndarray)]
    around = omp.target_data(map=[tofrom(one) for one in arrays]) if is_present else contextlib.nullcontext()
    with fault(kind), around:
        try:
            loop(*arguments)
        except (IndexError, RuntimeError) as raised:
            got = type(raised)
    if got is RuntimeError:  # the commit has failed: nothing has changed
        assert kind == "commit"
        wanted = before
    else:
        assert got is error
    for one, other in zip(arguments, wanted, strict=True):
        assert np.array_equal(one, other)


def run(seed, devices="sim:1"):
    """Profile a generated program on one input, and run it on others."""
    rng = random.Random(seed)
    program = Program(seed)
    function = function_of_text(program.text)
    kind = FAULTS[seed % len(FAULTS)]
    try:
        with warnings.catch_warnings(), first_calls_of(seed):
            warnings.simplefilter("ignore", omp.SpeculationWarning)
            with checked(devices, seed=seed if seed % 4 == 1 else None):
                for always in (False, True):
                    loop = omp.target_loop(speculate="always" if always else True)(function)
                    if not always:
                        first = rng.choice(["good", "good", "faulty"])
                        check(loop, function, program.inputs(first), is_present=rng.random() < 0.5, kind="none")
                    for call in range(3):
                        what = rng.choices(["good", "colliding", "faulty"], [6, 4, 2])[0]
                        # A host that never comes to an end cannot end a race that the device does not win.
                        may_lose = what != "good" or program.computes_addresses
                        injected = "none" if kind == "slow host" and may_lose else kind
                        arguments = program.inputs(what, call + 1)
                        check(loop, function, arguments, is_present=rng.random() < 0.5, kind=injected)
        assert n_threads() == 0
        assert not running
    except AssertionError as error:
        error.add_note(f"seed {seed}, {kind}\n{program.text}")
        raise


@pytest.mark.parametrize("seed", few(2, range(8)))
def test_what_is_left_is_what_the_serial_program_leaves(seed):
    """Arrays are the serial ones, or the exception is; no thread, copy or log is left, whatever fails and is slow."""
    run(seed)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1000, 2000, 20))
def test_a_thousand_programs(first):
    """The same for a thousand programs."""
    for seed in range(first, first + 20):
        run(seed)
