"""The layout of the package: few folders, no circle of imports, no long file, one meaning for each name."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import offload

PACKAGE = Path(offload.__file__).parent

MOST_FOLDERS = 19
MOST_LINES = 700

WORDS = Path(__file__).parents[1] / "docs/design/words.md"

IN_SEVERAL_FILES = {"Box", "Plan", "_Job"}
"""Class names that stand in more than one file. Take a name out when you have renamed a class; never add one."""


def test_the_top_has_few_folders_and_no_modules_of_its_own():
    """At the top of the package stand its face, its command, its errors, ``omp.atomic``, `texts` and the rooms."""
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert len(folders) <= MOST_FOLDERS
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"interrupts"}
    assert modules == {"__init__", "__main__", "atomic", "errors", "texts"}


def test_no_file_is_long():
    """A file has one subject, and is read in one go."""
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {name: n for name, n in lengths.items() if n > MOST_LINES} == {}


def test_each_room_says_what_it_is_for():
    """The first line of a folder's ``__init__`` is its subject."""
    for path in PACKAGE.rglob("__init__.py"):
        assert path.read_text().startswith('"""'), path


def test_no_class_name_stands_in_two_files():
    """A class name has one meaning in the package; the list of exceptions only becomes shorter."""
    files = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                files[node.name].add(str(path.relative_to(PACKAGE)))
    several = {name: sorted(found) for name, found in files.items() if len(found) > 1}
    assert {name: found for name, found in several.items() if name not in IN_SEVERAL_FILES} == {}
    assert IN_SEVERAL_FILES - set(several) == set(), "take these out of the list"


def test_each_word_has_one_home():
    """The list of words names each term once, and a file that is there."""
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| `([^`]+)` \|$", WORDS.read_text(), re.MULTILINE)
    terms = [term for names, _ in rows for term in names.split(", ")]
    assert len(terms) == len(set(terms)) > 40
    assert [home for _, home in rows if not (PACKAGE / home).is_file()] == []
