"""Generated kernels with independent iterations as loop functions on several devices, against CPython."""

from __future__ import annotations

import random

import offload as omp
from tests.loops.kernels import kernel
from tests.loops.on_devices import cut_by, present, same, words_of
from tests.loops.oracle import function_of_text


def check(seed, n_devices):
    """Run a kernel, every second one twice, on the devices of the current runtime; return what `explain` says of it.

    The seed decides about cuts, clauses, and whether arrays are on the devices before. Returns None of a kernel that
    has to be split and cannot be.
    """
    made, rng = kernel(seed), random.Random(seed)
    weights = [rng.randint(0, 4) for _ in range(n_devices)] if rng.random() < 0.5 else [1] * n_devices
    weights = weights if any(weights) else [1] * n_devices
    words = {"filter": rng.choice(["always", "always", "never", "auto"]), "exchange": rng.choice(["lazy", "eager"])}
    function = function_of_text(made.text)
    loop = omp.target_loop(devices="all", **words, **words_of(made.clauses))(function)
    serial = {name: array.copy() for name, array in made.arrays.items()}
    mine = {name: array.copy() for name, array in made.arrays.items()}
    given = {name: mine[made.names.get(name, name)] for name in made.arrays_in_order}
    try:
        with cut_by(weights):
            if rng.random() < 0.5:
                with present(mine):
                    _calls(made, loop, function, serial, given, 1 + seed % 2)
            else:
                _calls(made, loop, function, serial, given, 1 + seed % 2)
            same(mine, serial)
            return loop.explain(**given, **made.scalars).to_dict()["filter"]
    except omp.ClauseError as error:
        if "cannot be" in str(error):
            same(mine, made.arrays)
            return None
        raise
    except Exception as error:
        error.add_note(f"seed {seed}, weights {weights}, {words}\n{made.text}")
        raise


def _calls(made, loop, function, serial, given, count):
    for _ in range(count):
        expected = made.serial(function, serial)
        got = loop(**given, **made.scalars)
        assert got == expected


def devices_of(seed):
    """Return how many devices a seed has."""
    return (2, 3, 4, 7)[seed % 4]
