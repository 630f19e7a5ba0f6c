"""How the command line prints: on one kind of console, and on streams that take any text.

A stream of another encoding than UTF-8 lacks signs that tables and units have. There a look-alike stands for a sign,
one character for one, so that columns stay straight. Names of files whose bytes mean nothing in the encoding are
written as those bytes.
"""

from __future__ import annotations

import codecs
import os
import sys
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING

from rich.console import Console

from offload.views.words import look_alike

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

_HANDLER = "offload.look_alike"
_STRICT = frozenset({"strict", "surrogateescape"})  # which fail at such signs; another has been chosen by somebody


class _Console(Console):
    def on_broken_pipe(self) -> NoReturn:
        raise  # noqa: PLE0704  # what Rich has caught, which would end the process; `main` knows how


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints on the standard output, or on stderr."""
    return _Console(stderr=stderr)


def write(text: str) -> None:
    """Write to the standard output, if the process has one."""
    if sys.stdout is not None:
        sys.stdout.write(text)


@contextmanager
def any_text() -> Iterator[None]:
    """Let the standard streams take any text in the block."""
    changed = []
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and (errors := stream.errors) in _STRICT:
            with suppress(OSError):  # to change it is to flush it
                stream.reconfigure(errors=_HANDLER)
                changed.append((stream, errors))
    try:
        yield
    finally:
        for stream, errors in changed:
            with suppress(OSError, ValueError):  # closed, or nobody reads it
                stream.reconfigure(errors=errors)


def flush() -> None:
    """Flush the standard output; raise `OSError` if its reader has gone, or there is no space."""
    if sys.stdout is not None:
        sys.stdout.flush()


def drop_unwritable() -> None:
    """Drop output that cannot be written, or the interpreter's exit would fail."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _substitute(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    sign = error.object[error.start]
    undecoded = ord(sign) - 0xDC00  # PEP 383
    return (bytes([undecoded]) if 0x80 <= undecoded <= 0xFF else look_alike(sign)), error.start + 1


codecs.register_error(_HANDLER, _substitute)
