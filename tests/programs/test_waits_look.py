"""Waits that look at events themselves, as on CUDA: on devices that ask for it, and in a run of the whole suite."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import offload as omp
from offload.devices.sim.device import SimDevice, SimEvent
from offload.events.gate import Gate
from tests.conftest import checked
from tests.profiles import few

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("waits_look", [False, True])
def test_waits_look_where_devices_say_so(monkeypatch, waits_look):
    """A thread that waits asks the events itself if its device says so: here one that passes when it has, thrice."""
    looks = []
    held = None

    def look(gate):
        looks.append(threading.current_thread())
        if held is not None and looks.count(threading.main_thread()) == 3:
            held.fire()
        return gate_look(gate)

    gate_look = Gate.look
    monkeypatch.setattr(Gate, "look", look)
    monkeypatch.setattr(SimDevice, "waits_look", waits_look)
    with checked("sim", num_threads=1) as runtime:
        runtime.engine.attends_s = 60.0  # a busy machine may not look thrice in its moment
        d = omp.target_alloc(4)
        if waits_look:
            held = SimEvent(runtime.places[0].device)
            omp.stream(3).wait_event(held)
        with omp.interop(depend=[omp.out(d)], stream=omp.stream(3)):
            pass
        omp.target_memset_async(d, 1, depend=[omp.out(d)])
        omp.taskwait()
        assert omp.target(lambda d: int(d.sum()))(d) == 4
        omp.target_free(d)
        del d
    assert (looks.count(threading.main_thread()) >= 3) is waits_look


def run_of_the_suite(folder, **environment):
    """Run the tests of a folder by the suite's own settings; return the process, which has succeeded."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml")]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("variable", few(1, ["1", ""]))
def test_a_run_of_the_suite_looks_if_told_to(tmp_path, variable):
    """``OFFLOAD_TESTS_WAITS_LOOK=1`` has each runtime of the tests look, also a default one; the header says so."""
    (tmp_path / "test_inner.py").write_text(
        "import pytest\n"
        "import offload as omp\n"
        "@pytest.mark.parametrize('devices', ['sim', 'sim:2', None])\n"
        "def test_inner(devices):\n"
        "    with omp.Runtime(devices) as runtime:\n"
        f"        assert (runtime.engine.look is not None) is {bool(variable)}\n",
        "utf-8",
    )
    done = run_of_the_suite(tmp_path, OFFLOAD_TESTS_WAITS_LOOK=variable, OFFLOAD_DEVICES="sim")
    assert "3 passed" in done.stdout
    said = re.search(r"^waits for simulated devices: (.*)$", done.stdout, re.MULTILINE)
    assert ("look" in said[1]) is bool(variable)


def test_a_share_of_the_tests_is_of_one_run(tmp_path):
    """``OFFLOAD_TESTS_SHARE=1/3`` runs every third test; a pytest that a test runs has all of its tests."""
    (tmp_path / "test_inner.py").write_text(
        "import os\n"
        "import pytest\n"
        "@pytest.mark.parametrize('number', range(6))\n"
        "def test_inner(number):\n"
        "    assert number % 3 == 1\n"
        "    assert 'OFFLOAD_TESTS_SHARE' not in os.environ\n",
        "utf-8",
    )
    done = run_of_the_suite(tmp_path, OFFLOAD_TESTS_SHARE="1/3")
    assert "2 passed" in done.stdout
