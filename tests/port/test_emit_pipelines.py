"""Generated pipelines in eight shapes: each form runs by itself with the same output and is clean."""

import ast
import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from offload.port.program import SYNC, ProgramText
from offload.port.statements import copy_shape
from tests.port.emit_programs import SHAPES, program_of
from tests.port.emitting import emitted_of, run_text

RINGS = ("ring", "stages")
N_SEEDS = 26


def originals_output(path):
    """Return what a program prints on the stand-in."""
    from offload.port.running import recorded

    printed = io.StringIO()
    with recorded(str(path)), contextlib.redirect_stdout(printed):
        exec(compile(path.read_text(), str(path), "exec"), {"__name__": "__main__", "__file__": str(path)})
    return printed.getvalue()


def lines_about_streams(text):
    """Return how many lines of a program handle streams, events and copies."""
    program = ProgramText("program.py", text)
    found = set()
    for node in ast.walk(program.tree):
        if isinstance(node, ast.expr) and program.kind(node) == SYNC:
            found.add(node.lineno)
        if isinstance(node, ast.stmt) and copy_shape(program, node) is not None:
            found.add(node.lineno)
    return len(found)


def lines_about_tasks(text):
    """Return how many lines of a task form handle tasks, copies and waits."""
    words = ("omp(", "target_memcpy_rect_async", ".taskwait(", ".synchronize()")
    return sum(any(word in line for word in words) for line in text.splitlines())


def check(folder, shape, seed):
    """Make the form of a program and check it; return the numbers of lines, or None if it is refused."""
    text = program_of(shape, seed)
    emitted = emitted_of(folder, text)
    if emitted.text is None:
        assert all(reason.startswith("line") for reason in emitted.reasons), emitted.reasons
        return None
    assert run_text(folder, emitted.text) == originals_output(folder / "program.py")
    assert "cuda" not in emitted.text
    assert "cupyx" not in emitted.text
    assert "import cupy" not in emitted.text
    return lines_about_streams(text), lines_about_tasks(emitted.text)


@pytest.mark.parametrize("seed", [100])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_pipeline_gets_a_form(tmp_path, shape, seed):
    """Each shape has a form that prints the same."""
    assert check(tmp_path, shape, seed) is not None


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shape", SHAPES)
def test_many_pipelines_get_a_form(tmp_path, shape):
    """Of each shape, at least 80 % have a form, and 40 % of their lines about streams and copies are gone."""
    found = []
    for seed in range(N_SEEDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found.append(check(folder, shape, seed))
    made = [pair for pair in found if pair is not None]
    assert len(made) >= 0.8 * N_SEEDS
    if shape in {*RINGS, "two_inputs", "accumulate", "functions"}:
        assert all(after <= 0.6 * before for before, after in made)
    before, after = (sum(column) for column in zip(*made, strict=True))
    assert after <= 0.6 * before
    print(f"{shape}: {len(made)} of {N_SEEDS} forms, {before} lines about streams became {after}")


def test_the_command_writes_the_form_of_a_ring(tmp_path):
    """``offload port --emit`` writes a file that runs, and names it in the report."""
    program, form, report = tmp_path / "ring.py", tmp_path / "form.py", tmp_path / "report.json"
    program.write_text(program_of("ring", 0))
    command = [sys.executable, "-m", "offload", "port", "--emit", str(form), "--report", str(report), str(program)]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": root})
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    assert (found["emitted"], found["reasons"]) == (str(form), [])
    assert run_text(tmp_path, form.read_text(), "again.py") in done.stdout


def test_the_command_says_why_there_is_no_form(tmp_path):
    """Without a form, ``emitted`` is null, nothing is written, and the reasons name the lines."""
    program, form, report = tmp_path / "program.py", tmp_path / "form.py", tmp_path / "report.json"
    program.write_text("import cupy\n\ns = cupy.cuda.Stream()\nx = cupy.zeros(3)\ns.use()\nx += 1\ns.synchronize()\n")
    command = [sys.executable, "-m", "offload", "port", "--emit", str(form), "--report", str(report), str(program)]
    root = str(Path(__file__).parents[2])
    subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": root})
    found = json.loads(report.read_text())
    assert found["emitted"] is None
    assert found["reasons"]
    assert all("line" in reason for reason in found["reasons"])
    assert not form.exists()
