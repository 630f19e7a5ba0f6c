"""Pages with programs in files and transcripts of commands: the commands run, and their output is that of the page.

A listing whose first line is a comment with the name of a file becomes that file, until a later one replaces it. A
block ``console`` has commands, each after ``$ ``, and their output. A line with ``…`` alone stands for output that the
page leaves out. Names of files stand without the folder. A listing ``py`` with a name is faulty, or needs the stand-in
for CuPy, and only commands run it. A listing ``python`` with a name is right: `tests.test_docs` runs it too.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from offload.sanitizer.states import FindingRule
from tests import forked

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(py|python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"# (\w+\.py)\n")
SANITIZER = ROOT / "docs/find-the-missing-clause.md"
PORTER = ROOT / "docs/from-cuda-streams.md"
LEFT_OUT = "…"
SHELL = 'offload() { "$PYTHON" -m offload "$@"; }; python() { "$PYTHON" "$@"; }\n'
SIGNS = re.compile(r"[$&;|<>*?()]")
"""Signs that only a shell understands."""

COMMANDS = {"offload", "python", "cat", "diff"}


class Command(NamedTuple):
    """A command of a page, and the output that the page shows."""

    text: str
    output: str


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the fenced blocks of a page that matter here: the language and the text."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def commands(text: str) -> list[Command]:
    """Return the commands of a ``console`` block."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert parts[0] == "", "a console block begins with a command"
    return [Command(*part.partition("\n")[::2]) for part in parts[1:]]


def shown(text: str, folder: Path) -> str:
    """Return output as a page shows it."""
    lines = text.replace(f"{folder}{os.sep}", "").splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with the simulated device and a terminal of 110 columns."""
    assert command.split(maxsplit=1)[0] in COMMANDS, command
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith(("OFFLOAD_", "OMP_", "PYTHONW"))},
        "PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "PYTHONUTF8": "1",
        "OFFLOAD_DEVICES": "sim",
        "COLUMNS": "110",
        "NO_COLOR": "1",
    }
    if not SIGNS.search(command) and command.startswith(("offload ", "python ")):
        name, *words = shlex.split(command)
        return forked.python(*(["-m", "offload"] if name == "offload" else []), *words, cwd=folder, env=environment)
    return subprocess.run(
        ["bash", "-c", SHELL + command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )


def pattern(output: str) -> str:
    """Return a regular expression for output of which parts may be left out."""
    lines = shown(output, Path("/nowhere")).split("\n")
    return "\n".join("(?s:.*?)" if line == LEFT_OUT else re.escape(line) for line in lines)


def check_page(page: Path, folder: Path) -> None:
    """Run the commands of a page; each has the output that the page shows."""
    for language, text in blocks(page):
        if language == "console":
            for command in commands(text):
                done = shell(command.text, folder)
                found = shown(done.stdout + done.stderr, folder)
                if not re.fullmatch(pattern(command.output), found):
                    assert found == command.output.strip("\n"), command.text
        elif name := NAME.match(text):
            (folder / name[1]).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("page", [SANITIZER, PORTER], ids=lambda page: page.stem)
def test_page(page, tmp_path):
    """The commands of a page write what the page says."""
    check_page(page, tmp_path.resolve())


def programs(section: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the faulty and the corrected programs of a section of the sanitizer's page, by file name."""
    found: dict[str, dict[str, str]] = {"py": {}, "python": {}}
    for language, text in BLOCK.findall(section):
        if language != "console" and (name := NAME.match(text)):
            found[language][name[1]] = text
    return found["py"], found["python"]


@pytest.mark.parametrize("rule", [rule.value for rule in FindingRule])
def test_each_rule(rule, tmp_path):
    """A rule has a section with faulty programs, each with its finding, and the same programs corrected: no finding."""
    text = SANITIZER.read_text(encoding="utf-8")
    (section,) = re.findall(rf"^### `{rule}`$(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL)
    faulty, right = programs(section)
    assert faulty
    assert faulty.keys() == right.keys()
    reports = [one for language, text in BLOCK.findall(section) if language == "console" for one in commands(text)]
    for name in faulty:
        assert [f"\n{rule}: " in f"\n{one.output}" for one in reports if name in one.text] == [True]
        (tmp_path / name).write_text(faulty[name], encoding="utf-8")
        assert shell(f"offload run --sanitize {name}", tmp_path).returncode == 1
        (tmp_path / name).write_text(right[name], encoding="utf-8")
        done = shell(f"offload run --sanitize {name}", tmp_path)
        assert (done.returncode, done.stderr.partition(" in ")[0]) == (0, "offload sanitizer: 0 findings")
