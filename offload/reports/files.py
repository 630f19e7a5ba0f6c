"""Files that are there whole or not at all."""

from __future__ import annotations

import gzip
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from offload.errors import UnsupportedError
from offload.interrupts.whole_files import write_in_one_piece

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TRACE_SUFFIXES = (".json", ".json.gz")


def check_suffix(path: str | os.PathLike[str], allowed: Sequence[str], what: str) -> None:
    """Raise `UnsupportedError` if no writer knows the suffix of a file."""
    name = os.fspath(path)
    if not any(name.lower().endswith(suffix) for suffix in allowed):
        raise UnsupportedError(
            f"{what}: {name!r:.200} has none of the suffixes that can be written: {', '.join(allowed)}"
        )


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise `OSError` if a file cannot be written, and leave it as it is."""
    where = Path(path)
    if where.is_dir():
        raise IsADirectoryError(f"{os.fspath(path)!r:.200} is a folder; name a file")
    if _is_special(where):
        with where.open("ab"):
            return
    if where.exists() and not os.access(where, os.W_OK):
        raise PermissionError(f"{os.fspath(path)!r:.200} cannot be written")
    if not where.parent.is_dir():
        raise FileNotFoundError(f"{os.fspath(path)!r:.200}: the folder {str(where.parent)!r:.200} does not exist")
    with tempfile.TemporaryFile(dir=where.parent):
        pass


def write_whole(path: str | os.PathLike[str], parts: Iterable[str]) -> None:
    """Write text to a file, compressed where its name ends with ``.gz``; leave the former file if that fails."""
    where = Path(path)
    if _is_special(where):
        with where.open("wb") as file:
            file.writelines(_bytes_of(where, parts))
        return
    try:
        # Replace the target of a link, not the link.
        write_in_one_piece(Path(os.path.realpath(where)), _bytes_of(where, parts))
    except OSError as error:
        error.filename = str(where)  # not the temporary file next to it
        del error.filename2  # a None would be told, too
        raise


def _bytes_of(where: Path, parts: Iterable[str]) -> Iterable[bytes]:
    if where.suffix.lower() == ".gz":
        return (gzip.compress("".join(parts).encode("utf-8", "replace"), 3, mtime=0),)
    return (part.encode("utf-8", "replace") for part in parts)


def _is_special(where: Path) -> bool:
    """Tell whether a path is a device or a pipe, which must not be replaced by a file."""
    try:
        return not stat.S_ISREG(where.stat().st_mode)
    except OSError:
        return False
