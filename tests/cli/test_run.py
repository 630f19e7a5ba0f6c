"""``offload run``: a program runs as under ``python``, and files are whole or absent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.profiles import few
from tests.reports.validator import check, read
from tests.strict import STRICT

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OFFLOAD_DEVICES": "sim:1"}
TASKS = """
import numpy as np
import offload as omp
def axpy(x, y):
    x += y
x = np.zeros(100)
omp.task(axpy, depend=[omp.inout(x)])(x, 1)
omp.target(nowait=True, depend=[omp.inout(x)])(axpy)(x, 1)
omp.taskwait()
"""

ALL_FILES = ["--trace", "t.json", "--graph", "g.svg"]


def python(folder, *words, **kwargs):
    """Run Python in a folder; return what came of it."""
    given = {"env": ENVIRONMENT, "cwd": folder, "capture_output": True, "text": True, "timeout": 60}
    return subprocess.run([sys.executable, *map(str, words)], check=False, **{**given, **kwargs})


def run(folder, *words, **kwargs):
    """Run ``offload run``."""
    return python(folder, *STRICT, "-m", "offload", "run", *words, **kwargs)


# -- as under python --------------------------------------------------------------------------------
SHOWS = """
import inspect, os, sys
print(__name__, sys.argv, sys.path[0], __file__, __package__, __spec__, sys.modules["__main__"].__dict__ is globals())
def shown():
    pass
print(inspect.getsource(shown), type(__builtins__))
"""


@pytest.mark.parametrize("words", [[], ["a", "--trace", "-1", "--", "-m"], [""]])
def test_names_and_arguments(program, tmp_path, words):
    """`__name__`, ``sys.argv``, ``sys.path[0]``, ``__file__`` and the source are those of Python."""
    program(SHOWS, "folder/program.py")
    expected = python(tmp_path, "folder/program.py", *words)
    assert expected.returncode == 0
    for separator in ([], ["--"]):
        found = run(tmp_path, *separator, "folder/program.py", *words)
        assert (found.stdout, found.returncode, found.stderr) == (expected.stdout, 0, "")


def test_a_link(program, tmp_path):
    """Modules are looked for in the folder of the file that a link points to."""
    program("import beside; print(__file__)", "folder/program.py")
    program("", "folder/beside.py")
    (tmp_path / "link.py").symlink_to("folder/program.py")
    assert run(tmp_path, "link.py").stdout == python(tmp_path, "link.py").stdout != ""


def test_a_module(program, tmp_path):
    """``-m`` runs a module, and a package's ``__main__``, with the folder of the caller in the path."""
    program("import sys; print(__name__, sys.argv, sys.path[0], __package__)", "package/__main__.py")
    expected = python(tmp_path, "-m", "package", "-x")
    found = run(tmp_path, "-m", "package", "-x")
    assert (found.stdout, found.returncode) == (expected.stdout, 0)


def test_code(tmp_path):
    """``-c`` runs code."""
    code = "import sys; print(__name__, sys.argv, sys.path[0])"
    assert run(tmp_path, "-c", code, "a", "-b").stdout == python(tmp_path, "-c", code, "a", "-b").stdout != ""


STATUSES = {
    "": 0,
    "raise SystemExit": 0,
    "raise SystemExit(3)": 3,
    "import sys; sys.exit('no')": 1,
    "import sys; sys.exit(None)": 0,
    "raise ValueError('bad')": 1,
    "def": 1,
    "raise KeyboardInterrupt": 130,
    "import os; os._exit(7)": 7,
    "import offload as omp; omp.task(lambda: 1 / 0)()": 1,
    "import atexit, offload; atexit.register(print, 'the end')": 0,
}


@pytest.mark.parametrize(("text", "status"), STATUSES.items())
def test_statuses(program, tmp_path, text, status):
    """The status is the program's own, and so are output and tracebacks."""
    path = program(text)
    expected, found = python(tmp_path, path), run(tmp_path, path)
    assert found.returncode == status
    assert found.stdout == expected.stdout
    if "omp" not in text:
        assert found.stderr == expected.stderr
    assert "cli/run.py" not in found.stderr


def test_a_traceback_has_the_program_alone(program, tmp_path):
    """A failure in a function of the program shows its frames, and the cause, and none of the command's."""
    path = program(
        "def f():\n    try:\n        1 / 0\n    except ZeroDivisionError as e:\n        raise ValueError from e\nf()\n"
    )
    expected, found = python(tmp_path, path), run(tmp_path, path)
    assert found.stderr == expected.stderr
    assert found.returncode == 1


def test_options_belong_to_every_runtime(program, tmp_path):
    """``--devices`` is for the default runtime and others without a specification; an explicit one wins."""
    path = program(
        "import offload as omp\nprint(omp.get_num_devices())\n"
        "with omp.Runtime() as r: print(len(r.devices()))\nwith omp.Runtime('sim:3') as r: print(len(r.devices()))\n"
    )
    assert run(tmp_path, "--devices", "sim:2", path).stdout == "2\n2\n3\n"


def test_check(program, tmp_path):
    """``--check`` reports data that is left, also of runtimes that do not ask for it."""
    path = program(
        "import numpy as np, offload as omp\nx = np.ones(3)\n"
        "with omp.Runtime('sim:1'): omp.target_enter_data(map=[omp.to(x)])\n"
    )
    found = run(tmp_path, "--check", path)
    assert found.returncode == 1
    assert "LeakError" in found.stderr


# -- mistakes ---------------------------------------------------------------------------------------
MISTAKES = {
    "no program": [],
    "an absent program": ["absent.py"],
    "a folder": ["."],
    "an unknown option": ["--no-such-option", "program.py"],
    "an option without its value": ["--trace"],
    "an empty value": ["--trace", "", "program.py"],
    "a suffix of a trace": ["--trace", "t.txt", "program.py"],
    "a suffix of a graph": ["--graph", "g.json", "program.py"],
    "an option that takes the program as its value": ["--hang", "program.py"],
    "a time that is no number": ["--hang", "soon", "program.py"],
    "a time below 0": ["--hang=-1", "program.py"],
    "a folder that does not exist": ["--trace", "missing/t.json", "program.py"],
    "a folder as a file": ["--graph", "folder.svg", "program.py"],
    "-m without a module": ["-m"],
}


@pytest.mark.parametrize("words", MISTAKES.values(), ids=MISTAKES)
def test_mistakes(program, tmp_path, words):
    """A mistake in the command line has status 2 and a message, and the program does not start."""
    program("print('started')")
    (tmp_path / "folder.svg").mkdir()
    before = sorted(tmp_path.iterdir())
    found = run(tmp_path, *words)
    assert found.returncode == 2
    assert found.stdout == ""
    assert "offload run: error: " in found.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_a_suffix_names_the_allowed_ones(program, tmp_path):
    """The message about a suffix has those that can be written."""
    path = program("")
    assert ".json, .json.gz" in run(tmp_path, "--trace", "t.txt", path).stderr
    for suffix in (".dot", ".svg", ".html", ".mmd"):
        assert suffix in run(tmp_path, "--graph", "g.json", path).stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_is_read_only(program, tmp_path):
    """A file that must not be written is reported before the program starts."""
    (tmp_path / "t.json").touch(0o400)
    assert run(tmp_path, "--trace", "t.json", program("print(1)")).returncode == 2


def test_help(tmp_path):
    """The help names the options."""
    found = run(tmp_path, "--help")
    assert found.returncode == 0
    for option in ("--devices", "--check", "--live", "--profile", "--trace", "--graph", "--hang"):
        assert option in found.stdout


# -- files ------------------------------------------------------------------------------------------
def test_all_at_once(program, tmp_path):
    """All options together leave output and status alone, and each file is right."""
    path = program(TASKS + "print('done')\n")
    found = run(
        tmp_path,
        "--trace",
        "t.json.gz",
        "--graph",
        "g.svg",
        "--profile",
        "--live",
        "--check",
        "--devices",
        "sim:2",
        path,
    )
    assert (found.stdout, found.returncode) == ("done\n", 0)
    assert sorted(event["name"] for event in check(read(tmp_path / "t.json.gz")).values()) == ["axpy", "axpy"]
    assert "<svg" in (tmp_path / "g.svg").read_text()
    assert "critical path" in found.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["g.svg", "program.py", "t.json.gz"]


@pytest.mark.parametrize("suffix", [".dot", ".html", ".mmd", ".svg"])
def test_graphs(program, tmp_path, suffix):
    """The graph has the tasks of all threads and their dependences, in each format; a record goes on working."""
    path = program(TASKS + "with omp.record() as g: omp.task(int, name='recorded')()\nprint(len(g.tasks))\n")
    found = run(tmp_path, "--graph", f"g{suffix}", path)
    assert (found.returncode, found.stdout, found.stderr) == (0, "1\n", "")
    text = (tmp_path / f"g{suffix}").read_text()
    assert "axpy" in text
    assert "recorded" in text
    if suffix == ".dot":
        assert "flow: float64[100]" in text


@pytest.mark.parametrize("end", ["raise ValueError", "raise SystemExit(5)", "raise KeyboardInterrupt"])
def test_files_of_programs_that_fail(program, tmp_path, end):
    """A program that fails, exits or is interrupted leaves whole files."""
    path = program(TASKS + end + "\n")
    assert run(tmp_path, "--trace", "t.json", "--graph", "g.dot", path).returncode in {1, 5, 130}
    assert len(check(read(tmp_path / "t.json"))) == 2
    assert (tmp_path / "g.dot").read_text().rstrip().endswith("}")


def test_an_empty_program(program, tmp_path):
    """A program without a task, which need not even import the library, has an empty trace, graph and profile."""
    found = run(tmp_path, "--trace", "t.json", "--graph", "g.svg", "--profile", "--live", program(""))
    assert found.returncode == 0
    assert check(read(tmp_path / "t.json")) == {}


def test_ten_runtimes(program, tmp_path):
    """Tasks of all runtimes are in one file."""
    path = program(
        "import offload as omp\nfor n in range(10):\n"
        "    with omp.Runtime('sim:1', num_threads=1): omp.task(int, name=f'task {n}')().result()\n"
    )
    assert run(tmp_path, "--trace", "t.json", path).returncode == 0
    assert {event["name"] for event in check(read(tmp_path / "t.json")).values()} == {f"task {n}" for n in range(10)}


def test_a_program_that_forks(program, tmp_path):
    """A forked child writes no file; the parent's is whole."""
    path = program(TASKS + "import os\nif os.fork() == 0:\n    raise SystemExit\nos.wait()\n")
    assert run(tmp_path, "--trace", "t.json", path).returncode == 0
    assert len(check(read(tmp_path / "t.json"))) == 2


def test_a_program_that_forks_with_all_options(program, tmp_path):
    """The reports of a program whose children fork, run tasks and end in several ways are the parent's alone."""
    path = program(
        TASKS + "import multiprocessing, os\n"
        "def work(n):\n"
        "    with omp.Runtime('sim:1'): omp.task(int, name='child')().result()\n"
        "    return n\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('fork').Pool(2) as pool: print(sum(pool.map(work, range(4))))\n"
        "    if os.fork() == 0: os._exit(0)\n"
        "    os.wait()\n"
    )
    found = run(tmp_path, *ALL_FILES, "--profile", "--live", path)
    assert (found.stdout, found.returncode) == ("6\n", 0), found.stderr
    assert found.stderr.count("The run took") == 1
    assert {event["name"] for event in check(read(tmp_path / "t.json")).values()} == {"axpy"}
    assert "child" not in (tmp_path / "g.svg").read_text()


ENDS = {
    "import os\nos._exit(7)": 7,
    "import sys\nsys.exit(3)": 3,
    "import threading, sys\nthreading.Thread(target=sys.exit, args=(4,)).start()": 0,
    "raise ValueError('bad')": 1,
    "omp.task(lambda: 1 / 0)()\nomp.taskwait()": 1,
    "omp.task(lambda: 1 / 0)()": 1,
    "raise KeyboardInterrupt": 130,
    "raise MemoryError": 1,
    "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time\ntime.sleep(60)": 130,
    "omp.task(time.sleep)(0.05)\nimport os, signal, threading\n"
    "event = omp.Event()\nomp.task(int, detach=event)()\n"
    "try:\n    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()\n    omp.taskwait()\n"
    "finally:\n    event.fulfill()": 130,
}


@pytest.mark.parametrize("start", few(1, [["program.py"], ["-m", "program"], ["-c"]]))
@pytest.mark.parametrize(("end", "status"), ENDS.items())
def test_ends(program, tmp_path, start, end, status):
    """However a program ends, by whichever way it was started, its status is its own, and files are whole or absent."""
    text = TASKS + "import time\nprint('done', flush=True)\n" + end + "\n"
    program(text)
    found = run(tmp_path, *ALL_FILES, *start, *([text] if start == ["-c"] else []))
    assert (found.stdout, found.returncode) == ("done\n", status), found.stderr
    assert "could not be written" not in found.stderr
    names = {file.name for file in tmp_path.iterdir()} - {"__pycache__"}
    if status == 7:
        assert names == {"program.py"}
    else:
        assert names == {"program.py", "t.json", "g.svg"}
        assert {"axpy"} <= {event["name"] for event in check(read(tmp_path / "t.json")).values()}
        ET.parse(tmp_path / "g.svg")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)])
def test_signals(program, tmp_path, number, status):
    """A program that SIGTERM ends leaves no file, as Python ends at once; after Ctrl-C all files are whole."""
    path = program(TASKS + "import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    words = [sys.executable, "-m", "offload", "run", *ALL_FILES, "--profile", "--live", str(path)]
    with subprocess.Popen(words, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        assert job.stdout.readline() == b"ready\n"
        job.send_signal(number)
        assert job.wait(60) == status
    names = {file.name for file in tmp_path.iterdir()}
    if number == signal.SIGTERM:
        assert names == {"program.py"}
    else:
        assert names == {"t.json", "g.svg", "program.py"}
        assert len(check(read(tmp_path / "t.json"))) == 2
        ET.parse(tmp_path / "g.svg")


def test_a_program_that_changes_its_folder(program, tmp_path):
    """A relative path is that of the folder in which the command was called."""
    path = program(TASKS + "import os\nos.chdir('/')\n")
    assert run(tmp_path, "--trace", "t.json", path).returncode == 0
    assert json.loads((tmp_path / "t.json").read_text())


def test_a_reader_that_goes(program, tmp_path):
    """A pipe on stderr that nobody reads any more does not stop the program."""
    path = program(TASKS + "print('done')\n")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        found = run(tmp_path, "--profile", "--live", path, capture_output=False, stdout=subprocess.PIPE, stderr=writer)
    finally:
        os.close(writer)
    assert found.stdout == "done\n"
    assert found.returncode in {0, 1}


@pytest.mark.parametrize(
    "extra", [{"TERM": "dumb"}, {"NO_COLOR": "1"}, {"COLUMNS": "20"}, {"PYTHONIOENCODING": "ascii"}]
)
def test_terminals(program, tmp_path, extra):
    """Profile and live view stand any terminal."""
    path = program(TASKS + "omp.task(int, name='[red]ü' * 9)()\nprint('done')\n")
    found = run(tmp_path, "--profile", "--live", path, env={**ENVIRONMENT, **extra})
    assert (found.stdout, found.returncode) == ("done\n", 0)
    assert "critical" in found.stderr
