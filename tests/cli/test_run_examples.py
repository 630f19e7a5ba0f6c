"""``offload run`` on every example: output and status are those of ``python``, and every file is right."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.mpi.launching import mpiexec
from tests.reports.validator import check, read
from tests.test_examples import FOUND, SMALL

pytestmark = pytest.mark.timeout(300)  # two jobs, which may take their time on a busy machine

ROOT = Path(__file__).parents[2]
EXAMPLES = [path for path in FOUND if "__main__" in path.read_text(encoding="utf-8")]
OF_MPI = [path for path in EXAMPLES if path.stem.endswith("_mpi")]
ARGUMENTS = {
    **SMALL,
    "cholesky": ["--size", "128", "--tile", "32"],
    "cluster_cholesky": ["--size", "64", "--tile", "32"],
    "cluster_halo": ["--size", "32"],
    "cluster_pipeline": ["--blocks", "2", "--calm"],
    "cluster_planes": ["--planes", "2", "--edge", "8"],
    "halo_mpi": ["--size", "32", "--steps", "4"],
    "loops_speculation": ["2000"],
    "pragma_cholesky": ["--size", "128", "--tile", "32"],
}
OPTIONS = {
    "devices": ["--devices", "sim:1"],
    "check": ["--check"],
    "live": ["--live"],
    "profile": ["--profile"],
    "trace": ["--trace", "trace-%p.json"],
    "graph": ["--graph", "graph-%p.svg"],
    "hang": ["--hang", "20"],
}
ALL = ["--trace", "trace-%p.json.gz", "--graph", "graph-%p.html", "--profile", "--live", "--check", "--hang", "20"]
# The command, with one report more: the parts of the profile with all digits, which the table does not have.
COMMAND = """
import json, os, sys
from offload.cli.command import main
from offload.reports.profile import profile
from offload.reports.records import records
from offload.runtime import reporting
def write(log):
    found = profile(records(log))
    with open(f"parts-{os.getpid()}.json", "w") as file:
        json.dump([found.wall_s, found.parts], file)
if {"--profile"} & set(sys.argv):
    reporting.add("the parts", write)
sys.exit(main())
"""


def start(folder, *words, n_ranks=0, devices="sim"):
    """Start Python in a folder, on so many ranks of MPI."""
    launcher = [*mpiexec(), "-n", str(n_ranks)] if n_ranks else []
    return subprocess.Popen(
        [*launcher, sys.executable, *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OFFLOAD_DEVICES": devices, "OFFLOAD_HANG_S": "20"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(job):
    """Return the output of a job without the times that it measured, its stderr, and its status."""
    with job:
        try:
            out, err = job.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            job.send_signal(signal.SIGINT)  # it says what it waits for
            out, err = job.communicate(timeout=20)
            pytest.fail(f"it hangs: {err}")
        finally:
            job.kill()
    out = re.sub(r"[\d.]+ (m|µ)?s\b", "TIME", out)
    # Of a speculation, the side that is first decides on the place and the warning.
    out = re.sub(r"^SpeculationWarning.*\n|(?<=, call \d: on the )\w+", "", out, flags=re.MULTILINE)
    return sorted(out.splitlines()), err, job.returncode


@functools.cache
def plain(path, n_ranks=0, devices="sim"):
    """Return the result of an example under ``python``."""
    with tempfile.TemporaryDirectory() as folder:
        return ended(start(folder, path, *ARGUMENTS.get(path.stem, []), n_ranks=n_ranks, devices=devices))


def check_files(folder, n_ranks):
    """Check every file that the command has written: as many as there are ranks, and none besides."""
    files = sorted(folder.iterdir())
    kinds = {name: [file for file in files if file.name.startswith(name)] for name in ("trace", "graph", "parts")}
    assert sum(map(len, kinds.values())) == len(files)
    for found in kinds.values():
        assert len(found) in {0, n_ranks}
    for file in kinds["trace"]:
        check(read(file))
    for file in kinds["graph"]:
        text = file.read_text(encoding="utf-8")
        root = ET.fromstring(text if file.suffix == ".svg" else text[text.index("<svg") : text.index("</svg>") + 6])
        assert max(float(root.get("width")), float(root.get("height"))) <= 4000
    for file in kinds["parts"]:
        wall_s, parts = json.loads(file.read_text(encoding="utf-8"))
        assert list(parts) == ["body", "device", "copy", "wait", "idle"]
        assert min(parts.values()) >= 0
        assert sum(parts.values()) == pytest.approx(wall_s, rel=1e-3)
    return {name: len(found) for name, found in kinds.items()}


def check_run(folder, path, options, n_ranks=0, devices="sim"):
    """Run an example with these options; return how many files of each kind there are."""
    words = ("-c", COMMAND, "run", *options, path, *ARGUMENTS.get(path.stem, []))
    job = start(folder, *words, n_ranks=n_ranks, devices=devices)
    expected = plain(path, n_ranks, devices)  # meanwhile
    found = ended(job)
    assert (found[0], found[2]) == (expected[0], expected[2]), found[1]
    if not {"--profile", "--live"} & set(options) and "cluster" not in path.stem:  # Dask may complain of a slow machine
        assert found[1] == expected[1]
    return check_files(folder, max(1, n_ranks))


@pytest.mark.slow
@pytest.mark.parametrize("devices", ["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_all_options_at_once(path, devices, tmp_path):
    """With all options at once, an example prints the same, ends the same, and every file is right."""
    assert check_run(tmp_path, path, ALL, devices=devices) == {"trace": 1, "graph": 1, "parts": 1}


@pytest.mark.soak
@pytest.mark.parametrize("devices", ["sim", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_option(path, options, devices, tmp_path):
    """With each option, an example prints the same, ends the same, and the file is right."""
    if "--devices" in options and devices == "cuda":
        options = ["--devices", "cuda:0"]
    found = check_run(tmp_path, path, options, devices=devices)
    assert found == {"trace": "--trace" in options, "graph": "--graph" in options, "parts": "--profile" in options}


@pytest.mark.slow
@pytest.mark.skipif(not mpiexec(), reason="there is no mpiexec")
@pytest.mark.parametrize("path", OF_MPI, ids=lambda path: path.stem)
def test_ranks(path, tmp_path):
    """On two ranks each rank writes files of its own, which ``%p`` tells apart."""
    assert check_run(tmp_path, path, ALL, n_ranks=2) == {"trace": 2, "graph": 2, "parts": 2}
