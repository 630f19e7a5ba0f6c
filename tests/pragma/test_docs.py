"""The page about directive strings has the tables of the parser, and mypy and pyright accept its listings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from offload.pragma.tables import DIRECTIVES
from tests.test_docs import blocks, listings
from tools import clauses

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/directive-strings.md"
EXAMPLES = sorted([*ROOT.glob("examples/pragma_*.py"), *ROOT.glob("examples/nas_*.py")])


def test_the_page_has_the_tables_of_the_parser():
    """The tables on the page are those that the tool makes; `python tools/clauses.py --write` renews them."""
    between = PAGE.read_text(encoding="utf-8").split(clauses.BEGIN)[1].split(clauses.END)[0]
    assert between == clauses.text()


@pytest.mark.parametrize("row", DIRECTIVES.values(), ids=lambda row: f"{row.language} {row.name}")
def test_a_directive_has_a_line(row):
    """A directive of the tables stands in one line of its language, with all its clauses."""
    part = clauses.text().split(f"### Directives of {clauses.LANGUAGES[row.language]}\n")[1].split("###")[0]
    (line,) = [line for line in part.splitlines() if f"`{row.name}`" in line.split(" | ")[0]]
    assert all(f"`{name}`" in line for name in row.clauses)


def test_the_tool_sees_another_page(monkeypatch, tmp_path, capsys):
    """The command ends with status 1 where the page has other tables, and puts the right ones there."""
    page = tmp_path / "page.md"
    page.write_text(f"Before.\n{clauses.BEGIN}old\n{clauses.END}After.\n", encoding="utf-8")
    monkeypatch.setattr(clauses, "PAGE", page)
    assert clauses.main([]) == 1
    assert clauses.main(["--write"]) == 0
    assert clauses.main([]) == 0
    assert capsys.readouterr().out == 2 * clauses.text()
    assert page.read_text(encoding="utf-8").startswith(f"Before.\n{clauses.BEGIN}")
    assert page.read_text(encoding="utf-8").endswith(f"{clauses.END}After.\n")


@pytest.fixture
def typed(tmp_path):
    """The listings of the page as one program, and the examples with directive strings."""
    assert len(blocks(PAGE)) > 8
    assert len(EXAMPLES) == 6
    program = tmp_path / "listings.py"
    program.write_text(listings(PAGE), encoding="utf-8")
    return [str(path) for path in [program, *EXAMPLES]]


def environment() -> dict[str, str]:
    """Where the checkers find the package and the examples."""
    places = os.pathsep.join([str(ROOT), str(ROOT / "examples")])
    return {**os.environ, "MYPYPATH": places, "PYTHONPATH": places, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}


@pytest.mark.slow
@pytest.mark.timeout(600)  # mypy reads the whole package
def test_mypy_accepts_programs_with_directive_strings(typed, tmp_path):
    """With ``--strict``, mypy reports nothing in the page's listings and the examples."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent"]
    command += ["--no-error-summary", f"--cache-dir={tmp_path / 'cache'}", *typed]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(), cwd=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pyright_accepts_programs_with_directive_strings(typed, tmp_path):
    """Neither does pyright."""
    if find_spec("pyright") is None or shutil.which("node") is None:
        pytest.skip("pyright or node is not installed")
    settings = tmp_path / "pyrightconfig.json"
    settings.write_text(f'{{"extraPaths": ["{ROOT}", "{ROOT / "examples"}"]}}', encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, *typed]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(), cwd=tmp_path)
    assert done.returncode == 0, done.stdout
