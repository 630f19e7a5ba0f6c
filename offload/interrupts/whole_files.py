"""Files that are there whole or not at all, also if the process is interrupted or terminated meanwhile."""

from __future__ import annotations

import os
import secrets
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_HELD = tuple(
    number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
)  # Windows has no SIGHUP


def write_in_one_piece(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file, or replace it; leave the former one if that fails."""
    # Not by `tempfile`: it makes files private, and the umask cannot be read without changing it for all threads.
    part = path.with_name(f".{path.name[:64]}.{os.getpid()}-{secrets.token_hex(4)}.part")
    with _held():
        try:
            with part.open("xb") as file:
                file.writelines(parts)
            part.replace(path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise


@contextmanager
def _held() -> Iterator[None]:
    """Have signals that would end the process at once do so at the end of the block: a part would be left.

    Only the main thread may say what a signal does. Signals that the program handles itself stay as they are.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    held = [number for number in _HELD if signal.getsignal(number) is signal.SIG_DFL]
    for number in held:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number in held:
            signal.signal(number, signal.SIG_DFL)
        for number in came:
            signal.raise_signal(number)
