"""Sequences and vectors on several devices tell a right launch from a wrong one: each known mistake is found.

Those of the division itself are in `test_filter_mutants`, those of boxes and footprints in files of their own.
"""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload.data import environment, exchanges
from offload.loops import replicas
from offload.loops.sets import device_runs
from tests.loops.on_devices import cut_by
from tests.loops.programs import PERMUTED
from tests.loops.sequences import Sequence

pytestmark = [
    PERMUTED,
    pytest.mark.mutants,
    pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning"),
]


@omp.target_loop(devices="all", filter="always", reduction={"+": ["s"]}, lastprivate=["last"])
def total(x):
    s = 0.0
    last = 0.0
    for i in range(x.size):
        s += x[i]
        last = x[i]
    return s, last


def check():
    """Run what has to be right."""
    for seed in range(12):
        with omp.Runtime(f"sim:{(2, 3, 4)[seed % 3]}"):
            Sequence(seed, (2, 3, 4)[seed % 3]).run()
    x = np.zeros(24)
    x[[0, 8, 16]] = 1, 1e16, -1e16
    with omp.Runtime("sim:3"):
        assert total(x) == (0.0, 0.0)  # 1 + 1e16 is 1e16: in another order 1 is left
        with cut_by((2, 1, 0)):
            assert total(x)[1] == 0.0


def plain_constructs_leave_replicas_current(patch):
    patch.setattr(environment, "mark_written", lambda *_: None)


def plain_constructs_complete_nothing(patch):
    patch.setattr(environment, "complete", lambda *_, **__: None)


def results_in_another_order(patch):
    patch.setattr(device_runs, "sorted", lambda items: reversed([*items]), raising=False)


def the_last_device_has_the_last_iteration(patch):
    right = device_runs.HostJointRun.__init__

    def init(self, way, *those):
        right(self, way._replace(last=len(way.pieces) - 1), *those)

    patch.setattr(device_runs.HostJointRun, "__init__", init)


def writes_are_not_noted(patch):
    patch.setattr("offload.data.boxes.BoxTable.wrote", lambda *_: None)


def copies_are_those_of_the_receiver(patch):
    right = exchanges._copy

    def copy(held, one, lane):
        right(held, one._replace(source=one.target), lane)

    patch.setattr(exchanges, "_copy", copy)


def everything_is_exchanged(patch):
    right = replicas.make_current

    def make_current(held, needs, lanes):
        everywhere = ((held.table.space,),) * len(needs.boxes)
        return right(held, replicas.Needs(everywhere), lanes)

    patch.setattr(replicas, "make_current", make_current)


MUTANTS = [
    plain_constructs_leave_replicas_current,
    plain_constructs_complete_nothing,
    results_in_another_order,
    the_last_device_has_the_last_iteration,
    writes_are_not_noted,
    copies_are_those_of_the_receiver,
    everything_is_exchanged,
]


@pytest.mark.parametrize("mutate", MUTANTS)
def test_a_mistake_is_found(monkeypatch, mutate):
    """A value is wrong, or a byte travels that nobody needs."""
    mutate(monkeypatch)
    with pytest.raises((AssertionError, UnboundLocalError)):
        check()


def test_without_a_mistake_nothing_is_found():
    """What is run is right by itself."""
    check()
