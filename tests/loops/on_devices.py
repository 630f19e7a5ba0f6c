"""Loop functions on several devices of a runtime, by equal or other cuts, beside CPython."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

import offload as omp
from offload.loops.sets import device_runs


@contextmanager
def cut_by(weights):
    """Have loops cut their iterations in this proportion, in place of equal parts."""
    before = device_runs.weights_of
    device_runs.weights_of = lambda n_devices: tuple(weights) if len(weights) == n_devices else (1,) * n_devices
    try:
        yield
    finally:
        device_runs.weights_of = before


def words_of(clauses):
    """Return what clauses of a nest are called by programs."""
    words = {}
    for item in clauses.reductions:
        words.setdefault("reduction", {}).setdefault(item.operator, []).append(item.name)
    words |= {word: list(names) for word in ("atomic", "private", "firstprivate") if (names := getattr(clauses, word))}
    if clauses.lastprivate:
        words["lastprivate"] = list(clauses.lastprivate)
    return words | ({"collapse": clauses.collapse} if clauses.collapse > 1 else {})


def same(mine, serial, text=""):
    """Compare arrays with CPython's, by name."""
    for name, array in serial.items():
        np.testing.assert_array_equal(mine[name], array, err_msg=f"{name} {text}")


def present(arrays):
    """Map arrays on all devices around a block."""
    return omp.target_data(map=[omp.tofrom(array) for array in arrays.values()], devices="all")
