"""Run the published programs of PyOMP, OMP4Py, Pythran and Pyccel with a changed import, and say how each ends.

Usage: ``python tests/pragma/peers/published.py FOLDER [--only WORD] [--json FILE]``

The programs are other people's: none of them is in this repository. Put those you have into FOLDER:

* ``pyomp/examples/*.py`` and ``pyomp/tests/test_openmp.py`` of github.com/Python-for-HPC/PyOMP
* ``omp4py/examples/*.py`` and ``omp4py/test/basic/*.py`` of github.com/citiususc/omp4py
* ``pythran/**/*.py``: ``pythran/tests/openmp.legacy`` and ``openmp.4`` of github.com/serge-sans-paille/pythran
* ``pyccel/openmp.py``: ``tests/epyccel/modules/openmp.py`` of github.com/pyccel/pyccel

Each program runs in a process of its own, with a time limit. A test of PyOMP or OMP4Py is its own judge. Any other
program runs twice, once as plain Python without directives, and both runs must print or return the same.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import io
import json
import linecache
import os
import pickle
import re
import select
import signal
import sys
import tempfile
import time
import traceback
import types
import unittest
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import offload
from offload.pragma import omp4py, pyomp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT_S = 60.0


@dataclass(frozen=True)
class Outcome:
    """How a program ended: runs, refused, differs, fails or hangs."""

    peer: str
    program: str
    status: str
    why: str = ""
    when: str = ""  # of a refusal: at the decoration, or at the call


# -- names that the programs import and offload does not have ------------------------------------------


class MissingRoutineError(NotImplementedError):
    """A routine that §6 of the reference does not list."""


def missing(name: str) -> Callable[..., object]:
    """Make a routine that says that it is missing."""

    def routine(*args, **kwargs):
        raise MissingRoutineError(name)

    return routine


class SharedNames(types.ModuleType):
    """The module ``peer_names``: test helpers of Numba, and routines that raise `MissingRoutineError`."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        error = name[:1].isupper()
        value = type(name, (SyntaxError,), {}) if error else missing(name)
        setattr(self, name, value)
        return value


def make_names() -> types.ModuleType:
    """Make the helpers that test programs import from Numba and OMP4Py."""
    names = SharedNames("peer_names")
    names.TestCase = unittest.TestCase
    names.linux_only = lambda one: one
    names.override_env_config = lambda *args: contextlib.nullcontext()
    names.Flags = type("Flags", (), {})
    names.compiler = types.SimpleNamespace(StateDict=types.SimpleNamespace)
    names.prange = range
    names.OmpError = offload.OffloadError  # OMP4Py's own error at run time
    names.find_device_ids = lambda **kwargs: [0]
    names.get_device_type = lambda device: "gpu"
    for name in ("omp_set_dynamic", "omp_set_nested", "omp_set_max_active_levels", "omp_set_schedule"):
        setattr(names, name, lambda *args: None)  # settings of teams: a team has one thread
    names.omp_get_max_active_levels = lambda: 1
    names.omp_get_num_procs = os.cpu_count
    for kind, name in enumerate(("omp_sched_static", "omp_sched_dynamic", "omp_sched_guided", "omp_sched_auto"), 1):
        setattr(names, name, kind)
    return names


class Plain:
    """Directives that do nothing: a program under plain Python."""

    def __call__(self, *args, **kwargs):
        if args and not isinstance(args[0], str):
            return args[0]
        return self

    def __enter__(self):
        return None

    def __exit__(self, *failure):
        return None


# -- rewriting -----------------------------------------------------------------------------------------

PYOMP = re.compile(r"numba(\.openmp|\.core|\.tests)?(\.\w+)*|pyccel\.stdlib\.internal\.openmp")


def change_imports(text: str, *, is_plain: bool = False) -> str:
    """Replace imports from the peers' packages, line for line."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        if PYOMP.fullmatch(node.module):
            module = pyomp
        elif node.module in {"omp4py", "omp4py.pure"}:
            module = omp4py
        else:
            continue
        new = "; ".join(one_import(alias, module, is_plain=is_plain) for alias in node.names)
        lines[node.lineno - 1] = " " * node.col_offset + new
        for line in range(node.lineno, node.end_lineno or node.lineno):
            lines[line] = ""
    return "\n".join(lines) + "\n"


def one_import(alias: ast.alias, module: types.ModuleType, *, is_plain: bool) -> str:
    """Import a name from `offload`, or from the names that it lacks."""
    if alias.name == "*":
        extra = "omp_set_schedule, omp_sched_static, omp_sched_dynamic, omp_sched_guided, omp_sched_auto, OmpError"
        return f"from {module.__name__} import *; from peer_names import {extra}"
    new = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
    if is_plain and alias.name in {"omp", "njit", "openmp_context"}:
        return f"from peer_plain import {new}"
    if alias.name in module.__all__:
        return f"from {module.__name__} import {new}"
    return f"from peer_names import {new}"


def inline_strings(text: str) -> str:
    """Put string variables of PyOMP's target tests (`target_pragma`) where they are used, for device 0."""
    tree = ast.parse(text)
    lines = text.splitlines()
    changes = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        strings = {}
        for node in function.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                with contextlib.suppress(Exception):
                    value = eval(ast.unparse(node.value), {"device": 0}, {})
                    if isinstance(value, str):
                        strings[node.targets[0].id] = value
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "openmp":
                argument = call.args[0]
                if isinstance(argument, ast.Name) and argument.id in strings:
                    changes.append((argument, " ".join(strings[argument.id].split())))
    for argument, value in sorted(set(changes), key=lambda change: (change[0].lineno, change[0].col_offset)):
        line = lines[argument.lineno - 1]
        lines[argument.lineno - 1] = line[: argument.col_offset] + repr(value) + line[argument.end_col_offset :]
    return "\n".join(lines) + "\n"


def strings_to_comments(text: str) -> str:
    """Turn Pythran's old form (``'omp for'``, ``if 'omp parallel':``) into comments."""
    lines = []
    for line in text.splitlines():
        alone = re.fullmatch(r"""(\s*)(['"])(omp .*)\2\s*""", line)
        taken = re.fullmatch(r"""(\s*)if\s+(['"])(omp .*)\2\s*:\s*""", line)
        if alone:
            lines.append(f"{alone[1]}#{alone[3]}")
        elif taken:
            lines += [f"{taken[1]}#{taken[3]}", f"{taken[1]}if True:"]
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


SENTINEL = re.compile(r"\s*#\s*(pragma |\$ ?)?omp ")


def add_decorators(text: str) -> str:
    """Put ``@directives`` over each function that has comments with directives of its own."""
    text = re.sub(r"(?m)^(\s*)# \$ ?omp", r"\1#$ omp", text)  # Pyccel's formatter puts a blank after the ``#``
    tree = ast.parse(text)
    lines = text.splitlines()
    functions = sorted(
        (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)), key=lambda node: -node.lineno
    )
    owners = set()
    for number, line in enumerate(lines, 1):
        if SENTINEL.match(line):
            around = [f for f in functions if f.lineno < number <= (f.end_lineno or 0) + 1]
            if around:
                owners.add(around[0])  # the innermost: it begins last
    for function in functions:
        if function in owners:
            lines.insert(function.lineno - 1, " " * function.col_offset + "@peer_directives")
    return "from offload.pragma import directives as peer_directives\n" + "\n".join(lines) + "\n"


# -- processes -----------------------------------------------------------------------------------------


def in_process(work: Callable[[], object], limit_s: float = LIMIT_S) -> tuple[str, object]:
    """Call a function in a forked process: its result, its failure or a time-out."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setsid()
        try:
            answer = ("value", work())
        except BaseException as error:
            answer = ("error", describe(error))
        try:
            answer = pickle.dumps(answer)
        except Exception as error:
            answer = pickle.dumps(("error", ("PickleError", str(error), "")))
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(answer)
        os._exit(0)
    os.close(writer)
    content = b""
    end = time.monotonic() + limit_s
    while select.select([reader], [], [], max(0.0, end - time.monotonic()))[0]:
        part = os.read(reader, 1 << 16)
        if not part:
            break
        content += part
    else:
        os.killpg(child, signal.SIGKILL)
        content = b""
    os.close(reader)
    os.waitpid(child, 0)
    return pickle.loads(content) if content else ("error", ("TimeoutError", f"nothing after {limit_s:g} s", ""))


def describe(error: BaseException) -> tuple[str, str, str]:
    """Say what a failure is, in a line, with the place in the program."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    when = "decoration" if any(frame.name == "decorated" for frame in frames) else "call"
    kind = next((cls.__name__ for cls in type(error).__mro__ if cls in REFUSALS), type(error).__name__)
    text = str(error).splitlines()[0] if str(error) else ""
    line = getattr(error, "text", None) or ""
    if not line:
        for frame in frames:
            if "peer-" in frame.filename:
                line = frame.line or ""
    if os.environ.get("PEERS_TRACE"):
        traceback.print_exception(error, file=sys.stderr)
    return kind, f"{text} [{line.strip()}]" if line else text, when


REFUSALS = (
    offload.UnsupportedError,
    offload.PragmaError,
    offload.LoopError,
    offload.UsageError,
    offload.ClauseError,
    MissingRoutineError,
)


def run_text(text: str, name: str, arguments: tuple[str, ...] = (), *, is_main: bool = True) -> dict[str, object]:
    """Run the text of a program as a file, and return its globals."""
    place = Path(tempfile.mkdtemp(prefix="peer-")) / name
    place.write_text(text)
    linecache.checkcache(str(place))
    module = types.ModuleType("__main__" if is_main else place.stem)
    module.__file__ = str(place)
    sys.modules[module.__name__] = module
    sys.argv = [str(place), *arguments]
    with contextlib.suppress(SystemExit):
        exec(compile(text, str(place), "exec"), module.__dict__)
    return module.__dict__


def printed(text: str, name: str, arguments: tuple[str, ...] = ()) -> list[object]:
    """Return the lines that a program prints, without times."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        variables = run_text(text, name, arguments)
    if name.startswith("pyomp_gpu_stencil"):
        return [variables["u"]]  # it prints a time only
    timed = re.compile(r"(?i)time|rate|runtime|mflops|[0-9.e-]+ +\+/-")
    lines = [re.sub(r"(?i)runtime =.*", "", line) for line in out.getvalue().splitlines()]
    return [line for line in lines if not timed.search(line)]


def same(one: object, other: object) -> bool:
    """Compare results: numbers to 9 digits, arrays element by element, the rest by equality."""
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, str) and isinstance(other, str):
        numbers = re.compile(r"[-+]?[0-9]+\.?[0-9]*(?:e[-+]?[0-9]+)?")
        return numbers.sub("#", one) == numbers.sub("#", other) and same(
            [float(n) for n in numbers.findall(one)], [float(n) for n in numbers.findall(other)]
        )
    if isinstance(one, (np.ndarray, int, float, complex)):
        return bool(np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=1e-9, atol=1e-12, equal_nan=True))
    return bool(one == other)


def judge(peer: str, program: str, new: tuple[str, object], old: tuple[str, object] | None = None) -> Outcome:
    """Make an outcome from an answer, and from the answer of plain Python."""
    kind, value = new
    if kind == "error":
        name, text, when = value
        refused = name in {cls.__name__ for cls in REFUSALS}
        status = "refused" if refused else "hangs" if name == "TimeoutError" else "fails"
        return Outcome(peer, program, status, f"{name}: {text}", when)
    if old is not None and old[0] == "value" and not same(value, old[1]):
        return Outcome(peer, program, "differs", f"{value!r} and not {old[1]!r}"[:300])
    if old is not None and old[0] == "error":
        return Outcome(peer, program, "runs", f"plain Python fails: {old[1]}"[:300])
    return Outcome(peer, program, "runs")


# -- the programs --------------------------------------------------------------------------------------


def pyomp_examples(folder: Path) -> Iterator[Outcome]:
    """Run PyOMP's examples, made small."""
    smaller = {"10000000": "20000", "100000000": "20000", "n = 10000 ": "n = 20 ", "MAX_THREADS=8": "MAX_THREADS=2"}
    for file in sorted(folder.glob("*.py")):
        text = file.read_text()
        for large, small in smaller.items():
            text = re.sub(rf"(?<![0-9]){large}(?![0-9])", small, text)
        if "omp_get_wtime" in text and "import omp_get_wtime" not in text and "    omp_get_wtime" not in text:
            imported = re.search(r"import .*omp_get_wtime", text)
            text = text if imported else "from numba.openmp import omp_get_wtime\n" + text  # the program forgets it
        arguments = ("3", "12") if file.stem.startswith("dgemm") else ()
        new, old = (change_imports(text, is_plain=is_plain) for is_plain in (False, True))
        yield judge(
            "PyOMP",
            f"examples/{file.name}",
            in_process(lambda new=new, file=file, arguments=arguments: printed(new, file.name, arguments)),
            in_process(lambda old=old, file=file, arguments=arguments: printed(old, file.name, arguments)),
        )


def pyomp_tests(file: Path, only: str) -> Iterator[Outcome]:
    """Run PyOMP's unit tests one by one, as published and then with the strings where they are used."""
    published = change_imports(file.read_text())
    inlined = inline_strings(published)
    for group in ast.parse(published).body:
        if not isinstance(group, ast.ClassDef) or not group.name.startswith(("TestOpenmp", "TestReductions")):
            continue
        for test in group.body:
            if not isinstance(test, ast.FunctionDef) or not test.name.startswith(("test_", "target_")):
                continue
            name = test.name if test.name.startswith("test_") else f"test_{test.name}"
            if only in f"{group.name}.{name}":
                answers = [
                    in_process(lambda text=text, name=name, group=group: unit_test(text, group.name, name))
                    for text in ([published, inlined] if test.name.startswith("target_") else [published])
                ]
                outcomes = [judge("PyOMP", f"{group.name}.{name}", answer) for answer in answers]
                if len(outcomes) == 2 and outcomes[0].status == "refused":
                    last = outcomes[1]
                    yield replace(last, program=last.program + " (strings in place)")
                else:
                    yield outcomes[0]


def unit_test(text: str, group: str, name: str) -> str:
    """Run one method of a test class, and raise its failure."""
    os.environ["OVERRIDE_TEST_SKIP"] = "1"
    os.environ["TEST_DEVICE"] = "gpu"
    variables = run_text(text, "test_openmp.py", is_main=False)
    variables[group].devices = [0]
    case = variables[group](name)
    failures = []

    class Result(unittest.TestResult):
        def addError(self, test, problem):
            failures.append(problem[1])

        def addFailure(self, test, problem):
            failures.append(problem[1])

        def addSubTest(self, test, subtest, problem):
            if problem is not None:
                failures.append(problem[1])

    with contextlib.redirect_stdout(io.StringIO()):
        case.run(Result())
    if failures:
        raise failures[0]
    return "passed"


OMP4PY_RUNS = {
    "fft": "fft.fft(6, 2)",
    "fib": "fib.fib(9)",
    "graphc": "graphc.graphc(50)",
    "jacobi": "jacobi.jacobi(20, 200)",
    "lud": "lud.lud(16)",
    "maze": "maze.maze(7, 0, '')",
    "md": "md.md(6, 2)",
    "pi": "pi.pi(2000)",
    "qsort": "qsort.qsort(300, 50)",
    "quad": "quad.quad(2000)",
    "wordcount": "wordcount.wordcount(2000)",
}


def omp4py_examples(folder: Path) -> Iterator[Outcome]:
    """Run OMP4Py's examples in each of their modes, without the functions of the other modes."""
    for name in OMP4PY_RUNS:
        text = (folder / f"{name}.py").read_text() if (folder / f"{name}.py").exists() else ""
        for mode, word, mark in (
            (-1, "PyOMP's functions", "def _pyomp"),
            (1, "untyped", "def _omp4py"),
            (3, "with types", "_types("),
        ):
            if mark not in text:
                continue
            answers = [
                in_process(lambda name=name, mode=mode, plain=plain: omp4py_example(folder, name, mode, is_plain=plain))
                for plain in (False, True)
            ]
            yield judge("OMP4Py", f"examples/{name}.py, {word}", *answers)


def omp4py_example(folder: Path, name: str, mode: int, *, is_plain: bool) -> object:
    """Run an example: the calls of its functions, what they return and what the program prints."""
    place = Path(tempfile.mkdtemp(prefix="peer-"))
    for file in folder.glob("*.py"):
        text = change_imports(file.read_text(), is_plain=is_plain)
        if file.stem == name:
            text = keep_mode(text, mode)
        (place / file.name).write_text(text)
    sys.path.insert(0, str(place))
    os.chdir(place)
    import omputils

    omputils._mode = mode
    omputils._threads = 2
    results: list[object] = []
    out = io.StringIO()
    program = __import__(name)
    for called, function in list(vars(program).items()):
        recursive = re.search("quicksort|_rfib|_rmaze|_mraze", called)  # called by tasks, in any order
        if called.startswith(("_omp4py", "_pyomp")) and not recursive:
            setattr(program, called, noting(function, results))
    np.random.seed(0)  # noqa: NPY002  # the programs use it
    with contextlib.redirect_stdout(out):
        eval(OMP4PY_RUNS[name], {name: program})
    lines = [line for line in out.getvalue().splitlines() if "ime" not in line and "MFLOPS" not in line]
    return [*results[:40], *([] if name == "fft" else lines)]


def noting(function: Callable[..., object], results: list[object]) -> Callable[..., object]:
    """Keep the results and the arrays of each call."""

    def call(*args, **kwargs):
        value = function(*args, **kwargs)
        results.append(([np.array(one) for one in args if isinstance(one, np.ndarray)], value))
        return value

    return call


def keep_mode(text: str, mode: int) -> str:
    """Remove the functions of the other modes, which would be decorated too."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith(("_omp4py", "_pyomp")):
            continue
        is_typed = node.name.endswith("_types")
        if mode == -1:
            is_kept = node.name.startswith("_pyomp")
        else:
            needs_both = "qsort" in text or "wordcount" in text  # their modes call functions of the others
            is_kept = node.name.startswith("_omp4py") and "_mpi_" not in node.name
            is_kept = is_kept and (needs_both or is_typed == (mode == 3))
        if not is_kept:
            for line in range(node.decorator_list[0].lineno - 1, node.end_lineno or 0):
                lines[line] = ""
    return "\n".join(lines) + "\n"


def omp4py_tests(folder: Path, only: str) -> Iterator[Outcome]:
    """Run OMP4Py's tests one by one."""
    for file in sorted(folder.glob("test_*.py")):
        text = change_imports(file.read_text())
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and only in node.name:
                yield judge(
                    "OMP4Py",
                    f"{file.stem}.{node.name}",
                    in_process(lambda text=text, file=file, node=node: call_test(text, file.name, node.name), 20),
                )


def call_test(text: str, file: str, name: str) -> str:
    """Call a test function without pytest's runner."""
    run_text(text, file, is_main=False)[name]()
    return "passed"


def commented(folder: Path, only: str) -> Iterator[Outcome]:
    """Run Pythran's programs with comments as directives, and without directives."""
    for file in sorted(folder.rglob("*.py")):
        text = file.read_text()
        if "omp " not in text or only not in str(file):
            continue
        try:
            text = strings_to_comments(text)
            new = add_decorators(text)
        except SyntaxError:
            continue  # Python 2
        yield judge(
            "Pythran",
            str(file.relative_to(folder)),
            in_process(lambda new=new, file=file: call_named(new, file)),
            in_process(lambda text=text, file=file: call_named(text, file)),
        )


def pythran_call(name: str) -> tuple[str, tuple[object, ...]]:
    """Return which function of a program of Pythran to call, by default that of the file's name, and its arguments."""
    made = np.random.default_rng(5).random
    return {
        "convolution": ("convolution", (made((9, 8)),)),
        "fbcorr": ("fbcorr", (made((2, 6, 6, 2)), made((3, 2, 2, 2)))),
        "hyantes": ("run", (0.0, 0.0, 9.0, 9.0, 1.0, 5000.0, 6, 7, made((4, 3)))),
        "mandel": ("mandel", (10, 0.0, 0.0, 20)),
        "matmul": ("matrix_multiply", (made((4, 5)), made((5, 3)))),
        "pairwise": ("pairwise", (made((3, 5)),)),
        "pi": ("pi", (100,)),
        "pi_buffon": ("pi_estimate", (100,)),
        "wave_": ("calculate_u", (0.01, 0.1, 0.18, made((6, 5)), made((6, 5)), made((6, 5)))),
    }.get(name, (name, ()))


def call_named(text: str, file: Path) -> object:
    """Call the function that a program of Pythran is about."""
    routines = {name.removeprefix("omp_"): getattr(pyomp, name) for name in pyomp.__all__ if name.startswith("omp_")}
    module = SharedNames("omp")
    module.__dict__.update(routines, get_nested=lambda: False, set_nested=lambda flag: None)
    sys.modules["omp"] = module
    name, arguments = pythran_call(file.stem)
    variables = run_text(re.sub(r"\bxrange\b", "range", text), file.name, is_main=False)
    np.random.seed(1)  # noqa: NPY002  # the programs use it
    with contextlib.redirect_stdout(io.StringIO()):
        return variables[name](*arguments)


def pyccel_arguments(name: str) -> tuple[object, ...]:
    """Give arguments for a function of Pyccel's test module."""
    square = np.arange(9.0).reshape(3, 3)
    numbers = np.arange(1000)
    return {
        "set_num_threads": (4,),
        "f1": (0,),
        "directive_in_else": (40,),
        "test_omp_set_get_dynamic": (True,),
        "test_omp_set_get_nested": (True,),
        "test_omp_get_set_max_active_levels": (2,),
        "test_omp_set_get_default_device": (0,),
        "test_omp_get_team_num": (0,),
        "test_nowait_schedule": (40,),
        "omp_matmul": (square, square + 1, np.zeros((3, 3))),
        "omp_matmul_single": (square, square + 1, np.zeros((3, 3))),
        "omp_nowait": (numbers, np.zeros(1000, int), np.zeros(1000)),
        "omp_arraysum": (numbers,),
        "omp_arraysum_combined": (numbers,),
        "omp_range_sum_critical": (20,),
        "omp_arraysum_single": (numbers,),
        "omp_taskloop": (3,),
        "omp_tasks": (8,),
        "omp_simd": (12,),
        "omp_long_line": tuple(np.arange(n) for n in (3, 4, 5, 6, 7)),
    }.get(name, ())


def pyccel_functions(file: Path, only: str) -> Iterator[Outcome]:
    """Run the functions of Pyccel's test module, each with its comments as directives and as plain Python."""
    text = change_imports(file.read_text())
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if not isinstance(node, ast.FunctionDef) or only not in node.name:
            continue
        alone = "\n" * (node.lineno - 1) + "\n".join(lines[node.lineno - 1 : node.end_lineno]) + "\n"
        tail = [line for line in lines[node.end_lineno or 0 :] if not line.strip() or SENTINEL.match(line)]
        if not SENTINEL.search(alone) and "omp" not in alone.split("import")[0]:
            continue
        alone += "\n".join(tail[:0])
        yield judge(
            "Pyccel",
            node.name,
            in_process(lambda alone=alone, node=node: call_with_arrays(add_decorators(alone), node.name)),
            in_process(lambda alone=alone, node=node: call_with_arrays(alone, node.name)),
        )


def call_with_arrays(text: str, name: str) -> object:
    """Call a function, and return its result and its arrays."""
    arguments = pyccel_arguments(name)
    value = run_text(text, "openmp.py", is_main=False)[name](*arguments)
    return [value, *(one for one in arguments if isinstance(one, np.ndarray))]


def outcomes(folder: Path, only: str) -> Iterator[Outcome]:
    """Run everything that the folder has."""
    if not only or only in "examples":
        yield from pyomp_examples(folder / "pyomp" / "examples")
        yield from omp4py_examples(folder / "omp4py" / "examples")
    if (tests := folder / "pyomp" / "tests" / "test_openmp.py").exists():
        yield from pyomp_tests(tests, only)
    yield from omp4py_tests(folder / "omp4py" / "test" / "basic", only)
    yield from commented(folder / "pythran", only)
    if (module := folder / "pyccel" / "openmp.py").exists():
        yield from pyccel_functions(module, only)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="run programs with this word in their names only")
    parser.add_argument("--json", type=Path, help="also write the outcomes to this file")
    options = parser.parse_args()
    os.environ.setdefault("OFFLOAD_DEVICES", "sim:1")
    sys.modules["peer_names"] = make_names()
    plain = types.ModuleType("peer_plain")
    plain.omp = plain.njit = plain.openmp_context = Plain()
    sys.modules["peer_plain"] = plain
    with contextlib.suppress(ImportError):
        importlib.import_module("networkx")  # an example needs it
    for name in ("rewrite", "encounter", "nests", "calls", "taskloops"):
        importlib.import_module(f"offload.pragma.{name}")  # once, for all processes
    found = []
    for outcome in outcomes(options.folder, options.only):
        found.append(outcome)
        print(f"{outcome.status:8} {outcome.peer}: {outcome.program}  {outcome.why}"[:240], flush=True)
    print(dict(Counter((one.peer, one.status) for one in found)))
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in found], indent=1))


if __name__ == "__main__":
    main()
