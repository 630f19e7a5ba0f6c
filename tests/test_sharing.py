"""Processes of pytest-xdist that share a GPU: a test that measures has it to itself."""

from __future__ import annotations

import contextlib
import fcntl
import threading
import time

from tests.conftest import share_of_gpus


class Use:
    """A test of another process, which uses the GPUs until it is told to end."""

    def __init__(self, *, alone=False):
        self._has_begun, self._ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(alone,))
        self._thread.start()

    def _run(self, alone):
        with share_of_gpus(alone=alone):
            self._has_begun.set()
            self._ends.wait(60)

    def begins(self, within_s=60):
        return self._has_begun.wait(within_s)

    def end(self):
        self._ends.set()
        self._thread.join(60)


def is_taken(path):
    """Tell whether somebody has a file locked."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_who_measures_is_alone(monkeypatch, tmp_path):
    """Tests use the GPUs beside each other; one that measures waits for them, and keeps out those that come later."""
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "sharing")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with contextlib.ExitStack() as stack:
        uses = [Use(), Use()]
        for use in uses:
            stack.callback(use.end)
        assert all(use.begins() for use in uses)
        measures = Use(alone=True)
        stack.callback(measures.end)
        while not is_taken(tmp_path / "offload-tests-sharing.turn"):
            time.sleep(0.001)
        uses[0].end()
        assert not measures.begins(0.05)
        later = Use()
        stack.callback(later.end)
        assert not later.begins(0.05)
        uses[1].end()
        assert measures.begins()
        assert not later.begins(0.05)
        measures.end()
        assert later.begins()


def test_one_process_waits_for_nobody(monkeypatch):
    """Without pytest-xdist there is nobody to wait for."""
    monkeypatch.delenv("PYTEST_XDIST_TESTRUNUID", raising=False)
    begun = []
    with share_of_gpus(alone=True):
        begun.append(1)
        with share_of_gpus(alone=True):
            begun.append(2)
    assert begun == [1, 2]
