"""``offload port``: reports on stdout and as JSON, files whole or absent, statuses, and bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OFFLOAD_DEVICES": "sim:1"}

CLEAN = """\
import cupy as cp
import cupyx
s = cp.cuda.Stream(non_blocking=True)
h = cupyx.zeros_pinned(8)
with s:
    x = cp.asarray(h)
    x += 1
    x.get(out=h, blocking=False)
s.synchronize()
print("sum", h.sum())
"""
RACY = CLEAN.replace("s.synchronize()\n", "")
UNWRITTEN = "import cupy as cp\nx = cp.empty(8)\nprint('sum', x.sum().get() is not None)\n"


def port(folder, *words, **kwargs):
    """Run ``offload port``; return what came of it."""
    return forked.python(
        "-m", "offload", "port", *words, **{"env": ENVIRONMENT, "cwd": folder, "strict": True, **kwargs}
    )


def read(path):
    """Return a report."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def test_a_clean_program(program, tmp_path):
    """A clean program has status 0; its output and the report are on stdout."""
    path = program(CLEAN)
    found = port(tmp_path, "--report", "r.json", path)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("sum 8.0\n")
    assert "1 stream, 3 operations; 0 races" in found.stdout
    report = read(tmp_path / "r.json")
    assert (report["program"], report["on"], report["streams"], report["operations"]) == ([str(path)], "sim", 1, 3)


def test_a_race(program, tmp_path):
    """A race gives status 1, and stands in the report with both lines and the missing call."""
    found = port(tmp_path, "--report=r.json", "--", program(RACY))
    assert (found.returncode, found.stderr) == (1, "")
    assert "missing: s.synchronize(); before line 9\n" in found.stdout
    [race] = read(tmp_path / "r.json")["races"]
    assert (race["first"]["line"], race["second"]["line"], race["fix"]["text"]) == (8, 9, "s.synchronize()")


def test_a_narrow_terminal(program, tmp_path):
    """The head, the sides of a race and the missing call are whole in a narrow terminal, and in a pipe."""
    text = f"{RACY.strip()}  # {'a long line ' * 9}the end\n"
    found = port(tmp_path, "--emit", "form.py", program(text), env={**ENVIRONMENT, "COLUMNS": "40"})
    assert "1 stream, 3 operations; 1 race, 0 reads of unwritten memory, 0 needless calls\n" in found.stdout
    assert f", line 9: {text.splitlines()[8]}\n" in found.stdout
    assert "    missing: s.synchronize(); before line 9\n" in found.stdout
    words = found.stdout.partition("No task form: ")[2].split()
    assert (
        " ".join(words).partition(" The dependences")[0]
        == "the program has races, which have to be corrected first: lines 8 and 9"
    )


def test_a_program_of_an_installed_package(program, tmp_path):
    """A program of an installed package is recorded as any other, and so are the modules next to it."""
    (tmp_path / "site-packages").mkdir()
    path = program(f"import beside\n{RACY}", "site-packages/package/program.py")
    program("import cupy\ncupy.zeros(3)\n", "site-packages/package/beside.py")
    found = port(tmp_path, path)
    assert (found.returncode, found.stderr) == (1, "")
    assert "missing: s.synchronize(); before line 10\n" in found.stdout


def test_unwritten_memory(program, tmp_path):
    """A read of memory that was never written gives status 1."""
    found = port(tmp_path, "--report", "r.json", program(UNWRITTEN))
    assert found.returncode == 1
    [one] = read(tmp_path / "r.json")["uninitialised"]
    assert (one["first"]["line"], one["second"]["line"]) == (2, 3)


def test_names_and_arguments(program, tmp_path):
    """`__name__`, ``sys.argv``, ``sys.path[0]`` and ``__file__`` are those of Python."""
    program("import sys\nprint(__name__, sys.argv, sys.path[0], __file__)\nimport beside\n", "folder/program.py")
    program("import cupy\nprint(cupy.arange(3).sum())\n", "folder/beside.py")
    found = port(tmp_path, "folder/program.py", "a", "--report", "-1")
    folder = tmp_path / "folder"
    expected = f"__main__ ['folder/program.py', 'a', '--report', '-1'] {folder} {folder / 'program.py'}\n3\n"
    assert found.stdout.startswith(expected)
    assert (found.returncode, found.stderr) == (0, "")


def test_a_program_without_streams(program, tmp_path):
    """A program that opens no stream has an empty report, and status 0."""
    for text in ("print('hello')\n", "import cupy\nprint('hello')\n"):
        found = port(tmp_path, "--report", "r.json", program(text))
        assert (found.returncode, found.stderr) == (0, "")
        report = read(tmp_path / "r.json")
        assert report["streams"] == report["operations"] == 0
        assert not any(report[key] for key in ("races", "uninitialised", "redundant", "blocking", "edges"))


STATUSES = {
    "raise SystemExit": 0,
    "raise SystemExit(3)": 3,
    "import sys; sys.exit('no')": 1,
    "raise ValueError('bad')": 1,
    "def": 1,
    "raise KeyboardInterrupt": 130,
}


@pytest.mark.parametrize(("text", "status"), STATUSES.items())
def test_programs_that_end_early(program, tmp_path, text, status):
    """The status is the program's own, and the report is written."""
    path = program(f"{CLEAN}{text}\n")
    found = port(tmp_path, "--report", "r.json", path)
    assert found.returncode == status
    assert read(tmp_path / "r.json")["operations"] == (0 if text == "def" else 3)
    assert (f"The program ended with status {status}: " in found.stdout) == (status != 0)
    assert "Traceback" not in found.stderr or 'File "' + str(path) in found.stderr.splitlines()[1]


def test_a_failing_program_with_a_race(program, tmp_path):
    """A program that fails half-way and has a race gives status 1, and its races are reported."""
    found = port(tmp_path, "--report", "r.json", program(f"{RACY}raise SystemExit(7)\n"), "a", "-b")
    assert found.returncode == 1
    report = read(tmp_path / "r.json")
    assert len(report["races"]) == 1
    assert report["program"] == [str(tmp_path / "program.py"), "a", "-b"]


def test_an_interrupted_program(program, tmp_path):
    """Ctrl-C ends the program with status 130, and the report is written."""
    text = CLEAN + "print('ready', flush=True)\nimport time\nfor _ in range(1000): time.sleep(0.1)\n"
    command = [sys.executable, "-m", "offload", "port", "--report", "r.json", str(program(text))]
    with subprocess.Popen(
        command, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        while b"ready" not in run.stdout.readline():
            assert run.poll() is None
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)
    assert run.returncode == 130
    assert read(tmp_path / "r.json")["operations"] == 3


def test_threads_of_the_program(program, tmp_path):
    """The run ends when the threads that the program has started have ended, as under Python."""
    text = CLEAN + (
        "import threading\ngo = threading.Event()\n"
        "def late():\n    go.wait()\n    x.sum()\n    print('late')\n"
        "threading.Thread(target=late).start()\ngo.set()\n"
    )
    found = port(tmp_path, "--report", "r.json", program(text))
    assert (found.returncode, found.stderr) == (0, "")
    assert "late" in found.stdout.splitlines()[1]
    assert "2 host threads count as one" in found.stdout
    assert read(tmp_path / "r.json")["operations"] == 4


def test_a_hook_of_the_program(program, tmp_path):
    """The program's own ``sys.excepthook`` receives its exceptions."""
    text = "import sys\nsys.excepthook = lambda *error: print('hook', error[0].__name__)\nraise ValueError\n"
    found = port(tmp_path, program(text))
    assert (found.returncode, found.stderr) == (1, "")
    assert found.stdout.startswith("hook ValueError\n")


def test_a_graph(program, tmp_path):
    """``--graph`` writes the dependences between lines."""
    found = port(tmp_path, "--graph", "g.mmd", program(CLEAN))
    assert found.returncode == 0
    text = (tmp_path / "g.mmd").read_text(encoding="utf-8")
    assert text.startswith("flowchart")
    assert "7#58; x #43;#61; 1" in text


# -- bad input --------------------------------------------------------------------------------------
USAGE = {
    "no program": [],
    "an option without a program": ["--on", "sim"],
    "an unknown option": ["--no-such", "PROGRAM"],
    "an unknown target": ["--on", "tpu", "PROGRAM"],
    "an absent program": ["absent.py"],
    "a folder": ["."],
    "an empty value": ["--report=", "PROGRAM"],
    "a report in an absent folder": ["--report", "absent/r.json", "PROGRAM"],
    "a report that is a folder": ["--report", ".", "PROGRAM"],
    "a graph in an absent folder": ["--graph", "absent/g.svg", "PROGRAM"],
    "a graph of an unknown format": ["--graph", "g.xyz", "PROGRAM"],
    "a task form in an absent folder": ["--emit", "absent/e.py", "PROGRAM"],
    "a task form over the program": ["--emit", "program.py", "PROGRAM"],
    "a report over the program": ["--report", "program.py", "PROGRAM"],
    "access without a kernel": ["--access", "in,out", "PROGRAM"],
    "access without a word": ["--access", "f=", "PROGRAM"],
    "access with another word": ["--access", "f=in,write", "PROGRAM"],
    "access twice": ["--access", "f=in", "--access", "f=out", "PROGRAM"],
}


@pytest.mark.parametrize("name", USAGE)
def test_mistakes_in_the_command_line(name, program, tmp_path):
    """A mistake gives status 2 with a message, and the program does not run."""
    path = program(CLEAN)
    words = [str(path) if word == "PROGRAM" else word for word in USAGE[name]]
    found = port(tmp_path, *words)
    assert found.returncode == 2
    assert "offload port: error: " in found.stderr
    assert "Traceback" not in found.stderr
    assert found.stdout == ""
    assert path.read_text() == CLEAN


def test_a_program_that_is_not_python(program, tmp_path):
    """A file that is not Python fails as under Python, and the report is written."""
    path = tmp_path / "program.py"
    path.write_bytes(b"\x7fELF\x00\x01")
    found = port(tmp_path, "--report", "r.json", path)
    assert found.returncode == 1
    assert "SyntaxError" in found.stderr
    assert read(tmp_path / "r.json")["operations"] == 0


def test_cuda_without_a_gpu(program, tmp_path):
    """``--on cuda`` on a machine without CuPy or a GPU gives status 2, before the program runs."""
    environment = {**ENVIRONMENT, "CUDA_VISIBLE_DEVICES": ""}
    found = port(tmp_path, "--on", "cuda", program(CLEAN), env=environment)
    assert (found.returncode, found.stdout) == (2, "")
    assert "--on cuda needs" in found.stderr
    assert "use --on sim" in found.stderr


def test_an_unknown_name_of_cupy(program, tmp_path):
    """A name that the stand-in does not have is named with its line."""
    found = port(tmp_path, "--report", "r.json", program(CLEAN + "cp.no_such_name(x)\n"))
    assert found.returncode == 1
    assert found.stderr.count("  File ") == 1  # the program's line alone
    last = found.stderr.splitlines()[-1]
    assert last.startswith("offload.errors.UnsupportedError: program.py:11: ")
    assert "cupy.no_such_name" in last
    assert read(tmp_path / "r.json")["operations"] == 3


def test_a_source_that_does_not_parse(program, tmp_path):
    """A kernel source that does not parse is named with its line, and with the option that helps."""
    text = CLEAN + "k = cp.RawKernel('nonsense', 'f')\n"
    found = port(tmp_path, program(text))
    assert found.returncode == 1
    assert "program.py:11: " in found.stderr
    assert "--access f=in,out" in found.stderr


KERNEL = (
    CLEAN
    + """\
k = cp.RawKernel('extern "C" __global__ void f(const double* x, double* y, int n) { }', "f")
y = cp.zeros(8)
with s: k((1,), (8,), (x, y, 8))
"""
)


def test_access(program, tmp_path):
    """``--access`` replaces the signature of a kernel."""
    path = program(KERNEL)
    found = port(tmp_path, "--report", "r.json", path)
    assert found.returncode == 1
    assert "unchecked" in found.stdout
    report = read(tmp_path / "r.json")
    assert (report["unchecked"], [race["item"] for race in report["races"]]) == (True, ["y"])
    for modes in ("f=in,out", "f=in,out,in"):
        assert port(tmp_path, "--access", modes, path).returncode == 1
    text = KERNEL + "x.sum()\n"  # on the null stream, which is not ordered with the launch
    assert port(tmp_path, "--access=f=in,in", program(text.replace("(x, y, 8)", "(x, x, 8)"))).returncode == 0


def test_access_of_a_kernel_that_is_never_launched(program, tmp_path):
    """``--access`` of a kernel that was not launched gives status 2, after the report."""
    found = port(tmp_path, "--report", "r.json", "--access", "g=in", program(CLEAN))
    assert found.returncode == 2
    assert "'g', which the program never launched" in found.stderr
    assert read(tmp_path / "r.json")["operations"] == 3


def test_access_with_too_few_entries(program, tmp_path):
    """``--access`` with too few entries gives status 2, and names the launch."""
    found = port(tmp_path, "--access", "f=in", program(KERNEL))
    assert found.returncode == 2
    assert "--access f=in" in found.stderr
    assert "a launch passes 2" in found.stderr
    assert "line 13" in found.stderr


def test_a_program_that_uses_offload(program, tmp_path):
    """A program that uses offload itself is refused with the line, and with the command for such programs."""
    found = port(tmp_path, program("import cupy\nimport offload as omp\nprint('not reached')\n"))
    assert found.returncode == 1
    assert "not reached" not in found.stdout
    assert "program.py:2: the program uses offload itself" in found.stderr
    assert "offload run --sanitize" in found.stderr


def test_output_that_nobody_reads(program, tmp_path):
    """A closed pipe does not make the command fail."""
    command = f"{sys.executable} -m offload port {program(CLEAN)} | head -c 5"
    environment = {name: text for name, text in ENVIRONMENT.items() if name != "PYTHONUNBUFFERED"}
    found = subprocess.run(
        command, shell=True, cwd=tmp_path, env=environment, capture_output=True, timeout=60, check=False
    )
    assert found.stdout == b"sum 8"
    assert b"Traceback" not in found.stderr


def test_the_list_of_commands(tmp_path):
    """``offload --help`` names the command, and ``offload port --help`` its options."""
    listed = subprocess.run(
        [sys.executable, "-m", "offload", "--help"], env=ENVIRONMENT, capture_output=True, text=True, check=True
    ).stdout
    assert "port" in listed
    found = port(tmp_path, "--help")
    assert found.returncode == 0
    assert all(option in found.stdout for option in ("--on", "--report", "--graph", "--emit", "--access"))


CHECKED = """\
import cupy as cp
k = cp.RawKernel('extern "C" __global__ void k(double* x) { *x = 1; }', "k")
x = cp.zeros(1)
k((1,), (1,), (x,))
assert x.get()[0] == 1
"""


def test_a_check_of_unchecked_data_that_fails(program, tmp_path):
    """A program that fails after it received the data of a kernel that was not carried out is told so first."""
    found = port(tmp_path, program(CHECKED))
    assert found.returncode == 1
    _, *rest = found.stdout.splitlines()
    failure = " ".join(rest[:4])
    assert failure.startswith("The program failed after it had received unchecked data at line 5: ")
    assert "kernel k (line 4)" in failure
    assert rest.index("The dependences between lines:") < rest.index("Data dependences:")
