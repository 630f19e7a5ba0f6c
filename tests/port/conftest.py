"""Programs that are recorded in this process."""

from __future__ import annotations

import subprocess

import pytest

from offload.port import trial
from offload.port.analysis import analyse
from offload.port.running import recorded
from tests import forked


@pytest.fixture(scope="session", autouse=True)
def _forks():
    """Run originals and task forms in forks; the tests of the command start Python, as it does."""

    def python(*words, env):
        done = forked.python(*words, env=env)
        return subprocess.CompletedProcess(words, done.returncode, done.stdout.encode(), done.stderr.encode())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "_python", python)
        yield


@pytest.fixture
def record(tmp_path):
    """Return a function that records the text of a program; its log."""

    def run(text, name="program.py", **options):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        with recorded(str(path), **options) as past:
            exec(compile(text, str(path), "exec"), {"__name__": "__main__", "__file__": str(path)})
        return past.log

    return run


@pytest.fixture
def names_of(tmp_path):
    """Return a function that runs the text of a program on the stand-in; its global names."""

    def run(text):
        path = tmp_path / "program.py"
        path.write_text(text, encoding="utf-8")
        names = {"__name__": "__main__", "__file__": str(path)}
        with recorded(str(path)):
            exec(compile(text, str(path), "exec"), names)
        return names

    return run


@pytest.fixture
def report(record, tmp_path):
    """Return a function that records the text of a program; its report, as JSON has it."""

    def run(text, **options):
        log = record(text, **options)
        return analyse(log, str(tmp_path / "program.py"), options.get("on", "sim")).as_dict()

    return run
