"""Races of four host threads at once: no hang, no leak, no difference."""

from __future__ import annotations

import os
import random
import threading
import time
import warnings

import numpy as np
import pytest

import offload as omp
from offload.loops.speculative.competitor import running
from tests.conftest import checked
from tests.loops.oracle import function_of_text
from tests.loops.speculative_programs import Program
from tests.loops.test_competitor import n_threads
from tests.loops.test_race_rules import serial

N_THREADS = 4


def work(seed, until_s, problems):
    """Call generated loops on inputs of all kinds until a time; note what is wrong."""
    rng = random.Random(seed)
    n = 0
    while time.monotonic() < until_s and not problems:
        program = Program(rng.randrange(40))  # few, so that compiling is not all that happens
        function = function_of_text(program.text)
        loop = omp.target_loop(speculate=rng.choice([True, "always"]))(function)
        for _ in range(12):
            n += 1
            arguments = program.inputs(rng.choices(["good", "colliding", "faulty"], [6, 4, 2])[0], n)
            wanted, error = serial(function, arguments)
            got = None
            try:
                loop(*arguments)
            except IndexError as raised:
                got = type(raised)
            except BaseException as raised:  # to be told
                problems.append((program.text, repr(raised)))
                return
            if got is not error or not all(map(np.array_equal, arguments, wanted)):
                problems.append((program.text, f"{got} instead of {error}, or other contents"))
                return


def soak(duration_s):
    """Have four host threads race for some seconds."""
    problems = []
    until_s = time.monotonic() + duration_s
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", omp.SpeculationWarning)
        with checked("sim:1", num_threads=2):
            threads = [threading.Thread(target=work, args=(seed, until_s, problems)) for seed in range(N_THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(duration_s + 60)
                assert not thread.is_alive(), "a thread hangs"
    assert not problems, problems[0]
    assert n_threads() == 0
    assert not running


@pytest.mark.slow
def test_four_host_threads_race():
    """Whatever races at the same time, each result is the serial one."""
    soak(3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_four_host_threads_race_for_ten_minutes():
    """The same for ten minutes, or as long as OFFLOAD_SOAK_S says."""
    soak(float(os.environ.get("OFFLOAD_SOAK_S", "600")))
