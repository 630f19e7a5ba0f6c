"""Blocks under coverage, in IPython, in the prompt, under pytest, and in tracebacks and debuggers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
import traceback
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conformance.pragma.spelling import HEADER, as_comments, dedent, import_text

ROOT = Path(__file__).parents[2]


def python(*arguments, given=None, folder=None, status=0):
    """Run Python with arguments in a folder and return what it printed."""
    import os

    done = subprocess.run(
        [sys.executable, *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder or ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OFFLOAD_DEVICES": "sim:1", "PYTHON_COLORS": "0", "NO_COLOR": "1"},
        timeout=100,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


# -- tracebacks ----------------------------------------------------------------------------------------
FAILING = """
    def helper():
        pass

    @directives
    def program(x, k):
        values = [1, 2]
        with omp("{string}"):
            {extra}
            before = k
            y = x[k - 1] if k else 1 / before
        omp("taskwait")
        return values
"""


def last_entry(error):
    """Return the last entry of a traceback."""
    return traceback.extract_tb(error.__traceback__)[-1]


@pytest.mark.parametrize("spelling", ["strings", "comments"])
@pytest.mark.parametrize(
    "string", ["task", "target map(to: x)", "target nowait map(to: x)", "task if(False)", "parallel"]
)
def test_a_failing_line_ends_the_traceback(sim, tmp_path, string, spelling):
    """The failing line of the block is the last entry of the traceback, with the file, the line and its text."""
    import numpy as np

    text = dedent(FAILING.format(string=string, extra="helper()"))
    if spelling == "comments":
        text = as_comments(text)
    module = import_text(tmp_path, text)
    with pytest.raises((ExceptionGroup, ZeroDivisionError)) as caught:
        module.program(np.zeros(2), 0)
    error = caught.value.exceptions[0] if isinstance(caught.value, ExceptionGroup) else caught.value
    assert type(error) is ZeroDivisionError
    entry = last_entry(error)
    expected = next(n for n, line in enumerate((HEADER + text).splitlines(), 1) if "1 / before" in line)
    assert entry.filename == module.__file__
    assert entry.lineno == expected
    assert "1 / before" in entry.line


def test_columns_in_tracebacks(sim, tmp_path):
    """The carets of a traceback stand below the failing expression."""
    text = dedent("""
        @directives
        def program(values):
            with omp("task if(False)"):
                result = len(values) + values["absent"] + 1
    """)
    module = import_text(tmp_path, text)
    with pytest.raises((TypeError, ExceptionGroup)) as caught:
        module.program([1])
    error = caught.value.exceptions[0] if isinstance(caught.value, ExceptionGroup) else caught.value
    entry = last_entry(error)
    line = text.splitlines()[3]
    if entry.colno is not None:
        assert line[entry.colno : entry.end_colno] == 'values["absent"]'


def test_the_names_of_blocks(sim, tmp_path):
    """The code of a block is called after its function, its directive and its line."""
    text = dedent("""
        import sys

        class Thing:
            @directives
            def pipeline(self, log):
                with omp("task"):
                    log.append(sys._getframe().f_code.co_qualname)
                omp("taskwait")
                return log

        def program():
            return Thing().pipeline([])
    """)
    (found,) = import_text(tmp_path, text).program()
    line = HEADER.count("\n") + 6
    assert found in {f"Thing.pipeline.<omp task, line {line}>", f"pipeline.<omp task, line {line}>"}


def test_lines_of_the_function(sim, tmp_path):
    """The rewritten function has the file and the first line of the original, and traces its own lines alone."""
    text = dedent("""
        @directives
        def program(log):
            for i in range(2):
                with omp("task if(False)"):
                    log.append(i)

                omp("taskwait")
            return log
    """)
    module = import_text(tmp_path, text)
    program = module.program
    assert program.__code__.co_filename == module.__file__
    assert program.__code__.co_firstlineno == program.__wrapped__.__code__.co_firstlineno
    lines = set()

    def trace(frame, event, argument):
        if frame.f_code.co_filename == module.__file__ and event == "line":
            lines.add(frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        program([])
    finally:
        sys.settrace(before)
    first = HEADER.count("\n")
    assert {n - first for n in lines} - {1, 2} == {3, 4, 5, 7, 8}


# -- coverage ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("spelling", ["strings", "comments"])
def test_coverage(tmp_path, spelling):
    """Coverage counts lines of blocks that have run, and those that have not, in strings and comments alike."""
    text = dedent("""
        @directives
        def program(log, k):
            for i in range(2):
                with omp("task depend(inout: ('log',))"):
                    log.append(i)
                    if k:
                        log.append("not run")
                with omp("taskloop"):
                    for j in range(3):
                        if j > 5:
                            log.append("not run")
                with omp("target"):
                    k + 1
            omp("taskwait")
            return log
    """)
    text = (as_comments(text) if spelling == "comments" else text) + "\nprogram([], 0)\n"
    path = tmp_path / "measured.py"
    path.write_text(HEADER + text)
    python("-m", "coverage", "run", "--branch", "--include=measured.py", "measured.py", folder=tmp_path)
    python("-m", "coverage", "json", "-q", "-o", "found.json", folder=tmp_path)
    (found,) = json.loads((tmp_path / "found.json").read_text())["files"].values()
    lines = (HEADER + text).splitlines()
    missing = {lines[n - 1].strip() for n in found["missing_lines"]}
    assert missing == {'log.append("not run")'}
    executed = {lines[n - 1].strip() for n in found["executed_lines"]}
    assert {"log.append(i)", "if k:", "for j in range(3):", "if j > 5:", "k + 1"} <= executed


# -- IPython -------------------------------------------------------------------------------------------
CELLS = [
    "import numpy as np, offload\nfrom offload.pragma import directives, omp",
    """
@directives
def pipeline(log, n):
    for i in range(n):
        with omp("task depend(inout: ('log',))"):
            log.append(i)
    #pragma omp taskwait
    return log
""",
    "print('found', pipeline([], 3))",
    """
@directives
def pipeline(x):
    with omp("target map(tofrom: x)"):
        x += 1
    return x.tolist()
""",
    "print('again', pipeline(np.zeros(2)))",
    """
@directives
def broken(x):
    with omp("target dpend(in: x)"):
        x += 1
""",
    """
@directives
def fails(x):
    with omp("task if(False)"):
        [][3]
""",
    "fails(1)",
    "%timeit -n1 -r1 pipeline(np.zeros(2))",
]


def test_ipython(tmp_path):
    """Blocks work in IPython's cells, which may be run again; errors have their line with carets."""
    if find_spec("IPython") is None:
        pytest.skip("IPython is not installed")
    program = f"""
        import os
        os.environ["IPYTHONDIR"] = {str(tmp_path)!r}
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        for cell in {CELLS!r}:
            shell.run_cell(cell)
    """
    found = re.sub(r"\x1b\[[0-9;]*m", "", python("-c", textwrap.dedent(program)))  # without colours
    assert "found [0, 1, 2]" in found
    assert "again [1.0, 1.0]" in found
    lines = found.splitlines()
    at = next(n for n, line in enumerate(lines) if line.strip() == 'with omp("target dpend(in: x)"):')
    assert set(lines[at + 1].strip()) == {"^"}
    assert lines[at + 1].index("^") == lines[at].index("dpend")
    assert "PragmaError" in found
    assert "IndexError" in found
    assert "[][3]" in found


# -- the prompt and python -c --------------------------------------------------------------------------
PROGRAM = """
from offload.pragma import directives, omp

@directives
def program(log):
    with omp("task"):
        log.append(1)
    omp("taskwait")
    return log

print("found", program([]))
"""


def has_source_of(option):
    """Tell whether Python keeps the text of functions that come in by ``-c``, or by the prompt."""
    text = "import inspect\ndef f():\n    return 12345\n\nprint(inspect.getsource(f))\n"
    given = ("-c", text) if option == "-c" else ("-i",)
    done = subprocess.run(
        [sys.executable, *given], input=None if option == "-c" else text, capture_output=True, text=True, check=False
    )
    return "return 12345" in done.stdout


@pytest.mark.parametrize("option", ["-c", "-i"])
def test_without_a_file(option):
    """With ``python -c`` and at the prompt, blocks work where `inspect.getsource` does; else a UsageError says so."""
    if option == "-c":
        found = python("-c", PROGRAM, status=0 if has_source_of(option) else 1)
    else:
        found = python("-i", given=PROGRAM.replace("    return log\n", "    return log\n\n"))
    if has_source_of(option):
        assert "found [1]" in found
    else:
        assert "UsageError" in found
        assert "source" in found


def test_main_modules(tmp_path):
    """A script, `python -m` and `runpy` find the text of their functions."""
    (tmp_path / "script.py").write_text(PROGRAM)
    assert "found [1]" in python("script.py", folder=tmp_path)
    assert "found [1]" in python("-m", "script", folder=tmp_path)
    assert "found [1]" in python("-c", "import runpy; runpy.run_path('script.py')", folder=tmp_path)
    assert "found [1]" in python("-O", "script.py", folder=tmp_path)


def test_a_script_with_an_error(tmp_path):
    """Python prints a mistake in a string as it prints a mistake in Python: file, line, and carets below the token."""
    (tmp_path / "script.py").write_text(PROGRAM.replace('"task"', '"task dpend(in: log)"'))
    found = python("script.py", folder=tmp_path, status=1)
    lines = found.splitlines()
    at = next(n for n, line in enumerate(lines) if line.strip().startswith('with omp("task dpend'))
    assert set(lines[at + 1].strip()) == {"^"}  # Python 3.11 shows where the token begins
    assert lines[at + 1].index("^") == lines[at].index("dpend")
    assert 'script.py", line 6' in found
    assert "did you mean" in found


def test_zipped_modules(tmp_path):
    """A module in a zip file has a text, too."""
    import zipfile

    with zipfile.ZipFile(tmp_path / "pack.zip", "w") as archive:
        archive.writestr("zipped.py", PROGRAM)
    assert "found [1]" in python("-c", "import sys; sys.path.insert(0, 'pack.zip'); import zipped", folder=tmp_path)


# -- pytest --------------------------------------------------------------------------------------------
TESTS = """
import numpy as np
import pytest
import offload
from offload.pragma import directives, omp

@directives
def test_block():
    x = np.zeros(3)
    with omp("target map(tofrom: x)"):
        x += 1
    assert x.tolist() == [1, 1, 1]
    with omp("task"):
        assert x[0] == 1
    omp("taskwait")

@directives
def test_failing_block():
    value = 3
    with omp("task if(False)"):
        assert value == 4

class TestClass:
    @pytest.mark.parametrize("n", [1, 2])
    @directives
    def test_method(self, n, tmp_path):
        log = []
        with omp("taskloop"):
            for i in range(n):
                log.append(i)
        assert sorted(log) == list(range(n))
        assert tmp_path.exists()

@pytest.fixture
@directives
def given():
    with omp("taskgroup"):
        yield 5

def test_fixture(given):
    assert given == 5
"""


def test_pytest(tmp_path):
    """Tests with blocks run under pytest's rewriting of assertions, and a failing one in a block is shown."""
    (tmp_path / "test_blocks.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    found = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_blocks.py", folder=tmp_path, status=1)
    assert "4 passed" in found
    assert "1 failed" in found
    assert "assert value == 4" in found
    assert "test_blocks.py:20" in found
