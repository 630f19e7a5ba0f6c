"""Pictures of a recorded task graph as files: SVG, a page with it, or source for Graphviz or Mermaid."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from offload.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.tasks.graph import Graph


def visualize(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write a picture of `graph` to `path`, in the format that its suffix names.

    The suffix is ``.svg``, ``.html`` (a page with that picture), ``.dot`` (Graphviz) or ``.mmd`` (Mermaid); any other
    raises `UnsupportedError`. An existing file is replaced, and only once the new one is complete.
    """
    target = Path(path)
    text = _writer(target)(graph)
    try:
        # Replace what a link points to, not the link.
        _write_atomically(Path(os.path.realpath(target)), text)
    except OSError as error:
        error.filename = str(target)  # not the temporary file beside it
        del error.filename2  # a None would be told, too
        raise


def _writer(path: Path) -> Callable[[Graph], str]:
    match path.suffix.lower():
        case ".svg":
            from offload.views.svg import to_svg

            return to_svg
        case ".dot":
            from offload.views.dot import to_dot

            return to_dot
        case ".mmd":
            from offload.views.mermaid import to_mermaid

            return to_mermaid
        case ".html":
            return to_page
        case suffix:
            raise UnsupportedError(
                f"no picture of a graph has the suffix {suffix!r} of {str(path)!r}; "
                "allowed are '.dot', '.html', '.mmd' and '.svg'"
            )


def to_page(graph: Graph) -> str:
    """Return a page of HTML with the picture of `graph` and nothing else."""
    from offload.views.svg import to_svg
    from offload.views.words import summary

    title = f"Task graph: {summary(graph)}"
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n{to_svg(graph)}</html>\n'
    )


def _write_atomically(path: Path, text: str) -> None:
    if path.exists() and not os.access(path, os.W_OK):  # to replace it takes no more than a writable directory
        raise PermissionError(errno.EACCES, "it is read-only; make it writable or name another file", str(path))
    # Not tempfile: it makes files private, and the umask cannot be read without changing it for all threads.
    part = path.with_name(f".{path.name[:64]}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with part.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
