"""The correct programs that mutants are made from: those of the tests, the examples, and the README's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "sanitizer" / "programs"
LISTING = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

DRIVERS = {
    "cholesky": """
b = np.random.default_rng(1).standard_normal((6, 6))
a = b @ b.T + 6 * np.eye(6)
cholesky(a, 2)
print(np.round(np.tril(a), 9).tolist())
""",
    "acc_two_queues": """
a, b, both = np.full(6, 1.5), np.linspace(1, 3, 6), np.zeros(6)
process(a, b, both)
print(np.round(a, 9).tolist(), np.round(b, 9).tolist(), np.round(both, 9).tolist())
""",
    "acc_halo": """
plate = np.random.default_rng(1).uniform(0, 1, (6, 5))
print(np.round(iterate(plate, 3, devices=(0, 1)), 9).tolist())
""",
    "acc_columns": """
matrix = np.asfortranarray(np.random.default_rng(1).uniform(-1, 1, (4, 6)))
process(matrix, 3, asynchronous=True)
print(np.round(matrix, 9).tolist())
""",
    "acc_present": """
b = np.random.default_rng(1).standard_normal((3, 3))
x = np.zeros_like(b)
print(solve(x, b, 1e-6), np.round(x, 6).tolist())
""",
    "ports/ring": """
source, result = np.linspace(-2, 2, 10), np.zeros(10)
run(source, result, chunk=3, passes=2)
print(np.round(result, 9).tolist())
""",
    "ports/pingpong": """
start = np.zeros((5, 6))
start[1:3, 2:5] = 1
field, summary = run(start, steps=3)
print(np.round(field, 9).tolist(), np.round(summary, 9).tolist())
""",
}
"""The examples, each with the lines that call it with a small size."""


@dataclass(frozen=True)
class Program:
    """A program: its name, its text, and the line after which mutants change nothing."""

    name: str
    text: str
    n_lines: int


def programs():
    """Return all programs, by name."""
    found = [_own(path) for path in sorted(PROGRAMS.glob("*.py"))]
    found += [_example(name, driver) for name, driver in DRIVERS.items()]
    found.append(_readme())
    return {program.name: program for program in found}


def _own(path):
    text = path.read_text(encoding="utf-8")
    return Program(path.stem, text, len(text.splitlines()))


def _example(name, driver):
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    text = text.replace('if __name__ == "__main__":\n    main()\n', "")
    return Program("example_" + name.replace("/", "_"), text + driver, len(text.splitlines()))


def _readme():
    text = LISTING.search((ROOT / "README.md").read_text(encoding="utf-8"))[1]
    text = text.replace("(1000, 1000)", "(6, 10)").replace("[:, :500]", "[:, :5]").replace("[:, 500:]", "[:, 5:]")
    text += "print(left.result(), grid.tolist())\n"
    return Program("readme", text, len(text.splitlines()))
