"""Files of programs. Ctrl-C and SIGTERM end the test run, although a command in process makes a status of them."""

from __future__ import annotations

import os
import signal
import threading

import pytest


@pytest.fixture
def program(tmp_path):
    """Return a function that writes a program; its path."""

    def write(text, name="program.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture(autouse=True)
def signals_end_the_run():
    """Look after the test which signals came, and have them do what they do to a program."""
    if threading.current_thread() is not threading.main_thread():  # only that one may ask
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    former = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(former)
        os.close(writer)
        with open(reader, "rb") as file:  # noqa: PTH123  # a descriptor
            came = file.read() or b""
    if signal.SIGTERM in came:
        signal.raise_signal(signal.SIGTERM)
    if signal.SIGINT in came:
        raise KeyboardInterrupt
