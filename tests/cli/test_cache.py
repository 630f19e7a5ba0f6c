"""``offload cache``: what is kept of compiled loops, and its end."""

from __future__ import annotations

import json
import os

import pytest

from offload.cli.command import main
from offload.devices import diskcache


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of its own, which is not there yet."""
    monkeypatch.setenv("OFFLOAD_CACHE_DIR", str(tmp_path))
    return tmp_path / "loops"


def fill(folder):
    """Keep two libraries of 100 bytes, and what a writer that was killed has left; return the bytes of all files."""
    for key in ("0" * 64, "f" * 64):
        assert diskcache.store(folder, key, "so", bytes(100))
    (folder / f"{'a' * 64}.so.01234567.part").write_bytes(bytes(30))
    return 2 * (100 + 64) + 30


def facts_of(capsys, *argv):
    assert main(["cache", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_an_empty_cache(capsys, folder):
    """Before anything is compiled there is no file, and to look makes no folder."""
    assert facts_of(capsys) == {"folder": str(folder), "n_files": 0, "nbytes": 0, "is_cleared": False}
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"{folder}\nremoved 0 files, 0 bytes\n"
    assert not folder.exists()


def test_what_is_kept(capsys, folder):
    """The folder, the number of files and their bytes are shown, to readers and to programs."""
    nbytes = fill(folder)
    assert facts_of(capsys) == {"folder": str(folder), "n_files": 5, "nbytes": nbytes, "is_cleared": False}
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == f"{folder}\n5 files, {nbytes} bytes\n"


def test_clear(capsys, folder):
    """``--clear`` removes these files, says what they were, and leaves what it has not made."""
    nbytes = fill(folder)
    (folder / "mine.so").touch()
    assert facts_of(capsys, "--clear") == {"folder": str(folder), "n_files": 5, "nbytes": nbytes, "is_cleared": True}
    assert [path.name for path in folder.iterdir()] == ["mine.so"]
    assert facts_of(capsys)["n_files"] == 0


def test_a_folder_that_is_none(capsys, folder):
    """What cannot be read is an error that names it."""
    folder.touch()
    assert main(["cache"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("offload: error: ")
    assert str(folder) in told


def test_a_file_that_stays(capsys, folder):
    """A file that cannot be removed is an error that names it, and the others are removed."""
    fill(folder)
    (folder / f"{'b' * 64}.so").mkdir()
    assert main(["cache", "--clear"]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("offload: error: ")
    assert told.endswith(f"'{folder / ('b' * 64)}.so'")
    assert os.listdir(folder) == [f"{'b' * 64}.so"]  # noqa: PTH208  # names
