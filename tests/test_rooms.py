"""The layout of the package: few folders, no circle of imports, no long file."""

from pathlib import Path

import offload

PACKAGE = Path(offload.__file__).parent

MOST_FOLDERS = 17
MOST_LINES = 700


def test_the_top_has_few_folders_and_no_modules_of_its_own():
    """At the top of the package stand its face, its command, its errors, ``omp.atomic``, and the rooms."""
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert len(folders) <= MOST_FOLDERS
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"interrupts"}
    assert modules == {"__init__", "__main__", "atomic", "errors"}


def test_no_file_is_long():
    """A file has one subject, and is read in one go."""
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {name: n for name, n in lengths.items() if n > MOST_LINES} == {}


def test_each_room_says_what_it_is_for():
    """The first line of a folder's ``__init__`` is its subject."""
    for path in PACKAGE.rglob("__init__.py"):
        assert path.read_text().startswith('"""'), path
