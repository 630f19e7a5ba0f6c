"""Make docs/conformance.md: which cases of public suites the tests of this directory mirror, and how they end.

``python -m tests.conformance.table``, from the root of the repository, runs the tests and writes the page. On a machine
with a GPU, ``python -m tests.conformance.table --cuda docs/conformance-cuda.json`` writes the results there instead,
which the page takes its column for CUDA from.

The cases are in cases.toml. Which test mirrors which is read from the docstrings, without running anything; so a unit
test can hold the page against them.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "conformance.md"
CUDA = ROOT / "docs" / "conformance-cuda.json"
DEVICES = ("sim:1", "sim:2", "cuda")

HEAD = """# Conformance

Public validation suites define the behaviour of OpenMP and OpenACC, case by case. offload uses five of them:

* [OpenMP_VV](https://github.com/OpenMP-Validation-and-Verification/OpenMP_VV)
* [LLVM](https://github.com/llvm/llvm-project): `offload/test` and `openmp/runtime/test`
* [GCC](https://gcc.gnu.org/git.html): libgomp
* [AOMP](https://github.com/ROCm/aomp)
* [OpenACCV-V](https://github.com/OpenACCUserGroup/OpenACCV-V)

The tests in `tests/conformance` mirror the cases of these suites. Each case is rewritten in Python, keeps its name, and
has the same expectation. You can run the tests on your machine with `python -m pytest -m "not soak" tests/conformance`.

Each test runs on one simulated device, on two, and on a GPU if the machine has one. Tests of asynchronous cases run
three times: with one worker, with four workers, and with streams that start only after all tasks have been generated.

`python -m tests.conformance.table` generates this page from the tests. Do not edit it by hand.
"""


class Case(NamedTuple):
    """A case, and the names of the tests that mirror it, as ``directory/file.py::test``."""

    name: str
    tests: list[str]


class Cases:
    """The cases of cases.toml with the tests that mirror them.

    Raises
    ------
    ValueError
        A docstring names a case that is not listed, or a case is mirrored and said not to be, or neither.
    """

    def __init__(self) -> None:
        data = tomllib.loads((HERE / "cases.toml").read_text(encoding="utf-8"))
        self.groups: dict[str, tuple[str, list[str]]] = {g["name"]: (g["title"], g["cases"]) for g in data["groups"]}
        self.missing: list[dict[str, Any]] = data["missing"]
        self.deviating: list[dict[str, Any]] = data["deviating"]
        self.names = [name for _, names in self.groups.values() for name in names]
        self.tests: dict[str, list[str]] = defaultdict(list)
        for path in sorted(HERE.rglob("test_*.py")):
            for test, docstring in docstrings(path):
                for name in itertools.chain.from_iterable(map(self.cited, citations(docstring))):
                    self.tests[name].append(f"{path.relative_to(HERE).as_posix()}::{test}")
        self._check()

    def cited(self, citation: str) -> list[str]:
        """Return the cases that a citation means: one for each way to choose from its braces."""
        parts = re.split(r"\{([^}]*)\}", citation)
        choices = [part.split(",") if number % 2 else [part] for number, part in enumerate(parts)]
        found = []
        for chosen in map("".join, itertools.product(*choices)):
            pattern = re.compile(".*".join(map(re.escape, chosen.split("…"))))
            names = [name for name in self.names if pattern.fullmatch(name)]
            if len(names) != 1:
                raise ValueError(f"{chosen} means {names or 'no case'} of cases.toml; write it so that it means one")
            found += names
        return found

    def _check(self) -> None:
        missing = [name for entry in self.missing for name in entry["cases"]]
        for name in self.names:
            if (name in missing) == (name in self.tests):
                raise ValueError(f"{name} is mirrored and listed as missing in cases.toml, or neither")
        deviating = [name for entry in self.deviating for name in entry["cases"]]
        for name in (*missing, *deviating):
            if name not in self.names:
                raise ValueError(f"{name} is in no group of cases.toml")
        if len({*self.names}) != len(self.names):
            raise ValueError("a case is listed twice in cases.toml")


def docstrings(path: Path) -> list[tuple[str, str]]:
    """Return the names and docstrings of the tests in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        (node.name, ast.get_docstring(node) or "")
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def citations(docstring: str) -> list[str]:
    """Return the source files that a docstring names before its first colon."""
    head = re.split(r":\s", " ".join(docstring.split()), maxsplit=1)[0]
    return [part for part in head.split(", ") if re.fullmatch(r"\S+\.(c|cpp)", part)]


# -- results ------------------------------------------------------------------------------------------
class Results:
    """A pytest plugin that keeps how each test ended on each device."""

    def __init__(self) -> None:
        self.outcomes: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._where: dict[str, list[tuple[str, str]]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            callspec = getattr(item, "callspec", None)
            device = callspec.params.get("devices") if callspec is not None else None
            if not isinstance(device, str):  # a test may use the name for an argument of its own, such as a list
                device = None
            if device is None and "sim" in getattr(item, "fixturenames", ()):
                device = "sim:1"
            test = f"{item.path.relative_to(HERE).as_posix()}::{getattr(item, 'originalname', item.name)}"
            # One that makes its runtimes itself does not depend on the device: it counts for each.
            self._where[item.nodeid] = [(test, one) for one in ((device,) if device is not None else DEVICES)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            for key in self._where[report.nodeid]:
                self.outcomes[key].add(report.outcome)

    def of(self, tests: list[str], device: str) -> str:
        """Return how a case ends on a device."""
        found = set().union(*(self.outcomes.get((test, device), set()) for test in tests))
        if "failed" in found:
            return "**failed**"
        if found == {"passed", "skipped"}:
            return "passed in part"
        return found.pop() if found else "not run"


def run_tests() -> Results:
    """Run the tests of this directory; return how they ended."""
    results = Results()
    of_all = ["-m", "not (bench or mutants or soak)"]
    status = pytest.main(
        ["-q", "-r", "N", "-p", "no:cacheprovider", *of_all, "--rootdir", str(ROOT), str(HERE)], [results]
    )
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        sys.exit(f"pytest ended with {status!r}")
    return results


# -- the page -----------------------------------------------------------------------------------------
def page(cases: Cases, results: dict[str, dict[str, str]], machine: str | None) -> str:
    """Return the text of docs/conformance.md; ``results`` has for each case the result of each device."""
    n_mirrored = len(cases.tests)
    lines = [HEAD, "## Summary", "", f"{n_mirrored} of {len(cases.names)} cases are mirrored.", ""]
    lines += [
        f"The results for CUDA are from {machine}."
        if machine
        else "The tests have not been run on CUDA for this page.",
        "",
        "| section | cases | mirrored | " + " | ".join(f"passed on {device}" for device in DEVICES) + " |",
        "|---|---|---|---|---|---|",
    ]
    for name, (title, members) in cases.groups.items():
        mirrored = [case for case in members if case in cases.tests]
        passed = [str(sum(results[case][device].startswith("passed") for case in mirrored)) for device in DEVICES]
        if machine is None:
            passed[-1] = "not run"
        lines.append(f"| {name}: {title} | {len(members)} | {len(mirrored)} | {' | '.join(passed)} |")
    lines += ["", "## Case by case", ""]
    lines += [
        "A star marks a case whose test has a different expectation. [Deviating cases](#deviating) gives the reasons."
    ]
    deviating = {case for entry in cases.deviating for case in entry["cases"]}
    for name, (title, members) in cases.groups.items():
        lines += ["", f"### {name}: {title}", "", f"| case | {' | '.join(DEVICES)} | tests |", "|---|---|---|---|---|"]
        for case in members:
            star = "\\*" if case in deviating else ""
            cells = [f"`{case}`{star}", *(results.get(case, {}).get(device, "not mirrored") for device in DEVICES)]
            lines.append(f"| {' | '.join(cells)} | {', '.join(map(link, cases.tests.get(case, ())))} |")
    lines += ["", "## Not mirrored", "", "The tests leave these cases out, for the reason before each list:", ""]
    lines += reasons(cases.missing)
    lines += ["", "## Deviating", "", "The tests of these cases expect a different result from the suite:", ""]
    lines += reasons(cases.deviating)
    return "\n".join(lines) + "\n"


def link(test: str) -> str:
    """Return a link to a test's file, under its name."""
    path, name = test.split("::")
    return f"[`{name}`](../tests/conformance/{path})"


def reasons(entries: list[dict[str, Any]]) -> list[str]:
    """Return a list of reasons, each with its cases."""
    return [f"* {entry['reason']}: {', '.join(f'`{case}`' for case in entry['cases'])}." for entry in entries]


def results_in(text: str) -> tuple[dict[str, dict[str, str]], str | None]:
    """Return the results that a page has, and its machine for CUDA: what a page can be made of again without a run."""
    rows = re.findall(r"^\| `([^`]+)`(?:\\\*)? \| ([^|]+) \| ([^|]+) \| ([^|]+) \|", text, re.MULTILINE)
    machine = re.search(r"^The results for CUDA are from (.*)\.$", text, re.MULTILINE)
    return {
        case: dict(zip(DEVICES, cells, strict=True)) for case, *cells in rows if "not mirrored" not in cells
    }, machine and machine[1]


def cuda_results() -> dict[str, Any]:
    """Return what the file of the run on CUDA says: the machine, and the result of each case."""
    if not CUDA.exists():
        return {"machine": None, "results": {}}
    kept: dict[str, Any] = json.loads(CUDA.read_text(encoding="utf-8"))
    return kept


def cuda_machine() -> str:
    """Return what the GPU and the libraries are called; exit where there is none."""
    try:
        import cupy
    except ImportError:
        sys.exit("--cuda needs CuPy and a GPU; run it on a machine that has both")
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    version = cupy.cuda.runtime.runtimeGetVersion()
    return f"an {properties['name'].decode()}, CuPy {cupy.__version__}, CUDA {version // 1000}.{version % 1000 // 10}"


def main() -> None:
    """Run the tests and write the page, or the file with the results on CUDA."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.table", description=__doc__.partition("\n")[0])
    parser.add_argument("--cuda", metavar="FILE", type=Path, help="write the results on CUDA there, and no page")
    path = parser.parse_args().cuda
    cases = Cases()
    machine = cuda_machine() if path else None  # fails before the run where there is no CuPy
    results = run_tests()
    if path:
        found = {case: results.of(cases.tests[case], "cuda") for case in cases.names if case in cases.tests}
        path.write_text(json.dumps({"machine": machine, "results": found}, indent=2) + "\n", encoding="utf-8")
        return
    on_cuda = cuda_results()
    table = {
        case: {
            **{device: results.of(tests, device) for device in DEVICES if device != "cuda"},
            "cuda": on_cuda["results"].get(case, "not run"),
        }
        for case, tests in cases.tests.items()
    }
    PAGE.write_text(page(cases, table, on_cuda["machine"]), encoding="utf-8")


if __name__ == "__main__":
    main()
