"""Generated kernels with independent iterations on replicas, against CPython: equal and random cuts, 1 to 7 devices."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from offload.loops.front.parse import NestClauses
from offload.loops.running.build import builder
from tests.loops.c_form import form
from tests.loops.kernels import kernel
from tests.loops.oracle import function_of_text
from tests.loops.replicas import Devices
from tests.profiles import few

IN_CI = 60

needs_compiler = pytest.mark.skipif(builder.compiler is None, reason="no C compiler")


def check(seed: int, also: Any = None) -> Devices:
    """Run a kernel, every second one twice, on replicas; whatever is current has to be what CPython gives.

    `also` is another form of kernels, which has to change the same elements.
    """
    made = kernel(seed)
    rng = random.Random(seed)
    n_devices = rng.choice([1, 2, 2, 3, 4, 4, 7])
    weights = [rng.randint(0, 4) for _ in range(n_devices)] if rng.random() < 0.5 else [1] * n_devices
    devices = Devices(made.arrays, weights if any(weights) else [1] * n_devices, seed, also)
    serial = {name: array.copy() for name, array in made.arrays.items()}
    function = function_of_text(made.text)
    try:
        for _ in range(1 + seed % 2):
            expected = made.serial(function, serial)
            got = devices.run(function, made.clauses, made.arguments)
            devices.check(serial)
            assert got == expected
    except Exception as error:
        error.add_note(f"seed {seed}, weights {devices.weights}\n{made.text}")
        raise
    return devices


@pytest.mark.parametrize("first", few(1, range(0, IN_CI, 20)))
def test_replicas_have_the_serial_values(first):
    """Each element is current somewhere, and wherever it is current it has its serial value; nothing stale is read."""
    for seed in range(first, first + 20):
        check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(IN_CI, IN_CI + 3_000, 100))
def test_many_more_kernels(first):
    """The same for 3,000 kernels."""
    for seed in range(first, first + 100):
        check(seed)


@needs_compiler
@pytest.mark.parametrize("seed", few(1, [0, 4, 8]))
def test_c_does_the_same(seed):
    """The tested nest in C changes on each device what its Python form changes."""
    check(seed, form(is_restricted=False))


@pytest.mark.soak
@needs_compiler
@pytest.mark.parametrize("first", range(0, 300, 50))
def test_c_does_the_same_for_many(first):
    """The same for 300 kernels."""
    for seed in range(first, first + 50):
        check(seed, form(is_restricted=False))


def test_kernels_are_of_all_kinds():
    """Among the kernels of CI some are cut, some tested, some computed everywhere."""
    found = [check(seed).last for seed in range(12)]
    kinds = {(one.mode, one.is_cut) for one in found}
    assert {("split", True), ("split", False), ("duplicate", True)} <= kinds
    assert any(one.everywhere and one.splits for one in found)


def test_random_cuts_of_nothing():
    """A device that owns nothing is given nothing to do."""
    arrays = {"y": np.zeros(3), "x": np.arange(3.0)}
    f = function_of_text("def f(y, x):\n    for i in range(len(y)):\n        y[i] = 2 * x[i]\n")
    devices = Devices(arrays, (0, 5, 0, 1))
    devices.run(f, NestClauses(), {"y": "y", "x": "x"})
    devices.check({"y": 2 * np.arange(3.0)})
    assert devices.last.trips == ((0, 0), (0, 2), (0, 0), (2, 3))
