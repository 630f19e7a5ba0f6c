"""Pictures of a recorded task graph as files: SVG, PNG, PDF, a page, or source for Graphviz or Mermaid."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from offload.errors import UnsupportedError
from offload.interrupts.whole_files import write_in_one_piece
from offload.views.converters import Format, convert
from offload.views.dot import to_dot
from offload.views.mermaid import to_mermaid
from offload.views.page import to_page
from offload.views.svg import to_svg

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offload.tasks.graph import Graph


def _converted(kind: Format) -> Callable[[Graph], bytes]:
    return lambda graph: convert(to_svg(graph), kind)


WRITERS: Mapping[str, Callable[[Graph], str | bytes]] = {
    ".dot": to_dot,
    ".html": to_page,
    ".mmd": to_mermaid,
    ".svg": to_svg,
    **{f".{kind}": _converted(kind) for kind in get_args(Format)},
}


def visualize(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write a picture of `graph` to `path`, in the format that its suffix names.

    An existing file is replaced, and only once the new one is complete.
    """
    target = Path(path)
    writer = writer_for(target)
    try:
        # Replace what a link points to, not the link.
        real = Path(os.path.realpath(target))
        _check(real)  # before the work
        content = writer(graph)
        write_in_one_piece(real, [content if isinstance(content, bytes) else content.encode()])
    except OSError as error:
        error.filename = str(target)  # not the temporary file next to it
        del error.filename2  # a None would be told, too
        raise


def writer_for(path: Path) -> Callable[[Graph], str | bytes]:
    """Return the function that makes the contents of a file with this name.

    Raises
    ------
    UnsupportedError
        No format has the suffix.
    """
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        *others, last = map(repr, sorted(WRITERS))
        raise UnsupportedError(
            f"visualize: no picture has the suffix {path.suffix[:40]!r} of {str(path)[-100:]!r}; allowed are "
            f"{', '.join(others)} and {last}"
        )
    return writer


def _check(path: Path) -> None:
    folder = path.parent
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "visualize: this is a folder; name a file in it", str(path))
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"visualize: there is no folder {str(folder)!r}; create it", str(path))
    if path.exists() and not os.access(path, os.W_OK):  # to replace it takes no more than a writable directory
        raise PermissionError(errno.EACCES, "visualize: it is read-only; make it writable or name another file")
    if not os.access(folder, os.W_OK):
        raise PermissionError(errno.EACCES, f"visualize: you may not write in the folder {str(folder)!r}")
