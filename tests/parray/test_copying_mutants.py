"""Mutants of typed copies: each leaves something out, and random pairs or the tests of copies must notice."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload.parray import ArrayType, copy, copying, disp, func, indexed, moves, threads, wrap
from offload.parray.dimensions import dim
from tests.parray import test_copying, test_copying_rules
from tests.parray.test_parray_mutants import mutate

pytestmark = pytest.mark.mutants

N_PAIRS = 150

MUTANTS = {
    "one box is not as if at once": (copying, "_one_box", "read_first([move])", "frozenset()"),
    "several boxes are not as if at once": (copying, "_recipe", "frozenset([close[i] for i in first])", "frozenset()"),
    "a read-only target is not refused": (copying, "check", "if is_written:", "if False:"),
    "strided storage is not refused": (copying, "check", "if not flags.c_contiguous:", "if False:"),
    "small storage is not refused": (copying, "check", "x.size < side.span", "False"),
    "negative offsets are not refused": (copying, "check", "or side.least < 0", ""),
    "item sizes are not compared": (copying, "common_dtype", "dtype.itemsize != first.itemsize", "False"),
    "boxes begin at the first element": (copying, "move_of", "to.view(box.target_offset,", "to.view(0,"),
    "boxes take the steps of the other side": (
        copying,
        "move_of",
        "shape, target_steps, dtype",
        "shape, source_steps, dtype",
    ),
    "tables are read from the other side": (indexed, "copy_on_host", "move.src[move.at]", "move.src[move.to]"),
    "tables of threads are one": (indexed, "_made", "pairs += at_thread * n_targets", "pairs += 0"),
    "runs in tables begin at nothing": (indexed, "_table", "int(to[0])", "0"),
    "what crosses between devices is left": (indexed, "copy_through_packed", "packed[i] = spare", "pass"),
    "temporaries are not read": (moves, "copy_on_host", "read.get(i, move.src)", "move.src"),
    "temporaries of groups are read late": (moves, "copy_in_groups", "make_all(site, early)", "pass"),
    "temporaries of a device are not read": (moves.MovesWork, "begin", "read.get(i, move.src)", "move.src"),
    "only the first moves are made": (moves.MovesWork, "begin", "enumerate(self._moves)", "enumerate(self._moves[:1])"),
}


def everything_is_right():
    """Copy random pairs and everything that shares memory, on hosts and simulated devices, and refuse what is wrong."""
    with omp.Runtime("sim:2") as runtime:
        for what in test_copying.OVERLAPS:
            for given in (np.array, on_device):
                at_once(what, given)
        test_copying.test_a_large_transposition_in_place(runtime)
        ring()
        refusals(runtime)
        from_a_table_into_a_window()
        for seed in range(N_PAIRS):
            test_copying_rules.check_pair(seed)


def from_a_table_into_a_window():
    order = [k * 77 % 200 for k in range(200)]
    target = np.zeros(203)
    copy(ArrayType(dim(200, func(order))), np.arange(200.0), to=(ArrayType(dim(200, disp(3))), target))
    assert target[3:].tolist() == order


def on_device(values):
    array = omp.target_alloc(np.shape(values), np.asarray(values).dtype)
    omp.target_memcpy(array, np.asarray(values))
    return array


def at_once(what, given):
    source, target = test_copying.OVERLAPS[what]
    x, wanted = given(np.arange(24.0)), np.arange(24.0)
    wanted[target.offsets()] = np.arange(24.0)[source.offsets()]
    copy(source, x, to=(target, x))
    assert test_copying.values_of(x).tolist() == wanted.tolist()
    if given is on_device:
        omp.target_free(x)


def ring():
    M = threads(4)
    S, T = ArrayType((dim(4, disp(1), wrap(4), M), 6)), ArrayType((M, 6))
    for where in ([-1] * 4, [0] * 4, [-1, 0, -1, 1]):
        arrays = [np.full(6, k) if d < 0 else on_device(np.full(6, k)) for k, d in enumerate(where)]
        copy(S, arrays, to=(T, arrays))
        assert [int(test_copying.values_of(one)[0]) for one in arrays] == [1, 2, 3, 0]
        for array in arrays:
            if not isinstance(array, np.ndarray):
                omp.target_free(array)


def refusals(runtime):
    for what in test_copying.BAD_STORAGE:
        for is_target in (False, True):
            test_copying.test_storage_that_is_none(runtime, what, is_target)
    test_copying.test_a_read_only_target(runtime)
    negative = ArrayType((dim(4, disp(-1)), 6))
    test_copying.test_types_that_are_no_pair(runtime, negative, test_copying.A)


def is_killed(check):
    """Whether a check fails, in whatever way."""
    try:
        check()
    except (Exception, pytest.fail.Exception):
        return True
    return False


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_copy_is_found(mutant, monkeypatch):
    """A copy that leaves something out differs from the loop, or does not refuse what it should."""
    monkeypatch.setattr(indexed, "_tables", indexed.BoundedCache())
    mutate(monkeypatch, *MUTANTS[mutant])
    assert is_killed(everything_is_right)


def test_without_a_mutant_all_is_well(monkeypatch):
    """What kills the mutants finds nothing wrong with what is mutated."""
    everything_is_right()
