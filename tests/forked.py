"""``python`` for tests of many short programs: forks of one process that has imported the library.

Python's start and the imports take 0.3 s of CPU time, which is more than most of these programs need. One process pays
for them, and forks for each program. The fork does what ``python`` with these words does, and ends as Python ends.
Tests of the start itself start Python.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import types
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IMPORTED = ("numpy", "offload", "offload.cli.command", "offload.port.running", "offload.port.trial", "offload.views")


def python(
    *words: Any, cwd: Any = ".", env: dict[str, str] | None = None, timeout: float = 100, strict: bool = False
) -> subprocess.CompletedProcess[str]:
    """Do what ``python WORDS`` does in a folder; the words begin with ``-m``, ``-c`` or a file.

    ``strict`` makes errors of all warnings.
    """
    connection = _server()
    with tempfile.TemporaryDirectory(prefix="forked-") as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        request = {"words": [*map(str, words)], "cwd": str(Path(cwd).resolve()), "strict": strict}
        request |= {"env": env or dict(os.environ), "out": str(out), "err": str(err)}
        connection.sendall(json.dumps(request).encode())
        pid = int(connection.recv(20))
        connection.settimeout(timeout)
        try:
            status = int(connection.recv(20))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            connection.settimeout(None)
            connection.recv(20)
            raise subprocess.TimeoutExpired([*map(str, words)], timeout) from None
        return subprocess.CompletedProcess(words, status, out.read_text("utf-8"), err.read_text("utf-8"))


@functools.cache
def _server() -> socket.socket:
    """Start the process that forks; return the connection to it, which has a message for each call of `send`."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    plain = {name: text for name, text in os.environ.items() if not name.startswith(("OFFLOAD_", "PYTHON"))}
    process = subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        # One thread: NumPy would have more for linear algebra, which a fork does not take along.
        env={**plain, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
    )
    theirs.close()

    @atexit.register
    def end() -> None:
        ours.close()
        process.wait()

    return ours


# -- the process that forks ----------------------------------------------------------------------------


def next_request(connection: socket.socket) -> dict[str, Any]:
    """Fork for each request, and return it in the fork; end when the connection does."""
    while text := connection.recv(1 << 20):
        pid = os.fork()
        if not pid:
            connection.close()
            return json.loads(text)
        connection.sendall(b"%d" % pid)
        connection.sendall(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    sys.exit()


def prepare(request: dict[str, Any]) -> list[str]:
    """Make this process what Python makes at its start; return the words."""
    for number, path in ((1, request["out"]), (2, request["err"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, "utf-8", "backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    if request["strict"]:
        warnings.simplefilter("error")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return request["words"]


def run(words: list[str]) -> None:
    """Run a module, code or a file."""
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    if words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], str(Path.cwd())
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    if words[0] == "-c":
        text, name = words[1], "<string>"
        sys.argv, sys.path[0] = ["-c", *words[2:]], ""
    else:
        path = Path(words[0]).absolute()
        text, name = path.read_text("utf-8"), str(path)
        sys.argv, sys.path[0] = words, str(path.parent)
        module.__file__ = name
    exec(compile(text, name, "exec", dont_inherit=True), module.__dict__)


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    run(prepare(next_request(socket.socket(fileno=int(sys.argv[1])))))
