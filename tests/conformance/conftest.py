"""What holds tasks in the cases of this directory."""

from __future__ import annotations

import itertools

import pytest

import offload as omp
import tests.eager_device  # noqa: F401  # registers the kind
from tests.conformance.elsewhere import why_not_on_workers
from tests.conftest import DEVICES

_ON_A_KIND_OF_ONES_OWN = {
    "test_data",
    "test_depend",
    "test_memcpy",
    "test_target",
    "test_target_clauses",
    "test_update",
}
"""Files whose tests run on the devices of `tests.eager_device`, too; others could, unless a stream is held there."""


@pytest.hookimpl(tryfirst=True)  # before the fixture's own parameters are taken
def pytest_generate_tests(metafunc):
    """Have the tests of some files run on a kind of device that is not the package's."""
    is_theirs = metafunc.module.__name__.rpartition(".")[2] in _ON_A_KIND_OF_ONES_OWN
    if is_theirs and "devices" in metafunc.fixturenames:
        every_kind = pytest.mark.parametrize("devices", [*DEVICES, "eager:2"], indirect=True)
        metafunc.definition.add_marker(every_kind)


def pytest_itemcollected(item):
    """Leave out a test that cannot run on the workers of a cluster, where the run takes place there."""
    devices = item.callspec.params.get("devices") if hasattr(item, "callspec") else None
    if devices == "dask" and (reason := why_not_on_workers(item)) is not None:
        item.add_marker(pytest.mark.skip(reason=reason))


def nothing(*arrays):
    """Do nothing: the body of a task that is there for its clauses."""


class Gate:
    """A task with an open event: it is not complete before `open`.

    It has the dependences given, and writes ``item``, by which others can follow it alone.
    """

    _numbers = itertools.count()

    def __init__(self, dependences, body, clauses):
        self.item = ("gate", next(self._numbers))
        self.event = omp.Event()
        self.task = omp.task(depend=[omp.out(self.item), *dependences], detach=self.event, **clauses)(body)()

    @property
    def after(self):
        """The dependence of a task that follows the gate."""
        return omp.in_(self.item)

    def shut(self):
        """Wait until the body has run, from when on the task holds what it excludes others from."""
        while self.task.state != "detached":
            omp.taskyield()
        return self

    def open(self):
        self.event.fulfill()


@pytest.fixture
def gates():
    """Make gates: ``gates(*dependences, body=…, **clauses)``; those that a failing test leaves closed are opened.

    They must be: else the end of the runtime would wait for ever, as pytest-timeout watches no test that has failed.
    """
    made = []

    def make(*dependences, body=nothing, **clauses):
        made.append(Gate(dependences, body, clauses))
        return made[-1]

    yield make
    for gate in made:
        if not gate.event.is_fulfilled:
            gate.open()


@pytest.fixture
def probe():
    """Give what could run a turn, on the host and on a device: with one worker what was ready has run then."""

    def run():
        omp.task(nothing)().result()
        omp.target(nowait=True)(nothing)().result()
        omp.task(nothing)().result()

    return run


class Exclusion:
    """Sees that tasks run one at a time: when one begins, all that began before it are complete."""

    def __init__(self):
        self.begun = []

    def begin(self):
        task = omp.current_task()
        open_ = [other for other in self.begun if not other.done()]
        self.begun.append(task)
        assert not open_, open_


@pytest.fixture
def exclusion():
    return Exclusion()
