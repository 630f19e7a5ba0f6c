"""Compiled loops on disk: one file a key, a library or what a GPU runs, with the digest of its contents beside it.

The folder is the user's alone, and what somebody else owns there is not loaded. Whatever cannot be read or kept is no
error: the loop is compiled again.
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
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind: TypeAlias = Literal["so", "cubin"]

_NAME = re.compile(r"[0-9a-f]{64}\.(so|cubin|sha256)(\.[0-9a-f]{8}\.part)?")
"""How this module names its files: whatever else is in a folder that a program names is left alone."""


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


def find(where: Path, key: str) -> Path | None:
    """Return the library of a key, if it is there, whole, and the user's own."""
    return None if read(where, key, "so") is None else where / f"{key}.so"


def keep(where: Path, key: str, library: Path) -> Path:
    """Put a library there, and return its new place; where that cannot be done, the old one."""
    try:
        contents = library.read_bytes()
    except OSError:
        return library
    return where / f"{key}.so" if store(where, key, "so", contents) else library


def read(where: Path, key: str, kind: Kind) -> bytes | None:
    """Return the contents of the file of a key, if it is there, whole, and the user's own."""
    path = where / f"{key}.{kind}"
    try:
        if not all(_is_ours(one) for one in (where, path)):
            return None
        contents = path.read_bytes()
        # A library that was cut short may load, and end the process when it is used.
        return contents if (where / f"{key}.sha256").read_text() == _digest(contents) else None
    except (OSError, UnicodeDecodeError):
        return None


def store(where: Path, key: str, kind: Kind, contents: bytes) -> bool:
    """Put a file of these contents there; tell whether that could be done."""
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(where):
            return False
        _write(where / f"{key}.{kind}", contents)
        _write(where / f"{key}.sha256", _digest(contents).encode())
    except OSError:
        return False
    return True


def files(where: Path) -> dict[Path, int]:
    """Return what is kept there, also what writers have left unfinished, with its size in bytes.

    Raises
    ------
    OSError
        The folder is there, and cannot be read.
    """
    found = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(where) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                with contextlib.suppress(FileNotFoundError):  # another process may clear as well
                    found[Path(entry.path)] = entry.stat(follow_symlinks=False).st_size
    return found


def clear(where: Path) -> dict[Path, int]:
    """Remove what is kept there, and return it, as `files` does. Processes keep what they have loaded.

    Raises
    ------
    OSError
        The folder is there, and cannot be read.
    ExceptionGroup
        Of the `OSError` of each file that cannot be removed; the others are.
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


def _is_ours(path: Path) -> bool:
    state = path.lstat()
    if stat.S_ISLNK(state.st_mode):
        return False
    is_ours = not hasattr(os, "getuid") or state.st_uid == os.getuid()
    return is_ours and not (os.name == "posix" and state.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


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
