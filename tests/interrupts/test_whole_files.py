"""Files are whole or absent, whichever signal comes while they are written."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.strict import STRICT

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, signal, sys
from pathlib import Path
from offload.interrupts.whole_files import write_in_one_piece
def parts():
    yield b"first "
    os.kill(os.getpid(), int(sys.argv[1]))
    yield b"last"
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # it may have been inherited as ignored, from nohup
if len(sys.argv) > 2:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
write_in_one_piece(Path("file"), parts())
print("after")
"""


def written(folder, *words):
    """Return the status and output of a process that gets a signal in the middle of writing, and the files."""
    (folder / "file").write_text("former")
    done = subprocess.run(
        [sys.executable, *STRICT, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{PROGRAM}", *words],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert [file.name for file in folder.iterdir()] == ["file"]
    return done.returncode, done.stdout, (folder / "file").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_process_comes_after_the_file(tmp_path, number):
    """A process that is terminated while it writes leaves the whole file and no part, and ends by the signal."""
    assert written(tmp_path, str(int(number))) == (-number, "", "first last")


def test_an_interrupt_leaves_the_former_file(tmp_path):
    """Ctrl-C while a file is written leaves the former one and no part."""
    status, out, text = written(tmp_path, str(int(signal.SIGINT)))
    assert (status, out, text) == (-signal.SIGINT, "", "former")


def test_the_handler_of_the_program_stays(tmp_path):
    """A program that handles SIGTERM itself is asked at once, and its exception leaves the former file."""
    assert written(tmp_path, str(int(signal.SIGTERM)), "own") == (5, "", "former")
