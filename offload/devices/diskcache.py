"""Compiled loops on disk: one file a key, a library or GPU code, with a digest of its contents in another file.

Only the user may own the folder; files of another owner are not loaded. Another user may own a folder above it,
and exchange it at any moment. So the folder is opened, the open folder is checked, and its files are reached through it
(`held`). A file that cannot be read or kept is not an error: the loop is compiled again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Kind: TypeAlias = Literal["so", "cubin"]

# How this module names its files: whatever else is in a folder that a program names is left alone.
_NAME = re.compile(r"[0-9a-f]{64}\.(so|cubin|sha256)(\.[0-9a-f]{8}\.part)?")


def folder(environ: Mapping[str, str]) -> Path:
    """Return where compiled loops are kept: ``OFFLOAD_CACHE_DIR``, else in the platform's cache directory."""
    if asked := environ.get("OFFLOAD_CACHE_DIR"):
        return Path(asked) / "loops"
    home = Path(environ.get("HOME") or Path.home())
    if sys.platform == "darwin":
        base = home / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        base = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "offload" / "loops"


# Where Linux has the open files of a process, as links that lead to them and not to their names.
OPEN_FILES: Final = Path("/proc/self/fd")


@contextlib.contextmanager
def held(where: Path, open_files: Path = OPEN_FILES) -> Iterator[Path]:
    """Yield a path to a folder that stays valid in this process for the block, even if folders above it are renamed.

    The folder must belong to the user alone: raise `OSError` if it cannot be opened, or others may change it.
    ``open_files`` is where the system has links to the open files of the process, if it has any.
    """
    if not hasattr(os, "O_DIRECTORY"):  # no POSIX: the system's own rules hold
        yield where
        return
    number = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        state, there = os.fstat(number), open_files / str(number)
        if not _is_ours(state):
            raise PermissionError(f"{where} can be changed by other users")
        yield there if there.exists() else _unmoved(where, state)
    finally:
        os.close(number)


def find(folder: Path, key: str) -> Path | None:
    """Return the library of a key in a folder that is held, if it is there, whole, and the user's own."""
    return None if _contents(folder, key, "so") is None else folder / f"{key}.so"


def read(where: Path, key: str, kind: Kind, open_files: Path = OPEN_FILES) -> bytes | None:
    """Return the contents of the file of a key, if it is there, whole, and the user's own."""
    try:
        with held(where, open_files) as folder:
            return _contents(folder, key, kind)
    except OSError:
        return None


def store(where: Path, key: str, kind: Kind, contents: bytes, open_files: Path = OPEN_FILES) -> bool:
    """Put a file of these contents there; tell whether that could be done."""
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        with held(where, open_files) as folder:
            _write(folder / f"{key}.{kind}", contents)
            _write(folder / f"{key}.sha256", _digest(contents).encode())
    except OSError:
        return False
    return True


def files(where: Path) -> dict[Path, int]:
    """Return the kept files, with those that writers left unfinished, and their sizes in bytes.

    Raise `OSError` if the folder exists but cannot be read.
    """
    found = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(where) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                with contextlib.suppress(FileNotFoundError):  # another process may clear as well
                    found[Path(entry.path)] = entry.stat(follow_symlinks=False).st_size
    return found


def clear(where: Path) -> dict[Path, int]:
    """Remove the kept files and return them, as `files` does. Processes keep loaded code.

    Raise an ``ExceptionGroup`` with the `OSError` of each file that cannot be removed; the others are removed.
    """
    kept = files(where)
    failures = []
    for path in kept:
        try:
            path.unlink(missing_ok=True)
        except OSError as failure:
            failures.append(failure)
    if failures:
        raise ExceptionGroup(f"the cache {where} cannot be emptied", failures)
    return kept


_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def _contents(folder: Path, key: str, kind: Kind) -> bytes | None:
    path = folder / f"{key}.{kind}"
    try:
        if not _is_ours(path.lstat()):
            return None
        contents = path.read_bytes()
        # A library that was cut short may load, and end the process when it is used.
        return contents if (folder / f"{key}.sha256").read_text() == _digest(contents) else None
    except (OSError, UnicodeDecodeError):
        return None


def _is_ours(state: os.stat_result) -> bool:
    if stat.S_ISLNK(state.st_mode):
        return False
    is_ours = not hasattr(os, "getuid") or state.st_uid == os.getuid()
    return is_ours and not (os.name == "posix" and state.st_mode & _BY_OTHERS)


def _unmoved(where: Path, state: os.stat_result) -> Path:
    """Return the path of a folder of this state, where no others may rename a folder above it."""
    found = where.resolve()
    for above in found.parents:
        of_it = above.lstat()
        is_shared = of_it.st_mode & _BY_OTHERS and not of_it.st_mode & stat.S_ISVTX
        if is_shared or of_it.st_uid not in (0, os.getuid()):
            raise PermissionError(f"other users may rename files in {above}")
    if not os.path.samestat(found.lstat(), state):
        raise PermissionError(f"{where} has been replaced by another folder")
    return found


def _write(path: Path, contents: bytes) -> None:
    """Write a file that is there in whole or not at all."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "wb") as file:
            file.write(contents)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _digest(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()
