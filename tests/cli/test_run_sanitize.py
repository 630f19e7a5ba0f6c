"""``offload run --sanitize``: the findings of a program, its exit status, the JSON report, and bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.strict import STRICT

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OFFLOAD_DEVICES": "sim:1"}

STALE = """
import sys
import numpy as np
import offload as omp
@omp.target(map=[omp.to("x")])
def double(x):
    x *= 2
x = np.ones(4)
double(x)
print(x, type(x).__name__, sys.argv[1:])
"""
CLEAN = STALE.replace("omp.to(", "omp.tofrom(")
KEYS = {"version", "program", "accesses", "not_seen", "findings", "more", "silenced"}


def run(folder, *words, **kwargs):
    """Run ``offload run`` in a folder; return what came of it."""
    given = {"env": ENVIRONMENT, "cwd": folder, "capture_output": True, "text": True, "timeout": 100}
    command = [sys.executable, *STRICT, "-m", "offload", "run", *map(str, words)]
    return subprocess.run(command, check=False, **{**given, **kwargs})


@pytest.fixture
def program(tmp_path):
    """Return a function that writes a program."""

    def write(text, name="program.py"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return name

    return write


def report(tmp_path):
    return json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))


def test_findings(program, tmp_path):
    """A program with findings ends with 1, prints its own output alone, and has a report in JSON."""
    found = run(tmp_path, "--sanitize", "--report", "r.json", program(STALE), "a", "-b")
    assert (found.returncode, found.stdout) == (1, "[1. 1. 1. 1.] ndarray ['a', '-b']\n")
    path = str(tmp_path / "program.py")
    assert f"{path}:7 in double: x *= 2" in found.stderr
    assert f'map(tofrom: x): change to("x") to tofrom("x") at {path}:5' in found.stderr
    written = report(tmp_path)
    assert written.keys() == KEYS
    assert (written["version"], written["program"], written["not_seen"]) == (1, ["program.py", "a", "-b"], [])
    (finding,) = written["findings"]
    assert finding == {
        "rule": "stale-host",
        "item": "x",
        "elements": "[0:4]",
        "first": {"file": path, "line": 7, "what": "write", "name": "double"},
        "second": {"file": path, "line": 10, "what": "read", "name": "MainThread"},
        "fix": {"kind": "map", "text": "map(tofrom: x)", "file": path, "line": 5},
        "count": 1,
    }


LEAK = """
import numpy as np
import offload as omp
class Model:
    def __init__(self):
        self.weights = np.ones(4)
        omp.target_enter_data(map=[omp.to(self.weights)])
    def __call__(self):
        return omp.target(lambda w: w.sum())(self.weights)
with omp.Runtime("sim"):
    model = Model()
    for _ in range(2):
        model()
"""


def test_the_line_of_a_release(program, tmp_path):
    """The release belongs to a line of the program, and not to the command that runs it."""
    run(tmp_path, "--sanitize", "--report", "r.json", program(LEAK))
    (finding,) = report(tmp_path)["findings"]
    assert (finding["fix"]["file"], finding["fix"]["line"]) == (str(tmp_path / "program.py"), 13)
    assert finding["fix"]["text"] == "target_exit_data(map=[release(model.weights)])"


def test_no_findings(program, tmp_path):
    """A clean program ends with 0, and one line says how much was examined."""
    found = run(tmp_path, "--sanitize", "--report", "r.json", program(CLEAN))
    assert (found.returncode, found.stdout) == (0, "[2. 2. 2. 2.] ndarray []\n")
    assert found.stderr.startswith("offload sanitizer: 0 findings in ")
    assert len(found.stderr.splitlines()) == 1
    written = report(tmp_path)
    assert (written["findings"], written["accesses"] > 0) == ([], True)


def test_mistake_of_the_sanitizer(program, tmp_path):
    """If the sanitizer itself fails, the status is 1, although there are no findings, and its error comes first."""
    text = f"""
from offload.sanitizer.sanitizer import Sanitizer
def fail(*args, **options):
    raise ValueError("a mistake")
Sanitizer._access = fail
{CLEAN}"""
    found = run(tmp_path, "--sanitize", "--report", "r.json", program(text))
    assert (found.returncode, found.stdout) == (1, "[2. 2. 2. 2.] ndarray []\n")
    assert found.stderr.startswith("error: the sanitizer failed")
    assert 'in fail\n    raise ValueError("a mistake")\nValueError: a mistake\n' in found.stderr
    assert "ValueError('a mistake')" in report(tmp_path)["not_seen"][0]


ENDS = {
    "raise KeyError(3)": 1,
    "sys.exit(3)": 3,
    "sys.exit('sorry')": 1,
    "sys.exit()": 1,
    "raise KeyboardInterrupt": 130,
    "import nowhere": 1,
    "omp.task(lambda: [][0])()": 1,
}


@pytest.mark.parametrize(("text", "status"), ENDS.items())
def test_ends(program, tmp_path, text, status):
    """A program that fails, exits or is interrupted has its report, its own status, and its own traceback."""
    found = run(tmp_path, "--sanitize", "--report", "r.json", program(f"{STALE}{text}\n"))
    plain = run(tmp_path, "program.py")
    assert found.returncode == status
    assert len(report(tmp_path)["findings"]) == 1
    assert found.stdout == plain.stdout
    if "omp" not in text:
        assert found.stderr.startswith(plain.stderr)
    assert "offload/sanitizer" not in found.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signals")
def test_interrupted(program, tmp_path):
    """After Ctrl-C in the middle of a program the report is written, and the status is 130."""
    program(f"{STALE}print(flush=True)\nimport time\ntime.sleep(60)\n")
    command = [sys.executable, *STRICT, "-m", "offload", "run", "--sanitize", "--report", "r.json", "program.py"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, **pipes) as process:
        process.stdout.readline()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "KeyboardInterrupt" in errors
    assert len(report(tmp_path)["findings"]) == 1


def test_several_runtimes(program, tmp_path):
    """The options apply to every runtime, and the report has the findings of all of them."""
    text = STALE.replace("double(x)\n", "for _ in range(2):\n    with omp.Runtime('sim:1'):\n        double(x)\n")
    found = run(tmp_path, "--sanitize", "--report", "r.json", program(text.replace("print(x", "        print(x")))
    assert found.returncode == 1
    (finding,) = report(tmp_path)["findings"]
    assert finding["count"] == 2


def test_no_runtime(program, tmp_path):
    """A program that opens no runtime has no findings, and the summary line says that nothing was seen."""
    found = run(tmp_path, "--sanitize", "--report", "r.json", program("print(3)"))
    assert (found.returncode, found.stdout) == (0, "3\n")
    unseen = "the whole program, which opened no runtime"
    assert found.stderr == f"offload sanitizer: 0 findings in 0 accesses of this run; not seen: {unseen}\n"
    assert (report(tmp_path)["findings"], report(tmp_path)["accesses"]) == ([], 0)
    assert report(tmp_path)["not_seen"] == [unseen]


def test_modules_of_the_program(program, tmp_path):
    """The files under the program's folder have tracked arrays, and other packages have NumPy."""
    program("from numpy import ones\ndef made():\n    return ones(4)\n", "other.py")
    text = STALE.replace("import numpy as np\n", "import other\n").replace("np.ones(4)", "other.made()")
    found = run(tmp_path, "--sanitize", program(text))
    assert (found.returncode, "stale-host" in found.stderr) == (1, True)


@pytest.mark.parametrize("words", [["-m", "program"], ["-c", CLEAN], ["--", "program.py"]])
def test_other_forms(program, tmp_path, words):
    """Modules and code are run as well."""
    program(CLEAN)
    found = run(tmp_path, "--sanitize", *words)
    assert (found.returncode, found.stdout) == (0, "[2. 2. 2. 2.] ndarray []\n")


def test_the_variable(program, tmp_path):
    """``OFFLOAD_SANITIZE`` sanitizes without the command, and sees device arrays."""
    program(STALE.replace("omp.to(", "omp.from_("))
    env = {**ENVIRONMENT, "OFFLOAD_SANITIZE": "1"}
    command = [sys.executable, "program.py"]
    found = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == 0
    assert "uninitialised" in found.stderr
    assert "is not tracked" in found.stderr


MISTAKES = {
    ("--report", "r.json", "program.py"): "--sanitize",
    ("--sanitize", "--report", "", "program.py"): "--report",
    ("--sanitize", "--report", "nowhere/r.json", "program.py"): "does not exist",
    ("--sanitize", "--report", ".", "program.py"): "is a folder",
    ("--sanitize", "--devices", "cuda", "program.py"): "sim",
    ("--sanitize", "--devices", "sim,cuda:0", "program.py"): "sim",
    ("--sanitize", "--devices", "dask", "program.py"): "sim",
    ("--sanitize", "absent.py"): "does not exist",
    ("--sanitize", "."): "is a folder",
    ("--sanitize",): "name a program",
    ("--sanitize", "--report", "program.py"): "is the value of --report",
}


@pytest.mark.parametrize(("words", "message"), MISTAKES.items())
def test_mistakes(program, tmp_path, words, message):
    """A mistake in the command line ends with 2 before the program starts, and says what is wrong."""
    program("print('started')")
    found = run(tmp_path, *words)
    assert (found.returncode, found.stdout) == (2, "")
    assert message in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("text", ["def", "\0", "x = = 3"])
def test_not_python(program, tmp_path, text):
    """A file that is not Python fails as under Python, and its report is empty."""
    found = run(tmp_path, "--sanitize", "--report", "r.json", program(text))
    assert (found.returncode, found.stdout) == (1, "")
    assert report(tmp_path)["findings"] == []


def test_a_device_of_the_program(program, tmp_path):
    """A CUDA device that the program itself asks for is refused with the advice to use simulated ones."""
    text = "import offload as omp\nomp.Runtime('cuda')\n"
    found = run(tmp_path, "--sanitize", program(text))
    assert found.returncode == 1
    assert "UnsupportedError" in found.stderr
    assert "use devices='sim'" in found.stderr
