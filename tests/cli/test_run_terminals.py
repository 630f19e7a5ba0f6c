"""``offload run`` with any terminal and any names: it shows something or nothing, and never stops the program."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from xml.etree import ElementTree as ET

import pytest

from tests.cli.test_run import ENVIRONMENT, run
from tests.profiles import few
from tests.reports.validator import check, read

NAMES = [
    "quote \" ' `",
    "two\nlines\r\n\t",
    "n" * 10_000,
    "[red]",
    "[/]",
    "</script><b>&",
    "\x1b[2J\x07",
    "名前ü",
    "%s{0}$x",
]
HEAD = "import time, offload as omp\n"
TASKS = HEAD + f"for name in {NAMES!r}:\n    omp.task(int, name=name)()\nomp.taskwait()\n"
LIVE = TASKS + "time.sleep(0.6)\nprint('done')\n"
LABEL = (
    HEAD + f"for name in {NAMES!r}:\n    with omp.progress(name):\n        omp.task(int)()\n        omp.taskwait()\n"
)
TERMINALS = {
    "as usual": {},
    "dumb": {"TERM": "dumb"},
    "no colour": {"NO_COLOR": "1"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "latin 1": {"PYTHONIOENCODING": "latin-1:strict"},
    "unknown": {"TERM": "no-such-terminal"},
    "no term": {"TERM": ""},
    "forced": {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"},
}


def shown_on(words, env, *, reads=True):
    """Run ``offload run`` with its stderr on a terminal, which goes at once if nobody ``reads``; return all of it."""
    controller, terminal = pty.openpty()
    parts = []

    def follow():
        with suppress(OSError):
            while part := os.read(controller, 65536):
                parts.append(part)

    job = subprocess.Popen(
        [sys.executable, "-m", "offload", "run", *words],
        env={**ENVIRONMENT, "TERM": "xterm-256color", **env}, stdout=subprocess.PIPE, stderr=terminal, text=True,
    )  # fmt: skip
    os.close(terminal)
    if not reads:
        os.close(controller)
    else:
        reader = threading.Thread(target=follow)
        reader.start()
    out, _ = job.communicate(timeout=60)
    if reads:
        reader.join(10)
        os.close(controller)
    return job.returncode, out, b"".join(parts).decode("utf-8", "replace")


@pytest.mark.parametrize("columns", few(1, ["20", "80", "1", "0"]))
@pytest.mark.parametrize("env", TERMINALS.values(), ids=TERMINALS)
def test_terminals(program, env, columns):
    """On any terminal the program runs as ever; names show as they are, and none of their signs has an effect."""
    words = ["--live", "--profile", str(program(LIVE))]
    status, out, shown = shown_on(words, {"COLUMNS": columns, **env})
    assert (status, out) == (0, "done\n")
    if columns in {"20", "80"}:
        assert "The run took" in shown
        assert re.search("quo.*(µs|ms|us|ns)", shown)  # a name, perhaps cut, and a number next to it
    assert "\x1b[2J" not in shown
    assert "\x07" not in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize("env", few(2, TERMINALS.values()), ids=str)
def test_labels_of_progress(program, env):
    """A bar takes any label on any terminal."""
    status, out, shown = shown_on([str(program(LABEL + "print('done')\n"))], {"COLUMNS": "200", **env})
    assert (status, out) == (0, "done\n")
    assert "\x1b[2J" not in shown
    assert "Traceback" not in shown
    if not env:
        assert "[red]" in shown


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there are no terminals that hang up")
def test_a_terminal_that_goes(program):
    """If the terminal goes away, the program ends as without the command; it is not the view that stops it."""
    path = program(LIVE + "with omp.progress(): omp.task(int)()\n")
    status, out, _ = shown_on(["--live", str(path)], {}, reads=False)
    assert (status, out) == (0, "done\n")


@pytest.mark.parametrize("closed", ["2>&-", "1>&- 2>&-", "0<&- 2>&-"])
def test_no_terminal_at_all(program, tmp_path, closed):
    """Without a stderr from the beginning, and without a stdout, files are written as ever."""
    path = program(LIVE)
    command = f'"{sys.executable}" -m offload run --live --profile --trace t.json --graph g.svg "{path}" {closed}'
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "" if "1>" in closed else "done\n")
    assert len(check(read(tmp_path / "t.json"))) == len(NAMES)
    ET.parse(tmp_path / "g.svg")


def test_a_pipe_that_closes_in_the_middle(program, tmp_path):
    """A reader of stderr that goes while the program runs stops neither the program nor the files."""
    path = program(HEAD + "import sys\nprint('ready', file=sys.stderr, flush=True)\ninput()\n" + LIVE)
    job = subprocess.Popen(
        [sys.executable, "-m", "offload", "run", "--live", "--profile", "--trace", "t.json", str(path)],
        cwd=tmp_path, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with job:
        assert job.stderr.readline() == "ready\n"
        job.stderr.close()
        job.stdin.write("\n")
        job.stdin.close()
        assert job.stdout.read() == "done\n"
        job.wait(60)
    assert len(check(read(tmp_path / "t.json"))) == len(NAMES)


@pytest.mark.parametrize("suffix", [".dot", ".html", ".mmd", ".svg"])
def test_names_in_files(program, tmp_path, suffix):
    """Each file takes any name: a trace as it is, a picture so that no sign has an effect."""
    found = run(tmp_path, "--trace", "t.json", "--graph", f"g{suffix}", program(TASKS))
    assert (found.returncode, found.stderr) == (0, "")
    names = {event["name"] for event in check(read(tmp_path / "t.json")).values()}
    assert {name[:40] for name in names} == {name[:40] for name in NAMES}
    text = (tmp_path / f"g{suffix}").read_text(encoding="utf-8")
    assert suffix == ".dot" or "<b>" not in text  # Graphviz reads no markup in quotes
    assert "\x1b" not in text
    assert len(text) < 200_000
    if suffix == ".svg":
        ET.fromstring(text)
    if suffix == ".html":
        assert text.count("</script>") == text.count("<script")


def test_names_in_json(tmp_path):
    """A surrogate in a name does not keep a trace from being whole."""
    code = "import offload as omp\nomp.task(int, name='a\\ud800b')()\nomp.taskwait()"
    found = run(tmp_path, "--trace", "t.json", "--graph", "g.svg", "--profile", "--live", "-c", code)
    assert found.returncode == 0, found.stderr
    assert json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    ET.parse(tmp_path / "g.svg")
