"""The package's metadata, and the files of a release. ``tools/check_release.py`` builds and tries the package."""

from __future__ import annotations

import re
import tarfile
import tomllib
from pathlib import Path

import pytest

import offload
from tools.check_release import CheckError, check_sdist, find_python, named_versions, readme_program, tree_files

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_version_has_one_source():
    """The build reads the version from the package, as `__version__` has it."""
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    source = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert re.findall(r'^__version__ = "(.*)"$', source.read_text(encoding="utf-8"), re.MULTILINE) == [
        offload.__version__
    ]


def test_the_changelog_has_the_version():
    """The newest version of the changelog is the package's, with its date."""
    version, _ = re.findall(r"^## \[(\d[^]]*)\] - (\d{4}-\d\d-\d\d)$", CHANGELOG, re.MULTILINE)[0]
    assert version == re.sub(r"\.dev\d+$", "", offload.__version__)


def test_the_classifiers_are_those_of_the_package():
    """The versions of Python begin with the least one, and the licence stands in its own field alone."""
    assert named_versions()[0] == PROJECT["project"]["requires-python"].removeprefix(">=")
    assert not [one for one in PROJECT["project"]["classifiers"] if one.startswith("License")]
    assert (ROOT / PROJECT["project"]["license-files"][0]).is_file()
    assert (ROOT / "offload/py.typed").is_file()


def test_the_pages_of_a_release_are_there():
    """The changelog and the page about versions name each other, and the changelog names the page about security."""
    assert "(docs/releases.md)" in CHANGELOG
    assert "(SECURITY.md)" in CHANGELOG
    assert "(../CHANGELOG.md)" in (ROOT / "docs/releases.md").read_text(encoding="utf-8")
    assert "Report a vulnerability" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_links_of_these_pages():
    """Each file that the changelog and the page about security link to exists."""
    for name in ("CHANGELOG.md", "SECURITY.md"):
        links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", (ROOT / name).read_text(encoding="utf-8"))
        assert links
        assert not [link for link in links if not (ROOT / link).exists()]


def test_the_sdist_must_have_each_file(tmp_path):
    """The check refuses an sdist that lacks a file of the tree, and one that has a file too many."""
    sdist = tmp_path / "offload-1.tar.gz"
    for name in ("PKG-INFO", "a.py"):
        (tmp_path / name).write_text("", encoding="utf-8")
    with tarfile.open(sdist, "w:gz") as archive:
        for name in ("PKG-INFO", "a.py"):
            archive.add(tmp_path / name, f"offload-1/{name}")
    check_sdist(sdist, ["a.py", ".gitignore"])
    with pytest.raises(CheckError, match=r"lacks \['b.py'\]"):
        check_sdist(sdist, ["a.py", "b.py"])
    with pytest.raises(CheckError, match=r"has \['a.py'\]"):
        check_sdist(sdist, [])


def test_what_the_check_reads():
    """The check finds README's program and an interpreter of a version; its tree has no ignored file."""
    assert "omp.taskwait()" in readme_program()
    assert find_python("2.0") is None
    files = tree_files()
    assert {"offload/py.typed", "tools/check_release.py", ".ci/run"} <= set(files)
    assert not [name for name in files if "__pycache__" in name or name.startswith(".git/")]
